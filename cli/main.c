/* main.c - the command line: one table of commands. */
#include "ui.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_command commands[] = {
    {"plan", "how much memory training takes, before it starts", cmd_plan},
    {"train", "train inside the planned memory", cmd_train},
    {"eval", "score a trained model, and sample from it", cmd_eval},
    {"bench", "how long a step takes here, beside what was predicted", cmd_bench},
    {"report", "what a run did, as a page or a document", cmd_report},
    {"replay", "compare with a PyTorch program, number by number", cmd_replay},
    {"generate", "write a recipe's samples as a data set on disk", cmd_generate},
    {"cache", "run a recipe's frozen encoder once over a data set", cmd_cache},
    {"inspect", "look into a configuration, a program or a model file", cmd_inspect},
    {"devices", "what this machine can train on", cmd_devices},
    {"recipes", "the networks and presets that are built in", cmd_recipes},
    {"new", "start a network of your own", cmd_new},
    {NULL, NULL, NULL},
};

static void usage(FILE *out)
{
    fprintf(out,
            "plimsoll %s: trains deep networks inside a memory budget\n\n"
            "  plimsoll plan cloud/full              what it takes, and where the peak is\n"
            "  plimsoll train cloud/demo --out run   watch it learn\n"
            "  plimsoll new my-net                   a network of your own\n\n"
            "Commands\n",
            pl_version());
    for (const cli_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->about);
    fprintf(
        out,
        "\nplimsoll COMMAND --help shows options and examples.\n"
        "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 does not fit, 4 device,\n"
        "5 bad data, 6 bad model file, 7 numeric stop, 8 a rank is gone, 75 stopped with a checkpoint,\n"
        "130 interrupted.\n");
}

/* Where plimsoll.h lies: beside an installed binary, or in the source tree of a built one. */
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
    cli_error("plimsoll.h is not beside this binary (%s)", folder);
    return 1;
}

/* Number of letters that differ, roughly: for "did you mean". */
static int unlike(const char *a, const char *b)
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
        if (unlike(c->name, name) <= 2 &&
            (!best || unlike(c->name, name) < unlike(best->name, name)))
            best = c;
    if (best)
        cli_error("no command \"%s\"; did you mean %s?", name, best->name);
    else
        cli_error("no command \"%s\" (plimsoll --help lists them)", name);
    return 2;
}

/* What was printed and could not be written, on a disk that is full, is no success. */
static int written(int code)
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
    return written(run_command(argc, argv));
}
