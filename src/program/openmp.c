/* openmp.c - libgomp's entry points, replaced in the program so that oneDNN's loops run on our
 * teams.
 *
 * Idea: the dynamic linker binds a library's calls to a definition in the executable before one in
 * another library. oneDNN is compiled for OpenMP and calls the five functions below (3.7 also
 * omp_set_num_threads, but only in its graph component, which Plimsoll does not use). A loop that
 * begins in the served library (pl_team_serve) runs on the calling thread's team (base/team.h); all
 * other loops are passed to libgomp. Why: libgomp ends threads when a loop is smaller than the
 * previous loop and starts them again for the next. oneDNN chooses a size for every kernel, so that
 * happens hundreds of times in a step.
 *
 * Invariant: inside a loop of a team, worker number and count are the team's; everywhere else they
 * are libgomp's.
 *
 * Only programs link this file, never libplimsoll.a: a library must not replace functions of the
 * program that links it. Without it oneDNN's loops run on libgomp's threads.
 */
#include "base/err.h"
#include "base/team.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* The names and signatures are libgomp's. */
#define ENTRY __attribute__((visibility("default")))
ENTRY void GOMP_parallel(void (*fn)(void *), void *data, unsigned n, unsigned flags);
ENTRY void GOMP_barrier(void);
ENTRY int omp_get_thread_num(void);
ENTRY int omp_get_num_threads(void);
ENTRY int omp_in_parallel(void);
int omp_get_max_threads(void);

static struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    void (*barrier)(void);
    int (*thread_num)(void), (*num_threads)(void), (*in_parallel)(void);
} gomp;
static pthread_once_t gomp_once = PTHREAD_ONCE_INIT;

static void gomp_name(const char *name, void *out)
{
    void *at = dlsym(RTLD_NEXT, name);
    if (!at) PL_BUG("libgomp has no %s", name);
    memcpy(out, &at, sizeof at);
}

static void gomp_find(void)
{
    gomp_name("GOMP_parallel", &gomp.parallel);
    gomp_name("GOMP_barrier", &gomp.barrier);
    gomp_name("omp_get_thread_num", &gomp.thread_num);
    gomp_name("omp_get_num_threads", &gomp.num_threads);
    gomp_name("omp_in_parallel", &gomp.in_parallel);
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned n, unsigned flags)
{
    if (pl_team_serves(__builtin_return_address(0))) {
        int most = omp_get_max_threads(), wanted = n ? (int)n : most;
        if (pl_team_in_loop() || pl_team_reach(wanted > most ? wanted : most) >= wanted) {
            pl_team_run(wanted, fn, data);
            return;
        }
    }
    pthread_once(&gomp_once, gomp_find);
    bool inside = pl_team_set_in_loop(false); /* in that loop libgomp answers */
    gomp.parallel(fn, data, n, flags);
    (void)pl_team_set_in_loop(inside);
}

void GOMP_barrier(void)
{
    if (pl_team_in_loop()) {
        pl_team_barrier();
        return;
    }
    pthread_once(&gomp_once, gomp_find);
    gomp.barrier();
}

int omp_get_thread_num(void)
{
    if (pl_team_in_loop()) return pl_team_index();
    pthread_once(&gomp_once, gomp_find);
    return gomp.thread_num();
}

int omp_get_num_threads(void)
{
    if (pl_team_in_loop()) return pl_team_size();
    pthread_once(&gomp_once, gomp_find);
    return gomp.num_threads();
}

int omp_in_parallel(void)
{
    if (pl_team_in_loop()) return 1;
    pthread_once(&gomp_once, gomp_find);
    return gomp.in_parallel();
}
