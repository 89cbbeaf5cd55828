/* cli_phases.h - plans all phases of a run before any is trained; one row for each. */
#ifndef CLI_PHASES_H
#define CLI_PHASES_H

#include "cli/plan/plan_view.h"

typedef struct phase_row {
    char name[64];
    int number, times; /* times: repetitions with equal plans */
    int64_t steps, parameters, trainable;
    double step_ms;
    pl_run_memory memory;
    pl_run_split split;
    char tradeoffs[128]; /* text of plan_tradeoffs */
} phase_row;

/* Plans the phases from number `from` on, repeated ones once. The caller frees *rows. Prints an
 * error on failure. */
pl_status phases_plan(const cli_args *a, const char *memory, int from, phase_row **rows, int *n);
/* In a program that phases_plan executed: plans this phase only, writes the result and exits.
 * Otherwise returns. Call it after the command line is parsed. */
void phases_answer(const cli_args *a, const char *memory);
/* Returns the row with the largest plan; of equal plans the first. */
const phase_row *phases_largest(const phase_row *rows, int n);
/* Returns the row with the largest minimum, which is the minimum of the whole run. */
const phase_row *phases_neediest(const phase_row *rows, int n);
bool phases_fit(const phase_row *rows, int n);
void phases_print(const phase_row *rows, int n, FILE *out);
/* Returns the phase whose model becomes the model of the run when `last` is the last phase: the
 * last one up to it that is not a repetition, else `last`. */
int phases_model(const pl_run *run, int last);
/* Writes the JSON member "phases". */
void phases_json(const phase_row *rows, int n, pl_json *j);
/* Returns PL_ERR_FIT and prints why, unless all phases fit. */
pl_status phases_check(const phase_row *rows, int n);

#endif
