/* control_lab.c - see control_lab.h. */
#include "tests/dist/control_lab.h"

#include "base/sys.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t after(int milliseconds)
{
    return pl_sys_now_ns() + (uint64_t)milliseconds * 1000000u;
}

static struct sockaddr_in local(int n, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr = {htonl(INADDR_LOOPBACK + (uint32_t)(n > 0 ? n - 1 : 0))},
        .sin_port = htons(port)};
}

int ctl_connect(const pl_control_at *at, int n)
{
    struct sockaddr_in to = local(n, at->port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int ctl_listen(int n, uint16_t *port)
{
    struct sockaddr_in at = local(n, *port);
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    *port = ntohs(at.sin_port);
    return fd;
}

void ctl_say(int fd, const char *text)
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) return; /* the other side may have closed */
}

const char *ctl_hear(int fd, const char *want, int milliseconds)
{
    static char text[8192];
    size_t n = 0;
    uint64_t until = after(milliseconds);
    text[0] = 0;
    while (pl_sys_now_ns() < until && n + 1 < sizeof text && !strstr(text, want)) {
        struct pollfd at = {.fd = fd, .events = POLLIN};
        poll(&at, 1, 10);
        ssize_t k = at.revents ? recv(fd, text + n, sizeof text - 1 - n, MSG_DONTWAIT) : -1;
        if (k == 0) break;
        if (k > 0) n += (size_t)k;
        text[n] = 0;
    }
    return strstr(text, want) ? text : "";
}

int ctl_rank(pl_hub *h, int rank, const char *host)
{
    pl_control_at at;
    char text[128];
    pl_hub_where(h, &at);
    int fd = ctl_connect(&at, 0);
    if (fd < 0) return -1;
    snprintf(text, sizeof text, "hello %d %llx %d %s\n", rank, (unsigned long long)at.token,
             1000000 + rank, host);
    ctl_say(fd, text);
    for (int i = 0; i < 200 && !ctl_hear(fd, "welcome", 1)[0]; i++) pl_hub_tend(h, 5);
    ctl_say(fd, "here\n");
    pl_hub_tend(h, 20);
    return fd;
}

bool ctl_tend(pl_hub *h, int milliseconds)
{
    uint64_t until = after(milliseconds);
    bool over = false;
    while (!over && pl_sys_now_ns() < until) over = pl_hub_tend(h, 10);
    return over;
}

void ctl_fork(int (*fn)(void *ctx), void *ctx, ctl_child *out)
{
    static int number;
    snprintf(out->err, sizeof out->err, "%s/child-%d", pl_test_dir(), number++);
    fflush(NULL);
    out->pid = fork();
    if (out->pid != 0) return;
    int fd = open(out->err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 2);
    _exit(fn(ctx));
}

int ctl_wait(const ctl_child *c, pl_hub *h, int milliseconds)
{
    uint64_t until = after(milliseconds);
    int status = 0;
    while (waitpid(c->pid, &status, WNOHANG) == 0) {
        if (pl_sys_now_ns() > until) {
            kill(c->pid, SIGKILL);
            waitpid(c->pid, &status, 0);
            return 124;
        }
        if (h)
            pl_hub_tend(h, 5);
        else
            usleep(5000);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *ctl_err(const ctl_child *c)
{
    static char text[4096];
    FILE *f = fopen(c->err, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
    return text;
}
