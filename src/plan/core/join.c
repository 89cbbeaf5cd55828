/* join.c - inputs of a concat that are written directly into their part of its result (M13 of
 * docs/MEMORY.md).
 *
 * The part must be contiguous and the input a separate buffer. The bytes of the result are then
 * alive from the first write of a part on, the parts need no separate bytes, and nothing is copied.
 * That saves memory when parts live on beside the result, or die at the concat; it costs memory
 * where one part is written much earlier than the others. So each concat is tried, the largest
 * first, in the order that was found, and kept where the peak does not rise.
 *
 * Invariant: a buffer lies in at most one other buffer, which lies in no other.
 * Cost: one replay (lifetime.c) for each concat.
 */
#include "plan/core/plan_int.h"

#include <stdlib.h>

/* Whether the input covers its buffer, and some unit produces that buffer in the arena. */
static bool whole(const pl_problem *p, uint32_t val)
{
    const pl_buffer *s = &p->buffer[p->buffer_of[val]];
    return s->producer != PL_NONE && s->direct < 0 && p->offset[val] == 0 &&
           pl_stored_bytes(p->g, p->units->bits, val) ==
               pl_stored_bytes(p->g, p->units->bits, s->val);
}

static pl_status list_unit(pl_problem *p, uint32_t unit, pl_type *types)
{
    const pl_unit *u = &p->units->unit[p->unit_id[unit]];
    const pl_node_rec *r = &p->g->nodes[u->nodes[0]];
    pl_type out[PL_MAX_OUT];
    pl_call c;
    if (u->kind != PL_UNIT_KERNEL || !r->op->join) return PL_OK;
    pl_node_call(p->g, u->nodes[0], types, out, &c);
    uint32_t to = p->buffer_of[r->out], from = p->n_joins;
    if (p->buffer[to].direct >= 0) return PL_OK;
    for (int i = 0; i < r->n_in; i++) {
        uint32_t val = p->g->edges[r->in + i];
        int64_t at;
        if (!r->op->join(&c, i, &at) || at % PL_PLAN_ALIGN || !whole(p, val)) continue;
        bool again = pl_type_bytes(&types[i]) == 0;
        for (uint32_t k = from; k < p->n_joins; k++) again |= p->joins[k].in == p->buffer_of[val];
        if (!again) p->joins[p->n_joins++] = (pl_join){unit, p->buffer_of[val], to, (uint64_t)at};
    }
    return PL_OK;
}

pl_status pl_join_list(pl_problem *p, pl_arena *mem)
{
    uint32_t most = 0, widest = 1;
    for (uint32_t t = 0; t < p->n_units; t++) {
        const pl_unit *u = &p->units->unit[p->unit_id[t]];
        const pl_node_rec *r = &p->g->nodes[u->nodes[0]];
        if (u->kind != PL_UNIT_KERNEL || !r->op->join) continue;
        most += r->n_in;
        if (r->n_in > widest) widest = r->n_in;
    }
    pl_type *types = pl_arena_new(mem, pl_type, widest);
    p->joins = pl_arena_new(mem, pl_join, most + 1);
    if (!p->joins || !types) return PL_ERR_MEMORY;
    for (uint32_t t = 0; t < p->n_units && !p->opts->no_reuse && !p->opts->no_join; t++)
        PL_TRY(list_unit(p, t, types));
    return PL_OK;
}

/* ---- choosing --------------------------------------------------------------------------- */
typedef struct choice {
    uint32_t first, last; /* joins of one unit */
    uint64_t bytes;
} choice;

static int by_bytes(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Puts the parts of one concat into its result, or takes them out. A buffer lies in at most one
 * other buffer, which lies in no other. */
static bool put_in(pl_problem *p, const choice *c, bool in)
{
    bool any = false;
    uint32_t out = p->joins[c->first].out;
    if (in && p->home[out] != out) return false;
    for (uint32_t k = c->first; k < c->last; k++) {
        const pl_join *j = &p->joins[k];
        if (in ? p->shared[j->in] : p->home[j->in] != out) continue;
        p->home[j->in] = in ? out : j->in;
        p->home_at[j->in] = in ? j->at : 0;
        p->shared[j->in] = in;
        any = true;
    }
    if (any) p->shared[out] = in;
    return any;
}

static uint32_t list_choices(const pl_problem *p, choice *c)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->n_joins; k++) {
        if (!n || p->joins[c[n - 1].first].unit != p->joins[k].unit) c[n++] = (choice){.first = k};
        c[n - 1].last = k + 1;
        c[n - 1].bytes += p->buffer[p->joins[k].in].bytes;
    }
    qsort(c, n, sizeof *c, by_bytes);
    return n;
}

pl_status pl_join_choose(pl_problem *p, const uint32_t *order, pl_arena *mem, pl_life *l)
{
    enum { MOST = 64 };
    pl_life_replay(p, order, UINT64_MAX, l);
    if (!p->n_joins) return PL_OK;
    choice *c = pl_arena_new(mem, choice, p->n_joins);
    p->home = pl_arena_new(mem, uint32_t, p->n_buffers + 1);
    p->home_at = pl_arena_new(mem, uint64_t, p->n_buffers + 1);
    p->shared = pl_arena_new(mem, bool, p->n_buffers + 1);
    if (!c || !p->home || !p->home_at || !p->shared) return PL_ERR_MEMORY;
    for (uint32_t s = 0; s < p->n_buffers; s++) p->home[s] = s;
    uint32_t n = list_choices(p, c);
    uint64_t peak = l->peak;
    for (uint32_t i = 0; i < n && i < MOST; i++) {
        if (!put_in(p, &c[i], true)) continue;
        pl_life_replay(p, order, peak, l);
        if (l->peak <= peak)
            peak = l->peak;
        else
            put_in(p, &c[i], false);
    }
    pl_life_replay(p, order, UINT64_MAX, l);
    return PL_OK;
}
