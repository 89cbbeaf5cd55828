/* predict.c - latents and pictures of prompts: the student's sampling loop.
 *
 * DDIM as the authors sample: times fall evenly from 999 to 0, the share of the signal at time t is
 * a = 1 - t/1000, at least 0.001 and at most 0.999, and 1 after the last step; the student's output
 * is the noise in x = sqrt(a) clean + sqrt(1-a) noise. The program "project" takes the result to
 * the teacher's channels; with vae.weights the program "decode" makes a picture of these, with the
 * teacher's autoencoder (decoder.c). Prompt i starts from the noise of (seed, i).
 */
#include "wandistill.h"

#include <plimsoll_events.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool projects(const pl_config *c)
{
    return pl_config_bool(c, "predict.project") && !pl_config_bool(c, "seed_compat");
}

static bool decodes(const pl_config *c)
{
    return !pl_config_is_null(c, "vae.weights");
}

/* One picture at a time: a picture has far more activations than the student. */
static pl_status build_decoder(pl_builder *b, const wan_config *k)
{
    pl_nn *m = pl_builder_predict(b, "decode");
    wan_vae v;
    if (!projects(pl_builder_config(b)))
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "vae.weights: pictures need latents of the teacher's channels, and %s leaves "
                   "them out; unset it, or set vae.weights=null for the student's latents alone",
                   pl_config_bool(pl_builder_config(b), "seed_compat") ? "seed_compat=true"
                                                                       : "predict.project=false");
    else if (wan_vae_of(pl_builder_config(b), m, &v)) {
        m->frozen = true;
        pl_val z = pl_input(m->g, "latent",
                            PL_TYPE(PL_F32, 1, 1, k->latent, k->latent, k->teacher_channels));
        pl_val x = pl_cast(m->g, wan_decode(m, &v, z), PL_F32);
        pl_output(m->g, "image", pl_squeeze(m->g, x, 1));
        return PL_OK;
    }
    return pl_nn_finish(m);
}

static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_predict(b, NULL);
    wan_config k;
    if (wan_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_type latent = PL_TYPE(PL_F32, k.batch, k.latent, k.latent, k.channels);
    pl_val noise = wan_student(
        m, &k, pl_input(m->g, "latents", latent), pl_input(m->g, "t", PL_TYPE(PL_I64, k.batch)),
        pl_input(m->g, "text", PL_TYPE(PL_F32, k.batch, k.text_tokens, k.text_dim)));
    pl_output(m->g, "noise", pl_cast(m->g, noise, PL_F32));
    const pl_config *c = pl_builder_config(b);
    if (!projects(c)) return decodes(c) ? build_decoder(b, &k) : PL_OK;
    pl_nn *wide = pl_builder_predict(b, "project");
    pl_val x = pl_nn_conv2d(wide, pl_input(wide->g, "latents", latent), "project",
                            k.teacher_channels, (pl_nn_conv){.kernel = 1});
    pl_output(wide->g, "wide", pl_cast(wide->g, x, PL_F32));
    return decodes(c) ? build_decoder(b, &k) : PL_OK;
}

typedef struct job {
    pl_prediction *p;
    pl_type latents, text; /* of the student's inputs */
    int steps;
    int64_t prompts;
    float *x, *words; /* latents and embeddings of a batch */
    float *chw;       /* a latent in PyTorch's order */
    bool wide;
    float *kept;  /* the teacher's latents of a batch: the next program uses their memory */
    uint8_t *rgb; /* one picture; NULL without the autoencoder */
} job;

static double share_at(const job *j, int i, int64_t *time)
{
    double t = j->steps > 1 ? 999.0 - 999.0 * i / (j->steps - 1) : 999;
    *time = (int64_t)t;
    return fmin(fmax(1 - (double)*time / 1000, 1e-3), 1 - 1e-3);
}

static pl_status step(job *j, int i)
{
    int64_t time, later, n = (int64_t)(pl_type_bytes(&j->latents) / sizeof *j->x);
    double a = share_at(j, i, &time), b = i + 1 < j->steps ? share_at(j, i + 1, &later) : 1;
    int64_t *t = pl_predict_set(j->p, NULL, "t", NULL);
    for (int64_t k = 0; k < j->latents.dim[0]; k++) t[k] = time;
    memcpy(pl_predict_set(j->p, NULL, "latents", NULL), j->x, pl_type_bytes(&j->latents));
    memcpy(pl_predict_set(j->p, NULL, "text", NULL), j->words, pl_type_bytes(&j->text));
    pl_status rc = pl_predict_run(j->p, NULL);
    if (rc != PL_OK) return rc;
    const float *noise = pl_predict_get(j->p, NULL, "noise", NULL);
    for (int64_t k = 0; k < n; k++) {
        double clean = ((double)j->x[k] - sqrt(1 - a) * (double)noise[k]) / sqrt(a);
        j->x[k] = (float)(sqrt(b) * clean + sqrt(1 - b) * (double)noise[k]);
    }
    return PL_OK;
}

/* Appends rows latents (S,S,C) of x as [C,S,S] to an array. */
static pl_status write_rows(job *j, const char *file, const float *x, int64_t channels, int rows)
{
    int64_t area = j->latents.dim[1] * j->latents.dim[2], size = area * channels;
    pl_status rc = PL_OK;
    for (int64_t i = 0; i < rows && rc == PL_OK; i++) {
        for (int64_t k = 0; k < size; k++) {
            j->chw[k] = x[i * size + k % area * channels + k / area];
            if (!isfinite(j->chw[k]))
                return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights "
                                               "are damaged, or its training diverged");
        }
        rc = pl_predict_write(j->p, file, j->chw, (size_t)size * sizeof *j->chw);
    }
    return rc;
}

/* Decodes a latent (S,S,C) of the teacher's channels and writes it as picture i. Bytes are cut, not
 * rounded, as the authors' program does. */
static pl_status write_picture(job *j, const float *x, int64_t i)
{
    const pl_config *c = pl_predict_config(j->p);
    int numbers; /* of each list: as many as channels, which build has checked */
    const double *mean = pl_config_floats(c, "vae.mean", &numbers),
                 *deviation = pl_config_floats(c, "vae.std", &numbers);
    char name[32], path[4096];
    pl_type t;
    float *z = pl_predict_set(j->p, "decode", "latent", &t);
    int64_t channels = t.dim[4], n = t.dim[2] * t.dim[3] * channels;
    for (int64_t k = 0; k < n; k++)
        z[k] = (float)((double)x[k] * deviation[k % channels] + mean[k % channels]);
    pl_status rc = pl_predict_run(j->p, "decode");
    const float *image = rc == PL_OK ? pl_predict_get(j->p, "decode", "image", &t) : NULL;
    if (!image) return rc;
    n = t.dim[1] * t.dim[2] * t.dim[3];
    for (int64_t k = 0; k < n; k++) {
        if (!isfinite(image[k]))
            return pl_fail(PL_ERR_NUMERIC, "the autoencoder's picture is not finite: the weights "
                                           "of vae.weights are damaged");
        j->rgb[k] = (uint8_t)(((double)image[k] + 1) * 127.5);
    }
    snprintf(name, sizeof name, "%06lld.png", (long long)i);
    rc = pl_predict_path(j->p, name, path, sizeof path);
    return rc == PL_OK ? pl_png_save(path, (int)t.dim[2], (int)t.dim[1], 3, j->rgb) : rc;
}

/* Samples prompts [first, first + rows). */
static pl_status sample(job *j, int64_t first, int rows)
{
    uint64_t seed = (uint64_t)pl_config_int(pl_predict_config(j->p), "seed");
    int64_t per = j->latents.dim[1] * j->latents.dim[2] * j->latents.dim[3];
    int64_t text = j->text.dim[1] * j->text.dim[2];
    pl_status rc = PL_OK;
    for (int64_t i = 0; i < j->latents.dim[0] && rc == PL_OK; i++) {
        int64_t which = first + (i < rows ? i : 0); /* a last batch repeats a prompt */
        pl_sample_noise(pl_sample_seed(0x3A71 + seed, PL_SUBSET_TRAIN, which), per, j->x + i * per);
        rc = pl_predict_text(j->p, which, j->words + i * text, NULL);
    }
    for (int i = 0; i < j->steps && rc == PL_OK; i++) {
        rc = step(j, i);
        if (rc == PL_OK)
            rc = pl_predict_progress(j->p, first + rows * (int64_t)(i + 1) / j->steps, j->prompts);
    }
    if (rc == PL_OK) rc = write_rows(j, "latents.npy", j->x, j->latents.dim[3], rows);
    if (rc != PL_OK || !j->wide) return rc;
    memcpy(pl_predict_set(j->p, "project", "latents", NULL), j->x, pl_type_bytes(&j->latents));
    rc = pl_predict_run(j->p, "project");
    pl_type t;
    const float *wide = rc == PL_OK ? pl_predict_get(j->p, "project", "wide", &t) : NULL;
    if (!wide) return rc;
    rc = write_rows(j, "teacher_latents.npy", wide, t.dim[3], rows);
    if (j->rgb) memcpy(j->kept, wide, pl_type_bytes(&t));
    for (int64_t i = 0; i < rows && rc == PL_OK && j->rgb; i++)
        rc = write_picture(j, j->kept + i * t.dim[1] * t.dim[2] * t.dim[3], first + i);
    return rc;
}

static pl_status sample_all(job *j)
{
    int64_t side = j->latents.dim[1], batch = j->latents.dim[0];
    pl_type t;
    pl_status rc = pl_predict_npy(j->p, "latents.npy",
                                  PL_TYPE(PL_F32, j->prompts, j->latents.dim[3], side, side));
    if (rc == PL_OK && j->wide && pl_predict_type(j->p, "project", "wide", &t))
        rc = pl_predict_npy(j->p, "teacher_latents.npy",
                            PL_TYPE(PL_F32, j->prompts, t.dim[3], side, side));
    for (int64_t at = 0; at < j->prompts && rc == PL_OK; at += batch)
        rc = sample(j, at, (int)(j->prompts - at < batch ? j->prompts - at : batch));
    if (rc == PL_OK && !j->rgb)
        pl_predict_note(j->p, "latents only: vae.weights=FILE, the autoencoder of Wan 2.1, makes "
                              "pictures of them");
    return rc;
}

static int64_t most_channels(const pl_config *c)
{
    int64_t own = pl_config_int(c, "student.channels"), wide = pl_config_int(c, "teacher.channels");
    return own > wide ? own : wide;
}

static pl_status run(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    job j = {.p = p, .steps = (int)pl_config_int(c, "predict.steps"), .wide = projects(c)};
    if (!pl_predict_set(p, NULL, "latents", &j.latents) ||
        !pl_predict_set(p, NULL, "text", &j.text))
        return PL_ERR_ARG;
    pl_type row = PL_TYPE(PL_F32, j.text.dim[1], j.text.dim[2]);
    pl_status rc = pl_predict_texts(p, &row, &j.prompts);
    if (rc != PL_OK) return rc;
    size_t area = (size_t)(j.latents.dim[1] * j.latents.dim[2]);
    j.x = malloc(pl_type_bytes(&j.latents));
    j.words = malloc(pl_type_bytes(&j.text));
    j.chw = malloc(area * (size_t)most_channels(c) * sizeof *j.chw);
    pl_type t;
    bool pictures = pl_predict_type(p, "decode", "image", &t);
    if (pictures) j.rgb = malloc((size_t)(t.dim[1] * t.dim[2] * t.dim[3]));
    if (pictures && pl_predict_type(p, "project", "wide", &t)) j.kept = malloc(pl_type_bytes(&t));
    bool room = j.x && j.words && j.chw && ((j.rgb && j.kept) || !pictures);
    rc = room ? sample_all(&j) : PL_ERR_MEMORY;
    free(j.x), free(j.words), free(j.chw), free(j.rgb), free(j.kept);
    return rc;
}

/* Latents and embeddings of a batch, a latent to write, and a picture with room to encode it. */
static uint64_t bytes(const pl_config *c)
{
    int levels;
    pl_config_ints(c, "vae.mult", &levels);
    uint64_t side = (uint64_t)pl_config_int(c, "latent"), area = side * side;
    uint64_t words = (uint64_t)(pl_config_int(c, "text.tokens") * pl_config_int(c, "text.dim"));
    uint64_t x = area * (uint64_t)pl_config_int(c, "student.channels");
    uint64_t picture = decodes(c) && levels > 0 && levels <= WAN_VAE_LEVELS
                           ? 2 * 3 * (area << 2 * (levels - 1)) + ((uint64_t)1 << 20)
                           : 0;
    uint64_t wide = area * (uint64_t)most_channels(c);
    return ((uint64_t)pl_config_int(c, "batch") * (x + words + wide) + wide) * sizeof(float) +
           picture;
}

const pl_predict wan_predict = {
    .input = "embeddings of prompts (.npy, or the array \"text\" of a .safetensors file), as "
             "`plimsoll embed` writes them, or a text file with lines of data.prompts",
    .out = "a folder for latents.npy, teacher_latents.npy and, with vae.weights, PNG pictures",
    .build = build,
    .run = run,
    .bytes = bytes,
    .takes_prompt = true,
};
