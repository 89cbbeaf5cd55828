/* array.h - one input's samples in files: rows of one array, or of several consecutive arrays.
 *
 * A file is .npy (one array), .safetensors or .h5/.hdf5 (arrays by name; in HDF5 with folders,
 * "Product/Signal"). Row i of the column is row i of the files in the order given. Each row has the
 * dtype and shape of a sample; f16 and bf16 are widened to f32, HDF5 numbers of any other type are
 * converted by its library. Reads may come from any thread. Problems are PL_ERR_DATA and name the
 * file.
 */
#ifndef PL_DATA_ARRAY_H
#define PL_DATA_ARRAY_H

#include "base/err.h"

typedef struct pl_array pl_array;

/* sample: type of a row; input: its name, for messages; field: its name in the files. */
pl_status pl_array_open(const char *const *paths, int n, const char *input, const char *field,
                        const pl_type *sample, pl_array **out) PL_MUST_USE;
void pl_array_close(pl_array *a);
int64_t pl_array_rows(const pl_array *a);
pl_status pl_array_read(const pl_array *a, int64_t row, void *to) PL_MUST_USE;
/* Returns the file that holds a row. */
const char *pl_array_path(const pl_array *a, int64_t row);

/* Whether a name ends like a file with named arrays. */
bool pl_array_is_bundle(const char *name);

#endif
