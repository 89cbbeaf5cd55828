/* test_nn.c - layers and losses against PyTorch's numbers, initial values, names, sizes of
 * models.
 *
 * tests/data/layers.json is written by tools/oracle/layer_numbers.py: for each case the summaries of
 * output, gradients and state. The state of a case is a PyTorch state_dict: every name must be
 * a slot with that file shape, and there must be no other.
 */
#include "base/sys.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "tests/workloads/workloads.h"

#include <stdio.h>
#include <string.h>

/* ---- the cases -------------------------------------------------------------------------- */
typedef pl_val layer_fn(pl_nn *m, pl_val x, pl_val y);
#define LAYER(name, expr)                                                                          \
 static pl_val layer_##name(pl_nn *m, pl_val x, pl_val y)                                          \
 {                                                                                                 \
  pl_graph *g = m->g;                                                                              \
  (void)g, (void)y;                                                                                \
  return (expr);                                                                                   \
 }

static const pl_nn_lin lin;
static const pl_nn_norm norm;

/* The layer on n parts of the batch, one after another. */
static pl_val in_parts(pl_nn *m, pl_val x, int n, pl_val (*fn)(pl_nn *, pl_val))
{
    pl_val part[4];
    pl_split(m->g, x, 0, n, part);
    for (int i = 0; i < n; i++) part[i] = fn(m, part[i]);
    return pl_concat(m->g, n, part, 0);
}

static pl_val spectral_part(pl_nn *m, pl_val x)
{
    return pl_nn_conv2d(m, x, "", 4, (pl_nn_conv){3, .pad = 1, .spectral = PL_SPECTRAL_TORCH});
}

static pl_val batch_norm_part(pl_nn *m, pl_val x)
{
    return pl_nn_batch_norm(m, x, "", norm);
}

static pl_val angles(pl_graph *g)
{
    return pl_nn_rope_angles(g, PL_F32, 1, (const int64_t[]){5}, (const int64_t[]){8}, 10000);
}

/* A constant with the numbers that Python's make(label) has. */
static pl_val noise_input(pl_nn *m, const char *label, pl_type t)
{
    return pl_input(m->g, label, t);
}

static pl_val ints(pl_graph *g, int64_t n, int64_t times, int64_t mod)
{
    pl_val i = pl_iota(g, PL_TYPE(PL_I64, n), 0);
    return pl_mod(g, pl_scale(g, i, (double)times), pl_full_like(g, i, (double)mod));
}

static pl_val film(pl_nn *m, pl_val x, pl_val y)
{
    return pl_nn_film(m->g, x, pl_slice(m->g, y, 1, 0, 3, 1), pl_slice(m->g, y, 1, 3, 6, 1));
}

static const double curve_start[4];

LAYER(conv1d, pl_nn_conv1d(m, x, "", 6, (pl_nn_conv){3, 2, 1}))
LAYER(conv2d, pl_nn_conv2d(m, x, "", 6, (pl_nn_conv){3, .pad = 2, .dilation = 2, .groups = 2}))
LAYER(conv2d_down, pl_nn_conv2d(m, x, "", 5, (pl_nn_conv){4, 2, 1, .no_bias = true}))
LAYER(conv3d, pl_nn_conv3d(m, x, "", 3, (pl_nn_conv){.kernels = {1, 2, 2}, .strides = {1, 2, 2}}))
LAYER(conv_transpose2d,
      pl_nn_conv_transpose2d(m, x, "", 6, (pl_nn_conv){4, 2, 1, .groups = 2, .out_pad = 1}))
LAYER(conv_transpose3d, pl_nn_conv_transpose3d(m, x, "", 2, (pl_nn_conv){3, 2, 1}))
LAYER(linear, pl_nn_linear(m, x, "", 7, lin))
LAYER(group_norm, pl_nn_group_norm(m, x, "", 2, norm))
LAYER(group_norm_plain, pl_nn_group_norm(m, x, "", 3, (pl_nn_norm){.eps = 1e-3, .no_affine = true}))
LAYER(layer_norm, pl_nn_layer_norm(m, x, "", norm))
LAYER(rms_norm, pl_nn_rms_norm(m, x, "", norm))
LAYER(batch_norm, in_parts(m, x, 3, batch_norm_part))
LAYER(batch_norm_vectors, pl_nn_batch_norm(m, x, "", (pl_nn_norm){.momentum = 0.3, .eps = 1e-3}))
LAYER(batch_norm_eval, pl_nn_batch_norm(m, x, "", norm))
LAYER(embedding, pl_nn_embedding(m, x, "", 6, 5))
LAYER(spectral_conv, in_parts(m, x, 2, spectral_part))
LAYER(spectral_linear, pl_nn_linear(m, x, "", 5, (pl_nn_lin){.spectral = PL_SPECTRAL_TORCH}))
LAYER(attention_self, pl_nn_multi_head_attention(m, x, x, "attn", 2))
LAYER(attention_cross, pl_nn_multi_head_attention(m, x, y, "attn", 2))
LAYER(geglu, pl_nn_geglu(m, x, "gate", 8))
LAYER(trainable_bezier, pl_nn_trainable_bezier(m, x, "", curve_start))
LAYER(rope, pl_nn_rope(g, x, angles(g), false))
LAYER(rope_half, pl_nn_rope(g, x, angles(g), true))
LAYER(time_cos_first, pl_nn_time_features(g, x, 8, (pl_nn_sinusoid){0}))
LAYER(time_sin_first,
      pl_nn_time_features(g, x, 8, (pl_nn_sinusoid){.sin_first = true, .last_is_full = true}))
LAYER(position_2d, pl_add(g, pl_nn_position_2d(g, PL_F32, 3, 5, 8), pl_scale(g, x, 0)))
LAYER(linspace, pl_add(g, pl_nn_linspace(g, PL_F32, -1, 1, 7), pl_scale(g, x, 0)))
LAYER(film, film(m, x, y))
LAYER(mse, pl_loss_mse(g, x, y))
LAYER(l1, pl_loss_l1(g, x, y))
LAYER(huber, pl_loss_huber(g, x, y, 0.7))
LAYER(smooth_l1, pl_loss_smooth_l1(g, x, y, 0.5))
LAYER(cross_entropy, pl_loss_cross_entropy(g, x, ints(g, 5, 1, 4)))
LAYER(bce, pl_loss_bce_with_logits(g, x, pl_sigmoid(g, y)))
LAYER(hinge_d, pl_loss_hinge_d(g, x, y))
LAYER(hinge_g, pl_loss_hinge_g(g, x))
LAYER(kl, pl_loss_kl(g, x, y))
LAYER(cosine, pl_loss_cosine_similarity(g, x, y, 1))
LAYER(hard_mining, pl_loss_hard_mining(g, pl_loss_huber(g, x, y, 0.7), 0.35, 1.5))
LAYER(swd, pl_loss_patch_swd(g, x, y, 3, ints(g, 14, 3, 1000),
                             noise_input(m, "directions", PL_TYPE(PL_F32, 27, 5))))
LAYER(ssm, pl_loss_cosine_ssm(g, x, y, ints(g, 10, 2, 1000)))
LAYER(lpips, pl_loss_lpips_level(g, x, y, noise_input(m, "weights", PL_TYPE(PL_F32, 4))))

#define ROW(name)                                                                                  \
 {                                                                                                 \
#  name, layer_##name                                                                              \
 }
static const struct {
    const char *name;
    layer_fn *fn;
} layers[] = {
    ROW(conv1d),
    ROW(conv2d),
    ROW(conv2d_down),
    ROW(conv3d),
    ROW(conv_transpose2d),
    ROW(conv_transpose3d),
    ROW(linear),
    ROW(group_norm),
    ROW(group_norm_plain),
    ROW(layer_norm),
    ROW(rms_norm),
    ROW(batch_norm),
    ROW(batch_norm_vectors),
    ROW(batch_norm_eval),
    ROW(embedding),
    ROW(spectral_conv),
    ROW(spectral_linear),
    {"spectral_eval", layer_spectral_linear},
    ROW(attention_self),
    ROW(attention_cross),
    ROW(geglu),
    ROW(trainable_bezier),
    ROW(rope),
    ROW(rope_half),
    ROW(time_cos_first),
    ROW(time_sin_first),
    ROW(position_2d),
    ROW(linspace),
    ROW(film),
    ROW(mse),
    ROW(l1),
    ROW(huber),
    ROW(smooth_l1),
    ROW(cross_entropy),
    ROW(bce),
    ROW(hinge_d),
    ROW(hinge_g),
    ROW(kl),
    ROW(cosine),
    ROW(hard_mining),
    ROW(swd),
    ROW(ssm),
    ROW(lpips),
};

/* ---- running a case --------------------------------------------------------------------- */
typedef struct trial {
    const char *name;
    json_t *row;
    bool channels; /* x and output are [N,C,..] in PyTorch */
    pl_store *store;
    lab *lab;
} trial;

static int shape_of(json_t *shape, int64_t *dim)
{
    int rank = (int)json_array_size(shape);
    for (int i = 0; i < rank; i++) dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    return rank;
}

/* Our type of a tensor of PyTorch's shape. */
static pl_type type_of(const trial *t, json_t *shape, pl_dtype dtype)
{
    int64_t dim[PL_MAX_RANK], ours[PL_MAX_RANK];
    int rank = shape_of(shape, dim);
    for (int i = 0; i < rank; i++) ours[i] = dim[i];
    if (t->channels && rank > 2) {
        for (int i = 1; i + 1 < rank; i++) ours[i] = dim[i + 1];
        ours[rank - 1] = dim[1];
    }
    return pl_type_make(dtype, rank, ours);
}

static int64_t *order_of(const trial *t, const pl_type *type, int64_t *n)
{
    int perm[PL_MAX_RANK];
    for (int i = 0; i < type->rank; i++) perm[i] = i;
    if (t->channels && type->rank > 2) {
        perm[1] = type->rank - 1;
        for (int i = 2; i < type->rank; i++) perm[i] = i - 1;
    }
    return peer_file_order(type->rank, type->dim, perm, n);
}

static void give(const trial *t, const char *input, double high)
{
    pl_type type;
    void *p = lab_input(t->lab, 0, input, &type);
    if (!p) return;
    uint64_t hash = peer_hash(input);
    int64_t n, *index = order_of(t, &type, &n);
    for (int64_t i = 0; i < n; i++) {
        if (type.dtype == PL_F32)
            ((float *)p)[index[i]] = (float)peer_noise(hash, i);
        else
            ((int64_t *)p)[index[i]] = (int64_t)(peer_uniform(hash, i) * high);
    }
    pl_sys_free(index);
}

/* Deviation of an output or a slot, its elements taken in the given order. */
static double compare(const void *p, pl_dtype dtype, int64_t *index, int64_t n, json_t *want)
{
    double *x = pl_sys_alloc(sizeof *x * (size_t)(n + 1));
    for (int64_t i = 0; p && i < n; i++)
        x[i] = dtype == PL_I64 ? (double)((const int64_t *)p)[index[i]]
                               : (double)((const float *)p)[index[i]];
    double d = p ? peer_deviation(peer_summarise(x, n), want, 1e-2) : HUGE_VAL;
    pl_sys_free(x);
    pl_sys_free(index);
    return d;
}

static void expect(const trial *t, const char *what, double d, double tol)
{
    if (!(d <= tol)) pl_test_fail(__FILE__, __LINE__, "%s: %s is off by %g", t->name, what, d);
}

static void check_output(const trial *t, const char *output, json_t *want, double tol)
{
    pl_type type;
    const void *p = lab_output(t->lab, 0, output, &type);
    int64_t n = 0;
    int64_t *index = p ? order_of(t, &type, &n) : NULL;
    expect(t, output, compare(p, PL_F32, index, n, want), tol);
}

static void start_state(const trial *t)
{
    const char *name;
    json_t *row;
    json_object_foreach(json_object_get(t->row, "state"), name, row)
    {
        int slot = pl_store_find(t->store, name);
        if (slot < 0) continue; /* reported by check_names */
        const pl_slot *s = pl_store_slot(t->store, slot);
        if (s->type.dtype != PL_F32) continue;
        double factor = json_array_size(json_object_get(row, "shape")) > 1 ? 0.5 : 1;
        int64_t n, *index = peer_slot_order(s, &n);
        bool one = strstr(name, "running_var") != NULL;
        float *v = lab_slot(t->lab, slot);
        for (int64_t i = 0; i < n; i++)
            v[index[i]] = one ? 1.0f : (float)peer_noise(peer_hash(name), i) * (float)factor;
        pl_sys_free(index);
    }
}

/* The slots of the model are those of the state_dict, with their file shapes. */
static void check_names(const trial *t)
{
    json_t *state = json_object_get(t->row, "state");
    size_t model = 0;
    for (int i = 0; i < pl_store_count(t->store); i++) {
        const pl_slot *s = pl_store_slot(t->store, i);
        if (s->kind > PL_SLOT_BUFFER) continue;
        model++;
        json_t *row = json_object_get(state, s->name);
        bool same = row && peer_same_shape(s, json_object_get(row, "shape"));
        if (!same)
            pl_test_fail(__FILE__, __LINE__, "%s: slot %s is not PyTorch's", t->name, s->name);
    }
    if (model != json_object_size(state))
        pl_test_fail(__FILE__, __LINE__, "%s: %zu slots, PyTorch has %zu", t->name, model,
                     json_object_size(state));
}

static void check_state(const trial *t)
{
    const char *name;
    json_t *row, *want;
    char output[128];
    json_object_foreach(json_object_get(t->row, "state"), name, row)
    {
        int slot = pl_store_find(t->store, name);
        if (slot < 0) continue;
        const pl_slot *s = pl_store_slot(t->store, slot);
        int64_t n, *index = peer_slot_order(s, &n);
        if ((want = json_object_get(row, "final"))) {
            expect(t, name, compare(lab_slot(t->lab, slot), s->type.dtype, index, n, want), 1e-5);
        } else {
            want = json_object_get(row, "grad");
            snprintf(output, sizeof output, "grad.%s", name);
            const void *p = lab_output(t->lab, 0, output, NULL);
            expect(t, output, compare(p, PL_F32, index, n, want), 2e-5);
        }
    }
}

/* Gradients of sum(out*cot) in x and every parameter, as outputs. */
static void ask_gradients(const trial *t, pl_nn *m, pl_val x, pl_val out)
{
    pl_graph *g = m->g;
    pl_val cot = pl_input(g, "cot", pl_val_type(g, out)), gx;
    pl_val loss = pl_sum(g, pl_mul(g, out, cot), PL_AXES_ALL, false);
    if (json_object_get(t->row, "grad")) {
        pl_grad(g, loss, &x, 1, &gx);
        pl_output(g, "grad", gx);
    }
    for (int i = 0; i < pl_store_count(t->store); i++) {
        const pl_slot *s = pl_store_slot(t->store, i);
        if (s->kind != PL_SLOT_PARAM) continue;
        pl_val w = pl_nn_read(m, i), gw;
        pl_grad(g, loss, &w, 1, &gw);
        pl_output(g, pl_nn_name(m, "grad.%s", s->name), gw);
    }
}

static void run_case(trial *t, layer_fn *fn)
{
    bool eval = strstr(t->name, "_eval") != NULL;
    bool ids = !json_object_get(t->row, "grad");
    double high = strstr(t->name, "time") ? 1000 : 6;
    json_t *ys = json_object_get(t->row, "y");
    t->store = pl_store_new();
    t->lab = lab_new(t->store);
    pl_graph *g = pl_graph_new(t->store);
    pl_nn *m = pl_nn_new(g, !eval);
    pl_val x = pl_input(g, "x", type_of(t, json_object_get(t->row, "x"), ids ? PL_I64 : PL_F32));
    pl_val y = ys ? pl_input(g, "y", type_of(t, ys, PL_F32)) : PL_NO_VAL;
    pl_val out = fn(m, x, y);
    pl_output(g, "out", out);
    ask_gradients(t, m, x, out);
    pl_status rc = pl_nn_finish(m);
    pl_nn_free(m);
    lab_add(t->lab, g);
    if (rc == PL_OK) rc = lab_open(t->lab);
    if (rc == PL_OK) {
        check_names(t);
        start_state(t);
        static const char *const inputs[] = {"x", "y", "cot", "directions", "weights"};
        for (size_t i = 0; i < 5; i++) give(t, inputs[i], high);
        rc = lab_run(t->lab, 0);
    }
    if (rc == PL_OK) {
        check_output(t, "out", json_object_get(t->row, "out"), 1e-5);
        if (!ids) check_output(t, "grad", json_object_get(t->row, "grad"), 2e-5);
        check_state(t);
    } else {
        pl_test_fail(__FILE__, __LINE__, "%s: %s", t->name, pl_error_text());
    }
    lab_free(t->lab);
    pl_store_free(t->store);
}

TEST(nn_layers_match_pytorch)
{
    json_error_t error;
    json_t *cases = json_load_file("tests/data/layers.json", 0, &error), *row;
    CHECK_MSG(cases, "tests/data/layers.json: %s", error.text);
    size_t i, ran = 0;
    json_array_foreach(cases, i, row)
    {
        trial t = {.name = json_string_value(json_object_get(row, "name")),
                   .row = row,
                   .channels = json_is_true(json_object_get(row, "channels"))};
        for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
            if (strcmp(layers[k].name, t.name) != 0) continue;
            run_case(&t, layers[k].fn);
            ran++;
        }
    }
    size_t want = json_array_size(cases);
    json_decref(cases);
    CHECK_INT(ran, want);
}

/* ---- initial values --------------------------------------------------------------------- */
TEST(nn_inits_are_torch_s)
{
    pl_init i =
        pl_nn_init_of(pl_nn_kaiming_normal(PL_FAN_OUT, pl_nn_gain("leaky_relu", 0.01)), 27, 576);
    CHECK(i.kind == PL_INIT_NORMAL);
    CHECK_NEAR(i.b, sqrt(2 / (1 + 1e-4)) / 24, 1e-12);
    i = pl_nn_init_of(pl_nn_xavier_uniform(1), 8, 24);
    CHECK(i.kind == PL_INIT_UNIFORM);
    CHECK_NEAR(i.b, sqrt(6.0 / 32), 1e-12);
    CHECK_NEAR(i.a, -i.b, 0);
    i = pl_nn_init_of(pl_nn_xavier_normal(2), 8, 24);
    CHECK_NEAR(i.b, 2 * sqrt(2.0 / 32), 1e-12);
    i = pl_nn_init_of(pl_nn_kaiming_uniform(PL_FAN_IN, pl_nn_gain("relu", 0)), 6, 24);
    CHECK_NEAR(i.b, 1.0, 1e-12);
    i = pl_nn_init_of((pl_nn_init){0}, 16, 3);
    CHECK_NEAR(i.b, 0.25, 1e-12);
}

/* What a session fills in has the bounds and the spread of the rule. */
TEST(nn_initial_weights_follow_their_rule)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 8, 8, 16));
    x = pl_nn_conv2d(m, x, "conv", 32, work_conv3());
    x = pl_nn_conv_transpose2d(m, x, "up", 8, (pl_nn_conv){4, 2, 1});
    x = pl_nn_linear(m, x, "fc", 64, (pl_nn_lin){.init = pl_nn_xavier_normal(1)});
    pl_output(g, "y", pl_sum(g, pl_nn_batch_norm(m, x, "norm", norm), PL_AXES_ALL, false));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p;
    pl_session *ss;
    CHECK_OK(pl_compile(g, &o, &p));
    CHECK_OK(pl_session_new(s, 1, &p, &ss));
    pl_session_init(ss, 7);
    static const struct {
        const char *name;
        double bound, std; /* bound 0: none */
    } want[] = {{"conv.weight", 1.0 / 12, 1.0 / 12 / 1.7320508},
                {"conv.bias", 1.0 / 12, 0},
                {"up.weight", 0.08838834764831845, 0.08838834764831845 / 1.7320508}, /* fan 8*16 */
                {"fc.weight", 0, 0.16666666666}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int slot = pl_store_find(s, want[i].name);
        CHECK(slot >= 0);
        const float *w = pl_session_slot(ss, slot);
        int64_t n = pl_type_elems(&pl_store_slot(s, slot)->type);
        double sum = 0, most = 0;
        for (int64_t k = 0; k < n; k++) {
            sum += (double)w[k] * (double)w[k];
            most = fmax(most, fabs((double)w[k]));
        }
        if (want[i].bound > 0) CHECK(most <= want[i].bound && most > 0.8 * want[i].bound);
        if (want[i].std > 0) CHECK_NEAR(sqrt(sum / (double)n), want[i].std, 0.1 * want[i].std);
    }
    CHECK(((const float *)pl_session_slot(ss, pl_store_find(s, "norm.running_var")))[3] == 1.0f);
    pl_session_free(ss);
    pl_program_free(p);
    pl_store_free(s);
}

/* ---- names, sharing, errors ------------------------------------------------------------- */
TEST(nn_patterns)
{
    CHECK(pl_nn_match(NULL, "anything"));
    CHECK(pl_nn_match("a.*,b.*", "b.c.weight"));
    CHECK(!pl_nn_match("a.*,b.*", "c.weight"));
    CHECK(!pl_nn_match("*,!*.bias", "a.bias"));
    CHECK(pl_nn_match("!*.bias", "a.weight"));
    CHECK(pl_nn_match("*.?.weight", "x.1.weight"));
    CHECK(!pl_nn_match("", "a"));
    CHECK(pl_nn_match("*a*b*c", "xxaybbzc"));
}

TEST(nn_same_name_shares_and_errors_are_kept)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 6));
    pl_nn_push(m, "net.%d", 3);
    pl_val a = pl_nn_linear(m, x, "fc", 6, lin);
    int n = pl_store_count(s);
    a = pl_nn_linear(m, a, "fc", 6, lin);
    CHECK_INT(pl_store_count(s), n);
    CHECK(pl_store_find(s, "net.3.fc.weight") >= 0);
    CHECK(!pl_val_ok(pl_nn_conv2d(m, a, "conv", 6, work_conv3())));
    pl_nn_pop(m);
    CHECK_INT(pl_nn_finish(m), PL_ERR_SHAPE);
    CHECK_MSG(strstr(pl_error_text(), "net.3") && strstr(pl_error_text(), "conv"), "%s",
              pl_error_text());
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(s);
}

/* ---- state that a forward pass changes -------------------------------------------------- */
/* Means 1 and 3 of two calls, momentum 0.5, from 0: one after another 0.5 then 1.75; averaged
 * once, half of 2. */
TEST(nn_batch_norm_called_twice)
{
    for (int average = 0; average < 2; average++) {
        pl_store *s = pl_store_new();
        pl_graph *g = pl_graph_new(s);
        pl_nn *m = pl_nn_new(g, true);
        m->bn_average = average;
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4, 1)), part[2];
        pl_split(g, x, 0, 2, part);
        for (int i = 0; i < 2; i++)
            pl_output(g, pl_nn_name(m, "y%d", i),
                      pl_nn_batch_norm(m, part[i], "norm", (pl_nn_norm){.momentum = 0.5}));
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab *l = lab_new(s);
        lab_add(l, g);
        CHECK_OK(lab_open(l));
        memcpy(lab_input(l, 0, "x", NULL), (float[]){0, 2, 2, 4}, 4 * sizeof(float));
        CHECK_OK(lab_run(l, 0));
        float mean = *(float *)lab_slot(l, pl_store_find(s, "norm.running_mean"));
        CHECK_NEAR(mean, average ? 1.0 : 1.75, 1e-6);
        CHECK_INT(*(int64_t *)lab_slot(l, pl_store_find(s, "norm.num_batches_tracked")), 2);
        lab_free(l);
        pl_store_free(s);
    }
}

/* Each run draws other masks, because the key moves on; nothing is drawn outside training. */
TEST(nn_dropout_moves_the_key)
{
    enum { N = 400 };
    pl_store *s = pl_store_new();
    lab *l = lab_new(s);
    for (int training = 0; training < 2; training++) {
        pl_graph *g = pl_graph_new(s);
        pl_nn *m = pl_nn_new(g, training == 1);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, N));
        pl_output(g, "y", pl_shift(g, pl_nn_dropout(m, x, 0.25), 0));
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab_add(l, g);
    }
    CHECK_OK(lab_open(l));
    float seen[3][N];
    for (int run = 0; run < 3; run++) {
        float *x = lab_input(l, run > 0, "x", NULL);
        for (int i = 0; i < N; i++) x[i] = 1;
        CHECK_OK(lab_run(l, run > 0));
        memcpy(seen[run], lab_output(l, run > 0, "y", NULL), sizeof seen[run]);
    }
    int kept = 0, differ = 0;
    for (int i = 0; i < N; i++) {
        CHECK(seen[0][i] == 1);
        CHECK(seen[1][i] == 0 || fabsf(seen[1][i] - 4.0f / 3) < 1e-6f);
        kept += seen[1][i] != 0;
        differ += seen[1][i] != seen[2][i];
    }
    CHECK(kept > N * 0.65 && kept < N * 0.85);
    CHECK(differ > N / 5);
    CHECK_INT(((int64_t *)lab_slot(l, pl_store_find(s, "rng")))[1], 2);
    lab_free(l);
    pl_store_free(s);
}

/* ---- sizes of full models --------------------------------------------------------------- */
typedef struct shop {
    pl_store *store;
    pl_graph *g;
    pl_nn *m;
} shop;

static shop shop_open(void)
{
    shop s = {.store = pl_store_new()};
    s.g = pl_graph_new(s.store);
    s.m = pl_nn_new(s.g, true);
    return s;
}

static pl_status shop_close(shop *s)
{
    pl_status rc = pl_nn_finish(s->m);
    pl_nn_free(s->m);
    pl_graph_free(s->g);
    pl_store_free(s->store);
    return rc;
}

TEST(nn_counts_lgt_and_wan)
{
    shop s = shop_open();
    lgt_micro(s.m, &lgt_full);
    CHECK_INT(pl_nn_count(s.store, NULL, false), 20337668);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    wan_step(s.m, &wan_full);
    CHECK_INT(pl_nn_count(s.store, "student.*", true), 214203396);
    CHECK_INT(pl_nn_count(s.store, "teacher.*", false), 1418996800);
    CHECK_INT(pl_nn_count(s.store, NULL, true), 214203396 + 80);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    wan_step(s.m, &wan_small);
    CHECK_INT(pl_nn_count(s.store, "student.*", false), 4752132);
    CHECK_OK(shop_close(&s));
}

TEST(nn_counts_stablesr)
{
    shop s = shop_open();
    sr_edge_step(s.m, &sr_edge_before_full);
    CHECK_INT(pl_nn_count(s.store, NULL, false), 48559612);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    sr_step(s.m, &sr_full);
    CHECK_INT(pl_nn_count(s.store, "edge.*", false), 2006076);
    CHECK_INT(pl_nn_count(s.store, "fusion.*", false), 600);
    CHECK_INT(pl_nn_count(s.store, "struct.*", false), 52494080);
    CHECK_INT(pl_nn_count(s.store, "unet.*.spade.*", false), 53020160);
    CHECK_INT(pl_nn_count(s.store, "unet.*,!*.spade.*", false), 865910724 + 4 * 320 * 9);
    CHECK_INT(pl_nn_count(s.store, NULL, true), 107544276);
    CHECK_OK(shop_close(&s));
}

TEST(nn_counts_fluxflow)
{
    shop s = shop_open();
    flux_generator(s.m, &flux_full);
    CHECK_INT(pl_nn_count(s.store, "compressor.*", false), 12580553);
    CHECK_INT(pl_nn_count(s.store, "expander.*", false), 94073551);
    CHECK_INT(pl_nn_count(s.store, "disc.*", false), 45105473);
    CHECK_INT(pl_nn_count(s.store, "lpips.*", false), 14714688 + 1472);
    CHECK_OK(shop_close(&s));
}

/* ---- R1: a gradient of a gradient ------------------------------------------------------- */
/* A small spectrally normalised network, f64, not training: u and v are constants. */
static pl_val small_judge(pl_nn *m, pl_val x)
{
    pl_nn_conv o = {3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN};
    pl_val h = pl_leaky_relu(m->g, pl_nn_conv2d(m, x, "a", 4, o), 0.2);
    h = pl_leaky_relu(m->g, pl_nn_conv2d(m, h, "b", 4, o), 0.2);
    h = pl_avg_pool(m->g, h, &(pl_pool_opts){.kernel = {2, 2}});
    h = pl_nn_conv2d(m, h, "c", 1, o);
    return pl_mean(m->g, h, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false);
}

static double run_r1(lab *l)
{
    pl_type t;
    double *x = lab_input(l, 0, "x", &t);
    for (int64_t i = 0; i < pl_type_elems(&t); i++) x[i] = peer_noise(peer_hash("x"), i);
    if (lab_run(l, 0) != PL_OK) return (double)NAN;
    return *(const double *)lab_output(l, 0, "r1", NULL);
}

TEST(nn_r1_gradient_is_the_slope_of_r1)
{
    shop s = shop_open();
    s.m->dtype = PL_F64;
    s.m->training = false;
    pl_val x = pl_input(s.g, "x", PL_TYPE(PL_F64, 2, 6, 4, 3));
    pl_val r1 = pl_loss_r1(s.g, small_judge(s.m, x), x), w[3], grad[3];
    static const char *const names[3] = {"a.weight", "b.weight", "c.weight"};
    int slot[3];
    for (int i = 0; i < 3; i++) w[i] = pl_nn_read(s.m, slot[i] = pl_store_find(s.store, names[i]));
    pl_grad(s.g, r1, w, 3, grad);
    pl_output(s.g, "r1", r1);
    for (int i = 0; i < 3; i++) pl_output(s.g, pl_nn_name(s.m, "grad%d", i), grad[i]);
    CHECK_OK(pl_nn_finish(s.m));
    pl_nn_free(s.m);
    lab *l = lab_new(s.store);
    lab_add(l, s.g);
    CHECK_OK(lab_open(l));
    for (int i = 0; i < pl_store_count(s.store); i++) {
        const pl_slot *k = pl_store_slot(s.store, i);
        double *v = lab_slot(l, i);
        for (int64_t j = 0; j < pl_type_elems(&k->type); j++)
            v[j] = 0.5 * peer_noise(peer_hash(k->name), j);
    }
    for (int i = 0; i < 3; i++) {
        /* along one direction through every element */
        double *v = lab_slot(l, slot[i]), h = 1e-6, along = 0, r[2];
        int64_t n = pl_type_elems(&pl_store_slot(s.store, slot[i])->type);
        char name[16];
        snprintf(name, sizeof name, "grad%d", i);
        CHECK(isfinite(run_r1(l)) != 0);
        const double *got = lab_output(l, 0, name, NULL);
        for (int64_t j = 0; j < n; j++) along += got[j] * peer_noise(peer_hash("d"), j);
        for (int k = 0; k < 2; k++) {
            for (int64_t j = 0; j < n; j++)
                v[j] += (k ? -2 : 1) * h * peer_noise(peer_hash("d"), j);
            r[k] = run_r1(l);
        }
        for (int64_t j = 0; j < n; j++) v[j] += h * peer_noise(peer_hash("d"), j);
        CHECK(fabs(along) > 1e-6);
        CHECK_NEAR((r[0] - r[1]) / (2 * h), along, 1e-6 * fabs(along) + 1e-9);
    }
    lab_free(l);
    pl_store_free(s.store);
}
