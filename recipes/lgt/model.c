/* model.c - the velocity network of lgt, a U-Net over latents whose decoder is steered by a style.
 *
 *     inp ── enc1 ──┬─ down1 ── enc2 ──┬─ down2 ── middle
 *                   │ (S)              │ (S/2)      │ (S/4)
 *     out ── dec1 ──+── up1 ── dec2 ───+── up2 ─────┘
 *
 * A decoder block mixes each channel over 3x3 positions with a kernel computed from the condition,
 * one for every sample and channel; or (AdaGN) convolves and lets the condition scale the
 * normalised result. The condition comes from time and style. Names are those of the PyTorch
 * program.
 */
#include "lgt.h"

static const pl_nn_norm plain;
static const pl_nn_lin biased;

static pl_nn_conv conv3(int stride)
{
    return (pl_nn_conv){.kernel = 3, .stride = stride, .pad = 1};
}

static pl_nn_lin zero(void)
{
    return (pl_nn_lin){.init = pl_nn_constant(0), .bias_init = pl_nn_constant(0)};
}

static pl_val res_block(pl_nn *m, pl_val x, const char *name)
{
    int64_t c = pl_val_type(m->g, x).dim[3];
    pl_nn_push(m, "%s", name);
    pl_val h = pl_nn_conv2d(m, x, "body.0", c, conv3(1));
    h = pl_silu(m->g, pl_nn_group_norm(m, h, "body.1", 32, plain));
    h = pl_nn_conv2d(m, h, "body.3", c, conv3(1));
    h = pl_nn_group_norm(m, h, "body.4", 32, plain);
    pl_nn_pop(m);
    return pl_silu(m->g, pl_add(m->g, x, h));
}

static pl_val res_blocks(pl_nn *m, pl_val x, const char *name, int n)
{
    for (int i = 0; i < n; i++) x = res_block(m, x, pl_nn_name(m, "%s.%d", name, i));
    return x;
}

/* ---- decoder blocks --------------------------------------------------------------------- */
/* kernel (B,9C) holds channel by channel the 3x3 weights of every sample. */
static pl_val depthwise(pl_graph *g, pl_val x, pl_val kernel)
{
    pl_type t = pl_val_type(g, x);
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    pl_val w = pl_reshape(g, kernel, PL_DIMS(t.dim[0], t.dim[3], 3, 3));
    return pl_conv_per_sample(g, x, pl_permute(g, w, (const int[]){0, 2, 3, 1}), &o);
}

static pl_val dynamic_body(pl_nn *m, pl_val x, pl_val cond, int64_t width)
{
    pl_val y = depthwise(m->g, x, pl_nn_linear(m, cond, "kernel", 9 * width, zero()));
    return pl_nn_group_norm(m, y, "norm", 32, plain);
}

/* Starts as the plain normalisation: scale 1, shift 0. The bias of the layer that gives both is two
 * slots, which start with different values. */
static pl_val adagn_body(pl_nn *m, pl_val x, pl_val cond, int64_t width)
{
    pl_graph *g = m->g;
    pl_val part[2], y = pl_nn_conv2d(m, x, "conv", width, conv3(1));
    y = pl_nn_group_norm(m, y, "norm", 32, (pl_nn_norm){.no_affine = true});
    int64_t hidden = pl_val_type(g, cond).dim[1];
    pl_val s = pl_silu(g, pl_nn_linear(m, cond, "ada.0", hidden, biased));
    pl_nn_lin last = {.no_bias = true, .init = pl_nn_constant(0)};
    pl_split(g, pl_nn_linear(m, s, "ada.2", 2 * width, last), 1, 2, part);
    pl_val scale = pl_nn_param(m, "scale", PL_DIMS(width), pl_nn_constant(1));
    pl_val shift = pl_nn_param(m, "shift", PL_DIMS(width), pl_nn_constant(0));
    return pl_nn_film(g, y, pl_add(g, part[0], pl_cast(g, scale, m->dtype)),
                      pl_add(g, part[1], pl_cast(g, shift, m->dtype)));
}

static pl_val style_blocks(pl_nn *m, const lgt_config *c, pl_val x, pl_val cond, const char *name)
{
    int64_t width = pl_val_type(m->g, x).dim[3];
    for (int i = 0; i < c->decoder_blocks; i++) {
        pl_nn_push(m, "%s.%d", name, i);
        pl_val y = c->adagn ? adagn_body(m, x, cond, width) : dynamic_body(m, x, cond, width);
        y = pl_nn_conv2d(m, pl_silu(m->g, y), "mix", width, (pl_nn_conv){.kernel = 1});
        x = pl_silu(m->g, pl_add(m->g, x, y));
        pl_nn_pop(m);
    }
    return x;
}

/* ---- LGT++ ------------------------------------------------------------------------------ */
static pl_val middle_attention(pl_nn *m, pl_val x)
{
    enum { HEADS = 8 };
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t w = t.dim[3];
    pl_val part[3];
    pl_nn_push(m, "attention");
    pl_val tokens = pl_reshape(g, x, PL_DIMS(t.dim[0], -1, w));
    pl_val h = pl_nn_layer_norm(m, tokens, "norm1", plain);
    pl_split(g, pl_nn_linear(m, h, "qkv", 3 * w, biased), 2, 3, part);
    h = pl_nn_attend(g, part[0], part[1], part[2], HEADS);
    h = pl_add(g, tokens, pl_nn_linear(m, h, "out", w, zero()));
    h = pl_nn_layer_norm(m, h, "norm2", plain);
    pl_nn_pop(m);
    return pl_reshape(g, h, t.rank, t.dim);
}

/* Returns how much of a skip passes, per channel; one half at first. */
static pl_val gated(pl_nn *m, const lgt_config *c, pl_val skip, pl_val cond, const char *name)
{
    if (!c->plus) return skip;
    pl_graph *g = m->g;
    int64_t w = pl_val_type(g, skip).dim[3];
    pl_nn_push(m, "%s", name);
    pl_val s = pl_silu(g, pl_nn_linear(m, cond, "0", c->cond, biased));
    s = pl_sigmoid(g, pl_nn_linear(m, s, "2", w, zero()));
    pl_nn_pop(m);
    return pl_mul(g, skip, pl_nn_over(g, s, skip));
}

/* ---- the network ------------------------------------------------------------------------ */
static pl_val all_styles(pl_nn *m, const lgt_config *c)
{
    pl_val ids = pl_iota(m->g, PL_TYPE(PL_I32, c->styles), 0);
    return pl_nn_embedding(m, ids, "style", c->styles, c->cond);
}

/* (cond) */
static pl_val average_style(pl_nn *m, const lgt_config *c, pl_val first)
{
    pl_graph *g = m->g;
    if (c->average == LGT_AVERAGE_LEARNED)
        return pl_nn_param(m, "average", PL_DIMS(c->cond), pl_nn_constant(0));
    if (c->average == LGT_AVERAGE_CURRENT) return pl_mean(g, all_styles(m, c), PL_AXIS(0), false);
    int slot = pl_nn_buffer(m, "average_style", PL_TYPE(m->dtype, c->cond), (pl_init){0});
    pl_val held = pl_nn_read(m, slot);
    if (!pl_val_ok(first)) return held;
    pl_val now = pl_mean(g, pl_stop_gradient(g, all_styles(m, c)), PL_AXIS(0), false);
    /* If the weight file has an average, the average is kept. */
    pl_val size = pl_sum(g, pl_abs(g, held), PL_AXES_ALL, false);
    now = pl_select(g, pl_eq(g, size, pl_full_like(g, size, 0)), now, held);
    now = pl_select(g, first, now, held);
    pl_nn_update(m, slot, now);
    return now;
}

/* (B,cond) */
static pl_val condition(pl_nn *m, const lgt_config *c, pl_val t, const lgt_style *style)
{
    pl_graph *g = m->g;
    int64_t d = c->cond, w = c->time ? c->time : d;
    pl_val time = pl_nn_time_features(g, t, w, (pl_nn_sinusoid){0});
    time = pl_silu(g, pl_nn_linear(m, time, "time.0", 4 * w, biased));
    time = pl_nn_linear(m, time, "time.2", w, biased);
    pl_val rows = pl_nn_embedding(m, style->ids, "style", c->styles, d);
    if (pl_val_ok(style->noise)) rows = pl_add(g, rows, style->noise);
    if (pl_val_ok(style->uncond))
        rows = pl_select(g, style->uncond, average_style(m, c, style->first), rows);
    pl_val cond = pl_concat(g, 2, (pl_val[]){time, rows}, 1);
    cond = pl_silu(g, pl_nn_linear(m, cond, "fuse.0", 2 * d, biased));
    return pl_nn_linear(m, cond, "fuse.2", d, biased);
}

lgt_features lgt_encode(pl_nn *m, const lgt_config *c, pl_val x)
{
    int64_t w = c->base;
    lgt_features f;
    pl_nn_push(m, "model");
    f.fine = pl_nn_conv2d(m, x, "inp", w, conv3(1));
    f.fine = res_blocks(m, f.fine, "enc1", c->encoder_blocks);
    f.half = pl_nn_conv2d(m, f.fine, "down1", 2 * w, conv3(2));
    f.half = res_blocks(m, f.half, "enc2", c->encoder_blocks);
    f.middle = pl_nn_conv2d(m, f.half, "down2", 4 * w, conv3(2));
    f.middle = res_blocks(m, f.middle, "middle", 2);
    if (c->plus) f.middle = middle_attention(m, f.middle);
    pl_nn_pop(m);
    return f;
}

pl_val lgt_decode(pl_nn *m, const lgt_config *c, const lgt_features *f, pl_val t,
                  const lgt_style *style)
{
    pl_graph *g = m->g;
    int64_t w = c->base;
    pl_nn_conv up = {.kernel = 4, .stride = 2, .pad = 1}, last = conv3(1);
    last.init = last.bias_init = pl_nn_constant(0);
    pl_nn_push(m, "model");
    pl_val cond = condition(m, c, t, style);
    pl_val h = pl_nn_conv_transpose2d(m, f->middle, "up2", 2 * w, up);
    h = style_blocks(m, c, pl_add(g, h, gated(m, c, f->half, cond, "gate2")), cond, "dec2");
    h = pl_nn_conv_transpose2d(m, h, "up1", w, up);
    h = style_blocks(m, c, pl_add(g, h, gated(m, c, f->fine, cond, "gate1")), cond, "dec1");
    h = pl_silu(g, pl_nn_group_norm(m, h, "out.0", 32, plain));
    h = pl_nn_conv2d(m, h, "out.2", c->latent.channels, last);
    pl_nn_pop(m);
    return h;
}

pl_val lgt_unet(pl_nn *m, const lgt_config *c, pl_val x, pl_val t, const lgt_style *style)
{
    lgt_features f = lgt_encode(m, c, x);
    return lgt_decode(m, c, &f, t, style);
}
