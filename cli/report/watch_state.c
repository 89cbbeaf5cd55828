/* watch_state.c - the data that `plimsoll watch` serves about a run: running, finished, stopped,
 * failed or stalled; see watch_state.h. */
#include "watch_state.h"

#include "cli/ui.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A run is quiet for a while before its first step, during an evaluation or a save. */
enum { QUIET_S = 60, QUIET_STEPS = 20, GONE_S = 5 };

void watch_plan_stamp(const char *dir, char *out, size_t cap)
{
    char path[4200];
    struct stat s;
    snprintf(path, sizeof path, "%s/plan.json", dir);
    out[0] = 0;
    if (stat(path, &s) == 0)
        snprintf(out, cap, "%lld.%09ld-%lld", (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                 (long long)s.st_size);
}

/* Whether the process that holds the folder lives; null: unknown. */
static json_t *alive(const char *dir)
{
    char path[4200], text[32] = "";
    snprintf(path, sizeof path, "%s/lock", dir);
    FILE *f = cli_open_plain(path);
    bool got = f && fgets(text, sizeof text, f);
    if (f) fclose(f);
    long pid = got ? strtol(text, NULL, 10) : 0;
    if (pid <= 0) return json_null();
    return json_boolean(kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static const char *state_of(const report *r, const json_t *living)
{
    double step_s = report_mean(r, COL_MS) / 1000, quiet = r->log.quiet_s;
    double limit = isnan(step_s) ? QUIET_S : fmax(QUIET_S, QUIET_STEPS * step_s);
    if (r->error) return "failed";
    if (r->end) return json_is_true(json_object_get(r->end, "stopped")) ? "stopped" : "ended";
    if (quiet > limit || (json_is_false(living) && quiet > GONE_S)) return "stalled";
    return "running";
}

json_t *watch_state(const report *r, const char *plan_stamp)
{
    json_t *living = alive(r->dir);
    const json_t *last =
        r->phase ? json_object_get(r->phase, "last_step") : json_object_get(r->plan, "last_step");
    json_t *out = json_pack("{s:s, s:I, s:s, s:I, s:f, s:O, s:O}", "state", state_of(r, living),
                            "seen", (json_int_t)r->log.at, "plan", plan_stamp, "last_step",
                            (json_int_t)json_number_value(last), "quiet_s", r->log.quiet_s, "alive",
                            living, "tail", r->tail);
    json_t *message = json_object_get(r->error, "message"),
           *phase = json_object_get(r->phase, "phase");
    if (message) json_object_set(out, "message", message);
    if (phase) json_object_set(out, "phase", phase);
    json_decref(living);
    return out;
}
