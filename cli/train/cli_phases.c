/* cli_phases.c - see cli_phases.h.
 *
 * Each phase is planned in a separate program, as each phase is trained in one. Otherwise the
 * memory that planning leaves behind would count as overhead of the next phase, and pages that a
 * forked process has not touched yet would be missing. The child ends with the process that started
 * it, and is ended when that process gets a signal to stop.
 */
#include "cli_phases.h"

#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKED "PLIMSOLL_PLANS_PHASE"
enum { NOT_EXECUTED = 127 }; /* exit code of the child: /proc is not mounted */

static pl_status plan_one(const cli_args *a, const char *memory, int number, phase_row *row)
{
    cli_args b = *a;
    char name[64];
    pl_run *run = NULL;
    snprintf(name, sizeof name, "%d", number);
    b.phase = name;
    pl_status rc = cli_open_run(&b, memory, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_find_minimum(run);
    if (rc == PL_OK) {
        const pl_phase *p = pl_run_phase_at(run, number);
        snprintf(row->name, sizeof row->name, "%s", p->name);
        row->number = number;
        row->times = p->folds ? p->folds - p->fold : 1;
        row->steps = pl_config_int(pl_run_config(run), "train.steps");
        row->parameters = pl_run_parameters(run, false);
        row->trainable = pl_run_parameters(run, true);
        row->step_ms = pl_run_predicted_ms(run);
        row->memory = pl_run_memory_get(run);
        row->split = pl_run_split_get(run);
        plan_tradeoffs(run, row->tradeoffs, sizeof row->tradeoffs);
    }
    pl_run_free(run);
    return rc;
}

/* Plans in this process, where no child can be started. */
static pl_status plan_here(const cli_args *a, const char *memory, int number, phase_row *row)
{
    pl_status rc = plan_one(a, memory, number, row);
    if (rc != PL_OK) cli_fail(rc);
    return rc;
}

/* The answer of the child: the row, or the error. */
typedef struct answer {
    pl_status rc;
    phase_row row;
    char why[1024];
} answer;

void phases_answer(const cli_args *a, const char *memory)
{
    answer w;
    int number, to;
    const char *asked = getenv(ASKED);
    if (!asked || sscanf(asked, "%d %d", &number, &to) != 2) return;
    unsetenv(ASKED);
    memset(&w, 0, sizeof w);
    w.rc = plan_one(a, memory, number, &w.row);
    if (w.rc != PL_OK) snprintf(w.why, sizeof w.why, "%s", pl_error_text());
    w.row.split.coupled = NULL; /* a pointer into this process */
    bool written = write(to, &w, sizeof w) == (ssize_t)sizeof w;
    _exit(written ? 0 : 1);
}

/* Executes the same command line, with the number of the phase in the environment. */
static void ask_in_child(const cli_args *a, int number, int to, pid_t parent)
{
    char text[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    snprintf(text, sizeof text, "%d %d", number, to);
    if (setenv(ASKED, text, 1) == 0 && fcntl(to, F_SETFD, 0) == 0) execv("/proc/self/exe", a->argv);
    _exit(NOT_EXECUTED);
}

/* Reads the output of the child, up to n bytes. A signal to stop ends the child: there is nothing
 * to save. */
static size_t read_answer(int from, pid_t child, void *to, size_t n)
{
    enum { LOOK_MS = 100 };
    struct pollfd at = {.fd = from, .events = POLLIN};
    size_t got = 0;
    bool told = false;
    while (got < n) {
        if (signals.stop && !told) told = kill(child, SIGKILL) == 0;
        if (poll(&at, 1, LOOK_MS) <= 0) continue;
        ssize_t k = read(from, (char *)to + got, n - got);
        if (k > 0)
            got += (size_t)k;
        else if (k == 0 || errno != EINTR)
            break;
    }
    return got;
}

static pl_status plan_in_child(const cli_args *a, const char *memory, int number, phase_row *row)
{
    answer w;
    int pipes[2], status;
    size_t got = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0) return plan_here(a, memory, number, row);
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(pipes[0]);
        ask_in_child(a, number, pipes[1], parent);
    }
    close(pipes[1]);
    if (child > 0) got = read_answer(pipes[0], child, &w, sizeof w);
    close(pipes[0]);
    if (child < 0) return plan_here(a, memory, number, row);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (got < sizeof w && signals.stop)
        return pl_fail(PL_ERR_STOPPED, "planning of the phases was stopped");
    if (got == 0 && WIFEXITED(status) && WEXITSTATUS(status) == NOT_EXECUTED)
        return plan_here(a, memory, number, row);
    if (got < sizeof w) {
        cli_error("the process that plans phase %d died%s", number,
                  WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                      ? ": killed, possibly because memory ran out"
                      : "");
        return PL_ERR_MEMORY;
    }
    *row = w.row;
    if (w.rc != PL_OK) cli_error("%s", w.why);
    return w.rc;
}

pl_status phases_plan(const cli_args *a, const char *memory, int from, phase_row **rows, int *n)
{
    pl_run *list = NULL;
    cli_args b = *a;
    b.phase = NULL;
    pl_status rc = cli_open_run(&b, memory, &list);
    if (rc != PL_OK) cli_fail(rc);
    int all = rc == PL_OK ? pl_run_phase_count(list) : 0;
    pl_run_free(list);
    *n = 0;
    *rows = rc == PL_OK ? calloc((size_t)all + 1, sizeof **rows) : NULL;
    if (rc == PL_OK && !*rows) rc = PL_ERR_MEMORY;
    for (int i = from; i < all && rc == PL_OK; i += (*rows)[*n - 1].times)
        rc = plan_in_child(a, memory, i, &(*rows)[(*n)++]);
    if (rc == PL_OK) return rc;
    free(*rows);
    *rows = NULL;
    return rc;
}

/* On a GPU the overhead is measured and differs by some pages from process to process: totals that
 * differ by less than 1 MiB do not decide, arena and state do. */
static bool is_larger(const phase_row *a, const phase_row *b)
{
    const pl_run_memory *x = &a->memory, *y = &b->memory;
    if (x->total > y->total + (1 << 20) || y->total > x->total + (1 << 20))
        return x->total > y->total;
    return x->arena + x->state > y->arena + y->state;
}

const phase_row *phases_largest(const phase_row *rows, int n)
{
    const phase_row *most = rows;
    for (int i = 1; i < n; i++)
        if (is_larger(&rows[i], most)) most = &rows[i];
    return most;
}

const phase_row *phases_neediest(const phase_row *rows, int n)
{
    const phase_row *most = rows;
    for (int i = 1; i < n; i++)
        if (rows[i].memory.minimum > most->memory.minimum) most = &rows[i];
    return most;
}

bool phases_fit(const phase_row *rows, int n)
{
    bool fit = true;
    for (int i = 0; i < n; i++) fit &= rows[i].memory.fits;
    return fit;
}

void phases_print(const phase_row *rows, int n, FILE *out)
{
    const phase_row *most = phases_largest(rows, n);
    fprintf(out, "%sphases%s\n  %-20s %9s %6s %13s %11s %11s %11s %11s\n", cli_bold(out),
            cli_plain(out), "", "steps", "batch", "trainable", "step time", "arena", "process",
            "minimum");
    for (int i = 0; i < n; i++) {
        const phase_row *r = &rows[i];
        char name[96];
        snprintf(name, sizeof name, r->times > 1 ? "%s (x %d)" : "%s", r->name, r->times);
        fprintf(out, "  %-20s %9lld %6lld %13s %11s %11s %11s %11s%s%s%s\n", name,
                (long long)r->steps, (long long)r->split.effective, cli_count(r->trainable),
                cli_ms(r->step_ms), cli_bytes(r->memory.arena), cli_bytes(r->memory.total),
                cli_bytes(r->memory.minimum), r == most && n > 1 ? "  largest" : "",
                r->memory.fits ? "" : "  does NOT fit", r->tradeoffs);
    }
    fputc('\n', out);
}

void phases_json(const phase_row *rows, int n, pl_json *j)
{
    pl_json_array(j, "phases");
    for (int i = 0; i < n; i++) {
        const phase_row *r = &rows[i];
        pl_json_object(j, NULL);
        pl_json_string(j, "name", r->name);
        pl_json_int(j, "times", r->times);
        pl_json_int(j, "steps", r->steps);
        pl_json_bool(j, "fits", r->memory.fits);
        pl_json_uint(j, "arena_bytes", r->memory.arena);
        pl_json_uint(j, "state_bytes", r->memory.state);
        pl_json_uint(j, "total_bytes", r->memory.total);
        pl_json_uint(j, "minimum_bytes", r->memory.minimum);
        pl_json_float(j, "predicted_step_ms", r->step_ms);
        pl_json_int(j, "micro_batch", r->split.micro);
        pl_json_int(j, "accumulate", r->split.accumulate);
        pl_json_int(j, "effective_batch", r->split.effective);
        pl_json_int(j, "parameters", r->parameters);
        pl_json_int(j, "trainable", r->trainable);
        pl_json_end(j);
    }
    pl_json_end(j);
}

pl_status phases_check(const phase_row *rows, int n)
{
    const phase_row *most = phases_neediest(rows, n);
    if (phases_fit(rows, n)) return PL_OK;
    for (int i = 0; i < n; i++)
        if (!rows[i].memory.fits)
            cli_error("phase %s does not fit %s: it needs %s", rows[i].name,
                      cli_bytes(rows[i].memory.budget), cli_bytes(rows[i].memory.total));
    cli_error("the smallest budget that fits all phases is %llu bytes (%s, for %s)",
              (unsigned long long)most->memory.minimum, cli_bytes(most->memory.minimum),
              most->name);
    return PL_ERR_FIT;
}

int phases_model(const pl_run *run, int last)
{
    int i = last;
    while (i > 0 && pl_run_phase_at(run, i)->folds) i--;
    return i >= 0 && pl_run_phase_at(run, i)->folds ? last : i;
}
