/* wandistill.c - a frozen video transformer distilled into a 2-D per-pixel transformer; the
 * networks are the recipe's. */
#include "workloads.h"

const wan_config wan_full = {.batch = 2,
                             .channels = 4,
                             .teacher_channels = 16,
                             .latent = 64,
                             .hidden = 1024,
                             .depth = 16,
                             .heads = 16,
                             .text_tokens = 226,
                             .text_dim = 4096,
                             .teacher_dim = 1536,
                             .teacher_ffn = 8960,
                             .teacher_heads = 12,
                             .teacher_layers = 30,
                             .teacher_freq = 256};
const wan_config wan_small = {.batch = 2,
                              .channels = 4,
                              .teacher_channels = 16,
                              .latent = 16,
                              .hidden = 256,
                              .depth = 4,
                              .heads = 4,
                              .text_tokens = 226,
                              .text_dim = 4096,
                              .teacher_dim = 1536,
                              .teacher_ffn = 8960,
                              .teacher_heads = 12,
                              .teacher_layers = 30,
                              .teacher_freq = 256};
const wan_config wan_tiny = {.batch = 2,
                             .channels = 4,
                             .teacher_channels = 16,
                             .latent = 8,
                             .hidden = 32,
                             .depth = 2,
                             .heads = 2,
                             .text_tokens = 6,
                             .text_dim = 24,
                             .teacher_dim = 48,
                             .teacher_ffn = 64,
                             .teacher_heads = 2,
                             .teacher_layers = 2,
                             .teacher_freq = 16};

void wan_step(pl_nn *m, const void *config)
{
    const wan_config *c = config;
    pl_graph *g = m->g;
    int64_t b = c->batch, s = c->latent;
    pl_val latents = pl_input(g, "latents", PL_TYPE(PL_F32, b, s, s, 4));
    pl_val t = pl_input(g, "t", PL_TYPE(PL_I64, b));
    pl_val text = pl_input(g, "text", PL_TYPE(PL_F32, b, c->text_tokens, c->text_dim));
    pl_val target = wan_target(m, c, latents, t, text, false);
    pl_val out = work_conv1(m, wan_student(m, c, latents, t, text), "project", 16);
    pl_val loss = pl_loss_mse(g, out, target);
    pl_output(g, "loss", loss);
    pl_optim o = PL_OPTIM_INIT;
    o.lr.lr = 1e-4;
    work_minimise(m, loss, &o);
}
