/* rows.c - chooses the compiled set of row loops that this machine runs. */
#include "cpu/kernels/rows.h"

#include "cpu/isa/isa.h"

PL_ISA_EXTERN(pl_row_loops, pl_rows);

const pl_row_loops *pl_rows_best(void)
{
    static const pl_row_loops *const sets[] = PL_ISA_SETS(pl_rows);
    return sets[pl_cpu_level()];
}
