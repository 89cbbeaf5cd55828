/* picture.h - pictures of the experiments on real data: a file, a folder, one file out. */
#ifndef PL_BENCH_PICTURE_H
#define PL_BENCH_PICTURE_H

#include "data/image/image.h"
#include "data/image/resample.h"
#include "plimsoll_events.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RGB bytes, row by row. Freed with picture_free. */
typedef struct picture {
    int w, h;
    uint8_t *rgb;
} picture;

static inline void picture_free(picture *p)
{
    free(p->rgb);
    *p = (picture){0};
}

/* Returns room for w x h pixels, 4 bytes each (a decoder needs them). */
static inline pl_status picture_new(int w, int h, picture *out)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 4);
    if (!rgb) return pl_fail(PL_ERR_MEMORY, "no memory for a picture of %d x %d", w, h);
    *out = (picture){w, h, rgb};
    return PL_OK;
}

static inline pl_status picture_bytes(const char *path, void **bytes, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return pl_fail(PL_ERR_IO, "%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    *bytes = size > 0 ? malloc((size_t)size) : NULL;
    *n = *bytes ? fread(*bytes, 1, (size_t)size, f) : 0;
    fclose(f);
    if (*n && *n == (size_t)size) return PL_OK;
    free(*bytes);
    return pl_fail(PL_ERR_IO, "%s cannot be read", path);
}

/* Reads a picture with at least `rows` rows where it has them; 0: in its own size. */
static inline pl_status picture_read(const char *path, int rows, picture *out)
{
    void *bytes = NULL;
    size_t n = 0;
    pl_decoder *d = NULL;
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    pl_image_info info;
    int w, h;
    *out = (picture){0};
    pl_status rc = picture_bytes(path, &bytes, &n);
    if (rc != PL_OK) return rc;
    rc = pl_decoder_new(&d);
    if (rc == PL_OK) rc = pl_image_probe(d, bytes, n, &limits, &info);
    if (rc == PL_OK) {
        pl_image_scaled(&info, rows ? 1 : 0, rows, &w, &h);
        rc = picture_new(w, h, out);
    }
    if (rc == PL_OK) rc = pl_image_decode(d, bytes, n, &info, w, h, out->rgb);
    if (rc != PL_OK) picture_free(out), rc = pl__fail_prefix(rc, "%s", path);
    pl_decoder_free(d);
    free(bytes);
    return rc;
}

/* Resizes with Lanczos' filter. */
static inline pl_status picture_resize(const picture *p, int w, int h, picture *out)
{
    pl_status rc = picture_new(w, h, out);
    void *work = malloc(pl_rgb_resize_bytes(PL_FILTER_LANCZOS, p->w, p->h, w, h));
    if (rc == PL_OK && !work) rc = PL_ERR_MEMORY;
    if (rc == PL_OK)
        pl_rgb_resize(PL_FILTER_LANCZOS, p->rgb, p->w, p->h, (pl_crop_box){0, 0, p->w, p->h},
                      out->rgb, w, h, work);
    free(work);
    return rc;
}

/* Names of the pictures in a folder, sorted. */
typedef struct listing {
    char **name;
    int n;
} listing;

static inline int listing_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void listing_free(listing *l)
{
    for (int i = 0; i < l->n; i++) free(l->name[i]);
    free(l->name);
    *l = (listing){0};
}

static inline pl_status listing_read(const char *dir, listing *out)
{
    *out = (listing){0};
    DIR *d = opendir(dir);
    if (!d) return pl_fail(PL_ERR_IO, "%s: there is no such folder", dir);
    pl_status rc = PL_OK;
    for (struct dirent *e; rc == PL_OK && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.' || !dot || !strstr(".png.jpg.webp", dot)) continue;
        char **more = realloc(out->name, (size_t)(out->n + 1) * sizeof *more);
        if (more) out->name = more;
        char *copy = more ? strdup(e->d_name) : NULL;
        if (copy)
            out->name[out->n++] = copy;
        else
            rc = PL_ERR_MEMORY;
    }
    closedir(d);
    if (rc == PL_OK && !out->n) rc = pl_fail(PL_ERR_DATA, "%s has no pictures", dir);
    if (out->n) qsort(out->name, (size_t)out->n, sizeof *out->name, listing_order);
    return rc;
}

/* Reads picture i of a folder. */
static inline pl_status listing_picture(const char *dir, const listing *l, int i, int rows,
                                        picture *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, l->name[i]);
    return picture_read(path, rows, out);
}

/* Random numbers as functions of a counter (splitmix64), in [0,1). */
static inline double picture_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

#endif
