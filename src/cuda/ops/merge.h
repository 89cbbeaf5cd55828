/* merge.h - sorting lines of unique items on the device: tiles in shared memory, then merges.
 *
 * Items are unique in their order (a key with its position as the lower part), so every sort is
 * stable and the result is unique. One block sorts a line of up to PL_TILE items with Batcher's
 * bitonic network. Longer lines are sorted tile by tile, and then runs are merged in pairs: a block
 * finds by bisection which pieces of the two runs make its piece of the result (Green, McColl and
 * Bader, "GPU merge path", ICS 2012), loads both into shared memory, and its threads do the same
 * inside.
 *
 * Functors define where items come from and go to: E load(line, k), void store(line, k, item).
 */
#ifndef PL_CUDA_MERGE_H
#define PL_CUDA_MERGE_H

#include "cuda/device/launch.h"

static const int PL_TILE = 2048, PL_MERGE_THREADS = 256, PL_MERGE_EACH = PL_TILE / PL_MERGE_THREADS;

/* A 64-bit key with its position. A narrower key and its position share one uint64_t. */
struct pl_wide_item {
    uint64_t key;
    uint64_t at;
};
static __device__ __forceinline__ bool pl_before(uint64_t a, uint64_t b)
{
    return a < b;
}
static __device__ __forceinline__ bool pl_before(const pl_wide_item &a, const pl_wide_item &b)
{
    return a.key < b.key || (a.key == b.key && a.at < b.at);
}
/* Sets an item that sorts after every other item. */
static __device__ __forceinline__ void pl_set_last(uint64_t *e)
{
    *e = ~(uint64_t)0;
}
static __device__ __forceinline__ void pl_set_last(pl_wide_item *e)
{
    e->key = e->at = ~(uint64_t)0;
}
static __device__ __forceinline__ uint32_t pl_position(uint64_t e)
{
    return (uint32_t)e;
}
static __device__ __forceinline__ uint32_t pl_position(const pl_wide_item &e)
{
    return (uint32_t)e.at;
}

/* Items in an array of lines. */
template <class E> struct pl_in_buffer {
    E *p;
    int64_t size;
    __device__ __forceinline__ E load(int64_t line, int64_t k) const
    {
        return p[line * size + k];
    }
    __device__ __forceinline__ void store(int64_t line, int64_t k, const E &e) const
    {
        p[line * size + k] = e;
    }
};

/* One block per tile of a line. width: the power of two that holds a tile. */
template <class E, class L, class S>
static __global__ void __launch_bounds__(PL_MERGE_THREADS)
    pl_sort_tiles(const L from, const S to, int64_t n_tiles, int32_t tiles, int64_t size, int width)
{
    PL_SHARED(E, item);
    int t0 = (int)threadIdx.x, step = (int)blockDim.x;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t line = tile / tiles, first = tile % tiles * PL_TILE;
        int n = size - first < width ? (int)(size - first) : width;
        for (int i = t0; i < width; i += step) {
            if (i < n)
                item[i] = from.load(line, first + i);
            else
                pl_set_last(&item[i]);
        }
        __syncthreads();
        for (int run = 2; run <= width; run *= 2)
            for (int d = run / 2; d > 0; d /= 2) {
                for (int i = t0; i < width / 2; i += step) {
                    int a = 2 * i - (i & (d - 1)), b = a + d;
                    E x = item[a], y = item[b];
                    if (pl_before(y, x) == ((a & run) == 0)) {
                        item[a] = y;
                        item[b] = x;
                    }
                }
                __syncthreads();
            }
        for (int i = t0; i < n; i += step) to.store(line, first + i, item[i]);
        __syncthreads();
    }
}

/* Returns how many of the first k items of the merged runs a[0..na) and b[0..nb) come from a. */
template <class E>
static __device__ int64_t pl_share(const E *a, int64_t na, const E *b, int64_t nb, int64_t k)
{
    int64_t lo = k > nb ? k - nb : 0, hi = k < na ? k : na;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (pl_before(a[mid], b[k - 1 - mid]))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* One block per tile of the result; runs of `width` items, a multiple of PL_TILE. */
template <class E, class S>
static __global__ void __launch_bounds__(PL_MERGE_THREADS)
    pl_merge_runs(const E *x, const S to, int64_t n_tiles, int32_t tiles, int64_t size,
                  int64_t width)
{
    PL_SHARED(E, item);
    __shared__ int64_t cut[2];
    int t = (int)threadIdx.x;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t line = tile / tiles, first = tile % tiles * PL_TILE;
        int64_t begin = first / (2 * width) * (2 * width);
        int64_t na = size - begin < width ? size - begin : width, nb = size - begin - na;
        if (nb > width) nb = width;
        const E *a = x + line * size + begin, *b = a + na;
        int64_t k = first - begin;
        int n = (int)(na + nb - k < PL_TILE ? na + nb - k : PL_TILE);
        if (t < 2) cut[t] = pl_share(a, na, b, nb, t ? k + n : k);
        __syncthreads();
        int64_t a0 = cut[0], b0 = k - a0;
        int ca = (int)(cut[1] - a0), cb = n - ca;
        for (int i = t; i < n; i += PL_MERGE_THREADS) item[i] = i < ca ? a[a0 + i] : b[b0 + i - ca];
        __syncthreads();
        E mine[PL_MERGE_EACH];
        int k0 = t * PL_MERGE_EACH < n ? t * PL_MERGE_EACH : n;
        int i = (int)pl_share(item, ca, item + ca, cb, k0), j = k0 - i;
#pragma unroll
        for (int e = 0; e < PL_MERGE_EACH; e++) {
            if (k0 + e >= n) break;
            bool second = i >= ca || (j < cb && pl_before(item[ca + j], item[i]));
            mine[e] = item[second ? ca + j : i];
            j += second;
            i += !second;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < PL_MERGE_EACH; e++)
            if (k0 + e < n) item[k0 + e] = mine[e];
        __syncthreads();
        for (int e = t; e < n; e += PL_MERGE_THREADS) to.store(line, first + e, item[e]);
        __syncthreads();
    }
}

/* Returns the scratch of pl_sort_lines. */
static inline size_t pl_sort_bytes(int64_t lines, int64_t size, size_t item)
{
    return size <= PL_TILE ? 0 : (size_t)(2 * lines * size) * item;
}

/* Sorts lines of `size` items each. */
template <class E, class L, class S>
static void pl_sort_lines(const L &from, const S &to, int64_t lines, int64_t size, void *work)
{
    int width = 2;
    while (width < size && width < PL_TILE) width *= 2;
    int64_t tiles = pl_ceil_div(size, PL_TILE), n_tiles = lines * tiles;
    int threads = width / 2 < 32 ? 32 : width / 2 < PL_MERGE_THREADS ? width / 2 : PL_MERGE_THREADS;
    dim3 grid(pl_blocks(n_tiles, 1)), block((unsigned)threads);
    if (tiles == 1) {
        PL_LAUNCH((pl_sort_tiles<E, L, S>), grid, block, width * sizeof(E), from, to, n_tiles, 1,
                  size, width);
        return;
    }
    E *a = static_cast<E *>(work), *b = a + lines * size;
    pl_in_buffer<E> buffer = {a, size};
    PL_LAUNCH((pl_sort_tiles<E, L, pl_in_buffer<E>>), grid, block, width * sizeof(E), from, buffer,
              n_tiles, (int32_t)tiles, size, width);
    for (int64_t run = PL_TILE; run < size; run *= 2) {
        buffer.p = b;
        if (run * 2 < size)
            PL_LAUNCH((pl_merge_runs<E, pl_in_buffer<E>>), grid, block, PL_TILE * sizeof(E), a,
                      buffer, n_tiles, (int32_t)tiles, size, run);
        else
            PL_LAUNCH((pl_merge_runs<E, S>), grid, block, PL_TILE * sizeof(E), a, to, n_tiles,
                      (int32_t)tiles, size, run);
        E *other = a;
        a = b;
        b = other;
    }
}

#endif
