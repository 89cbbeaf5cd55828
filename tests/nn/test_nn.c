/* test_nn.c - layers and losses against PyTorch's numbers, initial values, names, sizes of models.
 *
 * tests/data/layers.json is written by tools/oracle/layer_numbers.py: for each case the summaries
 * of output, gradients and state. The state of a case is a PyTorch state_dict: every name must be a
 * slot with that file shape, and there must be no other.
 */
#include "base/sys.h"
#include "rt/rt_int.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "tests/workloads/workloads.h"

#include <string.h>

/* ---- the cases -------------------------------------------------------------------------- */
typedef pl_val layer_fn(pl_nn *m, pl_val x, pl_val y);
/* Which keys a query sees, as in layer_numbers.py. */
static pl_val seen(pl_graph *g, int64_t n, int64_t keys)
{
    pl_type t = PL_TYPE(PL_I32, n, keys);
    pl_val i = pl_add(g, pl_scale(g, pl_iota(g, t, 0), 3), pl_iota(g, t, 1));
    return pl_ne(g, pl_mod(g, i, pl_full_like(g, i, 4)), pl_full_like(g, i, 1));
}

/* Scores fall with the distance. */
static pl_val nearer(pl_graph *g, int64_t n)
{
    pl_type t = PL_TYPE(PL_F32, n, n);
    return pl_scale(g, pl_abs(g, pl_sub(g, pl_iota(g, t, 0), pl_iota(g, t, 1))), -0.3);
}

/* Weights of four classes: 0.5, 1.5, 2.5, 3.5. */
static pl_val halves(pl_graph *g)
{
    return pl_shift(g, pl_iota(g, PL_TYPE(PL_F32, 4), 0), 0.5);
}

#define LAYER(name, expr)                                                                          \
 static pl_val layer_##name(pl_nn *m, pl_val x, pl_val y)                                          \
 {                                                                                                 \
  pl_graph *g = m->g;                                                                              \
  (void)g, (void)y;                                                                                \
  return (expr);                                                                                   \
 }

static const pl_nn_lin lin;
static const pl_nn_norm norm;

/* Applies the layer to n parts of the batch, one after another. */
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

/* A constant with the numbers of Python's make(label). */
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
LAYER(attention_causal,
      pl_nn_multi_head_attention_with(
          m, x, x, "attn", (pl_nn_attention){.heads = 2, .causal = true, .no_bias = true}))
LAYER(attention_seen,
      pl_nn_multi_head_attention_with(m, x, y, "attn",
                                      (pl_nn_attention){.heads = 2, .mask = seen(g, 5, 3)}))
LAYER(attention_seen_causal,
      pl_nn_multi_head_attention_with(
          m, x, x, "attn", (pl_nn_attention){.heads = 2, .mask = seen(g, 5, 5), .causal = true}))
LAYER(attention_added,
      pl_nn_multi_head_attention_with(m, x, x, "attn",
                                      (pl_nn_attention){.heads = 2, .mask = nearer(g, 5)}))
LAYER(attention_grouped,
      pl_nn_grouped_query_attention(
          m, x, x, "attn",
          (pl_nn_attention){.heads = 4,
                            .kv_heads = 2,
                            .causal = true,
                            .no_bias = true,
                            .half_split = true,
                            .angles = pl_nn_rope_angles(g, PL_F32, 1, (const int64_t[]){5},
                                                        (const int64_t[]){4}, 100)}))
LAYER(swiglu, pl_nn_swiglu(m, x, "mlp", 10))
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
/* row 4 has the label that is ignored */
LAYER(cross_entropy_with,
      pl_loss_cross_entropy_with(g, x, ints(g, 5, 1, 5), (pl_cross_entropy){0.1, 4}))
LAYER(cross_entropy_weights,
      pl_loss_cross_entropy_with(g, x, ints(g, 5, 1, 4),
                                 (pl_cross_entropy){.ignore_zero = true, .weight = halves(g)}))
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
    ROW(attention_causal),
    ROW(attention_seen),
    ROW(attention_seen_causal),
    ROW(attention_added),
    ROW(attention_grouped),
    ROW(swiglu),
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
    ROW(cross_entropy_with),
    ROW(cross_entropy_weights),
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

/* Deviation of an output or a slot, with its elements in the given order. */
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

/* The slots of the model equal the state_dict: names and file shapes. */
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

/* ---- grouped-query heads ------------------------------------------------------------------ */
/* Keys and values of 3 heads serve 12 heads of queries. A tensor with a copy of them for every head
 * of the queries would have these elements, which no other tensor has. */
enum { BATCH = 2, QUERIES = 8, KEYS = 24, HEADS = 12, KV_HEADS = 3, SIZE = 16 };
static const int64_t REPEATED = BATCH * KEYS * HEADS * SIZE;

static void check_repeated(const char *device, bool masked)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val in[3] = {pl_input(g, "q", PL_TYPE(PL_F32, BATCH, QUERIES, HEADS * SIZE)),
                    pl_input(g, "k", PL_TYPE(PL_F32, BATCH, KEYS, KV_HEADS * SIZE)),
                    pl_input(g, "v", PL_TYPE(PL_F32, BATCH, KEYS, KV_HEADS * SIZE))};
    pl_val gin[3], y;
    pl_nn_attention o = {.heads = HEADS, .kv_heads = KV_HEADS};
    pl_compile_opts how = PL_COMPILE_INIT;
    pl_program *p;
    int found = 0;
    if (masked) o.mask = seen(g, QUERIES, KEYS);
    y = pl_nn_attend_with(g, in[0], in[1], in[2], o);
    pl_grad(g, pl_sum(g, pl_square(g, y), PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2), false), in, 3, gin);
    for (int i = 0; i < 3; i++) pl_output(g, (const char *[]){"dq", "dk", "dv"}[i], gin[i]);
    how.device = device;
    CHECK_OK(pl_compile(g, &how, &p));
    for (uint32_t v = 1; v < p->base_graph->n_vals; v++)
        found += pl_type_elems(pl_type_of(p->base_graph, v)) == REPEATED;
    pl_program_free(p);
    pl_store_free(store);
    CHECK_INT(found, 0);
}

TEST(nn_grouped_query_heads_are_not_repeated)
{
    check_repeated("cpu", false);
    check_repeated("h200", false);
    check_repeated("cpu", true);
    check_repeated("h200", true);
}
