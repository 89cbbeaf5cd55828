/* ui.h - what the commands share: options, messages, numbers as people read them.
 *
 * Results go to stdout, messages and progress to stderr. Colour and the live progress line appear
 * on terminals only, and never with NO_COLOR (colour) or TERM=dumb.
 */
#ifndef CLI_UI_H
#define CLI_UI_H

#include "plimsoll_json.h"
#include "plimsoll_train.h"

#include <stdio.h>

/* One option of a command. dest is bool * for flags (arg NULL), const char ** otherwise. */
typedef struct cli_option {
    const char *name; /* "--json" */
    const char *arg;  /* "FILE", NULL for a flag */
    void *dest;
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *about; /* one line */
    int (*run)(int argc, char **argv);
} cli_command;

#define CLI_MAX_ARGS 64
/* A parsed command line. Arguments with '=' that begin like a key are overrides. */
typedef struct cli_args {
    const char *positional[CLI_MAX_ARGS], *overrides[CLI_MAX_ARGS];
    int n_positional, n_overrides;
    char **argv;       /* of the whole program; set by commands that start it again */
    const char *phase; /* name or number of the phase that plan_open enters; NULL: none */
} cli_args;

/* Parses argv[1..]; --help prints usage and examples and exits 0; a bad option says so and exits 2.
 * options ends with a NULL name. */
void cli_parse(int argc, char **argv, const cli_option *options, const char *usage,
               const char *examples, cli_args *out);
/* Adds the override key=value, in buf; value NULL: nothing. Exits 2 when there are too many. */
void cli_override(cli_args *a, const char *key, const char *value, char *buf, size_t cap);
/* The number of things that an option's text gives, from 1 to most; fallback: it is NULL; -1: it is
 * no such number, and that was said. */
int64_t cli_number(const char *option, const char *things, const char *text, int64_t fallback,
                   int64_t most);
/* Exits 2 with a hint unless there are between min and max positional arguments. */
void cli_want(const cli_args *a, int min, int max, const char *command, const char *what);

/* "plimsoll: <message>" on stderr; returns the exit code of the status. */
int cli_fail(pl_status rc);
void cli_error(const char *fmt, ...) PL_PRINTF(1, 2);

bool cli_color(FILE *f);
bool cli_terminal(FILE *f);
int cli_width(void);
const char *cli_bold(FILE *f), *cli_dim(FILE *f), *cli_red(FILE *f), *cli_plain(FILE *f);

/* "1.50 GiB", "536,846", "01:02:03"; each call returns one of a few static buffers. */
const char *cli_bytes(uint64_t bytes);
const char *cli_count(int64_t n);
const char *cli_ms(double ms); /* "3.20 ms", "120 ms", "4.5 s" */
const char *cli_clock(double seconds);
double cli_seconds(void); /* of a clock that only goes forward */
/* A bar of eighths, `cells` wide, for a share in [0,1]. */
const char *cli_bar(double share, int cells);

/* busy.c: on a terminal, what takes longer than a second and how long it has been taking; again:
 * what it is now. Until cli_idle, which comes before anything is printed. */
void cli_busy(const char *fmt, ...) PL_PRINTF(1, 2);
void cli_idle(void);

/* Samples that have been made, as a bar on a terminal or a line a quarter; begins with percent =
 * -1. */
typedef struct cli_shown {
    bool bar, quiet;
    int percent; /* last one that was printed */
} cli_shown;
/* A pl_progress_fn; ctx is their cli_shown. */
void cli_show_samples(void *ctx, pl_subset subset, int64_t done, int64_t total);

/* cmd_plan.c: opening what the arguments name (memory: --memory, or NULL), the resolved
 * configuration (frees the run, returns the exit code). plan_view.h has what shows a plan. */
pl_status plan_open(const cli_args *a, const char *memory, pl_run **out);
int plan_print_config(pl_run *run);

/* times.c: where a plan's predicted time is known from, and whether another precision is expected
 * to be faster. */
void times_json(const pl_run *run, const pl_plan_info *p, pl_json *j);
void times_print(const pl_run *run, const pl_plan_info *p, FILE *out);
/* Whether the name is a card that can only be planned for; *info (may be NULL) tells of it. */
bool times_is_profile(const char *device, pl_device_info *info);
/* plan --measure and devices --calibrate; they return the exit code. */
int times_measure(const cli_args *a, const char *memory);
int times_calibrate(void);

/* bad_files.c: names the images of a run that could not be read, on stderr; nothing when there are
 * none. */
void bad_files_print(const pl_run *run);

/* cmd_pack.c: plan --csv; returns the exit code. */
int plan_csv(const char *in, const char *out, const char *capacity_text, bool json);
/* snapshot.c: a plan for PyTorch's memory viewer; false when it cannot be written. */
bool plan_snapshot(const pl_run *run, const char *path);
/* sweep.c: one row for each budget of a comma-separated list; returns the exit code. */
int plan_sweep(const cli_args *a, const char *list, bool json);
/* largest.c: the largest batch for a budget; returns the exit code. */
int plan_largest(const cli_args *a, const char *memory, bool json);
/* timeline.c: the picture of `plan --timeline`; returns the exit code. */
int timeline_write(const pl_run *run, const char *name, const char *path);

int cmd_plan(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_recipes(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_new(int argc, char **argv);

#endif
