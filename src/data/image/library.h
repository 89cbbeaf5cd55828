/* library.h - libraries that are opened when something first needs them.
 *
 * The image and HDF5 libraries are looked for at run time, so that a run without images carries
 * none of their memory and a machine without them still trains; their headers, where the compiler
 * finds them, give the types. A table of functions is filled once, whatever thread comes first.
 */
#ifndef PL_DATA_LIBRARY_H
#define PL_DATA_LIBRARY_H

#include "base/err.h"

/* Opens the first of the NULL-terminated names that is found and looks up n symbols into
 * table[0..n); false when there is none, or one without a symbol. */
bool pl_library_load(const char *const *names, const char *const *symbols, int n, void **table);

#endif
