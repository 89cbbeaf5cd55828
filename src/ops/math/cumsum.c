/* cumsum.c - running sums along an axis: y[k] = x[0] + ... + x[k], or from the end when reversed.
 *
 * Sums run in order, in double (integers in integers), and are rounded when they are written. The
 * result does not depend on threads: threads take whole lines. The gradient is the sum in the other
 * direction.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_cumsum_attr, axis, INT),
    PL_ATTR(pl_cumsum_attr, reverse, BOOL),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    char x[96];
    PL_FAIL_IF(in[0].dtype == PL_BOOL || in[0].dtype == PL_U8, PL_ERR_SHAPE,
               "%s would overflow; cast it to i32 or f32 first", pl_type_text(&in[0], x, sizeof x));
    PL_TRY(pl_shape_axis(&((pl_cumsum_attr *)attr)->axis, &in[0]));
    out[0] = in[0];
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    const pl_cumsum_attr *a = v->attr;
    v->gin[0] = pl_cumsum(v->g, v->gout[0], (int)a->axis, !a->reverse);
}

static pl_status ref(const pl_call *c)
{
    const pl_cumsum_attr *a = c->attr;
    pl_lines x = pl_shape_lines(&c->in_type[0], a->axis);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < x.inner; i++) {
            double sum = 0;
            uint64_t whole = 0; /* a double does not hold every i64 */
            for (int64_t k = 0; k < x.size; k++) {
                int64_t at = (o * x.size + (a->reverse ? x.size - 1 - k : k)) * x.inner + i;
                if (d == PL_I64) {
                    whole += (uint64_t)((const int64_t *)c->in[0])[at];
                    ((int64_t *)c->out[0])[at] = (int64_t)whole;
                } else {
                    sum += pl_elem_get(d, c->in[0], at);
                    pl_elem_set(d, c->out[0], at, sum);
                }
            }
        }
    return PL_OK;
}

enum { COLUMNS = 256 };

typedef struct job {
    pl_lines x;
    const float *in;
    float *out;
    int64_t blocks; /* of columns in one outer position */
    bool reverse;
} job;

static void block_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t o = task / j->blocks, first = task % j->blocks * COLUMNS, n = j->x.inner - first;
    if (n > COLUMNS) n = COLUMNS;
    int64_t step = j->reverse ? -j->x.inner : j->x.inner;
    int64_t at = o * j->x.size * j->x.inner + first;
    if (j->reverse) at += (j->x.size - 1) * j->x.inner;
    if (n == 1) {
        double one = 0;
        for (int64_t k = 0; k < j->x.size; k++, at += step)
            j->out[at] = (float)(one += (double)j->in[at]);
        return;
    }
    double sum[COLUMNS] = {0};
    for (int64_t k = 0; k < j->x.size; k++, at += step)
        for (int64_t i = 0; i < n; i++) {
            sum[i] += (double)j->in[at + i];
            j->out[at + i] = (float)sum[i];
        }
}

static pl_status blocks(const pl_call *c)
{
    const pl_cumsum_attr *a = c->attr;
    job j = {pl_shape_lines(&c->in_type[0], a->axis), c->in[0], c->out[0], 0, a->reverse};
    j.blocks = (j.x.inner + COLUMNS - 1) / COLUMNS;
    pl_threads_for(j.x.outer * j.blocks, block_task, &j);
    return PL_OK;
}

static bool is_f32(const pl_call *c)
{
    return c->in_type[0].dtype == PL_F32;
}

static const pl_kernel kernels[] = {
    {"blocks", is_f32, NULL, NULL, blocks}, {"ref", NULL, NULL, NULL, ref}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[7]"}, "axis=0, reverse=false", {{0}}},
    {{"f32[3,5,2]"}, "axis=1, reverse=true", {{0}}},
    {{"f32[3,1]"}, "axis=-1, reverse=false", {{0}}},
    {{"f32[3,301]"}, "axis=0, reverse=true", {{0}}},
    {{"i64[4,3]"}, "axis=0, reverse=false", {{-9, 9, false}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, ((const pl_cumsum_attr *)c->attr)->axis);
    l->times = 1;
}

const pl_op pl_op_cumsum = {
    .name = "cumsum",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = PL_OP_COUPLES,
    .inplace = {1},
    .attr_bytes = sizeof(pl_cumsum_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
};

pl_val pl_cumsum(pl_graph *g, pl_val x, int axis, bool reverse)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_cumsum_attr a;
    memset(&a, 0, sizeof a);
    a.axis = axis;
    a.reverse = reverse;
    return pl_build1(g, &pl_op_cumsum, &a, 1, &x);
}
