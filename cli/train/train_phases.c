/* train_phases.c - `plimsoll train` of a run with phases: the order of phases, the weights with
 * which a phase starts, the weights that it leaves. */
#include "cli_ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pl_status phases_find(trainer *t)
{
    const pl_checkpoint *c = &t->folder.last;
    int n = pl_run_phase_count(t->list);
    if (t->continued || !t->folder.path || !t->folder.dir[0]) return PL_OK;
    t->before = c->step - c->phase_step;
    bool known = n == 0 ? c->phase < 0
                        : c->phase >= 0 && c->phase < n &&
                              strcmp(pl_run_phase_at(t->list, c->phase)->name, c->phase_name) == 0;
    if (known) {
        t->phase = c->phase;
        return PL_OK;
    }
    if (c->phase < 0)
        cli_error("%s is a run without phases, this configuration has %d", t->folder.path, n);
    else
        cli_error("%s is in phase %s (number %d), which this configuration does not have",
                  t->folder.path, c->phase_name, c->phase);
    cli_error("use the phases of the checkpoint, choose a new folder, or start over with --fresh");
    return PL_ERR_CONFIG;
}

/* Plans the phases. With several ranks rank 0 plans for all, because their plans are equal. */
static pl_status plan_phases(trainer *t, int from)
{
    phase_row *rows;
    int n;
    if (ranks_follows(t)) return PL_OK;
    if (!t->json && !t->quiet) cli_busy("planning the phases of %s", t->name);
    pl_status rc = phases_plan(t->args, t->memory, from, &rows, &n);
    cli_idle();
    t->folder.error_printed = rc != PL_OK;
    if (rc != PL_OK) return rc;
    if (!t->json && !t->quiet) phases_print(rows, n, stderr);
    t->largest = phases_largest(rows, n)->number;
    rc = phases_check(rows, n);
    t->folder.error_printed = rc != PL_OK;
    free(rows);
    return rc;
}

/* Opens phase i and loads the weights with which it starts. */
static pl_status enter_phase(trainer *t, int i, int64_t before, bool resume)
{
    char dir[4200];
    t->run = t->list;
    pl_run *run = NULL;
    pl_status rc = cli_open_run(t->args, t->memory, &run);
    if (rc == PL_OK) rc = pl_run_join(run, t->world);
    if (rc == PL_OK) rc = pl_run_enter(t->run = run, i, before);
    if (rc != PL_OK) return rc;
    trainer_settings(t);
    rc = folder_enter(&t->folder, t->run, resume);
    t->folder.error_printed = rc != PL_OK;
    if (rc == PL_OK) rc = ranks_take_folder(t, resume);
    const pl_phase *p = trainer_phase(t);
    if (rc != PL_OK || resume || p->start < 0) return rc;
    snprintf(dir, sizeof dir, "%s/%s", t->handed, pl_run_phase_at(t->run, p->start)->name);
    return pl_run_take_over(t->run, dir);
}

static pl_status leave_phase(trainer *t)
{
    char *dir = NULL, *best = NULL;
    const pl_phase *p = trainer_phase(t);
    bool has = p->best && t->folder.best_step > 0, left;
    if (ranks_follows(t)) return ranks_serve(t, &left);
    if (has) {
        char from[4096];
        pl_folder_checkpoint(t->folder.path, t->folder.best_step, from, sizeof from);
        best = cli_text("%s/model.safetensors", from);
    }
    dir = cli_text("%s/%s", t->handed, p->name);
    bool made = dir && (best || !has);
    pl_status rc = made ? pl_run_hand_on(t->run, dir, best) : PL_ERR_MEMORY;
    free(dir);
    free(best);
    return rc == PL_OK ? pl_run_served(t->run, true) : rc;
}

/* ---- one program per phase ---------------------------------------------------------------- */
/* A process that has trained a phase holds memory that the plan of the next phase does not count:
 * tables of libraries, holes in the heap. So the next phase starts with execv of this program; what
 * is not in the run folder is passed in the environment. A rank cannot do that, because MPI can be
 * initialised once per process: its next phase is planned around the memory that the process holds.
 */
#define CONTINUES "PLIMSOLL_CONTINUES"

void phases_continue(trainer *t)
{
    long long phase, before, first;
    unsigned long long peak;
    const char *text = getenv(CONTINUES);
    int at = 0;
    if (!text ||
        sscanf(text, "%lld %lld %lld %llu %d %lf %n", &phase, &before, &first, &peak, &t->largest,
               &t->before_s, &at) < 6 ||
        !at)
        return;
    snprintf(t->handed, sizeof t->handed, "%s", text + at);
    unsetenv(CONTINUES);
    t->continued = true;
    t->fresh = false;
    t->phase = (int)phase;
    t->before = before;
    t->first = first;
    t->peak = peak;
    t->folder.keep_log = true;
}

/* Executes this program for the next phase. Returns only where the next phase must run in this
 * program. */
static void execute_next(trainer *t, int next)
{
    char text[4600];
    if (t->world || getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE")) return;
    snprintf(text, sizeof text, "%d %lld %lld %llu %d %.3f %s", next,
             (long long)pl_run_steps_done(t->run), (long long)t->first,
             (unsigned long long)trainer_peak(t), t->largest, cli_seconds() - t->started,
             t->handed);
    if (setenv(CONTINUES, text, 1) != 0) return;
    monitor_close(&t->monitor);
    folder_close(&t->folder);
    fflush(NULL);
    execv("/proc/self/exe", t->args->argv);
    unsetenv(CONTINUES);
    cli_error("cannot execute the program for the next phase: %s", strerror(errno));
    exit(1);
}

static int run_phases(trainer *t)
{
    int n = pl_run_phase_count(t->list);
    pl_status rc = ranks_take_phase(t);
    if (rc == PL_OK) rc = enter_phase(t, t->phase, t->before, !t->continued && t->resumes);
    if (rc == PL_OK && t->folder.finished) return trainer_done(t);
    if (rc == PL_OK && !t->continued) rc = plan_phases(t, t->phase);
    for (int i = t->phase; rc == PL_OK; i++) {
        rc = trainer_train(t);
        if (rc == PL_OK && !trainer_stopped(t)) rc = leave_phase(t);
        if (rc != PL_OK || trainer_stopped(t) || t->over || i == n - 1) break;
        execute_next(t, i + 1);
        int64_t before = pl_run_steps_done(t->run);
        monitor_close(&t->monitor);
        pl_run_free(t->run);
        rc = enter_phase(t, i + 1, before, false);
    }
    if (rc == PL_OK) rc = trainer_finish(t);
    return trainer_code(t, rc);
}

/* Finds the folder for weights between phases: RUN/phases, or a temporary folder. */
static pl_status open_handed(trainer *t)
{
    const char *tmp = getenv("TMPDIR");
    if (t->handed[0] || ranks_follows(t)) return PL_OK;
    if (t->folder.path) {
        snprintf(t->handed, sizeof t->handed, "%.4000s/phases", t->folder.path);
        return PL_OK;
    }
    for (int i = 0; i < pl_run_phase_count(t->list); i++)
        if (pl_run_phase_at(t->list, i)->best) {
            cli_error("phase %s: result: best needs --out RUN, where the best checkpoint is kept",
                      pl_run_phase_at(t->list, i)->name);
            return PL_ERR_CONFIG;
        }
    snprintf(t->handed, sizeof t->handed, "%.4000s/plimsoll-phases-XXXXXX", tmp ? tmp : "/tmp");
    if (mkdtemp(t->handed)) return PL_OK;
    cli_error("cannot make folder %s: %s", t->handed, strerror(errno));
    t->handed[0] = 0;
    return PL_ERR_IO;
}

static void close_handed(trainer *t)
{
    static const char *const names[] = {"model.safetensors", "model_ema.safetensors",
                                        "state.safetensors", "config.yaml"};
    char path[4400];
    if (t->folder.path || !t->handed[0] || ranks_follows(t)) return;
    for (int i = 0; i < pl_run_phase_count(t->list); i++) {
        const char *name = pl_run_phase_at(t->list, i)->name;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            snprintf(path, sizeof path, "%s/%s/%s", t->handed, name, names[k]);
            unlink(path);
        }
        snprintf(path, sizeof path, "%s/%s", t->handed, name);
        rmdir(path);
    }
    rmdir(t->handed);
}

int train_phases(trainer *t)
{
    pl_status rc = open_handed(t);
    t->folder.error_printed = rc != PL_OK;
    if (rc != PL_OK) return trainer_code(t, rc);
    t->resumes = t->folder.dir[0] != 0;
    int code = run_phases(t);
    close_handed(t);
    return code;
}
