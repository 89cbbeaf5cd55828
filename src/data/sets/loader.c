/* loader.c - see loader.h. One lock and two conditions: batches are milliseconds apart. */
#include "data/sets/loader.h"

#include "base/sys.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum { ALIGN = 4096, MESSAGE = 768, STACK_BYTES = 1 << 20, STACK_TOUCHED = 96 << 10 };

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_FAILED } slot_state;

typedef struct slot {
    slot_state state;
    pl_status rc;
    char message[MESSAGE];
} slot;

typedef struct worker {
    pl_loader *loader;
    pthread_t thread;
    int index;
} worker;

struct pl_loader {
    pl_loader_opts o;
    char *buffers;
    size_t stride, mapped;
    slot *slots;
    worker *workers;
    int started, filling;
    pthread_mutex_t lock;
    pthread_cond_t room, ready; /* for workers; for the user */
    int64_t user, next;         /* positions: the user's, and the next that a worker takes */
    bool stop, seeking;
};

static size_t stride_of(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t pl_loader_bytes(int workers, int depth, size_t buffer_bytes)
{
    return (uint64_t)depth * (stride_of(buffer_bytes) + sizeof(slot)) +
           (uint64_t)workers * (STACK_TOUCHED + sizeof(worker));
}

static slot *slot_at(pl_loader *l, int64_t position)
{
    return &l->slots[position % l->o.depth];
}

static char *buffer_at(pl_loader *l, int64_t position)
{
    return l->buffers + (size_t)(position % l->o.depth) * l->stride;
}

static bool may_fill(const pl_loader *l)
{
    return !l->seeking && l->next < l->user + l->o.depth;
}

/* Requires the lock; releases it while filling. */
static void fill_one(pl_loader *l, int index)
{
    int64_t position = l->next++;
    slot *s = slot_at(l, position);
    s->state = SLOT_FILLING;
    l->filling++;
    pthread_mutex_unlock(&l->lock);
    pl_status rc = l->o.fill(l->o.ctx, position, buffer_at(l, position), index);
    if (rc != PL_OK) snprintf(s->message, sizeof s->message, "%s", pl_error_text());
    pthread_mutex_lock(&l->lock);
    s->rc = rc;
    s->state = rc == PL_OK ? SLOT_READY : SLOT_FAILED;
    l->filling--;
    pthread_cond_broadcast(&l->ready);
}

static void *work(void *ctx)
{
    worker *w = ctx;
    pl_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (may_fill(l))
            fill_one(l, w->index);
        else
            pthread_cond_wait(&l->room, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Only the main thread handles signals. */
static pl_status start_workers(pl_loader *l)
{
    sigset_t all, before;
    pthread_attr_t attr;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int rc = 0;
    for (int i = 0; i < l->o.workers && rc == 0; i++) {
        worker *w = &l->workers[i];
        *w = (worker){.loader = l, .index = i};
        rc = pthread_create(&w->thread, &attr, work, w);
        l->started += rc == 0;
    }
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    PL_FAIL_IF(rc, PL_ERR_MEMORY, "data.workers=%d: the system gave only %d threads", l->o.workers,
               l->started);
    return PL_OK;
}

static pl_status make(pl_loader *l)
{
    l->stride = stride_of(l->o.buffer_bytes ? l->o.buffer_bytes : 1);
    l->slots = pl_sys_alloc((size_t)l->o.depth * sizeof *l->slots);
    l->workers = pl_sys_alloc((size_t)l->o.workers * sizeof *l->workers);
    if (!l->slots || !l->workers) return PL_ERR_MEMORY;
    void *p;
    PL_TRY(pl_sys_map(l->stride * (size_t)l->o.depth, &p));
    l->buffers = p;
    l->mapped = l->stride * (size_t)l->o.depth;
    if (l->o.ring) l->o.ring(l->o.ctx, p, l->stride, l->o.depth);
    return start_workers(l);
}

pl_status pl_loader_new(const pl_loader_opts *o, pl_loader **out)
{
    PL_FAIL_IF(o->workers < 1 || o->depth < 1, PL_ERR_ARG,
               "a loader needs workers and a ring of batches");
    pl_loader *l = pl_sys_alloc(sizeof *l);
    if (!l) return PL_ERR_MEMORY;
    l->o = *o;
    l->user = l->next = o->first;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->room, NULL);
    pthread_cond_init(&l->ready, NULL);
    pl_status rc = make(l);
    if (rc != PL_OK) {
        pl_loader_free(l);
        return rc;
    }
    *out = l;
    return PL_OK;
}

void pl_loader_free(pl_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->room);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->started; i++) pthread_join(l->workers[i].thread, NULL);
    pthread_cond_destroy(&l->room);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    if (l->buffers) pl_sys_unmap(l->buffers, l->mapped);
    pl_sys_free(l->slots);
    pl_sys_free(l->workers);
    pl_sys_free(l);
}

/* Restarts at position: fills in progress finish, and their results are dropped. */
static void seek(pl_loader *l, int64_t position)
{
    l->seeking = true;
    while (l->filling) pthread_cond_wait(&l->ready, &l->lock);
    for (int i = 0; i < l->o.depth; i++) l->slots[i].state = SLOT_FREE;
    l->user = l->next = position;
    l->seeking = false;
    pthread_cond_broadcast(&l->room);
}

pl_status pl_loader_take(pl_loader *l, int64_t position, void **buffer)
{
    pthread_mutex_lock(&l->lock);
    if (position != l->user) seek(l, position);
    slot *s = slot_at(l, position);
    while (s->state != SLOT_READY && s->state != SLOT_FAILED)
        pthread_cond_wait(&l->ready, &l->lock);
    pthread_mutex_unlock(&l->lock);
    if (s->state == SLOT_FAILED) PL_FAIL(s->rc, "%s", s->message);
    *buffer = buffer_at(l, position);
    return PL_OK;
}

bool pl_loader_ready(pl_loader *l, int64_t position)
{
    pthread_mutex_lock(&l->lock);
    bool is = position == l->user && slot_at(l, position)->state == SLOT_READY;
    pthread_mutex_unlock(&l->lock);
    return is;
}

void pl_loader_done(pl_loader *l)
{
    pthread_mutex_lock(&l->lock);
    slot_at(l, l->user)->state = SLOT_FREE;
    l->user++;
    pthread_cond_broadcast(&l->room);
    pthread_mutex_unlock(&l->lock);
}
