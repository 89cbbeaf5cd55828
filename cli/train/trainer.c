/* trainer.c - one training run, or one phase of it: plan, start, files, training, results. */
#include "trainer.h"

#include "cli/plan/plan_view.h"
#include "cli_ranks.h"
#include "signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool trainer_stopped(const trainer *t)
{
    return t->world ? signals.stop_agreed != 0 : signals.stop != 0;
}

/* ---- the end of a run ------------------------------------------------------------------- */
static void print_end(const trainer *t, int64_t done)
{
    fprintf(stderr, "%lld steps in %s, peak memory of the process %s\n",
            (long long)(done - t->first), cli_duration(cli_seconds() - t->started),
            cli_bytes(trainer_peak(t)));
    ranks_tell_peaks(t);
    bad_files_print(t->run);
    if (signals.stop && done && t->folder.saved == done)
        fprintf(stderr,
                "stopped at step %lld of %lld and saved; the same command resumes from there\n",
                (long long)done, (long long)t->steps);
    if (t->metric[0] && !isnan(t->metric_first) && !signals.stop)
        fprintf(stderr, "%s%s: %.4g before training, %.4g after%s\n", cli_bold(stderr), t->metric,
                t->metric_first, t->metric_last, cli_plain(stderr));
}

/* Writes a file of weights into the run folder: those of the last step, or the averaged ones, if
 * the run has them. */
static pl_status save_weights(trainer *t, const char *name, bool averaged)
{
    char path[4096];
    int i = phases_model(t->run, pl_run_phase(t->run));
    pl_status rc;
    if (i >= 0) {
        snprintf(path, sizeof path, "%s/%s/%s", t->handed, pl_run_phase_at(t->run, i)->name, name);
        if (averaged && access(path, F_OK) != 0) return PL_OK;
        rc = pl_folder_copy(t->folder.folder, path, name);
    } else {
        if (averaged && !pl_run_has_averages(t->run)) return PL_OK;
        rc = pl_folder_mine(t->folder.folder);
        if (rc != PL_OK) return rc;
        snprintf(path, sizeof path, "%s/%s", t->folder.path, name);
        rc = averaged ? pl_run_save_averages(t->run, path) : pl_run_save_model(t->run, path);
    }
    if (rc == PL_OK && !t->json && !t->quiet)
        fprintf(stderr, "wrote %s/%s\n", t->folder.path, name);
    return rc;
}

/* Writes the names of the classes beside the model, one per line: line i is class i. */
static pl_status save_classes(trainer *t)
{
    const pl_classes *c = pl_run_classes(t->run);
    size_t bytes = 1, at = 0;
    if (!c) return PL_OK;
    for (int i = 0; i < pl_classes_count(c); i++) bytes += strlen(pl_classes_name(c, i)) + 1;
    char *text = malloc(bytes);
    if (!text) return PL_ERR_MEMORY;
    for (int i = 0; i < pl_classes_count(c); i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s\n", pl_classes_name(c, i));
    pl_status rc = pl_folder_write(t->folder.folder, "classes.txt", text);
    free(text);
    return rc;
}

static pl_status save_model(trainer *t)
{
    pl_status rc = save_weights(t, "model.safetensors", false);
    if (rc == PL_OK) rc = save_classes(t);
    return rc == PL_OK ? save_weights(t, "model_ema.safetensors", true) : rc;
}

pl_status trainer_finish(trainer *t)
{
    int64_t done = pl_run_steps_done(t->run);
    bool stopped = trainer_stopped(t), served;
    pl_status rc = PL_OK;
    if (!stopped && ranks_follows(t))
        rc = ranks_serve(t, &served);
    else if (!stopped && t->folder.path)
        rc = save_model(t);
    if (rc == PL_OK && !stopped && t->world && !ranks_follows(t)) rc = pl_run_served(t->run, true);
    if (rc == PL_OK && !stopped) rc = ranks_share_peaks(t);
    if (rc == PL_OK) rc = emit_end(t, done);
    if (rc == PL_OK && !stopped) rc = monitor_sync(&t->monitor);
    if (rc == PL_OK && !stopped && !ranks_follows(t)) rc = folder_finish(&t->folder);
    if (rc == PL_OK && !t->json && !t->quiet) print_end(t, done);
    return rc;
}

/* The run in the folder is complete. */
int trainer_done(trainer *t)
{
    t->idle = true;
    if (!t->quiet && !t->json)
        fprintf(
            stderr,
            "%s is finished: %lld steps; train.steps=N continues to step N, --fresh starts over\n",
            t->folder.path, (long long)t->folder.last.step);
    pl_status rc = emit_end(t, t->folder.last.step);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

/* ---- one run, or one phase -------------------------------------------------------------- */
/* plan.json is written under this name before the memory of the run is allocated, and renamed once
 * the run has started. */
#define NEXT_PLAN "plan.json.tmp-next"

static pl_status keep_plan(trainer *t)
{
    t->keep_plan = t->folder.path && (!t->begun || pl_run_phase(t->run) == t->largest);
    return t->keep_plan ? page_plan_save(t->run, t->name, t->folder.folder, NEXT_PLAN) : PL_OK;
}

static void settle_plan(trainer *t, bool begun)
{
    if (!t->keep_plan) return;
    char *from = cli_text("%s/" NEXT_PLAN, t->folder.path),
         *to = cli_text("%s/plan.json", t->folder.path);
    bool kept = begun && from && to && rename(from, to) == 0;
    if (from && !kept) unlink(from);
    free(from);
    free(to);
}

/* Opens the files of the run folder. Only after the programs have started, so that a run that
 * cannot start leaves the folder unchanged. Emits the plan to the log; and to the events if it was
 * replaced. */
static pl_status open_files(trainer *t, bool replanned)
{
    pl_status rc = PL_OK;
    pl_json *events = t->events;
    bool first = !t->begun;
    if (first) rc = folder_begin(&t->folder, t->list);
    t->begun = true;
    if (rc == PL_OK) rc = folder_settle_best(&t->folder);
    settle_plan(t, rc == PL_OK);
    if (rc != PL_OK) {
        t->folder.error_printed = true;
        return rc;
    }
    if (!first && !replanned) return PL_OK;
    if (!replanned) t->events = NULL;
    rc = emit_plan(t);
    t->events = events;
    return rc;
}

/* Starts the programs. Plans a second time where GPU libraries took more memory than the first plan
 * left them, and prints that plan before the first step. */
static pl_status start_programs(trainer *t, bool *replanned)
{
    uint64_t before = pl_run_memory_get(t->run).arena;
    if (!t->json && !t->quiet) cli_busy("starting: memory, kernels, initial values");
    pl_status rc = pl_run_start(t->run);
    cli_idle();
    if (rc != PL_OK) settle_plan(t, false);
    if (rc != PL_OK) return rc;
    if (!t->quiet) skipped_files_print(t->run);
    const char *note = pl_run_start_note(t->run);
    if (note && !t->json && !t->quiet) fprintf(stderr, "%s\n", note);
    if (!t->quiet) cli_start_warning(t->run);
    pl_run_memory m = pl_run_memory_get(t->run);
    *replanned = m.arena != before;
    if (!*replanned) return PL_OK;
    if (!t->json && !t->quiet)
        fprintf(
            stderr,
            "planned again, because GPU libraries took more memory than expected: arena %llu bytes "
            "instead of %llu, predicted step time %.4g ms\n",
            (unsigned long long)m.arena, (unsigned long long)before, pl_run_predicted_ms(t->run));
    return keep_plan(t);
}

static pl_status open_monitor(trainer *t)
{
    char dir[4096] = "";
    const pl_phase *p = trainer_phase(t);
    pl_status rc = p && t->folder.path ? folder_phase(&t->folder, p->name, dir, sizeof dir) : PL_OK;
    if (rc == PL_OK)
        rc = monitor_open(&t->monitor, t->run, t->folder.path, dir[0] ? dir : NULL, t->steps,
                          t->folder.last.evaluated, !t->json && !t->quiet);
    if (rc == PL_OK && t->monitor.verbose && t->from == t->first)
        monitor_memory(&t->monitor, stderr);
    return rc;
}

static void print_resumed(const trainer *t)
{
    long long now = pl_run_split_get(t->run).accumulate, then = t->folder.last.accumulate;
    fprintf(stderr, "resuming from %s\n", t->folder.dir);
    if (now != then)
        cli_error(
            "note: the checkpoint used %lld micro-batches, this run uses %lld: results may differ in the "
            "last bits (accumulate=%lld gives the same bits)",
            then, now, then);
}

/* Ends a run whose plan does not fit as `plimsoll plan` does: with the smallest budget and changes
 * that fit. Frees the run first, because its memory would count against them. */
static pl_status refuse(trainer *t, const pl_run_memory *m)
{
    plan_edit edit[PLAN_EDITS];
    int n = 0;
    if (!t->quiet) {
        plan_refusal refused = plan_refused(t->run);
        pl_run_free(t->run);
        t->run = t->list = NULL;
        n = plan_edits(t->args, t->memory, &refused, edit);
        plan_edits_print(edit, n, stderr);
        if (n) fputc('\n', stderr);
    }
    plan_unfit_print(m);
    t->folder.error_printed = true;
    return PL_ERR_FIT;
}

pl_status trainer_train(trainer *t)
{
    bool verbose = !t->json && !t->quiet;
    if (verbose) cli_busy("planning %s", t->name);
    pl_run_limit_host(t->run, ranks_here(t));
    pl_run_will_start(t->run);
    pl_status rc = pl_run_build(t->run);
    cli_idle();
    if (rc != PL_OK) return rc;
    if (pl_cache_warning() && !t->quiet && !t->begun)
        cli_error("warning: %s is not used for kernels and measured times, because other users can "
                  "write into it; chmod go-w makes it usable",
                  pl_cache_warning());
    if (pl_decoder_warning() && !t->quiet && !t->begun)
        cli_error("note: decoders of images and HDF5 files run inside this process: %s "
                  "(data.sandbox=off hides this note)",
                  pl_decoder_warning());
    pl_run_trace_nan(t->run, t->trace_nan);
    bool resuming = t->folder.dir[0] && !t->begun && !t->continued;
    if (verbose && !trainer_phase(t)) {
        plan_print(t->run, t->name, NULL, 0, stderr);
        fputc('\n', stderr);
    }
    if (verbose && resuming) print_resumed(t);
    bool replanned = false;
    pl_run_memory m = pl_run_memory_get(t->run);
    bool refused = !m.fits && !t->world && t->run == t->list && !trainer_phase(t);
    if (!refused) rc = keep_plan(t);
    if (rc == PL_OK) rc = emit_plan(t);
    if (rc == PL_OK && refused) return refuse(t, &m);
    if (rc == PL_OK) rc = start_programs(t, &replanned);
    if (rc == PL_OK) rc = open_files(t, replanned);
    if (rc == PL_OK) rc = emit_weights(t);
    t->from = pl_run_steps_done(t->run);
    if (rc == PL_OK) t->steps = pl_run_last_step(t->run);
    if (t->first < 0) t->first = t->from;
    if (rc == PL_OK) rc = open_monitor(t);
    if (rc == PL_OK) show_phase(t);
    if (rc == PL_OK && trainer_phase(t) && trainer_step(t, t->from) == 0) rc = emit_phase(t);
    if (rc == PL_OK) rc = trainer_loop(t);
    clear_bar(t);
    return rc;
}

/* Returns the exit code of the run, and prints the error if it was not printed yet. */
int trainer_code(const trainer *t, pl_status rc)
{
    if (rc != PL_OK && t->world) pl_world_fail(t->world, pl_status_exit_code(rc), pl_error_text());
    if (rc == PL_ERR_STOPPED && signals.stop) { /* during planning */
        cli_error("%s", pl_error_text());
        return t->folder.saved ? pl_status_exit_code(rc) : 128 + signals.stop;
    }
    if (rc != PL_OK)
        return t->folder.error_printed || t->monitor.error_printed ? pl_status_exit_code(rc)
                                                                   : cli_fail(rc);
    if (!signals.stop) return 0;
    int64_t done = pl_run_steps_done(t->run);
    return done && t->folder.saved == done ? pl_status_exit_code(PL_ERR_STOPPED)
                                           : 128 + signals.stop;
}

void trainer_settings(trainer *t)
{
    const pl_config *c = pl_run_config(t->run);
    t->log_every = pl_config_int(c, "train.log_every");
    t->eval_every = pl_config_int(c, "eval.every");
    t->sample_every = pl_config_int(c, "sample.every");
    t->pictured = -1;
    t->since = 0;
    t->data_ms = t->step_ms = 0;
    if (!t->world) pl_run_set_stop(t->run, &signals.stop);
}

static int train_without_phases(trainer *t)
{
    trainer_settings(t);
    pl_status rc = folder_enter(&t->folder, t->run, t->folder.dir[0] != 0);
    t->folder.error_printed = rc != PL_OK;
    if (rc == PL_OK) rc = ranks_take_folder(t, true);
    if (rc != PL_OK) return trainer_code(t, rc);
    if (t->folder.finished) return trainer_done(t);
    rc = trainer_train(t);
    if (rc == PL_OK) rc = trainer_finish(t);
    return trainer_code(t, rc);
}

int trainer_run(trainer *t)
{
    phases_continue(t);
    pl_status rc = folder_lock(&t->folder, t->fresh);
    if (rc == PL_OK) rc = phases_find(t);
    if (rc != PL_OK && t->world) pl_world_fail(t->world, pl_status_exit_code(rc), pl_error_text());
    if (rc != PL_OK) return pl_status_exit_code(rc);
    return pl_run_phase_count(t->list) == 0 ? train_without_phases(t) : train_phases(t);
}
