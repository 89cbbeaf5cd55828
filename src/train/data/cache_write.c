/* cache_write.c - runs a recipe's encoder over a data set and writes its outputs; see cache.h.
 *
 * The encoder is the run's only program, so it is planned and started like a training program.
 * Every output has its own files, one tensor in each; rows are appended batch by batch, so memory
 * does not grow with the data set.
 */
#include "base/asked.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "ir/graph.h"
#include "train/data/cache.h"
#include "train/data/dataset.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include <xxhash.h>

enum { PATH = 4096 };
static const uint64_t SHARD_BYTES = (uint64_t)1 << 30;

/* ---- building ---------------------------------------------------------------------------------
 */
pl_status pl_run_encode_only(pl_run *r)
{
    PL_FAIL_IF(pl__train(r), PL_ERR_ARG, "the run is built already");
    PL_FAIL_IF(pl_config_is_null(r->config, "data.cache"), PL_ERR_CONFIG,
               "set data.cache to the folder of the cache");
    r->purpose.goal = PL_GOAL_ENCODE;
    return pl__cache_check_config(r);
}

static const pl_type *output_type(const pl_program *p, const char *name, pl_type *out)
{
    for (int i = 0; i < pl_program_output_count(p); i++)
        if (strcmp(pl_program_output_name(p, i), name) == 0) {
            *out = pl_program_output_type(p, i);
            return out;
        }
    return NULL;
}

/* Checks that every input of a program that will read the cache is an output of the encoder. */
static pl_status check_inputs(const pl_run *r, const pl_graph *g)
{
    pl_type have;
    char a[96], b[96];
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!(pl_node_get(g, i)->op->flags & PL_OP_SOURCE) || pl_node_slot(g, i) >= 0) continue;
        const char *name = pl_node_name(g, i);
        pl_type want = *pl_type_of(g, pl_node_get(g, i)->out);
        const pl_type *t = output_type(pl__train(r), name, &have);
        PL_FAIL_IF(!t, PL_ERR_CONFIG,
                   "recipe %s: training reads \"%s\", which is not an output of its encoder",
                   r->recipe->name, name);
        PL_FAIL_IF(!pl_type_equal(t, &want), PL_ERR_CONFIG,
                   "recipe %s: its encoder writes \"%s\" as %s, training reads %s", r->recipe->name,
                   name, pl_type_text(t, a, sizeof a), pl_type_text(&want, b, sizeof b));
    }
    return PL_OK;
}

pl_status pl__cache_check_reader(pl_run *r)
{
    pl_builder b = {
        .config = r->config, .batch = r->build->micro, .accumulate = 1, .goal = PL_GOAL_PROBE};
    b.store = pl_store_new();
    pl_status rc = b.store ? pl__builder_run(&b, r->recipe) : PL_ERR_MEMORY;
    bool built = rc == PL_OK;
    for (int i = 0; rc == PL_OK && i < b.n_step_programs; i++)
        rc = check_inputs(r, b.step_programs[i].run.g);
    if (rc == PL_OK && b.eval.g) rc = check_inputs(r, b.eval.g);
    r->data.encode_eval = rc == PL_OK && b.eval.g;
    if (built) pl__builder_release(&b);
    pl_store_free(b.store);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------
 */
/* One output and the file that is being written. */
typedef struct sink {
    const char *name;
    pl_type type, row; /* of the batch; of a row in the file */
    char *rows;        /* in the file's dtype */
    pl_st_writer *file;
    const char *file_name; /* below the folder */
    int64_t left;          /* rows that the file still needs */
    int shard;
} sink;

typedef struct writer {
    pl_run *r;
    pl_arena mem;
    const char *dir;
    sink *sinks;
    int n;
    pl_cache_file *files;
    int n_files, max_files;
    pl_cache_stamp stamp;
} writer;

static pl_dtype file_dtype(const pl_run *r, pl_dtype d)
{
    const char *text = pl_config_text(r->config, "data.cache_dtype");
    if (d != PL_F32) return d;
    return strcmp(text, "bf16") == 0 ? PL_BF16 : strcmp(text, "f16") == 0 ? PL_F16 : PL_F32;
}

static pl_status open_sinks(writer *w)
{
    const pl_program *p = pl__train(w->r);
    w->n = pl_program_output_count(p);
    w->sinks = pl_arena_new(&w->mem, sink, w->n + 1);
    if (!w->sinks) return PL_ERR_MEMORY;
    for (int i = 0; i < w->n; i++) {
        sink *s = &w->sinks[i];
        s->name = pl_program_output_name(p, i);
        s->type = pl_program_output_type(p, i);
        PL_FAIL_IF(s->type.rank < 1 || s->type.dim[0] != w->r->build->micro, PL_ERR_UNSUPPORTED,
                   "output \"%s\" of the encoder does not begin with the batch dimension", s->name);
        s->row = pl_type_make(file_dtype(w->r, s->type.dtype), s->type.rank - 1, s->type.dim + 1);
        s->rows =
            pl_arena_new(&w->mem, char, pl_type_bytes(&s->row) * (size_t)w->r->build->micro + 1);
        if (!s->rows) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

static pl_status note_file(writer *w, sink *s)
{
    pl_cache_file f = {.name = s->file_name};
    pl_st_writer_sum(s->file, &f.bytes, &f.hash);
    if (w->n_files == w->max_files) {
        int more = 2 * w->max_files + 16;
        pl_cache_file *files = pl_arena_new(&w->mem, pl_cache_file, more);
        if (!files) return PL_ERR_MEMORY;
        if (w->n_files) memcpy(files, w->files, (size_t)w->n_files * sizeof *files);
        w->files = files;
        w->max_files = more;
    }
    w->files[w->n_files++] = f;
    return PL_OK;
}

static pl_status next_file(writer *w, sink *s, pl_subset subset, int64_t rows_left)
{
    size_t row = pl_type_bytes(&s->row);
    int64_t fit = (int64_t)(SHARD_BYTES / (row ? row : 1));
    s->left = rows_left < fit ? rows_left : fit < 1 ? 1 : fit;
    s->file_name = pl_arena_printf(&w->mem, "%s/%s/%05d.safetensors", pl_subset_name(subset),
                                   s->name, s->shard++);
    char *path = s->file_name ? pl_arena_printf(&w->mem, "%s/%s", w->dir, s->file_name) : NULL;
    if (!path) return PL_ERR_MEMORY;
    int64_t dim[PL_MAX_RANK + 1] = {s->left};
    memcpy(dim + 1, s->row.dim, (size_t)s->row.rank * sizeof *dim);
    pl_type all = pl_type_make(s->row.dtype, s->row.rank + 1, dim);
    PL_TRY(pl_st_writer_new(path, &s->file));
    PL_TRY(pl_st_writer_add(s->file, s->name, &all));
    PL_TRY(pl_st_writer_meta(s->file, "dtype", pl_config_text(w->r->config, "data.cache_dtype")));
    PL_TRY(pl_st_writer_meta(s->file, "recipe", w->r->recipe->name));
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)w->stamp.weights);
    PL_TRY(pl_st_writer_meta(s->file, "weights_xxh64", hash));
    return pl_st_writer_begin(s->file);
}

static void narrow(const sink *s, const void *from, int64_t n)
{
    const float *x = from;
    uint16_t *to = (void *)s->rows;
    for (int64_t i = 0; i < n; i++)
        to[i] = s->row.dtype == PL_F16 ? pl_f32_to_f16(x[i]) : pl_f32_to_bf16(x[i]);
}

/* rows_left: rows of the subset that are not written yet, including this batch. */
static pl_status write_rows(writer *w, sink *s, pl_subset subset, int64_t rows, int64_t rows_left)
{
    size_t row = pl_type_bytes(&s->row);
    const void *from = pl_session_output(w->r->session, pl__train(w->r), s->name, NULL);
    PL_FAIL_IF(!from, PL_ERR_ARG, "the encoder has no output \"%s\"", s->name);
    if (s->row.dtype == s->type.dtype)
        memcpy(s->rows, from, row * (size_t)rows);
    else
        narrow(s, from, pl_type_elems(&s->row) * rows);
    for (int64_t at = 0; at < rows;) {
        if (!s->file) PL_TRY(next_file(w, s, subset, rows_left - at));
        int64_t n = rows - at < s->left ? rows - at : s->left;
        PL_TRY(pl_st_writer_write(s->file, 0, s->rows + (size_t)at * row, row * (size_t)n));
        at += n;
        s->left -= n;
        if (s->left) continue;
        PL_TRY(pl_st_writer_finish(s->file));
        PL_TRY(note_file(w, s));
        pl_st_writer_free(s->file);
        s->file = NULL;
    }
    return PL_OK;
}

static pl_status write_subset(writer *w, pl_subset subset, pl_progress_fn progress, void *ctx)
{
    pl_run *r = w->r;
    int64_t count = w->stamp.samples[subset];
    for (int i = 0; i < w->n; i++) w->sinks[i].shard = 0;
    for (int64_t done = 0; done < count;) {
        int64_t rows = count - done < r->build->micro ? count - done : r->build->micro;
        PL_FAIL_IF(pl_asked(r->stop), PL_ERR_STOPPED, "stopped after %lld samples",
                   (long long)done);
        PL_TRY(pl_prefetch_rows(r, subset, pl__train(r), done, rows));
        PL_TRY(pl_session_run(r->session, pl__train(r)));
        PL_TRY(pl_session_wait(r->session));
        for (int i = 0; i < w->n; i++)
            PL_TRY(write_rows(w, &w->sinks[i], subset, rows, count - done));
        done += rows;
        if (progress) progress(ctx, subset, done, count);
    }
    return PL_OK;
}

/* ---- the folder -------------------------------------------------------------------------------
 */
/* Whether the folder has no file, or only the first one of a cache, which a killed process had not
 * renamed. */
static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    bool empty = true;
    for (struct dirent *e; d && empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                strncmp(e->d_name, "cache.json.tmp", 14) == 0;
    if (d) closedir(d);
    return empty;
}

/* Removes files of an earlier cache that this one does not overwrite. */
static void remove_old(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 12 || strcmp(e->d_name + n - 12, ".safetensors") != 0) continue;
        unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
}

static pl_status take_folder(const writer *w)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/cache.json", w->dir);
    PL_FAIL_IF(access(path, F_OK) != 0 && !is_empty(w->dir), PL_ERR_CONFIG,
               "data.cache: %s has other files in it; name an empty or new folder", w->dir);
    return pl_sys_make_dirs(w->dir);
}

static pl_status make_folders(const writer *w)
{
    char path[PATH];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < w->n; i++) {
            snprintf(path, sizeof path, "%s/%s/%s", w->dir, pl_subset_name((pl_subset)s),
                     w->sinks[i].name);
            PL_TRY(pl_sys_make_dirs(path));
            remove_old(path);
        }
    return PL_OK;
}

static pl_status hash_weights(pl_run *r, uint64_t *out)
{
    XXH64_state_t h;
    XXH64_reset(&h, 0);
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        uint64_t bytes = pl_type_bytes(&s->type);
        if (!pl__slot_in_model(s)) continue;
        XXH64_update(&h, s->name, strlen(s->name) + 1);
        for (uint64_t at = 0; at < bytes; at += PL_STAGE_BYTES) {
            size_t n = bytes - at < PL_STAGE_BYTES ? (size_t)(bytes - at) : PL_STAGE_BYTES;
            PL_TRY(pl_session_read_slot(r->session, i, at, r->files.stage, n));
            XXH64_update(&h, r->files.stage, n);
        }
    }
    *out = XXH64_digest(&h);
    return PL_OK;
}

static pl_status write_all(writer *w, pl_progress_fn progress, void *ctx)
{
    pl_run *r = w->r;
    for (int s = 0; s < 1 + r->data.encode_eval; s++) {
        w->stamp.samples[s] = pl_source_size(r, (pl_subset)s);
        PL_FAIL_IF(w->stamp.samples[s] == 0 && s == PL_SUBSET_EVAL, PL_ERR_CONFIG,
                   "there are no evaluation samples, which a cache needs: add a folder eval/, "
                   "or raise data.eval_share (%g)",
                   pl_config_float(r->config, "data.eval_share"));
        PL_FAIL_IF(w->stamp.samples[s] == 0, PL_ERR_CONFIG,
                   "the %s samples are endless, or there are none: a cache "
                   "needs a finite data set",
                   pl_subset_name((pl_subset)s));
    }
    PL_TRY(hash_weights(r, &w->stamp.weights));
    PL_TRY(open_sinks(w));
    PL_TRY(take_folder(w));
    PL_TRY(pl__cache_stamp_write(r, &w->stamp)); /* not finished */
    PL_TRY(make_folders(w));
    for (int s = 0; s < 1 + r->data.encode_eval; s++)
        PL_TRY(write_subset(w, (pl_subset)s, progress, ctx));
    w->stamp.finished = true;
    w->stamp.files = w->files;
    w->stamp.n_files = w->n_files;
    return pl__cache_stamp_write(r, &w->stamp);
}

pl_status pl_run_cache(pl_run *r, pl_progress_fn progress, void *ctx, pl_cache_info *info)
{
    PL_FAIL_IF(r->purpose.goal != PL_GOAL_ENCODE || !r->session, PL_ERR_ARG,
               "the run does not run the encoder, or is not started");
    writer w = {.r = r, .dir = pl_config_text(r->config, "data.cache")};
    pl_status rc = write_all(&w, progress, ctx);
    *info = (pl_cache_info){w.stamp.samples[0], w.stamp.samples[1], 0, w.n_files};
    for (int i = 0; i < w.n_files; i++) info->bytes += w.files[i].bytes;
    for (int i = 0; w.sinks && i < w.n; i++) pl_st_writer_free(w.sinks[i].file);
    pl_arena_release(&w.mem);
    return rc;
}

pl_status pl_run_cache_fresh(pl_run *r, bool *fresh, char *why, size_t cap)
{
    return pl__cache_fresh(r, fresh, why, cap);
}
