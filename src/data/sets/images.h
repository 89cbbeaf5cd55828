/* images.h - a set of images that is read sample by sample, from any number of threads.
 *
 * A read finds the bytes (a file, or a range of a tar), decodes, draws the view (augment.h) and
 * writes it to each output; an output with more pixels than the picture uses the picture's larger
 * version, if there is one. Each thread has its own scratch memory, reserved when the set is
 * opened: pages appear as images need them, and the pages of an unusually large image are released
 * after it.
 *
 * By policy, a file that cannot be read is an error that names it; or it is replaced by another
 * sample of the same subset, chosen by a hash of (sample, epoch), and listed. With `quarantine` the
 * names are also kept in a file, and samples listed there are replaced without being read; they
 * keep their place in the order, so the order of the other samples does not change.
 */
#ifndef PL_DATA_IMAGES_H
#define PL_DATA_IMAGES_H

#include "data/augment/augment.h"
#include "data/image/image.h"
#include "data/sets/items.h"

typedef enum pl_on_bad { PL_BAD_FAIL, PL_BAD_SKIP, PL_BAD_QUARANTINE } pl_on_bad;

typedef struct pl_image_set_opts {
    pl_items_opts items;
    pl_image_limits limits;
    /* NULL, or sets which of n training samples, [*begin, *end), are the evaluation set instead of
     * the usual one. */
    pl_status (*leave_out)(const void *ctx, int64_t n, int64_t *begin, int64_t *end);
    const void *leave_out_ctx;
    pl_filter filter;
    pl_augment augment; /* of training samples; evaluation has the plain view */
    pl_on_bad on_bad;
    const char *quarantine; /* file of names */
    bool balance;           /* training draws every class equally often */
    int threads;
    size_t keep_bytes;  /* scratch that a thread keeps between images */
    int most_w, most_h; /* sides of the largest output */
    /* With `bounded`, a thread may hold thread_bytes while it reads an image, and all threads
     * together room_bytes more; an image that needs more than both is PL_ERR_FIT, before it is
     * decoded. */
    bool bounded;
    size_t thread_bytes, room_bytes;
} pl_image_set_opts;

typedef struct pl_image_set pl_image_set;

pl_status pl_image_set_open(const pl_image_set_opts *o, pl_image_set **out) PL_MUST_USE;
void pl_image_set_close(pl_image_set *s);
/* Lets the sandboxes of the first `threads` threads decode into a ring of batches, whose pixels it
 * replaces with shared pages; before these threads read. */
void pl_image_set_use_ring(pl_image_set *s, int threads, const pl_decoder_ring *ring);
const pl_items *pl_image_set_items(const pl_image_set *s);
/* Replaces every label k by label[k]. Call it before samples are read. */
void pl_image_set_relabel(pl_image_set *s, const int32_t *label);
int64_t pl_image_set_size(const pl_image_set *s, bool eval);
/* Whether samples are drawn with replacement, by weight. */
bool pl_image_set_weighted(const pl_image_set *s);
/* Returns an index in [lo, hi) for a draw u in [0,1), by weight; cumulated[i] is the sum of the
 * weights up to index i. */
int64_t pl_weighted_draw(const double *cumulated, int64_t lo, int64_t hi, double u);
/* Returns the sample for a draw u in [0,1), by weight. */
int64_t pl_image_set_draw(const pl_image_set *s, double u);

double pl_image_set_weight(const pl_image_set *s, int64_t sample); /* of a training sample */
int pl_image_set_threads(const pl_image_set *s);
/* Reads the header of a sample; decodes nothing. */
pl_status pl_image_set_look(pl_image_set *s, bool eval, int64_t sample, int thread,
                            pl_image_info *info) PL_MUST_USE;

/* Where the mask of a sample goes: the class of each pixel. */
typedef struct pl_mask_read {
    int32_t *to;
    int w, h;
    const int32_t *class_of; /* of each number from 0 to 255; below 0: no class */
    const char *known;       /* the numbers of classes, for messages */
} pl_mask_read;

enum { PL_MAX_OUTPUTS = 16 };
typedef struct pl_image_read {
    bool eval, want_text;
    uint64_t seed;
    int64_t epoch, sample;
    int thread;
    const pl_pixels *to;
    int n_to;
    const pl_mask_read *mask; /* NULL: none is wanted */
    int64_t label;            /* out */
    const char *caption;      /* out, "" if none; valid until the thread's next read */
} pl_image_read;
pl_status pl_image_set_read(pl_image_set *s, pl_image_read *r) PL_MUST_USE;

/* Notes in seen which numbers the masks of the first `most` samples have. */
pl_status pl_image_set_mask_numbers(pl_image_set *s, int64_t most, bool seen[256]) PL_MUST_USE;

/* Returns the number of bad files found; their names follow in the order of the set. */
int64_t pl_image_set_bad_count(const pl_image_set *s);
const char *pl_image_set_bad(const pl_image_set *s, int64_t k, char *buf, size_t cap);

/* Decodes a whole item and describes it: for `inspect data`. */
pl_status pl_image_set_check(pl_image_set *s, int64_t item, int thread,
                             pl_image_info *info) PL_MUST_USE;

#endif
