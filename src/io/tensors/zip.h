/* zip.h - a zip archive whose members are stored without compression.
 *
 *     local header, member's bytes | ... | list of members | (zip64 records) | end record
 *
 * The reader looks from the end: end record, list, and then the local header of a member it needs.
 * zip64 is read and written where sizes, offsets or counts need it.
 */
#ifndef PL_IO_ZIP_H
#define PL_IO_ZIP_H

#include "base/arena.h"
#include "io/file.h"

/* ---- reading ---------------------------------------------------------------------------- */
typedef struct pl_zip_member {
    const char *name;
    uint64_t header, bytes; /* offset of the local header; size */
    bool stored;            /* neither compressed nor encrypted */
    uint32_t crc;           /* of its bytes; 0: PyTorch was configured to leave it out */
} pl_zip_member;
typedef struct pl_zip {
    pl_zip_member *member; /* by name */
    int n;
} pl_zip;

/* Reads the list of members; PL_ERR_FILE when it is damaged. Memory is taken from mem. */
pl_status pl_zip_open(const pl_file *f, pl_arena *mem, pl_zip *out) PL_MUST_USE;
const pl_zip_member *pl_zip_find(const pl_zip *z, const char *name); /* NULL if none */
/* Sets the offset of the member's bytes; PL_ERR_FILE when they are not stored inside the file. */
pl_status pl_zip_begin(const pl_file *f, const pl_zip_member *m, uint64_t *begin) PL_MUST_USE;
/* Reads every stored member and compares its CRC-32, where it has one; PL_ERR_FILE names the first
 * that is damaged. */
pl_status pl_zip_verify(const pl_file *f, const pl_zip *z) PL_MUST_USE;

/* ---- writing ---------------------------------------------------------------------------- */
typedef struct pl_zip_writer pl_zip_writer;
/* Members are written one after the other: begin, bytes in any pieces, the next. The bytes of each
 * begin at a multiple of 64. out is borrowed; the caller commits it after finish. */
pl_status pl_zip_writer_new(pl_file_writer *out, pl_zip_writer **w) PL_MUST_USE;
pl_status pl_zip_writer_begin(pl_zip_writer *w, const char *name, uint64_t bytes) PL_MUST_USE;
pl_status pl_zip_writer_write(pl_zip_writer *w, const void *data, size_t bytes) PL_MUST_USE;
pl_status pl_zip_writer_finish(pl_zip_writer *w) PL_MUST_USE;
void pl_zip_writer_free(pl_zip_writer *w);

#endif
