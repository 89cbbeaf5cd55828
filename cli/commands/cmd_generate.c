/* cmd_generate.c - `plimsoll generate`: writes the recipe's samples as a data set on disk. */
#include "cli/ui.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

typedef struct generate_options {
    const char *out, *samples, *eval_samples;
    bool raw, force, quiet;
} generate_options;

const cli_help cli_help_generate = {
    .usage = "plimsoll generate CONFIG --out DIR [key=value ...]",
    .about = "Writes the recipe's samples as a data set on disk, one NumPy array per input.\n"
             "`data.path=DIR` trains on it.",
    .examples = "  plimsoll generate cloud/demo --out skies --samples 1000 --eval-samples 100\n"
                "  plimsoll train cloud/demo data.path=skies\n",
    .options =
        (const cli_option[]){
            {"--out", "DIR", offsetof(generate_options, out),
             "folder for train/INPUT.npy and eval/INPUT.npy"},
            {"--samples", "N", offsetof(generate_options, samples), "number of training samples",
             "all of the recipe"},
            {"--eval-samples", "N", offsetof(generate_options, eval_samples),
             "number of evaluation samples", "all"},
            {"--raw", NULL, offsetof(generate_options, raw),
             "write pictures, prompts or the file formats of the authors instead of arrays"},
            {"--force", NULL, offsetof(generate_options, force),
             "write into a folder that is not empty; files of the same name are replaced"},
            {"--quiet", NULL, offsetof(generate_options, quiet), "print errors only"},
            {NULL},
        },
};

/* Whether there is something at the path other than an empty folder. */
static bool is_taken(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0) return false;
    DIR *d = opendir(path);
    bool taken = !d;
    for (const struct dirent *e; d && !taken && (e = readdir(d));)
        taken = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return taken;
}

int cmd_generate(int argc, char **argv)
{
    generate_options o = {.raw = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_generate, &o, &a);
    cli_progress s = {.percent = -1, .quiet = o.quiet};
    cli_want(&a, 1, 1, "generate", "one configuration");
    int64_t n = cli_number("--samples", "samples", o.samples, 0, INT64_MAX),
            m = cli_number("--eval-samples", "samples", o.eval_samples, 0, INT64_MAX);
    if (n < 0 || m < 0) return 2;
    if (!o.out) {
        cli_error("generate needs --out DIR (plimsoll generate --help shows examples)");
        return 2;
    }
    if (!o.force && is_taken(o.out)) {
        cli_error(
            "%s exists and is not an empty folder; choose another folder, or --force replaces "
            "files of the same name",
            o.out);
        return 2;
    }
    s.bar = cli_terminal(stderr);
    pl_run *run = NULL;
    pl_status rc = pl_run_open(a.positional[0], a.overrides, a.n_overrides, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && o.raw) rc = pl_run_generate_raw(run, o.out, n, m, cli_show_progress, &s);
    if (rc == PL_OK && !o.raw) rc = pl_run_generate(run, o.out, n, m, cli_show_progress, &s);
    pl_run_free(run);
    if (rc != PL_OK) return cli_fail(rc);
    if (!s.quiet) cli_say("%s\n", o.out);
    return 0;
}
