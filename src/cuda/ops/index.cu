/* index.cu - elements and rows picked by index, and added by index.
 *
 *   take, take_along            every unit of the output reads where its index points; NaN (0 for
 *                               integers) where the index is out of range
 *   scatter_add, put_along_add  sums over equal indices, in the order of the updates; one thread
 *                               owns each result
 *
 * No two threads add to the same element: updates are sorted by destination, with their number as
 * the lower part of the key (cuda/ops/merge.h), a bisection finds where each row's updates begin,
 * and each row sums its own, in f32 for 16-bit elements, rounding once. A row with many updates
 * (padding, a frequent word) would keep one thread busy: the sorted updates are cut into chunks of
 * CHUNK, chunks that belong to one row are summed beforehand, and the row adds their sums. For
 * put_along_add the rows are single elements of the output. When it has many short columns, a
 * thread walks down each column instead, adding in place (16-bit elements in an f32 copy in
 * scratch); that needs no sort.
 */
#include "cuda/ops/merge.h"

#include "base/dtype.h"
#include "ops/core/attr.h"

#include <math.h>

enum { THREADS = 256, CHUNK = 128 };

/* ---- picking ---------------------------------------------------------------------------- */
/* Rows of `units` units. */
template <class U, class I>
static __global__ void take_rows(const U *table, const I *index, U *y, U nothing, int64_t n,
                                 const pl_long_divisor units, int64_t rows)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        int64_t unit, r = index[pl_long_divmod(i, units, &unit)];
        y[i] = r >= 0 && r < rows ? table[r * units.d + unit] : nothing;
    }
}

/* Picks single units along the axis of [outer, size, inner]; `to` is the size of the axis of the
 * output. */
template <class U, class I>
static __global__ void take_elems(const U *x, const I *index, U *y, U nothing, int64_t n,
                                  int64_t size, const pl_long_divisor to,
                                  const pl_long_divisor inner)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        int64_t r = index[i], k, c, o = pl_long_divmod(pl_long_divmod(i, inner, &c), to, &k);
        y[i] = r >= 0 && r < size ? x[(o * size + r) * inner.d + c] : nothing;
    }
}

/* Writes 16 bytes of the value for an index out of range. */
static void nothing_of(pl_dtype d, unsigned char *v)
{
    int64_t n = 16 / (int64_t)pl_dtype_bytes(d);
    for (int64_t i = 0; i < n; i++) pl_elem_set(d, v, i, pl_dtype_is_float(d) ? (double)NAN : 0);
}

template <class U, class I> static void launch_take(const pl_call *c, int64_t n, int64_t row)
{
    unsigned char v[16];
    U nothing;
    nothing_of(c->in_type[0].dtype, v);
    memcpy(&nothing, v, sizeof nothing);
    int64_t units = row / (int64_t)sizeof(U);
    PL_LAUNCH((take_rows<U, I>), dim3(pl_blocks(n * units, THREADS)), dim3(THREADS), 0,
              static_cast<const U *>(c->in[0]), static_cast<const I *>(c->in[1]),
              static_cast<U *>(c->out[0]), nothing, n * units, pl_long_div_by(units),
              c->in_type[0].dim[0]);
}

static pl_status take(const pl_call *c)
{
    const pl_type *t = &c->in_type[0];
    int64_t n = pl_type_elems(&c->in_type[1]), row = (int64_t)pl_dtype_bytes(t->dtype);
    for (int i = 1; i < t->rank; i++) row *= t->dim[i];
    if (n * row == 0) return PL_OK;
    int64_t unit = pl_widest_at(pl_widest_at(pl_widest(16, row), c->in[0]), c->out[0]);
    PL_UNIT_TYPES(unit, if (c->in_type[1].dtype == PL_I32) launch_take<U, int32_t>(c, n, row);
                  else launch_take<U, int64_t>(c, n, row));
    PL_CUDA_LAUNCHED("take");
    return PL_OK;
}

template <class U, class I> static void launch_along(const pl_call *c, int64_t axis)
{
    unsigned char v[16];
    U nothing;
    nothing_of(c->in_type[0].dtype, v);
    memcpy(&nothing, v, sizeof nothing);
    pl_axis_view x = pl_along_axis(&c->in_type[0], axis), y = pl_along_axis(&c->out_type[0], axis);
    int64_t n = pl_type_elems(&c->out_type[0]);
    PL_LAUNCH((take_elems<U, I>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
              static_cast<const U *>(c->in[0]), static_cast<const I *>(c->in[1]),
              static_cast<U *>(c->out[0]), nothing, n, x.size, pl_long_div_by(y.size),
              pl_long_div_by(y.inner));
}

static pl_status take_along(const pl_call *c)
{
    int64_t axis = static_cast<const pl_along_attr *>(c->attr)->axis;
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    PL_UNIT_TYPES(pl_dtype_bytes(c->in_type[0].dtype),
                  if (c->in_type[1].dtype == PL_I32) launch_along<U, int32_t>(c, axis);
                  else launch_along<U, int64_t>(c, axis));
    PL_CUDA_LAUNCHED("take_along");
    return PL_OK;
}

/* ---- adding: where updates go ----------------------------------------------------------- */
/* Update k goes to row index[k]; to the row after the last if the index is out of range. */
template <class I> struct to_rows {
    const I *index;
    int64_t rows;
    __device__ __forceinline__ uint64_t load(int64_t, int64_t k) const
    {
        int64_t r = index[k];
        return (uint64_t)(r >= 0 && r < rows ? r : rows) << 32 | (uint64_t)k;
    }
};

/* Update k of [outer, from, inner] goes to an element of [outer, size, inner]. */
template <class I> struct to_elems {
    const I *index;
    int64_t rows, size;
    pl_long_divisor from, inner;
    __device__ __forceinline__ uint64_t load(int64_t, int64_t k) const
    {
        int64_t r = index[k], i, c, o = pl_long_divmod(pl_long_divmod(k, inner, &c), from, &i);
        int64_t at = (o * size + r) * inner.d + c;
        return (uint64_t)(r >= 0 && r < size ? at : rows) << 32 | (uint64_t)k;
    }
};

/* first[r]: the first update of row r or later. */
static __global__ void find_rows(const uint64_t *order, uint32_t *first, int64_t n, int64_t rows)
{
    for (int64_t r = PL_ITEM; r <= rows; r += PL_ITEMS) {
        int64_t lo = 0, hi = n;
        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            if ((int64_t)(order[mid] >> 32) < r)
                lo = mid + 1;
            else
                hi = mid;
        }
        first[r] = (uint32_t)lo;
    }
}

/* Integer sums wrap. */
template <class T> struct sum_of {
    typedef typename pl_elem<T>::acc type;
};
template <> struct sum_of<int32_t> {
    typedef uint32_t type;
};
template <> struct sum_of<int64_t> {
    typedef uint64_t type;
};

/* Adds updates [p, hi) of the sorted list, pack c of each. */
template <class T, int V, class A>
static __device__ __forceinline__ void add_updates(A *sum, const T *u, const uint64_t *order,
                                                   uint32_t p, uint32_t hi, int64_t packs,
                                                   int64_t c)
{
#pragma unroll 4
    for (; p < hi; p++) {
        int64_t k = (int64_t)(uint32_t)order[p];
        pl_pack<T, V> v = pl_read<T, V>(u + (k * packs + c) * V);
#pragma unroll
        for (int e = 0; e < V; e++) sum[e] += (A)pl_get<T>(v.v[e]);
    }
}

/* Sums of the chunks that belong to one row; the others stay unwritten. n: packs of all chunks. */
template <class T, int V, class A>
static __global__ void __launch_bounds__(THREADS)
    add_chunks(const T *u, const uint64_t *order, A *chunk, int64_t n, const pl_long_divisor packs)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        int64_t c, at = pl_long_divmod(i, packs, &c) * CHUNK;
        A sum[V] = {0};
        if (order[at] >> 32 != order[at + CHUNK - 1] >> 32) continue;
        add_updates<T, V, A>(sum, u, order, (uint32_t)at, (uint32_t)at + CHUNK, packs.d, c);
#pragma unroll
        for (int e = 0; e < V; e++) chunk[i * V + e] = sum[e];
    }
}

/* Packs of V elements of rows of `packs` packs. */
template <class T, int V, class A>
static __global__ void __launch_bounds__(THREADS)
    add_rows(const T *u, const uint64_t *order, const uint32_t *first, const A *chunk, T *y,
             int64_t n, const pl_long_divisor packs)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        int64_t c, r = pl_long_divmod(i, packs, &c);
        uint32_t p = first[r], hi = first[r + 1];
        A sum[V] = {0};
        if (hi - p >= CHUNK) {
            uint32_t from = (p + CHUNK - 1) / CHUNK, to = hi / CHUNK;
            add_updates<T, V, A>(sum, u, order, p, from < to ? from * CHUNK : hi, packs.d, c);
            p = from < to ? to * CHUNK : hi;
#pragma unroll 4
            for (uint32_t k = from; k < to; k++) {
#pragma unroll
                for (int e = 0; e < V; e++) sum[e] += chunk[((int64_t)k * packs.d + c) * V + e];
            }
        }
        add_updates<T, V, A>(sum, u, order, p, hi, packs.d, c);
        pl_pack<T, V> out;
#pragma unroll
        for (int e = 0; e < V; e++) out.v[e] = pl_put<T>((typename pl_elem<T>::acc)sum[e]);
        pl_write(y + i * V, out);
    }
}

/* ---- adding: scratch and launches ------------------------------------------------------- */
/* Returns the offset of the sums of chunks: after sorted updates, the scratch of the sort, and
 * where rows begin. */
static size_t chunks_at(int64_t n, int64_t rows)
{
    size_t before = (size_t)n * sizeof(uint64_t) + pl_sort_bytes(1, n, sizeof(uint64_t)) +
                    (size_t)(rows + 1) * sizeof(uint32_t);
    return (before + 15) & ~(size_t)15;
}

/* Returns the scratch; row: elements of an update. */
static size_t scatter_bytes(int64_t n, int64_t rows, int64_t row, pl_dtype dtype)
{
    size_t sum = dtype == PL_F64 || dtype == PL_I64 ? 8 : 4;
    return chunks_at(n, rows) + (size_t)(n / CHUNK * row) * sum;
}

static pl_status check_counts(int64_t n, int64_t rows)
{
    PL_FAIL_IF(n > 0xfffffffe || rows > 0xfffffffe, PL_ERR_UNSUPPORTED,
               "%lld updates of %lld rows: at most 2^32 - 2 of each", (long long)n,
               (long long)rows);
    return PL_OK;
}

template <class T, int V>
static void launch_add(const pl_call *c, const uint64_t *order, const uint32_t *first, int64_t rows,
                       int64_t row)
{
    typedef typename sum_of<T>::type A;
    int64_t packs = row / V, n = pl_type_elems(&c->in_type[0]) / row, chunks = n / CHUNK * packs;
    A *chunk = reinterpret_cast<A *>(static_cast<char *>(c->work) + chunks_at(n, rows));
    if (chunks)
        PL_LAUNCH((add_chunks<T, V, A>), dim3(pl_blocks(chunks, THREADS)), dim3(THREADS), 0,
                  static_cast<const T *>(c->in[0]), order, chunk, chunks, pl_long_div_by(packs));
    PL_LAUNCH((add_rows<T, V, A>), dim3(pl_blocks(rows * packs, THREADS)), dim3(THREADS), 0,
              static_cast<const T *>(c->in[0]), order, first, chunk, static_cast<T *>(c->out[0]),
              rows * packs, pl_long_div_by(packs));
}

template <class L>
static pl_status add_sorted(const pl_call *c, const L &from, int64_t n, int64_t rows, int64_t row)
{
    uint64_t *order = static_cast<uint64_t *>(c->work), *spare = order + n;
    uint32_t *first = reinterpret_cast<uint32_t *>(reinterpret_cast<char *>(spare) +
                                                   pl_sort_bytes(1, n, sizeof(uint64_t)));
    pl_in_buffer<uint64_t> to = {order, n};
    if (n) pl_sort_lines<uint64_t>(from, to, 1, n, spare);
    PL_LAUNCH(find_rows, dim3(pl_blocks(rows + 1, THREADS)), dim3(THREADS), 0, order, first, n,
              rows);
    int64_t elem = (int64_t)pl_dtype_bytes(c->in_type[0].dtype);
    int64_t wide = pl_widest_at(pl_widest_at(pl_widest(16, row * elem), c->in[0]), c->out[0]);
    PL_ALL_TYPES(c->in_type[0].dtype,
                 if (wide == 16) launch_add<T, 16 / sizeof(T)>(c, order, first, rows, row);
                 else launch_add<T, 1>(c, order, first, rows, row));
    PL_CUDA_LAUNCHED("sums by index");
    return PL_OK;
}

/* ---- scatter_add ------------------------------------------------------------------------ */
static pl_status scatter_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    int64_t n = pl_type_elems(&c->in_type[1]), rows = c->out_type[0].dim[0];
    PL_TRY(check_counts(n, rows));
    int64_t row = n ? pl_type_elems(&c->in_type[0]) / n : 0;
    *work_bytes = scatter_bytes(n, rows, row, c->in_type[0].dtype);
    return PL_OK;
}

static pl_status scatter_add(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[1]), rows = c->out_type[0].dim[0];
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    int64_t row = pl_type_elems(&c->out_type[0]) / rows;
    if (c->in_type[1].dtype == PL_I32) {
        to_rows<int32_t> from = {static_cast<const int32_t *>(c->in[1]), rows};
        return add_sorted(c, from, n, rows, row);
    }
    to_rows<int64_t> from = {static_cast<const int64_t *>(c->in[1]), rows};
    return add_sorted(c, from, n, rows, row);
}

/* ---- put_along_add ---------------------------------------------------------------------- */
/* One thread per column; y starts as zeros. */
template <class T, class I, class A>
static __global__ void put_columns(const T *u, const I *index, A *y, int64_t outer, int64_t from,
                                   int64_t size, int64_t inner)
{
    for (int64_t i = PL_ITEM; i < outer * inner; i += PL_ITEMS) {
        int64_t o = i / inner, c = i - o * inner, at = o * from * inner + c;
        A *column = y + o * size * inner + c;
        for (int64_t k = 0; k < from; k++, at += inner) {
            int64_t r = index[at];
            if (r >= 0 && r < size) column[r * inner] += (A)pl_get<T>(u[at]);
        }
    }
}

template <class T> static __global__ void round_sums(const float *x, T *y, int64_t n)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) y[i] = pl_put<T>(x[i]);
}

static bool is_half(pl_dtype d)
{
    return d == PL_BF16 || d == PL_F16;
}

/* Many columns keep the GPU busy; a short column is quick. */
static bool by_columns(const pl_axis_view &u)
{
    return u.size <= 64 || u.outer * u.inner >= 16384;
}

static pl_status put_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_axis_view u = pl_along_axis(&c->in_type[0], static_cast<const pl_put_attr *>(c->attr)->axis);
    int64_t n = pl_type_elems(&c->in_type[0]), rows = pl_type_elems(&c->out_type[0]);
    if (by_columns(u)) {
        if (is_half(c->in_type[0].dtype)) *work_bytes = (size_t)rows * sizeof(float);
        return PL_OK;
    }
    PL_TRY(check_counts(n, rows));
    *work_bytes = scatter_bytes(n, rows, 1, c->in_type[0].dtype);
    return PL_OK;
}

template <class T, class I>
static void launch_columns(const pl_call *c, const pl_axis_view &u, void *y)
{
    typedef typename sum_of<T>::type A;
    int64_t size = static_cast<const pl_put_attr *>(c->attr)->size;
    PL_LAUNCH((put_columns<T, I, A>), dim3(pl_blocks(u.outer * u.inner, 64)), dim3(64), 0,
              static_cast<const T *>(c->in[0]), static_cast<const I *>(c->in[1]),
              static_cast<A *>(y), u.outer, u.size, size, u.inner);
}

static pl_status put_by_columns(const pl_call *c, const pl_axis_view &u)
{
    pl_dtype d = c->in_type[0].dtype;
    int64_t n = pl_type_elems(&c->out_type[0]);
    int64_t n_updates = pl_type_elems(&c->in_type[0]);
    void *sum = is_half(d) ? c->work : c->out[0];
    size_t bytes = is_half(d) ? (size_t)n * sizeof(float) : pl_type_bytes(&c->out_type[0]);
    PL_CUDA(cudaMemsetAsync(sum, 0, bytes, pl_cuda_stream()));
    if (n_updates > 0)
        PL_ALL_TYPES(d, if (c->in_type[1].dtype == PL_I32) launch_columns<T, int32_t>(c, u, sum);
                     else launch_columns<T, int64_t>(c, u, sum));
    const float *x = static_cast<const float *>(sum);
    dim3 grid(pl_blocks(n, THREADS)), block(THREADS);
    if (d == PL_F16)
        PL_LAUNCH((round_sums<pl_f16>), grid, block, 0, x, static_cast<pl_f16 *>(c->out[0]), n);
    if (d == PL_BF16)
        PL_LAUNCH((round_sums<pl_bf16>), grid, block, 0, x, static_cast<pl_bf16 *>(c->out[0]), n);
    PL_CUDA_LAUNCHED("put_along_add");
    return PL_OK;
}

static pl_status put_along_add(const pl_call *c)
{
    const pl_put_attr *a = static_cast<const pl_put_attr *>(c->attr);
    pl_axis_view u = pl_along_axis(&c->in_type[0], a->axis);
    int64_t n = pl_type_elems(&c->in_type[0]), rows = pl_type_elems(&c->out_type[0]);
    if (rows == 0) return PL_OK;
    if (by_columns(u)) return put_by_columns(c, u);
    if (c->in_type[1].dtype == PL_I32) {
        to_elems<int32_t> from = {static_cast<const int32_t *>(c->in[1]), rows, a->size,
                                  pl_long_div_by(u.size), pl_long_div_by(u.inner)};
        return add_sorted(c, from, n, rows, 1);
    }
    to_elems<int64_t> from = {static_cast<const int64_t *>(c->in[1]), rows, a->size,
                              pl_long_div_by(u.size), pl_long_div_by(u.inner)};
    return add_sorted(c, from, n, rows, 1);
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(take_kernels, NULL, take);
PL_CUDA_KERNEL(take_along_kernels, NULL, take_along);
PL_CUDA_KERNEL(scatter_add_kernels, scatter_prepare, scatter_add);
PL_CUDA_KERNEL(put_along_add_kernels, put_prepare, put_along_add);

PL_CUDA_ENTRIES(pl_cuda_index) = {{"take", take_kernels},
                                  {"take_along", take_along_kernels},
                                  {"scatter_add", scatter_add_kernels},
                                  {"put_along_add", put_along_add_kernels},
                                  {NULL, NULL}};
