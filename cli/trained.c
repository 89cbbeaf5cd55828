/* trained.c - see trained.h. */
#include "cli/trained.h"

#include "cli/train/cli_phases.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void trained_prepare(trained_model *t, const char *command)
{
    t->progress.percent = -1;
    t->progress.what = command;
    t->progress.bar = cli_terminal(stderr);
    t->progress.quiet |= t->json;
}

bool trained_is_network(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".onnx") == 0;
}

bool trained_find(trained_model *t, const char *named)
{
    const char *model = t->model;
    bool ema = t->ema;
    struct stat s;
    bool run = stat(named, &s) == 0 && S_ISDIR(s.st_mode);
    if (model && ema) {
        cli_error(
            "--ema and --model exclude each other: --ema takes the averaged weights of a run folder");
        return false;
    }
    if (!run && ema) {
        cli_error("--ema needs a run folder; %s is not a run folder", named);
        return false;
    }
    if (!run && !model) {
        if (trained_is_network(named)) {
            model = named;
        } else {
            cli_error("no weights given: %s is not a run folder; name the folder of a finished "
                      "run, or add --model FILE",
                      named);
            return false;
        }
    }
    snprintf(t->config_path, sizeof t->config_path, "%s%s", named, run ? "/config.yaml" : "");
    if (run && access(t->config_path, F_OK) != 0) {
        if (errno == EACCES)
            cli_error("cannot read %s: %s", named, strerror(errno));
        else
            cli_error("%s is not a run folder: it has no config.yaml", named);
        return false;
    }
    if (model)
        snprintf(t->model_path, sizeof t->model_path, "%s", model);
    else
        snprintf(t->model_path, sizeof t->model_path, "%s/%s", named,
                 ema ? "model_ema.safetensors" : "model.safetensors");
    if (!run || model || access(t->model_path, R_OK) == 0) return true;
    if (ema)
        cli_error("there is no %s: only a finished run with ema.decay has it", t->model_path);
    else
        cli_error(
            "there is no %s: the run is not finished; --model takes the model of a checkpoint",
            t->model_path);
    return false;
}

pl_status trained_open(trained_model *t, cli_args *a, bool samples)
{
    static char model[TRAINED_PATH + 16], device[96], ranks[16], shard[16], every[24];
    a->positional[0] = t->config_path;
    a->phase = t->phase;
    if (strcmp(t->model_path, t->config_path) != 0) /* an ONNX file fills its own weights */
        cli_override(a, "init_from", t->model_path, model, sizeof model);
    cli_override(a, "device", t->device, device, sizeof device);
    cli_override(a, "ranks", "1", ranks, sizeof ranks);
    cli_override(a, "shard", "none", shard, sizeof shard);
    cli_override(a, "sample.every", samples ? "1" : "0", every, sizeof every);
    return cli_open_run(a, t->memory, &t->run);
}

pl_status trained_enter(trained_model *t)
{
    int phase = t->phase ? -1 : phases_model(t->run, pl_run_phase_count(t->run) - 1);
    return phase >= 0 ? pl_run_enter(t->run, phase, 0) : PL_OK;
}

pl_status trained_start(trained_model *t)
{
    if (!t->progress.quiet) cli_busy("planning and starting");
    pl_status rc = pl_run_build(t->run);
    if (rc == PL_OK) rc = pl_run_start(t->run);
    cli_idle();
    const char *note = rc == PL_OK ? pl_run_start_note(t->run) : NULL;
    if (note && !t->progress.quiet) fprintf(stderr, "%s\n", note);
    if (rc == PL_OK && !t->progress.quiet) cli_start_warning(t->run);
    return rc;
}

void trained_json(const trained_model *t, pl_json *j, double seconds)
{
    pl_run_memory m = pl_run_memory_get(t->run);
    pl_json_float(j, "wall_s", seconds);
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "peak_used_bytes", pl_run_peak_used_bytes(t->run));
    cli_loaded_json(t->run, j);
}

/* ---- predictions ------------------------------------------------------------------------ */
static void show(void *ctx, int64_t done, int64_t total)
{
    if (total > 0) cli_show_progress(ctx, PL_SUBSET_EVAL, done, total);
}

static pl_status print_json(const trained_model *t, const char *out, const char *counted,
                            const pl_predict_info *info, double seconds)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "model", t->model_path);
    pl_json_string(j, "out", out);
    pl_json_int(j, counted, info->samples);
    pl_json_int(j, "bad_files", info->bad);
    if (info->note[0]) pl_json_string(j, "note", info->note);
    pl_json_int(j, "batch", pl_run_split_get(t->run).micro);
    pl_json_int(j, "parameters", pl_run_parameters(t->run, false));
    trained_json(t, j, seconds);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

/* A matrix product of fewer rows may run through another kernel, which adds in another order. */
static void warn_shrunk(const trained_model *t)
{
    int64_t micro = pl_run_split_get(t->run).micro,
            batch = pl_config_int(pl_run_config(t->run), "batch");
    if (micro < batch && !t->progress.quiet)
        cli_error(
            "the budget allows a batch of %lld instead of %lld: results can differ in the last bit "
            "from results without the budget",
            (long long)micro, (long long)batch);
}

int trained_predict(trained_model *t, pl_predict_opts o, const char *counted)
{
    pl_predict_info info = {0};
    o.progress = show;
    o.ctx = &t->progress;
    double began = cli_seconds();
    pl_status rc = pl_run_predict(t->run, &o, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    warn_shrunk(t);
    if (info.note[0]) cli_error("%s", info.note);
    if (info.bad)
        cli_error("%s picture%s could not be read and %s left out: %s%s (plimsoll inspect data %s "
                  "says why)",
                  cli_count(info.bad), info.bad == 1 ? "" : "s", info.bad == 1 ? "was" : "were",
                  info.first_bad, info.bad == 1 ? "" : ", ...", o.input);
    if (t->json) {
        rc = print_json(t, o.out, counted, &info, seconds);
        return rc == PL_OK ? 0 : cli_fail(rc);
    }
    int64_t done = info.samples - info.bad;
    cli_say("%s: %s %.*s in %s, peak memory of the process %s\n", o.out, cli_count(done),
            (int)strlen(counted) - (done == 1), counted, cli_duration(seconds),
            cli_bytes(pl_run_peak_used_bytes(t->run)));
    return 0;
}
