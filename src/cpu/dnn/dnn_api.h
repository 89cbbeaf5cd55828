/* dnn_api.h - the calls that oneDNN 2.x and 3.x spell differently.
 *
 * dnn_v2.c implements this header for oneDNN 2.x from 2.2 on, dnn_v3.c for 3.x. The version of
 * oneDNN's headers decides which of the two has code; no other file asks for the version.
 *
 *                    2.x                                   3.x
 *   layouts          public structs                        handles that are created and destroyed
 *   operations       op descriptors                        none: kernels are described at once
 *   other kernels    an iterator over an op descriptor     a kernel's descriptor moves on in place
 *
 * A layout is plain data of ours (pl_mdesc). oneDNN's own exist only while a call needs them, or
 * belong to the kernel that chose them. An offer is a kernel that oneDNN has for an operation: `pd`
 * is its descriptor, and pl_dnn_offer_next replaces the kernel by the next kernel in oneDNN's
 * ranking.
 */
#ifndef PL_CPU_DNN_API_H
#define PL_CPU_DNN_API_H

#include "cpu/dnn/dnn.h"

#include <oneapi/dnnl/dnnl.h>

/* Strides are in elements. A dim's stride must be at least the extent of the dims with smaller
 * strides, also where the dim has one element: oneDNN refuses other layouts. */
typedef struct pl_mdesc {
    dnnl_data_type_t type;
    int rank;
    dnnl_dims_t dim, stride;
    bool any;           /* the kernel chooses the strides */
    const void *chosen; /* oneDNN's descriptor of the layout that a kernel chose; the kernel's own.
                         * NULL: the members above */
} pl_mdesc;

/* m as oneDNN's own descriptor. */
dnnl_status_t pl_dnn_md_new(const pl_mdesc *m, void **out);
void pl_dnn_md_free(void *md); /* NULL is fine */

/* A window as oneDNN takes it: arrays of its own length, dilation counted from 0. */
typedef struct pl_dnn_window {
    dnnl_dims_t kernel, stride, dilation, pad_lo, pad_hi;
} pl_dnn_window;

typedef struct pl_dnn_offer {
    dnnl_primitive_desc_t pd; /* the owner of the offer destroys it */
    void *rest;               /* what pl_dnn_offer_next needs besides pd */
} pl_dnn_offer;

/* Operations. tensors are oneDNN's descriptors (pl_dnn_md_new), in the order of the comments; hint
 * is the forward kernel of a backward kernel. */
enum { PL_DNN_MAX_TENSORS = 4 };

/* x, w, y, bias or NULL */
dnnl_status_t pl_dnn_offer_conv(pl_dnn_conv_kind kind, void *const *tensors, const pl_dnn_window *w,
                                const_dnnl_primitive_desc_t hint, pl_dnn_offer *out);
/* A, B, C, bias or NULL */
dnnl_status_t pl_dnn_offer_matmul(void *const *tensors, pl_dnn_offer *out);
/* x, y; prop: forward with or without indices, or dnnl_backward */
dnnl_status_t pl_dnn_offer_pool(dnnl_prop_kind_t prop, dnnl_alg_kind_t alg, void *const *tensors,
                                const pl_dnn_window *w, const_dnnl_primitive_desc_t hint,
                                pl_dnn_offer *out);

/* False, and the offer is as it was, behind the last kernel. */
bool pl_dnn_offer_next(pl_dnn_offer *o);
/* Ends an offer; pd stays. */
void pl_dnn_offer_end(pl_dnn_offer *o);

#endif
