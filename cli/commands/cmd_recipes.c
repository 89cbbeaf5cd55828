/* cmd_recipes.c - `plimsoll recipes`: lists the built-in networks and their presets. */
#include "cli/ui.h"
#include "plimsoll_json.h"

static pl_status recipes_json(void)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_array(j, NULL);
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        pl_json_object(j, NULL);
        pl_json_string(j, "name", r->name);
        pl_json_string(j, "about", r->about);
        pl_json_array(j, "presets");
        for (const pl_preset *p = r->presets; p->name; p++) {
            char full[160];
            snprintf(full, sizeof full, "%s/%s", r->name, p->name);
            pl_json_string(j, NULL, full);
        }
        pl_json_end(j);
        pl_json_end(j);
    }
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

typedef struct recipes_options {
    bool json;
} recipes_options;

const cli_help cli_help_recipes = {
    .usage = "plimsoll recipes",
    .about = "Lists the built-in networks and their presets. A preset's name can be used wherever "
             "a\nconfiguration file can.",
    .examples = "  plimsoll recipes\n  plimsoll plan cloud/full\n",
    .options =
        (const cli_option[]){
            {"--json", NULL, offsetof(recipes_options, json), "print a JSON array"},
            {NULL},
        },
};

int cmd_recipes(int argc, char **argv)
{
    recipes_options o = {.json = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_recipes, &o, &a);
    cli_want(&a, 0, 0, "recipes", "no arguments");
    if (o.json) {
        pl_status rc = recipes_json();
        return rc == PL_OK ? 0 : cli_fail(rc);
    }
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        printf("%s%s%s  %s\n", cli_bold(stdout), r->name, cli_plain(stdout), r->about);
        for (const pl_preset *p = r->presets; p->name; p++) {
            char full[160];
            snprintf(full, sizeof full, "%s/%s", r->name, p->name);
            printf("  %-26s %s\n", full, p->about);
        }
    }
    return 0;
}
