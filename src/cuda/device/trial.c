/* trial.c - see trial.h. One trial at a time: programs are compiled by several threads, and all
 * kernels run on one stream. */
#include "cuda/device/trial.h"

#include "base/dtype.h"
#include "cuda/device/choice.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 8 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- one run of one kernel ------------------------------------------------------------------ */
typedef struct prepared {
    const pl_kernel *kernel;
    pl_call call;
    const void *in[MAX_ARGS];
    void *out[MAX_ARGS];
    void *block;
    size_t operands, work; /* bytes */
} prepared;

static size_t room(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static void release(prepared *p)
{
    if (p->kernel->release && p->call.prep) p->kernel->release(p->call.prep);
    if (p->block) cudaFree(p->block);
}

/* Zeros are as good as any values: the time of these kernels does not depend on values. */
static pl_status prepare(const pl_call *c, const pl_kernel *k, prepared *p)
{
    size_t work = 0, bytes = 256, at = 0;
    *p = (prepared){.kernel = k, .call = *c};
    if (k->prepare) PL_TRY(k->prepare(c, &p->call.prep, &work));
    for (int i = 0; i < c->n_in; i++) bytes += room(pl_type_bytes(&c->in_type[i]));
    for (int i = 0; i < c->n_out; i++) bytes += room(pl_type_bytes(&c->out_type[i]));
    p->operands = bytes;
    p->work = work;
    if (cudaMalloc(&p->block, bytes + work) != cudaSuccess) {
        (void)cudaGetLastError();
        return PL_ERR_MEMORY;
    }
    PL_CUDA(cudaMemsetAsync(p->block, 0, bytes, pl_cuda_stream()));
    for (int i = 0; i < c->n_in; i++) {
        p->in[i] = (char *)p->block + at;
        at += room(pl_type_bytes(&c->in_type[i]));
    }
    for (int i = 0; i < c->n_out; i++) {
        p->out[i] = (char *)p->block + at;
        at += room(pl_type_bytes(&c->out_type[i]));
    }
    p->call.in = p->in;
    p->call.out = p->out;
    p->call.work = (char *)p->block + at;
    return PL_OK;
}

static pl_status run(void *ctx)
{
    const prepared *p = ctx;
    return p->kernel->run(&p->call);
}

/* Returns the milliseconds of a run; negative: the kernel cannot run here. *worth: the milliseconds
 * that its workspace must save. */
static double time_of(const pl_cuda_trial *t, const pl_kernel *k, double *worth)
{
    const pl_call *c = t->call;
    prepared p;
    float ms = -1;
    pl_status rc = prepare(c, k, &p);
    if (rc == PL_OK) rc = (t->all ? pl_cuda_time : pl_cuda_time_few)(run, &p, &ms);
    release(&p);
    bool large = p.work > PL_CUDA_WORK_BYTES && p.work > p.operands / 4;
    *worth = large ? 1e-9 * PL_CUDA_MS_PER_GB * (double)p.work : 0;
    return rc == PL_OK ? (double)ms : -1;
}

/* ---- the choice ----------------------------------------------------------------------------- */
/* Whether TF32 seems to be slower than f32. */
static bool is_above_exact(const pl_cuda_trial *t, double ms)
{
    return t->exact_ms > 0 && ms > PL_CUDA_CLEARLY * t->exact_ms &&
           ms > t->exact_ms + PL_CUDA_LOSS_MS / 2;
}

static bool is_slow(const pl_cuda_trial *t, double ms)
{
    double expected = t->expected_ms;
    return is_above_exact(t, ms) ||
           (ms > PL_CUDA_SLOW * expected && ms > expected + PL_CUDA_LOSS_MS);
}

static bool is_wrong(double ms, double expected)
{
    return ms > PL_CUDA_WRONG_MS &&
           (ms > PL_CUDA_WRONG * expected || ms * PL_CUDA_WRONG < expected);
}

/* Position 0 is the expected kernel, i + 1 alternative i. */
static pl_cuda_timed decide(const pl_cuda_trial *t)
{
    double worth;
    pl_cuda_timed best = {0, (float)t->expected_ms};
    if (!pl_cuda_time_left()) return best;
    best.ms = (float)time_of(t, t->expected, &worth);
    if (best.ms < 0) return best;
    for (int i = 0; t->alternatives[i].run && (t->all || is_slow(t, (double)best.ms)); i++) {
        const pl_kernel *k = &t->alternatives[i];
        if (!pl_cuda_time_left()) break;
        if (strcmp(k->name, t->expected->name) == 0 || (k->accepts && !k->accepts(t->call)))
            continue;
        double ms = time_of(t, k, &worth), least = (double)best.ms;
        double margin = t->all || is_above_exact(t, least) ? PL_CUDA_CLEARLY : PL_CUDA_FASTER;
        if (ms >= 0 && ms * margin <= least && ms + worth <= least)
            best = (pl_cuda_timed){i + 1, (float)ms};
    }
    return best;
}

static void key_of(const pl_cuda_trial *t, char *key, size_t cap)
{
    char types[256] = "", one[96];
    size_t used = 0;
    for (int i = 0; i < t->call->n_in + t->call->n_out && used < sizeof types; i++) {
        const pl_type *of =
            i < t->call->n_in ? &t->call->in_type[i] : &t->call->out_type[i - t->call->n_in];
        used += (size_t)snprintf(types + used, sizeof types - used, "%s%s", i ? ":" : "",
                                 pl_type_text(of, one, sizeof one));
    }
    snprintf(key, cap, "kernel:%s:%s:%s:%016" PRIx64 ":%d%d", t->op->name, t->expected->name, types,
             pl_attr_hash(t->op, t->call->attr), pl_cuda_tf32(), pl_cuda_split());
    for (char *c = key; *c; c++)
        if (*c == ' ') *c = '_';
}

void pl_cuda_kernel_by_time(const pl_cuda_trial *t, const pl_kernel **kernel, double *ms)
{
    char key[512];
    int n = 1;
    pl_cuda_timed at = {0, -1};
    *kernel = t->expected;
    *ms = 0;
    if (t->expected_ms < PL_CUDA_TRIAL_LEAST_MS || t->call->n_in > MAX_ARGS ||
        t->call->n_out > MAX_ARGS)
        return;
    while (t->alternatives[n - 1].run) n++;
    key_of(t, key, sizeof key);
    if (!pl_cuda_timed_get(key, n, &at)) {
        pthread_mutex_lock(&lock);
        if (!pl_cuda_timed_get(key, n, &at)) {
            at = decide(t);
            if (at.ms >= 0) pl_cuda_timed_put(key, n, &at);
        }
        pthread_mutex_unlock(&lock);
    }
    if (at.at > 0) *kernel = &t->alternatives[at.at - 1];
    if (is_wrong((double)at.ms, t->expected_ms)) *ms = (double)at.ms;
}
