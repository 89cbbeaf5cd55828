/* taps.cu - sums of weighted neighbours: resizing, average pools, and their adjoints.
 *
 * All are one linear map [N, in.., C] -> [N, out.., C] that is a product over the spatial dims:
 * along each, position i of the result reads a few positions with weights (ops/net/resize.c and
 * ops/net/pool.c define them). A first kernel writes these lists, one per dimension, into scratch;
 * the second sums
 *
 *     y[n, i0, i1, i2, c] = sum of w0 w1 w2 x[n, j0, j1, j2, c]
 *
 * with threads over channels, 16 bytes each where C allows. An adjoint has the same form with the
 * lists inverted: position j gathers from every i that reads it, in rising order, so no two threads
 * add to the same element and the order is fixed. Eight threads sum a result with many taps; their
 * parts are added in order.
 *
 * Positions are computed in f32 for all types but f64, as on the CPU, operation by operation: other
 * rounding would select another pixel.
 */
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

#include "ops/core/attr.h"
#include "ops/net/window.h"

#include <math.h>

enum { THREADS = 256, LANES = 32, PARTS = 8, MANY = 64 };

enum kind { NEAREST, LINEAR, CUBIC, WINDOW, ADAPTIVE, ONE };

/* Which positions of one dim are read: `out` positions of the forward map read `in`. */
struct rule {
    int kind;
    int32_t in, out;
    int32_t kernel, stride, pad; /* WINDOW */
    bool align, count_pad, adjoint;
};

/* ---- rules ------------------------------------------------------------------------------ */
#define BOTH static __host__ __device__ inline

/* Products that the compiler must not contract with a sum. */
BOTH float product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
BOTH double product(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

template <class R> BOTH R scale_of(const rule &r)
{
    if (r.align) return r.out > 1 ? (R)(r.in - 1) / (R)(r.out - 1) : (R)0;
    return (R)r.in / (R)r.out;
}

template <class R> BOTH R source(const rule &r, int32_t i)
{
    R scale = scale_of<R>(r);
    if (r.align) return product(scale, (R)i);
    R s = product(scale, (R)i + (R)0.5) - (R)0.5;
    return r.kind == LINEAR && s < 0 ? (R)0 : s;
}

BOTH double cubic_weight(double t, int k)
{
    double a = -0.75, x = k == 0 ? t + 1 : k == 1 ? t : k == 2 ? 1 - t : 2 - t;
    return k == 1 || k == 2 ? ((a + 2) * x - (a + 3)) * x * x + 1
                            : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

BOTH int32_t clamped(int32_t i, int32_t size)
{
    return i < 0 ? 0 : i >= size ? size - 1 : i;
}

/* Sets the first and last input position of an averaging window. */
BOTH void window_of(const rule &r, int32_t i, int32_t *lo, int32_t *hi)
{
    if (r.kind == ADAPTIVE) {
        *lo = (int32_t)((int64_t)i * r.in / r.out);
        *hi = (int32_t)((((int64_t)i + 1) * r.in + r.out - 1) / r.out) - 1;
        return;
    }
    int32_t from = i * r.stride - r.pad, to = from + r.kernel - 1;
    *lo = from < 0 ? 0 : from;
    *hi = to < r.in ? to : r.in - 1;
}

/* Sets tap k of position i; false past the last tap. */
template <class R> BOTH bool tap(const rule &r, int32_t i, int32_t k, int32_t *index, R *weight)
{
    if (r.kind >= WINDOW) {
        int32_t lo = i, hi = i;
        if (r.kind != ONE) window_of(r, i, &lo, &hi);
        *index = lo + k;
        *weight = 1 / (R)(r.kind == WINDOW && r.count_pad ? r.kernel : hi - lo + 1);
        return lo + k <= hi;
    }
    if (r.kind == NEAREST) {
        float scale = (float)r.in / (float)r.out;
        *index = clamped((int32_t)floorf(product((float)i, scale)), r.in);
        *weight = 1;
        return k == 0;
    }
    R s = source<R>(r, i), base = (R)floor((double)s), t = s - base;
    if (r.kind == LINEAR) {
        *index = clamped((int32_t)base + k, r.in);
        *weight = k == 0 ? 1 - t : t;
        return k < 2;
    }
    *index = clamped((int32_t)base - 1 + k, r.in);
    *weight = (R)cubic_weight((double)t, k);
    return k < 4;
}

/* Sets a range of forward positions that includes all that read input position q. */
template <class R> BOTH void readers(const rule &r, int32_t q, int32_t *first, int32_t *last)
{
    double lo = 0, hi = r.out - 1;
    if (r.kind == ONE) {
        lo = hi = q;
    } else if (r.kind == WINDOW) {
        lo = floor((double)(q + r.pad - r.kernel) / r.stride);
        hi = floor((double)(q + r.pad) / r.stride);
    } else if (r.kind == ADAPTIVE || r.kind == NEAREST) {
        lo = floor((double)q * r.out / r.in) - 2;
        hi = floor((double)(q + 1) * r.out / r.in) + 2;
    } else if (scale_of<R>(r) > 0) {
        double scale = (double)scale_of<R>(r), shift = r.align ? 0 : 0.5;
        int32_t reach = r.kind == LINEAR ? 1 : 2;
        if (q > 0 && q >= reach) lo = floor((q - reach + shift) / scale - shift) - 1;
        if (q < r.in - reach) hi = ceil((q + reach + shift) / scale - shift) + 1;
        if (q == 0) lo = 0;
        if (q == r.in - 1) hi = r.out - 1;
    }
    *first = lo < 0 ? 0 : (int32_t)lo;
    *last = hi > r.out - 1 ? r.out - 1 : (int32_t)hi;
}

/* Makes the list of one row: what position `row` of the result reads. Writes up to `cap` entries
 * and returns how many there are; taps of weight 0 are left out. */
template <class R>
BOTH int32_t list_row(const rule &r, int32_t row, int32_t cap, int32_t *index, R *weight)
{
    int32_t n = 0, j;
    R w;
    if (!r.adjoint) {
        for (int32_t k = 0; tap<R>(r, row, k, &j, &w); k++) {
            if (w == 0) continue;
            if (n < cap) {
                index[n] = j;
                weight[n] = w;
            }
            n++;
        }
        return n;
    }
    int32_t first, last;
    readers<R>(r, row, &first, &last);
    for (int32_t i = first; i <= last; i++)
        for (int32_t k = 0; tap<R>(r, i, k, &j, &w); k++) {
            if (j != row || w == 0) continue;
            if (n < cap) {
                index[n] = i;
                weight[n] = w;
            }
            n++;
        }
    return n;
}

static int32_t rows_of(const rule &r)
{
    return r.adjoint ? r.in : r.out;
}

/* Returns the length of the longest list of a dim. */
template <class R> static int32_t longest(const rule &r)
{
    int32_t most = 1;
    if (!r.adjoint && r.kind != ADAPTIVE)
        return r.kind == LINEAR ? 2 : r.kind == CUBIC ? 4 : r.kind == WINDOW ? r.kernel : 1;
    for (int32_t i = 0; i < rows_of(r); i++) {
        int32_t n = list_row<R>(r, i, 0, NULL, NULL);
        if (n > most) most = n;
    }
    return most;
}

/* ---- kernels ---------------------------------------------------------------------------- */
/* Lists of one dim in scratch: cap entries per row. */
template <class R> struct table {
    int32_t *count, *index;
    R *weight;
    int32_t cap;
};

template <class R> struct tables {
    rule r[3];
    table<R> t[3];
    int32_t rows[3];
};

template <class R> static __global__ void make_lists(const tables<R> s)
{
    int32_t i = (int32_t)PL_ITEM;
    for (int d = 0; d < 3; d++) {
        if (i < s.rows[d]) {
            const table<R> &t = s.t[d];
            t.count[i] = list_row<R>(s.r[d], i, t.cap, t.index + (int64_t)i * t.cap,
                                     t.weight + (int64_t)i * t.cap);
            return;
        }
        i -= s.rows[d];
    }
}

struct shape {
    int64_t n;                 /* items: pixels of the result times packs of channels */
    pl_divisor packs, w, h, d; /* of the result */
    int32_t in_h, in_w;
    int64_t plane; /* pixels of one input image */
};

struct place {
    int64_t image; /* first pixel of the image */
    int32_t d, h, w;
    uint32_t pack;
};

/* N: 32 bits, or 64 where an image has more items. */
template <class N> static __device__ __forceinline__ place place_of(const shape &s, N item)
{
    place p;
    N pack, w, h, d, at = pl_divmod(item, s.packs, &pack);
    p.pack = (uint32_t)pack;
    at = pl_divmod(at, s.w, &w);
    at = pl_divmod(at, s.h, &h);
    p.image = (int64_t)pl_divmod(at, s.d, &d) * s.plane;
    p.d = (int32_t)d;
    p.h = (int32_t)h;
    p.w = (int32_t)w;
    return p;
}

template <class T, int V>
static __device__ __forceinline__ void add_tap(typename pl_elem<T>::acc *sum, const T *x,
                                               typename pl_elem<T>::acc w)
{
    pl_pack<T, V> v = pl_read<T, V>(x);
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] += w * pl_get<T>(v.v[k]);
}

template <class T, int V, class R, class N>
static __global__ void __launch_bounds__(THREADS)
    sum_taps(const T *__restrict__ x, T *__restrict__ y, const tables<R> s, const shape g)
{
    int64_t c = (int64_t)g.packs.d * V;
    for (int64_t i = PL_ITEM; i < g.n; i += PL_ITEMS) {
        place p = place_of(g, (N)i);
        const table<R> &D = s.t[0], &H = s.t[1], &W = s.t[2];
        const T *from = x + p.pack * V;
        R sum[V] = {0};
        int32_t nd = D.count[p.d], nh = H.count[p.h], nw = W.count[p.w];
        for (int32_t a = 0; a < nd; a++)
            for (int32_t b = 0; b < nh; b++) {
                int64_t line = p.image + ((int64_t)D.index[(int64_t)p.d * D.cap + a] * g.in_h +
                                          H.index[(int64_t)p.h * H.cap + b]) *
                                             g.in_w;
                R f = D.weight[(int64_t)p.d * D.cap + a] * H.weight[(int64_t)p.h * H.cap + b];
                for (int32_t k = 0; k < nw; k++) {
                    int64_t at = (int64_t)p.w * W.cap + k;
                    add_tap<T, V>(sum, from + (line + W.index[at]) * c, f * W.weight[at]);
                }
            }
        pl_pack<T, V> out;
#pragma unroll
        for (int k = 0; k < V; k++) out.v[k] = pl_put<T>(sum[k]);
        pl_write(y + i * V, out);
    }
}

/* The same with PARTS threads per item: each takes every PARTS-th tap. */
template <class T, int V, class R, class N>
static __global__ void __launch_bounds__(THREADS)
    sum_many(const T *__restrict__ x, T *__restrict__ y, const tables<R> s, const shape g)
{
    __shared__ R part[PARTS][LANES][V];
    int64_t c = (int64_t)g.packs.d * V;
    for (int64_t i0 = blockIdx.x * (int64_t)LANES; i0 < g.n; i0 += gridDim.x * (int64_t)LANES) {
        int64_t i = i0 + threadIdx.x;
        R sum[V] = {0};
        if (i < g.n) {
            place p = place_of(g, (N)i);
            const table<R> &D = s.t[0], &H = s.t[1], &W = s.t[2];
            const T *from = x + p.pack * V;
            int32_t nh = H.count[p.h], nw = W.count[p.w], n = D.count[p.d] * nh * nw;
            for (int32_t t = (int32_t)threadIdx.y; t < n; t += PARTS) {
                int64_t k = (int64_t)p.w * W.cap + t % nw, b = (int64_t)p.h * H.cap + t / nw % nh,
                        a = (int64_t)p.d * D.cap + t / nw / nh;
                int64_t at = ((int64_t)D.index[a] * g.in_h + H.index[b]) * g.in_w + W.index[k];
                add_tap<T, V>(sum, from + (p.image + at) * c,
                              D.weight[a] * H.weight[b] * W.weight[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < V; k++) part[threadIdx.y][threadIdx.x][k] = sum[k];
        __syncthreads();
        if (threadIdx.y == 0 && i < g.n) {
            pl_pack<T, V> out;
            for (int k = 0; k < V; k++) {
                for (int q = 1; q < PARTS; q++) sum[k] += part[q][threadIdx.x][k];
                out.v[k] = pl_put<T>(sum[k]);
            }
            pl_write(y + i * V, out);
        }
        __syncthreads();
    }
}

/* ---- launching -------------------------------------------------------------------------- */
struct rules {
    rule r[3];
};

/* Places the lists in scratch one after the other, 8-byte aligned; returns the bytes of all. */
template <class R>
static size_t lay_out(const rules &all, const int32_t *cap, char *work, tables<R> *out)
{
    size_t at = 0;
    for (int d = 0; d < 3; d++) {
        size_t rows = (size_t)rows_of(all.r[d]), n = rows * (size_t)cap[d];
        size_t bytes[3] = {n * sizeof(R), rows * sizeof(int32_t), n * sizeof(int32_t)};
        if (out) {
            out->r[d] = all.r[d];
            out->rows[d] = (int32_t)rows;
            out->t[d].cap = cap[d];
            out->t[d].weight = reinterpret_cast<R *>(work + at);
            out->t[d].count = reinterpret_cast<int32_t *>(work + at + bytes[0]);
            out->t[d].index = reinterpret_cast<int32_t *>(work + at + bytes[0] + bytes[1]);
        }
        at += (bytes[0] + bytes[1] + bytes[2] + 7) & ~(size_t)7;
    }
    return at;
}

/* The lengths of the lists are computed once; the handle is the three lengths. */
static pl_status prepare_rules(const pl_call *c, const rules &all, void **prep, size_t *work_bytes)
{
    bool wide = c->in_type[0].dtype == PL_F64;
    int32_t cap[3];
    for (int d = 0; d < 3; d++) {
        cap[d] = wide ? longest<double>(all.r[d]) : longest<float>(all.r[d]);
        PL_FAIL_IF(cap[d] >= 1 << 20, PL_ERR_UNSUPPORTED, "%d positions are summed into one",
                   (int)cap[d]);
    }
    *prep = (void *)(uintptr_t)((uint64_t)cap[0] | (uint64_t)cap[1] << 20 | (uint64_t)cap[2] << 40);
    *work_bytes =
        wide ? lay_out<double>(all, cap, NULL, NULL) : lay_out<float>(all, cap, NULL, NULL);
    return PL_OK;
}

template <class T, int V, class N> static void launch_sums(const pl_call *c, const rules &all)
{
    typedef typename pl_elem<T>::acc R;
    uint64_t packed = (uint64_t)(uintptr_t)c->prep;
    int32_t cap[3] = {(int32_t)(packed & 0xfffff), (int32_t)(packed >> 20 & 0xfffff),
                      (int32_t)(packed >> 40 & 0xfffff)};
    tables<R> s;
    lay_out<R>(all, cap, static_cast<char *>(c->work), &s);
    int64_t rows = (int64_t)s.rows[0] + s.rows[1] + s.rows[2];
    PL_LAUNCH((make_lists<R>), dim3((unsigned)pl_ceil_div(rows, 64)), dim3(64), 0, s);

    const pl_type *x = &c->in_type[0], *y = &c->out_type[0];
    int64_t channels = y->dim[y->rank - 1], images = y->dim[0];
    int64_t pixels = (int64_t)s.rows[0] * s.rows[1] * s.rows[2];
    shape g;
    g.packs = pl_div_by(channels / V);
    g.w = pl_div_by(s.rows[2]);
    g.h = pl_div_by(s.rows[1]);
    g.d = pl_div_by(s.rows[0]);
    g.in_h = all.r[1].adjoint ? all.r[1].out : all.r[1].in;
    g.in_w = all.r[2].adjoint ? all.r[2].out : all.r[2].in;
    g.plane = pl_type_elems(x) / (x->dim[0] * channels);
    bool many = (int64_t)cap[0] * cap[1] * cap[2] >= MANY;
    /* As many images at a time as a launch can count. */
    int64_t per = pl_most_items() / (pixels * (channels / V));
    if (per < 1) per = 1;
    for (int64_t n = 0; n < images; n += per) {
        int64_t now = images - n < per ? images - n : per;
        const T *from = static_cast<const T *>(c->in[0]) + n * g.plane * channels;
        T *to = static_cast<T *>(c->out[0]) + n * pixels * channels;
        g.n = now * pixels * (channels / V);
        pl_counts(g.n, sizeof(N));
        if (many)
            PL_LAUNCH((sum_many<T, V, R, N>), dim3(pl_blocks(g.n, LANES)), dim3(LANES, PARTS), 0,
                      from, to, s, g);
        else
            PL_LAUNCH((sum_taps<T, V, R, N>), dim3(pl_blocks(g.n, THREADS)), dim3(THREADS), 0, from,
                      to, s, g);
    }
}

template <class T> static bool is_wide(const pl_call *c, int64_t channels)
{
    int64_t w = pl_widest(16, channels * (int64_t)sizeof(T));
    return pl_widest_at(pl_widest_at(w, c->in[0]), c->out[0]) == 16;
}

static pl_status run_rules(const pl_call *c, const rules &all)
{
    const pl_type *y = &c->out_type[0];
    if (pl_type_elems(y) == 0) return PL_OK;
    int64_t channels = y->dim[y->rank - 1], each = pl_type_elems(y) / y->dim[0];
    PL_FLOAT_TYPES(y->dtype, const int V = 16 / sizeof(T); bool wide = is_wide<T>(c, channels);
                   if (each / (wide ? V : 1) > pl_most_items()) launch_sums<T, 1, uint64_t>(c, all);
                   else if (wide) launch_sums<T, V, uint32_t>(c, all);
                   else launch_sums<T, 1, uint32_t>(c, all));
    PL_CUDA_LAUNCHED("sum of taps");
    return PL_OK;
}

/* ---- the ops ---------------------------------------------------------------------------- */
/* Returns rules of the spatial dims; missing leading dims are the identity. x: the side that the
 * forward map reads, y: the side that it writes. */
static rules bare_rules(const pl_type *x, const pl_type *y, int kind, bool adjoint)
{
    rules all;
    int n = x->rank - 2;
    for (int d = 0; d < 3; d++) {
        rule r = {};
        r.kind = ONE;
        r.in = r.out = r.kernel = r.stride = 1;
        r.adjoint = adjoint;
        int i = d - (3 - n);
        if (i >= 0) {
            r.kind = kind;
            r.in = (int32_t)x->dim[1 + i];
            r.out = (int32_t)y->dim[1 + i];
        }
        all.r[d] = r;
    }
    return all;
}

static rules resize_rules(const pl_call *c, const pl_type *x, const pl_type *y, bool adjoint)
{
    const pl_resize_attr *a = static_cast<const pl_resize_attr *>(c->attr);
    rules all = bare_rules(x, y, a->mode, adjoint);
    for (int d = 0; d < 3; d++) all.r[d].align = a->align_corners;
    return all;
}

static rules window_rules(const pl_call *c, const pl_type *x, const pl_type *y, bool adjoint)
{
    const pl_window_attr *a = static_cast<const pl_window_attr *>(c->attr);
    rules all = bare_rules(x, y, WINDOW, adjoint);
    for (int d = 0; d < 3; d++) {
        int i = d - (3 - (x->rank - 2));
        if (i < 0) continue;
        all.r[d].kernel = (int32_t)a->kernel.v[i];
        all.r[d].stride = (int32_t)a->stride.v[i];
        all.r[d].pad = (int32_t)a->pad_lo.v[i];
        all.r[d].count_pad = a->count_pad;
    }
    return all;
}

static rules adaptive_rules(const pl_call *c, const pl_type *x, const pl_type *y, bool adjoint)
{
    (void)c;
    return bare_rules(x, y, ADAPTIVE, adjoint);
}

static_assert(NEAREST == (int)PL_RESIZE_NEAREST && LINEAR == (int)PL_RESIZE_LINEAR &&
                  CUBIC == (int)PL_RESIZE_CUBIC,
              "a mode of resizing is a kind of rule");

#define OP(op, make, x, y, adjoint)                                                                \
 static pl_status op##_prepare(const pl_call *c, void **prep, size_t *work_bytes)                  \
 {                                                                                                 \
  return prepare_rules(c, make(c, &c->x[0], &c->y[0], adjoint), prep, work_bytes);                 \
 }                                                                                                 \
 static pl_status op(const pl_call *c)                                                             \
 {                                                                                                 \
  return run_rules(c, make(c, &c->x[0], &c->y[0], adjoint));                                       \
 }                                                                                                 \
 PL_CUDA_KERNEL(op##_kernels, op##_prepare, op);
OP(resize, resize_rules, in_type, out_type, false)
OP(resize_bwd, resize_rules, out_type, in_type, true)
OP(avg_pool, window_rules, in_type, out_type, false)
OP(avg_pool_bwd, window_rules, out_type, in_type, true)
OP(adaptive_avg_pool, adaptive_rules, in_type, out_type, false)
OP(adaptive_avg_pool_bwd, adaptive_rules, out_type, in_type, true)

PL_CUDA_ENTRIES(pl_cuda_taps) = {{"resize", resize_kernels},
                                 {"resize_bwd", resize_bwd_kernels},
                                 {"avg_pool", avg_pool_kernels},
                                 {"avg_pool_bwd", avg_pool_bwd_kernels},
                                 {"adaptive_avg_pool", adaptive_avg_pool_kernels},
                                 {"adaptive_avg_pool_bwd", adaptive_avg_pool_bwd_kernels},
                                 {NULL, NULL}};
