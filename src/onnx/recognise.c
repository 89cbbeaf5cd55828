/* recognise.c - finds the small graphs of patterns.def and builds one op for each.
 *
 * A value remembers the node that made it. When the last node of a pattern is built, the matcher
 * walks back along those notes; nodes that the op replaces are left without a reader, and the
 * engine's passes drop them. */
#include "onnx/recognise.h"

#include "onnx/emit/attention_op.h"
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

enum { MAX_NAMES = 12, MAX_NAME = 8 };

typedef struct match {
    char name[MAX_NAMES][MAX_NAME];
    pl_ox_val *value[MAX_NAMES];
    int n;
} match;

static pl_ox_val *bound(const match *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->name[i], name) == 0) return m->value[i];
    return NULL;
}

/* The number of #name; fallback: the pattern has none. */
static double number(const match *m, const char *name, double fallback)
{
    const pl_ox_val *v = bound(m, name);
    return v ? pl_ox_host_real(v, 0) : fallback;
}

/* ---- matching -------------------------------------------------------------------------------- */
static size_t word(const char *p)
{
    return strcspn(p, "(,)");
}

/* Skips one argument of a pattern. */
static const char *skip(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        if (depth == 0 && (*p == ',' || *p == ')')) break;
        depth += (*p == '(') - (*p == ')');
    }
    return p;
}

static bool bind(pl_ox_build *b, const char *p, size_t len, pl_ox_val *v, match *m)
{
    char name[MAX_NAME] = "";
    if (len >= MAX_NAME || m->n == MAX_NAMES) return false;
    memcpy(name, p, len);
    if (name[0] == '#' && !(pl_ox_known(b, v) && v->host.n == 1)) return false;
    if (name[0] == '@' && !(pl_ox_known(b, v) && v->host.i)) return false;
    pl_ox_val *old = bound(m, name);
    if (old) return old == v;
    memcpy(m->name[m->n], name, sizeof name);
    m->value[m->n++] = v;
    return true;
}

/* Returns whether the pattern at p matches v. Patterns are short: the depth is bounded by their
 * text. */
static bool fits(pl_ox_build *b, const char *p, pl_ox_val *v, match *m)
{
    size_t len = word(p);
    if (!v || v->item) return false;
    if (p[len] != '(') return bind(b, p, len, v, m);
    if (!v->op || strlen(v->op) != len || memcmp(v->op, p, len) != 0) return false;
    const char *first = p + len + 1, *second = skip(first);
    second = *second == ',' ? second + 1 : NULL;
    bool swaps =
        second && v->n_arg == 2 && (strcmp(v->op, "Add") == 0 || strcmp(v->op, "Mul") == 0);
    for (int turn = 0; turn < (swaps ? 2 : 1); turn++) {
        match before = *m;
        bool ok = true;
        const char *q = first;
        int i = 0;
        for (; ok && q; i++) {
            ok = i < v->n_arg && fits(b, q, v->arg[turn ? 1 - i : i], m);
            q = skip(q);
            q = *q == ',' ? q + 1 : NULL;
        }
        if (ok) return true;
        *m = before;
    }
    return false;
}

/* ---- ops ------------------------------------------------------------------------------------- */
static bool is(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* The effect of a known mask: nothing, or hides later tokens. */
typedef enum mask_kind { MASK_OTHER, MASK_NONE, MASK_CAUSAL } mask_kind;

static mask_kind mask_of(pl_ox_build *b, pl_ox_val *m, int64_t n, int64_t keys)
{
    if (!m) return MASK_NONE;
    if (m->one) m = m->one;
    if (!pl_ox_known(b, m) || !m->host.d || m->rank < 2) return MASK_OTHER;
    if (m->dim[m->rank - 2] != n || m->dim[m->rank - 1] != keys) return MASK_OTHER;
    bool none = true, causal = n == keys;
    for (int64_t i = 0; i < m->host.n; i++) {
        int64_t row = i / keys % n, col = i % keys;
        bool on = m->host.d[i] == 0, off = m->host.d[i] <= -1e4;
        none &= on;
        causal &= col <= row ? on : off;
    }
    return none ? MASK_NONE : causal ? MASK_CAUSAL : MASK_OTHER;
}

/* Softmax over the last axis. */
static bool over_last(const pl_ox_val *v)
{
    for (int i = 0; v->op && i < v->n_arg; i++)
        if (strcmp(v->op, "Softmax") == 0) return v->axis == -1 || v->axis == v->rank - 1;
    return false;
}

static pl_status attention(pl_ox_call *c, const match *m, double scale, bool *done)
{
    pl_ox_val *q = bound(m, "q"), *kt = bound(m, "k"), *v = bound(m, "v");
    if (q->rank != 4 || kt->rank != 4 || v->rank != 4 || !over_last(c->in[0])) return PL_OK;
    if (!pl_dtype_is_float(q->dtype) || q->dtype != v->dtype || q->dtype != kt->dtype) return PL_OK;
    if (q->dim[0] != kt->dim[0] || q->dim[0] != v->dim[0] || q->dim[1] != kt->dim[1] ||
        q->dim[1] != v->dim[1] || q->dim[3] != kt->dim[2] || kt->dim[3] != v->dim[2] ||
        q->dim[3] != v->dim[3] || scale == 0)
        return PL_OK;
    mask_kind mask = mask_of(c->b, bound(m, "m"), q->dim[2], kt->dim[3]);
    if (mask == MASK_OTHER) return PL_OK;
    /* the keys were transposed for the product: note the other order */
    pl_ox_any(c->b, kt);
    int perm[4];
    for (int i = 0; i < 4; i++) perm[i] = kt->perm[i] < 2 ? kt->perm[i] : 5 - kt->perm[i];
    pl_ox_val *k = pl_ox_val_new(c->b, kt->v, perm);
    if (!k) return PL_ERR_MEMORY;
    pl_ox_attention a = {.q = q, .k = k, .v = v, .scale = scale, .causal = mask == MASK_CAUSAL};
    *done = true;
    return pl_ox_set(c, 0, pl_ox_attend(c->b, &a, NULL), (const int[]){0, 2, 1, 3});
}

typedef pl_status build_fn(pl_ox_call *c, const match *m, bool *done);

static pl_status build_attention(pl_ox_call *c, const match *m, bool *done)
{
    return attention(c, m, number(m, "#a", 1) * number(m, "#b", 1), done);
}

static pl_status build_attention_over(pl_ox_call *c, const match *m, bool *done)
{
    return attention(c, m, 1 / number(m, "#a", 1), done);
}

/* Softmax with 0 in place of NaN, which a mask gives that hides a whole row. A mask that is known
 * to hide none needs no guard. */
static pl_status build_guard(pl_ox_call *c, const match *m, bool *done)
{
    pl_ox_val *x = bound(m, "x"), *p = c->in[2];
    int64_t n = p->rank > 1 ? p->dim[p->rank - 2] : 1, keys = p->rank ? p->dim[p->rank - 1] : 1;
    if (c->in[0]->arg[0]->axis != p->axis || number(m, "#z", 1) != 0 ||
        mask_of(c->b, bound(m, "m"), n, keys) == MASK_OTHER)
        return PL_OK;
    /* without a mask: x itself may be a sum with one */
    if (!bound(m, "m") && x->op && strcmp(x->op, "Add") == 0) return PL_OK;
    *done = true;
    return pl_ox_set_val(c, 0, p);
}

/* The last two of four dimensions swapped by way of three: a change of order alone. */
static pl_status build_swap(pl_ox_call *c, const match *m, bool *done)
{
    pl_ox_val *x = bound(m, "x"), *t = c->in[0], *flat = t->arg[0], *to = bound(m, "@t");
    int perm[4];
    if (x->rank != 4 || flat->rank != 3 || t->rank != 3 || to->host.n != 4 ||
        flat->dim[0] != x->dim[0] * x->dim[1] || flat->dim[1] != x->dim[2])
        return PL_OK;
    for (int i = 0; i < 3; i++)
        if (t->perm[i] != (flat->perm[i] ? 3 - flat->perm[i] : 0)) return PL_OK;
    const int64_t want[] = {x->dim[0], x->dim[1], x->dim[3], x->dim[2]};
    for (int i = 0; i < 4; i++)
        if (to->host.i[i] > 0 && to->host.i[i] != want[i]) return PL_OK;
    pl_val v = pl_ox_any(c->b, x);
    for (int i = 0; i < 4; i++) perm[i] = x->perm[i] < 2 ? x->perm[i] : 5 - x->perm[i];
    *done = true;
    return pl_ox_set(c, 0, v, perm);
}

/* An elementwise function of x, in x's order. */
static pl_status set_unary(pl_ox_call *c, const match *m, pl_val (*fn)(pl_graph *, pl_val),
                           bool *done)
{
    pl_ox_val *x = bound(m, "x");
    if (!pl_dtype_is_float(x->dtype)) return PL_OK;
    *done = true;
    pl_val v = pl_ox_any(c->b, x);
    return pl_ox_set(c, 0, fn(c->g, v), x->perm);
}

static pl_status build_gelu(pl_ox_call *c, const match *m, bool *done)
{
    if (!is(number(m, "#s", 0), 1.4142135623730951) || !is(number(m, "#one", 0), 1) ||
        !is(number(m, "#half", 0), 0.5))
        return PL_OK;
    return set_unary(c, m, pl_gelu, done);
}

static pl_status build_gelu_times(pl_ox_call *c, const match *m, bool *done)
{
    if (!is(number(m, "#s", 0), 0.7071067811865476) || !is(number(m, "#one", 0), 1) ||
        !is(number(m, "#half", 0), 0.5))
        return PL_OK;
    return set_unary(c, m, pl_gelu, done);
}

static pl_status build_gelu_tanh(pl_ox_call *c, const match *m, bool *done)
{
    if (!is(number(m, "#half", 0), 0.5) || !is(number(m, "#p", 0), 3) ||
        !is(number(m, "#c", 0), 0.044715) || !is(number(m, "#k", 0), 0.7978845608028654) ||
        !is(number(m, "#one", 0), 1))
        return PL_OK;
    return set_unary(c, m, pl_gelu_tanh, done);
}

static pl_status build_silu(pl_ox_call *c, const match *m, bool *done)
{
    return set_unary(c, m, pl_silu, done);
}

/* Sets the axes of a norm, those along which its mean has one element. */
static bool norm_axes(const pl_ox_val *mean, const pl_ox_val *x, uint32_t *axes)
{
    if (mean->rank != x->rank) return false;
    *axes = 0;
    for (int i = 0; i < x->rank; i++) {
        if (mean->dim[i] == 1 && x->dim[i] != 1)
            *axes |= PL_AXIS(pl_ox_axis(x, i));
        else if (mean->dim[i] != x->dim[i])
            return false;
    }
    return *axes != 0;
}

static pl_status build_layer_norm(pl_ox_call *c, const match *m, bool *done)
{
    pl_ox_val *x = bound(m, "x"), *mean = c->in[0]->arg[1];
    const pl_ox_val *square = c->in[1]->arg[0]; /* Add(mean of squares, epsilon) */
    const pl_ox_val *var = square->arg[0]->op && strcmp(square->arg[0]->op, "ReduceMean") == 0
                               ? square->arg[0]
                               : square->arg[1];
    uint32_t axes, again;
    pl_ox_any(c->b, x);
    if (!is(number(m, "#p", 0), 2) || !norm_axes(mean, x, &axes) || !norm_axes(var, x, &again) ||
        axes != again || (x->dtype != PL_F32 && x->dtype != PL_F64))
        return PL_OK;
    pl_val mu, v, in = pl_ox_any(c->b, x);
    pl_moments(c->g, in, axes, true, &mu, &v);
    pl_val scale = pl_rsqrt(c->g, pl_shift(c->g, v, number(m, "#e", 0)));
    *done = true;
    return pl_ox_set(c, 0, pl_mul(c->g, pl_sub(c->g, in, mu), scale), x->perm);
}

static const pl_ox_val *mean_below(const pl_ox_val *v)
{
    for (int depth = 0; v && depth < 4; depth++) {
        if (v->op && strcmp(v->op, "ReduceMean") == 0) return v;
        const pl_ox_val *next = NULL;
        for (int i = 0; i < v->n_arg; i++)
            if (v->arg[i]->op && !v->arg[i]->known) next = v->arg[i];
        v = next;
    }
    return NULL;
}

static pl_status build_rms_norm(pl_ox_call *c, const match *m, bool *done)
{
    pl_ox_val *x = bound(m, "x");
    const pl_ox_val *mean = mean_below(c->in[c->in[0] == x ? 1 : 0]);
    uint32_t axes;
    pl_val in = pl_ox_any(c->b, x);
    if (!is(number(m, "#p", 0), 2) || !mean || !norm_axes(mean, x, &axes) ||
        (x->dtype != PL_F32 && x->dtype != PL_F64))
        return PL_OK;
    pl_val power = pl_mean(c->g, pl_square(c->g, in), axes, true);
    pl_val scale = pl_rsqrt(c->g, pl_shift(c->g, power, number(m, "#e", 0)));
    *done = true;
    return pl_ox_set(c, 0, pl_mul(c->g, in, scale), x->perm);
}

/* Groups of channels as instances: [N,C,s..] to [N,G,..], normalised, and back. */
static pl_status build_group_norm(pl_ox_call *c, const match *m, bool *done)
{
    pl_ox_val *x = bound(m, "x"), *norm = c->in[0], *inner = norm->arg[0];
    if (x->rank < 3 || inner->rank != 3 || inner->dim[0] != x->dim[0] || !inner->dim[1] ||
        x->dim[1] % inner->dim[1])
        return PL_OK;
    int64_t want[PL_MAX_RANK], n = bound(m, "@t")->host.n;
    if (n != x->rank) return PL_OK;
    for (int i = 0; i < n; i++) {
        want[i] = bound(m, "@t")->host.i[i];
        if (want[i] > 0 && want[i] != x->dim[i]) return PL_OK;
    }
    *done = true;
    return pl_ox_group_norm(c, x, inner->dim[1], bound(m, "a"), bound(m, "b"), norm->number);
}

/* ---- the table ------------------------------------------------------------------------------- */
static const struct {
    build_fn *build;
    const char *graph, *example;
} table[] = {
#define PL_OX_PATTERN(build, graph, example) {build_##build, graph, example},
#include "onnx/patterns.def"
};
enum { N_PATTERNS = sizeof table / sizeof *table };

bool pl_ox_pattern_get(int i, const char **graph, const char **example)
{
    if (i < 0 || i >= N_PATTERNS) return false;
    *graph = table[i].graph;
    *example = table[i].example;
    return true;
}

pl_status pl_ox_recognise(pl_ox_call *c, bool *done)
{
    pl_ox_val root = {.op = c->op, .arg = c->in, .n_arg = c->n_in};
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i]) return PL_OK;
    for (int i = 0; i < N_PATTERNS && !*done; i++) {
        match m = {.n = 0};
        if (strncmp(table[i].graph, c->op, strlen(c->op)) != 0) continue;
        if (fits(c->b, table[i].graph, &root, &m)) PL_TRY(table[i].build(c, &m, done));
        if (*done) c->b->recognised++;
    }
    return PL_OK;
}
