/* ranks_lab.c - see ranks_lab.h. */
#include "tests/dist/ranks_lab.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct meeting {
    pthread_barrier_t barrier;
    lab_rank *ranks;
    pl_parcel parcel[LAB_RANKS][2 * LAB_RANKS];
} meeting;

typedef struct seat {
    meeting *m;
    lab_rank *r;
    pl_status (*fn)(lab_rank *r);
} seat;

static pl_status exchange(pl_comm *c)
{
    meeting *m = c->self;
    pl_status rc = PL_OK;
    pthread_barrier_wait(&m->barrier);
    for (int r = 0; r < c->size; r++) {
        const pl_parcel *from = &m->ranks[r].world.comm.send[c->rank], *to = &c->recv[r];
        if (r == c->rank) continue;
        if (from->bytes != to->bytes) rc = PL_ERR_PEER;
        if (from->bytes == to->bytes && to->bytes) memcpy(to->at, from->at, to->bytes);
    }
    pthread_barrier_wait(&m->barrier);
    return rc;
}

static void *run_rank(void *arg)
{
    seat *s = arg;
    s->r->status = s->fn(s->r);
    if (s->r->status != PL_OK) snprintf(s->r->error, sizeof s->r->error, "%s", pl_error_text());
    return NULL;
}

bool lab_world(int size, pl_status (*fn)(lab_rank *r), void *ctx, lab_rank ranks[LAB_RANKS],
               int *failed)
{
    static meeting m;
    pthread_t thread[LAB_RANKS];
    seat seats[LAB_RANKS];
    memset(ranks, 0, sizeof *ranks * LAB_RANKS);
    m.ranks = ranks;
    pthread_barrier_init(&m.barrier, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        pl_comm *c = &ranks[i].world.comm;
        *c = (pl_comm){.rank = i, .size = size, .exchange = exchange, .self = &m};
        c->send = m.parcel[i];
        c->recv = m.parcel[i] + LAB_RANKS;
        ranks[i].world.local_size = size;
        ranks[i].world.local_rank = i;
        ranks[i].ctx = ctx;
        seats[i] = (seat){&m, &ranks[i], fn};
    }
    for (int i = 0; i < size; i++) pthread_create(&thread[i], NULL, run_rank, &seats[i]);
    for (int i = 0; i < size; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&m.barrier);
    for (int i = 0; i < size; i++)
        if (ranks[i].status != PL_OK) {
            *failed = i;
            return false;
        }
    return true;
}
