/* image_order.c - which images come when: shuffled, drawn by weight, bucket by bucket.
 *
 * With buckets every image header is read once, when the set is opened, because the size decides
 * the bucket. An unreadable image goes into the bucket of a square; data.on_bad decides what
 * happens when it is drawn.
 */
#include "base/rng.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plimsoll_image.h"
#include "train/data/images/image_set.h"

enum { DRAW_STREAM = 0xD4A3 };
typedef enum draw { SAMPLES, BATCHES } draw;

/* Random number in [0,1) of an element. */
static double drawn(uint64_t seed, draw what, int64_t element)
{
    uint32_t word[4];
    pl_rng_block(seed, DRAW_STREAM, (uint64_t)what, (uint64_t)element, word);
    return ((double)word[0] + (double)(word[1] >> 11) * 0x1p-21) * 0x1p-32;
}

/* ---- buckets -------------------------------------------------------------------------------- */
typedef struct sorting {
    pl_run *r;
    bool eval;
    int64_t n;
    int tasks;
    uint8_t *bucket; /* by sample */
} sorting;

/* task: the thread whose scratch memory is used. */
static void look(void *ctx, int64_t task, int worker)
{
    const sorting *s = ctx;
    (void)worker;
    for (int64_t i = task; i < s->n; i += s->tasks) {
        pl_image_info info;
        bool ok = pl_image_set_look(s->r->data.images->set, s->eval, i, (int)task, &info) == PL_OK;
        s->bucket[i] = (uint8_t)pl__bucket_nearest(s->r, ok ? info.width : 1, ok ? info.height : 1);
    }
}

static pl_status sort_subset(pl_run *r, bool eval)
{
    struct pl_images *m = r->data.images;
    sorting s = {.r = r, .eval = eval, .n = pl_image_set_size(m->set, eval)};
    s.tasks = pl_image_set_threads(m->set);
    s.bucket = pl_sys_alloc((size_t)s.n + 1);
    m->order[eval] = pl_sys_alloc(((size_t)s.n + 1) * sizeof *m->order[eval]);
    int64_t *first = m->first[eval], next[PL_MAX_BUCKETS] = {0};
    if (s.bucket && m->order[eval]) {
        pl_threads_for(s.tasks, look, &s);
        for (int64_t i = 0; i < s.n; i++) first[s.bucket[i] + 1]++;
        for (int k = 0; k < pl_run_bucket_count(r); k++) {
            next[k] = first[k];
            first[k + 1] += first[k];
        }
        for (int64_t i = 0; i < s.n; i++) m->order[eval][next[s.bucket[i]]++] = (int32_t)i;
    }
    pl_sys_free(s.bucket);
    return m->order[eval] && s.bucket ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__images_sort(pl_run *r)
{
    struct pl_images *m = r->data.images;
    for (int e = 0; e < 2; e++) PL_TRY(sort_subset(r, e));
    for (int k = 0; k < pl_run_bucket_count(r); k++)
        m->size[k] = m->first[0][k + 1] - m->first[0][k];
    if (!pl_image_set_weighted(m->set)) return PL_OK;
    int64_t n = pl_image_set_size(m->set, false);
    m->cumulated = pl_sys_alloc((size_t)(n + 1) * sizeof *m->cumulated);
    if (!m->cumulated) return PL_ERR_MEMORY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        m->cumulated[i] = sum += pl_image_set_weight(m->set, m->order[0][i]);
    return PL_OK;
}

/* The bucket of a step, and how many earlier steps had the same bucket. */
static pl_stratum stratum_of(const pl_run *r, int64_t step)
{
    const struct pl_images *m = r->data.images;
    uint64_t seed = (uint64_t)pl_config_int(r->config, "seed");
    if (!m->cumulated) {
        pl_strata s = {m->size, pl_run_bucket_count(r), pl__run_batch(r)};
        return pl__stratum_at(seed, &s, step);
    }
    int64_t n = pl_image_set_size(m->set, false),
            at = pl_weighted_draw(m->cumulated, 0, n, drawn(seed, BATCHES, step));
    int k = 0;
    while (m->first[0][k + 1] <= at) k++;
    return (pl_stratum){k, 0};
}

int pl__images_bucket(const pl_run *r, int64_t step)
{
    return stratum_of(r, step).bucket;
}

static void choose_in_bucket(const pl_run *r, uint64_t seed, pl_choice c, int64_t *samples,
                             int64_t *passes)
{
    const struct pl_images *m = r->data.images;
    pl_stratum s = stratum_of(r, c.number / r->build->accumulate);
    int64_t first = m->first[0][s.bucket], size = m->size[s.bucket];
    int64_t own = s.index * r->build->accumulate + c.number % r->build->accumulate,
            from = pl__ranks_position(r, own, c.first);
    for (int64_t i = 0; i < c.n; i++) {
        int64_t p = from + i, all = pl__ranks_position(r, c.number, c.first + i);
        int64_t at = m->cumulated ? pl_weighted_draw(m->cumulated, first, first + size,
                                                     drawn(seed, SAMPLES, all))
                                  : first + pl__sample_at(seed + (uint64_t)s.bucket, size, p);
        samples[i] = m->order[0][at];
        passes[i] = m->cumulated ? all : p / size;
    }
}

/* ---- all of one size ------------------------------------------------------------------------ */
void pl__images_choose(const pl_run *r, uint64_t seed, pl_choice c, int64_t pool, int64_t *samples,
                       int64_t *passes)
{
    const pl_image_set *set = r->data.images->set;
    int64_t size = pl_image_set_size(set, false);
    if (pl_run_bucket_count(r)) {
        choose_in_bucket(r, seed, c, samples, passes);
        return;
    }
    for (int64_t i = 0; i < c.n; i++) {
        int64_t p = pl_pool_source(seed, pool, pl__run_batch(r),
                                   pl__ranks_position(r, c.number, c.first + i));
        bool weighted = pl_image_set_weighted(set);
        samples[i] = weighted ? pl_image_set_draw(set, drawn(seed, SAMPLES, p))
                              : pl__sample_at(seed, size, p);
        /* A sample that is drawn with replacement comes more than once per epoch: its position
         * distinguishes the draws. */
        passes[i] = weighted ? p : p / size;
    }
}

/* ---- evaluation: the first so many samples, bucket by bucket ---------------------------- */
int64_t pl__images_eval_rows(const pl_run *r, int bucket, int64_t total)
{
    const struct pl_images *m = r->data.images;
    int64_t n = 0, first = m->first[1][bucket], end = m->first[1][bucket + 1];
    while (first + n < end && m->order[1][first + n] < total) n++;
    return n;
}

int64_t pl__images_eval_at(const pl_run *r, int bucket, int64_t i)
{
    return r->data.images->order[1][r->data.images->first[1][bucket] + i];
}
