/* train_loop.c - the training loop: steps, and the work that is due after a step.
 *
 * After each step, in this order: the line or the bar, the events, the evaluation, the pictures,
 * the checkpoint. With several ranks all ranks agree after each step whether to stop and whether to
 * save.
 */
#include "cli/plan/plan_view.h"
#include "cli_ranks.h"
#include "signals.h"

#include <math.h>
#include <string.h>

/* Remembers the recipe's metric before training and at this step, for the last line of the run. */
static void note_metric(trainer *t, int64_t step, const pl_eval_info *e)
{
    const char *wanted = pl_run_recipe(t->run)->metric;
    for (int i = 0; i < e->n; i++) {
        if (wanted ? strcmp(e->name[i], wanted) != 0 : i > 0) continue;
        snprintf(t->metric, sizeof t->metric, "%s", e->name[i]);
        if (trainer_step(t, step) == 0) t->metric_first = e->value[i];
        t->metric_last = e->value[i];
    }
    pl_checkpoint_note(&t->folder.last, "metric.first", t->metric_first);
}

/* Saves a checkpoint. A save that fails before the end of the run (must is false) only warns: the
 * previous checkpoint is still complete. */
static pl_status save(trainer *t, bool must)
{
    int64_t step = pl_run_steps_done(t->run), before = t->folder.saved;
    bool saved = false;
    signals.save = 0;
    pl_world_doing(t->world, "saving", step);
    if (ranks_follows(t)) {
        pl_status served = ranks_serve(t, &saved);
        if (saved) t->folder.saved = step;
        return served;
    }
    pl_status rc = t->folder.path ? pl_folder_mine(t->folder.folder) : PL_OK;
    if (rc == PL_OK) rc = monitor_sync(&t->monitor);
    if (rc == PL_ERR_IO && pl_folder_mine(t->folder.folder) != PL_OK) rc = PL_ERR_FILE;
    if (rc != PL_OK) return rc;
    rc = folder_save(&t->folder, t->run, t->evaluated == step);
    if (t->world) {
        pl_status served = pl_run_served(t->run, rc == PL_OK && t->folder.saved == step);
        if (served != PL_OK) return served;
    }
    if (rc == PL_OK && t->folder.saved == before) return PL_OK;
    if (rc == PL_OK) return emit_checkpoint(t, step);
    if (must || rc != PL_ERR_IO) return rc;
    clear_bar(t);
    cli_error("warning: %s; training continues, the last checkpoint is of step %lld",
              pl_error_text(), (long long)before);
    return PL_OK;
}

/* Ends the run, or the phase, at this step, as if train.steps were this step. */
static void end_early(trainer *t, int64_t step, const pl_verdict *v)
{
    const pl_config *c = pl_run_config(t->run);
    const pl_phase *p = trainer_phase(t);
    bool tell = !t->json && !t->quiet;
    t->over = p && !v->reached && p->ends_run;
    if (tell && v->reached)
        fprintf(stderr, "%s is %s %g", p->metric, p->above ? "above" : "below", p->bound);
    else if (tell)
        fprintf(stderr, "%s did not improve in %lld evaluations", pl_config_text(c, "stop.metric"),
                (long long)pl_config_int(c, "stop.patience"));
    if (tell)
        fprintf(stderr, ": the %s ends at step %lld of %lld\n", p && !t->over ? "phase" : "run",
                (long long)step, (long long)t->steps);
    pl_checkpoint_note(&t->folder.last, "ended", (double)step);
    if (t->over) pl_checkpoint_note(&t->folder.last, "ended.run", (double)step);
    t->steps = step;
}

/* Checks that the evaluation has the metric that until.reach names. The metrics are known only
 * after the first evaluation. */
static pl_status check_reach(trainer *t, const pl_eval_info *e)
{
    const pl_phase *p = trainer_phase(t);
    for (int i = 0; i < e->n && p && p->metric; i++)
        if (strcmp(e->name[i], p->metric) == 0) return PL_OK;
    if (!p || !p->metric) return PL_OK;
    cli_error("phase %s: until.reach: the evaluation has no metric \"%s\"; its metrics are:",
              p->name, p->metric);
    for (int i = 0; i < e->n; i++) cli_error("  %s", e->name[i]);
    t->folder.error_printed = true;
    return PL_ERR_CONFIG;
}

/* Evaluates at a step. An evaluation that a signal stops is repeated on resume. Sets *best when a
 * save should follow. */
static pl_status evaluate(trainer *t, int64_t step, bool *best)
{
    pl_eval_info e;
    bool trained = trainer_step(t, step) > 0;
    if (!pl_run_eval_program(t->run)) return PL_OK;
    pl_world_doing(t->world, "evaluating", step);
    pl_status rc = pl_run_eval(t->run, &e);
    if (rc == PL_ERR_STOPPED) return PL_OK;
    if (rc == PL_OK) rc = check_reach(t, &e);
    if (rc != PL_OK) return rc;
    if (e.n == 0) return PL_OK;
    show_eval(t, step, &e);
    note_metric(t, step, &e);
    const char *watched = pl_config_text(pl_run_config(t->run), "schedule.plateau.metric");
    for (int i = 0; i < e.n && trained; i++)
        if (strcmp(e.name[i], watched) == 0) pl_run_plateau(t->run, e.value[i]);
    pl_verdict v = {0};
    if (trained) v = pl_run_judge(t->run, &e);
    if (v.stop || v.reached) end_early(t, step, &v);
    rc = emit_eval(t, step, &e);
    if (rc == PL_OK) rc = monitor_eval(&t->monitor, step, &e);
    if (rc == PL_OK && trained) rc = folder_judge(&t->folder, step, &e, best);
    t->evaluated = step;
    return rc == PL_OK ? ranks_agree(t, &(int){0}, best) : rc;
}

static bool eval_due(const trainer *t, int64_t step)
{
    int64_t own = trainer_step(t, step);
    return own == 0 || (t->eval_every && own % t->eval_every == 0);
}

static pl_status show_picture(void *ctx, const pl_sheet *g)
{
    trainer *t = ctx;
    char path[4400];
    int64_t step = pl_run_steps_done(t->run);
    pl_status rc = monitor_picture(&t->monitor, step, g, path, sizeof path);
    return rc == PL_OK && path[0] ? emit_picture(t, step, g->name, path) : rc;
}

static pl_status keep_arrays(trainer *t, int64_t step)
{
    char path[4400];
    if (!pl_run_sample_arrays(t->run)) return PL_OK;
    pl_status rc = monitor_arrays(&t->monitor, step, path, sizeof path);
    return rc == PL_OK ? emit_arrays(t, step, path) : rc;
}

static pl_status skip_picture(void *ctx, const pl_sheet *g)
{
    (void)ctx, (void)g;
    return PL_OK;
}

/* Makes the pictures and arrays of the sampling program. Without a run folder it does nothing. */
static pl_status make_pictures(trainer *t, int64_t step)
{
    if (!(t->folder.path || t->shown_by_0) || !pl_run_sample_program(t->run) || t->pictured == step)
        return PL_OK;
    t->pictured = step;
    pl_status rc = t->shown_by_0 ? PL_OK : pl_folder_mine(t->folder.folder);
    if (rc == PL_OK) rc = pl_run_sample(t->run, t->shown_by_0 ? skip_picture : show_picture, t);
    if (rc == PL_OK && !t->shown_by_0) rc = keep_arrays(t, step);
    return rc == PL_OK && !t->shown_by_0 ? monitor_pictures_end(&t->monitor, step) : rc;
}

static bool pictures_due(const trainer *t, int64_t step)
{
    return t->sample_every && (trainer_step(t, step) % t->sample_every == 0 || step == t->steps);
}

static bool save_due(const trainer *t, int64_t step)
{
    return signals.save || folder_due(&t->folder, step, trainer_step(t, step));
}

/* Finds the checkpoint to which guard.action=rollback returns; "": there is none yet. The last one
 * may belong to an earlier phase, whose programs have other slots. */
static pl_status rollback_target(trainer *t, char *dir, size_t cap)
{
    const run_folder *f = &t->folder;
    bool own = f->path && f->saved > 0 && f->last.phase == pl_run_phase(t->run);
    memset(dir, 0, cap);
    if (own) pl_folder_checkpoint(f->path, f->saved, dir, cap);
    return t->world ? pl_world_tell(t->world, dir, cap) : PL_OK;
}

/* After a step that the guard did not apply. */
static pl_status guard_act(trainer *t, const pl_step_info *s)
{
    char dir[4096] = "";
    bool back = strcmp(pl_config_text(pl_run_config(t->run), "guard.action"), "rollback") == 0;
    pl_status rc = back ? rollback_target(t, dir, sizeof dir) : PL_OK;
    if (rc == PL_OK && dir[0]) rc = pl_run_rollback(t->run, dir);
    if (rc != PL_OK || t->json || t->quiet || ranks_follows(t)) return rc;
    clear_bar(t);
    fprintf(stderr, "step %lld was not applied: its loss is %.4g, its gradient norm %.4g",
            (long long)s->step, s->loss, s->grad_norm);
    if (dir[0])
        fprintf(stderr, "; the weights are back at %s, and the batches since then are left out",
                dir);
    else if (back)
        fputs("; the run has no checkpoint yet, so its weights stay", stderr);
    fputc('\n', stderr);
    return PL_OK;
}

static pl_status one_step(trainer *t)
{
    pl_step_info s;
    pl_world_doing(t->world, "training", pl_run_steps_done(t->run) + 1);
    pl_status rc = pl_run_step(t->run, &s);
    if (rc == PL_OK && s.step == t->from + 1) rc = emit_batch(t);
    if (rc != PL_OK) return rc;
    show_line(t, &s);
    if (monitor_due(&t->monitor, s.step, signals.memory)) {
        show_memory(t, s.step, signals.memory);
        signals.memory = 0;
    }
    show_bar(t, &s);
    rc = emit_step(t, &s);
    if (rc == PL_OK) rc = monitor_step(&t->monitor, &s);
    if (rc == PL_OK && s.spiked) rc = guard_act(t, &s);
    bool best = false;
    if (rc == PL_OK && eval_due(t, s.step)) rc = evaluate(t, s.step, &best);
    if (rc == PL_OK && pictures_due(t, s.step)) rc = make_pictures(t, s.step);
    if (rc != PL_OK) return rc;
    /* pictures come before the save: a run that resumes from it does not make those of its step */
    bool due = best || save_due(t, s.step);
    signals.stop_agreed = signals.stop;
    rc = ranks_agree(t, &signals.stop_agreed, &due);
    if (signals.stop_agreed) signals.stop = signals.stop_agreed;
    return rc == PL_OK && due ? save(t, false) : rc;
}

/* Trains to the last step. The final evaluation comes after the last checkpoint, unless it was due
 * at that step anyway: so a run that is given more steps later is the same as one that had them
 * from the start. */
pl_status trainer_loop(trainer *t)
{
    pl_status rc = PL_OK;
    bool resumed = trainer_step(t, t->from) > 0;
    if (t->folder.ended) t->steps = t->from;
    t->evaluated = resumed && t->folder.last.evaluated ? t->from : -1;
    t->metric_first = pl_checkpoint_noted(&t->folder.last, "metric.first", (double)NAN);
    bool best = false;
    if (eval_due(t, t->from) && t->evaluated != t->from) rc = evaluate(t, t->from, &best);
    if (rc == PL_OK && best) rc = save(t, false);
    if (rc == PL_OK && !resumed && t->sample_every) rc = make_pictures(t, t->from);
    t->began = cli_seconds();
    /* the time of the run excludes planning */
    if (t->from == t->first) t->started = t->began - t->before_s;
    t->shown = -1;
    while (rc == PL_OK && pl_run_steps_done(t->run) < t->steps && !trainer_stopped(t))
        rc = one_step(t);
    clear_bar(t);
    if (rc == PL_OK) rc = save(t, true);
    best = false;
    if (rc == PL_OK && !trainer_stopped(t) && t->evaluated != t->steps)
        rc = evaluate(t, t->steps, &best);
    return rc == PL_OK && best ? save(t, false) : rc;
}
