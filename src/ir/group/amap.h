/* amap.h - affine maps: how the flat positions of a space read the elements of a dense tensor.
 *
 * A space of E positions, in row-major order, is split into runs (innermost first); position p =
 * c0 + size0*(c1 + size1*(c2 ...)) reads element offset + sum c_i * stride_i. The identity is
 * one run of stride 1, so reshapes do not change a map. Maps are kept canonical: no run of size
 * 1, and neighbours merged where one stride continues the other; equal maps are equal bytewise.
 *
 * Example: a space [4,3] that reads the transpose of a tensor [3,4]: runs {3, stride 4},
 * {4, stride 1}. Position 5 = 2 + 3*1 reads element 2*4 + 1*1 = 9.
 */
#ifndef PL_IR_AMAP_H
#define PL_IR_AMAP_H

#include "ir/op.h"

PL_SHARED_BEGIN

enum { PL_AMAP_RUNS = 12 };

typedef struct pl_amap {
    int32_t n, pad;
    int64_t offset;
    int64_t size[PL_AMAP_RUNS], stride[PL_AMAP_RUNS];
} pl_amap;

pl_amap pl_amap_identity(int64_t elems);
bool pl_amap_equal(const pl_amap *a, const pl_amap *b);
bool pl_amap_is_identity(const pl_amap *m);

/* Composes m with an affine reading a: m reads a tensor T of `rank` dims, and element c of T is
 * element offset + sum c_i * stride[i] of another tensor. *out reads that other tensor directly.
 * Returns false where the result is not affine (a run of m ends inside a dim) or has too many
 * runs. */
bool pl_amap_through(const pl_amap *m, int rank, const int64_t *dim, const pl_affine *a,
                     pl_amap *out);

/* Returns the map from a space of E positions, rows of `len`, to one element per row. */
pl_amap pl_amap_rows(int64_t elems, int64_t len);

/* ---- a space fine enough for several maps ----------------------------------------------- */
/* Sizes at which runs end, counted from the innermost: ascending, each divides the next, the last
 * is E. */
typedef struct pl_grid {
    int32_t n;
    int64_t end[PL_AMAP_RUNS];
} pl_grid;

pl_grid pl_grid_new(int64_t elems);
/* Adds one boundary, or all boundaries of a map. Returns false, and changes nothing, when the
 * boundaries do not nest or are too many. */
bool pl_grid_add(pl_grid *g, int64_t end);
bool pl_grid_add_map(pl_grid *g, const pl_amap *m);
/* Adds the boundaries between kept and reduced dims of t. */
bool pl_grid_add_mask(pl_grid *g, const pl_type *t, uint32_t axes);
/* Writes the grid as dims, outermost first; returns the rank. */
int pl_grid_dims(const pl_grid *g, int64_t *dim);
/* Writes the strides of a map in those dims. */
void pl_grid_strides(const pl_grid *g, const pl_amap *m, int64_t *stride);
/* Translates a mask over t's dims into a mask over those dims. */
uint32_t pl_grid_mask(const pl_grid *g, const pl_type *t, uint32_t axes);

PL_SHARED_END

#endif
