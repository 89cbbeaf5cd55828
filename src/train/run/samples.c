/* samples.c - pictures and arrays that show how training goes (keys sample.*).
 *
 * The sampling program has no gradients and is planned like the others. It reads the samples that
 * evaluations read, one micro-batch at a time, and draws from its own key, {seed, first sample}:
 * the noise is the same every time, so that pictures of different steps can be compared. It writes
 * no state, so it does not change training. Pictures become bytes in grids:
 *
 *     sample.count 5, three columns     0 1 2
 *                                       3 4 .
 *
 * Arrays are stored unchanged, one row per sample, after the grids. That memory is allocated at the
 * start and counted by the plan. Arrays are outputs whose names begin with PL_SAMPLE_ARRAY, so that
 * an array and a picture may have the same name.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "ir/graph.h"
#include "nn/nn.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <math.h>
#include <string.h>

/* WRITER_BYTES: a safetensors writer's buffer of 64 KiB and its header. */
enum { ARRAY_ALIGN = 64, WRITER_BYTES = 1 << 17 };

/* ---- building --------------------------------------------------------------------------- */
static bool samples_wanted(const pl_builder *b)
{
    return pl_config_int(b->config, "sample.every") > 0 &&
           (b->goal == PL_GOAL_TRAIN || b->goal == PL_GOAL_EVALUATE);
}

pl_nn *pl_builder_sample(pl_builder *b)
{
    if (!samples_wanted(b)) return NULL;
    if (b->sample.m) return b->sample.m;
    b->sample.g = pl_graph_new(b->store);
    b->sample.m = b->sample.g ? pl_nn_new(b->sample.g, false) : NULL;
    if (!b->sample.m) {
        pl_nn_fail(pl_builder_train(b), PL_ERR_MEMORY, "no memory for the sampling program");
        return NULL;
    }
    pl__nn_set_ranks(b->sample.m, b->ranks);
    pl__nn_store_bf16(b->sample.m, strcmp(pl_config_text(b->config, "weights"), "bf16") == 0);
    pl__nn_set_key(b->sample.m, pl_input(b->sample.g, PL_SAMPLE_KEY, PL_TYPE(PL_I64, 2)));
    return b->sample.m;
}

/* Finds the channels: the last dimension, else the second. False: the type is not a picture. */
static bool shape_of(const pl_type *t, pl_picture_out *p)
{
    if (t->rank != 4) return false;
    p->last = t->dim[3] == 3 || t->dim[3] == 1;
    p->channels = (int)t->dim[p->last ? 3 : 1];
    p->height = t->dim[p->last ? 1 : 2];
    p->width = t->dim[p->last ? 2 : 3];
    return p->channels == 3 || p->channels == 1;
}

void pl_builder_picture(pl_builder *b, const char *name, pl_val v, float low, float high)
{
    pl_nn *m = b->sample.m;
    if (!m || !pl_val_ok(v)) return;
    pl_type t = pl_val_type(m->g, v);
    pl_picture_out p = {.low = low, .high = high};
    char text[96];
    if (!shape_of(&t, &p) || t.dim[0] != b->batch || !(high > low)) {
        pl_nn_fail(
            m, PL_ERR_SHAPE,
            "picture \"%s\" is %s; needs [%lld,H,W,C] or [%lld,C,H,W] with 3 colours or 1, and "
            "low below high",
            name, pl_type_text(&t, text, sizeof text), (long long)b->batch, (long long)b->batch);
        return;
    }
    if (b->n_pictures == PL_MAX_PICTURES) {
        pl_nn_fail(m, PL_ERR_UNSUPPORTED, "there are more than %d pictures", PL_MAX_PICTURES);
        return;
    }
    p.name = pl_nn_name(m, "%s", name);
    b->picture[b->n_pictures++] = p;
    pl_output(m->g, name, v);
}

void pl_builder_array(pl_builder *b, const char *name, pl_val v)
{
    pl_nn *m = b->sample.m;
    if (!m || !pl_val_ok(v)) return;
    pl_type t = pl_val_type(m->g, v);
    char text[96];
    if (t.rank < 1 || t.dim[0] != b->batch) {
        pl_nn_fail(m, PL_ERR_SHAPE,
                   "array \"%s\" is %s; its first dimension must be the %lld samples of a run",
                   name, pl_type_text(&t, text, sizeof text), (long long)b->batch);
        return;
    }
    b->n_arrays++;
    pl_output(m->g, pl_nn_name(m, PL_SAMPLE_ARRAY "%s", name), v);
}

/* Fails when the program writes state, which training would see. */
static pl_status check_state(const pl_graph *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++)
        PL_FAIL_IF(g->nodes[i].n_out == 0 && pl_node_slot(g, i) >= 0, PL_ERR_GRAPH,
                   "the sampling program writes \"%s\": it may only read state",
                   pl_store_slot(g->store, pl_node_slot(g, i))->name);
    return PL_OK;
}

pl_status pl__sample_finish(pl_builder *b, const pl_recipe *recipe)
{
    if (!b->sample.m) {
        PL_FAIL_IF(samples_wanted(b), PL_ERR_CONFIG,
                   "sample.every: recipe %s makes no pictures (pl_builder_sample)", recipe->name);
        return PL_OK;
    }
    PL_TRY(pl_nn_finish(b->sample.m));
    PL_FAIL_IF(b->n_pictures + b->n_arrays == 0, PL_ERR_GRAPH,
               "recipe %s: the sampling program has no picture and no "
               "array: call pl_builder_picture or pl_builder_array",
               recipe->name);
    return check_state(b->sample.g);
}

/* Names are copied: the builder's names are freed with its context. */
pl_status pl__sample_keep(pl_run *r, pl_step_build *b, const pl_builder *graphs)
{
    b->n_pictures = graphs->n_pictures;
    for (int i = 0; i < b->n_pictures; i++) {
        b->picture[i] = graphs->picture[i];
        b->picture[i].name = pl_arena_strdup(&r->arena, graphs->picture[i].name);
        if (!b->picture[i].name) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

/* ---- memory ----------------------------------------------------------------------------- */
/* NULL: the run is not built, or makes no samples. */
static pl_program *sampler(const pl_run *r)
{
    return r->build ? r->build->sample : NULL;
}

static int64_t columns_of(int64_t count)
{
    int64_t n = (int64_t)ceil(sqrt((double)count) - 1e-9);
    return n < 1 ? 1 : n;
}

static pl_sheet grid_of(const pl_run *r, const pl_picture_out *p)
{
    int64_t count = pl_config_int(r->config, "sample.count"), columns = columns_of(count);
    return (pl_sheet){.name = p->name,
                      .width = (int)(p->width * columns),
                      .height = (int)(p->height * ((count + columns - 1) / columns)),
                      .channels = p->channels};
}

static size_t grid_bytes(const pl_run *r, const pl_picture_out *p)
{
    pl_sheet g = grid_of(r, p);
    return (size_t)g.width * (size_t)g.height * (size_t)g.channels;
}

/* Name and type, with all samples, of output i; false: the output is not an array. */
static bool array_at(const pl_run *r, int i, const char **name, pl_type *t)
{
    const size_t skip = sizeof PL_SAMPLE_ARRAY - 1;
    const char *output = pl_program_output_name(sampler(r), i);
    if (strncmp(output, PL_SAMPLE_ARRAY, skip) != 0) return false;
    *name = output + skip;
    *t = pl_program_output_type(sampler(r), i);
    t->dim[0] = pl_config_int(r->config, "sample.count");
    return true;
}

/* Bytes of an array, rounded up so that the next one is aligned. */
static size_t array_bytes(const pl_type *t)
{
    return (pl_type_bytes(t) + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN;
}

static size_t arrays_bytes(const pl_run *r)
{
    size_t sum = 0;
    const char *name;
    pl_type t;
    for (int i = 0; sampler(r) && i < pl_program_output_count(sampler(r)); i++)
        if (array_at(r, i, &name, &t)) sum += array_bytes(&t);
    return sum;
}

/* Returns where arrays begin, after the grids. */
static size_t grids_bytes(const pl_run *r)
{
    size_t sum = 0;
    for (int i = 0; i < r->build->n_pictures; i++) sum += grid_bytes(r, &r->build->picture[i]);
    return (sum + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN;
}

/* Counts: the grids; their writers, one at a time: rows and file, each with room to grow, for the
 * PNG file and for the event; the event's record, which holds all pictures; the arrays and their
 * writer. */
uint64_t pl__sample_bytes(const pl_run *r)
{
    uint64_t sum = 0, most = 0;
    for (int i = 0; sampler(r) && i < r->build->n_pictures; i++) {
        uint64_t bytes = grid_bytes(r, &r->build->picture[i]);
        sum += bytes;
        if (bytes > most) most = bytes;
    }
    uint64_t arrays = arrays_bytes(r);
    return 3 * sum + 10 * most + arrays + (arrays ? ARRAY_ALIGN + WRITER_BYTES : 0);
}

pl_status pl__sample_start(pl_run *r)
{
    const pl_program *eval = r->build->variants[0].eval;
    if (!sampler(r)) return PL_OK;
    for (int i = 0; i < pl_program_input_count(sampler(r)); i++) {
        const char *name = pl_program_input_name(sampler(r), i);
        int k = 0, n = eval ? pl_program_input_count(eval) : 0;
        while (k < n && strcmp(pl_program_input_name(eval, k), name) != 0) k++;
        pl_type t = pl_program_input_type(sampler(r), i),
                u = k < n ? pl_program_input_type(eval, k) : t;
        PL_FAIL_IF(
            strcmp(name, PL_SAMPLE_KEY) != 0 && (k == n || !pl_type_equal(&t, &u)), PL_ERR_CONFIG,
            "recipe %s: the sampling program's input \"%s\" is not an input of the evaluation "
            "program",
            r->recipe->name, name);
    }
    pl_sys_free(r->grids);
    r->grids = pl_sys_alloc(grids_bytes(r) + arrays_bytes(r));
    return r->grids ? PL_OK : PL_ERR_MEMORY;
}

/* ---- running ---------------------------------------------------------------------------- */
/* Value x of [low, high] as a byte. */
static uint8_t byte_of(double x, const pl_picture_out *p)
{
    double y = 255 * (x - (double)p->low) / ((double)p->high - (double)p->low);
    return isnan(y) || y <= 0 ? 0 : y >= 255 ? 255 : (uint8_t)(y + 0.5);
}

/* Copies picture `row` of the program's output to position `at` of the grid. */
static void put_picture(const pl_picture_out *p, pl_dtype dtype, const void *x, int64_t row,
                        int64_t at, const pl_sheet *g, uint8_t *to)
{
    int64_t columns = g->width / p->width, c = p->channels, size = p->width * p->height;
    int64_t left = at % columns * p->width, top = at / columns * p->height;
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t i = 0; i < p->width * c; i++) {
            int64_t pixel = y * p->width + i / c, k = i % c;
            int64_t from = row * size * c + (p->last ? pixel * c + k : k * size + pixel);
            to[((top + y) * g->width + left) * c + i] = byte_of(pl_elem_get(dtype, x, from), p);
        }
}

static pl_status run_once(pl_run *r, int64_t first, int64_t rows)
{
    int64_t *key = pl_session_input(r->session, sampler(r), PL_SAMPLE_KEY, NULL);
    int64_t size = pl_source_size(r, PL_SUBSET_EVAL);
    if (pl_program_input_count(sampler(r)) > (key != NULL)) {
        if (size > 0 && rows > size) rows = size;
        int64_t others = pl_source_size(r, PL_SUBSET_TRAIN),
                at = others > 0 ? first % others : first;
        if (pl_source_lacks(r, PL_SUBSET_EVAL))
            PL_TRY(pl_prefetch_rows(r, PL_SUBSET_TRAIN, sampler(r), at,
                                    rows < others - at ? rows : others - at));
        else
            PL_TRY(pl_prefetch_eval_into(r, sampler(r), size > 0 ? first % size : first, rows));
    }
    if (key) {
        key[0] = pl_config_int(r->config, "seed");
        key[1] = first;
    }
    PL_TRY(pl_session_run(r->session, sampler(r)));
    return pl_session_wait(r->session);
}

/* Copies the first `rows` rows of every array to rows `at` and following. */
static void put_rows(pl_run *r, int64_t at, int64_t rows)
{
    char *to = (char *)r->grids + grids_bytes(r);
    const char *name;
    pl_type t;
    for (int i = 0; i < pl_program_output_count(sampler(r)); i++) {
        if (!array_at(r, i, &name, &t)) continue;
        const void *x =
            pl_session_output(r->session, sampler(r), pl_program_output_name(sampler(r), i), NULL);
        size_t row = pl_type_bytes(&t) / (size_t)t.dim[0];
        if (x) memcpy(to + (size_t)at * row, x, (size_t)rows * row);
        to += array_bytes(&t);
    }
}

/* Fills grids and arrays with all samples. */
static pl_status make_samples(pl_run *r)
{
    int64_t count = pl_config_int(r->config, "sample.count");
    for (int64_t at = 0; at < count; at += r->build->micro) {
        int64_t rows = count - at < r->build->micro ? count - at : r->build->micro;
        PL_TRY(run_once(r, at, rows));
        uint8_t *to = r->grids;
        for (int i = 0; i < r->build->n_pictures; i++) {
            const pl_picture_out *p = &r->build->picture[i];
            pl_sheet g = grid_of(r, p);
            pl_type t;
            const void *x = pl_session_output(r->session, sampler(r), p->name, &t);
            for (int64_t k = 0; x && k < rows; k++) put_picture(p, t.dtype, x, k, at + k, &g, to);
            to += grid_bytes(r, p);
        }
        put_rows(r, at, rows);
    }
    return PL_OK;
}

pl_status pl_run_sample(pl_run *r, pl_status (*each)(void *ctx, const pl_sheet *g), void *ctx)
{
    if (!sampler(r)) return PL_OK;
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "the run is not started");
    pl_status rc = pl__averages_begin(r);
    PL_TRY(pl__averages_end(r, rc == PL_OK ? make_samples(r) : rc));
    const uint8_t *pixels = r->grids;
    for (int i = 0; i < r->build->n_pictures; i++) {
        pl_sheet g = grid_of(r, &r->build->picture[i]);
        g.pixels = pixels;
        PL_TRY(each(ctx, &g));
        pixels += grid_bytes(r, &r->build->picture[i]);
    }
    return PL_OK;
}

bool pl_run_sample_arrays(const pl_run *r)
{
    return arrays_bytes(r) > 0;
}

static pl_status write_arrays(pl_run *r, pl_st_writer *w)
{
    const char *name;
    pl_type t;
    int n = 0, outputs = pl_program_output_count(sampler(r));
    for (int i = 0; i < outputs; i++)
        if (array_at(r, i, &name, &t) && ++n) PL_TRY(pl_st_writer_add(w, name, &t));
    PL_TRY(pl_st_writer_begin(w));
    for (int k = 0; k < n; k++) { /* the writer has its own order of tensors */
        int place = 0, wanted = pl_st_writer_order(w, k);
        const char *from = (char *)r->grids + grids_bytes(r);
        for (int i = 0; i < outputs && place <= wanted; i++) {
            if (!array_at(r, i, &name, &t)) continue;
            if (place++ == wanted) PL_TRY(pl_st_writer_write(w, wanted, from, pl_type_bytes(&t)));
            from += array_bytes(&t);
        }
    }
    return pl_st_writer_finish(w);
}

pl_status pl_run_sample_save(pl_run *r, const char *path)
{
    PL_FAIL_IF(!r->grids || !pl_run_sample_arrays(r), PL_ERR_ARG,
               "%.300s: the run is not started, or recipe %s names "
               "no arrays",
               path, r->recipe->name);
    pl_st_writer *w;
    PL_TRY(pl_st_writer_new(path, &w));
    pl_status rc = write_arrays(r, w);
    pl_st_writer_free(w);
    return rc;
}

const pl_program *pl_run_sample_program(const pl_run *r)
{
    return sampler(r);
}
