/* flash.c - how attention is split into tasks, and its scratch. See flash.h.
 *
 * Forward: a task is a tile of queries of one head. Backward: a task is a span of keys of one head;
 * it walks its key tiles in order, for each of them the heads that read it, and adds to dq after
 * each. When there are few heads, a head's
 * keys are split into several spans, each with its own dq; the dq are added at the end in the order
 * of spans.
 */
#include "cpu/kernels/flash.h"

#include "base/threads.h"
#include "cpu/isa/isa.h"

#include <math.h>

PL_ISA_EXTERN(pl_flash_set, pl_flash);

static const pl_flash_set *best(void)
{
    static const pl_flash_set *const sets[] = PL_ISA_SETS(pl_flash);
    return sets[pl_cpu_level()];
}

static int64_t tiles(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* Returns the number of spans of keys per head: enough for 8 tasks, from the shape alone. */
static int64_t spans(const pl_flash *f)
{
    int64_t heads = f->batch * f->heads / f->group,
            want = heads >= 8 ? 1 : tiles(8, heads ? heads : 1);
    int64_t most = tiles(f->m, PL_FLASH_K);
    return want < most ? want : most;
}

/* Returns the floats of one thread's tiles. */
static int64_t tile_floats(const pl_flash *f, bool backward)
{
    int64_t d = pl_flash_padded(f->d), q = PL_FLASH_Q, k = PL_FLASH_K;
    if (!backward) return d * q + 2 * k * d + k * q + q * d + 3 * q;
    return 5 * k * d + 3 * q * d + 2 * q * k;
}

static int64_t dq_elems(const pl_flash *f)
{
    return f->batch * f->n * f->heads * f->d;
}

size_t pl_flash_work(const pl_flash *f, bool backward)
{
    int64_t n = pl_threads_count() * tile_floats(f, backward);
    if (backward) n += 2 * pl_flash_padded(f->batch * f->heads * f->n);
    if (backward && spans(f) > 1) n += spans(f) * pl_flash_padded(dq_elems(f));
    return (size_t)n * sizeof(float);
}

/* ---- forward ---------------------------------------------------------------------------- */
typedef struct job {
    const pl_flash *f;
    const pl_flash_set *set;
    int64_t tile_floats, spans, dq_stride;
    float *tiles, *lse2, *delta, *dq; /* dq: of the first span */
} job;

static void forward_task(void *ctx, int64_t task, int worker)
{
    const job *j = ctx;
    const pl_flash *f = j->f;
    int64_t n = tiles(f->n, PL_FLASH_Q), tile = task % n, head = task / n;
    if (f->causal) tile = n - 1 - tile; /* the long tiles first */
    j->set->forward(f, head / f->heads, head % f->heads, tile * PL_FLASH_Q,
                    j->tiles + worker * j->tile_floats);
}

void pl_flash_forward(const pl_flash *f, void *work)
{
    job j = {.f = f, .set = best(), .tile_floats = tile_floats(f, false), .tiles = work};
    pl_threads_for(f->batch * f->heads * tiles(f->n, PL_FLASH_Q), forward_task, &j);
}

/* ---- backward --------------------------------------------------------------------------- */
/* one task: lse2 and delta of the queries of one head */
static void query_task(void *ctx, int64_t head, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_flash *f = j->f;
    int64_t b = head / f->heads, h = head % f->heads;
    for (int64_t i = 0; i < f->n; i++) {
        int64_t row = ((b * f->n + i) * f->heads + h) * f->d, at = head * f->n + i;
        float sum = 0;
        for (int64_t d = 0; d < f->d; d++) sum += f->fwd_o[row + d] * f->d_o[row + d];
        j->delta[at] = f->d_lse ? sum - f->d_lse[at] : sum;
        j->lse2[at] = f->fwd_lse[at] * 1.44269504f;
    }
}

/* one task: one span of keys of one head */
static void span_task(void *ctx, int64_t task, int worker)
{
    const job *j = ctx;
    const pl_flash *f = j->f;
    int64_t span = task % j->spans, head = task / j->spans, n = tiles(f->m, PL_FLASH_K);
    int64_t keys_heads = f->heads / f->group;
    int64_t lo = span * n / j->spans * PL_FLASH_K, hi = (span + 1) * n / j->spans * PL_FLASH_K;
    j->set->backward(f, head / keys_heads, head % keys_heads, lo, hi < f->m ? hi : f->m,
                     j->dq + span * j->dq_stride, j->lse2, j->delta,
                     j->tiles + worker * j->tile_floats);
}

enum { CHUNK = 4096 };

static void add_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t lo = task * CHUNK, n = dq_elems(j->f), hi = lo + CHUNK < n ? lo + CHUNK : n;
    for (int64_t i = lo; i < hi; i++) {
        float sum = j->dq[i];
        for (int64_t s = 1; s < j->spans; s++) sum += j->dq[s * j->dq_stride + i];
        int64_t head = i / j->f->d, token = head / j->f->heads;
        j->f->dq[token * j->f->row + head % j->f->heads * j->f->step + i % j->f->d] = sum;
    }
}

void pl_flash_backward(const pl_flash *f, void *work)
{
    int64_t heads = f->batch * f->heads, queries = pl_flash_padded(heads * f->n);
    job j = {.f = f, .set = best(), .tile_floats = tile_floats(f, true), .spans = spans(f)};
    j.lse2 = work;
    j.delta = j.lse2 + queries;
    j.tiles = j.delta + queries;
    j.dq = j.spans > 1 ? j.tiles + pl_threads_count() * j.tile_floats : f->dq;
    j.dq_stride = j.spans > 1 ? pl_flash_padded(dq_elems(f)) : 0;
    pl_threads_for(heads, query_task, &j);
    pl_threads_for(heads / f->group * j.spans, span_task, &j);
    if (j.spans > 1) pl_threads_for(tiles(dq_elems(f), CHUNK), add_task, &j);
}
