/* line.c - a rank's side of control.h: a connection and the thread that tends it. */
#include "dist/control.h"

#include "base/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BEAT_MS = 250, CONNECT_MS = 5000, TRIES = 20 };

struct pl_line {
    int fd, rank;
    pl_hub *own;
    pthread_t thread;
    pthread_mutex_t lock; /* of sending */
    atomic_bool closing;
    _Atomic uint64_t limit; /* ns */
    uint64_t heard;
    void (*doing)(void *ctx, char *out, size_t cap);
    void *ctx;
    char in[256];
    size_t n_in;
};

static void say(pl_line *l, const char *text)
{
    pthread_mutex_lock(&l->lock);
    size_t n = strlen(text);
    ssize_t sent = send(l->fd, text, n, MSG_NOSIGNAL);
    (void)sent; /* a hub that is gone is noticed by the thread */
    pthread_mutex_unlock(&l->lock);
}

/* ---- ending ----------------------------------------------------------------------------- */
/* The main thread may be inside MPI and never come back: the process ends from here. */
static void leave(const char *why, int code)
{
    if (why) fprintf(stderr, "plimsoll: %s\n", why);
    fflush(stderr);
    _exit(code);
}

/* Without the hub nobody tells: the lowest ranks do. */
static void lose_hub(pl_line *l, const char *what)
{
    char why[256];
    if (atomic_load(&l->closing)) return;
    snprintf(why, sizeof why, "[rank %d] %s; the same command goes on from the last complete checkpoint", l->rank,
             what);
    leave(l->rank <= 2 ? why : NULL, 8);
}

static void take_line(pl_line *l, const char *line)
{
    l->heard = pl_sys_now_ns();
    if (strncmp(line, "stop ", 5) == 0) kill(getpid(), atoi(line + 5));
    if (strncmp(line, "end ", 4) == 0 && !l->own) leave(NULL, atoi(line + 4));
}

static void read_hub(pl_line *l)
{
    ssize_t n = recv(l->fd, l->in + l->n_in, sizeof l->in - 1 - l->n_in, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        lose_hub(l, "the process that looks after the ranks (rank 0, or the one that started them) is gone");
    if (n <= 0) return;
    l->n_in += (size_t)n;
    l->in[l->n_in] = 0;
    char *at = l->in, *end;
    while ((end = strchr(at, '\n'))) {
        *end = 0;
        take_line(l, at);
        at = end + 1;
    }
    l->n_in -= (size_t)(at - l->in);
    memmove(l->in, at, l->n_in);
}

/* ---- the thread ------------------------------------------------------------------------- */
static void beat(pl_line *l)
{
    char what[200] = "", line[256];
    if (l->doing) l->doing(l->ctx, what, sizeof what);
    snprintf(line, sizeof line, "beat %s\n", what);
    say(l, line);
}

/* The hub in this process: it says what happened, last of all. */
static void tend_own(pl_line *l)
{
    int code;
    if (!l->own || !pl_hub_tend(l->own, 0)) return;
    const char *verdict = pl_hub_verdict(l->own, &code);
    if (verdict[0]) leave(verdict, code);
}

static void *tend(void *arg)
{
    pl_line *l = arg;
    uint64_t last = 0;
    while (!atomic_load(&l->closing)) {
        uint64_t now = pl_sys_now_ns();
        if (now - last >= (uint64_t)BEAT_MS * 1000000u) {
            beat(l);
            last = now;
        }
        struct pollfd at = {.fd = l->fd, .events = POLLIN};
        poll(&at, 1, l->own ? 20 : BEAT_MS / 2);
        if (at.revents) read_hub(l);
        tend_own(l);
        /* Time that this process itself did not run does not count: the pause is read before the clock. */
        if (pl_sys_now_ns() - l->heard > atomic_load(&l->limit) && pl_sys_now_ns() - now < atomic_load(&l->limit) / 2)
            lose_hub(l, "the process that looks after the ranks has not been heard of within the time limit");
    }
    return NULL;
}

/* ---- opening ---------------------------------------------------------------------------- */
static int connect_to(uint32_t address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {address}, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = CONNECT_MS / 1000, .tv_usec = CONNECT_MS % 1000 * 1000};
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

/* One address: connected, greeted and answered. A hub in this process is tended meanwhile. */
static bool greet(pl_line *l, uint32_t address, const pl_control_at *at, const char *host)
{
    char hello[256], answer[8] = "";
    l->fd = connect_to(address, at->port);
    if (l->fd < 0) return false;
    snprintf(hello, sizeof hello, "hello %d %llx %d %s\n", l->rank, (unsigned long long)at->token, (int)getpid(), host);
    say(l, hello);
    for (int i = 0; l->own && i < 3; i++) pl_hub_tend(l->own, 10);
    if (recv(l->fd, answer, 5, MSG_WAITALL) == 5 && memcmp(answer, "beat\n", 5) == 0) return true;
    close(l->fd);
    l->fd = -1;
    return false;
}

static bool find_hub(pl_line *l, const pl_control_at *at, const char *host)
{
    for (int turn = 0; turn < TRIES; turn++) {
        for (int i = 0; i < PL_CONTROL_ADDRESSES && at->address[i]; i++)
            if (greet(l, at->address[i], at, host)) return true;
        usleep(100000);
    }
    return false;
}

pl_status pl_line_open(const pl_control_at *at, int rank, const char *host, pl_hub *own,
                       void (*doing)(void *ctx, char *out, size_t cap), void *ctx, pl_line **out)
{
    pl_line *l = pl_sys_alloc(sizeof *l);
    if (!l) return PL_ERR_MEMORY;
    l->fd = -1;
    l->rank = rank;
    l->own = own;
    l->doing = doing;
    l->ctx = ctx;
    atomic_store(&l->limit, 10000000000u);
    pthread_mutex_init(&l->lock, NULL);
    sigset_t all, old;
    bool found = find_hub(l, at, host);
    l->heard = pl_sys_now_ns();
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = found && pthread_create(&l->thread, NULL, tend, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started) {
        if (l->fd >= 0) close(l->fd);
        pl_sys_free(l);
        PL_FAIL(PL_ERR_PEER, "rank %d cannot reach the control channel of its world", rank);
    }
    *out = l;
    return PL_OK;
}

void pl_line_set_limit(pl_line *l, double seconds)
{
    char line[48];
    atomic_store(&l->limit, (uint64_t)(seconds * 1e9));
    snprintf(line, sizeof line, "limit %.3f\n", seconds);
    say(l, line);
}

void pl_line_close(pl_line *l, int ranks, int code)
{
    char line[32];
    if (!l) return;
    snprintf(line, sizeof line, "bye %d\n", code);
    if (!l->own) atomic_store(&l->closing, true); /* a hub that closes now is no news */
    say(l, line);
    /* The hub stays until every rank has said its word, at most for a moment. */
    for (int i = 0; l->own && i < 500 && pl_hub_left(l->own) < ranks; i++) usleep(10000);
    atomic_store(&l->closing, true);
    pthread_join(l->thread, NULL);
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    pl_sys_free(l);
}

void pl_line_fail(pl_line *l, int code, const char *text)
{
    char line[900];
    snprintf(line, sizeof line, "fail %d %s", code, text);
    for (char *p = line; *p; p++)
        if (*p == '\n') *p = ' ';
    strcat(line, "\n");
    say(l, line);
    sleep(8); /* the thread ends the process as soon as the hub says so */
    leave(text, code);
}
