/* attention_tf32.cu - attention of f32 as TF32 on tensor cores (attention_mma.h), on Hopper on
 * warpgroup products (attention_wgmma.cu, attention_wgmma_forward.cu).
 *
 * q, k, v and d_o are rounded to f16, which has TF32's 11 bits, times a power of two for each
 * tensor that brings its largest number to between 8 and 16. Then no product overflows: |dp| is at
 * most 16 * 16 * 128, and numbers down to 2^-18 of the largest keep all their bits. Sums and
 * results are f32.
 */
#include "cuda/attention/attention_mma.h"
#include "cuda/device/launch.h"
#include "plan/cost/kernel_sizes.h"

/* ---- rounding ------------------------------------------------------------------------------- */
/* Four tensors of `n` heads of tokens each, and where they go: a head begins `row` for each token
 * and `step` for each head of it after x. */
struct rounding {
    const float *x[4];
    pl_f16 *y[4];
    int64_t n[4], row[4], step[4];
    pl_long_divisor heads[4], d;
    unsigned *most; /* bits of the largest number of each, zero before */
};

/* Returns the place of element i of tensor t. */
static __device__ __forceinline__ const float *at_of(const rounding &r, int t, int64_t i)
{
    int64_t c, h, head = pl_long_divmod(i, r.d, &c), token = pl_long_divmod(head, r.heads[t], &h);
    return r.x[t] + token * r.row[t] + h * r.step[t] + c;
}

/* V: elements at a time. grid: (blocks, tensors) */
template <int V>
static __global__ void __launch_bounds__(256) find_most(const __grid_constant__ rounding r)
{
    __shared__ unsigned shared[8];
    int64_t n = r.n[blockIdx.y] * r.d.d / V;
    unsigned most = 0;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        pl_pack<float, V> v = pl_read<float, V>(at_of(r, blockIdx.y, V * i));
#pragma unroll
        for (int e = 0; e < V; e++) most = max(most, __float_as_uint(v.v[e]) & 0x7fffffffu);
    }
    for (int far = 16; far; far /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, far));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; i++) most = max(most, shared[i]);
    atomicMax(&r.most[blockIdx.y], most);
}

/* The same. */
template <int V>
static __global__ void __launch_bounds__(256) round_to_f16(const __grid_constant__ rounding r)
{
    float by = up_by(r.most[blockIdx.y]);
    int64_t n = r.n[blockIdx.y] * r.d.d / V;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        pl_pack<float, V> v = pl_read<float, V>(at_of(r, blockIdx.y, V * i));
        pl_pack<pl_f16, V> h;
#pragma unroll
        for (int e = 0; e < V; e++) h.v[e] = pl_put<pl_f16>(v.v[e] * by);
        pl_write<pl_f16, V>(r.y[blockIdx.y] + V * i, h);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
extern "C" bool pl_attend_tf32_takes(const pl_attend *a)
{
    return a->dtype == PL_F32 && pl_cuda_tf32() && a->d <= 128 && fits(a);
}

static pl_attend_sizes plan_sizes(const pl_attend *a)
{
    pl_attend_sizes s = {a->batch * a->heads, a->n, a->m, a->d, 0};
    return s;
}

extern "C" size_t pl_attend_tf32_work(const pl_attend *a)
{
    pl_attend_sizes s = plan_sizes(a);
    return pl_attend_tf32_bytes(&s, false);
}

extern "C" size_t pl_attend_tf32_bwd_work(const pl_attend *a)
{
    pl_attend_sizes s = plan_sizes(a);
    return pl_attend_tf32_bytes(&s, true);
}

/* Rounds the operands of `a` to 16 bits at `at`; *largest: their largest numbers. Returns the call
 * with the rounded operands. */
static pl_status round_operands(const pl_attend *a, char *at, bool back, pl_attend *rounded,
                                const unsigned **largest)
{
    const void *from[4] = {a->q, a->k, a->v, back ? a->d_o : NULL};
    pl_attend_sizes s = plan_sizes(a);
    rounding r = {};
    int64_t most = 0;
    r.most = (unsigned *)at;
    at += PL_ATTEND_LARGEST;
    for (int i = 0; i < (back ? 4 : 3); i++) {
        r.x[i] = (const float *)from[i];
        r.y[i] = (pl_f16 *)at;
        bool keys = i % 3 != 0;
        r.n[i] = keys ? s.heads / a->group * a->m : s.heads * a->n;
        r.row[i] = keys ? a->keys_row : i == 3 ? a->heads * a->d : a->row;
        r.step[i] = keys ? a->keys_step : i == 3 ? a->d : a->step;
        r.heads[i] = pl_long_div_by(keys ? a->heads / a->group : a->heads);
        at += pl_attend_tf32_tensor(&s, i % 3);
        most = most > r.n[i] ? most : r.n[i];
    }
    r.d = pl_long_div_by(a->d);
    bool fours = a->d % 4 == 0 && pl_cuda_aligned(from, 4);
    PL_CUDA(cudaMemsetAsync(r.most, 0, PL_ATTEND_LARGEST, pl_cuda_stream()));
    dim3 grid(pl_blocks(most * a->d / (fours ? 4 : 1), 256), back ? 4 : 3);
    if (fours) {
        PL_LAUNCH((find_most<4>), grid, 256, 0, r);
        PL_LAUNCH((round_to_f16<4>), grid, 256, 0, r);
    } else {
        PL_LAUNCH((find_most<1>), grid, 256, 0, r);
        PL_LAUNCH((round_to_f16<1>), grid, 256, 0, r);
    }
    *rounded = *a;
    rounded->q = r.y[0];
    rounded->k = r.y[1];
    rounded->v = r.y[2];
    rounded->d_o = r.y[3];
    rounded->dtype = PL_F16;
    *largest = r.most;
    return PL_OK;
}

/* Scratch: delta and lse, which the other kernels have there too, then the largest numbers, then
 * the tensors. */
static pl_status run_tf32(const pl_attend *a, bool back)
{
    pl_attend_sizes s = plan_sizes(a);
    pl_attend h;
    const unsigned *largest;
    char *at = (char *)a->work + (back ? pl_attend_tf32_delta(&s) : 0);
    PL_TRY(round_operands(a, at, back, &h, &largest));
    if (a->masked) return pl_attend_masked_mma(&h, back, largest);
    PL_TRY((run_typed<pl_f16, float, false>(&h, back, largest)));
    PL_CUDA_LAUNCHED("attention of TF32 on tensor cores");
    return PL_OK;
}

extern "C" pl_status pl_attend_tf32(const pl_attend *a)
{
    return run_tf32(a, false);
}

extern "C" pl_status pl_attend_tf32_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    return run_tf32(a, true);
}

/* ---- on warpgroup products ------------------------------------------------------------------ */
/* Results are stored in pairs. */
extern "C" bool pl_attend_tf32_wgmma_takes(const pl_attend *a)
{
    return a->dtype == PL_F32 && pl_cuda_tf32() && pl_attend_warpgroups_fit(a);
}

extern "C" size_t pl_attend_tf32_wgmma_bwd_work(const pl_attend *a)
{
    pl_attend_sizes s = plan_sizes(a);
    return pl_attend_tf32_wg_bytes(&s);
}

extern "C" pl_status pl_attend_tf32_wgmma(const pl_attend *a)
{
    pl_attend h;
    const unsigned *largest;
    PL_TRY(round_operands(a, (char *)a->work, false, &h, &largest));
    return pl_attend_wgmma_rounded(&h, largest);
}

/* The rounded operands are behind the scratch of the gradient. */
extern "C" pl_status pl_attend_tf32_wgmma_bwd(const pl_attend *a)
{
    pl_attend_wg_work w = pl_attend_wg_work_of(a->batch * a->heads, a->n, a->m, a->d);
    pl_attend h;
    const unsigned *largest;
    PL_TRY(pl_attend_delta(a));
    PL_TRY(round_operands(a, (char *)a->work + w.bytes, true, &h, &largest));
    return pl_attend_wgmma_rounded_bwd(&h, largest);
}
