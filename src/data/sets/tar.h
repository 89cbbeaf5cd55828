/* tar.h - the members of a tar file, without unpacking: ustar, pax and GNU long names.
 *
 * A member is a name and a range of bytes in the file; names are never used as paths. Headers are
 * checked (sum, sizes inside the file); a wrong header is PL_ERR_DATA and the message has its
 * offset.
 */
#ifndef PL_DATA_TAR_H
#define PL_DATA_TAR_H

#include "base/err.h"

enum { PL_TAR_NAME = 4096 };

typedef struct pl_tar {
    const char *path;
    int fd;                /* -1: none, or opened for each read */
    const uint8_t *memory; /* instead of fd */
    uint64_t size, at;     /* at: of the next header */
} pl_tar;

typedef struct pl_tar_member {
    char name[PL_TAR_NAME];
    uint64_t offset, bytes;
    bool file; /* a plain file; else a folder, link, device... */
} pl_tar_member;

pl_status pl_tar_open(const char *path, pl_tar *t) PL_MUST_USE;
void pl_tar_open_memory(const void *data, size_t n, pl_tar *t);
void pl_tar_close(pl_tar *t);
/* Closes the file; reads open it again, and fail when it has another size by then. */
void pl_tar_rest(pl_tar *t);
/* *more false: the end of the archive. */
pl_status pl_tar_next(pl_tar *t, pl_tar_member *m, bool *more) PL_MUST_USE;
pl_status pl_tar_read(const pl_tar *t, uint64_t offset, void *to, size_t bytes) PL_MUST_USE;

#endif
