/* model.c - the networks of stablesr.
 *
 * The edge processor turns an edge map into four channels of a latent's size. The U-Net is the
 * U-Net of Stable Diffusion 2.1 with an input of eight channels and SPADE in every residual block:
 * a normalisation whose scale and shift are convolved from a structure map. The structure encoder
 * computes those maps, one per level, from the latent of the degraded image. Names are those of the
 * PyTorch program.
 */
#include "stablesr.h"

#include <math.h>

static const pl_nn_norm plain;
static const pl_nn_lin biased, unbiased = {.no_bias = true};

static pl_nn_conv conv3(int stride)
{
    return (pl_nn_conv){.kernel = 3, .stride = stride, .pad = 1};
}

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
        x = conv_stage(m, x, "first", &at, c->before, 5, conv3(1), true);
        x = conv_stage(m, x, "second", &at2, c->before_down, 5, down, false);
        if (c->edge_enlarged)
            x = pl_resize(m->g, x, (const int64_t[]){c->latent, c->latent}, PL_RESIZE_NEAREST,
                          false);
    } else {
        x = conv_stage(m, x, "first", &at, &c->stem, 1, down, true);
        x = conv_stage(m, x, "first", &at, c->after, 3, conv3(1), true);
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
    pl_val a = pl_relu(m->g, pl_nn_conv2d(m, map, "shared", c->spade_hidden, conv3(1)));
    pl_val gamma = pl_nn_conv2d(m, a, "gamma", w, conv3(1));
    pl_val beta = pl_nn_conv2d(m, a, "beta", w, conv3(1));
    h = pl_nn_modulate(m->g, pl_nn_group_norm(m, h, "norm", c->groups, plain), gamma, beta);
    pl_nn_pop(m);
    return h;
}

/* map: the structure map of h's size, or none in the structure encoder. */
static pl_val res_block(pl_nn *m, const sr_config *c, pl_val x, pl_val emb, pl_val map, int64_t out,
                        const char *name)
{
    pl_graph *g = m->g;
    int64_t in;
    channels_in(m, x, &in);
    pl_nn_push(m, "%s", name);
    pl_scope_checkpoint(g);
    pl_val h = pl_silu(g, pl_nn_group_norm(m, x, "norm1", c->groups, plain));
    h = pl_nn_conv2d(m, h, "conv1", out, conv3(1));
    h = pl_add(g, h, pl_nn_over(g, pl_nn_linear(m, pl_silu(g, emb), "emb", out, biased), h));
    h = pl_silu(g, pl_nn_group_norm(m, h, "norm2", c->groups, plain));
    h = pl_nn_conv2d(m, h, "conv2", out, conv3(1));
    if (pl_val_ok(map)) h = spade(m, c, h, map);
    if (in != out) x = pl_nn_conv2d(m, x, "skip", out, (pl_nn_conv){.kernel = 1});
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

/* Positions y (B,N,C): attention among themselves, to the text, and a gated layer. */
static pl_val transformer_block(pl_nn *m, const sr_config *c, pl_val y, pl_val context,
                                const char *name)
{
    pl_graph *g = m->g;
    int64_t w;
    channels_in(m, y, &w);
    pl_nn_push(m, "%s", name);
    pl_scope_checkpoint(g);
    pl_val h = pl_nn_layer_norm(m, y, "norm1", plain);
    y = pl_add(g, y, attention(m, c, h, h, "self_attn"));
    y = pl_add(g, y,
               attention(m, c, pl_nn_layer_norm(m, y, "norm2", plain), context, "cross_attn"));
    h = pl_nn_geglu(m, pl_nn_layer_norm(m, y, "norm3", plain), "gate", 4 * w);
    y = pl_add(g, y, pl_nn_linear(m, h, "shrink", w, biased));
    pl_nn_pop(m);
    return y;
}

static pl_val transformer(pl_nn *m, const sr_config *c, pl_val x, pl_val context)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t w = t.dim[3];
    pl_nn_push(m, "attn");
    pl_val y = pl_nn_group_norm(m, x, "norm", c->groups, (pl_nn_norm){.eps = 1e-6});
    y = pl_nn_linear(m, pl_reshape(g, y, PL_DIMS(t.dim[0], -1, w)), "inp", w, biased);
    for (int i = 0; i < c->depth; i++)
        y = transformer_block(m, c, y, context, i ? pl_nn_name(m, "block%d", i) : "block");
    y = pl_nn_linear(m, y, "out", w, biased);
    pl_nn_pop(m);
    return pl_add(g, x, pl_reshape(g, y, t.rank, t.dim));
}

static pl_val time_embedding(pl_nn *m, pl_val t, int64_t width)
{
    pl_val e = pl_nn_time_features(m->g, pl_cast(m->g, t, m->dtype), width, (pl_nn_sinusoid){0});
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

/* Returns the part of x (B,L,L,8) after weights that are zero for its first four channels. */
static pl_val last_four(pl_graph *g, pl_val x)
{
    pl_val part[2];
    pl_split(g, x, 3, 2, part);
    part[0] = pl_full_like(g, part[0], 0);
    return pl_concat(g, 2, part, 3);
}

pl_val sr_unet(pl_nn *m, const sr_config *c, pl_val x, pl_val t, pl_val context,
               const pl_val *struct_map)
{
    pl_graph *g = m->g;
    pl_nn_conv inp = conv3(1);
    inp.init = pl_nn_normal(0, 0.02);
    pl_nn_push(m, "unet");
    unet u = {m, c, time_embedding(m, t, c->width), context, struct_map};
    if (c->half_blind) x = last_four(g, x);
    pl_val h = pl_nn_conv2d(m, x, "inp", c->width, inp);
    pl_val skips[1 + SR_MAX_LEVELS * (SR_MAX_BLOCKS + 1)];
    int n = 0, top = c->levels - 1;
    skips[n++] = h;
    for (int level = 0; level <= top; level++) {
        for (int i = 0; i <= c->blocks; i++) {
            if (i == c->blocks && level == top) break;
            pl_nn_push(m, "down.%d", n - 1);
            if (i < c->blocks)
                h = unet_layer(&u, h, level, c->mult[level] * c->width, sr_attends(c, level));
            else
                h = pl_nn_conv2d(m, h, "resample", c->mult[level] * c->width, conv3(2));
            pl_nn_pop(m);
            skips[n++] = h;
        }
    }
    for (int i = 0; i < 2; i++) {
        pl_nn_push(m, "middle.%d", i);
        h = unet_layer(&u, h, top, c->mult[top] * c->width, i == 0);
        pl_nn_pop(m);
    }
    int up = 0;
    for (int level = top; level >= 0; level--) {
        int64_t w = c->mult[level] * c->width;
        for (int i = 0; i <= c->blocks; i++) {
            pl_nn_push(m, "up.%d", up++);
            h = pl_concat(g, 2, (pl_val[]){h, skips[--n]}, 3);
            h = unet_layer(&u, h, level, w, sr_attends(c, level));
            if (level && i == c->blocks)
                h = pl_nn_conv2d(m, pl_nn_upsample_nearest(g, h, 2), "resample.conv", w, conv3(1));
            pl_nn_pop(m);
        }
    }
    h = pl_silu(g, pl_nn_group_norm(m, h, "out.0", c->groups, plain));
    h = pl_nn_conv2d(m, h, "out.2", 4, conv3(1));
    pl_nn_pop(m);
    return h;
}

bool sr_attends(const sr_config *c, int level)
{
    return level >= c->attn_from && level < c->attn_levels;
}

bool sr_struct_attends(const sr_config *c, int level)
{
    return level >= c->struct_attn_from && level < c->struct_attn_levels;
}

/* ---- structure encoder ------------------------------------------------------------------ */
/* A convolution of kernel 1 over the positions x (B,N,C), in files too: its weight is [out,in,1]
 * there. */
static pl_val pointwise(pl_nn *m, pl_val x, const char *name, int64_t out)
{
    int64_t in;
    channels_in(m, x, &in);
    double bound = in > 0 ? 1 / sqrt((double)in) : 0;
    pl_nn_init init = pl_nn_uniform(-bound, bound);
    pl_nn_push(m, "%s", name);
    pl_val w = pl_nn_param_as(m, "weight", PL_DIMS(out, in), PL_DIMS(out, in, 1), init);
    pl_val y = pl_linear(m->g, x, w, pl_nn_param(m, "bias", PL_DIMS(out), init));
    pl_nn_pop(m);
    return y;
}

/* The qkv channels are ordered head by head, q, k, v within a head. */
static pl_val self_attention(pl_nn *m, const sr_config *c, pl_val x, const char *name)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t b = t.dim[0], n = t.dim[1] * t.dim[2], w = t.dim[3];
    pl_nn_push(m, "%s", name);
    pl_val y = pl_reshape(g, pl_nn_group_norm(m, x, "norm", c->groups, plain), PL_DIMS(b, n, w));
    y = pointwise(m, y, "qkv", 3 * w);
    y = pl_reshape(g, y, PL_DIMS(b, n, c->struct_heads, 3, -1));
    pl_val part[3];
    pl_split(g, y, 3, 3, part);
    for (int i = 0; i < 3; i++) part[i] = pl_squeeze(g, part[i], 3);
    y = pl_reshape(g, pl_attention(g, part[0], part[1], part[2], 0, false), PL_DIMS(b, n, w));
    y = pl_reshape(g, pointwise(m, y, "out", w), t.rank, t.dim);
    pl_nn_pop(m);
    return pl_add(g, x, y);
}

void sr_struct_encoder(pl_nn *m, const sr_config *c, pl_val z, pl_val t, pl_val *maps)
{
    int top = c->struct_levels - 1;
    pl_nn_push(m, "struct");
    pl_val emb = time_embedding(m, t, c->struct_width);
    pl_val h = pl_nn_conv2d(m, z, "inp", c->struct_width, conv3(1));
    for (int level = 0; level <= top; level++) {
        int64_t w = c->struct_mult[level] * c->struct_width;
        pl_nn_push(m, "levels.%d", level);
        for (int i = 0; i < c->struct_blocks; i++) {
            h = res_block(m, c, h, emb, PL_NO_VAL, w, pl_nn_name(m, "%d", 2 * i));
            if (sr_struct_attends(c, level))
                h = self_attention(m, c, h, pl_nn_name(m, "%d", 2 * i + 1));
        }
        if (level == top) {
            int last = 2 * c->struct_blocks;
            h = res_block(m, c, h, emb, PL_NO_VAL, w, pl_nn_name(m, "%d", last));
            h = self_attention(m, c, h, pl_nn_name(m, "%d", last + 1));
            h = res_block(m, c, h, emb, PL_NO_VAL, w, pl_nn_name(m, "%d", last + 2));
        }
        pl_nn_pop(m);
        maps[level] =
            res_block(m, c, h, emb, PL_NO_VAL, c->struct_out, pl_nn_name(m, "outs.%d", level));
        if (level < top) h = pl_nn_conv2d(m, h, pl_nn_name(m, "downs.%d", level), w, conv3(2));
    }
    pl_nn_pop(m);
}
