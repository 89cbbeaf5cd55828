/* cmd_train.c - `plimsoll train`: plan, then steps, with a line that says how it goes.
 *
 * On a terminal one line is rewritten in place and the log lines scroll above it; elsewhere a plain
 * key=value line appears every train.log_every steps; with --json everything is one object a line on
 * stdout. --out RUN keeps config.yaml, log.jsonl and, at the end, model.safetensors.
 */
#include "plan_view.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked; /* the signal's number */

static void ask_stop(int signal_number)
{
    if (stop_asked) _Exit(128 + signal_number); /* the second one does not wait */
    stop_asked = signal_number;
}

typedef struct trainer {
    pl_run *run;
    const char *name, *out;
    bool json, quiet, bar, force, trace_nan;
    pl_json *events; /* stdout with --json, else NULL */
    pl_json *log;    /* RUN/log.jsonl, else NULL */
    FILE *log_file;
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
    pl_json *sinks[2] = {t->events, t->log};
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
    double per = elapsed / (double)s->step;
    char line[512];
    snprintf(line, sizeof line,
             "[%s] step %lld/%lld | %.3g %s | loss %.4f | lr %.2e | %s | wait %.0f%% | ETA %s",
             cli_clock(elapsed), (long long)s->step, (long long)t->steps, per >= 1 ? per : 1 / per,
             per >= 1 ? "s/step" : "steps/s", s->loss, s->lr, cli_bytes(pl_run_used_bytes(t->run)),
             s->step_ms > 0 ? 100 * s->data_ms / s->step_ms : 0,
             cli_clock(per * (double)(t->steps - s->step)));
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
                cli_clock((now() - t->began) / (double)s->step * (double)(t->steps - s->step)));
    t->data_ms = t->step_ms = 0;
    t->since = 0;
}

static void show_eval(trainer *t, int64_t step, const pl_eval_info *e)
{
    if (t->json || t->quiet) return;
    clear_bar(t);
    fprintf(stderr, "eval step=%lld", (long long)step);
    for (int i = 0; i < e->n; i++) fprintf(stderr, " %s=%.4f", e->name[i], e->value[i]);
    fprintf(stderr, "\n");
}

/* ---- the run folder --------------------------------------------------------------------- */
static pl_status fail_io(const char *what, const char *path)
{
    cli_error("cannot %s %s: %s", what, path, strerror(errno));
    return PL_ERR_IO;
}

/* mkdir -p */
static bool make_folders(const char *path)
{
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        errno = n ? ENAMETOOLONG : ENOENT;
        return false;
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return false;
    }
    return true;
}

static pl_status open_folder(trainer *t)
{
    char path[4096];
    struct stat st;
    if (!make_folders(t->out)) return fail_io("make the folder", t->out);
    snprintf(path, sizeof path, "%s/model.safetensors", t->out);
    if (!t->force && access(path, F_OK) == 0) {
        cli_error("%s holds a finished run (%s); choose another folder, or --force", t->out, path);
        return PL_ERR_ARG;
    }
    if (stat(t->out, &st) != 0 || !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return fail_io("write into", t->out);
    }
    char *text;
    pl_status rc = pl_config_print(pl_run_config(t->run), &text);
    if (rc != PL_OK) {
        cli_fail(rc);
        return rc;
    }
    snprintf(path, sizeof path, "%s/config.yaml", t->out);
    FILE *f = fopen(path, "we");
    bool written = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0) written = false;
    pl_text_free(text);
    if (!written) return fail_io("write", path);
    snprintf(path, sizeof path, "%s/log.jsonl", t->out);
    t->log_file = fopen(path, "we");
    if (!t->log_file) return fail_io("write", path);
    t->log = pl_json_new(t->log_file);
    return PL_OK;
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
}

static pl_status evaluate(trainer *t, int64_t step)
{
    if (!pl_run_eval_program(t->run)) return PL_OK;
    pl_eval_info e;
    pl_status rc = pl_run_eval(t->run, &e);
    if (rc != PL_OK) return rc;
    show_eval(t, step, &e);
    note_metric(t, step, &e);
    const char *watched = pl_config_text(pl_run_config(t->run), "schedule.plateau.metric");
    for (int i = 0; i < e.n && step > 0; i++)
        if (strcmp(e.name[i], watched) == 0) pl_run_plateau(t->run, e.value[i]);
    return emit(t, "eval", eval_members, &(eval_event){step, &e});
}

static pl_status loop(trainer *t, int64_t *done)
{
    pl_status rc = evaluate(t, 0);
    t->began = now();
    t->shown = -1;
    while (rc == PL_OK && *done < t->steps && !stop_asked) {
        pl_step_info s;
        rc = pl_run_step(t->run, &s);
        if (rc != PL_OK) break;
        *done = s.step;
        show_line(t, &s);
        show_bar(t, &s);
        rc = emit(t, "step", step_members, &s);
        if (rc == PL_OK && t->eval_every && s.step % t->eval_every == 0 && s.step < t->steps)
            rc = evaluate(t, s.step);
    }
    clear_bar(t);
    if (rc == PL_OK && !stop_asked) rc = evaluate(t, *done);
    return rc;
}

static pl_status finish(trainer *t, int64_t done)
{
    pl_status rc = PL_OK;
    if (t->out && done > 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/model.safetensors", t->out);
        rc = pl_run_save_model(t->run, path);
        if (rc == PL_OK && !t->json && !t->quiet) fprintf(stderr, "wrote %s\n", path);
    }
    if (rc == PL_OK) rc = emit(t, "end", end_members, &done);
    if (rc != PL_OK || t->json || t->quiet) return rc;
    fprintf(stderr, "%lld steps in %s, peak of the process %s\n", (long long)done,
            cli_clock(now() - t->began), cli_bytes(pl_run_peak_used_bytes(t->run)));
    bad_files_print(t->run);
    if (t->metric[0] && !stop_asked)
        fprintf(stderr, "%s%s: %.4g before training, %.4g after%s\n", cli_bold(stderr), t->metric,
                t->metric_first, t->metric_last, cli_plain(stderr));
    return rc;
}

static int run_training(trainer *t)
{
    pl_status rc = pl_run_build(t->run);
    if (rc != PL_OK) return cli_fail(rc);
    pl_run_trace_nan(t->run, t->trace_nan);
    if (!t->json && !t->quiet) {
        plan_print(t->run, t->name, NULL, 0, stderr);
        fputc('\n', stderr);
    }
    if (t->out && (rc = open_folder(t)) != PL_OK) return pl_status_exit_code(rc);
    rc = emit(t, "plan", plan_members, NULL);
    if (rc == PL_OK) rc = pl_run_start(t->run);
    int64_t done = 0;
    if (rc == PL_OK) rc = loop(t, &done);
    if (rc == PL_OK) rc = finish(t, done);
    if (rc != PL_OK) {
        clear_bar(t);
        return cli_fail(rc);
    }
    return stop_asked ? 128 + stop_asked : 0;
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
    const char *memory = NULL, *device = NULL;
    bool print_config = false;
    cli_args a;
    const cli_option options[] = {
        {"--out", "RUN", &t.out, "folder for config.yaml, log.jsonl and model.safetensors"},
        {"--memory", "SIZE", &memory, "budget of the whole process, e.g. 2GiB (= memory=SIZE)"},
        {"--device", "NAME", &device, "where to train (= device=NAME)"},
        {"--force", NULL, &t.force, "write over a finished run in RUN"},
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
    pl_status rc = plan_open(&a, memory, &t.run);
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
    t.began = now();
    if (t.json) t.events = pl_json_new(stdout);
    struct sigaction action = {.sa_handler = ask_stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int code = run_training(&t);
    pl_json_free(t.events);
    pl_json_free(t.log);
    if (t.log_file) fclose(t.log_file);
    pl_run_free(t.run);
    return code;
}
