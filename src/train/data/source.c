/* source.c - see source.h. */
#include "train/data/source.h"

#include "io/config_int.h"
#include "ir/index_range.h"
#include "rt/rt_int.h"
#include "train/data/cache.h"
#include "train/data/dataset.h"
#include "train/data/images/image_set.h"
#include "train/data/mix_batch.h"
#include "train/data/text_set.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- how many samples ----------------------------------------------------------------------- */
/* Returns the number of samples before a fold (data.folds) is left out; a set of images leaves out
 * its fold itself. */
static int64_t all_samples(pl_run *r, pl_subset subset)
{
    if (r->data.images) return pl__images_size(r, subset);
    if (r->data.dataset) return pl_dataset_rows(r->data.dataset, subset);
    if (r->data.texts && pl__prompts_wanted(r)) return pl__prompts_size(r, subset);
    return pl__recipe_samples(r, subset);
}

bool pl_source_fold(pl_run *r, pl_fold *f)
{
    return !r->data.images && r->purpose.goal != PL_GOAL_ENCODE &&
           pl__fold_of(r->config, all_samples(r, PL_SUBSET_TRAIN), f);
}

int64_t pl_source_size(pl_run *r, pl_subset subset)
{
    pl_fold f;
    if (!pl_source_fold(r, &f)) return all_samples(r, subset);
    int64_t part = f.end - f.begin;
    return subset == PL_SUBSET_TRAIN ? f.size - part : part;
}

bool pl_source_lacks(pl_run *r, pl_subset subset)
{
    bool on_disk = r->data.images || r->data.dataset || (r->data.texts && pl__prompts_wanted(r));
    return on_disk && pl_source_size(r, subset) == 0;
}

int pl_source_bucket(const pl_run *r, int64_t step)
{
    return pl_run_bucket_count(r) && r->data.images ? pl__images_bucket(r, step) : 0;
}

/* ---- which samples -------------------------------------------------------------------------- */
void pl_source_choose(pl_run *r, pl_choice c, int64_t *samples, int64_t *passes)
{
    uint64_t seed = (uint64_t)pl_config_int(r->config, "seed");
    int64_t size = pl_source_size(r, PL_SUBSET_TRAIN),
            pool = c.pooled ? pl_config_int(r->config, "data.pool") : 0;
    if (r->data.images) {
        pl__images_choose(r, seed, c, pool, samples, passes);
        return;
    }
    pl_fold f;
    bool left_out = pl_source_fold(r, &f);
    for (int64_t i = 0; i < c.n; i++) {
        int64_t p = pl_pool_source(seed, pool, pl__run_batch(r),
                                   pl__ranks_position(r, c.number, c.first + i));
        samples[i] = size <= 0 ? p : pl__sample_at(seed, size, p);
        if (left_out && samples[i] >= f.begin) samples[i] += f.end - f.begin;
        passes[i] = size <= 0 ? 0 : p / size;
    }
}

/* ---- reading them --------------------------------------------------------------------------- */
void *pl_batch_input(pl_batch *batch, const char *name, pl_type *type)
{
    return batch->find(batch->find_ctx, name, type);
}

static void *typed(pl_batch *batch, const char *name, pl_dtype dtype)
{
    char text[384], declared[96];
    pl_type type;
    void *at = pl_batch_input(batch, name, &type);
    if (!at || type.dtype == dtype) return at;
    snprintf(text, sizeof text,
             "data_read writes input \"%.80s\" as %s, and the program declares %s", name,
             pl_dtype_name(dtype), pl_type_text(&type, declared, sizeof declared));
    pl__config_misused(text);
}

float *pl_batch_f32(pl_batch *batch, const char *name)
{
    return typed(batch, name, PL_F32);
}

int32_t *pl_batch_i32(pl_batch *batch, const char *name)
{
    return typed(batch, name, PL_I32);
}

int64_t *pl_batch_i64(pl_batch *batch, const char *name)
{
    return typed(batch, name, PL_I64);
}

uint8_t *pl_batch_u8(pl_batch *batch, const char *name)
{
    return typed(batch, name, PL_U8);
}

int64_t pl_batch_pass(const pl_batch *batch, int i)
{
    return batch->passes ? batch->passes[i] : 0;
}

/* Index of the first element that is not finite, or -1. The sum of x*0 is 0 if all are finite. */
static int64_t first_nonfinite(const float *x, int64_t n)
{
    float probe = 0;
    for (int64_t i = 0; i < n; i++) probe += x[i] * 0.0f;
    if (probe == 0.0f) return -1;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return i;
    return -1;
}

/* ---- indices ---- */
/* An input of whole numbers that the network uses as indices or as class numbers. */
struct pl_index_input {
    const char *name;
    pl_index_range range;
};

static pl_status find_indices(pl_run *r)
{
    const pl_program *p = pl__train(r);
    int n = pl_program_input_count(p), k = 0;
    struct pl_index_input *all = pl_arena_alloc(&r->arena, (size_t)(n + 1) * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        pl_index_range range =
            pl_index_range_of(p->base_graph, pl_node_get(p->base_graph, p->inputs[i])->out);
        if (range.high) all[k++] = (struct pl_index_input){pl_program_input_name(p, i), range};
    }
    all[k].name = NULL;
    r->data.indices = all;
    return PL_OK;
}

/* Index of the first element outside the range, or -1. */
static int64_t first_outside(const pl_type *t, const void *x, pl_index_range range)
{
    int64_t n = pl_type_elems(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = t->dtype == PL_I32 ? ((const int32_t *)x)[i] : ((const int64_t *)x)[i];
        if ((v < range.low || v >= range.high) && !(range.skips && v == range.skip)) return i;
    }
    return -1;
}

/* A number for which the network has no row would give a loss that is not a number. */
static pl_status check_indices(pl_run *r, pl_subset subset, const int64_t *samples,
                               const char *name, const pl_type *t, const void *x)
{
    const struct pl_index_input *in = r->data.indices;
    if (!in || (t->dtype != PL_I32 && t->dtype != PL_I64)) return PL_OK;
    while (in->name && strcmp(in->name, name) != 0) in++;
    int64_t bad = in->name ? first_outside(t, x, in->range) : -1;
    if (bad < 0) return PL_OK;
    int64_t row = t->rank && t->dim[0] ? pl_type_elems(t) / t->dim[0] : 1;
    int64_t sample = samples[row ? bad / row : 0],
            v = t->dtype == PL_I32 ? ((const int32_t *)x)[bad] : ((const int64_t *)x)[bad];
    const char *path =
        r->data.dataset ? pl_dataset_path(r->data.dataset, subset, name, sample) : "";
    char skip[64] = "";
    if (in->range.skips)
        snprintf(skip, sizeof skip, " (%lld is ignored)", (long long)in->range.skip);
    PL_FAIL(PL_ERR_DATA,
            "%s%s%s sample %lld: element %lld of \"%s\" is %lld, and the network has %s %lld to "
            "%lld%s: correct the data, or build the network with more %s",
            path, path[0] ? ": " : "", pl_subset_name(subset), (long long)sample,
            (long long)(row ? bad % row : 0), name, (long long)v,
            in->range.classes ? "the classes" : "rows for", (long long)in->range.low,
            (long long)in->range.high - 1, skip, in->range.classes ? "outputs" : "rows");
}

static pl_status check_input(pl_run *r, pl_subset subset, const int64_t *samples, const char *name,
                             const pl_type *t, const void *x)
{
    int64_t bad = t->dtype == PL_F32 ? first_nonfinite(x, pl_type_elems(t)) : -1;
    if (bad < 0) return PL_OK;
    int64_t row = t->rank && t->dim[0] ? pl_type_elems(t) / t->dim[0] : 1;
    if (row == 0) row = 1;
    int64_t sample = samples[bad / row];
    const char *path =
        r->data.dataset ? pl_dataset_path(r->data.dataset, subset, name, sample) : "";
    PL_FAIL(PL_ERR_DATA,
            "%s%s%s sample %lld: element %lld of \"%s\" is %g; correct the data or set "
            "data.allow_nonfinite=true",
            path, path[0] ? ": " : "", pl_subset_name(subset), (long long)sample,
            (long long)(bad % row), name, (double)((const float *)x)[bad]);
}

static pl_status check_finite(pl_run *r, const pl_read_job *j)
{
    const char *name;
    for (int i = 0; (name = j->batch->input_at(j->batch->find_ctx, i)); i++) {
        pl_type t;
        const void *x = pl_batch_input(j->batch, name, &t);
        if (x) PL_TRY(check_input(r, j->subset, j->samples, name, &t, x));
        if (x) PL_TRY(check_indices(r, j->subset, j->samples, name, &t, x));
    }
    return PL_OK;
}

static pl_status read_samples(pl_run *r, const pl_read_job *j)
{
    int n = (int)j->rows;
    if (r->data.images) return pl__images_read(r, j);
    bool prompts = r->data.texts && pl__prompts_wanted(r);
    j->batch->passes = j->passes;
    pl_fold f;
    /* a fold that is left out for evaluation is a part of the training set */
    pl_subset subset = pl_source_fold(r, &f) ? PL_SUBSET_TRAIN : j->subset;
    if (r->data.dataset) {
        PL_TRY(pl_dataset_read(r->data.dataset, j->subset, j->samples, n, j->batch));
    } else if (!prompts || r->recipe->data_read) {
        PL_FAIL_IF(!r->recipe->data_read, PL_ERR_CONFIG,
                   "recipe %s generates no data: set data.path", r->recipe->name);
        PL_TRY(pl__recipe_data_read(r, subset, j->samples, n, j->batch));
    }
    if (prompts) PL_TRY(pl__prompts_read(r, subset, j->samples, n, j->batch));
    return pl_config_bool(r->config, "data.allow_nonfinite") ? PL_OK : check_finite(r, j);
}

/* ---- inputs that bypass the shuffle buffer (pl_image_feed.unpooled) ---- */
/* A batch that shows only some of its inputs. */
typedef struct part_of {
    pl_batch *all;
    const char *const *names;
    bool named; /* shows the inputs of the list; else all others */
} part_of;

static void *find_part(void *ctx, const char *name, pl_type *type)
{
    const part_of *p = ctx;
    bool in = false;
    for (const char *const *n = p->names; *n && !in; n++) in = strcmp(*n, name) == 0;
    return in == p->named ? pl_batch_input(p->all, name, type) : NULL;
}

static const char *part_input_at(void *ctx, int i)
{
    const part_of *p = ctx;
    return p->all->input_at(p->all->find_ctx, i);
}

/* With such inputs a batch is read twice: the other inputs from the samples of the shuffle buffer,
 * then these from the newest samples. */
static pl_status read_parts(pl_run *r, const pl_read_job *j)
{
    const pl_image_feed *f = r->recipe->images;
    bool apart = f && f->unpooled && j->number >= 0 && pl_config_int(r->config, "data.pool") &&
                 pl_config_bool(r->config, f->unpooled_if);
    if (!apart) return read_samples(r, j);
    part_of part = {j->batch, f->unpooled, false};
    pl_batch batch = {.find = find_part, .input_at = part_input_at, .find_ctx = &part};
    pl_read_job of = *j;
    of.batch = &batch;
    PL_TRY(read_samples(r, &of));
    part.named = true;
    pl_source_choose(r, (pl_choice){.number = j->number, .n = j->rows}, of.samples, of.passes);
    return read_samples(r, &of);
}

/* ---- data.mixup, data.cutmix ----------------------------------------------------------------- */
/* Reads the sample that the first of a batch is mixed with: the one before it, or the last of the
 * step's batch. */
static pl_status read_before(pl_run *r, const pl_read_job *j)
{
    int64_t batch = r->build->accumulate * pl__ranks(r) * r->build->micro;
    bool begins = pl__ranks_position(r, j->number, 0) % batch == 0;
    pl_choice c = {.number = j->number, .first = begins ? batch - 1 : -1, .n = 1, .pooled = true};
    int64_t sample, pass;
    pl_mix_extra where;
    pl_batch batch_of_one = pl__mix_extra_batch(j, &where);
    pl_read_job one = *j;
    one.samples = &sample;
    one.passes = &pass;
    one.rows = one.n_threads = 1;
    one.batch = &batch_of_one;
    pl_source_choose(r, c, &sample, &pass);
    return read_samples(r, &one);
}

pl_status pl_source_read(pl_run *r, const pl_read_job *j)
{
    PL_TRY(read_parts(r, j));
    if (!pl__mix_wanted(r->config) || j->subset != PL_SUBSET_TRAIN) return PL_OK;
    if (j->number >= 0) PL_TRY(read_before(r, j));
    pl__mix_batch(r, j);
    return PL_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */
/* Opens the files of data.cache, unless they are stale. */
static pl_status open_cache(pl_run *r)
{
    bool fresh;
    char why[512];
    const char *dir = pl_config_text(r->config, "data.cache");
    PL_TRY(pl__cache_fresh(r, &fresh, why, sizeof why));
    PL_FAIL_IF(
        !fresh, PL_ERR_DATA,
        "data.cache %s cannot be used: %s; run plimsoll cache with the same configuration to rebuild it",
        dir, why);
    PL_TRY(pl__classes_match_cache(r));
    return pl_dataset_open(
        dir,
        &(pl_dataset_opts){.fields = "", .train = r, .eval = pl__eval(r), .folded = pl__folded(r)},
        &r->data.dataset);
}

/* Opens the arrays of data.path. A run that only evaluates needs training samples only if there are
 * no evaluation samples. */
/* data.path is a folder; a recipe may read one file too, by another key. */
static pl_status check_folder(const pl_run *r, const char *path)
{
    static const char *const keys[] = {"data.text", "data.table"};
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return PL_OK;
    for (int i = 0; i < 2; i++)
        PL_FAIL_IF(pl_config_has(r->config, keys[i]), PL_ERR_CONFIG,
                   "data.path takes a folder and %s is a file: did you mean %s=%s?", path, keys[i],
                   path);
    return PL_OK;
}

static pl_status open_arrays(pl_run *r)
{
    const char *path = pl_config_text(r->config, "data.path");
    PL_TRY(check_folder(r, path));
    pl_dataset_opts o = {.fields = pl_config_is_null(r->config, "data.fields")
                                       ? ""
                                       : pl_config_text(r->config, "data.fields"),
                         .eval = r->data.encode_eval ? pl__train(r) : pl__eval(r),
                         .folded = pl__folded(r),
                         .mixed = pl__mix_wanted(r->config),
                         .eval_share = pl_config_float(r->config, "data.eval_share")};
    if (r->purpose.goal == PL_GOAL_EVALUATE && !o.folded) {
        PL_TRY(pl_dataset_open(path, &o, &r->data.dataset));
        if (pl_dataset_rows(r->data.dataset, PL_SUBSET_EVAL) > 0) return PL_OK;
        pl_dataset_close(r->data.dataset);
        r->data.dataset = NULL;
    }
    o.train = r;
    return pl_dataset_open(path, &o, &r->data.dataset);
}

/* Opens the source that data.source names; auto: chosen by what is at data.path. */
static pl_status open_source(pl_run *r, int readers)
{
    const char *source = pl_config_text(r->config, "data.source");
    bool path = !pl_config_is_null(r->config, "data.path");
    PL_FAIL_IF(!path && strcmp(source, "auto") != 0 && strcmp(source, "synthetic") != 0,
               PL_ERR_CONFIG, "data.source=%s needs data.path", source);
    if (pl__cache_wanted(r)) return open_cache(r);
    PL_TRY(pl__texts_open(r));
    if (pl__images_wanted(r)) return pl__images_open(r, readers);
    PL_FAIL_IF(pl_run_bucket_count(r), PL_ERR_CONFIG,
               "data.buckets needs images: data.path has none");
    return path && strcmp(source, "synthetic") != 0 ? open_arrays(r) : pl__recipe_data_open(r);
}

const char *pl_source_real(const pl_run *r)
{
    static const char *const keys[] = {"data.prompts", "data.path"};
    if (strcmp(pl_config_text(r->config, "data.source"), "synthetic") == 0) return NULL;
    for (int i = 0; i < 2; i++)
        if (!pl_config_is_null(r->config, keys[i])) return keys[i];
    return NULL;
}

static pl_status check_pool(const pl_run *r)
{
    int64_t pool = pl_config_int(r->config, "data.pool"), batch = pl__run_batch(r);
    if (!pool) return PL_OK;
    PL_FAIL_IF(pl_run_bucket_count(r), PL_ERR_CONFIG, "data.pool cannot be used with data.buckets");
    PL_FAIL_IF(
        batch > PL_POOL_BATCH || pool < batch, PL_ERR_CONFIG,
        "data.pool=%lld with a batch of %lld: the pool holds at least one batch, of at most %d samples",
        (long long)pool, (long long)batch, PL_POOL_BATCH);
    return PL_OK;
}

pl_status pl_source_open(pl_run *r, int readers)
{
    PL_TRY(check_pool(r));
    PL_TRY(open_source(r, readers));
    PL_TRY(find_indices(r));
    if (!r->data.images && r->purpose.goal != PL_GOAL_ENCODE)
        PL_TRY(pl__fold_check(r->config, all_samples(r, PL_SUBSET_TRAIN)));
    return PL_OK;
}

void pl_source_close(pl_run *r)
{
    pl__images_close(r);
    pl__texts_close(r);
    pl_dataset_close(r->data.dataset);
    if (r->data.recipe_open && r->recipe->data_close) r->recipe->data_close(r->data.recipe);
}
