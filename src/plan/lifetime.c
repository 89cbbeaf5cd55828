/* lifetime.c - what an order means for memory: who is alive when, who takes over whose bytes.
 *
 * A storage is born at its producer (an input at step 0) and dies after its last reader; pinned ones
 * live on past the last task. Where the op allows it and an input dies at its task, an output of
 * the same size takes over its bytes: the two are one buffer then, named by its first storage (the
 * root). One replay is O(tasks + reads), so that many orders can be tried.
 */
#include "plan/plan_int.h"

pl_status pl_life_new(const pl_problem *p, pl_arena *mem, pl_life *out)
{
    out->root = pl_arena_new(mem, uint32_t, p->n_st + 1);
    out->left = pl_arena_new(mem, uint32_t, p->n_st + 1);
    out->first = pl_arena_new(mem, int32_t, p->n_st + 1);
    out->last = pl_arena_new(mem, int32_t, p->n_st + 1);
    return out->root && out->left && out->first && out->last ? PL_OK : PL_ERR_MEMORY;
}

/* Everything as it is before the first task; returns the bytes alive. */
static uint64_t begin(const pl_problem *p, pl_life *l)
{
    uint64_t alive = 0;
    for (uint32_t s = 0; s < p->n_st; s++) {
        l->root[s] = s;
        l->left[s] = p->readers.start[s + 1] - p->readers.start[s];
        l->first[s] = 0;
        l->last[s] = 0;
        if (p->st[s].producer == PL_NONE) alive += pl_storage_arena(&p->st[s]);
    }
    return alive;
}

/* Input `in` dies at this task and is memory of the arena. */
static bool can_give(const pl_problem *p, const pl_life *l, uint32_t in)
{
    return l->left[in] == 1 && !p->st[in].pinned && pl_storage_arena(&p->st[in]) > 0;
}

void pl_life_replay(const pl_problem *p, const uint32_t *order, uint64_t limit, pl_life *l)
{
    uint64_t alive = begin(p, l), unread = 0;
    for (uint32_t s = 0; s < p->n_st; s++) /* an input nobody reads: only until the run begins */
        if (p->st[s].producer == PL_NONE && !l->left[s] && !p->st[s].pinned) {
            unread += pl_storage_arena(&p->st[s]);
            l->last[s] = 1;
        }
    l->peak = alive;
    l->peak_step = 0;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        uint32_t t = order[i];
        int32_t now = (int32_t)i;
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++) {
            uint32_t s = p->writes.list[w];
            l->first[s] = now;
            l->last[s] = now + 1;
        }
        uint64_t born = 0, dead = 0;
        for (uint32_t k = p->take_start[t]; k < p->take_start[t + 1]; k++) {
            uint32_t in = p->takes[k].in, out = p->takes[k].out;
            if (!can_give(p, l, in) || p->st[out].direct >= 0 || l->root[out] != out) continue;
            l->root[out] = l->root[in];
            l->left[in] = 0; /* gone: neither given twice nor freed below */
        }
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++) {
            uint32_t s = p->writes.list[w];
            if (l->root[s] == s) born += pl_storage_arena(&p->st[s]);
            if (!l->left[s] && !p->st[s].pinned) dead += pl_storage_arena(&p->st[s]);
            l->last[l->root[s]] = now + 1;
        }
        for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
            uint32_t s = p->reads.list[e];
            l->last[l->root[s]] = now + 1;
            if (l->left[s] && --l->left[s] == 0 && !p->st[s].pinned)
                dead += pl_storage_arena(&p->st[s]);
        }
        alive += born;
        if (alive + p->work[t] > l->peak) {
            l->peak = alive + p->work[t];
            l->peak_step = now;
            if (l->peak > limit) {
                l->peak = UINT64_MAX;
                return;
            }
        }
        alive -= dead;
        if (i == 0) alive -= unread;
    }
}
