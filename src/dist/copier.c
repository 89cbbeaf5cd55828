/* copier.c - see copier.h. The process ends after mpirun, also when the launcher was killed: the
 * ranks then still say why they stop. */
#include "dist/copier.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writes to an output. Gives up when the output has no reader after the launcher has ended. Returns
 * false if the output is to be left: its reader has ended, or it fails. */
static bool copy_bytes(int output, const char *bytes, size_t n, pid_t launcher)
{
    enum { LOOK_MS = 100, PATIENCE_MS = 2000 };
    int alone = 0; /* ms without a launcher */
    for (size_t at = 0; at < n;) {
        struct pollfd ready = {.fd = output, .events = POLLOUT};
        if (poll(&ready, 1, LOOK_MS) == 0) {
            alone += getppid() == launcher ? 0 : LOOK_MS;
            if (alone >= PATIENCE_MS) return false;
            continue;
        }
        size_t part = n - at < PIPE_BUF ? n - at : PIPE_BUF; /* such a write does not wait */
        ssize_t wrote = write(output, bytes + at, part);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (wrote < 0 && errno == EPIPE && getppid() == launcher) kill(launcher, SIGPIPE);
        if (wrote <= 0) return false;
        at += (size_t)wrote;
    }
    return true;
}

static _Noreturn void copy_outputs(const int from[2], pid_t launcher)
{
    char bytes[4096];
    bool heard[2] = {true, true};
    sigset_t all;
    sigfillset(&all); /* SIGPIPE, too: the write then fails */
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "plimsoll-copy");
    setpgid(0, 0);
    for (int fd = 0; fd < 1024; fd++) /* ranks see by closed connections that the launcher ended */
        if (fd != STDOUT_FILENO && fd != STDERR_FILENO && fd != from[0] && fd != from[1]) close(fd);
    struct pollfd at[2] = {{.fd = from[0], .events = POLLIN}, {.fd = from[1], .events = POLLIN}};
    while (at[0].fd >= 0 || at[1].fd >= 0) {
        poll(at, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (at[i].fd < 0 || !at[i].revents) continue;
            ssize_t n = read(at[i].fd, bytes, sizeof bytes);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0)
                at[i].fd = -1;
            else if (heard[i])
                heard[i] =
                    copy_bytes(i ? STDERR_FILENO : STDOUT_FILENO, bytes, (size_t)n, launcher);
        }
    }
    _exit(0);
}

void pl_copier_begin(pl_copier *c)
{
    int out[2], err[2];
    *c = (pl_copier){.pid = -1, .out = -1, .err = -1};
    if (pipe2(out, O_CLOEXEC) != 0) return;
    if (pipe2(err, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return;
    }
    pid_t launcher = getpid();
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0) {
        close(out[1]);
        close(err[1]);
        copy_outputs((const int[]){out[0], err[0]}, launcher);
    }
    close(out[0]);
    close(err[0]);
    if (c->pid > 0) {
        c->out = out[1];
        c->err = err[1];
    } else {
        close(out[1]);
        close(err[1]);
    }
}

void pl_copier_use(const pl_copier *c)
{
    if (c->out >= 0) dup2(c->out, STDOUT_FILENO);
    if (c->err >= 0) dup2(c->err, STDERR_FILENO);
}

void pl_copier_started(pl_copier *c)
{
    if (c->out >= 0) close(c->out);
    if (c->err >= 0) close(c->err);
    c->out = c->err = -1;
}

void pl_copier_end(pl_copier *c)
{
    enum { LOOK_MS = 10, PATIENCE_MS = 2000 };
    pl_copier_started(c);
    for (int t = 0; c->pid > 0 && t < PATIENCE_MS; t += LOOK_MS) {
        if (waitpid(c->pid, NULL, WNOHANG) == c->pid)
            c->pid = -1;
        else
            usleep(LOOK_MS * 1000);
    }
    if (c->pid > 0) {
        kill(c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
    }
    c->pid = -1;
}
