/* argmax.c - position of the largest element along an axis, as i32; the axis is removed.
 *
 * The first of equals wins, and NaN is larger than any number, so that a broken value is found
 * rather than hidden. The fast kernel keeps a block of columns in cache while it walks down the
 * axis; along the last axis it keeps sixteen candidates side by side.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"
#include "ops/core/via_f32.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_argmax_attr, axis, INT), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_argmax_attr *a = attr;
    char x[96];
    PL_TRY(pl_shape_axis(&a->axis, &in[0]));
    int64_t n = in[0].dim[a->axis];
    PL_FAIL_IF(n < 1 || n > INT32_MAX, PL_ERR_SHAPE, "axis %lld of %s has %lld elements",
               (long long)a->axis, pl_type_text(&in[0], x, sizeof x), (long long)n);
    out[0] = pl_type_make(PL_I32, 0, NULL);
    for (int i = 0; i < in[0].rank; i++)
        if (i != a->axis) out[0].dim[out[0].rank++] = in[0].dim[i];
    return PL_OK;
}

static pl_cost cost(const pl_call *c)
{
    return (pl_cost){(double)pl_type_elems(&c->in_type[0]),
                     (double)pl_type_bytes(&c->in_type[0]) +
                         (double)pl_type_bytes(&c->out_type[0])};
}

static pl_status ref(const pl_call *c)
{
    pl_lines x = pl_shape_lines(&c->in_type[0], ((const pl_argmax_attr *)c->attr)->axis);
    pl_dtype d = c->in_type[0].dtype;
    int32_t *y = c->out[0];
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < x.inner; i++) {
            int64_t base = o * x.size * x.inner + i, best = 0;
            for (int64_t k = 1; k < x.size; k++) {
                double v = pl_elem_get(d, c->in[0], base + k * x.inner);
                double b = pl_elem_get(d, c->in[0], base + best * x.inner);
                if (!isnan(b) && (isnan(v) || v > b)) best = k;
            }
            y[o * x.inner + i] = (int32_t)best;
        }
    return PL_OK;
}

enum { COLUMNS = 512, LANES = 16 };

/* NaN is the largest. */
static inline bool larger(float a, float b)
{
    return (a > b) | ((a != a) & (b == b));
}

/* A contiguous line: each lane keeps its first maximum, then the lanes are compared. */
static int32_t line_argmax(const float *x, int64_t n)
{
    float best[LANES];
    int32_t at[LANES];
    int64_t k = LANES;
    if (n < LANES) {
        k = 1;
        best[0] = x[0];
        at[0] = 0;
    } else {
        for (int i = 0; i < LANES; i++) best[i] = x[i], at[i] = i;
        for (; k + LANES <= n; k += LANES)
            for (int i = 0; i < LANES; i++) {
                bool more = larger(x[k + i], best[i]);
                best[i] = more ? x[k + i] : best[i];
                at[i] = more ? (int32_t)k + i : at[i];
            }
        for (int i = 1; i < LANES; i++) {
            bool tie = !larger(best[0], best[i]) && !larger(best[i], best[0]);
            if (!larger(best[i], best[0]) && !(tie && at[i] < at[0])) continue;
            best[0] = best[i];
            at[0] = at[i];
        }
    }
    for (; k < n; k++)
        if (larger(x[k], best[0])) best[0] = x[k], at[0] = (int32_t)k;
    return at[0];
}

typedef struct job {
    pl_lines x;
    const float *in;
    int32_t *out;
    int64_t blocks; /* of columns in one outer position */
} job;

static void block_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t o = task / j->blocks, first = task % j->blocks * COLUMNS, n = j->x.inner - first;
    if (n > COLUMNS) n = COLUMNS;
    const float *x = j->in + o * j->x.size * j->x.inner + first;
    int32_t *y = j->out + o * j->x.inner + first;
    if (j->x.inner == 1) {
        *y = line_argmax(x, j->x.size);
        return;
    }
    float best[COLUMNS];
    memcpy(best, x, (size_t)n * sizeof *best);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t k = 1; k < j->x.size; k++) {
        x += j->x.inner;
        for (int64_t i = 0; i < n; i++) {
            bool more = larger(x[i], best[i]);
            best[i] = more ? x[i] : best[i];
            y[i] = more ? (int32_t)k : y[i];
        }
    }
}

static pl_status blocks(const pl_call *c)
{
    job j = {pl_shape_lines(&c->in_type[0], ((const pl_argmax_attr *)c->attr)->axis), c->in[0],
             c->out[0], 0};
    j.blocks = (j.x.inner + COLUMNS - 1) / COLUMNS;
    pl_threads_for(j.x.outer * j.blocks, block_task, &j);
    return PL_OK;
}

static bool is_f32(const pl_call *c)
{
    return c->in_type[0].dtype == PL_F32;
}

static const pl_kernel fast[] = {{"blocks", is_f32, NULL, NULL, blocks}, PL_KERNEL_END};
PL_VIA_F32(argmax, fast)
static const pl_kernel kernels[] = {{"blocks", is_f32, NULL, NULL, blocks},
                                    PL_VIA_F32_KERNEL(argmax),
                                    {"ref", NULL, NULL, NULL, ref},
                                    PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[7]"}, "axis=0", {{-2, 2, true}}},
    {{"f32[3,5,2]"}, "axis=1", {{-2, 2, true}}},
    {{"f32[5,1]"}, "axis=-1", {{-2, 2, true}}},
    {{"i32[4,3]"}, "axis=0", {{-3, 3, false}}},
    {{"f32[3,601]"}, "axis=0", {{-2, 2, false}}},
    {{"f32[2,67]"}, "axis=1", {{-2, 2, false}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    int64_t axis = ((const pl_argmax_attr *)c->attr)->axis;
    for (int i = 0; i < c->out_type[0].rank; i++)
        l->in[0][i < axis ? i : i + 1] = l->out[0][i] = (int8_t)(i + 1);
}

/* Along the last axis of a reshape that keeps this axis, the positions are those of the reshaped
 * value: readers of a product's rows then see the product itself. */
static pl_val simplify(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)n_in;
    const pl_node_rec *r = pl_node_get(g, pl_producer(g, in[0].id));
    pl_type t = pl_val_type(g, in[0]);
    if (r->op != &pl_op_reshape || ((const pl_argmax_attr *)attr)->axis != t.rank - 1)
        return PL_NO_VAL;
    pl_val from = {g->edges[r->in]};
    pl_type x = pl_val_type(g, from);
    if (x.rank < 1 || x.dim[x.rank - 1] != t.dim[t.rank - 1]) return PL_NO_VAL;
    return pl_reshape(g, pl_argmax(g, from, -1), t.rank - 1, t.dim);
}

const pl_op pl_op_argmax = {
    .name = "argmax",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_NO_GRAD | PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_argmax_attr),
    .attrs = attrs,
    .infer = infer,
    .cost = cost,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
    .simplify = simplify,
};

pl_val pl_argmax(pl_graph *g, pl_val x, int axis)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_argmax_attr a = {axis};
    return pl_build1(g, &pl_op_argmax, &a, 1, &x);
}
