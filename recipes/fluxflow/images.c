/* images.c - generated pictures: a lit ground, some soft-edged shapes, a fine texture; and text
 * vectors.
 *
 * A picture is a pure function of its number and its size, and shows the same scene at every size.
 * It has what the losses measure: broad shades, edges, and detail near the resolution. Values lie
 * in [-1,1].
 *
 * A text vector (in place of a text encoder's output, which data.embeddings has) is a sum of
 * numbered directions of unit variance: the directions of the words of a caption or, for a
 * generated picture, of its visible features, each times the amount of that feature.
 */
#include "fluxflow.h"
#include "recipes/mix.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct images {
    int64_t samples, eval_samples;
} images;

enum { SHAPES = 5 };

typedef struct shape {
    double x, y, rx, ry, turn, colour[3];
    bool round;
} shape;

typedef struct scene {
    double low[3], high[3], tilt; /* ground: two colours and the direction between them */
    shape shapes[SHAPES];
    double texture[2], phase, strength; /* waves across the picture, a direction and a depth */
} scene;

/* The next number in [lo,hi). */
static double next(uint64_t *state, double lo, double hi)
{
    *state += MIX_STEP;
    return lo + (hi - lo) * (double)(mix(*state) >> 11) * 0x1p-53;
}

static scene scene_of(uint64_t seed)
{
    scene s;
    uint64_t state = mix(seed);
    for (int c = 0; c < 3; c++) {
        s.low[c] = next(&state, -0.9, 0.5);
        s.high[c] = next(&state, -0.5, 0.9);
    }
    s.tilt = next(&state, 0, 6.283185307179586);
    for (int k = 0; k < SHAPES; k++) {
        shape *p = &s.shapes[k];
        p->x = next(&state, 0, 1);
        p->y = next(&state, 0, 1);
        p->rx = next(&state, 0.06, 0.3);
        p->ry = next(&state, 0.06, 0.3);
        p->turn = next(&state, 0, 3.141592653589793);
        p->round = next(&state, 0, 1) < 0.6;
        for (int c = 0; c < 3; c++) p->colour[c] = next(&state, -0.9, 0.9);
    }
    s.texture[0] = next(&state, -60, 60);
    s.texture[1] = next(&state, -60, 60);
    s.phase = next(&state, 0, 6.283185307179586);
    s.strength = next(&state, 0.02, 0.1);
    return s;
}

/* How much of a pixel at (x,y) the shape covers; edge: width of a pixel. */
static double cover(const shape *p, double x, double y, double edge)
{
    double c = cos(p->turn), s = sin(p->turn);
    double u = (c * (x - p->x) + s * (y - p->y)) / p->rx;
    double v = (c * (y - p->y) - s * (x - p->x)) / p->ry;
    double r = p->round ? sqrt(u * u + v * v) : fmax(fabs(u), fabs(v));
    double t = (1 - r) * fmin(p->rx, p->ry) / edge + 0.5;
    return t <= 0 ? 0 : t >= 1 ? 1 : t;
}

static void paint(const scene *s, double x, double y, double edge, float out[3])
{
    double along = 0.5 + (x - 0.5) * cos(s->tilt) + (y - 0.5) * sin(s->tilt);
    double wave = s->strength * sin(s->texture[0] * x + s->texture[1] * y + s->phase);
    double share[SHAPES];
    for (int k = 0; k < SHAPES; k++) share[k] = cover(&s->shapes[k], x, y, edge);
    for (int c = 0; c < 3; c++) {
        double v = s->low[c] + (s->high[c] - s->low[c]) * along;
        for (int k = 0; k < SHAPES; k++) v += (s->shapes[k].colour[c] - v) * share[k];
        v += wave;
        out[c] = (float)(v < -1 ? -1 : v > 1 ? 1 : v);
    }
}

/* ---- text ------------------------------------------------------------------------------- */
/* Adds `much` times direction `which` to the vector. */
static void add_direction(uint64_t which, double much, float *row, int64_t n)
{
    uint64_t state = mix(which ^ 0x7E37u);
    for (int64_t i = 0; i < n; i++) row[i] += (float)(much * next(&state, -1.7320508, 1.7320508));
}

/* Adds the ground's two colours and the two most visible shapes: colour and place. */
static void describe(const scene *s, float *row, int64_t n)
{
    double seen[16], size = 0;
    int k = 0;
    for (int c = 0; c < 3; c++) {
        seen[k++] = s->low[c];
        seen[k++] = s->high[c];
    }
    for (int i = SHAPES - 2; i < SHAPES; i++) { /* painted last: nothing covers them */
        seen[k++] = 2 * s->shapes[i].x - 1;
        seen[k++] = 2 * s->shapes[i].y - 1;
        for (int c = 0; c < 3; c++) seen[k++] = s->shapes[i].colour[c];
    }
    for (int i = 0; i < k; i++) size += seen[i] * seen[i];
    for (int64_t i = 0; i < n; i++) row[i] = 0;
    for (int i = 0; i < k; i++) add_direction((uint64_t)i, seen[i] / sqrt(size + 1e-9), row, n);
}

pl_status flux_encode(const pl_config *c, const char *caption, void *row, const pl_type *type)
{
    float *to = row;
    int words = 0;
    uint64_t h = 0;
    const char *text[2] = {
        pl_config_is_null(c, "data.prompt_prefix") ? "" : pl_config_text(c, "data.prompt_prefix"),
        caption};
    for (int64_t i = 0; i < type->dim[0]; i++) to[i] = 0;
    for (int part = 0; part < 2; part++)
        for (const char *p = text[part];; p++) {
            bool letter = isalnum((unsigned char)*p) || (unsigned char)*p >= 0x80;
            if (letter) h = (h ^ (uint64_t)tolower((unsigned char)*p)) * 0x100000001B3u + 1;
            if (!letter && h) {
                add_direction(h, 1, to, type->dim[0]);
                words++;
                h = 0;
            }
            if (!*p) break;
        }
    for (int64_t i = 0; words && i < type->dim[0]; i++) to[i] /= sqrtf((float)words);
    return PL_OK;
}

/* ---- data ------------------------------------------------------------------------------- */
pl_status flux_data_open(const pl_config *c, void **data)
{
    images *d = malloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    d->samples = pl_config_int(c, "data.samples");
    d->eval_samples = pl_config_int(c, "data.eval_samples");
    *data = d;
    return PL_OK;
}

void flux_data_close(void *data)
{
    free(data);
}

int64_t flux_data_size(void *data, pl_subset subset)
{
    const images *d = data;
    return subset == PL_SUBSET_TRAIN ? d->samples : d->eval_samples;
}

static void paint_all(const scene *s, int64_t height, int64_t width, float *to)
{
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++, to += 3)
            paint(s, ((double)x + 0.5) / (double)width, ((double)y + 0.5) / (double)height,
                  1 / (double)width, to);
}

static scene sample_scene(pl_subset subset, int64_t sample)
{
    uint64_t set = subset == PL_SUBSET_TRAIN ? 1 : 0x5EED;
    return scene_of(set * 0x100000001B3u + (uint64_t)sample);
}

pl_status flux_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch)
{
    (void)data;
    for (int i = 0; i < n; i++) {
        scene s = sample_scene(subset, sample[i]);
        pl_type t;
        for (int pass = 0; pass < FLUX_PASSES; pass++) {
            float *to = pl_batch_input(batch, flux_image_name(pass), &t);
            if (to) paint_all(&s, t.dim[1], t.dim[2], to + i * t.dim[1] * t.dim[2] * 3);
        }
        float *text = pl_batch_input(batch, "text", &t);
        if (text) describe(&s, text + i * t.dim[1], t.dim[1]);
    }
    return PL_OK;
}

/* ---- as files --------------------------------------------------------------------------- */
static const char *colour_of(const double c[3])
{
    static const char *const names[8] = {"black", "blue", "green",  "turquoise",
                                         "red",   "pink", "yellow", "white"};
    return names[4 * (c[0] > 0) + 2 * (c[1] > 0) + (c[2] > 0)];
}

pl_status flux_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h,
                    uint8_t *rgb, char *caption, size_t cap)
{
    (void)c;
    scene s = sample_scene(subset, sample);
    const shape *first = &s.shapes[SHAPES - 1], *second = &s.shapes[SHAPES - 2];
    float pixel[3];
    for (int y = 0; rgb && y < h; y++)
        for (int x = 0; x < w; x++) {
            paint(&s, (x + 0.5) / w, (y + 0.5) / h, 1.0 / w, pixel);
            for (int k = 0; k < 3; k++) *rgb++ = (uint8_t)((pixel[k] + 1) * 127.5f + 0.5f);
        }
    snprintf(caption, cap, "a %s %s %s and a %s %s before a ground from %s to %s",
             colour_of(first->colour), first->round ? "disc" : "box",
             first->x < 0.5 ? "on the left" : "on the right", colour_of(second->colour),
             second->round ? "disc" : "box", colour_of(s.low), colour_of(s.high));
    return PL_OK;
}
