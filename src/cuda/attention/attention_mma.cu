/* attention_mma.cu - attention of f16 and bf16 on tensor cores (attention_mma.h). */
#include "cuda/attention/attention_mma.h"
#include "cuda/device/launch.h"

static pl_status run(const pl_attend *a, bool back)
{
    if (a->masked) return pl_attend_masked_mma(a, back, NULL);
    PL_TRY((a->dtype == PL_F16 ? run_typed<pl_f16, pl_f16, false>(a, back, NULL)
                               : run_typed<pl_bf16, pl_bf16, false>(a, back, NULL)));
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
