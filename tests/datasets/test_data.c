/* test_data.c - the loader, decoders, resize, views and lists of images. */
#include "base/sys.h"
#include "data/sets/images.h"
#include "data/sets/loader.h"
#include "data/sets/tar.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- loader -------------------------------------------------------------------------------- */
typedef struct source {
    atomic_int fills;
    int64_t bad; /* position that fails */
} source;

static pl_status fill(void *ctx, int64_t position, void *buffer, int worker)
{
    source *s = ctx;
    int64_t *to = buffer;
    struct timespec nap = {0, (position * 7919 % 5) * 200000 + worker * 1000};
    nanosleep(&nap, NULL); /* workers overtake each other */
    for (int i = 0; i < 64; i++) to[i] = position * 1000 + i;
    atomic_fetch_add(&s->fills, 1);
    PL_FAIL_IF(position == s->bad, PL_ERR_DATA, "batch %lld is bad", (long long)position);
    return PL_OK;
}

static pl_loader_opts options(source *s, int workers, int depth)
{
    return (pl_loader_opts){
        .workers = workers, .depth = depth, .buffer_bytes = 512, .fill = fill, .ctx = s};
}

TEST(data_loader_delivers_samples_in_order)
{
    static const int workers[] = {1, 2, 4};
    for (int w = 0; w < 3; w++) {
        source s = {.bad = -1};
        pl_loader_opts o = options(&s, workers[w], workers[w] + 1);
        pl_loader *l;
        CHECK_OK(pl_loader_new(&o, &l));
        bool right = true;
        for (int64_t p = 0; p < 60; p++) {
            void *buffer = NULL;
            CHECK_OK(pl_loader_take(l, p, &buffer));
            for (int i = 0; i < 64; i++) right &= ((int64_t *)buffer)[i] == p * 1000 + i;
            pl_loader_done(l);
        }
        pl_loader_free(l);
        CHECK(right);
        CHECK(s.fills >= 60 && s.fills <= 60 + o.depth);
    }
}

TEST(data_loader_errors_come_at_their_batch)
{
    source s = {.bad = 5};
    pl_loader_opts o = options(&s, 2, 4);
    pl_loader *l;
    void *buffer;
    CHECK_OK(pl_loader_new(&o, &l));
    for (int64_t p = 0; p < 5; p++) {
        CHECK_OK(pl_loader_take(l, p, &buffer));
        pl_loader_done(l);
    }
    for (int again = 0; again < 2; again++) {
        CHECK_INT(pl_loader_take(l, 5, &buffer), PL_ERR_DATA);
        CHECK(strcmp(pl_error_text(), "batch 5 is bad") == 0);
    }
    CHECK_OK(pl_loader_take(l, 6, &buffer)); /* a jump over it */
    CHECK_INT(*(int64_t *)buffer, 6000);
    pl_loader_done(l);
    pl_loader_free(l);
}

TEST(data_loader_seeks_and_allocates_nothing)
{
    source s = {.bad = -1};
    pl_loader_opts o = options(&s, 3, 5);
    pl_loader *l;
    void *buffer;
    CHECK_OK(pl_loader_new(&o, &l));
    static const int64_t order[] = {0, 1, 100, 101, 7, 7, 0, 1};
    pl_sys_counts before = pl_sys_counts_get();
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        CHECK_OK(pl_loader_take(l, order[i], &buffer));
        CHECK_INT(*(int64_t *)buffer, order[i] * 1000);
        pl_loader_done(l);
    }
    pl_sys_counts after = pl_sys_counts_get();
    CHECK_INT(after.allocs, before.allocs);
    CHECK_INT(after.maps, before.maps);
    pl_loader_free(l);
}

/* ---- decoding ------------------------------------------------------------------------------ */
static pl_status decode(const uint8_t *bytes, size_t n, pl_image_info *info, uint8_t *rgb)
{
    pl_decoder *d;
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    PL_TRY(pl_decoder_new(&d));
    pl_status rc = pl_image_probe(d, bytes, n, &limits, info);
    if (rc == PL_OK) rc = pl_image_decode(d, bytes, n, info, info->width, info->height, rgb);
    pl_decoder_free(d);
    return rc;
}

enum { W = 40, H = 24 };

static int worst(const uint8_t *a, const uint8_t *b, size_t n)
{
    int most = 0;
    for (size_t i = 0; i < n; i++) {
        int off = abs(a[i] - b[i]);
        if (off > most) most = off;
    }
    return most;
}

TEST(data_decoders_return_the_pixels)
{
    uint8_t *rgb = image_made(W, H, 3), *out = NULL, got[W * H * 4];
    size_t n = 0;
    pl_image_info info;
    if (!image_jpeg(rgb, W, H, &out, &n)) SKIP("libturbojpeg is not installed");
    CHECK_OK(decode(out, n, &info, got));
    CHECK(info.width == W && info.height == H && info.format == PL_IMAGE_JPEG);
    CHECK(worst(rgb, got, W * H * 3) < 24);
    for (size_t cut = 3; cut < n - 2; cut += 97)
        CHECK_INT(decode(out, cut, &info, got), PL_ERR_DATA);
    free(out);
    if (!image_png(rgb, W, H, 2, 8, W, H, &out, &n)) SKIP("no library writes PNG files");
    CHECK_OK(decode(out, n, &info, got));
    CHECK(memcmp(rgb, got, W * H * 3) == 0);
    for (size_t cut = 8; cut < n - 16; cut += 97)
        CHECK_INT(decode(out, cut, &info, got), PL_ERR_DATA);
    free(out);
    if (image_png(rgb, W, H, 2, 16, W, H, &out, &n)) { /* by libspng only */
        CHECK_OK(decode(out, n, &info, got));
        CHECK(info.bits == 16 && memcmp(rgb, got, W * H * 3) == 0);
        free(out);
    }
    CHECK(image_png(rgb, W, H, 0, 8, W, H, &out, &n));
    CHECK_OK(decode(out, n, &info, got));
    CHECK(strcmp(info.colour, "grey") == 0 && got[0] == rgb[0] && got[2] == rgb[0] &&
          got[3] == rgb[1]);
    free(out);
    CHECK(image_png(rgb, W / 2, H, 6, 8, W / 2, H, &out, &n));
    CHECK_OK(decode(out, n, &info, got));
    CHECK(strcmp(info.colour, "RGBA") == 0 && got[3] == rgb[4] && got[5] == rgb[6]);
    free(out);
    if (image_webp(rgb, W, H, &out, &n)) {
        CHECK_OK(decode(out, n, &info, got));
        CHECK(info.format == PL_IMAGE_WEBP && memcmp(rgb, got, W * H * 3) == 0);
        CHECK_INT(decode(out, n / 2, &info, got), PL_ERR_DATA);
        free(out);
    }
    free(rgb);
}

/* State that a bad file leaves in the decoder does not affect the next file. */
TEST(data_decoder_works_after_a_bad_file)
{
    uint8_t *rgb = image_made(W, H, 3), *out = NULL, got[W * H * 4];
    size_t n = 0;
    pl_image_info info;
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    pl_decoder *d;
    if (!image_jpeg(rgb, W, H, &out, &n)) SKIP("libturbojpeg is not installed");
    CHECK_OK(pl_decoder_new(&d));
    for (size_t cut = 12; cut < n; cut += 29) {
        if (pl_image_probe(d, out, cut, &limits, &info) == PL_OK)
            CHECK(cut >= n - 2 || pl_image_decode(d, out, cut, &info, W, H, got) == PL_ERR_DATA);
        CHECK_OK(pl_image_probe(d, out, n, &limits, &info));
        CHECK_OK(pl_image_decode(d, out, n, &info, W, H, got));
    }
    pl_decoder_free(d);
    free(out);
    free(rgb);
}

/* In Adobe's CMYK full ink is 0: no ink at all is white, full black is black. */
TEST(data_cmyk_of_adobe_has_inverted_ink)
{
    enum { N = 16 };
    uint8_t px[N * N * 4], got[N * N * 4], *out;
    size_t n;
    pl_image_info info;
    for (int i = 0; i < N * N; i++) memcpy(px + 4 * i, (uint8_t[]){255, 0, 255, 255}, 4);
    if (!image_jpeg_cmyk(px, N, N, &out, &n)) SKIP("libturbojpeg is not installed");
    CHECK_OK(decode(out, n, &info, got));
    free(out);
    CHECK(strcmp(info.colour, "CMYK") == 0);
    CHECK(got[0] > 245 && got[1] < 10 && got[2] > 245);
}

TEST(data_hostile_images_are_refused)
{
    uint8_t px[12] = {9}, *out, got[64];
    size_t n;
    pl_image_info info;
    if (!image_png(px, 1, 1, 2, 8, 1, 1, &out, &n)) SKIP("no library writes PNG files");
    CHECK_INT(decode(out, n, &info, got), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "data.min_side"));
    free(out);
    /* A small file that claims 900 million pixels; no memory is allocated for them. */
    CHECK(image_png(px, 2, 2, 2, 8, 30000, 30000, &out, &n));
    size_t before = pl_sys_peak_rss_bytes();
    CHECK_INT(decode(out, n, &info, got), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "30000 x 30000") && strstr(pl_error_text(), "data.max_pixels"));
    CHECK(pl_sys_peak_rss_bytes() - before < (size_t)8 << 20);
    free(out);
    /* Data that inflate to more bytes than the header says, and to fewer. */
    uint8_t *rgb = image_made(W, H, 1), small[8 * 8 * 4];
    CHECK(image_png(rgb, W, H, 2, 8, 8, 8, &out, &n));
    (void)(decode(out, n, &info, small) == PL_OK); /* either way inside `small` */
    free(out);
    CHECK(image_png(rgb, 8, 8, 2, 8, W, H, &out, &n));
    uint8_t large[W * H * 4];
    CHECK_INT(decode(out, n, &info, large), PL_ERR_DATA);
    free(out);
    free(rgb);
    CHECK_INT(decode((const uint8_t *)"XYZ89a..........", 16, &info, got), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "not a JPEG, PNG, WebP, BMP, TIFF or GIF image"));
    CHECK_INT(decode((const uint8_t *)"", 0, &info, got), PL_ERR_DATA);
}

/* ---- resize -------------------------------------------------------------------------------- */
/* The definition in doubles: a triangle as wide as the scale, with weights that sum to one. */
static double reference(const uint8_t *src, int n, int step, double from, double scale, int i)
{
    double wide = scale > 1 ? scale : 1, centre = from + (i + 0.5) * scale, sum = 0, total = 0;
    for (int k = 0; k < n; k++) {
        double d = fabs((k + 0.5 - centre) / wide), v = d < 1 ? 1 - d : 0;
        sum += v * src[k * step];
        total += v;
    }
    return sum / total;
}

typedef struct bomb {
    uint8_t *png;
    size_t n;
} bomb;

static void defuse(void *ctx)
{
    const bomb *b = ctx;
    uint8_t got[8 * 8 * 4];
    pl_image_info info;
    (void)(decode(b->png, b->n, &info, got) == PL_OK);
}

/* A file of half a megabyte that inflates to 128 MB: bytes that the picture does not need cost
 * neither memory nor time. */
TEST(data_zip_bombs_take_little_memory_and_time)
{
    for (int in_profile = 0; in_profile < 2; in_profile++) {
        bomb b;
        if (!image_png_zeros(8, 8, (size_t)128 << 20, in_profile, &b.png, &b.n))
            SKIP("libspng is not installed");
        CHECK(b.n < 1 << 20);
        uint64_t began = used_ns();
        size_t growth = image_growth(defuse, &b);
        CHECK_MSG(growth < (size_t)8 << 20, "profile %d: %zu bytes", in_profile, growth);
        CHECK((double)(used_ns() - began) < 5e9);
        uint8_t got[8 * 8 * 4];
        pl_image_info info;
        pl_status rc = decode(b.png, b.n, &info, got);
        CHECK(rc == PL_OK || rc == PL_ERR_DATA);
        free(b.png);
    }
}

TEST(data_resize_matches_a_triangle_filter)
{
    enum { SW = 57, DW = 13, DH = 9 };
    static uint8_t src[SW * SW * 3], dst[DW * DH * 3];
    void *work = malloc(pl_rgb_resize_bytes(PL_FILTER_TRIANGLE, SW, SW, DW, DH));
    /* Equal columns, then equal rows: each pass separately. */
    for (int rows = 0; rows < 2; rows++) {
        for (int y = 0; y < SW; y++)
            for (int x = 0; x < SW; x++)
                for (int c = 0; c < 3; c++)
                    src[3 * (y * SW + x) + c] = (uint8_t)((rows ? y : x) * (37 + c) % 251);
        pl_crop_box box = {3.25, 1.5, 50.75, 56};
        pl_rgb_resize(PL_FILTER_TRIANGLE, src, SW, SW, box, dst, DW, DH, work);
        for (int y = 0; y < DH; y++)
            for (int x = 0; x < DW; x++) {
                double want = rows ? reference(src, SW, SW * 3, box.y0, (box.y1 - box.y0) / DH, y)
                                   : reference(src, SW, 3, box.x0, (box.x1 - box.x0) / DW, x);
                CHECK_NEAR(dst[3 * (y * DW + x)], want, 0.51);
            }
    }
    pl_crop_box whole = {4, 5, 4 + DW, 5 + DH};
    pl_rgb_resize(PL_FILTER_TRIANGLE, src, SW, SW, whole, dst, DW, DH, work);
    CHECK(memcmp(dst + 3 * DW, src + 3 * (6 * SW + 4), 3 * DW) == 0);
    free(work);
}

/* ---- views ---------------------------------------------------------------------------------- */
TEST(data_views_are_a_function_of_seed_epoch_and_sample)
{
    pl_augment a = {.crop = PL_CROP_RANDOM,
                    .scale = {0.5, 1},
                    .flip = 0.5,
                    .erase = 0.25,
                    .jitter = {0.2, 0.2, 0.2, 0.1}};
    int flips = 0, erased = 0;
    for (int64_t s = 0; s < 2000; s++) {
        pl_view v = pl_view_draw(&a, 7, 3, s, 300, 200, 1),
                w = pl_view_draw(&a, 7, 3, s, 300, 200, 1);
        CHECK(memcmp(&v, &w, sizeof v) == 0);
        CHECK(v.x >= 0 && v.x + v.w <= 1 + 1e-12 && v.y >= 0 && v.y + v.h <= 1 + 1e-12);
        CHECK_NEAR(v.w * 300, v.h * 200, 1e-9);
        CHECK(v.bright >= 0.8f && v.bright <= 1.2f && fabsf(v.hue) <= 0.1f);
        flips += v.flip;
        erased += v.ew > 0;
    }
    CHECK_NEAR(flips, 1000, 100);
    CHECK_NEAR(erased, 500, 100);
    pl_view v = pl_view_draw(NULL, 7, 3, 1, 300, 200, 1);
    pl_crop_box b = pl_view_box(&v, 300, 200);
    CHECK(b.x0 == 50 && b.x1 == 250 && b.y0 == 0 && b.y1 == 200);
    pl_view next = pl_view_draw(&a, 7, 4, 1, 300, 200, 1),
            other = pl_view_draw(&a, 7, 3, 1, 300, 200, 1);
    CHECK(memcmp(&next, &other, sizeof next) != 0);
}

TEST(data_views_write_mirrored_planes_and_bytes)
{
    uint8_t rgb[2 * 2 * 3] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}, copy[12];
    float f[12];
    pl_view v = {.w = 1, .h = 1, .flip = true};
    pl_pixels to = {.data = f, .w = 2, .h = 2, .channels = 3, .planar = true, .low = -1, .high = 1};
    memcpy(copy, rgb, 12);
    pl_view_write(&v, copy, 6, &to, NULL);
    CHECK(f[0] == -1 && f[1] == 1 && f[4] == 1 && f[5] == -1); /* mirrored red and green planes */
    uint8_t u[12];
    v.flip = false;
    to = (pl_pixels){.data = u, .w = 2, .h = 2, .channels = 3, .bytes = true};
    pl_view_write(&v, copy, 6, &to, NULL);
    CHECK(memcmp(u, rgb, 12) == 0);
    v = (pl_view){.w = 1,
                  .h = 1,
                  .coloured = true,
                  .bright = 1,
                  .contrast = 1,
                  .saturate = 1,
                  .hue = 1.0f / 3};
    pl_view_write(&v, copy, 6, &to, NULL); /* a third of a turn: red to green */
    CHECK(u[0] == 0 && u[1] == 255 && u[2] == 0);
    v.hue = 0;
    v.saturate = 0;
    memcpy(copy, rgb, 12);
    pl_view_write(&v, copy, 6, &to, NULL);
    CHECK_INT(u[0], 76);
    CHECK_INT(u[2], 76);
}

/* ---- sets ------------------------------------------------------------------------------------ */
enum { SIDE = 16 };

static pl_status read_one(pl_image_set *s, int64_t sample, int thread, float *to,
                          pl_image_read *out)
{
    pl_pixels p = {.data = to, .w = SIDE, .h = SIDE, .channels = 3, .planar = true, .high = 1};
    *out =
        (pl_image_read){.sample = sample, .thread = thread, .to = &p, .n_to = 1, .want_text = true};
    pl_status rc = pl_image_set_read(s, out);
    out->to = NULL;
    return rc;
}

/* Every byte at every position of a row gives the table's value, with and without the cache; a
 * mirrored row too. */
TEST(data_bytes_widen_to_the_values_of_the_table)
{
    static uint8_t bytes[768 + 16];
    static _Alignas(16) float wide[768 + 16], row[768];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
    for (int at = 0; at < 8; at++)
        for (int past = 0; past < 2; past++) {
            size_t n = 700 + (size_t)at;
            pl_bytes_widen(bytes + at, n, -1, 1, past, wide + at % 4);
            for (size_t i = 0; i < n; i++)
                CHECK(wide[(size_t)(at % 4) + i] ==
                      (float)bytes[(size_t)at + i] * (2.0f / 255) - 1.0f);
        }
    CHECK(wide[0] != wide[1]);
    pl_view v = {.w = 1, .h = 1, .flip = true};
    pl_pixels to = {.data = row, .w = 256, .h = 1, .channels = 3, .low = -1, .high = 1};
    pl_view_write(&v, bytes, 768, &to, NULL);
    for (int x = 0; x < 256; x++)
        for (int c = 0; c < 3; c++)
            CHECK(row[3 * x + c] == (float)bytes[3 * (255 - x) + c] * (2.0f / 255) - 1.0f);
    uint8_t mirrored[768];
    to = (pl_pixels){.data = mirrored, .w = 256, .h = 1, .channels = 3, .bytes = true};
    pl_view_write(&v, bytes, 768, &to, NULL);
    for (int x = 0; x < 256; x++) CHECK(memcmp(mirrored + 3 * x, bytes + 3 * (255 - x), 3) == 0);
}

TEST(data_folder_names_are_classes)
{
    char dir[512], path[600];
    float px[SIDE * SIDE * 3];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    if (!image_folder(dir, 12, 3, 48, 40, 0)) SKIP("libturbojpeg is not installed");
    snprintf(path, sizeof path, "%s/class1/0001.txt", dir);
    CHECK(image_write(path, (const uint8_t *)"a green field\n", 14));
    snprintf(path, sizeof path, "%s/metadata.jsonl", dir);
    static const char meta[] =
        "{\"file_name\": \"class0/0003.jpg\", \"text\": \"the sea\", \"weight\": 3}\n"
        "{\"file_name\": \"gone.jpg\", \"text\": \"nothing\"}\n";
    CHECK(image_write(path, (const uint8_t *)meta, strlen(meta)));
    pl_image_set_opts o = image_set_options(dir, SIDE);
    pl_image_set *s;
    CHECK_OK(pl_image_set_open(&o, &s));
    const pl_items *items = pl_image_set_items(s);
    CHECK_INT(items->n, 12);
    CHECK_INT(items->n_classes, 3);
    CHECK(strcmp(items->item[0].name, "class0/0000.jpg") == 0 &&
          strcmp(items->item[11].name, "class2/0011.jpg") == 0);
    pl_image_read r;
    CHECK_OK(read_one(s, 4, 0, px, &r));
    CHECK_INT(r.label, 1);
    CHECK(strcmp(r.caption, "a green field") == 0);
    CHECK_OK(read_one(s, 1, 0, px, &r));
    CHECK(strcmp(r.caption, "the sea") == 0 && r.label == 0);
    CHECK(pl_image_set_weighted(s));
    int hits = 0;
    for (int i = 0; i < 1400; i++) hits += pl_image_set_draw(s, i / 1400.0) == 1;
    CHECK_INT(hits, 300);
    pl_image_set_close(s);
    CHECK(image_write(path, (const uint8_t *)"{\"file_name\": \n", 15));
    CHECK_INT(pl_image_set_open(&o, &s), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "metadata.jsonl:1"));
}

TEST(data_split_by_hash_is_stable)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    mkdir(dir, 0777);
    for (int i = 0; i < 400; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%d.jpg", dir, i);
        CHECK(image_write(path, (const uint8_t *)"x", 1));
    }
    pl_items_opts o = {.path = dir, .eval_share = 0.25};
    pl_items *a, *b;
    CHECK_OK(pl_items_open(&o, &a));
    int n = 0;
    for (int64_t i = 0; i < a->n; i++) n += a->item[i].eval;
    CHECK_NEAR(n, 100, 30);
    char gone[600];
    snprintf(gone, sizeof gone, "%s/1.jpg", dir);
    unlink(gone);
    CHECK_OK(pl_items_open(&o, &b));
    int moved = 0;
    for (int64_t i = 0, j = 0; i < a->n; i++) {
        if (strcmp(a->item[i].name, "1.jpg") == 0) continue;
        moved += a->item[i].eval != b->item[j++].eval;
    }
    CHECK_INT(moved, 0);
    pl_items_close(a);
    pl_items_close(b);
}

TEST(data_bad_files_fail_or_are_replaced_and_listed)
{
    char dir[512], list[600], name[600];
    static float px[SIDE * SIDE * 3], again[SIDE * SIDE * 3];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    snprintf(list, sizeof list, "%s/list.txt", pl_test_dir());
    if (!image_folder(dir, 40, 1, 32, 32, 20)) SKIP("libturbojpeg is not installed");
    pl_image_set_opts o = image_set_options(dir, SIDE);
    pl_image_set *s;
    pl_image_read r;
    CHECK_OK(pl_image_set_open(&o, &s));
    CHECK_INT(read_one(s, 19, 0, px, &r), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "class0/0019.jpg") && strstr(pl_error_text(), "end early"));
    pl_image_set_close(s);
    o.on_bad = PL_BAD_QUARANTINE;
    o.quarantine = list;
    for (int run = 0; run < 2; run++) {
        CHECK_OK(pl_image_set_open(&o, &s));
        CHECK_INT(pl_image_set_bad_count(s), run ? 2 : 0);
        for (int64_t i = 0; i < 40; i++)
            CHECK_OK(read_one(s, i, (int)(i % 4), i == 19 ? again : px, &r));
        if (!run) CHECK_OK(read_one(s, 19, 0, px, &r));
        CHECK_INT(pl_image_set_bad_count(s), 2);
        CHECK(strstr(pl_image_set_bad(s, 0, name, sizeof name), "0019.jpg"));
        CHECK(strstr(pl_image_set_bad(s, 1, name, sizeof name), "0039.jpg"));
        CHECK(!pl_image_set_bad(s, 2, name, sizeof name));
        if (!run) CHECK(memcmp(px, again, sizeof px) == 0); /* the same replacement each time */
        pl_image_set_close(s);
    }
}

/* ---- tar ------------------------------------------------------------------------------------- */
TEST(data_tar_shards_are_read_as_one_set)
{
    char dir[512], path[600], index[608];
    uint8_t *tar = NULL, *jpeg;
    size_t n = 0, len;
    float px[SIDE * SIDE * 3];
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    mkdir(dir, 0777);
    uint8_t *rgb = image_made(32, 32, 1);
    if (!image_jpeg(rgb, 32, 32, &jpeg, &len)) SKIP("libturbojpeg is not installed");
    static const char json[] = "{\"prompt\": \"a dog\", \"label\": 2}";
    static const char pax[] = "32 path=../../../etc/a.long.jpg\n";
    tar_member(&tar, &n, "s/000.cls", '0', "4", 1);
    tar_member(&tar, &n, "s/000.jpg", '0', jpeg, len);
    tar_member(&tar, &n, "s/000.txt", '0', "two cats", 8);
    tar_member(&tar, &n, "s/link.jpg", '2', NULL, 0);
    tar_member(&tar, &n, "pax", 'x', pax, 32);
    tar_member(&tar, &n, "short.jpg", '0', jpeg, len);
    tar_member(&tar, &n, "../../../etc/passwd.jpg", '0', jpeg, len);
    tar_member(&tar, &n, "s/002.json", '0', json, strlen(json));
    tar_member(&tar, &n, "s/002.png", '0', jpeg, len / 2);
    tar_end(&tar, &n);
    snprintf(path, sizeof path, "%s/a.tar", dir);
    snprintf(index, sizeof index, "%s.idx", path);
    CHECK(image_write(path, tar, n));
    pl_image_set_opts o = image_set_options(dir, SIDE);
    o.on_bad = PL_BAD_SKIP;
    for (int run = 0; run < 3; run++) {
        pl_image_set *s;
        pl_image_read r;
        CHECK_OK(pl_image_set_open(&o, &s));
        CHECK(access(index, R_OK) == 0);
        CHECK_INT(pl_image_set_items(s)->n, 4);
        CHECK_OK(read_one(s, 0, 0, px, &r));
        CHECK(r.label == 4 && strcmp(r.caption, "two cats") == 0);
        CHECK_OK(read_one(s, 1, 0, px, &r));
        CHECK_OK(read_one(s, 2, 0, px, &r));
        CHECK_INT(pl_image_set_bad_count(s), 0);
        CHECK_INT(pl_image_set_items(s)->item[3].label, 2);
        CHECK(strcmp(pl_image_set_items(s)->item[3].caption, "a dog") == 0);
        CHECK_OK(read_one(s, 3, 0, px, &r));
        CHECK_INT(pl_image_set_bad_count(s), 1);
        pl_image_set_close(s);
        if (run == 1)
            CHECK(image_write(index, (const uint8_t *)"plimsoll tar index 1 1 1\n9 9", 28));
    }
    tar[100 + 512] ^= 1; /* bytes of a member may be anything; a header's are checked */
    tar[1024] ^= 1;
    CHECK(image_write(path, tar, n));
    unlink(index);
    pl_image_set *s;
    CHECK_INT(pl_image_set_open(&o, &s), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "no tar header at byte 1024"));
    free(tar);
    free(jpeg);
    free(rgb);
}

TEST(data_hostile_tar_files_are_refused)
{
    pl_tar t;
    pl_tar_member m;
    bool more;
    uint8_t *tar = NULL;
    size_t n = 0;
    tar_member(&tar, &n, "a.jpg", '0', "abc", 3);
    pl_tar_open_memory(tar, n - 512, &t); /* the data are missing */
    CHECK_INT(pl_tar_next(&t, &m, &more), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "ends before"));
    pl_tar_open_memory(tar, n, &t);
    CHECK_OK(pl_tar_next(&t, &m, &more));
    CHECK(more && m.bytes == 3 && m.offset == 512 && strcmp(m.name, "a.jpg") == 0);
    CHECK_OK(pl_tar_next(&t, &m, &more));
    CHECK(!more);
    free(tar);
}

/* bench/loader.sh makes its pictures here. */
TEST(data_images_are_made_for_the_loader_bench)
{
    const char *dir = getenv("PL_IMAGES_OUT");
    if (!dir) SKIP("PL_IMAGES_OUT is not set");
    CHECK(image_folder(dir, 64, 4, 512, 512, 0));
}
