/* update.c - chooses the compiled set of optimiser loops that this machine runs. */
#include "cpu/kernels/update.h"

#include "cpu/kernels/rows.h"

extern const pl_update_fn pl_update_base[PL_N_UPDATES], pl_update_avx2[PL_N_UPDATES],
    pl_update_avx512[PL_N_UPDATES];

pl_update_fn pl_update_best(pl_update_rule rule)
{
    static const pl_update_fn *const sets[] = {pl_update_base, pl_update_avx2, pl_update_avx512};
    return sets[pl_cpu_level()][rule];
}
