/* tile_cut.c - splits the space into tasks.
 *
 * Invariant: no two tasks write the same accumulator of a reduction, or the same byte of an output
 * that is stored as bits. Any split gives the same bits; more tasks only balance the work better.
 *
 * Example: sums down the columns of [281600,64] are taken in parts of some thousand rows
 * (tile_reduce.c), so tasks are flat ranges that end where a part ends. Sums of [16,30011] over dim
 * 0 have 30011 accumulators, and each flat range may need all of them: there the tasks are ranges
 * of columns, each taken for all 16 rows.
 *
 * Cost: at most PL_TILE_TASKS tasks, computed once at compile time.
 */
#include "cpu/tile/tile_plan.h"

#include <string.h>

enum { MIN_TASK = 8192 }; /* elements */

static int64_t next_cut(const pl_tile_code *t, int64_t x)
{
    for (int tries = 0; tries < 64 && x < t->total; tries++) {
        int64_t y = (x + t->inner - 1) / t->inner * t->inner;
        if (t->bits && y % 8) y = (y + 7) / 8 * 8;
        for (int o = 0; o < t->n_place; o++)
            if (t->place[o].kind == PL_FUSED_REDUCE) y = pl_red_next_cut(&t->place[o].red, y);
        if (y == x) return x;
        x = y;
    }
    return t->total;
}

static void cut_flat(pl_tile_code *t)
{
    int64_t step = t->total / PL_TILE_TASKS;
    if (step < MIN_TASK) step = MIN_TASK;
    for (int64_t x = 0; x < t->total;) {
        int64_t end = t->n_task == PL_TILE_TASKS - 1 ? t->total : next_cut(t, x + step);
        if (end > t->total) end = t->total;
        t->task[t->n_task++] = (pl_span){x, end};
        x = end;
    }
}

/* Whether all reductions allow the space to be split along dim t at c, for every outer index:
 * different ranges along t must use different accumulators. */
static bool column_cut(const pl_tile_code *t, int64_t c)
{
    int64_t block = t->dim[t->t] * t->inner, at = c * t->inner;
    if (t->bits && (block % 8 || at % 8)) return false;
    for (int o = 0; o < t->n_place; o++) {
        const pl_red *r = &t->place[o].red;
        if (t->place[o].kind != PL_FUSED_REDUCE) continue;
        if (r->vertical && r->groups == 1 && r->inner % block == 0) continue;
        if (block % r->period == 0 && pl_red_next_cut(r, at) == at) continue;
        if (r->period % block == 0 && r->inner == 1 && block % r->unit == 0 && at % r->unit == 0)
            continue;
        return false;
    }
    return true;
}

/* A reduction over outer dims with many results (a gradient summed over the batch) allows no flat
 * split; ranges along dim t work. */
static void cut_columns(pl_tile_code *t)
{
    int64_t n = t->dim[t->t], step = n / 64, count = 0, c = 0;
    if (step < t->tile_t) step = t->tile_t;
    pl_span span[PL_TILE_TASKS];
    while (c < n && count < PL_TILE_TASKS) {
        int64_t end = c + step;
        int64_t last = end + 1024;
        while (end < n && end < last && !column_cut(t, end)) end++;
        if (end < n && !column_cut(t, end)) return;
        if (end > n) end = n;
        span[count++] = (pl_span){c, end};
        c = end;
    }
    if (c < n || count <= t->n_task) return;
    t->columns = true;
    t->n_task = (int32_t)count;
    memcpy(t->task, span, sizeof(pl_span) * (size_t)count);
    for (int o = 0; o < t->n_place; o++)
        t->row_order |= t->place[o].kind == PL_FUSED_REDUCE && !t->place[o].red.vertical;
}

void pl_tile_cut(pl_tile_code *t)
{
    if (t->empty) return;
    cut_flat(t);
    if (t->n_task < 16 && t->total >= 4 * MIN_TASK && column_cut(t, 0)) cut_columns(t);
}
