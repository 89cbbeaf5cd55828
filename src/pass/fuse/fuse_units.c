/* fuse_units.c - writes the partition as units: drops members that no effect needs, lists the
 * values that each unit reads and writes, and orders units by number.
 */
#include "pass/fuse/fuse_int.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Lists the core members of a group, extras included, in node order. Requires room for n_nodes. */
static uint32_t list_members(const pl_fuser *f, const pl_fgroup *g, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = g->first; i != PL_NONE; i = f->next[i]) out[n++] = i;
    for (uint32_t e = g->extra; e != PL_NONE; e = f->extras[e].next) out[n++] = f->extras[e].node;
    qsort(out, n, sizeof *out, by_id);
    return n;
}

/* ---- one unit --------------------------------------------------------------------------- */

/* Growing lists of a unit's nodes and inputs. */
typedef struct lists {
    uint32_t *nodes, n_nodes, cap_nodes;
    uint32_t *in, n_in, cap_in;
} lists;

static pl_status push(pl_arena *a, uint32_t **list, uint32_t *n, uint32_t *cap, uint32_t x)
{
    if (*n == *cap) {
        uint32_t more = *cap ? 2 * *cap : 16;
        uint32_t *grown = pl_arena_new(a, uint32_t, more);
        if (!grown) return PL_ERR_MEMORY;
        if (*n) memcpy(grown, *list, sizeof(uint32_t) * *n);
        *list = grown;
        *cap = more;
    }
    (*list)[(*n)++] = x;
    return PL_OK;
}

static pl_status add_node(pl_fuser *f, lists *l, pl_arena *a, uint32_t node)
{
    if (f->stamp[node] == f->stamps) return PL_OK;
    f->stamp[node] = f->stamps;
    return push(a, &l->nodes, &l->n_nodes, &l->cap_nodes, node);
}

static pl_status add_input(lists *l, pl_arena *a, uint32_t val)
{
    for (uint32_t i = 0; i < l->n_in; i++)
        if (l->in[i] == val) return PL_OK;
    return push(a, &l->in, &l->n_in, &l->cap_in, val);
}

/* Adds the inline nodes of a reading, and its root. */
static pl_status add_reading(pl_fuser *f, lists *l, pl_arena *a, uint32_t val, pl_amap map)
{
    uint32_t root = val;
    pl_fuse_root(f, &root, &map);
    while (val != root) {
        uint32_t node = pl_producer(f->g, val);
        PL_TRY(add_node(f, l, a, node));
        val = pl_node_in(f->g, node)[0];
    }
    uint32_t p = pl_producer(f->g, root);
    if (f->role[p] == PL_ROLE_DRAW) PL_TRY(add_input(l, a, pl_node_in(f->g, p)[0]));
    if (pl_role_made(f->role[p])) return add_node(f, l, a, p);
    if (f->stamp[p] == f->stamps) return PL_OK; /* a member */
    return add_input(l, a, root);
}

/* Makes the unit of these core nodes of a group, in `a`. Its outputs are the values of the group's
 * own nodes that `wanted` marks (NULL: all that can be stored). */
static pl_status make_unit(pl_fuser *f, uint32_t id, const uint32_t *nodes, uint32_t n,
                           const bool *wanted, pl_arena *a, pl_unit *u)
{
    const pl_fgroup *g = &f->groups[id];
    lists l = {0};
    uint32_t cap_out = 0;
    memset(u, 0, sizeof *u);
    u->kind = PL_UNIT_GROUP;
    f->stamps++;
    for (uint32_t i = 0; i < n; i++) PL_TRY(add_node(f, &l, a, nodes[i]));
    for (uint32_t i = 0; i < n; i++) {
        const pl_node_rec *r = pl_node_get(f->g, nodes[i]);
        for (uint32_t j = 0; j < r->n_in; j++)
            PL_TRY(
                add_reading(f, &l, a, pl_node_in(f->g, nodes[i])[j], pl_fuse_map(f, g, nodes[i])));
        if (f->group[nodes[i]] != id || f->stand[nodes[i]] == PL_STAND_SMALL) continue;
        for (uint32_t v = r->out; v < r->out + r->n_out; v++)
            if (!wanted || wanted[v]) PL_TRY(push(a, &u->out, &u->n_out, &cap_out, v));
    }
    qsort(l.nodes, l.n_nodes, sizeof *l.nodes, by_id);
    u->nodes = l.nodes;
    u->n_nodes = l.n_nodes;
    u->in = l.in;
    u->n_in = l.n_in;
    return PL_OK;
}

pl_status pl_fuse_valid(pl_fuser *f, uint32_t id, bool *ok)
{
    pl_arena a = PL_ARENA_INIT;
    const pl_fgroup *g = &f->groups[id];
    uint32_t *nodes = pl_arena_new(&a, uint32_t, g->n_nodes + 1);
    pl_unit u;
    pl_fused fused;
    pl_status rc = nodes ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = make_unit(f, id, nodes, list_members(f, g, nodes), NULL, &a, &u);
    if (rc == PL_OK) rc = pl_fused_make(f->g, &u, &a, &fused);
    *ok = rc == PL_OK && (uint32_t)fused.n_in <= f->o->max_operands &&
          (uint32_t)fused.n_instr <= f->o->max_instrs &&
          (uint32_t)fused.n_out <= 2 * f->o->max_nodes;
    pl_arena_release(&a);
    return rc == PL_ERR_UNSUPPORTED ? PL_OK : rc;
}

/* ---- all units -------------------------------------------------------------------------- */

/* A future unit: a single node (id PL_NONE) or a group. */
typedef struct entry {
    uint32_t number, node, id;
    uint32_t *nodes, n;
} entry;

static int by_number(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static pl_status list_entries(pl_fuser *f, entry **out, uint32_t *n)
{
    entry *e = *out = pl_arena_new(f->a, entry, (size_t)f->n_singles + f->n_groups + 1);
    if (!e) return PL_ERR_MEMORY;
    *n = 0;
    for (uint32_t i = 0; i < f->n_singles; i++)
        e[(*n)++] = (entry){f->singles[i].number, f->singles[i].node, PL_NONE, NULL, 0};
    for (uint32_t id = 0; id < f->n_groups; id++) {
        const pl_fgroup *g = &f->groups[id];
        if (g->into != PL_NONE) continue;
        uint32_t *nodes = pl_arena_new(f->a, uint32_t, g->n_nodes + 1);
        if (!nodes) return PL_ERR_MEMORY;
        uint32_t count = list_members(f, g, nodes);
        e[(*n)++] = (entry){g->number, nodes[0], id, nodes, count};
    }
    qsort(e, *n, sizeof *e, by_number);
    return PL_OK;
}

/* Marks the values that the entry reads from outside as needed, and drops unused members: a member
 * is needed when a result is wanted, or a needed member of the same entry reads it. */
static void prune(pl_fuser *f, entry *e, bool *wanted)
{
    uint32_t stamp = ++f->stamps, kept = e->n;
    uint32_t used = ++f->stamps; /* stamp: member; used: member that a needed member reads */
    for (uint32_t i = 0; i < e->n; i++) f->stamp[e->nodes[i]] = stamp;
    for (uint32_t i = e->n; i-- > 0;) {
        uint32_t node = e->nodes[i];
        const pl_node_rec *r = pl_node_get(f->g, node);
        bool need = f->stamp[node] == used;
        for (uint32_t v = r->out; v < r->out + r->n_out; v++)
            need |= wanted[v] && f->group[node] == e->id;
        if (!need) continue;
        e->nodes[--kept] = node; /* needed members gather at the end, in order */
        for (uint32_t j = 0; j < r->n_in; j++) {
            uint32_t val = pl_node_in(f->g, node)[j];
            pl_amap map = pl_fuse_map(f, &f->groups[e->id], node);
            pl_fuse_root(f, &val, &map);
            uint32_t p = pl_producer(f->g, val);
            if (f->stamp[p] == stamp || f->stamp[p] == used)
                f->stamp[p] = used;
            else
                wanted[val] = true;
        }
    }
    e->nodes += kept;
    e->n -= kept;
}

static pl_status write_single(pl_fuser *f, uint32_t node, pl_units *us)
{
    const pl_node_rec *r = pl_node_get(f->g, node);
    pl_unit *u = &us->unit[us->n];
    lists l = {0};
    u->nodes = pl_arena_new(&us->arena, uint32_t, 1);
    u->out = pl_arena_new(&us->arena, uint32_t, r->n_out);
    if (!u->nodes || !u->out) return PL_ERR_MEMORY;
    u->nodes[u->n_nodes++] = node;
    for (uint32_t k = 0; k < r->n_out; k++) u->out[u->n_out++] = r->out + k;
    for (uint32_t i = 0; i < r->n_in; i++)
        PL_TRY(add_input(&l, &us->arena, pl_node_in(f->g, node)[i]));
    u->in = l.in;
    u->n_in = l.n_in;
    if (f->role[node] == PL_ROLE_FILL) u->kind = PL_UNIT_GROUP;
    if (r->op->flags & PL_OP_VIEW) {
        pl_type in[1], out[PL_MAX_OUT];
        pl_call c;
        pl_node_call(f->g, node, in, out, &c);
        if (r->op->view(&c, &u->view_offset)) u->kind = PL_UNIT_VIEW;
    }
    return PL_OK;
}

static pl_status write_units(pl_fuser *f, entry *e, uint32_t n, const bool *wanted, pl_units *us)
{
    us->unit = pl_arena_new(&us->arena, pl_unit, n + 1);
    us->unit_of = pl_arena_new(&us->arena, uint32_t, f->g->n_vals);
    if (!us->unit || !us->unit_of) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        pl_unit *u = &us->unit[us->n];
        if (e[i].id == PL_NONE)
            PL_TRY(write_single(f, e[i].node, us));
        else if (e[i].n == 0)
            continue;
        else
            PL_TRY(make_unit(f, e[i].id, e[i].nodes, e[i].n, wanted, &us->arena, u));
        us->n++;
        for (uint32_t k = 0; k < u->n_out; k++) us->unit_of[u->out[k]] = us->n;
    }
    return PL_OK;
}

pl_status pl_fuse_finish(pl_fuser *f, pl_units *out)
{
    bool *wanted = pl_arena_new(f->a, bool, f->g->n_vals);
    entry *e;
    uint32_t n;
    if (!wanted) return PL_ERR_MEMORY;
    PL_TRY(list_entries(f, &e, &n));
    for (uint32_t i = 1; i < f->g->n_nodes; i++)
        for (uint32_t j = 0; j < f->g->nodes[i].n_in && f->needed[i]; j++)
            if (f->g->nodes[i].op->flags & PL_OP_EFFECT) wanted[pl_node_in(f->g, i)[j]] = true;
    for (uint32_t i = n; i-- > 0;) {
        if (e[i].id != PL_NONE) {
            prune(f, &e[i], wanted);
            continue;
        }
        const pl_node_rec *r = pl_node_get(f->g, e[i].node);
        for (uint32_t j = 0; j < r->n_in; j++) wanted[pl_node_in(f->g, e[i].node)[j]] = true;
    }
    return write_units(f, e, n, wanted, out);
}
