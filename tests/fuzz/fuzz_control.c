/* fuzz_control.c - any bytes on the control channel's port: strangers change nothing, ranks end
 * their world in order at worst. The first byte says who speaks: even, a stranger; odd, rank 0. '%'
 * stands for the hub's token. */
#include "dist/control.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pl_hub *h;
    pl_control_at at;
    static const char greeting[] = "hello 0 % 4000000 h\n";
    int code;
    if (n == 0 || pl_hub_new(2, false, &h) != PL_OK) return 0;
    pl_hub_where(h, &at);
    int fd = connect_to(&at);
    if (fd >= 0) {
        pl_hub_tend(h, 5);
        if (data[0] & 1) {
            speak(h, fd, &at, (const uint8_t *)greeting, sizeof greeting - 1);
            pl_hub_tend(h, 5);
            give(h, fd, "here\n", 5);
        }
        speak(h, fd, &at, data + 1, n - 1);
        for (int i = 0; i < 4; i++) pl_hub_tend(h, 0);
        close(fd);
        for (int i = 0; i < 2; i++) pl_hub_tend(h, 1);
        const char *verdict = pl_hub_verdict(h, &code);
        bool greeted = data[0] & 1 || memchr(data, '%', n);
        if (!greeted &&
            (verdict[0] || code || pl_hub_left(h) || pl_hub_pid(h, 0) || pl_hub_pid(h, 1)))
            abort();
        if (code < 0 || code > 255 || strlen(verdict) >= 2048 || pl_hub_left(h) > 2) abort();
    }
    pl_hub_free(h);
    return 0;
}
