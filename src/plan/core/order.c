/* order.c - in which order units run: the best of several orders by exact replay.
 *
 * Bases: the order of the program; list scheduling by least growth (take the unit that frees most
 * and allocates least); depth first from the results, the subtree that needs most first, results in
 * program order and reversed. Each base is then refined in two ways: "eager" keeps the base but
 * immediately runs any ready unit that frees more than it allocates (an optimiser update right
 * after its gradient exists); "late" is its mirror image: it walks backwards and moves a unit that
 * allocates more than it frees to just before its first use (constants, recomputed units,
 * branches). Last, single units move within their slack: around the peak while it falls, then at
 * random while it does not rise. The replay of lifetime.c judges. An earlier order stays unless a
 * later one saves 1/512: the program's own order, which keeps neighbours close in time, is replaced
 * only for a real gain.
 *
 * List, depth-first and post orders judged by simulated peak are what XLA and PyTorch's
 * Inductor do too; larger-need-first is Sethi and Ullman's rule, exact on trees. Cost: about
 * twenty list schedules of O(edges log units), the same number of replays.
 */
#include "base/heap.h"
#include "plan/core/plan_int.h"

#include <string.h>

/* ---- units by a number, smallest first -------------------------------------------------- */
typedef struct item {
    int64_t key;
    uint32_t pos, unit;
} item;

typedef struct heap {
    item *at;
    uint32_t n;
} heap;

static bool before(const void *unused, const item *a, const item *b)
{
    (void)unused;
    return a->key != b->key ? a->key < b->key : a->pos < b->pos;
}
PL_HEAP_DEFINE(items, item, const void *, before)

static void heap_push(heap *h, int64_t key, uint32_t pos, uint32_t unit)
{
    items_push(NULL, h->at, &h->n, (item){key, pos, unit});
}

static item heap_pop(heap *h)
{
    return items_pop(NULL, h->at, &h->n);
}

/* ---- list scheduling, forwards and backwards -------------------------------------------- */
/* Backwards, a unit is placed after its successors, frees what it writes, and allocates the buffers
 * of which it is the last reader (the first one met on the way back). */
typedef struct sched {
    const pl_problem *p;
    bool back;
    const uint32_t *pos; /* base position of each unit, mirrored when back */
    uint32_t *waits;     /* per unit: predecessors (successors) not yet placed */
    int64_t *net;        /* per unit: bytes allocated less bytes freed */
    uint32_t *left;      /* per buffer: forwards, readers to come; backwards, 1 once alive */
    uint32_t *rest;      /* per buffer: xor of the readers to come */
    bool *placed;
    heap ready, gain; /* by position; units that free more than they allocate, by net */
} sched;

static pl_status sched_new(const pl_problem *p, pl_arena *mem, sched *s)
{
    uint32_t n = p->n_units + 1;
    size_t reads = p->reads.start[p->n_units];
    *s = (sched){.p = p,
                 .waits = pl_arena_new(mem, uint32_t, n),
                 .net = pl_arena_new(mem, int64_t, n),
                 .left = pl_arena_new(mem, uint32_t, p->n_buffers + 1),
                 .rest = pl_arena_new(mem, uint32_t, p->n_buffers + 1),
                 .placed = pl_arena_new(mem, bool, n),
                 .ready = {pl_arena_new(mem, item, n), 0},
                 .gain = {pl_arena_new(mem, item, n + reads), 0}};
    bool ok = s->waits && s->net && s->left && s->rest && s->placed && s->ready.at && s->gain.at;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

/* Bytes that writing buffer s adds to the arena: 0 if no unit reads s or s lives in a slot. */
static int64_t written(const pl_problem *p, uint32_t s)
{
    bool wanted = p->buffer[s].pinned || p->readers.start[s + 1] > p->readers.start[s];
    return wanted ? (int64_t)pl_buffer_arena_bytes(&p->buffer[s]) : 0;
}

static void sched_begin(sched *s, bool back, const uint32_t *pos)
{
    const pl_problem *p = s->p;
    s->back = back;
    s->pos = pos;
    s->ready.n = s->gain.n = 0;
    memset(s->placed, 0, p->n_units * sizeof *s->placed);
    for (uint32_t st = 0; st < p->n_buffers; st++) {
        s->left[st] = back ? p->buffer[st].pinned : p->readers.start[st + 1] - p->readers.start[st];
        s->rest[st] = 0;
        for (uint32_t e = p->readers.start[st]; e < p->readers.start[st + 1]; e++)
            s->rest[st] ^= p->readers.list[e];
    }
    const pl_plan_rows *wait = back ? &p->succs : &p->preds;
    for (uint32_t t = 0; t < p->n_units; t++) {
        s->waits[t] = wait->start[t + 1] - wait->start[t];
        s->net[t] = 0;
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++)
            s->net[t] += back ? -written(p, p->writes.list[w]) : written(p, p->writes.list[w]);
        for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
            uint32_t st = p->reads.list[e];
            int64_t bytes = (int64_t)pl_buffer_arena_bytes(&p->buffer[st]);
            if (back && !p->buffer[st].pinned) s->net[t] += bytes;
            if (!back && s->left[st] == 1 && !p->buffer[st].pinned) s->net[t] -= bytes;
        }
    }
}

static void offer(sched *s, uint32_t t, bool greedy)
{
    if (greedy || s->net[t] < 0) heap_push(&s->gain, s->net[t], s->pos[t], t);
}

static void lower_net(sched *s, uint32_t t, int64_t bytes, bool greedy)
{
    if (s->placed[t] || bytes == 0) return;
    s->net[t] -= bytes;
    if (s->waits[t] == 0) offer(s, t, greedy);
}

/* Updates the other readers of what t reads after t was placed. */
static void account(sched *s, uint32_t t, bool greedy)
{
    const pl_problem *p = s->p;
    for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
        uint32_t st = p->reads.list[e];
        int64_t bytes = (int64_t)pl_buffer_arena_bytes(&p->buffer[st]);
        if (p->buffer[st].pinned) continue;
        if (s->back) {
            if (s->left[st]) continue;
            s->left[st] = 1; /* alive from here on: free for the other readers */
            for (uint32_t r = p->readers.start[st]; r < p->readers.start[st + 1]; r++)
                lower_net(s, p->readers.list[r], bytes, greedy);
        } else {
            s->rest[st] ^= t;
            if (--s->left[st] == 1) lower_net(s, s->rest[st], bytes, greedy);
        }
    }
}

/* Places all units. greedy: always the ready unit with the smallest net, ties by position. Else by
 * position, but units that free more than they allocate come first. */
static void sched_run(sched *s, bool greedy, uint32_t *order)
{
    const pl_problem *p = s->p;
    const pl_plan_rows *next = s->back ? &p->preds : &p->succs;
    for (uint32_t t = 0; t < p->n_units; t++) {
        if (s->waits[t]) continue;
        heap_push(&s->ready, 0, s->pos[t], t);
        offer(s, t, greedy);
    }
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t t = PL_NONE;
        while (s->gain.n && t == PL_NONE) {
            item x = heap_pop(&s->gain);
            if (!s->placed[x.unit] && x.key == s->net[x.unit]) t = x.unit;
        }
        while (t == PL_NONE) {
            item x = heap_pop(&s->ready);
            if (!s->placed[x.unit]) t = x.unit;
        }
        s->placed[t] = true;
        order[s->back ? p->n_units - 1 - i : i] = t;
        account(s, t, greedy);
        for (uint32_t e = next->start[t]; e < next->start[t + 1]; e++) {
            uint32_t to = next->list[e];
            if (--s->waits[to]) continue;
            heap_push(&s->ready, 0, s->pos[to], to);
            offer(s, to, greedy);
        }
    }
}

/* ---- depth first ------------------------------------------------------------------------ */
/* Sethi-Ullman on a DAG seen as a tree: bytes needed to make each unit's results, its operands
 * made in the order of falling (need - what stays). */
static void tree_needs(const pl_problem *p, const uint32_t *topo, uint64_t *need, uint64_t *kept)
{
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t t = topo[i];
        uint64_t held = 0, most = 0;
        kept[t] = 0;
        for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++)
            kept[t] += pl_buffer_arena_bytes(&p->buffer[p->writes.list[w]]);
        uint32_t a = p->preds.start[t], n = p->preds.start[t + 1] - a;
        uint32_t *pred = p->preds.list + a;
        for (uint32_t k = 1; k < n && n <= 64; k++) { /* few operands: insertion sort */
            uint32_t x = pred[k], j = k;
            int64_t key = (int64_t)need[x] - (int64_t)kept[x];
            for (; j && (int64_t)need[pred[j - 1]] - (int64_t)kept[pred[j - 1]] < key; j--)
                pred[j] = pred[j - 1];
            pred[j] = x;
        }
        for (uint32_t k = 0; k < n; k++) {
            if (held + need[pred[k]] > most) most = held + need[pred[k]];
            held += kept[pred[k]];
        }
        held += kept[t] + p->work[t];
        need[t] = held > most ? held : most;
    }
}

/* Post-order from the results; preds are sorted by tree_needs. */
static void depth_first(const pl_problem *p, bool reversed, uint32_t *edge, uint32_t *stack,
                        uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < p->n_units; t++) edge[t] = PL_NONE;
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t root = reversed ? p->n_units - 1 - i : i, depth = 0;
        if (p->succs.start[root] != p->succs.start[root + 1] || edge[root] != PL_NONE) continue;
        stack[depth++] = root;
        edge[root] = p->preds.start[root];
        while (depth) {
            uint32_t t = stack[depth - 1];
            if (edge[t] == p->preds.start[t + 1]) {
                order[n++] = t;
                depth--;
                continue;
            }
            uint32_t from = p->preds.list[edge[t]++];
            if (edge[from] != PL_NONE) continue;
            edge[from] = p->preds.start[from];
            stack[depth++] = from;
        }
    }
}

/* ---- the search ------------------------------------------------------------------------- */
typedef struct search {
    const pl_problem *p;
    sched s;
    pl_life life;
    uint32_t *pos, *tmp, *tmp2, *edge, *best;
    uint64_t peak; /* of best */
    const char *name;
} search;

/* Keeps the order if its peak is lower by more than `gain` bytes. */
static bool judge(search *x, const uint32_t *order, const char *name, uint64_t gain)
{
    pl_life_replay(x->p, order, x->peak, &x->life);
    if (x->life.peak >= x->peak - gain) return false;
    x->peak = x->life.peak;
    x->name = name;
    memcpy(x->best, order, x->p->n_units * sizeof *order);
    return true;
}

static void refine(search *x, const uint32_t *base, bool back, uint32_t *out)
{
    uint32_t n = x->p->n_units;
    for (uint32_t i = 0; i < n; i++) x->pos[base[i]] = back ? n - 1 - i : i;
    sched_begin(&x->s, back, x->pos);
    sched_run(&x->s, false, out);
}

/* The base and its four refinements. names: base, eager, late, eager+late, late+eager. */
static void try_base(search *x, uint32_t *base, const char *const names[5])
{
    uint64_t gain = x->peak / 512;
    judge(x, base, names[0], gain);
    refine(x, base, false, x->tmp);
    judge(x, x->tmp, names[1], gain);
    refine(x, x->tmp, true, x->tmp2);
    judge(x, x->tmp2, names[3], gain);
    refine(x, base, true, x->tmp);
    judge(x, x->tmp, names[2], gain);
    refine(x, x->tmp, false, x->tmp2);
    judge(x, x->tmp2, names[4], gain);
}

/* Moves the unit at position `from` to position `to`. */
static void move_unit(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t t = order[from];
    if (from < to) memmove(order + from, order + from + 1, (to - from) * sizeof *order);
    if (to < from) memmove(order + to + 1, order + to, (from - to) * sizeof *order);
    order[to] = t;
}

/* Tries to move one unit across the peak: producers of buffers that no unit reads there move after
 * the peak, readers whose operands are ready move before it. Returns whether the peak fell. */
static bool improve_once(search *x, uint32_t *budget)
{
    const pl_problem *p = x->p;
    uint32_t n = p->n_units;
    pl_life_replay(p, x->best, UINT64_MAX, &x->life);
    uint32_t at = (uint32_t)x->life.peak_position;
    for (uint32_t i = 0; i < n; i++) x->pos[x->best[i]] = i;
    enum { WINDOW = 512 };
    uint32_t lo = at > WINDOW ? at - WINDOW : 0, hi = at + WINDOW < n ? at + WINDOW : n - 1;
    for (uint32_t i = lo; i <= hi && *budget; i++) {
        uint32_t t = x->best[i], to = i;
        if (i <= at) { /* as late as its first successor allows */
            uint32_t first = n;
            for (uint32_t e = p->succs.start[t]; e < p->succs.start[t + 1]; e++)
                if (x->pos[p->succs.list[e]] < first) first = x->pos[p->succs.list[e]];
            to = first - 1;
            if (to <= at || i == at) continue;
        } else { /* as early as its last predecessor allows */
            uint32_t last = 0;
            for (uint32_t e = p->preds.start[t]; e < p->preds.start[t + 1]; e++)
                if (x->pos[p->preds.list[e]] + 1 > last) last = x->pos[p->preds.list[e]] + 1;
            to = last;
            if (to > at) continue;
        }
        (*budget)--;
        memcpy(x->tmp, x->best, n * sizeof *x->tmp);
        move_unit(x->tmp, i, to);
        if (judge(x, x->tmp, "moves", 0)) return true;
    }
    return false;
}

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 32) % n);
}

/* Moves single units at random between their last producer and their first reader, and keeps each
 * move that does not raise the peak: so several moves together may lower it. The result is a less
 * tidy order, which packs and caches worse, so it must save 1 % of the peak. */
static void wander(search *x, uint32_t budget, uint64_t seed)
{
    const pl_problem *p = x->p;
    uint32_t n = p->n_units;
    uint64_t rng = seed * 2 + 1, worth = x->peak - x->peak / 100, peak = x->peak;
    memcpy(x->tmp2, x->best, n * sizeof *x->tmp2); /* its position */
    for (uint32_t i = 0; i < n; i++) x->pos[x->tmp2[i]] = i;
    for (; budget && n > 1; budget--) {
        uint32_t at = draw(&rng, n), t = x->tmp2[at], lo = 0, hi = n - 1;
        for (uint32_t e = p->preds.start[t]; e < p->preds.start[t + 1]; e++)
            if (x->pos[p->preds.list[e]] + 1 > lo) lo = x->pos[p->preds.list[e]] + 1;
        for (uint32_t e = p->succs.start[t]; e < p->succs.start[t + 1]; e++)
            if (x->pos[p->succs.list[e]] - 1 < hi) hi = x->pos[p->succs.list[e]] - 1;
        uint32_t to = lo + draw(&rng, hi - lo + 1);
        if (to == at) continue;
        move_unit(x->tmp2, at, to);
        pl_life_replay(p, x->tmp2, peak, &x->life);
        if (x->life.peak == UINT64_MAX) {
            move_unit(x->tmp2, to, at);
            continue;
        }
        uint32_t first = at < to ? at : to, last = at < to ? to : at;
        for (uint32_t i = first; i <= last; i++) x->pos[x->tmp2[i]] = i;
        if (x->life.peak >= peak) continue;
        peak = x->life.peak;
        if (peak > worth) continue;
        x->peak = peak;
        x->name = "moves";
        memcpy(x->best, x->tmp2, n * sizeof *x->best);
    }
}

static pl_status search_new(const pl_problem *p, pl_arena *mem, uint32_t *order, search *x)
{
    uint32_t n = p->n_units + 1;
    *x = (search){.p = p,
                  .pos = pl_arena_new(mem, uint32_t, n),
                  .tmp = pl_arena_new(mem, uint32_t, n),
                  .tmp2 = pl_arena_new(mem, uint32_t, n),
                  .edge = pl_arena_new(mem, uint32_t, n),
                  .best = order,
                  .peak = UINT64_MAX,
                  .name = "program"};
    if (!x->pos || !x->tmp || !x->tmp2 || !x->edge) return PL_ERR_MEMORY;
    PL_TRY(sched_new(p, mem, &x->s));
    return pl_life_new(p, mem, &x->life);
}

/* The order in which the graph was written, as far as the order of slots allows it. */
static void program_order(search *x, uint32_t *out)
{
    const pl_problem *p = x->p;
    for (uint32_t t = 0; t < p->n_units; t++) x->pos[t] = t;
    sched_begin(&x->s, false, x->pos);
    memset(x->s.net, 0, p->n_units * sizeof *x->s.net);
    for (uint32_t s = 0; s < p->n_buffers; s++) x->s.left[s] = UINT32_MAX; /* nothing ever frees */
    sched_run(&x->s, false, out);
}

static void try_all(search *x, uint32_t *base, uint32_t *topo, pl_arena *mem, uint64_t *needs)
{
    static const char *const names[4][5] = {
        {"program", "program+eager", "program+late", "program+eager+late", "program+late+eager"},
        {"greedy", "greedy+eager", "greedy+late", "greedy+eager+late", "greedy+late+eager"},
        {"depth", "depth+eager", "depth+late", "depth+eager+late", "depth+late+eager"},
        {"rdepth", "rdepth+eager", "rdepth+late", "rdepth+eager+late", "rdepth+late+eager"}};
    const pl_problem *p = x->p;
    uint32_t n = p->n_units;
    (void)mem;
    try_base(x, topo, names[0]);
    for (uint32_t i = 0; i < n; i++) x->pos[topo[i]] = i;
    sched_begin(&x->s, false, x->pos);
    sched_run(&x->s, true, base);
    try_base(x, base, names[1]);
    tree_needs(p, topo, needs, needs + n);
    for (int reversed = 0; reversed < 2; reversed++) {
        depth_first(p, reversed, x->edge, x->tmp, base);
        try_base(x, base, names[2 + reversed]);
    }
    /* Replays, so that they take about 50 ms together. */
    uint32_t budget = n < 900 ? 1000 : 1000000u / (n + 100), walk = budget;
    while (budget && improve_once(x, &budget)) continue;
    wander(x, walk, p->opts->seed);
}

static bool is_exchange(const pl_problem *p, uint32_t unit)
{
    const pl_unit *u = &p->units->unit[p->unit_id[unit]];
    return u->kind == PL_UNIT_KERNEL && (pl_node_get(p->g, u->nodes[0])->op->flags & PL_OP_RANKS);
}

/* Whether an exchange returns more bytes than it sends. */
static bool grows(const pl_problem *p, uint32_t unit)
{
    const pl_node_rec *r = pl_node_get(p->g, p->units->unit[p->unit_id[unit]].nodes[0]);
    return pl_type_bytes(pl_type_of(p->g, r->out)) >
           pl_type_bytes(pl_type_of(p->g, p->g->edges[r->in]));
}

/* Moves the unit in x->tmp to right after its last producer, but not before position `floor`;
 * x->pos holds the positions of units there. */
static void hoist(search *x, uint32_t unit, uint32_t floor)
{
    const pl_problem *p = x->p;
    uint32_t to = floor;
    for (uint32_t e = p->preds.start[unit]; e < p->preds.start[unit + 1]; e++)
        if (x->pos[p->preds.list[e]] + 1 > to) to = x->pos[p->preds.list[e]] + 1;
    if (to >= x->pos[unit]) return;
    move_unit(x->tmp, x->pos[unit], to);
    for (uint32_t k = 0; k < p->n_units; k++) x->pos[x->tmp[k]] = k;
}

/* Moves an exchange up, and with `feeds` first the units that it reads. Keeps the order if its peak
 * is not higher, and returns whether it did. */
static bool try_hoist(search *x, uint32_t unit, bool feeds, uint32_t floor)
{
    const pl_problem *p = x->p;
    memcpy(x->tmp, x->best, p->n_units * sizeof *x->tmp);
    for (uint32_t k = 0; k < p->n_units; k++) x->pos[x->tmp[k]] = k;
    for (uint32_t e = p->preds.start[unit]; feeds && e < p->preds.start[unit + 1]; e++)
        if (!is_exchange(p, p->preds.list[e])) hoist(x, p->preds.list[e], 0);
    hoist(x, unit, floor);
    if (memcmp(x->tmp, x->best, p->n_units * sizeof *x->tmp) == 0) return true;
    pl_life_replay(p, x->tmp, x->peak, &x->life);
    if (x->life.peak > x->peak) return false;
    memcpy(x->best, x->tmp, p->n_units * sizeof *x->tmp);
    return true;
}

/* Moves exchanges between ranks up, so that they overlap with computation. An exchange starts as
 * soon as the values that it sends exist, and its bucket is filled as soon as the tensors exist,
 * where that does not raise the peak; where it does, the exchange starts some units before its
 * result is read. Where the result is larger than what is sent, the units that the exchange reads
 * stay in place: new weights that arrive before the old ones are used up would fill the arena.
 * Gathers of weights, which wait for nothing, keep their order: one runs after the other, and a
 * weight that is needed late must not delay a weight that is needed early. All ranks compute the
 * same order. */
static void hoist_exchanges(search *x)
{
    static const uint32_t ahead[] = {UINT32_MAX, 64, 16, 4};
    const pl_problem *p = x->p;
    uint32_t last = UINT32_MAX;
    if (!p->units) return; /* a problem of bare units has no exchanges */
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint32_t unit = x->best[i], behind = 0;
        if (!is_exchange(p, unit)) continue;
        bool waits = p->preds.start[unit] < p->preds.start[unit + 1];
        for (uint32_t k = 0; !waits && last != UINT32_MAX && k < i; k++)
            if (x->best[k] == last) behind = k + 1;
        bool done = !grows(p, unit) && try_hoist(x, unit, true, behind);
        for (size_t k = 0; k < sizeof ahead / sizeof *ahead && !done; k++)
            done = try_hoist(x, unit, false,
                             i > ahead[k] && i - ahead[k] > behind ? i - ahead[k] : behind);
        if (!waits) last = unit;
    }
}

/* Computes the peak of an order in which every output has its own bytes. */
static pl_status peak_without_in_place(const pl_problem *p, const uint32_t *order, pl_arena *mem,
                                       uint64_t *peak)
{
    pl_problem q = *p;
    pl_life life;
    q.in_place_start = pl_arena_new(mem, uint32_t, p->n_units + 1);
    if (!q.in_place_start) return PL_ERR_MEMORY;
    PL_TRY(pl_life_new(&q, mem, &life));
    pl_life_replay(&q, order, UINT64_MAX, &life);
    *peak = life.peak;
    return PL_OK;
}

pl_status pl_order_search(const pl_problem *p, uint32_t *order, const char **name,
                          uint64_t *program_peak, uint64_t *own_peak)
{
    pl_arena scratch = PL_ARENA_INIT;
    search x;
    pl_status rc = search_new(p, &scratch, order, &x);
    uint32_t *base = pl_arena_new(&scratch, uint32_t, p->n_units + 1);
    uint32_t *topo = pl_arena_new(&scratch, uint32_t, p->n_units + 1);
    uint64_t *needs = pl_arena_new(&scratch, uint64_t, 2 * (size_t)p->n_units + 1);
    if (rc == PL_OK && (!base || !topo || !needs)) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) {
        program_order(&x, topo);
        judge(&x, topo, "program", 0);
        *program_peak = x.peak;
        rc = peak_without_in_place(p, topo, &scratch, own_peak);
    }
    if (rc == PL_OK) {
        if (!p->opts->program_order && p->n_units) try_all(&x, base, topo, &scratch, needs);
        if (!p->opts->program_order) hoist_exchanges(&x);
        *name = x.name;
    }
    pl_arena_release(&scratch);
    return rc;
}
