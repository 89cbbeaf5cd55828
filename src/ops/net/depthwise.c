/* depthwise.c - depthwise convolution with a separate kernel for every sample and channel.
 *
 *   depthwise_per_sample     (x [B, in.., C], w [B, kernel.., C]) -> y [B, out.., C]
 *   depthwise_per_sample_dx  (dy, w) -> dx        its adjoint in x
 *   depthwise_per_sample_dw  (x, dy) -> dw        its adjoint in w
 *
 * y[b,p,c] = sum_k x[b, p*s + k*d - pad, c] w[b,k,c]. A grouped convolution over B*C groups
 * computes the same, but channels last it needs two transposes of x; here rows of channels multiply
 * in place. The map is bilinear: each op's gradient is the other two.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/kernels/rows.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/window.h"

#include <string.h>

#define SHARED                                                                                     \
 PL_ATTR(pl_window_attr, stride, DIMS), PL_ATTR(pl_window_attr, dilation, DIMS),                   \
     PL_ATTR(pl_window_attr, pad_lo, DIMS), PL_ATTR(pl_window_attr, pad_hi, DIMS)
static const pl_attr y_attrs[] = {SHARED, PL_ATTR_END};
static const pl_attr dx_attrs[] = {SHARED, PL_ATTR(pl_window_attr, in, DIMS), PL_ATTR_END};
static const pl_attr dw_attrs[] = {SHARED, PL_ATTR(pl_window_attr, kernel, DIMS), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
static pl_status check(pl_window_attr *a, const pl_type *x, const pl_type *w, pl_type *y)
{
    char s[96], t[96];
    PL_TRY(pl_window_rank("x", x));
    int n = x->rank - 2;
    PL_TRY(pl_window_complete(a, n));
    PL_FAIL_IF(w->rank != x->rank || w->dtype != x->dtype || w->dim[0] != x->dim[0] ||
                   w->dim[n + 1] != x->dim[n + 1],
               PL_ERR_SHAPE, "x is %s, w is %s: samples, channels and types must match",
               pl_type_text(x, s, sizeof s), pl_type_text(w, t, sizeof t));
    *y = *x;
    for (int d = 0; d < n; d++)
        PL_TRY(pl_window_out(a, d, x->dim[1 + d], w->dim[1 + d], &y->dim[1 + d]));
    return PL_OK;
}

static pl_status agree(const pl_type *got, const pl_type *want)
{
    char s[96], t[96];
    PL_FAIL_IF(!pl_type_equal(got, want), PL_ERR_SHAPE, "dy is %s; needs %s",
               pl_type_text(got, s, sizeof s), pl_type_text(want, t, sizeof t));
    return PL_OK;
}

static pl_status y_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    return check(attr, &in[0], &in[1], &out[0]);
}

static pl_status dx_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    pl_type y;
    PL_TRY(pl_window_rank("dy", &in[0]));
    PL_TRY(pl_window_need("in", &a->in, in[0].rank - 2));
    out[0] = in[0];
    for (int d = 0; d < a->in.n; d++) out[0].dim[1 + d] = a->in.v[d];
    PL_TRY(check(a, &out[0], &in[1], &y));
    return agree(&in[0], &y);
}

static pl_status dw_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    pl_type y;
    PL_TRY(pl_window_rank("x", &in[0]));
    PL_TRY(pl_window_need("kernel", &a->kernel, in[0].rank - 2));
    out[0] = in[0];
    for (int d = 0; d < a->kernel.n; d++) out[0].dim[1 + d] = a->kernel.v[d];
    PL_TRY(check(a, &in[0], &out[0], &y));
    return agree(&in[1], &y);
}

/* ---- gradients -------------------------------------------------------------------------- */
static pl_val build_y(const pl_vjp *v, pl_val x, pl_val w)
{
    return pl_build1(v->g, &pl_op_depthwise_per_sample, v->attr, 2, (const pl_val[]){x, w});
}

static void sizes_of(const pl_vjp *v, pl_val like, pl_dims *d)
{
    pl_type t = pl_val_type(v->g, like);
    d->n = t.rank - 2;
    for (int i = 0; i < d->n; i++) d->v[i] = t.dim[1 + i];
}

static pl_val build_dx(const pl_vjp *v, pl_val dy, pl_val w, pl_val like)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    sizes_of(v, like, &a.in);
    return pl_build1(v->g, &pl_op_depthwise_per_sample_dx, &a, 2, (const pl_val[]){dy, w});
}

static pl_val build_dw(const pl_vjp *v, pl_val x, pl_val dy, pl_val like)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    sizes_of(v, like, &a.kernel);
    return pl_build1(v->g, &pl_op_depthwise_per_sample_dw, &a, 2, (const pl_val[]){x, dy});
}

static void y_vjp(const pl_vjp *v)
{
    if (v->need[0]) v->gin[0] = build_dx(v, v->gout[0], v->in[1], v->in[0]);
    if (v->need[1]) v->gin[1] = build_dw(v, v->in[0], v->gout[0], v->in[1]);
}

static void dx_vjp(const pl_vjp *v)
{
    if (v->need[0]) v->gin[0] = build_y(v, v->gout[0], v->in[1]);
    if (v->need[1]) v->gin[1] = build_dw(v, v->gout[0], v->in[0], v->in[1]);
}

static void dw_vjp(const pl_vjp *v)
{
    if (v->need[0]) v->gin[0] = build_dx(v, v->in[1], v->gout[0], v->in[0]);
    if (v->need[1]) v->gin[1] = build_y(v, v->in[0], v->gout[0]);
}

/* ---- kernels ---------------------------------------------------------------------------- */
enum { BATCH = 32 };

typedef struct job {
    const pl_call *c;
    const pl_row_loops *rows;
    pl_window w;
    int64_t channels, taps, px, py; /* pixels of an x and of a y image */
    pl_dtype dt;
} job;

static job job_of(const pl_call *c, const pl_type *x, const pl_type *w, const pl_type *y)
{
    int n = x->rank - 2;
    job j = {.c = c, .rows = pl_rows_best(), .channels = x->dim[n + 1], .dt = x->dtype};
    j.w = pl_window_make(c->attr, n, x->dim + 1, y->dim + 1, w->dim + 1);
    j.taps = pl_window_taps(&j.w);
    j.px = pl_window_pixels(j.w.in);
    j.py = pl_window_pixels(j.w.out);
    return j;
}

static job y_job(const pl_call *c)
{
    return job_of(c, &c->in_type[0], &c->in_type[1], &c->out_type[0]);
}

static job dx_job(const pl_call *c)
{
    return job_of(c, &c->out_type[0], &c->in_type[1], &c->in_type[0]);
}

static job dw_job(const pl_call *c)
{
    return job_of(c, &c->in_type[0], &c->out_type[0], &c->in_type[1]);
}

static pl_cost cost_of(const pl_call *c, job j)
{
    double places = (double)c->in_type[0].dim[0] * (double)j.py, channels = (double)j.channels,
           taps = (double)j.taps;
    return (pl_cost){
        2 * places * channels * taps, operand_bytes(c), PL_WORK_TAPS, places, channels, taps};
}

/* ---- reference -------------------------------------------------------------------------- */
/* Pairs of rows to multiply, whose sum is one output row. A source sets pair t of the task in rows
 * of channels, or -1 in *a where t has none. */
typedef struct pairs {
    job j;
    int64_t n; /* pairs at most */
    void (*pair)(const job *j, int64_t task, int64_t t, int64_t *a, int64_t *b);
} pairs;

static void y_pair(const job *j, int64_t task, int64_t t, int64_t *a, int64_t *b)
{
    int64_t p[3], k[3], image = task / j->py;
    pl_window_split(task % j->py, j->w.out, p);
    pl_window_split(t, j->w.kernel, k);
    int64_t q = pl_window_reads(&j->w, p, k);
    *a = q < 0 ? -1 : image * j->px + q;
    *b = image * j->taps + t;
}

static void dx_pair(const job *j, int64_t task, int64_t t, int64_t *a, int64_t *b)
{
    int64_t q[3], k[3], image = task / j->px;
    pl_window_split(task % j->px, j->w.in, q);
    pl_window_split(t, j->w.kernel, k);
    int64_t p = pl_window_reader(&j->w, q, k);
    *a = p < 0 ? -1 : image * j->py + p;
    *b = image * j->taps + t;
}

static void dw_pair(const job *j, int64_t task, int64_t t, int64_t *a, int64_t *b)
{
    int64_t p[3], k[3], image = task / j->taps;
    pl_window_split(t, j->w.out, p);
    pl_window_split(task % j->taps, j->w.kernel, k);
    int64_t q = pl_window_reads(&j->w, p, k);
    *a = q < 0 ? -1 : image * j->px + q;
    *b = image * j->py + t;
}

static void ref_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const pairs *s = ctx;
    const job *j = &s->j;
    for (int64_t ch = 0; ch < j->channels; ch++) {
        double sum = 0;
        for (int64_t t = 0; t < s->n; t++) {
            int64_t a, b;
            s->pair(j, task, t, &a, &b);
            if (a < 0) continue;
            sum += ref_get(j->dt, j->c->in[0], a * j->channels + ch) *
                   ref_get(j->dt, j->c->in[1], b * j->channels + ch);
        }
        ref_set(j->dt, j->c->out[0], task * j->channels + ch, sum);
    }
}

/* ---- fast: rows of channels, gathered in batches -------------------------------------------
 */
typedef struct batch {
    const job *j;
    float *y;
    const float *x[BATCH], *w[BATCH];
    int n;
    bool add;
} batch;

static inline void flush(batch *b)
{
    b->j->rows->product(b->y, b->x, b->w, b->n, b->j->channels, b->add);
    b->add = true;
    b->n = 0;
}

static inline void push(batch *b, int64_t x, int64_t w)
{
    if (b->n == BATCH) flush(b);
    b->x[b->n] = (const float *)b->j->c->in[0] + x * b->j->channels;
    b->w[b->n++] = (const float *)b->j->c->in[1] + w * b->j->channels;
}

/* Returns the position along d that tap k of position i reads on the other side, or -1. */
static inline int64_t meet(const pl_window *w, int d, int64_t i, int64_t k, const bool back)
{
    if (back) return pl_window_from(w, d, i, k);
    int64_t q = pl_window_at(w, d, i, k);
    return q < w->in[d] ? q : -1;
}

/* task: a row of pixels of y, or (back) of dx */
static inline void pixel_row(const job *j, int64_t task, const bool back)
{
    const pl_window *w = &j->w;
    const int64_t *to = back ? w->in : w->out, *from = back ? w->out : w->in;
    int64_t i1 = task % to[1], i0 = task / to[1] % to[0], image = task / to[1] / to[0];
    for (int64_t i2 = 0; i2 < to[2]; i2++) {
        batch b = {.j = j, .y = (float *)j->c->out[0] + (task * to[2] + i2) * j->channels};
        for (int64_t k0 = 0; k0 < w->kernel[0]; k0++) {
            int64_t a0 = meet(w, 0, i0, k0, back);
            for (int64_t k1 = 0; a0 >= 0 && k1 < w->kernel[1]; k1++) {
                int64_t a1 = meet(w, 1, i1, k1, back);
                int64_t line = ((image * from[0] + a0) * from[1] + a1) * from[2];
                int64_t tap = image * j->taps + (k0 * w->kernel[1] + k1) * w->kernel[2];
                for (int64_t k2 = 0; a1 >= 0 && k2 < w->kernel[2]; k2++) {
                    int64_t a2 = meet(w, 2, i2, k2, back);
                    if (a2 >= 0) push(&b, line + a2, tap + k2);
                }
            }
        }
        flush(&b);
    }
}

static void y_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    pixel_row(ctx, task, false);
}

static void dx_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    pixel_row(ctx, task, true);
}

/* task: one tap of one sample */
static void dw_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_window *w = &j->w;
    int64_t k[3], image = task / j->taps;
    pl_window_split(task % j->taps, w->kernel, k);
    batch b = {.j = j, .y = (float *)j->c->out[0] + task * j->channels};
    for (int64_t p0 = 0; p0 < w->out[0]; p0++)
        for (int64_t p1 = 0; p1 < w->out[1]; p1++) {
            int64_t q0 = meet(w, 0, p0, k[0], false), q1 = meet(w, 1, p1, k[1], false);
            if (q0 < 0 || q1 < 0) continue;
            int64_t x = ((image * w->in[0] + q0) * w->in[1] + q1) * w->in[2];
            int64_t y = ((image * w->out[0] + p0) * w->out[1] + p1) * w->out[2];
            for (int64_t p2 = 0; p2 < w->out[2]; p2++) {
                int64_t q2 = meet(w, 2, p2, k[2], false);
                if (q2 >= 0) push(&b, x + q2, y + p2);
            }
        }
    flush(&b);
}

/* summed: over positions. */
#define KERNELS(op, count, tasks, summed)                                                          \
 static pl_status op##_run(const pl_call *c)                                                       \
 {                                                                                                 \
  job j = op##_job(c);                                                                             \
  each_task(c->in_type[0].dim[0] * (tasks), cost_of(c, j).flops, op##_row, &j);                    \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status op##_ref(const pl_call *c)                                                       \
 {                                                                                                 \
  pairs s = {op##_job(c), 0, op##_pair};                                                           \
  s.n = s.j.count;                                                                                 \
  each_task(pl_type_elems(&c->out_type[0]) / s.j.channels, cost_of(c, s.j).flops, ref_row, &s);    \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_cost op##_cost(const pl_call *c)                                                        \
 {                                                                                                 \
  pl_cost k = cost_of(c, op##_job(c));                                                             \
  return (summed) ? (pl_cost){k.flops, k.bytes, k.work, k.k, k.n, k.m} : k;                        \
 }                                                                                                 \
 static const pl_kernel op##_fast[] = {{"rows", accepts_f32, NULL, NULL, op##_run},                \
                                       PL_KERNEL_END};                                             \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {{"rows", accepts_f32, NULL, NULL, op##_run},             \
                                          PL_VIA_F32_KERNEL(op),                                   \
                                          {"ref", NULL, NULL, NULL, op##_ref},                     \
                                          PL_KERNEL_END};
KERNELS(y, taps, j.w.out[0] * j.w.out[1], false)
KERNELS(dx, taps, j.w.in[0] * j.w.in[1], false)
KERNELS(dw, py, j.taps, true)

/* clang-format off */
#define CASES(X)                                                                                          \
    X("[1,1,1,1]",   "[1,1,1,1]", "[1,1,1,1]",   "stride=[1,1]", "[1,1]", "[1,1]")                        \
    X("[2,5,6,3]",   "[2,3,3,3]", "[2,5,6,3]",   "pad_lo=[1,1], pad_hi=[1,1]", "[5,6]", "[3,3]")          \
    X("[3,4,5,70]",  "[3,2,3,70]", "[3,2,3,70]", "stride=[2,1]", "[4,5]", "[2,3]")                        \
    X("[1,9,7,2]",   "[1,3,3,2]", "[1,5,3,2]",   "dilation=[2,2]", "[9,7]", "[3,3]")                      \
    X("[2,9,3]",     "[2,3,3]",   "[2,4,3]",     "stride=[2]", "[9]", "[3]")
#define Y_CASE(x, w, y, a, size, k)  {{"f32" x, "f32" w}, a, {{0}}},
#define DX_CASE(x, w, y, a, size, k) {{"f32" y, "f32" w}, a ", in=" size, {{0}}},
#define DW_CASE(x, w, y, a, size, k) {{"f32" x, "f32" y}, a ", kernel=" k, {{0}}},
static const pl_case y_cases[] = {CASES(Y_CASE) PL_CASE_END};
static const pl_case dx_cases[] = {CASES(DX_CASE) PL_CASE_END};
static const pl_case dw_cases[] = {CASES(DW_CASE) PL_CASE_END};
/* clang-format on */

static void labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 3, 1);
    l->times = 3;
}

#define DEPTHWISE_OP(op, tag)                                                                      \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = 2,                                                                                  \
     .max_in = 2,                                                                                  \
     .n_out = 1,                                                                                   \
     .width = PL_WIDTH_LOW,                                                                        \
     .attr_bytes = sizeof(pl_window_attr),                                                         \
     .attrs = tag##_attrs,                                                                         \
     .infer = tag##_infer,                                                                         \
     .vjp = tag##_vjp,                                                                             \
     .cost = tag##_cost,                                                                           \
     .cpu = tag##_kernels,                                                                         \
     .cases = tag##_cases,                                                                         \
     .labels = labels,                                                                             \
 };
DEPTHWISE_OP(depthwise_per_sample, y)
DEPTHWISE_OP(depthwise_per_sample_dx, dx)
DEPTHWISE_OP(depthwise_per_sample_dw, dw)

pl_val pl_conv_per_sample(pl_graph *g, pl_val x, pl_val w, const pl_conv_opts *o)
{
    if (!pl_val_ok(x) || !pl_val_ok(w)) return PL_NO_VAL;
    pl_window_attr a = pl_window_from_conv(o, pl_val_type(g, x).rank - 2);
    return pl_build1(g, &pl_op_depthwise_per_sample, &a, 2, (const pl_val[]){x, w});
}
