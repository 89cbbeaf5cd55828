/* stablesr.c - edge-guided super-resolution: SPADE layers and side networks trained through a
 * frozen diffusion U-Net. */
#include "workloads.h"

#define EDGE_FULL                                                                              \
 .batch = 2, .accumulate = 6, .image = 512, .latent = 64,                                      \
 .before = {1024, 1024, 1024, 1024, 1024}, .before_down = {512, 256, 64, 16, 4}, .stem = 64,   \
 .after = {256, 256, 256}, .after_down = {128, 64, 16, 4}, .lr = 5e-5
#define EDGE_TINY                                                                              \
 .batch = 2, .accumulate = 2, .image = 64, .latent = 8, .before = {8, 8, 8, 8, 8},             \
 .before_down = {8, 8, 8, 4, 4}, .stem = 8, .after = {16, 16, 16}, .after_down = {8, 8, 4, 4}, \
 .lr = 5e-5

const sr_config sr_full = {EDGE_FULL,
                           .width = 320,
                           .mult = {1, 2, 4, 4},
                           .levels = 4,
                           .attn_levels = 3,
                           .head_dim = 64,
                           .context = {77, 1024},
                           .struct_width = 256,
                           .struct_mult = {1, 1, 2, 2},
                           .struct_levels = 4,
                           .struct_out = 256,
                           .struct_heads = 4,
                           .spade_hidden = 128};
const sr_config sr_tiny = {EDGE_TINY,          .width = 32,        .mult = {1, 2},
                           .levels = 2,        .attn_levels = 1,   .head_dim = 16,
                           .context = {7, 16}, .struct_width = 32, .struct_mult = {1, 2},
                           .struct_levels = 2, .struct_out = 32,   .struct_heads = 2,
                           .spade_hidden = 16};
const sr_config sr_edge_before_full = {EDGE_FULL, .edge_before = true};
const sr_config sr_edge_before_tiny = {EDGE_TINY, .edge_before = true};
const sr_config sr_edge_after_tiny = {EDGE_TINY};

static const pl_nn_norm plain;
static const pl_nn_lin biased, unbiased = {.no_bias = true};

/* ---- edge processor --------------------------------------------------------------------- */
/* Convolution, BatchNorm, ReLU for each width; *index numbers the layers of a Sequential. */
static pl_val conv_stage(pl_nn *m, pl_val x, const char *name, int *index, const int64_t *width,
                         int n, pl_nn_conv o, bool last_relu)
{
    for (int i = 0; i < n; i++) {
        x = pl_nn_conv2d(m, x, pl_nn_name(m, "%s.%d", name, *index), width[i], o);
        x = pl_nn_batch_norm(m, x, pl_nn_name(m, "%s.%d", name, *index + 1), plain);
        if (last_relu || i + 1 < n) x = pl_relu(m->g, x);
        *index += 3;
    }
    return x;
}

pl_val sr_edge(pl_nn *m, const sr_config *c, pl_val x)
{
    pl_nn_conv down = {.kernel = 4, .stride = 2, .pad = 1};
    int at = 0, at2 = 0;
    pl_nn_push(m, "edge");
    if (c->edge_before) {
        x = conv_stage(m, x, "first", &at, c->before, 5, work_conv3(), true);
        x = conv_stage(m, x, "second", &at2, c->before_down, 5, down, false);
    } else {
        x = conv_stage(m, x, "first", &at, &c->stem, 1, down, true);
        x = conv_stage(m, x, "first", &at, c->after, 3, work_conv3(), true);
        x = conv_stage(m, x, "second", &at2, c->after_down, 4, down, false);
        x = pl_adaptive_avg_pool(m->g, x, (const int64_t[]){c->latent, c->latent});
    }
    pl_nn_pop(m);
    return x;
}

/* ---- blocks ----------------------------------------------------------------------------- */
static pl_val channels_in(pl_nn *m, pl_val x, int64_t *c)
{
    pl_type t = pl_val_type(m->g, x);
    *c = t.rank ? t.dim[t.rank - 1] : 0;
    return x;
}

static pl_val spade(pl_nn *m, const sr_config *c, pl_val h, pl_val map)
{
    int64_t w;
    channels_in(m, h, &w);
    pl_nn_push(m, "spade");
    pl_val a = pl_relu(m->g, pl_nn_conv2d(m, map, "shared", c->spade_hidden, work_conv3()));
    pl_val gamma = pl_nn_conv2d(m, a, "gamma", w, work_conv3());
    pl_val beta = pl_nn_conv2d(m, a, "beta", w, work_conv3());
    h = pl_nn_modulate(m->g, pl_nn_group_norm(m, h, "norm", 32, plain), gamma, beta);
    pl_nn_pop(m);
    return h;
}

/* map: the structure map of h's size, or none in the structure encoder. */
static pl_val res_block(pl_nn *m, const sr_config *c, pl_val x, pl_val emb, pl_val map,
                        int64_t out, const char *name)
{
    pl_graph *g = m->g;
    int64_t in;
    channels_in(m, x, &in);
    pl_nn_push(m, "%s", name);
    pl_val h = pl_silu(g, pl_nn_group_norm(m, x, "norm1", 32, plain));
    h = pl_nn_conv2d(m, h, "conv1", out, work_conv3());
    h = pl_add(g, h, pl_nn_over(g, pl_nn_linear(m, pl_silu(g, emb), "emb", out, biased), h));
    h = pl_silu(g, pl_nn_group_norm(m, h, "norm2", 32, plain));
    h = pl_nn_conv2d(m, h, "conv2", out, work_conv3());
    if (pl_val_ok(map)) h = spade(m, c, h, map);
    if (in != out) x = work_conv1(m, x, "skip", out);
    pl_nn_pop(m);
    return pl_add(g, x, h);
}

static pl_val attention(pl_nn *m, const sr_config *c, pl_val x, pl_val source, const char *name)
{
    int64_t w;
    channels_in(m, x, &w);
    pl_nn_push(m, "%s", name);
    pl_val q = pl_nn_linear(m, x, "q", w, unbiased);
    pl_val k = pl_nn_linear(m, source, "k", w, unbiased);
    pl_val v = pl_nn_linear(m, source, "v", w, unbiased);
    pl_val y = pl_nn_attend(m->g, q, k, v, (int)w / c->head_dim);
    y = pl_nn_linear(m, y, "out", w, biased);
    pl_nn_pop(m);
    return y;
}

static pl_val transformer(pl_nn *m, const sr_config *c, pl_val x, pl_val context)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t w = t.dim[3];
    pl_nn_push(m, "attn");
    pl_val y = pl_nn_group_norm(m, x, "norm", 32, (pl_nn_norm){.eps = 1e-6});
    y = pl_nn_linear(m, pl_reshape(g, y, PL_DIMS(t.dim[0], -1, w)), "inp", w, biased);
    pl_nn_push(m, "block");
    pl_val h = pl_nn_layer_norm(m, y, "norm1", plain);
    y = pl_add(g, y, attention(m, c, h, h, "self_attn"));
    y = pl_add(g, y,
               attention(m, c, pl_nn_layer_norm(m, y, "norm2", plain), context, "cross_attn"));
    h = pl_nn_geglu(m, pl_nn_layer_norm(m, y, "norm3", plain), "gate", 4 * w);
    y = pl_add(g, y, pl_nn_linear(m, h, "shrink", w, biased));
    pl_nn_pop(m);
    y = pl_nn_linear(m, y, "out", w, biased);
    pl_nn_pop(m);
    return pl_add(g, x, pl_reshape(g, y, t.rank, t.dim));
}

static pl_val time_embedding(pl_nn *m, pl_val t, int64_t width)
{
    pl_val e = pl_nn_time_features(m->g, t, width, (pl_nn_sinusoid){0});
    e = pl_silu(m->g, pl_nn_linear(m, e, "time.0", 4 * width, biased));
    return pl_nn_linear(m, e, "time.2", 4 * width, biased);
}

/* ---- U-Net ------------------------------------------------------------------------------ */
typedef struct unet {
    pl_nn *m;
    const sr_config *c;
    pl_val emb, context;
    const pl_val *maps;
} unet;

/* One entry of the skip chain without resampling: residual block, then a transformer. */
static pl_val unet_layer(const unet *u, pl_val h, int level, int64_t out, bool attends)
{
    h = res_block(u->m, u->c, h, u->emb, u->maps[level], out, "res");
    return attends ? transformer(u->m, u->c, h, u->context) : h;
}

pl_val sr_unet(pl_nn *m, const sr_config *c, pl_val x, pl_val t, pl_val context,
               const pl_val *struct_map)
{
    pl_graph *g = m->g;
    pl_nn_conv inp = work_conv3();
    inp.init = pl_nn_normal(0, 0.02);
    pl_nn_push(m, "unet");
    unet u = {m, c, time_embedding(m, t, c->width), context, struct_map};
    pl_val h = pl_nn_conv2d(m, x, "inp", c->width, inp), skips[16];
    int n = 0, top = c->levels - 1;
    skips[n++] = h;
    for (int level = 0; level <= top; level++) {
        for (int i = 0; i < 3; i++) {
            if (i == 2 && level == top) break;
            pl_nn_push(m, "down.%d", n - 1);
            if (i < 2)
                h = unet_layer(&u, h, level, c->mult[level] * c->width, level < c->attn_levels);
            else
                h = pl_nn_conv2d(m, h, "resample", c->mult[level] * c->width,
                                 work_conv3_down());
            pl_nn_pop(m);
            skips[n++] = h;
        }
    }
    for (int i = 0; i < 2; i++) {
        pl_nn_push(m, "middle.%d", i);
        h = unet_layer(&u, h, top, c->mult[top] * c->width, i == 0 && c->attn_levels > 0);
        pl_nn_pop(m);
    }
    int up = 0;
    for (int level = top; level >= 0; level--) {
        int64_t w = c->mult[level] * c->width;
        for (int i = 0; i < 3; i++) {
            pl_nn_push(m, "up.%d", up++);
            h = pl_concat(g, 2, (pl_val[]){h, skips[--n]}, 3);
            h = unet_layer(&u, h, level, w, level < c->attn_levels);
            if (level && i == 2)
                h = pl_nn_conv2d(m, pl_nn_upsample_nearest(g, h, 2), "resample.conv", w,
                                 work_conv3());
            pl_nn_pop(m);
        }
    }
    h = pl_silu(g, pl_nn_group_norm(m, h, "out.0", 32, plain));
    h = pl_nn_conv2d(m, h, "out.2", 4, work_conv3());
    pl_nn_pop(m);
    return h;
}

/* ---- structure encoder ------------------------------------------------------------------ */
/* The qkv channels are ordered head by head, q, k, v within a head. */
static pl_val self_attention(pl_nn *m, const sr_config *c, pl_val x, const char *name)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t b = t.dim[0], n = t.dim[1] * t.dim[2], w = t.dim[3];
    pl_nn_push(m, "%s", name);
    pl_val y = pl_reshape(g, pl_nn_group_norm(m, x, "norm", 32, plain), PL_DIMS(b, n, w));
    y = pl_nn_linear(m, y, "qkv", 3 * w, biased);
    y = pl_reshape(g, y, PL_DIMS(b, n, c->struct_heads, 3, -1));
    pl_val part[3];
    pl_split(g, y, 3, 3, part);
    for (int i = 0; i < 3; i++) part[i] = pl_squeeze(g, part[i], 3);
    y = pl_reshape(g, pl_attention(g, part[0], part[1], part[2], 0, false), PL_DIMS(b, n, w));
    y = pl_reshape(g, pl_nn_linear(m, y, "out", w, biased), t.rank, t.dim);
    pl_nn_pop(m);
    return pl_add(g, x, y);
}

void sr_struct_encoder(pl_nn *m, const sr_config *c, pl_val z, pl_val t, pl_val *maps)
{
    int top = c->struct_levels - 1;
    pl_nn_push(m, "struct");
    pl_val emb = time_embedding(m, t, c->struct_width);
    pl_val h = pl_nn_conv2d(m, z, "inp", c->struct_width, work_conv3());
    for (int level = 0; level <= top; level++) {
        int64_t w = c->struct_mult[level] * c->struct_width;
        pl_nn_push(m, "levels.%d", level);
        for (int i = 0; i < 2; i++) {
            h = res_block(m, c, h, emb, PL_NO_VAL, w, pl_nn_name(m, "%d", 2 * i));
            if (level < c->attn_levels)
                h = self_attention(m, c, h, pl_nn_name(m, "%d", 2 * i + 1));
        }
        if (level == top) {
            h = res_block(m, c, h, emb, PL_NO_VAL, w, "4");
            h = self_attention(m, c, h, "5");
            h = res_block(m, c, h, emb, PL_NO_VAL, w, "6");
        }
        pl_nn_pop(m);
        maps[level] =
            res_block(m, c, h, emb, PL_NO_VAL, c->struct_out, pl_nn_name(m, "outs.%d", level));
        if (level < top)
            h = pl_nn_conv2d(m, h, pl_nn_name(m, "downs.%d", level), w, work_conv3_down());
    }
    pl_nn_pop(m);
}

/* ---- training steps --------------------------------------------------------------------- */
static pl_optim optimiser(const sr_config *c)
{
    pl_optim o = PL_OPTIM_INIT;
    o.lr.lr = c->lr;
    return o;
}

void sr_edge_step(pl_nn *m, const void *config)
{
    const sr_config *c = config;
    int64_t side = c->edge_before ? c->image / 32 : c->latent;
    pl_val edge = pl_input(m->g, "edge", PL_TYPE(PL_F32, c->batch, c->image, c->image, 3));
    pl_val target = pl_input(m->g, "target", PL_TYPE(PL_F32, c->batch, side, side, 4));
    pl_val loss = pl_loss_mse(m->g, sr_edge(m, c, edge), target);
    pl_output(m->g, "loss", loss);
    pl_optim o = optimiser(c);
    work_minimise(m, loss, &o);
}

/* sqrt(a_t) and sqrt(1-a_t) for every t, a = cumulative product of 1-beta, in f64. */
static void noise_tables(pl_graph *g, pl_val *signal, pl_val *noise)
{
    pl_val beta = pl_square(
        g, pl_nn_linspace(g, PL_F64, 0.029154759474226504, 0.10954451150103323, 1000));
    pl_val keep = pl_exp(g, pl_cumsum(g, pl_log(g, pl_shift(g, pl_neg(g, beta), 1)), 0, false));
    *signal = pl_cast(g, pl_sqrt(g, keep), PL_F32);
    *noise = pl_cast(g, pl_sqrt(g, pl_shift(g, pl_neg(g, keep), 1)), PL_F32);
}

/* Mean squared error of the predicted noise of one micro-batch; inputs "micro<i>.<name>". */
static pl_val micro_loss(pl_nn *m, const sr_config *c, int i)
{
    pl_graph *g = m->g;
    int64_t b = c->batch;
    pl_type latent = PL_TYPE(PL_F32, b, c->latent, c->latent, 4);
    pl_val z = pl_input(g, pl_nn_name(m, "micro%d.z_gt", i), latent);
    pl_val lq = pl_input(g, pl_nn_name(m, "micro%d.z_lq", i), latent);
    pl_val eps = pl_input(g, pl_nn_name(m, "micro%d.eps", i), latent);
    pl_val t = pl_input(g, pl_nn_name(m, "micro%d.t", i), PL_TYPE(PL_I64, b));
    pl_val context = pl_input(g, pl_nn_name(m, "micro%d.context", i),
                              PL_TYPE(PL_F32, b, c->context[0], c->context[1]));
    pl_val edge = pl_input(g, pl_nn_name(m, "micro%d.edge", i),
                           PL_TYPE(PL_F32, b, c->image, c->image, 3));
    pl_val signal, noise, maps[4];
    noise_tables(g, &signal, &noise);
    signal = pl_reshape(g, pl_take(g, signal, t), PL_DIMS(b, 1, 1, 1));
    noise = pl_reshape(g, pl_take(g, noise, t), PL_DIMS(b, 1, 1, 1));
    pl_val x_t = pl_add(g, pl_mul(g, signal, z), pl_mul(g, noise, eps));

    pl_val x = pl_concat(g, 2, (pl_val[]){x_t, sr_edge(m, c, edge)}, 3);
    x = pl_nn_conv2d(m, x, "fusion.0", 8, work_conv3());
    x = pl_relu(g, pl_nn_batch_norm(m, x, "fusion.1", plain));
    sr_struct_encoder(m, c, lq, t, maps);
    return pl_loss_mse(g, sr_unet(m, c, x, t, context, maps), eps);
}

void sr_step(pl_nn *m, const void *config)
{
    const sr_config *c = config;
    pl_val loss = PL_NO_VAL;
    for (int i = 1; i <= c->accumulate; i++) {
        pl_val part = pl_scale(m->g, micro_loss(m, c, i), 1.0 / c->accumulate);
        loss = i == 1 ? part : pl_add(m->g, loss, part);
    }
    pl_nn_set_trainable(pl_graph_store(m->g), "unet.*,!*.spade.*,!unet.inp.*", false);
    pl_output(m->g, "loss", loss);
    pl_optim o = optimiser(c);
    work_minimise(m, loss, &o);
}
