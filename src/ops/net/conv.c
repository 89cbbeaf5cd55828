/* conv.c - convolution and its two gradients; channels last, one to three spatial dims.
 *
 *   conv      (x, w, bias?) -> y   y[n,p,o] = bias[o] + sum over k,i of
 *                                             x[n, p*s + k*d - pad, g*I+i] w[o,k,i]
 *   conv_dx   (dy, w) -> dx        its adjoint in x: the data gradient, and transposed convolution
 *   conv_dw   (x, dy) -> dw        its adjoint in w
 *
 * x [N, in.., I*groups], w [O, kernel.., I], y [N, out.., O]. The map is bilinear in (x, w), so
 * each op's gradient is the other two, and derivatives of any order stay inside the three. conv_dx
 * and conv_dw have attributes for the sizes that do not follow from their inputs (`in`, `kernel`).
 * The backward pass keeps x and w.
 *
 * A convolution over patches (windows as large as their stride, few channels) is built as a permute
 * and a product instead.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/dnn/dnn.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/tail.h"
#include "ops/net/window.h"

#include <string.h>

#define SHARED                                                                                     \
 PL_ATTR(pl_window_attr, stride, DIMS), PL_ATTR(pl_window_attr, dilation, DIMS),                   \
     PL_ATTR(pl_window_attr, pad_lo, DIMS), PL_ATTR(pl_window_attr, pad_hi, DIMS),                 \
     PL_ATTR(pl_window_attr, groups, INT)
static const pl_attr conv_attrs[] = {SHARED, PL_ATTR_END};
static const pl_attr dx_attrs[] = {SHARED, PL_ATTR(pl_window_attr, in, DIMS), PL_ATTR_END};
static const pl_attr dw_attrs[] = {SHARED, PL_ATTR(pl_window_attr, kernel, DIMS), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
/* Checks x and w, and fills y. The only place that checks the shapes of all three ops. */
static pl_status check(pl_window_attr *a, const pl_type *x, const pl_type *w, pl_type *y)
{
    char s[96], t[96];
    pl_type_text(x, s, sizeof s);
    pl_type_text(w, t, sizeof t);
    PL_TRY(pl_window_rank("x", x));
    PL_FAIL_IF(w->rank != x->rank, PL_ERR_SHAPE, "x is %s, w is %s: their ranks differ", s, t);
    PL_FAIL_IF(w->dtype != x->dtype, PL_ERR_SHAPE, "x is %s, w is %s: their types differ", s, t);
    int n = x->rank - 2;
    PL_TRY(pl_window_complete(a, n));
    int64_t ic = x->dim[n + 1], oc = w->dim[0];
    PL_FAIL_IF(w->dim[n + 1] * a->groups != ic, PL_ERR_SHAPE,
               "x %s, w %s: x has %lld channels, w needs %lld (%lld in each of %lld groups)", s, t,
               (long long)ic, (long long)(w->dim[n + 1] * a->groups), (long long)w->dim[n + 1],
               (long long)a->groups);
    PL_FAIL_IF(oc % a->groups, PL_ERR_SHAPE, "w is %s: %lld outputs do not divide into %lld groups",
               t, (long long)oc, (long long)a->groups);
    *y = *x;
    y->dim[n + 1] = oc;
    for (int d = 0; d < n; d++)
        PL_TRY(pl_window_out(a, d, x->dim[1 + d], w->dim[1 + d], &y->dim[1 + d]));
    return PL_OK;
}

pl_status pl_conv_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    PL_TRY(check(attr, &in[0], &in[1], &out[0]));
    if (n_in < 3) return PL_OK;
    char s[96], t[96];
    PL_FAIL_IF(in[2].rank != 1 || in[2].dim[0] != in[1].dim[0] || in[2].dtype != in[0].dtype,
               PL_ERR_SHAPE, "bias is %s, w is %s: a bias has one element per output channel",
               pl_type_text(&in[2], s, sizeof s), pl_type_text(&in[1], t, sizeof t));
    return PL_OK;
}

pl_status pl_conv_dx_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    const pl_type *dy = &in[0], *w = &in[1];
    char s[96], t[96], u[96];
    PL_TRY(pl_window_rank("dy", dy));
    PL_FAIL_IF(w->rank != dy->rank, PL_ERR_SHAPE, "dy is %s, w is %s: their ranks differ",
               pl_type_text(dy, s, sizeof s), pl_type_text(w, t, sizeof t));
    int n = dy->rank - 2;
    PL_TRY(pl_window_complete(a, n));
    PL_TRY(pl_window_need("in", &a->in, n));
    out[0] = *dy;
    for (int d = 0; d < n; d++) out[0].dim[1 + d] = a->in.v[d];
    out[0].dim[n + 1] = w->dim[n + 1] * a->groups;
    pl_type y;
    PL_TRY(check(a, &out[0], w, &y));
    PL_FAIL_IF(!pl_type_equal(&y, dy), PL_ERR_SHAPE, "dy is %s, but x %s with w %s gives %s",
               pl_type_text(dy, s, sizeof s), pl_type_text(&out[0], t, sizeof t),
               pl_type_text(w, u, sizeof u), pl_type_text(&y, (char[96]){0}, 96));
    return PL_OK;
}

static pl_status dw_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    const pl_type *x = &in[0], *dy = &in[1];
    char s[96], t[96], u[96];
    PL_TRY(pl_window_rank("x", x));
    int n = x->rank - 2;
    PL_TRY(pl_window_complete(a, n));
    PL_TRY(pl_window_need("kernel", &a->kernel, n));
    PL_FAIL_IF(dy->rank != x->rank || x->dim[n + 1] % a->groups, PL_ERR_SHAPE,
               "x %s and dy %s with %lld groups do not match", pl_type_text(x, s, sizeof s),
               pl_type_text(dy, t, sizeof t), (long long)a->groups);
    out[0] = *x;
    out[0].dim[0] = dy->dim[n + 1];
    for (int d = 0; d < n; d++) out[0].dim[1 + d] = a->kernel.v[d];
    out[0].dim[n + 1] = x->dim[n + 1] / a->groups;
    pl_type y;
    PL_TRY(check(a, x, &out[0], &y));
    PL_FAIL_IF(!pl_type_equal(&y, dy), PL_ERR_SHAPE, "dy is %s, but x %s with w %s gives %s",
               pl_type_text(dy, s, sizeof s), pl_type_text(x, t, sizeof t),
               pl_type_text(&out[0], u, sizeof u), pl_type_text(&y, (char[96]){0}, 96));
    return PL_OK;
}

/* The geometry of a call, for any of the three ops. */
typedef struct geometry {
    pl_window w;
    int64_t n, ic, oc, groups;
} geometry;

static geometry geometry_of(const pl_call *c, const pl_type *x, const pl_type *w, const pl_type *y)
{
    const pl_window_attr *a = c->attr;
    int n = x->rank - 2;
    return (geometry){pl_window_make(a, n, x->dim + 1, y->dim + 1, w->dim + 1), x->dim[0],
                      x->dim[n + 1], y->dim[n + 1], a->groups};
}

static geometry conv_geometry(const pl_call *c)
{
    return geometry_of(c, &c->in_type[0], &c->in_type[1], &c->out_type[0]);
}

static geometry dx_geometry(const pl_call *c)
{
    return geometry_of(c, &c->out_type[0], &c->in_type[1], &c->in_type[0]);
}

static geometry dw_geometry(const pl_call *c)
{
    return geometry_of(c, &c->in_type[0], &c->out_type[0], &c->in_type[1]);
}

/* ---- gradients -------------------------------------------------------------------------- */
static pl_val build_dx(const pl_vjp *v, pl_val dy, pl_val w, pl_val like)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    pl_type t = pl_val_type(v->g, like);
    a.in.n = t.rank - 2;
    for (int d = 0; d < a.in.n; d++) a.in.v[d] = t.dim[1 + d];
    return pl_build1(v->g, &pl_op_conv_dx, &a, 2, (const pl_val[]){dy, w});
}

static pl_val build_dw(const pl_vjp *v, pl_val x, pl_val dy, pl_val like)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    pl_type t = pl_val_type(v->g, like);
    a.kernel.n = t.rank - 2;
    for (int d = 0; d < a.kernel.n; d++) a.kernel.v[d] = t.dim[1 + d];
    return pl_build1(v->g, &pl_op_conv_dw, &a, 2, (const pl_val[]){x, dy});
}

static pl_val build_conv(const pl_vjp *v, pl_val x, pl_val w)
{
    return pl_build1(v->g, &pl_op_conv, v->attr, 2, (const pl_val[]){x, w});
}

static void conv_vjp(const pl_vjp *v)
{
    pl_val x = v->in[0], w = v->in[1], d = v->gout[0];
    if (v->need[0]) v->gin[0] = build_dx(v, d, w, x);
    if (v->need[1]) v->gin[1] = build_dw(v, x, d, w);
    if (v->n_in < 3 || !v->need[2]) return;
    uint32_t axes = 0;
    for (int i = 0; i < pl_val_type(v->g, d).rank - 1; i++) axes |= PL_AXIS(i);
    v->gin[2] = pl_sum(v->g, d, axes, false);
}

static void dx_vjp(const pl_vjp *v)
{
    pl_val dy = v->in[0], w = v->in[1], d = v->gout[0];
    if (v->need[0]) v->gin[0] = build_conv(v, d, w);
    if (v->need[1]) v->gin[1] = build_dw(v, d, dy, w);
}

static void dw_vjp(const pl_vjp *v)
{
    pl_val x = v->in[0], dy = v->in[1], d = v->gout[0];
    if (v->need[0]) v->gin[0] = build_dx(v, dy, d, x);
    if (v->need[1]) v->gin[1] = build_conv(v, x, d);
}

/* ---- cost ------------------------------------------------------------------------------- */
/* The product of (positions, channels in x taps) and (channels in x taps, channels out): the three
 * ops differ in which dimension is summed over. */
static pl_cost cost_of(const pl_call *c, geometry g, int summed)
{
    double places = (double)g.n, out = (double)(g.oc / g.groups);
    double in = (double)pl_window_taps(&g.w) * (double)(g.ic / g.groups);
    for (int d = 0; d < 3; d++) places *= (double)g.w.out[d];
    double mnk[3][3] = {{places, out, in}, {places, in, out}, {out, in, places}};
    static const pl_work work[3] = {PL_WORK_CONV, PL_WORK_CONV_DX, PL_WORK_CONV_DW};
    return (pl_cost){2 * places * out * in * (double)g.groups,
                     operand_bytes(c),
                     work[summed],
                     mnk[summed][0],
                     mnk[summed][1],
                     mnk[summed][2]};
}

pl_cost pl_conv_cost(const pl_call *c)
{
    return cost_of(c, conv_geometry(c), 0);
}

pl_cost pl_conv_dx_cost(const pl_call *c)
{
    return cost_of(c, dx_geometry(c), 1);
}

static pl_cost dw_cost(const pl_call *c)
{
    return cost_of(c, dw_geometry(c), 2);
}

/* ---- reference: one output element at a time, in double --------------------------------- */
typedef struct job {
    const pl_call *c;
    geometry g;
    pl_dtype dt;
    bool bias;
    pl_put_fn *put;
} job;

static double dot(pl_dtype dt, const void *a, int64_t at, const void *b, int64_t bt, int64_t n)
{
    double sum = 0;
    if (dt == PL_F64) {
        const double *x = (const double *)a + at, *y = (const double *)b + bt;
        for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
        return sum;
    }
    for (int64_t i = 0; i < n; i++) sum += ref_get(dt, a, at + i) * ref_get(dt, b, bt + i);
    return sum;
}

/* sum[0..n) += by * x[at..at+n) */
static void add_row(pl_dtype dt, const void *x, int64_t at, double by, double *sum, int64_t n)
{
    if (dt == PL_F64) {
        const double *row = (const double *)x + at;
        for (int64_t i = 0; i < n; i++) sum[i] += by * row[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) sum[i] += by * ref_get(dt, x, at + i);
}

/* task: one output pixel */
static void conv_pixel(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const geometry *g = &j->g;
    const pl_call *c = j->c;
    int64_t plane = pl_window_pixels(g->w.out), taps = pl_window_taps(&g->w);
    int64_t i_per = g->ic / g->groups, o_per = g->oc / g->groups, p[3], k[3];
    pl_window_split(task % plane, g->w.out, p);
    for (int64_t o = 0; o < g->oc; o++) {
        double sum = j->bias ? ref_get(j->dt, c->in[2], o) : 0;
        for (int64_t t = 0; t < taps; t++) {
            pl_window_split(t, g->w.kernel, k);
            int64_t q = pl_window_reads(&g->w, p, k);
            if (q < 0) continue;
            int64_t x = (task / plane * pl_window_pixels(g->w.in) + q) * g->ic + o / o_per * i_per;
            sum += dot(j->dt, c->in[0], x, c->in[1], (o * taps + t) * i_per, i_per);
        }
        j->put(c, task * g->oc + o, sum);
    }
}

/* Channels that are summed side by side, each in the order that it would have alone. */
enum { SIDE = 64 };

/* Computes channels first .. first+n of one input pixel, all of one group. */
static void dx_channels(const job *j, int64_t task, int64_t first, int64_t n)
{
    const geometry *g = &j->g;
    const pl_call *c = j->c;
    int64_t plane = pl_window_pixels(g->w.in), taps = pl_window_taps(&g->w);
    int64_t i_per = g->ic / g->groups, o_per = g->oc / g->groups, q[3], k[3];
    int64_t from = first / i_per * o_per;
    double sum[SIDE] = {0}, part[SIDE];
    pl_window_split(task % plane, g->w.in, q);
    for (int64_t t = 0; t < taps; t++) {
        pl_window_split(t, g->w.kernel, k);
        int64_t p = pl_window_reader(&g->w, q, k);
        if (p < 0) continue;
        int64_t y = (task / plane * pl_window_pixels(g->w.out) + p) * g->oc + from;
        memset(part, 0, sizeof part);
        for (int64_t o = 0; o < o_per; o++)
            add_row(j->dt, c->in[1], ((from + o) * taps + t) * i_per + first % i_per,
                    ref_get(j->dt, c->in[0], y + o), part, n);
        for (int64_t i = 0; i < n; i++) sum[i] += part[i];
    }
    for (int64_t i = 0; i < n; i++) j->put(c, task * g->ic + first + i, sum[i]);
}

/* task: one input pixel */
static void dx_pixel(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t i_per = j->g.ic / j->g.groups;
    for (int64_t group = 0; group < j->g.ic; group += i_per)
        for (int64_t i = 0; i < i_per; i += SIDE)
            dx_channels(j, task, group + i, i_per - i < SIDE ? i_per - i : SIDE);
}

/* task: one (o, tap) of the weight */
static void dw_tap(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const geometry *g = &j->g;
    const pl_call *c = j->c;
    int64_t taps = pl_window_taps(&g->w), o = task / taps, k[3], p[3];
    int64_t i_per = g->ic / g->groups, first = o / (g->oc / g->groups) * i_per;
    int64_t plane = pl_window_pixels(g->w.out);
    pl_window_split(task % taps, g->w.kernel, k);
    for (int64_t i = 0; i < i_per; i += SIDE) {
        int64_t n = i_per - i < SIDE ? i_per - i : SIDE;
        double sum[SIDE] = {0};
        for (int64_t y = 0; y < g->n * plane; y++) {
            pl_window_split(y % plane, g->w.out, p);
            int64_t q = pl_window_reads(&g->w, p, k);
            if (q < 0) continue;
            int64_t x = (y / plane * pl_window_pixels(g->w.in) + q) * g->ic + first + i;
            add_row(j->dt, c->in[0], x, ref_get(j->dt, c->in[1], y * g->oc + o), sum, n);
        }
        for (int64_t m = 0; m < n; m++) ref_set(j->dt, c->out[0], task * i_per + i + m, sum[m]);
    }
}

pl_status pl_conv_ref(const pl_call *c, bool bias, pl_put_fn *put)
{
    job j = {c, conv_geometry(c), c->in_type[0].dtype, bias, put};
    each_task(pl_type_elems(&c->out_type[0]) / j.g.oc, pl_conv_cost(c).flops, conv_pixel, &j);
    return PL_OK;
}

pl_status pl_conv_dx_ref(const pl_call *c, pl_put_fn *put)
{
    job j = {c, dx_geometry(c), c->in_type[0].dtype, false, put};
    each_task(pl_type_elems(&c->out_type[0]) / j.g.ic, pl_conv_dx_cost(c).flops, dx_pixel, &j);
    return PL_OK;
}

static pl_status conv_ref(const pl_call *c)
{
    return pl_conv_ref(c, c->n_in == 3, pl_put_plain);
}

static pl_status dx_ref(const pl_call *c)
{
    return pl_conv_dx_ref(c, pl_put_plain);
}

static pl_status dw_ref(const pl_call *c)
{
    job j = {c, dw_geometry(c), c->in_type[0].dtype, false, pl_put_plain};
    each_task(j.g.oc * pl_window_taps(&j.g.w), dw_cost(c).flops, dw_tap, &j);
    return PL_OK;
}

/* ---- oneDNN ----------------------------------------------------------------------------- */
/* Problems that oneDNN refuses use the reference loops: the handle stays NULL. */
static pl_status dnn_prepare(const pl_call *c, pl_dnn_conv_kind kind, geometry g, void **prep,
                             size_t *work_bytes)
{
    pl_dnn_conv_desc d = {.dtype = c->in_type[0].dtype,
                          .n_spatial = g.w.n_spatial,
                          .n = g.n,
                          .ic = g.ic,
                          .oc = g.oc,
                          .groups = g.groups,
                          .bias = c->n_in == 3};
    int skip = 3 - g.w.n_spatial;
    for (int i = 0; i < g.w.n_spatial; i++) {
        d.in[i] = g.w.in[skip + i];
        d.out[i] = g.w.out[skip + i];
        d.kernel[i] = g.w.kernel[skip + i];
        d.stride[i] = g.w.stride[skip + i];
        d.dilation[i] = g.w.dilation[skip + i];
        d.pad_lo[i] = g.w.pad_lo[skip + i];
        d.pad_hi[i] = g.w.pad_hi[skip + i];
    }
    pl_dnn *h = NULL;
    pl_status rc = pl_dnn_conv_prepare(kind, &d, &h, work_bytes);
    *prep = h;
    return rc == PL_ERR_UNSUPPORTED ? PL_OK : rc;
}

static void dnn_release(void *prep)
{
    pl_dnn_free(prep);
}

#define DNN_KERNEL(op, KIND)                                                                       \
 static pl_status op##_dnn_prepare(const pl_call *c, void **prep, size_t *work_bytes)              \
 {                                                                                                 \
  return dnn_prepare(c, PL_DNN_CONV_##KIND, op##_geometry(c), prep, work_bytes);                   \
 }                                                                                                 \
 static pl_status op##_dnn_run(const pl_call *c)                                                   \
 {                                                                                                 \
  return c->prep ? pl_dnn_run(c->prep, c->in, c->out, c->work) : op##_ref(c);                      \
 }                                                                                                 \
 static const pl_kernel op##_fast[] = {                                                            \
     {"dnn", accepts_f32, op##_dnn_prepare, dnn_release, op##_dnn_run}, PL_KERNEL_END};            \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {                                                         \
     {"dnn", accepts_f32, op##_dnn_prepare, dnn_release, op##_dnn_run},                            \
     PL_VIA_F32_KERNEL(op),                                                                        \
     {"ref", NULL, NULL, NULL, op##_ref},                                                          \
     PL_KERNEL_END};
DNN_KERNEL(conv, FWD)
DNN_KERNEL(dx, BWD_DATA)
DNN_KERNEL(dw, BWD_WEIGHTS)

/* ---- cases: (x, w, y) thrice, once for each op ------------------------------------------ */
/* clang-format off */
#define CASES(X)                                                                                          \
    X("[1,1,1,1]",    "[1,1,1,1]",   "[1,1,1,1]",    "groups=1", "[1,1]", "[1,1]")                                \
    X("[2,5,6,3]",    "[4,3,3,3]",   "[2,5,6,4]",    "pad_lo=[1,1], pad_hi=[1,1]", "[5,6]", "[3,3]")      \
    X("[1,7,6,2]",    "[3,2,4,2]",   "[1,3,2,3]",    "stride=[2,3], pad_hi=[0,1]", "[7,6]", "[2,4]")      \
    X("[1,9,7,2]",    "[2,3,3,2]",   "[1,5,3,2]",    "dilation=[2,2]", "[9,7]", "[3,3]")                  \
    X("[2,5,5,4]",    "[6,3,3,2]",   "[2,3,3,6]",    "groups=2, stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", "[5,5]", "[3,3]") \
    X("[1,5,4,6]",    "[6,3,3,1]",   "[1,5,4,6]",    "groups=6, pad_lo=[1,1], pad_hi=[1,1]", "[5,4]", "[3,3]") \
    X("[1,6,6,2]",    "[2,16,16,2]", "[1,3,3,2]",    "stride=[2,2], pad_lo=[7,7], pad_hi=[7,7]", "[6,6]", "[16,16]") \
    X("[1,8,6,3]",    "[2,4,4,3]",   "[1,4,3,2]",    "stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", "[8,6]", "[4,4]") \
    X("[2,9,3]",      "[4,3,3]",     "[2,4,4]",      "stride=[2]", "[9]", "[3]")                          \
    X("[1,3,4,4,2]",  "[3,1,1,1,2]", "[1,3,4,4,3]",  "groups=1", "[3,4,4]", "[1,1,1]")                            \
    X("[1,2,4,6,3]",  "[5,1,2,2,3]", "[1,2,2,3,5]",  "stride=[1,2,2]", "[2,4,6]", "[1,2,2]")              \
    X("[1,2,3,3,4]",  "[4,2,2,2,2]", "[1,1,2,2,4]",  "groups=2", "[2,3,3]", "[2,2,2]")             \
    X("[1,3,5,4,2]",  "[2,3,3,3,2]", "[1,3,5,4,2]",  "pad_lo=[1,1,1], pad_hi=[1,1,1]", "[3,5,4]", "[3,3,3]")
#define CONV_CASE(x, w, y, a, in, k) {{"f32" x, "f32" w}, a, {{0}}},
#define DX_CASE(x, w, y, a, size, k) {{"f32" y, "f32" w}, "in=" size ", " a, {{0}}},
#define DW_CASE(x, w, y, a, in, k)   {{"f32" x, "f32" y}, "kernel=" k ", " a, {{0}}},
static const pl_case conv_cases[] = {
    {{"f32[2,4,5,3]", "f32[17,3,3,3]", "f32[17]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}},
    CASES(CONV_CASE) PL_CASE_END};
static const pl_case dx_cases[] = {CASES(DX_CASE) PL_CASE_END};
static const pl_case dw_cases[] = {CASES(DW_CASE) PL_CASE_END};
/* clang-format on */

/* Samples never mix, nor do channels that are each a group: x, w and y are the operands; one of
 * them is the result. */
static void label(const pl_call *c, pl_labels *l, int8_t *x, int8_t *w, int8_t *y)
{
    int last = c->in_type[0].rank - 1;
    const pl_type *t = &c->in_type[0], *u = &c->out_type[0];
    int64_t groups = ((const pl_window_attr *)c->attr)->groups;
    bool apart = w == l->out[0] ? u->dim[0] == groups && u->dim[last] == 1
                                : u->dim[last] == groups && t->dim[last] == groups;
    x[0] = y[0] = 1;
    if (apart) x[last] = w[0] = y[last] = 2;
    l->times = 3;
}

static void conv_labels(const pl_call *c, pl_labels *l)
{
    label(c, l, l->in[0], l->in[1], l->out[0]);
    l->in[2][0] = l->in[1][0];
    l->plus = 4;
}

static void dx_labels(const pl_call *c, pl_labels *l)
{
    label(c, l, l->out[0], l->in[1], l->in[0]);
}

static void dw_labels(const pl_call *c, pl_labels *l)
{
    label(c, l, l->in[0], l->out[0], l->in[1]);
}

/* Describes a convolution whose result has the size of its image: in 2-D as a product of windows,
 * over single pixels as a plain product. back: the data gradient, which reads windows of dy, taps
 * backwards. Returns false for others. */
static bool product_of(const pl_window_attr *a, const pl_type *w, const pl_type *x, bool back,
                       pl_plain_product *out)
{
    int64_t o = w->dim[0], i = w->dim[w->rank - 1], pixels = x->dim[0];
    bool same = a->groups == 1, point = true;
    for (int d = 0; d < w->rank - 2; d++) {
        int64_t reach = (w->dim[1 + d] - 1) * a->dilation.v[d];
        same &= a->stride.v[d] == 1 && a->pad_lo.v[d] >= 0 && a->pad_lo.v[d] <= reach &&
                a->pad_hi.v[d] == reach - a->pad_lo.v[d];
        point &= w->dim[1 + d] == 1, pixels *= x->dim[1 + d];
    }
    *out = (pl_plain_product){pixels, back ? i : o, back ? o : i, !back, {{0}}};
    if (point || w->rank != 4) return same && point;
    for (int d = 0; d < 2; d++) {
        out->window.size[d] = x->dim[1 + d], out->window.taps[d] = w->dim[1 + d];
        out->window.apart[d] = a->dilation.v[d];
        out->window.pad[d] = back ? a->pad_hi.v[d] : a->pad_lo.v[d];
    }
    out->k *= w->dim[1] * w->dim[2];
    return same;
}

static bool conv_product(const pl_call *c, pl_plain_product *out)
{
    return c->n_in == 2 && product_of(c->attr, &c->in_type[1], c->in_type, false, out);
}

static bool dx_product(const pl_call *c, pl_plain_product *out)
{
    return product_of(c->attr, &c->in_type[1], c->out_type, true, out);
}

const pl_op pl_op_conv = {
    .name = "conv",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .flags = PL_OP_BIAS,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_window_attr),
    .attrs = conv_attrs,
    .infer = pl_conv_infer,
    .vjp = conv_vjp,
    .cost = pl_conv_cost,
    .cpu = conv_kernels,
    .cases = conv_cases,
    .labels = conv_labels,
    .tail = pl_conv_with_tail,
    .product = conv_product,
};
const pl_op pl_op_conv_dx = {
    .name = "conv_dx",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_window_attr),
    .attrs = dx_attrs,
    .infer = pl_conv_dx_infer,
    .vjp = dx_vjp,
    .cost = pl_conv_dx_cost,
    .cpu = dx_kernels,
    .cases = dx_cases,
    .labels = dx_labels,
    .tail = pl_conv_dx_with_tail,
    .product = dx_product,
};
const pl_op pl_op_conv_dw = {
    .name = "conv_dw",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_window_attr),
    .attrs = dw_attrs,
    .infer = dw_infer,
    .vjp = dw_vjp,
    .cost = dw_cost,
    .cpu = dw_kernels,
    .cases = dw_cases,
    .labels = dw_labels,
};

/* ---- constructors ----------------------------------------------------------------------- */
pl_val pl_conv(pl_graph *g, pl_val x, pl_val w, pl_val bias, const pl_conv_opts *o)
{
    if (!pl_val_ok(x) || !pl_val_ok(w)) return PL_NO_VAL;
    pl_type tx = pl_val_type(g, x), tw = pl_val_type(g, w);
    pl_window_attr a = pl_window_from_conv(o, tx.rank - 2);
    if (pl_conv_of_patches(&a, &tx, &tw)) return pl_conv_patches(g, x, w, bias);
    pl_val in[3] = {x, w, bias};
    return pl_build1(g, &pl_op_conv, &a, pl_val_ok(bias) ? 3 : 2, in);
}

pl_val pl_conv_transpose(pl_graph *g, pl_val x, pl_val w, pl_val bias, const pl_conv_opts *o,
                         const int *out_pad)
{
    if (!pl_val_ok(x) || !pl_val_ok(w)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x), u = pl_val_type(g, w);
    pl_window_attr a = pl_window_from_conv(o, t.rank - 2);
    a.in.n = a.stride.n;
    for (int d = 0; d < a.in.n && d + 1 < u.rank; d++)
        a.in.v[d] = (t.dim[1 + d] - 1) * a.stride.v[d] + a.dilation.v[d] * (u.dim[1 + d] - 1) + 1 -
                    a.pad_lo.v[d] - a.pad_hi.v[d] + (out_pad ? out_pad[d] : 0);
    pl_val y = pl_build1(g, &pl_op_conv_dx, &a, 2, (const pl_val[]){x, w});
    return pl_val_ok(bias) && pl_val_ok(y) ? pl_add(g, y, bias) : y;
}
