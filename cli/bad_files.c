/* bad_files.c - files of an image set that a run does not use: counted at its start by kind, where
 * their format is not read; listed at its end, where data.on_bad=skip or quarantine replaced them.
 */
#include "cli/ui.h"

void skipped_files_print(const pl_run *run)
{
    char kinds[256];
    int64_t n = pl_run_skipped_files(run, kinds, sizeof kinds);
    if (n)
        cli_error(
            "note: %s file%s of %s %s not read (formats: JPEG, PNG, WebP, BMP, TIFF, GIF): %s",
            cli_count(n), n == 1 ? "" : "s", pl_config_text(pl_run_config(run), "data.path"),
            n == 1 ? "is" : "are", kinds);
}

void bad_files_print(const pl_run *run)
{
    char path[4096];
    int64_t n = pl_run_bad_files(run);
    if (n == 0) return;
    fprintf(stderr, "%s%s image%s could not be read and %s replaced by others:%s\n",
            cli_red(stderr), cli_count(n), n == 1 ? "" : "s", n == 1 ? "was" : "were",
            cli_plain(stderr));
    for (int64_t k = 0; pl_run_bad_file(run, k, path, sizeof path); k++) {
        fputs("  ", stderr);
        cli_put(stderr, path);
        fputc('\n', stderr);
    }
}
