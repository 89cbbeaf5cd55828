/* shapes.c - generated pictures: a disc, a square or a triangle, blue or red, of any size at any
 * place on a grey background with noise. Class = colour and shape, in the order of their names.
 *
 * `plimsoll generate classify/tiny --raw` writes them as a folder of class folders.
 */
#include "classify.h"

#include <plimsoll_events.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const class_name[CLASSIFY_SHAPES] = {"blue-disc", "blue-square", "blue-triangle",
                                                        "red-disc",  "red-square",  "red-triangle"};

typedef struct picture {
    uint64_t seed;
    int label;
    double x, y, r; /* centre and half size, in units of the side */
} picture;

static picture picture_of(const pl_config *c, pl_subset subset, int64_t sample)
{
    uint64_t seed = pl_sample_seed(0x5A9E + (uint64_t)pl_config_int(c, "seed"), subset, sample);
    picture p = {.seed = seed, .label = (int)(sample % CLASSIFY_SHAPES)};
    p.r = 0.15 + 0.15 * pl_sample_uniform(seed, 0);
    p.x = p.r + (1 - 2 * p.r) * pl_sample_uniform(seed, 1);
    p.y = p.r + (1 - 2 * p.r) * pl_sample_uniform(seed, 2);
    return p;
}

static bool inside(const picture *p, double x, double y)
{
    double dx = (x - p->x) / p->r, dy = (y - p->y) / p->r;
    int shape = p->label % 3;
    if (shape == 0) return dx * dx + dy * dy < 1;
    if (shape == 1) return fabs(dx) < 0.9 && fabs(dy) < 0.9;
    return dy < 1 && dy > -1 && fabs(dx) < (dy + 1) / 2;
}

/* Colour channel `k` of a pixel, 0 to 1. */
static double value_at(const picture *p, int64_t side, int64_t i, int64_t j, int k)
{
    double noise = 0.1 * (pl_sample_uniform(p->seed, 8 + (uint64_t)((i * side + j) * 3 + k)) - 0.5);
    double y = ((double)i + 0.5) / (double)side, x = ((double)j + 0.5) / (double)side;
    if (!inside(p, x, y)) return 0.5 + noise;
    int bright = p->label < 3 ? 2 : 0;
    return (k == bright ? 0.85 : 0.2) + noise;
}

pl_status classify_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    const pl_config *c = data;
    pl_type type;
    float *image = pl_batch_input(batch, "image", &type);
    int32_t *label = pl_batch_input(batch, "label", NULL);
    for (int s = 0; s < n; s++) {
        picture p = picture_of(c, subset, sample[s]);
        int64_t side = type.dim[1];
        float *to = image + s * side * side * 3;
        for (int64_t i = 0; i < side * side * 3; i++)
            to[i] = (float)value_at(&p, side, i / 3 / side, i / 3 % side, (int)(i % 3));
        if (label) label[s] = p.label;
    }
    return PL_OK;
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

pl_status classify_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir)
{
    char path[4096];
    int64_t side = pl_config_int(c, "side");
    picture p = picture_of(c, subset, sample);
    int at = snprintf(path, sizeof path - 64, "%s/%s", dir,
                      subset == PL_SUBSET_TRAIN ? "train" : "eval");
    if (at < 0 || (size_t)at >= sizeof path - 64)
        return pl_fail(PL_ERR_IO, "%.100s...: the path is too long", dir);
    bool made = make_folder(path);
    at += snprintf(path + at, sizeof path - (size_t)at, "/%s", class_name[p.label]);
    if (!made || !make_folder(path))
        return pl_fail(PL_ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
    snprintf(path + at, sizeof path - (size_t)at, "/%06lld.png", (long long)sample);
    uint8_t *rgb = malloc((size_t)(side * side * 3));
    if (!rgb) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < side * side * 3; i++)
        rgb[i] =
            (uint8_t)(255 * value_at(&p, side, i / 3 / side, i / 3 % side, (int)(i % 3)) + 0.5);
    pl_status rc = pl_png_save(path, (int)side, (int)side, 3, rgb);
    free(rgb);
    return rc;
}
