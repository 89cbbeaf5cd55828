/* test_degrade.c - degraded pairs and edges: every operation against a plain implementation,
 * draws against their ranges, and that all results are functions of (seed, epoch, sample) only. */
#include "base/sys.h"
#include "data/image/degrade.h"
#include "data/image/image.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

static float *noise_picture(int w, int h, uint64_t seed)
{
    float *p = malloc((size_t)w * (size_t)h * 3 * sizeof *p);
    for (int i = 0; i < w * h * 3; i++) p[i] = (float)(0.5 + 0.5 * pl_test_noise(&seed));
    return p;
}

static int mirror(int i, int n)
{
    return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
}

/* ---- blur --------------------------------------------------------------------------------- */
/* The same weights through the inverse of the covariance matrix. */
static double plain_weight(const pl_blur *b, bool iso, double x, double y)
{
    double sx = b->sigma_x * b->sigma_x, sy = iso ? sx : b->sigma_y * b->sigma_y,
           t = iso ? 0 : b->turn;
    double c = cos(t), s = sin(t);
    double m00 = c * c * sx + s * s * sy, m01 = c * s * (sx - sy), m11 = s * s * sx + c * c * sy;
    double det = m00 * m11 - m01 * m01;
    double q = (m11 * x * x - 2 * m01 * x * y + m00 * y * y) / det;
    switch (b->shape) {
    case PL_BLUR_ISO:
    case PL_BLUR_ANISO: return exp(-q / 2);
    case PL_BLUR_GENERAL_ISO:
    case PL_BLUR_GENERAL_ANISO: return exp(-pow(q, b->beta) / 2);
    default: return 1 / (1 + pow(q, b->beta));
    }
}

TEST(degrade_blur_weights_sum_to_one)
{
    float w[PL_BLUR_MAX * PL_BLUR_MAX];
    for (int shape = 0; shape < PL_BLUR_SHAPES; shape++) {
        pl_blur b = {.shape = (pl_blur_shape)shape,
                     .size = 9,
                     .sigma_x = 2.5,
                     .sigma_y = 0.8,
                     .turn = 0.6,
                     .beta = 1.7};
        bool iso = shape % 2 == 0;
        double sum = 0, plain = 0;
        pl_blur_weights(&b, w);
        for (int i = 0; i < 81; i++) plain += plain_weight(&b, iso, i % 9 - 4, i / 9 - 4);
        for (int i = 0; i < 81; i++) {
            sum += (double)w[i];
            CHECK_NEAR(w[i], plain_weight(&b, iso, i % 9 - 4, i / 9 - 4) / plain, 1e-7);
        }
        CHECK_NEAR(sum, 1, 1e-5);
    }
}

/* A circular low pass: sum 1, round, and with a cutoff of pi nearly the picture itself. */
TEST(degrade_sinc_weights_are_a_round_low_pass)
{
    float w[PL_BLUR_MAX * PL_BLUR_MAX];
    pl_blur b = {.shape = PL_BLUR_SINC, .size = 21, .cutoff = M_PI / 3};
    pl_blur_weights(&b, w);
    double sum = 0;
    for (int i = 0; i < 441; i++) sum += (double)w[i];
    CHECK_NEAR(sum, 1, 1e-5);
    CHECK_NEAR(w[10 * 21 + 13], w[13 * 21 + 10], 1e-9);       /* 3 to the right, 3 down */
    CHECK_NEAR(w[(10 + 3) * 21 + 14], w[10 * 21 + 15], 1e-9); /* (4,3) and (5,0): both at 5 */
    double plain = M_PI / 3 * j1(M_PI / 3 * 5) / (2 * M_PI * 5),
           centre = M_PI / 3 * M_PI / 3 / (4 * M_PI);
    CHECK_NEAR((double)w[10 * 21 + 15] / (double)w[10 * 21 + 10], plain / centre, 1e-6);
}

TEST(degrade_blur_matches_a_convolution)
{
    enum { W = 17, H = 13, N = W * H * 3 };
    float *src = noise_picture(W, H, 3), weights[81], dst[N],
          *pad = malloc((W + 8) * (H + 8) * 3 * sizeof *pad);
    pl_blur b = {.shape = PL_BLUR_ANISO, .size = 9, .sigma_x = 2, .sigma_y = 1, .turn = 0.3};
    double worst = 0;
    pl_blur_weights(&b, weights);
    pl_blur_apply(src, W, H, weights, 9, dst, pad);
    for (int i = 0; i < N; i++) {
        int c = i % 3, x = i / 3 % W, y = i / 3 / W;
        double sum = 0;
        for (int k = 0; k < 81; k++)
            sum += (double)weights[k] *
                   (double)src[(mirror(y + k / 9 - 4, H) * W + mirror(x + k % 9 - 4, W)) * 3 + c];
        worst = fmax(worst, fabs(sum - (double)dst[i]));
    }
    free(src);
    free(pad);
    CHECK_MSG(worst < 1e-6, "off by %g", worst);
}

static double plain_gauss51(const double *src, int w, int h, int x, int y, int c)
{
    double sum = 0, total = 0;
    for (int v = -25; v <= 25; v++)
        for (int u = -25; u <= 25; u++) {
            double k = exp(-(u * u + v * v) / 128.0);
            total += k;
            sum += k * src[(mirror(y + v, h) * w + mirror(x + u, w)) * 3 + c];
        }
    return sum / total;
}

TEST(degrade_sharpen_is_an_unsharp_mask)
{
    enum { W = 40, H = 33, N = W * H * 3 };
    float *src = malloc(N * sizeof *src), *dst = malloc(N * sizeof *dst),
          *pad = malloc(4 * N * sizeof *pad);
    double *s = malloc(N * sizeof *s), *mask = malloc(N * sizeof *mask),
           *low = malloc(N * sizeof *low);
    double worst = 0, changed = 0;
    for (int i = 0; i < N; i++) /* a bright bar, and a slope that is not to be sharpened */
        s[i] = (double)(src[i] = (float)(0.3 + 0.002 * (i / 3 % W) +
                                         (i / 3 % W > 15 && i / 3 % W < 19 ? 0.35 : 0)));
    pl_sharpen(src, W, H, dst, pad);
    for (int i = 0; i < N; i++) {
        low[i] = plain_gauss51(s, W, H, i / 3 % W, i / 3 / W, i % 3);
        mask[i] = fabs(s[i] - low[i]) * 255 > 10;
    }
    for (int i = 0; i < N; i++) {
        double soft = plain_gauss51(mask, W, H, i / 3 % W, i / 3 / W, i % 3);
        double sharp = fmin(fmax(s[i] + 0.5 * (s[i] - low[i]), 0), 1);
        double want = soft * sharp + (1 - soft) * s[i];
        worst = fmax(worst, fabs(want - (double)dst[i]));
        changed = fmax(changed, fabs((double)dst[i] - s[i]));
    }
    free(src), free(dst), free(pad), free(s), free(mask), free(low);
    CHECK_MSG(worst < 1e-5 && changed > 0.02, "off by %g; changed by %g", worst, changed);
}

/* ---- resize ------------------------------------------------------------------------------- */
/* Results of torch.nn.functional.interpolate for a picture of 4 x 5. */
static const struct {
    pl_scale_mode mode;
    int w, h;
    double scale; /* given as scale_factor; 0: the size was given */
    float want[42];
} torch_resize[] = {
    {PL_SCALE_BILINEAR, 5, 6, 1.3, {0.000000f, 0.384005f, 0.405983f, 0.271673f, 0.723443f,
                                    0.207570f, 0.591575f, 0.613553f, 0.351507f, 0.292336f,
                                    0.451770f, 0.554757f, 0.609796f, 0.528083f, 0.198413f,
                                    0.695971f, 0.415751f, 0.433221f, 0.614492f, 0.435099f,
                                    0.940171f, 0.659951f, 0.346811f, 0.227529f, 0.649244f,
                                    0.442002f, 0.647178f, 0.574481f, 0.440171f, 0.891941f}},
    {PL_SCALE_BICUBIC, 5, 6, 1.3, {-0.061270f, 0.420298f, 0.399720f, 0.207401f, 0.773236f,
                                   0.130455f,  0.707858f, 0.735238f, 0.269725f, 0.244237f,
                                   0.446419f,  0.562052f, 0.719123f, 0.598265f, 0.099067f,
                                   0.770938f,  0.309977f, 0.360895f, 0.703581f, 0.449554f,
                                   0.992776f,  0.699323f, 0.249457f, 0.164438f, 0.647821f,
                                   0.415947f,  0.716924f, 0.568593f, 0.368272f, 0.915065f}},
    {PL_SCALE_AREA, 2, 3, 0.6, {0.452381f, 0.357143f, 0.589947f, 0.410053f, 0.642857f, 0.547619f}},
    {PL_SCALE_BILINEAR,
     2,
     3,
     0,
     {0.399471f, 0.388889f, 0.420635f, 0.579365f, 0.611111f, 0.600529f}},
    {PL_SCALE_BICUBIC, 2, 3, 0, {0.449644f, 0.329310f, 0.365575f, 0.634425f, 0.670690f, 0.550356f}},
    {PL_SCALE_AREA, 6, 7, 0, {0.000000f, 0.293651f, 0.587302f, 0.158730f, 0.452381f, 0.746032f,
                              0.158730f, 0.452381f, 0.746032f, 0.317460f, 0.357143f, 0.396825f,
                              0.476191f, 0.515873f, 0.555556f, 0.634921f, 0.420635f, 0.206349f,
                              0.634921f, 0.420635f, 0.206349f, 0.793651f, 0.579365f, 0.365079f,
                              0.793651f, 0.579365f, 0.365079f, 0.444444f, 0.484127f, 0.523810f,
                              0.603175f, 0.642857f, 0.682540f, 0.253968f, 0.547619f, 0.841270f,
                              0.253968f, 0.547619f, 0.841270f, 0.412698f, 0.706349f, 1.000000f}},
};

TEST(degrade_resize_matches_interpolate)
{
    enum { W = 4, H = 5 };
    float src[W * H * 3], dst[7 * 6 * 3], strip[5 * 6 * 3];
    for (int i = 0; i < W * H; i++)
        for (int c = 0; c < 3; c++)
            src[3 * i + c] = (float)(i * 37 % 64) / 63 * (c == 2 ? 0.5f : 1);
    for (size_t t = 0; t < sizeof torch_resize / sizeof *torch_resize; t++) {
        int w = torch_resize[t].w, h = torch_resize[t].h;
        double scale = torch_resize[t].scale;
        pl_scale_picture(src, W, H, dst, w, h, scale > 0 ? 1 / scale : 0, torch_resize[t].mode,
                         strip);
        for (int i = 0; i < w * h; i++) {
            CHECK_NEAR(dst[3 * i], torch_resize[t].want[i], 2e-6);
            CHECK_NEAR(dst[3 * i + 2], torch_resize[t].want[i] / 2, 2e-6);
        }
    }
}

/* ---- noise -------------------------------------------------------------------------------- */
/* A draw is the inverse of the distribution function, wherever the search starts. */
TEST(degrade_poisson_draws_invert_the_distribution)
{
    static const double means[] = {0, 0.004, 0.7, 5.5, 64, 256};
    for (size_t m = 0; m < sizeof means / sizeof *means; m++) {
        pl_poisson p = pl_poisson_of(means[m]);
        double mass = exp(-means[m]), sum = mass, total = 0, square = 0;
        int k = 0, n = 20000;
        for (int i = 0; i < n; i++) {
            double u = (i + 0.5) / n;
            while (u >= sum && mass > 0) {
                mass *= means[m] / ++k;
                sum += mass;
            }
            int got = pl_poisson_draw(&p, u);
            CHECK_MSG(got == k || fabs(sum - u) < 1e-9, "mean %g, u %.9g: %d, wanted %d", means[m],
                      u, got, k);
            total += got;
            square += (double)got * got;
        }
        CHECK_NEAR(total / n, means[m], 0.002 + 0.001 * means[m]);
        CHECK_NEAR(square / n - total / n * total / n, means[m], 0.01 + 0.01 * means[m]);
    }
}

typedef struct moments {
    double mean, deviation, across; /* across: mean difference of two channels */
} moments;

static moments noise_of(const pl_degradation_pass *p, pl_image_key key, float level, int pass)
{
    enum { W = 128, H = 128, N = W * H };
    float *px = malloc(N * 3 * sizeof *px);
    double sum = 0, square = 0, across = 0;
    for (int i = 0; i < 3 * N; i++) px[i] = level;
    pl_noise_add(px, W, H, p, key, pass);
    for (int i = 0; i < 3 * N; i++) {
        sum += (double)px[i];
        square += (double)(px[i] - level) * (double)(px[i] - level);
    }
    for (int i = 0; i < N; i++) across += fabs((double)px[3 * i] - (double)px[3 * i + 1]);
    free(px);
    return (moments){sum / (3 * N), sqrt(square / (3 * N)), across / N};
}

TEST(degrade_noise_has_the_given_strength)
{
    pl_image_key key = {7, 2, 11}, later = {7, 3, 11}, other = {7, 2, 12};
    for (int grey = 0; grey < 2; grey++) {
        pl_degradation_pass g = {.noise = 10 / 255.0, .grey = grey};
        moments m = noise_of(&g, key, 0.5f, 0), again = noise_of(&g, key, 0.5f, 0);
        CHECK_NEAR(m.mean, 0.5, 0.002);
        CHECK_NEAR(m.deviation, 10 / 255.0, 0.001);
        CHECK_MSG((m.across == 0) == grey, "channels differ by %g", m.across);
        CHECK(memcmp(&m, &again, sizeof m) == 0);
        CHECK(noise_of(&g, later, 0.5f, 0).mean != m.mean);
        CHECK(noise_of(&g, other, 0.5f, 0).mean != m.mean);
        CHECK(noise_of(&g, key, 0.5f, 1).mean != m.mean);
        /* One shade: one photon per pixel at full light, so 0 or more with mean `level`. */
        pl_degradation_pass p = {.poisson = true, .noise = 0.05, .grey = grey};
        m = noise_of(&p, key, 102 / 255.0f, 0);
        CHECK_NEAR(m.mean, 0.4, 0.002);
        CHECK_NEAR(m.deviation, 0.05 * sqrt(0.4), 0.001);
        CHECK_MSG((m.across == 0) == grey, "channels differ by %g", m.across);
    }
}

/* Many shades give many photons: 4 shades, 4 photons. */
TEST(degrade_poisson_noise_depends_on_the_number_of_shades)
{
    enum { N = 64 * 64 };
    float *px = malloc(N * 3 * sizeof *px);
    double square = 0;
    for (int i = 0; i < 3 * N; i++) px[i] = i < 3 ? (float)i / 10 : 0.6f;
    pl_degradation_pass p = {.poisson = true, .noise = 0.1};
    pl_noise_add(px, 64, 64, &p, (pl_image_key){1, 0, 0}, 0);
    for (int i = 3; i < 3 * N; i++) square += (double)(px[i] - 0.6f) * (double)(px[i] - 0.6f);
    free(px);
    CHECK_NEAR(sqrt(square / (3 * N - 3)), 0.1 * sqrt(0.6 / 4), 0.001);
}

/* ---- JPEG --------------------------------------------------------------------------------- */
static double jpeg_error(pl_jpeg_round *j, const uint8_t *rgb, int w, int h, int quality)
{
    int n = w * h * 3;
    double sum = 0;
    float *px = malloc((size_t)n * sizeof *px);
    for (int i = 0; i < n; i++) px[i] = (float)rgb[i] / 255;
    if (pl_jpeg_round_run(j, px, w, h, quality) != PL_OK) sum = HUGE_VAL;
    for (int i = 0; i < n; i++) sum += fabs((double)px[i] * 255 - rgb[i]);
    free(px);
    return sum / n;
}

TEST(degrade_jpeg_loses_more_at_lower_quality)
{
    pl_jpeg_round *j;
    if (pl_image_missing(PL_IMAGE_JPEG)) SKIP("no libturbojpeg");
    uint8_t *rgb = image_made(97, 64, 5); /* one column more, for the last */
    for (int i = 0; i < 96 * 64 * 3; i += 7) rgb[i] = (uint8_t)(rgb[i] ^ 24);
    CHECK_OK(pl_jpeg_round_new(96, 64, &j));
    double fine = jpeg_error(j, rgb, 96, 64, 100), middle = jpeg_error(j, rgb, 96, 64, 80),
           coarse = jpeg_error(j, rgb, 96, 64, 20), again = jpeg_error(j, rgb, 96, 64, 80);
    /* A part of the workspace, and not more than there is. */
    double small = jpeg_error(j, rgb, 33, 17, 90), large = jpeg_error(j, rgb, 97, 64, 90);
    pl_jpeg_round_free(j);
    free(rgb);
    CHECK_MSG(fine < middle && middle < coarse && middle == again && coarse < 40, "%g, %g, %g",
              fine, middle, coarse);
    CHECK(small < 20 && large == HUGE_VAL);
}

/* ---- what is drawn ------------------------------------------------------------------------ */
typedef struct tally {
    double shape[8], way[3], mode[3], poisson, grey, jpeg_first, untouched, last;
} tally;

static bool in(double v, const double range[2])
{
    return v >= range[0] - 1e-9 && v <= range[1] + 1e-9;
}

static bool pass_fits(const pl_degradation_pass *p, const pl_degrade_pass *o)
{
    double noise[2] = {o->noise[0] / 255, o->noise[1] / 255};
    const pl_blur *b = &p->blur;
    return b->size >= 7 && b->size <= 21 && b->size % 2 == 1 && in(b->sigma_x, o->sigma) &&
           in(b->sigma_y, o->sigma) &&
           in(b->beta, b->shape < PL_BLUR_PLATEAU_ISO || b->shape > 5 ? o->general : o->plateau) &&
           b->cutoff >= M_PI / 5 && b->cutoff <= M_PI && in(p->scale, o->scale) &&
           in(p->noise, p->poisson ? o->poisson : noise) && in(p->jpeg, o->jpeg);
}

TEST(degrade_draws_have_the_given_frequencies)
{
    enum { N = 40000 };
    pl_degrade o = pl_degrade_stablesr();
    for (int k = 0; k < 2; k++) {
        tally t;
        memset(&t, 0, sizeof t);
        const pl_degrade_pass *r = &o.pass[k];
        for (int i = 0; i < N; i++) {
            pl_degradation d = pl_degrade_draw(&o, (pl_image_key){77, i % 3, i});
            const pl_degradation_pass *p = &d.pass[k];
            pl_blur sinc = p->blur;
            if (sinc.shape == PL_BLUR_SINC || sinc.shape == PL_BLUR_NONE) {
                pl_degradation_pass q = *p;
                q.blur.beta = 1;
                CHECK(pass_fits(&q, r));
            } else {
                CHECK(pass_fits(p, r));
            }
            t.shape[p->blur.shape] += 1.0 / N;
            t.way[p->scale > 1 ? 0 : p->scale < 1 ? 1 : 2] += 1.0 / N;
            t.mode[p->mode] += 1.0 / N;
            t.poisson += p->poisson / (double)N;
            t.grey += p->grey / (double)N;
            t.jpeg_first += d.jpeg_first / (double)N;
            t.untouched += d.untouched / (double)N;
            t.last += (d.last.shape == PL_BLUR_SINC) / (double)N;
        }
        for (int s = 0; s < 6; s++)
            CHECK_NEAR(t.shape[s], r->blur * (1 - r->sinc) * r->shape[s], 0.012);
        CHECK_NEAR(t.shape[PL_BLUR_SINC], r->blur * r->sinc, 0.012);
        CHECK_NEAR(t.shape[PL_BLUR_NONE], 1 - r->blur, 0.012);
        for (int s = 0; s < 3; s++) CHECK_NEAR(t.way[s], r->resize[s], 0.012);
        for (int s = 0; s < 3; s++) CHECK_NEAR(t.mode[s], 1.0 / 3, 0.012);
        CHECK_NEAR(t.poisson, 0.5, 0.012);
        CHECK_NEAR(t.grey, 0.4, 0.012);
        CHECK_NEAR(t.jpeg_first, 0.5, 0.012);
        CHECK_NEAR(t.untouched, 0.01, 0.003);
        CHECK_NEAR(t.last, 0.8, 0.012);
    }
}

/* ---- the whole ---------------------------------------------------------------------------- */
TEST(degrade_is_a_function_of_its_key)
{
    enum { W = 64, H = 48, N = W * H * 3 };
    pl_degrade o = pl_degrade_stablesr();
    pl_degrader *a, *b;
    o.codec = !pl_image_missing(PL_IMAGE_JPEG);
    uint8_t *rgb = image_made(W, H, 1), *more = image_made(W, H, 2);
    float *good = malloc(N * sizeof *good), *bad = malloc(N * sizeof *bad),
          *again = malloc(N * sizeof *again);
    CHECK_OK(pl_degrader_new(&o, W, H, &a));
    CHECK_OK(pl_degrader_new(&o, W, H, &b));
    uint64_t allocs = pl_sys_counts_get().allocs;
    double off = 0;
    int same_epoch = 0;
    for (int i = 0; i < 24; i++) {
        CHECK_OK(pl_degrader_run(a, (pl_image_key){5, 1, i}, rgb, good, bad));
        for (int k = 0; k < N; k++) {
            CHECK(bad[k] >= 0 && bad[k] <= 1 && good[k] >= -0.01f && good[k] <= 1.01f);
            off += fabs((double)bad[k] - (double)good[k]) / (24 * N);
        }
        /* Another thread's workspace, after other pictures. */
        CHECK_OK(pl_degrader_run(b, (pl_image_key){5, 9, 3 * i}, more, NULL, again));
        CHECK_OK(pl_degrader_run(b, (pl_image_key){5, 1, i}, rgb, NULL, again));
        CHECK(memcmp(bad, again, N * sizeof *bad) == 0);
        CHECK_OK(pl_degrader_run(b, (pl_image_key){5, 2, i}, rgb, NULL, again));
        same_epoch += memcmp(bad, again, N * sizeof *bad) == 0;
    }
    CHECK_INT(pl_sys_counts_get().allocs, allocs);
    CHECK_MSG(off > 0.01 && off < 0.2 && same_epoch == 0,
              "mean difference %g; %d the same in another epoch", off, same_epoch);
    pl_degrader_free(a);
    pl_degrader_free(b);
    o.untouched = 1;
    CHECK_OK(pl_degrader_new(&o, W, H, &a));
    CHECK_OK(pl_degrader_run(a, (pl_image_key){5, 1, 0}, rgb, good, bad));
    CHECK(memcmp(good, bad, N * sizeof *bad) == 0);
    pl_degrader_free(a);
    free(rgb), free(more), free(good), free(bad), free(again);
}

TEST(degrade_refuses_bad_ranges)
{
    pl_degrade o = pl_degrade_stablesr();
    pl_degrader *d;
    o.pass[0].scale[0] = 0.01;
    CHECK(pl_degrader_new(&o, 64, 64, &d) == PL_ERR_CONFIG);
    o = pl_degrade_stablesr();
    o.pass[1].jpeg[1] = 101;
    CHECK(pl_degrader_new(&o, 64, 64, &d) == PL_ERR_CONFIG);
    o = pl_degrade_stablesr();
    CHECK(pl_degrader_new(&o, 3, 64, &d) == PL_ERR_ARG);
}

/* ---- pool --------------------------------------------------------------------------------- */
/* The pool, seen from outside: it takes samples in order, returns each once after it is full,
 * never two of the same batch, and keeps a sample for `size` positions on average. */
TEST(degrade_pool_gives_each_sample_once)
{
    enum { SIZE = 180, BATCH = 6, N = 30000 };
    static uint8_t given[N];
    memset(given, 0, sizeof given);
    double age = 0;
    for (int p = 0; p < N; p++) {
        int64_t s = pl_pool_source(3, SIZE, BATCH, p);
        if (p < SIZE) {
            CHECK_INT(s, p);
            continue;
        }
        CHECK(s >= 0 && s / BATCH < p / BATCH);
        CHECK_MSG(!given[s], "position %d gets sample %lld again", p, (long long)s);
        given[s] = 1;
        age += (double)(p - s) / (N - SIZE);
    }
    CHECK_NEAR(age, SIZE, SIZE * 0.03);
    int left = 0; /* what is in the pool now */
    for (int p = 0; p < N; p++) left += !given[p];
    CHECK_INT(left, SIZE);
    CHECK(pl_pool_source(4, SIZE, BATCH, 5000) != pl_pool_source(3, SIZE, BATCH, 5000));
    CHECK_INT(pl_pool_source(3, 0, BATCH, 5000), 5000);
}

/* ---- edges -------------------------------------------------------------------------------- */
typedef struct field {
    int w, h;
    double *g, *dx, *dy, *mag;
} field;

static double at(const field *f, const double *v, int x, int y)
{
    return x < 0 || y < 0 || x >= f->w || y >= f->h ? 0 : v[y * f->w + x];
}

static double grey_at(const field *f, int x, int y)
{
    x = x < 0 ? 0 : x >= f->w ? f->w - 1 : x;
    y = y < 0 ? 0 : y >= f->h ? f->h - 1 : y;
    return f->g[y * f->w + x];
}

/* The gradient's direction as an angle. */
static bool plain_peak(const field *f, int x, int y)
{
    int i = y * f->w + x;
    double turn = atan2(fabs(f->dy[i]), fabs(f->dx[i])) * 180 / M_PI, m = f->mag[i];
    if (turn < 22.5) return m > at(f, f->mag, x - 1, y) && m >= at(f, f->mag, x + 1, y);
    if (turn > 67.5) return m > at(f, f->mag, x, y - 1) && m >= at(f, f->mag, x, y + 1);
    int s = f->dx[i] * f->dy[i] < 0 ? -1 : 1;
    return m > at(f, f->mag, x - s, y - 1) && m > at(f, f->mag, x + s, y + 1);
}

static void plain_canny(const uint8_t *rgb, int w, int h, double low, double high, uint8_t *edge)
{
    size_t n = (size_t)w * (size_t)h;
    double *block = malloc(4 * n * sizeof *block), *raw = malloc(n * sizeof *raw);
    field f = {w, h, block, block + n, block + 2 * n, block + 3 * n};
    for (size_t i = 0; i < n; i++)
        raw[i] = floor((rgb[3 * i] * 4899.0 + rgb[3 * i + 1] * 9617.0 + rgb[3 * i + 2] * 1868.0) /
                           16384 +
                       0.5);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            double sum = 0, total = 0;
            for (int k = 0; k < 25; k++) {
                int u = k % 5 - 2, v = k / 5 - 2;
                double weight = exp(-(u * u + v * v) / (2 * 1.4 * 1.4));
                total += weight;
                sum += weight * raw[mirror(y + v, h) * w + mirror(x + u, w)];
            }
            f.g[y * w + x] = rint(sum / total);
        }
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            double gx = 0, gy = 0;
            for (int k = -1; k <= 1; k++) {
                double weight = k ? 1 : 2;
                gx += weight * (grey_at(&f, x + 1, y + k) - grey_at(&f, x - 1, y + k));
                gy += weight * (grey_at(&f, x + k, y + 1) - grey_at(&f, x + k, y - 1));
            }
            f.dx[y * w + x] = gx;
            f.dy[y * w + x] = gy;
            f.mag[y * w + x] = fabs(gx) + fabs(gy);
        }
    for (size_t i = 0; i < n; i++)
        edge[i] = f.mag[i] > high && plain_peak(&f, (int)i % w, (int)i / w) ? 255 : 0;
    for (bool more = true; more;) { /* until nothing is added */
        more = false;
        for (int i = 0; i < w * h; i++) {
            if (edge[i] || !(f.mag[i] > low) || !plain_peak(&f, i % w, i / w)) continue;
            bool touches = false;
            for (int k = 0; k < 9; k++) {
                int u = i % w + k % 3 - 1, v = i / w + k / 3 - 1;
                touches |= u >= 0 && v >= 0 && u < w && v < h && edge[v * w + u];
            }
            if (touches) edge[i] = 255, more = true;
        }
    }
    free(block);
    free(raw);
}

TEST(degrade_canny_matches_a_plain_implementation)
{
    enum { W = 61, H = 47 };
    uint8_t edge[W * H], want[W * H];
    void *work = malloc(pl_canny_bytes(W, H));
    for (int seed = 0; seed < 6; seed++) {
        uint8_t *rgb = image_made(W, H, seed);
        uint64_t state = (uint64_t)seed + 1;
        for (int k = 0; k < 12; k++) { /* blocks of different shades, for edges of all strengths */
            int x0 = (int)(fabs(pl_test_noise(&state)) * (W - 12)),
                y0 = (int)(fabs(pl_test_noise(&state)) * (H - 12));
            int add = (int)(90 * pl_test_noise(&state));
            for (int i = 0; i < 12 * 12 * 3; i++) {
                uint8_t *p = &rgb[((y0 + i / 36) * W + x0 + i / 3 % 12) * 3 + i % 3];
                int v = *p + add;
                *p = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
        pl_canny(rgb, W, H, 100, 200, edge, work);
        plain_canny(rgb, W, H, 100, 200, want);
        int on = 0, off = 0;
        for (int i = 0; i < W * H; i++) {
            on += want[i] != 0;
            off += edge[i] != want[i];
        }
        free(rgb);
        CHECK_MSG(on > 60 && off == 0, "picture %d: %d pixels of %d differ", seed, off, on);
    }
    free(work);
}

/* A white square on black gives one closed line around it, one pixel wide; at half the
 * brightness, nothing. */
TEST(degrade_canny_finds_the_edges_of_a_square)
{
    enum { W = 48, SIDE = 20, FROM = 14 };
    static uint8_t rgb[W * W * 3] = {0}, edge[W * W];
    void *work = malloc(pl_canny_bytes(W, W));
    for (int y = 0; y < SIDE; y++) memset(rgb + ((FROM + y) * W + FROM) * 3, 255, SIDE * 3);
    pl_canny(rgb, W, W, 100, 200, edge, work);
    for (int k = 4; k < SIDE - 4; k++) {
        int row = 0, column = 0;
        for (int i = 0; i < W; i++) {
            row += edge[(FROM + k) * W + i] == 255;
            column += edge[i * W + FROM + k] == 255;
        }
        CHECK_INT(row, 2);
        CHECK_INT(column, 2);
    }
    int inside = 0;
    for (int y = FROM + 3; y < FROM + SIDE - 3; y++)
        for (int x = FROM + 3; x < FROM + SIDE - 3; x++) inside += edge[y * W + x] != 0;
    CHECK_INT(inside, 0);
    CHECK_INT(edge[3 * W + 3], 0);
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = rgb[i] ? 20 : 0; /* too weak */
    pl_canny(rgb, W, W, 100, 200, edge, work);
    free(work);
    for (int i = 0; i < W * W; i++) CHECK_INT(edge[i], 0);
}
