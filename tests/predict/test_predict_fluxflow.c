/* test_predict_fluxflow.c - reconstructions and samples of the fluxflow recipe. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN   "cd %s && "
#define FAST "train.steps=2 eval.every=0 lpips.on=false gan.on=false "
#define FLOW                                                                                       \
 "fluxflow/flow-tiny image=16 image_width=8 batch=2 train.steps=2 eval.every=0 flow.width=16 "     \
 "flow.layers=1 flow.text=6 "

/* The picture that predictions write is the one that `eval --out` shows of the same file; eval
 * makes missing folders. The PSNR of an evaluation is that of these pictures. Pictures whose names
 * differ in the ending only have a result each. */
TEST(fluxflow_predicts_the_reconstruction_that_eval_shows)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P generate fluxflow/tiny --raw --out set --samples 3 --eval-samples 3 "
                         "--quiet && $P train fluxflow/tiny " FAST
                         "data.path=set --out run --quiet "
                         "&& $P eval run sample.count=1 --out a/b && "
                         "$P predict run --input set/eval --out got --quiet && "
                         "$P predict run --input set/eval --out again --memory 200MB --quiet && "
                         "diff -r got again && cp set/eval/000001.png set/eval/000001.jpg && "
                         "$P predict run --input set/eval --out both --quiet && "
                         "cmp got/000001.png both/000001.png.png && test -e both/000001.jpg.png",
                      d),
              0, "");

    int w, h, v, u;
    uint8_t *shown = predicted_pixels("a/b/reconstructed.png", &w, &h),
            *got = predicted_pixels("got/000000.png", &v, &u);
    CHECK(shown && got && w == v && h == u && w == 16 && h == 16);
    CHECK(memcmp(shown, got, (size_t)(w * h * 3)) == 0);
    free(got);
    got = predicted_pixels("a/b/real.png", &w, &h);
    double error = 0;
    for (int i = 0; got && i < w * h * 3; i++) error += pow((shown[i] - got[i]) / 255.0, 2);
    cli_result r = cli_run(IN "$P eval run batch=1 eval.batches=1 --json", d);
    CHECK_NEAR(predicted_metric(r.out, "psnr_db"), -10 * log10(error / (w * h * 3)), 0.05);
    free(shown);
    free(got);
}

/* The share of signal at a time, and the ratio of noise to signal. */
static double share(int t)
{
    double a = 1;
    for (int i = 0; i <= t; i++) a *= 1 - (1e-4 + (0.02 - 1e-4) / 999 * i);
    return a;
}

static double ratio(int t)
{
    return sqrt((1 - share(t)) / share(t));
}

enum { TOKENS = 4 * 2 * 32, TEXT = 6, STEPS = 4 };

/* One evaluation of the flow for a batch of two equal samples; v gets the velocity of the first. */
static void velocity(pl_run *run, const double *x, const float *text, int t, double *v)
{
    float tokens[2 * TOKENS], words[2 * TEXT];
    int64_t times[2] = {t, t};
    for (int i = 0; i < TOKENS; i++) tokens[i] = tokens[TOKENS + i] = (float)x[i];
    for (int i = 0; i < TEXT; i++) words[i] = words[TEXT + i] = text ? text[i] : 0;
    pl_program *p = predicted_program(run, "flow");
    CHECK(predicted_set(run, p, "tokens", tokens, sizeof tokens));
    CHECK(predicted_set(run, p, "text", words, sizeof words));
    CHECK(predicted_set(run, p, "t", times, sizeof times));
    const float *out = predicted_run(run, p, "v");
    CHECK(out);
    for (int i = 0; i < TOKENS; i++) v[i] = (double)out[i];
}

/* DPM-Solver++ (2M) in the variables y = x / a and sigma = s / a, in which a step is
 * y' = q y + (1 - q) (clean + (clean - last) h / 2 h0), q = sigma' / sigma; guided. */
static void solve(pl_run *run, const float *text, double guidance, double *x)
{
    static double v[TOKENS], blank[TOKENS], last[TOKENS];
    double h0 = 0;
    for (int k = 0; k < STEPS; k++) {
        int t = 999 - 250 * k, then = t - 250;
        velocity(run, x, text, t, v);
        velocity(run, x, NULL, t, blank);
        double a = sqrt(share(t)), s = sqrt(1 - share(t)), sigma = ratio(t);
        double next = k + 1 < STEPS ? ratio(then) : 0, b = k + 1 < STEPS ? sqrt(share(then)) : 1;
        double h = log(sigma) - log(next), q = next / sigma;
        for (int i = 0; i < TOKENS; i++) {
            double clean = a * x[i] - s * (blank[i] + guidance * (v[i] - blank[i]));
            double ahead = k > 0 && k + 1 < STEPS ? (clean - last[i]) * h / (2 * h0) : 0;
            x[i] = b * (q * x[i] / a + (1 - q) * (clean + ahead));
            last[i] = clean;
        }
        h0 = h;
    }
}

/* DDIM: the same clean tokens and noise at the next time. */
static void walk(pl_run *run, const float *text, double *x)
{
    static double v[TOKENS];
    for (int k = 0; k < STEPS; k++) {
        int t = 999 - 250 * k;
        velocity(run, x, text, t, v);
        double a = sqrt(share(t)), s = sqrt(1 - share(t));
        double b = sqrt(share(t - 250)), r = sqrt(1 - share(t - 250));
        for (int i = 0; i < TOKENS; i++)
            x[i] = b * (a * x[i] - s * v[i]) + r * (s * x[i] + a * v[i]);
    }
}

/* The noise of a text, by the documented rule. */
static void noise_of(int seed, int text, double *x)
{
    float z[TOKENS];
    pl_sample_noise(pl_sample_seed(0xF107 + (uint64_t)seed, PL_SUBSET_TRAIN, text), TOKENS, z);
    for (int i = 0; i < TOKENS; i++) x[i] = (double)z[i];
}

/* Three texts in batches of two, with embeddings from a file: the loop again, from single
 * evaluations of the network. The expander comes from another model file. */
TEST(fluxflow_samples_are_those_of_their_samplers_formula)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P train fluxflow/tiny image=16 image_width=8 " FAST
                         "--out vae --quiet && $P train " FLOW "--out run --quiet",
                      d),
              0, "");

    pl_type type = PL_TYPE(PL_F32, 3, TEXT), t;
    float text[3 * TEXT];
    pl_sample_noise(5, 3 * TEXT, text);
    FILE *f = fopen(pl_test_path("text.bin"), "wb");
    CHECK(f && fwrite(text, sizeof text, 1, f) == 1 && fclose(f) == 0);
    CHECK_RUN(cli_run(IN "printf '\\223NUMPY\\001\\000\\166\\000%%-117s\\n' \"{'descr': '<f4', "
                         "'fortran_order': False, 'shape': (3, 6), }\" > text.npy && "
                         "cat text.bin >> text.npy",
                      d),
              0, "");
    CHECK(type.dim[0] == 3);
    CHECK_RUN(cli_run(IN "$P predict run --input text.npy --out got", d), 6,
              "predict.expander=FILE");
    CHECK_RUN(cli_run(IN "$P predict vae --input text.npy --out got predict.what=samples "
                         "flow.width=16 flow.heads=4 flow.layers=1 flow.text=6",
                      d),
              6, "flow_processor");

    char key[700];
    snprintf(key, sizeof key, "predict.expander=%s/vae/model.safetensors", d);
    const char *const keys[] = {key};
    for (int dpm = 0; dpm < 2; dpm++) {
        CHECK_RUN(cli_run(IN "$P predict run --input text.npy --out got%d --quiet --seed 7 '%s' "
                             "predict.steps=4 %s",
                          d, dpm, key, dpm ? "predict.guidance=2.5" : "predict.sampler=ddim"),
                  0, "");
        float *got = predicted_numbers(dpm ? "got1/tokens.npy" : "got0/tokens.npy", &t);
        CHECK(got && t.rank == 3 && t.dim[0] == 3 && t.dim[1] * t.dim[2] == TOKENS);
        pl_run *run = NULL;
        CHECK_OK(predicted_open("run", keys, 1, &run));
        for (int i = 0; i < 3; i++) {
            static double x[TOKENS];
            double worst = 0;
            noise_of(7, i, x);
            if (dpm)
                solve(run, text + TEXT * i, 2.5, x);
            else
                walk(run, text + TEXT * i, x);
            for (int k = 0; k < TOKENS; k++)
                worst = fmax(worst, fabs(x[k] - (double)got[i * TOKENS + k]) / (1 + fabs(x[k])));
            CHECK_MSG(worst < 2e-5, "text %d: %g", i, worst);
        }
        pl_run_free(run);
        free(got);
    }
    int w, h;
    uint8_t *made = predicted_pixels("got1/000002.png", &w, &h);
    CHECK(made && w == 8 && h == 16);
    free(made);
}

TEST(fluxflow_samples_repeat_with_their_seed_and_refuse_bad_inputs)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P train " FLOW
                         "sample.every=2 allow_random_frozen=true --out run --quiet && "
                         "printf 'a red disc\\nnothing\\n' > texts && "
                         "$P predict run --input texts --out a --quiet && "
                         "$P predict run --input texts --out b --quiet --memory 200MB && "
                         "diff -r a b && "
                         "$P predict run --prompt 'a red disc' --out c --quiet && "
                         "cmp a/000000.png c/000000.png && "
                         "$P predict run --input texts --out e --quiet --seed 1 && "
                         "! cmp -s a/000000.png e/000000.png",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input texts --out got allow_random_frozen=false", d), 2,
              "text vectors of prompts would be random");
    CHECK_RUN(cli_run(IN "$P predict run --out got", d), 2, "--input is missing");
    CHECK_RUN(cli_run(IN "$P predict run --input nowhere.txt --out got", d), 5, "nowhere.txt");
    CHECK_RUN(cli_run(IN "$P predict run --input a/tokens.npy --out got", d), 5,
              "needs samples of f32[6]");
    CHECK_RUN(cli_run(IN "$P predict run --input texts --prompt x --out got", d), 2,
              "exclude each other");
    CHECK_RUN(cli_run(IN "$P predict run --input texts --out got --memory 1MB", d), 3, "");
    CHECK_RUN(cli_run(IN "test ! -e got", d), 0, "");
}

/* Autoencoder and flow in one step: the flow's texts come from files, and prompts of predictions
 * are looked up in them. */
TEST(fluxflow_prompts_are_lines_of_the_embeddings_it_was_trained_with)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN
                      "$P generate fluxflow/flow-tiny --raw data.samples=2 data.eval_samples=1 "
                      "--out pictures && "
                      "for f in pictures/*/*.txt; do cat $f; echo; done | sort -u > captions && "
                      "$P generate fluxflow/flow-tiny vae.on=true data.samples=3 "
                      "data.eval_samples=1 --out arrays && "
                      "$P train fluxflow/flow-tiny vae.on=true lpips.on=false data.path=pictures "
                      "data.prompts=captions data.embeddings=arrays/train/text.npy "
                      "train.steps=1 --out run --quiet",
                      d),
              0, "");
#define SAMPLE "$P predict run predict.what=samples predict.steps=1 --quiet "
    CHECK_RUN(cli_run(IN SAMPLE
                      "--prompt \"$(head -n 1 captions)\" --out a && " SAMPLE
                      "--input arrays/train/text.npy --out b && "
                      "cmp a/000000.png b/000000.png && ! cmp -s a/000000.png b/000001.png",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN SAMPLE "--prompt 'a dog' --out c", d), 5, "is not a line of captions");
    CHECK_RUN(cli_run(IN "rm arrays/train/text.npy && $P train fluxflow/flow-tiny vae.on=true "
                         "lpips.on=false data.path=arrays train.steps=1",
                      d),
              5, "input \"text\" needs the array");
#undef SAMPLE
}
