/* sim.h - the simulator for tests in C: the kernels compiled for it, and its switches. */
#ifndef PL_CUDASIM_SIM_H
#define PL_CUDASIM_SIM_H

#include "ir/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kernels of an op that run in the simulator; NULL if none. Operands are host memory. */
const pl_kernel *pl_cuda_kernels_of(const char *op);
/* Threads and blocks last to first: a result that changes has a race. */
void pl_sim_reverse(bool on);
/* What went wrong in the last failed launch; "" if nothing did. */
const char *pl_sim_error(void);

#ifdef __cplusplus
}
#endif

#endif
