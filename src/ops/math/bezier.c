/* bezier.c - the Bezier activation: five consecutive channels (t, p0..p3) to one.
 *
 *   bezier (x [.., 5F]) -> y [.., F]      y = u^3 p0 + 3 u^2 s p1 + 3 u s^2 p2 + s^3 p3
 *   bezier_bwd (x, dy) -> dx              with s = sigmoid(t), u = 1 - s
 *
 * silu_points applies SiLU to p0..p3 first. The backward pass keeps x alone; everything else is
 * recomputed, element by element. The second derivative differentiates the same formula in
 * primitives.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/kernels/rows.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_bezier_attr, silu_points, BOOL), PL_ATTR_END};

static pl_status bezier_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in, (void)attr;
    char s[96];
    PL_FAIL_IF(in[0].rank < 1 || in[0].dim[in[0].rank - 1] % 5 || !pl_dtype_is_float(in[0].dtype),
               PL_ERR_SHAPE, "x is %s; needs floats with a multiple of 5 channels",
               pl_type_text(&in[0], s, sizeof s));
    out[0] = in[0];
    out[0].dim[in[0].rank - 1] /= 5;
    return PL_OK;
}

static pl_status bezier_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_type y;
    char s[96], t[96];
    PL_TRY(bezier_infer(in, n_in, attr, &y));
    PL_FAIL_IF(!pl_type_equal(&y, &in[1]), PL_ERR_SHAPE, "dy is %s, which does not match x, %s",
               pl_type_text(&in[1], s, sizeof s), pl_type_text(&in[0], t, sizeof t));
    out[0] = in[0];
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
static void bezier_vjp(const pl_vjp *v)
{
    pl_val in[2] = {v->in[0], v->gout[0]};
    v->gin[0] = pl_build1(v->g, &pl_op_bezier_bwd, v->attr, 2, in);
}

/* The formula in primitives; x is [R, F, 5, 1], the result [R, F, 1, 1]. */
static pl_val decomposed(pl_graph *g, pl_val x, bool silu_points)
{
    pl_val p[5];
    for (int k = 0; k < 5; k++) {
        p[k] = pl_slice(g, x, 2, k, k + 1, 1);
        if (k && silu_points) p[k] = pl_silu(g, p[k]);
    }
    pl_val s = pl_sigmoid(g, p[0]), u = pl_shift(g, pl_neg(g, s), 1);
    pl_val uu = pl_square(g, u), ss = pl_square(g, s);
    pl_val a = pl_add(g, pl_mul(g, u, p[1]), pl_scale(g, pl_mul(g, s, p[2]), 3));
    pl_val b = pl_add(g, pl_scale(g, pl_mul(g, u, p[3]), 3), pl_mul(g, s, p[4]));
    return pl_add(g, pl_mul(g, uu, a), pl_mul(g, ss, b));
}

/* bezier_bwd is the pull-back of dy through that formula; here it is pulled back a second time. The
 * reshaped x is a separate value, so no gradient flows into what dy was computed from. */
static void bezier_bwd_vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_type x = pl_val_type(g, v->in[0]), dy = pl_val_type(g, v->in[1]);
    int64_t f = dy.dim[dy.rank - 1], rows = f ? pl_type_elems(&dy) / f : 0;
    const pl_bezier_attr *a = v->attr;
    pl_val from[2] = {pl_reshape(g, v->in[0], 4, (const int64_t[]){rows, f, 5, 1}),
                      pl_reshape(g, v->in[1], 4, (const int64_t[]){rows, f, 1, 1})};
    pl_val e = pl_reshape(g, v->gout[0], 4, (const int64_t[]){rows, f, 5, 1});
    pl_val y = decomposed(g, from[0], a->silu_points), dx, to[2];
    pl_grad_seeded(g, &y, &from[1], 1, &from[0], 1, &dx);
    pl_grad_seeded(g, &dx, &e, 1, from, 2, to);
    if (pl_val_ok(to[0])) v->gin[0] = pl_reshape(g, to[0], x.rank, x.dim);
    if (pl_val_ok(to[1])) v->gin[1] = pl_reshape(g, to[1], dy.rank, dy.dim);
}

static pl_cost cost(const pl_call *c)
{
    return (pl_cost){30 * (double)pl_type_elems(&c->in_type[0]) / 5, operand_bytes(c)};
}

/* ---- kernels ---------------------------------------------------------------------------- */
enum { CHUNK = 4096 };

typedef struct job {
    const pl_call *c;
    const pl_row_loops *rows;
    int64_t n; /* groups of five */
    bool silu_points;
} job;

static job job_of(const pl_call *c)
{
    return (job){c, pl_rows_best(), pl_type_elems(&c->in_type[0]) / 5,
                 ((const pl_bezier_attr *)c->attr)->silu_points};
}

static void forward_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t lo = task * CHUNK, n = j->n - lo < CHUNK ? j->n - lo : CHUNK;
    j->rows->bezier((float *)j->c->out[0] + lo, (const float *)j->c->in[0] + 5 * lo, n,
                    j->silu_points);
}

static void backward_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t lo = task * CHUNK, n = j->n - lo < CHUNK ? j->n - lo : CHUNK;
    j->rows->bezier_bwd((float *)j->c->out[0] + 5 * lo, (const float *)j->c->in[0] + 5 * lo,
                        (const float *)j->c->in[1] + lo, n, j->silu_points);
}

static pl_status bezier_run(const pl_call *c)
{
    job j = job_of(c);
    pl_threads_for((j.n + CHUNK - 1) / CHUNK, forward_chunk, &j);
    return PL_OK;
}

static pl_status bezier_bwd_run(const pl_call *c)
{
    job j = job_of(c);
    pl_threads_for((j.n + CHUNK - 1) / CHUNK, backward_chunk, &j);
    return PL_OK;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static pl_status bezier_ref(const pl_call *c)
{
    job j = job_of(c);
    pl_dtype dt = c->in_type[0].dtype;
    for (int64_t i = 0; i < j.n; i++) {
        double p[5];
        for (int k = 0; k < 5; k++) {
            p[k] = ref_get(dt, c->in[0], 5 * i + k);
            if (k && j.silu_points) p[k] *= sigmoid(p[k]);
        }
        double s = sigmoid(p[0]), u = 1 - s;
        ref_set(dt, c->out[0], i,
                u * u * u * p[1] + 3 * u * u * s * p[2] + 3 * u * s * s * p[3] + s * s * s * p[4]);
    }
    return PL_OK;
}

static pl_status bezier_bwd_ref(const pl_call *c)
{
    job j = job_of(c);
    pl_dtype dt = c->in_type[0].dtype;
    for (int64_t i = 0; i < j.n; i++) {
        double p[5], slope[5], g = ref_get(dt, c->in[1], i);
        for (int k = 0; k < 5; k++) {
            double x = ref_get(dt, c->in[0], 5 * i + k), q = sigmoid(x);
            bool silu = k && j.silu_points;
            p[k] = silu ? x * q : x;
            slope[k] = silu ? q + x * q * (1 - q) : 1;
        }
        double s = sigmoid(p[0]), u = 1 - s;
        double w[5] = {0, u * u * u, 3 * u * u * s, 3 * u * s * s, s * s * s};
        double ds = 3 * (u * u * (p[2] - p[1]) + 2 * u * s * (p[3] - p[2]) + s * s * (p[4] - p[3]));
        ref_set(dt, c->out[0], 5 * i, g * ds * s * u);
        for (int k = 1; k < 5; k++) ref_set(dt, c->out[0], 5 * i + k, g * w[k] * slope[k]);
    }
    return PL_OK;
}

#define KERNELS(op)                                                                                \
 static const pl_kernel op##_fast[] = {{"rows", accepts_f32, NULL, NULL, op##_run},                \
                                       PL_KERNEL_END};                                             \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {{"rows", accepts_f32, NULL, NULL, op##_run},             \
                                          PL_VIA_F32_KERNEL(op),                                   \
                                          {"ref", NULL, NULL, NULL, op##_ref},                     \
                                          PL_KERNEL_END};
KERNELS(bezier)
KERNELS(bezier_bwd)

static const pl_case bezier_cases[] = {{{"f32[5]"}, "silu_points=false", {{-2, 2, false}}},
                                       {{"f32[2,3,15]"}, "silu_points=true", {{-2, 2, false}}},
                                       {{"f32[1,5,3,35]"}, "silu_points=false", {{-2, 2, false}}},
                                       {{"f32[3,330]"}, "silu_points=true", {{-2, 2, false}}},
                                       PL_CASE_END};
static const pl_case bezier_bwd_cases[] = {
    {{"f32[5]", "f32[1]"}, "silu_points=false", {{-2, 2, false}}},
    {{"f32[2,3,15]", "f32[2,3,3]"}, "silu_points=true", {{-2, 2, false}}},
    {{"f32[3,330]", "f32[3,66]"}, "silu_points=false", {{-2, 2, false}}},
    PL_CASE_END};

/* Linear in dy, backward's second input; forward has none. */
static void labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, c->out_type[0].rank - 1);
    l->times = 2;
}

#define BEZIER_OP(op, inputs, bits)                                                                \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = inputs,                                                                             \
     .max_in = inputs,                                                                             \
     .n_out = 1,                                                                                   \
     .width = PL_WIDTH_FOLLOW,                                                                     \
     .inplace = {bits},                                                                            \
     .attr_bytes = sizeof(pl_bezier_attr),                                                         \
     .attrs = attrs,                                                                               \
     .infer = op##_infer,                                                                          \
     .vjp = op##_vjp,                                                                              \
     .cost = cost,                                                                                 \
     .cpu = op##_kernels,                                                                          \
     .cases = op##_cases,                                                                          \
     .labels = labels,                                                                             \
 };
BEZIER_OP(bezier, 1, 0)
BEZIER_OP(bezier_bwd, 2, 1) /* dx may take over x: a group is read before it is written */

pl_val pl_bezier(pl_graph *g, pl_val x, bool silu_points)
{
    pl_bezier_attr a;
    memset(&a, 0, sizeof a);
    a.silu_points = silu_points;
    return pl_val_ok(x) ? pl_build1(g, &pl_op_bezier, &a, 1, &x) : PL_NO_VAL;
}
