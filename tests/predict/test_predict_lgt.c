/* test_predict_lgt.c - style transfer of latents and pictures by the lgt recipe. */
#include "io/npy.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN  "cd %s && "
#define TOY "lgt/tiny batch=2 train.steps=2 eval.every=0 data.samples=8 data.eval_samples=4 "
/* Guidance, repulsion and noise all have an effect. */
#define KEYS                                                                                         \
 "infer.cfg_scale=2 infer.repulsion=0.3 infer.temperature=0.2 infer.threshold=0.4 predict.source=1 " \
 "predict.style=0 "

enum { SIDE = 8, SIZE = SIDE * SIDE * 4, N = 3, STEPS = 3 };

/* One evaluation for a batch of two equal latents (S,S,4). */
static void velocity(pl_run *run, const double *x, double t, int64_t style, bool average, double *v)
{
    static float two[2 * SIZE];
    float times[2] = {(float)t, (float)t};
    int64_t styles[2] = {style, style};
    pl_program *p = predicted_program(run, NULL);
    for (int i = 0; i < SIZE; i++) two[i] = two[SIZE + i] = (float)x[i];
    CHECK(predicted_set(run, p, "x", two, sizeof two));
    CHECK(predicted_set(run, p, "t", times, sizeof times));
    CHECK(predicted_set(run, p, "style", styles, sizeof styles));
    CHECK(predicted_set(run, p, "average", &average, sizeof average));
    const float *out = predicted_run(run, p, "v");
    CHECK(out);
    for (int i = 0; i < SIZE; i++) v[i] = (double)out[i];
}

/* Back to noise under style 1, forward under style 0, with the keys above and seed 5. */
static void transfer(pl_run *run, int sample, double *x)
{
    static double v[SIZE], mean[SIZE], own[SIZE];
    static float z[SIZE];
    for (int i = 0; i < STEPS; i++) {
        velocity(run, x, 1 - i / 3.0, 1, false, v);
        for (int k = 0; k < SIZE; k++) x[k] -= v[k] / 3;
    }
    for (int i = 0; i < STEPS; i++) {
        double w = 2 - i / 3.0; /* towards 1 */
        velocity(run, x, i / 3.0, 0, false, v);
        velocity(run, x, i / 3.0, 0, true, mean);
        velocity(run, x, i / 3.0, 1, false, own);
        pl_sample_noise(pl_sample_seed(0x1671 + 5, PL_SUBSET_TRAIN, sample) + (uint64_t)i, SIZE, z);
        for (int k = 0; k < SIZE; k++) {
            x[k] += (mean[k] + w * (v[k] - mean[k]) - 0.3 * (own[k] - mean[k])) / 3;
            if (i == 2) x[k] += 0.2 * sqrt(1 / 3.0) * (double)z[k]; /* 2/3 is past 0.4 */
        }
    }
}

TEST(lgt_predicts_latents_along_the_path_of_its_inference)
{
    const char *d = pl_test_dir();
    static float in[N * SIZE];
    pl_type type = PL_TYPE(PL_F32, N, 4, SIDE, SIDE), t;
    WANT_BIN();
    pl_sample_noise(3, N * SIZE, in);
    CHECK_OK(pl_npy_write(pl_test_path("in.npy"), &type, in));

    CHECK_RUN(
        cli_run(IN "$P train " TOY "--out run --quiet && "
                   "$P predict run --input in.npy --out got --seed 5 --quiet " KEYS
                   "&& $P predict run --input in.npy --out low --seed 5 --quiet --memory 90MB " KEYS
                   "&& cmp got/latents.npy low/latents.npy",
                d),
        0, "");

    float *got = predicted_numbers("got/latents.npy", &t);
    CHECK(got && t.rank == 4 && t.dim[0] == N && t.dim[1] == 4 && t.dim[3] == SIDE);

    pl_run *run = NULL;
    CHECK_OK(predicted_open("run", NULL, 0, &run));
    for (int i = 0; i < N; i++) {
        static double x[SIZE];
        double worst = 0;
        /* [4,S,S] to (S,S,4) */
        for (int k = 0; k < SIZE; k++) x[k % 64 * 4 + k / 64] = (double)in[i * SIZE + k];
        transfer(run, i, x);
        for (int k = 0; k < SIZE; k++)
            worst = fmax(worst, fabs(x[k % 64 * 4 + k / 64] - (double)got[i * SIZE + k]));
        CHECK_MSG(worst < 2e-5, "latent %d: %g", i, worst);
    }
    pl_run_free(run);
    free(got);
}

/* The autoencoder's weights, as a published file has them. */
static void write_vae(const char *name)
{
    static const char *const keys[] = {"part=vae",        "image=64",     "latent=8",
                                       "vae.encode=true", "vae.width=32", "vae.mult=[1, 1, 1, 1]"};
    CHECK_OK(small_run_save("stablesr/tiny", keys, 6, pl_test_path(name)));
}

/* With the autoencoder pictures go in and come out: each is the decoded latent beside it. Latents
 * that predict.what=latents wrote give the same results as their pictures, and train. */
TEST(lgt_predicts_pictures_through_the_autoencoder)
{
    if (!pl_test_long()) SKIP("long");
    const char *d = pl_test_dir();
    char key[700];
    WANT_BIN();
    write_vae("vae.safetensors");
    snprintf(key, sizeof key, "vae.weights=%s/vae.safetensors", d);
#define VAE "vae.weights=vae.safetensors vae.width=32 'vae.mult=[1, 1, 1, 1]' infer.temperature=0 "
    CHECK_RUN(cli_run(IN
                      "$P generate fluxflow/tiny image=72 --raw --out set --samples 2 "
                      "--eval-samples 1 --quiet && "
                      "$P generate " TOY "--raw --out pt --samples 4 --eval-samples 1 --quiet && "
                      "$P train " TOY "--out run --quiet && "
                      "$P predict run --input set/train --out got --quiet " VAE
                      "&& $P predict run --input got/latents.npy --out again --quiet " VAE
                      "&& $P predict run --input pt/style1 --out from --quiet " VAE
                      "&& test -e from/000000.png && test -e again/000001.png && "
                      "$P predict lgt/tiny --model vae.safetensors --input set/train --out "
                      "lat/style0 --quiet predict.what=latents " VAE
                      "&& $P predict run --input lat/style0 --out same --quiet " VAE
                      "&& cmp same/latents.npy got/latents.npy && cp -r lat/style0 lat/style1 && "
                      "$P train " TOY "data.latents=lat --out second --quiet && mkdir named && "
                      "cp set/train/000000.png named/leaf.png && $P predict lgt/tiny --model "
                      "vae.safetensors --input named --out named --quiet predict.what=latents " VAE
                      "&& cmp named/leaf.pt lat/style0/000000.pt",
                      d),
              0, "");
    pl_type t;
    int w, h;
    float *latent = predicted_numbers("got/latents.npy", &t);
    uint8_t *rgb = predicted_pixels("got/000001.png", &w, &h);
    CHECK(latent && rgb && t.dim[0] == 2 && w == 64 && h == 64);
    pl_run *run = NULL;
    const char *const keys[] = {key, "vae.width=32", "vae.mult=[1, 1, 1, 1]"};
    CHECK_OK(predicted_open("run", keys, 3, &run));
    static float z[SIZE];
    for (int k = 0; k < SIZE; k++) z[k % 64 * 4 + k / 64] = latent[SIZE + k];
    pl_program *p = predicted_program(run, "decode");
    CHECK(p && predicted_set(run, p, "latent", z, sizeof z));
    const float *image = predicted_run(run, p, "image");
    CHECK(image);
    int off = 0;
    for (int i = 0; i < 64 * 64 * 3; i++) {
        double v = fmin(fmax(127.5 * ((double)image[i] + 1), 0), 255);
        off += fabs(v - rgb[i]) > 0.5001;
    }
    CHECK_INT(off, 0);
    pl_run_free(run);
    free(latent);
    free(rgb);
}

TEST(lgt_predictions_refuse_what_they_cannot_use)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P train " TOY "--out run --quiet && "
                         "$P generate fluxflow/tiny --raw --out set --samples 1 --eval-samples 1 "
                         "--quiet && $P generate lgt/tiny latent=12 --raw --out pt --samples 4 "
                         "--eval-samples 1 --quiet",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input set/train --out got", d), 5, "vae.weights=FILE");
    CHECK_RUN(cli_run(IN "$P predict run --input set/train --out got predict.what=latents", d), 2,
              "vae.weights=FILE");
    CHECK_RUN(cli_run(IN "$P predict run --input pt/style1 --out got", d), 5, "000");
    CHECK_RUN(cli_run(IN "$P predict run --input set/train --out got predict.style=2", d), 2,
              "model.styles is 2");
    CHECK_RUN(
        cli_run(IN "$P predict run --input set/train --out got vae.weights=no.safetensors", d), 6,
        "no.safetensors");
    CHECK_RUN(cli_run(IN "$P predict run --input pt --out got --memory 1MB", d), 3, "");
    CHECK_RUN(cli_run(IN "test ! -e got", d), 0, "");
    /* Folders that were there stay. */
    CHECK_RUN(cli_run(IN "mkdir old && $P predict run --input pt/style1 --out old/a/b", d), 5,
              "000");
    CHECK_RUN(cli_run(IN "test -d old -a ! -e old/a", d), 0, "");
}

/* Latents of 8 x 12 positions and three channels: data, training, files and predictions keep the
 * shape, and pixels of the 12 columns come from their own position. */
TEST(lgt_takes_latents_that_are_not_square)
{
    const char *d = pl_test_dir();
    pl_type t;
    WANT_BIN();
#define WIDE "latent=8 latent_columns=12 model.channels=3 "
    CHECK_RUN(cli_run(IN "$P generate " TOY WIDE "--raw --out pt --samples 8 --eval-samples 2 "
                         "--quiet && $P train " TOY WIDE "data.latents=pt --out run --quiet && "
                         "$P predict run --input pt/style0 --out got --quiet && "
                         "$P predict run --input got/latents.npy --out again --quiet",
                      d),
              0, "");
    float *got = predicted_numbers("got/latents.npy", &t);
    CHECK(got && t.rank == 4 && t.dim[1] == 3 && t.dim[2] == 8 && t.dim[3] == 12);
    free(got);
    CHECK_RUN(cli_run(IN "$P train " TOY "data.latents=pt --out no --quiet", d), 5,
              "its tensor is [3,8,12], wanted is [4,8,8]");
    CHECK_RUN(cli_run(IN "$P train " TOY "latent_columns=10 --out no --quiet", d), 2,
              "got 32, 8 and 10");
}
