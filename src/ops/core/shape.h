/* shape.h - arithmetic on shapes that op files share: strides, axes, flat positions.
 *
 * Positions count elements of a dense row-major tensor.
 */
#ifndef PL_OPS_SHAPE_H
#define PL_OPS_SHAPE_H

#include "base/err.h"
#include "ir/op.h"

/* Sets dense row-major strides, in elements. */
static inline void pl_shape_strides(const pl_type *t, int64_t stride[PL_MAX_RANK])
{
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= t->dim[i];
    }
}

/* Returns the offset of element i of a dense shape dim[0..rank) in memory with other strides. */
static inline int64_t pl_shape_at(int64_t i, int rank, const int64_t *dim, const int64_t *stride)
{
    int64_t at = 0;
    for (int k = rank - 1; k >= 0; k--) {
        at += i % dim[k] * stride[k];
        i /= dim[k];
    }
    return at;
}

/* A tensor seen along one axis: [outer, size, inner]. */
typedef struct pl_lines {
    int64_t outer, size, inner;
} pl_lines;

static inline pl_lines pl_shape_lines(const pl_type *t, int64_t axis)
{
    pl_lines l = {1, t->dim[axis], 1};
    for (int i = 0; i < axis; i++) l.outer *= t->dim[i];
    for (int i = (int)axis + 1; i < t->rank; i++) l.inner *= t->dim[i];
    return l;
}

/* Makes a negative axis positive; an axis outside the rank is an error. */
static inline pl_status pl_shape_axis(int64_t *axis, const pl_type *t)
{
    char x[96];
    int64_t a = *axis < 0 ? *axis + t->rank : *axis;
    PL_FAIL_IF(a < 0 || a >= t->rank, PL_ERR_ARG, "axis %lld of %s: its axes are %d to %d",
               (long long)*axis, pl_type_text(t, x, sizeof x), -t->rank, t->rank - 1);
    *axis = a;
    return PL_OK;
}

/* Converts a mask of PL_AXIS bits (PL_AXES_ALL: every axis) to a sorted list of axes; false, with
 * the graph's error set, if one is outside the rank. */
bool pl__axes_of_mask(pl_graph *g, const char *what, const pl_type *t, uint32_t mask, pl_dims *out);

/* Kernels of an op whose output elements are input elements at an affine index: element by element,
 * and by strided runs. Shared by slice, permute, flip and broadcast (affine.c). */
pl_status pl__affine_ref(const pl_call *c, const pl_affine *m);
pl_status pl__affine_copy(const pl_call *c, const pl_affine *m);
/* The table `kernels` of an op whose index function is `affine`. */
#define PL_AFFINE_KERNELS(affine)                                                                  \
 static pl_status run_ref(const pl_call *c)                                                        \
 {                                                                                                 \
  pl_affine m;                                                                                     \
  affine(c, &m);                                                                                   \
  return pl__affine_ref(c, &m);                                                                    \
 }                                                                                                 \
 static pl_status run_strided(const pl_call *c)                                                    \
 {                                                                                                 \
  pl_affine m;                                                                                     \
  affine(c, &m);                                                                                   \
  return pl__affine_copy(c, &m);                                                                   \
 }                                                                                                 \
 static const pl_kernel kernels[] = {{"strided", NULL, NULL, NULL, run_strided},                   \
                                     {"ref", NULL, NULL, NULL, run_ref},                           \
                                     PL_KERNEL_END};

/* Slice and pad along all axes at once; arrays have one entry per dimension. The public
 * constructors take one axis; gradient rules need all axes. */
pl_val pl__slice_all(pl_graph *g, pl_val x, const int64_t *start, const int64_t *stop,
                     const int64_t *step);
pl_val pl__pad_all(pl_graph *g, pl_val x, const int64_t *lo, const int64_t *hi,
                   const int64_t *inner, double value);
/* The sum of two pads with zeros whose elements are adjacent, as one pad of their concat; PL_NO_VAL
 * for other values. Equal to the sum but for the sign of zeros. */
pl_val pl__add_pads(pl_graph *g, pl_val a, pl_val b);

/* Rows as tensor cores read them (padded.c). row_unit: the elements of 16 bytes; 1 for types that
 * tensor cores do not multiply. padded_row: n, or more, a multiple of the unit. */
int64_t pl__row_unit(pl_dtype d, bool tf32);
int64_t pl__padded_row(int64_t n, int64_t unit);
/* Returns the value whose first columns x is (a slice of the last dimension); PL_NO_VAL: none.
 * with_zeros: only a value whose other columns are zero. */
pl_val pl__wide_of(const pl_graph *g, pl_val x);
pl_val pl__wide_with_zeros_of(const pl_graph *g, pl_val x);
/* x with zeros after its last two dimensions, up to these sizes; and the adjoint. */
pl_val pl__padded_to(pl_graph *g, pl_val x, int64_t rows, int64_t columns);
pl_val pl__first_of(pl_graph *g, pl_val x, int64_t rows, int64_t columns);

#endif
