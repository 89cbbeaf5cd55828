/* run_steps.c - the steps and evaluations of a run.
 *
 * A step runs each of its programs once for every micro-batch, and all of that once for every
 * update on the batch (train.updates_per_batch). On the CPU the outputs of a program are read
 * before the next program reuses their memory. A GPU runs asynchronously: the host reads the next
 * batch at the same time, the GPU may start run n+1 before the outputs of run n are read, and those
 * are read from a copy.
 */
#include "base/asked.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_unstable.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns NaN if the program has no such output. */
static double scalar_output(pl_run *r, pl_program *p, const char *name, int ago)
{
    pl_type t;
    const void *x = pl_session_output_of(r->session, p, name, ago, &t);
    return x ? pl_elem_get(t.dtype, x, 0) : (double)NAN;
}

/* The program that updates from the training program's gradients. */
static pl_program *updater(const pl_run *r)
{
    return r->build->now->apply ? r->build->now->apply : pl__train(r);
}

const char *pl__train_section(const pl_run *r)
{
    const pl_variant *v = r->build->now;
    for (int i = 0; i < v->n_step_programs; i++)
        if (!v->step_programs[i].name && v->step_programs[i].section)
            return v->step_programs[i].section;
    return "optim";
}

/* Fails when a number of the step is not finite. A model can hide a NaN from the loss (nan_to_num);
 * the norm of the gradient, where it is computed, shows it. */
static pl_status check_numbers(pl_run *r, pl_step_info *info, double bad)
{
    pl_type t;
    const char *section = pl__train_section(r);
    PL_TRY(pl__guard_check(r, info));
    if (info->spiked) return PL_OK;
    if (info->skipped) {
        float floor = (float)pl_config_float(r->config, "loss_scale.floor");
        PL_FAIL_IF(
            (float)info->loss_scale <= floor, PL_ERR_NUMERIC,
            "step %lld: gradients are not finite in fp16 though the loss scale is at its floor "
            "of %g (the loss is %g); lower %s.lr (now %g), or set precision=bf16",
            (long long)info->step, info->loss_scale, info->loss, section, info->lr);
        return PL_OK;
    }
    PL_FAIL_IF(bad > 0, PL_ERR_NUMERIC,
               "step %lld: %.0f of the network's outputs are not finite; lower %s.lr (now %g) or "
               "set clip.norm",
               (long long)info->step, bad, section, info->lr);
    PL_FAIL_IF(
        !isfinite(info->loss), PL_ERR_NUMERIC,
        "step %lld: the loss is %g; lower %s.lr (now %g) or set clip.norm; --trace-nan names the first value that is "
        "not finite (a label or index out of range gives one too)",
        (long long)info->step, info->loss, section, info->lr);
    PL_FAIL_IF(!isfinite(info->grad_norm) &&
                   pl_session_output(r->session, updater(r), "grad_norm", &t),
               PL_ERR_NUMERIC,
               "step %lld: the gradient's norm is %g while the loss is %g; lower %s.lr (now %g)",
               (long long)info->step, info->grad_norm, info->loss, section, info->lr);
    return PL_OK;
}

/* Reads the samples of micro-batch `micro_batch` of a step (the first is 0) into a program's
 * inputs. */
static pl_status read_micro_batch(pl_run *r, pl_program *p, int64_t step, int64_t micro_batch)
{
    return pl_prefetch_read(r, p, step * r->build->accumulate + micro_batch);
}

/* Reads the next micro-batch into its program's inputs while a GPU works. Does not wait for workers
 * that have not finished it: its own step does. A failure does not fail this step: the batch's own
 * step reads it again and reports it. */
static void read_ahead(pl_run *r, const pl_step_program *t, int64_t micro_batch)
{
    int64_t step = r->steps.done, next = micro_batch + 1;
    if (!pl__run_own_memory(r)) return;
    if (next == r->build->accumulate) {
        next = 0;
        t = pl__step_program_next(r, t, &step);
    }
    const pl_variant *v = &r->build->variants[pl_source_bucket(r, step)];
    pl_program *p = v->step_programs[t - r->build->now->step_programs].run;
    r->steps.ahead = pl_prefetch_ready(r, step * r->build->accumulate + next) &&
                     read_micro_batch(r, p, step, next) == PL_OK &&
                     pl_session_send(r->session, p) == PL_OK;
}

/* A started program whose outputs are not read yet. On a GPU the next program starts before that,
 * so that the GPU never waits for the host inside a step. On the CPU outputs are read at once. */
typedef struct begun {
    const pl_step_program *of;
    pl_program *program; /* NULL: none */
    /* when a GPU could start it: it is submitted, and the program before has ended */
    uint64_t start;
    uint64_t read[2], ahead[2]; /* begin and end of reading its own and the next batch */
} begun;

/* Milliseconds of the interval [t[0], t[1]) that lie after `end`. */
static double after_ms(const uint64_t t[2], double end)
{
    double from = (double)t[0] > end ? (double)t[0] : end;
    return (double)t[1] > from ? 1e-6 * ((double)t[1] - from) : 0;
}

/* Reads the scalars of the training program's update. */
static void read_update(pl_run *r, int ago, pl_step_info *info)
{
    info->lr = scalar_output(r, updater(r), "lr", ago);
    info->grad_norm = scalar_output(r, updater(r), "grad_norm", ago);
    info->loss_scale = scalar_output(r, updater(r), "loss_scale", ago);
    info->skipped = scalar_output(r, updater(r), "skipped", ago) > 0;
}

/* Waits for a started program and reads its outputs. next: the program started since, or none. If
 * reading data ends after a GPU has finished, the difference is time that the GPU waited for
 * data. */
static pl_status hear(pl_run *r, const begun *b, begun *next, pl_step_info *info)
{
    if (!b->program) return PL_OK;
    int ago = next->program == b->program;
    PL_TRY(pl_session_wait_for(r->session, b->program, ago));
    pl__step_program_terms(r, b->of, b->program, ago, info);
    if (b->program == updater(r)) read_update(r, ago, info);
    double device_ms = pl_session_device_ms(r->session, b->program, ago);
    info->device_ms += device_ms;
    if (!pl__run_own_memory(r)) return PL_OK;
    double end = (double)b->start + 1e6 * device_ms;
    info->data_ms += after_ms(b->ahead, end) + after_ms(next->read, end);
    next->start = pl_sys_now_ns();
    return PL_OK;
}

/* Starts a program, then reads the outputs of `last`, which it replaces. micro_batch: the
 * micro-batch to read; -1: the program (an update) reads none. */
static pl_status begin(pl_run *r, const pl_step_program *t, int64_t micro_batch, begun *last,
                       pl_step_info *info)
{
    begun next = {
        .of = t, .program = micro_batch < 0 ? t->apply : t->run, .read[0] = pl_sys_now_ns()};
    if (micro_batch >= 0 && !r->steps.ahead)
        PL_TRY(read_micro_batch(r, t->run, r->steps.done, micro_batch));
    if (micro_batch >= 0) pl__first_batch(r, t->run);
    next.read[1] = next.start = pl_sys_now_ns();
    if (micro_batch >= 0) r->steps.ahead = false;
    if (!last->program) info->data_ms += after_ms(next.read, 0);
    PL_TRY(pl_session_run(r->session, next.program));
    PL_TRY(hear(r, last, &next, info));
    next.ahead[0] = pl_sys_now_ns();
    if (micro_batch >= 0) read_ahead(r, t, micro_batch);
    next.ahead[1] = pl_sys_now_ns();
    *last = next;
    if (pl__run_own_memory(r)) return PL_OK;
    *last = (begun){0};
    return hear(r, &next, last, info);
}

/* Runs all micro-batches of one program, and its update. */
static pl_status take_program(pl_run *r, const pl_step_program *t, begun *last, pl_step_info *info)
{
    for (int64_t micro_batch = 0; micro_batch < r->build->accumulate; micro_batch++)
        PL_TRY(begin(r, t, micro_batch, last, info));
    return t->apply ? begin(r, t, -1, last, info) : PL_OK;
}

void pl_run_trace_nan(pl_run *r, bool on)
{
    r->steps.trace_nan = on;
    if (r->session) pl_session_watch(r->session, on);
}

/* trace_nan: adds to the message of a numeric failure the first value that was not finite. Weights
 * that are not finite after the update are a failure too. */
static pl_status trace_numbers(pl_run *r, const pl_step_info *info, pl_status rc)
{
    char text[512];
    int slot = -1;
    const char *found = pl_session_found(r->session);
    if (rc == PL_OK && !info->skipped && !info->spiked)
        PL_TRY(pl_session_bad_slot(r->session, &slot));
    if ((rc != PL_OK && rc != PL_ERR_NUMERIC) || (rc == PL_OK && slot < 0)) return rc;
    snprintf(text, sizeof text, "step %lld: %s is not finite after the update",
             (long long)info->step, slot >= 0 ? pl_store_slot(r->store, slot)->name : "");
    if (rc != PL_OK) snprintf(text, sizeof text, "%s", pl_error_text());
    PL_FAIL(PL_ERR_NUMERIC, "%s; the first value that is not finite: %s", text,
            found ? found : "none is computed in this step: check its inputs");
}

/* Number of outputs that are not finite, over all micro-batches; NaN if the training program does
 * not count them. */
static double nonfinite_outputs(const pl_run *r, const pl_step_info *info)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], "nonfinite") == 0)
            return info->term[i] * (double)r->build->accumulate;
    return (double)NAN;
}

/* Runs all programs of the step once. Losses and terms refer to this update. */
static pl_status take_update(pl_run *r, pl_step_info *info)
{
    begun last = {0}, none = {0};
    info->n_terms = 0;
    info->loss = 0;
    if (r->steps.trace_nan) pl_session_watch(r->session, true);
    for (int i = 0; i < r->build->now->n_step_programs; i++) {
        if (!pl__step_program_runs(&r->build->now->step_programs[i], r->steps.done)) continue;
        PL_TRY(take_program(r, &r->build->now->step_programs[i], &last, info));
    }
    return hear(r, &last, &none, info);
}

/* Fails when a number of the update is not finite on any rank. */
static pl_status check_update(pl_run *r, pl_step_info *info)
{
    double bad = nonfinite_outputs(r, info);
    PL_TRY(pl__ranks_terms(r, info, &bad));
    pl_status rc = check_numbers(r, info, bad);
    return r->steps.trace_nan ? trace_numbers(r, info, rc) : rc;
}

pl_status pl_run_step(pl_run *r, pl_step_info *info)
{
    PL_FAIL_IF(r->purpose.goal == PL_GOAL_EVALUATE, PL_ERR_ARG,
               "the run was built to evaluate: it takes no steps");
    int64_t size = pl_source_size(r, PL_SUBSET_TRAIN), last = pl__run_updates(r) - 1;
    uint64_t t0 = pl_sys_now_ns();
    memset(info, 0, sizeof *info);
    info->step = pl_run_steps_done(r) + 1;
    pl__variant_select(r, pl_source_bucket(r, r->steps.done));
    for (r->steps.update = 0; r->steps.update < last; r->steps.update++) {
        PL_TRY(take_update(r, info));
        PL_TRY(check_update(r, info));
    }
    PL_TRY(take_update(r, info));
    r->steps.update = 0;
    r->steps.done++;
    info->epoch = size > 0 ? (double)(r->steps.done * pl__run_batch(r)) / (double)size : 0;
    info->step_ms = 1e-6 * (double)(pl_sys_now_ns() - t0);
    pl__run_after_step(r);
    return check_update(r, info);
}

/* Returns how many samples, at most `left`, a program of `micro` rows evaluates at once. Its
 * outputs are means over rows, so each sample must fill equally many rows: the largest divisor of
 * micro that is not above left. */
static int64_t rows_at_once(int64_t micro, int64_t left)
{
    int64_t k = micro < left ? micro : left;
    while (micro % k) k--;
    return k;
}

void pl_run_set_progress(pl_run *r, pl_progress_fn progress, void *ctx)
{
    r->progress.call = progress;
    r->progress.ctx = ctx;
}

/* Evaluates the samples of one bucket, of `total` in all. Adds their share to the means and their
 * number to *done. */
static pl_status eval_bucket(pl_run *r, int bucket, int64_t total, int64_t *done,
                             pl_eval_info *info)
{
    pl_program *p = r->build->variants[bucket].eval;
    int64_t rows = pl_prefetch_eval_rows(r, bucket, total);
    /* batches go to ranks in turn; all ranks run the program equally often */
    int64_t number = 0, ranks = pl__ranks(r);
    for (int64_t at = 0, k; at < rows || number % ranks; at += k, number++) {
        PL_FAIL_IF(pl_asked(r->stop), PL_ERR_STOPPED, "the evaluation was stopped");
        k = at < rows ? rows_at_once(r->build->micro, rows - at) : 0;
        *done += k;
        if (number % ranks != r->ranks.nn.rank) continue;
        if (at == 0 || ranks > 1) PL_TRY(pl_prefetch_eval(r, bucket, k ? at : 0, k ? k : 1));
        PL_TRY(pl_session_run(r->session, p));
        /* the GPU works on this batch at the same time */
        int64_t left = ranks > 1 ? 0 : rows - at - k;
        if (pl__run_own_memory(r) && left)
            PL_TRY(pl_prefetch_eval(r, bucket, at + k, rows_at_once(r->build->micro, left)));
        PL_TRY(pl_session_wait(r->session));
        for (int i = 0; i < info->n; i++)
            info->value[i] += scalar_output(r, p, info->name[i], 0) * ((double)k / (double)total);
        if (r->progress.call) r->progress.call(r->progress.ctx, PL_SUBSET_EVAL, *done, total);
        if (!pl__run_own_memory(r) && left)
            PL_TRY(pl_prefetch_eval(r, bucket, at + k, rows_at_once(r->build->micro, left)));
    }
    return PL_OK;
}

static pl_status evaluate(pl_run *r, pl_eval_info *info)
{
    for (int i = 0; i < pl_program_output_count(pl__eval(r)) && i < PL_MAX_METRICS; i++)
        info->name[info->n++] = pl_program_output_name(pl__eval(r), i);
    int64_t batch = pl__run_batch(r), size = pl_source_size(r, PL_SUBSET_EVAL);
    int64_t total = pl_config_int(r->config, "eval.batches") * batch;
    if (size > 0 && total > size) total = size;
    int64_t done = 0;
    for (int k = 0; k < r->build->n_variants; k++) PL_TRY(eval_bucket(r, k, total, &done, info));
    PL_TRY(pl__ranks_sum(r, info->value, info->n));
    info->batches = (int)((total + batch - 1) / batch);
    info->samples = total;
    if (r->recipe->derive)
        info->n += r->recipe->derive(info->name, info->value, info->n, info->name + info->n,
                                     info->value + info->n, PL_MAX_METRICS - info->n);
    return PL_OK;
}

/* A score that is not a number must not be used as a result. */
static pl_status check_scores(const pl_eval_info *info)
{
    for (int i = 0; i < info->n; i++)
        PL_FAIL_IF(isnan(info->value[i]), PL_ERR_NUMERIC,
                   "evaluation: %s of %lld samples is not a number; the weights may have diverged, "
                   "or a label or index is out of range",
                   info->name[i], (long long)info->samples);
    return PL_OK;
}

pl_status pl_run_eval(pl_run *r, pl_eval_info *info)
{
    memset(info, 0, sizeof *info);
    if (!pl__eval(r) || pl_source_lacks(r, PL_SUBSET_EVAL)) return PL_OK;
    pl_status rc = pl__averages_begin(r);
    rc = pl__averages_end(r, rc == PL_OK ? evaluate(r, info) : rc);
    return rc == PL_OK ? check_scores(info) : rc;
}

/* Whether the last update ran at the full rate: the warm-up is over. */
static bool warmed_up(pl_run *r)
{
    int64_t updates;
    int slot = pl_store_find(r->store, "optim.step");
    return slot >= 0 &&
           pl_session_read_slot(r->session, slot, 0, &updates, sizeof updates) == PL_OK &&
           updates > r->steps.warmup;
}

bool pl_run_plateau(pl_run *r, double metric)
{
    int slot = pl_store_find(r->store, "lr.plateau");
    if (slot < 0 || !r->session || !warmed_up(r)) return false;
    double state[4];
    if (pl_session_read_slot(r->session, slot, 0, state, sizeof state) != PL_OK) return false;
    bool lowered = pl_plateau_step(&r->steps.plateau, state, metric);
    return pl_session_write_slot(r->session, slot, 0, state, sizeof state) == PL_OK && lowered;
}
