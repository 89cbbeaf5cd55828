/* ui.h - shared by all commands: options, messages, numbers as text.
 *
 * Results go to stdout, messages and progress to stderr. Colour and the live progress line appear
 * on terminals only, and never with NO_COLOR (colour) or TERM=dumb.
 */
#ifndef CLI_UI_H
#define CLI_UI_H

#include "plimsoll_json.h"
#include "plimsoll_train.h"

#include <stdio.h>

/* One option of a command. Its value is a member of the struct that cli_parse fills: a bool for a
 * flag (arg NULL), a const char * otherwise. */
typedef struct cli_option {
    const char *name; /* "--json" */
    const char *arg;  /* "FILE", NULL for a flag; help/complete.c knows FILE, DIR, RUN, DEVICE */
    size_t at;        /* offset of the member */
    const char *help; /* one line: what the option sets, its unit */
    const char *fallback; /* default as text; NULL: none, or said by help */
} cli_option;

/* All the help of a command. --help, the man page, the completions and the test of
 * docs/COMMANDS.md are made from it. */
typedef struct cli_help {
    const char *usage;         /* lines: "plimsoll plan CONFIG [key=value ...]" */
    const char *about;         /* sentences, in lines of at most 100 columns */
    const char *examples;      /* lines, indented by two columns */
    const cli_option *options; /* ends with a NULL name; NULL: none */
} cli_help;

/* A row of commands.def. */
typedef struct cli_command {
    const char *name, *about; /* about: one line */
    int (*run)(int argc, char **argv);
    const cli_help *help;
} cli_command;
extern const cli_command cli_commands[]; /* main.c; ends with a NULL name */

#define CLI_MAX_ARGS 64
/* A parsed command line. Arguments with '=' that begin like a key are overrides. */
typedef struct cli_args {
    const char *positional[CLI_MAX_ARGS], *overrides[CLI_MAX_ARGS];
    int n_positional, n_overrides;
    char **argv;       /* of main; set by commands that execute the program a second time */
    const char *phase; /* name or number of the phase that cli_open_run enters; NULL: none */
} cli_args;

/* options.c: parses argv[1..] into the members of `values` that the options name; `values` may be
 * NULL without options. --help prints the help and exits 0; a bad option says so and exits 2. */
void cli_parse(int argc, char **argv, const cli_help *help, void *values, cli_args *out);
/* Finds a command by its name; NULL: an error with the nearest name was printed. */
const cli_command *cli_find_command(const char *name);
/* Adds the override key=value, whose text is kept in buf. Does nothing when value is NULL. Exits 2
 * when there are too many. */
void cli_override(cli_args *a, const char *key, const char *value, char *buf, size_t cap);
/* Returns the number in the text of an option, from 1 to most, or `fallback` when text is NULL.
 * Anything else prints an error, which names `things`, and returns -1. */
int64_t cli_number(const char *option, const char *things, const char *text, int64_t fallback,
                   int64_t most);
/* Exits 2 with a hint unless there are min to max positional arguments. */
void cli_want(const cli_args *a, int min, int max, const char *command, const char *what);

/* Returns zeroed memory, which the caller frees; exits with an error when there is none. */
void *cli_new(size_t bytes);
/* Returns a formatted text, which the caller frees; NULL when memory has run out. */
char *cli_text(const char *fmt, ...) PL_PRINTF(1, 2);
/* Opens a plain file to read; NULL: errno says why. A pipe or a device in its place is refused,
 * without waiting for a writer. */
FILE *cli_open_plain(const char *path);

/* output_file.c: a file that appears under its name complete, or not at all. */
typedef struct cli_file {
    FILE *f;
    const char *path;
    char *aside; /* name while it is written; NULL: written directly */
} cli_file;
/* false: errno says why, and there is nothing to close. */
bool cli_file_open(cli_file *f, const char *path);
/* Gives the file its name if ok and every byte was written, else removes it. Returns whether the
 * file is there; false: errno says why. */
bool cli_file_close(cli_file *f, bool ok);
/* Makes DIR/.NAME.PID.tmp of DIR/NAME; the caller frees it. */
char *cli_name_aside(const char *path);
/* Returns a list of the devices of this machine, or of the GPU profiles, and sets *n to their
 * number. The caller frees the list; NULL with *n = 0 when memory has run out. */
pl_device_info *cli_devices(bool profiles, int *n);

/* "plimsoll: <message>" on stderr; returns the exit code of the status. */
int cli_fail(pl_status rc);
/* Prints a text that may hold the name of a file: control characters, which a terminal would obey,
 * are printed as \xNN; line ends and tabs stay. */
void cli_put(FILE *f, const char *text);
/* printf for a line with text of a file or a name of one: printed as by cli_put. */
void cli_say(const char *fmt, ...) PL_PRINTF(1, 2);
void cli_error(const char *fmt, ...) PL_PRINTF(1, 2);
/* Returns 1 instead of 0, with a message, when standard output could not be written. */
int cli_check_output(int code);
const char *cli_last_error(void); /* the message of the last cli_error, at most 1 KiB */

bool cli_color(FILE *f);
bool cli_terminal(FILE *f);
int cli_width(void);
const char *cli_bold(FILE *f), *cli_dim(FILE *f), *cli_red(FILE *f), *cli_plain(FILE *f);

/* "1.50 GiB", "536,846", "01:02:03". The text is in one of 16 static buffers, which are reused
 * cyclically. */
const char *cli_bytes(uint64_t bytes);
const char *cli_count(int64_t n);
/* "46.5MB", "44.4MiB": rounded up to three digits, as --memory reads it. */
const char *cli_size(uint64_t bytes);
const char *cli_ms(double ms); /* "3.20 ms", "120 ms", "4.5 s", "1 h 18 min" */
/* "4.5 s", "2 min 5 s", "18 min", "1 h 18 min", "3 d 4 h" */
const char *cli_duration(double seconds);
const char *cli_clock(double seconds);
double cli_seconds(void); /* monotonic clock */
/* As getline(3), but a line of more than 64 MiB ends the reading: a log that was damaged or made by
 * somebody else can have terabytes of zeros in a few blocks of disk. */
ssize_t cli_line(char **line, size_t *cap, FILE *f);
/* A bar of at most `cells` characters for a share in [0,1]. */
const char *cli_bar(double share, int cells);

/* busy.c: shows a text and the elapsed seconds on a terminal, from the second second until
 * cli_idle. A second call replaces the text. Call cli_idle before printing anything else. */
void cli_busy(const char *fmt, ...) PL_PRINTF(1, 2);
void cli_idle(void);

/* Progress through samples: a bar on a terminal, otherwise a line at each 25 %. Starts with percent
 * = -1. */
typedef struct cli_progress {
    bool bar, quiet;
    int percent;      /* last one that was printed */
    const char *what; /* name of what is done; NULL: that of the subset */
} cli_progress;
/* A pl_progress_fn; ctx is the cli_progress. */
void cli_show_progress(void *ctx, pl_subset subset, int64_t done, int64_t total);

/* open_run.c: opens the run that the arguments name; memory is --memory or NULL. */
pl_status cli_open_run(const cli_args *a, const char *memory, pl_run **out);
/* Prints the warning of a started run, if it has one. */
void cli_start_warning(const pl_run *run);
/* Writes the member "weights": what was read from weight files, a list; nothing if none were. */
void cli_loaded_json(const pl_run *run, pl_json *j);
/* Prints the resolved configuration, frees the run, returns the exit code. */
int cli_print_config(pl_run *run);

/* times.c: says how much of the predicted time is measured, calibrated or estimated, and whether
 * another precision is predicted to be faster. */
void times_json(const pl_run *run, const pl_plan_info *p, pl_json *j);
void times_print(const pl_run *run, const pl_plan_info *p, FILE *out);
/* Returns whether the name is a GPU profile, which can be planned for but not used; *info (may be
 * NULL) describes it. */
bool times_is_profile(const char *device, pl_device_info *info);
/* plan --measure and devices --calibrate; both return the exit code. */
int times_measure(const cli_args *a, const char *memory);
/* disk: a folder whose disk is measured too; NULL. */
int times_calibrate(const char *disk);

/* bad_files.c: lists on stderr the images of a run that could not be read, if any. */
void skipped_files_print(const pl_run *run);
void bad_files_print(const pl_run *run);

/* standalone.c: plan --csv and plan --trace; both return the exit code. */
int standalone_pack(const char *in, const char *out, const char *capacity_text, bool json);
int standalone_recompute(const char *path, const char *budget, const char *seconds, const char *out,
                         bool json);
/* snapshot.c: writes a plan for PyTorch's memory viewer; false when it cannot be written. */
bool plan_snapshot(const pl_run *run, const char *path);
/* sweep.c: plan --sweep, one row for each budget of a comma-separated list; returns the exit code.
 */
int plan_sweep(const cli_args *a, const char *list, bool json);
/* largest.c: plan --largest-batch; returns the exit code. */
int plan_largest(const cli_args *a, const char *memory, bool json);
/* timeline.c: plan --timeline; returns the exit code. */
int timeline_write(const pl_run *run, const char *name, const char *path);

/* Every command: int cmd_plan(int argc, char **argv), its help cli_help_plan, and so on. */
#define COMMAND(name, about)                                                                       \
 int cmd_##name(int argc, char **argv);                                                            \
 extern const cli_help cli_help_##name;
#include "cli/commands/commands.def"
#undef COMMAND

#endif
