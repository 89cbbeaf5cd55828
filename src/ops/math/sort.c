/* sort.c - the first `count` elements of each line in sorted order, and where they came from.
 *
 * One op serves sort (count = all) and top-k (descending order, count = k). Sorting is stable in
 * both directions; NaN comes last in both; -0 equals 0. Values are read through their indices, so
 * the gradient puts what flows into value i back where it came from.
 *
 *   ref     merge sort of indices, any dtype: O(n log n)
 *   radix   elements of up to 32 bits become unsigned keys with the required order; (key, index)
 *           pairs packed in 64 bits go through four byte-wise counting passes, each stable: O(n). A
 *           pass whose byte is the same everywhere is skipped. Short lines use insertion sort.
 *           Scratch: two arrays of pairs for each line sorted at a time.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_sort_attr, axis, INT),
    PL_ATTR(pl_sort_attr, count, INT),
    PL_ATTR(pl_sort_attr, descending, BOOL),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_sort_attr *a = attr;
    char x[96];
    PL_TRY(pl_shape_axis(&a->axis, &in[0]));
    int64_t n = in[0].dim[a->axis];
    if (a->count == -1) a->count = n;
    PL_FAIL_IF(a->count < 0 || a->count > n || n > INT32_MAX, PL_ERR_SHAPE,
               "count is %lld, more than axis %lld of %s has, or negative", (long long)a->count,
               (long long)a->axis, pl_type_text(&in[0], x, sizeof x));
    out[0] = in[0];
    out[0].dim[a->axis] = a->count;
    out[1] = out[0];
    out[1].dtype = PL_I32;
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    const pl_sort_attr *a = v->attr;
    if (!pl_val_ok(v->gout[0])) return;
    v->gin[0] = pl_put_along_add(v->g, v->gout[0], v->out[1], (int)a->axis,
                                 pl_val_type(v->g, v->in[0]).dim[a->axis]);
}

static pl_cost cost(const pl_call *c)
{
    double n = (double)pl_type_elems(&c->in_type[0]), bytes = (double)pl_type_bytes(&c->in_type[0]);
    for (int k = 0; k < 2; k++) bytes += (double)pl_type_bytes(&c->out_type[k]);
    return (pl_cost){32 * n, bytes + 4 * 16 * n};
}

/* ---- reference -------------------------------------------------------------------------- */
/* Whether element i of a line must come before element j although j came first. */
static bool overtakes(const pl_call *c, int64_t base, int64_t stride, int32_t i, int32_t j)
{
    pl_dtype d = c->in_type[0].dtype;
    int64_t p = base + i * stride, q = base + j * stride;
    bool down = ((const pl_sort_attr *)c->attr)->descending;
    if (d == PL_I64) {
        const int64_t *x = c->in[0];
        return down ? x[p] > x[q] : x[p] < x[q];
    }
    double a = pl_elem_get(d, c->in[0], p), b = pl_elem_get(d, c->in[0], q);
    if (isnan(a) || isnan(b)) return !isnan(a);
    return down ? a > b : a < b;
}

/* Sorts the indices of one line; a and b hold n each, the result is in the returned one. */
static const int32_t *merge_sort(const pl_call *c, int64_t base, int64_t stride, int64_t n,
                                 int32_t *a, int32_t *b)
{
    for (int64_t i = 0; i < n; i++) a[i] = (int32_t)i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n;
            int64_t hi = mid + width < n ? mid + width : n, i = lo, j = mid;
            for (int64_t k = lo; k < hi; k++) {
                bool second = i == mid || (j < hi && overtakes(c, base, stride, a[j], a[i]));
                b[k] = second ? a[j++] : a[i++];
            }
        }
        int32_t *t = a;
        a = b;
        b = t;
    }
    return a;
}

/* Writes the first count elements of a sorted line. */
static void write_line(const pl_call *c, int64_t line, int64_t inner, int64_t size, int64_t count,
                       int64_t k, int32_t index)
{
    int64_t from = (line / inner * size + index) * inner + line % inner;
    int64_t to = (line / inner * count + k) * inner + line % inner;
    size_t elem = pl_dtype_bytes(c->in_type[0].dtype);
    memcpy((char *)c->out[0] + (size_t)to * elem, (const char *)c->in[0] + (size_t)from * elem,
           elem);
    ((int32_t *)c->out[1])[to] = index;
}

static pl_status ref_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    int64_t n = c->in_type[0].dim[((const pl_sort_attr *)c->attr)->axis];
    *work_bytes = (size_t)n * 2 * sizeof(int32_t);
    return PL_OK;
}

static pl_status ref(const pl_call *c)
{
    const pl_sort_attr *a = c->attr;
    pl_lines x = pl_shape_lines(&c->in_type[0], a->axis);
    int32_t *work = c->work;
    for (int64_t line = 0; line < x.outer * x.inner; line++) {
        int64_t base = line / x.inner * x.size * x.inner + line % x.inner;
        const int32_t *order = merge_sort(c, base, x.inner, x.size, work, work + x.size);
        for (int64_t k = 0; k < a->count; k++)
            write_line(c, line, x.inner, x.size, a->count, k, order[k]);
    }
    return PL_OK;
}

/* ---- radix ------------------------------------------------------------------------------ */
/* Bits of a float to a key: unsigned order is the order of the numbers, NaN is the largest. */
static uint32_t float_key(float f, bool down)
{
    uint32_t u;
    if (f != f) return UINT32_MAX;
    f += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &f, sizeof u);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return down ? ~u : u;
}

static uint32_t key_of(pl_dtype d, const void *x, int64_t i, bool down)
{
    if (d == PL_F32) return float_key(((const float *)x)[i], down);
    if (d == PL_I32) {
        uint32_t u = (uint32_t)((const int32_t *)x)[i] ^ 0x80000000u;
        return down ? ~u : u;
    }
    return float_key((float)pl_elem_get(d, x, i), down);
}

static void insertion(uint64_t *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t v = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] > v; j--) a[j] = a[j - 1];
        a[j] = v;
    }
}

/* Sorts n pairs by their upper 32 bits; the result is in the returned array, a or b. */
static uint64_t *radix_sort(uint64_t *a, uint64_t *b, int64_t n)
{
    if (n <= 48) {
        insertion(a, n); /* the index as the lower part of the key keeps equals in order */
        return a;
    }
    for (int shift = 32; shift < 64; shift += 8) {
        int64_t count[256] = {0}, at = 0;
        for (int64_t i = 0; i < n; i++) count[a[i] >> shift & 255]++;
        if (count[a[0] >> shift & 255] == n) continue;
        for (int k = 0; k < 256; k++) {
            int64_t here = count[k];
            count[k] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) b[count[a[i] >> shift & 255]++] = a[i];
        uint64_t *t = a;
        a = b;
        b = t;
    }
    return a;
}

typedef struct job {
    const pl_call *c;
    pl_lines x;
    int64_t slots; /* lines sorted at a time; each has its own scratch */
} job;

static void slot_task(void *ctx, int64_t slot, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_sort_attr *a = j->c->attr;
    const pl_lines x = j->x;
    pl_dtype d = j->c->in_type[0].dtype;
    uint64_t *pairs = (uint64_t *)j->c->work + slot * 2 * x.size;
    int64_t n_lines = x.outer * x.inner;
    int64_t hi = n_lines * (slot + 1) / j->slots;
    for (int64_t line = n_lines * slot / j->slots; line < hi; line++) {
        int64_t base = line / x.inner * x.size * x.inner + line % x.inner;
        for (int64_t i = 0; i < x.size; i++) {
            uint64_t key = key_of(d, j->c->in[0], base + i * x.inner, a->descending);
            pairs[i] = key << 32 | (uint64_t)i;
        }
        const uint64_t *order = radix_sort(pairs, pairs + x.size, x.size);
        for (int64_t k = 0; k < a->count; k++)
            write_line(j->c, line, x.inner, x.size, a->count, k, (int32_t)(uint32_t)order[k]);
    }
}

/* The number of lines at a time is fixed when memory is planned; the handle is that number
 * itself. */
static pl_status radix_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    pl_lines x = pl_shape_lines(&c->in_type[0], ((const pl_sort_attr *)c->attr)->axis);
    int64_t slots = x.outer * x.inner;
    if (slots > pl_threads_count()) slots = pl_threads_count();
    *prep = (void *)(intptr_t)slots;
    *work_bytes = (size_t)(slots * x.size) * 2 * sizeof(uint64_t);
    return PL_OK;
}

static pl_status radix(const pl_call *c)
{
    job j = {c, pl_shape_lines(&c->in_type[0], ((const pl_sort_attr *)c->attr)->axis),
             (int64_t)(intptr_t)c->prep};
    pl_threads_for(j.slots, slot_task, &j);
    return PL_OK;
}

static bool fits_key(const pl_call *c)
{
    return c->in_type[0].dtype != PL_F64 && c->in_type[0].dtype != PL_I64;
}

static const pl_kernel kernels[] = {{"radix", fits_key, radix_prepare, NULL, radix},
                                    {"ref", NULL, ref_prepare, NULL, ref},
                                    PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[7]"}, "axis=0, count=-1, descending=false", {{-2, 2, true}}},
    {{"f32[3,5,2]"}, "axis=1, count=-1, descending=true", {{-2, 2, true}}},
    {{"f32[4,1]"}, "axis=-1, count=-1, descending=false", {{-2, 2, true}}},
    {{"f32[3,6]"}, "axis=1, count=2, descending=true", {{-2, 2, true}}},
    {{"f32[99]"}, "axis=0, count=50, descending=true", {{-4, 4, true}}},
    {{"i32[130,2]"}, "axis=0, count=-1, descending=false", {{-9, 9, false}}},
    {{"i64[5,3]"}, "axis=0, count=-1, descending=true", {{-2, 2, false}}},
    {{"u8[60]"}, "axis=0, count=-1, descending=true", {{0, 9, false}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    pl_label_off_axis(c, l, ((const pl_sort_attr *)c->attr)->axis);
}

const pl_op pl_op_sort = {
    .name = "sort",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .flags = PL_OP_COUPLES,
    .attr_bytes = sizeof(pl_sort_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cost = cost,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
};

/* ---- constructors ----------------------------------------------------------------------- */
static void build(pl_graph *g, pl_val x, int axis, int64_t count, bool descending, pl_val *values,
                  pl_val *indices)
{
    pl_sort_attr a;
    pl_val out[2] = {PL_NO_VAL, PL_NO_VAL};
    memset(&a, 0, sizeof a);
    a.axis = axis;
    a.count = count;
    a.descending = descending;
    if (pl_val_ok(x)) pl_build(g, &pl_op_sort, &a, 1, &x, out);
    if (values) *values = out[0];
    if (indices) *indices = out[1];
}

void pl_sort(pl_graph *g, pl_val x, int axis, bool descending, pl_val *values, pl_val *indices)
{
    build(g, x, axis, -1, descending, values, indices);
}

void pl_topk(pl_graph *g, pl_val x, int64_t k, int axis, pl_val *values, pl_val *indices)
{
    if (pl_val_ok(x) && k < 0) pl_graph_fail(g, PL_ERR_ARG, "topk of %lld", (long long)k);
    build(g, x, axis, k, true, values, indices);
}
