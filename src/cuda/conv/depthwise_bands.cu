/* depthwise_bands.cu - the gradient of depthwise filters of 3 x 3 taps in 16 bits, without stride
 * and dilation. A thread owns two channels and all taps and walks down bands of rows, so that a
 * pixel is loaded once, and not once for each row of taps as over strips (depthwise_strip.cu).
 * While a row is used, the next one is loaded.
 */
#include "cuda/conv/depthwise_strip.h"
#include "cuda/device/launch.h"

static constexpr int BAND = 16, BAND_TAPS = 3;

/* The registers of a thread of `bands`: the sums of all taps, K rows of dy in memory's own type
 * (such a thread has too few registers), and the next rows of x and dy on their way. */
template <typename T, int K> struct band_state {
    enum { N = COLUMNS - 1 + K };
    float2 sum[K][K];
    typename pair_word<T>::type d[K][COLUMNS], x[N], dy[COLUMNS];
    bool has_x;
};

/* Loads row i of the band: of x, and of dy where the band has one, else zeros. */
template <typename T, int K>
static __device__ __forceinline__ void load_rows(band_state<T, K> &b, const strip_shape &s,
                                                 pairing a, const T *x, const T *dy, int i, int top,
                                                 int rows, const spot &h)
{
    const axis &d1 = s.d[1], &d2 = s.d[2];
    int q = top + i - d1.pad;
    b.has_x = i < rows + K - 1 && (unsigned)q < (unsigned)d1.from;
    if (b.has_x)
        load_line<T, band_state<T, K>::N, true>(x + (int64_t)q * d2.from * s.channels, h.at, 1,
                                                d2.from, a, b.x);
    if (i < rows)
        load_line<T, COLUMNS, true>(dy + (int64_t)(top + i) * d2.to * s.channels, h.to, 1, d2.to, a,
                                    b.dy);
    else
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) b.dy[j] = 0;
}

/* grid: (slices, chunks of channels); a thread: a pair of channels, every s.lanes-th unit of the
 * slice; a unit: s.band rows of COLUMNS pixels. part: as for strips */
template <typename T, int K>
static __global__ void __launch_bounds__(THREADS, 2)
    bands(strip_shape s, const T *x, const T *dy, float *part)
{
    __shared__ float2 row[THREADS];
    const axis &d1 = s.d[1], &d2 = s.d[2];
    int pair = threadIdx.x % s.pairs, lane = threadIdx.x / s.pairs;
    int c = (blockIdx.y * s.pairs + pair) * 2;
    pairing a = {s.channels, true};
    bool live = lane < s.lanes && c < s.channels;
    uint32_t first = (uint32_t)((uint64_t)s.tiles * blockIdx.x / s.slices);
    uint32_t last = (uint32_t)((uint64_t)s.tiles * (blockIdx.x + 1) / s.slices);
    band_state<T, K> b;
#pragma unroll
    for (int m = 0; m < K * K; m++) b.sum[m / K][m % K].x = b.sum[m / K][m % K].y = 0.0f;
    for (uint32_t u = first + lane; live && u < last; u += s.lanes) {
        uint32_t tx, ty, image = pl_divmod(pl_divmod(u, s.across, &tx), s.down, &ty);
        int top = (int)ty * s.band, rows = min(s.band, d1.to - top);
        spot h = place(d2, false, (int)tx, COLUMNS);
        const T *from = x + (int64_t)image * d1.from * d2.from * s.channels + c;
        const T *to = dy + (int64_t)image * d1.to * d2.to * s.channels + c;
#pragma unroll
        for (int j = 0; j < K * COLUMNS; j++) b.d[j / COLUMNS][j % COLUMNS] = 0;
        load_rows<T, K>(b, s, a, from, to, 0, top, rows, h);
        for (int i0 = 0; i0 < rows + K - 1; i0 += K)
#pragma unroll
            for (int j = 0; j < K; j++) { /* row i0 + j of dy is in d[j] */
                float2 in[band_state<T, K>::N];
                bool now = b.has_x;
                if (now) as_floats<T, band_state<T, K>::N>(b.x, in);
#pragma unroll
                for (int e = 0; e < COLUMNS; e++) b.d[j][e] = b.dy[e];
                load_rows<T, K>(b, s, a, from, to, i0 + j + 1, top, rows, h);
                if (!now) continue;
#pragma unroll
                for (int k = 0; k < K; k++) {
                    float2 v[COLUMNS];
                    as_floats<T, COLUMNS>(b.d[(j + K - k) % K], v);
#pragma unroll
                    for (int m = 0; m < K; m++)
#pragma unroll
                        for (int e = 0; e < COLUMNS; e++) {
                            b.sum[k][m].x = fmaf(in[e + m].x, v[e].x, b.sum[k][m].x);
                            b.sum[k][m].y = fmaf(in[e + m].y, v[e].y, b.sum[k][m].y);
                        }
                }
            }
    }
#pragma unroll
    for (int m = 0; m < K * K; m++) {
        __syncthreads();
        row[threadIdx.x] = b.sum[m / K][m % K];
        __syncthreads();
        if (lane || !live) continue;
        float2 all = row[threadIdx.x];
        for (int i = 1; i < s.lanes; i++) {
            float2 more = row[threadIdx.x + i * s.pairs];
            all.x += more.x;
            all.y += more.y;
        }
        int64_t at = ((int64_t)blockIdx.x * s.taps + m) * s.channels + c;
        part[at] = all.x;
        part[at + 1] = all.y;
    }
}

/* Whether the filter's gradient may be summed over bands of rows. */
bool pl_depthwise_bands_take(const pl_depthwise *d)
{
    const pl_conv_shape *c = &d->conv;
    bool takes = d->step_n == 0 && c->ic % 2 == 0 && pl_dtype_bytes((pl_dtype)c->dtype) == 2 &&
                 c->kernel[0] == 1 && c->stride[0] == 1 && c->in[0] == c->out[0];
    for (int i = 1; i < 3; i++)
        takes = takes && c->kernel[i] == BAND_TAPS && c->stride[i] == 1 && c->dilation[i] == 1;
    return takes;
}

/* Makes bands of rows of the strips. */
void pl_depthwise_band(strip_shape *s)
{
    int64_t high = s->d[1].to, count = pl_ceil_div(high, BAND), across = s->across.d;
    s->band = (int)pl_ceil_div(high, count);
    count = pl_ceil_div(high, s->band);
    s->tiles = (uint32_t)(s->n * (int64_t)s->d[0].to * count * across);
    s->down = pl_div_by((int)count);
    s->pairs = chunk_of(s->channels, SUM_PAIRS);
    s->lanes = THREADS / s->pairs;
    int64_t want = pl_ceil_div(SUM_BLOCKS, pl_ceil_div(s->channels, 2 * s->pairs));
    int64_t full = pl_ceil_div(s->tiles, s->lanes);
    want = want < full ? want : full;
    s->slices = (int)(want < 1 ? 1 : want < MAX_SLICES ? want : MAX_SLICES);
}

template <typename T>
static void launch(const strip_shape *s, const void *x, const void *dy, float *part)
{
    dim3 grid(s->slices, (unsigned)pl_ceil_div(s->channels, 2 * s->pairs));
    PL_LAUNCH((bands<T, BAND_TAPS>), grid, THREADS, 0, *s, (const T *)x, (const T *)dy, part);
}

void pl_depthwise_bands(const strip_shape *s, pl_dtype dtype, const void *x, const void *dy,
                        float *part)
{
    if (dtype == PL_F16)
        launch<pl_f16>(s, x, dy, part);
    else
        launch<pl_bf16>(s, x, dy, part);
}
