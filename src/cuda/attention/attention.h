/* attention.h - shared by the files of attention.
 *
 * q, o, d_o, dq are [B,N,H,D], k, v [B,M,H/group,D], lse and d_lse [B,H,N]; q, k, v, dq, dk and dv
 * may be parts of larger rows (`row`, `step`). Head h of the queries reads head h / group of keys
 * and values where they lie. Kernels write dk and dv as [B,M,H,D], one for each head of queries;
 * attention.c gives them scratch for that where group > 1, and pl_attend_sum_groups adds the heads
 * of a group in order. See ops/net/attention.c for the formulas. Valid C++ too.
 */
#ifndef PL_CUDA_ATTENTION_H
#define PL_CUDA_ATTENTION_H

#include "cuda/device/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers that are added to scores, or bool: where false, a query does not see a key (see
 * ops/net/attention_masked.c). */
typedef struct pl_attend_mask {
    const void *at;                  /* NULL: none */
    int64_t batch, head, query, key; /* elements from one to the next */
    pl_dtype type;
} pl_attend_mask;

typedef struct pl_attend {
    int64_t batch, n, m, heads, d, group;
    /* of q and all gradients: elements from one token to the next, from one head to the next; heads
     * * d and d where they are separate tensors */
    int64_t row, step;
    int64_t keys_row, keys_step; /* of k and v */
    double scale;
    bool causal, masked;
    pl_dtype dtype; /* of all but lse, d_lse and the mask */
    pl_dtype lse_type, d_lse_type;
    pl_attend_mask mask;
    const void *q, *k, *v;
    const void *o, *lse, *d_o, *d_lse; /* backward; d_lse may be NULL */
    void *out[3];                      /* o, lse;  dq, dk, dv */
    void *work;
    /* bytes that gradients of scores may take of it, approximate; 0: as many as are useful */
    int64_t room;
} pl_attend;

/* Sizes in the form that the tiled kernels use. */
typedef struct pl_attend_shape {
    int n, m, heads, d, group, row, step, keys_row, keys_step;
    float scale;
    bool causal, wide; /* wide: rows of operands and results are multiples of 16 bytes */
    pl_attend_mask mask;
} pl_attend_shape;
/* Whether q, k and v lie in one row. */
static inline bool pl_attend_packed(const pl_attend *a)
{
    return a->row != a->heads * a->d || a->step != a->d;
}
/* p: the n pointers that must be multiples of 16 bytes for wide rows. */
static inline pl_attend_shape pl_attend_shape_of(const pl_attend *a, const void *const *p, int n)
{
    pl_attend_shape z;
    z.n = (int)a->n;
    z.m = (int)a->m;
    z.heads = (int)a->heads;
    z.d = (int)a->d;
    z.group = (int)a->group;
    z.row = (int)a->row;
    z.step = (int)a->step;
    z.keys_row = (int)a->keys_row;
    z.keys_step = (int)a->keys_step;
    z.scale = (float)a->scale;
    z.causal = a->causal;
    z.mask = a->mask;
    z.wide = a->d * (int64_t)pl_dtype_bytes(a->dtype) % 16 == 0 && pl_cuda_aligned(p, n);
    return z;
}

/* Writes the sums of groups of heads of `from` [B,M,H,D] to `to` [B,M,H/group,D]. */
pl_status pl_attend_sum_groups(const pl_attend *a, const void *from, void *to) PL_MUST_USE;
/* Returns the scratch of backward: two numbers per query. */
size_t pl_attend_work(const pl_attend *a);
/* Writes delta[b,h,i] = sum_d o d_o - d_lse to work, in the type of sums (f32; f64 for f64);
 * converts lse of another type and stores it after delta. */
pl_status pl_attend_delta(const pl_attend *a) PL_MUST_USE;
/* Returns lse in the type of sums; call pl_attend_delta before. */
static inline const void *pl_attend_lse(const pl_attend *a)
{
    size_t each = a->dtype == PL_F64 ? 8 : 4;
    if (a->lse_type == (a->dtype == PL_F64 ? PL_F64 : PL_F32)) return a->lse;
    return (const char *)a->work + each * (size_t)(a->batch * a->heads * a->n);
}
/* One block per query or key, any sizes and types: the fallback. */
pl_status pl_attend_plain(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_plain_bwd(const pl_attend *a) PL_MUST_USE;

/* On tensor cores: f16 and bf16, heads of up to 256. attention_mma.cu */
bool pl_attend_mma_takes(const pl_attend *a);
pl_status pl_attend_mma(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_mma_bwd(const pl_attend *a) PL_MUST_USE;
/* The same with a mask. largest: NULL, or of f32 operands that were rounded to f16, with results of
 * f32. attention_masked.cu */
pl_status pl_attend_masked_mma(const pl_attend *a, bool back, const unsigned *largest) PL_MUST_USE;
/* Writes the numbers that a mask adds to scores as f32 rows of `row` elements: a table [N, row] for
 * each batch and head in which the mask differs. */
pl_status pl_attend_mask_spread(const pl_attend *a, float *to, int64_t row) PL_MUST_USE;
/* Zeroes o and lse of queries that see no key, whose lse says so. attention_masked.cu */
pl_status pl_attend_hide(const pl_attend *a) PL_MUST_USE;
/* The same types by cuDNN, where it has an engine that is worth it; heads of up to 256 that come in
 * eights, operands at multiples of 16 bytes. back: the gradient, without d_lse. attention_dnn.c */
bool pl_attend_dnn_takes(const pl_attend *a, bool back);
pl_status pl_attend_dnn_prepare(const pl_attend *a, bool back, void **prep,
                                size_t *work_bytes) PL_MUST_USE;
void pl_attend_dnn_release(void *prep); /* NULL is fine */
pl_status pl_attend_dnn_run(void *prep, const pl_attend *a) PL_MUST_USE;
/* The gradient on Hopper's warpgroup products: 16-bit heads of 40 to 128 that come in eights,
 * operands at multiples of 16 bytes. attention_wgmma.cu */
bool pl_attend_wgmma_takes(const pl_attend *a);
pl_status pl_attend_wgmma_bwd(const pl_attend *a) PL_MUST_USE;
/* Whether warpgroup products can compute calls of these sizes, whatever the type. */
bool pl_attend_warpgroups_fit(const pl_attend *a);
/* Of f32 operands that were rounded to f16 (attention_tf32.cu; `largest` is theirs), with results
 * of f32. The gradient finds delta in `work`. attention_wgmma_forward.cu, attention_wgmma.cu */
pl_status pl_attend_wgmma_rounded(const pl_attend *a, const unsigned *largest) PL_MUST_USE;
pl_status pl_attend_wgmma_rounded_bwd(const pl_attend *a, const unsigned *largest) PL_MUST_USE;
/* f32 rounded to TF32's 11 bits, where pl_cuda_tf32() says so; heads of up to 128.
 * attention_tf32.cu */
bool pl_attend_tf32_takes(const pl_attend *a);
pl_status pl_attend_tf32(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_tf32_bwd(const pl_attend *a) PL_MUST_USE;
size_t pl_attend_tf32_work(const pl_attend *a);
size_t pl_attend_tf32_bwd_work(const pl_attend *a);
/* The same on warpgroup products; the scratch of the forward pass is pl_attend_tf32_work. */
bool pl_attend_tf32_wgmma_takes(const pl_attend *a);
pl_status pl_attend_tf32_wgmma(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_tf32_wgmma_bwd(const pl_attend *a) PL_MUST_USE;
size_t pl_attend_tf32_wgmma_bwd_work(const pl_attend *a);
/* f32 by tensor cores, where pl_cuda_split() says so; heads of up to 128. attention_split.h */
bool pl_attend_split_takes(const pl_attend *a);
pl_status pl_attend_split(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_split_bwd(const pl_attend *a) PL_MUST_USE;
/* Returns the scratch: the split operands of some heads. */
size_t pl_attend_split_work(const pl_attend *a);
/* Returns the same, plus pl_attend_work, gradients of scores of some heads and parts of sums. */
size_t pl_attend_split_bwd_work(const pl_attend *a);
/* f32, heads of up to 256. attention_f32.cu */
bool pl_attend_f32_takes(const pl_attend *a);
pl_status pl_attend_f32(const pl_attend *a) PL_MUST_USE;
pl_status pl_attend_f32_bwd(const pl_attend *a) PL_MUST_USE;
/* Returns pl_attend_work, plus room for gradients of scores of some heads. */
size_t pl_attend_f32_work(const pl_attend *a);

#ifdef __cplusplus
}
#endif

#endif
