/* move.cu - ops that only move elements: permute, slice, flip, broadcast, roll, concat, pad,
 * reshape.
 *
 * The first four are one copy between two strided boxes, roll is two copies. Dimensions that are
 * contiguous on both sides are merged, and elements that stay neighbours move together, up to 16
 * bytes at once.
 *
 *   box     every thread moves one unit; both sides are contiguous along the last dimension, or the
 *           other side jumps in any case
 *   tile    the last dimension of one side is another dimension of the other: tiles go through
 *           shared memory, so that reads and writes are both contiguous
 *
 * concat joins up to 16 inputs in one launch. pad computes for every unit of the output where it
 * comes from.
 */
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

#include "base/dtype.h"
#include "ops/core/attr.h"

enum { THREADS = 256 };

/* ---- boxes ------------------------------------------------------------------------------ */
/* dim[i] steps of from[i] elements in the source and to[i] in the destination. */
struct box {
    int rank;
    int64_t dim[PL_MAX_RANK], from[PL_MAX_RANK], to[PL_MAX_RANK];
};

static void drop_dim(box *b, int i)
{
    for (b->rank--; i < b->rank; i++) {
        b->dim[i] = b->dim[i + 1];
        b->from[i] = b->from[i + 1];
        b->to[i] = b->to[i + 1];
    }
}

/* Drops dims of 1 and merges dims that continue each other on both sides. */
static void simplify(box *b)
{
    for (int i = b->rank - 1; i >= 0; i--)
        if (b->dim[i] == 1) drop_dim(b, i);
    for (int i = b->rank - 2; i >= 0; i--) {
        if (b->from[i] != b->from[i + 1] * b->dim[i + 1] ||
            b->to[i] != b->to[i + 1] * b->dim[i + 1])
            continue;
        b->dim[i + 1] *= b->dim[i];
        drop_dim(b, i);
    }
    if (b->rank == 0) {
        b->rank = 1;
        b->dim[0] = b->from[0] = b->to[0] = 1;
    }
}

/* Returns the bytes that move together: the largest power of two that divides the last dimension,
 * the other strides and both pointers. */
static int64_t unit_bytes(const box *b, int64_t elem, const void *x, const void *y)
{
    int last = b->rank - 1;
    if (b->from[last] != 1 || b->to[last] != 1) return elem;
    int64_t w = pl_widest_at(pl_widest_at(pl_widest(16, b->dim[last] * elem), x), y);
    for (int i = 0; i < last; i++) w = pl_widest(pl_widest(w, b->from[i] * elem), b->to[i] * elem);
    return w;
}

struct box_args {
    int rank;
    uint32_t n;
    pl_divisor dim[PL_MAX_RANK];
    int64_t from[PL_MAX_RANK], to[PL_MAX_RANK];
};

template <class U> static __global__ void copy_box(const U *x, U *y, const box_args b)
{
    for (int64_t i = PL_ITEM; i < b.n; i += PL_ITEMS) {
        uint32_t rest = (uint32_t)i, at;
        int64_t from = 0, to = 0;
        for (int k = b.rank - 1; k > 0; k--) {
            rest = pl_divmod(rest, b.dim[k], &at);
            from += at * b.from[k];
            to += at * b.to[k];
        }
        y[to + rest * b.to[0]] = x[from + rest * b.from[0]];
    }
}

/* ---- tiles ------------------------------------------------------------------------------ */
/* Source contiguous along a, destination along b; other dims are counted by blockIdx.y and z. */
struct tile_args {
    uint32_t a, b, tiles_a;
    int64_t from_b, to_a; /* steps of the source along b and of the destination along a */
    int rank;
    uint32_t n;
    pl_divisor dim[PL_MAX_RANK];
    int64_t from[PL_MAX_RANK], to[PL_MAX_RANK];
};

/* V elements per access, TILE x TILE elements per block. */
template <class T, int V, int TILE>
static __global__ void __launch_bounds__(THREADS)
    copy_tile(const T *__restrict__ x, T *__restrict__ y, const tile_args t)
{
    __shared__ T tile[TILE][TILE + 4 / (sizeof(T) < 4 ? sizeof(T) : 4)];
    typedef pl_pack<T, V> pack;
    const int vecs = TILE / V, steps = TILE * vecs / THREADS;
    uint32_t a0 = blockIdx.x % t.tiles_a * TILE, b0 = blockIdx.x / t.tiles_a * TILE;
    for (uint32_t box = blockIdx.y; box < t.n; box += gridDim.y) {
        uint32_t rest = box, at;
        int64_t from = 0, to = 0;
        for (int k = t.rank - 1; k >= 0; k--) {
            rest = pl_divmod(rest, t.dim[k], &at);
            from += at * t.from[k];
            to += at * t.to[k];
        }
#pragma unroll
        for (int s = 0; s < steps; s++) {
            uint32_t i = threadIdx.x + s * THREADS, b = i / vecs, a = i % vecs * V;
            if (a0 + a >= t.a || b0 + b >= t.b) continue;
            pack v = pl_read<T, V>(x + from + (b0 + b) * t.from_b + a0 + a);
#pragma unroll
            for (int k = 0; k < V; k++) tile[b][a + k] = v.v[k];
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < steps; s++) {
            uint32_t i = threadIdx.x + s * THREADS, a = i / vecs, b = i % vecs * V;
            if (a0 + a >= t.a || b0 + b >= t.b) continue;
            pack v;
#pragma unroll
            for (int k = 0; k < V; k++) v.v[k] = tile[b + k][a];
            pl_write(y + to + (a0 + a) * t.to_a + b0 + b, v);
        }
        __syncthreads();
    }
}

template <class T, int V, int TILE>
static void launch_tile(const box *b, int ia, const void *x, void *y)
{
    tile_args t;
    int ib = b->rank - 1;
    t.a = (uint32_t)b->dim[ia];
    t.b = (uint32_t)b->dim[ib];
    t.from_b = b->from[ib];
    t.to_a = b->to[ia];
    t.tiles_a = (uint32_t)pl_ceil_div(t.a, TILE);
    t.rank = 0;
    t.n = 1;
    for (int i = 0; i < ib; i++) {
        if (i == ia) continue;
        t.dim[t.rank] = pl_div_by(b->dim[i]);
        t.from[t.rank] = b->from[i];
        t.to[t.rank++] = b->to[i];
        t.n *= (uint32_t)b->dim[i];
    }
    pl_counts((int64_t)t.n * t.a * t.b, sizeof t.n);
    uint32_t side = (uint32_t)pl_grid_side();
    dim3 grid(t.tiles_a * (uint32_t)pl_ceil_div(t.b, TILE), t.n < side ? t.n : side);
    PL_LAUNCH((copy_tile<T, V, TILE>), grid, dim3(THREADS), 0, static_cast<const T *>(x),
              static_cast<T *>(y), t);
}

/* Whether all rows of both sides are aligned for 16-byte accesses. */
static bool wide_rows(const box *b, int ia, int64_t elem, const void *x, const void *y)
{
    int64_t w = pl_widest_at(pl_widest_at(16, x), y);
    w = pl_widest(pl_widest(w, b->dim[ia] * elem), b->dim[b->rank - 1] * elem);
    for (int i = 0; i < b->rank; i++) {
        if (i != ia) w = pl_widest(w, b->from[i] * elem);
        if (i != b->rank - 1) w = pl_widest(w, b->to[i] * elem);
    }
    return w == 16;
}

/* Returns the dimension along which the source is contiguous, if it is not the last and a tile of
 * it and the last is worth its shared memory; -1 otherwise. */
static int tiled_dim(const box *b)
{
    int last = b->rank - 1;
    if (b->to[last] != 1 || b->from[last] == 0) return -1;
    for (int i = 0; i < last; i++)
        if (b->from[i] == 1 && b->dim[i] >= 8 && b->dim[last] >= 8) return i;
    return -1;
}

static void run_tiles(const box *b, int ia, int64_t elem, const void *x, void *y)
{
    bool wide = wide_rows(b, ia, elem, x, y);
    switch (elem) {
    case 1:
        wide ? launch_tile<uint8_t, 16, 64>(b, ia, x, y) : launch_tile<uint8_t, 1, 64>(b, ia, x, y);
        break;
    case 2:
        wide ? launch_tile<uint16_t, 8, 64>(b, ia, x, y)
             : launch_tile<uint16_t, 1, 64>(b, ia, x, y);
        break;
    case 4:
        wide ? launch_tile<uint32_t, 4, 64>(b, ia, x, y)
             : launch_tile<uint32_t, 1, 32>(b, ia, x, y);
        break;
    default:
        wide ? launch_tile<uint64_t, 2, 32>(b, ia, x, y)
             : launch_tile<uint64_t, 1, 32>(b, ia, x, y);
        break;
    }
}

/* ---- one copy --------------------------------------------------------------------------- */
static void run_box(const box *b, int64_t elem, const void *x, void *y)
{
    int64_t unit = unit_bytes(b, elem, x, y), wide = unit / elem;
    int last = b->rank - 1;
    box_args a;
    a.rank = b->rank;
    a.n = 1;
    for (int i = 0; i <= last; i++) {
        a.dim[i] = pl_div_by(i == last ? b->dim[i] / wide : b->dim[i]);
        a.from[i] = i == last ? b->from[i] : b->from[i] / wide;
        a.to[i] = i == last ? b->to[i] : b->to[i] / wide;
        a.n *= a.dim[i].d;
    }
    pl_counts(a.n, sizeof a.n);
    PL_UNIT_TYPES(unit, PL_LAUNCH((copy_box<U>), dim3(pl_blocks(a.n, THREADS)), dim3(THREADS), 0,
                                  static_cast<const U *>(x), static_cast<U *>(y), a));
}

/* Copies a box whose elements have `elem` bytes; a box with more items than a launch counts is
 * copied in pieces along its first dimension. */
static void copy(box b, int64_t elem, const char *x, char *y)
{
    int64_t n = 1;
    simplify(&b);
    for (int i = 0; i < b.rank; i++) n *= b.dim[i];
    if (n == 0) return;
    if (n > pl_most_items()) {
        box part = b;
        int64_t per = pl_most_items() / (n / b.dim[0]);
        if (per < 1) per = 1;
        for (int64_t at = 0; at < b.dim[0]; at += per) {
            part.dim[0] = b.dim[0] - at < per ? b.dim[0] - at : per;
            copy(part, elem, x + at * b.from[0] * elem, y + at * b.to[0] * elem);
        }
        return;
    }
    int ia = tiled_dim(&b);
    if (ia >= 0)
        run_tiles(&b, ia, elem, x, y);
    else
        run_box(&b, elem, x, y);
}

static void dense(const pl_type *t, int64_t *stride)
{
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= t->dim[i];
    }
}

/* Returns a box over the whole output with its destination strides. */
static box box_of(const pl_type *y)
{
    box b;
    b.rank = y->rank;
    for (int i = 0; i < y->rank; i++) {
        b.dim[i] = y->dim[i];
        b.from[i] = 0;
    }
    dense(y, b.to);
    return b;
}

static pl_status copy_out(const pl_call *c, const box &b, int64_t offset)
{
    int64_t elem = (int64_t)pl_dtype_bytes(c->out_type[0].dtype);
    copy(b, elem, static_cast<const char *>(c->in[0]) + offset * elem,
         static_cast<char *>(c->out[0]));
    PL_CUDA_LAUNCHED("copy");
    return PL_OK;
}

/* ---- the ops ---------------------------------------------------------------------------- */
static pl_status permute(const pl_call *c)
{
    const pl_dims *p = &static_cast<const pl_permute_attr *>(c->attr)->perm;
    int64_t stride[PL_MAX_RANK];
    box b = box_of(&c->out_type[0]);
    dense(&c->in_type[0], stride);
    for (int i = 0; i < p->n; i++) b.from[i] = stride[p->v[i]];
    return copy_out(c, b, 0);
}

static pl_status slice(const pl_call *c)
{
    const pl_slice_attr *a = static_cast<const pl_slice_attr *>(c->attr);
    int64_t stride[PL_MAX_RANK], offset = 0;
    box b = box_of(&c->out_type[0]);
    dense(&c->in_type[0], stride);
    for (int i = 0; i < b.rank; i++) {
        offset += a->start.v[i] * stride[i];
        b.from[i] = a->step.v[i] * stride[i];
    }
    return copy_out(c, b, offset);
}

static pl_status flip(const pl_call *c)
{
    const pl_dims *axes = &static_cast<const pl_flip_attr *>(c->attr)->axes;
    box b = box_of(&c->out_type[0]);
    int64_t offset = 0;
    dense(&c->in_type[0], b.from);
    for (int i = 0; i < axes->n; i++) {
        int d = (int)axes->v[i];
        offset += (b.dim[d] - 1) * b.from[d];
        b.from[d] = -b.from[d];
    }
    return copy_out(c, b, offset);
}

static pl_status broadcast(const pl_call *c)
{
    const pl_type *x = &c->in_type[0], *y = &c->out_type[0];
    int64_t stride = 1;
    box b = box_of(y);
    for (int i = 1; i <= x->rank; i++) {
        int64_t d = x->dim[x->rank - i];
        if (d != 1) b.from[y->rank - i] = stride;
        stride *= d;
    }
    return copy_out(c, b, 0);
}

/* Two boxes: the last `shift` rows of the axis to its front, the others after them. */
static pl_status roll(const pl_call *c)
{
    const pl_roll_attr *a = static_cast<const pl_roll_attr *>(c->attr);
    int64_t elem = (int64_t)pl_dtype_bytes(c->out_type[0].dtype);
    const char *x = static_cast<const char *>(c->in[0]);
    char *y = static_cast<char *>(c->out[0]);
    box b = box_of(&c->out_type[0]);
    int64_t rest = b.dim[a->axis] - a->shift, row = b.to[a->axis] * elem;
    dense(&c->in_type[0], b.from);
    b.dim[a->axis] = a->shift;
    copy(b, elem, x + rest * row, y);
    b.dim[a->axis] = rest;
    copy(b, elem, x, y + a->shift * row);
    PL_CUDA_LAUNCHED("roll");
    return PL_OK;
}

/* reshape and stop_gradient, where they are not views. */
static pl_status same(const pl_call *c)
{
    size_t bytes = pl_type_bytes(&c->in_type[0]);
    if (c->in[0] != c->out[0] && bytes)
        PL_CUDA(cudaMemcpyAsync(c->out[0], c->in[0], bytes, cudaMemcpyDeviceToDevice,
                                pl_cuda_stream()));
    return PL_OK;
}

/* ---- concat ----------------------------------------------------------------------------- */
/* Inputs of one launch: rows of `length` units, side by side in rows of the output. N counts the
 * units of a row. */
enum { JOINED = 16 };
template <class N> struct join_args {
    const void *from[JOINED];
    N begin[JOINED + 1]; /* unit of the output's row where each input begins, from `skip` on */
    int n;
    int64_t items, row, skip; /* row: units of the output's row */
};

template <class U, class N>
static __global__ void __launch_bounds__(THREADS)
    join_rows(U *y, const join_args<N> j, const pl_long_divisor length)
{
    for (int64_t i = PL_ITEM; i < j.items; i += PL_ITEMS) {
        int64_t at, o = pl_long_divmod(i, length, &at);
        int k = 0;
        while (k + 1 < j.n && at >= j.begin[k + 1]) k++;
        const U *x = static_cast<const U *>(j.from[k]);
        y[o * j.row + j.skip + at] = x[o * (j.begin[k + 1] - j.begin[k]) + (at - j.begin[k])];
    }
}

/* Returns the units of input k in one row of the output. */
static int64_t run_of(const pl_call *c, int k, int64_t axis, int64_t unit)
{
    pl_axis_view v = pl_along_axis(&c->in_type[k], axis);
    return v.size * v.inner * (int64_t)pl_dtype_bytes(c->in_type[k].dtype) / unit;
}

/* row: units of `wide` bytes per row of the output. */
template <class N> static void join(const pl_call *c, int64_t axis, int64_t wide, int64_t row)
{
    int64_t outer = pl_along_axis(&c->out_type[0], axis).outer;
    join_args<N> j;
    pl_counts(row, sizeof(N));
    j.row = row;
    j.skip = 0;
    for (int k = 0; k < c->n_in; j.skip += j.begin[j.n]) {
        for (j.n = 0, j.begin[0] = 0; j.n < JOINED && k < c->n_in; k++) {
            j.from[j.n] = c->in[k];
            j.begin[j.n + 1] = j.begin[j.n] + (N)run_of(c, k, axis, wide);
            j.n += run_of(c, k, axis, wide) > 0;
        }
        j.items = outer * j.begin[j.n];
        if (j.items == 0) continue;
        PL_UNIT_TYPES(wide,
                      PL_LAUNCH((join_rows<U, N>), dim3(pl_blocks(j.items, THREADS)), dim3(THREADS),
                                0, static_cast<U *>(c->out[0]), j, pl_long_div_by(j.begin[j.n])));
    }
}

static pl_status concat(const pl_call *c)
{
    int64_t axis = static_cast<const pl_concat_attr *>(c->attr)->axis, row = 0;
    int64_t wide = pl_widest_at(16, c->out[0]);
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    for (int k = 0; k < c->n_in; k++)
        wide = pl_widest_at(pl_widest(wide, run_of(c, k, axis, 1)), c->in[k]);
    for (int k = 0; k < c->n_in; k++) row += run_of(c, k, axis, wide);
    if (row <= pl_most_items())
        join<uint32_t>(c, axis, wide, row);
    else
        join<int64_t>(c, axis, wide, row);
    PL_CUDA_LAUNCHED("concat");
    return PL_OK;
}

/* ---- pad -------------------------------------------------------------------------------- */
/* The type that counts units: 32 bits, or 64 where a row or the first dim has more. */
struct few {
    typedef uint32_t index;
    typedef pl_divisor divisor;
    static pl_divisor by(int64_t d)
    {
        return pl_div_by(d);
    }
};
struct many {
    typedef int64_t index;
    typedef pl_long_divisor divisor;
    static pl_long_divisor by(int64_t d)
    {
        return pl_long_div_by(d);
    }
};

/* Every dim of the output: lo units of padding, dim units that are `step` apart, padding. */
template <class N> struct pad_args {
    int rank;
    int64_t n;
    typename N::divisor out[PL_MAX_RANK], step[PL_MAX_RANK];
    typename N::index lo[PL_MAX_RANK], dim[PL_MAX_RANK];
};

template <class U, class N>
static __global__ void pad_units(const U *x, U *y, U value, const pad_args<N> p, int64_t first)
{
    for (int64_t i = PL_ITEM; i < p.n; i += PL_ITEMS) {
        typename N::index rest = (typename N::index)i, at, gap;
        int64_t from = 0, row = 1;
        bool inside = true;
        for (int k = p.rank - 1; k >= 0; k--) {
            if (k)
                rest = pl_divmod(rest, p.out[k], &at);
            else
                at = rest + (typename N::index)first;
            inside &= at >= p.lo[k];
            at = pl_divmod(at >= p.lo[k] ? at - p.lo[k] : 0, p.step[k], &gap);
            inside &= gap == 0 && at < p.dim[k];
            from += at * row;
            row *= p.dim[k];
        }
        y[i] = inside ? x[from] : value;
    }
}

/* pad's attributes with dims merged: a dim without padding is merged into the dim before it, unless
 * that dim has gaps between its elements. */
struct padding {
    int rank;
    int64_t lo[PL_MAX_RANK], dim[PL_MAX_RANK], hi[PL_MAX_RANK], step[PL_MAX_RANK];
};

static padding padding_of(const pl_call *c)
{
    const pl_pad_attr *a = static_cast<const pl_pad_attr *>(c->attr);
    const pl_type *x = &c->in_type[0];
    padding p;
    p.rank = 1;
    p.lo[0] = p.hi[0] = 0;
    p.dim[0] = p.step[0] = 1;
    for (int i = 0; i < x->rank; i++) {
        int k = p.rank - 1;
        bool whole = !a->lo.v[i] && !a->hi.v[i] && !a->inner.v[i];
        bool bare = p.dim[k] == 1 && p.lo[k] == 0 && p.hi[k] == 0;
        if (whole && p.step[k] == 1) {
            p.lo[k] *= x->dim[i];
            p.dim[k] *= x->dim[i];
            p.hi[k] *= x->dim[i];
            continue;
        }
        if (!bare) k = p.rank++;
        p.lo[k] = a->lo.v[i];
        p.dim[k] = x->dim[i];
        p.hi[k] = a->hi.v[i];
        p.step[k] = a->inner.v[i] + 1;
    }
    return p;
}

/* Returns the units of the output along dim i. */
static int64_t padded(const padding *p, int i, int64_t wide)
{
    int64_t n = p->dim[i] ? (p->dim[i] - 1) * p->step[i] + 1 : 0;
    return (p->lo[i] + n + p->hi[i]) / (i == p->rank - 1 ? wide : 1);
}

template <class U, class N> static void launch_pad(const pl_call *c, const padding *p, int64_t wide)
{
    pad_args<N> a;
    U value;
    int64_t elem = (int64_t)pl_dtype_bytes(c->in_type[0].dtype), row = 1;
    for (int64_t i = 0; i < wide; i++)
        pl_elem_set(c->in_type[0].dtype, reinterpret_cast<char *>(&value) + i * elem, 0,
                    static_cast<const pl_pad_attr *>(c->attr)->value);
    a.rank = p->rank;
    for (int i = 0; i < p->rank; i++) {
        int64_t by = i == p->rank - 1 ? wide : 1;
        a.lo[i] = (typename N::index)(p->lo[i] / by);
        a.dim[i] = (typename N::index)(p->dim[i] / by);
        a.out[i] = N::by(padded(p, i, wide));
        a.step[i] = N::by(p->step[i]);
        if (i) row *= padded(p, i, wide);
    }
    /* In pieces along the first dimension where a launch cannot count all units. */
    int64_t per = row ? pl_most_items() / row : 0, all = padded(p, 0, wide);
    if (per < 1) per = 1;
    for (int64_t at = 0; at < all && row; at += per) {
        a.n = (all - at < per ? all - at : per) * row;
        pl_counts(a.n > all ? a.n : all, sizeof(typename N::index));
        PL_LAUNCH((pad_units<U, N>), dim3(pl_blocks(a.n, THREADS)), dim3(THREADS), 0,
                  static_cast<const U *>(c->in[0]), static_cast<U *>(c->out[0]) + at * row, value,
                  a, at);
    }
}

static pl_status pad(const pl_call *c)
{
    padding p = padding_of(c);
    int last = p.rank - 1;
    int64_t elem = (int64_t)pl_dtype_bytes(c->in_type[0].dtype), unit = elem;
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    if (p.step[last] == 1) {
        unit = pl_widest(pl_widest(16, p.lo[last] * elem), p.dim[last] * elem);
        unit = pl_widest(unit, p.hi[last] * elem);
        unit = pl_widest_at(pl_widest_at(unit, c->in[0]), c->out[0]);
    }
    int64_t row = 1, all = padded(&p, 0, unit / elem);
    for (int i = 1; i < p.rank; i++) row *= padded(&p, i, unit / elem);
    if (row <= pl_most_items() && all <= pl_most_items())
        PL_UNIT_TYPES(unit, launch_pad<U, few>(c, &p, unit / elem))
    else
        PL_UNIT_TYPES(unit, launch_pad<U, many>(c, &p, unit / elem))
    PL_CUDA_LAUNCHED("pad");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(permute_kernels, NULL, permute);
PL_CUDA_KERNEL(slice_kernels, NULL, slice);
PL_CUDA_KERNEL(flip_kernels, NULL, flip);
PL_CUDA_KERNEL(broadcast_kernels, NULL, broadcast);
PL_CUDA_KERNEL(roll_kernels, NULL, roll);
PL_CUDA_KERNEL(concat_kernels, NULL, concat);
PL_CUDA_KERNEL(pad_kernels, NULL, pad);
PL_CUDA_KERNEL(same_kernels, NULL, same);

PL_CUDA_ENTRIES(pl_cuda_move) = {{"permute", permute_kernels}, {"slice", slice_kernels},
                                 {"flip", flip_kernels},       {"broadcast", broadcast_kernels},
                                 {"concat", concat_kernels},   {"pad", pad_kernels},
                                 {"reshape", same_kernels},    {"stop_gradient", same_kernels},
                                 {"roll", roll_kernels},       {NULL, NULL}};
