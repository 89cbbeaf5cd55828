/* cost_card.h - models of GPUs ("cards") as numbers, and the expected time of a unit on one.
 *
 * Planning for a GPU needs no GPU: order, lifetimes and offsets depend on the graph alone. Memory,
 * overhead of libraries, and the times that weigh recomputation come from here.
 */
#ifndef PL_PLAN_COST_CARD_H
#define PL_PLAN_COST_CARD_H

#include "ir/units.h"

typedef struct pl_card {
    const char *name, *about;
    uint64_t memory_bytes;       /* that one process can use, overhead included */
    uint64_t overhead_bytes;     /* context, libraries, compiled kernels */
    double bandwidth;            /* bytes a second */
    double sms;                  /* multiprocessors */
    double f32, tf32, f16, bf16; /* operations a second of products */
    double launch_ns;            /* from one kernel to the next */
    bool dnn_attention;          /* 16-bit attention is cuDNN's where it is worth it */
} pl_card;

int pl_card_count(void);
const pl_card *pl_card_at(int i);
/* Finds a GPU by profile name ("h200") or by the driver's name ("NVIDIA H200"); NULL: no such
 * model. */
const pl_card *pl_card_find(const char *name);

/* Share of the published bandwidth that kernels reach. */
#define PL_CARD_MOVES 0.76
/* Returns the time of a unit that does not depend on its size. */
double pl_card_fixed_ns(const pl_card *card, const pl_cost *cost);
/* How f32 is multiplied: by f32 units, by TF32 units, or by split operands on tensor cores, with
 * f32's accuracy, where that is faster. */
typedef enum pl_card_f32 { PL_CARD_PLAIN, PL_CARD_TF32, PL_CARD_SPLIT } pl_card_f32;
/* Returns the expected nanoseconds of a unit of this cost. dtype: of the operands. */
double pl_card_ns(const pl_card *card, const pl_cost *cost, pl_dtype dtype, pl_card_f32 f32);
/* Whether split f32 products are faster than f32 units on this model. */
bool pl_card_splits(const pl_card *card);
/* Whether a product is a matrix times a vector, which takes as long as reading the matrix
 * (cuda/matmul/vector.h). */
bool pl_card_vector(const pl_cost *cost, pl_dtype dtype);
/* Whether cuDNN computes an attention unit (cuda/attention/attention_dnn.c). */
bool pl_card_dnn_attends(const pl_card *card, const pl_cost *cost, pl_dtype dtype);
/* Whether attention of f32 is computed in TF32's 11 bits (cuda/attention/attention_tf32.cu). */
bool pl_card_rounds_attention(const pl_card *card, const pl_cost *cost, pl_dtype dtype,
                              pl_card_f32 f32);
/* Whether warpgroup products can compute an attention unit (cuda/attention/attention_wgmma.cu). */
bool pl_card_warpgroups_attend(const pl_card *card, const pl_cost *cost);
/* Returns the expected scratch of a unit of this cost; scratch_card.c. */
uint64_t pl_card_workspace(const pl_card *card, const pl_cost *cost, pl_dtype dtype,
                           pl_card_f32 f32);

#endif
