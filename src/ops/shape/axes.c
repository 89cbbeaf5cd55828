/* axes.c - sets of axes of constructors: bit masks that may count from the end. */
#include "ir/graph.h"
#include "ops/core/shape.h"
#include "plimsoll_ops.h"

#include <string.h>

bool pl__axes_of_mask(pl_graph *g, const char *what, const pl_type *t, uint32_t mask, pl_dims *out)
{
    uint32_t chosen = mask == PL_AXES_ALL ? mask : 0;
    for (int bit = 0; bit < 32 && mask != PL_AXES_ALL; bit++) {
        if (!(mask >> bit & 1)) continue;
        int axis = bit < 16 ? bit : bit - 32; /* PL_AXIS(-1) is bit 31 */
        int at = axis < 0 ? axis + t->rank : axis;
        if (at < 0 || at >= t->rank) {
            char s[96];
            pl_graph_fail(g, PL_ERR_ARG, "%s over axis %d of %s", what, axis,
                          pl_type_text(t, s, sizeof s));
            return false;
        }
        chosen |= (uint32_t)1 << at;
    }
    memset(out, 0, sizeof *out);
    for (int i = 0; i < t->rank; i++)
        if (chosen >> i & 1) out->v[out->n++] = i;
    return true;
}
