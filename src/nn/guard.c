/* guard.c - steps that are not applied because their loss or gradient leaves what is usual.
 *
 * Slots of the optimiser remember the usual gradient norm, the usual loss and how far losses are
 * from it: means over the applied steps, equal weights at first, then with weight 1/window for the
 * newest. A step spikes when its norm is above `spike` times the usual norm, or when its loss is
 * above the usual loss by more than `spike` times its size or its usual distance, whichever is
 * larger (losses around 0 have no size). Until `warmup` steps were applied, only numbers that are
 * not finite spike. Everything is nodes and slots: the decision falls inside the step, before the
 * update, and a resumed run decides as a run that was never stopped.
 */
#include "nn/nn.h"

static int number_slot(pl_nn *m, const pl_optim *o, const char *which)
{
    pl_slot s = {.name = pl_nn_name(m, "%s.guard.%s", o->name, which),
                 .type = PL_RANK0(PL_F32),
                 .kind = PL_SLOT_COUNTER};
    return pl__nn_slot_named(m, &s);
}

/* A mean over applied steps. */
typedef struct usual {
    int slot;
    pl_val value;
} usual;

static usual usual_read(pl_nn *m, const pl_optim *o, const char *which)
{
    usual u = {.slot = number_slot(m, o, which)};
    u.value = pl_nn_read(m, u.slot);
    return u;
}

/* weight: of x, the number of this step. A step that is not applied changes nothing. */
static void usual_update(pl_nn *m, usual u, pl_val x, pl_val weight, pl_val applied)
{
    pl_graph *g = m->g;
    pl_val next = pl_add(g, u.value, pl_mul(g, weight, pl_sub(g, x, u.value)));
    pl_nn_update(m, u.slot, pl_select(g, applied, next, u.value));
}

pl_val pl__guard(pl_nn *m, const pl_optim *o, pl_val norm, pl_val finite, pl_guard_report *r)
{
    pl_graph *g = m->g;
    const pl_guard *k = &o->guard;
    usual norms = usual_read(m, o, "norm"), losses = usual_read(m, o, "loss"),
          distances = usual_read(m, o, "distance"), count = usual_read(m, o, "count");
    int row_slot = number_slot(m, o, PL_GUARD_ROW);
    pl_val loss = pl__nn_over_ranks(m, pl_cast(g, k->loss, PL_F32), "loss of the guard");
    norm = pl_cast(g, norm, PL_F32);
    pl_val above = pl_sub(g, loss, losses.value), distance = pl_abs(g, above);
    pl_val size = pl_max(g, pl_abs(g, losses.value), distances.value);
    pl_val calm = pl_and(g, pl_le(g, norm, pl_scale(g, norms.value, k->spike)),
                         pl_le(g, above, pl_scale(g, size, k->spike)));
    pl_val early = pl_lt(g, count.value, pl_full_like(g, count.value, (double)k->warmup));
    pl_val number = pl_and(g, pl_is_finite(g, norm), pl_is_finite(g, loss));
    pl_val usual_step = pl_and(g, number, pl_or(g, early, calm));
    pl_val applied = pl_val_ok(finite) ? pl_and(g, finite, usual_step) : usual_step;
    pl_val spiked = pl_not(g, usual_step);
    if (pl_val_ok(finite)) spiked = pl_and(g, finite, spiked);

    pl_val seen = pl_shift(g, count.value, 1);
    pl_val weight = pl_reciprocal(g, pl_min(g, seen, pl_full_like(g, seen, (double)k->window)));
    usual_update(m, norms, norm, weight, applied);
    usual_update(m, losses, loss, weight, applied);
    usual_update(m, distances, distance, weight, applied);
    pl_nn_update(m, count.slot, pl_select(g, applied, seen, count.value));
    pl_val row = pl_nn_read(m, row_slot);
    row = pl_select(g, spiked, pl_shift(g, row, 1), pl_full_like(g, row, 0));
    pl_nn_update(m, row_slot, row);
    *r = (pl_guard_report){.row = row, .norm = norms.value, .loss = losses.value};
    return applied;
}

/* ---- the loss of a batch that is trained on in micro-batches ------------------------------ */
void pl_guard_add(pl_nn *m, const pl_optim *o, pl_val share)
{
    int slot = number_slot(m, o, "sum");
    pl_nn_update(m, slot, pl_add(m->g, pl_nn_read(m, slot), pl_cast(m->g, share, PL_F32)));
}

pl_val pl_guard_sum(pl_nn *m, const pl_optim *o)
{
    int slot = number_slot(m, o, "sum");
    pl_val sum = pl_nn_read(m, slot);
    pl_nn_update(m, slot, pl_full_like(m->g, sum, 0));
    return sum;
}
