/* draw.c - which compiled set of generators this machine runs, and draws of any range by them. */
#include "cpu/kernels/draw.h"

#include "base/rng.h"
#include "cpu/isa/isa.h"

#include <string.h>

PL_ISA_EXTERN(pl_draw, pl_draw);

const pl_draw *pl_draw_best(void)
{
    static const pl_draw *const sets[] = PL_ISA_SETS(pl_draw);
    return sets[pl_cpu_level()];
}

uint32_t pl_draw_bits(pl_dtype d)
{
    return d == PL_BF16 ? ~0x00ffffffu : d == PL_F16 ? ~0x001fffffu : ~0u;
}

enum {
    BATCH = 4 * PL_DRAW_BLOCKS,
    SHORT = 16 /* blocks that are cheaper one by one than as a batch */
};

/* Draws the four numbers of a block. */
static void one_block(const pl_draws *from, uint64_t block, float out[4])
{
    uint32_t w[4];
    pl_rng_block(from->seed, from->stream, from->step, block, w);
    if (from->normal) {
        pl_rng_normal2(w[0], w[1], out);
        pl_rng_normal2(w[2], w[3], out + 2);
        return;
    }
    for (int i = 0; i < 4; i++) out[i] = pl_rng_uniform(w[i] & pl_draw_bits(from->dtype));
}

static void one_batch(const pl_draw *set, const pl_draws *from, uint64_t block, float *out)
{
    uint32_t w[BATCH];
    set->words(from->seed, from->stream, from->step, block, w);
    if (from->normal)
        set->normal(w, out);
    else
        set->uniform(w, pl_draw_bits(from->dtype), out);
}

void pl_draw_run(const pl_draws *from, int64_t first, int64_t n, float *out)
{
    const pl_draw *set = pl_draw_best();
    while (n > 0) {
        float v[BATCH];
        bool many = first % 4 + n > 4 * SHORT;
        int64_t skip = first % 4, room = (many ? BATCH : 4) - skip, m = n < room ? n : room;
        bool straight = many && m == BATCH;
        float *to = straight ? out : v;
        if (many)
            one_batch(set, from, (uint64_t)first / 4, to);
        else
            one_block(from, (uint64_t)first / 4, to);
        if (!straight) memcpy(out, v + skip, sizeof *out * (size_t)m);
        first += m;
        out += m;
        n -= m;
    }
}

/* Draws numbers `stride` apart. */
static void draw_line(const pl_draws *from, int64_t first, int64_t n, int64_t stride, float *out)
{
    if (stride == 1) {
        pl_draw_run(from, first, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++) pl_draw_run(from, first + i * stride, 1, out + i);
}

static void draw_f32(const pl_draws *from, int64_t first, int rank, const int64_t *size,
                     const int64_t *stride, float *out)
{
    if (rank <= 1) {
        draw_line(from, first, rank ? size[0] : 1, rank ? stride[0] : 1, out);
        return;
    }
    int64_t inner = 1;
    for (int d = 1; d < rank; d++) inner *= size[d];
    for (int64_t i = 0; i < size[0]; i++) {
        if (i && stride[0] == 0)
            memcpy(out + i * inner, out, sizeof *out * (size_t)inner);
        else
            draw_f32(from, first + i * stride[0], rank - 1, size + 1, stride + 1, out + i * inner);
    }
}

void pl_draw_box(const pl_draws *from, int64_t first, int rank, const int64_t *size,
                 const int64_t *stride, void *out)
{
    draw_f32(from, first, rank, size, stride, out);
    if (from->dtype != PL_F64) return;
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= size[d];
    const float *narrow = out;
    double *wide = out;
    for (int64_t i = n; i-- > 0;) {
        float x;
        memcpy(&x, narrow + i, sizeof x);
        double y = (double)x;
        memcpy(wide + i, &y, sizeof y);
    }
}
