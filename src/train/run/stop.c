/* stop.c - early stopping (keys stop.*).
 *
 * An evaluation is better than the best so far when it wins by more than stop.threshold times the
 * size of the best. The history is a slot of the store, so that a resumed run decides like a run
 * that was never interrupted.
 */
#include "train/run/run.h"

#include <math.h>
#include <string.h>

#define SLOT "stop"

enum { SEEN, BEST, SINCE, N_NUMBERS };

int pl__stop_slot(pl_store *s)
{
    pl_slot slot = {.name = SLOT, .type = PL_TYPE(PL_F64, N_NUMBERS), .kind = PL_SLOT_COUNTER};
    return pl_store_add(s, &slot);
}

/* A metric that is NaN is never better. */
static bool beats(const pl_config *c, double metric, double best)
{
    double least = fabs(best) * pl_config_float(c, "stop.threshold");
    bool max = strcmp(pl_config_text(c, "stop.mode"), "max") == 0;
    return max ? metric > best + least : metric < best - least;
}

pl_verdict pl_run_judge(pl_run *r, const pl_eval_info *info)
{
    pl_verdict v = {.best = (double)NAN, .reached = pl__phase_reached(r, info)};
    int slot = pl_store_find(r->store, SLOT), i = 0;
    const char *metric = pl_config_text(r->config, "stop.metric");
    double s[N_NUMBERS];
    while (i < info->n && strcmp(info->name[i], metric) != 0) i++;
    if (slot < 0 || i == info->n || !r->session) return v;
    if (pl_session_read_slot(r->session, slot, 0, s, sizeof s) != PL_OK) return v;
    v.better = s[SEEN] == 0 ? !isnan(info->value[i]) : beats(r->config, info->value[i], s[BEST]);
    if (v.better) s[BEST] = info->value[i];
    s[SEEN] += v.better || s[SEEN] > 0;
    s[SINCE] = v.better ? 0 : s[SINCE] + 1;
    v.best = s[BEST];
    v.stop = s[SINCE] >= (double)pl_config_int(r->config, "stop.patience");
    if (pl_session_write_slot(r->session, slot, 0, s, sizeof s) != PL_OK) v.stop = false;
    return v;
}
