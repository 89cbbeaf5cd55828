/* run_files.h - a run's state in files: model and state files, weights that checkpoints leave out,
 * averages, and where a run resumes.
 *
 * All file traffic passes through one block of PL_STAGE_BYTES, allocated when the run is opened, so
 * that saving allocates nothing that the plan does not count.
 */
#ifndef PL_TRAIN_RUN_FILES_H
#define PL_TRAIN_RUN_FILES_H

#include "plimsoll_train.h"

enum { PL_STAGE_BYTES = 1 << 18, PL_MAX_LOADED = 8 };

typedef struct pl_run_files {
    char *stage; /* PL_STAGE_BYTES */
    /* room for one slot that has another layout in files, where slots lie on a device or are
     * sharded across ranks; else NULL */
    char *whole;
    const bool *frozen, *leaving; /* by slot: no program writes it; a checkpoint leaves it out */
    bool *remade;                 /* by slot: it was absent in a model file */
    bool *
        filled; /* by slot: a file filled it with a weight that is not random; NULL: not recorded */
    int n_leaving;
    uint64_t leaving_sum;      /* checksum of the names and values of the slots left out */
    const char *resume;        /* checkpoint that pl_run_start continues; NULL: none */
    int64_t resume_accumulate; /* micro-batches of a step of the run that wrote it */
    bool resume_host;          /* that run updated on the host */
    struct {                   /* pl_builder_fact */
        const char *key, *text;
    } fact[PL_MAX_FACTS];
    int n_facts;
    const char *start_note;          /* see pl_run_start_note; NULL */
    pl_loaded loaded[PL_MAX_LOADED]; /* see pl_run_loaded */
    int n_loaded;
    /* a bit for each pl_recipe.weights that fills slots that init_from does not have */
    uint64_t lacking;
    const char *warning; /* see pl_run_start_warning; NULL */
    /* patterns of the frozen slots that are random, "lpips.*,vae.*": of this run, and as the model
     * file notes that the run starts from; NULL: none */
    const char *random, *random_before;
    /* eval.ema, by slot: 1 + the slot that it was swapped with; 0: none; NULL: not used */
    int *swapped;
} pl_run_files;

/* Allocates the staging block. */
pl_status pl__stage_open(pl_run *r) PL_MUST_USE;
/* Allocates `whole`, where it is needed. Requires the session. */
pl_status pl__stage_slots(pl_run *r) PL_MUST_USE;
/* Returns the bytes of `whole` where slots lie in host memory; for planning. */
uint64_t pl__stage_slots_bytes(const pl_run *r);

/* ---- one slot ---- */
/* Copies a tensor of a file to a slot's memory, through the slot's file layout. Both have the
 * slot's dtype. */
void pl__slot_from_file(const pl_slot *slot, const void *src, void *dst);
void pl__slot_to_file(const pl_slot *slot, const void *ours, void *to);
pl_type pl__slot_file_type(const pl_slot *slot);
/* Reads a tensor, or the rows of it that `from` names, of as many elements as the slot has; other
 * floating types are converted, and from->add is taken off. from NULL: the tensor as it is. */
struct pl_st_reader;
struct pl_st_tensor;
struct pl_published;
pl_status pl__slot_read(pl_run *r, const struct pl_st_reader *f, const struct pl_st_tensor *t,
                        int slot, bool model, const struct pl_published *from) PL_MUST_USE;

/* ---- own_values.c ---- */
/* Reads the initial values of pl_recipe.value; does nothing for a recipe without them. Requires
 * the session. */
pl_status pl__values_read(pl_run *r) PL_MUST_USE;

/* ---- model_meta.c: what belongs to the weights ---- */
struct pl_st_writer;
typedef pl_status (*pl_meta_fn)(void *ctx, const char *key, const char *text);
/* Calls put for the class names, the values of black and white, and the facts that the recipe
 * adds. */
pl_status pl__meta_each(pl_run *r, pl_meta_fn put, void *ctx) PL_MUST_USE;
/* Writes them into the metadata of a file. */
pl_status pl__meta_write(pl_run *r, struct pl_st_writer *w) PL_MUST_USE;
/* PL_ERR_FILE when a fact of the file contradicts a fact of the run, except class names. path: for
 * messages. */
pl_status pl__meta_check(pl_run *r, const struct pl_st_reader *f, const char *path) PL_MUST_USE;

/* Second names of weights: the fact "tied" of a recipe, "a=b;c=d=e", lists names of one weight.
 * Model files hold such a weight once for each name, so that they load with strict=True. Copies the
 * k-th other name of the weight `name` to `out`; false: there is none. */
bool pl__tied_name(const pl_run *r, const char *name, int k, char *out, size_t cap);
/* Number of names in the fact. */
int pl__tied_count(const pl_run *r);

/* ---- model_file.c: all slots that pass a test ---- */
typedef bool (*pl_slot_test)(const pl_slot *s);
bool pl__slot_in_model(const pl_slot *s);
bool pl__slot_in_state(const pl_slot *s);
/* model: in PyTorch's layouts, else in ours. leave: without the slots of r->files.leaving. bytes
 * and hash (XXH64) become the file's. */
pl_status pl__slots_write(pl_run *r, const char *path, bool model, pl_slot_test test, bool leave,
                          uint64_t *bytes, uint64_t *hash) PL_MUST_USE;
/* partial: tensors without a slot are ignored. */
pl_status pl__slots_read(pl_run *r, const char *path, bool model, pl_slot_test test,
                         bool partial) PL_MUST_USE;
/* Reads the slots that the file has: *taken of *of. PL_ERR_FILE when one has another shape. */
pl_status pl__slots_take(pl_run *r, const char *path, bool model, pl_slot_test test, int *taken,
                         int *of) PL_MUST_USE;
/* weights.c: reads the files that the recipe's `weights` keys name. */
pl_status pl__weights_load(pl_run *r) PL_MUST_USE;
/* Reads the weight files at path, the value of configuration key `key`, as init_from: everything
 * that the run has, in any naming of pl_recipe.start. */
pl_status pl__weights_start(pl_run *r, const char *key, const char *path) PL_MUST_USE;

/* ---- random_frozen.c ---- */
/* Notes in a model file which tensors are random. */
pl_status pl__random_frozen_tell(const pl_run *r, struct pl_st_writer *w) PL_MUST_USE;
/* Whether a model file notes the tensor as random. */
bool pl__random_frozen_noted(const struct pl_st_reader *f, const char *tensor);
/* Keeps such a note of the model that the run starts from; NULL: the model has none. */
pl_status pl__random_frozen_recall(pl_run *r, const char *note) PL_MUST_USE;
#define PL_RANDOM_NOTE "plimsoll.random"
/* Fails when frozen weights are random while the data are real. loaded false: before anything is
 * allocated or read, as far as the configuration shows it. */
pl_status pl__random_frozen_check(pl_run *r, bool loaded) PL_MUST_USE;
/* The same for a run that will start (pl_run_will_start), from its graphs, before they are
 * compiled and planned. */
pl_status pl__random_frozen_foresee(pl_run *r, const struct pl_builder *graphs) PL_MUST_USE;

/* ---- frozen.c: weights that checkpoints leave out ---- */
struct pl_st_writer;
/* Finds the parameters that no program writes, r->files.frozen. The run is built. */
pl_status pl__frozen_list(pl_run *r) PL_MUST_USE;
/* Sets frozen[slot] for every parameter that is not trained. */
void pl__frozen_start(const pl_run *r, bool *frozen);
/* Clears frozen[slot] for every slot that a graph writes. g NULL: does nothing. */
void pl__frozen_unmark(const struct pl_graph *g, bool *frozen);

/* ---- export_onnx.c: form onnx of recipes that have none themselves; the run is started ---- */
pl_status pl__export_onnx(pl_run *r, const pl_export_opts *o, pl_export_info *info) PL_MUST_USE;
/* Before a checkpoint's model is written: fills r->files.leaving. *any: some weights are left
 * out. */
pl_status pl__frozen_leave(pl_run *r, bool *any) PL_MUST_USE;
/* Writes into the file's metadata that weights are left out; reads it back. */
pl_status pl__frozen_tell(const pl_run *r, struct pl_st_writer *w) PL_MUST_USE;
bool pl__frozen_left_out(const struct pl_st_reader *f);
/* Whether a slot is absent from a model file because it was left out: it then keeps its value. */
pl_status pl__frozen_absent(pl_run *r, const struct pl_st_reader *f, int slot,
                            bool *absent) PL_MUST_USE;
/* Compares the values of the absent slots with the checksum in the file at path. Every rank calls
 * it. */
pl_status pl__frozen_check(pl_run *r, const char *path) PL_MUST_USE;

/* ---- averages.c: eval.ema ---- */
bool pl__is_average(const pl_slot *s);
/* Sets the slot of a weight's average; -1: it has none, or no update has written it. */
pl_status pl__average_of(pl_run *r, int weight, int *average) PL_MUST_USE;
/* Fails if eval.ema is set but not possible. */
pl_status pl__averages_check(const pl_run *r) PL_MUST_USE;
/* Swap weights and averages before an evaluation or a sample, and back after it. _end takes the
 * result of what ran between, and returns it, or the error of swapping back. */
pl_status pl__averages_begin(pl_run *r) PL_MUST_USE;
pl_status pl__averages_end(pl_run *r, pl_status rc) PL_MUST_USE;

/* ---- checkpoint.c ---- */
/* Reads state and position from a checkpoint. Requires the session. */
pl_status pl__checkpoint_load(pl_run *r, const char *dir) PL_MUST_USE;

#endif
