/* main.c - finds the command by its name and calls it. commands/commands.def lists the commands. */
#include "ui.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_command commands[] = {
#define COMMAND(name, about) {#name, about, cmd_##name},
#include "cli/commands/commands.def"
#undef COMMAND
    {NULL, NULL, NULL},
};

static void usage(FILE *out)
{
    fprintf(out,
            "plimsoll %s: trains deep networks inside a memory budget\n\n"
            "  plimsoll plan cloud/full              memory that training needs, and its peak\n"
            "  plimsoll train cloud/demo --out run   train; the results go into the folder run\n"
            "  plimsoll new my-net                   start a network of your own\n\n"
            "Commands\n",
            pl_version());
    for (const cli_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->about);
    fprintf(
        out,
        "\nplimsoll COMMAND --help shows options and examples.\n"
        "Exit codes: 0 success, 1 failure, 2 bad usage or configuration, 3 does not fit the budget,\n"
        "4 device or driver, 5 bad data, 6 bad checkpoint or model file, 7 non-finite loss, 8 a rank\n"
        "died, 75 stopped by a signal after saving a checkpoint, 130 interrupted.\n");
}

/* Prints the folder of plimsoll.h: beside an installed program, or in the source tree. */
static int print_include_dir(void)
{
    static const char *const places[] = {"/../include", "/../../include"};
    char exe[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return 1;
    exe[n] = 0;
    char *folder = dirname(exe);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s/plimsoll.h", folder, places[i]);
        if (access(path, R_OK) != 0) continue;
        snprintf(path, sizeof path, "%s%s", folder, places[i]);
        printf("%s\n", realpath(path, real) ? real : path);
        return 0;
    }
    cli_error("cannot find plimsoll.h near this program (%s)", folder);
    return 1;
}

/* Length of the part in which two names differ, for "did you mean". */
static int name_distance(const char *a, const char *b)
{
    int n = 0;
    while (*a && *a == *b) a++, b++;
    size_t x = strlen(a), y = strlen(b);
    while (x && y && a[x - 1] == b[y - 1]) x--, y--;
    n = (int)(x > y ? x : y);
    return n;
}

static int unknown(const char *name)
{
    const cli_command *best = NULL;
    for (const cli_command *c = commands; c->name; c++)
        if (name_distance(c->name, name) <= 2 &&
            (!best || name_distance(c->name, name) < name_distance(best->name, name)))
            best = c;
    if (best)
        cli_error("unknown command \"%s\"; did you mean %s?", name, best->name);
    else
        cli_error("unknown command \"%s\" (plimsoll --help lists the commands)", name);
    return 2;
}

/* Returns 1 instead of 0 when the output could not be written, for example to a full disk. */
static int check_output(int code)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && code == 0) cli_error("cannot write to standard output: %s", strerror(errno));
    return lost && code == 0 ? 1 : code;
}

static int run_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        if (argc > 2 && !strcmp(name, "help")) {
            char *help[] = {argv[2], (char[]){"--help"}, NULL};
            for (const cli_command *c = commands; c->name; c++)
                if (strcmp(c->name, argv[2]) == 0) return c->run(2, help);
            return unknown(argv[2]);
        }
        usage(stdout);
        return 0;
    }
    if (!strcmp(name, "--version")) {
        printf("plimsoll %s\n", pl_version());
        return 0;
    }
    if (!strcmp(name, "--include-dir")) return print_include_dir();
    for (const cli_command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c->run(argc - 1, argv + 1);
    return unknown(name);
}

int main(int argc, char **argv)
{
    return check_output(run_command(argc, argv));
}
