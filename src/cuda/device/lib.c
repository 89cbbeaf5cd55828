/* lib.c - see lib.h. One handle of each library for the process: the process has one GPU and one
 * stream, and a handle costs device memory. */
#include "cuda/device/lib.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t lt;
static cudnnHandle_t dnn;

pl_status pl_cuda_lt_failed(cublasStatus_t rc, const char *call, const char *file, int line)
{
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s (%s)", call, cublasLtGetStatusString(rc),
                    cublasLtGetStatusName(rc));
}

pl_status pl_cuda_dnn_failed(cudnnStatus_t rc, const char *call, const char *file, int line)
{
    char words[512] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s%s%s", call, cudnnGetErrorString(rc),
                    words[0] ? ": " : "", words);
}

static pl_status lt_make(void)
{
    if (!lt) PL_LT(cublasLtCreate(&lt));
    return PL_OK;
}

static pl_status dnn_make(void)
{
    if (dnn) return PL_OK;
    cudnnHandle_t h = NULL;
    PL_DNN(cudnnCreate(&h));
    cudnnStatus_t rc = cudnnSetStream(h, pl_cuda_stream());
    if (rc != CUDNN_STATUS_SUCCESS) {
        cudnnDestroy(h);
        return pl_cuda_dnn_failed(rc, "cudnnSetStream", __FILE__, __LINE__);
    }
    dnn = h;
    return PL_OK;
}

/* Requests one product: reading the library's tables takes most of the library's start-up. */
static pl_status ask_once(cublasLtHandle_t h)
{
    cublasLtMatmulDesc_t op = NULL;
    cublasLtMatrixLayout_t a = NULL;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t r;
    int n = 0;
    bool made =
        cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, 64, 64, 64) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulPreferenceCreate(&pref) == CUBLAS_STATUS_SUCCESS;
    cublasStatus_t rc = made ? cublasLtMatmulAlgoGetHeuristic(h, op, a, a, a, a, pref, 1, &r, &n)
                             : CUBLAS_STATUS_ALLOC_FAILED;
    if (pref) cublasLtMatmulPreferenceDestroy(pref);
    if (a) cublasLtMatrixLayoutDestroy(a);
    if (op) cublasLtMatmulDescDestroy(op);
    return rc == CUBLAS_STATUS_SUCCESS ? PL_OK : PL_ERR_DEVICE;
}

/* A failure here occurs again, and is reported, where the library is needed. */
static void *start_both(void *index)
{
    cublasLtHandle_t a;
    cudnnHandle_t b;
    if (cudaSetDevice((int)(intptr_t)index) != cudaSuccess || pl_cuda_lt(&a) != PL_OK ||
        ask_once(a) != PL_OK || pl_cuda_dnn(&b) != PL_OK)
        (void)cudaGetLastError();
    return NULL;
}

/* One per process, like the handles. */
static struct {
    pthread_mutex_t lock;
    pthread_t thread;
    bool begun, running;
} starter = {.lock = PTHREAD_MUTEX_INITIALIZER};

void pl_cuda_lib_begin(void)
{
    intptr_t index = pl_cuda_props_get()->index;
    pthread_mutex_lock(&starter.lock);
    if (!starter.begun)
        starter.running = pthread_create(&starter.thread, NULL, start_both, (void *)index) == 0;
    starter.begun = true;
    pthread_mutex_unlock(&starter.lock);
}

void pl_cuda_lib_wait(void)
{
    pthread_mutex_lock(&starter.lock);
    if (starter.running) pthread_join(starter.thread, NULL);
    starter.running = false;
    pthread_mutex_unlock(&starter.lock);
}

pl_status pl_cuda_lt(cublasLtHandle_t *out)
{
    pthread_mutex_lock(&lock);
    pl_status rc = lt_make();
    pthread_mutex_unlock(&lock);
    if (rc == PL_OK) *out = lt;
    return rc;
}

pl_status pl_cuda_dnn(cudnnHandle_t *out)
{
    pthread_mutex_lock(&lock);
    pl_status rc = dnn_make();
    pthread_mutex_unlock(&lock);
    if (rc == PL_OK) *out = dnn;
    return rc;
}
