/* team.c - see team.h.
 *
 * A gate is a counter that threads wait on. To open it, a thread adds one and wakes the threads
 * that announced that they sleep. To wait, a thread announces itself, reads the counter again, and
 * only then sleeps, so that no opening is missed. Every worker has its own gate, which is opened
 * only for loops that the worker takes part in: it cannot lag behind. The last worker that leaves a
 * loop opens the gate at which the thread that started the loop waits.
 */
#include "base/team.h"

#include "base/fpmode.h"
#include "base/sys.h"

#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MOST = 1024, /* workers of a team */
    LINE = 128,  /* bytes that cores transfer to each other, in pairs of cache lines */
    SPINS = 2000 /* checks before sleeping: some microseconds to tens of microseconds */
};

/* ---- gates ------------------------------------------------------------------------------ */
typedef struct gate {
    _Atomic uint32_t count;
    _Atomic uint32_t asleep;
} gate;

static void pause_a_moment(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_open(gate *g)
{
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->asleep))
        syscall(SYS_futex, &g->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the gate has been opened since it was at `was`. */
static void gate_wait(gate *g, uint32_t was, unsigned spins)
{
    for (unsigned i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != was) return;
        pause_a_moment();
    }
    atomic_fetch_add(&g->asleep, 1);
    while (atomic_load(&g->count) == was)
        syscall(SYS_futex, &g->count, FUTEX_WAIT_PRIVATE, was, NULL, NULL, 0);
    atomic_fetch_sub(&g->asleep, 1);
}

/* ---- teams ------------------------------------------------------------------------------ */
typedef struct worker {
    alignas(LINE) gate call;
    struct team *team;
    pthread_t thread;
    int index;
} worker;

typedef struct team {
    alignas(LINE) void (*fn)(void *); /* of the loop; NULL: the team ends */
    void *data;
    uint32_t mode; /* floating-point mode of the thread that started the loop */
    int size;
    int made; /* number of workers, including the thread that starts loops */
    _Atomic unsigned spins;
    alignas(LINE) _Atomic int running; /* workers still in the loop, without the thread that started
                                        * it */
    gate done;
    alignas(LINE) _Atomic int arrived; /* at the barrier */
    gate barrier;
    worker *workers[MOST];
} team;

/* The loop that the calling thread is in; size 0: none. inside is also set in loops of one worker
 * that start there. */
static _Thread_local struct {
    team *team;
    int index, size;
    bool inside;
} here;
static _Thread_local team *own;

static pthread_key_t team_key;
static pthread_once_t team_once = PTHREAD_ONCE_INIT;

/* More workers than cores would spin while the worker they wait for cannot run. */
static unsigned spins_for(int n)
{
    const char *policy = getenv("OMP_WAIT_POLICY");
    bool passive = policy && strcasecmp(policy, "passive") == 0;
    return passive || n > pl_sys_cores() ? 0 : SPINS;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    team *t = w->team;
    here.team = t;
    here.index = w->index;
    here.inside = true;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&w->call, seen, t->spins);
        if (!t->fn) return NULL;
        here.size = t->size;
        pl_fp_set(t->mode);
        t->fn(t->data);
        if (atomic_fetch_sub(&t->running, 1) == 1) gate_open(&t->done);
    }
}

static void team_end(void *ctx)
{
    team *t = ctx;
    t->fn = NULL;
    for (int i = 1; i < t->made; i++) gate_open(&t->workers[i]->call);
    for (int i = 1; i < t->made; i++) {
        pthread_join(t->workers[i]->thread, NULL);
        free(t->workers[i]);
    }
    free(t);
    own = NULL;
}

/* A forked process has this thread and none of its workers. */
static void team_forget(void)
{
    own = NULL;
    pthread_setspecific(team_key, NULL);
}

static void team_key_make(void)
{
    if (pthread_key_create(&team_key, team_end) || pthread_atfork(NULL, NULL, team_forget))
        PL_BUG("no key for the team of a thread");
}

static bool worker_make(team *t)
{
    worker *w = aligned_alloc(alignof(worker), sizeof *w);
    if (!w) return false;
    memset(w, 0, sizeof *w);
    w->team = t;
    w->index = t->made;
    if (pthread_create(&w->thread, NULL, worker_main, w)) {
        free(w);
        return false;
    }
    t->workers[t->made++] = w;
    return true;
}

int pl_team_reach(int n)
{
    if (n > MOST) n = MOST;
    if (n <= 1) return 1;
    if (!own) {
        pthread_once(&team_once, team_key_make);
        own = aligned_alloc(alignof(team), sizeof *own);
        if (!own) return 1;
        memset(own, 0, sizeof *own);
        own->made = 1;
        if (pthread_setspecific(team_key, own)) {
            free(own);
            own = NULL;
            return 1;
        }
    }
    if (own->made < n) {
        own->spins = spins_for(n);
        while (own->made < n && worker_make(own)) continue;
    }
    return own->made < n ? own->made : n;
}

static void run_alone(void (*fn)(void *), void *data)
{
    int index = here.index, size = here.size;
    here.index = 0;
    here.size = 1;
    fn(data);
    here.index = index;
    here.size = size;
}

void pl_team_run(int n, void (*fn)(void *), void *data)
{
    if (here.inside || n <= 1) {
        run_alone(fn, data);
        return;
    }
    team *t = own;
    if (!t || n > t->made) PL_BUG("a loop of %d workers on a team of %d", n, t ? t->made : 1);
    t->fn = fn;
    t->data = data;
    t->mode = pl_fp_mode();
    t->size = n;
    uint32_t done = atomic_load(&t->done.count);
    atomic_store(&t->running, n - 1);
    for (int i = 1; i < n; i++) gate_open(&t->workers[i]->call);
    here.team = t;
    here.index = 0;
    here.size = n;
    here.inside = true;
    fn(data);
    here.size = 0;
    here.inside = false;
    gate_wait(&t->done, done, t->spins);
}

int pl_team_index(void)
{
    return here.index;
}

int pl_team_size(void)
{
    return here.size ? here.size : 1;
}

void pl_team_barrier(void)
{
    if (here.size == 1) return;
    team *t = here.team;
    uint32_t was = atomic_load(&t->barrier.count);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == here.size) {
        atomic_store(&t->arrived, 0);
        gate_open(&t->barrier);
    } else {
        gate_wait(&t->barrier, was, t->spins);
    }
}

bool pl_team_in_loop(void)
{
    return here.inside;
}

bool pl_team_set_in_loop(bool inside)
{
    bool was = here.inside;
    here.inside = inside;
    return was;
}

int omp_in_parallel(void); /* libgomp's, or the program's (src/program/openmp.c) */

bool pl_team_inside(void)
{
    return here.inside || omp_in_parallel();
}

/* ---- whom to serve ---------------------------------------------------------------------- */
static _Atomic uintptr_t served_from, served_to;

typedef struct search {
    uintptr_t code, from, to;
} search;

static int look(struct dl_phdr_info *library, size_t size, void *ctx)
{
    search *s = ctx;
    uintptr_t from = UINTPTR_MAX, to = 0;
    (void)size;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        if (library->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t at = library->dlpi_addr + library->dlpi_phdr[i].p_vaddr;
        if (at < from) from = at;
        if (at + library->dlpi_phdr[i].p_memsz > to) to = at + library->dlpi_phdr[i].p_memsz;
    }
    bool holds = s->code >= from && s->code < to;
    /* the program itself has no name */
    if (holds && library->dlpi_name[0]) s->from = from, s->to = to;
    return holds;
}

bool pl_team_serve(const void *code)
{
    search s = {.code = (uintptr_t)code};
    uintptr_t none = 0;
    dl_iterate_phdr(look, &s);
    if (!s.to) return false;
    if (atomic_compare_exchange_strong(&served_from, &none, s.from)) served_to = s.to;
    return true;
}

bool pl_team_serves(const void *code)
{
    uintptr_t at = (uintptr_t)code;
    return at >= served_from && at < served_to;
}
