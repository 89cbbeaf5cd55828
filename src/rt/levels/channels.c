/* channels.c - see channels.h.
 *
 * One lock guards all queues. A thread takes the next part of the oldest move of its channel, once
 * the moves of other channels that this move needs have ended. Moves only need moves that began
 * earlier, so the threads cannot wait for each other in a circle.
 *
 * A part that fails ends its channel's work: later moves of the run end without copying, and every
 * wait returns the error until the run has ended.
 */
#include "rt/levels/channels.h"

#include "base/hash.h"
#include "base/sys.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* QUEUE: moves of a channel that have begun and not ended. */
enum { QUEUE = 256, MOST_THREADS = 2 * PL_N_CHANNELS, BUFFERS = 2 * PL_PART_BYTES };

typedef struct queue {
    const pl_bound_unit *move[QUEUE];
    uint32_t begun, ended;  /* numbers of the last moves that have begun and ended */
    uint32_t n_taken, done; /* parts of move ended + 1 that threads have taken and finished */
    uint32_t part_bytes;
    pl_status rc; /* of the first part that failed in this run */
    char error[384];
    uint32_t most_us; /* delay of a part; 0: none */
    uint64_t draws;
} queue;

typedef struct worker {
    struct pl_channels *c;
    pl_channel channel;
    pthread_t thread;
    pl_ring *ring; /* NULL: one part at a time */
    void *buffers;
    uint32_t depth, n_busy; /* parts that may be, and are, on their way */
    pl_part part[PL_RING_DEPTH];
} worker;

struct pl_channels {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pl_part_steps steps;
    void *ctx;
    int file;
    bool stop;
    queue queue[PL_N_CHANNELS];
    worker worker[MOST_THREADS];
    int n_workers;
};

static uint32_t n_parts(const queue *q, const pl_bound_unit *m)
{
    return m->bytes ? (uint32_t)((m->bytes + q->part_bytes - 1) / q->part_bytes) : 1;
}

/* A move that has not begun in this run ended in an earlier one: sessions that watch units run
 * them one by one. */
static bool has_ended(const queue *q, uint32_t number)
{
    return q->begun == q->ended || number <= q->ended;
}

static bool may_begin(const pl_channels *c, const pl_bound_unit *m)
{
    for (int k = 0; k < PL_N_CHANNELS; k++)
        if (k != (int)m->channel && m->wait[k] && !has_ended(&c->queue[k], m->wait[k]))
            return false;
    return true;
}

/* Returns the move whose next part this channel's threads may take; NULL: none. */
static const pl_bound_unit *next_move(const pl_channels *c, const queue *q)
{
    if (q->begun == q->ended) return NULL;
    const pl_bound_unit *m = q->move[(q->ended + 1) % QUEUE];
    return q->n_taken < n_parts(q, m) && may_begin(c, m) ? m : NULL;
}

static struct timespec draw_delay(queue *q)
{
    uint64_t us = q->most_us ? pl_mix64(q->draws++) % q->most_us : 0;
    return (struct timespec){0, 1000L * (long)us};
}

/* Ends a part: its channel's move continues, and ends with its last part. */
static void finish(pl_channels *c, queue *q, pl_part *part, bool skip)
{
    pl_status rc = skip ? PL_OK : c->steps.after(c->ctx, part);
    pthread_mutex_lock(&c->lock);
    if (rc != PL_OK && q->rc == PL_OK) {
        q->rc = rc;
        snprintf(q->error, sizeof q->error, "%s", pl_error_text());
    }
    bool last = ++q->done == n_parts(q, part->move);
    part->move = NULL;
    if (!last) return;
    q->ended++;
    q->n_taken = q->done = 0;
    pthread_cond_broadcast(&c->change);
}

static pl_part *free_part(worker *w)
{
    uint32_t i = 0;
    while (w->part[i].move) i++;
    return &w->part[i];
}

/* Takes the next part of a move: with a ring it is on its way afterwards, else it has ended. The
 * lock is open meanwhile. */
static void take_part(worker *w, queue *q, const pl_bound_unit *m)
{
    pl_channels *c = w->c;
    pl_part *part = free_part(w);
    uint64_t at = (uint64_t)q->n_taken++ * q->part_bytes;
    bool skip = q->rc != PL_OK;
    struct timespec delay = draw_delay(q);
    part->move = m;
    part->at = at;
    part->bytes = m->bytes - at < q->part_bytes ? (size_t)(m->bytes - at) : q->part_bytes;
    part->transfer = (pl_ring_transfer){0};
    pthread_mutex_unlock(&c->lock);
    if (delay.tv_nsec) nanosleep(&delay, NULL);
    if (!skip) c->steps.before(c->ctx, part);
    if (w->ring && part->transfer.bytes) {
        pl_ring_begin(w->ring, &part->transfer);
        w->n_busy++;
        pthread_mutex_lock(&c->lock);
        return;
    }
    pl_ring_transfer_run(c->file, &part->transfer);
    finish(c, q, part, skip);
}

/* Waits for one of the parts that are on their way. */
static void end_part(worker *w, queue *q)
{
    pthread_mutex_unlock(&w->c->lock);
    pl_ring_transfer *t = pl_ring_end(w->ring);
    w->n_busy--;
    finish(w->c, q, (pl_part *)((char *)t - offsetof(pl_part, transfer)), false);
}

static void *work(void *ctx)
{
    worker *w = ctx;
    pl_channels *c = w->c;
    queue *q = &c->queue[w->channel];
    pthread_mutex_lock(&c->lock);
    for (;;) {
        const pl_bound_unit *m = w->n_busy < w->depth ? next_move(c, q) : NULL;
        if (m)
            take_part(w, q, m);
        else if (w->n_busy)
            end_part(w, q);
        else if (c->stop)
            break;
        else
            pthread_cond_wait(&c->change, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------ */
static bool is_disk(int channel)
{
    return channel == PL_CHANNEL_READ || channel == PL_CHANNEL_WRITE;
}

/* A channel of the disk has BUFFERS for its parts, whether one thread has a ring for them or two
 * threads share them. */
static pl_status start(pl_channels *c, pl_channel channel, pl_ring *ring)
{
    worker *w = &c->worker[c->n_workers++];
    size_t bytes = c->queue[channel].part_bytes;
    sigset_t all, before;
    w->channel = channel;
    w->ring = ring;
    w->depth = ring ? PL_RING_DEPTH : 1;
    if (is_disk(channel)) PL_TRY(pl_sys_map(w->depth * bytes, &w->buffers));
    for (uint32_t i = 0; i < w->depth && w->buffers; i++)
        w->part[i].buffer = (char *)w->buffers + i * bytes;
    w->c = c;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return PL_OK;
    w->c = NULL;
    PL_FAIL(PL_ERR_MEMORY, "no thread for moves between levels of memory: %s", strerror(rc));
}

static pl_status start_channel(pl_channels *c, pl_channel channel, bool rings)
{
    pl_ring *ring = rings && is_disk(channel) ? pl_ring_open(c->file) : NULL;
    c->queue[channel].part_bytes = ring ? BUFFERS / PL_RING_DEPTH : PL_PART_BYTES;
    PL_TRY(start(c, channel, ring));
    return is_disk(channel) && !ring ? start(c, channel, NULL) : PL_OK;
}

pl_status pl_channels_open(const bool used[PL_N_CHANNELS], int file, bool rings,
                           const pl_part_steps *steps, void *ctx, pl_channels **out)
{
    pl_channels *c = pl_sys_alloc(sizeof *c);
    pl_status rc = PL_OK;
    if (!c) return PL_ERR_MEMORY;
    c->steps = *steps;
    c->ctx = ctx;
    c->file = file;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    for (int k = 0; k < PL_N_CHANNELS && rc == PL_OK; k++)
        if (used[k]) rc = start_channel(c, (pl_channel)k, rings);
    if (rc != PL_OK) {
        pl_channels_free(c);
        return rc;
    }
    *out = c;
    return PL_OK;
}

void pl_channels_free(pl_channels *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_workers; i++) {
        worker *w = &c->worker[i];
        if (w->c) pthread_join(w->thread, NULL);
        pl_ring_free(w->ring);
        pl_sys_unmap(w->buffers, (size_t)w->depth * c->queue[w->channel].part_bytes);
    }
    pthread_cond_destroy(&c->change);
    pthread_mutex_destroy(&c->lock);
    pl_sys_free(c);
}

/* A ring takes the room of the second thread's stack. */
uint64_t pl_channels_bytes(const bool used[PL_N_CHANNELS])
{
    enum { TOUCHED = 16 << 10 }; /* of a stack */
    uint64_t bytes = sizeof(pl_channels);
    for (int k = 0; k < PL_N_CHANNELS; k++)
        if (used[k]) bytes += is_disk(k) ? BUFFERS + 2 * TOUCHED : TOUCHED;
    return bytes;
}

/* ---- runs --------------------------------------------------------------------------------- */
void pl_channels_begin(pl_channels *c, const pl_bound_unit *m)
{
    queue *q = &c->queue[m->channel];
    pthread_mutex_lock(&c->lock);
    while (q->begun - q->ended == QUEUE - 1) pthread_cond_wait(&c->change, &c->lock);
    if (q->begun == q->ended) q->begun = q->ended = m->move - 1;
    q->begun = m->move;
    q->move[q->begun % QUEUE] = m;
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
}

static pl_status failure(const queue *q)
{
    return q->rc == PL_OK ? PL_OK : pl__fail(q->rc, __FILE__, __LINE__, "%s", q->error);
}

pl_status pl_channels_wait(pl_channels *c, pl_channel channel, uint32_t number)
{
    queue *q = &c->queue[channel];
    pthread_mutex_lock(&c->lock);
    while (!has_ended(q, number)) pthread_cond_wait(&c->change, &c->lock);
    pl_status rc = failure(q);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

pl_status pl_channels_end_run(pl_channels *c)
{
    pl_status rc = PL_OK;
    pthread_mutex_lock(&c->lock);
    for (int k = 0; k < PL_N_CHANNELS; k++) {
        queue *q = &c->queue[k];
        while (q->begun != q->ended) pthread_cond_wait(&c->change, &c->lock);
        if (rc == PL_OK) rc = failure(q);
        q->begun = q->ended = 0;
        q->rc = PL_OK;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

pl_status pl_channels_failure(pl_channels *c)
{
    pl_status rc = PL_OK;
    pthread_mutex_lock(&c->lock);
    for (int k = 0; k < PL_N_CHANNELS; k++) {
        if (rc == PL_OK) rc = failure(&c->queue[k]);
        c->queue[k].rc = PL_OK;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void pl_channels_delay(pl_channels *c, pl_channel channel, uint32_t most_us, uint64_t seed)
{
    c->queue[channel].most_us = most_us;
    c->queue[channel].draws = seed;
}
