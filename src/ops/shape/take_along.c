/* take_along.c - elements picked by index along one axis, and added by index; adjoint to each
 * other.
 *
 *   take_along     y[.., i, ..] = x[.., indices[.., i, ..], ..]
 *   put_along_add  y[.., r, ..] = sum of updates[.., i, ..] with indices[.., i, ..] = r
 *
 * Indices are i32 or i64 and have the shape of the side they pick for; all other dims agree. An
 * index out of range never touches memory: take_along gives NaN (0 for integers), put_along_add
 * leaves the update out. Sums run in index order, in f32 for bf16 and f16, and round once; threads
 * take whole columns, so the order is the same for any number of threads.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <math.h>
#include <string.h>

static int64_t index_at(const pl_type *t, const void *p, int64_t i)
{
    return t->dtype == PL_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* The values and the indices are of one rank and agree off the axis. */
static pl_status check(const pl_type *x, const pl_type *indices, int64_t *axis)
{
    char a[96], b[96];
    PL_FAIL_IF(indices->dtype != PL_I32 && indices->dtype != PL_I64, PL_ERR_SHAPE,
               "indices must be i32 or i64, got %s", pl_type_text(indices, a, sizeof a));
    PL_TRY(pl_shape_axis(axis, x));
    bool fits = x->rank == indices->rank;
    for (int i = 0; fits && i < x->rank; i++) fits = i == *axis || x->dim[i] == indices->dim[i];
    PL_FAIL_IF(!fits, PL_ERR_SHAPE, "values %s and indices %s may differ only along axis %lld",
               pl_type_text(x, a, sizeof a), pl_type_text(indices, b, sizeof b), (long long)*axis);
    return PL_OK;
}

/* ---- take_along ------------------------------------------------------------------------- */
static const pl_attr take_attrs[] = {PL_ATTR(pl_along_attr, axis, INT), PL_ATTR_END};

static pl_status take_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    PL_TRY(check(&in[0], &in[1], &((pl_along_attr *)attr)->axis));
    out[0] = in[1];
    out[0].dtype = in[0].dtype;
    return PL_OK;
}

static void take_vjp(const pl_vjp *v)
{
    int axis = (int)((const pl_along_attr *)v->attr)->axis;
    if (!v->need[0]) return;
    v->gin[0] =
        pl_put_along_add(v->g, v->gout[0], v->in[1], axis, pl_val_type(v->g, v->in[0]).dim[axis]);
}

/* Returns the value for an index out of range. */
static double nothing(pl_dtype d)
{
    return pl_dtype_is_float(d) ? (double)NAN : 0;
}

static pl_status take_ref(const pl_call *c)
{
    int64_t axis = ((const pl_along_attr *)c->attr)->axis;
    pl_dtype d = c->in_type[0].dtype;
    size_t elem = pl_dtype_bytes(d);
    pl_lines x = pl_shape_lines(&c->in_type[0], axis), y = pl_shape_lines(&c->out_type[0], axis);
    int64_t n = y.outer * y.size * y.inner;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = index_at(&c->in_type[1], c->in[1], i);
        int64_t from = (i / (y.size * y.inner) * x.size + r) * x.inner + i % y.inner;
        if (r >= 0 && r < x.size)
            memcpy((char *)c->out[0] + (size_t)i * elem,
                   (const char *)c->in[0] + (size_t)from * elem, elem);
        else
            pl_elem_set(d, c->out[0], i, nothing(d));
    }
    return PL_OK;
}

typedef struct take_job {
    const pl_call *c;
    pl_lines x, y;
    int64_t per_task; /* rows of the output, each of y.inner elements */
} take_job;

#define TAKE_ROW(name, T)                                                                          \
 static void name(const take_job *j, int64_t row)                                                  \
 {                                                                                                 \
  const pl_call *c = j->c;                                                                         \
  const T *x = (const T *)c->in[0] + row / j->y.size * j->x.size * j->x.inner;                     \
  T *y = (T *)c->out[0] + row * j->y.inner, none;                                                  \
  pl_elem_set(c->in_type[0].dtype, &none, 0, nothing(c->in_type[0].dtype));                        \
  for (int64_t k = 0; k < j->y.inner; k++) {                                                       \
   int64_t r = index_at(&c->in_type[1], c->in[1], row * j->y.inner + k);                           \
   y[k] = r >= 0 && r < j->x.size ? x[r * j->x.inner + k] : none;                                  \
  }                                                                                                \
 }
TAKE_ROW(take_row1, uint8_t)
TAKE_ROW(take_row2, uint16_t)
TAKE_ROW(take_row4, uint32_t)
TAKE_ROW(take_row8, uint64_t)

static void take_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const take_job *j = ctx;
    size_t elem = pl_dtype_bytes(j->c->in_type[0].dtype);
    void (*row)(const take_job *, int64_t) = elem == 4   ? take_row4
                                             : elem == 8 ? take_row8
                                             : elem == 2 ? take_row2
                                                         : take_row1;
    int64_t rows = j->y.outer * j->y.size, hi = (task + 1) * j->per_task;
    if (hi > rows) hi = rows;
    for (int64_t r = task * j->per_task; r < hi; r++) row(j, r);
}

static pl_status take_rows(const pl_call *c)
{
    int64_t axis = ((const pl_along_attr *)c->attr)->axis;
    take_job j = {c, pl_shape_lines(&c->in_type[0], axis), pl_shape_lines(&c->out_type[0], axis),
                  1};
    if (j.y.inner == 0) return PL_OK;
    j.per_task = j.y.inner < 8192 ? 8192 / j.y.inner : 1;
    pl_threads_for((j.y.outer * j.y.size + j.per_task - 1) / j.per_task, take_task, &j);
    return PL_OK;
}

static const pl_kernel take_kernels[] = {
    {"rows", NULL, NULL, NULL, take_rows}, {"ref", NULL, NULL, NULL, take_ref}, PL_KERNEL_END};
static const pl_case take_cases[] = {
    {{"f32[5]", "i32[3]"}, "axis=0", {{0, 0, false}, {0, 4, false}}},
    {{"f32[3,5,2]", "i32[3,4,2]"}, "axis=1", {{0, 0, false}, {0, 4, false}}},
    {{"f32[4,7]", "i64[4,1]"}, "axis=-1", {{0, 0, false}, {0, 6, false}}},
    {{"f32[1,3]", "i32[6,3]"}, "axis=0", {{0, 0, false}, {0, 0.5, false}}},
    {{"u8[2,4]", "i32[2,3]"}, "axis=1", {{0, 255, false}, {0, 3, false}}},
    PL_CASE_END,
};
static void take_labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, ((const pl_along_attr *)c->attr)->axis);
    l->times = 1;
}

const pl_op pl_op_take_along = {
    .name = "take_along",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_along_attr),
    .attrs = take_attrs,
    .infer = take_infer,
    .vjp = take_vjp,
    .cpu = take_kernels,
    .cases = take_cases,
    .labels = take_labels,
};

pl_val pl_take_along(pl_graph *g, pl_val x, pl_val indices, int axis)
{
    if (!pl_val_ok(x) || !pl_val_ok(indices)) return PL_NO_VAL;
    pl_along_attr a = {axis};
    return pl_build1(g, &pl_op_take_along, &a, 2, (pl_val[]){x, indices});
}

/* ---- put_along_add ---------------------------------------------------------------------- */
static const pl_attr put_attrs[] = {
    PL_ATTR(pl_put_attr, axis, INT),
    PL_ATTR(pl_put_attr, size, INT),
    PL_ATTR_END,
};

static pl_status put_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_put_attr *a = attr;
    char x[96], y[96];
    PL_TRY(check(&in[0], &in[1], &a->axis));
    PL_FAIL_IF(in[0].dim[a->axis] != in[1].dim[a->axis], PL_ERR_SHAPE,
               "updates %s and indices %s must have the same shape",
               pl_type_text(&in[0], x, sizeof x), pl_type_text(&in[1], y, sizeof y));
    PL_FAIL_IF(in[0].dtype == PL_BOOL || in[0].dtype == PL_U8, PL_ERR_SHAPE,
               "%s would overflow; cast it to i32 or f32 first", pl_type_text(&in[0], x, sizeof x));
    PL_FAIL_IF(a->size < 0, PL_ERR_ARG, "size %lld", (long long)a->size);
    out[0] = in[0];
    out[0].dim[a->axis] = a->size;
    return PL_OK;
}

static void put_vjp(const pl_vjp *v)
{
    if (v->need[0])
        v->gin[0] =
            pl_take_along(v->g, v->gout[0], v->in[1], (int)((const pl_put_attr *)v->attr)->axis);
}

static pl_status put_ref(const pl_call *c)
{
    const pl_put_attr *a = c->attr;
    pl_dtype d = c->in_type[0].dtype;
    pl_lines u = pl_shape_lines(&c->in_type[0], a->axis);
    int64_t n = pl_type_elems(&c->out_type[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = i / (a->size * u.inner), r = i / u.inner % a->size;
        double sum = 0;
        uint64_t whole = 0; /* a double does not hold every i64 */
        for (int64_t k = 0; k < u.size; k++) {
            int64_t from = (o * u.size + k) * u.inner + i % u.inner;
            if (index_at(&c->in_type[1], c->in[1], from) != r) continue;
            if (d == PL_I64)
                whole += (uint64_t)((const int64_t *)c->in[0])[from];
            else
                sum += pl_elem_get(d, c->in[0], from);
        }
        if (d == PL_I64)
            ((int64_t *)c->out[0])[i] = (int64_t)whole;
        else
            pl_elem_set(d, c->out[0], i, sum);
    }
    return PL_OK;
}

/* A block of columns of one outer position is summed in place; bf16 and f16 in an f32 copy of the
 * block that lies in the slot's scratch. */
enum { COLUMNS = 512 };

typedef struct put_job {
    const pl_call *c;
    pl_lines u;
    int64_t size, blocks, slots;
} put_job;

#define PUT_BLOCK(name, T, A, GET)                                                                 \
 static void name(const put_job *j, A *y, int64_t stride, int64_t o, int64_t first, int64_t cols)  \
 {                                                                                                 \
  const pl_call *c = j->c;                                                                         \
  bool dense = stride == cols;                                                                     \
  int64_t runs = dense ? 1 : j->size, run = dense ? j->size * cols : cols;                         \
  for (int64_t r = 0; r < runs; r++) memset(y + r * stride, 0, (size_t)run * sizeof *y);           \
  for (int64_t i = 0; i < j->u.size; i++) {                                                        \
   int64_t at = (o * j->u.size + i) * j->u.inner + first;                                          \
   const T *u = (const T *)c->in[0] + at;                                                          \
   for (int64_t k = 0; k < cols; k++) {                                                            \
    int64_t r = index_at(&c->in_type[1], c->in[1], at + k);                                        \
    if (r >= 0 && r < j->size) y[r * stride + k] += GET(u[k]);                                     \
   }                                                                                               \
  }                                                                                                \
 }
PUT_BLOCK(put_f32, float, float, )
PUT_BLOCK(put_f64, double, double, )
PUT_BLOCK(put_bf16, uint16_t, float, pl_bf16_to_f32)
PUT_BLOCK(put_f16, uint16_t, float, pl_f16_to_f32)
PUT_BLOCK(put_i32, uint32_t, uint32_t, )
PUT_BLOCK(put_i64, uint64_t, uint64_t, )

static bool is_half(pl_dtype d)
{
    return d == PL_BF16 || d == PL_F16;
}

/* Scratch elements of a slot. */
static int64_t block_elems(const put_job *j)
{
    return j->size * (j->u.inner < COLUMNS ? j->u.inner : COLUMNS);
}

static void put_block(const put_job *j, int64_t slot, int64_t task)
{
    pl_dtype d = j->c->in_type[0].dtype;
    int64_t o = task / j->blocks, first = task % j->blocks * COLUMNS, inner = j->u.inner;
    int64_t cols = inner - first < COLUMNS ? inner - first : COLUMNS;
    int64_t at = o * j->size * inner + first;
    if (is_half(d)) {
        float *sum = (float *)j->c->work + slot * block_elems(j);
        (d == PL_BF16 ? put_bf16 : put_f16)(j, sum, cols, o, first, cols);
        uint16_t *y = (uint16_t *)j->c->out[0] + at;
        for (int64_t r = 0; r < j->size; r++)
            for (int64_t k = 0; k < cols; k++) {
                float s = sum[r * cols + k];
                y[r * inner + k] = d == PL_BF16 ? pl_f32_to_bf16(s) : pl_f32_to_f16(s);
            }
    } else if (d == PL_F32) {
        put_f32(j, (float *)j->c->out[0] + at, inner, o, first, cols);
    } else if (d == PL_F64) {
        put_f64(j, (double *)j->c->out[0] + at, inner, o, first, cols);
    } else if (d == PL_I32) {
        put_i32(j, (uint32_t *)j->c->out[0] + at, inner, o, first, cols);
    } else {
        put_i64(j, (uint64_t *)j->c->out[0] + at, inner, o, first, cols);
    }
}

static void put_task(void *ctx, int64_t slot, int worker)
{
    (void)worker;
    const put_job *j = ctx;
    int64_t n = j->u.outer * j->blocks, hi = n * (slot + 1) / j->slots;
    for (int64_t task = n * slot / j->slots; task < hi; task++) put_block(j, slot, task);
}

static put_job put_job_of(const pl_call *c)
{
    const pl_put_attr *a = c->attr;
    put_job j = {c, pl_shape_lines(&c->in_type[0], a->axis), a->size, 0, 0};
    j.blocks = (j.u.inner + COLUMNS - 1) / COLUMNS;
    return j;
}

/* The number of slots is fixed when memory is planned; the handle is that number itself. */
static pl_status put_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    put_job j = put_job_of(c);
    int64_t slots = j.u.outer * j.blocks;
    if (slots > pl_threads_count()) slots = pl_threads_count();
    *prep = (void *)(intptr_t)slots;
    if (is_half(c->in_type[0].dtype))
        *work_bytes = (size_t)(slots * block_elems(&j)) * sizeof(float);
    return PL_OK;
}

static pl_status put_blocks(const pl_call *c)
{
    put_job j = put_job_of(c);
    j.slots = (int64_t)(intptr_t)c->prep;
    pl_threads_for(j.slots, put_task, &j);
    return PL_OK;
}

static const pl_kernel put_kernels[] = {{"blocks", NULL, put_prepare, NULL, put_blocks},
                                        {"ref", NULL, NULL, NULL, put_ref},
                                        PL_KERNEL_END};
static const pl_case put_cases[] = {
    {{"f32[5]", "i32[5]"}, "axis=0, size=4", {{0, 0, false}, {0, 3, false}}},
    {{"f32[3,5,2]", "i32[3,5,2]"}, "axis=1, size=3", {{0, 0, false}, {0, 2, false}}},
    {{"f32[4,1]", "i64[4,1]"}, "axis=-1, size=7", {{0, 0, false}, {0, 6, false}}},
    {{"f32[2,600]", "i32[2,600]"}, "axis=0, size=1", {{0, 0, false}, {0, 0.5, false}}},
    {{"i32[6,2]", "i32[6,2]"}, "axis=0, size=3", {{-9, 9, false}, {0, 2, false}}},
    {{"i64[6]", "i32[6]"}, "axis=0, size=3", {{-9, 9, false}, {0, 2, false}}},
    PL_CASE_END,
};
static void put_labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, ((const pl_put_attr *)c->attr)->axis);
    l->times = 1;
}

const pl_op pl_op_put_along_add = {
    .name = "put_along_add",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .flags = PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_put_attr),
    .attrs = put_attrs,
    .infer = put_infer,
    .vjp = put_vjp,
    .cpu = put_kernels,
    .cases = put_cases,
    .labels = put_labels,
};

pl_val pl_put_along_add(pl_graph *g, pl_val updates, pl_val indices, int axis, int64_t size)
{
    if (!pl_val_ok(updates) || !pl_val_ok(indices)) return PL_NO_VAL;
    pl_put_attr a = {axis, size};
    return pl_build1(g, &pl_op_put_along_add, &a, 2, (pl_val[]){updates, indices});
}
