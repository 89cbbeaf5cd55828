/* plimsoll_unstable.h - what is useful and not promised: names and behaviour may change. */
#ifndef PLIMSOLL_UNSTABLE_H
#define PLIMSOLL_UNSTABLE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where time goes. Switched on, every later run of every program of the session is timed step by
 * step (switching on again starts from zero). Only switching on allocates. */
PL_API pl_status pl_session_profile(pl_session *s, bool on) PL_MUST_USE;
/* The most expensive steps of a program, then sums by kind of op: mean ms a run, share, kernel,
 * bytes, GFLOP/s, GB/s. At most `rows` lines of steps (0: all). The caller frees the text with
 * pl_text_free. */
PL_API pl_status pl_session_profile_text(const pl_session *s, const pl_program *p, int rows,
                                         char **text) PL_MUST_USE;

/* The plan in words: the order's strategy, the peak, who is alive there (largest first, at most
 * `rows`; 0: all). The caller frees the text with pl_text_free. */
PL_API pl_status pl_program_report(const pl_program *p, int rows, char **text) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
