/* device.h - the seam between a plan and a device.
 *
 * A device gives memory, makes units ready (chooses and prepares kernels) and runs a list of
 * launches in order. Order, offsets and lifetimes come from the plan and are the same
 * everywhere; a device knows nothing of them. Pointers in a launch are the device's own.
 */
#ifndef PL_RT_DEVICE_H
#define PL_RT_DEVICE_H

#include "ir/units.h"

/* A unit made ready to run. */
typedef struct pl_exec {
    const pl_kernel *kernel;
    void *prep;
    size_t work_bytes;
} pl_exec;

/* One step with pointers resolved: a call, or a copy when exec is NULL. */
typedef struct pl_launch {
    const pl_exec *exec;
    pl_call call;
    const void *from;
    void *to;
    size_t bytes;
} pl_launch;

typedef struct pl_device {
    const char *name;
    const struct pl_fuse_opts *fuse; /* what its groups can do; NULL: nothing is fused */
    /* Zeroed memory, at least 64-byte aligned. */
    pl_status (*alloc)(size_t bytes, void **out);
    void (*free)(void *p, size_t bytes);
    void (*fill)(void *to, int byte, size_t bytes);
    /* Chooses a kernel for the unit; reference: the plainest one. `call` has types and
     * attributes: a node's own for a kernel, the unit's in[] and out[] for a group. */
    pl_status (*prepare)(const pl_graph *g, const pl_unit *u, const pl_call *call,
                         bool reference, pl_exec *out);
    void (*discard)(pl_exec *e); /* zeroed ones are fine */
    /* Output k of a prepared group may take over its input i. */
    bool (*group_inplace)(const pl_exec *e, const pl_unit *u, uint32_t k, uint32_t i);
    /* Runs n launches; *failed is the index of the one that failed. */
    pl_status (*run)(const pl_launch *l, uint32_t n, uint32_t *failed);

    /* ---- predicted times ---- */
    bool gpu;        /* times are those of a card (plan/cost_card.h) */
    bool plans_only; /* nothing can run on it: only prepare, discard, group_inplace are there */
    /* "NVIDIA H200", "Xeon ..., 8 threads": whose measured times these are. NULL: its name says it. */
    void (*model)(char *out, size_t cap);
} pl_device;

/* A card that programs can be planned for without it, by name; NULL if there is none. */
const pl_device *pl_device_profile(const char *name);
/* What the program is compiled for. */
const pl_device *pl_program_device(const pl_program *p);
/* By name: "cpu", or a profile. */
pl_status pl_device_find(const char *name, const pl_device **out) PL_MUST_USE;
extern const pl_device pl_device_cpu;
void pl_cpu_model(char *out, size_t cap); /* model, threads, vector unit */

#endif
