/* test_crop.c - views of pictures: torchvision's random crop, and the crop of evaluations. */
#include "data/augment/augment.h"
#include "tests/lib/test.h"

#include <math.h>

/* Areas and ratios are within their ranges and cover them; the crop lies on whole pixels inside
 * the image. */
TEST(crop_resized_draws_area_and_ratio_as_torchvision_does)
{
    enum { N = 4000, W = 300, H = 200 };
    const pl_augment a = {
        .crop = PL_CROP_RESIZED, .scale = {1, 1}, .area = {0.08, 1}, .ratio = {0.75, 4.0 / 3}};
    double sum = 0, wide = 0, least = 9, most = 0;
    for (int i = 0; i < N; i++) {
        pl_view v = pl_view_draw(&a, 7, 0, i, W, H, 1);
        double w = v.w * W, h = v.h * H, x = v.x * W, y = v.y * H;
        CHECK(fabs(w - rint(w)) < 1e-9 && fabs(x - rint(x)) < 1e-9 && fabs(y - rint(y)) < 1e-9);
        CHECK(x >= 0 && y >= 0 && x + w <= W + 1e-9 && y + h <= H + 1e-9);
        CHECK(v.closed && w / h > 0.7 && w / h < 1.45 && w * h >= 0.07 * W * H);
        sum += w * h / (W * H);
        wide += w > h;
        least = fmin(least, w / h);
        most = fmax(most, w / h);
    }

    /* With W/H = 1.5 areas above 8/9 fit no ratio; torchvision gives a mean of 0.391, and 57.5 % of
     * the parts are wide (20,000 draws). */
    CHECK_MSG(fabs(sum / N - 0.391) < 0.015, "mean area %g", sum / N);
    CHECK_MSG(fabs(wide / N - 0.575) < 0.03, "%g of the parts are wide", wide / N);
    CHECK(least < 0.78 && most > 1.28);
}

/* An image that is too long for every ratio gives its centre. */
TEST(crop_resized_of_a_long_image_is_its_middle)
{
    const pl_augment a = {
        .crop = PL_CROP_RESIZED, .scale = {1, 1}, .area = {0.9, 1}, .ratio = {0.75, 4.0 / 3}};
    pl_view v = pl_view_draw(&a, 1, 2, 3, 900, 90, 1);
    CHECK_NEAR(v.h, 1, 1e-12);
    CHECK_NEAR(v.w * 900, 120, 1e-9);
    CHECK_NEAR(v.x * 900, 390, 1e-9);
}

TEST(crop_of_evaluations_is_the_middle_or_all)
{
    pl_augment a = {.crop = PL_CROP_RESIZED, .center = 0.875};
    pl_view v = pl_view_center(&a, 512, 256, 1);
    CHECK_NEAR(v.w * 512, 224, 1e-9);
    CHECK_NEAR(v.h * 256, 224, 1e-9);
    CHECK_NEAR(v.x * 512, 144, 1e-9);

    a = (pl_augment){.crop = PL_CROP_STRETCH};
    v = pl_view_center(&a, 512, 256, 1);
    CHECK(v.x == 0 && v.y == 0 && v.w == 1 && v.h == 1);
}
