/* test_predict.c - what holds for the predictions of every recipe. */
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

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
