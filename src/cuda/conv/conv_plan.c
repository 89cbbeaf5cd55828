/* conv_plan.c - the choice of a cuDNN engine for a convolution, and its plans.
 *
 * A problem with a tail first requests the whole tail, then the bias alone, then neither
 * (conv_graph.h); operations that are not in the plan run in a separate pass after it. Engines that
 * cuDNN compiles while it creates the plan, a tenth of a second each, are used for the whole tail
 * only with autotuning, where the fastest of the three levels is taken.
 *
 * Engines come from cuDNN's heuristics, best first: mode A, then B, then the fallback list. An
 * engine is suitable when its notes allow it: deterministic, f32 sums, no TF32 unless allowed. The
 * first suitable engine whose plan can be created within the workspace cap is taken; when
 * algorithms are timed, the fastest. If none keeps the cap, the engine with the smallest workspace.
 * The choice is a function of the problem, the GPU and the library, never of the caller.
 *
 * Plans are kept in one reference-counted table for the process, because a network repeats its
 * shapes, and on disk in cuDNN's text form, compiled code included: heuristics and engines that
 * compile their kernels take seconds in a large network. */
#include "cuda/conv/conv_graph.h"

#include "base/sys.h"
#include "cuda/device/choice.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { FEW_CONFIGS = 6, MAX_CONFIGS = 64, MAX_TRIED = 12, FEW_TRIED = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pl_conv_plan *plans;

/* ---- engines -------------------------------------------------------------------------------- */
typedef struct engine {
    pl_dnn_desc config, plan;
    size_t work_bytes;
    bool tensor_core;
    char text[64];
} engine;

static void engine_release(engine *e)
{
    pl_dnn_drop(&e->plan);
    pl_dnn_drop(&e->config);
}

/* Reads the notes of a configuration's engine: whether it is suitable, and a text for reports.
 * quick: not if it must be compiled. */
static bool fit(const pl_conv_shape *c, bool quick, pl_dnn_desc config, engine *to)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t way[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0, n_way = 0, got = 0, index = -1;
    pl_dnn_desc e = NULL;
    bool good = true, tensor_core = false, compiled = false;
    if (pl_dnn_make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &e) != PL_OK) return false;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &got, &e) ||
        cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note) ||
        cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n_way, way) ||
        cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                                 &index))
        good = false;
    for (int64_t i = 0; good && i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        bool core = note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        tensor_core |= core;
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            good = false;
        /* Tensor cores have no f32: they round it to TF32 or less. */
        if ((core || note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) && c->dtype == PL_F32 &&
            !pl_cuda_tf32())
            good = false;
    }
    for (int64_t i = 0; good && i < n_way && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        compiled |= way[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    good = good && !(quick && compiled);
    pl_dnn_drop(&e);
    to->tensor_core = tensor_core;
    snprintf(to->text, sizeof to->text, "eng%" PRId64 "%s%s", index, tensor_core ? " tc" : "",
             compiled ? " rtc" : "");
    return good;
}

/* Appends the suitable configurations of one heuristic mode; a mode without any is not a
 * failure. */
static pl_status ask(const pl_conv_shape *c, const pl_conv_graph *g, bool quick,
                     cudnnBackendHeurMode_t mode, int configs, engine *list, int *n, int most)
{
    pl_dnn_desc heur = NULL, config[MAX_CONFIGS] = {NULL};
    int64_t got = 0;
    pl_status rc = pl_dnn_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);
    if (rc == PL_OK) rc = pl_dnn_set_desc(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    if (rc == PL_OK)
        rc = pl_dnn_set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    for (int i = 0; rc == PL_OK && i < configs; i++)
        rc = pl_dnn_make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (rc == PL_OK && cudnnBackendFinalize(heur) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 configs, &got, config) != CUDNN_STATUS_SUCCESS)
        got = 0;
    for (int i = 0; rc == PL_OK && i < got && i < configs && *n < most; i++) {
        engine *e = &list[*n];
        if (!fit(c, quick, config[i], e)) continue;
        e->config = config[i];
        config[i] = NULL;
        ++*n;
    }
    for (int i = 0; i < MAX_CONFIGS; i++) pl_dnn_drop(&config[i]);
    pl_dnn_drop(&heur);
    return rc;
}

static size_t room(int64_t elems, int32_t dtype)
{
    return ((size_t)elems * pl_dtype_bytes((pl_dtype)dtype) + 255) & ~(size_t)255;
}

/* Returns the cap on a plan's workspace, which the budget pays for. True f32 may use as much as
 * both operands: its engines need them transposed, and engines that do not are many times slower.
 * Engines that are timed against other kernels may use as much as all three tensors: trial.h weighs
 * their workspace. */
static size_t work_cap(const pl_conv_shape *c)
{
    size_t x = room(c->n * c->ic * pl_conv_pixels(c->in), c->dtype);
    size_t y = room(c->n * c->oc * pl_conv_pixels(c->out), c->dtype);
    size_t w = room(c->oc * (c->ic / c->groups) * pl_conv_pixels(c->kernel), c->dtype);
    size_t large = (x > y ? x : y) / 4, least = (size_t)64 << 20;
    if (c->timed) return x + w + y + least;
    if (c->dtype == PL_F32 && !pl_cuda_tf32()) return x + y + least;
    return large > least ? large : least;
}

/* Creates a plan. A configuration that the library cannot make into a plan is skipped: its plan
 * stays NULL. */
static pl_status plan_make(engine *e)
{
    if (e->plan) return PL_OK;
    cudnnHandle_t h;
    int64_t got = 0, bytes = 0;
    PL_TRY(pl_cuda_dnn(&h));
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &e->plan));
    PL_TRY(pl_dnn_set(e->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
    PL_TRY(pl_dnn_set_desc(e->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, e->config));
    if (cudnnBackendFinalize(e->plan) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(e->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &got, &bytes) != CUDNN_STATUS_SUCCESS)
        pl_dnn_drop(&e->plan);
    e->work_bytes = (size_t)bytes;
    return PL_OK;
}

/* ---- timed choice --------------------------------------------------------------------------- */
typedef struct trial {
    pl_conv_plan p;
    pl_conv_operands x;
    void *bound;
} trial;

static pl_status trial_run(void *ctx)
{
    const trial *t = ctx;
    const pl_conv_operands *x = &t->x;
    const void *out = t->p.problem.kind == PL_CONV_DX ? x->x : x->y;
    PL_TRY(pl_conv_execute(&t->p, t->bound));
    return pl_conv_follow(&t->p.problem, t->p.level, x->bias, x->add, (void *)(uintptr_t)out);
}

/* Measures first roughly; an engine that takes more than `most` milliseconds, if that is positive,
 * is not measured again. */
static pl_status time_engine(trial *t, float most, float *ms)
{
    PL_TRY(pl_cuda_time_few(trial_run, t, ms));
    return most > 0 && *ms > most ? PL_OK : pl_cuda_time(trial_run, t, ms);
}

/* Measures the milliseconds of one engine and the rest of the tail, in separate memory; negative if
 * it cannot be tried. */
static float try_engine(const pl_conv_shape *c, pl_conv_level level, const engine *e, float most)
{
    size_t x = room(c->n * c->ic * pl_conv_pixels(c->in), c->dtype);
    size_t w = room(c->oc * (c->ic / c->groups) * pl_conv_pixels(c->kernel), c->dtype);
    size_t y = room(c->n * c->oc * pl_conv_pixels(c->out), c->dtype), b = room(c->oc, c->dtype);
    size_t add = !c->add ? 0 : c->kind == PL_CONV_DX ? x : y;
    void *block = NULL;
    if (cudaMalloc(&block, x + w + y + b + add + e->work_bytes + 256) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1;
    }
    char *at = block, *more = at + x + w + y;
    trial t = {.p = {.problem = *c, .plan = e->plan, .level = level}};
    t.x = (pl_conv_operands){at, at + x, at + x + w, more, more + b, more + b + add};
    float ms = -1;
    if (cudaMemsetAsync(block, 0, x + w + y + b + add, pl_cuda_stream()) != cudaSuccess ||
        pl_conv_bind(&t.p, &t.x, &t.bound) != PL_OK || time_engine(&t, most, &ms) != PL_OK)
        ms = -1;
    pl_conv_bound_free(t.bound);
    cudaFree(block);
    return ms;
}

static bool keeps_cap(const pl_conv_shape *c, const engine *e)
{
    return e->plan && e->work_bytes <= work_cap(c);
}

/* Whether engines without tensor cores are not worth trying: they take many times as long. */
static bool wants_cores(const pl_conv_shape *c, const engine *list, int n)
{
    const double LEAST = 2e9; /* products of operands */
    double products = (double)(c->n * pl_conv_pixels(c->out)) * (double)(c->ic / c->groups) *
                      (double)c->oc * (double)pl_conv_pixels(c->kernel);
    bool any = false;
    for (int i = 0; i < n; i++) any |= list[i].tensor_core && keeps_cap(c, &list[i]);
    return any && products >= LEAST;
}

/* Returns the fastest engine that keeps the cap; *least is its time, negative when none could be
 * tried. */
static int fastest(const pl_conv_shape *c, pl_conv_level level, engine *list, int n, float *least)
{
    const float ROUGHLY = 1.3f;
    int best = -1;
    *least = -1;
    for (int i = 0; i < n; i++)
        if (plan_make(&list[i]) != PL_OK) pl_dnn_drop(&list[i].plan);
    bool cores = wants_cores(c, list, n);
    for (int i = 0; i < n; i++) {
        if (!keeps_cap(c, &list[i]) || (cores && !list[i].tensor_core)) continue;
        if (best >= 0 && !pl_cuda_time_left()) break;
        float ms = try_engine(c, level, &list[i], ROUGHLY * *least);
        if (best < 0 || (ms >= 0 && (*least < 0 || ms < *least))) {
            best = i;
            *least = ms;
        }
    }
    return best;
}

/* ---- choice --------------------------------------------------------------------------------- */
static bool is_timed(const pl_conv_shape *c)
{
    return c->timed || pl_cuda_autotune();
}

static int first_that_works(const pl_conv_shape *c, engine *list, int from, int n)
{
    for (int i = from; i < n; i++)
        if (plan_make(&list[i]) == PL_OK && keeps_cap(c, &list[i])) return i;
    return -1;
}

/* Requires that all plans are created and none keeps the cap. */
static int smallest(const engine *list, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (list[i].plan && (best < 0 || list[i].work_bytes < list[best].work_bytes)) best = i;
    return best;
}

/* *ms: the time of the choice where it was timed; negative: not known. */
static int timed_choice(const pl_conv_shape *c, pl_conv_level level, engine *list, int n, float *ms)
{
    char key[384], text[352];
    pl_cuda_timed t = {-1, -1};
    pl_conv_text(c, text, sizeof text);
    snprintf(key, sizeof key, "%s:%d%d%s", text, level, pl_cuda_tf32(),
             !pl_cuda_autotune() ? ":few" : "");
    int own = -1;
    if (!pl_cuda_timed_get(key, n, &t)) {
        t.at = own = fastest(c, level, list, n, &t.ms);
        if (own >= 0) pl_cuda_timed_put(key, n, &t);
    }
    *ms = t.ms;
    return t.at == own ? own : first_that_works(c, list, t.at, n);
}

/* Asks one mode and appends its suitable engines; *at: the first that works. The best come first,
 * and answers are expensive, so a few are requested before all are. */
static pl_status ask_for_first(const pl_conv_shape *c, const pl_conv_graph *g, bool quick,
                               cudnnBackendHeurMode_t mode, engine *list, int *n, int *at)
{
    int from = *n;
    PL_TRY(ask(c, g, quick, mode, FEW_CONFIGS, list, n, MAX_TRIED));
    *at = first_that_works(c, list, from, *n);
    if (*at >= 0) return PL_OK;
    while (*n > from) engine_release(&list[--*n]);
    PL_TRY(ask(c, g, quick, mode, MAX_CONFIGS, list, n, MAX_TRIED));
    *at = first_that_works(c, list, from, *n);
    return PL_OK;
}

static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                               CUDNN_HEUR_MODE_FALLBACK};

/* Lists the engines of a timed choice: with autotuning all that cuDNN knows, else, for a kernel
 * that is one of several candidates (trial.h), the best few that need not be compiled. A large
 * network has a hundred such choices, and they are part of the time to the first step. */
static pl_status list_timed(const pl_conv_shape *c, const pl_conv_graph *g, engine *list, int *n)
{
    bool all = pl_cuda_autotune();
    for (int m = 0; m < 3; m++)
        if (all || *n == 0)
            PL_TRY(ask(c, g, !all, modes[m], MAX_CONFIGS, list, n, all ? MAX_TRIED : FEW_TRIED));
    return PL_OK;
}

/* Leaves p->plan NULL when cuDNN has no suitable engine. */
static pl_status choose(const pl_conv_shape *c, pl_conv_level level, pl_conv_plan *p)
{
    pl_conv_graph g = {NULL};
    engine list[MAX_TRIED] = {{NULL}};
    int n = 0, at = -1;
    pl_status rc = pl_conv_graph_make(c, level, &g);
    if (rc == PL_OK && is_timed(c)) rc = list_timed(c, &g, list, &n);
    for (int m = 0; rc == PL_OK && !is_timed(c) && at < 0 && m < 3; m++)
        rc = ask_for_first(c, &g, level == PL_CONV_WHOLE, modes[m], list, &n, &at);
    if (rc == PL_OK && is_timed(c)) at = timed_choice(c, level, list, n, &p->run_ms);
    if (rc == PL_OK && at < 0) at = smallest(list, n);
    if (at >= 0) {
        p->plan = list[at].plan;
        list[at].plan = NULL;
        p->work_bytes = list[at].work_bytes;
        p->level = level;
        snprintf(p->engine, sizeof p->engine, "%s", list[at].text);
    }
    for (int i = 0; i < MAX_TRIED; i++) engine_release(&list[i]);
    pl_conv_graph_release(&g);
    return rc;
}

static void drop_plan(pl_conv_plan *p)
{
    pl_dnn_drop(&p->plan);
    p->work_bytes = 0;
}

/* Stores that cuDNN has no kernel for a tail: asking takes longer than most steps of planning. */
static void refusal_key(const pl_conv_shape *c, char *key, size_t cap)
{
    char text[352];
    pl_conv_text(c, text, sizeof text);
    snprintf(key, cap, "refused:%s:%d%d", text, pl_cuda_tf32(), is_timed(c));
}

static bool is_refused(const pl_conv_shape *c, int level)
{
    char key[400], value[8];
    refusal_key(c, key, sizeof key);
    return level == PL_CONV_WHOLE && pl_cuda_choice_get(key, value, sizeof value);
}

static void note_refusal(const pl_conv_shape *c, int level)
{
    char key[400], value[4] = "1";
    refusal_key(c, key, sizeof key);
    if (level == PL_CONV_WHOLE) pl_cuda_choice_put(key, value, sizeof value);
}

/* Whether the level includes anything that the level below it does not. */
static bool has_level(const pl_conv_shape *c, int level)
{
    return level == PL_CONV_BARE || (level == PL_CONV_WITH_BIAS ? c->bias : c->add || c->act);
}

/* ---- plans on disk ----------------------------------------------------------------------------
 */
/* Timed choices have their own file, which other processes add to. */
static bool load_plan(pl_conv_plan *p)
{
    pl_dnn_plan d;
    if (is_timed(&p->problem) ||
        !pl_dnn_plan_load(pl_dnn_plan_key(&p->problem, sizeof p->problem), &d))
        return false;
    p->plan = d.plan;
    p->work_bytes = d.work_bytes;
    p->level = (pl_conv_level)d.tag;
    memcpy(p->engine, d.engine, sizeof p->engine);
    return true;
}

static void save_plan(const pl_conv_plan *p)
{
    pl_dnn_plan d = {.plan = p->plan, .work_bytes = p->work_bytes, .tag = (int32_t)p->level};
    if (is_timed(&p->problem)) return;
    memcpy(d.engine, p->engine, sizeof d.engine);
    pl_dnn_plan_save(pl_dnn_plan_key(&p->problem, sizeof p->problem), &d);
}

/* A graph that cuDNN refuses, or has no engine for, is not an error: our own kernels compute it. A
 * larger part of the tail in the plan must not exceed the workspace cap; otherwise that part is a
 * separate pass. */
static pl_status fill(pl_conv_plan *p)
{
    uint64_t start = pl_sys_now_ns();
    cudnnHandle_t h;
    PL_TRY(pl_cuda_dnn(&h));
    if (load_plan(p)) return PL_OK;
    for (int level = PL_CONV_WHOLE; level >= PL_CONV_BARE; level--) {
        pl_conv_plan lower = {.problem = p->problem, .run_ms = -1};
        if (!has_level(&p->problem, level) || is_refused(&p->problem, level)) continue;
        /* With a plan of a higher level, only a timed plan of a lower level can be better. */
        if (p->plan && (!is_timed(&p->problem) || p->level < PL_CONV_WHOLE || !(p->run_ms > 0)))
            break;
        (void)choose(&p->problem, (pl_conv_level)level, &lower);
        bool fits = level == PL_CONV_BARE || lower.work_bytes <= work_cap(&p->problem);
        if (!lower.plan || !fits) note_refusal(&p->problem, level);
        if (lower.plan && fits && (!p->plan || (lower.run_ms > 0 && lower.run_ms < p->run_ms))) {
            drop_plan(p);
            *p = lower;
        } else {
            drop_plan(&lower);
        }
    }
    save_plan(p);
    p->ms = (double)(pl_sys_now_ns() - start) * 1e-6;
    return PL_OK;
}

/* ---- the table ------------------------------------------------------------------------------ */
static pl_status find_or_make(const pl_conv_shape *c, pl_conv_plan **out)
{
    for (pl_conv_plan *p = plans; p; p = p->next)
        if (memcmp(&p->problem, c, sizeof *c) == 0) {
            p->refs++;
            *out = p;
            return PL_OK;
        }
    pl_conv_plan *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    p->problem = *c;
    pl_status rc = fill(p);
    if (rc != PL_OK) {
        pl_sys_free(p);
        return rc;
    }
    p->refs = 1;
    p->next = plans;
    *out = plans = p;
    return PL_OK;
}

pl_status pl_conv_plan_get(const pl_conv_shape *c, pl_conv_plan **out)
{
    pthread_mutex_lock(&lock);
    pl_status rc = find_or_make(c, out);
    pthread_mutex_unlock(&lock);
    return rc;
}

void pl_conv_plan_put(pl_conv_plan *p)
{
    if (!p) return;
    pthread_mutex_lock(&lock);
    if (--p->refs == 0) {
        pl_conv_plan **at = &plans;
        while (*at != p) at = &(*at)->next;
        *at = p->next;
        pl_dnn_drop(&p->plan);
        pl_sys_free(p);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- running -------------------------------------------------------------------------------- */
pl_status pl_conv_bind(const pl_conv_plan *p, const pl_conv_operands *x, void **bound)
{
    const void *at[5] = {x->x, x->w, x->y};
    int64_t uid[5] = {PL_CONV_UID_X, PL_CONV_UID_W, PL_CONV_UID_Y}, n = 3;
    if (p->problem.bias && p->level >= PL_CONV_WITH_BIAS) {
        uid[n] = PL_CONV_UID_BIAS;
        at[n++] = x->bias;
    }
    if (p->problem.add && p->level == PL_CONV_WHOLE) {
        uid[n] = PL_CONV_UID_ADD;
        at[n++] = x->add;
    }
    return pl_dnn_bind(n, uid, at, x->work, bound);
}

void pl_conv_bound_free(void *bound)
{
    pl_dnn_drop(&bound);
}

pl_status pl_conv_execute(const pl_conv_plan *p, void *bound)
{
    cudnnHandle_t h;
    PL_TRY(pl_cuda_dnn(&h));
    cudnnStatus_t rc = cudnnBackendExecute(h, p->plan, bound);
    if (rc == CUDNN_STATUS_SUCCESS) return PL_OK;
    char text[352];
    pl_conv_text(&p->problem, text, sizeof text);
    pl_cuda_dnn_failed(rc, "cudnnBackendExecute", __FILE__, __LINE__);
    return pl__fail_prefix(PL_ERR_DEVICE, "%s by %s", text, p->engine);
}
