/* mpi_plugin.h - the interface to MPI; the program itself does not need MPI.
 *
 * libplimsoll_mpi.so, built where mpicc is, exports `pl_mpi_plugin`. The number changes with this
 * file and ir/comm.h.
 */
#ifndef PL_DIST_MPI_PLUGIN_H
#define PL_DIST_MPI_PLUGIN_H

#include "ir/comm.h"

enum { PL_MPI_ABI = 3 };
typedef struct pl_mpi_plugin_info {
    int abi;
    const char *version; /* PL_VERSION_STRING at its build */
    /* Joins the world of the launcher and fills the communicator; NULL, or why it cannot. Call it
     * once per process. */
    const char *(*open)(pl_comm *c);
    /* Sets the number of this rank among the ranks of its machine, and their number; NULL, or why
     * it cannot. Every rank calls it. */
    const char *(*local)(pl_comm *c, int *rank, int *size);
    void (*close)(pl_comm *c); /* every rank calls it */
} pl_mpi_plugin_info;

#endif
