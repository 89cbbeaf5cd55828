/* mpi.c - the MPI plug-in: the only primitive of a communicator, by messages from rank to rank.
 *
 * The caller decides which parcel goes where; this file has no arithmetic and no choices, so
 * results cannot depend on MPI's algorithms. Waiting yields the processor after a moment: ranks
 * that share a core must not spin against each other.
 */
#include "dist/mpi_plugin.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct engine {
    MPI_Comm world;
    MPI_Request *request; /* 2 * size */
    char why[MPI_MAX_ERROR_STRING + 64];
} engine;

static const char *explain(engine *e, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS) n = 0;
    snprintf(e->why, sizeof e->why, "%s: %.*s", what, n, text);
    return e->why;
}

static int wait_all(engine *e, int n)
{
    enum { SPIN = 2000, YIELD = 20000 };
    int done = 0, rc = MPI_SUCCESS;
    for (long turn = 0; !done && rc == MPI_SUCCESS; turn++) {
        rc = MPI_Testall(n, e->request, &done, MPI_STATUSES_IGNORE);
        if (done || turn < SPIN) continue;
        if (turn < YIELD)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return rc;
}

static pl_status exchange(pl_comm *c)
{
    engine *e = c->self;
    int n = 0, rc = MPI_SUCCESS;
    /* the nearest first, all ranks alike */
    for (int i = 1; i < c->size && rc == MPI_SUCCESS; i++) {
        int r = (c->rank + c->size - i) % c->size;
        if (c->recv[r].bytes)
            rc = MPI_Irecv(c->recv[r].at, (int)c->recv[r].bytes, MPI_BYTE, r, 0, e->world,
                           &e->request[n++]);
    }
    for (int i = 1; i < c->size && rc == MPI_SUCCESS; i++) {
        int r = (c->rank + i) % c->size;
        if (c->send[r].bytes)
            rc = MPI_Isend(c->send[r].at, (int)c->send[r].bytes, MPI_BYTE, r, 0, e->world,
                           &e->request[n++]);
    }
    if (rc == MPI_SUCCESS) rc = wait_all(e, n);
    return rc == MPI_SUCCESS ? PL_OK : PL_ERR_PEER;
}

static const char *open_world(pl_comm *c)
{
    static engine one; /* MPI can be entered once in a process */
    int has = 0, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has);
    if (rc != MPI_SUCCESS) return explain(&one, "MPI_Init_thread", rc);
    if (has < MPI_THREAD_SERIALIZED) return "this MPI lets only the first thread call it";
    rc = MPI_Comm_dup(MPI_COMM_WORLD, &one.world);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(one.world, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(one.world, &c->rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(one.world, &c->size);
    if (rc != MPI_SUCCESS) return explain(&one, "MPI_Comm_dup", rc);
    one.request = calloc(2 * (size_t)c->size, sizeof *one.request);
    if (!one.request) return "no memory";
    c->self = &one;
    c->exchange = exchange;
    return NULL;
}

/* A rank that went on after an error would wait for others that still wait here. */
static const char *local(pl_comm *c, int *rank, int *size)
{
    engine *e = c->self;
    MPI_Comm node;
    int rc = MPI_Comm_split_type(e->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &node);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(node, rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(node, size);
    if (rc != MPI_SUCCESS) return explain(e, "MPI_Comm_split_type", rc);
    MPI_Comm_free(&node);
    return NULL;
}

static void close_world(pl_comm *c)
{
    engine *e = c->self;
    MPI_Comm_free(&e->world);
    MPI_Finalize();
    free(e->request);
    e->request = NULL;
}

PL_API const pl_mpi_plugin_info pl_mpi_plugin = {PL_MPI_ABI, PL_VERSION_STRING, open_world, local,
                                                 close_world};
