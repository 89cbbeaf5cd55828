/* phases.h - the phases of a run as `plan` and `train` see them: a row for each, before any is
 * trained. */
#ifndef CLI_PHASES_H
#define CLI_PHASES_H

#include "cli/plan/plan_view.h"

typedef struct phase_row {
    char name[64];
    int number, times; /* times: repetitions that are planned alike */
    int64_t steps, parameters, trainable;
    double step_ms;
    pl_run_memory memory;
    pl_run_split split;
    char trades[128]; /* plan_tradeoffs */
} phase_row;

/* Plans the phases from number `from` on, repeated ones once. The caller frees *rows. A failure is
 * told on stderr. */
pl_status phases_plan(const cli_args *a, const char *memory, int from, phase_row **rows, int *n);
/* In a program that was started to plan one phase: plans it, answers and ends. Call it once the
 * command line is read. */
void phases_answer(const cli_args *a, const char *memory);
/* The row that takes most, and whether all fit. The smallest budget for all is that of the row with
 * the largest minimum. */
const phase_row *phases_largest(const phase_row *rows, int n);
const phase_row *phases_neediest(const phase_row *rows, int n);
bool phases_fit(const phase_row *rows, int n);
void phases_print(const phase_row *rows, int n, FILE *out);
/* The phase whose model is the run's when `last` is the last: the one before it, or it, that is not
 * a repetition, else it. */
int phases_model(const pl_run *run, int last);
/* Member "phases". */
void phases_json(const phase_row *rows, int n, pl_json *j);
/* PL_ERR_FIT, told on stderr, unless all fit. */
pl_status phases_check(const phase_row *rows, int n);

#endif
