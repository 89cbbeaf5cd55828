/* attention_masked.cu - attention with a mask on tensor cores (attention_mma.h): f16, bf16, and f32
 * that attention_tf32.cu rounded. */
#include "cuda/attention/attention_mma.h"
#include "cuda/device/launch.h"

extern "C" pl_status pl_attend_masked_mma(const pl_attend *a, bool back, const unsigned *largest)
{
    if (largest)
        PL_TRY((run_typed<pl_f16, float, true>(a, back, largest)));
    else if (a->dtype == PL_F16)
        PL_TRY((run_typed<pl_f16, pl_f16, true>(a, back, NULL)));
    else
        PL_TRY((run_typed<pl_bf16, pl_bf16, true>(a, back, NULL)));
    PL_CUDA_LAUNCHED("attention with a mask on tensor cores");
    return PL_OK;
}

/* ---- for cuDNN ------------------------------------------------------------------------------ */
/* Four numbers of a row a thread, a block a row. heads: tables of a batch. grid: (n, tables) */
static __global__ void spread(pl_attend_mask m, int heads, int keys, int row, float *to)
{
    int64_t at = pl_mask_row(m, blockIdx.y / heads, blockIdx.y % heads, blockIdx.x);
    to += ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * row;
    for (int j = threadIdx.x * 4; j < row; j += blockDim.x * 4) {
        float x[4];
        for (int e = 0; e < 4; e++)
            x[e] = j + e < keys ? pl_mask_number<float>(m, at + (j + e) * m.key) : 0;
        *(float4 *)(to + j) = make_float4(x[0], x[1], x[2], x[3]);
    }
}

extern "C" pl_status pl_attend_mask_spread(const pl_attend *a, float *to, int64_t row)
{
    int64_t heads = a->mask.head ? a->heads : 1, tables = heads * (a->mask.batch ? a->batch : 1);
    unsigned threads = row >= 1024 ? 256 : row >= 512 ? 128 : row >= 256 ? 64 : 32;
    PL_LAUNCH((spread), dim3((unsigned)a->n, (unsigned)tables), threads, 0, a->mask, (int)heads,
              (int)a->m, (int)row, to);
    PL_CUDA_LAUNCHED("a mask for cuDNN");
    return PL_OK;
}

/* A thread a query. */
template <typename T>
static __global__ void hide(int64_t rows, int64_t n, int64_t heads, int64_t d, float *lse, T *o)
{
    for (int64_t i = PL_ITEM; i < rows; i += PL_ITEMS) {
        if (lse[i] > PL_MASK_HIDDEN) continue;
        int64_t h = i / n % heads, b = i / n / heads;
        T *at = o + ((b * n + i % n) * heads + h) * d;
        for (int64_t j = 0; j < d; j++) at[j] = pl_put<T>(0);
        lse[i] = 0;
    }
}

extern "C" pl_status pl_attend_hide(const pl_attend *a)
{
    int64_t rows = a->batch * a->heads * a->n;
    if (a->dtype == PL_F16)
        PL_LAUNCH((hide<pl_f16>), pl_blocks(rows, 256), 256, 0, rows, a->n, a->heads, a->d,
                  (float *)a->out[1], (pl_f16 *)a->out[0]);
    else
        PL_LAUNCH((hide<pl_bf16>), pl_blocks(rows, 256), 256, 0, rows, a->n, a->heads, a->d,
                  (float *)a->out[1], (pl_bf16 *)a->out[0]);
    PL_CUDA_LAUNCHED("queries that see no key");
    return PL_OK;
}
