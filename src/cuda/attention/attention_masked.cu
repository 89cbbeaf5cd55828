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
