/* nets.c - networks for measuring (bench/cuda.py), as a user would write them. Built into
 * pl_nets.so; bench/peers/own.py has the same in PyTorch.
 *
 *   llama   tokens [B,T]: RMSNorm, grouped-query attention with rotary positions, SwiGLU; no biases
 *   dit     patches of latents [B,256,16], a time and a class: blocks whose norms are scaled,
 *           shifted and gated by the condition (adaLN-Zero, Peebles and Xie 2023); predicts noise
 */
#include <plimsoll_recipe.h>

#include <string.h>

static const pl_config_entry schema[] = {
    {"net", PL_CONFIG_CHOICE, "llama", .choices = "llama|dit", .doc = "Which network."},
    {"model.width", PL_CONFIG_INT, "1024", .min = 8, .max = 65536, .doc = "Width."},
    {"model.layers", PL_CONFIG_INT, "12", .min = 1, .max = 1024, .doc = "Blocks."},
    {"model.heads", PL_CONFIG_INT, "16", .min = 1, .max = 1024, .doc = "Heads of queries."},
    {"model.kv_heads", PL_CONFIG_INT, "4", .min = 1, .max = 1024, .doc = "Heads of keys (llama)."},
    {"model.hidden", PL_CONFIG_INT, "2816", .min = 8, .max = 1e6, .doc = "Width inside SwiGLU."},
    {"model.vocabulary", PL_CONFIG_INT, "32000", .min = 2, .max = 1e7, .doc = "Tokens; classes."},
    {"context", PL_CONFIG_INT, "1024", .min = 1, .max = 1e6, .doc = "Positions."},
    {"data.samples", PL_CONFIG_INT, "4096", .min = 1, .max = 1e9, .doc = "Training samples."},
    {"data.eval_samples", PL_CONFIG_INT, "64", .min = 1, .max = 1e9, .doc = "Evaluation samples."},
    {0},
};

typedef struct sizes {
    int64_t width, layers, heads, kv_heads, hidden, vocabulary, context;
} sizes;

static sizes sizes_of(const pl_config *c)
{
    return (sizes){pl_config_int(c, "model.width"),  pl_config_int(c, "model.layers"),
                   pl_config_int(c, "model.heads"),  pl_config_int(c, "model.kv_heads"),
                   pl_config_int(c, "model.hidden"), pl_config_int(c, "model.vocabulary"),
                   pl_config_int(c, "context")};
}

static pl_val llama(pl_nn *m, const sizes *s, int64_t batch)
{
    pl_graph *g = m->g;
    pl_val tokens = pl_input(g, "tokens", PL_TYPE(PL_I32, batch, s->context));
    pl_val target = pl_input(g, "target", PL_TYPE(PL_I32, batch, s->context));
    int64_t d = s->width / s->heads;
    pl_val x = pl_nn_embedding(m, tokens, "embed", s->vocabulary, s->width);
    pl_val angles = pl_nn_rope_angles(g, PL_F32, 1, &s->context, &d, 10000);
    for (int i = 0; i < s->layers; i++) {
        pl_nn_push(m, "layers.%d", i);
        pl_scope_checkpoint(g);
        pl_val h = pl_nn_rms_norm(m, x, "norm1", (pl_nn_norm){0});
        h = pl_nn_grouped_query_attention(m, h, h, "attn",
                                          (pl_nn_attention){.heads = (int)s->heads,
                                                            .kv_heads = (int)s->kv_heads,
                                                            .causal = true,
                                                            .angles = angles,
                                                            .half_split = true,
                                                            .no_bias = true});
        x = pl_add(g, x, h);
        h = pl_nn_rms_norm(m, x, "norm2", (pl_nn_norm){0});
        x = pl_add(g, x, pl_nn_swiglu(m, h, "mlp", s->hidden));
        pl_nn_pop(m);
    }
    x = pl_nn_rms_norm(m, x, "norm", (pl_nn_norm){0});
    x = pl_nn_linear(m, x, "head", s->vocabulary, (pl_nn_lin){.no_bias = true});
    return pl_loss_cross_entropy(g, x, target);
}

enum { PATCH = 16 }; /* numbers of a patch of 2 x 2 x 4 */

static pl_val dit_block(pl_nn *m, pl_val x, pl_val condition, const sizes *s)
{
    pl_graph *g = m->g;
    const pl_nn_norm plain = {.eps = 1e-6, .no_affine = true};
    pl_val part[6];
    pl_type t = pl_val_type(g, x);
    pl_split(g, pl_nn_linear(m, condition, "ada", 6 * s->width, (pl_nn_lin){0}), 1, 6, part);
    pl_val h = pl_nn_modulate(g, pl_nn_layer_norm(m, x, "norm1", plain), part[1], part[0]);
    h = pl_nn_multi_head_attention(m, h, h, "attn", (int)s->heads);
    h = pl_mul(g, h, pl_reshape(g, part[2], PL_DIMS(t.dim[0], 1, s->width)));
    x = pl_add(g, x, h);
    h = pl_nn_modulate(g, pl_nn_layer_norm(m, x, "norm2", plain), part[4], part[3]);
    h = pl_gelu_tanh(g, pl_nn_linear(m, h, "mlp.0", 4 * s->width, (pl_nn_lin){0}));
    h = pl_nn_linear(m, h, "mlp.2", s->width, (pl_nn_lin){0});
    h = pl_mul(g, h, pl_reshape(g, part[5], PL_DIMS(t.dim[0], 1, s->width)));
    return pl_add(g, x, h);
}

static pl_val dit(pl_nn *m, const sizes *s, int64_t batch)
{
    pl_graph *g = m->g;
    pl_type patches = PL_TYPE(PL_F32, batch, s->context, PATCH);
    pl_val x = pl_input(g, "noisy", patches), noise = pl_input(g, "noise", patches);
    pl_val time = pl_input(g, "time", PL_TYPE(PL_F32, batch));
    pl_val label = pl_input(g, "label", PL_TYPE(PL_I32, batch));
    pl_val c = pl_nn_time_features(g, time, 256, (pl_nn_sinusoid){0});
    c = pl_silu(g, pl_nn_linear(m, c, "time.0", s->width, (pl_nn_lin){0}));
    c = pl_nn_linear(m, c, "time.2", s->width, (pl_nn_lin){0});
    c = pl_silu(g, pl_add(g, c, pl_nn_embedding(m, label, "class", s->vocabulary, s->width)));
    x = pl_nn_linear(m, x, "patch", s->width, (pl_nn_lin){0});
    x = pl_add(g, x, pl_nn_param(m, "place", PL_DIMS(s->context, s->width), pl_nn_normal(0, 0.02)));
    for (int i = 0; i < s->layers; i++) {
        pl_nn_push(m, "blocks.%d", i);
        pl_scope_checkpoint(g);
        x = dit_block(m, x, c, s);
        pl_nn_pop(m);
    }
    pl_val part[2];
    pl_split(g, pl_nn_linear(m, c, "ada", 2 * s->width, (pl_nn_lin){0}), 1, 2, part);
    x = pl_nn_layer_norm(m, x, "norm", (pl_nn_norm){.eps = 1e-6, .no_affine = true});
    x = pl_nn_linear(m, pl_nn_modulate(g, x, part[1], part[0]), "out", PATCH, (pl_nn_lin){0});
    return pl_loss_mse(g, x, noise);
}

static pl_val network(pl_builder *b, pl_nn *m)
{
    const pl_config *c = pl_builder_config(b);
    sizes s = sizes_of(c);
    int64_t batch = pl_builder_batch(b);
    bool is_dit = strcmp(pl_config_text(c, "net"), "dit") == 0;
    return is_dit ? dit(m, &s, batch) : llama(m, &s, batch);
}

static pl_status build(pl_builder *b)
{
    pl_nn *eval = pl_builder_eval(b);
    pl_builder_minimise(b, network(b, pl_builder_train(b)));
    pl_output(eval->g, "loss", network(b, eval));
    return PL_OK;
}

static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    static const char *const whole[] = {"tokens", "target", "label"};
    static const char *const real[] = {"noisy", "noise", "time"};
    const double most = (double)pl_config_int(data, "model.vocabulary");
    for (int k = 0; k < 3; k++) {
        pl_type t;
        int32_t *ids = pl_batch_input(batch, whole[k], &t);
        for (int64_t i = 0, row = ids ? pl_type_elems(&t) / t.dim[0] : 0; i < n * row; i++)
            ids[i] = (int32_t)(most * pl_sample_uniform(
                                          pl_sample_seed(7 + (uint64_t)k, subset, sample[i / row]),
                                          (uint64_t)(i % row)));
        float *x = pl_batch_input(batch, real[k], &t);
        for (int64_t i = 0, row = x ? pl_type_elems(&t) / t.dim[0] : 0; i < n * row; i++)
            x[i] = (float)pl_sample_normal(
                pl_sample_seed(17 + (uint64_t)k, subset, sample[i / row]), (uint64_t)(i % row));
    }
    return PL_OK;
}

static const pl_preset presets[] = {
    {"llama", "180 million weights, 16 sequences of 1024",
     "batch: 16\n"
     "precision: bf16\n"
     "optim: {name: adamw, lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1}\n"
     "clip: {norm: 1}\n"},
    {"dit", "DiT-B/2 on latents of 32 x 32, 128 of them",
     "net: dit\n"
     "batch: 128\n"
     "precision: bf16\n"
     "context: 256\n"
     "model: {width: 768, heads: 12, vocabulary: 1000}\n"
     "optim: {name: adamw, lr: 1e-4, weight_decay: 0}\n"},
    {"tiny", "for tests without a GPU",
     "batch: 2\n"
     "context: 16\n"
     "model: {width: 32, heads: 4, kv_heads: 2, layers: 2, hidden: 64, vocabulary: 50}\n"
     "optim: {name: adamw, lr: 1e-3}\n"
     "clip: {norm: 1}\n"},
    {NULL, NULL, NULL},
};

static const pl_recipe recipe = {
    .abi = PL_RECIPE_ABI,
    .name = "nets",
    .about = "networks for measuring",
    .schema = schema,
    .presets = presets,
    .build = build,
    .data_read = data_read,
};

PL_API const pl_recipe *pl_recipe_entry(void);
const pl_recipe *pl_recipe_entry(void)
{
    return &recipe;
}
