/* cache_dir.h - the folder for files that can be rebuilt, kept between runs of the program. */
#ifndef PL_BASE_CACHE_DIR_H
#define PL_BASE_CACHE_DIR_H

#include "base/err.h"

PL_SHARED_BEGIN

/* Writes the path of a file in the cache folder: $PLIMSOLL_CACHE, else $XDG_CACHE_HOME/plimsoll,
 * else ~/.cache/plimsoll. Returns false if the cache is off (PLIMSOLL_CACHE is empty), no home
 * folder is known, the path is too long, or others can write into the folder: they could plant
 * kernels and times. The caller then caches nothing. Creates nothing. */
bool pl_cache_path(const char *file, char *out, size_t cap);
/* Whether the file at such a path is a plain file that only this user (or root) can write, or does
 * not exist. A file that does not pass is neither read nor changed. */
bool pl_cache_trusts(const char *path);
/* Returns the folder that was refused because others can write into it; NULL: none was. */
const char *pl_cache_refused(void);
/* Creates the folder of such a path, for this user alone. */
pl_status pl_cache_make(const char *path) PL_MUST_USE;

/* Lines of tables in the cache end with " #" and the CRC of the rest: a damaged line counts as
 * missing. Appends the end to a line without a newline; false: it does not fit. */
bool pl_cache_seal(char *line, size_t cap);
/* Returns the length of a line of n bytes without its end; 0: the end is wrong or missing. */
size_t pl_cache_sealed(const char *line, size_t n);

PL_SHARED_END

#endif
