/* dnn_conv.c - convolutions on oneDNN, in three directions and by four algorithms.
 *
 *   direct   oneDNN's kernel as it is. Nearly everything: within 2 % of the blocked activation
 *            layouts that oneDNN prefers, without the reorders these would cost.
 *   narrow   1x1 with up to four channels on one side: products with few vectors (narrow.h).
 *   thin     1 to 8 channels on the side that kernels vectorise over, where direct uses that
 * many of 16 lanes: a 1x1 convolution to all taps at once and a sum of shifted images (thin.h).
 *   phases   strided kernels too large for the compiled kernels, where oneDNN falls back on
 * matrix products over an unfolded copy of the input, several hundred MiB large: taps k = r
 *            (mod stride) only meet inputs q = r - pad (mod stride), so each r is a convolution
 *            of stride 1 between views of x and w, and the parts do not overlap.
 *
 * thin is also the way out where direct would fall back on matrix products: those allocate.
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

/* Strides past oneDNN's constructor, which refuses views whose last row would reach beyond the
 * next image if it were whole. */
static pl_status view_md(pl_mdesc *md, int rank, const dnnl_dims_t dim, dnnl_data_type_t type,
                         const dnnl_dims_t stride)
{
    PL_TRY(pl_dnn_check(dnnl_memory_desc_init_by_strides(md, rank, dim, type, NULL),
                        "describe a tensor"));
    for (int i = 0; i < rank; i++) md->format_desc.blocking.strides[i] = stride[i];
    return PL_OK;
}

/* Weights (O, kernel.., I/groups) as oneDNN's [G],O,I,kernel.. ; `full` is the kernel as it
 * lies in memory, of which c's taps are every `every`-th. */
static pl_status weight_md(pl_mdesc *md, const pl_conv *c, const int64_t *full,
                           const int64_t *every)
{
    dnnl_data_type_t type = dnnl_f32;
    dnnl_dims_t dim, stride;
    const int g = c->groups > 1, rank = g + 2 + c->n_spatial;
    PL_TRY(pl_dnn_data_type(c->dtype, &type));
    dim[0] = c->groups;
    dim[g] = c->oc / c->groups;
    dim[g + 1] = c->ic / c->groups;
    stride[g + 1] = 1;
    int64_t elems = dim[g + 1];
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        dim[g + 2 + i] = c->kernel[i];
        stride[g + 2 + i] = elems * every[i];
        elems *= full[i];
    }
    stride[g] = elems;
    if (g) stride[0] = elems * dim[g];
    return view_md(md, rank, dim, type, stride);
}

/* Every `every`-th pixel of x along each dim, c->in of them, of a tensor of spatial size
 * `full`. */
static pl_status pixels_md(pl_mdesc *md, const pl_conv *c, const int64_t *full,
                           const int64_t *every)
{
    dnnl_data_type_t type = dnnl_f32;
    dnnl_dims_t dim = {c->n, c->ic}, stride = {0, 1};
    PL_TRY(pl_dnn_data_type(c->dtype, &type));
    int64_t elems = c->ic;
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        dim[2 + i] = c->in[i];
        stride[2 + i] = elems * every[i];
        elems *= full[i];
    }
    stride[0] = elems;
    return view_md(md, c->n_spatial + 2, dim, type, stride);
}

pl_status pl_conv_tensors_init(pl_conv_tensors *t, const pl_conv *c)
{
    const int64_t one[3] = {1, 1, 1};
    dnnl_data_type_t type = dnnl_f32;
    dnnl_dims_t oc = {c->oc};
    PL_TRY(pl_dnn_data_type(c->dtype, &type));
    PL_TRY(pl_dnn_activation_md(&t->x, type, c->n_spatial, c->n, c->ic, c->in));
    PL_TRY(pl_dnn_activation_md(&t->y, type, c->n_spatial, c->n, c->oc, c->out));
    PL_TRY(weight_md(&t->w, c, c->kernel, one));
    return pl_dnn_check(dnnl_memory_desc_init_by_tag(&t->bias, 1, oc, type, dnnl_a),
                        "describe a bias");
}

/* ---- direct ----------------------------------------------------------------------------- */

static pl_status conv_op(dnnl_convolution_desc_t *op, pl_dnn_conv_kind kind, const pl_conv *c,
                         const pl_conv_tensors *t)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const pl_mdesc *bias = c->bias ? &t->bias : NULL;
    const pl_dnn_window w =
        pl_dnn_window_make(c->n_spatial, c->kernel, c->stride, c->dilation, c->pad_lo, c->pad_hi);
    pl_mdesc any;
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(&any, t->w.ndims, t->w.dims, t->w.data_type,
                                                   dnnl_format_tag_any);
    PL_TRY(pl_dnn_check(s, "describe weights"));
    if (kind == PL_DNN_CONV_FWD)
        s = dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, alg, &t->x, &any,
                                                       bias, &t->y, w.stride, w.dilation, w.pad_lo,
                                                       w.pad_hi);
    else if (kind == PL_DNN_CONV_BWD_DATA)
        s = dnnl_dilated_convolution_backward_data_desc_init(op, alg, &t->x, &any, &t->y, w.stride,
                                                             w.dilation, w.pad_lo, w.pad_hi);
    else
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            op, alg, &t->x, &any, NULL, &t->y, w.stride, w.dilation, w.pad_lo, w.pad_hi);
    return pl_dnn_check(s, "describe a convolution");
}

/* Kernels of 1 with a stride gather the pixels that they read first, and where channels are no
 * whole vectors oneDNN's own for weights writes past the end of the scratchpad that it asked for.
 */
static bool gathers_too_far(pl_dnn_conv_kind kind, const pl_conv *c)
{
    bool strided = false;
    for (int i = 0; i < c->n_spatial; i++) strided |= c->stride[i] > 1;
    return kind == PL_DNN_CONV_BWD_WEIGHTS && strided && pl_conv_taps(c) == 1 &&
           (c->ic % 16 || c->oc % 16);
}

/* Kernels that oneDNN ranks too high:
 *   few channels on both sides (or in a group, for weights): 8 lanes waste fewer than 16;
 *   brdgmm, depthwise forward: 15 to 45 % behind the jit kernel;
 *   brgconv streams a whole filter for a few output pixels: with filters beyond the caches (a
 * wide 16x16 kernel) plain jit is nearly twice as fast, on small images 10 %. */
static const char *avoid(pl_dnn_conv_kind kind, const pl_conv *c)
{
    const int64_t ic = c->ic / c->groups, oc = c->oc / c->groups, filter = ic * pl_conv_taps(c);
    const bool fwd = kind == PL_DNN_CONV_FWD, to_w = kind == PL_DNN_CONV_BWD_WEIGHTS;
    int64_t pixels = 1;
    for (int i = 0; i < c->n_spatial; i++) pixels *= c->out[i];
    if (gathers_too_far(kind, c)) return "1x1";
    if (c->dtype != PL_F32) return NULL;
    /* the next one there is a product that allocates */
    const bool deep_w = to_w && c->n_spatial == 3;
    if (!deep_w && ic <= 8 && oc <= 8 && (c->groups == 1 || (to_w && ic > 1))) return "avx512";
    if (fwd && c->groups > 1) return "brdgmm";
    return fwd && (filter >= 65536 || (pixels <= 64 && filter <= 8192)) ? "brgconv" : NULL;
}

static pl_status direct_choose(pl_dnn_conv_kind kind, const pl_conv *c, const pl_conv_tensors *t,
                               dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t hint = NULL;
    if (kind != PL_DNN_CONV_FWD) {
        PL_TRY(conv_op(&op, PL_DNN_CONV_FWD, c, t));
        PL_TRY(pl_dnn_choose(&op, c->dtype, NULL, NULL, "convolve", &hint));
    }
    pl_status s = conv_op(&op, kind, c, t);
    if (s == PL_OK) s = pl_dnn_choose(&op, c->dtype, hint, avoid(kind, c), "convolve", out);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status direct_weights(pl_dnn *d, const pl_conv_tensors *t, dnnl_primitive_desc_t pd,
                                const pl_conv_io *io)
{
    const pl_mdesc *want = dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
    int dw, w;
    PL_TRY(pl_dnn_add_operand(d, &t->w, PL_DNN_OUT, io->w_index, &dw));
    d->operands[dw].offset = io->w_offset;
    const bool same = dnnl_memory_desc_equal(&t->w, want);
    w = dw;
    if (!same) PL_TRY(pl_dnn_add_work(d, want, &w));
    PL_TRY(pl_dnn_add_step(d, pd, 3,
                           (const int[][2]){{DNNL_ARG_SRC, io->x},
                                            {DNNL_ARG_DIFF_DST, io->y},
                                            {DNNL_ARG_DIFF_WEIGHTS, w}}));
    return same ? PL_OK : pl_dnn_add_reorder(d, want, w, &t->w, dw);
}

static pl_status direct_steps(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                              const pl_conv_tensors *t, dnnl_primitive_desc_t pd,
                              const pl_conv_io *io)
{
    if (kind == PL_DNN_CONV_BWD_WEIGHTS) return direct_weights(d, t, pd, io);
    const pl_mdesc *want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const int first = d->n_operands;
    int w;
    PL_TRY(pl_dnn_add_input(d, &t->w, want, io->w_index, &w));
    d->operands[first].offset = io->w_offset;
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

/* Chooses and adds; used by all but narrow. */
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
    pl_conv_io io = {.w_index = to_w ? 0 : 1};
    PL_TRY(pl_dnn_add_operand(d, &t->x, to_x ? PL_DNN_OUT : PL_DNN_IN, 0, &io.x));
    if (kind == PL_DNN_CONV_FWD)
        PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_OUT, 0, &io.y));
    else
        PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, to_w ? 1 : 0, &io.y));
    if (c->bias) PL_TRY(pl_dnn_add_operand(d, &t->bias, PL_DNN_IN, 2, &io.bias));
    return pl_conv_direct_add(d, kind, c, t, &io);
}

/* ---- phases ----------------------------------------------------------------------------- */

/* The convolution of one residue r of taps (per dim) and where its views begin. */
typedef struct phase {
    pl_conv c;
    int64_t x_offset, w_offset; /* elements */
} phase;

/* q = stride*(p + j) + r - pad for tap k = stride*j + r. With r - pad = stride*f + m, 0 <= m <
 * stride, that is pixel p + j + f of the view that begins at m: stride 1, padding -f. False
 * where the view has pixels at its end that no window reaches. */
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

/* From 15 taps in a row on, oneDNN has no compiled kernel for the gradients of a strided
 * convolution, or a narrow one. */
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

static pl_status phase_add(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c, const phase *ph,
                           int y)
{
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA;
    const size_t elem = pl_dtype_bytes(c->dtype), used = d->work_used;
    pl_conv_io io = {.y = y, .w_index = to_x ? 1 : 0, .w_offset = (size_t)ph->w_offset * elem};
    pl_conv_tensors t;
    pl_mdesc view;
    int at;
    PL_TRY(pl_conv_tensors_init(&t, &ph->c));
    PL_TRY(weight_md(&t.w, &ph->c, c->kernel, c->stride));
    PL_TRY(pixels_md(&view, &ph->c, c->in, c->stride));
    PL_TRY(pl_dnn_add_operand(d, &view, to_x ? PL_DNN_OUT : PL_DNN_IN, 0, &at));
    d->operands[at].offset = (size_t)ph->x_offset * elem;
    PL_TRY(pl_dnn_add_work(d, &t.x, &io.x));
    if (!to_x) PL_TRY(pl_dnn_add_reorder(d, &view, at, &t.x, io.x));
    PL_TRY(pl_conv_direct_add(d, kind, &ph->c, &t, &io));
    if (to_x) PL_TRY(pl_dnn_add_reorder(d, &t.x, io.x, &view, at));
    d->work_used = used; /* the next phase takes the same parts */
    return PL_OK;
}

static pl_status phases_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                              const pl_conv_tensors *t)
{
    phase ph;
    bool good;
    int y;
    PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, kind == PL_DNN_CONV_BWD_DATA ? 0 : 1, &y));
    for (int64_t n = 0; phase_nth(c, n, &ph, &good); n++) PL_TRY(phase_add(d, kind, c, &ph, y));
    return PL_OK;
}

/* ---- matrix products -------------------------------------------------------------------- */

/* The caller's A as pixels of k channels: itself, or put in order in the work block. */
static pl_status product_rows(pl_dnn *d, const pl_dnn_matmul_desc *m, const pl_conv_tensors *t,
                              int *out)
{
    const int64_t ld = m->lda ? m->lda : m->trans_a ? m->m : m->k;
    const dnnl_dims_t dim = {1, m->k, m->m};
    const dnnl_dims_t stride = {m->m * m->k, m->trans_a ? ld : 1, m->trans_a ? 1 : ld};
    const int first = d->n_operands;
    pl_mdesc user;
    PL_TRY(view_md(&user, 3, dim, dnnl_f32, stride));
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
    pl_conv_io io = {.w_index = 1};
    PL_TRY(pl_conv_tensors_init(&t, &c));
    t.w.format_desc.blocking.strides[0] = m->trans_b ? ld : 1;
    t.w.format_desc.blocking.strides[1] = m->trans_b ? 1 : ld;
    PL_TRY(product_rows(d, m, &t, &io.x));
    PL_TRY(pl_dnn_add_operand(d, &t.y, PL_DNN_OUT, 0, &io.y));
    d->operands[io.y].image_bytes = (size_t)(m->m * m->n) * sizeof(float);
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &t.bias, PL_DNN_IN, 2, &io.bias));
    const int w = d->n_operands;
    PL_TRY(pl_conv_direct_add(d, PL_DNN_CONV_FWD, &c, &t, &io));
    d->operands[w].image_bytes = (size_t)m->b_batch_stride * sizeof(float);
    d->n_images = m->batch;
    return PL_OK;
}

/* ---- the choice ------------------------------------------------------------------------- */

/* Whether direct would be matrix products over an unfolded copy. */
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
    /* Gradients of grouped 3-D convolutions have only a product that allocates when it runs: the
     * caller's own loops are slower, but keep the promise. */
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
