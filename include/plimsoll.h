/* plimsoll.h - the stable C API of Plimsoll: train deep networks inside a memory budget.
 *
 * Sections, in reading order: status, types, store, graph, compile, session. Ops are in
 * plimsoll_ops.h, layers in plimsoll_nn.h.
 *
 * Conventions
 *   - Every fallible function returns pl_status; outputs are written only on success. The text of
 *     the last failure on the calling thread is pl_error_text(), valid until the next failure.
 *   - Graph building is sticky instead: a constructor returns a pl_val, a failed one returns
 *     PL_NO_VAL and the graph remembers the first error; constructors given PL_NO_VAL do nothing.
 *     Check pl_graph_status() once, at the end.
 *   - X_new creates a handle, X_free frees it; X_free(NULL) does nothing.
 *   - Strings passed in are copied. Pointers handed out are borrowed until the handle is freed.
 *   - Layout: images are NHWC (video NDHWC), convolution weights OHWI (ODHWI), row-major, always.
 */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VERSION_MAJOR  0
#define PL_VERSION_MINOR  1
#define PL_VERSION_PATCH  0
#define PL_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
# define PL_MUST_USE     __attribute__((warn_unused_result))
# define PL_PRINTF(f, a) __attribute__((format(printf, f, a)))
# define PL_API          __attribute__((visibility("default")))
#else
# define PL_MUST_USE
# define PL_PRINTF(f, a)
# define PL_API
#endif

/* ---- status --------------------------------------------------------------------------------
 * Columns: name, number (never reused), exit code of the command line, text. */
#define PL_STATUS_LIST(X)                                                                          \
 X(OK, 0, 0, "success")                                                                            \
 X(ERR_ARG, 1, 2, "bad argument")                                                                  \
 X(ERR_SHAPE, 2, 2, "shapes or types do not match")                                                \
 X(ERR_MEMORY, 3, 1, "out of host memory")                                                         \
 X(ERR_IO, 4, 1, "input or output failed")                                                         \
 X(ERR_CONFIG, 5, 2, "bad configuration")                                                          \
 X(ERR_FIT, 6, 3, "does not fit the memory budget")                                                \
 X(ERR_DEVICE, 7, 4, "device or driver problem")                                                   \
 X(ERR_DATA, 8, 5, "bad data")                                                                     \
 X(ERR_FILE, 9, 6, "bad checkpoint or model file")                                                 \
 X(ERR_NUMERIC, 10, 7, "a number is not finite")                                                   \
 X(ERR_PEER, 11, 8, "a peer process failed")                                                       \
 X(ERR_STOPPED, 12, 75, "stopped by a signal after saving a checkpoint")                           \
 X(ERR_UNSUPPORTED, 13, 1, "not supported")                                                        \
 X(ERR_GRAPH, 14, 1, "malformed graph")                                                            \
 X(ERR_PLAN, 15, 1, "plan rejected by the checker")

typedef enum pl_status {
#define PL_STATUS_ENUM(name, number, exit_code, text) PL_##name = number,
    PL_STATUS_LIST(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
} pl_status;

PL_API const char *pl_status_name(pl_status s); /* "ERR_SHAPE" */
PL_API const char *pl_status_text(pl_status s); /* "shapes or types do not match" */
PL_API int pl_status_exit_code(pl_status s);    /* exit code of the command line */
PL_API const char *pl_error_text(void);         /* last failure on this thread, "" if none */
/* For recipes: sets the text of pl_error_text and returns code. */
PL_API pl_status pl_fail(pl_status code, const char *fmt, ...) PL_PRINTF(2, 3);
PL_API const char *pl_version(void);

/* ---- dtypes and shapes ---------------------------------------------------------------------
 * Columns: name, safetensors name, bytes. A bool is one byte, 0 or 1. bf16 and f16 are storage
 * types: every operation on them is computed in f32 and rounded once. */
#define PL_DTYPE_LIST(X)                                                                           \
 X(F32, f32, "F32", 4)                                                                             \
 X(F64, f64, "F64", 8)                                                                             \
 X(BF16, bf16, "BF16", 2)                                                                          \
 X(F16, f16, "F16", 2)                                                                             \
 X(I32, i32, "I32", 4)                                                                             \
 X(I64, i64, "I64", 8)                                                                             \
 X(U8, u8, "U8", 1)                                                                                \
 X(BOOL, bool, "BOOL", 1)

typedef enum pl_dtype {
#define PL_DTYPE_ENUM(NAME, name, st, bytes) PL_##NAME,
    PL_DTYPE_LIST(PL_DTYPE_ENUM)
#undef PL_DTYPE_ENUM
        PL_N_DTYPES
} pl_dtype;

#define PL_MAX_RANK 8

/* A dtype and a shape. Rank 0 is a scalar. Dims beyond rank are 0, so types compare bytewise. */
typedef struct pl_type {
    int64_t dim[PL_MAX_RANK];
    int32_t rank;
    pl_dtype dtype;
} pl_type;

PL_API pl_type pl_type_make(pl_dtype dtype, int rank, const int64_t *dim);
PL_API int64_t pl_type_elems(const pl_type *t);
PL_API size_t pl_type_bytes(const pl_type *t);
PL_API bool pl_type_equal(const pl_type *a, const pl_type *b);
/* Writes "f32[8,512]" (cut to fit) and returns buf. */
PL_API const char *pl_type_text(const pl_type *t, char *buf, size_t cap);
PL_API size_t pl_dtype_bytes(pl_dtype d);
PL_API const char *pl_dtype_name(pl_dtype d); /* "f32" */
PL_API bool pl_dtype_is_float(pl_dtype d);
PL_API bool pl_dtype_parse(const char *name, pl_dtype *out);

/* PL_TYPE(PL_F32, 8, 512) is a pl_type; PL_RANK0(PL_F32) is rank 0. */
#define PL_TYPE(dtype, ...)                                                                        \
 pl_type_make((dtype), (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),            \
              (const int64_t[]){__VA_ARGS__})
#define PL_RANK0(dtype) pl_type_make((dtype), 0, NULL)

/* ---- the store: everything that outlives a step --------------------------------------------
 * Weights, optimiser moments, BatchNorm statistics, EMA, counters: one named slot each. Several
 * graphs (programs) may read and assign the slots of one store. */
typedef struct pl_store pl_store;

typedef enum pl_slot_kind {
    PL_SLOT_PARAM,     /* a weight: saved in model files, counted as a parameter */
    PL_SLOT_BUFFER,    /* model state that is not trained, e.g. running statistics: saved too */
    PL_SLOT_OPTIMIZER, /* moments, EMA copies: saved in checkpoints only */
    PL_SLOT_COUNTER    /* step and RNG counters, constants: saved in checkpoints only */
} pl_slot_kind;

typedef enum pl_init_kind {
    PL_INIT_CONST,        /* a */
    PL_INIT_UNIFORM,      /* in [a, b) */
    PL_INIT_NORMAL,       /* mean a, standard deviation b */
    PL_INIT_TRUNC_NORMAL, /* the same, redrawn until it is in [lo, hi] */
    PL_INIT_DATA          /* the elements at `data`, of the slot's type, row-major */
} pl_init_kind;

typedef struct pl_init {
    pl_init_kind kind;
    double a, b;
    double lo, hi;
    const void *data; /* pl_store_add makes a copy */
} pl_init;

/* Layout of a slot in a model file. Dimension i of the file's tensor is dimension perm[i] of the
 * slot, after the slot is reshaped to `view` (view_rank 0: not reshaped). rank 0: the same layout.
 * flat: the file has these elements, in this order, as a vector. */
typedef struct pl_file_layout {
    int32_t rank, view_rank;
    int32_t perm[PL_MAX_RANK];
    int64_t view[PL_MAX_RANK];
    bool flat;
} pl_file_layout;

/* How the session stores a slot of a floating-point type. Quantized forms store blocks of 64
 * elements as codes of 8 or 4 bits and one f32 scale: 1.06 bytes per element, 0.56 with NF4. */
typedef enum pl_quant {
    PL_QUANT_NONE, /* elements of its type */
    PL_QUANT_FP8,  /* the 253 finite values of e4m3 */
    PL_QUANT_INT8, /* 255 values at equal distances */
    /* 16 values, equally likely for normally distributed data (Dettmers et al. 2023) */
    PL_QUANT_NF4,
    PL_N_QUANTS
} pl_quant;
PL_API const char *pl_quant_name(pl_quant q); /* "none", "fp8", "int8", "nf4" */
PL_API bool pl_quant_parse(const char *name, pl_quant *out);

typedef struct pl_slot {
    const char *name; /* the name in files, PyTorch's where there is one */
    pl_type type;
    pl_slot_kind kind;
    pl_init init;
    pl_file_layout layout;
    bool trainable;
    bool decay; /* weight decay applies (false for slots put in a no-decay group) */
    /* For a slot that is sharded across ranks: this rank has elements [shard*n, shard*n + n) of
     * `whole`, row-major, padded with zeros, where n is the number of elements of `type` (one
     * dimension). shards is 0 for other slots. */
    int32_t shards, shard;
    pl_type whole;
    bool as_bf16; /* a weight that model code sees as f32 and that is stored as bf16 */
    /* A frozen weight that is stored in fewer bits. Model code, files and pl_session_read_slot see
     * elements of `type`; a pass makes programs read codes and dequantize them. */
    pl_quant quant;
} pl_slot;
/* Returns the type in memory: `type`, or the bytes of a quantized slot. */
PL_API pl_type pl_slot_stored(const pl_slot *s);
PL_API size_t pl_slot_bytes(const pl_slot *s); /* of that type */
/* Returns the type of the whole slot, sharded or not. */
static inline const pl_type *pl_slot_type(const pl_slot *s)
{
    return s->shards ? &s->whole : &s->type;
}

PL_API pl_store *pl_store_new(void);
PL_API void pl_store_free(pl_store *s);
PL_API pl_status pl_store_status(const pl_store *s);
/* Adds a slot and returns its index. If a slot of that name and type exists, returns its index;
 * another type is an error. Returns -1 on error; the store keeps the first error
 * (pl_store_status). */
PL_API int pl_store_add(pl_store *s, const pl_slot *slot);
PL_API int pl_store_find(const pl_store *s, const char *name); /* -1 if none */
PL_API int pl_store_count(const pl_store *s);
PL_API const pl_slot *pl_store_slot(const pl_store *s, int index);
PL_API void pl_store_set_trainable(pl_store *s, int index, bool on);
/* Sets how the slot is stored. Call it before the first program of the store is compiled. The slot
 * must not be sharded, must have a floating-point type, and no program may assign it. */
PL_API void pl_store_set_quant(pl_store *s, int index, pl_quant q);
PL_API void pl_store_set_decay(pl_store *s, int index, bool on);
PL_API void pl_store_set_init(pl_store *s, int index, pl_init init);

/* ---- the graph: a program as data --------------------------------------------------------
 * Values and nodes in SSA form. Ids are dense; 0 is "none". */
typedef struct pl_graph pl_graph;
typedef struct pl_val {
    uint32_t id;
} pl_val;
typedef struct pl_node {
    uint32_t id;
} pl_node;
#define PL_NO_VAL  ((pl_val){0})
#define PL_NO_NODE ((pl_node){0})

/* Returns an empty graph over the store, which is borrowed and must outlive the graph; NULL when
 * memory runs out. */
PL_API pl_graph *pl_graph_new(pl_store *store);
PL_API void pl_graph_free(pl_graph *g);
PL_API pl_status pl_graph_status(const pl_graph *g);
PL_API const char *pl_graph_error(const pl_graph *g); /* text of the first error */
PL_API pl_store *pl_graph_store(const pl_graph *g);
PL_API pl_type pl_val_type(const pl_graph *g, pl_val v);
static inline bool pl_val_ok(pl_val v)
{
    return v.id != 0;
}

/* Scopes name the nodes created inside them ("model.layer1"), for errors and reports. Every push
 * needs a pop. */
PL_API void pl_scope_push(pl_graph *g, const char *name);
PL_API void pl_scope_pop(pl_graph *g);
/* Marks the current scope as a block: with checkpointing "blocks" only the inputs of the block are
 * kept for the backward pass, and its forward pass is recomputed when its backward pass starts. */
PL_API void pl_scope_checkpoint(pl_graph *g);
/* Computes the current scope, and scopes pushed inside it from now on, in f32 with their gradients,
 * in every precision of the program. For losses and other parts that need accuracy. */
PL_API void pl_scope_full(pl_graph *g);

/* Adds an input: a value that the caller writes before every run. */
PL_API pl_val pl_input(pl_graph *g, const char *name, pl_type type);
/* Returns the value of a slot of the store before this run. */
PL_API pl_val pl_state(pl_graph *g, int slot);
/* Sets the slot to v at the end of the run. A graph may assign a slot once. */
PL_API void pl_assign(pl_graph *g, int slot, pl_val v);
/* Makes v readable by name after a run. */
PL_API void pl_output(pl_graph *g, const char *name, pl_val v);

/* Reverse mode, graph to graph. Appends nodes that compute d(sum of y)/d(x[i]) into grads[i]; y is
 * usually a scalar loss. If y does not depend on x[i], grads[i] is zero. The result is ordinary
 * nodes, so gradients of gradients work. */
PL_API void pl_grad(pl_graph *g, pl_val y, const pl_val *x, int n, pl_val *grads);

/* Text form. pl_graph_print writes a NUL-terminated text the caller frees with pl_text_free;
 * pl_graph_parse reads it back (slots are added to the store). Both round-trip exactly. */
PL_API pl_status pl_graph_print(const pl_graph *g, char **text) PL_MUST_USE;
PL_API pl_status pl_graph_parse(const char *text, size_t len, pl_store *store,
                                pl_graph **out) PL_MUST_USE;
PL_API void pl_text_free(char *text);
PL_API pl_status pl_graph_verify(const pl_graph *g) PL_MUST_USE;
PL_API int pl_graph_nodes(const pl_graph *g);

/* ---- compile: graph to plan to program -----------------------------------------------------
 * Compiling runs the passes, plans order and memory, checks the plan, chooses and prepares kernels.
 * Then all memory of a run is known; nothing is allocated later. */
typedef struct pl_program pl_program;

typedef struct pl_compile_opts {
    size_t struct_size;
    const char *device;    /* "cpu", "cuda" (the first GPU), "cuda:1", ... */
    bool no_fuse;          /* every node is a separate kernel */
    bool no_reuse;         /* every value has its own bytes: no reuse, no in-place results */
    bool reference;        /* reference kernels only, nothing fused */
    bool no_small;         /* no smaller representations (docs/MEMORY.md), for comparison */
    bool poison;           /* fill dead arena bytes with NaN after every kernel, for tests */
    uint64_t seed;         /* seed of the planner's searches */
    double plan_seconds;   /* time limit of the offset search; 0: limited by work only */
    uint64_t arena_budget; /* largest arena; the plan recomputes to fit; 0: none. PL_ERR_FIT when
                            * no plan is found */
    enum pl_checkpointing {
        PL_CHECKPOINT_AUTO,  /* recompute as much as the budget needs */
        PL_CHECKPOINT_OFF,   /* no recompute */
        PL_CHECKPOINT_BLOCKS /* recompute every scope marked by pl_scope_checkpoint */
    } checkpointing;
    enum pl_precision {
        PL_PRECISION_FP32,
        PL_PRECISION_TF32, /* f32, with products on TF32 units where the device has them */
        PL_PRECISION_BF16, /* products in bf16, activations stored in bf16, the rest in f32 */
        PL_PRECISION_FP16  /* the same in f16; a loss scale keeps small gradients */
    } precision;
    enum pl_fp32 {
        /* split-operand tensor-core products where they are faster and as accurate */
        PL_FP32_SPLIT,
        PL_FP32_PLAIN /* f32 units only */
    } fp32;
    enum pl_compile_mode {
        PL_MODE_DEFAULT,         /* whole runs as CUDA graphs, on a GPU */
        PL_MODE_REDUCE_OVERHEAD, /* the same */
        PL_MODE_MAX_AUTOTUNE,    /* also measures algorithms and chooses the fastest */
        PL_MODE_EAGER            /* kernel by kernel, for debugging */
    } mode;
    /* link between ranks, for predicted times: "nvlink", "nvlink/8+ib"; NULL: by device */
    const char *link;
    struct pl_comm *comm; /* the other ranks (pl_world_comm); NULL: one process */
} pl_compile_opts;
#define PL_COMPILE_INIT                                                                            \
 {                                                                                                 \
  .struct_size = sizeof(pl_compile_opts), .device = "cpu"                                          \
 }

/* Compiles the graph. Takes ownership of the graph: it is freed with the program, or on failure. */
PL_API pl_status pl_compile(pl_graph *g, const pl_compile_opts *o, pl_program **out) PL_MUST_USE;
PL_API void pl_program_free(pl_program *p);

enum pl_component {
    PL_COMP_WEIGHTS,
    PL_COMP_GRADIENTS,
    PL_COMP_OPTIMIZER,
    PL_COMP_ACTIVATIONS,
    PL_COMP_WORKSPACE,
    PL_COMP_INPUTS,
    PL_N_COMPONENTS
};

/* Times are stored only if threads waited for a core at most this share of the time. */
#define PL_TIMES_BUSY 0.05
/* Source of a predicted time: a measurement of this kernel on this device; measurements of kernels
 * of its kind; or an estimate from arithmetic, bytes and the figures of the device. */
enum pl_time_source { PL_TIME_MEASURED, PL_TIME_CALIBRATED, PL_TIME_ESTIMATED, PL_N_TIME_SOURCES };

/* The figures of a plan. Byte counts refer to the arena only, except state_bytes. */
typedef struct pl_plan_info {
    uint64_t arena_bytes;      /* a session allocates exactly this for the program */
    uint64_t state_bytes;      /* all slots of the store */
    uint64_t live_bound_bytes; /* most bytes alive at one position: no arena can be smaller */
    uint64_t keep_all_bytes;   /* arena of the keep-all plan */
    uint64_t no_reuse_bytes;   /* sum of all buffers: the arena without memory reuse */
    uint64_t components[PL_N_COMPONENTS]; /* bytes alive at the peak, by kind; state included */
    uint64_t minimum_bytes;   /* smallest arena found (CPU runs: with its plan); 0: not searched */
    double predicted_step_ms; /* with recompute, and with waiting for exchanges between ranks */
    /* time of exchanges between ranks; the part that no kernel overlaps */
    double link_ms, wait_ms;
    double link_bytes;      /* bytes that a rank sends */
    double recompute_ratio; /* time of recompute / time of the step */
    double plan_ms;
    double time_share[PL_N_TIME_SOURCES]; /* of predicted_step_ms; sum 1 */
    /* predicted time with f16 and bf16 exchanged / predicted time; 1 where it is not an estimate */
    double swapped_ratio;
    int32_t nodes, units, buffers;
    int32_t peak_position; /* position in the execution order where most bytes are alive */
    const char *peak_node; /* label of the kernel there */
    int32_t positions;     /* length of the execution order: kernels, and copies at its end */
    /* The keep-all plan of the same program. */
    uint64_t keep_all_components[PL_N_COMPONENTS]; /* bytes alive at its peak, by kind */
    uint64_t keep_all_bound_bytes;                 /* largest sum of bytes alive at once in it */
    double keep_all_ms;                            /* predicted */
    /* Bytes with fewer optimisations. no_reuse_bytes comes between the first two. */
    uint64_t copied_views_bytes; /* sum of all buffers, with a copy for every view */
    uint64_t own_bytes_bound;    /* most bytes alive, in graph order, without in-place results */
    uint64_t order_bound;        /* most bytes alive, in graph order, with in-place results */
} pl_plan_info;
PL_API const pl_plan_info *pl_program_plan(const pl_program *p);

/* The stage of a kernel. Backward: reverse mode made the kernel. Update: the kernel uses results of
 * the backward pass, and no backward kernel uses its results: clipping, optimizer, norms. Forward:
 * all others, also the penalty on a gradient that is differentiated a second time. */
enum pl_stage { PL_STAGE_FORWARD, PL_STAGE_BACKWARD, PL_STAGE_UPDATE };

/* One position of the execution order, for pictures. */
typedef struct pl_plan_position {
    uint64_t bytes;  /* of the arena, alive while the kernel runs */
    double ms;       /* predicted time of the kernel */
    bool recomputed; /* the kernel ran before in the same run of the program */
    enum pl_stage stage;
} pl_plan_position;
/* Fills at most cap positions and returns how many there are. keep_all: positions of the keep-all
 * plan instead of the plan that runs. */
PL_API int pl_program_positions(const pl_program *p, bool keep_all, pl_plan_position *out, int cap);

/* One buffer of the plan, for reports and pictures; i in [0, info->buffers). */
typedef struct pl_plan_buffer {
    const char *label; /* "model.conv1: conv" */
    uint64_t bytes, offset;
    int32_t first, last; /* alive at positions [first, last) */
    enum pl_component component;
    pl_type type; /* of the value; rank 0 u8 for workspace */
} pl_plan_buffer;
PL_API pl_plan_buffer pl_program_buffer(const pl_program *p, int i);
PL_API const char *pl_program_position_label(const pl_program *p, int position);

/* ---- session: memory and execution ---------------------------------------------------------
 * A session has one block for the state of a store, and one arena for all programs, as large as the
 * largest program needs. */
typedef struct pl_session pl_session;
PL_API pl_status pl_session_new(pl_store *store, int n, pl_program *const *programs,
                                pl_session **out) PL_MUST_USE;
PL_API void pl_session_free(pl_session *s); /* the caller frees the programs, after the session */
PL_API uint64_t pl_session_arena_bytes(const pl_session *s); /* allocated */
PL_API uint64_t pl_session_state_bytes(const pl_session *s); /* allocated */
/* Returns the device memory of the process: from the driver, or the resident set on a CPU. */
PL_API uint64_t pl_session_used_bytes(const pl_session *s);
/* Fills every slot from its pl_init. The numbers depend on the seed and the slot's name only.
 * Cannot fail on a CPU. */
PL_API pl_status pl_session_init(pl_session *s, uint64_t seed);
/* Reads or writes bytes [at, at + bytes) of a slot, after all runs started before. */
PL_API pl_status pl_session_read_slot(pl_session *s, int slot, uint64_t at, void *to,
                                      size_t bytes) PL_MUST_USE;
PL_API pl_status pl_session_write_slot(pl_session *s, int slot, uint64_t at, const void *from,
                                       size_t bytes) PL_MUST_USE;
/* Returns the memory of the slot on a CPU; NULL on other devices. */
PL_API void *pl_session_slot(pl_session *s, int slot);
/* Return the memory of an input before a run, or of an output after it; NULL if there is none. Get
 * the pointer and write the input before every run, because a run reuses these bytes and may move
 * them. pl_session_output waits for the run; it returns NULL too if the run failed. */
PL_API void *pl_session_input(pl_session *s, const pl_program *p, const char *name, pl_type *type);
PL_API const void *pl_session_output(pl_session *s, const pl_program *p, const char *name,
                                     pl_type *type);
PL_API int pl_program_input_count(const pl_program *p);
PL_API const char *pl_program_input_name(const pl_program *p, int i);
PL_API pl_type pl_program_input_type(const pl_program *p, int i); /* i in [0, count) */
PL_API int pl_program_output_count(const pl_program *p);
PL_API const char *pl_program_output_name(const pl_program *p, int i);
PL_API pl_type pl_program_output_type(const pl_program *p, int i); /* i in [0, count) */
/* Optional hint: all inputs of the next run are written, so a GPU may copy them while the previous
 * run is still active. */
PL_API pl_status pl_session_send(pl_session *s, const pl_program *p) PL_MUST_USE;
/* Starts a run. On a GPU it returns before the run ends; the next inputs may be written. */
PL_API pl_status pl_session_run(pl_session *s, pl_program *p) PL_MUST_USE;
/* Waits for all runs; returns the error of a run that failed. */
PL_API pl_status pl_session_wait(pl_session *s) PL_MUST_USE;
/* Sets *text to the program's graph after the passes; the caller frees it with pl_text_free. */
PL_API pl_status pl_program_print(const pl_program *p, char **text) PL_MUST_USE;

/* ---- devices and this process ----------------------------------------------------------- */
typedef struct pl_device_info {
    char name[32];     /* what the key `device` takes: "cpu" */
    char about[256];   /* model, cores, vector units, libraries */
    char why_not[256]; /* the reason when it is not usable; "" when it is */
    uint64_t total_bytes, free_bytes;
    bool usable;
} pl_device_info;
/* Fills at most cap entries and returns how many there are. */
PL_API int pl_device_list(pl_device_info *out, int cap);
/* Sets the memory of a device, named as in the key `device`, and its free part; false: unknown. */
PL_API bool pl_device_memory(const char *name, uint64_t *total, uint64_t *available);
/* Like pl_device_list, for GPU profiles: GPUs that can be planned for, with published figures. */
PL_API int pl_device_profiles(pl_device_info *out, int cap);
PL_API uint64_t pl_process_bytes(void);      /* resident now */
PL_API uint64_t pl_process_peak_bytes(void); /* largest resident set so far */
PL_API int pl_threads(void);                 /* threads that kernels use */
PL_API int pl_cores(void);                   /* cores that this process may use */

#ifdef __cplusplus
}
#endif
#endif
