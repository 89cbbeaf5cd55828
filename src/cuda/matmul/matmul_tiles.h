/* matmul_tiles.h - chooses one of the library's first answers for a product when none is timed. */
#ifndef PL_CUDA_MATMUL_TILES_H
#define PL_CUDA_MATMUL_TILES_H

#include "cuda/device/lib.h"
#include "cuda/matmul/matmul.h"

/* Number of answers that are considered. */
enum { PL_TILES_LOOK = 8 };

/* Properties of an answer: its tile along n and along m (0: not known), and the number of waves
 * over all multiprocessors. */
typedef struct pl_lt_tile {
    int32_t n, m;
    float waves;
} pl_lt_tile;

/* Returns the index, in the list with the best first, of the answer to take. */
int pl_tiles_choose(const pl_product *p, const pl_lt_tile *list, int count);
/* The same for the library's own list, on the open device. */
int pl_tiles_first(const pl_product *p, const cublasLtMatmulHeuristicResult_t *list, int count);

#endif
