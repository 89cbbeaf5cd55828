/* fuse.c - partitions the nodes of a graph into units: kernels and fused groups.
 *
 * Idea: a group is one pass over memory for any number of nodes, so few groups with few values
 * between them are fast and small. Stages:
 *
 *   join    (fuse.c) nodes in order: a core node (map, reduction) joins the group of its newest
 *           operand, or the newest group that reads the same value, or starts a group
 *   merge   (fuse_merge.c) a group whose results only one other group reads moves into that group,
 *           unless the move keeps more bytes alive than it saves
 *   repeat  (fuse_repeat.c) a group recomputes a value that another group would store for it, when
 *           the value's operands are alive there anyway or are no larger. Equal expressions of
 *           forward and backward, which simplify has made one node, thus cost no memory.
 *   product (fuse_product.c) where the device has such kernels, a product moves into the group that
 *           reads its result first
 *
 * Example: conv -> sub mean -> relu -> sum over the batch, and relu -> conv. sub starts a group,
 * relu and sum join it; the group stores relu (a kernel reads it) and the sum. The backward group
 * reads the sign of relu: it repeats sub and relu from the first convolution's result, if the
 * backward pass keeps that result alive anyway.
 *
 * Invariant: units form a DAG (fuse_int.h). A node that joins must fit the group's space: the same
 * number of elements (or one per row, after a reduction over rows), readings that nest with the
 * readings of the others (pl_grid), the same row. Inline nodes (constants, broadcasts, slices,
 * reshapes) belong to every group that reads them and get a buffer only when a kernel or an effect
 * reads them.
 *
 * Cost: each stage is near linear in nodes and edges.
 */
#include "pass/fuse/fuse_int.h"

#include "base/sys.h"

#include <string.h>

/* ---- readings --------------------------------------------------------------------------- */

void pl_fuse_root(const pl_fuser *f, uint32_t *val, pl_amap *map)
{
    for (;;) {
        uint32_t node = pl_producer(f->g, *val);
        pl_role r = f->role[node];
        if (r != PL_ROLE_AFFINE && r != PL_ROLE_SAME) return;
        if (r == PL_ROLE_AFFINE) {
            const pl_type *t = pl_type_of(f->g, *val);
            pl_affine a;
            pl_amap next;
            pl_node_affine(f->g, node, &a);
            if (!pl_amap_through(map, t->rank, t->dim, &a, &next)) return;
            *map = next;
        }
        *val = pl_node_in(f->g, node)[0];
    }
}

pl_amap pl_fuse_map(const pl_fuser *f, const pl_fgroup *g, uint32_t node)
{
    if (f->role[node] == PL_ROLE_REDUCE || f->stand[node] == PL_STAND_FULL)
        return pl_amap_identity(g->elems);
    if (f->stand[node] == PL_STAND_ROW) return pl_amap_rows(g->elems, g->row);
    return f->small[node];
}

/* A ramp needs the boundaries of the dims it moves along; a draw counts elements. */
bool pl_fuse_add_made(const pl_fuser *f, pl_grid *grid, uint32_t val, const pl_amap *map)
{
    pl_type type[PL_MAX_OUT];
    pl_call c;
    pl_ramp r;
    uint32_t node = pl_producer(f->g, val);
    if (f->role[node] == PL_ROLE_DRAW) return pl_grid_add_map(grid, map);
    pl_node_call(f->g, node, NULL, type, &c);
    pl_node_get(f->g, node)->op->ramp(&c, &r);
    for (int d = 0; d < type[0].rank; d++) {
        pl_affine a;
        pl_amap m;
        if (r.step[d] == 0.0 || type[0].dim[d] == 1) continue;
        memset(&a, 0, sizeof a);
        a.stride[d] = 1;
        if (!pl_amap_through(map, type[0].rank, type[0].dim, &a, &m) || !pl_grid_add_map(grid, &m))
            return false;
    }
    return true;
}

/* ---- joining ---------------------------------------------------------------------------- */

typedef struct fit {
    pl_grid grid;
    int64_t row;
    pl_stand stand;
} fit;

/* Whether a member read at `map` by another member fits: the whole space, or the row's value. */
static bool fits_member(const pl_fuser *f, const pl_fgroup *g, uint32_t node, const pl_amap *map,
                        fit *t)
{
    if (f->stand[node] == PL_STAND_FULL) return pl_amap_is_identity(map);
    int64_t row = f->role[node] == PL_ROLE_REDUCE ? pl_node_row(f->g, node) : g->row;
    if (row == 0 || row > f->o->max_row || (t->row && t->row != row)) return false;
    pl_amap rows = pl_amap_rows(g->elems, row);
    t->row = row;
    return pl_amap_equal(map, &rows) && pl_grid_add(&t->grid, row);
}

static bool fits_operand(const pl_fuser *f, uint32_t id, uint32_t val, pl_amap map, fit *t)
{
    const pl_fgroup *g = &f->groups[id];
    pl_fuse_root(f, &val, &map);
    uint32_t node = pl_producer(f->g, val);
    if (pl_role_made(f->role[node])) return pl_fuse_add_made(f, &t->grid, val, &map);
    if (f->group[node] == id) return fits_member(f, g, node, &map, t);
    if (pl_role_inline(f->role[node]) && !f->single[node]) return false; /* has no memory */
    return f->number[val] < g->number && pl_grid_add_map(&t->grid, &map);
}

/* Returns the number of elements that a core node processes. */
static int64_t span_of(const pl_fuser *f, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    bool red = f->role[node] == PL_ROLE_REDUCE;
    return pl_type_elems(pl_type_of(f->g, red ? pl_node_in(f->g, node)[0] : r->out));
}

/* Returns the row that the group's reductions give a node of n elements; 0 if none. */
static int64_t row_for(const pl_fuser *f, const pl_fgroup *g, uint32_t node, int64_t n)
{
    if (g->row) return n * g->row == g->elems ? g->row : 0;
    const pl_node_rec *r = pl_node_get(f->g, node);
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t val = pl_node_in(f->g, node)[i];
        pl_amap m = pl_amap_identity(n);
        pl_fuse_root(f, &val, &m);
        uint32_t p = pl_producer(f->g, val);
        if (f->role[p] != PL_ROLE_REDUCE || f->group[p] == PL_NONE) continue;
        if (&f->groups[f->group[p]] != g) continue;
        int64_t row = pl_node_row(f->g, p);
        if (row && n * row == g->elems) return row;
    }
    return 0;
}

static bool fits(const pl_fuser *f, uint32_t id, uint32_t node, fit *t)
{
    const pl_fgroup *g = &f->groups[id];
    const pl_node_rec *r = pl_node_get(f->g, node);
    int64_t n = span_of(f, node);
    if (g->n_nodes >= f->o->max_nodes || g->n_loads + r->n_in > f->o->max_operands) return false;
    *t = (fit){g->grid, g->row, PL_STAND_FULL};
    pl_amap map = pl_amap_identity(g->elems);
    if (f->role[node] == PL_ROLE_REDUCE) {
        pl_reduction red;
        pl_node_reduction(f->g, node, &red);
        const pl_type *x = pl_type_of(f->g, pl_node_in(f->g, node)[0]);
        if (n != g->elems || !pl_grid_add_mask(&t->grid, x, red.axes)) return false;
        t->stand = PL_STAND_EDGE;
    } else if (n != g->elems) {
        t->row = row_for(f, g, node, n);
        if (!t->row || t->row > f->o->max_row) return false;
        t->stand = PL_STAND_ROW;
        map = pl_amap_rows(g->elems, t->row);
        if (!pl_grid_add(&t->grid, t->row)) return false;
    }
    for (uint32_t i = 0; i < r->n_in; i++)
        if (!fits_operand(f, id, pl_node_in(f->g, node)[i], map, t)) return false;
    return t->grid.n + (t->row == 1) <= PL_FUSED_RANK;
}

static void join(pl_fuser *f, uint32_t id, uint32_t node, const fit *t)
{
    pl_fgroup *g = &f->groups[id];
    const pl_node_rec *r = pl_node_get(f->g, node);
    g->grid = t->grid;
    g->row = t->row;
    if (g->n_nodes++)
        f->next[g->last] = node;
    else
        g->first = node;
    g->last = node;
    f->next[node] = PL_NONE;
    f->group[node] = id;
    f->stand[node] = (uint8_t)t->stand;
    for (uint32_t k = 0; k < r->n_out; k++) f->number[r->out + k] = g->number;
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t val = pl_node_in(f->g, node)[i];
        pl_amap map = pl_fuse_map(f, g, node);
        pl_fuse_root(f, &val, &map);
        uint32_t p = pl_producer(f->g, val);
        bool whole = pl_amap_is_identity(&map);
        if (f->role[p] != PL_ROLE_FILL && f->group[p] != id && !(whole && f->reader[val] == id))
            g->n_loads++;
        if (whole) f->reader[val] = id;
    }
}

static uint32_t new_group(pl_fuser *f, int64_t elems)
{
    pl_fgroup *g = &f->groups[f->n_groups];
    memset(g, 0, sizeof *g);
    g->number = ++f->count;
    g->extra = g->into = PL_NONE;
    g->elems = elems;
    g->grid = pl_grid_new(elems);
    return f->n_groups++;
}

/* ---- units that are not groups ---------------------------------------------------------- */

static void add_single(pl_fuser *f, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    f->singles[f->n_singles++] = (pl_fsingle){++f->count, node};
    f->single[node] = true;
    for (uint32_t k = 0; k < r->n_out; k++) f->number[r->out + k] = f->count;
}

/* Gives an inline value a buffer: a separate unit, after units for its inputs. */
static void give_buffer(pl_fuser *f, uint32_t val)
{
    /* The chain of inline nodes without memory, outermost last; then from the root on. */
    uint32_t depth = 0, v = val;
    while (pl_role_inline(f->role[pl_producer(f->g, v)]) && !f->single[pl_producer(f->g, v)]) {
        depth++;
        if (pl_role_made(f->role[pl_producer(f->g, v)])) break;
        v = pl_node_in(f->g, pl_producer(f->g, v))[0];
    }
    for (; depth > 0; depth--) {
        v = val;
        for (uint32_t i = 1; i < depth; i++) v = pl_node_in(f->g, pl_producer(f->g, v))[0];
        add_single(f, pl_producer(f->g, v));
    }
}

static void place_kernel(pl_fuser *f, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    for (uint32_t i = 0; i < r->n_in; i++) give_buffer(f, pl_node_in(f->g, node)[i]);
    if (f->role[node] == PL_ROLE_NONE) return; /* an effect */
    add_single(f, node);
    f->last_kernel = f->count;
}

/* ---- core nodes ------------------------------------------------------------------------- */

/* Places a core node in the newest group among the operands' roots, if it reads nothing newer;
 * otherwise in the newest group that reads one of them whole and that no kernel has followed. */
static void place_core(pl_fuser *f, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    uint32_t newest = 0, home = PL_NONE, beside = PL_NONE;
    fit t;
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t val = pl_node_in(f->g, node)[i];
        pl_amap map = pl_amap_identity(span_of(f, node));
        pl_fuse_root(f, &val, &map);
        uint32_t p = pl_producer(f->g, val), id = f->group[p];
        if (pl_role_inline(f->role[p]) && !pl_role_made(f->role[p])) give_buffer(f, val);
        if (f->number[val] > newest && !pl_role_made(f->role[p])) {
            newest = f->number[val];
            home = id;
        }
        uint32_t rd = f->reader[val];
        if (pl_amap_is_identity(&map) && rd != PL_NONE && f->groups[rd].number > f->last_kernel &&
            (beside == PL_NONE || f->groups[rd].number > f->groups[beside].number))
            beside = rd;
    }
    if (home != PL_NONE && fits(f, home, node, &t)) {
        join(f, home, node, &t);
        return;
    }
    if (beside != PL_NONE && beside != home && fits(f, beside, node, &t)) {
        join(f, beside, node, &t);
        return;
    }
    uint32_t id = new_group(f, span_of(f, node));
    if (!fits(f, id, node, &t)) { /* exceeds the limits of a group: a kernel instead */
        f->n_groups--;
        f->role[node] = PL_ROLE_KERNEL;
        place_kernel(f, node);
        return;
    }
    join(f, id, node, &t);
}

void pl_fuse_join(pl_fuser *f)
{
    for (uint32_t n = 1; n < f->g->n_nodes; n++) {
        if (!f->needed[n]) continue;
        if (pl_role_core(f->role[n]))
            place_core(f, n);
        else if (f->role[n] == PL_ROLE_KERNEL || pl_node_get(f->g, n)->op->flags & PL_OP_EFFECT)
            place_kernel(f, n);
        else if (pl_role_inline(f->role[n]) && !pl_role_made(f->role[n])) {
            uint32_t out = pl_node_get(f->g, n)->out;
            f->number[out] = f->number[pl_node_in(f->g, n)[0]];
        }
    }
}

/* ---- the pass --------------------------------------------------------------------------- */

static void find_roles(pl_fuser *f)
{
    const pl_graph *g = f->g;
    pl_graph_mark_needed(g, f->needed);
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!f->needed[n]) continue;
        f->role[n] = pl_role_of(g, n);
        if (pl_role_core(f->role[n]) && f->o->takes && !f->o->takes(g, n))
            f->role[n] = PL_ROLE_KERNEL;
        if (f->role[n] == PL_ROLE_DRAW && !f->o->draws) f->role[n] = PL_ROLE_KERNEL;
    }
}

static pl_status new_fuser(pl_fuser *f)
{
    size_t nodes = f->g->n_nodes, vals = f->g->n_vals;
    f->role = pl_arena_new(f->a, pl_role, nodes);
    f->needed = pl_arena_new(f->a, bool, nodes);
    f->number = pl_arena_new(f->a, uint32_t, vals);
    f->group = pl_arena_new(f->a, uint32_t, nodes);
    f->next = pl_arena_new(f->a, uint32_t, nodes);
    f->stand = pl_arena_new(f->a, uint8_t, nodes);
    f->small = pl_arena_new(f->a, pl_amap, nodes);
    f->kernel_use = pl_arena_new(f->a, uint32_t, vals);
    f->read = pl_arena_new(f->a, uint32_t, vals);
    f->reader = pl_arena_new(f->a, uint32_t, vals);
    f->single = pl_arena_new(f->a, bool, nodes);
    f->stamp = pl_arena_new(f->a, uint32_t, nodes);
    f->groups = pl_arena_new(f->a, pl_fgroup, 2 * nodes + 1);
    f->singles = pl_arena_new(f->a, pl_fsingle, nodes + 1);
    f->cap_extras = 8 * (uint32_t)nodes;
    f->extras = pl_arena_new(f->a, pl_fextra, f->cap_extras);
    f->cap_reads = 4 * f->g->n_edges + 8 * (uint32_t)nodes + 16;
    f->reads = pl_arena_new(f->a, pl_fread, f->cap_reads);
    if (!f->role || !f->needed || !f->number || !f->group || !f->next || !f->stand || !f->small ||
        !f->kernel_use || !f->read || !f->reader || !f->single || !f->stamp || !f->groups ||
        !f->singles || !f->extras || !f->reads)
        return PL_ERR_MEMORY;
    for (size_t i = 0; i < nodes; i++) f->group[i] = f->next[i] = PL_NONE;
    for (size_t i = 0; i < vals; i++) f->reader[i] = f->read[i] = PL_NONE;
    return PL_OK;
}

static pl_status run_stages(pl_fuser *f, pl_units *us)
{
    PL_TRY(new_fuser(f));
    find_roles(f);
    pl_fuse_join(f);
    PL_TRY(pl_fuse_merge(f));
    PL_TRY(pl_fuse_repeat(f));
    PL_TRY(pl_fuse_finish(f, us));
    if (f->o->product_bytes) PL_TRY(pl_fuse_products(f->g, f->o, us));
    return f->o->bits ? pl_fuse_bits(f, us) : PL_OK;
}

pl_status pl_fuse(const pl_graph *g, const pl_fuse_opts *o, pl_units **out)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_fuser f = {.g = g, .o = o, .a = &scratch};
    pl_units *us = pl_sys_alloc(sizeof *us);
    if (!us) return PL_ERR_MEMORY;
    pl_status rc = run_stages(&f, us);
    pl_arena_release(&scratch);
    if (rc != PL_OK) {
        pl_units_free(us);
        return rc;
    }
    *out = us;
    return PL_OK;
}
