/* dnn_pool.c - max and average pools and their gradients on oneDNN. */
#include "cpu/dnn/dnn_int.h"

#include <string.h>

static pl_status check_pool(const pl_dnn_pool_desc *p, bool max)
{
    PL_TRY(pl_dnn_check_window("pool", p->n_spatial, p->in, p->out, p->kernel, p->stride,
                               p->dilation, p->pad_lo, p->pad_hi));
    PL_FAIL_IF(p->n < 1 || p->c < 1, PL_ERR_SHAPE, "pool of %lld samples of %lld channels",
               (long long)p->n, (long long)p->c);
    int64_t elems = 1;
    for (int i = 0; i < p->n_spatial; i++) elems *= p->kernel[i];
    PL_FAIL_IF(max && elems > 255, PL_ERR_UNSUPPORTED,
               "a max pool window of %lld elements: a byte holds its index only up to 255",
               (long long)elems);
    return PL_OK;
}

typedef struct pool_plan {
    bool fwd, index;
    pl_mdesc x, y, ix;
    dnnl_alg_kind_t alg;
} pool_plan;

static pl_status pool_plan_init(pool_plan *q, pl_dnn_pool_kind kind, const pl_dnn_pool_desc *p)
{
    const bool max = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD;
    q->fwd = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_AVG_FWD;
    q->index = max && (!q->fwd || p->index);
    q->alg = max            ? dnnl_pooling_max
             : p->count_pad ? dnnl_pooling_avg_include_padding
                            : dnnl_pooling_avg_exclude_padding;
    dnnl_data_type_t type = dnnl_f32;
    PL_TRY(pl_dnn_data_type(p->dtype, &type));
    q->x = pl_dnn_activation_md(type, p->n_spatial, p->n, p->c, p->in);
    q->y = pl_dnn_activation_md(type, p->n_spatial, p->n, p->c, p->out);
    q->ix = pl_dnn_activation_md(dnnl_u8, p->n_spatial, p->n, p->c, p->out);
    return PL_OK;
}

static pl_status pool_offer(const pool_plan *q, const pl_dnn_pool_desc *p, dnnl_prop_kind_t prop,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const pl_dnn_window w =
        pl_dnn_window_make(p->n_spatial, p->kernel, p->stride, p->dilation, p->pad_lo, p->pad_hi);
    void *mds[2];
    pl_dnn_offer o;
    PL_TRY(pl_dnn_mds_new((const pl_mdesc *[]){&q->x, &q->y}, 2, mds));
    pl_status s = pl_dnn_choose(pl_dnn_offer_pool(prop, q->alg, mds, &w, hint, &o), &o, p->dtype,
                                NULL, "pool", out);
    pl_dnn_mds_free(mds, 2);
    return s;
}

/* Chooses the kernel of a pool. A backward pool needs the descriptor of the forward pool as a
 * hint. */
static pl_status pool_choose(const pool_plan *q, const pl_dnn_pool_desc *p,
                             dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t hint;
    if (q->fwd)
        return pool_offer(q, p, q->index ? dnnl_forward_training : dnnl_forward_inference, NULL,
                          out);
    PL_TRY(pool_offer(q, p, dnnl_forward_training, NULL, &hint));
    pl_status s = pool_offer(q, p, dnnl_backward, hint, out);
    dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status pool_steps(pl_dnn *d, const pool_plan *q, dnnl_primitive_desc_t pd)
{
    const pl_mdesc index_md = pl_dnn_chosen_md(pd, dnnl_query_workspace_md);
    bool same = true;
    const pl_dnn_place y_place = q->fwd ? PL_DNN_OUT : PL_DNN_IN;
    int x, y, index = 0;
    if (q->index) PL_TRY(pl_dnn_same_md(&index_md, &q->ix, &same));
    PL_FAIL_IF(!same, PL_ERR_UNSUPPORTED, "oneDNN keeps the indices of this pool in another form");
    PL_TRY(pl_dnn_add_operand(d, &q->x, q->fwd ? PL_DNN_IN : PL_DNN_OUT, 0, &x));
    PL_TRY(pl_dnn_add_operand(d, &q->y, y_place, 0, &y));
    if (q->index) PL_TRY(pl_dnn_add_operand(d, &q->ix, y_place, 1, &index));
    return pl_dnn_add_step(d, pd, q->index ? 3 : 2,
                           (const int[][2]){{q->fwd ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, x},
                                            {q->fwd ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y},
                                            {DNNL_ARG_WORKSPACE, index}});
}

static pl_status pool_build(pl_dnn *d, pl_dnn_pool_kind kind, const pl_dnn_pool_desc *p)
{
    pool_plan q;
    dnnl_primitive_desc_t pd;
    PL_TRY(pool_plan_init(&q, kind, p));
    PL_TRY(pool_choose(&q, p, &pd));
    pl_dnn_note_impl(d, pl_dnn_impl_of(pd));
    pl_status s = pool_steps(d, &q, pd);
    dnnl_primitive_desc_destroy(pd);
    return s;
}

pl_status pl_dnn_pool_prepare(pl_dnn_pool_kind kind, const pl_dnn_pool_desc *desc, pl_dnn **out,
                              size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_pool(desc, kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD));
    PL_TRY(pl_dnn_new(&d));
    return pl_dnn_hand_over(pool_build(d, kind, desc), d, out, work_bytes);
}
