/* copier.h - passes on the output of mpirun, through a separate process. mpirun crashes when the
 * program that reads its output has ended; the copier informs the launcher instead (SIGPIPE). */
#ifndef PL_DIST_COPIER_H
#define PL_DIST_COPIER_H

#include <sys/types.h>

typedef struct pl_copier {
    pid_t pid;
    int out, err; /* ends of pipes for mpirun; -1: mpirun has the outputs of this process */
} pl_copier;

/* Starts the process. Without pipes or a process, mpirun writes to the outputs of this process. */
void pl_copier_begin(pl_copier *c);
/* After fork, in the process that becomes mpirun: its outputs are the pipes. */
void pl_copier_use(const pl_copier *c);
/* After fork, in the launcher: closes its ends of the pipes. */
void pl_copier_started(pl_copier *c);
/* Waits until the last bytes of mpirun are copied; not longer than 2 s for an output without a
 * reader. */
void pl_copier_end(pl_copier *c);

#endif
