/* conv_direct.cu - convolution with one output element per thread, and copies between boxes.
 *
 * The direct kernels serve what no library supports: f64, misaligned operands, shapes without a
 * suitable engine. Sums run in a fixed order, taps outermost, in f32 (f64 for f64).
 */
#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"

static constexpr int THREADS = 256;

static __device__ void split(int64_t i, const int64_t *size, int64_t *p)
{
    p[2] = i % size[2];
    p[1] = i / size[2] % size[1];
    p[0] = i / size[2] / size[1];
}

/* Returns the flat input pixel that tap k of output pixel p reads, or -1 in the padding. */
static __device__ int64_t reads(const pl_conv_shape &c, const int64_t *p, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t q = p[d] * c.stride[d] + k[d] * c.dilation[d] - c.pad_lo[d];
        if (q < 0 || q >= c.in[d]) return -1;
        at = at * c.in[d] + q;
    }
    return at;
}

/* Returns the flat output pixel whose tap k reads input pixel q, or -1. */
static __device__ int64_t reader(const pl_conv_shape &c, const int64_t *q, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t p = q[d] + c.pad_lo[d] - k[d] * c.dilation[d];
        if (p < 0 || p % c.stride[d]) return -1;
        p /= c.stride[d];
        if (p >= c.out[d]) return -1;
        at = at * c.out[d] + p;
    }
    return at;
}

static __device__ int64_t pixels(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

template <typename T>
static __global__ void forward(pl_conv_shape c, const T *x, const T *w, const T *bias, T *y)
{
    typedef typename pl_elem<T>::acc acc;
    int64_t plane = pixels(c.out), taps = pixels(c.kernel), total = c.n * plane * c.oc;
    int64_t i_per = c.ic / c.groups, o_per = c.oc / c.groups, p[3], k[3];
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < total;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t o = e % c.oc, pix = e / c.oc;
        split(pix % plane, c.out, p);
        acc sum = 0;
        for (int64_t t = 0; t < taps; t++) {
            split(t, c.kernel, k);
            int64_t q = reads(c, p, k);
            if (q < 0) continue;
            const T *a = x + (pix / plane * pixels(c.in) + q) * c.ic + o / o_per * i_per;
            const T *b = w + (o * taps + t) * i_per;
            for (int64_t i = 0; i < i_per; i++)
                sum += pl_elem<T>::get(a[i]) * pl_elem<T>::get(b[i]);
        }
        if (bias) sum += pl_elem<T>::get(bias[o]);
        y[e] = pl_elem<T>::put(sum);
    }
}

template <typename T>
static __global__ void to_data(pl_conv_shape c, const T *dy, const T *w, T *dx)
{
    typedef typename pl_elem<T>::acc acc;
    int64_t plane = pixels(c.in), taps = pixels(c.kernel), total = c.n * plane * c.ic;
    int64_t i_per = c.ic / c.groups, o_per = c.oc / c.groups, q[3], k[3];
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < total;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t i = e % c.ic, pix = e / c.ic, o = i / i_per * o_per;
        split(pix % plane, c.in, q);
        acc sum = 0;
        for (int64_t t = 0; t < taps; t++) {
            split(t, c.kernel, k);
            int64_t p = reader(c, q, k);
            if (p < 0) continue;
            const T *a = dy + (pix / plane * pixels(c.out) + p) * c.oc + o;
            const T *b = w + (o * taps + t) * i_per + i % i_per;
            for (int64_t j = 0; j < o_per; j++)
                sum += pl_elem<T>::get(a[j]) * pl_elem<T>::get(b[j * taps * i_per]);
        }
        dx[e] = pl_elem<T>::put(sum);
    }
}

/* One warp per weight: its lanes stride over the pixels and add up in a tree. */
template <typename T>
static __global__ void to_filter(pl_conv_shape c, const T *x, const T *dy, T *dw)
{
    typedef typename pl_elem<T>::acc acc;
    int64_t plane = pixels(c.out), taps = pixels(c.kernel), i_per = c.ic / c.groups;
    int64_t p[3], k[3];
    int lane = threadIdx.x % 32;
    for (int64_t e = PL_ITEM / 32; e < c.oc * taps * i_per; e += PL_ITEMS / 32) {
        int64_t i = e % i_per, t = e / i_per % taps, o = e / i_per / taps;
        int64_t channel = o / (c.oc / c.groups) * i_per + i;
        split(t, c.kernel, k);
        acc sum = 0;
        for (int64_t y = lane; y < c.n * plane; y += 32) {
            split(y % plane, c.out, p);
            int64_t q = reads(c, p, k);
            if (q < 0) continue;
            sum += pl_elem<T>::get(x[(y / plane * pixels(c.in) + q) * c.ic + channel]) *
                   pl_elem<T>::get(dy[y * c.oc + o]);
        }
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) dw[e] = pl_elem<T>::put(sum);
    }
}

static int grid_of(int64_t blocks)
{
    return (int)(blocks < 1 << 20 ? blocks : 1 << 20);
}

template <typename T>
static void launch(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                   void *out)
{
    int64_t pix = c->n * (c->kind == PL_CONV_Y ? pl_conv_pixels(c->out) * c->oc
                                               : pl_conv_pixels(c->in) * c->ic);
    int grid = grid_of((pix + THREADS - 1) / THREADS);
    if (c->kind == PL_CONV_Y)
        PL_LAUNCH((forward<T>), grid, THREADS, 0, *c, (const T *)a, (const T *)b, (const T *)bias,
                  (T *)out);
    else if (c->kind == PL_CONV_DX)
        PL_LAUNCH((to_data<T>), grid, THREADS, 0, *c, (const T *)a, (const T *)b, (T *)out);
    else
        PL_LAUNCH(
            (to_filter<T>),
            grid_of((c->oc * (c->ic / c->groups) * pl_conv_pixels(c->kernel) * 32 + THREADS - 1) /
                    THREADS),
            THREADS, 0, *c, (const T *)a, (const T *)b, (T *)out);
}

extern "C" pl_status pl_conv_direct(const pl_conv_shape *c, const void *a, const void *b,
                                    const void *bias, void *out)
{
    PL_FLOAT_TYPES((pl_dtype)c->dtype, launch<T>(c, a, b, bias, out))
    PL_CUDA_LAUNCHED("direct convolution");
    return PL_OK;
}

/* ---- boxes ---------------------------------------------------------------------------------- */
typedef struct box {
    int64_t in[3], out[3], shift[3], n, packs; /* packs of V channels per pixel */
} box;

template <typename P> static __global__ void copy_box(box b, const P *in, P *out)
{
    int64_t plane = pixels(b.out), total = b.n * plane * b.packs, p[3];
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < total;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t pix = e / b.packs, at = pix / plane;
        split(pix % plane, b.out, p);
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            int64_t q = p[d] + b.shift[d];
            inside = inside && q >= 0 && q < b.in[d];
            at = at * b.in[d] + q;
        }
        out[e] = inside ? in[at * b.packs + e % b.packs] : P{};
    }
}

template <typename P> static void launch_box(box b, const void *in, void *out, int64_t bytes)
{
    b.packs = bytes / (int64_t)sizeof(P);
    int64_t total = b.n * pl_conv_pixels(b.out) * b.packs;
    PL_LAUNCH((copy_box<P>), grid_of((total + THREADS - 1) / THREADS), THREADS, 0, b, (const P *)in,
              (P *)out);
}

extern "C" pl_status pl_conv_box(pl_dtype dtype, const void *in, const int64_t *in_size, void *out,
                                 const int64_t *out_size, const int64_t *shift, int64_t n,
                                 int64_t channels)
{
    box b = {};
    for (int d = 0; d < 3; d++) {
        b.in[d] = in_size[d];
        b.out[d] = out_size[d];
        b.shift[d] = shift[d];
    }
    b.n = n;
    int64_t bytes = channels * (int64_t)pl_dtype_bytes(dtype);
    const void *p[2] = {in, out};
    if (bytes % 16 == 0 && pl_cuda_aligned(p, 2))
        launch_box<uint4>(b, in, out, bytes);
    else if (pl_dtype_bytes(dtype) == 2)
        launch_box<uint16_t>(b, in, out, bytes);
    else
        launch_box<uint32_t>(b, in, out, bytes);
    PL_CUDA_LAUNCHED("copy of a box");
    return PL_OK;
}
