/* line.c - a rank's side of control.h: a connection and the thread that serves it.
 *
 * A rank leaves in three steps: it sends `bye`, shuts its sending side down, and reads until the
 * hub closes too. Closing a connection with unread data would destroy the `bye` on its way.
 */
#include "dist/control.h"

#include "base/sys.h"
#include "dist/seal.h"

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

/* FIND: for reaching the hub; ANSWER: for its welcome, at one address; CLOSE: of silence of the
 * hub, after `bye`; FAIL: for the hub's order to end, after a failure. */
enum {
    BEAT_MS = 250,
    CONNECT_MS = 3000,
    ANSWER_MS = 10000,
    FIND_MS = 30000,
    CLOSE_MS = 10000,
    FAIL_MS = 8000
};

struct pl_line {
    int fd, rank;
    char host[64], hub[80]; /* hub: its name, for messages */
    pl_hub *own;
    pthread_t thread;
    pthread_mutex_t lock; /* of sending */
    pl_seal seal;
    atomic_bool closing;
    _Atomic uint64_t limit; /* ns */
    uint64_t seen, silent;  /* ns: the last check of the connection; time since the hub was heard */
    void (*doing)(void *ctx, char *out, size_t cap);
    void *ctx;
    void (*_Atomic failed)(void *ctx, int code, const char *text); /* NULL: nothing */
    void *failed_ctx;
    char in[256];
    size_t n_in;
};

/* Time during which this process runs: of the time between two checks, not much more than a
 * connection takes counts. */
typedef struct watch {
    uint64_t seen, spent;
} watch;

static bool within(watch *w, int milliseconds)
{
    uint64_t now = pl_sys_now_ns(), most = (uint64_t)(CONNECT_MS + 500) * 1000000u;
    if (w->seen) w->spent += now - w->seen < most ? now - w->seen : most;
    w->seen = now;
    return w->spent < (uint64_t)milliseconds * 1000000u;
}

/* The thread notices a hub that is gone. A message that was sent in part would end in the next
 * one: the hub gets nothing more. */
static void say(pl_line *l, const char *text)
{
    char line[1000];
    snprintf(line, sizeof line - PL_SEAL_BYTES - 2, "%s", text);
    pthread_mutex_lock(&l->lock);
    size_t n = pl_seal_close(&l->seal, line, sizeof line);
    ssize_t sent = send(l->fd, line, n, MSG_NOSIGNAL);
    if (sent == (ssize_t)n)
        pl_seal_sent(&l->seal);
    else if (sent > 0)
        shutdown(l->fd, SHUT_WR);
    pthread_mutex_unlock(&l->lock);
}

/* ---- ending ----------------------------------------------------------------------------- */
/* The main thread may be inside MPI and never come back: the process ends from here. */
static void leave(pl_line *l, const char *why, bool tell, int code)
{
    void (*failed)(void *, int, const char *) = atomic_load(&l->failed);
    if (tell) fprintf(stderr, "plimsoll: %s\n", why);
    fflush(stderr);
    if (failed) failed(l->failed_ctx, code, why);
    _exit(code);
}

/* Without the hub the lowest ranks report. */
static void lose_hub(pl_line *l, const char *what)
{
    char text[480], line[640], doing[200] = "";
    if (atomic_load(&l->closing)) return;
    if (l->doing) l->doing(l->ctx, doing, sizeof doing);
    snprintf(text, sizeof text,
             "%s %s; this rank was in %s; the same command resumes from the last complete "
             "checkpoint",
             l->hub, what, doing[0] ? doing : PL_CONTROL_START);
    snprintf(line, sizeof line, "fail 8 %s", text);
    say(l, line); /* a stopped hub may still read it */
    snprintf(line, sizeof line, "[rank %d host %s] %s", l->rank, l->host, text);
    leave(l, line, l->rank <= 2, 8);
}

static void beat(pl_line *l)
{
    char what[200] = "", line[256];
    if (l->doing) l->doing(l->ctx, what, sizeof what);
    snprintf(line, sizeof line, "beat %s", what);
    say(l, line);
}

/* Ignores lines that are not messages of a hub; without a key there may be such lines. */
static void take_line(pl_line *l, char *line)
{
    int number = 0;
    if (!pl_seal_open(&l->seal, line)) {
        lose_hub(l, "sent a message that does not verify: somebody else changes, repeats or "
                    "withholds messages on the way");
        return;
    }
    if (strcmp(line, "beat") == 0) l->silent = 0;
    if (strcmp(line, "report") == 0) beat(l);
    if (sscanf(line, "stop %d", &number) == 1 &&
        (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGPIPE))
        kill(getpid(), number);
    if (sscanf(line, "ask %d", &number) == 1 && (number == SIGUSR1 || number == SIGUSR2))
        kill(getpid(), number);
    if (sscanf(line, "end %d", &number) == 1 && !l->own)
        leave(l, "another rank ended the run", false, number > 0 && number < 256 ? number : 8);
}

static void read_hub(pl_line *l)
{
    ssize_t n = recv(l->fd, l->in + l->n_in, sizeof l->in - 1 - l->n_in, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) lose_hub(l, "is gone");
    if (n <= 0) return;
    l->n_in += (size_t)n;
    char *at = l->in, *end;
    while ((end = memchr(at, '\n', l->n_in - (size_t)(at - l->in)))) {
        *end = 0;
        take_line(l, at);
        at = end + 1;
    }
    l->n_in -= (size_t)(at - l->in);
    memmove(l->in, at, l->n_in);
    if (l->n_in == sizeof l->in - 1) l->n_in = 0; /* no valid line is that long */
}

void pl_line_on_failure(pl_line *l, void (*fn)(void *ctx, int code, const char *text), void *ctx)
{
    l->failed_ctx = ctx;
    atomic_store(&l->failed, fn);
}

/* ---- the thread ------------------------------------------------------------------------- */
/* The hub is in this process: it has reported what happened. */
static void tend_own(pl_line *l)
{
    int code;
    if (!l->own || !pl_hub_tend(l->own, 0)) return;
    const char *why = pl_hub_verdict(l->own, &code);
    if (why[0]) leave(l, why, false, code);
}

/* Time during which this process did not run does not count as silence of the hub: of the time
 * between two checks, at most a quarter of the limit counts. */
static void check_silence(pl_line *l)
{
    uint64_t now = pl_sys_now_ns(), limit = atomic_load(&l->limit);
    l->silent += now - l->seen < limit / 4 ? now - l->seen : limit / 4;
    l->seen = now;
    if (l->silent > limit) lose_hub(l, "has sent nothing within the time limit");
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
        check_silence(l);
        if (at.revents) read_hub(l);
        tend_own(l);
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

/* Reads n bytes of the hub into text, which begin like `want`; false: others came, or none within
 * the time. Serves a hub in this process at the same time. */
static bool hears(pl_line *l, const char *want, char *text, size_t n)
{
    size_t got = 0, known = strlen(want);
    watch w = {0, 0};
    while (got < n && within(&w, ANSWER_MS)) {
        struct pollfd at = {.fd = l->fd, .events = POLLIN};
        if (l->own) pl_hub_tend(l->own, 5);
        poll(&at, 1, l->own ? 0 : 50);
        ssize_t k = at.revents ? recv(l->fd, text + got, n - got, MSG_DONTWAIT) : 0;
        if (at.revents && (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))) return false;
        if (k > 0) got += (size_t)k;
        if (memcmp(text, want, got < known ? got : known) != 0) return false;
    }
    text[got] = 0;
    return got == n;
}

/* Waits for the welcome of the hub. With a key the welcome proves that the hub has the key too. */
static bool is_welcome(pl_line *l, const pl_control_at *at, const char *hello)
{
    enum { SAID = 8 + 2 * PL_NONCE_BYTES }; /* "welcome NUMBER" */
    char want[48], text[SAID + PL_SEAL_BYTES + 2], said[SAID + 1];
    if (!at->keyed) {
        snprintf(want, sizeof want, "welcome %llx\n", (unsigned long long)at->token);
        return hears(l, want, text, strlen(want));
    }
    if (!hears(l, "welcome ", text, SAID + PL_SEAL_BYTES + 1)) return false;
    if (text[SAID + PL_SEAL_BYTES] != '\n') return false;
    text[SAID + PL_SEAL_BYTES] = 0;
    snprintf(said, sizeof said, "%.*s", SAID, text);
    pl_seal_begin(&l->seal, &at->key, false, hello, said);
    return pl_seal_open(&l->seal, text);
}

/* Tries one address: connects, greets, waits for the welcome. */
static bool greet(pl_line *l, uint32_t address, const pl_control_at *at)
{
    char hello[256], number[2 * PL_NONCE_BYTES + 1];
    uint8_t nonce[PL_NONCE_BYTES];
    snprintf(number, sizeof number, "%llx", (unsigned long long)at->token);
    if (at->keyed) {
        if (pl_random_bytes(nonce, sizeof nonce) != PL_OK) return false;
        pl_hex_print(nonce, sizeof nonce, number);
    }
    l->fd = connect_to(address, at->port);
    if (l->fd < 0) return false;
    snprintf(hello, sizeof hello, "hello %d %s %d %s", l->rank, number, (int)getpid(), l->host);
    l->seal.on = false;
    say(l, hello);
    if (is_welcome(l, at, hello)) {
        say(l, "here");
        return true;
    }
    close(l->fd);
    l->fd = -1;
    return false;
}

static bool find_hub(pl_line *l, const pl_control_at *at)
{
    watch w = {0, 0};
    while (within(&w, FIND_MS)) {
        for (int i = 0; i < PL_CONTROL_ADDRESSES && at->address[i]; i++)
            if (greet(l, at->address[i], at)) return true;
        usleep(100000);
    }
    return false;
}

pl_status pl_line_open(const pl_control_at *at, int rank, const char *host, const char *hub,
                       pl_hub *own, void (*doing)(void *ctx, char *out, size_t cap), void *ctx,
                       pl_line **out)
{
    PL_FAIL_IF(at->keyed && pl_keyed_missing(), PL_ERR_PEER,
               "the messages between ranks have a keyed hash, and %s", pl_keyed_missing());
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
    snprintf(l->host, sizeof l->host, "%s", host);
    snprintf(l->hub, sizeof l->hub, "%s", hub);
    if (own) pl_hub_set_home(own, rank);
    bool found = find_hub(l, at);
    l->seen = pl_sys_now_ns();
    sigfillset(&all); /* only the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = found && pthread_create(&l->thread, NULL, tend, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started) {
        if (l->fd >= 0) close(l->fd);
        pl_sys_free(l);
        PL_FAIL(PL_ERR_PEER, "rank %d cannot connect to the process that monitors the ranks", rank);
    }
    *out = l;
    return PL_OK;
}

void pl_line_set_limit(pl_line *l, double seconds)
{
    char line[48];
    atomic_store(&l->limit, (uint64_t)(seconds * 1e9));
    snprintf(line, sizeof line, "limit %.3f", seconds);
    say(l, line);
}

/* Reads until the hub has closed its side, which it does when all ranks have left: mpirun ends the
 * other ranks when one exits with an error. A hub from which nothing is heard is not waited for. */
static void drain(pl_line *l)
{
    char rest[256];
    watch w = {0, 0};
    shutdown(l->fd, SHUT_WR);
    while (within(&w, CLOSE_MS)) {
        struct pollfd at = {.fd = l->fd, .events = POLLIN};
        poll(&at, 1, 50);
        ssize_t n = at.revents ? recv(l->fd, rest, sizeof rest, MSG_DONTWAIT) : -1;
        if (n == 0 || (n < 0 && at.revents && errno != EAGAIN && errno != EINTR)) return;
        if (n > 0) w = (watch){0, 0};
    }
}

void pl_line_close(pl_line *l, int ranks, int code)
{
    char line[32];
    if (!l) return;
    snprintf(line, sizeof line, "bye %d", code);
    if (!l->own) atomic_store(&l->closing, true); /* a hub that closes from here on is expected */
    say(l, line);
    /* The hub stays until every rank has reported; its thread ends the process if one cannot. */
    while (l->own && pl_hub_left(l->own) < ranks) usleep(10000);
    atomic_store(&l->closing, true);
    pthread_join(l->thread, NULL);
    if (!l->own) drain(l);
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    pl_sys_free(l);
}

void pl_line_fail(pl_line *l, int code, const char *text)
{
    char line[900];
    int n = snprintf(line, sizeof line - 1, "fail %d %s", code, text);
    size_t end = n < (int)sizeof line - 2 ? (size_t)n : sizeof line - 2;
    for (size_t i = 0; i < end; i++)
        if (line[i] == '\n') line[i] = ' ';
    line[end] = 0;
    say(l, line);
    /* The thread ends the process as soon as the hub says so; signals do not end it sooner. */
    for (watch w = {0, 0}; within(&w, FAIL_MS);) usleep(50000);
    snprintf(line, sizeof line, "[rank %d host %s] %s", l->rank, l->host, text);
    leave(l, line, true, code);
}
