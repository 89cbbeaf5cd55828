/* control_lab.h - ends of the control channel that say what a test wants: sockets, and processes
 * with a line. */
#ifndef PL_TEST_CONTROL_LAB_H
#define PL_TEST_CONTROL_LAB_H

#include "dist/control.h"

#include <stdbool.h>
#include <sys/types.h>

/* A connection to the hub, or to 127.0.0.N (n > 0) at its port; -1. */
int ctl_connect(const pl_control_at *at, int n);
/* A socket that listens at 127.0.0.N; port 0: any, and it is put there. */
int ctl_listen(int n, uint16_t *port);
void ctl_say(int fd, const char *text);
/* What comes within so many ms, up to and with the text wanted; static, "" after the time. */
const char *ctl_hear(int fd, const char *want, int milliseconds);
/* A rank by hand: hello, the hub's welcome, here. -1. */
int ctl_rank(pl_hub *h, int rank, const char *host);
/* Tends until the world ends, at most so long; whether it has ended. */
bool ctl_tend(pl_hub *h, int milliseconds);

/* A process that runs fn(ctx) and exits with what it returns; its stderr goes to the test's folder.
 */
typedef struct ctl_child {
    pid_t pid;
    char err[512]; /* the file */
} ctl_child;
void ctl_fork(int (*fn)(void *ctx), void *ctx, ctl_child *out);
/* Its exit code, 128 + signal; 124 and killed after the time. A hub is tended meanwhile. */
int ctl_wait(const ctl_child *c, pl_hub *h, int milliseconds);
const char *ctl_err(const ctl_child *c);

#endif
