/* cmd_generate.c - `plimsoll generate`: writes the recipe's samples as a data set on disk. */
#include "cli/ui.h"

int cmd_generate(int argc, char **argv)
{
    const char *out = NULL, *samples = NULL, *eval_samples = NULL;
    bool raw = false;
    cli_progress s = {.percent = -1};
    cli_args a;
    const cli_option options[] = {
        {"--out", "DIR", &out, "folder for train/INPUT.npy and eval/INPUT.npy"},
        {"--samples", "N", &samples, "number of training samples (default: all of the recipe)"},
        {"--eval-samples", "N", &eval_samples, "number of evaluation samples (default: all)"},
        {"--raw", NULL, &raw,
         "write pictures, prompts or the file formats of the authors instead of arrays"},
        {"--quiet", NULL, &s.quiet, "print errors only"},
        {NULL, NULL, NULL, NULL},
    };
    cli_parse(argc, argv, options,
              "plimsoll generate CONFIG --out DIR [key=value ...]\n\nWrites the recipe's samples "
              "as a data set on disk, one NumPy array per input.\n`data.path=DIR` trains on it.",
              "  plimsoll generate cloud/demo --out skies --samples 1000 --eval-samples 100\n"
              "  plimsoll train cloud/demo data.path=skies\n",
              &a);
    cli_want(&a, 1, 1, "generate", "one configuration");
    int64_t n = cli_number("--samples", "samples", samples, 0, INT64_MAX),
            m = cli_number("--eval-samples", "samples", eval_samples, 0, INT64_MAX);
    if (n < 0 || m < 0) return 2;
    if (!out) {
        cli_error("generate needs --out DIR (plimsoll generate --help shows examples)");
        return 2;
    }
    s.bar = cli_terminal(stderr);
    pl_run *run = NULL;
    pl_status rc = pl_run_open(a.positional[0], a.overrides, a.n_overrides, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && raw) rc = pl_run_generate_raw(run, out, n, m, cli_show_progress, &s);
    if (rc == PL_OK && !raw) rc = pl_run_generate(run, out, n, m, cli_show_progress, &s);
    pl_run_free(run);
    if (rc != PL_OK) return cli_fail(rc);
    if (!s.quiet) printf("%s\n", out);
    return 0;
}
