/* test_attention.c - attention against numbers from PyTorch, and its tiles against the
 * reference.
 *
 * Operands are waves as in test_conv.c; results are compared by their sum weighted with
 * cos(0.23*i). The expected sums were computed by PyTorch in f64.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/core/ops.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

typedef struct attention_case {
    int64_t b, n, m, h, d;
    bool causal;
    double o, dq, dk, dv;
} attention_case;
static const attention_case cases[] = {
    {2, 5, 7, 3, 4, false, -0.5412612498, 1.57519550458, -0.692345814451, 0.301636329493},
    {1, 6, 6, 2, 5, true, 3.27267708779, -0.145197435718, -0.63469430829, 4.49019715181},
    {1, 70, 131, 2, 16, false, 0.0217298845634, 0.000211516155815, 0.0347460324001, 0.036106793733},
    {1, 130, 130, 1, 24, true, 1.5475896222, -3.02655313339, 0.90022147928, 11.3153279783},
    {2, 64, 64, 2, 32, false, 0.958170187645, -0.0754343001596, 0.00538997692838, -0.1379322628},
};

typedef struct attention_graph {
    pl_store *s;
    pl_graph *g;
    graph_eval *e;
    pl_val in[3], seed, o, grad[3];
} attention_graph;

/* Builds and runs forward and backward on waves; .e is NULL after a failure. */
static attention_graph run_case(const attention_case *c, pl_dtype dt, bool reference)
{
    static const double freq[3] = {0.37, 0.61, 0.47};
    attention_graph a = {.s = pl_store_new()};
    a.g = pl_graph_new(a.s);
    a.in[0] = pl_input(a.g, "q", PL_TYPE(dt, c->b, c->n, c->h, c->d));
    a.in[1] = pl_input(a.g, "k", PL_TYPE(dt, c->b, c->m, c->h, c->d));
    a.in[2] = pl_input(a.g, "v", PL_TYPE(dt, c->b, c->m, c->h, c->d));
    a.seed = pl_input(a.g, "seed", pl_val_type(a.g, a.in[0]));
    a.o = pl_attention(a.g, a.in[0], a.in[1], a.in[2], 0, c->causal);
    pl_grad_seeded(a.g, &a.o, &a.seed, 1, a.in, 3, a.grad);
    if (pl_graph_status(a.g) != PL_OK) return a;
    a.e = graph_eval_new(a.g, reference);
    for (int i = 0; i < 3; i++) graph_eval_wave(a.e, a.in[i], freq[i]);
    graph_eval_wave(a.e, a.seed, 0.29);
    if (graph_eval_run(a.e) == PL_OK) return a;
    graph_eval_free(a.e);
    a.e = NULL;
    return a;
}

static void free_case(attention_graph *a)
{
    graph_eval_free(a->e);
    pl_graph_free(a->g);
    pl_store_free(a->s);
}

TEST(attention_agrees_with_pytorch)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 2; t++) {
            attention_graph a = run_case(&cases[i], t ? PL_F32 : PL_F64, !t);
            CHECK_MSG(a.e, "case %d: %s %s", (int)i, pl_graph_error(a.g), pl_error_text());
            CHECK(graph_eval_off(a.e, a.o, cases[i].o) < 1);
            CHECK(graph_eval_off(a.e, a.grad[0], cases[i].dq) < 1);
            CHECK(graph_eval_off(a.e, a.grad[1], cases[i].dk) < 1);
            CHECK(graph_eval_off(a.e, a.grad[2], cases[i].dv) < 1);
            free_case(&a);
        }
}

static double worst(attention_graph *a, attention_graph *b, pl_val v)
{
    pl_type t = pl_val_type(a->g, v);
    double w = 0;
    for (int64_t i = 0; i < pl_type_elems(&t); i++) {
        double d = fabs(pl_elem_get(t.dtype, graph_eval_at(a->e, v), i) -
                        pl_elem_get(t.dtype, graph_eval_at(b->e, v), i));
        w = d > w || isnan(d) ? d : w;
    }
    return w;
}

/* Sizes around the tiles' edges, odd head sizes, few heads (keys are split), every instruction
 * set. */
TEST(attention_tiles_agree_with_reference)
{
    static const attention_case sizes[] = {
        {1, 1, 1, 1, 1, false, 0, 0, 0, 0},     {1, 64, 64, 1, 16, true, 0, 0, 0, 0},
        {1, 65, 129, 1, 17, false, 0, 0, 0, 0}, {2, 63, 200, 2, 40, false, 0, 0, 0, 0},
        {1, 130, 130, 3, 80, true, 0, 0, 0, 0}, {1, 70, 10, 9, 3, true, 0, 0, 0, 0},
    };
    static const char *const sets[] = {"base", "avx2", "avx512"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int k = 0; k < 3; k++) {
            setenv("PL_CPU_ISA", sets[k], 1);
            attention_graph a = run_case(&sizes[i], PL_F32, false);
            attention_graph b = run_case(&sizes[i], PL_F32, true);
            unsetenv("PL_CPU_ISA");
            CHECK(a.e && b.e);
            CHECK(worst(&a, &b, a.o) < 2e-6);
            for (int j = 0; j < 3; j++)
                CHECK_MSG(worst(&a, &b, a.grad[j]) < 2e-5, "size %d, %s, gradient %d: %g", (int)i,
                          sets[k], j, worst(&a, &b, a.grad[j]));
            free_case(&a);
            free_case(&b);
        }
}

TEST(attention_does_not_depend_on_threads)
{
    static const attention_case c = {1, 200, 300, 2, 24, false, 0, 0, 0, 0};
    int before = pl_threads_count();
    pl_threads_set(1);
    attention_graph a = run_case(&c, PL_F32, false);
    pl_threads_set(3);
    attention_graph b = run_case(&c, PL_F32, false);
    pl_threads_set(before);
    CHECK(a.e && b.e);
    CHECK(worst(&a, &b, a.o) == 0);
    for (int j = 0; j < 3; j++) CHECK(worst(&a, &b, a.grad[j]) == 0);
    free_case(&a);
    free_case(&b);
}

/* The workspace grows with the number of tokens, not with its square. */
TEST(attention_memory_is_linear)
{
    size_t work[2];

    for (int i = 0; i < 2; i++) {
        int64_t n = i ? 8192 : 1024;
        pl_store *s = pl_store_new();
        pl_graph *g = pl_graph_new(s);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, n, 2, 16));
        pl_val o = pl_attention(g, x, x, x, 0, false), d;
        pl_grad(g, o, &x, 1, &d);
        CHECK_INT(pl_graph_status(g), PL_OK);
        for (uint32_t k = 1; k < g->n_nodes; k++) {
            if (strcmp(g->nodes[k].op->name, "attention_bwd") != 0) continue;
            pl_type in[8], out[PL_MAX_OUT];
            pl_call c;
            void *prep = NULL;
            pl_node_call(g, k, in, out, &c);
            CHECK_OK(g->nodes[k].op->cpu[0].prepare(&c, &prep, &work[i]));
        }
        pl_graph_free(g);
        pl_store_free(s);
    }
    CHECK(work[1] <= 8 * work[0]);
    CHECK(work[1] < 8192 * 8192);
}

/* ---- masks ------------------------------------------------------------------------------ */
/* Where (7 i + 3 j) mod 5 is not 0; query 2 sees no key. [1,1,N,M] */
static pl_val some_keys(pl_graph *g, int64_t n, int64_t m)
{
    pl_type t = PL_TYPE(PL_I32, 1, 1, n, m);
    pl_val i = pl_iota(g, t, 2), j = pl_iota(g, t, 3), zero = pl_full_like(g, i, 0);
    pl_val sum = pl_add(g, pl_scale(g, i, 7), pl_scale(g, j, 3));
    pl_val on = pl_ne(g, pl_mod(g, sum, pl_full_like(g, i, 5)), zero);
    return pl_and(g, on, pl_ne(g, i, pl_full_like(g, i, 2)));
}

/* As run_case, with a mask: of bool, or of numbers that are -infinity where the bool is false. */
static attention_graph run_masked(const attention_case *c, bool numbers, bool reference)
{
    static const double freq[3] = {0.37, 0.61, 0.47};
    attention_graph a = {.s = pl_store_new()};
    a.g = pl_graph_new(a.s);
    for (int i = 0; i < 3; i++)
        a.in[i] = pl_input(a.g,
                           i == 0   ? "q"
                           : i == 1 ? "k"
                                    : "v",
                           PL_TYPE(PL_F32, c->b, i ? c->m : c->n, c->h, c->d));
    a.seed = pl_input(a.g, "seed", pl_val_type(a.g, a.in[0]));
    pl_val mask = some_keys(a.g, c->n, c->m);
    if (numbers) {
        pl_val x = pl_scale(
            a.g, pl_cast(a.g, pl_iota(a.g, PL_TYPE(PL_I32, 1, c->h, 1, c->m), 3), PL_F32), 0.01);
        mask = pl_select(a.g, pl_broadcast(a.g, mask, PL_DIMS(1, c->h, c->n, c->m)),
                         pl_broadcast(a.g, x, PL_DIMS(1, c->h, c->n, c->m)),
                         pl_fill(a.g, PL_TYPE(PL_F32, 1, c->h, c->n, c->m), (double)-INFINITY));
    }
    a.o = pl_attention_masked(a.g, a.in[0], a.in[1], a.in[2], mask, 0, c->causal);
    pl_grad_seeded(a.g, &a.o, &a.seed, 1, a.in, 3, a.grad);
    if (pl_graph_status(a.g) != PL_OK) return a;
    a.e = graph_eval_new(a.g, reference);
    for (int i = 0; i < 3; i++) graph_eval_wave(a.e, a.in[i], freq[i]);
    graph_eval_wave(a.e, a.seed, 0.29);
    if (graph_eval_run(a.e) == PL_OK) return a;
    graph_eval_free(a.e);
    a.e = NULL;
    return a;
}

/* Query 2 of every batch and head. */
static double of_blind_query(attention_graph *a, const attention_case *c, pl_val v)
{
    double most = 0;
    for (int64_t b = 0; b < c->b; b++)
        for (int64_t i = 0; i < c->h * c->d; i++)
            most = fmax(most, fabs(pl_elem_get(PL_F32, graph_eval_at(a->e, v),
                                               (b * c->n + 2) * c->h * c->d + i)));
    return most;
}

/* One of q, k and v of rows that lie [tokens, batch, 3, E], as torch.nn.MultiheadAttention has
 * them. */
static pl_val turned_part(pl_graph *g, pl_val x, int i, int64_t heads)
{
    pl_type t = pl_val_type(g, x);
    int64_t e = t.dim[3];
    x = pl_reshape(g, pl_slice(g, x, 2, i, i + 1, 1),
                   PL_DIMS(t.dim[0], t.dim[1], heads, e / heads));
    return pl_permute(g, x, (const int[]){1, 0, 2, 3});
}

/* Rows [tokens, batch, 3, E] change places once, and attention reads its operands in them. */
TEST(attention_reads_rows_with_tokens_first)
{
    enum { N = 5, B = 3, HEADS = 2, E = 8 };
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, N, B, 3, E)), part[3], copy[3], dx[1];
    for (int i = 0; i < 3; i++) {
        part[i] = turned_part(g, x, i, HEADS);
        copy[i] = pl_neg(g, pl_neg(g, part[i])); /* not a part of x any more */
    }
    pl_val a = pl_attention(g, part[0], part[1], part[2], 0, true);
    pl_val b = pl_attention(g, copy[0], copy[1], copy[2], 0, true);
    pl_grad(g, pl_sum(g, pl_square(g, a), PL_AXES_ALL, false), &x, 1, dx);
    pl_val grad = dx[0];
    pl_grad(g, pl_sum(g, pl_square(g, b), PL_AXES_ALL, false), &x, 1, dx);
    const pl_val pair[2][2] = {{a, b}, {grad, dx[0]}};
    CHECK(strcmp(pl_node_get(g, pl_producer(g, a.id))->op->name, "attention_rows") == 0);
    CHECK(strcmp(pl_node_get(g, pl_producer(g, b.id))->op->name, "attention") == 0);
    graph_eval *e = graph_eval_new(g, true);
    graph_eval_wave(e, x, 0.37);
    CHECK(graph_eval_run(e) == PL_OK);
    for (int k = 0; k < 2; k++) {
        pl_type t = pl_val_type(g, pair[k][0]);
        for (int64_t i = 0; i < pl_type_elems(&t); i++)
            CHECK_NEAR(((float *)graph_eval_at(e, pair[k][0]))[i],
                       ((float *)graph_eval_at(e, pair[k][1]))[i], 1e-6);
    }
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(store);
}

TEST(attention_masks_hide_keys_in_tiles_and_reference)
{
    static const attention_case sizes[] = {
        {2, 5, 7, 3, 4, false, 0, 0, 0, 0},
        {1, 66, 130, 2, 17, false, 0, 0, 0, 0},
        {1, 70, 70, 1, 16, true, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int numbers = 0; numbers < 2; numbers++) {
            attention_graph a = run_masked(&sizes[i], numbers, false);
            attention_graph b = run_masked(&sizes[i], numbers, true);
            CHECK_MSG(a.e && b.e, "%s %s", pl_graph_error(a.g), pl_error_text());
            CHECK(worst(&a, &b, a.o) < 2e-6);
            for (int j = 0; j < 3; j++) CHECK(worst(&a, &b, a.grad[j]) < 2e-5);
            CHECK(of_blind_query(&a, &sizes[i], a.o) == 0);
            CHECK(of_blind_query(&b, &sizes[i], b.grad[0]) == 0);
            CHECK(of_blind_query(&a, &sizes[i], a.grad[0]) == 0);
            free_case(&a);
            free_case(&b);
        }
}

/* A mask that is an operand of the loss keeps no value of the size of the scores alive. */
TEST(attention_masks_store_no_probabilities)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 96, 2, 16));
    pl_val mask = pl_input(g, "mask", PL_TYPE(PL_BOOL, 2, 1, 1, 96));
    pl_val o = pl_attention_masked(g, x, x, x, mask, 0, false), d;

    pl_grad(g, o, &x, 1, &d);

    CHECK_INT(pl_graph_status(g), PL_OK);
    for (uint32_t v = 1; v < g->n_vals; v++)
        CHECK(pl_type_elems(pl_type_of(g, v)) < 2 * 2 * 96 * 96);
    pl_graph_free(g);
    pl_store_free(s);
}

TEST(attention_masks_of_other_shapes_are_refused)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 6, 2, 4));

    pl_attention_masked(g, x, x, x, pl_input(g, "mask", PL_TYPE(PL_BOOL, 6, 5)), 0, false);

    CHECK_INT(pl_graph_status(g), PL_ERR_SHAPE);
    CHECK_MSG(strstr(pl_graph_error(g), "mask is bool[1,1,6,5]; needs bool[2,2,6,6]"), "%s",
              pl_graph_error(g));
    pl_graph_free(g);
    pl_store_free(s);
}
