/* cost_card.h - graphics cards as numbers, and what a unit is believed to take on one.
 *
 * Planning for a card needs no card: order, lifetimes and offsets depend on the graph alone; its
 * memory, what its libraries take and the times that recomputation is weighed with come from here.
 */
#ifndef PL_PLAN_COST_CARD_H
#define PL_PLAN_COST_CARD_H

#include "ir/units.h"

typedef struct pl_card {
    const char *name, *about;
    uint64_t memory_bytes;       /* that one process can have, overhead included */
    uint64_t overhead_bytes;     /* context, libraries, compiled kernels */
    double bandwidth;            /* bytes a second */
    double sms;                  /* multiprocessors */
    double f32, tf32, f16, bf16; /* operations a second of products */
    double launch_ns;            /* from one kernel to the next */
} pl_card;

int pl_card_count(void);
const pl_card *pl_card_at(int i);
/* By profile name ("h200"), or by the name a driver gives ("NVIDIA H200"); NULL if none is like it.
 */
const pl_card *pl_card_find(const char *name);

/* The part of the published bandwidth that kernels get. */
#define PL_CARD_MOVES 0.76
/* What a unit takes whatever its size. */
double pl_card_fixed_ns(const pl_card *card, const pl_cost *cost);
/* How f32 is multiplied: by f32 units, by TF32 units, or taken apart for tensor cores with f32's
 * accuracy where that is faster. */
typedef enum pl_card_f32 { PL_CARD_PLAIN, PL_CARD_TF32, PL_CARD_SPLIT } pl_card_f32;
/* Nanoseconds of a unit of this cost. dtype: of what it multiplies. */
double pl_card_ns(const pl_card *card, const pl_cost *cost, pl_dtype dtype, pl_card_f32 f32);
/* Whether f32 taken apart is worth it there. */
bool pl_card_splits(const pl_card *card);
/* Whether a product is one of a matrix and a vector, which takes as long as reading the matrix
 * (src/cuda/matmul/vector.h). */
bool pl_card_vector(const pl_cost *cost, pl_dtype dtype);
/* Scratch that a unit of this cost is expected to ask for; scratch_card.c. */
uint64_t pl_card_workspace(const pl_card *card, const pl_cost *cost, pl_dtype dtype,
                           pl_card_f32 f32);

#endif
