/* threads.c - see threads.h. */
#include "base/threads.h"

#include "base/sys.h"
#include "base/team.h"

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
/* oneDNN is not built for the sanitizer: its cache passes kernels between threads by locks and
 * futures of the C++ library, which the sanitizer does not see. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libdnnl.so\n";
}

/* The team stays: a test that forks has threads, and its child starts some. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

void omp_set_num_threads(int n);

static _Atomic int n_threads;
/* libgomp stores the size of oneDNN's teams per thread that starts one. */
static _Thread_local int told;

static int wanted_threads(void)
{
    const char *names[] = {"PL_THREADS", "OMP_NUM_THREADS"};
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        long n = text ? strtol(text, NULL, 10) : 0;
        if (n > 0 && n <= 1024) return (int)n;
    }
    return pl_sys_cores();
}

static void tell_team(int n)
{
    omp_set_num_threads(n);
    told = n;
}

int pl_threads_count(void)
{
    int n = n_threads, none = 0;
    if (n == 0) {
        n = wanted_threads();
        if (!atomic_compare_exchange_strong(&n_threads, &none, n)) n = none;
    }
    if (told != n) tell_team(n);
    return n;
}

void pl_threads_set(int n)
{
    n_threads = n < 1 ? 1 : n;
    tell_team(n < 1 ? 1 : n);
}

typedef struct loop {
    int64_t n_tasks;
    void (*fn)(void *ctx, int64_t task, int worker);
    void *ctx;
} loop;

static void run_share(void *arg)
{
    const loop *l = arg;
    int worker = pl_team_index(), workers = pl_team_size();
    int64_t lo = l->n_tasks * worker / workers, hi = l->n_tasks * (worker + 1) / workers;
    for (int64_t t = lo; t < hi; t++) l->fn(l->ctx, t, worker);
}

/* The team is created for all threads at once: no later loop starts a thread. */
void pl_threads_for(int64_t n_tasks, void (*fn)(void *, int64_t, int), void *ctx)
{
    int workers = pl_threads_count();
    if (n_tasks > 1 && workers > 1 && !pl_team_inside()) {
        loop l = {n_tasks, fn, ctx};
        workers = pl_team_reach(workers);
        pl_team_run(n_tasks < workers ? (int)n_tasks : workers, run_share, &l);
        return;
    }
    for (int64_t t = 0; t < n_tasks; t++) fn(ctx, t, 0);
}
