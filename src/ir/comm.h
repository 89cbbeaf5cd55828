/* comm.h - how ranks reach each other: the one primitive of all collectives.
 *
 * `size` ranks run the same list of calls. A collective kernel fills `send` and `recv`, one parcel
 * per rank, and calls exchange: the bytes of send[r] arrive in rank r's recv[own rank]. The kernel
 * does all arithmetic itself, in the order of ranks, so sums do not depend on the order in which
 * messages arrive. The transport (MPI; memory shared by threads in tests) only moves bytes.
 *
 * Valid C++ too: device code includes it.
 */
#ifndef PL_IR_COMM_H
#define PL_IR_COMM_H

#include "plimsoll.h"

#include <string.h>

typedef struct pl_parcel {
    void *at;
    size_t bytes;
} pl_parcel;

/* Why a rank sends bytes: sent_bytes counts them by kind. */
enum pl_traffic {
    PL_TRAFFIC_ALL_REDUCE,
    PL_TRAFFIC_REDUCE_SCATTER,
    PL_TRAFFIC_ALL_GATHER,
    PL_TRAFFIC_BROADCAST,
    PL_TRAFFIC_CONTROL, /* agreements between steps, checks at the start, checkpoints */
    PL_N_TRAFFIC
};

/* A thread that runs exchanges, in the order of start(), while the caller computes. */
typedef struct pl_async {
    /* Starts fn(arg); blocks first when too many are under way. */
    void (*start)(struct pl_async *a, pl_status (*fn)(const void *arg), const void *arg);
    /* Waits until all but the last `left` have ended. Returns the first failure, with its message.
     */
    pl_status (*wait)(struct pl_async *a, uint32_t left);
} pl_async;

typedef struct pl_comm pl_comm;
struct pl_comm {
    int rank, size;
    pl_parcel *send, *recv; /* size entries each; the rank's own entry is ignored */
    /* All ranks call it. Returns when all parcels have arrived and the sent ones may be changed. */
    pl_status (*exchange)(pl_comm *c);
    /* purpose of the next exchange, for messages; valid until it ends */
    const char *op, *name;
    uint64_t calls;                    /* exchanges begun */
    uint64_t sent_bytes[PL_N_TRAFFIC]; /* to other ranks */
    void *self;                        /* data of the transport */
    pl_async *async;                   /* NULL: the caller runs exchanges itself */
    /* room for incoming bytes of the exchange that `async` runs; NULL: none */
    void *room;
    size_t room_bytes;
    uint64_t said[10]; /* text: the exchange begun last; another thread reads it */
};

/* Copies op and name into `said` word by word. A thread that reads at the same time sees at worst a
 * mixture of two texts, never freed memory of a graph. */
static inline void pl_comm_note(pl_comm *c)
{
    char text[sizeof c->said] = "";
    uint64_t word[sizeof c->said / sizeof *c->said];
    const char *part[3] = {c->op ? c->op : "", c->name && c->name[0] ? " " : "",
                           c->name ? c->name : ""};
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        for (const char *p = part[i]; *p && n + 1 < sizeof text; p++) text[n++] = *p;
    memcpy(word, text, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        __atomic_store_n(&c->said[i], word[i], __ATOMIC_RELAXED);
    __atomic_store_n(&c->calls, c->calls + 1, __ATOMIC_RELAXED);
}

/* Reads the text back into out (sizeof c->said bytes) and returns the number of exchanges begun. */
static inline uint64_t pl_comm_noted(const pl_comm *c, char *out)
{
    uint64_t word[sizeof c->said / sizeof *c->said];
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        word[i] = __atomic_load_n(&c->said[i], __ATOMIC_RELAXED);
    memcpy(out, word, sizeof word);
    out[sizeof word - 1] = 0;
    return __atomic_load_n(&c->calls, __ATOMIC_RELAXED);
}

/* Runs one exchange and counts its bytes. */
static inline pl_status pl_comm_exchange(pl_comm *c, enum pl_traffic kind)
{
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) c->sent_bytes[kind] += c->send[r].bytes;
    pl_comm_note(c);
    pl_status rc = c->exchange(c);
    if (rc == PL_ERR_PEER)
        return pl_fail(
            rc,
            "rank %d cannot exchange %s %s with the others: a rank died, or the ranks run different exchanges",
            c->rank, c->op ? c->op : "", c->name ? c->name : "");
    return rc;
}

#endif
