/* own_values.c - initial values from a file of the recipe's own (pl_recipe.value).
 *
 * Slots that the host can address are read in place. Others pass through one block of host memory,
 * as large as the largest of them, which is freed again: it is needed before the first step only.
 */
#include "base/sys.h"
#include "train/run/run.h"

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

/* Reads one slot through the block; a rank keeps its shard only. */
static pl_status read_through(pl_run *r, int slot, char *block, bool *known)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    int64_t first, n = pl__slot_range(s, &first);
    size_t size = pl_dtype_bytes(s->type.dtype);
    PL_TRY(r->recipe->value(r->recipe->own, s, block, known));
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
        PL_TRY(in_host(r, i)
                   ? r->recipe->value(r->recipe->own, s, pl_session_slot(r->session, i), &known)
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
