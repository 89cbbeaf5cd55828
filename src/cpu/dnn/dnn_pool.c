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
    PL_TRY(pl_dnn_activation_md(&q->x, type, p->n_spatial, p->n, p->c, p->in));
    PL_TRY(pl_dnn_activation_md(&q->y, type, p->n_spatial, p->n, p->c, p->out));
    return pl_dnn_activation_md(&q->ix, dnnl_u8, p->n_spatial, p->n, p->c, p->out);
}

/* A backward pool is chosen to fit the forward one, which is then only a hint. */
static pl_status pool_choose(const pool_plan *q, const pl_dnn_pool_desc *p,
                             dnnl_primitive_desc_t *out)
{
    const pl_dnn_window w =
        pl_dnn_window_make(p->n_spatial, p->kernel, p->stride, p->dilation, p->pad_lo, p->pad_hi);
    const dnnl_prop_kind_t prop =
        q->fwd && !q->index ? dnnl_forward_inference : dnnl_forward_training;
    dnnl_pooling_v2_desc_t op;
    PL_TRY(pl_dnn_check(dnnl_pooling_v2_forward_desc_init(&op, prop, q->alg, &q->x, &q->y, w.stride,
                                                          w.kernel, w.dilation, w.pad_lo, w.pad_hi),
                        "describe a pool"));
    PL_TRY(pl_dnn_choose(&op, p->dtype, NULL, NULL, "pool", out));
    if (q->fwd) return PL_OK;
    dnnl_primitive_desc_t hint = *out;
    pl_status s =
        pl_dnn_check(dnnl_pooling_v2_backward_desc_init(&op, q->alg, &q->x, &q->y, w.stride,
                                                        w.kernel, w.dilation, w.pad_lo, w.pad_hi),
                     "describe a pool");
    if (s == PL_OK) s = pl_dnn_choose(&op, p->dtype, hint, NULL, "pool", out);
    dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status pool_steps(pl_dnn *d, const pool_plan *q, dnnl_primitive_desc_t pd)
{
    const pl_mdesc *ws = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    const pl_dnn_place y_place = q->fwd ? PL_DNN_OUT : PL_DNN_IN;
    int x, y, index = 0;
    PL_FAIL_IF(q->index && !dnnl_memory_desc_equal(ws, &q->ix), PL_ERR_UNSUPPORTED,
               "oneDNN keeps the indices of this pool in another form");
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
