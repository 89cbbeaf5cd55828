/* test_cross_entropy.c - cross-entropy of rows against numbers from PyTorch, in every type of
 * logits.
 *
 * Logits are waves times 4, weights of the classes waves around 1.25; row i has the label
 * (3i + 1) mod K, and row 1 the ignored one where there is one. Losses have the cotangent
 * sin(0.29 i + 0.1), lse sin(0.47 i + 0.1); the second gradient belongs to
 * the sum of dx times sin(0.53 i + 0.1). The expected sums were computed by PyTorch in f64.
 */
#include "base/dtype.h"
#include "ops/core/ops.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct rows_case {
    int64_t rows, k;
    double smoothing, z_loss;
    int64_t ignore;
    bool ignores, weighted;
    double loss, lse, dx, dx2;
} rows_case;
static const rows_case cases[] = {
    {5, 7, 0, 0, 0, false, false, 18.1096194632, 15.1654085023, 0.670052412669, 0.101340769375},
    {6, 37, 0.1, 0, 0, false, false, 27.1171006621, 28.1297073185, -0.0467209764427,
     -0.398641582442},
    {9, 4, 0.2, 0.01, 2, true, true, 14.5732883623, 12.0472837054, -0.703160925268,
     0.0220141654104},
    {3, 1030, 0.3, 0.1, -100, true, true, 37.0164233188, 26.8682998132, 0.0119105864839,
     0.047625196119},
    {4, 600, 0, 0.05, 0, true, false, 31.9943563432, 32.1311540567, -0.297828564921,
     -0.0929487569692},
};

typedef struct rows_graph {
    pl_store *s;
    pl_graph *g;
    graph_eval *e;
    pl_val x, w, labels, loss, lse, dx, dx2;
} rows_graph;

static void fill(graph_eval *e, pl_val v, pl_type t, double by, double add)
{
    for (int64_t i = 0; i < pl_type_elems(&t); i++)
        pl_elem_set(t.dtype, graph_eval_at(e, v), i,
                    add + by * pl_elem_get(t.dtype, graph_eval_at(e, v), i));
}

static rows_graph rows_new(const rows_case *c, pl_dtype dt, bool reference)
{
    rows_graph r = {.s = pl_store_new()};
    pl_dtype wide = dt == PL_F64 ? PL_F64 : PL_F32;
    pl_graph *g = r.g = pl_graph_new(r.s);
    r.x = pl_input(g, "x", PL_TYPE(dt, c->rows, c->k));
    r.labels = pl_input(g, "labels", PL_TYPE(PL_I32, c->rows));
    if (c->weighted) r.w = pl_input(g, "w", PL_TYPE(wide, c->k));
    r.loss = pl_cross_entropy_rows(g, r.x, r.labels,
                                   (pl_cross_entropy){.smoothing = c->smoothing,
                                                      .z_loss = c->z_loss,
                                                      .ignore = c->ignore,
                                                      .ignore_zero = c->ignores && !c->ignore,
                                                      .weight = r.w},
                                   &r.lse);
    pl_val seed[2] = {pl_input(g, "d", PL_TYPE(wide, c->rows)),
                      pl_input(g, "d_lse", PL_TYPE(wide, c->rows))};
    pl_val seed2 = pl_input(g, "e", pl_val_type(g, r.x));
    pl_grad_seeded(g, (pl_val[]){r.loss, r.lse}, seed, 2, &r.x, 1, &r.dx);
    pl_grad_seeded(g, &r.dx, &seed2, 1, &r.x, 1, &r.dx2);
    if (pl_graph_status(g) != PL_OK) return r;
    r.e = graph_eval_new(g, reference);
    graph_eval_wave(r.e, r.x, 0.37);
    fill(r.e, r.x, pl_val_type(g, r.x), 4, 0);
    if (c->weighted) {
        graph_eval_wave(r.e, r.w, 0.61);
        fill(r.e, r.w, pl_val_type(g, r.w), 0.75, 1.25);
    }
    int32_t *label = graph_eval_at(r.e, r.labels);
    for (int64_t i = 0; i < c->rows; i++) label[i] = (int32_t)((3 * i + 1) % c->k);
    if (c->ignores) label[1] = (int32_t)c->ignore;
    graph_eval_wave(r.e, seed[0], 0.29);
    graph_eval_wave(r.e, seed[1], 0.47);
    graph_eval_wave(r.e, seed2, 0.53);
    return r;
}

static void rows_free(rows_graph *r)
{
    graph_eval_free(r->e);
    pl_graph_free(r->g);
    pl_store_free(r->s);
}

TEST(cross_entropy_rows_agree_with_pytorch)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 2; t++) {
            rows_graph r = rows_new(&cases[i], t ? PL_F32 : PL_F64, !t);
            CHECK_MSG(r.e, "case %d: %s", (int)i, pl_graph_error(r.g));
            CHECK_OK(graph_eval_run(r.e));
            CHECK(graph_eval_off(r.e, r.loss, cases[i].loss) < 1);
            CHECK(graph_eval_off(r.e, r.lse, cases[i].lse) < 1);
            CHECK(graph_eval_off(r.e, r.dx, cases[i].dx) < 1);
            CHECK(graph_eval_off(r.e, r.dx2, cases[i].dx2) < 1);
            rows_free(&r);
        }
}

/* Returns the largest difference between a value of a 16-bit graph and of an f64 graph whose logits
 * are the same numbers, relative to the largest of the latter. */
static double worst(rows_graph *a, pl_val va, rows_graph *b, pl_val vb)
{
    pl_type ta = pl_val_type(a->g, va), tb = pl_val_type(b->g, vb);
    double far = 0, top = 0;
    for (int64_t i = 0; i < pl_type_elems(&ta); i++) {
        double x = pl_elem_get(ta.dtype, graph_eval_at(a->e, va), i);
        double y = pl_elem_get(tb.dtype, graph_eval_at(b->e, vb), i);
        far = !(fabs(x - y) <= far) ? fabs(x - y) : far;
        top = fmax(top, fabs(y));
    }
    return far / top;
}

/* Losses and sums are f32 whatever the logits are; only dx is rounded to 16 bits. Every instruction
 * set. */
TEST(cross_entropy_of_16_bit_logits_sums_in_f32)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16};
    static const double rounding[] = {1e-6, 4e-3, 5e-4};
    for (int i = 0; i < 3 * 3 * 5; i++) {
        const rows_case *c = &cases[i / 9];
        int d = i % 3;
        rows_graph a = rows_new(c, dtypes[d], false), b = rows_new(c, PL_F64, true);
        for (int64_t k = 0; k < c->rows * c->k; k++)
            ((double *)graph_eval_at(b.e, b.x))[k] =
                pl_elem_get(dtypes[d], graph_eval_at(a.e, a.x), k);
        setenv("PL_CPU_ISA", sets[i / 3 % 3], 1);
        CHECK_OK(graph_eval_run(a.e));
        unsetenv("PL_CPU_ISA");
        CHECK_OK(graph_eval_run(b.e));
        CHECK(worst(&a, a.loss, &b, b.loss) < 1e-6);
        CHECK(worst(&a, a.lse, &b, b.lse) < 1e-6);
        CHECK_MSG(worst(&a, a.dx, &b, b.dx) < rounding[d], "%s: %g", pl_dtype_name(dtypes[d]),
                  worst(&a, a.dx, &b, b.dx));
        rows_free(&a);
        rows_free(&b);
    }
}

/* A label that no class has is never silent; a row that is ignored gives no gradient even where its
 * logits are not finite. */
TEST(cross_entropy_of_a_label_without_a_class_is_nan)
{
    rows_graph r = rows_new(&cases[4], PL_F32, false);
    int32_t *label = graph_eval_at(r.e, r.labels);
    float *x = graph_eval_at(r.e, r.x);
    label[0] = 600;
    label[2] = -1;
    for (int i = 0; i < 600; i++) x[600 + i] = NAN; /* row 1 is ignored */
    CHECK_OK(graph_eval_run(r.e));
    const float *loss = graph_eval_at(r.e, r.loss), *dx = graph_eval_at(r.e, r.dx);
    CHECK(isnan(loss[0]) && isnan(loss[2]) && isfinite(loss[3]));
    CHECK(loss[1] == 0);
    CHECK(isnan(dx[0]) && isnan(dx[2 * 600 + 5]) && isfinite(dx[3 * 600]));
    rows_free(&r);
}

/* Networks that blow up have such logits, and their loss is the sign to see. */
TEST(cross_entropy_of_huge_equal_logits_is_the_log_of_the_classes)
{
    rows_graph r = rows_new(&cases[0], PL_F32, false);
    int64_t n = cases[0].rows * cases[0].k;
    float *x = graph_eval_at(r.e, r.x);
    for (int64_t i = 0; i < n; i++) x[i] = 1e20F;

    CHECK_OK(graph_eval_run(r.e));

    const float *loss = graph_eval_at(r.e, r.loss);
    for (int64_t i = 0; i < cases[0].rows; i++)
        CHECK_NEAR((double)loss[i], log((double)cases[0].k), 1e-6);
    rows_free(&r);
}

TEST(cross_entropy_names_the_shapes_that_do_not_fit)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4, 9)), y = pl_input(g, "y", PL_TYPE(PL_I32, 5));
    CHECK(!pl_val_ok(pl_cross_entropy_rows(g, x, y, (pl_cross_entropy){0}, NULL)));
    CHECK(strstr(pl_graph_error(g),
                 "logits are f32[4,9], but labels are i32[5]: each row needs one label"));
    pl_graph_free(g);
    pl_store_free(s);
}
