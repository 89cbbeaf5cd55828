/* matmul_tiles.h - which of the library's first answers for a product is taken where none is timed.
 */
#ifndef PL_CUDA_MATMUL_TILES_H
#define PL_CUDA_MATMUL_TILES_H

#include "cuda/device/lib.h"
#include "cuda/matmul/matmul.h"

/* So many answers are looked at. */
enum { PL_TILES_LOOK = 8 };

/* What an answer is judged by: its tile along n and along m (0: not known), and how often all
 * multiprocessors take one. */
typedef struct pl_lt_tile {
    int32_t n, m;
    float waves;
} pl_lt_tile;

/* The place in the list, best first, of the answer to take. */
int pl_tiles_choose(const pl_product *p, const pl_lt_tile *list, int count);
/* The same of the library's own list, on the card that is open. */
int pl_tiles_first(const pl_product *p, const cublasLtMatmulHeuristicResult_t *list, int count);

#endif
