/* small.c - see small.h.
 *
 * A simulator runs the units in order: it fetches a missing value, or runs its unit a second time;
 * it makes room by dropping the values whose next use is farthest. Its settings are the choices for
 * each value (keep it, move it below the device, recompute it), how far ahead it fetches, and the
 * order of drops. A search changes settings at random and keeps changes that do not make the step
 * longer. Every simulation is a schedule, so all of them compete.
 *
 * Invariant: values on the device, with those on their way, are within the arena; those on the host
 * within its room. Cost: a simulation is linear in units times values; about 10 us for 20 units.
 */
#include "plan/levels/small_int.h"

#include "base/sys.h"

#include <math.h>
#include <string.h>

/* ---- from a pl__small_story to a plan ------------------------------------------------------- */
/* Returns the entry that runs at a time, or the next one. */
static uint32_t entry_at(const pl__small_story *t, double ns)
{
    uint32_t i = 0;
    while (i < t->n_runs && t->run[i].end <= ns) i++;
    return i;
}

/* Returns the first entry that begins at or after a time. */
static uint32_t entry_after(const pl__small_story *t, double ns)
{
    uint32_t i = 0;
    while (i < t->n_runs && t->run[i].begin < ns) i++;
    return i;
}

/* Returns the first time from `ns` on at which a copy of a value is dropped; HUGE_VAL: never. */
static double dropped_at(const pl__small_story *t, unsigned v, int level, double ns)
{
    for (uint32_t i = 0; i < t->n_drops; i++)
        if (t->drop_ns[i] >= ns && (t->dropped[i][level] & pl__small_bit(v))) return t->drop_ns[i];
    return HUGE_VAL;
}

static void levels_of(const pl_small_problem *p, const pl__small_step *m, uint8_t *from,
                      uint8_t *to)
{
    bool host = pl__small_up(p) == PL_CHANNEL_UP;
    static const uint8_t ends[PL_N_CHANNELS][2] = {{PL_LEVEL_DEVICE, PL_LEVEL_HOST},
                                                   {PL_LEVEL_HOST, PL_LEVEL_DEVICE},
                                                   {PL_LEVEL_HOST, PL_LEVEL_DISK},
                                                   {PL_LEVEL_DISK, PL_LEVEL_HOST}};
    *from = ends[m->channel][0];
    *to = ends[m->channel][1];
    if (!host && *from == PL_LEVEL_HOST) *from = PL_LEVEL_DEVICE;
    if (!host && *to == PL_LEVEL_HOST) *to = PL_LEVEL_DEVICE;
}

/* Whether a later move or unit uses what move i brings. */
static bool is_used(const pl_small_problem *p, const pl__small_story *t, uint32_t i,
                    const bool *used)
{
    uint8_t from, to, level, end;
    const pl__small_step *m = &t->move[i];
    levels_of(p, m, &from, &to);
    if (to == PL_LEVEL_DEVICE) {
        double until = dropped_at(t, m->what, 0, m->end);
        for (uint32_t k = 0; k < t->n_runs; k++)
            if (t->run[k].begin >= m->end && t->run[k].begin < until &&
                (p->reads[t->run[k].what] & pl__small_bit(m->what)))
                return true;
        return false;
    }
    double until = to == PL_LEVEL_HOST ? dropped_at(t, m->what, to, m->end) : HUGE_VAL;
    for (uint32_t k = i + 1; k < t->n_moves; k++) {
        levels_of(p, &t->move[k], &level, &end);
        if (used[k] && t->move[k].what == m->what && level == to && t->move[k].begin >= m->end &&
            t->move[k].begin <= until)
            return true;
    }
    return false;
}

/* A move away must have ended before its source is dropped, and before the next move of its copy
 * begins. */
static void write_move(const pl_small_problem *p, const pl__small_story *t, uint32_t i,
                       const bool *used, pl_small_move *out)
{
    const pl__small_step *m = &t->move[i];
    uint8_t from, to, level, last;
    levels_of(p, m, &from, &to);
    *out = (pl_small_move){.at = entry_at(t, m->begin), .value = m->what, .from = from, .to = to};
    uint32_t end = entry_after(t, m->end);
    if (to == PL_LEVEL_DEVICE) {
        while (end < t->n_runs && !(p->reads[t->run[end].what] & pl__small_bit(m->what))) end++;
    } else {
        double gone = from == PL_LEVEL_DISK ? HUGE_VAL : dropped_at(t, m->what, from, m->end);
        double next = HUGE_VAL; /* move that waits for this one */
        for (uint32_t k = i + 1; k < t->n_moves; k++) {
            levels_of(p, &t->move[k], &level, &last);
            bool copy = used[k] && t->move[k].what == m->what && level == to;
            bool room = t->move[k].begin == gone && last == from;
            if ((copy || room) && t->move[k].begin >= m->end && t->move[k].begin < next)
                next = t->move[k].begin;
        }
        if (gone < HUGE_VAL && entry_at(t, gone) < end) end = entry_at(t, gone);
        if (next < HUGE_VAL && entry_at(t, next) < end) end = entry_at(t, next);
        out->late = end < t->n_runs && gone >= t->run[end].begin &&
                    (next == HUGE_VAL || entry_at(t, next) > end);
    }
    out->end = end < out->at ? out->at : end;
}

static void write_plan(const pl_small_problem *p, const pl__small_story *t, pl_small_plan *out)
{
    bool used[2 * PL_SMALL_ENTRIES];
    *out = (pl_small_plan){.n = t->n_runs, .ns = t->ns};
    for (uint32_t i = 0; i < t->n_runs; i++) out->unit[i] = t->run[i].what;
    for (uint32_t i = t->n_moves; i-- > 0;) used[i] = is_used(p, t, i, used);
    for (uint32_t i = 0; i < t->n_moves; i++)
        if (used[i]) write_move(p, t, i, used, &out->move[out->n_moves++]);
}

/* ---- the search ----------------------------------------------------------------------------- */
typedef struct search {
    const pl_small_problem *p;
    uint64_t useful[PL_SMALL_UNITS + 1];
    uint64_t seed;
    pl__small_story now;
    pl__small_settings set; /* the search continues from these */
    double ns;              /* of `set`; HUGE_VAL: none came to an end yet */
    pl_small_plan *out;
    uint32_t n_out, most;
} search;

static uint32_t draw(search *x, uint32_t n)
{
    x->seed = x->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((x->seed >> 33) % n);
}

/* Keeps the schedule of `now` among the fastest; of equal ones the first half of the places. */
static void keep(search *x)
{
    uint32_t at = x->n_out;
    if (at == x->most && x->now.ns >= x->out[at - 1].ns) return;
    if (at > x->most / 2 && x->now.ns == x->out[0].ns) return;
    if (at == x->most) at--;
    for (; at && x->out[at - 1].ns > x->now.ns; at--) x->out[at] = x->out[at - 1];
    write_plan(x->p, &x->now, &x->out[at]);
    if (x->n_out < x->most) x->n_out++;
}

/* Tries settings; the search continues from them if the step is at most `slack` times as long. */
static void try_settings(search *x, const pl__small_settings *s, double slack)
{
    pl__small_simulate(x->p, x->useful, s, x->ns * slack, &x->now);
    if (x->now.ns == HUGE_VAL) return;
    keep(x);
    x->ns = x->now.ns;
    x->set = *s;
}

static void change(search *x, pl__small_settings *s)
{
    uint32_t v = draw(x, x->p->n_values);
    switch (draw(x, 12)) {
    case 10:
    case 11: s->lead[v] = (int8_t)((int)draw(x, 9) - 4); break;
    case 9: s->frugal = !s->frugal; break;
    case 8: s->recompute_first = !s->recompute_first; break;
    case 7: s->early = !s->early; break;
    case 0: s->ahead = (uint8_t)draw(x, 8); break;
    case 1: s->ahead_disk = (uint8_t)draw(x, 12); break;
    case 2: s->patient = !s->patient; break;
    case 3:
    case 4: s->bias[v] = (int8_t)((int)draw(x, 81) - 40); break;
    default: s->how[v] = (uint8_t)draw(x, PL__SMALL_WAYS); break;
    }
}

/* Starts with the same way for all values, or with ways drawn for each. */
static void start(search *x, bool drawn)
{
    x->ns = HUGE_VAL;
    for (int way = 0; way < PL__SMALL_WAYS; way++)
        for (uint32_t k = 0; k < 16; k++) {
            pl__small_settings s = {.ahead = (uint8_t)(1 + k / 4 * 2),
                                    .ahead_disk = 8,
                                    .patient = k & 1,
                                    .frugal = k & 2};
            memset(s.how, way, sizeof s.how);
            for (uint32_t v = 0; v < x->p->n_values && drawn; v++)
                s.how[v] = (uint8_t)draw(x, PL__SMALL_WAYS);
            try_settings(x, &s, 1.0000001);
        }
}

/* Changes settings. Steps that are a little longer are accepted at first, and no longer in the
 * end. */
static void search_settings(search *x, uint32_t tries)
{
    enum { SLACK = 4 }; /* a step may be longer by 1/SLACK at first */
    for (uint32_t i = 0; i < tries && x->ns < HUGE_VAL; i++) {
        pl__small_settings s = x->set;
        double share = (double)draw(x, 1000) / 1000, left = 1 - (double)i / tries;
        for (uint32_t k = 1 + draw(x, 3); k > 0; k--) change(x, &s);
        try_settings(x, &s, 1.0000001 + share * share * left * left / SLACK);
    }
}

pl_status pl_small_search(const pl_small_problem *p, pl_small_plan *out, uint32_t most, uint32_t *n)
{
    enum { STARTS = 8, TRIES = 1500 };
    search *x = pl_sys_alloc(sizeof *x);
    if (!x) return PL_ERR_MEMORY;
    x->p = p;
    x->out = out;
    x->most = most;
    pl__small_useful(p, UINT64_MAX, x->useful);
    for (int i = 0; i < STARTS; i++) {
        start(x, i > 0);
        search_settings(x, TRIES);
    }
    *n = x->n_out;
    pl_sys_free(x);
    return PL_OK;
}
