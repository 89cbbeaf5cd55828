/* options.c - parses the arguments of a command; an unknown word is answered with the nearest. */
#include "cli/help/help.h"
#include "ui.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const cli_option no_options[] = {{NULL}};

/* ---- did you mean ----------------------------------------------------------------------- */
const cli_command *cli_find_command(const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    int n = 0;
    for (const cli_command *c = cli_commands; c->name; c++) {
        if (strcmp(c->name, name) == 0) return c;
        if (n < MOST) names[n++] = c->name;
    }
    int best = pl_text_nearest(name, names, n);
    if (best >= 0)
        cli_error("unknown command \"%s\"; did you mean %s?", name, names[best]);
    else
        cli_error("unknown command \"%s\" (plimsoll --help lists the commands)", name);
    return NULL;
}

static bool is_override(const char *text)
{
    const char *p = text;
    while (isalnum((unsigned char)*p) || (*p && strchr("_.-*", *p))) p++;
    return p > text && *p == '=' && isalpha((unsigned char)text[0]);
}

/* Opens the first argument that names a configuration, else a built-in recipe, whose keys include
 * those of the engine. NULL: nothing can be opened. */
static pl_run *open_any(int argc, char **argv)
{
    pl_run *run = NULL;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && !is_override(argv[i]) &&
            pl_run_open(argv[i], NULL, 0, &run) == PL_OK)
            return run;
    return pl_run_open(pl_recipe_at(0)->name, NULL, 0, &run) == PL_OK ? run : NULL;
}

/* Writes the configuration key of an option: --batch is batch, --lr is optim.lr,
 * --train-steps is train.steps. */
static bool option_key(int argc, char **argv, const char *word, char *key, size_t cap)
{
    char dotted[128];
    snprintf(dotted, sizeof dotted, "%s", word);
    for (char *p = dotted; *p; p++)
        if (*p == '-') *p = strchr(word, '.') ? '_' : '.';
    pl_run *run = open_any(argc, argv);
    const pl_config *c = run ? pl_run_config(run) : NULL;
    bool found = true;
    if (c && pl_config_has(c, word))
        snprintf(key, cap, "%s", word);
    else if (c && pl_config_has(c, dotted))
        snprintf(key, cap, "%s", dotted);
    else
        found = c && pl_config_nearest(c, word, key, cap) && pl_config_has(c, key);
    pl_run_free(run);
    return found;
}

/* Answers an unknown option with the nearest option, or with the key=value that is meant. Exits 2.
 */
static void unknown_option(int argc, char **argv, int i, const cli_help *help)
{
    enum { MOST = 64 };
    const char *text = argv[i], *names[MOST], *word = text + strspn(text, "-");
    char name[128], key[128];
    int n = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (const cli_option *o = help->options ? help->options : no_options; o->name && n < MOST; o++)
        names[n++] = o->name + 2;
    int best = pl_text_nearest(name, names, n);
    const char *equals = strchr(text, '=');
    const char *value = equals                                  ? equals + 1
                        : i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1]
                                                                : "VALUE";
    if (best >= 0)
        cli_error("unknown option %s; did you mean --%s?", text, names[best]);
    else if (strstr(help->usage, "key=value") && option_key(argc, argv, name, key, sizeof key))
        cli_error("unknown option %s; settings of a run are written key=value: did you mean %s=%s?",
                  text, key, value);
    else
        cli_error("unknown option %s (--help lists the options)", text);
    exit(2);
}

/* ---- parsing ---------------------------------------------------------------------------- */
static const cli_option *find_option(const cli_option *options, const char *text, size_t n)
{
    for (const cli_option *o = options ? options : no_options; o->name; o++)
        if (strlen(o->name) == n && memcmp(o->name, text, n) == 0) return o;
    return NULL;
}

static void add(const char **list, int *n, const char *text)
{
    if (*n == CLI_MAX_ARGS) {
        cli_error("more than %d arguments", CLI_MAX_ARGS);
        exit(2);
    }
    list[(*n)++] = text;
}

/* Parses argv[i]; returns how many arguments it used. */
static int take_option(int argc, char **argv, int i, const cli_help *help, char *values)
{
    const char *text = argv[i], *equals = strchr(text, '=');
    const cli_option *o =
        find_option(help->options, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!o) unknown_option(argc, argv, i, help);
    if (!o->arg && equals) {
        cli_error("%s takes no value; write %s, or leave it out", o->name, o->name);
        exit(2);
    }
    if (!o->arg) {
        *(bool *)(values + o->at) = true;
        return 1;
    }
    const char *value = equals ? equals + 1 : i + 1 < argc ? argv[i + 1] : NULL;
    /* An empty value is mostly a variable of a script that is not set; a text may be empty. */
    if (!value || (!*value && strcmp(o->arg, "TEXT") != 0)) {
        cli_error("%s needs %s%s", o->name, o->arg, value ? ", and an empty text was given" : "");
        exit(2);
    }
    memcpy(values + o->at, &value, sizeof value);
    return equals ? 1 : 2;
}

void cli_parse(int argc, char **argv, const cli_help *help, void *values, cli_args *out)
{
    *out = (cli_args){.n_positional = 0};
    bool only_names = false;
    for (int i = 1; i < argc;) {
        const char *text = argv[i];
        if (!only_names && strcmp(text, "--") == 0) {
            only_names = true;
            i++;
        } else if (!only_names && (strcmp(text, "-h") == 0 || strcmp(text, "--help") == 0)) {
            help_command(help, stdout);
            exit(cli_check_output(0));
        } else if (!only_names && text[0] == '-' && text[1]) {
            i += take_option(argc, argv, i, help, values);
        } else if (is_override(text)) {
            add(out->overrides, &out->n_overrides, text);
            i++;
        } else {
            add(out->positional, &out->n_positional, text);
            i++;
        }
    }
}

void cli_override(cli_args *a, const char *key, const char *value, char *buf, size_t cap)
{
    if (!value) return;
    int n = snprintf(buf, cap, "%s=%s", key, value);
    if (n < 0 || (size_t)n >= cap || a->n_overrides >= CLI_MAX_ARGS) {
        cli_error("too long, or too many overrides: %s=%s", key, value);
        exit(2);
    }
    a->overrides[a->n_overrides++] = buf;
}

void cli_want(const cli_args *a, int min, int max, const char *command, const char *what)
{
    if (a->n_positional >= min && a->n_positional <= max) return;
    if (a->n_positional > max)
        cli_error("%s needs %s, and \"%s\" is one argument too many (plimsoll %s --help shows "
                  "examples)",
                  command, what, a->positional[max], command);
    else
        cli_error("%s needs %s (plimsoll %s --help shows examples)", command, what, command);
    exit(2);
}

int64_t cli_number(const char *option, const char *things, const char *text, int64_t fallback,
                   int64_t most)
{
    if (!text) return fallback;
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (n > 0 && n <= most && *end == 0 && errno == 0) return n;
    char limit[48] = "";
    if (most < INT64_MAX) snprintf(limit, sizeof limit, ", at most %s", cli_count(most));
    cli_error("%s takes a number of %s from 1 on%s, not \"%s\"", option, things, limit, text);
    return -1;
}
