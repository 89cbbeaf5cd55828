/* own_values.c - initial values from a file of the recipe's own (pl_recipe.value).
 *
 * Slots that the host can address are read in place. Others pass through one block of host memory,
 * as large as the largest of them, which is freed again: it is needed before the first step only.
 *
 * A weight that is NaN in the file is an error here, because a NaN that a step or an evaluation
 * finds looks like training that diverged. Weights that init_from replaces are not examined.
 */
#include "base/sys.h"
#include "train/run/run.h"

#include <math.h>

static bool in_host(pl_run *r, int slot)
{
    return !pl_store_slot(r->store, slot)->shards && pl_session_slot(r->session, slot);
}

/* Weights, buffers and constants. */
static bool may_have(const pl_slot *s)
{
    return pl__slot_in_model(s) || s->kind == PL_SLOT_COUNTER;
}

static size_t block_bytes(pl_run *r)
{
    size_t most = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        size_t bytes = pl_type_bytes(pl_slot_type(s));
        if (may_have(s) && !in_host(r, i) && bytes > most) most = bytes;
    }
    return most;
}

/* Index of the first element that is NaN, or -1. The first loop is for the compiler's vectors. */
static int64_t first_nan(pl_dtype type, const void *block, int64_t n)
{
    if (type != PL_F32) return -1;
    const float *x = block;
    int any = 0;
    for (int64_t i = 0; i < n; i++) any |= x[i] != x[i];
    for (int64_t i = 0; any && i < n; i++)
        if (isnan(x[i])) return i;
    return -1;
}

static pl_status read_value(pl_run *r, const pl_slot *s, void *to, bool *known)
{
    PL_TRY(r->recipe->value(r->recipe->own, s, to, known));
    bool replaced = !pl_config_is_null(r->config, "init_from");
    if (!*known || s->kind != PL_SLOT_PARAM || replaced) return PL_OK;
    int64_t n = pl_type_elems(pl_slot_type(s)), at = first_nan(s->type.dtype, to, n);
    PL_FAIL_IF(
        at >= 0, PL_ERR_NUMERIC,
        "%s: the weight %.200s holds NaN (element %lld of %lld); write the file again from a "
        "network without NaN, or replace its weights by init_from",
        pl_config_text(r->config, "recipe"), s->name, (long long)at, (long long)n);
    return PL_OK;
}

/* Reads one slot through the block; a rank keeps its shard only. */
static pl_status read_through(pl_run *r, int slot, char *block, bool *known)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    int64_t first, n = pl__slot_range(s, &first);
    size_t size = pl_dtype_bytes(s->type.dtype);
    PL_TRY(read_value(r, s, block, known));
    if (!*known || !n) return PL_OK;
    return pl_session_write_slot(r->session, slot, 0, block + (size_t)first * size,
                                 (size_t)n * size);
}

static pl_status read_slots(pl_run *r, char *block)
{
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        bool known = false;
        if (!may_have(s)) continue;
        PL_TRY(in_host(r, i) ? read_value(r, s, pl_session_slot(r->session, i), &known)
                             : read_through(r, i, block, &known));
        if (known && r->files.filled) r->files.filled[i] = true;
    }
    return PL_OK;
}

pl_status pl__values_read(pl_run *r)
{
    if (!r->recipe->value) return PL_OK;
    size_t most = block_bytes(r);
    char *block = most ? pl_sys_alloc(most) : NULL;
    if (most && !block) return PL_ERR_MEMORY;
    pl_status rc = read_slots(r, block);
    pl_sys_free(block);
    return rc;
}
