/* npy.h - NumPy arrays on disk: one array per file, read by rows, written whole or in pieces.
 *
 *     "\x93NUMPY", major, minor, header length (2 bytes in version 1, 4 in 2 and 3), then a Python
 *     dict literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  padded with
 *     spaces and a newline, then the data.
 *
 * Read: versions 1 to 3; <f4 <f8 <f2 |u1 <i4 <i8 |b1. Refused, with advice: big-endian, Fortran
 * order (unless it makes no difference), objects (they are pickles), records, other types. The file
 * must hold exactly the bytes of its shape. Problems are PL_ERR_DATA and name the file.
 */
#ifndef PL_IO_NPY_H
#define PL_IO_NPY_H

#include "base/err.h"

typedef struct pl_npy pl_npy;

pl_status pl_npy_open(const char *path, pl_npy **out) PL_MUST_USE;
/* An array of an .npz file, by its name in numpy.savez. Compressed archives are refused. */
pl_status pl_npy_open_member(const char *path, const char *array, pl_npy **out) PL_MUST_USE;
/* data is borrowed until close; `name` replaces the path in messages. */
pl_status pl_npy_open_memory(const void *data, size_t len, const char *name,
                             pl_npy **out) PL_MUST_USE;
void pl_npy_close(pl_npy *a);
pl_type pl_npy_type(const pl_npy *a);
/* Rows are slices of the first dimension; a scalar is one row. */
int64_t pl_npy_rows(const pl_npy *a);
size_t pl_npy_row_bytes(const pl_npy *a);
/* Reads rows [first, first+n) into dst, n * pl_npy_row_bytes. Bool bytes other than 0 and 1 are
 * refused. */
pl_status pl_npy_read(const pl_npy *a, int64_t first, int64_t n, void *dst) PL_MUST_USE;

/* Begin with the type, write its bytes in order in any pieces, finish. The file appears complete or
 * not at all. The format has no bf16: PL_ERR_UNSUPPORTED, use safetensors. */
typedef struct pl_npy_writer pl_npy_writer;
pl_status pl_npy_writer_new(const char *path, const pl_type *type, pl_npy_writer **out) PL_MUST_USE;
pl_status pl_npy_writer_write(pl_npy_writer *w, const void *data, size_t bytes) PL_MUST_USE;
pl_status pl_npy_writer_finish(pl_npy_writer *w) PL_MUST_USE;
void pl_npy_writer_free(pl_npy_writer *w); /* without finish nothing is left */
/* Writes a whole array. */
pl_status pl_npy_write(const char *path, const pl_type *type, const void *data) PL_MUST_USE;

#endif
