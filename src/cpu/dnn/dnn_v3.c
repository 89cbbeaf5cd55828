/* dnn_v3.c - dnn_api.h for oneDNN 3.x. */
#include "cpu/dnn/dnn_int.h"

#if DNNL_VERSION_MAJOR == 3

dnnl_status_t pl_dnn_md_new(const pl_mdesc *m, void **out)
{
    dnnl_memory_desc_t md;
    dnnl_status_t s;
    if (m->chosen)
        s = dnnl_memory_desc_clone(&md, m->chosen);
    else if (m->any)
        s = dnnl_memory_desc_create_with_tag(&md, m->rank, m->dim, m->type, dnnl_format_tag_any);
    else
        s = dnnl_memory_desc_create_with_strides(&md, m->rank, m->dim, m->type, m->stride);
    if (s == dnnl_success) *out = md;
    return s;
}

void pl_dnn_md_free(void *md)
{
    if (md) dnnl_memory_desc_destroy(md);
}

dnnl_status_t pl_dnn_offer_conv(pl_dnn_conv_kind kind, void *const *tensors, const pl_dnn_window *w,
                                const_dnnl_primitive_desc_t hint, pl_dnn_offer *out)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_memory_desc_t x = tensors[0], weights = tensors[1], y = tensors[2];
    *out = (pl_dnn_offer){0};
    if (kind == PL_DNN_CONV_FWD)
        return dnnl_convolution_forward_primitive_desc_create(
            &out->pd, pl_dnn_engine(), dnnl_forward_training, alg, x, weights, tensors[3], y,
            w->stride, w->dilation, w->pad_lo, w->pad_hi, pl_dnn_attr());
    if (kind == PL_DNN_CONV_BWD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            &out->pd, pl_dnn_engine(), alg, x, weights, y, w->stride, w->dilation, w->pad_lo,
            w->pad_hi, hint, pl_dnn_attr());
    return dnnl_convolution_backward_weights_primitive_desc_create(
        &out->pd, pl_dnn_engine(), alg, x, weights, NULL, y, w->stride, w->dilation, w->pad_lo,
        w->pad_hi, hint, pl_dnn_attr());
}

dnnl_status_t pl_dnn_offer_matmul(void *const *tensors, pl_dnn_offer *out)
{
    *out = (pl_dnn_offer){0};
    return dnnl_matmul_primitive_desc_create(&out->pd, pl_dnn_engine(), tensors[0], tensors[1],
                                             tensors[3], tensors[2], pl_dnn_attr());
}

dnnl_status_t pl_dnn_offer_pool(dnnl_prop_kind_t prop, dnnl_alg_kind_t alg, void *const *tensors,
                                const pl_dnn_window *w, const_dnnl_primitive_desc_t hint,
                                pl_dnn_offer *out)
{
    *out = (pl_dnn_offer){0};
    if (prop == dnnl_backward)
        return dnnl_pooling_backward_primitive_desc_create(
            &out->pd, pl_dnn_engine(), alg, tensors[0], tensors[1], w->stride, w->kernel,
            w->dilation, w->pad_lo, w->pad_hi, hint, pl_dnn_attr());
    return dnnl_pooling_forward_primitive_desc_create(
        &out->pd, pl_dnn_engine(), prop, alg, tensors[0], tensors[1], w->stride, w->kernel,
        w->dilation, w->pad_lo, w->pad_hi, pl_dnn_attr());
}

bool pl_dnn_offer_next(pl_dnn_offer *o)
{
    return dnnl_primitive_desc_next_impl(o->pd) == dnnl_success;
}

void pl_dnn_offer_end(pl_dnn_offer *o)
{
    (void)o; /* pd is all that an offer has */
}

#endif
