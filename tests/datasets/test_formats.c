/* test_formats.c - BMP, TIFF and GIF: pixels that another encoder wrote are read back, damaged
 * files are refused, files of other formats are counted. */
#include "data/image/image.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

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

/* 24 bits, the last row first. */
static void make_bmp(bytes *b)
{
    int row = (W * 3 + 3) / 4 * 4;
    memcpy(b->at, "BM", 2);
    b->n = 2;
    put(b, (uint64_t)(54 + row * H), 4), put(b, 0, 4), put(b, 54, 4);
    put(b, 40, 4), put(b, W, 4), put(b, H, 4), put(b, 1, 2), put(b, 24, 2);
    for (int i = 0; i < 6; i++) put(b, 0, 4);
    for (int y = H; y-- > 0;) {
        for (int x = 0; x < W; x++)
            for (int c = 3; c-- > 0;) put(b, pixel(x, y, c), 1);
        put(b, 0, row - 3 * W);
    }
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

/* A palette of 128 greys; codes of 8 bits, cleared so often that they never grow. frames: 1, or
 * more for an animation. */
static void make_gif(bytes *b, int frames)
{
    memcpy(b->at, "GIF89a", 6);
    b->n = 6;
    put(b, W, 2), put(b, H, 2), put(b, 0xF6, 1), put(b, 0, 2);
    for (int i = 0; i < 128; i++) put(b, (uint64_t)i * 0x020202, 3);
    for (int f = 0; f < frames; f++) {
        put(b, 0x2C, 1), put(b, 0, 4), put(b, W, 2), put(b, H, 2), put(b, 0, 1), put(b, 7, 1);
        for (int y = 0; y < H; y++) {
            put(b, W + 1, 1), put(b, 128, 1); /* a row: the clear code, then its numbers */
            for (int x = 0; x < W; x++) put(b, pixel(x, y, 0) / 2, 1);
        }
        put(b, 1, 1), put(b, 129, 1), put(b, 0, 1);
    }
    put(b, 0x3B, 1);
}

static pl_status read_image(const bytes *b, size_t n, uint8_t rgb[W * H * 4], pl_image_info *info)
{
    const pl_image_limits limits = {.max_pixels = 1 << 20, .min_side = 1, .max_side = 65535};
    pl_decoder *d;
    PL_TRY(pl_decoder_new(&d));
    pl_status rc = pl_image_probe(d, b->at, n, &limits, info);
    bool size = rc == PL_OK && info->width == W && info->height == H;
    if (rc == PL_OK) rc = size ? pl_image_decode(d, b->at, n, info, W, H, rgb) : PL_ERR_ARG;
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
