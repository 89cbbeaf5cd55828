/* lib.c - see lib.h. The handles are the process's own: there is one card, one stream, and a
 * handle of either library costs device memory. */
#include "cuda/lib.h"

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
