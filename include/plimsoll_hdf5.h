/* plimsoll_hdf5.h - arrays in HDF5 files, row by row: for recipes that read and write their
 * authors' files.
 *
 * libhdf5 is opened when the first file is. Reads may come from any thread. Problems are
 * PL_ERR_DATA (the library is missing: PL_ERR_UNSUPPORTED) and name the file.
 */
#ifndef PLIMSOLL_HDF5_H
#define PLIMSOLL_HDF5_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_hdf5 pl_hdf5;
/* Why HDF5 cannot be read; NULL when it can. */
PL_API const char *pl_hdf5_missing(void);
/* field: the array, with its folders: "Product/Signal". */
PL_API pl_status pl_hdf5_open(const char *path, const char *field, pl_hdf5 **out) PL_MUST_USE;
PL_API void pl_hdf5_close(pl_hdf5 *h);
/* Shape of the array; its dtype is the nearest of ours. */
PL_API pl_type pl_hdf5_type(const pl_hdf5 *h);
/* Row `row`, everything of the array behind its first index, as numbers of the given dtype. */
PL_API pl_status pl_hdf5_read(const pl_hdf5 *h, int64_t row, pl_dtype dtype, void *to) PL_MUST_USE;

/* An array to write: its numbers (of dtype f32, f64, i32, i64 or u8), or what makes one row of them
 * after the other. */
typedef struct pl_hdf5_array {
    const char *field;
    pl_type type;
    const void *data;
    pl_status (*row)(void *ctx, int64_t row, void *to); /* NULL: data has them all */
    void *ctx;
} pl_hdf5_array;
/* A file of n arrays, in the place of any that was there. */
PL_API pl_status pl_hdf5_write(const char *path, const pl_hdf5_array *array, int n) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
