/* library.h - libraries that are opened on first use.
 *
 * The image and HDF5 libraries are loaded at run time, so that a run without images does not take
 * their memory and a machine without them still trains; their headers, where the compiler finds
 * them, define the types. A table of functions is filled once, by whichever thread needs it first.
 */
#ifndef PL_DATA_LIBRARY_H
#define PL_DATA_LIBRARY_H

#include "base/err.h"

/* Opens the first of the NULL-terminated names that exists and looks up n symbols into table[0..n);
 * false when no library exists, or a symbol is missing. */
bool pl_library_load(const char *const *names, const char *const *symbols, int n, void **table);

#endif
