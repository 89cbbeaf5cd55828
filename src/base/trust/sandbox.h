/* sandbox.h - a process that may only compute, for decoders of files from others.
 *
 * The process is a copy of this one (fork) that has closed all files and can make no system call
 * but those for memory and waiting: a decoder that is taken over by a hostile file can neither read
 * nor write files, nor start programs, nor reach the network or another process. It has its own
 * limit of memory and of CPU time. Requests and results lie in memory that both processes share; a
 * request costs two switches between processes and copies nothing.
 *
 *     caller                           sandbox
 *     writes the request  --turn-->    serve(state, request)
 *     reads the reply     <--turn--    writes the reply
 *
 * The output of the sandbox is as untrusted as the file: the caller checks every number of a reply.
 * A sandbox that crashes or exceeds a limit fails one request; the next request starts a new
 * sandbox.
 */
#ifndef PL_BASE_TRUST_SANDBOX_H
#define PL_BASE_TRUST_SANDBOX_H

#include "base/err.h"

typedef struct pl_sandbox pl_sandbox;

/* The setting of a run (data.sandbox). auto: as on where the system can, else as off. */
typedef enum pl_sandbox_mode { PL_SANDBOX_OFF, PL_SANDBOX_AUTO, PL_SANDBOX_ON } pl_sandbox_mode;

/* One mode for the process: files are opened far from where a configuration is read. */
void pl_sandbox_set_mode(pl_sandbox_mode mode);
/* Whether decoders run in sandboxes. With PL_SANDBOX_ON it fails where the system cannot. */
pl_status pl_sandbox_wanted(bool *wanted) PL_MUST_USE;
/* Returns why auto does not use sandboxes; NULL: they are used, or not wanted. */
const char *pl_sandbox_warning(void);

/* Physical memory that one sandbox takes, without the shared memory: its stack, its tables of
 * pages, the heap of a decoder, pages that the caller has written since. */
enum { PL_SANDBOX_BYTES = 3 << 20 };

typedef struct pl_sandbox_opts {
    /* Runs in the sandbox: reads the request and writes the reply into the same bytes. */
    pl_status (*serve)(void *state, void *request);
    void *state;
    size_t request_bytes;
    uint64_t memory_bytes; /* that a request may take besides the shared memory */
    int cpu_ms;            /* of one request; 0: 60000 */
    int files;             /* number of files that the sandbox may open for reading: 0 or 1 */
} pl_sandbox_opts;

/* Starts the process. Shared memory must be mapped (pl_sandbox_map) before. */
pl_status pl_sandbox_new(const pl_sandbox_opts *o, pl_sandbox **out) PL_MUST_USE;
void pl_sandbox_free(pl_sandbox *s);
/* Returns the request, request_bytes of shared memory. */
void *pl_sandbox_request(pl_sandbox *s);
/* Serves the request. Returns what serve returned, with its message; PL_ERR_DATA when the sandbox
 * crashed or exceeded a limit. One thread at a time. */
pl_status pl_sandbox_run(pl_sandbox *s) PL_MUST_USE;
/* Ends the process; the next request starts another. */
void pl_sandbox_rest(pl_sandbox *s);
/* Returns the number of the process; -1: it is not running. */
int pl_sandbox_pid(const pl_sandbox *s);

/* For fuzzers, in builds with sanitizers, where no sandbox works: answers in place of the process;
 * false: the process has crashed. NULL: no answer. */
typedef bool (*pl_sandbox_answer)(void *request, size_t bytes, int32_t *status, char *message,
                                  size_t message_bytes);
void pl_sandbox_set_answer(pl_sandbox_answer answer);

/* Maps zero pages that sandboxes started later share. pl_sys_unmap ends it. */
pl_status pl_sandbox_map(size_t bytes, void **out) PL_MUST_USE;
/* Replaces mapped pages, from a page's beginning, with zero pages that sandboxes started later
 * share. Returns how many bytes of them it replaced, whole pages; 0: the system refused. */
size_t pl_sandbox_share(void *at, size_t bytes);

#endif
