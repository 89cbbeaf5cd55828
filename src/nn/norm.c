/* norm.c - group, layer, RMS and batch normalisation, from moments and elementwise ops.
 *
 * All are y = (x - mean) * rsqrt(var + eps) * weight + bias with the biased variance; they differ
 * in the dimensions that are averaged. Where the statistics are vectors along the channels
 * (BatchNorm, GroupNorm), everything but x * scale + shift is computed on the vectors, so that the
 * large tensor needs two operations, and its gradients two sums. BatchNorm in training also updates
 * its running statistics, with the unbiased variance, and counts its calls, through the context's
 * chain. Group, layer and RMS normalisation of bf16 and f16 compute in f32 and round once, at the
 * end. */
#include "nn/nn.h"

/* Returns a parameter [C] in the type of the arithmetic. */
static pl_val vector(pl_nn *m, const char *name, int64_t c, double start, pl_dtype as)
{
    pl_type t = PL_TYPE(m->dtype, c);
    return pl_cast(m->g, pl__nn_param(m, name, t, (pl_init){PL_INIT_CONST, start, 0}, NULL), as);
}

/* weight and bias [C], ones and zeros at first. */
static pl_val affine(pl_nn *m, pl_val y, int64_t c, bool with_bias)
{
    pl_dtype as = pl_val_type(m->g, y).dtype;
    y = pl_mul(m->g, y, vector(m, "weight", c, 1, as));
    return with_bias ? pl_add(m->g, y, vector(m, "bias", c, 0, as)) : y;
}

static pl_val widened(pl_graph *g, pl_val x)
{
    return pl_val_type(g, x).dtype == PL_F64 ? x : pl_cast(g, x, PL_F32);
}

static pl_val standard(pl_graph *g, pl_val x, pl_val mean, pl_val var, double eps)
{
    return pl_mul(g, pl_sub(g, x, mean), pl_rsqrt(g, pl_shift(g, var, eps)));
}

static double eps_of(pl_nn_norm o, double fallback)
{
    return o.eps > 0 ? o.eps : fallback;
}

/* Normalises x with statistics that broadcast along everything but the channels. */
static pl_val channelwise(pl_nn *m, pl_val x, pl_val mean, pl_val var, int64_t c, double eps,
                          bool with_affine)
{
    pl_graph *g = m->g;
    pl_dtype as = pl_val_type(g, x).dtype;
    pl_val scale = pl_rsqrt(g, pl_shift(g, var, eps));
    if (!with_affine) return pl_mul(g, pl_sub(g, x, mean), scale);
    pl_val weight = vector(m, "weight", c, 1, as), bias = vector(m, "bias", c, 0, as);
    scale = pl_mul(g, scale, weight);
    return pl_add(g, pl_mul(g, x, scale), pl_sub(g, bias, pl_mul(g, mean, scale)));
}

/* Computes the moments of a group from the moments of its channels [N, 1, groups, C/groups], which
 * one pass along contiguous channels gives: the mean of means, and the mean of variances plus the
 * variance of means. Both are broadcast back over the channels, [N, 1, C]. */
static void group_moments(pl_graph *g, pl_val x, int64_t groups, pl_val *mean, pl_val *var)
{
    pl_type t = pl_val_type(g, x); /* [N, positions, C] */
    int64_t c = t.dim[2];
    pl_val m, v;
    pl_moments(g, x, PL_AXIS(1), true, &m, &v);
    m = pl_reshape(g, m, PL_DIMS(t.dim[0], 1, groups, c / groups));
    v = pl_reshape(g, v, PL_DIMS(t.dim[0], 1, groups, c / groups));
    pl_val center = pl_mean(g, m, PL_AXIS(3), true);
    pl_val spread = pl_add(g, v, pl_square(g, pl_sub(g, m, center)));
    spread = pl_mean(g, spread, PL_AXIS(3), true);
    const int64_t wide[] = {t.dim[0], 1, groups, c / groups};
    *mean = pl_reshape(g, pl_broadcast(g, center, 4, wide), PL_DIMS(t.dim[0], 1, c));
    *var = pl_reshape(g, pl_broadcast(g, spread, 4, wide), PL_DIMS(t.dim[0], 1, c));
}

pl_val pl_nn_group_norm(pl_nn *m, pl_val x, const char *name, int64_t groups, pl_nn_norm o)
{
    if (!pl_val_ok(x)) return x;
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t c = pl__nn_dim(m, x, -1);
    if (t.rank < 2 || groups < 1 || c % groups)
        return pl_nn_fail(m, PL_ERR_SHAPE, "%s: %lld channels in %lld groups", name, (long long)c,
                          (long long)groups);
    pl_nn_push(m, "%s", name);
    pl_val mean, var, y = pl_reshape(g, widened(g, x), PL_DIMS(t.dim[0], -1, c));
    group_moments(g, y, groups, &mean, &var);
    y = channelwise(m, y, mean, var, c, eps_of(o, 1e-5), !o.no_affine);
    pl_nn_pop(m);
    return pl_cast(g, pl_reshape(g, y, t.rank, t.dim), t.dtype);
}

pl_val pl_nn_layer_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o)
{
    if (!pl_val_ok(x)) return x;
    pl_dtype own = pl_val_type(m->g, x).dtype;
    pl_nn_push(m, "%s", name);
    pl_val mean, var;
    x = widened(m->g, x);
    pl_moments(m->g, x, PL_AXIS(-1), true, &mean, &var);
    pl_val y = standard(m->g, x, mean, var, eps_of(o, 1e-5));
    if (!o.no_affine) y = affine(m, y, pl__nn_dim(m, x, -1), true);
    pl_nn_pop(m);
    return pl_cast(m->g, y, own);
}

pl_val pl_nn_rms_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o)
{
    if (!pl_val_ok(x)) return x;
    pl_graph *g = m->g;
    pl_dtype own = pl_val_type(g, x).dtype;
    pl_nn_push(m, "%s", name);
    x = widened(g, x);
    pl_val power = pl_mean(g, pl_square(g, x), PL_AXIS(-1), true);
    pl_val y = pl_mul(g, x, pl_rsqrt(g, pl_shift(g, power, eps_of(o, 1e-6))));
    if (!o.no_affine) y = affine(m, y, pl__nn_dim(m, x, -1), false);
    pl_nn_pop(m);
    return pl_cast(g, y, own);
}

/* Computes moments over the samples of all ranks: the mean of means, and the mean of variances plus
 * the variance of means. Everything is in f64, rounded once, so that the bits equal one rank's
 * moments of all samples: a kink or a maximum after the norm decides the same way on any number of
 * ranks. */
static void world_moments(pl_nn *m, int ranks, pl_val x, uint32_t axes, pl_val *mean, pl_val *var)
{
    pl_graph *g = m->g;
    const char *path = m->state->path;
    double share = 1.0 / ranks;
    pl_dtype own = pl_val_type(g, x).dtype == PL_F64 ? PL_F64 : PL_F32;
    pl_val mu, v;
    pl_moments(g, pl_cast(g, x, PL_F64), axes, false, &mu, &v);
    pl_val center = pl_scale(g, pl__nn_over_ranks(m, mu, pl_nn_name(m, "%s.mean", path)), share);
    pl_val spread = pl_add(g, v, pl_square(g, pl_sub(g, mu, center)));
    spread = pl_scale(g, pl__nn_over_ranks(m, spread, pl_nn_name(m, "%s.var", path)), share);
    *mean = pl_cast(g, center, own);
    *var = pl_cast(g, spread, own);
}

bool pl__nn_batch_moments(pl_nn *m, pl_val x, const char *name, const int slots[2], double momentum,
                          pl_val *mean, pl_val *var)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    const pl_nn_ranks *ranks = pl__nn_ranks(m);
    bool sync = ranks && ranks->sync_norm;
    int64_t c = pl__nn_dim(m, x, -1);
    /* samples per channel */
    int64_t n = c > 0 ? pl_type_elems(&t) / c * (sync ? ranks->ranks : 1) : 0;
    if (t.rank < 2 || (m->training && n < 2)) {
        pl_nn_fail(m, PL_ERR_SHAPE,
                   "%s: batch statistics of %lld values a channel; BatchNorm needs at least 2 "
                   "samples a micro-batch (batch over accumulate)",
                   name, (long long)n);
        return false;
    }
    *mean = pl_nn_read(m, slots[0]);
    *var = pl_nn_read(m, slots[1]);
    if (!m->training || (ranks && ranks->blind_norm)) return false;
    uint32_t axes = 0;
    for (int i = 0; i + 1 < t.rank; i++) axes |= PL_AXIS(i);
    if (sync)
        world_moments(m, ranks->ranks, x, axes, mean, var);
    else
        pl_moments(g, x, axes, false, mean, var);
    pl__nn_statistic(m, slots[0], *mean, momentum);
    pl__nn_statistic(m, slots[1], pl_scale(g, *var, (double)n / (double)(n - 1)), momentum);
    return true;
}

pl_val pl_nn_batch_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o)
{
    if (!pl_val_ok(x)) return x;
    int64_t c = pl__nn_dim(m, x, -1);
    pl_nn_push(m, "%s", name);
    pl_type vec = PL_TYPE(m->dtype, c);
    const int slots[] = {pl_nn_buffer(m, "running_mean", vec, (pl_init){PL_INIT_CONST, 0, 0}),
                         pl_nn_buffer(m, "running_var", vec, (pl_init){PL_INIT_CONST, 1, 0})};
    int count_slot =
        pl_nn_buffer(m, "num_batches_tracked", PL_RANK0(PL_I64), (pl_init){PL_INIT_CONST, 0, 0});
    pl_val mean = PL_NO_VAL, var = PL_NO_VAL;
    double momentum = o.momentum > 0 ? o.momentum : 0.1;
    if (pl__nn_batch_moments(m, x, name, slots, momentum, &mean, &var))
        pl_nn_update(m, count_slot, pl_shift(m->g, pl_nn_read(m, count_slot), 1));
    pl_val y = channelwise(m, x, mean, var, c, eps_of(o, 1e-5), !o.no_affine);
    pl_nn_pop(m);
    return y;
}
