/* latents.c - generated latents of several styles, in the shape of an autoencoder's (H,W,C).
 *
 * A sample is a pure function of its number. Content is a few soft blobs at separate places; a
 * style is how they are painted: the direction and pitch of brush strokes, their strength, and
 * which channels carry them. So a network can keep the blobs and change the strokes.
 */
#include "lgt.h"
#include "recipes/mix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct latents {
    int64_t samples, eval_samples, styles;
    lgt_shape shape;
    lgt_files *files; /* NULL: generated */
} latents;

static double unit(uint64_t seed, int k)
{
    return mix_unit(seed + (uint64_t)(k + 1) * MIX_STEP);
}

/* One latent of content `seed` in a style. */
static void paint(const latents *d, uint64_t seed, int64_t style, float *out)
{
    enum { BLOBS = 4 };
    int64_t columns = d->shape.columns, channels = d->shape.channels;
    double n = (double)d->shape.rows, angle = 0.6 + 1.9 * (double)style,
           pitch = 3.0 + 2.5 * (double)style;
    double strength = 0.9 / (1.0 + 0.8 * (double)style), phase = 6.283 * unit(seed, 90);
    for (int64_t y = 0; y < d->shape.rows; y++)
        for (int64_t x = 0; x < columns; x++) {
            double u = (double)x / n, v = (double)y / n, c[4] = {0, 0, 0, 0};
            for (int k = 0; k < BLOBS; k++) {
                double dx = u - unit(seed, 4 * k), dy = v - unit(seed, 4 * k + 1);
                double r = 0.12 + 0.15 * unit(seed, 4 * k + 2);
                c[k] = 2 * (unit(seed, 4 * k + 3) - 0.2) * exp(-(dx * dx + dy * dy) / (2 * r * r));
            }
            double stroke =
                strength * sin(pitch * 6.283 * (u * cos(angle) + v * sin(angle)) + phase);
            for (int k = 0; k < channels; k++) {
                int at = (int)((y * columns + x) * channels + k);
                double grain = 0.2 * (unit(seed, 100 + at) - 0.5);
                double share = (k + style) % 2 ? 0.3 : 1;
                *out++ =
                    (float)(c[k % 4] + share * stroke + grain + 0.25 * (double)style * (k == 0));
            }
        }
}

/* ---- the recipe's data: these, or the authors' files --------------------------------------- */
static pl_status open_files(const pl_config *c, latents *d)
{
    pl_status rc = lgt_files_open(c, &d->files);
    if (rc != PL_OK) return rc;
    if (lgt_files_size(d->files, PL_SUBSET_TRAIN) > 0) return PL_OK;
    return pl_fail(PL_ERR_DATA, "%s: all latents are for evaluation (data.eval_share)",
                   pl_config_text(c, "data.latents"));
}

static latents from_config(const pl_config *c)
{
    return (latents){.samples = pl_config_int(c, "data.samples"),
                     .eval_samples = pl_config_int(c, "data.eval_samples"),
                     .shape = lgt_shape_of(c),
                     .styles = pl_config_int(c, "model.styles")};
}

pl_status lgt_data_open(const pl_config *c, void **data)
{
    latents *d = calloc(1, sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    *d = from_config(c);
    pl_status rc = pl_config_is_null(c, "data.latents") ? PL_OK : open_files(c, d);
    if (rc == PL_OK)
        *data = d;
    else
        lgt_data_close(d);
    return rc;
}

void lgt_data_close(void *data)
{
    latents *d = data;
    if (d) lgt_files_close(d->files);
    free(d);
}

uint64_t lgt_data_bytes(const pl_config *c)
{
    return pl_config_is_null(c, "data.latents") ? 0 : lgt_files_bytes(c);
}

int64_t lgt_data_size(void *data, pl_subset subset)
{
    const latents *d = data;
    if (d->files) return lgt_files_size(d->files, subset);
    return subset == PL_SUBSET_TRAIN ? d->samples : d->eval_samples;
}

static uint64_t seed_of(pl_subset subset, int64_t sample)
{
    uint64_t world = subset == PL_SUBSET_TRAIN ? 0x16A7000000000000u : 0xE7A1000000000000u;
    return mix(world + (uint64_t)sample);
}

static int64_t style_of(const latents *d, uint64_t seed)
{
    return (int64_t)(unit(seed, 91) * (double)d->styles);
}

/* One row of each input that exists. */
typedef struct row {
    float *src, *ref;
    int64_t *wanted, *given;
} row;

static void generate(const latents *d, pl_subset subset, int64_t sample, int64_t pass, row to)
{
    uint64_t seed = seed_of(subset, sample), joined = pass ? mix(seed + (uint64_t)pass) : seed;
    int64_t from = style_of(d, seed), wanted = (int64_t)(unit(joined, 92) * (double)d->styles);
    if (to.src) paint(d, seed, from, to.src);
    if (to.ref) paint(d, mix(joined + 93), wanted, to.ref);
    if (to.wanted) *to.wanted = wanted;
    if (to.given) *to.given = from;
}

static void copy(const latents *d, pl_subset subset, int64_t sample, int64_t pass, row to)
{
    size_t bytes = (size_t)lgt_numbers(d->shape) * sizeof(float);
    lgt_pair p = lgt_files_pair(d->files, subset, sample, pass);
    if (to.src) memcpy(to.src, p.src, bytes);
    if (to.ref) memcpy(to.ref, p.ref, bytes);
    if (to.wanted) *to.wanted = p.to;
    if (to.given) *to.given = p.from;
}

pl_status lgt_data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    const latents *d = data;
    row first = {pl_batch_input(batch, "src", NULL), pl_batch_input(batch, "style_ref", NULL),
                 pl_batch_input(batch, "style", NULL), pl_batch_input(batch, "source", NULL)};
    int64_t size = lgt_numbers(d->shape);
    for (int i = 0; i < n; i++) {
        row to = {first.src ? first.src + i * size : NULL, first.ref ? first.ref + i * size : NULL,
                  first.wanted ? first.wanted + i : NULL, first.given ? first.given + i : NULL};
        (d->files ? copy : generate)(d, subset, sample[i], pl_batch_pass(batch, i), to);
    }
    return PL_OK;
}

/* A folder and the one above it. */
static pl_status make_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    if (slash) mkdir(path, 0777);
    if (slash) *slash = '/';
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return pl_fail(PL_ERR_FILE, "%s: cannot be made", path);
    return PL_OK;
}

pl_status lgt_data_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir)
{
    latents d = from_config(c);
    uint64_t seed = seed_of(subset, sample);
    int64_t style = style_of(&d, seed);
    int n;
    const char *const *folder = pl_config_texts(c, "data.style_dirs", &n);
    char path[4096];
    if (n != d.styles)
        return pl_fail(PL_ERR_CONFIG, "data.style_dirs names %d folders, model.styles is %lld", n,
                       (long long)d.styles);
    float *x = malloc((size_t)lgt_numbers(d.shape) * sizeof *x);
    if (!x) return PL_ERR_MEMORY;
    paint(&d, seed, style, x);
    snprintf(path, sizeof path, "%s/%s%s", dir, subset == PL_SUBSET_TRAIN ? "" : "eval/",
             folder[style]);
    pl_status rc = make_folder(path);
    size_t at = strlen(path);
    snprintf(path + at, sizeof path - at, "/%06lld.pt", (long long)sample);
    if (rc == PL_OK) rc = lgt_pt_write(path, d.shape, x);
    free(x);
    return rc;
}
