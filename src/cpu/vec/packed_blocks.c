/* packed_blocks.c - chooses the loops of packed_blocks.h, and runs them over many blocks. */
#include "cpu/vec/packed_blocks.h"

#include "base/threads.h"
#include "cpu/isa/isa.h"

PL_ISA_EXTERN(pl_packed_loops, pl_packed_loops);

const pl_packed_loops *pl_packed_best(void)
{
    static const pl_packed_loops *const sets[] = PL_ISA_SETS(pl_packed_loops);
    return sets[pl_cpu_level()];
}

enum { AT_ONCE = 64 }; /* blocks of a task */
typedef struct job {
    const pl_packed_table *t;
    size_t bytes;
    int64_t n;
    const float *from;
    float *to;
    const uint8_t *read;
    uint8_t *write;
} job;

static void run_blocks(void *ctx, int64_t task, int worker)
{
    const job *j = ctx;
    const pl_packed_loops *loops = pl_packed_best();
    (void)worker;
    for (int64_t b = task * AT_ONCE; b < (task + 1) * AT_ONCE && b * j->t->block < j->n; b++) {
        int64_t at = b * j->t->block, left = j->n - at;
        int n = left < j->t->block ? (int)left : j->t->block;
        if (j->write)
            loops->pack(j->t, j->from + at, n, j->write + (size_t)b * j->bytes);
        else
            loops->unpack(j->t, j->read + (size_t)b * j->bytes, n, j->to + at);
    }
}

static void run_all(pl_packing p, job j)
{
    j.t = pl_packed(p);
    j.bytes = pl_packed_bytes(p);
    int64_t task = (int64_t)AT_ONCE * j.t->block;
    pl_threads_for((j.n + task - 1) / task, run_blocks, &j);
}

void pl_pack_all(pl_packing p, const float *x, int64_t n, uint8_t *blocks)
{
    run_all(p, (job){.n = n, .from = x, .write = blocks});
}

void pl_unpack_all(pl_packing p, const uint8_t *blocks, int64_t n, float *x)
{
    run_all(p, (job){.n = n, .read = blocks, .to = x});
}
