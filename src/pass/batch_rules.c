/* batch_rules.c - see batch_rules.h.
 *
 * An op is known by its descriptor alone. The first rule that applies decides: constants, sources,
 * random draws, maps (by pl_op.scaling), affine readings, views, reductions, and then the labels of
 * the op's dimensions. An op without any of them may only process values that have no batch.
 */
#include "pass/batch_rules.h"

#include <math.h>
#include <string.h>

enum { NO_AXIS = -1, BAD_AXIS = -2 };

#define FLOWS_BACK "a sum over the batch flows back into its samples"
#define NONLINEAR  "a nonlinear function of a sum over the batch"
#define FOLLOWS    PL_BATCH_FOLLOWS

bool pl_batch_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static int64_t elems_after(const pl_type *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Returns the dimension in which the two builds differ. */
static int batch_axis(const pl_batch_walk *w, const pl_type *whole, const pl_type *part)
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

static int out_axis(const pl_batch_walk *w, int k)
{
    return batch_axis(w, &w->s.whole.out_type[k], &w->s.part.out_type[k]);
}

/* Returns the tag of a value that does not vary along the batch's dimension. */
static pl_batch_tag constant_along(const pl_batch_walk *w, const pl_type *t, int axis,
                                   pl_batch_tag from)
{
    from.kind = PL_BATCH_EACH;
    from.inner = t->dim[axis] == w->batch ? elems_after(t, axis) : 0;
    return from;
}

pl_batch_tag pl_batch_by_shape(const pl_batch_walk *w, int k)
{
    int axis = out_axis(w, k);
    pl_batch_tag t = {PL_BATCH_NONE, false, 0, 1};
    return axis >= 0 ? constant_along(w, &w->s.whole.out_type[k], axis, t) : t;
}

/* Finds the batch of an operand in its shape. */
static const char *locate(const pl_batch_walk *w, int i)
{
    const pl_batch_tag *t = &w->s.in[i];
    const pl_type *type = &w->s.whole.in_type[i];
    pl_batch_spot *at = &w->s.at[i];
    *at = (pl_batch_spot){batch_axis(w, type, &w->s.part.in_type[i]), 0};
    if (t->kind != PL_BATCH_EACH || t->inner == 0) return NULL;
    if (at->axis < 0) return "the batch cannot be found in its input";
    int64_t after = elems_after(type, at->axis), size = type->dim[at->axis] * after;
    if (t->inner % after || size % (t->inner * w->batch))
        return "the batch is split over several dimensions of its input";
    at->w = t->inner / after;
    return NULL;
}

/* ---- ratios ----------------------------------------------------------------------------- */
/* Combines two terms of one sum: their ratios must agree, and a mean over the batch may only be
 * added to a value without a batch. */
static bool add_ratio(const pl_batch_walk *w, pl_batch_tag *sum, const pl_batch_tag *t)
{
    if (t->zero) return true;
    if (sum->zero) {
        sum->zero = false;
        sum->ratio = t->ratio;
        return true;
    }
    double mean = 1.0 / (double)w->parts;
    if (sum->kind == PL_BATCH_SUM && t->kind == PL_BATCH_NONE)
        return pl_batch_near(sum->ratio, mean) && pl_batch_near(t->ratio, 1);
    if (sum->kind == PL_BATCH_NONE && t->kind == PL_BATCH_SUM) {
        bool fits = pl_batch_near(t->ratio, mean) && pl_batch_near(sum->ratio, 1);
        sum->ratio = t->ratio;
        return fits;
    }
    return pl_batch_near(sum->ratio, t->ratio);
}

static bool all_one(const pl_batch_node *s)
{
    for (int i = 0; i < s->whole.n_in; i++)
        if (!s->in[i].zero && !pl_batch_near(s->in[i].ratio, 1)) return false;
    return true;
}

/* Computes the ratio of a sum of two terms (or of their maximum, or of a selected term). */
static bool term_ratio(const pl_batch_walk *w, const pl_batch_tag *a, const pl_batch_tag *b,
                       pl_batch_tag *out)
{
    pl_batch_tag sum = *a;
    bool from_b = a->zero || (a->kind == PL_BATCH_NONE && b->kind == PL_BATCH_SUM);
    out->ratio = from_b ? b->ratio : a->ratio;
    out->zero = a->zero && b->zero;
    return add_ratio(w, &sum, b);
}

static double power(double ratio, int halves)
{
    return halves == 2 ? ratio : halves == 0 ? 1 : pow(ratio, halves / 2.0);
}

/* Whether factors of the operands pass through this elementwise op as its scaling says. */
static bool scales(const pl_batch_node *s)
{
    const pl_scaling *r = s->op->scaling;
    return r && r->known && (!r->float_only || pl_dtype_is_float(s->whole.out_type[0].dtype));
}

/* Computes the ratio of an elementwise function of the inputs, from the op's scaling: a common
 * factor of the terms, and a power of each other operand's factor. */
static const char *map_ratio(const pl_batch_walk *w, pl_batch_tag *out)
{
    const pl_batch_node *s = &w->s;
    const pl_scaling *r = s->op->scaling;
    bool fits = scales(s) || all_one(s);
    int first = -1;
    out->zero = false;
    out->ratio = 1;
    if (!r || !r->known) return fits ? NULL : FOLLOWS;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (!(r->terms >> i & 1)) {
            out->ratio *= power(s->in[i].ratio, r->halves[i]);
            out->zero |= s->in[i].zero && r->halves[i] == 2;
        } else if (first < 0) {
            first = i;
        } else {
            pl_batch_tag t;
            fits &= term_ratio(w, &s->in[first], &s->in[i], &t);
            out->ratio *= power(t.ratio, r->halves[i]);
            out->zero |= t.zero && r->halves[i] == 2;
        }
    }
    return fits ? NULL : FOLLOWS;
}

/* ---- rules: NULL when s->out is filled, or why it couples ------------------------------- */
static const char *source_rule(pl_batch_walk *w, bool is_state)
{
    pl_batch_node *s = &w->s;
    const pl_type *t = &s->whole.out_type[0];
    int axis = out_axis(w, 0);
    s->out[0] = (pl_batch_tag){PL_BATCH_NONE, false, 0, 1};
    if (is_state) return axis == NO_AXIS ? NULL : "its shape follows the batch";
    if (axis < 0 || (axis > 0 && t->dim[axis] != w->batch)) return "an input without a batch";
    s->out[0].kind = PL_BATCH_EACH; /* the elements of a sample are contiguous */
    s->out[0].inner = axis ? elems_after(t, axis) : pl_type_elems(t) / w->batch;
    return NULL;
}

static const char *random_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    if (w->at_once && out_axis(w, 0) == NO_AXIS) {
        s->out[0] = (pl_batch_tag){PL_BATCH_NONE, false, 0, 1};
        return NULL;
    }
    if (s->op->flags & PL_OP_COUPLES) return "it orders the samples, or draws once for all of them";
    for (int k = 0; k < s->whole.n_out; k++) {
        int axis = out_axis(w, k);
        if (axis < 0) return "it draws once for the whole batch";
        s->out[k] = constant_along(w, &s->whole.out_type[k], axis,
                                   (pl_batch_tag){PL_BATCH_EACH, false, 0, 1});
        if (s->out[k].inner == 0) return "the batch cannot be found in its draws";
    }
    return NULL;
}

static const char *fill_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    pl_ramp a, b;
    s->op->ramp(&s->whole, &a);
    s->op->ramp(&s->part, &b);
    int axis = out_axis(w, 0);
    bool flat = true;
    for (int i = 0; i < PL_MAX_RANK; i++) flat &= a.step[i] == 0 && b.step[i] == 0;
    pl_batch_tag t = {PL_BATCH_NONE, flat && a.base == 0 && b.base == 0, 0, 1};
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

/* Finds the inner that all inputs with a batch share; 0: any. */
static bool common_inner(const pl_batch_node *s, int64_t *inner)
{
    *inner = 0;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != PL_BATCH_EACH || s->in[i].inner == 0) continue;
        if (*inner && *inner != s->in[i].inner) return false;
        *inner = s->in[i].inner;
    }
    return true;
}

static int count(const pl_batch_node *s, pl_batch_kind k)
{
    int n = 0;
    for (int i = 0; i < s->whole.n_in; i++) n += s->in[i].kind == k;
    return n;
}

/* Returns the row of input i in labels. */
static int row_of(int i)
{
    return i < PL_LABEL_IN ? i : PL_LABEL_IN - 1;
}

/* Whether the result is linear in the sums among the inputs: at most one factor, or terms. */
static bool linear_in_sums(const pl_batch_node *s, uint32_t times, uint32_t plus)
{
    int products = 0;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != PL_BATCH_SUM) continue;
        products += times >> row_of(i) & 1;
        if (!((times | plus) >> row_of(i) & 1)) return false;
    }
    return products <= 1;
}

static const char *map_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    pl_batch_tag out = {PL_BATCH_NONE, false, 0, 1};
    int sums = count(s, PL_BATCH_SUM), each = count(s, PL_BATCH_EACH);
    if (sums && each) return FLOWS_BACK;
    if (sums && !(scales(s) && linear_in_sums(s, s->op->scaling->times, s->op->scaling->plus)))
        return NONLINEAR;
    if (!common_inner(s, &out.inner)) return "its inputs hold the batch in different places";
    out.kind = sums ? PL_BATCH_SUM : each ? PL_BATCH_EACH : PL_BATCH_NONE;
    const char *why = map_ratio(w, &out);
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
static const char *affine_each(pl_batch_walk *w, int axis, const pl_affine *a, const pl_affine *b)
{
    pl_batch_node *s = &w->s;
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

static const char *affine_rule(pl_batch_walk *w, const pl_affine *a, const pl_affine *b)
{
    pl_batch_node *s = &w->s;
    const pl_batch_tag *x = &s->in[0];
    const pl_type *y = &s->whole.out_type[0];
    int axis = out_axis(w, 0);
    if (axis == BAD_AXIS) return FOLLOWS;
    if (x->kind != PL_BATCH_EACH) {
        bool same = a->offset == b->offset;
        for (int i = 0; i < y->rank; i++)
            same &= i == axis || y->dim[i] == 1 || a->stride[i] == b->stride[i];
        if (!same) return FOLLOWS;
        if (axis >= 0 && x->kind == PL_BATCH_SUM) return FLOWS_BACK;
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

static const char *view_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    const pl_type *x = &s->whole.in_type[0], *y = &s->whole.out_type[0];
    s->out[0] = s->in[0];
    int axis = out_axis(w, 0);
    if (s->in[0].kind != PL_BATCH_EACH) return axis == NO_AXIS ? NULL : FOLLOWS;
    if (s->in[0].inner) return NULL;
    if (axis < 0 || s->at[0].axis < 0) return "the batch cannot be found in its output";
    int64_t from = elems_after(x, s->at[0].axis), to = elems_after(y, axis);
    if (to % from || (from * x->dim[s->at[0].axis]) % (to * y->dim[axis]))
        return "the batch cannot be found in its output";
    s->out[0] = constant_along(w, y, axis, s->in[0]);
    return NULL;
}

static const char *reduce_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    pl_reduction r;
    s->op->reduction(&s->whole, &r);
    pl_batch_tag t = s->in[0];
    const pl_type *x = &s->whole.in_type[0], *y = &s->whole.out_type[0];
    bool is_sum = r.fn == PL_REDUCE_SUM;
    if (r.fn == PL_REDUCE_MOMENTS && !t.zero && !pl_batch_near(t.ratio, 1)) return FOLLOWS;
    if (t.kind == PL_BATCH_SUM && !is_sum) return NONLINEAR;
    if (t.kind == PL_BATCH_EACH && (r.axes >> s->at[0].axis & 1)) {
        if (r.fn == PL_REDUCE_MOMENTS) return "it normalises by the batch's own mean and variance";
        if (!is_sum) return "it compares the samples of the batch";
        t.kind = PL_BATCH_SUM;
    } else if (t.kind == PL_BATCH_EACH) {
        int at = 0;
        bool keep = x->rank == y->rank;
        for (int i = 0; i < s->at[0].axis; i++) at += keep || !(r.axes >> i & 1);
        t.inner = elems_after(y, at) * s->at[0].w;
    }
    for (int k = 0; k < s->whole.n_out; k++) s->out[k] = t;
    return NULL;
}

/* ---- ops with labels -------------------------------------------------------------------- */
/* Computes the ratio of a result that is a product of some inputs plus others. */
static const char *label_ratio(const pl_batch_walk *w, const pl_labels *l, pl_batch_tag *out)
{
    const pl_batch_node *s = &w->s;
    bool any = false;
    out->ratio = 1;
    out->zero = false;
    for (int i = 0; i < s->whole.n_in; i++) {
        const pl_batch_tag *t = &s->in[i];
        if (l->times >> row_of(i) & 1) {
            any = true;
            out->ratio *= t->ratio;
            out->zero |= t->zero;
        } else if (!(l->plus >> row_of(i) & 1) && !t->zero && !pl_batch_near(t->ratio, 1)) {
            return FOLLOWS;
        }
    }
    if (!any) out->zero = l->plus != 0;
    for (int i = 0; i < s->whole.n_in; i++)
        if ((l->plus >> row_of(i) & 1) && !add_ratio(w, out, &s->in[i])) return FOLLOWS;
    return NULL;
}

/* Finds the label of the batch, the same for all inputs that have a batch, and its layout there. */
static const char *batch_label(const pl_batch_node *s, const pl_labels *l, int *label, int64_t *w)
{
    *label = PL_LABEL_MIX;
    *w = 0;
    for (int i = 0; i < s->whole.n_in; i++) {
        if (s->in[i].kind != PL_BATCH_EACH) continue;
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

static const char *labels_each(pl_batch_walk *w, const pl_labels *l, pl_batch_tag result)
{
    pl_batch_node *s = &w->s;
    int label;
    int64_t wide;
    const char *why = batch_label(s, l, &label, &wide);
    if (why) return why;
    if (label == PL_LABEL_JOIN && (count(s, PL_BATCH_EACH) != s->whole.n_in || !wide))
        return "it concatenates something to the samples of the batch";
    for (int k = 0; k < s->whole.n_out; k++) {
        const pl_type *y = &s->whole.out_type[k];
        int at = NO_AXIS, axis = out_axis(w, k);
        for (int d = 0; d < y->rank; d++)
            if (l->out[k][d] == label) at = d;
        if (at != axis) return "it mixes the samples of the batch";
        pl_batch_tag t = result;
        t.kind = at == NO_AXIS ? PL_BATCH_SUM : PL_BATCH_EACH;
        if (t.kind == PL_BATCH_EACH && wide)
            t.inner = elems_after(y, at) * wide;
        else if (t.kind == PL_BATCH_EACH)
            t = constant_along(w, y, at, t);
        s->out[k] = t;
    }
    return NULL;
}

static const char *labels_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    pl_labels l;
    memset(&l, 0, sizeof l);
    s->op->labels(&s->whole, &l);
    int sums = count(s, PL_BATCH_SUM), each = count(s, PL_BATCH_EACH);
    if (sums && each) return FLOWS_BACK;
    if (!linear_in_sums(s, l.times, l.plus)) return NONLINEAR;
    pl_batch_tag result = {sums ? PL_BATCH_SUM : PL_BATCH_NONE, false, 0, 1};
    const char *why = label_ratio(w, &l, &result);
    if (why) return why;
    if (each) return labels_each(w, &l, result);
    for (int k = 0; k < s->whole.n_out; k++) {
        if (out_axis(w, k) != NO_AXIS) return FOLLOWS;
        s->out[k] = result;
    }
    return NULL;
}

/* An op without a known rule may process values without a batch. */
static const char *other_rule(pl_batch_walk *w)
{
    pl_batch_node *s = &w->s;
    if (count(s, PL_BATCH_NONE) != s->whole.n_in)
        return "its descriptor does not say how it treats a batch";
    if (!all_one(s)) return FOLLOWS;
    for (int k = 0; k < s->whole.n_out; k++) {
        if (out_axis(w, k) != NO_AXIS) return FOLLOWS;
        s->out[k] = (pl_batch_tag){PL_BATCH_NONE, false, 0, 1};
    }
    return NULL;
}

/* Whether all attributes that are not sizes are the same in both builds. */
static bool same_settings(const pl_batch_node *s)
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

const char *pl_batch_rule(pl_batch_walk *w, uint32_t node)
{
    pl_batch_node *s = &w->s;
    uint32_t flags = s->op->flags;
    pl_affine a, b;
    if (flags & PL_OP_FILL) return fill_rule(w);
    if (!same_settings(s)) return "one of its attributes depends on the size of the batch";
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
