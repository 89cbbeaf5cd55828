/* tradeoffs.c - a recipe's settings that save memory and cost time (pl_recipe.smaller).
 *
 * Level k enables the first k of the settings whose keys the configuration leaves open (auto), in
 * the recipe's order. The run's own configuration does not change: programs are built with a copy
 * that has the level's settings, so that files, ranks and resumed runs see no difference. choose.c
 * chooses the level.
 */
#include "train/run/run.h"

#include <string.h>

/* ---- settings --------------------------------------------------------------------------- */
static bool same_key(const char *setting, const char *key)
{
    size_t n = strcspn(setting, "=");
    return strlen(key) == n && memcmp(setting, key, n) == 0;
}

bool pl__tradeoff_key(const pl_recipe *recipe, const char *key)
{
    for (const pl_tradeoff *t = recipe->smaller; t && t->setting; t++)
        if (same_key(t->setting, key)) return true;
    return false;
}

/* Whether the configuration leaves the setting open. */
static bool is_open(const pl_run *r, const pl_tradeoff *t)
{
    char key[64];
    size_t n = strcspn(t->setting, "=");
    if (n >= sizeof key) return false;
    memcpy(key, t->setting, n);
    key[n] = '\0';
    return pl_config_has(r->config, key) && strcmp(pl_config_text(r->config, key), "auto") == 0;
}

/* The i-th open setting; NULL past the end. */
static const pl_tradeoff *open_at(const pl_run *r, int i)
{
    for (const pl_tradeoff *t = r->recipe->smaller; t && t->setting; t++)
        if (is_open(r, t) && i-- == 0) return t;
    return NULL;
}

int pl__tradeoffs(const pl_run *r)
{
    int n = 0;
    if (r->purpose.goal != PL_GOAL_TRAIN) return 0;
    while (open_at(r, n)) n++;
    return n;
}

const pl_tradeoff *pl_run_tradeoff_at(const pl_run *r, int i, double *without_ms)
{
    if (without_ms) *without_ms = r->build ? r->build->without_ms : 0;
    return r->build && i < r->build->level ? open_at(r, i) : NULL;
}

pl_status pl__tradeoff_config(pl_run *r, int level, pl_config **out)
{
    *out = NULL;
    if (level == 0) return PL_OK;
    PL_TRY(pl__run_config_copy(r, r->config, out));
    for (int i = 0; i < level; i++) PL_TRY(pl_config_override(*out, open_at(r, i)->setting));
    return PL_OK;
}
