/* device.h - the interface of a device: memory, kernels, runs, expected times.
 *
 * The plan decides order, lifetimes and offsets; they are the same on every device, and no device
 * knows them. A device maps memory, prepares units (it chooses a kernel and its scratch size), and
 * runs bound units in order. Pointers in a bound unit are the device's own.
 *
 * Two ways for the host to reach a device's memory (pl_access):
 *
 *   direct   the CPU: the host reads and writes arena and state themselves (rt/direct.c)
 *   staged   devices with their own memory: data passes through host blocks (rt/staging.c), and a
 *            run may still be in progress when the call that began it returns
 *
 * A staged run is a captured program: the program's bound units and every transfer of one run,
 * which the device records once and replays:
 *
 *   host[side] --upload--> stage --copy--> arena --units--> arena, state --download--> mirror[side]
 *
 * The upload of run n + 1 may overlap the units of run n. So there are two host blocks, used
 * alternately (`side` is 0 or 1), and uploads go to the stage, because run n still uses the arena.
 * Outputs go to two mirrors, so that the host can read the outputs of run n while run n + 1 works.
 */
#ifndef PL_RT_DEVICE_H
#define PL_RT_DEVICE_H

#include "ir/units.h"

/* A prepared unit: its kernel, the kernel's data between runs, and its scratch size. */
typedef struct pl_exec {
    const pl_kernel *kernel;
    void *prep;
    size_t work_bytes;
    const bool *inplace; /* a group: its table of ir/group/inplace.h, which lives as long as prep */
    uint64_t host_bytes; /* host memory that prep holds, without library_kernels */
    uint32_t library_kernels; /* compiled by a library, whose memory is not known */
    double measured_ns;       /* the device timed it, and its prediction is far off; 0: not timed */
} pl_exec;

/* Returns the first kernel of a list that accepts the call, or, for a reference run, the last one,
 * which is the plainest. NULL: none accepts it. */
static inline const pl_kernel *pl_kernel_choose(const pl_kernel *list, const pl_call *call,
                                                bool reference)
{
    const pl_kernel *found = NULL;
    for (const pl_kernel *k = list; k && k->run && (reference || !found); k++)
        if (!k->accepts || k->accepts(call)) found = k;
    return found;
}

/* Releases the kernel's data; a zeroed exec is allowed. */
static inline void pl_exec_discard(pl_exec *e)
{
    if (e->kernel && e->kernel->release && e->prep) e->kernel->release(e->prep);
    *e = (pl_exec){0};
}

/* A bound unit: one kernel call with pointers resolved, or a copy when exec is NULL. */
typedef struct pl_bound_unit {
    const pl_exec *exec;
    pl_call call;
    const void *from;
    void *to;
    size_t bytes;
    /* 1 + its number among the program's exchanges between ranks; 0: not an exchange */
    uint32_t exchange;
    uint32_t after; /* number of exchanges that must have ended before this unit may begin */
    /* 1 + its number among the moves of its channel; 0: not a move. A move has from, to and bytes
     * like a copy, but runs beside the units after it (rt/levels/levels.h). */
    uint32_t move;
    pl_channel channel;
    uint64_t disk_at; /* READ, WRITE: offset in the file; `to` or `from` is the memory side */
    struct pl_levels *levels;
    /* Per channel: number of moves that must have ended before this unit or move may begin. */
    uint32_t wait[PL_N_CHANNELS];
} pl_bound_unit;

/* One value that a run moves between a host block or mirror and the arena or state. */
typedef struct pl_transfer {
    size_t at;    /* offset in the host block and in the stage, or in the mirror */
    void *device; /* address in the arena or the state */
    size_t bytes;
} pl_transfer;

/* The kernels and copies of a captured program. All pointers outlive the captured program. */
typedef struct pl_capture_plan {
    const pl_bound_unit *units;
    const pl_transfer *in, *out;
    uint32_t n_units, n_in, n_out;
    void *host[2];   /* inputs, from host_alloc */
    void *stage;     /* inputs, from alloc; programs share it */
    void *mirror[2]; /* outputs, from host_alloc */
    size_t in_bytes;
    bool eager;  /* unit by unit, for debugging */
    bool beside; /* units may run beside each other, which takes memory of the device */
} pl_capture_plan;

struct pl_bound_program;
typedef struct pl_device pl_device;

/* How a session reaches the device's memory and runs its programs. `at` is a device address, `ago`
 * counts runs of one program back from the last: 0 is the last run, 1 the run before it. */
typedef struct pl_access {
    /* Prepares all bound programs for running; state and arena hold no data afterwards. `close`
     * releases everything, also after an `open` that failed halfway. */
    pl_status (*open)(pl_session *s);
    void (*close)(pl_session *s);
    /* Prepares one more program, at the end of the session's list; the state keeps its values.
     * `drop` releases the program, also after an `add` that failed. */
    pl_status (*add)(pl_session *s, struct pl_bound_program *b);
    void (*drop)(pl_session *s, struct pl_bound_program *b);
    /* Returns the device memory that a program's inputs take outside the arena. */
    uint64_t (*stage_bytes)(const pl_program *p);
    /* Returns the host's address of device memory, or NULL if the host cannot reach it. */
    void *(*host_address)(void *at);
    /* Gives a host view of the first *bytes bytes at `at`; lowers *bytes to what the view holds.
     * The view is valid until the next call with this session. */
    pl_status (*view)(pl_session *s, const void *at, size_t *bytes, const void **host);
    /* Returns a host block to fill for `at`, and lowers *bytes to what the block holds; `put` then
     * moves the block's bytes to `at`. */
    void *(*block)(pl_session *s, void *at, size_t *bytes);
    pl_status (*put)(pl_session *s, void *at, const void *block, size_t bytes);
    /* Returns where the host writes input i of the next run. */
    void *(*input)(pl_session *s, struct pl_bound_program *b, int i);
    /* Returns output i of a run; waits for that run. NULL if it failed or its output was
     * overwritten. */
    const void *(*output)(pl_session *s, struct pl_bound_program *b, uint32_t i, int ago);
    /* The inputs of the next run are complete: their upload may begin. */
    pl_status (*send)(pl_session *s, struct pl_bound_program *b);
    /* Begins a run. *failed is the unit that failed, or beyond the last one. */
    pl_status (*run)(pl_session *s, struct pl_bound_program *b, uint32_t *failed);
    pl_status (*wait)(pl_session *s, const struct pl_bound_program *b, int ago);
    /* Returns the milliseconds that the device worked on a run; waits for it. 0: not timed. */
    double (*device_ms)(pl_session *s, const struct pl_bound_program *b, int ago);
} pl_access;

/* How units prepared from here on compute. */
typedef struct pl_device_mode {
    bool tf32;     /* f32 products may use 10-bit mantissas */
    bool autotune; /* algorithms are chosen by timing */
    bool plain;    /* f32 products by f32 units alone, not split for tensor cores */
} pl_device_mode;

/* Initial values of a slot (rt/init.c has the definition). */
typedef struct pl_slot_draws {
    uint64_t seed;
    uint32_t stream;
    pl_init init;
} pl_slot_draws;

struct pl_device {
    const char *name;
    const struct pl_fuse_opts *fuse; /* what its groups can do; NULL: nothing is fused */
    const pl_access *access;
    bool own_memory; /* a budget counts the device's memory, not the host's */
    bool gathers;    /* adjacent updates of weights run as one launch */
    bool beside;     /* units that share no memory may run beside each other */
    bool moves;      /* it moves to and from host memory itself, without threads of the host */
    /* own_memory: what first runs may add to used_bytes, in total and for each node of a graph */
    uint64_t margin_bytes, node_bytes;
    uint64_t host_margin_bytes; /* own_memory: what first runs may add to host memory */
    /* Allocates zeroed memory, at least 64-byte aligned. */
    pl_status (*alloc)(size_t bytes, void **out);
    void (*free)(void *p, size_t bytes);
    /* Grows a block of `from` bytes to `to` bytes at the same address; the added bytes are zero.
     * NULL: the device cannot, and a larger block replaces the old one. */
    pl_status (*grow)(void *p, size_t from, size_t to);
    /* Fills bytes, after everything begun before; may return before it has ended. */
    pl_status (*fill)(void *to, int byte, size_t bytes);
    void (*set_mode)(const pl_device_mode *m); /* NULL: the device has one mode */
    /* Writes the initial elements [first, first + n) of a slot of floats to `to`, ordered like
     * fill. NULL: the host computes initial values. */
    pl_status (*draw)(void *to, pl_dtype dtype, const pl_slot_draws *from, int64_t first,
                      int64_t n);
    /* Chooses a kernel for the unit; reference: the plainest one. `call` has types and attributes:
     * the node's own for a kernel, the unit's in[] and out[] for a group. */
    pl_status (*prepare)(const pl_graph *g, const pl_unit *u, const pl_call *call, bool reference,
                         pl_exec *out);
    void (*discard)(pl_exec *e); /* zeroed ones are fine */
    /* Frees what libraries cache for discarded kernels; NULL: they cache nothing. */
    void (*forget)(void);
    /* Waits until everything prepared can run. NULL: it can run at once. */
    pl_status (*ready)(void);
    /* Runs n units and waits for them; *failed is the index of the unit that failed. The time of
     * unit i is added to ns[i] unless ns is NULL. */
    pl_status (*run)(const pl_bound_unit *l, uint32_t n, uint64_t *ns, uint32_t *failed);
    /* Returns the bytes of the budgeted memory (device or host) that this process holds. */
    uint64_t (*used_bytes)(void);
    size_t (*code_bytes)(void); /* host memory of libraries' code that runs use; NULL: not known */

    /* ---- devices with their own memory; NULL elsewhere ---- */
    /* Allocates zeroed host memory that the device copies from and to fastest; two threads may call
     * this at once. */
    pl_status (*host_alloc)(size_t bytes, void **out);
    void (*host_free)(void *p, size_t bytes);
    /* Copy after everything begun before; return when done. */
    pl_status (*write)(void *to, const void *from, size_t bytes);
    pl_status (*read)(void *to, const void *from, size_t bytes);
    /* Captures a program, and allocates all memory that its runs need. May run the units on zero
     * inputs: state and arena hold no data afterwards. Does not read host[], which another thread
     * may be allocating. *failed is the unit that failed, or beyond the last one. */
    pl_status (*capture_new)(const pl_capture_plan *plan, void **out, uint32_t *failed);
    void (*capture_free)(void *captured); /* NULL is fine; no run of it is in progress */
    /* host[side] is written: uploads the inputs of the next run while the last run is in
     * progress. */
    pl_status (*capture_send)(void *captured, int side);
    /* Begins a run on the inputs in host[side]; sent: capture_send has uploaded them. */
    pl_status (*capture_run)(void *captured, int side, bool sent);
    /* Waits until host[side] may be overwritten. */
    pl_status (*capture_reclaim)(void *captured, int side);
    /* Waits until the outputs of the last run on host[side] are in mirror[side]. */
    pl_status (*capture_wait)(void *captured, int side);
    /* Returns the milliseconds that the device worked on that run; call capture_wait before. */
    double (*capture_ms)(void *captured, int side);
    /* Fails, and names the processes that hold memory, unless that many more bytes are free. */
    pl_status (*room)(uint64_t bytes);

    /* ---- predictions ---- */
    bool plans_only;  /* nothing can run on it: it prepares units and predicts times */
    const char *link; /* the assumed link between ranks (plan/cost/links.def) */
    /* Returns the expected nanoseconds of a unit of this cost. dtype: of the operands. */
    double (*unit_ns)(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                      const pl_device_mode *mode);
    /* Sets the expected nanoseconds of a copy on the device: a fixed part, and a part per byte. */
    void (*copy_ns)(const pl_device *dev, double *fixed, double *per_byte);
    /* plans_only: returns the scratch that a kernel is expected to need. NULL: prepare reports the
     * size. */
    uint64_t (*scratch_bytes)(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                              const pl_device_mode *mode);
    /* Whether products may begin a group (pl_fuse_opts.product_bytes); NULL: no. */
    bool (*joins_products)(const pl_device *dev);
    /* Writes the owner of measured times: "NVIDIA H200", "Xeon ..., 8 threads". NULL: the device's
     * name. */
    void (*model)(char *out, size_t cap);
};

PL_SHARED_BEGIN
/* Also for plug-ins: access (staging.c), expected times and scratch of GPUs (gpu_cost.c). */
extern const pl_access pl_access_staged;
double pl_gpu_unit_ns(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                      const pl_device_mode *mode);
/* The same for a unit of a graph; 0 where memory ran out. */
double pl_gpu_expected_ns(const pl_device *dev, const pl_graph *g, const pl_unit *u, pl_dtype dtype,
                          const pl_device_mode *mode);
void pl_gpu_copy_ns(const pl_device *dev, double *fixed, double *per_byte);
/* Whether the GPU is a Hopper, which has kernels for products with the operations that follow
 * them. */
bool pl_gpu_joins_products(const pl_device *dev);
uint64_t pl_gpu_scratch_bytes(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                              const pl_device_mode *mode);
/* Finds a device by name: "cpu", "cuda" ("cuda:1" is the second GPU), "apart" (for tests), or a
 * profile of a GPU to plan for ("t4"). A device that cannot be used is an error that says why. */
pl_status pl_device_find(const char *name, const pl_device **out) PL_MUST_USE;
/* Whether a plug-in has the device of that name: opening it takes up to a second, and any thread
 * may open it. */
bool pl_device_is_plugged(const char *name);
/* Returns how many such devices pl_device_list names; a kind that cannot be used here is one. */
int pl_device_plugged_count(void);
PL_SHARED_END
extern const pl_access pl_access_direct;
extern const pl_device pl_device_cpu;
extern const struct pl_fuse_opts pl_fuse_opts_cpu;
void pl_cpu_model(char *out, size_t cap); /* model, threads, vector unit */
/* A field of /proc/meminfo ("MemTotal:") in bytes; 0: unknown. */
uint64_t pl_cpu_meminfo(const char *field);
double pl_cpu_unit_ns(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                      const pl_device_mode *mode);
void pl_cpu_copy_ns(const pl_device *dev, double *fixed, double *per_byte);

/* ---- the table of devices (devices.def) ---- */
/* A kind of device: one device, or all GPUs that one plug-in opens. */
typedef struct pl_device_kind {
    const char *name;
    /* The only device of this kind, found by its name. NULL: has() recognises its names, open()
     * opens the device of such a name or says why it cannot be used. */
    const pl_device *device;
    bool (*has)(const char *name);
    pl_status (*open)(const char *name, const pl_device **out);
    bool plugged; /* a plug-in has it (pl_device_is_plugged) */
    /* Describes the devices of this machine: writes at most cap entries and returns how many there
     * are. A kind that cannot be used here is one entry that says why. NULL: not listed. */
    int (*list)(pl_device_info *out, int cap);
    /* Sets memory and its free part, without allocating; false: not known. NULL: never known. */
    bool (*memory)(const char *name, uint64_t *total, uint64_t *available);
} pl_device_kind;
#define PL_DEVICE(kind) extern const pl_device_kind pl_device_kind_##kind;
#include "rt/devices.def"
#undef PL_DEVICE

/* Returns the profile of a GPU that programs can be planned for without having it; NULL: no such
 * name. */
const pl_device *pl_device_profile(const char *name);
/* Returns the device that the program is compiled for. */
const pl_device *pl_program_device(const pl_program *p);
/* Returns the device memory that the program's inputs take outside the arena; 0 with direct
 * access. */
uint64_t pl_program_stage_bytes(const pl_program *p);

/* ---- the CUDA plug-in ----------------------------------------------------------------------
 * libplimsoll_cuda.so exports `pl_cuda_plugin`. The number changes with this file, ir/ and
 * everything else of the engine that the plug-in reads. */
enum { PL_CUDA_ABI = 11 };
typedef struct pl_cuda_plugin_info {
    int abi;
    const char *version; /* PL_VERSION_STRING at its build */
    /* Opens GPU `index` for this process; later calls must name the same GPU. */
    pl_status (*open)(int index, const pl_device **out);
    /* Lists the machine's GPUs without opening one. *n: how many there are. */
    pl_status (*list)(pl_device_info *out, int cap, int *n);
} pl_cuda_plugin_info;
/* rt/device_cuda.c: loads the plug-in. */
pl_status pl_cuda_load(const pl_cuda_plugin_info **out) PL_MUST_USE;

#endif
