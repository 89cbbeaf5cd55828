/* train_events.c - the output of `plimsoll train`: one JSON object per event, and lines for people.
 */
#include "cli/plan/plan_view.h"
#include "cli_ranks.h"
#include "signals.h"
#include "trainer.h"

#include <math.h>
#include <time.h>

const pl_phase *trainer_phase(const trainer *t)
{
    int i = pl_run_phase(t->run);
    return i < 0 ? NULL : pl_run_phase_at(t->run, i);
}

uint64_t trainer_peak(const trainer *t)
{
    uint64_t here = pl_run_peak_used_bytes(t->run);
    return here > t->peak ? here : t->peak;
}

int64_t trainer_step(const trainer *t, int64_t step)
{
    return step - pl_run_steps_before(t->run);
}

/* ---- events ----------------------------------------------------------------------------- */
typedef void (*members)(const trainer *t, pl_json *j, const void *what);

static pl_status emit(trainer *t, const char *event, members fill, const void *what)
{
    pl_json *sinks[2] = {t->events, t->folder.log};
    for (int i = 0; i < 2; i++) {
        if (!sinks[i]) continue;
        pl_json_object(sinks[i], NULL);
        pl_json_string(sinks[i], "event", event);
        fill(t, sinks[i], what);
        pl_json_end(sinks[i]);
        pl_status rc = pl_json_finish(sinks[i]);
        /* Nobody reads the events: the run stops at the end of the step, and saves. */
        if (rc != PL_OK && i == 0 && signals.stop == SIGPIPE) continue;
        if (rc != PL_OK) {
            char why[256];
            snprintf(why, sizeof why, "%s", pl_error_text());
            return pl_fail(rc, "%s%s: %s", i ? t->folder.path : "standard output",
                           i ? "/log.jsonl" : "", why);
        }
    }
    return PL_OK;
}

static void plan_members(const trainer *t, pl_json *j, const void *what)
{
    (void)what;
    plan_json(t->run, j);
}

static void weights_members(const trainer *t, pl_json *j, const void *what)
{
    (void)what;
    cli_loaded_json(t->run, j);
}

static void put_phase(const trainer *t, pl_json *j)
{
    const pl_phase *p = trainer_phase(t);
    if (p) pl_json_string(j, "phase", p->name);
}

static void phase_members(const trainer *t, pl_json *j, const void *what)
{
    const pl_phase *p = trainer_phase(t);
    int taken, of;
    (void)what;
    put_phase(t, j);
    pl_json_int(j, "number", pl_run_phase(t->run));
    pl_json_int(j, "step", pl_run_steps_done(t->run));
    pl_json_int(j, "last_step", t->steps);
    if (p->start < 0) return;
    pl_run_taken(t->run, &taken, &of);
    pl_json_string(j, "start", pl_run_phase_at(t->run, p->start)->name);
    pl_json_int(j, "taken", taken);
    pl_json_int(j, "tensors", of);
}

static void step_members(const trainer *t, pl_json *j, const void *what)
{
    const pl_step_info *s = what;
    pl_json_int(j, "step", s->step);
    put_phase(t, j);
    pl_json_float(j, "epoch", s->epoch);
    pl_json_float(j, "loss", s->loss);
    pl_json_float(j, "lr", s->lr);
    if (!isnan(s->grad_norm)) pl_json_float(j, "grad_norm", s->grad_norm);
    if (!isnan(s->loss_scale)) {
        pl_json_float(j, "loss_scale", s->loss_scale);
        pl_json_bool(j, "skipped", s->skipped);
    }
    if (s->spiked) pl_json_bool(j, "spiked", true);
    pl_json_float(j, "step_ms", s->step_ms);
    pl_json_float(j, "data_wait_ms", s->data_ms);
    if (s->device_ms > 0) pl_json_float(j, "device_ms", s->device_ms);
    pl_json_uint(j, "arena_bytes", pl_session_arena_bytes(pl_run_session(t->run)));
    pl_json_uint(j, "used_bytes", pl_run_used_bytes(t->run));
    pl_json_object(j, "terms");
    for (int i = 0; i < s->n_terms; i++) pl_json_float(j, s->term_name[i], s->term[i]);
    pl_json_end(j);
}

static void batch_members(const trainer *t, pl_json *j, const void *what)
{
    const pl_input_stats *s;
    char type[96];
    (void)what;
    pl_json_array(j, "inputs");
    for (int i = 0, n = pl_run_first_batch(t->run, &s); i < n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "name", s[i].name);
        pl_json_string(j, "type", pl_type_text(&s[i].type, type, sizeof type));
        pl_json_float(j, "min", s[i].min);
        pl_json_float(j, "max", s[i].max);
        pl_json_float(j, "mean", s[i].mean);
        pl_json_float(j, "std", s[i].std);
        pl_json_end(j);
    }
    pl_json_end(j);
}

static void eval_members(const trainer *t, pl_json *j, const void *what)
{
    const eval_event *e = what;
    pl_json_int(j, "step", e->step);
    put_phase(t, j);
    for (int i = 0; i < e->info->n; i++) pl_json_float(j, e->info->name[i], e->info->value[i]);
}

static void checkpoint_members(const trainer *t, pl_json *j, const void *what)
{
    char dir[4096];
    int64_t step = *(const int64_t *)what;
    pl_folder_checkpoint(t->folder.path, step, dir, sizeof dir);
    pl_json_string(j, "path", dir);
    pl_json_int(j, "step", step);
}

static void picture_members(const trainer *t, pl_json *j, const void *what)
{
    const picture_event *p = what;
    pl_json_int(j, "step", p->step);
    put_phase(t, j);
    if (p->name) pl_json_string(j, "name", p->name);
    pl_json_string(j, "path", p->path);
}

static void end_members(const trainer *t, pl_json *j, const void *what)
{
    pl_json_int(j, "steps", *(const int64_t *)what);
    pl_json_float(j, "wall_s", cli_seconds() - t->started);
    pl_json_uint(j, "peak_used_bytes", trainer_peak(t));
    if (trainer_stopped(t)) pl_json_bool(j, "stopped", true);
    if (!t->peaks) return;
    pl_json_array(j, "rank_peak_bytes");
    for (int i = 0; i < pl_world_size(t->world); i++) pl_json_uint(j, NULL, t->peaks[i]);
    pl_json_end(j);
}

static void error_members(const trainer *t, pl_json *j, const void *what)
{
    const error_event *e = what;
    (void)t;
    pl_json_int(j, "code", e->code);
    pl_json_string(j, "message", e->message);
}

/* ---- one function for each event -------------------------------------------------------- */
pl_status emit_plan(trainer *t)
{
    return emit(t, "plan", plan_members, NULL);
}

pl_status emit_weights(trainer *t)
{
    return pl_run_loaded(t->run, 0) ? emit(t, "weights", weights_members, NULL) : PL_OK;
}

pl_status emit_phase(trainer *t)
{
    return emit(t, "phase", phase_members, NULL);
}

pl_status emit_step(trainer *t, const pl_step_info *s)
{
    t->hooks.step = s->step;
    return emit(t, "step", step_members, s);
}

pl_status emit_batch(trainer *t)
{
    const pl_input_stats *s;
    char type[96];
    int n = pl_run_first_batch(t->run, &s);
    for (int i = 0; i < n && !t->json && !t->quiet && !ranks_follows(t); i++)
        fprintf(stderr, "first batch: %s %s, %.4g to %.4g, mean %.4g, std %.4g\n", s[i].name,
                pl_type_text(&s[i].type, type, sizeof type), s[i].min, s[i].max, s[i].mean,
                s[i].std);
    return n ? emit(t, "batch", batch_members, NULL) : PL_OK;
}

pl_status emit_eval(trainer *t, int64_t step, const pl_eval_info *e)
{
    return emit(t, "eval", eval_members, &(eval_event){.step = step, .info = e});
}

pl_status emit_checkpoint(trainer *t, int64_t step)
{
    return emit(t, "checkpoint", checkpoint_members, &step);
}

pl_status emit_picture(trainer *t, int64_t step, const char *name, const char *path)
{
    return emit(t, "sample", picture_members,
                &(picture_event){.step = step, .name = name, .path = path});
}

pl_status emit_arrays(trainer *t, int64_t step, const char *path)
{
    return emit(t, "arrays", picture_members, &(picture_event){.step = step, .path = path});
}

pl_status emit_end(trainer *t, int64_t steps)
{
    return emit(t, "end", end_members, &steps);
}

void emit_error(trainer *t, int code, const char *message)
{
    pl_status rc =
        emit(t, "error", error_members, &(error_event){.code = code, .message = message});
    (void)rc; /* the run has failed already, perhaps because nothing can be written */
}

/* ---- lines for people ------------------------------------------------------------------- */
void clear_bar(const trainer *t)
{
    if (t->bar) fprintf(stderr, "\r\033[K");
}

void show_bar(trainer *t, const pl_step_info *s)
{
    double elapsed = cli_seconds() - t->began;
    if (!t->bar || (elapsed - t->shown < 0.1 && s->step < t->steps)) return;
    t->shown = elapsed;
    double per = elapsed / (double)(s->step - t->from);
    char line[512];
    step_line(&t->monitor, s, elapsed, per, s->step_ms > 0 ? 100 * s->data_ms / s->step_ms : 0,
              cli_width(), line, sizeof line);
    fprintf(stderr, "\r\033[K%.*s", cli_width() - 1, line);
    fflush(stderr);
}

void show_line(trainer *t, const pl_step_info *s)
{
    t->data_ms += s->data_ms;
    t->step_ms += s->step_ms;
    t->since++;
    const pl_phase *p = trainer_phase(t);
    if (trainer_step(t, s->step) % t->log_every != 0 && s->step != t->steps) return;
    char terms[192];
    step_terms(t->run, s, " ", "=", terms, sizeof terms);
    if (!t->json && !t->quiet && !t->bar)
        fprintf(
            stderr,
            "%s%s%sstep=%lld/%lld epoch=%.3f loss=%.6f%s lr=%.3e step_ms=%.1f wait=%.1f%% used=%s "
            "eta=%s\n",
            p ? "phase=" : "", p ? p->name : "", p ? " " : "", (long long)s->step,
            (long long)t->steps, s->epoch, s->loss, terms, s->lr, t->step_ms / (double)t->since,
            100 * t->data_ms / t->step_ms, cli_bytes(pl_run_used_bytes(t->run)),
            cli_clock((cli_seconds() - t->began) / (double)(s->step - t->from) *
                      (double)(t->steps - s->step)));
    t->data_ms = t->step_ms = 0;
    t->since = 0;
}

void show_memory(trainer *t, int64_t step, bool asked)
{
    clear_bar(t);
    monitor_tell(&t->monitor, step, asked, stderr);
}

void show_eval(trainer *t, int64_t step, const pl_eval_info *e)
{
    if (t->json || t->quiet) return;
    clear_bar(t);
    fprintf(stderr, "eval step=%lld", (long long)step);
    for (int i = 0; i < e->n; i++) fprintf(stderr, " %s=%.4f", e->name[i], e->value[i]);
    fprintf(stderr, "\n");
}

void show_phase(trainer *t)
{
    const pl_phase *p = trainer_phase(t);
    int taken, of;
    if (t->json || t->quiet || !p) return;
    pl_run_taken(t->run, &taken, &of);
    fprintf(stderr, "%sphase %s%s (%d of %d): steps %lld to %lld", cli_bold(stderr), p->name,
            cli_plain(stderr), pl_run_phase(t->run) + 1, pl_run_phase_count(t->run),
            (long long)pl_run_steps_done(t->run) + 1, (long long)t->steps);
    if (taken)
        fprintf(stderr, "; %d of %d tensors start from phase %s", taken, of,
                pl_run_phase_at(t->run, p->start)->name);
    fputc('\n', stderr);
}
