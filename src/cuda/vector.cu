/* vector.cu - see vector.h.
 *
 * A block of the rows' kernel has `block / across` rows. Of columns it has `across` packs of them, a strip, and
 * `block / across` groups of threads that take terms in turn. Threads add what they have to their neighbours' in a warp
 * by shuffles, warps theirs in shared memory, blocks theirs in scratch (`add_parts`).
 *
 * Both kernels ask for several packs before they use the first: what is on its way hides the latency of memory.
 */
#include "cuda/vector.h"

#include "cuda/launch.h"
#include "cuda/work.h"

static constexpr int WARP = 32, BLOCK = 256, MOST_BLOCK = 1024, MOST_GRID = 65535;
/* Packs that are asked for together: of a row and of its vector; of columns. More where one is a single element. */
template <int V> static constexpr int ROWS_AHEAD = V > 1 ? 4 : 8;
template <int V> static constexpr int COLUMNS_AHEAD = V > 1 ? 8 : 16;

/* ---- plans ---------------------------------------------------------------------------------- */
static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t power_above(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

/* Threads that keep a large card busy; more of them take less each. */
static constexpr int64_t ENOUGH = 1 << 17;
/* Bytes of a row that a block of columns reads: a line of the cache, or half of it where there are few. */
static constexpr int64_t LINE = 128;

/* Parts that a sum falls into: none where there are blocks enough, or the second launch would take longer than what it
 * saves. src/plan/scratch_card.c repeats it. */
static int64_t parts_of(const pl_vector_product *v, int64_t bytes)
{
    constexpr int64_t LONG = 4096, PART = 1024, FEW = 128, MOST = 128, LONG_ROW = 65536, FEW_ROWS = 32;
    int64_t strips = v->batch * pl_ceil_div(v->n * bytes, LINE / 2);
    if (v->k <= LONG || strips >= FEW) return 1;
    if (!v->columns && (v->k <= LONG_ROW || v->batch * v->n > FEW_ROWS)) return 1;
    return least(least(pl_ceil_div(v->k, PART), pl_ceil_div(2 * FEW, strips)), MOST);
}

static void plan_parts(pl_vector_product *v, int64_t bytes)
{
    constexpr int64_t ROUND = 8; /* parts of rows begin at whole packs */
    v->each = pl_ceil_div(pl_ceil_div(v->k, parts_of(v, bytes)), ROUND) * ROUND;
    v->parts = pl_ceil_div(v->k, v->each);
}

/* Threads have FEW packs or terms each: fewer do not come sooner, as that many are asked for together. */
static void plan_rows(pl_vector_product *v)
{
    constexpr int64_t FEW = 4, NARROW = 128;
    int64_t packs = pl_ceil_div(least(v->each, v->k), v->pack), rows = v->batch * v->n * v->parts, across = 1;
    while (packs > FEW * across && across < (2 * rows * across <= ENOUGH ? MOST_BLOCK : WARP)) across *= 2;
    v->across = (int32_t)across;
    v->block = (int32_t)(across > NARROW ? across : NARROW);
}

static void plan_columns(pl_vector_product *v, int64_t bytes)
{
    constexpr int64_t ENOUGH_BLOCKS = 128, FEW = 4;
    int64_t most = power_above(pl_ceil_div(least(v->each, v->k), FEW), MOST_BLOCK), copies = v->batch * v->parts;
    bool lines = pl_ceil_div(v->n * bytes, LINE) * copies >= ENOUGH_BLOCKS;
    int64_t across = (lines ? LINE : LINE / 2) / (v->pack * bytes);
    if (across < BLOCK / most) across = BLOCK / most; /* few terms: the block is as wide as it goes */
    across = power_above(pl_ceil_div(v->n, v->pack), across);
    int64_t blocks = pl_ceil_div(v->n, v->pack * across) * copies, groups = BLOCK / across;
    int64_t widest = blocks > ENOUGH_BLOCKS ? MOST_BLOCK / 2 : MOST_BLOCK; /* several to a multiprocessor: all at once */
    while (across * groups < widest && blocks * across * groups < ENOUGH) groups *= 2;
    groups = least(groups, most);
    if (across * groups < WARP) groups = WARP / across;
    v->across = (int32_t)across;
    v->block = (int32_t)(across * groups);
}

bool pl_vector_plan(pl_vector_product *v)
{
    constexpr int64_t MOST = 1 << 30;
    if (v->dtype != PL_F32 && v->dtype != PL_F16 && v->dtype != PL_BF16) return false;
    if (v->batch < 1 || v->n < 1 || v->k < 1) return false;
    int64_t bytes = (int64_t)pl_dtype_bytes(v->dtype);
    if (v->n == 1) v->columns = false; /* a column of one is a row */
    plan_parts(v, bytes);
    v->pack = (v->columns ? v->n : v->k) * bytes % 16 == 0 ? (int32_t)(16 / bytes) : 1;
    if (v->columns)
        plan_columns(v, bytes);
    else
        plan_rows(v);
    return v->batch * v->n <= MOST && v->k <= MOST && (!v->columns || v->batch <= MOST_GRID);
}

size_t pl_vector_work(const pl_vector_product *v)
{
    return v->parts > 1 ? (size_t)(v->parts * v->batch * v->n) * sizeof(float) : 0;
}

/* ---- kernels -------------------------------------------------------------------------------- */
struct shape {
    int64_t n, k, each, step, outputs; /* outputs: of all batches */
    int32_t across;
    bool bias_each;
};

/* V elements, by one access where their address allows it. */
template <class T, int V, bool WIDE> static __device__ __forceinline__ pl_pack<T, V> load(const T *p)
{
    if constexpr (WIDE) {
        return pl_read<T, V>(p);
    } else {
        pl_pack<T, V> r;
        for (int i = 0; i < V; i++) r.v[i] = p[i];
        return r;
    }
}

template <class T>
static __device__ __forceinline__ void put(const shape &s, float sum, int64_t at, const T *bias, T *y, float *parts)
{
    if (parts) {
        parts[blockIdx.y * s.outputs + at] = sum;
    } else {
        if (bias) sum += pl_get<T>(bias[s.bias_each ? at % s.n : 0]);
        y[at] = pl_put<T>(sum);
    }
}

/* Packs c, c + across, ... of a row times the vector's. ALL: all of them are there; else those before `packs`, and loads
 * beyond it read the last one again. */
template <class T, int V, bool WIDE, bool ALL>
static __device__ __forceinline__ void add_packs(const T *a, const T *x, int c, int across, int packs, float *sum)
{
    constexpr int AHEAD = ROWS_AHEAD<V>;
    pl_pack<T, V> p[AHEAD], q[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        int64_t at = (int64_t)(ALL ? c + u * across : min(c + u * across, packs - 1)) * V;
        p[u] = load<T, V, WIDE>(a + at);
        q[u] = load<T, V, WIDE>(x + at);
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        bool there = ALL || c + u * across < packs;
        for (int i = 0; i < V; i++)
            sum[i] = fmaf(there ? pl_get<T>(p[u].v[i]) : 0.0f, there ? pl_get<T>(q[u].v[i]) : 0.0f, sum[i]);
    }
}

/* A thread's share of a row's terms: packs `lane`, lane + across, ... */
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
static __global__ void __launch_bounds__(MOST_BLOCK) rows(shape s, const T *a, const T *x, const T *bias, T *y, float *parts)
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
    for (int d = (across < WARP ? across : WARP) / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (across > WARP) {
        if (lane % WARP == 0) of_warp[warp] = sum;
        __syncthreads();
        sum = 0;
        for (int i = 0; lane == 0 && i < across / WARP; i++) sum += of_warp[warp + i];
    }
    if (lane == 0 && row < s.outputs) put(s, sum, row, bias, y, parts);
}

/* Terms q, q + groups, ... of V columns; ALL as above. */
template <class T, int V, bool WIDE, bool ALL>
static __device__ __forceinline__ void add_terms(const T *a, const T *x, int64_t n, int q, int groups, int terms, float *sum)
{
    constexpr int AHEAD = COLUMNS_AHEAD<V>;
    pl_pack<T, V> p[AHEAD];
    T w[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        int at = ALL ? q + u * groups : min(q + u * groups, terms - 1);
        p[u] = load<T, V, WIDE>(a + at * n);
        w[u] = x[at];
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        bool there = ALL || q + u * groups < terms;
        float by = there ? pl_get<T>(w[u]) : 0.0f;
        for (int i = 0; i < V; i++) sum[i] = fmaf(there ? pl_get<T>(p[u].v[i]) : 0.0f, by, sum[i]);
    }
}

/* A thread's share of the terms of V columns: `group`, group + groups, ... */
template <class T, int V, bool WIDE>
static __device__ __forceinline__ void gather(const T *a, const T *x, int64_t n, int terms, int group, int groups,
                                              float *sum)
{
    constexpr int AHEAD = COLUMNS_AHEAD<V>;
    int q = group;
    for (; q + (AHEAD - 1) * groups < terms; q += AHEAD * groups)
        add_terms<T, V, WIDE, true>(a, x, n, q, groups, terms, sum);
    if (q < terms) add_terms<T, V, WIDE, false>(a, x, n, q, groups, terms, sum);
}

template <class T, int V, bool WIDE>
static __global__ void __launch_bounds__(MOST_BLOCK) columns(shape s, const T *a, const T *x, const T *bias, T *y, float *parts)
{
    PL_SHARED(float, of_group);
    int across = s.across, at = (int)threadIdx.x & (across - 1), group = (int)threadIdx.x / across, width = across * V;
    int64_t begin = (int64_t)blockIdx.x * width, column = begin + at * V, first = blockIdx.y * s.each;
    int64_t terms = s.k - first < s.each ? s.k - first : s.each, batch = blockIdx.z;
    float sum[V] = {};
    if (column < s.n)
        gather<T, V, WIDE>(a + (batch * s.k + first) * s.n + column, x + batch * s.step + first, s.n, (int)terms, group,
                           (int)blockDim.x / across, sum);
    for (int d = across; d < WARP; d *= 2)
        for (int i = 0; i < V; i++) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
    /* What has one column now: a warp, or a group wider than one. */
    int each = across < WARP ? WARP : across, n = (int)blockDim.x / each;
    if ((int)threadIdx.x % each < across)
        for (int i = 0; i < V; i++) of_group[(int)threadIdx.x / each * width + at * V + i] = sum[i];
    __syncthreads();
    for (int j = (int)threadIdx.x; j < width && begin + j < s.n; j += (int)blockDim.x) {
        float all = 0;
        for (int i = 0; i < n; i++) all += of_group[i * width + j];
        put(s, all, batch * s.n + begin + j, bias, y, parts);
    }
}

/* Lanes are outputs, warps take parts in turn. */
template <class T>
static __global__ void __launch_bounds__(BLOCK) add_parts(shape s, int64_t n_parts, const float *parts, const T *bias, T *y)
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
static void launch(const pl_vector_product *v, const shape &s, const T *a, const T *x, const T *bias, T *y, float *parts)
{
    if (v->columns) {
        int each = v->across < WARP ? WARP : v->across;
        size_t shared = (size_t)(v->block / each * v->across * V) * sizeof(float);
        dim3 grid((unsigned)pl_ceil_div(v->n, v->across * V), (unsigned)v->parts, (unsigned)v->batch);
        PL_LAUNCH((columns<T, V, WIDE>), grid, (unsigned)v->block, shared, s, a, x, bias, y, parts);
    } else {
        dim3 grid((unsigned)pl_ceil_div(s.outputs, v->block / v->across), (unsigned)v->parts);
        PL_LAUNCH((rows<T, V, WIDE>), grid, (unsigned)v->block, 0, s, a, x, bias, y, parts);
    }
}

template <class T>
static void run_of(const pl_vector_product *v, const T *a, const T *x, const T *bias, T *y, float *parts)
{
    constexpr int V = 16 / (int)sizeof(T);
    shape s = {v->n, v->k, v->each, v->step, v->batch * v->n, v->across, v->bias_each};
    const void *wide[2] = {a, v->columns ? nullptr : x};
    if (v->pack == 1)
        launch<T, 1, true>(v, s, a, x, bias, y, parts);
    else if (pl_cuda_aligned(wide, 2))
        launch<T, V, true>(v, s, a, x, bias, y, parts);
    else
        launch<T, V, false>(v, s, a, x, bias, y, parts);
    if (parts)
        PL_LAUNCH((add_parts<T>), (unsigned)pl_ceil_div(s.outputs, WARP), BLOCK, 0, s, v->parts, parts, bias, y);
}

pl_status pl_vector_run(const pl_vector_product *v, const void *matrix, const void *vector, const void *bias, void *y,
                        void *work)
{
    float *parts = v->parts > 1 ? (float *)work : nullptr;
    switch (v->dtype) {
        PL_CASE_OF(PL_F32, float, run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_CASE_OF(PL_F16, pl_f16, run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_CASE_OF(PL_BF16, pl_bf16, run_of<T>(v, (const T *)matrix, (const T *)vector, (const T *)bias, (T *)y, parts))
        PL_NO_KERNEL(v->dtype);
    }
    PL_CUDA_LAUNCHED("a matrix times a vector");
    return PL_OK;
}
