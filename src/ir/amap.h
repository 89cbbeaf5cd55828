/* amap.h - how a flat iteration space reads a dense tensor: affine maps of flat positions.
 *
 * A space of E positions, in row-major order, is seen as runs (innermost first); position p =
 * c0 + size0*(c1 + size1*(c2 ...)) reads element offset + sum c_i * stride_i. The identity is
 * one run of stride 1, so reshapes do not change a map. Maps are kept canonical: no run of size
 * 1, and neighbours merged where one stride continues the other; equal maps are equal bytewise.
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

/* The map p -> read(m(p)), where a tensor of `rank` dims, read densely by m, is itself an
 * affine reading of another: element c is offset + sum c_i * stride[i] of that. False where the
 * result is not affine (a run of m crosses dims unevenly) or too long. */
bool pl_amap_through(const pl_amap *m, int rank, const int64_t *dim, const pl_affine *a,
                     pl_amap *out);
/* The same, with the reading given as a map over the tensor's flat positions. */
bool pl_amap_compose(const pl_amap *m, const pl_amap *inner, pl_amap *out);

/* Rows of `len` positions: the map from a space of E positions to one element a row. */
pl_amap pl_amap_rows(int64_t elems, int64_t len);

/* ---- a space fine enough for several maps ----------------------------------------------- */
/* Cumulative sizes where runs end, ascending, each dividing the next; the last is E. */
typedef struct pl_grid {
    int32_t n;
    int64_t end[PL_AMAP_RUNS];
} pl_grid;

pl_grid pl_grid_new(int64_t elems);
/* Adds a boundary, or all of a map's; false (unchanged) when they do not nest or are too many.
 */
bool pl_grid_add(pl_grid *g, int64_t end);
bool pl_grid_add_map(pl_grid *g, const pl_amap *m);
/* Boundaries of a mask over dims: where kept and reduced dims meet. */
bool pl_grid_add_mask(pl_grid *g, const pl_type *t, uint32_t axes);
/* The grid as dims, outermost first; returns the rank. */
int pl_grid_dims(const pl_grid *g, int64_t *dim);
/* A map's strides for those dims. */
void pl_grid_strides(const pl_grid *g, const pl_amap *m, int64_t *stride);
/* The mask of those dims that a mask over t's dims means. */
uint32_t pl_grid_mask(const pl_grid *g, const pl_type *t, uint32_t axes);

PL_SHARED_END

#endif
