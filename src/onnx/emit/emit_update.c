/* emit_update.c - the optimizers of the domain ai.onnx.preview.training: one update of weights, as
 * arithmetic. Their inputs are the rate R, the number of updates T, then all weights X, all
 * gradients G and all states; their outputs are the new weights and the new states.
 *
 *     G' = norm_coefficient * X + G
 *     Adagrad   H' = H + G'^2
 *               X' = X - R / (1 + T * decay) * G' / (sqrt(H') + eps)
 *     Adam      V' = alpha V + (1 - alpha) G'
 *               H' = beta H + (1 - beta) G'^2
 *               X' = X - R" * V' / (sqrt(H') + eps)
 *               R" = R * sqrt(1 - beta^T) / (1 - alpha^T), R for T = 0
 *     Momentum  V' = alpha V + (T > 0 ? beta : 1) G'
 *               X' = X - R * V', or X - R * (G' + alpha V') in mode nesterov */
#include "onnx/emit/emit.h"

enum { MOST_STATES = 2 };

/* The operands of the update of one weight. */
typedef struct update {
    pl_ox_call *c;
    pl_graph *g;
    pl_val rate, count; /* of the type of the weights */
    pl_val x, grad, state[MOST_STATES];
} update;

static pl_val decayed(update *u, pl_val a, double by, pl_val b, double with)
{
    return pl_add(u->g, pl_scale(u->g, a, by), pl_scale(u->g, b, with));
}

static pl_val regularized(update *u)
{
    double norm = pl_ox_attr_float(u->c, "norm_coefficient", 0);
    return norm != 0 ? decayed(u, u->x, norm, u->grad, 1) : u->grad;
}

static pl_val number(update *u, double v)
{
    return pl_full_like(u->g, u->count, v);
}

/* 1 - base^T */
static pl_val correction(update *u, double base)
{
    return pl_sub(u->g, number(u, 1), pl_pow(u->g, number(u, base), u->count));
}

static pl_val is_first(update *u)
{
    return pl_le(u->g, u->count, number(u, 0));
}

static pl_val divided(update *u, pl_val a, pl_val squares, double fallback)
{
    pl_val root = pl_sqrt(u->g, squares);
    double eps = pl_ox_attr_float(u->c, "epsilon", fallback);
    return pl_div(u->g, a, pl_add(u->g, root, pl_full_like(u->g, root, eps)));
}

static void adagrad(update *u)
{
    pl_graph *g = u->g;
    pl_val grad = regularized(u), decay = number(u, pl_ox_attr_float(u->c, "decay_factor", 0));
    pl_val rate = pl_div(g, u->rate, pl_add(g, number(u, 1), pl_mul(g, u->count, decay)));
    u->state[0] = pl_add(g, u->state[0], pl_mul(g, grad, grad));
    pl_val step = divided(u, grad, u->state[0], 1e-6);
    u->x = pl_sub(g, u->x, pl_mul(g, step, rate));
}

static void adam(update *u)
{
    pl_graph *g = u->g;
    double alpha = pl_ox_attr_float(u->c, "alpha", 0.9),
           beta = pl_ox_attr_float(u->c, "beta", 0.999);
    pl_val grad = regularized(u);
    u->state[0] = decayed(u, u->state[0], alpha, grad, 1 - alpha);
    u->state[1] = decayed(u, u->state[1], beta, pl_mul(g, grad, grad), 1 - beta);
    pl_val wide =
        pl_div(g, pl_mul(g, u->rate, pl_sqrt(g, correction(u, beta))), correction(u, alpha));
    pl_val step = divided(u, u->state[0], u->state[1], 1e-6);
    u->x = pl_sub(g, u->x, pl_mul(g, step, pl_select(g, is_first(u), u->rate, wide)));
    double after = pl_ox_attr_float(u->c, "norm_coefficient_post", 0);
    if (after != 0) u->x = pl_scale(g, u->x, 1 - after);
}

static void momentum(update *u)
{
    pl_graph *g = u->g;
    double alpha = pl_ox_attr_float(u->c, "alpha", 0);
    pl_val grad = regularized(u);
    pl_val share =
        pl_select(g, is_first(u), number(u, 1), number(u, pl_ox_attr_float(u->c, "beta", 0)));
    u->state[0] = pl_add(g, pl_scale(g, u->state[0], alpha), pl_mul(g, grad, share));
    pl_val step = u->state[0];
    if (pl_ox_attr_is(u->c, "mode", "standard", "nesterov"))
        step = pl_add(g, grad, pl_scale(g, step, alpha));
    u->x = pl_sub(g, u->x, pl_mul(g, step, u->rate));
}

static pl_status each_weight(pl_ox_call *c, int states, void (*apply)(update *u))
{
    int parts = 2 + states, n = (c->n_in - 2) / parts;
    pl_ox_val *v = NULL;
    pl_val rate = PL_NO_VAL, count = PL_NO_VAL;
    if (n < 1 || c->n_in != 2 + parts * n || c->n_out > (1 + states) * n)
        return pl_ox_fail(c, PL_ERR_FILE, "it has %d inputs and %d outputs", c->n_in, c->n_out);
    PL_TRY(pl_ox_input_plain(c, 0, &v, &rate));
    PL_TRY(pl_ox_input_plain(c, 1, &v, &count));
    for (int i = 0; i < n; i++) {
        update u = {.c = c, .g = c->g};
        PL_TRY(pl_ox_input_plain(c, 2 + n + i, &v, &u.grad));
        for (int k = 0; k < states; k++)
            PL_TRY(pl_ox_input_plain(c, 2 + (2 + k) * n + i, &v, &u.state[k]));
        PL_TRY(pl_ox_input_plain(c, 2 + i, &v, &u.x));
        u.rate = pl_ox_cast(c->g, rate, v->dtype);
        u.count = pl_ox_cast(c->g, count, v->dtype);
        apply(&u);
        if (i < c->n_out) PL_TRY(pl_ox_set(c, i, u.x, NULL));
        for (int k = 0; k < states && (1 + k) * n + i < c->n_out; k++)
            PL_TRY(pl_ox_set(c, (1 + k) * n + i, u.state[k], NULL));
    }
    return PL_OK;
}

pl_status pl_ox_emit_adagrad(pl_ox_call *c)
{
    return each_weight(c, 1, adagrad);
}

pl_status pl_ox_emit_adam(pl_ox_call *c)
{
    return each_weight(c, 2, adam);
}

pl_status pl_ox_emit_momentum(pl_ox_call *c)
{
    return each_weight(c, 1, momentum);
}
