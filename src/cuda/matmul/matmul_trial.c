/* matmul_trial.c - operands of a product whose algorithms are timed. */
#include "base/dtype.h"
#include "cuda/matmul/matmul.h"

static size_t room(int64_t elems, pl_dtype d)
{
    return ((size_t)elems * pl_dtype_bytes(d) + 255) & ~(size_t)255;
}

/* Draws both factors: a GPU multiplies zeros faster than numbers. */
static pl_status draw_factors(const pl_product *p, void *a, void *b)
{
    const pl_init normal = {.kind = PL_INIT_NORMAL, .b = 1};
    int64_t n_a = p->m * p->k * (p->a_step ? p->batch : 1);
    int64_t n_b = p->k * p->n * (p->b_step ? p->batch : 1);
    PL_TRY(pl_cuda_start_values(a, p->dtype, 1, 0, &normal, 0, n_a));
    return pl_cuda_start_values(b, p->dtype, 1, 1, &normal, 0, n_b);
}

void *pl_product_trial_operands(const pl_product *p, size_t work, pl_product_operands *x)
{
    size_t a = room(p->m * p->k * (p->a_step ? p->batch : 1), p->dtype);
    size_t b = room(p->k * p->n * (p->b_step ? p->batch : 1), p->dtype);
    size_t bias = room(p->n, p->dtype), y = room(p->m * p->n * p->batch, p->dtype);
    bool more = p->add || p->keep || p->slope;
    void *block = NULL;
    if (cudaMalloc(&block, a + b + bias + y + (more ? y : 0) + work) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    char *at = block, *other = at + a + b + bias + y;
    if (cudaMemsetAsync(block, 0, a + b + bias + y + (more ? y : 0), pl_cuda_stream()) !=
            cudaSuccess ||
        draw_factors(p, at, at + a) != PL_OK) {
        cudaFree(block);
        return NULL;
    }
    *x = (pl_product_operands){.a = at, .b = at + a, .bias = at + a + b, .y = at + a + b + bias};
    if (p->add) x->add = other;
    if (p->slope) x->slope_at = other;
    if (p->keep) x->keep = other;
    x->work = other + (more ? y : 0);
    return block;
}
