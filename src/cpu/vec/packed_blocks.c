/* packed_blocks.c - chooses the loops of packed_blocks.h. */
#include "cpu/vec/packed_blocks.h"

#include "cpu/isa/isa.h"

PL_ISA_EXTERN(pl_packed_loops, pl_packed_loops);

const pl_packed_loops *pl_packed_best(void)
{
    static const pl_packed_loops *const sets[] = PL_ISA_SETS(pl_packed_loops);
    return sets[pl_cpu_level()];
}
