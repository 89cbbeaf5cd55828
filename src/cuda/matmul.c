/* matmul.c - products by cuBLASLt.
 *
 * Our matrices are row-major, cuBLAS's column-major: a row-major [M,N] is a column-major [N,M],
 * so y = op(a) op(b) is asked for as y' = op(b)' op(a)', with b as cuBLAS's first operand. The
 * bias, one number a column of y, is one a row of y': an epilogue of the library.
 *
 * The algorithm depends on the problem alone. By default it is the first of the library's
 * heuristics; when algorithms are timed, the fastest of those the heuristics name. Split sums
 * are taken only where their order is fixed and the parts are kept in the type of the
 * arithmetic. Half-precision products accumulate in f32; f32 products use TF32 units only if
 * pl_cuda_tf32() says so.
 *
 * Operands that a view has put at odd addresses get a second algorithm, chosen beforehand too.
 */
#include "base/sys.h"
#include "cuda/choice.h"
#include "cuda/lib.h"
#include "ops/attr.h"
#include "rt/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ALGOS = 24, WORK_LIMIT = 32 << 20 };

typedef struct product {
    pl_dtype dtype;
    int64_t batch, m, n, k;
    int64_t a_step, b_step; /* elements from one batch to the next; 0: the same matrix */
    bool ta, tb, bias;
} product;

typedef struct prepared {
    product p;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, y; /* in our naming */
    cublasLtMatmulAlgo_t algo[2];   /* operands at multiples of 16 bytes; at any address */
    bool has[2];
    size_t work[2];
    bool bias_after; /* the library has no bias for this: added in a pass of its own */
} prepared;

static product product_of(const pl_call *c)
{
    const pl_matmul_attr *t = c->attr;
    const pl_type *a = &c->in_type[0], *b = &c->in_type[1], *y = &c->out_type[0];
    product p;
    memset(&p, 0, sizeof p);
    p.dtype = y->dtype;
    p.batch = 1;
    p.ta = t->ta;
    p.tb = t->tb;
    p.bias = c->n_in == 3;
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (t->ta ? 2 : 1)];
    for (int i = 0; i < y->rank - 2; i++) p.batch *= y->dim[i];
    p.a_step = a->rank > 2 ? p.m * p.k : 0;
    p.b_step = b->rank > 2 ? p.k * p.n : 0;
    return p;
}

/* ---- types --------------------------------------------------------------------------------- */
static bool accepts(const pl_call *c)
{
    return pl_dtype_is_float(c->in_type[0].dtype);
}

static cudaDataType_t type_of(pl_dtype d)
{
    return d == PL_F64 ? CUDA_R_64F : d == PL_F16 ? CUDA_R_16F : d == PL_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasComputeType_t compute_of(pl_dtype d)
{
    if (d == PL_F64) return CUBLAS_COMPUTE_64F;
    return d == PL_F32 && pl_cuda_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static cudaDataType_t scale_of(pl_dtype d)
{
    return d == PL_F64 ? CUDA_R_64F : CUDA_R_32F;
}

/* ---- descriptors ---------------------------------------------------------------------------- */
/* rows and cols of the column-major matrix that the bytes are; packed. */
static pl_status layout(const product *p, int64_t rows, int64_t cols, int64_t step,
                        cublasLtMatrixLayout_t *out)
{
    int32_t batch = (int32_t)p->batch;
    PL_LT(cublasLtMatrixLayoutCreate(out, type_of(p->dtype), (uint64_t)rows, (uint64_t)cols, rows));
    if (p->batch == 1) return PL_OK;
    PL_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch));
    PL_LT(cublasLtMatrixLayoutSetAttribute(
        *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step));
    return PL_OK;
}

static pl_status set_epilogue(prepared *h, bool bias)
{
    uint32_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue));
    if (!bias) return PL_OK;
    int32_t type = (int32_t)type_of(h->p.dtype);
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                         sizeof type));
    return PL_OK;
}

static pl_status describe(prepared *h)
{
    const product *p = &h->p;
    int32_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    PL_LT(cublasLtMatmulDescCreate(&h->op, compute_of(p->dtype), scale_of(p->dtype)));
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                         sizeof first));
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                         sizeof second));
    PL_TRY(layout(p, p->tb ? p->k : p->n, p->tb ? p->n : p->k, p->b_step, &h->b));
    PL_TRY(layout(p, p->ta ? p->m : p->k, p->ta ? p->k : p->m, p->a_step, &h->a));
    PL_TRY(layout(p, p->n, p->m, p->m * p->n, &h->y));
    return set_epilogue(h, p->bias);
}

/* ---- algorithms ----------------------------------------------------------------------------- */
static pl_status prefer(const product *p, uint32_t align, uint64_t limit,
                        cublasLtMatmulPreference_t pref)
{
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    /* Parts of a sum lie in the output's type when they are added in place. */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (p->dtype == PL_F32 || p->dtype == PL_F64) scheme |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    PL_LT(cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
    PL_LT(cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme));
    for (int i = 0; i < 4; i++)
        PL_LT(cublasLtMatmulPreferenceSetAttribute(pref, which[i], &align, sizeof align));
    return PL_OK;
}

/* *n stays 0 when the library has nothing for the problem. */
static pl_status candidates(const prepared *h, uint32_t align, uint64_t limit, int most,
                            cublasLtMatmulHeuristicResult_t *out, int *n)
{
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t pref = NULL;
    *n = 0;
    PL_TRY(pl_cuda_lt(&lt));
    PL_LT(cublasLtMatmulPreferenceCreate(&pref));
    pl_status rc = prefer(&h->p, align, limit, pref);
    if (rc == PL_OK) {
        cublasStatus_t got = cublasLtMatmulAlgoGetHeuristic(lt, h->op, h->b, h->a, h->y, h->y,
                                                            pref, most, out, n);
        if (got == CUBLAS_STATUS_NOT_SUPPORTED)
            *n = 0;
        else if (got != CUBLAS_STATUS_SUCCESS)
            rc = pl_cuda_lt_failed(got, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    }
    cublasLtMatmulPreferenceDestroy(pref);
    int good = 0;
    for (int i = 0; i < *n; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS) out[good++] = out[i];
    *n = good;
    return rc;
}

static pl_status enqueue(const prepared *h, const cublasLtMatmulAlgo_t *algo, const void *a,
                         const void *b, const void *bias, void *y, void *work, size_t bytes)
{
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    bool wide = h->p.dtype == PL_F64;
    cublasLtHandle_t lt;
    PL_TRY(pl_cuda_lt(&lt));
    if (bias)
        PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                             sizeof bias));
    PL_LT(cublasLtMatmul(lt, h->op, wide ? (const void *)&one64 : &one, b, h->b, a, h->a,
                         wide ? (const void *)&zero64 : &zero, y, h->y, y, h->y, algo, work,
                         bytes, pl_cuda_stream()));
    return PL_OK;
}

/* ---- timed choice --------------------------------------------------------------------------- */
typedef struct trial {
    const prepared *h;
    const cublasLtMatmulHeuristicResult_t *r;
    char *a, *b, *bias, *y, *work;
} trial;

static pl_status trial_run(void *ctx)
{
    const trial *t = ctx;
    return enqueue(t->h, &t->r->algo, t->a, t->b, t->h->p.bias ? t->bias : NULL, t->y, t->work,
                   t->r->workspaceSize);
}

static size_t room(int64_t elems, pl_dtype d)
{
    return ((size_t)elems * pl_dtype_bytes(d) + 255) & ~(size_t)255;
}

/* The fastest of n, or 0 when there is no memory to try them in. */
static int fastest(const prepared *h, const cublasLtMatmulHeuristicResult_t *r, int n)
{
    const product *p = &h->p;
    size_t a = room(p->m * p->k * (p->a_step ? p->batch : 1), p->dtype);
    size_t b = room(p->k * p->n * (p->b_step ? p->batch : 1), p->dtype);
    size_t bias = room(p->n, p->dtype), y = room(p->m * p->n * p->batch, p->dtype);
    void *block = NULL;
    int best = 0;
    float least = 0;
    if (cudaMalloc(&block, a + b + bias + y + WORK_LIMIT) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    cudaMemsetAsync(block, 0, a + b + bias, pl_cuda_stream());
    trial t = {.h = h, .a = block};
    t.b = t.a + a;
    t.bias = t.b + b;
    t.y = t.bias + bias;
    t.work = t.y + y;
    for (int i = 0; i < n; i++) {
        float ms = 0;
        t.r = &r[i];
        if (pl_cuda_time(trial_run, &t, &ms) != PL_OK) continue;
        if (least == 0 || ms < least) {
            least = ms;
            best = i;
        }
    }
    cudaFree(block);
    return best;
}

static void key_of(const product *p, char *key, size_t cap)
{
    snprintf(key, cap, "matmul:%s:%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 ":%d%d%d%d%d%d",
             pl_dtype_name(p->dtype), p->batch, p->m, p->n, p->k, p->ta, p->tb, p->bias,
             p->a_step != 0, p->b_step != 0, pl_cuda_tf32());
}

/* The choice is kept as the place in the heuristics' list, which depends on what the file's name
 * holds: the card and the library's version. */
static int chosen(const prepared *h, const cublasLtMatmulHeuristicResult_t *r, int n)
{
    char key[160], value[32];
    if (!pl_cuda_autotune() || n < 2) return 0;
    key_of(&h->p, key, sizeof key);
    if (!pl_cuda_choice_get(key, value, sizeof value)) {
        snprintf(value, sizeof value, "%d", fastest(h, r, n));
        pl_cuda_choice_put(key, value);
    }
    int at = -1;
    return sscanf(value, "%d", &at) == 1 && at >= 0 && at < n ? at : 0;
}

static pl_status choose_anew(prepared *h)
{
    static const uint32_t align[2] = {16, 1};
    cublasLtMatmulHeuristicResult_t r[MAX_ALGOS];
    for (int i = 0; i < 2; i++) {
        uint32_t least = (uint32_t)pl_dtype_bytes(h->p.dtype);
        int n, at = 0;
        PL_TRY(candidates(h, align[i] > least ? align[i] : least, i ? 0 : WORK_LIMIT,
                          i || !pl_cuda_autotune() ? 1 : MAX_ALGOS, r, &n));
        if (n == 0) continue;
        if (i == 0) at = chosen(h, r, n);
        h->algo[i] = r[at].algo;
        h->work[i] = r[at].workspaceSize;
        h->has[i] = true;
    }
    return PL_OK;
}

/* The library's heuristics take longer than many a product, and a network repeats its shapes. */
typedef struct memo {
    struct memo *next;
    product p;
    pl_device_mode mode;
    bool bias_after;
    cublasLtMatmulAlgo_t algo[2];
    bool has[2];
    size_t work[2];
} memo;

/* For the life of the process: a problem's choice does not depend on when it is asked for. */
static pthread_mutex_t memo_lock = PTHREAD_MUTEX_INITIALIZER;
static memo *memos;

static pl_device_mode mode_now(void)
{
    return (pl_device_mode){.tf32 = pl_cuda_tf32(), .autotune = pl_cuda_autotune()};
}

static const memo *recall(const prepared *h)
{
    pl_device_mode mode = mode_now();
    for (const memo *m = memos; m; m = m->next)
        if (memcmp(&m->p, &h->p, sizeof h->p) == 0 && m->bias_after == h->bias_after &&
            m->mode.tf32 == mode.tf32 && m->mode.autotune == mode.autotune)
            return m;
    return NULL;
}

/* Out of memory: the next one chooses anew. */
static void remember(const prepared *h)
{
    memo *m = pl_sys_alloc(sizeof *m);
    if (!m) return;
    m->p = h->p;
    m->mode = mode_now();
    m->bias_after = h->bias_after;
    memcpy(m->algo, h->algo, sizeof m->algo);
    memcpy(m->has, h->has, sizeof m->has);
    memcpy(m->work, h->work, sizeof m->work);
    m->next = memos;
    memos = m;
}

static pl_status choose(prepared *h)
{
    pl_status rc = PL_OK;
    pthread_mutex_lock(&memo_lock);
    const memo *m = recall(h);
    if (m) {
        memcpy(h->algo, m->algo, sizeof h->algo);
        memcpy(h->has, m->has, sizeof h->has);
        memcpy(h->work, m->work, sizeof h->work);
    } else {
        rc = choose_anew(h);
        if (rc == PL_OK) remember(h);
    }
    pthread_mutex_unlock(&memo_lock);
    return rc;
}

/* ---- the kernel ----------------------------------------------------------------------------- */
static void release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    if (h->a) cublasLtMatrixLayoutDestroy(h->a);
    if (h->b) cublasLtMatrixLayoutDestroy(h->b);
    if (h->y) cublasLtMatrixLayoutDestroy(h->y);
    if (h->op) cublasLtMatmulDescDestroy(h->op);
    pl_sys_free(h);
}

void pl_cuda_matmul_describe(const void *prep, char *buf, size_t cap)
{
    const prepared *h = prep;
    int32_t id = 0, split = 0;
    uint32_t tile = 0, stages = 0;
    size_t n;
    const cublasLtMatmulAlgo_t *a = &h->algo[0];
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &n);
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &n);
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages,
                                         sizeof stages, &n);
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                         &n);
    snprintf(buf, cap, "algo %d tile %u stages %u split %d%s", id, tile, stages, split,
             h->bias_after ? " bias after" : "");
}

static pl_status setup(prepared *h)
{
    const product *p = &h->p;
    if (p->batch * p->m * p->n == 0 || p->k == 0) return PL_OK;
    PL_FAIL_IF(p->batch > INT32_MAX, PL_ERR_UNSUPPORTED, "a batch of %" PRId64 " products",
               p->batch);
    PL_TRY(describe(h));
    PL_TRY(choose(h));
    if (!h->has[0] && p->bias) {
        h->bias_after = true;
        PL_TRY(set_epilogue(h, false));
        PL_TRY(choose(h));
    }
    PL_FAIL_IF(!h->has[0] && !h->has[1], PL_ERR_DEVICE,
               "cuBLASLt has no algorithm for %s products of %" PRId64 " x %" PRId64 " x %" PRId64
               " in a batch of %" PRId64,
               pl_dtype_name(p->dtype), p->m, p->n, p->k, p->batch);
    return PL_OK;
}

static pl_status prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->p = product_of(c);
    pl_status rc = setup(h);
    if (rc != PL_OK) {
        release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(h->work[0]);
    *prep = h;
    return PL_OK;
}

static pl_status run(const pl_call *c)
{
    const prepared *h = c->prep;
    const product *p = &h->p;
    int64_t rows = p->batch * p->m;
    const void *bias = p->bias ? c->in[2] : NULL;
    if (rows * p->n == 0) return PL_OK;
    if (p->k == 0) {
        PL_CUDA(cudaMemsetAsync(c->out[0], 0, pl_type_bytes(&c->out_type[0]), pl_cuda_stream()));
        return bias ? pl_cuda_add_bias(p->dtype, c->out[0], bias, rows, p->n) : PL_OK;
    }
    const void *at[4] = {c->in[0], c->in[1], c->out[0], bias};
    int i = h->has[0] && pl_cuda_aligned(at, 4) ? 0 : 1;
    PL_FAIL_IF(!h->has[i], PL_ERR_DEVICE,
               "cuBLASLt has no algorithm for operands that are not at multiples of 16 bytes");
    PL_TRY(enqueue(h, &h->algo[i], c->in[0], c->in[1], h->bias_after ? NULL : bias, c->out[0],
                   pl_cuda_work_at(c->work), h->work[i]));
    return h->bias_after ? pl_cuda_add_bias(p->dtype, c->out[0], bias, rows, p->n) : PL_OK;
}

static const pl_kernel kernels[] = {{"cublaslt", accepts, prepare, release, run}, PL_KERNEL_END};

extern const pl_cuda_entry pl_cuda_matmul[];
const pl_cuda_entry pl_cuda_matmul[] = {{"matmul", kernels}, {NULL, NULL}};
