/* update.c - chooses the compiled set of optimiser loops that this machine runs. */
#include "cpu/kernels/update.h"

#include "cpu/isa/isa.h"

typedef pl_update_fn update_set[PL_N_UPDATES];
PL_ISA_EXTERN(update_set, pl_update);

pl_update_fn pl_update_best(pl_update_rule rule)
{
    static const update_set *const sets[] = PL_ISA_SETS(pl_update);
    return (*sets[pl_cpu_level()])[rule];
}
