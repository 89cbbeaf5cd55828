/* flow.c - the flow processor: tokens with noise, a text vector and a time to the velocity between
 * noise and tokens.
 *
 *     tokens (B,T,D) ── linear ── 10 blocks ── linear ── velocity (B,T,D)
 *     text (B,E) + time ── linear ── one text token, which every block attends to
 *     first tokens ── attention  ── context, which gates the tokens before every block; their mean
 *                                    is added to the context after it
 *     output of the blocks, as a map ── convolutions ── mean ── added to the same first tokens
 *
 * A block: self-attention with rotary positions; cross-attention; four small networks ("pillars")
 * give the points p0..p3 of a Bezier curve whose parameter is the token itself, and each block's
 * points gate the next one's. Names of parameters are the authors'.
 *
 * Four defects of the authors' code are corrected; compat restores them:
 *   - the curve takes five consecutive channels, but the parts are concatenated, so that a curve's
 *     five numbers are five neighbours of one part: corrected by interleaving the parts;
 *   - rotary angles are laid out for neighbouring channels and applied to halves, which is not a
 *     rotation;
 *   - a time in 0..999 is multiplied by 999 and clamped, so that all times but 0 are 999;
 *   - their scheduler's list of times does not contain 0: a sample of time 0 gets the noise of time
 *     1, but the velocity of time 0.
 * Attention to a single token has weight 1 for every query, so queries and keys of the
 * cross-attention have no gradient and are not computed. Their parameters exist, for the names.
 */
#include "fluxflow.h"

#include <math.h>

enum { TIMES = 1000 };

static const pl_nn_lin plain;
static const pl_nn_norm affine;
static const double curve_start[4] = {1e-8, 0.25, 0.75, 1};

static pl_nn_lin xavier(void)
{
    return (pl_nn_lin){.init = pl_nn_xavier_uniform(1), .bias_init = pl_nn_constant(0)};
}

/* ---- context ---------------------------------------------------------------------------- */
/* Attention of the first token of a set to the others, (B,D): one head per 128 channels.
 */
static pl_val mix_context(pl_nn *m, pl_val x)
{
    static const char *const names[3] = {"q_proj", "k_proj", "v_proj"};
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t d = t.dim[2];
    pl_val part[3];
    pl_nn_push(m, "ctx_mixer");
    pl_val cls = pl_nn_param(m, "cls", PL_DIMS(1, 1, d), pl_nn_constant(0));
    cls = pl_broadcast(g, cls, PL_DIMS(t.dim[0], 1, d));
    pl_val y = pl_nn_layer_norm(m, x, "norm_in", affine);
    y = pl_concat(g, 2, (pl_val[]){cls, y}, 1);
    for (int i = 0; i < 3; i++) part[i] = pl_nn_linear(m, y, names[i], d, xavier());
    /* Only the first row is used. */
    part[0] = pl_slice(g, part[0], 1, 0, 1, 1);
    y = pl_nn_attend(g, part[0], part[1], part[2], d < 128 ? 1 : (int)(d / 128));
    y = pl_nn_layer_norm(m, pl_nn_linear(m, y, "out_proj", d, xavier()), "norm_out", affine);
    pl_nn_pop(m);
    return pl_reshape(g, y, PL_DIMS(t.dim[0], d));
}

/* x * sigmoid(linear(context)) + linear(context) */
static pl_val inject(pl_nn *m, pl_val x, pl_val context)
{
    pl_graph *g = m->g;
    int64_t d = pl_val_type(g, x).dim[2];
    pl_nn_push(m, "context_injection");
    pl_val gate = pl_sigmoid(g, pl_nn_linear(m, context, "gate.0", d, plain));
    pl_val bias = pl_nn_linear(m, context, "bias", d, plain);
    pl_nn_pop(m);
    return pl_nn_film(g, x, gate, bias);
}

/* ---- blocks ----------------------------------------------------------------------------- */
/* The authors' rotation: channel i with channel i + D/2, by the angle of the pair that has i. */
static pl_val turn_halves(pl_graph *g, pl_val x, pl_val angles)
{
    pl_type t = pl_val_type(g, x);
    int64_t n = t.dim[1], d = t.dim[3];
    pl_val a = pl_cast(g, pl_reshape(g, angles, PL_DIMS(n, d / 2, 1)), t.dtype);
    a = pl_reshape(g, pl_broadcast(g, a, PL_DIMS(n, d / 2, 2)), PL_DIMS(n, 1, d));
    pl_val lo = pl_slice(g, x, 3, 0, d / 2, 1), hi = pl_slice(g, x, 3, d / 2, d, 1);
    pl_val other = pl_concat(g, 2, (pl_val[]){pl_neg(g, hi), lo}, 3);
    return pl_add(g, pl_mul(g, x, pl_cos(g, a)), pl_mul(g, other, pl_sin(g, a)));
}

pl_val flux_flow_rotate(pl_nn *m, const flux_sizes *c, pl_val x, pl_val angles)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int heads = c->flow.heads;
    x = pl_reshape(g, x, PL_DIMS(t.dim[0], t.dim[1], heads, t.dim[2] / heads));
    x = c->compat ? turn_halves(g, x, angles) : pl_nn_rope(g, x, angles, false);
    return pl_reshape(g, x, PL_DIMS(t.dim[0], t.dim[1], t.dim[2]));
}

static pl_val self_attention(pl_nn *m, const flux_sizes *c, pl_val x, pl_val angles)
{
    pl_graph *g = m->g;
    int64_t d = c->flow.width;
    pl_val kv[2];
    pl_nn_push(m, "self_attn");
    pl_val q = flux_flow_rotate(m, c, pl_nn_linear(m, x, "q_proj", d, xavier()), angles);
    pl_split(g, pl_nn_linear(m, x, "kv_proj", 2 * d, xavier()), 2, 2, kv);
    x = pl_nn_attend(g, q, flux_flow_rotate(m, c, kv[0], angles), kv[1], c->flow.heads);
    x = pl_nn_linear(m, x, "out_proj", d, xavier());
    pl_nn_pop(m);
    return x;
}

/* Attention to one token has weight 1. compat reads the query's parameters, so that they decay. */
static pl_val cross_attention(pl_nn *m, const flux_sizes *c, pl_val x, pl_val text)
{
    int64_t d = c->flow.width;
    pl_val kv[2];
    pl_nn_push(m, "cross_attn");
    pl_split(m->g, pl_nn_linear(m, text, "kv_proj", 2 * d, xavier()), 2, 2, kv);
    if (c->compat) {
        pl_nn_linear(m, x, "q_proj", d, xavier());
    } else {
        pl_nn_declare(m, "q_proj.weight", PL_DIMS(d, d), xavier().init);
        pl_nn_declare(m, "q_proj.bias", PL_DIMS(d), pl_nn_constant(0));
    }
    pl_val y = pl_nn_linear(m, kv[1], "out_proj", d, xavier());
    pl_nn_pop(m);
    return y;
}

/* Three layers with SiLU after each. */
static pl_val pillar(pl_nn *m, pl_val x, int which)
{
    int64_t d = pl_val_type(m->g, x).dim[2];
    for (int i = 0; i < 3; i++)
        x = pl_silu(m->g, pl_nn_linear(m, x, pl_nn_name(m, "p%d.%d.0", which, i), d, xavier()));
    return x;
}

pl_val flux_flow_curve(pl_nn *m, const flux_sizes *c, pl_val x, const pl_val p[4])
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    pl_val part[5] = {x, p[0], p[1], p[2], p[3]};
    if (c->compat) return pl_bezier(g, pl_concat(g, 5, part, 2), false);
    pl_val five = pl_stack(g, 5, part, 3);
    return pl_bezier(g, pl_reshape(g, five, PL_DIMS(t.dim[0], t.dim[1], 5 * t.dim[2])), false);
}

/* State that is passed from block to block. */
typedef struct stream {
    pl_val x, context, text, angles, point[4];
} stream;

static void block(pl_nn *m, const flux_sizes *c, stream *s, int i)
{
    pl_graph *g = m->g;
    pl_nn_push(m, "transformer_blocks.%d", i);
    pl_scope_checkpoint(g);
    pl_val x = s->x;
    x = pl_add(g, x, self_attention(m, c, pl_nn_layer_norm(m, x, "norm1", affine), s->angles));
    x = pl_add(g, x, cross_attention(m, c, x, pl_nn_layer_norm(m, s->text, "norm2", affine)));
    pl_val gate = pl_sigmoid(g, x);
    for (int k = 0; k < 4; k++) s->point[k] = pillar(m, i ? pl_mul(g, gate, s->point[k]) : gate, k);
    pl_val h = pl_nn_layer_norm(m, x, "norm3", affine);
    x = pl_add(g, x, pl_nn_linear(m, h, "ffn.0", c->flow.width, xavier()));
    s->x = flux_flow_curve(m, c, x, s->point);
    pl_nn_pop(m);
    s->context = pl_add(g, s->context, pl_mean(g, s->x, PL_AXIS(1), false));
}

/* ---- ends ------------------------------------------------------------------------------- */
static pl_val conv(pl_nn *m, pl_val x, const char *name, int64_t out, int kernel)
{
    return pl_nn_conv2d(m, x, name, out, (pl_nn_conv){.kernel = kernel, .pad = kernel / 2});
}

/* A vector (B,D) that the map of all tokens gives. */
static pl_val closing_context(pl_nn *m, const flux_sizes *c, pl_val x)
{
    pl_graph *g = m->g;
    int64_t d = c->flow.width, h = c->height >> c->scales, w = c->width >> c->scales;
    x = conv(m, pl_reshape(g, x, PL_DIMS(c->batch, h, w, d)), "flow_predictor.0", d, 5);
    x = conv(m, pl_nn_trainable_bezier(m, x, "flow_predictor.1", curve_start), "flow_predictor.2",
             d, 3);
    x = conv(m, flux_with_coordinates(m, c, x), "context_final.0", d, 7);
    return pl_nn_global_average(g, pl_nn_trainable_bezier(m, x, "context_final.1", curve_start));
}

/* v + row on the first tokens. */
static pl_val add_to_first(pl_graph *g, pl_val v, pl_val row, int64_t first_tokens)
{
    pl_type t = pl_val_type(g, v);
    int64_t k = t.dim[1] < first_tokens ? t.dim[1] : first_tokens;
    pl_val first = pl_add(g, pl_slice(g, v, 1, 0, k, 1), pl_unsqueeze(g, row, 1));
    if (k == t.dim[1]) return first;
    return pl_concat(g, 2, (pl_val[]){first, pl_slice(g, v, 1, k, t.dim[1], 1)}, 1);
}

/* One token (B,1,D) of the text and of the time. */
static pl_val text_token(pl_nn *m, const flux_sizes *c, pl_val text, pl_val t)
{
    pl_graph *g = m->g;
    int64_t d = c->flow.width, wide = pl_val_type(g, text).dim[1];
    pl_val last = pl_full_like(g, t, TIMES - 1);
    if (c->compat) t = pl_min(g, pl_mul(g, t, last), last);
    pl_val x = pl_nn_embedding(m, t, "time_embed.0", TIMES, d);
    x = pl_nn_layer_norm(m, x, "time_embed.1", affine);
    x = pl_nn_linear(m, pl_nn_trainable_bezier(m, x, "time_embed.2", curve_start), "time_embed.3",
                     wide, plain);
    return pl_unsqueeze(g, pl_nn_linear(m, pl_add(g, text, x), "text_proj", d, plain), 1);
}

pl_val flux_flow(pl_nn *m, const flux_sizes *c, pl_val tokens, pl_val text, pl_val t)
{
    pl_graph *g = m->g;
    int64_t d = c->flow.width, n = pl_val_type(g, tokens).dim[1];
    int64_t angle_width = d / c->flow.heads;
    pl_nn_push(m, "flow_processor");
    stream s = {.x = pl_nn_linear(m, tokens, "vae_to_dmodel", d, plain),
                .angles = pl_nn_rope_angles(g, m->dtype, 1, &n, &angle_width, 10000)};
    int64_t context = n < c->flow.context ? n : c->flow.context;
    s.context = mix_context(m, pl_slice(g, s.x, 1, 0, context, 1));
    s.text = text_token(m, c, text, t);
    for (int i = 0; i < c->flow.layers; i++) {
        s.x = inject(m, s.x, s.context);
        block(m, c, &s, i);
    }
    pl_val v = pl_nn_linear(m, s.x, "dmodel_to_vae", c->dim, plain);
    pl_val row = pl_nn_linear(m, closing_context(m, c, s.x), "dmodel_to_vae", c->dim, plain);
    v = add_to_first(g, v, row, context);
    pl_nn_pop(m);
    return v;
}

/* ---- noise ------------------------------------------------------------------------------ */
/* Maps each number of [0,1) to a time in 0..999: small times are likelier, by the square of a
 * cosine. */
pl_val flux_flow_time(pl_graph *g, pl_val u)
{
    static const double quarter = 1.57079632679489661923;
    int64_t n = pl_val_type(g, u).dim[0];
    pl_val s = pl_scale(g, pl_iota(g, PL_TYPE(PL_F64, TIMES), 0), 1.0 / (TIMES - 1));
    s = pl_scale(g, pl_shift(g, s, 0.008), quarter / 1.008);
    pl_val below = pl_cumsum(g, pl_square(g, pl_cos(g, s)), 0, false);
    pl_val total = pl_slice(g, below, 0, TIMES - 1, TIMES, 1);
    pl_val at = pl_mul(g, pl_reshape(g, pl_cast(g, u, PL_F64), PL_DIMS(n, 1)), total);
    pl_val passed = pl_cast(g, pl_ge(g, at, below), PL_I64);
    pl_val t = pl_sum(g, passed, PL_AXIS(1), false);
    return pl_min(g, t, pl_full_like(g, t, TIMES - 1));
}

/* Product of 1 - beta over the times up to t, beta rising from 1e-4 to 0.02: (B,1,1). */
static pl_val signal_share(pl_graph *g, pl_val t)
{
    pl_val beta = pl_shift(
        g, pl_scale(g, pl_iota(g, PL_TYPE(PL_F64, TIMES), 0), (0.02 - 1e-4) / (TIMES - 1)), 1e-4);
    pl_val logs = pl_cumsum(g, pl_log(g, pl_shift(g, pl_neg(g, beta), 1)), 0, false);
    pl_val a = pl_exp(g, pl_take(g, logs, t));
    return pl_reshape(g, a, PL_DIMS(pl_val_type(g, t).dim[0], 1, 1));
}

/* Factors of signal and noise at time t. */
static void factors(pl_graph *g, pl_val t, pl_dtype dtype, pl_val *signal, pl_val *rest)
{
    pl_val a = signal_share(g, t);
    *rest = pl_cast(g, pl_sqrt(g, pl_shift(g, pl_neg(g, a), 1)), dtype);
    *signal = pl_cast(g, pl_sqrt(g, a), dtype);
}

void flux_flow_noised(pl_graph *g, pl_val x, pl_val noise, pl_val t, bool compat, pl_val *noised,
                      pl_val *velocity)
{
    pl_dtype dtype = pl_val_type(g, x).dtype;
    pl_val a, rest;
    factors(g, t, dtype, &a, &rest);
    *velocity = pl_sub(g, pl_mul(g, a, noise), pl_mul(g, rest, x));
    if (compat) factors(g, pl_max(g, t, pl_full_like(g, t, 1)), dtype, &a, &rest);
    *noised = pl_add(g, pl_mul(g, a, x), pl_mul(g, rest, noise));
}

/* ---- pictures from noise ---------------------------------------------------------------- */
double flux_signal_share(int64_t t)
{
    double a = 1;
    for (int64_t i = 0; i <= t; i++) a *= 1 - (1e-4 + (0.02 - 1e-4) / (TIMES - 1) * (double)i);
    return a;
}

pl_val flux_flow_sample(pl_nn *m, const flux_sizes *c, pl_val noise, pl_val text, int steps)
{
    pl_graph *g = m->g;
    pl_val x = noise;
    for (int i = 0; i < steps; i++) {
        int64_t t = TIMES - 1 - (int64_t)i * TIMES / steps;
        int64_t then = TIMES - 1 - (int64_t)(i + 1) * TIMES / steps;
        double a = sqrt(flux_signal_share(t)), s = sqrt(1 - a * a);
        double b = sqrt(flux_signal_share(then)), r = sqrt(1 - b * b);
        pl_val v = flux_flow(m, c, x, text, pl_fill(g, PL_TYPE(PL_I64, c->batch), (double)t));
        pl_val clean = pl_sub(g, pl_scale(g, x, a), pl_scale(g, v, s));
        pl_val rest = pl_add(g, pl_scale(g, x, s), pl_scale(g, v, a));
        x = pl_add(g, pl_scale(g, clean, b), pl_scale(g, rest, r));
    }
    return x;
}
