/* scores.c - PSNR and SSIM of pictures, inside the graph. */
#include "scores.h"

#include <math.h>

pl_val score_psnr(pl_nn *m, pl_val x, pl_val y)
{
    pl_graph *g = m->g;
    pl_val error =
        pl_mean(g, pl_square(g, pl_sub(g, x, y)), PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false);
    error = pl_log(g, pl_scale(g, pl_shift(g, error, 1e-12), 0.25));
    return pl_scale(g, pl_mean(g, error, PL_AXES_ALL, false), -10 / log(10));
}

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

pl_val score_ssim(pl_nn *m, pl_val x, pl_val y)
{
    pl_graph *g = m->g;
    const double c1 = 0.01 * 0.01, c2 = 0.03 * 0.03;
    pl_val w = window(g, m->dtype), u = luma(g, x), v = luma(g, y);
    pl_val mu = means(g, u, w), mv = means(g, v, w), uv = pl_mul(g, mu, mv);
    pl_val squares = pl_add(g, pl_square(g, mu), pl_square(g, mv));
    pl_val both = pl_sub(g, means(g, pl_mul(g, u, v), w), uv);
    pl_val spread = pl_sub(g, means(g, pl_add(g, pl_square(g, u), pl_square(g, v)), w), squares);
    pl_val top =
        pl_mul(g, pl_shift(g, pl_scale(g, uv, 2), c1), pl_shift(g, pl_scale(g, both, 2), c2));
    pl_val bottom = pl_mul(g, pl_shift(g, squares, c1), pl_shift(g, spread, c2));
    return pl_mean(g, pl_div(g, top, bottom), PL_AXES_ALL, false);
}
