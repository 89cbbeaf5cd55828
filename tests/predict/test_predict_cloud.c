/* test_predict_cloud.c - heights of new frames: arrays and flights without targets, through the
 * command line. The errors of the predictions against known heights must be those of `eval`. */
#include "plimsoll_hdf5.h"
#include "recipes/cloud/cloud.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN "cd %s && "
#define TOY                                                                                        \
 "frames=3 height=10 width=8 data.first_row=2 batch=4 'model.channels=[2, 3, 4]' "                 \
 "'model.dense=[4, 4]' model.film_hidden=4 data.samples=12 data.eval_samples=6 train.steps=3 "     \
 "eval.every=0 eval.batches=2 "

/* Predictions do not read target.npy. Their mean error against it equals the error that `eval`
 * reports. */
TEST(cloud_predicts_heights_of_arrays_without_targets)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P generate cloud/tiny " TOY "--out set --quiet && "
                         "$P train cloud/tiny " TOY "data.path=set --out run --quiet && "
                         "mkdir new && cp set/eval/frames.npy set/eval/angles.npy new && "
                         "$P predict run --input new --out got/deep --quiet",
                      d),
              0, "");

    pl_type t, u;
    float *km = predicted_numbers("got/deep/heights.npy", &t),
          *target = predicted_numbers("set/eval/target.npy", &u);
    CHECK(km && target && t.dim[0] == 6 && u.dim[0] == 6);

    double mae = 0;
    char want[64], path[700];
    snprintf(path, sizeof path, "%s/got/deep/heights.csv", d);
    const char *csv = cli_read(path);
    CHECK_MSG(strncmp(csv, "sample,height_km\n", 17) == 0, "%s", csv);

    for (int64_t i = 0; i < 6; i++) {
        mae += fabs((double)km[i] - ((double)target[i] * CLOUD_STD_KM + CLOUD_MEAN_KM)) / 6;
        snprintf(want, sizeof want, "\n%lld,%.9g\n", (long long)i, (double)km[i]);
        CHECK_MSG(strstr(csv, want), "%s: no line %s", csv, want);
    }
    cli_result r = cli_run(IN "$P eval run --json", d);
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_NEAR(predicted_metric(r.out, "mae_km"), mae, 1e-6);
    free(km);
    free(target);
    /* A budget for fewer samples at a time says so: their last bit may differ. */
    CHECK_RUN(cli_run(IN "$P predict run --input new --out less batch=65536 --memory 60MB", d), 0,
              "instead of 65536");
}

/* The authors' scaler of heights, pickled in a checkpoint: its numbers are the scale of outputs,
 * and the model file keeps them. */
TEST(cloud_heights_have_the_scale_of_the_authors_scaler)
{
    const double mean = 0.8437512345, std = sqrt(0.12890625);
    const char *d = pl_test_dir();
    char here[1024];
    WANT_BIN();
    CHECK(getcwd(here, sizeof here));
    CHECK_RUN(cli_run(IN "$P train cloud/tiny " TOY "--out run --quiet && "
                         "$P generate cloud/tiny " TOY "--out set --quiet && mkdir new && "
                         "cp set/eval/frames.npy set/eval/angles.npy new && "
                         "$P predict run --input new --out a --quiet && "
                         "$P predict run --input new --out b --quiet "
                         "target.scaler=%s/tests/data/pt/scaler.pth && "
                         "$P train cloud/tiny " TOY "target.scaler=%s/tests/data/pt/scaler.pth "
                         "--out own --quiet && "
                         "$P predict own --input new --out c --quiet target.scaler=auto && "
                         "$P predict own --input new --out d --quiet && cmp c/heights.npy "
                         "d/heights.npy",
                      d, here, here),
              0, "");
    pl_type t;
    float *a = predicted_numbers("a/heights.npy", &t), *b = predicted_numbers("b/heights.npy", &t);
    CHECK(a && b && t.dim[0] == 6);
    for (int i = 0; i < 6; i++)
        CHECK_NEAR((double)b[i], ((double)a[i] - CLOUD_MEAN_KM) / CLOUD_STD_KM * std + mean, 2e-6);
    free(a), free(b);
    CHECK_RUN(cli_run(IN "$P predict own --input new --out e target.scaler=published", d), 6,
              "scaler");
    CHECK_RUN(
        cli_run(IN "$P predict run --input new --out e target.scaler=run/model.safetensors", d), 2,
        "has no scaler");
    CHECK_RUN(cli_run(IN "test ! -e e", d), 0, "");
}

/* Flights: every frame has a height, also without a lidar; at the labelled frames the error is that
 * of `eval`. Another budget gives the same bytes. */
TEST(cloud_predicts_heights_of_every_frame_of_a_flight)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    if (pl_hdf5_missing()) SKIP("libhdf5 is not here");

    CHECK_RUN(cli_run(IN "$P generate cloud/tiny " TOY "--raw --out f --quiet && "
                         "$P train cloud/tiny " TOY
                         "data.flights=f data.eval_flights=12Feb25 --out run --quiet && "
                         "rm f/12Feb25_lidar* && cd f && $P predict ../run --out ../got --quiet "
                         "--input '12Feb25=12Feb25_camera.h5,12Feb25_nav.h5'",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN
                      "$P predict run --out one --quiet --memory 60MB "
                      "--input '12Feb25=f/12Feb25_camera.h5,f/12Feb25_nav.h5' && "
                      "cmp one/heights.npy got/heights.npy && cmp one/heights.csv got/heights.csv",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P generate cloud/tiny " TOY "--raw --out g --quiet", d), 0, "");

    cli_result r = cli_run(IN "$P eval run data.flights=g --json", d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    double eval = predicted_metric(r.out, "mae_km"), mae = 0;
    pl_type t;
    float *km = predicted_numbers("got/heights.npy", &t);
    CHECK(km && t.rank == 1 && t.dim[0] == 18);

    for (int64_t i = 0; i < 6; i++)
        mae += fabs((double)km[3 * i + 1] - cloud_sky_truth(PL_SUBSET_EVAL, i).km) / 6;
    CHECK_NEAR(eval, mae, 1e-5);

    char path[700];
    snprintf(path, sizeof path, "%s/got/heights.csv", d);
    CHECK_MSG(strstr(cli_read(path), "flight,frame,time,height_km\n12Feb25,0,1739318400.000,"),
              "%s", cli_read(path));
    free(km);
}

TEST(cloud_predictions_refuse_what_they_cannot_read)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P generate cloud/tiny " TOY "--out set --quiet && "
                         "$P train cloud/tiny " TOY "data.path=set --out run --quiet && "
                         "mkdir lame odd && cp set/eval/frames.npy lame && "
                         "cp set/eval/frames.npy odd && cp set/train/angles.npy odd",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input lame --out got", d), 5, "lame/angles.npy");
    CHECK_RUN(cli_run(IN "$P predict run --input odd --out got", d), 5,
              "6 stacks of frames and 12 pairs of angles");
    CHECK_RUN(cli_run(IN "$P predict run --input nowhere --out got", d), 2,
              "--input: \"nowhere\" is neither");
    CHECK_RUN(cli_run(IN "$P predict run --input a=b --out got", d), 2, "NAME=CAMERA,NAV");
    CHECK_RUN(cli_run(IN "$P predict run --input set/eval/target.npy --out got", d), 5,
              "needs samples of f32[3,10,8]");
    CHECK_RUN(cli_run(IN "$P predict run --out got", d), 2, "--input is missing");
    CHECK_RUN(cli_run(IN "$P predict run --input set/eval --out got --memory 1MB", d), 3, "");
    CHECK_RUN(cli_run(IN "test ! -e got", d), 0, "");
}
