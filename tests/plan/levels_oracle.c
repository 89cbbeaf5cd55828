/* levels_oracle.c - best-first search over schedules; see levels_oracle.h.
 *
 * Every action (a unit's run, a copy) can begin at time 0 or when another action ends: beginning it
 * earlier changes nothing else as long as its channel, its operands and its bytes are free. So a
 * state is what exists where, and which actions are under way with how many ticks left, at a time
 * when an action ends. From a state the search tries all sets of actions that can begin; to make
 * room for one, it drops every minimal set of copies that are not in use. Dropping more, or
 * earlier, never helps.
 *
 * States are ordered by their time plus a lower bound of the ticks still to come. The first final
 * state is the optimum. A state is left out where another one has the same actions under way, is
 * not later and has all its copies. */
#include "tests/plan/levels_oracle.h"

#include <stdlib.h>
#include <string.h>

enum { DOWN, UP, WRITE, READ, N_CHANNELS, NONE = 255, MAX_TICKS = 1024 };
/* Nodes that are compared with a state: more comparisons take longer than the states they save. */
enum { LOOKS = 200 };

typedef struct state {
    uint32_t dev, host, disk; /* complete copies */
    uint8_t done;             /* units that have run */
    uint8_t unit, unit_left;  /* the unit that runs; NONE */
    uint8_t val[N_CHANNELS], left[N_CHANNELS];
    uint8_t none; /* 0 */
} state;

typedef struct node {
    state s;
    uint32_t time;
    uint32_t next; /* in its bucket of the queue */
    uint32_t same; /* the next node with the same actions under way */
} node;

typedef struct search {
    const levels_case *c;
    node *nodes;
    uint32_t n, max;
    uint32_t *cells, n_cells; /* hash table: node + 1 */
    uint32_t bucket[MAX_TICKS];
    uint32_t lowest, limit; /* schedules of `limit` ticks are known */
    uint32_t useful[LEVELS_MAX_UNITS + 1];
    uint32_t across[LEVELS_MAX_UNITS]; /* values that must exist while a unit runs that does not use
                                        * them */
    uint32_t excess[LEVELS_MAX_UNITS]; /* blocks of these for which the device has no room */
    bool full;
    uint32_t now_time; /* of the state that is being expanded */
} search;

static uint32_t bit(uint32_t v)
{
    return (uint32_t)1 << v;
}

static uint32_t blocks_of(const levels_case *c, uint32_t set)
{
    uint32_t sum = 0;
    for (; set; set &= set - 1) sum += c->blocks[__builtin_ctz(set)];
    return sum;
}

/* Values that may be needed once `done` units have run: read by a later unit, wanted at the end, or
 * read by a unit that makes one of these. */
static void find_useful(search *x)
{
    const levels_case *c = x->c;
    for (uint32_t done = 0; done <= c->n_units; done++) {
        uint32_t set = c->wanted, before = 0;
        for (uint32_t u = done; u < c->n_units; u++) set |= c->reads[u];
        while (set != before) {
            before = set;
            for (uint32_t v = 0; v < c->n_values; v++)
                if ((set & bit(v)) && c->made_by[v] < done) set |= c->reads[c->made_by[v]];
        }
        x->useful[done] = set;
    }
}

/* Finds which values are away, or will be made again, when a unit runs. */
static void find_excess(search *x)
{
    const levels_case *c = x->c;
    for (uint32_t u = 0; u < c->n_units; u++) {
        uint32_t later = c->wanted, before = 0, uses = c->reads[u] | bit(c->makes[u]);
        for (uint32_t k = u + 1; k < c->n_units; k++) later |= c->reads[k];
        for (uint32_t v = 0; v < c->n_values; v++)
            if (c->made_by[v] == NONE || c->made_by[v] < u) before |= bit(v);
        x->across[u] = later & before & ~uses;
        uint32_t need = blocks_of(c, uses) + blocks_of(c, x->across[u]);
        x->excess[u] = need > c->device_blocks ? need - c->device_blocks : 0;
    }
}

/* ---- what is in use ------------------------------------------------------------------------- */
static bool has_host(const search *x)
{
    return x->c->host_blocks != 0;
}

/* Values on their way to the device. */
static uint32_t coming(const search *x, const state *s)
{
    uint32_t set = s->unit != NONE ? bit(x->c->makes[s->unit]) : 0;
    uint8_t c = has_host(x) ? UP : READ;
    return s->val[c] != NONE ? set | bit(s->val[c]) : set;
}

static uint32_t coming_to_host(const search *x, const state *s)
{
    uint32_t set = 0;
    if (!has_host(x)) return 0;
    if (s->val[DOWN] != NONE) set |= bit(s->val[DOWN]);
    if (s->val[READ] != NONE) set |= bit(s->val[READ]);
    return set;
}

static uint32_t locked(const search *x, const state *s)
{
    uint32_t set = s->unit != NONE ? x->c->reads[s->unit] : 0;
    uint8_t c = has_host(x) ? DOWN : WRITE;
    return s->val[c] != NONE ? set | bit(s->val[c]) : set;
}

static uint32_t locked_on_host(const search *x, const state *s)
{
    uint32_t set = x->c->on_host;
    if (s->val[UP] != NONE) set |= bit(s->val[UP]);
    if (s->val[WRITE] != NONE) set |= bit(s->val[WRITE]);
    return set;
}

/* ---- the lower bound ------------------------------------------------------------------------ */
/* Returns ticks for which units certainly run or wait beyond `run`, the runs that are due: values
 * that are away, first needed after `until` ticks of runs, must be recomputed or fetched. Whatever
 * is chosen, the extra time is at least each weighted mean of both. */
static uint32_t extra(uint32_t fetches, uint32_t until, const uint32_t *fetch, const uint32_t *run,
                      uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t w = 1; w <= 3 && fetches > until; w++) {
        int64_t sum = (int64_t)(4 - w) * (fetches - until);
        for (uint32_t i = 0; i < n; i++) {
            int64_t gain = (int64_t)(4 - w) * fetch[i] - (int64_t)w * run[i];
            if (gain > 0) sum -= gain;
        }
        if (sum > 0 && (uint32_t)((sum + 3) / 4) > best) best = (uint32_t)((sum + 3) / 4);
    }
    return best;
}

/* Returns ticks that units certainly wait, or run once more, because values are away while unit u
 * runs: they are stored before it and fetched after it, or made again. before: runs from now to u;
 * after: runs after u, without the last one. lost: values whose runs are counted already. */
static uint32_t away_while(const search *x, const state *s, uint32_t u, uint32_t before,
                           uint32_t after, uint32_t lost)
{
    const levels_case *c = x->c;
    int down = has_host(x) ? DOWN : WRITE, up = has_host(x) ? UP : READ;
    uint32_t gone = blocks_of(c, x->across[u] & lost), best = UINT32_MAX;
    uint32_t below = s->host | s->disk | coming_to_host(x, s);
    if (s->val[WRITE] != NONE) below |= bit(s->val[WRITE]);
    if (x->excess[u] <= gone) return 0;
    uint32_t excess = x->excess[u] - gone, stored = blocks_of(c, x->across[u] & below & ~lost);
    uint32_t cost = MAX_TICKS,
             size = 1; /* of the value that is made again at the least ticks a block */
    for (uint32_t k = x->across[u] & ~lost; k; k &= k - 1) {
        uint32_t v = (uint32_t)__builtin_ctz(k);
        if (c->made_by[v] == NONE) continue;
        if (c->cost[c->made_by[v]] * size < cost * c->blocks[v])
            cost = c->cost[c->made_by[v]], size = c->blocks[v];
    }
    for (uint32_t again = 0; again <= excess; again++) {
        uint32_t moved = excess - again, runs = (again * cost + size - 1) / size, wait = 0;
        uint32_t stores = moved > stored ? (moved - stored) * c->ticks[down] : 0;
        if (stores > before) wait += stores - before;
        if (moved * c->ticks[up] > after) wait += moved * c->ticks[up] - after;
        if (wait < runs) wait = runs;
        if (wait < best) best = wait;
    }
    return best;
}

static uint32_t lower_bound(const search *x, const state *s)
{
    const levels_case *c = x->c;
    uint8_t up = has_host(x) ? UP : READ;
    uint32_t first = s->done, due = 0, lost = 0, before = 1;
    uint32_t there = s->dev | coming(x, s), any = there | s->host | s->disk | coming_to_host(x, s);
    if (!has_host(x) && s->val[WRITE] != NONE) any |= bit(s->val[WRITE]);
    uint32_t runs = s->unit != NONE ? s->unit_left : 0;
    if (s->unit == s->done) first++;
    uint32_t need = c->wanted;
    for (uint32_t u = first; u < c->n_units; u++) need |= c->reads[u];
    uint32_t future = 0;
    for (uint32_t u = first; u < c->n_units; u++) future |= bit(c->makes[u]);
    while (lost != before) { /* values without a copy run again, and need their operands */
        before = lost;
        lost = need & ~any & ~future;
        for (uint32_t v = 0; v < c->n_values; v++)
            if ((lost & bit(v)) && c->made_by[v] != NONE) need |= c->reads[c->made_by[v]];
    }
    for (uint32_t v = 0; v < c->n_values; v++)
        if (lost & bit(v)) {
            if (c->made_by[v] == NONE) return MAX_TICKS;
            due += c->cost[c->made_by[v]];
        }
    uint32_t fetch[LEVELS_MAX_VALUES], run[LEVELS_MAX_VALUES], n = 0, most = 0, seen = 0;
    uint32_t fetches = s->val[up] != NONE ? s->left[up] : 0, until = runs;
    for (uint32_t u = first; u < c->n_units; u++) {
        uint32_t away = c->reads[u] & ~there & ~future & ~lost & ~seen;
        if (s->val[up] != NONE && (c->reads[u] & bit(s->val[up])) && s->left[up] > until) {
            uint32_t wait = s->left[up] - until;
            if (wait > most) most = wait; /* it cannot be recomputed beside its fetch */
        }
        seen |= away;
        for (; away; away &= away - 1) {
            uint32_t v = (uint32_t)__builtin_ctz(away);
            fetch[n] = c->blocks[v] * c->ticks[up];
            run[n] = c->made_by[v] == NONE ? MAX_TICKS : c->cost[c->made_by[v]];
            fetches += fetch[n++];
        }
        uint32_t e = n ? extra(fetches, until + due, fetch, run, n) : 0;
        if (e > most) most = e;
        until += c->cost[u];
    }
    uint32_t now = runs;
    for (uint32_t u = first; u < c->n_units; u++) runs += c->cost[u];
    for (uint32_t u = first; u + 1 < c->n_units; u++) {
        uint32_t after = runs + due - now - c->cost[u];
        uint32_t e = away_while(x, s, u, now + due, after, lost);
        if (e > most) most = e;
        now += c->cost[u];
    }
    return runs + due + most;
}

/* ---- the queue ------------------------------------------------------------------------------ */
/* A hash of what is under way. */
static uint64_t hash(const state *s)
{
    uint64_t h = s->done * 256u + s->unit;
    for (int c = 0; c < N_CHANNELS; c++) h = h * 257 + s->val[c];
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static bool same_actions(const state *a, const state *b)
{
    return a->done == b->done && a->unit == b->unit && memcmp(a->val, b->val, sizeof a->val) == 0;
}

/* Whether a node is nowhere worse than a state at a time: it has the same actions under way, they
 * end no later, and it has all copies that the state has. */
static bool dominates(const node *k, const state *s, uint32_t time)
{
    const state *a = &k->s;
    if (k->time > time || (s->dev & ~a->dev) || (s->host & ~a->host) || (s->disk & ~a->disk))
        return false;
    if (s->unit != NONE && k->time + a->unit_left > time + s->unit_left) return false;
    for (int c = 0; c < N_CHANNELS; c++)
        if (s->val[c] != NONE && k->time + a->left[c] > time + s->left[c]) return false;
    return true;
}

/* Looks for a node that dominates; *cell is where nodes with the same actions begin. */
static bool is_dominated(search *x, const state *s, uint32_t time, uint32_t *cell)
{
    uint32_t at = (uint32_t)(hash(s) % x->n_cells);
    while (x->cells[at] && !same_actions(&x->nodes[x->cells[at] - 1].s, s))
        at = at + 1 == x->n_cells ? 0 : at + 1;
    *cell = at;
    uint32_t looks = LOOKS;
    for (uint32_t k = x->cells[at]; k && looks--; k = x->nodes[k - 1].same)
        if (dominates(&x->nodes[k - 1], s, time)) return true;
    return false;
}

/* Whether a node that was added after k dominates it. */
static bool is_dominated_later(const search *x, const node *k)
{
    uint32_t at = (uint32_t)(hash(&k->s) % x->n_cells), self = (uint32_t)(k - x->nodes) + 1;
    while (!same_actions(&x->nodes[x->cells[at] - 1].s, &k->s))
        at = at + 1 == x->n_cells ? 0 : at + 1;
    uint32_t looks = LOOKS;
    for (uint32_t i = x->cells[at]; i > self && looks--; i = x->nodes[i - 1].same)
        if (dominates(&x->nodes[i - 1], &k->s, k->time)) return true;
    return false;
}

static void add_state(search *x, const state *s, uint32_t time)
{
    uint32_t total = time + lower_bound(x, s);
    if (total >= x->limit) return;
    if (x->n == x->max) {
        x->full = true;
        return;
    }
    uint32_t at;
    if (is_dominated(x, s, time, &at)) return;
    node *k = &x->nodes[x->n];
    *k = (node){.s = *s, .time = time, .next = x->bucket[total], .same = x->cells[at]};
    x->bucket[total] = ++x->n;
    x->cells[at] = x->n;
    if (total < x->lowest) x->lowest = total;
}

/* ---- actions -------------------------------------------------------------------------------- */
static void choose(search *x, state s, int stage);

/* Ends the actions that end next. */
static void advance(search *x, state s)
{
    uint32_t dt = s.unit != NONE ? s.unit_left : NONE;
    for (int c = 0; c < N_CHANNELS; c++)
        if (s.val[c] != NONE && s.left[c] < dt) dt = s.left[c];
    if (s.unit == NONE && s.val[0] == NONE && s.val[1] == NONE && s.val[2] == NONE &&
        s.val[3] == NONE)
        return;
    if (s.unit != NONE) {
        s.unit_left = (uint8_t)(s.unit_left - dt);
        if (!s.unit_left) {
            s.dev |= bit(x->c->makes[s.unit]);
            if (s.unit == s.done) s.done++;
            s.unit = NONE;
        }
    }
    for (int c = 0; c < N_CHANNELS; c++) {
        if (s.val[c] == NONE) continue;
        s.left[c] = (uint8_t)(s.left[c] - dt);
        if (s.left[c]) continue;
        uint32_t b = bit(s.val[c]);
        s.val[c] = NONE;
        bool to_dev = c == UP || (c == READ && !has_host(x));
        if (to_dev)
            s.dev |= b;
        else if (c == WRITE)
            s.disk |= b;
        else
            s.host |= b;
    }
    uint32_t useful = x->useful[s.done], keep = useful | locked(x, &s);
    s.dev &= keep;
    s.host &= useful | locked_on_host(x, &s);
    s.disk &= useful | x->c->on_disk | (s.val[READ] != NONE ? bit(s.val[READ]) : 0);
    add_state(x, &s, x->now_time + dt);
}

/* Goes on with every minimal set of `from` dropped that frees `need` blocks. */
static void drop_sets(search *x, const state *s, int stage, bool host, uint32_t from, uint32_t set,
                      uint32_t need)
{
    uint32_t freed = blocks_of(x->c, set);
    if (freed >= need) {
        for (uint32_t k = set; k; k &= k - 1)
            if (freed - x->c->blocks[__builtin_ctz(k)] >= need) return; /* not minimal */
        state t = *s;
        *(host ? &t.host : &t.dev) &= ~set;
        choose(x, t, stage);
        return;
    }
    while (from) {
        uint32_t b = from & -from;
        from &= ~b;
        drop_sets(x, s, stage, host, from, set | b, need);
    }
}

/* Goes on with room on the device, or on the host; s already has the action. */
static void make_room(search *x, const state *s, int stage, bool host, uint32_t keep)
{
    uint32_t used, most = host ? x->c->host_blocks : x->c->device_blocks, from;
    if (host) {
        used = blocks_of(x->c, (s->host & ~x->c->on_host) | coming_to_host(x, s));
        from = s->host & ~locked_on_host(x, s) & ~keep;
    } else {
        used = blocks_of(x->c, s->dev | coming(x, s));
        from = s->dev & ~locked(x, s) & ~keep;
    }
    drop_sets(x, s, stage, host, from, 0, used > most ? used - most : 0);
}

static void begin_unit(search *x, const state *s, uint32_t u)
{
    state t = *s;
    t.unit = (uint8_t)u;
    t.unit_left = (uint8_t)x->c->cost[u];
    make_room(x, &t, DOWN, false, 0);
}

static void choose_unit(search *x, const state *s)
{
    const levels_case *c = x->c;
    choose(x, *s, DOWN);
    if (s->done < c->n_units && !(c->reads[s->done] & ~s->dev)) begin_unit(x, s, s->done);
    uint32_t missing = x->useful[s->done] & ~s->dev & ~coming(x, s);
    for (uint32_t u = 0; u < s->done; u++)
        if ((missing & bit(c->makes[u])) && !(c->reads[u] & ~s->dev)) begin_unit(x, s, u);
}

/* Values that a channel could move. */
static uint32_t movable(const search *x, const state *s, int channel)
{
    uint32_t useful = x->useful[s->done], slots = x->c->on_host | x->c->on_disk;
    uint32_t away = s->host | s->disk | coming_to_host(x, s), in = s->dev | coming(x, s);
    if (!has_host(x)) {
        if (channel == DOWN || channel == UP || !x->c->has_disk) return 0;
        return useful & (channel == WRITE ? s->dev & ~s->disk & ~slots : s->disk & ~in);
    }
    if (channel == DOWN) return useful & s->dev & ~away & ~slots;
    if (channel == UP) return useful & s->host & ~in;
    if (!x->c->has_disk) return 0;
    if (channel == WRITE) return useful & s->host & ~s->disk & ~slots;
    return useful & s->disk & ~s->host & ~coming_to_host(x, s) & ~in;
}

static void choose(search *x, state s, int stage)
{
    if (stage < 0) {
        if (s.unit == NONE)
            choose_unit(x, &s);
        else
            choose(x, s, DOWN);
        return;
    }
    if (stage == N_CHANNELS) {
        advance(x, s);
        return;
    }
    choose(x, s, stage + 1);
    if (s.val[stage] != NONE) return;
    for (uint32_t set = movable(x, &s, stage); set; set &= set - 1) {
        uint32_t v = (uint32_t)__builtin_ctz(set);
        state t = s;
        t.val[stage] = (uint8_t)v;
        t.left[stage] = (uint8_t)(x->c->blocks[v] * x->c->ticks[stage]);
        bool to_disk = stage == WRITE, to_host = has_host(x) && (stage == DOWN || stage == READ);
        if (to_disk)
            choose(x, t, stage + 1);
        else
            make_room(x, &t, stage + 1, to_host, to_host ? 0 : bit(v));
    }
}

/* Expands the state with the smallest total; false: no state is left below the limit, or the
 * optimum is found, which *best is then. */
static bool expand_next(search *x, uint32_t *best)
{
    while (x->lowest < x->limit && !x->bucket[x->lowest]) x->lowest++;
    if (x->lowest == x->limit) return false;
    const node *k = &x->nodes[x->bucket[x->lowest] - 1];
    x->bucket[x->lowest] = k->next;
    if (is_dominated_later(x, k)) return true;
    x->now_time = k->time;
    state now = k->s;
    if (now.done == x->c->n_units && !(x->c->wanted & ~now.dev)) {
        *best = x->now_time;
        return false;
    }
    choose(x, now, -1);
    return true;
}

static void first_state(search *x)
{
    const levels_case *c = x->c;
    state s;
    memset(&s, 0, sizeof s);
    s.unit = NONE;
    memset(s.val, NONE, sizeof s.val);
    s.host = c->on_host;
    s.disk = c->on_disk;
    for (uint32_t v = 0; v < c->n_values; v++)
        if (c->made_by[v] == LEVELS_NO_UNIT && !((c->on_host | c->on_disk) & bit(v)))
            s.dev |= bit(v);
    add_state(x, &s, 0);
}

uint32_t levels_oracle(const levels_case *c, uint32_t known, uint32_t max_states, bool *proven)
{
    search *x = calloc(1, sizeof *x);
    x->c = c;
    x->max = max_states;
    x->limit = x->lowest = known < MAX_TICKS ? known : MAX_TICKS - 1;
    x->n_cells = 2 * max_states + 1;
    x->nodes = malloc(max_states * sizeof *x->nodes);
    x->cells = calloc(x->n_cells, sizeof *x->cells);
    find_useful(x);
    find_excess(x);
    first_state(x);
    uint32_t best = x->limit;
    while (!x->full && expand_next(x, &best)) continue;
    *proven = !x->full;
    if (x->full) best = x->lowest;
    free(x->nodes);
    free(x->cells);
    free(x);
    return best;
}
