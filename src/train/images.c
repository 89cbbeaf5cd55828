/* images.c - see images.h. */
#include "train/images.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "base/sys.h"
#include "data/images.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_IMAGES = 8, DRAW_STREAM = 0xD4A3 };

struct pl_images {
    pl_image_set *set;
    pl_pixels shape[2][MAX_IMAGES]; /* of one sample, by subset; data is NULL */
    int n;
};

static bool has_arrays(const char *path)
{
    static const char *const tails[] = {".npy", ".safetensors", ".h5", ".hdf5"};
    char sub[4096];
    struct stat st;
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t m = strlen(tails[i]);
        if (n >= m && strcmp(path + n - m, tails[i]) == 0) return true;
        snprintf(sub, sizeof sub, "%s/train%s", path, tails[i]);
        if (stat(sub, &st) == 0) return true;
    }
    return false;
}

/* A folder made by `generate` has one array an input. */
static bool has_input_files(const pl_run *r, const char *path)
{
    char sub[4096];
    struct stat st;
    snprintf(sub, sizeof sub, "%s/train/%s.npy", path, r->recipe->images->images[0].name);
    return stat(sub, &st) == 0;
}

bool pl__images_wanted(const pl_run *r)
{
    const char *source = pl_config_text(r->config, "data.source");
    if (pl_config_is_null(r->config, "data.path")) return false;
    if (strcmp(source, "folder") == 0 || strcmp(source, "tar") == 0) return true;
    const char *path = pl_config_text(r->config, "data.path");
    return strcmp(source, "auto") == 0 && r->recipe->images && !has_arrays(path) &&
           !has_input_files(r, path);
}

/* [C,H,W] or [H,W,C] of an input. */
static pl_status shape_of(const pl_image_input *in, const pl_program *p, pl_pixels *out)
{
    pl_type t = {0};
    char text[96];
    for (int i = 0; i < pl_program_input_count(p); i++)
        if (strcmp(pl_program_input_name(p, i), in->name) == 0) t = pl_program_input_type(p, i);
    bool first = t.rank == 4 && (t.dim[1] == 3 || t.dim[1] == 1);
    bool last = t.rank == 4 && !first && (t.dim[3] == 3 || t.dim[3] == 1);
    PL_FAIL_IF((!first && !last) || (t.dtype != PL_F32 && t.dtype != PL_U8), PL_ERR_CONFIG,
               "input \"%s\" is %s: an image is f32 or u8, [batch, 3, height, width] or [batch, height, "
               "width, 3]", in->name, pl_type_text(&t, text, sizeof text));
    *out = (pl_pixels){.channels = (int)t.dim[first ? 1 : 3],
                       .h = (int)t.dim[first ? 2 : 1],
                       .w = (int)t.dim[first ? 3 : 2],
                       .planar = first,
                       .bytes = t.dtype == PL_U8,
                       .low = in->low,
                       .high = in->high};
    return PL_OK;
}

static bool is_fed(const pl_image_feed *f, const char *name)
{
    for (const pl_image_input *i = f->images; i->name; i++)
        if (strcmp(i->name, name) == 0) return true;
    return (f->label && strcmp(f->label, name) == 0) || (f->text && strcmp(f->text, name) == 0);
}

static pl_status find_shapes(const pl_run *r, pl_pixels shape[2][MAX_IMAGES], int *n)
{
    const pl_image_feed *f = r->recipe->images;
    PL_FAIL_IF(!f, PL_ERR_CONFIG, "recipe %s is not fed with images: data.source=arrays reads arrays",
               r->recipe->name);
    const pl_program *programs[2] = {r->train, r->eval};
    for (int s = 0; s < 2 && programs[s]; s++) {
        for (*n = 0; f->images[*n].name && *n < MAX_IMAGES; ++*n)
            PL_TRY(shape_of(&f->images[*n], programs[s], &shape[s][*n]));
        for (int i = 0; i < pl_program_input_count(programs[s]); i++) {
            const char *name = pl_program_input_name(programs[s], i);
            PL_FAIL_IF(!is_fed(f, name), PL_ERR_CONFIG, "images do not feed input \"%s\" of recipe %s",
                       name, r->recipe->name);
        }
    }
    return PL_OK;
}

static void largest(pl_pixels shape[2][MAX_IMAGES], int n, int *w, int *h)
{
    *w = *h = 1;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < n; i++) {
            if (shape[s][i].w > *w) *w = shape[s][i].w;
            if (shape[s][i].h > *h) *h = shape[s][i].h;
        }
}

/* What a reading thread keeps: JPEGs are decoded to less than twice the wanted size in each
 * direction, 4 bytes a pixel; the resized image and the strip between the passes; a file. */
static size_t keep_bytes(int w, int h)
{
    return (size_t)w * (size_t)h * 16 + (1 << 20);
}

uint64_t pl__images_bytes(const pl_run *r, int threads)
{
    pl_pixels shape[2][MAX_IMAGES] = {0};
    int n = 0, w, h;
    if (!pl__images_wanted(r) || find_shapes(r, shape, &n) != PL_OK) return 0;
    largest(shape, n, &w, &h);
    return (uint64_t)threads * (keep_bytes(w, h) + (size_t)w * (size_t)h * 12 + (1 << 20));
}

static pl_augment augment_of(const pl_config *c)
{
    int n;
    const char *crop = pl_config_text(c, "data.crop");
    pl_augment a = {.crop = strcmp(crop, "random") == 0    ? PL_CROP_RANDOM
                            : strcmp(crop, "stretch") == 0 ? PL_CROP_STRETCH
                                                           : PL_CROP_CENTER,
                    .scale = {1, 1},
                    .flip = pl_config_float(c, "data.flip"),
                    .erase = pl_config_float(c, "data.erase")};
    const double *scale = pl_config_floats(c, "data.crop_scale", &n);
    for (int i = 0; i < 2 && i < n; i++) a.scale[i] = scale[i];
    const double *jitter = pl_config_floats(c, "data.jitter", &n);
    for (int i = 0; i < 4 && i < n; i++) a.jitter[i] = jitter[i];
    return a;
}

static pl_on_bad policy_of(const pl_config *c)
{
    const char *text = pl_config_text(c, "data.on_bad");
    return strcmp(text, "skip") == 0 ? PL_BAD_SKIP : strcmp(text, "fail") == 0 ? PL_BAD_FAIL : PL_BAD_QUARANTINE;
}

static pl_status open_set(pl_run *r, struct pl_images *m, int threads)
{
    const pl_config *c = r->config;
    const char *source = pl_config_text(c, "data.source"), *path = pl_config_text(c, "data.path");
    PL_TRY(find_shapes(r, m->shape, &m->n));
    PL_FAIL_IF(strcmp(source, "tar") == 0 && !pl_items_is_tar(path), PL_ERR_DATA,
               "data.source=tar: %s is no .tar and holds none", path);
    pl_image_set_opts o = {
        .items = {.path = path,
                  .captions = pl_config_is_null(c, "data.captions") ? NULL : pl_config_text(c, "data.captions"),
                  .eval_share = r->eval ? pl_config_float(c, "data.eval_share") : 0},
        .limits = PL_IMAGE_LIMITS_INIT,
        .augment = augment_of(c),
        .on_bad = policy_of(c),
        .quarantine = pl_config_is_null(c, "data.quarantine") ? "quarantine.txt" : pl_config_text(c, "data.quarantine"),
        .balance = pl_config_bool(c, "data.balance"),
        .threads = threads};
    o.limits.max_pixels = pl_config_int(c, "data.max_pixels");
    o.limits.min_side = (int)pl_config_int(c, "data.min_side");
    largest(m->shape, m->n, &o.most_w, &o.most_h);
    o.keep_bytes = keep_bytes(o.most_w, o.most_h);
    PL_TRY(pl_image_set_open(&o, &m->set));
    PL_FAIL_IF(pl_image_set_size(m->set, false) == 0, PL_ERR_DATA,
               "%s: no image is left for training", path);
    return PL_OK;
}

pl_status pl__images_open(pl_run *r, int threads)
{
    r->images = pl_sys_alloc(sizeof *r->images);
    if (!r->images) return PL_ERR_MEMORY;
    return open_set(r, r->images, threads);
}

void pl__images_close(pl_run *r)
{
    if (r->images) pl_image_set_close(r->images->set);
    pl_sys_free(r->images);
    r->images = NULL;
}

int64_t pl__images_size(const pl_run *r, pl_subset subset)
{
    return pl_image_set_size(r->images->set, subset == PL_SUBSET_EVAL);
}

int64_t pl__images_pick(const pl_run *r, uint64_t seed, int64_t p)
{
    const pl_image_set *s = r->images->set;
    uint32_t word[4];
    if (!pl_image_set_weighted(s)) return pl__sample_at(seed, pl_image_set_size(s, false), p);
    pl_rng_block(seed, DRAW_STREAM, 0, (uint64_t)p, word);
    return pl_image_set_draw(s, ((double)word[0] + (double)(word[1] >> 11) * 0x1p-21) * 0x1p-32);
}

static void write_label(void *to, const pl_type *t, int i, int64_t label)
{
    if (t->dtype == PL_I64) ((int64_t *)to)[i] = label;
    else if (t->dtype == PL_I32) ((int32_t *)to)[i] = (int32_t)label;
    else if (t->dtype == PL_F32) ((float *)to)[i] = (float)label;
}

static pl_status write_text(pl_run *r, const char *caption, int i, pl_batch *batch)
{
    const pl_image_feed *f = r->recipe->images;
    pl_type t;
    char *to = f->text && f->encode ? pl_batch_input(batch, f->text, &t) : NULL;
    if (!to) return PL_OK;
    pl_type row = pl_type_make(t.dtype, t.rank - 1, t.dim + 1);
    return f->encode(r->config, caption, to + (size_t)i * pl_type_bytes(&row), &row);
}

static pl_status read_one(pl_run *r, pl_image_read *read, int i, pl_batch *batch)
{
    const pl_image_feed *f = r->recipe->images;
    pl_pixels to[MAX_IMAGES];
    int n = 0;
    for (int k = 0; k < r->images->n; k++) {
        char *all = pl_batch_input(batch, f->images[k].name, NULL);
        if (!all) continue;
        to[n] = r->images->shape[read->eval][k];
        size_t bytes = (size_t)to[n].w * (size_t)to[n].h * (size_t)to[n].channels *
                       (to[n].bytes ? 1 : sizeof(float));
        to[n++].data = all + (size_t)i * bytes;
    }
    read->to = to;
    read->n_to = n;
    PL_TRY(pl_image_set_read(r->images->set, read));
    pl_type t;
    void *label = f->label ? pl_batch_input(batch, f->label, &t) : NULL;
    if (label) write_label(label, &t, i, read->label);
    return write_text(r, read->caption, i, batch);
}

pl_status pl__images_read(pl_run *r, pl_subset subset, int64_t number, const int64_t *samples,
                          pl_batch *batch, int thread)
{
    int64_t size = pl__images_size(r, subset);
    for (int64_t i = 0; i < r->micro; i++) {
        pl_image_read read = {.eval = subset == PL_SUBSET_EVAL,
                              .want_text = r->recipe->images->text != NULL,
                              .seed = (uint64_t)pl_config_int(r->config, "seed"),
                              .epoch = pl__ranks_position(r, number, i) / (size ? size : 1),
                              .sample = samples[i],
                              .thread = thread};
        /* Drawn with replacement, a sample comes more than once an epoch: the position tells them apart. */
        if (pl_image_set_weighted(r->images->set)) read.epoch = pl__ranks_position(r, number, i);
        PL_TRY(read_one(r, &read, (int)i, batch));
    }
    return PL_OK;
}

int64_t pl_run_bad_files(const pl_run *r)
{
    return r->images ? pl_image_set_bad_count(r->images->set) : 0;
}

const char *pl_run_bad_file(const pl_run *r, int64_t k, char *buf, size_t cap)
{
    return r->images ? pl_image_set_bad(r->images->set, k, buf, cap) : NULL;
}
