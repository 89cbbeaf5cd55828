/* attention_wgmma_forward.cu - attention of f32 that was rounded to f16 (attention_tf32.cu) on
 * Hopper's warpgroup products. 16-bit attention is cuDNN's, whose results have the operands' type.
 *
 *   s = q k'   p = exp(s - top)   o = (o exp(old top - top) + p v) / sum of p
 *
 * A block keeps 64 queries for each of its GROUPS warpgroups in shared memory and walks over the
 * keys and values in tiles of COLS, STAGES of them in flight. Scores become the left operand of
 * p v in registers. While one warpgroup computes exponentials, others of its processor multiply:
 * with heads of up to 64, two blocks share a processor.
 *
 * Two tiles are loaded ahead, into the stage of the tile before: all warpgroups have read it when
 * they pass the barrier of this tile. No atomics: results do not depend on the order of blocks.
 */
#include "cuda/attention/wgmma_tiles.h"

static constexpr int STAGES = 3;
template <int D>
static constexpr int GROUPS = (D == 64 ? PL_ATTEND_WG_ROWS_64 : PL_ATTEND_WG_ROWS) / 64;
static_assert(COLS == (int)PL_ATTEND_WG_TILE, "one size of tiles");

#if PL_HAS_WGMMA
/* Hides keys that do not exist, or that a query must not see. r0, c0: query and key of this
 * thread's first score. */
static __device__ __forceinline__ void hide_keys(float (&s)[COLS / 2], const shape &z, int r0,
                                                 int c0)
{
# pragma unroll
    for (int up = 0; up < 2; up++) {
        int end = min(z.m, z.causal ? r0 + up * 8 + 1 : z.m) - c0;
# pragma unroll
        for (int j = 0; j < COLS / 8; j++)
# pragma unroll
            for (int e = 0; e < 2; e++)
                if (j * 8 + e >= end) s[4 * j + 2 * up + e] = -INFINITY;
    }
}

/* Makes the scores of a tile probabilities p, relative to the largest score so far, and scales the
 * sums so far down to it. */
template <typename T, int D>
static __device__ __forceinline__ void soften(float (&s)[COLS / 2], unsigned (&p)[COLS / 4],
                                              float (&out)[D / 2], float (&top)[2],
                                              float (&total)[2], float unit)
{
# pragma unroll
    for (int up = 0; up < 2; up++) {
        float most = top[up], sum = 0;
# pragma unroll
        for (int j = 0; j < COLS / 8; j++)
            most = fmaxf(most, fmaxf(s[4 * j + 2 * up], s[4 * j + 2 * up + 1]));
        most = over_quad_max(most);
        float fade = pl_power2((top[up] - most) * unit), base = most * unit;
        top[up] = most;
# pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            float x = pl_power2(fmaf(s[4 * j + 2 * up], unit, -base));
            float y = pl_power2(fmaf(s[4 * j + 2 * up + 1], unit, -base));
            sum += x + y;
            p[packed_at(j, up)] = pl_pack2(x, y, T());
        }
        total[up] = fmaf(total[up], fade, sum);
# pragma unroll
        for (int j = 0; j < D / 8; j++)
            out[4 * j + 2 * up] *= fade, out[4 * j + 2 * up + 1] *= fade;
    }
}
#endif

/* grid: (blocks of queries, heads, batch) */
template <typename T, typename R, int D>
static __global__ void __launch_bounds__(GROUPS<D> * 128, D == 64 ? 2 : 1)
    forward(shape z, const T *q, const T *k, const T *v, const unsigned *largest, R *o, float *lse)
{
#if PL_HAS_WGMMA
    constexpr int ROWS = GROUPS<D> * 64, THREADS = GROUPS<D> * 128;
    T *rows = (T *)tiles_at(), *keys = rows + ROWS * D, *values = keys + STAGES * COLS * D;
    int h = blockIdx.y, lane = threadIdx.x % 32;
    int64_t b = blockIdx.z;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    q += b * z.n * z.row + h * z.step;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    o += (b * z.n * z.heads + h) * z.d;
    lse += (b * z.heads + h) * z.n;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0), own = first + group * 64;
    int r0 = own + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const powers by = powers_of<R>(largest);
    float out[D / 2], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    float scale = z.scale * by.scores, unit = scale * LOG2E;
# pragma unroll
    for (int i = 0; i < D / 2; i++) out[i] = 0;
    auto load = [&](int t) {
        if (t < tiles) {
            int stage = t % STAGES * COLS * D;
            fill<T, D, COLS, THREADS>(keys + stage, k, z.keys_row, t * COLS, z.m, z.d);
            fill<T, D, COLS, THREADS>(values + stage, v, z.keys_row, t * COLS, z.m, z.d);
        }
        pl_copies_end();
    };
    fill<T, D, ROWS, THREADS>(rows, q, z.row, first, z.n, z.d);
    load(0);
    load(1);
    unsigned q_at = pl_wg_place(rows) + pl_wg_step(group * 64 * 64);
    unsigned k_at = pl_wg_place(keys), v_at = pl_wg_place(values);
    for (int t = 0; t < tiles; t++) {
        int c0 = t * COLS;
        unsigned at = pl_wg_step(t % STAGES * COLS * D);
        pl_copies_wait<1>();
        pl_wg_written();
        __syncthreads();
        load(t + 2);
        /* All queries of this warpgroup come before all keys of the tile. */
        if (z.causal && c0 > own + 63) continue;
        float s[COLS / 2];
        unsigned p[COLS / 4];
        pl_wg_begin();
        scores<T, D, ROWS>(s, q_at, k_at + at);
        pl_wg_end();
        pl_wg_wait<0>();
        pl_wg_done(s);
        if (c0 + COLS > z.m || (z.causal && c0 + COLS - 1 > own))
            hide_keys(s, z, r0, c0 + lane % 4 * 2);
        soften<T, D>(s, p, out, top, total, unit);
        pl_wg_begin();
        weigh<T, D>(out, p, v_at + at);
        pl_wg_end();
        pl_wg_wait<0>();
        pl_wg_done(out);
        pl_wg_done(p);
    }
    pl_copies_wait<0>();
    float factor[2];
# pragma unroll
    for (int up = 0; up < 2; up++) {
        float sum = over_quad_sum(total[up]);
        int r = r0 + up * 8;
        factor[up] = by.o / sum;
        if (lane % 4 == 0 && r < z.n) lse[r] = fmaf(top[up], scale, logf(sum));
    }
    store<D>(o, (int64_t)z.heads * z.d, out, make_float2(factor[0], factor[1]), r0, z.n, z.d);
#endif
}

template <int D> static pl_status run_sized(const pl_attend *a, const unsigned *largest)
{
    constexpr int ROWS = GROUPS<D> * 64;
    size_t bytes = sizeof(pl_f16) * D * (ROWS + 2 * STAGES * COLS) + 1024;
    auto kernel = forward<pl_f16, float, D>;
    PL_TRY(allow((const void *)kernel, bytes));
    dim3 grid((unsigned)pl_ceil_div(a->n, ROWS), (unsigned)a->heads, (unsigned)a->batch);
    PL_LAUNCH((kernel), grid, GROUPS<D> * 128, bytes, sizes_of<pl_f16, float>(a),
              (const pl_f16 *)a->q, (const pl_f16 *)a->k, (const pl_f16 *)a->v, largest,
              (float *)a->out[0], (float *)a->out[1]);
    PL_CUDA_LAUNCHED("attention on warpgroup products");
    return PL_OK;
}

extern "C" pl_status pl_attend_wgmma_rounded(const pl_attend *a, const unsigned *largest)
{
    return a->d <= 64 ? run_sized<64>(a, largest) : run_sized<128>(a, largest);
}
