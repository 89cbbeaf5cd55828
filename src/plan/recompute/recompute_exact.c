/* recompute_exact.c - the optimum of small problems by best-first search.
 *
 * A state is the number of units of the order that are done, and which values exist, as bits. From
 * a state, the next unit of the order, or any repetition that produces a missing value, may run if
 * its inputs exist. To make room, the search branches over every minimal set of buffers whose bytes
 * suffice. Dropping less, or earlier, never helps, so this loses no plan. Values that can never be
 * needed again are cleared from a state at once, so that equal states are recognised.
 *
 * States are ordered by the cost of repetition so far plus the cost still due, ties by progress.
 * Certainly due is every unit whose missing result a later first run or the end needs, and every
 * unit whose missing result one of those units needs: each runs at least once more.
 *
 * Invariant: the bound never falls by more than a unit's cost when that unit runs, so the first
 * plan found is the cheapest. A state whose sum is not below the best plan known is not kept; if
 * the states run out before the limit, the best plan is proven optimal. Cost: exponential in the
 * worst case; limited by the number of states, for problems of at most 64 values.
 *
 * Example (recompute.h), budget 8: {A done: a}, {B: a b}, {C: a b}; D needs 4 bytes more, so a is
 * dropped: {D: b d}, due A: 1; b is cleared, since no later unit needs it: {D: d}. E misses a: A
 * runs, {D: a d}, cost 1; E runs. The first plan found is A B C D A E.
 */
#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "base/sys.h"
#include "plan/recompute/recompute_int.h"

enum {
    MAX_BITS = 64,  /* values that are not pinned */
    MAX_UNITS = 48, /* beyond this, there are too many states */
    MAX_STATES = 1 << 18,
    DESPERATE = 8,      /* factor on the limits while no plan is known */
    MAX_SETS = 4096,    /* minimal sets tried for one computation */
    MAX_WORK = 6000000, /* sets begun and states reached in all: about 0.2 s */
};

typedef struct node {
    uint64_t mask;
    double cost;       /* of the repetitions so far */
    double total;      /* plus the cost still due */
    uint32_t parent;   /* node before, NONE for the first */
    uint8_t pos, unit; /* units of the order done; unit that led here */
    bool done;         /* taken from the heap */
} node;

typedef struct exact {
    pl__recompute_best *b;
    const pl__recompute *m;
    uint32_t n_bits;
    uint32_t bit[MAX_BITS]; /* bit to value */
    uint64_t bytes[MAX_BITS];
    uint64_t in[MAX_UNITS], out[MAX_UNITS]; /* bits read and written by each unit */
    uint64_t fixed[MAX_UNITS + 1];          /* pinned bytes while unit i first runs */
    uint64_t useful[MAX_UNITS + 1]; /* bits that may still be needed when i units are done */
    uint64_t wanted[MAX_UNITS + 1]; /* bits made by then that first runs or the end need */
    uint64_t end_bits;
    uint64_t views[MAX_BITS];      /* bits of the views of an owner */
    uint64_t owners;               /* bits that are not views */
    uint64_t stays[MAX_UNITS + 1]; /* bits that cannot be recomputed and will be read */
    node *nodes;
    uint32_t n_nodes, max_nodes;
    uint32_t *cells; /* hash table, twice max_nodes: node + 1, 0 for empty */
    uint32_t *heap;
    uint32_t n_heap, cap_heap;
    double limit; /* cost of repetition of the best plan */
    uint32_t goal;
    bool full;    /* a limit was met: stop */
    bool partial; /* not all sets were tried: nothing is proven */
    uint32_t n_sets, work, max_work;
} exact;

/* ---- the problem as bits ---------------------------------------------------------------- */
static bool number_bits(exact *x, uint32_t *bit_of)
{
    const pl__recompute *m = x->m;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        bit_of[v] = PL_RECOMPUTE_NONE;
        if (m->pinned[m->owner[v]] && m->owner[v] == v) continue;
        if (x->n_bits == MAX_BITS) return false;
        x->bytes[x->n_bits] = m->bytes[v];
        x->bit[x->n_bits] = v;
        if (m->owner[v] == v) x->owners |= (uint64_t)1 << x->n_bits;
        if (m->end[v]) x->end_bits |= (uint64_t)1 << x->n_bits;
        bit_of[v] = x->n_bits++;
    }
    for (uint32_t i = 0; i < x->n_bits; i++) {
        uint32_t r = bit_of[m->owner[x->bit[i]]];
        if (r != i && r != PL_RECOMPUTE_NONE) x->views[r] |= (uint64_t)1 << i;
    }
    return true;
}

/* Needed when i units are done: values that later units read, values that must exist at the end,
 * and values from which these could be recomputed. */
static void set_useful(exact *x)
{
    const pl__recompute *m = x->m;
    for (uint32_t i = 0; i <= m->n_units; i++) {
        uint64_t read = x->end_bits, useful;
        for (uint32_t unit = i; unit < m->n_units; unit++) read |= x->in[unit];
        useful = read;
        for (uint32_t unit = m->n_units; unit-- > 0;)
            if (unit < i && !m->once[unit] && useful & x->out[unit]) useful |= x->in[unit];
        x->useful[i] = useful;
        for (uint32_t unit = 0; unit < i; unit++) x->wanted[i] |= read & x->out[unit];
        for (uint32_t k = 0; k < x->n_bits; k++) {
            uint32_t w = m->writer[x->bit[k]];
            if (w == PL_RECOMPUTE_NONE || m->once[w]) x->stays[i] |= read & (uint64_t)1 << k;
        }
    }
}

static bool set_up(exact *x, uint32_t *bit_of)
{
    const pl__recompute *m = x->m;
    const pl_recompute_problem *p = m->p;
    if (m->n_units > MAX_UNITS || !number_bits(x, bit_of)) return false;
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->pinned[v] && m->owner[v] == v && m->writer[v] == PL_RECOMPUTE_NONE)
            x->fixed[0] += m->bytes[v];
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        x->fixed[unit + 1] = x->fixed[unit];
        for (uint32_t i = m->in.at[unit]; i < m->in.at[unit + 1]; i++) {
            uint32_t v = m->in.item[i];
            if (bit_of[v] != PL_RECOMPUTE_NONE) x->in[unit] |= (uint64_t)1 << bit_of[v];
        }
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            uint32_t v = p->out[i];
            if (bit_of[v] != PL_RECOMPUTE_NONE)
                x->out[unit] |= (uint64_t)1 << bit_of[v];
            else
                x->fixed[unit + 1] += m->bytes[v];
        }
    }
    set_useful(x);
    return true;
}

static uint64_t bytes_of(const exact *x, uint64_t mask)
{
    uint64_t sum = 0;
    for (; mask; mask &= mask - 1) sum += x->bytes[__builtin_ctzll(mask)];
    return sum;
}

/* ---- states ----------------------------------------------------------------------------- */
static bool goes_before(const exact *x, const uint32_t *a, const uint32_t *b)
{
    const node *p = &x->nodes[*a], *q = &x->nodes[*b];
    if (p->total != q->total) return p->total < q->total;
    if (p->pos != q->pos) return p->pos > q->pos;
    return *a < *b;
}
PL_HEAP_DEFINE(nodes, uint32_t, const exact *, goes_before)

static pl_status heap_push(exact *x, uint32_t n)
{
    if (x->n_heap == x->cap_heap) {
        uint32_t cap = x->cap_heap * 2 + 1024;
        uint32_t *h = pl_sys_realloc(x->heap, x->cap_heap * sizeof *h, cap * sizeof *h);
        if (!h) return PL_ERR_MEMORY;
        x->heap = h;
        x->cap_heap = cap;
    }
    nodes_push(x, x->heap, &x->n_heap, n);
    return PL_OK;
}

static uint32_t find_cell(const exact *x, uint32_t pos, uint64_t mask)
{
    uint64_t h = (mask ^ (uint64_t)pos << 57) * 0x9e3779b97f4a7c15u;
    uint32_t last = 2 * x->max_nodes - 1, c = (uint32_t)(h >> 36) & last;
    for (; x->cells[c]; c = (c + 1) & last) {
        const node *n = &x->nodes[x->cells[c] - 1];
        if (n->mask == mask && n->pos == pos) break;
    }
    return c;
}

/* Returns the cost of repetitions that are certainly due. */
static double due(const exact *x, uint32_t pos, uint64_t mask)
{
    uint64_t missing = x->wanted[pos] & ~mask;
    double sum = 0;
    for (uint32_t unit = pos; missing && unit-- > 0;) {
        if (!(x->out[unit] & missing)) continue;
        sum += x->m->cost[unit];
        missing = (missing & ~x->out[unit]) | (x->in[unit] & ~mask);
    }
    return sum;
}

/* Reaches a state; keeps it if it is new or cheaper than before. A cheaper way to a state makes a
 * second node, so that nodes in the heap never change. */
static pl_status reach(exact *x, uint32_t from, uint32_t unit, uint32_t pos, uint64_t mask,
                       double cost)
{
    x->work += 4;
    mask &= x->useful[pos];
    double total = cost + due(x, pos, mask);
    if (total >= x->limit) return PL_OK;
    uint32_t c = find_cell(x, pos, mask);
    if (x->cells[c]) {
        node *old = &x->nodes[x->cells[c] - 1];
        if (old->cost <= cost) return PL_OK;
        old->done = true;
    }
    if (x->n_nodes == x->max_nodes) {
        x->full = true;
        return PL_OK;
    }
    uint32_t n = x->n_nodes++;
    x->nodes[n] = (node){.mask = mask,
                         .cost = cost,
                         .total = total,
                         .parent = from,
                         .pos = (uint8_t)pos,
                         .unit = (uint8_t)unit};
    x->cells[c] = n + 1;
    return heap_push(x, n);
}

/* ---- moves ------------------------------------------------------------------------------ */
typedef struct move {
    uint32_t from, unit, pos;
    uint64_t mask; /* before dropping */
    double cost;
    uint64_t gone; /* bytes that must go */
    uint32_t n;
    uint8_t bit[MAX_BITS]; /* what may go */
} move;

static pl_status finish_move(exact *x, const move *v, uint64_t dropped)
{
    uint64_t out = x->out[v->unit], stale = 0;
    for (uint64_t o = out & x->owners; o; o &= o - 1) stale |= x->views[__builtin_ctzll(o)];
    for (uint64_t d = dropped; d; d &= d - 1) stale |= x->views[__builtin_ctzll(d)];
    uint64_t mask = (v->mask & ~dropped & ~stale) | out;
    return reach(x, v->from, v->unit, v->pos, mask, v->cost);
}

/* Tries every minimal set of the items from i on that frees the missing bytes. Depth is at most the
 * number of bits. */
static pl_status try_sets(exact *x, const move *v, uint32_t i, uint64_t dropped, uint64_t freed,
                          uint64_t left)
{
    if (freed >= v->gone) {
        for (uint64_t d = dropped; d; d &= d - 1)
            if (freed - x->bytes[__builtin_ctzll(d)] >= v->gone) return PL_OK;
        if (x->n_sets++ >= MAX_SETS) {
            x->partial = true;
            return PL_OK;
        }
        return finish_move(x, v, dropped);
    }
    x->work++;
    if (i == v->n || freed + left < v->gone || x->n_sets >= MAX_SETS) return PL_OK;
    uint64_t bytes = x->bytes[v->bit[i]];
    PL_TRY(try_sets(x, v, i + 1, dropped | (uint64_t)1 << v->bit[i], freed + bytes, left - bytes));
    return try_sets(x, v, i + 1, dropped, freed, left - bytes);
}

static pl_status try_unit(exact *x, uint32_t from, uint32_t unit)
{
    const node n = x->nodes[from];
    bool next = unit == n.pos;
    if (x->in[unit] & ~n.mask) return PL_OK;
    if (!next && (x->m->once[unit] || !(x->out[unit] & ~n.mask & x->useful[n.pos]))) return PL_OK;
    move v = {.from = from,
              .unit = unit,
              .pos = n.pos + next,
              .mask = n.mask,
              .cost = n.cost + (next ? 0 : x->m->cost[unit])};
    if (v.cost >= x->limit) return PL_OK;
    uint64_t need =
        x->fixed[v.pos] + bytes_of(x, n.mask | x->out[unit]) + pl__recompute_work(x->m, unit);
    if (need <= x->b->budget) return finish_move(x, &v, 0);
    v.gone = need - x->b->budget;
    uint64_t may = n.mask & x->owners & ~x->in[unit] & ~x->out[unit] & ~x->stays[n.pos], left = 0;
    for (uint64_t i = x->in[unit]; i; i &= i - 1) { /* views keep their owners alive */
        for (uint32_t r = 0; r < x->n_bits; r++)
            if (x->views[r] & i & -i) may &= ~((uint64_t)1 << r);
    }
    for (; may; may &= may - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(may);
        if (!x->bytes[bit]) continue;
        v.bit[v.n++] = (uint8_t)bit;
        left += x->bytes[bit];
    }
    x->n_sets = 0;
    return try_sets(x, &v, 0, 0, 0, left);
}

static bool is_goal(const exact *x, const node *n)
{
    return n->pos == x->m->n_units && !(x->end_bits & ~n->mask);
}

static pl_status expand(exact *x)
{
    uint64_t start = 0;
    for (uint32_t i = 0; i < x->n_bits; i++)
        if (x->m->writer[x->bit[i]] == PL_RECOMPUTE_NONE) start |= (uint64_t)1 << i;
    PL_TRY(reach(x, PL_RECOMPUTE_NONE, 0, 0, start, 0));
    while (x->n_heap) {
        uint32_t n = nodes_pop(x, x->heap, &x->n_heap);
        if (x->nodes[n].done) continue;
        x->nodes[n].done = true;
        if (is_goal(x, &x->nodes[n])) {
            x->goal = n;
            return PL_OK;
        }
        if (x->work > x->max_work || ((n & 1023) == 0 && pl__recompute_late(x->b))) x->full = true;
        if (x->full) return PL_OK;
        uint32_t last = x->nodes[n].pos + (x->nodes[n].pos < x->m->n_units ? 1u : 0u);
        for (uint32_t unit = last; unit-- > 0;) PL_TRY(try_unit(x, n, unit));
    }
    return PL_OK;
}

static pl_status offer_goal(exact *x)
{
    pl__recompute_seq s = {0};
    pl_status status = PL_OK;
    for (uint32_t n = x->goal; x->nodes[n].parent != PL_RECOMPUTE_NONE && status == PL_OK;
         n = x->nodes[n].parent)
        status = pl__recompute_seq_push(&s, x->nodes[n].unit);
    for (uint32_t i = 0; i < s.n / 2; i++) {
        uint32_t t = s.unit[i];
        s.unit[i] = s.unit[s.n - 1 - i];
        s.unit[s.n - 1 - i] = t;
    }
    if (status == PL_OK) status = pl__recompute_offer(x->b, s.unit, s.n, "exact", NULL);
    pl__recompute_seq_release(&s);
    return status;
}

pl_status pl__recompute_exact(pl__recompute_best *b)
{
    if (b->m->n_units > MAX_UNITS || b->m->n_vals > 4 * MAX_BITS) return PL_OK;
    exact *x = pl_sys_alloc(sizeof *x);
    uint32_t *bit_of = pl_sys_alloc((b->m->n_vals + 1) * sizeof *bit_of);
    pl_status s = x && bit_of ? PL_OK : PL_ERR_MEMORY;
    if (s == PL_OK) {
        x->b = b;
        x->m = b->m;
        x->goal = PL_RECOMPUTE_NONE;
        uint32_t times = b->seq.n || b->any ? 1 : DESPERATE;
        x->max_work = MAX_WORK * times;
        x->max_nodes = MAX_STATES * times;
        /* The margin prevents sums in another order from looking like a gain. */
        x->limit = b->seq.n ? (b->seq.cost - b->m->base_cost) * (1 - 1e-9) : HUGE_VAL;
        if (!set_up(x, bit_of)) goto out;
        x->nodes = pl_sys_alloc(x->max_nodes * sizeof *x->nodes);
        x->cells = pl_sys_alloc(2 * (size_t)x->max_nodes * sizeof *x->cells);
        s = x->nodes && x->cells ? expand(x) : PL_ERR_MEMORY;
    }
    if (s == PL_OK && x->goal != PL_RECOMPUTE_NONE) s = offer_goal(x);
    if (s == PL_OK && !x->full && !x->partial) b->optimal = true;
out:
    if (x) {
        pl_sys_free(x->nodes);
        pl_sys_free(x->cells);
        pl_sys_free(x->heap);
    }
    pl_sys_free(x);
    pl_sys_free(bit_of);
    return s;
}
