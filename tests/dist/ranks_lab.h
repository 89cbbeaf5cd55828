/* ranks_lab.h - a world of threads: ranks without processes and without MPI.
 *
 * Every rank is a thread with its own communicator; an exchange is two barriers around copies from
 * the other ranks' messages. What a test proves here of collectives, plans and updates holds for
 * any transport that moves the same bytes. */
#ifndef PL_TEST_RANKS_LAB_H
#define PL_TEST_RANKS_LAB_H

#include "dist/world.h"

enum { LAB_RANKS = 8 };

typedef struct lab_rank {
    pl_world world; /* world.comm is the communicator */
    void *ctx;
    pl_status status;
    char error[512];
} lab_rank;

/* Runs fn on `size` threads; each returns a status. False when one failed: *failed is the first
 * failure. The fields of the ranks stay valid afterwards. */
bool lab_world(int size, pl_status (*fn)(lab_rank *r), void *ctx, lab_rank ranks[LAB_RANKS],
               int *failed);

#endif
