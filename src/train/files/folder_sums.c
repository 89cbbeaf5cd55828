/* folder_sums.c - SUMS.xxh64, the checksums of a folder's files, in the form of `xxhsum -c`.
 *
 * Outputs of a run and of an export are of many kinds, and many of them (pictures, tables, JSON)
 * have no place for a checksum inside the file. One file lists them all: 16 hexadecimal digits, two
 * blanks and the path below the folder in each line. It is written last, and where there is a
 * manifest, that lists it.
 */
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include "base/sys.h"
#include "io/file.h"
#include "train/files/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_SUMS = 256 << 20, DEEPEST = 16, DIGITS = 16 };

static pl_status sum_of(const char *path, uint64_t *hash)
{
    XXH64_state_t state;
    struct stat st;
    int fd = pl_sys_open(path, O_RDONLY | O_NOFOLLOW, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_FILE, "%s: %s", path, strerror(errno));
    pl_status rc = pl_file_refuse_holes(fd, path);
    if (rc != PL_OK) {
        close(fd);
        return rc;
    }
    char *block = pl_sys_alloc(PL_STAGE_BYTES);
    ssize_t n = block && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? 1 : -1;
    XXH64_reset(&state, 0);
    while (n > 0) {
        n = read(fd, block, PL_STAGE_BYTES);
        if (n > 0) XXH64_update(&state, block, (size_t)n);
        if (n < 0 && errno == EINTR) n = 1;
    }
    *hash = XXH64_digest(&state);
    close(fd);
    pl_sys_free(block);
    PL_FAIL_IF(n < 0, PL_ERR_FILE, "%s cannot be read, or is not a plain file", path);
    return PL_OK;
}

pl_status pl__sums_add(pl_str *s, const char *dir, const char *name)
{
    char path[PL_PATH_BYTES];
    uint64_t hash;
    if (strpbrk(name, "\n\\")) return PL_OK; /* not a name that the program gives */
    PL_TRY(pl__path(path, dir, name));
    PL_TRY(sum_of(path, &hash));
    pl_str_addf(s, "%016llx  %s\n", (unsigned long long)hash, name);
    return PL_OK;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_listed(const char *const *patterns, const char *name)
{
    for (int i = 0; patterns[i]; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

/* A walk through a folder. */
typedef struct walk {
    pl_str *sums;
    const char *dir;
    const char *const *patterns; /* of names in dir itself */
    char path[PL_PATH_BYTES];
} walk;

static pl_status add_below(walk *w, const char *below, int depth);

/* Adds dir/name, a file or all that is in a folder. */
static pl_status add_entry(walk *w, const char *name, int depth)
{
    struct stat st;
    PL_TRY(pl__path(w->path, w->dir, name));
    if (lstat(w->path, &st) != 0) return PL_OK; /* the file was removed */
    if (S_ISREG(st.st_mode)) return pl__sums_add(w->sums, w->dir, name);
    return S_ISDIR(st.st_mode) && depth < DEEPEST ? add_below(w, name, depth + 1) : PL_OK;
}

/* below: a folder of dir; "": dir itself. */
static pl_status add_below(walk *w, const char *below, int depth)
{
    struct dirent **entry;
    PL_TRY(pl__path(w->path, w->dir, below));
    int n = scandir(w->path, &entry, NULL, by_name);
    PL_FAIL_IF(n < 0, PL_ERR_IO, "cannot list %s: %s", w->path, strerror(errno));
    pl_status rc = PL_OK;
    for (int i = 0; i < n; i++) {
        const char *d = entry[i]->d_name;
        bool counts = below[0] ? d[0] != '.' : is_listed(w->patterns, d);
        counts = counts && fnmatch("*.tmp-*", d, 0) != 0;
        pl_str name = PL_STR_INIT;
        pl_str_addf(&name, "%s%s%s", below, below[0] ? "/" : "", d);
        if (rc == PL_OK && name.failed) rc = PL_ERR_MEMORY;
        if (rc == PL_OK && counts) rc = add_entry(w, name.text, depth);
        pl_str_release(&name);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

pl_status pl__sums_add_all(pl_str *s, const char *dir, const char *const *patterns)
{
    walk *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    w->sums = s;
    w->dir = dir;
    w->patterns = patterns;
    pl_status rc = add_below(w, "", 0);
    pl_sys_free(w);
    return rc;
}

pl_status pl__sums_write(const char *dir, const pl_str *s)
{
    char path[PL_PATH_BYTES];
    if (s->failed) return PL_ERR_MEMORY;
    PL_TRY(pl__path(path, dir, PL_SUMS));
    return pl_sys_write_file(path, s->text ? s->text : "", s->len);
}

/* One line. */
static pl_status verify_line(const char *dir, const char *line)
{
    char path[PL_PATH_BYTES], *end;
    uint64_t hash, was = strtoull(line, &end, 16);
    const char *name = line + DIGITS + 2;
    PL_FAIL_IF(end != line + DIGITS || strncmp(end, "  ", 2) != 0 || !name[0], PL_ERR_FILE,
               "%s/" PL_SUMS " is damaged: a line is not \"xxh64  name\"", dir);
    bool inside = name[0] != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
                  !strstr(name, "/../");
    PL_FAIL_IF(!inside, PL_ERR_FILE, "%s/" PL_SUMS " is damaged: %.200s lies outside the folder",
               dir, name);
    PL_TRY(pl__path(path, dir, name));
    PL_TRY(sum_of(path, &hash));
    PL_FAIL_IF(hash != was, PL_ERR_FILE,
               "%s: its bytes changed since it was written (checksum %016llx, was %016llx)", path,
               (unsigned long long)hash, (unsigned long long)was);
    return PL_OK;
}

static pl_status read_sums(const char *dir, char **text)
{
    char path[PL_PATH_BYTES];
    size_t len;
    PL_TRY(pl__path(path, dir, PL_SUMS));
    return pl_sys_read_file(path, MAX_SUMS, text, &len);
}

pl_status pl_sums_verify(const char *dir, void (*bad)(void *ctx, const char *why), void *ctx,
                         int *files)
{
    char *text, *rest;
    pl_status rc = PL_OK;
    *files = 0;
    PL_TRY(read_sums(dir, &text));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        pl_status one = verify_line(dir, line);
        if (one != PL_OK && bad) bad(ctx, pl_error_text());
        if (one != PL_OK) rc = one;
        *files += 1;
    }
    pl_sys_free(text);
    return rc;
}
