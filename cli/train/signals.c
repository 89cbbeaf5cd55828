/* signals.c - see signals.h. */
#include "signals.h"

#include <stdlib.h>
#include <time.h>

train_signals signals;

static void ask_stop(int number)
{
    if (signals.stop) _Exit(128 + number); /* the second signal */
    signals.stop = number;
}

/* A signal to all processes of a job reaches a rank twice: directly, and through the process that
 * started the ranks. So a second signal within a second is taken for the first. */
static void ask_rank_to_stop(int number)
{
    static volatile sig_atomic_t first; /* seconds */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (signals.stop && now.tv_sec - first > 1) _Exit(128 + number);
    if (!signals.stop) first = (sig_atomic_t)now.tv_sec;
    signals.stop = number;
}

static void ask_save(int number)
{
    signals.save = number;
}

static void ask_memory(int number)
{
    signals.memory = number;
}

static void listen(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

void signals_listen(bool rank)
{
    listen(SIGINT, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGTERM, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGHUP, rank ? ask_rank_to_stop : ask_stop);
    listen(SIGUSR1, ask_save);
    listen(SIGUSR2, ask_memory);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit returns an error */
}
