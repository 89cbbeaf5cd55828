/* probe_lib.h - a call on the card with made-up operands, and its answers checked by sampling.
 *
 * Operand k holds a fixed block of random numbers over and over, from a place of its own, so that
 * any element is known on the host without a copy of the operand.
 */
#ifndef PL_TESTS_CUDA_PROBE_LIB_H
#define PL_TESTS_CUDA_PROBE_LIB_H

#include "cuda/device/cuda.h"
#include "ops/core/attr.h"
#include "ops/net/window.h"

extern bool pl_probe_tune; /* what pl_cuda_autotune() says */
pl_status pl_probe_open(void) PL_MUST_USE;

enum { MAX_IN = 7, MAX_OUT = 3 };

typedef struct operand {
    pl_type t;
    void *at;
    int64_t shift;
    double scale;  /* every value times this, a power of two */
    double *given; /* or: values on the host, from a kernel's own output */
} operand;

/* An element as the operand's type holds it. */
double pl_probe_value(const operand *o, int64_t i);

typedef struct probe {
    const char *op;
    char text[120];
    pl_call c;
    operand in[MAX_IN], out[MAX_OUT];
    pl_type in_type[MAX_IN], out_type[MAX_OUT];
    const void *in_at[MAX_IN];
    void *out_at[MAX_OUT];
    const pl_kernel *kernel;
    void *work;
    size_t work_bytes;
    double flops, bytes;
    double prepare_ms, ms, err;
    bool same;
    union {
        pl_matmul_attr matmul;
        pl_window_attr window;
        pl_attention_attr attention;
    } attr;
} probe;

/* The double value of an output's element, and the sum of its terms' sizes. */
typedef struct sum {
    double value, size;
} sum;
typedef sum (*wanted)(const probe *p, int out, int64_t at);

/* The definition of an op's outputs (probe_want.c). */
wanted pl_probe_wanted(const char *op);

#endif
