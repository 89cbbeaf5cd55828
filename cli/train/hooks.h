/* hooks.h - the keys on_end and on_error: a command that reports how a run ended.
 *
 * The value is a program and its arguments, split at blanks; '...' and "..." keep blanks, and a
 * backslash keeps the next character. No shell reads the value, so a name of a folder cannot become
 * a command; to use a shell, write it: sh -c '...'. The command runs once, on rank 0, after the
 * files of the run are closed, with these variables added to the environment:
 *
 *     PL_RUN      absolute path of the run folder; empty without --out
 *     PL_STATUS   exit code of plimsoll train (docs/COMMANDS.md)
 *     PL_STEP     steps done
 *     PL_MESSAGE  one line: what ended the run
 *
 * on_end: the run is complete (0) or was stopped by a signal (75, 129, 130, 143). on_error: any
 * other exit code. Standard input is empty; standard output goes to standard error, because train
 * --json owns standard output. A command that cannot start, fails or exceeds hook_timeout is a
 * warning: the exit code of the run stays.
 */
#ifndef CLI_HOOKS_H
#define CLI_HOOKS_H

#include "plimsoll_ranks.h"
#include "plimsoll_train.h"

typedef struct hooks {
    char *on_end, *on_error; /* owned; NULL: none */
    double timeout;          /* seconds */
    const char *path;        /* the run folder; NULL: none */
    volatile int64_t step;   /* PL_STEP; the training loop writes it */
    bool ran;
} hooks;

/* Reads the keys; a value that is not a command line is an error. Only rank 0 keeps them, and has
 * on_error run when another rank ends the run. h must live until the world is closed. */
pl_status hooks_open(hooks *h, const pl_run *run, pl_world *world) PL_MUST_USE;
void hooks_close(hooks *h);
/* Runs the command for this exit code, if there is one and none ran before. */
void hooks_run(hooks *h, int code, const char *message);

#endif
