/* conv_thin_mma.cu - the three sums of conv_thin.cu on tensor cores, for f16 and bf16.
 *
 * The few channels and the taps together are one side of a small product, padded to 16 (or 8):
 *
 *   widen   many [pixels, M]  = windows of few [pixels, taps*F] x w [taps*F, M]
 *   thin    parts [pixels, taps] = many [pixels, M] x w [M, taps], then shifted and added, F times
 *   outer   w [taps, M] = windows of few' [taps, pixels] x many [pixels, M], F times
 *
 * Tensor cores do the multiplications, so the threads only move memory. The order of channels
 * inside a product is free as long as both operands agree: it is chosen so that a lane's registers
 * are 16 contiguous bytes in memory. See mma.h for fragments; q is a lane's group of four, r its
 * index in the group.
 */
#include "cuda/conv/conv_thin.h"
#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"

static constexpr int THREADS = 256, WARPS = THREADS / 32;
static constexpr int TILE_H = 8, TILE_W = 64, RUN = 64;

/* ---- fragments ------------------------------------------------------------------------------ */
typedef struct pair {
    unsigned v[2];
} pair;

template <typename T> static __device__ __forceinline__ unsigned join(T a, T b)
{
    pl_pack<T, 2> p;
    unsigned u;
    p.v[0] = a;
    p.v[1] = b;
    memcpy(&u, &p, 4);
    return u;
}

template <typename T>
static __device__ __forceinline__ T weight(const pl_sides &s, const T *w, int t, int m, int f)
{
    return t < s.taps ? w[pl_filter_at(s, t, m, f)] : pl_put<T>(0.0f);
}

/* Loads 8 channels as 4 registers; zero for a pixel outside. */
template <typename T>
static __device__ __forceinline__ void load8(unsigned *v, const T *p, bool wide)
{
    if (!p) {
        for (int i = 0; i < 4; i++) v[i] = 0;
    } else if (wide) {
        uint4 a = *(const uint4 *)p;
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    } else {
        for (int i = 0; i < 4; i++) v[i] = join(p[2 * i], p[2 * i + 1]);
    }
}

/* Loads rows [y0, y0 + rows) and columns [x0, x0 + cols) of one sample's few side, zero outside. */
template <typename T>
static __device__ void lay_few(T *to, const pl_sides &s, const T *few, int n, int y0, int x0,
                               int rows, int cols)
{
    int line = cols * s.few;
    for (int i = threadIdx.x; i < rows * line; i += THREADS) {
        int y = y0 + i / line, x = x0 + i % line / s.few;
        bool in = (unsigned)y < (unsigned)s.fh && (unsigned)x < (unsigned)s.fw;
        to[i] =
            in ? few[(((int64_t)n * s.fh + y) * s.fw + x) * s.few + i % s.few] : pl_put<T>(0.0f);
    }
}

/* ---- widen ---------------------------------------------------------------------------------- */
/* grid: (tiles, samples). Shared: w by (step, 32 channels, tile of 8, lane), then the few side. A
 * lane's column n of tile j is channel 8*(n/2) + 2*j + n%2 of the 32: eight contiguous channels to
 * store. */
template <typename T, int K, int STEPS>
static __global__ void __launch_bounds__(THREADS)
    widen(pl_sides s, const T *few, const T *w, const T *bias, T *many)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(pair, filter);
    constexpr int WIDE = TILE_W + K - 1;
    int groups = s.many / 32, inner = s.taps * s.few;
    T *tile = (T *)(filter + STEPS * groups * 128);
    int across = (s.mw + TILE_W - 1) / TILE_W, n = blockIdx.y;
    int y0 = blockIdx.x / across * TILE_H, x0 = blockIdx.x % across * TILE_W;
    int lane = threadIdx.x % 32, q = lane / 4, r = lane % 4;
    for (int i = threadIdx.x; i < STEPS * groups * 128; i += THREADS) {
        int l = i % 32, j = i / 32 % 4, g = i / 128 % groups, step = i / 128 / groups;
        int m = g * 32 + l / 4 / 2 * 8 + j * 2 + l / 4 % 2;
        T v[4];
        for (int e = 0; e < 4; e++) {
            int k = step * 16 + l % 4 * 2 + e / 2 * 8 + e % 2;
            v[e] = weight(s, w, k < inner ? k / s.few : s.taps, m, k % s.few);
        }
        filter[i].v[0] = join(v[0], v[1]);
        filter[i].v[1] = join(v[2], v[3]);
    }
    lay_few(tile, s, few, n, y0 + s.shift[0], x0 + s.shift[1], TILE_H + K - 1, WIDE);
    int at[STEPS][4]; /* offsets of a window's elements from its first */
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int k = step * 16 + r * 2 + e / 2 * 8 + e % 2, t = k / s.few;
            at[step][e] = k < inner ? (t / K * WIDE + t % K) * s.few + k % s.few : 0;
        }
    __syncthreads();
    for (int part = threadIdx.x / 32; part < TILE_H * TILE_W / 16; part += WARPS) {
        int ty = part / (TILE_W / 16), tx = part % (TILE_W / 16) * 16, y = y0 + ty;
        if (y >= s.mh || x0 + tx >= s.mw) continue; /* the same for all lanes */
        const T *from = tile + (ty * WIDE + tx + q) * s.few;
        unsigned a[STEPS][4];
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const T *p = from + e % 2 * 8 * s.few;
                a[step][e] = join(p[at[step][e / 2 * 2]], p[at[step][e / 2 * 2 + 1]]);
            }
        for (int g = 0; g < groups; g++) {
            float c[4][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    pl_multiply(c[j], a[step], filter[((step * groups + g) * 4 + j) * 32 + lane].v,
                                T());
            int m = g * 32 + r * 8;
#pragma unroll
            for (int up = 0; up < 2; up++) {
                int x = x0 + tx + q + up * 8;
                if (x >= s.mw) continue;
                unsigned v[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float u0 = c[j][up * 2], u1 = c[j][up * 2 + 1];
                    if (bias) {
                        u0 += pl_get(bias[m + 2 * j]);
                        u1 += pl_get(bias[m + 2 * j + 1]);
                    }
                    v[j] = pl_pack2(u0, u1, T());
                }
                T *to = many + (((int64_t)n * s.mh + y) * s.mw + x) * s.many + m;
                if (s.wide)
                    *(uint4 *)to = make_uint4(v[0], v[1], v[2], v[3]);
                else
                    memcpy(to, v, 16);
            }
        }
    }
}

/* ---- thin ----------------------------------------------------------------------------------- */
/* grid: (tiles, samples). Shared: w by (few, step, tile of 8 taps, lane). In step 2g+h a lane's
 * k of 2r, 2r+1, 2r+8, 2r+9 are channels 8r + 4h + 0..3 of the g-th 32: its 16 bytes, in order. */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    thin(pl_sides s, const T *many, const T *w, const T *bias, T *few)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(pair, filter);
    constexpr int TAPS = K * K, TILES = (TAPS + 7) / 8, WIDE = TILE_W + K - 1;
    constexpr int HALO = (TILE_H + K - 1) * WIDE, LINE = (HALO + 15) / 16 * 16 + 4;
    __shared__ float part[TAPS][LINE];
    int across = (s.fw + TILE_W - 1) / TILE_W, n = blockIdx.y, steps = s.many / 16;
    int y0 = blockIdx.x / across * TILE_H, x0 = blockIdx.x % across * TILE_W;
    int lane = threadIdx.x % 32, q = lane / 4, r = lane % 4;
    for (int i = threadIdx.x; i < s.few * steps * TILES * 32; i += THREADS) {
        int l = i % 32, j = i / 32 % TILES, step = i / 32 / TILES % steps,
            f = i / 32 / TILES / steps;
        int m = step / 2 * 32 + l % 4 * 8 + step % 2 * 4, t = j * 8 + l / 4;
        filter[i].v[0] = join(weight(s, w, t, m, f), weight(s, w, t, m + 1, f));
        filter[i].v[1] = join(weight(s, w, t, m + 2, f), weight(s, w, t, m + 3, f));
    }
    for (int f = 0; f < s.few; f++) {
        __syncthreads();
        for (int base = threadIdx.x / 32 * 32; base < HALO; base += THREADS) {
            const T *at[4]; /* pixels base + q + 8k */
            float c[2][TILES][4] = {};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int i = base + q + 8 * k;
                int my = y0 + s.shift[0] + i / WIDE, mx = x0 + s.shift[1] + i % WIDE;
                bool in =
                    i < HALO && (unsigned)my < (unsigned)s.mh && (unsigned)mx < (unsigned)s.mw;
                at[k] = in ? many + (((int64_t)n * s.mh + my) * s.mw + mx) * s.many + r * 8 : NULL;
            }
            for (int g = 0; g < steps / 2; g++) {
                unsigned v[4][4];
#pragma unroll
                for (int k = 0; k < 4; k++) load8(v[k], at[k] ? at[k] + g * 32 : at[k], s.wide);
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int j = 0; j < TILES; j++) {
                        const unsigned *b =
                            filter[((f * steps + g * 2 + h) * TILES + j) * 32 + lane].v;
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                            unsigned a[4] = {v[2 * k][2 * h], v[2 * k + 1][2 * h],
                                             v[2 * k][2 * h + 1], v[2 * k + 1][2 * h + 1]};
                            pl_multiply(c[k][j], a, b, T());
                        }
                    }
            }
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int j = 0; j < TILES; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int t = j * 8 + r * 2 + e % 2, i = base + k * 16 + e / 2 * 8 + q;
                        if (t < TAPS && i < HALO) part[t][i] = c[k][j][e];
                    }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE_H * TILE_W; i += THREADS) {
            int ty = i / TILE_W, tx = i % TILE_W;
            if (y0 + ty >= s.fh || x0 + tx >= s.fw) continue;
            float sum = bias ? pl_get(bias[f]) : 0.0f;
#pragma unroll
            for (int t = 0; t < TAPS; t++) sum += part[t][(ty + t / K) * WIDE + tx + t % K];
            few[(((int64_t)n * s.fh + y0 + ty) * s.fw + x0 + tx) * s.few + f] = pl_put<T>(sum);
        }
    }
}

/* ---- outer ---------------------------------------------------------------------------------- */
/* Returns the offset of chunk c of pixel p in a tile of the many side, in elements; chunks: a power
 * of 2. */
static __device__ __forceinline__ int place(int p, int c, int chunks)
{
    int turn = chunks >= 8 ? p & 7 : (p / (8 / chunks)) & (chunks - 1);
    return (p * chunks + (c ^ turn)) * 8;
}

/* Loads one run of RUN pixels of a row to shared memory: the many side, and channel f of its
 * windows. */
template <typename T, int K>
static __device__ void lay_run(T *to, T *few_to, const pl_sides &s, const T *few, const T *many,
                               int item, int runs, int f)
{
    constexpr int WIDE = RUN + K - 1;
    int chunks = s.many / 8, x0 = item % runs * RUN, line = item / runs;
    int y = line % s.mh, n = line / s.mh;
    for (int i = threadIdx.x; i < RUN * chunks; i += THREADS) {
        int p = i / chunks, c = i % chunks;
        bool in = x0 + p < s.mw;
        const T *from = many + ((int64_t)line * s.mw + (in ? x0 + p : x0)) * s.many + c * 8;
        T *at = to + place(p, c, chunks);
        if (s.wide)
            pl_copy16(at, from, in);
        else
            for (int e = 0; e < 8; e++) at[e] = in ? from[e] : pl_put<T>(0.0f);
    }
    for (int i = threadIdx.x; i < K * WIDE; i += THREADS) {
        int fy = y + s.shift[0] + i / WIDE, fx = x0 + s.shift[1] + i % WIDE;
        bool in = (unsigned)fy < (unsigned)s.fh && (unsigned)fx < (unsigned)s.fw;
        few_to[i] = in ? few[(((int64_t)n * s.fh + fy) * s.fw + fx) * s.few + f] : pl_put<T>(0.0f);
    }
}

/* grid: (slices, few). Each warp has 32 channels and takes groups of 16 pixels of a run at a fixed
 * distance. */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    outer(pl_sides s, const T *few, const T *many, float *part)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(T, tiles); /* two runs of many, then two of windows */
    constexpr int TAPS = K * K, WIDE = RUN + K - 1, EACH = (K * WIDE + 7) / 8 * 8;
    __shared__ float sums[WARPS][TAPS][32];
    int chunks = s.many / 8, groups = s.many / 32, lanes = WARPS / groups, f = blockIdx.y;
    int warp = threadIdx.x / 32, g = warp % groups, own = warp / groups;
    int lane = threadIdx.x % 32, q = lane / 4, r = lane % 4;
    int runs = (s.mw + RUN - 1) / RUN, items = s.n * s.mh * runs;
    T *windows = tiles + 2 * RUN * s.many;
    float c[4][4] = {};
    int first = q < TAPS ? q / K * WIDE + q % K : -1,
        last = q + 8 < TAPS ? (q + 8) / K * WIDE + (q + 8) % K : -1;
    T zero = pl_put<T>(0.0f);
    int item = blockIdx.x, turn = 0;
    if (item < items) lay_run<T, K>(tiles, windows, s, few, many, item, runs, f);
    pl_copies_end();
    for (; item < items; item += s.slices, turn ^= 1) {
        T *tile = tiles + turn * RUN * s.many, *win = windows + turn * EACH;
        if (item + s.slices < items)
            lay_run<T, K>(tiles + (turn ^ 1) * RUN * s.many, windows + (turn ^ 1) * EACH, s, few,
                          many, item + s.slices, runs, f);
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        for (int p = own * 16; own < lanes && p < RUN; p += lanes * 16) {
            unsigned a[4], b[2][4];
            const T *w0 = win + first + p + r * 2, *w1 = win + last + p + r * 2;
            a[0] = first < 0 ? 0 : join(w0[0], w0[1]);
            a[1] = last < 0 ? join(zero, zero) : join(w1[0], w1[1]);
            a[2] = first < 0 ? 0 : join(w0[8], w0[9]);
            a[3] = last < 0 ? join(zero, zero) : join(w1[8], w1[9]);
#pragma unroll
            for (int h = 0; h < 2; h++)
                pl_load4t(b[h], tile + place(p + (lane & 15), g * 4 + h * 2 + (lane >> 4), chunks));
#pragma unroll
            for (int j = 0; j < 4; j++) pl_multiply(c[j], a, b[j / 2] + j % 2 * 2, T());
        }
        __syncthreads();
    }
    pl_copies_wait<0>();
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int t = q + e / 2 * 8;
            if (t < TAPS) sums[warp][t][j * 8 + r * 2 + e % 2] = c[j][e];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < TAPS * s.many; i += THREADS) {
        int t = i / s.many, m = i % s.many;
        float all = 0;
        for (int l = 0; l < lanes; l++) all += sums[l * groups + m / 32][t][m % 32];
        part[(((int64_t)blockIdx.x * TAPS + t) * s.few + f) * s.many + m] = all;
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
bool pl_conv_thin_mma_takes(const pl_conv_shape *c, const pl_sides *s)
{
    bool power = (s->many & (s->many - 1)) == 0;
    return (c->dtype == PL_F16 || c->dtype == PL_BF16) && pl_cuda_props_get()->arch >= 80 &&
           s->many % 32 == 0 && s->few * s->many <= 512 &&
           (c->kind != PL_CONV_DW || (power && s->many <= 128));
}

template <typename T, int K>
static void launch(const pl_conv_shape *c, const pl_sides &s, const T *a, const T *b, const T *bias,
                   T *out, float *part)
{
    bool in = c->ic <= c->oc;
    if (c->kind == PL_CONV_DW) {
        size_t bytes =
            sizeof(T) * (size_t)(2 * RUN * s.many + 2 * ((K * (RUN + K - 1) + 7) / 8 * 8));
        PL_LAUNCH((outer<T, K>), dim3(s.slices, s.few), THREADS, bytes, s, in ? a : b, in ? b : a,
                  part);
        return;
    }
    bool widens = (c->kind == PL_CONV_Y) == in;
    int h = widens ? s.mh : s.fh, w = widens ? s.mw : s.fw, steps = (s.taps * s.few + 15) / 16;
    dim3 grid((unsigned)(((h + TILE_H - 1) / TILE_H) * ((w + TILE_W - 1) / TILE_W)), (unsigned)s.n);
    if (!widens) {
        size_t bytes = sizeof(pair) * (size_t)(s.few * (s.many / 16) * ((K * K + 7) / 8) * 32);
        PL_LAUNCH((thin<T, K>), grid, THREADS, bytes, s, a, b, bias, out);
        return;
    }
    size_t bytes = sizeof(pair) * (size_t)(steps * (s.many / 32) * 128) +
                   sizeof(T) * (size_t)((TILE_H + K - 1) * (TILE_W + K - 1) * s.few);
    if (steps == 1)
        PL_LAUNCH((widen<T, K, 1>), grid, THREADS, bytes, s, a, b, bias, out);
    else if (steps == 2)
        PL_LAUNCH((widen<T, K, 2>), grid, THREADS, bytes, s, a, b, bias, out);
    else
        PL_LAUNCH((widen<T, K, 3>), grid, THREADS, bytes, s, a, b, bias, out);
}

template <typename T>
static void launch_typed(const pl_conv_shape *c, const pl_sides &s, const void *a, const void *b,
                         const void *bias, void *out, float *part)
{
    if (c->kernel[2] == 1)
        launch<T, 1>(c, s, (const T *)a, (const T *)b, (const T *)bias, (T *)out, part);
    else
        launch<T, 3>(c, s, (const T *)a, (const T *)b, (const T *)bias, (T *)out, part);
}

void pl_conv_thin_mma(const pl_conv_shape *c, const pl_sides *s, const void *a, const void *b,
                      const void *bias, void *out, float *part)
{
    if (c->dtype == PL_F16)
        launch_typed<pl_f16>(c, *s, a, b, bias, out, part);
    else
        launch_typed<pl_bf16>(c, *s, a, b, bias, out, part);
}
