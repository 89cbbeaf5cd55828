/* test_data_order.c - which samples are drawn, how often, with which augmentation; the index of
 * shards. */
#include "base/sys.h"
#include "data/image/image_int.h"
#include "data/sets/images.h"
#include "plimsoll_recipe.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/test.h"
#include "train/data/sampling.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 24 };

/* Frequencies of draws: crops lie anywhere, a quarter is mirrored, a third has a rectangle of
 * zeros. */
TEST(data_views_are_random)
{
    enum { N = 4000, SIDES = 20 };
    pl_augment a = {.crop = PL_CROP_RANDOM, .scale = {0.5, 0.5}, .flip = 0.25, .erase = 1.0 / 3};
    int quarter[2][4] = {{0}}, flips = 0, erased = 0;
    for (int64_t i = 0; i < N; i++) {
        pl_view v = pl_view_draw(&a, 3, i % 7, i, 100, 100, 1);
        CHECK(v.w == 0.5 && v.h == 0.5 && v.x >= 0 && v.x <= 0.5 && v.y >= 0 && v.y <= 0.5);
        quarter[0][(int)fmin(v.x * 8, 3)]++;
        quarter[1][(int)fmin(v.y * 8, 3)]++;
        flips += v.flip;
        erased += v.ew > 0;
        float px[SIDES * SIDES];
        uint8_t white[SIDES * SIDES * 3];
        memset(white, 255, sizeof white);
        pl_pixels to = {.data = px, .w = SIDES, .h = SIDES, .channels = 1, .low = -1, .high = 1};
        pl_view_write(&v, white, 3 * SIDES, &to, NULL);
        int zeros = 0;
        for (int k = 0; k < SIDES * SIDES; k++) zeros += px[k] == 0;
        CHECK(v.ew > 0 ? zeros < SIDES * SIDES / 2 : zeros == 0);
        if (v.ew * SIDES > 2 && v.eh * SIDES > 2) CHECK(zeros > 0);
    }

    for (int k = 0; k < 8; k++) CHECK_NEAR(quarter[k / 4][k % 4], N / 4, N / 20);
    CHECK_NEAR(flips, N / 4, N / 40);
    CHECK_NEAR(erased, N / 3, N / 40);
}

/* Numbers of generated samples: in their range, with their moments, another set for evaluation. */
TEST(data_generated_numbers_have_their_range_and_moments)
{
    enum { N = 20000 };
    double sum = 0, square = 0, most = 0, mean = 0;
    uint64_t seed = pl_sample_seed(7, PL_SUBSET_TRAIN, 3);

    CHECK(seed != pl_sample_seed(7, PL_SUBSET_EVAL, 3));
    CHECK(seed != pl_sample_seed(7, PL_SUBSET_TRAIN, 4) &&
          seed != pl_sample_seed(8, PL_SUBSET_TRAIN, 3));

    for (uint64_t k = 0; k < N; k++) {
        double u = pl_sample_uniform(seed, k), z = pl_sample_normal(seed, k);
        CHECK(u >= 0 && u < 1);
        mean += u / N;
        sum += z / N;
        square += z * z / N;
        most = fabs(z) > most ? fabs(z) : most;
    }
    CHECK(fabs(mean - 0.5) < 0.01 && fabs(sum) < 0.02 && fabs(square - 1) < 0.03);
    CHECK(most > 2.5 && most < 3.47);
    CHECK(pl_sample_uniform(seed, 5) == pl_sample_uniform(seed, 5));
}

/* ---- which sample comes when --------------------------------------------------------------------
 */
/* An epoch has every sample once; each epoch and each seed has a different order, and the order
 * is not a shift. */
TEST(data_an_epoch_has_every_sample_once)
{
    static const int64_t sizes[] = {1, 2, 3, 16, 17, 1000, 4097};
    static uint8_t seen[4097];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k], same_epoch = 0, same_seed = 0, in_place = 0, neighbours = 0;
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t p = 0; p < n; p++) {
                int64_t s = pl__sample_at(5, n, epoch * n + p);
                CHECK(s >= 0 && s < n && !seen[s]);
                seen[s < 0 || s >= n ? 0 : s] = 1;
            }
        }
        for (int64_t p = 0; p < n; p++) {
            int64_t s = pl__sample_at(5, n, p);
            in_place += s == p;
            same_epoch += s == pl__sample_at(5, n, n + p);
            same_seed += s == pl__sample_at(6, n, p);
            neighbours += p > 0 && llabs(s - pl__sample_at(5, n, p - 1)) == 1;
        }
        if (n < 1000) continue;
        CHECK_MSG(in_place < 12 && same_epoch < 12 && same_seed < 12 && neighbours < 20,
                  "%lld: %lld %lld %lld %lld", (long long)n, (long long)in_place,
                  (long long)same_epoch, (long long)same_seed, (long long)neighbours);
    }
}

/* Weights of metadata.jsonl, and balanced classes, by the frequency of draws. */
TEST(data_weights_set_the_frequency_of_draws)
{
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    mkdir(dir, 0777);
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "%s/class%d", dir, i > 0);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/class%d/%d.jpg", dir, i > 0, i);
        CHECK(image_write(path, (const uint8_t *)"x", 1));
    }
    for (int balance = 0; balance < 2; balance++) {
        pl_image_set *s;
        pl_image_set_opts o = image_set_options(dir, SIDE);
        o.balance = balance;
        snprintf(path, sizeof path, "%s/metadata.jsonl", dir);
        static const char line[] = "{\"file_name\": \"class1/3.jpg\", \"weight\": 11}\n";
        if (balance)
            unlink(path);
        else
            CHECK(image_write(path, (const uint8_t *)line, sizeof line - 1));
        CHECK_OK(pl_image_set_open(&o, &s));
        CHECK(pl_image_set_weighted(s));
        int count[10] = {0};
        for (int k = 0; k < 9000; k++) {
            int64_t i = pl_image_set_draw(s, (k + 0.5) / 9000);
            CHECK(i >= 0 && i < 10);
            count[i]++;
        }
        CHECK_INT(count[0], 4500 / (balance ? 1 : 10));
        CHECK_INT(count[3], balance ? 500 : 4950);
        CHECK_INT(count[9], balance ? 500 : 450);
        CHECK(fabs(pl_image_set_weight(s, 0) / pl_image_set_weight(s, 9) - (balance ? 9 : 1)) <
              1e-9);
        pl_image_set_close(s);
    }
}

/* The index file of a shard is read until the tar changes. */
TEST(data_tar_index_is_read_until_the_tar_changes)
{
    char path[600], index[608], *text;
    uint8_t *tar = NULL;
    size_t n = 0, len;
    snprintf(path, sizeof path, "%s/a.tar", pl_test_dir());
    snprintf(index, sizeof index, "%s.idx", path);
    tar_member(&tar, &n, "0.cls", '0', "4", 1);
    tar_member(&tar, &n, "0.jpg", '0', "picture", 7);
    tar_end(&tar, &n);
    CHECK(image_write(path, tar, n));
    pl_items_opts o = {.path = path};
    pl_items *s;
    for (int run = 0; run < 4; run++) {
        CHECK_OK(pl_items_open(&o, &s));
        CHECK_INT(s->n, 1);
        CHECK_INT(s->item[0].label, run == 1 ? 7 : 4);
        CHECK_INT(s->item[0].bytes, 7);
        pl_items_close(s);
        CHECK_OK(pl_sys_read_file(index, 1 << 20, &text, &len));
        char *at = strstr(text, " 4 "), *head = strchr(text, '\n');
        CHECK(head && (run == 1 || (at && at > head)));
        if (run == 0 && at) at[1] = '7';
        if (run == 0) CHECK(image_write(index, (const uint8_t *)text, len));
        pl_sys_free(text);
        struct timespec other[2] = {{1000000000, 0}, {1000000000, run}};
        /* another time stamp: the index is rebuilt */
        if (run == 1) CHECK(utimensat(AT_FDCWD, path, other, 0) == 0);
        /* cut short */
        if (run == 2) CHECK(image_write(index, (const uint8_t *)"plimsoll tar", 12));
    }
    /* An index of this tar with ranges outside the tar is ignored. */
    CHECK_OK(pl_sys_read_file(index, 1 << 20, &text, &len));
    char *head = strchr(text, '\n'), out[256];
    int m = snprintf(out, sizeof out, "%.*s512 99999 7 0 0 0.jpg\n", (int)(head - text + 1), text);
    CHECK(image_write(index, (const uint8_t *)out, (size_t)m));
    CHECK_OK(pl_items_open(&o, &s));

    CHECK(s->n == 1 && s->item[0].label == 4 && s->item[0].bytes == 7);
    pl_items_close(s);
    pl_sys_free(text);
    free(tar);
}

/* Writes a tar of n samples. */
static bool write_shard(const char *name, int n)
{
    uint8_t *tar = NULL;
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        char member[16];
        snprintf(member, sizeof member, "%d.jpg", i);
        tar_member(&tar, &len, member, '0', "picture", 7);
    }
    tar_end(&tar, &len);
    bool ok = image_write(pl_test_path(name), tar, len);
    free(tar);
    return ok;
}

/* Samples of training and of evaluation in a folder of the test, a digit each; -1: an error. */
static int parts_of(const char *folder, bool plain)
{
    pl_items_opts o = {.path = pl_test_path(folder), .eval_share = 0, .plain = plain};
    pl_items *s;
    if (pl_items_open(&o, &s) != PL_OK) return -1;
    int n[2] = {0, 0};
    for (int64_t i = 0; i < s->n; i++) n[s->item[i].eval]++;
    pl_items_close(s);
    return 10 * n[0] + n[1];
}

TEST(data_tar_shards_of_an_evaluation_set_are_not_trained_on)
{
    mkdir(pl_test_path("named"), 0777);
    mkdir(pl_test_path("words"), 0777);
    mkdir(pl_test_path("below"), 0777);
    mkdir(pl_test_path("below/train"), 0777);
    mkdir(pl_test_path("below/val"), 0777);
    CHECK(write_shard("named/set-train-0.tar", 3) && write_shard("named/set-val-0.tar", 2));
    CHECK(write_shard("words/my-test-0.tar", 3) && write_shard("words/my-test-1.tar", 2));
    CHECK(write_shard("below/train/0.tar", 4) && write_shard("below/val/0.tar", 1));

    CHECK_INT(parts_of("named", false), 32);
    CHECK_INT(parts_of("words", false), 50); /* all have the word */
    CHECK_INT(parts_of("below", false), 41);
    CHECK_INT(parts_of("below/val", false), 10);
    CHECK_INT(parts_of("named", true), 5); /* predictions read all */
    CHECK_INT(parts_of("below/train/0.tar", true), 4);

    CHECK(write_shard("named/set-test-0.tar", 4));
    CHECK_INT(parts_of("named", false), 32); /* as with folders, the first of val and test */
    CHECK_INT(parts_of("named", true), 9);
}

/* Every byte of a header changed: what is read without the library is what the library reads, or
 * the library refuses the file when it decodes it. */
TEST(data_plain_jpeg_headers_are_those_of_the_library)
{
    enum { W = 37, H = 29 };
    static const uint8_t change[] = {0x00, 0x01, 0x11, 0x22, 0xc0, 0xff};
    uint8_t *rgb = image_made(W, H, 3), *out = NULL;
    size_t n = 0, plain = 0;
    pl_decoder *d;
    if (!image_jpeg(rgb, W, H, &out, &n)) SKIP("libturbojpeg is not installed");
    CHECK_OK(pl_decoder_new(&d));
    uint8_t *scan = memmem(out, n, "\xff\xda", 2);
    CHECK(scan);
    for (size_t at = 3; scan && out + at < scan + 10; at++)
        for (size_t k = 0; k <= sizeof change; k++) {
            uint8_t was = out[at];
            out[at] = k < sizeof change ? change[k] : (uint8_t)(was + 1);
            pl_image_info own = {.colour = "RGB", .bits = 8}, theirs = own;
            if (pl__jpeg_plain(out, n, &own)) {
                pl_status rc = pl__jpeg_probe(d, out, n, &theirs);
                bool large = (int64_t)own.width * own.height > W * H;
                plain++;
                if (rc == PL_OK) {
                    CHECK_INT(own.width, theirs.width);
                    CHECK_INT(own.height, theirs.height);
                    CHECK(strcmp(own.colour, theirs.colour) == 0);
                    CHECK_INT(theirs.heap_bytes, 0);
                } else if (!large) {
                    uint8_t got[W * H * 4];
                    CHECK(pl__jpeg_decode(d, out, n, &own, own.width, own.height, got) != PL_OK);
                }
            }
            out[at] = was;
        }
    CHECK(plain > 100);
    pl_decoder_free(d);
    free(out);
    free(rgb);
}

/* A picture that needs no further processing is decoded in place: the same bytes as in every
 * other way. */
TEST(data_decoding_in_place_gives_the_same_bytes)
{
    char dir[512];
    static uint8_t bytes[SIDE * SIDE * 3 + 1];
    static float px[SIDE * SIDE * 3];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    if (!image_folder(dir, 3, 1, SIDE, SIDE, 0)) SKIP("libturbojpeg is not installed");
    for (int flip = 0; flip < 2; flip++) {
        pl_image_set_opts o = image_set_options(dir, SIDE);
        pl_image_set *s;
        o.augment.flip = flip;
        CHECK_OK(pl_image_set_open(&o, &s));
        for (int64_t i = 0; i < 3; i++) {
            pl_pixels b = {.data = bytes, .w = SIDE, .h = SIDE, .channels = 3, .bytes = true};
            pl_pixels f = {
                .data = px, .w = SIDE, .h = SIDE, .channels = 3, .planar = true, .high = 255};
            pl_image_read r = {.sample = i, .to = &b, .n_to = 1};
            bytes[SIDE * SIDE * 3] = 77;
            CHECK_OK(pl_image_set_read(s, &r));
            r = (pl_image_read){.sample = i, .to = &f, .n_to = 1};
            CHECK_OK(pl_image_set_read(s, &r));
            int wrong = 0;
            for (int k = 0; k < SIDE * SIDE; k++)
                for (int c = 0; c < 3; c++)
                    wrong += (float)bytes[3 * k + c] != px[c * SIDE * SIDE + k];
            CHECK_INT(wrong, 0);
            CHECK_INT(bytes[SIDE * SIDE * 3], 77);
        }
        pl_image_set_close(s);
    }
}

/* A PNG that feeds one input is decoded row by row, a PNG that feeds two inputs as a whole: the
 * same numbers, and the same refusal of truncated data. */
TEST(data_png_by_rows_gives_the_pixels_of_the_whole)
{
    enum { W = 90, H = 70, N = SIDE * SIDE * 3 };
    char dir[512], path[600];
    static float one[N], two[2][N];
    uint8_t *rgb = image_made(W, H, 5), *png;
    size_t n;
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    mkdir(dir, 0777);
    if (!image_png(rgb, W, H, 2, 8, W, H, &png, &n)) SKIP("libspng is not installed");
    snprintf(path, sizeof path, "%s/0.png", dir);
    CHECK(image_write(path, png, n));
    free(png);

    /* its middle is copied, not scaled */
    CHECK(image_png(rgb, SIDE, SIDE + 9, 2, 8, SIDE, SIDE + 9, &png, &n));
    snprintf(path, sizeof path, "%s/1.png", dir);
    CHECK(image_write(path, png, n));
    snprintf(path, sizeof path, "%s/2.png", dir);
    CHECK(image_write(path, png, n / 2));
    pl_image_set_opts o = image_set_options(dir, SIDE);
    pl_image_set *s;
    o.augment = (pl_augment){
        .crop = PL_CROP_RANDOM, .scale = {0.7, 1}, .flip = 0.5, .jitter = {0.1, 0.1, 0.1, 0}};
    CHECK_OK(pl_image_set_open(&o, &s));
    for (int64_t k = 0; k < 60; k++) {
        pl_pixels to[2] = {{.data = one, .w = SIDE, .h = SIDE, .channels = 3, .high = 1}};
        pl_image_read r = {.sample = k % 3, .epoch = k / 6, .eval = k % 2, .to = to, .n_to = 1};
        if (r.eval) continue;
        pl_status rc = pl_image_set_read(s, &r);
        CHECK_INT(rc, k % 3 == 2 ? PL_ERR_DATA : PL_OK);
        to[1] = to[0];
        to[0].data = two[0];
        to[1].data = two[1];
        r.n_to = 2;
        CHECK_INT(pl_image_set_read(s, &r), rc);
        if (rc == PL_OK)
            CHECK(memcmp(one, two[0], sizeof one) == 0 && memcmp(one, two[1], sizeof one) == 0);
    }
    pl_image_set_close(s);
    free(rgb);
    free(png);
}

static void read_first(void *ctx)
{
    float px[SIDE * SIDE * 3];
    pl_pixels to = {.data = px, .w = SIDE, .h = SIDE, .channels = 3, .low = 3, .high = 4};
    pl_image_read r = {.to = &to, .n_to = 1};
    (void)(pl_image_set_read(ctx, &r) == PL_OK);
}

/* 24 million pixels for a small input: memory holds only a strip of them. */
TEST(data_large_png_takes_little_memory)
{
    enum { W = 6000, H = 4000, N = SIDE * SIDE * 3 };
    char dir[512], path[600];
    static float px[N];
    uint8_t *png;
    size_t n;
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    mkdir(dir, 0777);
    if (!image_png_zeros(W, H, (size_t)H * (3 * W + 1) + 300, false, &png, &n))
        SKIP("libspng is not installed");
    snprintf(path, sizeof path, "%s/0.png", dir);
    CHECK(image_write(path, png, n));
    free(png);

    pl_image_set_opts o = image_set_options(dir, SIDE);
    pl_image_set *s;
    CHECK_OK(pl_image_set_open(&o, &s));
    size_t growth = image_growth(read_first, s);

    CHECK_MSG(growth < (size_t)12 << 20, "%zu bytes", growth);
    pl_pixels to = {.data = px, .w = SIDE, .h = SIDE, .channels = 3, .low = 3, .high = 4};
    pl_image_read r = {.to = &to, .n_to = 1};
    CHECK_OK(pl_image_set_read(s, &r));
    CHECK(px[0] == 3 && px[N - 1] == 3);
    pl_image_set_close(s);
}
