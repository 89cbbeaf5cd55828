/* batch.c - see batch.h.
 *
 * Every value that a goal depends on gets a tag:
 *
 *   NONE   has no batch: the same in the whole and in every part, but for a factor
 *   EACH   slice i along the batch depends on sample i alone
 *   SUM    a sum over the batch of such slices, and linear in that sum
 *
 * and a ratio: the whole's value (or slice) is ratio times the part's; for SUM, ratio times the sum
 * of the parts'. A mean over B samples divides by B, so its ratio is 1/N. A constant zero has every
 * ratio. A rule that fails names its node as a cause and goes on as if it had not failed, so that
 * one report names all kinds of coupling.
 *
 * Where the batch lies in a value is one number, `inner`: the elements from one sample to the next
 * in row-major order; a reshape keeps it. Its dimension may hold more than the batch: an index
 * there is (o*B + b)*w + i. inner 0 stands for a value that does not vary along a dimension of
 * several times the batch (a bias over the rows of B*T tokens): any layout is true of it.
 */
#include "pass/batch.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum kind { NONE, EACH, SUM } kind;

typedef struct tag {
    kind kind;
    bool zero;
    int64_t inner; /* EACH */
    double ratio;
} tag;

/* Where the batch of an operand lies: dimension, and w of the layout above (0: any). */
typedef struct spot {
    int axis;
    int64_t w;
} spot;

enum { NO_AXIS = -1, BAD_AXIS = -2 };

/* A node being looked at, in both builds. */
typedef struct step {
    const pl_op *op;
    pl_call whole, part;
    tag *in;
    spot *at;
    tag out[PL_MAX_OUT];
} step;

typedef struct walk {
    const pl_graph *g, *h;
    int64_t batch, parts;
    bool at_once; /* by ranks: parts draw the same numbers, state changes once */
    tag *tags;    /* by value */
    bool *need;   /* by node: a goal depends on it */
    pl_type *types[4];
    step s;
    pl_batch_report *report;
} walk;

#define FLOWS_BACK "a sum over the batch flows back into its samples"
#define NONLINEAR  "a nonlinear function of a sum over the batch"
#define FOLLOWS    "a constant follows the size of the batch"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static int64_t elems_after(const pl_type *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* The dimension in which the two builds differ. */
static int batch_axis(const walk *w, const pl_type *whole, const pl_type *part)
{
    int axis = NO_AXIS;
    if (whole->rank != part->rank || whole->dtype != part->dtype) return BAD_AXIS;
    for (int i = 0; i < whole->rank; i++) {
        if (whole->dim[i] == part->dim[i]) continue;
        if (axis >= 0 || whole->dim[i] != part->dim[i] * w->parts || whole->dim[i] % w->batch)
            return BAD_AXIS;
        axis = i;
    }
    return axis;
}

static int out_axis(const walk *w, int k)
{
    return batch_axis(w, &w->s.whole.out_type[k], &w->s.part.out_type[k]);
}

/* A value that does not vary along the batch's dimension. */
static tag constant_along(const walk *w, const pl_type *t, int axis, tag from)
{
    from.kind = EACH;
    from.inner = t->dim[axis] == w->batch ? elems_after(t, axis) : 0;
    return from;
}

/* Finds the batch of an operand in its shape. */
static const char *locate(const walk *w, int i)
{
    const tag *t = &w->s.in[i];
    const pl_type *type = &w->s.whole.in_type[i];
    spot *at = &w->s.at[i];
    *at = (spot){batch_axis(w, type, &w->s.part.in_type[i]), 0};
    if (t->kind != EACH || t->inner == 0) return NULL;
    if (at->axis < 0) return "the batch cannot be found in its input";
    int64_t after = elems_after(type, at->axis), size = type->dim[at->axis] * after;
    if (t->inner % after || size % (t->inner * w->batch))
        return "the batch is split over several dimensions of its input";
    at->w = t->inner / after;
    return NULL;
}

/* ---- ratios ----------------------------------------------------------------------------- */
/* Both stand in one sum: their ratios must agree, and with a mean over the batch goes a value that
 * has no batch at all. */
static bool add_ratio(const walk *w, tag *sum, const tag *t)
{
    if (t->zero) return true;
    if (sum->zero) {
        sum->zero = false;
        sum->ratio = t->ratio;
        return true;
    }
    double mean = 1.0 / (double)w->parts;
    if (sum->kind == SUM && t->kind == NONE) return near(sum->ratio, mean) && near(t->ratio, 1);
    if (sum->kind == NONE && t->kind == SUM) {
        bool fits = near(t->ratio, mean) && near(sum->ratio, 1);
        sum->ratio = t->ratio;
        return fits;
    }
    return near(sum->ratio, t->ratio);
}

static bool all_one(const step *s)
{
    for (int i = 0; i < s->whole.n_in; i++)
        if (!s->in[i].zero && !near(s->in[i].ratio, 1)) return false;
    return true;
}

/* Ratio of an elementwise function of the inputs. */
static const char *map_ratio(const walk *w, const step *s, tag *out)
{
    const tag *a = &s->in[0], *b = &s->in[1], *c = &s->in[2];
    out->zero = false;
    out->ratio = 1;
    bool fits = true;
    switch (s->op->scalar) {
    case PL_SCALAR_NEG:
    case PL_SCALAR_ABS:
    case PL_SCALAR_RELU:
    case PL_SCALAR_LEAKY_RELU:
        out->ratio = a->ratio;
        out->zero = a->zero;
        break;
    case PL_SCALAR_CAST:
        out->ratio = a->ratio;
        out->zero = a->zero;
        fits = pl_dtype_is_float(s->whole.out_type[0].dtype) || all_one(s);
        break;
    case PL_SCALAR_ADD:
    case PL_SCALAR_SUB:
    case PL_SCALAR_MAX:
    case PL_SCALAR_MIN:
        out->ratio = a->ratio;
        out->zero = a->zero;
        fits = add_ratio(w, &(tag){a->kind, a->zero, 0, a->ratio}, b);
        if (a->zero || (a->kind == NONE && b->kind == SUM)) out->ratio = b->ratio;
        out->zero = a->zero && b->zero;
        break;
    case PL_SCALAR_SELECT:
        out->ratio = b->zero || (b->kind == NONE && c->kind == SUM) ? c->ratio : b->ratio;
        out->zero = b->zero && c->zero;
        fits = add_ratio(w, &(tag){b->kind, b->zero, 0, b->ratio}, c);
        break;
    case PL_SCALAR_MUL:
        out->ratio = a->ratio * b->ratio;
        out->zero = a->zero || b->zero;
        break;
    case PL_SCALAR_DIV:
        out->ratio = a->ratio / b->ratio;
        out->zero = a->zero;
        break;
    case PL_SCALAR_RECIPROCAL: out->ratio = 1 / a->ratio; break;
    case PL_SCALAR_SQUARE: out->ratio = a->ratio * a->ratio; break;
    case PL_SCALAR_SQRT: out->ratio = sqrt(a->ratio); break;
    case PL_SCALAR_RSQRT: out->ratio = 1 / sqrt(a->ratio); break;
    case PL_SCALAR_SIGN:
    case PL_SCALAR_IS_FINITE:
    case PL_SCALAR_IS_NAN: break;
    case PL_SCALAR_EQ:
    case PL_SCALAR_NE:
    case PL_SCALAR_LT:
    case PL_SCALAR_LE:
    case PL_SCALAR_GT:
    case PL_SCALAR_GE: fits = a->zero || b->zero || near(a->ratio, b->ratio); break;
    default: fits = all_one(s); break;
    }
    return fits ? NULL : FOLLOWS;
}

/* ---- rules: NULL when s->out is filled, or why it couples ------------------------------- */
static const char *source_rule(walk *w, bool is_state)
{
    step *s = &w->s;
    const pl_type *t = &s->whole.out_type[0];
    int axis = out_axis(w, 0);
    s->out[0] = (tag){NONE, false, 0, 1};
    if (is_state) return axis == NO_AXIS ? NULL : "its shape follows the batch";
    if (axis < 0 || (axis > 0 && t->dim[axis] != w->batch)) return "an input without a batch";
    s->out[0].kind = EACH; /* a sample's elements lie together */
    s->out[0].inner = axis ? elems_after(t, axis) : pl_type_elems(t) / w->batch;
    return NULL;
}

static const char *random_rule(walk *w)
{
    step *s = &w->s;
    if (w->at_once && out_axis(w, 0) == NO_AXIS) {
        s->out[0] = (tag){NONE, false, 0, 1};
        return NULL;
    }
    if (s->op->flags & PL_OP_COUPLES) return "it orders the samples, or draws once for all of them";
    for (int k = 0; k < s->whole.n_out; k++) {
        int axis = out_axis(w, k);
        if (axis < 0) return "it draws once for the whole batch";
        s->out[k] = constant_along(w, &s->whole.out_type[k], axis, (tag){EACH, false, 0, 1});
        if (s->out[k].inner == 0) return "the batch cannot be found in its draws";
    }
    return NULL;
}

static const char *fill_rule(walk *w)
{
    step *s = &w->s;
    pl_ramp a, b;
    s->op->ramp(&s->whole, &a);
    s->op->ramp(&s->part, &b);
    int axis = out_axis(w, 0);
    bool flat = true;
    for (int i = 0; i < PL_MAX_RANK; i++) flat &= a.step[i] == 0 && b.step[i] == 0;
    tag t = {NONE, flat && a.base == 0 && b.base == 0, 0, 1};
    if (axis == BAD_AXIS) return FOLLOWS;
    if (axis >= 0 && a.step[axis] != 0) return "it numbers the samples of the batch";
    if (flat && !t.zero) {
        t.ratio = a.base / b.base;
        if (!isfinite(t.ratio) || t.ratio <= 0) {
            if (!(a.base == b.base)) return FOLLOWS;
            t.ratio = 1;
        }
    } else if (!flat && (a.base != b.base || memcmp(a.step, b.step, sizeof a.step) != 0)) {
        return FOLLOWS;
    }
    s->out[0] = axis >= 0 ? constant_along(w, &s->whole.out_type[0], axis, t) : t;
    return NULL;
}

/* The inner that all inputs with a batch share; 0: any. */
static bool common_inner(const step *s, int64_t *inner)
{
    *inner = 0;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != EACH || s->in[i].inner == 0) continue;
        if (*inner && *inner != s->in[i].inner) return false;
        *inner = s->in[i].inner;
    }
    return true;
}

static int count(const step *s, kind k)
{
    int n = 0;
    for (int i = 0; i < s->whole.n_in; i++) n += s->in[i].kind == k;
    return n;
}

static bool linear_map(const step *s)
{
    switch (s->op->scalar) {
    case PL_SCALAR_NEG:
    case PL_SCALAR_ADD:
    case PL_SCALAR_SUB: return true;
    case PL_SCALAR_CAST: return pl_dtype_is_float(s->whole.out_type[0].dtype);
    case PL_SCALAR_MUL: return count(s, SUM) == 1;
    case PL_SCALAR_DIV: return s->in[1].kind == NONE;
    case PL_SCALAR_SELECT: return s->in[0].kind == NONE;
    default: return false;
    }
}

static const char *map_rule(walk *w)
{
    step *s = &w->s;
    tag out = {NONE, false, 0, 1};
    int sums = count(s, SUM), each = count(s, EACH);
    if (sums && each) return FLOWS_BACK;
    if (sums && !linear_map(s)) return NONLINEAR;
    if (!common_inner(s, &out.inner)) return "its inputs hold the batch in different places";
    out.kind = sums ? SUM : each ? EACH : NONE;
    const char *why = map_ratio(w, s, &out);
    s->out[0] = out;
    return why;
}

static int64_t floor_mod(int64_t a, int64_t n)
{
    int64_t r = a % n;
    return r < 0 ? r + n : r;
}

/* An affine reading of a value with a batch: one dimension of the output walks over the samples, in
 * order and from the first; the others stay within a sample or step over whole batches. */
static const char *affine_each(walk *w, int axis, const pl_affine *a, const pl_affine *b)
{
    step *s = &w->s;
    const pl_type *y = &s->whole.out_type[0];
    int64_t inner = s->in[0].inner, period = inner * w->batch, part = period / w->parts;
    int64_t stride = a->stride[axis];
    if (stride <= 0 || inner % stride) return "it reorders the samples of the batch";
    int64_t wide = inner / stride, lo = 0, hi = (wide - 1) * stride;
    if (y->dim[axis] % (wide * w->batch)) return "it takes some samples of the batch";
    for (int i = 0; i < y->rank; i++) {
        if (i == axis || y->dim[i] == 1) continue;
        if (a->stride[i] % period == 0) { /* over whole batches, as many in both */
            if (b->stride[i] % part || a->stride[i] / period != b->stride[i] / part) return FOLLOWS;
            continue;
        }
        int64_t reach = (y->dim[i] - 1) * a->stride[i];
        if (reach > 0) hi += reach;
        if (reach < 0) lo += reach;
        if (a->stride[i] != b->stride[i]) return FOLLOWS;
    }
    int64_t base = floor_mod(a->offset, period);
    if (base + lo < 0 || base + hi >= inner) return "it mixes the samples of the batch";
    if (floor_mod(b->offset, part) != base ||
        (a->offset - base) / period != (b->offset - base) / part)
        return FOLLOWS;
    s->out[0] = s->in[0];
    s->out[0].inner = elems_after(y, axis) * wide;
    return NULL;
}

static const char *affine_rule(walk *w, const pl_affine *a, const pl_affine *b)
{
    step *s = &w->s;
    const tag *x = &s->in[0];
    const pl_type *y = &s->whole.out_type[0];
    int axis = out_axis(w, 0);
    if (axis == BAD_AXIS) return FOLLOWS;
    if (x->kind != EACH) {
        bool same = a->offset == b->offset;
        for (int i = 0; i < y->rank; i++)
            same &= i == axis || y->dim[i] == 1 || a->stride[i] == b->stride[i];
        if (!same) return FOLLOWS;
        if (axis >= 0 && x->kind == SUM) return FLOWS_BACK;
        if (axis >= 0 && a->stride[axis] != 0) return "it takes its batch from a value without one";
        s->out[0] = axis >= 0 ? constant_along(w, y, axis, *x) : *x;
        return NULL;
    }
    if (axis < 0) return "it takes one sample of the batch";
    if (x->inner) return affine_each(w, axis, a, b);
    int64_t after = elems_after(&s->whole.in_type[0], s->at[0].axis);
    int64_t reach = (y->dim[axis] - 1) * a->stride[axis];
    if (s->at[0].axis < 0 || a->stride[axis] % after || reach < 0 ||
        reach >= after * s->whole.in_type[0].dim[s->at[0].axis])
        return "the batch cannot be found in its input";
    s->out[0] = constant_along(w, y, axis, *x);
    return NULL;
}

static const char *view_rule(walk *w)
{
    step *s = &w->s;
    const pl_type *x = &s->whole.in_type[0], *y = &s->whole.out_type[0];
    s->out[0] = s->in[0];
    int axis = out_axis(w, 0);
    if (s->in[0].kind != EACH) return axis == NO_AXIS ? NULL : FOLLOWS;
    if (s->in[0].inner) return NULL;
    if (axis < 0 || s->at[0].axis < 0) return "the batch cannot be found in its output";
    int64_t from = elems_after(x, s->at[0].axis), to = elems_after(y, axis);
    if (to % from || (from * x->dim[s->at[0].axis]) % (to * y->dim[axis]))
        return "the batch cannot be found in its output";
    s->out[0] = constant_along(w, y, axis, s->in[0]);
    return NULL;
}

static const char *reduce_rule(walk *w)
{
    step *s = &w->s;
    pl_reduction r;
    s->op->reduction(&s->whole, &r);
    tag t = s->in[0];
    const pl_type *x = &s->whole.in_type[0], *y = &s->whole.out_type[0];
    bool is_sum = r.fn == PL_REDUCE_SUM;
    if (r.fn == PL_REDUCE_MOMENTS && !t.zero && !near(t.ratio, 1)) return FOLLOWS;
    if (t.kind == SUM && !is_sum) return NONLINEAR;
    if (t.kind == EACH && (r.axes >> s->at[0].axis & 1)) {
        if (r.fn == PL_REDUCE_MOMENTS) return "it normalises by the batch's own mean and variance";
        if (!is_sum) return "it compares the samples of the batch";
        t.kind = SUM;
    } else if (t.kind == EACH) {
        int at = 0;
        bool keep = x->rank == y->rank;
        for (int i = 0; i < s->at[0].axis; i++) at += keep || !(r.axes >> i & 1);
        t.inner = elems_after(y, at) * s->at[0].w;
    }
    for (int k = 0; k < s->whole.n_out; k++) s->out[k] = t;
    return NULL;
}

/* ---- ops with labels -------------------------------------------------------------------- */
static int row_of(int i)
{
    return i < PL_LABEL_IN ? i : PL_LABEL_IN - 1;
}

/* Ratio of a result that is a product of some inputs plus others. */
static const char *label_ratio(const walk *w, const pl_labels *l, tag *out)
{
    const step *s = &w->s;
    bool any = false;
    out->ratio = 1;
    out->zero = false;
    for (int i = 0; i < s->whole.n_in; i++) {
        const tag *t = &s->in[i];
        if (l->times >> row_of(i) & 1) {
            any = true;
            out->ratio *= t->ratio;
            out->zero |= t->zero;
        } else if (!(l->plus >> row_of(i) & 1) && !t->zero && !near(t->ratio, 1)) {
            return FOLLOWS;
        }
    }
    if (!any) out->zero = l->plus != 0;
    for (int i = 0; i < s->whole.n_in; i++)
        if ((l->plus >> row_of(i) & 1) && !add_ratio(w, out, &s->in[i])) return FOLLOWS;
    return NULL;
}

/* The label of the batch, one for all inputs that have a batch, and its layout there. */
static const char *batch_label(const step *s, const pl_labels *l, int *label, int64_t *w)
{
    *label = PL_LABEL_MIX;
    *w = 0;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != EACH) continue;
        int mine = s->at[i].axis < 0 ? PL_LABEL_MIX : l->in[row_of(i)][s->at[i].axis];
        if (mine == PL_LABEL_MIX || (*label && *label != mine))
            return "it mixes the samples of the batch";
        if (*w && s->at[i].w && *w != s->at[i].w)
            return "its inputs hold the batch in different places";
        *label = mine;
        if (s->at[i].w) *w = s->at[i].w;
    }
    return NULL;
}

static const char *labels_each(walk *w, const pl_labels *l, tag result)
{
    step *s = &w->s;
    int label;
    int64_t wide;
    const char *why = batch_label(s, l, &label, &wide);
    if (why) return why;
    if (label == PL_LABEL_JOIN && (count(s, EACH) != s->whole.n_in || !wide))
        return "it puts something beside the samples of the batch";
    for (int k = 0; k < s->whole.n_out; k++) {
        const pl_type *y = &s->whole.out_type[k];
        int at = NO_AXIS, axis = out_axis(w, k);
        for (int d = 0; d < y->rank; d++)
            if (l->out[k][d] == label) at = d;
        if (at != axis) return "it mixes the samples of the batch";
        tag t = result;
        t.kind = at == NO_AXIS ? SUM : EACH;
        if (t.kind == EACH && wide)
            t.inner = elems_after(y, at) * wide;
        else if (t.kind == EACH)
            t = constant_along(w, y, at, t);
        s->out[k] = t;
    }
    return NULL;
}

static const char *labels_rule(walk *w)
{
    step *s = &w->s;
    pl_labels l;
    memset(&l, 0, sizeof l);
    s->op->labels(&s->whole, &l);
    int sums = count(s, SUM), each = count(s, EACH), products = 0;
    if (sums && each) return FLOWS_BACK;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != SUM) continue;
        products += l.times >> row_of(i) & 1;
        if (!((l.times | l.plus) >> row_of(i) & 1)) return NONLINEAR;
    }
    if (products > 1) return NONLINEAR;
    tag result = {sums ? SUM : NONE, false, 0, 1};
    const char *why = label_ratio(w, &l, &result);
    if (why) return why;
    if (each) return labels_each(w, &l, result);
    for (int k = 0; k < s->whole.n_out; k++) {
        if (out_axis(w, k) != NO_AXIS) return FOLLOWS;
        s->out[k] = result;
    }
    return NULL;
}

/* An op about which nothing is known may work on what has no batch. */
static const char *other_rule(walk *w)
{
    step *s = &w->s;
    if (count(s, NONE) != s->whole.n_in) return "nothing is known of how it treats a batch";
    if (!all_one(s)) return FOLLOWS;
    for (int k = 0; k < s->whole.n_out; k++) {
        if (out_axis(w, k) != NO_AXIS) return FOLLOWS;
        s->out[k] = (tag){NONE, false, 0, 1};
    }
    return NULL;
}

/* Attributes that are no sizes are the same in both builds. */
static bool same_settings(const step *s)
{
    for (const pl_attr *t = s->op->attrs; t && t->name; t++) {
        const char *x = (const char *)s->whole.attr + t->offset;
        const char *y = (const char *)s->part.attr + t->offset;
        if (t->kind == PL_ATTR_FLOAT && memcmp(x, y, sizeof(double)) != 0) return false;
        if (t->kind == PL_ATTR_BOOL && *x != *y) return false;
        if ((t->kind == PL_ATTR_ENUM || t->kind == PL_ATTR_SLOT) && memcmp(x, y, 4) != 0)
            return false;
    }
    return true;
}

static const char *apply_rule(walk *w, uint32_t node)
{
    step *s = &w->s;
    uint32_t flags = s->op->flags;
    pl_affine a, b;
    if (flags & PL_OP_FILL) return fill_rule(w);
    if (!same_settings(s)) return "a setting of it follows the size of the batch";
    if (flags & PL_OP_SOURCE) return source_rule(w, pl_node_slot(w->g, node) >= 0);
    if (flags & PL_OP_RANDOM) return random_rule(w);
    for (int i = 0; i < s->whole.n_in; i++) {
        const char *why = locate(w, i);
        if (why) return why;
    }
    if (flags & PL_OP_MAP) return map_rule(w);
    if ((flags & PL_OP_AFFINE) && s->op->affine(&s->whole, &a) && s->op->affine(&s->part, &b))
        return affine_rule(w, &a, &b);
    if (flags & PL_OP_VIEW) return view_rule(w);
    if (flags & PL_OP_REDUCE) return reduce_rule(w);
    return s->op->labels ? labels_rule(w) : other_rule(w);
}

/* ---- the walk --------------------------------------------------------------------------- */
static void add_cause(walk *w, uint32_t node, const char *why)
{
    pl_batch_report *r = w->report;
    const pl_op *op = pl_node_get(w->g, node)->op;
    for (int i = 0; i < r->n_causes; i++)
        if (pl_node_get(w->g, r->cause[i].node)->op == op) return;
    if (r->n_causes == PL_BATCH_CAUSES) return;
    pl_batch_cause *c = &r->cause[r->n_causes++];
    c->node = node;
    c->why = why;
    pl_node_label(w->g, node, c->label, sizeof c->label);
}

static void visit(walk *w, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(w->g, node);
    step *s = &w->s;
    s->op = r->op;
    pl_node_call(w->g, node, w->types[0], w->types[1], &s->whole);
    pl_node_call(w->h, node, w->types[2], w->types[3], &s->part);
    for (uint32_t i = 0; i < r->n_in; i++) s->in[i] = w->tags[pl_node_in(w->g, node)[i]];
    const char *why = apply_rule(w, node);
    for (uint32_t k = 0; k < r->n_out; k++) {
        if (why) { /* as its shape says, so that later causes are found too */
            int axis = out_axis(w, (int)k);
            tag t = {NONE, false, 0, 1};
            s->out[k] = axis >= 0 ? constant_along(w, &s->whole.out_type[k], axis, t) : t;
        }
        w->tags[r->out + k] = s->out[k];
    }
    if (why) add_cause(w, node, why);
}

static void mark_needed(walk *w, const pl_val *goals, int n_goals)
{
    for (int i = 0; i < n_goals; i++)
        if (pl_val_ok(goals[i])) w->need[pl_producer(w->g, goals[i].id)] = true;
    for (uint32_t n = w->g->n_nodes - 1; n >= 1; n--)
        for (uint32_t i = 0; w->need[n] && i < w->g->nodes[n].n_in; i++)
            w->need[pl_producer(w->g, pl_node_in(w->g, n)[i])] = true;
}

static void check_goal(walk *w, pl_val v)
{
    if (!pl_val_ok(v)) return;
    const tag *t = &w->tags[v.id];
    uint32_t node = pl_producer(w->g, v.id);
    double mean = 1.0 / (double)w->parts;
    if (t->zero) return;
    if (t->kind == EACH) add_cause(w, node, "the result is not one number for the batch");
    if (t->kind == NONE && !near(t->ratio, 1)) add_cause(w, node, FOLLOWS);
    if (t->kind == SUM && !near(t->ratio, mean))
        add_cause(w, node,
                  "the result is not a mean over the batch: parts of it would weigh otherwise");
}

static pl_status same_program(const pl_graph *a, const pl_graph *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_edges == b->n_edges;
    for (uint32_t n = 1; same && n < a->n_nodes; n++)
        same = a->nodes[n].op == b->nodes[n].op && a->nodes[n].in == b->nodes[n].in &&
               a->nodes[n].n_in == b->nodes[n].n_in && a->nodes[n].out == b->nodes[n].out;
    if (same) same = memcmp(a->edges, b->edges, a->n_edges * sizeof *a->edges) == 0;
    PL_FAIL_IF(!same, PL_ERR_GRAPH, "the model is another program at another batch");
    return PL_OK;
}

static pl_status walk_new(walk *w, pl_arena *a)
{
    const pl_graph *g = w->g;
    size_t widest = 1;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].n_in > widest) widest = g->nodes[n].n_in;
    w->tags = pl_arena_new(a, tag, g->n_vals);
    w->need = pl_arena_new(a, bool, g->n_nodes);
    w->s.in = pl_arena_new(a, tag, widest + 3); /* map_ratio names three */
    w->s.at = pl_arena_new(a, spot, widest);
    if (!w->tags || !w->need || !w->s.in || !w->s.at) return PL_ERR_MEMORY;
    for (int i = 0; i < 4; i++) {
        w->types[i] = pl_arena_new(a, pl_type, widest + PL_MAX_OUT);
        if (!w->types[i]) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

pl_status pl_batch_analyse(const pl_graph *whole, const pl_graph *part, int64_t batch,
                           int64_t parts, bool at_once, const pl_val *goals, int n_goals,
                           pl_batch_report *out)
{
    memset(out, 0, sizeof *out);
    PL_FAIL_IF(parts < 2 || batch < 1 || batch % parts, PL_ERR_ARG, "a batch of %lld in %lld parts",
               (long long)batch, (long long)parts);
    PL_TRY(same_program(whole, part));
    pl_arena scratch = PL_ARENA_INIT;
    walk w = {
        .g = whole, .h = part, .batch = batch, .parts = parts, .at_once = at_once, .report = out};
    pl_status rc = walk_new(&w, &scratch);
    if (rc == PL_OK) {
        mark_needed(&w, goals, n_goals);
        for (uint32_t n = 1; n < whole->n_nodes; n++) {
            const pl_node_rec *r = pl_node_get(whole, n);
            int slot = r->op->flags & PL_OP_EFFECT ? pl_node_slot(whole, n) : -1;
            if (slot >= 0 && !at_once && pl_store_slot(whole->store, slot)->kind != PL_SLOT_COUNTER)
                add_cause(&w, n, "state of the model would change with every micro-batch");
            else if (w.need[n])
                visit(&w, n);
        }
        for (int i = 0; i < n_goals && out->n_causes == 0; i++) check_goal(&w, goals[i]);
        out->proven = out->n_causes == 0;
    }
    pl_arena_release(&scratch);
    return rc;
}

const char *pl_batch_text(const pl_batch_report *r, char *buf, size_t cap)
{
    enum { NAMED = 3 }; /* later ones often follow from the first */
    size_t used = 0;
    if (cap) buf[0] = 0;
    for (int i = 0; i < r->n_causes && i < NAMED && used < cap; i++) {
        int n = snprintf(buf + used, cap - used, "%s%s: %s", i ? "; " : "", r->cause[i].label,
                         r->cause[i].why);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
