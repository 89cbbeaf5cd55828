/* device.h - the seam between a plan and a device.
 *
 * A device gives memory, makes units ready (chooses and prepares kernels) and runs a list of
 * launches in order. Order, offsets and lifetimes come from the plan and are the same everywhere; a
 * device knows nothing of them. Pointers in a launch are the device's own.
 *
 * A device is `apart` when the host cannot reach its memory. Inputs and outputs then pass through
 * host blocks that the device gives, and a run may still be going on when the call that began it
 * returns: a tape is a program with everything that a run of it moves.
 *
 *   host[side] --upload--> stage --copy--> arena --launches--> arena, state --download--> mirror[side]
 *
 * The upload of one run may overlap the launches of the run before; that is why there are two host
 * blocks, used in side, and why uploads do not go to the arena, whose bytes are in use. Outputs go
 * to two mirrors in side, so that those of one run can be read while the next is going on.
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
    /* 1 + its number among the program's exchanges between ranks; 0: it is none */
    uint32_t exchange;
    uint32_t after; /* so many exchanges must have ended before it may begin */
} pl_launch;

/* One value that a run moves between a host block (or the stage) and the arena. */
typedef struct pl_transfer {
    size_t at;    /* in the host block, and in the stage */
    void *device; /* its place in the arena or the state */
    size_t bytes;
} pl_transfer;

/* All pointers outlive the tape. */
typedef struct pl_tape_plan {
    const pl_launch *launch;
    const pl_transfer *in, *out;
    uint32_t n_launch, n_in, n_out;
    void *host[2];   /* inputs, from host_alloc */
    void *stage;     /* inputs, from alloc; programs share it */
    void *mirror[2]; /* outputs, from host_alloc */
    size_t in_bytes;
    bool eager; /* launch by launch, for debugging */
} pl_tape_plan;

/* How units prepared from now on are to compute. */
typedef struct pl_device_mode {
    bool tf32;     /* f32 products may use 10-bit mantissas */
    bool autotune; /* algorithms are chosen by timing */
    bool plain;    /* f32 products by f32 units alone, not taken apart for tensor cores */
} pl_device_mode;

/* What a slot holds before the first step (rt/init.c has the definition). */
typedef struct pl_slot_draws {
    uint64_t seed;
    uint32_t stream;
    pl_init init;
} pl_slot_draws;

typedef struct pl_device {
    const char *name;
    const struct pl_fuse_opts *fuse; /* what its groups can do; NULL: nothing is fused */
    bool apart;
    /* apart: what a first run may add to used_bytes, and for each node of a graph */
    uint64_t margin_bytes, node_bytes;
    /* Zeroed memory, at least 64-byte aligned. */
    pl_status (*alloc)(size_t bytes, void **out);
    void (*free)(void *p, size_t bytes);
    /* Makes a block of `from` bytes one of `to`, more, at the same address; what is new is zero.
     * NULL: it cannot, and a larger block takes its place. */
    pl_status (*grow)(void *p, size_t from, size_t to);
    /* after everything begun before; may not have ended */
    pl_status (*fill)(void *to, int byte, size_t bytes);
    void (*set_mode)(const pl_device_mode *m); /* NULL: there is only one way */
    /* Elements first .. first + n - 1 of a slot of floats, at `to`, after everything begun before;
     * may not have ended. NULL: the host makes them. */
    pl_status (*draw)(void *to, pl_dtype dtype, const pl_slot_draws *from, int64_t first,
                      int64_t n);
    /* Chooses a kernel for the unit; reference: the plainest one. `call` has types and
     * attributes: a node's own for a kernel, the unit's in[] and out[] for a group. */
    pl_status (*prepare)(const pl_graph *g, const pl_unit *u, const pl_call *call, bool reference,
                         pl_exec *out);
    void (*discard)(pl_exec *e); /* zeroed ones are fine */
    /* lets go of what libraries keep of kernels that were discarded; NULL: they keep nothing */
    void (*forget)(void);
    /* Waits until all that was prepared can run. NULL: it can at once. */
    pl_status (*ready)(void);
    /* Output k of a prepared group may take over its input i. */
    bool (*group_inplace)(const pl_exec *e, const pl_unit *u, uint32_t k, uint32_t i);
    /* Runs n launches and waits for them; *failed is the index of the one that failed. The time
     * of launch i is added to ns[i] unless ns is NULL. */
    pl_status (*run)(const pl_launch *l, uint32_t n, uint64_t *ns, uint32_t *failed);

    /* ---- where it is apart, else NULL ---- */
    /* Zeroed host memory that the device copies from and to fastest; may be asked for by two
     * threads at once. */
    pl_status (*host_alloc)(size_t bytes, void **out);
    void (*host_free)(void *p, size_t bytes);
    /* Copies after everything begun before; they return when done. */
    pl_status (*write)(void *to, const void *from, size_t bytes);
    pl_status (*read)(void *to, const void *from, size_t bytes);
    /* May run the launches, on inputs that are zero and not read from host[], which another thread
     * may be making: state and arena hold no data afterwards. All memory that runs will take is
     * taken. *failed is the launch that failed, or beyond the last one. */
    pl_status (*tape_new)(const pl_tape_plan *plan, void **out, uint32_t *failed);
    void (*tape_free)(void *tape); /* NULL is fine; nothing of it runs any more */
    /* host[side] is written: the inputs of the next run may go up while the last one works. */
    pl_status (*tape_send)(void *tape, int side);
    /* Begins a run on the inputs in host[side]; sent: tape_send has had them. */
    pl_status (*tape_run)(void *tape, int side, bool sent);
    /* Waits until host[side] may be written again. */
    pl_status (*tape_reclaim)(void *tape, int side);
    /* Waits until the outputs of the last run on host[side] are in mirror[side]. */
    pl_status (*tape_wait)(void *tape, int side);
    /* how long the device worked on that run, waited for */
    double (*tape_ms)(void *tape, int side);
    /* Bytes of the device's memory that this process holds. */
    uint64_t (*used_bytes)(void);
    /* Fails, saying who holds what, unless so many more bytes can be had. */
    pl_status (*room)(uint64_t bytes);

    /* ---- predicted times ---- */
    bool gpu;        /* estimates are those of a card (plan/cost/cost_card.h) */
    bool plans_only; /* nothing can run on it: only prepare, discard, group_inplace are there */
    /* "NVIDIA H200", "Xeon ..., 8 threads": whose measured times these are. NULL: its name says it.
     */
    void (*model)(char *out, size_t cap);
} pl_device;

/* By name: "cpu", "cuda" ("cuda:1" is the second card), "apart" (for tests), or a
 * profile ("t4"). A device that cannot be used is an error that says why in plain words. */
PL_SHARED_BEGIN
pl_status pl_device_find(const char *name, const pl_device **out) PL_MUST_USE;
/* Whether a device of that name is a plug-in's: opening it takes a while, and it may be asked from
 * any thread. */
bool pl_device_is_plugged(const char *name);
PL_SHARED_END
extern const pl_device pl_device_cpu, pl_device_apart;
extern const struct pl_fuse_opts pl_fuse_opts_cpu;
void pl_cpu_model(char *out, size_t cap); /* model, threads, vector unit */
/* A card that programs can be planned for without it, by name; NULL if there is none. */
const pl_device *pl_device_profile(const char *name);
/* What the program is compiled for. */
const pl_device *pl_program_device(const pl_program *p);
/* What the program's inputs take on the device besides the arena; 0 where it is not apart. */
uint64_t pl_program_stage_bytes(const pl_program *p);

/* ---- the CUDA plug-in ----------------------------------------------------------------------
 * libplimsoll_cuda.so exports `pl_cuda_plugin`. The number changes with this file, ir/ and
 * whatever else of the engine the plug-in reads. */
enum { PL_CUDA_ABI = 5 };
typedef struct pl_cuda_plugin_info {
    int abi;
    const char *version; /* PL_VERSION_STRING at its build */
    /* Makes card `index` this process's; once, later calls must name the same one. */
    pl_status (*open)(int index, const pl_device **out);
    /* What is there, without taking any of it; returns how many cards there are. */
    pl_status (*list)(pl_device_info *out, int cap, int *n);
} pl_cuda_plugin_info;
/* rt/device_cuda.c: loads the plug-in. */
pl_status pl_cuda_load(const pl_cuda_plugin_info **out) PL_MUST_USE;

#endif
