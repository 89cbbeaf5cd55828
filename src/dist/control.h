/* control.h - the control channel: who is alive, who failed, and how all ranks end together.
 *
 * One process is the hub (the process that started mpirun, or else rank 0). Every rank, rank 0 too,
 * has a connection to it and a thread that serves the connection, so a rank that computes, saves or
 * waits in an exchange still answers. Messages are lines of text. With a key, every message after
 * the greeting carries a keyed hash (seal.h), and NUMBER is a random number of each end; without a
 * key, which is allowed on one machine only, NUMBER is the token of the hub.
 *
 *   rank -> hub   hello RANK NUMBER PID HOST     here             once it has been welcomed
 *                 beat WHAT                      limit SECONDS    beats: every quarter of a second
 *                 fail CODE TEXT                 bye CODE
 *   hub -> rank   welcome NUMBER                 beat             stop SIGNAL      end CODE
 *                 ask SIGNAL                     SIGUSR1: save, SIGUSR2: print the memory summary
 *
 * The world ends at the first of these: a rank's `fail`; a connection that closes without `bye`; a
 * rank that is silent for longer than the limit; a message of a rank that does not verify. The hub
 * then sends all ranks the order to end, waits until they have ended, and reports the first cause
 * last. A rank that does not hear the hub within the limit ends by itself. On both sides, time
 * during which the listener was suspended is ignored.
 */
#ifndef PL_DIST_CONTROL_H
#define PL_DIST_CONTROL_H

#include "base/trust/secret.h"

enum { PL_CONTROL_ADDRESSES = 8 };

/* Where a hub can be reached. */
typedef struct pl_control_at {
    uint32_t address[PL_CONTROL_ADDRESSES]; /* IPv4, in the network's order; 0: none */
    uint16_t port;
    uint64_t token; /* distinguishes this hub from other listeners on the port */
    bool keyed;     /* messages are authenticated with the key */
    pl_key key;
} pl_control_at;

/* What a rank does until its first phase; its beats begin with this text. */
#define PL_CONTROL_START "its start"

/* ---- the hub ---- */
typedef struct pl_hub pl_hub;
/* local: all ranks are on this machine, and no other machine can connect. The hub has no key. */
pl_status pl_hub_new(int ranks, bool local, pl_hub **out) PL_MUST_USE;
/* Sets the key, before a rank connects. */
void pl_hub_set_key(pl_hub *h, const pl_key *key);
/* Draws a key where keyed hashes can be computed, and sets it; else the hub stays without. */
pl_status pl_hub_draw_key(pl_hub *h) PL_MUST_USE;
void pl_hub_where(const pl_hub *h, pl_control_at *out);
void pl_hub_set_limit(pl_hub *h, double seconds); /* known from the ranks' lines */
void pl_hub_set_home(pl_hub *h, int rank);        /* the hub is in this rank's process */
/* Serves the ranks for a moment; true when the world has ended. */
bool pl_hub_tend(pl_hub *h, int milliseconds);
void pl_hub_stop(pl_hub *h, int signal_number); /* every rank is to stop at a step's end */
void pl_hub_ask(pl_hub *h, int signal_number);  /* passes SIGUSR1 or SIGUSR2 to every rank */
/* Asks the ranks that have come to report what they do, at once. */
void pl_hub_request_reports(pl_hub *h);
/* Returns whether all of them have reported since, or have left. */
bool pl_hub_has_reports(const pl_hub *h);
/* Returns what ended the world, for users; "" when all ranks said bye. code: the exit code of this
 * process. */
const char *pl_hub_verdict(const pl_hub *h, int *code);
bool pl_hub_met(const pl_hub *h); /* every rank has connected, even if it has ended since */
/* Returns whether a rank has reported anything beyond its start (PL_CONTROL_START). */
bool pl_hub_begun(const pl_hub *h);
/* Ranks that have said bye. */
int pl_hub_left(pl_hub *h);
/* Returns the process number of a rank that has come and whose connection has not closed; else
 * 0. */
int pl_hub_pid(const pl_hub *h, int rank);
/* Ends the world with a failure that this process found. */
void pl_hub_fail(pl_hub *h, int code, const char *text);
void pl_hub_free(pl_hub *h);

/* ---- a rank ---- */
typedef struct pl_line pl_line;
/* Connects and starts the thread. host: this rank's host; hub: name of the hub for messages; own:
 * the hub, if it is in this process; the thread serves it too. doing: called by the thread, writes
 * what the rank is doing. */
pl_status pl_line_open(const pl_control_at *at, int rank, const char *host, const char *hub,
                       pl_hub *own, void (*doing)(void *ctx, char *out, size_t cap), void *ctx,
                       pl_line **out) PL_MUST_USE;
void pl_line_set_limit(pl_line *l, double seconds);
/* The run of so many ranks has ended for this rank, with that exit code. */
void pl_line_close(pl_line *l, int ranks, int code);
/* Reports this rank's failure, and does not return: the process ends with the others. */
void pl_line_fail(pl_line *l, int code, const char *text);

/* fn is called, on the line's thread, before the process ends because of a failure of any rank. */
void pl_line_on_failure(pl_line *l, void (*fn)(void *ctx, int code, const char *text), void *ctx);

/* "address:port:token[:key]" and back, for the environment of processes that are started. */
void pl_control_print(const pl_control_at *at, char *out, size_t cap);
bool pl_control_parse(const char *text, pl_control_at *out);

#endif
