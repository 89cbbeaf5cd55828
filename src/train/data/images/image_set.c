/* image_set.c - see image_set.h.
 *
 * A set of images is opened once, with scratch memory for every reading thread. One worker of the
 * ring reads a batch, or the caller's team does, each thread taking every n-th sample. Of several
 * failures the failure of the first sample is reported, so that the message does not depend on the
 * number of threads.
 */
#include "train/data/images/image_set.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "base/trust/sandbox.h"
#include "data/sets/items.h"
#include "train/data/cache.h"
#include "train/data/mix_batch.h"
#include "train/data/prefetch.h"
#include "train/data/text_set.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static bool is_array(const char *name)
{
    static const char *const tails[] = {".npy", ".npz", ".safetensors", ".h5", ".hdf5", ".bin"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t m = strlen(tails[i]);
        if (n > m && strcmp(name + n - m, tails[i]) == 0) return true;
    }
    return false;
}

static bool is_table(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".csv") == 0;
}

/* Whether the folder has arrays, or a table of samples: a table of labels belongs to images, and
 * model files in a folder of a run to the run. */
static bool folder_has_arrays(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false, run = pl_is_run_folder(path);
    if (!folder) return false;
    for (struct dirent *e; !found && (e = readdir(folder));)
        found = (is_array(e->d_name) && !(run && strncmp(e->d_name, "model", 5) == 0)) ||
                strcmp(e->d_name, "train.csv") == 0;
    closedir(folder);
    return found;
}

/* Arrays lie at the path, in its folder train, or in folders of pieces there (docs/DATA.md). */
static bool has_arrays(const pl_run *r, const char *path)
{
    char sub[4096];
    if (is_array(path) || is_table(path) || folder_has_arrays(path)) return true;
    snprintf(sub, sizeof sub, "%s/train", path);
    if (folder_has_arrays(sub)) return true;
    if (!r->recipe->images || !r->recipe->images->images) return false;
    snprintf(sub, sizeof sub, "%s/train/%s", path, r->recipe->images->images[0].name);
    return folder_has_arrays(sub);
}

bool pl__images_wanted(const pl_run *r)
{
    const char *source = pl_config_text(r->config, "data.source");
    if (pl_config_is_null(r->config, "data.path") || pl__cache_wanted(r)) return false;
    if (strcmp(source, "folder") == 0 || strcmp(source, "tar") == 0) return true;
    const char *path = pl_config_text(r->config, "data.path");
    bool fed = r->recipe->images && r->recipe->images->images;
    return strcmp(source, "auto") == 0 && fed && !has_arrays(r, path);
}

pl_status pl__image_shape(const pl_image_input *in, const pl_program *p, pl_pixels *out)
{
    pl_type t = {0};
    char text[96];
    bool there = false;
    for (int i = 0; i < pl_program_input_count(p); i++)
        if (strcmp(pl_program_input_name(p, i), in->name) == 0)
            t = pl_program_input_type(p, i), there = true;
    if (!there) return PL_OK;
    bool first = t.rank == 4 && (t.dim[1] == 3 || t.dim[1] == 1);
    bool last = t.rank == 4 && !first && (t.dim[3] == 3 || t.dim[3] == 1);
    PL_FAIL_IF(
        (!first && !last) || (t.dtype != PL_F32 && t.dtype != PL_U8), PL_ERR_CONFIG,
        "input \"%s\" is %s: an image is f32 or u8, [batch, 3, height, width] or [batch, height, "
        "width, 3]",
        in->name, pl_type_text(&t, text, sizeof text));
    *out = (pl_pixels){.channels = (int)t.dim[first ? 1 : 3],
                       .h = (int)t.dim[first ? 2 : 1],
                       .w = (int)t.dim[first ? 3 : 2],
                       .planar = first,
                       .bytes = t.dtype == PL_U8,
                       .low = in->low,
                       .high = in->high};
    return PL_OK;
}

/* Whether the recipe computes this input from the image (pl_image_feed.made). */
static bool is_made(const pl_image_feed *f, const char *name)
{
    for (const char *const *m = f->made; m && *m; m++)
        if (strcmp(*m, name) == 0) return true;
    return false;
}

static bool is_fed(const pl_image_feed *f, const char *name)
{
    for (const pl_image_input *i = f->images; i->name; i++)
        if (strcmp(i->name, name) == 0) return true;
    if (is_made(f, name) || pl__mix_fills(name)) return true;
    if (f->mask && strcmp(f->mask, name) == 0) return true;
    return (f->label && strcmp(f->label, name) == 0) || (f->text && strcmp(f->text, name) == 0);
}

/* Returns the first image input that the program reads. */
static const pl_pixels *first_of(const pl_pixels *shape, int n)
{
    int k = 0;
    while (k + 1 < n && !shape[k].w) k++;
    return &shape[k];
}

static bool reads(const pl_program *p, const char *name)
{
    for (int i = 0; i < pl_program_input_count(p); i++)
        if (strcmp(pl_program_input_name(p, i), name) == 0) return true;
    return false;
}

/* Returns the program of a step that reads an image: the training program, or another one. */
static const pl_program *reader_of(const pl_run *r, int bucket, const pl_program *train,
                                   const char *name)
{
    const pl_step_program *list = r->build->variants[bucket].step_programs;
    for (int i = 0; i < r->build->now->n_step_programs && !reads(train, name); i++)
        if (reads(list[i].run, name)) return list[i].run;
    return train;
}

static pl_status find_shapes(const pl_run *r, int bucket, pl_image_shapes shape, int *n)
{
    const pl_image_feed *f = r->recipe->images;
    PL_FAIL_IF(!f || !f->images, PL_ERR_CONFIG,
               "recipe %s is not fed with images: data.source=arrays reads arrays",
               r->recipe->name);
    const pl_program *programs[2] = {r->build->variants[bucket].train,
                                     r->build->variants[bucket].eval};
    if (r->purpose.goal == PL_GOAL_ENCODE) programs[1] = programs[0];
    for (int s = 0; s < 2 && programs[s]; s++) {
        for (*n = 0; f->images[*n].name && *n < PL_MAX_IMAGES; ++*n)
            PL_TRY(pl__image_shape(&f->images[*n],
                                   s ? programs[s]
                                     : reader_of(r, bucket, programs[s], f->images[*n].name),
                                   &shape[s][*n]));
        for (int i = 0; i < pl_program_input_count(programs[s]); i++) {
            const char *name = pl_program_input_name(programs[s], i);
            PL_FAIL_IF(!is_fed(f, name), PL_ERR_CONFIG,
                       "images do not feed input \"%s\" of recipe %s", name, r->recipe->name);
        }
        PL_FAIL_IF(!first_of(shape[s], *n)->w, PL_ERR_CONFIG,
                   "recipe %s reads no image \"%s\" here", r->recipe->name, f->images[0].name);
    }
    return PL_OK;
}

/* Largest width and height over all buckets. */
static pl_status largest(const pl_run *r, int *w, int *h)
{
    *w = *h = 1;
    for (int k = 0; k < r->build->n_variants; k++) {
        pl_image_shapes shape = {0};
        int n = 0;
        PL_TRY(find_shapes(r, k, shape, &n));
        for (int i = 0; i < 2 * n; i++) {
            const pl_pixels *p = &shape[i % 2][i / 2];
            if (p->w > *w) *w = p->w;
            if (p->h > *h) *h = p->h;
        }
    }
    return PL_OK;
}

/* Returns the filter of data.resize; auto: the filter of the recipe's authors. */
static pl_filter filter_of(const pl_run *r)
{
    const char *name = pl_config_text(r->config, "data.resize");
    bool lanczos = strcmp(name, "auto") == 0 ? (r->recipe->images && r->recipe->images->lanczos)
                                             : strcmp(name, "lanczos") == 0;
    return lanczos ? PL_FILTER_LANCZOS : PL_FILTER_TRIANGLE;
}

/* JPEGs are decoded at most this many times larger than needed, in each direction. */
static size_t most_larger(pl_filter f)
{
    return f == PL_FILTER_LANCZOS ? 4 : 2;
}

/* Scratch of a reading thread: a decoded JPEG, 4 bytes per pixel, and the file. */
static size_t keep_bytes(pl_filter f, int w, int h)
{
    return (size_t)w * (size_t)h * 4 * most_larger(f) * most_larger(f) + (1 << 20);
}

/* Scratch of resizing: the result, the strip between the two passes, tables. */
static size_t resize_bytes(pl_filter f, int w, int h)
{
    return (size_t)w * (size_t)h * 3 * (2 + most_larger(f)) + (1 << 20);
}

uint64_t pl__image_thread_bytes(const pl_run *r, int w, int h)
{
    return keep_bytes(filter_of(r), w, h) + resize_bytes(filter_of(r), w, h);
}

uint64_t pl__images_bytes(const pl_run *r, int threads)
{
    int w, h;
    if (!pl__images_wanted(r) || largest(r, &w, &h) != PL_OK) return 0;
    const pl_image_feed *f = r->recipe->images;
    bool apart;
    if (pl_sandbox_wanted(&apart) != PL_OK) apart = false; /* opening the set says why */
    uint64_t made = f->made ? f->make_bytes(r->config, w, h) + (uint64_t)w * (uint64_t)h * 3 : 0;
    return (uint64_t)threads *
               (pl__image_thread_bytes(r, w, h) + made + (apart ? PL_SANDBOX_BYTES : 0)) +
           (uint64_t)pl_config_size(r->config, "data.large_memory");
}

/* The room for large images is what the plan keeps free for them, and what else of the budget
 * neither the plan nor the readers, which are about to start, take. */
static void bound_memory(const pl_run *r, pl_image_set_opts *o, int w, int h)
{
    pl_run_memory m = pl_run_memory_get(r);
    uint64_t large = (uint64_t)pl_config_size(r->config, "data.large_memory"),
             taken = m.total + pl_prefetch_bytes(r);
    if (!m.budget || pl__run_own_memory(r)) return;
    o->bounded = true;
    o->thread_bytes = (size_t)pl__image_thread_bytes(r, w, h);
    o->room_bytes = (size_t)(large + (m.budget > taken ? m.budget - taken : 0));
}

/* ---- inputs that the recipe computes from the image ------------------------------------- */
static pl_status open_makers(pl_run *r, struct pl_images *m, int threads)
{
    const pl_image_feed *f = r->recipe->images;
    const pl_pixels *p = first_of(m->shape[0][0], m->n);
    if (!f->made) return PL_OK;
    PL_FAIL_IF(pl_run_bucket_count(r), PL_ERR_CONFIG,
               "data.buckets: recipe %s makes inputs of one size", r->recipe->name);
    m->makers = pl_sys_alloc((size_t)threads * sizeof *m->makers);
    if (!m->makers) return PL_ERR_MEMORY;
    for (; m->n_makers < threads; m->n_makers++) {
        PL_TRY(f->make_open(r->config, p->w, p->h, &m->makers[m->n_makers].state));
        m->makers[m->n_makers].rgb = pl_sys_alloc((size_t)p->w * (size_t)p->h * 3);
        if (!m->makers[m->n_makers].rgb) {
            f->make_close(m->makers[m->n_makers].state);
            return PL_ERR_MEMORY;
        }
    }
    return PL_OK;
}

static void close_makers(pl_run *r)
{
    struct pl_images *m = r->data.images;
    for (int i = 0; i < m->n_makers; i++) {
        r->recipe->images->make_close(m->makers[i].state);
        pl_sys_free(m->makers[i].rgb);
    }
    pl_sys_free(m->makers);
}

/* Not with data.erase: erased pixels are 0, which may lie between the values of two bytes; nor with
 * data.mixup: sums lie there. */
bool pl__images_as_bytes(const pl_run *r, const char *name, const pl_type *type, float *low,
                         float *high)
{
    const pl_image_feed *f = r->recipe->images;
    if (type->dtype != PL_F32 || !pl__images_wanted(r) ||
        pl_config_float(r->config, "data.erase") > 0 ||
        pl_config_float(r->config, "data.mixup") > 0)
        return false;
    if (!f || is_made(f, name)) return false;
    for (const pl_image_input *i = f->images; i && i->name; i++)
        if (strcmp(i->name, name) == 0) {
            *low = i->low;
            *high = i->high;
            return true;
        }
    return false;
}

bool pl__images_has(const pl_run *r, const char *name)
{
    const pl_image_feed *f = r->recipe->images;
    if (!f || !pl__images_wanted(r) || is_made(f, name)) return false;
    for (const pl_image_input *i = f->images; i && i->name; i++)
        if (strcmp(i->name, name) == 0) return true;
    return false;
}

void pl__images_share(pl_run *r, int threads, const pl_decoder_ring *ring)
{
    pl_image_set_use_ring(r->data.images->set, threads, ring);
}

static pl_augment augment_of(const pl_config *c)
{
    int n;
    const char *crop = pl_config_text(c, "data.crop");
    pl_augment a = {.crop = strcmp(crop, "random") == 0    ? PL_CROP_RANDOM
                            : strcmp(crop, "stretch") == 0 ? PL_CROP_STRETCH
                            : strcmp(crop, "pixels") == 0  ? PL_CROP_PIXELS
                            : strcmp(crop, "resized") == 0 ? PL_CROP_RESIZED
                                                           : PL_CROP_CENTER,
                    .scale = {1, 1},
                    .area = {0.08, 1},
                    .ratio = {0.75, 4.0 / 3},
                    .center = pl_config_float(c, "data.eval_size"),
                    .resize = pl_config_is_null(c, "data.resize_side")
                                  ? 0
                                  : (int)pl_config_int(c, "data.resize_side"),
                    .rand_ops = (int)pl_config_int(c, "data.rand_augment"),
                    .rand_strength = (int)pl_config_int(c, "data.rand_augment_strength"),
                    .flip = pl_config_float(c, "data.flip"),
                    .erase = pl_config_float(c, "data.erase")};
    const double *scale = pl_config_floats(c, "data.crop_scale", &n);
    for (int i = 0; i < 2 && i < n; i++) a.scale[i] = scale[i];
    const double *area = pl_config_floats(c, "data.crop_area", &n);
    for (int i = 0; i < 2 && i < n; i++) a.area[i] = area[i];
    const double *ratio = pl_config_floats(c, "data.crop_ratio", &n);
    for (int i = 0; i < 2 && i < n; i++) a.ratio[i] = ratio[i];
    const double *jitter = pl_config_floats(c, "data.jitter", &n);
    for (int i = 0; i < 4 && i < n; i++) a.jitter[i] = jitter[i];
    return a;
}

static pl_on_bad policy_of(const pl_config *c)
{
    const char *text = pl_config_text(c, "data.on_bad");
    return strcmp(text, "skip") == 0   ? PL_BAD_SKIP
           : strcmp(text, "fail") == 0 ? PL_BAD_FAIL
                                       : PL_BAD_QUARANTINE;
}

static pl_status leave_out(const void *ctx, int64_t n, int64_t *begin, int64_t *end)
{
    pl_fold f;
    PL_TRY(pl__fold_check(ctx, n));
    pl__fold_of(ctx, n, &f);
    *begin = f.begin;
    *end = f.end;
    return PL_OK;
}

pl_image_set_opts pl__image_opts(const pl_run *r, int w, int h)
{
    const pl_config *c = r->config;
    pl_image_set_opts o = {.limits = PL_IMAGE_LIMITS_INIT,
                           .filter = filter_of(r),
                           .augment = augment_of(c),
                           .on_bad = policy_of(c),
                           .quarantine = pl_config_is_null(c, "data.quarantine")
                                             ? "quarantine.txt"
                                             : pl_config_text(c, "data.quarantine"),
                           .most_w = w,
                           .most_h = h};
    o.limits.max_pixels = pl_config_int(c, "data.max_pixels");
    o.limits.min_side = (int)pl_config_int(c, "data.min_side");
    o.limits.min_bytes = pl_config_int(c, "data.min_bytes");
    o.keep_bytes = keep_bytes(o.filter, w, h);
    bound_memory(r, &o, w, h);
    return o;
}

static pl_status check_augment(const pl_run *r, const pl_augment *a, int side)
{
    PL_FAIL_IF(a->resize && a->resize < side, PL_ERR_CONFIG,
               "data.resize_side=%d is less than the %d pixels that recipe %s reads: set it to at "
               "least %d",
               a->resize, side, r->recipe->name, side);
    PL_FAIL_IF(a->rand_ops && (r->recipe->images->mask || r->recipe->images->made), PL_ERR_CONFIG,
               "data.rand_augment: recipe %s has %s that would not follow the picture",
               r->recipe->name, r->recipe->images->mask ? "masks" : "further inputs");
    return PL_OK;
}

static pl_status open_set(pl_run *r, struct pl_images *m, int threads)
{
    const pl_config *c = r->config;
    const char *source = pl_config_text(c, "data.source"), *path = pl_config_text(c, "data.path");
    m->shape = pl_sys_alloc((size_t)r->build->n_variants * sizeof *m->shape);
    if (!m->shape) return PL_ERR_MEMORY;
    for (int k = 0; k < r->build->n_variants; k++) PL_TRY(find_shapes(r, k, m->shape[k], &m->n));
    PL_FAIL_IF(strcmp(source, "tar") == 0 && !pl_items_is_tar(path), PL_ERR_DATA,
               "data.source=tar: %s is neither a .tar file nor a folder with .tar files", path);
    PL_FAIL_IF(
        !pl_config_is_null(c, "data.captions") && pl_items_is_tar(path), PL_ERR_CONFIG,
        "data.captions is for images in folders; in the tar files of %s captions are beside the "
        "images",
        path);
    int w, h;
    PL_TRY(largest(r, &w, &h));
    pl_image_set_opts o = pl__image_opts(r, w, h);
    PL_TRY(check_augment(r, &o.augment, w > h ? w : h));
    o.items = (pl_items_opts){
        .path = path,
        .captions =
            pl_config_is_null(c, "data.captions") ? NULL : pl_config_text(c, "data.captions"),
        .larger = pl_config_bool(c, "data.upscaled") ? r->recipe->images->upscaled : NULL,
        .eval_share = (pl__eval(r) || r->data.encode_eval) && !pl__folded(r)
                          ? pl_config_float(c, "data.eval_share")
                          : 0};
    o.items.masks = r->recipe->images->mask != NULL;
    o.leave_out = pl__folded(r) ? leave_out : NULL;
    o.leave_out_ctx = c;
    o.balance = pl_config_bool(c, "data.balance");
    o.threads = threads;
    PL_TRY(pl_image_set_open(&o, &m->set));
    PL_FAIL_IF(r->purpose.goal != PL_GOAL_EVALUATE && pl_image_set_size(m->set, false) == 0,
               PL_ERR_DATA, "%s: no image is left for training", path);
    PL_TRY(pl__classes_match(r));
    PL_TRY(pl__mask_classes(r, m));
    PL_TRY(open_makers(r, m, threads));
    return pl_run_bucket_count(r) ? pl__images_sort(r) : PL_OK;
}

pl_status pl__images_open(pl_run *r, int threads)
{
    r->data.images = pl_sys_alloc(sizeof *r->data.images);
    if (!r->data.images) return PL_ERR_MEMORY;
    return open_set(r, r->data.images, threads);
}

void pl__images_close(pl_run *r)
{
    if (!r->data.images) return;
    close_makers(r);
    pl_image_set_close(r->data.images->set);
    pl_sys_free(r->data.images->shape);
    pl_sys_free(r->data.images->order[0]);
    pl_sys_free(r->data.images->order[1]);
    pl_sys_free(r->data.images->cumulated);
    pl_sys_free(r->data.images);
    r->data.images = NULL;
}

int64_t pl__images_size(const pl_run *r, pl_subset subset)
{
    return pl_image_set_size(r->data.images->set, subset == PL_SUBSET_EVAL);
}

static void write_label(void *to, const pl_type *t, int i, int64_t label)
{
    if (t->dtype == PL_I64)
        ((int64_t *)to)[i] = label;
    else if (t->dtype == PL_I32)
        ((int32_t *)to)[i] = (int32_t)label;
    else if (t->dtype == PL_F32)
        ((float *)to)[i] = (float)label;
}

static pl_status read_one(pl_run *r, const pl_read_job *j, int64_t i, int thread)
{
    const pl_image_feed *f = r->recipe->images;
    pl_image_read read = {.eval = j->subset == PL_SUBSET_EVAL,
                          .want_text = f->text != NULL,
                          .seed = (uint64_t)pl_config_int(r->config, "seed"),
                          .epoch = j->passes[i],
                          .sample = j->samples[i],
                          .thread = thread};
    pl_pixels to[PL_MAX_IMAGES + 1];
    for (int k = 0; k < r->data.images->n; k++) {
        char *all = pl_batch_input(j->batch, f->images[k].name, NULL);
        if (!all) continue;
        pl_pixels *p = &to[read.n_to++];
        *p = r->data.images->shape[j->bucket][read.eval][k];
        p->bytes |= j->bytes && !is_made(f, f->images[k].name);
        p->data = all + (size_t)i * (size_t)p->w * (size_t)p->h * (size_t)p->channels *
                            (p->bytes ? 1 : sizeof(float));
    }
    read.to = to;
    pl_mask_read mask;
    if (pl__mask_of(r, j, i, &mask)) read.mask = &mask;
    uint8_t *rgb = f->made ? r->data.images->makers[thread].rgb : NULL;
    if (rgb) {
        pl_pixels *p = &to[read.n_to++];
        const pl_pixels *of =
            first_of(r->data.images->shape[j->bucket][read.eval], r->data.images->n);
        *p = (pl_pixels){.data = rgb, .w = of->w, .h = of->h, .channels = 3, .bytes = true};
    }
    PL_TRY(pl_image_set_read(r->data.images->set, &read));
    if (rgb) {
        pl_picture p = {rgb,
                        to[read.n_to - 1].w,
                        to[read.n_to - 1].h,
                        {read.seed, read.epoch, read.sample},
                        j->subset};
        PL_TRY(f->make(r->data.images->makers[thread].state, &p, j->batch, (int)i));
    }
    pl_type t;
    void *label = f->label ? pl_batch_input(j->batch, f->label, &t) : NULL;
    if (label) write_label(label, &t, (int)i, read.label);
    return pl__text_write(r, read.caption, i, j->batch);
}

/* A thread's share of a batch: every n-th sample. */
typedef struct share {
    pl_run *r;
    const pl_read_job *job;
    pl_status rc[PL_MAX_READERS];
    int64_t at[PL_MAX_READERS]; /* sample that failed */
    char message[PL_MAX_READERS][768];
} share;

static void read_share(void *ctx, int64_t task, int worker)
{
    share *s = ctx;
    (void)worker;
    s->rc[task] = PL_OK;
    for (int64_t i = task; i < s->job->rows && s->rc[task] == PL_OK; i += s->job->n_threads) {
        s->at[task] = i;
        s->rc[task] = read_one(s->r, s->job, i, s->job->thread + (int)task);
    }
    if (s->rc[task] != PL_OK)
        snprintf(s->message[task], sizeof s->message[task], "%s", pl_error_text());
}

pl_status pl__images_read(pl_run *r, const pl_read_job *j)
{
    for (int64_t i = 0; j->n_threads == 1 && i < j->rows; i++) PL_TRY(read_one(r, j, i, j->thread));
    if (j->n_threads == 1) return PL_OK;
    share s;
    s.r = r;
    s.job = j;
    pl_threads_for(j->n_threads, read_share, &s);
    int bad = -1;
    for (int k = 0; k < j->n_threads; k++)
        if (s.rc[k] != PL_OK && (bad < 0 || s.at[k] < s.at[bad])) bad = k;
    if (bad >= 0) PL_FAIL(s.rc[bad], "%s", s.message[bad]);
    return PL_OK;
}

int64_t pl_run_skipped_files(const pl_run *r, char *buf, size_t cap)
{
    if (!r->data.images) return 0;
    const pl_items *items = pl_image_set_items(r->data.images->set);
    pl_items_skipped(items, buf, cap);
    return items->ignored;
}

int64_t pl_run_bad_files(const pl_run *r)
{
    return r->data.images ? pl_image_set_bad_count(r->data.images->set) : 0;
}

const char *pl_run_bad_file(const pl_run *r, int64_t k, char *buf, size_t cap)
{
    return r->data.images ? pl_image_set_bad(r->data.images->set, k, buf, cap) : NULL;
}
