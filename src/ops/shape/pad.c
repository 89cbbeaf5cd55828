/* pad.c - one value around a tensor, and between its neighbours.
 *
 * On each axis: lo before, inner between two elements, hi after. It is the adjoint of slice: its
 * gradient is the slice that reads the elements back. The fast kernel writes the output once, front
 * to back, as runs along the last padded axis.
 *
 * The gradients of adjacent slices of a tensor are pads with zeros, and the tensor's gradient is
 * their sum. The sum of two such pads is the pad of a concat (pl__add_pads): slices that cover a
 * tensor leave one concat, without pads and additions.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "cpu/kernels/strided.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_pad_attr, lo, DIMS),
    PL_ATTR(pl_pad_attr, hi, DIMS),
    PL_ATTR(pl_pad_attr, inner, DIMS),
    PL_ATTR(pl_pad_attr, value, FLOAT),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_pad_attr *a = attr;
    const pl_type *x = &in[0];
    char t[96];
    PL_FAIL_IF(a->lo.n != x->rank || a->hi.n != x->rank || a->inner.n != x->rank, PL_ERR_ARG,
               "%d lo, %d hi and %d inner were given for %s; give one of each per dimension",
               a->lo.n, a->hi.n, a->inner.n, pl_type_text(x, t, sizeof t));
    out[0] = *x;
    const int64_t most = (int64_t)1 << 40;
    for (int i = 0; i < x->rank; i++) {
        int64_t lo = a->lo.v[i], hi = a->hi.v[i], inner = a->inner.v[i], n = x->dim[i];
        bool fits = lo >= 0 && hi >= 0 && inner >= 0 && lo <= most && hi <= most && inner <= most;
        int64_t gaps;
        PL_FAIL_IF(
            !fits || __builtin_mul_overflow(n, inner, &gaps) || gaps > most, PL_ERR_SHAPE,
            "padding %lld before, %lld after and %lld between on axis %d of %s is negative or too "
            "large",
            (long long)lo, (long long)hi, (long long)inner, i, pl_type_text(x, t, sizeof t));
        out[0].dim[i] = lo + hi + n + (n > 0 ? (n - 1) * inner : 0);
    }
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    const pl_pad_attr *a = v->attr;
    pl_type x = pl_val_type(v->g, v->in[0]);
    int64_t stop[PL_MAX_RANK], step[PL_MAX_RANK];
    if (pl_type_elems(&x) == 0) return;
    for (int i = 0; i < x.rank; i++) {
        step[i] = a->inner.v[i] + 1;
        stop[i] = a->lo.v[i] + (x.dim[i] - 1) * step[i] + 1;
    }
    v->gin[0] = pl__slice_all(v->g, v->gout[0], a->lo.v, stop, step);
}

/* Returns the input coordinate of output coordinate `at` on axis i; -1 in the padding. */
static int64_t source_of(const pl_pad_attr *a, const pl_type *x, int i, int64_t at)
{
    int64_t t = at - a->lo.v[i], step = a->inner.v[i] + 1;
    return t < 0 || t % step || t / step >= x->dim[i] ? -1 : t / step;
}

static pl_status ref(const pl_call *c)
{
    const pl_pad_attr *a = c->attr;
    const pl_type *x = &c->in_type[0], *y = &c->out_type[0];
    size_t elem = pl_dtype_bytes(y->dtype);
    int64_t n = pl_type_elems(y), stride[PL_MAX_RANK];
    pl_shape_strides(x, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = 0;
        bool inside = true;
        for (int k = y->rank - 1; k >= 0; k--) {
            int64_t at = source_of(a, x, k, rest % y->dim[k]);
            rest /= y->dim[k];
            inside &= at >= 0;
            from += at * stride[k];
        }
        if (inside)
            memcpy((char *)c->out[0] + (size_t)i * elem,
                   (const char *)c->in[0] + (size_t)from * elem, elem);
        else
            pl_elem_set(y->dtype, c->out[0], i, a->value);
    }
    return PL_OK;
}

/* ---- runs along the last padded axis ---------------------------------------------------- */
typedef struct job {
    const pl_call *c;
    int axis;              /* the last padded axis */
    int64_t run;           /* elements after it: never padded */
    int64_t in_line, line; /* elements of a line of the input and of the output */
    char value[8];
} job;

/* A line of the output: lo, elements with gaps, hi. src NULL: all padding. */
static void write_line(const job *j, char *dst, const char *src)
{
    const pl_pad_attr *a = j->c->attr;
    const pl_type *x = &j->c->in_type[0];
    size_t elem = pl_dtype_bytes(x->dtype);
    int64_t n = x->dim[j->axis], lo = a->lo.v[j->axis], hi = a->hi.v[j->axis],
            gap = a->inner.v[j->axis] * j->run;
    if (!src || n == 0) {
        pl_strided_fill(dst, elem, j->line, j->value);
        return;
    }
    pl_strided_fill(dst, elem, lo * j->run, j->value);
    dst += (size_t)(lo * j->run) * elem;
    int64_t pieces = gap ? n : 1, piece = gap ? j->run : n * j->run;
    for (int64_t i = 0; i < pieces; i++) {
        memcpy(dst, src, (size_t)piece * elem);
        dst += (size_t)piece * elem;
        src += (size_t)piece * elem;
        if (i + 1 == pieces) break;
        pl_strided_fill(dst, elem, gap, j->value);
        dst += (size_t)gap * elem;
    }
    pl_strided_fill(dst, elem, hi * j->run, j->value);
}

static void line_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_type *x = &j->c->in_type[0], *y = &j->c->out_type[0];
    size_t elem = pl_dtype_bytes(x->dtype);
    int64_t rest = task, from = 0, lines = 1;
    bool inside = true;
    for (int k = j->axis - 1; k >= 0; k--) {
        int64_t at = source_of(j->c->attr, x, k, rest % y->dim[k]);
        rest /= y->dim[k];
        inside &= at >= 0;
        from += at * lines;
        lines *= x->dim[k];
    }
    write_line(j, (char *)j->c->out[0] + (size_t)(task * j->line) * elem,
               inside ? (const char *)j->c->in[0] + (size_t)(from * j->in_line) * elem : NULL);
}

static pl_status lines(const pl_call *c)
{
    const pl_pad_attr *a = c->attr;
    const pl_type *x = &c->in_type[0], *y = &c->out_type[0];
    job j = {.c = c, .axis = 0, .run = 1};
    int64_t n_lines = 1;
    for (int i = 0; i < x->rank; i++)
        if (a->lo.v[i] || a->hi.v[i] || a->inner.v[i]) j.axis = i;
    for (int i = j.axis + 1; i < x->rank; i++) j.run *= x->dim[i];
    for (int i = 0; i < j.axis; i++) n_lines *= y->dim[i];
    j.in_line = x->dim[j.axis] * j.run;
    j.line = y->dim[j.axis] * j.run;
    pl_elem_set(x->dtype, j.value, 0, a->value);
    if (j.line > 0) pl_threads_for(n_lines, line_task, &j);
    return PL_OK;
}

static bool has_axes(const pl_call *c)
{
    return c->in_type[0].rank > 0;
}

static const pl_kernel kernels[] = {
    {"lines", has_axes, NULL, NULL, lines}, {"ref", NULL, NULL, NULL, ref}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[5]"}, "lo=[2], hi=[1], inner=[0], value=0", {{0}}},
    {{"f32[3,4]"}, "lo=[0,1], hi=[2,0], inner=[1,2], value=-1.5", {{0}}},
    {{"f32[2,3,1,5]"}, "lo=[0,1,1,0], hi=[0,0,2,0], inner=[0,2,0,0], value=0.25", {{0}}},
    {{"f32[1,1]"}, "lo=[0,0], hi=[0,0], inner=[3,0], value=0", {{0}}},
    {{"f32[0,2]"}, "lo=[1,0], hi=[1,0], inner=[0,0], value=3", {{0}}},
    {{"i64[2,3]"}, "lo=[1,0], hi=[0,1], inner=[0,1], value=-7", {{-9, 9, false}}},
    {{"u8[3]"}, "lo=[1], hi=[1], inner=[1], value=9", {{0, 255, false}}},
    {{"f32[]"}, "lo=[], hi=[], inner=[], value=1", {{0}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    const pl_pad_attr *a = c->attr;
    for (int i = 0; i < c->in_type[0].rank && pl_type_elems(&c->in_type[0]); i++)
        if (a->lo.v[i] == 0 && a->hi.v[i] == 0 && a->inner.v[i] == 0)
            l->in[0][i] = l->out[0][i] = (int8_t)(i + 1);
        else if (a->inner.v[i] == 0 && a->lo.v[i] % c->in_type[0].dim[i] == 0 &&
                 a->hi.v[i] % c->in_type[0].dim[i] == 0) /* whole copies of the axis */
            l->in[0][i] = l->out[0][i] = PL_LABEL_JOIN;
    if (a->value == 0) l->times = 1;
}

const pl_op pl_op_pad = {
    .name = "pad",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_pad_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
};

/* ---- constructors ----------------------------------------------------------------------- */
/* Returns the attributes of a value that is a pad with zeros around (not inside) its input. */
static const pl_pad_attr *zeros_around(const pl_graph *g, pl_val v)
{
    const pl_node_rec *r = &g->nodes[pl_producer(g, v.id)];
    const pl_pad_attr *a = r->attr;
    if (r->op != &pl_op_pad || a->value != 0) return NULL;
    for (int i = 0; i < a->inner.n; i++)
        if (a->inner.v[i]) return NULL;
    return a;
}

/* Returns the axis along which b's elements follow a's, with the same padding on all other axes;
 * -1 if there is none. */
static int follows(const pl_pad_attr *a, const pl_pad_attr *b, const pl_type *whole)
{
    int axis = -1;
    for (int i = 0; i < whole->rank; i++) {
        if (a->lo.v[i] == b->lo.v[i] && a->hi.v[i] == b->hi.v[i]) continue;
        bool next = whole->dim[i] - a->hi.v[i] == b->lo.v[i];
        if (axis >= 0 || !next) return -1;
        axis = i;
    }
    return axis;
}

/* Appends v to parts, or its inputs where v is a concat along the axis. */
static int list_parts(const pl_graph *g, pl_val v, int axis, pl_val *parts, int n, int most)
{
    const pl_node_rec *r = &g->nodes[pl_producer(g, v.id)];
    bool flat = r->op == &pl_op_concat && ((const pl_concat_attr *)r->attr)->axis == axis &&
                n + (int)r->n_in <= most;
    for (uint32_t i = 0; flat && i < r->n_in; i++) parts[n++] = (pl_val){g->edges[r->in + i]};
    if (!flat) parts[n++] = v;
    return n;
}

pl_val pl__add_pads(pl_graph *g, pl_val a, pl_val b)
{
    enum { MOST = 16 };
    pl_val parts[MOST + 1];
    if (!pl_val_ok(a) || !pl_val_ok(b) || g->status != PL_OK) return PL_NO_VAL;
    const pl_pad_attr *x = zeros_around(g, a), *y = zeros_around(g, b);
    pl_type whole = pl_val_type(g, a), other = pl_val_type(g, b);
    if (!x || !y || !pl_type_equal(&whole, &other)) return PL_NO_VAL;
    int axis = follows(x, y, &whole);
    if (axis < 0) {
        axis = follows(y, x, &whole);
        if (axis < 0) return PL_NO_VAL;
        pl_val v = a;
        a = b, b = v;
        const pl_pad_attr *z = x;
        x = y, y = z;
    }
    pl_pad_attr around = *x;
    around.hi.v[axis] = y->hi.v[axis];
    int n = list_parts(g, (pl_val){pl_node_in(g, pl_producer(g, a.id))[0]}, axis, parts, 0, MOST);
    n = list_parts(g, (pl_val){pl_node_in(g, pl_producer(g, b.id))[0]}, axis, parts, n, MOST);
    pl_val joined = pl_concat(g, n, parts, axis);
    return pl__pad_all(g, joined, around.lo.v, around.hi.v, around.inner.v, 0);
}

pl_val pl__pad_all(pl_graph *g, pl_val x, const int64_t *lo, const int64_t *hi,
                   const int64_t *inner, double value)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_pad_attr a;
    memset(&a, 0, sizeof a);
    int rank = pl_val_type(g, x).rank;
    bool none = true;
    a.lo.n = a.hi.n = a.inner.n = rank;
    a.value = value;
    for (int i = 0; i < rank; i++) {
        a.lo.v[i] = lo[i];
        a.hi.v[i] = hi[i];
        a.inner.v[i] = inner[i];
        none &= !lo[i] && !hi[i] && !inner[i];
    }
    return none ? x : pl_build1(g, &pl_op_pad, &a, 1, &x);
}

pl_val pl_pad(pl_graph *g, pl_val x, int axis, int64_t lo, int64_t hi, int64_t inner, double value)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t before[PL_MAX_RANK] = {0}, after[PL_MAX_RANK] = {0}, between[PL_MAX_RANK] = {0},
            at = axis;
    if (pl_shape_axis(&at, &t) != PL_OK) {
        pl_graph_adopt_error(g, PL_ERR_ARG);
        return PL_NO_VAL;
    }
    before[at] = lo;
    after[at] = hi;
    between[at] = inner;
    return pl__pad_all(g, x, before, after, between, value);
}
