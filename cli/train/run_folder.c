/* run_folder.c - see run_folder.h. */
#include "run_folder.h"
#include "metrics_table.h"

#include "cli/ui.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void path_of(const run_folder *f, const char *name, char out[4096])
{
    snprintf(out, 4096, "%s/%s", f->path, name);
}

static pl_status fail_io(const char *what, const char *path)
{
    cli_error("cannot %s %s: %s", what, path, strerror(errno));
    return PL_ERR_IO;
}

/* ---- opening ---------------------------------------------------------------------------- */
static void print_damaged(void *ctx, const char *dir, const char *why)
{
    (void)ctx;
    cli_error("%s is damaged and skipped: %s", dir, why);
}

/* Prints a changed key. --quiet and --json print only changes that cannot be resumed. */
static void print_change(void *ctx, const char *key, const char *old_value, const char *new_value,
                         pl_change change)
{
    static const char *const what[] = {"", ", from here on",
                                       ", which may change the last bits of results",
                                       ", which cannot change in a resumed run"};
    run_folder *f = ctx;
    if (strncmp(key, "stop.", 5) == 0) f->ended = false;
    if (f->quiet && change != PL_CHANGE_REFUSED) return;
    fprintf(stderr, "changed: %s from %s to %s%s\n", key, old_value ? old_value : "(none)",
            new_value ? new_value : "(none)", what[change]);
}

static pl_status compare(run_folder *f, const pl_run *run)
{
    int refused = 0;
    pl_status rc = pl_checkpoint_compare(run, f->dir, print_change, f, &refused);
    if (rc != PL_OK) {
        cli_fail(rc);
        return rc;
    }
    if (refused) {
        cli_error(
            "%s was started with another configuration; %d changed keys cannot change in a resumed run: "
            "restore them, choose a new folder, or start over with --fresh",
            f->path, refused);
        return PL_ERR_CONFIG;
    }
    if (!f->quiet && f->last.threads != pl_threads())
        cli_error(
            "note: %s was written with %d threads, this run has %d: results may differ in the last "
            "bits (threads=%d gives the same bits)",
            f->dir, f->last.threads, pl_threads(), f->last.threads);
    if (!f->quiet && strcmp(f->last.version, pl_version()) != 0)
        cli_error("note: %s was written by version %s, this is version %s", f->dir, f->last.version,
                  pl_version());
    return PL_OK;
}

/* Refuses to overwrite a model in a folder without checkpoints. */
static pl_status check_model(const run_folder *f)
{
    char path[4096];
    path_of(f, "model.safetensors", path);
    if (access(path, F_OK) != 0) return PL_OK;
    cli_error("%s has a model (%s) but no checkpoint to resume from; choose another folder, or "
              "start over with --fresh",
              f->path, path);
    return PL_ERR_ARG;
}

/* Returns a hash of checkpoint.best and its mode. Notes in a checkpoint are numbers only. */
static double metric_number(const run_folder *f)
{
    uint32_t h = f->best_is_max ? 2166136262u : 2166136261u;
    for (const char *p = f->best; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return h;
}

/* Restores the best evaluation, unless it is of another metric. */
static void restore(run_folder *f)
{
    double of = pl_checkpoint_noted(&f->last, "best.metric", metric_number(f));
    bool same = of == metric_number(f);
    f->saved = f->last.step;
    f->best_step = same ? (int64_t)pl_checkpoint_noted(&f->last, "best.step", 0) : 0;
    f->best_value = same ? pl_checkpoint_noted(&f->last, "best.value", 0) : 0;
}

/* Returns whether the results of the newest checkpoint are all there. Missing or damaged results
 * are written again from that checkpoint. */
static bool results_complete(const run_folder *f)
{
    char path[4096];
    pl_checkpoint *c = cli_new(sizeof *c);
    pl_status rc = pl_folder_finished(f->path, true, c);
    bool complete = rc == PL_OK && c->step == f->last.step;
    path_of(f, "finished.json", path);
    if (rc != PL_OK && access(path, F_OK) == 0)
        cli_error("the results in %s are made again from its last checkpoint: %s", f->path,
                  pl_error_text());
    free(c);
    return complete;
}

/* Returns whether the checkpoint belongs to the last phase, or to the phase that ended the run. */
static bool last_phase(const run_folder *f, const pl_run *run)
{
    int n = pl_run_phase_count(run);
    if (n == 0 || pl_run_phase(run) == n - 1) return true;
    return f->ended && (int64_t)pl_checkpoint_noted(&f->last, "ended.run", 0) == f->last.step;
}

static pl_status resume_run(run_folder *f, pl_run *run)
{
    f->ended = (int64_t)pl_checkpoint_noted(&f->last, "ended", 0) == f->last.step;
    pl_status rc = compare(f, run);
    if (rc != PL_OK) return rc;
    restore(f);
    int64_t steps = pl_config_int(pl_run_config(run), "train.steps"), done = f->last.phase_step;
    bool last = last_phase(f, run);
    f->finished = last && (f->ended || done >= steps) && results_complete(f);
    if (last && done > steps) {
        cli_error("%s has done %lld steps and train.steps is %lld: nothing is left to do", f->path,
                  (long long)done, (long long)steps);
        f->finished = true;
    }
    rc = f->finished ? PL_OK : pl_run_resume(run, f->dir);
    if (rc != PL_OK) cli_fail(rc);
    return rc;
}

pl_status folder_lock(run_folder *f, bool fresh)
{
    if (!f->path) return PL_OK;
    pl_status rc = pl_folder_open(f->path, &f->folder);
    if (rc == PL_OK && fresh) rc = pl_folder_clear(f->folder);
    if (rc == PL_OK && !fresh)
        rc = pl_folder_newest(f->folder, &f->last, f->dir, sizeof f->dir, print_damaged, NULL);
    if (rc != PL_OK) {
        cli_fail(rc);
        return rc;
    }
    return fresh || f->dir[0] ? PL_OK : check_model(f);
}

/* Removes notes that belong to the previous phase. */
static void forget(run_folder *f)
{
    static const char *const notes[] = {"best.step", "best.value", "best.metric",
                                        "ended",     "ended.run",  "metric.first"};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        pl_checkpoint_note(&f->last, notes[i], (double)NAN);
    f->ended = false;
    f->best_step = 0;
    f->best_value = 0;
}

pl_status folder_enter(run_folder *f, pl_run *run, bool resume)
{
    if (!f->path) return PL_OK;
    const pl_config *c = pl_run_config(run);
    f->every = pl_config_int(c, "checkpoint.every");
    f->interval = pl_config_duration(c, "checkpoint.interval");
    f->keep = pl_config_int(c, "checkpoint.keep");
    f->best_is_max = strcmp(pl_config_text(c, "checkpoint.best_mode"), "max") == 0;
    snprintf(f->best, sizeof f->best, "%s", pl_config_text(c, "checkpoint.best"));
    f->saved_at = cli_seconds();
    f->saved = f->last.step;
    if (resume) return resume_run(f, run);
    forget(f);
    return PL_OK;
}

pl_status folder_settle_best(run_folder *f)
{
    char dir[4096];
    if (!f->path) return PL_OK;
    if (f->best_step) pl_folder_checkpoint(f->path, f->best_step, dir, sizeof dir);
    if (f->best_step && access(dir, F_OK) != 0) {
        cli_error("warning: the best checkpoint, %s, is missing: the next evaluation is the best",
                  dir);
        f->best_step = 0;
    }
    pl_status rc = pl_folder_set_best(f->folder, f->best_step);
    if (rc != PL_OK) cli_fail(rc);
    return rc;
}

pl_status folder_phase(const run_folder *f, const char *name, char *dir, size_t cap)
{
    snprintf(dir, cap, "%s/phases/%s", f->path, name);
    pl_status rc = pl_folder_mine(f->folder);
    return rc == PL_OK ? pl_folder_make(dir) : rc;
}

/* ---- the log ---------------------------------------------------------------------------- */
/* Returns the bytes of the log that belong to the checkpoint: those at the time of the save, and
 * the checkpoint events after them. -1: the log is shorter. */
static long kept_bytes(FILE *log, uint64_t log_bytes)
{
    char *line = NULL;
    size_t cap = 0;
    long at = (long)log_bytes;
    if (fseek(log, 0, SEEK_END) != 0 || ftell(log) < at) return -1;
    if (fseek(log, at, SEEK_SET) != 0) return -1;
    for (ssize_t n; (n = cli_line(&line, &cap, log)) > 0 && line[n - 1] == '\n' &&
                    strstr(line, "\"event\":\"checkpoint\"");)
        at += (long)n;
    free(line);
    return at;
}

static pl_status open_log(run_folder *f)
{
    char path[4096];
    path_of(f, "log.jsonl", path);
    f->log_file = plain_open(path, f->dir[0] ? "r+e" : "we");
    if (!f->log_file && f->dir[0] && errno == ENOENT) {
        cli_error("warning: %s is missing; starting a new one", path);
        f->log_file = plain_open(path, "we");
    } else if (f->log_file && f->keep_log) {
        if (fseek(f->log_file, 0, SEEK_END) != 0) return fail_io("write", path);
    } else if (f->log_file && f->dir[0]) {
        long keep = kept_bytes(f->log_file, f->last.log_bytes);
        if (keep < 0)
            cli_error("warning: %s is shorter than when %s was written: lines are missing", path,
                      f->dir);
        if (keep >= 0 && ftruncate(fileno(f->log_file), keep) != 0) return fail_io("cut", path);
        if (fseek(f->log_file, 0, SEEK_END) != 0) return fail_io("write", path);
    }
    if (!f->log_file) return fail_io("write", path);
    f->log = pl_json_new(f->log_file);
    return f->log ? PL_OK : PL_ERR_MEMORY;
}

pl_status folder_begin(run_folder *f, pl_run *run)
{
    if (!f->path) return PL_OK;
    char *text;
    f->older_model = f->dir[0] != 0;
    pl_status rc = pl_config_print(pl_run_config(run), &text);
    if (rc == PL_OK) {
        rc = pl_folder_write(f->folder, "config.yaml", text);
        pl_text_free(text);
    }
    if (rc != PL_OK) {
        cli_fail(rc);
        return rc;
    }
    f->saved_at = cli_seconds();
    return open_log(f);
}

void folder_close(run_folder *f)
{
    pl_json_free(f->log);
    if (f->log_file) fclose(f->log_file);
    pl_folder_close(f->folder);
    f->log = NULL;
    f->log_file = NULL;
    f->folder = NULL;
}

/* ---- saving ----------------------------------------------------------------------------- */
/* Removes the models of an earlier, shorter run; its checkpoint has the same weights. They stay
 * until the first newer checkpoint, so that an attempt that fails loses nothing. After that they
 * could be taken for the model of the new checkpoint. */
static void remove_models(run_folder *f)
{
    char path[4096];
    if (!f->older_model) return;
    if (pl_folder_unfinish(f->folder) != PL_OK) return; /* the save fails for the same reason */
    path_of(f, "model.safetensors", path);
    unlink(path);
    path_of(f, "model_ema.safetensors", path);
    unlink(path);
    f->older_model = false;
}

bool folder_due(const run_folder *f, int64_t step, int64_t phase_step)
{
    if (!f->path || step == f->saved) return false;
    return (f->every && phase_step % f->every == 0) ||
           (f->interval > 0 && cli_seconds() - f->saved_at >= f->interval);
}

static pl_status save_step(run_folder *f, pl_run *run, int64_t step, bool evaluated)
{
    if (step == f->saved) return f->best_step == step ? pl_folder_set_best(f->folder, step) : PL_OK;
    remove_models(f);
    if (f->best_step) {
        pl_checkpoint_note(&f->last, "best.step", (double)f->best_step);
        pl_checkpoint_note(&f->last, "best.value", f->best_value);
        pl_checkpoint_note(&f->last, "best.metric", metric_number(f));
    }
    f->saved_at = cli_seconds(); /* also after a failure: a full disk is not retried every step */
    fsync(fileno(f->log_file));
    f->last.log_bytes = (uint64_t)ftell(f->log_file);
    f->last.evaluated = evaluated;
    pl_status rc = pl_folder_save(f->folder, run, &f->last, f->keep);
    if (rc == PL_OK && f->best_step == step) rc = pl_folder_set_best(f->folder, step);
    if (rc != PL_OK) return rc;
    f->saved = step;
    return PL_OK;
}

pl_status folder_save(run_folder *f, pl_run *run, bool evaluated)
{
    int64_t step = pl_run_steps_done(run);
    if (!f->path || step == 0) return PL_OK;
    pl_status rc = save_step(f, run, step, evaluated);
    if (rc != PL_OK && f->best_step == step) { /* RUN/best must lead to a checkpoint */
        f->best_step = f->before_step;
        f->before_step = 0;
        f->best_value = f->before_value;
    }
    return rc;
}

pl_status folder_finish(run_folder *f)
{
    static const char *const names[] = {"model.safetensors", "model_ema.safetensors",
                                        "config.yaml",       "plan.json",
                                        "metrics.csv",       "eval.csv",
                                        "log.jsonl",         "classes.txt"};
    if (!f->path) return PL_OK;
    if (fflush(f->log_file) != 0 || fsync(fileno(f->log_file)) != 0) {
        f->error_printed = true;
        return fail_io("write the log of", f->path);
    }
    return pl_folder_finish(f->folder, &f->last, names, sizeof names / sizeof *names);
}

pl_status folder_judge(run_folder *f, int64_t step, const pl_eval_info *e, bool *best)
{
    *best = false;
    if (!f->path || !f->best[0]) return PL_OK;
    int i = 0;
    while (i < e->n && strcmp(e->name[i], f->best) != 0) i++;
    if (i == e->n) {
        cli_error("checkpoint.best: the evaluation has no metric \"%s\"; its metrics are:",
                  f->best);
        for (i = 0; i < e->n; i++) cli_error("  %s", e->name[i]);
        f->error_printed = true;
        return PL_ERR_CONFIG;
    }
    bool better = f->best_is_max ? e->value[i] > f->best_value : e->value[i] < f->best_value;
    if (isnan(e->value[i]) || (f->best_step && !better)) return PL_OK;
    f->before_step = f->best_step;
    f->before_value = f->best_value;
    f->best_step = step;
    f->best_value = e->value[i];
    *best = true;
    return PL_OK;
}
