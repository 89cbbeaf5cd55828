/* cmd_predict.c - `plimsoll predict`: what a trained model says of new data.
 *
 * The plan contains the recipe's programs of predictions: weights, no gradients, no optimizer. The
 * recipe decides what is read and written (pl_recipe.predict); this file finds configuration and
 * weights and shows the progress.
 */
#include "cli/train/cli_phases.h"
#include "cli/ui.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATH = 4096 };

typedef struct predictor {
    const char *model, *memory, *device, *input, *out, *prompt, *seed, *phase;
    bool ema, json;
    cli_progress progress;
    pl_run *run;
    char config_path[PATH], model_path[PATH];
} predictor;

static void show(void *ctx, int64_t done, int64_t total)
{
    if (total > 0) cli_show_progress(ctx, PL_SUBSET_EVAL, done, total);
}

static pl_status open_run(predictor *e, cli_args *a)
{
    static char model[PATH + 16], device[96], seed[48], ranks[16], shard[16], every[24];
    a->positional[0] = e->config_path;
    a->phase = e->phase;
    cli_override(a, "init_from", e->model_path, model, sizeof model);
    cli_override(a, "device", e->device, device, sizeof device);
    cli_override(a, "seed", e->seed, seed, sizeof seed);
    cli_override(a, "ranks", "1", ranks, sizeof ranks);
    cli_override(a, "shard", "none", shard, sizeof shard);
    cli_override(a, "sample.every", "0", every, sizeof every);
    pl_status rc = cli_open_run(a, e->memory, &e->run);
    int phase =
        rc == PL_OK && !e->phase ? phases_model(e->run, pl_run_phase_count(e->run) - 1) : -1;
    if (phase >= 0) rc = pl_run_enter(e->run, phase, 0);
    return rc == PL_OK ? pl_run_predict_only(e->run) : rc;
}

static pl_status print_json(const predictor *e, const pl_predict_info *info, double seconds)
{
    pl_run_memory m = pl_run_memory_get(e->run);
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "model", e->model_path);
    pl_json_string(j, "out", e->out);
    pl_json_int(j, "samples", info->samples);
    pl_json_int(j, "bad_files", info->bad);
    pl_json_int(j, "batch", pl_run_split_get(e->run).micro);
    pl_json_float(j, "wall_s", seconds);
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "peak_used_bytes", pl_run_peak_used_bytes(e->run));
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

static int predict(predictor *e, cli_args *a)
{
    pl_predict_info info = {0};
    pl_status rc = open_run(e, a);
    if (!e->progress.quiet) cli_busy("planning and starting");
    if (rc == PL_OK) rc = pl_run_build(e->run);
    if (rc == PL_OK) rc = pl_run_start(e->run);
    cli_idle();
    if (rc != PL_OK) return cli_fail(rc);
    pl_predict_opts o = {.input = e->input,
                         .out = e->out,
                         .prompt = e->prompt,
                         .progress = show,
                         .ctx = &e->progress};
    double began = cli_seconds();
    rc = pl_run_predict(e->run, &o, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    if (info.bad)
        cli_error("%s picture%s could not be read and were left out", cli_count(info.bad),
                  info.bad == 1 ? "" : "s");
    if (e->json) {
        rc = print_json(e, &info, seconds);
        return rc == PL_OK ? 0 : cli_fail(rc);
    }
    printf("%s: %s in %s, peak memory of the process %s\n", e->out, cli_count(info.samples),
           cli_duration(seconds), cli_bytes(pl_run_peak_used_bytes(e->run)));
    return 0;
}

const cli_help cli_help_predict = {
    .usage = "plimsoll predict RUN --input FILE --out FILE [key=value ...]\n"
             "plimsoll predict CONFIG --model FILE --input FILE --out FILE [key=value ...]",
    .about = "Applies a trained model to new data and writes the results. RUN is a run folder. "
             "Nothing is\ntrained: the plan has weights and one forward pass.",
    .examples = "  plimsoll predict runs/pets --input new-pictures --out pets.csv\n"
                "  plimsoll predict runs/cells --input new-pictures --out masks --memory 1GB\n"
                "  plimsoll predict runs/book --prompt 'Once upon a time' --out story.txt\n",
    .options =
        (const cli_option[]){
            {"--input", "FILE", offsetof(predictor, input),
             "new data: a file or a folder, in a format of the recipe"},
            {"--out", "FILE", offsetof(predictor, out), "file or folder for the results"},
            {"--model", "FILE", offsetof(predictor, model), "weights to use",
             "the model of the run"},
            {"--ema", NULL, offsetof(predictor, ema),
             "use the averaged weights (model_ema.safetensors)"},
            {"--prompt", "TEXT", offsetof(predictor, prompt),
             "text to continue, or to make a picture of"},
            {"--seed", "N", offsetof(predictor, seed), "seed of random draws (same as seed=N)"},
            {"--phase", "NAME", offsetof(predictor, phase), "use the settings of this phase",
             "the phase of the model"},
            {"--memory", "SIZE", offsetof(predictor, memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--device", "DEVICE", offsetof(predictor, device),
             "device to compute on (same as device=DEVICE)"},
            {"--json", NULL, offsetof(predictor, json), "print one JSON object"},
            {"--quiet", NULL, offsetof(predictor, progress.quiet), "no progress bar"},
            {NULL},
        },
};

int cmd_predict(int argc, char **argv)
{
    predictor *e = cli_new(sizeof *e);
    cli_args a;
    cli_parse(argc, argv, &cli_help_predict, e, &a);
    cli_want(&a, 1, 1, "predict", "one run folder or configuration");
    e->progress.percent = -1;
    e->progress.what = "predict";
    e->progress.bar = cli_terminal(stderr);
    e->progress.quiet |= e->json;
    bool found =
        cli_find_model(a.positional[0], e->model, e->ema, e->config_path, e->model_path, PATH);
    int code = found ? predict(e, &a) : 2;
    pl_run_free(e->run);
    free(e);
    return code;
}
