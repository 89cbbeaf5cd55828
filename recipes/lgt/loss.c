/* loss.c - the objective of lgt: the end of the ODE, compared in style and in content.
 *
 *     x_t = (1-t) x0 + t src;  N Euler steps of v from (x_t, t) to 1 give x_1
 *     loss = w_style s SWD(x_1, style_ref) + w_content SSM(x_1, src) + w_velocity mean(v(x_t,t)^2)
 *
 * s is the mean of the wanted styles' weights. The velocity term has the wanted style, also where
 * the label is dropped and the ODE runs with the average style. The first step's evaluation serves
 * both where the styles cannot differ; otherwise the velocity is evaluated a second time; both
 * evaluations share the encoder, which does not read the style. All evaluations are differentiated;
 * each is a scope, which `checkpointing: blocks` recomputes.
 */
#include "lgt.h"

/* (B) to (B,1,1,1) */
static pl_val wide(pl_graph *g, pl_val t)
{
    return pl_reshape(g, t, PL_DIMS(-1, 1, 1, 1));
}

/* Style of evaluation i; i = ode_steps: of the velocity term. */
static lgt_style style_of(pl_graph *g, const lgt_config *c, const lgt_batch *b, int i)
{
    lgt_style s = {.ids = b->style, .uncond = b->uncond, .first = b->first, .noise = PL_NO_VAL};
    if (i == c->ode_steps && c->kept) s.uncond = PL_NO_VAL;
    if (pl_val_ok(b->noise)) s.noise = pl_squeeze(g, pl_slice(g, b->noise, 0, i, i + 1, 1), 0);
    return s;
}

/* Velocity of Euler step i, and the encoder's maps of x. */
static pl_val velocity(pl_nn *m, const lgt_config *c, const lgt_batch *b, pl_val x, pl_val t, int i,
                       lgt_features *maps)
{
    pl_scope_push(m->g, pl_nn_name(m, "ode%d", i));
    pl_scope_checkpoint(m->g);
    lgt_style s = style_of(m->g, c, b, i);
    *maps = lgt_encode(m, c, x);
    pl_val v = lgt_decode(m, c, maps, t, &s);
    pl_scope_pop(m->g);
    return v;
}

/* Velocity of the velocity term: from the first step's maps, in a different style. */
static pl_val velocity_apart(pl_nn *m, const lgt_config *c, const lgt_batch *b,
                             const lgt_features *maps)
{
    pl_scope_push(m->g, "velocity");
    pl_scope_checkpoint(m->g);
    lgt_style s = style_of(m->g, c, b, c->ode_steps);
    pl_val v = lgt_decode(m, c, maps, b->t, &s);
    pl_scope_pop(m->g);
    return v;
}

/* dt from the first time reaches 1. Recomputed from the current time, dt shrinks with every step,
 * and the end is 1-(1-t)(1-1/N)^N: 65 % of the way for N = 10. */
pl_val lgt_integrate(pl_nn *m, const lgt_config *c, const lgt_batch *b, pl_val x, pl_val first)
{
    pl_graph *g = m->g;
    pl_val t = b->t, dt = PL_NO_VAL;
    lgt_features maps;
    for (int i = 0; i < c->ode_steps; i++) {
        pl_val v = i == 0 && pl_val_ok(first) ? first : velocity(m, c, b, x, t, i, &maps);
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
int64_t lgt_patches(const lgt_config *c, int scale, int64_t *of)
{
    int64_t more = lgt_patch_size(c, scale) % 2 == 0;
    int64_t most = c->by_sample ? (c->samples + c->batch - 1) / c->batch : c->samples;
    *of = (c->latent.rows + more) * (c->latent.columns + more) * (c->by_sample ? 1 : c->batch);
    return *of < most ? *of : most;
}

/* Projects the patches of one map, (M,B*P), sorted per sample. positions: which of a sample's
 * patches. */
static pl_val sorted_by_sample(pl_graph *g, pl_val x, int k, pl_val positions, pl_val directions)
{
    pl_conv_opts o = {.pad_lo = {k / 2, k / 2}, .pad_hi = {k / 2, k / 2}};
    pl_type t = pl_val_type(g, x);
    int64_t batch = t.dim[0], wide = k * k * t.dim[3], many = pl_val_type(g, directions).dim[1];
    pl_val y = pl_reshape(g, pl_unfold(g, x, &o, (const int[]){k, k}), PL_DIMS(batch, -1, wide));
    y = pl_transpose(g, y, 0, 1);
    if (pl_val_ok(positions)) y = pl_take(g, y, positions);
    y = pl_matmul(g, pl_reshape(g, y, PL_DIMS(-1, wide)), directions, false, false);
    pl_sort(g, pl_reshape(g, y, PL_DIMS(-1, batch * many)), 0, false, &y, NULL);
    return y;
}

static pl_val distance_by_sample(pl_graph *g, pl_val x, pl_val y, int k, pl_val positions,
                                 pl_val directions)
{
    pl_scope_push(g, "swd");
    pl_scope_full(g);
    directions = pl_nn_normalize(g, directions, 0, 1e-12);
    pl_val d = pl_loss_mse(g, sorted_by_sample(g, x, k, positions, directions),
                           sorted_by_sample(g, y, k, positions, directions));
    pl_scope_pop(g);
    return d;
}

pl_val lgt_style_distance(pl_graph *g, const lgt_config *c, pl_val x, pl_val y, const pl_val *rows,
                          const pl_val *directions)
{
    pl_val sum = PL_NO_VAL;
    int n = c->n_scales ? c->n_scales : 1;
    for (int i = 0; i < n; i++) {
        int size = (int)lgt_patch_size(c, i);
        pl_val which = rows ? rows[i] : PL_NO_VAL;
        pl_val d = c->by_sample ? distance_by_sample(g, x, y, size, which, directions[i])
                                : pl_loss_patch_swd(g, x, y, size, which, directions[i]);
        if (c->n_scales && c->scale_weight[i] != 1) d = pl_scale(g, d, c->scale_weight[i]);
        sum = i ? pl_add(g, sum, d) : d;
    }
    return sum;
}

/* Returns the mean weight of the wanted styles, the factor of the style term. */
static pl_val style_share(pl_graph *g, const lgt_config *c, pl_val style, pl_dtype dtype)
{
    pl_val w[LGT_MAX_WEIGHTS];
    for (int i = 0; i < c->n_style_weights; i++)
        w[i] = pl_fill(g, PL_TYPE(dtype, 1), c->style_weight[i]);
    pl_val all = c->n_style_weights > 1 ? pl_concat(g, c->n_style_weights, w, 0) : w[0];
    return pl_mean(g, pl_take(g, all, style), PL_AXES_ALL, false);
}

lgt_terms lgt_loss(pl_nn *m, const lgt_config *c, const lgt_batch *b)
{
    pl_graph *g = m->g;
    pl_val t = wide(g, b->t);
    pl_val x = pl_add(g, pl_mul(g, pl_shift(g, pl_neg(g, t), 1), b->x0), pl_mul(g, t, b->src));
    lgt_terms l;
    lgt_features maps;
    pl_val first = velocity(m, c, b, x, b->t, 0, &maps), v = first;
    if (c->kept || pl_val_ok(b->noise)) v = velocity_apart(m, c, b, &maps);
    pl_val end = lgt_integrate(m, c, b, x, first);
    l.velocity = pl_mean(g, pl_square(g, v), PL_AXES_ALL, false);
    l.swd = lgt_style_distance(g, c, end, b->style_ref, b->rows, b->directions);
    l.ssm = pl_loss_cosine_ssm(g, end, b->src, b->positions);
    pl_val style = pl_scale(g, l.swd, c->w_style);
    if (c->n_style_weights) style = pl_mul(g, style, style_share(g, c, b->style, m->dtype));
    l.loss = pl_add(g, style, pl_scale(g, l.ssm, c->w_content));
    l.loss = pl_add(g, l.loss, pl_scale(g, l.velocity, c->w_velocity));
    return l;
}
