/* model.c - FluxFlow's networks: compressor, expander, discriminator, LPIPS.
 *
 *     image (B,S,S,3) ── compressor ── tokens (B,T+1,D), mu and logvar (B,S/16,S/16,D)
 *     tokens ── expander ── image           image, mean token ── discriminator ── logit (B)
 *
 * The activation is a cubic Bezier curve: five channels (t, p0..p3) make one, so the layer before
 * it is five times as wide as its output. Names of parameters are those of the PyTorch program.
 * Scopes that the authors checkpoint are marked, each block as a separate segment.
 */
#include "fluxflow.h"
#include "recipes/lpips.h"

#include <math.h>
#include <string.h>

static const pl_nn_lin biased;
static const pl_nn_norm plain;

static pl_nn_conv conv3(void)
{
    return (pl_nn_conv){.kernel = 3, .pad = 1};
}

static pl_val conv1(pl_nn *m, pl_val x, const char *name, int64_t out)
{
    return pl_nn_conv2d(m, x, name, out, (pl_nn_conv){.kernel = 1});
}

static pl_val bezier(pl_nn *m, pl_val x)
{
    return pl_bezier(m->g, x, true);
}

/* ---- compressor ------------------------------------------------------------------------- */
static pl_val bezier_head(pl_nn *m, pl_val x, const char *name, int64_t d)
{
    pl_nn_push(m, "%s", name);
    x = bezier(m, conv1(m, x, "a", 5 * d));
    x = bezier(m, conv1(m, x, "b", 5 * d));
    pl_nn_pop(m);
    return x;
}

pl_val flux_with_coordinates(pl_nn *m, const flux_sizes *c, pl_val image)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, image);
    int64_t h = t.dim[1], w = t.dim[2];
    pl_val xs = pl_reshape(g, pl_nn_linspace(g, m->dtype, -1, 1, w), PL_DIMS(1, 1, w, 1));
    pl_val ys = pl_reshape(g, pl_nn_linspace(g, m->dtype, -1, 1, h), PL_DIMS(1, h, 1, 1));
    xs = pl_broadcast(g, xs, PL_DIMS(c->batch, h, w, 1));
    ys = pl_broadcast(g, ys, PL_DIMS(c->batch, h, w, 1));
    return pl_concat(g, 3, (pl_val[]){image, xs, ys}, 3);
}

/* Widths go from 5 to dim in equal steps, halves rounded to even as Python's round does. */
static int64_t stage_width(const flux_sizes *c, int i)
{
    return (int64_t)nearbyint(5 + (double)(c->dim - 5) * i / c->scales);
}

static pl_val encode(pl_nn *m, const flux_sizes *c, pl_val x)
{
    for (int i = 0; i < c->scales; i++) {
        int64_t w = stage_width(c, i + 1);
        x = bezier(m, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.0", i), 5 * w,
                                   (pl_nn_conv){.kernel = 3, .pad = 1, .no_bias = true}));
        x = bezier(m, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.1", i), 5 * w,
                                   (pl_nn_conv){.kernel = 8, .stride = 2, .pad = 3}));
    }
    return x;
}

static pl_val token_block(pl_nn *m, const flux_sizes *c, pl_val x, int i)
{
    pl_graph *g = m->g;
    pl_nn_push(m, "blocks.%d", i);
    pl_scope_checkpoint(g);
    pl_val h = pl_nn_layer_norm(m, x, "norm1", plain);
    x = pl_add(g, x, pl_nn_multi_head_attention(m, h, h, "attn", c->heads));
    h = pl_nn_linear(m, pl_nn_layer_norm(m, x, "norm2", plain), "up", 5 * c->ff_mult * c->dim,
                     biased);
    x = pl_add(g, x, pl_nn_linear(m, bezier(m, h), "down", c->dim, biased));
    pl_nn_pop(m);
    return x;
}

/* One token (h/max_hw, w/max_hw, 0 ..) for every sample. */
static pl_val size_token(pl_nn *m, const flux_sizes *c)
{
    pl_graph *g = m->g;
    int64_t h = c->height >> c->scales, w = c->width >> c->scales;
    pl_val at = pl_iota(g, PL_TYPE(m->dtype, c->batch, 1, c->dim), 2);
    pl_val wide =
        pl_select(g, pl_eq(g, at, pl_full_like(g, at, 1)),
                  pl_full_like(g, at, (double)w / (double)c->max_hw), pl_full_like(g, at, 0));
    return pl_select(g, pl_eq(g, at, pl_full_like(g, at, 0)),
                     pl_full_like(g, at, (double)h / (double)c->max_hw), wide);
}

pl_val flux_packed(pl_nn *m, const flux_sizes *c, pl_val tokens)
{
    return pl_concat(m->g, 2, (pl_val[]){tokens, size_token(m, c)}, 1);
}

pl_val flux_compressor(pl_nn *m, const flux_sizes *c, pl_val image, pl_val eps, pl_val *mu,
                       pl_val *logvar)
{
    static const double mu_start[4] = {-2, -0.5, 0.5, 2}, logvar_start[4] = {-3, -1, 1, 3};
    pl_graph *g = m->g;
    int64_t d = c->dim, h = c->height >> c->scales, w = c->width >> c->scales;
    pl_nn_push(m, "compressor");
    pl_val latent = bezier_head(m, encode(m, c, flux_with_coordinates(m, c, image)), "latent", d);
    *mu = pl_nn_trainable_bezier(m, bezier_head(m, latent, "mu", d), "mu_curve", mu_start);
    *logvar = pl_nn_trainable_bezier(m, bezier_head(m, latent, "logvar", d), "logvar_curve",
                                     logvar_start);
    pl_val std = pl_exp(g, pl_scale(g, *logvar, 0.5));
    pl_val z = pl_add(g, *mu, pl_mul(g, eps, std));
    pl_val x = pl_reshape(g, pl_add(g, z, latent), PL_DIMS(c->batch, h * w, d));
    x = pl_add(g, x, pl_nn_position_2d(g, m->dtype, h, w, d));
    for (int i = 0; i < c->layers; i++) x = token_block(m, c, x, i);
    pl_nn_pop(m);
    return flux_packed(m, c, x);
}

/* ---- expander --------------------------------------------------------------------------- */
static pl_val spade(pl_nn *m, const flux_sizes *c, pl_val x, pl_val context)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    pl_nn_push(m, "spade");
    context = pl_resize(g, context, &t.dim[1], PL_RESIZE_LINEAR, false);
    pl_val a = pl_relu(g, pl_nn_conv2d(m, context, "shared", c->spade_hidden, conv3()));
    pl_val gamma = pl_nn_conv2d(m, a, "gamma", c->dim, conv3());
    pl_val beta = pl_nn_conv2d(m, a, "beta", c->dim, conv3());
    x = pl_nn_group_norm(m, x, "norm", c->spade_groups, (pl_nn_norm){.no_affine = true});
    x = pl_nn_modulate(g, x, gamma, beta);
    pl_nn_pop(m);
    return x;
}

/* Returns x unchanged; the parameters exist, but nothing is computed with them. */
static pl_val unused_spade(pl_nn *m, const flux_sizes *c, pl_val x, pl_val context)
{
    bool frozen = m->frozen;
    m->frozen = true;
    spade(m, c, x, context);
    m->frozen = frozen;
    return x;
}

static pl_val up_block(pl_nn *m, const flux_sizes *c, pl_val x, pl_val context, int i)
{
    int64_t d = c->dim;
    pl_nn_push(m, "blocks.%d", i);
    pl_scope_checkpoint(m->g);
    pl_val y = c->spade ? spade(m, c, x, context) : unused_spade(m, c, x, context);
    y = pl_nn_conv_transpose2d(m, y, "up", 5 * d,
                               (pl_nn_conv){.kernel = 16, .stride = 2, .pad = 7});
    y = bezier(m, pl_nn_conv2d(m, bezier(m, y), "conv", 5 * d,
                               (pl_nn_conv){.kernel = 5, .pad = 4, .dilation = 2}));
    pl_nn_pop(m);
    return pl_add(m->g, y, pl_scale(m->g, pl_nn_upsample_nearest(m->g, x, 2), 0.1));
}

/* Parameters that the decoder owns and never uses. */
static void unused_mixer(pl_nn *m, int64_t d)
{
    double bound = 1 / sqrt((double)d);
    pl_nn_push(m, "mixer");
    pl_nn_declare(m, "query", PL_DIMS(d), pl_nn_normal(0, 0.02));
    for (int i = 0; i < 4; i++) {
        pl_nn_declare(m, pl_nn_name(m, "linears.%d.weight", i), PL_DIMS(d, d),
                      pl_nn_uniform(-bound, bound));
        pl_nn_declare(m, pl_nn_name(m, "linears.%d.bias", i), PL_DIMS(d),
                      pl_nn_uniform(-bound, bound));
    }
    for (int i = 0; i < 2; i++) {
        pl_nn_declare(m, pl_nn_name(m, "norms.%d.weight", i), PL_DIMS(d), pl_nn_constant(1));
        pl_nn_declare(m, pl_nn_name(m, "norms.%d.bias", i), PL_DIMS(d), pl_nn_constant(0));
    }
    pl_nn_pop(m);
}

pl_val flux_expander(pl_nn *m, const flux_sizes *c, pl_val packed)
{
    static const double start[4] = {-1, 0.25, 0.75, 1};
    pl_graph *g = m->g;
    int64_t h = c->height >> c->scales, w = c->width >> c->scales;
    pl_nn_push(m, "expander");
    unused_mixer(m, c->dim);
    pl_val feat = pl_reshape(g, flux_image_tokens(m, packed), PL_DIMS(c->batch, h, w, c->dim));
    pl_val x = feat;
    for (int i = 0; i < c->scales; i++) x = up_block(m, c, x, feat, i);
    for (int i = 0; i < 2; i++) {
        x = pl_nn_conv2d(m, x, pl_nn_name(m, "rgb.%d", 3 * i), c->rgb[i], conv3());
        x = pl_nn_group_norm(m, x, pl_nn_name(m, "rgb.%d", 3 * i + 1), 8, plain);
        x = pl_silu(g, x);
    }
    x = pl_nn_trainable_bezier(m, conv1(m, x, "rgb.6", 3), "rgb.7", start);
    pl_nn_pop(m);
    return x;
}

/* ---- discriminator ---------------------------------------------------------------------- */
static pl_val leaky(pl_nn *m, pl_val x)
{
    return pl_leaky_relu(m->g, x, 0.2);
}

static pl_val pair(pl_nn *m, pl_val x, int index, int64_t out)
{
    pl_nn_conv o = {.kernel = 3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN};
    x = leaky(m, pl_nn_conv2d(m, x, pl_nn_name(m, "body.%d.0", index), out, o));
    return leaky(m, pl_nn_conv2d(m, x, pl_nn_name(m, "body.%d.2", index), out, o));
}

pl_val flux_patch_logits(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition,
                         pl_val *projection)
{
    pl_graph *g = m->g;
    pl_nn_lin spectral = {.spectral = PL_SPECTRAL_PLAIN};
    int64_t w = c->disc_base;
    int index = 0;
    pl_nn_push(m, "disc");
    pl_val h = pair(m, image, index++, w);
    for (int i = 0; i < c->disc_depth; i++) {
        w *= 2;
        h = pair(m, h, index++, w);
        h = pair(m, h, index++, w);
        h = pl_avg_pool(g, h, &(pl_pool_opts){.kernel = {2, 2}});
        index++;
    }
    pl_val p = leaky(m, pl_nn_linear(m, condition, "project.0", w, spectral));
    p = pl_nn_linear(m, p, "project.2", w, spectral);
    *projection = pl_sum(g, pl_mul(g, p, pl_nn_global_average(g, h)), PL_AXIS(1), false);
    h = pl_nn_conv2d(m, h, "head", 1,
                     (pl_nn_conv){.kernel = 3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN});
    pl_nn_pop(m);
    return h;
}

pl_val flux_discriminator(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition)
{
    pl_val p, h = flux_patch_logits(m, c, image, condition, &p);
    return pl_add(m->g, pl_mean(m->g, h, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false), p);
}

pl_val flux_lpips(pl_nn *m, const flux_sizes *c, pl_val x, pl_val target)
{
    lpips_sizes s = {.buffers = c->lpips_buffers};
    memcpy(s.widths, c->vgg, sizeof s.widths);
    return lpips_distance(m, &s, x, target);
}

pl_val flux_image_tokens(pl_nn *m, pl_val packed)
{
    return pl_slice(m->g, packed, 1, 0, pl_val_type(m->g, packed).dim[1] - 1, 1);
}

pl_val flux_token_mean(pl_nn *m, pl_val packed)
{
    return pl_mean(m->g, flux_image_tokens(m, packed), PL_AXIS(1), false);
}
