/* attention.c - attention and its gradient without stored probabilities: which kernel computes
 * which problem.
 *
 * Grids count heads and batches; if a grid has too few blocks along a side, the batch is processed
 * in slices, one after the other over the same scratch.
 */
#include "cuda/attention/attention.h"
#include "cuda/device/limits.h"
#include "ops/net/attention.h"
#include "plan/cost/kernel_sizes.h"

#include <string.h>

static pl_attend attend_of(const pl_call *c)
{
    pl_attention_sizes z = pl_attention_sizes_of(c);
    pl_attend a;
    memset(&a, 0, sizeof a);
    a.batch = z.batch;
    a.n = z.n;
    a.heads = z.heads;
    a.d = z.d;
    a.m = z.m;
    a.group = z.group;
    a.row = z.row;
    a.step = z.step;
    a.keys_row = z.keys_row;
    a.keys_step = z.keys_step;
    a.scale = z.scale;
    a.causal = z.causal;
    a.masked = z.masked;
    a.mask = (pl_attend_mask){.batch = z.mask_step[0],
                              .head = z.mask_step[1],
                              .query = z.mask_step[2],
                              .key = z.mask_step[3],
                              .type = z.mask_type};
    a.dtype = z.dtype;
    a.lse_type = z.back ? z.lse_type : PL_F32;
    a.d_lse_type = z.d_lse_type;
    return a;
}

static bool is_back(const pl_call *c)
{
    return pl_attention_sizes_of(c).back;
}

static void bind(pl_attend *a, const pl_call *c)
{
    pl_attention_operands x = pl_attention_operands_of(c);
    a->q = x.in[0];
    a->k = x.in[1];
    a->v = x.in[2];
    a->mask.at = x.mask;
    for (int i = 0; i < 3; i++) a->out[i] = x.out[i];
    a->work = c->work;
    a->o = x.o;
    a->lse = x.lse;
    a->d_o = x.d_o;
    a->d_lse = x.d_lse;
}

/* Returns the batches of one slice: heads times batch, and twice the batch (attention_mma.cu), are
 * within a side of a grid, and rows of queries or keys within 32 bits. */
static int64_t slice_of(const pl_attend *a)
{
    int64_t side = pl_grid_side(), heads = a->heads > 0 ? a->heads : 1;
    int64_t tokens = a->n > a->m ? a->n : a->m, rows = heads * (tokens > 0 ? tokens : 1);
    int64_t most = heads > 1 ? side / heads : side / 2;
    if (most > INT32_MAX / rows) most = INT32_MAX / rows;
    if (most < 1) most = 1;
    return a->batch < most ? a->batch : most;
}

/* Returns batches [at, at + slice) of the whole. */
static pl_attend part_of(const pl_attend *whole, int64_t at, int64_t slice)
{
    pl_attend a = *whole;
    int64_t elem = (int64_t)pl_dtype_bytes(a.dtype), rows = at * a.heads * a.n;
    int64_t token = a.heads * a.d * elem, of_row = a.row * elem, of_key = a.keys_row * elem;
    bool back = a.lse != NULL;
    a.batch = a.batch - at < slice ? a.batch - at : slice;
    const void **outs[] = {&a.o, &a.d_o}, **of_m[] = {&a.k, &a.v};
    for (int i = 0; back && i < 2; i++) *outs[i] = (const char *)*outs[i] + at * a.n * token;
    for (int i = 0; i < 2; i++) *of_m[i] = (const char *)*of_m[i] + at * a.m * of_key;
    a.q = (const char *)a.q + at * a.n * of_row;
    if (a.masked)
        a.mask.at =
            (const char *)a.mask.at + at * a.mask.batch * (int64_t)pl_dtype_bytes(a.mask.type);
    a.out[0] = (char *)a.out[0] + at * a.n * (back ? of_row : token);
    if (!back) {
        a.out[1] = (char *)a.out[1] + rows * (a.dtype == PL_F64 ? 8 : 4);
        return a;
    }
    a.lse = (const char *)a.lse + rows * (int64_t)pl_dtype_bytes(a.lse_type);
    if (a.d_lse) a.d_lse = (const char *)a.d_lse + rows * (int64_t)pl_dtype_bytes(a.d_lse_type);
    for (int i = 1; i < 3; i++) a.out[i] = (char *)a.out[i] + at * a.m * of_row;
    return a;
}

static pl_status run_slices_of(const pl_attend *a, int64_t slice,
                               pl_status (*run)(const pl_attend *))
{
    for (int64_t at = 0; at < a->batch; at += slice) {
        pl_attend part = part_of(a, at, slice);
        PL_TRY(run(&part));
    }
    return PL_OK;
}

static pl_status run_slices(const pl_attend *a, pl_status (*run)(const pl_attend *))
{
    return run_slices_of(a, slice_of(a), run);
}

/* ---- groups of heads that read the same keys ------------------------------------------------ */
/* Bytes of dk, or dv, with a head for each head of the queries. */
static size_t per_head_bytes(const pl_attend *a)
{
    size_t bytes = (size_t)(a->batch * a->m * a->heads * a->d) * pl_dtype_bytes(a->dtype);
    return (bytes + 255) & ~(size_t)255;
}

/* Returns the scratch of a gradient, which begins with dk and dv of every head. */
static size_t grouped_work(const pl_call *c, size_t work)
{
    pl_attend a = attend_of(c);
    return a.group > 1 && is_back(c) ? work + 2 * per_head_bytes(&a) : work;
}

static pl_status run_grouped(const pl_attend *a, int64_t slice, pl_status (*run)(const pl_attend *))
{
    if (a->group == 1) return run_slices_of(a, slice, run);
    pl_attend x = *a;
    size_t each = per_head_bytes(a);
    x.out[1] = a->work;
    x.out[2] = (char *)a->work + each;
    x.work = (char *)a->work + 2 * each;
    PL_TRY(run_slices_of(&x, slice, run));
    PL_TRY(pl_attend_sum_groups(a, x.out[1], a->out[1]));
    return pl_attend_sum_groups(a, x.out[2], a->out[2]);
}

static size_t wgmma_work(const pl_attend *a)
{
    return pl_attend_wg_work_of(a->batch * a->heads, a->n, a->m, a->d).bytes;
}

/* Returns the batches of one slice of warpgroup products, whose scratch grows with the slice. */
static int64_t slice_within(const pl_attend *a, size_t (*work)(const pl_attend *))
{
    pl_attend one = *a;
    one.batch = 1;
    int64_t most = slice_of(a), fit = PL_ATTEND_DNN_SCRATCH / (int64_t)work(&one);
    return fit < 1 ? 1 : fit < most ? fit : most;
}

/* Returns the call with the sizes of one slice. */
static pl_attend slice_call(const pl_call *c)
{
    pl_attend a = attend_of(c);
    a.batch = slice_of(&a);
    return a;
}

/* Returns the scratch that every slice needs; the last slice may be shorter. */
static size_t most_work(const pl_call *c, size_t (*work)(const pl_attend *))
{
    pl_attend a = slice_call(c);
    int64_t rest = a.batch ? c->in_type[0].dim[0] % a.batch : 0;
    size_t whole = work(&a);
    a.batch = rest;
    size_t last = rest ? work(&a) : 0;
    return last > whole ? last : whole;
}

static bool nothing(const pl_attend *a)
{
    return a->batch * a->heads * a->n == 0 || a->d == 0;
}

/* cuDNN counts beyond a grid's side by itself. */
static bool dnn_can(const pl_call *c)
{
    pl_attend a = attend_of(c);
    return !pl_attention_sizes_of(c).d_lse && pl_attend_mma_takes(&a) &&
           (a.group == 1 || !is_back(c)) && pl_attend_dnn_takes(&a, is_back(c));
}

static bool wgmma_can(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return pl_attend_wgmma_takes(&a);
}

static bool dnn_takes(const pl_call *c)
{
    pl_attend a = attend_of(c);
    if (is_back(c) && wgmma_can(c) &&
        pl_attend_wg_is_faster(a.batch * a.heads, a.n, a.m, a.d, a.causal))
        return false;
    return dnn_can(c);
}

static bool wgmma_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return a.n * a.m >= PL_ATTEND_WGMMA_PAIRS && pl_attend_wgmma_takes(&a);
}

static bool mma_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return pl_attend_mma_takes(&a);
}

static bool tf32_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return pl_attend_tf32_takes(&a);
}

static bool tf32_wgmma_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return a.n * a.m >= PL_ATTEND_WGMMA_PAIRS && pl_attend_tf32_wgmma_takes(&a);
}

static bool split_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return !a.masked && a.group == 1 && pl_attend_split_takes(&a);
}

static bool f32_takes(const pl_call *c)
{
    pl_attend a = slice_call(c);
    return pl_attend_f32_takes(&a);
}

/* ---- packed rows for kernels that need separate tensors ------------------------------------- */
/* Bytes of one of q, k, v or their gradients as a separate tensor. */
static size_t apart_bytes(const pl_attend *a)
{
    size_t bytes = (size_t)(a->batch * a->n * a->heads * a->d) * pl_dtype_bytes(a->dtype);
    return (bytes + 255) & ~(size_t)255;
}

/* Copies a part of rows to a dense tensor, or back. */
static pl_status copy_part(const pl_attend *a, void *to, const void *from, bool out)
{
    bool heads = a->step != a->d; /* pieces of a head, or of a row */
    size_t elem = pl_dtype_bytes(a->dtype), piece = elem * (size_t)(heads ? a->d : a->heads * a->d);
    size_t pitch = elem * (size_t)(heads ? a->step : a->row);
    size_t count = (size_t)(a->batch * a->n * (heads ? a->heads : 1));
    PL_CUDA(cudaMemcpy2DAsync(to, out ? pitch : piece, from, out ? piece : pitch, piece, count,
                              cudaMemcpyDeviceToDevice, pl_cuda_stream()));
    return PL_OK;
}

/* The scratch begins with dense q, k, v and, backward, dq, dk, dv. */
static pl_status run_apart(const pl_attend *a, pl_status (*run)(const pl_attend *))
{
    pl_attend x = *a;
    bool back = a->lse != NULL;
    size_t each = apart_bytes(a);
    char *at = a->work;
    const void **in[3] = {&x.q, &x.k, &x.v};
    for (int i = 0; i < 3; i++, at += each) {
        PL_TRY(copy_part(a, at, *in[i], false));
        *in[i] = at;
    }
    for (int i = 0; back && i < 3; i++, at += each) x.out[i] = at;
    x.row = x.keys_row = a->heads * a->d;
    x.step = x.keys_step = a->d;
    x.work = at;
    PL_TRY(run_slices(&x, run));
    for (int i = 0; back && i < 3; i++) PL_TRY(copy_part(a, a->out[i], x.out[i], true));
    return PL_OK;
}

/* Returns the scratch of a kernel that needs separate tensors. */
static size_t apart_work(const pl_call *c, size_t work)
{
    pl_attend a = attend_of(c);
    return pl_attend_packed(&a) ? work + (is_back(c) ? 6 : 3) * apart_bytes(&a) : work;
}

static pl_status forward(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (nothing(&a)) return PL_OK;
    bind(&a, c);
    return run_slices(&a, run);
}

static pl_status forward_apart(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (!pl_attend_packed(&a)) return forward(c, run);
    bind(&a, c);
    return run_apart(&a, run);
}

static pl_status apart_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes = grouped_work(c, apart_work(c, is_back(c) ? most_work(c, pl_attend_work) : 0));
    return PL_OK;
}

static pl_status backward_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes = grouped_work(c, most_work(c, pl_attend_work));
    return PL_OK;
}

/* Scratch for attention_mma.cu too, which computes operands at odd addresses. */
static pl_status dnn_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    pl_attend a = attend_of(c);
    bool back = is_back(c);
    PL_TRY(pl_attend_dnn_prepare(&a, back, prep, work_bytes));
    size_t mma = back ? most_work(c, pl_attend_work) : 0;
    if (mma > *work_bytes) *work_bytes = mma;
    return PL_OK;
}

static pl_status dnn_run(const pl_call *c)
{
    pl_attend a = attend_of(c);
    bool back = is_back(c);
    bind(&a, c);
    const void *at[8] = {a.q, a.k, a.v, a.out[0], a.o, a.d_o, back ? a.out[1] : NULL, a.out[2]};
    if (!pl_cuda_aligned(at, 8)) return run_slices(&a, back ? pl_attend_mma_bwd : pl_attend_mma);
    return pl_attend_dnn_run(c->prep, &a);
}

/* attention_mma.cu computes operands at odd addresses. */
static pl_status wgmma_run(const pl_call *c)
{
    pl_attend a = attend_of(c);
    bind(&a, c);
    const void *at[7] = {a.q, a.k, a.v, a.d_o, a.out[0], a.out[1], a.out[2]};
    if (!pl_cuda_aligned(at, 7)) return run_grouped(&a, slice_of(&a), pl_attend_mma_bwd);
    return run_grouped(&a, slice_within(&a, wgmma_work), pl_attend_wgmma_bwd);
}

/* Scratch for attention_mma.cu too. */
static pl_status wgmma_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    pl_attend a = attend_of(c);
    a.batch = slice_within(&a, wgmma_work);
    size_t mma = most_work(c, pl_attend_work);
    *work_bytes = wgmma_work(&a);
    if (mma > *work_bytes) *work_bytes = mma;
    *work_bytes = grouped_work(c, *work_bytes);
    return PL_OK;
}

static pl_status tf32_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes =
        grouped_work(c, most_work(c, is_back(c) ? pl_attend_tf32_bwd_work : pl_attend_tf32_work));
    return PL_OK;
}

static pl_status tf32_wgmma_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    if (!is_back(c)) return tf32_prepare(c, prep, work_bytes);
    pl_attend a = attend_of(c);
    a.batch = slice_within(&a, pl_attend_tf32_wgmma_bwd_work);
    size_t mma = most_work(c, pl_attend_tf32_bwd_work);
    *work_bytes = pl_attend_tf32_wgmma_bwd_work(&a);
    if (mma > *work_bytes) *work_bytes = mma;
    *work_bytes = grouped_work(c, *work_bytes);
    return PL_OK;
}

/* attention_mma.h computes results at odd addresses. */
static pl_status tf32_wgmma_run(const pl_call *c)
{
    pl_attend a = attend_of(c);
    bind(&a, c);
    bool back = is_back(c);
    const void *at[3] = {a.out[0], back ? a.out[1] : NULL, back ? a.out[2] : NULL};
    bool aligned = pl_cuda_aligned(at, 3);
    if (!back) return run_slices(&a, aligned ? pl_attend_tf32_wgmma : pl_attend_tf32);
    if (!aligned) return run_grouped(&a, slice_of(&a), pl_attend_tf32_bwd);
    return run_grouped(&a, slice_within(&a, pl_attend_tf32_wgmma_bwd_work),
                       pl_attend_tf32_wgmma_bwd);
}

static pl_status split_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes =
        apart_work(c, most_work(c, is_back(c) ? pl_attend_split_bwd_work : pl_attend_split_work));
    return PL_OK;
}

static pl_status f32_backward_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    (void)prep;
    *work_bytes = grouped_work(c, apart_work(c, most_work(c, pl_attend_f32_work)));
    return PL_OK;
}

/* Without queries the gradients of keys and values are zero. */
static pl_status backward(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (nothing(&a)) {
        for (int i = 1; i < 3; i++)
            PL_CUDA(
                cudaMemsetAsync(c->out[i], 0, pl_type_bytes(&c->out_type[i]), pl_cuda_stream()));
        return PL_OK;
    }
    bind(&a, c);
    return run_grouped(&a, slice_of(&a), run);
}

static pl_status backward_apart(const pl_call *c, pl_status (*run)(const pl_attend *))
{
    pl_attend a = attend_of(c);
    if (!pl_attend_packed(&a)) return backward(c, run);
    bind(&a, c);
    return run_apart(&a, run);
}

#define KERNEL(name, way)                                                                          \
 static pl_status name##_forward(const pl_call *c)                                                 \
 {                                                                                                 \
  return forward##way(c, pl_attend_##name);                                                        \
 }                                                                                                 \
 static pl_status name##_backward(const pl_call *c)                                                \
 {                                                                                                 \
  return backward##way(c, pl_attend_##name##_bwd);                                                 \
 }
KERNEL(mma, )
KERNEL(tf32, )
KERNEL(split, _apart)
KERNEL(f32, _apart)
KERNEL(plain, _apart)

static const pl_kernel forward_kernels[] = {
    {"cudnn", dnn_takes, dnn_prepare, pl_attend_dnn_release, dnn_run},
    {"mma", mma_takes, NULL, NULL, mma_forward},
    {"tf32 wgmma", tf32_wgmma_takes, tf32_wgmma_prepare, NULL, tf32_wgmma_run},
    {"tf32", tf32_takes, tf32_prepare, NULL, tf32_forward},
    {"split", split_takes, split_prepare, NULL, split_forward},
    {"f32", f32_takes, apart_prepare, NULL, f32_forward},
    {"plain", NULL, apart_prepare, NULL, plain_forward},
    PL_KERNEL_END};
static const pl_kernel backward_kernels[] = {
    {"cudnn", dnn_takes, dnn_prepare, pl_attend_dnn_release, dnn_run},
    {"wgmma", wgmma_takes, wgmma_prepare, NULL, wgmma_run},
    {"mma", mma_takes, backward_prepare, NULL, mma_backward},
    {"tf32 wgmma", tf32_wgmma_takes, tf32_wgmma_prepare, NULL, tf32_wgmma_run},
    {"tf32", tf32_takes, tf32_prepare, NULL, tf32_backward},
    {"split", split_takes, split_prepare, NULL, split_backward},
    {"f32", f32_takes, f32_backward_prepare, NULL, f32_backward},
    {"plain", NULL, apart_prepare, NULL, plain_backward},
    PL_KERNEL_END};

/* All are timed (cuda/device/trial.h); where TF32 is allowed, the kernels of true f32, too. */
static bool split_beside_tf32(const pl_call *c)
{
    return pl_cuda_tf32() && split_takes(c);
}
static bool f32_beside_tf32(const pl_call *c)
{
    return pl_cuda_tf32() && f32_takes(c);
}
static const pl_kernel forward_alternatives[] = {
    {"cudnn", dnn_can, dnn_prepare, pl_attend_dnn_release, dnn_run},
    {"mma", mma_takes, NULL, NULL, mma_forward},
    {"tf32", tf32_takes, tf32_prepare, NULL, tf32_forward},
    {"split", split_beside_tf32, split_prepare, NULL, split_forward},
    {"f32", f32_beside_tf32, apart_prepare, NULL, f32_forward},
    PL_KERNEL_END};
static const pl_kernel backward_alternatives[] = {
    {"wgmma", wgmma_can, wgmma_prepare, NULL, wgmma_run},
    {"cudnn", dnn_can, dnn_prepare, pl_attend_dnn_release, dnn_run},
    {"mma", mma_takes, backward_prepare, NULL, mma_backward},
    {"tf32", tf32_takes, tf32_prepare, NULL, tf32_backward},
    {"split", split_beside_tf32, split_prepare, NULL, split_backward},
    {"f32", f32_beside_tf32, f32_backward_prepare, NULL, f32_backward},
    PL_KERNEL_END};

extern const pl_cuda_entry pl_cuda_attention[];
const pl_cuda_entry pl_cuda_attention[] = {{"attention", forward_kernels},
                                           {"attention_bwd", backward_kernels},
                                           {"attention_rows", forward_kernels},
                                           {"attention_rows_bwd", backward_kernels},
                                           {"attention_masked", forward_kernels},
                                           {"attention_masked_bwd", backward_kernels},
                                           {NULL, NULL}};
extern const pl_cuda_entry pl_cuda_attention_alternatives[];
const pl_cuda_entry pl_cuda_attention_alternatives[] = {
    {"attention", forward_alternatives},
    {"attention_bwd", backward_alternatives},
    {"attention_rows", forward_alternatives},
    {"attention_rows_bwd", backward_alternatives},
    {"attention_masked", forward_alternatives},
    {"attention_masked_bwd", backward_alternatives},
    {NULL, NULL}};
