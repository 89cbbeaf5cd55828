/* process_levels.h - which slots live below the device, for all programs of a process.
 *
 * Slots are shared by programs, so their homes are decided for all of them at once. A candidate is
 * a prefix of the movable slots, cheapest traffic first; the candidate with the shortest estimated
 * step is planned (process_budget.h).
 */
#ifndef PL_RT_PROCESS_LEVELS_H
#define PL_RT_PROCESS_LEVELS_H

#include "plan/levels/level_plan.h"
#include "rt/process_budget.h"

/* Programs point into it: it must outlive them. Zero it, fill in budget, disk_dir, the channels'
 * times of opts, and weight. */
typedef struct pl_process_levels {
    uint64_t budget[PL_N_LEVELS]; /* bytes that may be used at each level */
    const char *disk_dir;         /* NULL: no disk */
    /* Programs that run on the host and share slots with the others: all slots that they use live
     * in host memory. */
    pl_program *const *host_programs;
    int n_host;
    /* Host level: bytes that the user allows the process, and its memory besides the block. */
    uint64_t host_asked, host_overhead;
    pl_level_opts opts;
    /* Returns how often a training step runs the program; 0: never (evaluation). ctx:
     * pl_process_budget.ctx */
    double (*weight)(void *ctx, const pl_program *p);
    /* Returns pl_process_budget.later_bytes with the homes as they are: a slot below the device may
     * need memory to pass through. NULL: homes do not change it. */
    uint64_t (*later)(void *ctx);
    pl_arena mem; /* homes, must */
    pl_homes homes;
    bool *must;           /* per slot: programs on the host use it */
    uint64_t freed_bytes; /* of the state block, by slots that live elsewhere */
} pl_process_levels;

/* Plans like pl_process_plan, with slots and values below the device where that is needed or
 * faster. b->state_bytes is of the whole store, and is lowered to what stays on the device. */
pl_status pl_process_plan_levels(pl_process_budget *b, pl_process_levels *l) PL_MUST_USE;
void pl_process_levels_release(pl_process_levels *l);

/* ---- one program ---- */
/* Sets what the program may use below the device (borrowed; NULL: nothing), and plans it without a
 * limit of its arena. */
pl_status pl_program_set_levels(pl_program *p, const pl_level_opts *levels,
                                const char *disk_dir) PL_MUST_USE;
const pl_store *pl_program_store(const pl_program *p);
bool pl_program_slot_may_move(const pl_program *p, int slot);
/* Whether the program reads or writes the slot. */
bool pl_program_uses_slot(const pl_program *p, int slot);
/* Returns how many kernels read the slot; *assigned: the program writes it. */
int pl_program_slot_uses(const pl_program *p, int slot, bool *assigned);
/* Lowers slack_ns[slot], for each slot that the program assigns, to the time of the kernels that
 * run after the new value could have been computed; kernels that assign slots do not count. */
pl_status pl_program_slot_slack(const pl_program *p, double *slack_ns) PL_MUST_USE;

#endif
