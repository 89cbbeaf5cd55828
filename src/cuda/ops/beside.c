/* beside.c - see beside.h. */
#include "cuda/ops/beside.h"

typedef struct bytes_at {
    uintptr_t at, end;
} bytes_at;

enum { READS, WRITES };

/* Calls `hit` for every range of bytes that a unit reads or writes until one returns true. */
typedef bool (*range_fn)(void *ctx, const void *at, size_t bytes, int what);

static bool each_range(const pl_bound_unit *l, range_fn hit, void *ctx)
{
    const pl_call *c = &l->call;
    if (!l->exec)
        return l->bytes &&
               (hit(ctx, l->from, l->bytes, READS) || hit(ctx, l->to, l->bytes, WRITES));
    for (int i = 0; i < c->n_out; i++)
        if (hit(ctx, c->out[i], pl_type_bytes(&c->out_type[i]), WRITES)) return true;
    if (hit(ctx, c->work, l->exec->work_bytes, WRITES)) return true;
    for (int i = 0; i < c->n_in; i++)
        if (hit(ctx, c->in[i], pl_type_bytes(&c->in_type[i]), READS)) return true;
    return false;
}

typedef struct pair {
    const pl_bound_unit *other;
    bytes_at mine;
    int what;
} pair;

static bool meets(void *ctx, const void *at, size_t bytes, int what)
{
    const pair *p = ctx;
    uintptr_t from = (uintptr_t)at;
    return at && (p->what == WRITES || what == WRITES) && from < p->mine.end &&
           p->mine.at < from + bytes;
}

static bool meets_other(void *ctx, const void *at, size_t bytes, int what)
{
    pair *p = ctx;
    if (!at || !bytes) return false;
    p->mine = (bytes_at){(uintptr_t)at, (uintptr_t)at + bytes};
    p->what = what;
    return each_range(p->other, meets, p);
}

static bool must_follow(const pl_bound_unit *a, uint32_t n_a, const pl_bound_unit *b, uint32_t n_b)
{
    for (uint32_t i = 0; i < n_a; i++)
        for (uint32_t k = 0; k < n_b; k++) {
            pair p = {.other = &a[i]};
            if (each_range(&b[k], meets_other, &p)) return true;
        }
    return false;
}

bool pl_beside_allowed(const pl_bound_unit *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (l[i].exchange || l[i].after || l[i].move) return false;
        for (int c = 0; c < PL_N_CHANNELS; c++)
            if (l[i].wait[c]) return false;
    }
    return true;
}

uint64_t pl_beside_ends(const pl_beside *b)
{
    uint64_t followed = 0, all = b->n == PL_BESIDE_SPAN ? ~(uint64_t)0 : ((uint64_t)1 << b->n) - 1;
    for (int i = 0; i < b->n; i++) followed |= b->before[i];
    return all & ~followed;
}

int pl_beside_add(pl_beside *b, const pl_bound_unit *l, uint32_t count, uint64_t *follows,
                  bool *opens)
{
    uint64_t before = 0;
    *follows = 0;
    *opens = b->n == 0 || b->n == PL_BESIDE_SPAN;
    if (*opens) {
        *follows = pl_beside_ends(b);
        b->n = 0;
    }
    /* From the newest: an entry that a direct predecessor follows already is not one itself. */
    for (int i = b->n - 1; i >= 0; i--) {
        uint64_t bit = (uint64_t)1 << i;
        if (before & bit) continue;
        if (i > 0 && !must_follow(b->unit[i], b->count[i], l, count)) continue;
        before |= bit | b->before[i];
        *follows |= bit;
    }
    int at = b->n++;
    b->unit[at] = l;
    b->count[at] = count;
    b->before[at] = before;
    return at;
}
