/* sum_squares.c - sums of squares of PL_SQUARES_CHUNK consecutive elements at a time, in f32 (f64
 * for f64 operands): y[c] = sum of x[i]^2 over i / PL_SQUARES_CHUNK = c.
 *
 * For norms over many tensors: the chunks of all of them are summed at once, by one launch on a GPU
 * (cuda/ops/squares.cu), and the sum of the results is one small reduction. The order of sums
 * depends on sizes alone.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "cpu/kernels/vecmath.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "plimsoll_unstable.h"

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    (void)attr;
    char s[96];
    PL_FAIL_IF(!pl_dtype_is_float(in[0].dtype), PL_ERR_SHAPE, "x is %s; needs floats",
               pl_type_text(&in[0], s, sizeof s));
    const int64_t chunks = pl_squares_chunks(pl_type_elems(&in[0]));
    out[0] = pl_type_make(in[0].dtype == PL_F64 ? PL_F64 : PL_F32, 1, &chunks);
    return PL_OK;
}

/* 2 x g of the element's chunk; the last chunk may be longer than x. */
static void vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_type t = pl_val_type(g, v->in[0]);
    int64_t n = pl_type_elems(&t), chunks = pl_squares_chunks(n);
    pl_val each = pl_reshape(g, v->gout[0], PL_DIMS(chunks, 1));
    each = pl_broadcast(g, each, PL_DIMS(chunks, PL_SQUARES_CHUNK));
    each = pl_reshape(g, each, PL_DIMS(chunks * PL_SQUARES_CHUNK));
    each = pl_reshape(g, pl_slice(g, each, 0, 0, n, 1), t.rank, t.dim);
    v->gin[0] = pl_scale(g, pl_mul(g, v->in[0], pl_cast(g, each, t.dtype)), 2);
}

static pl_cost cost(const pl_call *c)
{
    return (pl_cost){2 * (double)pl_type_elems(&c->in_type[0]),
                     (double)pl_type_bytes(&c->in_type[0]) +
                         (double)pl_type_bytes(&c->out_type[0])};
}

static pl_status ref(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[0]), chunks = c->out_type[0].dim[0];
    for (int64_t k = 0; k < chunks; k++) {
        double sum = 0;
        for (int64_t i = k * PL_SQUARES_CHUNK; i < n && i < (k + 1) * PL_SQUARES_CHUNK; i++) {
            double x = ref_get(c->in_type[0].dtype, c->in[0], i);
            sum += x * x;
        }
        ref_set(c->out_type[0].dtype, c->out[0], k, sum);
    }
    return PL_OK;
}

/* ---- chunks on threads ------------------------------------------------------------------ */
enum { LANES = 32 };

/* n is at most PL_SQUARES_CHUNK. */
#define CHUNK_SUM(name, T, value)                                                                  \
 static float name(const T *x, int64_t n)                                                          \
 {                                                                                                 \
  float lane[LANES] = {0};                                                                         \
  double sum = 0;                                                                                  \
  int64_t i = 0;                                                                                   \
  for (; i + LANES <= n; i += LANES)                                                               \
   for (int k = 0; k < LANES; k++) {                                                               \
    float v = value(x[i + k]);                                                                     \
    lane[k] += v * v;                                                                              \
   }                                                                                               \
  for (int k = 0; i < n; i++, k++) {                                                               \
   float v = value(x[i]);                                                                          \
   lane[k] += v * v;                                                                               \
  }                                                                                                \
  for (int k = 0; k < LANES; k++) sum += (double)lane[k];                                          \
  return (float)sum;                                                                               \
 }
#define SAME(v)    (v)
#define OF_BF16(v) vm_float((uint32_t)(v) << 16)
CHUNK_SUM(sum_f32, float, SAME)
CHUNK_SUM(sum_bf16, uint16_t, OF_BF16)
CHUNK_SUM(sum_f16, uint16_t, vm_f16_to_f32)

static void chunk_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const pl_call *c = ctx;
    int64_t n = pl_type_elems(&c->in_type[0]), at = task * PL_SQUARES_CHUNK;
    if (n - at < PL_SQUARES_CHUNK)
        n -= at;
    else
        n = PL_SQUARES_CHUNK;
    const uint16_t *narrow = (const uint16_t *)c->in[0] + at;
    pl_dtype d = c->in_type[0].dtype;
    ((float *)c->out[0])[task] = d == PL_F32    ? sum_f32((const float *)c->in[0] + at, n)
                                 : d == PL_BF16 ? sum_bf16(narrow, n)
                                                : sum_f16(narrow, n);
}

static bool not_f64(const pl_call *c)
{
    return c->in_type[0].dtype != PL_F64;
}

static pl_status chunks_run(const pl_call *c)
{
    pl_call call = *c;
    pl_threads_for(c->out_type[0].dim[0], chunk_task, &call);
    return PL_OK;
}

static const pl_kernel kernels[] = {
    {"chunks", not_f64, NULL, NULL, chunks_run}, {"ref", NULL, NULL, NULL, ref}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[1]"}, "", {{0}}},      {{"f32[3,5]"}, "", {{0}}},     {{"f32[0,4]"}, "", {{0}}},
    {{"f32[2,8193]"}, "", {{0}}}, {{"f32[33,1000]"}, "", {{0}}}, PL_CASE_END,
};

const pl_op pl_op_sum_squares = {
    .name = "sum_squares",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .vjp = vjp,
    .cost = cost,
    .cpu = kernels,
    .cases = cases,
};

pl_val pl_sum_squares(pl_graph *g, pl_val x)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    return pl_build1(g, &pl_op_sum_squares, NULL, 1, &x);
}
