/* cmd_eval.c - `plimsoll eval`: scores a trained model, and samples from it.
 *
 * The plan contains only evaluation and sampling: weights, no gradients, no optimizer. The model is
 * that of a run folder, or any file of weights together with a configuration of its network.
 */
#include "cli/train/cli_phases.h"
#include "cli/ui.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_events.h"
#include "plimsoll_json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH = 4096 };

typedef struct evaluator {
    const char *model, *memory, *device, *out, *phase; /* options; NULL: not given */
    bool ema, json, error_printed;
    bool other_data; /* see names_other_data */
    char share[32];
    cli_progress progress;
    pl_run *run;
    int64_t micro_batches; /* of a batch; see pl_run_eval_only */
    char config_path[PATH], model_path[PATH];
    pl_json *j; /* --json: the open object */
} evaluator;

/* Finds configuration and weights. False: an error was printed. */
static bool find_model(evaluator *e, const char *named)
{
    return cli_find_model(named, e->model, e->ema, e->config_path, e->model_path, PATH);
}

/* Makes the folder of --out before the evaluation, so that an error comes early. */
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
    char dir[PATH];
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
    if (pl_run_open(e->config_path, NULL, 0, &as_written) != PL_OK) return true;
    const pl_config *c = pl_run_config(as_written);
    bool same =
        !pl_config_is_null(c, "data.path") && same_place(path, pl_config_text(c, "data.path"));
    pl_run_free(as_written);
    return !same;
}

static pl_status open_with(evaluator *e, cli_args *a)
{
    static char model[PATH + 16], device[96];
    if (e->other_data) cli_override(a, "data.eval_share", "1", e->share, sizeof e->share);
    a->positional[0] = e->config_path;
    a->phase = e->phase;
    cli_override(a, "init_from", e->model_path, model, sizeof model);
    cli_override(a, "device", e->device, device, sizeof device);
    static char ranks[16], shard[16], every[24];
    cli_override(a, "ranks", "1", ranks, sizeof ranks);
    cli_override(a, "shard", "none", shard, sizeof shard);
    cli_override(a, "sample.every", e->out ? "1" : "0", every, sizeof every);
    return cli_open_run(a, e->memory, &e->run);
}

/* Opens the run. If the run evaluated with averaged weights, so does this command. */
static pl_status open_run(evaluator *e, cli_args *a)
{
    cli_args given = *a;
    pl_run *as_trained = NULL;
    a->positional[0] = e->config_path;
    e->other_data = names_other_data(e, a);
    pl_status rc = pl_run_open(e->config_path, a->overrides, a->n_overrides, &as_trained);
    if (rc != PL_OK) return rc;
    e->micro_batches =
        micro_batches_of(given.positional[0]) * pl_config_int(pl_run_config(as_trained), "ranks");
    pl_run_free(as_trained);
    rc = open_with(e, a);
    bool averaged =
        rc == PL_OK && !e->model && !e->ema && pl_config_bool(pl_run_config(e->run), "eval.ema");
    if (averaged) {
        pl_run_free(e->run);
        e->run = NULL;
        e->ema = true;
        e->error_printed = !find_model(e, given.positional[0]);
        if (e->error_printed) return PL_ERR_CONFIG;
        rc = open_with(e, &given);
    }
    int phase =
        rc == PL_OK && !e->phase ? phases_model(e->run, pl_run_phase_count(e->run) - 1) : -1;
    if (phase >= 0) rc = pl_run_enter(e->run, phase, 0);
    return rc == PL_OK ? pl_run_eval_only(e->run, e->micro_batches) : rc;
}

/* ---- pictures and arrays ------------------------------------------------------------------ */
static void report_file(evaluator *e, const char *path)
{
    if (e->json)
        pl_json_string(e->j, NULL, path);
    else
        printf("  wrote %s\n", path);
}

static pl_status keep_picture(void *ctx, const pl_sheet *g)
{
    evaluator *e = ctx;
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.png", e->out, g->name);
    pl_status rc = pl_png_save(path, g->width, g->height, g->channels, g->pixels);
    if (rc == PL_OK) report_file(e, path);
    return rc;
}

static pl_status sample(evaluator *e)
{
    char path[PATH];
    pl_status rc = pl_run_sample(e->run, keep_picture, e);
    if (rc != PL_OK || !pl_run_sample_arrays(e->run)) return rc;
    snprintf(path, sizeof path, "%s/samples.safetensors", e->out);
    rc = pl_run_sample_save(e->run, path);
    if (rc == PL_OK) report_file(e, path);
    return rc;
}

/* ---- scores ------------------------------------------------------------------------------- */
static void print_scores(const evaluator *e, const pl_eval_info *info, double seconds)
{
    const char *wanted = pl_run_recipe(e->run)->metric;
    printf("%s: %s samples in %s, peak memory of the process %s\n", e->model_path,
           cli_count(info->samples), cli_duration(seconds),
           cli_bytes(pl_run_peak_used_bytes(e->run)));
    for (int i = 0; i < info->n; i++) {
        bool main = wanted && strcmp(info->name[i], wanted) == 0;
        printf("  %s%-16s %.6g%s\n", main ? cli_bold(stdout) : "", info->name[i], info->value[i],
               main ? cli_plain(stdout) : "");
    }
}

static void scores_json(evaluator *e, const pl_eval_info *info, double seconds)
{
    pl_run_memory m = pl_run_memory_get(e->run);
    pl_json_object(e->j, NULL);
    pl_json_string(e->j, "model", e->model_path);
    pl_json_int(e->j, "samples", info->samples);
    pl_json_int(e->j, "batches", info->batches);
    pl_json_float(e->j, "wall_s", seconds);
    pl_json_uint(e->j, "arena_bytes", m.arena);
    pl_json_uint(e->j, "state_bytes", m.state);
    pl_json_uint(e->j, "peak_used_bytes", pl_run_peak_used_bytes(e->run));
    pl_json_object(e->j, "metrics");
    for (int i = 0; i < info->n; i++) pl_json_float(e->j, info->name[i], info->value[i]);
    pl_json_end(e->j);
    pl_json_array(e->j, "files");
}

static int evaluate(evaluator *e, cli_args *a)
{
    pl_eval_info info;
    e->progress.bar = cli_terminal(stderr);
    e->progress.quiet |= e->json;
    pl_status rc = open_run(e, a);
    if (!e->progress.quiet) cli_busy("planning and starting");
    if (rc == PL_OK) rc = pl_run_build(e->run);
    if (rc == PL_OK) rc = pl_run_start(e->run);
    cli_idle();
    if (rc != PL_OK) return e->error_printed ? pl_status_exit_code(rc) : cli_fail(rc);
    if (!e->progress.quiet) skipped_files_print(e->run);
    pl_run_set_progress(e->run, cli_show_progress, &e->progress);
    double began = cli_seconds();
    rc = pl_run_eval(e->run, &info);
    double seconds = cli_seconds() - began;
    if (rc != PL_OK) return cli_fail(rc);
    if (info.n == 0 && !e->out) {
        cli_error(
            "the data set has no evaluation samples (set data.eval_share, or add an eval folder)");
        return pl_status_exit_code(PL_ERR_DATA);
    }
    if (e->json)
        e->j = pl_json_new(stdout), scores_json(e, &info, seconds);
    else
        print_scores(e, &info, seconds);
    if (e->out) rc = sample(e);
    bad_files_print(e->run);
    if (e->json) pl_json_end(e->j), pl_json_end(e->j);
    if (e->json && rc == PL_OK) rc = pl_json_finish(e->j);
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
            {"--model", "FILE", offsetof(evaluator, model), "weights to evaluate",
             "the model of the run"},
            {"--ema", NULL, offsetof(evaluator, ema),
             "evaluate the averaged weights (model_ema.safetensors)"},
            {"--out", "DIR", offsetof(evaluator, out),
             "also sample: write sample.count=N pictures and arrays into DIR"},
            {"--phase", "NAME", offsetof(evaluator, phase), "use the settings of this phase",
             "the phase of the model"},
            {"--memory", "SIZE", offsetof(evaluator, memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--device", "DEVICE", offsetof(evaluator, device),
             "device to evaluate on (same as device=DEVICE)"},
            {"--json", NULL, offsetof(evaluator, json), "print one JSON object"},
            {"--quiet", NULL, offsetof(evaluator, progress.quiet), "no progress bar"},
            {NULL},
        },
};

int cmd_eval(int argc, char **argv)
{
    evaluator *e = cli_new(sizeof *e);
    cli_args a;
    cli_parse(argc, argv, &cli_help_eval, e, &a);
    cli_want(&a, 1, 1, "eval", "one run folder or configuration");
    e->progress.percent = -1;
    int code = !find_model(e, a.positional[0]) ? 2
               : !can_write(e)                 ? pl_status_exit_code(PL_ERR_IO)
                                               : evaluate(e, &a);
    pl_json_free(e->j);
    pl_run_free(e->run);
    free(e);
    return code;
}
