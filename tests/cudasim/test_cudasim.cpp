/* test_cudasim.cpp - the simulator itself: what kernels may do, and the mistakes it must find. */
#include "cuda/device/launch.h"

extern "C" {
#include "base/dtype.h"
#include "tests/lib/test.h"
}

#include <stdlib.h>

static __global__ void number(int *out, int n)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) out[i] += (int)i + 1;
}

TEST(cudasim_grid_reaches_every_item)
{
    int out[1000] = {0};
    PL_LAUNCH(number, dim3(3), dim3(96), 0, out, 1000);
    for (int i = 0; i < 1000; i++) CHECK_INT(out[i], i + 1);
}

/* out[block] = sum of x over the block, by a tree in shared memory and shuffles. */
template <class T> static __global__ void block_sum(const T *x, T *out)
{
    PL_SHARED(T, part);
    __shared__ T warp[32];
    unsigned t = threadIdx.x + blockDim.x * threadIdx.y, n = blockDim.x * blockDim.y;
    part[t] = x[blockIdx.x * n + t];
    __syncthreads();
    T v = part[n - 1 - t];
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (t % 32 == 0) warp[t / 32] = v;
    __syncthreads();
    if (t == 0) {
        for (unsigned i = 1; i < n / 32; i++) v += warp[i];
        out[blockIdx.x] = v;
    }
}

TEST(cudasim_barriers_order_shared_memory)
{
    int x[3 * 256], out[3];
    for (int i = 0; i < 3 * 256; i++) x[i] = i * i % 97;
    for (int reverse = 0; reverse < 2; reverse++) {
        pl_sim_reverse(reverse);
        PL_LAUNCH((block_sum<int>), dim3(3), dim3(64, 4), 256 * sizeof(int), x, out);
        pl_sim_reverse(false);
        CHECK_INT(cudaGetLastError(), cudaSuccess);
        for (int b = 0; b < 3; b++) {
            int want = 0;
            for (int i = 0; i < 256; i++) want += x[b * 256 + i];
            CHECK_INT(out[b], want);
        }
    }
}

/* Two sets of threads that meet apart, one more often than the other. */
static __global__ void sets(int *out)
{
    __shared__ int part[128];
    int t = (int)threadIdx.x, which = t / 64;
    for (int i = 0; i <= which; i++) {
        part[t] = t + i;
        pl_sim_meet(which * 64, 64);
        out[t] = part[which * 64 + (t + 17) % 64];
        pl_sim_meet(which * 64, 64);
    }
}

/* As those, and then all together. */
static __global__ void sets_and_all(int *out)
{
    int which = (int)threadIdx.x / 64;
    for (int i = 0; i <= which; i++) pl_sim_meet(which * 64, 64);
    __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void stray(int *out)
{
    pl_sim_meet(32, 32);
    out[threadIdx.x] = 1;
}

TEST(cudasim_named_barriers_synchronise_sets_of_threads)
{
    int out[128];
    for (int reverse = 0; reverse < 2; reverse++) {
        pl_sim_reverse(reverse);
        PL_LAUNCH(sets, dim3(1), dim3(128), 0, out);
        pl_sim_reverse(false);
        CHECK_INT(cudaGetLastError(), cudaSuccess);
        for (int t = 0; t < 128; t++) CHECK_INT(out[t], t / 64 * 64 + (t + 17) % 64 + t / 64);
    }
    PL_LAUNCH(sets_and_all, dim3(1), dim3(64), 0, out);
    CHECK_INT(cudaGetLastError(), cudaSuccess);
    PL_LAUNCH(sets_and_all, dim3(1), dim3(128), 0, out);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK(strstr(pl_sim_error(), "more often than others"));
    PL_LAUNCH(stray, dim3(1), dim3(64), 0, out);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK(strstr(pl_sim_error(), "outside the set"));
}

static __global__ void warps(int *out)
{
    int t = (int)threadIdx.x;
    int *o = out + t * 6;
    o[0] = __shfl_up_sync(0xffffffffu, t, 3);
    o[1] = __shfl_down_sync(0xffffffffu, t, 3, 8);
    o[2] = __shfl_sync(0xffffffffu, t, 5, 16);
    o[3] = (int)__ballot_sync(0xffffffffu, t % 3 == 0);
    o[4] = (int)__match_any_sync(0xffffffffu, t % 4);
    if (t % 2)
        o[5] = __shfl_xor_sync(0xaaaaaaaau, t, 2);
    else
        o[5] = __any_sync(0x55555555u, t == 4);
}

TEST(cudasim_warp_collectives_match_their_definition)
{
    int out[40 * 6];
    PL_LAUNCH(warps, dim3(1), dim3(40), 0, out);
    CHECK_INT(cudaGetLastError(), cudaSuccess);
    unsigned third = 0;
    for (int t = 0; t < 32; t += 3) third |= 1u << t;
    for (int t = 0; t < 32; t++) {
        const int *o = out + t * 6;
        CHECK_INT(o[0], t < 3 ? t : t - 3);
        CHECK_INT(o[1], t % 8 < 5 ? t + 3 : t);
        CHECK_INT(o[2], t / 16 * 16 + 5);
        CHECK_INT((unsigned)o[3], third);
        CHECK_INT((unsigned)o[4], 0x11111111u << t % 4);
        CHECK_INT(o[5], t % 2 ? (t ^ 2) : 1);
    }
    CHECK_INT((unsigned)out[39 * 6 + 3], 1u << 1 | 1u << 4 | 1u << 7);
}

static __global__ void split_barrier(int *out)
{
    if (threadIdx.x < 8)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}
static __global__ void early_end(int *out)
{
    if (threadIdx.x >= 8) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}
static __global__ void lost_lane(int *out)
{
    if (threadIdx.x < 8) out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1);
    __syncthreads();
}

TEST(cudasim_reports_divergent_barriers_and_bad_launches)
{
    int out[16];
    PL_LAUNCH(split_barrier, dim3(1), dim3(16), 0, out);
    CHECK_INT(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK(strstr(pl_sim_error(), "different __syncthreads"));
    PL_LAUNCH(early_end, dim3(1), dim3(16), 0, out);
    CHECK_INT(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK(strstr(pl_sim_error(), "have ended"));
    PL_LAUNCH(lost_lane, dim3(1), dim3(16), 0, out);
    CHECK_INT(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK(strstr(pl_sim_error(), "hangs"));
    PL_LAUNCH(number, dim3(1), dim3(2048), 0, out, 16);
    CHECK_INT(cudaGetLastError(), cudaErrorInvalidConfiguration);
    PL_LAUNCH(number, dim3(1, 70000), dim3(32), 0, out, 16);
    CHECK_INT(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST(cudasim_half_conversions_are_the_engines)
{
    for (unsigned u = 0; u < 65536; u++) {
        float h = __half2float(__ushort_as_half((unsigned short)u));
        float b = __bfloat162float(__ushort_as_bfloat16((unsigned short)u));
        float hw = pl_f16_to_f32((uint16_t)u), bw = pl_bf16_to_f32((uint16_t)u);
        CHECK(h == hw || (h != h && hw != hw));
        CHECK(b == bw || (b != b && bw != bw));
    }
    for (uint64_t u = 0; u < 0x100000000u; u += 9973) {
        float f = __uint_as_float((unsigned)u);
        if (f != f) continue;
        CHECK_INT(__half_as_ushort(__float2half_rn(f)), pl_f32_to_f16(f));
        CHECK_INT(__bfloat16_as_ushort(__float2bfloat16_rn(f)), pl_f32_to_bf16(f));
    }
}

TEST(cudasim_fast_division_equals_division)
{
    uint64_t s = 7;
    for (int i = 0; i < 200000; i++) {
        uint32_t d = (uint32_t)((pl_test_noise(&s) + 1) * 0x1p30), n, r;
        d = (d >> i % 31) | 1u << i / 31 % 20;
        n = (uint32_t)((pl_test_noise(&s) + 1) * 0x1p30);
        if (i % 5 == 0) n = n / d * d - (n >= d);
        pl_divisor by = pl_div_by(d);
        CHECK_INT(pl_divmod(n, by, &r), n / d);
        CHECK_INT(r, n % d);
        CHECK_INT(pl_quot(0x7fffffffu, by), 0x7fffffffu / d);
    }
}
