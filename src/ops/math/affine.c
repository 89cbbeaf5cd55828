/* affine.c - the two kernels of every op that only moves elements: y[c] = x[offset + c . stride].
 *
 * Alone, such a node runs as a strided copy; inside a group the tile interpreter reads through the
 * same strides and these kernels are not called.
 */
#include "cpu/kernels/strided.h"
#include "ops/core/shape.h"

#include <string.h>

pl_status pl__affine_ref(const pl_call *c, const pl_affine *m)
{
    const pl_type *y = &c->out_type[0];
    int64_t n = pl_type_elems(y), elem = (int64_t)pl_dtype_bytes(y->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = m->offset + pl_shape_at(i, y->rank, y->dim, m->stride);
        memcpy((char *)c->out[0] + i * elem, (const char *)c->in[0] + from * elem, (size_t)elem);
    }
    return PL_OK;
}

pl_status pl__affine_copy(const pl_call *c, const pl_affine *m)
{
    const pl_type *y = &c->out_type[0];
    int64_t elem = (int64_t)pl_dtype_bytes(y->dtype);
    if (pl_type_elems(y) == 0) return PL_OK;
    pl_strided_box b = {.rank = y->rank};
    memcpy(b.dim, y->dim, sizeof b.dim);
    memcpy(b.from, m->stride, sizeof b.from);
    pl_shape_strides(y, b.to);
    pl_strided_copy(&b, (size_t)elem, c->out[0], (const char *)c->in[0] + m->offset * elem);
    return PL_OK;
}
