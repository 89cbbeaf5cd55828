/* test_graph.c - building, sticky errors, the text form, the verifier, simplify, gradients as
 * nodes. */
#include "tests/lib/test.h"

#include "base/sys.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/text.h"
#include "pass/pass.h"
#include "plimsoll_ops.h"
#include "tests/lib/ref_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    pl_store *s;
    pl_graph *g;
} fixture;

static fixture setup(void)
{
    fixture f = {pl_store_new(), NULL};
    f.g = pl_graph_new(f.s);
    return f;
}

static void teardown(fixture *f)
{
    pl_graph_free(f->g);
    pl_store_free(f->s);
}

static int add_slot(pl_store *s, const char *name, pl_type t)
{
    pl_slot slot = {.name = name, .type = t, .trainable = true, .decay = true};
    slot.init = (pl_init){PL_INIT_UNIFORM, -0.25, 0.25};
    return pl_store_add(s, &slot);
}

/* A small training step: linear layer, loss, gradient, assigned update. */
static void build_step(fixture *f)
{
    pl_graph *g = f->g;
    int w = add_slot(f->s, "layer \"odd\\name\".weight", PL_TYPE(PL_F32, 3, 5));
    pl_scope_push(g, "model");
    pl_scope_push(g, "layer");
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4, 5)), weight = pl_state(g, w);
    pl_val y = pl_tanh(g, pl_matmul(g, x, weight, false, true));
    pl_scope_pop(g);
    pl_val loss = pl_mean(g, pl_square(g, y), PL_AXES_ALL, false);
    pl_scope_pop(g);
    pl_val grad;
    pl_grad(g, loss, &weight, 1, &grad);
    pl_assign(g, w, pl_sub(g, weight, pl_scale(g, grad, 0.1)));
    pl_output(g, "loss", loss);
}

TEST(errors_are_sticky_and_name_layer_and_shapes)
{
    fixture f = setup();
    pl_graph *g = f.g;

    pl_scope_push(g, "model");
    pl_scope_push(g, "layer1");
    pl_val a = pl_input(g, "a", PL_TYPE(PL_F32, 8, 512)),
           b = pl_input(g, "b", PL_TYPE(PL_F32, 7, 3));
    pl_val bad = pl_add(g, a, b);
    pl_val more = pl_relu(g, bad);
    pl_output(g, "y", pl_mul(g, more, a));
    const char *text = pl_graph_error(g);
    bool good = pl_graph_status(g) == PL_ERR_SHAPE && !pl_val_ok(bad) && !pl_val_ok(more) &&
                strstr(text, "model.layer1") && strstr(text, "[8,512]") && strstr(text, "[7,3]");
    if (!good) printf("message: %s\n", text);
    teardown(&f);

    CHECK(good);
}

TEST(graph_text_round_trips)
{
    fixture f = setup(), again = setup();

    build_step(&f);
    char *text = NULL, *second = NULL;
    pl_status rc = pl_graph_print(f.g, &text);
    pl_graph *parsed = NULL;
    if (rc == PL_OK) rc = pl_graph_parse(text, strlen(text), again.s, &parsed);
    if (rc == PL_OK) rc = pl_graph_print(parsed, &second);
    bool same = rc == PL_OK && strcmp(text, second) == 0;
    if (!same)
        printf("%s\n--- became ---\n%s\n%s\n", text ? text : "", second ? second : "",
               pl_error_text());
    pl_text_free(text);
    pl_text_free(second);
    pl_graph_free(parsed);
    teardown(&f);
    teardown(&again);

    CHECK(same);
}

TEST(every_op_case_round_trips_through_text)
{
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        for (const pl_case *c = op->cases; c && (c->attr || c->in[0]); c++) {
            fixture f = setup(), again = setup();
            pl_val in[PL_CASE_IN];
            int n = 0;
            pl_status rc = PL_OK;
            for (; n < PL_CASE_IN && c->in[n] && rc == PL_OK; n++) {
                pl_type t;
                char name[8];
                snprintf(name, sizeof name, "x%d", n);
                rc = pl_type_parse(c->in[n], strlen(c->in[n]), &t);
                if (rc == PL_OK) in[n] = pl_input(f.g, name, t);
            }
            void *attr = malloc(op->attr_bytes + 1);
            if (rc == PL_OK)
                rc = pl_attr_parse(op, c->attr ? c->attr : "", strlen(c->attr ? c->attr : ""), f.g,
                                   attr);
            if (rc == PL_OK) pl_build(f.g, op, attr, n, in, NULL);
            if (rc == PL_OK) rc = pl_graph_status(f.g);
            char *text = NULL, *second = NULL;
            pl_graph *parsed = NULL;
            if (rc == PL_OK) rc = pl_graph_print(f.g, &text);
            if (rc == PL_OK) rc = pl_graph_parse(text, strlen(text), again.s, &parsed);
            if (rc == PL_OK) rc = pl_graph_print(parsed, &second);
            bool same = rc == PL_OK && strcmp(text, second) == 0;
            if (!same)
                printf("%s {%s}: %s\n%s", op->name, c->attr ? c->attr : "", pl_error_text(),
                       text ? text : "");
            free(attr);
            pl_text_free(text);
            pl_text_free(second);
            pl_graph_free(parsed);
            teardown(&f);
            teardown(&again);
            CHECK(same);
        }
    }
}

static bool refuses(const char *text, const char *says)
{
    pl_store *s = pl_store_new();
    pl_graph *g = NULL;
    pl_status rc = pl_graph_parse(text, strlen(text), s, &g);
    bool good = rc == PL_ERR_GRAPH && strstr(pl_error_text(), says);
    if (!good) printf("for:\n%sgot: %s %s\n", text, pl_status_name(rc), pl_error_text());
    pl_graph_free(g);
    pl_store_free(s);
    return good;
}

#define HEAD "plimsoll graph 1\n"
TEST(bad_graph_text_is_refused_with_its_place)
{
    CHECK(refuses("graph\n", "1:1"));
    CHECK(refuses(HEAD "junk # comment\n", "no op of this name"));
    CHECK(refuses(HEAD "%1 = nothing : f32[2]\n", "no op of this name"));
    CHECK(refuses(HEAD "%2 = fill {dtype=f32, shape=[2]} : f32[2]\n", "numbered in order"));
    CHECK(refuses(HEAD "%1 = neg(%3) : f32[2]\n", "before its definition"));
    CHECK(
        refuses(HEAD "%1 = fill {dtype=f32, shape=[2], sauce=1} : f32[2]\n", "no such attribute"));
    CHECK(refuses(HEAD "%1 = fill {dtype=f32, shape=[2]} : f32[3]\n", "differs from the type"));
    CHECK(
        refuses(HEAD "%1 = fill {dtype=f32, shape=[1,1,1,1,1,1,1,1,1]} : f32[2]\n", "more than 8"));
    CHECK(refuses(HEAD "%1 = fill {dtype=f99, shape=[2]} : f32[2]\n", "expected a dtype"));
    CHECK(refuses(HEAD "%1 = input {name=\"a\n", "2:"));
    CHECK(refuses(HEAD "%1 = state {slot=\"none\", dtype=f32, shape=[2]} : f32[2]\n", "no slot"));
    CHECK(refuses(HEAD "slot \"w\" f32[-2] param\n", "negative"));
    CHECK(refuses(HEAD "slot \"w\" f32[99999999999,99999999999] param\n", "2^48"));
    CHECK(refuses(HEAD "slot \"w\" f32[2,3] param perm=[0,0]\n", "permutation"));
    CHECK(refuses(HEAD "%1 = input {name=\"a\", dtype=f32, shape=[2]} : f32[2]\n"
                       "%2 = input {name=\"a\", dtype=f32, shape=[2]} : f32[2]\n",
                  "two inputs"));
    CHECK(refuses(HEAD "slot \"w\" f32[2] param\n%1 = fill {dtype=f32, shape=[2]} : f32[2]\n"
                       "assign(%1) {slot=\"w\", dtype=f32, shape=[2]}\n"
                       "assign(%1) {slot=\"w\", dtype=f32, shape=[2]}\n",
                  "assigned twice"));
}

TEST(verifier_notices_broken_graphs)
{
    fixture f = setup();

    build_step(&f);
    bool fine = pl_graph_verify(f.g) == PL_OK;
    uint32_t last = f.g->n_nodes - 1;
    int noticed = 0;
    uint32_t edge = f.g->edges[f.g->nodes[last].in];
    f.g->edges[f.g->nodes[last].in] = f.g->n_vals + 7; /* a value that does not exist */
    noticed += pl_graph_verify(f.g) == PL_ERR_GRAPH;
    f.g->edges[f.g->nodes[last].in] = edge;
    uint32_t tanh_node = 0;
    for (uint32_t n = 1; n <= last; n++)
        if (strcmp(f.g->nodes[n].op->name, "tanh") == 0) tanh_node = n;
    edge = f.g->edges[f.g->nodes[tanh_node].in];
    f.g->edges[f.g->nodes[tanh_node].in] = f.g->nodes[tanh_node].out + 1; /* from the future */
    noticed += pl_graph_verify(f.g) == PL_ERR_GRAPH;
    f.g->edges[f.g->nodes[tanh_node].in] = edge;
    f.g->vals[f.g->nodes[tanh_node].out].type.dim[0]++; /* a type that infer does not give */
    noticed += pl_graph_verify(f.g) == PL_ERR_GRAPH;
    f.g->vals[f.g->nodes[tanh_node].out].type.dim[0]--;
    fine = fine && pl_graph_verify(f.g) == PL_OK;
    teardown(&f);

    CHECK(fine);
    CHECK_INT(noticed, 3);
}

TEST(simplify_removes_dead_equal_and_idle_nodes)
{
    fixture f = setup();
    pl_graph *g = f.g, *out = NULL;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4));
    pl_val a = pl_exp(g, x), b = pl_exp(g, x); /* equal */

    (void)pl_sin(g, x);                                 /* dead */
    pl_output(g, "y", pl_scale(g, pl_add(g, a, b), 1)); /* times one */
    pl_status rc = pl_pass_simplify(g, NULL, &out);
    int nodes = 0;
    bool shape = false;
    if (rc == PL_OK) {
        pl_graph *twice = NULL;
        /* what the first round left unused goes in the second */
        rc = pl_pass_simplify(out, NULL, &twice);
        nodes = rc == PL_OK ? pl_graph_nodes(twice) : -1;
        shape = rc == PL_OK && pl_graph_verify(twice) == PL_OK;
        pl_graph_free(twice);
    }
    pl_graph_free(out);
    teardown(&f);
    CHECK_OK(rc);

    CHECK(shape);
    CHECK_INT(nodes, 4); /* input, exp, add, output */
}

TEST(gradient_of_an_unreached_value_is_zero)
{
    fixture f = setup();
    pl_val x = pl_input(f.g, "x", PL_TYPE(PL_F32, 3)), z = pl_input(f.g, "z", PL_TYPE(PL_F32, 2));
    pl_val y = pl_sum(f.g, pl_exp(f.g, pl_stop_gradient(f.g, x)), PL_AXES_ALL, false);
    pl_val in[2] = {x, z}, grad[2];
    pl_grad(f.g, y, in, 2, grad);
    double a = 1, b = 1;
    bool zeros = pl_graph_status(f.g) == PL_OK && pl_fill_of(f.g, grad[0], &a) &&
                 pl_fill_of(f.g, grad[1], &b) && a == 0 && b == 0;
    teardown(&f);
    CHECK(zeros);
}

/* y = exp(x) + exp(stop(x)), x of 3 elements, with the gradient of its sum as "dx". */
static void build_stopped(fixture *f, pl_val (*stop)(pl_graph *, pl_val))
{
    pl_val x = pl_input(f->g, "x", PL_TYPE(PL_F32, 3)), grad;
    pl_val y = pl_sum(f->g, pl_add(f->g, pl_exp(f->g, x), pl_exp(f->g, stop(f->g, x))), PL_AXES_ALL,
                      false);
    pl_grad(f->g, y, &x, 1, &grad);
    pl_output(f->g, "y", y);
    pl_output(f->g, "dx", grad);
}

static pl_val no_stop(pl_graph *g, pl_val x)
{
    (void)g;
    return x;
}

/* Nodes of the op that simplifying leaves; -1 on failure. */
static int count_left(pl_val (*stop)(pl_graph *, pl_val), const char *op)
{
    fixture f = setup();
    pl_graph *out = NULL;
    build_stopped(&f, stop);
    int n = pl_pass_simplify(f.g, NULL, &out) == PL_OK ? 0 : -1;
    for (uint32_t i = 1; n >= 0 && i < out->n_nodes; i++)
        n += strcmp(pl_node_get(out, i)->op->name, op) == 0;
    pl_graph_free(out);
    teardown(&f);
    return n;
}

/* Either kind stops: dx is exp(x), not twice that. Only with one kind does simplifying see that
 * the two exp are equal. */
TEST(gradient_stops_whether_shared_or_not)
{
    pl_val (*const stop[])(pl_graph *, pl_val) = {pl_stop_gradient, pl_stop_gradient_shared,
                                                  no_stop};
    const float x[3] = {0, 1, -2};
    for (int k = 0; k < 3; k++) {
        fixture f = setup();
        build_stopped(&f, stop[k]);
        float y = 0, dx[3] = {0};
        ref_eval *e = ref_eval_new(f.g);
        memcpy(ref_eval_input(e, "x"), x, sizeof x);
        pl_status rc = ref_eval_run(e);
        if (rc == PL_OK) memcpy(&y, ref_eval_get(e, ref_eval_output(e, "y")), sizeof y);
        if (rc == PL_OK) memcpy(dx, ref_eval_get(e, ref_eval_output(e, "dx")), sizeof dx);
        ref_eval_free(e);
        teardown(&f);
        CHECK_OK(rc);
        for (int i = 0; i < 3; i++) CHECK_NEAR(dx[i], (k == 2 ? 2 : 1) * exp((double)x[i]), 1e-5);
        CHECK_NEAR(y, 2 * (exp(0) + exp(1) + exp(-2)), 1e-5);
    }

    CHECK_INT(count_left(pl_stop_gradient, "exp"), 2);
    CHECK_INT(count_left(pl_stop_gradient_shared, "exp"), 1);
    CHECK_INT(count_left(pl_stop_gradient_shared, "stop_gradient"), 0);
}

/* Every allocation of building, differentiating, simplifying and printing fails once. */
TEST(graph_building_survives_every_failing_allocation)
{
    for (uint64_t n = 1; n < 100000; n++) {
        pl_sys_fail_nth(n);
        pl_status rc = PL_ERR_MEMORY;
        fixture f = {pl_store_new(), NULL};
        if (f.s) f.g = pl_graph_new(f.s);
        pl_graph *out = NULL;
        char *text = NULL;
        if (f.g) {
            build_step(&f);
            rc = pl_graph_status(f.g);
            if (rc == PL_OK) rc = pl_pass_simplify(f.g, NULL, &out);
            if (rc == PL_OK) rc = pl_graph_print(out, &text);
        }
        bool hit = pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        pl_text_free(text);
        pl_graph_free(out);
        teardown(&f);
        if (!hit) {
            CHECK_OK(rc);
            CHECK(n > 20);
            return;
        }
        CHECK_MSG(rc == PL_ERR_MEMORY, "allocation %llu: %s", (unsigned long long)n,
                  pl_status_name(rc));
    }
}
