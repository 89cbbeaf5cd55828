/* attention_wgmma.cu - the gradient of attention of f16 and bf16, and of f32 rounded to f16
 * (attention_tf32.cu), on Hopper's warpgroup products, in one pass:
 *
 *   s' = k q'   p' = exp(s' - lse)   dp' = v d_o'   ds' = p' (dp' - delta)
 *   dv += p' d_o      dk += ds' q      dq += ds k
 *
 * A block keeps 64 keys for each of its GROUPS warpgroups in shared memory and walks over the
 * queries in tiles of COLS. Scores become the left operand of dv and dk in registers; ds' also goes
 * to shared memory, because dq sums over the keys of all warpgroups. dq of a tile is computed one
 * tile later, by one warpgroup in turn (heads of 64) or by all.
 *
 * Warpgroups do not walk in step: while one computes exponentials, others multiply. Two kinds of
 * barriers keep them at most one tile apart. `full`: a tile has come; each warpgroup tells it for
 * the part that it has loaded, before it begins the tile before (AHEAD 2) or in the middle of it
 * (AHEAD 1), so who passes knows that all others have ended the tile two before, and may overwrite
 * its stage. `stored`: ds' of a tile are complete; who computes dq waits for it.
 *
 * dq of a tile is the sum over all blocks of keys, in f32 in scratch, in a fixed order: each block
 * adds after the block before it, whose number of finished tiles a spare warp reads and whose own
 * number it publishes. The first block stores, the last block converts to the result's type. So two
 * runs give the same bits. Causal: the block with the last keys that a tile sees comes first,
 * because all blocks begin at their own diagonal. Blocks take their work by a counter in the order
 * in which they wait for each other: a block waits only for blocks that run already.
 *
 * p and ds are rounded to the operands' type. Heads of up to 64 or 128 whose size is a multiple of
 * 8; the rest of a row is zero.
 */
#include "cuda/attention/wgmma_tiles.h"

/* Tiles whose ds' are in shared memory: of the tile, of the tile before, and of the tile that the
 * last warpgroup has just ended. */
static constexpr int KEPT = 3;
/* Stages of q and d_o in shared memory, as many as fit, and the tiles that loads run ahead. A stage
 * is loaded again when all warpgroups have ended the tile two before. */
template <int D> static constexpr int STAGES = D == 64 ? 4 : 3;
template <int D> static constexpr int AHEAD = STAGES<D> - 2;

/* ---- order of sums -------------------------------------------------------------------------- */
/* ORDERS spare warps keep the order, each that of every ORDERS-th tile: publishing a tile waits for
 * memory, so several tiles are published at a time. Named barriers: 0 has all threads of the block,
 * GO + i and DONE + i spare warp i and the warpgroups that add dq. */
enum { ORDERS = PL_ATTEND_WG_ORDERS, GO = 1, DONE = GO + ORDERS };
static __device__ __forceinline__ void meet(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
static __device__ __forceinline__ void tell(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/* Barriers in shared memory, which warps pass once a tile: each signals its arrival, and waits
 * later. What a warp wrote to shared memory before `come` is visible to those who wait. */
static __device__ __forceinline__ void barrier_begin(unsigned barrier, int warps)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(warps) : "memory");
}
static __device__ __forceinline__ void come(unsigned barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Waits until all warps have come; odd: 1 every second time that they meet here. */
static __device__ __forceinline__ void wait_all(unsigned barrier, unsigned odd)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(odd)
                     : "memory");
}
static __device__ __forceinline__ int finished(const int *tiles)
{
    int n;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(n) : "l"(tiles) : "memory");
    return n;
}
static __device__ __forceinline__ void publish(int *tiles, int n)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(tiles), "r"(n) : "memory");
}
static __device__ __forceinline__ void add4(float *to, const float *v)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
}

/* The work of a block: one block of keys, and the tiles of queries that see it. */
struct course {
    int j, blocks;   /* of keys */
    int t0, tiles;   /* of queries: [t0, tiles) */
    int before;      /* block of keys that adds before this one; -1: none */
    int before_from; /* its first tile */
};
template <int ROWS>
static __device__ __forceinline__ course course_of(const pl_attend_shape &z, int at)
{
    course w;
    w.blocks = (z.m + ROWS - 1) / ROWS;
    w.tiles = (z.n + COLS - 1) / COLS;
    w.j = z.causal ? w.blocks - 1 - at : at;
    w.t0 = z.causal ? w.j * ROWS / COLS : 0;
    w.before = z.causal ? (w.j + 1 < w.blocks ? w.j + 1 : -1) : w.j - 1;
    w.before_from = z.causal ? (w.j + 1) * ROWS / COLS : 0;
    return w;
}
static __device__ __forceinline__ bool is_first(const course &w, int t)
{
    return w.before < 0 || t < w.before_from;
}
static __device__ __forceinline__ bool is_last(const pl_attend_shape &z, const course &w)
{
    return w.j == (z.causal ? 0 : w.blocks - 1);
}

/* A spare warp: lets dq of its tiles be added when their turn comes, and publishes finished tiles.
 * counts: ORDERS of each block of keys of the head. meeting: threads that meet at GO and DONE. */
static __device__ void keep_order(const course &w, int *counts, int meeting)
{
    int lane = threadIdx.x % 32, i = threadIdx.x / 32 % ORDERS;
    const int *before = counts + (w.before < 0 ? 0 : w.before) * ORDERS + i;
    for (int t = w.t0 + ((i - w.t0) & (ORDERS - 1)); t < w.tiles; t += ORDERS) {
        if (!is_first(w, t) && lane == 0)
            for (unsigned tries = 0; finished(before) <= t; tries++)
                if (tries == 1u << 26) __trap(); /* the block before has died */
        __syncwarp();
        tell(GO + i, meeting);
        meet(DONE + i, meeting);
        if (lane == 0) publish(counts + w.j * ORDERS + i, t + 1);
    }
}

/* ---- one pass ------------------------------------------------------------------------------- */
#if PL_HAS_WGMMA
/* Stores ds' of a warpgroup, 64 keys by COLS queries, as rows of swizzled 16-byte chunks. */
template <typename T>
static __device__ __forceinline__ void keep(T *to, const unsigned (&ds)[COLS / 4])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
# pragma unroll
    for (int j = 0; j < COLS / 8; j += 2) {
        int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = j + lane / 16;
        const T *at = to + row * 64 + ((chunk ^ row) & 7) * 8;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         pl_shared_at(at)),
                     "r"(ds[2 * j]), "r"(ds[2 * j + 1]), "r"(ds[2 * j + 2]), "r"(ds[2 * j + 3])
                     : "memory");
    }
}

/* Makes scores of pairs that do not exist, or that a query must not see, so small that their
 * probabilities are 0. r0, c0: key and query of this thread's first score. */
static __device__ __forceinline__ void hide(float (&s)[COLS / 2], const pl_attend_shape &z, int r0,
                                            int c0)
{
# pragma unroll
    for (int up = 0; up < 2; up++) {
        int r = r0 + up * 8, lo = r >= z.m ? COLS : z.causal ? r - c0 : 0, hi = z.n - c0;
# pragma unroll
        for (int j = 0; j < COLS / 8; j++)
# pragma unroll
            for (int e = 0; e < 2; e++)
                if (j * 8 + e < lo || j * 8 + e >= hi) s[4 * j + 2 * up + e] = -INFINITY;
    }
}

/* Adds 64 columns of dq of a tile to sum, or stores them there, or (last) writes the result. */
template <typename R>
static __device__ __forceinline__ void add_query(float (&x)[32], float *sum, bool first, bool last,
                                                 R *dq, int64_t stride, float scale, int r0,
                                                 int limit, int d)
{
    float *at = sum + threadIdx.x % 128 * 4;
    if (!last) {
# pragma unroll
        for (int i = 0; i < 8; i++) {
            if (first)
                *(float4 *)(at + i * 512) =
                    make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
            else
                add4(at + i * 512, x + 4 * i);
        }
        return;
    }
# pragma unroll
    for (int i = 0; i < 8 && !first; i++) {
        float4 y = __ldcg((const float4 *)(at + i * 512));
        x[4 * i] += y.x, x[4 * i + 1] += y.y, x[4 * i + 2] += y.z, x[4 * i + 3] += y.w;
    }
    store<64>(dq, stride, x, make_float2(scale, scale), r0, limit, d);
}
#endif

#if PL_HAS_WGMMA
/* ds' of the tile are stored; with AHEAD 1 also: the next tile has come, as far as this thread
 * loads it. */
template <int D> static __device__ __forceinline__ void tell_stored(unsigned full, unsigned stored)
{
    if (AHEAD<D> == 1) pl_copies_wait<0>();
    pl_wg_written();
    come(stored);
    if (AHEAD<D> == 1) come(full);
}
#endif

struct scratch {
    const float *lse, *delta;
    const unsigned *largest; /* of f32 operands (attention_tf32.cu) */
    float *dq;               /* sums, 64 x 64 at a time */
    int *counts; /* the counter of work, then the finished tiles of each block of keys */
};

/* grid: blocks of keys times heads times batch */
template <typename T, typename R, int D, int GROUPS>
static __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)
    gradient(shape z, const T *q, const T *k, const T *v, const T *d_o, scratch w, R *dq, R *dk,
             R *dv)
{
#if PL_HAS_WGMMA
    /* One warpgroup in turn, or each with its columns, computes dq. */
    constexpr int ROWS = GROUPS * 64, THREADS = GROUPS * 128;
    constexpr int MEETING = 32 + (D == 64 ? 128 : THREADS);
    static_assert(D == 64 || D / 64 == GROUPS, "each warpgroup has 64 columns");
    T *rows = (T *)tiles_at(), *v_rows = rows + ROWS * D;
    T *queries = v_rows + ROWS * D, *d_outs = queries + STAGES<D> * COLS * D;
    T *scored = d_outs + STAGES<D> * COLS * D;          /* ds' of KEPT tiles */
    float *sums = (float *)(scored + KEPT * ROWS * 64); /* lse and delta of each stage */
    __shared__ int work;
    __shared__ uint64_t barriers[1 + KEPT];
    unsigned full = (unsigned)__cvta_generic_to_shared(barriers), stored = full + 8;
    if (threadIdx.x == 0) {
        work = atomicAdd(w.counts, 1);
        for (int i = 0; i < 1 + KEPT; i++) barrier_begin(full + 8 * i, THREADS / 32);
    }
    __syncthreads();
    int blocks = (z.m + ROWS - 1) / ROWS, head = work / blocks, h = head % z.heads;
    int64_t b = head / z.heads;
    course c = course_of<ROWS>(z, work % blocks);
    if (threadIdx.x >= THREADS) {
        pl_wg_fewer<D == 64 ? 32 : 24>();
        keep_order(c, w.counts + 1 + (int64_t)head * blocks * ORDERS, MEETING);
        return;
    }
    pl_wg_more<D == 64 ? 160 : 240>();
    int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    int first = c.j * ROWS;
    int64_t stride = z.row, outs = (int64_t)z.heads * z.d;
    q += b * z.n * stride + h * z.step;
    d_o += b * z.n * outs + h * z.d;
    dq += (int64_t)b * z.n * z.to_row + h * z.to_step;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    dk += (int64_t)b * z.m * z.to_row + h * z.to_step;
    dv += (int64_t)b * z.m * z.to_row + h * z.to_step;
    w.lse += (int64_t)head * z.n;
    w.delta += (int64_t)head * z.n;
    w.dq += (int64_t)head * c.tiles * 64 * D;
    int own = first + group * 64, r0 = own + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const powers by = powers_of<R>(w.largest);
    float to_k[D / 2], to_v[D / 2], unit = z.scale * by.scores * LOG2E;
# pragma unroll
    for (int i = 0; i < D / 2; i++) to_k[i] = to_v[i] = 0;
    int col = D == 64 ? 0 : group;
    unsigned k_at = pl_wg_place(rows), v_at = k_at + pl_wg_step(ROWS * D);
    unsigned q_at = v_at + pl_wg_step(ROWS * D), d_at = q_at + pl_wg_step(STAGES<D> * COLS * D);
    unsigned scored_at = d_at + pl_wg_step(STAGES<D> * COLS * D),
             own_at = pl_wg_step(group * 64 * 64);
    auto load = [&](int t, unsigned stage) {
        if (t < c.tiles) {
            float *to = sums + stage * 2 * COLS;
            fill<T, D, COLS, THREADS>(queries + stage * COLS * D, q, stride, t * COLS, z.n, z.d);
            fill<T, D, COLS, THREADS>(d_outs + stage * COLS * D, d_o, outs, t * COLS, z.n, z.d);
            if (threadIdx.x < 2 * COLS) {
                int i = t * COLS + threadIdx.x % COLS;
                const float *from = threadIdx.x < COLS ? w.lse : w.delta;
                pl_copy4(to + threadIdx.x, i < z.n ? from + i : from, i < z.n);
            }
        }
        pl_copies_end();
    };
    fill<T, D, ROWS, THREADS>(rows, k, z.keys_row, first, z.m, z.d);
    fill<T, D, ROWS, THREADS>(v_rows, v, z.keys_row, first, z.m, z.d);
    load(c.t0, 0);
    if (AHEAD<D> == 2) load(c.t0 + 1, 1);
    pl_copies_wait<AHEAD<D> - 1>();
    pl_wg_written();
    come(full);
    for (int t = c.t0; t <= c.tiles; t++) {
        const unsigned i = (unsigned)(t - c.t0), stage = i % STAGES<D>, slot = i % KEPT;
        int at = stage * COLS * D, c0 = t * COLS;
        if (t < c.tiles) {
            wait_all(full, i & 1);
            load(t + AHEAD<D>, (stage + AHEAD<D>) % STAGES<D>);
            if (AHEAD<D> == 2) {
                pl_copies_wait<1>();
                pl_wg_written();
                come(full);
            }
        }
        /* All queries of the tile come before all keys of this warpgroup. */
        bool none = z.causal && c0 + COLS - 1 < own;
        if (t < c.tiles && !none) {
            const float *base = sums + stage * 2 * COLS, *minus = base + COLS;
            float s[COLS / 2], dp[COLS / 2];
            unsigned p[COLS / 4], ds[COLS / 4];
            pl_wg_begin();
            scores<T, D, ROWS>(s, k_at + own_at, q_at + pl_wg_step(at));
            pl_wg_end();
            scores<T, D, ROWS>(dp, v_at + own_at, d_at + pl_wg_step(at));
            pl_wg_end();
            pl_wg_wait<1>();
            pl_wg_done(s);
            if (c0 + COLS > z.n || own + 64 > z.m || (z.causal && c0 < own + 63))
                hide(s, z, r0, c0 + lane % 4 * 2);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++) {
                float2 l = *(const float2 *)(base + j * 8 + lane % 4 * 2);
                l.x *= LOG2E, l.y *= LOG2E;
# pragma unroll
                for (int up = 0; up < 2; up++) {
                    float *x = s + 4 * j + 2 * up;
                    p[packed_at(j, up)] = pl_pack2(pl_power2(fmaf(x[0], unit, -l.x)),
                                                   pl_power2(fmaf(x[1], unit, -l.y)), T());
                }
            }
            pl_wg_begin();
            weigh<T, D>(to_v, p, d_at + pl_wg_step(at));
            pl_wg_end();
            pl_wg_wait<1>();
            pl_wg_done(dp);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++) {
                float2 m = *(const float2 *)(minus + j * 8 + lane % 4 * 2);
# pragma unroll
                for (int up = 0; up < 2; up++) {
                    const float *y = dp + 4 * j + 2 * up;
                    float2 x = unpacked(p[packed_at(j, up)], T());
                    ds[packed_at(j, up)] = pl_pack2(x.x * fmaf(m.x, -by.d_scores, y[0]),
                                                    x.y * fmaf(m.y, -by.d_scores, y[1]), T());
                }
            }
            keep<T>(scored + slot * ROWS * 64 + group * 64 * 64, ds);
            tell_stored<D>(full, stored + 8 * slot);
            pl_wg_begin();
            weigh<T, D>(to_k, ds, q_at + pl_wg_step(at));
            pl_wg_end();
            pl_wg_wait<0>();
            pl_wg_done(to_v);
            pl_wg_done(to_k);
            pl_wg_done(p);
            pl_wg_done(ds);
        } else if (t < c.tiles) {
            unsigned zero[COLS / 4] = {0};
            keep<T>(scored + slot * ROWS * 64 + group * 64 * 64, zero);
            tell_stored<D>(full, stored + 8 * slot);
        }
        if (t == c.t0) continue;
        /* dq of the tile before, 64 columns for a warpgroup, in turn. */
        int last_t = t - 1;
        if (D == 64 && last_t % GROUPS != group) continue;
        const unsigned last_slot = (i - 1) % KEPT;
        wait_all(stored + 8 * last_slot, (i - 1) / KEPT & 1);
        float x[32];
        unsigned of = scored_at + pl_wg_step(last_slot * ROWS * 64);
        unsigned keys = k_at + pl_wg_step(col * ROWS * 64);
        pl_wg_begin();
# pragma unroll
        for (int r = 0; r < ROWS / 16; r++)
            pl_wg_turned(x, pl_wg_operand(of + pl_wg_step(r * 16 * 64), 16),
                         pl_wg_operand(keys + pl_wg_step(r * 16 * 64), 16), r > 0, T());
        pl_wg_end();
        pl_wg_wait<0>();
        pl_wg_done(x);
        meet(GO + last_t % ORDERS, MEETING);
        add_query(x, w.dq + ((int64_t)last_t * (D / 64) + col) * 4096, is_first(c, last_t),
                  is_last(z, c), dq + col * 64, z.to_row, z.scale * by.dq,
                  last_t * COLS + threadIdx.x / 32 % 4 * 16 + lane / 4, z.n, z.d - col * 64);
        tell(DONE + last_t % ORDERS, MEETING);
    }
    float by_k = z.scale * by.dk;
    store<D>(dk, z.to_row, to_k, make_float2(by_k, by_k), r0, z.m, z.d);
    store<D>(dv, z.to_row, to_v, make_float2(by.dv, by.dv), r0, z.m, z.d);
#endif
}

/* ---- launches ------------------------------------------------------------------------------- */
template <typename T, typename R, int D>
static pl_status run_sized(const pl_attend *a, const unsigned *largest)
{
    constexpr int GROUPS = D <= 64 ? PL_ATTEND_WG_KEYS_64 / 64 : PL_ATTEND_WG_KEYS / 64;
    constexpr size_t tile = sizeof(T) * D * 64;
    size_t bytes = tile * (2 * GROUPS + 2 * STAGES<D>)+sizeof(T) * KEPT * GROUPS * 64 * 64 +
                   STAGES<D> * 2 * COLS * sizeof(float) + 1024;
    pl_attend_wg_work at_work = pl_attend_wg_work_of(a->batch * a->heads, a->n, a->m, a->d);
    char *work = (char *)a->work;
    scratch w = {(const float *)pl_attend_lse(a), (const float *)a->work, largest,
                 (float *)(work + at_work.sums_at), (int *)(work + at_work.counts_at)};
    auto kernel = gradient<T, R, D, GROUPS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_CUDA(cudaMemsetAsync(w.counts, 0, at_work.bytes - at_work.counts_at, pl_cuda_stream()));
    unsigned blocks = (unsigned)(pl_ceil_div(a->m, GROUPS * 64) * a->heads * a->batch);
    PL_LAUNCH((kernel), blocks, GROUPS * 128 + 128, bytes, sizes_of<T, R>(a), (const T *)a->q,
              (const T *)a->k, (const T *)a->v, (const T *)a->d_o, w, (R *)a->out[0],
              (R *)a->out[1], (R *)a->out[2]);
    PL_CUDA_LAUNCHED("gradient of attention on warpgroup products");
    return PL_OK;
}

template <typename T, typename R>
static pl_status run_typed(const pl_attend *a, const unsigned *largest)
{
    return a->d <= 64 ? run_sized<T, R, 64>(a, largest) : run_sized<T, R, 128>(a, largest);
}

extern "C" bool pl_attend_warpgroups_fit(const pl_attend *a)
{
    const pl_cuda_props *card = pl_cuda_props_get();
    return !a->masked && card->arch == 90 && a->d % 8 == 0 && a->d > 32 && a->d <= 128 &&
           a->row % 8 == 0 && a->step % 8 == 0 && a->keys_row % 8 == 0 && a->scale > 0 &&
           a->n < 1 << 30 && a->m < 1 << 30 && a->heads < 65536 && a->batch < 32768 &&
           (size_t)card->shared_limit >= 216 << 10;
}

extern "C" bool pl_attend_wgmma_takes(const pl_attend *a)
{
    return (a->dtype == PL_F16 || a->dtype == PL_BF16) && pl_attend_warpgroups_fit(a);
}

extern "C" pl_status pl_attend_wgmma_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    return a->dtype == PL_F16 ? run_typed<pl_f16, pl_f16>(a, NULL)
                              : run_typed<pl_bf16, pl_bf16>(a, NULL);
}

extern "C" pl_status pl_attend_wgmma_rounded_bwd(const pl_attend *a, const unsigned *largest)
{
    return run_typed<pl_f16, float>(a, largest);
}
