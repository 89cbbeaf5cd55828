/* probe_lib.h - a call on the card with made-up operands, and its answers checked by sampling.
 *
 * Operand k holds a fixed block of random numbers over and over, from a place of its own, so that
 * any element is known on the host without a copy of the operand.
 */
#ifndef PL_TESTS_CUDA_PROBE_LIB_H
#define PL_TESTS_CUDA_PROBE_LIB_H

#include "cuda/device/cuda.h"

extern bool pl_probe_tune; /* what pl_cuda_autotune() says */
pl_status pl_probe_open(void) PL_MUST_USE;

#endif
