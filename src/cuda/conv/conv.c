/* conv.c - convolution and its two gradients: which kernel computes which problem.
 *
 *   few channels on one side             our own kernels: cuDNN pads the channels
 *   one filter per channel (depthwise)   our own kernels: cuDNN's are slow channels last
 *   f32 without TF32                     products: split operands on TF32 units with f32's accuracy
 *                                        (conv_split.c), or over columns (conv_product.c)
 *   cuDNN has a suitable engine          a plan of conv_plan.c
 *   padding differs at the two ends, and cuDNN refuses it:
 *                                        a copy with explicit padding, then the same
 *   the rest (f64, misaligned operands)  the direct kernels
 *
 * Where the kernel of this list is far slower than predicted, the others are timed
 * (device/trial.h): patches on tensor cores (conv_mma.cu), TF32 by own kernels, columns, cuDNN over
 * blocks of pixels (conv_blocks.c), cuDNN's fastest engine.
 *
 * The tail of a convolution (ops/net/tail.h) is part of cuDNN's plan as far as an engine supports
 * it, and a separate pass after every other kernel.
 *
 * cuDNN's plan is bound to pointers once and bound again only when they change, so a step that
 * repeats its pointers creates nothing.
 */
#include "cuda/conv/conv.h"

#include "base/sys.h"
#include "ops/net/tail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the problem ---------------------------------------------------------------------------- */
static pl_conv_shape conv_of(const pl_call *c, pl_conv_kind kind, const pl_tail_attr *tail)
{
    const pl_window_attr *a = c->attr;
    const pl_type *x = kind == PL_CONV_DX ? &c->out_type[0] : &c->in_type[0];
    const pl_type *w = kind == PL_CONV_DW ? &c->out_type[0] : &c->in_type[1];
    const pl_type *y = kind == PL_CONV_Y    ? &c->out_type[0]
                       : kind == PL_CONV_DX ? &c->in_type[0]
                                            : &c->in_type[1];
    pl_conv_shape p;
    int n = x->rank - 2;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.dtype = (int32_t)x->dtype;
    p.spatial = n < 3 ? 2 : 3;
    if (tail) {
        p.act = tail->act;
        p.add = tail->add;
        p.slope = tail->slope;
    }
    p.bias = c->n_in - p.add == 3;
    p.n = x->dim[0];
    p.ic = x->dim[n + 1];
    p.oc = y->dim[n + 1];
    p.groups = a->groups ? a->groups : 1;
    for (int d = 0; d < 3; d++) {
        int i = d - (3 - n);
        p.in[d] = i < 0 ? 1 : x->dim[1 + i];
        p.out[d] = i < 0 ? 1 : y->dim[1 + i];
        p.kernel[d] = i < 0 ? 1 : w->dim[1 + i];
        p.stride[d] = i < 0 ? 1 : a->stride.v[i];
        p.dilation[d] = i < 0 ? 1 : a->dilation.v[i];
        p.pad_lo[d] = i < 0 ? 0 : a->pad_lo.v[i];
        p.pad_hi[d] = i < 0 ? 0 : a->pad_hi.v[i];
    }
    return p;
}

static pl_conv_shape y_of(const pl_call *c)
{
    return conv_of(c, PL_CONV_Y, NULL);
}

static pl_conv_shape dx_of(const pl_call *c)
{
    return conv_of(c, PL_CONV_DX, NULL);
}

static pl_conv_shape dw_of(const pl_call *c)
{
    return conv_of(c, PL_CONV_DW, NULL);
}

static pl_conv_shape y_tail_of(const pl_call *c)
{
    return conv_of(c, PL_CONV_Y, &((const pl_conv_tail_attr *)c->attr)->tail);
}

static pl_conv_shape dx_tail_of(const pl_call *c)
{
    return conv_of(c, PL_CONV_DX, &((const pl_conv_tail_attr *)c->attr)->tail);
}

static const void *bias_of(const pl_conv_shape *p, const pl_call *c)
{
    return p->bias ? c->in[2] : NULL;
}

static const void *add_of(const pl_conv_shape *p, const pl_call *c)
{
    return p->add ? c->in[c->n_in - 1] : NULL;
}

pl_status pl_conv_follow(const pl_conv_shape *c, pl_conv_level level, const void *bias,
                         const void *add, void *out)
{
    bool late = c->bias && level == PL_CONV_BARE,
         tail = (c->act || c->add) && level < PL_CONV_WHOLE;
    bool dx = c->kind == PL_CONV_DX;
    if (!late && !tail) return PL_OK;
    pl_cuda_tail t = {late ? bias : NULL, NULL, NULL, NULL, PL_ACT_NONE, 0};
    if (tail) {
        t.add = add;
        t.act = c->act;
        t.slope = c->slope;
    }
    return pl_cuda_tail_run((pl_dtype)c->dtype, out, c->n * pl_conv_pixels(dx ? c->in : c->out),
                            dx ? c->ic : c->oc, &t);
}

void pl_conv_text(const pl_conv_shape *c, char *buf, size_t cap)
{
    static const char *const kind[] = {"conv", "conv_dx", "conv_dw"};
    char tail[64] = "";
    if (c->act || c->add)
        snprintf(tail, sizeof tail, ":t%d%s:%g", c->act, c->add ? "+" : "", c->slope);
#define TRIPLE "%" PRId64 "x%" PRId64 "x%" PRId64
#define OF(f)  c->f[0], c->f[1], c->f[2]
    snprintf(buf, cap,
             "%s:%s:n%" PRId64 ":c%" PRId64 ":o%" PRId64 ":g%" PRId64 ":" TRIPLE ":k" TRIPLE
             ":s" TRIPLE ":d" TRIPLE ":p" TRIPLE ":q" TRIPLE "%s%s",
             kind[c->kind], pl_dtype_name((pl_dtype)c->dtype), c->n, c->ic, c->oc, c->groups,
             OF(in), OF(kernel), OF(stride), OF(dilation), OF(pad_lo), OF(pad_hi),
             c->bias ? ":bias" : "", tail);
#undef TRIPLE
#undef OF
}

static int64_t out_elems(const pl_call *c)
{
    return pl_type_elems(&c->out_type[0]);
}

/* Whether there is nothing to sum: no samples in a filter's gradient. */
static bool nothing_in(const pl_call *c)
{
    return pl_type_elems(&c->in_type[0]) == 0 || pl_type_elems(&c->in_type[1]) == 0;
}

static pl_status zeros(const pl_call *c, const pl_conv_shape *p)
{
    PL_CUDA(cudaMemsetAsync(c->out[0], 0, pl_type_bytes(&c->out_type[0]), pl_cuda_stream()));
    return pl_conv_follow(p, PL_CONV_BARE, bias_of(p, c), add_of(p, c), c->out[0]);
}

/* ---- cuDNN ---------------------------------------------------------------------------------- */
typedef struct prepared {
    pl_conv_shape whole; /* the op's own problem */
    pl_conv_plan *plan;  /* of the whole, or of the padded problem */
    bool padded;         /* x is copied with explicit padding */
    size_t pad_bytes;    /* bytes of that copy, at the start of the workspace */
    pl_conv_operands at; /* pointers that `bound` holds */
    void *bound;
} prepared;

static void dnn_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    pl_conv_bound_free(h->bound);
    pl_conv_plan_put(h->plan);
    pl_sys_free(h);
}

static bool lopsided(const pl_conv_shape *c)
{
    return memcmp(c->pad_lo, c->pad_hi, sizeof c->pad_lo) != 0;
}

static pl_conv_shape without_tail(pl_conv_shape p)
{
    p.act = p.add = 0;
    p.slope = 0;
    return p;
}

static pl_status plan_for(prepared *h, pl_conv_shape inner)
{
    PL_TRY(pl_conv_plan_get(&inner, &h->plan));
    if (h->plan->plan || !lopsided(&h->whole)) return PL_OK;
    for (int d = 0; d < 3; d++) {
        inner.in[d] += inner.pad_lo[d] + inner.pad_hi[d];
        inner.pad_lo[d] = inner.pad_hi[d] = 0;
    }
    /* the result is extracted afterwards */
    if (inner.kind == PL_CONV_DX) inner = without_tail(inner);
    pl_conv_plan_put(h->plan);
    h->plan = NULL;
    h->padded = true;
    h->pad_bytes = ((size_t)(inner.n * inner.ic * pl_conv_pixels(inner.in)) *
                        pl_dtype_bytes((pl_dtype)inner.dtype) +
                    255) &
                   ~(size_t)255;
    return pl_conv_plan_get(&inner, &h->plan);
}

/* plan: the problem that cuDNN gets. */
static pl_status prepare_as(const pl_call *c, pl_conv_shape problem, pl_conv_shape plan,
                            void **prep, size_t *work_bytes)
{
    if (out_elems(c) == 0) return PL_OK;
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->whole = problem;
    pl_status rc = nothing_in(c) ? PL_OK : plan_for(h, plan);
    if (rc != PL_OK) {
        dnn_release(h);
        return rc;
    }
    if (h->plan && h->plan->plan)
        *work_bytes = pl_cuda_work_room(h->pad_bytes + h->plan->work_bytes);
    *prep = h;
    return PL_OK;
}

static pl_status dnn_prepare(const pl_call *c, pl_conv_shape p, void **prep, size_t *work_bytes)
{
    return prepare_as(c, p, p, prep, work_bytes);
}

static pl_status behind_prepare(const pl_call *c, pl_conv_shape p, void **prep, size_t *work_bytes)
{
    return prepare_as(c, p, without_tail(p), prep, work_bytes);
}

void pl_conv_describe(const void *prep, char *buf, size_t cap)
{
    const prepared *h = prep;
    if (!h || !h->plan || !h->plan->plan)
        snprintf(buf, cap, "direct");
    else
        snprintf(buf, cap, "%s%s%s%s", h->plan->engine, h->padded ? " padded" : "",
                 !h->whole.bias                  ? ""
                 : h->plan->level > PL_CONV_BARE ? " +bias"
                                                 : " bias after",
                 !h->whole.act && !h->whole.add    ? ""
                 : h->plan->level == PL_CONV_WHOLE ? " +tail"
                                                   : " tail after");
}

/* Runs the plan; x is the padded copy where there is one. */
static pl_status execute(prepared *h, pl_conv_operands x)
{
    if (!h->bound || memcmp(&x, &h->at, sizeof x) != 0) {
        pl_conv_bound_free(h->bound);
        h->bound = NULL;
        PL_TRY(pl_conv_bind(h->plan, &x, &h->bound));
        h->at = x;
    }
    return pl_conv_execute(h->plan, h->bound);
}

/* Runs the kernel that takes any problem, and the tail. */
static pl_status direct(const pl_call *c, const pl_conv_shape *p)
{
    const void *bias = bias_of(p, c);
    PL_TRY(pl_conv_direct(p, c->in[0], c->in[1], bias, c->out[0]));
    return pl_conv_follow(p, PL_CONV_WITH_BIAS, bias, add_of(p, c), c->out[0]);
}

static pl_status dnn_run(const pl_call *c)
{
    prepared *h = c->prep;
    if (out_elems(c) == 0) return PL_OK;
    if (!h->plan) return zeros(c, &h->whole);
    const pl_conv_shape *p = &h->whole, *q = &h->plan->problem;
    const void *bias = bias_of(p, c), *add = add_of(p, c);
    const void *given[5] = {c->in[0], c->in[1], c->out[0], bias, add};
    if (!h->plan->plan || !pl_cuda_aligned(given, 5)) return direct(c, p);
    char *work = pl_cuda_work_at(c->work);
    const void *x = p->kind == PL_CONV_DX ? c->out[0] : c->in[0];
    const void *w = p->kind == PL_CONV_DW ? c->out[0] : c->in[1];
    const void *y = p->kind == PL_CONV_Y ? c->out[0] : p->kind == PL_CONV_DX ? c->in[0] : c->in[1];
    int64_t shift[3];
    pl_dtype dt = (pl_dtype)p->dtype;
    if (h->padded && p->kind != PL_CONV_DX) {
        for (int d = 0; d < 3; d++) shift[d] = -p->pad_lo[d];
        PL_TRY(pl_conv_box(dt, x, p->in, work, q->in, shift, p->n, p->ic));
    }
    PL_TRY(
        execute(h, (pl_conv_operands){h->padded ? work : x, w, y, bias, add, work + h->pad_bytes}));
    if (h->padded && p->kind == PL_CONV_DX)
        PL_TRY(pl_conv_box(dt, work, q->in, c->out[0], p->in, p->pad_lo, p->n, p->ic));
    return pl_conv_follow(p, h->plan->level, bias, add, c->out[0]);
}

/* ---- our own -------------------------------------------------------------------------------- */
static bool not_f64(const pl_call *c)
{
    return c->in_type[0].dtype != PL_F64;
}

static bool one_filter_a_channel(const pl_conv_shape *c)
{
    return c->ic == c->groups && c->oc == c->groups;
}

static pl_depthwise shared_filter(pl_conv_shape p)
{
    return (pl_depthwise){p, 0, 1, pl_conv_pixels(p.kernel)};
}

static pl_depthwise filter_a_sample(pl_conv_shape p)
{
    p.groups = p.ic;
    return (pl_depthwise){p, pl_conv_pixels(p.kernel) * p.ic, p.ic, 1};
}

static pl_status depthwise_run(const pl_call *c, pl_depthwise d)
{
    if (out_elems(c) == 0) return PL_OK;
    if (nothing_in(c)) return zeros(c, &d.conv);
    const void *bias = bias_of(&d.conv, c);
    PL_TRY(pl_depthwise_run(&d, c->in[0], c->in[1], bias, c->out[0], c->work));
    return pl_conv_follow(&d.conv, PL_CONV_WITH_BIAS, bias, add_of(&d.conv, c), c->out[0]);
}

static pl_status direct_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    if (nothing_in(c)) return zeros(c, &p);
    return direct(c, &p);
}

static pl_status thin_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    if (nothing_in(c)) return zeros(c, &p);
    const void *bias = bias_of(&p, c);
    PL_TRY(pl_conv_thin(&p, c->in[0], c->in[1], bias, c->out[0], c->work));
    return pl_conv_follow(&p, PL_CONV_WITH_BIAS, bias, add_of(&p, c), c->out[0]);
}

static pl_status split_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    const void *bias = bias_of(&p, c), *add = add_of(&p, c);
    const void *given[5] = {c->in[0], c->in[1], c->out[0], bias, add};
    if (!pl_cuda_aligned(given, 5)) return direct(c, &p);
    return pl_conv_split_run(c->prep, c->in[0], c->in[1], bias, add, c->out[0], c->work);
}

static pl_status blocks_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    const void *bias = bias_of(&p, c), *add = add_of(&p, c);
    const void *given[5] = {c->in[0], c->in[1], c->out[0], bias, add};
    if (!pl_cuda_aligned(given, 5)) return direct(c, &p);
    return pl_conv_blocks_run(c->prep, c->in[0], c->in[1], bias, add, c->out[0], c->work);
}

static pl_status mma_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    const void *bias = bias_of(&p, c), *add = add_of(&p, c);
    const void *given[5] = {c->in[0], c->in[1], c->out[0], bias, add};
    if (!pl_cuda_aligned(given, 5)) return direct(c, &p);
    PL_TRY(pl_conv_mma(&p, c->in[0], c->in[1], bias, c->out[0], c->work));
    return pl_conv_follow(&p, PL_CONV_WITH_BIAS, bias, add, c->out[0]);
}

/* cuDNN's fastest engine instead of its first one: not for problems whose slow engines take a
 * noticeable part of a second to try. */
static bool timed_takes(const pl_call *c, const pl_conv_shape *p)
{
    const double MOST = 2e10; /* products of operands */
    double pixels = (double)(p->n * pl_conv_pixels(p->out) * pl_conv_pixels(p->kernel));
    return not_f64(c) && pixels * (double)(p->ic / p->groups) * (double)p->oc <= MOST;
}

/* Returns whether cuDNN may replace another kernel. Its filter gradients in f32 have 30 times the
 * error of ours (seen with 9.14 on an H200), so there the order of kernels stays: which numbers a
 * step gives must not depend on which kernel was a little faster. */
static bool dnn_may(const pl_call *c, const pl_conv_shape *p)
{
    bool exact = p->dtype == PL_F32 && !pl_cuda_tf32();
    return not_f64(c) && !(exact && p->kind == PL_CONV_DW);
}

static pl_status timed_prepare(const pl_call *c, pl_conv_shape p, void **prep, size_t *work_bytes)
{
    p.timed = 1;
    return prepare_as(c, p, p, prep, work_bytes);
}

static pl_status product_run(const pl_call *c, pl_conv_shape p)
{
    if (out_elems(c) == 0) return PL_OK;
    const void *bias = bias_of(&p, c);
    PL_TRY(pl_conv_product_run(c->prep, c->in[0], c->in[1], bias, c->out[0], c->work));
    return pl_conv_follow(&p, PL_CONV_WITH_BIAS, bias, add_of(&p, c), c->out[0]);
}

#define KERNELS(tag, ...)                                                                          \
 static bool tag##_thin(const pl_call *c)                                                          \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_thin_takes(&p);                                                                   \
 }                                                                                                 \
 static pl_status tag##_thin_prepare(const pl_call *c, void **prep, size_t *work_bytes)            \
 {                                                                                                 \
  (void)prep;                                                                                      \
  pl_conv_shape p = tag##_of(c);                                                                   \
  *work_bytes = pl_conv_thin_work(&p);                                                             \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status tag##_thin_run(const pl_call *c)                                                 \
 {                                                                                                 \
  return thin_run(c, tag##_of(c));                                                                 \
 }                                                                                                 \
 static bool tag##_depthwise(const pl_call *c)                                                     \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return one_filter_a_channel(&p);                                                                 \
 }                                                                                                 \
 static pl_status tag##_dw_prepare(const pl_call *c, void **prep, size_t *work_bytes)              \
 {                                                                                                 \
  (void)prep;                                                                                      \
  pl_depthwise d = shared_filter(tag##_of(c));                                                     \
  *work_bytes = pl_depthwise_work(&d);                                                             \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status tag##_dw_run(const pl_call *c)                                                   \
 {                                                                                                 \
  return depthwise_run(c, shared_filter(tag##_of(c)));                                             \
 }                                                                                                 \
 static bool tag##_split(const pl_call *c)                                                         \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_split_takes(&p);                                                                  \
 }                                                                                                 \
 static pl_status tag##_split_prepare(const pl_call *c, void **prep, size_t *work_bytes)           \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_split_prepare(&p, prep, work_bytes);                                              \
 }                                                                                                 \
 static pl_status tag##_split_run(const pl_call *c)                                                \
 {                                                                                                 \
  return split_run(c, tag##_of(c));                                                                \
 }                                                                                                 \
 static bool tag##_product(const pl_call *c)                                                       \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_product_takes(&p);                                                                \
 }                                                                                                 \
 static pl_status tag##_product_prepare(const pl_call *c, void **prep, size_t *work_bytes)         \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_product_prepare(&p, prep, work_bytes);                                            \
 }                                                                                                 \
 static pl_status tag##_product_run(const pl_call *c)                                              \
 {                                                                                                 \
  return product_run(c, tag##_of(c));                                                              \
 }                                                                                                 \
 static pl_status tag##_prepare(const pl_call *c, void **prep, size_t *work_bytes)                 \
 {                                                                                                 \
  return dnn_prepare(c, tag##_of(c), prep, work_bytes);                                            \
 }                                                                                                 \
 static pl_status tag##_direct_run(const pl_call *c)                                               \
 {                                                                                                 \
  return direct_run(c, tag##_of(c));                                                               \
 }                                                                                                 \
 static const pl_kernel tag##_kernels[] = {                                                        \
     {"thin", tag##_thin, tag##_thin_prepare, NULL, tag##_thin_run},                               \
     {"depthwise", tag##_depthwise, tag##_dw_prepare, NULL, tag##_dw_run},                         \
     {"split", tag##_split, tag##_split_prepare, pl_sys_free, tag##_split_run},                    \
     {"product", tag##_product, tag##_product_prepare, pl_conv_product_release,                    \
      tag##_product_run},                                                                          \
     {"cudnn", not_f64, tag##_prepare, dnn_release, dnn_run},                                      \
     {"direct", NULL, NULL, NULL, tag##_direct_run},                                               \
     __VA_ARGS__ PL_KERNEL_END};                                                                   \
 static bool tag##_split_can(const pl_call *c)                                                     \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_split_can(&p);                                                                    \
 }                                                                                                 \
 static bool tag##_product_can(const pl_call *c)                                                   \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_product_can(&p);                                                                  \
 }                                                                                                 \
 static bool tag##_mma_can(const pl_call *c)                                                       \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return !nothing_in(c) && pl_conv_mma_can(&p);                                                    \
 }                                                                                                 \
 static pl_status tag##_mma_prepare(const pl_call *c, void **prep, size_t *work_bytes)             \
 {                                                                                                 \
  (void)prep;                                                                                      \
  pl_conv_shape p = tag##_of(c);                                                                   \
  *work_bytes = pl_conv_mma_work(&p);                                                              \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status tag##_mma_run(const pl_call *c)                                                  \
 {                                                                                                 \
  return mma_run(c, tag##_of(c));                                                                  \
 }                                                                                                 \
 static bool tag##_blocks(const pl_call *c)                                                        \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return !nothing_in(c) && dnn_may(c, &p) && pl_conv_blocks_can(&p);                               \
 }                                                                                                 \
 static pl_status tag##_blocks_prepare(const pl_call *c, void **prep, size_t *work_bytes)          \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return pl_conv_blocks_prepare(&p, prep, work_bytes);                                             \
 }                                                                                                 \
 static pl_status tag##_blocks_run(const pl_call *c)                                               \
 {                                                                                                 \
  return blocks_run(c, tag##_of(c));                                                               \
 }                                                                                                 \
 static bool tag##_timed(const pl_call *c)                                                         \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return dnn_may(c, &p) && timed_takes(c, &p);                                                     \
 }                                                                                                 \
 static bool tag##_dnn_may(const pl_call *c)                                                       \
 {                                                                                                 \
  pl_conv_shape p = tag##_of(c);                                                                   \
  return dnn_may(c, &p);                                                                           \
 }                                                                                                 \
 static pl_status tag##_timed_prepare(const pl_call *c, void **prep, size_t *work_bytes)           \
 {                                                                                                 \
  return timed_prepare(c, tag##_of(c), prep, work_bytes);                                          \
 }                                                                                                 \
 static const pl_kernel tag##_alternatives[] = {                                                   \
     {"mma", tag##_mma_can, tag##_mma_prepare, NULL, tag##_mma_run},                               \
     {"split", tag##_split_can, tag##_split_prepare, pl_sys_free, tag##_split_run},                \
     {"product", tag##_product_can, tag##_product_prepare, pl_conv_product_release,                \
      tag##_product_run},                                                                          \
     {"cudnn", tag##_dnn_may, tag##_prepare, dnn_release, dnn_run},                                \
     {"blocks", tag##_blocks, tag##_blocks_prepare, pl_conv_blocks_release, tag##_blocks_run},     \
     {"cudnn timed", tag##_timed, tag##_timed_prepare, dnn_release, dnn_run},                      \
     PL_KERNEL_END};
#define PER_SAMPLE(tag)                                                                            \
 static pl_status tag##_ps_prepare(const pl_call *c, void **prep, size_t *work_bytes)              \
 {                                                                                                 \
  (void)prep;                                                                                      \
  pl_depthwise d = filter_a_sample(tag##_of(c));                                                   \
  *work_bytes = pl_depthwise_work(&d);                                                             \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status tag##_ps_run(const pl_call *c)                                                   \
 {                                                                                                 \
  return depthwise_run(c, filter_a_sample(tag##_of(c)));                                           \
 }                                                                                                 \
 static const pl_kernel tag##_per_sample[] = {                                                     \
     {"depthwise", NULL, tag##_ps_prepare, NULL, tag##_ps_run}, PL_KERNEL_END};
/* Fallback of "cudnn" where no engine supports the tail: chosen when the plainest kernel is
 * requested. */
#define BEHIND(tag) {"cudnn, tail behind", not_f64, tag##_behind, dnn_release, dnn_run},
static pl_status y_tail_behind(const pl_call *c, void **prep, size_t *work_bytes)
{
    return behind_prepare(c, y_tail_of(c), prep, work_bytes);
}
static pl_status dx_tail_behind(const pl_call *c, void **prep, size_t *work_bytes)
{
    return behind_prepare(c, dx_tail_of(c), prep, work_bytes);
}
KERNELS(y, )
KERNELS(dx, )
KERNELS(dw, )
KERNELS(y_tail, BEHIND(y_tail))
KERNELS(dx_tail, BEHIND(dx_tail))
PER_SAMPLE(y)
PER_SAMPLE(dx)
PER_SAMPLE(dw)

extern const pl_cuda_entry pl_cuda_conv[];
const pl_cuda_entry pl_cuda_conv[] = {{"conv", y_kernels},
                                      {"conv_dx", dx_kernels},
                                      {"conv_dw", dw_kernels},
                                      {"conv_tail", y_tail_kernels},
                                      {"conv_dx_tail", dx_tail_kernels},
                                      {"depthwise_per_sample", y_per_sample},
                                      {"depthwise_per_sample_dx", dx_per_sample},
                                      {"depthwise_per_sample_dw", dw_per_sample},
                                      {NULL, NULL}};

extern const pl_cuda_entry pl_cuda_conv_alternatives[];
const pl_cuda_entry pl_cuda_conv_alternatives[] = {{"conv", y_alternatives},
                                                   {"conv_dx", dx_alternatives},
                                                   {"conv_dw", dw_alternatives},
                                                   {"conv_tail", y_tail_alternatives},
                                                   {"conv_dx_tail", dx_tail_alternatives},
                                                   {NULL, NULL}};
