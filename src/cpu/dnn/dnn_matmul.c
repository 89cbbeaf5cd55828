/* dnn_matmul.c - matrix products on oneDNN, by three algorithms chosen from shapes alone: few
 * vectors (kernels/narrow.h), a 1x1 convolution over the rows (pl_dnn_add_product), or oneDNN's
 * matmul.
 */
#include "cpu/dnn/dnn_int.h"

#include <string.h>

static pl_status check_matmul(const pl_dnn_matmul_desc *m)
{
    const int64_t lda = m->lda ? m->lda : INT64_MAX, ldb = m->ldb ? m->ldb : INT64_MAX;
    PL_FAIL_IF(m->batch < 1 || m->m < 1 || m->n < 1 || m->k < 1, PL_ERR_SHAPE,
               "matmul of %lld times (%lld,%lld) by (%lld,%lld)", (long long)m->batch,
               (long long)m->m, (long long)m->k, (long long)m->k, (long long)m->n);
    PL_FAIL_IF(lda < (m->trans_a ? m->m : m->k) || ldb < (m->trans_b ? m->k : m->n), PL_ERR_SHAPE,
               "matmul (%lld,%lld,%lld): row lengths %lld and %lld are shorter than the rows",
               (long long)m->m, (long long)m->n, (long long)m->k, (long long)lda, (long long)ldb);
    /* oneDNN computes some sizes in 32 bits and divides by what is left of them */
    PL_FAIL_IF(m->m > INT32_MAX || m->n > INT32_MAX || m->k > INT32_MAX, PL_ERR_UNSUPPORTED,
               "matmul (%lld,%lld,%lld): a size is beyond 32 bits", (long long)m->m,
               (long long)m->n, (long long)m->k);
    return PL_OK;
}

/* Describes one matrix, (rows, cols) after transposition; a batch of one has no batch dim. */
static pl_mdesc matrix_md(dnnl_data_type_t type, int64_t batch, int64_t batch_stride, int64_t rows,
                          int64_t cols, int64_t ld, bool trans)
{
    pl_mdesc m = {.type = type};
    if (batch > 1) {
        m.dim[m.rank] = batch_stride ? batch : 1;
        m.stride[m.rank++] = batch_stride ? batch_stride : rows * cols;
    }
    m.dim[m.rank] = rows;
    m.stride[m.rank++] = trans ? 1 : ld;
    m.dim[m.rank] = cols;
    m.stride[m.rank++] = trans ? ld : 1;
    return m;
}

/* oneDNN's batched-reduce kernel requires dense matrices, and the kernel for other matrices
 * allocates: a matrix with gaps between its rows or batches is first copied without gaps. */
static pl_status matmul_operand(pl_dnn *d, const pl_dnn_matmul_desc *m, int index, pl_mdesc *dense,
                                int *out)
{
    const bool a = index == 0, trans = a ? m->trans_a : m->trans_b;
    const int64_t rows = a ? m->m : m->k, cols = a ? m->k : m->n, row = trans ? rows : cols;
    const int64_t ld = a ? m->lda : m->ldb;
    const int64_t batch_stride = a ? m->a_batch_stride : m->b_batch_stride;
    dnnl_data_type_t type = dnnl_f32;
    PL_TRY(pl_dnn_data_type(m->dtype, &type));
    const pl_mdesc user = matrix_md(type, m->batch, batch_stride, rows, cols, ld ? ld : row, trans);
    *dense = matrix_md(type, m->batch, batch_stride ? rows * cols : 0, rows, cols, row, trans);
    return pl_dnn_add_input(d, &user, dense, index, out);
}

/* A product with one vector. The matrix is A or B, with its transposition; rows of dot products if
 * its stored rows run along k, else a sum of its rows. */
static pl_status matvec_build(pl_dnn *d, const pl_dnn_matmul_desc *m)
{
    const bool by_b = m->n == 1, dot = by_b ? !m->trans_a : m->trans_b;
    const int64_t out = by_b ? m->m : m->n, ld = by_b ? m->lda : m->ldb;
    pl_narrow s = {.rows = dot ? out : m->k, .cols = dot ? m->k : out, .n = 1};
    s.ld = ld ? ld : s.cols;
    s.bias_row = by_b ? 0 : 1;
    const pl_mdesc md[4] = {matrix_md(dnnl_f32, 1, 1, s.rows, s.cols, s.ld, false),
                            pl_dnn_vector_md(dnnl_f32, m->k), pl_dnn_vector_md(dnnl_f32, m->n),
                            pl_dnn_vector_md(dnnl_f32, out)};
    int at[4] = {0, 0, -1, 0};
    PL_TRY(pl_dnn_add_operand(d, &md[0], PL_DNN_IN, by_b ? 0 : 1, &at[0]));
    PL_TRY(pl_dnn_add_operand(d, &md[1], PL_DNN_IN, by_b ? 1 : 0, &at[1]));
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &md[2], PL_DNN_IN, 2, &at[2]));
    PL_TRY(pl_dnn_add_operand(d, &md[3], PL_DNN_OUT, 0, &at[3]));
    return pl_dnn_add_narrow(d, dot, &s, at[0], at[1], at[2], at[3]);
}

/* The vector itself must be dense: a column of a wider matrix is not. */
static bool is_matvec(const pl_dnn_matmul_desc *m)
{
    if (m->dtype != PL_F32 || m->batch != 1) return false;
    if (m->n == 1) return m->trans_b || m->ldb <= 1;
    return m->m == 1 && (!m->trans_a || m->lda <= 1);
}

static pl_status matmul_choose(const pl_dnn_matmul_desc *m, const pl_mdesc *const *tensors,
                               dnnl_primitive_desc_t *out)
{
    void *mds[PL_DNN_MAX_TENSORS];
    pl_dnn_offer o;
    PL_TRY(pl_dnn_mds_new(tensors, PL_DNN_MAX_TENSORS, mds));
    pl_status s =
        pl_dnn_choose(pl_dnn_offer_matmul(mds, &o), &o, m->dtype, NULL, "multiply matrices", out);
    pl_dnn_mds_free(mds, PL_DNN_MAX_TENSORS);
    return s;
}

static pl_status matmul_build(pl_dnn *d, const pl_dnn_matmul_desc *m)
{
    if (is_matvec(m)) return matvec_build(d, m);
    dnnl_data_type_t type = dnnl_f32;
    pl_mdesc a, b;
    int pa, pb, pc, pbias = 0;
    PL_TRY(pl_dnn_data_type(m->dtype, &type));
    const pl_mdesc c = matrix_md(type, m->batch, m->m * m->n, m->m, m->n, m->n, false);
    const pl_mdesc bias = matrix_md(type, m->batch, 0, 1, m->n, m->n, false);
    PL_TRY(matmul_operand(d, m, 0, &a, &pa));
    PL_TRY(matmul_operand(d, m, 1, &b, &pb));
    PL_TRY(pl_dnn_add_operand(d, &c, PL_DNN_OUT, 0, &pc));
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &bias, PL_DNN_IN, 2, &pbias));
    dnnl_primitive_desc_t pd;
    PL_TRY(matmul_choose(m, (const pl_mdesc *[]){&a, &b, &c, m->bias ? &bias : NULL}, &pd));
    pl_dnn_note_impl(d, pl_dnn_impl_of(pd));
    pl_status s = pl_dnn_add_step(d, pd, m->bias ? 4 : 3,
                                  (const int[][2]){{DNNL_ARG_SRC, pa},
                                                   {DNNL_ARG_WEIGHTS, pb},
                                                   {DNNL_ARG_DST, pc},
                                                   {DNNL_ARG_BIAS, pbias}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

/* Without AVX-512 oneDNN's product is its older kernel, which allocates during a run; the 1x1
 * convolution is as fast there and does not allocate. */
pl_status pl_dnn_matmul_prepare(const pl_dnn_matmul_desc *desc, pl_dnn **out, size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_matmul(desc));
    PL_TRY(pl_dnn_new(&d));
    pl_status s = matmul_build(d, desc);
    if (s == PL_OK && desc->dtype == PL_F32 && strstr(d->impl, "gemm")) {
        pl_dnn_free(d);
        PL_TRY(pl_dnn_new(&d));
        s = pl_dnn_add_product(d, desc);
    }
    return pl_dnn_hand_over(s, d, out, work_bytes);
}
