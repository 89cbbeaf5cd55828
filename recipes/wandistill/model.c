/* model.c - the two networks of wandistill.
 *
 * The student is a transformer over the pixels of a latent: every pixel is a token, time and text
 * are added to all of them in every block. Its attention stores no probabilities (the original
 * keeps 1 GiB of them per block and sample).
 *
 * The teacher is a video transformer after Wan: patches of 1x2x2, self-attention with rotary
 * positions along three axes, cross-attention to the text, both modulated by time. It is frozen,
 * nothing is differentiated through it, and its weights may be bf16. It needs memory for its
 * weights and one block's activations; the plan reuses the latter for the student.
 */
#include "wandistill.h"

#include <math.h>

static const pl_nn_lin plain;

static pl_nn_conv conv3(void)
{
    return (pl_nn_conv){.kernel = 3, .pad = 1};
}

/* Linear, activation, Linear: names "<name>.0" and "<name>.2". */
static pl_val mlp(pl_nn *m, pl_val x, const char *name, int64_t hidden, int64_t out,
                  pl_val (*act)(pl_graph *, pl_val))
{
    x = act(m->g, pl_nn_linear(m, x, pl_nn_name(m, "%s.0", name), hidden, plain));
    return pl_nn_linear(m, x, pl_nn_name(m, "%s.2", name), out, plain);
}

/* ---- student ---------------------------------------------------------------------------- */
/* x (B,N,hidden); text and time (B,1,hidden). */
static pl_val student_block(pl_nn *m, const wan_config *c, pl_val x, pl_val text, pl_val time)
{
    pl_graph *g = m->g;
    x = pl_add(g, pl_add(g, x, text), time);
    pl_val h = pl_nn_layer_norm(m, x, "norm1", (pl_nn_norm){0});
    x = pl_add(g, x, pl_nn_multi_head_attention(m, h, h, "attn", c->heads));
    h = pl_nn_layer_norm(m, x, "norm2", (pl_nn_norm){0});
    return pl_add(g, x, mlp(m, h, "mlp", 4 * c->hidden, c->hidden, pl_silu));
}

pl_val wan_student(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text)
{
    pl_graph *g = m->g;
    int64_t h = c->hidden, s = c->latent;
    pl_nn_push(m, "student");
    pl_val time = pl_nn_time_features(g, pl_cast(g, t, m->dtype), h,
                                      (pl_nn_sinusoid){.sin_first = true, .last_is_full = true});
    time = pl_unsqueeze(g, mlp(m, time, "time", 4 * h, h, pl_silu), 1);
    text =
        pl_unsqueeze(g, pl_nn_linear(m, pl_mean(g, text, PL_AXIS(1), false), "text", h, plain), 1);
    pl_val x = pl_nn_conv2d(m, latents, "inp", h, conv3());
    x = pl_reshape(g, x, PL_DIMS(c->batch, s * s, h));
    for (int i = 0; i < c->depth; i++) {
        pl_nn_push(m, "blocks.%d", i);
        pl_scope_checkpoint(g);
        x = student_block(m, c, x, text, time);
        pl_nn_pop(m);
    }
    x = pl_reshape(g, x, PL_DIMS(c->batch, s, s, h));
    x = pl_nn_conv2d(m, x, "out", c->channels, conv3());
    pl_nn_pop(m);
    return x;
}

/* ---- teacher ---------------------------------------------------------------------------- */
static pl_val heads_of(pl_graph *g, pl_val x, int heads)
{
    pl_type t = pl_val_type(g, x);
    return pl_reshape(g, x, PL_DIMS(t.dim[0], t.dim[1], heads, -1));
}

/* rope: angles, or none for cross-attention. */
static pl_val teacher_attention(pl_nn *m, const wan_config *c, pl_val x, pl_val source, pl_val rope,
                                const char *name)
{
    pl_graph *g = m->g;
    int64_t d = c->teacher_dim;
    pl_nn_push(m, "%s", name);
    pl_val q = pl_nn_rms_norm(m, pl_nn_linear(m, x, "q", d, plain), "norm_q", (pl_nn_norm){0});
    pl_val k = pl_nn_rms_norm(m, pl_nn_linear(m, source, "k", d, plain), "norm_k", (pl_nn_norm){0});
    pl_val v = heads_of(g, pl_nn_linear(m, source, "v", d, plain), c->teacher_heads);
    q = heads_of(g, q, c->teacher_heads);
    k = heads_of(g, k, c->teacher_heads);
    if (pl_val_ok(rope)) {
        q = pl_nn_rope(g, q, rope, false);
        k = pl_nn_rope(g, k, rope, false);
    }
    pl_type t = pl_val_type(g, x);
    pl_val y = pl_reshape(g, pl_attention(g, q, k, v, 0, false), t.rank, t.dim);
    y = pl_nn_linear(m, y, "o", d, plain);
    pl_nn_pop(m);
    return y;
}

static pl_val modulation(pl_nn *m, int64_t n, int64_t d)
{
    return pl_nn_param(m, "modulation", PL_DIMS(1, n, d), pl_nn_normal(0, 1 / sqrt((double)d)));
}

static pl_val teacher_block(pl_nn *m, const wan_config *c, pl_val x, pl_val text, pl_val e6,
                            pl_val rope)
{
    pl_graph *g = m->g;
    int64_t d = c->teacher_dim;
    pl_nn_norm bare = {.eps = 1e-6, .no_affine = true};
    pl_val e[6]; /* shift, scale, gate of attention, then of the feed-forward part */
    pl_split(g, pl_add(g, modulation(m, 6, d), e6), 1, 6, e);
    pl_val h = pl_nn_modulate(g, pl_nn_layer_norm(m, x, "norm1", bare), e[1], e[0]);
    x = pl_add(g, x, pl_mul(g, e[2], teacher_attention(m, c, h, h, rope, "self_attn")));
    h = pl_nn_layer_norm(m, x, "norm", (pl_nn_norm){.eps = 1e-6});
    x = pl_add(g, x, teacher_attention(m, c, h, text, PL_NO_VAL, "cross_attn"));
    h = pl_nn_modulate(g, pl_nn_layer_norm(m, x, "norm2", bare), e[4], e[3]);
    return pl_add(g, x, pl_mul(g, e[5], mlp(m, h, "ffn", c->teacher_ffn, d, pl_gelu_tanh)));
}

pl_val wan_teacher(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text)
{
    pl_graph *g = m->g;
    int64_t d = c->teacher_dim, b = c->batch, head = d / c->teacher_heads;
    pl_nn_push(m, "teacher");
    pl_val x = pl_nn_conv3d(m, latents, "patch", d,
                            (pl_nn_conv){.kernels = {1, 2, 2}, .strides = {1, 2, 2}});
    pl_type grid = pl_val_type(g, x);
    int64_t f = grid.dim[1], h = grid.dim[2], w = grid.dim[3];
    x = pl_reshape(g, x, PL_DIMS(b, f * h * w, d));
    /* dtype of angles, for every type of weights */
    pl_dtype fine = m->dtype == PL_F64 ? PL_F64 : PL_F32;
    /* exp(-log(10000) k/n) in f32, as diffusers computes it: a power rounds otherwise, and times up
     * to 999 multiply the difference */
    pl_val e =
        pl_nn_time_features(g, pl_cast(g, t, fine), c->teacher_freq, (pl_nn_sinusoid){.period = 0});
    e = mlp(m, pl_cast(g, e, m->dtype), "time", d, d, pl_silu);
    pl_val e6 = pl_nn_linear(m, pl_silu(g, e), "time6", 6 * d, plain);
    e6 = pl_reshape(g, e6, PL_DIMS(b, 6, d));
    text = mlp(m, text, "text", d, d, pl_gelu_tanh);
    int64_t sixth = 2 * (head / 6);
    pl_val rope = pl_nn_rope_angles(g, fine, 3, (const int64_t[]){f, h, w},
                                    (const int64_t[]){head - 2 * sixth, sixth, sixth}, 10000);
    for (int i = 0; i < c->teacher_layers; i++) {
        pl_nn_push(m, "blocks.%d", i);
        x = teacher_block(m, c, x, text, e6, rope);
        pl_nn_pop(m);
    }
    pl_val sc[2];
    pl_split(g, pl_add(g, modulation(m, 2, d), pl_unsqueeze(g, e, 1)), 1, 2, sc);
    x = pl_nn_layer_norm(m, x, "norm", (pl_nn_norm){.eps = 1e-6, .no_affine = true});
    x = pl_nn_linear(m, pl_nn_modulate(g, x, sc[1], sc[0]), "head", 4 * c->teacher_channels, plain);
    pl_nn_pop(m);
    x = pl_reshape(g, x, PL_DIMS(b, f, h, w, 2, 2, c->teacher_channels));
    x = pl_permute(g, x, (const int[]){0, 1, 2, 4, 3, 5, 6});
    return pl_reshape(g, x, PL_DIMS(b, f, 2 * h, 2 * w, c->teacher_channels));
}

pl_val wan_target(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text,
                  bool zero_lift)
{
    pl_graph *g = m->g;
    pl_dtype own = m->dtype, its = c->teacher_dtype;
    bool frozen = m->frozen;
    pl_nn_conv lift = {.kernel = 1};
    if (zero_lift) lift.init = lift.bias_init = pl_nn_constant(0);
    m->frozen = true;
    m->dtype = its;
    pl_val x = pl_cast(g, pl_unsqueeze(g, latents, 1), its);
    x = wan_teacher(m, c, pl_nn_conv3d(m, x, "lift", c->teacher_channels, lift), t,
                    pl_cast(g, text, its));
    m->frozen = frozen;
    m->dtype = own;
    return pl_stop_gradient(g, pl_cast(g, pl_squeeze(g, x, 1), own));
}
