/* moves.c - values below the device: their offsets, and the list of moves (M14).
 *
 * A level's block has the slots that live there first (pl_homes), then the moved values of a run,
 * packed by their lifetimes like the arena. A moved value is alive at its level from the position
 * of the move that takes it there to the end of the last move that reads it.
 *
 * Invariant: offsets and sizes are multiples of PL_LEVEL_ALIGN. Cost: one packing per level.
 */
#include "plan/core/plan_int.h"
#include "plan/pack/pack.h"

/* Returns whether a buffer needs separate bytes in a level's block. */
static bool is_moved(const pl_buffer *b, int level)
{
    return b->level == level && b->old_slot < 0 && b->direct < 0;
}

static pl_status place_level(const pl_problem *q, const pl_life *l, int level, pl_plan *p,
                             pl_arena *scratch, uint64_t *at)
{
    uint32_t n = 0, *which = pl_arena_new(scratch, uint32_t, q->n_buffers + 1);
    pl_pack_buffer *b = pl_arena_new(scratch, pl_pack_buffer, q->n_buffers + 1);
    uint64_t base = q->opts->homes ? q->opts->homes->bytes[level] : 0, height = 0;
    if (!which || !b) return PL_ERR_MEMORY;
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        if (!is_moved(&q->buffer[s], level)) continue;
        int32_t last = l->last[s] > l->first[s] ? l->last[s] : l->first[s] + 1;
        which[n] = s;
        b[n++] = (pl_pack_buffer){l->first[s], last, pl_level_round_up(q->buffer[s].bytes), 0};
    }
    pl_pack_opts o = PL_PACK_OPTS_INIT;
    o.align = PL_LEVEL_ALIGN;
    o.off = PL_PACK_NO_EXACT;
    o.work = 2000000;
    o.time_limit_s = q->opts->seconds;
    o.stop = q->opts->stop;
    o.seed = q->opts->seed;
    if (n) PL_TRY(pl_pack_bound(b, n, PL_LEVEL_ALIGN, &o.target));
    if (n) PL_TRY(pl_pack(b, n, &o, &height));
    for (uint32_t i = 0; i < n; i++) at[which[i]] = base + b[i].offset;
    p->level_bytes[level] = base + height;
    return PL_OK;
}

pl_status pl_plan_place_moved(const pl_problem *q, const pl_life *l, pl_plan *p, pl_arena *scratch,
                              uint64_t **level_at)
{
    *level_at = NULL;
    if (!q->units->level) return PL_OK;
    *level_at = pl_arena_new(scratch, uint64_t, q->n_buffers + 1);
    if (!*level_at) return PL_ERR_MEMORY;
    for (int level = 1; level < PL_N_LEVELS; level++)
        PL_TRY(place_level(q, l, level, p, scratch, *level_at));
    return PL_OK;
}

/* Fills in the moves in their order. number: per unit that is a move, 1 + its number. */
static void list_moves(const pl_problem *q, pl_plan *p, uint32_t *number)
{
    const uint8_t *level = q->units->level;
    for (uint32_t i = 0; i < p->n_order; i++) {
        uint32_t id = p->order[i];
        const pl_unit *u = &q->units->unit[id];
        if (u->kind != PL_UNIT_MOVE) continue;
        uint8_t from = level[u->in[0]], to = level[u->out[0]];
        uint32_t made_by = q->units->unit_of[u->in[0]];
        p->moves[p->n_moves++] = (pl_move){.unit = id,
                                           .from = from,
                                           .to = to,
                                           .channel = (uint8_t)pl_channel_between(from, to),
                                           .begin = (int32_t)i,
                                           .end = (int32_t)q->opts->move_end[id],
                                           .source = p->place[u->in[0]],
                                           .dest = p->place[u->out[0]],
                                           .bytes = pl_stored_bytes(q->g, q->units->bits, u->in[0]),
                                           .after = made_by ? number[made_by - 1] : 0};
        number[id] = p->n_moves;
    }
}

pl_status pl_plan_list_moves(const pl_problem *q, pl_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_order; i++) n += q->units->unit[p->order[i]].kind == PL_UNIT_MOVE;
    if (!n) return PL_OK;
    PL_FAIL_IF(!q->units->level || !q->opts->move_end, PL_ERR_PLAN,
               "the plan has moves, but no levels or no ends of moves");
    pl_arena scratch = PL_ARENA_INIT;
    uint32_t *number = pl_arena_new(&scratch, uint32_t, q->units->n + 1);
    p->moves = pl_arena_new(&p->mem, pl_move, n);
    bool room = number && p->moves;
    if (room) list_moves(q, p, number);
    pl_arena_release(&scratch);
    return room ? PL_OK : PL_ERR_MEMORY;
}
