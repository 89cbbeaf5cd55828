/* hub.c - the hub's side of control.h: one loop over the ranks' connections, never blocking. */
#include "dist/control.h"

#include "base/sys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, BEAT_MS = 250, LEAVE_MS = 3000, ARRIVE_MS = 60000 };

typedef struct peer {
    int fd; /* -1: none */
    bool known, left;
    int rank, pid;
    char host[64], doing[256];
    uint64_t heard; /* ns */
    char in[LINE_BYTES];
    size_t n_in;
} peer;

struct pl_hub {
    int listening, ranks, n_peers;
    peer *peers; /* in the order of arrival; twice as many as ranks */
    pl_control_at at;
    char missing[512];
    uint64_t first; /* when the first rank came */
    uint64_t limit, born, beat, ended; /* ns; ended: 0 while the world goes on */
    volatile int n_left;
    int code, code_left;               /* code_left: the worst that a rank left with */
    char verdict[2048];
};

/* ---- opening ---------------------------------------------------------------------------- */
static void list_addresses(pl_control_at *at)
{
    struct ifaddrs *list = NULL;
    int n = 0;
    at->address[n++] = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *a = list; a && n < PL_CONTROL_ADDRESSES; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET) continue;
        uint32_t ip = ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr;
        if (ip != at->address[0]) at->address[n++] = ip;
    }
    freeifaddrs(list);
}

static pl_status open_socket(pl_hub *h)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
    socklen_t n = sizeof any;
    h->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    PL_FAIL_IF(h->listening < 0 || bind(h->listening, (struct sockaddr *)&any, n) != 0 ||
                   listen(h->listening, 1024) != 0 ||
                   getsockname(h->listening, (struct sockaddr *)&any, &n) != 0,
               PL_ERR_PEER, "no port for the control channel: %s", strerror(errno));
    h->at.port = ntohs(any.sin_port);
    return PL_OK;
}

pl_status pl_hub_new(int ranks, pl_hub **out)
{
    pl_hub *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->listening = -1;
    h->ranks = ranks;
    h->peers = pl_sys_alloc(2 * (size_t)ranks * sizeof *h->peers);
    pl_status rc = h->peers ? open_socket(h) : PL_ERR_MEMORY;
    if (rc != PL_OK) {
        pl_hub_free(h);
        return rc;
    }
    h->born = h->beat = pl_sys_now_ns();
    h->limit = 10000000000u;
    h->at.token = h->born ^ (uint64_t)getpid() << 40;
    list_addresses(&h->at);
    *out = h;
    return PL_OK;
}

void pl_hub_free(pl_hub *h)
{
    if (!h) return;
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].fd >= 0) close(h->peers[i].fd);
    if (h->listening >= 0) close(h->listening);
    pl_sys_free(h->peers);
    pl_sys_free(h);
}

void pl_hub_where(const pl_hub *h, pl_control_at *out)
{
    *out = h->at;
}

void pl_hub_set_limit(pl_hub *h, double seconds)
{
    h->limit = (uint64_t)(seconds * 1e9);
}

/* ---- ending ----------------------------------------------------------------------------- */
static void send_all(pl_hub *h, const char *line)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].fd >= 0 && send(h->peers[i].fd, line, strlen(line), MSG_NOSIGNAL) < 0) continue;
}

/* What the ranks that are well were doing, most of them. */
static const char *what_others_do(const pl_hub *h, int except)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known && !h->peers[i].left && h->peers[i].rank != except && h->peers[i].doing[0])
            return h->peers[i].doing;
    return "";
}

static void end_world(pl_hub *h, int code)
{
    char line[64];
    h->ended = pl_sys_now_ns();
    h->code = code;
    snprintf(line, sizeof line, "end %d\n", code == 8 ? 8 : code);
    send_all(h, line);
}

static void end_for_peer(pl_hub *h, const peer *p, const char *what)
{
    const char *others = what_others_do(h, p->rank);
    if (h->ended) return;
    snprintf(h->verdict, sizeof h->verdict, "[rank %d host %s] %s (process %d; it was last in %s)%s%s%s", p->rank,
             p->host, what, p->pid, p->doing[0] ? p->doing : "its start", others[0] ? "; the others were in " : "",
             others, "; the same command goes on from the last complete checkpoint");
    end_world(h, 8);
}

void pl_hub_fail(pl_hub *h, int code, const char *text)
{
    if (h->ended) return;
    snprintf(h->verdict, sizeof h->verdict, "%s", text);
    end_world(h, code);
}

static void lose(pl_hub *h, peer *p)
{
    close(p->fd);
    p->fd = -1;
    if (p->known && !p->left) end_for_peer(h, p, "is gone: killed, or its machine is");
}

/* ---- messages --------------------------------------------------------------------------- */
static void take_hello(pl_hub *h, peer *p, const char *text)
{
    unsigned long long token = 0;
    char host[64];
    if (sscanf(text, "%d %llx %d %63s", &p->rank, &token, &p->pid, host) != 4 || token != h->at.token ||
        p->rank < 0 || p->rank >= h->ranks) {
        close(p->fd);
        p->fd = -1;
        return;
    }
    snprintf(p->host, sizeof p->host, "%s", host);
    p->known = true;
    if (!h->first) h->first = pl_sys_now_ns();
    if (send(p->fd, "beat\n", 5, MSG_NOSIGNAL) < 0) return;
}

static void take_line(pl_hub *h, peer *p, char *line)
{
    p->heard = pl_sys_now_ns();
    if (strncmp(line, "hello ", 6) == 0) {
        take_hello(h, p, line + 6);
    } else if (strncmp(line, "beat ", 5) == 0) {
        snprintf(p->doing, sizeof p->doing, "%s", line + 5);
    } else if (strncmp(line, "limit ", 6) == 0) {
        pl_hub_set_limit(h, strtod(line + 6, NULL));
    } else if (strncmp(line, "bye ", 4) == 0) {
        p->left = true;
        h->n_left = h->n_left + 1;
        if (atoi(line + 4) > h->code_left) h->code_left = atoi(line + 4);
    } else if (strncmp(line, "fail ", 5) == 0 && !h->ended) {
        char *text;
        int code = (int)strtol(line + 5, &text, 10);
        snprintf(h->verdict, sizeof h->verdict, "[rank %d host %s]%s", p->rank, p->host, text);
        end_world(h, code);
    }
}

static void read_peer(pl_hub *h, peer *p)
{
    ssize_t n = recv(p->fd, p->in + p->n_in, sizeof p->in - 1 - p->n_in, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        lose(h, p);
        return;
    }
    if (n < 0) return;
    p->n_in += (size_t)n;
    p->in[p->n_in] = 0;
    char *at = p->in, *end;
    while (p->fd >= 0 && (end = strchr(at, '\n'))) {
        *end = 0;
        take_line(h, p, at);
        at = end + 1;
    }
    p->n_in -= (size_t)(at - p->in);
    memmove(p->in, at, p->n_in);
    if (p->n_in == sizeof p->in - 1) p->n_in = 0; /* nobody sends such lines */
}

static void accept_peer(pl_hub *h)
{
    int fd = accept4(h->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    int i = 0; /* the seat of one that went before it said who it was, or a new one */
    while (i < h->n_peers && (h->peers[i].known || h->peers[i].fd >= 0)) i++;
    if (i == 2 * h->ranks) {
        close(fd);
        return;
    }
    if (i == h->n_peers) h->n_peers++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    h->peers[i] = (peer){.fd = fd, .rank = -1, .heard = pl_sys_now_ns()};
}

/* ---- tending ---------------------------------------------------------------------------- */
static void check_silence(pl_hub *h, uint64_t now)
{
    char what[128];
    int here = 0;
    for (int i = 0; i < h->n_peers && !h->ended; i++) {
        peer *p = &h->peers[i];
        here += p->known;
        if (!p->known || p->left || p->fd < 0 || now - p->heard < h->limit) continue;
        snprintf(what, sizeof what, "has not been heard of for %.1f s: stopped, or its machine cannot be reached",
                 1e-9 * (double)(now - p->heard));
        end_for_peer(h, p, what);
        close(p->fd); /* it will not leave by itself */
        p->fd = -1;
    }
    uint64_t since = here ? h->first : h->born, patience = here ? h->limit : (uint64_t)ARRIVE_MS * 1000000u;
    if (!h->ended && here < h->ranks && now - since > patience) {
        snprintf(h->missing, sizeof h->missing, "%d of %d ranks have come within %.0f s; missing:", here, h->ranks,
                 1e-9 * (double)patience);
        for (int i = 0; i < h->ranks; i++) {
            size_t used = strlen(h->missing);
            if (!pl_hub_pid(h, i)) snprintf(h->missing + used, sizeof h->missing - used, " %d", i);
        }
        pl_hub_fail(h, 8, h->missing);
    }
}

static bool all_gone(const pl_hub *h)
{
    int left = 0;
    for (int i = 0; i < h->n_peers; i++) {
        if (h->peers[i].known && h->peers[i].fd >= 0) return false;
        left += h->peers[i].left;
    }
    return h->ended || left >= h->ranks;
}

bool pl_hub_tend(pl_hub *h, int milliseconds)
{
    enum { MOST = 4096 };
    struct pollfd at[MOST];
    int n = 0;
    at[n++] = (struct pollfd){.fd = h->listening, .events = POLLIN};
    for (int i = 0; i < h->n_peers && n < MOST; i++) at[n++] = (struct pollfd){.fd = h->peers[i].fd, .events = POLLIN};
    int peers = n - 1;
    if (poll(at, (nfds_t)n, milliseconds) > 0) {
        for (int i = 0; i < peers; i++)
            if (at[i + 1].revents && h->peers[i].fd >= 0) read_peer(h, &h->peers[i]);
        if (at[0].revents) accept_peer(h);
    }
    uint64_t now = pl_sys_now_ns();
    if (now - h->beat > (uint64_t)BEAT_MS * 1000000u) {
        h->beat = now;
        send_all(h, "beat\n");
        check_silence(h, now);
    }
    return all_gone(h) || (h->ended && now - h->ended > (uint64_t)LEAVE_MS * 1000000u);
}

void pl_hub_stop(pl_hub *h, int signal_number)
{
    char line[32];
    snprintf(line, sizeof line, "stop %d\n", signal_number);
    send_all(h, line);
}

const char *pl_hub_verdict(const pl_hub *h, int *code)
{
    *code = h->ended ? h->code : h->code_left;
    return h->verdict;
}

int pl_hub_left(const pl_hub *h)
{
    return h->n_left;
}

int pl_hub_pid(const pl_hub *h, int rank)
{
    for (int i = 0; i < h->n_peers; i++)
        if (h->peers[i].known && h->peers[i].rank == rank) return h->peers[i].pid;
    return 0;
}

/* ---- where a hub is, as text ------------------------------------------------------------ */
void pl_control_print(const pl_control_at *at, char *out, size_t cap)
{
    struct in_addr ip = {at->address[0]};
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &ip, text, sizeof text);
    snprintf(out, cap, "%s:%u:%llx", text, (unsigned)at->port, (unsigned long long)at->token);
}

bool pl_control_parse(const char *text, pl_control_at *out)
{
    char ip[64];
    unsigned port;
    unsigned long long token;
    struct in_addr a;
    memset(out, 0, sizeof *out);
    if (sscanf(text, "%63[0-9.]:%u:%llx", ip, &port, &token) != 3 || port > 65535) return false;
    if (inet_pton(AF_INET, ip, &a) != 1) return false;
    out->address[0] = a.s_addr;
    out->port = (uint16_t)port;
    out->token = token;
    return true;
}
