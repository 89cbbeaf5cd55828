/* recompute_fill.c - undoes recompute where room is left.
 *
 * A repeated unit may be deleted if, for every output with a reader, the copy before it can be held
 * from its last read to the readers of the new copy: the bytes alive in between, plus the copy's,
 * must stay within the budget. Inputs of the repeated unit may then end earlier, which frees
 * memory, and units that were recomputed only for it are deleted, too.
 *
 * The bytes alive are one number per position, kept in blocks. Positions of deleted units stay.
 * They are harmless, because every buffer that is alive there is alive at the next position, too.
 * Candidates are ordered by cost saved per bytes times positions held, in two rounds, as the first
 * makes room. Each copy has a doubly linked list of its reads in rising order; deleting a unit
 * unlinks its reads, merging a copy into the copy before it appends its list.
 *
 * Invariant: with `exact`, after each deletion the bytes alive at every position are within the
 * budget. Without it, a copy whose unit was deleted still counts as the start of the copy after it;
 * the list may then need more than the budget, which the last measurement finds. Cost: sorting the
 * repeated units, and for each the blocks of positions over which its copy is held.
 *
 * Example (recompute.h): A B C D A E with bytes 4 8 4 8 8 8. Undoing the second A means holding a
 * over positions 2 and 3: 8 and 12 bytes. With a budget of 8 that is too much at D; with 12 it
 * fits, and the list becomes A B C D E.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "plan/recompute/recompute_eval.h"

enum { BLOCK = 128 }; /* positions */

typedef struct copy {
    uint32_t owner, start; /* its position */
    uint32_t before;       /* the copy of the same owner before it, or NONE */
    uint32_t into;         /* the copy that replaces it: the copy it was merged into or, if its unit
                            * was deleted, the copy before it; itself if none */
    uint32_t head, tail;   /* reads, or NONE */
} copy;

typedef struct use {
    uint32_t at, copy, next, prev;
} use;

typedef struct candidate {
    double gain;
    uint32_t at;
} candidate;

struct pl__recompute_fill_mem {
    uint32_t cap_instr, cap_copy, cap_use;
    copy *copies;
    use *uses;
    uint32_t *copy_at, *use_at; /* of each position, and one past */
    /* Bytes alive at position k: alive[k] + more[k / BLOCK]; most[] is the largest alive[] of a
     * block. So a range is checked, and changed, block by block. */
    int64_t *alive; /* of each position and of the end */
    int64_t *more, *most;
    uint8_t *gone;
    candidate *cand;
    uint32_t *stack;
    uint32_t *current; /* of each value: its copy now */
    pl__recompute_seq backup;
};

typedef struct fill {
    const pl__recompute *m;
    pl__recompute_fill_mem *mem;
    const pl__recompute_seq *s;
    const uint8_t *first;
    bool exact; /* follows deleted copies to the copies before them */
    int64_t budget;
    uint32_t n_copies, n_uses, n_gone;
} fill;

static void free_arrays(pl__recompute_fill_mem *f)
{
    pl_sys_free(f->copies);
    pl_sys_free(f->uses);
    pl_sys_free(f->copy_at);
    pl_sys_free(f->use_at);
    pl_sys_free(f->alive);
    pl_sys_free(f->more);
    pl_sys_free(f->most);
    pl_sys_free(f->gone);
    pl_sys_free(f->cand);
    pl_sys_free(f->stack);
    pl_sys_free(f->current);
}

void pl__recompute_fill_release(pl__recompute_eval *e)
{
    if (!e->fill) return;
    free_arrays(e->fill);
    pl__recompute_seq_release(&e->fill->backup);
    pl_sys_free(e->fill);
    e->fill = NULL;
}

static pl_status reserve(pl__recompute_eval *e, const pl__recompute_seq *s)
{
    const pl__recompute *m = e->m;
    if (!e->fill && !(e->fill = pl_sys_alloc(sizeof *e->fill))) return PL_ERR_MEMORY;
    pl__recompute_fill_mem *f = e->fill;
    /* copies that exist at the start; reads at the end */
    uint32_t copies = m->n_vals, uses = m->n_vals;
    for (uint32_t k = 0; k < s->n; k++) {
        copies += m->makes.at[s->unit[k] + 1] - m->makes.at[s->unit[k]];
        uses += m->needs.at[s->unit[k] + 1] - m->needs.at[s->unit[k]];
    }
    if (s->n < f->cap_instr && copies <= f->cap_copy && uses <= f->cap_use) return PL_OK;
    free_arrays(f);
    pl__recompute_seq backup = f->backup;
    uint32_t n = s->n + s->n / 2 + 64;
    *f = (pl__recompute_fill_mem){.backup = backup};
    copies += copies / 2;
    uses += uses / 2;
    f->copies = pl_sys_alloc(copies * sizeof *f->copies);
    f->uses = pl_sys_alloc(uses * sizeof *f->uses);
    f->copy_at = pl_sys_alloc(n * sizeof *f->copy_at);
    f->use_at = pl_sys_alloc(n * sizeof *f->use_at);
    f->alive = pl_sys_alloc(n * sizeof *f->alive);
    f->more = pl_sys_alloc((n / BLOCK + 1) * sizeof *f->more);
    f->most = pl_sys_alloc((n / BLOCK + 1) * sizeof *f->most);
    f->gone = pl_sys_alloc(n);
    f->cand = pl_sys_alloc(n * sizeof *f->cand);
    f->stack = pl_sys_alloc(n * sizeof *f->stack);
    f->current = pl_sys_alloc((m->n_vals + 1) * sizeof *f->current);
    if (!f->copies || !f->uses || !f->copy_at || !f->use_at || !f->alive || !f->more || !f->most ||
        !f->gone || !f->cand || !f->stack || !f->current)
        return PL_ERR_MEMORY;
    f->cap_instr = n;
    f->cap_copy = copies;
    f->cap_use = uses;
    return PL_OK;
}

/* ---- building --------------------------------------------------------------------------- */
static uint32_t add_copy(fill *f, uint32_t owner, uint32_t start)
{
    uint32_t c = f->n_copies++;
    f->mem->copies[c] = (copy){.owner = owner,
                               .start = start,
                               .before = f->mem->current[owner],
                               .into = c,
                               .head = PL_RECOMPUTE_NONE,
                               .tail = PL_RECOMPUTE_NONE};
    f->mem->current[owner] = c;
    return c;
}

static void add_use(fill *f, uint32_t owner, uint32_t at)
{
    uint32_t u = f->n_uses++, c = f->mem->current[owner];
    copy *cp = &f->mem->copies[c];
    f->mem->uses[u] = (use){.at = at, .copy = c, .next = PL_RECOMPUTE_NONE, .prev = cp->tail};
    if (cp->tail == PL_RECOMPUTE_NONE)
        cp->head = u;
    else
        f->mem->uses[cp->tail].next = u;
    cp->tail = u;
}

static uint32_t last_read(const fill *f, const copy *c)
{
    return c->tail == PL_RECOMPUTE_NONE ? c->start : f->mem->uses[c->tail].at;
}

static uint32_t block_end(const fill *f, uint32_t block)
{
    uint32_t end = (block + 1) * BLOCK;
    return end < f->s->n + 1 ? end : f->s->n + 1;
}

static void renew_most(fill *f, uint32_t block)
{
    const int64_t *alive = f->mem->alive;
    int64_t most = INT64_MIN;
    for (uint32_t k = block * BLOCK, end = block_end(f, block); k < end; k++)
        most = alive[k] > most ? alive[k] : most;
    f->mem->most[block] = most;
}

/* Adds to positions lo .. hi - 1 of one block. */
static void add_in_block(fill *f, uint32_t lo, uint32_t hi, int64_t bytes)
{
    for (uint32_t k = lo; k < hi; k++) f->mem->alive[k] += bytes;
    renew_most(f, lo / BLOCK);
}

static void add_bytes(fill *f, uint32_t lo, uint32_t hi, int64_t bytes)
{
    while (lo < hi) {
        uint32_t block = lo / BLOCK, end = block_end(f, block);
        if (lo == block * BLOCK && end <= hi)
            f->mem->more[block] += bytes;
        else
            add_in_block(f, lo, end < hi ? end : hi, bytes);
        lo = end;
    }
}

static void build(fill *f)
{
    const pl__recompute *m = f->m;
    pl__recompute_fill_mem *mem = f->mem;
    uint32_t n = f->s->n;
    int64_t pinned = 0;
    memset(mem->alive, 0, (n + 1) * sizeof *mem->alive);
    memset(mem->gone, 0, n + 1);
    for (uint32_t v = 0; v < m->n_vals; v++) mem->current[v] = PL_RECOMPUTE_NONE;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        if (m->owner[v] != v || m->writer[v] != PL_RECOMPUTE_NONE) continue;
        if (m->pinned[v])
            pinned += (int64_t)m->bytes[v];
        else
            add_copy(f, v, 0);
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t unit = f->s->unit[k];
        mem->use_at[k] = f->n_uses;
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            add_use(f, m->needs.item[i], k);
        mem->copy_at[k] = f->n_copies;
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i];
            if (!m->pinned[r])
                add_copy(f, r, k);
            else if (f->first[k])
                mem->alive[k] += (int64_t)m->bytes[r];
        }
    }
    mem->use_at[n] = f->n_uses;
    mem->copy_at[n] = f->n_copies;
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->end[v] && m->owner[v] == v && !m->pinned[v]) add_use(f, v, n);
    mem->alive[0] += pinned;
    for (uint32_t c = 0; c < f->n_copies; c++) {
        const copy *cp = &mem->copies[c];
        uint32_t last = last_read(f, cp);
        mem->alive[cp->start] += (int64_t)m->bytes[cp->owner];
        if (last < n) mem->alive[last + 1] -= (int64_t)m->bytes[cp->owner];
    }
    /* differences so far */
    for (uint32_t k = 0; k < n; k++) mem->alive[k + 1] += mem->alive[k];
    for (uint32_t k = 0; k < n; k++) mem->alive[k] += (int64_t)pl__recompute_work(m, f->s->unit[k]);
    memset(mem->more, 0, (n / BLOCK + 1) * sizeof *mem->more);
    for (uint32_t b = 0; b <= n / BLOCK; b++) renew_most(f, b);
}

/* ---- deleting --------------------------------------------------------------------------- */
static uint32_t find(const fill *f, uint32_t c)
{
    copy *cp = f->mem->copies;
    while (cp[c].into != c) c = cp[c].into = cp[cp[c].into].into;
    return c;
}

static bool is_read(const fill *f, uint32_t c)
{
    return f->mem->copies[c].head != PL_RECOMPUTE_NONE;
}

static bool has_room(const fill *f, uint32_t lo, uint32_t hi, int64_t bytes)
{
    const pl__recompute_fill_mem *mem = f->mem;
    int64_t most = f->budget - bytes;
    while (lo < hi) {
        uint32_t block = lo / BLOCK, end = block_end(f, block);
        int64_t more = mem->more[block];
        bool whole = lo == block * BLOCK && end <= hi;
        if (mem->most[block] + more > most) {
            if (whole) return false;
            for (uint32_t k = lo; k < end && k < hi; k++)
                if (mem->alive[k] + more > most) return false;
        }
        lo = end;
    }
    return true;
}

/* Without position k its inputs would end earlier. sign -1 subtracts their bytes over that time
 * from the bytes alive, +1 adds them back. */
static void shift_inputs(fill *f, uint32_t k, int64_t sign)
{
    for (uint32_t u = f->mem->use_at[k]; u < f->mem->use_at[k + 1]; u++) {
        const copy *cp = &f->mem->copies[find(f, f->mem->uses[u].copy)];
        if (cp->tail != u) continue;
        uint32_t prev = f->mem->uses[u].prev;
        uint32_t last = prev == PL_RECOMPUTE_NONE ? cp->start : f->mem->uses[prev].at;
        add_bytes(f, last + 1, k + 1, sign * (int64_t)f->m->bytes[cp->owner]);
    }
}

static void unlink_use(fill *f, uint32_t u)
{
    use *us = f->mem->uses;
    copy *cp = &f->mem->copies[find(f, us[u].copy)];
    if (us[u].prev == PL_RECOMPUTE_NONE)
        cp->head = us[u].next;
    else
        us[us[u].prev].next = us[u].next;
    if (us[u].next == PL_RECOMPUTE_NONE)
        cp->tail = us[u].prev;
    else
        us[us[u].next].prev = us[u].prev;
}

/* Deletes position k, then all that was recomputed only for it. Requires that its outputs have no
 * reader and that shift_inputs was called for it. */
static void take_out(fill *f, uint32_t k)
{
    pl__recompute_fill_mem *mem = f->mem;
    uint32_t depth = 0;
    mem->stack[depth++] = k;
    while (depth) {
        uint32_t j = mem->stack[--depth];
        if (j != k) shift_inputs(f, j, -1);
        mem->gone[j] = 1;
        f->n_gone++;
        int64_t freed = (int64_t)pl__recompute_work(f->m, f->s->unit[j]);
        for (uint32_t c = mem->copy_at[j]; c < mem->copy_at[j + 1]; c++) {
            copy *cp = &mem->copies[c];
            if (cp->into != c) continue;
            freed += (int64_t)f->m->bytes[cp->owner];
            if (f->exact && cp->before != PL_RECOMPUTE_NONE) cp->into = find(f, cp->before);
        }
        if (freed) add_in_block(f, j, j + 1, -freed);
        for (uint32_t u = mem->use_at[j]; u < mem->use_at[j + 1]; u++) {
            unlink_use(f, u);
            uint32_t from = mem->copies[find(f, mem->uses[u].copy)].start;
            if (mem->gone[from] || f->first[from] || mem->copy_at[from] == mem->copy_at[from + 1])
                continue;
            bool wanted = false;
            for (uint32_t c = mem->copy_at[from]; c < mem->copy_at[from + 1]; c++)
                wanted = wanted || is_read(f, c);
            if (wanted) continue;
            mem->gone[from] = 1; /* on the stack once */
            mem->stack[depth++] = from;
        }
    }
}

/* Holds the copy before c instead of c, if there is room. */
static bool hold_before(fill *f, uint32_t c)
{
    const copy *cp = &f->mem->copies[c];
    if (cp->before == PL_RECOMPUTE_NONE) return false;
    const copy *old = &f->mem->copies[find(f, cp->before)];
    uint32_t last = last_read(f, old);
    int64_t bytes = (int64_t)f->m->bytes[cp->owner];
    if (last >= cp->start || !has_room(f, last + 1, cp->start, bytes)) return false;
    add_bytes(f, last + 1, cp->start, bytes);
    return true;
}

static void unhold(fill *f, uint32_t c)
{
    const copy *cp = &f->mem->copies[c], *old = &f->mem->copies[find(f, cp->before)];
    add_bytes(f, last_read(f, old) + 1, cp->start, -(int64_t)f->m->bytes[cp->owner]);
}

static void merge_before(fill *f, uint32_t c)
{
    copy *cp = &f->mem->copies[c];
    uint32_t into = find(f, cp->before);
    copy *old = &f->mem->copies[into];
    use *us = f->mem->uses;
    us[cp->head].prev = old->tail;
    if (old->tail == PL_RECOMPUTE_NONE)
        old->head = cp->head;
    else
        us[old->tail].next = cp->head;
    old->tail = cp->tail;
    cp->into = into;
}

static void try_delete(fill *f, uint32_t k)
{
    pl__recompute_fill_mem *mem = f->mem;
    uint32_t lo = mem->copy_at[k], hi = mem->copy_at[k + 1], c = lo;
    shift_inputs(f, k, -1);
    while (c < hi && (!is_read(f, c) || hold_before(f, c))) c++;
    if (c < hi) {
        while (c-- > lo)
            if (is_read(f, c)) unhold(f, c);
        shift_inputs(f, k, 1);
        return;
    }
    for (c = lo; c < hi; c++)
        if (is_read(f, c)) merge_before(f, c);
    take_out(f, k);
}

/* ---- the greedy ------------------------------------------------------------------------- */
static int by_gain(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static uint32_t list_candidates(fill *f)
{
    pl__recompute_fill_mem *mem = f->mem;
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->s->n; k++) {
        if (f->first[k] || mem->gone[k] || mem->copy_at[k] == mem->copy_at[k + 1]) continue;
        double held = 1;
        bool fits = true;
        for (uint32_t c = mem->copy_at[k]; c < mem->copy_at[k + 1]; c++) {
            const copy *cp = &mem->copies[c];
            if (!is_read(f, c)) continue;
            if (cp->before == PL_RECOMPUTE_NONE) {
                fits = false;
                break;
            }
            uint32_t last = last_read(f, &mem->copies[find(f, cp->before)]);
            held += (double)f->m->bytes[cp->owner] * (double)(k - last);
        }
        if (fits) mem->cand[n++] = (candidate){f->m->cost[f->s->unit[k]] / held, k};
    }
    qsort(mem->cand, n, sizeof *mem->cand, by_gain);
    return n;
}

/* Deletes views that are recomputed from the same copy of their base. current of a view holds the
 * position of that copy, plus one. */
static void drop_spare_views(fill *f, pl__recompute_seq *s)
{
    const pl__recompute *m = f->m;
    const pl_recompute_problem *p = m->p;
    uint32_t *born = f->mem->current, n = 0;
    memset(born, 0, m->n_vals * sizeof *born);
    for (uint32_t k = 0; k < s->n; k++) {
        if (f->mem->gone[k]) continue;
        uint32_t unit = s->unit[k];
        bool spare = p->out_at[unit] < p->out_at[unit + 1];
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            uint32_t v = p->out[i], r = m->owner[v];
            uint32_t from = v == r ? k + 1 : born[r] ? born[r] : 1;
            if (v == r || born[v] != from) spare = false;
            if (v != r || !m->pinned[r] || !born[r]) born[v] = from;
        }
        if (!spare) s->unit[n++] = unit;
    }
    s->n = n;
}

/* Deletes every repeat that it can. *ok: the list is a plan, within the budget and not dearer than
 * it was. */
static pl_status fill_once(fill *f, pl__recompute_eval *e, pl__recompute_seq *s, bool *ok)
{
    build(f);
    for (int round = 0; round < 2; round++) {
        uint32_t n = list_candidates(f);
        for (uint32_t i = 0; i < n; i++)
            if (!f->mem->gone[f->mem->cand[i].at]) try_delete(f, f->mem->cand[i].at);
    }
    drop_spare_views(f, s);
    PL_TRY(pl__recompute_tighten(e, s, ok));
    *ok = *ok && s->peak <= (uint64_t)f->budget && s->cost <= e->fill->backup.cost;
    return PL_OK;
}

pl_status pl__recompute_fill(pl__recompute_eval *e, pl__recompute_seq *s, uint64_t budget,
                             bool exact)
{
    bool ok;
    PL_TRY(pl__recompute_eval_reserve(e, s->n)); /* another evaluation may have made the list */
    PL_TRY(reserve(e, s));
    PL_TRY(pl__recompute_seq_copy(&e->fill->backup, s));
    memset(e->seen, 0, e->m->n_units);
    for (uint32_t k = 0; k < s->n; k++) {
        e->first[k] = !e->seen[s->unit[k]];
        e->seen[s->unit[k]] = 1;
    }
    fill f = {.m = e->m,
              .mem = e->fill,
              .s = s,
              .first = e->first,
              .exact = exact,
              .budget = (int64_t)(budget > INT64_MAX ? INT64_MAX : budget)};
    PL_TRY(fill_once(&f, e, s, &ok));
    return ok ? PL_OK : pl__recompute_seq_copy(s, &e->fill->backup);
}
