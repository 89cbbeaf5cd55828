/* sort.cu - the first elements of each line in sorted order, and where they came from.
 *
 * Elements become unsigned keys with the required order (ops/math/sort.c): descending order by
 * complement, NaN last, -0 as 0. Key and position together are sorted (cuda/ops/merge.h), so equal
 * elements keep their order. Elements of up to 32 bits and their position make one 64-bit item,
 * others two.
 */
#include "cuda/ops/merge.h"

#include "ops/core/attr.h"

/* ---- keys ------------------------------------------------------------------------------- */
static __device__ __forceinline__ uint32_t key_of(float f, bool down)
{
    if (f != f) return 0xffffffffu;
    uint32_t u = __float_as_uint(f + 0.0f);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return down ? ~u : u;
}
static __device__ __forceinline__ uint32_t key_of(int32_t i, bool down)
{
    uint32_t u = (uint32_t)i ^ 0x80000000u;
    return down ? ~u : u;
}
static __device__ __forceinline__ uint32_t key_of(uint8_t i, bool down)
{
    return down ? 255u - i : i;
}
static __device__ __forceinline__ uint64_t key_of(double f, bool down)
{
    if (f != f) return ~(uint64_t)0;
    uint64_t u = (uint64_t)__double_as_longlong(f + 0.0);
    u = u >> 63 ? ~u : u | (uint64_t)1 << 63;
    return down ? ~u : u;
}
static __device__ __forceinline__ uint64_t key_of(int64_t i, bool down)
{
    uint64_t u = (uint64_t)i ^ (uint64_t)1 << 63;
    return down ? ~u : u;
}

static __device__ __forceinline__ void make_item(uint64_t *e, uint32_t key, uint32_t at)
{
    *e = (uint64_t)key << 32 | at;
}
static __device__ __forceinline__ void make_item(pl_wide_item *e, uint64_t key, uint32_t at)
{
    e->key = key;
    e->at = at;
}

template <class T> struct item_of {
    typedef uint64_t type;
};
template <> struct item_of<double> {
    typedef pl_wide_item type;
};
template <> struct item_of<int64_t> {
    typedef pl_wide_item type;
};

/* ---- lines in the operands -------------------------------------------------------------- */
template <class T> struct read_line {
    const T *x;
    int64_t size, inner;
    bool down;
    typedef typename item_of<T>::type E;
    __device__ __forceinline__ E load(int64_t line, int64_t k) const
    {
        E e;
        T v = x[(line / inner * size + k) * inner + line % inner];
        make_item(&e, key_of(pl_get<T>(v), down), (uint32_t)k);
        return e;
    }
};

/* Values are read again by position: a key does not preserve the bits of NaN and of -0. */
template <class T> struct write_line {
    const T *x;
    T *y;
    int32_t *index;
    int64_t size, inner, count;
    template <class E>
    __device__ __forceinline__ void store(int64_t line, int64_t k, const E &e) const
    {
        if (k >= count) return;
        uint32_t at = pl_position(e);
        int64_t to = (line / inner * count + k) * inner + line % inner;
        y[to] = x[(line / inner * size + at) * inner + line % inner];
        index[to] = (int32_t)at;
    }
};

static size_t item_bytes(pl_dtype d)
{
    return d == PL_F64 || d == PL_I64 ? sizeof(pl_wide_item) : sizeof(uint64_t);
}

static pl_status sort_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_axis_view v =
        pl_along_axis(&c->in_type[0], static_cast<const pl_sort_attr *>(c->attr)->axis);
    *work_bytes = pl_sort_bytes(v.outer * v.inner, v.size, item_bytes(c->in_type[0].dtype));
    return PL_OK;
}

static pl_status sort(const pl_call *c)
{
    const pl_sort_attr *a = static_cast<const pl_sort_attr *>(c->attr);
    pl_axis_view v = pl_along_axis(&c->in_type[0], a->axis);
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    PL_ALL_TYPES(
        c->in_type[0].dtype, const T *x = static_cast<const T *>(c->in[0]);
        read_line<T> from = {x, v.size, v.inner, a->descending};
        write_line<T> to = {x, static_cast<T *>(c->out[0]), static_cast<int32_t *>(c->out[1]),
                            v.size, v.inner, a->count};
        pl_sort_lines<typename item_of<T>::type>(from, to, v.outer * v.inner, v.size, c->work));
    PL_CUDA_LAUNCHED("sort");
    return PL_OK;
}

PL_CUDA_KERNEL(sort_kernels, sort_prepare, sort);
PL_CUDA_ENTRIES(pl_cuda_sort) = {{"sort", sort_kernels}, {NULL, NULL}};
