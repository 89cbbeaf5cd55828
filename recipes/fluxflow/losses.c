/* losses.c - the terms that FluxFlow is trained with, and the weights between them. */
#include "fluxflow.h"

pl_val flux_reconstruction(pl_graph *g, pl_val x, pl_val target, double mse_weight)
{
    pl_pool_opts o = {
        .kernel = {3, 3}, .stride = {1, 1}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .count_pad = true};
    pl_val low = pl_avg_pool(g, x, &o), want = pl_avg_pool(g, target, &o);
    pl_val split = pl_loss_l1(g, low, want);
    split = pl_add(g, split, pl_loss_l1(g, pl_sub(g, x, low), pl_sub(g, target, want)));
    return pl_add(g, split, pl_scale(g, pl_loss_mse(g, x, target), mse_weight));
}

pl_val flux_kl(pl_graph *g, pl_val mu, pl_val logvar, double free_bits)
{
    if (free_bits <= 0) return pl_loss_kl(g, mu, logvar);
    pl_val each = pl_sub(g, pl_add(g, pl_square(g, mu), pl_exp(g, logvar)), pl_shift(g, logvar, 1));
    each = pl_scale(g, each, 0.5);
    each = pl_max(g, each, pl_full_like(g, each, free_bits));
    double samples = (double)pl_val_type(g, mu).dim[0];
    return pl_scale(g, pl_sum(g, each, PL_AXES_ALL, false), 1 / samples);
}

pl_val flux_kl_weight(pl_graph *g, pl_val step, double top, double warmup)
{
    pl_val part = pl_clamp(g, pl_scale(g, pl_cast(g, step, PL_F64), 1 / warmup), 0, 1);
    pl_val wave = pl_cos(g, pl_scale(g, part, 3.14159265358979323846));
    return pl_scale(g, pl_shift(g, pl_neg(g, wave), 1), top / 2);
}

pl_val flux_rolling_weights(pl_nn *m, pl_val raw, int64_t n, bool signed_means)
{
    enum { WINDOW = 100 };
    pl_graph *g = m->g;
    pl_init zero = {PL_INIT_CONST, 0, 0};
    pl_store *s = pl_graph_store(g);
    int ring = pl_store_add(s, &(pl_slot){.name = "rolling.values",
                                          .kind = PL_SLOT_COUNTER,
                                          .type = PL_TYPE(m->dtype, n, WINDOW),
                                          .init = zero});
    int count = pl_store_add(s, &(pl_slot){.name = "rolling.count",
                                           .kind = PL_SLOT_COUNTER,
                                           .type = PL_RANK0(PL_I64),
                                           .init = zero});
    pl_val values = pl_nn_read(m, ring), done = pl_nn_read(m, count);
    pl_val column = pl_iota(g, PL_TYPE(PL_I64, n, WINDOW), 1);
    pl_val here = pl_eq(g, column, pl_mod(g, done, pl_full_like(g, done, WINDOW)));
    raw = pl_stop_gradient(g, raw);
    if (!signed_means) raw = pl_abs(g, raw);
    values = pl_select(g, here, pl_unsqueeze(g, raw, 1), values);
    done = pl_shift(g, done, 1);
    pl_nn_update(m, ring, values);
    pl_nn_update(m, count, done);
    pl_val filled = pl_cast(g, pl_min(g, done, pl_full_like(g, done, WINDOW)), m->dtype);
    pl_val mean = pl_div(g, pl_sum(g, values, PL_AXIS(1), false), filled);
    pl_val positive = pl_cast(g, pl_gt(g, mean, pl_full_like(g, mean, 0)), m->dtype);
    pl_val total = pl_sum(g, pl_mul(g, mean, positive), PL_AXES_ALL, false);
    pl_val many = pl_sum(g, positive, PL_AXES_ALL, false);
    pl_val none = pl_eq(g, many, pl_full_like(g, many, 0));
    many = pl_max(g, many, pl_full_like(g, many, 1));
    pl_val weight = pl_div(g, pl_div(g, total, many), pl_shift(g, mean, 1e-8));
    pl_val one = pl_full_like(g, weight, 1);
    weight = pl_select(g, pl_eq(g, mean, pl_full_like(g, mean, 0)), one, weight);
    return pl_select(g, none, one, weight);
}
