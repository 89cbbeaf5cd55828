/* matmul.c - y = op(a) op(b) + bias, over a batch.
 *
 *   a [batch.., M, K] (ta: [.., K, M])   b [batch.., K, N] (tb: [.., N, K])   bias [N], optional
 *
 * In the IR an operand's batch dims are the result's or absent (rank 2: every product reads the
 * same matrix). The constructor converts other shapes: leading dims of 1 are dropped, one matrix on
 * the right of many rows becomes a single tall product, and every other broadcast is written to
 * memory. The gradient is two more products; the backward pass keeps a and b.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/dnn/dnn.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/shape.h"
#include "ops/core/via_f32.h"
#include "ops/net/tail.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_matmul_attr, ta, BOOL),
                                PL_ATTR(pl_matmul_attr, tb, BOOL), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
typedef struct product {
    int64_t batch, m, n, k;
    int64_t a_step, b_step; /* elements from one batch to the next; 0: the same matrix */
    bool ta, tb;
} product;

pl_status pl_matmul_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_matmul_attr *t = attr;
    const pl_type *a = &in[0], *b = &in[1];
    char x[96], y[96];
    pl_type_text(a, x, sizeof x);
    pl_type_text(b, y, sizeof y);
    PL_FAIL_IF(a->rank < 2 || b->rank < 2, PL_ERR_SHAPE,
               "a is %s, b is %s: both need rank 2 or more", x, y);
    PL_FAIL_IF(a->dtype != b->dtype || !pl_dtype_is_float(a->dtype), PL_ERR_SHAPE,
               "a is %s, b is %s: both need the same float type", x, y);
    int64_t m = a->dim[a->rank - (t->ta ? 1 : 2)], ka = a->dim[a->rank - (t->ta ? 2 : 1)];
    int64_t kb = b->dim[b->rank - (t->tb ? 1 : 2)], n = b->dim[b->rank - (t->tb ? 2 : 1)];
    PL_FAIL_IF(ka != kb, PL_ERR_SHAPE, "a %s%s, b %s%s: inner sizes %lld and %lld differ", x,
               t->ta ? " transposed" : "", y, t->tb ? " transposed" : "", (long long)ka,
               (long long)kb);
    const pl_type *wide = a->rank >= b->rank ? a : b;
    PL_FAIL_IF(a->rank > 2 && b->rank > 2 &&
                   (a->rank != b->rank ||
                    memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)(a->rank - 2)) != 0),
               PL_ERR_SHAPE, "a is %s, b is %s: their batch dimensions differ", x, y);
    out[0] = *wide;
    out[0].dim[wide->rank - 2] = m;
    out[0].dim[wide->rank - 1] = n;
    if (n_in == 3) {
        char z[96];
        PL_FAIL_IF(in[2].rank != 1 || in[2].dim[0] != n || in[2].dtype != a->dtype, PL_ERR_SHAPE,
                   "bias is %s; needs %lld elements of the type of a %s and b %s",
                   pl_type_text(&in[2], z, sizeof z), (long long)n, x, y);
    }
    return PL_OK;
}

static product product_of(const pl_call *c)
{
    const pl_matmul_attr *t = c->attr;
    const pl_type *a = &c->in_type[0], *b = &c->in_type[1], *y = &c->out_type[0];
    product p = {.batch = 1, .ta = t->ta, .tb = t->tb};
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (t->ta ? 2 : 1)];
    for (int i = 0; i < y->rank - 2; i++) p.batch *= y->dim[i];
    p.a_step = a->rank > 2 ? p.m * p.k : 0;
    p.b_step = b->rank > 2 ? p.k * p.n : 0;
    return p;
}

/* ---- gradient --------------------------------------------------------------------------- */
/* Sums over the batch dims when the operand has none. */
static pl_val unbatched(pl_graph *g, pl_val d, pl_val like)
{
    pl_type t = pl_val_type(g, d);
    if (t.rank == pl_val_type(g, like).rank) return d;
    uint32_t axes = 0;
    for (int i = 0; i < t.rank - 2; i++) axes |= PL_AXIS(i);
    return pl_sum(g, d, axes, false);
}

static void vjp(const pl_vjp *v)
{
    const pl_matmul_attr *t = v->attr;
    pl_graph *g = v->g;
    pl_val a = v->in[0], b = v->in[1], d = v->gout[0];
    if (v->need[0]) {
        pl_val ga = t->ta ? pl_matmul(g, b, d, t->tb, true) : pl_matmul(g, d, b, false, !t->tb);
        v->gin[0] = unbatched(g, ga, a);
    }
    if (v->need[1]) {
        pl_val gb = t->tb ? pl_matmul(g, d, a, true, t->ta) : pl_matmul(g, a, d, !t->ta, false);
        v->gin[1] = unbatched(g, gb, b);
    }
    if (v->n_in == 3 && v->need[2]) {
        uint32_t axes = 0;
        for (int i = 0; i < pl_val_type(g, d).rank - 1; i++) axes |= PL_AXIS(i);
        v->gin[2] = pl_sum(g, d, axes, false);
    }
}

pl_cost pl_matmul_cost(const pl_call *c)
{
    product p = product_of(c);
    return (pl_cost){2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k,
                     operand_bytes(c),
                     PL_WORK_PRODUCT,
                     (double)p.m,
                     (double)p.n,
                     (double)p.k};
}

/* ---- kernels ---------------------------------------------------------------------------- */
typedef struct row_job {
    const pl_call *c;
    product p;
    bool bias;
    pl_put_fn *put;
} row_job;

static void ref_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const row_job *r = ctx;
    const product *p = &r->p;
    const pl_call *c = r->c;
    pl_dtype dt = c->in_type[0].dtype;
    int64_t batch = task / p->m, i = task % p->m;
    int64_t a0 = batch * p->a_step + (p->ta ? i : i * p->k), as = p->ta ? p->m : 1;
    for (int64_t j = 0; j < p->n; j++) {
        int64_t b0 = batch * p->b_step + (p->tb ? j * p->k : j), bs = p->tb ? 1 : p->n;
        double sum = r->bias ? ref_get(dt, c->in[2], j) : 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += ref_get(dt, c->in[0], a0 + k * as) * ref_get(dt, c->in[1], b0 + k * bs);
        r->put(c, task * p->n + j, sum);
    }
}

pl_status pl_matmul_ref(const pl_call *c, bool bias, pl_put_fn *put)
{
    row_job r = {c, product_of(c), bias, put};
    each_task(r.p.batch * r.p.m, pl_matmul_cost(c).flops, ref_row, &r);
    return PL_OK;
}

static pl_status ref(const pl_call *c)
{
    return pl_matmul_ref(c, c->n_in == 3, pl_put_plain);
}

/* Problems that oneDNN refuses use the reference loops: the handle stays NULL. */
static pl_status dnn_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    product p = product_of(c);
    pl_dnn_matmul_desc d = {.dtype = c->in_type[0].dtype,
                            .batch = p.batch,
                            .m = p.m,
                            .n = p.n,
                            .k = p.k,
                            .trans_a = p.ta,
                            .trans_b = p.tb,
                            .bias = c->n_in == 3,
                            .a_batch_stride = p.a_step,
                            .b_batch_stride = p.b_step};
    pl_dnn *h = NULL;
    pl_status rc = pl_dnn_matmul_prepare(&d, &h, work_bytes);
    *prep = h;
    return rc == PL_ERR_UNSUPPORTED ? PL_OK : rc;
}

static void dnn_release(void *prep)
{
    pl_dnn_free(prep);
}

static pl_status dnn_run(const pl_call *c)
{
    return c->prep ? pl_dnn_run(c->prep, c->in, c->out, c->work) : ref(c);
}

static const pl_kernel fast[] = {{"dnn", accepts_f32, dnn_prepare, dnn_release, dnn_run},
                                 PL_KERNEL_END};
PL_VIA_F32(matmul, fast)
static const pl_kernel kernels[] = {{"dnn", accepts_f32, dnn_prepare, dnn_release, dnn_run},
                                    PL_VIA_F32_KERNEL(matmul),
                                    {"ref", NULL, NULL, NULL, ref},
                                    PL_KERNEL_END};

static const pl_case cases[] = {
    {{"f32[3,4]", "f32[4,5]"}, "ta=false, tb=false", {{0}}},
    {{"f32[4,3]", "f32[4,5]"}, "ta=true, tb=false", {{0}}},
    {{"f32[3,4]", "f32[5,4]", "f32[5]"}, "ta=false, tb=true", {{0}}},
    {{"f32[4,3]", "f32[5,4]"}, "ta=true, tb=true", {{0}}},
    {{"f32[1,1]", "f32[1,1]", "f32[1]"}, "ta=false, tb=false", {{0}}},
    {{"f32[17,33]", "f32[33,9]"}, "ta=false, tb=false", {{0}}},
    {{"f32[2,3,4]", "f32[2,4,5]"}, "ta=false, tb=false", {{0}}},
    {{"f32[2,2,3,4]", "f32[2,2,5,4]", "f32[5]"}, "ta=false, tb=true", {{0}}},
    {{"f32[2,4,3]", "f32[4,5]"}, "ta=true, tb=false", {{0}}},
    {{"f32[3,4]", "f32[2,5,4]"}, "ta=false, tb=true", {{0}}},
    PL_CASE_END};

static void labels(const pl_call *c, pl_labels *l)
{
    enum { M = PL_MAX_RANK + 1, N, K };
    const pl_matmul_attr *t = c->attr;
    const pl_type *a = &c->in_type[0], *b = &c->in_type[1], *y = &c->out_type[0];
    for (int i = 0; i < y->rank - 2; i++) {
        l->out[0][i] = (int8_t)(i + 1);
        if (a->rank > 2) l->in[0][i] = (int8_t)(i + 1);
        if (b->rank > 2) l->in[1][i] = (int8_t)(i + 1);
    }
    l->in[0][a->rank - 2] = t->ta ? K : M;
    l->in[0][a->rank - 1] = t->ta ? M : K;
    l->in[1][b->rank - 2] = t->tb ? N : K;
    l->in[1][b->rank - 1] = t->tb ? K : N;
    l->in[2][0] = N;
    l->out[0][y->rank - 2] = M;
    l->out[0][y->rank - 1] = N;
    l->times = 3;
    l->plus = 4;
}

static pl_val build(pl_graph *g, pl_val a, pl_val b, pl_val bias, bool ta, bool tb)
{
    pl_matmul_attr t;
    memset(&t, 0, sizeof t);
    t.ta = ta;
    t.tb = tb;
    pl_val in[3] = {a, b, bias};
    return pl_build1(g, &pl_op_matmul, &t, pl_val_ok(bias) ? 3 : 2, in);
}

/* Whether padding takes less time than it saves. Products of odd rows ran at a fifth of the speed
 * of others on an H200 in 16 bits, and so lost the time of moving a byte every BYTE operations; a
 * kernel that pads takes as long as LAUNCH operations. */
static bool padding_pays(const product *from, const product *to, size_t elem)
{
    const double BYTE = 40, LAUNCH = 5e8;
    enum { LEAST = 8 };
    double f = (double)from->batch, bytes = 0, launches = 0;
    bool m = from->m != to->m, n = from->n != to->n, k = from->k != to->k;
    if (m || k) bytes += 2 * (from->a_step ? f : 1) * (double)to->m * (double)to->k, launches++;
    if (n || k) bytes += 2 * (from->b_step ? f : 1) * (double)to->n * (double)to->k, launches++;
    if (n) bytes += f * (double)to->m * (double)to->n;
    double flops = 2 * f * (double)from->m * (double)from->n * (double)from->k;
    return from->m >= LEAST && from->n >= LEAST && from->k >= LEAST &&
           flops >= BYTE * bytes * (double)elem + LAUNCH * launches;
}

static bool padded(pl_graph *g, const pl_padding *o, const void *attr, const pl_val *in, int n_in,
                   pl_val *out)
{
    const pl_matmul_attr *t = attr;
    pl_type types[2] = {pl_val_type(g, in[0]), pl_val_type(g, in[1])}, y;
    pl_matmul_attr copy = *t;
    int64_t unit = pl__row_unit(types[0].dtype, o->tf32);
    if (pl_matmul_infer(types, 2, &copy, &y) != PL_OK) return false;
    product p = product_of(&(pl_call){.in_type = types, .out_type = &y, .attr = t}), q = p;
    q.n = pl__padded_row(p.n, unit);
    if (t->ta) q.m = pl__padded_row(p.m, unit);
    if (!t->ta || t->tb) q.k = pl__padded_row(p.k, unit);
    bool odd = p.m != q.m || p.n != q.n || p.k != q.k;
    if (!odd || !(o->always || padding_pays(&p, &q, pl_dtype_bytes(y.dtype)))) return false;
    pl_val a = pl__padded_to(g, in[0], t->ta ? q.k : q.m, t->ta ? q.m : q.k);
    pl_val b = pl__padded_to(g, in[1], t->tb ? q.n : q.k, t->tb ? q.k : q.n);
    pl_val bias = n_in == 3 ? pl_pad(g, in[2], 0, 0, q.n - p.n, 0, 0) : PL_NO_VAL;
    out[0] = pl__first_of(g, build(g, a, b, bias, t->ta, t->tb), p.m, p.n);
    return true;
}

static bool plain_product(const pl_call *c, pl_plain_product *out)
{
    product p = product_of(c);
    *out = (pl_plain_product){p.m, p.n, p.k, p.tb, {{0}}};
    return c->n_in == 2 && p.batch == 1 && c->out_type[0].rank == 2 && !p.ta;
}

const pl_op pl_op_matmul = {
    .name = "matmul",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .flags = PL_OP_BIAS,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_matmul_attr),
    .attrs = attrs,
    .infer = pl_matmul_infer,
    .vjp = vjp,
    .cost = pl_matmul_cost,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
    .tail = pl_matmul_with_tail,
    .padded = padded,
    .product = plain_product,
};

/* ---- constructors ----------------------------------------------------------------------- */
static pl_val reshaped(pl_graph *g, pl_val x, int rank, const int64_t *dim)
{
    pl_type t = pl_val_type(g, x), want = pl_type_make(t.dtype, rank, dim);
    return pl_type_equal(&t, &want) ? x : pl_reshape(g, x, rank, dim);
}

/* Computes the batch dims that both broadcast to; false with the graph's error set if they do
 * not. */
static bool common_batch(pl_graph *g, const pl_type *a, const pl_type *b, pl_type *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    for (int i = 3; i <= out->rank; i++) {
        int64_t p = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t q = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (p != q && p != 1 && q != 1) {
            char s[96], t[96];
            pl_graph_fail(g, PL_ERR_SHAPE, "matmul: batch dims of %s and %s do not broadcast",
                          pl_type_text(a, s, sizeof s), pl_type_text(b, t, sizeof t));
            return false;
        }
        out->dim[out->rank - i] = p == 1 ? q : p;
    }
    return true;
}

/* Returns x with exactly the batch dims of `to`, or none if all of its batch dims are 1. */
static pl_val batched(pl_graph *g, pl_val x, const pl_type *to)
{
    pl_type t = pl_val_type(g, x);
    int64_t n = 1;
    for (int i = 0; i < t.rank - 2; i++) n *= t.dim[i];
    if (n == 1) return reshaped(g, x, 2, t.dim + t.rank - 2);
    pl_type w = *to;
    w.dim[w.rank - 2] = t.dim[t.rank - 2];
    w.dim[w.rank - 1] = t.dim[t.rank - 1];
    pl_type same = pl_type_make(t.dtype, w.rank, w.dim);
    return pl_type_equal(&t, &same) ? x : pl_broadcast(g, x, w.rank, w.dim);
}

/* a [.., M, K] with one matrix b: the batch is merged into the rows. */
static pl_val tall(pl_graph *g, pl_val a, pl_val b, pl_val bias, bool tb, const pl_type *out)
{
    pl_type t = pl_val_type(g, a);
    int64_t k = t.dim[t.rank - 1], rows = k ? pl_type_elems(&t) / k : 0;
    pl_val y = build(g, reshaped(g, a, 2, (const int64_t[]){rows, k}), b, bias, false, tb);
    return pl_val_ok(y) ? reshaped(g, y, out->rank, out->dim) : PL_NO_VAL;
}

pl_val pl_matmul(pl_graph *g, pl_val a, pl_val b, bool ta, bool tb)
{
    if (!pl_val_ok(a) || !pl_val_ok(b)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, a), u = pl_val_type(g, b), out;
    if (t.rank < 2 || u.rank < 2) return build(g, a, b, PL_NO_VAL, ta, tb); /* reports the error */
    if (!common_batch(g, &t, &u, &out)) return PL_NO_VAL;
    out.dim[out.rank - 2] = t.dim[t.rank - (ta ? 1 : 2)];
    out.dim[out.rank - 1] = u.dim[u.rank - (tb ? 2 : 1)];
    pl_val x = batched(g, a, &out), w = batched(g, b, &out);
    if (!pl_val_ok(x) || !pl_val_ok(w)) return PL_NO_VAL;
    if (pl_val_type(g, w).rank == 2 && !ta) return tall(g, x, w, PL_NO_VAL, tb, &out);
    pl_val y = build(g, x, w, PL_NO_VAL, ta, tb);
    return pl_val_ok(y) ? reshaped(g, y, out.rank, out.dim) : PL_NO_VAL;
}

pl_val pl_linear(pl_graph *g, pl_val x, pl_val w, pl_val bias)
{
    if (!pl_val_ok(x) || !pl_val_ok(w)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x), u = pl_val_type(g, w);
    if (t.rank < 1 || u.rank != 2 || t.dim[t.rank - 1] != u.dim[1]) {
        char s[96], z[96];
        pl_graph_fail(g, PL_ERR_SHAPE, "linear: x %s, w %s; w needs [out, %lld]",
                      pl_type_text(&t, s, sizeof s), pl_type_text(&u, z, sizeof z),
                      (long long)(t.rank ? t.dim[t.rank - 1] : 1));
        return PL_NO_VAL;
    }
    pl_type out = t;
    out.dim[t.rank - 1] = u.dim[0];
    return tall(g, x, w, bias, true, &out);
}
