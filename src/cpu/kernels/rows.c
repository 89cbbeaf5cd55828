/* rows.c - chooses the compiled set of row loops that this machine runs. */
#include "cpu/kernels/rows.h"

#include <stdlib.h>
#include <string.h>

extern const pl_row_loops pl_rows_base, pl_rows_avx2, pl_rows_avx512;

int pl_cpu_level(void)
{
    const char *want = getenv("PL_CPU_ISA");
    if (want && strcmp(want, "base") == 0) return 0;
    /* Every processor with AVX2 has F16C; clang 14 cannot test for it. */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (want && strcmp(want, "avx2") == 0) avx512 = false;
    return avx2 && avx512 ? 2 : avx2 ? 1 : 0;
}

const pl_row_loops *pl_rows_best(void)
{
    static const pl_row_loops *const sets[] = {&pl_rows_base, &pl_rows_avx2, &pl_rows_avx512};
    return sets[pl_cpu_level()];
}
