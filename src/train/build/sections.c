/* sections.c - optimiser sections that train nothing.
 *
 * A recipe with several optimisers has a section of keys for each (pl_recipe.optims), and a
 * configuration may switch a stage off. A key on the command line whose section then trains nothing
 * would change nothing: that is a mistake, and the message names the section that does train. Keys
 * of files are left alone, because presets set the sections of all stages.
 */
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

/* The first section that trains something in a program; NULL: none. */
static const char *first_section(const pl_builder *b)
{
    for (int i = 0; i < b->n_step_programs; i++)
        if (b->step_programs[i].groups) return b->step_programs[i].groups->section;
    return NULL;
}

static bool trains(const pl_builder *b, const char *section)
{
    for (int i = 0; i < b->n_step_programs; i++)
        for (const pl_group_draft *g = b->step_programs[i].groups; g; g = g->next)
            if (strcmp(g->section, section) == 0) return true;
    return false;
}

static pl_status check_section(const pl_builder *b, const char *section, const char *other)
{
    static const char *const keys[] = {"lr", "name", "weight_decay", "betas", "momentum", "state"};
    char key[128];
    if (trains(b, section)) return PL_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", section, keys[i]);
        if (!pl_config_has(b->config, key)) continue;
        PL_FAIL_IF(strcmp(pl_config_where(b->config, key), "command line") == 0, PL_ERR_CONFIG,
                   "%s changes nothing: no program of this configuration is trained by %s; set "
                   "%s.%s",
                   key, section, other, keys[i]);
    }
    return PL_OK;
}

pl_status pl__sections_check(const pl_builder *b, const pl_recipe *recipe)
{
    const char *other = first_section(b);
    if (!other || b->goal != PL_GOAL_TRAIN || !pl_config_is_null(b->config, "phases")) return PL_OK;
    PL_TRY(check_section(b, "optim", other));
    for (const char *const *s = recipe->optims; s && *s; s++) PL_TRY(check_section(b, *s, other));
    return PL_OK;
}
