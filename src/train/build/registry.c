/* registry.c - the built-in recipes. */
#include "plimsoll_train.h"

#include <string.h>

#define PL_RECIPE(name)       extern const pl_recipe pl_recipe_##name;
#define PL_RECIPE_INNER(name) PL_RECIPE(name)
#include "train/build/recipes.def"
#undef PL_RECIPE
#undef PL_RECIPE_INNER

static const pl_recipe *const table[] = {
#define PL_RECIPE(name) &pl_recipe_##name,
#define PL_RECIPE_INNER(name)
#include "train/build/recipes.def"
#undef PL_RECIPE
#undef PL_RECIPE_INNER
};
static const pl_recipe *const inner[] = {
#define PL_RECIPE(name)
#define PL_RECIPE_INNER(name) &pl_recipe_##name,
#include "train/build/recipes.def"
#undef PL_RECIPE
#undef PL_RECIPE_INNER
};

int pl_recipe_count(void)
{
    return (int)(sizeof table / sizeof table[0]);
}

const pl_recipe *pl_recipe_at(int i)
{
    return table[i];
}

const pl_recipe *pl_recipe_find(const char *name)
{
    for (int i = 0; i < pl_recipe_count(); i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (strcmp(inner[i]->name, name) == 0) return inner[i];
    return NULL;
}
