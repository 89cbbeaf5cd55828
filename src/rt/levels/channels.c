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
#include <stdio.h>
#include <string.h>
#include <time.h>

/* RING: moves of a channel that have begun and not ended. */
enum { RING = 256, MOST_THREADS = 2 * PL_N_CHANNELS };

typedef struct queue {
    const pl_bound_unit *ring[RING];
    uint32_t begun, ended;  /* numbers of the last moves that have begun and ended */
    uint32_t n_taken, done; /* parts of move ended + 1 that threads have taken and finished */
    pl_status rc;           /* of the first part that failed in this run */
    char error[384];
    uint32_t most_us; /* delay of a part; 0: none */
    uint64_t draws;
} queue;

typedef struct worker {
    struct pl_channels *c;
    pl_channel channel;
    pthread_t thread;
    void *buffer;
} worker;

struct pl_channels {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pl_part_copy copy;
    void *ctx;
    bool stop;
    queue queue[PL_N_CHANNELS];
    worker worker[MOST_THREADS];
    int n_workers;
};

static uint32_t n_parts(const pl_bound_unit *m)
{
    return m->bytes ? (uint32_t)((m->bytes + PL_PART_BYTES - 1) / PL_PART_BYTES) : 1;
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
    const pl_bound_unit *m = q->ring[(q->ended + 1) % RING];
    return q->n_taken < n_parts(m) && may_begin(c, m) ? m : NULL;
}

static struct timespec draw_delay(queue *q)
{
    uint64_t us = q->most_us ? pl_mix64(q->draws++) % q->most_us : 0;
    return (struct timespec){0, 1000L * (long)us};
}

/* Copies one part, without the lock. */
static void run_part(pl_channels *c, queue *q, const worker *w, const pl_bound_unit *m)
{
    uint64_t at = (uint64_t)q->n_taken++ * PL_PART_BYTES;
    size_t bytes = m->bytes - at < PL_PART_BYTES ? (size_t)(m->bytes - at) : PL_PART_BYTES;
    bool skip = q->rc != PL_OK;
    struct timespec delay = draw_delay(q);
    pthread_mutex_unlock(&c->lock);
    if (delay.tv_nsec) nanosleep(&delay, NULL);
    pl_status rc = skip ? PL_OK : c->copy(c->ctx, m, at, bytes, w->buffer);
    pthread_mutex_lock(&c->lock);
    if (rc != PL_OK && q->rc == PL_OK) {
        q->rc = rc;
        snprintf(q->error, sizeof q->error, "%s", pl_error_text());
    }
    if (++q->done < n_parts(m)) return;
    q->ended++;
    q->n_taken = q->done = 0;
    pthread_cond_broadcast(&c->change);
}

static void *work(void *ctx)
{
    const worker *w = ctx;
    pl_channels *c = w->c;
    queue *q = &c->queue[w->channel];
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        const pl_bound_unit *m = next_move(c, q);
        if (m)
            run_part(c, q, w, m);
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

static pl_status start(pl_channels *c, pl_channel channel)
{
    worker *w = &c->worker[c->n_workers];
    sigset_t all, before;
    w->c = c;
    w->channel = channel;
    if (is_disk(channel)) PL_TRY(pl_sys_map(PL_PART_BYTES, &w->buffer));
    c->n_workers++;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return PL_OK;
    w->c = NULL;
    PL_FAIL(PL_ERR_MEMORY, "no thread for moves between levels of memory: %s", strerror(rc));
}

pl_status pl_channels_open(const bool used[PL_N_CHANNELS], pl_part_copy copy, void *ctx,
                           pl_channels **out)
{
    pl_channels *c = pl_sys_alloc(sizeof *c);
    pl_status rc = PL_OK;
    if (!c) return PL_ERR_MEMORY;
    c->copy = copy;
    c->ctx = ctx;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    for (int k = 0; k < PL_N_CHANNELS; k++)
        for (int i = 0; i < 1 + is_disk(k) && used[k] && rc == PL_OK; i++)
            rc = start(c, (pl_channel)k);
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
        if (c->worker[i].c) pthread_join(c->worker[i].thread, NULL);
        pl_sys_unmap(c->worker[i].buffer, PL_PART_BYTES);
    }
    pthread_cond_destroy(&c->change);
    pthread_mutex_destroy(&c->lock);
    pl_sys_free(c);
}

uint64_t pl_channels_bytes(const bool used[PL_N_CHANNELS])
{
    enum { TOUCHED = 16 << 10 }; /* of a stack */
    uint64_t bytes = sizeof(pl_channels);
    for (int k = 0; k < PL_N_CHANNELS; k++)
        if (used[k]) bytes += is_disk(k) ? 2 * (PL_PART_BYTES + TOUCHED) : TOUCHED;
    return bytes;
}

/* ---- runs --------------------------------------------------------------------------------- */
void pl_channels_begin(pl_channels *c, const pl_bound_unit *m)
{
    queue *q = &c->queue[m->channel];
    pthread_mutex_lock(&c->lock);
    while (q->begun - q->ended == RING - 1) pthread_cond_wait(&c->change, &c->lock);
    if (q->begun == q->ended) q->begun = q->ended = m->move - 1;
    q->begun = m->move;
    q->ring[q->begun % RING] = m;
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
