/* test_ops_gradients.c - gradients of every op of the table: the first and the second derivative
 * against central differences in f64, along random directions, to 1e-6. PL_TEST_OP=name keeps to
 * one op. */
#include "tests/lib/ref_eval.h"
#include "tests/lib/test.h"
#include "tests/ops/op_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- gradients -------------------------------------------------------------------------- */
/* L = <r, y(x)>, its gradient gx in x; G = <q, gx(x, r)>, its gradient in x and r. Both are checked
 * against differences along random directions in each variable v = x0.. then r0... */
enum { MAX_VARS = PL_CASE_IN + PL_MAX_OUT };

typedef struct study {
    inst t;
    pl_val var[MAX_VARS]; /* x's, then r's */
    pl_val y[PL_MAX_OUT], r[PL_MAX_OUT];
    pl_val gx[PL_CASE_IN], q[PL_CASE_IN];
    pl_val gg[MAX_VARS];
    int n_x, n_y, n_var;
    ref_eval *e;
} study;

static double *values(study *s, pl_val v, int64_t *n)
{
    pl_type t = pl_val_type(s->t.g, v);
    *n = pl_type_elems(&t);
    /* The test owns the evaluation, so it may write into it; inputs are set this way. */
    return (double *)(uintptr_t)ref_eval_get(s->e, v);
}

static double dot(study *s, pl_val a, const double *b)
{
    int64_t n;
    double *x = values(s, a, &n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * b[i];
    return sum;
}

/* Returns false when this case has no gradient. */
static bool study_build(study *s)
{
    inst *t = &s->t;
    pl_graph *g = t->g;
    char name[8];
    for (int i = 0; i < t->n_in; i++)
        if (pl_dtype_is_float(t->in_type[i].dtype)) s->var[s->n_x++] = t->in[i];
    for (int k = 0; k < t->call.n_out; k++) {
        if (!pl_dtype_is_float(t->out_type[k].dtype)) continue;
        if (t->out_type[k].dtype != PL_F64) return false; /* rounds: not differentiable */
        snprintf(name, sizeof name, "r%d", s->n_y);
        s->y[s->n_y] = t->out[k];
        s->r[s->n_y++] = pl_input(g, name, t->out_type[k]);
    }
    if (s->n_x == 0 || s->n_y == 0) return false;
    pl_grad_seeded(g, s->y, s->r, s->n_y, s->var, s->n_x, s->gx);
    s->n_var = s->n_x;
    for (int k = 0; k < s->n_y; k++) s->var[s->n_var++] = s->r[k];
    for (int i = 0; i < s->n_x; i++) {
        snprintf(name, sizeof name, "q%d", i);
        s->q[i] = pl_input(g, name, pl_val_type(g, s->var[i]));
    }
    pl_grad_seeded(g, s->gx, s->q, s->n_x, s->var, s->n_var, s->gg);
    return true;
}

static double value_of_l(study *s)
{
    int64_t n;
    double sum = 0;
    for (int k = 0; k < s->n_y; k++) sum += dot(s, s->y[k], values(s, s->r[k], &n));
    return sum;
}

static double value_of_g(study *s)
{
    int64_t n;
    double sum = 0;
    for (int i = 0; i < s->n_x; i++)
        if (pl_val_ok(s->gx[i])) sum += dot(s, s->gx[i], values(s, s->q[i], &n));
    return sum;
}

/* Compares |difference - <gradient, d>| with their size, or with a tenth of the value for a
 * random direction. */
static void compare(study *s, const char *what, int var, pl_val grad, const double *d, double diff)
{
    int64_t n;
    values(s, s->var[var], &n);
    double exact = 0, gg = 0, dd = 0;
    if (pl_val_ok(grad)) {
        const double *x = values(s, grad, &n);
        exact = dot(s, grad, d);
        for (int64_t i = 0; i < n; i++) gg += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) dd += d[i] * d[i];
    double size = fmax(fmax(fabs(exact), fabs(diff)), 0.1 * sqrt(gg * dd / (double)(n ? n : 1)));
    double err = fabs(exact - diff) / (size + 1e-5);
    if (!(err < 1e-6))
        inst_fail(&s->t, "%s in %s%d: rule says %.12g, differences %.12g (%.2g)", what,
                  var < s->n_x ? "x" : "r", var < s->n_x ? var : var - s->n_x, exact, diff, err);
}

/* Fourth-order central differences of L and G along d in one variable. */
static void check_direction(study *s, int var, const double *x0, const double *d)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    const double h = 1e-3;
    double dl = 0, dg = 0;
    int64_t n;
    double *x = values(s, s->var[var], &n);
    for (int p = 0; p < 4; p++) {
        for (int64_t i = 0; i < n; i++) x[i] = x0[i] + at[p] * h * d[i];
        if (ref_eval_run(s->e) != PL_OK) inst_fail(&s->t, "%s", pl_error_text());
        dl += weight[p] * value_of_l(s);
        dg += weight[p] * value_of_g(s);
    }
    memcpy(x, x0, (size_t)n * sizeof *x);
    if (ref_eval_run(s->e) != PL_OK) inst_fail(&s->t, "%s", pl_error_text());
    if (var < s->n_x) compare(s, "gradient", var, s->gx[var], d, dl / (12 * h));
    compare(s, "second gradient", var, s->gg[var], d, dg / (12 * h));
}

static void study_run(study *s)
{
    inst *t = &s->t;
    uint64_t seed = seed_of(t, 99);
    int64_t n;
    for (int i = 0; i < t->n_in; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        draw(t, i, ref_eval_input(s->e, name));
    }
    for (int k = 0; k < s->n_y; k++) {
        double *r = values(s, s->r[k], &n);
        for (int64_t i = 0; i < n; i++) r[i] = pl_test_noise(&seed);
    }
    for (int k = 0; k < s->n_x; k++) {
        double *q = values(s, s->q[k], &n);
        for (int64_t i = 0; i < n; i++) q[i] = pl_test_noise(&seed);
    }
    for (int v = 0; v < s->n_var; v++) {
        const double *x = values(s, s->var[v], &n);
        double *x0 = calloc((size_t)n + 1, sizeof *x0), *d = calloc((size_t)n + 1, sizeof *d);
        if (!x0 || !d) abort();
        memcpy(x0, x, (size_t)n * sizeof *x0);
        for (int64_t i = 0; i < n; i++) d[i] = pl_test_noise(&seed);
        check_direction(s, v, x0, d);
        free(x0);
        free(d);
    }
}

static void check_gradients(const pl_op *op, int index)
{
    study s;
    memset(&s, 0, sizeof s);
    if (inst_new(&s.t, op, &op->cases[index], index, PL_F64) && study_build(&s)) {
        if (pl_graph_status(s.t.g) != PL_OK)
            inst_fail(&s.t, "gradient: %s", pl_graph_error(s.t.g));
        else if ((s.e = ref_eval_new(s.t.g)) != NULL)
            study_run(&s);
        ref_eval_free(s.e);
    }
    inst_free(&s.t);
}

TEST(ops_gradients_of_every_op_agree_with_differences)
{
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        if (is_exempt(op) || !op->vjp || !op->cases) continue;
        for (int c = 0; !last_case(&op->cases[c]); c++) check_gradients(op, c);
    }
}
