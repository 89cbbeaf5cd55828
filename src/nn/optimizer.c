/* optimizer.c - from a loss to new weights: gradients, global-norm clipping, update ops, averages.
 *
 * Everything is nodes. The factor that scales a gradient (clipping, 1/loss scale) is one scalar
 * that the update op multiplies in, so no second copy of a gradient is ever made. A factor that is
 * not finite makes the op change nothing, so a step is skipped without a copy of anything. Moments,
 * counters and averages are slots changed through the context, so pl_nn_finish assigns each once.
 */
#include "nn/nn.h"
#include "plimsoll_unstable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PACK_FROM = 4096 }; /* elements; moments of smaller parameters are not packed */

static const char *const kinds[PL_OPTIM_N_KINDS] = {
    [PL_OPTIM_SGD] = "sgd",   [PL_OPTIM_ADAM] = "adam",       [PL_OPTIM_ADAMW] = "adamw",
    [PL_OPTIM_LION] = "lion", [PL_OPTIM_RMSPROP] = "rmsprop", [PL_OPTIM_ADAFACTOR] = "adafactor",
};

bool pl_optim_parse(const char *name, pl_optim_kind *out)
{
    for (int i = 0; i < PL_OPTIM_N_KINDS; i++) {
        if (strcmp(kinds[i], name) != 0) continue;
        *out = (pl_optim_kind)i;
        return true;
    }
    return false;
}

/* ---- gradients -------------------------------------------------------------------------- */
static bool grads_new(pl_nn *m, int n, pl_grads *out)
{
    pl_arena *a = &m->state->arena;
    size_t k = (size_t)n + 1; /* never zero bytes */
    *out = (pl_grads){.slot = pl_arena_new(a, int, k),
                      .param = pl_arena_new(a, pl_val, k),
                      .grad = pl_arena_new(a, pl_val, k)};
    if (out->slot && out->param && out->grad) return true;
    pl_nn_fail(m, PL_ERR_MEMORY, "out of memory for %d gradients", n);
    *out = (pl_grads){0};
    return false;
}

static bool wanted(const pl_slot *s, const pl_optim *o)
{
    return s->kind == PL_SLOT_PARAM && s->trainable && pl_dtype_is_float(s->type.dtype) &&
           pl_nn_match(o->params, s->name);
}

void pl_optim_gradients(pl_nn *m, pl_val loss, const pl_optim *o, pl_grads *out)
{
    struct pl_nn_state *s = m->state;
    pl_store *store = pl_graph_store(m->g);
    if (!grads_new(m, s->n_entries, out) || !pl_val_ok(loss)) return;
    for (int slot = 0; slot < s->n_entries && slot < pl_store_count(store); slot++) {
        if (!pl_val_ok(s->entries[slot].now) || !wanted(pl_store_slot(store, slot), o)) continue;
        out->slot[out->n] = slot;
        out->param[out->n++] = pl_nn_read(m, slot);
    }
    if (out->n == 0) {
        pl_nn_fail(m, PL_ERR_CONFIG, "no trainable parameter matches \"%s\"",
                   o->params ? o->params : "*");
        return;
    }
    if (pl_val_ok(o->loss_scale)) loss = pl_mul(m->g, loss, o->loss_scale);
    pl_grad(m->g, loss, out->param, out->n, out->grad);
}

/* Whether this kind of state is sharded, from this level of sharding on. */
static bool shares(const pl_nn *m, pl_shard from)
{
    const pl_nn_ranks *r = pl__nn_ranks(m);
    return r && r->ranks > 1 && r->shard >= from;
}

/* Adds a slot that accompanies a parameter: "<prefix>.<param>", of its shape, sharded where such
 * slots are, and stored as `state` says. */
static int companion_as(pl_nn *m, const char *prefix, int param, pl_shard from,
                        pl_optim_state state)
{
    const pl_slot *p = pl_store_slot(pl_graph_store(m->g), param);
    const pl_type *of = pl_slot_type(p);
    pl_slot s = {.type = *of, .kind = PL_SLOT_OPTIMIZER, .layout = p->layout};
    s.name = pl_nn_name(m, "%s.%s", prefix, p->name);
    bool f64 = of->dtype == PL_F64;
    bool packed = state == PL_OPTIM_STATE_8BIT && !f64 && pl_type_elems(of) >= PACK_FROM;
    if (!f64) s.type.dtype = state == PL_OPTIM_STATE_BF16 ? PL_BF16 : PL_F32;
    if (packed) {
        s.type = pl_packed_type(pl_type_elems(of));
        s.layout = (pl_file_layout){0};
    }
    if (shares(m, from) && packed)
        pl__nn_share_packed(pl__nn_ranks(m), of, &s);
    else if (shares(m, from))
        pl__nn_share(pl__nn_ranks(m), &s);
    return pl__nn_slot_named(m, &s);
}

static int companion(pl_nn *m, const char *prefix, int param, pl_shard from)
{
    return companion_as(m, prefix, param, from, PL_OPTIM_STATE_F32);
}

/* Returns a companion's value for the update: of the whole parameter, or of this rank's part. */
static pl_val read_companion(pl_nn *m, int slot)
{
    bool part = slot >= 0 && pl_store_slot(pl_graph_store(m->g), slot)->shards;
    return part ? pl__nn_read_part(m, slot) : pl_nn_read(m, slot);
}

static void set_companion(pl_nn *m, int slot, pl_val v)
{
    bool part = slot >= 0 && pl_store_slot(pl_graph_store(m->g), slot)->shards;
    if (part)
        pl__nn_update_part(m, slot, v);
    else
        pl_nn_update(m, slot, v);
}

/* Sets accumulators to gradients, or adds gradients to them. */
static void keep_gradients(pl_nn *m, const pl_grads *grads, bool add)
{
    pl_grads own = *grads;
    if (shares(m, PL_SHARD_GRADIENTS)) {
        if (!grads_new(m, grads->n, &own)) return;
        memcpy(own.slot, grads->slot, (size_t)grads->n * sizeof *own.slot);
        memcpy(own.grad, grads->grad, (size_t)grads->n * sizeof *own.grad);
        own.n = grads->n;
        pl__nn_reduce(m, &own, true);
    }
    for (int i = 0; i < own.n; i++) {
        int slot = companion(m, "accum", own.slot[i], PL_SHARD_GRADIENTS);
        pl_val sum = add ? pl_add(m->g, read_companion(m, slot), own.grad[i]) : own.grad[i];
        set_companion(m, slot, sum);
    }
}

void pl_optim_accumulate(pl_nn *m, const pl_grads *grads)
{
    keep_gradients(m, grads, true);
}

void pl__optim_hand_over(pl_nn *m, const pl_grads *grads)
{
    keep_gradients(m, grads, false);
}

/* Reads the accumulators of all parameters that have one and match. */
static void read_gradients(pl_nn *m, const pl_optim *o, bool clear, pl_grads *out)
{
    pl_store *store = pl_graph_store(m->g);
    int n = pl_store_count(store);
    if (!grads_new(m, n, out)) return;
    for (int i = 0; i < n; i++) {
        const pl_slot *p = pl_store_slot(store, i);
        if (!wanted(p, o)) continue;
        int slot = pl_store_find(store, pl_nn_name(m, "accum.%s", p->name));
        if (slot < 0) continue;
        pl_val sum = read_companion(m, slot);
        out->slot[out->n] = i;
        out->param[out->n] = pl_nn_read(m, i);
        out->grad[out->n++] = sum;
        if (clear) set_companion(m, slot, pl_full_like(m->g, sum, 0));
    }
    out->reduced = shares(m, PL_SHARD_GRADIENTS);
}

void pl_optim_accumulated(pl_nn *m, const pl_optim *o, pl_grads *out)
{
    read_gradients(m, o, true, out);
}

void pl__optim_handed_over(pl_nn *m, const pl_optim *o, pl_grads *out)
{
    read_gradients(m, o, false, out);
}

/* ---- update ----------------------------------------------------------------------------- */
typedef struct update {
    pl_nn *m;
    const pl_optim *o;
    pl_val lr, step;  /* step is 1 at the first update */
    pl_val scale;     /* multiplies gradients */
    pl_val keep;      /* bool: the step counts; none when it always does */
    pl_val first;     /* bool: this is the first update */
    bool parts;       /* each rank updates its part of every parameter */
    int n_new, *slot; /* parts: for parameters that every rank has whole, their new parts */
    pl_val *new_part;
} update;

static pl_val scalar(pl_graph *g, pl_dtype dtype, double v)
{
    return pl_fill(g, PL_RANK0(dtype), v);
}

/* Returns the type of the factor on gradients: f32, or f64 where the gradients are. */
static pl_dtype scale_dtype(pl_graph *g, const pl_grads *grads)
{
    for (int i = 0; i < grads->n; i++)
        if (pl_val_type(g, grads->grad[i]).dtype == PL_F64) return PL_F64;
    return PL_F32;
}

/* Square root of the sum of squares of all gradients: their chunks in one row, then one sum. */
static pl_val global_norm(pl_nn *m, const pl_grads *grads, pl_dtype dtype, bool parts)
{
    pl_graph *g = m->g;
    pl_val *chunks = pl_arena_new(&m->state->arena, pl_val, (size_t)grads->n), total;
    if (!chunks)
        return pl_nn_fail(m, PL_ERR_MEMORY, "out of memory for a norm of %d gradients", grads->n);
    for (int i = 0; i < grads->n; i++)
        chunks[i] = pl_cast(g, pl_sum_squares(g, grads->grad[i]), dtype);
    total = pl_sum(g, pl_concat(g, grads->n, chunks, 0), PL_AXES_ALL, false);
    return pl_sqrt(g, parts ? pl__nn_over_ranks(m, total, "gradient norm") : total);
}

/* Sets the slot to the result of an update op, which equals the old value when the step is
 * skipped. */
static void set(const update *u, int slot, pl_val v)
{
    if (slot < 0) return;
    pl_graph *g = u->m->g;
    const pl_type *t = &pl_store_slot(pl_graph_store(g), slot)->type;
    if (t->dtype == PL_U8 && t->rank == 1) v = pl_reshape(g, v, 1, t->dim);
    set_companion(u->m, slot, v);
}

/* Sets the slot to v, or keeps its value when the step is skipped. */
static void put(const update *u, int slot, pl_val v)
{
    if (slot < 0) return;
    if (pl_val_ok(u->keep)) v = pl_select(u->m->g, u->keep, v, read_companion(u->m, slot));
    set_companion(u->m, slot, v);
}

static int moment(const update *u, const char *which, int param)
{
    return companion_as(u->m, pl_nn_name(u->m, "%s.%s", u->o->name, which), param,
                        PL_SHARD_OPTIMIZER, u->o->state);
}

/* Returns the key of random rounding where something is stored as bf16. */
static pl_val key_of(const update *u, int param)
{
    bool needs = u->o->state == PL_OPTIM_STATE_BF16 ||
                 pl_store_slot(pl_graph_store(u->m->g), param)->as_bf16;
    return needs ? pl_nn_key(u->m) : PL_NO_VAL;
}

/* Returns a packed state as the update op takes it: the bytes of a rank's part as blocks. */
static pl_val as_blocks(const update *u, pl_val v)
{
    pl_type t = pl_val_type(u->m->g, v);
    if (t.dtype != PL_U8 || t.rank == 2) return v;
    return pl_reshape(u->m->g, v, PL_DIMS(pl_type_elems(&t) / PL_PACKED_BYTES, PL_PACKED_BYTES));
}

static pl_val read_or_none(const update *u, int slot)
{
    return slot < 0 ? PL_NO_VAL : as_blocks(u, read_companion(u->m, slot));
}

static pl_val adam(const update *u, int p, pl_val w, pl_val grad, double decay)
{
    const pl_optim *o = u->o;
    pl_adam_opts a = {o->beta1, o->beta2, o->eps, decay, o->kind == PL_OPTIM_ADAMW, key_of(u, p)};
    int ms = moment(u, "m", p), vs = moment(u, "v", p);
    int xs = o->amsgrad ? moment(u, "vmax", p) : -1;
    pl_val mv = read_or_none(u, ms), vv = read_or_none(u, vs), xv = read_or_none(u, xs);
    pl_adam(u->m->g, &a, u->lr, u->step, u->scale, grad, &w, &mv, &vv, &xv);
    set(u, ms, mv);
    set(u, vs, vv);
    set(u, xs, xv);
    return w;
}

static pl_val sgd(const update *u, int p, pl_val w, pl_val grad, double decay)
{
    const pl_optim *o = u->o;
    pl_sgd_opts a = {o->momentum, o->dampening, decay, o->nesterov, key_of(u, p)};
    int bs = o->momentum != 0 ? moment(u, "buf", p) : -1;
    pl_val bv = read_or_none(u, bs);
    pl_sgd(u->m->g, &a, u->lr, u->step, u->scale, grad, &w, &bv);
    set(u, bs, bv);
    return w;
}

static pl_val lion(const update *u, int p, pl_val w, pl_val grad, double decay)
{
    pl_lion_opts a = {u->o->beta1, u->o->beta2, decay, key_of(u, p)};
    int ms = moment(u, "m", p);
    pl_val mv = read_or_none(u, ms);
    pl_lion(u->m->g, &a, u->lr, u->scale, grad, &w, &mv);
    set(u, ms, mv);
    return w;
}

static pl_val rmsprop(const update *u, int p, pl_val w, pl_val grad, double decay)
{
    const pl_optim *o = u->o;
    pl_rmsprop_opts a = {o->alpha, o->eps, decay, o->momentum, o->centered, key_of(u, p)};
    int ss = moment(u, "sq", p), ms = o->centered ? moment(u, "mean", p) : -1;
    int bs = o->momentum != 0 ? moment(u, "buf", p) : -1;
    pl_val sv = read_or_none(u, ss), mv = read_or_none(u, ms), bv = read_or_none(u, bs);
    pl_rmsprop(u->m->g, &a, u->lr, u->scale, grad, &w, &sv, &mv, &bv);
    set(u, ss, sv);
    set(u, ms, mv);
    set(u, bs, bv);
    return w;
}

/* ---- Adafactor ---------------------------------------------------------------------------- */
/* A slot of sums that accompanies a matrix: its rows or its columns. */
static int factor(const update *u, const char *which, int param, int64_t n)
{
    const pl_slot *p = pl_store_slot(pl_graph_store(u->m->g), param);
    pl_slot s = {.type = PL_TYPE(PL_F32, n), .kind = PL_SLOT_OPTIMIZER};
    s.name = pl_nn_name(u->m, "%s.%s.%s", u->o->name, which, p->name);
    return pl__nn_slot_named(u->m, &s);
}

/* old + (now - old) * share, kept in the slot. */
static pl_val moved(const update *u, int slot, pl_val now, pl_val share)
{
    pl_graph *g = u->m->g;
    pl_val old = read_companion(u->m, slot);
    pl_val v = pl_add(g, old, pl_mul(g, pl_sub(g, now, old), share));
    put(u, slot, v);
    return v;
}

/* Root of the mean square. */
static pl_val rms(pl_graph *g, pl_val x)
{
    return pl_sqrt(g, pl_mean(g, pl_square(g, x), PL_AXES_ALL, false));
}

/* Second moments as the product of the means of rows and of columns of [n, rest]; a vector has a
 * moment for each element. Formulas are those of torch.optim.Adafactor (2.5). */
static pl_val factored(const update *u, int p, pl_val grad, pl_val share)
{
    pl_graph *g = u->m->g;
    pl_type t = pl_val_type(g, grad);
    pl_val square = pl_square(g, grad);
    const double least = 1.1920928955078125e-07; /* of f32 */
    if (t.rank < 2)
        return moved(u,
                     companion(u->m, pl_nn_name(u->m, "%s.v", u->o->name), p, PL_SHARD_OPTIMIZER),
                     square, share);
    int64_t rows = t.dim[0], cols = pl_type_elems(&t) / (rows ? rows : 1);
    square = pl_reshape(g, square, PL_DIMS(rows, cols));
    pl_val row = moved(u, factor(u, "row", p, rows), pl_mean(g, square, PL_AXIS(1), false), share);
    pl_val col = moved(u, factor(u, "col", p, cols), pl_mean(g, square, PL_AXIS(0), false), share);
    pl_val mean = pl_max(g, pl_mean(g, row, PL_AXES_ALL, false), scalar(g, PL_F32, least));
    row = pl_reshape(g, pl_div(g, row, mean), PL_DIMS(rows, 1));
    pl_val both = pl_mul(g, row, pl_reshape(g, col, PL_DIMS(1, cols)));
    return pl_reshape(g, both, t.rank, t.dim);
}

static pl_val adafactor(const update *u, int p, pl_val w, pl_val grad, double decay)
{
    pl_graph *g = u->m->g;
    const double least = 1.1920928955078125e-07, smallest = 1e-3;
    if (u->parts)
        return pl_nn_fail(u->m, PL_ERR_CONFIG,
                          "adafactor needs whole matrices; take shard=none, or adamw with "
                          "optim.state=8bit");
    pl_val one = scalar(g, PL_F32, 1), step = pl_cast(g, u->step, PL_F32);
    pl_val share = pl_pow(g, step, scalar(g, PL_F32, -0.8));
    pl_val full = pl_cast(g, w, PL_F32);
    grad = pl_mul(g, pl_cast(g, grad, PL_F32), pl_cast(g, u->scale, PL_F32));
    pl_val moment2 = factored(u, p, grad, share);
    pl_val d = pl_mul(g, grad, pl_rsqrt(g, pl_max(g, moment2, scalar(g, PL_F32, least * least))));
    pl_val rate = pl_min(g, u->lr, pl_rsqrt(g, step));
    rate = pl_mul(g, rate, pl_max(g, rms(g, full), scalar(g, PL_F32, smallest)));
    d = pl_mul(g, d, pl_div(g, rate, pl_max(g, rms(g, d), one)));
    if (decay != 0) d = pl_add(g, d, pl_mul(g, full, pl_scale(g, u->lr, decay)));
    /* The update op subtracts d and rounds as weights are stored; a scale that is not finite makes
     * it change nothing. */
    pl_val scale = pl_shift(g, pl_scale(g, pl_cast(g, u->scale, PL_F32), 0), 1);
    pl_val none = PL_NO_VAL;
    pl_sgd(g, &(pl_sgd_opts){.key = key_of(u, p)}, one, u->step, scale, d, &w, &none);
    return w;
}

/* ema*d + w*(1-d); before the first update the average is the weight itself. */
static void average(const update *u, int param, pl_val old, pl_val now)
{
    pl_nn *m = u->m;
    pl_graph *g = m->g;
    int slot = companion(m, "ema", param, PL_SHARD_OPTIMIZER);
    pl_val ema = read_companion(m, slot);
    pl_dtype dtype = pl_val_type(g, ema).dtype;
    ema = pl_select(g, u->first, pl_cast(g, old, dtype), ema);
    ema =
        pl_add(g, pl_scale(g, ema, u->o->ema), pl_scale(g, pl_cast(g, now, dtype), 1 - u->o->ema));
    put(u, slot, ema);
}

/* Sets the parameter's new value, or this rank's part of it. */
static void set_param(update *u, int param, pl_val v)
{
    if (u->parts && !pl_store_slot(pl_graph_store(u->m->g), param)->shards) {
        u->slot[u->n_new] = param;
        u->new_part[u->n_new++] = v;
    } else {
        set(u, param, v);
    }
}

static void update_one(update *u, int param, pl_val grad)
{
    static pl_val (*const rules[PL_OPTIM_N_KINDS])(const update *, int, pl_val, pl_val, double) = {
        [PL_OPTIM_SGD] = sgd,   [PL_OPTIM_ADAM] = adam,       [PL_OPTIM_ADAMW] = adam,
        [PL_OPTIM_LION] = lion, [PL_OPTIM_RMSPROP] = rmsprop, [PL_OPTIM_ADAFACTOR] = adafactor,
    };
    bool decays = pl_store_slot(pl_graph_store(u->m->g), param)->decay;
    pl_val old = u->parts ? pl__nn_read_part(u->m, param) : pl__nn_stored(u->m, param);
    pl_val now = rules[u->o->kind](u, param, old, grad, decays ? u->o->weight_decay : 0);
    set_param(u, param, now);
    if (u->o->ema > 0) average(u, param, old, now);
}

/* The factor on gradients, and the flag of a step that counts. */
static void gradient_scale(update *u, const pl_grads *grads, pl_optim_report *r)
{
    pl_graph *g = u->m->g;
    const pl_optim *o = u->o;
    pl_dtype dtype = scale_dtype(g, grads);
    u->scale = scalar(g, dtype, 1);
    if (pl_val_ok(o->loss_scale)) u->scale = pl_cast(g, pl_reciprocal(g, o->loss_scale), dtype);
    bool guarded = o->guard.spike > 0;
    if (o->clip_norm <= 0 && !o->skip_nonfinite && !guarded) return;
    pl_val norm = pl_mul(g, global_norm(u->m, grads, dtype, u->parts), u->scale);
    r->grad_norm = pl_cast(g, norm, PL_F32);
    if (o->clip_norm > 0) {
        pl_val c = pl_div(g, scalar(g, dtype, o->clip_norm), pl_shift(g, norm, 1e-6));
        u->scale = pl_mul(g, u->scale, pl_min(g, c, scalar(g, dtype, 1)));
    }
    if (o->skip_nonfinite) u->keep = r->finite = pl_is_finite(g, norm);
    if (guarded) u->keep = pl__guard(u->m, o, norm, u->keep, &r->guard);
    if (guarded) u->scale = pl_select(g, u->keep, u->scale, scalar(g, dtype, (double)NAN));
    if (!o->skip_nonfinite) return;
    /* 0 times a norm that is not finite is NaN, and update ops change nothing when the scale is
     * NaN. */
    u->scale = pl_mul(g, u->scale, pl_shift(g, pl_scale(g, norm, 0), 1));
}

/* Makes a new list with the sums over ranks instead of this rank's gradients. */
static bool reduced(pl_nn *m, const pl_grads *grads, bool parts, pl_grads *out)
{
    if (!grads_new(m, grads->n, out)) return false;
    memcpy(out->slot, grads->slot, (size_t)grads->n * sizeof *out->slot);
    memcpy(out->param, grads->param, (size_t)grads->n * sizeof *out->param);
    memcpy(out->grad, grads->grad, (size_t)grads->n * sizeof *out->grad);
    out->n = grads->n;
    if (!grads->reduced) pl__nn_reduce(m, out, parts);
    return true;
}

void pl_optim_update(pl_nn *m, const pl_grads *given, const pl_optim *o, pl_optim_report *report)
{
    pl_grads own, *grads = &own;
    pl_graph *g = m->g;
    pl_optim_report r = {.lr = PL_NO_VAL,
                         .grad_norm = PL_NO_VAL,
                         .step = PL_NO_VAL,
                         .finite = PL_NO_VAL,
                         .guard = {PL_NO_VAL, PL_NO_VAL, PL_NO_VAL}};
    if ((unsigned)o->kind >= PL_OPTIM_N_KINDS || given->n == 0) {
        pl_nn_fail(m, PL_ERR_CONFIG, "no optimiser %d, or nothing to update", (int)o->kind);
        if (report) *report = r;
        return;
    }
    update u = {.m = m, .o = o, .parts = shares(m, PL_SHARD_OPTIMIZER)};
    if (!reduced(m, given, u.parts, &own)) {
        if (report) *report = r;
        return;
    }
    pl_grads parts; /* room for the list of new parts */
    if (!grads_new(m, own.n, &parts)) return;
    u.slot = parts.slot;
    u.new_part = parts.grad;
    pl_scope_push(g, o->name);
    gradient_scale(&u, grads, &r);
    pl_slot counter = {.name = pl_nn_name(m, "%s.step", o->name),
                       .type = PL_RANK0(PL_I64),
                       .kind = PL_SLOT_COUNTER};
    int step_slot = pl__nn_slot_named(m, &counter);
    pl_val done = pl_nn_read(m, step_slot);
    u.lr = r.lr = pl_lr_value(m, &o->lr, done);
    u.step = r.step = pl_shift(g, done, 1);
    u.first = pl_eq(g, done, pl_full_like(g, done, 0));
    for (int i = 0; i < grads->n; i++) update_one(&u, grads->slot[i], grads->grad[i]);
    pl__nn_update_gathered(m, u.n_new, u.slot, u.new_part);
    put(&u, step_slot, u.step);
    pl_scope_pop(g);
    if (report) *report = r;
}

void pl_optim_apply(pl_nn *m, pl_val loss, const pl_optim *o, pl_optim_report *report)
{
    pl_grads grads;
    pl_optim_gradients(m, loss, o, &grads);
    pl_optim_update(m, &grads, o, report);
}

/* ---- dynamic loss scale ----------------------------------------------------------------- */
static int scale_slot(pl_nn *m, const pl_loss_scale *o)
{
    pl_slot s = {.name = "scale.value",
                 .type = PL_RANK0(PL_F32),
                 .kind = PL_SLOT_COUNTER,
                 .init = {PL_INIT_CONST, o->initial, 0}};
    return pl__nn_slot_named(m, &s);
}

pl_val pl_loss_scale_read(pl_nn *m, const pl_loss_scale *o)
{
    return pl_nn_read(m, scale_slot(m, o));
}

void pl_loss_scale_update(pl_nn *m, const pl_loss_scale *o, pl_val finite)
{
    pl_graph *g = m->g;
    pl_slot s = {.name = "scale.good", .type = PL_RANK0(PL_I32), .kind = PL_SLOT_COUNTER};
    int good_slot = pl__nn_slot_named(m, &s), value_slot = scale_slot(m, o);
    pl_val value = pl_nn_read(m, value_slot), good = pl_shift(g, pl_nn_read(m, good_slot), 1);
    pl_val zero = pl_full_like(g, good, 0);
    pl_val full = pl_ge(g, good, pl_full_like(g, good, o->interval));
    pl_val more = pl_scale(g, value, o->growth); /* f32 is the limit if nothing ever overflows */
    pl_val up = pl_select(g, pl_and(g, full, pl_is_finite(g, more)), more, value);
    pl_val down = pl_max(g, pl_scale(g, value, o->backoff), pl_full_like(g, value, o->floor));
    pl_nn_update(m, value_slot, pl_select(g, finite, up, down));
    pl_nn_update(m, good_slot, pl_select(g, finite, pl_select(g, full, zero, good), zero));
}
