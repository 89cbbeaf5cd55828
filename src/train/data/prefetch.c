/* prefetch.c - see prefetch.h.
 *
 * A buffer of the ring holds one micro-batch: every input of the training programs, each aligned,
 * pictures first, then the numbers of the samples and their passes. Images are stored as bytes
 * where every value is one of 256, a quarter of f32, and are converted to f32 when they are copied
 * into the program's input. A buffer whose batch several programs or updates read is kept until
 * another batch is read.
 */
#include "train/data/prefetch.h"

#include "train/data/dataset.h"

#include "base/sys.h"
#include "base/threads.h"
#include "data/sets/loader.h"
#include "rt/device.h"
#include "train/data/images/image_set.h"
#include "train/data/mix_batch.h"
#include "train/data/source.h"

#include <string.h>
#include <xxhash.h>

enum { ALIGN = 64 };

/* One input of a program inside a batch buffer. */
typedef struct place {
    const char *name;
    pl_type type;
    size_t at;
    bool bytes; /* stored as bytes: 0 means low, 255 means high */
    float low, high;
} place;

static size_t place_bytes(const place *p)
{
    return p->bytes ? (size_t)pl_type_elems(&p->type) : pl_type_bytes(&p->type);
}

/* Where the inputs of a batch of one bucket lie in a buffer of the ring. */
typedef struct layout {
    place *places; /* inputs of the training programs, by name */
    int n;
    size_t samples_at; /* the samples' numbers and passes, after the inputs */
} layout;

struct pl_prefetch {
    pl_arena mem;
    layout *layouts; /* by bucket */
    size_t bytes;    /* of the largest */
    size_t pixels;   /* first bytes of a buffer that are pixels in every bucket */
    bool bytes_form; /* images are stored as bytes */
    int workers;
    pl_loader *loader;         /* NULL: no worker threads, the caller reads */
    int64_t *samples, *passes; /* of a batch that the caller reads */
    void *extra;               /* pl__mix_bytes for it */
    int64_t held; /* batch whose buffer is kept for the next programs of the step; -1: none */
    void *buffer; /* that buffer */
};

/* ---- how many threads and bytes -------------------------------------------------------------- */
static const pl_device *card_of(const pl_run *r)
{
    const pl_device *dev = pl__train(r) ? pl_program_device(pl__train(r)) : NULL;
    return dev && dev->own_memory ? dev : NULL;
}

/* Walks over the inputs of all training programs of a bucket, each name once. clash: two programs
 * give one name different types, which ends the walk. */
typedef struct input_walk {
    const pl_run *r;
    int bucket, program, input; /* the next one to look at */
    bool clash;
} input_walk;

static const pl_program *program_of(const input_walk *w, int i)
{
    return w->r->build->variants[w->bucket].step_programs[i].run;
}

/* Whether a program before this one has an input of the same name. */
static bool seen_before(input_walk *w, const place *p)
{
    for (int t = 0; t < w->program; t++) {
        const pl_program *other = program_of(w, t);
        for (int i = 0; i < pl_program_input_count(other); i++) {
            if (strcmp(pl_program_input_name(other, i), p->name) != 0) continue;
            pl_type type = pl_program_input_type(other, i);
            w->clash |= !pl_type_equal(&type, &p->type);
            return true;
        }
    }
    return false;
}

static bool next_input(input_walk *w, place *out)
{
    for (; w->program < w->r->build->now->n_step_programs; w->program++, w->input = 0) {
        const pl_program *p = program_of(w, w->program);
        while (w->input < pl_program_input_count(p)) {
            int i = w->input++;
            *out =
                (place){.name = pl_program_input_name(p, i), .type = pl_program_input_type(p, i)};
            if (!seen_before(w, out)) {
                out->bytes =
                    pl__images_as_bytes(w->r, out->name, &out->type, &out->low, &out->high);
                return true;
            }
            if (w->clash) return false;
        }
    }
    return false;
}

/* Whether a batch is read more than once: by several programs, or for several updates. */
static bool reads_twice(const pl_run *r)
{
    return r->build->now->n_step_programs > 1 || pl__run_updates(r) > 1;
}

/* With several programs or updates per step a buffer serves all reads of its batch. Micro-batches
 * prevent this: each program and update reads all micro-batches before the next one starts. */
static bool can_read_ahead(const pl_run *r)
{
    input_walk w = {.r = r};
    place p;
    while (next_input(&w, &p)) continue;
    return !w.clash && (!reads_twice(r) || r->build->accumulate == 1);
}

/* On the CPU a worker takes a core from the kernels, so only image decoding is worth one; with a
 * GPU the host's cores are free. */
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
    depth += reads_twice(r); /* one buffer is held */
    return depth < workers ? workers : depth;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Returns the bytes of a buffer of the ring: the size of the largest bucket. */
static size_t batch_bytes(const pl_run *r)
{
    size_t most = 0;
    for (int k = 0; k < r->build->n_variants; k++) {
        size_t sum = aligned(2 * (size_t)r->build->micro * sizeof(int64_t)) + pl__mix_bytes(r, k);
        input_walk w = {.r = r, .bucket = k};
        place p;
        while (next_input(&w, &p)) sum += aligned(place_bytes(&p));
        if (sum > most) most = sum;
    }
    return most;
}

/* Returns pl__mix_bytes of the largest bucket. */
static size_t most_extra(const pl_run *r)
{
    size_t most = 0;
    for (int k = 0; k < r->build->n_variants; k++)
        if (pl__mix_bytes(r, k) > most) most = pl__mix_bytes(r, k);
    return most;
}

/* Returns the threads that decode images when the caller reads a batch: in evaluations, and with
 * data.workers=0. */
static int callers_of(void)
{
    enum { MOST = 4 };
    return pl_threads_count() < MOST ? pl_threads_count() : MOST;
}

/* Returns the memory of the processes that read HDF5 files. */
static uint64_t process_bytes(const pl_run *r)
{
    if (pl_config_is_null(r->config, "data.path")) return 0;
    input_walk w = {.r = r};
    place p;
    int n = 0;
    uint64_t row = 0, micro = (uint64_t)(r->build->micro > 0 ? r->build->micro : 1);
    for (; next_input(&w, &p); n++) row += place_bytes(&p) / micro;
    return pl_dataset_process_bytes(pl_config_text(r->config, "data.path"), n, row);
}

uint64_t pl_prefetch_bytes(const pl_run *r)
{
    if (r->purpose.goal == PL_GOAL_REPLAY || !pl__train(r) || card_of(r)) return 0;
    if (r->purpose.goal == PL_GOAL_PREDICT) return pl__prediction_bytes(r);
    int workers = workers_of(r);
    uint64_t bytes = workers ? pl_loader_bytes(workers, depth_of(r, workers), batch_bytes(r)) : 0;
    bool own = pl_config_is_null(r->config, "data.path") && r->recipe->data_bytes;
    return bytes + most_extra(r) + (own ? r->recipe->data_bytes(r->config) : 0) +
           pl__images_bytes(r, workers + callers_of()) + process_bytes(r);
}

/* ---- reading a batch --------------------------------------------------------------------- */
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

static const char *session_input_at(void *ctx, int i)
{
    const session_inputs *s = ctx;
    return i < pl_program_input_count(s->program) ? pl_program_input_name(s->program, i) : NULL;
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

static const char *ring_input_at(void *ctx, int i)
{
    const ring_inputs *b = ctx;
    return i < b->layout->n ? b->layout->places[i].name : NULL;
}

static pl_status fill_ring(void *ctx, int64_t number, void *buffer, int worker)
{
    pl_run *r = ctx;
    int bucket = pl_source_bucket(r, number / r->build->accumulate);
    ring_inputs where = {&r->data.prefetch->layouts[bucket], buffer};
    pl_batch batch = {.find = find_ring_input, .input_at = ring_input_at, .find_ctx = &where};
    int64_t *samples = (void *)((char *)buffer + where.layout->samples_at),
            *passes = samples + r->build->micro;
    pl_choice all = {.number = number, .n = r->build->micro, .pooled = true};
    pl_source_choose(r, all, samples, passes);
    pl_read_job job = {.subset = PL_SUBSET_TRAIN,
                       .bucket = bucket,
                       .samples = samples,
                       .passes = passes,
                       .rows = r->build->micro,
                       .extra = samples + aligned(2 * (size_t)r->build->micro * sizeof *samples) /
                                              sizeof *samples,
                       .batch = &batch,
                       .thread = worker,
                       .n_threads = 1,
                       .bytes = r->data.prefetch->bytes_form,
                       .number = number};
    return pl_source_read(r, &job);
}

/* Reads the samples of r->data.prefetch->samples into the program's inputs, without workers. */
static pl_status read_now(pl_run *r, pl_subset subset, int bucket, pl_program *p, int64_t number)
{
    const pl_prefetch *s = r->data.prefetch;
    session_inputs where = {r->session, p};
    pl_batch batch = {.find = find_session_input, .input_at = session_input_at, .find_ctx = &where};
    pl_read_job job = {.subset = subset,
                       .bucket = bucket,
                       .samples = s->samples,
                       .passes = s->passes,
                       .rows = r->build->micro,
                       .extra = s->extra,
                       .batch = &batch,
                       .thread = s->workers,
                       .n_threads = callers_of(),
                       .number = number};
    return pl_source_read(r, &job);
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
    int64_t begin = pl_source_fold(r, &f) ? f.begin : 0, size = pl_source_size(r, PL_SUBSET_EVAL);
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
    int64_t size = pl_source_size(r, PL_SUBSET_TRAIN);
    *out = XXH64(&size, sizeof size, 0);
    if (pl_run_bucket_count(r)) return PL_OK;
    for (int64_t i = 0; i < r->build->micro; i++) {
        s->samples[i] = size <= 0                ? i
                        : size > r->build->micro ? i * (size / r->build->micro)
                                                 : i % size;
        s->passes[i] = 0;
    }
    pl_status rc = PL_OK;
    /* an input that the data do not fill counts as zeros */
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

/* Stored bytes become f32 while they are copied into the input. */
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
    int bucket = pl_source_bucket(r, number / r->build->accumulate);
    if (!s->loader) {
        pl_choice all = {.number = number, .n = r->build->micro, .pooled = true};
        pl_source_choose(r, all, s->samples, s->passes);
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
    if (!reads_twice(r)) let_go(s);
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
/* Whether an input has bytes of pictures, any value of which is valid: decoders may write them. */
static bool is_picture(const pl_run *r, const place *p)
{
    return p->bytes || (p->type.dtype == PL_U8 && pl__images_has(r, p->name));
}

/* Shares the pixels of the ring with the sandboxes of the workers, nothing else of it. */
static void share_ring(void *ctx, void *buffers, size_t stride, int depth)
{
    pl_run *r = ctx;
    if (r->data.images)
        pl__images_share(r, r->data.prefetch->workers,
                         &(pl_decoder_ring){.at = buffers,
                                            .stride = stride,
                                            .depth = depth,
                                            .pixels = r->data.prefetch->pixels});
}

static pl_status lay_out_bucket(pl_run *r, pl_prefetch *in, int bucket)
{
    layout *l = &in->layouts[bucket];
    int most = 0;
    for (int t = 0; t < r->build->now->n_step_programs; t++)
        most += pl_program_input_count(r->build->variants[bucket].step_programs[t].run);
    l->places = pl_arena_new(&in->mem, place, (size_t)most + 1);
    if (!l->places) return PL_ERR_MEMORY;
    input_walk w = {.r = r, .bucket = bucket};
    for (place p; next_input(&w, &p);) {
        in->bytes_form |= p.bytes;
        l->places[l->n++] = p;
    }
    for (int pictures = 1; pictures >= 0; pictures--) {
        for (int i = 0; i < l->n; i++) {
            place *p = &l->places[i];
            if (is_picture(r, p) != (pictures == 1)) continue;
            p->at = l->samples_at;
            l->samples_at += aligned(place_bytes(p));
        }
        if (pictures && (bucket == 0 || l->samples_at < in->pixels)) in->pixels = l->samples_at;
    }
    return PL_OK;
}

static pl_status lay_out(pl_run *r, pl_prefetch *in)
{
    in->held = -1;
    in->layouts = pl_arena_new(&in->mem, layout, r->build->n_variants);
    in->samples = pl_arena_new(&in->mem, int64_t, r->build->micro);
    in->passes = pl_arena_new(&in->mem, int64_t, r->build->micro);
    size_t extra = most_extra(r);
    in->extra = pl_arena_alloc(&in->mem, extra + 1);
    if (!in->layouts || !in->samples || !in->passes || !in->extra) return PL_ERR_MEMORY;
    for (int k = 0; k < r->build->n_variants; k++) PL_TRY(lay_out_bucket(r, in, k));
    in->bytes = batch_bytes(r);
    return PL_OK;
}

pl_status pl_prefetch_open(pl_run *r)
{
    pl_prefetch *in = pl_sys_alloc(sizeof *in);
    if (!in) return PL_ERR_MEMORY;
    r->data.prefetch = in;
    in->workers = workers_of(r);
    PL_TRY(lay_out(r, in));
    PL_TRY(pl_source_open(r, in->workers + callers_of()));
    PL_FAIL_IF(r->purpose.goal != PL_GOAL_EVALUATE && pl_source_lacks(r, PL_SUBSET_TRAIN),
               PL_ERR_DATA, "data.path %s: no sample is left for training",
               pl_config_text(r->config, "data.path"));
    if (!in->workers) return PL_OK;
    pl_loader_opts o = {.workers = in->workers,
                        .depth = depth_of(r, in->workers),
                        .buffer_bytes = in->bytes,
                        .first = r->steps.done * r->build->accumulate,
                        .fill = fill_ring,
                        .ring = share_ring,
                        .ctx = r};
    return pl_loader_new(&o, &in->loader);
}

void pl_prefetch_close(pl_run *r)
{
    pl_prefetch *in = r->data.prefetch;
    if (in) pl_loader_free(in->loader); /* first: its workers read from the source */
    pl_source_close(r);
    if (in) pl_arena_release(&in->mem);
    pl_sys_free(in);
    r->data.prefetch = NULL;
}
