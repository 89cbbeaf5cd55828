/* cuda.h - shared by the files of the CUDA plug-in.
 *
 * The plug-in, libplimsoll_cuda.so, is opened at run time by rt/device_cuda.c and takes the
 * engine's own base and ir functions from the program that opens it. It drives one GPU per process.
 * Kernels keep the contract of ir/kernel.h: prepare once (may allocate host memory, choose
 * algorithms, compile), run any number of times. run only enqueues work on pl_cuda_stream(); it
 * never waits, allocates or reads device memory, so that a whole step can be captured as a graph.
 * Pointers in a call are device pointers.
 *
 * Every CUDA, cuBLAS, cuDNN and NVRTC call goes through a check that turns a failure into
 * PL_ERR_DEVICE with the call's name and the library's own message.
 *
 * Valid C++ too: the .cu files include it.
 */
#ifndef PL_CUDA_CUDA_H
#define PL_CUDA_CUDA_H

#include "base/err.h"
#include "ir/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the GPU ---------------------------------------------------------------------------- */
typedef struct pl_cuda_props {
    int index;
    int sms;          /* multiprocessors */
    int arch;         /* compute capability, 90 for 9.0 */
    int shared_limit; /* bytes of shared memory that one block may request */
    size_t l2_bytes;
    size_t total_bytes;
    char name[256];
} pl_cuda_props;
/* Valid once the device is open. */
const pl_cuda_props *pl_cuda_props_get(void);
/* Returns the stream that kernels enqueue on. It is the same for the life of the process. */
cudaStream_t pl_cuda_stream(void);
/* Whether f32 products may use TF32 units (off unless the precision says so), and whether
 * algorithms are chosen by timing (compile.mode max-autotune) rather than by heuristics. */
bool pl_cuda_tf32(void);
/* Whether f32 products may be split for tensor cores, with f32's accuracy (split.h): on GPUs whose
 * TF32 units are many times as fast as their f32 units, unless compile.fp32 is plain. */
bool pl_cuda_split(void);
bool pl_cuda_autotune(void);
/* Returns the folder for compiled kernels and timed choices, created on demand: $PLIMSOLL_CACHE,
 * else $XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll. "" when none. */
const char *pl_cuda_cache_dir(void);

/* fill.cu: initial values of a slot, see pl_device.draw. */
pl_status pl_cuda_start_values(void *to, pl_dtype dtype, uint64_t seed, uint32_t stream,
                               const pl_init *init, int64_t first, int64_t n) PL_MUST_USE;

/* ---- checks ----------------------------------------------------------------------------- */
pl_status pl_cuda_failed(cudaError_t rc, const char *call, const char *file, int line);
#define PL_CUDA(call)                                                                              \
 do {                                                                                              \
  cudaError_t pl_cuda_rc_ = (call);                                                                \
  if (pl_cuda_rc_ != cudaSuccess) return pl_cuda_failed(pl_cuda_rc_, #call, __FILE__, __LINE__);   \
 } while (0)
/* After a <<<>>> launch: returns the launch's own error. */
#define PL_CUDA_LAUNCHED(what)                                                                     \
 do {                                                                                              \
  cudaError_t pl_cuda_rc_ = cudaGetLastError();                                                    \
  if (pl_cuda_rc_ != cudaSuccess) return pl_cuda_failed(pl_cuda_rc_, what, __FILE__, __LINE__);    \
 } while (0)

/* ---- the table of kernels --------------------------------------------------------------- */
/* Kernels of one op, best first; ends with PL_KERNEL_END. Every file of kernels exports one table
 * pl_cuda_<file>[] that ends with {NULL, NULL}; table.c lists them. */
typedef struct pl_cuda_entry {
    const char *op;
    const pl_kernel *kernels;
} pl_cuda_entry;
const pl_kernel *pl_cuda_kernels_of(const char *op); /* NULL if none */

#ifdef __cplusplus
}
#endif

#endif
