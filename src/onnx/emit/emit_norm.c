/* emit_norm.c - normalisations, softmax and reductions.
 *
 * BatchNormalization trains when the program trains: exporters write training_mode 0 for models in
 * evaluation mode, and a model that is imported for training needs batch statistics. The running
 * statistics are those of PyTorch: the variance is the unbiased one. Outputs 1 and 2 of
 * training_mode 1 are the standard's: with the biased variance.
 *
 * Norms of f16 and bf16 compute in f32 and round once. */
#include "onnx/emit/emit.h"

#include "nn/nn.h"

#include <math.h>
#include <string.h>

static pl_val standard(pl_graph *g, pl_val x, pl_val mean, pl_val var, double eps)
{
    return pl_mul(g, pl_sub(g, x, mean), pl_rsqrt(g, pl_shift(g, var, eps)));
}

/* y = x * scale + shift, with vectors along the channels; the statistics are folded into both. */
static pl_val channelwise(pl_graph *g, pl_val x, pl_val mean, pl_val var, double eps, pl_val weight,
                          pl_val bias)
{
    pl_val scale = pl_mul(g, pl_rsqrt(g, pl_shift(g, var, eps)), weight);
    return pl_add(g, pl_mul(g, x, scale), pl_sub(g, bias, pl_mul(g, mean, scale)));
}

/* A vector input in the type of the arithmetic. */
static pl_val vector(pl_ox_call *c, int k, pl_dtype as)
{
    return pl_ox_cast(c->g, pl_ox_plain(c->b, c->in[k]), as);
}

static pl_status set_as(pl_ox_call *c, int k, pl_val y, pl_dtype as, const int *perm)
{
    return pl_ox_set(c, k, pl_ox_cast(c->g, y, as), perm);
}

/* ---- batch norm ------------------------------------------------------------------------------ */
/* Returns the slot of a running statistic, or -1 if the file does not store the input. Files with
 * statistics in f16 cast them to f32 before the node. */
static int slot_of(pl_ox_call *c, int k)
{
    const pl_ox_val *v = c->in[k];
    while (!v->init && v->op && strcmp(v->op, "Cast") == 0 && v->n_arg > 0) v = v->arg[0];
    const pl_ox_init *t = v->init;
    pl_ox_any(c->b, c->in[k]);
    return t ? pl_store_find(pl_graph_store(c->g), t->about.name) : -1;
}

/* The running statistic of input k at this point of the program. */
static pl_val running(pl_ox_call *c, int k, int slot, pl_dtype as)
{
    return slot >= 0 ? pl_ox_cast(c->g, pl_nn_read(c->b->m, slot), as) : vector(c, k, as);
}

pl_status pl_ox_emit_batch_norm(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL, mean = PL_NO_VAL, var = PL_NO_VAL;
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    for (int k = 1; k < 5; k++)
        if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
    if (v->rank < 2) return pl_ox_fail(c, PL_ERR_SHAPE, "an input of %d dimensions", v->rank);
    for (int k = 1; k < 5; k++) /* opsets below 9: spatial=0 has a number for each position */
        if (c->in[k]->rank != 1 || c->in[k]->dim[0] != v->dim[1])
            return pl_ox_fail(c, PL_ERR_SHAPE,
                              "input %d has %lld elements in %d dimensions; it must have one for "
                              "each of %lld channels",
                              k, (long long)pl_ox_elems(c->in[k]), c->in[k]->rank,
                              (long long)v->dim[1]);
    pl_graph *g = c->g;
    x = pl_ox_wide(g, pl_ox_last(c->b, v));
    pl_dtype as = pl_val_type(g, x).dtype;
    double eps = pl_ox_attr_float(c, "epsilon", 1e-5);
    double keep = pl_ox_attr_float(c, "momentum", 0.9);
    const int slots[] = {slot_of(c, 3), slot_of(c, 4)};
    bool mode = pl_ox_attr_int(c, "training_mode", 0) != 0, train = c->b->m->training;
    pl_val old[] = {running(c, 3, slots[0], as), running(c, 4, slots[1], as)};
    mean = old[0];
    var = old[1];
    if (train && slots[0] >= 0 && slots[1] >= 0) {
        const char *name = c->node->name && c->node->name[0] ? c->node->name : c->in[3]->name;
        pl__nn_batch_moments(c->b->m, x, name, slots, 1 - keep, &mean, &var);
        mean = pl_ox_cast(g, mean, as);
        var = pl_ox_cast(g, var, as);
    } else if (mode && train) {
        uint32_t axes = 0;
        for (int i = 0; i + 1 < v->rank; i++) axes |= PL_AXIS(i);
        pl_moments(g, x, axes, false, &mean, &var);
    }
    for (int k = 0; k < 2 && mode; k++) {
        pl_val now = pl_scale(g, k ? var : mean, 1 - keep);
        pl_val next = train ? pl_add(g, pl_scale(g, old[k], keep), now) : old[k];
        PL_TRY(set_as(c, 1 + k, next, c->in[3 + k]->dtype, NULL));
    }
    pl_ox_last_perm(v->rank, perm);
    pl_val y = channelwise(g, x, mean, var, eps, vector(c, 1, as), vector(c, 2, as));
    return set_as(c, 0, y, v->dtype, perm);
}

/* ---- group and instance norm ----------------------------------------------------------------- */
/* Moments over positions and the channels of a group, from those of each channel; [N, 1, C]. */
static void group_moments(pl_graph *g, pl_val x, int64_t groups, pl_val *mean, pl_val *var)
{
    pl_type t = pl_val_type(g, x); /* [N, positions, C] */
    int64_t n = t.dim[0], ch = t.dim[2], per = ch / groups;
    pl_moments(g, x, PL_AXIS(1), true, mean, var);
    if (per == 1) return;
    const int64_t wide[] = {n, 1, groups, per};
    pl_val m = pl_reshape(g, *mean, 4, wide), v = pl_reshape(g, *var, 4, wide);
    pl_val center = pl_mean(g, m, PL_AXIS(3), true);
    pl_val spread = pl_mean(g, pl_add(g, v, pl_square(g, pl_sub(g, m, center))), PL_AXIS(3), true);
    *mean = pl_reshape(g, pl_broadcast(g, center, 4, wide), PL_DIMS(n, 1, ch));
    *var = pl_reshape(g, pl_broadcast(g, spread, 4, wide), PL_DIMS(n, 1, ch));
}

/* A number for each of n groups, or for each of the channels, as a vector of the channels. */
static pl_val spread(pl_ox_call *c, pl_ox_val *v, int64_t groups, int64_t ch, pl_dtype as)
{
    pl_graph *g = c->g;
    pl_val x = pl_ox_cast(g, pl_ox_plain(c->b, v), as);
    if (v->dim[0] != groups || groups == ch) return x;
    x = pl_broadcast(g, pl_reshape(g, x, PL_DIMS(groups, 1)), PL_DIMS(groups, ch / groups));
    return pl_reshape(g, x, PL_DIMS(ch));
}

pl_status pl_ox_group_norm(pl_ox_call *c, pl_ox_val *v, int64_t groups, pl_ox_val *scale,
                           pl_ox_val *shift, double eps)
{
    int perm[PL_MAX_RANK];
    int64_t ch = v->dim[1];
    if (!groups) groups = ch;
    if (groups < 1 || ch % groups)
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld channels in %lld groups", (long long)ch,
                          (long long)groups);
    pl_graph *g = c->g;
    pl_val x = pl_ox_wide(g, pl_ox_last(c->b, v));
    pl_type t = pl_val_type(g, x);
    pl_val mean, var, y = pl_reshape(g, x, PL_DIMS(t.dim[0], -1, ch));
    group_moments(g, y, groups, &mean, &var);
    y = channelwise(g, y, mean, var, eps, spread(c, scale, groups, ch, t.dtype),
                    spread(c, shift, groups, ch, t.dtype));
    pl_ox_last_perm(v->rank, perm);
    return set_as(c, 0, pl_reshape(g, y, t.rank, t.dim), v->dtype, perm);
}

static pl_status group_norm(pl_ox_call *c, int64_t groups)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    if (!pl_ox_has(c, 1) || !pl_ox_has(c, 2) || v->rank < 2)
        return pl_ox_fail(c, PL_ERR_FILE, "scale or bias is missing");
    return pl_ox_group_norm(c, v, groups, c->in[1], c->in[2], pl_ox_attr_float(c, "epsilon", 1e-5));
}
pl_status pl_ox_emit_group_norm(pl_ox_call *c)
{
    int64_t groups = pl_ox_attr_int(c, "num_groups", 1);
    if (groups < 1) return pl_ox_fail(c, PL_ERR_FILE, "num_groups is %lld", (long long)groups);
    return group_norm(c, groups);
}
pl_status pl_ox_emit_instance_norm(pl_ox_call *c)
{
    return group_norm(c, 0);
}

/* ---- layer and RMS norm ---------------------------------------------------------------------- */
/* Axes from `axis` to the last, in v's physical order. */
static pl_status trailing(pl_ox_call *c, const pl_ox_val *v, uint32_t *axes)
{
    int axis;
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -1), v->rank, &axis));
    *axes = 0;
    for (int i = 0; i < v->rank; i++)
        if (v->perm[i] >= axis) *axes |= PL_AXIS(i);
    return PL_OK;
}

/* Input k, scale or bias, in the order of x. */
static pl_val beside(pl_ox_call *c, int k, const pl_ox_val *v, pl_dtype as)
{
    return pl_ox_cast(c->g, pl_ox_ordered(c->b, c->in[k], v->rank, v->perm), as);
}

pl_status pl_ox_emit_layer_norm(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL, mean = PL_NO_VAL, var = PL_NO_VAL;
    uint32_t axes;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(trailing(c, v, &axes));
    pl_graph *g = c->g;
    x = pl_ox_wide(g, x);
    pl_dtype as = pl_val_type(g, x).dtype;
    double eps = pl_ox_attr_float(c, "epsilon", 1e-5);
    pl_moments(g, x, axes, true, &mean, &var);
    pl_val y = standard(g, x, mean, var, eps);
    if (pl_ox_has(c, 1)) y = pl_mul(g, y, beside(c, 1, v, as));
    if (pl_ox_has(c, 2)) y = pl_add(g, y, beside(c, 2, v, as));
    PL_TRY(set_as(c, 0, y, v->dtype, v->perm));
    PL_TRY(pl_ox_set(c, 1, mean, v->perm));
    return c->n_out > 2 ? pl_ox_set(c, 2, pl_rsqrt(g, pl_shift(g, var, eps)), v->perm) : PL_OK;
}

pl_status pl_ox_emit_rms_norm(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    uint32_t axes;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(trailing(c, v, &axes));
    pl_graph *g = c->g;
    x = pl_ox_wide(g, x);
    pl_dtype as = pl_val_type(g, x).dtype;
    pl_val power = pl_mean(g, pl_square(g, x), axes, true);
    double eps = pl_ox_attr_float(c, "epsilon", 1e-5);
    pl_val y = pl_mul(g, x, pl_rsqrt(g, pl_shift(g, power, eps)));
    if (pl_ox_has(c, 1)) y = pl_mul(g, y, beside(c, 1, v, as));
    return set_as(c, 0, y, v->dtype, v->perm);
}

pl_status pl_ox_emit_mean_variance_norm(pl_ox_call *c)
{
    static const int64_t usual[] = {0, 2, 3};
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL, mean = PL_NO_VAL, var = PL_NO_VAL;
    int n, at;
    uint32_t axes = 0;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    const int64_t *p = pl_ox_attr_ints(c, "axes", &n);
    if (!p) p = usual, n = 3;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, p[i], v->rank, &at));
        axes |= PL_AXIS(pl_ox_axis(v, at));
    }
    pl_moments(c->g, x, axes, true, &mean, &var);
    pl_val spread = pl_shift(c->g, pl_sqrt(c->g, var), 1e-9);
    return pl_ox_set(c, 0, pl_div(c->g, pl_sub(c->g, x, mean), spread), v->perm);
}

/* Divides by powers of sums over neighbouring channels. */
pl_status pl_ox_emit_lrn(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    int64_t size = pl_ox_attr_int(c, "size", 1);
    if (v->rank < 2 || size < 1 || size > 1 << 16)
        return pl_ox_fail(c, PL_ERR_SHAPE, "size %lld", (long long)size);
    int axis = pl_ox_axis(v, 1);
    int64_t ch = v->dim[1], lo = (size - 1) / 2;
    pl_graph *g = c->g;
    pl_val sq = pl_pad(g, pl_square(g, x), axis, lo, size - 1 - lo, 0, 0), sum = PL_NO_VAL;
    for (int64_t k = 0; k < size; k++) {
        pl_val part = pl_slice(g, sq, axis, k, k + ch, 1);
        sum = pl_val_ok(sum) ? pl_add(g, sum, part) : part;
    }
    double alpha = pl_ox_attr_float(c, "alpha", 1e-4), beta = pl_ox_attr_float(c, "beta", 0.75);
    sum = pl_shift(g, pl_scale(g, sum, alpha / (double)size), pl_ox_attr_float(c, "bias", 1));
    return pl_ox_set(c, 0, pl_mul(g, x, pl_pow(g, sum, pl_full_like(g, sum, -beta))), v->perm);
}

pl_status pl_ox_emit_lp_norm(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -1), v->rank, &axis));
    pl_graph *g = c->g;
    uint32_t at = PL_AXIS(pl_ox_axis(v, axis));
    pl_val norm = pl_ox_attr_int(c, "p", 2) == 1 ? pl_sum(g, pl_abs(g, x), at, true)
                                                 : pl_sqrt(g, pl_sum(g, pl_square(g, x), at, true));
    pl_val none = pl_eq(g, norm, pl_full_like(g, norm, 0)); /* 0 stays 0 */
    norm = pl_select(g, none, pl_full_like(g, norm, 1), norm);
    return pl_ox_set(c, 0, pl_div(g, x, norm), v->perm);
}

/* ---- softmax --------------------------------------------------------------------------------- */
/* Before opset 13 all dimensions from `axis` on are one. */
static pl_status softmax(pl_ox_call *c, pl_val (*fn)(pl_graph *, pl_val, int))
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    bool old = c->b->opset < 13;
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", old ? 1 : -1), v->rank, &axis));
    if (!old || axis == v->rank - 1)
        return pl_ox_set(c, 0, fn(c->g, x, pl_ox_axis(v, axis)), v->perm);
    int64_t dim[2] = {1, 1};
    for (int i = 0; i < v->rank; i++) dim[i >= axis] *= v->dim[i];
    x = fn(c->g, pl_reshape(c->g, pl_ox_plain(c->b, v), 2, dim), 1);
    return pl_ox_set(c, 0, pl_reshape(c->g, x, v->rank, v->dim), NULL);
}
pl_status pl_ox_emit_softmax(pl_ox_call *c)
{
    return softmax(c, pl_softmax);
}
pl_status pl_ox_emit_log_softmax(pl_ox_call *c)
{
    return softmax(c, pl_log_softmax);
}
static pl_val hardmax(pl_graph *g, pl_val x, int axis)
{
    pl_type t = pl_val_type(g, x);
    pl_val best = pl_unsqueeze(g, pl_argmax(g, x, axis), axis);
    t.dtype = PL_I32;
    pl_val hit = pl_eq(g, pl_iota(g, t, axis), pl_broadcast(g, best, t.rank, t.dim));
    return pl_cast(g, hit, pl_val_type(g, x).dtype);
}
pl_status pl_ox_emit_hardmax(pl_ox_call *c)
{
    return softmax(c, hardmax);
}

/* ---- reductions ------------------------------------------------------------------------------ */
typedef pl_val reduce_fn(pl_graph *g, pl_val x, uint32_t axes);

static pl_status reduce(pl_ox_call *c, reduce_fn *fn)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *p;
    int n, at;
    bool gone[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "axes", &p, &n));
    /* without axes the elements are not summed, but squared, as absolute values, ... */
    bool all = !n && !pl_ox_attr_int(c, "noop_with_empty_axes", 0);
    for (int i = 0; i < v->rank && all; i++) gone[i] = true;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, p[i], v->rank, &at));
        gone[at] = true;
    }
    uint32_t axes = 0;
    int64_t dim[PL_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < v->rank; i++) {
        if (gone[v->perm[i]]) axes |= PL_AXIS(i);
        if (!gone[i]) dim[rank++] = v->dim[i];
    }
    if (!axes) return pl_ox_set(c, 0, fn(c->g, x, 0), v->perm);
    pl_val y = fn(c->g, x, axes);
    if (!pl_val_ok(y) || pl_ox_attr_int(c, "keepdims", 1)) return pl_ox_set(c, 0, y, v->perm);
    pl_ox_val *kept = pl_ox_val_new(c->b, y, v->perm);
    pl_ox_val *small = kept ? pl_ox_reshaped(c->b, kept, rank, dim) : NULL;
    return small ? pl_ox_set(c, 0, small->v, small->perm) : PL_ERR_MEMORY;
}
#define REDUCE(name, expr)                                                                         \
 static pl_val reduce_##name(pl_graph *g, pl_val x, uint32_t axes)                                 \
 {                                                                                                 \
  return (expr);                                                                                   \
 }                                                                                                 \
 pl_status pl_ox_emit_reduce_##name(pl_ox_call *c)                                                 \
 {                                                                                                 \
  return reduce(c, reduce_##name);                                                                 \
 }

static pl_val total(pl_graph *g, pl_val x, uint32_t axes)
{
    return axes ? pl_sum(g, x, axes, true) : x;
}

static pl_type reduced(pl_type t, uint32_t axes)
{
    for (int i = 0; i < t.rank; i++)
        if (axes & PL_AXIS(i)) t.dim[i] = 1;
    return t;
}

/* The largest of no elements is the smallest number of the type, and the other way round. */
static pl_val extreme_of_none(pl_graph *g, pl_type t, uint32_t axes, bool max)
{
    double size = HUGE_VAL;
    t = reduced(t, axes);
    if (t.dtype == PL_BOOL) return pl_fill(g, t, !max);
    if (!pl_dtype_is_float(t.dtype)) size = t.dtype == PL_I64 ? 0x1p63 : 0x1p31;
    return pl_fill(g, t, max ? -size : pl_dtype_is_float(t.dtype) ? size : size - 1);
}

static bool has_none(const pl_type *t, uint32_t axes)
{
    for (int i = 0; i < t->rank; i++)
        if ((axes & PL_AXIS(i)) && t->dim[i] == 0) return true;
    return false;
}

static pl_val log_sum_exp(pl_graph *g, pl_val x, uint32_t axes)
{
    if (!axes) return x;
    pl_type t = pl_val_type(g, x);
    if (has_none(&t, axes)) return extreme_of_none(g, t, axes, true);
    pl_val top = pl_stop_gradient(g, pl_max_over(g, x, axes, true));
    return pl_add(g, pl_log(g, pl_sum(g, pl_exp(g, pl_sub(g, x, top)), axes, true)), top);
}

static pl_val l2(pl_graph *g, pl_val x, uint32_t axes)
{
    return pl_sqrt(g, total(g, pl_square(g, x), axes));
}
static pl_val log_sum(pl_graph *g, pl_val x, uint32_t axes)
{
    return pl_log(g, total(g, x, axes));
}

/* Whole numbers as f64, and the result cut to a whole number. */
static pl_val in_floats(pl_graph *g, pl_val x, uint32_t axes, reduce_fn *fn)
{
    pl_dtype type = pl_val_type(g, x).dtype;
    if (pl_dtype_is_float(type)) return fn(g, x, axes);
    return pl_cast(g, fn(g, pl_cast(g, x, PL_F64), axes), type);
}

/* Products by halves: fewer nodes than one factor after another, a gradient without division. */
static pl_val product(pl_graph *g, pl_val x, uint32_t axes)
{
    pl_type t = pl_val_type(g, x);
    if (has_none(&t, axes)) return pl_fill(g, reduced(t, axes), 1);
    for (int axis = 0; axis < PL_MAX_RANK; axis++) {
        if (!(axes & PL_AXIS(axis))) continue;
        for (int64_t d; (d = pl_val_type(g, x).dim[axis]) > 1;) {
            pl_val y = pl_mul(g, pl_slice(g, x, axis, 0, d / 2, 1),
                              pl_slice(g, x, axis, d / 2, d / 2 * 2, 1));
            if (d % 2) {
                pl_val part[] = {y, pl_slice(g, x, axis, d - 1, d, 1)};
                y = pl_concat(g, 2, part, axis);
            }
            if (!pl_val_ok(y)) return y;
            x = y;
        }
    }
    return x;
}

/* Largest and smallest, also of truth values. */
static pl_val extreme(pl_graph *g, pl_val x, uint32_t axes, bool max)
{
    if (!axes) return x;
    pl_type t = pl_val_type(g, x);
    if (has_none(&t, axes)) return extreme_of_none(g, t, axes, max);
    bool truth = t.dtype == PL_BOOL;
    if (truth) x = pl_cast(g, x, PL_I32);
    x = max ? pl_max_over(g, x, axes, true) : pl_min_over(g, x, axes, true);
    return truth ? pl_ne(g, x, pl_full_like(g, x, 0)) : x;
}

REDUCE(sum, total(g, x, axes))
REDUCE(mean, axes ? pl_mean(g, x, axes, true) : x)
REDUCE(max, extreme(g, x, axes, true))
REDUCE(min, extreme(g, x, axes, false))
REDUCE(prod, product(g, x, axes))
REDUCE(l1, total(g, pl_abs(g, x), axes))
REDUCE(l2, in_floats(g, x, axes, l2))
REDUCE(sum_square, total(g, pl_square(g, x), axes))
REDUCE(log_sum, in_floats(g, x, axes, log_sum))
REDUCE(log_sum_exp, in_floats(g, x, axes, log_sum_exp))
