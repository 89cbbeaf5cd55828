/* cache_dir.c - see cache_dir.h. */
#include "base/cache_dir.h"

#include "base/hash.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char refused[4096]; /* the folder that is not used; "": none */

static bool is_own(const struct stat *s)
{
    return s->st_uid == geteuid() || s->st_uid == 0;
}

/* Whether only this user (and root) can write into the folder. A folder that does not exist will be
 * made so. A link counts if it is this user's: in a shared folder another user can make a link to
 * any folder. */
static bool is_private(const char *folder)
{
    struct stat s;
    if (lstat(folder, &s) != 0) return true;
    if (S_ISLNK(s.st_mode) && (!is_own(&s) || stat(folder, &s) != 0)) return false;
    return S_ISDIR(s.st_mode) && is_own(&s) && !(s.st_mode & 022);
}

static bool folder_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n == 0 || n >= cap) return false;
    memcpy(out, path, n);
    out[n] = 0;
    return true;
}

bool pl_cache_path(const char *file, char *out, size_t cap)
{
    const char *own = getenv("PLIMSOLL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = pl_sys_home();
    char folder[4096];
    int n = -1;
    if (own)
        n = own[0] ? snprintf(out, cap, "%s/%s", own, file) : -1;
    else if (xdg && xdg[0])
        n = snprintf(out, cap, "%s/plimsoll/%s", xdg, file);
    else if (home)
        n = snprintf(out, cap, "%s/.cache/plimsoll/%s", home, file);
    if (n < 0 || (size_t)n >= cap) return false;
    if (!folder_of(out, folder, sizeof folder) || is_private(folder)) return true;
    memcpy(refused, folder, sizeof refused);
    return false;
}

bool pl_cache_trusts(const char *path)
{
    char folder[4096];
    struct stat s, f;
    if (lstat(path, &s) != 0) return true;
    if (!S_ISREG(s.st_mode) || !is_own(&s)) return false;
    bool closed = folder_of(path, folder, sizeof folder) && stat(folder, &f) == 0 &&
                  !(f.st_mode & 077); /* no other user can open the file, with any mode */
    return closed || !(s.st_mode & 022);
}

const char *pl_cache_refused(void)
{
    return refused[0] ? refused : NULL;
}

pl_status pl_cache_make(const char *path)
{
    char folder[4096];
    struct stat s;
    PL_FAIL_IF(strlen(path) >= sizeof folder, PL_ERR_IO, "the path %s is too long", path);
    if (!folder_of(path, folder, sizeof folder)) return PL_OK;
    bool new = stat(folder, &s) != 0;
    PL_TRY(pl_sys_make_dirs(folder));
    PL_FAIL_IF(new &&chmod(folder, 0700) != 0, PL_ERR_IO, "cannot make %s private", folder);
    return PL_OK;
}

enum { SEAL = 10 }; /* bytes of " #01234567" */

static void seal_of(const char *line, size_t n, char out[SEAL + 1])
{
    snprintf(out, SEAL + 1, " #%08x", pl_crc(PL_CRC32C, line, n));
}

bool pl_cache_seal(char *line, size_t cap)
{
    size_t n = strlen(line);
    if (n + SEAL + 1 > cap) return false;
    seal_of(line, n, line + n);
    return true;
}

size_t pl_cache_sealed(const char *line, size_t n)
{
    char seal[SEAL + 1];
    if (n <= SEAL) return 0;
    seal_of(line, n - SEAL, seal);
    return memcmp(line + n - SEAL, seal, SEAL) == 0 ? n - SEAL : 0;
}
