/* loss.c - the objective of lgt: where the ODE ends, compared in style and in content.
 *
 *     x_t = (1-t) x0 + t src;  N Euler steps of v from (x_t, t) to 1 give x_1
 *     loss = w_style SWD(x_1, style_ref) + w_content SSM(x_1, src) + w_velocity mean(v(x_t,t)^2)
 *
 * All N evaluations of the network are differentiated; each is a scope of its own, which
 * `checkpointing: blocks` computes again.
 */
#include "lgt.h"

/* (B) to (B,1,1,1) */
static pl_val wide(pl_graph *g, pl_val t)
{
    return pl_reshape(g, t, PL_DIMS(-1, 1, 1, 1));
}

static pl_val velocity(pl_nn *m, const lgt_config *c, const lgt_batch *b, pl_val x, pl_val t, int i)
{
    pl_scope_push(m->g, pl_nn_name(m, "ode%d", i));
    pl_scope_checkpoint(m->g);
    pl_val v = lgt_unet(m, c, x, t, b->style, b->uncond, b->first);
    pl_scope_pop(m->g);
    return v;
}

/* dt from the first time reaches 1. Taken anew from the current time it shrinks with every step, and the
 * end is 1-(1-t)(1-1/N)^N: 65 % of the way for N = 10. */
static pl_val integrate(pl_nn *m, const lgt_config *c, const lgt_batch *b, pl_val x)
{
    pl_graph *g = m->g;
    pl_val t = b->t, dt = PL_NO_VAL;
    for (int i = 0; i < c->ode_steps; i++) {
        pl_val v = velocity(m, c, b, x, t, i);
        if (i == 0 || c->shrinking)
            dt = pl_scale(g, pl_shift(g, pl_neg(g, t), 1), 1.0 / c->ode_steps);
        x = pl_add(g, x, pl_mul(g, v, wide(g, dt)));
        t = pl_add(g, t, dt);
    }
    return x;
}

int64_t lgt_patch_size(const lgt_config *c, int scale)
{
    return c->n_scales ? c->scale[scale] : 3;
}

/* An even patch with half its size as padding fits once more along each axis. */
int64_t lgt_patches(const lgt_config *c, int scale)
{
    int64_t side = c->latent + (lgt_patch_size(c, scale) % 2 == 0);
    int64_t all = c->batch * side * side;
    return all < c->samples ? all : c->samples;
}

pl_val lgt_style_distance(pl_graph *g, const lgt_config *c, pl_val x, pl_val y, const pl_val *rows,
                          const pl_val *directions)
{
    pl_val sum = PL_NO_VAL;
    int n = c->n_scales ? c->n_scales : 1;
    for (int i = 0; i < n; i++) {
        pl_val d = pl_loss_patch_swd(g, x, y, (int)lgt_patch_size(c, i), rows ? rows[i] : PL_NO_VAL,
                                     directions[i]);
        if (c->n_scales && c->scale_weight[i] != 1) d = pl_scale(g, d, c->scale_weight[i]);
        sum = i ? pl_add(g, sum, d) : d;
    }
    return sum;
}

lgt_terms lgt_loss(pl_nn *m, const lgt_config *c, const lgt_batch *b)
{
    pl_graph *g = m->g;
    pl_val t = wide(g, b->t);
    pl_val x = pl_add(g, pl_mul(g, pl_shift(g, pl_neg(g, t), 1), b->x0), pl_mul(g, t, b->src));
    lgt_terms l;
    l.velocity = pl_mean(g, pl_square(g, velocity(m, c, b, x, b->t, c->ode_steps)), PL_AXES_ALL, false);
    pl_val end = integrate(m, c, b, x);
    l.swd = lgt_style_distance(g, c, end, b->style_ref, b->rows, b->directions);
    l.ssm = pl_loss_cosine_ssm(g, end, b->src, b->positions);
    l.loss = pl_add(g, pl_scale(g, l.swd, c->w_style), pl_scale(g, l.ssm, c->w_content));
    l.loss = pl_add(g, l.loss, pl_scale(g, l.velocity, c->w_velocity));
    return l;
}
