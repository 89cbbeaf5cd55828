/* predict.c - style transfer of latents, and of pictures through Stable Diffusion's autoencoder.
 *
 * A latent takes the path of infer.c: back to noise under the style of the input, then forward
 * under the wanted style. The main program is one evaluation of the velocity; the host takes the
 * steps. With vae.weights two more programs exist: "encode" (a picture to the mean of its latent)
 * and "decode". The noise of sample i is a function of seed, i and step, so that a result does not
 * depend on the batch.
 *
 * predict.what: latents only encodes: the main program is the encoder, and every picture becomes a
 * .pt file of the kind that data.latents reads.
 */
#include "lgt.h"
#include "recipes/vae.h"

#include <plimsoll_events.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const pl_weights lgt_weights[] = {
    {"vae.weights", "vae.*", vae_namings},
    {NULL, NULL, NULL},
};

/* ---- programs --------------------------------------------------------------------------- */
/* Picture (1,F*H,F*W,3) to the mean of its latent (1,H,W,4), both f32. */
static void build_encoder(pl_nn *m, const vae_sizes *v, int64_t factor, lgt_shape s)
{
    pl_type image = PL_TYPE(PL_F32, 1, factor * s.rows, factor * s.columns, 3);
    m->frozen = true;
    pl_val mean = vae_moments(m, v, pl_input(m->g, "image", image));
    mean = vae_sample(m, mean, pl_fill(m->g, PL_TYPE(m->dtype, 1, s.rows, s.columns, 4), 0));
    pl_output(m->g, "latent", pl_cast(m->g, mean, PL_F32));
}

/* The autoencoder's latents have four channels. */
static bool four_channels(pl_nn *m, lgt_shape s)
{
    if (s.channels != 4)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "vae.weights: latents of the autoencoder have 4 channels, model.channels is "
                   "%lld",
                   (long long)s.channels);
    return s.channels == 4;
}

static pl_status build_vae(pl_builder *b, const lgt_config *k)
{
    pl_nn *in = pl_builder_predict(b, "encode"), *out = pl_builder_predict(b, "decode");
    vae_sizes v;
    const pl_config *c = pl_builder_config(b);
    if (!four_channels(in, k->latent) || !vae_sizes_of(c, in, &v)) return pl_nn_finish(in);
    build_encoder(in, &v, vae_factor(c), k->latent);
    out->frozen = true;
    pl_val x = pl_input(out->g, "latent", PL_TYPE(PL_F32, 1, k->latent.rows, k->latent.columns, 4));
    pl_output(out->g, "image", pl_cast(out->g, vae_decode(out, &v, x), PL_F32));
    return PL_OK;
}

static bool only_encodes(const pl_config *c)
{
    return strcmp(pl_config_text(c, "predict.what"), "latents") == 0;
}

/* predict.what: latents. */
static pl_status build_latents(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    pl_nn *m = pl_builder_predict(b, NULL);
    vae_sizes v;
    if (pl_config_is_null(c, "vae.weights"))
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "predict.what=latents encodes pictures: vae.weights=FILE names the weights of "
                   "Stable Diffusion's autoencoder");
    if (pl_config_is_null(c, "vae.weights") || !vae_sizes_of(c, m, &v)) return pl_nn_finish(m);
    if (!four_channels(m, lgt_shape_of(c))) return pl_nn_finish(m);
    build_encoder(m, &v, vae_factor(c), lgt_shape_of(c));
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    if (only_encodes(c)) return build_latents(b);
    pl_nn *m = pl_builder_predict(b, NULL);
    lgt_config k;
    if (lgt_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    if (k.average == LGT_AVERAGE_INITIAL) k.average = LGT_AVERAGE_CURRENT;
    pl_graph *g = m->g;
    pl_val x = pl_input(g, "x", lgt_batch_type(&k, PL_F32));
    lgt_style s = {.ids = pl_input(g, "style", PL_TYPE(PL_I64, k.batch)),
                   .uncond = pl_input(g, "average", PL_TYPE(PL_BOOL, 1)),
                   .first = PL_NO_VAL,
                   .noise = PL_NO_VAL};
    pl_val t = pl_input(g, "t", PL_TYPE(PL_F32, k.batch));
    pl_output(g, "v", pl_cast(g, lgt_unet(m, &k, x, t, &s), PL_F32));
    return pl_config_is_null(c, "vae.weights") ? PL_OK : build_vae(b, &k);
}

/* ---- the path --------------------------------------------------------------------------- */
typedef struct job {
    pl_prediction *p;
    lgt_shape shape;
    int64_t batch, size; /* size: numbers of a latent */
    const char *encoder; /* program that encodes pictures */
    int64_t steps, source, style;
    double scale, repulsion, temperature, threshold;
    bool decay, pictures; /* pictures: vae.weights is given */
    float *x, *v, *noise; /* a batch of latents (H,W,C), velocities, noise of one latent */
    float *chw;           /* a latent in PyTorch's order */
    uint8_t *rgb;         /* one picture; NULL without the autoencoder */
    int64_t total;
    /* Where inputs come from: rows of an array, .pt files, or pictures. */
    int rows; /* of pl_predict_rows; -1: none */
    char **file;
} job;

/* Adds weight times the velocity at time t to v. */
static pl_status add_velocity(job *j, double at, int64_t style, bool average, double weight)
{
    float *t = pl_predict_set(j->p, NULL, "t", NULL);
    int64_t *ids = pl_predict_set(j->p, NULL, "style", NULL);
    bool *mean = pl_predict_set(j->p, NULL, "average", NULL);
    memcpy(pl_predict_set(j->p, NULL, "x", NULL), j->x,
           (size_t)(j->batch * j->size) * sizeof *j->x);
    for (int64_t i = 0; i < j->batch; i++) t[i] = (float)at, ids[i] = style;
    *mean = average;
    pl_status rc = pl_predict_run(j->p, NULL);
    if (rc != PL_OK) return rc;
    const float *v = pl_predict_get(j->p, NULL, "v", NULL);
    for (int64_t i = 0; i < j->batch * j->size; i++) j->v[i] += (float)(weight * (double)v[i]);
    return PL_OK;
}

/* v = v_average + w (v_wanted - v_average) - r (v_own - v_average) */
static pl_status guided(job *j, double at, int64_t step)
{
    double w = j->scale, r = j->repulsion;
    if (j->decay) w = fmax(1, j->scale - (j->scale - 1) / (double)j->steps * (double)step);
    pl_status rc = add_velocity(j, at, j->style, false, w);
    if (rc == PL_OK && 1 - w + r != 0) rc = add_velocity(j, at, j->style, true, 1 - w + r);
    return rc == PL_OK && r != 0 ? add_velocity(j, at, j->source, false, -r) : rc;
}

static void step_by(job *j, double dt)
{
    for (int64_t i = 0; i < j->batch * j->size; i++) j->x[i] += (float)(dt * (double)j->v[i]);
}

static void warm(job *j, int64_t first, int64_t step, double size)
{
    uint64_t seed = (uint64_t)pl_config_int(pl_predict_config(j->p), "seed");
    for (int64_t i = 0; i < j->batch; i++) {
        uint64_t own = pl_sample_seed(0x1671 + seed, PL_SUBSET_TRAIN, first + i);
        pl_sample_noise(own + (uint64_t)step, j->size, j->noise);
        for (int64_t k = 0; k < j->size; k++)
            j->x[i * j->size + k] += (float)(size * (double)j->noise[k]);
    }
}

/* Takes the batch in x, whose first sample has this number, to the wanted style. */
static pl_status transfer(job *j, int64_t first)
{
    double dt = 1 / (double)j->steps;
    size_t bytes = (size_t)(j->batch * j->size) * sizeof *j->v;
    pl_status rc = PL_OK;
    for (int64_t i = 0; i < 2 * j->steps && rc == PL_OK; i++) {
        bool back = i < j->steps;
        int64_t step = back ? i : i - j->steps;
        double t = back ? 1 - dt * (double)step : dt * (double)step;
        memset(j->v, 0, bytes);
        rc = back ? add_velocity(j, t, j->source, false, 1) : guided(j, t, step);
        if (rc == PL_OK) step_by(j, back ? -dt : dt);
        if (rc == PL_OK && !back && t >= j->threshold && j->temperature > 0)
            warm(j, first, step, j->temperature * sqrt(dt));
    }
    return rc;
}

/* ---- inputs ----------------------------------------------------------------------------- */
static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static pl_status add_file(job *j, const char *path)
{
    char **more = realloc(j->file, (size_t)(j->total + 1) * sizeof *more);
    if (!more) return PL_ERR_MEMORY;
    j->file = more;
    j->file[j->total] = strdup(path);
    return j->file[j->total++] ? PL_OK : PL_ERR_MEMORY;
}

/* The .pt files of a folder, or the one file. */
static pl_status list_files(job *j, const char *path)
{
    if (ends_with(path, ".pt")) return add_file(j, path);
    DIR *d = opendir(path);
    pl_status rc = PL_OK;
    for (struct dirent *e; d && rc == PL_OK && (e = readdir(d));) {
        char name[2048];
        int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (e->d_name[0] == '.' || !ends_with(e->d_name, ".pt") || n >= (int)sizeof name) continue;
        rc = add_file(j, name);
    }
    if (d) closedir(d);
    if (j->total) qsort(j->file, (size_t)j->total, sizeof *j->file, by_text);
    return rc;
}

static pl_status open_input(job *j)
{
    const char *path = pl_predict_input(j->p);
    pl_type row = PL_TYPE(PL_F32, j->shape.channels, j->shape.rows, j->shape.columns);
    j->rows = -1;
    if (ends_with(path, ".npy") || ends_with(path, ".safetensors"))
        return pl_predict_rows(j->p, path, "latent", &row, &j->rows, &j->total);
    pl_status rc = list_files(j, path);
    if (rc != PL_OK || j->total) return rc;
    if (!j->pictures)
        return pl_fail(PL_ERR_DATA,
                       "%s has no latents: neither .npy or .safetensors nor .pt files; pictures "
                       "are read with vae.weights=FILE, the autoencoder of Stable Diffusion",
                       path);
    return pl_predict_pictures(j->p, &j->total);
}

/* Reads picture i and encodes it into x. */
static pl_status encode(job *j, int64_t i, float *x, bool *ok)
{
    pl_type t;
    float *image = pl_predict_set(j->p, j->encoder, "image", &t);
    int h = (int)t.dim[1], w = (int)t.dim[2];
    pl_status rc = pl_predict_pixels(j->p, i, w, h, j->rgb, ok);
    if (rc != PL_OK || !*ok) return rc;
    for (int64_t k = 0; k < (int64_t)h * w * 3; k++) image[k] = (float)j->rgb[k] / 127.5f - 1;
    rc = pl_predict_run(j->p, j->encoder);
    if (rc == PL_OK)
        memcpy(x, pl_predict_get(j->p, j->encoder, "latent", NULL), (size_t)j->size * sizeof *x);
    return rc;
}

/* Writes latent i to x, in (H,W,C). */
static pl_status read_latent(job *j, int64_t i, float *x, bool *ok)
{
    int64_t area = j->shape.rows * j->shape.columns, n = j->shape.channels;
    *ok = true;
    if (j->rows < 0 && !j->file) return encode(j, i, x, ok);
    if (j->file) return lgt_pt_read(j->file[i], j->shape, x);
    pl_status rc = pl_predict_row(j->p, j->rows, i, j->chw);
    for (int64_t k = 0; k < j->size && rc == PL_OK; k++) {
        if (!isfinite(j->chw[k]))
            return pl_fail(PL_ERR_DATA, "%s: number %lld of latent %lld is not finite",
                           pl_predict_input(j->p), (long long)k, (long long)i);
        x[k % area * n + k / area] = j->chw[k];
    }
    return rc;
}

/* ---- results ---------------------------------------------------------------------------- */
/* Path of the picture of result i: named like the input, or by its number. */
static pl_status picture_path(job *j, int64_t i, char *path, size_t cap)
{
    char name[2048];
    if (!j->file && j->rows < 0) return pl_predict_result(j->p, i, ".png", path, cap);
    const char *of = j->file ? j->file[i] : "", *slash = strrchr(of, '/'), *dot = strrchr(of, '.');
    if (slash) of = slash + 1;
    int n = j->file ? snprintf(name, sizeof name, "%.*s.png",
                               (int)(dot > of ? dot - of : (long)strlen(of)), of)
                    : snprintf(name, sizeof name, "%06lld.png", (long long)i);
    if (n >= (int)sizeof name) return pl_fail(PL_ERR_IO, "%.100s...: the path is too long", of);
    return pl_predict_path(j->p, name, path, cap);
}

static pl_status decode(job *j, int64_t i, const float *x)
{
    char path[4096];
    pl_type t;
    memcpy(pl_predict_set(j->p, "decode", "latent", NULL), x, (size_t)j->size * sizeof *x);
    pl_status rc = pl_predict_run(j->p, "decode");
    if (rc == PL_OK) rc = picture_path(j, i, path, sizeof path);
    if (rc != PL_OK) return rc;
    const float *image = pl_predict_get(j->p, "decode", "image", &t);
    for (int64_t k = 0; k < t.dim[1] * t.dim[2] * 3; k++) {
        double v = ((double)image[k] + 1) * 127.5;
        j->rgb[k] = (uint8_t)(v >= 255 ? 255 : v > 0 ? v + 0.5 : 0);
    }
    return pl_png_save(path, (int)t.dim[2], (int)t.dim[1], 3, j->rgb);
}

static pl_status write_result(job *j, int64_t i, const float *x)
{
    int64_t area = j->shape.rows * j->shape.columns, n = j->shape.channels;
    for (int64_t k = 0; k < j->size; k++) {
        j->chw[k] = x[k % area * n + k / area];
        if (!isfinite(j->chw[k]))
            return pl_fail(PL_ERR_NUMERIC,
                           "result %lld is not finite: the weights are damaged, or "
                           "their training diverged",
                           (long long)i);
    }
    pl_status rc = pl_predict_write(j->p, "latents.npy", j->chw, (size_t)j->size * sizeof *j->chw);
    return rc == PL_OK && j->pictures ? decode(j, i, x) : rc;
}

static pl_status transfer_all(job *j)
{
    pl_status rc = open_input(j);
    bool *ok = calloc((size_t)j->batch, sizeof *ok);
    if (rc == PL_OK && !ok) rc = PL_ERR_MEMORY;
    if (rc == PL_OK)
        rc = pl_predict_npy(
            j->p, "latents.npy",
            PL_TYPE(PL_F32, j->total, j->shape.channels, j->shape.rows, j->shape.columns));
    for (int64_t at = 0; at < j->total && rc == PL_OK; at += j->batch) {
        int64_t rows = j->total - at < j->batch ? j->total - at : j->batch;
        memset(j->x, 0, (size_t)(j->batch * j->size) * sizeof *j->x);
        for (int64_t i = 0; i < rows && rc == PL_OK; i++) {
            rc = read_latent(j, at + i, j->x + i * j->size, &ok[i]);
            if (rc == PL_OK && !ok[i])
                rc = pl_fail(PL_ERR_DATA, "picture %lld of %s cannot be read", (long long)(at + i),
                             pl_predict_input(j->p));
        }
        if (rc == PL_OK) rc = transfer(j, at);
        for (int64_t i = 0; i < rows && rc == PL_OK; i++)
            rc = write_result(j, at + i, j->x + i * j->size);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, at + rows, j->total);
    }
    free(ok);
    return rc;
}

/* Every picture of --input as a file with its latent. */
static pl_status encode_all(job *j)
{
    pl_status rc = pl_predict_pictures(j->p, &j->total);
    for (int64_t i = 0; i < j->total && rc == PL_OK; i++) {
        char path[4096];
        bool ok;
        rc = encode(j, i, j->x, &ok);
        if (rc == PL_OK && ok) rc = pl_predict_result(j->p, i, ".pt", path, sizeof path);
        if (rc == PL_OK && ok) rc = lgt_pt_write(path, j->shape, j->x);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, i + 1, j->total);
    }
    return rc;
}

static pl_status check_styles(const job *j, int64_t styles)
{
    if (j->source < styles && j->style < styles) return PL_OK;
    return pl_fail(PL_ERR_CONFIG,
                   "predict.source=%lld and predict.style=%lld: model.styles is %lld",
                   (long long)j->source, (long long)j->style, (long long)styles);
}

static pl_status run(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    bool latents = only_encodes(c);
    lgt_shape shape = lgt_shape_of(c);
    int64_t factor = vae_factor(c);
    pl_type t = PL_TYPE(PL_F32, 1, shape.rows, shape.columns, shape.channels);
    if (!latents && !pl_predict_set(p, NULL, "x", &t)) return PL_ERR_ARG;
    job j = {.p = p,
             .batch = t.dim[0],
             .shape = shape,
             .size = lgt_numbers(shape),
             .encoder = latents ? NULL : "encode",
             .rows = -1,
             .steps = pl_config_int(c, "ode.eval_steps"),
             .source = pl_config_int(c, "predict.source"),
             .style = pl_config_int(c, "predict.style"),
             .scale = pl_config_float(c, "infer.cfg_scale"),
             .repulsion = pl_config_float(c, "infer.repulsion"),
             .temperature = pl_config_float(c, "infer.temperature"),
             .threshold = pl_config_float(c, "infer.threshold"),
             .decay = pl_config_bool(c, "infer.cfg_decay"),
             .pictures = !pl_config_is_null(c, "vae.weights")};
    pl_status rc = check_styles(&j, pl_config_int(c, "model.styles"));
    if (rc != PL_OK) return rc;
    size_t all = (size_t)(j.batch * j.size) * sizeof(float), one = (size_t)j.size * sizeof(float);
    j.x = malloc(all), j.v = malloc(all), j.noise = malloc(one), j.chw = malloc(one);
    if (j.pictures) j.rgb = malloc((size_t)(shape.rows * shape.columns * factor * factor) * 3);
    bool room = j.x && j.v && j.noise && j.chw && (j.rgb || !j.pictures);
    rc = !room ? PL_ERR_MEMORY : latents ? encode_all(&j) : transfer_all(&j);
    for (int64_t i = 0; j.file && i < j.total; i++) free(j.file[i]);
    free(j.file), free(j.x), free(j.v), free(j.noise), free(j.chw), free(j.rgb);
    return rc;
}

/* Latents and velocities of a batch, two latents, one picture and the memory to read it. */
static uint64_t bytes(const pl_config *c)
{
    lgt_shape s = lgt_shape_of(c);
    uint64_t pixels = (uint64_t)(s.rows * s.columns * vae_factor(c) * vae_factor(c));
    uint64_t picture = pl_config_is_null(c, "vae.weights") ? 0 : pixels * 3 + ((uint64_t)64 << 20);
    return (2 * (uint64_t)pl_config_int(c, "batch") + 2) * (uint64_t)lgt_numbers(s) *
               sizeof(float) +
           picture;
}

const pl_predict lgt_predict = {
    .input = "latents: an .npy array or the array \"latent\" of a .safetensors file, [N,C,H,W], or "
             "a .pt file or a folder of them; with vae.weights also a picture or a folder of "
             "pictures",
    .out = "a folder for latents.npy and, with vae.weights, PNG pictures; with "
           "predict.what=latents a .pt file for each picture",
    .build = build,
    .run = run,
    .bytes = bytes,
};
