/* averages.c - averaged copies of weights (ema.decay): which exist, and evaluations with them.
 *
 * The average of a weight is a slot of the optimiser whose name is a prefix and the weight's name.
 * An average that no update has written is all zeros; the weight itself then replaces it, as it
 * does for the average of a weight that was always zero.
 *
 * eval.ema: for an evaluation or a sample, weights and averages swap their bytes, and swap back
 * afterwards, also on failure. No extra program is compiled; on a GPU the bytes pass through the
 * host.
 */
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "ema."

bool pl__is_average(const pl_slot *s)
{
    return s->kind == PL_SLOT_OPTIMIZER && strncmp(s->name, PREFIX, strlen(PREFIX)) == 0;
}

bool pl_run_has_averages(const pl_run *r)
{
    for (int i = 0; i < pl_store_count(r->store); i++)
        if (pl__is_average(pl_store_slot(r->store, i))) return true;
    return false;
}

/* ---- has it been written? ------------------------------------------------------------------- */
static bool all_zero(const char *p, size_t bytes)
{
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

static pl_status fetched_is_zero(void *ctx, const char *data, size_t bytes)
{
    bool *zero = ctx;
    *zero &= all_zero(data, bytes);
    return PL_OK;
}

static pl_status slot_is_zero(pl_run *r, int slot, bool *zero)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t bytes = pl_type_bytes(pl_slot_type(s));
    *zero = true;
    if (s->shards) return pl__ranks_fetch(r, slot, fetched_is_zero, zero);
    for (size_t at = 0; at < bytes && *zero;) {
        size_t n = bytes - at < PL_STAGE_BYTES ? bytes - at : PL_STAGE_BYTES;
        PL_TRY(pl_session_read_slot(r->session, slot, at, r->files.stage, n));
        *zero = all_zero(r->files.stage, n);
        at += n;
    }
    return PL_OK;
}

pl_status pl__average_of(pl_run *r, int weight, int *average)
{
    bool zero;
    char name[512];
    int n = snprintf(name, sizeof name, PREFIX "%s", pl_store_slot(r->store, weight)->name);
    int slot = n > 0 && (size_t)n < sizeof name ? pl_store_find(r->store, name) : -1;
    *average = -1;
    if (slot < 0 || !pl__is_average(pl_store_slot(r->store, slot))) return PL_OK;
    PL_TRY(slot_is_zero(r, slot, &zero));
    if (!zero) *average = slot;
    return PL_OK;
}

/* ---- evaluations --------------------------------------------------------------------------- */
static bool wanted(const pl_run *r)
{
    return r->purpose.goal == PL_GOAL_TRAIN && pl_config_bool(r->config, "eval.ema");
}

pl_status pl__averages_check(const pl_run *r)
{
    if (!wanted(r)) return PL_OK;
    PL_FAIL_IF(!pl_run_has_averages(r), PL_ERR_CONFIG,
               "eval.ema needs averaged weights: set ema.decay, e.g. ema.decay=0.999");
    for (int i = 0; i < pl_store_count(r->store); i++)
        PL_FAIL_IF(
            pl__is_average(pl_store_slot(r->store, i)) && pl_store_slot(r->store, i)->shards,
            PL_ERR_CONFIG,
            "eval.ema cannot use averages that are sharded across ranks: set shard=none, or run "
            "plimsoll eval RUN --ema afterwards");
    return PL_OK;
}

/* Swaps two slots of the same type and layout. */
static pl_status swap_slots(pl_run *r, int a, int b)
{
    enum { HALF = PL_STAGE_BYTES / 2 };
    size_t bytes = pl_type_bytes(&pl_store_slot(r->store, a)->type);
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < HALF ? bytes - at : HALF;
        PL_TRY(pl_session_read_slot(r->session, a, at, r->files.stage, n));
        PL_TRY(pl_session_read_slot(r->session, b, at, r->files.stage + HALF, n));
        PL_TRY(pl_session_write_slot(r->session, b, at, r->files.stage, n));
        PL_TRY(pl_session_write_slot(r->session, a, at, r->files.stage + HALF, n));
        at += n;
    }
    return PL_OK;
}

/* Swaps every weight that has an average; back: only the weights that were swapped. */
static pl_status swap_all(pl_run *r, bool back)
{
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        int average = -1;
        if (!pl__slot_in_model(s)) continue;
        if (!back) PL_TRY(pl__average_of(r, i, &average));
        if (!back)
            r->files.swapped[i] =
                average >= 0 && pl_type_equal(&s->type, &pl_store_slot(r->store, average)->type)
                    ? average + 1
                    : 0;
        if (r->files.swapped[i]) PL_TRY(swap_slots(r, i, r->files.swapped[i] - 1));
    }
    return PL_OK;
}

pl_status pl__averages_begin(pl_run *r)
{
    if (!wanted(r)) return PL_OK;
    size_t n = (size_t)pl_store_count(r->store) + 1;
    if (!r->files.swapped) r->files.swapped = pl_arena_new(&r->arena, int, n);
    if (!r->files.swapped) return PL_ERR_MEMORY;
    memset(r->files.swapped, 0, n * sizeof *r->files.swapped);
    return swap_all(r, false);
}

pl_status pl__averages_end(pl_run *r, pl_status rc)
{
    if (!wanted(r) || !r->files.swapped) return rc;
    pl_status back = swap_all(r, true);
    return rc == PL_OK ? back : rc;
}
