/* checkpoint_config.c - may a run go on with another configuration than its checkpoint's?
 *
 * One table says it of every key of the engine that may differ; a key that is not in it, and every
 * key of a recipe, must be the same, but for those whose values give the same bits
 * (pl_recipe.smaller). What the table allows but adds or removes state (momentum, EMA) is found
 * when the state is read: a tensor is missing or left over.
 */
#include "train/files/checkpoint.h"

#include <string.h>

typedef struct rule {
    const char *keys; /* a pattern */
    pl_change change;
} rule;

static const rule rules[] = {
    {"train.steps,train.log_every,checkpoint.*,eval.every,eval.batches,eval.ema", PL_CHANGE_FREE},
    {"memory,checkpointing,checkpoint_scopes,recipe,init_from,data.allow_nonfinite",
     PL_CHANGE_FREE},
    {"data.workers,data.prefetch,log.*,monitor.*,sample.*", PL_CHANGE_FREE},
    {"distributed,shard,gradient_bucket,rank_timeout,link", PL_CHANGE_FREE},
    {"threads,device,compile.*,accumulate,ranks", PL_CHANGE_ROUND},
    {"optim.lr,optim.weight_decay,optim.betas,optim.eps,optim.momentum", PL_CHANGE_ONWARD},
    {"schedule.*,clip.*,loss_scale.*,ema.decay,stop.*", PL_CHANGE_ONWARD},
};

typedef struct comparison {
    void (*each)(void *ctx, const char *key, const char *old_value, const char *new_value,
                 pl_change change);
    void *ctx;
    const pl_recipe *recipe;
    bool coupled;     /* a split batch trains otherwise than a whole one */
    bool phases_done; /* those that are over are as they were */
    int refused;
} comparison;

static void compare_key(void *ctx, const char *key, const char *old_value, const char *new_value)
{
    comparison *c = ctx;
    pl_change change = PL_CHANGE_REFUSED;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (pl_nn_match(rules[i].keys, key)) change = rules[i].change;
    if (pl__tradeoff_key(c->recipe, key)) change = PL_CHANGE_FREE;
    if (c->coupled && pl_nn_match("accumulate,ranks", key)) change = PL_CHANGE_REFUSED;
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
