/* ring.c - see ring.h.
 *
 * A transfer that ends early continues where it ended, as a loop of pread does. A ring has as many
 * entries as transfers, so an entry is always free. A request that the system does not accept at
 * once (it may be out of memory for a moment) stays in the ring, and pl_ring_end submits it again.
 * When the system accepts nothing for PATIENCE_MS, or returns another error, the ring is broken:
 * all its transfers fail with that error.
 */
#include "rt/levels/ring.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
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
enum { PATIENCE_MS = 10000 };
static char missing[128]; /* "": the system has rings */
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct pl_ring {
    struct io_uring ring;
    int file;
    pl_ring_transfer *busy[PL_RING_DEPTH]; /* in progress; NULL: none */
    const char *broken;                    /* the system's error; NULL: the ring works */
};

static int open_ring(pl_ring *r, int file)
{
    *r = (pl_ring){.file = file};
    return lib.open(PL_RING_DEPTH, &r->ring, 0);
}

/* Reads one byte through a ring. A kernel before 5.6 opens rings that cannot read, and a filter of
 * system calls may allow opening alone. */
static bool can_read(void)
{
    pl_ring r;
    char byte = 1;
    pl_ring_transfer t = {.memory = &byte, .bytes = 1};
    int file = open("/dev/zero", O_RDONLY | O_CLOEXEC), rc = file < 0 ? -1 : open_ring(&r, file);
    if (rc == 0) {
        pl_ring_begin(&r, &t);
        (void)pl_ring_end(&r);
        lib.close(&r.ring);
    }
    if (file >= 0) close(file);
    return t.done == 1;
}

/* Opens and closes a ring, because the system may refuse it. */
static void load(void)
{
    static const char *const names[] = {"liburing.so.2", NULL};
    static const char *const symbols[] = {"io_uring_queue_init",     "io_uring_queue_exit",
                                          "io_uring_submit",         "io_uring_submit_and_wait",
                                          "io_uring_peek_batch_cqe", "io_uring_get_sqe"};
    pl_ring r;
    if (!pl_library_load(names, symbols, 6, lib.table)) {
        snprintf(missing, sizeof missing, "liburing is not installed (apt-get install liburing2)");
        return;
    }
    int rc = open_ring(&r, -1);
    if (rc == 0) lib.close(&r.ring);
    if (rc < 0)
        snprintf(missing, sizeof missing, "the system refuses io_uring: %s", strerror(-rc));
    else if (!can_read())
        snprintf(missing, sizeof missing,
                 "this system's io_uring cannot read files (Linux 5.6 and newer can)");
}

const char *pl_ring_missing(void)
{
    const char *wish = getenv("PLIMSOLL_IO_URING");
    if (wish && strcmp(wish, "0") == 0) return "PLIMSOLL_IO_URING=0";
    pthread_once(&once, load);
    return missing[0] ? missing : NULL;
}

pl_ring *pl_ring_open(int file)
{
    pl_ring *r = pl_ring_missing() ? NULL : pl_sys_alloc(sizeof *r);
    if (!r) return NULL;
    if (open_ring(r, file) == 0) return r;
    pl_sys_free(r);
    return NULL;
}

void pl_ring_free(pl_ring *r)
{
    if (!r) return;
    lib.close(&r->ring);
    pl_sys_free(r);
}

/* Puts the rest of a transfer into the ring and submits it. A request that the system does not
 * accept now, answer() submits. */
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
    (void)lib.submit(&r->ring);
}

void pl_ring_begin(pl_ring *r, pl_ring_transfer *t)
{
    int i = 0;
    while (i < PL_RING_DEPTH && r->busy[i]) i++;
    if (i == PL_RING_DEPTH) PL_BUG("more than %d transfers in a ring", PL_RING_DEPTH);
    r->busy[i] = t;
    if (!r->broken) request(r, t);
}

/* Waits for an answer of the system; NULL: the ring is broken. */
static struct io_uring_cqe *answer(pl_ring *r)
{
    struct io_uring_cqe *a = NULL;
    int tries = 0;
    while (!r->broken && lib.peek(&r->ring, &a, 1) == 0) {
        int rc = lib.submit_and_wait(&r->ring, 1);
        bool later = (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM) && tries++ < PATIENCE_MS;
        if (later)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        else if (rc < 0 && rc != -EINTR)
            r->broken = strerror(-rc);
    }
    return a;
}

/* Adds an answer to its transfer; returns whether the transfer has ended. */
static bool add_answer(pl_ring_transfer *t, int n)
{
    if (n > 0) t->done += (size_t)n;
    if (n < 0 && n != -EINTR && n != -EAGAIN) t->why = strerror(-n);
    if (n == 0) t->why = "the file has ended";
    return t->why || t->done == t->bytes;
}

pl_ring_transfer *pl_ring_end(pl_ring *r)
{
    pl_ring_transfer *t = NULL;
    for (bool ended = false; !ended;) {
        struct io_uring_cqe *a = answer(r);
        if (!a) break;
        t = io_uring_cqe_get_data(a);
        ended = add_answer(t, a->res);
        io_uring_cqe_seen(&r->ring, a);
        if (!ended) request(r, t);
    }
    int i = 0;
    while (r->broken ? !r->busy[i] : r->busy[i] != t) i++;
    t = r->busy[i];
    r->busy[i] = NULL;
    if (r->broken) t->why = r->broken;
    return t;
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
