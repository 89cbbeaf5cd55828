/* precision.c - mixed precision: products in 16 bits, activations stored in 16 bits, the rest in
 * f32.
 *
 * Model code, gradients and optimiser are all written in f32; this pass reads the finished program.
 * It runs after differentiation, not before: a gradient is ordinary nodes, so the same rules serve
 * forward and backward, sums of cotangents stay in f32, no value that a recipe holds changes its
 * type, and a gradient of a gradient needs nothing special.
 *
 * Two things happen, each decided by the graph alone, so that grouping and recompute change no bit:
 *
 *   lower   An op declares its width (pl_op.width). LOW ops (convolution, product, attention and
 *           their gradients) get 16-bit operands and give 16-bit results; their kernels accumulate
 *           in f32. FOLLOW ops (pools, moves) do the same when their input comes from a LOW op
 *           through maps. Everything else computes in f32. A weight is cast once, from its f32
 *           master.
 *   store   Maps and reductions compute in f32 registers; only what goes to memory matters. The
 *           program is grouped (fuse.h) as the device groups it, and a large value that one group
 *           stores for another is rounded: all its readers see the 16-bit value. Casts inside a
 *           group are free. Rounding makes further ops follow, so this repeats until nothing
 *           changes.
 *
 *       conv ─f16─► [f32: norm, activation] ─f16─► conv         [ ] one group, one pass over memory
 *
 * What stays in f32: scopes marked by pl_scope_full (losses) with their gradients, results of
 * reductions, values on the way to an f32 kernel, assignment or output through maps alone
 * (gradients on the way to the optimiser), and what is too small to matter.
 *
 * A kernel that stays in f32 but reads an operand of any float type, as updates of weights read a
 * gradient, gets a 16-bit value as it is stored, where the device says that costs nothing
 * (`narrow`): widening is exact, and the wide form is not stored.
 *
 * A value of the old graph has two forms in the new one, created on demand: f32 (`own`) and 16 bits
 * (`half`). It is `native` when the 16-bit form is the value and the f32 form only widens it.
 *
 * Cost: O(nodes + edges) per round, and one grouping; up to ROUNDS rounds.
 */
#include "pass/pass.h"

#include "base/err.h"
#include "ir/group/fused.h"
#include "pass/fuse/fuse.h"
#include "pass/rewrite.h"
#include "plimsoll_ops.h"

#include <string.h>

enum {
    ROUNDS = 8,
    LARGE = 4096,  /* elements; storing fewer in 16 bits saves nothing */
    SPREAD = 65536 /* elements; groups include smaller values whole */
};

/* ---- facts of the graph ----------------------------------------------------------------- */
static bool is_full(const pl_graph *g, uint32_t node)
{
    return g->scopes[g->nodes[node].scope].full;
}

static pl_dtype dtype_of(const pl_graph *g, uint32_t val)
{
    return g->vals[val].type.dtype;
}

/* Maps, and readings that a group follows: their results are expressions, stored only if
 * necessary. */
static bool is_expression(const pl_graph *g, uint32_t node)
{
    pl_role r = pl_role_of(g, node);
    return r == PL_ROLE_MAP || r == PL_ROLE_AFFINE || r == PL_ROLE_SAME;
}

static bool is_cast(const pl_graph *g, uint32_t node)
{
    return g->nodes[node].op->scalar == PL_SCALAR_CAST;
}

/* ---- lowering --------------------------------------------------------------------------- */
typedef struct lowering {
    pl_rewrite c; /* its map is `own` */
    const pl_graph *in;
    pl_graph *out;
    pl_dtype low;
    const bool *store;    /* per old value: rounded though its op computes in f32; NULL: none */
    uint32_t *own, *half; /* new values, 0 = not made */
    bool *native;
    bool *tinted; /* old value: comes from 16 bits through expressions */
    bool narrow;  /* f32 kernels read 16-bit operands where their shape rule accepts them */
} lowering;

static pl_val own_of(lowering *w, uint32_t val)
{
    if (!w->own[val]) w->own[val] = pl_cast(w->out, (pl_val){w->half[val]}, PL_F32).id;
    return (pl_val){w->own[val]};
}

static pl_val half_of(lowering *w, uint32_t val)
{
    if (!w->half[val]) w->half[val] = pl_cast(w->out, (pl_val){w->own[val]}, w->low).id;
    return (pl_val){w->half[val]};
}

static void set_native(lowering *w, uint32_t val, uint32_t half)
{
    w->half[val] = half;
    w->native[val] = w->tinted[val] = true;
    w->own[val] = dtype_of(w->in, val) == w->low ? half : 0;
}

/* A value that is broadcast over many positions is widened before, where that takes few operations;
 * a large value is broadcast in its stored type. */
static bool spreads_little(const pl_graph *g, uint32_t node)
{
    int64_t from = pl_type_elems(pl_type_of(g, pl_node_in(g, node)[0]));
    return from < SPREAD && pl_type_elems(pl_type_of(g, g->nodes[node].out)) > from;
}

/* Whether the node, which is f32, should compute with 16 bits. */
static bool goes_low(const lowering *w, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(w->in, node);
    const uint32_t *in = pl_node_in(w->in, node);
    if (r->op->width == PL_WIDTH_FULL || is_full(w->in, node)) return false;
    bool expression = is_expression(w->in, node);
    if (expression && spreads_little(w->in, node)) return false;
    for (uint32_t i = 0; i < r->n_in; i++) {
        if (dtype_of(w->in, in[i]) != PL_F32 || (i < 8 && r->op->full_in >> i & 1)) continue;
        if (r->op->width == PL_WIDTH_LOW) return true;
        if (expression ? w->native[in[i]] : w->tinted[in[i]]) return true;
    }
    return false;
}

/* A cast between f32 and 16 bits is one of the two forms of its operand. */
static bool take_form(lowering *w, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(w->in, node);
    uint32_t from = pl_node_in(w->in, node)[0], to = r->out;
    if (!is_cast(w->in, node)) return false;
    pl_dtype a = dtype_of(w->in, from), b = dtype_of(w->in, to);
    if (a == PL_F32 && b == w->low)
        set_native(w, to, half_of(w, from).id);
    else if (a == w->low && b == PL_F32)
        set_native(w, to, w->half[from]);
    else
        return false;
    return true;
}

static void note_output(lowering *w, uint32_t node, uint32_t val, uint32_t made, bool tinted)
{
    pl_dtype was = dtype_of(w->in, val), is = dtype_of(w->out, made);
    if (is == w->low && (was == PL_F32 || was == w->low)) {
        set_native(w, val, made);
        return;
    }
    w->own[val] = made;
    w->tinted[val] = tinted && was == PL_F32 && is_expression(w->in, node) && !is_full(w->in, node);
    if (!w->store || !w->store[val]) return;
    set_native(w, val, half_of(w, val).id);
}

/* Whether a kernel that computes in f32 accepts operand i in 16 bits, with results of the same
 * types. */
static bool accepts_half(const lowering *w, uint32_t node, uint32_t i)
{
    enum { MOST_IN = 16 };
    const pl_node_rec *r = pl_node_get(w->in, node);
    const uint32_t *in = pl_node_in(w->in, node);
    pl_type type[MOST_IN], out[PL_MAX_OUT];
    _Alignas(16) char attr[PL_TAIL_ATTR];
    bool kernel = pl_role_of(w->in, node) == PL_ROLE_KERNEL && !(r->op->flags & PL_OP_EFFECT);
    if (!kernel || !r->op->infer || r->n_in > MOST_IN || r->op->attr_bytes > sizeof attr)
        return false;
    for (uint32_t k = 0; k < r->n_in; k++) type[k] = *pl_type_of(w->in, in[k]);
    type[i].dtype = w->low;
    if (r->attr) memcpy(attr, r->attr, r->op->attr_bytes);
    if (r->op->infer(type, (int)r->n_in, r->attr ? attr : NULL, out) != PL_OK) return false;
    for (uint32_t k = 0; k < r->n_out; k++)
        if (!pl_type_equal(&out[k], pl_type_of(w->in, r->out + k))) return false;
    return true;
}

static void lower_node(lowering *w, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(w->in, node);
    const uint32_t *in = pl_node_in(w->in, node);
    pl_rewrite_at(&w->c, node);
    if (take_form(w, node)) return;
    bool low = goes_low(w, node), tinted = false;
    for (uint32_t i = 0; i < r->n_in; i++) {
        bool full = i < 8 && r->op->full_in >> i & 1;
        tinted |= w->tinted[in[i]];
        bool half = low && !full && dtype_of(w->in, in[i]) == PL_F32;
        if (!low && w->narrow && w->native[in[i]] && dtype_of(w->in, in[i]) == PL_F32)
            half = accepts_half(w, node, i);
        w->c.args[i] = half ? half_of(w, in[i]) : own_of(w, in[i]);
    }
    uint32_t made = pl_build(w->out, r->op, r->attr, r->n_in, w->c.args, NULL).id;
    if (!made) return;
    for (uint32_t k = 0; k < r->n_out; k++)
        note_output(w, node, r->out + k, w->out->nodes[made].out + k, tinted);
}

static pl_status lower(lowering *w)
{
    const pl_graph *in = w->in = w->c.in;
    w->out = w->c.out;
    w->own = w->c.map;
    w->half = pl_arena_new(&w->c.mem, uint32_t, in->n_vals);
    w->native = pl_arena_new(&w->c.mem, bool, in->n_vals);
    w->tinted = pl_arena_new(&w->c.mem, bool, in->n_vals);
    if (!w->half || !w->native || !w->tinted) return PL_ERR_MEMORY;
    for (uint32_t n = 1; n < in->n_nodes && w->out->status == PL_OK; n++) lower_node(w, n);
    return PL_OK;
}

/* One round: a new graph over the same store. */
static pl_status lower_graph(const pl_graph *in, const pl_pass_opts *o, const bool *store,
                             pl_graph **out)
{
    lowering w = {.low = o->low, .store = store, .narrow = o->tails};
    pl_status rc = pl_rewrite_begin(&w.c, in);
    if (rc == PL_OK) rc = lower(&w);
    return pl_rewrite_end(&w.c, rc, out);
}

/* ---- stored values ---------------------------------------------------------------------- */
/* Values that 16 bits reach through expressions. */
static void mark_tinted(const pl_graph *g, pl_dtype low, bool *tinted)
{
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        bool any = false;
        for (uint32_t i = 0; i < r->n_in; i++) any |= tinted[pl_node_in(g, n)[i]];
        any = any && (is_cast(g, n) || !is_full(g, n)) && is_expression(g, n);
        for (uint32_t k = 0; k < r->n_out; k++)
            tinted[r->out + k] = dtype_of(g, r->out + k) == low || any;
    }
}

/* Marks values that go through expressions to something that reads f32 from memory. */
static void mark_bound(const pl_graph *g, bool *bound)
{
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--) {
        const pl_node_rec *r = pl_node_get(g, n);
        pl_role role = pl_role_of(g, n);
        bool binds = role == PL_ROLE_KERNEL || r->op->flags & PL_OP_EFFECT;
        if (is_expression(g, n)) binds = bound[r->out];
        for (uint32_t i = 0; binds && i < r->n_in; i++) {
            uint32_t v = pl_node_in(g, n)[i];
            if (dtype_of(g, v) == PL_F32) bound[v] = true;
        }
    }
}

/* Whether the value only widens a 16-bit value: rounding it again changes nothing. */
static bool is_widened(const pl_graph *g, pl_dtype low, uint32_t val)
{
    uint32_t node = pl_producer(g, val);
    return is_cast(g, node) && dtype_of(g, pl_node_in(g, node)[0]) == low;
}

/* Finds large f32 values that one unit stores for another; *n counts them. */
static pl_status find_stored(const pl_graph *g, const pl_pass_opts *o, pl_arena *a, bool **store,
                             uint32_t *n)
{
    bool *tinted = pl_arena_new(a, bool, g->n_vals), *bound = pl_arena_new(a, bool, g->n_vals);
    *store = pl_arena_new(a, bool, g->n_vals);
    *n = 0;
    if (!tinted || !bound || !*store) return PL_ERR_MEMORY;
    mark_tinted(g, o->low, tinted);
    mark_bound(g, bound);
    pl_units *us;
    PL_TRY(o->fuse ? pl_fuse(g, o->fuse, &us) : pl_units_single(g, &us));
    for (uint32_t u = 0; u < us->n; u++) {
        for (uint32_t k = 0; k < us->unit[u].n_out; k++) {
            uint32_t v = us->unit[u].out[k];
            const pl_type *t = pl_type_of(g, v);
            if (t->dtype != PL_F32 || pl_type_elems(t) < LARGE) continue;
            if (!tinted[v] || bound[v] || is_widened(g, o->low, v)) continue;
            (*store)[v] = true;
            ++*n;
        }
    }
    pl_units_free(us);
    return PL_OK;
}

/* Grouping depends on what simplify leaves, so rounds use simplified graphs. */
static pl_status tidy(pl_graph **g)
{
    int before;
    do {
        pl_graph *next;
        before = pl_graph_nodes(*g);
        PL_TRY(pl_pass_simplify(*g, NULL, &next));
        pl_graph_free(*g);
        *g = next;
    } while (pl_graph_nodes(*g) < before);
    return PL_OK;
}

/* Runs one round on *g, which is replaced; *done when nothing was left to round. */
static pl_status round_stored(pl_graph **g, const pl_pass_opts *o, bool *done)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_graph *next = NULL;
    bool *store;
    uint32_t n;
    pl_status rc = tidy(g);
    if (rc == PL_OK) rc = find_stored(*g, o, &scratch, &store, &n);
    if (rc == PL_OK && n) rc = lower_graph(*g, o, store, &next);
    pl_arena_release(&scratch);
    if (rc != PL_OK) return rc;
    *done = n == 0;
    if (*done) return PL_OK;
    pl_graph_free(*g);
    *g = next;
    return PL_OK;
}

pl_status pl_pass_precision(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    pl_graph *g = NULL;
    bool done = false;
    PL_TRY(lower_graph(in, o, NULL, &g));
    for (int i = 0; i < ROUNDS && !done; i++) {
        pl_status rc = round_stored(&g, o, &done);
        if (rc != PL_OK) {
            pl_graph_free(g);
            return rc;
        }
    }
    *out = g;
    return PL_OK;
}
