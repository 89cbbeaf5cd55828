/* images_int.h - an open set of images; images.c opens and closes it, images_read.c reads. */
#ifndef PL_DATA_IMAGES_INT_H
#define PL_DATA_IMAGES_INT_H

#include "data/sets/images.h"
#include "data/sets/tar.h"

#include <pthread.h>

enum { PL_IMAGE_CAPTION = 1 << 16 }; /* bytes of a caption, with its NUL */

/* A reserved range of memory whose pages appear when they are touched. */
typedef struct pl_image_range {
    uint8_t *at;
    size_t bytes;
    bool shared; /* with the sandbox of the thread's decoder */
} pl_image_range;

/* Scratch memory of one thread. */
typedef struct pl_image_thread {
    pl_decoder *decoder;
    pl_image_range file, pixels, resized, work;
    char *caption;
} pl_image_thread;

struct pl_image_set {
    pl_image_set_opts o;
    pl_items *items;
    int32_t *index[2]; /* items of a subset: train, eval */
    int64_t n[2];
    double *cumulated; /* cumulative weights of training samples; NULL: all equal */
    pl_tar *tars;
    pl_image_thread *threads;
    uint8_t *bad; /* by item */
    int64_t n_bad;
    pthread_mutex_t lock; /* of bad and the quarantine file */
};

#endif
