/* test_cloud_learns.c - training the cloud recipe: every architecture learns, losses are what their
 * names say, evaluation reports kilometres, and a loss that blows up ends the run. */
#include "plimsoll_train.h"
#include "tests/lib/test.h"

#include <string.h>

/* Every architecture learns: the loss of the last steps is below the loss of the first steps. */
TEST(cloud_loss_falls_for_every_architecture)
{
    static const char *const names[] = {"architecture.name=gnn", "architecture.name=ssm",
                                        "architecture.name=lstm", "architecture.name=cnn"};
    for (int i = 0; i < 4; i++) {
        const char *keys[] = {names[i],
                              "model.graph_width=4",
                              "model.graph_heads=2",
                              "model.graph_dropout=0",
                              "model.dropout_conv=0",
                              "model.dropout_dense=[0, 0]",
                              "optim.lr=3e-3",
                              "data.samples=8",
                              "augment.flip=0.5",
                              "augment.jitter=0.1",
                              "augment.erase=0.2",
                              "loss.type=weighted_huber_mae",
                              "loss.under_weight=1.5",
                              "loss.variance=0.1"};
        pl_run *run = NULL;
        pl_step_info info;
        double first = 0, last = 0;
        CHECK_OK(pl_run_open("cloud/tiny", keys, 14, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        for (int s = 0; s < 60; s++) {
            CHECK_OK(pl_run_step(run, &info));
            if (s < 6) first += info.loss;
            if (s >= 54) last += info.loss;
        }
        CHECK_MSG(last < 0.6 * first, "%s: %g to %g", names[i], first / 6, last / 6);
        pl_run_free(run);
    }
}

/* Shares of predictions within a distance, for heights uniform in 0.1 to 2 km and predictions
 * near the middle. */
TEST(cloud_evaluates_shares_of_answers_within_a_distance)
{
    pl_run *run;
    pl_eval_info e;
    double share[3] = {-1, -1, -1}, mae = 0;
    CHECK_OK(pl_run_open("cloud/tiny", NULL, 0, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_eval(run, &e));
    for (int i = 0; i < e.n; i++) {
        static const char *const names[] = {"within_100m", "within_250m", "within_500m"};
        for (int k = 0; k < 3; k++)
            if (strcmp(e.name[i], names[k]) == 0) share[k] = e.value[i];
        if (strcmp(e.name[i], "mae_km") == 0) mae = e.value[i];
    }

    /* Markov's inequality: the share above x is at most mean / x, and the mean is at least x
     * times that share. */
    CHECK(0 <= share[0] && share[0] <= share[1] && share[1] <= share[2] && share[2] <= 1);
    CHECK_MSG(0.1 * (1 - share[0]) <= mae && 0.5 * (1 - share[2]) <= mae, "%g %g %g, mae %g",
              share[0], share[1], share[2], mae);
    CHECK_MSG(share[2] > 0.3 && share[2] < 0.9 && share[0] < 0.4, "%g %g %g", share[0], share[1],
              share[2]);
    pl_run_free(run);
}

/* Network outputs that are not finite, though the loss is: they are counted over all
 * micro-batches before the update reuses their memory. In this plan the update would overwrite
 * the count. */
TEST(cloud_outputs_that_are_not_finite_end_the_run)
{
    static const char *const keys[] = {"architecture.name=gnn",
                                       "height=17",
                                       "width=34",
                                       "model.channels=[16, 46, 33]",
                                       "model.dense=[5, 32]",
                                       "model.film_hidden=41",
                                       "model.dropout_conv=0",
                                       "model.graph_width=13",
                                       "model.graph_heads=2",
                                       "batch=9",
                                       "accumulate=3",
                                       "accumulate_coupled=true",
                                       "loss.mining_fraction=0.19",
                                       "seed=6969",
                                       "optim.lr=1e-4"};
    for (int k = 0; k < 2; k++) {
        pl_run *run;
        pl_step_info info;
        const float beyond = INFINITY;
        CHECK_OK(pl_run_open("cloud/tiny", keys, 15, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        if (k)
            CHECK_OK(pl_session_write_slot(pl_run_session(run),
                                           pl_store_find(pl_run_store(run), "out.bias"), 0, &beyond,
                                           sizeof beyond));
        CHECK_INT(pl_run_step(run, &info), k ? PL_ERR_NUMERIC : PL_OK);
        if (k)
            CHECK_MSG(strstr(pl_error_text(), "step 1: 9 of the network's outputs are not finite"),
                      "%s", pl_error_text());
        pl_run_free(run);
    }
}
