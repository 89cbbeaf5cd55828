/* op_case.c - see op_case.h. */
#include "tests/ops/op_case.h"
#include "base/dtype.h"
#include "ir/text.h"
#include "tests/lib/test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void inst_free(inst *t)
{
    pl_graph_free(t->g);
    pl_store_free(t->store);
    memset(t, 0, sizeof *t);
}

bool inst_new(inst *t, const pl_op *op, const pl_case *cs, int index, pl_dtype dtype)
{
    memset(t, 0, sizeof *t);
    t->op = op;
    t->cs = cs;
    t->index = index;
    t->dtype = dtype;
    snprintf(t->label, sizeof t->label, "%s case %d %s", op->name, index, pl_dtype_name(dtype));
    t->store = pl_store_new();
    t->g = pl_graph_new(t->store);
    if (!t->g) return false;
    bool ok = true;
    for (; ok && t->n_in < PL_CASE_IN && t->cs->in[t->n_in]; t->n_in++) {
        const char *text = t->cs->in[t->n_in];
        char name[8];
        pl_type *type = &t->in_type[t->n_in];
        ok = pl_type_parse(text, strlen(text), type) == PL_OK;
        if (type->dtype == PL_F32) {
            type->dtype = dtype;
            t->swapped = true;
        }
        snprintf(name, sizeof name, "x%d", t->n_in);
        t->in[t->n_in] = pl_input(t->g, name, *type);
    }
    void *attr = pl_arena_alloc(&t->g->arena, op->attr_bytes + 1);
    ok = ok && attr && pl_attr_parse(op, t->cs->attr, strlen(t->cs->attr), t->g, attr) == PL_OK;
    if (ok) {
        t->node = pl_build(t->g, op, attr, t->n_in, t->in, t->out).id;
        ok = t->node != 0;
    }
    if (ok) pl_node_call(t->g, t->node, t->in_type, t->out_type, &t->call);
    return ok;
}

bool is_exempt(const pl_op *op)
{
    const char *only = getenv("PL_TEST_OP");
    return (op->flags & (PL_OP_SOURCE | PL_OP_EFFECT)) || (only && strcmp(only, op->name) != 0);
}

bool last_case(const pl_case *c)
{
    return !c->attr;
}

/* ---- numbers ---------------------------------------------------------------------------- */
uint64_t seed_of(const inst *t, int input)
{
    uint64_t h = 1469598103934665603u;
    for (const char *p = t->op->name; *p; p++) h = (h ^ (uint64_t)*p) * 1099511628211u;
    return h ^ (uint64_t)t->index << 32 ^ (uint64_t)input << 16;
}

/* Inputs marked distinct take their values from one set of cells, so that values keep a distance
 * from each other and from zero, across inputs too. A range that is too narrow for the number of
 * values grows around its middle, or upwards if it begins at 0 or above. */
static void draw_distinct(const inst *t, int input, void *p)
{
    int64_t total = 0, mine = 0;
    for (int i = 0; i < t->n_in; i++) {
        if (i == input) mine = total;
        if (t->cs->range[i].distinct) total += pl_type_elems(&t->in_type[i]);
    }
    total += total & 1; /* an even number: no cell of a symmetric range is centred on 0 */
    int64_t *cell = calloc((size_t)total + 1, sizeof *cell);
    if (!cell) return;
    uint64_t s = seed_of(t, -1);
    for (int64_t i = 0; i < total; i++) cell[i] = i;
    for (int64_t i = total - 1; i > 0; i--) {
        int64_t j = (int64_t)((pl_test_noise(&s) + 1) / 2 * (double)i), c = cell[i];
        cell[i] = cell[j];
        cell[j] = c;
    }
    double lo = t->cs->range[input].lo, hi = t->cs->range[input].hi;
    double width = fmax((hi - lo) / (double)total, 0.075); /* 0.05 apart, whatever the noise */
    if (lo < 0) lo = (lo + hi) / 2 - width * (double)total / 2;
    int64_t n = pl_type_elems(&t->in_type[input]);
    for (int64_t i = 0; i < n; i++) {
        double v = lo + ((double)cell[mine + i] + 0.5 + 0.15 * pl_test_noise(&s)) * width;
        if (fabs(v) < 0.02) v = 0.03;
        pl_elem_set(t->in_type[input].dtype, p, i, (double)(float)v);
    }
    free(cell);
}

/* Rounded to f32 first, so that f32 and f64 get the same numbers. */
void draw(const inst *t, int input, void *p)
{
    const pl_type *type = &t->in_type[input];
    bool is_float = pl_dtype_is_float(type->dtype);
    double lo = t->cs->range[input].lo, hi = t->cs->range[input].hi;
    uint64_t s = seed_of(t, input);
    if (t->cs->range[input].distinct) {
        draw_distinct(t, input, p);
        return;
    }
    if (lo == 0 && hi == 0) {
        lo = is_float ? -1 : 0;
        hi = 1;
    }
    int64_t n = pl_type_elems(type);
    for (int64_t i = 0; i < n; i++) {
        double u = (pl_test_noise(&s) + 1) / 2;
        double v = is_float ? (double)(float)(lo + u * (hi - lo))
                            : floor(ceil(lo) + u * (floor(hi) - ceil(lo) + 1));
        pl_elem_set(type->dtype, p, i, !is_float && v > floor(hi) ? floor(hi) : v);
    }
}

double tolerance(pl_dtype d)
{
    return d == PL_BF16  ? 1.6e-2
           : d == PL_F16 ? 2e-3
           : d == PL_F32 ? 2e-5
           : d == PL_F64 ? 1e-12
                         : 0;
}

double disagreement(const pl_type *ta, const void *a, const pl_type *tb, const void *b, char *why,
                    size_t cap)
{
    return disagreement_beside(ta, a, tb, b, 0.1, why, cap);
}

double disagreement_beside(const pl_type *ta, const void *a, const pl_type *tb, const void *b,
                           double part, char *why, size_t cap)
{
    int64_t n = pl_type_elems(ta);
    double tol = tolerance(ta->dtype), wider = tolerance(tb->dtype), scale = 0, worst = 0;
    if (wider > tol) tol = wider;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(pl_elem_get(tb->dtype, b, i));
        if (isfinite(v) && v > scale) scale = v;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = pl_elem_get(ta->dtype, a, i), y = pl_elem_get(tb->dtype, b, i);
        if ((isnan(x) && isnan(y)) || x == y) continue;
        double allowed = tol * (fabs(y) + part * scale);
        double far = allowed > 0 ? fabs(x - y) / allowed : (double)INFINITY;
        if (far <= worst) continue;
        worst = isnan(far) ? (double)INFINITY : far;
        snprintf(why, cap, "element %lld is %.9g, wanted %.9g", (long long)i, x, y);
    }
    return worst;
}

void inst_fail(const inst *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_test_fail(__FILE__, __LINE__, "%s: %s", t->label, text);
}
