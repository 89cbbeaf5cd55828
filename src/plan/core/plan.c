/* plan.c - from graph and units to the plan: problem, order, lifetimes, end copies, offsets.
 *
 *     pl_problem_build   units and buffers, views removed        problem.c
 *     pl_problem_slots   values produced in their slot's memory  slots.c
 *     pl_order_search    the order with the lowest peak          order.c, judged by lifetime.c
 *     pl_order_gather    updates of slots next to each other     gather.c
 *     pl_join_choose     inputs written into a concat's result   join.c
 *     add_buffers, add_copies, assign_offsets                    here; pack/pack.h finds offsets
 *     pl_plan_place_moved, pl_plan_list_moves                    moves.c: values below the device
 *
 * Copies at the end (M5). A slot whose new value could not be produced in place gets it by a copy,
 * after all computation. The source of a copy may be the old value of another slot that is
 * overwritten too (a swap), so copies run in an order in which no copy destroys what a later copy
 * reads; a cycle is broken by saving one old value in the arena. An output that is the old value of
 * an overwritten slot is saved in the arena first, too.
 *
 * Cost: the order search and the packing; everything else is linear. Some thousand units take tens
 * of milliseconds.
 */
#include "plan/core/plan.h"

#include "base/sys.h"
#include "plan/core/plan_int.h"
#include "plan/pack/pack.h"

#include <string.h>

void pl_plan_free(pl_plan *p)
{
    if (!p) return;
    pl_arena_release(&p->mem);
    pl_sys_free(p);
}

typedef struct maker {
    pl_problem q;
    pl_plan *plan;
    pl_arena scratch;
    pl_life life;
    uint32_t *placed_of; /* per buffer: its placed buffer, PL_NONE */
    uint32_t n_saved;    /* buffers at the end of the list that hold saved old values */
    uint64_t *level_at;  /* per buffer below the device: its offset at its level */
} maker;

/* Returns where a value of the arena starts in its buffer. */
static uint64_t offset_of(const maker *m, uint32_t val)
{
    return m->q.offset[val] + (m->q.home ? m->q.home_at[m->q.buffer_of[val]] : 0);
}

/* Returns a buffer's place; arena offsets are filled in after packing. */
static pl_place place_of(const maker *m, uint32_t val)
{
    uint32_t s = m->q.buffer_of[val];
    if (s == PL_NONE) return (pl_place){PL_SPACE_NONE, -1, 0};
    const pl_buffer *b = &m->q.buffer[s];
    int32_t slot = b->old_slot >= 0 ? b->old_slot : b->direct;
    if (slot >= 0) return (pl_place){PL_SPACE_STATE, slot, m->q.offset[val]};
    if (b->level)
        return (pl_place){b->level == PL_LEVEL_HOST ? PL_SPACE_HOST : PL_SPACE_DISK, -1,
                          m->level_at[s] + m->q.offset[val]};
    uint64_t base = m->plan->buffers[m->placed_of[s]].offset;
    return (pl_place){PL_SPACE_ARENA, -1, base + offset_of(m, val)};
}

/* ---- buffers ---------------------------------------------------------------------------- */
/* Marks gradients: a gradient is an operand of a unit that produces a trainable slot's new value,
 * and has the slot's type. */
static pl_status mark_gradients(const maker *m, pl_arena *scratch, bool **out)
{
    const pl_problem *q = &m->q;
    bool *grad = pl_arena_new(scratch, bool, q->n_buffers + 1);
    if (!grad) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < q->n_assigns; i++) {
        const pl_slot *slot = pl_store_slot(q->g->store, q->assigns[i].slot);
        uint32_t unit = q->buffer[q->buffer_of[q->assigns[i].val]].producer;
        if (!slot->trainable || unit == PL_NONE) continue;
        const pl_unit *u = &q->units->unit[q->unit_id[unit]];
        for (uint32_t k = 0; k < u->n_in; k++) {
            uint32_t s = q->buffer_of[u->in[k]];
            if (q->buffer[s].producer != PL_NONE && q->buffer[s].direct < 0 &&
                pl_type_equal(pl_type_of(q->g, u->in[k]), &slot->type))
                grad[s] = true;
        }
    }
    *out = grad;
    return PL_OK;
}

static pl_placed_buffer *add_buffer(pl_plan *p, uint32_t value, uint32_t unit, uint64_t bytes,
                                    int32_t first, int32_t last, enum pl_component c)
{
    pl_placed_buffer *b = &p->buffers[p->n_buffers++];
    *b = (pl_placed_buffer){
        .value = value, .unit = unit, .bytes = bytes, .first = first, .last = last, .component = c};
    return b;
}

/* Adds one placed buffer for each owning buffer of the arena and one for each scratch. Copies at
 * the end may lengthen the lifetimes of pinned ones. */
static pl_status add_buffers(maker *m)
{
    const pl_problem *q = &m->q;
    pl_plan *p = m->plan;
    bool *grad;
    PL_TRY(mark_gradients(m, &m->scratch, &grad));
    m->placed_of = pl_arena_new(&m->scratch, uint32_t, q->n_buffers + 1);
    /* saved values: at most one per assign and one per output */
    p->buffers = pl_arena_new(&p->mem, pl_placed_buffer,
                              (size_t)q->n_buffers + q->n_units + q->n_assigns + p->n_outputs + 1);
    if (!m->placed_of || !p->buffers) return PL_ERR_MEMORY;
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        const pl_buffer *b = &q->buffer[s];
        m->placed_of[s] = PL_NONE;
        if (m->life.owner[s] != s || b->old_slot >= 0 || b->direct >= 0 || b->level) continue;
        enum pl_component c = b->is_input ? PL_COMP_INPUTS
                              : grad[s]   ? PL_COMP_GRADIENTS
                                          : PL_COMP_ACTIVATIONS;
        m->placed_of[s] = p->n_buffers;
        add_buffer(p, b->val, b->producer == PL_NONE ? PL_NO_UNIT : q->unit_id[b->producer],
                   b->bytes, m->life.first[s], m->life.last[s], c);
    }
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        if (q->buffer[s].old_slot >= 0 || q->buffer[s].direct >= 0 || q->buffer[s].level) continue;
        m->placed_of[s] = m->placed_of[m->life.owner[s]];
        p->no_reuse_bytes += q->buffer[s].bytes;
    }
    for (uint32_t i = 0; i < q->n_units; i++) { /* workspaces (M6) */
        uint32_t unit = p->order[i], id = q->unit_id[unit];
        if (!q->work[unit]) continue;
        p->no_reuse_bytes += q->work[unit];
        add_buffer(p, 0, id, q->work[unit], (int32_t)i, (int32_t)i + 1, PL_COMP_WORKSPACE);
    }
    return PL_OK;
}

/* ---- copies ----------------------------------------------------------------------------- */
/* During copies a place in the arena is stored as buffer index in `slot` and offset inside it. */
static pl_place buffer_place(const maker *m, uint32_t val)
{
    uint32_t s = m->q.buffer_of[val];
    const pl_buffer *b = &m->q.buffer[s];
    int32_t slot = b->old_slot >= 0 ? b->old_slot : b->direct;
    if (slot >= 0) return (pl_place){PL_SPACE_STATE, slot, m->q.offset[val]};
    return (pl_place){PL_SPACE_ARENA, (int32_t)m->placed_of[s], offset_of(m, val)};
}

static void read_at_end(maker *m, const pl_place *from, int32_t position)
{
    if (from->space != PL_SPACE_ARENA) return;
    pl_placed_buffer *b = &m->plan->buffers[from->slot];
    if (b->last <= position) b->last = position + 1;
}

static void add_copy(maker *m, uint32_t val, pl_place from, pl_place to)
{
    pl_plan *p = m->plan;
    read_at_end(m, &from, (int32_t)(p->n_order + p->n_copies));
    p->copies[p->n_copies++] = (pl_copy){val, from, to, pl_type_bytes(pl_type_of(m->q.g, val))};
}

/* Copies val's old bytes into a new buffer, alive from the next copy on; returns its place. */
static pl_place save_old(maker *m, uint32_t val)
{
    pl_plan *p = m->plan;
    int32_t position = (int32_t)(p->n_order + p->n_copies);
    pl_place to = {PL_SPACE_ARENA, (int32_t)p->n_buffers, 0};
    uint64_t bytes = pl_round_up(pl_type_bytes(pl_type_of(m->q.g, val)));
    add_buffer(p, val, PL_NO_UNIT, bytes, position, position + 1, PL_COMP_ACTIVATIONS);
    p->no_reuse_bytes += bytes;
    add_copy(m, val, buffer_place(m, val), to);
    return to;
}

/* An output that is an old value about to be overwritten is saved before any slot changes. */
static void place_outputs(maker *m, const bool *changes)
{
    pl_plan *p = m->plan;
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        uint32_t val = pl_node_in(m->q.g, p->outputs[i].node)[0];
        pl_place at = buffer_place(m, val);
        const pl_buffer *b = &m->q.buffer[m->q.buffer_of[val]];
        if (b->old_slot >= 0 && changes[b->old_slot]) at = save_old(m, val);
        p->outputs[i].place = at;
    }
}

typedef struct pending {
    pl_assign_rec *a;
    pl_place from;
    int32_t reads; /* the slot whose old value it still reads, -1 */
} pending;

/* Runs every copy whose slot no other copy still reads; returns how many are left. */
static uint32_t run_ready(maker *m, pending *c, uint32_t n, uint32_t *waiting)
{
    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = 0; i < n;) {
            if (waiting[c[i].a->slot]) {
                i++;
                continue;
            }
            add_copy(m, c[i].a->val, c[i].from, (pl_place){PL_SPACE_STATE, c[i].a->slot, 0});
            if (c[i].reads >= 0) waiting[c[i].reads]--;
            c[i] = c[--n];
            any = true;
        }
    }
    return n;
}

static pl_status order_copies(maker *m, const bool *changes)
{
    const pl_problem *q = &m->q;
    pending *c = pl_arena_new(&m->scratch, pending, q->n_assigns + 1);
    uint32_t *waiting = pl_arena_new(&m->scratch, uint32_t, q->n_slots + 1), n = 0;
    if (!c || !waiting) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < q->n_assigns; i++) {
        pl_assign_rec *a = &q->assigns[i];
        if (!a->copy) continue;
        int32_t old = q->buffer[q->buffer_of[a->val]].old_slot;
        if (old >= 0 && !changes[old]) old = -1;
        c[n++] = (pending){a, buffer_place(m, a->val), old};
        if (old >= 0) waiting[old]++;
    }
    while ((n = run_ready(m, c, n, waiting)) > 0) {
        /* All remaining copies wait in cycles: free one slot by saving each view of it that is
         * read. */
        int32_t slot = c[0].a->slot;
        for (uint32_t i = 0; i < n; i++) {
            if (c[i].reads != slot) continue;
            c[i].from = save_old(m, c[i].a->val);
            c[i].reads = -1;
        }
        waiting[slot] = 0;
    }
    return PL_OK;
}

/* A pinned buffer lives to the end if an output lies in it, else to its last copy. */
static void pin_buffers(maker *m)
{
    pl_plan *p = m->plan;
    for (uint32_t i = 0; i < p->n_outputs; i++)
        if (p->outputs[i].place.space == PL_SPACE_ARENA)
            p->buffers[p->outputs[i].place.slot].last = (int32_t)p->n_positions;
}

static pl_status add_copies(maker *m)
{
    const pl_problem *q = &m->q;
    pl_plan *p = m->plan;
    bool *changes = pl_arena_new(&m->scratch, bool, q->n_slots + 1);
    p->copies = pl_arena_new(&p->mem, pl_copy, 2 * (size_t)q->n_assigns + p->n_outputs + 1);
    if (!changes || !p->copies) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < q->n_assigns; i++) changes[q->assigns[i].slot] = true;
    place_outputs(m, changes);
    PL_TRY(order_copies(m, changes));
    p->n_positions = p->n_order + p->n_copies;
    /* inputs need a position at which they are alive */
    if (p->n_positions == 0) p->n_positions = 1;
    pin_buffers(m);
    return PL_OK;
}

/* ---- offsets ---------------------------------------------------------------------------- */
/* Runs the portfolio first; searches only when the portfolio leaves more than a thousandth above
 * the bound, and searches long only when the short search does not fit. The best result counts.
 * Searches lower an arena of some thousand buffers by at most about 2 %; where more is missing,
 * they are skipped.
 * Depth-first search, whose tables have a row for every two buffers that overlap, is not used: the
 * local searches come as close. */
static pl_status pack(const pl_plan_opts *o, pl_pack_buffer *b, pl_plan *p)
{
    static const struct {
        uint64_t work, per_mille;
    } round[] = {{0, 0}, {100000000, 1}, {300000000, 1}};
    enum { MANY = 2000 };                           /* buffers */
    static const uint64_t hopeless[] = {1, 40, 64}; /* this part of the limit is missing */
    uint64_t limit = o->fits > o->enough ? o->fits : o->enough;
    pl_pack_opts po = PL_PACK_OPTS_INIT;
    po.time_limit_s = o->seconds;
    po.stop = o->stop;
    po.off = PL_PACK_NO_EXACT;
    p->arena_bytes = UINT64_MAX;
    for (int r = 0; r < 3; r++) {
        uint64_t good = p->live_bound + p->live_bound / 1000 * round[r].per_mille, height;
        if (good < o->enough) good = o->enough;
        if (p->arena_bytes <= good || (r == 2 && (o->quick || p->arena_bytes <= o->fits))) break;
        bool many = r && limit && p->n_buffers >= MANY;
        if (many && p->arena_bytes > limit + limit / hopeless[r]) break;
        po.seed = o->seed + (uint64_t)r;
        po.work = round[r].work / (o->quick ? 25 : 1);
        po.target = good;
        po.improve = r > 0;
        PL_TRY(pl_pack(b, p->n_buffers, &po, &height));
        if (height >= p->arena_bytes) continue;
        p->arena_bytes = height;
        for (uint32_t i = 0; i < p->n_buffers; i++) p->buffers[i].offset = b[i].offset;
    }
    return PL_OK;
}

static pl_status assign_offsets(maker *m)
{
    pl_plan *p = m->plan;
    const pl_plan_opts *o = m->q.opts;
    pl_pack_buffer *b = pl_arena_new(&m->scratch, pl_pack_buffer, p->n_buffers + 1);
    if (!b) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        pl_placed_buffer *f = &p->buffers[i];
        if (o->no_reuse) f->first = 0, f->last = (int32_t)p->n_positions;
        b[i] = (pl_pack_buffer){f->first, f->last, f->bytes, 0};
    }
    PL_TRY(pl_pack_bound(b, p->n_buffers, PL_PLAN_ALIGN, &p->live_bound));
    PL_TRY(pack(o, b, p));
    return o->spread && p->n_buffers ? pl_plan_spread(p, o->seed, &m->scratch) : PL_OK;
}

static void resolve(const pl_plan *p, pl_place *at)
{
    if (at->space != PL_SPACE_ARENA) return;
    at->offset += p->buffers[at->slot].offset;
    at->slot = -1;
}

static pl_status write_places(maker *m)
{
    pl_plan *p = m->plan;
    const pl_graph *g = m->q.g;
    p->n_vals = g->n_vals;
    PL_TRY(pl_plan_place_moved(&m->q, &m->life, p, &m->scratch, &m->level_at));
    p->place = pl_arena_new(&p->mem, pl_place, g->n_vals);
    p->work_offset = pl_arena_new(&p->mem, uint64_t, m->q.units->n + 1);
    p->work_bytes = pl_arena_new(&p->mem, uint64_t, m->q.units->n + 1);
    if (!p->place || !p->work_offset || !p->work_bytes) return PL_ERR_MEMORY;
    for (uint32_t v = 1; v < g->n_vals; v++) p->place[v] = place_of(m, v);
    for (uint32_t i = 0; i < p->n_copies; i++) {
        resolve(p, &p->copies[i].from);
        resolve(p, &p->copies[i].to);
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) resolve(p, &p->outputs[i].place);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const pl_placed_buffer *b = &p->buffers[i];
        if (b->component != PL_COMP_WORKSPACE) continue;
        p->work_offset[b->unit] = b->offset;
        p->work_bytes[b->unit] = b->bytes;
    }
    return PL_OK;
}

/* First position at which live_bound bytes are alive. */
static pl_status find_peak(maker *m)
{
    pl_plan *p = m->plan;
    int64_t *delta = pl_arena_new(&m->scratch, int64_t, p->n_positions + 1), now = 0, most = -1;
    if (!delta) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        delta[p->buffers[i].first] += (int64_t)p->buffers[i].bytes;
        delta[p->buffers[i].last] -= (int64_t)p->buffers[i].bytes;
    }
    for (uint32_t t = 0; t < p->n_positions; t++) {
        now += delta[t];
        if (now > most) most = now, p->peak_position = (int32_t)t;
    }
    return PL_OK;
}

static pl_status list_outputs(maker *m)
{
    const pl_graph *g = m->q.g;
    pl_plan *p = m->plan;
    uint32_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) p->outputs = pl_arena_new(&p->mem, pl_plan_output, n + 1);
        if (pass && !p->outputs) return PL_ERR_MEMORY;
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            if (!(g->nodes[i].op->flags & PL_OP_EFFECT) || pl_node_slot(g, i) >= 0) continue;
            if (pass) p->outputs[p->n_outputs++].node = i;
            n++;
        }
    }
    return PL_OK;
}

/* Converts the given order to units; it must be a valid order of the graph. */
static pl_status take_order(const pl_problem *q, uint32_t *order, const char **name)
{
    for (uint32_t i = 0; i < q->n_units; i++) {
        uint32_t id = q->opts->fixed_order[i];
        PL_FAIL_IF(id >= q->units->n || q->unit_number[id] == PL_NONE, PL_ERR_PLAN,
                   "entry %u of fixed_order is not a unit that runs", i);
        order[i] = q->unit_number[id];
    }
    *name = "given";
    return PL_OK;
}

static pl_status find_order(const pl_problem *q, pl_plan *p)
{
    if (q->opts->fixed_order) return take_order(q, p->order, &p->order_name);
    PL_TRY(
        pl_order_search(q, p->order, &p->order_name, &p->program_order_bound, &p->own_bytes_bound));
    return q->opts->gather && !q->opts->program_order ? pl_order_gather(q, p->order) : PL_OK;
}

static pl_status make(maker *m)
{
    pl_plan *p = m->plan;
    pl_problem *q = &m->q;
    PL_TRY(pl_problem_build(q, &m->scratch));
    PL_TRY(pl_problem_slots(q, &m->scratch));
    p->n_order = q->n_units;
    p->order = pl_arena_new(&p->mem, uint32_t, q->n_units + 1);
    if (!p->order) return PL_ERR_MEMORY;
    PL_TRY(find_order(q, p));
    PL_TRY(pl_life_new(q, &m->scratch, &m->life));
    PL_TRY(pl_join_list(q, &m->scratch));
    PL_TRY(pl_join_choose(q, p->order, &m->scratch, &m->life));
    PL_TRY(list_outputs(m));
    PL_TRY(add_buffers(m));
    PL_TRY(add_copies(m));
    PL_TRY(assign_offsets(m));
    PL_TRY(write_places(m));
    for (uint32_t i = 0; i < p->n_order; i++) p->order[i] = q->unit_id[p->order[i]];
    PL_TRY(pl_plan_list_moves(q, p));
    return find_peak(m);
}

pl_status pl_plan_make(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                       pl_plan **out)
{
    maker m = {.q = {.g = g, .units = units, .opts = o}};
    m.plan = pl_sys_alloc(sizeof *m.plan);
    if (!m.plan) return PL_ERR_MEMORY;
    pl_status rc = make(&m);
    pl_arena_release(&m.scratch);
    if (rc != PL_OK) {
        pl_plan_free(m.plan);
        return rc;
    }
    *out = m.plan;
    return PL_OK;
}

pl_status pl_plan_peak(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                       uint64_t *bytes)
{
    pl_problem q = {.g = g, .units = units, .opts = o};
    pl_arena mem = PL_ARENA_INIT;
    pl_life life = {0};
    const char *name;
    pl_status rc = pl_problem_build(&q, &mem);
    if (rc == PL_OK) rc = pl_problem_slots(&q, &mem);
    uint32_t *order = pl_arena_new(&mem, uint32_t, q.n_units + 1);
    if (rc == PL_OK) rc = order ? take_order(&q, order, &name) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl_life_new(&q, &mem, &life);
    if (rc == PL_OK) rc = pl_join_list(&q, &mem);
    if (rc == PL_OK) rc = pl_join_choose(&q, order, &mem, &life);
    if (rc == PL_OK) *bytes = life.peak;
    pl_arena_release(&mem);
    return rc;
}
