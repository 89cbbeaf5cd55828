/* fake_lt.c - see cublasLt.h here: products column by column in double, epilogues as the library
 * documents them, and the timed choices of src/cuda/device/choice.h by a clock that the tests set.
 */
#include "cublasLt.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "cuda/device/choice.h"
#include "cuda/device/lib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct fake_desc {
    int32_t ta, tb, bias_type;
    uint32_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld, aux_step;
};
struct fake_layout {
    pl_dtype dtype;
    int64_t rows, cols, ld, step;
    int32_t batch;
};
struct fake_preference {
    uint32_t align;
};

/* One per process, like the library's own state; tests set it and restore it. */
pl_sim_lt pl_sim_lt_now = {.algos = 3, .tail_ms = 0.1f};

static cublasStatus_t made(void *p)
{
    return p ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c,
                                        cudaDataType_t scale)
{
    (void)c, (void)scale;
    *d = pl_sys_alloc(sizeof **d);
    if (*d) (*d)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return made(*d);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    pl_sys_free(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, const void *v,
                                              size_t bytes)
{
    void *to[] = {[CUBLASLT_MATMUL_DESC_TRANSA] = &d->ta,
                  [CUBLASLT_MATMUL_DESC_TRANSB] = &d->tb,
                  [CUBLASLT_MATMUL_DESC_EPILOGUE] = &d->epilogue,
                  [CUBLASLT_MATMUL_DESC_BIAS_POINTER] = &d->bias,
                  [CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = &d->bias_type,
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER] = &d->aux,
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD] = &d->aux_ld,
                  [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE] = &d->aux_step};
    memcpy(to[a], v, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static pl_dtype dtype_of(cudaDataType_t t)
{
    return t == CUDA_R_64F    ? PL_F64
           : t == CUDA_R_16F  ? PL_F16
           : t == CUDA_R_16BF ? PL_BF16
                              : PL_F32;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t t,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *l = pl_sys_alloc(sizeof **l);
    if (*l) **l = (struct fake_layout){dtype_of(t), (int64_t)rows, (int64_t)cols, ld, 0, 1};
    return made(*l);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    pl_sys_free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t a, const void *v,
                                                size_t bytes)
{
    memcpy(a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? (void *)&l->batch : &l->step, v, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = pl_sys_alloc(sizeof **p);
    return made(*p);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    pl_sys_free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *v, size_t bytes)
{
    if (a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) memcpy(&p->align, v, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* As in the library: rows of the auxiliary matrix are multiples of 8. */
static bool takes(const struct fake_desc *d, const struct fake_layout *y)
{
    bool aux = d->epilogue & 128;
    return !aux || (d->aux && d->aux_ld % 8 == 0 && d->aux_ld >= y->rows && d->aux_step % 8 == 0);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    (void)h, (void)a, (void)b, (void)c;
    const pl_sim_lt *s = &pl_sim_lt_now;
    uint32_t no = s->refused | (p->align < 16 ? s->unaligned : 0);
    if ((op->epilogue & no) || !takes(op, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *n = most < s->algos ? most : s->algos;
    for (int i = 0; i < *n; i++)
        out[i] = (cublasLtMatmulHeuristicResult_t){.algo = {{(uint64_t)i}}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *a,
                                                    cublasLtMatmulAlgoConfigAttributes_t k, void *v,
                                                    size_t bytes, size_t *written)
{
    uint32_t place = (uint32_t)a->data[0], id = k == CUBLASLT_ALGO_CONFIG_ID ? place : 0;
    if (k == CUBLASLT_ALGO_CONFIG_TILE_ID && place < 4) id = pl_sim_lt_now.tile[place];
    memcpy(v, &id, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product -------------------------------------------------------------------------- */
static double at(const struct fake_layout *l, const void *p, int batch, int64_t row, int64_t col)
{
    return pl_elem_get(l->dtype, p, batch * l->step + col * l->ld + row);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static double finish(const struct fake_desc *op, pl_dtype dtype, int64_t aux_at, int64_t row,
                     double v)
{
    if (op->epilogue & CUBLASLT_EPILOGUE_BIAS) v += pl_elem_get(dtype, op->bias, row);
    if (op->epilogue == CUBLASLT_EPILOGUE_DGELU)
        return v * gelu_slope(pl_elem_get(dtype, op->aux, aux_at));
    if (op->epilogue & 128) pl_elem_set(dtype, op->aux, aux_at, v);
    if (op->epilogue & CUBLASLT_EPILOGUE_GELU) return gelu(v);
    return op->epilogue & CUBLASLT_EPILOGUE_RELU ? fmax(v, 0) : v;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes,
                              cudaStream_t s)
{
    (void)h, (void)alpha, (void)work, (void)bytes, (void)s;
    bool add = ld->dtype == PL_F64 ? *(const double *)beta != 0 : *(const float *)beta != 0;
    int64_t k = op->ta ? la->rows : la->cols;
    if (k != (op->tb ? lb->cols : lb->rows) || !takes(op, ld) ||
        ((op->epilogue & CUBLASLT_EPILOGUE_BIAS) && !op->bias))
        return CUBLAS_STATUS_INVALID_VALUE;
    pl_sim_lt_now.products++;
    pl_sim_lt_now.last_algo = (int)algo->data[0];
    pl_sim_lt_now.last_epilogue = op->epilogue;
    if ((double)ld->rows * (double)ld->cols * (double)k > 1e8) return CUBLAS_STATUS_SUCCESS;
    for (int n = 0; n < ld->batch; n++)
        for (int64_t j = 0; j < ld->cols; j++)
            for (int64_t i = 0; i < ld->rows; i++) {
                double sum = add ? at(lc, c, n, i, j) : 0;
                for (int64_t q = 0; q < k; q++)
                    sum += at(la, a, n, op->ta ? q : i, op->ta ? i : q) *
                           at(lb, b, n, op->tb ? j : q, op->tb ? q : j);
                sum = finish(op, ld->dtype, n * op->aux_step + j * op->aux_ld + i, i, sum);
                pl_elem_set(ld->dtype, d, n * ld->step + j * ld->ld + i, sum);
            }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- what the plug-in has around the library ----------------------------------------------- */
pl_status pl_cuda_lt(cublasLtHandle_t *out)
{
    *out = NULL;
    return PL_OK;
}

pl_status pl_cuda_lt_failed(cublasStatus_t rc, const char *call, const char *file, int line)
{
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %d", call, (int)rc);
}

enum { MAX_CHOICES = 64 };
static struct {
    char key[160], value[48];
} choices[MAX_CHOICES];
static int n_choices;

bool pl_cuda_choice_get(const char *key, char *value, size_t cap)
{
    for (int i = 0; i < n_choices; i++)
        if (strcmp(choices[i].key, key) == 0) {
            snprintf(value, cap, "%s", choices[i].value);
            return true;
        }
    return false;
}

void pl_cuda_choice_put(const char *key, char *value, size_t cap)
{
    (void)cap;
    if (n_choices == MAX_CHOICES) return;
    snprintf(choices[n_choices].key, sizeof choices[0].key, "%s", key);
    snprintf(choices[n_choices++].value, sizeof choices[0].value, "%s", value);
}

/* A run takes the time of its last product, and 0.5 for a pass after a product without an
 * epilogue. */
pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms)
{
    pl_sim_lt *s = &pl_sim_lt_now;
    PL_TRY(run(ctx));
    bool whole = s->last_epilogue & ~(uint32_t)(CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_BIAS);
    *ms = (float)(s->algos - s->last_algo) + (whole ? s->tail_ms : 0.5f);
    return PL_OK;
}

bool pl_cuda_time_left(void)
{
    return !pl_sim_lt_now.no_time;
}

/* Every algorithm is measured roughly first: these are counted. */
pl_status pl_cuda_time_few(pl_status (*run)(void *ctx), void *ctx, float *ms)
{
    pl_sim_lt_now.timed++;
    return pl_cuda_time(run, ctx, ms);
}
