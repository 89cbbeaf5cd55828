/* optim_tiles.h - optimiser updates on weights and states that are stored in fewer bits than f32.
 *
 * A tile has 256 elements, one block of packed numbers. The gradient, the weight and the states of
 * a tile are widened to f32, updated, and rounded back to their stored type:
 *
 *   f32               unchanged
 *   f16, bf16         to nearest; with a key, bf16 at random: the mean of the results is the exact
 *                     number, so that changes smaller than half a last bit are not lost
 *   u8[blocks,260]    packed in 8 bits (base/number/packed.h)
 *
 * Random bits are a function of (seed, stream, step, element) like every draw. Outputs may be the
 * bytes of their inputs: a tile is read before it is written.
 */
#ifndef PL_OPS_OPTIM_TILES_H
#define PL_OPS_OPTIM_TILES_H

#include "base/number/packed.h"
#include "ir/op.h"

enum { PL_OPTIM_STATES = 3 };

/* Updates n <= 256 elements in place. */
typedef void (*pl_optim_tile_fn)(const void *ctx, const float *grad, float *w,
                                 float *const s[PL_OPTIM_STATES], int n);

typedef struct pl_optim_tiles {
    pl_optim_tile_fn fn;
    const void *ctx;
    int scalars;       /* inputs before the gradient */
    uint32_t positive; /* bit i: state i is never negative */
} pl_optim_tiles;

/* Whether the last input is the key of random rounding. */
bool pl_optim_keyed(const pl_call *c, int scalars);
/* Whether `state` is the type of a packed state of a weight of type `w`. */
bool pl_optim_is_packed(const pl_type *state, const pl_type *w);
/* Whether operands are packed or rounded at random. */
bool pl_optim_is_small(const pl_call *c, int scalars);
void pl_optim_run_tiles(const pl_call *c, const pl_optim_tiles *t);

#endif
