/* depthwise_strip.h - shared by the files of depthwise convolutions; see depthwise_strip.cu. */
#ifndef PL_CUDA_DEPTHWISE_STRIP_H
#define PL_CUDA_DEPTHWISE_STRIP_H

#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"

static constexpr int COLUMNS = 7, ROWS = 4, THREADS = 256, SHARED_FLOATS = 10240;
static constexpr int PAIRS = 64, SUM_PAIRS = 32, BLOCKS = 1056, SUM_BLOCKS = 640, MAX_SLICES = 256;

/* One dimension. from, to: sizes of the side that is read and of the result. */
typedef struct axis {
    int from, to, kernel, stride, dilation, pad, every, phases;
    pl_divisor phase;
} axis;
typedef struct strip_shape {
    axis d[3];
    int channels, pairs, lanes, rows, n, taps;
    bool back;      /* the data gradient */
    uint32_t tiles; /* of all samples, or of one where each has its own filter */
    pl_divisor across, down, deep;
    int slices, groups, parts; /* filter's gradient: groups of rows of taps, parts of a row */
    int band;                  /* rows of a band; 0: strips */
    int64_t step_n, step_tap, step_c;
} strip_shape;

/* The place of a tile along one dimension. */
typedef struct spot {
    int to, apart;       /* its first result, and the distance to the next one */
    int at, step;        /* the first position that is read, and the distance to the next one */
    int taps, first, by; /* number of taps, the first one, and the distance to the next one */
} spot;

static __device__ __forceinline__ spot place(const axis &a, bool back, int u, int count)
{
    uint32_t phase, tile = pl_divmod((uint32_t)u, a.phase, &phase);
    int j = (int)tile * count;
    spot p;
    p.apart = a.phases;
    p.to = (int)phase + j * a.phases;
    p.step = a.stride == 1 ? a.dilation : 1;
    p.taps = a.kernel;
    p.first = 0;
    p.by = 1;
    if (!back) {
        p.at = p.to * a.stride - a.pad;
    } else if (a.stride == 1) {
        p.at = p.to + a.pad - (a.kernel - 1) * a.dilation;
        p.first = a.kernel - 1;
        p.by = -1;
    } else {
        int shifted = (int)phase + a.pad, left = shifted % a.stride;
        p.taps = left < a.kernel ? (a.kernel - left + a.stride - 1) / a.stride : 0;
        p.at = shifted / a.stride + j - (p.taps - 1);
        p.first = left + a.stride * (p.taps - 1);
        p.by = -a.stride;
    }
    return p;
}

/* The position that tap k of result p reads, along the first dimension, or -1. */
static __device__ __forceinline__ int meets(const axis &a, bool back, int p, int k)
{
    int q = back ? p + a.pad - k * a.dilation : p * a.stride + k * a.dilation - a.pad;
    if (back && a.stride != 1) {
        if (q < 0 || q % a.stride) return -1;
        q /= a.stride;
    }
    return q >= 0 && q < a.from ? q : -1;
}

/* The channels of a pixel; both: the thread's second channel is one of them. */
typedef struct pairing {
    int channels;
    bool both;
} pairing;

/* An unsigned type of the bytes of a pair, because the compiler waits for a load before it puts
 * halves of a register together. */
template <typename T> struct pair_word {
    typedef uint32_t type;
};
template <> struct pair_word<float> {
    typedef uint64_t type;
};

/* Loads N pixels of a line of `size`, `step` apart from `at` on; pixels outside are 0. */
template <typename T, int N, bool ALIGNED>
static __device__ __forceinline__ void load_line(const T *line, int at, int step, int size,
                                                 pairing a, typename pair_word<T>::type *raw)
{
    const T *p = line + (int64_t)at * a.channels;
    int64_t by = (int64_t)step * a.channels;
#pragma unroll
    for (int i = 0; i < N; i++, p += by) {
        raw[i] = 0;
        if ((unsigned)(at + i * step) >= (unsigned)size) continue;
        if (ALIGNED) {
            raw[i] = *reinterpret_cast<const typename pair_word<T>::type *>(p);
        } else {
            pl_pack<T, 2> one;
            one.v[0] = p[0];
            one.v[1] = a.both ? p[1] : pl_elem<T>::put(0);
            memcpy(&raw[i], &one, sizeof one);
        }
    }
}

template <typename T, int N>
static __device__ __forceinline__ void as_floats(const typename pair_word<T>::type *raw,
                                                 float2 *out)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        pl_pack<T, 2> two;
        memcpy(&two, &raw[i], sizeof two);
        out[i].x = pl_elem<T>::get(two.v[0]);
        out[i].y = pl_elem<T>::get(two.v[1]);
    }
}

/* Both. All loads are issued before the first one is used. */
template <typename T, int N, bool ALIGNED>
static __device__ __forceinline__ void read_line(const T *line, int at, int step, int size,
                                                 pairing a, float2 *out)
{
    typename pair_word<T>::type raw[N];
    load_line<T, N, ALIGNED>(line, at, step, size, a, raw);
    as_floats<T, N>(raw, out);
}

/* Divides the pairs of channels into equal chunks of at most `most` pairs. */
static inline int chunk_of(int channels, int most)
{
    int64_t pairs = pl_ceil_div(channels, 2);
    return (int)pl_ceil_div(pairs, pl_ceil_div(pairs, most));
}

/* Whether the filter's gradient may be summed over bands of rows, in 16 bits at aligned operands:
 * depthwise_bands.cu. */
bool pl_depthwise_bands_take(const pl_depthwise *d);
/* Makes bands of the strips. */
void pl_depthwise_band(strip_shape *s);
/* Computes the sums of all slices: part is [slice][tap][channel]. */
void pl_depthwise_bands(const strip_shape *s, pl_dtype dtype, const void *x, const void *dy,
                        float *part);

#endif
