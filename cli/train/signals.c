/* signals.c - see signals.h. */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

train_signals signals;
static bool is_rank;

/* A write to a pipe or a terminal without a reader would wait for ever, and the step would never
 * end: such an output is replaced by /dev/null, and the write begins again there. All calls here
 * are allowed in a handler. */
static void leave_stuck(int output)
{
    enum { PATIENCE_MS = 2000 };
    struct pollfd at = {.fd = output, .events = POLLOUT};
    int error = errno;
    if (poll(&at, 1, PATIENCE_MS) == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0) dup2(null, output);
        if (null >= 0) close(null);
    }
    errno = error;
}

/* A signal to all processes of a job reaches a rank twice: directly, and through the process that
 * started the ranks. So a second signal within a second is taken for the first. */
static void on_stop(int number)
{
    static volatile sig_atomic_t first; /* seconds */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (signals.stop && signals.stop != SIGPIPE && (!is_rank || now.tv_sec - first > 1))
        _Exit(128 + number);
    if (!signals.stop) first = (sig_atomic_t)now.tv_sec;
    signals.stop = number;
    leave_stuck(STDOUT_FILENO);
    leave_stuck(STDERR_FILENO);
}

/* Every further write to the pipe sends the signal again. */
static void on_lost_reader(int number)
{
    if (!signals.stop) signals.stop = number;
}

static void on_save(int number)
{
    signals.save = number;
}

static void on_memory(int number)
{
    signals.memory = number;
}

static void on_nothing(int number)
{
    (void)number;
}

static void listen(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

/* `ulimit -t` sets the limit that warns and the limit that kills to the same time, at which the
 * kernel kills. The warning is moved ahead: a twentieth of the time, 1 to 60 s, is left to save. */
static void leave_time_to_save(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_CPU, &r) != 0 || r.rlim_max == RLIM_INFINITY || r.rlim_cur < r.rlim_max ||
        r.rlim_max < 2)
        return;
    rlim_t left = r.rlim_max / 20;
    r.rlim_cur = r.rlim_max - (left < 1 ? 1 : left > 60 ? 60 : left);
    setrlimit(RLIMIT_CPU, &r);
}

void signals_listen(bool rank)
{
    is_rank = rank;
    leave_time_to_save();
#define SIGNAL(number, handler, what) listen(number, on_##handler);
#include "signals.def"
#undef SIGNAL
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
# define EARLY 0
#elif defined(__has_feature)
# if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#  define EARLY 0
# endif
#endif
#ifndef EARLY
# define EARLY 1
#endif

#if EARLY
/* The handlers are installed before the constructors of libraries run, because a signal to a
 * process without handlers kills it. Sanitizers are not ready at that time. Until the process knows
 * whether it is a rank, it takes signals as a rank does. */
static void listen_early(int argc, char **argv, char **environment)
{
    (void)environment;
    if (argc > 1 && strcmp(argv[1], "train") == 0) signals_listen(true);
}

typedef void (*early_fn)(int, char **, char **);
__attribute__((section(".preinit_array"), used)) static const early_fn early = listen_early;
#endif
