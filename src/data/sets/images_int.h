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
    size_t room; /* bytes that it has of the set's room for large images */
    bool again;  /* pl__image_room_take waited */
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
    pthread_mutex_t lock; /* of bad, the quarantine file and room */
    struct {
        size_t left; /* of o.room_bytes */
        pthread_cond_t changed;
    } room;
};

enum { PL_IMAGE_FILE_KEPT = 1 << 20 }; /* bytes of a file that stay in a thread's memory */

/* Takes room, so that the thread may hold `bytes` in all for the image that it reads. PL_ERR_FIT
 * when the set never has that much. If it had to wait, the thread's scratch is empty: it sets
 * t->again and returns PL_ERR_MEMORY, and the image is read from the start. */
pl_status pl__image_room_take(pl_image_set *s, pl_image_thread *t, size_t bytes) PL_MUST_USE;
/* Gives the room back, after an image. */
void pl__image_room_leave(pl_image_set *s, pl_image_thread *t);
/* Releases the memory of a range past `keep` if more of it was used. */
void pl__image_shrink(const pl_image_range *r, size_t keep, size_t used);

#endif
