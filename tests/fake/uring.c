/* uring.c - a liburing whose rings fail, for a program that finds it by LD_LIBRARY_PATH. A request
 * runs by pread or pwrite when it is submitted. FAKE_URING says what goes wrong:
 *
 *     nothing  all requests succeed
 *     refused  no ring can be opened (EPERM)
 *     old      reads and writes are unknown requests (EINVAL), as before Linux 5.6
 *     short    a transfer ends after 4096 bytes
 *     busy     every second submission fails (EINTR or EAGAIN), and so does every second request
 *     failed   the 20th request and all later ones fail (EIO)
 *     gone     the 20th submission and all later ones fail (EPERM)
 *     full     the 20th submission and all later ones fail (EAGAIN)
 *
 * Requests that ran are counted in the file FAKE_URING_COUNT, a byte for each. */
#if __has_include(<liburing.h>)
# include <errno.h>
# include <fcntl.h>
# include <liburing.h>
# include <stdbool.h>
# include <stdlib.h>
# include <string.h>
# include <unistd.h>

# define SHOW __attribute__((visibility("default")))

enum { ENTRIES = 8, FIRST = 20, SHORT = 4096 };

typedef struct fake {
    unsigned head, tail; /* of answers */
    unsigned n;          /* requests that were not submitted */
    struct io_uring_sqe request[ENTRIES];
    struct io_uring_cqe answer[ENTRIES];
} fake;

static unsigned requests, submissions;

static bool is(const char *fault)
{
    const char *wish = getenv("FAKE_URING");
    return wish && strcmp(wish, fault) == 0;
}

/* Returns the next number of a counter, from 1. */
static unsigned count(unsigned *counter)
{
    return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static void note(void)
{
    const char *path = getenv("FAKE_URING_COUNT");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && write(fd, "x", 1) != 1) _exit(99);
    if (fd >= 0) close(fd);
}

static int run(const struct io_uring_sqe *q)
{
    unsigned k = count(&requests);
    size_t n = is("short") && q->len > SHORT ? SHORT : q->len;
    if (is("old")) return -EINVAL;
    if (is("busy") && k % 2) return k % 4 == 1 ? -EINTR : -EAGAIN;
    if (is("failed") && k >= FIRST) return -EIO;
    void *memory = (void *)(uintptr_t)q->addr;
    ssize_t done = q->opcode == IORING_OP_READ ? pread(q->fd, memory, n, (off_t)q->off)
                                               : pwrite(q->fd, memory, n, (off_t)q->off);
    note();
    return done < 0 ? -errno : (int)done;
}

static int submit(struct io_uring *ring)
{
    fake *f = ring->cq.ring_ptr;
    int n = (int)f->n;
    unsigned k = n ? count(&submissions) : 0;
    if (is("busy") && k % 2) return k % 4 == 1 ? -EAGAIN : -EINTR;
    if (is("gone") && k >= FIRST) return -EPERM;
    if (is("full") && k >= FIRST) return -EAGAIN;
    for (unsigned i = 0; i < f->n; i++)
        f->answer[f->tail++ % ENTRIES] =
            (struct io_uring_cqe){.user_data = f->request[i].user_data, .res = run(&f->request[i])};
    f->n = 0;
    return n;
}

/* The header has functions of these names. */
SHOW int fake_open(unsigned n, struct io_uring *ring,
                   unsigned flags) __asm__("io_uring_queue_init");
SHOW void fake_close(struct io_uring *ring) __asm__("io_uring_queue_exit");
SHOW int fake_submit(struct io_uring *ring) __asm__("io_uring_submit");
SHOW int fake_wait(struct io_uring *ring, unsigned n) __asm__("io_uring_submit_and_wait");
SHOW unsigned fake_peek(struct io_uring *ring, struct io_uring_cqe **out,
                        unsigned n) __asm__("io_uring_peek_batch_cqe");
SHOW struct io_uring_sqe *fake_entry(struct io_uring *ring) __asm__("io_uring_get_sqe");

int fake_open(unsigned n, struct io_uring *ring, unsigned flags)
{
    fake *f = is("refused") || n > ENTRIES || flags ? NULL : calloc(1, sizeof *f);
    if (!f) return -EPERM;
    memset(ring, 0, sizeof *ring);
    ring->cq.ring_ptr = f;
    ring->cq.khead = &f->head;
    return 0;
}

void fake_close(struct io_uring *ring)
{
    free(ring->cq.ring_ptr);
}

int fake_submit(struct io_uring *ring)
{
    return submit(ring);
}

/* Requests have ended when they have been submitted, so nothing is waited for. */
int fake_wait(struct io_uring *ring, unsigned n)
{
    (void)n;
    return submit(ring);
}

unsigned fake_peek(struct io_uring *ring, struct io_uring_cqe **out, unsigned n)
{
    fake *f = ring->cq.ring_ptr;
    if (n == 0 || f->head == f->tail) return 0;
    *out = &f->answer[f->head % ENTRIES];
    return 1;
}

struct io_uring_sqe *fake_entry(struct io_uring *ring)
{
    fake *f = ring->cq.ring_ptr;
    return f->n < ENTRIES ? &f->request[f->n++] : NULL;
}
#else
typedef int nothing;
#endif
