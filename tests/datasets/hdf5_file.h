/* hdf5_file.h - HDF5 files for tests, written through the library that is loaded by name. */
#ifndef PL_TESTS_HDF5_FILE_H
#define PL_TESTS_HDF5_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* An array of a file: "folder/name" or "name"; type as the library calls it: "H5T_NATIVE_INT16_g".
 */
typedef struct hdf5_field {
    const char *name, *type;
    int rank;
    uint64_t dim[3];
    const void *data;
    const char *elsewhere; /* file that holds the numbers (external storage); NULL: this one */
} hdf5_field;

/* Writes a file of n arrays; all that have a folder have the same one. False when it cannot. */
bool hdf5_file_write(const char *path, const hdf5_field *field, int n);

#endif
