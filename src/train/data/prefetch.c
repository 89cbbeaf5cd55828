/* prefetch.c - see prefetch.h. */
#include "train/data/prefetch.h"

#include "base/sys.h"
#include "base/threads.h"
#include "data/sets/loader.h"
#include "rt/device.h"
#include "train/data/cache.h"
#include "train/data/dataset.h"
#include "train/data/image_set.h"
#include "train/data/text_set.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { ALIGN = 64 };

/* One input of a program inside a batch buffer. */
typedef struct place {
    const char *name;
    pl_type type;
    size_t at;
    bool bytes; /* lies there as bytes, which are f32 from low to high */
    float low, high;
} place;

static size_t place_bytes(const place *p)
{
    return p->bytes ? (size_t)pl_type_elems(&p->type) : pl_type_bytes(&p->type);
}

/* A batch of one bucket in a buffer of the ring. */
typedef struct layout {
    place *places; /* inputs of the training programs, by name */
    int n;
    size_t samples_at; /* the numbers of the samples and their passes lie behind the inputs */
} layout;

struct pl_prefetch {
    pl_arena mem;
    layout *layouts; /* by bucket */
    size_t bytes;    /* of the largest */
    bool bytes_form; /* images lie in it as bytes */
    int workers;
    pl_loader *loader;         /* NULL: the caller reads */
    int64_t *samples, *passes; /* of the batch that the caller reads */
    int64_t held; /* position whose buffer is kept for the programs that come; -1: none */
    void *buffer; /* of it */
};

/* ---- how many ---------------------------------------------------------------------------- */
static const pl_device *card_of(const pl_run *r)
{
    const pl_device *dev = pl__train(r) ? pl_program_device(pl__train(r)) : NULL;
    return dev && dev->own_memory ? dev : NULL;
}

/* The inputs of all training programs of a bucket, each name once, into list[0..cap); returns how
 * many there are, or -1 when a name stands for two types. */
static int list_inputs(const pl_run *r, int bucket, place *list, int cap)
{
    int n = 0;
    const pl_step_program *of = r->build->variants[bucket].step_programs;
    for (int t = 0; t < r->build->now->n_step_programs; t++) {
        const pl_program *p = of[t].run;
        for (int i = 0; i < pl_program_input_count(p); i++) {
            place new = {.name = pl_program_input_name(p, i), .type = pl_program_input_type(p, i)};
            int k = 0;
            while (k < n && strcmp(list[k].name, new.name) != 0) k++;
            if (k < n && !pl_type_equal(&list[k].type, &new.type)) return -1;
            if (k < n || n == cap) continue;
            new.bytes = pl__images_as_bytes(r, new.name, &new.type, &new.low, &new.high);
            list[n++] = new;
        }
    }
    return n;
}

enum { MAX_INPUTS = 256 };

/* Whether a batch is read more than once: by several programs, or for several updates. */
static bool reads_again(const pl_run *r)
{
    return r->build->now->n_step_programs > 1 || pl__run_updates(r) > 1;
}

/* A buffer of the ring serves all readings of a step when they are of one batch after the other;
 * with micro-batches each program and update goes through the batch anew. */
static bool can_read_ahead(const pl_run *r)
{
    place list[MAX_INPUTS];
    int n = list_inputs(r, 0, list, MAX_INPUTS);
    return n >= 0 && n < MAX_INPUTS && (!reads_again(r) || r->build->accumulate == 1);
}

/* On the CPU a worker takes a core from the kernels, so only decoding is worth one; a card's host
 * has nothing else to do. */
static int workers_of(const pl_run *r)
{
    enum { MOST = 8 };
    if (!can_read_ahead(r) || !pl__goal_trains(r->purpose.goal)) return 0;
    if (!pl_config_is_null(r->config, "data.workers"))
        return (int)pl_config_int(r->config, "data.workers");
    if (!card_of(r)) return pl__images_wanted(r) ? 1 : 0;
    int half = pl_threads_count() / 2;
    return half < 1 ? 1 : half > MOST ? MOST : half;
}

static int depth_of(const pl_run *r, int workers)
{
    int depth = pl_config_is_null(r->config, "data.prefetch")
                    ? workers + 1
                    : (int)pl_config_int(r->config, "data.prefetch");
    depth += reads_again(r); /* one is held */
    return depth < workers ? workers : depth;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes of a batch buffer: every input, the numbers of its samples and their passes; of the largest
 * bucket. */
static size_t batch_bytes(const pl_run *r)
{
    place list[MAX_INPUTS];
    size_t most = 0;
    for (int k = 0; k < r->build->n_variants; k++) {
        size_t sum = aligned(2 * (size_t)r->build->micro * sizeof(int64_t));
        int n = list_inputs(r, k, list, MAX_INPUTS);
        for (int i = 0; i < n; i++) sum += aligned(place_bytes(&list[i]));
        if (sum > most) most = sum;
    }
    return most;
}

/* Threads that decode when the caller reads a batch by itself: for evaluation, and with
 * data.workers=0. */
static int callers_of(void)
{
    enum { MOST = 4 };
    return pl_threads_count() < MOST ? pl_threads_count() : MOST;
}

uint64_t pl_prefetch_bytes(const pl_run *r)
{
    if (r->purpose.goal == PL_GOAL_REPLAY || !pl__train(r) || card_of(r)) return 0;
    int workers = workers_of(r);
    uint64_t bytes = workers ? pl_loader_bytes(workers, depth_of(r, workers), batch_bytes(r)) : 0;
    bool own = pl_config_is_null(r->config, "data.path") && r->recipe->data_bytes;
    return bytes + (own ? r->recipe->data_bytes(r->config) : 0) +
           pl__images_bytes(r, workers + callers_of());
}

/* ---- reading a batch --------------------------------------------------------------------- */
void *pl_batch_input(pl_batch *batch, const char *name, pl_type *type)
{
    return batch->find(batch->find_ctx, name, type);
}

int64_t pl_batch_pass(const pl_batch *batch, int i)
{
    return batch->passes ? batch->passes[i] : 0;
}

/* Inputs of a program in the session's memory. */
typedef struct session_inputs {
    pl_session *session;
    const pl_program *program;
} session_inputs;

static void *find_session_input(void *ctx, const char *name, pl_type *type)
{
    const session_inputs *s = ctx;
    return pl_session_input(s->session, s->program, name, type);
}

/* Inputs of the training programs in a buffer of the ring. */
typedef struct ring_inputs {
    const layout *layout;
    char *buffer;
} ring_inputs;

static void *find_ring_input(void *ctx, const char *name, pl_type *type)
{
    const ring_inputs *b = ctx;
    for (int i = 0; i < b->layout->n; i++) {
        const place *p = &b->layout->places[i];
        if (strcmp(p->name, name) != 0) continue;
        if (type) *type = p->type;
        return b->buffer + p->at;
    }
    return NULL;
}

/* Of the source, whatever part of it is left out; images leave theirs out themselves. */
static int64_t source_size(pl_run *r, pl_subset subset)
{
    if (r->data.images) return pl__images_size(r, subset);
    if (r->data.dataset) return pl_dataset_rows(r->data.dataset, subset);
    if (r->data.texts && pl__prompts_wanted(r)) return pl__prompts_size(r, subset);
    return pl__recipe_samples(r, subset);
}

static bool folded(pl_run *r, pl_fold *f)
{
    return !r->data.images && r->purpose.goal != PL_GOAL_ENCODE &&
           pl__fold_of(r->config, source_size(r, PL_SUBSET_TRAIN), f);
}

int64_t pl_prefetch_size(pl_run *r, pl_subset subset)
{
    pl_fold f;
    if (!folded(r, &f)) return source_size(r, subset);
    int64_t part = f.end - f.begin;
    return subset == PL_SUBSET_TRAIN ? f.size - part : part;
}

bool pl_prefetch_lacks(pl_run *r, pl_subset subset)
{
    bool on_disk = r->data.images || r->data.dataset || (r->data.texts && pl__prompts_wanted(r));
    return on_disk && pl_prefetch_size(r, subset) == 0;
}

int pl_prefetch_bucket(const pl_run *r, int64_t step)
{
    return pl_run_bucket_count(r) && r->data.images ? pl__images_bucket(r, step) : 0;
}

/* The samples of training batch `number`, and how often each has come before; as they come in, or
 * as the pool (data.pool) gives them. */
static void choose_samples(pl_run *r, int64_t number, bool pooled, int64_t *samples,
                           int64_t *passes)
{
    uint64_t seed = (uint64_t)pl_config_int(r->config, "seed");
    int64_t size = pl_prefetch_size(r, PL_SUBSET_TRAIN),
            pool = pooled ? pl_config_int(r->config, "data.pool") : 0;
    if (r->data.images) {
        pl__images_choose(r, seed, number, pool, samples, passes);
        return;
    }
    pl_fold f;
    bool left_out = folded(r, &f);
    for (int64_t i = 0; i < r->build->micro; i++) {
        int64_t p = pl_pool_source(seed, pool, pl__run_batch(r), pl__ranks_position(r, number, i));
        samples[i] = size <= 0 ? p : pl__sample_at(seed, size, p);
        if (left_out && samples[i] >= f.begin) samples[i] += f.end - f.begin;
        passes[i] = size <= 0 ? 0 : p / size;
    }
}

/* First element that is not finite, or -1. The sum of x*0 is 0 exactly when all are finite. */
static int64_t first_nonfinite(const float *x, int64_t n)
{
    float probe = 0;
    for (int64_t i = 0; i < n; i++) probe += x[i] * 0.0f;
    if (probe == 0.0f) return -1;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return i;
    return -1;
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
            "%s%s%s sample %lld: element %lld of \"%s\" is %g; mend the data or set "
            "data.allow_nonfinite=true",
            path, path[0] ? ": " : "", pl_subset_name(subset), (long long)sample,
            (long long)(bad % row), name, (double)((const float *)x)[bad]);
}

/* What is being read: a batch of one bucket, from where, to where. */
typedef struct job {
    pl_subset subset;
    int bucket;
    int64_t *samples, *passes;
    pl_batch *batch;
    const pl_program *program; /* whose inputs these are; NULL: those of the ring */
    int thread, n_threads;     /* of images that may work on it */
    int64_t number;            /* of the training batch; -1: it is none */
} job;

static pl_status check_finite(pl_run *r, const job *j)
{
    const layout *l = &r->data.prefetch->layouts[j->bucket];
    int n = j->program ? pl_program_input_count(j->program) : l->n;
    for (int i = 0; i < n; i++) {
        pl_type t;
        const char *name = j->program ? pl_program_input_name(j->program, i) : l->places[i].name;
        const void *x = pl_batch_input(j->batch, name, &t);
        if (x) PL_TRY(check_input(r, j->subset, j->samples, name, &t, x));
    }
    return PL_OK;
}

static pl_status read_samples(pl_run *r, const job *j)
{
    int n = (int)r->build->micro;
    if (r->data.images) {
        pl_images_job images = {
            j->subset, j->bucket, j->samples,   j->passes,
            j->batch,  j->thread, j->n_threads, !j->program && r->data.prefetch->bytes_form};
        return pl__images_read(r, &images);
    }
    bool prompts = r->data.texts && pl__prompts_wanted(r);
    j->batch->passes = j->passes;
    pl_fold f;
    /* the part left out is of that set */
    pl_subset subset = folded(r, &f) ? PL_SUBSET_TRAIN : j->subset;
    if (r->data.dataset) {
        PL_TRY(pl_dataset_read(r->data.dataset, j->subset, j->samples, n, j->batch));
    } else if (!prompts || r->recipe->data_read) {
        PL_FAIL_IF(!r->recipe->data_read, PL_ERR_CONFIG,
                   "recipe %s has no data of its own: set data.path", r->recipe->name);
        PL_TRY(r->recipe->data_read(r->data.recipe, subset, j->samples, n, j->batch));
    }
    if (prompts) PL_TRY(pl__prompts_read(r, subset, j->samples, n, j->batch));
    return pl_config_bool(r->config, "data.allow_nonfinite") ? PL_OK : check_finite(r, j);
}

/* ---- inputs that pass by the pool ---- */
/* A batch of which only some inputs are there. */
typedef struct part_of {
    pl_batch *all;
    const char *const *names;
    bool named; /* those of the list; else all others */
} part_of;

static void *find_part(void *ctx, const char *name, pl_type *type)
{
    const part_of *p = ctx;
    bool in = false;
    for (const char *const *n = p->names; *n && !in; n++) in = strcmp(*n, name) == 0;
    return in == p->named ? pl_batch_input(p->all, name, type) : NULL;
}

/* What a batch has of the pool's samples, then what it has of those that have just come in. */
static pl_status read_into(pl_run *r, const job *j)
{
    const pl_image_feed *f = r->recipe->images;
    bool apart = f && f->unpooled && j->number >= 0 && pl_config_int(r->config, "data.pool") &&
                 pl_config_bool(r->config, f->unpooled_if);
    if (!apart) return read_samples(r, j);
    part_of part = {j->batch, f->unpooled, false};
    pl_batch batch = {.find = find_part, .find_ctx = &part};
    job of = *j;
    of.batch = &batch;
    PL_TRY(read_samples(r, &of));
    part.named = true;
    choose_samples(r, j->number, false, of.samples, of.passes);
    return read_samples(r, &of);
}

static pl_status fill_ring(void *ctx, int64_t number, void *buffer, int worker)
{
    pl_run *r = ctx;
    int bucket = pl_prefetch_bucket(r, number / r->build->accumulate);
    ring_inputs where = {&r->data.prefetch->layouts[bucket], buffer};
    pl_batch batch = {.find = find_ring_input, .find_ctx = &where};
    int64_t *samples = (void *)((char *)buffer + where.layout->samples_at),
            *passes = samples + r->build->micro;
    choose_samples(r, number, true, samples, passes);
    return read_into(
        r, &(job){PL_SUBSET_TRAIN, bucket, samples, passes, &batch, NULL, worker, 1, number});
}

/* The samples of r->data.prefetch->samples into the program's inputs, by the caller. */
static pl_status read_now(pl_run *r, pl_subset subset, int bucket, pl_program *p, int64_t number)
{
    const pl_prefetch *s = r->data.prefetch;
    session_inputs where = {r->session, p};
    pl_batch batch = {.find = find_session_input, .find_ctx = &where};
    return read_into(r, &(job){subset, bucket, s->samples, s->passes, &batch, p, s->workers,
                               callers_of(), number});
}

int64_t pl_prefetch_eval_rows(const pl_run *r, int bucket, int64_t total)
{
    return pl_run_bucket_count(r) && r->data.images ? pl__images_eval_rows(r, bucket, total)
                                                    : total;
}

pl_status pl_prefetch_rows(pl_run *r, pl_subset subset, pl_program *p, int64_t first, int64_t rows)
{
    for (int64_t i = 0; i < r->build->micro; i++) {
        r->data.prefetch->samples[i] = first + (i < rows ? i : rows - 1);
        r->data.prefetch->passes[i] = 0;
    }
    return read_now(r, subset, 0, p, -1);
}

static pl_status read_eval(pl_run *r, int bucket, pl_program *p, int64_t first, int64_t rows)
{
    pl_fold f;
    int64_t begin = folded(r, &f) ? f.begin : 0, size = pl_prefetch_size(r, PL_SUBSET_EVAL);
    for (int64_t i = 0; i < r->build->micro; i++) {
        int64_t at = begin + (size > 0 ? (first + i % rows) % size : first + i % rows);
        r->data.prefetch->samples[i] =
            pl_run_bucket_count(r) ? pl__images_eval_at(r, bucket, at) : at;
        r->data.prefetch->passes[i] = 0;
    }
    return read_now(r, PL_SUBSET_EVAL, bucket, p, -1);
}

pl_status pl_prefetch_eval(pl_run *r, int bucket, int64_t first, int64_t rows)
{
    return read_eval(r, bucket, r->build->variants[bucket].eval, first, rows);
}

pl_status pl_prefetch_eval_into(pl_run *r, pl_program *p, int64_t first, int64_t rows)
{
    return read_eval(r, 0, p, first, rows);
}

pl_status pl_prefetch_hash(pl_run *r, uint64_t *out)
{
    pl_prefetch *s = r->data.prefetch;
    int64_t size = pl_prefetch_size(r, PL_SUBSET_TRAIN);
    *out = XXH64(&size, sizeof size, 0);
    if (pl_run_bucket_count(r)) return PL_OK;
    for (int64_t i = 0; i < r->build->micro; i++) {
        s->samples[i] = size <= 0                ? i
                        : size > r->build->micro ? i * (size / r->build->micro)
                                                 : i % size;
        s->passes[i] = 0;
    }
    pl_status rc = PL_OK;
    /* an input that data do not fill counts as zeros */
    for (int round = 0; round < 2 && rc == PL_OK; round++) {
        for (int i = 0; i < pl_program_input_count(pl__train(r)); i++) {
            pl_type t;
            void *x = pl_session_input(r->session, pl__train(r),
                                       pl_program_input_name(pl__train(r), i), &t);
            if (x && round)
                *out = XXH64(x, pl_type_bytes(&t), *out);
            else if (x)
                memset(x, 0, pl_type_bytes(&t));
        }
        if (!round) rc = read_now(r, PL_SUBSET_TRAIN, 0, pl__train(r), -1);
    }
    return rc;
}

static void let_go(pl_prefetch *s)
{
    if (s->held >= 0) pl_loader_done(s->loader);
    s->held = -1;
}

static pl_status hold(pl_prefetch *s, int64_t number)
{
    if (s->held == number) return PL_OK;
    let_go(s);
    PL_TRY(pl_loader_take(s->loader, number, &s->buffer));
    s->held = number;
    return PL_OK;
}

/* Bytes become an input's numbers on their way into it: less is read than a copy would read. */
typedef struct widening {
    const place *place;
    const uint8_t *from;
    float *to;
    int64_t n;
} widening;

enum { PIECE = 1 << 16 };

static void widen_piece(void *ctx, int64_t task, int worker)
{
    const widening *w = ctx;
    (void)worker;
    int64_t at = task * PIECE, n = w->n - at < PIECE ? w->n - at : PIECE;
    pl_bytes_widen(w->from + at, (size_t)n, w->place->low, w->place->high, false, w->to + at);
}

static void copy_in(const place *p, const void *from, void *to)
{
    widening w = {p, from, to, pl_type_elems(&p->type)};
    if (!p->bytes)
        memcpy(to, from, place_bytes(p));
    else
        pl_threads_for((w.n + PIECE - 1) / PIECE, widen_piece, &w);
}

pl_status pl_prefetch_read(pl_run *r, pl_program *p, int64_t number)
{
    pl_prefetch *s = r->data.prefetch;
    int bucket = pl_prefetch_bucket(r, number / r->build->accumulate);
    if (!s->loader) {
        choose_samples(r, number, true, s->samples, s->passes);
        return read_now(r, PL_SUBSET_TRAIN, bucket, p, number);
    }
    PL_TRY(hold(s, number));
    for (int i = 0; i < s->layouts[bucket].n; i++) {
        const place *from = &s->layouts[bucket].places[i];
        pl_type type;
        void *to = pl_session_input(r->session, p, from->name, &type);
        PL_FAIL_IF(to && !pl_type_equal(&type, &from->type), PL_ERR_ARG,
                   "batch %lld is of another bucket than the program that reads it",
                   (long long)number);
        if (to) copy_in(from, (char *)s->buffer + from->at, to);
    }
    if (!reads_again(r)) let_go(s);
    return PL_OK;
}

bool pl_prefetch_ready(pl_run *r, int64_t number)
{
    pl_prefetch *s = r->data.prefetch;
    if (!s->loader || s->held == number) return true;
    let_go(s);
    return pl_loader_ready(s->loader, number);
}

/* ---- opening ------------------------------------------------------------------------------ */
static pl_status lay_out_bucket(pl_run *r, pl_prefetch *in, int bucket)
{
    layout *l = &in->layouts[bucket];
    l->places = pl_arena_new(&in->mem, place, MAX_INPUTS);
    if (!l->places) return PL_ERR_MEMORY;
    l->n = list_inputs(r, bucket, l->places, MAX_INPUTS);
    for (int i = 0; i < l->n; i++) {
        in->bytes_form |= l->places[i].bytes;
        l->places[i].at = l->samples_at;
        l->samples_at += aligned(place_bytes(&l->places[i]));
    }
    return PL_OK;
}

static pl_status lay_out(pl_run *r, pl_prefetch *in)
{
    in->held = -1;
    in->layouts = pl_arena_new(&in->mem, layout, r->build->n_variants);
    in->samples = pl_arena_new(&in->mem, int64_t, r->build->micro);
    in->passes = pl_arena_new(&in->mem, int64_t, r->build->micro);
    if (!in->layouts || !in->samples || !in->passes) return PL_ERR_MEMORY;
    for (int k = 0; k < r->build->n_variants; k++) PL_TRY(lay_out_bucket(r, in, k));
    in->bytes = batch_bytes(r);
    return PL_OK;
}

/* The files of data.cache, if they are what they should be. */
static pl_status open_cache(pl_run *r)
{
    bool fresh;
    char why[512];
    const char *dir = pl_config_text(r->config, "data.cache");
    PL_TRY(pl__cache_fresh(r, &fresh, why, sizeof why));
    PL_FAIL_IF(
        !fresh, PL_ERR_DATA,
        "data.cache %s cannot be used: %s; plimsoll cache with the same configuration makes it anew",
        dir, why);
    return pl_dataset_open(dir, "", pl__train(r), pl__eval(r), pl__folded(r), &r->data.dataset);
}

/* Arrays of data.path. What evaluates alone wants no samples for training, unless there are none
 * for evaluation. */
static pl_status open_arrays(pl_run *r)
{
    const char *path = pl_config_text(r->config, "data.path");
    const char *fields =
        pl_config_is_null(r->config, "data.fields") ? "" : pl_config_text(r->config, "data.fields");
    const pl_program *eval = r->data.encode_eval ? pl__train(r) : pl__eval(r);
    if (r->purpose.goal == PL_GOAL_EVALUATE && !pl__folded(r)) {
        PL_TRY(pl_dataset_open(path, fields, NULL, eval, false, &r->data.dataset));
        if (pl_dataset_rows(r->data.dataset, PL_SUBSET_EVAL) > 0) return PL_OK;
        pl_dataset_close(r->data.dataset);
        r->data.dataset = NULL;
    }
    return pl_dataset_open(path, fields, pl__train(r), eval, pl__folded(r), &r->data.dataset);
}

/* data.source, or what data.path and the recipe make of `auto`. */
static pl_status open_source(pl_run *r)
{
    const char *source = pl_config_text(r->config, "data.source");
    bool path = !pl_config_is_null(r->config, "data.path");
    PL_FAIL_IF(!path && strcmp(source, "auto") != 0 && strcmp(source, "synthetic") != 0,
               PL_ERR_CONFIG, "data.source=%s wants data.path", source);
    if (pl__cache_wanted(r)) return open_cache(r);
    PL_TRY(pl__texts_open(r));
    if (pl__images_wanted(r)) return pl__images_open(r, r->data.prefetch->workers + callers_of());
    PL_FAIL_IF(pl_run_bucket_count(r), PL_ERR_CONFIG,
               "data.buckets wants images: data.path names none");
    return path && strcmp(source, "synthetic") != 0 ? open_arrays(r) : pl__recipe_data_open(r);
}

static pl_status check_pool(const pl_run *r)
{
    int64_t pool = pl_config_int(r->config, "data.pool"), batch = pl__run_batch(r);
    if (!pool) return PL_OK;
    PL_FAIL_IF(pl_run_bucket_count(r), PL_ERR_CONFIG,
               "data.pool and data.buckets do not go together");
    PL_FAIL_IF(
        batch > PL_POOL_BATCH || pool < batch, PL_ERR_CONFIG,
        "data.pool=%lld with a batch of %lld: the pool holds at least a batch, which has at most %d samples",
        (long long)pool, (long long)batch, PL_POOL_BATCH);
    return PL_OK;
}

pl_status pl_prefetch_open(pl_run *r)
{
    pl_prefetch *in = pl_sys_alloc(sizeof *in);
    if (!in) return PL_ERR_MEMORY;
    r->data.prefetch = in;
    in->workers = workers_of(r);
    PL_TRY(lay_out(r, in));
    PL_TRY(check_pool(r));
    PL_TRY(open_source(r));
    if (!r->data.images && r->purpose.goal != PL_GOAL_ENCODE)
        PL_TRY(pl__fold_check(r->config, source_size(r, PL_SUBSET_TRAIN)));
    PL_FAIL_IF(r->purpose.goal != PL_GOAL_EVALUATE && pl_prefetch_lacks(r, PL_SUBSET_TRAIN),
               PL_ERR_DATA, "data.path %s: no sample is left for training",
               pl_config_text(r->config, "data.path"));
    if (!in->workers) return PL_OK;
    pl_loader_opts o = {.workers = in->workers,
                        .depth = depth_of(r, in->workers),
                        .buffer_bytes = in->bytes,
                        .first = r->steps.done * r->build->accumulate,
                        .fill = fill_ring,
                        .ctx = r};
    return pl_loader_new(&o, &in->loader);
}

void pl_prefetch_close(pl_run *r)
{
    pl_prefetch *in = r->data.prefetch;
    if (in) pl_loader_free(in->loader); /* its workers read what is closed below */
    pl__images_close(r);
    pl__texts_close(r);
    pl_dataset_close(r->data.dataset);
    if (r->data.recipe_open && r->recipe->data_close) r->recipe->data_close(r->data.recipe);
    if (in) pl_arena_release(&in->mem);
    pl_sys_free(in);
    r->data.prefetch = NULL;
}
