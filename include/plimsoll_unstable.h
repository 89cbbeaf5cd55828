/* plimsoll_unstable.h - useful functions whose names and behaviour may change. */
#ifndef PLIMSOLL_UNSTABLE_H
#define PLIMSOLL_UNSTABLE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The GPU may start run n+1 before the outputs of run n are read. ago: 0 is the last run of the
 * program, 1 the run before it. Waits for that run only; returns its error. */
PL_API pl_status pl_session_wait_for(pl_session *s, const pl_program *p, int ago) PL_MUST_USE;
/* Like pl_session_output. NULL for ago = 1 on a CPU, and for outputs of more than 64 KiB. */
PL_API const void *pl_session_output_of(pl_session *s, const pl_program *p, const char *name,
                                        int ago, pl_type *type);
/* Returns the milliseconds that a GPU worked on that run, by the clock of the GPU; 0 on other
 * devices. Waits for the run. */
PL_API double pl_session_device_ms(pl_session *s, const pl_program *p, int ago);

/* Adds a program to a running session, for example a larger bucket. The arena grows to the size
 * that the program needs, on a GPU without a copy; slots keep their values, outputs of earlier runs
 * are lost. The program must use the store of the session, without new slots, and its device. */
PL_API pl_status pl_session_add(pl_session *s, pl_program *p) PL_MUST_USE;

/* Sums of squares of chunks of consecutive elements, [chunks] in f32 (f64 of f64); a GPU sums the
 * chunks of any number of tensors in one launch. */
PL_API pl_val pl_sum_squares(pl_graph *g, pl_val x);

/* Milliseconds of the stages of compiling and starting. Program: opening the device (first program
 * only), passes, fusion, choosing and preparing kernels, their costs, the keep-all plan, fitting
 * the budget. Session: allocating memory, waiting for libraries and compiled kernels, resolving
 * pointers, host blocks, capturing CUDA graphs, initial values. */
typedef struct pl_program_times {
    double device, passes, groups, kernels, costs, plan, fit;
} pl_program_times;
typedef struct pl_session_times {
    double memory, ready, bind, host, record, init;
} pl_session_times;
PL_API pl_program_times pl_program_times_get(const pl_program *p);
PL_API pl_session_times pl_session_times_get(const pl_session *s);

/* Finds the file of a plug-in ("cuda", "mpi") that this program would load, and writes its path.
 * False, and path is "": there is no such file. */
PL_API bool pl_plugin_find(const char *name, char *path, size_t cap);

/* Profiling. When on, every later run of every program of the session is measured kernel by kernel;
 * switching on again starts from zero. Only switching on allocates. */
PL_API pl_status pl_session_profile(pl_session *s, bool on) PL_MUST_USE;
/* Lists the most expensive kernels of a program, then sums by op: ms per run, share, kernel,
 * bytes, GFLOP/s, GB/s. At most `rows` kernels (0: all). Free the text with pl_text_free. */
PL_API pl_status pl_session_profile_text(const pl_session *s, const pl_program *p, int rows,
                                         char **text) PL_MUST_USE;

/* Finds numbers that are not finite. When on, later runs execute kernel by kernel and check every
 * value after it is written. pl_session_found names the first value that was not finite (NULL:
 * none; borrowed). pl_session_bad_slot sets the first slot with such a number, or -1. */
PL_API void pl_session_watch(pl_session *s, bool on);
PL_API const char *pl_session_found(const pl_session *s);
PL_API pl_status pl_session_bad_slot(pl_session *s, int *slot) PL_MUST_USE;

/* Prints the plan: strategy of the order, the peak, the buffers alive there (largest first, at most
 * `rows`; 0: all). The caller frees the text with pl_text_free. */
PL_API pl_status pl_program_report(const pl_program *p, int rows, char **text) PL_MUST_USE;

/* Runs the offset planner alone. in: CSV with the columns id,lower,upper,size and optionally align;
 * a buffer is alive in [lower,upper). out (NULL: none): id,lower,upper,size,offset. The search
 * stops at capacity (0: at the bound, or when its work is used up). A checker that shares no code
 * with the planner checks the result. */
typedef struct pl_pack_report {
    uint64_t buffers;
    uint64_t height_bytes; /* of the arena */
    uint64_t bound_bytes;  /* most bytes alive at once: no arena can be smaller */
    double plan_ms;
} pl_pack_report;
PL_API pl_status pl_pack_file(const char *in, const char *out, uint64_t capacity,
                              pl_pack_report *report) PL_MUST_USE;

/* Runs the recompute planner alone on a trace of operations (format: src/plan/files/trace.h). The
 * budget is a share of the peak of the trace. seconds: search time after the first plan, 0 for a
 * short search. In a sweep the overhead never rises with the budget; a share that does not fit gets
 * an overhead of 0. A checker that shares no code with the planner replays every plan.
 * pl_plan_trace returns PL_ERR_FIT when nothing fits; out (NULL: none): file for the plan, with a
 * line `C op` for each op that is computed and `D tensor` for each storage that is freed. */
typedef struct pl_trace_report {
    double overhead; /* compute time / compute time without recompute */
    uint64_t peak_bytes, budget_bytes;
    double plan_ms;
} pl_trace_report;
PL_API pl_status pl_plan_trace(const char *path, double share, double seconds, const char *out,
                               pl_trace_report *report) PL_MUST_USE;
PL_API pl_status pl_plan_trace_sweep(const char *path, const double *shares, uint32_t n,
                                     double seconds, pl_trace_report *reports) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
