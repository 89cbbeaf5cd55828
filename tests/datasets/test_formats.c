/* test_formats.c - BMP, TIFF and GIF: pixels that another encoder wrote are read back, damaged
 * files are refused, files of other formats are counted. */
#include "data/image/image.h"
#include "data/sets/images.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { W = 13, H = 9 }; /* rows that need padding */

typedef struct bytes {
    uint8_t at[8192];
    size_t n;
} bytes;

static void put(bytes *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) b->at[b->n++] = (uint8_t)(v >> (8 * i));
}

static uint8_t pixel(int x, int y, int c)
{
    return (uint8_t)(x * 17 + y * 5 + c * 60);
}

/* 24 bits, the last row first; or, with a negative height in the header, the first. */
static void make_bmp_in_order(bytes *b, bool downwards)
{
    int row = (W * 3 + 3) / 4 * 4;
    memcpy(b->at, "BM", 2);
    b->n = 2;
    put(b, (uint64_t)(54 + row * H), 4), put(b, 0, 4), put(b, 54, 4);
    put(b, 40, 4), put(b, W, 4), put(b, (uint64_t)(downwards ? -H : H), 4);
    put(b, 1, 2), put(b, 24, 2);
    for (int i = 0; i < 6; i++) put(b, 0, 4);
    for (int k = 0; k < H; k++) {
        int y = downwards ? k : H - 1 - k;
        for (int x = 0; x < W; x++)
            for (int c = 3; c-- > 0;) put(b, pixel(x, y, c), 1);
        put(b, 0, row - 3 * W);
    }
}

static void make_bmp(bytes *b)
{
    make_bmp_in_order(b, false);
}

static void tag(bytes *b, int id, int type, int count, uint64_t value)
{
    put(b, (uint64_t)id, 2), put(b, (uint64_t)type, 2), put(b, (uint64_t)count, 4),
        put(b, value, 4);
}

/* One strip, not compressed; samples: 1 grey, 3 RGB, 4 with alpha that is not premultiplied. */
static void make_tiff(bytes *b, int samples, int bits)
{
    size_t pixels = (size_t)W * H * (size_t)samples * (size_t)bits / 8;
    memcpy(b->at, "II*\0", 4);
    b->n = 4;
    put(b, 8 + pixels, 4);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < samples; c++) {
                /* 16 bits: the 8-bit number times 257 */
                uint8_t v = c == 3 ? 40 : pixel(x, y, c);
                put(b, v * 257u, bits / 8);
            }
    size_t at = b->n, tags = samples == 4 ? 10 : 9;
    uint64_t depth = at + 2 + 12 * tags + 4; /* offset of the bits of each sample */
    put(b, tags, 2);
    tag(b, 256, 3, 1, W), tag(b, 257, 3, 1, H);
    tag(b, 258, 3, samples, samples <= 2 ? (uint64_t)bits : depth);
    tag(b, 259, 3, 1, 1), tag(b, 262, 3, 1, samples == 1 ? 1 : 2), tag(b, 273, 4, 1, 8);
    tag(b, 277, 3, 1, (uint64_t)samples), tag(b, 278, 3, 1, H), tag(b, 279, 4, 1, pixels);
    if (samples == 4) tag(b, 338, 3, 1, 2);
    put(b, 0, 4);
    for (int c = 0; c < samples; c++) put(b, (uint64_t)bits, 2);
}

/* RGB in parts: strips of `tall` rows (wide: 0), or tiles of wide x tall. */
static void make_tiff_in_parts(bytes *b, int wide, int tall)
{
    uint64_t at[16], part_w = wide ? (uint64_t)wide : W, n = 0;
    int step = wide ? wide : W;
    memcpy(b->at, "II*\0", 4);
    b->n = 8;
    for (int y0 = 0; y0 < H; y0 += tall)
        for (int x0 = 0; x0 < W; x0 += step) {
            at[n++] = b->n;
            for (int y = y0; y < y0 + tall && (wide || y < H); y++)
                for (int x = x0; x < x0 + step; x++)
                    for (int c = 0; c < 3; c++) put(b, pixel(x, y, c), 1);
        }
    uint64_t places = b->n, counts = places + 4 * n, depth = counts + 4 * n, table = depth + 6;
    uint64_t full = part_w * (uint64_t)tall * 3,
             last = wide ? full : part_w * (uint64_t)(H - (H - 1) / tall * tall) * 3;
    for (uint64_t i = 0; i < n; i++) put(b, at[i], 4);
    for (uint64_t i = 0; i < n; i++) put(b, i + 1 < n ? full : last, 4);
    for (int c = 0; c < 3; c++) put(b, 8, 2);
    for (int i = 0; i < 4; i++) b->at[4 + i] = (uint8_t)(table >> (8 * i));
    if (n == 1) places = at[0], counts = last; /* one number stands in its tag */
    put(b, wide ? 10 : 9, 2);
    tag(b, 256, 3, 1, W), tag(b, 257, 3, 1, H), tag(b, 258, 3, 3, depth);
    tag(b, 259, 3, 1, 1), tag(b, 262, 3, 1, 2);
    if (!wide) tag(b, 273, 4, (int)n, places);
    tag(b, 277, 3, 1, 3);
    if (!wide) tag(b, 278, 3, 1, (uint64_t)tall), tag(b, 279, 4, (int)n, counts);
    if (wide) {
        tag(b, 322, 3, 1, (uint64_t)wide), tag(b, 323, 3, 1, (uint64_t)tall);
        tag(b, 324, 4, (int)n, places), tag(b, 325, 4, (int)n, counts);
    }
    put(b, 0, 4);
}

/* A palette of 128 greys; codes of 8 bits, cleared so often that they never grow. frames: 1, or
 * more for an animation. */
static void make_gif_rows(bytes *b, int frames, bool interlaced)
{
    static const int order[H] = {0, 8, 4, 2, 6, 1, 3, 5, 7};
    memcpy(b->at, "GIF89a", 6);
    b->n = 6;
    put(b, W, 2), put(b, H, 2), put(b, 0xF6, 1), put(b, 0, 2);
    for (int i = 0; i < 128; i++) put(b, (uint64_t)i * 0x020202, 3);
    for (int f = 0; f < frames; f++) {
        put(b, 0x2C, 1), put(b, 0, 4), put(b, W, 2), put(b, H, 2);
        put(b, interlaced ? 0x40 : 0, 1), put(b, 7, 1);
        for (int k = 0; k < H; k++) {
            int y = interlaced ? order[k] : k;
            put(b, W + 1, 1), put(b, 128, 1); /* a row: the clear code, then its numbers */
            for (int x = 0; x < W; x++) put(b, pixel(x, y, 0) / 2, 1);
        }
        put(b, 1, 1), put(b, 129, 1), put(b, 0, 1);
    }
    put(b, 0x3B, 1);
}

static void make_gif(bytes *b, int frames)
{
    make_gif_rows(b, frames, false);
}

static void keep_row(void *ctx, int y, const uint8_t *row)
{
    memcpy((uint8_t *)ctx + (size_t)y * W * 3, row, (size_t)W * 3);
}

static pl_status read_image(const bytes *b, size_t n, uint8_t rgb[W * H * 4], pl_image_info *info)
{
    const pl_image_limits limits = {.max_pixels = 1 << 20, .min_side = 1, .max_side = 65535};
    pl_decoder *d;
    PL_TRY(pl_decoder_new(&d));
    pl_status rc = pl_image_probe(d, b->at, n, &limits, info);
    bool size = rc == PL_OK && info->width == W && info->height == H;
    if (rc == PL_OK) rc = size ? pl_image_decode(d, b->at, n, info, W, H, rgb) : PL_ERR_ARG;
    if (rc == PL_OK && info->by_rows) { /* row after row the same */
        uint8_t row[W * 4], rows[W * H * 3] = {0};
        rc = pl_image_rows(b->at, n, info, row, keep_row, rows);
        if (rc == PL_OK && memcmp(rgb, rows, sizeof rows) != 0) rc = PL_ERR_NUMERIC;
    }
    pl_decoder_free(d);
    return rc;
}

/* A whole file gives every pixel; a truncated file is refused, or gives the same where only the
 * end mark is missing. */
static void check_format(pl_image_format f, const bytes *b, int channels, int step)
{
    uint8_t rgb[W * H * 4], cut[W * H * 4];
    pl_image_info info;
    CHECK_OK(read_image(b, b->n, rgb, &info));
    CHECK_INT(info.format, f);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                int want = pixel(x, y, channels == 1 ? 0 : c) / step * step;
                CHECK_MSG(rgb[3 * (y * W + x) + c] == want, "%s %d %d %d: %d, wanted %d",
                          pl_image_format_name(f), x, y, c, rgb[3 * (y * W + x) + c], want);
            }
    for (size_t n = 0; n < b->n; n += n < 64 ? 1 : 7)
        if (read_image(b, n, cut, &info) == PL_OK)
            CHECK_MSG(memcmp(rgb, cut, W * H * 3) == 0, "%s of %zu of %zu bytes",
                      pl_image_format_name(f), n, b->n);
}

TEST(formats_bmp_tiff_and_gif_are_read)
{
    static bytes b;
    if (!pl_image_missing(PL_IMAGE_BMP)) {
        make_bmp(&b);
        check_format(PL_IMAGE_BMP, &b, 3, 1);
        make_bmp_in_order(&b, true);
        check_format(PL_IMAGE_BMP, &b, 3, 1);
    }
    for (int k = 0; k < 4 && !pl_image_missing(PL_IMAGE_TIFF); k++) {
        /* libtiff 4.5 reads no uncompressed tiles whose bytes are not a multiple of 1024 */
        static const int wide[] = {0, 0, 64, 64}, tall[] = {4, 1, 16, 32};
        make_tiff_in_parts(&b, wide[k], tall[k]);
        check_format(PL_IMAGE_TIFF, &b, 3, 1);
    }
    for (int k = 0; k < 4 && !pl_image_missing(PL_IMAGE_TIFF); k++) {
        static const int samples[] = {1, 3, 4, 3}, bits[] = {8, 8, 8, 16};
        make_tiff(&b, samples[k], bits[k]);
        check_format(PL_IMAGE_TIFF, &b, samples[k], 1);
    }
    if (!pl_image_missing(PL_IMAGE_GIF)) {
        uint8_t rgb[W * H * 4];
        pl_image_info info;
        make_gif(&b, 1);
        check_format(PL_IMAGE_GIF, &b, 1, 2);
        make_gif_rows(&b, 1, true);
        check_format(PL_IMAGE_GIF, &b, 1, 2);
        make_gif(&b, 2);
        CHECK_INT(read_image(&b, b.n, rgb, &info), PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), "animated"), "%s", pl_error_text());
    }
}

TEST(formats_that_are_not_read_are_counted_by_kind)
{
    static bytes b;
    char path[600], kinds[128];
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_run("mkdir -p %s/set/a %s/set/b && cd %s/set && touch a/x.heic a/y.HEIC b/z.mp4 a/README "
            "a/x.txt metadata.tsv",
            pl_test_dir(), pl_test_dir(), pl_test_dir());
    pl_items_opts o = {.path = path};
    pl_items *s;
    snprintf(path, sizeof path, "%s/set", pl_test_dir());

    CHECK_INT(pl_items_open(&o, &s), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "2 .heic") && strstr(pl_error_text(), "TIFF"), "%s",
              pl_error_text());

    make_bmp(&b);
    snprintf(path, sizeof path, "%s/set/a/x.bmp", pl_test_dir());
    CHECK(image_write(path, b.at, b.n));
    snprintf(path, sizeof path, "%s/set/b/x.bmp", pl_test_dir());
    CHECK(image_write(path, b.at, b.n));
    snprintf(path, sizeof path, "%s/set", pl_test_dir());
    CHECK_OK(pl_items_open(&o, &s));
    CHECK_INT(s->n, 2);
    CHECK_INT(s->ignored, 4);

    pl_items_skipped(s, kinds, sizeof kinds);
    CHECK_MSG(strcmp(kinds, "1 without an ending, 2 .heic, 1 .mp4") == 0, "%s", kinds);
    pl_items_close(s);

    cli_result r = cli_run("$P inspect data %s", path);
    CHECK_MSG(strstr(r.out, "4 other files are not read (1 without an ending, 2 .heic, 1 .mp4)"),
              "%s%s", r.out, r.err);

    if (pl_image_missing(PL_IMAGE_BMP)) return;
    r = cli_run("cd %s && ${CC:-cc} -shared -fPIC -O1 -I $OLDPWD/include -o photo.so "
                "$OLDPWD/tests/data/photo/photo.c && $P train ./photo.so data.path=set classes=2 "
                "train.steps=1 batch=1 data.eval_share=0",
                pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.err, "4 files of set are not read"), "%d %s", r.code, r.err);
}

/* Headers with every place of the pixels, also inside the header or the palette: where rows are
 * decoded one by one, they are the rows of the whole picture. */
TEST(formats_bmp_rows_equal_the_whole_with_any_header)
{
    static const uint64_t sizes[] = {12, 40, 56, 108}, bits[] = {1, 4, 8, 16, 24, 32};
    static bytes b;
    uint8_t rgb[W * H * 4];
    pl_image_info info;
    if (pl_image_missing(PL_IMAGE_BMP)) SKIP("no decoder of BMP");
    int read = 0;
    for (int k = 0; k < 4 * 6 * 2; k++)
        for (uint64_t at = 0; at < 160; at++) {
            uint64_t size = sizes[k % 4];
            make_bmp(&b);
            memset(b.at + 14, 0, 40);
            b.n = 10;
            put(&b, at, 4), put(&b, size, 4);
            put(&b, W, size == 12 ? 2 : 4), put(&b, H, size == 12 ? 2 : 4);
            put(&b, 1, 2), put(&b, bits[k / 4 % 6], 2), put(&b, k < 24 ? 0 : 3, 4);
            size_t n = 200 + W * H * 4;
            for (size_t i = 54; i < n; i++) b.at[i] = (uint8_t)(i * 37 + i / 5);
            pl_status rc = read_image(&b, n, rgb, &info);
            read += rc == PL_OK;
            CHECK_MSG(rc == PL_OK || rc == PL_ERR_DATA, "header %d, %d bits, pixels at %d: %s",
                      (int)size, (int)bits[k / 4 % 6], (int)at, pl_error_text());
        }
    CHECK(read > 100);
}

/* Sides whose product exceeds 64 bits: the picture is refused, and its size in memory is large, not
 * what is left of the product. */
TEST(formats_bmp_of_huge_sides_is_refused)
{
    static bytes b;
    uint8_t rgb[W * H * 4];
    pl_image_info info;
    if (pl_image_missing(PL_IMAGE_BMP)) SKIP("no decoder of BMP");
    make_bmp(&b);
    b.n = 10;
    put(&b, 50, 4), put(&b, 40, 4), put(&b, 0x60000005, 4), put(&b, 0x80000004, 4);
    put(&b, 1, 2), put(&b, 1, 2);
    CHECK_INT(read_image(&b, 50, rgb, &info), PL_ERR_DATA);
    CHECK_MSG(info.heap_bytes > INT64_C(100000000000000), "%lld bytes", (long long)info.heap_bytes);
}

/* ---- large pictures ------------------------------------------------------------------------ */
enum { BIG = 700 }; /* a lossless WebP of this side takes 1.96 MB in its decoder */

typedef struct reader {
    pl_image_set *set;
    int thread;
    pl_status rc;
} reader;

static void *read_often(void *ctx)
{
    reader *a = ctx;
    uint8_t px[8 * 8 * 3];
    pl_pixels to = {.data = px, .w = 8, .h = 8, .channels = 3, .bytes = true};
    for (int k = 0; k < 6 && a->rc == PL_OK; k++) {
        pl_image_read r = {.thread = a->thread, .sample = k % 2, .to = &to, .n_to = 1};
        a->rc = pl_image_set_read(a->set, &r);
    }
    return NULL;
}

/* A picture that the budget has no room for is refused before it is decoded, with the numbers;
 * where there is room for one of two, two threads take turns. */
TEST(formats_large_pictures_share_the_room_of_a_budget)
{
    char dir[512], path[600];
    uint8_t *rgb = image_made(BIG, BIG, 3), *file, px[8 * 8 * 3];
    size_t n;
    if (!image_webp(rgb, BIG, BIG, &file, &n)) SKIP("no encoder of WebP");
    snprintf(dir, sizeof dir, "%s/large", pl_test_dir());
    mkdir(dir, 0777);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.webp", dir, i);
        CHECK(image_write(path, file, n));
    }
    pl_image_set_opts o = image_set_options(dir, 8);
    pl_image_set *s;
    pl_pixels to = {.data = px, .w = 8, .h = 8, .channels = 3, .bytes = true};
    pl_image_read r = {.sample = 0, .to = &to, .n_to = 1};

    o.bounded = true;
    o.on_bad = PL_BAD_SKIP; /* too little memory is not the file's fault: it is not skipped */
    o.thread_bytes = 1 << 20;
    o.room_bytes = 1000;
    CHECK_OK(pl_image_set_open(&o, &s));
    CHECK_INT(pl_image_set_read(s, &r), PL_ERR_FIT);
    CHECK_MSG(strstr(pl_error_text(), "0.webp") && strstr(pl_error_text(), "700 x 700") &&
                  strstr(pl_error_text(), "data.large_memory="),
              "%s", pl_error_text());
    CHECK_INT(pl_image_set_bad_count(s), 0);
    pl_image_set_close(s);

    o.room_bytes = (4 << 20) + n; /* for one */
    CHECK_OK(pl_image_set_open(&o, &s));
    reader a[3];
    pthread_t id[3];
    for (int k = 0; k < 3; k++) {
        a[k] = (reader){.set = s, .thread = k};
        CHECK_INT(pthread_create(&id[k], NULL, read_often, &a[k]), 0);
    }
    for (int k = 0; k < 3; k++) {
        pthread_join(id[k], NULL);
        CHECK_OK(a[k].rc);
    }
    pl_image_set_close(s);
    free(rgb);
    free(file);
}
