/* nvrtc.h - kernels compiled at run time: in the background, once for each text, cached on disk.
 *
 * All groups with the same text share a module. A module lives as long as the process, as the
 * loaded code does.
 */
#ifndef PL_CUDA_NVRTC_H
#define PL_CUDA_NVRTC_H

#include "cuda/device/cuda.h"

typedef struct pl_cuda_module pl_cuda_module;

/* Starts the compilation on background threads and returns at once; copies the text. shared: the
 * most bytes of dynamic shared memory of a launch. own: the text has instructions that only this
 * architecture has (sm_90a). */
pl_status pl_cuda_module_make(const char *text, size_t len, uint32_t shared, bool own,
                              pl_cuda_module **out) PL_MUST_USE;
/* Waits until all modules created so far are compiled, and loads them; returns the first
 * failure. */
pl_status pl_cuda_module_wait(void) PL_MUST_USE;
/* Returns the function of a module after pl_cuda_module_wait; NULL before. */
cudaKernel_t pl_cuda_module_kernel(const pl_cuda_module *m);
/* Whether the function keeps registers in memory; after pl_cuda_module_wait. */
bool pl_cuda_module_spills(const pl_cuda_module *m);

#endif
