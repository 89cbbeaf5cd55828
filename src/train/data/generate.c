/* generate.c - a recipe's own samples: opening them, random numbers for generated ones, and writing
 * them as a data set on disk (dataset.h).
 *
 * To write, samples are read batch by batch into memory of the program's inputs, and their rows are
 * appended to one array per input. The last batch repeats the last sample to fill up; these rows
 * are not written.
 */
#include "base/hash.h"
#include "base/rng.h"
#include "base/sys.h"
#include "io/npy.h"
#include "train/data/dataset.h"

#include <stdio.h>
#include <string.h>

/* ---- the recipe's data -------------------------------------------------------------------- */
/* A call of the recipe's data functions, guarded against keys that they misspell. */
typedef struct data_call {
    pl_run *r;
    pl_subset subset;
    const int64_t *sample;
    int n;
    pl_batch *batch;
} data_call;

static pl_status call_open(void *ctx)
{
    const data_call *c = ctx;
    return c->r->recipe->data_open(c->r->config, &c->r->data.recipe);
}

static pl_status call_read(void *ctx)
{
    const data_call *c = ctx;
    return c->r->recipe->data_read(c->r->data.recipe, c->subset, c->sample, c->n, c->batch);
}

pl_status pl__recipe_data_open(pl_run *r)
{
    if (r->data.recipe_open) return PL_OK;
    r->data.recipe = r->config;
    if (r->recipe->data_open) PL_TRY(pl_config_guard(call_open, &(data_call){.r = r}));
    r->data.recipe_open = true;
    return PL_OK;
}

pl_status pl__recipe_data_read(pl_run *r, pl_subset subset, const int64_t *sample, int n,
                               pl_batch *batch)
{
    return pl_config_guard(call_read, &(data_call){r, subset, sample, n, batch});
}

int64_t pl__recipe_samples(const pl_run *r, pl_subset subset)
{
    const char *key = subset == PL_SUBSET_TRAIN ? "data.samples" : "data.eval_samples";
    if (r->recipe->data_size) return r->recipe->data_size(r->data.recipe, subset);
    return pl_config_has(r->config, key) ? pl_config_int(r->config, key) : 0;
}

uint64_t pl_sample_seed(uint64_t world, pl_subset subset, int64_t sample)
{
    return pl_mix64((subset == PL_SUBSET_TRAIN ? world : 0xE7A1000000000000u) + (uint64_t)sample);
}

double pl_sample_uniform(uint64_t seed, uint64_t k)
{
    return (double)(pl_mix64(seed + (k + 1) * PL_GOLDEN64) >> 11) * 0x1p-53;
}

double pl_sample_normal(uint64_t seed, uint64_t k)
{
    double sum = -2;
    for (uint64_t i = 0; i < 4; i++) sum += pl_sample_uniform(seed, 4 * k + i);
    return sum * 1.7320508075688772;
}

void pl_sample_noise(uint64_t seed, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t w[4];
        float z[4];
        pl_rng_block(seed, 0, 0, (uint64_t)i / 4, w);
        pl_rng_normal2(w[0], w[1], z);
        pl_rng_normal2(w[2], w[3], z + 2);
        memcpy(x + i, z, (size_t)(n - i < 4 ? n - i : 4) * sizeof *x);
    }
}

/* ---- on disk ------------------------------------------------------------------------------ */
/* One input of the program: memory of a batch, and the file that it is appended to. */
typedef struct sink {
    const char *name;
    pl_type type;
    char *data;
    pl_npy_writer *file;
} sink;

typedef struct writer {
    pl_arena mem;
    sink *sinks;
    int n, batch;
    int64_t *samples;
} writer;

/* Returns the name of input i of a subset's programs; NULL after the last. */
static const char *input_at(const pl_run *r, pl_subset subset, int i, pl_type *type)
{
    if (subset == PL_SUBSET_TRAIN) return pl__step_input(r, i, type);
    if (i == pl_program_input_count(pl__eval(r))) return NULL;
    *type = pl_program_input_type(pl__eval(r), i);
    return pl_program_input_name(pl__eval(r), i);
}

static pl_status open_sinks(writer *w, const pl_run *r, pl_subset subset, const char *folder,
                            int64_t count)
{
    pl_type type;
    while (input_at(r, subset, w->n, &type)) w->n++;
    w->sinks = pl_arena_new(&w->mem, sink, (size_t)w->n + 1);
    if (!w->sinks) return PL_ERR_MEMORY;
    for (int i = 0; i < w->n; i++) {
        sink *s = &w->sinks[i];
        s->name = input_at(r, subset, i, &s->type);
        s->data = pl_arena_new(&w->mem, char, pl_type_bytes(&s->type) + 1);
        char *path = pl_arena_printf(&w->mem, "%s/%s.npy", folder, s->name);
        if (!s->data || !path) return PL_ERR_MEMORY;
        pl_type all = s->type;
        PL_FAIL_IF(all.rank < 1 || all.dim[0] != w->batch, PL_ERR_UNSUPPORTED,
                   "input \"%s\" does not begin with the batch dimension", s->name);
        all.dim[0] = count;
        PL_TRY(pl_npy_writer_new(path, &all, &s->file));
    }
    return PL_OK;
}

static pl_status write_rows(writer *w, int64_t rows)
{
    for (int i = 0; i < w->n; i++) {
        sink *s = &w->sinks[i];
        size_t row = pl_type_bytes(&s->type) / (size_t)w->batch;
        PL_TRY(pl_npy_writer_write(s->file, s->data, row * (size_t)rows));
    }
    return PL_OK;
}

static void *sink_input(void *ctx, const char *name, pl_type *type)
{
    const writer *w = ctx;
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->sinks[i].name, name) == 0) {
            if (type) *type = w->sinks[i].type;
            return w->sinks[i].data;
        }
    return NULL;
}

static pl_status write_all(pl_run *r, writer *w, pl_subset subset, int64_t count,
                           pl_progress_fn progress, void *ctx)
{
    pl_batch batch = {.find = sink_input, .find_ctx = w};
    for (int64_t done = 0; done < count;) {
        int64_t rows = count - done < w->batch ? count - done : w->batch;
        for (int k = 0; k < w->batch; k++) w->samples[k] = done + (k < rows ? k : rows - 1);
        PL_TRY(pl__recipe_data_read(r, subset, w->samples, w->batch, &batch));
        PL_TRY(write_rows(w, rows));
        done += rows;
        if (progress) progress(ctx, subset, done, count);
    }
    for (int i = 0; i < w->n; i++) PL_TRY(pl_npy_writer_finish(w->sinks[i].file));
    return PL_OK;
}

static pl_status write_subset(pl_run *r, const char *dir, pl_subset subset, int64_t count,
                              pl_progress_fn progress, void *ctx)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/%s", dir, pl_subset_name(subset));
    PL_TRY(pl_sys_make_dirs(folder));
    writer w = {.batch = (int)r->build->micro};
    w.samples = pl_arena_new(&w.mem, int64_t, (size_t)w.batch);
    pl_status rc = w.samples ? open_sinks(&w, r, subset, folder, count) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = write_all(r, &w, subset, count, progress, ctx);
    for (int i = 0; w.sinks && i < w.n; i++) pl_npy_writer_free(w.sinks[i].file);
    pl_arena_release(&w.mem);
    return rc;
}

/* Number of samples to write: the number asked for, else all that the recipe has. */
pl_status pl__generate_count(pl_run *r, pl_subset subset, int64_t asked, int64_t *out)
{
    int64_t size = pl__recipe_samples(r, subset);
    *out = asked > 0 ? asked : size;
    PL_FAIL_IF(*out <= 0, PL_ERR_ARG, "the %s samples of recipe %s are endless: give a number",
               pl_subset_name(subset), r->recipe->name);
    PL_FAIL_IF(size > 0 && *out > size, PL_ERR_ARG,
               "%lld %s samples were requested, the configuration has %lld", (long long)*out,
               pl_subset_name(subset), (long long)size);
    return PL_OK;
}

pl_status pl_run_generate(pl_run *r, const char *dir, int64_t samples, int64_t eval_samples,
                          pl_progress_fn progress, void *ctx)
{
    PL_FAIL_IF(!r->recipe->data_read, PL_ERR_CONFIG, "recipe %s has no data", r->recipe->name);
    PL_FAIL_IF(!pl__train(r), PL_ERR_ARG, "build the run before generating its data");
    PL_TRY(pl__recipe_data_open(r));
    int64_t n_train, n_eval = 0;
    PL_TRY(pl__generate_count(r, PL_SUBSET_TRAIN, samples, &n_train));
    if (pl__eval(r)) PL_TRY(pl__generate_count(r, PL_SUBSET_EVAL, eval_samples, &n_eval));
    PL_TRY(write_subset(r, dir, PL_SUBSET_TRAIN, n_train, progress, ctx));
    if (pl__eval(r)) PL_TRY(write_subset(r, dir, PL_SUBSET_EVAL, n_eval, progress, ctx));
    return PL_OK;
}
