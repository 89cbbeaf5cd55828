/* test_data_run.c - data sets through the command line: workers, bad files, arrays, inspect. */
#include "plimsoll_ops.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The recipe of tests/data/photo, compiled into the test's folder. */
static bool photo_made(void)
{
    return cli_run("${CC:-cc} -shared -fPIC -O1 -I include -o %s/photo.so tests/data/photo/photo.c",
                   pl_test_dir())
               .code == 0;
}

#define PHOTO "cd %s && $P train ./photo.so data.path=set classes=2 "

TEST(data_workers_do_not_change_the_losses)
{
    char set[512];
    static char one[8192], other[8192];
    if (!cli_bin()) SKIP("PL_BIN is not built");

    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    if (!image_folder(set, 30, 2, 64, 48, 0)) SKIP("libturbojpeg is not installed");
    CHECK(photo_made());

    /* Erased images wait as floats, others as bytes. */
    static const char *const views = "data.crop=random 'data.crop_scale=[0.5, 1]' data.flip=0.5 "
                                     "'data.jitter=[0.2, 0.2, 0.2, 0.05]'";
    static const char *const workers[] = {"0", "1", "2", "4"};
    for (int i = 0; i < 8; i++) {
        const char *n = workers[i % 4];
        cli_result r =
            cli_run(PHOTO "%s %s data.eval_share=0.3 data.workers=%s --out w%s --quiet --fresh",
                    pl_test_dir(), views, i < 4 ? "" : "data.erase=0.3", n, n);
        CHECK_MSG(r.code == 0, "%s", r.err);
        char run[8];
        snprintf(run, sizeof run, "w%s", n);
        cli_losses(run, i % 4 ? other : one, sizeof one);
        if (i % 4)
            CHECK_MSG(strcmp(one, other) == 0, "workers=%s: %s\nworkers=0: %s", n, other, one);
    }
    CHECK(strlen(one) > 100);

    cli_result r = cli_run("cd %s && cmp w0/model.safetensors w4/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.out);
    r = cli_run(PHOTO "data.eval_share=0.3 --out plain --quiet", pl_test_dir());
    CHECK_INT(r.code, 0);

    cli_losses("plain", other, sizeof other);
    CHECK(strcmp(one, other) != 0);
}

/* Several threads generate the cloud recipe's own samples. */
TEST(data_workers_read_the_samples_of_a_recipe_in_order)
{
    static char one[8192], other[8192];
    if (!cli_bin()) SKIP("PL_BIN is not built");
    for (int w = 0; w < 4; w += 3) {
        cli_result r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=12 data.workers=%d "
                               "data.prefetch=2 --out r%d --quiet",
                               pl_test_dir(), w, w);
        CHECK_MSG(r.code == 0, "%s", r.err);
    }
    cli_losses("r0", one, sizeof one);
    cli_losses("r3", other, sizeof other);
    CHECK(one[0] && strcmp(one, other) == 0);
}

TEST(data_bad_files_stop_training_or_are_skipped)
{
    char set[512];
    if (!cli_bin()) SKIP("PL_BIN is not built");

    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    if (!image_folder(set, 40, 2, 40, 40, 20)) SKIP("libturbojpeg is not installed");
    CHECK(photo_made());
    cli_result r = cli_run(
        PHOTO "data.eval_share=0.2 train.steps=20 data.workers=2 data.on_bad=fail", pl_test_dir());
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.err, "set/class1/00") && strstr(r.err, "end early"), "%s", r.err);

    r = cli_run(PHOTO "data.eval_share=0.2 train.steps=20 data.workers=2 data.on_bad=skip",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.err, "2 images could not be read") && strstr(r.err, "set/class1/0019.jpg") &&
                  strstr(r.err, "set/class1/0039.jpg"),
              "%s", r.err);

    r = cli_run("$P inspect data %s", set);
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.out, "40 images") && strstr(r.out, "2 bad") &&
                  strstr(r.err, "0019.jpg: the JPEG"),
              "%s%s", r.out, r.err);

    r = cli_run("$P inspect data %s data.min_side=384", set);
    CHECK_MSG(r.code == 2 && strstr(r.err, "data.min_side=384"), "%d %s", r.code, r.err);
    r = cli_run("$P inspect data %s --json", set);
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.out, "\"bad_files\":2") && strstr(r.out, "\"kind\":\"JPEG RGB\""), "%s",
              r.out);
}

TEST(data_folders_without_usable_files_are_refused)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    CHECK(photo_made());
    cli_result r =
        cli_run("cd %s && mkdir -p set && $P train ./photo.so data.source=folder data.path=set",
                pl_test_dir());
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.err, "set holds no JPEG, PNG, WebP, BMP, TIFF or GIF image"), "%s", r.err);

    r = cli_run("cd %s && $P train ./photo.so data.source=folder data.path=nowhere", pl_test_dir());
    CHECK_INT(r.code, 5);
    r = cli_run("cd %s && $P train ./photo.so data.source=tar data.path=set", pl_test_dir());
    CHECK_INT(r.code, 5);

    r = cli_run("cd %s && $P train " CLI_SMALL "data.source=folder data.path=set", pl_test_dir());
    CHECK_INT(r.code, 2);
    r = cli_run("cd %s && $P train ./photo.so data.source=tar", pl_test_dir());
    CHECK_INT(r.code, 2);

    r = cli_run(
        "cd %s && printf 'x%%.0s' $(seq 700) > set/a.tar && $P train ./photo.so data.path=set",
        pl_test_dir());
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.err, "a.tar: no tar header at byte 0"), "%s", r.err);
}

/* ---- how long a step waits --------------------------------------------------------------------
 */
enum { NAP_MS = 30 };

static pl_status slow_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    struct timespec nap = {0, NAP_MS * 1000000L};
    nanosleep(&nap, NULL);
    return small_run_noise(data, subset, sample, n, batch);
}

static pl_val slow_loss(pl_builder *b, pl_nn *m)
{
    int64_t n = pl_builder_batch(b);
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4)),
           y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 4));
    return pl_loss_mse(m->g, pl_nn_linear(m, x, "out", 4, (pl_nn_lin){0}), y);
}

static pl_status slow_build(pl_builder *b)
{
    pl_builder_minimise(b, slow_loss(b, pl_builder_train(b)));
    pl_nn *eval = pl_builder_eval(b);
    pl_output(eval->g, "loss", slow_loss(b, eval));
    return PL_OK;
}

/* On a device with its own memory, a batch is read while the device works. This test device
 * takes no time, so every read is waited for, before or during the run. Evaluation reads in the
 * same way. */
TEST(data_wait_counts_the_time_of_prefetched_reads)
{
    static const pl_config_entry schema[] = {
        {"data.samples", PL_CONFIG_INT, "64", 1, 1e9, NULL, "Samples."},
        {"data.eval_samples", PL_CONFIG_INT, "9", 1, 1e9, NULL, "Samples."},
        {0}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "slow",
                                     .schema = schema,
                                     .build = slow_build,
                                     .data_read = slow_read};
    static const char *const devices[] = {"device=apart", "device=cpu"};
    double loss[2];

    for (int d = 0; d < 2; d++) {
        pl_run *r = NULL;
        const char *keys[] = {devices[d], "batch=4", "data.workers=0"};
        pl_status rc = small_run_open(&recipe, keys, 3, &r);
        if (rc == PL_OK) rc = pl_run_build(r);
        if (rc == PL_OK) rc = pl_run_start(r);
        CHECK_MSG(rc == PL_OK, "%s", pl_error_text());
        for (int s = 0; rc == PL_OK && s < 4; s++) {
            pl_step_info info;
            CHECK(pl_run_step(r, &info) == PL_OK);
            CHECK_MSG(info.data_ms > 0.9 * NAP_MS && info.data_ms <= info.step_ms,
                      "%s, step %d: %g of %g ms", devices[d], s, info.data_ms, info.step_ms);
        }
        pl_eval_info e;
        CHECK(rc == PL_OK && pl_run_eval(r, &e) == PL_OK && e.samples == 9);
        loss[d] = e.value[0];
        pl_run_free(r);
    }
    CHECK_MSG(loss[0] == loss[1], "%.17g and %.17g", loss[0], loss[1]);
}
