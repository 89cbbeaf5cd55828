/* slots.c - which assigned values are produced directly in their slot's memory (M5).
 *
 * Producing the new value over the old one saves the bytes and the copy. It is legal when the
 * producer runs after every other reader of the old value, may itself overwrite its inputs, and the
 * old value is not needed after the run. "After every reader" is an edge from each reader to the
 * producer. Such edges may close a cycle (a and b each computed from the other's old value). So all
 * wishes are granted first, then cycles are found (Tarjan's strongly connected components), and in
 * each cycle the cheapest wish is refused, until no cycle is left. A refused value lives in the
 * arena and is copied at the end.
 *
 * Invariant: the graph with the edges of all granted wishes has no cycle. Cost: O(units + edges)
 * for each refused wish.
 */
#include "plan/core/plan_int.h"

/* ---- strongly connected components ------------------------------------------------------ */
typedef struct scc {
    uint32_t *comp; /* per unit: component number, 0 while unknown */
    uint32_t *low, *num, *stack, *path, *edge;
    uint32_t n_comps;
    bool cyclic; /* some component has two units or more */
} scc;

static void scc_visit(const pl_problem *p, scc *s, uint32_t root, uint32_t *counter)
{
    uint32_t depth = 0, top = 0;
    s->path[depth++] = root;
    s->num[root] = s->low[root] = ++*counter;
    s->edge[root] = p->succs.start[root];
    s->stack[top++] = root;
    while (depth) {
        uint32_t t = s->path[depth - 1];
        if (s->edge[t] < p->succs.start[t + 1]) {
            uint32_t to = p->succs.list[s->edge[t]++];
            if (!s->num[to]) {
                s->num[to] = s->low[to] = ++*counter;
                s->edge[to] = p->succs.start[to];
                s->stack[top++] = to;
                s->path[depth++] = to;
            } else if (!s->comp[to] && s->num[to] < s->low[t]) {
                s->low[t] = s->num[to];
            }
            continue;
        }
        depth--;
        if (depth && s->low[t] < s->low[s->path[depth - 1]]) s->low[s->path[depth - 1]] = s->low[t];
        if (s->low[t] != s->num[t]) continue;
        uint32_t size = 0, member;
        s->n_comps++;
        do {
            member = s->stack[--top];
            s->comp[member] = s->n_comps;
            size++;
        } while (member != t);
        s->cyclic |= size > 1;
    }
}

static pl_status scc_find(const pl_problem *p, pl_arena *scratch, scc *s)
{
    uint32_t n = p->n_units + 1, counter = 0;
    *s = (scc){.comp = pl_arena_new(scratch, uint32_t, n),
               .low = pl_arena_new(scratch, uint32_t, n),
               .num = pl_arena_new(scratch, uint32_t, n),
               .stack = pl_arena_new(scratch, uint32_t, n),
               .path = pl_arena_new(scratch, uint32_t, n),
               .edge = pl_arena_new(scratch, uint32_t, n)};
    if (!s->comp || !s->low || !s->num || !s->stack || !s->path || !s->edge) return PL_ERR_MEMORY;
    for (uint32_t t = 0; t < p->n_units; t++)
        if (!s->num[t]) scc_visit(p, s, t, &counter);
    return PL_OK;
}

/* ---- wishes ----------------------------------------------------------------------------- */
static pl_status list_assigns(pl_problem *p, pl_arena *mem)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < p->g->n_nodes; i++)
        n += (p->g->nodes[i].op->flags & PL_OP_EFFECT) && pl_node_slot(p->g, i) >= 0;
    p->assigns = pl_arena_new(mem, pl_assign_rec, n + 1);
    if (!p->assigns) return PL_ERR_MEMORY;
    for (uint32_t i = 1; i < p->g->n_nodes; i++) {
        if (!(p->g->nodes[i].op->flags & PL_OP_EFFECT)) continue;
        int slot = pl_node_slot(p->g, i);
        if (slot < 0) continue;
        uint32_t val = pl_node_in(p->g, i)[0];
        const pl_buffer *s = &p->buffer[p->buffer_of[val]];
        if (s->old_slot == slot) continue; /* the slot keeps its value */
        p->assigns[p->n_assigns++] = (pl_assign_rec){slot, val, true};
    }
    return PL_OK;
}

static void wish(pl_problem *p, pl_assign_rec *a)
{
    pl_buffer *s = &p->buffer[p->buffer_of[a->val]];
    uint64_t bytes = pl_type_bytes(pl_type_of(p->g, a->val));
    if (s->producer == PL_NONE || s->direct >= 0 || p->offset[a->val] != 0 ||
        pl_type_bytes(pl_type_of(p->g, s->val)) != bytes)
        return;
    uint32_t old = p->old_of_slot[a->slot], id = p->unit_id[s->producer];
    if (old != PL_NONE) {
        if (p->buffer[old].pinned) return;
        const pl_unit *u = &p->units->unit[id];
        uint32_t k = 0;
        while (u->out[k] != s->val) k++;
        bool reads_old = false;
        for (uint32_t e = p->reads.start[s->producer]; e < p->reads.start[s->producer + 1]; e++)
            reads_old |= p->reads.list[e] == old;
        if (reads_old && !pl_problem_may_overwrite(p, id, k, old)) return;
    }
    s->direct = a->slot;
    a->copy = false;
}

static void refuse(pl_problem *p, pl_assign_rec *a)
{
    pl_buffer *s = &p->buffer[p->buffer_of[a->val]];
    s->direct = -1;
    a->copy = true;
}

/* A given order decides alone: a wish is refused if a reader of the old value comes after the
 * writer. */
static pl_status refuse_by_order(pl_problem *p, pl_arena *mem)
{
    uint32_t *pos = pl_arena_new(mem, uint32_t, p->n_units + 1);
    if (!pos) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t id = p->opts->fixed_order[i];
        if (id < p->units->n && p->unit_number[id] != PL_NONE) pos[p->unit_number[id]] = i;
    }
    for (uint32_t i = 0; i < p->n_assigns; i++) {
        pl_assign_rec *a = &p->assigns[i];
        uint32_t old = p->old_of_slot[a->slot], writer = p->buffer[p->buffer_of[a->val]].producer;
        if (a->copy || old == PL_NONE) continue;
        bool late = false;
        for (uint32_t e = p->readers.start[old]; e < p->readers.start[old + 1]; e++)
            late |= pos[p->readers.list[e]] > pos[writer];
        if (late) refuse(p, a);
    }
    return PL_OK;
}

/* Whether a wish puts an edge inside a component. */
static bool in_cycle(const pl_problem *p, const scc *s, const pl_assign_rec *a)
{
    uint32_t writer = p->buffer[p->buffer_of[a->val]].producer, old = p->old_of_slot[a->slot];
    if (a->copy || old == PL_NONE) return false;
    for (uint32_t e = p->readers.start[old]; e < p->readers.start[old + 1]; e++) {
        uint32_t t = p->readers.list[e];
        if (t != writer && s->comp[t] == s->comp[writer]) return true;
    }
    return false;
}

/* Refuses one wish per component, the smallest slot; after a few rounds, all wishes of a
 * component. */
static pl_status break_cycles(pl_problem *p, const scc *s, bool all, pl_arena *scratch)
{
    uint32_t *least = pl_arena_new(scratch, uint32_t, s->n_comps + 1); /* assign + 1 */
    if (!least) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_assigns; i++) {
        pl_assign_rec *a = &p->assigns[i];
        if (!in_cycle(p, s, a)) continue;
        if (all) {
            refuse(p, a);
            continue;
        }
        const pl_buffer *st = &p->buffer[p->buffer_of[a->val]];
        uint32_t c = s->comp[st->producer];
        if (!least[c] || st->bytes < p->buffer[p->buffer_of[p->assigns[least[c] - 1].val]].bytes)
            least[c] = i + 1;
    }
    for (uint32_t c = 1; c <= s->n_comps; c++)
        if (least[c]) refuse(p, &p->assigns[least[c] - 1]);
    return PL_OK;
}

pl_status pl_problem_slots(pl_problem *p, pl_arena *mem)
{
    enum { ROUNDS = 12 };
    PL_TRY(list_assigns(p, mem));
    /* An old value that is assigned to another slot must stay to the end. */
    for (uint32_t i = 0; i < p->n_assigns; i++) {
        pl_buffer *s = &p->buffer[p->buffer_of[p->assigns[i].val]];
        if (s->old_slot >= 0) s->pinned = true;
    }
    for (uint32_t i = 0; i < p->n_assigns && !p->opts->no_reuse; i++) wish(p, &p->assigns[i]);
    if (p->opts->fixed_order) PL_TRY(refuse_by_order(p, mem));
    for (int round = 0;; round++) {
        PL_TRY(pl_problem_edges(p, mem));
        pl_arena scratch = PL_ARENA_INIT;
        scc s;
        pl_status rc = scc_find(p, &scratch, &s);
        if (rc == PL_OK && s.cyclic) rc = break_cycles(p, &s, round >= ROUNDS, &scratch);
        pl_arena_release(&scratch);
        if (rc != PL_OK) return rc;
        if (!s.cyclic) break;
        PL_FAIL_IF(round > ROUNDS + 1, PL_ERR_PLAN, "the units of the graph form a cycle");
    }
    for (uint32_t i = 0; i < p->n_assigns; i++)
        if (p->assigns[i].copy) p->buffer[p->buffer_of[p->assigns[i].val]].pinned = true;
    return PL_OK;
}
