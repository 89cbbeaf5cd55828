/* hub.c - the hub's side of control.h: one loop over the ranks' connections, never blocking.
 *
 * Silence is measured on a clock that advances only while the hub itself runs: when the machine was
 * too busy to run the hub, or the whole run was stopped, no rank counts as silent. A connection is
 * a stranger until it has sent the hub's token, or proved that it has the key, and answered the
 * welcome. The hub ignores messages of strangers, and drops a silent stranger when it needs the
 * place. Cost: a poll of all connections at least every 250 ms, O(ranks).
 */
#include "dist/control.h"

#include "base/sys.h"
#include "dist/seal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* LEAVE: time for ranks to end; less where the hub is inside a rank. ARRIVE: between one rank and
 * the next. STRANGER: of silence. DOUBT: a rank that cannot exchange knows less than the hub may
 * learn soon. */
enum {
    LINE_BYTES = 1024,
    BEAT_MS = 250,
    LEAVE_MS = 3000,
    LEAVE_HOME_MS = 500,
    ARRIVE_FIRST_MS = 60000,
    ARRIVE_MS = 30000,
    STRANGER_MS = 10000,
    DOUBT_MS = 300
};

typedef struct peer {
    int fd; /* -1: none */
    bool greeted, known, left, gone;
    bool ended; /* it sends nothing more, and waits for the others to leave */
    bool asked; /* a report was requested and has not come */
    int rank, pid;
    char host[64], doing[256];
    uint64_t heard; /* on the hub's clock */
    pl_seal seal;
    char in[LINE_BYTES];
    size_t n_in;
} peer;

struct pl_hub {
    int listening, ranks, n_peers, home; /* home: the rank whose process this is; -1: none */
    int seats;                           /* of peers; up to twice as many as ranks */
    peer *peers;                         /* in the order of arrival */
    struct pollfd *polled;               /* the listening socket, then one of each peer */
    pl_control_at at;
    /* ns; seen: the last check; clock: time during which the hub was awake */
    uint64_t limit, seen, clock;
    uint64_t came, beat, doubt, ended; /* on that clock; doubt, ended: 0 while there is none */
    int doubter;                       /* the rank that could not exchange */
    atomic_int n_left;
    int stop;            /* the signal to pass to every rank; 0: none */
    int code, code_left; /* code_left: the worst exit code of a rank that left */
    char verdict[2048];
};

/* ---- opening ---------------------------------------------------------------------------- */
static void list_addresses(pl_control_at *at, bool local)
{
    struct ifaddrs *list = NULL;
    int n = 0;
    at->address[n++] = htonl(INADDR_LOOPBACK);
    if (local || getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *a = list; a && n < PL_CONTROL_ADDRESSES; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET) continue;
        uint32_t ip = ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr;
        if (ip != at->address[0]) at->address[n++] = ip;
    }
    freeifaddrs(list);
}

static pl_status open_socket(pl_hub *h, bool local)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr = {htonl(local ? INADDR_LOOPBACK : INADDR_ANY)}};
    socklen_t n = sizeof any;
    h->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    PL_FAIL_IF(h->listening < 0 || bind(h->listening, (struct sockaddr *)&any, n) != 0 ||
                   listen(h->listening, 1024) != 0 ||
                   getsockname(h->listening, (struct sockaddr *)&any, &n) != 0,
               PL_ERR_PEER, "no port for the control channel: %s", strerror(errno));
    h->at.port = ntohs(any.sin_port);
    return PL_OK;
}

/* Sets the number of connections that can be open, at most twice the ranks: poll(2) refuses more
 * than the process may have open. PL_ERR_PEER when the ranks themselves are more. */
static pl_status count_seats(int ranks, int *seats)
{
    enum { OTHERS = 64 }; /* files that the process has open besides */
    struct rlimit r;
    *seats = 2 * ranks;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return PL_OK;
    rlim_t want = (rlim_t)*seats + OTHERS;
    if (r.rlim_cur != RLIM_INFINITY && r.rlim_cur < want) {
        r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > want ? want : r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
        if (getrlimit(RLIMIT_NOFILE, &r) != 0) return PL_OK;
    }
    if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= want) return PL_OK;
    PL_FAIL_IF(r.rlim_cur < (rlim_t)ranks + OTHERS, PL_ERR_PEER,
               "the control channel of %d ranks needs %d open files, the limit is %llu (ulimit -n)",
               ranks, ranks + OTHERS, (unsigned long long)r.rlim_cur);
    *seats = (int)r.rlim_cur - OTHERS;
    return PL_OK;
}

pl_status pl_hub_new(int ranks, bool local, pl_hub **out)
{
    int seats;
    PL_TRY(count_seats(ranks, &seats));
    pl_hub *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->listening = -1;
    h->ranks = ranks;
    h->seats = seats;
    h->peers = pl_sys_alloc((size_t)seats * sizeof *h->peers);
    h->polled = pl_sys_alloc(((size_t)seats + 1) * sizeof *h->polled);
    pl_status rc = h->peers && h->polled ? open_socket(h, local) : PL_ERR_MEMORY;
    if (rc != PL_OK) {
        pl_hub_free(h);
        return rc;
    }
    h->home = -1;
    h->seen = pl_sys_now_ns();
    h->clock = 1;
    h->limit = 10000000000u;
    if (getrandom(&h->at.token, sizeof h->at.token, 0) != sizeof h->at.token)
        h->at.token = h->seen ^ (uint64_t)getpid() << 40;
    list_addresses(&h->at, local);
    *out = h;
    return PL_OK;
}

void pl_hub_free(pl_hub *h)
{
    if (!h) return;
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].fd >= 0) close(h->peers[i].fd);
    if (h->listening >= 0) close(h->listening);
    pl_sys_free(h->polled);
    pl_sys_free(h->peers);
    pl_sys_free(h);
}

void pl_hub_where(const pl_hub *h, pl_control_at *out)
{
    *out = h->at;
}

void pl_hub_set_limit(pl_hub *h, double seconds)
{
    if (seconds >= 1e-3 && seconds <= 1e9) h->limit = (uint64_t)(seconds * 1e9);
}

void pl_hub_set_home(pl_hub *h, int rank)
{
    h->home = rank;
}

static bool passed(const pl_hub *h, uint64_t since, uint64_t milliseconds)
{
    return h->clock - since > milliseconds * 1000000u;
}

void pl_hub_set_key(pl_hub *h, const pl_key *key)
{
    h->at.key = *key;
    h->at.keyed = true;
}

pl_status pl_hub_draw_key(pl_hub *h)
{
    pl_key key;
    if (pl_keyed_missing()) return PL_OK;
    PL_TRY(pl_random_bytes(&key, sizeof key));
    pl_hub_set_key(h, &key);
    return PL_OK;
}

/* ---- ending ----------------------------------------------------------------------------- */
/* A rank that does not read is found by its silence. A message that was sent in part would end in
 * the next one: the rank gets nothing more. */
static void tell(peer *p, const char *text)
{
    char line[128];
    if (p->fd < 0) return;
    snprintf(line, sizeof line - PL_SEAL_BYTES - 2, "%s", text);
    size_t n = pl_seal_close(&p->seal, line, sizeof line);
    ssize_t sent = send(p->fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)n)
        pl_seal_sent(&p->seal);
    else if (sent > 0)
        shutdown(p->fd, SHUT_WR);
}

static void tell_all(pl_hub *h, const char *line)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known) tell(&h->peers[i], line);
}

/* Returns what a healthy rank was doing. */
static const char *what_others_do(const pl_hub *h, int except)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known && !h->peers[i].left && h->peers[i].rank != except &&
            h->peers[i].doing[0])
            return h->peers[i].doing;
    return "";
}

/* mpirun kills all ranks once some are gone, sometimes immediately: the rank that holds the hub
 * reports before they do, and they stay silent. */
static void end_world(pl_hub *h, int code)
{
    char line[64];
    if (h->home >= 0) {
        fprintf(stderr, "plimsoll: %s\n", h->verdict);
        fflush(stderr);
    }
    h->ended = h->clock;
    h->code = code;
    snprintf(line, sizeof line, "end %d", code);
    tell_all(h, line);
}

static bool seated(const pl_hub *h, int rank)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known && h->peers[i].rank == rank) return true;
    return false;
}

/* " 3 5": the ranks that have not come. */
static void list_missing(const pl_hub *h, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < h->ranks && n + 12 < cap; i++)
        if (!seated(h, i)) n += (size_t)snprintf(out + n, cap - n, " %d", i);
}

/* If a rank died before it connected, only mpirun notices, and then kills the other ranks. */
static void end_for_peer(pl_hub *h, const peer *p, const char *what)
{
    const char *others = what_others_do(h, p->rank);
    char missing[256];
    if (h->ended) return;
    list_missing(h, missing, sizeof missing);
    snprintf(h->verdict, sizeof h->verdict,
             "[rank %d host %s] %s (process %d; it was last in %s)%s%s%s%s%s", p->rank, p->host,
             what, p->pid, p->doing[0] ? p->doing : PL_CONTROL_START,
             others[0] ? "; the others were in " : "", others,
             missing[0] ? "; possibly a rank died before it connected: rank" : "", missing,
             "; the same command resumes from the last complete checkpoint");
    end_world(h, 8);
}

void pl_hub_fail(pl_hub *h, int code, const char *text)
{
    if (h->ended) return;
    snprintf(h->verdict, sizeof h->verdict, "%s", text);
    end_world(h, code);
}

static void drop(peer *p)
{
    close(p->fd);
    p->fd = -1;
}

static void lose(pl_hub *h, peer *p)
{
    drop(p);
    p->gone = true;
    if (h->doubt && !h->ended && p->rank == h->doubter)
        end_world(h, 8); /* it has said why */
    else if (p->known && !p->left)
        end_for_peer(h, p, "is gone: the process was killed, or its machine is down");
}

/* ---- messages --------------------------------------------------------------------------- */
/* Replaces the number of a greeting by the number of the answer: without a key both are the token,
 * else a new random number. False: the number is wrong. */
static bool answer(const pl_hub *h, char number[2 * PL_NONCE_BYTES + 1])
{
    uint8_t nonce[PL_NONCE_BYTES];
    char *end;
    if (!h->at.keyed)
        return strtoull(number, &end, 16) == h->at.token && *end == 0 && number[0] != '-';
    if (!pl_hex_parse(number, nonce, sizeof nonce)) return false;
    if (pl_random_bytes(nonce, sizeof nonce) != PL_OK) return false;
    pl_hex_print(nonce, sizeof nonce, number);
    return true;
}

/* A rank may give up waiting and connect again: it counts as present when it has answered the
 * welcome. */
static void take_stranger(pl_hub *h, peer *p, const char *line)
{
    char text[48];
    if (p->greeted && strcmp(line, "here") == 0 && !seated(h, p->rank)) {
        p->known = true;
        h->came = h->clock;
        snprintf(text, sizeof text, h->ended ? "end %d" : "stop %d", h->ended ? h->code : h->stop);
        if (h->stop || h->ended) tell(p, text);
        return;
    }
    char number[2 * PL_NONCE_BYTES + 1];
    if (p->greeted ||
        sscanf(line, "hello %d %32s %d %63s", &p->rank, number, &p->pid, p->host) != 4 ||
        p->rank < 0 || p->rank >= h->ranks || p->pid < 2 || !answer(h, number)) {
        drop(p);
        return;
    }
    p->greeted = true;
    snprintf(text, sizeof text, "welcome %s", number);
    if (h->at.keyed) pl_seal_begin(&p->seal, &h->at.key, true, line, text);
    tell(p, text);
}

/* "CODE TEXT". A failed exchange may be the consequence of another rank's end. */
static void take_failure(pl_hub *h, const peer *p, const char *line)
{
    char *text;
    long code = strtol(line, &text, 10);
    if (h->ended || (h->doubt && code == 8)) return;
    snprintf(h->verdict, sizeof h->verdict, "[rank %d host %s]%s", p->rank, p->host, text);
    if (code == 8) {
        h->doubt = h->clock;
        h->doubter = p->rank;
    } else {
        end_world(h, code > 0 && code < 256 ? (int)code : 1);
    }
}

static void take_bye(pl_hub *h, peer *p, int code)
{
    if (p->left) return;
    p->left = true;
    atomic_fetch_add(&h->n_left, 1);
    if (code > h->code_left && code < 256) h->code_left = code;
}

static void take_report(peer *p, const char *text)
{
    snprintf(p->doing, sizeof p->doing, "%s", text);
    p->asked = false;
}

static void take_line(pl_hub *h, peer *p, char *line)
{
    if (!pl_seal_open(&p->seal, line)) {
        if (p->known)
            end_for_peer(h, p,
                         "sent a message that does not verify: somebody else changes, "
                         "repeats or withholds messages on the way");
        drop(p);
        return;
    }
    p->heard = h->clock;
    if (!p->known)
        take_stranger(h, p, line);
    else if (strncmp(line, "beat ", 5) == 0)
        take_report(p, line + 5);
    else if (strncmp(line, "limit ", 6) == 0)
        pl_hub_set_limit(h, strtod(line + 6, NULL));
    else if (strncmp(line, "bye ", 4) == 0)
        take_bye(h, p, atoi(line + 4));
    else if (strncmp(line, "fail ", 5) == 0)
        take_failure(h, p, line + 5);
}

static void read_peer(pl_hub *h, peer *p)
{
    ssize_t n = recv(p->fd, p->in + p->n_in, sizeof p->in - 1 - p->n_in, MSG_DONTWAIT);
    if (n == 0 && p->left) {
        p->ended = true;
        return;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        lose(h, p);
        return;
    }
    if (n < 0) return;
    p->n_in += (size_t)n;
    p->in[p->n_in] = 0;
    char *at = p->in, *end;
    while (p->fd >= 0 && (end = memchr(at, '\n', p->n_in - (size_t)(at - p->in)))) {
        *end = 0;
        take_line(h, p, at);
        at = end + 1;
    }
    p->n_in -= (size_t)(at - p->in);
    memmove(p->in, at, p->n_in);
    if (p->n_in < sizeof p->in - 1) return;
    p->n_in = 0; /* no valid line is that long */
    if (!p->known && p->fd >= 0) drop(p);
}

/* Returns a free seat, or the seat of the stranger that has been silent longest; -1: none. */
static int find_seat(pl_hub *h)
{
    int worst = -1;
    for (int i = 0; i < h->n_peers; i++) {
        const peer *p = &h->peers[i];
        if (p->known) continue;
        if (p->fd < 0) return i;
        if (worst < 0 || p->heard < h->peers[worst].heard) worst = i;
    }
    if (h->n_peers < h->seats) return h->n_peers++;
    if (worst >= 0) drop(&h->peers[worst]);
    return worst;
}

static void accept_peer(pl_hub *h)
{
    int fd = accept4(h->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int seat = fd < 0 ? -1 : find_seat(h);
    if (seat >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        h->peers[seat] = (peer){.fd = fd, .rank = -1, .heard = h->clock};
    } else if (fd >= 0) {
        close(fd);
    }
}

/* ---- tending ---------------------------------------------------------------------------- */
static void check_silence(pl_hub *h)
{
    char what[128];
    for (int i = 0; i < h->n_peers && !h->ended; i++) {
        peer *p = &h->peers[i];
        uint64_t silent = h->clock - p->heard;
        if (p->fd >= 0 && !p->known && silent > (uint64_t)STRANGER_MS * 1000000u) drop(p);
        if (!p->known || p->left || p->fd < 0 || silent < h->limit) continue;
        snprintf(what, sizeof what,
                 "has sent nothing for %.1f s: it is suspended, or its machine cannot be reached",
                 1e-9 * (double)silent);
        end_for_peer(h, p, what);
        drop(p); /* it will not leave by itself */
    }
}

static void check_arrival(pl_hub *h)
{
    char text[512], missing[256];
    int here = 0;
    for (int i = 0; i < h->n_peers; i++) here += h->peers[i].known;
    int patience = here ? ARRIVE_MS : ARRIVE_FIRST_MS;
    if (h->ended || here == h->ranks || !passed(h, h->came, (uint64_t)patience)) return;
    list_missing(h, missing, sizeof missing);
    snprintf(text, sizeof text,
             "%d of %d ranks have connected, and no other rank for %d s; missing:%s", here,
             h->ranks, patience / 1000, missing);
    pl_hub_fail(h, 8, text);
}

/* A rank that has left ends when its connection closes, and a launcher that sees a rank end with an
 * error ends the others: none is released before all have reported. */
static void let_go(pl_hub *h)
{
    if (!h->ended && atomic_load(&h->n_left) < h->ranks) return;
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].ended && h->peers[i].fd >= 0) drop(&h->peers[i]);
}

static bool all_gone(const pl_hub *h)
{
    int left = 0;
    for (int i = 0; i < h->n_peers; i++) {
        if (h->peers[i].known && h->peers[i].fd >= 0 && h->peers[i].rank != h->home) return false;
        left += h->peers[i].left;
    }
    return h->ended || left >= h->ranks;
}

/* Of the time between two checks, at most a quarter of the limit counts. */
static void advance(pl_hub *h)
{
    uint64_t now = pl_sys_now_ns(), most = h->limit / 4;
    h->clock += now - h->seen < most ? now - h->seen : most;
    h->seen = now;
}

bool pl_hub_tend(pl_hub *h, int milliseconds)
{
    struct pollfd *at = h->polled;
    int peers = h->n_peers;
    at[0] = (struct pollfd){.fd = h->listening, .events = POLLIN};
    for (int i = 0; i < peers; i++)
        at[i + 1] =
            (struct pollfd){.fd = h->peers[i].ended ? -1 : h->peers[i].fd, .events = POLLIN};
    int ready = poll(at, (nfds_t)peers + 1, milliseconds);
    advance(h);
    for (int i = 0; ready > 0 && i < peers; i++)
        if (at[i + 1].revents && h->peers[i].fd >= 0) read_peer(h, &h->peers[i]);
    if (ready > 0 && at[0].revents) accept_peer(h);
    if (h->doubt && !h->ended && passed(h, h->doubt, DOUBT_MS)) end_world(h, 8);
    if (passed(h, h->beat, BEAT_MS)) {
        h->beat = h->clock;
        tell_all(h, "beat");
        check_silence(h);
        check_arrival(h);
    }
    let_go(h);
    return all_gone(h) || (h->ended && passed(h, h->ended, h->home < 0 ? LEAVE_MS : LEAVE_HOME_MS));
}

void pl_hub_stop(pl_hub *h, int signal_number)
{
    char line[32];
    h->stop = signal_number; /* for ranks that have not come yet */
    snprintf(line, sizeof line, "stop %d", signal_number);
    tell_all(h, line);
}

void pl_hub_ask(pl_hub *h, int signal_number)
{
    char line[32];
    snprintf(line, sizeof line, "ask %d", signal_number);
    tell_all(h, line);
}

void pl_hub_request_reports(pl_hub *h)
{
    for (int i = 0; i < h->n_peers; i++) h->peers[i].asked = h->peers[i].known;
    tell_all(h, "report");
}

bool pl_hub_has_reports(const pl_hub *h)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].asked && !h->peers[i].left && h->peers[i].fd >= 0) return false;
    return true;
}

const char *pl_hub_verdict(const pl_hub *h, int *code)
{
    *code = h->ended ? h->code : h->doubt ? 8 : h->code_left;
    return h->verdict;
}

bool pl_hub_met(const pl_hub *h)
{
    int here = 0;
    for (int i = 0; i < h->n_peers; i++) here += h->peers[i].known;
    return here == h->ranks;
}

bool pl_hub_begun(const pl_hub *h)
{
    const char *at = PL_CONTROL_START;
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].doing[0] && strncmp(h->peers[i].doing, at, strlen(at)) != 0) return true;
    return false;
}

int pl_hub_left(pl_hub *h)
{
    return atomic_load(&h->n_left);
}

int pl_hub_pid(const pl_hub *h, int rank)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known && h->peers[i].rank == rank && !h->peers[i].gone)
            return h->peers[i].pid;
    return 0;
}
