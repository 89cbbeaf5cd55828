/* nvrtc.h - kernels compiled at run time: in the background, once for each text, cached on disk.
 *
 * All groups with the same text share a module. A module lives as long as the process, as the
 * loaded code does.
 */
#ifndef PL_CUDA_NVRTC_H
#define PL_CUDA_NVRTC_H

#include "cuda/device/cuda.h"

typedef struct pl_cuda_module pl_cuda_module;

/* Returns at once; the text is copied. Compilation goes on on threads of its own. shared: the most
 * bytes of shared memory that a launch gives it. */
pl_status pl_cuda_module_make(const char *text, size_t len, uint32_t shared,
                              pl_cuda_module **out) PL_MUST_USE;
/* Waits until all modules made so far are compiled, and loads them; the first failure. */
pl_status pl_cuda_module_wait(void) PL_MUST_USE;
/* The function of a module that has been waited for; NULL before. */
cudaKernel_t pl_cuda_module_kernel(const pl_cuda_module *m);

#endif
