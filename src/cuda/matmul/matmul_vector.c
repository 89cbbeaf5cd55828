/* matmul_vector.c - which products are a matrix times a vector (vector.h): products with one row or
 * one column, and a separate matrix for each batch. Batches that share a matrix are products of
 * matrices. */
#include "cuda/matmul/matmul.h"
#include "cuda/matmul/vector.h"

static bool vector_of(const pl_product *p, pl_vector_product *v)
{
    bool first = p->n == 1; /* the first operand is the matrix */
    int64_t matrix = first ? p->a_step : p->b_step, vector = first ? p->b_step : p->a_step;
    if ((p->m != 1 && p->n != 1) || (p->batch > 1 && matrix == 0)) return false;
    *v = (pl_vector_product){.dtype = p->dtype,
                             .batch = p->batch,
                             .n = first ? p->m : p->n,
                             .k = p->k,
                             .step = p->batch > 1 ? vector : 0,
                             .columns = first ? p->ta : !p->tb,
                             .bias_each = !first};
    return pl_vector_plan(v);
}

bool pl_product_vector_takes(const pl_product *p)
{
    pl_vector_product v;
    return vector_of(p, &v);
}

size_t pl_product_vector_work(const pl_product *p)
{
    pl_vector_product v;
    return vector_of(p, &v) ? pl_vector_work(&v) : 0;
}

pl_status pl_product_vector_run(const pl_call *c)
{
    pl_product p = pl_product_of(c, NULL, false);
    pl_vector_product v;
    PL_FAIL_IF(!vector_of(&p, &v), PL_ERR_UNSUPPORTED, "not a matrix times a vector");
    const void *bias = p.bias ? c->in[2] : NULL;
    return pl_vector_run(&v, c->in[p.n != 1], c->in[p.n == 1], bias, c->out[0], c->work);
}
