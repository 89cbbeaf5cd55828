/* vector.cu - see vector.h.
 *
 * A block of the row kernel has `block / across` rows: threads of a warp add their sums by
 * shuffles, warps add theirs in shared memory. A block of the column kernel has `across` packs of
 * columns, a strip, and `block / across` groups of threads that take terms in turn and add their
 * sums in shared memory. Blocks add theirs in scratch (`add_parts`).
 *
 * Both kernels load several packs before they use the first, which hides the latency of memory.
 */
#include "cuda/matmul/vector.h"

#include "cuda/device/launch.h"
#include "cuda/device/work.h"
#include "plan/cost/kernel_sizes.h"

static constexpr int WARP = 32, BLOCK = 256, MOST_BLOCK = 1024, MOST_GRID = 65535;
/* Packs that are loaded together: of a row and of its vector; of columns. More where a pack is a
 * single element. */
template <int V> static constexpr int ROWS_AHEAD = V > 1 ? 4 : 8;
template <int V> static constexpr int COLUMNS_AHEAD = V > 1 ? 8 : 16;

/* ---- plans ---------------------------------------------------------------------------------- */
static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Threads that keep a large GPU busy; with more threads each has less work. */
static constexpr int64_t ENOUGH = 1 << 17;
/* Multiprocessors of such a GPU. The order of sums is the same on other GPUs. */
static constexpr int64_t PROCESSORS = 132;
/* Threads have FEW packs or terms each: fewer would not be faster, as that many are loaded
 * together. */
static void plan_rows(pl_vector_product *v)
{
    constexpr int64_t FEW = 4, NARROW = 128;
    int64_t packs = pl_ceil_div(least(v->each, v->k), v->pack), rows = v->batch * v->n * v->parts,
            across = 1;
    while (packs > FEW * across && across < (2 * rows * across <= ENOUGH ? MOST_BLOCK : WARP))
        across *= 2;
    v->across = (int32_t)across;
    v->block = (int32_t)(across > NARROW ? across : NARROW);
}

/* A multiprocessor reads at its own rate, so the multiprocessor with most to read decides. Strips
 * are whole sectors of the cache, and as wide as minimises that time; narrow strips cost more per
 * cache line. */
static int64_t sectors_of(int64_t sectors, int64_t copies)
{
    static constexpr int64_t COST[] = {0, 38, 34, 33, 32, 32, 32, 32, 32};
    int64_t best = 1, lowest = INT64_MAX;
    for (int64_t s = 1; s <= 8; s++) {
        int64_t cost = pl_ceil_div(pl_ceil_div(sectors, s) * copies, PROCESSORS) * s * COST[s];
        if (cost <= lowest) lowest = cost, best = s;
    }
    return best;
}

static void plan_columns(pl_vector_product *v, int64_t bytes)
{
    constexpr int64_t SECTOR = 32, FEW = 4, NARROW = 128;
    int64_t packs = pl_ceil_div(v->n, v->pack), copies = v->batch * v->parts,
            most = pl_ceil_div(least(v->each, v->k), FEW);
    int64_t across =
        sectors_of(pl_ceil_div(v->n * bytes, SECTOR), copies) * SECTOR / (v->pack * bytes);
    if (across * most < BLOCK) across = pl_ceil_div(BLOCK, most); /* few terms: a wide strip */
    across = least(across, packs);
    int64_t beside = pl_ceil_div(pl_ceil_div(packs, across) * copies, PROCESSORS);
    int64_t threads = beside < MOST_BLOCK / NARROW ? MOST_BLOCK / beside : NARROW;
    int64_t groups = least(threads / across > 0 ? threads / across : 1, most);
    v->across = (int32_t)across;
    v->block = (int32_t)(pl_ceil_div(across * groups, WARP) * WARP);
}

bool pl_vector_plan(pl_vector_product *v)
{
    constexpr int64_t MOST = 1 << 30;
    if (v->dtype != PL_F32 && v->dtype != PL_F16 && v->dtype != PL_BF16) return false;
    if (v->batch < 1 || v->n < 1 || v->k < 1) return false;
    int64_t bytes = (int64_t)pl_dtype_bytes(v->dtype);
    if (v->n == 1) v->columns = false; /* a matrix with one column is a row */
    v->parts = pl_vector_parts(v->batch, v->n, v->k, bytes, v->columns, &v->each);
    v->pack = (v->columns ? v->n : v->k) * bytes % 16 == 0 ? (int32_t)(16 / bytes) : 1;
    if (v->columns)
        plan_columns(v, bytes);
    else
        plan_rows(v);
    return v->batch * v->n <= MOST && v->k <= MOST && (!v->columns || v->batch <= MOST_GRID);
}

size_t pl_vector_work(const pl_vector_product *v)
{
    return pl_vector_bytes(v->batch, v->n, v->parts);
}

/* ---- kernels -------------------------------------------------------------------------------- */
struct shape {
    int64_t n, k, each, step, outputs; /* outputs: of all batches */
    int32_t across;
    bool bias_each;
};

/* Loads V elements, by one access where their address allows it; zeros outside. */
template <class T, int V, bool WIDE>
static __device__ __forceinline__ pl_pack<T, V> load(const T *p, bool there)
{
    pl_pack<T, V> r;
    if constexpr (WIDE && V > 1) {
        uint4 bits = {0, 0, 0, 0};
        if (there) bits = *reinterpret_cast<const uint4 *>(p);
        memcpy(&r, &bits, sizeof r);
    } else {
        for (int i = 0; i < V; i++) r.v[i] = there ? p[i] : pl_put<T>(0);
    }
    return r;
}

template <class T>
static __device__ __forceinline__ void put(const shape &s, float sum, int64_t at, const T *bias,
                                           T *y, float *parts)
{
    if (parts) {
        parts[blockIdx.y * s.outputs + at] = sum;
    } else {
        if (bias) sum += pl_get<T>(bias[s.bias_each ? at % s.n : 0]);
        y[at] = pl_put<T>(sum);
    }
}

/* Multiplies packs c, c + across, ... of a row by those of the vector. ALL: all packs exist;
 * otherwise only those before `packs`, and loads beyond them repeat the last one. */
template <class T, int V, bool WIDE, bool ALL>
static __device__ __forceinline__ void add_packs(const T *a, const T *x, int c, int across,
                                                 int packs, float *sum)
{
    constexpr int AHEAD = ROWS_AHEAD<V>;
    pl_pack<T, V> p[AHEAD], q[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        int64_t at = (int64_t)(ALL ? c + u * across : min(c + u * across, packs - 1)) * V;
        p[u] = load<T, V, WIDE>(a + at, true);
        q[u] = load<T, V, WIDE>(x + at, true);
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        bool there = ALL || c + u * across < packs;
        for (int i = 0; i < V; i++)
            sum[i] = fmaf(there ? pl_get<T>(p[u].v[i]) : 0.0f, there ? pl_get<T>(q[u].v[i]) : 0.0f,
                          sum[i]);
    }
}

/* Computes a thread's share of a row's terms: packs `lane`, lane + across, ... */
template <class T, int V, bool WIDE>
static __device__ __forceinline__ float dot(const T *a, const T *x, int packs, int lane, int across)
{
    constexpr int AHEAD = ROWS_AHEAD<V>;
    float sum[V] = {};
    int c = lane;
    for (; c + (AHEAD - 1) * across < packs; c += AHEAD * across)
        add_packs<T, V, WIDE, true>(a, x, c, across, packs, sum);
    if (c < packs) add_packs<T, V, WIDE, false>(a, x, c, across, packs, sum);
    for (int w = V / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++) sum[i] += sum[i + w];
    return sum[0];
}

template <class T, int V, bool WIDE>
static __global__ void __launch_bounds__(MOST_BLOCK)
    rows(shape s, const T *a, const T *x, const T *bias, T *y, float *parts)
{
    __shared__ float of_warp[MOST_BLOCK / WARP];
    int across = s.across, lane = (int)threadIdx.x & (across - 1), warp = (int)threadIdx.x / WARP;
    int64_t row = (int64_t)blockIdx.x * ((int)blockDim.x / across) + (int)threadIdx.x / across;
    float sum = 0;
    if (row < s.outputs) {
        int64_t first = blockIdx.y * s.each, n = s.k - first < s.each ? s.k - first : s.each;
        const T *with = x + (s.step ? row / s.n * s.step : 0) + first;
        sum = dot<T, V, WIDE>(a + row * s.k + first, with, (int)(n / V), lane, across);
    }
    for (int d = (across < WARP ? across : WARP) / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (across > WARP) {
        if (lane % WARP == 0) of_warp[warp] = sum;
        __syncthreads();
        sum = 0;
        for (int i = 0; lane == 0 && i < across / WARP; i++) sum += of_warp[warp + i];
    }
    if (lane == 0 && row < s.outputs) put(s, sum, row, bias, y, parts);
}

/* Sums terms q, q + groups, ... of V columns; ALL as above, but nothing is read beyond the last. */
template <class T, int V, bool WIDE, bool ALL>
static __device__ __forceinline__ void add_terms(const T *a, const T *x, int64_t n, int q,
                                                 int groups, int terms, float *sum)
{
    constexpr int AHEAD = COLUMNS_AHEAD<V>;
    pl_pack<T, V> p[AHEAD];
    T w[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        int at = q + u * groups;
        p[u] = load<T, V, WIDE>(a + at * n, ALL || at < terms);
        w[u] = ALL || at < terms ? x[at] : pl_put<T>(0);
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        for (int i = 0; i < V; i++) sum[i] = fmaf(pl_get<T>(p[u].v[i]), pl_get<T>(w[u]), sum[i]);
}

/* Computes a thread's share of the terms of V columns: `group`, group + groups, ... */
template <class T, int V, bool WIDE>
static __device__ __forceinline__ void gather(const T *a, const T *x, int64_t n, int terms,
                                              int group, int groups, float *sum)
{
    constexpr int AHEAD = COLUMNS_AHEAD<V>;
    int q = group;
    for (; q + (AHEAD - 1) * groups < terms; q += AHEAD * groups)
        add_terms<T, V, WIDE, true>(a, x, n, q, groups, terms, sum);
    if (q < terms) add_terms<T, V, WIDE, false>(a, x, n, q, groups, terms, sum);
}

/* Returns how many threads share a column's sums over groups before one adds them up. */
static __host__ __device__ __forceinline__ int sharers(int groups, int block, int width)
{
    constexpr int MOST = 16;
    int n = block / width;
    n = n < groups / 2 ? n : groups / 2;
    return n < MOST ? n : MOST;
}

/* Adds `width` columns over rows [0, groups) of shared memory, in two steps; the rows after them
 * hold the first step's sums. */
static __device__ __forceinline__ const float *add_groups(float *sums, int groups, int width,
                                                          int *left)
{
    int n = sharers(groups, (int)blockDim.x, width), share = (int)threadIdx.x / width,
        j = (int)threadIdx.x - share * width;
    __syncthreads();
    *left = groups;
    if (n < 2) return sums;
    if (share < n) {
        float sum = 0;
#pragma unroll 8
        for (int g = share; g < groups; g += n) sum += sums[g * width + j];
        sums[(groups + share) * width + j] = sum;
    }
    __syncthreads();
    *left = n;
    return sums + groups * width;
}

template <class T, int V, bool WIDE>
static __global__ void __launch_bounds__(MOST_BLOCK)
    columns(shape s, const T *a, const T *x, const T *bias, T *y, float *parts)
{
    PL_SHARED(float, sums);
    int across = s.across, groups = (int)blockDim.x / across, width = across * V, left;
    int group = (int)threadIdx.x / across, at = (int)threadIdx.x - group * across;
    int64_t begin = (int64_t)blockIdx.x * width, column = begin + at * V,
            first = blockIdx.y * s.each;
    int64_t terms = s.k - first < s.each ? s.k - first : s.each, batch = blockIdx.z;
    pl_pack<float, V> sum = {};
    if (group < groups) {
        if (column < s.n)
            gather<T, V, WIDE>(a + (batch * s.k + first) * s.n + column, x + batch * s.step + first,
                               s.n, (int)terms, group, groups, sum.v);
        for (int i = 0; i < V; i++) sums[group * width + at * V + i] = sum.v[i];
    }
    const float *from = add_groups(sums, groups, width, &left);
    for (int j = (int)threadIdx.x; j < width && begin + j < s.n; j += (int)blockDim.x) {
        float all = 0;
#pragma unroll 8
        for (int i = 0; i < left; i++) all += from[i * width + j];
        put(s, all, batch * s.n + begin + j, bias, y, parts);
    }
}

/* Lanes are outputs; warps take alternate parts. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    add_parts(shape s, int64_t n_parts, const float *parts, const T *bias, T *y)
{
    constexpr int WARPS = BLOCK / WARP;
    __shared__ float of_warp[WARPS][WARP];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t at = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;
    if (at < s.outputs) {
#pragma unroll 8
        for (int64_t p = warp; p < n_parts; p += WARPS) sum += parts[p * s.outputs + at];
    }
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || at >= s.outputs) return;
    sum = 0;
    for (int i = 0; i < WARPS; i++) sum += of_warp[i][lane];
    put<T>(s, sum, at, bias, y, nullptr);
}

/* ---- launches ------------------------------------------------------------------------------- */
template <class T, int V, bool WIDE>
static void launch(const pl_vector_product *v, const shape &s, const T *a, const T *x,
                   const T *bias, T *y, float *parts)
{
    if (v->columns) {
        int groups = v->block / v->across, width = v->across * V;
        size_t shared =
            (size_t)((groups + sharers(groups, v->block, width)) * width) * sizeof(float);
        dim3 grid((unsigned)pl_ceil_div(v->n, v->across * V), (unsigned)v->parts,
                  (unsigned)v->batch);
        PL_LAUNCH((columns<T, V, WIDE>), grid, (unsigned)v->block, shared, s, a, x, bias, y, parts);
    } else {
        dim3 grid((unsigned)pl_ceil_div(s.outputs, v->block / v->across), (unsigned)v->parts);
        PL_LAUNCH((rows<T, V, WIDE>), grid, (unsigned)v->block, 0, s, a, x, bias, y, parts);
    }
}

template <class T>
static void run_of(const pl_vector_product *v, const T *a, const T *x, const T *bias, T *y,
                   float *parts)
{
    constexpr int V = 16 / (int)sizeof(T);
    shape s = {};
    s.n = v->n;
    s.k = v->k;
    s.each = v->each;
    s.step = v->step;
    s.outputs = v->batch * v->n;
    s.across = v->across;
    s.bias_each = v->bias_each;
    const void *wide[2] = {a, v->columns ? nullptr : x};
    if (v->pack == 1)
        launch<T, 1, true>(v, s, a, x, bias, y, parts);
    else if (pl_cuda_aligned(wide, 2))
        launch<T, V, true>(v, s, a, x, bias, y, parts);
    else
        launch<T, V, false>(v, s, a, x, bias, y, parts);
    if (parts)
        PL_LAUNCH((add_parts<T>), (unsigned)pl_ceil_div(s.outputs, WARP), BLOCK, 0, s, v->parts,
                  parts, bias, y);
}

pl_status pl_vector_run(const pl_vector_product *v, const void *matrix, const void *vector,
                        const void *bias, void *y, void *work)
{
    float *parts = v->parts > 1 ? (float *)work : nullptr;
    switch (v->dtype) {
        PL_CASE_OF(
            PL_F32, float,
            run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_CASE_OF(
            PL_F16, pl_f16,
            run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_CASE_OF(
            PL_BF16, pl_bf16,
            run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_NO_KERNEL(v->dtype);
    }
    PL_CUDA_LAUNCHED("a matrix times a vector");
    return PL_OK;
}
