/* fuse_bits.c - decides which bool values between groups are stored as bits, in an eighth of the
 * bytes (M13 of docs/MEMORY.md).
 *
 * A group packs bits as it stores and unpacks them as it loads, which costs less time than the
 * bytes it saves. Invariant: only groups read and write such a value, and it has one element for
 * each position of its group's space; kernels, views and callers see bools as bytes. Cost: linear
 * in nodes and edges.
 */
#include "pass/fuse/fuse_int.h"

enum { FROM = 128 }; /* elements: below, the alignment of buffers cancels the gain */

/* Returns the positions of a group's space: those of its largest core member (ir/group/fused.c). */
static int64_t space_of(const pl_fuser *f, const pl_unit *u)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        pl_role role = f->role[u->nodes[i]];
        if (!pl_role_core(role)) continue;
        uint32_t val = role == PL_ROLE_REDUCE ? pl_node_in(f->g, u->nodes[i])[0]
                                              : pl_node_get(f->g, u->nodes[i])->out;
        int64_t n = pl_type_elems(pl_type_of(f->g, val));
        if (n > most) most = n;
    }
    return most;
}

static void mark_made(const pl_fuser *f, const pl_unit *u, bool *bits)
{
    int64_t n = u->kind == PL_UNIT_GROUP ? space_of(f, u) : 0;
    for (uint32_t k = 0; k < u->n_out && n >= FROM; k++) {
        const pl_type *t = pl_type_of(f->g, u->out[k]);
        bool map = f->role[pl_producer(f->g, u->out[k])] == PL_ROLE_MAP;
        bits[u->out[k]] = map && t->dtype == PL_BOOL && pl_type_elems(t) == n;
    }
}

pl_status pl_fuse_bits(const pl_fuser *f, pl_units *us)
{
    us->bits = pl_arena_new(&us->arena, bool, f->g->n_vals);
    if (!us->bits) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < us->n; i++) mark_made(f, &us->unit[i], us->bits);
    for (uint32_t i = 0; i < us->n; i++)
        for (uint32_t k = 0; k < us->unit[i].n_in && us->unit[i].kind != PL_UNIT_GROUP; k++)
            us->bits[us->unit[i].in[k]] = false;
    for (uint32_t n = 1; n < f->g->n_nodes; n++)
        for (uint32_t i = 0; i < f->g->nodes[n].n_in; i++)
            if (f->g->nodes[n].op->flags & PL_OP_EFFECT) us->bits[pl_node_in(f->g, n)[i]] = false;
    for (uint32_t i = 0; i < us->n; i++) us->unit[i].bits = us->bits;
    return PL_OK;
}
