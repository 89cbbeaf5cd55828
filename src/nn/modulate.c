/* modulate.c - activations by name, dropout, gates, modulation, and small shape helpers. */
#include "nn/nn.h"

#include <string.h>

static pl_val leaky(pl_graph *g, pl_val x)
{
    return pl_leaky_relu(g, x, 0.01);
}

static pl_val identity(pl_graph *g, pl_val x)
{
    (void)g;
    return x;
}

pl_val pl_nn_activation(pl_nn *m, pl_val x, const char *name)
{
    static const struct {
        const char *name;
        pl_val (*fn)(pl_graph *, pl_val);
    } table[] = {
        {"relu", pl_relu},       {"leaky_relu", leaky},       {"silu", pl_silu},
        {"gelu", pl_gelu},       {"gelu_tanh", pl_gelu_tanh}, {"tanh", pl_tanh},
        {"sigmoid", pl_sigmoid}, {"softplus", pl_softplus},   {"identity", identity},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) return table[i].fn(m->g, x);
    return pl_nn_fail(m, PL_ERR_ARG, "no activation \"%s\"", name);
}

pl_val pl_nn_dropout(pl_nn *m, pl_val x, double p)
{
    return m->training && p > 0 ? pl_dropout(m->g, x, pl_nn_key(m), p) : x;
}

pl_val pl_nn_dropout_channels(pl_nn *m, pl_val x, double p)
{
    return m->training && p > 0 ? pl_dropout_channels(m->g, x, pl_nn_key(m), p) : x;
}

pl_val pl_nn_drop_path(pl_nn *m, pl_val x, double p)
{
    if (!m->training || p <= 0 || !pl_val_ok(x)) return x;
    pl_type t = pl_val_type(m->g, x);
    for (int i = 1; i < t.rank; i++) t.dim[i] = 1;
    /* A column of ones after dropout is the factor of each sample: 0 or 1/(1-p). */
    return pl_mul(m->g, x, pl_dropout(m->g, pl_fill(m->g, t, 1), pl_nn_key(m), p));
}

pl_val pl_nn_geglu(pl_nn *m, pl_val x, const char *name, int64_t out)
{
    pl_val half[2] = {PL_NO_VAL, PL_NO_VAL};
    pl_split(m->g, pl_nn_linear(m, x, name, 2 * out, (pl_nn_lin){0}), -1, 2, half);
    return pl_mul(m->g, half[0], pl_gelu(m->g, half[1]));
}

pl_val pl_nn_swiglu(pl_nn *m, pl_val x, const char *name, int64_t hidden)
{
    const pl_nn_lin lin = {.no_bias = true};
    int64_t e = pl__nn_dim(m, x, -1);
    pl_nn_push(m, "%s", name);
    pl_val gate = pl_silu(m->g, pl_nn_linear(m, x, "gate_proj", hidden, lin));
    pl_val y = pl_mul(m->g, gate, pl_nn_linear(m, x, "up_proj", hidden, lin));
    y = pl_nn_linear(m, y, "down_proj", e, lin);
    pl_nn_pop(m);
    return y;
}

/* r^3 p0 + 3 r^2 s p1 + 3 r s^2 p2 + s^3 p3, r = 1 - s */
static pl_val curve(pl_graph *g, pl_val s, const pl_val p[4])
{
    pl_val r = pl_shift(g, pl_neg(g, s), 1);
    pl_val rr = pl_mul(g, r, r), ss = pl_mul(g, s, s);
    pl_val y = pl_mul(g, pl_mul(g, rr, r), p[0]);
    y = pl_add(g, y, pl_mul(g, pl_scale(g, pl_mul(g, rr, s), 3), p[1]));
    y = pl_add(g, y, pl_mul(g, pl_scale(g, pl_mul(g, r, ss), 3), p[2]));
    return pl_add(g, y, pl_mul(g, pl_mul(g, ss, s), p[3]));
}

pl_val pl_nn_trainable_bezier(pl_nn *m, pl_val x, const char *name, const double start[4])
{
    int64_t c = pl__nn_dim(m, x, -1);
    pl_val p[4];
    pl_nn_push(m, "%s", name);
    for (int i = 0; i < 4; i++)
        p[i] = pl_nn_param_as(m, pl_nn_name(m, "p.%d", i), PL_DIMS(c), PL_DIMS(c, 1, 1),
                              pl_nn_constant(start[i]));
    pl_val y = curve(m->g, pl_sigmoid(m->g, x), p);
    pl_nn_pop(m);
    return y;
}

pl_val pl_nn_over(pl_graph *g, pl_val v, pl_val x)
{
    if (!pl_val_ok(v) || !pl_val_ok(x)) return PL_NO_VAL;
    pl_type tv = pl_val_type(g, v), tx = pl_val_type(g, x);
    if (tv.rank != 2 || tx.rank <= 2) return v;
    int64_t dim[PL_MAX_RANK];
    for (int i = 0; i < tx.rank; i++) dim[i] = 1;
    dim[0] = tv.dim[0];
    dim[tx.rank - 1] = tv.dim[1];
    return pl_reshape(g, v, tx.rank, dim);
}

pl_val pl_nn_film(pl_graph *g, pl_val x, pl_val gamma, pl_val beta)
{
    return pl_add(g, pl_mul(g, pl_nn_over(g, gamma, x), x), pl_nn_over(g, beta, x));
}

pl_val pl_nn_modulate(pl_graph *g, pl_val x, pl_val scale, pl_val shift)
{
    return pl_nn_film(g, x, pl_shift(g, scale, 1), shift);
}

/* The clamp is under the root, so that the gradient of a zero vector is zero and not 0/0. */
pl_val pl_nn_normalize(pl_graph *g, pl_val x, int axis, double eps)
{
    pl_val power = pl_sum(g, pl_square(g, x), PL_AXIS(axis), true);
    return pl_div(g, x, pl_sqrt(g, pl_max(g, power, pl_full_like(g, power, eps * eps))));
}

pl_val pl_nn_upsample_nearest(pl_graph *g, pl_val x, int factor)
{
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    int64_t out[PL_MAX_RANK] = {0};
    for (int i = 0; i + 2 < t.rank; i++) out[i] = t.dim[i + 1] * factor;
    return pl_resize(g, x, out, PL_RESIZE_NEAREST, false);
}

pl_val pl_nn_global_average(pl_graph *g, pl_val x)
{
    if (!pl_val_ok(x)) return x;
    uint32_t axes = 0;
    for (int i = 1; i + 1 < pl_val_type(g, x).rank; i++) axes |= PL_AXIS(i);
    return axes ? pl_mean(g, x, axes, false) : x;
}
