/* remat_oracle.c - uniform-cost search, as plain as it can be.
 *
 * A state is (ops done, storages there). Two moves: compute an op whose inputs are there and whose
 * outputs and workspace fit, at its cost; forget one storage, at no cost. The queue is a list of
 * buckets by whole cost, so costs must be whole numbers: the tests make them so. It shares no
 * code, and no idea beyond the definition of the problem, with the planner.
 */
#include "remat_oracle.h"

#include <stdlib.h>

typedef struct seen {
    uint64_t key; /* ops done << 32 | storages there, plus one in the top bit: never 0 */
    uint32_t cost;
    uint32_t next; /* in its bucket */
    bool closed;
} seen;

typedef struct oracle {
    const pl_remat_problem *p;
    uint64_t budget;
    seen *table; /* open addressing */
    uint32_t n_table, n_seen, max_seen;
    uint32_t *bucket; /* of each cost: first table index + 1 */
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

/* A state reached again at less cost moves to the front of an earlier bucket; its old place in the
 * later bucket is lost with the link, so such states are chained through a fresh entry. */
static void relax(oracle *o, uint32_t pos, uint32_t there, uint32_t cost)
{
    if (cost >= o->n_buckets) return;
    uint64_t key = (uint64_t)1 << 63 | (uint64_t)pos << 32 | there;
    uint32_t i = slot_of(o, key);
    seen *s = &o->table[i];
    if (s->key && (s->closed || s->cost <= cost)) return;
    if (s->key) { /* unlink from its bucket */
        uint32_t *at = &o->bucket[s->cost];
        while (*at != i + 1) at = &o->table[*at - 1].next;
        *at = s->next;
    } else if (++o->n_seen > o->max_seen) {
        o->overflow = true;
        return;
    }
    *s = (seen){.key = key, .cost = cost, .next = o->bucket[cost]};
    o->bucket[cost] = i + 1;
}

static uint32_t mask_of(const uint32_t *item, uint32_t lo, uint32_t hi)
{
    uint32_t m = 0;
    for (; lo < hi; lo++) m |= 1u << item[lo];
    return m;
}

static uint64_t size_of(const pl_remat_problem *p, uint32_t there)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < p->n_bufs; b++)
        if (there >> b & 1) sum += p->bytes[b];
    return sum;
}

static void visit(oracle *o, uint32_t pos, uint32_t there, uint32_t cost)
{
    const pl_remat_problem *p = o->p;
    bool blocked = false;
    for (uint32_t op = 0; op < p->n_ops && op <= pos; op++) {
        uint32_t in = mask_of(p->in, p->in_at[op], p->in_at[op + 1]);
        uint32_t out = mask_of(p->out, p->out_at[op], p->out_at[op + 1]);
        if (in & ~there || (op < pos && !(out & ~there))) continue;
        uint64_t need = size_of(p, there | out) + (p->work_bytes ? p->work_bytes[op] : 0);
        if (need > o->budget) blocked = true;
        else relax(o, op == pos ? pos + 1 : pos, there | out, cost + (uint32_t)p->cost[op]);
    }
    /* Forgetting can wait until something does not fit. */
    for (uint32_t b = 0; blocked && b < p->n_bufs; b++)
        if (there >> b & 1) relax(o, pos, there & ~(1u << b), cost);
}

static double run(oracle *o, uint32_t end)
{
    relax(o, 0, 0, 0);
    for (uint32_t c = 0; c < o->n_buckets; c++) {
        while (o->bucket[c] && !o->overflow) {
            seen *s = &o->table[o->bucket[c] - 1];
            o->bucket[c] = s->next;
            s->closed = true;
            uint32_t pos = (uint32_t)(s->key >> 32) & 0x7fffffff, there = (uint32_t)s->key;
            if (pos == o->p->n_ops && !(end & ~there)) return c;
            visit(o, pos, there, c);
        }
    }
    return -1;
}

bool remat_oracle(const pl_remat_problem *p, uint64_t budget, uint32_t max_states, double *cost)
{
    oracle o = {.p = p, .budget = budget, .max_seen = max_states, .n_table = max_states * 2 + 1};
    double base = 0;
    uint32_t end = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) base += p->cost[i];
    for (uint32_t b = 0; b < p->n_bufs && p->buf_flags; b++)
        if (p->buf_flags[b] & PL_REMAT_END) end |= 1u << b;
    o.n_buckets = (uint32_t)base * 8 + 1; /* a plan of eight times the cost is "none" */
    o.table = calloc(o.n_table, sizeof *o.table);
    o.bucket = calloc(o.n_buckets, sizeof *o.bucket);
    if (o.table && o.bucket) *cost = run(&o, end);
    bool known = o.table && o.bucket && !o.overflow;
    free(o.table);
    free(o.bucket);
    return known;
}
