/* test_folds.c - folds: each phase of a run trains without one part of the data and is evaluated
 * on that part, for generated samples, pictures and arrays. */
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <string.h>

enum { FOLDED = 11 };
static struct {
    int train[FOLDED], eval[FOLDED], other; /* how often each sample was read; of the other set */
} reads;

static pl_status folded_read(void *data, pl_subset subset, const int64_t *sample, int n,
                             pl_batch *batch)
{
    /* Only the evaluation program has the input "which". */
    bool eval = pl_batch_input(batch, "which", NULL) != NULL;
    for (int i = 0; i < n; i++) (eval ? reads.eval : reads.train)[sample[i]]++;
    reads.other += subset != PL_SUBSET_TRAIN;
    float *which = pl_batch_input(batch, "which", NULL);
    for (int i = 0; which && i < n; i++) which[i] = (float)sample[i];
    return small_run_noise(data, subset, sample, n, batch);
}

static int64_t folded_size(void *data, pl_subset subset)
{
    (void)data;
    return subset == PL_SUBSET_TRAIN ? FOLDED : 5;
}

static pl_status folded_build(pl_builder *b)
{
    PL_TRY(small_run_linear(b));
    pl_nn *e = pl_builder_eval(b);
    pl_type t = PL_TYPE(PL_F32, pl_builder_batch(b), 2);
    pl_val x = pl_nn_linear(e, pl_input(e->g, "x", t), "fc", 2, (pl_nn_lin){0});
    pl_output(e->g, "loss", pl_loss_mse(e->g, x, pl_input(e->g, "y", t)));
    pl_output(e->g, "which",
              pl_mean(e->g, pl_input(e->g, "which", PL_TYPE(PL_F32, pl_builder_batch(b))),
                      PL_AXIS(0), false));
    return PL_OK;
}

/* Every sample is left out of training in one fold, and evaluated in that fold only. */
TEST(phases_folds_leave_every_sample_out_once)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "folded",
                                     .schema = schema,
                                     .build = folded_build,
                                     .data_size = folded_size,
                                     .data_read = folded_read};
    const char *keys[] = {"phases=[{name: loo, folds: 4, until: {steps: 16}}]", "batch=3"};
    int left_out[FOLDED] = {0};

    for (int fold = 0; fold < 4; fold++) {
        pl_run *r = NULL;
        pl_step_info info;
        pl_eval_info e;
        CHECK_OK(small_run_open(&recipe, keys, 2, &r));
        CHECK_INT(pl_run_phase_count(r), 4);
        CHECK_OK(pl_run_enter(r, fold, 0));
        CHECK_OK(pl_run_build(r));
        memset(&reads, 0, sizeof reads);
        CHECK_OK(pl_run_start(r));
        for (int i = 0; i < 16; i++) CHECK_OK(pl_run_step(r, &info));
        CHECK_OK(pl_run_eval(r, &e));
        int n = 0;
        double sum = 0;
        for (int i = 0; i < FOLDED; i++) {
            CHECK_MSG((reads.train[i] > 0) != (reads.eval[i] > 0),
                      "fold %d: sample %d: %d and %d reads", fold, i, reads.train[i],
                      reads.eval[i]);
            left_out[i] += reads.eval[i] > 0;
            n += reads.eval[i] > 0;
            sum += reads.eval[i] > 0 ? i : 0;
        }
        CHECK(reads.other == 0 && e.samples == n && n == (fold < 3 ? 3 : 2));
        CHECK_NEAR(e.value[1], sum / n, 1e-5);
        CHECK_NEAR(info.epoch, 48.0 / (FOLDED - n), 1e-9);
        pl_run_free(r);
    }
    for (int i = 0; i < FOLDED; i++) CHECK_INT(left_out[i], 1);
    static const struct {
        const char *keys[2], *want;
    } bad[] = {{{"data.folds=1", "seed=0"}, "at least 2 folds"},
               {{"data.folds=4", "data.fold=4"}, "are 0 to 3"},
               {{"data.folds=12", "seed=0"}, "some would be empty"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_run *r = NULL;
        CHECK_OK(small_run_open(&recipe, bad[i].keys, 2, &r));
        CHECK_OK(pl_run_build(r));
        CHECK_INT(pl_run_start(r), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), bad[i].want), "%s", pl_error_text());
        pl_run_free(r);
    }
}

static pl_status pictures_build(pl_builder *b)
{
    int64_t n = pl_builder_batch(b);
    pl_nn *m[2] = {pl_builder_train(b), pl_builder_eval(b)};
    for (int i = 0; i < 2; i++) {
        pl_graph *g = m[i]->g;
        pl_val x = pl_reshape(g, pl_input(g, "x", PL_TYPE(PL_F32, n, 8, 8, 3)), PL_DIMS(n, 192));
        pl_val label = pl_input(g, "label", PL_TYPE(PL_F32, n));
        pl_val y = pl_squeeze(g, pl_nn_linear(m[i], x, "fc", 1, (pl_nn_lin){0}), 1);
        pl_val loss = pl_loss_mse(g, y, label);
        pl_output(g, "label", pl_mean(g, label, PL_AXIS(0), false));
        pl_val middle = pl_full_like(g, label, 1);
        pl_output(g, "middle",
                  pl_mean(g, pl_cast(g, pl_eq(g, label, middle), PL_F32), PL_AXIS(0), false));
        if (i)
            pl_output(g, "loss", loss);
        else
            pl_builder_minimise(b, loss);
    }
    return PL_OK;
}

/* Twelve pictures in three classes: the three folds are the three classes. */
TEST(phases_folds_split_pictures_by_class)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_image_input inputs[] = {{"x", 0, 1}, {NULL, 0, 0}};
    static const pl_image_feed feed = {.images = inputs, .label = "label"};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "pictures",
                                     .schema = schema,
                                     .build = pictures_build,
                                     .images = &feed};
    char path[600];

    snprintf(path, sizeof path, "data.path=%s/set", pl_test_dir());
    if (!image_folder(path + 10, 12, 3, 16, 16, 0)) SKIP("libturbojpeg is not installed");
    for (int balance = 0; balance < 2; balance++) {
        const char *keys[] = {
            path,          "batch=2",        "data.folds=3",
            "data.fold=1", "data.workers=0", balance ? "data.balance=true" : "data.balance=false"};
        pl_run *r = NULL;
        pl_step_info info;
        pl_eval_info e;
        CHECK_OK(small_run_open(&recipe, keys, 6, &r));
        CHECK_OK(pl_run_build(r));
        CHECK_OK(pl_run_start(r));
        for (int i = 0; i < 12; i++) {
            CHECK_OK(pl_run_step(r, &info));
            for (int k = 0; k < info.n_terms; k++)
                if (strcmp(info.term_name[k], "middle") == 0) CHECK(info.term[k] == 0);
        }
        CHECK_OK(pl_run_eval(r, &e));
        CHECK(e.samples == 4);
        for (int k = 0; k < e.n; k++)
            if (strcmp(e.name[k], "label") == 0) CHECK_NEAR(e.value[k], 1, 1e-6);
        pl_run_free(r);
    }
}

/* Arrays on disk are split into folds as the recipe's own samples are. */
TEST(phases_folds_split_arrays_like_generated_samples)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P generate " CLI_SMALL "--out %s/set", d), 0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL
                      "data.folds=3 data.fold=1 train.steps=8 --quiet --out %s/a",
                      d),
              0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL
                      "data.folds=3 data.fold=1 train.steps=8 --quiet data.path=%s/set --out "
                      "%s/b",
                      d, d),
              0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=8 --quiet --out %s/c", d), 0, "");

    CHECK(cli_same("a/model.safetensors", "b/model.safetensors") &&
          cli_same("a/eval.csv", "b/eval.csv"));
    CHECK(!cli_same("a/model.safetensors", "c/model.safetensors"));
}
