/* find_nonfinite.c - finds the first value that is not finite.
 *
 * A watched session runs its programs unit by unit and checks every float value as soon as it is
 * written, so it names the value where the first wrong number appeared, not a later value. This is
 * for debugging: a step takes several times as long.
 */
#include "base/dtype.h"
#include "plimsoll_unstable.h"
#include "rt/rt_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the first element whose exponent bits are all set: infinite or NaN. -1: none. */
static int64_t first_bad16(const uint16_t *x, int64_t n, uint16_t exponent)
{
    for (int64_t i = 0; i < n; i++)
        if ((x[i] & exponent) == exponent) return i;
    return -1;
}

static int64_t first_bad(pl_dtype d, const void *x, int64_t n)
{
    if (d == PL_F16) return first_bad16(x, n, 0x7c00);
    if (d == PL_BF16) return first_bad16(x, n, 0x7f80);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(pl_elem_get(d, x, i))) return i;
    return -1;
}

/* Finds the first element that is not finite and its value; -1 if all are finite. direct: the host
 * reaches `at` itself. */
static pl_status look(pl_session *s, const pl_type *t, const char *at, bool direct, int64_t *where,
                      double *value)
{
    const pl_access *access = direct ? &pl_access_direct : s->dev->access;
    size_t elem = pl_dtype_bytes(t->dtype);
    int64_t all = pl_type_elems(t);
    *where = -1;
    for (int64_t first = 0, n; first < all && *where < 0; first += n) {
        const void *x;
        size_t bytes = (size_t)(all - first) * elem;
        PL_TRY(access->view(s, at + (size_t)first * elem, &bytes, &x));
        n = (int64_t)(bytes / elem);
        int64_t bad = first_bad(t->dtype, x, n);
        if (bad < 0) continue;
        *where = first + bad;
        *value = pl_elem_get(t->dtype, x, bad);
    }
    return PL_OK;
}

pl_status pl_watch_unit(pl_session *s, const pl_bound_program *b, uint32_t i)
{
    const pl_program *p = b->p;
    if (s->found[0] || i >= p->plan->n_order) return PL_OK;
    pl_unit_args a = pl_unit_args_of(p->g, &p->units->unit[p->plan->order[i]]);
    const pl_bound_unit *l = &b->units[i];
    for (uint32_t k = 0; l->exec && k < a.n_out; k++) {
        uint32_t val = pl_arg_out(&a, k);
        const pl_type *t = pl_type_of(p->g, val);
        int64_t where;
        double value;
        if (!pl_dtype_is_float(t->dtype) || !l->call.out[k]) continue;
        PL_TRY(look(s, t, l->call.out[k], b->on_host, &where, &value));
        if (where < 0) continue;
        char type[96], label[160];
        uint32_t node = pl_producer(p->g, val);
        snprintf(s->found, sizeof s->found, "%s%s, %s: element %lld is %g",
                 pl_node_get(p->g, node)->backward ? "backward of " : "",
                 pl_node_label(p->g, node, label, sizeof label), pl_type_text(t, type, sizeof type),
                 (long long)where, value);
        return PL_OK;
    }
    return PL_OK;
}

void pl_session_watch(pl_session *s, bool on)
{
    s->watching = on;
    s->found[0] = '\0';
}

const char *pl_session_found(const pl_session *s)
{
    return s->found[0] ? s->found : NULL;
}

/* The same for a slot that lives below the device: whether it has such an element. */
static pl_status look_below(pl_session *s, int slot, bool *bad)
{
    const pl_type *t = &pl_store_slot(s->store, slot)->type;
    char block[4096];
    uint64_t all = pl_type_bytes(t);
    *bad = false;
    for (uint64_t at = 0, n; at < all && !*bad; at += n) {
        n = all - at < sizeof block ? all - at : sizeof block;
        PL_TRY(pl__slot_read_stored(s, slot, at, block, (size_t)n));
        *bad = first_bad(t->dtype, block, (int64_t)(n / pl_dtype_bytes(t->dtype))) >= 0;
    }
    return PL_OK;
}

pl_status pl_session_bad_slot(pl_session *s, int *slot)
{
    *slot = -1;
    for (int i = 0; i < s->n_slots && *slot < 0; i++) {
        const pl_type *t = &pl_store_slot(s->store, i)->type;
        int64_t where = -1;
        double value;
        bool bad = false;
        if (!pl_dtype_is_float(t->dtype) || pl_store_slot(s->store, i)->quant) continue;
        if (pl_home_level(s->homes, i))
            PL_TRY(look_below(s, i, &bad));
        else
            PL_TRY(look(s, t, s->state + s->slot_at[i], false, &where, &value));
        if (bad || where >= 0) *slot = i;
    }
    return PL_OK;
}
