/* plimsoll_unstable.h - what is useful and not promised: names and behaviour may change. */
#ifndef PLIMSOLL_UNSTABLE_H
#define PLIMSOLL_UNSTABLE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A card can begin a run before what the last one told is read. ago: 0 is the program's last run, 1
 * the one before it. Waits for that run alone; what went wrong in it. */
PL_API pl_status pl_session_wait_for(pl_session *s, const pl_program *p, int ago) PL_MUST_USE;
/* As pl_session_output. NULL for ago = 1 where the device is the host, and if it has more than 64
 * KiB. */
PL_API const void *pl_session_output_of(pl_session *s, const pl_program *p, const char *name,
                                        int ago, pl_type *type);
/* Milliseconds that a card worked on that run, by the card's own clock; 0 where runs are not timed
 * so. Waits for it. */
PL_API double pl_session_device_ms(pl_session *s, const pl_program *p, int ago);

/* One more program for a session that runs: a larger bucket, say. The arena grows to what the
 * program needs, on a card without a copy; slots keep their values, outputs of earlier runs are
 * gone. The program is over the session's store, which has had no slot since, and for its device.
 */
PL_API pl_status pl_session_add(pl_session *s, pl_program *p) PL_MUST_USE;

/* What getting ready took, in milliseconds. Of a program: opening the device (the first program's),
 * passes over the graph, groups, choosing and preparing kernels, their costs, the plan that keeps
 * everything, fitting it to a budget. Of a session: mapping memory, waiting for libraries and
 * compiled kernels, pointers, host blocks, recording runs, initial values. */
typedef struct pl_program_times {
    double device, passes, groups, kernels, costs, plan, fit;
} pl_program_times;
typedef struct pl_session_times {
    double memory, ready, bind, host, record, init;
} pl_session_times;
PL_API pl_program_times pl_program_times_get(const pl_program *p);
PL_API pl_session_times pl_session_times_get(const pl_session *s);

/* Where time goes. Switched on, every later run of every program of the session is timed step
 * by step (switching on again starts from zero). Only switching on allocates. */
PL_API pl_status pl_session_profile(pl_session *s, bool on) PL_MUST_USE;
/* The most expensive steps of a program, then sums by kind of op: mean ms a run, share, kernel,
 * bytes, GFLOP/s, GB/s. At most `rows` lines of steps (0: all). The caller frees the text with
 * pl_text_free. */
PL_API pl_status pl_session_profile_text(const pl_session *s, const pl_program *p, int rows,
                                         char **text) PL_MUST_USE;

/* Looks for numbers that are not finite. Switched on, later runs go launch by launch, and every
 * value is looked at when it has been written; pl_session_found names the first that was not finite
 * since then (NULL: none yet; borrowed). pl_session_bad_slot gives the first slot that holds such a
 * number now, or -1. */
PL_API void pl_session_watch(pl_session *s, bool on);
PL_API const char *pl_session_found(const pl_session *s);
PL_API pl_status pl_session_bad_slot(pl_session *s, int *slot) PL_MUST_USE;

/* The plan in words: the order's strategy, the peak, who is alive there (largest first, at most
 * `rows`; 0: all). The caller frees the text with pl_text_free. */
PL_API pl_status pl_program_report(const pl_program *p, int rows, char **text) PL_MUST_USE;

/* The offset planner alone. in: CSV with the columns id,lower,upper,size and, if wanted, align;
 * a buffer is alive in [lower,upper). out (NULL: none): id,lower,upper,size,offset. The search
 * stops at capacity (0: at the bound, or when its effort is spent). The result is checked by
 * code that shares nothing with the solver. */
typedef struct pl_pack_report {
    uint64_t buffers;
    uint64_t height_bytes; /* of the arena */
    uint64_t bound_bytes;  /* most bytes alive at once: no arena is lower */
    double plan_ms;
} pl_pack_report;
PL_API pl_status pl_pack_file(const char *in, const char *out, uint64_t capacity,
                              pl_pack_report *report) PL_MUST_USE;

/* The recompute planner alone, on op-level traces (src/plan/recompute/trace.h has the format). The
 * budget is a share of the peak of the program as traced. seconds: search after the first plan, 0
 * for the usual short one. Of several shares, in any order, the overhead never rises with the
 * budget; one that nothing fits gets an overhead of 0. Every plan is replayed by code that shares
 * nothing with the planner. pl_plan_trace fails with PL_ERR_FIT when nothing fits. */
typedef struct pl_trace_report {
    double overhead; /* compute / compute without recomputation */
    uint64_t peak_bytes, budget_bytes;
    double plan_ms;
} pl_trace_report;
PL_API pl_status pl_plan_trace(const char *path, double share, double seconds,
                               pl_trace_report *report) PL_MUST_USE;
PL_API pl_status pl_plan_trace_sweep(const char *path, const double *shares, uint32_t n,
                                     double seconds, pl_trace_report *reports) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
