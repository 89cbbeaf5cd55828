/* roll.c - y[.., i, ..] = x[.., (i - shift) mod n, ..]: a rotation along one axis.
 *
 * Elements only move, so every dtype works, and the gradient is the rotation back. A rotation is
 * two runs of bytes for each index outside the axis: the last `shift` rows come first, then the
 * rest. The shift is any whole number; infer reduces it to 0 .. n - 1.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_roll_attr, axis, INT),
    PL_ATTR(pl_roll_attr, shift, INT),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_roll_attr *a = attr;
    PL_TRY(pl_shape_axis(&a->axis, &in[0]));
    int64_t n = in[0].dim[a->axis];
    a->shift = n == 0 ? 0 : a->shift % n;
    if (a->shift < 0) a->shift += n;
    out[0] = in[0];
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    const pl_roll_attr *a = v->attr;
    v->gin[0] = pl_roll(v->g, v->gout[0], (int)a->axis, -a->shift);
}

static pl_status ref(const pl_call *c)
{
    const pl_roll_attr *a = c->attr;
    pl_lines x = pl_shape_lines(&c->in_type[0], a->axis);
    size_t elem = pl_dtype_bytes(c->in_type[0].dtype);
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t k = 0; k < x.size; k++)
            for (int64_t i = 0; i < x.inner; i++) {
                int64_t from = (o * x.size + (k - a->shift + x.size) % x.size) * x.inner + i;
                int64_t to = (o * x.size + k) * x.inner + i;
                memcpy((char *)c->out[0] + (size_t)to * elem,
                       (const char *)c->in[0] + (size_t)from * elem, elem);
            }
    return PL_OK;
}

/* A task is one piece of the output; pieces do not end where the runs of bytes do. */
enum { PIECE = 1 << 16 };

typedef struct job {
    const char *in;
    char *out;
    int64_t line, head, bytes; /* bytes of one outer index, of its rows that come first, of all */
} job;

static void piece_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t at = task * PIECE, end = at + PIECE < j->bytes ? at + PIECE : j->bytes;
    while (at < end) {
        int64_t in_line = at % j->line, start = at - in_line;
        bool first = in_line < j->head;
        int64_t from = start + in_line + (first ? j->line - j->head : -j->head);
        int64_t stop = start + (first ? j->head : j->line);
        if (stop > end) stop = end;
        memcpy(j->out + at, j->in + from, (size_t)(stop - at));
        at = stop;
    }
}

static pl_status runs(const pl_call *c)
{
    const pl_roll_attr *a = c->attr;
    pl_lines x = pl_shape_lines(&c->in_type[0], a->axis);
    int64_t row = x.inner * (int64_t)pl_dtype_bytes(c->in_type[0].dtype);
    job j = {.in = c->in[0],
             .out = c->out[0],
             .line = x.size * row,
             .head = a->shift * row,
             .bytes = x.outer * x.size * row};
    pl_threads_for((j.bytes + PIECE - 1) / PIECE, piece_task, &j);
    return PL_OK;
}

static const pl_kernel kernels[] = {
    {.name = "runs", .run = runs}, {.name = "ref", .run = ref}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[7]"}, "axis=0, shift=2", {{0}}},
    {{"f32[3,5,2]"}, "axis=1, shift=-1", {{0}}},
    {{"f32[3,5]"}, "axis=-1, shift=0", {{0}}},
    {{"f32[3,5]"}, "axis=-2, shift=7", {{0}}},
    {{"f32[1,4]"}, "axis=0, shift=3", {{0}}},
    {{"f32[2,0]"}, "axis=1, shift=3", {{0}}},
    {{"f32[3,200,70]"}, "axis=1, shift=-533", {{0}}},
    {{"u8[3,5]"}, "axis=1, shift=3", {{0, 255, false}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, ((const pl_roll_attr *)c->attr)->axis);
    l->times = 1;
}

const pl_op pl_op_roll = {
    .name = "roll",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_roll_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
};

pl_val pl_roll(pl_graph *g, pl_val x, int axis, int64_t shift)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_roll_attr a;
    memset(&a, 0, sizeof a);
    a.axis = axis;
    a.shift = shift;
    return pl_build1(g, &pl_op_roll, &a, 1, &x);
}
