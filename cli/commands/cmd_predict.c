/* cmd_predict.c - `plimsoll predict`: applies a trained model to new data.
 *
 * The plan contains the recipe's programs of predictions: weights, no gradients, no optimizer. The
 * recipe decides what is read and written (pl_recipe.predict); this file finds configuration and
 * weights and shows the progress.
 */
#include "cli/trained.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct predictor {
    trained_model t;
    const char *input, *out, *prompt, *seed; /* options; NULL: not given */
} predictor;

static pl_status open_run(predictor *e, cli_args *a)
{
    static char seed[48];
    cli_override(a, "seed", e->seed, seed, sizeof seed);
    pl_status rc = trained_open(&e->t, a, false);
    if (rc == PL_OK) rc = trained_enter(&e->t);
    return rc == PL_OK ? pl_run_predict_only(e->t.run) : rc;
}

static int predict(predictor *e, cli_args *a)
{
    pl_status rc = open_run(e, a);
    if (rc == PL_OK) rc = trained_start(&e->t);
    if (rc != PL_OK) return cli_fail(rc);
    return trained_predict(
        &e->t, (pl_predict_opts){.input = e->input, .out = e->out, .prompt = e->prompt}, "samples");
}

const cli_help cli_help_predict = {
    .usage = "plimsoll predict RUN --input FILE --out FILE [key=value ...]\n"
             "plimsoll predict CONFIG --model FILE --input FILE --out FILE [key=value ...]",
    .about = "Applies a trained model to new data and writes the results. RUN is a run folder, or "
             "an ONNX\nmodel with weights of its own. Nothing is trained: the plan has weights and "
             "one forward pass.",
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
    trained_prepare(&e->t, "predict");
    int code = trained_find(&e->t, a.positional[0]) ? predict(e, &a) : 2;
    pl_run_free(e->t.run);
    free(e);
    return code;
}
