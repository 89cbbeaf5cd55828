/* restore.c - super-resolution inside the graph, for evaluations and for the pictures of a run.
 *
 * The same path as predict.c, for pictures of one tile, with few DDIM steps that are unrolled: a
 * step is x' = sqrt(b/a) x + (sqrt(1-b) - sqrt(b (1-a)/a)) eps, a and b the shares of the signal
 * before and after it.
 */
#include "stablesr.h"

#include <math.h>

pl_val sr_decoded(pl_nn *m, const sr_config *c, pl_val latent, pl_val given)
{
    bool frozen = m->frozen;
    m->frozen = true;
    pl_val x = c->fusion > 0 ? vae_decode_fused(m, &c->vae, latent, given, c->fusion)
                             : vae_decode(m, &c->vae, latent);
    m->frozen = frozen;
    return x;
}

pl_val sr_restored(pl_nn *m, const sr_config *c, const sr_batch *b, int steps)
{
    pl_graph *g = m->g;
    double last = sr_signal(c->start), gap = (double)c->start / (steps > 1 ? steps - 1 : 1);
    pl_val edges = sr_edge(m, c, b->edge), maps[SR_MAX_LEVELS];
    pl_val x = pl_add(g, pl_scale(g, b->lq, sqrt(last)), pl_scale(g, b->eps, sqrt(1 - last)));
    for (int i = steps - 1; i >= 0; i--) {
        int64_t time = steps > 1 ? (int64_t)nearbyint(i * gap) : c->start;
        int64_t then = i > 0 ? (int64_t)nearbyint((i - 1) * gap) : 0;
        double a = sr_signal(time), after = i > 0 ? sr_signal(then) : 1;
        pl_val t = pl_fill(g, PL_TYPE(PL_I64, c->batch), (double)time);
        sr_struct_encoder(m, c, b->lq, t, maps);
        pl_val eps = sr_unet(m, c, sr_fused(m, x, edges), t, b->context, maps);
        x = pl_add(g, pl_scale(g, x, sqrt(after / a)),
                   pl_scale(g, eps, sqrt(1 - after) - sqrt(after * (1 - a) / a)));
    }
    return pl_clamp(g, sr_decoded(m, c, x, b->bad), -1, 1);
}
