/* lgt.c - latent style transfer trained through a differentiated Euler ODE; the network and the
 * loss are the recipe's. */
#include "workloads.h"

enum { ACCUMULATE = 2 };

const lgt_config lgt_full = {.batch = 32,
                             .latent = {32, 32, 4},
                             .base = 128,
                             .cond = 256,
                             .styles = 2,
                             .encoder_blocks = 2,
                             .decoder_blocks = 3,
                             .ode_steps = 10,
                             .kept = true,
                             .projections = 64,
                             .samples = 8192,
                             .positions = 256,
                             .w_style = 1,
                             .w_content = 1,
                             .w_velocity = 0.01};
const lgt_config lgt_tiny = {.batch = 2,
                             .latent = {8, 8, 4},
                             .base = 32,
                             .cond = 16,
                             .styles = 2,
                             .encoder_blocks = 1,
                             .decoder_blocks = 1,
                             .ode_steps = 2,
                             .kept = true,
                             .projections = 8,
                             .samples = 64,
                             .positions = 16,
                             .w_style = 1,
                             .w_content = 1,
                             .w_velocity = 0.01};

static pl_optim optimiser(void)
{
    pl_optim o = PL_OPTIM_INIT;
    o.lr.lr = 1e-4;
    o.weight_decay = 1e-5;
    o.clip_norm = 1;
    return o;
}

void lgt_micro(pl_nn *m, const void *config)
{
    const lgt_config *c = config;
    const double epsilon = 0.01, part = 1.0 / ACCUMULATE;
    pl_graph *g = m->g;
    pl_type image = lgt_batch_type(c, PL_F32);
    pl_val u = pl_input(g, "u", PL_TYPE(PL_F32, c->batch));
    lgt_batch in = {.src = pl_input(g, "src", image),
                    .style_ref = pl_input(g, "style_ref", image),
                    .style = pl_input(g, "style", PL_TYPE(PL_I64, c->batch)),
                    .x0 = pl_input(g, "x0", image),
                    .t = pl_shift(g, pl_scale(g, u, 1 - epsilon), epsilon),
                    .uncond = pl_input(g, "uncond", PL_TYPE(PL_BOOL, 1)),
                    .positions = pl_input(g, "positions", PL_TYPE(PL_I64, c->positions)),
                    .first = PL_NO_VAL,
                    .noise = PL_NO_VAL};
    in.rows[0] = pl_input(g, "rows", PL_TYPE(PL_I64, c->samples));
    in.directions[0] = pl_input(g, "directions", PL_TYPE(PL_F32, 36, c->projections));
    lgt_terms l = lgt_loss(m, c, &in);
    pl_output(g, "loss", pl_scale(g, l.loss, part));
    pl_output(g, "swd", pl_scale(g, l.swd, part));
    pl_output(g, "ssm", pl_scale(g, l.ssm, part));
    pl_output(g, "velocity", pl_scale(g, l.velocity, part));
    pl_optim o = optimiser();
    pl_grads grads;
    pl_optim_gradients(m, pl_scale(g, l.loss, part), &o, &grads);
    pl_optim_accumulate(m, &grads);
}

void lgt_apply(pl_nn *m, const void *config)
{
    (void)config;
    pl_optim o = optimiser();
    work_apply(m, &o);
}
