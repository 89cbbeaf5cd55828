/* test_mistakes.c - a network with an obvious mistake is refused before it trains. */
#include "plimsoll_nn.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <string.h>

typedef enum mistake {
    LOSS_OF_EACH,
    LOSS_KEPT,
    SCORE_OF_EACH,
    MAP_ATTENDS,
    MAP_ATTENDS_BARE,
    LONG_SHAPE,
    NO_SLOT,
    N_MISTAKES
} mistake;

static const struct {
    pl_status rc;
    const char *text;
} told[N_MISTAKES] = {{PL_ERR_SHAPE, "the loss is f32[4]"},
                      {PL_ERR_SHAPE, "the loss is f32[1,1]"},
                      {PL_ERR_SHAPE, "evaluation output \"each\" is f32[4]"},
                      {PL_ERR_SHAPE, "attn: rank 4 attends to rank 4"},
                      {PL_ERR_SHAPE, "f32[4,2,2,2]"},
                      {PL_ERR_SHAPE, "long: rank 9; at most 8"},
                      {PL_ERR_ARG, "no slot 999"}};

static mistake made;

static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b), *e = pl_builder_eval(b);
    int64_t n = pl_builder_batch(b);
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 8)),
           y = pl_nn_linear(m, x, "first", 8, (pl_nn_lin){0});
    pl_val each = pl_mean(m->g, pl_square(m->g, y), 1u << 1, false),
           loss = pl_mean(m->g, each, PL_AXES_ALL, false);
    if (made == LOSS_OF_EACH) loss = each;
    if (made == LOSS_KEPT) loss = pl_mean(m->g, pl_square(m->g, y), PL_AXES_ALL, true);
    pl_val map = pl_reshape(m->g, y, 4, (const int64_t[]){n, 2, 2, 2});
    if (made == MAP_ATTENDS)
        loss =
            pl_mean(m->g, pl_nn_multi_head_attention(m, map, map, "attn", 2), PL_AXES_ALL, false);
    if (made == MAP_ATTENDS_BARE)
        loss = pl_mean(m->g, pl_nn_attend(m->g, map, map, map, 2), PL_AXES_ALL, false);
    if (made == LONG_SHAPE)
        pl_nn_param(m, "long", 9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 2, 5}, pl_nn_constant(0));
    if (made == NO_SLOT) pl_nn_read(m, 999);
    pl_builder_minimise(b, loss);
    pl_val z =
        pl_nn_linear(e, pl_input(e->g, "x", PL_TYPE(PL_F32, n, 8)), "first", 8, (pl_nn_lin){0});
    pl_val score = pl_mean(e->g, pl_square(e->g, z), 1u << 1, false);
    if (made == SCORE_OF_EACH) pl_output(e->g, "each", score);
    pl_output(e->g, "loss", pl_mean(e->g, score, PL_AXES_ALL, false));
    return PL_OK;
}

static int64_t endless(void *data, pl_subset subset)
{
    (void)data, (void)subset;
    return 0;
}

TEST(mistakes_of_a_recipe_are_reported_before_training)
{
    static const pl_config_entry none[] = {{NULL}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "mistakes",
                                     .about = "one layer",
                                     .schema = none,
                                     .build = build,
                                     .data_size = endless,
                                     .data_read = small_run_noise};
    static const char *const keys[] = {"batch=4"};
    for (made = 0; made <= N_MISTAKES; made++) { /* the last label is out of range */
        pl_run *run = NULL;
        CHECK_OK(small_run_open(&recipe, keys, 1, &run));
        pl_status rc = pl_run_build(run), want = made < N_MISTAKES ? told[made].rc : PL_OK;
        CHECK_MSG(rc == want && (rc == PL_OK || strstr(pl_error_text(), told[made].text)),
                  "mistake %d: %s: %s", made, pl_status_name(rc), pl_error_text());
        pl_run_free(run);
    }
}

static pl_status write_other_type(void *data, pl_subset subset, const int64_t *sample, int n,
                                  pl_batch *batch)
{
    (void)data, (void)subset, (void)sample;
    int32_t *none = pl_batch_i32(batch, "none"), *x = pl_batch_i32(batch, "x");
    for (int i = 0; i < n; i++) x[i] = none ? 1 : 0;
    return PL_OK;
}

TEST(mistakes_of_types_in_data_are_reported)
{
    static const pl_config_entry none[] = {{NULL}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "mistakes",
                                     .about = "one layer",
                                     .schema = none,
                                     .build = build,
                                     .data_size = endless,
                                     .data_read = write_other_type};
    static const char *const keys[] = {"batch=4"};
    pl_run *run = NULL;
    pl_step_info info;
    made = N_MISTAKES;
    CHECK_OK(small_run_open(&recipe, keys, 1, &run));
    CHECK_OK(pl_run_build(run));
    pl_status rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    CHECK_INT(rc, PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(),
                     "data_read writes input \"x\" as i32, and the program declares f32[4,8]"),
              "%s", pl_error_text());
    pl_run_free(run);
}

/* A stage that is off has keys, too. */
TEST(mistakes_keys_of_a_section_that_trains_nothing_are_refused)
{
    WANT_BIN();

    cli_result r = cli_run("$P plan fluxflow/flow-tiny optim.lr=1e-6");

    CHECK_MSG(r.code == 2 && strstr(r.err, "optim.lr changes nothing") &&
                  strstr(r.err, "set optim_flow.lr"),
              "%d %s", r.code, r.err);
    r = cli_run("$P train fluxflow/flow-tiny optim_flow.lr=1e6 optim_flow.clip.norm=0 "
                "train.steps=20 --quiet");
    CHECK_MSG(r.code == 7 && strstr(r.err, "lower optim_flow.lr"), "%d %s", r.code, r.err);
}
