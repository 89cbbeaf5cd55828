/* train_int.h - what the files of train/ share. */
#ifndef PL_TRAIN_TRAIN_INT_H
#define PL_TRAIN_TRAIN_INT_H

#include "base/arena.h"
#include "plimsoll_optim.h"
#include "plimsoll_train.h"

/* The engine's own configuration keys. */
extern const pl_config_entry pl_engine_schema[];

struct pl_builder {
    const pl_config *config;
    pl_store *store;
    int64_t batch, parts;         /* samples of the program; programs' runs a step */
    pl_nn *train, *eval, *apply;  /* layer contexts over the graphs; apply: parts > 1 */
    pl_graph *train_graph, *eval_graph, *apply_graph;
    bool probe;                   /* built to be looked at: no update, goals instead */
    pl_val loss;                  /* probe: goals */
    pl_grads grads;
    bool replay;                  /* draws are inputs; gradients are outputs */
    bool minimised, wants_eval;
};

/* Runs the recipe's build and finishes both graphs. On failure nothing is left. */
pl_status pl__builder_run(pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;
void pl__builder_release(pl_builder *b);

/* The optimiser settings of a configuration. */
pl_status pl__optim_from_config(const pl_config *c, pl_optim *out, pl_plateau *plateau) PL_MUST_USE;

/* Key `accumulate`: a number, or 0 for auto. */
pl_status pl__accumulate_asked(const pl_config *c, int64_t *parts) PL_MUST_USE;
/* Do samples couple, so that so many micro-batches are not the batch? *why is NULL when it is proven
 * that they do not, else a text in the run's arena that names the op. */
pl_status pl__run_couples(pl_run *r, int64_t parts, const char **why) PL_MUST_USE;
/* accumulate: auto: builds for the number of micro-batches that fits and is fastest. */
pl_status pl__run_build_auto(pl_run *r) PL_MUST_USE;
/* Builds, compiles and fits for a given number of micro-batches; again if need be. */
pl_status pl__run_build_parts(pl_run *r, int64_t parts) PL_MUST_USE;

struct pl_run {
    pl_arena arena; /* names */
    const pl_recipe *recipe;
    void *library; /* dlopen handle of a compiled recipe */
    pl_config *config;
    pl_store *store;
    pl_compile_opts compile;
    pl_program *train, *eval;
    pl_program *apply;         /* updates from accumulated gradients; NULL unless parts > 1 */
    int64_t micro, parts;      /* batch = micro * parts */
    const char *coupled;       /* why accumulate: auto does not split the batch; NULL */
    pl_session *session;
    pl_plateau plateau;
    const char *unfit; /* why no plan fits the budget; NULL */
    void *data;                /* the recipe's, when data_open */
    struct pl_dataset *dataset; /* arrays of data.path, else NULL */
    struct pl_images *images;   /* images of data.path, else NULL */
    struct pl_supply *supply;
    bool data_open, replay;
    bool trace_nan; /* steps are watched */
    bool ahead;         /* the next batch is in the inputs already */
    uint64_t used, most_used, used_asked; /* bytes of the device, and when it was asked */
    int64_t steps_done;
};

/* A const recipe as the untyped context of a callback that only reads it. */
static inline void *pl__unconst(const pl_recipe *r)
{
    return (void *)(uintptr_t)r;
}

/* Sample number of position p of the endless stream of samples: each epoch is a permutation of
 * [0, size) that depends on seed and epoch only. */
int64_t pl__sample_at(uint64_t seed, int64_t size, int64_t p);

/* The handle behind pl_batch_input: finds the memory of an input. */
struct pl_batch {
    void *(*find)(void *ctx, const char *name, pl_type *type);
    void *find_ctx;
};

/* A tensor of a file into a slot's memory and back, through the slot's file layout. src and dst have
 * the slot's dtype. */
void pl__slot_from_file(const pl_slot *slot, const void *src, void *dst);
void pl__slot_to_file(const pl_slot *slot, const void *src, void *dst);
pl_type pl__slot_file_type(const pl_slot *slot);

#endif
