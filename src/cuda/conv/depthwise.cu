/* depthwise.cu - convolution with one filter per channel; samples share the filter, or each has its
 * own.
 *
 * A block owns a chunk of channels of one sample: threadIdx.x counts packs of V channels (16
 * bytes), threadIdx.y pixels. The chunk's filter lies in shared memory as [tap][channel] in f32,
 * whatever its order outside. Forward and the data gradient gather taps for each pixel.
 *
 * The filter's gradient sums over pixels. The pixels (of all samples where the filter is shared)
 * are split into `slices`, a number that follows from the shape; a block sums one row of taps over
 * one slice, its rows of threads are added in order, and a second kernel adds the slices in order.
 */
#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

static constexpr int THREADS = 256, SHARED_FLOATS = 10240, BLOCKS_WANTED = 2048;
static constexpr int MAX_SLICES = 256, RUN = 4;

/* All the sizes a kernel needs, in 32 bits where they fit. */
typedef struct work_shape {
    int in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int n, channels, taps, px, py, slices;
    int64_t step_n, step_tap, step_c;
    bool wide; /* images lie at multiples of 16 bytes */
} work_shape;

/* Loads V channels; wide: at a multiple of 16 bytes. The sums are the same either way. */
template <typename T, int V>
static __device__ __forceinline__ pl_pack<T, V> pick(const T *p, bool wide)
{
    if (wide) return pl_read<T, V>(p);
    pl_pack<T, V> a;
#pragma unroll
    for (int v = 0; v < V; v++) a.v[v] = p[v];
    return a;
}

static __device__ void split(int i, const int *size, int *p)
{
    p[2] = i % size[2];
    p[1] = i / size[2] % size[1];
    p[0] = i / size[2] / size[1];
}

/* Returns the position along d that tap k of position p reads on the other side, or -1. BACK: p is
 * on the input's side. */
template <bool BACK>
static __device__ __forceinline__ int meets(const work_shape &s, int d, int p, int k)
{
    if (!BACK) {
        int q = p * s.stride[d] + k * s.dilation[d] - s.pad[d];
        return q < s.in[d] ? q : -1;
    }
    int q = p + s.pad[d] - k * s.dilation[d];
    if (q < 0) return -1;
    if (s.stride[d] != 1) {
        if (q % s.stride[d]) return -1;
        q /= s.stride[d];
    }
    return q < s.out[d] ? q : -1;
}

/* grid: (groups of pixels, chunks of channels, samples) */
template <typename T, int V, bool BACK>
static __global__ void gather(work_shape s, const T *from, const T *w, const T *bias, T *to,
                              int pixels_a_block)
{
    PL_SHARED(float, filter); /* [taps][chunk] */
    int chunk = blockDim.x * V, c0 = blockIdx.y * chunk, c = c0 + threadIdx.x * V;
    int n_from = BACK ? s.py : s.px, n_to = BACK ? s.px : s.py, p[3];
    const int *side = BACK ? s.out : s.in;
    for (int b = blockIdx.z; b < s.n; b += gridDim.z) {
        __syncthreads();
        for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < s.taps * chunk;
             i += blockDim.x * blockDim.y) {
            int t = i / chunk, ch = c0 + i % chunk;
            filter[i] = ch < s.channels
                            ? pl_elem<T>::get(w[b * s.step_n + t * s.step_tap + ch * s.step_c])
                            : 0.0f;
        }
        __syncthreads();
        if (c >= s.channels) continue;
        int last = min(n_to, (int)(blockIdx.x + 1) * pixels_a_block);
        for (int i = blockIdx.x * pixels_a_block + threadIdx.y; i < last; i += blockDim.y) {
            float sum[V] = {};
            split(i, BACK ? s.in : s.out, p);
            for (int k0 = 0; k0 < s.kernel[0]; k0++) {
                int q0 = meets<BACK>(s, 0, p[0], k0);
                for (int k1 = 0; q0 >= 0 && k1 < s.kernel[1]; k1++) {
                    int q1 = meets<BACK>(s, 1, p[1], k1);
                    if (q1 < 0) continue;
                    const T *line =
                        from + ((int64_t)b * n_from + (q0 * side[1] + q1) * side[2]) * s.channels +
                        c;
                    const float *f =
                        filter + (k0 * s.kernel[1] + k1) * s.kernel[2] * chunk + threadIdx.x * V;
#pragma unroll 4
                    for (int k2 = 0; k2 < s.kernel[2]; k2++) {
                        int q2 = meets<BACK>(s, 2, p[2], k2);
                        if (q2 < 0) continue;
                        pl_pack<T, V> a = pick<T, V>(line + (int64_t)q2 * s.channels, s.wide);
#pragma unroll
                        for (int v = 0; v < V; v++)
                            sum[v] = fmaf(pl_elem<T>::get(a.v[v]), f[k2 * chunk + v], sum[v]);
                    }
                }
            }
            pl_pack<T, V> r;
            for (int v = 0; v < V; v++)
                r.v[v] = pl_elem<T>::put(bias ? sum[v] + pl_elem<T>::get(bias[c + v]) : sum[v]);
            T *at = to + ((int64_t)b * n_to + i) * s.channels + c;
            if (s.wide)
                pl_write<T, V>(at, r);
            else
                for (int v = 0; v < V; v++) at[v] = r.v[v];
        }
    }
}

/* grid: (slices, chunks, samples or 1, times rows of taps); a thread sums up to RUN taps of a row
 * at once, more taps one after the other. part: [samples or 1][slice][tap][channel] */
template <typename T, int V>
static __global__ void slice_sums(work_shape s, const T *x, const T *dy, float *part)
{
    __shared__ float row[THREADS * V];
    int c = (blockIdx.y * blockDim.x + threadIdx.x) * V, width = s.kernel[2];
    int lines = s.taps / width, line = blockIdx.z % lines, sample = blockIdx.z / lines;
    int k0 = line / s.kernel[1], k1 = line % s.kernel[1], p[3];
    int64_t all = s.step_n ? s.py : (int64_t)s.n * s.py;
    int64_t first = all * blockIdx.x / s.slices, last = all * (blockIdx.x + 1) / s.slices;
    for (int k = 0; k < width; k += RUN) {
        float sum[RUN][V] = {};
        for (int64_t i = first + threadIdx.y; c < s.channels && i < last; i += blockDim.y) {
            int64_t b = s.step_n ? sample : i / s.py;
            int pixel = (int)(i % s.py);
            split(pixel, s.out, p);
            int q0 = meets<false>(s, 0, p[0], k0), q1 = meets<false>(s, 1, p[1], k1);
            if (q0 < 0 || q1 < 0) continue;
            const T *from = x + (b * s.px + (q0 * s.in[1] + q1) * s.in[2]) * s.channels + c;
            pl_pack<T, V> d = pick<T, V>(dy + (b * s.py + pixel) * s.channels + c, s.wide);
#pragma unroll
            for (int r = 0; r < RUN; r++) {
                int q2 = k + r < width ? meets<false>(s, 2, p[2], k + r) : -1;
                if (q2 < 0) continue;
                pl_pack<T, V> a = pick<T, V>(from + (int64_t)q2 * s.channels, s.wide);
#pragma unroll
                for (int v = 0; v < V; v++)
                    sum[r][v] = fmaf(pl_elem<T>::get(a.v[v]), pl_elem<T>::get(d.v[v]), sum[r][v]);
            }
        }
#pragma unroll
        for (int r = 0; r < RUN; r++) {
            __syncthreads();
#pragma unroll
            for (int v = 0; v < V; v++)
                row[(threadIdx.y * blockDim.x + threadIdx.x) * V + v] = sum[r][v];
            __syncthreads();
            if (threadIdx.y || c >= s.channels || k + r >= width) continue;
            int64_t at = ((int64_t)sample * s.slices + blockIdx.x) * s.taps + line * width + k + r;
            for (int v = 0; v < V; v++) {
                float total = 0;
                for (int y = 0; y < (int)blockDim.y; y++)
                    total += row[(y * blockDim.x + threadIdx.x) * V + v];
                part[at * s.channels + c + v] = total;
            }
        }
    }
}

template <typename T> static __global__ void add_slices(work_shape s, const float *part, T *dw)
{
    int64_t each = (int64_t)s.taps * s.channels, total = (s.step_n ? s.n : 1) * each;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < total;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t sample = e / each, t = e % each / s.channels, c = e % s.channels;
        const float *at = part + sample * s.slices * each + e % each;
        float sum = 0;
        for (int i = 0; i < s.slices; i++) sum += at[i * each];
        dw[sample * s.step_n + t * s.step_tap + c * s.step_c] = pl_elem<T>::put(sum);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static int div_up(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

/* Returns the channels per access. */
static int pack_of(const pl_conv_shape *c)
{
    int v = (int)(16 / pl_dtype_bytes((pl_dtype)c->dtype));
    return c->ic % v == 0 ? v : 1;
}

/* Returns the packs side by side in a block; each takes `floats` of shared memory. */
static int lanes_of(int packs, int floats)
{
    int wide = 32;
    while (wide > 1 && (wide / 2 >= packs || floats * wide > SHARED_FLOATS)) wide /= 2;
    return wide;
}

static bool shape_of(const pl_depthwise *d, work_shape *s)
{
    const pl_conv_shape *c = &d->conv;
    for (int i = 0; i < 3; i++) {
        s->in[i] = (int)c->in[i];
        s->out[i] = (int)c->out[i];
        s->kernel[i] = (int)c->kernel[i];
        s->stride[i] = (int)c->stride[i];
        s->dilation[i] = (int)c->dilation[i];
        s->pad[i] = (int)c->pad_lo[i];
    }
    s->n = (int)c->n;
    s->channels = (int)c->ic;
    s->taps = (int)pl_conv_pixels(c->kernel);
    s->px = (int)pl_conv_pixels(c->in);
    s->py = (int)pl_conv_pixels(c->out);
    s->wide = false;
    s->step_n = d->step_n;
    s->step_tap = d->step_tap;
    s->step_c = d->step_c;
    int64_t sums =
        (int64_t)(s->taps / s->kernel[2]) * div_up(s->channels, 64) * (d->step_n ? s->n : 1);
    int64_t all = d->step_n ? s->py : (int64_t)s->n * s->py;
    int64_t want = BLOCKS_WANTED / (sums < 1 ? 1 : sums) + 1, most = div_up(all, 128);
    s->slices = (int)(want > most ? most : want);
    if (s->slices > MAX_SLICES) s->slices = MAX_SLICES;
    if (s->slices < 1) s->slices = 1;
    int64_t side = pl_grid_side(),
            rows = (int64_t)(s->taps / s->kernel[2]) * (d->step_n ? s->n : 1);
    if (c->ic >= INT32_MAX / 16 || s->taps > SHARED_FLOATS / 8) return false;
    int v = pack_of(c), packs = div_up(c->ic, v);
    /* Chunks of channels are counted along y, samples and rows of taps along z. */
    return c->n < INT32_MAX && div_up(packs, lanes_of(packs, s->taps * v)) <= side &&
           pl_conv_pixels(c->in) < INT32_MAX && pl_conv_pixels(c->out) < INT32_MAX &&
           (c->kind != PL_CONV_DW || rows <= side) && c->dtype != PL_F64;
}

extern "C" size_t pl_depthwise_work(const pl_depthwise *d)
{
    work_shape s;
    if (d->conv.kind != PL_CONV_DW || !shape_of(d, &s)) return 0;
    return sizeof(float) * (size_t)s.slices * (size_t)s.taps * (size_t)s.channels *
           (size_t)(d->step_n ? s.n : 1);
}

template <typename T, int V, bool BACK>
static void launch_gather(const work_shape &s, const void *from, const void *w, const void *bias,
                          void *to)
{
    int packs = div_up(s.channels, V), wide = lanes_of(packs, s.taps * V),
        side = (int)pl_grid_side();
    dim3 block(wide, THREADS / wide);
    int pixels = BACK ? s.px : s.py, each = (int)block.y * 4;
    dim3 grid(div_up(pixels, each), div_up(packs, wide), s.n < side ? s.n : side);
    PL_LAUNCH((gather<T, V, BACK>), grid, block, sizeof(float) * s.taps * wide * V, s,
              (const T *)from, (const T *)w, (const T *)bias, (T *)to, each);
}

template <typename T, int V>
static void launch_sums(const work_shape &s, const void *x, const void *dy, void *dw, void *work)
{
    int packs = div_up(s.channels, V), wide = lanes_of(packs, 0), samples = s.step_n ? s.n : 1;
    dim3 block(wide, THREADS / wide),
        grid(s.slices, div_up(packs, wide), samples * (s.taps / s.kernel[2]));
    PL_LAUNCH((slice_sums<T, V>), grid, block, 0, s, (const T *)x, (const T *)dy, (float *)work);
    PL_LAUNCH((add_slices<T>), div_up((int64_t)samples * s.taps * s.channels, THREADS), THREADS, 0,
              s, (const float *)work, (T *)dw);
}

template <typename T, int V>
static void launch_wide(int kind, const work_shape &s, const void *a, const void *b,
                        const void *bias, void *out, void *work)
{
    if (kind == PL_CONV_Y)
        launch_gather<T, V, false>(s, a, b, bias, out);
    else if (kind == PL_CONV_DX)
        launch_gather<T, V, true>(s, a, b, bias, out);
    else
        launch_sums<T, V>(s, a, b, out, work);
}

template <typename T>
static void launch(int kind, work_shape s, const void *a, const void *b, const void *bias,
                   void *out, void *work)
{
    enum { V = 16 / sizeof(T) };
    /* The filter and its gradient are read and written one element at a time. */
    const void *p[2] = {a, kind == PL_CONV_DW ? b : out};
    s.wide = pl_cuda_aligned(p, 2);
    if (s.channels % V == 0)
        launch_wide<T, V>(kind, s, a, b, bias, out, work);
    else
        launch_wide<T, 1>(kind, s, a, b, bias, out, work);
}

/* ---- beyond the sizes above: one element a thread ------------------------------------------- */
template <typename T>
static __global__ void plain(pl_depthwise d, const T *a, const T *b, const T *bias, T *out)
{
    typedef typename pl_elem<T>::acc acc;
    const pl_conv_shape &c = d.conv;
    int64_t px = c.in[0] * c.in[1] * c.in[2], py = c.out[0] * c.out[1] * c.out[2];
    int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
    int64_t rows = c.kind == PL_CONV_Y    ? c.n * py
                   : c.kind == PL_CONV_DX ? c.n * px
                                          : (d.step_n ? c.n : 1) * taps;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < rows * c.ic;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t ch = e % c.ic, row = e / c.ic;
        int64_t each = c.kind == PL_CONV_Y ? py : c.kind == PL_CONV_DX ? px : taps;
        int64_t n = row / each, fixed = row % each;
        int64_t terms = c.kind == PL_CONV_DW ? (d.step_n ? py : c.n * py) : taps;
        acc sum = 0;
        for (int64_t j = 0; j < terms; j++) {
            int64_t t = c.kind == PL_CONV_DW ? fixed : j;
            int64_t sample = c.kind == PL_CONV_DW && !d.step_n ? j / py : n;
            int64_t here = c.kind == PL_CONV_DW ? j % py : fixed, x = 0, y = 0, rest = here;
            int64_t kt[3] = {t / c.kernel[2] / c.kernel[1], t / c.kernel[2] % c.kernel[1],
                             t % c.kernel[2]};
            const int64_t *size = c.kind == PL_CONV_DX ? c.in : c.out;
            int64_t at[3] = {rest / size[2] / size[1], rest / size[2] % size[1], rest % size[2]};
            bool meet = true;
            for (int i = 0; i < 3; i++) {
                int64_t p = at[i], q = at[i];
                if (c.kind == PL_CONV_DX) {
                    p = q + c.pad_lo[i] - kt[i] * c.dilation[i];
                    meet = meet && p >= 0 && p % c.stride[i] == 0;
                    p /= c.stride[i];
                } else {
                    q = p * c.stride[i] + kt[i] * c.dilation[i] - c.pad_lo[i];
                }
                meet = meet && p < c.out[i] && q >= 0 && q < c.in[i];
                x = x * c.in[i] + q;
                y = y * c.out[i] + p;
            }
            if (!meet) continue;
            int64_t w = n * d.step_n + t * d.step_tap + ch * d.step_c;
            int64_t left = c.kind == PL_CONV_DX ? (sample * py + y) * c.ic + ch
                                                : (sample * px + x) * c.ic + ch;
            int64_t right = c.kind == PL_CONV_DW ? (sample * py + y) * c.ic + ch : w;
            sum += pl_elem<T>::get(a[left]) * pl_elem<T>::get(b[right]);
        }
        if (bias) sum += pl_elem<T>::get(bias[ch]);
        int64_t to = c.kind == PL_CONV_DW ? n * d.step_n + fixed * d.step_tap + ch * d.step_c : e;
        out[to] = pl_elem<T>::put(sum);
    }
}

template <typename T>
static void launch_plain(const pl_depthwise *d, const void *a, const void *b, const void *bias,
                         void *out)
{
    const pl_conv_shape *c = &d->conv;
    int64_t rows = c->kind == PL_CONV_Y    ? c->n * pl_conv_pixels(c->out)
                   : c->kind == PL_CONV_DX ? c->n * pl_conv_pixels(c->in)
                                           : (d->step_n ? c->n : 1) * pl_conv_pixels(c->kernel);
    PL_LAUNCH((plain<T>), pl_blocks(rows * c->ic, THREADS), THREADS, 0, *d, (const T *)a,
              (const T *)b, (const T *)bias, (T *)out);
}

extern "C" pl_status pl_depthwise_run(const pl_depthwise *d, const void *a, const void *b,
                                      const void *bias, void *out, void *work)
{
    work_shape s;
    pl_dtype dt = (pl_dtype)d->conv.dtype;
    if (!shape_of(d, &s)) {
        PL_FLOAT_TYPES(dt, launch_plain<T>(d, a, b, bias, out))
    } else if (dt == PL_F32)
        launch<float>(d->conv.kind, s, a, b, bias, out, work);
    else if (dt == PL_F16)
        launch<pl_f16>(d->conv.kind, s, a, b, bias, out, work);
    else
        launch<pl_bf16>(d->conv.kind, s, a, b, bias, out, work);
    PL_CUDA_LAUNCHED("depthwise convolution");
    return PL_OK;
}
