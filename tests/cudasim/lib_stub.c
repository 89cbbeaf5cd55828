/* lib_stub.c - the simulator has no libraries: cuDNN refuses every problem, so that convolutions
 * and attention use our own kernels. */
#include "base/sys.h"
#include "cuda/attention/attention.h"
#include "cuda/conv/conv.h"

pl_status pl_conv_plan_get(const pl_conv_shape *c, pl_conv_plan **out)
{
    pl_conv_plan *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    p->problem = *c;
    *out = p;
    return PL_OK;
}

void pl_conv_plan_put(pl_conv_plan *p)
{
    pl_sys_free(p);
}

pl_status pl_conv_bind(const pl_conv_plan *p, const pl_conv_operands *x, void **bound)
{
    (void)p, (void)x, (void)bound;
    PL_FAIL(PL_ERR_UNSUPPORTED, "no cuDNN in the simulator");
}

void pl_conv_bound_free(void *bound)
{
    (void)bound;
}

pl_status pl_conv_execute(const pl_conv_plan *p, void *bound)
{
    (void)p, (void)bound;
    PL_FAIL(PL_ERR_UNSUPPORTED, "no cuDNN in the simulator");
}

bool pl_attend_wgmma_takes(const pl_attend *a)
{
    (void)a;
    return false;
}

pl_status pl_attend_wgmma_bwd(const pl_attend *a)
{
    (void)a;
    return PL_ERR_UNSUPPORTED;
}

bool pl_attend_warpgroups_fit(const pl_attend *a)
{
    (void)a;
    return false;
}

pl_status pl_attend_wgmma_rounded(const pl_attend *a, const unsigned *largest)
{
    (void)a, (void)largest;
    return PL_ERR_UNSUPPORTED;
}

pl_status pl_attend_wgmma_rounded_bwd(const pl_attend *a, const unsigned *largest)
{
    (void)a, (void)largest;
    return PL_ERR_UNSUPPORTED;
}

bool pl_attend_dnn_takes(const pl_attend *a, bool back)
{
    (void)a, (void)back;
    return false;
}

pl_status pl_attend_dnn_prepare(const pl_attend *a, bool back, void **prep, size_t *work_bytes)
{
    (void)a, (void)back, (void)prep, (void)work_bytes;
    PL_FAIL(PL_ERR_UNSUPPORTED, "no cuDNN in the simulator");
}

void pl_attend_dnn_release(void *prep)
{
    (void)prep;
}

pl_status pl_attend_dnn_run(void *prep, const pl_attend *a)
{
    (void)prep, (void)a;
    PL_FAIL(PL_ERR_UNSUPPORTED, "no cuDNN in the simulator");
}
