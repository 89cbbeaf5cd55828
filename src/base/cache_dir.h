/* cache_dir.h - the folder for files that can be rebuilt, kept between runs of the program. */
#ifndef PL_BASE_CACHE_DIR_H
#define PL_BASE_CACHE_DIR_H

#include "base/err.h"

/* Writes the path of a file in the cache folder: $PLIMSOLL_CACHE, else $XDG_CACHE_HOME/plimsoll,
 * else ~/.cache/plimsoll. Returns false if the cache is off (PLIMSOLL_CACHE is empty), no home
 * folder is known, or the path is too long; the caller then caches nothing. Creates nothing. */
bool pl_cache_path(const char *file, char *out, size_t cap);
/* Creates the folder of such a path. */
pl_status pl_cache_make(const char *path) PL_MUST_USE;

#endif
