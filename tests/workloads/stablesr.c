/* stablesr.c - edge-guided super-resolution: SPADE layers and side networks trained through a
 * frozen diffusion U-Net; networks and loss are the recipe's. */
#include "workloads.h"

#define EDGE_FULL                                                                                  \
 .batch = 2, .image = 512, .latent = 64, .before = {1024, 1024, 1024, 1024, 1024},                 \
 .before_down = {512, 256, 64, 16, 4}, .stem = 64, .after = {256, 256, 256},                       \
 .after_down = {128, 64, 16, 4}
#define EDGE_TINY                                                                                  \
 .batch = 2, .image = 64, .latent = 8, .before = {8, 8, 8, 8, 8}, .before_down = {8, 8, 8, 4, 4},  \
 .stem = 8, .after = {16, 16, 16}, .after_down = {8, 8, 4, 4}

const sr_config sr_full = {EDGE_FULL,
                           .width = 320,
                           .mult = {1, 2, 4, 4},
                           .levels = 4,
                           .blocks = 2,
                           .depth = 1,
                           .attn_levels = 3,
                           .groups = 32,
                           .head_dim = 64,
                           .context = {77, 1024},
                           .struct_width = 256,
                           .struct_mult = {1, 1, 2, 2},
                           .struct_levels = 4,
                           .struct_blocks = 2,
                           .struct_attn_levels = 3,
                           .struct_out = 256,
                           .struct_heads = 4,
                           .spade_hidden = 128};
const sr_config sr_tiny = {EDGE_TINY,
                           .width = 32,
                           .mult = {1, 2},
                           .levels = 2,
                           .attn_levels = 1,
                           .head_dim = 16,
                           .blocks = 2,
                           .depth = 1,
                           .groups = 32,
                           .struct_blocks = 2,
                           .struct_attn_levels = 1,
                           .context = {7, 16},
                           .struct_width = 32,
                           .struct_mult = {1, 2},
                           .struct_levels = 2,
                           .struct_out = 32,
                           .struct_heads = 2,
                           .spade_hidden = 16};
const sr_config sr_edge_before_full = {EDGE_FULL, .edge_before = true};
const sr_config sr_edge_before_tiny = {EDGE_TINY, .edge_before = true};
const sr_config sr_edge_after_tiny = {EDGE_TINY};

static void minimise(pl_nn *m, pl_val loss)
{
    pl_optim o = PL_OPTIM_INIT;
    o.lr.lr = 5e-5;
    pl_output(m->g, "loss", loss);
    work_minimise(m, loss, &o);
}

void sr_edge_step(pl_nn *m, const void *config)
{
    const sr_config *c = config;
    int64_t side = c->edge_before ? c->image / 32 : c->latent;
    pl_val edge = pl_input(m->g, "edge", PL_TYPE(PL_F32, c->batch, c->image, c->image, 3));
    pl_val target = pl_input(m->g, "target", PL_TYPE(PL_F32, c->batch, side, side, 4));
    minimise(m, pl_loss_mse(m->g, sr_edge(m, c, edge), target));
}

/* Inputs "micro<i>.<name>". */
static pl_val micro_loss(pl_nn *m, const sr_config *c, int i)
{
    pl_graph *g = m->g;
    pl_type latent = PL_TYPE(PL_F32, c->batch, c->latent, c->latent, 4);
    return sr_loss(
        m, c,
        &(sr_batch){.z = pl_input(g, pl_nn_name(m, "micro%d.z_gt", i), latent),
                    .lq = pl_input(g, pl_nn_name(m, "micro%d.z_lq", i), latent),
                    .eps = pl_input(g, pl_nn_name(m, "micro%d.eps", i), latent),
                    .t = pl_input(g, pl_nn_name(m, "micro%d.t", i), PL_TYPE(PL_I64, c->batch)),
                    .context = pl_input(g, pl_nn_name(m, "micro%d.context", i),
                                        PL_TYPE(PL_F32, c->batch, c->context[0], c->context[1])),
                    .edge = pl_input(g, pl_nn_name(m, "micro%d.edge", i),
                                     PL_TYPE(PL_F32, c->batch, c->image, c->image, 3))});
}

/* Two micro-batches in one program. */
void sr_step(pl_nn *m, const void *config)
{
    pl_val first = pl_scale(m->g, micro_loss(m, config, 1), 0.5);
    pl_val loss = pl_add(m->g, first, pl_scale(m->g, micro_loss(m, config, 2), 0.5));
    pl_nn_set_trainable(pl_graph_store(m->g), SR_FROZEN, false);
    minimise(m, loss);
}
