/* random.c - uniform and normal draws, random order, dropout.
 *
 * Input 0 is the key, i64[2] = {seed, step}; the attribute `stream` distinguishes the draws of one
 * step. A draw is a pure function of (seed, stream, step, element) (base/rng.h), so a node may be
 * recomputed instead of stored, on any device and with any number of threads. Element i is word i%4
 * of block i/4; normals come in pairs from two words.
 *
 * A uniform number is below 1 in every dtype (cpu/kernels/draw.h). Groups draw the numbers that
 * they read, which need no memory; the kernels here serve other readers. Dropout compares f32 draws
 * with p: the mask is never stored but is an expression of the key, which fuses with its readers
 * and is recomputed for the backward pass.
 */
#include "base/dtype.h"
#include "base/rng.h"
#include "base/threads.h"
#include "cpu/kernels/draw.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_random_attr, dtype, DTYPE),
    PL_ATTR(pl_random_attr, shape, DIMS),
    PL_ATTR(pl_random_attr, stream, INT),
    PL_ATTR_END,
};

static pl_status check_key(const pl_type *key)
{
    char x[96];
    pl_type want = PL_TYPE(PL_I64, 2);
    PL_FAIL_IF(!pl_type_equal(key, &want), PL_ERR_SHAPE,
               "the key must be i64[2] = {seed, step}, got %s", pl_type_text(key, x, sizeof x));
    return PL_OK;
}

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_random_attr *a = attr;
    PL_TRY(check_key(&in[0]));
    PL_FAIL_IF(a->dtype >= PL_N_DTYPES || !pl_dtype_is_float(a->dtype), PL_ERR_ARG,
               "draws need a float type, got %s", pl_dtype_name(a->dtype));
    for (int i = 0; i < a->shape.n; i++)
        PL_FAIL_IF(a->shape.v[i] < 0, PL_ERR_SHAPE, "size %lld", (long long)a->shape.v[i]);
    out[0] = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    return PL_OK;
}

/* A generator costs arithmetic, not bytes: about 20 operations a word, 60 for a normal. */
static pl_cost cost_of(const pl_call *c, double flops)
{
    return (pl_cost){flops * (double)pl_type_elems(&c->out_type[0]),
                     (double)pl_type_bytes(&c->out_type[0]) + 16};
}

static pl_cost uniform_cost(const pl_call *c)
{
    return cost_of(c, 20);
}

static pl_cost normal_cost(const pl_call *c)
{
    return cost_of(c, 60);
}

/* Each element is swapped with an earlier one. */
static pl_cost order_cost(const pl_call *c)
{
    pl_cost k = cost_of(c, 20);
    return (pl_cost){k.flops, k.bytes, PL_WORK_CHAIN, (double)pl_type_elems(&c->out_type[0]), 1, 1};
}

/* ---- draws ------------------------------------------------------------------------------ */
/* Four elements of block b. */
typedef void draw_fn(uint64_t seed, uint32_t stream, uint64_t step, uint64_t b, pl_dtype d,
                     float out[4]);

static void draw_uniform(uint64_t seed, uint32_t stream, uint64_t step, uint64_t b, pl_dtype d,
                         float out[4])
{
    uint32_t w[4];
    pl_rng_block(seed, stream, step, b, w);
    for (int i = 0; i < 4; i++) out[i] = pl_rng_uniform(w[i] & pl_draw_bits(d));
}

static void draw_normal(uint64_t seed, uint32_t stream, uint64_t step, uint64_t b, pl_dtype d,
                        float out[4])
{
    (void)d;
    uint32_t w[4];
    pl_rng_block(seed, stream, step, b, w);
    pl_rng_normal2(w[0], w[1], out);
    pl_rng_normal2(w[2], w[3], out + 2);
}

/* Elements [lo, hi), lo a multiple of 4. */
static void draw_range(const pl_call *c, draw_fn *draw, int64_t lo, int64_t hi)
{
    const int64_t *key = c->in[0];
    const pl_random_attr *a = c->attr;
    for (int64_t i = lo; i < hi; i += 4) {
        float v[4];
        draw((uint64_t)key[0], (uint32_t)a->stream, (uint64_t)key[1], (uint64_t)i / 4, a->dtype, v);
        int64_t n = hi - i < 4 ? hi - i : 4;
        for (int64_t k = 0; k < n; k++) pl_elem_set(a->dtype, c->out[0], i + k, (double)v[k]);
    }
}

/* The same in blocks, shared among threads. */
enum { CHUNK = 4096, BATCH = 256 };

typedef struct job {
    const pl_call *c;
    int64_t n;
    bool normal;
} job;

static void chunk_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const int64_t *key = j->c->in[0];
    const pl_random_attr *a = j->c->attr;
    pl_draws from = {(uint64_t)key[0], (uint64_t)key[1], (uint32_t)a->stream, j->normal, a->dtype};
    int64_t lo = task * CHUNK, hi = lo + CHUNK < j->n ? lo + CHUNK : j->n;
    if (a->dtype == PL_F32) {
        pl_draw_run(&from, lo, hi - lo, (float *)j->c->out[0] + lo);
        return;
    }
    for (int64_t i = lo; i < hi; i += BATCH) {
        float v[BATCH];
        int64_t n = hi - i < BATCH ? hi - i : BATCH;
        pl_draw_run(&from, i, n, v);
        for (int64_t k = 0; k < n; k++) pl_elem_set(a->dtype, j->c->out[0], i + k, (double)v[k]);
    }
}

static pl_status by_block(const pl_call *c, bool normal)
{
    job j = {c, pl_type_elems(&c->out_type[0]), normal};
    pl_threads_for((j.n + CHUNK - 1) / CHUNK, chunk_task, &j);
    return PL_OK;
}

static pl_status uniform_blocks(const pl_call *c)
{
    return by_block(c, false);
}

static pl_status normal_blocks(const pl_call *c)
{
    return by_block(c, true);
}

static pl_status uniform_ref(const pl_call *c)
{
    draw_range(c, draw_uniform, 0, pl_type_elems(&c->out_type[0]));
    return PL_OK;
}

static pl_status normal_ref(const pl_call *c)
{
    draw_range(c, draw_normal, 0, pl_type_elems(&c->out_type[0]));
    return PL_OK;
}

static const pl_kernel uniform_kernels[] = {{"blocks", NULL, NULL, NULL, uniform_blocks},
                                            {"ref", NULL, NULL, NULL, uniform_ref},
                                            PL_KERNEL_END};
static const pl_kernel normal_kernels[] = {{"blocks", NULL, NULL, NULL, normal_blocks},
                                           {"ref", NULL, NULL, NULL, normal_ref},
                                           PL_KERNEL_END};
static const pl_case cases[] = {
    {{"i64[2]"}, "dtype=f32, shape=[7], stream=1", {{0, 99, false}}},
    {{"i64[2]"}, "dtype=f32, shape=[3,1,5], stream=2", {{0, 99, false}}},
    {{"i64[2]"}, "dtype=bf16, shape=[9], stream=3", {{0, 99, false}}},
    {{"i64[2]"}, "dtype=f16, shape=[9], stream=3", {{0, 99, false}}},
    {{"i64[2]"}, "dtype=f32, shape=[2,4099], stream=4", {{0, 99, false}}},
    {{"i64[2]"}, "dtype=f64, shape=[], stream=4", {{0, 99, false}}},
    PL_CASE_END,
};

static void uniform_drawing(const void *attr, pl_drawing *out)
{
    *out = (pl_drawing){(uint32_t)((const pl_random_attr *)attr)->stream, false};
}

static void normal_drawing(const void *attr, pl_drawing *out)
{
    *out = (pl_drawing){(uint32_t)((const pl_random_attr *)attr)->stream, true};
}

#define RANDOM_OP(fn, kernel_list, cost_fn)                                                        \
 const pl_op pl_op_random_##fn = {                                                                 \
     .name = "random_" #fn,                                                                        \
     .min_in = 1,                                                                                  \
     .max_in = 1,                                                                                  \
     .n_out = 1,                                                                                   \
     .flags = PL_OP_RANDOM | PL_OP_NO_GRAD | PL_OP_DRAW,                                           \
     .attr_bytes = sizeof(pl_random_attr),                                                         \
     .attrs = attrs,                                                                               \
     .infer = infer,                                                                               \
     .cost = cost_fn,                                                                              \
     .cpu = kernel_list,                                                                           \
     .cases = cases,                                                                               \
     .drawing = fn##_drawing,                                                                      \
 };
RANDOM_OP(uniform, uniform_kernels, uniform_cost)
RANDOM_OP(normal, normal_kernels, normal_cost)

/* ---- random order ----------------------------------------------------------------------- */
static const pl_attr order_attrs[] = {
    PL_ATTR(pl_order_attr, n, INT),
    PL_ATTR(pl_order_attr, stream, INT),
    PL_ATTR_END,
};

static pl_status order_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_order_attr *a = attr;
    PL_TRY(check_key(&in[0]));
    PL_FAIL_IF(a->n < 0 || a->n > INT32_MAX, PL_ERR_ARG,
               "n is %lld; a random order has 0 to 2^31 - 1 elements", (long long)a->n);
    out[0] = pl_type_make(PL_I32, 1, &a->n);
    return PL_OK;
}

/* Fisher-Yates shuffle, from the end; element i takes word i to choose among i + 1 (scaling 32 bits
 * instead of rejecting has a bias below n/2^32). */
static pl_status order_ref(const pl_call *c)
{
    const pl_order_attr *a = c->attr;
    const int64_t *key = c->in[0];
    int32_t *y = c->out[0];
    uint32_t w[4];
    for (int64_t i = 0; i < a->n; i++) y[i] = (int32_t)i;
    int64_t have = -1;
    for (int64_t i = a->n - 1; i > 0; i--) {
        if (i / 4 != have) {
            have = i / 4;
            pl_rng_block((uint64_t)key[0], (uint32_t)a->stream, (uint64_t)key[1], (uint64_t)have,
                         w);
        }
        int64_t j = (int64_t)(((uint64_t)w[i % 4] * (uint64_t)(i + 1)) >> 32);
        int32_t t = y[i];
        y[i] = y[j];
        y[j] = t;
    }
    return PL_OK;
}

static const pl_kernel order_kernels[] = {{"ref", NULL, NULL, NULL, order_ref}, PL_KERNEL_END};
static const pl_case order_cases[] = {
    {{"i64[2]"}, "n=1, stream=1", {{0, 99, false}}},
    {{"i64[2]"}, "n=17, stream=2", {{0, 99, false}}},
    {{"i64[2]"}, "n=5003, stream=3", {{0, 99, false}}},
    PL_CASE_END,
};
const pl_op pl_op_random_permutation = {
    .name = "random_permutation",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = PL_OP_RANDOM | PL_OP_NO_GRAD | PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_order_attr),
    .attrs = order_attrs,
    .infer = order_infer,
    .cost = order_cost,
    .cpu = order_kernels,
    .cases = order_cases,
};

/* ---- constructors ----------------------------------------------------------------------- */
pl_val pl_rng_key(pl_graph *g)
{
    if (!g || g->status != PL_OK) return PL_NO_VAL;
    pl_slot slot;
    memset(&slot, 0, sizeof slot);
    slot.name = "rng";
    slot.type = PL_TYPE(PL_I64, 2);
    slot.kind = PL_SLOT_COUNTER;
    slot.init = (pl_init){PL_INIT_CONST, 0, 0};
    return pl_state(g, pl_store_add(g->store, &slot));
}

/* With several ranks each rank has its samples' part of the draw that one rank would make for all
 * of them; a group that reads it draws that part only. */
static pl_val draw(pl_graph *g, const pl_op *op, pl_val key, const pl_type *t)
{
    if (!pl_val_ok(key)) return PL_NO_VAL;
    pl_random_attr a;
    memset(&a, 0, sizeof a);
    a.dtype = t->dtype;
    a.shape.n = t->rank;
    memcpy(a.shape.v, t->dim, sizeof a.shape.v);
    a.stream = pl_graph_next_stream(g);
    const pl_spread *s = g->spread;
    int axis = s && (uint64_t)a.stream < s->n_draws ? s->draw_axis[a.stream] - 1 : -1;
    if (axis < 0 || axis >= t->rank) return pl_build1(g, op, &a, 1, &key);
    int64_t own = t->dim[axis];
    a.shape.v[axis] = own * s->ranks;
    pl_val all = pl_build1(g, op, &a, 1, &key);
    return pl_slice(g, all, axis, s->rank * own, (s->rank + 1) * own, 1);
}

pl_val pl_random_uniform(pl_graph *g, pl_val key, pl_type type)
{
    return draw(g, &pl_op_random_uniform, key, &type);
}

pl_val pl_random_normal(pl_graph *g, pl_val key, pl_type type)
{
    return draw(g, &pl_op_random_normal, key, &type);
}

pl_val pl_random_permutation(pl_graph *g, pl_val key, int64_t n)
{
    if (!pl_val_ok(key)) return PL_NO_VAL;
    pl_order_attr a = {n, pl_graph_next_stream(g)};
    return pl_build1(g, &pl_op_random_permutation, &a, 1, &key);
}

/* Returns x/(1-p) where a draw of shape t (which broadcasts over x) is at least p, else 0. */
static pl_val drop(pl_graph *g, pl_val x, pl_val key, double p, pl_type t)
{
    if (!pl_val_ok(x) || !pl_val_ok(key)) return PL_NO_VAL;
    if (!(p >= 0 && p <= 1) || !pl_dtype_is_float(t.dtype)) {
        pl_graph_fail(g, PL_ERR_ARG, "dropout of %s with probability %g", pl_dtype_name(t.dtype),
                      p);
        return PL_NO_VAL;
    }
    if (p == 0) return x;
    pl_val none = pl_full_like(g, x, 0);
    if (p == 1) return none;
    t.dtype = PL_F32; /* p keeps its precision for every dtype of x */
    pl_val u = pl_random_uniform(g, key, t);
    return pl_select(g, pl_ge(g, u, pl_full_like(g, u, p)), pl_scale(g, x, 1 / (1 - p)), none);
}

pl_val pl_dropout(pl_graph *g, pl_val x, pl_val key, double p)
{
    return drop(g, x, key, p, pl_val_type(g, x));
}

pl_val pl_dropout_channels(pl_graph *g, pl_val x, pl_val key, double p)
{
    pl_type t = pl_val_type(g, x);
    for (int i = 1; i + 1 < t.rank; i++) t.dim[i] = 1;
    return drop(g, x, key, p, t);
}
