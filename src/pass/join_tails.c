/* join_tails.c - replaces an op and the maps after it by one op where a library has both in one
 * kernel (pl_op.tail).
 *
 *   matmul ─► [cast] ─► add c ─► gelu ─► [cast]          =>   matmul_tail(a, b, bias, c)
 *
 * The pass runs last, on the final graph, and uses the graph and the device's grouping (fuse.h),
 * never a budget: a recomputed node is computed by the same op, so every plan gives the same bits.
 *
 * Between the op and the tail's end every value has one reader, so nothing else sees these values;
 * readings of the same elements and casts between the op's type and f32 may be in between. The end
 * has the op's own type: a sum that must stay in f32 stays with its group. A reader that reads the
 * unrounded end in f32 reads the rounded end instead; the op's intermediate result is not rounded.
 * Three rules keep the replacement worth while:
 *
 *   - the group that computes the end stores it: otherwise the group would read the op's result
 *     just as it would read the tail's end, and nothing is saved;
 *   - what is added is a whole value in memory, of the op's type, computed before the op: a tail
 *     must not make a value stored or delay an op;
 *   - a value with other readers (`keep`: the backward pass needs the function's argument) becomes
 *     the op's second output, where the op offers that.
 *
 * A slope is the gradient of the function, an expression of several nodes that is multiplied with
 * the op's result. It is recognised by its shape: the function's own rule (pl_op.vjp) builds it
 * once in a separate graph, and the node after an op is compared with it.
 *
 * Cost: O(nodes + edges), one grouping, and the size of a gradient's expression at each product
 * after an op.
 */
#include "pass/pass.h"

#include "ir/group/fused.h"
#include "pass/fuse/fuse.h"
#include "pass/rewrite.h"
#include "plimsoll_ops.h"

#include <string.h>

/* A tail, at its first node. */
typedef struct found {
    const pl_op *op; /* NULL: none here */
    void *attr;
    uint32_t other;     /* the last operand, 0: none */
    uint32_t end, kept; /* old values that are the new op's outputs; kept 0: none */
    uint32_t wide;      /* the unrounded end, where others read it; 0: no reader */
} found;

typedef struct tailer {
    pl_rewrite c;
    const pl_pass_opts *o;
    const pl_graph *g;
    pl_units *us;
    bool *live;
    /* per value: its live readers are list[first[v]] .. list[first[v + 1]] */
    uint32_t *first, *list;
    bool *gone; /* per node: inside a tail */
    found *at;  /* per node */
} tailer;

/* ---- reading the graph ------------------------------------------------------------------ */
/* first[v] first counts v's readers, then is their end, then, filled from the end, their
 * beginning. */
static void list_readers(tailer *t)
{
    const pl_graph *g = t->g;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        for (uint32_t i = 0; t->live[n] && i < g->nodes[n].n_in; i++)
            t->first[pl_node_in(g, n)[i]]++;
    for (uint32_t v = 1; v <= g->n_vals; v++) t->first[v] += t->first[v - 1];
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--)
        for (uint32_t i = 0; t->live[n] && i < g->nodes[n].n_in; i++)
            t->list[--t->first[pl_node_in(g, n)[i]]] = n;
}

static uint32_t only_reader(const tailer *t, uint32_t val)
{
    return t->first[val + 1] - t->first[val] == 1 ? t->list[t->first[val]] : 0;
}

static pl_dtype dtype_of(const tailer *t, uint32_t val)
{
    return pl_type_of(t->g, val)->dtype;
}

static uint32_t out_of(const tailer *t, uint32_t node)
{
    return t->g->nodes[node].out;
}

static bool is_cast(const tailer *t, uint32_t node, pl_dtype from, pl_dtype to)
{
    return t->g->nodes[node].op->scalar == PL_SCALAR_CAST &&
           dtype_of(t, pl_node_in(t->g, node)[0]) == from && dtype_of(t, out_of(t, node)) == to;
}

static bool is_same(const tailer *t, uint32_t node)
{
    return pl_role_of(t->g, node) == PL_ROLE_SAME;
}

/* Whether the value is in memory in any case: a source, or a value that a unit stores for
 * others. */
static bool is_stored(const tailer *t, uint32_t val)
{
    return t->us->unit_of[val] || t->g->nodes[pl_producer(t->g, val)].op->flags & PL_OP_SOURCE;
}

/* Returns the stored value of the dtype with the same elements as `val`, in order; 0 if there is
 * none. */
static uint32_t stored_root(const tailer *t, uint32_t val, pl_dtype dtype)
{
    for (;;) {
        uint32_t n = pl_producer(t->g, val);
        if (dtype_of(t, val) == dtype && is_stored(t, val)) return val;
        if (!is_same(t, n) && !is_cast(t, n, dtype, PL_F32)) return 0;
        val = pl_node_in(t->g, n)[0];
    }
}

/* ---- slopes ----------------------------------------------------------------------------- */
/* Whether value v of graph g is the expression p of the pattern. The pattern's value x is bound[x]
 * of g once known (0: not yet). A constant is recognised by its value, for any form of
 * broadcast. */
static bool alike(const pl_graph *g, uint32_t v, const pl_graph *pattern, uint32_t p,
                  uint32_t *bound)
{
    double mine, wanted;
    if (bound[p]) return bound[p] == v;
    if (pl_fill_of(pattern, (pl_val){p}, &wanted))
        return pl_fill_of(g, (pl_val){v}, &mine) && mine == wanted;
    const pl_node_rec *a = &g->nodes[pl_producer(g, v)],
                      *b = &pattern->nodes[pl_producer(pattern, p)];
    if (b->op->flags & PL_OP_SOURCE) {
        bound[p] = v;
        return true;
    }
    if (a->op != b->op || a->n_in != b->n_in ||
        (b->op->attrs && !pl_attr_equal(b->op, a->attr, b->attr)))
        return false;
    for (uint32_t i = 0; i < b->n_in; i++)
        if (!alike(g, g->edges[a->in + i], pattern, pattern->edges[b->in + i], bound)) return false;
    bound[p] = v;
    return true;
}

/* The gradient of a function at x for a cotangent d, both of one type, as the function's rule
 * builds it. */
typedef struct pattern {
    pl_store *store;
    pl_graph *g;
    uint32_t x, d, root;
    uint32_t *bound;
} pattern;

static pl_status pattern_make(pl_arena *a, const pl_op *op, const pl_type *type, pattern *out)
{
    pl_val in[1], gout[1], gin[1] = {PL_NO_VAL}, y[1];
    bool need[1] = {true};
    memset(out, 0, sizeof *out);
    out->store = pl_store_new();
    out->g = out->store ? pl_graph_new(out->store) : NULL;
    if (!out->g) return PL_ERR_MEMORY;
    in[0] = pl_input(out->g, "x", *type);
    gout[0] = pl_input(out->g, "d", *type);
    y[0] = pl_build1(out->g, op, NULL, 1, in);
    pl_vjp v = {.g = out->g,
                .in = in,
                .out = y,
                .gout = gout,
                .gin = gin,
                .need = need,
                .n_in = 1,
                .n_out = 1};
    op->vjp(&v);
    PL_TRY(pl_graph_status(out->g));
    out->x = in[0].id;
    out->d = gout[0].id;
    out->root = gin[0].id;
    out->bound = pl_arena_new(a, uint32_t, out->g->n_vals);
    return out->bound ? PL_OK : PL_ERR_MEMORY;
}

static void pattern_free(pattern *p)
{
    pl_graph_free(p->g);
    pl_store_free(p->store);
}

/* Whether `val` is the slope of op at some x times `d`; sets *x. */
static pl_status is_slope(tailer *t, const pl_op *op, uint32_t val, uint32_t d, uint32_t *x)
{
    pattern p;
    pl_status rc = pattern_make(&t->c.mem, op, pl_type_of(t->g, val), &p);
    *x = 0;
    if (rc == PL_OK) {
        p.bound[p.d] = d;
        if (alike(t->g, val, p.g, p.root, p.bound)) *x = p.bound[p.x];
    }
    pattern_free(&p);
    return rc;
}

/* ---- finding tails ---------------------------------------------------------------------- */
/* One tail as it grows from its op. `val` is the last value; the tail continues at its only
 * reader. */
typedef struct growth {
    uint32_t head, val, other, kept, wide;
    pl_tail tail;
    uint32_t path[16]; /* nodes passed since the op */
    int n_path;
} growth;

static bool pass_node(growth *w, uint32_t node)
{
    enum { MOST = sizeof w->path / sizeof *w->path };
    if (w->n_path == MOST) return false;
    w->path[w->n_path++] = node;
    return true;
}

/* Returns the node that processes the value, past readings of the same elements and widening; 0 if
 * there is none. */
static uint32_t next_node(const tailer *t, growth *w, pl_dtype dtype)
{
    for (;;) {
        uint32_t n = only_reader(t, w->val);
        if (!n || (!is_same(t, n) && !is_cast(t, n, dtype, PL_F32))) return n;
        if (!pass_node(w, n)) return 0;
        w->val = out_of(t, n);
    }
}

/* Returns the cast to the dtype among several readers of an f32 value; 0 if there is none. */
static uint32_t rounding_of(const tailer *t, uint32_t val, pl_dtype dtype)
{
    for (uint32_t i = t->first[val]; i < t->first[val + 1]; i++)
        if (is_cast(t, t->list[i], PL_F32, dtype)) return t->list[i];
    return 0;
}

/* After a map: continues to where the value has the op's type again. False: it never has. */
static bool settle(const tailer *t, growth *w, pl_dtype dtype)
{
    while (dtype_of(t, w->val) != dtype) {
        uint32_t n = only_reader(t, w->val);
        if (!n) {
            n = rounding_of(t, w->val, dtype);
            w->wide = w->val;
        }
        if (!n || (!is_same(t, n) && !is_cast(t, n, PL_F32, dtype)) || !pass_node(w, n))
            return false;
        w->val = out_of(t, n);
    }
    return true;
}

static bool as_add(const tailer *t, growth *w, uint32_t node, pl_dtype dtype)
{
    const uint32_t *in = pl_node_in(t->g, node);
    if (w->tail.add || w->tail.fn != PL_SCALAR_NONE) return false;
    w->other = stored_root(t, in[in[0] == w->val], dtype);
    w->tail.add = true;
    return w->other && pl_producer(t->g, w->other) < w->head;
}

static bool as_function(growth *w, const pl_node_rec *r)
{
    if (w->tail.fn != PL_SCALAR_NONE || r->n_in != 1) return false;
    w->tail.fn = (pl_scalar_fn)r->op->scalar;
    w->tail.imm = r->op->immediate ? r->op->immediate(r->attr) : 0;
    return true;
}

/* Matches a product with the slope of a function that some node applies. */
static pl_status as_slope(tailer *t, growth *w, uint32_t node, pl_dtype dtype, bool *ok)
{
    *ok = false;
    if (w->tail.add || w->tail.fn != PL_SCALAR_NONE) return PL_OK;
    for (int i = 0; i < pl_op_count() && !*ok; i++) {
        const pl_op *op = pl_op_at(i);
        pl_tail tail = {.gradient = true,
                        .fn = (pl_scalar_fn)op->scalar,
                        .tf32 = t->o->tf32,
                        .least_bytes = t->o->fuse->tail_bytes};
        char attr[PL_TAIL_ATTR];
        pl_type in[8], out[PL_MAX_OUT];
        pl_call c;
        uint32_t x;
        pl_node_call(t->g, w->head, in, out, &c);
        if (!(op->flags & PL_OP_MAP) || op->max_in != 1 || !op->vjp || op->attrs) continue;
        if (!t->g->nodes[w->head].op->tail(&c, &tail, attr)) continue;
        PL_TRY(is_slope(t, op, out_of(t, node), w->val, &x));
        w->other = x ? stored_root(t, x, dtype) : 0;
        *ok = w->other && pl_producer(t->g, w->other) < w->head;
        if (*ok) w->tail = tail;
    }
    return PL_OK;
}

/* Records the tail if the op offers it. */
static pl_status offer(tailer *t, const growth *w, bool *ok)
{
    const pl_node_rec *r = &t->g->nodes[w->head];
    char attr[PL_TAIL_ATTR];
    pl_type in[8], out[PL_MAX_OUT];
    pl_call c;
    pl_node_call(t->g, w->head, in, out, &c);
    const pl_op *op = r->op->tail(&c, &w->tail, attr);
    *ok = op != NULL;
    if (!op || !is_stored(t, w->val)) return PL_OK;
    found *f = &t->at[w->head];
    *f = (found){op, pl_arena_alloc(&t->c.mem, op->attr_bytes), w->other, w->val, w->kept, w->wide};
    if (!f->attr) return PL_ERR_MEMORY;
    memcpy(f->attr, attr, op->attr_bytes);
    for (int i = 0; i < w->n_path; i++) t->gone[w->path[i]] = true;
    return PL_OK;
}

static pl_status grow(tailer *t, growth *w, pl_dtype dtype)
{
    bool ok = true;
    while (ok && !w->wide) {
        uint32_t n = next_node(t, w, dtype);
        if (!n || pl_role_of(t->g, n) != PL_ROLE_MAP || !pass_node(w, n)) break;
        const pl_node_rec *r = &t->g->nodes[n];
        if (r->op->flags & PL_OP_PLUS)
            ok = as_add(t, w, n, dtype);
        else if (r->op->flags & PL_OP_TIMES)
            PL_TRY(as_slope(t, w, n, dtype, &ok));
        else
            ok = as_function(w, r);
        if (!ok) break;
        w->val = r->out;
        if (settle(t, w, dtype)) PL_TRY(offer(t, w, &ok));
    }
    return PL_OK;
}

/* The op's result has several readers, one of which applies a function to it. */
static pl_status grow_kept(tailer *t, uint32_t head, uint32_t val, pl_dtype dtype, int depth)
{
    enum { MOST = 4 };
    for (uint32_t i = t->first[val]; i < t->first[val + 1] && depth < MOST; i++) {
        uint32_t n = t->list[i];
        if (is_same(t, n) || is_cast(t, n, dtype, PL_F32)) {
            PL_TRY(grow_kept(t, head, out_of(t, n), dtype, depth + 1));
            continue;
        }
        growth w = {
            .head = head,
            .kept = out_of(t, head),
            .tail = {.keep = true, .tf32 = t->o->tf32, .least_bytes = t->o->fuse->tail_bytes}};
        if (t->at[head].op || pl_role_of(t->g, n) != PL_ROLE_MAP ||
            !as_function(&w, &t->g->nodes[n]))
            continue;
        bool ok = pass_node(&w, n);
        w.val = out_of(t, n);
        if (settle(t, &w, dtype)) PL_TRY(offer(t, &w, &ok));
    }
    return PL_OK;
}

static pl_status find(tailer *t, uint32_t head)
{
    const pl_node_rec *r = &t->g->nodes[head];
    pl_dtype dtype = dtype_of(t, r->out);
    if (!r->op->tail || !t->live[head]) return PL_OK;
    growth w = {.head = head,
                .val = r->out,
                .tail = {.tf32 = t->o->tf32, .least_bytes = t->o->fuse->tail_bytes}};
    PL_TRY(grow(t, &w, dtype));
    if (!t->at[head].op) PL_TRY(grow_kept(t, head, r->out, dtype, 0));
    return PL_OK;
}

/* ---- the pass --------------------------------------------------------------------------- */
/* Reshapes a value to the type of another with as many elements. */
static pl_val shaped(pl_graph *g, pl_val v, pl_type like)
{
    pl_type t = pl_val_type(g, v);
    return pl_type_equal(&t, &like) ? v : pl_reshape(g, v, like.rank, like.dim);
}

static void build(tailer *t, uint32_t head)
{
    const found *f = &t->at[head];
    const pl_node_rec *r = &t->g->nodes[head];
    pl_graph *g = t->c.out;
    pl_val in[8], out[PL_MAX_OUT];
    uint32_t n = r->n_in;
    for (uint32_t i = 0; i < n; i++) in[i] = t->c.args[i];
    if (f->other) in[n++] = shaped(g, (pl_val){t->c.map[f->other]}, *pl_type_of(t->g, r->out));
    if (!pl_build(g, f->op, f->attr, (int)n, in, out).id) return;
    t->c.map[f->end] = shaped(g, out[0], *pl_type_of(t->g, f->end)).id;
    if (f->kept) t->c.map[f->kept] = out[1].id;
    if (f->wide) {
        pl_val end = shaped(g, out[0], *pl_type_of(t->g, f->end));
        t->c.map[f->wide] = shaped(g, pl_cast(g, end, PL_F32), *pl_type_of(t->g, f->wide)).id;
    }
}

static pl_status prepare(tailer *t)
{
    size_t nodes = t->g->n_nodes, vals = t->g->n_vals;
    t->live = pl_arena_new(&t->c.mem, bool, nodes);
    t->gone = pl_arena_new(&t->c.mem, bool, nodes);
    t->at = pl_arena_new(&t->c.mem, found, nodes);
    t->first = pl_arena_new(&t->c.mem, uint32_t, vals + 2);
    t->list = pl_arena_new(&t->c.mem, uint32_t, t->g->n_edges + 1);
    if (!t->live || !t->gone || !t->at || !t->first || !t->list) return PL_ERR_MEMORY;
    pl_graph_mark_needed(t->g, t->live);
    list_readers(t);
    pl_fuse_opts o = *t->o->fuse;
    o.product_bytes = 0; /* which values groups store does not depend on products that join them */
    return pl_fuse(t->g, &o, &t->us);
}

pl_status pl_pass_tail(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    tailer t = {.o = o, .g = in};
    pl_status rc = pl_rewrite_begin(&t.c, in);
    if (rc == PL_OK) rc = prepare(&t);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) rc = find(&t, n);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        if (!t.live[n] || t.gone[n]) continue;
        pl_rewrite_at(&t.c, n);
        if (t.at[n].op)
            build(&t, n);
        else
            pl_rewrite_node(&t.c, n);
        rc = t.c.out->status;
    }
    pl_units_free(t.us);
    return pl_rewrite_end(&t.c, rc, out);
}
