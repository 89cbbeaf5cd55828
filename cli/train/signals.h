/* signals.h - the signals that `plimsoll train` reacts to.
 *
 * signals.def is the table of signals. Handlers only set flags. The flags are read between steps,
 * between the batches of an evaluation and during planning. A second stop signal exits at once; a
 * checkpoint on disk is complete at any time.
 */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

typedef struct train_signals {
    /* number of the signal that asked to stop, on this rank or on another one; 0: none */
    volatile sig_atomic_t stop;
    volatile int stop_agreed;           /* the same, after all ranks have agreed */
    volatile sig_atomic_t save, memory; /* SIGUSR1: save; SIGUSR2: print the memory summary */
} train_signals;
extern train_signals signals;

/* Installs the handlers, except for signals that are ignored (nohup). rank: this process is one of
 * several ranks. `plimsoll train` has them from its first instruction on. */
void signals_listen(bool rank);

#endif
