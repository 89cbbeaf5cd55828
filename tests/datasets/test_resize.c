/* test_resize.c - resizing of pictures: against its definition and against Pillow; upscaled
 * versions beside a picture. */
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static double lanczos(double x)
{
    const double pi = acos(-1);
    if (fabs(x) >= 3) return 0;
    return fabs(x) < 1e-12 ? 1 : 3 * sin(pi * x) * sin(pi * x / 3) / (pi * pi * x * x);
}

/* The definition in doubles: three lobes as wide as the scale, with weights that sum to one. */
static double reference(const uint8_t *src, int n, int step, double from, double scale, int i)
{
    double unit = scale > 1 ? scale : 1, centre = from + (i + 0.5) * scale, sum = 0, total = 0;
    for (int k = 0; k < n; k++) {
        double v = lanczos((k + 0.5 - centre) / unit);
        sum += v * src[k * step];
        total += v;
    }
    double v = sum / total;
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* Equal columns, then equal rows test each pass separately: down, up, and a part. */
TEST(resize_matches_lanczos)
{
    enum { SW = 57, MOST = 160 };
    static const struct {
        pl_crop_box box;
        int w, h;
    } cases[] = {
        {{0, 0, 57, 57}, 13, 9}, {{0, 0, 57, 57}, 160, 131}, {{3.25, 1.5, 50.75, 56}, 40, 20}};
    static uint8_t src[SW * SW * 3];
    uint8_t *dst = malloc((size_t)MOST * MOST * 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int w = cases[i].w, h = cases[i].h;
        pl_crop_box box = cases[i].box;
        void *work = malloc(pl_rgb_resize_bytes(PL_FILTER_LANCZOS, SW, SW, w, h));
        for (int rows = 0; rows < 2; rows++) {
            for (int y = 0; y < SW; y++)
                for (int x = 0; x < SW; x++)
                    for (int c = 0; c < 3; c++)
                        src[3 * (y * SW + x) + c] = (uint8_t)((rows ? y : x) * (37 + c) % 251);
            pl_rgb_resize(PL_FILTER_LANCZOS, src, SW, SW, box, dst, w, h, work);
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    double want = rows
                                      ? reference(src, SW, SW * 3, box.y0, (box.y1 - box.y0) / h, y)
                                      : reference(src, SW, 3, box.x0, (box.x1 - box.x0) / w, x);
                    CHECK_NEAR(dst[3 * (y * w + x)], want, 0.51);
                }
        }
        free(work);
    }
    free(dst);
}

/* ---- Pillow ------------------------------------------------------------------------------ */
typedef struct job {
    int sw, sh, w, h;
    pl_crop_box box;
} job;

static const job jobs[] = {
    {64, 48, 16, 16, {0, 0, 64, 48}},        {64, 48, 128, 96, {0, 0, 64, 48}},
    {33, 71, 48, 32, {0, 0, 33, 71}},        {200, 150, 31, 17, {0, 0, 200, 150}},
    {97, 97, 97, 40, {0, 0, 97, 97}},        {97, 97, 40, 97, {0, 0, 97, 97}},
    {120, 90, 50, 50, {10.5, 3.25, 99, 81}}, {17, 5, 256, 256, {0, 0, 17, 5}},
    {640, 3, 7, 1, {0, 0, 640, 3}},          {300, 300, 296, 304, {0, 0, 300, 300}},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* Noise in which every ninth pixel is black or white, so that the lobes exceed both ends of the
 * range. */
static uint8_t *noise(int w, int h)
{
    uint64_t state = (uint64_t)(w * 1000 + h);
    uint8_t *p = malloc((size_t)w * (size_t)h * 3);
    for (int i = 0; p && i < w * h * 3; i++) {
        p[i] = (uint8_t)(127.5 + 127.5 * pl_test_noise(&state));
        if (i / 3 % 9 == 0) p[i] = i / 27 % 2 ? 255 : 0;
    }
    return p;
}

static const char script[] =
    "import sys, json\n"
    "from PIL import Image\n"
    "d = sys.argv[1]\n"
    "for k, j in enumerate(json.load(open(d + '/jobs.json'))):\n"
    "    src = Image.frombytes('RGB', (j[0], j[1]), open(f'{d}/{k}.src', 'rb').read())\n"
    "    for name, f in (('lanczos', Image.LANCZOS), ('triangle', Image.BILINEAR)):\n"
    "        wide = src.resize((j[2], j[1]), f, box=(j[4], 0, j[6], j[1]))\n"
    "        open(f'{d}/{k}.{name}', 'wb').write(wide.resize((j[2], j[3]), f, box=(0, j[5], j[2], j[7])).tobytes())\n";

static bool write_jobs(const char *d)
{
    char path[512], text[4096] = "[";
    size_t n = 1;
    for (int k = 0; k < N_JOBS; k++) {
        const job *j = &jobs[k];
        n +=
            (size_t)snprintf(text + n, sizeof text - n, "%s[%d,%d,%d,%d,%g,%g,%g,%g]", k ? "," : "",
                             j->sw, j->sh, j->w, j->h, j->box.x0, j->box.y0, j->box.x1, j->box.y1);
        uint8_t *src = noise(j->sw, j->sh);
        snprintf(path, sizeof path, "%s/%d.src", d, k);
        bool ok = src && image_write(path, src, (size_t)j->sw * (size_t)j->sh * 3);
        free(src);
        if (!ok) return false;
    }
    snprintf(text + n, sizeof text - n, "]");
    snprintf(path, sizeof path, "%s/jobs.json", d);
    if (!cli_write(path, text)) return false;
    snprintf(path, sizeof path, "%s/pil.py", d);
    return cli_write(path, script);
}

/* Differences of a job from Pillow: the largest, and their number; -1 when there is nothing to
 * compare. */
static int differ(const char *d, int k, bool is_lanczos, int *many)
{
    const job *j = &jobs[k];
    pl_filter f = is_lanczos ? PL_FILTER_LANCZOS : PL_FILTER_TRIANGLE;
    size_t n = (size_t)j->w * (size_t)j->h * 3;
    char path[512];
    snprintf(path, sizeof path, "%s/%d.%s", d, k, is_lanczos ? "lanczos" : "triangle");
    uint8_t *src = noise(j->sw, j->sh), *got = malloc(n), *want = malloc(n);
    void *work = malloc(pl_rgb_resize_bytes(f, j->sw, j->sh, j->w, j->h));
    FILE *in = fopen(path, "rb");
    int most = in && fread(want, 1, n, in) == n ? 0 : -1;
    if (in) fclose(in);
    pl_rgb_resize(f, src, j->sw, j->sh, j->box, got, j->w, j->h, work);
    *many = 0;
    for (size_t i = 0; most >= 0 && i < n; i++) {
        int by = abs(got[i] - want[i]);
        *many += by != 0;
        if (by > most) most = by;
    }
    free(src);
    free(got);
    free(want);
    free(work);
    return most;
}

/* Equal to the byte. Pillow resizes the width first here: versions that start with the height
 * where that is less work round, and clip, in another order. */
TEST(resize_matches_pillow_to_the_byte)
{
    const char *d = pl_test_dir();
    WANT_PYTHON(python, "PIL");
    CHECK(write_jobs(d));
    cli_result r = cli_run("%s %s/pil.py %s", python, d, d);

    CHECK_MSG(r.code == 0, "%s", r.err);
    for (int k = 0; k < N_JOBS; k++)
        for (int lobes = 0; lobes < 2; lobes++) {
            int many, most = differ(d, k, lobes, &many);
            CHECK_MSG(most == 0, "%d x %d to %d x %d, %s: %d numbers differ, by %d at most",
                      jobs[k].sw, jobs[k].sh, jobs[k].w, jobs[k].h, lobes ? "Lanczos" : "triangle",
                      many, most);
        }
}

/* ---- larger versions --------------------------------------------------------------------- */
static bool write_png(const char *d, const char *name, int side, uint8_t grey)
{
    char path[512];
    uint8_t *bytes, *px = malloc((size_t)side * (size_t)side * 3);
    size_t n;
    if (!px) return false;
    memset(px, grey, (size_t)side * (size_t)side * 3);
    snprintf(path, sizeof path, "%s/%s", d, name);
    bool ok =
        image_png(px, side, side, 2, 8, side, side, &bytes, &n) && image_write(path, bytes, n);
    free(bytes);
    free(px);
    return ok;
}

static bool write_webp(const char *d, const char *name, int side, uint8_t grey)
{
    char path[512];
    uint8_t *bytes = NULL, *px = malloc((size_t)side * (size_t)side * 3);
    size_t n;
    if (!px) return false;
    memset(px, grey, (size_t)side * (size_t)side * 3);
    bool ok = image_webp(px, side, side, &bytes, &n);
    snprintf(path, sizeof path, "%s/%s", d, name);
    ok = ok && image_write(path, bytes, n);
    free(bytes);
    free(px);
    return ok;
}

/* The first bytes of two outputs of a sample. */
static pl_status two_sizes(pl_image_set *s, int64_t sample, uint8_t *small, uint8_t *large)
{
    static uint8_t a[16 * 16 * 3], b[64 * 64 * 3];
    pl_pixels to[2] = {{.data = b, .w = 64, .h = 64, .channels = 3, .bytes = true},
                       {.data = a, .w = 16, .h = 16, .channels = 3, .bytes = true}};
    pl_image_read r = {.sample = sample, .to = to, .n_to = 2};
    PL_TRY(pl_image_set_read(s, &r));
    *small = a[0];
    *large = b[0];
    return PL_OK;
}

TEST(resize_reads_upscaled_versions_of_a_picture)
{
    const char *d = pl_test_dir();
    pl_image_set *s;
    uint8_t small, large;
    char path[512];
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");
    CHECK(write_png(d, "a.png", 32, 10) && write_png(d, "b.png", 32, 20) &&
          write_png(d, "c.png", 64, 30));
    if (!write_webp(d, "ups_a.webp", 64, 110)) SKIP("no encoder of WebP");
    CHECK(write_webp(d, "ups_c.webp", 128, 130) && write_webp(d, "ups_alone.webp", 64, 40));
    pl_image_set_opts o = image_set_options(d, 64);
    o.items.larger = "ups_";
    CHECK_OK(pl_image_set_open(&o, &s));

    CHECK_INT(pl_image_set_size(s, false), 4); /* a, b, c, and one that belongs to none */
    static const uint8_t want[4][2] = {{10, 110}, {20, 20}, {30, 30}, {40, 40}};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(two_sizes(s, i, &small, &large));
        CHECK_MSG(small == want[i][0] && large == want[i][1], "%d: %d and %d", i, small, large);
    }
    pl_image_set_close(s);

    /* without the prefix all are separate pictures */
    o.items.larger = NULL;
    CHECK_OK(pl_image_set_open(&o, &s));
    CHECK_INT(pl_image_set_size(s, false), 6);
    pl_image_set_close(s);

    /* a bad upscaled version is reported with its name, and counts as a bad picture */
    snprintf(path, sizeof path, "%s/ups_a.webp", d);
    CHECK(image_write(path, (const uint8_t *)"RIFF\x10\0\0\0WEBPVP8 xxxxyyyy", 24));
    o.items.larger = "ups_";
    CHECK_OK(pl_image_set_open(&o, &s));
    CHECK_INT(two_sizes(s, 0, &small, &large), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "a.png") && strstr(pl_error_text(), "ups_a.webp"), "%s",
              pl_error_text());

    CHECK_OK(two_sizes(s, 1, &small, &large));
    pl_image_set_close(s);
}

/* Through the recipe: its two resolutions read the two files; with data.upscaled=false or tar
 * files they do not. */
TEST(resize_in_a_recipe_reads_the_file_of_each_resolution)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");
    CHECK(cli_run("mkdir -p %s/p", d).code == 0);
    char folder[512];
    snprintf(folder, sizeof folder, "%s/p", d);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.png", i);
        CHECK(write_png(folder, name, 16, (uint8_t)(40 * i)));
        snprintf(name, sizeof name, "ups_%d.webp", i);
        if (!write_webp(folder, name, 32, (uint8_t)(200 - 40 * i))) SKIP("no encoder of WebP");
    }
#define RUN                                                                                               \
 "$P train fluxflow/tiny image=32 'resolutions=[16]' gan.on=false lpips.on=false batch=2 data.path=%s/p " \
 "data.eval_share=0 train.steps=2 train.log_every=1 --json "
    char loss[4][64];
    static const char *const how[] = {"data.upscaled=true", "data.upscaled=false",
                                      "data.resize=triangle data.upscaled=true",
                                      "data.upscaled=true"};
    for (int i = 0; i < 4; i++) {
        /* the same samples, enlarged from the pictures themselves */
        if (i == 3) CHECK(cli_run("rm %s/p/ups_*", d).code == 0);
        cli_result r = cli_run(RUN "%s", d, how[i]);
        const char *at = strstr(r.out, "\"event\":\"step\"");
        at = at ? strstr(at, "\"loss\":") : NULL;
        CHECK_MSG(r.code == 0 && at, "%s %s", r.err, r.out);
        snprintf(loss[i], sizeof loss[i], "%.20s", at);
    }
    CHECK_MSG(strcmp(loss[0], loss[1]) != 0 && strcmp(loss[0], loss[3]) != 0, "%s", loss[0]);
    CHECK_MSG(strcmp(loss[0], loss[2]) == 0, "one colour is scaled alike: %s and %s", loss[0],
              loss[2]);
#undef RUN
}
