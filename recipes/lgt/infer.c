/* infer.c - inference: inverts a latent to noise under its own style, then generates from the noise
 * under the wanted style.
 *
 *     inversion    x <- x - v(x, t, own) dt                           t from 1 down to 0, no noise
 *     generation   x <- x + v dt + sigma(t) sqrt(dt) noise            t from 0 up to 1
 *                  v = v_average + w (v_wanted - v_average) - r (v_own - v_average)
 *
 * sigma is 0 before infer.threshold and infer.temperature from there on: structure first, texture
 * later. w falls from infer.cfg_scale towards 1, r is infer.repulsion; with 1 and 0 only v_wanted
 * is computed. The average style is the mean of the current styles, as in the authors' inference,
 * also when training uses another average.
 */
#include "lgt.h"

#include <math.h>

typedef struct journey {
    pl_builder *b;
    pl_nn *m;
    lgt_config k;
    int64_t steps;
    double scale, repulsion, temperature, threshold;
    bool decay;
    pl_val own, wanted; /* styles (B) */
} journey;

static pl_status journey_of(pl_builder *b, pl_nn *m, journey *j)
{
    const pl_config *c = pl_builder_config(b);
    *j = (journey){.b = b,
                   .m = m,
                   .steps = pl_config_int(c, "ode.eval_steps"),
                   .scale = pl_config_float(c, "infer.cfg_scale"),
                   .repulsion = pl_config_float(c, "infer.repulsion"),
                   .temperature = pl_config_float(c, "infer.temperature"),
                   .threshold = pl_config_float(c, "infer.threshold"),
                   .decay = pl_config_bool(c, "infer.cfg_decay")};
    pl_status rc = lgt_config_of(b, m, &j->k);
    if (j->k.average == LGT_AVERAGE_INITIAL) j->k.average = LGT_AVERAGE_CURRENT;
    return rc;
}

static pl_type latent_type(const journey *j)
{
    return lgt_batch_type(&j->k, j->m->dtype);
}

/* at: position on the path, 0 to 1. average: uses the average style. */
static pl_val velocity(const journey *j, pl_val x, double at, pl_val style, bool average)
{
    pl_graph *g = j->m->g;
    pl_val t = pl_fill(g, PL_TYPE(j->m->dtype, j->k.batch), at);
    lgt_style s = {.ids = style, .uncond = PL_NO_VAL, .first = PL_NO_VAL, .noise = PL_NO_VAL};
    if (average) s.uncond = pl_fill(g, PL_TYPE(PL_BOOL, 1), 1);
    return lgt_unet(j->m, &j->k, x, t, &s);
}

/* Returns the weight of the wanted style in step i. */
static double guidance(const journey *j, int64_t i)
{
    if (!j->decay) return j->scale;
    double w = j->scale - (j->scale - 1) / (double)j->steps * (double)i;
    return w > 1 ? w : 1;
}

static pl_val guided(const journey *j, pl_val x, double at, int64_t i)
{
    pl_graph *g = j->m->g;
    double w = guidance(j, i), r = j->repulsion;
    pl_val v = velocity(j, x, at, j->wanted, false);
    if (w == 1 && r == 0) return v;
    pl_val average = velocity(j, x, at, j->wanted, true);
    v = pl_add(g, average, pl_scale(g, pl_sub(g, v, average), w));
    if (r == 0) return v;
    pl_val own = velocity(j, x, at, j->own, false);
    return pl_sub(g, v, pl_scale(g, pl_sub(g, own, average), r));
}

static pl_val invert(const journey *j, pl_val x)
{
    double dt = 1 / (double)j->steps;
    for (int64_t i = 0; i < j->steps; i++)
        x = pl_sub(j->m->g, x,
                   pl_scale(j->m->g, velocity(j, x, 1 - dt * (double)i, j->own, false), dt));
    return x;
}

/* Returns random numbers of a constant key: the same in every evaluation. */
static pl_val fixed_normal(pl_nn *m, int64_t number, pl_type type)
{
    pl_val key = pl_shift(m->g, pl_iota(m->g, PL_TYPE(PL_I64, 2), 0), (double)number);
    return pl_random_normal(m->g, key, type);
}

/* Returns the noise of step i: in pictures the run's, in evaluations the same in every run. */
static pl_val warmth(const journey *j, int64_t i, bool picture)
{
    if (picture)
        return pl_draw_normal(j->b, j->m, pl_nn_name(j->m, "warmth%d", (int)i), latent_type(j));
    return fixed_normal(j->m, i, latent_type(j));
}

static pl_val generate(const journey *j, pl_val x, bool picture)
{
    pl_graph *g = j->m->g;
    double dt = 1 / (double)j->steps;
    for (int64_t i = 0; i < j->steps; i++) {
        double t = dt * (double)i;
        x = pl_add(g, x, pl_scale(g, guided(j, x, t, i), dt));
        if (t >= j->threshold && j->temperature > 0)
            x = pl_add(g, x, pl_scale(g, warmth(j, i, picture), j->temperature * sqrt(dt)));
    }
    return x;
}

/* Reads the inputs of both programs; returns the generated latents. */
static pl_val transferred(journey *j, bool picture, pl_val *src, pl_val *ref)
{
    pl_graph *g = j->m->g;
    *src = pl_input(g, "src", latent_type(j));
    *ref = pl_input(g, "style_ref", latent_type(j));
    j->own = pl_input(g, "source", PL_TYPE(PL_I64, j->k.batch));
    j->wanted = pl_input(g, "style", PL_TYPE(PL_I64, j->k.batch));
    return generate(j, invert(j, *src), picture);
}

pl_status lgt_build_eval(pl_builder *b)
{
    journey j;
    pl_nn *m = pl_builder_eval(b);
    if (journey_of(b, m, &j) != PL_OK) return pl_nn_finish(m);
    pl_graph *g = m->g;
    const lgt_config *k = &j.k;
    pl_val src, ref, directions[LGT_MAX_SCALES];
    pl_val x = transferred(&j, false, &src, &ref);
    j.k.by_sample = true; /* compared over a batch, unchanged sources would score as well */
    for (int i = 0; i < k->n_scales; i++) {
        int64_t p = lgt_patch_size(k, i);
        directions[i] =
            fixed_normal(m, -1 - i, PL_TYPE(m->dtype, k->latent.channels * p * p, k->projections));
    }
    pl_val swd = lgt_style_distance(g, k, x, ref, NULL, directions);
    pl_val ssm = pl_loss_cosine_ssm(g, x, src, PL_NO_VAL);
    pl_output(g, "loss", pl_add(g, pl_scale(g, swd, k->w_style), pl_scale(g, ssm, k->w_content)));
    pl_output(g, "swd", swd);
    pl_output(g, "ssm", ssm);
    return PL_OK;
}

/* Colours as a linear function of the first four channels: approximately the picture that Stable
 * Diffusion's autoencoder would decode, one pixel per position. */
static pl_val colours(pl_graph *g, pl_val x)
{
    static const double mix[3][4] = {
        {0.30, 0.19, -0.16, -0.18}, {0.21, 0.29, 0.19, -0.27}, {0.21, 0.17, 0.26, -0.47}};
    pl_val channel[4], colour[3];
    int64_t most = pl_val_type(g, x).dim[3] - 1;
    for (int64_t k = 0; k < 4; k++) {
        int64_t at = k < most ? k : most;
        channel[k] = pl_slice(g, x, 3, at, at + 1, 1);
    }
    for (int i = 0; i < 3; i++) {
        colour[i] = pl_scale(g, channel[0], mix[i][0]);
        for (int k = 1; k < 4; k++)
            colour[i] = pl_add(g, colour[i], pl_scale(g, channel[k], mix[i][k]));
    }
    return pl_concat(g, 3, colour, 3);
}

/* [B,C,H,W], as the authors' autoencoder reads them. */
static pl_val as_torch(pl_graph *g, pl_val x)
{
    return pl_permute(g, x, (const int[]){0, 3, 1, 2});
}

pl_status lgt_build_sample(pl_builder *b)
{
    journey j;
    pl_nn *m = pl_builder_sample(b);
    if (!m || journey_of(b, m, &j) != PL_OK) return PL_OK;
    pl_graph *g = m->g;
    pl_val src, ref, x = transferred(&j, true, &src, &ref);
    pl_builder_picture(b, "source", colours(g, src), -1, 1);
    pl_builder_picture(b, "style", colours(g, ref), -1, 1);
    pl_builder_picture(b, "transferred", colours(g, x), -1, 1);
    pl_builder_array(b, "source", as_torch(g, src));
    pl_builder_array(b, "style", as_torch(g, ref));
    pl_builder_array(b, "latent", as_torch(g, x));
    pl_builder_array(b, "style_id", j.wanted);
    return PL_OK;
}
