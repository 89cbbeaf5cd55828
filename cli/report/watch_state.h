/* watch_state.h - the state of a run, as the page of `plimsoll watch` shows it. */
#ifndef CLI_WATCH_STATE_H
#define CLI_WATCH_STATE_H

#include "report.h"

/* Sets a text that changes when plan.json does; "" when there is none yet. */
void watch_plan_stamp(const char *dir, char *out, size_t cap);
/* Returns {state, seen, plan, last_step, quiet_s, alive, tail, message, phase}, owned by the
 * caller. state: running, ended, stopped (by a signal), failed, stalled. */
json_t *watch_state(const report *r, const char *plan_stamp);

#endif
