/* attention.c - attention and its gradient without stored probabilities: who computes what. */
#include "cuda/attention.h"
#include "ops/attr.h"

#include <math.h>
#include <string.h>

static pl_attend attend_of(const pl_call *c)
{
    const pl_attention_attr *t = c->attr;
    const pl_type *q = &c->in_type[0];
    pl_attend a;
    memset(&a, 0, sizeof a);
    a.batch = q->dim[0];
    a.n = q->dim[1];
    a.heads = q->dim[2];
    a.d = q->dim[3];
    a.m = c->in_type[1].dim[1];
    a.scale = t->scale != 0 ? t->scale : 1 / sqrt((double)a.d);
    a.causal = t->causal;
    a.dtype = q->dtype;
    a.lse_type = c->n_in > 4 ? c->in_type[4].dtype : PL_F32;
    a.d_lse_type = c->n_in == 7 ? c->in_type[6].dtype : PL_F32;
    return a;
}

static void bind(pl_attend *a, const pl_call *c)
{
    a->q = c->in[0];
    a->k = c->in[1];
    a->v = c->in[2];
    for (int i = 0; i < c->n_out; i++) a->out[i] = c->out[i];
    a->work = c->work;
    if (c->n_in < 6) return;
    a->o = c->in[3];
    a->lse = c->in[4];
    a->d_o = c->in[5];
    a->d_lse = c->n_in == 7 ? c->in[6] : NULL;
}

static bool nothing(const pl_attend *a)
{
    return a->batch * a->heads * a->n == 0 || a->d == 0;
}

static bool mma_takes(const pl_call *c)
{
    pl_attend a = attend_of(c);
    return pl_attend_mma_takes(&a);
}

static bool split_takes(const pl_call *c)
{
    pl_attend a = attend_of(c);
    return pl_attend_split_takes(&a);
}

static bool f32_takes(const pl_call *c)
{
    pl_attend a = attend_of(c);
    return pl_attend_f32_takes(&a);
}

static pl_status forward(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (nothing(&a)) return PL_OK;
    bind(&a, c);
    return run(&a);
}

static pl_status backward_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_attend a = attend_of(c);
    *work_bytes = pl_attend_work(&a);
    return PL_OK;
}

static pl_status split_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_attend a = attend_of(c);
    *work_bytes = c->n_in > 3 ? pl_attend_split_bwd_work(&a) : pl_attend_split_work(&a);
    return PL_OK;
}

static pl_status f32_backward_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_attend a = attend_of(c);
    *work_bytes = pl_attend_f32_work(&a);
    return PL_OK;
}

/* Without a query nothing comes back to the keys and values. */
static pl_status backward(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (nothing(&a)) {
        for (int i = 1; i < 3; i++)
            PL_CUDA(
                cudaMemsetAsync(c->out[i], 0, pl_type_bytes(&c->out_type[i]), pl_cuda_stream()));
        return PL_OK;
    }
    bind(&a, c);
    return run(&a);
}

#define KERNEL(name)                                                                           \
    static pl_status name##_forward(const pl_call *c)                                          \
    {                                                                                          \
        return forward(c, pl_attend_##name);                                                   \
    }                                                                                          \
    static pl_status name##_backward(const pl_call *c)                                         \
    {                                                                                          \
        return backward(c, pl_attend_##name##_bwd);                                            \
    }
KERNEL(mma)
KERNEL(split)
KERNEL(f32)
KERNEL(plain)

static const pl_kernel forward_kernels[] = {{"mma", mma_takes, NULL, NULL, mma_forward},
                                            {"split", split_takes, split_prepare, NULL, split_forward},
                                            {"f32", f32_takes, NULL, NULL, f32_forward},
                                            {"plain", NULL, NULL, NULL, plain_forward},
                                            PL_KERNEL_END};
static const pl_kernel backward_kernels[] = {
    {"mma", mma_takes, backward_prepare, NULL, mma_backward},
    {"split", split_takes, split_prepare, NULL, split_backward},
    {"f32", f32_takes, f32_backward_prepare, NULL, f32_backward},
    {"plain", NULL, backward_prepare, NULL, plain_backward},
    PL_KERNEL_END};

extern const pl_cuda_entry pl_cuda_attention[];
const pl_cuda_entry pl_cuda_attention[] = {
    {"attention", forward_kernels}, {"attention_bwd", backward_kernels}, {NULL, NULL}};
