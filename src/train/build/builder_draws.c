/* builder_draws.c - random numbers of recipes. They go through the builder, so that a replay can
 * feed them from a dump. Labels of batches that are mixed at random are here too. */
#include "train/build/builder.h"
#include "train/data/mix_batch.h"

pl_val pl_draw_uniform(pl_builder *b, pl_nn *m, const char *name, pl_type type)
{
    return b->draws_are_inputs ? pl_input(m->g, name, type)
                               : pl_random_uniform(m->g, pl_nn_key(m), type);
}

pl_val pl_draw_normal(pl_builder *b, pl_nn *m, const char *name, pl_type type)
{
    return b->draws_are_inputs ? pl_input(m->g, name, type)
                               : pl_random_normal(m->g, pl_nn_key(m), type);
}

pl_val pl_draw_keep(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p)
{
    if (b->draws_are_inputs) return pl_input(m->g, name, type);
    if (!m->training || p <= 0) return pl_fill(m->g, type, 1);
    pl_val u = pl_random_uniform(m->g, pl_nn_key(m), type);
    pl_val keep = pl_ge(m->g, u, pl_full_like(m->g, u, p));
    return pl_select(m->g, keep, pl_full_like(m->g, u, 1 / (1 - p)), pl_full_like(m->g, u, 0));
}

pl_val pl_draw_permutation(pl_builder *b, pl_nn *m, const char *name, int64_t n)
{
    return b->draws_are_inputs ? pl_input(m->g, name, PL_TYPE(PL_I64, n))
                               : pl_random_permutation(m->g, pl_nn_key(m), n);
}

pl_val pl_draw_choice(pl_builder *b, pl_nn *m, const char *name, int64_t n, int64_t count)
{
    if (b->draws_are_inputs) return pl_input(m->g, name, PL_TYPE(PL_I64, count));
    return pl_slice(m->g, pl_random_permutation(m->g, pl_nn_key(m), n), 0, 0, count, 1);
}

pl_val pl_draw_integers(pl_builder *b, pl_nn *m, const char *name, pl_type type, int64_t high)
{
    if (b->draws_are_inputs) return pl_input(m->g, name, type);
    pl_type real = type;
    real.dtype = PL_F32;
    pl_val u = pl_random_uniform(m->g, pl_nn_key(m), real);
    u = pl_floor(m->g, pl_scale(m->g, u, (double)high));
    return pl_cast(m->g, pl_clamp(m->g, u, 0, (double)(high - 1)), type.dtype);
}

pl_val pl_draw_chance(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p)
{
    if (b->draws_are_inputs) return pl_input(m->g, name, type);
    pl_type real = type;
    real.dtype = PL_F32;
    pl_val u = pl_random_uniform(m->g, pl_nn_key(m), real);
    return pl_lt(m->g, u, pl_full_like(m->g, u, p));
}

pl_val pl_builder_label_loss(pl_builder *b, pl_nn *m, pl_val logits, const char *name, pl_val label,
                             pl_cross_entropy o)
{
    if (!m->training || !pl__mix_wanted(pl_builder_config(b)) || !pl_val_ok(label))
        return pl_loss_cross_entropy_with(m->g, logits, label, o);
    pl_type rows = pl_val_type(m->g, label);
    pl_val mixed = pl_input(m->g, pl_nn_name(m, "%s.mixed", name), rows);
    rows.dtype = PL_F32;
    pl_val share = pl_input(m->g, pl_nn_name(m, "%s.share", name), rows);
    return pl_loss_cross_entropy_mixed(m->g, logits, label, mixed, share, o);
}
