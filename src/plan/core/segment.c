/* segment.c - see segment.h.
 *
 * Four passes: which forward units belong to a segment; which values leave their segment in the
 * forward pass; which units of a segment must run a second time, because the backward pass reads a
 * value that does not leave, and the units which that value depends on; then the list, in which
 * these units are placed before the first backward unit that needs them.
 *
 * Invariant: the first runs in the list are the given order. Cost: linear in units and reads, and
 * one pass over the order for each segment.
 */
#include "plan/core/segment.h"

typedef struct segments {
    const pl_graph *g;
    const pl_units *units;
    const uint32_t *order;
    uint32_t n;
    uint32_t *of_scope; /* the segment (scope number) a scope lies in, 0 = none */
    uint32_t *of_unit;  /* the segment of a forward unit, 0 = none */
    bool *forward;      /* per unit */
    bool *leaves;       /* per value: read outside its segment by a forward unit, or by an effect */
    bool *repeat;       /* per unit: part of what its segment recomputes */
    bool *done;         /* per scope */
} segments;

/* Returns the value whose bytes val shares. */
static uint32_t base_value(const segments *s, uint32_t val)
{
    uint32_t unit;
    while ((unit = s->units->unit_of[val]) && s->units->unit[unit - 1].kind == PL_UNIT_VIEW)
        val = s->units->unit[unit - 1].in[0];
    return val;
}

/* Returns the segment that produces input i of a unit, with the unit and the value; 0 if none
 * does. */
static uint32_t source(const segments *s, const pl_unit *u, uint32_t i, uint32_t *unit,
                       uint32_t *val)
{
    *val = base_value(s, u->in[i]);
    if (!s->units->unit_of[*val]) return 0;
    *unit = s->units->unit_of[*val] - 1;
    return s->of_unit[*unit];
}

static void find_segments(segments *s)
{
    for (uint32_t i = 1; i < s->g->n_scopes; i++) {
        const pl_scope_rec *r = &s->g->scopes[i];
        s->of_scope[i] = s->of_scope[r->parent] ? s->of_scope[r->parent] : r->checkpoint ? i : 0;
    }
    /* A group may hold forward and backward nodes; it is forward when any of its outputs is. */
    for (uint32_t i = 0; i < s->n; i++) {
        const pl_unit *u = &s->units->unit[s->order[i]];
        for (uint32_t k = 0; k < u->n_out && !s->forward[s->order[i]]; k++) {
            const pl_node_rec *r = pl_node_get(s->g, pl_producer(s->g, u->out[k]));
            if (r->backward) continue;
            s->forward[s->order[i]] = true;
            s->of_unit[s->order[i]] = s->of_scope[r->scope];
        }
    }
}

static void find_leaving(segments *s)
{
    uint32_t from, val;
    for (uint32_t i = 0; i < s->n; i++) {
        const pl_unit *u = &s->units->unit[s->order[i]];
        if (!s->forward[s->order[i]]) continue;
        for (uint32_t k = 0; k < u->n_in; k++) {
            uint32_t seg = source(s, u, k, &from, &val);
            if (seg && seg != s->of_unit[s->order[i]]) s->leaves[val] = true;
        }
    }
    for (uint32_t n = 1; n < s->g->n_nodes; n++)
        if (s->g->nodes[n].op->flags & PL_OP_EFFECT)
            s->leaves[base_value(s, pl_node_in(s->g, n)[0])] = true;
}

/* Marks the values inside a segment that the backward pass reads, then, in reverse order, the
 * values inside the segment on which they depend. */
static void find_repeats(segments *s)
{
    uint32_t from, val;
    for (uint32_t i = s->n; i-- > 0;) {
        uint32_t unit = s->order[i];
        const pl_unit *u = &s->units->unit[unit];
        for (uint32_t k = 0; k < u->n_in; k++) {
            uint32_t seg = source(s, u, k, &from, &val);
            if (!seg) continue;
            if (!s->forward[unit] && !s->leaves[val]) s->repeat[from] = true;
            if (s->repeat[unit] && s->of_unit[unit] == seg) s->repeat[from] = true;
        }
    }
}

static uint32_t emit(segments *s, uint32_t *list)
{
    uint32_t n = 0, from, val;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t unit = s->order[i];
        const pl_unit *u = &s->units->unit[unit];
        for (uint32_t k = 0; k < u->n_in && !s->forward[unit]; k++) {
            uint32_t seg = source(s, u, k, &from, &val);
            if (!seg || s->done[seg] || s->leaves[val]) continue;
            s->done[seg] = true;
            for (uint32_t j = 0; j < i; j++)
                if (s->of_unit[s->order[j]] == seg && s->repeat[s->order[j]])
                    list[n++] = s->order[j];
        }
        list[n++] = unit;
    }
    return n;
}

pl_status pl_segment_list(const pl_graph *g, const pl_units *units, const uint32_t *order,
                          uint32_t n, pl_arena *mem, uint32_t **list, uint32_t *n_list)
{
    segments s = {.g = g, .units = units, .order = order, .n = n};
    s.of_scope = pl_arena_new(mem, uint32_t, g->n_scopes);
    s.of_unit = pl_arena_new(mem, uint32_t, units->n + 1);
    s.forward = pl_arena_new(mem, bool, units->n + 1);
    s.leaves = pl_arena_new(mem, bool, g->n_vals);
    s.repeat = pl_arena_new(mem, bool, units->n + 1);
    s.done = pl_arena_new(mem, bool, g->n_scopes);
    *list = pl_arena_new(mem, uint32_t, 2 * (size_t)n + 1);
    if (!s.of_scope || !s.of_unit || !s.forward || !s.leaves || !s.repeat || !s.done || !*list)
        return PL_ERR_MEMORY;
    find_segments(&s);
    find_leaving(&s);
    find_repeats(&s);
    *n_list = emit(&s, *list);
    return PL_OK;
}
