/* predict.c - pictures decoded from their own tokens, and pictures of texts.
 *
 * Reconstruction: one program, picture to picture, with the mean of the posterior. Samples: the
 * program "flow" gives the velocity of tokens, the sampler (sampler.c) steps on the host, the main
 * program decodes. Text i starts from the noise of (seed, i), so that a picture does not depend on
 * the texts beside it, on the batch, or on the budget.
 */
#include "fluxflow.h"

#include <plimsoll_events.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool makes_samples(const pl_config *c)
{
    const char *what = pl_config_text(c, "predict.what");
    return strcmp(what, "auto") == 0 ? pl_config_bool(c, "flow.on") : strcmp(what, "samples") == 0;
}

/* ---- programs --------------------------------------------------------------------------- */
static pl_type token_type(const flux *k)
{
    int64_t n = (k->s.height >> k->s.scales) * (k->s.width >> k->s.scales);
    return PL_TYPE(PL_F32, k->s.batch, n, k->s.dim);
}

static pl_status build_samples(pl_builder *b)
{
    flux k;
    pl_nn *m = pl_builder_predict(b, NULL), *flow = pl_builder_predict(b, "flow");
    if (!flux_of(b, m, 0, &k)) return pl_nn_finish(m);
    pl_val tokens = pl_input(m->g, "tokens", token_type(&k));
    pl_val image = flux_expander(m, &k.s, flux_packed(m, &k.s, tokens));
    pl_output(m->g, "image", pl_cast(m->g, image, PL_F32));
    if (!flux_of(b, flow, 0, &k)) return pl_nn_finish(flow);
    pl_val v = flux_flow(flow, &k.s, pl_input(flow->g, "tokens", token_type(&k)),
                         pl_input(flow->g, "text", PL_TYPE(PL_F32, k.s.batch, k.s.flow.text)),
                         pl_input(flow->g, "t", PL_TYPE(PL_I64, k.s.batch)));
    pl_output(flow->g, "v", pl_cast(flow->g, v, PL_F32));
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    if (makes_samples(pl_builder_config(b))) return build_samples(b);
    flux k;
    pl_nn *m = pl_builder_predict(b, NULL);
    if (!flux_of(b, m, 0, &k)) return pl_nn_finish(m);
    pl_val mu, logvar;
    pl_val real =
        pl_input(m->g, flux_image_name(0), PL_TYPE(m->dtype, k.s.batch, k.s.height, k.s.width, 3));
    pl_val mean = pl_fill(
        m->g,
        PL_TYPE(m->dtype, k.s.batch, k.s.height >> k.s.scales, k.s.width >> k.s.scales, k.s.dim),
        0);
    pl_val packed = flux_compressor(m, &k.s, real, mean, &mu, &logvar);
    pl_output(m->g, "image", pl_cast(m->g, flux_expander(m, &k.s, packed), PL_F32));
    return PL_OK;
}

/* ---- pictures out ----------------------------------------------------------------------- */
/* Writes row `row` of the output image, black -1 and white 1. */
static pl_status save(pl_prediction *p, int64_t row, const char *path)
{
    pl_type t;
    const float *x = pl_predict_get(p, NULL, "image", &t);
    int64_t n = t.dim[1] * t.dim[2] * 3;
    pl_status rc = PL_OK;
    uint8_t *rgb = malloc((size_t)n);
    if (!rgb) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < n && rc == PL_OK; i++) {
        double v = ((double)x[row * n + i] + 1) * 127.5;
        if (!isfinite(v))
            rc = pl_fail(PL_ERR_NUMERIC,
                         "%s: the network's outputs are not finite: its weights "
                         "are damaged, or its training diverged",
                         path);
        rgb[i] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5);
    }
    if (rc == PL_OK) rc = pl_png_save(path, (int)t.dim[2], (int)t.dim[1], 3, rgb);
    free(rgb);
    return rc;
}

static pl_status reconstruct(pl_prediction *p)
{
    int64_t n;
    pl_type t;
    pl_status rc = pl_predict_pictures(p, &n);
    if (rc != PL_OK) return rc;
    pl_predict_type(p, NULL, "image", &t);
    bool *ok = malloc((size_t)t.dim[0] * sizeof *ok);
    if (!ok) return PL_ERR_MEMORY;
    for (int64_t at = 0; at < n && rc == PL_OK; at += t.dim[0]) {
        int rows = (int)(n - at < t.dim[0] ? n - at : t.dim[0]);
        char path[4096];
        rc = pl_predict_read(p, at, rows, ok);
        if (rc == PL_OK) rc = pl_predict_run(p, NULL);
        for (int i = 0; i < rows && rc == PL_OK; i++) {
            if (!ok[i]) continue;
            rc = pl_predict_result(p, at + i, ".png", path, sizeof path);
            if (rc == PL_OK) rc = save(p, i, path);
        }
        if (rc == PL_OK) rc = pl_predict_progress(p, at + rows, n);
    }
    free(ok);
    return rc;
}

/* ---- samples ---------------------------------------------------------------------------- */
typedef struct job {
    pl_prediction *p;
    flux_sampler s;
    pl_type tokens;
    float *x, *v; /* tokens of a batch, and their velocity */
    double guidance;
    int64_t texts;
} job;

/* Runs the flow at a time; blank: with a text vector of zeros. Adds weight * velocity to v. */
static pl_status add_velocity(job *j, int64_t time, bool blank, double weight, float *text,
                              size_t text_bytes)
{
    int64_t *t = pl_predict_set(j->p, "flow", "t", NULL);
    void *tokens = pl_predict_set(j->p, "flow", "tokens", NULL),
         *words = pl_predict_set(j->p, "flow", "text", NULL);
    for (int64_t i = 0; i < j->tokens.dim[0]; i++) t[i] = time;
    memcpy(tokens, j->x, pl_type_bytes(&j->tokens));
    if (blank)
        memset(words, 0, text_bytes);
    else
        memcpy(words, text, text_bytes);
    pl_status rc = pl_predict_run(j->p, "flow");
    if (rc != PL_OK) return rc;
    const float *v = pl_predict_get(j->p, "flow", "v", NULL);
    int64_t n = (int64_t)(pl_type_bytes(&j->tokens) / sizeof *v);
    for (int64_t i = 0; i < n; i++) j->v[i] += (float)(weight * (double)v[i]);
    return PL_OK;
}

/* Samples texts [first, first + rows) and writes their pictures. */
static pl_status sample(job *j, int64_t first, int rows, float *text, const pl_type *text_type)
{
    uint64_t seed = (uint64_t)pl_config_int(pl_predict_config(j->p), "seed");
    int64_t batch = j->tokens.dim[0], per = j->tokens.dim[1] * j->tokens.dim[2];
    size_t bytes = pl_type_bytes(text_type);
    pl_status rc = PL_OK;
    for (int64_t i = 0; i < batch && rc == PL_OK; i++) {
        int64_t which = first + (i < rows ? i : 0);
        pl_sample_noise(pl_sample_seed(0xF107 + seed, PL_SUBSET_TRAIN, which), per, j->x + i * per);
        rc = pl_predict_text(j->p, which, text + i * text_type->dim[1], NULL);
    }
    for (int k = 0; k < j->s.steps && rc == PL_OK; k++) {
        memset(j->v, 0, pl_type_bytes(&j->tokens));
        rc = add_velocity(j, j->s.times[k], false, j->guidance, text, bytes);
        if (rc == PL_OK && j->guidance != 1)
            rc = add_velocity(j, j->s.times[k], true, 1 - j->guidance, text, bytes);
        if (rc == PL_OK) flux_sampler_step(&j->s, k, j->x, j->v, batch * per);
        if (rc == PL_OK)
            rc = pl_predict_progress(j->p, first + rows * (int64_t)(k + 1) / j->s.steps, j->texts);
    }
    if (rc != PL_OK) return rc;
    memcpy(pl_predict_set(j->p, NULL, "tokens", NULL), j->x, pl_type_bytes(&j->tokens));
    rc = pl_predict_run(j->p, NULL);
    for (int i = 0; i < rows && rc == PL_OK; i++) {
        char name[32], path[4096];
        snprintf(name, sizeof name, "%06lld.png", (long long)(first + i));
        rc = pl_predict_path(j->p, name, path, sizeof path);
        if (rc == PL_OK) rc = save(j->p, i, path);
        if (rc == PL_OK)
            rc = pl_predict_write(j->p, "tokens.npy", j->x + i * per, (size_t)per * sizeof *j->x);
    }
    return rc;
}

static pl_status sample_all(job *j, float *text, const pl_type *text_type)
{
    int64_t batch = j->tokens.dim[0];
    pl_status rc = pl_predict_npy(j->p, "tokens.npy",
                                  PL_TYPE(PL_F32, j->texts, j->tokens.dim[1], j->tokens.dim[2]));
    flux_sampler_times(&j->s);
    for (int64_t at = 0; at < j->texts && rc == PL_OK; at += batch)
        rc = sample(j, at, (int)(j->texts - at < batch ? j->texts - at : batch), text, text_type);
    return rc;
}

static pl_status make_samples(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    pl_type text_type;
    job j = {.p = p,
             .s = {.steps = (int)pl_config_int(c, "predict.steps"),
                   .dpm = strcmp(pl_config_text(c, "predict.sampler"), "dpm") == 0},
             .guidance = pl_config_float(c, "predict.guidance")};
    if (!pl_predict_set(p, "flow", "tokens", &j.tokens) ||
        !pl_predict_set(p, "flow", "text", &text_type))
        return PL_ERR_ARG;
    pl_type row = PL_TYPE(PL_F32, text_type.dim[1]);
    pl_status rc = pl_predict_texts(p, &row, &j.texts);
    if (rc != PL_OK) return rc;
    size_t bytes = pl_type_bytes(&j.tokens);
    float *text = malloc(pl_type_bytes(&text_type));
    j.x = malloc(bytes);
    j.v = malloc(bytes);
    j.s.last = malloc(bytes);
    j.s.times = malloc((size_t)j.s.steps * sizeof *j.s.times);
    rc = text && j.x && j.v && j.s.last && j.s.times ? sample_all(&j, text, &text_type)
                                                     : PL_ERR_MEMORY;
    free(text), free(j.x), free(j.v), free(j.s.last), free(j.s.times);
    return rc;
}

static pl_status run(pl_prediction *p)
{
    if (makes_samples(pl_predict_config(p))) return make_samples(p);
    if (pl_predict_prompt(p))
        return pl_fail(PL_ERR_CONFIG, "--prompt is for samples of the flow: predict.what=samples");
    return reconstruct(p);
}

/* Tokens, velocity and clean tokens of a batch, a text vector of each, and a picture as bytes. */
static uint64_t bytes(const pl_config *c)
{
    int scales = (int)pl_config_int(c, "model.scales");
    uint64_t h = (uint64_t)pl_config_int(c, "image"), w = (uint64_t)pl_config_int(c, "image_width");
    if (!w) w = h;
    uint64_t tokens = (h >> scales) * (w >> scales) * (uint64_t)pl_config_int(c, "model.dim");
    return (uint64_t)pl_config_int(c, "batch") *
               (3 * tokens + (uint64_t)pl_config_int(c, "flow.text")) * sizeof(float) +
           3 * h * w;
}

const pl_predict flux_predict = {
    .input = "a picture or a folder of pictures to reconstruct; for samples of the flow prompts, "
             "one a line, or embeddings (.npy, .safetensors)",
    .out = "a folder for PNG pictures",
    .build = build,
    .run = run,
    .bytes = bytes,
    .takes_prompt = true,
};
