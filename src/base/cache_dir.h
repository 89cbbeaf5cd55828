/* cache_dir.h - the folder for files that can be rebuilt, kept between runs of the program. */
#ifndef PL_BASE_CACHE_DIR_H
#define PL_BASE_CACHE_DIR_H

#include "base/err.h"

/* Path of a file in the cache folder: $PLIMSOLL_CACHE, else $XDG_CACHE_HOME/plimsoll, else
 * ~/.cache/plimsoll. False when there is no such folder to name (PLIMSOLL_CACHE is empty, or there
 * is no home) or the path is too long; nothing is to be kept then. Makes nothing. */
bool pl_cache_path(const char *file, char *out, size_t cap);
/* Makes the folder that such a path lies in. */
pl_status pl_cache_make(const char *path) PL_MUST_USE;

#endif
