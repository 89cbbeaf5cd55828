/* test_precision.c - mixed precision: which values are 16 bits, the loss scale, skipped steps,
 * and results that agree with f32 and with PyTorch within 16-bit rounding. */
#include "pass/fuse/fuse.h"
#include "pass/pass.h"
#include "rt/device.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/build/builder.h"

#include <string.h>

/* ---- a recipe: images to two numbers, group or batch norm, a residual, a pool ----------- */
enum { SAMPLES = 64, BATCH = 8 };

static const pl_config_entry schema[] = {
    {"norm", PL_CONFIG_CHOICE, "group", 0, 0, "group|batch", "Kind of normalisation."},
    {"size", PL_CONFIG_INT, "8", 4, 4096, NULL, "Pixels of a side."},
    {"width", PL_CONFIG_INT, "8", 1, 4096, NULL, "Channels."},
    {0},
};

static pl_val norm(pl_builder *b, pl_nn *m, pl_val x, const char *name)
{
    return strcmp(pl_config_text(pl_builder_config(b), "norm"), "batch") == 0
               ? pl_nn_batch_norm(m, x, name, (pl_nn_norm){0})
               : pl_nn_group_norm(m, x, name, 2, (pl_nn_norm){0});
}

static void network(pl_builder *b, pl_nn *m, pl_val *loss)
{
    const pl_config *c = pl_builder_config(b);
    int64_t n = pl_builder_batch(b), width = pl_config_int(c, "width"),
            s = pl_config_int(c, "size");
    pl_nn_conv conv = {.kernel = 3, .pad = 1};
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, s, s, 3));
    pl_val y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 2));
    x = pl_nn_conv2d(m, x, "stem", width, conv);
    for (int i = 0; i < 2; i++) {
        pl_scope_push(m->g, pl_nn_name(m, "block%d", i));
        pl_scope_checkpoint(m->g);
        pl_val r = pl_silu(m->g, norm(b, m, x, pl_nn_name(m, "norm%d", i)));
        x = pl_add(m->g, x, pl_nn_conv2d(m, r, pl_nn_name(m, "conv%d", i), width, conv));
        pl_scope_pop(m->g);
    }
    x = pl_max_pool(m->g, pl_relu(m->g, x), &(pl_pool_opts){.kernel = {2, 2}});
    x = pl_nn_global_average(m->g, x);
    *loss = pl_loss_mse(m->g, pl_nn_linear(m, x, "out", 2, (pl_nn_lin){0}), y);
}

static pl_status recipe_build(pl_builder *b)
{
    pl_val loss;
    network(b, pl_builder_train(b), &loss);
    pl_builder_minimise(b, loss);
    network(b, pl_builder_eval(b), &loss);
    pl_output(pl_builder_eval(b)->g, "loss", loss);
    return PL_OK;
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data, (void)subset;
    return SAMPLES;
}

/* Noise around one level per channel; the targets are sums and differences of the levels. */
static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    (void)data, (void)subset;
    pl_type t;
    float *x = pl_batch_input(batch, "x", &t), *y = pl_batch_input(batch, "y", NULL);
    for (int i = 0; i < n; i++) {
        uint64_t state = (uint64_t)(sample[i] + 1) * 0x9e3779b97f4a7c15u;
        double level[3];
        for (int k = 0; k < 3; k++) level[k] = pl_test_noise(&state);
        for (int64_t j = 0; j < t.dim[1] * t.dim[2] * 3; j++)
            *x++ = (float)(level[j % 3] + 0.3 * pl_test_noise(&state));
        *y++ = (float)(level[0] + level[1]);
        *y++ = (float)(level[1] - level[2]);
    }
    return PL_OK;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "precision-test",
                                 .about = "a small network",
                                 .schema = schema,
                                 .build = recipe_build,
                                 .data_size = data_size,
                                 .data_read = data_read};

enum { MAX_KEYS = 6 };

/* keys: a list that ends with NULL */
static pl_status open_run(const char *const *keys, pl_run **out)
{
    const char *all[3 + MAX_KEYS] = {"batch=8", "optim.lr=5e-3", "optim.weight_decay=0"};
    int n = 3;
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[n++] = keys[i];
    return small_run_open(&recipe, all, n, out);
}

static pl_status start_run(const char *const *keys, const pl_compile_opts *o, pl_run **out)
{
    PL_TRY(open_run(keys, out));
    if (o) pl_run_set_compile(*out, o);
    PL_TRY(pl_run_build(*out));
    return pl_run_start(*out);
}
#define KEYS(...) ((const char *const[MAX_KEYS + 1]){__VA_ARGS__, NULL})

/* ---- the pass --------------------------------------------------------------------------- */
/* The training graph of the recipe after the passes. */
static pl_status passed_graph(const char *const *keys, pl_dtype low, pl_store *store,
                              pl_graph **out)
{
    pl_run *run = NULL;
    pl_status rc = open_run(keys, &run);
    pl_builder b = {
        .config = run ? pl_run_config(run) : NULL, .store = store, .batch = BATCH, .accumulate = 1};
    if (rc == PL_OK) rc = pl__builder_run(&b, &recipe);
    if (rc == PL_OK) {
        *out = b.step_programs[0].run.g;
        b.step_programs[0].run.g = NULL;
        rc = pl_passes_run(out,
                           &(pl_pass_opts){.low = low, .open = true, .fuse = &pl_fuse_opts_cpu});
        pl__builder_release(&b);
    }
    pl_run_free(run);
    return rc;
}

/* Products have 16-bit operands and results; state, inputs, updates and outputs are f32; no
 * large value between units is f32 except the input images. */
static void check_widths(const char *norm_key)
{
    pl_store *store = pl_store_new();
    pl_graph *g = NULL;
    CHECK_OK(passed_graph(KEYS("size=32", "precision=fp16", norm_key), PL_F16, store, &g));
    int products = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        for (uint32_t i = 0; i < r->n_in; i++) {
            pl_dtype d = pl_type_of(g, pl_node_in(g, n)[i])->dtype;
            bool effect = r->op->flags & PL_OP_EFFECT;
            CHECK_MSG(!effect || d != PL_F16, "%s reads f16", r->op->name);
            if (r->op->width == PL_WIDTH_LOW && !g->scopes[r->scope].full)
                CHECK_MSG(d == PL_F16, "%s reads %s", r->op->name, pl_dtype_name(d));
        }
        products += r->op->width == PL_WIDTH_LOW;
    }
    CHECK(products >= 10);
    pl_units *us;
    CHECK_OK(pl_fuse(g, &pl_fuse_opts_cpu, &us));
    for (uint32_t u = 0; u < us->n; u++)
        for (uint32_t k = 0; k < us->unit[u].n_out; k++) {
            const pl_type *t = pl_type_of(g, us->unit[u].out[k]);
            char text[96], label[160];
            CHECK_MSG(t->dtype != PL_F32 || pl_type_elems(t) < 8192, "%s of %s is stored",
                      pl_type_text(t, text, sizeof text),
                      pl_node_label(g, pl_producer(g, us->unit[u].out[k]), label, sizeof label));
        }
    pl_units_free(us);
    pl_graph_free(g);
    pl_store_free(store);
}

TEST(precision_stores_nothing_large_in_f32)
{
    check_widths("norm=group");
    check_widths("norm=batch");
}

/* A product in a full scope, and its gradient, stay in f32; without the mark they do not. */
TEST(precision_full_scopes_stay_in_f32)
{
    for (int full = 0; full < 2; full++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 8, 8)), d;
        pl_scope_push(g, "outer");
        if (full) pl_scope_full(g);
        pl_scope_push(g, "inner");
        pl_val y = pl_sum(g, pl_square(g, pl_matmul(g, x, x, false, false)), PL_AXES_ALL, false);
        pl_scope_pop(g);
        pl_scope_pop(g);
        pl_grad(g, y, &x, 1, &d);
        pl_output(g, "y", y);
        pl_output(g, "d", d);
        CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.low = PL_BF16}));
        int products = 0, low = 0;
        for (uint32_t n = 1; n < g->n_nodes; n++) {
            const pl_node_rec *r = pl_node_get(g, n);
            if (r->op->width != PL_WIDTH_LOW) continue;
            products++;
            low += pl_type_of(g, r->out)->dtype == PL_BF16;
        }
        CHECK_INT(products, 3);
        CHECK_INT(low, full ? 0 : 3);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* A weight that is used twice: its gradients are added in f32, and the optimizer gets the f32
 * sum, though the sum is large and stored. */
TEST(precision_sums_of_gradients_are_f32)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_nn_conv conv = {.kernel = 3, .pad = 1};
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 8, 8, 32));
    for (int i = 0; i < 2; i++) x = pl_silu(g, pl_nn_conv2d(m, x, "conv", 32, conv));
    pl_optim o = PL_OPTIM_INIT;
    o.skip_nonfinite = true;
    pl_optim_apply(m, pl_mean(g, pl_square(g, x), PL_AXES_ALL, false), &o, NULL);
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.low = PL_F16, .fuse = &pl_fuse_opts_cpu}));
    int updates = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (strcmp(g->nodes[n].op->name, "adam") != 0) continue;
        uint32_t grad = pl_node_in(g, n)[3];
        if (pl_type_elems(pl_type_of(g, grad)) < 9216) continue;
        updates++;
        CHECK_INT(pl_type_of(g, grad)->dtype, PL_F32);
        CHECK(strcmp(g->nodes[pl_producer(g, grad)].op->name, "add") == 0);
    }
    CHECK_INT(updates, 1);
    pl_graph_free(g);
    pl_store_free(store);
}

/* f64 graphs, and graphs without products, do not change. */
TEST(precision_leaves_f64_and_graphs_without_products_alone)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val a = pl_input(g, "a", PL_TYPE(PL_F64, 4, 4)), b = pl_input(g, "b", PL_TYPE(PL_F32, 9000));
    pl_output(g, "aa", pl_matmul(g, a, a, false, false));
    pl_output(g, "bb", pl_exp(g, b));
    CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.low = PL_F16}));
    for (uint32_t v = 1; v < g->n_vals; v++) CHECK(pl_type_of(g, v)->dtype != PL_F16);
    pl_graph_free(g);
    pl_store_free(store);
}

/* A value that does not depend on a product stays f32 between units, however large; a small
 * value that does depend on one stays f32 too. */
TEST(precision_rounds_what_is_large_and_from_products)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 128, 128)),
           w = pl_input(g, "w", PL_TYPE(PL_F32, 128, 8));
    pl_val plain = pl_exp(g, x), small = pl_tanh(g, pl_matmul(g, x, w, false, false));
    pl_val norm = pl_add(
        g, plain, pl_broadcast(g, pl_sum(g, plain, PL_AXES_ALL, true), 2, (int64_t[]){128, 128}));
    pl_val mean = pl_sub(
        g, small, pl_broadcast(g, pl_sum(g, small, PL_AXES_ALL, true), 2, (int64_t[]){128, 8}));
    pl_output(g, "norm", pl_sum(g, pl_square(g, norm), PL_AXES_ALL, false));
    pl_output(g, "mean", pl_sum(g, pl_square(g, mean), PL_AXES_ALL, false));
    CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.low = PL_F16}));
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        bool product = r->op->width == PL_WIDTH_LOW;
        for (uint32_t i = 0; i < r->n_in; i++)
            CHECK_MSG(pl_type_of(g, pl_node_in(g, n)[i])->dtype == PL_F32 || product ||
                          r->op->scalar == PL_SCALAR_CAST,
                      "%s reads 16 bits", r->op->name);
        if (r->op->scalar == PL_SCALAR_CAST && pl_type_of(g, r->out)->dtype == PL_F16)
            /* the operands of the product, nothing else */
            CHECK(pl_producer(g, pl_node_in(g, n)[0]) < 3);
    }
    pl_graph_free(g);
    pl_store_free(store);
}

/* The sums of attention's exponentials are read in f32 by its gradient. */
TEST(precision_attention_keeps_its_sums_in_f32)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_type t = PL_TYPE(PL_F32, 2, 16, 2, 8);
    pl_val q[3] = {pl_input(g, "q", t), pl_input(g, "k", t), pl_input(g, "v", t)}, d[3];
    pl_val y = pl_attention(g, q[0], q[1], q[2], 0, false);
    pl_grad(g, pl_sum(g, pl_square(g, y), PL_AXES_ALL, false), q, 3, d);
    for (int i = 0; i < 3; i++) pl_output(g, i == 0 ? "dq" : i == 1 ? "dk" : "dv", d[i]);
    CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.low = PL_BF16}));
    int low = 0, full = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        if (r->op->width != PL_WIDTH_LOW) continue;
        for (uint32_t i = 0; i < r->n_in; i++) {
            bool wide = r->op->full_in >> i & 1;
            CHECK_INT(pl_type_of(g, pl_node_in(g, n)[i])->dtype, wide ? PL_F32 : PL_BF16);
            low += !wide;
            full += wide;
        }
    }
    CHECK(low >= 6 && full >= 1);
    pl_graph_free(g);
    pl_store_free(store);
}

/* ---- gradients and losses beside f32 ---------------------------------------------------- */
typedef struct trace {
    double first, last, scale;
    int skipped;
    float weight[4096];
    size_t n_weight;
} trace;

static void copy_weights(pl_run *run, trace *t)
{
    pl_store *s = pl_run_store(run);
    t->n_weight = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        size_t n = (size_t)pl_type_elems(&slot->type);
        if (slot->kind != PL_SLOT_PARAM || t->n_weight + n > 4096) continue;
        memcpy(t->weight + t->n_weight, pl_session_slot(pl_run_session(run), i), 4 * n);
        t->n_weight += n;
    }
}

/* last: the mean loss of the last eighth of the steps. */
static pl_status trace_of(const char *const *keys, const pl_compile_opts *o, int steps, trace *t)
{
    pl_run *run = NULL;
    memset(t, 0, sizeof *t);
    pl_status rc = start_run(keys, o, &run);
    int tail = steps >= 8 ? steps / 8 : 1;
    for (int i = 0; i < steps && rc == PL_OK; i++) {
        pl_step_info info;
        rc = pl_run_step(run, &info);
        if (i == 0) t->first = info.loss;
        if (i >= steps - tail) t->last += info.loss / tail;
        t->skipped += info.skipped;
        t->scale = info.loss_scale;
    }
    if (rc == PL_OK) copy_weights(run, t);
    pl_run_free(run);
    return rc;
}

static double distance(const trace *a, const trace *b)
{
    double d = 0, n = 0;
    for (size_t i = 0; i < a->n_weight; i++) {
        d += pow((double)a->weight[i] - (double)b->weight[i], 2);
        n += pow((double)a->weight[i], 2);
    }
    return sqrt(d / n);
}

TEST(precision_reaches_the_loss_of_f32)
{
    static trace full, half;
    CHECK_OK(trace_of(KEYS("precision=fp32"), NULL, 64, &full));
    CHECK(full.last < 0.2 * full.first);
    CHECK_OK(trace_of(KEYS("precision=bf16"), NULL, 64, &half));
    CHECK_MSG(half.last < 1.02 * full.last, "bf16 %g, fp32 %g", half.last, full.last);
    CHECK(distance(&full, &half) > 0); /* the precision differs */
    CHECK_OK(trace_of(KEYS("precision=fp16"), NULL, 64, &half));
    CHECK_MSG(half.last < 1.02 * full.last, "fp16 %g, fp32 %g", half.last, full.last);
    CHECK_OK(trace_of(KEYS("precision=tf32"), NULL, 8, &half));
    CHECK_OK(trace_of(KEYS("precision=fp32"), NULL, 8, &full));
    CHECK(memcmp(&full.weight, &half.weight, sizeof full.weight) == 0);
}

static double recipe_loss(const char *name, const char *precision)
{
    pl_run *run = NULL;
    pl_step_info info;
    double last = 0;
    pl_status rc = pl_run_open(name, &precision, 1, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < 150; i++) {
        rc = pl_run_step(run, &info);
        if (i >= 120) last += info.loss / 30;
    }
    pl_run_free(run);
    return rc == PL_OK ? last : (double)INFINITY;
}

TEST(precision_recipes_reach_the_loss_of_f32)
{
    static const char *const recipes[] = {"lgt/tiny", "wandistill/tiny"};
    static const char *const low[] = {"precision=bf16", "precision=fp16"};
    if (!pl_test_long()) SKIP("long");
    for (int i = 0; i < 2; i++) {
        double full = recipe_loss(recipes[i], "precision=fp32");
        for (int k = 0; k < 2; k++) {
            double half = recipe_loss(recipes[i], low[k]);
            CHECK_MSG(half < 1.02 * full, "%s %s: %g, fp32 %g", recipes[i], low[k], half, full);
        }
    }
}

/* SGD without momentum at rate 1 moves weights by their gradients. */
TEST(precision_gradients_are_close_to_f32)
{
    static const char *const one_step[] = {"optim.name=sgd", "optim.lr=1"};
    static trace at, full, half;
    const struct {
        const char *precision;
        double tol;
    } rows[] = {{"precision=fp16", 1e-2}, {"precision=bf16", 6e-2}};
    CHECK_OK(trace_of(KEYS("precision=fp32", one_step[0], "optim.lr=0"), NULL, 1, &at));
    CHECK_OK(trace_of(KEYS("precision=fp32", one_step[0], one_step[1]), NULL, 1, &full));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(
            trace_of(KEYS(rows[i].precision, one_step[0], one_step[1], "loss_scale.initial=256"),
                     NULL, 1, &half));
        double d = 0, n = 0;
        for (size_t k = 0; k < at.n_weight; k++) {
            double want = (double)full.weight[k] - (double)at.weight[k];
            d += pow((double)half.weight[k] - (double)at.weight[k] - want, 2);
            n += want * want;
        }
        CHECK(n > 0);
        CHECK_MSG(sqrt(d / n) < rows[i].tol, "%s: gradients differ by %g", rows[i].precision,
                  sqrt(d / n));
        CHECK_NEAR(half.first, full.first, rows[i].tol * full.first);
    }
}

/* Neither fusion nor recompute changes a bit of a 16-bit program. */
TEST(precision_plans_do_not_change_bits)
{
    static const char *const how[] = {"precision=fp16", "precision=bf16"};
    for (int i = 0; i < 2; i++) {
        static trace kept, other;
        pl_compile_opts o = PL_COMPILE_INIT;
        CHECK_OK(trace_of(KEYS(how[i], "size=16"), NULL, 3, &kept));
        CHECK_OK(trace_of(KEYS(how[i], "size=16", "checkpointing=blocks"), NULL, 3, &other));
        CHECK(memcmp(&kept, &other, sizeof kept) == 0);
        o.no_fuse = o.no_reuse = true;
        CHECK_OK(trace_of(KEYS(how[i], "size=16"), &o, 3, &other));
        CHECK(memcmp(&kept, &other, sizeof kept) == 0);
    }
}

TEST(precision_fp16_accumulates_micro_batches)
{
    static trace whole, parts;
    CHECK_OK(trace_of(KEYS("precision=fp16", "loss_scale.initial=1024"), NULL, 10, &whole));
    CHECK_OK(trace_of(KEYS("precision=fp16", "loss_scale.initial=1024", "accumulate=4"), NULL, 10,
                      &parts));
    CHECK_INT(whole.skipped, 0);
    CHECK_INT(parts.skipped, 0);
    CHECK_NEAR(parts.first, whole.first, 1e-3 * whole.first);
    CHECK_NEAR(parts.last, whole.last, 2e-2 * whole.last);
}

/* ---- memory ----------------------------------------------------------------------------- */
static pl_status keep_all(const char *precision, uint64_t *bytes)
{
    pl_run *run = NULL;
    pl_compile_opts o = PL_COMPILE_INIT;
    o.plan_seconds = 0.05;
    pl_status rc = pl_run_open("cloud/full", &precision, 1, &run);
    if (rc != PL_OK) return rc;
    pl_run_set_compile(run, &o);
    rc = pl_run_build(run);
    if (rc == PL_OK) *bytes = pl_program_plan(pl_run_train_program(run))->keep_all_bytes;
    pl_run_free(run);
    return rc;
}

TEST(precision_halves_activations)
{
    uint64_t full, half;
    CHECK_OK(keep_all("precision=fp32", &full));
    CHECK_OK(keep_all("precision=bf16", &half));
    CHECK_MSG((double)half < 0.65 * (double)full, "%llu bytes of %llu", (unsigned long long)half,
              (unsigned long long)full);
    CHECK_OK(keep_all("precision=fp16", &half));
    CHECK_MSG((double)half < 0.65 * (double)full, "%llu bytes of %llu", (unsigned long long)half,
              (unsigned long long)full);
}

/* ---- overflow --------------------------------------------------------------------------- */
/* Everything that a skipped step must not change: all state except the loss scale, the random
 * key and model statistics of the forward pass. */
static bool must_stay(const pl_slot *s)
{
    return s->kind != PL_SLOT_BUFFER && strncmp(s->name, "scale.", 6) != 0 &&
           strcmp(s->name, "rng") != 0;
}

static uint64_t fingerprint(pl_run *run)
{
    uint64_t h = 1469598103934665603u;
    pl_store *s = pl_run_store(run);
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        const unsigned char *at = pl_session_slot(pl_run_session(run), i);
        for (size_t k = 0; must_stay(slot) && k < pl_type_bytes(&slot->type); k++)
            h = (h ^ at[k]) * 1099511628211u;
    }
    return h;
}

static float *scale_of(pl_run *run)
{
    return pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), "scale.value"));
}

/* Steps 3 and 4 of 7 overflow: they change nothing, the other steps do, and the scale falls and
 * rises as specified. */
static void check_overflow(const char *const *keys)
{
    pl_run *run = NULL;
    CHECK_OK(start_run(keys, NULL, &run));
    CHECK_NEAR(*scale_of(run), 512, 0);
    for (int step = 1; step <= 7; step++) {
        bool forced = step == 3 || step == 4;
        float before = *scale_of(run);
        if (forced) *scale_of(run) = 0x1p100f;
        uint64_t was = fingerprint(run);
        pl_step_info info;
        CHECK_OK(pl_run_step(run, &info));
        CHECK_INT(info.step, step);
        CHECK_INT(info.skipped, forced);
        CHECK_INT(fingerprint(run) == was, forced);
        CHECK_NEAR(info.loss_scale, forced ? 0x1p100 : (double)before, 0);
        CHECK(isfinite(info.loss));
        if (forced) {
            CHECK_NEAR(*scale_of(run), 0x1p99, 0);
            *scale_of(run) = before;
        }
    }
    int64_t updates = *(int64_t *)pl_session_slot(pl_run_session(run),
                                                  pl_store_find(pl_run_store(run), "optim.step"));
    CHECK_INT(updates, 5);
    CHECK_NEAR(*scale_of(run), 512 * 3, 0); /* after steps 5, 6 and 7 */
    pl_run_free(run);
}

TEST(precision_overflow_skips_the_update_and_lowers_the_scale)
{
    check_overflow(KEYS("precision=fp16", "loss_scale.initial=512", "loss_scale.interval=3",
                        "loss_scale.growth=3", "ema.decay=0.9"));
    check_overflow(KEYS("precision=fp16", "loss_scale.initial=512", "loss_scale.interval=3",
                        "loss_scale.growth=3", "accumulate=2", "clip.norm=1"));
}

/* Only overflow at the floor ends a run, with a message. */
TEST(precision_overflow_at_the_floor_ends_the_run)
{
    pl_run *run = NULL;
    CHECK_OK(start_run(KEYS("precision=fp16", "loss_scale.initial=4e20", "loss_scale.floor=1e20"),
                       NULL, &run));
    pl_step_info info;
    CHECK_OK(pl_run_step(run, &info));
    CHECK_OK(pl_run_step(run, &info));
    CHECK(info.skipped);
    CHECK_INT(pl_run_step(run, &info), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "floor") && strstr(pl_error_text(), "step 3"), "%s",
              pl_error_text());
    pl_run_free(run);
}

/* The message names the tensor where the numbers went wrong, not where the loss showed it: here
 * the product of the second block, whose weight is huge, and in another step the update itself. */
TEST(precision_trace_names_the_first_kernel_that_is_not_finite)
{
    pl_run *run = NULL;
    pl_step_info info;
    CHECK_OK(start_run(KEYS("precision=fp16", "loss_scale.initial=2", "loss_scale.floor=2"), NULL,
                       &run));
    pl_run_trace_nan(run, true);
    CHECK_OK(pl_run_step(run, &info));
    float *w =
        pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), "conv1.weight"));
    for (int i = 0; i < 64; i++) w[i] = 30000;
    CHECK_INT(pl_run_step(run, &info), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "not finite: block1.conv1: conv, f16["), "%s",
              pl_error_text());
    pl_run_free(run);
    CHECK_OK(start_run(KEYS("precision=fp32"), NULL, &run));
    pl_run_trace_nan(run, true);
    int moment = pl_store_find(pl_run_store(run), "optim.m.stem.weight");
    *(float *)pl_session_slot(pl_run_session(run), moment) = NAN;
    CHECK_INT(pl_run_step(run, &info), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "after the update") && strstr(pl_error_text(), "optim: adam"),
              "%s", pl_error_text());
    pl_run_free(run);
}
