/* recompute_sim.h - shared by the two files of the eviction simulator; see recompute_sim.c.
 *
 *   recompute_sim.c    the run: what is computed, dropped, settled; checkpoints of the state
 *   recompute_score.c  what to drop: the walks behind the scores, and the candidates by score
 */
#ifndef PL_PLAN_RECOMPUTE_SIM_H
#define PL_PLAN_RECOMPUTE_SIM_H

#include "plan/recompute/recompute_heap.h"
#include "plan/recompute/recompute_int.h"

enum {
    PL__SIM_MARKS = 24, /* checkpoints along the order */
    /* Changes that a cached walk may have missed. "More": only drops, so the true score is at least
     * the cached one; "less": a buffer was recomputed, and the score may be lower. */
    PL__SIM_UP_MORE = 1,
    PL__SIM_UP_LESS = 2,
    PL__SIM_DOWN_MORE = 4,
    PL__SIM_DOWN_LESS = 8,
    PL__SIM_DIRTY = PL__SIM_UP_LESS | PL__SIM_DOWN_LESS,
};
#define PL__SIM_NEVER UINT32_MAX

/* The part of the state that a checkpoint saves: pointers into one block. */
typedef struct pl__sim_state {
    uint64_t alive;
    double cost;
    uint32_t n_seq, n_cand, pos;
    uint8_t *have;     /* of each value: exists */
    uint8_t *settled;  /* of each owner: never needed again */
    uint8_t *dirty;    /* of each owner */
    uint32_t *use;     /* of each owner: index of its next use in the model's list */
    uint32_t *next;    /* of each owner: unit of the next use, dropped descendants included */
    uint32_t *cand;    /* owners that may be dropped, unordered */
    uint32_t *cand_at; /* of each owner: its index in cand, or NONE */
    uint16_t *drops;   /* of each owner: number of drops while needed */
    float *up, *down;  /* of each owner: cost of dropped ancestors and itself; descendants */
} pl__sim_state;

struct pl__recompute_sim {
    const pl__recompute *m;
    pl__recompute_setting set;
    uint64_t budget;     /* of this run */
    uint64_t least;      /* smaller buffers are not candidates at first */
    uint64_t mean_bytes; /* of the buffers that may be dropped */
    double cost_limit;
    uint64_t work;
    pl__sim_state st;
    uint8_t *block; /* st's arrays */
    size_t block_bytes;
    bool marks; /* save checkpoints: this run will be repeated with other weights */
    uint32_t n_marks;
    pl__sim_state mark[PL__SIM_MARKS];
    uint8_t *mark_block[PL__SIM_MARKS];
    float *weight;    /* of each owner */
    float *by_size;   /* of each owner: bytes^-B */
    float size_power; /* that by_size was made for */
    float *own;       /* of each owner: cost of its unit, infinite if it must not run again */
    uint32_t *lock;   /* of each owner: serial of the last locking that included it */
    uint32_t locking;
    uint8_t *evictable;               /* of each owner */
    uint32_t *walk_owner, *walk_unit; /* serial of the last walk that saw it */
    uint32_t walk;
    uint32_t *stack;  /* of owners, for walks */
    uint32_t *frames; /* units under way, each waiting for the unit above it */
    uint32_t n_frames;
    uint32_t *first_drop; /* of each owner: order position of its first drop in the last run */
    /* Candidates by a lower bound of their score: large ones, small ones. Candidates whose score
     * may have fallen wait in `touched` for a new key. */
    pl__recompute_heap heap[2];
    uint32_t *touched, n_touched, *held;
    uint8_t *is_touched; /* of each owner */
    pl__recompute_seq seq;
    uint32_t breaks;
    uint16_t *kept_drops; /* of the last successful run */
    pl_arena arena;
};

/* Returns the unit of the next use of owner r at or after the current unit. */
static inline uint32_t pl__sim_next_use(const pl__recompute_sim *s, uint32_t r)
{
    const pl__recompute_list *uses = &s->m->uses;
    uint32_t i = s->st.use[r], end = uses->at[r + 1];
    while (i < end && uses->item[i] < s->st.pos) i++;
    s->st.use[r] = i;
    return i < end ? uses->item[i] : PL__SIM_NEVER;
}

static inline void pl__sim_touch(pl__recompute_sim *s, uint32_t r)
{
    if (s->is_touched[r] || s->st.cand_at[r] == PL_RECOMPUTE_NONE) return;
    s->is_touched[r] = 1;
    s->touched[s->n_touched++] = r;
}

/* Returns the cost of recomputing r at this point: its unit and the units of its dropped
 * ancestors. */
float pl__sim_walk_up(pl__recompute_sim *s, uint32_t r);
/* r was dropped or recomputed: marks dirty the owners whose cached walks pass through it. */
void pl__sim_mark_dirty(pl__recompute_sim *s, uint32_t r, bool gone);
/* Repeats the walks of r that are dirty. */
void pl__sim_refresh(pl__recompute_sim *s, uint32_t r);
/* Returns the unlocked candidate of this heap with the smallest score, or NONE. */
uint32_t pl__sim_pick(pl__recompute_sim *s, pl__recompute_heap *h);

#endif
