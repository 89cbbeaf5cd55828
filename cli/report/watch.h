/* watch.h - `plimsoll watch RUN`: the report of a run over HTTP, for a browser on this machine.
 *
 * The server listens on 127.0.0.1 only. Every address begins with a random token, without which
 * the answer is 403, so that other users of the machine and web pages in the same browser see
 * nothing. It answers GET of
 *
 *     /TOKEN/                the page
 *     /TOKEN/run.json?seen=N the data of the page; only its state when the log has N bytes
 *     /TOKEN/samples/FILE    a picture that the log names
 *
 * It reads the run folder and writes nothing into it. Connections, their size and their age are
 * bounded. libmicrohttpd speaks HTTP; it is opened at run time, and without it `watch` says so.
 */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include <signal.h>
#include <stdbool.h>

typedef struct watch watch;

/* Returns why `watch` does not work here, with the package to install; NULL: it works. */
const char *watch_missing(void);
/* Serves the run folder on a port (0: a free one) until *stop, and prints the address on stdout.
 * Returns the exit code. */
int watch_run(const char *dir, int port, const volatile sig_atomic_t *stop);

#endif
