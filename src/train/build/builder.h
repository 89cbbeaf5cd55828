/* builder.h - the graphs of a step under construction, which a recipe's build function fills.
 *
 * builder.c runs the recipe and closes each program with gradients and updates; the result is a set
 * of finished graphs over one store. accumulate.c builds graphs only to compare them (a probe).
 */
#ifndef PL_TRAIN_BUILDER_H
#define PL_TRAIN_BUILDER_H

#include "base/arena.h"
#include "ir/graph.h"
#include "nn/nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_train.h"

enum { PL_MAX_STEP_PROGRAMS = 16, PL_MAX_PICTURES = 8, PL_MAX_QUANTS = 4 };

/* What graphs and programs are made for. */
typedef enum pl_goal {
    PL_GOAL_TRAIN,
    PL_GOAL_EVALUATE, /* the evaluation and sampling programs alone: no gradients, no updates */
    PL_GOAL_PREDICT,  /* the recipe's programs of predictions alone (run/predict.c) */
    PL_GOAL_ENCODE,   /* the recipe's frozen encoder alone, which fills a cache (data/cache.h) */
    PL_GOAL_REPLAY,   /* training on a dump: draws are inputs, gradients are outputs */
    PL_GOAL_PROBE     /* graphs that are only compared: gradients without updates, not compiled */
} pl_goal;

/* Whether programs of the goal have a backward pass. */
static inline bool pl__goal_trains(pl_goal goal)
{
    return goal == PL_GOAL_TRAIN || goal == PL_GOAL_REPLAY;
}

/* A graph and the layer context over it. */
typedef struct pl_draft {
    pl_graph *g;
    pl_nn *m;
} pl_draft;

/* The slots that one section of the configuration trains in a program. Lies in the arena of the
 * program's graph. */
typedef struct pl_group_draft {
    const char *section;
    pl_val loss;
    pl_grads grads;
    struct pl_group_draft *next;
} pl_group_draft;

/* A program of the step under construction. */
typedef struct pl_program_draft {
    const char *name; /* NULL: the training program */
    pl_when when;
    pl_draft run, apply; /* apply: the update, if it is a separate program (pl_builder.split) */
    bool minimised;
    pl_group_draft *groups; /* in the order of pl_builder_minimise_with */
    pl_val scale, finite;   /* fp16: the loss scale of the step, and whether all groups' gradients
                               are finite */
} pl_program_draft;

/* A picture of the sampling program. */
typedef struct pl_picture_out {
    const char *name;
    int64_t width, height;
    int channels;
    bool last; /* channels are the last dimension, else the second */
    float low, high;
} pl_picture_out;
#define PL_SAMPLE_KEY   "sample.key"    /* input of the sampling program: {seed, first sample} */
#define PL_SAMPLE_ARRAY "sample.array." /* prefix of the names of its arrays */

struct pl_builder {
    pl_run *run; /* whose classes and facts the recipe reads and writes */
    const pl_config *config;
    pl_store *store;
    pl_goal goal;
    int64_t batch;       /* samples of a micro-batch */
    int64_t accumulate;  /* micro-batches of a step */
    int64_t fixed_batch; /* see pl_builder_fixed_batch; 0: any */
    bool split; /* updates are separate programs: several micro-batches, or updates run on the
                   host */
    pl_program_draft step_programs[PL_MAX_STEP_PROGRAMS]; /* the first is the training program */
    int n_step_programs;
    const pl_nn_ranks *ranks; /* NULL: one */
    const pl_spread *spread;  /* of each step program; NULL: one rank */
    pl_draft eval, sample;    /* sample: once it is requested */
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures, n_arrays;
    bool draws_are_inputs; /* of a replay, and of its probes */
    bool f64;              /* parameters made by the layers are f64 */
    bool wants_eval;
    struct {
        const char *pattern;
        pl_quant form;
    } quant[PL_MAX_QUANTS]; /* of pl_builder_quantize */
    int n_quants;
    pl_store *aside; /* PL_GOAL_EVALUATE: store of the programs that are built but not kept */
};

/* Runs the recipe's build and finishes all graphs. On failure everything is freed. */
pl_status pl__builder_run(pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;
void pl__builder_release(pl_builder *b);
/* samples.c: finishes and checks the sampling program, if there is one. */
pl_status pl__sample_finish(pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;

/* pattern.c: whether every part of a key's pattern (pl_nn_match) names a parameter; otherwise fails
 * m with the nearest name. A pattern that silently matches nothing would train the wrong
 * weights. */
bool pl__pattern_check(pl_nn *m, const pl_store *s, const char *key, const char *pattern);
/* sections.c: fails when a key of the command line belongs to a section that trains nothing. */
pl_status pl__sections_check(const pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;
/* frozen_dtype.c: quantizes frozen weights as the recipe and frozen.dtype say. Graphs are
 * finished. */
pl_status pl__frozen_dtype(pl_builder *b) PL_MUST_USE;
/* The optimiser settings of a section of a configuration; "optim" is the engine's own. */
pl_status pl__optim_from_config(const pl_config *c, const char *section, pl_optim *out,
                                pl_plateau *plateau) PL_MUST_USE;
/* Returns the schema of a recipe's further optimiser sections, in the arena; NULL when out of
 * memory. */
const pl_config_entry *pl__optim_schema(pl_arena *a, const char *const *sections);

/* Builds the recipe's graphs for a comparison: without updates, over a separate store. ranks: as
 * the layers see them; NULL: one. */
pl_status pl__probe(pl_run *r, int64_t batch, const pl_nn_ranks *ranks, pl_builder *b) PL_MUST_USE;
void pl__probe_release(pl_builder *b);
/* Whether samples couple, so that `accumulate` micro-batches are not the same as their batch. *why:
 * NULL when it is proven that they do not, else a text in the run's arena that names the op. */
pl_status pl__run_couples(pl_run *r, int64_t accumulate, const pl_nn_ranks *ranks,
                          const char **why) PL_MUST_USE;

#endif
