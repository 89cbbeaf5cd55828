/* kernel.h - the contract of a kernel: everything that a kernel sees.
 *
 * A kernel is a function of a pl_call: types, pointers, attributes, scratch. It does not see
 * the graph, an allocator or a global. A training step allocates nothing, so a kernel has two
 * phases: `prepare` runs once at compile time (it may allocate and keep a handle), `run` runs any
 * number of times. The planner places scratch like any value: prepare returns its size, and run
 * finds the pointer in call->work, 64-byte aligned.
 *
 * Valid C++ too: device code includes it.
 */
#ifndef PL_IR_KERNEL_H
#define PL_IR_KERNEL_H

#include "plimsoll.h"

typedef struct pl_call {
    const pl_type *in_type, *out_type;
    const void *const *in; /* NULL while only types are known (accepts, prepare, cost) */
    void *const *out;
    const void *attr; /* the op's attribute struct */
    void *work;       /* scratch of the bytes that prepare asked for */
    void *prep;       /* what prepare returned */
    int32_t n_in, n_out;
    struct pl_comm *comm; /* ir/comm.h: the other ranks; NULL when there are none */
} pl_call;

typedef struct pl_kernel {
    const char *name; /* "ref", "dnn", "avx", ... */
    /* Looks at types and attributes only; NULL accepts everything. */
    bool (*accepts)(const pl_call *c);
    /* Optional: *prep (released with release) and *work_bytes; both stay 0 when absent. */
    pl_status (*prepare)(const pl_call *c, void **prep, size_t *work_bytes);
    void (*release)(void *prep);
    /* Fills every output element. Allocates nothing, for any inputs. */
    pl_status (*run)(const pl_call *c);
} pl_kernel;

#define PL_KERNEL_END                                                                              \
 {                                                                                                 \
  0                                                                                                \
 }

#endif
