/* squares.cu - sums of squares of chunks (ops/math/sum_squares.c): a block for each chunk; one
 * launch takes the chunks of many tensors.
 *
 * A thread adds every 256th packet of 16 bytes of its chunk, then a tree adds the threads: the
 * order depends on nothing but the chunk's length. Tensors that are not at multiples of 16 bytes
 * are read element by element, in the order of packets.
 */
#include "cuda/device/launch.h"
#include "cuda/ops/many.h"

#include "ops/core/attr.h"

/* FEW, MOST: tensors that fit 4 KB and 16 KB of a launch's parameters. */
enum { THREADS = 256, WARPS = THREADS / 32, FEW = 120, MOST = PL_CUDA_MANY };

struct squares_of {
    const void *x;
    void *y;
    int64_t n;
    int end; /* chunks of this tensor and those before it */
    bool wide;
};
template <int N> struct squares_batch {
    int n;
    squares_of at[N];
};

template <class T, class A>
static __device__ __forceinline__ A chunk_sum(const T *x, int64_t n, bool wide)
{
    const int PACK = 16 / sizeof(T);
    A sum = 0;
    for (int64_t i = (int64_t)threadIdx.x * PACK; i < n; i += THREADS * PACK) {
        if (wide && i + PACK <= n) {
            pl_pack<T, PACK> p = pl_read<T, PACK>(x + i);
#pragma unroll
            for (int e = 0; e < PACK; e++) {
                A v = (A)pl_get(p.v[e]);
                sum += v * v;
            }
        } else {
            for (int e = 0; e < PACK && i + e < n; e++) {
                A v = (A)pl_get(x[i + e]);
                sum += v * v;
            }
        }
    }
    return sum;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    sum_chunks(const __grid_constant__ squares_batch<N> b)
{
    typedef typename pl_elem<T>::acc A;
    __shared__ A part[WARPS];
    int lo = 0, hi = b.n - 1, chunk = (int)blockIdx.x;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if (chunk < b.at[middle].end)
            hi = middle;
        else
            lo = middle + 1;
    }
    const squares_of &t = b.at[lo];
    if (lo > 0) chunk -= b.at[lo - 1].end;
    const int64_t at = (int64_t)chunk * PL_SQUARES_CHUNK;
    const int64_t n = t.n - at < PL_SQUARES_CHUNK ? t.n - at : (int64_t)PL_SQUARES_CHUNK;
    A sum = chunk_sum<T, A>(static_cast<const T *>(t.x) + at, n, t.wide);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < WARPS; w++) sum += part[w];
    static_cast<A *>(t.y)[chunk] = sum;
}

template <int N> static pl_status launch(const squares_batch<N> &b, pl_dtype d)
{
    dim3 grid((unsigned)b.at[b.n - 1].end), block(THREADS);
    PL_FLOAT_TYPES(d, PL_LAUNCH((sum_chunks<T, N>), grid, block, 0, b));
    PL_CUDA_LAUNCHED("sums of squares");
    return PL_OK;
}

static pl_status launch_all(const squares_batch<MOST> &b, pl_dtype d)
{
    static thread_local squares_batch<FEW> few;
    if (b.n > FEW) return launch(b, d);
    few.n = b.n;
    for (int i = 0; i < b.n; i++) few.at[i] = b.at[i];
    return launch(few, d);
}

/* Adds a tensor; false: the launch has as many blocks as it can count. */
static bool add(squares_batch<MOST> *b, const pl_call *c)
{
    int64_t chunks = c->out_type[0].dim[0] + (b->n ? b->at[b->n - 1].end : 0);
    if (chunks > INT32_MAX) return false;
    b->at[b->n++] = squares_of{c->in[0], c->out[0], pl_type_elems(&c->in_type[0]), (int)chunks,
                               pl_widest_at(16, c->in[0]) == 16};
    return true;
}

/* A launch's parameters are too large for the stack. */
static pl_status run_many(const pl_call *const *c, int n)
{
    static thread_local squares_batch<MOST> b;
    bool gone[PL_CUDA_MANY] = {false};
    for (int i = 0; i < n; i++) {
        pl_dtype d = c[i]->in_type[0].dtype;
        if (gone[i]) continue;
        b.n = 0;
        for (int j = i; j < n; j++)
            if (!gone[j] && c[j]->in_type[0].dtype == d) gone[j] = add(&b, c[j]);
        PL_FAIL_IF(!gone[i], PL_ERR_UNSUPPORTED, "sums of squares of %lld elements",
                   (long long)pl_type_elems(&c[i]->in_type[0]));
        PL_TRY(launch_all(b, d));
    }
    return PL_OK;
}

static pl_status run(const pl_call *c)
{
    return run_many(&c, 1);
}
PL_CUDA_KERNEL(kernels, NULL, run);

extern "C" pl_cuda_many_fn pl_cuda_squares_many_of(const pl_kernel *k)
{
    return k == kernels ? run_many : NULL;
}

PL_CUDA_ENTRIES(pl_cuda_squares) = {{"sum_squares", kernels}, {NULL, NULL}};
