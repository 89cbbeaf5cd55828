/* attention_mma.cu - attention of f16 and bf16 on tensor cores (attention_mma.h). */
#include "cuda/attention/attention_mma.h"
#include "cuda/device/launch.h"

template <typename T> static pl_status run_typed(const pl_attend *a, bool back)
{
    if (a->d <= 32) return run_sized<T, T, 32>(a, back, NULL);
    if (a->d <= 64) return run_sized<T, T, 64>(a, back, NULL);
    return a->d <= 128 ? run_sized<T, T, 128>(a, back, NULL) : run_sized<T, T, 256>(a, back, NULL);
}

static pl_status run(const pl_attend *a, bool back)
{
    PL_TRY(a->dtype == PL_F16 ? run_typed<pl_f16>(a, back) : run_typed<pl_bf16>(a, back));
    PL_CUDA_LAUNCHED("attention on tensor cores");
    return PL_OK;
}

extern "C" bool pl_attend_mma_takes(const pl_attend *a)
{
    return (a->dtype == PL_F16 || a->dtype == PL_BF16) && fits(a);
}

extern "C" pl_status pl_attend_mma(const pl_attend *a)
{
    return run(a, false);
}

extern "C" pl_status pl_attend_mma_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    return run(a, true);
}
