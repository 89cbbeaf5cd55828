/* augment.c - augmentation of stacks in training: mirroring, brightness and contrast, erasing.
 *
 * Augmentation is part of the graph and uses the run's random draws, so it is the same on every
 * device, in every plan and after every restart, and needs no copy on the host. All frames of a
 * stack are changed alike. Mirroring left to right also mirrors the sun's azimuth (360 degrees
 * minus it).
 *
 * The authors' program varies brightness and contrast of 8-bit images, frame by frame. Standardised
 * frames do not fit into 8 bits: 255 times a value is truncated and wraps around, and the result
 * lies in [0,1], unlike the frames of an evaluation. Here frames keep their values; seed_compat
 * restores the authors' computation.
 */
#include "cloud.h"

/* One number per stack, shaped to broadcast over (B,T,H,W). */
static pl_val over_stack(cloud *k, pl_val one)
{
    return pl_reshape(k->m->g, one, PL_DIMS(k->batch, 1, 1, 1));
}

static pl_val draw(cloud *k, const char *name, double lo, double hi)
{
    pl_graph *g = k->m->g;
    pl_val u = pl_draw_uniform(k->b, k->m, name, PL_TYPE(PL_F32, k->batch));
    return over_stack(k, pl_shift(g, pl_scale(g, u, hi - lo), lo));
}

static void mirror(cloud *k, double p, pl_val *frames, pl_val *angles)
{
    pl_graph *g = k->m->g;
    pl_val yes = pl_draw_chance(k->b, k->m, "augment_flip", PL_TYPE(PL_BOOL, k->batch), p), part[2];
    *frames = pl_select(
        g, pl_broadcast(g, over_stack(k, yes), PL_DIMS(k->batch, k->frames, k->height, k->width)),
        pl_flip(g, *frames, PL_AXIS(3)), *frames);
    if (!pl_val_ok(*angles)) return;
    pl_split(g, *angles, 1, 2, part);
    pl_val turned =
        pl_shift(g, pl_neg(g, part[1]), (360 - 2 * CLOUD_AZIMUTH_MEAN) / CLOUD_AZIMUTH_STD);
    part[1] = pl_select(g, pl_reshape(g, yes, PL_DIMS(k->batch, 1)), turned, part[1]);
    *angles = pl_concat(g, 2, part, 1);
}

static pl_val jitter(cloud *k, double by, pl_val frames)
{
    pl_graph *g = k->m->g;
    frames = pl_mul(g, frames, draw(k, "augment_brightness", 1 - by, 1 + by));
    pl_val mean = pl_mean(g, frames, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), true);
    pl_val far = pl_mul(g, pl_sub(g, frames, mean), draw(k, "augment_contrast", 1 - by, 1 + by));
    return pl_add(g, far, mean);
}

/* ---- as the original does ---- */
static pl_val whole(pl_graph *g, pl_val x) /* towards 0 */
{
    pl_val down = pl_floor(g, pl_abs(g, x));
    return pl_select(g, pl_lt(g, x, pl_full_like(g, x, 0)), pl_neg(g, down), down);
}

/* One number per frame. */
static pl_val draw_frames(cloud *k, const char *name, double by)
{
    pl_val u = pl_draw_uniform(k->b, k->m, name, PL_TYPE(PL_F32, k->batch, k->frames, 1, 1));
    return pl_shift(k->m->g, pl_scale(k->m->g, u, 2 * by), 1 - by);
}

static pl_val jitter_bytes(cloud *k, double by, pl_val frames)
{
    pl_graph *g = k->m->g;
    pl_val x = whole(g, pl_scale(g, frames, 255));
    x = pl_sub(g, x, pl_scale(g, pl_floor(g, pl_scale(g, x, 1.0 / 256)), 256));
    x = pl_floor(g, pl_clamp(g, pl_mul(g, x, draw_frames(k, "augment_brightness", by)), 0, 255));
    pl_val mean = pl_floor(g, pl_shift(g, pl_mean(g, x, PL_AXIS(2) | PL_AXIS(3), true), 0.5));
    pl_val far = pl_mul(g, pl_sub(g, x, mean), draw_frames(k, "augment_contrast", by));
    x = pl_floor(g, pl_clamp(g, pl_add(g, far, mean), 0, 255));
    return pl_scale(g, x, 1.0 / 255);
}

/* 1 where position i of n along the axis is within [start, start + length), fractions of n. */
static pl_val within(cloud *k, int axis, int64_t n, pl_val start, pl_val length)
{
    pl_graph *g = k->m->g;
    int64_t dim[4] = {1, 1, 1, 1};
    dim[axis] = n;
    pl_val at = pl_scale(g, pl_iota(g, pl_type_make(PL_F32, 4, dim), axis), 1.0 / (double)n);
    return pl_and(g, pl_ge(g, at, start), pl_lt(g, at, pl_add(g, start, length)));
}

static pl_val erase(cloud *k, double p, pl_val frames)
{
    pl_graph *g = k->m->g;
    pl_val yes =
        over_stack(k, pl_draw_chance(k->b, k->m, "augment_erase", PL_TYPE(PL_BOOL, k->batch), p));
    pl_val area = draw(k, "augment_erase_area", 0.02, 0.1);
    /* of the ratio of its sides, 0.3 to 3.3 */
    pl_val root = pl_exp(g, draw(k, "augment_erase_ratio", -0.6, 0.6));
    pl_val side = pl_sqrt(g, area), tall = pl_mul(g, side, root), wide = pl_div(g, side, root);
    pl_val one = pl_full_like(g, side, 1);
    pl_val top = pl_mul(g, draw(k, "augment_erase_top", 0, 1), pl_sub(g, one, tall));
    pl_val left = pl_mul(g, draw(k, "augment_erase_left", 0, 1), pl_sub(g, one, wide));
    pl_val inside =
        pl_and(g, within(k, 2, k->height, top, tall), within(k, 3, k->width, left, wide));
    pl_val gone =
        pl_broadcast(g, pl_and(g, inside, yes), PL_DIMS(k->batch, k->frames, k->height, k->width));
    return pl_select(g, gone, pl_full_like(g, frames, 0), frames);
}

void cloud_augment(cloud *k, pl_val *frames, pl_val *angles)
{
    const pl_config *c = pl_builder_config(k->b);
    double flip = pl_config_float(c, "augment.flip"), by = pl_config_float(c, "augment.jitter");
    double p = pl_config_float(c, "augment.erase");
    if (flip > 0) mirror(k, flip, frames, angles);
    if (by > 0) *frames = k->compat ? jitter_bytes(k, by, *frames) : jitter(k, by, *frames);
    if (p > 0) *frames = erase(k, p, *frames);
}
