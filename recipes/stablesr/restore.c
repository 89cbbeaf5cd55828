/* restore.c - super-resolution inside the graph, for evaluations and for the pictures of a run.
 *
 * The same path as predict.c, for pictures of one tile, with few DDIM steps that are unrolled: a
 * step is x' = sqrt(b/a) x + (sqrt(1-b) - sqrt(b (1-a)/a)) eps, a and b the shares of the signal
 * before and after it.
 */
#include "stablesr.h"

#include <math.h>

pl_val sr_restored(pl_nn *m, const sr_config *c, const sr_batch *b, int steps)
{
    pl_graph *g = m->g;
    double last = sr_signal(999);
    pl_val edges = sr_edge(m, c, b->edge), maps[SR_MAX_LEVELS];
    pl_val x = pl_add(g, pl_scale(g, b->lq, sqrt(last)), pl_scale(g, b->eps, sqrt(1 - last)));
    for (int i = steps - 1; i >= 0; i--) {
        int64_t time = steps > 1 ? (int64_t)nearbyint(i * 999.0 / (steps - 1)) : 999;
        int64_t then = i > 0 ? (int64_t)nearbyint((i - 1) * 999.0 / (steps - 1)) : 0;
        double a = sr_signal(time), after = i > 0 ? sr_signal(then) : 1;
        pl_val t = pl_fill(g, PL_TYPE(PL_I64, c->batch), (double)time);
        sr_struct_encoder(m, c, b->lq, t, maps);
        pl_val eps = sr_unet(m, c, sr_fused(m, x, edges), t, b->context, maps);
        x = pl_add(g, pl_scale(g, x, sqrt(after / a)),
                   pl_scale(g, eps, sqrt(1 - after) - sqrt(after * (1 - a) / a)));
    }
    bool frozen = m->frozen;
    m->frozen = true;
    x = vae_decode(m, &c->vae, x);
    m->frozen = frozen;
    return pl_clamp(g, x, -1, 1);
}

/* ---- scores ----------------------------------------------------------------------------- */
/* Luma (B,H,W,1) in 0 to 1. */
static pl_val luma(pl_graph *g, pl_val x)
{
    pl_val part[3];
    pl_split(g, x, 3, 3, part);
    pl_val y = pl_add(g, pl_scale(g, part[0], 0.299), pl_scale(g, part[1], 0.587));
    return pl_scale(g, pl_shift(g, pl_add(g, y, pl_scale(g, part[2], 0.114)), 1), 0.5);
}

/* The window's weights (1,11,11,1), which sum to 1. */
static pl_val window(pl_graph *g, pl_dtype dtype)
{
    pl_val e[2];
    for (int i = 0; i < 2; i++) {
        pl_val at = pl_shift(g, pl_iota(g, PL_TYPE(dtype, 1, 11, 11, 1), 1 + i), -5);
        e[i] = pl_exp(g, pl_scale(g, pl_square(g, at), -1 / (2 * 1.5 * 1.5)));
    }
    pl_val w = pl_mul(g, e[0], e[1]);
    return pl_div(g, w, pl_sum(g, w, PL_AXES_ALL, true));
}

static pl_val means(pl_graph *g, pl_val x, pl_val w)
{
    return pl_conv(g, x, w, PL_NO_VAL, &(pl_conv_opts){0});
}

void sr_scores(pl_nn *m, pl_val x, pl_val y, const char *psnr, const char *ssim)
{
    pl_graph *g = m->g;
    const double c1 = 0.01 * 0.01, c2 = 0.03 * 0.03;
    pl_val error =
        pl_mean(g, pl_square(g, pl_sub(g, x, y)), PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false);
    error = pl_log(g, pl_scale(g, pl_shift(g, error, 1e-12), 0.25));
    pl_output(g, psnr, pl_scale(g, pl_mean(g, error, PL_AXES_ALL, false), -10 / log(10)));
    pl_val w = window(g, m->dtype), u = luma(g, x), v = luma(g, y);
    pl_val mu = means(g, u, w), mv = means(g, v, w), uv = pl_mul(g, mu, mv);
    pl_val squares = pl_add(g, pl_square(g, mu), pl_square(g, mv));
    pl_val both = pl_sub(g, means(g, pl_mul(g, u, v), w), uv);
    pl_val spread = pl_sub(g, means(g, pl_add(g, pl_square(g, u), pl_square(g, v)), w), squares);
    pl_val top =
        pl_mul(g, pl_shift(g, pl_scale(g, uv, 2), c1), pl_shift(g, pl_scale(g, both, 2), c2));
    pl_val bottom = pl_mul(g, pl_shift(g, squares, c1), pl_shift(g, spread, c2));
    pl_output(g, ssim, pl_mean(g, pl_div(g, top, bottom), PL_AXES_ALL, false));
}
