/* blobs.c - generated pictures: bright discs (class 1) and, with three classes or more, blue bars
 * (class 2) on a dark background with noise, and their masks.
 *
 * `plimsoll generate segment/tiny --raw` writes them as folders of pictures and masks.
 */
#include "segment.h"

#include <plimsoll_events.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOBS = 3 };

static uint64_t seed_of(const pl_config *c, pl_subset subset, int64_t sample)
{
    return pl_sample_seed(0xB10B + (uint64_t)pl_config_int(c, "seed"), subset, sample);
}

/* The class of a place, x and y in units of the sides. */
static int class_at(uint64_t seed, int64_t classes, double x, double y)
{
    int at = 0;
    for (uint64_t i = 0; i < BLOBS; i++) {
        double r = 0.08 + 0.1 * pl_sample_uniform(seed, 4 * i);
        double cx = pl_sample_uniform(seed, 4 * i + 1), cy = pl_sample_uniform(seed, 4 * i + 2);
        bool bar = classes > 2 && i % 2;
        if (bar ? fabs(x - cx) < 2 * r && fabs(y - cy) < r / 2
                : (x - cx) * (x - cx) + (y - cy) * (y - cy) < r * r)
            at = bar ? 2 : 1;
    }
    return at;
}

/* A picture and its mask: rgb [h,w,3], 0 to 1, and classes [h,w]. */
static void draw(uint64_t seed, int64_t classes, int64_t h, int64_t w, float *rgb, int32_t *mask)
{
    static const double colour[3][3] = {{0.2, 0.2, 0.2}, {0.9, 0.8, 0.4}, {0.3, 0.4, 0.9}};
    for (int64_t i = 0; i < h * w; i++) {
        int k = class_at(seed, classes, ((double)(i % w) + 0.5) / (double)w,
                         ((double)(i / w) + 0.5) / (double)h);
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] =
                (float)(colour[k][c] +
                        0.2 * (pl_sample_uniform(seed, 64 + (uint64_t)(3 * i + c)) - 0.5));
        mask[i] = k;
    }
}

pl_status segment_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    const pl_config *c = data;
    pl_type t;
    float *image = pl_batch_input(batch, "image", &t);
    int32_t *mask = pl_batch_input(batch, "mask", NULL);
    int64_t size = t.dim[1] * t.dim[2];
    for (int k = 0; k < n; k++)
        draw(seed_of(c, subset, sample[k]), pl_config_int(c, "model.classes"), t.dim[1], t.dim[2],
             image + k * size * 3, mask + k * size);
    return PL_OK;
}

/* Writes bytes as DIR/PART/FOLDER/NUMBER.png. */
static pl_status save(const char *dir, const char *part, const char *folder, int64_t sample, int w,
                      int h, int channels, const uint8_t *pixels)
{
    char path[4096];
    const char *const levels[] = {part, folder};
    int at = snprintf(path, sizeof path - 128, "%s", dir);
    if (at < 0 || (size_t)at >= sizeof path - 128)
        return pl_fail(PL_ERR_IO, "%.100s...: the path is too long", dir);
    for (int i = 0; i < 2; i++) {
        at += snprintf(path + at, sizeof path - (size_t)at, "/%s", levels[i]);
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return pl_fail(PL_ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
    }
    snprintf(path + at, sizeof path - (size_t)at, "/%06lld.png", (long long)sample);
    return pl_png_save(path, w, h, channels, pixels);
}

pl_status segment_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir)
{
    int64_t h = pl_config_int(c, "height"), w = pl_config_int(c, "width");
    const char *part = subset == PL_SUBSET_TRAIN ? "train" : "eval";
    size_t size = (size_t)(h * w);
    float *rgb = malloc(3 * size * sizeof *rgb);
    int32_t *mask = malloc(size * sizeof *mask);
    uint8_t *bytes = malloc(4 * size);
    pl_status rc = PL_ERR_MEMORY;
    if (rgb && mask && bytes) {
        draw(seed_of(c, subset, sample), pl_config_int(c, "model.classes"), h, w, rgb, mask);
        for (size_t i = 0; i < 3 * size; i++) bytes[i] = (uint8_t)(255 * rgb[i] + 0.5f);
        for (size_t i = 0; i < size; i++) bytes[3 * size + i] = (uint8_t)mask[i];
        rc = save(dir, part, "images", sample, (int)w, (int)h, 3, bytes);
        if (rc == PL_OK) rc = save(dir, part, "masks", sample, (int)w, (int)h, 1, bytes + 3 * size);
    }
    free(rgb);
    free(mask);
    free(bytes);
    return rc;
}
