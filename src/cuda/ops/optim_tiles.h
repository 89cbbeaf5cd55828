/* optim_tiles.h - optimiser updates on weights and states in fewer bits than f32, on a GPU.
 *
 * The same as ops/net/optim_tiles.h, bit for bit: a warp updates a tile of 256 elements, eight
 * consecutive ones in each lane, so that the scale of a packed block is a maximum over the warp.
 * Every block of threads makes the two tables of codes in shared memory.
 */
#ifndef PL_CUDA_OPTIM_TILES_H
#define PL_CUDA_OPTIM_TILES_H

#include "base/number/packed.h"
#include "cuda/ops/optim_rule.h"
#include "cuda/ops/philox.h"

enum { LANE = 8, TILE = 32 * LANE, BLOCK_BYTES = TILE + 4 };
static_assert((int)TILE == PL_PACKED_BLOCK && (int)THREADS == PL_PACKED_CODES, "block = tile");

struct code_tables {
    float value[2][PL_PACKED_CODES], middle[2][PL_PACKED_CODES]; /* of any sign, positive */
};

static __device__ void make_tables(code_tables *t)
{
    const int i = (int)threadIdx.x;
    t->value[0][i] = pl_packed_value(false, i);
    t->value[1][i] = pl_packed_value(true, i);
    __syncthreads();
    for (int k = 0; k < 2; k++)
        t->middle[k][i] = i < 255 ? (t->value[k][i] + t->value[k][i + 1]) / 2 : INFINITY;
    __syncthreads();
}

template <int RULE> static __device__ __forceinline__ int is_positive(int state)
{
    const int bits = RULE == ADAM ? 2 : RULE == ADAM_MAX ? 6 : RULE >= RMSPROP ? 1 : 0;
    return bits >> state & 1;
}

/* ---- packed blocks: lane l has codes 8l .. 8l+7 ------------------------------------------ */
static __device__ __forceinline__ void unpack(const float *value, const uint8_t *block, int lane,
                                              float (&x)[LANE])
{
    const uint32_t *codes = reinterpret_cast<const uint32_t *>(block) + 2 * lane;
    const uint32_t word[2] = {codes[0], codes[1]};
    const float scale = *reinterpret_cast<const float *>(block + TILE);
#pragma unroll
    for (int e = 0; e < LANE; e++) x[e] = value[word[e / 4] >> (e % 4 * 8) & 255] * scale;
}

static __device__ __forceinline__ float scale_of(const float (&x)[LANE], int n)
{
    float most = 0;
    bool odd = false;
#pragma unroll
    for (int e = 0; e < LANE; e++) {
        if (e >= n) continue;
        most = fmaxf(most, fabsf(x[e]));
        odd |= !isfinite(x[e]);
    }
    for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    return __any_sync(0xffffffffu, odd) ? NAN : most;
}

static __device__ __forceinline__ int nearest(const float *middle, float x)
{
    int code = 0;
#pragma unroll
    for (int step = 128; step; step >>= 1) code += middle[code + step - 1] < x ? step : 0;
    return code;
}

/* n of the lane's elements are in use. */
static __device__ void pack(const code_tables &t, int positive, uint8_t *block, int lane, int n,
                            const float (&x)[LANE])
{
    const float scale = scale_of(x, n);
    uint32_t word[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < LANE; e++) {
        int code = positive ? 0 : 127;
        if (scale > 0) code = nearest(t.middle[positive], x[e] / scale);
        if (scale > 0 && positive && code == 0 && x[e] > 0) code = 1;
        if (e < n) word[e / 4] |= (uint32_t)code << (e % 4 * 8);
    }
    uint32_t *codes = reinterpret_cast<uint32_t *>(block) + 2 * lane;
    codes[0] = word[0];
    codes[1] = word[1];
    if (lane == 0) *reinterpret_cast<float *>(block + TILE) = scale;
}

/* ---- operands --------------------------------------------------------------------------- */
static __device__ __forceinline__ void load(int dtype, const void *p, int64_t at, int n,
                                            float (&x)[LANE])
{
#pragma unroll
    for (int e = 0; e < LANE; e++) x[e] = e < n ? get<float>(dtype, p, at + e) : 0;
}

static __device__ uint16_t round_random(float x, uint32_t low)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return (uint16_t)((bits | (bits & 0x007fffffu ? 0x00400000u : 0)) >> 16);
    return (uint16_t)((bits + (low & 0xffffu)) >> 16);
}

/* Output k takes half k % 2 of the words of stream k / 2. */
static __device__ void store(const update_batch &u, const update_piece &p, int k, int dtype,
                             void *to, int64_t at, int n, const float (&x)[LANE])
{
    if (dtype != PL_BF16 || !u.key) {
#pragma unroll
        for (int e = 0; e < LANE; e++)
            if (e < n) set<float>(dtype, to, at + e, x[e]);
        return;
    }
#pragma unroll
    for (int part = 0; part < 2; part++) {
        uint4 w = philox_at((uint64_t)u.key[0], (uint32_t)u.key[1], p.stream + (uint32_t)k / 2,
                            (uint64_t)at / 4 + part);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (4 * part + e < n)
                static_cast<uint16_t *>(to)[at + 4 * part + e] =
                    round_random(x[4 * part + e], words[e] >> (k % 2 * 16));
    }
}

/* A skipped step: packed states stay too. */
static __device__ void keep_packed(const update_batch &u, const update_piece &p,
                                   const update_share &b, int n_s)
{
    for (int j = 0; j < n_s; j++) {
        if (u.s_type[j] != PL_U8 || p.s_out[j] == p.s[j]) continue;
        int64_t end = (b.hi + TILE - 1) / TILE * BLOCK_BYTES;
        for (int64_t i = b.lo / TILE * BLOCK_BYTES + threadIdx.x; i < end; i += THREADS)
            static_cast<uint8_t *>(p.s_out[j])[i] = static_cast<const uint8_t *>(p.s[j])[i];
    }
    for (int64_t i = b.lo + threadIdx.x; i < b.hi; i += THREADS) {
        set_bits(u.w_type, p.w_out, i, get_bits(u.w_type, p.w, i));
        for (int j = 0; j < n_s; j++)
            if (u.s_type[j] != PL_U8)
                set_bits(u.s_type[j], p.s_out[j], i, get_bits(u.s_type[j], p.s[j], i));
    }
}

template <int RULE>
static __device__ void update_tile(const update_batch &u, const update_piece &p,
                                   const code_tables &t, const coeffs<float> &k, int64_t tile,
                                   int lane)
{
    const int n_s = states_of<RULE>::n;
    const int64_t at = tile * TILE + lane * LANE, left = p.n - at;
    const int n = left < 0 ? 0 : left < LANE ? (int)left : LANE;
    float g[LANE], w[LANE], s[STATES][LANE];
    load(u.grad_type, p.grad, at, n, g);
    load(u.w_type, p.w, at, n, w);
#pragma unroll
    for (int j = 0; j < n_s; j++) {
        if (u.s_type[j] == PL_U8)
            unpack(t.value[is_positive<RULE>(j)],
                   static_cast<const uint8_t *>(p.s[j]) + tile * BLOCK_BYTES, lane, s[j]);
        else
            load(u.s_type[j], p.s[j], at, n, s[j]);
    }
    /* all lanes have read their block before one writes its scale */
    __syncwarp();
#pragma unroll
    for (int e = 0; e < LANE; e++) {
        float x[STATES] = {0, 0, 0};
#pragma unroll
        for (int j = 0; j < n_s; j++) x[j] = s[j][e];
        apply<RULE, float>(k, g[e], &w[e], x);
#pragma unroll
        for (int j = 0; j < n_s; j++) s[j][e] = x[j];
    }
    store(u, p, 0, u.w_type, p.w_out, at, n, w);
#pragma unroll
    for (int j = 0; j < n_s; j++) {
        if (u.s_type[j] == PL_U8)
            pack(t, is_positive<RULE>(j), static_cast<uint8_t *>(p.s_out[j]) + tile * BLOCK_BYTES,
                 lane, n, s[j]);
        else
            store(u, p, 1 + j, u.s_type[j], p.s_out[j], at, n, s[j]);
    }
}

template <int RULE>
static __global__ void __launch_bounds__(THREADS)
    update_tiles(const __grid_constant__ update_batch u)
{
    const update_share b = share_of(u);
    const update_piece &p = u.at[b.piece];
    __shared__ coeffs<float> shared_k;
    __shared__ code_tables tables;
    if (threadIdx.x == 0) find_coeffs<RULE, float>(u, p.kind, &shared_k);
    make_tables(&tables);
    const coeffs<float> k = shared_k;
    if (!isfinite(get<double>(u.scale_type, u.scale, 0))) {
        keep_packed(u, p, b, states_of<RULE>::n);
        return;
    }
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int64_t tile = b.lo / TILE + warp; tile * TILE < b.hi; tile += THREADS / 32)
        update_tile<RULE>(u, p, tables, k, tile, lane);
}

#endif
