/* adaptive_pool.c - averages over windows that PyTorch's adaptive pools choose: the size of the
 * result is the attribute, and window i of n over s elements is [floor(i*s/n), ceil((i+1)*s/n)).
 *
 *   adaptive_avg_pool, adaptive_avg_pool_bwd   an adjoint pair of linear maps (taps.h)
 */
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/taps.h"
#include "ops/net/window.h"

#include <string.h>

typedef struct averaging {
    const int64_t *in, *out;
} averaging;

static bool taps_of(const void *ctx, int d, int64_t i, int64_t k, int64_t *index, double *weight)
{
    const averaging *v = ctx;
    int64_t lo = i * v->in[d] / v->out[d];
    int64_t hi = ((i + 1) * v->in[d] + v->out[d] - 1) / v->out[d];
    *index = lo + k;
    *weight = 1.0 / (double)(hi - lo);
    return lo + k < hi;
}

#define AVERAGE_TAPS(op, x, y, adjoint)                                                            \
 static pl_status op##_taps(const pl_call *c, pl_taps **t)                                         \
 {                                                                                                 \
  averaging v = {c->x[0].dim + 1, c->y[0].dim + 1};                                                \
  return pl_taps_new(c->x[0].rank - 2, v.in, v.out, taps_of, &v, adjoint, t);                      \
 }                                                                                                 \
 PL_TAPS_KERNELS(op)
AVERAGE_TAPS(adaptive_avg_pool, in_type, out_type, false)
AVERAGE_TAPS(adaptive_avg_pool_bwd, out_type, in_type, true)

static const pl_attr attrs[] = {PL_ATTR(pl_adaptive_attr, size, DIMS), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_adaptive_attr *a = attr;
    PL_TRY(pl_window_rank("x", &in[0]));
    PL_TRY(pl_window_need("size", &a->size, in[0].rank - 2));
    out[0] = in[0];
    for (int d = 0; d < a->size.n; d++) out[0].dim[1 + d] = a->size.v[d];
    return PL_OK;
}

/* Windows cover x about once. */
static pl_cost cost(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[0]), m = pl_type_elems(&c->out_type[0]);
    return (pl_cost){2 * (double)(n > m ? n : m), operand_bytes(c)};
}

static const pl_case cases[] = {{{"f32[2,6,5,3]"}, "size=[1,1]", {{0}}},
                                {{"f32[1,7,5,130]"}, "size=[3,2]", {{0}}},
                                {{"f32[1,3,4,2]"}, "size=[6,6]", {{0}}},
                                {{"f32[2,5,3]"}, "size=[2]", {{0}}},
                                PL_CASE_END};

PL_TAPS_SIZED_OP(adaptive_avg_pool, pl_adaptive_attr, adaptive_avg_pool_bwd)
PL_TAPS_SIZED_OP(adaptive_avg_pool_bwd, pl_adaptive_attr, adaptive_avg_pool)

pl_val pl_adaptive_avg_pool(pl_graph *g, pl_val x, const int64_t *out)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_adaptive_attr a;
    memset(&a, 0, sizeof a);
    int n = pl_val_type(g, x).rank - 2;
    a.size.n = n < 0 ? 0 : n;
    for (int d = 0; d < n; d++) a.size.v[d] = out[d];
    return pl_build1(g, &pl_op_adaptive_avg_pool, &a, 1, &x);
}
