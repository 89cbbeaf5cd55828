/* test_tail.c - elementwise ops after products and convolutions become part of them
 * (pass/join_tails.c): which graphs get such ops, the same numbers, the same bits under every
 * plan. */
#include "base/dtype.h"
#include "pass/fuse/fuse.h"
#include "pass/pass.h"
#include "plimsoll_train.h"
#include "rt/process_budget.h"
#include "tests/lib/graphs.h"
#include "tests/lib/ref_eval.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, IN = 64, OUT = 80 };

/* ---- graphs ----------------------------------------------------------------------------- */
typedef struct net {
    pl_graph *g;
    pl_dtype dtype;
    pl_val x, w, b, c, y; /* y = x w' + b, [ROWS, OUT], as c */
} net;

static pl_val input(net *n, const char *name, int64_t rows, int64_t cols)
{
    return pl_input(n->g, name, PL_TYPE(n->dtype, rows, cols));
}

static void linear(net *n)
{
    n->x = input(n, "x", ROWS, IN);
    n->w = input(n, "w", OUT, IN);
    n->b = pl_input(n->g, "b", PL_TYPE(n->dtype, OUT));
    n->c = input(n, "c", ROWS, OUT);
    n->y = pl_linear(n->g, n->x, n->w, n->b);
}

#define FOLLOWED(name, expr)                                                                       \
 static void name(net *n)                                                                          \
 {                                                                                                 \
  linear(n);                                                                                       \
  pl_output(n->g, "out", expr);                                                                    \
 }
FOLLOWED(gelu_tanh, pl_gelu_tanh(n->g, n->y))
FOLLOWED(relu, pl_relu(n->g, n->y))
FOLLOWED(silu, pl_silu(n->g, n->y))
FOLLOWED(gelu_erf, pl_gelu(n->g, n->y))
FOLLOWED(added, pl_add(n->g, n->c, n->y))
FOLLOWED(added_relu, pl_relu(n->g, pl_add(n->g, n->y, n->c)))
FOLLOWED(shape_between,
         pl_gelu_tanh(n->g, pl_reshape(n->g, n->y, 3, (const int64_t[]){8, ROWS / 8, OUT})))
FOLLOWED(spread_added, pl_add(n->g, n->y, pl_input(n->g, "e", PL_TYPE(n->dtype, OUT))))
FOLLOWED(made_added, pl_add(n->g, n->y, pl_exp(n->g, n->c)))
FOLLOWED(gated, pl_mul(n->g, n->y, n->c))
FOLLOWED(added_after, pl_add(n->g, pl_gelu_tanh(n->g, n->y), n->c))

static void two_readers(net *n)
{
    linear(n);
    pl_output(n->g, "out", pl_relu(n->g, n->y));
    pl_output(n->g, "y", n->y);
}

/* The second product of the sum is computed later: it gets the addition. */
static void two_products(net *n)
{
    linear(n);
    pl_val z = pl_matmul(n->g, input(n, "e", ROWS, 24), input(n, "d", 24, OUT), false, false);
    pl_output(n->g, "out", pl_add(n->g, n->y, z));
}

/* Not stored by itself: only the sum of squares leaves the group. */
static void summed(net *n)
{
    linear(n);
    pl_val y = pl_relu(n->g, n->y);
    pl_output(n->g, "out", pl_sum(n->g, pl_square(n->g, y), PL_AXIS(0), false));
}

static void trained_with(net *n, pl_val (*act)(pl_graph *, pl_val))
{
    linear(n);
    pl_val v = pl_input(n->g, "v", PL_TYPE(n->dtype, 48, OUT));
    pl_val z = pl_linear(n->g, act(n->g, n->y), v, PL_NO_VAL);
    pl_val in[3] = {n->w, n->b, v}, grad[3];
    pl_grad(n->g, pl_mean(n->g, pl_square(n->g, z), PL_AXIS(0) | PL_AXIS(1), false), in, 3, grad);
    pl_output(n->g, "dw", grad[0]);
    pl_output(n->g, "db", grad[1]);
    pl_output(n->g, "dv", grad[2]);
}

static void trained_gelu_tanh(net *n)
{
    trained_with(n, pl_gelu_tanh);
}

static void trained_silu(net *n)
{
    trained_with(n, pl_silu);
}

/* y times gelu_tanh's slope at c, as the op's gradient rule writes it; cube is 0.044715. */
static void slope_by_hand(net *n, double cube)
{
    const double k = 0.7978845608028654;
    pl_graph *g = n->g;
    linear(n);
    pl_val x2 = pl_square(g, n->c), du = pl_shift(g, pl_scale(g, x2, 3 * cube * k), k);
    pl_val t = pl_tanh(g, pl_mul(g, pl_scale(g, n->c, k), pl_shift(g, pl_scale(g, x2, cube), 1)));
    pl_val second = pl_mul(g, pl_mul(g, pl_scale(g, n->c, 0.5), du),
                           pl_shift(g, pl_neg(g, pl_square(g, t)), 1));
    pl_val first = pl_shift(g, pl_scale(g, t, 0.5), 0.5);
    pl_output(g, "out", pl_mul(g, pl_matmul(g, n->x, n->w, false, true), pl_add(g, first, second)));
}

static void slope_spelled(net *n)
{
    slope_by_hand(n, 0.044715);
}

static void slope_misspelled(net *n)
{
    slope_by_hand(n, 0.044);
}

static pl_val conv(net *n, int64_t channels)
{
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    pl_val x = pl_input(n->g, "x", PL_TYPE(n->dtype, 2, 6, 10, channels));
    pl_val w = pl_input(n->g, "w", PL_TYPE(n->dtype, 40, 3, 3, channels));
    return pl_conv(n->g, x, w, pl_input(n->g, "b", PL_TYPE(n->dtype, 40)), &o);
}

static void conv_silu(net *n)
{
    pl_output(n->g, "out", pl_silu(n->g, conv(n, 16)));
}

static void conv_leaky(net *n)
{
    pl_output(n->g, "out", pl_leaky_relu(n->g, conv(n, 16), 0.2));
}

static void conv_added(net *n)
{
    pl_val c = pl_input(n->g, "c", PL_TYPE(n->dtype, 2, 6, 10, 40));
    pl_output(n->g, "out", pl_add(n->g, conv(n, 16), c));
}

static void conv_odd(net *n)
{
    pl_output(n->g, "out", pl_silu(n->g, conv(n, 12)));
}

/* The gradient of the convolution's input and the gradient of the skip connection. */
static void conv_residual_gradient(net *n)
{
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    pl_val x = pl_input(n->g, "x", PL_TYPE(n->dtype, 2, 6, 10, 16));
    pl_val w = pl_input(n->g, "w", PL_TYPE(n->dtype, 16, 3, 3, 16));
    pl_val y = pl_add(n->g, x, pl_conv(n->g, x, w, PL_NO_VAL, &o)), grad;
    pl_grad(n->g, pl_sum(n->g, pl_square(n->g, y), 0xf, false), &x, 1, &grad);
    pl_output(n->g, "dx", grad);
}

/* ---- which ------------------------------------------------------------------------------ */
static pl_status lower(pl_graph **g, pl_dtype low, bool tails, bool tf32, int64_t tail_bytes)
{
    pl_fuse_opts cuda = PL_FUSE_OPTS_CUDA(NULL);
    cuda.tail_bytes = tail_bytes;
    pl_pass_opts o = {.low = low, .open = true, .tails = tails, .tf32 = tf32, .fuse = &cuda};
    return pl_passes_run(g, &o);
}

static int count(const char *text, const char *op, const char *attr)
{
    int n = 0;
    char call[64];
    snprintf(call, sizeof call, " = %s(", op);
    for (const char *at = text; (at = strstr(at, call)) != NULL; at++) {
        const char *end = strchr(at, '\n'), *has = strstr(at, attr);
        n += has && (!end || has < end);
    }
    return n;
}

typedef struct expected {
    const char *name;
    void (*build)(net *n);
    pl_dtype dtype;
    bool tf32;
    const char *op, *attr; /* the only expected tail; NULL: none */
} expected;

static const expected graphs[] = {
    {"gelu_tanh f32", gelu_tanh, PL_F32, false, NULL, NULL},
    {"gelu_tanh tf32", gelu_tanh, PL_F32, true, "matmul_tail", "act=gelu_tanh, add=false"},
    {"gelu_tanh bf16", gelu_tanh, PL_BF16, false, "matmul_tail", "act=gelu_tanh, add=false"},
    {"relu", relu, PL_F32, false, "matmul_tail", "act=relu, add=false"},
    {"added", added, PL_F32, false, "matmul_tail", "act=none, add=true"},
    {"added f16", added, PL_F16, false, "matmul_tail", "act=none, add=true"},
    {"added_relu", added_relu, PL_F32, false, "matmul_tail", "act=relu, add=true"},
    {"shape_between", shape_between, PL_F32, true, "matmul_tail", "act=gelu_tanh"},
    {"two_products", two_products, PL_F32, false, "matmul_tail", "act=none, add=true"},
    {"added_after", added_after, PL_F32, true, NULL, NULL},
    {"silu", silu, PL_F32, true, NULL, NULL},
    {"gelu_erf", gelu_erf, PL_F32, true, NULL, NULL},
    {"f64", gelu_tanh, PL_F64, false, NULL, NULL},
    {"spread_added", spread_added, PL_F32, false, NULL, NULL},
    {"made_added", made_added, PL_F32, false, NULL, NULL},
    {"gated", gated, PL_F32, true, NULL, NULL},
    {"two_readers", two_readers, PL_F32, false, NULL, NULL},
    {"summed", summed, PL_F32, false, NULL, NULL},
    {"trained_gelu_tanh", trained_gelu_tanh, PL_F32, true, "matmul_tail_keep", "act=gelu_tanh"},
    {"its slope", trained_gelu_tanh, PL_F32, true, "matmul_slope", "act=gelu_tanh"},
    {"slope_spelled", slope_spelled, PL_F32, true, "matmul_slope", "act=gelu_tanh"},
    {"slope_misspelled", slope_misspelled, PL_F32, true, NULL, NULL},
    {"trained_silu", trained_silu, PL_F32, true, NULL, NULL},
    {"conv_silu", conv_silu, PL_BF16, false, "conv_tail", "act=silu, add=false"},
    {"conv_leaky", conv_leaky, PL_F16, false, "conv_tail", "act=leaky_relu, add=false, slope=0.2"},
    {"conv_added", conv_added, PL_BF16, false, "conv_tail", "act=none, add=true"},
    {"conv f32", conv_silu, PL_F32, false, NULL, NULL},
    {"conv tf32", conv_silu, PL_F32, true, "conv_tail", "act=silu"},
    {"conv_odd", conv_odd, PL_BF16, false, NULL, NULL},
    {"conv_residual_gradient", conv_residual_gradient, PL_BF16, false, "conv_dx_tail", "add=true"},
};
enum { N_GRAPHS = sizeof graphs / sizeof *graphs };

static pl_graph *make(pl_store *store, const expected *e)
{
    net n = {.g = pl_graph_new(store), .dtype = e->dtype};
    e->build(&n);
    return n.g;
}

TEST(tail_is_made_for_the_listed_graphs_only)
{
    for (int i = 0; i < N_GRAPHS; i++) {
        const expected *e = &graphs[i];
        pl_store *store = pl_store_new();
        pl_graph *g = make(store, e);
        char *text = NULL;
        CHECK_OK(lower(&g, PL_F32, true, e->tf32, 0));
        CHECK_OK(pl_graph_print(g, &text));
        bool any = strstr(text, "_tail") || strstr(text, "_slope");
        if (e->op ? count(text, e->op, e->attr) != 1 : any)
            pl_test_fail(__FILE__, __LINE__, "%s: wanted %s %s in\n%s", e->name,
                         e->op ? e->op : "no tail", e->attr ? e->attr : "", text);
        pl_text_free(text);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* After convolutions only where much memory is saved. */
TEST(tail_behind_convolutions_is_made_where_it_saves_much)
{
    const int64_t bytes = 2 * 6 * 10 * 40 * 2;
    for (int more = 0; more < 2; more++) {
        pl_store *store = pl_store_new();
        net n = {.g = pl_graph_new(store), .dtype = PL_BF16};
        char *text = NULL;
        conv_silu(&n);
        CHECK_OK(lower(&n.g, PL_F32, true, false, bytes + more));
        CHECK_OK(pl_graph_print(n.g, &text));
        CHECK_INT(count(text, "conv_tail", "act=silu"), !more);
        pl_text_free(text);
        pl_graph_free(n.g);
        pl_store_free(store);
    }
}

/* ---- numbers ---------------------------------------------------------------------------- */
typedef struct result {
    double v[ROWS * OUT];
    int64_t n;
} result;

/* One output of a graph after the passes, with or without tails. */
static void evaluate(const expected *e, pl_dtype low, bool tails, const char *output, result *r)
{
    pl_store *store = pl_store_new();
    pl_graph *g = make(store, e);
    CHECK_OK(lower(&g, low, tails, e->tf32, 0));
    ref_eval *v = ref_eval_new(g);
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].op->flags & PL_OP_SOURCE) {
            const char *name = pl_node_name(g, n);
            fill_input(3, name, pl_type_of(g, g->nodes[n].out), ref_eval_input(v, name));
        }
    CHECK_OK(ref_eval_run(v));
    pl_val out = ref_eval_output(v, output);
    r->n = 0;
    if (pl_val_ok(out)) {
        pl_type t = pl_val_type(g, out);
        r->n = pl_type_elems(&t);
        for (int64_t i = 0; i < r->n; i++) r->v[i] = pl_elem_get(t.dtype, ref_eval_get(v, out), i);
    }
    ref_eval_free(v);
    pl_graph_free(g);
    pl_store_free(store);
}

static void compare(const expected *e, pl_dtype low, double allowed)
{
    static const char *const outputs[] = {"out", "y", "dw", "db", "dv", "dx"};
    static result a, b;
    int compared = 0;
    for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
        double most = 0, worst = 0;
        evaluate(e, low, false, outputs[k], &a);
        evaluate(e, low, true, outputs[k], &b);
        CHECK_INT(a.n, b.n);
        for (int64_t i = 0; i < a.n; i++) {
            most = fmax(most, fabs(a.v[i]));
            worst = fmax(worst, fabs(a.v[i] - b.v[i]));
        }
        compared += a.n > 0;
        CHECK_MSG(worst <= allowed * most, "%s %s: off by %g of %g", e->name, outputs[k], worst,
                  most);
    }
    CHECK(compared > 0);
}

/* In 16 bits a tail rounds less often, so the numbers are close, not equal. */
TEST(tail_gives_the_numbers_of_separate_ops)
{
    for (int i = 0; i < N_GRAPHS; i++) {
        if (!graphs[i].op) continue;
        pl_dtype d = graphs[i].dtype;
        compare(&graphs[i], PL_F32, d == PL_BF16 ? 0.01 : d == PL_F16 ? 0.002 : 1e-6);
        if (d == PL_F32) compare(&graphs[i], PL_BF16, 0.02);
    }
}

/* ---- plans ------------------------------------------------------------------------------ */
enum { LAYERS = 4, WIDTH = 32, BATCH = 128 };

/* Blocks x + gelu(x w + b) v with their gradients, one SGD step. */
static pl_graph *blocks(pl_store *store)
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, BATCH, WIDTH)), par[2 * LAYERS], grad[2 * LAYERS];
    int slot[2 * LAYERS];
    for (int i = 0; i < 2 * LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        pl_slot o = {.name = name, .kind = PL_SLOT_PARAM, .trainable = true};
        o.type = PL_TYPE(PL_F32, i % 2 ? WIDTH : 4 * WIDTH, i % 2 ? 4 * WIDTH : WIDTH);
        slot[i] = pl_store_add(store, &o);
        par[i] = pl_state(g, slot[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        pl_val h = pl_gelu_tanh(g, pl_linear(g, x, par[2 * i], PL_NO_VAL));
        x = pl_add(g, x, pl_linear(g, h, par[2 * i + 1], PL_NO_VAL));
    }
    pl_val loss = pl_mean(g, pl_square(g, x), PL_AXIS(0) | PL_AXIS(1), false);
    pl_grad(g, loss, par, 2 * LAYERS, grad);
    for (int i = 0; i < 2 * LAYERS; i++)
        pl_assign(g, slot[i], pl_sub(g, par[i], pl_scale(g, grad[i], 0.1)));
    pl_output(g, "loss", loss);
    return g;
}

static int calls(pl_program *p)
{
    char *text = NULL;
    if (pl_program_print(p, &text) != PL_OK) return 0;
    int n = count(text, "matmul_tail_keep", "") + count(text, "matmul_tail", "") +
            count(text, "matmul_slope", "");
    pl_text_free(text);
    return n;
}

typedef struct trained {
    float loss[3];
    int products;   /* with tails, in the program */
    uint64_t least; /* bytes of the smallest arena, where any was allowed */
} trained;

/* Three steps under an arena of this many bytes (0: no limit). device NULL: the CPU, with tails
 * enabled. */
static void train(const char *device, enum pl_precision precision, uint64_t arena, trained *out)
{
    pl_store *store = pl_store_new();
    pl_graph *g = blocks(store);
    pl_program *p = NULL;
    pl_session *s = NULL;
    pl_compile_opts o = PL_COMPILE_INIT;
    o.arena_budget = arena;
    o.precision = precision;
    if (device) o.device = device;
    if (!device) CHECK_OK(lower(&g, PL_F32, true, true, 0));
    CHECK_OK(pl_compile(g, &o, &p));
    out->products = calls(p);
    if (!arena) CHECK_OK(pl_program_minimum(p, 0, &out->least));
    CHECK_OK(pl_session_new(store, 1, &p, &s));
    for (int i = 0; i < pl_store_count(store); i++) {
        const pl_type *t = &pl_store_slot(store, i)->type;
        static float w[4 * WIDTH * WIDTH];
        fill_input(5 + (uint64_t)i, "w", t, w);
        for (int64_t k = 0; k < pl_type_elems(t); k++) w[k] *= 0.1f;
        CHECK_OK(pl_session_write_slot(s, i, 0, w, pl_type_bytes(t)));
    }
    for (int step = 0; step < 3; step++) {
        pl_type t;
        float *x = pl_session_input(s, p, "x", &t);
        fill_input(11, "x", &t, x);
        CHECK_OK(pl_session_run(s, p));
        out->loss[step] = *(const float *)pl_session_output(s, p, "loss", &t);
    }
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
}

static void check_plans(const char *device, enum pl_precision precision, trained *all)
{
    trained few = {{0}, 0, 0};
    train(device, precision, 0, all);
    train(device, precision, all->least, &few);
    CHECK(isfinite(all->loss[2]) && all->loss[2] < all->loss[0]);
    CHECK(memcmp(all->loss, few.loss, sizeof few.loss) == 0);
    CHECK_MSG(few.products > all->products || !all->products,
              "%d products with tails in the least arena, %d else", few.products, all->products);
}

TEST(tail_plans_do_not_change_bits)
{
    trained all = {{0}, 0, 0};
    check_plans(NULL, PL_PRECISION_FP32, &all);
    CHECK(all.products >= 3 * LAYERS);
}

/* On a GPU: its own tails, in all precisions, and losses close to the CPU's. */
TEST(device_tails_do_not_change_bits)
{
    static const enum pl_precision how[] = {PL_PRECISION_FP32, PL_PRECISION_TF32, PL_PRECISION_BF16,
                                            PL_PRECISION_FP16};
    static const double allowed[] = {1e-5, 2e-3, 2e-2, 2e-3};
    const char *device = getenv("PL_TEST_DEVICE");
    trained cpu = {{0}, 0, 0};
    train("cpu", PL_PRECISION_FP32, 0, &cpu);
    for (int i = 0; i < 4; i++) {
        trained all = {{0}, 0, 0};
        check_plans(device ? device : "apart", how[i], &all);
        CHECK(!device || strcmp(device, "cuda") != 0 || all.products >= LAYERS);
        for (int k = 0; k < 3; k++)
            CHECK_NEAR(all.loss[k], cpu.loss[k], allowed[i] * fabs((double)cpu.loss[k]));
    }
}

/* ---- recipes ---------------------------------------------------------------------------- */
static void check_recipe(const char *config, const char *precision, const char *op,
                         const char *attr, int least)
{
    pl_run *run = NULL;
    char *text = NULL;
    CHECK_OK(pl_run_open(config, (const char *const[]){"device=h200", precision}, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_program_print(pl_run_train_program(run), &text));
    CHECK_MSG(count(text, op, attr) >= least, "%s %s: %d of %s %s", config, precision,
              count(text, op, attr), op, attr);
    pl_text_free(text);
    pl_run_free(run);
}

TEST(tail_kernels_are_in_the_recipes)
{
    check_recipe("wandistill/full", "precision=bf16", "matmul_tail", "act=gelu_tanh", 31);
    check_recipe("fluxflow/full", "precision=bf16", "conv_tail", "act=leaky_relu", 10);
}
