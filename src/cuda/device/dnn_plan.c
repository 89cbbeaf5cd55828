/* dnn_plan.c - engines of cuDNN for a graph: the choice, plans on disk, pointers. */
#include "cuda/device/dnn_graph.h"

#include "base/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the choice ----------------------------------------------------------------------------- */
/* Whether the engine of a configuration gives the same bits in every run; index: its number. */
static bool deterministic(pl_dnn_desc config, int64_t *index)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, got = 0;
    pl_dnn_desc e = NULL;
    if (pl_dnn_make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &e) != PL_OK) return false;
    bool good =
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &got, &e) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                 note) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                                 index) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; good && i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            good = false;
    pl_dnn_drop(&e);
    return good;
}

/* A configuration that the library cannot make into a plan leaves *plan NULL. */
static pl_status make_plan(pl_dnn_desc config, pl_dnn_desc *plan, size_t *work_bytes)
{
    cudnnHandle_t h;
    int64_t got = 0, bytes = 0;
    PL_TRY(pl_cuda_dnn(&h));
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan));
    PL_TRY(pl_dnn_set(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
    PL_TRY(pl_dnn_set_desc(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    if (cudnnBackendFinalize(*plan) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &got, &bytes) != CUDNN_STATUS_SUCCESS)
        pl_dnn_drop(plan);
    *work_bytes = (size_t)bytes;
    return PL_OK;
}

pl_status pl_dnn_plan_first(const pl_dnn_graph *g, pl_dnn_plan *p)
{
    enum { MOST = 8 };
    pl_dnn_desc heur = NULL, config[MOST] = {NULL};
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t got = 0, index = -1;
    pl_status rc = pl_dnn_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);
    if (rc == PL_OK) rc = pl_dnn_set_desc(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    if (rc == PL_OK)
        rc = pl_dnn_set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    for (int i = 0; rc == PL_OK && i < MOST; i++)
        rc = pl_dnn_make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (rc == PL_OK && (cudnnBackendFinalize(heur) != CUDNN_STATUS_SUCCESS ||
                        cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &got,
                                                 config) != CUDNN_STATUS_SUCCESS))
        got = 0;
    for (int i = 0; rc == PL_OK && !p->plan && i < got && i < MOST; i++) {
        if (!deterministic(config[i], &index)) continue;
        rc = make_plan(config[i], &p->plan, &p->work_bytes);
        snprintf(p->engine, sizeof p->engine, "eng%" PRId64, index);
    }
    for (int i = 0; i < MOST; i++) pl_dnn_drop(&config[i]);
    pl_dnn_drop(&heur);
    return rc;
}

/* ---- plans on disk -------------------------------------------------------------------------- */
/* What precedes the plan's own text in its file. */
typedef struct saved {
    uint64_t work_bytes;
    int32_t tag;
    char engine[64];
} saved;

pl_code_key pl_dnn_plan_key(const void *problem, size_t bytes)
{
    char with[512];
    snprintf(with, sizeof with, "cudnn %zu %s sm%d tf32=%d", cudnnGetVersion(),
             pl_cuda_props_get()->name, pl_cuda_props_get()->arch, pl_cuda_tf32());
    return pl_code_key_of(problem, bytes, with);
}

static bool restore(pl_dnn_plan *p, const char *file, size_t len)
{
    saved s;
    cudnnHandle_t h;
    pl_dnn_desc d = NULL;
    int64_t got = 0, bytes = -1;
    if (len <= sizeof s) return false;
    memcpy(&s, file, sizeof s);
    bool ok = pl_cuda_dnn(&h) == PL_OK &&
              pl_dnn_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d) == PL_OK &&
              cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                       &h) == CUDNN_STATUS_SUCCESS &&
              cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, (int64_t)(len - sizeof s),
                                       file + sizeof s) == CUDNN_STATUS_SUCCESS &&
              cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS &&
              cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &got, &bytes) == CUDNN_STATUS_SUCCESS &&
              (uint64_t)bytes == s.work_bytes;
    if (!ok) {
        pl_dnn_drop(&d);
        return false;
    }
    *p = (pl_dnn_plan){.plan = d, .work_bytes = (size_t)s.work_bytes, .tag = s.tag};
    memcpy(p->engine, s.engine, sizeof p->engine);
    p->engine[sizeof p->engine - 1] = 0;
    return true;
}

bool pl_dnn_plan_load(pl_code_key key, pl_dnn_plan *p)
{
    size_t len = 0;
    char *file = pl_code_cache_read(pl_cuda_cache_dir(), key, &len);
    bool ok = file && restore(p, file, len);
    pl_sys_free(file);
    return ok;
}

void pl_dnn_plan_save(pl_code_key key, const pl_dnn_plan *p)
{
    saved s = {.work_bytes = p->work_bytes, .tag = p->tag};
    int64_t n = 0;
    if (!p->plan || !pl_cuda_cache_dir()[0]) return;
    if (cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &n, NULL) != CUDNN_STATUS_SUCCESS ||
        n <= 0)
        return;
    char *file = pl_sys_alloc(sizeof s + (size_t)n + 1);
    memcpy(s.engine, p->engine, sizeof s.engine);
    if (file &&
        cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, n, &n, file + sizeof s) == CUDNN_STATUS_SUCCESS) {
        memcpy(file, &s, sizeof s);
        pl_code_cache_write(pl_cuda_cache_dir(), key, file, sizeof s + (size_t)n);
    }
    pl_sys_free(file);
}

/* ---- pointers ------------------------------------------------------------------------------- */
static pl_status bind_into(pl_dnn_desc d, int64_t n, const int64_t *uid, const void *const *at,
                           void *work)
{
    PL_TRY(pl_dnn_set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid));
    PL_TRY(pl_dnn_set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at));
    PL_TRY(pl_dnn_set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work));
    return pl_dnn_finalize(d, "a pack of pointers");
}

pl_status pl_dnn_bind(int64_t n, const int64_t *uid, const void *const *at, void *work,
                      pl_dnn_desc *out)
{
    pl_dnn_desc d = NULL;
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d));
    pl_status rc = bind_into(d, n, uid, at, work);
    if (rc != PL_OK) pl_dnn_drop(&d);
    *out = d;
    return rc;
}
