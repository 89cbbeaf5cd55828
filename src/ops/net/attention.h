/* attention.h - shared by attention of separate tensors and of packed rows. */
#ifndef PL_OPS_ATTENTION_H
#define PL_OPS_ATTENTION_H

#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"

PL_SHARED_BEGIN
/* What a call of attention, attention_rows or one of their gradients computes. */
typedef struct pl_attention_sizes {
    int64_t batch, n, m, heads, d;
    int64_t group;               /* heads of queries that read one head of keys and values */
    int64_t row, step;           /* of q and its gradient: elements between tokens, between heads */
    int64_t keys_row, keys_step; /* of k, v and their gradients */
    double scale;
    bool causal, packed, back, d_lse; /* d_lse: a gradient has that operand */
    bool masked;
    pl_dtype dtype, lse_type, d_lse_type;
    /* of the mask: bool or a float type; elements from one batch, head, query and key to the
     * next */
    pl_dtype mask_type;
    int64_t mask_step[4];
} pl_attention_sizes;

typedef struct pl_attention_operands {
    const void *in[3];                 /* q, k, v */
    const void *mask;                  /* NULL: none */
    const void *o, *lse, *d_o, *d_lse; /* of a gradient; d_lse may be NULL */
    void *out[3];                      /* o, lse;  dq, dk, dv */
} pl_attention_operands;

pl_attention_sizes pl_attention_sizes_of(const pl_call *c);
pl_attention_operands pl_attention_operands_of(const pl_call *c);
PL_SHARED_END

/* The smallest number that a mask adds to a score; also the value that a mask of bool adds where it
 * is false. A query whose scores are all below PL_ATTENTION_HIDDEN sees no key: its result, its lse
 * and its gradients are 0. */
#define PL_ATTENTION_LEAST  (-2e30)
#define PL_ATTENTION_HIDDEN (-1e30)

pl_cost pl_attention_cost(const pl_call *c, bool back);
pl_status pl_attention_flash_prepare(const pl_call *c, void **prep, size_t *work_bytes) PL_MUST_USE;
pl_status pl_attention_flash_run(const pl_call *c) PL_MUST_USE;
pl_status pl_attention_ref_prepare(const pl_call *c, void **prep, size_t *work_bytes) PL_MUST_USE;
pl_status pl_attention_ref_run(const pl_call *c) PL_MUST_USE;
/* The derivative of attention_bwd, and with a mask (operand 3) of attention_masked_bwd. */
void pl_attention_bwd_vjp(const pl_vjp *v);
void pl_attention_masked_bwd_vjp(const pl_vjp *v);
/* The gradient of the mask of an attention over q, k, v, mask with results o and lse, in
 * primitives. */
pl_val pl_attention_mask_grad(pl_graph *g, const void *attr, const pl_val *in, pl_val o, pl_val lse,
                              pl_val d_o, pl_val d_lse);

/* attention_padded.c */
/* Returns the size to which heads of d numbers are padded; 0: fast kernels take them unpadded, or
 * gain nothing. n, m: queries and keys. */
int64_t pl_attention_whole_head(const pl_padding *p, pl_dtype type, int64_t n, int64_t m,
                                int64_t d);
/* pl_op.padded of an op that computes attention; op: the op to build. Of a gradient, `first` is the
 * number of its operand o. */
bool pl_attention_padded(pl_graph *g, const pl_op *op, const pl_padding *p, const void *attr,
                         const pl_val *in, int n_in, pl_val *out);
bool pl_attention_bwd_padded(pl_graph *g, const pl_op *op, int first, const pl_padding *p,
                             const void *attr, const pl_val *in, int n_in, pl_val *out);

/* attention_rows.c: PL_NO_VAL where q, k and v are not parts of the rows of one value. */
pl_val pl_attention_of_rows(pl_graph *g, pl_val q, pl_val k, pl_val v, double scale, bool causal);

#define PL_ATTENTION_KERNELS(op)                                                                   \
 static const pl_kernel op##_fast[] = {                                                            \
     {"flash", all_f32, pl_attention_flash_prepare, NULL, pl_attention_flash_run}, PL_KERNEL_END}; \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {                                                         \
     {"flash", all_f32, pl_attention_flash_prepare, NULL, pl_attention_flash_run},                 \
     PL_VIA_F32_KERNEL(op),                                                                        \
     {"ref", NULL, pl_attention_ref_prepare, NULL, pl_attention_ref_run},                          \
     PL_KERNEL_END};

#endif
