/* file.h - reads a file at offsets, and writes one so that it appears complete or not at all.
 *
 * Readers use pread, never a mapping: a file that another process truncates then gives an error
 * instead of a signal. The same reader serves bytes in memory, which tests and fuzzers use.
 */
#ifndef PL_IO_FILE_H
#define PL_IO_FILE_H

#include "base/err.h"

/* ---- reading ---------------------------------------------------------------------------- */
typedef struct pl_file {
    const char *name;   /* borrowed; used in messages */
    const uint8_t *mem; /* when not a file */
    uint64_t size;
    int fd;        /* -1 when there is none */
    pl_status bad; /* error code for invalid contents */
} pl_file;
#define PL_FILE_NONE                                                                               \
 {                                                                                                 \
  .fd = -1                                                                                         \
 }

/* Opens a regular file; anything else (folder, pipe, device) is refused without waiting for it. */
pl_status pl_file_open(const char *path, pl_status bad, pl_file *out) PL_MUST_USE;
/* data is borrowed until pl_file_close. */
void pl_file_open_memory(const void *data, size_t len, const char *name, pl_status bad,
                         pl_file *out);
void pl_file_close(pl_file *f);
/* Reads exactly `bytes` bytes at offset; fewer (the file was truncated) is an error. */
pl_status pl_file_read(const pl_file *f, uint64_t offset, size_t bytes, void *dst) PL_MUST_USE;

/* ---- writing ---------------------------------------------------------------------------- */
typedef struct pl_file_writer pl_file_writer;

/* Starts a temporary file in the folder of path. Nothing appears under path before commit. */
pl_status pl_file_writer_new(const char *path, pl_file_writer **out) PL_MUST_USE;
pl_status pl_file_writer_write(pl_file_writer *w, const void *data, size_t bytes) PL_MUST_USE;
/* Return the bytes written so far, and their XXH64. */
uint64_t pl_file_writer_bytes(const pl_file_writer *w);
uint64_t pl_file_writer_hash(const pl_file_writer *w);
/* fsyncs, renames over path, fsyncs the folder. Refused after a failed write. */
pl_status pl_file_writer_commit(pl_file_writer *w) PL_MUST_USE;
/* Copies a file, through a buffer of cap bytes. */
pl_status pl_file_copy(const char *from, const char *to, void *buffer, size_t cap) PL_MUST_USE;
/* Frees the writer. Without a commit the temporary file is removed. NULL is fine. */
void pl_file_writer_free(pl_file_writer *w);

#endif
