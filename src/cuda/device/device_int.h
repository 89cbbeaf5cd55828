/* device_int.h - shared by the files of the CUDA device. */
#ifndef PL_CUDA_DEVICE_INT_H
#define PL_CUDA_DEVICE_INT_H

#include "cuda/device/cuda.h"
#include "rt/device.h"

#include <cuda.h>

/* Returns a function of the driver, by name and the lowest version that has it. The driver's
 * library is not a link dependency: a machine without it must be able to say so. */
pl_status pl_cuda_driver(const char *name, int version, void **out) PL_MUST_USE;
pl_status pl_cuda_driver_failed(CUresult rc, const char *call, const char *file, int line);
#define PL_CU(call)                                                                                \
 do {                                                                                              \
  CUresult pl_cu_rc_ = (call);                                                                     \
  if (pl_cu_rc_ != CUDA_SUCCESS)                                                                   \
   return pl_cuda_driver_failed(pl_cu_rc_, #call, __FILE__, __LINE__);                             \
 } while (0)

/* ---- open_device.c ---- */
/* Starts opening the device; later functions wait for it. */
pl_status pl_cuda_device_open(int index) PL_MUST_USE;
/* Call it before a thread's first CUDA call: waits until the device is open and makes it the
 * thread's current device. */
pl_status pl_cuda_device_wait(void) PL_MUST_USE;
pl_status pl_cuda_device_list(pl_device_info *out, int cap, int *n) PL_MUST_USE;
void pl_cuda_set_mode(const pl_device_mode *m);
/* A second stream, for uploads. */
cudaStream_t pl_cuda_upload_stream(void);

/* ---- used_memory.c ---- */
/* Records what other processes hold; call it before the device is opened. */
void pl_cuda_used_begin(const char *pci_id);
/* Returns the free bytes of any GPU, without opening it; 0: not known. */
uint64_t pl_cuda_free_bytes(const char *pci_id);
uint64_t pl_cuda_used_bytes(void);
pl_status pl_cuda_room(uint64_t bytes) PL_MUST_USE;

/* ---- memory.c ---- */
pl_status pl_cuda_alloc(size_t bytes, void **out) PL_MUST_USE;
void pl_cuda_free(void *p, size_t bytes);
pl_status pl_cuda_grow(void *p, size_t from, size_t to) PL_MUST_USE;
pl_status pl_cuda_memory_fill(void *to, int byte, size_t bytes) PL_MUST_USE;
pl_status pl_cuda_host_alloc(size_t bytes, void **out) PL_MUST_USE;
void pl_cuda_host_free(void *p, size_t bytes);
pl_status pl_cuda_write(void *to, const void *from, size_t bytes) PL_MUST_USE;
pl_status pl_cuda_read(void *to, const void *from, size_t bytes) PL_MUST_USE;

/* ---- capture.c ---- */
pl_status pl_cuda_enqueue(const pl_bound_unit *l, uint32_t n, uint32_t *failed) PL_MUST_USE;
pl_status pl_cuda_run(const pl_bound_unit *l, uint32_t n, uint64_t *ns,
                      uint32_t *failed) PL_MUST_USE;
pl_status pl_cuda_capture_new(const pl_capture_plan *plan, void **out,
                              uint32_t *failed) PL_MUST_USE;
void pl_cuda_capture_free(void *captured);
pl_status pl_cuda_capture_send(void *captured, int side) PL_MUST_USE;
pl_status pl_cuda_capture_run(void *captured, int side, bool sent) PL_MUST_USE;
pl_status pl_cuda_capture_reclaim(void *captured, int side) PL_MUST_USE;
pl_status pl_cuda_capture_wait(void *captured, int side) PL_MUST_USE;
double pl_cuda_capture_ms(void *captured, int side);

#endif
