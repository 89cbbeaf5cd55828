/* predict.c - super-resolution of pictures of any size.
 *
 *     picture ── bicubic ── tiles ── "encode" ── latent z of the whole picture
 *     x at time predict.start: z with noise; then for each time, over overlapping tiles of x:
 *         main program: noise predicted from x, z (structure encoder) and edges ── weighted means
 *         sampler (sampler.c): x at the time before
 *     x (and the enlarged picture, where the decoder fuses its features) ── tiles ── "decode"
 *         ── weighted means ── colour correction ── PNG
 *
 * The networks see tiles of the size that they were trained on (`image`, `latent`), so that their
 * memory does not depend on the picture; what grows with the picture is on the host, and
 * predict.pixels bounds it. The noise is a function of seed, picture and step.
 */
#include "predict.h"

#include <plimsoll_events.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 3, CHANNELS = 4, PATH_BYTES = 2048 };

static int64_t overlap_of(const pl_config *c)
{
    int64_t overlap = pl_config_int(c, "predict.overlap");
    return overlap < 0 ? pl_config_int(c, "latent") / 2 : overlap;
}

static bool draws_latents(const pl_config *c)
{
    return strcmp(pl_config_text(c, "predict.posterior"), "sample") == 0;
}

/* ---- programs --------------------------------------------------------------------------- */
static pl_val context_of(pl_nn *m, const sr_config *k)
{
    pl_val one =
        pl_nn_param(m, "context", PL_DIMS(k->context[0], k->context[1]), pl_nn_normal(0, 1));
    return pl_broadcast(m->g, pl_unsqueeze(m->g, one, 0),
                        PL_DIMS(k->batch, k->context[0], k->context[1]));
}

static void build_noise(pl_nn *m, const sr_config *k)
{
    pl_graph *g = m->g;
    pl_type latent = PL_TYPE(PL_F32, k->batch, k->latent, k->latent, CHANNELS);
    pl_val maps[SR_MAX_LEVELS], t = pl_input(g, "t", PL_TYPE(PL_I64, k->batch));
    pl_val x = sr_fused(m, pl_input(g, "x", latent), pl_input(g, "edges", latent));
    sr_struct_encoder(m, k, pl_input(g, "z", latent), t, maps);
    pl_output(g, "eps", pl_cast(g, sr_unet(m, k, x, t, context_of(m, k), maps), PL_F32));
}

/* Edges, encoder and decoder take one tile at a time: their memory is large. */
static void build_ends(pl_builder *b, const sr_config *all)
{
    sr_config one = *all, *k = &one;
    pl_nn *edge = pl_builder_predict(b, "edge"), *in = pl_builder_predict(b, "encode"),
          *out = pl_builder_predict(b, "decode");
    one.batch = 1;
    pl_type image = PL_TYPE(PL_F32, 1, k->image, k->image, COLOURS);
    pl_type latent = PL_TYPE(PL_F32, 1, k->latent, k->latent, CHANNELS);
    pl_output(edge->g, "edges",
              pl_cast(edge->g, sr_edge(edge, k, pl_input(edge->g, "edge", image)), PL_F32));
    pl_val z = vae_moments(in, &k->vae, pl_input(in->g, "image", image));
    z = vae_sample(in, z,
                   draws_latents(pl_builder_config(b)) ? pl_input(in->g, "noise", latent)
                                                       : pl_fill(in->g, latent, 0));
    pl_output(in->g, "latent", pl_cast(in->g, z, PL_F32));
    pl_val given = k->fusion > 0 ? pl_input(out->g, "given", image) : PL_NO_VAL;
    pl_val x = sr_decoded(out, k, pl_input(out->g, "latent", latent), given);
    pl_output(out->g, "image", pl_cast(out->g, x, PL_F32));
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    pl_nn *m = pl_builder_predict(b, NULL);
    sr_config k;
    if (sr_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    if (strcmp(pl_config_text(c, "part"), "full") != 0)
        pl_nn_fail(m, PL_ERR_CONFIG, "part=%s: predict needs the whole system, part=full",
                   pl_config_text(c, "part"));
    else if (k.image != vae_factor(c) * k.latent)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "image is %lld and latent %lld; an image has %lld times a latent's side",
                   (long long)k.image, (long long)k.latent, (long long)vae_factor(c));
    else if (overlap_of(c) >= k.latent)
        pl_nn_fail(m, PL_ERR_CONFIG, "predict.overlap (%lld) must be below latent (%lld)",
                   (long long)overlap_of(c), (long long)k.latent);
    build_noise(m, &k);
    build_ends(b, &k);
    return PL_OK;
}

/* ---- one picture ------------------------------------------------------------------------ */
typedef struct job {
    pl_prediction *p;
    const pl_config *c;
    sr_sampler s;
    int64_t batch, latent, image; /* tiles of a run; sides of a tile */
    int64_t factor;               /* image / latent */
    int64_t pictures, at;         /* number of pictures, and of the current one */
    /* The current picture: given, enlarged, and on its canvas of whole tiles. */
    int w, h;
    int64_t big_w, big_h, out_w, out_h;
    sr_tiles tiles;
    uint8_t *given, *bytes; /* bytes: canvas as bytes, for edges; then the result */
    float *canvas, *made;   /* the enlarged picture and the result, on the canvas */
    float *sum;             /* a number per pixel */
    float *z, *x, *eps, *fresh, *features;
} job;

static void *room(size_t n, size_t size)
{
    return malloc(n * size > 0 ? n * size : 1);
}

/* The sizes of the picture's canvas. */
static pl_status measure(job *j, const char *name)
{
    double up = pl_config_float(j->c, "predict.upscale");
    double least = (double)j->image / (double)(j->w < j->h ? j->w : j->h),
           scale = least > up ? least : up;
    int64_t most = pl_config_int(j->c, "predict.pixels");
    j->big_w = (int64_t)(j->w * scale), j->big_h = (int64_t)(j->h * scale);
    j->out_w = (int64_t)(j->w * up), j->out_h = (int64_t)(j->h * up);
    int64_t w = (j->big_w + j->factor - 1) / j->factor, h = (j->big_h + j->factor - 1) / j->factor;
    if (w < j->latent) w = j->latent;
    if (h < j->latent) h = j->latent;
    j->tiles = sr_tiles_of(h, w, j->latent, overlap_of(j->c));
    if (w * h * j->factor * j->factor > most)
        return pl_fail(PL_ERR_DATA,
                       "%s: %d x %d pixels become %lld x %lld, more than predict.pixels=%lld; "
                       "predict.pixels=%lld plans for it",
                       name, j->w, j->h, (long long)(w * j->factor), (long long)(h * j->factor),
                       (long long)most, (long long)(w * h * j->factor * j->factor));
    return PL_OK;
}

static pl_status reserve(job *j)
{
    size_t small = (size_t)(j->tiles.h * j->tiles.w),
           pixels = small * (size_t)(j->factor * j->factor);
    size_t tile = (size_t)(j->latent * j->latent) * CHANNELS;
    j->given = room((size_t)j->w * (size_t)j->h, COLOURS);
    j->bytes = room(pixels, COLOURS);
    j->canvas = room(pixels * COLOURS, sizeof(float));
    j->made = room(pixels * COLOURS, sizeof(float));
    j->sum = room(pixels, sizeof(float));
    j->z = room(small * CHANNELS, sizeof(float)), j->x = room(small * CHANNELS, sizeof(float));
    j->eps = room(small * CHANNELS, sizeof(float));
    j->fresh = room(small * CHANNELS, sizeof(float));
    j->features = room((size_t)sr_tiles_count(&j->tiles) * tile, sizeof(float));
    return j->given && j->bytes && j->canvas && j->made && j->sum && j->z && j->x && j->eps &&
                   j->fresh && j->features
               ? PL_OK
               : PL_ERR_MEMORY;
}

static void release(job *j)
{
    free(j->given), free(j->bytes), free(j->canvas), free(j->made), free(j->sum);
    free(j->z), free(j->x), free(j->eps), free(j->fresh), free(j->features);
    j->given = j->bytes = NULL;
    j->canvas = j->made = j->sum = j->z = j->x = j->eps = j->fresh = j->features = NULL;
}

static uint8_t byte_of(double v)
{
    double b = (v + 1) * 127.5;
    return (uint8_t)(b >= 255 ? 255 : b > 0 ? b + 0.5 : 0);
}

/* Pixel i of n, mirrored at the end. */
static int64_t mirrored(int64_t i, int64_t n)
{
    int64_t k = i < n ? i : 2 * (n - 1) - i;
    return k < 0 ? 0 : k;
}

/* Enlarges the picture; beyond its end the canvas shows it mirrored. */
static void fill_canvas(job *j)
{
    int64_t w = j->tiles.w * j->factor, h = j->tiles.h * j->factor;
    sr_enlarge(j->given, j->h, j->w, j->made, j->big_h, j->big_w);
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++)
            memcpy(j->canvas + (y * w + x) * COLOURS,
                   j->made + (mirrored(y, j->big_h) * j->big_w + mirrored(x, j->big_w)) * COLOURS,
                   COLOURS * sizeof *j->canvas);
    for (int64_t i = 0; i < w * h * COLOURS; i++) j->bytes[i] = byte_of((double)j->canvas[i]);
}

/* Replaces the canvas as bytes by another picture of the same scene, scaled to the same size. */
static pl_status other_canvas(job *j, const char *dir)
{
    int64_t w = j->tiles.w * j->factor, h = j->tiles.h * j->factor;
    uint8_t *big = (uint8_t *)j->made; /* has room for four bytes per colour */
    pl_status rc = pl_predict_beside(j->p, dir, j->at, (int)j->big_w, (int)j->big_h, big);
    for (int64_t i = 0; i < w * h && rc == PL_OK; i++)
        memcpy(j->bytes + i * COLOURS,
               big + (mirrored(i / w, j->big_h) * j->big_w + mirrored(i % w, j->big_w)) * COLOURS,
               COLOURS);
    return rc;
}

/* Edges of the canvas, and their features for each tile. */
static pl_status find_edges(job *j)
{
    int64_t w = j->tiles.w * j->factor, h = j->tiles.h * j->factor, n = j->image;
    int64_t per = j->latent * j->latent * CHANNELS;
    int count;
    const int64_t *limit = pl_config_ints(j->c, "canny", &count);
    uint8_t *edge = calloc((size_t)(w * h), 1);
    void *work = malloc(pl_canny_bytes((int)w, (int)h));
    pl_status rc = edge && work ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK && !pl_config_is_null(j->c, "predict.edges_from"))
        rc = other_canvas(j, pl_config_text(j->c, "predict.edges_from"));
    if (rc == PL_OK && pl_config_bool(j->c, "predict.edges"))
        pl_canny(j->bytes, (int)w, (int)h, (int)limit[0], (int)limit[1], edge, work);
    for (int64_t i = 0; i < sr_tiles_count(&j->tiles) && rc == PL_OK; i++) {
        int64_t y, x;
        float *to = pl_predict_set(j->p, "edge", "edge", NULL);
        sr_tiles_at(&j->tiles, i, &y, &x);
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < n * COLOURS; k++)
                to[r * n * COLOURS + k] =
                    edge[(y * j->factor + r) * w + x * j->factor + k / COLOURS] ? 1.0f : -1.0f;
        rc = pl_predict_run(j->p, "edge");
        if (rc == PL_OK)
            memcpy(j->features + i * per, pl_predict_get(j->p, "edge", "edges", NULL),
                   (size_t)per * sizeof *j->features);
    }
    free(edge);
    free(work);
    return rc;
}

/* Noise of the current picture. */
static uint64_t noise_seed(const job *j)
{
    return pl_sample_seed(0x5A3B + (uint64_t)pl_config_int(j->c, "seed"), PL_SUBSET_TRAIN, j->at);
}

/* A drawn latent has one noise over all tiles, so that tiles agree where they overlap. */
static pl_status encode(job *j)
{
    enum { DRAW = 1 << 20 }; /* beyond the noise of every step */
    int64_t n = j->tiles.h * j->tiles.w * CHANNELS;
    bool draws = draws_latents(j->c);
    pl_status rc = PL_OK;
    if (draws) pl_sample_noise(noise_seed(j) + DRAW, n, j->fresh);
    memset(j->z, 0, (size_t)(j->tiles.h * j->tiles.w) * CHANNELS * sizeof *j->z);
    for (int64_t i = 0; i < sr_tiles_count(&j->tiles) && rc == PL_OK; i++) {
        sr_tile_cut(&j->tiles, i, j->factor, COLOURS, j->canvas,
                    pl_predict_set(j->p, "encode", "image", NULL));
        if (draws)
            sr_tile_cut(&j->tiles, i, 1, CHANNELS, j->fresh,
                        pl_predict_set(j->p, "encode", "noise", NULL));
        rc = pl_predict_run(j->p, "encode");
        if (rc == PL_OK)
            sr_tile_add(&j->tiles, i, 1, CHANNELS, pl_predict_get(j->p, "encode", "latent", NULL),
                        j->z);
    }
    sr_tiles_divide(&j->tiles, 1, CHANNELS, j->z, j->sum);
    return rc;
}

static pl_status decode(job *j)
{
    pl_status rc = PL_OK;
    size_t pixels = (size_t)(j->tiles.h * j->tiles.w * j->factor * j->factor);
    memset(j->made, 0, pixels * COLOURS * sizeof *j->made);
    for (int64_t i = 0; i < sr_tiles_count(&j->tiles) && rc == PL_OK; i++) {
        sr_tile_cut(&j->tiles, i, 1, CHANNELS, j->x,
                    pl_predict_set(j->p, "decode", "latent", NULL));
        float *given = pl_predict_set(j->p, "decode", "given", NULL);
        if (given) sr_tile_cut(&j->tiles, i, j->factor, COLOURS, j->canvas, given);
        rc = pl_predict_run(j->p, "decode");
        if (rc == PL_OK)
            sr_tile_add(&j->tiles, i, j->factor, COLOURS,
                        pl_predict_get(j->p, "decode", "image", NULL), j->made);
    }
    sr_tiles_divide(&j->tiles, j->factor, COLOURS, j->made, j->sum);
    return rc;
}

/* Predicts the noise in x at a time: tiles in batches, joined in eps. */
static pl_status predict_noise(job *j, int64_t time)
{
    int64_t n = sr_tiles_count(&j->tiles), per = j->latent * j->latent * CHANNELS;
    pl_status rc = PL_OK;
    memset(j->eps, 0, (size_t)(j->tiles.h * j->tiles.w) * CHANNELS * sizeof *j->eps);
    for (int64_t at = 0; at < n && rc == PL_OK; at += j->batch) {
        float *x = pl_predict_set(j->p, NULL, "x", NULL),
              *z = pl_predict_set(j->p, NULL, "z", NULL);
        float *edges = pl_predict_set(j->p, NULL, "edges", NULL);
        int64_t *t = pl_predict_set(j->p, NULL, "t", NULL);
        for (int64_t i = 0; i < j->batch; i++) {
            int64_t tile = at + i < n ? at + i : at; /* a last batch repeats a tile */
            sr_tile_cut(&j->tiles, tile, 1, CHANNELS, j->x, x + i * per);
            sr_tile_cut(&j->tiles, tile, 1, CHANNELS, j->z, z + i * per);
            memcpy(edges + i * per, j->features + tile * per, (size_t)per * sizeof *edges);
            t[i] = time;
        }
        rc = pl_predict_run(j->p, NULL);
        const float *eps = rc == PL_OK ? pl_predict_get(j->p, NULL, "eps", NULL) : NULL;
        for (int64_t i = 0; i < j->batch && at + i < n && rc == PL_OK; i++)
            sr_tile_add(&j->tiles, at + i, 1, CHANNELS, eps + i * per, j->eps);
    }
    if (rc == PL_OK) sr_tiles_divide(&j->tiles, 1, CHANNELS, j->eps, j->sum);
    return rc;
}

static pl_status sample(job *j)
{
    int64_t n = j->tiles.h * j->tiles.w * CHANNELS;
    uint64_t seed = noise_seed(j);
    double a = sr_signal(j->s.start);
    pl_status rc = PL_OK;
    pl_sample_noise(seed, n, j->fresh);
    for (int64_t k = 0; k < n; k++)
        j->x[k] = (float)(sqrt(a) * (double)j->z[k] + sqrt(1 - a) * (double)j->fresh[k]);
    for (int i = j->s.steps - 1; i >= 0 && rc == PL_OK; i--) {
        rc = predict_noise(j, j->s.times[i]);
        if (rc != PL_OK) break;
        if (i > 0 && !j->s.ddim) pl_sample_noise(seed + (uint64_t)i, n, j->fresh);
        sr_sampler_step(&j->s, i, j->x, j->eps, j->fresh, n);
        rc = pl_predict_progress(j->p, j->at, j->pictures);
    }
    return rc;
}

/* Corrects the colours of the result on its canvas, and cuts and reduces it to its size. */
static pl_status finish(job *j)
{
    const char *colour = pl_config_text(j->c, "predict.colour");
    int64_t w = j->tiles.w * j->factor, h = j->tiles.h * j->factor;
    for (int64_t y = 0; y < j->big_h; y++) {
        memmove(j->made + y * j->big_w * COLOURS, j->made + y * w * COLOURS,
                (size_t)(j->big_w * COLOURS) * sizeof *j->made);
        memmove(j->canvas + y * j->big_w * COLOURS, j->canvas + y * w * COLOURS,
                (size_t)(j->big_w * COLOURS) * sizeof *j->canvas);
    }
    if (strcmp(colour, "adain") == 0) sr_colour_adain(j->made, j->canvas, j->big_w * j->big_h);
    if (strcmp(colour, "wavelet") == 0) {
        float *line = malloc((size_t)(w > h ? w : h) * COLOURS * sizeof *line);
        if (!line) return PL_ERR_MEMORY;
        sr_colour_wavelet(j->made, j->canvas, j->big_h, j->big_w, line);
        free(line);
    }
    if (j->out_w < j->big_w || j->out_h < j->big_h)
        sr_reduce(j->made, j->big_h, j->big_w, j->out_h, j->out_w);
    for (int64_t i = 0; i < j->out_w * j->out_h * COLOURS; i++) {
        if (!isfinite(j->made[i]))
            return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights are "
                                           "damaged, or its training diverged");
        j->bytes[i] = byte_of((double)j->made[i]);
    }
    return PL_OK;
}

/* ---- all pictures ----------------------------------------------------------------------- */
static pl_status save(job *j, int64_t i)
{
    char path[2 * PATH_BYTES];
    pl_status rc = pl_predict_result(j->p, i, ".png", path, sizeof path);
    return rc == PL_OK ? pl_png_save(path, (int)j->out_w, (int)j->out_h, COLOURS, j->bytes) : rc;
}

static pl_status restore(job *j, int64_t i)
{
    const char *name;
    bool ok = false;
    j->at = i;
    pl_status rc = pl_predict_picture(j->p, i, &name, &j->w, &j->h);
    if (rc == PL_OK) rc = measure(j, name);
    if (rc == PL_OK) rc = reserve(j);
    if (rc == PL_OK) rc = pl_predict_pixels(j->p, i, j->w, j->h, j->given, &ok);
    if (rc == PL_OK && ok) {
        fill_canvas(j);
        rc = find_edges(j);
        if (rc == PL_OK) rc = encode(j);
        if (rc == PL_OK) rc = sample(j);
        if (rc == PL_OK) rc = decode(j);
        if (rc == PL_OK) rc = finish(j);
        if (rc == PL_OK) rc = save(j, i);
    }
    release(j);
    return rc == PL_OK ? pl_predict_progress(j->p, i + 1, j->pictures) : rc;
}

static pl_status run(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    pl_type t;
    if (!pl_predict_set(p, NULL, "x", &t)) return PL_ERR_ARG;
    job j = {.p = p,
             .c = c,
             .batch = t.dim[0],
             .latent = t.dim[1],
             .factor = vae_factor(c),
             .image = t.dim[1] * vae_factor(c),
             .s = {.start = pl_config_int(c, "predict.start"),
                   .steps = (int)pl_config_int(c, "predict.steps"),
                   .ddim = strcmp(pl_config_text(c, "predict.sampler"), "ddim") == 0}};
    j.s.times = malloc((size_t)j.s.steps * sizeof *j.s.times);
    pl_status rc = j.s.times ? pl_predict_pictures(p, &j.pictures) : PL_ERR_MEMORY;
    if (rc == PL_OK) sr_sampler_times(&j.s);
    for (int64_t i = 0; i < j.pictures && rc == PL_OK; i++) rc = restore(&j, i);
    free(j.s.times);
    return rc;
}

/* Of a pixel of the canvas: two pictures of f32, two of bytes, a sum, an edge and the work of
 * Canny; the picture as it is decoded. Of a position of the latent: four latents, and features of
 * up to four tiles. */
static uint64_t bytes(const pl_config *c)
{
    uint64_t pixels = (uint64_t)pl_config_int(c, "predict.pixels"), side = 1;
    uint64_t factor = (uint64_t)vae_factor(c), position = (4 + 4) * CHANNELS * sizeof(float);
    while (side * side < pixels) side *= 2;
    return pixels * (2 * COLOURS * sizeof(float) + 2 * COLOURS + sizeof(float) + 1 + 4) +
           pixels / (factor * factor) * position + pl_canny_bytes((int)side, (int)side);
}

const pl_predict sr_predict = {
    .input = "a picture or a folder of pictures",
    .out = "a folder for PNG pictures",
    .build = build,
    .run = run,
    .bytes = bytes,
};
