/* async.c - a thread that makes a communicator's exchanges in order, while other threads compute.
 *
 * The thread that runs the program queues exchanges; the thread of this file makes them one after
 * the other, so every rank makes the same exchanges in the same order. A unit that needs a result
 * waits for its number in that order.
 */
#include "dist/world.h"

#include "base/sys.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64, ROOM_BYTES = 1 << 20 }; /* exchanges that may be under way; see runner */

typedef struct runner {
    pl_async face; /* first: a runner is one */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, fewer;
    struct {
        pl_status (*fn)(const void *arg);
        const void *arg;
    } task[ROOM];
    uint64_t given, ended;
    pl_status failed;
    char text[512];
    bool over;
    /* Exchanges are made one after the other, so they share their scratch. In the arena the next
     * unit would reuse these bytes, and would have to wait. */
    char room[ROOM_BYTES];
} runner;

static void *run(void *arg)
{
    runner *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->given == r->ended && !r->over) pthread_cond_wait(&r->more, &r->lock);
        if (r->given == r->ended) break;
        uint64_t i = r->ended % ROOM;
        pthread_mutex_unlock(&r->lock);
        pl_status rc = r->failed == PL_OK ? r->task[i].fn(r->task[i].arg) : r->failed;
        pthread_mutex_lock(&r->lock);
        if (rc != PL_OK && r->failed == PL_OK) {
            r->failed = rc;
            snprintf(r->text, sizeof r->text, "%s", pl_error_text());
        }
        r->ended++;
        pthread_cond_broadcast(&r->fewer);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void start(pl_async *a, pl_status (*fn)(const void *arg), const void *arg)
{
    runner *r = (runner *)(void *)a;
    pthread_mutex_lock(&r->lock);
    while (r->given - r->ended == ROOM) pthread_cond_wait(&r->fewer, &r->lock);
    r->task[r->given % ROOM].fn = fn;
    r->task[r->given % ROOM].arg = arg;
    r->given++;
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
}

static pl_status wait_for(pl_async *a, uint32_t left)
{
    runner *r = (runner *)(void *)a;
    pthread_mutex_lock(&r->lock);
    while (r->given - r->ended > left) pthread_cond_wait(&r->fewer, &r->lock);
    pl_status rc = r->failed;
    pthread_mutex_unlock(&r->lock);
    PL_FAIL_IF(rc != PL_OK, rc, "%s", r->text[0] ? r->text : "an exchange between ranks failed");
    return PL_OK;
}

/* PLIMSOLL_OVERLAP=0: exchanges are made synchronously, for comparison. */
static bool wanted(void)
{
    const char *wish = getenv("PLIMSOLL_OVERLAP");
    return !wish || strcmp(wish, "0") != 0;
}

pl_status pl_async_open(pl_comm *c)
{
    if (!wanted()) return PL_OK;
    runner *r = pl_sys_alloc(sizeof *r);
    if (!r) return PL_ERR_MEMORY;
    memset(r->room, 1, sizeof r->room); /* resident before plans are made */
    r->face = (pl_async){start, wait_for};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    pthread_cond_init(&r->fewer, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        pl_sys_free(r);
        PL_FAIL(PL_ERR_MEMORY, "no thread for exchanges between ranks");
    }
    c->async = &r->face;
    c->room = r->room;
    c->room_bytes = sizeof r->room;
    return PL_OK;
}

void pl_async_close(pl_comm *c)
{
    runner *r = (runner *)(void *)c->async;
    if (!r) return;
    c->async = NULL;
    c->room = NULL;
    c->room_bytes = 0;
    pthread_mutex_lock(&r->lock);
    r->over = true;
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->more);
    pthread_cond_destroy(&r->fewer);
    pthread_mutex_destroy(&r->lock);
    pl_sys_free(r);
}
