/* host_limit.h - the memory that this process may have, by everybody's limits. */
#ifndef PL_RT_HOST_LIMIT_H
#define PL_RT_HOST_LIMIT_H

#include "base/err.h"

/* Bytes of the whole process, as --memory counts them. */
typedef struct pl_host_limit {
    uint64_t free_bytes; /* with the memory that is free at this moment; 0: unknown */
    uint64_t most_bytes; /* with everything that the limits allow, swap included; 0: unknown */
    const char *free_why, *most_why; /* whose limit it is, static text: "the free memory of ..." */
} pl_host_limit;

/* Reads the machine's memory, the limits of the container, and the limits of this process (ulimit
 * -v, -d). sharers: processes of this run on the machine, which share the first two. */
void pl_host_limit_read(int sharers, pl_host_limit *out);

/* Fails with PL_ERR_FIT when ulimit -v or -d leave no room besides threads and kernels: oneDNN does
 * not survive a kernel that it has no memory for. */
pl_status pl_host_limit_check(void) PL_MUST_USE;

#endif
