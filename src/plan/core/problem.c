/* problem.c - from a graph and its units to the problem of plan_int.h.
 *
 * Views vanish here: the value of a view is a window of its input's buffer (M4). Values that live
 * inside a group have no buffer. Which output may be written over which input (M3) is listed, not
 * decided: lifetime.c decides for an order.
 *
 * Invariant: every value that a unit reads or writes has exactly one buffer, and an offset in it.
 * Cost: one pass over the units, which are in topological order.
 */
#include "plan/core/plan_int.h"

pl_status pl_plan_rows_make(pl_arena *mem, uint32_t n, const uint32_t (*pair)[2], size_t n_pairs,
                            pl_plan_rows *out)
{
    uint32_t *start = pl_arena_new(mem, uint32_t, n + 2), *list;
    list = pl_arena_new(mem, uint32_t, n_pairs + 1);
    if (!start || !list) return PL_ERR_MEMORY;
    for (size_t i = 0; i < n_pairs; i++) start[pair[i][0] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++) start[i] += start[i - 1];
    for (size_t i = 0; i < n_pairs; i++) list[start[pair[i][0] + 1]++] = pair[i][1];
    *out = (pl_plan_rows){start, list};
    return PL_OK;
}

/* ---- buffers --------------------------------------------------------------------------- */
static uint32_t add_buffer(pl_problem *p, uint32_t val, uint64_t bytes, uint32_t producer)
{
    p->buffer[p->n_buffers] = (pl_buffer){.bytes = pl_round_up(bytes),
                                          .val = val,
                                          .producer = producer,
                                          .level = p->units->level ? p->units->level[val] : 0,
                                          .old_slot = -1,
                                          .direct = -1};
    return p->n_buffers++;
}

/* Adds one buffer per input; all reads of a slot share one buffer, the slot's old value. */
static void add_sources(pl_problem *p)
{
    const pl_graph *g = p->g;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = &g->nodes[n];
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        int slot = pl_node_slot(g, n);
        uint32_t s = slot >= 0 ? p->old_of_slot[slot] : PL_NONE;
        if (s == PL_NONE) s = add_buffer(p, r->out, pl_type_bytes(pl_type_of(g, r->out)), PL_NONE);
        p->buffer_of[r->out] = s;
        p->buffer[s].is_input = slot < 0;
        p->buffer[s].old_slot = slot;
        if (slot >= 0) p->old_of_slot[slot] = s;
    }
}

static void add_units(pl_problem *p)
{
    for (uint32_t i = 0; i < p->units->n; i++) {
        const pl_unit *u = &p->units->unit[i];
        p->unit_number[i] = PL_NONE;
        if (u->kind == PL_UNIT_VIEW) {
            p->buffer_of[u->out[0]] = p->buffer_of[u->in[0]];
            p->offset[u->out[0]] = p->offset[u->in[0]] + (uint64_t)u->view_offset;
            continue;
        }
        p->unit_number[i] = p->n_units;
        p->unit_id[p->n_units] = i;
        p->work[p->n_units] = pl_round_up(p->opts->work_bytes ? p->opts->work_bytes[i] : 0);
        for (uint32_t k = 0; k < u->n_out; k++)
            p->buffer_of[u->out[k]] = add_buffer(
                p, u->out[k], pl_stored_bytes(p->g, p->units->bits, u->out[k]), p->n_units);
        p->n_units++;
    }
}

/* ---- what each unit reads and writes ---------------------------------------------------- */
static pl_status link_reads(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    size_t most = 1, n = 0;
    for (uint32_t t = 0; t < p->n_units; t++) most += p->units->unit[p->unit_id[t]].n_in;
    uint32_t(*by_unit)[2] = pl_arena_alloc(scratch, most * sizeof *by_unit);
    uint32_t(*by_buffer)[2] = pl_arena_alloc(scratch, most * sizeof *by_buffer);
    uint32_t *seen = pl_arena_new(scratch, uint32_t, p->n_buffers + 1); /* last unit + 1 */
    if (!by_unit || !by_buffer || !seen) return PL_ERR_MEMORY;
    for (uint32_t t = 0; t < p->n_units; t++) {
        const pl_unit *u = &p->units->unit[p->unit_id[t]];
        for (uint32_t i = 0; i < u->n_in; i++) {
            uint32_t s = p->buffer_of[u->in[i]];
            if (s == PL_NONE)
                PL_FAIL(PL_ERR_PLAN, "unit %u reads a value without a buffer", p->unit_id[t]);
            if (seen[s] == t + 1) continue;
            seen[s] = t + 1;
            by_unit[n][0] = by_buffer[n][1] = t;
            by_unit[n][1] = by_buffer[n][0] = s;
            n++;
        }
    }
    PL_TRY(pl_plan_rows_make(mem, p->n_units, (const uint32_t(*)[2])by_unit, n, &p->reads));
    return pl_plan_rows_make(mem, p->n_buffers, (const uint32_t(*)[2])by_buffer, n, &p->readers);
}

static pl_status link_writes(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    uint32_t(*pairs)[2] = pl_arena_alloc(scratch, (p->n_buffers + 1) * sizeof *pairs);
    if (!pairs) return PL_ERR_MEMORY;
    size_t n = 0;
    for (uint32_t s = 0; s < p->n_buffers; s++) {
        if (p->buffer[s].producer == PL_NONE) continue;
        pairs[n][0] = p->buffer[s].producer;
        pairs[n++][1] = s;
    }
    return pl_plan_rows_make(mem, p->n_units, (const uint32_t(*)[2])pairs, n, &p->writes);
}

/* ---- in place --------------------------------------------------------------------------- */
bool pl_problem_may_overwrite(const pl_problem *p, uint32_t id, uint32_t k, uint32_t in)
{
    const pl_unit *u = &p->units->unit[id];
    uint64_t bytes = pl_stored_bytes(p->g, p->units->bits, u->out[k]);
    if (u->kind == PL_UNIT_MOVE) return false;
    if (bytes == 0 || pl_round_up(bytes) != p->buffer[in].bytes) return false;
    for (uint32_t i = 0; i < u->n_in; i++) {
        if (p->buffer_of[u->in[i]] != in) continue;
        /* the input must be the whole buffer: overwriting a part would destroy other views */
        if (p->offset[u->in[i]] != 0 || pl_stored_bytes(p->g, p->units->bits, u->in[i]) != bytes ||
            !pl_inplace_unit(p->g, u, p->opts->inplace ? p->opts->inplace[id] : NULL, k, i))
            return false;
    }
    return true;
}

static pl_status list_in_place(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    p->in_place_start = pl_arena_new(mem, uint32_t, p->n_units + 1);
    if (!p->in_place_start) return PL_ERR_MEMORY;
    size_t most = 0, n = 0;
    for (uint32_t t = 0; t < p->n_units && !p->opts->no_reuse; t++)
        most += (size_t)(p->reads.start[t + 1] - p->reads.start[t]) *
                p->units->unit[p->unit_id[t]].n_out;
    p->in_place = pl_arena_new(mem, pl_in_place, most + 1);
    if (!p->in_place) return PL_ERR_MEMORY;
    (void)scratch;
    for (uint32_t t = 0; t < p->n_units; t++) {
        const pl_unit *u = &p->units->unit[p->unit_id[t]];
        for (uint32_t k = 0; k < u->n_out && !p->opts->no_reuse; k++)
            for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
                uint32_t in = p->reads.list[e];
                if (p->buffer[in].old_slot < 0 && pl_problem_may_overwrite(p, p->unit_id[t], k, in))
                    p->in_place[n++] = (pl_in_place){in, p->buffer_of[u->out[k]]};
            }
        p->in_place_start[t + 1] = (uint32_t)n;
    }
    return PL_OK;
}

/* Lists which moves have ended before each position of the given order. */
static pl_status list_ends(pl_problem *p, pl_arena *mem, pl_arena *scratch)
{
    const uint32_t *end = p->opts->move_end;
    size_t n = 0;
    if (!end || !p->opts->fixed_order) return PL_OK;
    uint32_t(*pairs)[2] = pl_arena_alloc(scratch, (p->n_units + 1) * sizeof *pairs);
    if (!pairs) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t id = p->opts->fixed_order[i];
        if (id >= p->units->n || p->units->unit[id].kind != PL_UNIT_MOVE) continue;
        PL_FAIL_IF(end[id] <= i || end[id] > p->n_units, PL_ERR_PLAN,
                   "the move at %u cannot end at %u", i, end[id]);
        pairs[n][0] = end[id];
        pairs[n++][1] = p->unit_number[id];
    }
    return pl_plan_rows_make(mem, p->n_units + 1, (const uint32_t(*)[2])pairs, n, &p->ends);
}

/* An output is read by the caller after the run. */
static void pin_outputs(pl_problem *p)
{
    for (uint32_t n = 1; n < p->g->n_nodes; n++) {
        if (!(p->g->nodes[n].op->flags & PL_OP_EFFECT) || pl_node_slot(p->g, n) >= 0) continue;
        uint32_t s = p->buffer_of[pl_node_in(p->g, n)[0]];
        if (s != PL_NONE) p->buffer[s].pinned = true;
    }
}

pl_status pl_problem_build(pl_problem *p, pl_arena *mem)
{
    const pl_graph *g = p->g;
    p->n_slots = (uint32_t)pl_store_count(g->store);
    p->unit_id = pl_arena_new(mem, uint32_t, p->units->n + 1);
    p->unit_number = pl_arena_new(mem, uint32_t, p->units->n + 1);
    p->work = pl_arena_new(mem, uint64_t, p->units->n + 1);
    p->buffer = pl_arena_new(mem, pl_buffer, g->n_vals);
    p->buffer_of = pl_arena_new(mem, uint32_t, g->n_vals);
    p->offset = pl_arena_new(mem, uint64_t, g->n_vals);
    p->old_of_slot = pl_arena_new(mem, uint32_t, p->n_slots + 1);
    if (!p->unit_id || !p->unit_number || !p->work || !p->buffer || !p->buffer_of || !p->offset ||
        !p->old_of_slot)
        return PL_ERR_MEMORY;
    for (uint32_t v = 0; v < g->n_vals; v++) p->buffer_of[v] = PL_NONE;
    for (uint32_t s = 0; s < p->n_slots; s++) p->old_of_slot[s] = PL_NONE;
    add_sources(p);
    add_units(p);
    pin_outputs(p);
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = link_reads(p, mem, &scratch);
    if (rc == PL_OK) rc = link_writes(p, mem, &scratch);
    if (rc == PL_OK) rc = list_in_place(p, mem, &scratch);
    if (rc == PL_OK) rc = list_ends(p, mem, &scratch);
    pl_arena_release(&scratch);
    return rc;
}

/* ---- edges ------------------------------------------------------------------------------ */
/* Pairs (unit, predecessor), distinct. With dry = NULL only counts. */
static size_t collect_edges(const pl_problem *p, uint32_t *seen, uint32_t (*pred)[2],
                            uint32_t (*succ)[2])
{
    size_t n = 0;
    for (uint32_t t = 0; t < p->n_units; t++) {
        for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
            uint32_t from = p->buffer[p->reads.list[e]].producer;
            if (from == PL_NONE || seen[from] == t + 1) continue;
            seen[from] = t + 1;
            if (pred) pred[n][0] = succ[n][1] = t, pred[n][1] = succ[n][0] = from;
            n++;
        }
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++) {
            int32_t slot = p->buffer[p->writes.list[w]].direct;
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
    uint32_t *seen = pl_arena_new(&scratch, uint32_t, p->n_units + 1);
    if (!seen) goto out;
    size_t n = collect_edges(p, seen, NULL, NULL);
    for (uint32_t t = 0; t < p->n_units; t++) seen[t] = 0;
    uint32_t(*pred)[2] = pl_arena_alloc(&scratch, (n + 1) * sizeof *pred);
    uint32_t(*succ)[2] = pl_arena_alloc(&scratch, (n + 1) * sizeof *succ);
    if (!pred || !succ) goto out;
    collect_edges(p, seen, pred, succ);
    rc = pl_plan_rows_make(mem, p->n_units, (const uint32_t(*)[2])pred, n, &p->preds);
    if (rc == PL_OK)
        rc = pl_plan_rows_make(mem, p->n_units, (const uint32_t(*)[2])succ, n, &p->succs);
out:
    pl_arena_release(&scratch);
    return rc;
}
