/* fuse_repeat.c - recomputes a cheap value where it is read instead of storing it (M13 of
 * docs/MEMORY.md); see fuse.c.
 *
 * Idea: group A computes v, group B reads v later. B can compute v itself from A's operands: the
 * nodes between (the cone) become extra members of B. That pays when v then need not live until B,
 * and the operands that B reads instead either live that long anyway or take no more bytes. Such an
 * operand may be a value of A itself that is stored for others: a layer norm of a residual sum
 * stores the sum, not also its distance from the mean, which the gradient computes again.
 *
 * Invariant: reductions of A are not repeated; B reads their small results. Cost: a search of at
 * most max_repeat nodes (fuse.h) for each value that one group stores for another.
 */
#include "pass/fuse/fuse_int.h"

enum {
    CONE = 32,     /* nodes recomputed for one value: room; the device's limit is lower */
    SLACK = 16384, /* bytes that do not matter */
    SHARE = 64     /* nor does such a part of the bytes saved: means of rows of a layer norm */
};

typedef struct cone {
    uint32_t node[CONE], n;
    uint32_t leaf[4 * CONE], n_leaves;
    int64_t cost; /* bytes that live longer */
    int64_t more; /* bytes of operands that the reader does not read yet */
} cone;

static bool reads(const pl_fuser *f, uint32_t val, uint32_t group)
{
    for (uint32_t r = f->read[val]; r != PL_NONE; r = f->reads[r].next)
        if (!f->reads[r].gone && pl_fuse_now(f, f->reads[r].group) == group) return true;
    return false;
}

static bool in_cone(const cone *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->node[i] == node) return true;
    return false;
}

static bool is_extra(const pl_fuser *f, const pl_fgroup *g, uint32_t node)
{
    for (uint32_t e = g->extra; e != PL_NONE; e = f->extras[e].next)
        if (f->extras[e].node == node) return true;
    return false;
}

static bool add_leaf(const pl_fuser *f, uint32_t b, uint32_t val, cone *c)
{
    for (uint32_t i = 0; i < c->n_leaves; i++)
        if (c->leaf[i] == val) return true;
    if (c->n_leaves == 4 * CONE) return false;
    c->leaf[c->n_leaves++] = val;
    bool source = f->role[pl_producer(f->g, val)] == PL_ROLE_NONE;
    bool alive =
        source || reads(f, val, b) || pl_fuse_last_use(f, val, PL_NONE) >= f->groups[b].number;
    if (!alive) c->cost += pl_fuse_bytes(f, val);
    if (!reads(f, val, b)) c->more += pl_fuse_bytes(f, val);
    return true;
}

/* Whether the value of group a is stored for others until b, or for b: b can read it, too. */
static bool is_stored_until(const pl_fuser *f, uint32_t val, uint32_t b)
{
    return reads(f, val, b) || pl_fuse_last_use(f, val, b) >= f->groups[b].number;
}

/* Finds the nodes of group a between v and values that b can read. keep: values of a that are
 * stored for others end the cone, although they must live until b then. Such a value is not itself
 * looked at again, so this comes last. */
static bool find_cone(const pl_fuser *f, uint32_t a, uint32_t b, uint32_t node, bool keep, cone *c)
{
    uint32_t most = f->o->max_repeat < CONE ? f->o->max_repeat : CONE;
    *c = (cone){.node = {node}, .n = 1};
    for (uint32_t k = 0; k < c->n; k++) {
        const pl_node_rec *r = pl_node_get(f->g, c->node[k]);
        for (uint32_t i = 0; i < r->n_in; i++) {
            uint32_t val = pl_node_in(f->g, c->node[k])[i];
            pl_amap map = pl_amap_identity(f->groups[a].elems);
            pl_fuse_root(f, &val, &map);
            uint32_t p = pl_producer(f->g, val);
            if (pl_role_made(f->role[p]) || in_cone(c, p)) continue;
            if (is_extra(f, &f->groups[b], p)) continue;
            if (f->group[p] == a && f->stand[p] == PL_STAND_SMALL) return false;
            bool full = f->group[p] == a && f->stand[p] == PL_STAND_FULL;
            bool kept = keep && full && pl_fuse_last_use(f, val, b);
            if (full && !kept && !is_stored_until(f, val, b)) {
                if (c->n >= most) return false;
                c->node[c->n++] = p;
            } else if (!add_leaf(f, b, val, c))
                return false;
        }
    }
    return true;
}

static void drop_read(pl_fuser *f, uint32_t val, uint32_t group)
{
    for (uint32_t r = f->read[val]; r != PL_NONE; r = f->reads[r].next)
        if (pl_fuse_now(f, f->reads[r].group) == group) f->reads[r].gone = true;
}

/* Adds the cone to b; *ok says whether b can still be described (ir/group/fused.h), otherwise
 * nothing changes. */
static pl_status adopt(pl_fuser *f, uint32_t b, uint32_t val, const cone *c, bool *ok)
{
    pl_fgroup *g = &f->groups[b];
    pl_fgroup was = *g;
    uint32_t n_extras = f->n_extras;
    *ok = f->n_extras + c->n <= f->cap_extras && g->n_nodes + c->n <= f->o->max_nodes;
    if (!*ok) return PL_OK;
    for (uint32_t i = 0; i < c->n; i++) {
        f->extras[f->n_extras] = (pl_fextra){c->node[i], g->extra};
        g->extra = f->n_extras++;
        g->n_nodes++;
    }
    PL_TRY(pl_fuse_valid(f, b, ok));
    for (uint32_t i = 0; *ok && i < c->n_leaves; i++) *ok = pl_fuse_add_read(f, c->leaf[i], b);
    if (*ok)
        drop_read(f, val, b);
    else {
        *g = was;
        f->n_extras = n_extras;
    }
    return PL_OK;
}

static pl_status repeat_value(pl_fuser *f, uint32_t b, uint32_t val, bool keep)
{
    uint32_t node = pl_producer(f->g, val), a = f->group[node];
    cone c;
    if (a == PL_NONE || a == b || f->groups[a].split || f->role[node] != PL_ROLE_MAP) return PL_OK;
    if (f->stand[node] != PL_STAND_FULL || f->groups[a].elems != f->groups[b].elems) return PL_OK;
    if (is_extra(f, &f->groups[b], node)) return PL_OK;
    uint32_t others = pl_fuse_last_use(f, val, b);
    if (others >= f->groups[b].number) return PL_OK;
    int64_t gain = pl_fuse_bytes(f, val), slack = gain / SHARE > SLACK ? gain / SHARE : SLACK;
    if (!find_cone(f, a, b, node, keep, &c)) return PL_OK;
    /* If the value is stored for others anyway, only its lifetime gets shorter. */
    bool ok = others ? c.cost < gain : c.cost <= gain + slack;
    return ok && (!keep || c.more <= gain + slack) ? adopt(f, b, val, &c, &ok) : PL_OK;
}

/* A value that only widens another is never worth storing: every group that reads it can read the
 * narrow value. */
static bool widens(const pl_fuser *f, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    return r->op->scalar == PL_SCALAR_CAST && f->group[node] != PL_NONE &&
           f->stand[node] == PL_STAND_FULL && !f->groups[f->group[node]].split &&
           pl_fuse_bytes(f, pl_node_in(f->g, node)[0]) < pl_fuse_bytes(f, r->out);
}

static pl_status repeat_widening(pl_fuser *f)
{
    for (uint32_t n = 1; n < f->g->n_nodes; n++) {
        if (!f->needed[n] || !widens(f, n)) continue;
        uint32_t val = pl_node_get(f->g, n)->out, a = f->group[n], from = pl_node_in(f->g, n)[0];
        pl_amap map = pl_amap_identity(f->groups[a].elems);
        pl_fuse_root(f, &from, &map);
        if (f->role[pl_producer(f->g, from)] == PL_ROLE_FILL) continue;
        cone c = {.node = {n}, .n = 1, .leaf = {from}, .n_leaves = 1};
        for (uint32_t r = f->read[val]; r != PL_NONE; r = f->reads[r].next) {
            uint32_t b = pl_fuse_now(f, f->reads[r].group);
            bool ok, fits = b != a && !f->groups[b].split &&
                            f->groups[a].elems == f->groups[b].elems &&
                            !is_extra(f, &f->groups[b], n);
            if (fits && !f->reads[r].gone) PL_TRY(adopt(f, b, val, &c, &ok));
        }
    }
    return PL_OK;
}

static pl_status repeat_operands(pl_fuser *f, uint32_t b, uint32_t node, bool keep)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t val = pl_node_in(f->g, node)[i];
        pl_amap map = pl_fuse_map(f, &f->groups[b], node);
        pl_fuse_root(f, &val, &map);
        if (pl_amap_is_identity(&map)) PL_TRY(repeat_value(f, b, val, keep));
    }
    return PL_OK;
}

static pl_status repeat_cheap(pl_fuser *f, bool keep)
{
    for (uint32_t b = 0; b < f->n_groups; b++) {
        if (f->groups[b].into != PL_NONE || f->groups[b].split) continue;
        for (uint32_t n = f->groups[b].first; n != PL_NONE; n = f->next[n])
            PL_TRY(repeat_operands(f, b, n, keep));
        for (uint32_t e = f->groups[b].extra; e != PL_NONE; e = f->extras[e].next)
            PL_TRY(repeat_operands(f, b, f->extras[e].node, keep));
    }
    return PL_OK;
}

/* Repeated nodes read values that may be worth repeating, too. */
pl_status pl_fuse_repeat(pl_fuser *f)
{
    enum { SWEEPS = 4 };
    uint32_t before;
    int sweeps = 0;
    do {
        before = f->n_extras;
        PL_TRY(repeat_widening(f));
        PL_TRY(repeat_cheap(f, false));
    } while (f->n_extras > before && ++sweeps < SWEEPS);
    return repeat_cheap(f, true);
}
