/* recompute_oracle.c - uniform-cost search, as simple as possible.
 *
 * A state is (units done, buffers alive). Two moves: compute a unit whose inputs are alive and
 * whose outputs and workspace fit, at its cost; drop one buffer, at no cost. The queue is a list of
 * buckets by whole cost, so costs must be whole numbers. It shares no code with the planner, and no
 * idea beyond the definition of the problem. */
#include "tests/plan/recompute_oracle.h"

#include <stdlib.h>

typedef struct seen {
    uint64_t key; /* units done << 32 | buffers there, plus one in the top bit: never 0 */
    uint32_t cost;
    bool closed;
} seen;

typedef struct entry {
    uint32_t state, next;
} entry;

typedef struct oracle {
    const pl_recompute_problem *p;
    uint64_t budget;
    seen *table; /* open addressing */
    uint32_t n_table, n_seen, max_seen;
    entry *entries; /* of all buckets; a state found again at less cost has several */
    uint32_t n_entries, max_entries;
    uint32_t *bucket; /* of each cost: first entry + 1 */
    uint32_t n_buckets;
    bool overflow;
} oracle;

static uint32_t slot_of(const oracle *o, uint64_t key)
{
    uint64_t h = key;
    h ^= h >> 31;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 29;
    uint32_t i = (uint32_t)(h % o->n_table);
    while (o->table[i].key && o->table[i].key != key) i = i + 1 == o->n_table ? 0 : i + 1;
    return i;
}

static void relax(oracle *o, uint32_t pos, uint32_t there, uint32_t cost)
{
    if (cost >= o->n_buckets) return;
    uint64_t key = (uint64_t)1 << 63 | (uint64_t)pos << 32 | there;
    uint32_t i = slot_of(o, key);
    seen *s = &o->table[i];
    if (s->key && (s->closed || s->cost <= cost)) return;
    if (!s->key) o->n_seen++;
    o->overflow = o->n_seen > o->max_seen || o->n_entries == o->max_entries;
    if (o->overflow) return;
    *s = (seen){.key = key, .cost = cost};
    o->entries[o->n_entries] = (entry){.state = i, .next = o->bucket[cost]};
    o->bucket[cost] = ++o->n_entries;
}

static uint32_t mask_of(const uint32_t *item, uint32_t lo, uint32_t hi)
{
    uint32_t m = 0;
    for (; lo < hi; lo++) m |= 1u << item[lo];
    return m;
}

static uint64_t size_of(const pl_recompute_problem *p, uint32_t there)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < p->n_buffers; b++)
        if (there >> b & 1) sum += p->bytes[b];
    return sum;
}

static void visit(oracle *o, uint32_t pos, uint32_t there, uint32_t cost)
{
    const pl_recompute_problem *p = o->p;
    bool blocked = false;
    for (uint32_t unit = 0; unit < p->n_units && unit <= pos; unit++) {
        uint32_t in = mask_of(p->in, p->in_at[unit], p->in_at[unit + 1]);
        uint32_t out = mask_of(p->out, p->out_at[unit], p->out_at[unit + 1]);
        if (in & ~there || (unit < pos && !(out & ~there))) continue;
        uint64_t need = size_of(p, there | out) + (p->work_bytes ? p->work_bytes[unit] : 0);
        if (need > o->budget)
            blocked = true;
        else
            relax(o, unit == pos ? pos + 1 : pos, there | out, cost + (uint32_t)p->cost[unit]);
    }
    /* Dropping can wait until something does not fit. */
    for (uint32_t b = 0; blocked && b < p->n_buffers; b++)
        if (there >> b & 1) relax(o, pos, there & ~(1u << b), cost);
}

static double run(oracle *o, uint32_t end)
{
    relax(o, 0, 0, 0);
    for (uint32_t c = 0; c < o->n_buckets; c++) {
        while (o->bucket[c] && !o->overflow) {
            const entry *e = &o->entries[o->bucket[c] - 1];
            seen *s = &o->table[e->state];
            o->bucket[c] = e->next;
            if (s->closed) continue;
            s->closed = true;
            uint32_t pos = (uint32_t)(s->key >> 32) & 0x7fffffff, there = (uint32_t)s->key;
            if (pos == o->p->n_units && !(end & ~there)) return c;
            visit(o, pos, there, c);
        }
    }
    return -1;
}

bool recompute_oracle(const pl_recompute_problem *p, uint64_t budget, uint32_t max_states,
                      double *cost)
{
    oracle o = {.p = p,
                .budget = budget,
                .max_seen = max_states,
                .n_table = max_states * 2 + 1,
                .max_entries = max_states * 3};
    double base = 0;
    uint32_t end = 0;
    for (uint32_t i = 0; i < p->n_units; i++) base += p->cost[i];
    for (uint32_t b = 0; b < p->n_buffers && p->buffer_flags; b++)
        if (p->buffer_flags[b] & PL_RECOMPUTE_END) end |= 1u << b;
    o.n_buckets = (uint32_t)base * 8 + 1; /* a plan of eight times the cost is "none" */
    o.table = calloc(o.n_table, sizeof *o.table);
    o.bucket = calloc(o.n_buckets, sizeof *o.bucket);
    o.entries = calloc(o.max_entries, sizeof *o.entries);
    bool known = o.table && o.bucket && o.entries;
    if (known) *cost = run(&o, end);
    known = known && !o.overflow;
    free(o.table);
    free(o.entries);
    free(o.bucket);
    return known;
}
