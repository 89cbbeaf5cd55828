/* phases.h - the phases of a run (key `phases`): the list of phases, the current phase, and the
 * state that one phase hands to the next.
 *
 * A run enters one phase at most, before it is built. A sequence of phases is a sequence of runs.
 */
#ifndef PL_TRAIN_PHASES_H
#define PL_TRAIN_PHASES_H

#include "plimsoll_train.h"

typedef struct pl_run_phases {
    pl_config **keys; /* of every item of the list */
    int n_keys;
    pl_phase *list; /* with repetitions, in their order */
    int n;
    int now;               /* the phase that was entered; -1: none */
    int64_t steps_before;  /* of all earlier phases */
    const char *take_from; /* folder that the phase before left; NULL: none */
    int taken, taken_of;   /* tensors of the model that the folder had, of all */
} pl_run_phases;

/* Reads key `phases` and checks all of it. */
pl_status pl__phases_read(pl_run *r) PL_MUST_USE;
void pl__phases_free(pl_run *r);
/* After an override of a key: removes that key from the phases that set it, so that the override
 * holds in every phase. */
pl_status pl__phases_yield(pl_config *c) PL_MUST_USE;
/* Reads the result of the previous phase. Requires the session. */
pl_status pl__phase_take(pl_run *r) PL_MUST_USE;
/* Checks the phase's rules against its data, which must be open. */
pl_status pl__phase_check_data(pl_run *r) PL_MUST_USE;
/* Whether the evaluation is beyond the bound of the phase (until.reach). */
bool pl__phase_reached(const pl_run *r, const pl_eval_info *info);
/* Whether the first n items of two configurations' lists of phases are equal. */
bool pl__phases_same(const pl_config *a, const pl_config *b, int n);
/* Returns the item of the list that the run's phase belongs to. */
int pl__phase_item(const pl_run *r);

#endif
