/* man.c - man pages in the man(7) macros: plimsoll(1), and plimsoll-COMMAND(1) for each command.
 *
 * `plimsoll help --man COMMAND` prints one. The page has no date, so that builds are reproducible.
 */
#include "help.h"

#include <ctype.h>
#include <string.h>

/* Writes text that roff must not interpret. A line that begins with a dot or a quote would be a
 * request; a plain hyphen would become a typographic one, which cannot be pasted into a shell. */
static void put_text(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || text[i - 1] == '\n';
        if (first && (text[i] == '.' || text[i] == '\'')) fputs("\\&", out);
        if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '`')
            fputs("\\(ga", out);
        else if (text[i] == '\'')
            fputs("\\(aq", out);
        else if (text[i] == '^')
            fputs("\\(ha", out);
        else if (text[i] == '~')
            fputs("\\(ti", out);
        else
            fputc(text[i], out);
    }
}

static void put(FILE *out, const char *text)
{
    put_text(out, text, strlen(text));
}

/* Each line is a line of the page, in a fixed font, without the first `skip` columns. */
static void put_lines(FILE *out, const char *text, int skip)
{
    fputs(".nf\n", out);
    while (*text) {
        size_t n = strcspn(text, "\n"), from = 0;
        while (from < n && from < (size_t)skip && text[from] == ' ') from++;
        put_text(out, text + from, n - from);
        fputc('\n', out);
        text += n + (text[n] == '\n');
    }
    fputs(".fi\n", out);
}

static void put_head(FILE *out, const char *name, const char *about)
{
    char title[64];
    snprintf(title, sizeof title, "%s", name);
    for (char *p = title; *p; p++) *p = (char)toupper((unsigned char)*p);
    fprintf(out, ".TH \"%s\" 1 \"\" \"plimsoll %s\" \"User Commands\"\n.SH NAME\n", title,
            pl_version());
    put(out, name);
    fputs(" \\- ", out);
    put(out, about);
    fputs("\n.SH SYNOPSIS\n", out);
}

static void put_codes(FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    for (const help_code *c = help_codes; c->means; c++)
        fprintf(out, ".TP\n.B %d\n%s\n", c->code, c->means);
}

static void put_options(const cli_option *options, FILE *out)
{
    fputs(".SH OPTIONS\n", out);
    for (const cli_option *o = options; o && o->name; o++) {
        fputs(".TP\n\\fB", out);
        put(out, o->name);
        fputs("\\fR", out);
        if (o->arg) {
            fputs(" \\fI", out);
            put(out, o->arg);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        put(out, o->help);
        if (o->fallback) {
            fputs(" (default: ", out);
            put(out, o->fallback);
            fputc(')', out);
        }
        fputc('\n', out);
    }
    fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint the help of the command\n", out);
}

static void command_page(const cli_command *c, FILE *out)
{
    char name[64];
    snprintf(name, sizeof name, "plimsoll-%s", c->name);
    put_head(out, name, c->about);
    put_lines(out, c->help->usage, 0);
    fputs(".SH DESCRIPTION\n", out);
    put(out, c->help->about);
    fputc('\n', out);
    put_options(c->help->options, out);
    fputs(".SH EXAMPLES\n", out);
    put_lines(out, c->help->examples, 2);
    put_codes(out);
    fputs(".SH SEE ALSO\n.BR plimsoll (1)\n", out);
}

static void program_page(FILE *out)
{
    put_head(out, "plimsoll", "trains deep networks inside a memory budget");
    put_lines(out, "plimsoll COMMAND [ARGUMENT ...] [--OPTION ...] [key=value ...]", 0);
    fputs(".SH DESCRIPTION\n", out);
    put(out,
        "Plimsoll plans the memory of a training run before the run starts, byte by byte, and\n"
        "trains inside the plan. Settings of a run are arguments of the form key=value.\n");
    fputs(".SH COMMANDS\n", out);
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, ".TP\n.BR plimsoll\\-%s (1)\n", c->name);
        put(out, c->about);
        fputc('\n', out);
    }
    put_codes(out);
    fputs(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nprint without colour\n.SH SEE ALSO\n", out);
    for (const cli_command *c = cli_commands; c->name; c++)
        fprintf(out, ".BR plimsoll\\-%s (1)%s\n", c->name, c[1].name ? "," : "");
}

void man_page(const cli_command *c, FILE *out)
{
    if (c)
        command_page(c, out);
    else
        program_page(out);
}
