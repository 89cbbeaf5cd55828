/* test_predict_wandistill.c - latents of prompts by the student of wandistill. */
#include "io/npy.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IN  "cd %s && "
#define TOY "wandistill/tiny train.steps=2 eval.every=0 data.samples=4 data.eval_samples=2 "

enum { LATENT = 8 * 8 * 4, WIDE = 8 * 8 * 16, TEXT = 6 * 24, N = 3, STEPS = 4 };

/* The authors' loop, from single evaluations of the student for a batch of two equal samples. */
static void sample(pl_run *run, const float *text, int prompt, double *x)
{
    static float two[2 * LATENT], words[2 * TEXT];
    static const int times[STEPS] = {999, 666, 333, 0};
    pl_program *p = predicted_program(run, NULL);
    pl_sample_noise(pl_sample_seed(0x3A71 + 8, PL_SUBSET_TRAIN, prompt), LATENT, two);
    for (int k = 0; k < LATENT; k++) x[k] = (double)two[k];
    for (int i = 0; i < STEPS; i++) {
        int64_t t[2] = {times[i], times[i]};
        double a = fmin(fmax(1 - times[i] / 1000.0, 0.001), 0.999);
        double b = i + 1 < STEPS ? fmin(fmax(1 - times[i + 1] / 1000.0, 0.001), 0.999) : 1;
        for (int k = 0; k < 2 * LATENT; k++) two[k] = (float)x[k % LATENT];
        for (int k = 0; k < 2 * TEXT; k++) words[k] = text[k % TEXT];
        CHECK(predicted_set(run, p, "latents", two, sizeof two) &&
              predicted_set(run, p, "text", words, sizeof words) &&
              predicted_set(run, p, "t", t, sizeof t));
        const float *noise = predicted_run(run, p, "noise");
        CHECK(noise);
        for (int k = 0; k < LATENT; k++)
            x[k] = sqrt(b / a) * x[k] + (sqrt(1 - b) - sqrt(b * (1 - a) / a)) * (double)noise[k];
    }
}

TEST(wandistill_predicts_latents_by_the_authors_loop)
{
    const char *d = pl_test_dir();
    static float text[N * TEXT], last[2 * LATENT];
    static double x[LATENT];
    pl_type type = PL_TYPE(PL_F32, N, 6, 24), t, u;
    WANT_BIN();
    pl_sample_noise(6, N * TEXT, text);
    CHECK_OK(pl_npy_write(pl_test_path("text.npy"), &type, text));

    CHECK_RUN(cli_run(IN "$P train " TOY "--out run --quiet && "
                         "$P predict run --input text.npy --out got --seed 8 --quiet "
                         "predict.steps=4 && "
                         "$P predict run --input text.npy --out low --seed 8 --quiet "
                         "predict.steps=4 --memory 80MB && diff -r got low",
                      d),
              0, "");

    float *got = predicted_numbers("got/latents.npy", &t),
          *wide = predicted_numbers("got/teacher_latents.npy", &u);
    CHECK(got && t.rank == 4 && t.dim[0] == N && t.dim[1] == 4 && t.dim[2] == 8);
    CHECK(wide && u.dim[0] == N && u.dim[1] == 16 && u.dim[3] == 8);

    pl_run *run = NULL;
    CHECK_OK(predicted_open("run", NULL, 0, &run));
    for (int i = 0; i < N; i++) {
        double worst = 0;
        sample(run, text + i * TEXT, i, x);
        for (int k = 0; k < LATENT; k++) {
            double want = x[k % 64 * 4 + k / 64];
            worst = fmax(worst, fabs(want - (double)got[i * LATENT + k]) / (1 + fabs(want)));
        }
        CHECK_MSG(worst < 3e-5, "prompt %d: %g", i, worst);
    }
    for (int k = 0; k < 2 * LATENT; k++) last[k] = (float)x[k % LATENT];
    pl_program *p = predicted_program(run, "project");
    CHECK(p && predicted_set(run, p, "latents", last, sizeof last));

    const float *out = predicted_run(run, p, "wide");
    CHECK(out);
    for (int k = 0; k < WIDE; k++)
        CHECK_NEAR((double)wide[2 * WIDE + k], (double)out[k % 64 * 16 + k / 64],
                   1e-4 * (1 + fabs((double)out[k % 64 * 16 + k / 64])));
    pl_run_free(run);
    free(got), free(wide);
}

/* Prompts of a text file are looked up among those whose embeddings are known. */
TEST(wandistill_looks_prompts_up_and_refuses_unknown_ones)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN
                      "$P generate " TOY "--raw --out p --quiet && "
                      "$P train " TOY "data.prompts=p/prompts.txt "
                      "data.embeddings=p/embeddings.npy allow_random_frozen=true "
                      "--out run --quiet && "
                      "sed -n 2p p/prompts.txt > second && "
                      "$P predict run --input second --out a --quiet && "
                      "$P predict run --prompt \"$(cat second)\" --out b --quiet && diff -r a b && "
                      "$P predict run --input p/embeddings.npy --out all --quiet && "
                      "$P export run --as authors --out back && " /* the projection, too */
                      "$P predict wandistill/tiny --model back --input p/embeddings.npy "
                      "--out again --quiet && diff -r all again",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --prompt 'a red disc' --out got", d), 5,
              "is not a line of");
    CHECK_RUN(cli_run(IN "$P predict run --input second --out got data.embeddings=null", d), 2,
              "plimsoll embed");
    CHECK_RUN(cli_run(IN "$P predict run --input a/latents.npy --out got", d), 5,
              "needs samples of f32[6,24]");
    CHECK_RUN(cli_run(IN "$P predict run --input second --out got --memory 1MB", d), 3, "");
    CHECK_RUN(cli_run(IN "test ! -e got", d), 0, "");
}
