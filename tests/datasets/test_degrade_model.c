/* test_degrade_model.c - degradation without a codec: the model of JPEG, values between bytes. */
#include "data/image/degrade.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

/* Numbers of the same formulas in PyTorch, in f64: a picture whose sides are not whole blocks, with
 * qualities below and above 50 that are no integers. */
TEST(degrade_jpeg_model_matches_pytorch)
{
    enum { W = 37, H = 21, N = W * H * 3, VALUES = 8 };
    static const int at[VALUES] = {0, 1, 2, 500, 1111, 1700, 2329, 2330};
    static const struct {
        double quality, value[VALUES], mean;
    } want[] = {
        {30,
         {0.621726, 0.621726, 0.621726, 0.717530, 0.720925, 0.631500, 0.705470, 0.705470},
         0.5026047},
        {61.7,
         {0.615144, 0.615144, 0.615144, 0.760537, 0.707578, 0.565640, 0.826786, 0.826786},
         0.5011636},
        {92.25,
         {0.609944, 0.612563, 0.634213, 0.713119, 0.660619, 0.584808, 0.821898, 0.821898},
         0.5007829},
    };
    static float px[N];
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        double mean = 0;
        for (int i = 0; i < N; i++)
            px[i] = (float)fmin(fmax(0.5 + 0.4 * sin(0.37 * i) + 0.1 * sin(0.011 * i), 0), 1);
        pl_jpeg_model(px, W, H, want[k].quality);
        for (int i = 0; i < N; i++) mean += (double)px[i] / N;
        for (int i = 0; i < VALUES; i++) CHECK_NEAR((double)px[at[i]], want[k].value[i], 2e-6);
        CHECK_NEAR(mean, want[k].mean, 1e-6);
    }
}

/* A degraded picture has more values than 8 bits have, unless it is rounded to them. Pictures are
 * not resized back here: the factor is 1. */
TEST(degrade_rounds_to_8_bits_on_request)
{
    enum { W = 32, H = 32, N = W * H * 3 };
    static float bad[N];
    uint8_t *rgb = image_made(W, H, 3);
    for (int bytes = 0; bytes < 2; bytes++) {
        pl_degrade o = pl_degrade_stablesr();
        pl_degrader *d;
        int between = 0;
        o.bytes = bytes;
        o.factor = 1;
        CHECK_OK(pl_degrader_new(&o, W, H, &d));
        CHECK_OK(pl_degrader_run(d, (pl_image_key){5, 1, 2}, rgb, NULL, bad));
        pl_degrader_free(d);
        for (int i = 0; i < N; i++) {
            double x = 255 * (double)bad[i];
            between += fabs(x - rint(x)) > 1e-3;
        }
        CHECK_MSG(bytes ? between == 0 : between > N / 2, "%d of %d", between, N);
    }
    free(rgb);
}
