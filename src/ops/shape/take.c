/* take.c - rows picked by index, and rows added by index; each is the other's adjoint.
 *
 *   take         y[i..] = table[indices[i], ..]                    embeddings
 *   scatter_add  y[r..] = sum of updates[i..] with indices[i] = r  their gradient
 *
 * Indices are i32 or i64, of any shape; rows are everything after. An index out of range never
 * touches memory: take gives a row of NaN (0 for integers), so that the mistake shows in the loss;
 * scatter_add leaves the update out.
 *
 * scatter_add sums in index order for each row, in f32 (f64 for f64, integers exactly), and rounds
 * once. The fast kernel first sorts the indices by row (counting sort, stable; scratch of one entry
 * per index and one per row); then one thread owns each row.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "cpu/kernels/strided.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <math.h>
#include <string.h>

static pl_status check_indices(const pl_type *t)
{
    char x[96];
    PL_FAIL_IF(t->dtype != PL_I32 && t->dtype != PL_I64, PL_ERR_SHAPE,
               "indices must be i32 or i64, got %s", pl_type_text(t, x, sizeof x));
    return PL_OK;
}

static int64_t index_at(const pl_type *t, const void *p, int64_t i)
{
    return t->dtype == PL_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* Elements of one row, of a tensor whose first `lead` dims count rows. */
static int64_t row_elems(const pl_type *t, int lead)
{
    int64_t n = 1;
    for (int i = lead; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* ---- take ------------------------------------------------------------------------------- */
static pl_status take_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in, (void)attr;
    char x[96], y[96];
    PL_TRY(check_indices(&in[1]));
    PL_FAIL_IF(
        in[0].rank < 1 || in[0].rank - 1 + in[1].rank > PL_MAX_RANK, PL_ERR_SHAPE,
        "rows of %s cannot be taken by indices %s: the result would have too many dimensions, or "
        "none to index",
        pl_type_text(&in[0], x, sizeof x), pl_type_text(&in[1], y, sizeof y));
    out[0] = in[1];
    out[0].dtype = in[0].dtype;
    for (int i = 1; i < in[0].rank; i++) out[0].dim[out[0].rank++] = in[0].dim[i];
    return PL_OK;
}

static void take_vjp(const pl_vjp *v)
{
    if (!v->need[0]) return;
    v->gin[0] = pl_scatter_add(v->g, v->gout[0], v->in[1], pl_val_type(v->g, v->in[0]).dim[0]);
}

static pl_status take_ref(const pl_call *c)
{
    const pl_type *t = &c->in_type[0];
    int64_t n = pl_type_elems(&c->in_type[1]), row = row_elems(t, 1);
    int64_t bytes = (int64_t)pl_dtype_bytes(t->dtype);
    bool is_float = pl_dtype_is_float(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = index_at(&c->in_type[1], c->in[1], i);
        bool inside = r >= 0 && r < t->dim[0];
        for (int64_t k = 0; k < row; k++) {
            if (inside)
                memcpy((char *)c->out[0] + (i * row + k) * bytes,
                       (const char *)c->in[0] + (r * row + k) * bytes, (size_t)bytes);
            else
                pl_elem_set(t->dtype, c->out[0], i * row + k, is_float ? (double)NAN : 0);
        }
    }
    return PL_OK;
}

typedef struct take_job {
    const pl_call *c;
    int64_t n, row, per_task;
    char nothing[8]; /* value for an index out of range */
} take_job;

static void take_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const take_job *j = ctx;
    const pl_call *c = j->c;
    size_t elem = pl_dtype_bytes(c->in_type[0].dtype), bytes = (size_t)j->row * elem;
    int64_t lo = task * j->per_task, hi = lo + j->per_task < j->n ? lo + j->per_task : j->n;
    for (int64_t i = lo; i < hi; i++) {
        int64_t r = index_at(&c->in_type[1], c->in[1], i);
        char *dst = (char *)c->out[0] + (size_t)i * bytes;
        if (r >= 0 && r < c->in_type[0].dim[0])
            memcpy(dst, (const char *)c->in[0] + (size_t)r * bytes, bytes);
        else
            pl_strided_fill(dst, elem, j->row, j->nothing);
    }
}

static pl_status take_rows(const pl_call *c)
{
    pl_dtype d = c->in_type[0].dtype;
    take_job j = {c, pl_type_elems(&c->in_type[1]), row_elems(&c->in_type[0], 1), 1, {0}};
    pl_elem_set(d, j.nothing, 0, pl_dtype_is_float(d) ? (double)NAN : 0);
    if (j.row == 0) return PL_OK;
    int64_t bytes = j.row * (int64_t)pl_dtype_bytes(d);
    j.per_task = bytes < 32768 ? 32768 / bytes : 1;
    pl_threads_for((j.n + j.per_task - 1) / j.per_task, take_task, &j);
    return PL_OK;
}

static const pl_kernel take_kernels[] = {
    {"rows", NULL, NULL, NULL, take_rows}, {"ref", NULL, NULL, NULL, take_ref}, PL_KERNEL_END};
static const pl_case take_cases[] = {
    {{"f32[5,3]", "i32[4]"}, "", {{0, 0, false}, {0, 4, false}}},
    {{"f32[7]", "i64[2,3]"}, "", {{0, 0, false}, {0, 6, false}}},
    {{"f32[1,2,3]", "i32[]"}, "", {{0, 0, false}, {0, 0.5, false}}},
    {{"i64[4,2]", "i32[3]"}, "", {{-9, 9, false}, {0, 3, false}}},
    {{"f32[3,2]", "i32[6]"}, "", {{0, 0, false}, {0, 2, false}}},
    PL_CASE_END,
};
/* Indices i.. and the elements r.. of a row: table [R, r..], indices [i..], y [i.., r..]. */
static void take_labels(const pl_call *c, pl_labels *l)
{
    int lead = c->in_type[1].rank;
    for (int i = 0; i < lead; i++) l->in[1][i] = l->out[0][i] = (int8_t)(1 + i);
    for (int i = 1; i < c->in_type[0].rank; i++)
        l->in[0][i] = l->out[0][lead + i - 1] = (int8_t)(PL_MAX_RANK + i);
    l->times = 1;
}

const pl_op pl_op_take = {
    .name = "take",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_COUPLES,
    .infer = take_infer,
    .vjp = take_vjp,
    .cpu = take_kernels,
    .cases = take_cases,
    .labels = take_labels,
};

pl_val pl_take(pl_graph *g, pl_val table, pl_val indices)
{
    if (!pl_val_ok(table) || !pl_val_ok(indices)) return PL_NO_VAL;
    return pl_build1(g, &pl_op_take, NULL, 2, (pl_val[]){table, indices});
}

/* ---- scatter_add ------------------------------------------------------------------------ */
static const pl_attr scatter_attrs[] = {PL_ATTR(pl_scatter_attr, rows, INT), PL_ATTR_END};

static pl_status scatter_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_scatter_attr *a = attr;
    char x[96], y[96];
    PL_TRY(check_indices(&in[1]));
    PL_FAIL_IF(in[0].dtype == PL_BOOL || in[0].dtype == PL_U8, PL_ERR_SHAPE,
               "%s would overflow; cast it to i32 or f32 first", pl_type_text(&in[0], x, sizeof x));
    bool fits = in[0].rank >= in[1].rank && in[0].rank - in[1].rank < PL_MAX_RANK;
    for (int i = 0; fits && i < in[1].rank; i++) fits = in[0].dim[i] == in[1].dim[i];
    PL_FAIL_IF(!fits, PL_ERR_SHAPE,
               "the shape of updates %s must begin with the shape of indices %s",
               pl_type_text(&in[0], x, sizeof x), pl_type_text(&in[1], y, sizeof y));
    PL_FAIL_IF(a->rows < 0, PL_ERR_ARG, "%lld rows", (long long)a->rows);
    out[0] = pl_type_make(in[0].dtype, 1, &a->rows);
    for (int i = in[1].rank; i < in[0].rank; i++) out[0].dim[out[0].rank++] = in[0].dim[i];
    return PL_OK;
}

static void scatter_vjp(const pl_vjp *v)
{
    if (v->need[0]) v->gin[0] = pl_take(v->g, v->gout[0], v->in[1]);
}

/* One output element at a time: every update of its row, in order. */
static pl_status scatter_ref(const pl_call *c)
{
    const pl_type *u = &c->in_type[0], *ti = &c->in_type[1];
    int64_t n = pl_type_elems(ti), row = row_elems(u, ti->rank);
    int64_t rows = ((const pl_scatter_attr *)c->attr)->rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < row; k++) {
            double sum = 0;
            uint64_t whole = 0; /* a double does not hold every i64 */
            for (int64_t i = 0; i < n; i++) {
                if (index_at(ti, c->in[1], i) != r) continue;
                if (u->dtype == PL_I64)
                    whole += (uint64_t)((const int64_t *)c->in[0])[i * row + k];
                else
                    sum += pl_elem_get(u->dtype, c->in[0], i * row + k);
            }
            if (u->dtype == PL_I64)
                ((int64_t *)c->out[0])[r * row + k] = (int64_t)whole;
            else
                pl_elem_set(u->dtype, c->out[0], r * row + k, sum);
        }
    return PL_OK;
}

/* ---- scatter_add by owned rows ---------------------------------------------------------- */
enum { COLUMNS = 256 };

typedef struct scatter_job {
    const pl_call *c;
    int64_t row, rows;
    const int64_t *first; /* rows + 1: where each row's updates begin in order[] */
    const int64_t *order; /* update numbers, by row, then by position */
} scatter_job;

#define ADD_ROWS(name, T, A, GET, PUT)                                                             \
 static void name(const scatter_job *j, int64_t r)                                                 \
 {                                                                                                 \
  const T *u = j->c->in[0];                                                                        \
  T *y = (T *)j->c->out[0] + r * j->row;                                                           \
  for (int64_t k = 0; k < j->row; k += COLUMNS) {                                                  \
   int64_t n = j->row - k < COLUMNS ? j->row - k : COLUMNS;                                        \
   A sum[COLUMNS] = {0};                                                                           \
   for (int64_t p = j->first[r]; p < j->first[r + 1]; p++) {                                       \
    const T *from = u + j->order[p] * j->row + k;                                                  \
    for (int64_t i = 0; i < n; i++) sum[i] += GET(from[i]);                                        \
   }                                                                                               \
   for (int64_t i = 0; i < n; i++) y[k + i] = PUT(sum[i]);                                         \
  }                                                                                                \
 }
ADD_ROWS(add_f32, float, float, , )
ADD_ROWS(add_f64, double, double, , )
ADD_ROWS(add_bf16, uint16_t, float, pl_bf16_to_f32, pl_f32_to_bf16)
ADD_ROWS(add_f16, uint16_t, float, pl_f16_to_f32, pl_f32_to_f16)
ADD_ROWS(add_i32, uint32_t, uint32_t, , )
ADD_ROWS(add_i64, uint64_t, uint64_t, , )

static void scatter_task(void *ctx, int64_t r, int worker)
{
    (void)worker;
    const scatter_job *j = ctx;
    switch (j->c->in_type[0].dtype) {
    case PL_F32: add_f32(j, r); break;
    case PL_F64: add_f64(j, r); break;
    case PL_BF16: add_bf16(j, r); break;
    case PL_F16: add_f16(j, r); break;
    case PL_I32: add_i32(j, r); break;
    case PL_I64: add_i64(j, r); break;
    case PL_U8:
    case PL_BOOL:
    case PL_N_DTYPES: break; /* infer refuses them */
    }
}

static pl_status scatter_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    int64_t n = pl_type_elems(&c->in_type[1]), rows = ((const pl_scatter_attr *)c->attr)->rows;
    *work_bytes = (size_t)(rows + 1 + n) * sizeof(int64_t);
    return PL_OK;
}

/* Stable counting sort of the updates by row. While order is filled first[r] moves one row ahead,
 * so it starts shifted by one. */
static void sort_by_row(const pl_call *c, int64_t rows, int64_t n, int64_t *first, int64_t *order)
{
    const pl_type *ti = &c->in_type[1];
    memset(first, 0, (size_t)(rows + 1) * sizeof *first);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = index_at(ti, c->in[1], i);
        if (r >= 0 && r < rows) first[r]++;
    }
    int64_t at = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t here = first[r];
        first[r] = at;
        at += here;
    }
    first[rows] = at;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = index_at(ti, c->in[1], i);
        if (r >= 0 && r < rows) order[first[r]++] = i;
    }
    memmove(first + 1, first, (size_t)rows * sizeof *first);
    first[0] = 0;
}

static pl_status scatter_owned(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[1]), rows = ((const pl_scatter_attr *)c->attr)->rows;
    int64_t *first = c->work, *order = first + rows + 1;
    sort_by_row(c, rows, n, first, order);
    scatter_job j = {c, row_elems(&c->in_type[0], c->in_type[1].rank), rows, first, order};
    pl_threads_for(rows, scatter_task, &j);
    return PL_OK;
}

static const pl_kernel scatter_kernels[] = {{"owned", NULL, scatter_prepare, NULL, scatter_owned},
                                            {"ref", NULL, NULL, NULL, scatter_ref},
                                            PL_KERNEL_END};
static const pl_case scatter_cases[] = {
    {{"f32[4,3]", "i32[4]"}, "rows=5", {{0, 0, false}, {0, 4, false}}},
    {{"f32[2,3]", "i64[2,3]"}, "rows=4", {{0, 0, false}, {0, 3, false}}},
    {{"f32[9,1,2]", "i32[9]"}, "rows=2", {{0, 0, false}, {0, 1, false}}},
    {{"f32[3]", "i32[]"}, "rows=1", {{0, 0, false}, {0, 0.5, false}}},
    {{"f32[3,300]", "i32[3]"}, "rows=2", {{0, 0, false}, {0, 1, false}}},
    {{"i32[6,2]", "i32[6]"}, "rows=3", {{-9, 9, false}, {0, 2, false}}},
    {{"i64[6]", "i32[6]"}, "rows=3", {{-9, 9, false}, {0, 2, false}}},
    PL_CASE_END,
};
static void scatter_labels(const pl_call *c, pl_labels *l)
{
    int lead = c->in_type[1].rank;
    for (int i = 0; i < lead; i++) l->in[0][i] = l->in[1][i] = (int8_t)(1 + i);
    for (int i = 1; i < c->out_type[0].rank; i++)
        l->out[0][i] = l->in[0][lead + i - 1] = (int8_t)(PL_MAX_RANK + i);
    l->times = 1;
}

const pl_op pl_op_scatter_add = {
    .name = "scatter_add",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .flags = PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_scatter_attr),
    .attrs = scatter_attrs,
    .infer = scatter_infer,
    .vjp = scatter_vjp,
    .cpu = scatter_kernels,
    .cases = scatter_cases,
    .labels = scatter_labels,
};

pl_val pl_scatter_add(pl_graph *g, pl_val updates, pl_val indices, int64_t rows)
{
    if (!pl_val_ok(updates) || !pl_val_ok(indices)) return PL_NO_VAL;
    pl_scatter_attr a = {rows};
    return pl_build1(g, &pl_op_scatter_add, &a, 2, (pl_val[]){updates, indices});
}
