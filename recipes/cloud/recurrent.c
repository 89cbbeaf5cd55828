/* recurrent.c - the frames in their order: a selective state space (Mamba) and an LSTM.
 *
 * Stacks are short (five frames), so time is unrolled into ordinary nodes; the planner decides what
 * is kept for the backward pass, as everywhere. Both networks end with the mean over time.
 * Parameter names are those of mamba_ssm and torch.nn.LSTM, except A_log, which is stored as its
 * difference A_shift from log 1, log 2, ...
 */
#include "cloud.h"

#include <math.h>

static pl_val at_time(pl_graph *g, pl_val x, int64_t t)
{
    return pl_squeeze(g, pl_slice(g, x, 1, t, t + 1, 1), 1);
}

/* ---- selective state space -------------------------------------------------------------- */
/* One step of the state h (B,D,N): h' = exp(dt A) h + (dt x) b, answer c . h' + d x. */
typedef struct state_space {
    pl_val a, d; /* A (D,N), negative; d (D) */
    pl_val h;
    int64_t inner, states;
} state_space;

static pl_val advance(pl_graph *g, state_space *s, int64_t batch, pl_val x, pl_val dt, pl_val b,
                      pl_val c)
{
    pl_val wide_dt = pl_reshape(g, dt, PL_DIMS(batch, s->inner, 1));
    pl_val push = pl_mul(g, pl_reshape(g, pl_mul(g, dt, x), PL_DIMS(batch, s->inner, 1)),
                         pl_reshape(g, b, PL_DIMS(batch, 1, s->states)));
    pl_val decay =
        pl_exp(g, pl_mul(g, wide_dt, pl_reshape(g, s->a, PL_DIMS(1, s->inner, s->states))));
    s->h = pl_val_ok(s->h) ? pl_add(g, pl_mul(g, decay, s->h), push) : push;
    pl_val y = pl_sum(g, pl_mul(g, s->h, pl_reshape(g, c, PL_DIMS(batch, 1, s->states))),
                      PL_AXIS(2), false);
    return pl_add(g, y, pl_mul(g, x, s->d));
}

pl_val cloud_state_space(cloud *k, pl_val features)
{
    enum { EXPAND = 2, TAPS = 4 };
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    int64_t width = cloud_features(k), inner = EXPAND * width, rank = (width + 15) / 16;
    int64_t states = pl_config_int(pl_builder_config(k->b), "model.state");
    pl_nn_lin plain = {.no_bias = true};
    pl_val part[2], out[64];
    pl_nn_push(m, "mamba");
    pl_split(g, pl_nn_linear(m, features, "in_proj", 2 * inner, plain), 2, 2, part);
    /* A causal convolution over time, channel by channel: the padding at the end is removed. */
    pl_nn_conv conv = {.kernel = TAPS, .pad = TAPS - 1, .groups = (int)inner};
    pl_val x = pl_slice(g, pl_nn_conv1d(m, part[0], "conv1d", inner, conv), 1, 0, k->frames, 1);
    x = pl_silu(g, x);
    pl_val projected = pl_nn_linear(m, x, "x_proj", rank + 2 * states, plain);
    /* A step of 0.02 at first, in the middle of the usual 0.001 to 0.1. */
    pl_nn_lin step = {.init = pl_nn_uniform(-1 / sqrt((double)rank), 1 / sqrt((double)rank)),
                      .bias_init = pl_nn_constant(log(expm1(0.02)))};
    pl_val dt = pl_softplus(
        g, pl_nn_linear(m, pl_slice(g, projected, 2, 0, rank, 1), "dt_proj", inner, step));
    pl_val b = pl_slice(g, projected, 2, rank, rank + states, 1),
           c = pl_slice(g, projected, 2, rank + states, rank + 2 * states, 1);
    /* log A starts as log 1, log 2, ..., the same for every channel: a fixed ramp plus a learned
     * part. */
    pl_val ramp = pl_log(g, pl_shift(g, pl_iota(g, PL_TYPE(PL_F32, inner, states), 1), 1));
    pl_val learned = pl_nn_param(m, "A_shift", PL_DIMS(inner, states), pl_nn_constant(0));
    state_space s = {.a = pl_neg(g, pl_exp(g, pl_add(g, ramp, learned))),
                     .d = pl_nn_param(m, "D", PL_DIMS(inner), pl_nn_constant(1)),
                     .h = PL_NO_VAL,
                     .inner = inner,
                     .states = states};
    for (int64_t t = 0; t < k->frames; t++)
        out[t] = advance(g, &s, k->batch, at_time(g, x, t), at_time(g, dt, t), at_time(g, b, t),
                         at_time(g, c, t));
    pl_val y = pl_mul(g, pl_stack(g, (int)k->frames, out, 1), pl_silu(g, part[1]));
    y = pl_nn_linear(m, y, "out_proj", width, plain);
    pl_nn_pop(m);
    return pl_mean(g, y, PL_AXIS(1), false);
}

/* ---- LSTM ------------------------------------------------------------------------------- */
/* One layer over x (B,T,C): gates input, forget, cell, output, as torch.nn.LSTM orders them. */
static pl_val lstm_layer(cloud *k, pl_val x, int i)
{
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    int64_t in = pl_val_type(g, x).dim[2], n = cloud_features(k);
    double bound = 1 / sqrt((double)n);
    pl_nn_init init = pl_nn_uniform(-bound, bound);
    pl_val w = pl_nn_param(m, pl_nn_name(m, "weight_ih_l%d", i), PL_DIMS(4 * n, in), init);
    pl_val u = pl_nn_param(m, pl_nn_name(m, "weight_hh_l%d", i), PL_DIMS(4 * n, n), init);
    pl_val of_x = pl_nn_param(m, pl_nn_name(m, "bias_ih_l%d", i), PL_DIMS(4 * n), init);
    pl_val of_h = pl_nn_param(m, pl_nn_name(m, "bias_hh_l%d", i), PL_DIMS(4 * n), init);
    pl_val from_x = pl_linear(g, x, w, pl_add(g, of_x, of_h)), h = PL_NO_VAL, cell = PL_NO_VAL;
    pl_val gate[4], out[64];
    for (int64_t t = 0; t < k->frames; t++) {
        pl_val all = at_time(g, from_x, t);
        if (t > 0) all = pl_add(g, all, pl_linear(g, h, u, PL_NO_VAL));
        pl_split(g, all, 1, 4, gate);
        pl_val fresh = pl_mul(g, pl_sigmoid(g, gate[0]), pl_tanh(g, gate[2]));
        cell = t > 0 ? pl_add(g, pl_mul(g, pl_sigmoid(g, gate[1]), cell), fresh) : fresh;
        out[t] = h = pl_mul(g, pl_sigmoid(g, gate[3]), pl_tanh(g, cell));
    }
    return pl_stack(g, (int)k->frames, out, 1);
}

pl_val cloud_lstm(cloud *k, pl_val features)
{
    pl_nn_push(k->m, "lstm");
    features = lstm_layer(k, lstm_layer(k, features, 0), 1);
    pl_nn_pop(k->m);
    return pl_mean(k->m->g, features, PL_AXIS(1), false);
}
