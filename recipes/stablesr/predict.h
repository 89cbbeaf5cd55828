/* predict.h - shared by the files of stablesr's predictions: sampler, tiles, colours. */
#ifndef STABLESR_PREDICT_H
#define STABLESR_PREDICT_H

#include "stablesr.h"

/* ---- sampler.c -------------------------------------------------------------------------- */
typedef struct sr_sampler {
    int64_t *times; /* rising; the caller owns them */
    int64_t start;  /* the last time */
    int steps;
    bool ddim; /* without noise; false: DDPM */
} sr_sampler;
/* Sets the times: evenly spread over 0 to start, both included; one time is start. */
void sr_sampler_times(sr_sampler *s);
/* Takes latents x from times[i] to times[i - 1], or to clean ones for i = 0. eps: the predicted
 * noise; fresh: standard normal numbers (not read by DDIM, nor for i = 0). */
void sr_sampler_step(const sr_sampler *s, int i, float *x, const float *eps, const float *fresh,
                     int64_t n);

/* ---- tiles.c ---------------------------------------------------------------------------- */
/* Overlapping squares of `tile` positions that cover h x w. */
typedef struct sr_tiles {
    int64_t h, w, tile, stride, rows, columns;
} sr_tiles;
sr_tiles sr_tiles_of(int64_t h, int64_t w, int64_t tile, int64_t overlap);
int64_t sr_tiles_count(const sr_tiles *t);
/* First row and column of tile i. */
void sr_tiles_at(const sr_tiles *t, int64_t i, int64_t *y, int64_t *x);
/* Weight of a position of a tile of n positions: a Gaussian around its centre. */
double sr_tile_weight(int64_t n, int64_t y, int64_t x);
/* Copies tile i, scaled by `factor` (8: pixels), out of a map with c channels. */
void sr_tile_cut(const sr_tiles *t, int64_t i, int64_t factor, int c, const float *map, float *to);
/* Adds tile i, weighted, to a map with c channels; sr_tiles_divide makes weighted means of sums. */
void sr_tile_add(const sr_tiles *t, int64_t i, int64_t factor, int c, const float *from,
                 float *map);
/* sum: room for one number per position. */
void sr_tiles_divide(const sr_tiles *t, int64_t factor, int c, float *map, float *sum);

/* ---- colour.c --------------------------------------------------------------------------- */
/* Bicubic enlargement of bytes to f32 in [-1,1], clamped; (h,w,3) to (to_h,to_w,3). */
void sr_enlarge(const uint8_t *from, int64_t h, int64_t w, float *to, int64_t to_h, int64_t to_w);
/* Reduction by means of areas, in place (rows of the result are packed). */
void sr_reduce(float *x, int64_t h, int64_t w, int64_t to_h, int64_t to_w);
/* Colours of `like` for picture x, both (n pixels, 3): means and deviations of the channels. */
void sr_colour_adain(float *x, const float *like, int64_t n);
/* Coarse part of `like`, fine part of x: five blurs of radius 1, 2, 4, 8, 16 separate them. like is
 * overwritten. line: room for 3 * max(h, w) numbers. */
void sr_colour_wavelet(float *x, float *like, int64_t h, int64_t w, float *line);

#endif
