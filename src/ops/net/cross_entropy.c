/* cross_entropy.c - cross-entropy of rows of logits, and its gradient in place over the logits.
 *
 *   cross_entropy      (x [..,K], labels [..], w? [K]) -> loss [..], lse [..]
 *   cross_entropy_bwd  (x, labels, lse, d [..], d_lse? [..], w? [K]) -> dx [..,K]
 *
 * For one row with label y, weights w (1 without the operand), W = sum of w, smoothing s, z-loss z:
 *
 *   lse  = log sum_k exp(x_k)
 *   loss = (1-s) w_y (lse - x_y) + s/K sum_k w_k (lse - x_k) + z lse^2
 *   dx_k = a exp(x_k - lse) - d s/K w_k - [k = y] d (1-s) w_y
 *   a    = d ((1-s) w_y + s W/K + 2 z lse) + d_lse
 *
 * K is the number of logits, or `classes`: rows of logits may be wider, padded for tensor cores.
 * The logits beyond are not read, and their dx is 0.
 *
 * A row whose label is ignored has loss 0 and counts as d = 0. A label outside 0..K-1 that is not
 * ignored makes loss and dx of its row NaN. A row with a = d = 0 has dx = 0 for every x.
 *
 * loss and lse are f32 (f64 for f64 logits), and so are all sums. Backward needs the logits and lse
 * only; dx takes the logits' bytes, so one tensor of their size exists. The second derivative, and
 * the gradient of w, write the lines above in primitives.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/isa/isa.h"
#include "cpu/kernels/entropy.h"
#include "cpu/kernels/vecmath.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef pl_cross_entropy_attr attr_of;

static const pl_attr attrs[] = {PL_ATTR(pl_cross_entropy_attr, smoothing, FLOAT),
                                PL_ATTR(pl_cross_entropy_attr, z_loss, FLOAT),
                                PL_ATTR(pl_cross_entropy_attr, ignore, INT),
                                PL_ATTR(pl_cross_entropy_attr, ignores, BOOL),
                                PL_ATTR(pl_cross_entropy_attr, weighted, BOOL),
                                PL_ATTR(pl_cross_entropy_attr, classes, INT),
                                PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
/* The type of sums, losses and weights. */
static pl_dtype wide_of(const pl_type *x)
{
    return x->dtype == PL_F64 ? PL_F64 : PL_F32;
}

static int64_t classes_of(const pl_type *x, const attr_of *a)
{
    return a->classes ? a->classes : x->dim[x->rank - 1];
}

/* Checks what both ops have: logits, labels, and the weights at place `w`. */
static pl_status check(const pl_type *in, int n_in, int w, const attr_of *a)
{
    const pl_type *x = &in[0];
    char s[96], t[96];
    PL_FAIL_IF(x->rank < 1 || x->rank >= PL_MAX_RANK || !pl_dtype_is_float(x->dtype) ||
                   x->dim[x->rank - 1] < 1,
               PL_ERR_SHAPE, "logits are %s; needs floats [.., classes] of at most %d dimensions",
               pl_type_text(x, s, sizeof s), PL_MAX_RANK - 1);
    PL_FAIL_IF(in[1].dtype != PL_I32 && in[1].dtype != PL_I64, PL_ERR_SHAPE,
               "labels are %s; needs i32 or i64", pl_type_text(&in[1], t, sizeof t));
    pl_type rows = pl_type_make(in[1].dtype, x->rank - 1, x->dim);
    PL_FAIL_IF(!pl_type_equal(&in[1], &rows), PL_ERR_SHAPE,
               "logits are %s, but labels are %s: each row needs one label",
               pl_type_text(x, s, sizeof s), pl_type_text(&in[1], t, sizeof t));
    PL_FAIL_IF(a->classes < 0 || a->classes > x->dim[x->rank - 1], PL_ERR_ARG,
               "%lld classes do not match the logits, %s", (long long)a->classes,
               pl_type_text(x, s, sizeof s));
    PL_FAIL_IF(!(a->smoothing >= 0 && a->smoothing <= 1), PL_ERR_ARG,
               "smoothing is %g; it must be 0 to 1", a->smoothing);
    PL_FAIL_IF(a->weighted && n_in <= w, PL_ERR_ARG,
               "weighted=1 needs the weights of the classes as an operand");
    int64_t k = classes_of(x, a);
    pl_type want = pl_type_make(wide_of(x), 1, &k);
    PL_FAIL_IF(a->weighted && !pl_type_equal(&in[w], &want), PL_ERR_SHAPE,
               "weights of the classes are %s; needs %s", pl_type_text(&in[w], s, sizeof s),
               pl_type_text(&want, t, sizeof t));
    return PL_OK;
}

static pl_type row_type(const pl_type *x)
{
    return pl_type_make(wide_of(x), x->rank - 1, x->dim);
}

static pl_status forward_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const attr_of *a = attr;
    PL_FAIL_IF(n_in != 2 + a->weighted, PL_ERR_ARG, "%d operands do not match weighted=%d", n_in,
               a->weighted);
    PL_TRY(check(in, n_in, 2, a));
    out[0] = out[1] = row_type(&in[0]);
    return PL_OK;
}

static pl_status backward_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    static const char *const names[] = {"lse", "d_loss", "d_lse"};
    const attr_of *a = attr;
    int rows = n_in - a->weighted;
    char s[96], t[96];
    PL_FAIL_IF(rows != 4 && rows != 5, PL_ERR_ARG, "%d operands do not match weighted=%d", n_in,
               a->weighted);
    PL_TRY(check(in, n_in, rows, a));
    pl_type want = row_type(&in[0]);
    for (int i = 2; i < rows; i++)
        PL_FAIL_IF(!pl_type_equal(&in[i], &want), PL_ERR_SHAPE, "%s is %s; needs %s", names[i - 2],
                   pl_type_text(&in[i], s, sizeof s), pl_type_text(&want, t, sizeof t));
    out[0] = in[0];
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
/* The type of the arithmetic. Operands get a leading dimension of 1: their rank differs from that
 * of the op's operands, so they are separate values for pl_grad_seeded. */
static pl_val widened(pl_graph *g, pl_val v, pl_dtype dt)
{
    return pl_cast(g, pl_unsqueeze(g, v, 0), dt);
}

static pl_val narrowed(pl_graph *g, pl_val v, pl_val like)
{
    pl_type t = pl_val_type(g, like);
    return pl_cast(g, pl_reshape(g, v, t.rank, t.dim), t.dtype);
}

/* One where the class is the row's label, else 0: [1, .., K]. */
static pl_val one_hot(pl_graph *g, pl_val x, pl_val labels)
{
    pl_type t = pl_val_type(g, x), index = t;
    index.dtype = pl_val_type(g, labels).dtype;
    pl_val at = pl_unsqueeze(g, pl_unsqueeze(g, labels, 0), -1);
    pl_val same = pl_eq(g, pl_iota(g, index, t.rank - 1), pl_broadcast(g, at, t.rank, t.dim));
    return pl_cast(g, same, t.dtype);
}

/* d [1, ..] with 0 in rows that do not count. */
static pl_val counted(pl_graph *g, const attr_of *a, pl_val d, pl_val labels)
{
    if (!a->ignores) return d;
    pl_val at = pl_unsqueeze(g, labels, 0);
    pl_val off = pl_eq(g, at, pl_full_like(g, at, (double)a->ignore));
    return pl_select(g, off, pl_full_like(g, d, 0), d);
}

/* The logits that count. */
static pl_val counting(pl_graph *g, const attr_of *a, pl_val x)
{
    return a->classes ? pl_slice(g, x, -1, 0, a->classes, 1) : x;
}

/* The gradient of the weights: sum over rows of d ((1-s) [k = y] + s/K) (lse - x_k). */
static pl_val weight_gradient(const pl_vjp *v)
{
    pl_graph *g = v->g;
    const attr_of *a = v->attr;
    pl_dtype dt = pl_val_type(g, v->out[1]).dtype;
    pl_val x = counting(g, a, widened(g, v->in[0], dt)), lse = widened(g, v->out[1], dt);
    pl_val d = counted(g, a, widened(g, v->gout[0], dt), v->in[1]);
    pl_type t = pl_val_type(g, x);
    pl_val part = pl_shift(g, pl_scale(g, one_hot(g, x, v->in[1]), 1 - a->smoothing),
                           a->smoothing / (double)t.dim[t.rank - 1]);
    pl_val each = pl_mul(g, pl_sub(g, pl_unsqueeze(g, lse, -1), x), part);
    each = pl_mul(g, each, pl_unsqueeze(g, d, -1));
    uint32_t rows = 0;
    for (int i = 0; i < t.rank - 1; i++) rows |= PL_AXIS(i);
    return narrowed(g, pl_sum(g, each, rows, false), v->in[2]);
}

static void forward_vjp(const pl_vjp *v)
{
    const attr_of *a = v->attr;
    pl_graph *g = v->g;
    pl_val in[6] = {v->in[0], v->in[1], v->out[1], v->gout[0]};
    int n = 4;
    if (!pl_val_ok(in[3])) in[3] = pl_full_like(g, v->out[0], 0);
    if (pl_val_ok(v->gout[1])) in[n++] = v->gout[1];
    if (a->weighted) in[n++] = v->in[2];
    if (v->need[0]) v->gin[0] = pl_build1(g, &pl_op_cross_entropy_bwd, a, n, in);
    if (a->weighted && v->need[2] && pl_val_ok(v->gout[0])) v->gin[2] = weight_gradient(v);
}

/* dx by the formulas of the head comment; op[i] are the widened operands. */
static pl_val decomposed(pl_graph *g, const attr_of *a, const pl_val *op, pl_val labels,
                         pl_val d_lse, pl_val w)
{
    pl_val x = counting(g, a, op[0]), lse = op[2], d = counted(g, a, op[3], labels),
           hot = one_hot(g, x, labels);
    int64_t k = pl_val_type(g, x).dim[pl_val_type(g, x).rank - 1];
    pl_val hot_w = pl_val_ok(w) ? pl_mul(g, hot, w) : hot;
    pl_val share = pl_scale(g, pl_sum(g, hot_w, PL_AXIS(-1), false), 1 - a->smoothing);
    if (pl_val_ok(w))
        share = pl_add(g, share,
                       pl_scale(g, pl_sum(g, w, PL_AXIS(-1), false), a->smoothing / (double)k));
    else
        share = pl_shift(g, share, a->smoothing);
    pl_val by = pl_mul(g, d, pl_add(g, share, pl_scale(g, lse, 2 * a->z_loss)));
    if (pl_val_ok(d_lse)) by = pl_add(g, by, d_lse);
    pl_val p = pl_exp(g, pl_sub(g, x, pl_unsqueeze(g, lse, -1)));
    pl_val target = pl_scale(g, hot_w, 1 - a->smoothing);
    double even = a->smoothing / (double)k;
    target = pl_val_ok(w) ? pl_add(g, target, pl_scale(g, w, even)) : pl_shift(g, target, even);
    pl_val dx =
        pl_sub(g, pl_mul(g, pl_unsqueeze(g, by, -1), p), pl_mul(g, pl_unsqueeze(g, d, -1), target));
    pl_type whole = pl_val_type(g, op[0]);
    return pl_pad(g, dx, -1, 0, whole.dim[whole.rank - 1] - k, 0, 0);
}

static void backward_vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    const attr_of *a = v->attr;
    pl_type t = pl_val_type(g, v->in[0]);
    pl_dtype dt = wide_of(&t);
    pl_val op[6] = {PL_NO_VAL}, x[6], from[6], y, e;
    int at[6], n = 0, rows = v->n_in - a->weighted;
    for (int i = 0; i < v->n_in; i++) {
        if (i == 1) continue;
        op[i] = x[n] = widened(g, v->in[i], dt);
        at[n++] = i;
    }
    y = decomposed(g, a, op, v->in[1], rows == 5 ? op[4] : PL_NO_VAL,
                   a->weighted ? op[rows] : PL_NO_VAL);
    e = widened(g, v->gout[0], dt);
    pl_grad_seeded(g, &y, &e, 1, x, n, from);
    for (int i = 0; i < n; i++)
        if (pl_val_ok(from[i]) && v->need[at[i]])
            v->gin[at[i]] = narrowed(g, from[i], v->in[at[i]]);
}

/* ---- cost ------------------------------------------------------------------------------- */
static pl_cost cost_of(const pl_call *c)
{
    return (pl_cost){.flops = 12 * (double)pl_type_elems(&c->in_type[0]),
                     .bytes = operand_bytes(c)};
}

/* ---- one call ---------------------------------------------------------------------------- */
typedef struct job {
    const pl_call *c;
    const attr_of *a;
    const pl_entropy_loops *loops;
    const void *w; /* NULL: none */
    pl_dtype wt;
    int64_t rows, k, per_task;
    int64_t pitch; /* logits from one row to the next */
    double total;  /* sum of the weights */
    bool has_d_lse;
} job;

PL_ISA_EXTERN(pl_entropy_loops, pl_entropy_loops);

static job job_of(const pl_call *c)
{
    static const pl_entropy_loops *const sets[] = PL_ISA_SETS(pl_entropy_loops);
    const attr_of *a = c->attr;
    const pl_type *x = &c->in_type[0];
    job j = {.c = c,
             .a = a,
             .loops = sets[pl_cpu_level()],
             .k = classes_of(x, a),
             .pitch = x->dim[x->rank - 1],
             .has_d_lse = c->n_in - a->weighted == 5};
    j.rows = pl_type_elems(x) / j.pitch;
    j.per_task = j.k < 16384 ? 16384 / j.k : 1;
    j.total = (double)j.k;
    if (!a->weighted) return j;
    j.w = c->in ? c->in[c->n_in - 1] : NULL;
    j.wt = c->in_type[c->n_in - 1].dtype;
    j.total = 0;
    for (int64_t i = 0; j.w && i < j.k; i++) j.total += ref_get(j.wt, j.w, i);
    return j;
}

typedef struct row_of {
    int64_t label;
    bool counts, valid;
    double w; /* weight of the label; 1 where it is not valid */
} row_of;

static row_of row_at(const job *j, int64_t r)
{
    const void *p = j->c->in[1];
    bool wide = j->c->in_type[1].dtype == PL_I64;
    row_of o = {.label = wide ? ((const int64_t *)p)[r] : ((const int32_t *)p)[r], .w = 1};
    o.counts = !(j->a->ignores && o.label == j->a->ignore);
    o.valid = o.label >= 0 && o.label < j->k;
    if (o.valid && j->w) o.w = ref_get(j->wt, j->w, o.label);
    return o;
}

/* The loss of a row; powers: log of the sum of exp(x - top), spread: sum of w (x - top). lse - x_y
 * is computed as (top - x_y) + powers: next to logits of 1e8, powers would vanish in lse. */
static double loss_of(const job *j, const row_of *o, double x_y, double top, double powers,
                      double spread)
{
    double s = j->a->smoothing;
    if (!o->counts) return 0;
    if (!o->valid) return (double)NAN;
    double lse = top + powers;
    double loss = (1 - s) * o->w * ((top - x_y) + powers) + j->a->z_loss * lse * lse;
    if (s > 0) loss += s / (double)j->k * (j->total * powers - spread);
    return loss;
}

/* The parts of a row's gradient: dx_k = power exp(x_k - lse) - even w_k - [k = y] at_label. */
typedef struct slopes {
    double lse, power, even, at_label;
} slopes;

static slopes slopes_of(const job *j, const row_of *o, int64_t r)
{
    const pl_call *c = j->c;
    double s = j->a->smoothing, k = (double)j->k;
    double d = o->counts ? ref_get(c->in_type[3].dtype, c->in[3], r) : 0;
    slopes y = {.lse = ref_get(c->in_type[2].dtype, c->in[2], r)};
    if (o->counts && !o->valid) d = (double)NAN;
    y.even = d * s / k;
    y.at_label = d * (1 - s) * o->w;
    if (o->counts) y.power = d * ((1 - s) * o->w + s * j->total / k + 2 * j->a->z_loss * y.lse);
    if (j->has_d_lse) y.power += ref_get(c->in_type[4].dtype, c->in[4], r);
    return y;
}

static bool is_still(const slopes *y)
{
    return y->power == 0 && y->even == 0 && y->at_label == 0;
}

/* ---- rows of f32, bf16 and f16 ------------------------------------------------------------ */
static bool fast_accepts(const pl_call *c)
{
    return c->in_type[0].dtype != PL_F64;
}

static void forward_row(const job *j, int64_t r)
{
    const pl_call *c = j->c;
    pl_dtype d = c->in_type[0].dtype;
    const char *x = (const char *)c->in[0] + (size_t)(r * j->pitch) * pl_dtype_bytes(d);
    row_of o = row_at(j, r);
    pl_entropy_sums s;
    j->loops->forward(x, d, j->k, j->w, j->a->smoothing > 0, &s);
    float powers = logf(s.powers);
    double x_y = o.valid ? ref_get(d, x, o.label) : 0;
    ((float *)c->out[0])[r] =
        (float)loss_of(j, &o, x_y, (double)s.top, (double)powers, (double)s.spread);
    ((float *)c->out[1])[r] = s.top + powers;
}

static void backward_row(const job *j, int64_t r)
{
    const pl_call *c = j->c;
    pl_dtype d = c->in_type[0].dtype;
    size_t bytes = (size_t)j->k * pl_dtype_bytes(d), row = (size_t)j->pitch * pl_dtype_bytes(d);
    size_t at = (size_t)r * row;
    const char *x = (const char *)c->in[0] + at;
    char *y = (char *)c->out[0] + at;
    row_of o = row_at(j, r);
    slopes s = slopes_of(j, &o, r);
    memset(y + bytes, 0, row - bytes);
    if (is_still(&s)) {
        memset(y, 0, bytes);
        return;
    }
    float x_y = o.valid ? (float)ref_get(d, x, o.label) : 0;
    j->loops->backward(x, y, d, j->k, (float)s.lse, (float)s.power, j->w, (float)s.even);
    if (!o.valid || !o.counts) return;
    double p = (double)vm_exp(x_y - (float)s.lse);
    ref_set(d, y, o.label, s.power * p - s.even * o.w - s.at_label);
}

static void forward_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t hi = (task + 1) * j->per_task < j->rows ? (task + 1) * j->per_task : j->rows;
    for (int64_t r = task * j->per_task; r < hi; r++) forward_row(j, r);
}

static void backward_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t hi = (task + 1) * j->per_task < j->rows ? (task + 1) * j->per_task : j->rows;
    for (int64_t r = task * j->per_task; r < hi; r++) backward_row(j, r);
}

static pl_status forward_fast(const pl_call *c)
{
    job j = job_of(c);
    pl_threads_for((j.rows + j.per_task - 1) / j.per_task, forward_task, &j);
    return PL_OK;
}

static pl_status backward_fast(const pl_call *c)
{
    job j = job_of(c);
    pl_threads_for((j.rows + j.per_task - 1) / j.per_task, backward_task, &j);
    return PL_OK;
}

/* ---- reference --------------------------------------------------------------------------- */
static pl_status forward_ref(const pl_call *c)
{
    job j = job_of(c);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t r = 0; r < j.rows; r++) {
        row_of o = row_at(&j, r);
        int64_t at = r * j.pitch;
        double top = -DBL_MAX, powers = 0, spread = 0;
        for (int64_t i = 0; i < j.k; i++) { /* not fmax, on which gcc 12 for arm64 fails */
            double x = ref_get(d, c->in[0], at + i);
            top = x > top ? x : top;
        }
        for (int64_t i = 0; i < j.k; i++) {
            double x = ref_get(d, c->in[0], at + i) - top;
            powers += exp(x);
            if (j.a->smoothing > 0) spread += x * (j.w ? ref_get(j.wt, j.w, i) : 1);
        }
        double x_y = o.valid ? ref_get(d, c->in[0], at + o.label) : 0;
        powers = log(powers);
        ref_set(c->out_type[0].dtype, c->out[0], r, loss_of(&j, &o, x_y, top, powers, spread));
        ref_set(c->out_type[1].dtype, c->out[1], r, top + powers);
    }
    return PL_OK;
}

static pl_status backward_ref(const pl_call *c)
{
    job j = job_of(c);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t r = 0; r < j.rows; r++) {
        row_of o = row_at(&j, r);
        slopes s = slopes_of(&j, &o, r);
        for (int64_t i = 0; i < j.pitch; i++) {
            double y = 0;
            if (i < j.k && !is_still(&s)) {
                double w = j.w ? ref_get(j.wt, j.w, i) : 1;
                y = s.power * exp(ref_get(d, c->in[0], r * j.pitch + i) - s.lse) - s.even * w;
                if (o.valid && i == o.label) y -= s.at_label;
            }
            ref_set(d, c->out[0], r * j.pitch + i, y);
        }
    }
    return PL_OK;
}

/* Reads logits where they lie as the first columns of wider rows. */
static bool with_wide(const pl_graph *g, const void *attr, const pl_val *in, int n_in, attr_of *a,
                      pl_val *wide)
{
    pl_val x = pl__wide_of(g, in[0]);
    *a = *(const attr_of *)attr;
    if (!pl_val_ok(x) || a->classes) return false;
    pl_type t = pl_val_type(g, in[0]);
    a->classes = t.dim[t.rank - 1];
    for (int i = 0; i < n_in; i++) wide[i] = i ? in[i] : x;
    return true;
}

static bool forward_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                           int n_in, pl_val *out)
{
    attr_of a;
    pl_val wide[3];
    (void)p;
    if (!with_wide(g, attr, in, n_in, &a, wide)) return false;
    pl_build(g, &pl_op_cross_entropy, &a, n_in, wide, out);
    return true;
}

static bool backward_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                            int n_in, pl_val *out)
{
    attr_of a;
    pl_val wide[6];
    (void)p;
    if (!with_wide(g, attr, in, n_in, &a, wide)) return false;
    pl_val dx = pl_build1(g, &pl_op_cross_entropy_bwd, &a, n_in, wide);
    out[0] = pl_slice(g, dx, -1, 0, a.classes, 1);
    return true;
}

static const pl_kernel forward_kernels[] = {{"rows", fast_accepts, NULL, NULL, forward_fast},
                                            {"ref", NULL, NULL, NULL, forward_ref},
                                            PL_KERNEL_END};
static const pl_kernel backward_kernels[] = {{"rows", fast_accepts, NULL, NULL, backward_fast},
                                             {"ref", NULL, NULL, NULL, backward_ref},
                                             PL_KERNEL_END};

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                                   \
    X("[1,1]",    "[1]",   "[1]",  "i32", 0, 0.5, "smoothing=0, weighted=")                          \
    X("[5,7]",    "[5]",   "[7]",  "i64", 0, 6, "smoothing=0, weighted=")                          \
    X("[2,3,37]", "[2,3]", "[37]", "i32", 0, 36, "smoothing=0.1, z_loss=0.02, weighted=")          \
    X("[9,4]",    "[9]",   "[4]",  "i32", 0, 3, "smoothing=0.2, ignore=2, ignores=true, weighted=") \
    X("[2,700]",  "[2]",   "[700]","i32", 0, 699, "smoothing=0.3, z_loss=0.1, weighted=")          \
    X("[3]",      "[]",    "[3]",  "i32", 0, 2, "z_loss=0.5, weighted=")                           \
    X("[5,16]",   "[5]",   "[11]", "i32", 0, 10, "smoothing=0.1, z_loss=0.1, classes=11, weighted=") \
    X("[2,2,1160]", "[2,2]", "[1157]", "i32", 0, 1156, "classes=1157, weighted=")
#define CASE(x, r, w, i, lo, hi, a) \
    {{"f32" x, i r}, a "false", {{-3, 3, false}, {lo, hi, false}}}, \
    {{"f32" x, i r, "f32" w}, a "true", {{-3, 3, false}, {lo, hi, false}, {0.5, 2, false}}},
#define BWD_CASE(x, r, w, i, lo, hi, a) \
    {{"f32" x, i r, "f32" r, "f32" r}, a "false", \
     {{-3, 3, false}, {lo, hi, false}, {2, 3, false}}}, \
    {{"f32" x, i r, "f32" r, "f32" r, "f32" r}, a "false", \
     {{-3, 3, false}, {lo, hi, false}, {2, 3, false}}}, \
    {{"f32" x, i r, "f32" r, "f32" r, "f32" r, "f32" w}, a "true", \
     {{-3, 3, false}, {lo, hi, false}, {2, 3, false}, {0}, {0}, {0.5, 2, false}}}, \
    {{"f32" x, i r, "f32" r, "f32" r, "f32" w}, a "true", \
     {{-3, 3, false}, {lo, hi, false}, {2, 3, false}, {0}, {0.5, 2, false}}},
static const pl_case forward_cases[] = {CASES(CASE) PL_CASE_END};
static const pl_case backward_cases[] = {CASES(BWD_CASE) PL_CASE_END};
/* clang-format on */

/* Rows are independent: every dimension but the classes. */
static void label_rows(const pl_call *c, pl_labels *l)
{
    int rows = c->in_type[0].rank - 1, last = c->n_in - ((const attr_of *)c->attr)->weighted;
    for (int d = 0; d < rows; d++) {
        for (int i = 0; i < last; i++) l->in[i][d] = (int8_t)(d + 1);
        for (int k = 0; k < c->n_out; k++) l->out[k][d] = (int8_t)(d + 1);
    }
}

static void backward_labels(const pl_call *c, pl_labels *l)
{
    label_rows(c, l);
    l->plus = 1 << 3; /* d, and d_lse with it */
    if (c->n_in - ((const attr_of *)c->attr)->weighted == 5) l->plus |= 1 << 4;
}

const pl_op pl_op_cross_entropy = {
    .name = "cross_entropy",
    .min_in = 2,
    .max_in = 3,
    .n_out = 2,
    .width = PL_WIDTH_FOLLOW,
    .full_in = 1 << 2, /* the weights */
    .attr_bytes = sizeof(pl_cross_entropy_attr),
    .attrs = attrs,
    .infer = forward_infer,
    .vjp = forward_vjp,
    .cost = cost_of,
    .cpu = forward_kernels,
    .cases = forward_cases,
    .labels = label_rows,
    .padded = forward_padded,
};
const pl_op pl_op_cross_entropy_bwd = {
    .name = "cross_entropy_bwd",
    .min_in = 4,
    .max_in = 6,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .full_in = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5, /* all but the logits */
    .inplace = {1},
    .attr_bytes = sizeof(pl_cross_entropy_attr),
    .attrs = attrs,
    .infer = backward_infer,
    .vjp = backward_vjp,
    .cost = cost_of,
    .cpu = backward_kernels,
    .cases = backward_cases,
    .labels = backward_labels,
    .padded = backward_padded,
};

pl_val pl_cross_entropy_rows(pl_graph *g, pl_val logits, pl_val labels, pl_cross_entropy o,
                             pl_val *lse)
{
    pl_val out[2] = {PL_NO_VAL, PL_NO_VAL};
    if (lse) *lse = PL_NO_VAL;
    if (!pl_val_ok(logits) || !pl_val_ok(labels)) return PL_NO_VAL;
    pl_cross_entropy_attr a;
    memset(&a, 0, sizeof a);
    a.smoothing = o.smoothing;
    a.z_loss = o.z_loss;
    a.ignore = o.ignore;
    a.ignores = o.ignore != 0 || o.ignore_zero;
    a.weighted = pl_val_ok(o.weight);
    pl_build(g, &pl_op_cross_entropy, &a, 2 + a.weighted,
             (const pl_val[]){logits, labels, o.weight}, out);
    if (lse) *lse = out[1];
    return out[0];
}
