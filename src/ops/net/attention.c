/* attention.c - softmax(q k^T scale) v over tokens, without stored probabilities.
 *
 *   attention      (q [B,N,H,D], k, v [B,M,H,D]) -> o [B,N,H,D], lse [B,H,N]
 *   attention_bwd  (q, k, v, o, lse, d_o, d_lse?) -> dq, dk, dv
 *
 * lse is the logarithm of the sum of exponentials of a query's scores, f32 (f64 for f64 operands).
 * Backward keeps q, k, v, o and lse: memory grows with the number of tokens, not with its square.
 *
 *   s = q k^T scale     p = exp(s - lse)             delta = sum(o * d_o) - d_lse
 *   dv = p^T d_o        ds = p * (d_o v^T - delta)   dq = ds k scale    dk = ds^T q scale
 *
 * The second derivative writes these lines in primitives and differentiates them: it does store p.
 * causal: query i sees keys 0..i.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/kernels/flash.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_attention_attr, scale, FLOAT),
                                PL_ATTR(pl_attention_attr, causal, BOOL), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
static pl_status attention_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_attention_attr *a = attr;
    const pl_type *q = &in[0], *k = &in[1], *v = &in[2];
    char s[96], t[96], u[96];
    pl_type_text(q, s, sizeof s);
    pl_type_text(k, t, sizeof t);
    PL_FAIL_IF(q->rank != 4 || !pl_dtype_is_float(q->dtype), PL_ERR_SHAPE,
               "q is %s; wants floats [batch, tokens, heads, dim]", s);
    PL_FAIL_IF(!pl_type_equal(k, v), PL_ERR_SHAPE, "k is %s but v is %s", t,
               pl_type_text(v, u, sizeof u));
    PL_FAIL_IF(k->rank != 4 || k->dtype != q->dtype || k->dim[0] != q->dim[0] ||
                   k->dim[2] != q->dim[2] || k->dim[3] != q->dim[3],
               PL_ERR_SHAPE, "q %s, k %s: batch, heads and dim must agree", s, t);
    PL_FAIL_IF(k->dim[1] < 1, PL_ERR_SHAPE, "k is %s: no keys to attend to", t);
    if (a->scale == 0) a->scale = 1 / sqrt((double)q->dim[3]);
    out[0] = *q;
    const int64_t dim[3] = {q->dim[0], q->dim[2], q->dim[1]};
    out[1] = pl_type_make(q->dtype == PL_F64 ? PL_F64 : PL_F32, 3, dim);
    return PL_OK;
}

static pl_status attention_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_type made[2];
    static const char *const names[] = {"o", "lse", "d_o", "d_lse"};
    char s[96], t[96];
    PL_TRY(attention_infer(in, 3, attr, made));
    for (int i = 3; i < n_in; i++) {
        pl_type want = made[(i - 3) % 2];
        if (want.rank == 3 && pl_dtype_is_float(in[i].dtype)) want.dtype = in[i].dtype;
        PL_FAIL_IF(!pl_type_equal(&in[i], &want), PL_ERR_SHAPE, "%s is %s, wants %s", names[i - 3],
                   pl_type_text(&in[i], s, sizeof s), pl_type_text(&want, t, sizeof t));
    }
    for (int i = 0; i < 3; i++) out[i] = in[i];
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
static void attention_vjp(const pl_vjp *v)
{
    pl_val d_o = pl_val_ok(v->gout[0]) ? v->gout[0] : pl_full_like(v->g, v->out[0], 0);
    pl_val in[7] = {v->in[0], v->in[1], v->in[2], v->out[0], v->out[1], d_o, v->gout[1]};
    pl_build(v->g, &pl_op_attention_bwd, v->attr, pl_val_ok(v->gout[1]) ? 7 : 6, in, v->gin);
}

/* Returns [B, N, H, D] as [B, H, 1, N, D], and [B, H, N] as [B, H, 1, N, 1], in the type of the
 * arithmetic. The rank differs from the operand's, so this is a separate value whatever the
 * sizes. */
static pl_val heads_first(pl_graph *g, pl_val x, pl_dtype dt)
{
    pl_type t = pl_val_type(g, x);
    if (t.rank == 3)
        return pl_cast(
            g, pl_reshape(g, x, 5, (const int64_t[]){t.dim[0], t.dim[1], 1, t.dim[2], 1}), dt);
    pl_val y = pl_permute(g, x, (const int[]){0, 2, 1, 3});
    return pl_cast(
        g, pl_reshape(g, y, 5, (const int64_t[]){t.dim[0], t.dim[2], 1, t.dim[1], t.dim[3]}), dt);
}

/* The inverse, in the type of `like`. */
static pl_val tokens_first(pl_graph *g, pl_val x, pl_val like)
{
    pl_type t = pl_val_type(g, like);
    if (t.rank == 3) return pl_cast(g, pl_reshape(g, x, 3, t.dim), t.dtype);
    const int64_t dim[4] = {t.dim[0], t.dim[2], t.dim[1], t.dim[3]};
    pl_val y = pl_permute(g, pl_reshape(g, x, 4, dim), (const int[]){0, 2, 1, 3});
    return pl_cast(g, y, t.dtype);
}

/* Replaces scores that a query must not see by a large negative number: their probability is
 * exactly 0. */
static pl_val only_earlier(pl_graph *g, pl_val p)
{
    pl_type t = pl_val_type(g, p), index = t;
    index.dtype = PL_I32;
    pl_val seen = pl_ge(g, pl_iota(g, index, 3), pl_iota(g, index, 4));
    return pl_select(g, seen, p, pl_full_like(g, p, 0));
}

/* The formulas of the head comment, on operands with heads first; d_lse may be missing. y: dq,
 * dk, dv. */
static void decomposed(pl_graph *g, const pl_attention_attr *a, const pl_val *x, pl_val *y)
{
    pl_val q = x[0], k = x[1], v = x[2], o = x[3], lse = x[4], d_o = x[5], d_lse = x[6];
    pl_val s = pl_scale(g, pl_matmul(g, q, k, false, true), a->scale);
    pl_val p = pl_exp(g, pl_sub(g, s, lse));
    if (a->causal) p = only_earlier(g, p);
    pl_val delta = pl_sum(g, pl_mul(g, o, d_o), PL_AXIS(4), true);
    if (pl_val_ok(d_lse)) delta = pl_sub(g, delta, d_lse);
    pl_val dp = pl_matmul(g, d_o, v, false, true);
    pl_val ds = pl_scale(g, pl_mul(g, p, pl_sub(g, dp, delta)), a->scale);
    y[0] = pl_matmul(g, ds, k, false, false);
    y[1] = pl_matmul(g, ds, q, true, false);
    y[2] = pl_matmul(g, p, d_o, true, false);
}

/* Gradients stop at the rearranged operands: o and lse count as separate inputs here, though they
 * were computed from q, k and v. */
static void attention_bwd_vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_dtype dt = pl_val_type(g, v->in[0]).dtype == PL_F64 ? PL_F64 : PL_F32;
    pl_val x[7] = {PL_NO_VAL}, y[3], e[3], from[7];
    for (int i = 0; i < v->n_in; i++) x[i] = heads_first(g, v->in[i], dt);
    decomposed(g, v->attr, x, y);
    for (int k = 0; k < 3; k++)
        e[k] = pl_val_ok(v->gout[k]) ? heads_first(g, v->gout[k], dt) : PL_NO_VAL;
    pl_grad_seeded(g, y, e, 3, x, v->n_in, from);
    for (int i = 0; i < v->n_in; i++)
        if (pl_val_ok(from[i]) && v->need[i]) v->gin[i] = tokens_first(g, from[i], v->in[i]);
}

/* ---- cost ------------------------------------------------------------------------------- */
static pl_cost cost_of(const pl_call *c, double products, pl_work work)
{
    const pl_type *q = &c->in_type[0];
    double pairs =
        (double)(q->dim[0] * q->dim[2]) * (double)q->dim[1] * (double)c->in_type[1].dim[1];
    if (((const pl_attention_attr *)c->attr)->causal) pairs *= 0.5;
    return (pl_cost){pairs * (2 * products * (double)q->dim[3] + 12),
                     operand_bytes(c),
                     work,
                     (double)q->dim[1],
                     (double)c->in_type[1].dim[1],
                     (double)q->dim[3]};
}

static pl_cost attention_cost(const pl_call *c)
{
    return cost_of(c, 2, PL_WORK_ATTENTION);
}

static pl_cost attention_bwd_cost(const pl_call *c)
{
    return cost_of(c, 5, PL_WORK_ATTENTION_BACK);
}

/* ---- tiled kernel ----------------------------------------------------------------------- */
static pl_flash flash_of(const pl_call *c)
{
    const pl_attention_attr *a = c->attr;
    const pl_type *q = &c->in_type[0];
    return (pl_flash){.batch = q->dim[0],
                      .n = q->dim[1],
                      .heads = q->dim[2],
                      .d = q->dim[3],
                      .m = c->in_type[1].dim[1],
                      .scale = a->scale,
                      .causal = a->causal};
}

static pl_status attention_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_flash f = flash_of(c);
    *work_bytes = pl_flash_work(&f, false);
    return PL_OK;
}

static pl_status attention_bwd_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_flash f = flash_of(c);
    *work_bytes = pl_flash_work(&f, true);
    return PL_OK;
}

static pl_status attention_run(const pl_call *c)
{
    pl_flash f = flash_of(c);
    f.q = c->in[0];
    f.k = c->in[1];
    f.v = c->in[2];
    f.o = c->out[0];
    f.lse = c->out[1];
    pl_flash_forward(&f, c->work);
    return PL_OK;
}

static pl_status attention_bwd_run(const pl_call *c)
{
    pl_flash f = flash_of(c);
    f.q = c->in[0];
    f.k = c->in[1];
    f.v = c->in[2];
    f.fwd_o = c->in[3];
    f.fwd_lse = c->in[4];
    f.d_o = c->in[5];
    f.d_lse = c->n_in == 7 ? c->in[6] : NULL;
    f.dq = c->out[0];
    f.dk = c->out[1];
    f.dv = c->out[2];
    pl_flash_backward(&f, c->work);
    return PL_OK;
}

/* ---- reference: one head at a time, probabilities of one query in the workspace --------- */
typedef struct head {
    const pl_call *c;
    pl_dtype dt, lt;
    int64_t n, m, heads, d;
    double scale;
    bool causal;
} head;

static head head_of(const pl_call *c)
{
    const pl_attention_attr *a = c->attr;
    const pl_type *q = &c->in_type[0];
    return (head){.c = c,
                  .dt = q->dtype,
                  .lt = c->n_out == 2 ? c->out_type[1].dtype : c->in_type[4].dtype,
                  .n = q->dim[1],
                  .m = c->in_type[1].dim[1],
                  .heads = q->dim[2],
                  .d = q->dim[3],
                  .scale = a->scale,
                  .causal = a->causal};
}

static int64_t row_of(const head *r, int64_t b, int64_t h, int64_t i, int64_t tokens)
{
    return ((b * tokens + i) * r->heads + h) * r->d;
}

static double dot(const head *r, int x, int64_t xi, int y, int64_t yi)
{
    double sum = 0;
    for (int64_t d = 0; d < r->d; d++)
        sum += ref_get(r->dt, r->c->in[x], xi + d) * ref_get(r->dt, r->c->in[y], yi + d);
    return sum;
}

static int64_t keys_seen(const head *r, int64_t i)
{
    return r->causal && i + 1 < r->m ? i + 1 : r->m;
}

static void ref_query(const head *r, int64_t b, int64_t h, int64_t i, double *p)
{
    int64_t qi = row_of(r, b, h, i, r->n), m = keys_seen(r, i);
    double top = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < m; j++) {
        p[j] = dot(r, 0, qi, 1, row_of(r, b, h, j, r->m)) * r->scale;
        top = p[j] > top ? p[j] : top;
    }
    for (int64_t j = 0; j < m; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t d = 0; d < r->d; d++) {
        double o = 0;
        for (int64_t j = 0; j < m; j++)
            o += p[j] * ref_get(r->dt, r->c->in[2], row_of(r, b, h, j, r->m) + d);
        ref_set(r->dt, r->c->out[0], qi + d, o / sum);
    }
    ref_set(r->lt, r->c->out[1], (b * r->heads + h) * r->n + i, top + log(sum));
}

static pl_status attention_ref_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    head r = head_of(c);
    *work_bytes = sizeof(double) * (size_t)(r.m * (1 + 2 * r.d));
    return PL_OK;
}

static pl_status attention_ref(const pl_call *c)
{
    head r = head_of(c);
    for (int64_t b = 0; b < c->in_type[0].dim[0]; b++)
        for (int64_t h = 0; h < r.heads; h++)
            for (int64_t i = 0; i < r.n; i++) ref_query(&r, b, h, i, c->work);
    return PL_OK;
}

/* Adds one query's share to dk and dv (in double, [M, D] each) and writes its dq. */
static void ref_bwd_query(const head *r, int64_t b, int64_t h, int64_t i, double *ds, double *dk,
                          double *dv)
{
    const pl_call *c = r->c;
    int64_t qi = row_of(r, b, h, i, r->n), li = (b * r->heads + h) * r->n + i;
    int64_t m = keys_seen(r, i);
    double lse = ref_get(r->lt, c->in[4], li);
    double delta =
        dot(r, 3, qi, 5, qi) - (c->n_in == 7 ? ref_get(c->in_type[6].dtype, c->in[6], li) : 0);
    for (int64_t j = 0; j < m; j++) {
        int64_t kj = row_of(r, b, h, j, r->m);
        double p = exp(dot(r, 0, qi, 1, kj) * r->scale - lse);
        ds[j] = p * (dot(r, 5, qi, 2, kj) - delta) * r->scale;
        for (int64_t d = 0; d < r->d; d++) {
            dk[j * r->d + d] += ds[j] * ref_get(r->dt, c->in[0], qi + d);
            dv[j * r->d + d] += p * ref_get(r->dt, c->in[5], qi + d);
        }
    }
    for (int64_t d = 0; d < r->d; d++) {
        double sum = 0;
        for (int64_t j = 0; j < m; j++)
            sum += ds[j] * ref_get(r->dt, c->in[1], row_of(r, b, h, j, r->m) + d);
        ref_set(r->dt, c->out[0], qi + d, sum);
    }
}

static pl_status attention_bwd_ref(const pl_call *c)
{
    head r = head_of(c);
    double *ds = c->work, *dk = ds + r.m, *dv = dk + r.m * r.d;
    for (int64_t b = 0; b < c->in_type[0].dim[0]; b++)
        for (int64_t h = 0; h < r.heads; h++) {
            memset(dk, 0, sizeof(double) * (size_t)(2 * r.m * r.d));
            for (int64_t i = 0; i < r.n; i++) ref_bwd_query(&r, b, h, i, ds, dk, dv);
            for (int64_t j = 0; j < r.m; j++)
                for (int64_t d = 0; d < r.d; d++) {
                    int64_t at = row_of(&r, b, h, j, r.m) + d;
                    ref_set(r.dt, c->out[1], at, dk[j * r.d + d]);
                    ref_set(r.dt, c->out[2], at, dv[j * r.d + d]);
                }
        }
    return PL_OK;
}

#define KERNELS(op)                                                                                \
 static const pl_kernel op##_fast[] = {{"flash", all_f32, op##_prepare, NULL, op##_run},           \
                                       PL_KERNEL_END};                                             \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {{"flash", all_f32, op##_prepare, NULL, op##_run},        \
                                          PL_VIA_F32_KERNEL(op),                                   \
                                          {"ref", NULL, attention_ref_prepare, NULL, op##_ref},    \
                                          PL_KERNEL_END};
KERNELS(attention)
KERNELS(attention_bwd)

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                            \
    X("[1,1,1,1]",  "[1,1,1,1]",  "[1,1,1]",  "causal=false")                               \
    X("[2,5,3,4]",  "[2,7,3,4]",  "[2,3,5]",  "causal=false")                               \
    X("[1,6,2,5]",  "[1,6,2,5]",  "[1,2,6]",  "causal=true")                                \
    X("[1,3,2,16]", "[1,4,2,16]", "[1,2,3]",  "scale=0.3, causal=false")
#define CASE(q, k, lse, a)     {{"f32" q, "f32" k, "f32" k}, a, {{0}}},
#define BWD_CASE(q, k, lse, a) \
    {{"f32" q, "f32" k, "f32" k, "f32" q, "f32" lse, "f32" q}, a, {{0}, {0}, {0}, {0}, {1, 2, false}}}, \
    {{"f32" q, "f32" k, "f32" k, "f32" q, "f32" lse, "f32" q, "f32" lse}, a, {{0}, {0}, {0}, {0}, {1, 2, false}}},
static const pl_case attention_cases[] = {CASES(CASE) PL_CASE_END};
static const pl_case attention_bwd_cases[] = {CASES(BWD_CASE) PL_CASE_END};
/* clang-format on */

static void attention_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 7, 3);
}

static void attention_bwd_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 127, 7);
    l->plus = 32 | 64; /* d_o, d_lse */
}

const pl_op pl_op_attention = {
    .name = "attention",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_attention_attr),
    .attrs = attrs,
    .infer = attention_infer,
    .vjp = attention_vjp,
    .cost = attention_cost,
    .cpu = attention_kernels,
    .cases = attention_cases,
    .labels = attention_labels,
};
const pl_op pl_op_attention_bwd = {
    .name = "attention_bwd",
    .min_in = 6,
    .max_in = 7,
    .n_out = 3,
    .width = PL_WIDTH_LOW,
    .full_in = 1 << 4 | 1 << 6, /* lse, d_lse */
    .attr_bytes = sizeof(pl_attention_attr),
    .attrs = attrs,
    .infer = attention_bwd_infer,
    .vjp = attention_bwd_vjp,
    .cost = attention_bwd_cost,
    .cpu = attention_bwd_kernels,
    .cases = attention_bwd_cases,
    .labels = attention_bwd_labels,
};

pl_val pl_attention(pl_graph *g, pl_val q, pl_val k, pl_val v, double scale, bool causal)
{
    if (!pl_val_ok(q) || !pl_val_ok(k) || !pl_val_ok(v)) return PL_NO_VAL;
    pl_attention_attr a;
    memset(&a, 0, sizeof a);
    a.scale = scale;
    a.causal = causal;
    return pl_build1(g, &pl_op_attention, &a, 3, (const pl_val[]){q, k, v});
}
