/* chunk_rows.c - computes a product with a very large result in chunks of rows, together with
 * everything that reads it.
 *
 *     logits = x W          [rows, vocabulary]          for each chunk c of rows:
 *     loss   = f(logits)    [rows]                          l = x[c] W;  loss[c] = f(l)
 *     d      = f'(logits)                            =>     d = f'(l);   dx[c] = d W'
 *     dx     = d W'         [rows, width]                   dW += d' x[c]
 *     dW     = d' x         [width, vocabulary]
 *
 * The region of a product is the product and all nodes that read a value as large as its result:
 * they must treat rows independently or sum over them, as their descriptors declare (pl_labels,
 * maps, reductions). Values that leave the region are small: rows are joined again by a concat,
 * sums over rows are added up. Then no value of the size of the result exists; the planner orders
 * the chunks one after the other, because that needs the least memory.
 *
 * The number of chunks follows from sizes alone, so results do not depend on budgets: chunks have
 * at least chunk_bytes of the result, and adding up the sums costs at most one pass over the
 * result. A region that needs a value computed from its own results is left alone.
 *
 * Cost: O(nodes + edges) for each product with a result of at least two chunks.
 */
#include "pass/pass.h"

#include "base/err.h"
#include "pass/rewrite.h"
#include "plimsoll_ops.h"

#include <string.h>

enum {
    MAX_IN = 8,
    MAX_CHUNKS = 64,
    ALIGN_ROWS = 16, /* rows of a chunk are a multiple of this: tiles of products stay whole */
    REGIONS = 8      /* most regions of one graph */
};
static const int64_t CHUNK_BYTES = (int64_t)256 << 20;
/* Adding a chunk's sum to the others reads two values and writes one, of f32 and 16 bits. */
static const double ADD_COST = 2.5;

typedef struct region {
    const pl_graph *g;
    pl_arena mem;
    bool *in;     /* per node: of the region */
    bool *after;  /* per value: computed from values of the region */
    uint8_t *row; /* per value of the region: 1 + the dimension of rows; 0: none */
    bool *summed; /* per value of the region: a sum over rows */
    uint8_t *cut; /* per edge of a node of the region: 1 + the dimension of rows; 0: whole */
    uint32_t root;
    int64_t rows, elems; /* of the root's result */
    int64_t chunk;       /* rows of a chunk */
    int n;
} region;

/* The effect of one node on rows. */
typedef struct row_rule {
    uint8_t cut[MAX_IN], row[PL_MAX_OUT]; /* 1 + dimension; 0: none */
    bool summed;                          /* outputs without rows are sums over rows */
} row_rule;

/* ---- one node ----------------------------------------------------------------------------- */
static bool is_fat(const region *r, uint32_t val)
{
    return r->row[val] && 2 * pl_type_elems(pl_type_of(r->g, val)) >= r->elems;
}

static bool rule_of_map(const pl_call *c, int row, row_rule *o)
{
    for (int i = 0; i < c->n_in; i++) {
        const pl_type *a = &c->in_type[i], *y = &c->out_type[0];
        if (a->rank != y->rank || memcmp(a->dim, y->dim, sizeof a->dim[0] * (size_t)a->rank) != 0)
            return false;
        o->cut[i] = (uint8_t)(row + 1);
    }
    o->row[0] = (uint8_t)(row + 1);
    return true;
}

static bool rule_of_reduction(const pl_op *op, const pl_call *c, int row, row_rule *o)
{
    pl_reduction red;
    op->reduction(c, &red);
    o->cut[0] = (uint8_t)(row + 1);
    o->summed = red.axes >> row & 1;
    if (o->summed) return red.fn == PL_REDUCE_SUM;
    int to = row;
    for (int d = 0; d < row && c->out_type[0].rank < c->in_type[0].rank; d++)
        to -= (int)(red.axes >> d & 1);
    for (int k = 0; k < c->n_out; k++) o->row[k] = (uint8_t)(to + 1);
    return true;
}

/* Returns 1 + the only dimension with the label; 0: none, -1: several. */
static int place_of(const int8_t *labels, int rank, int8_t label)
{
    int at = 0;
    for (int d = 0; d < rank; d++)
        if (labels[d] == label) at = at ? -1 : d + 1;
    return at;
}

static bool rule_of_labels(const pl_call *c, int8_t label, const pl_labels *l, row_rule *o)
{
    bool product = false, plain = true;
    for (int i = 0; i < c->n_in; i++) {
        int at = place_of(l->in[i], c->in_type[i].rank, label);
        if (at < 0) return false;
        o->cut[i] = (uint8_t)at;
        product |= at && l->times >> i & 1;
        plain &= at || !(l->plus >> i & 1);
    }
    for (int k = 0; k < c->n_out; k++) {
        int at = place_of(l->out[k], c->out_type[k].rank, label);
        if (at < 0) return false;
        o->row[k] = (uint8_t)at;
        o->summed |= !at;
    }
    return !o->summed || (c->n_out == 1 && product && plain);
}

/* Sets how the node treats the rows that its input i has in dimension `row`. */
static bool rule_of(const pl_op *op, const pl_call *c, int i, int row, row_rule *o)
{
    const uint32_t no = PL_OP_EFFECT | PL_OP_SOURCE | PL_OP_RANDOM | PL_OP_RANKS;
    memset(o, 0, sizeof *o);
    if (op->flags & no || c->n_in > MAX_IN) return false;
    if (op->flags & PL_OP_MAP) return rule_of_map(c, row, o);
    if (op->flags & PL_OP_REDUCE) return rule_of_reduction(op, c, row, o);
    if (!op->labels || c->n_in > PL_LABEL_IN - 1) return false;
    pl_labels l;
    memset(&l, 0, sizeof l);
    op->labels(c, &l);
    return l.in[i][row] > 0 && rule_of_labels(c, l.in[i][row], &l, o);
}

/* Whether the op's shape rule gives the chunk of each result from chunks of the operands. */
static bool holds_for(const region *r, const pl_op *op, const pl_call *c, const row_rule *o,
                      int64_t rows)
{
    _Alignas(16) unsigned char attr[PL_TAIL_ATTR];
    pl_type in[MAX_IN], out[PL_MAX_OUT], want;
    if (op->attr_bytes > sizeof attr) return false;
    memset(out, 0, sizeof out);
    memcpy(attr, c->attr ? c->attr : attr, op->attr_bytes);
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in_type[i];
        if (!o->cut[i]) continue;
        if (in[i].dim[o->cut[i] - 1] != r->rows) return false;
        in[i].dim[o->cut[i] - 1] = rows;
    }
    if (op->infer(in, c->n_in, attr, out) != PL_OK) return false;
    for (int k = 0; k < c->n_out; k++) {
        want = c->out_type[k];
        if (o->row[k]) want.dim[o->row[k] - 1] = rows;
        if (!pl_type_equal(&want, &out[k])) return false;
    }
    return true;
}

/* Adds a node to the region; false: the node mixes rows, or needs what the region results in. */
static bool absorb(region *r, uint32_t n, int from, int row)
{
    const pl_node_rec *rec = pl_node_get(r->g, n);
    const uint32_t *in = pl_node_in(r->g, n);
    pl_type in_type[MAX_IN], out_type[PL_MAX_OUT];
    pl_call c;
    row_rule o;
    if (rec->n_in > MAX_IN) return false;
    pl_node_call(r->g, n, in_type, out_type, &c);
    if (!rule_of(rec->op, &c, from, row, &o) || !holds_for(r, rec->op, &c, &o, ALIGN_ROWS))
        return false;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        if (r->after[in[i]]) return false;
        if (r->summed[in[i]] || (r->row[in[i]] && r->row[in[i]] != o.cut[i])) return false;
        r->cut[rec->in + i] = o.cut[i];
    }
    for (uint32_t k = 0; k < rec->n_out; k++) {
        r->row[rec->out + k] = o.row[k];
        r->summed[rec->out + k] = !o.row[k];
    }
    r->in[n] = true;
    return true;
}

/* ---- the region of a product --------------------------------------------------------------- */
static pl_status region_clear(region *r)
{
    const pl_graph *g = r->g;
    if (!r->in) {
        r->in = pl_arena_new(&r->mem, bool, g->n_nodes);
        r->after = pl_arena_new(&r->mem, bool, g->n_vals);
        r->row = pl_arena_new(&r->mem, uint8_t, g->n_vals);
        r->summed = pl_arena_new(&r->mem, bool, g->n_vals);
        r->cut = pl_arena_new(&r->mem, uint8_t, g->n_edges);
        return r->in && r->after && r->row && r->summed && r->cut ? PL_OK : PL_ERR_MEMORY;
    }
    memset(r->in, 0, g->n_nodes * sizeof *r->in);
    memset(r->after, 0, g->n_vals * sizeof *r->after);
    memset(r->row, 0, g->n_vals * sizeof *r->row);
    memset(r->summed, 0, g->n_vals * sizeof *r->summed);
    return PL_OK;
}

/* Marks a node outside the region whose inputs come from it. */
static void mark_after(region *r, uint32_t n)
{
    const pl_node_rec *rec = pl_node_get(r->g, n);
    bool any = false;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        uint32_t v = pl_node_in(r->g, n)[i];
        any |= r->after[v] || r->row[v] || r->summed[v];
    }
    for (uint32_t k = 0; k < rec->n_out; k++) r->after[rec->out + k] = any;
}

/* Collects all nodes that read a value as large as the root's result. */
static bool grow(region *r)
{
    for (uint32_t n = r->root + 1; n < r->g->n_nodes; n++) {
        const pl_node_rec *rec = pl_node_get(r->g, n);
        int from = -1;
        for (uint32_t i = 0; i < rec->n_in && from < 0; i++)
            if (is_fat(r, pl_node_in(r->g, n)[i])) from = (int)i;
        if (from < 0)
            mark_after(r, n);
        else if (!absorb(r, n, from, r->row[pl_node_in(r->g, n)[from]] - 1))
            return false;
    }
    return true;
}

/* Bytes of the values that are summed over rows, in one chunk. */
static double summed_bytes(const region *r)
{
    double sum = 0;
    for (uint32_t n = r->root; n < r->g->n_nodes; n++) {
        const pl_node_rec *rec = pl_node_get(r->g, n);
        for (uint32_t k = 0; r->in[n] && k < rec->n_out; k++)
            if (r->summed[rec->out + k])
                sum += (double)pl_type_bytes(pl_type_of(r->g, rec->out + k));
    }
    return sum;
}

/* Sets the number of chunks; false: fewer than two are worth it. */
static bool choose_chunks(region *r, int64_t chunk_bytes)
{
    double bytes = (double)pl_type_bytes(pl_type_of(r->g, pl_node_get(r->g, r->root)->out));
    double n = bytes / (double)chunk_bytes, added = summed_bytes(r);
    if (added > 0 && bytes / (ADD_COST * added) < n) n = bytes / (ADD_COST * added);
    if (n > MAX_CHUNKS) n = MAX_CHUNKS;
    if (n < 2) return false;
    int64_t rows = (r->rows + (int64_t)n - 1) / (int64_t)n;
    r->chunk = (rows + ALIGN_ROWS - 1) / ALIGN_ROWS * ALIGN_ROWS;
    r->n = (int)((r->rows + r->chunk - 1) / r->chunk);
    return r->n > 1;
}

/* Whether the node is a product whose result has rows and is large enough for two chunks. */
static bool starts(region *r, uint32_t n, int64_t chunk_bytes)
{
    const pl_node_rec *rec = pl_node_get(r->g, n);
    const pl_type *y = pl_type_of(r->g, rec->out);
    if (rec->n_out != 1 || rec->n_in > PL_LABEL_IN - 1 || !rec->op->labels || y->rank < 2 ||
        (int64_t)pl_type_bytes(y) < 2 * chunk_bytes)
        return false;
    pl_type in_type[MAX_IN], out_type[PL_MAX_OUT];
    pl_labels l;
    pl_call c;
    memset(&l, 0, sizeof l);
    pl_node_call(r->g, n, in_type, out_type, &c);
    rec->op->labels(&c, &l);
    if (l.out[0][0] <= 0 || !l.times) return false;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        int at = place_of(l.in[i], c.in_type[i].rank, l.out[0][0]);
        if (at <= 0) continue;
        r->root = n;
        r->rows = y->dim[0];
        r->elems = pl_type_elems(y);
        return absorb(r, n, (int)i, at - 1) && r->row[rec->out] == 1;
    }
    return false;
}

/* Finds a region worth chunking; *found: whether there is one. */
static pl_status find_region(region *r, int64_t chunk_bytes, bool *found)
{
    *found = false;
    PL_TRY(region_clear(r));
    for (uint32_t n = 1; n < r->g->n_nodes && !*found; n++) {
        bool begun = starts(r, n, chunk_bytes);
        *found = begun && grow(r) && choose_chunks(r, chunk_bytes);
        if (begun && !*found) PL_TRY(region_clear(r));
        if (!begun) r->in[n] = false;
    }
    return PL_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */
typedef struct writer {
    pl_rewrite c;
    const region *r;
    uint32_t *now; /* per value of the region: its part in the chunk that is written */
    pl_val **part; /* per value of the region that is read outside: its parts */
} writer;

static pl_val piece(writer *w, uint32_t edge, uint32_t val, int64_t lo, int64_t hi)
{
    if (w->now[val]) return (pl_val){w->now[val]};
    pl_val v = {w->c.map[val]};
    int cut = w->r->cut[edge];
    return cut ? pl_slice(w->c.out, v, cut - 1, lo, hi, 1) : v;
}

static void write_chunk(writer *w, int chunk)
{
    const region *r = w->r;
    const pl_graph *g = r->g;
    int64_t lo = chunk * r->chunk, hi = lo + r->chunk < r->rows ? lo + r->chunk : r->rows;
    memset(w->now, 0, g->n_vals * sizeof *w->now);
    for (uint32_t n = r->root; n < g->n_nodes; n++) {
        if (!r->in[n]) continue;
        const pl_node_rec *rec = pl_node_get(g, n);
        pl_rewrite_at(&w->c, n);
        for (uint32_t i = 0; i < rec->n_in; i++)
            w->c.args[i] = piece(w, rec->in + i, pl_node_in(g, n)[i], lo, hi);
        uint32_t made = pl_build(w->c.out, rec->op, rec->attr, rec->n_in, w->c.args, NULL).id;
        for (uint32_t k = 0; made && k < rec->n_out; k++) {
            w->now[rec->out + k] = w->c.out->nodes[made].out + k;
            if (!w->part[rec->out + k]) continue;
            w->part[rec->out + k][chunk] = (pl_val){w->now[rec->out + k]};
            if (!r->summed[rec->out + k] || chunk == 0) continue;
            /* sums continue from chunk to chunk: one total and one addend are alive */
            w->part[rec->out + k][0] =
                pl_add(w->c.out, w->part[rec->out + k][0], w->part[rec->out + k][chunk]);
        }
    }
}

/* Makes room for the parts of the values that nodes outside the region read. */
static pl_status list_parts(writer *w)
{
    const pl_graph *g = w->r->g;
    w->now = pl_arena_new(&w->c.mem, uint32_t, g->n_vals);
    w->part = pl_arena_new(&w->c.mem, pl_val *, g->n_vals);
    if (!w->now || !w->part) return PL_ERR_MEMORY;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        for (uint32_t i = 0; !w->r->in[n] && i < pl_node_get(g, n)->n_in; i++) {
            uint32_t v = pl_node_in(g, n)[i];
            if (w->part[v] || (!w->r->row[v] && !w->r->summed[v])) continue;
            w->part[v] = pl_arena_new(&w->c.mem, pl_val, w->r->n);
            if (!w->part[v]) return PL_ERR_MEMORY;
        }
    return PL_OK;
}

static void join_parts(writer *w)
{
    const region *r = w->r;
    for (uint32_t n = r->root; n < r->g->n_nodes; n++) {
        const pl_node_rec *rec = pl_node_get(r->g, n);
        for (uint32_t k = 0; r->in[n] && k < rec->n_out; k++) {
            uint32_t v = rec->out + k;
            if (!w->part[v]) continue;
            pl_rewrite_at(&w->c, n);
            w->c.map[v] = r->summed[v] ? w->part[v][0].id
                                       : pl_concat(w->c.out, r->n, w->part[v], r->row[v] - 1).id;
        }
    }
}

/* Copies the nodes outside the region that do (or do not) depend on it, in their order. */
static void copy_others(writer *w, bool after)
{
    const pl_graph *g = w->r->g;
    for (uint32_t n = 1; n < g->n_nodes && w->c.out->status == PL_OK; n++) {
        const pl_node_rec *rec = pl_node_get(g, n);
        bool depends = false;
        for (uint32_t i = 0; i < rec->n_in; i++) {
            uint32_t v = pl_node_in(g, n)[i];
            depends |= w->r->after[v] || w->r->row[v] || w->r->summed[v];
        }
        if (w->r->in[n] || depends != after) continue;
        pl_rewrite_at(&w->c, n);
        pl_rewrite_node(&w->c, n);
    }
}

static pl_status write_region(const region *r, pl_graph **out)
{
    writer w = {.r = r};
    pl_status rc = pl_rewrite_begin(&w.c, r->g);
    if (rc == PL_OK) rc = list_parts(&w);
    if (rc == PL_OK) {
        copy_others(&w, false);
        for (int k = 0; k < r->n && w.c.out->status == PL_OK; k++) write_chunk(&w, k);
        join_parts(&w);
        copy_others(&w, true);
    }
    return pl_rewrite_end(&w.c, rc, out);
}

static pl_status copy_graph(const pl_graph *in, pl_graph **out)
{
    pl_rewrite c;
    pl_status rc = pl_rewrite_begin(&c, in);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes && c.out->status == PL_OK; n++) {
        pl_rewrite_at(&c, n);
        pl_rewrite_node(&c, n);
    }
    return pl_rewrite_end(&c, rc, out);
}

pl_status pl_pass_chunk(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    int64_t bytes = o && o->chunk_bytes ? o->chunk_bytes : CHUNK_BYTES;
    pl_graph *made = NULL;
    pl_status rc = PL_OK;
    bool found = true;
    for (int i = 0; i < REGIONS && found && rc == PL_OK; i++) {
        region r = {.g = made ? made : in};
        pl_graph *next = NULL;
        rc = find_region(&r, bytes, &found);
        if (rc == PL_OK && found) rc = write_region(&r, &next);
        pl_arena_release(&r.mem);
        if (!next) continue;
        pl_graph_free(made);
        made = next;
    }
    if (rc == PL_OK && !made) rc = copy_graph(in, &made);
    if (rc == PL_OK)
        *out = made;
    else
        pl_graph_free(made);
    return rc;
}
