/* test_predict.c - what holds for the predictions of every recipe. */
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/data/images/image_set.h"

#include <stdio.h>
#include <string.h>

/* A recipe of the user's own need not offer predictions. */
TEST(predict_of_a_recipe_without_predictions_says_so)
{
    static const pl_preset presets[] = {{"tiny", "", "recipe: made\nbatch: 2\n"}, {0}};
    static const pl_config_entry schema[] = {{0}};
    static const pl_recipe made = {.abi = PL_RECIPE_ABI,
                                   .name = "made",
                                   .about = "a line",
                                   .schema = schema,
                                   .presets = presets,
                                   .build = small_run_linear,
                                   .data_read = small_run_noise};
    pl_run *run = NULL;
    CHECK_OK(small_run_open(&made, (const char *const[]){"batch=2"}, 1, &run));

    CHECK_INT(pl_run_predict_only(run), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "recipe made makes no predictions"), "%s", pl_error_text());
    pl_run_free(run);
}

/* Every built-in recipe has predictions that say what they read and write. */
TEST(predict_is_offered_by_every_built_in_recipe)
{
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        CHECK_MSG(r->predict && r->predict->out && r->predict->build && r->predict->run, "%s",
                  r->name);
    }
}

/* Every picture of a folder has a result of its own. Names are sorted as the reader sorts them. */
TEST(predict_results_have_names_of_their_own)
{
    static pl_item item[] = {
        {.name = "a.gif"},       {.name = "a.gif-2.png"}, {.name = "a.gif.jpg"},
        {.name = "a.png"},       {.name = "b.d/b.png"},   {.name = "b.png"},
        {.name = "c"},           {.name = "d.1.png"},     {.name = "d.2.jpg"},
        {.name = "e.v/x"},       {.name = "e.v/y"},       {.name = "f.bmp"},
        {.name = "f.large.bmp"}, {.name = "f.tiff"},
    };
    static const char *const want[] = {"a.gif", "a.gif-2", "a.gif.jpg", "a.png", "b.d/b",
                                       "b",     "c",       "d.1",       "d.2",   "e.v/x",
                                       "e.v/y", "f.bmp",   "f.large",   "f.tiff"};
    pl_items items = {.item = item, .n = sizeof item / sizeof *item};
    for (int64_t i = 0; i < items.n; i++) {
        char got[32];
        snprintf(got, sizeof got, "%.*s", pl__pictures_stem(&items, i), item[i].name);
        CHECK_MSG(strcmp(got, want[i]) == 0, "%s of %s, not %s", got, item[i].name, want[i]);
    }
}
