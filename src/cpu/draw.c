/* draw.c - which compiled set of generators this machine runs. */
#include "cpu/draw.h"

#include "cpu/rows.h"

extern const pl_draw pl_draw_base, pl_draw_avx2, pl_draw_avx512;

const pl_draw *pl_draw_best(void)
{
    static const pl_draw *const sets[] = {&pl_draw_base, &pl_draw_avx2, &pl_draw_avx512};
    return sets[pl_cpu_level()];
}
