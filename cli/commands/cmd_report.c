/* cmd_report.c - `plimsoll report RUN ...`: a page or a document about a run, or a comparison of
 * several. */
#include "cli/report/report.h"

#include "cli/ui.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RUNS = 16 };

/* ---- the command ------------------------------------------------------------------------ */
static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static int write_report(const report *r, int n, const char *path)
{
    bool out = strcmp(path, "-") == 0;
    cli_file file = {.f = stdout};
    bool markdown = out || ends_with(path, ".md"), ok = out || cli_file_open(&file, path);
    if (ok && n > 1 && !compare_write(r, n, markdown, file.f)) {
        if (!out) (void)cli_file_close(&file, false);
        return 1;
    }
    if (ok && n == 1 && markdown)
        report_markdown(r, file.f);
    else if (ok && n == 1)
        report_html(r, NULL, file.f);
    if (ok) ok = out ? !ferror(stdout) : cli_file_close(&file, true);
    if (ok && !out) fprintf(stderr, "wrote %s\n", path);
    if (ok) return 0;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return 1;
}

typedef struct report_options {
    const char *out;
} report_options;

const cli_help cli_help_report = {
    .usage = "plimsoll report RUN ...",
    .about = "Writes a report of a run: planned and measured memory, every buffer of a step, loss "
             "curves,\nspeed, configuration. RUN is the folder of train --out; the run may still "
             "be training.\nSeveral runs are compared: curves in the same plots, results, keys "
             "that differ.",
    .examples = "  plimsoll report runs/first\n"
                "  plimsoll report runs/first --out MEMORY.md\n"
                "  plimsoll report runs/first runs/second --out compare.html\n",
    .options =
        (const cli_option[]){
            {"--out", "FILE", offsetof(report_options, out),
             "FILE.html, FILE.md, or - for Markdown on stdout",
             "RUN/report.html; for several runs compare.html"},
            {NULL},
        },
};

int cmd_report(int argc, char **argv)
{
    report_options o = {.out = NULL};
    char path[4200];
    cli_args a;
    cli_parse(argc, argv, &cli_help_report, &o, &a);
    const char *out = o.out;
    cli_want(&a, 1, MOST_RUNS, "report", "a run folder, or several to compare");
    if (a.n_positional > 1)
        snprintf(path, sizeof path, "compare.html");
    else
        snprintf(path, sizeof path, "%s/report.html", a.positional[0]);
    if (out && strcmp(out, "-") != 0 && !ends_with(out, ".md") && !ends_with(out, ".html")) {
        cli_error("--out %s: the name must end in .html or .md", out);
        return 2;
    }
    report *runs = calloc(MOST_RUNS, sizeof *runs);
    bool ok = runs != NULL;
    int n = 0;
    while (ok && n < a.n_positional) {
        ok = report_read(&runs[n], a.positional[n]);
        n++;
    }
    int code = ok ? write_report(runs, n, out ? out : path) : 1;
    for (int i = 0; i < n; i++) report_release(&runs[i]);
    free(runs);
    return code;
}
