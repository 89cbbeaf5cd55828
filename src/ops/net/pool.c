/* pool.c - maximum and average over sliding windows of [N, s.., C].
 *
 *   max_pool (x) -> y, index          index: u8, the winner's tap in its window (first of equals)
 *   max_pool_bwd (dy, index) -> dx    each dy goes to its winner
 *   max_pool_gather (x, index) -> y   the adjoint of max_pool_bwd: x at the winners
 *   avg_pool, avg_pool_bwd            an adjoint pair of linear maps (taps.h)
 *
 * The backward pass keeps one byte per output element of max_pool (M13 of docs/MEMORY.md), and
 * nothing of the averages. Padding never wins a maximum; averages count it only when count_pad is
 * set.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/dnn/dnn.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/taps.h"
#include "ops/net/window.h"

#include <math.h>
#include <string.h>

#define SHARED                                                                                     \
 PL_ATTR(pl_window_attr, kernel, DIMS), PL_ATTR(pl_window_attr, stride, DIMS),                     \
     PL_ATTR(pl_window_attr, pad_lo, DIMS), PL_ATTR(pl_window_attr, pad_hi, DIMS)
static const pl_attr max_attrs[] = {SHARED, PL_ATTR_END};
static const pl_attr max_bwd_attrs[] = {SHARED, PL_ATTR(pl_window_attr, in, DIMS), PL_ATTR_END};
static const pl_attr avg_attrs[] = {SHARED, PL_ATTR(pl_window_attr, count_pad, BOOL), PL_ATTR_END};
static const pl_attr avg_bwd_attrs[] = {SHARED, PL_ATTR(pl_window_attr, count_pad, BOOL),
                                        PL_ATTR(pl_window_attr, in, DIMS), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
/* Completes the attributes and sets y's type for x. Every window must contain an element of x. */
static pl_status pooled(pl_window_attr *a, const pl_type *x, pl_type *y)
{
    PL_TRY(pl_window_rank("x", x));
    int n = x->rank - 2;
    PL_TRY(pl_window_need("kernel", &a->kernel, n));
    if (a->stride.n == 0) a->stride = a->kernel;
    PL_TRY(pl_window_complete(a, n));
    *y = *x;
    for (int d = 0; d < n; d++) {
        PL_FAIL_IF(a->pad_lo.v[d] >= a->kernel.v[d] || a->pad_hi.v[d] >= a->kernel.v[d], PL_ERR_ARG,
                   "padding %lld and %lld along dim %d: must be less than kernel %lld",
                   (long long)a->pad_lo.v[d], (long long)a->pad_hi.v[d], d,
                   (long long)a->kernel.v[d]);
        PL_TRY(pl_window_out(a, d, x->dim[1 + d], a->kernel.v[d], &y->dim[1 + d]));
    }
    return PL_OK;
}

/* For the ops that compute x from y: sets x's type and checks that it pools to y. */
static pl_status unpooled(pl_window_attr *a, const pl_type *y, pl_type *x)
{
    char s[96], t[96], u[96];
    PL_TRY(pl_window_rank("dy", y));
    PL_TRY(pl_window_need("in", &a->in, y->rank - 2));
    *x = *y;
    for (int d = 0; d < a->in.n; d++) x->dim[1 + d] = a->in.v[d];
    pl_type want;
    PL_TRY(pooled(a, x, &want));
    PL_FAIL_IF(!pl_type_equal(&want, y), PL_ERR_SHAPE, "dy is %s; pooling %s gives %s",
               pl_type_text(y, s, sizeof s), pl_type_text(x, t, sizeof t),
               pl_type_text(&want, u, sizeof u));
    return PL_OK;
}

static pl_status check_index(const pl_type *index, const pl_type *y)
{
    pl_type want = *y;
    want.dtype = PL_U8;
    char s[96], t[96];
    PL_FAIL_IF(!pl_type_equal(index, &want), PL_ERR_SHAPE, "index is %s; needs %s",
               pl_type_text(index, s, sizeof s), pl_type_text(&want, t, sizeof t));
    return PL_OK;
}

static pl_status max_pool_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_window_attr *a = attr;
    PL_TRY(pooled(attr, &in[0], &out[0]));
    int64_t taps = 1;
    for (int d = 0; d < a->kernel.n; d++) taps *= a->kernel.v[d];
    PL_FAIL_IF(taps > 256, PL_ERR_UNSUPPORTED,
               "the window has %lld elements; at most 256 are supported", (long long)taps);
    out[1] = out[0];
    out[1].dtype = PL_U8;
    return PL_OK;
}

static pl_status max_pool_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    PL_TRY(unpooled(attr, &in[0], &out[0]));
    return check_index(&in[1], &in[0]);
}

static pl_status max_pool_gather_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    PL_TRY(pooled(attr, &in[0], &out[0]));
    return check_index(&in[1], &out[0]);
}

static pl_status avg_pool_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    return pooled(attr, &in[0], &out[0]);
}

static pl_status avg_pool_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    return unpooled(attr, &in[0], &out[0]);
}

/* ---- gradients -------------------------------------------------------------------------- */
static pl_val to_input(const pl_vjp *v, const pl_op *op, int n_in, const pl_val *in)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    pl_type t = pl_val_type(v->g, v->in[0]);
    a.in.n = t.rank - 2;
    for (int d = 0; d < a.in.n; d++) a.in.v[d] = t.dim[1 + d];
    return pl_build1(v->g, op, &a, n_in, in);
}

static void max_pool_vjp(const pl_vjp *v)
{
    pl_val in[2] = {v->gout[0], v->out[1]};
    if (pl_val_ok(in[0])) v->gin[0] = to_input(v, &pl_op_max_pool_bwd, 2, in);
}

static void max_pool_bwd_vjp(const pl_vjp *v)
{
    pl_val in[2] = {v->gout[0], v->in[1]};
    v->gin[0] = pl_build1(v->g, &pl_op_max_pool_gather, v->attr, 2, in);
}

static void max_pool_gather_vjp(const pl_vjp *v)
{
    pl_val in[2] = {v->gout[0], v->in[1]};
    v->gin[0] = to_input(v, &pl_op_max_pool_bwd, 2, in);
}

static void avg_pool_vjp(const pl_vjp *v)
{
    v->gin[0] = to_input(v, &pl_op_avg_pool_bwd, 1, v->gout);
}

static void avg_pool_bwd_vjp(const pl_vjp *v)
{
    v->gin[0] = pl_build1(v->g, &pl_op_avg_pool, v->attr, 1, v->gout);
}

/* ---- adjacent windows, as maps ----------------------------------------------------------- */
/* Whether the windows of an image neither overlap nor leave anything out. */
static bool tiles_plane(const pl_window_attr *a, const pl_type *x)
{
    if (x->rank != 4) return false;
    for (int d = 0; d < 2; d++)
        if (a->stride.v[d] != a->kernel.v[d] || a->pad_lo.v[d] || a->pad_hi.v[d] ||
            x->dim[1 + d] % a->kernel.v[d])
            return false;
    return true;
}

/* Tap by tap over strided slices, with the rule of max_pixel. */
static bool max_pool_as_maps(pl_graph *g, const void *attr, const pl_val *in, int n_in, pl_val *out)
{
    enum { MOST_TAPS = 9 }; /* with more taps, the slices of a producer are too many nodes */
    (void)n_in;
    const pl_window_attr *a = attr;
    pl_type x = pl_val_type(g, in[0]);
    int64_t taps = a->kernel.v[0] * (x.rank == 4 ? a->kernel.v[1] : 1);
    if (!tiles_plane(a, &x) || taps > MOST_TAPS || taps < 2) return false;
    for (int64_t t = 0; t < taps; t++) {
        pl_slice_attr at = {.start = {{0, t / a->kernel.v[1], t % a->kernel.v[1], 0}, 4},
                            .stop = {{x.dim[0], x.dim[1], x.dim[2], x.dim[3]}, 4},
                            .step = {{1, a->kernel.v[0], a->kernel.v[1], 1}, 4}};
        pl_val s = pl_build1(g, &pl_op_slice, &at, 1, in);
        pl_type index = pl_val_type(g, s);
        index.dtype = PL_U8;
        pl_val tap = pl_fill(g, index, (double)t);
        if (t == 0) {
            out[0] = s;
            out[1] = tap;
            continue;
        }
        pl_val wins = pl_or(g, pl_gt(g, s, out[0]),
                            pl_and(g, pl_is_nan(g, s), pl_not(g, pl_is_nan(g, out[0]))));
        out[0] = pl_select(g, wins, s, out[0]);
        out[1] = pl_select(g, wins, tap, out[1]);
    }
    return true;
}

/* Every element compares its position with the winner of its window. */
static bool max_pool_bwd_as_maps(pl_graph *g, const void *attr, const pl_val *in, int n_in,
                                 pl_val *out)
{
    (void)n_in;
    const pl_window_attr *a = attr;
    pl_type y = pl_val_type(g, in[0]), x = y;
    if (y.rank != 4) return false;
    for (int d = 0; d < 2; d++) x.dim[1 + d] = a->in.v[d];
    if (!tiles_plane(a, &x)) return false;
    const int64_t *k = a->kernel.v;
    pl_type wide = PL_TYPE(PL_U8, y.dim[0], y.dim[1], k[0], y.dim[2], k[1], y.dim[3]);
    pl_val v[2];
    for (int i = 0; i < 2; i++) {
        v[i] = pl_reshape(g, in[i], PL_DIMS(y.dim[0], y.dim[1], 1, y.dim[2], 1, y.dim[3]));
        v[i] = pl_broadcast(g, v[i], wide.rank, wide.dim);
    }
    pl_fill_attr tap = {.dtype = PL_U8, .shape.n = wide.rank, .steps = {{0, 0, k[1], 0, 1, 0}, 6}};
    memcpy(tap.shape.v, wide.dim, sizeof tap.shape.v);
    pl_val won = pl_eq(g, v[1], pl_build1(g, &pl_op_iota, &tap, 0, NULL));
    wide.dtype = y.dtype;
    out[0] = pl_select(g, won, v[0], pl_fill(g, wide, 0));
    out[0] = pl_reshape(g, out[0], x.rank, x.dim);
    return true;
}

/* One flop per tap of each pooled element; the larger operand is used for both directions. */
static pl_cost cost(const pl_call *c)
{
    const pl_window_attr *a = c->attr;
    int64_t n = pl_type_elems(&c->in_type[0]), m = pl_type_elems(&c->out_type[0]);
    double taps = 1;
    for (int d = 0; d < a->kernel.n; d++) taps *= (double)a->kernel.v[d];
    return (pl_cost){(double)(n < m ? n : m) * taps, operand_bytes(c)};
}

/* ---- maximum: reference ----------------------------------------------------------------- */
typedef struct job {
    const pl_call *c;
    pl_window w;
    int64_t channels, taps;
    pl_dtype dt;
} job;

static job job_of(const pl_call *c, const pl_type *x, const pl_type *y)
{
    const pl_window_attr *a = c->attr;
    int n = x->rank - 2;
    job j = {c, pl_window_make(a, n, x->dim + 1, y->dim + 1, a->kernel.v), x->dim[n + 1], 0,
             x->dtype};
    j.taps = pl_window_taps(&j.w);
    return j;
}

/* task: one output pixel */
static void max_pixel(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_call *c = j->c;
    int64_t plane = pl_window_pixels(j->w.out), p[3], k[3];
    int64_t image = task / plane * pl_window_pixels(j->w.in);
    pl_window_split(task % plane, j->w.out, p);
    for (int64_t ch = 0; ch < j->channels; ch++) {
        double best = 0;
        int64_t winner = -1;
        for (int64_t t = 0; t < j->taps; t++) {
            pl_window_split(t, j->w.kernel, k);
            int64_t q = pl_window_reads(&j->w, p, k);
            if (q < 0) continue;
            double x = ref_get(j->dt, c->in[0], (image + q) * j->channels + ch);
            if (winner >= 0 && !(x > best) && !(isnan(x) && !isnan(best))) continue;
            best = x;
            winner = t;
        }
        ref_set(j->dt, c->out[0], task * j->channels + ch, best);
        ((uint8_t *)c->out[1])[task * j->channels + ch] = (uint8_t)winner;
    }
}

/* task: one input pixel; sums the windows that it won, in the order of their taps */
static void max_bwd_pixel(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_call *c = j->c;
    const uint8_t *index = c->in[1];
    int64_t plane = pl_window_pixels(j->w.in), q[3], k[3];
    int64_t image = task / plane * pl_window_pixels(j->w.out);
    pl_window_split(task % plane, j->w.in, q);
    for (int64_t ch = 0; ch < j->channels; ch++) {
        double sum = 0;
        for (int64_t t = 0; t < j->taps; t++) {
            pl_window_split(t, j->w.kernel, k);
            int64_t p = pl_window_reader(&j->w, q, k);
            int64_t at = (image + p) * j->channels + ch;
            if (p >= 0 && index[at] == t) sum += ref_get(j->dt, c->in[0], at);
        }
        ref_set(j->dt, c->out[0], task * j->channels + ch, sum);
    }
}

/* task: one output pixel. An index that points into the padding (made up, not from max_pool)
 * reads zero. */
static void gather_pixel(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_call *c = j->c;
    const uint8_t *index = c->in[1];
    int64_t plane = pl_window_pixels(j->w.out), p[3], k[3];
    int64_t image = task / plane * pl_window_pixels(j->w.in);
    pl_window_split(task % plane, j->w.out, p);
    for (int64_t ch = 0; ch < j->channels; ch++) {
        int64_t at = task * j->channels + ch, q = -1;
        if (index[at] < j->taps) {
            pl_window_split(index[at], j->w.kernel, k);
            q = pl_window_reads(&j->w, p, k);
        }
        double x = q < 0 ? 0 : ref_get(j->dt, c->in[0], (image + q) * j->channels + ch);
        ref_set(j->dt, c->out[0], at, x);
    }
}

static pl_status max_pool_ref(const pl_call *c)
{
    job j = job_of(c, &c->in_type[0], &c->out_type[0]);
    each_task(pl_type_elems(&c->out_type[0]) / j.channels, cost(c).flops, max_pixel, &j);
    return PL_OK;
}

static pl_status max_pool_bwd_ref(const pl_call *c)
{
    job j = job_of(c, &c->out_type[0], &c->in_type[0]);
    each_task(pl_type_elems(&c->out_type[0]) / j.channels, cost(c).flops, max_bwd_pixel, &j);
    return PL_OK;
}

static pl_status max_pool_gather_ref(const pl_call *c)
{
    job j = job_of(c, &c->in_type[0], &c->out_type[0]);
    each_task(pl_type_elems(&c->out_type[0]) / j.channels, cost(c).flops, gather_pixel, &j);
    return PL_OK;
}

/* ---- maximum: oneDNN -------------------------------------------------------------------- */
static pl_status dnn_prepare(const pl_call *c, pl_dnn_pool_kind kind, job j, void **prep,
                             size_t *work_bytes)
{
    pl_dnn_pool_desc d = {.dtype = j.dt,
                          .n_spatial = j.w.n_spatial,
                          .n = c->in_type[0].dim[0],
                          .c = j.channels,
                          .index = true};
    int skip = 3 - j.w.n_spatial;
    for (int i = 0; i < j.w.n_spatial; i++) {
        d.in[i] = j.w.in[skip + i];
        d.out[i] = j.w.out[skip + i];
        d.kernel[i] = j.w.kernel[skip + i];
        d.stride[i] = j.w.stride[skip + i];
        d.dilation[i] = 1;
        d.pad_lo[i] = j.w.pad_lo[skip + i];
        d.pad_hi[i] = j.w.pad_hi[skip + i];
    }
    pl_dnn *h = NULL;
    pl_status rc = pl_dnn_pool_prepare(kind, &d, &h, work_bytes);
    *prep = h;
    return rc == PL_ERR_UNSUPPORTED ? PL_OK : rc;
}

static pl_status max_pool_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    return dnn_prepare(c, PL_DNN_POOL_MAX_FWD, job_of(c, &c->in_type[0], &c->out_type[0]), prep,
                       work_bytes);
}

static pl_status max_pool_bwd_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    return dnn_prepare(c, PL_DNN_POOL_MAX_BWD, job_of(c, &c->out_type[0], &c->in_type[0]), prep,
                       work_bytes);
}

static void dnn_release(void *prep)
{
    pl_dnn_free(prep);
}

/* Problems that oneDNN refuses use the reference loops: the handle is NULL. */
static pl_status max_pool_run(const pl_call *c)
{
    return c->prep ? pl_dnn_run(c->prep, c->in, c->out, c->work) : max_pool_ref(c);
}

static pl_status max_pool_bwd_run(const pl_call *c)
{
    return c->prep ? pl_dnn_run(c->prep, c->in, c->out, c->work) : max_pool_bwd_ref(c);
}

#define DNN_KERNEL(op)                                                                             \
 static const pl_kernel op##_fast[] = {{"dnn", accepts_f32, op##_prepare, dnn_release, op##_run},  \
                                       PL_KERNEL_END};                                             \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {                                                         \
     {"dnn", accepts_f32, op##_prepare, dnn_release, op##_run},                                    \
     PL_VIA_F32_KERNEL(op),                                                                        \
     {"ref", NULL, NULL, NULL, op##_ref},                                                          \
     PL_KERNEL_END};
DNN_KERNEL(max_pool)
DNN_KERNEL(max_pool_bwd)
static const pl_kernel max_pool_gather_kernels[] = {{"ref", NULL, NULL, NULL, max_pool_gather_ref},
                                                    PL_KERNEL_END};

/* ---- averages --------------------------------------------------------------------------- */
typedef struct averaging {
    const pl_window_attr *a;
    const int64_t *in;
} averaging;

static bool avg_taps_of(const void *ctx, int d, int64_t i, int64_t k, int64_t *index,
                        double *weight)
{
    const averaging *v = ctx;
    const pl_window_attr *a = v->a;
    int64_t from = i * a->stride.v[d] - a->pad_lo.v[d], to = from + a->kernel.v[d];
    int64_t lo = from < 0 ? 0 : from, hi = to < v->in[d] ? to : v->in[d];
    *index = lo + k;
    *weight = 1.0 / (double)(a->count_pad ? a->kernel.v[d] : hi - lo);
    return lo + k < hi;
}

#define AVERAGE_TAPS(op, x, y, adjoint)                                                            \
 static pl_status op##_taps(const pl_call *c, pl_taps **t)                                         \
 {                                                                                                 \
  averaging v = {c->attr, c->x[0].dim + 1};                                                        \
  return pl_taps_new(c->x[0].rank - 2, v.in, c->y[0].dim + 1, avg_taps_of, &v, adjoint, t);        \
 }                                                                                                 \
 PL_TAPS_KERNELS(op)
AVERAGE_TAPS(avg_pool, in_type, out_type, false)
AVERAGE_TAPS(avg_pool_bwd, out_type, in_type, true)

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                                        \
    X("[1,1,1,1]",   "[1,1,1,1]",   "[1,1]",   "kernel=[1,1]")                                          \
    X("[2,6,5,3]",   "[2,3,2,3]",   "[6,5]",   "kernel=[2,2]")                                          \
    X("[1,7,6,17]",  "[1,4,3,17]",  "[7,6]",   "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]") \
    X("[1,5,5,2]",   "[1,5,5,2]",   "[5,5]",   "kernel=[3,3], stride=[1,1], pad_lo=[1,1], pad_hi=[1,1]") \
    X("[2,9,4]",     "[2,4,4]",     "[9]",     "kernel=[3], stride=[2]")                                \
    X("[1,4,5,4,2]", "[1,2,3,2,2]", "[4,5,4]", "kernel=[2,2,2], pad_hi=[0,1,0]")
#define MAX_CASE(x, y, size, a)    {{"f32" x}, a, {{0, 0, true}}},
#define BWD_CASE(x, y, size, a)    {{"f32" y, "u8" y}, a ", in=" size, {{0}, {0, 0, false}}},
#define GATHER_CASE(x, y, size, a) {{"f32" x, "u8" y}, a, {{0}, {0, 0, false}}},
#define AVG_CASE(x, y, size, a)    {{"f32" x}, a ", count_pad=false", {{0}}}, {{"f32" x}, a ", count_pad=true", {{0}}},
#define AVG_BWD_CASE(x, y, size, a) {{"f32" y}, a ", count_pad=false, in=" size, {{0}}}, {{"f32" y}, a ", count_pad=true, in=" size, {{0}}},
static const pl_case max_pool_cases[] = {CASES(MAX_CASE) PL_CASE_END};
static const pl_case max_pool_bwd_cases[] = {CASES(BWD_CASE) PL_CASE_END};
static const pl_case max_pool_gather_cases[] = {CASES(GATHER_CASE) PL_CASE_END};
static const pl_case avg_pool_cases[] = {CASES(AVG_CASE) PL_CASE_END};
static const pl_case avg_pool_bwd_cases[] = {CASES(AVG_BWD_CASE) PL_CASE_END};
/* clang-format on */

static void max_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 1, 3);
}

/* Linear in the first operand: averages, and maxima once the winners are known. */
static void linear_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 3, 1);
    l->times = 1;
}

#define POOL_OP(op, n_inputs, n_outputs, table, maps)                                              \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = n_inputs,                                                                           \
     .max_in = n_inputs,                                                                           \
     .n_out = n_outputs,                                                                           \
     .width = PL_WIDTH_FOLLOW,                                                                     \
     .attr_bytes = sizeof(pl_window_attr),                                                         \
     .attrs = table,                                                                               \
     .infer = op##_infer,                                                                          \
     .vjp = op##_vjp,                                                                              \
     .cost = cost,                                                                                 \
     .cpu = op##_kernels,                                                                          \
     .cases = op##_cases,                                                                          \
     .labels = n_outputs == 2 ? max_labels : linear_labels,                                        \
     .as_maps = maps,                                                                              \
 };
POOL_OP(max_pool, 1, 2, max_attrs, max_pool_as_maps)
POOL_OP(max_pool_bwd, 2, 1, max_bwd_attrs, max_pool_bwd_as_maps)
POOL_OP(max_pool_gather, 2, 1, max_attrs, NULL)
POOL_OP(avg_pool, 1, 1, avg_attrs, NULL)
POOL_OP(avg_pool_bwd, 1, 1, avg_bwd_attrs, NULL)
/* ---- constructors ----------------------------------------------------------------------- */
static pl_window_attr attr_of(const pl_pool_opts *o, int n)
{
    pl_window_attr a;
    memset(&a, 0, sizeof a);
    a.kernel.n = a.stride.n = a.pad_lo.n = a.pad_hi.n = n < 0 ? 0 : n < 3 ? n : 3;
    for (int d = 0; d < a.kernel.n; d++) {
        a.kernel.v[d] = o->kernel[d];
        a.stride.v[d] = o->stride[d] ? o->stride[d] : o->kernel[d];
        a.pad_lo.v[d] = o->pad_lo[d];
        a.pad_hi.v[d] = o->pad_hi[d];
    }
    a.count_pad = o->count_pad;
    return a;
}

pl_val pl_max_pool(pl_graph *g, pl_val x, const pl_pool_opts *o)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_window_attr a = attr_of(o, pl_val_type(g, x).rank - 2);
    a.count_pad = false; /* not an attribute of the maximum */
    return pl_build1(g, &pl_op_max_pool, &a, 1, &x);
}

pl_val pl_avg_pool(pl_graph *g, pl_val x, const pl_pool_opts *o)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_window_attr a = attr_of(o, pl_val_type(g, x).rank - 2);
    return pl_build1(g, &pl_op_avg_pool, &a, 1, &x);
}
