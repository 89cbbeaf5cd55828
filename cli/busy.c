/* busy.c - the line on a terminal that shows the current work of the program: "planning batch=46,
 * 12 s".
 *
 * A thread draws the line on stderr four times a second, from the second second on. cli_idle
 * removes the line; call it before printing anything else (cli_error does). Without a terminal
 * there is no line and no thread; a forked child has neither.
 */
#include "ui.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char text[160]; /* "": idle */
    double since;   /* clock, seconds */
    bool drawn;
    pid_t owner; /* process that has the thread; 0: none */
} busy = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void put(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void draw(double seconds)
{
    char line[256];
    int width = cli_width() - 12; /* leaves space for the seconds */
    snprintf(line, sizeof line, "\r\033[K%s%.*s, %.0f s%s", cli_dim(stderr), width > 0 ? width : 0,
             busy.text, seconds, cli_plain(stderr));
    put(line);
    busy.drawn = true;
}

static void *tick(void *unused)
{
    pthread_mutex_lock(&busy.lock);
    for (;;) {
        if (!busy.text[0]) {
            pthread_cond_wait(&busy.changed, &busy.lock);
            continue;
        }
        double seconds = cli_seconds() - busy.since;
        if (seconds >= 1) draw(seconds);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 250 * 1000 * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&busy.changed, &busy.lock, &until);
    }
    return unused;
}

/* Starts the thread with all signals blocked, so that the other threads get them. */
static bool start(void)
{
    pthread_condattr_t monotonic;
    pthread_t thread;
    sigset_t all, before;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&busy.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&thread, NULL, tick, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) pthread_detach(thread);
    if (ok) busy.owner = getpid();
    return ok;
}

void cli_busy(const char *fmt, ...)
{
    if (!cli_terminal(stderr) || (!busy.owner && !start()) || busy.owner != getpid()) return;
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&busy.lock);
    if (!busy.text[0]) busy.since = cli_seconds();
    vsnprintf(busy.text, sizeof busy.text, fmt, ap);
    pthread_cond_signal(&busy.changed);
    pthread_mutex_unlock(&busy.lock);
    va_end(ap);
}

void cli_idle(void)
{
    if (busy.owner != getpid()) return;
    pthread_mutex_lock(&busy.lock);
    busy.text[0] = '\0';
    if (busy.drawn) put("\r\033[K");
    busy.drawn = false;
    pthread_mutex_unlock(&busy.lock);
}
