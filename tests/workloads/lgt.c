/* lgt.c - latent style transfer trained through a differentiated Euler ODE. */
#include "workloads.h"

const lgt_config lgt_full = {.batch = 32,
                             .accumulate = 2,
                             .latent = 32,
                             .base = 128,
                             .cond = 256,
                             .styles = 2,
                             .encoder_blocks = 2,
                             .decoder_blocks = 3,
                             .ode_steps = 10,
                             .projections = 64,
                             .samples = 8192,
                             .positions = 256,
                             .w_style = 1,
                             .w_content = 1,
                             .w_velocity = 0.01,
                             .epsilon = 0.01,
                             .clip = 1,
                             .lr = 1e-4,
                             .weight_decay = 1e-5};
const lgt_config lgt_tiny = {.batch = 2,
                             .accumulate = 2,
                             .latent = 8,
                             .base = 32,
                             .cond = 16,
                             .styles = 2,
                             .encoder_blocks = 1,
                             .decoder_blocks = 1,
                             .ode_steps = 2,
                             .projections = 8,
                             .samples = 64,
                             .positions = 16,
                             .w_style = 1,
                             .w_content = 1,
                             .w_velocity = 0.01,
                             .epsilon = 0.01,
                             .clip = 1,
                             .lr = 1e-4,
                             .weight_decay = 1e-5};

static const pl_nn_norm plain;

static pl_val res_block(pl_nn *m, pl_val x, const char *name)
{
    int64_t c = pl_val_type(m->g, x).dim[3];
    pl_nn_push(m, "%s", name);
    pl_val h = pl_nn_conv2d(m, x, "body.0", c, work_conv3());
    h = pl_silu(m->g, pl_nn_group_norm(m, h, "body.1", 32, plain));
    h = pl_nn_conv2d(m, h, "body.3", c, work_conv3());
    h = pl_nn_group_norm(m, h, "body.4", 32, plain);
    pl_nn_pop(m);
    return pl_silu(m->g, pl_add(m->g, x, h));
}

static pl_val res_blocks(pl_nn *m, pl_val x, const char *name, int n)
{
    for (int i = 0; i < n; i++) x = res_block(m, x, pl_nn_name(m, "%s.%d", name, i));
    return x;
}

/* A 3x3 kernel of its own for every sample and channel: one convolution with B*C groups. */
static pl_val depthwise(pl_graph *g, pl_val x, pl_val kernel)
{
    pl_type t = pl_val_type(g, x);
    int64_t b = t.dim[0], h = t.dim[1], w = t.dim[2], c = t.dim[3];
    pl_val y =
        pl_reshape(g, pl_permute(g, x, (const int[]){1, 2, 0, 3}), PL_DIMS(1, h, w, b * c));
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}, .groups = (int)(b * c)};
    y = pl_conv(g, y, pl_reshape(g, kernel, PL_DIMS(b * c, 3, 3, 1)), PL_NO_VAL, &o);
    return pl_permute(g, pl_reshape(g, y, PL_DIMS(h, w, b, c)), (const int[]){2, 0, 1, 3});
}

static pl_val style_block(pl_nn *m, pl_val x, pl_val cond, const char *name)
{
    int64_t c = pl_val_type(m->g, x).dim[3];
    pl_nn_lin zero = {.init = pl_nn_constant(0), .bias_init = pl_nn_constant(0)};
    pl_nn_push(m, "%s", name);
    pl_val y = depthwise(m->g, x, pl_nn_linear(m, cond, "kernel", 9 * c, zero));
    y = pl_silu(m->g, pl_nn_group_norm(m, y, "norm", 32, plain));
    y = work_conv1(m, y, "mix", c);
    pl_nn_pop(m);
    return pl_silu(m->g, pl_add(m->g, x, y));
}

static pl_val style_blocks(pl_nn *m, pl_val x, pl_val cond, const char *name, int n)
{
    for (int i = 0; i < n; i++) x = style_block(m, x, cond, pl_nn_name(m, "%s.%d", name, i));
    return x;
}

/* (B,cond) from time and style; with `uncond` the whole batch has the average style. */
static pl_val condition(pl_nn *m, const lgt_config *c, pl_val t, pl_val style, pl_val uncond)
{
    pl_graph *g = m->g;
    int64_t d = c->cond;
    pl_val time = pl_nn_time_features(g, t, d, (pl_nn_sinusoid){0});
    time = pl_silu(g, pl_nn_linear(m, time, "time.0", 4 * d, (pl_nn_lin){0}));
    time = pl_nn_linear(m, time, "time.2", d, (pl_nn_lin){0});
    int average = pl_nn_buffer(m, "average_style", PL_TYPE(m->dtype, d), (pl_init){0});
    pl_val rows = pl_nn_embedding(m, style, "style", c->styles, d);
    rows = pl_select(g, uncond, pl_nn_read(m, average), rows);
    pl_val cond = pl_concat(g, 2, (pl_val[]){time, rows}, 1);
    cond = pl_silu(g, pl_nn_linear(m, cond, "fuse.0", 2 * d, (pl_nn_lin){0}));
    return pl_nn_linear(m, cond, "fuse.2", d, (pl_nn_lin){0});
}

pl_val lgt_unet(pl_nn *m, const lgt_config *c, pl_val x, pl_val t, pl_val style, pl_val uncond)
{
    pl_graph *g = m->g;
    int64_t w = c->base;
    pl_nn_conv up = {.kernel = 4, .stride = 2, .pad = 1};
    pl_nn_conv last = work_conv3();
    last.init = last.bias_init = pl_nn_constant(0);
    pl_nn_push(m, "model");
    pl_val cond = condition(m, c, t, style, uncond);
    pl_val h1 = pl_nn_conv2d(m, x, "inp", w, work_conv3());
    h1 = res_blocks(m, h1, "enc1", c->encoder_blocks);
    pl_val h2 = pl_nn_conv2d(m, h1, "down1", 2 * w, work_conv3_down());
    h2 = res_blocks(m, h2, "enc2", c->encoder_blocks);
    pl_val h = pl_nn_conv2d(m, h2, "down2", 4 * w, work_conv3_down());
    h = res_blocks(m, h, "middle", 2);
    h = pl_add(g, pl_nn_conv_transpose2d(m, h, "up2", 2 * w, up), h2);
    h = style_blocks(m, h, cond, "dec2", c->decoder_blocks);
    h = pl_add(g, pl_nn_conv_transpose2d(m, h, "up1", w, up), h1);
    h = style_blocks(m, h, cond, "dec1", c->decoder_blocks);
    h = pl_silu(g, pl_nn_group_norm(m, h, "out.0", 32, plain));
    h = pl_nn_conv2d(m, h, "out.2", 4, last);
    pl_nn_pop(m);
    return h;
}

/* (B) to (B,1,1,1) */
static pl_val wide(pl_graph *g, pl_val t)
{
    return pl_reshape(g, t, PL_DIMS(-1, 1, 1, 1));
}

/* The ODE from (x, t) to the end; regular gets the mean square of the first velocity. */
static pl_val integrate(pl_nn *m, const lgt_config *c, pl_val x, pl_val t, pl_val *regular)
{
    pl_graph *g = m->g;
    pl_val style = pl_input(g, "style", PL_TYPE(PL_I64, c->batch));
    pl_val uncond = pl_input(g, "uncond", PL_TYPE(PL_BOOL, 1));
    pl_val first = lgt_unet(m, c, x, t, style, uncond);
    *regular = pl_mean(g, pl_square(g, first), PL_AXES_ALL, false);
    pl_val left = pl_shift(g, pl_neg(g, t), 1);
    pl_val dt = pl_scale(g, left, 1.0 / c->ode_steps);
    for (int i = 0; i < c->ode_steps; i++) {
        pl_val v = lgt_unet(m, c, x, t, style, uncond);
        if (c->shrinking) dt = pl_scale(g, pl_shift(g, pl_neg(g, t), 1), 1.0 / c->ode_steps);
        x = pl_add(g, x, pl_mul(g, v, wide(g, dt)));
        t = pl_add(g, t, dt);
    }
    return x;
}

static pl_optim optimiser(const lgt_config *c)
{
    pl_optim o = PL_OPTIM_INIT;
    o.lr.lr = c->lr;
    o.weight_decay = c->weight_decay;
    o.clip_norm = c->clip;
    return o;
}

void lgt_micro(pl_nn *m, const void *config)
{
    const lgt_config *c = config;
    pl_graph *g = m->g;
    pl_type image = PL_TYPE(PL_F32, c->batch, c->latent, c->latent, 4);
    pl_val src = pl_input(g, "src", image), ref = pl_input(g, "style_ref", image);
    pl_val x0 = pl_input(g, "x0", image), u = pl_input(g, "u", PL_TYPE(PL_F32, c->batch));
    pl_val rows = pl_input(g, "rows", PL_TYPE(PL_I64, c->samples));
    pl_val directions = pl_input(g, "directions", PL_TYPE(PL_F32, 36, c->projections));
    pl_val positions = pl_input(g, "positions", PL_TYPE(PL_I64, c->positions));

    pl_val t = pl_shift(g, pl_scale(g, u, 1 - c->epsilon), c->epsilon), tw = wide(g, t);
    pl_val x = pl_add(g, pl_mul(g, pl_shift(g, pl_neg(g, tw), 1), x0), pl_mul(g, tw, src));
    pl_val reg, end = integrate(m, c, x, t, &reg);
    pl_val swd = pl_loss_patch_swd(g, end, ref, 3, rows, directions);
    pl_val ssm = pl_loss_cosine_ssm(g, end, src, positions);
    pl_val loss = pl_add(g, pl_scale(g, swd, c->w_style), pl_scale(g, ssm, c->w_content));
    loss = pl_add(g, loss, pl_scale(g, reg, c->w_velocity));

    double part = 1.0 / c->accumulate;
    pl_output(g, "loss", pl_scale(g, loss, part));
    pl_output(g, "swd", pl_scale(g, swd, part));
    pl_output(g, "ssm", pl_scale(g, ssm, part));
    pl_output(g, "velocity", pl_scale(g, reg, part));
    pl_optim o = optimiser(c);
    pl_grads grads;
    pl_optim_gradients(m, pl_scale(g, loss, part), &o, &grads);
    pl_optim_accumulate(m, &grads);
}

void lgt_apply(pl_nn *m, const void *config)
{
    pl_optim o = optimiser(config);
    work_apply(m, &o);
}
