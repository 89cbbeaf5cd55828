/* pool.c - see pool.h. The ThreadSanitizer build starts threads per loop: slow, but visible to
 * the sanitizer, where libgomp's hand-over between threads is not. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__)
# define PL_TSAN 1
#elif defined(__has_feature)
# if __has_feature(thread_sanitizer)
#  define PL_TSAN 1
# endif
#endif

#ifdef PL_TSAN
/* oneDNN is not built for the sanitizer: its cache of kernels hands them over between threads by locks and futures
 * of the C++ library, which it does not see. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libdnnl.so\n";
}
#endif

/* libgomp's entry points; declared here so that both gcc and clang call the same team. */
void GOMP_parallel(void (*fn)(void *), void *data, unsigned num_threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_in_parallel(void);
void omp_set_num_threads(int n);

static _Atomic int n_threads;
/* libgomp keeps the size of the teams that oneDNN asks for with each thread that begins one. */
static _Thread_local int told;

static int wanted_threads(void)
{
    const char *names[] = {"PL_THREADS", "OMP_NUM_THREADS"};
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        long n = text ? strtol(text, NULL, 10) : 0;
        if (n > 0 && n <= 1024) return (int)n;
    }
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    return 1;
}

static void tell_team(int n)
{
#ifdef PL_TSAN
    omp_set_num_threads(1); /* oneDNN's loops hand over in ways the sanitizer cannot see */
#else
    omp_set_num_threads(n);
#endif
    told = n;
}

int pl_pool_threads(void)
{
    int n = n_threads, none = 0;
    if (n == 0) {
        n = wanted_threads();
        if (!atomic_compare_exchange_strong(&n_threads, &none, n)) n = none;
    }
    if (told != n) tell_team(n);
    return n;
}

void pl_pool_set_threads(int n)
{
    n_threads = n < 1 ? 1 : n;
    tell_team(n < 1 ? 1 : n);
}

typedef struct loop {
    int64_t n_tasks;
    void (*fn)(void *ctx, int64_t task, int worker);
    void *ctx;
    int workers;
} loop;

static void run_share(const loop *l, int worker, int workers)
{
    int64_t lo = l->n_tasks * worker / workers, hi = l->n_tasks * (worker + 1) / workers;
    for (int64_t t = lo; t < hi; t++) l->fn(l->ctx, t, worker);
}

#ifdef PL_TSAN
typedef struct share {
    const loop *l;
    int worker;
} share;

static _Thread_local int inside;

static void *share_main(void *arg)
{
    share *s = arg;
    inside = 1;
    run_share(s->l, s->worker, s->l->workers);
    return NULL;
}

void pl_pool_for(int64_t n_tasks, void (*fn)(void *, int64_t, int), void *ctx)
{
    int workers = pl_pool_threads();
    if (workers > n_tasks) workers = (int)n_tasks;
    if (workers > 64) workers = 64;
    loop l = {n_tasks, fn, ctx, workers};
    if (workers <= 1 || inside) {
        for (int64_t t = 0; t < n_tasks; t++) fn(ctx, t, 0);
        return;
    }
    share shares[64];
    pthread_t threads[64];
    int started = 1;
    for (; started < workers; started++) {
        shares[started] = (share){&l, started};
        if (pthread_create(&threads[started], NULL, share_main, &shares[started])) break;
    }
    inside = 1;
    run_share(&l, 0, workers);
    for (int w = started; w < workers; w++) run_share(&l, w, workers);
    inside = 0;
    for (int w = 1; w < started; w++) pthread_join(threads[w], NULL);
}
#else
static void loop_entry(void *arg)
{
    const loop *l = arg;
    run_share(l, omp_get_thread_num(), omp_get_num_threads());
}

void pl_pool_for(int64_t n_tasks, void (*fn)(void *, int64_t, int), void *ctx)
{
    int workers = pl_pool_threads();
    if (workers > n_tasks) workers = (int)n_tasks;
    if (workers <= 1 || omp_in_parallel()) {
        for (int64_t t = 0; t < n_tasks; t++) fn(ctx, t, 0);
        return;
    }
    loop l = {n_tasks, fn, ctx, workers};
    GOMP_parallel(loop_entry, &l, (unsigned)workers, 0);
}
#endif
