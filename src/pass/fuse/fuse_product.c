/* fuse_product.c - moves products into the groups that read their results first.
 *
 *   conv 1x1 -> y;  group: mean and variance of y over rows      =>   one unit that stores y
 *   product -> d;   group: g = d * gelu'(z), sum of g over rows  =>   one unit; d is not stored
 *
 * A device with such kernels (pl_fuse_opts.product_bytes) saves reading the result again, and
 * writing it where only that group reads it. The stage runs on finished units. A product moves if
 *
 *   - it is one plain product of 16-bit numbers (pl_op.product), with sizes that kernels take, and
 *     not so long that the product itself, and not memory, is what takes the time;
 *   - the first unit that reads the result is a group that reads it once, in order, and sums over
 *     rows; the group has no sums over columns and nothing that depends on positions.
 *
 * Then everything that the product reads is computed before the group, and nothing between the two
 * reads the result: units stay a DAG. The decision depends on the graph alone, never on a budget,
 * so every plan has the same units.
 *
 * Cost: linear in units and their operands.
 */
#include "pass/fuse/fuse_int.h"

#include "ir/group/product.h"

#include <string.h>

/* Products with longer sums are bound by arithmetic: a library's kernel is as good there. Windows
 * overlap, so fewer numbers of them are read; their channels come in blocks. */
enum { MOST_K = 1024, MOST_K_OF_WINDOWS = 2560, CHANNELS = 64 };

static bool length_fits(const pl_plain_product *p)
{
    int64_t taps = p->window.taps[0] * p->window.taps[1];
    if (taps == 0) return p->k % 8 == 0 && p->k <= MOST_K;
    return p->k % (CHANNELS * taps) == 0 && p->k <= MOST_K_OF_WINDOWS;
}

/* Whether the value begins at a multiple of 16 bytes: buffers do, views need not. */
static bool is_aligned(const pl_units *us, uint32_t val)
{
    for (;;) {
        const pl_unit *u = us->unit_of[val] ? &us->unit[us->unit_of[val] - 1] : NULL;
        if (!u || u->kind != PL_UNIT_VIEW) return true;
        if (u->view_offset % 16) return false;
        val = u->in[0];
    }
}

static bool is_wanted(const pl_graph *g, const pl_fuse_opts *o, const pl_units *us,
                      const pl_unit *u, pl_plain_product *p)
{
    pl_type in[8], out[PL_MAX_OUT];
    pl_call c;
    const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
    if (u->kind != PL_UNIT_KERNEL || !r->op->product || r->n_in > 8) return false;
    pl_node_call(g, u->nodes[0], in, out, &c);
    if (out[0].dtype != PL_BF16 && out[0].dtype != PL_F16) return false;
    if ((int64_t)pl_type_bytes(&out[0]) < o->product_bytes || !r->op->product(&c, p)) return false;
    return p->n % 8 == 0 && p->n >= 64 && length_fits(p) &&
           is_aligned(us, pl_node_in(g, u->nodes[0])[0]) &&
           is_aligned(us, pl_node_in(g, u->nodes[0])[1]);
}

/* Whether the operand reads the product's result, all of it, in order. */
static bool reads_in_order(const pl_fused *f, const pl_fused_operand *x)
{
    int64_t stride = 1;
    for (int d = f->rank - 1; d >= 0; d--) {
        if (f->dim[d] != 1 && x->stride[d] != stride) return false;
        stride *= f->dim[d];
    }
    return x->offset == 0;
}

/* Whether the output keeps exactly the innermost n positions of the space. */
static bool keeps_columns(const pl_fused *f, const pl_fused_output *x, int64_t n)
{
    int64_t kept = 1;
    int d = f->rank - 1;
    for (; d >= 0 && kept < n; d--) {
        if (f->dim[d] != 1 && x->mask >> d & 1u) return false;
        kept *= f->dim[d];
    }
    for (; d >= 0; d--)
        if (f->dim[d] != 1 && !(x->mask >> d & 1u)) return false;
    return kept == n;
}

static bool instr_fits(const pl_fused_instr *x)
{
    if (x->code == PL_FUSED_LOAD || x->code == PL_FUSED_MAP) return true;
    for (int d = 0; x->code == PL_FUSED_RAMP && d < PL_FUSED_RANK; d++)
        if (x->step[d] != 0) return false;
    return x->code == PL_FUSED_RAMP;
}

/* Whether the group can follow the product in one kernel; `at` is the input that is the result. */
static bool group_fits(const pl_fused *f, uint32_t at, const pl_plain_product *p)
{
    int64_t space = 1;
    int reads = 0, sums = 0, moments = 0;
    for (int d = 0; d < f->rank; d++) space *= f->dim[d];
    if (space != p->m * p->n) return false;
    for (int i = 0; i < f->n_in; i++) {
        if (f->in[i].in != at) continue;
        reads++;
        if (!reads_in_order(f, &f->in[i])) return false;
    }
    for (int i = 0; i < f->n_instr; i++)
        if (!instr_fits(&f->instr[i])) return false;
    for (int o = 0; o < f->n_out; o++) {
        const pl_fused_output *x = &f->out[o];
        if (x->kind == PL_FUSED_ROWS) return false;
        if (x->kind != PL_FUSED_REDUCE) continue;
        sums++;
        moments += x->reduce == PL_REDUCE_MOMENTS;
        if (f->instr[x->src].dtype != PL_F32 || !keeps_columns(f, x, p->n)) return false;
    }
    return reads == 1 && sums > 0 && (moments == 0 || moments == sums);
}

/* Which units read a value, before and while products move. */
typedef struct readers {
    uint32_t *first; /* of each value: its place in list; the next value's place ends it */
    uint32_t *list;  /* units */
    uint32_t *at;    /* of each unit: where its operands are read, itself or the group it joined */
    bool *effect;    /* of each value: whether an effect reads it */
} readers;

static pl_status list_readers(const pl_graph *g, const pl_units *us, pl_arena *a, readers *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < us->n; i++) n += us->unit[i].n_in;
    r->first = pl_arena_new(a, uint32_t, g->n_vals + 2);
    r->list = pl_arena_new(a, uint32_t, n + 1);
    r->at = pl_arena_new(a, uint32_t, us->n + 1);
    r->effect = pl_arena_new(a, bool, g->n_vals + 1);
    if (!r->first || !r->list || !r->at || !r->effect) return PL_ERR_MEMORY;

    for (uint32_t i = 0; i < us->n; i++)
        for (uint32_t k = 0; k < us->unit[i].n_in; k++) r->first[us->unit[i].in[k] + 2]++;
    for (uint32_t v = 2; v < g->n_vals + 2; v++) r->first[v] += r->first[v - 1];
    for (uint32_t i = 0; i < us->n; i++) {
        r->at[i] = i;
        for (uint32_t k = 0; k < us->unit[i].n_in; k++)
            r->list[r->first[us->unit[i].in[k] + 1]++] = i;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++)
        for (uint32_t k = 0; g->nodes[i].op->flags & PL_OP_EFFECT && k < g->nodes[i].n_in; k++)
            r->effect[pl_node_in(g, i)[k]] = true;
    return PL_OK;
}

/* Returns 1 + the first unit that reads the value, 0: none does; *more: whether other units or
 * effects read it too. */
static uint32_t first_reader(const readers *r, uint32_t val, bool *more)
{
    uint32_t first = 0;
    *more = r->effect[val];
    for (uint32_t i = r->first[val]; i < r->first[val + 1]; i++) {
        uint32_t at = r->at[r->list[i]] + 1;
        *more |= first && at != first;
        if (!first || at < first) first = at;
    }
    return first;
}

static pl_status fits(const pl_graph *g, const pl_unit *u, uint32_t y, const pl_plain_product *p,
                      bool *ok)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_fused f;
    uint32_t at = 0;
    *ok = false;
    if (u->kind != PL_UNIT_GROUP || u->n_nodes < 2 || pl_group_product(g, u)) return PL_OK;
    while (u->in[at] != y) at++;
    pl_status rc = pl_fused_make(g, u, &scratch, &f);
    *ok = rc == PL_OK && group_fits(&f, at, p);
    pl_arena_release(&scratch);
    return rc;
}

/* Replaces the group by the group with the product. */
static pl_status join(const pl_graph *g, pl_arena *a, const pl_unit *product, bool stored,
                      pl_unit *group)
{
    uint32_t node = product->nodes[0], y = pl_node_get(g, node)->out, n = 0, at = 0;
    uint32_t *nodes = pl_arena_new(a, uint32_t, group->n_nodes + 1);
    uint32_t *in = pl_arena_new(a, uint32_t, group->n_in + product->n_in);
    uint32_t *out = pl_arena_new(a, uint32_t, group->n_out + 1);
    if (!nodes || !in || !out) return PL_ERR_MEMORY;
    while (at < group->n_nodes && group->nodes[at] < node) nodes[n++] = group->nodes[at++];
    nodes[n++] = node;
    while (at < group->n_nodes) nodes[n++] = group->nodes[at++];
    group->nodes = nodes;
    group->n_nodes = n;
    memcpy(in, product->in, sizeof *in * product->n_in);
    n = product->n_in;
    for (uint32_t i = 0; i < group->n_in; i++) {
        bool have = group->in[i] == y;
        for (uint32_t k = 0; k < product->n_in; k++) have |= in[k] == group->in[i];
        if (!have) in[n++] = group->in[i];
    }
    group->in = in;
    group->n_in = n;
    memcpy(out, group->out, sizeof *out * group->n_out);
    group->out = out;
    if (stored) out[group->n_out++] = y;
    return PL_OK;
}

/* Moves the product into its first reader, if the two fit; then r->at has the place. */
static pl_status try_product(const pl_graph *g, const pl_fuse_opts *o, pl_units *us, uint32_t unit,
                             readers *r)
{
    pl_plain_product p;
    bool more, ok;
    pl_unit *u = &us->unit[unit];
    if (!is_wanted(g, o, us, u, &p)) return PL_OK;
    uint32_t y = pl_node_get(g, u->nodes[0])->out, reader = first_reader(r, y, &more);
    if (!reader) return PL_OK;
    PL_TRY(fits(g, &us->unit[reader - 1], y, &p, &ok));
    if (!ok) return PL_OK;
    PL_TRY(join(g, &us->arena, u, more, &us->unit[reader - 1]));
    r->at[unit] = reader - 1;
    return PL_OK;
}

pl_status pl_fuse_products(const pl_graph *g, const pl_fuse_opts *o, pl_units *us)
{
    pl_arena scratch = PL_ARENA_INIT;
    readers r;
    pl_status rc = list_readers(g, us, &scratch, &r);
    uint32_t kept = 0;
    for (uint32_t i = us->n; rc == PL_OK && i-- > 0;) rc = try_product(g, o, us, i, &r);
    for (uint32_t v = 0; rc == PL_OK && v < g->n_vals; v++) us->unit_of[v] = 0;
    for (uint32_t i = 0; rc == PL_OK && i < us->n; i++) {
        if (r.at[i] != i) continue;
        us->unit[kept++] = us->unit[i];
        for (uint32_t k = 0; k < us->unit[kept - 1].n_out; k++)
            us->unit_of[us->unit[kept - 1].out[k]] = kept;
    }
    if (rc == PL_OK) us->n = kept;
    pl_arena_release(&scratch);
    return rc;
}
