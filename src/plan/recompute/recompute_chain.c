/* recompute_chain.c - a dynamic program over the cut points of a training step.
 *
 * The order is read as a forward part up to the unit where keeping everything takes most bytes, and
 * a backward part. A cut is a unit of the forward part after which no later forward unit reads
 * anything older: its output is the "state". Cuts split the forward part into segments; a backward
 * unit belongs to the lowest segment that it or a unit before it reads from.
 *
 *     state 0  [segment 0]  state 1  [segment 1]  state 2 ... [segment n: the turning point]
 *
 * C(i,j,m) is the smallest cost of running segments i..j-1 forward and backward with state i held
 * and m bytes besides (Beaumont et al., rotor; on a uniform chain it is Griewank and Walther's
 * Revolve, so that the number of steps is optimal there):
 *
 *     one segment     its own tape:                                     tape cost
 *     keep the tape   run i, keep what its backward reads:  f(i) + C(i+1, j, m - tape - state)
 *     keep a state    run to k, keep state k only:   f(i..k-1) + C(k, j, m - state) + C(i, k, m)
 *
 * Bytes are counted in slots, rounded up, and the live ranges inside segments are those of the
 * plain order, so m is a guide: several are tried, and every list is measured exactly like any
 * other candidate. When all segments are alike the table depends on j-i only, which makes room for
 * chains of thousands of units.
 *
 * Invariant: C never rises with m. Cost: O(segments^3 * slots), O(segments^2 * slots) when all
 * segments are alike.
 *
 * Example: three segments of cost 1, each state one slot, each tape two, m = 4. To keep the tape of
 * segment 0 leaves 4 - 2 - 1 = 1 slot for segments 1 and 2, too few for a tape. So keep state 1
 * only: 1 for the run, then C(1,3,3), which in the same way keeps state 2 only, then C(0,1,4), the
 * tape of segment 0. Forward runs: 0 1 2, then 1, then 0.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "plan/recompute/recompute_int.h"

enum {
    MAX_SEGMENTS = 96,     /* of a chain whose segments differ */
    MAX_ALIKE = 4000,      /* of a uniform chain */
    N_SLOTS = 64,          /* of memory, when segments differ */
    MAX_SLOTS = 160,       /* when they are alike: a slot is one state */
    MAX_TABLE = 120000000, /* steps of work on the table */
};
#define TAPE   UINT16_MAX /* choice: keep the tape of the first segment */
#define NO_WAY (UINT16_MAX - 1)

typedef struct segment {
    uint32_t lo, hi;           /* forward units [lo,hi); the last of them makes the next state */
    uint32_t back_lo, back_hi; /* backward units */
    double cost;               /* of its forward units */
    double tape_cost;          /* cost of the units that its backward part reads from */
    uint64_t state, tape;      /* bytes: the state it starts from; what backward reads within it */
    uint64_t forward;          /* most bytes alive inside it, without the state it starts from */
    uint64_t backward;         /* most bytes of backward values alive in its backward part */
    uint64_t carry;            /* bytes of backward values alive when its backward part begins */
} segment;

typedef struct chain {
    pl__recompute_best *b;
    const pl__recompute *m;
    uint32_t turn; /* the turning point: first unit of the backward part */
    segment *seg;
    uint32_t n;    /* segments, including the turning point */
    bool alike;    /* all but the turning point are the same */
    uint64_t slot; /* bytes */
    uint32_t slots;
    double *sum; /* n + 1: cost of the forward units of the segments before */
    float *best; /* of each pair of segments and number of slots */
    uint16_t *choice;
    uint32_t *last; /* scratch, of each value */
    uint8_t *mark;  /* scratch, of each unit */
    pl__recompute_seq seq;
    pl_arena arena;
} chain;

/* ---- cutting ---------------------------------------------------------------------------- */

/* Last unit below `below` that reads owner r, or its writer. */
static uint32_t last_use_below(const pl__recompute *m, uint32_t r, uint32_t below)
{
    uint32_t last = m->writer[r] == PL_RECOMPUTE_NONE ? 0 : m->writer[r];
    for (uint32_t i = m->uses.at[r]; i < m->uses.at[r + 1] && m->uses.item[i] < below; i++)
        last = m->uses.item[i];
    return last;
}

static uint32_t last_use(const pl__recompute *m, uint32_t r)
{
    return last_use_below(m, r, UINT32_MAX);
}

/* Finds the unit at which keeping everything takes most bytes. */
static pl_status find_program(chain *c)
{
    const pl__recompute *m = c->m;
    int64_t *change = pl_arena_new(&c->arena, int64_t, m->n_units + 2), now = 0, most = -1;
    if (!change) return PL_ERR_MEMORY;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        if (m->owner[v] != v || m->pinned[v] || m->writer[v] == PL_RECOMPUTE_NONE) continue;
        uint32_t last = last_use(m, v);
        change[m->writer[v]] += (int64_t)m->bytes[v];
        if (last < m->n_units) change[last + 1] -= (int64_t)m->bytes[v];
    }
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        now += change[unit];
        if (now > most) {
            most = now;
            c->turn = unit;
        }
    }
    return PL_OK;
}

/* Finds the cuts: units before the turning point such that nothing older is read between them and
 * the turning point. */
static pl_status find_cuts(chain *c, uint32_t *cut, uint32_t *n_cuts)
{
    const pl__recompute *m = c->m;
    uint32_t reach = 0; /* last forward use of anything made before unit */
    *n_cuts = 0;
    for (uint32_t unit = 0; unit < c->turn; unit++) {
        uint32_t makes = m->makes.at[unit + 1] - m->makes.at[unit], own = 0;
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            if (m->pinned[m->makes.item[i]]) continue;
            uint32_t last = last_use_below(m, m->makes.item[i], c->turn);
            if (last > own) own = last;
        }
        if (makes && own > unit && reach <= unit) cut[(*n_cuts)++] = unit;
        if (own > reach) reach = own;
    }
    return PL_OK;
}

static uint64_t made_bytes(const pl__recompute *m, uint32_t unit)
{
    uint64_t sum = 0;
    for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++)
        if (!m->pinned[m->makes.item[i]]) sum += m->bytes[m->makes.item[i]];
    return sum;
}

/* Makes segments from cuts; with too many cuts, some at about equal distances of cost remain. */
static pl_status make_segments(chain *c, const uint32_t *cut, uint32_t n_cuts, uint32_t most)
{
    const pl__recompute *m = c->m;
    uint32_t keep = n_cuts < most ? n_cuts : most;
    c->seg = pl_arena_new(&c->arena, segment, keep + 2);
    c->sum = pl_arena_new(&c->arena, double, keep + 3);
    if (!c->seg || !c->sum) return PL_ERR_MEMORY;
    uint32_t lo = 0;
    c->n = 0;
    for (uint32_t i = 0; i < n_cuts; i++) {
        double share = m->time[cut[i] + 1] / m->time[c->turn];
        if (n_cuts > most && share * keep < c->n + 1) continue;
        c->seg[c->n++] = (segment){.lo = lo, .hi = cut[i] + 1};
        lo = cut[i] + 1;
    }
    c->seg[c->n++] = (segment){.lo = lo, .hi = c->turn};
    for (uint32_t i = 0; i < c->n; i++) {
        c->seg[i].cost = m->time[c->seg[i].hi] - m->time[c->seg[i].lo];
        c->seg[i].state = i ? made_bytes(m, c->seg[i].lo - 1) : 0;
        c->sum[i + 1] = c->sum[i] + c->seg[i].cost;
    }
    return PL_OK;
}

/* ---- measuring segments ----------------------------------------------------------------- */

/* Returns the segment that a read of owner r assigns a backward unit to: a state belongs to the
 * segment that it starts. */
static uint32_t segment_of(const chain *c, const uint32_t *of_unit, uint32_t r)
{
    uint32_t w = c->m->writer[r];
    if (w == PL_RECOMPUTE_NONE || w >= c->turn) return PL_RECOMPUTE_NONE;
    uint32_t s = of_unit[w];
    return w + 1 == c->seg[s].hi && s + 1 < c->n ? s + 1 : s;
}

static void split_backward(chain *c, const uint32_t *of_unit)
{
    const pl__recompute *m = c->m;
    uint32_t now = c->n - 1;
    for (uint32_t i = 0; i < c->n; i++) c->seg[i].back_lo = c->seg[i].back_hi = m->n_units;
    c->seg[now].back_lo = c->turn;
    for (uint32_t unit = c->turn; unit < m->n_units; unit++) {
        uint32_t low = now;
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++) {
            uint32_t s = segment_of(c, of_unit, m->needs.item[i]);
            if (s < low) low = s;
        }
        for (; now > low; now--) c->seg[now].back_hi = c->seg[now - 1].back_lo = unit;
    }
    for (; now > 0; now--) c->seg[now].back_hi = c->seg[now - 1].back_lo = m->n_units;
    c->seg[0].back_hi = m->n_units;
}

/* Computes the values within a segment that its backward part reads: bytes, and the cost of
 * computing them. */
static void measure_tape(chain *c, segment *s)
{
    const pl__recompute *m = c->m;
    for (uint32_t unit = s->lo; unit < s->hi; unit++) {
        c->mark[unit] = 0;
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i];
            for (uint32_t u = m->uses.at[r]; u < m->uses.at[r + 1]; u++) {
                uint32_t at = m->uses.item[u];
                if (at < s->back_lo || at >= s->back_hi || m->pinned[r]) continue;
                s->tape += m->bytes[r];
                c->mark[unit] = 1;
                break;
            }
        }
    }
    for (uint32_t unit = s->hi; unit-- > s->lo;) {
        if (!c->mark[unit]) continue;
        s->tape_cost += m->cost[unit];
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++) {
            uint32_t w = m->writer[m->needs.item[i]];
            if (w != PL_RECOMPUTE_NONE && w >= s->lo && w < s->hi) c->mark[w] = 1;
        }
    }
}

/* Returns the most bytes alive at one unit of [lo,hi), counting values made in [from,hi), each
 * alive to its last use below `below`. */
static uint64_t most_alive(const chain *c, uint32_t from, uint32_t lo, uint32_t hi, uint32_t below,
                           int64_t *change)
{
    const pl__recompute *m = c->m;
    memset(change, 0, (hi - lo + 1) * sizeof *change);
    for (uint32_t unit = from; unit < hi; unit++) {
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i];
            uint32_t last = m->pinned[r] ? 0 : last_use_below(m, r, below);
            if (m->pinned[r] || last < lo) continue;
            change[unit < lo ? 0 : unit - lo] += (int64_t)m->bytes[r];
            if (last + 1 < hi) change[last + 1 - lo] -= (int64_t)m->bytes[r];
        }
        if (unit >= lo) {
            change[unit - lo] += (int64_t)pl__recompute_work(m, unit);
            if (unit + 1 < hi) change[unit + 1 - lo] -= (int64_t)pl__recompute_work(m, unit);
        }
    }
    int64_t now = 0, most = 0;
    for (uint32_t k = 0; k < hi - lo; k++) {
        now += change[k];
        if (now > most) most = now;
    }
    return (uint64_t)most;
}

/* Counts backward values that are made before a segment's backward part and read in it or later. */
static void measure_carry(chain *c)
{
    const pl__recompute *m = c->m;
    for (uint32_t unit = c->turn; unit < m->n_units; unit++)
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i], last = last_use(m, r);
            for (uint32_t k = c->n; k-- > 0 && !m->pinned[r];)
                if (unit < c->seg[k].back_lo && last >= c->seg[k].back_lo)
                    c->seg[k].carry += m->bytes[r];
        }
}

static pl_status measure_segments(chain *c)
{
    const pl__recompute *m = c->m;
    uint32_t *of_unit = pl_arena_new(&c->arena, uint32_t, m->n_units + 1);
    int64_t *change = pl_arena_new(&c->arena, int64_t, m->n_units + 2);
    c->mark = pl_arena_new(&c->arena, uint8_t, m->n_units + 1);
    if (!of_unit || !change || !c->mark) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < c->n; i++)
        for (uint32_t unit = c->seg[i].lo; unit < c->seg[i].hi; unit++) of_unit[unit] = i;
    split_backward(c, of_unit);
    for (uint32_t i = 0; i < c->n; i++) {
        segment *s = &c->seg[i];
        measure_tape(c, s);
        s->forward = most_alive(c, s->lo, s->lo, s->hi, c->turn, change);
        s->backward = most_alive(c, c->turn, s->back_lo, s->back_hi, UINT32_MAX, change);
    }
    measure_carry(c);
    return PL_OK;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.01 * fabs(a);
}

/* The first segment starts from nothing and the turning point ends the chain, so these two may
 * differ. */
static bool are_alike(const chain *c)
{
    if (c->n < 4) return false;
    const segment *a = &c->seg[1];
    for (uint32_t i = 2; i + 1 < c->n; i++) {
        const segment *s = &c->seg[i];
        if (!near(a->cost, s->cost) || !near((double)a->state, (double)s->state) ||
            !near((double)a->tape, (double)s->tape) || !near(a->tape_cost, s->tape_cost))
            return false;
    }
    return true;
}

/* ---- the table -------------------------------------------------------------------------- */
static uint32_t to_slots(const chain *c, uint64_t bytes)
{
    uint64_t s = (bytes + c->slot - 1) / c->slot;
    return s > MAX_SLOTS * 8 ? MAX_SLOTS * 8 : (uint32_t)s;
}

/* Returns the row of segments i..j-1. Alike: by length and by whether the turning point is in
 * it. */
static size_t row(const chain *c, uint32_t i, uint32_t j)
{
    size_t at = c->alike ? (size_t)(j - i) * 2 + (j == c->n) : (size_t)i * (c->n + 1) + j;
    return at * (c->slots + 1);
}

/* Returns the most slots that running segments i..k-1 forward takes, without state i. */
static uint32_t advance_slots(const chain *c, uint32_t i, uint32_t k)
{
    uint64_t most = 0;
    uint32_t end = c->alike && k > i + 2 ? i + 2 : k;
    for (uint32_t t = i; t < end; t++) {
        uint64_t need = c->seg[t].forward + (t > i ? c->seg[t].state : 0);
        if (need > most) most = need;
    }
    return to_slots(c, most);
}

static void fill_one(chain *c, uint32_t i)
{
    const segment *s = &c->seg[i];
    float *best = c->best + row(c, i, i + 1);
    uint16_t *choice = c->choice + row(c, i, i + 1);
    uint64_t forward = i + 1 == c->n ? s->forward : 0;
    uint64_t need = s->tape + s->backward > forward ? s->tape + s->backward : forward;
    uint32_t from = to_slots(c, need);
    for (uint32_t m = 0; m <= c->slots; m++) {
        best[m] = m >= from ? (float)s->tape_cost : INFINITY;
        choice[m] = m >= from ? TAPE : NO_WAY;
    }
}

static void fill_tape(chain *c, uint32_t i, uint32_t j)
{
    const segment *s = &c->seg[i];
    float *best = c->best + row(c, i, j);
    uint16_t *choice = c->choice + row(c, i, j);
    const float *rest = c->best + row(c, i + 1, j);
    uint32_t held = to_slots(c, s->tape + c->seg[i + 1].state),
             back = to_slots(c, s->tape + s->backward);
    uint32_t run = to_slots(c, s->forward + c->seg[j - 1].carry);
    for (uint32_t m = 0; m <= c->slots; m++) {
        best[m] = INFINITY;
        choice[m] = NO_WAY;
        if (m < held || m < back || m < run || isinf(rest[m - held])) continue;
        best[m] = (float)s->cost + rest[m - held];
        choice[m] = TAPE;
    }
}

static void fill_state(chain *c, uint32_t i, uint32_t j, uint32_t k)
{
    float *best = c->best + row(c, i, j);
    uint16_t *choice = c->choice + row(c, i, j);
    const float *right = c->best + row(c, k, j), *left = c->best + row(c, i, k);
    uint32_t held = to_slots(c, c->seg[k].state), run = advance_slots(c, i, k);
    uint32_t carry = to_slots(c, c->seg[j - 1].carry);
    float cost = (float)(c->sum[k] - c->sum[i]);
    uint32_t from = held > run + carry ? held : run + carry;
    for (uint32_t m = from; m <= c->slots; m++) {
        float total = cost + right[m - held] + left[m];
        if (total >= best[m]) continue;
        best[m] = total;
        choice[m] = (uint16_t)(k - i);
    }
}

static void fill_pair(chain *c, uint32_t i, uint32_t j)
{
    if (j == i + 1) {
        fill_one(c, i);
        return;
    }
    fill_tape(c, i, j);
    for (uint32_t k = i + 1; k < j; k++) fill_state(c, i, j, k);
}

static pl_status fill_table(chain *c)
{
    size_t rows = c->alike ? ((size_t)c->n + 1) * 2 : (size_t)(c->n + 1) * (c->n + 1);
    size_t cells = rows * (c->slots + 1);
    c->best = pl_arena_new(&c->arena, float, cells);
    c->choice = pl_arena_new(&c->arena, uint16_t, cells);
    if (!c->best || !c->choice) return PL_ERR_MEMORY;
    for (uint32_t len = 1; len <= c->n; len++) {
        if (!c->alike) {
            for (uint32_t i = 0; i + len <= c->n; i++) fill_pair(c, i, i + len);
            continue;
        }
        /* Alike: one row that ends before the turning point, one that ends with it. */
        if (len + 2 <= c->n) fill_pair(c, 1, 1 + len);
        fill_pair(c, c->n - len, c->n);
        if (len + 1 == c->n) fill_pair(c, 0, len); /* the same row as 1..n, but segment 0 differs */
    }
    return PL_OK;
}

/* ---- the sequence ----------------------------------------------------------------------- */
typedef struct piece {
    uint32_t i, j, m; /* solve segments i..j-1 with m slots; j = NONE: backward part of i */
} piece;

static pl_status push_units(chain *c, uint32_t lo, uint32_t hi)
{
    for (uint32_t unit = lo; unit < hi; unit++) PL_TRY(pl__recompute_seq_push(&c->seq, unit));
    return PL_OK;
}

/* Repeats forward units, except units that must not run twice. */
static pl_status push_forward(chain *c, uint32_t lo, uint32_t hi, uint32_t *frontier)
{
    for (uint32_t unit = lo; unit < hi; unit++) {
        if (unit < *frontier && c->m->once[unit]) continue;
        PL_TRY(pl__recompute_seq_push(&c->seq, unit));
        if (unit >= *frontier) *frontier = unit + 1;
    }
    return PL_OK;
}

/* Pending pieces wait on a stack, so that long chains need no deep recursion. */
static pl_status unroll(chain *c, uint32_t slots, piece *stack, bool *ok)
{
    uint32_t n = 0, frontier = 0;
    c->seq.n = 0;
    *ok = true;
    stack[n++] = (piece){0, c->n, slots};
    while (n) {
        piece t = stack[--n];
        const segment *s = &c->seg[t.i];
        if (t.j == PL_RECOMPUTE_NONE) {
            PL_TRY(push_units(c, s->back_lo, s->back_hi));
            continue;
        }
        uint16_t way = c->choice[row(c, t.i, t.j) + t.m];
        if (way == NO_WAY) {
            *ok = false;
            return PL_OK;
        }
        if (way == TAPE) {
            PL_TRY(push_forward(c, s->lo, s->hi, &frontier));
            stack[n++] = (piece){t.i, PL_RECOMPUTE_NONE, 0};
            uint32_t held = t.j > t.i + 1 ? to_slots(c, s->tape + c->seg[t.i + 1].state) : 0;
            if (t.j > t.i + 1) stack[n++] = (piece){t.i + 1, t.j, t.m - held};
            continue;
        }
        uint32_t k = t.i + way;
        PL_TRY(push_forward(c, s->lo, c->seg[k - 1].hi, &frontier));
        stack[n++] = (piece){t.i, k, t.m};
        stack[n++] = (piece){k, t.j, t.m - to_slots(c, c->seg[k].state)};
    }
    return PL_OK;
}

/* The table is approximate: the most slots that really fit may be a few more or fewer. */
static pl_status offer_all(chain *c, uint32_t fits)
{
    piece *stack = pl_arena_new(&c->arena, piece, 2 * (size_t)c->n + 4);
    if (!stack) return PL_ERR_MEMORY;
    uint32_t step = c->alike ? 1 : c->slots / 16 + 1;
    for (uint32_t m = c->slots, tried = 0; m > 0 && tried<12; m = m> step ? m - step : 0) {
        bool ok, better = false;
        PL_TRY(unroll(c, m, stack, &ok));
        if (!ok) break;
        PL_TRY(pl__recompute_offer(c->b, c->seq.unit, c->seq.n, "chain", &better));
        tried++;
        if (c->alike && m < fits && c->b->seq.n && !better) break;
    }
    return PL_OK;
}

static pl_status plan_chain(chain *c)
{
    const pl__recompute *m = c->m;
    uint32_t n_cuts;
    uint32_t *cut = pl_arena_new(&c->arena, uint32_t, m->n_units + 1);
    if (!cut) return PL_ERR_MEMORY;
    PL_TRY(find_program(c));
    PL_TRY(find_cuts(c, cut, &n_cuts));
    if (n_cuts < 3) return PL_OK;
    PL_TRY(make_segments(c, cut, n_cuts, MAX_ALIKE));
    PL_TRY(measure_segments(c));
    c->alike = are_alike(c);
    if (!c->alike && n_cuts > MAX_SEGMENTS) {
        PL_TRY(make_segments(c, cut, n_cuts, MAX_SEGMENTS));
        PL_TRY(measure_segments(c));
    }
    uint64_t pinned = 0;
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->pinned[v]) pinned += m->bytes[v];
    if (c->b->budget <= pinned) return PL_OK;
    uint64_t room = c->b->budget - pinned;
    uint32_t fits = N_SLOTS;
    if (c->alike) {
        c->slot = c->seg[1].state ? c->seg[1].state : 1;
        fits = room / c->slot > MAX_SLOTS - 2 ? MAX_SLOTS - 2 : (uint32_t)(room / c->slot);
        c->slots = fits + 2;
        if ((double)c->n * c->n * c->slots > MAX_TABLE) return PL_OK;
    } else {
        c->slots = N_SLOTS + N_SLOTS / 8;
        c->slot = room / N_SLOTS + 1;
    }
    PL_TRY(fill_table(c));
    return offer_all(c, fits);
}

pl_status pl__recompute_chain(pl__recompute_best *b)
{
    chain c = {.b = b, .m = b->m};
    pl_status s = b->m->n_units < 8 ? PL_OK : plan_chain(&c);
    pl__recompute_seq_release(&c.seq);
    pl_arena_release(&c.arena);
    return s;
}
