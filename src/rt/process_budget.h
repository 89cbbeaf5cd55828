/* process_budget.h - from a budget of the whole process to plans of its programs.
 *
 *     budget = state + arena + overhead
 *     overhead = held + plans + stage + later + margin
 *
 *   state    weights, moments and counters, to the byte
 *   arena    shared by all programs, as large as the largest of their plans
 *   held     host: counted, a function of the programs (pl_program_held) and of the process before
 *            them; device: the device memory in use at this moment
 *   plans    host: graphs of the plans that recompute, counted with each plan; device: 0
 *   stage    device memory that inputs pass through; 0 on the CPU
 *   later    what starting will take besides these: data readers, pictures, files
 *   margin   for stacks, allocator slack and pages that first steps touch
 *
 * So a budget leaves room = budget - state - held - stage - later - margin to arena and plans. On
 * the host nothing of this is measured while plans are made: room is a number that is fixed before
 * the first search, and the same configuration has the same room in every process. plan/budget.h
 * plans one program within a size; this file plans all of them.
 */
#ifndef PL_RT_PROCESS_BUDGET_H
#define PL_RT_PROCESS_BUDGET_H

#include "ir/graph.h"
#include "plan/budget.h"

/* ---- one program, before a session has it ----------------------------------------------- */
/* Calls pl_budget_set for the program: buffers and labels of its former plan are invalid
 * afterwards. */
pl_status pl_program_set_budget(pl_program *p, uint64_t arena_budget) PL_MUST_USE;
/* Calls pl_budget_minimum for the program; its pl_plan_info then reports the minimum. */
pl_status pl_program_minimum(pl_program *p, uint64_t enough, uint64_t *arena_bytes) PL_MUST_USE;
/* Says that the memory of the process is limited: the device then takes nothing for speed alone. */
void pl_program_limit_memory(pl_program *p);
/* Returns the program's budget, for the rest of plan/budget.h. Borrowed; do not call pl_budget_set
 * on it, use pl_program_set_budget. */
pl_budget *pl_program_budget(const pl_program *p);

/* Host memory of a program with its keep-all plan. */
typedef struct pl_program_held {
    /* graph, units, kernels, plan, and the tables that a session binds; counted */
    uint64_t bytes;
    uint64_t library_kernels; /* kernels whose memory belongs to a library and is not in bytes */
    /* largest memory of a search for another plan, which is freed afterwards */
    uint64_t search_bytes;
} pl_program_held;
pl_program_held pl_program_held_get(const pl_program *p);

/* ---- all programs of a process ---------------------------------------------------------- */
/* The caller fills it in and keeps it as long as necessary: it owns nothing. */
typedef struct pl_process_budget {
    pl_program *const *programs; /* share one arena */
    int n;
    uint64_t bytes; /* the budget; 0: no limit */
    bool on_host;   /* host memory is counted, including memory of plans and searches */
    uint64_t state_bytes, later_bytes;
    uint64_t held_bytes; /* host: see above. It includes no plan that recomputes */
    /* host: the memory of the program until now. No reported total is below start_bytes; a budget
     * is enough from start_small on, because two processes differ a little. */
    uint64_t start_bytes, start_small;
    /* What planning leaves free, and what suffices for an existing plan. On the host both are the
     * same. Two processes hold a little more or less device memory, so there a budget that one of
     * them reports as the minimum must suffice for the next one. */
    uint64_t margin, small_margin;
    /* Returns the bytes held at this moment. On the host no decision depends on it. */
    uint64_t (*used)(void *ctx);
    /* Sets the smallest value on all ranks, so that all make the same plan. */
    pl_status (*smallest)(void *ctx, uint64_t *value);
    void *ctx;
    const volatile int *stop; /* see pl_budget_limit */
    bool quick;               /* see pl_budget_quick */
    uint64_t known_minimum;   /* a smaller minimum that another build of the run has; 0: none */
    uint64_t used_then;       /* device: replaces used() in reports; 0: used() counts */
    uint64_t plan_peak;       /* out, host: most bytes held after a search */
} pl_process_budget;

/* Plans the programs within the budget. PL_ERR_FIT when no plan is found: the plans do not change,
 * and the message says why. */
pl_status pl_process_plan(pl_process_budget *b) PL_MUST_USE;
/* Sets *bytes to the smallest budget for which pl_process_plan finds plans of all programs. */
pl_status pl_process_minimum(pl_process_budget *b, uint64_t *bytes) PL_MUST_USE;
/* Returns the budget of the keep-all plans with all slots on the device; UINT64_MAX: a program has
 * none. */
uint64_t pl_process_keep_all(const pl_process_budget *b);
/* Frees what only planning needs, once all planning is done: the process that trains does not hold
 * it. */
void pl_process_trim(const pl_process_budget *b);
/* The same between two plannings: what is known about the minimum stays. */
void pl_process_pause(const pl_process_budget *b);
/* Returns the bytes that the budget leaves to arena and plans; 0: none. */
uint64_t pl_process_room(const pl_process_budget *b);
/* Returns the device memory that inputs of the programs pass through. */
uint64_t pl_process_stage_bytes(const pl_process_budget *b);

typedef struct pl_process_memory {
    uint64_t arena, state, overhead;
    uint64_t total;   /* arena + state + overhead */
    uint64_t minimum; /* smallest budget known to work */
    bool fits;        /* total <= budget, or no budget */
} pl_process_memory;
/* session: NULL before it exists. */
pl_process_memory pl_process_memory_get(const pl_process_budget *b, const pl_session *session);

#endif
