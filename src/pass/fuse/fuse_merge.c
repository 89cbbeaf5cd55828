/* fuse_merge.c - moves a group into the only group that reads its results; see fuse.c.
 *
 * Idea: the first group then runs where the second one does. Its operands live longer, its results
 * need no buffer; the merge is made when that does not cost bytes.
 *
 * Invariant: a merge keeps units a DAG, because everything that the first group reads has lower
 * numbers and no other unit reads its results.
 *
 * A group over a smaller space may move into a larger group that reads it through one broadcast:
 * its values are then computed where they are read (once per tile in the CPU's tile interpreter).
 * Example: 1/sqrt(var + eps), 64 values, moves into the group that scales 281600 rows by it.
 */
#include "pass/fuse/fuse_int.h"

enum {
    BROADCAST = 4, /* a small group must be read at least this many times over, */
    SMALL = 2048,  /* and be small enough for a tile: then it is computed once */
    SLACK = 16384  /* bytes that do not matter */
};

/* ---- who reads what --------------------------------------------------------------------- */

bool pl_fuse_add_read(pl_fuser *f, uint32_t val, uint32_t group)
{
    for (uint32_t r = f->read[val]; r != PL_NONE; r = f->reads[r].next)
        if (!f->reads[r].gone && f->reads[r].group == group) return true;
    if (f->n_reads == f->cap_reads) return false;
    f->reads[f->n_reads] = (pl_fread){group, f->read[val], false};
    f->read[val] = f->n_reads++;
    return true;
}

uint32_t pl_fuse_now(const pl_fuser *f, uint32_t id)
{
    while (f->groups[id].into != PL_NONE) id = f->groups[id].into;
    return id;
}

uint32_t pl_fuse_last_use(const pl_fuser *f, uint32_t val, uint32_t except)
{
    uint32_t last = f->kernel_use[val];
    for (uint32_t r = f->read[val]; r != PL_NONE; r = f->reads[r].next) {
        uint32_t id = pl_fuse_now(f, f->reads[r].group);
        if (!f->reads[r].gone && id != except && f->groups[id].number > last)
            last = f->groups[id].number;
    }
    return last;
}

static void note_kernel(pl_fuser *f, uint32_t node, uint32_t number)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t v = pl_node_in(f->g, node)[i];
        if (f->kernel_use[v] < number) f->kernel_use[v] = number;
    }
}

static void note_group(pl_fuser *f, uint32_t id)
{
    for (uint32_t n = f->groups[id].first; n != PL_NONE; n = f->next[n]) {
        const pl_node_rec *r = pl_node_get(f->g, n);
        for (uint32_t i = 0; i < r->n_in; i++) {
            uint32_t val = pl_node_in(f->g, n)[i];
            pl_amap map = pl_fuse_map(f, &f->groups[id], n);
            pl_fuse_root(f, &val, &map);
            uint32_t p = pl_producer(f->g, val);
            if (pl_role_made(f->role[p]) || f->group[p] == id) continue;
            if (!pl_fuse_add_read(f, val, id)) PL_BUG("more reads than edges");
        }
    }
}

static void note_reads(pl_fuser *f)
{
    for (uint32_t i = 0; i < f->n_singles; i++)
        note_kernel(f, f->singles[i].node, f->singles[i].number);
    for (uint32_t n = 1; n < f->g->n_nodes; n++)
        if (pl_node_get(f->g, n)->op->flags & PL_OP_EFFECT) note_kernel(f, n, f->count + 1);
    for (uint32_t id = 0; id < f->n_groups; id++) note_group(f, id);
}

/* ---- merging ---------------------------------------------------------------------------- */

/* Returns the only group that reads all of A's results; PL_NONE if there is none. */
static uint32_t only_reader(const pl_fuser *f, uint32_t id)
{
    uint32_t sole = PL_NONE;
    for (uint32_t n = f->groups[id].first; n != PL_NONE; n = f->next[n]) {
        const pl_node_rec *r = pl_node_get(f->g, n);
        for (uint32_t v = r->out; v < r->out + r->n_out; v++) {
            if (f->kernel_use[v]) return PL_NONE;
            for (uint32_t e = f->read[v]; e != PL_NONE; e = f->reads[e].next) {
                uint32_t c = pl_fuse_now(f, f->reads[e].group);
                if (c == id) continue;
                if (sole != PL_NONE && sole != c) return PL_NONE;
                sole = c;
            }
        }
    }
    return sole;
}

typedef struct merger {
    pl_fuser *f;
    uint32_t from, to;
    pl_grid grid;
    int64_t row;
    bool small, asked; /* small: the larger space reads through `map`; asked: `map` is known */
    pl_amap map;
    int64_t saved; /* bytes of results that no longer need memory */
} merger;

/* Checks one reading of a result of the smaller group. */
static bool meets(merger *m, uint32_t val, const pl_amap *map)
{
    pl_fuser *f = m->f;
    uint32_t node = pl_producer(f->g, val);
    m->saved += pl_fuse_bytes(f, val);
    if (m->small) {
        if (m->asked) return pl_amap_equal(map, &m->map);
        m->asked = true;
        m->map = *map;
        return pl_grid_add_map(&m->grid, map);
    }
    if (f->stand[node] == PL_STAND_FULL) return pl_amap_is_identity(map);
    if (f->stand[node] == PL_STAND_SMALL) return false;
    int64_t elems = f->groups[m->to].elems;
    int64_t row =
        f->role[node] == PL_ROLE_REDUCE ? pl_node_row(f->g, node) : f->groups[m->from].row;
    if (row == 0 || row > f->o->max_row || (m->row && m->row != row)) return false;
    m->row = row;
    pl_amap rows = pl_amap_rows(elems, row);
    return pl_amap_equal(map, &rows) && pl_grid_add(&m->grid, row);
}

static bool readings_meet(merger *m)
{
    pl_fuser *f = m->f;
    for (uint32_t n = f->groups[m->to].first; n != PL_NONE; n = f->next[n]) {
        const pl_node_rec *r = pl_node_get(f->g, n);
        for (uint32_t i = 0; i < r->n_in; i++) {
            uint32_t val = pl_node_in(f->g, n)[i];
            pl_amap map = pl_fuse_map(f, &f->groups[m->to], n);
            pl_fuse_root(f, &val, &map);
            if (f->group[pl_producer(f->g, val)] == m->from && !meets(m, val, &map)) return false;
        }
    }
    return true;
}

/* What the moved nodes read, through the new maps, must fit, and must not keep more bytes alive
 * than the merge saves. */
static bool operands_fit(merger *m)
{
    pl_fuser *f = m->f;
    const pl_fgroup *a = &f->groups[m->from], *b = &f->groups[m->to];
    int64_t kept = 0;
    uint32_t stamp = ++f->stamps;
    for (uint32_t n = a->first; n != PL_NONE; n = f->next[n]) {
        const pl_node_rec *r = pl_node_get(f->g, n);
        for (uint32_t i = 0; i < r->n_in; i++) {
            uint32_t val = pl_node_in(f->g, n)[i];
            pl_amap map = m->small ? m->map : pl_fuse_map(f, a, n);
            pl_fuse_root(f, &val, &map);
            uint32_t p = pl_producer(f->g, val);
            if (pl_role_made(f->role[p])) {
                if (!pl_fuse_add_made(f, &m->grid, val, &map)) return false;
                continue;
            }
            if (f->group[p] == m->from) continue;
            if (pl_role_inline(f->role[p]) && !f->single[p]) return false;
            if (!pl_grid_add_map(&m->grid, &map)) return false;
            bool source = f->role[p] == PL_ROLE_NONE;
            if (!source && f->stamp[p] != stamp && pl_fuse_last_use(f, val, m->from) < b->number)
                kept += pl_fuse_bytes(f, val);
            f->stamp[p] = stamp;
        }
    }
    return kept <= m->saved + SLACK;
}

static bool all_full_maps(const pl_fuser *f, const pl_fgroup *g)
{
    for (uint32_t n = g->first; n != PL_NONE; n = f->next[n])
        if (f->role[n] != PL_ROLE_MAP || f->stand[n] != PL_STAND_FULL) return false;
    return true;
}

static bool can_merge(merger *m)
{
    const pl_fgroup *a = &m->f->groups[m->from], *b = &m->f->groups[m->to];
    if (a->n_nodes + b->n_nodes > m->f->o->max_nodes ||
        a->n_loads + b->n_loads > m->f->o->max_operands)
        return false;
    m->grid = b->grid;
    m->row = b->row;
    m->small = a->elems != b->elems;
    if (m->small) {
        if (a->elems > SMALL || a->elems * BROADCAST > b->elems || !all_full_maps(m->f, a))
            return false;
    } else {
        for (int i = 0; i < a->grid.n; i++)
            if (!pl_grid_add(&m->grid, a->grid.end[i])) return false;
        if (a->row && m->row && a->row != m->row) return false;
        if (a->row) m->row = a->row;
    }
    return readings_meet(m) && operands_fit(m) && m->grid.n + (m->row == 1) <= PL_FUSED_RANK;
}

static void do_merge(merger *m)
{
    pl_fuser *f = m->f;
    pl_fgroup *a = &f->groups[m->from], *b = &f->groups[m->to];
    for (uint32_t n = a->first; n != PL_NONE; n = f->next[n]) {
        const pl_node_rec *r = pl_node_get(f->g, n);
        f->group[n] = m->to;
        for (uint32_t k = 0; k < r->n_out; k++) f->number[r->out + k] = b->number;
        if (!m->small) continue;
        f->stand[n] = PL_STAND_SMALL;
        f->small[n] = m->map;
    }
    f->next[b->last] = a->first;
    b->last = a->last;
    b->n_nodes += a->n_nodes;
    b->n_loads += a->n_loads;
    b->grid = m->grid;
    b->row = m->row;
    a->into = m->to;
    a->first = PL_NONE;
}

/* Splits a group that cannot be described (ir/group/fused.h) into groups of one node with the same
 * number: units of one number run in node order. */
static void split(pl_fuser *f, uint32_t id)
{
    uint32_t number = f->groups[id].number, first = f->n_groups;
    for (uint32_t n = f->groups[id].first, next; n != PL_NONE; n = next) {
        next = f->next[n];
        const pl_node_rec *r = pl_node_get(f->g, n);
        bool red = f->role[n] == PL_ROLE_REDUCE;
        int64_t elems = pl_type_elems(pl_type_of(f->g, red ? pl_node_in(f->g, n)[0] : r->out));
        pl_fgroup *g = &f->groups[f->n_groups];
        *g = (pl_fgroup){.number = number,
                         .n_nodes = 1,
                         .first = n,
                         .last = n,
                         .extra = PL_NONE,
                         .elems = elems,
                         .grid = pl_grid_new(elems),
                         .into = PL_NONE,
                         .split = true};
        f->next[n] = PL_NONE;
        f->stand[n] = red ? PL_STAND_EDGE : PL_STAND_FULL;
        f->group[n] = f->n_groups++;
    }
    f->groups[id].first = PL_NONE;
    f->groups[id].into = f->n_groups - 1; /* for its old reads: only the number matters */
    for (uint32_t k = first; k < f->n_groups; k++) note_group(f, k);
}

pl_status pl_fuse_merge(pl_fuser *f)
{
    note_reads(f);
    for (uint32_t id = f->n_groups; id-- > 0;) {
        merger m = {.f = f, .from = id, .to = only_reader(f, id)};
        if (m.to != PL_NONE && can_merge(&m)) do_merge(&m);
    }
    uint32_t n = f->n_groups;
    for (uint32_t id = 0; id < n; id++) {
        bool ok = true;
        if (f->groups[id].n_nodes > 1 && f->groups[id].into == PL_NONE)
            PL_TRY(pl_fuse_valid(f, id, &ok));
        if (!ok) split(f, id);
    }
    return PL_OK;
}
