/* help.c - help on the terminal, and the command `plimsoll help`. */
#include "help.h"

#include <stdlib.h>
#include <string.h>

const help_code help_codes[] = {
    {0, "success"},
    {1, "failure"},
    {2, "bad usage or configuration"},
    {3, "does not fit the budget"},
    {4, "device or driver"},
    {5, "bad data"},
    {6, "bad checkpoint or model file"},
    {7, "non-finite loss"},
    {8, "a rank died"},
    {75, "stopped by a signal after saving a checkpoint"},
    {130, "interrupted"},
    {0, NULL},
};

void help_command(const cli_help *help, FILE *out)
{
    fprintf(out, "%s\n\n%s\n", help->usage, help->about);
    fprintf(out, "\nExamples\n%s", help->examples);
    fprintf(out, "\nOptions\n");
    for (const cli_option *o = help->options; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        fprintf(out, "  %-24s %s", left, o->help);
        if (o->fallback) fprintf(out, " (default: %s)", o->fallback);
        fputc('\n', out);
    }
    fprintf(out, "  %-24s %s\n", "-h, --help", "print this text");
}

static void print_codes(FILE *out)
{
    int column = fprintf(out, "\nExit codes:") - 1;
    for (const help_code *c = help_codes; c->means; c++) {
        char item[96];
        int n = snprintf(item, sizeof item, " %d %s%s", c->code, c->means, c[1].means ? "," : ".");
        if (column + n > 96) {
            fputc('\n', out);
            column = 0;
        }
        fputs(column ? item : item + 1, out);
        column += n;
    }
    fputc('\n', out);
}

void help_all(FILE *out)
{
    fprintf(out, "plimsoll %s: trains deep networks inside a memory budget\n\nCommands\n",
            pl_version());
    for (const cli_command *c = cli_commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->about);
    fprintf(out, "\nplimsoll COMMAND --help shows options and examples. Other forms of this help:\n"
                 "  plimsoll help --man [COMMAND]            the man page, for man -l -\n"
                 "  plimsoll help --completion SHELL         completions for bash, zsh or fish\n"
                 "  plimsoll --version, plimsoll --include-dir\n");
    print_codes(out);
}

void help_beginner(FILE *out)
{
    static const struct {
        const char *example, *about;
    } rows[] = {
        {"plimsoll recipes", "which networks and presets there are"},
        {"plimsoll plan cloud/demo --memory 1GB", "how much memory training needs"},
        {"plimsoll train cloud/demo --out run", "train; the results go into the folder run"},
        {"plimsoll eval run", "score the trained model"},
        {"plimsoll report run", "write run/report.html: memory, loss, speed"},
    };
    fprintf(out, "plimsoll %s: trains deep networks inside a memory budget\n\n", pl_version());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(out, "  %s%-38s%s %s\n", cli_bold(out), rows[i].example, cli_plain(out),
                rows[i].about);
    fprintf(out,
            "\nplimsoll predict applies a model to new data; plimsoll doctor checks this machine;\n"
            "plimsoll --help lists all commands; "
            "plimsoll COMMAND --help shows the options of one.\n");
}

static int bad_form(const char *text)
{
    cli_error("help takes COMMAND, --man [COMMAND], or --completion bash|zsh|fish, not \"%s\"",
              text);
    return 2;
}

int help_run(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : NULL, *arg = argc > 2 ? argv[2] : NULL;
    if (!what) {
        help_all(stdout);
        return 0;
    }
    if (strcmp(what, "--man") == 0) {
        const cli_command *c = arg ? cli_find_command(arg) : NULL;
        if (arg && !c) return 2;
        man_page(c, stdout);
        return 0;
    }
    if (strcmp(what, "--completion") == 0)
        return arg && complete_shell(arg, stdout) ? 0 : bad_form(arg ? arg : what);
    if (strcmp(what, "--commands") == 0) {
        for (const cli_command *c = cli_commands; c->name; c++) printf("%s\n", c->name);
        return 0;
    }
    if (strcmp(what, "--keys") == 0 && arg)
        return complete_keys(arg, argc > 3 ? argv[3] : "", stdout);
    if (what[0] == '-') return bad_form(what);
    const cli_command *c = cli_find_command(what);
    if (c) help_command(c->help, stdout);
    return c ? 0 : 2;
}
