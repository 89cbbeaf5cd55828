/* cmd_train.c - `plimsoll train`: plan, then steps, with a line that says how it goes.
 *
 * On a terminal one line is rewritten in place and the log lines scroll above it; elsewhere a plain
 * key=value line appears every train.log_every steps; with --json everything is one object a line
 * on stdout. --out RUN is the run's folder (run_folder.h): what is in it is gone on with.
 *
 * Signals only set flags, which are looked at between steps, between batches of an evaluation and
 * while a plan is looked for. A second one leaves at once; checkpoints are whole at any instant.
 */
#include "cli/plan/plan_view.h"
#include "cli/train/cli_ranks.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked; /* the signal's number; of several ranks, any one's */
static volatile int stop_agreed;         /* the same, when all ranks know of it */
static volatile sig_atomic_t save_asked, memory_asked;

bool trainer_stopped(const trainer *t)
{
    return t->world ? stop_agreed != 0 : stop_asked != 0;
}

static void ask_stop(int signal_number)
{
    if (stop_asked) _Exit(128 + signal_number); /* the second one does not wait */
    stop_asked = signal_number;
}

/* One that is sent to all processes of a job reaches a rank twice, from the process that started it
 * too. */
static void ask_rank_to_stop(int signal_number)
{
    static volatile sig_atomic_t first; /* seconds */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stop_asked && now.tv_sec - first > 1) _Exit(128 + signal_number);
    if (!stop_asked) first = (sig_atomic_t)now.tv_sec;
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

static void listen_to_signals(bool rank)
{
    listen(SIGINT, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGTERM, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGHUP, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGUSR1, ask_save);
    listen(SIGUSR2, ask_memory);
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an error of the write */
}

/* ---- the loop --------------------------------------------------------------------------- */
/* Remembers the recipe's metric before training and now, for the closing line. */
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

/* A save that fails before the end is no reason to stop: the last checkpoint is as it was. */
static pl_status save(trainer *t, bool must)
{
    int64_t step = pl_run_steps_done(t->run), before = t->folder.saved;
    bool saved = false;
    save_asked = 0;
    pl_world_doing(t->world, "saving", step);
    if (ranks_follows(t)) {
        pl_status served = ranks_serve(t, &saved);
        if (saved) t->folder.saved = step;
        return served;
    }
    pl_status rc = folder_save(&t->folder, t->run, t->evaluated == step);
    if (t->world) {
        pl_status told = pl_run_served(t->run, rc == PL_OK && t->folder.saved == step);
        if (told != PL_OK) return told;
    }
    if (rc == PL_OK && t->folder.saved == before) return PL_OK;
    if (rc == PL_OK) return emit_checkpoint(t, step);
    if (must || rc != PL_ERR_IO) return rc;
    clear_bar(t);
    cli_error("warning: %s; training goes on, the last checkpoint is of step %lld", pl_error_text(),
              (long long)before);
    return PL_OK;
}

/* The run, or this phase of it, ends here as if it had been given no more steps. */
static void end_early(trainer *t, int64_t step, const pl_verdict *v)
{
    const pl_config *c = pl_run_config(t->run);
    const pl_phase *p = trainer_phase(t);
    bool tell = !t->json && !t->quiet;
    t->over = p && !v->reached && p->ends_run;
    if (tell && v->reached)
        fprintf(stderr, "%s is %s %g", p->metric, p->above ? "above" : "below", p->bound);
    else if (tell)
        fprintf(stderr, "no better %s for %lld evaluations", pl_config_text(c, "stop.metric"),
                (long long)pl_config_int(c, "stop.patience"));
    if (tell)
        fprintf(stderr, ": the %s ends at step %lld of %lld\n", p && !t->over ? "phase" : "run",
                (long long)step, (long long)t->steps);
    pl_checkpoint_note(&t->folder.last, "ended", (double)step);
    if (t->over) pl_checkpoint_note(&t->folder.last, "ended.run", (double)step);
    t->steps = step;
}

/* until.reach names an output; which there are is known when there has been an evaluation. */
static pl_status check_reach(trainer *t, const pl_eval_info *e)
{
    const pl_phase *p = trainer_phase(t);
    for (int i = 0; i < e->n && p && p->metric; i++)
        if (strcmp(e->name[i], p->metric) == 0) return PL_OK;
    if (!p || !p->metric) return PL_OK;
    cli_error("phase %s: until.reach: the evaluation has no \"%s\"; it has:", p->name, p->metric);
    for (int i = 0; i < e->n; i++) cli_error("  %s", e->name[i]);
    t->folder.told = true;
    return PL_ERR_CONFIG;
}

/* One that a signal stops is made again when the run goes on. *best: a save should follow. */
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
    return rc == PL_OK ? emit_picture(t, step, g->name, path) : rc;
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

/* Pictures have nowhere to go without a folder. */
static pl_status make_pictures(trainer *t, int64_t step)
{
    if (!(t->folder.path || t->shown_by_0) || !pl_run_sample_program(t->run) || t->pictured == step)
        return PL_OK;
    t->pictured = step;
    pl_status rc = pl_run_sample(t->run, t->shown_by_0 ? skip_picture : show_picture, t);
    if (rc == PL_OK && !t->shown_by_0) rc = keep_arrays(t, step);
    return rc == PL_OK && !t->shown_by_0 ? monitor_pictures_end(&t->monitor, step) : rc;
}

static bool pictures_due(const trainer *t, int64_t step)
{
    return t->sample_every && (trainer_step(t, step) % t->sample_every == 0 || step == t->steps);
}

static bool save_due(const trainer *t, int64_t step)
{
    return save_asked || folder_due(&t->folder, step, trainer_step(t, step));
}

static pl_status one_step(trainer *t)
{
    pl_step_info s;
    pl_world_doing(t->world, "training", pl_run_steps_done(t->run) + 1);
    pl_status rc = pl_run_step(t->run, &s);
    if (rc != PL_OK) return rc;
    show_line(t, &s);
    if (monitor_due(&t->monitor, s.step, memory_asked)) {
        show_memory(t, s.step, memory_asked);
        memory_asked = 0;
    }
    show_bar(t, &s);
    rc = emit_step(t, &s);
    if (rc == PL_OK) rc = monitor_step(&t->monitor, &s);
    bool best = false;
    if (rc == PL_OK && eval_due(t, s.step)) rc = evaluate(t, s.step, &best);
    if (rc == PL_OK && pictures_due(t, s.step)) rc = make_pictures(t, s.step);
    if (rc != PL_OK) return rc;
    /* pictures first: a run that goes on from the save makes none of its step */
    bool due = best || save_due(t, s.step);
    stop_agreed = stop_asked;
    rc = ranks_agree(t, &stop_agreed, &due);
    if (stop_agreed) stop_asked = stop_agreed;
    return rc == PL_OK && due ? save(t, false) : rc;
}

/* The evaluation at the end comes after the last checkpoint, unless it was due then anyway: a run
 * that is given more steps goes on as if it had them from the beginning. */
static pl_status loop(trainer *t)
{
    pl_status rc = PL_OK;
    bool goes_on = trainer_step(t, t->from) > 0;
    if (t->folder.ended) t->steps = t->from;
    t->evaluated = goes_on && t->folder.last.evaluated ? t->from : -1;
    t->metric_first = pl_checkpoint_noted(&t->folder.last, "metric.first", (double)NAN);
    bool best = false;
    if (eval_due(t, t->from) && t->evaluated != t->from) rc = evaluate(t, t->from, &best);
    if (rc == PL_OK && best) rc = save(t, false);
    if (rc == PL_OK && !goes_on && t->sample_every) rc = make_pictures(t, t->from);
    t->began = cli_seconds();
    /* planning is no part of the run's time */
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

/* ---- the end ---------------------------------------------------------------------------- */
static void tell_end(const trainer *t, int64_t done)
{
    fprintf(stderr, "%lld steps in %s, peak of the process %s\n", (long long)(done - t->first),
            cli_clock(cli_seconds() - t->started), cli_bytes(trainer_peak(t)));
    ranks_tell_peaks(t);
    bad_files_print(t->run);
    if (stop_asked && done && t->folder.saved == done)
        fprintf(stderr,
                "stopped at step %lld of %lld, saved; the same command goes on from there\n",
                (long long)done, (long long)t->steps);
    if (t->metric[0] && !isnan(t->metric_first) && !stop_asked)
        fprintf(stderr, "%s%s: %.4g before training, %.4g after%s\n", cli_bold(stderr), t->metric,
                t->metric_first, t->metric_last, cli_plain(stderr));
}

/* A file of weights into the run's folder: as they are, or averaged, if any are. */
static pl_status save_weights(trainer *t, const char *name, bool averaged)
{
    char path[4096], from[4200];
    int i = phases_model(t->run, pl_run_phase(t->run));
    snprintf(path, sizeof path, "%s/%s", t->folder.path, name);
    snprintf(from, sizeof from, "%s/%s/%s", t->handed,
             i < 0 ? "" : pl_run_phase_at(t->run, i)->name, name);
    if (averaged && !(i < 0 ? pl_run_has_averages(t->run) : access(from, F_OK) == 0)) return PL_OK;
    pl_status rc = i >= 0     ? pl_folder_copy(t->folder.folder, from, name)
                   : averaged ? pl_run_save_averages(t->run, path)
                              : pl_run_save_model(t->run, path);
    if (rc == PL_OK && !t->json && !t->quiet) fprintf(stderr, "wrote %s\n", path);
    return rc;
}

static pl_status save_model(trainer *t)
{
    pl_status rc = save_weights(t, "model.safetensors", false);
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
    if (rc == PL_OK && !t->json && !t->quiet) tell_end(t, done);
    return rc;
}

/* The run in the folder has nothing left to do. */
int trainer_done(trainer *t)
{
    if (!t->quiet && !t->json)
        fprintf(stderr,
                "%s is finished: %lld steps; train.steps=N goes on to N, --fresh begins anew\n",
                t->folder.path, (long long)t->folder.last.step);
    pl_status rc = emit_end(t, t->folder.last.step);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

/* ---- one run, or one phase -------------------------------------------------------------- */
/* The plan's page under another name: made before the run's memory is taken, in place when the run
 * has begun. */
#define NEXT_PLAN "plan.json.tmp-next"

static pl_status keep_plan(trainer *t)
{
    t->keep_plan = t->folder.path && (!t->begun || pl_run_phase(t->run) == t->largest);
    return t->keep_plan ? page_plan_save(t->run, t->name, t->folder.folder, NEXT_PLAN) : PL_OK;
}

static void settle_plan(trainer *t, bool begun)
{
    char from[4200], to[4200];
    if (!t->keep_plan) return;
    snprintf(from, sizeof from, "%s/" NEXT_PLAN, t->folder.path);
    snprintf(to, sizeof to, "%s/plan.json", t->folder.path);
    if (!begun || rename(from, to) != 0) unlink(from);
}

/* When its programs are started, and only then: a run that cannot go on leaves the folder as it
 * was. The plan is in the events already, but for one that was made anew. */
static pl_status open_files(trainer *t, bool anew)
{
    pl_status rc = PL_OK;
    pl_json *events = t->events;
    bool first = !t->begun;
    if (first) rc = folder_begin(&t->folder, t->list);
    t->begun = true;
    if (rc == PL_OK) rc = folder_settle_best(&t->folder);
    settle_plan(t, rc == PL_OK);
    if (rc != PL_OK) {
        t->folder.told = true;
        return rc;
    }
    if (!first && !anew) return PL_OK;
    if (!anew) t->events = NULL;
    rc = emit_plan(t);
    t->events = events;
    return rc;
}

/* Starts the programs. Where libraries took more of a card than the plan had left them, that is
 * planned anew: the plan that trains is told before the first step. */
static pl_status start_programs(trainer *t, bool *anew)
{
    uint64_t before = pl_run_memory_get(t->run).arena;
    if (!t->json && !t->quiet) cli_busy("starting: memory, kernels, initial values");
    pl_status rc = pl_run_start(t->run);
    cli_idle();
    if (rc != PL_OK) settle_plan(t, false);
    if (rc != PL_OK) return rc;
    pl_run_memory m = pl_run_memory_get(t->run);
    *anew = m.arena != before;
    if (!*anew) return PL_OK;
    if (!t->json && !t->quiet)
        fprintf(
            stderr,
            "planned anew, since the card's libraries took more than was left for them: an arena of "
            "%llu bytes in place of %llu, a step of %.4g ms\n",
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
    if (rc == PL_OK && t->monitor.told && t->from == t->first) monitor_memory(&t->monitor, stderr);
    return rc;
}

static void tell_going_on(const trainer *t)
{
    long long now = pl_run_split_get(t->run).accumulate, then = t->folder.last.accumulate;
    fprintf(stderr, "going on from %s\n", t->folder.dir);
    if (now != then)
        cli_error(
            "note: the batch was split into %lld, now into %lld: sums may be rounded otherwise "
            "(accumulate=%lld gives the same bits)",
            then, now, then);
}

pl_status trainer_train(trainer *t)
{
    bool told = !t->json && !t->quiet;
    if (told) cli_busy("planning %s", t->name);
    pl_status rc = pl_run_build(t->run);
    cli_idle();
    if (rc != PL_OK) return rc;
    pl_run_trace_nan(t->run, t->trace_nan);
    bool going_on = t->folder.dir[0] && !t->begun && !t->continued;
    if (told && !trainer_phase(t)) {
        plan_print(t->run, t->name, NULL, 0, stderr);
        fputc('\n', stderr);
    }
    if (told && going_on) tell_going_on(t);
    bool anew = false;
    rc = keep_plan(t);
    if (rc == PL_OK) rc = emit_plan(t);
    if (rc == PL_OK) rc = start_programs(t, &anew);
    if (rc == PL_OK) rc = open_files(t, anew);
    t->from = pl_run_steps_done(t->run);
    if (rc == PL_OK) t->steps = pl_run_last_step(t->run);
    if (t->first < 0) t->first = t->from;
    if (rc == PL_OK) rc = open_monitor(t);
    if (rc == PL_OK) show_phase(t);
    if (rc == PL_OK && trainer_phase(t) && trainer_step(t, t->from) == 0) rc = emit_phase(t);
    if (rc == PL_OK) rc = loop(t);
    clear_bar(t);
    return rc;
}

/* The exit code of a run that was not finished, or was. */
int trainer_code(const trainer *t, pl_status rc)
{
    if (rc != PL_OK && t->world) pl_world_fail(t->world, pl_status_exit_code(rc), pl_error_text());
    if (rc == PL_ERR_STOPPED && stop_asked) { /* while it was planned */
        cli_error("%s", pl_error_text());
        return t->folder.saved ? pl_status_exit_code(rc) : 128 + stop_asked;
    }
    if (rc != PL_OK)
        return t->folder.told || t->monitor.failed ? pl_status_exit_code(rc) : cli_fail(rc);
    if (!stop_asked) return 0;
    int64_t done = pl_run_steps_done(t->run);
    return done && t->folder.saved == done ? pl_status_exit_code(PL_ERR_STOPPED) : 128 + stop_asked;
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
    if (!t->world) pl_run_set_stop(t->run, &stop_asked);
}

static int train_whole(trainer *t)
{
    trainer_settings(t);
    pl_status rc = folder_enter(&t->folder, t->run, t->folder.dir[0] != 0);
    t->folder.told = rc != PL_OK;
    if (rc == PL_OK) rc = ranks_take_folder(t, true);
    if (rc != PL_OK) return trainer_code(t, rc);
    if (t->folder.finished) return trainer_done(t);
    rc = trainer_train(t);
    if (rc == PL_OK) rc = trainer_finish(t);
    return trainer_code(t, rc);
}

static int run_training(trainer *t)
{
    phases_continue(t);
    pl_status rc = folder_lock(&t->folder, t->fresh);
    if (rc == PL_OK) rc = phases_find(t);
    if (rc != PL_OK && t->world) pl_world_fail(t->world, pl_status_exit_code(rc), pl_error_text());
    if (rc != PL_OK) return pl_status_exit_code(rc);
    return pl_run_phase_count(t->list) == 0 ? train_whole(t) : train_phases(t);
}

/* Better said before a plan is made than after. */
static bool only_planned(const pl_run *run)
{
    pl_device_info info;
    const char *device = pl_config_text(pl_run_config(run), "device");
    if (!times_is_profile(device, &info)) return false;
    cli_error(
        "%s is %s: plimsoll plan can use it, plimsoll devices tells what this machine can train on",
        device, info.why_not);
    return true;
}

/* How many ranks there are, by the launcher or by the command line, as a key. */
static pl_status override_ranks(cli_args *a, const char *asked, char *text, size_t cap,
                                int *launched)
{
    pl_status rc = pl_world_launched(launched);
    if (rc != PL_OK) return rc;
    if (*launched == 1) {
        cli_override(a, "ranks", asked, text, cap);
    } else {
        snprintf(text, cap, "ranks=%d", *launched);
        a->overrides[a->n_overrides++] = text;
    }
    return PL_OK;
}

/* Starts ranks, if this process is to; returns its exit code then, else -1. */
static int start_ranks(const char *text, char **argv)
{
    int code, ranks = text ? atoi(text) : 1;
    if (text && ranks < 1) {
        cli_error("--ranks wants a number of processes, not \"%s\"", text);
        return 2;
    }
    pl_status rc = pl_ranks_start(ranks, argv - 1, &code); /* argv begins with the command's name */
    return rc == PL_OK ? code : cli_fail(rc);
}

int cmd_train(int argc, char **argv)
{
    trainer t = {.largest = -1, .first = -1};
    char device_key[96], ranks_key[32];
    const char *memory = NULL, *device = NULL, *ranks = NULL;
    bool print_config = false;
    cli_args a;
    const cli_option options[] = {
        {"--out", "RUN", &t.folder.path, "the run's folder; a run that is in it goes on"},
        {"--memory", "SIZE", &memory, "budget of the whole process, e.g. 2GiB (= memory=SIZE)"},
        {"--device", "NAME", &device, "where to train (= device=NAME)"},
        {"--ranks", "N", &ranks,
         "train in N processes of this machine (= ranks=N, started by mpirun)"},
        {"--fresh", NULL, &t.fresh, "begin anew: removes the run that is in RUN"},
        {"--json", NULL, &t.json, "one JSON object a line on stdout"},
        {"--quiet", NULL, &t.quiet, "print errors only"},
        {"--trace-nan", NULL, &t.trace_nan, "name the first value that is not finite (slow)"},
        {"--print-config", NULL, &print_config, "print the resolved configuration and stop"},
        {NULL, NULL, NULL, NULL},
    };
    cli_parse(
        argc, argv, options,
        "plimsoll train CONFIG [key=value ...]\n\nTrains inside the planned memory. CONFIG is a "
        "preset, a YAML file or a compiled recipe (my-net.so).",
        "  plimsoll train cloud/demo --out runs/first\n"
        "  plimsoll train cloud/demo train.steps=100 optim.lr=1e-3\n"
        "  plimsoll train my.yaml --memory 6GB\n",
        &a);
    cli_want(&a, 1, 1, "train", "one configuration");
    cli_override(&a, "device", device, device_key, sizeof device_key);
    a.argv = argv - 1; /* main's own: the program's name stands before the command's */
    int launched = 1;
    pl_status rc = override_ranks(&a, ranks, ranks_key, sizeof ranks_key, &launched);
    if (rc != PL_OK) return cli_fail(rc);
    phases_answer(&a, memory);
    int started = print_config ? -1 : start_ranks(ranks, argv);
    if (started >= 0) return started;
    /* A rank that is told to stop, however early, says so to the others. */
    if (launched > 1 && !print_config) listen_to_signals(true);
    if (!print_config) rc = pl_world_open(&t.world);
    if (rc != PL_OK) return cli_fail(rc);
    if (pl_world_rank(t.world) > 0) {
        t.quiet = true;
        t.json = false;
        t.folder.path = NULL;
    }
    rc = cli_open_run(&a, memory, &t.list);
    if (rc == PL_OK && launched == 1 && !print_config &&
        pl_config_int(pl_run_config(t.list), "ranks") > 1) {
        snprintf(ranks_key, sizeof ranks_key, "%lld",
                 (long long)pl_config_int(pl_run_config(t.list), "ranks"));
        pl_run_free(t.list);
        return start_ranks(ranks_key, argv);
    }
    if (rc == PL_OK) rc = pl_run_join(t.list, t.world);
    if (rc != PL_OK) pl_world_fail(t.world, pl_status_exit_code(rc), pl_error_text());
    if (rc != PL_OK) return cli_fail(rc);
    pl_world_set_limit(t.world, pl_config_duration(pl_run_config(t.list), "rank_timeout"));
    if (print_config) return cli_print_config(t.list);
    if (only_planned(t.list)) {
        pl_run_free(t.list);
        pl_world_close(t.world, 4);
        return 4;
    }
    t.run = t.list;
    t.args = &a;
    t.memory = memory;
    t.name = a.positional[0];
    t.bar = !t.json && !t.quiet && cli_terminal(stderr);
    t.folder.quiet = t.json || t.quiet;
    t.started = t.began = cli_seconds();
    if (t.json) t.events = pl_json_new(stdout);
    if (launched == 1) listen_to_signals(false);
    if (t.world && !t.quiet && !t.json) ranks_table(&t);
    int code = run_training(&t);
    pl_json_free(t.events);
    free(t.peaks);
    monitor_close(&t.monitor);
    folder_close(&t.folder);
    if (t.run != t.list) pl_run_free(t.run);
    pl_run_free(t.list);
    pl_world_close(t.world, code);
    return code;
}
