/* ring.c - see ring.h.
 *
 * A transfer that ends early goes on where it ended, as a loop of pread does. A ring has as many
 * entries as transfers, so an entry is always free. A request that the system does not take at once
 * (it may lack memory for a moment) stays in the ring until pl_ring_end asks again.
 */
#include "rt/levels/ring.h"

#include "base/sys.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

void pl_ring_transfer_run(int file, pl_ring_transfer *t)
{
    while (t->done < t->bytes) {
        char *at = (char *)t->memory + t->done;
        off_t where = (off_t)(t->at + t->done);
        ssize_t n = t->writes ? pwrite(file, at, t->bytes - t->done, where)
                              : pread(file, at, t->bytes - t->done, where);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) t->why = n < 0 ? strerror(errno) : "the file has ended";
        if (n <= 0) return;
        t->done += (size_t)n;
    }
}

#if __has_include(<liburing.h>)
# include <liburing.h>

static union {
    struct {
        __typeof__(&io_uring_queue_init) open;
        __typeof__(&io_uring_queue_exit) close;
        __typeof__(&io_uring_submit) submit;
        __typeof__(&io_uring_submit_and_wait) submit_and_wait;
        __typeof__(&io_uring_peek_batch_cqe) peek;
        __typeof__(&io_uring_get_sqe) entry;
    };
    void *table[6];
} lib;
static const char *missing;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct pl_ring {
    struct io_uring ring;
    int file;
};

/* One ring is opened and closed: the system may refuse it. */
static void load(void)
{
    static const char *const names[] = {"liburing.so.2", NULL};
    static const char *const symbols[] = {"io_uring_queue_init",     "io_uring_queue_exit",
                                          "io_uring_submit",         "io_uring_submit_and_wait",
                                          "io_uring_peek_batch_cqe", "io_uring_get_sqe"};
    struct io_uring ring;
    if (!pl_library_load(names, symbols, 6, lib.table)) {
        missing = "liburing is not installed (apt-get install liburing2)";
    } else {
        int rc = lib.open(PL_RING_DEPTH, &ring, 0);
        if (rc < 0)
            missing = "the system does not allow io_uring";
        else
            lib.close(&ring);
    }
}

const char *pl_ring_missing(void)
{
    const char *wish = getenv("PLIMSOLL_IO_URING");
    if (wish && strcmp(wish, "0") == 0) return "PLIMSOLL_IO_URING=0";
    pthread_once(&once, load);
    return missing;
}

pl_ring *pl_ring_open(int file)
{
    pl_ring *r = pl_ring_missing() ? NULL : pl_sys_alloc(sizeof *r);
    if (!r) return NULL;
    r->file = file;
    if (lib.open(PL_RING_DEPTH, &r->ring, 0) == 0) return r;
    pl_sys_free(r);
    return NULL;
}

void pl_ring_free(pl_ring *r)
{
    if (!r) return;
    lib.close(&r->ring);
    pl_sys_free(r);
}

/* Puts what is left of a transfer into the ring. */
static void request(pl_ring *r, pl_ring_transfer *t)
{
    struct io_uring_sqe *entry = lib.entry(&r->ring);
    if (!entry) PL_BUG("more than %d transfers in a ring", PL_RING_DEPTH);
    char *at = (char *)t->memory + t->done;
    unsigned n = (unsigned)(t->bytes - t->done);
    if (t->writes)
        io_uring_prep_write(entry, r->file, at, n, t->at + t->done);
    else
        io_uring_prep_read(entry, r->file, at, n, t->at + t->done);
    io_uring_sqe_set_data(entry, t);
}

void pl_ring_begin(pl_ring *r, pl_ring_transfer *t)
{
    request(r, t);
    (void)lib.submit(&r->ring); /* what it does not take now, pl_ring_end submits */
}

/* Waits for an answer of the system. */
static struct io_uring_cqe *answer(pl_ring *r)
{
    struct io_uring_cqe *a = NULL;
    while (lib.peek(&r->ring, &a, 1) == 0) {
        int rc = lib.submit_and_wait(&r->ring, 1);
        if (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        else if (rc < 0 && rc != -EINTR)
            PL_BUG("io_uring does not answer: %s", strerror(-rc));
    }
    return a;
}

pl_ring_transfer *pl_ring_end(pl_ring *r)
{
    for (;;) {
        struct io_uring_cqe *a = answer(r);
        pl_ring_transfer *t = io_uring_cqe_get_data(a);
        int n = a->res;
        io_uring_cqe_seen(&r->ring, a);
        if (n > 0) t->done += (size_t)n;
        if (n < 0 && n != -EINTR && n != -EAGAIN) t->why = strerror(-n);
        if (n == 0) t->why = "the file has ended";
        if (t->why || t->done == t->bytes) return t;
        pl_ring_begin(r, t);
    }
}
#else
const char *pl_ring_missing(void)
{
    return "this build has no liburing (install liburing-dev, then make)";
}
pl_ring *pl_ring_open(int file)
{
    (void)file;
    return NULL;
}
void pl_ring_free(pl_ring *r)
{
    (void)r;
}
void pl_ring_begin(pl_ring *r, pl_ring_transfer *t)
{
    (void)r, (void)t;
}
pl_ring_transfer *pl_ring_end(pl_ring *r)
{
    (void)r;
    return NULL;
}
#endif
