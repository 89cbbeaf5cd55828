/* depthwise_strip.cu - depthwise convolution and its gradients over strips of pixels.
 *
 * A thread owns two neighbouring channels and a tile of ROWS x COLUMNS results. It reads every row
 * of the tile's window once, as f32 in registers, and uses a pixel for all taps that meet it: a
 * filter of 7 x 7 is bound by multiplications, smaller ones by memory. Filters of 3 taps across
 * read the next row while they use one. With a stride across, and
 * where pairs of channels are not aligned (K is 0), a pixel is read for each tap; the order of sums
 * is the same. The filter of a chunk of channels lies in shared memory. One description serves the
 * forward pass and the data gradient, along each dimension (struct spot): result j reads positions
 * at + (j * every + m) * step of the other side for taps first + m * by.
 *
 *   stride s            every = s
 *   dilation d          results d apart form a tile, because they read pixels d apart
 *   gradient, stride s  results s apart form a tile, because they have the same taps
 *
 * The filter's gradient: a thread owns two channels and a row of up to K taps. It sums over strips
 * of COLUMNS pixels of one slice of all strips; EVERY is the stride across, 0: any, not aligned.
 * Filters of 3 x 3 taps in 16 bits are summed over bands of rows (depthwise_bands.cu).
 * Threads of a block add their sums in a fixed order, and a second kernel adds the slices in a
 * fixed order. Sums depend on shapes only.
 */
#include "cuda/conv/depthwise_strip.h"
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

/* Copies the filter of a chunk of channels to shared memory as [tap][line], in the order in which
 * it lies in memory. */
template <typename T>
static __device__ void read_filter(const strip_shape &s, const T *w, int c0, int line, float *to)
{
    int chunk = min(2 * s.pairs, s.channels - c0), total = s.taps * chunk;
    bool taps_first = s.step_tap < s.step_c;
    for (int i = threadIdx.x; i < total; i += THREADS) {
        int t = taps_first ? i % s.taps : i / chunk, c = taps_first ? i / s.taps : i % chunk;
        to[t * line + c] = pl_elem<T>::get(w[t * s.step_tap + (c0 + c) * s.step_c]);
    }
}

/* Adds tap f[0], f[1] of the pixels in[0], in[1], ... to a row of results. */
static __device__ __forceinline__ void add_tap(const float *f, const float2 *in, float2 *sum)
{
    float a = f[0], b = f[1];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        sum[j].x = fmaf(in[j].x, a, sum[j].x);
        sum[j].y = fmaf(in[j].y, b, sum[j].y);
    }
}

/* One tile of results: K taps of a row at a time, the taps that are left one by one. filter: at the
 * thread's channels. */
template <typename T, int K>
static __device__ __forceinline__ void tile_sums(const strip_shape &s, pairing a, const T *image,
                                                 const float *filter, int line, const spot &y,
                                                 const spot &x, float2 (*sum)[COLUMNS])
{
    enum { N = COLUMNS - 1 + (K ? K : 1) };
    const axis &v = s.d[1], &h = s.d[2];
    int n = (ROWS - 1) * v.every + y.taps, apart = h.every * x.step, m0;
    for (int i = 0; i < n; i++) {
        int q = y.at + i * y.step;
        if ((unsigned)q >= (unsigned)v.from) continue;
        const T *from = image + (int64_t)q * h.from * s.channels;
        const float *row = filter + (y.first * h.kernel + x.first) * line;
        for (m0 = 0; K && h.every == 1 && m0 + K <= x.taps; m0 += K) {
            float2 in[N];
            read_line<T, N, true>(from, x.at + m0 * x.step, x.step, h.from, a, in);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int k = i - r * v.every;
                if (k < 0 || k >= y.taps) continue;
                const float *f = row + (k * y.by * h.kernel + m0 * x.by) * line;
#pragma unroll
                for (int m = 0; m < K; m++) add_tap(f + m * x.by * line, in + m, sum[r]);
            }
        }
        for (; m0 < x.taps; m0++) {
            float2 in[COLUMNS];
            read_line<T, COLUMNS, K != 0>(from, x.at + m0 * x.step, apart, h.from, a, in);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int k = i - r * v.every;
                if (k < 0 || k >= y.taps) continue;
                add_tap(row + (k * y.by * h.kernel + m0 * x.by) * line, in, sum[r]);
            }
        }
    }
}

/* The same for a filter whose rows have K taps, without a stride across: a row is loaded while the
 * row above it is used. */
template <typename T, int K>
static __device__ __forceinline__ void
tile_sums_ahead(const strip_shape &s, pairing a, const T *image, const float *filter, int line,
                const spot &y, const spot &x, float2 (*sum)[COLUMNS])
{
    enum { N = COLUMNS - 1 + K };
    const axis &v = s.d[1], &h = s.d[2];
    int n = (ROWS - 1) * v.every + y.taps, pitch = h.from * s.channels;
    bool here = (unsigned)y.at < (unsigned)v.from;
    typename pair_word<T>::type raw[N];
    if (here) load_line<T, N, true>(image + (int64_t)y.at * pitch, x.at, x.step, h.from, a, raw);
    for (int i = 0; i < n; i++) {
        float2 in[N];
        int next = y.at + (i + 1) * y.step;
        bool now = here;
        if (now) as_floats<T, N>(raw, in);
        here = i + 1 < n && (unsigned)next < (unsigned)v.from;
        if (here)
            load_line<T, N, true>(image + (int64_t)next * pitch, x.at, x.step, h.from, a, raw);
        if (!now) continue;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int k = i - r * v.every;
            if (k < 0 || k >= y.taps) continue;
            const float *f = filter + ((y.first + k * y.by) * h.kernel + x.first) * line;
#pragma unroll
            for (int m = 0; m < K; m++) add_tap(f + m * x.by * line, in + m, sum[r]);
        }
    }
}

template <typename T, bool ALIGNED>
static __device__ __forceinline__ void write_tile(const strip_shape &s, pairing a, T *to,
                                                  const T *bias, int c, const spot &y,
                                                  const spot &x, float2 (*sum)[COLUMNS])
{
    float b0 = bias ? pl_elem<T>::get(bias[c]) : 0.0f;
    float b1 = bias && a.both ? pl_elem<T>::get(bias[c + 1]) : 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int q = y.to + r * y.apart;
        if (q >= s.d[1].to) continue;
        T *row = to + (int64_t)q * s.d[2].to * s.channels;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            int p = x.to + j * x.apart;
            if (p >= s.d[2].to) continue;
            pl_pack<T, 2> out;
            out.v[0] = pl_elem<T>::put(bias ? sum[r][j].x + b0 : sum[r][j].x);
            out.v[1] = pl_elem<T>::put(bias ? sum[r][j].y + b1 : sum[r][j].y);
            T *at = row + (int64_t)p * s.channels;
            if (ALIGNED) {
                pl_write<T, 2>(at, out);
            } else {
                at[0] = out.v[0];
                if (a.both) at[1] = out.v[1];
            }
        }
    }
}

/* Forward and the data gradient. grid: (groups of tiles, chunks of channels, samples or 1) */
template <typename T, int K, bool AHEAD>
static __global__ void __launch_bounds__(THREADS, 2)
    tiles(strip_shape s, const T *from, const T *w, const T *bias, T *to)
{
    PL_SHARED(float, filter);
    int pair = threadIdx.x % s.pairs, lane = threadIdx.x / s.pairs, line = 2 * s.pairs + 2;
    int c0 = blockIdx.y * s.pairs * 2, c = c0 + 2 * pair;
    pairing a = {s.channels, c + 1 < s.channels};
    const axis &deep = s.d[0];
    int64_t in_image = (int64_t)s.d[1].from * s.d[2].from * s.channels;
    int64_t out_image = (int64_t)s.d[1].to * s.d[2].to * s.channels;
    for (int b = blockIdx.z; b < (s.step_n ? s.n : 1); b += gridDim.z) {
        __syncthreads();
        read_filter<T>(s, w + b * s.step_n, c0, line, filter);
        __syncthreads();
        if (lane >= s.lanes || c >= s.channels) continue;
        for (uint32_t u = blockIdx.x * s.lanes + lane; u < s.tiles; u += gridDim.x * s.lanes) {
            uint32_t tx, ty, z, rest = pl_divmod(u, s.across, &tx);
            rest = pl_divmod(rest, s.down, &ty);
            int64_t sample = b + pl_divmod(rest, s.deep, &z);
            spot y = place(s.d[1], s.back, (int)ty, ROWS),
                 x = place(s.d[2], s.back, (int)tx, COLUMNS);
            float2 sum[ROWS][COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS * COLUMNS; i++)
                sum[i / COLUMNS][i % COLUMNS].x = sum[i / COLUMNS][i % COLUMNS].y = 0.0f;
            for (int k = 0; k < deep.kernel; k++) {
                int q = meets(deep, s.back, (int)z, k);
                if (q < 0) continue;
                const T *image = from + (sample * deep.from + q) * in_image + c;
                const float *f = filter + k * s.d[1].kernel * s.d[2].kernel * line + 2 * pair;
                if constexpr (AHEAD)
                    tile_sums_ahead<T, K>(s, a, image, f, line, y, x, sum);
                else
                    tile_sums<T, K>(s, a, image, f, line, y, x, sum);
            }
            write_tile<T, K != 0>(s, a, to + (sample * deep.to + z) * out_image + c, bias, c, y, x,
                                  sum);
        }
    }
}

/* grid: (slices, chunks of channels, samples or 1 x groups x parts); a thread: a pair of channels,
 * a row of taps, every s.lanes-th strip of the slice. part: [samples or 1][slice][tap][channel] */
template <typename T, int K, int EVERY>
static __global__ void __launch_bounds__(THREADS, 2)
    strips(strip_shape s, const T *x, const T *dy, float *part)
{
    enum { N = EVERY ? (COLUMNS - 1) * EVERY + K : COLUMNS };
    __shared__ float2 row[THREADS];
    const axis &d0 = s.d[0], &d1 = s.d[1], &d2 = s.d[2];
    int pair = threadIdx.x % s.pairs, own = threadIdx.x / s.pairs;
    int lane = own / s.rows, group = blockIdx.z / s.parts % s.groups;
    int line = group * s.rows + own % s.rows, sample = blockIdx.z / s.parts / s.groups;
    int m0 = blockIdx.z % s.parts * K, c = (blockIdx.y * s.pairs + pair) * 2;
    int k0 = line / d1.kernel, k1 = line % d1.kernel;
    pairing a = {s.channels, c + 1 < s.channels};
    bool live = lane < s.lanes && c < s.channels && line < d0.kernel * d1.kernel;
    uint32_t first = (uint32_t)((uint64_t)s.tiles * blockIdx.x / s.slices);
    uint32_t last = (uint32_t)((uint64_t)s.tiles * (blockIdx.x + 1) / s.slices);
    float2 sum[K];
#pragma unroll
    for (int m = 0; m < K; m++) sum[m].x = sum[m].y = 0.0f;
    for (uint32_t u = first + lane; live && u < last; u += s.lanes) {
        uint32_t tx, p1, p0, rest = pl_divmod(u, s.across, &tx);
        rest = pl_divmod(rest, s.down, &p1);
        int64_t b = sample + pl_divmod(rest, s.deep, &p0);
        int q0 = meets(d0, false, (int)p0, k0), q1 = meets(d1, false, (int)p1, k1);
        if (q0 < 0 || q1 < 0) continue;
        spot h = place(d2, false, (int)tx, COLUMNS);
        float2 d[COLUMNS], in[N];
        const T *to = dy + ((b * d0.to + p0) * d1.to + p1) * d2.to * s.channels + c;
        const T *from = x + ((b * d0.from + q0) * d1.from + q1) * d2.from * s.channels + c;
        read_line<T, COLUMNS, EVERY != 0>(to, h.to, h.apart, d2.to, a, d);
        read_line<T, N, EVERY != 0>(from, h.at + m0 * h.step, EVERY ? h.step : d2.every * h.step,
                                    d2.from, a, in);
#pragma unroll
        for (int m = 0; m < K; m++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                float2 pixel = in[j * (EVERY ? EVERY : 1) + m];
                sum[m].x = fmaf(pixel.x, d[j].x, sum[m].x);
                sum[m].y = fmaf(pixel.y, d[j].y, sum[m].y);
            }
    }
    int64_t at = ((int64_t)sample * s.slices + blockIdx.x) * s.taps + line * d2.kernel + m0;
#pragma unroll
    for (int m = 0; m < K; m++) {
        __syncthreads();
        row[threadIdx.x] = sum[m];
        __syncthreads();
        if (lane || !live || m0 + m >= d2.kernel) continue;
        float2 all = row[threadIdx.x];
        for (int i = 1; i < s.lanes; i++) {
            float2 more = row[threadIdx.x + i * s.rows * s.pairs];
            all.x += more.x;
            all.y += more.y;
        }
        part[(at + m) * s.channels + c] = all.x;
        if (a.both) part[(at + m) * s.channels + c + 1] = all.y;
    }
}

/* A block of 32 x 8 threads: 32 elements of the filter; row y adds slices y, y + 8, ... */
template <typename T> static __global__ void join_slices(strip_shape s, const float *part, T *dw)
{
    __shared__ float row[8][32];
    int64_t each = (int64_t)s.taps * s.channels, total = (s.step_n ? s.n : 1) * each;
    for (int64_t e0 = (int64_t)blockIdx.x * 32; e0 < total; e0 += (int64_t)gridDim.x * 32) {
        int64_t e = e0 + threadIdx.x, sample = e / each, t = e % each / s.channels,
                c = e % s.channels;
        float sum = 0;
        if (e < total) {
            const float *at = part + sample * s.slices * each + e % each;
#pragma unroll 4
            for (int i = threadIdx.y; i < s.slices; i += 8) sum += at[i * each];
        }
        __syncthreads();
        row[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y || e >= total) continue;
        for (int i = 1; i < 8; i++) sum += row[i][threadIdx.x];
        dw[sample * s.step_n + t * s.step_tap + c * s.step_c] = pl_elem<T>::put(sum);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
/* Returns the taps of a row that a kernel takes at once. */
static int taps_at_once(const strip_shape *s)
{
    const axis *a = &s->d[2];
    int64_t taps = s->back ? pl_ceil_div(a->kernel, a->stride) : a->kernel;
    if (a->every > 2) return 1;
    return taps <= 4 || a->every == 2 ? 3 : taps <= 6 ? 5 : 7;
}

static void slice(strip_shape *s)
{
    int lines = s->d[0].kernel * s->d[1].kernel;
    s->pairs = chunk_of(s->channels, SUM_PAIRS);
    int most = THREADS / s->pairs;
    s->groups = (int)pl_ceil_div(lines, most);
    s->rows = (int)pl_ceil_div(lines, s->groups);
    s->lanes = most / s->rows;
    int64_t blocks = (s->step_n ? s->n : 1) * (int64_t)s->groups *
                     pl_ceil_div(s->d[2].kernel, taps_at_once(s)) *
                     pl_ceil_div(s->channels, 2 * s->pairs);
    int64_t want = pl_ceil_div(SUM_BLOCKS, blocks), full = pl_ceil_div(s->tiles, 4 * s->lanes);
    want = want < full ? want : full;
    s->slices = (int)(want < 1 ? 1 : want < MAX_SLICES ? want : MAX_SLICES);
}

static bool shape_of(const pl_depthwise *d, strip_shape *s)
{
    const pl_conv_shape *c = &d->conv;
    bool sums = c->kind == PL_CONV_DW, back = c->kind == PL_CONV_DX;
    const int64_t *from = back ? c->out : c->in, *to = back ? c->in : c->out;
    int64_t tiles = d->step_n ? 1 : c->n, taps = pl_conv_pixels(c->kernel), most = INT32_MAX / 2;
    *s = (strip_shape){};
    if (c->dtype == PL_F64 || c->ic > most || taps > SHARED_FLOATS / 4) return false;
    if (c->n > most || c->in[2] * c->ic > most || c->out[2] * c->ic > most) return false;
    s->back = back;
    s->channels = (int)c->ic;
    s->n = (int)c->n;
    s->taps = (int)taps;
    s->step_n = d->step_n;
    s->step_tap = d->step_tap;
    s->step_c = d->step_c;
    int64_t count[3];
    for (int i = 0; i < 3; i++) {
        int64_t reach = c->in[i] + c->pad_lo[i] + c->kernel[i] * c->dilation[i] + c->stride[i];
        bool tiled = i == 2 || (i == 1 && !sums);
        if (reach > most || c->out[i] > most) return false;
        if (tiled && c->stride[i] != 1 && c->dilation[i] != 1) return false;
        int phases = !tiled              ? 1
                     : c->stride[i] == 1 ? (int)c->dilation[i]
                     : back              ? (int)c->stride[i]
                                         : 1;
        s->d[i] = (axis){(int)from[i],
                         (int)to[i],
                         (int)c->kernel[i],
                         (int)c->stride[i],
                         (int)c->dilation[i],
                         (int)c->pad_lo[i],
                         back ? 1 : (int)c->stride[i],
                         phases,
                         pl_div_by(phases)};
        count[i] = tiled ? phases * pl_ceil_div(pl_ceil_div(to[i], phases), i == 1 ? ROWS : COLUMNS)
                         : to[i];
        if (tiles > 0 && count[i] > most / tiles) return false;
        tiles *= count[i];
    }
    s->tiles = (uint32_t)tiles;
    s->deep = pl_div_by(count[0]);
    s->down = pl_div_by(count[1]);
    s->across = pl_div_by(count[2]);
    if (sums) {
        slice(s);
    } else {
        int fit = (int)(SHARED_FLOATS / taps - 2) / 2;
        s->pairs = chunk_of(s->channels, fit < PAIRS ? fit : PAIRS);
        s->lanes = THREADS / s->pairs;
    }
    return pl_ceil_div(c->ic, 2 * s->pairs) <= pl_grid_side() &&
           (!sums || (d->step_n ? c->n : 1) * s->groups * c->kernel[2] <= pl_grid_side());
}

extern "C" bool pl_depthwise_strip_takes(const pl_depthwise *d)
{
    strip_shape s;
    return shape_of(d, &s);
}

extern "C" size_t pl_depthwise_strip_work(const pl_depthwise *d)
{
    strip_shape s;
    if (d->conv.kind != PL_CONV_DW || !shape_of(d, &s)) return 0;
    int slices = s.slices;
    if (pl_depthwise_bands_take(d)) {
        pl_depthwise_band(&s);
        if (s.slices > slices) slices = s.slices;
    }
    return sizeof(float) * (size_t)slices * (size_t)s.taps * (size_t)s.channels *
           (size_t)(d->step_n ? s.n : 1);
}

template <typename T, int K, bool AHEAD = false>
static void launch_tiles(const strip_shape &s, const void *a, const void *b, const void *bias,
                         void *out)
{
    int64_t chunks = pl_ceil_div(s.channels, 2 * s.pairs), samples = s.step_n ? s.n : 1;
    int64_t side = pl_grid_side(), deep = samples < side ? samples : side;
    int64_t want = pl_ceil_div(s.tiles, s.lanes), most = pl_ceil_div(BLOCKS, chunks * deep);
    dim3 grid((unsigned)(want < most ? want : most), (unsigned)chunks, (unsigned)deep);
    PL_LAUNCH((tiles<T, K, AHEAD>), grid, THREADS, sizeof(float) * s.taps * (2 * s.pairs + 2), s,
              (const T *)a, (const T *)b, (const T *)bias, (T *)out);
}

template <typename T, int K, int EVERY>
static void launch_strips(strip_shape s, const void *a, const void *b, void *out, void *work)
{
    unsigned chunks = (unsigned)pl_ceil_div(s.channels, 2 * s.pairs), samples = s.step_n ? s.n : 1;
    s.parts = (int)pl_ceil_div(s.d[2].kernel, K);
    dim3 grid(s.slices, chunks, samples * s.groups * s.parts), adders(32, 8);
    PL_LAUNCH((strips<T, K, EVERY>), grid, THREADS, 0, s, (const T *)a, (const T *)b,
              (float *)work);
    PL_LAUNCH((join_slices<T>), pl_blocks((int64_t)samples * s.taps * s.channels, 32), adders, 0, s,
              (const float *)work, (T *)out);
}

template <typename T>
static void launch_bands(strip_shape s, int dtype, const void *a, const void *b, void *out,
                         void *work)
{
    dim3 adders(32, 8);
    pl_depthwise_band(&s);
    pl_depthwise_bands(&s, (pl_dtype)dtype, a, b, (float *)work);
    PL_LAUNCH((join_slices<T>), pl_blocks((int64_t)s.taps * s.channels, 32), adders, 0, s,
              (const float *)work, (T *)out);
}

template <typename T>
static void launch(const strip_shape &s, const pl_depthwise *d, const void *a, const void *b,
                   const void *bias, void *out, void *work)
{
    int64_t two = 2 * (int64_t)sizeof(T);
    int every = s.d[2].every, once = taps_at_once(&s);
    bool sums = d->conv.kind == PL_CONV_DW;
    bool aligned = s.channels % 2 == 0 && pl_widest_at(pl_widest_at(two, a), sums ? b : out) == two;
    if (!sums && !aligned)
        launch_tiles<T, 0>(s, a, b, bias, out);
    else if (!sums && sizeof(T) == 2 && s.d[2].kernel == 3 && s.d[2].stride == 1)
        launch_tiles<T, 3, sizeof(T) == 2>(s, a, b, bias, out);
    else if (!sums && once <= 3)
        launch_tiles<T, 3>(s, a, b, bias, out);
    else if (!sums && once == 5)
        launch_tiles<T, 5>(s, a, b, bias, out);
    else if (!sums)
        launch_tiles<T, 7>(s, a, b, bias, out);
    else if (aligned && pl_depthwise_bands_take(d))
        launch_bands<T>(s, d->conv.dtype, a, b, out, work);
    else if (!aligned || every > 2)
        launch_strips<T, 1, 0>(s, a, b, out, work);
    else if (every == 2)
        launch_strips<T, 3, 2>(s, a, b, out, work);
    else if (once == 3)
        launch_strips<T, 3, 1>(s, a, b, out, work);
    else if (once == 5)
        launch_strips<T, 5, 1>(s, a, b, out, work);
    else
        launch_strips<T, 7, 1>(s, a, b, out, work);
}

extern "C" pl_status pl_depthwise_strip_run(const pl_depthwise *d, const void *a, const void *b,
                                            const void *bias, void *out, void *work)
{
    strip_shape s;
    if (!shape_of(d, &s)) PL_BUG("a depthwise convolution that strips do not support");
    if (d->conv.dtype == PL_F32)
        launch<float>(s, d, a, b, bias, out, work);
    else if (d->conv.dtype == PL_F16)
        launch<pl_f16>(s, d, a, b, bias, out, work);
    else
        launch<pl_bf16>(s, d, a, b, bias, out, work);
    PL_CUDA_LAUNCHED("depthwise convolution by strips");
    return PL_OK;
}
