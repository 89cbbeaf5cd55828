/* graphs.h - graphs that several tests use. */
#ifndef PL_TEST_GRAPHS_H
#define PL_TEST_GRAPHS_H

#include "ir/graph.h"
#include "plimsoll_ops.h"

/* A random program over `store` (slots are added): elementwise, reductions, views, concat,
 * matmul, several slots read and assigned in every way that is legal. All values stay within
 * [-1,1]. */
pl_graph *random_graph(pl_store *store, uint64_t seed, int n_ops);

/* `layers` of y = tanh(x w + b), mean square distance from 0.5, gradients, SGD with momentum.
 */
pl_graph *training_graph(pl_store *store, int layers, int64_t batch, int64_t width);

/* Fills an input, the same for the same seed and name. */
void fill_input(uint64_t seed, const char *name, const pl_type *t, void *to);

/* Returns the CPU time in nanoseconds of this process and of the children that it waited for.
 * Bounds on time use it, because it does not depend on other programs. */
uint64_t used_ns(void);

/* Bounds on time are for a plain build; sanitizers take their share. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { PATIENCE = 20 };
#else
enum { PATIENCE = 1 };
#endif

#endif
