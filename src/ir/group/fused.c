/* fused.c - describes a fused group; see fused.h.
 *
 * Idea: two walks over the group's nodes. Backwards, each core node requests its operands through
 * its own map (amap.h). A reading is followed through inline nodes to a core node, which gets its
 * map from it, or to a value from outside. All maps go into one grid, whose dims become the space.
 * Forwards, the instructions are written.
 *
 * Invariant: each value has one map in the group. If a value is read through two different maps,
 * the nodes cannot be a group (ERR_UNSUPPORTED), and pass/fuse does not form such a group.
 *
 * Cost: linear in nodes and edges; repeated loads and draws are found by a scan of the
 * instructions, of which there are at most some hundred.
 */
#include "ir/group/fused.h"

#include "base/err.h"

#include <string.h>

/* ---- contents of the unit --------------------------------------------------------------- */

typedef struct member {
    uint32_t node;
    pl_role role;
    bool mapped, inside; /* map is known; a result is used in the group */
    int64_t row;         /* REDUCE: elements of a row, 0: not over rows */
    pl_amap map;         /* of its outputs (a REDUCE reads the whole space) */
    int32_t instr;
} member;

typedef struct maker {
    const pl_graph *g;
    const pl_unit *u;
    pl_fused *f;
    member *m;
    uint32_t *table, cap; /* hash of node ids: 1 + member */
    pl_amap *maps;        /* per operand of the group */
    pl_grid grid;
    int64_t elems, row;
} maker;

static uint32_t *slot_of(const maker *k, uint32_t node)
{
    uint32_t i = (node * 2654435761u) & (k->cap - 1);
    while (k->table[i] && k->m[k->table[i] - 1].node != node) i = (i + 1) & (k->cap - 1);
    return &k->table[i];
}

static member *member_of(const maker *k, uint32_t val)
{
    uint32_t s = *slot_of(k, pl_producer(k->g, val));
    return s ? &k->m[s - 1] : NULL;
}

/* Follows a reading through inline members to a constant, a core member or a value from
 * outside. */
static bool follow(const maker *k, uint32_t *val, pl_amap *map)
{
    for (;;) {
        const member *m = member_of(k, *val);
        if (!m || !pl_role_inline(m->role) || pl_role_made(m->role)) return true;
        if (m->role == PL_ROLE_AFFINE) {
            const pl_type *t = pl_type_of(k->g, *val);
            pl_affine a;
            pl_amap next;
            pl_node_affine(k->g, m->node, &a);
            if (!pl_amap_through(map, t->rank, t->dim, &a, &next)) return false;
            *map = next;
        }
        *val = pl_node_in(k->g, m->node)[0];
    }
}

static void ramp_of(const maker *k, const member *m, pl_ramp *out)
{
    pl_type type[PL_MAX_OUT];
    pl_call c;
    pl_node_call(k->g, m->node, NULL, type, &c);
    pl_node_get(k->g, m->node)->op->ramp(&c, out);
}

/* Makes the map from the space to the coordinate along axis d of val. */
static bool coordinate(const maker *k, uint32_t val, const pl_amap *map, int d, pl_amap *out)
{
    const pl_type *t = pl_type_of(k->g, val);
    pl_affine a;
    memset(&a, 0, sizeof a);
    a.stride[d] = 1;
    return pl_amap_through(map, t->rank, t->dim, &a, out);
}

/* ---- backwards: maps -------------------------------------------------------------------- */

static bool ask_fill(maker *k, const member *m, uint32_t val, const pl_amap *map)
{
    pl_ramp r;
    ramp_of(k, m, &r);
    const pl_type *t = pl_type_of(k->g, val);
    for (int d = 0; d < t->rank; d++) {
        pl_amap c;
        if (r.step[d] == 0.0 || t->dim[d] == 1) continue;
        if (!coordinate(k, val, map, d, &c) || !pl_grid_add_map(&k->grid, &c)) return false;
    }
    return true;
}

static bool ask(maker *k, uint32_t val, pl_amap map)
{
    if (!follow(k, &val, &map)) return false;
    member *m = member_of(k, val);
    if (m && m->role == PL_ROLE_FILL) return ask_fill(k, m, val, &map);
    if (!pl_grid_add_map(&k->grid, &map)) return false;
    if (!m || m->role == PL_ROLE_DRAW) return true;
    m->inside = true;
    if (m->mapped) return pl_amap_equal(&m->map, &map);
    m->map = map;
    m->mapped = true;
    return true;
}

/* Returns the node's own outermost dim, if the next is reduced with it: it follows from shapes, and
 * no other member of a group changes it. */
static int64_t lead_of(const pl_type *t, uint32_t axes)
{
    int64_t lead = 0;
    for (int d = 0; d < t->rank; d++) {
        if (t->dim[d] == 1) continue;
        if (!(axes >> d & 1u)) return 0;
        if (lead) return lead;
        lead = t->dim[d];
    }
    return 0;
}

/* Whether the grid can be split where `lead` ends. */
static bool can_cut(const maker *k, const member *m)
{
    pl_reduction red;
    pl_grid grid = k->grid;
    if (m->role != PL_ROLE_REDUCE || m->inside) return true;
    pl_node_reduction(k->g, m->node, &red);
    int64_t lead = lead_of(pl_type_of(k->g, pl_node_in(k->g, m->node)[0]), red.axes);
    return !lead || !k->elems || pl_grid_add(&grid, k->elems / lead);
}

/* Maps of core members, consumers before producers. */
static bool find_maps(maker *k)
{
    for (uint32_t i = k->u->n_nodes; i-- > 0;) {
        member *m = &k->m[i];
        if (!pl_role_core(m->role)) continue;
        const pl_node_rec *r = pl_node_get(k->g, m->node);
        int64_t n = pl_type_elems(pl_type_of(k->g, r->out));
        pl_amap map = pl_amap_identity(k->elems);
        if (m->role == PL_ROLE_REDUCE) {
            pl_reduction red;
            pl_node_reduction(k->g, m->node, &red);
            const pl_type *t = pl_type_of(k->g, pl_node_in(k->g, m->node)[0]);
            if (pl_type_elems(t) != k->elems || !pl_grid_add_mask(&k->grid, t, red.axes))
                return false;
            if (m->inside) {
                pl_amap rows = pl_amap_rows(k->elems, m->row ? m->row : 1);
                if (!m->row || m->row != k->row || !pl_amap_equal(&rows, &m->map)) return false;
            }
        } else {
            if (n != k->elems && !m->mapped) {
                if (!k->row || n * k->row != k->elems) return false;
                m->map = pl_amap_rows(k->elems, k->row);
                m->mapped = true;
            }
            if (n == k->elems) {
                if (m->mapped && !pl_amap_is_identity(&m->map)) return false;
                m->map = map;
                m->mapped = true;
            }
            map = m->map;
        }
        for (uint32_t j = 0; j < r->n_in; j++)
            if (!ask(k, pl_node_in(k->g, m->node)[j], map)) return false;
    }
    return true;
}

/* ---- forwards: instructions ------------------------------------------------------------- */

static pl_fused_instr *emit(maker *k, pl_fused_code code, pl_dtype d)
{
    pl_fused_instr *x = &k->f->instr[k->f->n_instr++];
    memset(x, 0, sizeof *x);
    x->code = code;
    x->dtype = d;
    return x;
}

static int32_t emit_fill(maker *k, const member *m, uint32_t val, const pl_amap *map)
{
    pl_ramp r;
    ramp_of(k, m, &r);
    const pl_type *t = pl_type_of(k->g, val);
    pl_fused_instr *x = emit(k, PL_FUSED_RAMP, t->dtype);
    x->imm = r.base;
    for (int d = 0; d < t->rank; d++) {
        pl_amap c;
        int64_t stride[PL_AMAP_RUNS];
        if (r.step[d] == 0.0 || t->dim[d] == 1) continue;
        if (!coordinate(k, val, map, d, &c)) PL_BUG("ramp of node %u", m->node);
        pl_grid_strides(&k->grid, &c, stride);
        x->imm += r.step[d] * (double)c.offset;
        for (int i = 0; i < k->grid.n; i++) x->step[i] += r.step[d] * (double)stride[i];
    }
    return k->f->n_instr - 1;
}

static uint32_t unit_input(const maker *k, uint32_t val)
{
    uint32_t in = 0;
    while (in < k->u->n_in && k->u->in[in] != val) in++;
    return in;
}

static int32_t emit_load(maker *k, uint32_t val, const pl_amap *map)
{
    pl_fused *f = k->f;
    uint32_t in = unit_input(k, val);
    if (in == k->u->n_in) return -1;
    for (int32_t i = 0; i < f->n_instr; i++) {
        const pl_fused_instr *x = &f->instr[i];
        if (x->code == PL_FUSED_LOAD && f->in[x->operand].in == in &&
            pl_amap_equal(&k->maps[x->operand], map))
            return i;
    }
    pl_fused_operand *o = &f->in[f->n_in];
    o->in = in;
    o->dtype = pl_type_of(k->g, val)->dtype;
    o->offset = map->offset;
    o->bits = k->u->bits && k->u->bits[val];
    k->maps[f->n_in] = *map;
    int64_t stride[PL_AMAP_RUNS];
    pl_grid_strides(&k->grid, map, stride);
    memcpy(o->stride, stride, sizeof(int64_t) * (size_t)k->grid.n);
    emit(k, PL_FUSED_LOAD, pl_type_of(k->g, val)->dtype)->operand = f->n_in++;
    return f->n_instr - 1;
}

/* Returns the operand that is the key of a draw: its first bytes, the same everywhere. */
static int32_t key_operand(maker *k, uint32_t in)
{
    pl_fused *f = k->f;
    for (int32_t i = 0; i < f->n_instr; i++)
        if (f->instr[i].code == PL_FUSED_DRAW && f->in[f->instr[i].operand].in == in)
            return f->instr[i].operand;
    f->in[f->n_in] = (pl_fused_operand){.in = in, .dtype = pl_type_of(k->g, k->u->in[in])->dtype};
    return f->n_in++;
}

static int32_t emit_draw(maker *k, const member *m, uint32_t val, const pl_amap *map)
{
    const pl_node_rec *r = pl_node_get(k->g, m->node);
    pl_fused *f = k->f;
    pl_fused_instr y = {.code = PL_FUSED_DRAW, .dtype = pl_type_of(k->g, val)->dtype};
    int64_t stride[PL_AMAP_RUNS];
    uint32_t in = unit_input(k, pl_node_in(k->g, m->node)[0]);
    if (in == k->u->n_in) return -1;
    r->op->drawing(r->attr, &y.draw);
    y.imm = (double)map->offset;
    pl_grid_strides(&k->grid, map, stride);
    for (int i = 0; i < k->grid.n; i++) y.step[i] = (double)stride[i];
    y.operand = key_operand(k, in);
    for (int32_t i = 0; i < f->n_instr; i++) {
        const pl_fused_instr *x = &f->instr[i];
        if (x->code == PL_FUSED_DRAW && x->operand == y.operand && x->dtype == y.dtype &&
            x->draw.stream == y.draw.stream && x->draw.normal == y.draw.normal && x->imm == y.imm &&
            !memcmp(x->step, y.step, sizeof y.step))
            return i;
    }
    f->instr[f->n_instr] = y;
    return f->n_instr++;
}

/* Returns the instruction that holds val as read through map; -1 if impossible. */
static int32_t read_value(maker *k, uint32_t val, pl_amap map)
{
    if (!follow(k, &val, &map)) return -1;
    const member *m = member_of(k, val);
    if (!m) return emit_load(k, val, &map);
    if (m->role == PL_ROLE_FILL) return emit_fill(k, m, val, &map);
    if (m->role == PL_ROLE_DRAW) return emit_draw(k, m, val, &map);
    return m->instr + (int32_t)(val - pl_node_get(k->g, m->node)->out);
}

static bool emit_map(maker *k, member *m)
{
    const pl_node_rec *r = pl_node_get(k->g, m->node);
    int32_t arg[3] = {0, 0, 0};
    for (uint32_t j = 0; j < r->n_in; j++) {
        arg[j] = read_value(k, pl_node_in(k->g, m->node)[j], m->map);
        if (arg[j] < 0) return false;
    }
    pl_fused_instr *x = emit(k, PL_FUSED_MAP, pl_type_of(k->g, r->out)->dtype);
    x->fn = (pl_scalar_fn)r->op->scalar;
    x->n_arg = r->n_in;
    memcpy(x->arg, arg, sizeof arg);
    if (r->op->immediate) x->imm = r->op->immediate(r->attr);
    m->instr = k->f->n_instr - 1;
    return true;
}

static bool emit_reduce(maker *k, member *m)
{
    const pl_node_rec *r = pl_node_get(k->g, m->node);
    pl_reduction red;
    pl_node_reduction(k->g, m->node, &red);
    int32_t src = read_value(k, pl_node_in(k->g, m->node)[0], pl_amap_identity(k->elems));
    m->instr = src;
    if (src < 0 || !m->inside) return src >= 0;
    pl_fused_instr *x = emit(k, PL_FUSED_ROW_REDUCE, pl_type_of(k->g, r->out)->dtype);
    x->reduce = red.fn;
    x->n_arg = 1;
    x->arg[0] = src;
    m->instr = k->f->n_instr - 1;
    if (red.fn != PL_REDUCE_MOMENTS) return true;
    x = emit(k, PL_FUSED_ROW_VAR, pl_type_of(k->g, r->out + 1)->dtype);
    x->n_arg = 1;
    x->arg[0] = m->instr;
    return true;
}

/* ---- outputs ---------------------------------------------------------------------------- */

static void put_reduction(maker *k, const member *m, uint32_t which, int32_t out)
{
    pl_fused *f = k->f;
    pl_reduction red;
    pl_node_reduction(k->g, m->node, &red);
    const pl_type *t = pl_type_of(k->g, pl_node_in(k->g, m->node)[0]);
    uint32_t mask = pl_grid_mask(&k->grid, t, red.axes);
    pl_fused_output *o = NULL;
    for (int i = 0; i < f->n_out && red.fn == PL_REDUCE_MOMENTS; i++)
        if (f->out[i].kind == PL_FUSED_REDUCE && f->out[i].reduce == PL_REDUCE_MOMENTS &&
            f->out[i].src == m->instr && f->out[i].mask == mask &&
            (which ? f->out[i].out2 : f->out[i].out) < 0)
            o = &f->out[i];
    if (!o) {
        o = &f->out[f->n_out++];
        *o = (pl_fused_output){.kind = PL_FUSED_REDUCE,
                               .src = m->instr,
                               .out = -1,
                               .out2 = -1,
                               .dtype = pl_type_of(k->g, pl_node_get(k->g, m->node)->out)->dtype,
                               .reduce = red.fn,
                               .mask = mask,
                               .lead = lead_of(t, red.axes)};
    }
    if (which)
        o->out2 = out;
    else
        o->out = out;
}

static bool put_output(maker *k, uint32_t i)
{
    uint32_t val = k->u->out[i];
    const member *m = member_of(k, val);
    if (!m) return false;
    uint32_t which = val - pl_node_get(k->g, m->node)->out;
    if (m->role == PL_ROLE_REDUCE && !m->inside) {
        put_reduction(k, m, which, (int32_t)i);
        return true;
    }
    pl_fused *f = k->f;
    pl_fused_output o = {.out = (int32_t)i, .out2 = -1, .dtype = pl_type_of(k->g, val)->dtype};
    o.bits = k->u->bits && k->u->bits[val];
    int64_t n = pl_type_elems(pl_type_of(k->g, val));
    if (pl_role_inline(m->role)) {
        o.src = read_value(k, val, pl_amap_identity(k->elems));
        if (o.src < 0 || n != k->elems) return false;
    } else {
        o.src = m->instr + (int32_t)which;
        if (n != k->elems || m->role == PL_ROLE_REDUCE) {
            pl_amap rows = pl_amap_rows(k->elems, k->row ? k->row : 1);
            if (!k->row || !pl_amap_equal(&rows, &m->map)) return false;
            o.kind = PL_FUSED_ROWS;
            if (o.bits) return false;
        }
    }
    f->out[f->n_out++] = o;
    return true;
}

/* ---- the group -------------------------------------------------------------------------- */

static pl_status list_members(maker *k, pl_arena *a)
{
    const pl_unit *u = k->u;
    for (k->cap = 8; k->cap < 2 * u->n_nodes;) k->cap *= 2;
    k->m = pl_arena_new(a, member, u->n_nodes);
    k->table = pl_arena_new(a, uint32_t, k->cap);
    if (!k->m || !k->table) return PL_ERR_MEMORY;
    k->elems = pl_type_elems(pl_type_of(k->g, u->n_out ? u->out[0] : u->in[0]));
    bool any = false;
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        member *m = &k->m[i];
        m->node = u->nodes[i];
        m->role = pl_role_of(k->g, m->node);
        if (m->role < PL_ROLE_MAP)
            PL_FAIL(PL_ERR_UNSUPPORTED, "a fused group contains a node with a kernel of its own");
        *slot_of(k, m->node) = i + 1;
        if (!pl_role_core(m->role)) continue;
        bool red = m->role == PL_ROLE_REDUCE;
        const pl_node_rec *r = pl_node_get(k->g, m->node);
        int64_t n = pl_type_elems(pl_type_of(k->g, red ? pl_node_in(k->g, m->node)[0] : r->out));
        if (!any || n > k->elems) k->elems = n;
        any = true;
        if (red) m->row = pl_node_row(k->g, m->node);
    }
    return PL_OK;
}

/* Finds the row of the reductions whose results a member reads. */
static bool find_row(maker *k)
{
    for (uint32_t i = 0; i < k->u->n_nodes; i++) {
        const pl_node_rec *r = pl_node_get(k->g, k->m[i].node);
        for (uint32_t j = 0; j < r->n_in; j++) {
            const member *p = member_of(k, pl_node_in(k->g, k->m[i].node)[j]);
            if (!p || p->role != PL_ROLE_REDUCE) continue;
            if (!p->row || (k->row && k->row != p->row)) return false;
            k->row = p->row;
        }
    }
    return true;
}

static bool set_space(maker *k)
{
    if (k->row && !pl_grid_add(&k->grid, k->row)) return false;
    for (uint32_t i = 0; i < k->u->n_nodes; i++)
        if (!can_cut(k, &k->m[i])) return false;
    if (k->grid.n > PL_FUSED_RANK) return false;
    pl_fused *f = k->f;
    f->rank = pl_grid_dims(&k->grid, f->dim); /* strides of operands follow these dims */
    if (k->row == 1) { /* rows of one element: a dim of size 1 inside all others */
        if (f->rank == PL_FUSED_RANK) return false;
        f->dim[f->rank++] = 1;
        f->row_rank = 1;
        return true;
    }
    int64_t n = 1;
    while (k->row && n < k->row) n *= f->dim[f->rank - 1 - f->row_rank++];
    return !k->row || n == k->row;
}

static bool write_all(maker *k)
{
    for (uint32_t i = 0; i < k->u->n_nodes; i++) {
        member *m = &k->m[i];
        if (m->role == PL_ROLE_MAP && !emit_map(k, m)) return false;
        if (m->role == PL_ROLE_REDUCE && !emit_reduce(k, m)) return false;
    }
    for (uint32_t i = 0; i < k->u->n_out; i++)
        if (!put_output(k, i)) return false;
    return true;
}

pl_status pl_fused_make(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_fused *out)
{
    memset(out, 0, sizeof *out);
    maker k = {.g = g, .u = u, .f = out};
    PL_TRY(list_members(&k, a));
    size_t cap = 4 * (size_t)u->n_nodes + u->n_in + u->n_out + 4;
    out->in = pl_arena_new(a, pl_fused_operand, cap);
    out->instr = pl_arena_new(a, pl_fused_instr, 2 * cap);
    out->out = pl_arena_new(a, pl_fused_output, u->n_out + 1);
    k.maps = pl_arena_new(a, pl_amap, cap);
    if (!out->in || !out->instr || !out->out || !k.maps) return PL_ERR_MEMORY;
    k.grid = pl_grid_new(k.elems);
    if (!find_row(&k) || !find_maps(&k) || !set_space(&k) || !write_all(&k)) {
        char label[128];
        PL_FAIL(PL_ERR_UNSUPPORTED, "the nodes around %s do not form a fused group",
                pl_node_label(g, u->nodes[0], label, sizeof label));
    }
    return PL_OK;
}
