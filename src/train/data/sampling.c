/* sampling.c - the order of samples.
 *
 * An epoch visits every sample once, in an order that is a pure function of (seed, epoch). The
 * permutation is a four-round Feistel network over the next power of 4, applied again until the
 * result is in range (fewer than 4 times on average). It needs no table, O(1) memory for any size,
 * and random access to any position, so resuming does not replay the order.
 *
 * With buckets all samples of a batch belong to one bucket, and each bucket is an endless stream of
 * such epochs, split into batches. A batch belongs to epoch e if its first sample lies in pass e of
 * its bucket:
 *
 *     bucket 0, 10 samples   |0123|4567|89 0|1234|5678|9 ...   epoch 0: 3 batches, epoch 1: 2
 *     bucket 1,  3 samples   |012 0|12 01|2 012| ...           epochs 0, 1, 2: 1 each, epoch 3: 0
 *
 * The number of batches that begin before an epoch has a closed form, so bisection finds a batch's
 * epoch, and the same permutation its position in that epoch. No sample is dropped or padded.
 */
#include "base/err.h"
#include "base/hash.h"
#include "train/run/run.h"

int64_t pl__sample_at(uint64_t seed, int64_t size, int64_t p)
{
    if (size <= 1) return 0;
    uint64_t epoch = (uint64_t)(p / size), x = (uint64_t)(p % size);
    int half = 1;
    while (((uint64_t)1 << (2 * half)) < (uint64_t)size) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    const uint64_t key = pl_mix64(seed * PL_GOLDEN64 + epoch + 1);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (pl_mix64(key + (round << 56) + right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)size);
    return (int64_t)x;
}

/* ---- batches of several buckets -------------------------------------------------------------- */
/* Returns how many batches of a bucket of n samples begin before its sample `end`. */
static int64_t begun(int64_t end, int64_t batch)
{
    return (end + batch - 1) / batch;
}

static int64_t begun_before(const pl_strata *s, int64_t epoch)
{
    int64_t sum = 0;
    for (int k = 0; k < s->n; k++) sum += begun(epoch * s->size[k], s->batch);
    return sum;
}

/* Returns the epoch that batch `number` begins in: the last epoch before which at most `number`
 * batches have begun. */
static int64_t epoch_of(const pl_strata *s, int64_t number)
{
    int64_t lo = 0, hi = 1;
    while (begun_before(s, hi) <= number) hi *= 2;
    while (lo + 1 < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (begun_before(s, mid) <= number)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

pl_stratum pl__stratum_at(uint64_t seed, const pl_strata *s, int64_t number)
{
    int64_t epoch = epoch_of(s, number), first = begun_before(s, epoch);
    int64_t count = begun_before(s, epoch + 1) - first;
    /* Permutes the batches of this epoch only. */
    int64_t at = pl__sample_at(seed ^ pl_mix64((uint64_t)epoch + 0xB0C5), count, number - first);
    for (int k = 0; k < s->n; k++) {
        int64_t from = begun(epoch * s->size[k], s->batch);
        int64_t here = begun((epoch + 1) * s->size[k], s->batch) - from;
        if (at < here) return (pl_stratum){k, from + at};
        at -= here;
    }
    PL_BUG("batch %lld is in no bucket", (long long)number);
}

/* ---- folds: one part left out of training ----------------------------------------------- */
bool pl__folded(const pl_run *r)
{
    return r->purpose.goal != PL_GOAL_ENCODE && pl_config_int(r->config, "data.folds") > 0;
}

bool pl__fold_of(const pl_config *c, int64_t size, pl_fold *f)
{
    int64_t folds = pl_config_int(c, "data.folds"), fold = pl_config_int(c, "data.fold");
    *f = (pl_fold){.size = size};
    if (folds == 0) return false;
    /* The first size % folds folds have one sample more. */
    int64_t each = size / folds, more = size % folds;
    f->begin = fold * each + (fold < more ? fold : more);
    f->end = f->begin + each + (fold < more);
    return true;
}

pl_status pl__fold_check(const pl_config *c, int64_t size)
{
    long long folds = (long long)pl_config_int(c, "data.folds"),
              fold = (long long)pl_config_int(c, "data.fold");
    if (folds == 0) return PL_OK;
    PL_FAIL_IF(folds < 2, PL_ERR_CONFIG, "data.folds: %lld: give at least 2 folds, or 0 for none",
               folds);
    PL_FAIL_IF(fold >= folds, PL_ERR_CONFIG,
               "data.fold: %lld is out of range: the %lld parts are 0 to %lld", fold, folds,
               folds - 1);
    PL_FAIL_IF(size <= 0, PL_ERR_CONFIG,
               "data.folds: %lld: the data never end, so they have no parts", folds);
    PL_FAIL_IF(size < folds, PL_ERR_CONFIG,
               "data.folds: %lld parts of %lld training samples: some would be empty", folds,
               (long long)size);
    return PL_OK;
}
