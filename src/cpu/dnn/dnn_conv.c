/* dnn_conv.c - convolutions on oneDNN, in three directions and by four algorithms.
 *
 *   direct   oneDNN's kernel. Nearly everything: within 2 % of the blocked activation layouts that
 *            oneDNN prefers, without the reorders that these would cost.
 *   narrow   1x1 with up to four channels on one side: products with few vectors (narrow.h).
 *   thin     1 to 8 channels on the side that kernels vectorise over, where direct uses only that
 *            many of 16 lanes: a 1x1 convolution to all taps at once and a sum of shifted images
 *            (thin.h).
 *   phases   strided kernels too large for the compiled kernels, where oneDNN falls back on matrix
 *            products over an unfolded copy of the input, several hundred MiB large: taps k = r
 *            (mod stride) only read inputs q = r - pad (mod stride), so each r is a convolution of
 *            stride 1 between views of x and w, and the parts do not overlap.
 *
 * thin is also used where direct would fall back on matrix products, because those allocate.
 */
#include "cpu/dnn/dnn_conv.h"

#include <string.h>

static pl_status check_conv(pl_dnn_conv_kind kind, const pl_conv *c)
{
    PL_TRY(pl_dnn_check_window("convolution", c->n_spatial, c->in, c->out, c->kernel, c->stride,
                               c->dilation, c->pad_lo, c->pad_hi));
    PL_FAIL_IF(c->n < 1 || c->groups < 1 || c->ic < 1 || c->oc < 1 || c->ic % c->groups ||
                   c->oc % c->groups,
               PL_ERR_SHAPE, "convolution of %lld samples: %lld to %lld channels in %lld groups",
               (long long)c->n, (long long)c->ic, (long long)c->oc, (long long)c->groups);
    PL_FAIL_IF(c->bias && kind != PL_DNN_CONV_FWD, PL_ERR_ARG,
               "only the forward convolution has a bias");
    return PL_OK;
}

/* ---- layouts ---------------------------------------------------------------------------- */

/* Weights (O, kernel.., I/groups) as oneDNN's [G],O,I,kernel.. */
static pl_mdesc weight_md(dnnl_data_type_t type, const pl_conv *c)
{
    const int g = c->groups > 1;
    pl_mdesc m = {.type = type, .rank = g + 2 + c->n_spatial, .dim = {c->groups}};
    m.dim[g] = c->oc / c->groups;
    m.dim[g + 1] = c->ic / c->groups;
    m.stride[g + 1] = 1;
    int64_t elems = m.dim[g + 1];
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        m.dim[g + 2 + i] = c->kernel[i];
        m.stride[g + 2 + i] = elems;
        elems *= c->kernel[i];
    }
    m.stride[g] = elems;
    if (g) m.stride[0] = elems * m.dim[g];
    return m;
}

pl_status pl_conv_tensors_init(pl_conv_tensors *t, const pl_conv *c)
{
    dnnl_data_type_t type = dnnl_f32;
    PL_TRY(pl_dnn_data_type(c->dtype, &type));
    t->x = pl_dnn_activation_md(type, c->n_spatial, c->n, c->ic, c->in);
    t->y = pl_dnn_activation_md(type, c->n_spatial, c->n, c->oc, c->out);
    t->w = weight_md(type, c);
    t->bias = pl_dnn_vector_md(type, c->oc);
    return PL_OK;
}

/* ---- direct ----------------------------------------------------------------------------- */

/* The first kernels that oneDNN offers; weights in any layout. */
static pl_status direct_offer(pl_dnn_conv_kind kind, const pl_conv *c, const pl_conv_tensors *t,
                              const_dnnl_primitive_desc_t hint, const char *avoid,
                              dnnl_primitive_desc_t *out)
{
    const pl_dnn_window w =
        pl_dnn_window_make(c->n_spatial, c->kernel, c->stride, c->dilation, c->pad_lo, c->pad_hi);
    pl_mdesc any = t->w;
    any.any = true;
    const pl_mdesc *tensors[PL_DNN_MAX_TENSORS] = {&t->x, &any, &t->y, c->bias ? &t->bias : NULL};
    void *mds[PL_DNN_MAX_TENSORS];
    pl_dnn_offer o;
    PL_TRY(pl_dnn_mds_new(tensors, PL_DNN_MAX_TENSORS, mds));
    pl_status s = pl_dnn_choose(pl_dnn_offer_conv(kind, mds, &w, hint, &o), &o, c->dtype, avoid,
                                "convolve", out);
    pl_dnn_mds_free(mds, PL_DNN_MAX_TENSORS);
    return s;
}

/* oneDNN's 1x1 kernels with a stride first gather the pixels that they read. For weight gradients,
 * where the channels do not fill whole vectors, that gather writes past the end of the requested
 * scratchpad. */
static bool gathers_too_far(pl_dnn_conv_kind kind, const pl_conv *c)
{
    bool strided = false;
    for (int i = 0; i < c->n_spatial; i++) strided |= c->stride[i] > 1;
    return kind == PL_DNN_CONV_BWD_WEIGHTS && strided && pl_conv_taps(c) == 1 &&
           (c->ic % 16 || c->oc % 16);
}

/* Versions below 2.6; tried was 2.2 (Ubuntu 22.04). */
static bool is_old(void)
{
    const dnnl_version_t *v = dnnl_version();
    return v->major == 2 && v->minor < 6;
}

/* In old versions, weight gradients of 3-D convolutions with few channels in are wrong in the
 * avx512 kernel: in places by more than their size. */
static bool is_wrong(pl_dnn_conv_kind kind, const pl_conv *c)
{
    return kind == PL_DNN_CONV_BWD_WEIGHTS && c->n_spatial == 3 && c->ic / c->groups < 16 &&
           is_old();
}

/* Kernels that oneDNN ranks too high:
 *   few channels on both sides (or in a group, for weights): 8 lanes waste fewer than 16;
 *   brdgmm, depthwise forward: 15 to 45 % slower than the jit kernel;
 *   brgconv loads a whole filter for a few output pixels: with filters beyond the caches (a wide
 *   16x16 kernel) plain jit is nearly twice as fast, on small images 10 %;
 *   brg to the data (3.x): runs another kernel inside itself, for which it allocates 56 bytes. */
static const char *avoid(pl_dnn_conv_kind kind, const pl_conv *c)
{
    const int64_t ic = c->ic / c->groups, oc = c->oc / c->groups, filter = ic * pl_conv_taps(c);
    const bool fwd = kind == PL_DNN_CONV_FWD, to_w = kind == PL_DNN_CONV_BWD_WEIGHTS;
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA;
    int64_t pixels = 1;
    for (int i = 0; i < c->n_spatial; i++) pixels *= c->out[i];
    if (gathers_too_far(kind, c)) return "1x1";
    if (is_wrong(kind, c)) return "avx512";
    if (c->dtype != PL_F32) return to_x ? "brg" : NULL;
    /* there, looking at further kernels takes time and memory for every pixel */
    if (pixels > 1 << 20 && is_old()) return NULL;
    /* the next candidate there is a product that allocates */
    const bool deep_w = to_w && c->n_spatial == 3;
    if (!deep_w && ic <= 8 && oc <= 8 && (c->groups == 1 || (to_w && ic > 1)))
        return to_x ? "avx512 brg" : "avx512";
    if (to_x) return "brg";
    if (fwd && c->groups > 1) return "brdgmm";
    return fwd && (filter >= 65536 || (pixels <= 64 && filter <= 8192)) ? "brg" : NULL;
}

static pl_status direct_choose(pl_dnn_conv_kind kind, const pl_conv *c, const pl_conv_tensors *t,
                               dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t hint = NULL;
    if (kind != PL_DNN_CONV_FWD) PL_TRY(direct_offer(PL_DNN_CONV_FWD, c, t, NULL, NULL, &hint));
    pl_status s = direct_offer(kind, c, t, hint, avoid(kind, c), out);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status direct_weights(pl_dnn *d, const pl_conv_tensors *t, dnnl_primitive_desc_t pd,
                                const pl_conv_io *io)
{
    const pl_mdesc want = pl_dnn_chosen_md(pd, dnnl_query_diff_weights_md);
    bool same;
    int w = io->w;
    PL_TRY(pl_dnn_same_md(&t->w, &want, &same));
    if (!same) PL_TRY(pl_dnn_add_work(d, &want, &w));
    PL_TRY(pl_dnn_add_step(d, pd, 3,
                           (const int[][2]){{DNNL_ARG_SRC, io->x},
                                            {DNNL_ARG_DIFF_DST, io->y},
                                            {DNNL_ARG_DIFF_WEIGHTS, w}}));
    return same ? PL_OK : pl_dnn_add_reorder(d, &want, w, &t->w, io->w);
}

static pl_status direct_steps(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                              const pl_conv_tensors *t, dnnl_primitive_desc_t pd,
                              const pl_conv_io *io)
{
    if (kind == PL_DNN_CONV_BWD_WEIGHTS) return direct_weights(d, t, pd, io);
    const pl_mdesc want = pl_dnn_chosen_md(pd, dnnl_query_weights_md);
    int w;
    PL_TRY(pl_dnn_add_as(d, &t->w, io->w, &want, &w));
    if (kind == PL_DNN_CONV_BWD_DATA)
        return pl_dnn_add_step(d, pd, 3,
                               (const int[][2]){{DNNL_ARG_DIFF_DST, io->y},
                                                {DNNL_ARG_WEIGHTS, w},
                                                {DNNL_ARG_DIFF_SRC, io->x}});
    return pl_dnn_add_step(d, pd, c->bias ? 4 : 3,
                           (const int[][2]){{DNNL_ARG_SRC, io->x},
                                            {DNNL_ARG_WEIGHTS, w},
                                            {DNNL_ARG_DST, io->y},
                                            {DNNL_ARG_BIAS, io->bias}});
}

/* Chooses the kernel and adds the steps; used by all algorithms but narrow. */
pl_status pl_conv_direct_add(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                             const pl_conv_tensors *t, const pl_conv_io *io)
{
    dnnl_primitive_desc_t pd;
    PL_TRY(direct_choose(kind, c, t, &pd));
    pl_dnn_note_impl(d, pl_dnn_impl_of(pd));
    pl_status s = direct_steps(d, kind, c, t, pd, io);
    dnnl_primitive_desc_destroy(pd);
    return s;
}

static pl_status direct_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                              const pl_conv_tensors *t)
{
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA, to_w = kind == PL_DNN_CONV_BWD_WEIGHTS;
    pl_conv_io io;
    PL_TRY(pl_dnn_add_operand(d, &t->x, to_x ? PL_DNN_OUT : PL_DNN_IN, 0, &io.x));
    if (kind == PL_DNN_CONV_FWD)
        PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_OUT, 0, &io.y));
    else
        PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, to_w ? 1 : 0, &io.y));
    PL_TRY(pl_dnn_add_operand(d, &t->w, to_w ? PL_DNN_OUT : PL_DNN_IN, to_w ? 0 : 1, &io.w));
    if (c->bias) PL_TRY(pl_dnn_add_operand(d, &t->bias, PL_DNN_IN, 2, &io.bias));
    return pl_conv_direct_add(d, kind, c, t, &io);
}

/* ---- phases ----------------------------------------------------------------------------- */

/* The convolution of one residue r of taps (per dim) and where its views begin. */
typedef struct phase {
    pl_conv c;
    int64_t x_offset, w_offset; /* elements */
} phase;

/* For tap k = stride*j + r: q = stride*(p + j) + r - pad. With r - pad = stride*f + m, 0 <= m <
 * stride, that is pixel p + j + f of the view that begins at m: stride 1, padding -f. False where
 * the view has pixels at its end that no window reaches. */
static bool phase_make(const pl_conv *c, const int64_t *r, phase *ph)
{
    *ph = (phase){.c = *c};
    for (int i = 0; i < c->n_spatial; i++) {
        const int64_t s = c->stride[i], e = r[i] - c->pad_lo[i];
        const int64_t m = ((e % s) + s) % s, f = (e - m) / s;
        pl_conv *v = &ph->c;
        v->stride[i] = 1;
        v->kernel[i] = (c->kernel[i] - r[i] + s - 1) / s;
        v->in[i] = (c->in[i] - m + s - 1) / s;
        v->pad_lo[i] = -f;
        v->pad_hi[i] = c->out[i] + v->kernel[i] - 1 - v->in[i] + f;
        if (v->kernel[i] < 1 || v->in[i] < 1 || v->pad_hi[i] < 0) return false;
        ph->x_offset = ph->x_offset * c->in[i] + m;
        ph->w_offset = ph->w_offset * c->kernel[i] + r[i];
    }
    ph->x_offset *= c->ic;
    ph->w_offset *= c->ic;
    return true;
}

enum { MAX_PHASES = 4 };

/* The n-th phase; false past the last. */
static bool phase_nth(const pl_conv *c, int64_t n, phase *ph, bool *good)
{
    int64_t r[3] = {0};
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        r[i] = n % c->stride[i];
        n /= c->stride[i];
    }
    if (n > 0) return false;
    *good = phase_make(c, r, ph);
    return true;
}

/* From 15 taps in a row on, oneDNN has no compiled kernel, or a slow one, for the gradients of a
 * strided convolution. */
static bool phases_pay(pl_dnn_conv_kind kind, const pl_conv *c)
{
    bool large = false, good = true;
    if (kind == PL_DNN_CONV_FWD || c->groups != 1) return false;
    for (int i = 0; i < c->n_spatial; i++) {
        large = large || (c->kernel[i] >= 15 && c->stride[i] > 1);
        if (c->dilation[i] != 1) return false;
    }
    phase ph;
    int64_t n = 0;
    while (n <= MAX_PHASES && phase_nth(c, n, &ph, &good) && good) n++;
    return large && good && n <= MAX_PHASES;
}

static void copy_box(const pl_dnn_call *c, void *const *p)
{
    pl_strided_copy(&c->size.copy.box, c->size.copy.elem, p[0], p[1]);
}

/* Adds the copy between a view and a dense operand, `into` the view or out of it. Both have the
 * dims (outer, size.., inner); the view takes every `every`-th of `full` along the spatial dims.
 * oneDNN has no such views: the last row of a view may reach beyond the image. */
static void add_view_copy(pl_dnn *d, const pl_conv *c, int64_t outer, const int64_t *size,
                          const int64_t *full, int64_t inner, bool into, int view, int dense)
{
    pl_dnn_call call = {.fn = copy_box,
                        .size.copy.elem = pl_dtype_bytes(c->dtype),
                        .operand = {into ? view : dense, into ? dense : view, -1, -1, -1}};
    pl_strided_box *b = &call.size.copy.box;
    int64_t *of_view = into ? b->to : b->from, *of_dense = into ? b->from : b->to;
    const int last = c->n_spatial + 1;
    b->rank = last + 1;
    b->dim[last] = inner;
    of_view[last] = of_dense[last] = 1;
    int64_t view_elems = inner, dense_elems = inner;
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        b->dim[1 + i] = size[i];
        of_view[1 + i] = view_elems * c->stride[i];
        of_dense[1 + i] = dense_elems;
        view_elems *= full[i];
        dense_elems *= size[i];
    }
    b->dim[0] = outer;
    of_view[0] = view_elems;
    of_dense[0] = dense_elems;
    pl_dnn_add_call(d, &call);
}

/* t has the tensors of the whole convolution, y is an operand. */
static pl_status phase_add(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                           const pl_conv_tensors *t, const phase *ph, int y)
{
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA;
    const pl_conv *v = &ph->c;
    const size_t elem = pl_dtype_bytes(c->dtype), used = d->work_used;
    pl_conv_io io = {.y = y};
    pl_conv_tensors pt;
    int x, w;
    PL_TRY(pl_conv_tensors_init(&pt, v));
    PL_TRY(pl_dnn_add_operand(d, &t->x, to_x ? PL_DNN_OUT : PL_DNN_IN, 0, &x));
    PL_TRY(pl_dnn_add_operand(d, &t->w, to_x ? PL_DNN_IN : PL_DNN_OUT, to_x ? 1 : 0, &w));
    d->operands[x].offset = (size_t)ph->x_offset * elem;
    d->operands[w].offset = (size_t)ph->w_offset * elem;
    PL_TRY(pl_dnn_add_work(d, &pt.x, &io.x));
    PL_TRY(pl_dnn_add_work(d, &pt.w, &io.w));
    if (to_x)
        add_view_copy(d, c, c->oc, v->kernel, c->kernel, c->ic, false, w, io.w);
    else
        add_view_copy(d, c, c->n, v->in, c->in, c->ic, false, x, io.x);
    PL_TRY(pl_conv_direct_add(d, kind, v, &pt, &io));
    if (to_x)
        add_view_copy(d, c, c->n, v->in, c->in, c->ic, true, x, io.x);
    else
        add_view_copy(d, c, c->oc, v->kernel, c->kernel, c->ic, true, w, io.w);
    d->work_used = used; /* the next phase reuses the same scratch */
    return PL_OK;
}

static pl_status phases_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                              const pl_conv_tensors *t)
{
    phase ph;
    bool good;
    int y;
    PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, kind == PL_DNN_CONV_BWD_DATA ? 0 : 1, &y));
    for (int64_t n = 0; phase_nth(c, n, &ph, &good); n++) PL_TRY(phase_add(d, kind, c, t, &ph, y));
    return PL_OK;
}

/* ---- matrix products -------------------------------------------------------------------- */

/* Adds the caller's A as pixels of k channels: A itself, or a reordered copy in the work block. */
static pl_status product_rows(pl_dnn *d, const pl_dnn_matmul_desc *m, const pl_conv_tensors *t,
                              int *out)
{
    const int64_t ld = m->lda ? m->lda : m->trans_a ? m->m : m->k;
    const int first = d->n_operands;
    const pl_mdesc user = {
        .type = dnnl_f32,
        .rank = 3,
        .dim = {1, m->k, m->m},
        .stride = {ld * (m->trans_a ? m->k : m->m), m->trans_a ? ld : 1, m->trans_a ? 1 : ld}};
    PL_TRY(pl_dnn_add_input(d, &user, &t->x, 0, out));
    d->operands[first].image_bytes = (size_t)m->a_batch_stride * sizeof(float);
    return PL_OK;
}

pl_status pl_dnn_add_product(pl_dnn *d, const pl_dnn_matmul_desc *m)
{
    const int64_t ld = m->ldb ? m->ldb : m->trans_b ? m->k : m->n;
    const pl_conv c = {.dtype = m->dtype,
                       .n_spatial = 1,
                       .n = 1,
                       .ic = m->k,
                       .oc = m->n,
                       .groups = 1,
                       .in = {m->m},
                       .out = {m->m},
                       .kernel = {1},
                       .stride = {1},
                       .dilation = {1},
                       .bias = m->bias};
    pl_conv_tensors t;
    pl_conv_io io;
    PL_TRY(pl_conv_tensors_init(&t, &c));
    pl_conv_weight_strides(&t.w, m->trans_b ? ld : 1, m->trans_b ? 1 : ld);
    PL_TRY(product_rows(d, m, &t, &io.x));
    PL_TRY(pl_dnn_add_operand(d, &t.y, PL_DNN_OUT, 0, &io.y));
    d->operands[io.y].image_bytes = (size_t)(m->m * m->n) * sizeof(float);
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &t.bias, PL_DNN_IN, 2, &io.bias));
    PL_TRY(pl_dnn_add_operand(d, &t.w, PL_DNN_IN, 1, &io.w));
    d->operands[io.w].image_bytes = (size_t)m->b_batch_stride * sizeof(float);
    PL_TRY(pl_conv_direct_add(d, PL_DNN_CONV_FWD, &c, &t, &io));
    d->n_images = m->batch;
    return PL_OK;
}

/* ---- the choice ------------------------------------------------------------------------- */

/* Whether direct would use matrix products over an unfolded copy. */
static pl_status direct_unfolds(pl_dnn_conv_kind kind, const pl_conv *c, const pl_conv_tensors *t,
                                bool *out)
{
    dnnl_primitive_desc_t pd;
    PL_TRY(direct_choose(kind, c, t, &pd));
    *out = strstr(pl_dnn_impl_of(pd), "gemm") != NULL;
    dnnl_primitive_desc_destroy(pd);
    return PL_OK;
}

/* Whether phases apply and their convolutions have compiled kernels. */
static pl_status phases_work(pl_dnn_conv_kind kind, const pl_conv *c, bool *out)
{
    phase ph;
    pl_conv_tensors t;
    bool good, unfolds;
    *out = false;
    if (!phases_pay(kind, c) || !phase_nth(c, 0, &ph, &good)) return PL_OK;
    PL_TRY(pl_conv_tensors_init(&t, &ph.c));
    PL_TRY(direct_unfolds(kind, &ph.c, &t, &unfolds));
    *out = !unfolds;
    return PL_OK;
}

static pl_status conv_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c)
{
    pl_conv_tensors t;
    bool phases = false, unfolds = false;
    PL_TRY(pl_conv_tensors_init(&t, c));
    if (pl_conv_is_narrow(kind, c)) return pl_conv_narrow_build(d, kind, c, &t);
    PL_TRY(phases_work(kind, c, &phases));
    if (phases) return phases_build(d, kind, c, &t);
    if (pl_conv_thin_can(kind, c)) {
        if (pl_conv_thin_pays(kind, c)) return pl_conv_thin_build(d, kind, c, &t);
        PL_TRY(direct_unfolds(kind, c, &t, &unfolds));
        if (unfolds) return pl_conv_thin_build(d, kind, c, &t);
    }
    /* Gradients of grouped 3-D convolutions have only a product that allocates during a run: the
     * caller's own loops are slower, but allocate nothing. */
    if (kind != PL_DNN_CONV_FWD && c->n_spatial == 3 && c->groups > 1) {
        PL_TRY(direct_unfolds(kind, c, &t, &unfolds));
        PL_FAIL_IF(unfolds, PL_ERR_UNSUPPORTED, "a grouped 3-D gradient would allocate in a run");
    }
    return direct_build(d, kind, c, &t);
}

pl_status pl_dnn_conv_prepare(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *desc, pl_dnn **out,
                              size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_conv(kind, desc));
    PL_TRY(pl_dnn_new(&d));
    return pl_dnn_hand_over(conv_build(d, kind, desc), d, out, work_bytes);
}
