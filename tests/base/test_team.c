/* test_team.c - the threads of parallel loops: kept between loops of every size, ended with the
 * thread that started them; other OpenMP loops get libgomp's threads. */
#include "tests/lib/test.h"

#include "base/team.h"
#include "base/threads.h"
#include "tests/lib/alloc_count.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void GOMP_parallel(void (*fn)(void *), void *data, unsigned n, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_in_parallel(void);

enum { WORKERS = 5, NO_LIMIT = 77 };

static int threads_of_process(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* Ended threads are still listed for a moment. */
static bool threads_fall_to(int n)
{
    for (int i = 0; i < 2000 && threads_of_process() > n; i++) usleep(1000);
    return threads_of_process() <= n;
}

/* ---- loops ------------------------------------------------------------------------------ */
static void note_thread(void *ctx, int64_t task, int worker)
{
    (void)task;
    ((long *)ctx)[worker] = syscall(SYS_gettid);
}

typedef struct kept {
    bool same, apart;
    int begun, ended; /* threads of the process after the first loop and the last */
} kept;

static void *loops_of_all_sizes(void *ctx)
{
    kept *k = ctx;
    long first[WORKERS] = {0}, now[WORKERS];
    pl_threads_for(2, note_thread, first);
    k->begun = threads_of_process();
    pl_threads_for(WORKERS, note_thread, first);
    static const int sizes[] = {WORKERS, 2, WORKERS, 3, 1, 4, WORKERS};
    k->same = k->apart = true;
    for (int round = 0; round < 100; round++) {
        int n = sizes[round % 7];
        memset(now, 0, sizeof now);
        pl_threads_for(n, note_thread, now);
        for (int i = 0; i < WORKERS; i++) k->same = k->same && now[i] == (i < n ? first[i] : 0);
    }
    k->ended = threads_of_process();
    for (int i = 0; i < WORKERS; i++)
        for (int j = 0; j < i; j++) k->apart = k->apart && first[i] != first[j];
    return NULL;
}

/* In a separate thread, whose team starts here; its first loop is small, and the team is
 * complete all the same. */
TEST(team_keeps_its_threads_whatever_a_loop_takes)
{
    int before = pl_threads_count();
    kept k = {0};
    pthread_t t;
    pl_threads_set(WORKERS);

    CHECK_INT(pthread_create(&t, NULL, loops_of_all_sizes, &k), 0);
    pthread_join(t, NULL);
    pl_threads_set(before);
    CHECK(k.same && k.apart);
    CHECK_MSG(k.ended <= k.begun, "%d threads after the first loop, %d at the end", k.begun,
              k.ended);
}

typedef struct rally {
    _Atomic int arrived[50];
    _Atomic int missed;
} rally;

static void meet(void *data)
{
    rally *r = data;
    for (int i = 0; i < 50; i++) {
        if (omp_get_thread_num() == i % WORKERS) usleep(200);
        atomic_fetch_add(&r->arrived[i], 1);
        GOMP_barrier();
        if (r->arrived[i] != omp_get_num_threads()) atomic_fetch_add(&r->missed, 1);
    }
}

TEST(team_meets_at_barriers)
{
    static rally r;
    memset(&r, 0, sizeof r);
    CHECK_INT(pl_team_reach(WORKERS), WORKERS);

    pl_team_run(WORKERS, meet, &r);
    CHECK_INT(r.missed, 0);
    CHECK_INT(r.arrived[49], WORKERS);

    memset(&r, 0, sizeof r);
    pl_team_run(WORKERS - 2, meet, &r); /* and with fewer, on the same team */
    CHECK_INT(r.missed, 0);
    CHECK_INT(r.arrived[49], WORKERS - 2);
}

typedef struct nest {
    _Atomic int inner, wrong;
} nest;

static void inner_loop(void *data)
{
    nest *n = data;
    atomic_fetch_add(&n->inner, 1);
    if (pl_team_index() != 0 || pl_team_size() != 1 || !omp_in_parallel())
        atomic_fetch_add(&n->wrong, 1);
    GOMP_barrier();
}

static void inner_task(void *ctx, int64_t task, int worker)
{
    (void)task;
    nest *n = ctx;
    atomic_fetch_add(&n->inner, 1);
    if (worker != 0) atomic_fetch_add(&n->wrong, 1);
}

static void outer_loop(void *data)
{
    nest *n = data;
    int index = pl_team_index(), size = pl_team_size();
    pl_team_run(WORKERS, inner_loop, data);
    pl_threads_for(3, inner_task, data);
    if (pl_team_index() != index || pl_team_size() != size || omp_get_thread_num() != index)
        atomic_fetch_add(&n->wrong, 1);
}

TEST(team_runs_a_loop_inside_a_loop_on_its_caller)
{
    nest n = {0};
    CHECK_INT(pl_team_reach(WORKERS), WORKERS);
    pl_team_run(WORKERS, outer_loop, &n);
    CHECK_INT(n.wrong, 0);
    CHECK_INT(n.inner, WORKERS * 4);
    CHECK(!omp_in_parallel() && pl_team_index() == 0 && pl_team_size() == 1);
}

/* ---- threads that begin loops ----------------------------------------------------------- */
static void *begin_loops(void *ctx)
{
    pl_threads_for(WORKERS, note_thread, ctx);
    return NULL;
}

TEST(team_ends_with_the_thread_that_began_its_loops)
{
    int before = pl_threads_count();
    long mine[WORKERS] = {0}, other[WORKERS] = {0};
    pl_threads_set(WORKERS);
    pl_threads_for(WORKERS, note_thread, mine);
    int threads = threads_of_process();
    pthread_t t;

    CHECK_INT(pthread_create(&t, NULL, begin_loops, other), 0);
    pthread_join(t, NULL);
    pl_threads_set(before);
    for (int i = 0; i < WORKERS; i++)
        for (int j = 0; j < WORKERS; j++) CHECK(other[i] && other[i] != mine[j]);
    CHECK(threads_fall_to(threads));
}

/* ---- hard times ------------------------------------------------------------------------- */
static void count_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    atomic_fetch_add(&((_Atomic int *)ctx)[task], 1);
}

static bool each_task_once(void)
{
    _Atomic int done[100];
    bool once = true;
    memset(done, 0, sizeof done);
    pl_threads_for(100, count_task, done);
    for (int i = 0; i < 100; i++) once = once && done[i] == 1;
    return once;
}

/* The exit code of work() in a separate process; -1 when it did not end in time. */
static int in_a_child(int (*work)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        _exit(work());
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : -1;
}

/* An emulator may have threads of its own, which are listed too. */
static int loop_after_fork(void)
{
    int others = threads_of_process() - 1;
    return each_task_once() && threads_of_process() - others == WORKERS ? 0 : 1;
}

TEST(team_is_made_again_after_a_fork)
{
    if (!pl_test_allocs_counted()) SKIP("sanitizers start no threads in a forked process");
    int before = pl_threads_count();
    pl_threads_set(WORKERS);
    bool once = each_task_once();
    int code = in_a_child(loop_after_fork);
    pl_threads_set(before);
    CHECK(once);

    CHECK_INT(code, 0);
}

/* Room for two stacks of the 40 that are asked for. */
static int loop_without_threads(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!f || fscanf(f, "%lu", &pages) != 1) return 2;
    fclose(f);
    pthread_attr_t a;
    size_t stack = 0;
    pthread_getattr_default_np(&a);
    pthread_attr_getstacksize(&a, &stack);
    struct rlimit limit = {.rlim_cur = pages * 4096 + 2 * stack + stack / 2,
                           .rlim_max = RLIM_INFINITY};
    struct rlimit now = {0};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
    if (getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur != limit.rlim_cur) return NO_LIMIT;
    pl_threads_set(40);
    int reach = pl_team_reach(40);
    if (reach < 2 || reach >= 40) return 4;
    return each_task_once() ? 0 : 5;
}

TEST(team_computes_with_fewer_threads_than_asked)
{
    if (!pl_test_allocs_counted()) SKIP("a sanitizer needs address space without limit");
    int code = in_a_child(loop_without_threads);
    if (code == NO_LIMIT) SKIP("address space cannot be limited here (qemu-user)");
    CHECK_INT(code, 0);
}

/* ---- who is not served ------------------------------------------------------------------ */
typedef struct count {
    _Atomic int workers, size, in_parallel;
} count;

static void count_worker(void *data)
{
    count *c = data;
    atomic_fetch_add(&c->workers, 1);
    c->in_parallel = omp_in_parallel();
    c->size = omp_get_num_threads();
    GOMP_barrier();
}

static void libgomp_inside(void *data)
{
    count *c = data;
    if (pl_team_index() == 1) GOMP_parallel(count_worker, &c[0], 3, 0);
    if (omp_get_num_threads() == 2 && omp_get_thread_num() == pl_team_index())
        atomic_fetch_add(&c[1].workers, 1);
}

/* This program's own OpenMP loops are libgomp's, outside and inside a loop of the team. */
TEST(team_leaves_the_loops_of_others_to_libgomp)
{
#if defined(__SANITIZE_THREAD__)
    SKIP("the sanitizer does not see how libgomp's threads meet");
#endif
    count c[2];

    memset(c, 0, sizeof c);
    GOMP_parallel(count_worker, c, 4, 0);
    CHECK_INT(c[0].workers, 4);
    CHECK_INT(c[0].size, 4);
    CHECK_INT(c[0].in_parallel, 1);
    CHECK(!omp_in_parallel());
    CHECK_INT(omp_get_num_threads(), 1);

    memset(c, 0, sizeof c);
    CHECK_INT(pl_team_reach(2), 2);
    pl_team_run(2, libgomp_inside, c);
    CHECK_INT(c[0].workers, 3);
    CHECK_INT(c[0].size, 3);
    CHECK_INT(c[1].workers, 2);
}

TEST(team_serves_a_library_and_not_the_program)
{
    CHECK(!pl_team_serve((const void *)(uintptr_t)count_worker));
    int on_the_stack = 0;
    CHECK(!pl_team_serve(&on_the_stack));
}
