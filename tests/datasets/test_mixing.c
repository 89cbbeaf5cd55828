/* test_mixing.c - data.mixup and data.cutmix: batches of a run are mixed, the same for any number
 * of workers and micro-batches. */
#include "data/augment/mixing.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, SIDE = 16, ROW = 3 * SIDE * SIDE, STEP = 3 };

/* A whole batch of step STEP, from all its micro-batches. */
typedef struct seen {
    float image[BATCH][ROW], share[BATCH];
    int32_t label[BATCH], mixed[BATCH];
} seen;

static pl_status read_micro(pl_run *run, int64_t number, int64_t at, bool mixing, seen *s)
{
    pl_program *p = pl__train(run);
    size_t micro = (size_t)run->build->micro;
    PL_TRY(pl_prefetch_read(run, p, number));
    memcpy(s->image[at], pl_session_input(run->session, p, "image", NULL),
           micro * sizeof s->image[0]);
    memcpy(&s->label[at], pl_session_input(run->session, p, "label", NULL), micro * 4);
    if (!mixing) return PL_OK;
    memcpy(&s->mixed[at], pl_session_input(run->session, p, "label.mixed", NULL), micro * 4);
    memcpy(&s->share[at], pl_session_input(run->session, p, "label.share", NULL), micro * 4);
    return PL_OK;
}

static pl_status see(const char *const *keys, int n, bool mixing, seen *s)
{
    pl_run *run;
    PL_TRY(pl_run_open("classify/tiny", keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    int64_t parts = rc == PL_OK ? run->build->accumulate : 0;
    for (int64_t k = 0; k < parts && rc == PL_OK; k++)
        rc = read_micro(run, STEP * parts + k, k * BATCH / parts, mixing, s);
    pl_run_free(run);
    return rc;
}

#define KEYS                                                                                       \
 "side=16", "batch=4", "model.width=8", "model.depths=[1]", "network=vit_small", "model.heads=2",  \
     "model.patch=8"

/* Compares mixed batches with the unmixed one. */
static void check_mixed(const char *source, const char *mixup, const char *cutmix, double a,
                        double b)
{
    static const char *const more[][2] = {{"data.workers=0", "accumulate=1"},
                                          {"data.workers=3", "accumulate=1"},
                                          {"data.workers=1", "accumulate=2"}};
    static seen plain, got[3];
    const char *const unmixed[] = {KEYS, source, "data.workers=0"};
    CHECK_OK(see(unmixed, 9, false, &plain));
    for (int k = 0; k < 3; k++) {
        const char *const keys[] = {KEYS, source, mixup, cutmix, more[k][0], more[k][1]};
        memset(&got[k], 0, sizeof got[k]);
        CHECK_OK(see(keys, 12, true, &got[k]));
        CHECK(memcmp(&got[k], &got[0], sizeof got[0]) == 0);
    }
    pl_mixing m = pl_mixing_draw(a, b, 0, STEP);
    for (int i = 0; i < BATCH; i++) {
        int before = (i + BATCH - 1) % BATCH;
        seen *want = malloc(sizeof *want);
        CHECK(want);
        memcpy(want, &plain, sizeof plain);
        pl_pixels to = {.data = want->image[i], .w = SIDE, .h = SIDE, .channels = 3};
        double share = pl_mixing_apply(&m, &to, plain.image[before]);
        CHECK(share > 0.001 && share < 0.999);
        CHECK_NEAR(got[0].share[i], share, 1e-6);
        CHECK_INT(got[0].label[i], plain.label[i]);
        CHECK_INT(got[0].mixed[i], plain.label[before]);
        CHECK(memcmp(got[0].image[i], want->image[i], sizeof want->image[i]) == 0);
        free(want);
    }
}

TEST(mixing_of_generated_pictures_is_the_same_for_all_workers_and_micro_batches)
{
    check_mixed("data.samples=64", "data.mixup=0.4", "data.cutmix=0", 0.4, 0);
    check_mixed("data.samples=64", "data.mixup=0", "data.cutmix=1", 0, 1);
}

TEST(mixing_of_files_is_the_same_for_all_workers_and_micro_batches)
{
    char path[640];
    const char *dir = pl_test_path("pictures");
    if (pl_image_missing(PL_IMAGE_JPEG)) SKIP("libturbojpeg is not installed");
    CHECK(image_folder(dir, 12, 3, 40, 30, 0));
    snprintf(path, sizeof path, "data.path=%s", dir);
    check_mixed(path, "data.mixup=0.4", "data.cutmix=0", 0.4, 0);
    check_mixed(path, "data.mixup=0", "data.cutmix=1", 0, 1);
}

TEST(mixing_is_refused_where_there_is_no_label)
{
    pl_run *run;
    static const char *const keys[] = {"data.mixup=0.2"};
    CHECK_OK(pl_run_open("segment/tiny", keys, 1, &run));
    CHECK(pl_run_build(run) == PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "recipe segment has no label that can be mixed"), "%s",
              pl_error_text());
    pl_run_free(run);
}

/* RandAugment, RandomResizedCrop and Resize with CenterCrop give other batches, the same for all
 * workers; a side below the network's is refused. */
TEST(augment_keys_change_batches_the_same_way_for_all_workers)
{
    static const char *const ways[][2] = {{"data.rand_augment=2", "data.rand_augment_strength=15"},
                                          {"data.crop=resized", "data.flip=0.5"},
                                          {"data.crop=center", "data.resize_side=20"},
                                          {"data.crop=pixels", "data.resize_side=24"}};
    static seen plain, a, b;
    char path[640];
    const char *dir = pl_test_path("pictures");
    if (pl_image_missing(PL_IMAGE_JPEG)) SKIP("libturbojpeg is not installed");
    CHECK(image_folder(dir, 12, 3, 40, 30, 0));
    snprintf(path, sizeof path, "data.path=%s", dir);
    const char *const unchanged[] = {KEYS, path, "data.crop=center", "data.flip=0"};
    CHECK_OK(see(unchanged, 10, false, &plain));
    for (int k = 0; k < 4; k++) {
        const char *const one[] = {KEYS, path, ways[k][0], ways[k][1], "data.workers=0"};
        const char *const three[] = {KEYS, path, ways[k][0], ways[k][1], "data.workers=3"};
        memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
        CHECK_OK(see(one, 11, false, &a));
        CHECK_OK(see(three, 11, false, &b));
        CHECK(memcmp(&a, &b, sizeof a) == 0);
        CHECK_MSG(memcmp(a.image, plain.image, sizeof a.image) != 0, "%s %s", ways[k][0],
                  ways[k][1]);
    }
    const char *const small[] = {KEYS, path, "data.resize_side=12"};
    CHECK(see(small, 9, false, &a) == PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "data.resize_side=12 is less than the 16 pixels"));
}
