/* checkpoint_config.c - may a run resume with another configuration than its checkpoint's?
 *
 * The row of a key says so (pl_config_entry.resume). Three things can overrule the row: a trade-off
 * of the recipe changes no bit, so its key may differ; a batch split despite coupled samples must
 * stay split the same way; and a list of phases may differ in phases that have not started. A
 * change that adds or removes state (momentum, EMA) is found later, when the state is read: a
 * tensor is missing or left over.
 */
#include "train/files/checkpoint.h"

#include <string.h>

typedef struct comparison {
    void (*each)(void *ctx, const char *key, const char *old_value, const char *new_value,
                 pl_change change);
    void *ctx;
    const pl_config *config;
    const pl_recipe *recipe;
    bool coupled;     /* accumulate_coupled: how the batch is split changes results */
    bool phases_done; /* the phases that have started are the same in both */
    int refused;
} comparison;

static pl_change change_by_row(const pl_config_entry *row, bool coupled)
{
    switch (row ? row->resume : PL_RESUME_SAME) {
    case PL_RESUME_SAME: break;
    case PL_RESUME_FREE: return PL_CHANGE_FREE;
    case PL_RESUME_ONWARD: return PL_CHANGE_ONWARD;
    case PL_RESUME_ROUND: return PL_CHANGE_ROUND;
    case PL_RESUME_SPLIT: return coupled ? PL_CHANGE_REFUSED : PL_CHANGE_ROUND;
    }
    return PL_CHANGE_REFUSED;
}

static void compare_key(void *ctx, const char *key, const char *old_value, const char *new_value)
{
    comparison *c = ctx;
    pl_change change = change_by_row(pl_config_row(c->config, key), c->coupled);
    if (pl__tradeoff_key(c->recipe, key)) change = PL_CHANGE_FREE;
    if (c->phases_done && strcmp(key, "phases") == 0) change = PL_CHANGE_ONWARD;
    c->refused += change == PL_CHANGE_REFUSED;
    if (c->each) c->each(c->ctx, key, old_value, new_value, change);
}

pl_status pl_checkpoint_compare(const pl_run *r, const char *dir,
                                void (*each)(void *ctx, const char *key, const char *old_value,
                                             const char *new_value, pl_change change),
                                void *ctx, int *refused)
{
    const pl_config_entry *tables[3] = {pl_engine_schema, r->recipe->schema};
    pl_arena names = PL_ARENA_INIT;
    int n = r->recipe->schema ? 2 : 1;
    char path[PL_PATH_BYTES];
    pl_config *old = NULL;
    comparison c = {.each = each,
                    .ctx = ctx,
                    .config = r->config,
                    .recipe = r->recipe,
                    .coupled = pl_config_bool(r->config, "accumulate_coupled")};
    PL_TRY(pl__path(path, dir, "config.yaml"));
    if (r->recipe->optims && !(tables[n++] = pl__optim_schema(&names, r->recipe->optims)))
        return PL_ERR_MEMORY;
    pl_status rc = pl_config_new(tables, n, &old);
    if (rc == PL_OK) rc = pl_config_load(old, path);
    c.phases_done =
        rc == PL_OK && r->phases.now >= 0 && pl__phases_same(old, r->config, pl__phase_item(r));
    if (rc == PL_OK) rc = pl_config_diff(old, r->config, compare_key, &c);
    pl_config_free(old);
    pl_arena_release(&names);
    *refused = c.refused;
    return rc;
}
