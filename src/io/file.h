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

/* Opens a regular file. Anything else (folder, pipe, device) is refused with `bad`, without waiting
 * for it. */
pl_status pl_file_open(const char *path, pl_status bad, pl_file *out) PL_MUST_USE;
/* data is borrowed until pl_file_close. */
void pl_file_open_memory(const void *data, size_t len, const char *name, pl_status bad,
                         pl_file *out);
void pl_file_close(pl_file *f);
/* Reads exactly `bytes` bytes at offset; fewer (the file was truncated) is an error. */
pl_status pl_file_read(const pl_file *f, uint64_t offset, size_t bytes, void *dst) PL_MUST_USE;

/* ---- a checksum inside the file -----------------------------------------------------------
 * Model files carry the XXH64 of all their bytes, as 16 hexadecimal digits at a fixed place: the
 * first entry of the metadata, in the form that only this program writes. For the sum, the digits
 * themselves count as '0'. Another program that loads the file, changes it and saves it with the
 * same metadata writes them at another place: that sum is not compared (file_sum.c). */
enum { PL_SUM_DIGITS = 16 };
#define PL_SUM_KEY   "plimsoll.xxh64"
#define PL_SUM_ZEROS "0000000000000000"

/* Sets the XXH64 of the file with its own digits as '0'; *has_sum: the file carries a checksum,
 * *stored. block: memory of cap bytes for reading. */
pl_status pl_file_sum(const pl_file *f, void *block, size_t cap, uint64_t *hash, bool *has_sum,
                      uint64_t *stored) PL_MUST_USE;
/* Reads the whole file if it carries a checksum, and compares: PL_ERR_FILE when it is damaged. A
 * file that this process has verified is not read again while its inode, size and times stay.
 * Bytes in memory are not verified: fuzzers change them. *has_sum may be NULL. */
pl_status pl_file_verify(const pl_file *f, bool *has_sum) PL_MUST_USE;
/* Refuses a file of at least 64 GiB that is nearly all holes: its checksum would take minutes to
 * hours of reading zeros, and this program writes no holes. A file whose holes a copy or a
 * compressing file system made keeps more than 1/1024 of its bytes on the disk. */
pl_status pl_file_refuse_holes(int fd, const char *name) PL_MUST_USE;
/* Whether this process has verified the file, and it has not changed; notes that it has. */
bool pl_file_is_verified(const pl_file *f);
void pl_file_set_verified(const pl_file *f);
/* The message of every damaged file. */
pl_status pl_file_damaged(const char *name, const char *kind, uint64_t found,
                          uint64_t was) PL_MUST_USE;

/* ---- writing ---------------------------------------------------------------------------- */
typedef struct pl_file_writer pl_file_writer;

/* Starts a temporary file in the folder of path. Nothing appears under path before commit. */
pl_status pl_file_writer_new(const char *path, pl_file_writer **out) PL_MUST_USE;
pl_status pl_file_writer_write(pl_file_writer *w, const void *data, size_t bytes) PL_MUST_USE;
/* Return the bytes written so far, and their XXH64; after commit it is that of pl_file_sum. */
uint64_t pl_file_writer_bytes(const pl_file_writer *w);
uint64_t pl_file_writer_hash(const pl_file_writer *w);
/* The bytes at offset are PL_SUM_ZEROS: commit writes the digits of the hash over them. */
void pl_file_writer_sum_at(pl_file_writer *w, uint64_t offset);
/* fsyncs, renames over path, fsyncs the folder. Refused after a failed write. */
pl_status pl_file_writer_commit(pl_file_writer *w) PL_MUST_USE;
/* Copies a file, through a buffer of cap bytes. */
pl_status pl_file_copy(const char *from, const char *to, void *buffer, size_t cap) PL_MUST_USE;
/* Frees the writer. Without a commit the temporary file is removed. NULL is fine. */
void pl_file_writer_free(pl_file_writer *w);

#endif
