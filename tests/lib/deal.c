/* deal.c - see deal.h.
 *
 * A pair of sockets connects the parent and a worker: an index goes down, a result comes up. The
 * parent also polls for workers that have ended, because a program that a dead worker started may
 * hold its end of the pair open. */
#include "tests/lib/deal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 16, LOOK_MS = 200 };

typedef struct {
    pid_t pid; /* 0: none */
    int line;  /* socket to it */
    int shown; /* file with what its test prints */
    int test;  /* -1: idle */
} worker;

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "pl_test: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void work(pl_test_case **tests, int line)
{
    int i;
    while (read(line, &i, sizeof i) == (ssize_t)sizeof i) {
        pl_test_result r = pl_test_run(tests[i]);
        fflush(NULL);
        if (write(line, &r, sizeof r) != (ssize_t)sizeof r) break;
    }
    exit(0); /* where sanitizers report leaks, and whether they reported one */
}

static void hire(worker *all, int workers, worker *w, pl_test_case **tests)
{
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    int shown = memfd_create("pl_test", MFD_CLOEXEC);
    must(shown >= 0, "memfd_create");
    must(fcntl(shown, F_SETFL, O_APPEND) == 0, "fcntl"); /* children of a test write there too */
    fflush(NULL);
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        for (int i = 0; i < MAX_WORKERS; i++)
            if (all[i].pid) close(all[i].line), close(all[i].shown);
        close(pair[0]);
        must(dup2(shown, 1) == 1 && dup2(shown, 2) == 2, "dup2");
        close(shown);
        pl_test_worker((int)(w - all), workers);
        work(tests, pair[1]);
    }
    close(pair[1]);
    *w = (worker){pid, pair[0], shown, -1};
}

/* Copies the output of the worker's test to our own output; the file is empty afterwards. */
static void show(worker *w)
{
    char text[4096];
    ssize_t k;
    for (off_t at = 0; (k = pread(w->shown, text, sizeof text, at)) > 0; at += k)
        fwrite(text, 1, (size_t)k, stdout);
    must(ftruncate(w->shown, 0) == 0, "ftruncate");
}

static void hand(worker *w, int test)
{
    w->test = test;
    /* look() notices a worker that has already ended. */
    ssize_t k = send(w->line, &test, sizeof test, MSG_NOSIGNAL);
    (void)k;
}

static void bury(worker *w, int status, pl_test_case **tests)
{
    if (w->test >= 0) {
        show(w);
        if (WIFSIGNALED(status))
            printf("%s: ended by signal %d (%s)\n", tests[w->test]->name, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
        else
            printf("%s: ended the test process with code %d\n", tests[w->test]->name,
                   WEXITSTATUS(status));
        pl_test_tell(tests[w->test], (pl_test_result){.end = PL_TEST_FAILED});
    }
    close(w->line);
    close(w->shown);
    w->pid = 0;
    w->test = -1;
}

/* Checks a busy worker once: its result, or its end. */
static void look(worker *w, bool readable, pl_test_case **tests)
{
    pl_test_result r;
    if (readable && recv(w->line, &r, sizeof r, MSG_WAITALL) == (ssize_t)sizeof r) {
        show(w);
        pl_test_tell(tests[w->test], r);
        w->test = -1;
        return;
    }
    int status = 0;
    if (waitpid(w->pid, &status, readable ? 0 : WNOHANG) == w->pid) bury(w, status, tests);
}

static bool wait_for_any(worker *all, int n, pl_test_case **tests)
{
    struct pollfd fds[MAX_WORKERS];
    int busy = 0;
    for (int i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = all[i].test >= 0 ? all[i].line : -1, .events = POLLIN};
        busy += all[i].test >= 0;
    }
    if (!busy) return false;
    must(poll(fds, (nfds_t)n, LOOK_MS) >= 0 || errno == EINTR, "poll");
    for (int i = 0; i < n; i++)
        if (all[i].test >= 0) look(&all[i], fds[i].revents != 0, tests);
    return true;
}

static void run_all(pl_test_case **tests, int n, bool alone, worker *all, int workers)
{
    int next = 0;
    for (;;) {
        for (int i = 0; i < workers; i++) {
            while (next < n && tests[next]->alone != alone) next++;
            if (next == n || all[i].test >= 0) continue;
            if (!all[i].pid) hire(all, workers, &all[i], tests);
            hand(&all[i], next++);
        }
        if (!wait_for_any(all, workers, tests)) return;
    }
}

/* Output of a process at its end belongs to no test, and counts all the same. */
static void finish(worker *w)
{
    static const pl_test_case end = {.name = "the end of a test process"};
    int status = 0;
    must(waitpid(w->pid, &status, 0) == w->pid, "waitpid");
    show(w);
    if (status != 0) pl_test_tell(&end, (pl_test_result){.end = PL_TEST_FAILED});
    close(w->line);
    close(w->shown);
}

void pl_test_deal(pl_test_case **tests, int n, int workers)
{
    worker all[MAX_WORKERS] = {0};
    if (workers > MAX_WORKERS) workers = MAX_WORKERS;
    for (int i = 0; i < MAX_WORKERS; i++) all[i].test = -1;
    run_all(tests, n, false, all, workers);
    run_all(tests, n, true, all, 1);
    for (int i = 0; i < workers; i++) {
        if (!all[i].pid) continue;
        shutdown(all[i].line, SHUT_RDWR);
        finish(&all[i]);
    }
}
