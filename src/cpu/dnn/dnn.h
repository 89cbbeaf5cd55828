/* dnn.h - convolutions, matrix products and pools on oneDNN, behind plain C.
 *
 * Two phases. prepare chooses the algorithm from shapes alone, builds everything and reports how
 * many work bytes a run needs; it may allocate. run gets all memory from its caller and allocates
 * nothing; oneDNN calls operator new, which src/program/cxx_heap.c serves without malloc. The same
 * description gives the same algorithm, so the same bits, in every process with the same number of
 * threads.
 *
 * Layout: activations are (N, spatial.., C), convolution weights (O, kernel.., I/groups), dense
 * and row-major, one to three spatial dims. A work block must be 64-byte aligned; tensors
 * should be. Nothing may overlap. A pl_dnn runs on one thread at a time: it holds the pointers
 * of the run.
 *
 * Types: f32; bf16 where oneDNN has more than reference loops for it. Everything else is
 * PL_ERR_UNSUPPORTED: the caller computes in f32 or has its own loop.
 *
 * Limits. oneDNN's own kernels sum weight gradients in one part per thread, so their last bits (and
 * work_bytes) depend on the number of threads; all other results do not. Where oneDNN has only
 * matrix products over an unfolded input (gradients of grouped 3-D convolutions, processors without
 * AVX2), it allocates memory during a run.
 */
#ifndef PL_CPU_DNN_H
#define PL_CPU_DNN_H

#include "base/err.h"

typedef struct pl_dnn pl_dnn;

/* Runs. in: what run reads, out: what it writes, in the order listed at each kind below. Denormal
 * numbers are treated as zero during the run, in every thread. */
pl_status pl_dnn_run(pl_dnn *d, const void *const *in, void *const *out, void *work) PL_MUST_USE;
void pl_dnn_free(pl_dnn *d); /* NULL is fine */
/* Frees what oneDNN caches for kernels that no pl_dnn uses; callable from any thread. */
void pl_dnn_forget(void);
/* Returns the number of oneDNN's kernels that this thread has compiled so far, freed or not. */
uint64_t pl_dnn_made(void);
size_t pl_dnn_bytes(void); /* of a pl_dnn, without oneDNN's own memory */
/* Returns the bytes of oneDNN's own code that runs keep in memory. Seen with 2.6: 2.5 MiB, with
 * 3.7: 4.8 MiB. */
size_t pl_dnn_code_bytes(void);
/* Returns the names of the chosen kernels, e.g. "jit:avx512_core"; for reports and tests. */
const char *pl_dnn_impl(const pl_dnn *d);

/* ---- convolution ---------------------------------------------------------------------------
 *   y[n,p,o] = bias[o] + sum over k,i of x[n, p*stride + k*dilation - pad_lo, g*I+i] * w[o,k,i]
 *
 *   FWD          in {x, w, bias?}   out {y}
 *   BWD_DATA     in {dy, w}         out {dx}           also the transposed convolution
 *   BWD_WEIGHTS  in {x, dy}         out {dw, dbias?}
 *
 * Operands with ? exist when desc.bias is set; BWD_DATA has no bias. out must be
 * (in + pad_lo + pad_hi - (kernel-1)*dilation - 1) / stride + 1, rounded down. */
typedef enum pl_dnn_conv_kind {
    PL_DNN_CONV_FWD,
    PL_DNN_CONV_BWD_DATA,
    PL_DNN_CONV_BWD_WEIGHTS
} pl_dnn_conv_kind;

typedef struct pl_dnn_conv_desc {
    pl_dtype dtype;
    int n_spatial;             /* 1..3; only the first n_spatial entries below are read */
    int64_t n, ic, oc, groups; /* ic and oc are totals over all groups */
    int64_t in[3], out[3];     /* spatial sizes of x and y */
    int64_t kernel[3], stride[3], dilation[3]; /* dilation 1 = dense */
    int64_t pad_lo[3], pad_hi[3];
    bool bias;
} pl_dnn_conv_desc;

pl_status pl_dnn_conv_prepare(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *desc, pl_dnn **out,
                              size_t *work_bytes) PL_MUST_USE;

/* ---- matrix product ------------------------------------------------------------------------
 *   C[b] = op(A[b]) op(B[b]) + bias        in {A, B, bias?}   out {C}
 *
 * op(A) is (m,k): A is stored (m,k) with row length lda, or (k,m) when trans_a; op(B) is (k,n), in
 * the same way. C is dense (batch,m,n), bias is (n). Batch strides are in elements; 0 = every batch
 * reads the same matrix. lda, ldb 0 = dense. */
typedef struct pl_dnn_matmul_desc {
    pl_dtype dtype;
    int64_t batch, m, n, k;
    bool trans_a, trans_b, bias;
    int64_t lda, ldb;
    int64_t a_batch_stride, b_batch_stride;
} pl_dnn_matmul_desc;

pl_status pl_dnn_matmul_prepare(const pl_dnn_matmul_desc *desc, pl_dnn **out,
                                size_t *work_bytes) PL_MUST_USE;

/* ---- pools ---------------------------------------------------------------------------------
 *   MAX_FWD   in {x}           out {y, index?}   index: u8, y's shape, only if desc.index
 *   MAX_BWD   in {dy, index}   out {dx}
 *   AVG_FWD   in {x}           out {y}
 *   AVG_BWD   in {dy}          out {dx}
 *
 * index is the position of the maximum in its window, (kd*KH + kh)*KW + kw; the first of equals
 * wins. A window of a max pool must hold at most 255 elements, at least one of them not padding.
 * The average divides by the window's elements, or with count_pad false by the elements that are
 * not padding. */
typedef enum pl_dnn_pool_kind {
    PL_DNN_POOL_MAX_FWD,
    PL_DNN_POOL_MAX_BWD,
    PL_DNN_POOL_AVG_FWD,
    PL_DNN_POOL_AVG_BWD
} pl_dnn_pool_kind;

typedef struct pl_dnn_pool_desc {
    pl_dtype dtype;
    int n_spatial;
    int64_t n, c;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
    bool count_pad;
    bool index;
} pl_dnn_pool_desc;

pl_status pl_dnn_pool_prepare(pl_dnn_pool_kind kind, const pl_dnn_pool_desc *desc, pl_dnn **out,
                              size_t *work_bytes) PL_MUST_USE;

#endif
