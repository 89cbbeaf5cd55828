/* fuzz_control.c - any bytes on the control channel's port: strangers change nothing, ranks end
 * their world in order at worst. The first byte says who speaks. Bit 0: rank 0, else a stranger;
 * bit 1: the hub has a key; bit 2, with bits 0 and 1: lines get their hash, else the rank has lost
 * its key. '%' stands for the hub's token. */
#include "dist/control.h"
#include "dist/seal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const pl_control_at *at)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(at->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger now = {.l_onoff = 1}; /* no port stays behind */
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

/* Sends piece by piece, as the hub reads. */
static void give(pl_hub *h, int fd, const char *data, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k =
            send(fd, data + done, n - done < 700 ? n - done : 700, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0) return;
        done += (size_t)k;
        pl_hub_tend(h, 0);
    }
}

static void speak(pl_hub *h, int fd, const pl_control_at *at, const uint8_t *data, size_t n)
{
    char token[24];
    for (size_t i = 0; i < n;) {
        const uint8_t *next = memchr(data + i, '%', n - i);
        size_t until = next ? (size_t)(next - data) : n;
        give(h, fd, (const char *)data + i, until - i);
        if (next)
            give(h, fd, token,
                 (size_t)snprintf(token, sizeof token, "%llx", (unsigned long long)at->token));
        i = until + 1;
    }
}

/* Greets a hub with a key, as rank 0 does. */
static void greet(pl_hub *h, int fd, const pl_key *key, pl_seal *s)
{
    static const char hello[] = "hello 0 00000000000000000000000000000000 4000000 h";
    char text[256], line[64];
    give(h, fd, hello, sizeof hello - 1);
    give(h, fd, "\n", 1);
    pl_hub_tend(h, 5);
    ssize_t k = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    if (k < 40) abort(); /* the hub answers every peer that greets */
    text[40] = 0;        /* "welcome " and 32 digits */
    pl_seal_begin(s, key, false, hello, text);
    snprintf(line, sizeof line, "here");
    give(h, fd, line, pl_seal_close(s, line, sizeof line));
    pl_seal_sent(s);
}

/* Every line with its hash. */
static void speak_sealed(pl_hub *h, int fd, pl_seal *s, const uint8_t *data, size_t n)
{
    char line[600];
    for (size_t i = 0; i < n;) {
        const uint8_t *next = memchr(data + i, '\n', n - i);
        size_t until = next ? (size_t)(next - data) : n;
        size_t most = sizeof line - PL_SEAL_BYTES - 2, m = until - i < most ? until - i : most - 1;
        memcpy(line, data + i, m);
        line[m] = 0;
        give(h, fd, line, pl_seal_close(s, line, sizeof line));
        pl_seal_sent(s);
        i = until + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pl_hub *h;
    pl_control_at at;
    static const char greeting[] = "hello 0 % 4000000 h\n";
    int code;
    if (n == 0 || pl_hub_new(2, false, &h) != PL_OK) return 0;
    static const pl_key key = {{7}};
    pl_seal seal = {.on = false};
    bool keyed = data[0] & 2 && !pl_keyed_missing(), sealed = keyed && data[0] & 1 && data[0] & 4;
    if (keyed) pl_hub_set_key(h, &key);
    pl_hub_where(h, &at);
    int fd = connect_to(&at);
    if (fd >= 0) {
        pl_hub_tend(h, 5);
        if (data[0] & 1 && keyed) {
            greet(h, fd, &key, &seal);
        } else if (data[0] & 1) {
            speak(h, fd, &at, (const uint8_t *)greeting, sizeof greeting - 1);
            pl_hub_tend(h, 5);
            give(h, fd, "here\n", 5);
        }
        if (sealed)
            speak_sealed(h, fd, &seal, data + 1, n - 1);
        else
            speak(h, fd, &at, data + 1, n - 1);
        for (int i = 0; i < 4; i++) pl_hub_tend(h, 0);
        close(fd);
        for (int i = 0; i < 2; i++) pl_hub_tend(h, 1);
        const char *verdict = pl_hub_verdict(h, &code);
        bool greeted = data[0] & 1 || (!keyed && memchr(data, '%', n));
        if (keyed && !sealed && pl_hub_left(h)) abort(); /* a `bye` without a hash */
        if (!greeted &&
            (verdict[0] || code || pl_hub_left(h) || pl_hub_pid(h, 0) || pl_hub_pid(h, 1)))
            abort();
        if (code < 0 || code > 255 || strlen(verdict) >= 2048 || pl_hub_left(h) > 2) abort();
    }
    pl_hub_free(h);
    return 0;
}
