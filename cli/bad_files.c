/* bad_files.c - lists, at the end of a run, the images that data.on_bad=skip or quarantine left
 * out. */
#include "cli/ui.h"

void bad_files_print(const pl_run *run)
{
    char path[4096];
    int64_t n = pl_run_bad_files(run);
    if (n == 0) return;
    fprintf(stderr, "%s%s images could not be read and were replaced by others:%s\n",
            cli_red(stderr), cli_count(n), cli_plain(stderr));
    for (int64_t k = 0; pl_run_bad_file(run, k, path, sizeof path); k++)
        fprintf(stderr, "  %s\n", path);
}
