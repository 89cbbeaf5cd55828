/* lib_stub.c - the simulator has no libraries: cuDNN has nothing for any problem, so that convolutions
 * come to our own kernels; products of f32 matrices are plain loops, for kernels that lean on them. */
#include "base/sys.h"
#include "cuda/conv.h"
#include "ops/attr.h"

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

static bool matrices(const pl_call *c)
{
    return c->out_type[0].dtype == PL_F32 && c->in_type[0].rank == 2 && c->in_type[1].rank == 2;
}

static pl_status multiply(const pl_call *c)
{
    const pl_matmul_attr *t = c->attr;
    const float *a = c->in[0], *b = c->in[1], *bias = c->n_in == 3 ? c->in[2] : NULL;
    float *y = c->out[0];
    int64_t m = c->out_type[0].dim[0], n = c->out_type[0].dim[1], k = c->in_type[0].dim[t->ta ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = bias ? (double)bias[j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[t->ta ? l * m + i : i * k + l] * (double)b[t->tb ? j * k + l : l * n + j];
            y[i * n + j] = (float)sum;
        }
    return PL_OK;
}

static const pl_kernel loops[] = {{"loops", matrices, NULL, NULL, multiply}, PL_KERNEL_END};
extern const pl_cuda_entry pl_cuda_matmul[];
const pl_cuda_entry pl_cuda_matmul[] = {{"matmul", loops}, {NULL, NULL}};
