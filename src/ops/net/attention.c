/* attention.c - softmax(q k^T scale) v over tokens, without stored probabilities.
 *
 *   attention           (q [B,N,H,D], k, v [B,M,G,D]) -> o [B,N,H,D], lse [B,H,N]
 *   attention_bwd       (q, k, v, o, lse, d_o, d_lse?) -> dq, dk, dv
 *   attention_rows      (x [B,N,3HD]) -> o, lse       q, k and v are parts of the rows of x
 *   attention_rows_bwd  (x, o, lse, d_o, d_lse?) -> dx
 *   attention_masked    (q, k, v, mask) -> o, lse      and its gradient: attention_masked.c
 *
 * The constructor uses the second form where q, k and v are read from such rows (attention_rows.c):
 * nothing is copied out of x, and no gradient into it.
 *
 * G divides H: head h of the queries reads head h / (H/G) of keys and values, in place; gradients
 * of keys and values are sums over the heads that read them, in order.
 *
 * lse is the logarithm of the sum of exponentials of a query's scores, f32 (f64 for f64 operands).
 * Backward keeps q, k, v, o and lse: memory grows with the number of tokens, not with its square.
 *
 *   s = q k^T scale     p = exp(s - lse)             delta = sum(o * d_o) - d_lse
 *   dv = p^T d_o        ds = p * (d_o v^T - delta)   dq = ds k scale    dk = ds^T q scale
 *
 * causal: query i sees keys 0..i. The second derivative is in attention_second.c.
 */
#include "ops/net/attention.h"
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
               "q is %s; needs floats [batch, tokens, heads, dim]", s);
    PL_FAIL_IF(!pl_type_equal(k, v), PL_ERR_SHAPE,
               "k is %s, but v is %s: they must have the same type and shape", t,
               pl_type_text(v, u, sizeof u));
    PL_FAIL_IF(k->rank != 4 || k->dtype != q->dtype || k->dim[0] != q->dim[0] ||
                   k->dim[3] != q->dim[3],
               PL_ERR_SHAPE, "q %s, k %s: batch and dim must agree", s, t);
    PL_FAIL_IF(k->dim[2] != q->dim[2] && (k->dim[2] < 1 || q->dim[2] % k->dim[2] != 0),
               PL_ERR_SHAPE,
               "q %s, k %s: the %lld heads of q are not a multiple of the %lld heads of k", s, t,
               (long long)q->dim[2], (long long)k->dim[2]);
    PL_FAIL_IF(k->dim[1] < 1, PL_ERR_SHAPE, "k is %s: it has no tokens to attend to", t);
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
        PL_FAIL_IF(!pl_type_equal(&in[i], &want), PL_ERR_SHAPE, "%s is %s; needs %s", names[i - 3],
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

/* ---- cost ------------------------------------------------------------------------------- */
pl_cost pl_attention_cost(const pl_call *c, bool back)
{
    pl_attention_sizes z = pl_attention_sizes_of(c);
    double pairs = (double)(z.batch * z.heads) * (double)z.n * (double)z.m;
    if (z.causal) pairs *= 0.5;
    return (pl_cost){pairs * (2 * (back ? 5 : 2) * (double)z.d + 12),
                     operand_bytes(c),
                     back ? PL_WORK_ATTENTION_BACK : PL_WORK_ATTENTION,
                     (double)z.n,
                     (double)z.m,
                     (double)z.d};
}

static pl_cost attention_cost(const pl_call *c)
{
    return pl_attention_cost(c, false);
}

static pl_cost attention_bwd_cost(const pl_call *c)
{
    return pl_attention_cost(c, true);
}

/* ---- operands --------------------------------------------------------------------------- */
/* Whether operand 3 is a mask: lse, of rank 3, comes one operand later then. */
static bool is_masked(const pl_call *c)
{
    return c->in_type[0].rank == 4 &&
           (c->n_in == 4 || (c->n_in > 5 && c->in_type[5].rank == 3 && c->in_type[4].rank == 4));
}

/* The operand after q, k, v and the mask. */
static int after_qkv(const pl_attention_sizes *z)
{
    return z->packed ? 1 : z->masked ? 4 : 3;
}

pl_attention_sizes pl_attention_sizes_of(const pl_call *c)
{
    const pl_attention_attr *a = c->attr;
    const pl_type *q = &c->in_type[0];
    pl_attention_sizes z = {.batch = q->dim[0], .n = q->dim[1], .causal = a->causal};
    z.packed = q->rank == 3;
    if (z.packed) {
        const pl_attention_rows_attr *r = c->attr;
        z.heads = r->heads;
        z.d = q->dim[2] / (3 * r->heads);
        z.m = z.n;
        z.row = z.keys_row = q->dim[2];
        z.step = z.keys_step = r->step;
        z.group = 1;
    } else {
        int64_t keys_heads = c->in_type[1].dim[2];
        z.heads = q->dim[2];
        z.d = q->dim[3];
        z.m = c->in_type[1].dim[1];
        z.row = z.heads * z.d;
        z.keys_row = keys_heads * z.d;
        z.step = z.keys_step = z.d;
        z.group = keys_heads > 0 && z.heads > 0 ? z.heads / keys_heads : 1;
    }
    z.scale = a->scale != 0 ? a->scale : 1 / sqrt((double)z.d);
    z.masked = is_masked(c);
    int next = after_qkv(&z);
    if (z.masked) {
        const pl_type *t = &c->in_type[3];
        int64_t step = 1;
        for (int i = 3; i >= 0; step *= t->dim[i--]) z.mask_step[i] = t->dim[i] == 1 ? 0 : step;
        z.mask_type = t->dtype;
    }
    z.back = c->n_in > next;
    z.d_lse = c->n_in > next + 3;
    z.dtype = q->dtype;
    z.lse_type = z.back ? c->in_type[next + 1].dtype : c->out_type[1].dtype;
    z.d_lse_type = z.d_lse ? c->in_type[next + 3].dtype : PL_F32;
    return z;
}

pl_attention_operands pl_attention_operands_of(const pl_call *c)
{
    const pl_attention_rows_attr *r = c->attr;
    pl_attention_sizes z = pl_attention_sizes_of(c);
    int64_t at[3] = {0, 0, 0}, elem = (int64_t)pl_dtype_bytes(z.dtype);
    int next = after_qkv(&z);
    pl_attention_operands x = {.mask = z.masked ? c->in[3] : NULL};
    if (z.packed) at[0] = r->q_at * elem, at[1] = r->k_at * elem, at[2] = r->v_at * elem;
    for (int i = 0; i < 3; i++) x.in[i] = (const char *)c->in[z.packed ? 0 : i] + at[i];
    if (!z.back) {
        x.out[0] = c->out[0];
        x.out[1] = c->out[1];
        return x;
    }
    x.o = c->in[next];
    x.lse = c->in[next + 1];
    x.d_o = c->in[next + 2];
    if (z.d_lse) x.d_lse = c->in[next + 3];
    for (int i = 0; i < 3; i++) x.out[i] = (char *)c->out[z.packed ? 0 : i] + at[i];
    return x;
}

/* ---- tiled kernel ----------------------------------------------------------------------- */
static pl_flash flash_of(const pl_call *c)
{
    pl_attention_sizes z = pl_attention_sizes_of(c);
    return (pl_flash){
        .batch = z.batch,
        .n = z.n,
        .heads = z.heads,
        .d = z.d,
        .m = z.m,
        .group = z.group,
        .row = z.row,
        .step = z.step,
        .keys_row = z.keys_row,
        .keys_step = z.keys_step,
        .scale = z.scale,
        .causal = z.causal,
        .mask_is_bool = z.mask_type == PL_BOOL,
        .mask_step = {z.mask_step[0], z.mask_step[1], z.mask_step[2], z.mask_step[3]}};
}

pl_status pl_attention_flash_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_flash f = flash_of(c);
    *work_bytes = pl_flash_work(&f, pl_attention_sizes_of(c).back);
    return PL_OK;
}

pl_status pl_attention_flash_run(const pl_call *c)
{
    pl_flash f = flash_of(c);
    pl_attention_operands x = pl_attention_operands_of(c);
    f.q = x.in[0];
    f.k = x.in[1];
    f.v = x.in[2];
    f.mask = x.mask;
    if (!pl_attention_sizes_of(c).back) {
        f.o = x.out[0];
        f.lse = x.out[1];
        pl_flash_forward(&f, c->work);
        return PL_OK;
    }
    f.fwd_o = x.o;
    f.fwd_lse = x.lse;
    f.d_o = x.d_o;
    f.d_lse = x.d_lse;
    f.dq = x.out[0];
    f.dk = x.out[1];
    f.dv = x.out[2];
    pl_flash_backward(&f, c->work);
    return PL_OK;
}

/* ---- reference: one head at a time, probabilities of one query in the workspace --------- */
typedef struct head {
    pl_attention_sizes z;
    pl_attention_operands x;
} head;

static head head_of(const pl_call *c)
{
    return (head){pl_attention_sizes_of(c), pl_attention_operands_of(c)};
}

/* The first number of a token's head: of q and its gradient; of k, v and theirs, as head h of the
 * queries reads them; of o and d_o. */
static int64_t row_of(const head *r, int64_t b, int64_t h, int64_t i)
{
    return (b * r->z.n + i) * r->z.row + h * r->z.step;
}

static int64_t key_of(const head *r, int64_t b, int64_t h, int64_t j)
{
    return (b * r->z.m + j) * r->z.keys_row + h / r->z.group * r->z.keys_step;
}

static int64_t out_of(const head *r, int64_t b, int64_t h, int64_t i)
{
    return ((b * r->z.n + i) * r->z.heads + h) * r->z.d;
}

static double dot(const head *r, const void *x, int64_t xi, const void *y, int64_t yi)
{
    double sum = 0;
    for (int64_t d = 0; d < r->z.d; d++)
        sum += ref_get(r->z.dtype, x, xi + d) * ref_get(r->z.dtype, y, yi + d);
    return sum;
}

static int64_t keys_seen(const head *r, int64_t i)
{
    return r->z.causal && i + 1 < r->z.m ? i + 1 : r->z.m;
}

/* Returns the value that the mask adds to the score of query i and key j. */
static double mask_of(const head *r, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t *step = r->z.mask_step;
    int64_t at = b * step[0] + h * step[1] + i * step[2] + j * step[3];
    if (!r->z.masked) return 0;
    if (r->z.mask_type == PL_BOOL) return ((const uint8_t *)r->x.mask)[at] ? 0 : PL_ATTENTION_LEAST;
    double x = ref_get(r->z.mask_type, r->x.mask, at);
    return x < PL_ATTENTION_LEAST ? PL_ATTENTION_LEAST : x;
}

static void ref_query(const head *r, int64_t b, int64_t h, int64_t i, double *p)
{
    const pl_attention_operands *x = &r->x;
    int64_t qi = row_of(r, b, h, i), oi = out_of(r, b, h, i), m = keys_seen(r, i);
    double top = r->z.masked ? PL_ATTENTION_HIDDEN : -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < m; j++) {
        p[j] = dot(r, x->in[0], qi, x->in[1], key_of(r, b, h, j)) * r->z.scale +
               mask_of(r, b, h, i, j);
        top = p[j] > top ? p[j] : top;
    }
    for (int64_t j = 0; j < m; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t d = 0; d < r->z.d; d++) {
        double o = 0;
        for (int64_t j = 0; j < m; j++)
            o += p[j] * ref_get(r->z.dtype, x->in[2], key_of(r, b, h, j) + d);
        ref_set(r->z.dtype, x->out[0], oi + d, sum == 0 ? 0 : o / sum);
    }
    ref_set(r->z.lse_type, x->out[1], (b * r->z.heads + h) * r->z.n + i,
            sum == 0 ? 0 : top + log(sum));
}

/* Adds one query's share to dk and dv (in double, [M, D] each) and writes its dq. */
static void ref_bwd_query(const head *r, int64_t b, int64_t h, int64_t i, double *ds, double *dk,
                          double *dv)
{
    const pl_attention_operands *x = &r->x;
    int64_t qi = row_of(r, b, h, i), oi = out_of(r, b, h, i), d_n = r->z.d;
    int64_t li = (b * r->z.heads + h) * r->z.n + i, m = keys_seen(r, i);
    pl_dtype dt = r->z.dtype;
    double lse = ref_get(r->z.lse_type, x->lse, li);
    double delta =
        dot(r, x->o, oi, x->d_o, oi) - (x->d_lse ? ref_get(r->z.d_lse_type, x->d_lse, li) : 0);
    for (int64_t j = 0; j < m; j++) {
        int64_t kj = key_of(r, b, h, j);
        double p =
            exp(dot(r, x->in[0], qi, x->in[1], kj) * r->z.scale + mask_of(r, b, h, i, j) - lse);
        ds[j] = p * (dot(r, x->d_o, oi, x->in[2], kj) - delta) * r->z.scale;
        for (int64_t d = 0; d < d_n; d++) {
            dk[j * d_n + d] += ds[j] * ref_get(dt, x->in[0], qi + d);
            dv[j * d_n + d] += p * ref_get(dt, x->d_o, oi + d);
        }
    }
    for (int64_t d = 0; d < d_n; d++) {
        double sum = 0;
        for (int64_t j = 0; j < m; j++)
            sum += ds[j] * ref_get(dt, x->in[1], key_of(r, b, h, j) + d);
        ref_set(dt, x->out[0], qi + d, sum);
    }
}

/* The heads that read one head of keys, of which h is the first. */
static void ref_bwd_heads(const head *r, int64_t b, int64_t h, double *work)
{
    int64_t m = r->z.m, d_n = r->z.d;
    double *ds = work, *dk = ds + m, *dv = dk + m * d_n;
    memset(dk, 0, sizeof(double) * (size_t)(2 * m * d_n));
    for (int64_t k = 0; k < r->z.group; k++)
        for (int64_t i = 0; i < r->z.n; i++) ref_bwd_query(r, b, h + k, i, ds, dk, dv);
    for (int64_t j = 0; j < m; j++)
        for (int64_t d = 0; d < d_n; d++) {
            int64_t at = key_of(r, b, h, j) + d;
            ref_set(r->z.dtype, r->x.out[1], at, dk[j * d_n + d]);
            ref_set(r->z.dtype, r->x.out[2], at, dv[j * d_n + d]);
        }
}

pl_status pl_attention_ref_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_attention_sizes z = pl_attention_sizes_of(c);
    *work_bytes = sizeof(double) * (size_t)(z.m * (1 + 2 * z.d));
    return PL_OK;
}

pl_status pl_attention_ref_run(const pl_call *c)
{
    head r = head_of(c);
    for (int64_t b = 0; b < r.z.batch; b++)
        for (int64_t h = 0; h < r.z.heads; h++) {
            if (r.z.back && h % r.z.group == 0) ref_bwd_heads(&r, b, h, c->work);
            for (int64_t i = 0; !r.z.back && i < r.z.n; i++) ref_query(&r, b, h, i, c->work);
        }
    return PL_OK;
}

PL_ATTENTION_KERNELS(attention)
PL_ATTENTION_KERNELS(attention_bwd)

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                            \
    X("[1,1,1,1]",  "[1,1,1,1]",  "[1,1,1]",  "causal=false")                               \
    X("[2,5,3,4]",  "[2,7,3,4]",  "[2,3,5]",  "causal=false")                               \
    X("[1,6,2,5]",  "[1,6,2,5]",  "[1,2,6]",  "causal=true")                                \
    X("[1,3,2,16]", "[1,4,2,16]", "[1,2,3]",  "scale=0.3, causal=false")                    \
    X("[2,5,6,4]",  "[2,7,2,4]",  "[2,6,5]",  "causal=false")                               \
    X("[1,6,4,8]",  "[1,6,1,8]",  "[1,4,6]",  "causal=true")
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

static bool attention_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                             int n_in, pl_val *out)
{
    return pl_attention_padded(g, &pl_op_attention, p, attr, in, n_in, out);
}

static bool attention_bwd_padded(pl_graph *g, const pl_padding *p, const void *attr,
                                 const pl_val *in, int n_in, pl_val *out)
{
    return pl_attention_bwd_padded(g, &pl_op_attention_bwd, 3, p, attr, in, n_in, out);
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
    .padded = attention_padded,
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
    .vjp = pl_attention_bwd_vjp,
    .cost = attention_bwd_cost,
    .cpu = attention_bwd_kernels,
    .cases = attention_bwd_cases,
    .padded = attention_bwd_padded,
    .labels = attention_bwd_labels,
};

pl_val pl_attention(pl_graph *g, pl_val q, pl_val k, pl_val v, double scale, bool causal)
{
    if (!pl_val_ok(q) || !pl_val_ok(k) || !pl_val_ok(v)) return PL_NO_VAL;
    pl_val packed = pl_attention_of_rows(g, q, k, v, scale, causal);
    if (pl_val_ok(packed)) return packed;
    pl_attention_attr a;
    memset(&a, 0, sizeof a);
    a.scale = scale;
    a.causal = causal;
    return pl_build1(g, &pl_op_attention, &a, 3, (const pl_val[]){q, k, v});
}
