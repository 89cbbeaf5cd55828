/* test_augment.c - augmentation compared with torchvision's on the same draws.
 *
 * tests/data/augment.json is written by tools/oracle/augment_numbers.py: transforms, their drawn
 * values, and hashes or sums of what torchvision makes of the picture below. */
#include "data/augment/augment.h"
#include "data/augment/mixing.h"
#include "data/augment/rand_augment.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The picture of augment_numbers.py. */
static uint8_t *picture(int w, int h, int seed)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3), *to = rgb;
    for (int y = 0; rgb && y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                int v = (x * (5 + c) + y * (3 + 2 * c) + x * y / 7 * (1 + c) + seed * 40 +
                         (x * 7 + y * 13) % 11 * 4) %
                        317;
                int other = 255 - v / 4;
                *to++ = (uint8_t)(v < other ? v : other);
            }
    return rgb;
}

static uint32_t fnv(const uint8_t *at, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 16777619u;
    return h;
}

static int number(const json_t *row, const char *key)
{
    return (int)json_integer_value(json_object_get(row, key));
}

static double real(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static json_t *rows_of(void)
{
    json_error_t error;
    json_t *rows = json_load_file("tests/data/augment.json", 0, &error);
    if (!rows) printf("tests/data/augment.json: %s\n", error.text);
    return rows;
}

static bool is(const json_t *row, const char *what)
{
    return strcmp(json_string_value(json_object_get(row, "what")), what) == 0;
}

TEST(augment_rand_operations_give_the_bytes_of_torchvision)
{
    json_t *rows = rows_of(), *row;
    size_t i;
    int n = 0;
    CHECK(rows);
    json_array_foreach(rows, i, row)
    {
        if (!is(row, "rand")) continue;
        int w = number(row, "w"), h = number(row, "h");
        size_t bytes = (size_t)w * (size_t)h * 3;
        uint8_t *rgb = picture(w, h, 1), *work = malloc(bytes);
        CHECK(rgb && work);
        bool negative = json_is_true(json_object_get(row, "negative"));
        pl_rand_augment((pl_rand_op)number(row, "op"), number(row, "strength"), negative, rgb, w, h,
                        work);
        CHECK_MSG(fnv(rgb, bytes) == (uint32_t)json_integer_value(json_object_get(row, "hash")),
                  "operation %d, strength %d, negative %d, %d x %d", number(row, "op"),
                  number(row, "strength"), negative, w, h);
        free(rgb);
        free(work);
        n++;
    }
    CHECK(n > 300);
    json_decref(rows);
}

/* Resizes the part of a view and compares the bytes. */
static void check_view(const json_t *row, const pl_view *v)
{
    int w = number(row, "w"), h = number(row, "h"), side = number(row, "side");
    uint8_t *rgb = picture(w, h, 2), *out = malloc((size_t)side * (size_t)side * 3);
    void *work = malloc(pl_rgb_resize_bytes(PL_FILTER_TRIANGLE, w, h, side, side));
    CHECK(rgb && out && work);
    pl_rgb_resize(PL_FILTER_TRIANGLE, rgb, w, h, pl_view_box(v, w, h), out, side, side, work);
    CHECK_MSG(fnv(out, (size_t)side * (size_t)side * 3) ==
                  (uint32_t)json_integer_value(json_object_get(row, "hash")),
              "%s, %d x %d to %d", json_string_value(json_object_get(row, "what")), w, h, side);
    free(rgb);
    free(out);
    free(work);
}

TEST(augment_crops_give_the_bytes_of_torchvision)
{
    json_t *rows = rows_of(), *row;
    size_t i;
    int n = 0;
    CHECK(rows);
    json_array_foreach(rows, i, row)
    {
        double w = number(row, "w"), h = number(row, "h");
        pl_augment a = {.resize = number(row, "resize")};
        pl_view v = {.x = number(row, "x") / w,
                     .y = number(row, "y") / h,
                     .w = number(row, "cw") / w,
                     .h = number(row, "ch") / h,
                     .closed = is(row, "resized")};
        if (is(row, "center"))
            pl_view_resized(&v, &a, false, 0, 0, 0, (int)w, (int)h, number(row, "side"),
                            number(row, "side"));
        if (!is(row, "center") && !is(row, "resized")) continue;
        check_view(row, &v);
        n++;
    }
    CHECK(n == 8);
    json_decref(rows);
}

/* Mixes a batch of four pictures as the run does; planar f32. */
static void check_mixing(const json_t *row, const pl_mixing *m)
{
    enum { W = 12, H = 10, N = 4, ROW = 3 * W * H };
    static float batch[N][ROW], before[N][ROW];
    for (int k = 0; k < N; k++) {
        uint8_t *rgb = picture(W, H, k);
        CHECK(rgb);
        for (int i = 0; i < ROW; i++) batch[k][i % 3 * W * H + i / 3] = (float)rgb[i] / 255;
        free(rgb);
    }
    memcpy(before, batch, sizeof batch);
    for (int k = 0; k < N; k++) {
        pl_pixels to = {.data = batch[k], .w = W, .h = H, .channels = 3, .planar = true};
        double share = pl_mixing_apply(m, &to, before[(k + N - 1) % N]), sum = 0;
        for (int i = 0; i < ROW; i++) sum += (double)batch[k][i];
        CHECK_NEAR(sum, json_number_value(json_array_get(json_object_get(row, "sums"), (size_t)k)),
                   1e-4);
        const json_t *target = json_object_get(row, "target");
        CHECK_NEAR(share, json_number_value(json_array_get(target, 0)), 1e-6);
        CHECK_NEAR(1 - share, json_number_value(json_array_get(target, 3)), 1e-6);
    }
}

TEST(augment_mixes_pictures_as_torchvision_does)
{
    json_t *rows = rows_of(), *row;
    size_t i;
    int n = 0;
    CHECK(rows);
    json_array_foreach(rows, i, row)
    {
        if (!is(row, "mixup") && !is(row, "cutmix")) continue;
        pl_mixing m = {.cut = is(row, "cutmix"),
                       .share = real(row, "share"),
                       .x = (real(row, "x") + 0.5) / 12,
                       .y = (real(row, "y") + 0.5) / 10,
                       .r = 0.5 * sqrt(1 - real(row, "share"))};
        check_mixing(row, &m);
        n++;
    }
    CHECK(n == 5);
    json_decref(rows);
}

/* Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)). */
TEST(augment_draws_shares_from_the_beta_distribution)
{
    static const double alphas[] = {0.1, 0.2, 0.8, 1, 3};
    enum { N = 20000 };
    for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
        double sum = 0, square = 0, cut = 0;
        for (int i = 0; i < N; i++) {
            pl_mixing m = pl_mixing_draw(alphas[k], k % 2 ? alphas[k] : 0, 5, i);
            CHECK(m.share >= 0 && m.share <= 1 && m.x >= 0 && m.x < 1);
            sum += m.share;
            square += (m.share - 0.5) * (m.share - 0.5);
            cut += m.cut;
        }
        CHECK_NEAR(sum / N, 0.5, 0.012);
        CHECK_NEAR(square / N * 4 * (2 * alphas[k] + 1), 1, 0.04);
        CHECK_NEAR(cut / N, k % 2 ? 0.5 : 0, 0.015);
    }
}

/* Every operation and both signs come, equally often; a second epoch draws others. */
TEST(augment_draws_every_rand_operation)
{
    enum { N = 14000 };
    pl_augment a = {.scale = {1, 1}, .rand_ops = 2, .rand_strength = 9};
    int count[PL_RAND_OPS] = {0}, negative = 0, same = 0;
    for (int i = 0; i < N; i++) {
        pl_view v = pl_view_draw(&a, 3, 0, i, 40, 30, 1), w = pl_view_draw(&a, 3, 1, i, 40, 30, 1);
        CHECK(v.n_rand == 2 && v.strength == 9 && v.rand_op[1] < PL_RAND_OPS);
        count[v.rand_op[0]]++;
        negative += v.rand_negative[1];
        same += v.rand_op[0] == w.rand_op[0];
    }
    for (int k = 0; k < PL_RAND_OPS; k++)
        CHECK_MSG(abs(count[k] - N / PL_RAND_OPS) < 150, "operation %d: %d", k, count[k]);
    CHECK(abs(negative - N / 2) < 300 && abs(same - N / PL_RAND_OPS) < 150);
}

/* A mirrored view mirrors first: a shift to the right stays one. */
TEST(augment_changes_the_mirrored_picture)
{
    enum { W = 16, H = 8 };
    uint8_t *rgb = picture(W, H, 1), work[W * H * 3], out[W * H * 3];
    CHECK(rgb);
    pl_view v = {.w = 1,
                 .h = 1,
                 .flip = true,
                 .n_rand = 1,
                 .strength = 30,
                 .rand_op = {PL_RAND_TRANSLATE_X}};
    pl_pixels to = {.data = out, .w = W, .h = H, .channels = 3, .bytes = true};
    uint8_t first[3];
    memcpy(first, rgb + (size_t)3 * (W - 1), 3);
    CHECK(pl_view_changes(&v));
    pl_view_write(&v, rgb, 3 * W, &to, work);
    int by = (int)(150.0 / 331 * W);
    for (int i = 0; i < 3 * by; i++) CHECK(out[i] == 0);
    CHECK(memcmp(out + (size_t)3 * (size_t)by, first, 3) == 0);
    free(rgb);
}
