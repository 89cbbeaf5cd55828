/* narrow.c - see narrow.h: chooses the loops and splits the rows among threads. */
#include "cpu/kernels/narrow.h"

#include "base/threads.h"
#include "cpu/isa/isa.h"

PL_ISA_EXTERN(pl_narrow_loops, pl_narrow_loops);

/* A part of the work needs at least this many elements of A to be worth a thread and, as each part
 * leaves a row to be added up, this many rows. */
enum { PART_ELEMS = 32 * 1024, PART_ROWS = 64, MAX_PARTS = 32 };

static const pl_narrow_loops *loops(void)
{
    static const pl_narrow_loops *const sets[] = PL_ISA_SETS(pl_narrow_loops);
    return sets[pl_cpu_level()];
}

int64_t pl_narrow_parts(const pl_narrow *s)
{
    int64_t parts = s->rows * s->cols / PART_ELEMS;
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    if (parts > s->rows / PART_ROWS) parts = s->rows / PART_ROWS;
    return parts < 1 ? 1 : parts;
}

typedef struct job {
    const pl_narrow *s;
    const pl_narrow_loops *loops;
    int64_t parts;
    const float *a, *b, *bias;
    float *c;
} job;

static void dot_part(void *ctx, int64_t part, int worker)
{
    (void)worker;
    const job *j = ctx;
    const int64_t rows = j->s->rows;
    j->loops->dot(j->s, rows * part / j->parts, rows * (part + 1) / j->parts, j->a, j->b, j->bias,
                  j->c);
}

static void sum_part(void *ctx, int64_t part, int worker)
{
    (void)worker;
    const job *j = ctx;
    const int64_t rows = j->s->rows;
    j->loops->sum(j->s, rows * part / j->parts, rows * (part + 1) / j->parts, j->a, j->b,
                  j->c + part * j->s->n * j->s->cols);
}

void pl_narrow_dot(const pl_narrow *s, const float *a, const float *b, const float *bias, float *c)
{
    job j = {.s = s,
             .loops = loops(),
             .parts = pl_narrow_parts(s),
             .a = a,
             .b = b,
             .bias = bias,
             .c = c};
    pl_threads_for(j.parts, dot_part, &j);
}

void pl_narrow_sum(const pl_narrow *s, const float *a, const float *b, const float *bias, float *c,
                   float *work)
{
    job j = {.s = s, .loops = loops(), .parts = pl_narrow_parts(s), .a = a, .b = b, .c = work};
    pl_threads_for(j.parts, sum_part, &j);
    const int64_t size = s->n * s->cols;
    for (int64_t i = 0; i < size; i++) c[i] = bias ? bias[i % s->cols * s->bias_row] : 0.0f;
    for (int64_t part = 0; part < j.parts; part++)
        for (int64_t i = 0; i < size; i++) c[i] += work[part * size + i];
}
