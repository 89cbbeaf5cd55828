/* emit_loss.c - losses that the standard has, and Einsum. */
#include "onnx/emit/emit.h"

#include <string.h>

/* ---- losses ---------------------------------------------------------------------------------- */
/* log_prob [N, s.., C], target [N, s..]. Rows whose target is ignore_index do not count. */
static pl_status nll(pl_ox_call *c, pl_val log_prob, pl_ox_val *target)
{
    pl_graph *g = c->g;
    pl_type t = pl_val_type(g, log_prob);
    int r = t.rank;
    if (target->rank != r - 1)
        return pl_ox_fail(c, PL_ERR_SHAPE, "scores of %d and a target of %d dimensions", r,
                          target->rank);
    const pl_ox_attr *a = pl_ox_attr_find(c, "ignore_index");
    pl_val y = pl_ox_plain(c->b, target), counts = PL_NO_VAL;
    if (a) {
        pl_val valid = pl_ne(g, y, pl_full_like(g, y, (double)a->i));
        y = pl_select(g, valid, y, pl_full_like(g, y, 0));
        counts = pl_cast(g, valid, t.dtype);
    }
    pl_val picked = pl_squeeze(g, pl_take_along(g, log_prob, pl_unsqueeze(g, y, -1), r - 1), r - 1);
    pl_val loss = pl_neg(g, picked);
    if (pl_ox_has(c, 2)) {
        pl_val w = pl_ox_cast(g, pl_ox_plain(c->b, c->in[2]), t.dtype);
        w = pl_take(g, w, y);
        counts = pl_val_ok(counts) ? pl_mul(g, counts, w) : w;
    }
    if (pl_val_ok(counts)) loss = pl_mul(g, loss, counts);
    if (pl_ox_attr_is(c, "reduction", "mean", "none")) return pl_ox_set(c, 0, loss, NULL);
    pl_val sum = pl_sum(g, loss, PL_AXES_ALL, false);
    if (pl_ox_attr_is(c, "reduction", "mean", "sum")) return pl_ox_set(c, 0, sum, NULL);
    if (!pl_val_ok(counts)) return pl_ox_set(c, 0, pl_mean(g, loss, PL_AXES_ALL, false), NULL);
    return pl_ox_set(c, 0, pl_div(g, sum, pl_sum(g, counts, PL_AXES_ALL, false)), NULL);
}

pl_status pl_ox_emit_nll_loss(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    if (!pl_ox_has(c, 1) || v->rank < 1) return pl_ox_fail(c, PL_ERR_FILE, "target is missing");
    return nll(c, v->rank == 1 ? x : pl_ox_last(c->b, v), c->in[1]);
}

pl_status pl_ox_emit_cross_entropy(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    if (!pl_ox_has(c, 1) || v->rank < 2) return pl_ox_fail(c, PL_ERR_FILE, "target is missing");
    pl_val log_prob = pl_log_softmax(c->g, pl_ox_last(c->b, v), v->rank - 1);
    pl_ox_last_perm(v->rank, perm);
    if (c->n_out > 1) PL_TRY(pl_ox_set(c, 1, log_prob, perm));
    return nll(c, log_prob, c->in[1]);
}

/* ---- einsum ---------------------------------------------------------------------------------- */
enum { MAX_LABELS = 2 * PL_MAX_RANK };

/* A value and the label of each of its dimensions. Labels of an ellipsis are 1, 2, ... */
typedef struct term {
    pl_val v;
    int n;
    char label[MAX_LABELS];
} term;

static int find(const term *t, char label)
{
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label) return i;
    return -1;
}

/* Reads the labels of one term; dots: the number of dimensions that an ellipsis covers. */
static bool read_term(const char *p, const char *end, int rank, int most_dots, term *t)
{
    int named = 0;
    bool dots = false;
    for (const char *q = p; q < end; q++) named += *q != ' ' && *q != '.';
    int n_dots = rank >= 0 ? rank - named : most_dots;
    t->n = 0;
    for (const char *q = p; q < end; q++) {
        if (*q == ' ') continue;
        if (t->n + 1 >= MAX_LABELS) return false;
        if (*q == '.') {
            if (end - q < 3 || q[1] != '.' || q[2] != '.' || dots || n_dots < 0) return false;
            dots = true;
            for (int k = 0; k < n_dots && t->n + 1 < MAX_LABELS; k++)
                t->label[t->n++] = (char)(1 + most_dots - n_dots + k);
            q += 2;
            continue;
        }
        t->label[t->n++] = *q;
    }
    return rank < 0 || t->n == rank;
}

/* Keeps the diagonal of dimensions with the same label. */
static void diagonal(pl_graph *g, term *t)
{
    for (int i = 0; i < t->n; i++)
        for (int j = i + 1; j < t->n; j++) {
            if (t->label[i] != t->label[j]) continue;
            pl_type y = pl_val_type(g, t->v);
            y.dtype = PL_I32;
            pl_val on = pl_eq(g, pl_iota(g, y, i), pl_iota(g, y, j));
            pl_val x = pl_select(g, on, t->v, pl_full_like(g, t->v, 0));
            t->v = pl_sum(g, x, PL_AXIS(j), false);
            memmove(t->label + j, t->label + j + 1, (size_t)(t->n - j - 1));
            t->n--;
            j--;
        }
}

/* Sums over the labels that no later term needs. */
static void sum_out(pl_graph *g, term *t, const term *a, const term *b)
{
    for (int i = t->n - 1; i >= 0; i--) {
        if (find(a, t->label[i]) >= 0 || (b && find(b, t->label[i]) >= 0)) continue;
        t->v = pl_sum(g, t->v, PL_AXIS(i), false);
        memmove(t->label + i, t->label + i + 1, (size_t)(t->n - i - 1));
        t->n--;
    }
}

/* Orders the dimensions by the labels of `to`, with a dimension of 1 for labels that t does not
 * have. */
static pl_val ordered(pl_graph *g, const term *t, const term *to)
{
    int perm[MAX_LABELS], n = 0;
    int64_t dim[MAX_LABELS];
    pl_type y = pl_val_type(g, t->v);
    for (int i = 0; i < to->n; i++) {
        int at = find(t, to->label[i]);
        dim[i] = at < 0 ? 1 : y.dim[at];
        if (at >= 0) perm[n++] = at;
    }
    bool moves = false;
    for (int i = 0; i < n; i++) moves |= perm[i] != i;
    pl_val x = moves ? pl_permute(g, t->v, perm) : t->v;
    return n == to->n ? x : pl_reshape(g, x, to->n, dim);
}

/* The product of two terms: labels of both that are not kept are summed by a matrix product. */
static pl_status multiply(pl_ox_call *c, term *a, term *b, const term *keep)
{
    pl_graph *g = c->g;
    term batch = {0}, left = {0}, right = {0}, inner = {0};
    for (int i = 0; i < a->n; i++) {
        char l = a->label[i];
        term *to = find(b, l) < 0 ? &left : find(keep, l) >= 0 ? &batch : &inner;
        to->label[to->n++] = l;
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->label[i]) < 0) right.label[right.n++] = b->label[i];
    if (batch.n + left.n + right.n > PL_MAX_RANK || batch.n + inner.n + left.n > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "more than %d dimensions", PL_MAX_RANK);
    const term *orders[2][3] = {{&batch, &left, &inner}, {&batch, &inner, &right}};
    pl_val m[2];
    int64_t wide[MAX_LABELS], sizes[2][3] = {{1, 1, 1}, {1, 1, 1}};
    pl_type y[2] = {pl_val_type(g, a->v), pl_val_type(g, b->v)};
    for (int i = 0; i < batch.n; i++) { /* dimensions of 1 stretch */
        int64_t p = y[0].dim[find(a, batch.label[i])], q = y[1].dim[find(b, batch.label[i])];
        wide[i] = p > q ? p : q;
    }
    for (int k = 0; k < 2; k++) {
        term *t = k ? b : a, order = {0};
        int64_t dim[MAX_LABELS];
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < orders[k][s]->n; i++)
                order.label[order.n++] = orders[k][s]->label[i];
        m[k] = ordered(g, t, &order);
        pl_type type = pl_val_type(g, m[k]);
        int at = 0;
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < orders[k][s]->n; i++, at++) {
                dim[at] = s == 0 ? wide[i] : type.dim[at];
                sizes[k][s] *= dim[at];
            }
        if (memcmp(dim, type.dim, (size_t)type.rank * sizeof *dim) != 0)
            m[k] = pl_broadcast(g, m[k], type.rank, dim);
        m[k] = pl_reshape(g, m[k], 3, sizes[k]);
    }
    int64_t out[MAX_LABELS];
    term result = {0};
    for (int i = 0; i < batch.n; i++)
        out[result.n] = wide[i], result.label[result.n++] = batch.label[i];
    for (int i = 0; i < left.n; i++)
        out[result.n] = y[0].dim[find(a, left.label[i])], result.label[result.n++] = left.label[i];
    for (int i = 0; i < right.n; i++)
        out[result.n] = y[1].dim[find(b, right.label[i])],
        result.label[result.n++] = right.label[i];
    result.v = pl_reshape(g, pl_ox_product(g, m[0], m[1], false, false), result.n, out);
    *a = result;
    return PL_OK;
}

/* The result without an arrow: the ellipsis, then labels that occur once, sorted. */
static void implicit(const term *t, int n, int dots, term *out)
{
    out->n = 0;
    for (int k = 0; k < dots; k++) out->label[out->n++] = (char)(1 + k);
    for (int l = 'A'; l <= 'z'; l++) {
        int seen = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < t[i].n; j++) seen += t[i].label[j] == l;
        if (seen == 1 && out->n < PL_MAX_RANK) out->label[out->n++] = (char)l;
    }
}

pl_status pl_ox_emit_einsum(pl_ox_call *c)
{
    const char *p = pl_ox_attr_text(c, "equation", ""), *arrow = strstr(p, "->");
    const char *end = arrow ? arrow : p + strlen(p);
    term *t = pl_arena_new(&c->b->mem, term, c->n_in + 1), out = {0};
    int dots = 0;
    if (!t) return PL_ERR_MEMORY;
    for (int pass = 0; pass < 2; pass++) { /* the first finds the longest ellipsis */
        const char *q = p;
        for (int i = 0; i < c->n_in; i++) {
            const char *comma = memchr(q, ',', (size_t)(end - q)), *stop = comma ? comma : end;
            if (!c->in[i] || (!comma && i + 1 < c->n_in) ||
                !read_term(q, stop, c->in[i]->rank, pass ? dots : c->in[i]->rank, &t[i]))
                return pl_ox_fail(c, PL_ERR_FILE, "the equation '%s' does not fit its inputs", p);
            int named = 0;
            for (const char *s = q; s < stop; s++) named += *s != ' ' && *s != '.';
            if (!pass && c->in[i]->rank - named > dots) dots = c->in[i]->rank - named;
            q = comma ? comma + 1 : end;
        }
    }
    if (!arrow)
        implicit(t, c->n_in, dots, &out);
    else if (!read_term(arrow + 2, arrow + strlen(arrow), -1, dots, &out) || out.n > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_FILE, "the equation '%s' is not understood", p);
    for (int i = 0; i < c->n_in; i++) {
        t[i].v = pl_ox_plain(c->b, c->in[i]);
        diagonal(c->g, &t[i]);
    }
    for (int i = 1; i < c->n_in; i++) {
        term keep = out; /* labels that the result and later terms need */
        for (int j = i + 1; j < c->n_in; j++)
            for (int k = 0; k < t[j].n; k++)
                if (find(&keep, t[j].label[k]) < 0 && keep.n + 1 < MAX_LABELS)
                    keep.label[keep.n++] = t[j].label[k];
        sum_out(c->g, &t[0], &keep, &t[i]);
        sum_out(c->g, &t[i], &keep, &t[0]);
        PL_TRY(multiply(c, &t[0], &t[i], &keep));
    }
    sum_out(c->g, &t[0], &out, NULL);
    for (int i = 0; i < out.n; i++)
        if (find(&t[0], out.label[i]) < 0)
            return pl_ox_fail(c, PL_ERR_FILE, "the equation '%s' has a label without an input", p);
    return pl_ox_set(c, 0, ordered(c->g, &t[0], &out), NULL);
}
