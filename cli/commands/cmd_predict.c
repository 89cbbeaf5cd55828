/* cmd_predict.c - `plimsoll predict`: what a trained model says of new data.
 *
 * The plan contains the recipe's programs of predictions: weights, no gradients, no optimizer. The
 * recipe decides what is read and written (pl_recipe.predict); this file finds configuration and
 * weights and shows the progress.
 */
#include "cli/trained.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct predictor {
    trained_model t;
    const char *input, *out, *prompt, *seed; /* options; NULL: not given */
} predictor;

static void show(void *ctx, int64_t done, int64_t total)
{
    if (total > 0) cli_show_progress(ctx, PL_SUBSET_EVAL, done, total);
}

static pl_status open_run(predictor *e, cli_args *a)
{
    static char seed[48];
    cli_override(a, "seed", e->seed, seed, sizeof seed);
    pl_status rc = trained_open(&e->t, a, false);
    if (rc == PL_OK) rc = trained_enter(&e->t);
    return rc == PL_OK ? pl_run_predict_only(e->t.run) : rc;
}

static pl_status print_json(const predictor *e, const pl_predict_info *info, double seconds)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "model", e->t.model_path);
    pl_json_string(j, "out", e->out);
    pl_json_int(j, "samples", info->samples);
    pl_json_int(j, "bad_files", info->bad);
    if (info->note[0]) pl_json_string(j, "note", info->note);
    pl_json_int(j, "batch", pl_run_split_get(e->t.run).micro);
    trained_json(&e->t, j, seconds);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

static int predict(predictor *e, cli_args *a)
{
    pl_predict_info info = {0};
    pl_status rc = open_run(e, a);
    if (rc == PL_OK) rc = trained_start(&e->t);
    if (rc != PL_OK) return cli_fail(rc);
    pl_predict_opts o = {.input = e->input,
                         .out = e->out,
                         .prompt = e->prompt,
                         .progress = show,
                         .ctx = &e->t.progress};
    double began = cli_seconds();
    rc = pl_run_predict(e->t.run, &o, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    if (info.note[0] && !e->t.progress.quiet) cli_error("%s", info.note);
    if (info.bad)
        cli_error("%s picture%s could not be read and were left out", cli_count(info.bad),
                  info.bad == 1 ? "" : "s");
    if (e->t.json) {
        rc = print_json(e, &info, seconds);
        return rc == PL_OK ? 0 : cli_fail(rc);
    }
    printf("%s: %s in %s, peak memory of the process %s\n", e->out, cli_count(info.samples),
           cli_duration(seconds), cli_bytes(pl_run_peak_used_bytes(e->t.run)));
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
            {"--prompt", "TEXT", offsetof(predictor, prompt),
             "text to continue, or to make a picture of"},
            {"--seed", "N", offsetof(predictor, seed), "seed of random draws (same as seed=N)"},
            TRAINED_OPTIONS(predictor),
            {NULL},
        },
};

int cmd_predict(int argc, char **argv)
{
    predictor *e = cli_new(sizeof *e);
    cli_args a;
    cli_parse(argc, argv, &cli_help_predict, e, &a);
    cli_want(&a, 1, 1, "predict", "one run folder or configuration");
    e->t.progress.what = "predict";
    int code = trained_find(&e->t, a.positional[0]) ? predict(e, &a) : 2;
    pl_run_free(e->t.run);
    free(e);
    return code;
}
