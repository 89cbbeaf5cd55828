/* test_buckets.c - batches of several image sizes: which bucket, in which order, through whole
 * runs. */
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/data/images/image_set.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- order ---------------------------------------------------------------------------------- */
static int64_t up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Every batch of every bucket appears once; after epoch e all batches that begin in it have
 * appeared. */
static void check_epochs(uint64_t seed, const pl_strata *s, int epochs)
{
    enum { MOST = 4096 };
    static uint8_t seen[8][MOST];
    memset(seen, 0, sizeof seen);
    int64_t number = 0, samples = 0, all = 0;
    for (int k = 0; k < s->n; k++) all += s->size[k];
    for (int64_t e = 1; e <= epochs; e++) {
        int64_t end = 0;
        for (int k = 0; k < s->n; k++) end += up(e * s->size[k], s->batch);
        for (; number < end; number++) {
            pl_stratum at = pl__stratum_at(seed, s, number);
            CHECK(at.bucket >= 0 && at.bucket < s->n && at.index >= 0 && at.index < MOST);
            CHECK_INT(seen[at.bucket][at.index]++, 0);
            samples += s->batch;
        }
        for (int k = 0; k < s->n; k++)
            for (int64_t i = 0; i < up(e * s->size[k], s->batch); i++) CHECK_INT(seen[k][i], 1);
        CHECK(samples >= e * all && samples < e * all + s->n * s->batch);
    }
}

TEST(buckets_take_every_sample_once_an_epoch_in_a_new_order)
{
    static const int64_t sizes[] = {10, 3, 0, 17, 1};
    pl_strata s = {sizes, 5, 4};

    for (uint64_t seed = 0; seed < 3; seed++) check_epochs(seed, &s, 60);
    s.batch = 1;
    check_epochs(5, &s, 20);
    s.batch = 64; /* larger than all others */
    check_epochs(5, &s, 200);
    s.batch = 2;
    /* two batches of each epoch: not the same order twice */
    int moved = 0, other = 0, from = 16 + 17;
    for (int64_t i = 0; i < 14; i++) {
        pl_stratum a = pl__stratum_at(1, &s, i), b = pl__stratum_at(2, &s, i);
        pl_stratum c = pl__stratum_at(1, &s, from + i);
        other += a.bucket != b.bucket || a.index != b.index;
        moved += a.bucket != c.bucket;
    }

    CHECK(moved > 2 && other > 5);
    CHECK(pl__stratum_at(1, &s, (int64_t)1 << 40).index > 1000); /* a distant batch, directly */
}

TEST(buckets_take_a_picture_by_its_nearest_shape)
{
    static pl_variant v[5] = {{.height = 64, .width = 64},
                              {.height = 48, .width = 80},
                              {.height = 80, .width = 48},
                              {.height = 32, .width = 32},
                              {.height = 128, .width = 128}};
    static pl_step_build b;

    b.variants = v;
    b.n_variants = 5;
    static pl_run r;
    r.build = &b;
    static const int wants[][3] = {{640, 640, 4}, {100, 100, 0}, {64, 64, 0},   {63, 64, 3},
                                   {20, 20, 3},   {800, 480, 1}, {480, 800, 2}, {3000, 100, 1},
                                   {50, 4000, 2}, {640, 600, 4}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        CHECK_MSG(pl__bucket_nearest(&r, wants[i][0], wants[i][1]) == wants[i][2], "%d x %d: %d",
                  wants[i][0], wants[i][1], pl__bucket_nearest(&r, wants[i][0], wants[i][1]));
}

/* ---- runs -------------------------------------------------------------------------------------
 */
enum { PICTURES = 29 };

/* A JPEG with 60,000 bytes of camera notes between its first two bytes and the size. */
static void add_notes(uint8_t **jpeg, size_t *n)
{
    enum { NOTES = 60000 };
    uint8_t *more = calloc(*n + NOTES + 2, 1), head[4] = {0xff, 0xe1, NOTES >> 8, NOTES & 255};
    memcpy(more, *jpeg, 2);
    memcpy(more + 2, head, 4);
    memcpy(more + 2 + NOTES + 2, *jpeg + 2, *n - 2);
    free(*jpeg);
    *jpeg = more;
    *n += NOTES + 2;
}

/* Pictures of three shapes, of one class; the brightness of a picture is its number. */
static bool pictures_made(const char *dir, bool weighted)
{
    static const int size[3][2] = {{40, 40}, {64, 36}, {36, 64}}; /* width, height */
    char path[512];
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/shapes", dir);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/metadata.jsonl", dir);
    FILE *f = weighted ? fopen(path, "w") : NULL;
    for (int i = 0; i < PICTURES; i++) {
        int w = size[i % 7 % 3][0], h = size[i % 7 % 3][1];
        uint8_t *rgb = malloc((size_t)w * (size_t)h * 3), *jpeg = NULL;
        size_t n = 0;
        memset(rgb, 8 * i + 4, (size_t)w * (size_t)h * 3);
        bool ok = image_jpeg(rgb, w, h, &jpeg, &n);
        if (ok && i == 1) add_notes(&jpeg, &n);
        snprintf(path, sizeof path, "%s/shapes/%02d.jpg", dir, i);
        ok = ok && image_write(path, jpeg, n);
        if (f)
            fprintf(f, "{\"file_name\": \"shapes/%02d.jpg\", \"weight\": %d}\n", i,
                    i == 3 ? 20 : 1);
        free(rgb);
        free(jpeg);
        if (!ok) return false;
    }
    if (f) fclose(f);
    return true;
}

static bool photo_made(void)
{
    return cli_run("${CC:-cc} -shared -fPIC -O1 -I include -o %s/photo.so tests/data/photo/photo.c",
                   pl_test_dir())
               .code == 0;
}

/* Number of the picture in row i of a batch, by its brightness; -1 when the row is not uniform. */
static int picture_of(const float *x, int64_t row)
{
    for (int64_t k = 1; k < row; k++)
        if (fabsf(x[k] - x[0]) > 0.02f) return -1;
    return (int)lrintf(((x[0] + 1) * 127.5f - 4) / 8);
}

static pl_status open_run(const char *set, const char *more, pl_run **run)
{
    char recipe[512], path[512];
    snprintf(recipe, sizeof recipe, "%s/photo.so", pl_test_dir());
    snprintf(path, sizeof path, "data.path=%s", set);
    const char *overrides[] = {path,
                               "data.buckets=[32x32, 24x40, 40x24]",
                               "data.eval_share=0",
                               "batch=4",
                               "data.workers=2",
                               more};
    PL_TRY(pl_run_open(recipe, overrides, 6, run));
    PL_TRY(pl_run_build(*run));
    return pl_run_start(*run);
}

/* Trains and reads the inputs: every batch has one size, every picture appears once per pass, in
 * the bucket of its aspect ratio. */
static void check_passes(const char *set, const char *more, int64_t parts, bool weighted)
{
    pl_run *r = NULL;
    pl_status rc = open_run(set, more, &r);
    CHECK_MSG(rc == PL_OK, "%s", pl_error_text());
    if (rc != PL_OK) {
        pl_run_free(r);
        return;
    }
    int count[PICTURES] = {0}, of_bucket[3] = {0};
    int64_t steps = 60;
    for (int64_t s = 0; s < steps; s++) {
        int bucket = pl_source_bucket(r, s);
        of_bucket[bucket]++;
        pl__variant_select(r, bucket);
        for (int64_t part = 0; part < parts; part++) {
            CHECK(pl_prefetch_read(r, pl__train(r), s * parts + part) == PL_OK);
            pl_type t;
            const float *x = pl_session_input(r->session, pl__train(r), "image", &t);
            CHECK(t.dim[1] == r->build->variants[bucket].height &&
                  t.dim[2] == r->build->variants[bucket].width);
            int64_t row = t.dim[1] * t.dim[2] * 3;
            for (int64_t i = 0; i < r->build->micro; i++) {
                int k = picture_of(x + i * row, row);
                CHECK(k >= 0 && k < PICTURES);
                if (k < 0 || k >= PICTURES) continue;
                CHECK_INT(k % 7 % 3, bucket);
                count[k]++;
            }
        }
    }
    /* 29 pictures, 13 of them square: 60 batches of 4 are a little more than eight passes. */
    for (int k = 0; !weighted && k < PICTURES; k++)
        CHECK_MSG(count[k] >= 7 && count[k] <= 10, "%d: %d", k, count[k]);
    int seen[3] = {0};
    for (int k = 0; k < PICTURES; k++) seen[k % 7 % 3] += count[k] > 0;
    if (weighted) CHECK(count[3] > 40 && of_bucket[0] > 20 && of_bucket[1] > 3 && of_bucket[2] > 3);
    CHECK(seen[1] > 4 && seen[2] > 4);
    pl_run_free(r);
}

TEST(buckets_fill_every_batch_from_one_bucket)
{
    char set[512];
    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    if (!pictures_made(set, false)) SKIP("libturbojpeg is not installed");
    CHECK(photo_made());
    check_passes(set, "seed=3", 1, false);
    check_passes(set, "accumulate=2", 2, false);
    snprintf(set, sizeof set, "%s/weighted", pl_test_dir());
    CHECK(pictures_made(set, true));
    check_passes(set, "seed=4", 1, true);
}

/* For every number of evaluation samples, each sample is in exactly one bucket. */
TEST(buckets_evaluate_every_sample_in_one_bucket)
{
    char set[512], recipe[512], path[512];

    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    if (!pictures_made(set, false)) SKIP("libturbojpeg is not installed");
    CHECK(photo_made());
    snprintf(recipe, sizeof recipe, "%s/photo.so", pl_test_dir());
    snprintf(path, sizeof path, "data.path=%s", set);
    const char *overrides[] = {path,
                               "data.buckets=[32x32, 24x40, 40x24]",
                               "data.eval_share=0.5",
                               "batch=4",
                               "eval.batches=2",
                               "data.workers=1"};
    pl_run *r = NULL;
    CHECK_OK(pl_run_open(recipe, overrides, 6, &r));
    CHECK_OK(pl_run_build(r));
    CHECK_OK(pl_run_start(r));
    int64_t size = pl_source_size(r, PL_SUBSET_EVAL);
    CHECK(size > 8 && size < 22);

    for (int64_t total = 1; total <= size; total++) {
        int64_t sum = 0;
        for (int k = 0; k < 3; k++) {
            int64_t n = pl_prefetch_eval_rows(r, k, total);
            sum += n;
            for (int64_t i = 0; i < n; i++) CHECK(pl__images_eval_at(r, k, i) < total);
        }
        CHECK_INT(sum, total);
    }
    pl_step_info info;
    for (int s = 0; s < 12; s++) {
        CHECK_OK(pl_run_step(r, &info));
        const pl_variant *v = &r->build->variants[pl_source_bucket(r, s)];
        CHECK(r->build->now == v && pl_run_train_program(r) == v->train);
    }
    pl_eval_info e;
    CHECK_OK(pl_run_eval(r, &e));
    CHECK_INT(e.samples, 8);
    CHECK(e.value[0] > 0 && e.value[0] < 10);
    pl_run_free(r);
}

#define BUCKETS                                                                                    \
 "cd %s && $P train ./photo.so data.path=set classes=2 'data.buckets=[32x32, 24x40, 40x24]' "      \
 "data.eval_share=0.3 data.flip=0.5 data.crop=random train.steps=14 --quiet "

TEST(buckets_train_to_the_same_bits_with_any_workers_and_after_a_resume)
{
    char set[512];
    if (!cli_bin()) SKIP("PL_BIN is not built");

    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    if (!pictures_made(set, false)) SKIP("libturbojpeg is not installed");
    CHECK(photo_made());
    cli_result r =
        cli_run(BUCKETS "--out a data.workers=0 eval.every=7 eval.batches=100", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run(BUCKETS "--out b data.workers=3 eval.every=7 eval.batches=100", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    r = cli_run("cd %s && cmp a/model.safetensors b/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    /* A run that was stopped in the middle of an epoch resumes with the same batches. */
    r = cli_run(BUCKETS "--out c train.steps=5", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    r = cli_run(BUCKETS "--out c", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s && cmp a/model.safetensors c/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    /* On a device with its own memory, the host reads ahead for another bucket while the device
     * works. */
    static const char *const ways[] = {"data.workers=0", "data.workers=2",
                                       "data.workers=2 accumulate=2"};
    for (int i = 0; i < 3; i++) {
        r = cli_run(BUCKETS "--out d%d device=apart %s eval.every=7 eval.batches=100",
                    pl_test_dir(), i, ways[i]);
        CHECK_MSG(r.code == 0, "%s", r.err);
    }
    r = cli_run(
        "cd %s && cmp a/model.safetensors d0/model.safetensors && cmp a/model.safetensors d1/model.safetensors",
        pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    r = cli_run(BUCKETS "--out e accumulate=2", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    r = cli_run("cd %s && cmp e/model.safetensors d2/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    r = cli_run(
        "cd %s && cmp a/model.safetensors b/model.safetensors && $P train ./photo.so data.path=set "
        "classes=2 data.buckets='[32x32, 24x40]' --out c train.steps=20",
        pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "data.buckets"), "%d: %s", r.code, r.err);
}

/* The plan lists every bucket, and its arena is as large as the largest bucket needs. */
TEST(buckets_plan_has_the_arena_of_the_largest_bucket)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    CHECK(photo_made());
    cli_result one =
        cli_run("cd %s && $P plan ./photo.so height=40 width=40 --json", pl_test_dir());
    const char *a = strstr(one.out, "\"arena_bytes\":");
    CHECK_MSG(one.code == 0 && a, "%s", one.err);

    long long alone = a ? atoll(a + 14) : 0;
    const char *kept = strstr(one.out, "\"keep_all_bytes\":");
    long long all = kept ? atoll(kept + 17) : 0;
    cli_result r = cli_run(
        "cd %s && $P plan ./photo.so 'data.buckets=[32x32, 40x40, 24x40]' --json", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    a = strstr(r.out, "\"arena_bytes\":");
    CHECK(a && atoll(a + 14) == alone);
    kept = strstr(r.out, "\"keep_all_bytes\":"); /* the plan that is shown is the largest one's */
    CHECK(kept && all > 0 && atoll(kept + 17) == all);
    CHECK_MSG(strstr(r.out, "{\"height\":24,\"width\":40,"), "%s", r.out);

    r = cli_run(
        "cd %s && $P plan ./photo.so 'data.buckets=[auto]' data.bucket_area=1100 data.bucket_step=8",
        pl_test_dir());
    CHECK_MSG(strstr(r.out, "24 x 40") && strstr(r.out, "32 x 32") && strstr(r.out, "40 x 24") &&
                  !strstr(r.out, "16 x"),
              "%s", r.out);

    static const char *const refused[][2] = {
        {"'data.buckets=[32x32, big]'", "\"big\" is not a size"},
        {"'data.buckets=[32x32, 24x40]' positions=true", "24x40: state \"positions\""},
        {"'data.buckets=[32x32, 24x40]' positions=true named=true",
         "24x40: it has state that other buckets do not have (positions24)"},
        {"'data.buckets=[auto]' data.bucket_step=64", "no size of at most 1024 pixels"},
        {"'data.buckets=[auto]' data.bucket_area=100000 data.bucket_step=1", "more than 32 sizes"},
        {"'data.buckets=[9999x8]'", "height"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        r = cli_run("cd %s && $P plan ./photo.so %s", pl_test_dir(), refused[i][0]);
        CHECK_MSG(r.code == 2 && strstr(r.err, refused[i][1]), "%s: %d %s", refused[i][0], r.code,
                  r.err);
    }
    r = cli_run("$P plan " CLI_SMALL "'data.buckets=[32x32]'");
    CHECK_MSG(r.code == 2 && strstr(r.err, "does not say which of its keys"), "%s", r.err);

    r = cli_run("cd %s && $P train ./photo.so 'data.buckets=[32x32]'", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "data.buckets needs images"), "%s", r.err);
}
