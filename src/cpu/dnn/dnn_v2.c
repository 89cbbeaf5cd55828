/* dnn_v2.c - dnn_api.h for oneDNN 2.5 and later 2.x. */
#include "cpu/dnn/dnn_int.h"

#if DNNL_VERSION_MAJOR == 2

# include "base/sys.h"

/* The iterator points at its op descriptor, so both live as long as the offer. */
typedef struct rest {
    dnnl_primitive_desc_iterator_t it;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_matmul_desc_t matmul;
        dnnl_pooling_v2_desc_t pool;
    } op;
} rest;

dnnl_status_t pl_dnn_md_new(const pl_mdesc *m, void **out)
{
    dnnl_memory_desc_t *md = pl_sys_alloc(sizeof *md);
    if (!md) return dnnl_out_of_memory;
    dnnl_status_t s = dnnl_success;
    if (m->chosen)
        *md = *(const dnnl_memory_desc_t *)m->chosen;
    else if (m->any)
        s = dnnl_memory_desc_init_by_tag(md, m->rank, m->dim, m->type, dnnl_format_tag_any);
    else
        s = dnnl_memory_desc_init_by_strides(md, m->rank, m->dim, m->type, m->stride);
    if (s == dnnl_success)
        *out = md;
    else
        pl_sys_free(md);
    return s;
}

void pl_dnn_md_free(void *md)
{
    pl_sys_free(md);
}

/* The first kernel for the described operation; status is that of the description. */
static dnnl_status_t first(dnnl_status_t status, rest *r, const_dnnl_primitive_desc_t hint,
                           pl_dnn_offer *out)
{
    if (status == dnnl_success)
        status = dnnl_primitive_desc_iterator_create(&r->it, &r->op, pl_dnn_attr(), pl_dnn_engine(),
                                                     hint);
    if (status == dnnl_success) {
        *out = (pl_dnn_offer){.pd = dnnl_primitive_desc_iterator_fetch(r->it), .rest = r};
        if (out->pd) return dnnl_success;
        status = dnnl_out_of_memory;
        dnnl_primitive_desc_iterator_destroy(r->it);
    }
    pl_sys_free(r);
    return status;
}

dnnl_status_t pl_dnn_offer_conv(pl_dnn_conv_kind kind, void *const *tensors, const pl_dnn_window *w,
                                const_dnnl_primitive_desc_t hint, pl_dnn_offer *out)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_memory_desc_t *x = tensors[0], *weights = tensors[1], *y = tensors[2];
    rest *r = pl_sys_alloc(sizeof *r);
    dnnl_status_t s;
    if (!r) return dnnl_out_of_memory;
    if (kind == PL_DNN_CONV_FWD)
        s = dnnl_dilated_convolution_forward_desc_init(&r->op.conv, dnnl_forward_training, alg, x,
                                                       weights, tensors[3], y, w->stride,
                                                       w->dilation, w->pad_lo, w->pad_hi);
    else if (kind == PL_DNN_CONV_BWD_DATA)
        s = dnnl_dilated_convolution_backward_data_desc_init(
            &r->op.conv, alg, x, weights, y, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    else
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            &r->op.conv, alg, x, weights, NULL, y, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    return first(s, r, hint, out);
}

dnnl_status_t pl_dnn_offer_matmul(void *const *tensors, pl_dnn_offer *out)
{
    rest *r = pl_sys_alloc(sizeof *r);
    if (!r) return dnnl_out_of_memory;
    dnnl_status_t s =
        dnnl_matmul_desc_init(&r->op.matmul, tensors[0], tensors[1], tensors[3], tensors[2]);
    return first(s, r, NULL, out);
}

dnnl_status_t pl_dnn_offer_pool(dnnl_prop_kind_t prop, dnnl_alg_kind_t alg, void *const *tensors,
                                const pl_dnn_window *w, const_dnnl_primitive_desc_t hint,
                                pl_dnn_offer *out)
{
    rest *r = pl_sys_alloc(sizeof *r);
    dnnl_status_t s;
    if (!r) return dnnl_out_of_memory;
    if (prop == dnnl_backward)
        s = dnnl_pooling_v2_backward_desc_init(&r->op.pool, alg, tensors[0], tensors[1], w->stride,
                                               w->kernel, w->dilation, w->pad_lo, w->pad_hi);
    else
        s = dnnl_pooling_v2_forward_desc_init(&r->op.pool, prop, alg, tensors[0], tensors[1],
                                              w->stride, w->kernel, w->dilation, w->pad_lo,
                                              w->pad_hi);
    return first(s, r, hint, out);
}

bool pl_dnn_offer_next(pl_dnn_offer *o)
{
    rest *r = o->rest;
    if (dnnl_primitive_desc_iterator_next(r->it) != dnnl_success) return false;
    dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(r->it);
    if (!pd) return false;
    dnnl_primitive_desc_destroy(o->pd);
    o->pd = pd;
    return true;
}

void pl_dnn_offer_end(pl_dnn_offer *o)
{
    rest *r = o->rest;
    dnnl_primitive_desc_iterator_destroy(r->it);
    pl_sys_free(r);
    o->rest = NULL;
}

#endif
