/* problem.c - from graph and units to tasks and storages; see plan_int.h.
 *
 * Views vanish here: a view's value is a place inside its input's storage. Values that live
 * inside a group have no storage. Everything is one pass over the units, which stand in
 * topological order.
 */
#include "plan/core/plan_int.h"

pl_status pl_rows_make(pl_arena *mem, uint32_t n, const uint32_t (*pair)[2], size_t n_pairs,
                       pl_rows *out)
{
    uint32_t *start = pl_arena_new(mem, uint32_t, n + 2), *list;
    list = pl_arena_new(mem, uint32_t, n_pairs + 1);
    if (!start || !list) return PL_ERR_MEMORY;
    for (size_t i = 0; i < n_pairs; i++) start[pair[i][0] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++) start[i] += start[i - 1];
    for (size_t i = 0; i < n_pairs; i++) list[start[pair[i][0] + 1]++] = pair[i][1];
    *out = (pl_rows){start, list};
    return PL_OK;
}

/* ---- storages --------------------------------------------------------------------------- */
static uint32_t add_storage(pl_problem *p, uint32_t val, uint64_t bytes, uint32_t producer)
{
    p->st[p->n_st] = (pl_storage){.bytes = pl_round_up(bytes),
                                  .val = val,
                                  .producer = producer,
                                  .old_slot = -1,
                                  .direct = -1};
    return p->n_st++;
}

/* Inputs have a storage each; all reads of a slot share one, the slot's old value. */
static void add_sources(pl_problem *p)
{
    const pl_graph *g = p->g;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = &g->nodes[n];
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        int slot = pl_node_slot(g, n);
        uint32_t s = slot >= 0 ? p->old_of_slot[slot] : PL_NONE;
        if (s == PL_NONE) s = add_storage(p, r->out, pl_type_bytes(pl_type_of(g, r->out)), PL_NONE);
        p->storage[r->out] = s;
        p->st[s].is_input = slot < 0;
        p->st[s].old_slot = slot;
        if (slot >= 0) p->old_of_slot[slot] = s;
    }
}

static void add_units(pl_problem *p)
{
    for (uint32_t i = 0; i < p->units->n; i++) {
        const pl_unit *u = &p->units->unit[i];
        p->task_of[i] = PL_NONE;
        if (u->kind == PL_UNIT_VIEW) {
            p->storage[u->out[0]] = p->storage[u->in[0]];
            p->offset[u->out[0]] = p->offset[u->in[0]] + (uint64_t)u->view_offset;
            continue;
        }
        p->task_of[i] = p->n_tasks;
        p->unit[p->n_tasks] = i;
        p->work[p->n_tasks] = pl_round_up(p->opts->work_bytes ? p->opts->work_bytes[i] : 0);
        for (uint32_t k = 0; k < u->n_out; k++)
            p->storage[u->out[k]] = add_storage(
                p, u->out[k], pl_stored_bytes(p->g, p->units->bits, u->out[k]), p->n_tasks);
        p->n_tasks++;
    }
}

/* ---- what each task reads and writes ---------------------------------------------------- */
static pl_status link_reads(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    size_t most = 1, n = 0;
    for (uint32_t t = 0; t < p->n_tasks; t++) most += p->units->unit[p->unit[t]].n_in;
    uint32_t(*by_task)[2] = pl_arena_alloc(scratch, most * sizeof *by_task);
    uint32_t(*by_storage)[2] = pl_arena_alloc(scratch, most * sizeof *by_storage);
    uint32_t *seen = pl_arena_new(scratch, uint32_t, p->n_st + 1); /* last task + 1 */
    if (!by_task || !by_storage || !seen) return PL_ERR_MEMORY;
    for (uint32_t t = 0; t < p->n_tasks; t++) {
        const pl_unit *u = &p->units->unit[p->unit[t]];
        for (uint32_t i = 0; i < u->n_in; i++) {
            uint32_t s = p->storage[u->in[i]];
            if (s == PL_NONE)
                PL_FAIL(PL_ERR_PLAN, "unit %u reads a value without storage", p->unit[t]);
            if (seen[s] == t + 1) continue;
            seen[s] = t + 1;
            by_task[n][0] = by_storage[n][1] = t;
            by_task[n][1] = by_storage[n][0] = s;
            n++;
        }
    }
    PL_TRY(pl_rows_make(mem, p->n_tasks, (const uint32_t(*)[2])by_task, n, &p->reads));
    return pl_rows_make(mem, p->n_st, (const uint32_t(*)[2])by_storage, n, &p->readers);
}

static pl_status link_writes(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    uint32_t(*pairs)[2] = pl_arena_alloc(scratch, (p->n_st + 1) * sizeof *pairs);
    if (!pairs) return PL_ERR_MEMORY;
    size_t n = 0;
    for (uint32_t s = 0; s < p->n_st; s++) {
        if (p->st[s].producer == PL_NONE) continue;
        pairs[n][0] = p->st[s].producer;
        pairs[n++][1] = s;
    }
    return pl_rows_make(mem, p->n_tasks, (const uint32_t(*)[2])pairs, n, &p->writes);
}

/* ---- in place --------------------------------------------------------------------------- */
bool pl_problem_may_take(const pl_problem *p, uint32_t unit, uint32_t k, uint32_t in)
{
    const pl_unit *u = &p->units->unit[unit];
    uint64_t bytes = pl_stored_bytes(p->g, p->units->bits, u->out[k]);
    if (bytes == 0 || pl_round_up(bytes) != p->st[in].bytes) return false;
    for (uint32_t i = 0; i < u->n_in; i++) {
        if (p->storage[u->in[i]] != in) continue;
        /* the whole of it, from its first byte: another window of the storage would be torn */
        if (p->offset[u->in[i]] != 0 || pl_stored_bytes(p->g, p->units->bits, u->in[i]) != bytes ||
            !pl_inplace_unit(p->g, u, p->opts->inplace ? p->opts->inplace[unit] : NULL, k, i))
            return false;
    }
    return true;
}

static pl_status list_takes(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    p->take_start = pl_arena_new(mem, uint32_t, p->n_tasks + 1);
    if (!p->take_start) return PL_ERR_MEMORY;
    size_t most = 0, n = 0;
    for (uint32_t t = 0; t < p->n_tasks && !p->opts->no_reuse; t++)
        most +=
            (size_t)(p->reads.start[t + 1] - p->reads.start[t]) * p->units->unit[p->unit[t]].n_out;
    p->takes = pl_arena_new(mem, pl_takeover, most + 1);
    if (!p->takes) return PL_ERR_MEMORY;
    (void)scratch;
    for (uint32_t t = 0; t < p->n_tasks; t++) {
        const pl_unit *u = &p->units->unit[p->unit[t]];
        for (uint32_t k = 0; k < u->n_out && !p->opts->no_reuse; k++)
            for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
                uint32_t in = p->reads.list[e];
                if (p->st[in].old_slot < 0 && pl_problem_may_take(p, p->unit[t], k, in))
                    p->takes[n++] = (pl_takeover){in, p->storage[u->out[k]]};
            }
        p->take_start[t + 1] = (uint32_t)n;
    }
    return PL_OK;
}

/* An output is read by the caller after the run. */
static void pin_outputs(pl_problem *p)
{
    for (uint32_t n = 1; n < p->g->n_nodes; n++) {
        if (!(p->g->nodes[n].op->flags & PL_OP_EFFECT) || pl_node_slot(p->g, n) >= 0) continue;
        uint32_t s = p->storage[pl_node_in(p->g, n)[0]];
        if (s != PL_NONE) p->st[s].pinned = true;
    }
}

pl_status pl_problem_build(pl_problem *p, pl_arena *mem)
{
    const pl_graph *g = p->g;
    p->n_slots = (uint32_t)pl_store_count(g->store);
    p->unit = pl_arena_new(mem, uint32_t, p->units->n + 1);
    p->task_of = pl_arena_new(mem, uint32_t, p->units->n + 1);
    p->work = pl_arena_new(mem, uint64_t, p->units->n + 1);
    p->st = pl_arena_new(mem, pl_storage, g->n_vals);
    p->storage = pl_arena_new(mem, uint32_t, g->n_vals);
    p->offset = pl_arena_new(mem, uint64_t, g->n_vals);
    p->old_of_slot = pl_arena_new(mem, uint32_t, p->n_slots + 1);
    if (!p->unit || !p->task_of || !p->work || !p->st || !p->storage || !p->offset ||
        !p->old_of_slot)
        return PL_ERR_MEMORY;
    for (uint32_t v = 0; v < g->n_vals; v++) p->storage[v] = PL_NONE;
    for (uint32_t s = 0; s < p->n_slots; s++) p->old_of_slot[s] = PL_NONE;
    add_sources(p);
    add_units(p);
    pin_outputs(p);
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = link_reads(p, mem, &scratch);
    if (rc == PL_OK) rc = link_writes(p, mem, &scratch);
    if (rc == PL_OK) rc = list_takes(p, mem, &scratch);
    pl_arena_release(&scratch);
    return rc;
}

/* ---- edges ------------------------------------------------------------------------------ */
/* Pairs (task, predecessor), distinct. With dry = NULL only counts. */
static size_t collect_edges(const pl_problem *p, uint32_t *seen, uint32_t (*pred)[2],
                            uint32_t (*succ)[2])
{
    size_t n = 0;
    for (uint32_t t = 0; t < p->n_tasks; t++) {
        for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
            uint32_t from = p->st[p->reads.list[e]].producer;
            if (from == PL_NONE || seen[from] == t + 1) continue;
            seen[from] = t + 1;
            if (pred) pred[n][0] = succ[n][1] = t, pred[n][1] = succ[n][0] = from;
            n++;
        }
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++) {
            int32_t slot = p->st[p->writes.list[w]].direct;
            uint32_t old = slot >= 0 ? p->old_of_slot[slot] : PL_NONE;
            if (old == PL_NONE) continue;
            for (uint32_t e = p->readers.start[old]; e < p->readers.start[old + 1]; e++) {
                uint32_t from = p->readers.list[e];
                if (from == t || seen[from] == t + 1) continue;
                seen[from] = t + 1;
                if (pred) pred[n][0] = succ[n][1] = t, pred[n][1] = succ[n][0] = from;
                n++;
            }
        }
    }
    return n;
}

pl_status pl_problem_edges(pl_problem *p, pl_arena *mem)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = PL_ERR_MEMORY;
    uint32_t *seen = pl_arena_new(&scratch, uint32_t, p->n_tasks + 1);
    if (!seen) goto out;
    size_t n = collect_edges(p, seen, NULL, NULL);
    for (uint32_t t = 0; t < p->n_tasks; t++) seen[t] = 0;
    uint32_t(*pred)[2] = pl_arena_alloc(&scratch, (n + 1) * sizeof *pred);
    uint32_t(*succ)[2] = pl_arena_alloc(&scratch, (n + 1) * sizeof *succ);
    if (!pred || !succ) goto out;
    collect_edges(p, seen, pred, succ);
    rc = pl_rows_make(mem, p->n_tasks, (const uint32_t(*)[2])pred, n, &p->preds);
    if (rc == PL_OK) rc = pl_rows_make(mem, p->n_tasks, (const uint32_t(*)[2])succ, n, &p->succs);
out:
    pl_arena_release(&scratch);
    return rc;
}
