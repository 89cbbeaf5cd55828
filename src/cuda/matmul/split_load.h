/* split_load.h - how the kernels of split.cu read their operands: 32 terms at a time into shared
 * memory, from there to the registers of a lane.
 *
 * Tiles lie in shared memory as [row][32 terms] or [32 terms][row] with 16-byte chunks swizzled, so
 * that the 8 lanes that read at once use 8 different groups of banks:
 *
 *   by rows    lanes of two q and four r:  chunk ^ 4 where the bit of the row that changes with q
 *                                          is set
 *   by terms   the same lanes:             chunk ^ a number of 0..7 that differs by r and does not
 *                                          overlap q's bits
 */
#ifndef PL_CUDA_SPLIT_LOAD_H
#define PL_CUDA_SPLIT_LOAD_H

#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"

static constexpr int BK = 32, NT = 4;

template <int MT_, int WM_, int WN_, int BLOCKS_, int STAGES_ = 4> struct tiling {
    static constexpr int MT = MT_, WM = WM_, WN = WN_, BLOCKS = BLOCKS_, STAGES = STAGES_;
    static constexpr int BM = WM * 16 * MT, BN = WN * 8 * NT, THREADS = 32 * WM * WN;
    static constexpr int STAGE = (BM + BN) * BK; /* floats */
};

struct side {
    const float *p;
    int64_t step;
    int32_t ld, rows;
};
struct pixel_finder {
    pl_divisor channels, t1, t2, pixels, p1, p2;
    int32_t size[3], stride[3], by[3], shift[3];
};

/* ---- places in shared memory ------------------------------------------------------------------
 */
/* BIT: the bit of the row that differs between two neighbouring q. */
template <int BIT> static __device__ __forceinline__ int place_in_row(int row, int chunk)
{
    return row * BK + ((chunk ^ ((row >> BIT & 1) << 2)) << 2);
}
/* EACH: chunks of 4 rows that a lane reads per term, 1 or 2. */
template <int WIDTH, int EACH>
static __device__ __forceinline__ int place_in_term(int term, int chunk)
{
    int r = term >> 2 & 3, turn = EACH == 1 ? r * 2 : (r & 1) * 4 + (r >> 1);
    return term * WIDTH + ((chunk ^ turn) << 2);
}

/* ---- loaders: one step's 32 terms of an operand ------------------------------------------------
 */
/* Returns the place of the first tap of a pixel's window, and the pixel's image. */
static __device__ __forceinline__ int4 origin(const pixel_finder &f, int row, int rows)
{
    uint32_t pix, p[3];
    int n = (int)pl_divmod((uint32_t)row, f.pixels, &pix);
    p[0] = pl_divmod(pl_divmod(pix, f.p2, &p[2]), f.p1, &p[1]);
    return make_int4(row < rows ? (int)p[0] * f.stride[0] + f.shift[0] : -(1 << 30),
                     (int)p[1] * f.stride[1] + f.shift[1], (int)p[2] * f.stride[2] + f.shift[2], n);
}
static __device__ __forceinline__ void tap_of(const pixel_finder &f, uint32_t tap, int *to)
{
    uint32_t t[3];
    t[0] = pl_divmod(pl_divmod(tap, f.t2, &t[2]), f.t1, &t[1]);
    for (int d = 0; d < 3; d++) to[d] = (int)t[d] * f.by[d];
}
/* Copies the four channels that a tap reads, or zeros. */
static __device__ __forceinline__ void copy_pixel(const pixel_finder &f, const side &s,
                                                  const float *p, float *to, int4 o, const int *tap,
                                                  uint32_t channel, bool in)
{
    int q0 = o.x + tap[0], q1 = o.y + tap[1], q2 = o.z + tap[2];
    in = in & ((unsigned)q0 < (unsigned)f.size[0]) & ((unsigned)q1 < (unsigned)f.size[1]) &
         ((unsigned)q2 < (unsigned)f.size[2]);
    int pixel = ((o.w * f.size[0] + q0) * f.size[1] + q1) * f.size[2] + q2;
    pl_copy16(to, p + (in ? (int64_t)pixel * s.ld + channel : 0), in);
}

/* W: rows of the tile; E: rows that a lane reads of a column of products: 2 MT, or NT. begin makes
 * a table of TABLE pixels; ahead makes the table for the step after the next load. */
template <class S, int W, int E> struct by_rows {
    static constexpr int BIT = E == 8 ? 3 : 2, SLOTS = W * 8 / S::THREADS, TABLE = 0;
    static __device__ void begin(const side &, const pixel_finder &, int, int, int, int4 *)
    {
    }
    static __device__ void ahead(const pixel_finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const pixel_finder &, const float *p,
                                                float *tile, int first, int k, int end, int,
                                                const int4 *)
    {
        constexpr int STEP = S::THREADS / 8; /* a multiple of 16: chunks are swizzled alike */
        int chunk = threadIdx.x % 8, row = threadIdx.x / 8, at = k + chunk * 4;
        const float *from = p + (int64_t)(first + row) * s.ld + at;
        int left = at < end ? s.rows - first - row : 0;
        tile += place_in_row<BIT>(row, chunk);
#pragma unroll
        for (int i = 0; i < SLOTS; i++, from += (int64_t)STEP * s.ld)
            pl_copy16(tile + i * STEP * BK, i * STEP < left ? from : p, i * STEP < left);
    }
};

template <class S, int W, int E> struct by_terms {
    static constexpr int ROW = W / 4, SLOTS = W * 8 / S::THREADS, TABLE = 0;
    static __device__ void begin(const side &, const pixel_finder &, int, int, int, int4 *)
    {
    }
    static __device__ void ahead(const pixel_finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const pixel_finder &, const float *p,
                                                float *tile, int first, int k, int end, int,
                                                const int4 *)
    {
        constexpr int STEP = S::THREADS / ROW;
        int chunk = threadIdx.x % ROW, row = first + chunk * 4, term = threadIdx.x / ROW;
        const float *from = p + (int64_t)(k + term) * s.ld + row;
        int left = row < s.rows ? end - k - term : 0;
#pragma unroll
        for (int i = 0; i < SLOTS; i++, from += (int64_t)STEP * s.ld)
            pl_copy16(tile + place_in_term<W, E / 4>(term + i * STEP, chunk),
                      i * STEP < left ? from : p, i * STEP < left);
    }
};

/* The table has the tile's rows. */
template <class S, int W, int E> struct pixel_rows {
    static constexpr int BIT = E == 8 ? 3 : 2, SLOTS = W * 8 / S::THREADS, TABLE = W;
    static __device__ void begin(const side &s, const pixel_finder &f, int first, int, int,
                                 int4 *table)
    {
        for (int i = threadIdx.x; i < W; i += S::THREADS) table[i] = origin(f, first + i, s.rows);
    }
    static __device__ void ahead(const pixel_finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const pixel_finder &f,
                                                const float *p, float *tile, int, int k, int end,
                                                int, const int4 *table)
    {
        int chunk = threadIdx.x % 8, at = k + chunk * 4, tap[3];
        uint32_t channel;
        tap_of(f, pl_divmod((uint32_t)at, f.channels, &channel), tap);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            int row = threadIdx.x / 8 + i * (S::THREADS / 8);
            copy_pixel(f, s, p, tile + place_in_row<BIT>(row, chunk), table[row], tap, channel,
                       at < end);
        }
    }
};

/* The table has the terms of STAGES steps. */
template <class S, int W, int E> struct pixel_terms {
    static constexpr int ROW = W / 4, SLOTS = W * 8 / S::THREADS, TABLE = S::STAGES * BK;
    static __device__ void begin(const side &, const pixel_finder &f, int, int k, int end,
                                 int4 *table)
    {
        for (int i = threadIdx.x; i < TABLE; i += S::THREADS) table[i] = origin(f, k + i, end);
    }
    static __device__ __forceinline__ void ahead(const pixel_finder &f, int k, int end, int step,
                                                 int4 *table)
    {
        if (threadIdx.x < BK)
            table[step % S::STAGES * BK + threadIdx.x] = origin(f, k + (int)threadIdx.x, end);
    }
    static __device__ __forceinline__ void load(const side &s, const pixel_finder &f,
                                                const float *p, float *tile, int first, int, int,
                                                int step, const int4 *table)
    {
        int chunk = threadIdx.x % ROW, row = first + chunk * 4, tap[3];
        uint32_t channel;
        tap_of(f, pl_divmod((uint32_t)row, f.channels, &channel), tap);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            int term = threadIdx.x / ROW + i * (S::THREADS / ROW);
            copy_pixel(f, s, p, tile + place_in_term<W, E / 4>(term, chunk),
                       table[step % S::STAGES * BK + term], tap, channel, row < s.rows);
        }
    }
};

/* ---- fragments ------------------------------------------------------------------------------ */
/* v[e][t]: term 4r + t of 16 of the e-th of a lane's E rows; `row` is the first of them. read4: of
 * four rows. */
template <class S, int W, int E, template <class, int, int> class L> struct reader;

template <int E, int BIT>
static __device__ __forceinline__ void read_rows(float (*v)[4], const float *tile, int row,
                                                 int chunk)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        float4 x = *(const float4 *)(tile + place_in_row<BIT>(row + e, chunk));
        v[e][0] = x.x, v[e][1] = x.y, v[e][2] = x.z, v[e][3] = x.w;
    }
}
/* N: rows to read. */
template <int W, int E, int N>
static __device__ __forceinline__ void read_terms(float (*v)[4], const float *tile, int row,
                                                  int chunk)
{
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int c = 0; c < N / 4; c++) {
            float4 x =
                *(const float4 *)(tile + place_in_term<W, E / 4>(chunk * 4 + t, row / 4 + c));
            v[c * 4 + 0][t] = x.x, v[c * 4 + 1][t] = x.y, v[c * 4 + 2][t] = x.z,
                      v[c * 4 + 3][t] = x.w;
        }
}
template <class S, int W, int E> struct reader<S, W, E, by_rows> {
    static __device__ __forceinline__ void read(float (*v)[4], const float *tile, int row,
                                                int chunk)
    {
        read_rows<E, by_rows<S, W, E>::BIT>(v, tile, row, chunk);
    }
    static __device__ __forceinline__ void read4(float (*v)[4], const float *tile, int row,
                                                 int chunk)
    {
        read_rows<4, by_rows<S, W, E>::BIT>(v, tile, row, chunk);
    }
};
template <class S, int W, int E> struct reader<S, W, E, pixel_rows> : reader<S, W, E, by_rows> {
};
template <class S, int W, int E> struct reader<S, W, E, by_terms> {
    static __device__ __forceinline__ void read(float (*v)[4], const float *tile, int row,
                                                int chunk)
    {
        read_terms<W, E, E>(v, tile, row, chunk);
    }
    static __device__ __forceinline__ void read4(float (*v)[4], const float *tile, int row,
                                                 int chunk)
    {
        read_terms<W, E, 4>(v, tile, row, chunk);
    }
};
template <class S, int W, int E> struct reader<S, W, E, pixel_terms> : reader<S, W, E, by_terms> {
};

#endif
