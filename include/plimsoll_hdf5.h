/* plimsoll_hdf5.h - reads and writes arrays in HDF5 files, row by row, for recipes whose authors
 * use HDF5.
 *
 * libhdf5 is loaded when the first file is opened. Reads may come from any thread. Problems are
 * PL_ERR_DATA (the library is missing: PL_ERR_UNSUPPORTED) and name the file.
 */
#ifndef PLIMSOLL_HDF5_H
#define PLIMSOLL_HDF5_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_hdf5 pl_hdf5;
/* Returns why HDF5 cannot be read; NULL when it can. */
PL_API const char *pl_hdf5_missing(void);
/* Opens an array for reading. field: path of the array inside the file, e.g. "Product/Signal". */
PL_API pl_status pl_hdf5_open(const char *path, const char *field, pl_hdf5 **out) PL_MUST_USE;
PL_API void pl_hdf5_close(pl_hdf5 *h);
/* Returns the shape of the array; the dtype is the nearest one that Plimsoll has. */
PL_API pl_type pl_hdf5_type(const pl_hdf5 *h);
/* Reads row `row` (index `row` of the first dimension), converted to dtype. */
PL_API pl_status pl_hdf5_read(const pl_hdf5 *h, int64_t row, pl_dtype dtype, void *to) PL_MUST_USE;

/* Returns the memory of the sandbox processes (data.sandbox) that read `arrays` open arrays, for
 * plans; row_bytes: bytes of a row. Returns 0 when this process reads the arrays. At most 16 of
 * these processes run. */
PL_API uint64_t pl_hdf5_process_bytes(int arrays, uint64_t row_bytes);

/* An array to write, of dtype f32, f64, i32, i64 or u8: its data, or a function that computes one
 * row after the other. */
typedef struct pl_hdf5_array {
    const char *field;
    pl_type type;
    const void *data;
    pl_status (*row)(void *ctx, int64_t row, void *to); /* NULL: data has all rows */
    void *ctx;
} pl_hdf5_array;
/* Writes a file with n arrays; replaces an existing file. */
PL_API pl_status pl_hdf5_write(const char *path, const pl_hdf5_array *array, int n) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
