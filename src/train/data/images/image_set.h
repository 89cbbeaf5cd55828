/* image_set.h - images on disk (data/sets/images.h) as the source of a run: the recipe's
 * pl_image_feed names the inputs that they fill. */
#ifndef PL_TRAIN_IMAGES_H
#define PL_TRAIN_IMAGES_H

#include "data/sets/images.h"
#include "train/data/source.h"
#include "train/run/run.h"

enum { PL_MAX_IMAGES = 8, PL_MAX_READERS = 8 };
typedef pl_pixels pl_image_shapes[2][PL_MAX_IMAGES]; /* of one sample, by subset; data is NULL */

struct pl_images {
    pl_image_set *set;
    pl_image_shapes *shape; /* by bucket */
    int n;
    /* With buckets: the samples of a subset sorted by bucket; bucket k begins at first[k]. */
    int32_t *order[2];
    int64_t first[2][PL_MAX_BUCKETS + 1], size[PL_MAX_BUCKETS]; /* size: training samples */
    double *cumulated; /* cumulative weights of order[0]; NULL: all equal */
    /* State of pl_image_feed.make, one per reading thread. */
    struct {
        void *state;
        uint8_t *rgb;
    } * makers;
    int n_makers;
    int32_t mask_class[256]; /* class of each number of a mask; -1: none */
    char mask_known[256];    /* the numbers of classes, for messages */
};

/* Whether data.source and data.path select images. */
bool pl__images_wanted(const pl_run *r);
/* classes.c: finds the names of the run's classes, once: r->data.classes. */
pl_status pl__classes_find(pl_run *r) PL_MUST_USE;
/* Numbers the labels of an opened set by the run's class names. PL_ERR_DATA: an image has no class,
 * or a class that the model does not have. */
pl_status pl__classes_match(pl_run *r) PL_MUST_USE;
/* PL_ERR_DATA unless the labels in a cache are numbered by the run's class names. */
pl_status pl__classes_match_cache(pl_run *r) PL_MUST_USE;
/* Returns the host memory for this many reading threads; 0 without images. */
uint64_t pl__images_bytes(const pl_run *r, int threads);
pl_status pl__images_open(pl_run *r, int threads) PL_MUST_USE;
void pl__images_close(pl_run *r);
int64_t pl__images_size(const pl_run *r, pl_subset subset);
/* image_order.c: reads the size of every image and sorts the samples by bucket. */
pl_status pl__images_sort(pl_run *r) PL_MUST_USE;
/* Returns the bucket of a step's batch. */
int pl__images_bucket(const pl_run *r, int64_t step);
/* Writes the samples of a choice (source.h), drawn through a shuffle buffer of `pool` samples
 * (0: none), and their passes: how often each was trained on before or, when samples are drawn with
 * replacement, their position. */
void pl__images_choose(const pl_run *r, uint64_t seed, pl_choice c, int64_t pool, int64_t *samples,
                       int64_t *passes);
/* Returns how many of the first `total` evaluation samples belong to a bucket; sets the i-th of
 * them. */
int64_t pl__images_eval_rows(const pl_run *r, int bucket, int64_t total);
int64_t pl__images_eval_at(const pl_run *r, int bucket, int64_t i);

/* Whether an f32 input has only 256 different values, so that bytes, a quarter of the memory,
 * represent it; pl_bytes_widen(low, high) converts them to the input. */
bool pl__images_as_bytes(const pl_run *r, const char *name, const pl_type *type, float *low,
                         float *high);
/* Returns whether images fill the input and no recipe changes them. */
bool pl__images_has(const pl_run *r, const char *name);
/* Lets the decoders of the first `threads` reading threads write into a ring of batches. */
void pl__images_share(pl_run *r, int threads, const pl_decoder_ring *ring);
/* Size and layout of an image input of a program, [C,H,W] or [H,W,C]; w is 0 when the program does
 * not read it. */
pl_status pl__image_shape(const pl_image_input *in, const pl_program *p,
                          pl_pixels *out) PL_MUST_USE;
/* The options for reading images in the configuration, for inputs of at most w x h: limits, filter,
 * augmentation, what becomes of bad files. */
pl_image_set_opts pl__image_opts(const pl_run *r, int w, int h);
/* Scratch memory of a reading thread. */
uint64_t pl__image_thread_bytes(const pl_run *r, int w, int h);

/* ---- masks.c: classes of pixels ---- */
/* Reads data.mask_values into the set. Does nothing for a recipe without masks. */
pl_status pl__mask_classes(const pl_run *r, struct pl_images *m) PL_MUST_USE;
/* Where the mask of row i of a batch goes; false: the recipe or the batch has none. */
bool pl__mask_of(const pl_run *r, const pl_read_job *j, int64_t i, pl_mask_read *out);

/* ---- pictures.c: the pictures that predictions read ---- */
typedef struct pl_pictures {
    pl_image_set *set; /* NULL: not open */
    pl_pixels shape[PL_MAX_IMAGES];
    int n;
    bool fail; /* a picture that cannot be read ends the prediction (data.on_bad) */
} pl_pictures;
/* Host memory for reading them; 0 for a recipe without image inputs. The run is built. */
uint64_t pl__pictures_bytes(const pl_run *r);
/* Lists the picture at path, or all pictures of a folder. Where the main program has no image
 * input, pictures of any size can be read (pl__pictures_pixels), and the limits that choose
 * training pictures (data.min_side, data.min_bytes) do not count. */
pl_status pl__pictures_open(pl_run *r, const char *path, pl_pictures *out) PL_MUST_USE;
void pl__pictures_close(pl_pictures *p);
/* How many bytes of a picture's path name its result: those before its ending, or all where the
 * shorter path could name another picture's result, too. The list was opened as plain. */
int pl__pictures_stem(const pl_items *items, int64_t picture);
/* Reads a picture into a row of the main program's image inputs, as evaluations read them. */
pl_status pl__pictures_pixels(const pl_pictures *p, int64_t picture, int w, int h,
                              uint8_t *rgb) PL_MUST_USE;
pl_status pl__pictures_read(pl_run *r, const pl_pictures *p, int64_t picture,
                            int64_t row) PL_MUST_USE;

/* Reads samples of a bucket into a batch; with more than one thread the caller's team helps. */
pl_status pl__images_read(pl_run *r, const pl_read_job *j) PL_MUST_USE;

#endif
