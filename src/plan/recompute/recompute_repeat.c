/* recompute_repeat.c - which buffers play the same part in repeated layers.
 *
 * A network repeats its layers, and a decision that is right for a buffer of one layer is mostly
 * right for the same buffer of the others. This file finds such buffers, so that a search decides
 * once for all of them.
 *
 * Units and buffers get colours. A unit's first colour says what it costs, a buffer's how large it
 * is. In each of ROUNDS rounds a unit's new colour is a hash of its colour and of the colours of
 * the buffers that it reads and writes, in order; a buffer's new colour is a hash of its colour and
 * of the colours of its writer and its readers. After that, two buffers of one colour look the same
 * as far as ROUNDS units away: buffers of equal layers share a colour, except near the first and
 * the last of these layers. Buffers of one colour are a class.
 *
 * Invariant: classes depend on the problem only, and list their members by rising unit. Cost:
 * ROUNDS times the edges.
 *
 * Example: embed, then 12 equal layers of 8 units, then a loss. The activation of a layer's second
 * product has the same colour in layers 2 to 11: one class of 10 buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/recompute/recompute_int.h"

enum { ROUNDS = 4 };

typedef struct colours {
    uint64_t *unit, *val;           /* of each unit, of each value */
    uint64_t *next_unit, *next_val; /* of the round under way */
} colours;

static uint64_t join(uint64_t colour, uint64_t with)
{
    return pl_mix64(colour * PL_GOLDEN64 + with);
}

static void first_colours(const pl__recompute *m, const colours *c)
{
    for (uint32_t i = 0; i < m->n_units; i++) {
        uint64_t cost;
        memcpy(&cost, &m->cost[i], sizeof cost);
        c->unit[i] = join(join(cost, pl__recompute_work(m, i)), m->once[i]);
    }
    for (uint32_t v = 0; v < m->n_vals; v++)
        c->val[v] = join(m->bytes[v], m->pinned[v] | (uint64_t)m->end[v] << 1 |
                                          (uint64_t)(m->owner[v] != v) << 2);
}

static void one_round(const pl__recompute *m, const colours *c)
{
    const pl_recompute_problem *p = m->p;
    for (uint32_t v = 0; v < m->n_vals; v++)
        c->next_val[v] =
            join(c->val[v], m->writer[v] == PL_RECOMPUTE_NONE ? 1 : c->unit[m->writer[v]]);
    for (uint32_t i = 0; i < m->n_units; i++) {
        uint64_t colour = c->unit[i];
        for (uint32_t k = p->in_at[i]; k < p->in_at[i + 1]; k++) {
            colour = join(colour, c->val[p->in[k]]);
            c->next_val[p->in[k]] += pl_mix64(c->unit[i] + 2); /* readers in any order */
        }
        for (uint32_t k = p->out_at[i]; k < p->out_at[i + 1]; k++)
            colour = join(colour, c->val[p->out[k]] + 1);
        c->next_unit[i] = colour;
    }
}

typedef struct row {
    uint64_t colour;
    uint32_t val;
} row;

static int by_colour(const void *pa, const void *pb)
{
    const row *a = pa, *b = pb;
    if (a->colour != b->colour) return a->colour < b->colour ? -1 : 1;
    return a->val < b->val ? -1 : a->val > b->val;
}

/* Lists the buffers that may be dropped, those of one colour together. */
static uint32_t list_rows(const pl__recompute *m, const uint64_t *colour, row *rows)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->owner[v] == v && !m->pinned[v] && !m->end[v] && m->bytes[v])
            rows[n++] = (row){.colour = colour[v], .val = v};
    qsort(rows, n, sizeof *rows, by_colour);
    return n;
}

pl_status pl__recompute_repeats(const pl__recompute *m, pl_arena *mem, pl__recompute_repeat *out)
{
    pl_arena a = PL_ARENA_INIT;
    colours c = {.unit = pl_arena_new(&a, uint64_t, m->n_units + 1),
                 .val = pl_arena_new(&a, uint64_t, m->n_vals + 1),
                 .next_unit = pl_arena_new(&a, uint64_t, m->n_units + 1),
                 .next_val = pl_arena_new(&a, uint64_t, m->n_vals + 1)};
    row *rows = pl_arena_new(&a, row, m->n_vals + 1);
    out->first = pl_arena_new(mem, uint32_t, m->n_vals + 1);
    out->n = pl_arena_new(mem, uint32_t, m->n_vals + 1);
    out->member = pl_arena_new(mem, uint32_t, m->n_vals + 1);
    if (!c.unit || !c.val || !c.next_unit || !c.next_val || !rows || !out->first || !out->n ||
        !out->member) {
        pl_arena_release(&a);
        return PL_ERR_MEMORY;
    }
    first_colours(m, &c);
    for (int i = 0; i < ROUNDS; i++) {
        one_round(m, &c);
        c = (colours){c.next_unit, c.next_val, c.unit, c.val};
    }
    uint32_t n = list_rows(m, c.val, rows);
    for (uint32_t i = 0, first = 0; i < n; i++) {
        if (rows[i].colour != rows[first].colour) first = i;
        out->member[i] = rows[i].val;
        out->first[rows[i].val] = first;
        out->n[rows[first].val]++;
    }
    for (uint32_t i = 0; i < n; i++)
        out->n[rows[i].val] = out->n[rows[out->first[rows[i].val]].val];
    pl_arena_release(&a);
    return PL_OK;
}
