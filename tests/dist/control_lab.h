/* control_lab.h - test ends of the control channel: sockets that send what a test wants, and
 * processes with a rank's line. */
#ifndef PL_TEST_CONTROL_LAB_H
#define PL_TEST_CONTROL_LAB_H

#include "dist/control.h"

#include <stdbool.h>
#include <sys/types.h>

/* Connects to the hub, or to 127.0.0.N (n > 0) at its port; -1 on failure. */
int ctl_connect(const pl_control_at *at, int n);
/* A socket that listens at 127.0.0.N; port 0: any free port, which is written back. */
int ctl_listen(int n, uint16_t *port);
void ctl_say(int fd, const char *text);
/* Reads for at most this many ms, up to and including the wanted text; static, "" after the
 * time. */
const char *ctl_hear(int fd, const char *want, int milliseconds);
/* A rank by hand: sends hello, reads the hub's welcome, sends here. -1 on failure. */
int ctl_rank(pl_hub *h, int rank, const char *host);
/* Runs the hub until the world ends, at most this long; returns whether it ended. */
bool ctl_tend(pl_hub *h, int milliseconds);

/* A process that runs fn(ctx) and exits with its result; its stderr goes to the test's folder. */
typedef struct ctl_child {
    pid_t pid;
    char err[512]; /* the file */
} ctl_child;
void ctl_fork(int (*fn)(void *ctx), void *ctx, ctl_child *out);
/* Its exit code, or 128 + signal; 124 when it was killed after the time. Runs a hub meanwhile. */
int ctl_wait(const ctl_child *c, pl_hub *h, int milliseconds);
const char *ctl_err(const ctl_child *c);

#endif
