/* matmul.c - products by cuBLASLt.
 *
 * Our matrices are row-major, cuBLAS's column-major: a row-major [M,N] is a column-major [N,M], so
 * y = op(a) op(b) is computed as y' = op(b)' op(a)', with b as cuBLAS's first operand. The bias,
 * one number per column of y, is one per row of y': an epilogue of the library. So are the tails of
 * ops/net/tail.h: RELU, GELU (the library's is the tanh form), GELU_AUX with the value before it,
 * DGELU; the added tensor is the library's C. ReLU's slope is not supported: DRELU reads bits in a
 * format of the library's own.
 *
 * A product puts as much of the tail into the library's kernel as the library supports: everything,
 * the bias, nothing (`level`). The rest is a separate pass (tail.cu).
 *
 * The algorithm depends on the problem alone. Expected is the first of the library's heuristics, or
 * one of the next where the first one's tiles do not suit the problem (matmul_tiles.h). Products
 * that take long enough to be measured have the first PL_TILES_LOOK answers timed once, and another
 * than the expected one is taken if it is CLEARLY faster; with autotuning it is the fastest of all
 * algorithms of the heuristics. Where algorithms are timed, a tail that costs more in the kernel
 * than as a separate pass stays separate. Choices are stored (choice.h), so that a problem has one
 * algorithm in every plan and every run. Split sums are used only where their order is fixed and
 * the parts are kept in the type of the arithmetic. Half-precision products accumulate in f32; f32
 * products use TF32 units only if pl_cuda_tf32() says so.
 *
 * Operands that are misaligned because of a view have a second algorithm, also chosen in advance.
 */
#include "base/sys.h"
#include "cuda/device/choice.h"
#include "cuda/matmul/matmul_tiles.h"
#include "ops/net/tail.h"
#include "rt/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ALGOS = 24, WORK_LIMIT = 32 << 20 };
#define CLEARLY 1.03f /* another algorithm than the expected one must be so many times as fast */

/* How much of a product's tail is in the library's kernel. */
typedef pl_product_level level;

typedef struct prepared {
    pl_product p;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, y; /* in our naming */
    cublasLtMatmulAlgo_t algo[2];   /* operands at multiples of 16 bytes; at any address */
    bool has[2];
    size_t work[2];
    level level;
    float ms;               /* time of a timed choice; 0: not timed */
    struct prepared *other; /* for misaligned operands, where this one has no algorithm; NULL */
} prepared;

pl_product pl_product_of(const pl_call *c, const pl_tail_attr *tail, bool slope)
{
    const pl_matmul_attr *t = c->attr;
    const pl_type *a = &c->in_type[0], *b = &c->in_type[1], *y = &c->out_type[0];
    pl_product p;
    memset(&p, 0, sizeof p);
    p.dtype = y->dtype;
    p.batch = 1;
    p.ta = t->ta;
    p.tb = t->tb;
    p.add = tail && tail->add;
    p.act = tail ? tail->act : PL_ACT_NONE;
    p.slope = slope;
    p.keep = c->n_out == 2;
    p.bias = c->n_in - p.add - p.slope == 3;
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (t->ta ? 2 : 1)];
    for (int i = 0; i < y->rank - 2; i++) p.batch *= y->dim[i];
    p.a_step = a->rank > 2 ? p.m * p.k : 0;
    p.b_step = b->rank > 2 ? p.k * p.n : 0;
    return p;
}

/* ---- types --------------------------------------------------------------------------------- */
static cudaDataType_t type_of(pl_dtype d)
{
    return d == PL_F64    ? CUDA_R_64F
           : d == PL_F16  ? CUDA_R_16F
           : d == PL_BF16 ? CUDA_R_16BF
                          : CUDA_R_32F;
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
/* rows and cols of the column-major matrix with these bytes; packed. */
static pl_status layout(const pl_product *p, int64_t rows, int64_t cols, int64_t step,
                        cublasLtMatrixLayout_t *out)
{
    int32_t batch = (int32_t)p->batch;
    PL_LT(cublasLtMatrixLayoutCreate(out, type_of(p->dtype), (uint64_t)rows, (uint64_t)cols, rows));
    if (p->batch == 1) return PL_OK;
    PL_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch));
    PL_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                           sizeof step));
    return PL_OK;
}

static bool has_tail(const pl_product *p)
{
    return p->act || p->add;
}

/* Whether the library supports the whole tail. */
static bool is_offered(const pl_product *p)
{
    bool act = p->act == PL_ACT_NONE || p->act == PL_ACT_RELU || p->act == PL_ACT_GELU_TANH;
    bool aux = p->keep || p->slope;
    bool exact = p->dtype == PL_F32 && !pl_cuda_tf32(); /* the library's tanh is not exact */
    if (exact && p->act == PL_ACT_GELU_TANH) return false;
    return act && p->dtype != PL_F64 && (!aux || (p->act == PL_ACT_GELU_TANH && p->n % 8 == 0));
}

static uint32_t epilogue_of(const pl_product *p, level l)
{
    uint32_t e = 0;
    if (l == PL_PRODUCT_WHOLE && p->slope) return CUBLASLT_EPILOGUE_DGELU;
    if (l >= PL_PRODUCT_WITH_BIAS && p->bias) e |= CUBLASLT_EPILOGUE_BIAS;
    if (l == PL_PRODUCT_WHOLE && p->act == PL_ACT_RELU) e |= CUBLASLT_EPILOGUE_RELU;
    if (l == PL_PRODUCT_WHOLE && p->act == PL_ACT_GELU_TANH)
        e |= p->keep ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    return e ? e : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Sets the value before the function: rows like y's. Heuristics check the pointer's alignment. */
static pl_status set_aux(prepared *h)
{
    int64_t rows = h->p.n, step = h->p.m * h->p.n;
    void *at = (void *)256;
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &at,
                                         sizeof at));
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &rows,
                                         sizeof rows));
    if (h->p.batch == 1) return PL_OK;
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                                         &step, sizeof step));
    return PL_OK;
}

static pl_status set_level(prepared *h, level l)
{
    uint32_t epilogue = epilogue_of(&h->p, l);
    h->level = l;
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue));
    if (epilogue & CUBLASLT_EPILOGUE_BIAS) {
        int32_t type = (int32_t)type_of(h->p.dtype);
        PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                             sizeof type));
    }
    return l == PL_PRODUCT_WHOLE && (h->p.keep || h->p.slope) ? set_aux(h) : PL_OK;
}

static pl_status describe(prepared *h)
{
    const pl_product *p = &h->p;
    int32_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    PL_LT(cublasLtMatmulDescCreate(&h->op, compute_of(p->dtype), scale_of(p->dtype)));
    PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    PL_LT(
        cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    PL_TRY(layout(p, p->tb ? p->k : p->n, p->tb ? p->n : p->k, p->b_step, &h->b));
    PL_TRY(layout(p, p->ta ? p->m : p->k, p->ta ? p->k : p->m, p->a_step, &h->a));
    return layout(p, p->n, p->m, p->m * p->n, &h->y);
}

/* ---- algorithms ----------------------------------------------------------------------------- */
static pl_status prefer(const pl_product *p, uint32_t align, uint64_t limit,
                        cublasLtMatmulPreference_t pref)
{
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    /* Parts of a sum would have the output's type if they were added in place. */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (p->dtype == PL_F32 || p->dtype == PL_F64) scheme |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    PL_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &limit, sizeof limit));
    PL_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &scheme, sizeof scheme));
    for (int i = 0; i < 4; i++)
        PL_LT(cublasLtMatmulPreferenceSetAttribute(pref, which[i], &align, sizeof align));
    return PL_OK;
}

/* Lists candidates; *n stays 0 when the library has none for the problem. */
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
        cublasStatus_t got =
            cublasLtMatmulAlgoGetHeuristic(lt, h->op, h->b, h->a, h->y, h->y, pref, most, out, n);
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

static pl_status set_pointers(const prepared *h, const pl_product_operands *x)
{
    const void *aux = h->p.keep ? x->keep : x->slope_at;
    if (h->p.bias && h->level >= PL_PRODUCT_WITH_BIAS)
        PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias,
                                             sizeof x->bias));
    if (aux && h->level == PL_PRODUCT_WHOLE)
        PL_LT(cublasLtMatmulDescSetAttribute(h->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                             sizeof aux));
    return PL_OK;
}

/* Applies the operations that the library's kernel does not include. */
static pl_status follow(const prepared *h, const pl_product_operands *x)
{
    const pl_product *p = &h->p;
    bool bias = p->bias && h->level == PL_PRODUCT_BARE;
    if (h->level == PL_PRODUCT_WHOLE || (!bias && !has_tail(p))) return PL_OK;
    pl_cuda_tail t = {bias ? x->bias : NULL, x->add, x->slope_at, x->keep, p->act, 0};
    return pl_cuda_tail_run(p->dtype, x->y, p->batch * p->m, p->n, &t);
}

static pl_status enqueue(const prepared *h, const cublasLtMatmulAlgo_t *algo,
                         const pl_product_operands *x, size_t bytes)
{
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    bool wide = h->p.dtype == PL_F64, add = h->p.add && h->level == PL_PRODUCT_WHOLE;
    cublasLtHandle_t lt;
    PL_TRY(pl_cuda_lt(&lt));
    PL_TRY(set_pointers(h, x));
    const void *alpha = wide ? (const void *)&one64 : &one;
    const void *beta = add ? alpha : wide ? (const void *)&zero64 : &zero;
    PL_LT(cublasLtMatmul(lt, h->op, alpha, x->b, h->b, x->a, h->a, beta, add ? x->add : x->y, h->y,
                         x->y, h->y, algo, x->work, bytes, pl_cuda_stream()));
    return follow(h, x);
}

/* ---- timed choice --------------------------------------------------------------------------- */
/* Whether a product is worth timing: some microseconds on the fastest units. */
static bool is_timed(const pl_product *p)
{
    const double LEAST = 4e9; /* operations */
    double flops = 2.0 * (double)p->batch * (double)p->m * (double)p->n * (double)p->k;
    return pl_cuda_autotune() || (flops >= LEAST && p->dtype != PL_F64);
}

typedef struct trial {
    const prepared *h;
    const cublasLtMatmulHeuristicResult_t *r;
    pl_product_operands x;
} trial;

static pl_status trial_run(void *ctx)
{
    const trial *t = ctx;
    return enqueue(t->h, &t->r->algo, &t->x, t->r->workspaceSize);
}

/* Measures n algorithms roughly, then those near the best one again; 0: cannot run. */
static void time_all(trial *t, const cublasLtMatmulHeuristicResult_t *r, int n, float *ms)
{
    const float NEAR = 1.2f;
    float least = 0;
    for (int i = 0; i < n; i++) {
        t->r = &r[i];
        if (pl_cuda_time_few(trial_run, t, &ms[i]) != PL_OK) ms[i] = 0;
        if (ms[i] > 0 && (least == 0 || ms[i] < least)) least = ms[i];
    }
    for (int i = 0; i < n; i++) {
        t->r = &r[i];
        if (ms[i] > 0 && ms[i] <= NEAR * least && pl_cuda_time(trial_run, t, &ms[i]) != PL_OK)
            ms[i] = 0;
    }
}

/* Returns the fastest of n, or the expected one if none is `margin` times as fast; *least: its
 * time, 0 when there is not enough memory to try them. */
static int fastest(const prepared *h, const cublasLtMatmulHeuristicResult_t *r, int n, int expected,
                   float margin, float *least)
{
    int best = expected;
    float ms[MAX_ALGOS] = {0};
    trial t = {.h = h};
    void *block = pl_product_trial_operands(&h->p, WORK_LIMIT, &t.x);
    if (block) time_all(&t, r, n, ms);
    cudaFree(block);
    for (int i = 0; i < n; i++)
        if (ms[i] > 0 && (ms[best] == 0 || ms[i] < ms[best])) best = i;
    if (ms[expected] > 0 && ms[best] * margin > ms[expected]) best = expected;
    *least = ms[best];
    return best;
}

static void key_of(const prepared *h, char *key, size_t cap)
{
    const pl_product *p = &h->p;
    int n =
        snprintf(key, cap, "%s:%s:%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 ":%d%d%d%d%d%d",
                 pl_cuda_autotune() ? "matmul" : "product", pl_dtype_name(p->dtype), p->batch, p->m,
                 p->n, p->k, p->ta, p->tb, p->bias, p->a_step != 0, p->b_step != 0, pl_cuda_tf32());
    if (has_tail(p) && n > 0 && (size_t)n < cap)
        snprintf(key + n, cap - (size_t)n, ":%d%d%d%d:%d", p->act, p->add, p->keep, p->slope,
                 h->level);
}

/* Returns the position in the heuristics' list, which depends on the GPU model and the library's
 * version; the file's name holds both. */
static int chosen(prepared *h, const cublasLtMatmulHeuristicResult_t *r, int n)
{
    char key[160];
    int expected = pl_cuda_autotune() ? 0 : pl_tiles_first(&h->p, r, n);
    pl_cuda_timed t = {expected, 0};
    if (!is_timed(&h->p) || (n < 2 && !has_tail(&h->p))) return expected;
    key_of(h, key, sizeof key);
    if (!pl_cuda_timed_get(key, n, &t)) {
        bool left = pl_cuda_time_left();
        if (left) t.at = fastest(h, r, n, expected, pl_cuda_autotune() ? 1 : CLEARLY, &t.ms);
        if (t.ms > 0 || !left) pl_cuda_timed_put(key, n, &t);
    }
    h->ms = t.ms;
    return t.at;
}

static pl_status choose_anew(prepared *h)
{
    static const uint32_t align[2] = {16, 1};
    cublasLtMatmulHeuristicResult_t r[MAX_ALGOS];
    h->ms = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t least = (uint32_t)pl_dtype_bytes(h->p.dtype);
        int n, at = 0;
        h->has[i] = false;
        h->work[i] = 0;
        PL_TRY(candidates(h, align[i] > least ? align[i] : least, i ? 0 : WORK_LIMIT,
                          i                    ? 1
                          : pl_cuda_autotune() ? MAX_ALGOS
                                               : PL_TILES_LOOK,
                          r, &n));
        if (n == 0) continue;
        if (i == 0) at = chosen(h, r, n);
        h->algo[i] = r[at].algo;
        h->work[i] = r[at].workspaceSize;
        h->has[i] = true;
    }
    return PL_OK;
}

/* The library's heuristics take longer than many products, and a network repeats its shapes. */
typedef struct memo {
    struct memo *next;
    pl_product p;
    pl_device_mode mode;
    level level;
    float ms;
    cublasLtMatmulAlgo_t algo[2];
    bool has[2];
    size_t work[2];
} memo;

/* Lives as long as the process: a problem's choice does not depend on the time of the request. */
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
        if (memcmp(&m->p, &h->p, sizeof h->p) == 0 && m->level == h->level &&
            m->mode.tf32 == mode.tf32 && m->mode.autotune == mode.autotune)
            return m;
    return NULL;
}

/* On lack of memory nothing is stored: the next request chooses again. */
static void remember(const prepared *h)
{
    memo *m = pl_sys_alloc(sizeof *m);
    if (!m) return;
    m->p = h->p;
    m->mode = mode_now();
    m->level = h->level;
    m->ms = h->ms;
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
        h->ms = m->ms;
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

/* Finds the highest level up to `most` that the library supports; when algorithms are timed, a
 * lower level that is faster. */
static pl_status choose_level(prepared *h, level most)
{
    for (int l = (int)most; l >= PL_PRODUCT_BARE; l--) {
        if ((l == PL_PRODUCT_WHOLE && !is_offered(&h->p)) ||
            (l == PL_PRODUCT_WITH_BIAS && !h->p.bias))
            continue;
        PL_TRY(set_level(h, (level)l));
        PL_TRY(choose(h));
        if (!h->has[0]) continue;
        float whole = h->ms;
        if (l < PL_PRODUCT_WHOLE || !has_tail(&h->p) || !(whole > 0)) return PL_OK;
        PL_TRY(choose_level(h, PL_PRODUCT_WITH_BIAS));
        if (h->has[0] && h->ms > 0 && h->ms * (pl_cuda_autotune() ? 1 : CLEARLY) < whole)
            return PL_OK;
        PL_TRY(set_level(h, PL_PRODUCT_WHOLE));
        return choose(h);
    }
    return PL_OK;
}

/* ---- the kernel ----------------------------------------------------------------------------- */
void pl_product_lt_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    if (h->a) cublasLtMatrixLayoutDestroy(h->a);
    if (h->b) cublasLtMatrixLayoutDestroy(h->b);
    if (h->y) cublasLtMatrixLayoutDestroy(h->y);
    if (h->op) cublasLtMatmulDescDestroy(h->op);
    pl_product_lt_release(h->other);
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
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages,
                                         &n);
    cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                         &n);
    bool after = h->level < PL_PRODUCT_WHOLE &&
                 (has_tail(&h->p) || (h->p.bias && h->level == PL_PRODUCT_BARE));
    snprintf(buf, cap, "algo %d tile %u stages %u split %d%s%s", id, tile, stages, split,
             has_tail(&h->p) && !after ? " +tail" : "",
             !after            ? ""
             : has_tail(&h->p) ? " tail after"
                               : " bias after");
}

static pl_status prepare_up_to(pl_product p, level most, void **prep, size_t *work_bytes);

/* For misaligned operands, for which the library has no whole tail: a product of a lower level. */
static pl_status add_other(prepared *h)
{
    size_t bytes = 0;
    void *other = NULL;
    if (h->has[1] || h->level == PL_PRODUCT_BARE) return PL_OK;
    PL_TRY(prepare_up_to(h->p, (level)(h->level - 1), &other, &bytes));
    h->other = other;
    return PL_OK;
}

static pl_status setup(prepared *h, level most)
{
    const pl_product *p = &h->p;
    if (p->batch * p->m * p->n == 0 || p->k == 0) return PL_OK;
    PL_FAIL_IF(p->batch > INT32_MAX, PL_ERR_UNSUPPORTED, "a batch of %" PRId64 " products",
               p->batch);
    PL_TRY(describe(h));
    PL_TRY(choose_level(h, most));
    PL_FAIL_IF(!h->has[0] && !h->has[1], PL_ERR_DEVICE,
               "cuBLASLt has no algorithm for %s products of %" PRId64 " x %" PRId64 " x %" PRId64
               " in a batch of %" PRId64,
               pl_dtype_name(p->dtype), p->m, p->n, p->k, p->batch);
    return add_other(h);
}

static pl_status prepare_up_to(pl_product p, level most, void **prep, size_t *work_bytes)
{
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->p = p;
    pl_status rc = setup(h, most);
    if (rc != PL_OK) {
        pl_product_lt_release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(h->work[0]);
    *prep = h;
    return PL_OK;
}

pl_status pl_product_lt_prepare(const pl_product *p, pl_product_level most, void **prep,
                                size_t *work_bytes)
{
    return prepare_up_to(*p, most, prep, work_bytes);
}

pl_product_operands pl_product_operands_of(const pl_product *p, const pl_call *c)
{
    pl_product_operands x = {
        .a = c->in[0], .b = c->in[1], .y = c->out[0], .work = pl_cuda_work_at(c->work)};
    if (p->bias) x.bias = c->in[2];
    if (p->add) x.add = c->in[c->n_in - 1];
    if (p->slope) x.slope_at = c->in[c->n_in - 1];
    if (p->keep) x.keep = c->out[1];
    return x;
}

pl_status pl_product_lt_run(const pl_call *c)
{
    const prepared *h = c->prep;
    const pl_product *p = &h->p;
    pl_product_operands x = pl_product_operands_of(p, c);
    if (p->batch * p->m * p->n == 0) return PL_OK;
    if (p->k == 0) {
        PL_CUDA(cudaMemsetAsync(x.y, 0, pl_type_bytes(&c->out_type[0]), pl_cuda_stream()));
        return follow(h, &x);
    }
    const void *at[7] = {x.a, x.b, x.y, x.bias, x.add, x.slope_at, x.keep};
    int i = h->has[0] && pl_cuda_aligned(at, 7) ? 0 : 1;
    while (!h->has[i] && h->other) h = h->other;
    PL_FAIL_IF(!h->has[i], PL_ERR_DEVICE,
               "cuBLASLt has no algorithm for operands that are not at multiples of 16 bytes");
    return enqueue(h, &h->algo[i], &x, h->work[i]);
}
