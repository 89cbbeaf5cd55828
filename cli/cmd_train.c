/* cmd_train.c - `plimsoll train`: plan, then steps, with a line that says how it goes.
 *
 * On a terminal one line is rewritten in place and the log lines scroll above it; elsewhere a plain
 * key=value line appears every train.log_every steps; with --json everything is one object a line on
 * stdout. --out RUN is the run's folder (run_folder.h): what is in it is gone on with.
 *
 * Signals only set flags, which are looked at between steps and between batches of an evaluation. A
 * second one leaves at once; checkpoints are whole at any instant.
 */
#include "monitor.h"
#include "plan_view.h"
#include "plimsoll_ranks.h"
#include "run_folder.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked; /* the signal's number */
static volatile sig_atomic_t save_asked, memory_asked;

static void ask_stop(int signal_number)
{
    if (stop_asked) _Exit(128 + signal_number); /* the second one does not wait */
    stop_asked = signal_number;
}

static void ask_save(int signal_number)
{
    save_asked = signal_number;
}

static void ask_memory(int signal_number)
{
    memory_asked = signal_number;
}

static void listen(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return; /* nohup */
    sigaction(signal_number, &action, NULL);
}

typedef struct trainer {
    pl_run *run;
    pl_world *world; /* NULL: alone */
    run_folder folder;
    monitor monitor;
    const char *name;
    bool json, quiet, bar, fresh, trace_nan;
    pl_json *events; /* stdout with --json, else NULL */
    int64_t from;    /* steps done before this process */
    int64_t evaluated; /* step of the last evaluation, -1 before */
    double began, shown, data_ms, step_ms; /* seconds; sums since the last line */
    int64_t steps, log_every, eval_every, since;
    char metric[64];            /* name of the recipe's metric, "" before the first evaluation */
    double metric_first, metric_last;
} trainer;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
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
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

static void plan_members(const trainer *t, pl_json *j, const void *what)
{
    (void)what;
    plan_json(t->run, j);
}

static void step_members(const trainer *t, pl_json *j, const void *what)
{
    const pl_step_info *s = what;
    pl_json_int(j, "step", s->step);
    pl_json_float(j, "epoch", s->epoch);
    pl_json_float(j, "loss", s->loss);
    pl_json_float(j, "lr", s->lr);
    if (!isnan(s->grad_norm)) pl_json_float(j, "grad_norm", s->grad_norm);
    if (!isnan(s->loss_scale)) {
        pl_json_float(j, "loss_scale", s->loss_scale);
        pl_json_bool(j, "skipped", s->skipped);
    }
    pl_json_float(j, "step_ms", s->step_ms);
    pl_json_float(j, "data_wait_ms", s->data_ms);
    if (s->device_ms > 0) pl_json_float(j, "device_ms", s->device_ms);
    pl_json_uint(j, "arena_bytes", pl_session_arena_bytes(pl_run_session(t->run)));
    pl_json_uint(j, "used_bytes", pl_run_used_bytes(t->run));
}

typedef struct eval_event {
    int64_t step;
    const pl_eval_info *info;
} eval_event;

static void eval_members(const trainer *t, pl_json *j, const void *what)
{
    (void)t;
    const eval_event *e = what;
    pl_json_int(j, "step", e->step);
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

static void end_members(const trainer *t, pl_json *j, const void *what)
{
    pl_json_int(j, "steps", *(const int64_t *)what);
    pl_json_float(j, "wall_s", now() - t->began);
    pl_json_uint(j, "peak_used_bytes", pl_run_peak_used_bytes(t->run));
}

/* ---- lines for people ------------------------------------------------------------------- */
static void clear_bar(const trainer *t)
{
    if (t->bar) fprintf(stderr, "\r\033[K");
}

static void show_bar(trainer *t, const pl_step_info *s)
{
    double elapsed = now() - t->began;
    if (!t->bar || (elapsed - t->shown < 0.1 && s->step < t->steps)) return;
    t->shown = elapsed;
    double per = elapsed / (double)(s->step - t->from);
    char line[512];
    step_line(&t->monitor, s, elapsed, per, s->step_ms > 0 ? 100 * s->data_ms / s->step_ms : 0,
              cli_width(), line, sizeof line);
    fprintf(stderr, "\r\033[K%.*s", cli_width() - 1, line);
    fflush(stderr);
}

static void show_line(trainer *t, const pl_step_info *s)
{
    t->data_ms += s->data_ms;
    t->step_ms += s->step_ms;
    t->since++;
    if (s->step % t->log_every != 0 && s->step != t->steps) return;
    if (!t->json && !t->quiet && !t->bar)
        fprintf(stderr,
                "step=%lld/%lld epoch=%.3f loss=%.6f lr=%.3e step_ms=%.1f wait=%.1f%% used=%s "
                "eta=%s\n",
                (long long)s->step, (long long)t->steps, s->epoch, s->loss, s->lr,
                t->step_ms / (double)t->since, 100 * t->data_ms / t->step_ms,
                cli_bytes(pl_run_used_bytes(t->run)),
                cli_clock((now() - t->began) / (double)(s->step - t->from) *
                          (double)(t->steps - s->step)));
    t->data_ms = t->step_ms = 0;
    t->since = 0;
}

static void show_memory(trainer *t, int64_t step)
{
    bool asked = memory_asked;
    if (!monitor_due(&t->monitor, step, asked)) return;
    memory_asked = 0;
    clear_bar(t);
    monitor_tell(&t->monitor, step, asked, stderr);
}

static void show_eval(trainer *t, int64_t step, const pl_eval_info *e)
{
    if (t->json || t->quiet) return;
    clear_bar(t);
    fprintf(stderr, "eval step=%lld", (long long)step);
    for (int i = 0; i < e->n; i++) fprintf(stderr, " %s=%.4f", e->name[i], e->value[i]);
    fprintf(stderr, "\n");
}

/* ---- the loop --------------------------------------------------------------------------- */
/* Remembers the recipe's metric before training and now, for the closing line. */
static void note_metric(trainer *t, int64_t step, const pl_eval_info *e)
{
    const char *wanted = pl_run_recipe(t->run)->metric;
    for (int i = 0; i < e->n; i++) {
        if (wanted ? strcmp(e->name[i], wanted) != 0 : i > 0) continue;
        snprintf(t->metric, sizeof t->metric, "%s", e->name[i]);
        if (step == 0) t->metric_first = e->value[i];
        t->metric_last = e->value[i];
    }
    pl_checkpoint_note(&t->folder.last, "metric.first", t->metric_first);
}

/* A save that fails before the end is no reason to stop: the last checkpoint is as it was. */
static pl_status save(trainer *t, bool must)
{
    int64_t step = pl_run_steps_done(t->run), before = t->folder.saved;
    save_asked = 0;
    pl_status rc = folder_save(&t->folder, t->run, t->evaluated == step);
    if (rc == PL_OK && t->folder.saved == before) return PL_OK;
    if (rc == PL_OK) return emit(t, "checkpoint", checkpoint_members, &step);
    if (must || rc != PL_ERR_IO) return rc;
    clear_bar(t);
    cli_error("warning: %s; training goes on, the last checkpoint is of step %lld", pl_error_text(),
              (long long)before);
    return PL_OK;
}

/* The run ends here as if it had been given no more steps. */
static void end_early(trainer *t, int64_t step)
{
    const pl_config *c = pl_run_config(t->run);
    if (!t->json && !t->quiet)
        fprintf(stderr, "no better %s for %lld evaluations: the run ends at step %lld of %lld\n",
                pl_config_text(c, "stop.metric"), (long long)pl_config_int(c, "stop.patience"),
                (long long)step, (long long)t->steps);
    pl_checkpoint_note(&t->folder.last, "ended", (double)step);
    t->steps = step;
}

/* One that a signal stops is made again when the run goes on. */
static pl_status evaluate(trainer *t, int64_t step)
{
    pl_eval_info e;
    bool best = false;
    if (!pl_run_eval_program(t->run)) return PL_OK;
    pl_status rc = pl_run_eval(t->run, &e);
    if (rc == PL_ERR_STOPPED) return PL_OK;
    if (rc != PL_OK) return rc;
    show_eval(t, step, &e);
    note_metric(t, step, &e);
    const char *watched = pl_config_text(pl_run_config(t->run), "schedule.plateau.metric");
    for (int i = 0; i < e.n && step > 0; i++)
        if (strcmp(e.name[i], watched) == 0) pl_run_plateau(t->run, e.value[i]);
    if (step > 0 && pl_run_judge(t->run, &e).stop) end_early(t, step);
    rc = emit(t, "eval", eval_members, &(eval_event){step, &e});
    if (rc == PL_OK) rc = monitor_eval(&t->monitor, step, &e);
    if (rc == PL_OK) rc = folder_judge(&t->folder, step, &e, &best);
    t->evaluated = step;
    return rc == PL_OK && best ? save(t, false) : rc;
}

static bool eval_due(const trainer *t, int64_t step)
{
    return step == 0 || (t->eval_every && step % t->eval_every == 0);
}

static pl_status one_step(trainer *t)
{
    pl_step_info s;
    pl_status rc = pl_run_step(t->run, &s);
    if (rc != PL_OK) return rc;
    show_line(t, &s);
    show_memory(t, s.step);
    show_bar(t, &s);
    rc = emit(t, "step", step_members, &s);
    if (rc == PL_OK) rc = monitor_step(&t->monitor, &s);
    if (rc == PL_OK && eval_due(t, s.step)) rc = evaluate(t, s.step);
    if (rc == PL_OK && (save_asked || folder_due(&t->folder, s.step))) rc = save(t, false);
    return rc;
}

/* The evaluation at the end comes after the last checkpoint, unless it was due then anyway: a run that
 * is given more steps goes on as if it had them from the beginning. */
static pl_status loop(trainer *t)
{
    pl_status rc = PL_OK;
    t->from = pl_run_steps_done(t->run);
    if (t->folder.ended) t->steps = t->from;
    t->evaluated = t->from && t->folder.last.evaluated ? t->from : -1;
    t->metric_first = pl_checkpoint_noted(&t->folder.last, "metric.first", (double)NAN);
    if (eval_due(t, t->from) && t->evaluated != t->from) rc = evaluate(t, t->from);
    t->began = now();
    t->shown = -1;
    while (rc == PL_OK && pl_run_steps_done(t->run) < t->steps && !stop_asked) rc = one_step(t);
    clear_bar(t);
    if (rc == PL_OK) rc = save(t, true);
    bool done = rc == PL_OK && !stop_asked;
    if (done && t->evaluated != t->steps) rc = evaluate(t, t->steps);
    return rc;
}

static pl_status finish(trainer *t)
{
    pl_status rc = PL_OK;
    int64_t done = pl_run_steps_done(t->run);
    if (t->folder.path && !stop_asked) {
        char path[4096];
        snprintf(path, sizeof path, "%s/model.safetensors", t->folder.path);
        rc = pl_run_save_model(t->run, path);
        if (rc == PL_OK && !t->json && !t->quiet) fprintf(stderr, "wrote %s\n", path);
    }
    if (rc == PL_OK) rc = emit(t, "end", end_members, &done);
    if (rc != PL_OK || t->json || t->quiet) return rc;
    fprintf(stderr, "%lld steps in %s, peak of the process %s\n", (long long)(done - t->from),
            cli_clock(now() - t->began), cli_bytes(pl_run_peak_used_bytes(t->run)));
    bad_files_print(t->run);
    if (stop_asked && done && t->folder.saved == done)
        fprintf(stderr, "stopped at step %lld of %lld, saved; the same command goes on from there\n",
                (long long)done, (long long)t->steps);
    if (t->metric[0] && !isnan(t->metric_first) && !stop_asked)
        fprintf(stderr, "%s%s: %.4g before training, %.4g after%s\n", cli_bold(stderr), t->metric,
                t->metric_first, t->metric_last, cli_plain(stderr));
    return rc;
}

/* The run in the folder has nothing left to do. */
static int already_done(trainer *t)
{
    if (!t->quiet && !t->json)
        fprintf(stderr, "%s is finished: %lld steps; train.steps=N goes on to N, --fresh begins anew\n",
                t->folder.path, (long long)t->folder.last.step);
    pl_status rc = emit(t, "end", end_members, &t->folder.last.step);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

static int train(trainer *t)
{
    pl_status rc = pl_run_build(t->run);
    if (rc != PL_OK) return cli_fail(rc);
    pl_run_trace_nan(t->run, t->trace_nan);
    if (!t->json && !t->quiet) {
        plan_print(t->run, t->name, NULL, 0, stderr);
        fputc('\n', stderr);
        if (t->folder.dir[0]) fprintf(stderr, "going on from %s\n", t->folder.dir);
    }
    if ((rc = folder_begin(&t->folder, t->run)) != PL_OK) return pl_status_exit_code(rc);
    rc = emit(t, "plan", plan_members, NULL);
    if (rc == PL_OK && t->folder.path) rc = page_plan_save(t->run, t->name, t->folder.folder);
    if (rc == PL_OK) rc = pl_run_start(t->run);
    if (rc == PL_OK) rc = monitor_open(&t->monitor, t->run, t->folder.path,
                                       pl_run_steps_done(t->run), !t->json && !t->quiet);
    if (rc == PL_OK && t->monitor.told) monitor_memory(&t->monitor, stderr);
    if (rc == PL_OK) rc = loop(t);
    if (rc == PL_OK) rc = finish(t);
    clear_bar(t);
    if (rc != PL_OK) return t->folder.told || t->monitor.failed ? pl_status_exit_code(rc) : cli_fail(rc);
    if (!stop_asked) return 0;
    int64_t done = pl_run_steps_done(t->run);
    return done && t->folder.saved == done ? pl_status_exit_code(PL_ERR_STOPPED) : 128 + stop_asked;
}

static int run_training(trainer *t)
{
    pl_status rc = folder_open(&t->folder, t->run, t->fresh);
    if (rc != PL_OK) return pl_status_exit_code(rc);
    return t->folder.finished ? already_done(t) : train(t);
}

/* Better said before a plan is made than after. */
static bool only_planned(const pl_run *run)
{
    pl_device_info info;
    const char *device = pl_config_text(pl_run_config(run), "device");
    if (!times_is_profile(device, &info)) return false;
    cli_error("%s is %s: plimsoll plan can use it, plimsoll devices tells what this machine can train on",
              device, info.why_not);
    return true;
}

int cmd_train(int argc, char **argv)
{
    trainer t = {.run = NULL};
    char device_key[96];
    char ranks_key[32];
    const char *memory = NULL, *device = NULL, *ranks = NULL;
    bool print_config = false;
    cli_args a;
    const cli_option options[] = {
        {"--out", "RUN", &t.folder.path, "the run's folder; a run that is in it goes on"},
        {"--memory", "SIZE", &memory, "budget of the whole process, e.g. 2GiB (= memory=SIZE)"},
        {"--device", "NAME", &device, "where to train (= device=NAME)"},
        {"--ranks", "N", &ranks, "train in N processes of this machine (= ranks=N, started by mpirun)"},
        {"--fresh", NULL, &t.fresh, "begin anew: removes the run that is in RUN"},
        {"--json", NULL, &t.json, "one JSON object a line on stdout"},
        {"--quiet", NULL, &t.quiet, "print errors only"},
        {"--trace-nan", NULL, &t.trace_nan, "name the first value that is not finite (slow)"},
        {"--print-config", NULL, &print_config, "print the resolved configuration and stop"},
        {NULL, NULL, NULL, NULL},
    };
    cli_parse(argc, argv, options,
              "plimsoll train CONFIG [key=value ...]\n\nTrains inside the planned memory. CONFIG is a "
              "preset, a YAML file or a compiled recipe (my-net.so).",
              "  plimsoll train cloud/demo --out runs/first\n"
              "  plimsoll train cloud/demo train.steps=100 optim.lr=1e-3\n"
              "  plimsoll train my.yaml --memory 6GB\n", &a);
    cli_want(&a, 1, 1, "train", "one configuration");
    cli_override(&a, "device", device, device_key, sizeof device_key);
    pl_status rc = print_config ? PL_OK : pl_world_open(&t.world);
    if (rc != PL_OK) return cli_fail(rc);
    if (t.world) {
        snprintf(ranks_key, sizeof ranks_key, "ranks=%d", pl_world_size(t.world));
        a.overrides[a.n_overrides++] = ranks_key;
    } else {
        cli_override(&a, "ranks", ranks, ranks_key, sizeof ranks_key);
    }
    if (pl_world_rank(t.world) > 0) {
        t.quiet = true;
        t.json = false;
        t.folder.path = NULL;
    }
    rc = plan_open(&a, memory, &t.run);
    if (rc == PL_OK) rc = pl_run_join(t.run, t.world);
    if (rc != PL_OK) return cli_fail(rc);
    if (print_config) return plan_print_config(t.run);
    if (only_planned(t.run)) {
        pl_run_free(t.run);
        return 4;
    }
    const pl_config *c = pl_run_config(t.run);
    t.name = a.positional[0];
    t.steps = pl_config_int(c, "train.steps");
    t.log_every = pl_config_int(c, "train.log_every");
    t.eval_every = pl_config_int(c, "eval.every");
    t.bar = !t.json && !t.quiet && cli_terminal(stderr);
    t.folder.quiet = t.json || t.quiet;
    t.began = now();
    if (t.json) t.events = pl_json_new(stdout);
    listen(SIGINT, ask_stop);
    listen(SIGTERM, ask_stop);
    listen(SIGHUP, ask_stop);
    listen(SIGUSR1, ask_save);
    listen(SIGUSR2, ask_memory);
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an error of the write */
    pl_run_set_stop(t.run, &stop_asked);
    int code = run_training(&t);
    pl_json_free(t.events);
    monitor_close(&t.monitor);
    folder_close(&t.folder);
    pl_run_free(t.run);
    pl_world_close(t.world);
    return code;
}
