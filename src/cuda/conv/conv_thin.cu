/* conv_thin.cu - convolutions with few channels (1 to 4) on one side: the first and last layers of
 * networks on images. Windows of 1x1 or 3x3, stride 1, two spatial dims.
 *
 * They are bound by memory, and a library that multiplies matrices pads the few channels. Call the
 * sides few [N, h, w, F] and many [N, h, w, M], whichever of x and y they are. The convolution, its
 * data gradient and its filter gradient are then each one of
 *
 *   widen   many[r] = sum_t few[r + shift + t] w[t]      a thread: 8 channels of 4 pixels
 *   thin    few[r]  = sum_t many[r + shift + t] w[t]     products of each pixel of a tile with all
 *                                                        taps, kept in shared memory, then summed
 *   outer   w[t]    = sum_r few[r + shift + t] many[r]   a thread: 8 channels of all taps over runs
 *                                                        of pixels; partial sums in the workspace
 *
 * with taps in reverse for the adjoints. One channel on both sides has its own kernels: a thread
 * computes 8 pixels of a row. Sums are f32, in an order that depends on sizes only.
 */
#include "cuda/conv/conv_thin.h"
#include "cuda/device/launch.h"

static constexpr int THREADS = 256, PIXELS = 4, RUN = 32, MAX_SLICES = 1024, MAX_FILTER = 6144;
static constexpr int TILE_H = 8, TILE_W = 64;

/* Writes the filter as [tap][few][many] in f32. */
template <typename T> static __device__ void lay_filter(float *to, const pl_sides &s, const T *w)
{
    for (int i = threadIdx.x; i < s.taps * s.few * s.many; i += THREADS) {
        int m = i % s.many, f = i / s.many % s.few, t = i / s.many / s.few;
        to[i] = pl_elem<T>::get(w[pl_filter_at(s, t, m, f)]);
    }
}

/* Loads 8 channels; wide: at a multiple of 16 bytes. The sums are the same either way. */
template <typename T> static __device__ __forceinline__ void load8(float *v, const T *p, bool wide)
{
    constexpr int V = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < 8; i += V) {
        if (wide) {
            pl_pack<T, V> a = pl_read<T, V>(p + i);
#pragma unroll
            for (int k = 0; k < V; k++) v[i + k] = pl_elem<T>::get(a.v[k]);
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) v[i + k] = pl_elem<T>::get(p[i + k]);
        }
    }
}

template <typename T> static __device__ __forceinline__ void store8(T *p, const float *v, bool wide)
{
    constexpr int V = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < 8; i += V) {
        pl_pack<T, V> a;
#pragma unroll
        for (int k = 0; k < V; k++) a.v[k] = pl_elem<T>::put(v[i + k]);
        if (wide)
            pl_write<T, V>(p + i, a);
        else
#pragma unroll
            for (int k = 0; k < V; k++) p[i + k] = a.v[k];
    }
}

/* Returns channel f of the few side at row y, column x; 0 outside. */
template <typename T>
static __device__ __forceinline__ float few_at(const pl_sides &s, const T *row, int x, int f)
{
    return (unsigned)x < (unsigned)s.fw ? pl_elem<T>::get(row[x * s.few + f]) : 0.0f;
}

template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    widen(pl_sides s, const T *few, const T *w, const T *bias, T *many)
{
    PL_SHARED(float, filter);
    int groups = s.many / 8, runs = (s.mw + PIXELS - 1) / PIXELS;
    unsigned total = (unsigned)(s.n * s.mh * runs * groups);
    lay_filter(filter, s, w);
    __syncthreads();
    for (unsigned e = blockIdx.x * THREADS + threadIdx.x; e < total; e += gridDim.x * THREADS) {
        int g = (int)(e % (unsigned)groups), run = (int)(e / (unsigned)groups);
        int x0 = run % runs * PIXELS, y = run / runs % s.mh, n = run / runs / s.mh;
        int64_t line = (int64_t)n * s.mh + y;
        float sum[PIXELS][8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float b = bias ? pl_elem<T>::get(bias[g * 8 + k]) : 0.0f;
#pragma unroll
            for (int p = 0; p < PIXELS; p++) sum[p][k] = b;
        }
        for (int f = 0; f < s.few; f++)
#pragma unroll
            for (int ky = 0; ky < K; ky++) {
                int fy = y + s.shift[0] + ky;
                if ((unsigned)fy >= (unsigned)s.fh) continue;
                const T *row = few + ((int64_t)n * s.fh + fy) * s.fw * s.few;
                float v[PIXELS + K - 1];
#pragma unroll
                for (int j = 0; j < PIXELS + K - 1; j++)
                    v[j] = few_at(s, row, x0 + s.shift[1] + j, f);
#pragma unroll
                for (int kx = 0; kx < K; kx++) {
                    const float *at = filter + ((ky * K + kx) * s.few + f) * s.many + g * 8;
                    float4 a = *(const float4 *)at, b = *(const float4 *)(at + 4);
                    float c[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                    for (int p = 0; p < PIXELS; p++)
#pragma unroll
                        for (int k = 0; k < 8; k++) sum[p][k] = fmaf(v[p + kx], c[k], sum[p][k]);
                }
            }
        T *to = many + (line * s.mw + x0) * s.many + g * 8;
#pragma unroll
        for (int p = 0; p < PIXELS; p++)
            if (x0 + p < s.mw) store8(to + p * s.many, sum[p], s.wide);
    }
}

/* grid: (tiles, samples). First phase: four lanes per pixel, each with a quarter of the channels of
 * four pixels; second phase: one thread per pixel. */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    thin(pl_sides s, const T *many, const T *w, const T *bias, T *few)
{
    PL_SHARED(float, filter);
    constexpr int TAPS = K * K, WIDE = TILE_W + K - 1, HALO = (TILE_H + K - 1) * WIDE;
    __shared__ float part[TAPS][HALO + 1];
    int across = (s.fw + TILE_W - 1) / TILE_W;
    int y0 = blockIdx.x / across * TILE_H, x0 = blockIdx.x % across * TILE_W, n = blockIdx.y;
    int quad = threadIdx.x / 4, lane = threadIdx.x % 4, groups = s.many / 8;
    lay_filter(filter, s, w);
    for (int f = 0; f < s.few; f++) {
        __syncthreads();
        for (int base = 0; base < HALO; base += THREADS) {
            float sum[PIXELS][TAPS];
            const T *at[PIXELS];
#pragma unroll
            for (int p = 0; p < PIXELS; p++) {
                int i = base + quad + p * (THREADS / 4);
                int my = y0 + s.shift[0] + i / WIDE, mx = x0 + s.shift[1] + i % WIDE;
                bool in =
                    i < HALO && (unsigned)my < (unsigned)s.mh && (unsigned)mx < (unsigned)s.mw;
                at[p] = in ? many + (((int64_t)n * s.mh + my) * s.mw + mx) * s.many : NULL;
#pragma unroll
                for (int t = 0; t < TAPS; t++) sum[p][t] = 0;
            }
            for (int g = lane; g < groups; g += 4) {
                float v[PIXELS][8];
#pragma unroll
                for (int p = 0; p < PIXELS; p++) {
                    if (at[p])
                        load8(v[p], at[p] + g * 8, s.wide);
                    else
#pragma unroll
                        for (int k = 0; k < 8; k++) v[p][k] = 0;
                }
#pragma unroll
                for (int t = 0; t < TAPS; t++) {
                    const float *c = filter + (t * s.few + f) * s.many + g * 8;
                    float4 a = *(const float4 *)c, b = *(const float4 *)(c + 4);
                    float u[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                    for (int p = 0; p < PIXELS; p++)
#pragma unroll
                        for (int k = 0; k < 8; k++) sum[p][t] = fmaf(v[p][k], u[k], sum[p][t]);
                }
            }
#pragma unroll
            for (int p = 0; p < PIXELS; p++) {
                int i = base + quad + p * (THREADS / 4);
#pragma unroll
                for (int t = 0; t < TAPS; t++) {
                    float v = sum[p][t];
                    v += __shfl_xor_sync(0xffffffffu, v, 1);
                    v += __shfl_xor_sync(0xffffffffu, v, 2);
                    if (lane == 0 && i < HALO) part[t][i] = v;
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE_H * TILE_W; i += THREADS) {
            int ty = i / TILE_W, tx = i % TILE_W;
            if (y0 + ty >= s.fh || x0 + tx >= s.fw) continue;
            float sum = bias ? pl_elem<T>::get(bias[f]) : 0.0f;
#pragma unroll
            for (int t = 0; t < TAPS; t++) sum += part[t][(ty + t / K) * WIDE + tx + t % K];
            few[(((int64_t)n * s.fh + y0 + ty) * s.fw + x0 + tx) * s.few + f] =
                pl_elem<T>::put(sum);
        }
    }
}

/* grid: (slices, few). part: [slice][tap][few][many] */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    outer(pl_sides s, const T *few, const T *many, float *part)
{
    __shared__ float row[THREADS * 8];
    constexpr int TAPS = K * K;
    int groups = s.many / 8, lanes = THREADS / groups, g = threadIdx.x % groups;
    int lane = threadIdx.x / groups, f = blockIdx.y, runs = (s.mw + RUN - 1) / RUN;
    int64_t items = (int64_t)s.n * s.mh * runs;
    float sum[TAPS][8] = {};
    for (int64_t i = (int64_t)blockIdx.x * lanes + lane; lane < lanes && i < items;
         i += (int64_t)s.slices * lanes) {
        int x0 = (int)(i % runs) * RUN, x1 = min(x0 + RUN, s.mw);
        int64_t line = i / runs;
        int y = (int)(line % s.mh), n = (int)(line / s.mh);
        const T *rows[K];
        float win[K][K];
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            int fy = y + s.shift[0] + ky;
            bool in = (unsigned)fy < (unsigned)s.fh;
            rows[ky] = in ? few + ((int64_t)n * s.fh + fy) * s.fw * s.few : NULL;
#pragma unroll
            for (int kx = 1; kx < K; kx++)
                win[ky][kx] = in ? few_at(s, rows[ky], x0 + s.shift[1] + kx - 1, f) : 0.0f;
        }
#pragma unroll 4
        for (int x = x0; x < x1; x++) {
            float v[8];
            load8(v, many + (line * s.mw + x) * s.many + g * 8, s.wide);
#pragma unroll
            for (int ky = 0; ky < K; ky++) {
#pragma unroll
                for (int kx = 0; kx + 1 < K; kx++) win[ky][kx] = win[ky][kx + 1];
                win[ky][K - 1] = rows[ky] ? few_at(s, rows[ky], x + s.shift[1] + K - 1, f) : 0.0f;
            }
#pragma unroll
            for (int t = 0; t < TAPS; t++)
#pragma unroll
                for (int k = 0; k < 8; k++) sum[t][k] = fmaf(win[t / K][t % K], v[k], sum[t][k]);
        }
    }
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++) row[threadIdx.x * 8 + k] = sum[t][k];
        __syncthreads();
        for (int m = threadIdx.x; m < s.many; m += THREADS) {
            float all = 0;
            for (int l = 0; l < lanes; l++) all += row[l * s.many + m];
            part[(((int64_t)blockIdx.x * TAPS + t) * s.few + f) * s.many + m] = all;
        }
    }
}

/* One warp per element of the filter's gradient. */
template <typename T> static __global__ void add_slices(pl_sides s, const float *part, T *dw)
{
    int each = s.taps * s.few * s.many, e = (blockIdx.x * THREADS + threadIdx.x) / 32;
    if (e >= each) return;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < s.slices; i += 32) sum += part[(int64_t)i * each + e];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    int m = e % s.many, f = e / s.many % s.few, t = e / s.many / s.few;
    if (threadIdx.x % 32 == 0) dw[pl_filter_at(s, t, m, f)] = pl_elem<T>::put(sum);
}

/* ---- one channel on both sides --------------------------------------------------------------- */
/* to[r] = sum_t from[r + shift + t] w[t]; "few" is from, "many" is to. */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    plane(pl_sides s, const T *from, const T *w, const T *bias, T *to)
{
    int runs = (s.mw + 7) / 8;
    unsigned total = (unsigned)(s.n * s.mh * runs);
    float c[K * K], b = bias ? pl_elem<T>::get(bias[0]) : 0.0f;
#pragma unroll
    for (int t = 0; t < K * K; t++) c[t] = pl_elem<T>::get(w[s.flip ? K * K - 1 - t : t]);
    bool wide = s.mw % 8 == 0 && ((uintptr_t)to & 15) == 0;
    for (unsigned e = blockIdx.x * THREADS + threadIdx.x; e < total; e += gridDim.x * THREADS) {
        int64_t line = e / (unsigned)runs;
        int x0 = (int)(e % (unsigned)runs) * 8, y = (int)line % s.mh, n = (int)line / s.mh;
        float sum[8];
#pragma unroll
        for (int k = 0; k < 8; k++) sum[k] = b;
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            int fy = y + s.shift[0] + ky;
            if ((unsigned)fy >= (unsigned)s.fh) continue;
            const T *row = from + ((int64_t)n * s.fh + fy) * s.fw;
            float v[8 + K - 1];
#pragma unroll
            for (int j = 0; j < 8 + K - 1; j++) v[j] = few_at(s, row, x0 + s.shift[1] + j, 0);
#pragma unroll
            for (int kx = 0; kx < K; kx++)
#pragma unroll
                for (int k = 0; k < 8; k++) sum[k] = fmaf(v[k + kx], c[ky * K + kx], sum[k]);
        }
        T *at = to + line * s.mw + x0;
        if (wide)
            store8(at, sum, true);
        else
            for (int k = 0; k < 8; k++)
                if (x0 + k < s.mw) at[k] = pl_elem<T>::put(sum[k]);
    }
}

/* grid: (slices). part: [slice][tap] */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS)
    plane_outer(pl_sides s, const T *few, const T *many, float *part)
{
    constexpr int TAPS = K * K;
    __shared__ float row[THREADS / 32][TAPS];
    int runs = (s.mw + 7) / 8;
    unsigned total = (unsigned)(s.n * s.mh * runs);
    float sum[TAPS] = {};
    for (unsigned e = blockIdx.x * THREADS + threadIdx.x; e < total; e += s.slices * THREADS) {
        int64_t line = e / (unsigned)runs;
        int x0 = (int)(e % (unsigned)runs) * 8, y = (int)line % s.mh, n = (int)line / s.mh;
        float d[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            d[k] = x0 + k < s.mw ? pl_elem<T>::get(many[line * s.mw + x0 + k]) : 0.0f;
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            int fy = y + s.shift[0] + ky;
            if ((unsigned)fy >= (unsigned)s.fh) continue;
            const T *from = few + ((int64_t)n * s.fh + fy) * s.fw;
            float v[8 + K - 1];
#pragma unroll
            for (int j = 0; j < 8 + K - 1; j++) v[j] = few_at(s, from, x0 + s.shift[1] + j, 0);
#pragma unroll
            for (int kx = 0; kx < K; kx++)
#pragma unroll
                for (int k = 0; k < 8; k++)
                    sum[ky * K + kx] = fmaf(v[k + kx], d[k], sum[ky * K + kx]);
        }
    }
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        for (int step = 16; step; step /= 2) sum[t] += __shfl_xor_sync(0xffffffffu, sum[t], step);
        if (threadIdx.x % 32 == 0) row[threadIdx.x / 32][t] = sum[t];
    }
    __syncthreads();
    if (threadIdx.x >= TAPS) return;
    float all = 0;
    for (int i = 0; i < THREADS / 32; i++) all += row[i][threadIdx.x];
    part[(int64_t)blockIdx.x * TAPS + threadIdx.x] = all;
}

/* ---- launches ------------------------------------------------------------------------------- */
static bool few_in(const pl_conv_shape *c)
{
    return c->ic <= c->oc;
}

static pl_sides sides_of(const pl_conv_shape *c)
{
    pl_sides s;
    bool in = few_in(c);
    int64_t taps = pl_conv_pixels(c->kernel), few = in ? c->ic : c->oc, many = in ? c->oc : c->ic;
    const int64_t *f = in ? c->in : c->out, *m = in ? c->out : c->in;
    s.n = (int)c->n;
    s.few = (int)few;
    s.many = (int)many;
    s.fh = (int)f[1], s.fw = (int)f[2], s.mh = (int)m[1], s.mw = (int)m[2];
    s.taps = (int)taps;
    s.step_t = c->ic;
    s.step_m = in ? taps * c->ic : 1;
    s.step_f = in ? 1 : taps * c->ic;
    /* Output reads input at p + t - pad; input is read by output at q + pad - t. The loops above
     * walk the many side, except `thin`, which walks the few side. */
    bool over_out = c->kind == PL_CONV_DW ? in : c->kind == PL_CONV_Y;
    s.flip = !over_out;
    s.wide = false;
    for (int d = 0; d < 2; d++)
        s.shift[d] = (int)(over_out ? -c->pad_lo[1 + d] : c->pad_lo[1 + d] - c->kernel[1 + d] + 1);
    int64_t runs = s.many == 1 ? (s.mw + 7) / 8 : (s.mw + RUN - 1) / RUN;
    int64_t lanes = s.many == 1 ? THREADS : THREADS / (s.many / 8 > 0 ? s.many / 8 : 1);
    int64_t want = ((int64_t)s.n * s.mh * runs + lanes - 1) / (lanes < 1 ? 1 : lanes);
    s.slices = (int)(want < (int64_t)MAX_SLICES ? (want < 1 ? 1 : want) : (int64_t)MAX_SLICES);
    return s;
}

extern "C" bool pl_conv_thin_takes(const pl_conv_shape *c)
{
    int64_t few = few_in(c) ? c->ic : c->oc, many = few_in(c) ? c->oc : c->ic;
    int64_t taps = pl_conv_pixels(c->kernel);
    bool window = c->kernel[0] == 1 && c->in[0] == 1 && c->out[0] == 1 && c->pad_lo[0] == 0 &&
                  c->kernel[1] == c->kernel[2] && (c->kernel[2] == 1 || c->kernel[2] == 3);
    for (int d = 0; d < 3; d++) window = window && c->stride[d] == 1 && c->dilation[d] == 1;
    bool channels = (few == 1 && many == 1) ||
                    (few <= 4 && many % 8 == 0 && many <= 512 && taps * few * many <= MAX_FILTER);
    return c->dtype != PL_F64 && c->groups == 1 && window && channels && c->n < 65536 &&
           c->n * pl_conv_pixels(c->in) * (few + many / 8) < INT32_MAX / 2 &&
           c->n * pl_conv_pixels(c->out) * (few + many / 8) < INT32_MAX / 2;
}

extern "C" size_t pl_conv_thin_work(const pl_conv_shape *c)
{
    pl_sides s = sides_of(c);
    if (c->kind != PL_CONV_DW) return 0;
    return sizeof(float) * (size_t)s.slices * (size_t)(s.taps * s.few * s.many);
}

static int blocks_for(int64_t threads)
{
    int64_t n = (threads + THREADS - 1) / THREADS;
    return (int)(n < 4096 ? n : 4096);
}

template <typename T, int K>
static void launch(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                   void *out, void *work)
{
    pl_sides s = sides_of(c);
    const T *p = (const T *)a, *w = (const T *)b, *plus = (const T *)bias;
    T *to = (T *)out;
    float *part = (float *)work;
    bool one = s.many == 1, in = few_in(c), widens = (c->kind == PL_CONV_Y) == in;
    size_t bytes = sizeof(float) * (size_t)(s.taps * s.few * s.many);
    const void *many_at = c->kind == PL_CONV_DW ? (in ? b : a) : widens ? out : a;
    s.wide = ((uintptr_t)many_at & 15) == 0;
    if (pl_conv_thin_mma_takes(c, &s)) {
        pl_conv_thin_mma(c, &s, a, b, bias, out, part);
        if (c->kind == PL_CONV_DW)
            PL_LAUNCH((add_slices<T>), blocks_for((int64_t)s.taps * s.few * s.many * 32), THREADS,
                      0, s, (const float *)part, to);
    } else if (c->kind == PL_CONV_DW) {
        const T *few = in ? p : w, *many = in ? w : p;
        if (one)
            PL_LAUNCH((plane_outer<T, K>), s.slices, THREADS, 0, s, few, many, part);
        else
            PL_LAUNCH((outer<T, K>), dim3(s.slices, s.few), THREADS, 0, s, few, many, part);
        PL_LAUNCH((add_slices<T>), blocks_for((int64_t)s.taps * s.few * s.many * 32), THREADS, 0, s,
                  part, to);
    } else if (one) {
        /* Both sides have one channel; the loop walks the side that is written. */
        const int64_t *r = c->kind == PL_CONV_Y ? c->out : c->in;
        const int64_t *f = c->kind == PL_CONV_Y ? c->in : c->out;
        s.mh = (int)r[1], s.mw = (int)r[2], s.fh = (int)f[1], s.fw = (int)f[2];
        PL_LAUNCH((plane<T, K>), blocks_for((int64_t)s.n * s.mh * ((s.mw + 7) / 8)), THREADS, 0, s,
                  p, w, plus, to);
    } else if (widens) {
        int64_t threads = (int64_t)s.n * s.mh * ((s.mw + PIXELS - 1) / PIXELS) * (s.many / 8);
        PL_LAUNCH((widen<T, K>), blocks_for(threads), THREADS, bytes, s, p, w, plus, to);
    } else {
        int tiles = ((s.fh + TILE_H - 1) / TILE_H) * ((s.fw + TILE_W - 1) / TILE_W);
        PL_LAUNCH((thin<T, K>), dim3(tiles, s.n), THREADS, bytes, s, p, w, plus, to);
    }
}

template <typename T>
static void launch_typed(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                         void *out, void *work)
{
    if (c->kernel[2] == 1)
        launch<T, 1>(c, a, b, bias, out, work);
    else
        launch<T, 3>(c, a, b, bias, out, work);
}

extern "C" pl_status pl_conv_thin(const pl_conv_shape *c, const void *a, const void *b,
                                  const void *bias, void *out, void *work)
{
    switch (c->dtype) {
    case PL_F32: launch_typed<float>(c, a, b, bias, out, work); break;
    case PL_F16: launch_typed<pl_f16>(c, a, b, bias, out, work); break;
    default: launch_typed<pl_bf16>(c, a, b, bias, out, work);
    }
    PL_CUDA_LAUNCHED("convolution with few channels");
    return PL_OK;
}
