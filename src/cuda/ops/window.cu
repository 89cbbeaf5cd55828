/* window.cu - windows that slide over [N, s.., C]: patches and their adjoint, maximum pools.
 *
 * Threads run over channels, 16 bytes each where C allows, then over pixels. Sums (fold,
 * max_pool_bwd) gather: a pixel of x finds for every tap the output position that reads it there,
 * in the order of the taps, so no two threads add to one element.
 *
 * N is the type that counts the items of a launch: 32 bits, for as many images at a time as it can
 * count; where one image has more items, 64 bits, element by element.
 */
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

#include "ops/core/attr.h"
#include "ops/net/window.h"

enum { THREADS = 256 };

/* ---- geometry --------------------------------------------------------------------------- */
/* Three spatial dims; missing leading ones are 1. */
struct geometry {
    int32_t in[3], out[3], kernel[3], dilation[3], pad[3], taps;
    pl_divisor stride[3], by_in[3], by_out[3], by_kernel[3];
    pl_divisor packs; /* of channels */
    int64_t in_pixels, out_pixels;
};

static int32_t entry(const pl_dims *d, int i, int32_t otherwise)
{
    return i >= 0 && i < d->n ? (int32_t)d->v[i] : otherwise;
}

static geometry geometry_of(const pl_call *c, const pl_type *x)
{
    const pl_window_attr *a = static_cast<const pl_window_attr *>(c->attr);
    geometry g;
    int skip = 3 - (x->rank - 2);
    g.taps = 1;
    g.in_pixels = g.out_pixels = 1;
    for (int d = 0; d < 3; d++) {
        int i = d - skip;
        g.in[d] = i < 0 ? 1 : (int32_t)x->dim[1 + i];
        g.kernel[d] = entry(&a->kernel, i, 1);
        g.dilation[d] = entry(&a->dilation, i, 1);
        g.pad[d] = entry(&a->pad_lo, i, 0);
        g.stride[d] = pl_div_by(entry(&a->stride, i, 1));
        int32_t covered = g.in[d] + g.pad[d] + entry(&a->pad_hi, i, 0);
        g.out[d] = (covered - (g.kernel[d] - 1) * g.dilation[d] - 1) / (int32_t)g.stride[d].d + 1;
        g.by_in[d] = pl_div_by(g.in[d]);
        g.by_out[d] = pl_div_by(g.out[d]);
        g.by_kernel[d] = pl_div_by(g.kernel[d]);
        g.taps *= g.kernel[d];
        g.in_pixels *= g.in[d];
        g.out_pixels *= g.out[d];
    }
    return g;
}

/* Splits a flat position into three coordinates; the remainder is the image. */
template <class N>
static __device__ __forceinline__ N split(N i, const pl_divisor *size, int32_t *p)
{
    N at;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        i = pl_divmod(i, size[d], &at);
        p[d] = (int32_t)at;
    }
    return i;
}

/* A pixel's position in its image. */
template <class N> struct pixel_of {
    typedef int32_t type;
};
template <> struct pixel_of<uint64_t> {
    typedef int64_t type;
};

/* Returns the input pixel that tap k of output position p reads; -1 in the padding. */
template <class N>
static __device__ __forceinline__ typename pixel_of<N>::type
reads(const geometry &g, const int32_t *p, const int32_t *k)
{
    typename pixel_of<N>::type at = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        int32_t q = p[d] * (int32_t)g.stride[d].d + k[d] * g.dilation[d] - g.pad[d];
        if (q < 0 || q >= g.in[d]) return -1;
        at = at * g.in[d] + q;
    }
    return at;
}

/* Returns the line of input pixels that taps k[0], k[1] of output position p read; -1 in the
 * padding. */
template <class N>
static __device__ __forceinline__ typename pixel_of<N>::type
reads_row(const geometry &g, const int32_t *p, const int32_t *k)
{
    typename pixel_of<N>::type at = 0;
#pragma unroll
    for (int d = 0; d < 2; d++) {
        int32_t q = p[d] * (int32_t)g.stride[d].d + k[d] * g.dilation[d] - g.pad[d];
        if (q < 0 || q >= g.in[d]) return -1;
        at = at * g.in[d] + q;
    }
    return at;
}

/* Returns, along d, the output position whose tap k reads input position q; -1 if there is none. */
static __device__ __forceinline__ int32_t reader(const geometry &g, int d, int32_t q, int32_t k)
{
    int32_t at = q + g.pad[d] - k * g.dilation[d];
    uint32_t rest;
    if (at < 0) return -1;
    at = (int32_t)pl_divmod((uint32_t)at, g.stride[d], &rest);
    return rest == 0 && at < g.out[d] ? at : -1;
}

/* ---- unfold and fold -------------------------------------------------------------------- */
/* Units of channels of [N, P, K, C]. */
template <class U, class N>
static __global__ void __launch_bounds__(THREADS, 4)
    unfold_units(const U *__restrict__ x, U *__restrict__ y, const geometry g, int64_t n)
{
    U nothing;
    memset(&nothing, 0, sizeof nothing);
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        int32_t k[3], p[3];
        at = split(at, g.by_kernel, k);
        at = split(at, g.by_out, p);
        typename pixel_of<N>::type q = reads<N>(g, p, k);
        y[i] = q < 0 ? nothing : x[(at * g.in_pixels + q) * g.packs.d + c];
    }
}

template <class T, int V, class N>
static __global__ void __launch_bounds__(THREADS, 4)
    fold_pixels(const T *__restrict__ x, T *__restrict__ y, const geometry g, int64_t n)
{
    typedef typename pl_elem<T>::acc A;
    int64_t channels = (int64_t)g.packs.d * V;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        int32_t q[3];
        int64_t image = split(at, g.by_in, q) * g.out_pixels;
        A sum[V] = {0};
        for (int32_t a = 0; a < g.kernel[0]; a++) {
            int32_t pd = reader(g, 0, q[0], a);
            if (pd < 0) continue;
            for (int32_t b = 0; b < g.kernel[1]; b++) {
                int32_t ph = reader(g, 1, q[1], b);
                if (ph < 0) continue;
                for (int32_t k = 0; k < g.kernel[2]; k++) {
                    int32_t pw = reader(g, 2, q[2], k);
                    if (pw < 0) continue;
                    int64_t p = image + ((int64_t)pd * g.out[1] + ph) * g.out[2] + pw;
                    int32_t t = (a * g.kernel[1] + b) * g.kernel[2] + k;
                    pl_pack<T, V> v = pl_read<T, V>(x + (p * g.taps + t) * channels + c * V);
#pragma unroll
                    for (int e = 0; e < V; e++) sum[e] += pl_get<T>(v.v[e]);
                }
            }
        }
        pl_pack<T, V> out;
#pragma unroll
        for (int e = 0; e < V; e++) out.v[e] = pl_put<T>(sum[e]);
        pl_write(y + i * V, out);
    }
}

/* Runs the launch for as many images at a time as N can count; `each`: items per image. */
#define BY_IMAGES(images, each, n, ...)                                                            \
 do {                                                                                              \
  int64_t per_ = pl_most_items() / (each);                                                         \
  if (per_ < 1) per_ = 1;                                                                          \
  for (int64_t first = 0; first < (images); first += per_) {                                       \
   int64_t now_ = (images)-first < per_ ? (images)-first : per_, n = now_ * (each);                \
   pl_counts(n, sizeof(N));                                                                        \
   __VA_ARGS__;                                                                                    \
  }                                                                                                \
 } while (0)

/* Whether an image has more items than 32 bits count: pixels of either side, taps of each. */
static bool is_vast(const geometry &g, int64_t channels, int64_t taps)
{
    int64_t pixels = g.in_pixels > g.out_pixels ? g.in_pixels : g.out_pixels;
    return pixels * taps * channels > pl_most_items();
}

template <class U, class N> static void launch_unfold(const pl_call *c, geometry g, int64_t units)
{
    int64_t each = g.out_pixels * g.taps * units;
    g.packs = pl_div_by(units);
    BY_IMAGES(c->in_type[0].dim[0], each, n,
              PL_LAUNCH((unfold_units<U, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                        static_cast<const U *>(c->in[0]) + first * g.in_pixels * units,
                        static_cast<U *>(c->out[0]) + first * each, g, n));
}

static pl_status unfold(const pl_call *c)
{
    const pl_type *x = &c->in_type[0];
    geometry g = geometry_of(c, x);
    int64_t elem = (int64_t)pl_dtype_bytes(x->dtype), row = x->dim[x->rank - 1] * elem;
    int64_t unit = pl_widest_at(pl_widest_at(pl_widest(16, row), c->in[0]), c->out[0]);
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    if (is_vast(g, row / unit, g.taps))
        PL_UNIT_TYPES(elem, launch_unfold<U, uint64_t>(c, g, row / elem))
    else
        PL_UNIT_TYPES(unit, launch_unfold<U, uint32_t>(c, g, row / unit))
    PL_CUDA_LAUNCHED("unfold");
    return PL_OK;
}

/* Whether an access takes 16 bytes of T; otherwise one element. */
template <class T> static bool is_wide(int64_t channels, const void *p, const void *q)
{
    return pl_widest_at(pl_widest_at(pl_widest(16, channels * (int64_t)sizeof(T)), p), q) == 16;
}

template <class T, int V, class N> static void launch_fold(const pl_call *c, geometry g)
{
    const pl_type *y = &c->out_type[0];
    int64_t channels = y->dim[y->rank - 1];
    g.packs = pl_div_by(channels / V);
    BY_IMAGES(y->dim[0], g.in_pixels * (channels / V), n,
              PL_LAUNCH((fold_pixels<T, V, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                        static_cast<const T *>(c->in[0]) + first * g.out_pixels * g.taps * channels,
                        static_cast<T *>(c->out[0]) + first * g.in_pixels * channels, g, n));
}

static pl_status fold(const pl_call *c)
{
    const pl_type *y = &c->out_type[0];
    geometry g = geometry_of(c, y);
    if (pl_type_elems(y) == 0) return PL_OK;
    PL_ALL_TYPES(
        y->dtype, const int V = 16 / sizeof(T); int64_t channels = y->dim[y->rank - 1];
        bool wide = is_wide<T>(channels, c->in[0], c->out[0]);
        if (is_vast(g, wide ? channels / V : channels, 1)) launch_fold<T, 1, uint64_t>(c, g);
        else if (wide) launch_fold<T, V, uint32_t>(c, g); else launch_fold<T, 1, uint32_t>(c, g));
    PL_CUDA_LAUNCHED("fold");
    return PL_OK;
}

/* ---- maximum pools ---------------------------------------------------------------------- */
/* The first maximum wins; NaN is larger than any number. */
template <class T, int V, class N>
static __global__ void __launch_bounds__(THREADS, 3)
    max_pixels(const T *__restrict__ x, T *__restrict__ y, uint8_t *__restrict__ index,
               const geometry g, int64_t n)
{
    enum { TAPS = V > 8 ? 1 : 4 }; /* of a row, whose loads are in flight together */
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        int32_t p[3], k[2];
        const T *image = x + (split(at, g.by_out, p) * g.in_pixels * g.packs.d + c) * V;
        int32_t left = p[2] * (int32_t)g.stride[2].d - g.pad[2];
        A best[V] = {0};
        uint32_t winner[V] = {0};
        bool any = false;
        for (k[0] = 0; k[0] < g.kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < g.kernel[1]; k[1]++) {
                int64_t q = reads_row<N>(g, p, k);
                if (q < 0) continue;
                const T *from = image + q * g.in[2] * g.packs.d * V;
                for (int32_t k0 = 0; k0 < g.kernel[2]; k0 += TAPS) {
                    pl_pack<T, V> v[TAPS];
                    bool in[TAPS];
#pragma unroll
                    for (int t = 0; t < TAPS; t++) {
                        int32_t at_x = left + k0 + t;
                        in[t] = k0 + t < g.kernel[2] && at_x >= 0 && at_x < g.in[2];
                        if (in[t]) v[t] = pl_read<T, V>(from + (int64_t)at_x * g.packs.d * V);
                    }
#pragma unroll
                    for (int t = 0; t < TAPS; t++) {
                        if (!in[t]) continue;
                        uint32_t number = (k[0] * g.kernel[1] + k[1]) * g.kernel[2] + k0 + t;
#pragma unroll
                        for (int e = 0; e < V; e++) {
                            A a = pl_get<T>(v[t].v[e]);
                            bool more = !any || (!(a <= best[e]) && best[e] == best[e]);
                            best[e] = more ? a : best[e];
                            winner[e] = more ? number : winner[e];
                        }
                        any = true;
                    }
                }
            }
        pl_pack<T, V> out;
        pl_pack<uint8_t, V> won;
#pragma unroll
        for (int e = 0; e < V; e++) {
            out.v[e] = pl_put<T>(best[e]);
            won.v[e] = (uint8_t)winner[e];
        }
        pl_write(y + i * V, out);
        pl_write(index + i * V, won);
    }
}

/* The output positions [first, last] along d that read input position q; pools have no dilation. */
static __device__ __forceinline__ void readers(const geometry &g, int d, int32_t q, int32_t *first,
                                               int32_t *last)
{
    int32_t at = q + g.pad[d], before = at - g.kernel[d] + 1;
    *last = min((int32_t)pl_quot((uint32_t)at, g.stride[d]), g.out[d] - 1);
    *first = before <= 0
                 ? 0
                 : (int32_t)pl_quot((uint32_t)(before + (int32_t)g.stride[d].d - 1), g.stride[d]);
}

/* Returns the tap by which output position p reads input position q along d. */
static __device__ __forceinline__ int32_t tap_of(const geometry &g, int d, int32_t q, int32_t p)
{
    return q + g.pad[d] - p * (int32_t)g.stride[d].d;
}

/* The taps of a pixel in ascending order: output positions in descending order. */
template <class T, int V, class N>
static __global__ void __launch_bounds__(THREADS, 3)
    max_bwd_pixels(const T *__restrict__ dy, const uint8_t *__restrict__ index, T *__restrict__ dx,
                   const geometry g, int64_t n)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        int32_t q[3], lo[3], hi[3];
        int64_t image = split(at, g.by_in, q) * g.out_pixels;
        A sum[V] = {0};
#pragma unroll
        for (int d = 0; d < 3; d++) readers(g, d, q[d], &lo[d], &hi[d]);
        for (int32_t pd = hi[0]; pd >= lo[0]; pd--)
            for (int32_t ph = hi[1]; ph >= lo[1]; ph--) {
                int32_t a = tap_of(g, 0, q[0], pd), b = tap_of(g, 1, q[1], ph);
                int64_t row = image + ((int64_t)pd * g.out[1] + ph) * g.out[2];
                for (int32_t first = hi[2]; first >= lo[2]; first -= 2) {
                    pl_pack<uint8_t, V> w[2];
                    pl_pack<T, V> v[2];
                    int32_t t[2];
#pragma unroll
                    for (int u = 0; u < 2; u++) {
                        int32_t k = first - u < lo[2] ? -1 : tap_of(g, 2, q[2], first - u);
                        t[u] = k < 0 ? -1 : (a * g.kernel[1] + b) * g.kernel[2] + k;
                        if (k < 0) continue;
                        int64_t p = ((row + first - u) * g.packs.d + c) * V;
                        w[u] = pl_read<uint8_t, V>(index + p);
                        v[u] = pl_read<T, V>(dy + p);
                    }
#pragma unroll
                    for (int u = 0; u < 2; u++) {
                        if (t[u] < 0) continue;
#pragma unroll
                        for (int e = 0; e < V; e++)
                            if (w[u].v[e] == t[u]) sum[e] += pl_get<T>(v[u].v[e]);
                    }
                }
            }
        pl_pack<T, V> out;
#pragma unroll
        for (int e = 0; e < V; e++) out.v[e] = pl_put<T>(sum[e]);
        pl_write(dx + i * V, out);
    }
}

/* Windows that tile x: a thread takes one element of dy and writes its whole window. */
template <class T, int V, class N>
static __global__ void __launch_bounds__(THREADS, 4)
    max_bwd_tiles(const T *__restrict__ dy, const uint8_t *__restrict__ index, T *__restrict__ dx,
                  const geometry g, int64_t n)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        int32_t p[3], t = 0;
        T *image = dx + (split(at, g.by_out, p) * g.in_pixels * g.packs.d + c) * V;
        pl_pack<uint8_t, V> w = pl_read<uint8_t, V>(index + i * V);
        pl_pack<T, V> v = pl_read<T, V>(dy + i * V);
        for (int32_t a = 0; a < g.kernel[0]; a++)
            for (int32_t b = 0; b < g.kernel[1]; b++) {
                int64_t q = (int64_t)(p[0] * g.kernel[0] + a) * g.in[1] + p[1] * g.kernel[1] + b;
                T *to = image + (q * g.in[2] + p[2] * g.kernel[2]) * g.packs.d * V;
                for (int32_t k = 0; k < g.kernel[2]; k++, t++, to += (int64_t)g.packs.d * V) {
                    pl_pack<T, V> out;
#pragma unroll
                    for (int e = 0; e < V; e++) out.v[e] = w.v[e] == t ? v.v[e] : pl_put<T>(0);
                    pl_write(to, out);
                }
            }
    }
}

/* An index that points into the padding reads zero. */
template <class T, class N>
static __global__ void __launch_bounds__(THREADS, 4)
    gather_pixels(const T *__restrict__ x, const uint8_t *__restrict__ index, T *__restrict__ y,
                  const geometry g, int64_t n)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        N c, at = pl_divmod((N)i, g.packs, &c);
        uint32_t w = index[i];
        int32_t p[3], k[3];
        int64_t q = -1;
        int64_t image = split(at, g.by_out, p) * g.in_pixels;
        if ((int32_t)w < g.taps) {
            split(w, g.by_kernel, k);
            q = reads<N>(g, p, k);
        }
        y[i] = q < 0 ? pl_put<T>(0) : x[(image + q) * g.packs.d + c];
    }
}

template <class T, int V, class N> static void launch_max(const pl_call *c, geometry g)
{
    const pl_type *y = &c->out_type[0];
    int64_t channels = y->dim[y->rank - 1], each = g.out_pixels * (channels / V);
    g.packs = pl_div_by(channels / V);
    BY_IMAGES(y->dim[0], each, n,
              PL_LAUNCH((max_pixels<T, V, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                        static_cast<const T *>(c->in[0]) + first * g.in_pixels * channels,
                        static_cast<T *>(c->out[0]) + first * each * V,
                        static_cast<uint8_t *>(c->out[1]) + first * each * V, g, n));
}

static bool is_tiled(const geometry &g)
{
    bool tiled = true;
    for (int d = 0; d < 3; d++)
        tiled &= (int32_t)g.stride[d].d == g.kernel[d] && g.pad[d] == 0 &&
                 g.in[d] == g.out[d] * g.kernel[d];
    return tiled;
}

template <class T, int V, class N> static void launch_max_bwd(const pl_call *c, geometry g)
{
    const pl_type *x = &c->out_type[0];
    int64_t channels = x->dim[x->rank - 1], each = g.in_pixels * (channels / V);
    g.packs = pl_div_by(channels / V);
    if (is_tiled(g)) {
        int64_t tiles = g.out_pixels * (channels / V);
        BY_IMAGES(x->dim[0], tiles, n,
                  PL_LAUNCH((max_bwd_tiles<T, V, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                            static_cast<const T *>(c->in[0]) + first * tiles * V,
                            static_cast<const uint8_t *>(c->in[1]) + first * tiles * V,
                            static_cast<T *>(c->out[0]) + first * each * V, g, n));
        return;
    }
    BY_IMAGES(x->dim[0], each, n,
              PL_LAUNCH((max_bwd_pixels<T, V, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                        static_cast<const T *>(c->in[0]) + first * g.out_pixels * channels,
                        static_cast<const uint8_t *>(c->in[1]) + first * g.out_pixels * channels,
                        static_cast<T *>(c->out[0]) + first * each * V, g, n));
}

template <class T, class N> static void launch_gather(const pl_call *c, geometry g)
{
    const pl_type *y = &c->out_type[0];
    int64_t channels = y->dim[y->rank - 1], each = g.out_pixels * channels;
    g.packs = pl_div_by(channels);
    BY_IMAGES(y->dim[0], each, n,
              PL_LAUNCH((gather_pixels<T, N>), dim3(pl_blocks(n, THREADS)), dim3(THREADS), 0,
                        static_cast<const T *>(c->in[0]) + first * g.in_pixels * channels,
                        static_cast<const uint8_t *>(c->in[1]) + first * each,
                        static_cast<T *>(c->out[0]) + first * each, g, n));
}

/* Whether accesses of v index bytes are aligned. */
static bool wide_index(const void *index, int64_t channels, int64_t v)
{
    return channels % v == 0 && (int64_t)(uintptr_t)index % v == 0;
}

static pl_status max_pool(const pl_call *c)
{
    const pl_type *y = &c->out_type[0];
    int64_t channels = y->dim[y->rank - 1];
    if (pl_type_elems(y) == 0) return PL_OK;
    geometry g = geometry_of(c, &c->in_type[0]);
    PL_ALL_TYPES(
        y->dtype, const int V = 16 / sizeof(T);
        bool wide = is_wide<T>(channels, c->in[0], c->out[0]) && wide_index(c->out[1], channels, V);
        if (is_vast(g, wide ? channels / V : channels, 1)) launch_max<T, 1, uint64_t>(c, g);
        else if (wide) launch_max<T, V, uint32_t>(c, g); else launch_max<T, 1, uint32_t>(c, g));
    PL_CUDA_LAUNCHED("max_pool");
    return PL_OK;
}

static pl_status max_pool_bwd(const pl_call *c)
{
    const pl_type *x = &c->out_type[0];
    int64_t channels = x->dim[x->rank - 1];
    if (pl_type_elems(x) == 0) return PL_OK;
    geometry g = geometry_of(c, x);
    PL_FLOAT_TYPES(
        x->dtype, const int V = 16 / sizeof(T);
        bool wide = is_wide<T>(channels, c->in[0], c->out[0]) && wide_index(c->in[1], channels, V);
        if (is_vast(g, wide ? channels / V : channels, 1)) launch_max_bwd<T, 1, uint64_t>(c, g);
        else if (wide) launch_max_bwd<T, V, uint32_t>(c, g);
        else launch_max_bwd<T, 1, uint32_t>(c, g));
    PL_CUDA_LAUNCHED("max_pool_bwd");
    return PL_OK;
}

static pl_status max_pool_gather(const pl_call *c)
{
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    geometry g = geometry_of(c, &c->in_type[0]);
    const pl_type *y = &c->out_type[0];
    PL_FLOAT_TYPES(y->dtype,
                   if (is_vast(g, y->dim[y->rank - 1], 1)) launch_gather<T, uint64_t>(c, g);
                   else launch_gather<T, uint32_t>(c, g));
    PL_CUDA_LAUNCHED("max_pool_gather");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(unfold_kernels, NULL, unfold);
PL_CUDA_KERNEL(fold_kernels, NULL, fold);
PL_CUDA_KERNEL(max_pool_kernels, NULL, max_pool);
PL_CUDA_KERNEL(max_pool_bwd_kernels, NULL, max_pool_bwd);
PL_CUDA_KERNEL(max_pool_gather_kernels, NULL, max_pool_gather);

PL_CUDA_ENTRIES(pl_cuda_window) = {{"unfold", unfold_kernels},
                                   {"fold", fold_kernels},
                                   {"max_pool", max_pool_kernels},
                                   {"max_pool_bwd", max_pool_bwd_kernels},
                                   {"max_pool_gather", max_pool_gather_kernels},
                                   {NULL, NULL}};
