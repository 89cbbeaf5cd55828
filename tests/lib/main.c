/* main.c - runs the registered tests; see test.h. */
#include "base/sys.h"
#include "base/threads.h"
#include "tests/lib/deal.h"

#include "plimsoll.h"

#include <ftw.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static pl_test_case *all_tests;
static bool failed, skipped, verbose;
static int counts[3]; /* by pl_test_end */
static int n_chosen;  /* tests of this run */
/* The slowest tests that have ended, slowest first; kept only if asked for. */
enum { MOST_TIMES = 15 };
static struct {
    const char *name;
    double wall_s, cpu_s;
} times[MOST_TIMES];
static int n_times = -1;           /* -1: not asked for */
static char folder[64], cache[64]; /* cache: empty when the user has named one */

void pl_test_register(pl_test_case *t)
{
    t->next = all_tests;
    all_tests = t;
}

void pl_test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%s:%d: ", file, line);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    failed = true;
}

void pl_test_skip(const char *why)
{
    printf("    skipped: %s\n", why);
    skipped = true;
}

bool pl_test_long(void)
{
    return getenv("PL_TEST_LONG") != NULL;
}

const char *pl_test_dir(void)
{
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/pl_test_XXXXXX");
        if (!mkdtemp(folder)) abort();
    }
    return folder;
}

const char *pl_test_path(const char *name)
{
    static char path[8][512];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", pl_test_dir(), name);
    return path[at];
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Plans depend on measured times, and no test may depend on what another one measured. */
static void remove_times(void)
{
    char pattern[160];
    glob_t found;
    const char *dir = getenv("PLIMSOLL_CACHE");
    if (!cache[0] || !dir) return;
    snprintf(pattern, sizeof pattern, "%s/times-*", dir);
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) remove(found.gl_pathv[i]);
    globfree(&found);
}

static void remove_folder(void)
{
    if (folder[0]) remove_tree(folder);
    folder[0] = 0;
}

/* Caches of tests are separate from the user's, and from those of tests that run at the same
 * time: plans depend on measured times. */
static void begin_cache(void)
{
    /* 64 digits: no test reads or creates the secret of the user who runs it */
    setenv("PLIMSOLL_SECRET", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
           1);
    if (getenv("PLIMSOLL_CACHE")) return;
    snprintf(cache, sizeof cache, "/tmp/pl_test_cache_XXXXXX");
    if (!mkdtemp(cache)) abort();
    setenv("PLIMSOLL_CACHE", cache, 1);
}

/* Gives tests and the programs that they start this worker's share of the cores. With more threads
 * than cores, oneDNN's barriers spin for threads that cannot run, up to ten times the work.
 * Exhaustive runs and the thread sanitizer keep all threads. */
static void share_cores(int workers)
{
#if !defined(__SANITIZE_THREAD__)
    char threads[16];
    int share = pl_sys_cores() / workers;
    if (pl_test_long() || getenv("OMP_NUM_THREADS")) return;
    snprintf(threads, sizeof threads, "%d", share > 1 ? share : 1);
    setenv("PL_THREADS", threads, 0);
#else
    (void)workers;
#endif
}

void pl_test_worker(int number, int workers)
{
    char own[96];
    setenv("OMP_WAIT_POLICY", "passive", 0); /* other tests need the cores of idle threads */
    share_cores(workers);
    if (!cache[0]) return;
    snprintf(own, sizeof own, "%s/%d", cache, number);
    setenv("PLIMSOLL_CACHE", own, 1);
}

double pl_test_noise(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(int64_t)z * 0x1p-63;
}

static int by_place(const void *a, const void *b)
{
    const pl_test_case *x = *(pl_test_case *const *)a, *y = *(pl_test_case *const *)b;
    int c = strcmp(x->file, y->file);
    return c ? c : strcmp(x->name, y->name);
}

static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

/* An order in which tests of one file are far apart: tests that mostly wait (ranks, servers) run
 * beside tests that compute. */
static int by_hash(const void *a, const void *b)
{
    uint32_t x = hash((*(pl_test_case *const *)a)->name);
    uint32_t y = hash((*(pl_test_case *const *)b)->name);
    return x < y ? -1 : x > y ? 1 : by_place(a, b);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double cpu_seconds(void)
{
    double sum = 0;
    for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
        struct rusage u;
        if (getrusage(who, &u) != 0) continue;
        sum += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return sum;
}

pl_test_result pl_test_run(const pl_test_case *t)
{
    failed = skipped = false;
    double start = now(), cpu = cpu_seconds();
    int threads = pl_threads_count();
    t->fn();
    pl_threads_set(
        threads); /* plans depend on the cache, and tests that ran before in one process differ */
    remove_folder();
    remove_times();
    return (pl_test_result){failed    ? PL_TEST_FAILED
                            : skipped ? PL_TEST_SKIPPED
                                      : PL_TEST_PASSED,
                            now() - start, cpu_seconds() - cpu};
}

static void keep_time(const char *name, pl_test_result r)
{
    int at = n_times;
    while (at > 0 && times[at - 1].wall_s < r.wall_s) at--;
    if (at == MOST_TIMES) return;
    int last = n_times < MOST_TIMES ? n_times++ : MOST_TIMES - 1;
    memmove(times + at + 1, times + at, (size_t)(last - at) * sizeof *times);
    times[at].name = name, times[at].wall_s = r.wall_s, times[at].cpu_s = r.cpu_s;
}

void pl_test_tell(const pl_test_case *t, pl_test_result r)
{
    static const char *const word[] = {"ok", "FAIL", "skip"};
    counts[r.end]++;
    if (n_times >= 0) keep_time(t->name, r);
    if (r.end == PL_TEST_FAILED || verbose || r.wall_s > 5)
        printf("%s %s (%.2f s, %.2f of a core; %d of %d)\n", word[r.end], t->name, r.wall_s,
               r.cpu_s, counts[0] + counts[1] + counts[2], n_chosen);
    fflush(stdout);
}

static int usage(FILE *to)
{
    fputs(
        "pl_test [options] - runs tests\n"
        "  -k PART   tests whose names contain PART; -k =NAME: one test; several -k: any of them\n"
        "  -j N      N tests at once, each in a process of its own\n"
        "  -l        list the names\n"
        "  -v        print a line for every test, not only for failures and slow tests\n"
        "  --times   list the slowest tests at the end\n",
        to);
    return to == stdout ? 0 : 2;
}

enum { MAX_PARTS = 16 };

static bool is_wanted(const char *name, const char *const *part, int n)
{
    for (int i = 0; i < n; i++)
        if (part[i][0] == '=' ? !strcmp(name, part[i] + 1) : strstr(name, part[i]) != NULL)
            return true;
    return n == 0;
}

int main(int argc, char **argv)
{
    const char *part[MAX_PARTS];
    int n_parts = 0;
    bool list = false;
    int workers = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-k") && i + 1 < argc && n_parts < MAX_PARTS)
            part[n_parts++] = argv[++i];
        else if (!strcmp(argv[i], "-j") && i + 1 < argc)
            workers = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-l"))
            list = true;
        else if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (!strcmp(argv[i], "--times"))
            n_times = 0;
        else
            return usage(!strcmp(argv[i], "--help") ? stdout : stderr);
    }
    int n = 0;
    for (pl_test_case *t = all_tests; t; t = t->next) n++;
    pl_test_case **order = calloc((size_t)n + 1, sizeof *order);
    if (!order) return 1;
    n = 0;
    for (pl_test_case *t = all_tests; t; t = t->next)
        if (is_wanted(t->name, part, n_parts)) order[n++] = t;
    qsort(order, (size_t)n, sizeof *order, !list && workers > 0 ? by_hash : by_place);
    n_chosen = n;
    if (!list) begin_cache();
    if (!list && workers > 0) pl_test_deal(order, n, workers);
    for (int i = 0; i < n && (list || workers <= 0); i++) {
        if (list)
            printf("%s\n", order[i]->name);
        else
            pl_test_tell(order[i], pl_test_run(order[i]));
    }
    free(order);
    if (list) return 0;
    if (cache[0]) remove_tree(cache);
    for (int i = 0; i < n_times; i++)
        printf("%8.2f s %8.2f of a core  %s\n", times[i].wall_s, times[i].cpu_s, times[i].name);
    printf("%d passed, %d failed", counts[PL_TEST_PASSED], counts[PL_TEST_FAILED]);
    if (counts[PL_TEST_SKIPPED]) printf(", %d skipped", counts[PL_TEST_SKIPPED]);
    printf("\n");
    return counts[PL_TEST_FAILED] > 0 || counts[PL_TEST_PASSED] == 0;
}
