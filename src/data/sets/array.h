/* array.h - one input's samples in files: rows of one array, or of several consecutive arrays.
 *
 * A file is .npy (one array), .npz, .safetensors or .h5/.hdf5 (arrays by name; in HDF5 with
 * folders, "Product/Signal"), .csv (columns of numbers by name), or .bin (token_windows.h). Row i
 * of the column is row i of the files in the order given. Each row has the shape of a sample, apart
 * from dimensions of 1; f64, f16, bf16, bytes and bools are converted to f32, and whole numbers to
 * other widths if they fit; numbers of HDF5 files and tables are converted from any type. Reads may
 * come from any thread. Problems are PL_ERR_DATA and name the file.
 *
 * In a table, input "x" is the column x; several numbers are the columns x0, x1, ... (also x_0,
 * x.0, from 0 or 1 on), the columns that `field` lists, "age+height", or else all columns that no
 * other input names.
 */
#ifndef PL_DATA_ARRAY_H
#define PL_DATA_ARRAY_H

#include "base/err.h"

typedef struct pl_array pl_array;

/* sample: type of a row; input: its name, for messages; field: its name in the files; others: the
 * fields of all inputs that read the same files, ends with NULL, for tables; NULL: none. */
/* HDF5 arrays are read by separate processes (sandbox.h); at most so many run at a time. */
enum { PL_HDF5_AWAKE = 16 };

/* For fuzzers: no process tries a file before this one opens it. */
void pl_hdf5_trust(void);

pl_status pl_array_open(const char *const *paths, int n, const char *input, const char *field,
                        const char *const *others, const pl_type *sample,
                        pl_array **out) PL_MUST_USE;
void pl_array_close(pl_array *a);
int64_t pl_array_rows(const pl_array *a);
pl_status pl_array_read(const pl_array *a, int64_t row, void *to) PL_MUST_USE;
/* Returns the file that holds a row. */
const char *pl_array_path(const pl_array *a, int64_t row);

/* Whether a name ends like a file with named arrays. */
bool pl_array_is_bundle(const char *name);

#endif
