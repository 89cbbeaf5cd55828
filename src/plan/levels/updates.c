/* updates.c - updates after the last reader of the old value.
 *
 * A unit that assigns a slot overwrites the old value if no unit reads the old value later (M5). A
 * list that recomputes may read it later: the cast of a weight runs again for the backward pass,
 * after the update. Otherwise the new value needs separate bytes until the end of the step, for
 * every such weight. Here the update runs after that reader instead; its gradient lives a little
 * longer.
 *
 * Invariant: the list has the same entries, and every entry still comes after the producers of its
 * inputs. Cost: linear in the values that the list reads, for each entry that is delayed linear in
 * the entries that it passes.
 */
#include "base/sys.h"
#include "plan/levels/level_plan.h"

typedef struct delay {
    const pl_graph *g;
    const pl_units *units;
    uint32_t *entry; /* the list */
    uint32_t n;
    uint32_t *last;    /* per slot: 1 + the last entry that reads the old value; 0: none */
    uint32_t *until;   /* per unit: 1 + the last entry that must come before it; 0: free */
    uint32_t *waiting; /* entries that are delayed, in order */
    uint32_t n_waiting;
} delay;

/* Returns the slot whose old value this value is, or is a view of; -1: none. */
static int old_slot(const delay *d, uint32_t val)
{
    uint32_t unit;
    while ((unit = d->units->unit_of[val]) && d->units->unit[unit - 1].kind == PL_UNIT_VIEW)
        val = d->units->unit[unit - 1].in[0];
    return unit ? -1 : pl_node_slot(d->g, pl_producer(d->g, val));
}

/* Returns 1 + the unit that computes a value, or the value of which it is a view; 0: none. */
static uint32_t producer_of(const delay *d, uint32_t val)
{
    uint32_t unit;
    while ((unit = d->units->unit_of[val]) && d->units->unit[unit - 1].kind == PL_UNIT_VIEW)
        val = d->units->unit[unit - 1].in[0];
    return unit;
}

static void find_limits(delay *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const pl_unit *u = &d->units->unit[d->entry[i]];
        for (uint32_t k = 0; k < u->n_in; k++) {
            int slot = old_slot(d, u->in[k]);
            if (slot >= 0) d->last[slot] = i + 1;
        }
    }
    for (uint32_t n = 1; n < d->g->n_nodes; n++) {
        int slot = pl_node_slot(d->g, n);
        if (!(pl_node_get(d->g, n)->op->flags & PL_OP_EFFECT) || slot < 0) continue;
        uint32_t unit = producer_of(d, pl_node_in(d->g, n)[0]);
        if (unit && d->last[slot] > d->until[unit - 1]) d->until[unit - 1] = d->last[slot];
    }
}

/* Returns the entry that must come before entry i, plus 1: its own limit, or the largest one of the
 * delayed units whose results it reads. *reads: it reads such results. */
static uint32_t limit_of(const delay *d, uint32_t i, bool *reads)
{
    *reads = false;
    uint32_t unit = d->entry[i], most = d->until[unit];
    const pl_unit *u = &d->units->unit[unit];
    for (uint32_t k = 0; k < u->n_in && d->n_waiting; k++) {
        uint32_t from = producer_of(d, u->in[k]);
        for (uint32_t w = 0; from && w < d->n_waiting; w++) {
            if (d->waiting[w] != from - 1) continue;
            *reads = true;
            if (d->until[from - 1] > most) most = d->until[from - 1];
        }
    }
    return most;
}

/* Writes entries that wait for nothing after entry i, in their order. */
static void release_waiting(delay *d, uint32_t i, uint32_t *out, uint32_t *n)
{
    uint32_t left = 0;
    for (uint32_t w = 0; w < d->n_waiting; w++) {
        uint32_t unit = d->waiting[w];
        if (d->until[unit] <= i + 1)
            out[(*n)++] = unit;
        else
            d->waiting[left++] = unit;
    }
    d->n_waiting = left;
}

static void reorder(delay *d, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        bool reads;
        uint32_t unit = d->entry[i], limit = limit_of(d, i, &reads);
        if (limit > i + 1) {
            d->until[unit] = limit;
            d->waiting[d->n_waiting++] = unit;
        } else {
            /* the last reader of an old value reads the new one, too: the update cannot wait */
            if (reads) release_waiting(d, i, out, &n);
            out[n++] = unit;
        }
        if (d->n_waiting) release_waiting(d, i, out, &n);
    }
}

pl_status pl_level_delay_updates(const pl_graph *g, const pl_units *units, uint32_t *list,
                                 uint32_t n)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t slots = (uint32_t)pl_store_count(g->store);
    delay d = {.g = g,
               .units = units,
               .entry = list,
               .n = n,
               .last = pl_arena_new(&mem, uint32_t, slots + 1),
               .until = pl_arena_new(&mem, uint32_t, units->n + 1),
               .waiting = pl_arena_new(&mem, uint32_t, n + 1)};
    uint32_t *out = pl_arena_new(&mem, uint32_t, n + 1);
    pl_status rc = d.last && d.until && d.waiting && out ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        find_limits(&d);
        reorder(&d, out);
        for (uint32_t i = 0; i < n; i++) list[i] = out[i];
    }
    pl_arena_release(&mem);
    return rc;
}
