/* test_predict_stablesr.c - super-resolution: sampler, tiles, colours, files. */
#include "plimsoll_events.h"
#include "recipes/stablesr/predict.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/renamed.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "tests/predict/predicted.h"
#include "tests/predict/slot_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN  "cd %s && "
#define VAE "vae.width=32 'vae.mult=[1, 1, 1, 1]' "
#define TOY                                                                                        \
 "stablesr/tiny batch=2 vae.encode=true train.steps=2 eval.every=0 data.samples=4 "                \
 "data.eval_samples=2 " VAE
#define WITH "vae.weights=vae.safetensors "

/* ---- parts ------------------------------------------------------------------------------ */
/* A map that is cut into tiles and joined again is the same map, whatever the overlap. */
TEST(stablesr_tiles_that_nothing_changes_join_to_the_same_map)
{
    static const int64_t sizes[][4] = {{8, 8, 8, 4}, {13, 23, 8, 4}, {9, 8, 8, 0}, {20, 31, 7, 6}};
    static float map[31 * 20 * 4 * 2], joined[31 * 20 * 4 * 2], sum[31 * 20 * 4], tile[16 * 16 * 2];
    for (int k = 0; k < 4; k++)
        for (int64_t factor = 1; factor <= 2; factor++) {
            sr_tiles t = sr_tiles_of(sizes[k][0], sizes[k][1], sizes[k][2], sizes[k][3]);
            int64_t n = t.h * t.w * factor * factor * 2;
            for (int64_t i = 0; i < n; i++) map[i] = (float)((i * 31 + 7) % 64) - 20, joined[i] = 0;
            for (int64_t i = 0; i < sr_tiles_count(&t); i++) {
                sr_tile_cut(&t, i, factor, 2, map, tile);
                sr_tile_add(&t, i, factor, 2, tile, joined);
            }
            sr_tiles_divide(&t, factor, 2, joined, sum);
            for (int64_t i = 0; i < n; i++)
                CHECK_NEAR((double)joined[i], (double)map[i], 1e-4 * (1 + fabs((double)map[i])));
        }

    /* Weights fall from the centre of a tile, the same on both sides. */
    CHECK(sr_tile_weight(8, 3, 3) > sr_tile_weight(8, 3, 1));
    CHECK_NEAR(sr_tile_weight(8, 0, 2), sr_tile_weight(8, 7, 5), 1e-12);
}

/* PyTorch's numbers: F.interpolate (bicubic, area), AdaIN and the wavelet correction by the
 * authors' definition, in f64. */
TEST(stablesr_sizes_and_colours_match_pytorch)
{
    static float big[9 * 13 * 3], x[40 * 36 * 3], like[40 * 36 * 3], line[40 * 3];
    uint8_t small[4 * 5 * 3];
    static const struct {
        int y, x, c;
        double want;
    } cubic[] = {{0, 0, 0, -1},         {0, 12, 2, -1},       {3, 5, 1, -0.1381992},
                 {4, 6, 0, -0.8627451}, {7, 2, 2, 0.0226183}, {8, 12, 1, -0.2342358},
                 {5, 11, 0, -0.6424867}},
      wavelet[] = {{0, 0, 0, -0.8215898},
                   {39, 35, 2, -0.363798},
                   {20, 17, 1, -0.6101665},
                   {5, 30, 0, 1.0394759}},
      adain[] = {{0, 0, 0, -0.8620475},
                 {39, 35, 2, -0.6389665},
                 {20, 17, 1, -0.597158},
                 {5, 30, 0, 0.937239}},
      area[] = {{0, 0, 0, 0.03}, {16, 19, 2, -0.52}, {8, 7, 1, 0.51}};
    for (int i = 0; i < 60; i++) small[i] = (uint8_t)((i * 37 + 11) % 256);
    sr_enlarge(small, 4, 5, big, 9, 13);

    for (int i = 0; i < 7; i++)
        CHECK_NEAR((double)big[(cubic[i].y * 13 + cubic[i].x) * 3 + cubic[i].c], cubic[i].want,
                   1e-6);

    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 40 * 36 * 3; i++) {
            x[i] = (float)((i * 29 + 7) % 101) / 50 - 1;
            like[i] = (float)(((i + 40 * 36 * 3) * 29 + 7) % 101) / 50 - 1;
        }
        if (k == 0) sr_colour_wavelet(x, like, 40, 36, line);
        if (k == 1) sr_colour_adain(x, like, 40 * 36);
        if (k == 2) sr_reduce(x, 40, 36, 17, 20);
        for (int i = 0; i < (k < 2 ? 4 : 3); i++) {
            int w = k < 2 ? 36 : 20;
            int row = k == 0 ? wavelet[i].y : k == 1 ? adain[i].y : area[i].y;
            int column = k == 0 ? wavelet[i].x : k == 1 ? adain[i].x : area[i].x;
            int c = k == 0 ? wavelet[i].c : k == 1 ? adain[i].c : area[i].c;
            double want = k == 0 ? wavelet[i].want : k == 1 ? adain[i].want : area[i].want;
            CHECK_NEAR((double)x[(row * w + column) * 3 + c], want, 3e-6);
        }
    }
}

/* ---- the whole -------------------------------------------------------------------------- */
enum { LATENT = 8 * 8 * 4, PIXELS = 64 * 64 * 3, STEPS = 3 };

static void write_vae(void)
{
    static const char *const keys[] = {"part=vae", "vae.encode=true", "vae.width=32",
                                       "vae.mult=[1, 1, 1, 1]", "seed=4"};
    CHECK_OK(small_run_save("stablesr/tiny", keys, 5, pl_test_path("vae.safetensors")));
}

/* The same with fusion layers, and weights that are known. */
static void write_fused_vae(void)
{
    vae_sizes c = {.width = 32, .mult = {1, 1, 1, 1}, .levels = 4, .blocks = 2, .fusion_blocks = 2};
    slot_file o = {.of = "vae.", .value = predicted_weight};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    CHECK_OK(predicted_autoencoder(&c, 64, 0.5, g));
    CHECK_OK(slot_file_write(store, pl_test_path("fused.ckpt"), &o));
    pl_graph_free(g);
    pl_store_free(store);
}

static void write_picture(const char *name, int w, int h)
{
    static uint8_t rgb[64 * 64 * 3];
    for (int i = 0; i < w * h * 3; i++)
        rgb[i] = (uint8_t)(i / 3 % w < w / 2 ? 40 + i % 31 : 200 - i % 17);
    CHECK_OK(pl_png_save(pl_test_path(name), w, h, 3, rgb));
}

/* The product of 1 - beta, betas being squares of evenly spread roots. */
static double signal(int t)
{
    double a = 1, lo = sqrt(0.00085), hi = sqrt(0.012);
    for (int i = 0; i <= t; i++) a *= 1 - pow(lo + (hi - lo) * i / 999, 2);
    return a;
}

static const float *of_tile(pl_run *run, const char *program, const char *in, const float *x,
                            size_t n, const char *out)
{
    pl_program *p = predicted_program(run, program);
    return p && predicted_set(run, p, in, x, n * sizeof *x) ? predicted_run(run, p, out) : NULL;
}

/* DDPM in its form with the predicted noise: mean (x - beta / sqrt(1 - a) eps) / sqrt(1 - beta). */
static void sample(pl_run *run, const float *z, const float *edges, bool ddim, double *x)
{
    static const int all[2][STEPS] = {{0, 500, 999}, {0, 300, 600}}; /* 499.5 is rounded to even */
    const int *times = all[ddim], start = times[STEPS - 1];
    static float two[3][2 * LATENT], fresh[LATENT];
    uint64_t seed = pl_sample_seed(0x5A3B + 9, PL_SUBSET_TRAIN, 0);
    pl_program *p = predicted_program(run, NULL);
    pl_sample_noise(seed, LATENT, fresh);
    for (int k = 0; k < LATENT; k++)
        x[k] = sqrt(signal(start)) * (double)z[k] + sqrt(1 - signal(start)) * (double)fresh[k];
    for (int i = STEPS - 1; i >= 0; i--) {
        int64_t t[2] = {times[i], times[i]};
        for (int k = 0; k < 2 * LATENT; k++) {
            two[0][k] = (float)x[k % LATENT];
            two[1][k] = z[k % LATENT];
            two[2][k] = edges[k % LATENT];
        }
        CHECK(predicted_set(run, p, "x", two[0], sizeof two[0]) &&
              predicted_set(run, p, "z", two[1], sizeof two[1]) &&
              predicted_set(run, p, "edges", two[2], sizeof two[2]) &&
              predicted_set(run, p, "t", t, sizeof t));
        const float *eps = predicted_run(run, p, "eps");
        CHECK(eps);
        double a = signal(times[i]), before = i ? signal(times[i - 1]) : 1, beta = 1 - a / before;
        if (i) pl_sample_noise(seed + (uint64_t)i, LATENT, fresh);
        for (int k = 0; k < LATENT; k++) {
            double e = (double)eps[k];
            if (ddim) {
                x[k] = sqrt(before / a) * (x[k] - sqrt(1 - a) * e) + sqrt(1 - before) * e;
                continue;
            }
            x[k] = (x[k] - beta / sqrt(1 - a) * e) / sqrt(1 - beta);
            if (i) x[k] += sqrt(beta * (1 - before) / (1 - a)) * (double)fresh[k];
        }
    }
}

/* A picture of 16 x 16 is one tile after enlarging: the whole path again, from single evaluations
 * of the networks. DDIM starts at time 600, with a decoder that fuses features, and a latent
 * that is drawn. */
TEST(stablesr_predicts_what_its_samplers_formula_says)
{
    const char *d = pl_test_dir();
    char key[700];
    WANT_BIN();
    write_vae();
    write_fused_vae();
    write_picture("a.png", 16, 16);

    CHECK_RUN(cli_run(IN "$P train " TOY "--out run --quiet", d), 0, "");
    for (int ddim = 0; ddim < 2; ddim++) {
        const char *vae = ddim ? "fused.ckpt" : "vae.safetensors",
                   *posterior = ddim ? "predict.posterior=sample" : "predict.posterior=mean";
        snprintf(key, sizeof key, "vae.weights=%s/%s", d, vae);
        CHECK_RUN(cli_run(IN "$P predict run --input a.png --out got%d --seed 9 --quiet "
                             "vae.weights=%s %s predict.steps=3 predict.colour=none "
                             "predict.sampler=%s",
                          d, ddim, vae, posterior, ddim ? "ddim predict.start=600" : "ddpm"),
                  0, "");
        int w, h, off = 0;
        uint8_t *got = predicted_pixels(ddim ? "got1/a.png" : "got0/a.png", &w, &h),
                *small = predicted_pixels("a.png", &w, &h);
        static float image[PIXELS], edge[PIXELS], z[LATENT], edges[LATENT], clean[LATENT];
        static double x[LATENT];
        static uint8_t bytes[PIXELS], map[64 * 64];
        pl_run *run = NULL;
        CHECK(got && small && w == 16 && h == 16);
        CHECK_OK(predicted_open("run", (const char *const[]){key, posterior}, 2, &run));
        sr_enlarge(small, 16, 16, image, 64, 64);
        for (int i = 0; i < PIXELS; i++) bytes[i] = (uint8_t)(((double)image[i] + 1) * 127.5 + 0.5);
        void *work = malloc(pl_canny_bytes(64, 64));
        CHECK(work);
        pl_canny(bytes, 64, 64, 100, 200, map, work);
        free(work);
        for (int i = 0; i < PIXELS; i++) edge[i] = map[i / 3] ? 1.0f : -1.0f;
        const float *out = of_tile(run, "edge", "edge", edge, PIXELS, "edges");
        CHECK(out);
        memcpy(edges, out, sizeof edges);
        pl_sample_noise(pl_sample_seed(0x5A3B + 9, PL_SUBSET_TRAIN, 0) + (1 << 20), LATENT, clean);
        pl_program *end = predicted_program(run, "encode");
        CHECK(end && (!ddim || predicted_set(run, end, "noise", clean, sizeof clean)));
        out = of_tile(run, "encode", "image", image, PIXELS, "latent");
        CHECK(out);
        memcpy(z, out, sizeof z);
        sample(run, z, edges, ddim, x);
        for (int i = 0; i < LATENT; i++) clean[i] = (float)x[i];
        end = predicted_program(run, "decode");
        CHECK(end && (!ddim || predicted_set(run, end, "given", image, sizeof image)));
        out = of_tile(run, "decode", "latent", clean, LATENT, "image");
        CHECK(out);
        for (int i = 0; i < PIXELS; i++) {
            double v = fmin(fmax(((double)out[i] + 1) * 127.5, 0), 255);
            off += fabs(v - got[i]) > 0.51;
        }
        CHECK_INT(off, 0);
        pl_run_free(run);
        free(got), free(small);
    }
}

TEST(stablesr_restores_pictures_of_any_size_and_refuses_bad_inputs)
{
    if (!pl_test_long()) SKIP("long");
    const char *d = pl_test_dir();
    int w, h;
    WANT_BIN();
    write_vae();

    CHECK_RUN(cli_run(IN "mkdir -p in/deep", d), 0, "");
    write_picture("in/deep/wide.png", 27, 18); /* 108 x 72: two tiles by one and a half */
    write_picture("in/small.png", 9, 8);       /* enlarged to a tile, then reduced */
    CHECK_RUN(cli_run(IN "$P train " TOY "--out run --quiet && "
                         "$P predict run --input in --out a --quiet " WITH "predict.steps=2 && "
                         "$P predict run --input in --out b --quiet " WITH
                         "predict.steps=2 predict.pixels=40000 --memory 100MB && diff -r a b && "
                         "$P predict run --input in --out c --quiet --seed 1 " WITH
                         "predict.steps=2 && ! cmp -s a/small.png c/small.png",
                      d),
              0, "");

    uint8_t *wide = predicted_pixels("a/deep/wide.png", &w, &h);
    CHECK(wide && w == 108 && h == 72);

    /* AdaIN gives the colours of the picture: left dark, right bright in the mean. */
    double mean = 0;
    for (int i = 0; i < w * h * 3; i++) mean += wide[i] / (w * h * 3.0);
    CHECK_MSG(mean > 110 && mean < 140, "mean %g", mean);
    free(wide);

    uint8_t *small = predicted_pixels("a/small.png", &w, &h);
    CHECK(small && w == 36 && h == 32);
    free(small);
    /* Edges of other pictures, found by name: those of a plain one are as good as none. */
    static const uint8_t grey[9 * 8 * 3];
    CHECK_RUN(cli_run(IN "mkdir other one && cp in/small.png one", d), 0, "");
    CHECK_OK(pl_png_save(pl_test_path("other/small.PNG"), 9, 8, 3, grey));
    CHECK_RUN(cli_run(IN "$P predict run --input one --out f --quiet " WITH
                         "predict.steps=2 predict.edges_from=other && "
                         "$P predict run --input one --out g --quiet " WITH
                         "predict.steps=2 predict.edges=false && diff -r f g && "
                         "$P predict run --input in --out got --quiet " WITH
                         "predict.steps=2 predict.edges_from=other",
                      d),
              5, "no picture with the same name as deep/wide.png");
    CHECK_RUN(cli_run(IN "$P predict run --input in --out got " WITH "predict.pixels=4096", d), 5,
              "predict.pixels");
    CHECK_RUN(cli_run(IN "$P predict run --input in --out got", d), 6, "vae.weights=FILE");
    CHECK_RUN(cli_run(IN "$P predict run --input nowhere --out got " WITH, d), 5, "nowhere");
    CHECK_RUN(cli_run(IN "$P predict run --input in --out got predict.overlap=8 " WITH, d), 2,
              "must be below latent");
    CHECK_RUN(cli_run(IN "$P predict run --input in --out got --memory 1MB " WITH, d), 3, "");
    CHECK_RUN(cli_run(IN "test ! -e got/small.png", d), 0, "");
}

/* ---- evaluations and pictures of a run -------------------------------------------------- */
static double light(const uint8_t *p)
{
    return (0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]) / 255;
}

/* Wang et al., 2004, by its definition: the mean over all 11 x 11 windows. */
static double ssim_of(const uint8_t *a, const uint8_t *b, int h, int w)
{
    double total = 0;
    int count = 0;
    for (int y = 0; y + 11 <= h; y++)
        for (int x = 0; x + 11 <= w; x++, count++) {
            double sum = 0, ma = 0, mb = 0, va = 0, vb = 0, both = 0;
            for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < 121; i++) {
                    int dy = i / 11 - 5, dx = i % 11 - 5, at = ((y + i / 11) * w + x + i % 11) * 3;
                    double k = exp(-(dy * dy + dx * dx) / 4.5), u = light(a + at),
                           v = light(b + at);
                    if (!pass)
                        sum += k, ma += k * u, mb += k * v;
                    else
                        va += k * (u - ma) * (u - ma), vb += k * (v - mb) * (v - mb),
                            both += k * (u - ma) * (v - mb);
                    if (!pass && i == 120) ma /= sum, mb /= sum;
                }
            va /= sum, vb /= sum, both /= sum;
            total += (2 * ma * mb + 1e-4) * (2 * both + 9e-4) /
                     ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4));
        }
    return total / count;
}

static double psnr_of(const uint8_t *a, const uint8_t *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return 10 * log10(255.0 * 255.0 * n / sum);
}

/* The scores of an evaluation are those of the pictures that it shows; training shows pictures,
 * too, with the same decoder. */
TEST(stablesr_evaluations_score_the_pictures_that_they_show)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    write_vae();

    CHECK_RUN(cli_run(IN "$P train " TOY
                         "batch=1 data.eval_samples=1 sample.every=2 sample.count=1 "
                         "restore.steps=2 --out run --quiet && test -e run/samples",
                      d),
              0, "");

    cli_result r = cli_run(IN "$P eval run restore.eval=true sample.count=1 --out shown --json", d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    double psnr = predicted_metric(r.out, "psnr_db"), ssim = predicted_metric(r.out, "ssim");
    double lq = predicted_metric(r.out, "lq_psnr_db"), lq_ssim = predicted_metric(r.out, "lq_ssim");
    int w, h;
    uint8_t *gt = predicted_pixels("shown/gt.png", &w, &h),
            *bad = predicted_pixels("shown/lq.png", &w, &h),
            *made = predicted_pixels("shown/restored.png", &w, &h);
    CHECK(gt && bad && made && w == 64 && h == 64);
    CHECK_NEAR(psnr_of(gt, made, PIXELS), psnr, 0.02);
    CHECK_NEAR(psnr_of(gt, bad, PIXELS), lq, 0.02);
    CHECK_NEAR(ssim_of(gt, made, 64, 64), ssim, 0.003);
    CHECK_NEAR(ssim_of(gt, bad, 64, 64), lq_ssim, 0.003);
    free(gt), free(bad), free(made);
    CHECK_RUN(cli_run(IN "$P train stablesr/tiny restore.eval=true train.steps=1", d), 2,
              "vae.encode=true");
}

static void same_name(const char *ours, char *out, size_t cap)
{
    snprintf(out, cap, "%s", ours);
}

/* LPIPS of an evaluation: 0 between a picture and itself, more where it is degraded. */
TEST(stablesr_evaluations_score_lpips_with_given_weights)
{
    if (!pl_test_long()) SKIP("long");
    const char *d = pl_test_dir();
    static const char *const keys[] = {"lpips.widths=[4, 4, 4, 4, 4]"};
    WANT_BIN();
    write_vae();
    CHECK_OK(small_run_save("fluxflow/tiny", keys, 1, pl_test_path("whole.safetensors")));
    CHECK_OK(renamed_write(pl_test_path("whole.safetensors"), pl_test_path("lpips.safetensors"),
                           (renamed_file){.of = "lpips.", .parts = 1, .name = same_name}));

    CHECK_RUN(cli_run(IN "$P train " TOY "sample.every=2 restore.steps=1 --out run --quiet", d), 0,
              "");

    double distance[2];
    for (int same = 0; same < 2; same++) {
        cli_result r = cli_run(IN "$P eval run restore.eval=true lpips.weights=lpips.safetensors "
                                  "'lpips.widths=[4, 4, 4, 4, 4]' --json %s",
                               d, same ? "degrade.untouched=1 degrade.sharpen=false" : "");
        CHECK_MSG(r.code == 0 && strstr(r.out, "\"lpips\""), "%s%s", r.out, r.err);
        distance[same] = predicted_metric(r.out, "lq_lpips");
        if (same) CHECK_NEAR(predicted_metric(r.out, "lq_ssim"), 1, 1e-6);
    }
    CHECK_MSG(distance[0] > 1e-4 && fabs(distance[1]) < 1e-9, "%g and %g", distance[0],
              distance[1]);
}
