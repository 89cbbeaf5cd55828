/* matmul_split.c - f32 products on TF32 units (split.h): which products, and their tails.
 *
 * Bias, addition and ReLU are part of the kernel, any other tail is a separate pass. Operands that
 * are misaligned because of a view go to cuBLASLt.
 */
#include "base/sys.h"
#include "cuda/matmul/matmul.h"
#include "cuda/matmul/split.h"

typedef struct prepared {
    pl_product p;
    pl_split_product s;
    void *plain; /* cuBLASLt's product, for misaligned operands */
} prepared;

static pl_split_product split_of(const pl_product *p)
{
    pl_split_product s = {.batch = p->batch, .m = p->m, .n = p->n, .k = p->k};
    s.a = p->ta ? PL_SPLIT_COLS : PL_SPLIT_ROWS;
    s.b = p->tb ? PL_SPLIT_ROWS : PL_SPLIT_COLS;
    s.a_ld = p->ta ? p->m : p->k;
    s.b_ld = p->tb ? p->k : p->n;
    s.a_step = p->a_step;
    s.b_step = p->b_step;
    if (!p->ta && !p->b_step && p->a_step) { /* one matrix for all batches: rows are contiguous */
        s.m *= s.batch;
        s.batch = 1;
        s.a_step = 0;
    }
    return s;
}

static bool pays(const pl_product *p)
{
    pl_split_product s = split_of(p);
    return p->dtype == PL_F32 && pl_cuda_split() && pl_split_pays(&s);
}

bool pl_product_split_takes(const pl_product *p)
{
    return !pl_cuda_tf32() && pays(p);
}

bool pl_product_split_can(const pl_product *p)
{
    return pl_cuda_tf32() && pays(p);
}

void pl_product_split_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    pl_product_lt_release(h->plain);
    pl_sys_free(h);
}

pl_status pl_product_split_prepare(const pl_product *p, void **prep, size_t *work_bytes)
{
    size_t aside = 0; /* cuBLASLt has no workspace for misaligned operands */
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->p = *p;
    h->s = split_of(p);
    pl_status rc = pl_split_plan(&h->s)
                       ? pl_product_lt_prepare(p, PL_PRODUCT_WHOLE, &h->plain, &aside)
                       : PL_ERR_UNSUPPORTED;
    if (rc != PL_OK) {
        pl_product_split_release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(pl_split_work(&h->s));
    *prep = h;
    return PL_OK;
}

pl_status pl_product_split_run(const pl_call *c)
{
    const prepared *h = c->prep;
    const pl_product *p = &h->p;
    pl_product_operands x = pl_product_operands_of(p, c);
    const void *at[7] = {x.a, x.b, x.y, x.bias, x.add, x.slope_at, x.keep};
    if (!pl_cuda_aligned(at, 7)) {
        pl_call other = *c;
        other.prep = h->plain;
        return pl_product_lt_run(&other);
    }
    bool inside = !p->keep && !p->slope && (p->act == PL_ACT_NONE || p->act == PL_ACT_RELU);
    pl_split_tail t = {inside ? x.bias : NULL, inside ? x.add : NULL,
                       inside && p->act == PL_ACT_RELU};
    PL_TRY(pl_split_run(&h->s, x.a, x.b, &t, x.y, x.work));
    if (inside) return PL_OK;
    pl_cuda_tail behind = {x.bias, x.add, x.slope_at, x.keep, p->act, 0};
    return pl_cuda_tail_run(p->dtype, x.y, p->batch * p->m, p->n, &behind);
}
