/* emit_recurrent.c - RNN, GRU and LSTM, step by step.
 *
 * Sequences have a fixed length, so the steps are unrolled: the products with the inputs of all
 * steps are one matrix product, and each step has the product with the hidden state. Samples that
 * are shorter (sequence_lens) keep their state beyond their end and return zeros there. */
#include "onnx/emit/emit.h"

#include <string.h>

enum { MAX_STEPS = 4096 };

typedef struct cell {
    pl_ox_call *c;
    pl_graph *g;
    int64_t steps, batch, hidden;
    int gates;
    double clip;
    pl_val w, r, wb, rb; /* of one direction: [G*H, I], [G*H, H], [G*H] */
    pl_val peephole[3];  /* [H]: i, o, f */
    pl_val length;       /* [B, 1], i64; none: all are whole */
    const char *act[3];
    double alpha[3], beta[3];
    bool linear_before_reset, input_forget;
} cell;

static pl_val activate(const cell *l, int k, pl_val x)
{
    pl_graph *g = l->g;
    const char *f = l->act[k];
    if (l->clip > 0) x = pl_clamp(g, x, -l->clip, l->clip);
    if (strcmp(f, "Sigmoid") == 0) return pl_sigmoid(g, x);
    if (strcmp(f, "Tanh") == 0) return pl_tanh(g, x);
    if (strcmp(f, "Relu") == 0) return pl_relu(g, x);
    if (strcmp(f, "LeakyRelu") == 0) return pl_leaky_relu(g, x, l->alpha[k]);
    if (strcmp(f, "Softplus") == 0) return pl_softplus(g, x);
    if (strcmp(f, "Softsign") == 0) return pl_div(g, x, pl_shift(g, pl_abs(g, x), 1));
    if (strcmp(f, "HardSigmoid") == 0)
        return pl_clamp(g, pl_shift(g, pl_scale(g, x, l->alpha[k]), l->beta[k]), 0, 1);
    return pl_shift(g, pl_scale(g, x, l->alpha[k]), l->beta[k]); /* Affine */
}

static pl_status read_activations(pl_ox_call *c, int direction, int count, const char *const *usual,
                                  cell *l)
{
    static const char *const known[] = {"Sigmoid",  "Tanh",     "Relu",        "LeakyRelu",
                                        "Softplus", "Softsign", "HardSigmoid", "Affine"};
    const pl_ox_attr *names = pl_ox_attr_find(c, "activations");
    const pl_ox_attr *alpha = pl_ox_attr_find(c, "activation_alpha");
    const pl_ox_attr *beta = pl_ox_attr_find(c, "activation_beta");
    for (int k = 0; k < count; k++) {
        size_t at = (size_t)(direction * count + k);
        l->act[k] = usual[k];
        if (names && at < names->n_strings) {
            const pl_ox_bytes *s = &names->strings[at];
            l->act[k] = pl_arena_strndup(&c->b->mem, (const char *)s->data, s->len);
            if (!l->act[k]) return PL_ERR_MEMORY;
        }
        bool hard = strcmp(l->act[k], "HardSigmoid") == 0;
        l->alpha[k] = alpha && at < alpha->n_floats         ? (double)alpha->floats[at]
                      : hard                                ? 0.2
                      : strcmp(l->act[k], "LeakyRelu") == 0 ? 0.01
                                                            : 1;
        l->beta[k] = beta && at < beta->n_floats ? (double)beta->floats[at] : hard ? 0.5 : 0;
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strcmp(known[i], l->act[k]) == 0;
        if (!found) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "activation %s", l->act[k]);
    }
    return PL_OK;
}

/* Part k of [.., G*H] along the last axis. */
static pl_val gate(const cell *l, pl_val x, int k)
{
    int axis = pl_val_type(l->g, x).rank - 1;
    return pl_slice(l->g, x, axis, k * l->hidden, (k + 1) * l->hidden, 1);
}

static pl_val with_peephole(const cell *l, pl_val x, int k, pl_val state)
{
    return pl_val_ok(l->peephole[k]) ? pl_add(l->g, x, pl_mul(l->g, state, l->peephole[k])) : x;
}

/* One step: x [B, G*H] are the products with the input, with their biases. */
static void lstm_step(const cell *l, pl_val x, pl_val *h, pl_val *c)
{
    pl_graph *g = l->g;
    pl_val a = pl_add(g, x, pl_matmul(g, *h, l->r, false, true)); /* i, o, f, c */
    pl_val i = activate(l, 0, with_peephole(l, gate(l, a, 0), 0, *c));
    pl_val f = l->input_forget ? pl_shift(g, pl_neg(g, i), 1)
                               : activate(l, 0, with_peephole(l, gate(l, a, 2), 2, *c));
    pl_val z = activate(l, 1, gate(l, a, 3));
    *c = pl_add(g, pl_mul(g, f, *c), pl_mul(g, i, z));
    pl_val o = activate(l, 0, with_peephole(l, gate(l, a, 1), 1, *c));
    *h = pl_mul(g, o, activate(l, 2, *c));
}

static void gru_step(const cell *l, pl_val x, pl_val *h)
{
    pl_graph *g = l->g;
    int64_t two = 2 * l->hidden;
    pl_val r_zr = pl_slice(g, l->r, 0, 0, two, 1),
           r_h = pl_slice(g, l->r, 0, two, 3 * l->hidden, 1);
    pl_val zr = pl_add(g, pl_slice(g, x, 1, 0, two, 1), pl_matmul(g, *h, r_zr, false, true));
    if (pl_val_ok(l->rb)) zr = pl_add(g, zr, pl_slice(g, l->rb, 0, 0, two, 1));
    pl_val z = activate(l, 0, gate(l, zr, 0)), r = activate(l, 0, gate(l, zr, 1)), n;
    pl_val bias = pl_val_ok(l->rb) ? gate(l, l->rb, 2) : PL_NO_VAL;
    if (l->linear_before_reset) {
        n = pl_matmul(g, *h, r_h, false, true);
        if (pl_val_ok(bias)) n = pl_add(g, n, bias);
        n = pl_mul(g, r, n);
    } else {
        n = pl_matmul(g, pl_mul(g, r, *h), r_h, false, true);
        if (pl_val_ok(bias)) n = pl_add(g, n, bias);
    }
    n = activate(l, 1, pl_add(g, gate(l, x, 2), n));
    *h = pl_add(g, n, pl_mul(g, z, pl_sub(g, *h, n)));
}

/* Runs one direction over x [T, B, I]; y[t] gets the state of each step, [B, H]. */
static void run_direction(cell *l, pl_val x, bool back, pl_val *h, pl_val *c, pl_val *y)
{
    pl_graph *g = l->g;
    int64_t t_all = l->steps, width = l->gates * l->hidden;
    pl_type xt = pl_val_type(g, x);
    pl_val flat = pl_reshape(g, x, PL_DIMS(t_all * l->batch, xt.dim[2]));
    pl_val all = pl_matmul(g, flat, l->w, false, true);
    if (pl_val_ok(l->wb)) all = pl_add(g, all, l->wb);
    if (pl_val_ok(l->rb) && l->gates != 3) all = pl_add(g, all, l->rb);
    all = pl_reshape(g, all, PL_DIMS(t_all, l->batch, width));
    for (int64_t s = 0; s < t_all; s++) {
        int64_t t = back ? t_all - 1 - s : s;
        pl_val xt1 = pl_reshape(g, pl_slice(g, all, 0, t, t + 1, 1), PL_DIMS(l->batch, width));
        pl_val h1 = *h, c1 = *c;
        if (l->gates == 4)
            lstm_step(l, xt1, &h1, &c1);
        else if (l->gates == 3)
            gru_step(l, xt1, &h1);
        else
            h1 = activate(l, 0, pl_add(g, xt1, pl_matmul(g, h1, l->r, false, true)));
        if (pl_val_ok(l->length)) {
            pl_val on = pl_gt(g, l->length, pl_full_like(g, l->length, (double)t));
            y[t] = pl_select(g, on, h1, pl_full_like(g, h1, 0));
            h1 = pl_select(g, on, h1, *h);
            if (l->gates == 4) c1 = pl_select(g, on, c1, *c);
        } else
            y[t] = h1;
        *h = h1;
        *c = c1;
    }
}

/* Row `d` of an input [D, ..], without that dimension. */
static pl_val direction_of(pl_ox_call *c, int k, int d)
{
    if (!pl_ox_has(c, k)) return PL_NO_VAL;
    pl_val x = pl_slice(c->g, pl_ox_plain(c->b, c->in[k]), 0, d, d + 1, 1);
    return pl_squeeze(c->g, x, 0);
}

static void read_weights(cell *l, int d)
{
    pl_ox_call *c = l->c;
    l->w = direction_of(c, 1, d);
    l->r = direction_of(c, 2, d);
    pl_val bias = direction_of(c, 3, d);
    l->wb = l->rb = PL_NO_VAL;
    if (pl_val_ok(bias)) {
        int64_t n = l->gates * l->hidden;
        l->wb = pl_slice(c->g, bias, 0, 0, n, 1);
        l->rb = pl_slice(c->g, bias, 0, n, 2 * n, 1);
    }
    pl_val p = l->gates == 4 ? direction_of(c, 7, d) : PL_NO_VAL;
    for (int k = 0; k < 3 && pl_val_ok(p); k++) l->peephole[k] = gate(l, p, k);
}

static pl_status recurrent(pl_ox_call *c, int gates)
{
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"}, *const plain[] = {"Tanh"};
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    if (!pl_ox_has(c, 1) || !pl_ox_has(c, 2) || c->in[2]->rank != 3 || v->rank != 3)
        return pl_ox_fail(c, PL_ERR_FILE, "W, R or X is missing or has no 3 dimensions");
    bool samples_first = pl_ox_attr_int(c, "layout", 0) != 0;
    pl_graph *g = c->g;
    if (samples_first) x = pl_transpose(g, x, 0, 1);
    pl_type t = pl_val_type(g, x);
    cell l = {.c = c, .g = g, .steps = t.dim[0], .batch = t.dim[1], .gates = gates};
    l.hidden = c->in[2]->dim[2];
    if (pl_ox_attr_int(c, "hidden_size", l.hidden) != l.hidden)
        return pl_ox_fail(c, PL_ERR_FILE, "hidden_size is %lld, the weight R has %lld",
                          (long long)pl_ox_attr_int(c, "hidden_size", 0), (long long)l.hidden);
    l.clip = pl_ox_attr_float(c, "clip", 0);
    l.linear_before_reset = pl_ox_attr_int(c, "linear_before_reset", 0) != 0;
    l.input_forget = pl_ox_attr_int(c, "input_forget", 0) != 0;
    if (l.steps > MAX_STEPS)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%lld steps; at most %d are unrolled",
                          (long long)l.steps, MAX_STEPS);
    if (pl_ox_has(c, 4)) {
        pl_val n = pl_ox_cast(g, pl_ox_plain(c->b, c->in[4]), PL_I64);
        l.length = pl_reshape(g, n, PL_DIMS(l.batch, 1));
    }
    bool both = pl_ox_attr_is(c, "direction", "forward", "bidirectional");
    bool back = pl_ox_attr_is(c, "direction", "forward", "reverse");
    int n_dir = both ? 2 : 1;
    pl_val *y = pl_arena_new(&c->b->mem, pl_val, 2 * l.steps), last[2][2];
    if (!y) return PL_ERR_MEMORY;
    pl_val zero = pl_fill(g, PL_TYPE(t.dtype, l.batch, l.hidden), 0);
    for (int d = 0; d < n_dir; d++) {
        PL_TRY(read_activations(c, d,
                                gates == 4   ? 3
                                : gates == 3 ? 2
                                             : 1,
                                gates == 1 ? plain : usual, &l));
        read_weights(&l, d);
        for (int k = 0; k < 2; k++) { /* initial h and c: [D,B,H], or [B,D,H] */
            last[d][k] = zero;
            if (!pl_ox_has(c, 5 + k) || (k && gates != 4)) continue;
            pl_val all = pl_ox_plain(c->b, c->in[5 + k]);
            if (samples_first) all = pl_transpose(g, all, 0, 1);
            last[d][k] = pl_squeeze(g, pl_slice(g, all, 0, d, d + 1, 1), 0);
        }
        run_direction(&l, x, d ? true : back, &last[d][0], &last[d][1], y + d * l.steps);
    }
    pl_val dir[2], end[2];
    for (int d = 0; d < n_dir; d++) dir[d] = pl_stack(g, (int)l.steps, y + d * l.steps, 0);
    pl_val out = pl_stack(g, n_dir, dir, 1); /* [T, D, B, H] */
    PL_TRY(pl_ox_set(c, 0, out, samples_first ? (const int[]){1, 2, 0, 3} : NULL));
    for (int k = 0; k < 2 && k + 1 < c->n_out; k++) {
        for (int d = 0; d < n_dir; d++) end[d] = last[d][k];
        pl_val s = pl_stack(g, n_dir, end, 0); /* [D, B, H] */
        PL_TRY(pl_ox_set(c, 1 + k, s, samples_first ? (const int[]){1, 0, 2} : NULL));
    }
    return PL_OK;
}
pl_status pl_ox_emit_lstm(pl_ox_call *c)
{
    return recurrent(c, 4);
}
pl_status pl_ox_emit_gru(pl_ox_call *c)
{
    return recurrent(c, 3);
}
pl_status pl_ox_emit_rnn(pl_ox_call *c)
{
    return recurrent(c, 1);
}
