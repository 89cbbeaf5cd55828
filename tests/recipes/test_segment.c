/* test_segment.c - the segment recipe on folders of pictures and masks through the command line. */
#include "base/sys.h"
#include "data/image/image.h"
#include "plimsoll_events.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#define IN   "cd %s && "
#define TINY "segment/tiny height=16 width=16 eval.every=0 --quiet "
#define MAKE                                                                                       \
 "$P generate segment/tiny height=16 width=16 --raw --out set --samples 40 --eval-samples 8 --quiet "

static double metric(const char *text, const char *name)
{
    json_t *j = json_loads(text, 0, NULL);
    double x = json_number_value(json_object_get(json_object_get(j, "metrics"), name));
    json_decref(j);
    return x;
}

/* Trained on a folder, the network finds the shapes; scored with its own predictions as masks,
 * it is right at every pixel. */
TEST(segment_learns_a_folder_and_its_masks_are_its_predictions)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN MAKE "&& $P train " TINY "data.path=set --out run train.steps=80", d), 0,
              "");

    cli_result r = cli_run(IN "$P eval run --json", d);
    CHECK_MSG(r.code == 0 && metric(r.out, "iou") > 0.5, "%s%s", r.out, r.err);
    CHECK_RUN(cli_run(IN "mkdir -p again/eval && cp -r set/eval/images again/eval/images && "
                         "$P predict run --input set/eval/images --out again/eval/masks --quiet",
                      d),
              0, "");

    r = cli_run(IN "$P eval run data.path=again --json", d);
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
    CHECK_NEAR(metric(r.out, "accuracy"), 1, 1e-6);
}

/* Writes a grey PNG of w x h with one value, and a second value in its right half. */
static void write_mask(const char *path, int w, int h, int left, int right)
{
    char full[700];
    uint8_t pixels[64 * 64];
    for (int i = 0; i < w * h; i++) pixels[i] = (uint8_t)(i % w < w / 2 ? left : right);
    snprintf(full, sizeof full, "%s/%s", pl_test_dir(), path);
    if (pl_png_save(full, w, h, 1, pixels) != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "%s", pl_error_text());
}

/* Reads the numbers of a mask of at most 40 x 24 pixels; out has room for 4 bytes per pixel. */
static bool read_mask(const char *path, uint8_t *out, int *w, int *h)
{
    char full[700], *bytes;
    size_t n;
    pl_decoder *d;
    pl_image_info info = {0};
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    snprintf(full, sizeof full, "%s/%s", pl_test_dir(), path);
    if (pl_sys_read_file(full, 1 << 20, &bytes, &n) != PL_OK) return false;
    bool ok = pl_decoder_new(&d) == PL_OK && pl_image_probe(d, bytes, n, &limits, &info) == PL_OK &&
              info.width * info.height <= 40 * 24 &&
              pl_image_indices(d, bytes, n, &info, out) == PL_OK;
    pl_decoder_free(d);
    pl_sys_free(bytes);
    *w = info.width;
    *h = info.height;
    return ok;
}

/* Predicted masks have the size of their picture and the numbers of data.mask_values. All
 * training pictures are flipped: if masks were not flipped too, the network would learn the
 * opposite. */
TEST(segment_masks_have_the_size_of_the_picture_and_the_users_numbers)
{
    const char *d = pl_test_dir();
    WANT_BIN();

    CHECK_RUN(cli_run(IN "mkdir -p set/images/deep set/masks/deep", d), 0, "");
    for (int i = 0; i < 4; i++) {
        char image[64], mask[64];
        snprintf(image, sizeof image, "set/images/deep/%d.png", i);
        snprintf(mask, sizeof mask, "set/masks/deep/%d.png", i);
        write_mask(image, 40, 24, 20, 220);
        write_mask(mask, 40, 24, 0, 255);
    }
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set model.classes=2 train.steps=1", d), 5,
              "the masks have no other class than the first (values of classes: 0, 1)");
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set model.classes=2 train.steps=1 "
                         "'data.mask_values=[0, 128]'",
                      d),
              5, "the masks have no other class than the first (values of classes: 0, 128)");
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set model.classes=2 data.flip=1 --out run "
                         "'data.mask_values=[0, 255]' train.steps=40 && "
                         "$P predict run --input set/images --out got --quiet",
                      d),
              0, "");
    uint8_t want[40 * 24 * 4], got[40 * 24 * 4];
    int off = 0, w, h;
    CHECK(read_mask("set/masks/deep/0.png", want, &w, &h) && w == 40 && h == 24);
    CHECK(read_mask("got/deep/0.png", got, &w, &h) && w == 40 && h == 24);

    for (int i = 0; i < 40 * 24; i++) {
        off += got[i] != want[i];
        CHECK_MSG(got[i] == 0 || got[i] == 255, "pixel %d is %d", i, got[i]);
    }
    CHECK_MSG(off <= 40 * 24 / 10, "%d of %d pixels differ", off, 40 * 24);
}

static const uint8_t *stripe(void *row, int y)
{
    memset(row, y / 9 % 256, 4000);
    return row;
}

/* A mask is written row by row: the picture's size is not in the memory of the prediction. */
TEST(segment_predicts_large_pictures_in_the_memory_of_small_ones)
{
    const char *d = pl_test_dir();
    char path[700];
    uint8_t row[4000], small[16 * 16] = {0};
    double peak[2] = {0};
    WANT_BIN();

    snprintf(path, sizeof path, "%s/small.png", d);
    CHECK_OK(pl_png_save(path, 16, 16, 1, small));
    snprintf(path, sizeof path, "%s/large.png", d);
    CHECK_OK(pl_png_save_rows(path, 4000, 2500, 1, stripe, row));
    CHECK_RUN(cli_run(IN MAKE "&& $P train " TINY "data.path=set train.steps=1 --out run", d), 0,
              "");
    for (int i = 0; i < 2; i++) {
        cli_result r = cli_run(IN "$P predict run --input %s.png --out got --json memory=60MB", d,
                               i ? "large" : "small");
        json_t *j = json_loads(r.out, 0, NULL);
        peak[i] = json_number_value(json_object_get(j, "peak_used_bytes"));
        json_decref(j);
        CHECK_MSG(r.code == 0 && peak[i] > 0, "%d %s%s", r.code, r.out, r.err);
    }

    CHECK_MSG(peak[1] < peak[0] + 4e6, "%.1f MB for 16 x 16, %.1f MB for 4000 x 2500",
              peak[0] / 1e6, peak[1] / 1e6);
    /* A file that cannot be written says why, and leaves nothing. */
    CHECK_RUN(cli_run(IN "rm -r got; trap '' XFSZ; ulimit -f 8; "
                         "$P predict run --input large.png --out got",
                      d),
              1, "got/large.png: File too large");
    CHECK_RUN(cli_run(IN "ls -d got", d), 2, "");
}

TEST(segment_reports_bad_masks)
{
    const char *d = pl_test_dir();
    WANT_BIN();

    CHECK_RUN(cli_run(IN MAKE, d), 0, "");
    CHECK_RUN(
        cli_run(IN "mv set/train/masks/000003.png old.png; $P train " TINY "data.path=set", d), 5,
        "000003.png has no mask");
    write_mask("set/train/masks/000003.png", 8, 16, 0, 1);
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set train.steps=20", d), 5,
              "the mask has 8 x 16 pixels, its picture 16 x 16");
    write_mask("set/train/masks/000003.png", 16, 16, 0, 7);
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set train.steps=20", d), 5,
              "data.mask_values lists the value of each class (now 0, 1, 2)");
    CHECK_RUN(cli_run(IN "cp set/train/images/000003.png set/train/masks/000003.png; "
                         "$P train " TINY "data.path=set train.steps=20",
                      d),
              5, "masks have one number per pixel");
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set 'data.mask_values=[0, 1]'", d), 2,
              "data.mask_values has 2 numbers, model.classes is 3");
    CHECK_RUN(cli_run(IN "$P train " TINY "data.path=set/train/masks", d), 5,
              "pictures are in images/ and their masks in masks/");
    CHECK_RUN(cli_run(IN "$P plan segment/tiny height=30", d), 2, "multiples of 4");
}
