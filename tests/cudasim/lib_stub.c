/* lib_stub.c - the simulator has no libraries: cuDNN has nothing for any problem, so that
 * convolutions come to our own kernels. */
#include "base/sys.h"
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
