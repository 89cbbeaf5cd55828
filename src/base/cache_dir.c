/* cache_dir.c - see cache_dir.h. */
#include "base/cache_dir.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pl_cache_path(const char *file, char *out, size_t cap)
{
    const char *own = getenv("PLIMSOLL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int n = -1;
    if (own)
        n = own[0] ? snprintf(out, cap, "%s/%s", own, file) : -1;
    else if (xdg && xdg[0])
        n = snprintf(out, cap, "%s/plimsoll/%s", xdg, file);
    else if (home && home[0])
        n = snprintf(out, cap, "%s/.cache/plimsoll/%s", home, file);
    return n >= 0 && (size_t)n < cap;
}

pl_status pl_cache_make(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    PL_FAIL_IF(n >= sizeof folder, PL_ERR_IO, "the path %s is too long", path);
    if (n == 0) return PL_OK;
    memcpy(folder, path, n);
    folder[n] = 0;
    return pl_sys_make_dirs(folder);
}
