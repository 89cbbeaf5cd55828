/* check.c - accepts or rejects a plan by replaying it over a model of memory.
 *
 * The checker shares no code with the planner: it reads only the graph, the units and the plan's
 * data. Memory is one line of bytes, the arena followed by the slots. Every byte carries a tag of
 * the content that was written there last. A tag represents a piece of some content (a produced
 * value, an input, the old value of a slot) at a known address. A read is right when all its bytes
 * carry one tag of the wanted content at the wanted position: then the right producer wrote the
 * bytes, and no unit overwrote them. A write puts its tag on its bytes and replaces other tags; if
 * the old bytes were still needed, the later read fails. After the writes of a unit, everything
 * that the unit reads, writes and uses as scratch is checked again, so overlaps within a unit are
 * found too, except outputs that the op allows in place. So P1 to P5 of plan.h hold, and with them
 * M1 to M7.
 *
 * After the arena, the line has the blocks of the levels below the device. While a move is on its
 * way its destination carries a tag of no content, so that a read of it fails. When the move ends,
 * its source must still hold the value and its destination must still carry that tag; then the
 * destination holds the value (P6, M14).
 *
 * check_line.c has the line with its tags; reading and writing a range are O(log n). Last, the
 * table of buffers, which reports and the poisoning of dead bytes use, must cover every content
 * from its production to its last use.
 */
#include "plan/core/check_int.h"
#include "plan/core/plan.h"

#include <stdlib.h>
#include <string.h>

#define NO_CONTENT UINT32_MAX

/* A concat: bytes [off, off + bytes) of content equal the bytes of content `of` from `at` on,
 * whichever unit wrote them. */
typedef struct part {
    uint32_t content, of;
    uint64_t off, bytes, at;
} part;

typedef struct range {
    uint64_t lo, hi;
} range;

typedef struct replay {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan_opts *o;
    const pl_plan *p;
    uint32_t n_slots;
    uint64_t *slot_at;              /* per slot: address of its first byte */
    uint64_t level_at[PL_N_LEVELS]; /* address of each level's block */
    uint32_t *on_way;               /* per move: tag of its destination until it ends */
    uint32_t *content;              /* per value: its content; NO_CONTENT if it has no bytes */
    uint64_t *off;                  /* per value: position in the content */
    pl_check_line line;
    part *parts; /* by content */
    uint32_t n_parts;
    int32_t *made,
        *used; /* per value that is a content: positions of its writing and last reading */
    const pl_placed_buffer **by_offset; /* buffers by offset, then time */
} replay;

static pl_status wrong(const replay *r, uint32_t unit, const char *what, uint32_t val)
{
    return pl_check_wrong(r->g, r->units, unit, what, val);
}

static range range_of(const replay *r, const pl_place *at, uint64_t bytes)
{
    uint64_t base = at->space == PL_SPACE_STATE  ? r->slot_at[at->slot]
                    : at->space == PL_SPACE_HOST ? r->level_at[PL_LEVEL_HOST]
                    : at->space == PL_SPACE_DISK ? r->level_at[PL_LEVEL_DISK]
                                                 : 0;
    return (range){base + at->offset, base + at->offset + bytes};
}

static range slot_range(const replay *r, uint32_t slot)
{
    uint64_t bytes = pl_slot_bytes(pl_store_slot(r->g->store, (int)slot));
    return (range){r->slot_at[slot], r->slot_at[slot] + bytes};
}

static uint64_t bytes_of(const replay *r, uint32_t val)
{
    return pl_stored_bytes(r->g, r->units->bits, val);
}

/* ---- contents --------------------------------------------------------------------------- */
static pl_status find_contents(replay *r)
{
    const pl_graph *g = r->g;
    for (uint32_t v = 0; v < g->n_vals; v++) r->content[v] = NO_CONTENT;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!(g->nodes[n].op->flags & PL_OP_SOURCE)) continue;
        int slot = pl_node_slot(g, n);
        r->content[g->nodes[n].out] = slot >= 0 ? g->n_vals + (uint32_t)slot : g->nodes[n].out;
    }
    for (uint32_t i = 0; i < r->units->n; i++) {
        const pl_unit *u = &r->units->unit[i];
        for (uint32_t k = 0; k < u->n_out; k++) r->content[u->out[k]] = u->out[k];
        if (u->kind != PL_UNIT_VIEW) continue;
        if (r->content[u->in[0]] == NO_CONTENT || u->view_offset < 0)
            return wrong(r, i, "a view of a value without a buffer", u->in[0]);
        r->content[u->out[0]] = r->content[u->in[0]];
        r->off[u->out[0]] = r->off[u->in[0]] + (uint64_t)u->view_offset;
    }
    return PL_OK;
}

static int by_content(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return x->content < y->content ? -1 : x->content > y->content;
}

/* Lists the inputs that are a run of bytes of an output, according to the ops. */
static pl_status find_parts(replay *r, pl_arena *mem)
{
    uint32_t most = 0, widest = 1;
    for (uint32_t i = 0; i < r->units->n; i++) {
        const pl_node_rec *d = pl_node_get(r->g, r->units->unit[i].nodes[0]);
        if (!d->op->join) continue;
        most += d->n_in;
        if (d->n_in > widest) widest = d->n_in;
    }
    pl_type *types = pl_arena_new(mem, pl_type, widest), out[PL_MAX_OUT];
    r->parts = pl_arena_new(mem, part, most + 1);
    if (!types || !r->parts) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < r->units->n; i++) {
        uint32_t node = r->units->unit[i].nodes[0];
        const pl_node_rec *d = pl_node_get(r->g, node);
        pl_call c;
        if (!d->op->join || r->units->unit[i].kind != PL_UNIT_KERNEL) continue;
        pl_node_call(r->g, node, types, out, &c);
        for (int k = 0; k < d->n_in; k++) {
            uint32_t val = pl_node_in(r->g, node)[k];
            int64_t at;
            if (r->content[val] != NO_CONTENT && d->op->join(&c, k, &at))
                r->parts[r->n_parts++] = (part){r->content[val], d->out, r->off[val],
                                                pl_type_bytes(&types[k]), (uint64_t)at};
        }
    }
    qsort(r->parts, r->n_parts, sizeof *r->parts, by_content);
    return PL_OK;
}

/* ---- places inside bounds --------------------------------------------------------------- */
static bool inside(const replay *r, const pl_place *at, uint64_t bytes)
{
    uint64_t room;
    if (at->space == PL_SPACE_ARENA) {
        room = r->p->arena_bytes;
    } else if (at->space == PL_SPACE_STATE && at->slot >= 0 && (uint32_t)at->slot < r->n_slots) {
        room = pl_slot_bytes(pl_store_slot(r->g->store, at->slot));
    } else if (at->space == PL_SPACE_HOST || at->space == PL_SPACE_DISK) {
        room = r->p->level_bytes[at->space == PL_SPACE_HOST ? PL_LEVEL_HOST : PL_LEVEL_DISK];
    } else {
        return false;
    }
    return at->offset <= room && bytes <= room - at->offset;
}

/* Returns the level at which a place is. */
static uint8_t level_of(const replay *r, const pl_place *at)
{
    if (at->space == PL_SPACE_STATE) return pl_home_level(r->o->homes, at->slot);
    return at->space == PL_SPACE_HOST   ? PL_LEVEL_HOST
           : at->space == PL_SPACE_DISK ? PL_LEVEL_DISK
                                        : PL_LEVEL_DEVICE;
}

/* Checks that homes lie inside their blocks, before the values that are moved there. */
static pl_status check_homes(const replay *r)
{
    const pl_homes *h = r->o->homes;
    for (uint32_t s = 0; s < r->n_slots; s++) {
        uint8_t level = pl_home_level(h, (int)s);
        if (!level) continue;
        uint64_t bytes = pl_slot_bytes(pl_store_slot(r->g->store, (int)s));
        PL_FAIL_IF(level >= PL_N_LEVELS || h->offset[s] % PL_LEVEL_ALIGN ||
                       h->offset[s] > h->bytes[level] || bytes > h->bytes[level] - h->offset[s] ||
                       h->bytes[level] > r->p->level_bytes[level],
                   PL_ERR_PLAN, "the plan is wrong: the home of \"%s\" is out of bounds",
                   pl_store_slot(r->g->store, (int)s)->name);
    }
    for (uint32_t v = 1; v < r->g->n_vals && h; v++) {
        const pl_place *at = &r->p->place[v];
        if (r->content[v] != NO_CONTENT && at->space >= PL_SPACE_HOST &&
            at->offset < h->bytes[level_of(r, at)])
            return wrong(r, PL_NO_UNIT, "lies among the slots of its level:", v);
    }
    return PL_OK;
}

static pl_status check_places(const replay *r)
{
    const pl_plan *p = r->p;
    for (uint32_t v = 1; v < r->g->n_vals; v++) {
        if (r->content[v] == NO_CONTENT) continue;
        if (!inside(r, &p->place[v], bytes_of(r, v)))
            return wrong(r, PL_NO_UNIT, "out of bounds:", v);
        if (r->content[v] == v && p->place[v].offset % PL_PLAN_ALIGN)
            return wrong(r, PL_NO_UNIT, "not aligned:", v);
    }
    for (uint32_t i = 0; i < r->units->n; i++) {
        pl_place at = {PL_SPACE_ARENA, -1, p->work_offset[i]};
        if (r->o->work_bytes && p->work_bytes[i] < r->o->work_bytes[i])
            return wrong(r, i, "too little scratch", 0);
        if (!inside(r, &at, p->work_bytes[i])) return wrong(r, i, "scratch out of bounds", 0);
        if (at.offset % PL_PLAN_ALIGN) return wrong(r, i, "scratch not aligned", 0);
    }
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const pl_copy *c = &p->copies[i];
        if (r->content[c->val] == NO_CONTENT || c->bytes != bytes_of(r, c->val) ||
            level_of(r, &c->from) || level_of(r, &c->to) || !inside(r, &c->from, c->bytes) ||
            !inside(r, &c->to, c->bytes))
            return wrong(r, PL_NO_UNIT, "a copy out of bounds:", c->val);
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        uint32_t val = pl_node_in(r->g, p->outputs[i].node)[0];
        if (r->content[val] == NO_CONTENT || level_of(r, &p->outputs[i].place) ||
            !inside(r, &p->outputs[i].place, bytes_of(r, val)))
            return wrong(r, PL_NO_UNIT, "an output out of bounds:", val);
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const pl_placed_buffer *b = &p->buffers[i];
        if (b->offset > p->arena_bytes || b->bytes > p->arena_bytes - b->offset || b->first < 0 ||
            b->first >= b->last || (uint32_t)b->last > p->n_positions)
            return wrong(r, b->unit, "a buffer out of bounds", b->value);
    }
    return PL_OK;
}

/* ---- the line of memory ----------------------------------------------------------------- */
static void add_borders(replay *r, range x)
{
    pl_check_line_border(&r->line, x.lo);
    pl_check_line_border(&r->line, x.hi);
}

static void collect_borders(replay *r)
{
    const pl_plan *p = r->p;
    for (uint32_t v = 1; v < r->g->n_vals; v++)
        if (r->content[v] != NO_CONTENT) add_borders(r, range_of(r, &p->place[v], bytes_of(r, v)));
    for (uint32_t i = 0; i < r->units->n; i++)
        add_borders(r, (range){p->work_offset[i], p->work_offset[i] + p->work_bytes[i]});
    for (uint32_t i = 0; i < p->n_copies; i++) {
        add_borders(r, range_of(r, &p->copies[i].from, p->copies[i].bytes));
        add_borders(r, range_of(r, &p->copies[i].to, p->copies[i].bytes));
    }
    for (uint32_t i = 0; i < p->n_outputs; i++)
        add_borders(r, range_of(r, &p->outputs[i].place,
                                bytes_of(r, pl_node_in(r->g, p->outputs[i].node)[0])));
    for (uint32_t s = 0; s < r->n_slots; s++) add_borders(r, slot_range(r, s));
    pl_check_line_close(&r->line);
}

static uint32_t write_range(replay *r, range x, uint32_t content, uint64_t off)
{
    return pl_check_line_write(&r->line, x.lo, x.hi, content, off);
}

static bool holds(const replay *r, range x, uint32_t content, uint64_t off)
{
    if (x.lo == x.hi) return true;
    const pl_check_line_tag *t =
        pl_check_line_tag_of(&r->line, pl_check_line_read(&r->line, x.lo, x.hi));
    if (!t) return false;
    return t->content == content && x.lo - t->at + t->off == off;
}

/* Whether the place holds the value: its own bytes, or the same bytes as part of a concat. */
static bool holds_value(const replay *r, const pl_place *at, uint32_t val)
{
    range x = range_of(r, at, bytes_of(r, val));
    uint32_t content = r->content[val], lo = 0, hi = r->n_parts;
    uint64_t off = r->off[val], bytes = x.hi - x.lo;
    if (holds(r, x, content, off)) return true;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (r->parts[mid].content < content)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < r->n_parts && r->parts[lo].content == content; lo++) {
        const part *p = &r->parts[lo];
        if (off >= p->off && off + bytes <= p->off + p->bytes &&
            holds(r, x, p->of, p->at + off - p->off))
            return true;
    }
    return false;
}

/* ---- the replay ------------------------------------------------------------------------- */
static bool may_overwrite(const replay *r, uint32_t unit, uint32_t k, uint32_t i)
{
    const bool *table = r->o->inplace ? r->o->inplace[unit] : NULL;
    return pl_inplace_unit(r->g, &r->units->unit[unit], table, k, i);
}

/* Whether input i is gone after the unit's writes: an output took exactly its bytes, and may. */
static bool taken_over(const replay *r, uint32_t unit, uint32_t i)
{
    const pl_unit *u = &r->units->unit[unit];
    range in = range_of(r, &r->p->place[u->in[i]], bytes_of(r, u->in[i]));
    for (uint32_t k = 0; k < u->n_out; k++) {
        range out = range_of(r, &r->p->place[u->out[k]], bytes_of(r, u->out[k]));
        if (out.lo == in.lo && out.hi == in.hi) return may_overwrite(r, unit, k, i);
    }
    return false;
}

static void use(replay *r, uint32_t val, int32_t step)
{
    uint32_t content = r->content[val];
    if (content < r->g->n_vals && r->used[content] < step) r->used[content] = step;
}

static pl_status replay_unit(replay *r, uint32_t unit, int32_t step)
{
    const pl_unit *u = &r->units->unit[unit];
    const pl_plan *p = r->p;
    for (uint32_t i = 0; i < u->n_in; i++)
        if (level_of(r, &p->place[u->in[i]]))
            return wrong(r, unit, "reads what is away:", u->in[i]);
    for (uint32_t k = 0; k < u->n_out; k++)
        if (level_of(r, &p->place[u->out[k]]))
            return wrong(r, unit, "writes below the device:", u->out[k]);
    if (u->kind == PL_UNIT_KERNEL && u->n_out != pl_node_get(r->g, u->nodes[0])->n_out)
        return wrong(r, unit, "an output without a buffer", 0);
    for (uint32_t i = 0; i < u->n_in; i++)
        if (r->content[u->in[i]] == NO_CONTENT || !holds_value(r, &p->place[u->in[i]], u->in[i]))
            return wrong(r, unit, "its operand's bytes hold something else:", u->in[i]);
    for (uint32_t i = 0; i < u->n_in; i++) use(r, u->in[i], step);
    for (uint32_t k = 0; k < u->n_out; k++) r->made[u->out[k]] = r->used[u->out[k]] = step;
    range work = {p->work_offset[unit], p->work_offset[unit] + p->work_bytes[unit]};
    uint32_t work_tag = write_range(r, work, NO_CONTENT, 0);
    for (uint32_t k = 0; k < u->n_out; k++)
        write_range(r, range_of(r, &p->place[u->out[k]], bytes_of(r, u->out[k])), u->out[k], 0);
    for (uint32_t k = 0; k < u->n_out; k++)
        if (!holds_value(r, &p->place[u->out[k]], u->out[k]))
            return wrong(r, unit, "two outputs share bytes:", u->out[k]);
    if (work.lo < work.hi && pl_check_line_read(&r->line, work.lo, work.hi) != work_tag)
        return wrong(r, unit, "an output lies in the scratch", 0);
    for (uint32_t i = 0; i < u->n_in; i++)
        if (!holds_value(r, &p->place[u->in[i]], u->in[i]) && !taken_over(r, unit, i))
            return wrong(r, unit, "writes over its own operand:", u->in[i]);
    return PL_OK;
}

static pl_status replay_start(replay *r)
{
    for (uint32_t s = 0; s < r->n_slots; s++) write_range(r, slot_range(r, s), r->g->n_vals + s, 0);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t n = 1; n < r->g->n_nodes; n++) {
            const pl_node_rec *d = pl_node_get(r->g, n);
            if (!(d->op->flags & PL_OP_SOURCE)) continue;
            const pl_place *at = &r->p->place[d->out];
            if (!pass && pl_node_slot(r->g, n) < 0)
                write_range(r, range_of(r, at, bytes_of(r, d->out)), d->out, 0);
            else if (pass && !holds_value(r, at, d->out))
                return wrong(r, PL_NO_UNIT, "before the run something else lies in", d->out);
        }
    return PL_OK;
}

/* ---- moves ------------------------------------------------------------------------------ */
static bool same_place(const pl_place *a, const pl_place *b)
{
    return a->space == b->space && a->offset == b->offset &&
           (a->space != PL_SPACE_STATE || a->slot == b->slot);
}

/* The move of a unit that is reached at `position`; *next is the first move not yet reached. */
static pl_status begin_move(replay *r, uint32_t unit, int32_t position, uint32_t *next)
{
    const pl_plan *p = r->p;
    const pl_unit *u = &r->units->unit[unit];
    const pl_move *m = *next < p->n_moves ? &p->moves[*next] : NULL;
    uint32_t in = u->in[0], out = u->out[0];
    if (!m || m->unit != unit || m->begin != position || m->end <= position ||
        (uint32_t)m->end > p->n_order || !same_place(&m->source, &p->place[in]) ||
        !same_place(&m->dest, &p->place[out]) || m->bytes != bytes_of(r, in) ||
        m->bytes != bytes_of(r, out))
        return wrong(r, unit, "the move does not fit its unit:", out);
    if (m->from != level_of(r, &m->source) || m->to != level_of(r, &m->dest) || m->from == m->to ||
        m->channel != (uint8_t)pl_channel_between(m->from, m->to))
        return wrong(r, unit, "the move names other levels than its places:", out);
    if (r->content[in] == NO_CONTENT || !holds_value(r, &m->source, in))
        return wrong(r, unit, "moves bytes that hold something else than", in);
    r->on_way[*next] = write_range(r, range_of(r, &m->dest, m->bytes), NO_CONTENT, 0);
    r->made[out] = r->used[out] = position;
    if (!holds_value(r, &m->source, in)) return wrong(r, unit, "moves onto itself:", in);
    (*next)++;
    return PL_OK;
}

/* Ends the moves that must have ended before `position`. */
static pl_status end_moves(replay *r, int32_t position, uint32_t begun)
{
    for (uint32_t i = 0; i < begun; i++) {
        const pl_move *m = &r->p->moves[i];
        if (m->end != position) continue;
        uint32_t in = r->units->unit[m->unit].in[0], out = r->units->unit[m->unit].out[0];
        range to = range_of(r, &m->dest, m->bytes);
        if (!holds_value(r, &m->source, in))
            return wrong(r, m->unit, "its source was overwritten on the way:", in);
        if (to.lo < to.hi && pl_check_line_read(&r->line, to.lo, to.hi) != r->on_way[i])
            return wrong(r, m->unit, "its destination was overwritten on the way:", out);
        use(r, in, position - 1);
        use(r, out, position - 1);
        write_range(r, to, out, 0);
    }
    return PL_OK;
}

static pl_status replay_units(replay *r, bool *ran)
{
    const pl_plan *p = r->p;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < p->n_order; i++) {
        uint32_t unit = p->order[i];
        PL_FAIL_IF(unit >= r->units->n, PL_ERR_PLAN,
                   "the plan runs unit %u, which the graph does not have", unit);
        if (ran[unit] || r->units->unit[unit].kind == PL_UNIT_VIEW)
            return wrong(r, unit, "runs twice, or is a view", 0);
        ran[unit] = true;
        if (p->n_moves) PL_TRY(end_moves(r, (int32_t)i, begun));
        PL_TRY(r->units->unit[unit].kind == PL_UNIT_MOVE ? begin_move(r, unit, (int32_t)i, &begun)
                                                         : replay_unit(r, unit, (int32_t)i));
    }
    PL_TRY(end_moves(r, (int32_t)p->n_order, begun));
    PL_FAIL_IF(begun != p->n_moves, PL_ERR_PLAN, "the plan is wrong: %u of %u moves begin", begun,
               p->n_moves);
    for (uint32_t i = 0; i < r->units->n; i++)
        if (!ran[i] && r->units->unit[i].kind != PL_UNIT_VIEW) return wrong(r, i, "never runs", 0);
    return PL_OK;
}

static pl_status replay_end(replay *r, uint32_t *new_value)
{
    const pl_plan *p = r->p;
    const pl_graph *g = r->g;
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const pl_copy *c = &p->copies[i];
        if (!holds_value(r, &c->from, c->val))
            return wrong(r, PL_NO_UNIT, "a copy reads bytes that hold something else than", c->val);
        use(r, c->val, (int32_t)(p->n_order + i));
        write_range(r, range_of(r, &c->to, c->bytes), r->content[c->val], r->off[c->val]);
    }
    uint32_t outputs = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!(pl_node_get(g, n)->op->flags & PL_OP_EFFECT)) continue;
        uint32_t val = pl_node_in(g, n)[0];
        int slot = pl_node_slot(g, n);
        if (slot >= 0) {
            new_value[slot] = val;
            continue;
        }
        if (outputs >= p->n_outputs || p->outputs[outputs].node != n ||
            !holds_value(r, &p->outputs[outputs].place, val))
            return wrong(r, PL_NO_UNIT, "lost output", val);
        use(r, val, (int32_t)p->n_positions - 1);
        outputs++;
    }
    for (uint32_t s = 0; s < r->n_slots; s++) {
        uint32_t v = new_value[s], content = v ? r->content[v] : g->n_vals + s;
        if (!holds(r, slot_range(r, s), content, v ? r->off[v] : 0))
            PL_FAIL(PL_ERR_PLAN, "the plan is wrong: at the end \"%s\" does not hold its %s value",
                    pl_store_slot(g->store, (int)s)->name, v ? "new" : "old");
    }
    return PL_OK;
}

/* ---- the table of buffers --------------------------------------------------------------- */
static int by_offset_and_time(const void *a, const void *b)
{
    const pl_placed_buffer *x = *(const pl_placed_buffer *const *)a,
                           *y = *(const pl_placed_buffer *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Whether some buffer holds [offset, offset+bytes) throughout positions first .. last. Buffers that
 * start at one offset follow each other in time, so only the latest that has begun can. */
static bool covered(const replay *r, uint64_t offset, uint64_t bytes, int32_t first, int32_t last)
{
    uint32_t lo = 0, hi = r->p->n_buffers;
    while (lo < hi) { /* first buffer past (offset, first) */
        uint32_t mid = (lo + hi) / 2;
        const pl_placed_buffer *b = r->by_offset[mid];
        if (b->offset < offset || (b->offset == offset && b->first <= first))
            lo = mid + 1;
        else
            hi = mid;
    }
    /* an empty buffer may share its offset with a real one */
    while (lo && r->by_offset[lo - 1]->offset == offset && r->by_offset[lo - 1]->bytes < bytes)
        lo--;
    const pl_placed_buffer *b = lo ? r->by_offset[lo - 1] : NULL;
    if (b && b->offset == offset && b->bytes >= bytes && b->first <= first && b->last > last)
        return true;
    for (uint32_t i = 0; i < r->p->n_buffers; i++) { /* inside one that starts before it */
        b = &r->p->buffers[i];
        if (b->offset < offset && offset + bytes <= b->offset + b->bytes && b->first <= first &&
            b->last > last)
            return true;
    }
    return false;
}

static pl_status check_buffers(replay *r)
{
    const pl_plan *p = r->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) r->by_offset[i] = &p->buffers[i];
    qsort(r->by_offset, p->n_buffers, sizeof *r->by_offset, by_offset_and_time);
    for (uint32_t v = 1; v < r->g->n_vals; v++) {
        if (r->content[v] != v || p->place[v].space != PL_SPACE_ARENA || !bytes_of(r, v)) continue;
        if (!covered(r, p->place[v].offset, bytes_of(r, v), r->made[v], r->used[v]))
            return wrong(r, PL_NO_UNIT, "no buffer covers the life of", v);
    }
    for (uint32_t i = 0; i < p->n_order; i++) {
        uint32_t u = p->order[i];
        if (p->work_bytes[u] &&
            !covered(r, p->work_offset[u], p->work_bytes[u], (int32_t)i, (int32_t)i))
            return wrong(r, u, "no buffer covers its scratch", 0);
    }
    return PL_OK;
}

/* The line of memory: arena, slots on the device, blocks of the lower levels. */
static void lay_out_line(replay *r)
{
    const pl_homes *h = r->o->homes;
    uint64_t at = r->p->arena_bytes;
    for (uint32_t s = 0; s < r->n_slots; s++) {
        if (pl_home_level(h, (int)s)) continue;
        r->slot_at[s] = at;
        at += pl_slot_bytes(pl_store_slot(r->g->store, (int)s));
    }
    for (int level = 1; level < PL_N_LEVELS; level++) {
        r->level_at[level] = at;
        at += r->p->level_bytes[level];
    }
    for (uint32_t s = 0; s < r->n_slots; s++) {
        uint8_t level = pl_home_level(h, (int)s);
        if (level && level < PL_N_LEVELS) r->slot_at[s] = r->level_at[level] + h->offset[s];
    }
}

static pl_status prepare(replay *r, pl_arena *mem)
{
    const pl_graph *g = r->g;
    const pl_plan *p = r->p;
    r->n_slots = (uint32_t)pl_store_count(g->store);
    size_t ranges =
        (size_t)g->n_vals + r->units->n + 2 * (size_t)p->n_copies + p->n_outputs + r->n_slots + 1;
    r->on_way = pl_arena_new(mem, uint32_t, p->n_moves + 1);
    r->slot_at = pl_arena_new(mem, uint64_t, r->n_slots + 1);
    r->content = pl_arena_new(mem, uint32_t, g->n_vals);
    r->off = pl_arena_new(mem, uint64_t, g->n_vals);
    PL_TRY(pl_check_line_new(mem, ranges, ranges + r->n_slots + p->n_moves + 1, &r->line));
    r->made = pl_arena_new(mem, int32_t, g->n_vals);
    r->used = pl_arena_new(mem, int32_t, g->n_vals);
    r->by_offset = pl_arena_new(mem, const pl_placed_buffer *, p->n_buffers + 1);
    if (!r->on_way || !r->slot_at || !r->content || !r->off || !r->made || !r->used ||
        !r->by_offset)
        return PL_ERR_MEMORY;
    lay_out_line(r);
    PL_TRY(pl_check_bits(r->g, r->units));
    PL_TRY(find_contents(r));
    PL_TRY(find_parts(r, mem));
    PL_TRY(check_homes(r));
    PL_TRY(check_places(r));
    collect_borders(r);
    return PL_OK;
}

pl_status pl_plan_check(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                        const pl_plan *p)
{
    PL_FAIL_IF(p->n_vals != g->n_vals, PL_ERR_PLAN, "the plan belongs to another graph");
    pl_arena mem = PL_ARENA_INIT;
    replay r = {.g = g, .units = units, .o = o, .p = p};
    bool *ran = pl_arena_new(&mem, bool, units->n + 1);
    uint32_t *new_value = pl_arena_new(&mem, uint32_t, pl_store_count(g->store) + 1);
    pl_status rc = ran && new_value ? prepare(&r, &mem) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = replay_start(&r);
    if (rc == PL_OK) rc = replay_units(&r, ran);
    if (rc == PL_OK) rc = replay_end(&r, new_value);
    if (rc == PL_OK) rc = check_buffers(&r);
    pl_arena_release(&mem);
    return rc;
}
