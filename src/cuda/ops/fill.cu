/* fill.cu - values without inputs: constants, coordinates, random draws, random order.
 *
 * Draws equal those of base/rng.h, word for word and operation by operation in double for normals,
 * so a device gives the CPU's numbers: element i is word i%4 of block i/4. Key and step are read on
 * the device, so a captured step draws new numbers in each run.
 */
#include "cuda/device/launch.h"
#include "cuda/ops/philox.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "ops/core/attr.h"

#include <math.h>

enum { THREADS = 256 };

/* ---- fill, iota ------------------------------------------------------------------------- */
template <class U> static __global__ void fill_units(U *y, U value, int64_t n)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) y[i] = value;
}

static pl_status fill(const pl_call *c)
{
    pl_dtype d = c->out_type[0].dtype;
    int64_t elem = (int64_t)pl_dtype_bytes(d), bytes = (int64_t)pl_type_bytes(&c->out_type[0]);
    int64_t unit = pl_widest_at(pl_widest(16, bytes), c->out[0]);
    if (bytes == 0) return PL_OK;
    unsigned char v[16];
    for (int64_t i = 0; i < 16 / elem; i++)
        pl_elem_set(d, v, i, static_cast<const pl_fill_attr *>(c->attr)->value);
    PL_UNIT_TYPES(unit, U value; memcpy(&value, v, sizeof value);
                  PL_LAUNCH((fill_units<U>), dim3(pl_blocks(bytes / unit, THREADS)), dim3(THREADS),
                            0, static_cast<U *>(c->out[0]), value, bytes / unit));
    PL_CUDA_LAUNCHED("fill");
    return PL_OK;
}

/* The sum of coordinates times steps; u8 and bool are clamped to [0, `most`]. */
struct ramp {
    int rank;
    int64_t n, most, dim[PL_MAX_RANK], step[PL_MAX_RANK];
};

template <class T> static __global__ void iota_elems(T *y, const ramp r)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < r.n; i += PL_ITEMS) {
        int64_t rest = i, v = 0;
        for (int k = r.rank - 1; k >= 0; k--) {
            v += rest % r.dim[k] * r.step[k];
            rest /= r.dim[k];
        }
        if (sizeof(T) == 1) v = v < 0 ? 0 : v > r.most ? r.most : v;
        y[i] = pl_put<T>((A)v);
    }
}

static pl_status iota(const pl_call *c)
{
    const pl_fill_attr *a = static_cast<const pl_fill_attr *>(c->attr);
    const pl_type *t = &c->out_type[0];
    ramp r;
    r.rank = t->rank;
    r.n = pl_type_elems(t);
    r.most = t->dtype == PL_BOOL ? 1 : 255;
    if (r.n == 0) return PL_OK;
    for (int i = 0; i < t->rank; i++) {
        r.dim[i] = t->dim[i];
        r.step[i] = a->steps.n ? a->steps.v[i] : i == a->axis;
    }
    PL_ALL_TYPES(t->dtype, PL_LAUNCH((iota_elems<T>), dim3(pl_blocks(r.n, THREADS)), dim3(THREADS),
                                     0, static_cast<T *>(c->out[0]), r));
    PL_CUDA_LAUNCHED("iota");
    return PL_OK;
}

/* ---- draws ------------------------------------------------------------------------------ */
static __device__ uint4 philox(const int64_t *key, uint32_t stream, uint64_t block)
{
    return philox_at((uint64_t)key[0], (uint32_t)key[1], stream, block);
}

/* One block of four elements per thread. kept: bits of a word that a uniform number holds. */
template <class T, bool NORMAL>
static __global__ void draw(T *y, const int64_t *key, uint32_t stream, uint32_t kept, int64_t n)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t b = PL_ITEM; b * 4 < n; b += PL_ITEMS) {
        uint4 w = philox(key, stream, (uint64_t)b);
        float v[4];
        if (NORMAL) {
            pl_rng_normal2(w.x, w.y, v);
            pl_rng_normal2(w.z, w.w, v + 2);
        } else {
            uint32_t u[4] = {w.x, w.y, w.z, w.w};
            for (int k = 0; k < 4; k++) v[k] = pl_rng_uniform(u[k] & kept);
        }
        if (b * 4 + 4 <= n && ((uintptr_t)y & (4 * sizeof(T) - 1)) == 0 && sizeof(T) <= 4) {
            pl_pack<T, sizeof(T) <= 4 ? 4 : 2> p;
            for (int k = 0; k < (sizeof(T) <= 4 ? 4 : 2); k++) p.v[k] = pl_put<T>((A)v[k]);
            pl_write(y + b * 4, p);
        } else {
            for (int k = 0; k < 4 && b * 4 + k < n; k++) y[b * 4 + k] = pl_put<T>((A)v[k]);
        }
    }
}

template <bool NORMAL> static pl_status draws(const pl_call *c)
{
    const pl_random_attr *a = static_cast<const pl_random_attr *>(c->attr);
    int64_t n = pl_type_elems(&c->out_type[0]);
    uint32_t kept = a->dtype == PL_BF16 ? ~0x00ffffffu : a->dtype == PL_F16 ? ~0x001fffffu : ~0u;
    if (n == 0) return PL_OK;
    PL_FLOAT_TYPES(a->dtype,
                   PL_LAUNCH((draw<T, NORMAL>), dim3(pl_blocks(pl_ceil_div(n, 4), THREADS)),
                             dim3(THREADS), 0, static_cast<T *>(c->out[0]),
                             static_cast<const int64_t *>(c->in[0]), (uint32_t)a->stream, kept, n));
    PL_CUDA_LAUNCHED("draw");
    return PL_OK;
}

static pl_status random_uniform(const pl_call *c)
{
    return draws<false>(c);
}

static pl_status random_normal(const pl_call *c)
{
    return draws<true>(c);
}

/* ---- initial values --------------------------------------------------------------------- */
/* Converts a word or a pair to an element: rt/init.c, with the same operations. Uniform draws stay
 * below `below`; lo replaces a draw that rounds to `below`. */
struct start {
    int kind;
    double lo, scale, below;
};

template <class T> static __device__ void start_values(const start &s, uint4 w, T *out)
{
    typedef typename pl_elem<T>::acc A;
    uint32_t u[4] = {w.x, w.y, w.z, w.w};
    float v[4] = {0, 0, 0, 0};
    if (s.kind == PL_INIT_NORMAL) {
        pl_rng_normal2(w.x, w.y, v);
        pl_rng_normal2(w.z, w.w, v + 2);
    } else if (s.kind == PL_INIT_UNIFORM) {
        for (int k = 0; k < 4; k++) v[k] = pl_rng_uniform(u[k]);
    }
    for (int k = 0; k < 4; k++) {
        double x = s.kind == PL_INIT_CONST ? s.lo : s.lo + s.scale * (double)v[k];
        out[k] = pl_put<T>((A)x);
        if (s.kind == PL_INIT_UNIFORM && (double)pl_get(out[k]) >= s.below)
            out[k] = pl_put<T>((A)s.lo);
    }
}

/* Block b of the slot's numbers is elements 4b to 4b + 3, limited to [first, end). */
template <class T>
static __global__ void start_blocks(T *y, uint64_t seed, uint32_t stream, const start s,
                                    int64_t first, int64_t end)
{
    for (int64_t b = first / 4 + PL_ITEM; b * 4 < end; b += PL_ITEMS) {
        enum { WIDE = sizeof(T) <= 4 ? 4 : 2 };
        T v[4], *to = y + (b * 4 - first);
        start_values(s, philox_at(seed, 0, stream, (uint64_t)b), v);
        bool whole =
            b * 4 >= first && b * 4 + 4 <= end && ((uintptr_t)to & (WIDE * sizeof(T) - 1)) == 0;
        for (int k = 0; whole && k < 4; k += WIDE) {
            pl_pack<T, WIDE> p;
            for (int i = 0; i < WIDE; i++) p.v[i] = v[k + i];
            pl_write(to + k, p);
        }
        for (int k = 0; !whole && k < 4; k++)
            if (b * 4 + k >= first && b * 4 + k < end) to[k] = v[k];
    }
}

pl_status pl_cuda_start_values(void *to, pl_dtype dtype, uint64_t seed, uint32_t stream,
                               const pl_init *init, int64_t first, int64_t n)
{
    bool normal = init->kind == PL_INIT_NORMAL, uniform = init->kind == PL_INIT_UNIFORM;
    start s = {init->kind, init->a,
               normal    ? init->b
               : uniform ? init->b - init->a
                         : 0,
               init->a < init->b ? init->b : (double)INFINITY};
    if (n == 0) return PL_OK;
    PL_FLOAT_TYPES(dtype, PL_LAUNCH((start_blocks<T>),
                                    dim3(pl_blocks(pl_ceil_div(n, 4) + 1, THREADS)), dim3(THREADS),
                                    0, static_cast<T *>(to), seed, stream, s, first, first + n));
    PL_CUDA_LAUNCHED("initial values");
    return PL_OK;
}

/* ---- random order ----------------------------------------------------------------------- */
/* Fisher-Yates shuffle from the end, as on the CPU: exchange i swaps places i and with[i] <= i, and
 * larger i come first. Exchanges that share no place commute, so all of those run at once whose two
 * places no earlier exchange still needs: every open exchange claims its places, the largest claim
 * stays, and exchanges that hold both run and give them up. The number of rounds grows with log n
 * (Shun, Gu, Blelloch, Fineman, Gibbons, "Sequential random permutation, list contraction and tree
 * contraction are highly parallel", SODA 2015). One block: a round needs two barriers. */
enum { SHUFFLE_THREADS = 1024, DONE = -1 };

static __global__ void __launch_bounds__(SHUFFLE_THREADS)
    shuffle(int32_t *y, int32_t *with, int32_t *claims, const int64_t *key, uint32_t stream,
            int32_t n)
{
    volatile int32_t *claim = claims; /* atomics do not change what the block's cache holds */
    const int32_t t = (int32_t)threadIdx.x;
    for (int64_t four = t; 4 * four < n; four += SHUFFLE_THREADS) {
        uint4 w = philox(key, stream, (uint64_t)four);
        uint32_t u[4] = {w.x, w.y, w.z, w.w};
        for (int k = 0; k < 4 && 4 * four + k < n; k++) {
            int64_t i = 4 * four + k;
            y[i] = (int32_t)i;
            with[i] = i ? (int32_t)((u[k] * (uint64_t)(i + 1)) >> 32) : DONE;
            claims[i] = DONE;
        }
    }
    for (;;) {
        int open = 0;
        __syncthreads();
        for (int64_t i = t; i < n; i += SHUFFLE_THREADS) {
            if (with[i] == DONE) continue;
            atomicMax(&claims[i], (int32_t)i);
            atomicMax(&claims[with[i]], (int32_t)i);
            open = 1;
        }
        if (!__syncthreads_or(open)) return;
        for (int64_t i = t; i < n; i += SHUFFLE_THREADS) {
            int32_t j = with[i];
            if (j == DONE || claim[i] != i || claim[j] != i) continue;
            int32_t a = y[i];
            y[i] = y[j];
            y[j] = a;
            claim[i] = claim[j] = with[i] = DONE;
        }
    }
}

static pl_status order_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes = 2 * pl_type_bytes(&c->out_type[0]);
    return PL_OK;
}

static pl_status random_permutation(const pl_call *c)
{
    const pl_order_attr *a = static_cast<const pl_order_attr *>(c->attr);
    int32_t *work = static_cast<int32_t *>(c->work);
    if (a->n == 0) return PL_OK;
    PL_LAUNCH(shuffle, dim3(1), dim3(SHUFFLE_THREADS), 0, static_cast<int32_t *>(c->out[0]), work,
              work + a->n, static_cast<const int64_t *>(c->in[0]), (uint32_t)a->stream,
              (int32_t)a->n);
    PL_CUDA_LAUNCHED("random_permutation");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(fill_kernels, NULL, fill);
PL_CUDA_KERNEL(iota_kernels, NULL, iota);
PL_CUDA_KERNEL(uniform_kernels, NULL, random_uniform);
PL_CUDA_KERNEL(normal_kernels, NULL, random_normal);
PL_CUDA_KERNEL(order_kernels, order_prepare, random_permutation);

PL_CUDA_ENTRIES(pl_cuda_fills) = {{"fill", fill_kernels},
                                  {"iota", iota_kernels},
                                  {"random_uniform", uniform_kernels},
                                  {"random_normal", normal_kernels},
                                  {"random_permutation", order_kernels},
                                  {NULL, NULL}};
