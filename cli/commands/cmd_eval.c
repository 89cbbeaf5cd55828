/* cmd_eval.c - `plimsoll eval`: scores a trained model, and samples from it.
 *
 * The plan contains only evaluation and sampling: weights, no gradients, no optimizer. The model is
 * that of a run folder, or any file of weights together with a configuration of its network.
 */
#include "cli/trained.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_events.h"
#include "plimsoll_json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct evaluator {
    trained_model t;
    const char *out; /* --out; NULL: not given */
    bool error_printed;
    bool other_data; /* see names_other_data */
    char share[32];
    int64_t micro_batches; /* of a batch; see pl_run_eval_only */
    pl_json *j;            /* --json: the open object */
} evaluator;

/* Makes the folder of --out before the evaluation, so that an error comes early, and after the
 * model is loaded, so that a bad model leaves no folder. */
static bool can_write(const evaluator *e)
{
    if (!e->out || pl_folder_make(e->out) == PL_OK) return true;
    cli_error("--out: %s", pl_error_text());
    return false;
}

/* Returns the micro-batches per rank of the newest checkpoint of a run; 0: unknown. */
static int64_t micro_batches_of(const char *named)
{
    int64_t step;
    char dir[TRAINED_PATH];
    if (pl_folder_steps(named, &step, 1) == 0) return 0;
    pl_folder_checkpoint(named, step, dir, sizeof dir);
    pl_checkpoint *c = cli_new(sizeof *c);
    int64_t n = pl_checkpoint_read(dir, c) == PL_OK ? c->accumulate : 0;
    free(c);
    return n;
}

/* The last value that the command line gives a key; NULL: none. */
static const char *given_value(const cli_args *a, const char *key)
{
    size_t n = strlen(key);
    for (int i = a->n_overrides; i-- > 0;)
        if (strncmp(a->overrides[i], key, n) == 0 && a->overrides[i][n] == '=')
            return a->overrides[i] + n + 1;
    return NULL;
}

static bool same_place(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether the command line names other data than the configuration. They have no part that training
 * left out, so all of them are evaluated. */
static bool names_other_data(const evaluator *e, const cli_args *a)
{
    const char *path = given_value(a, "data.path");
    pl_run *as_written = NULL;
    if (!path || given_value(a, "data.eval_share")) return false;
    if (pl_run_open(e->t.config_path, NULL, 0, &as_written) != PL_OK) return true;
    const pl_config *c = pl_run_config(as_written);
    bool same =
        !pl_config_is_null(c, "data.path") && same_place(path, pl_config_text(c, "data.path"));
    pl_run_free(as_written);
    return !same;
}

static pl_status open_with(evaluator *e, cli_args *a)
{
    if (e->other_data) cli_override(a, "data.eval_share", "1", e->share, sizeof e->share);
    return trained_open(&e->t, a, e->out != NULL);
}

/* Opens the run. If the run evaluated with averaged weights, so does this command. */
static pl_status open_run(evaluator *e, cli_args *a)
{
    cli_args given = *a;
    pl_run *as_trained = NULL;
    a->positional[0] = e->t.config_path;
    e->other_data = names_other_data(e, a);
    pl_status rc = pl_run_open(e->t.config_path, a->overrides, a->n_overrides, &as_trained);
    if (rc != PL_OK) return rc;
    e->micro_batches =
        micro_batches_of(given.positional[0]) * pl_config_int(pl_run_config(as_trained), "ranks");
    pl_run_free(as_trained);
    rc = open_with(e, a);
    bool averaged = rc == PL_OK && !e->t.model && !e->t.ema &&
                    pl_config_bool(pl_run_config(e->t.run), "eval.ema");
    if (averaged) {
        pl_run_free(e->t.run);
        e->t.run = NULL;
        e->t.ema = true;
        e->error_printed = !trained_find(&e->t, given.positional[0]);
        if (e->error_printed) return PL_ERR_CONFIG;
        rc = open_with(e, &given);
    }
    if (rc == PL_OK) rc = trained_enter(&e->t);
    return rc == PL_OK ? pl_run_eval_only(e->t.run, e->micro_batches) : rc;
}

/* ---- pictures and arrays ------------------------------------------------------------------ */
static void report_file(evaluator *e, const char *path)
{
    if (e->t.json)
        pl_json_string(e->j, NULL, path);
    else
        cli_say("  wrote %s\n", path);
}

static pl_status keep_picture(void *ctx, const pl_sheet *g)
{
    evaluator *e = ctx;
    char path[TRAINED_PATH];
    snprintf(path, sizeof path, "%s/%s.png", e->out, g->name);
    pl_status rc = pl_png_save(path, g->width, g->height, g->channels, g->pixels);
    if (rc == PL_OK) report_file(e, path);
    return rc;
}

static pl_status sample(evaluator *e)
{
    char path[TRAINED_PATH];
    pl_status rc = pl_run_sample(e->t.run, keep_picture, e);
    if (rc != PL_OK || !pl_run_sample_arrays(e->t.run)) return rc;
    snprintf(path, sizeof path, "%s/samples.safetensors", e->out);
    rc = pl_run_sample_save(e->t.run, path);
    if (rc == PL_OK) report_file(e, path);
    return rc;
}

/* ---- scores ------------------------------------------------------------------------------- */
static void print_scores(const evaluator *e, const pl_eval_info *info, double seconds)
{
    const char *wanted = pl_run_recipe(e->t.run)->metric;
    cli_say("%s: %s sample%s in %s, peak memory of the process %s\n", e->t.model_path,
            cli_count(info->samples), info->samples == 1 ? "" : "s", cli_duration(seconds),
            cli_bytes(pl_run_peak_used_bytes(e->t.run)));
    for (int i = 0; i < info->n; i++) {
        bool main = wanted && strcmp(info->name[i], wanted) == 0;
        printf("  %s%-16s %.6g%s\n", main ? cli_bold(stdout) : "", info->name[i], info->value[i],
               main ? cli_plain(stdout) : "");
    }
}

static void scores_json(evaluator *e, const pl_eval_info *info, double seconds)
{
    pl_json_object(e->j, NULL);
    pl_json_string(e->j, "model", e->t.model_path);
    pl_json_int(e->j, "samples", info->samples);
    pl_json_int(e->j, "batches", info->batches);
    trained_json(&e->t, e->j, seconds);
    pl_json_object(e->j, "metrics");
    for (int i = 0; i < info->n; i++) pl_json_float(e->j, info->name[i], info->value[i]);
    pl_json_end(e->j);
    pl_json_array(e->j, "files");
}

static int evaluate(evaluator *e, cli_args *a)
{
    pl_eval_info info;
    pl_status rc = open_run(e, a);
    if (rc == PL_OK) rc = trained_start(&e->t);
    if (rc != PL_OK) return e->error_printed ? pl_status_exit_code(rc) : cli_fail(rc);
    if (!can_write(e)) return pl_status_exit_code(PL_ERR_IO);
    if (!e->t.progress.quiet) skipped_files_print(e->t.run);
    pl_run_set_progress(e->t.run, cli_show_progress, &e->t.progress);
    double began = cli_seconds();
    rc = pl_run_eval(e->t.run, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    if (info.n == 0 && !e->out) {
        cli_error(
            "the data set has no evaluation samples (set data.eval_share, or add an eval folder)");
        return pl_status_exit_code(PL_ERR_DATA);
    }
    if (e->t.json)
        e->j = pl_json_new(stdout), scores_json(e, &info, seconds);
    else
        print_scores(e, &info, seconds);
    if (e->out) rc = sample(e);
    bad_files_print(e->t.run);
    if (e->t.json) pl_json_end(e->j), pl_json_end(e->j);
    if (e->t.json && rc == PL_OK) rc = pl_json_finish(e->j);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

const cli_help cli_help_eval = {
    .usage = "plimsoll eval RUN [key=value ...]\n"
             "plimsoll eval CONFIG --model FILE [key=value ...]",
    .about = "Scores a trained model on the evaluation samples; with --out also samples from it. "
             "RUN is a run\nfolder. Nothing is trained: the plan has weights and one forward pass.",
    .examples = "  plimsoll eval runs/first\n"
                "  plimsoll eval runs/first --ema --out pictures sample.count=64\n"
                "  plimsoll eval cloud/demo --model runs/first/model.safetensors data.path=skies "
                "eval.batches=1000\n",
    .options =
        (const cli_option[]){
            {"--out", "DIR", offsetof(evaluator, out),
             "also sample: write sample.count=N pictures and arrays into DIR"},
            TRAINED_OPTIONS(evaluator),
            {NULL},
        },
};

int cmd_eval(int argc, char **argv)
{
    evaluator *e = cli_new(sizeof *e);
    cli_args a;
    cli_parse(argc, argv, &cli_help_eval, e, &a);
    cli_want(&a, 1, 1, "eval", "one run folder or configuration");
    trained_prepare(&e->t, NULL);
    int code = trained_find(&e->t, a.positional[0]) ? evaluate(e, &a) : 2;
    pl_json_free(e->j);
    pl_run_free(e->t.run);
    free(e);
    return code;
}
