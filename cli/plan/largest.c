/* largest.c - `plan --largest-batch`: the largest batch for a budget, by planning alone.
 *
 * The minimum of a batch grows almost linearly with the batch. Two plans predict the answer and a
 * few more confirm it. Invariant of the search: `lo` fits, `hi` does not, and each plan moves one
 * of them to where the line through both meets the budget. After four plans the search bisects
 * instead, so the cost is at most a logarithm of the batch.
 *
 * On the host the overhead of a plan is the memory of its process, and a process that has planned
 * before has more, or, where oneDNN has kept kernels, measures less. So every plan of the search is
 * computed in a separate child process, and its numbers are the numbers that `plan batch=N` prints.
 * A process with a GPU must not fork: there all plans are made here.
 */
#include "plan_view.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_UNITS = 1 << 20 };

typedef struct search {
    const cli_args *args;
    uint64_t budget;
    int64_t unit;  /* batches are multiples of this number (key accumulate) */
    int64_t least; /* units of the smallest possible batch */
    bool forks;    /* plans are made in children */
    int plans;
} search;

typedef struct point {
    int64_t units; /* batch = units * unit */
    uint64_t bytes;
} point;

static pl_status open_batch(const search *s, int64_t batch, const char *memory, pl_run **out)
{
    cli_args a = *s->args;
    char text[3][96];
    cli_busy("planning batch %lld", (long long)batch);
    snprintf(text[0], sizeof text[0], "batch=%lld", (long long)batch);
    snprintf(text[1], sizeof text[1], "accumulate=%lld", (long long)s->unit);
    snprintf(text[2], sizeof text[2], "memory=%s", memory);
    for (int i = 0; i < 3; i++) a.overrides[a.n_overrides++] = text[i];
    return cli_open_run(&a, NULL, out);
}

/* The figures of a plan; goes through a pipe. */
typedef struct answer {
    pl_status rc;
    uint64_t minimum;
    bool fits;
    char why[512];
} answer;

/* Plans a batch. memory "null": finds its minimum. Else: plans it for that budget. */
static answer plan_here(const search *s, int64_t units, const char *memory)
{
    pl_run *run = NULL;
    bool minimum = strcmp(memory, "null") == 0;
    answer a = {.rc = open_batch(s, units * s->unit, memory, &run)};
    if (a.rc == PL_OK) a.rc = pl_run_build(run);
    if (a.rc == PL_OK && minimum) a.rc = pl_run_find_minimum(run);
    if (a.rc == PL_OK) {
        a.minimum = pl_run_memory_get(run).minimum;
        a.fits = pl_run_memory_get(run).fits;
    }
    snprintf(a.why, sizeof a.why, "%s", pl_error_text());
    pl_run_free(run);
    return a;
}

static void answer_in_child(const search *s, int64_t units, const char *memory, int to,
                            pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    answer a = plan_here(s, units, memory);
    cli_idle();
    _exit(write(to, &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1);
}

static pl_status plan_batch(search *s, int64_t units, const char *memory, answer *out)
{
    int pipes[2], status = 0;
    size_t got = 0;
    s->plans++;
    if (!s->forks || pipe2(pipes, O_CLOEXEC) != 0) {
        *out = plan_here(s, units, memory);
        return out->rc;
    }
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) answer_in_child(s, units, memory, pipes[1], parent);
    close(pipes[1]);
    while (child > 0 && got < sizeof *out) {
        ssize_t k = read(pipes[0], (char *)out + got, sizeof *out - got);
        if (k > 0)
            got += (size_t)k;
        else if (k == 0 || errno != EINTR)
            break;
    }
    close(pipes[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (got < sizeof *out)
        return pl_fail(PL_ERR_MEMORY, "planning batch %lld died%s", (long long)(units * s->unit),
                       WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                           ? ": killed, possibly because memory ran out"
                           : "");
    return out->rc == PL_OK ? PL_OK : pl_fail(out->rc, "%s", out->why);
}

/* Finds the minimum of a batch. */
static pl_status find_minimum(search *s, int64_t units, point *out)
{
    answer a;
    pl_status rc = plan_batch(s, units, "null", &a);
    if (rc == PL_OK) *out = (point){units, a.minimum};
    return rc;
}

/* Returns the batch at which the line through two points meets the budget. */
static int64_t predicted(const search *s, point a, point b)
{
    double rise = ((double)b.bytes - (double)a.bytes) / (double)(b.units - a.units);
    double at = (double)a.units + ((double)s->budget - (double)a.bytes) / (rise > 1 ? rise : 1);
    return at < MOST_UNITS ? (int64_t)at : MOST_UNITS;
}

/* Replaces `fits` or `over` by the point, according to its bytes. */
static void narrow(const search *s, point p, point *fits, point *over)
{
    *(p.bytes <= s->budget ? fits : over) = p;
}

/* Grows the batch until one does not fit. Leaves *lo at one that fits and *hi at one that does not.
 */
static pl_status bracket(search *s, point *lo, point *hi)
{
    int64_t next = 2 * lo->units;
    while (hi->units == 0 && lo->units < MOST_UNITS) {
        point before = *lo, now;
        pl_status rc = find_minimum(s, next, &now);
        if (rc != PL_OK) return rc;
        narrow(s, now, lo, hi);
        int64_t reach = predicted(s, before, now) + 1;
        next = reach > 2 * now.units ? reach : 2 * now.units;
        if (next > MOST_UNITS) next = MOST_UNITS;
    }
    return PL_OK;
}

/* Finds the largest number of units that fits; 0: none does. */
static pl_status find_largest(search *s, int64_t *units)
{
    point lo = {0, 0}, hi = {0, 0};
    *units = 0;
    pl_status rc = find_minimum(s, 1, &lo);
    if (rc != PL_OK) rc = find_minimum(s, 2, &lo); /* batch statistics need two samples */
    s->least = lo.units;
    if (rc != PL_OK || lo.bytes > s->budget) return rc;
    rc = bracket(s, &lo, &hi);
    for (int i = 0; rc == PL_OK && hi.units - lo.units > 1; i++) {
        /* first the predicted batch and the next larger one, then bisection */
        int64_t k = i < 4 ? predicted(s, lo, hi) + i % 2 : lo.units + (hi.units - lo.units) / 2;
        if (k <= lo.units) k = lo.units + 1;
        if (k >= hi.units) k = hi.units - 1;
        point p;
        rc = find_minimum(s, k, &p);
        if (rc == PL_OK) narrow(s, p, &lo, &hi);
    }
    *units = lo.units;
    return rc;
}

static void show(const search *s, const pl_run *run, int64_t batch, bool json)
{
    pl_run_memory m = pl_run_memory_get(run);
    if (json) {
        pl_json *j = pl_json_new(stdout);
        pl_json_object(j, NULL);
        pl_json_int(j, "largest_batch", batch);
        plan_json(run, j);
        pl_json_end(j);
        pl_status rc = pl_json_finish(j);
        pl_json_free(j);
        if (rc != PL_OK) cli_fail(rc);
        return;
    }
    pl_run_split split = pl_run_split_get(run);
    char tradeoffs[128];
    printf(
        "largest batch for %s: %lld (micro-batch %lld x accumulate %lld)%s, found with %d plans\n",
        cli_bytes(s->budget), (long long)batch, (long long)split.micro, (long long)split.accumulate,
        plan_tradeoffs(run, tradeoffs, sizeof tradeoffs), s->plans);
    printf(
        "  arena %s + state %s + overhead %s = %s; predicted step time %s, %.1f %% of it recompute\n",
        cli_bytes(m.arena), cli_bytes(m.state), cli_bytes(m.overhead), cli_bytes(m.total),
        cli_ms(pl_run_predicted_ms(run)), 100 * plan_recompute_share(run));
}

/* Plans the batch for the budget itself. The planner may miss a budget that is just above the
 * minimum; then the next smaller batch is tried. The largest batch that fits is planned again in
 * this process, to print its plan. */
static pl_status settle(search *s, int64_t units, bool json, bool *fits)
{
    char memory[64];
    answer a = {.fits = false};
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)s->budget);
    pl_status rc = PL_OK;
    for (; units >= s->least && !a.fits && rc == PL_OK; units -= !a.fits)
        rc = plan_batch(s, units, memory, &a);
    *fits = a.fits;
    if (rc != PL_OK || !a.fits) return rc;
    pl_run *run = NULL;
    rc = open_batch(s, units * s->unit, memory, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    cli_idle();
    if (rc == PL_OK) show(s, run, units * s->unit, json);
    pl_run_free(run);
    return rc;
}

/* Reads budget and unit from the configuration. */
static pl_status prepare(search *s, const char *memory)
{
    pl_run *run = NULL;
    pl_status rc = cli_open_run(s->args, memory, &run);
    if (rc != PL_OK) return rc;
    const pl_config *c = pl_run_config(run);
    s->budget = pl_run_memory_get(run).budget;
    int64_t parts = strtoll(pl_config_text(c, "accumulate"), NULL, 10); /* auto: 0 */
    s->unit = parts > 1 ? parts : 1;
    s->forks = strcmp(pl_config_text(c, "device"), "cpu") == 0;
    pl_run_free(run);
    return PL_OK;
}

int plan_largest(const cli_args *a, const char *memory, bool json)
{
    search s = {.args = a};
    int64_t units = 0;
    bool fits = false;
    pl_status rc = prepare(&s, memory);
    if (rc == PL_OK && s.budget == 0) {
        cli_error(
            "--largest-batch needs a budget: --memory 8GB, the key memory, or a GPU: --device rtx3090");
        return 2;
    }
    if (a->n_overrides + 3 > CLI_MAX_ARGS) {
        cli_error("too many overrides");
        return 2;
    }
    if (rc == PL_OK) rc = find_largest(&s, &units);
    if (rc == PL_OK && units) rc = settle(&s, units, json, &fits);
    if (rc != PL_OK) return cli_fail(rc);
    if (!fits)
        cli_error("no batch fits %s; the smallest possible batch is %lld", cli_bytes(s.budget),
                  (long long)(s.least * s.unit));
    return fits ? 0 : 3;
}
