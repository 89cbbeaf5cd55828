/* stamp.c - size, time and hash of files, to find out later whether they changed.
 *
 * A file is hashed by its bytes, a folder by the names, sizes and times of everything below it. A
 * file with the same size and time counts as unchanged; with another time its bytes decide.
 */
#include "base/sys.h"
#include "data/sets/items_int.h"
#include "io/file.h"
#include "train/data/cache.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include <xxhash.h>

enum { DEEPEST = 16 };

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static pl_status hash_bytes(const char *path, uint64_t *hash)
{
    enum { PIECE = 1 << 16 };
    pl_file f = PL_FILE_NONE;
    XXH64_state_t h;
    char *piece = pl_sys_alloc(PIECE);
    pl_status rc = piece ? pl_file_open(path, PL_ERR_DATA, &f) : PL_ERR_MEMORY;
    XXH64_reset(&h, 0);
    for (uint64_t at = 0; rc == PL_OK && at < f.size; at += PIECE) {
        size_t n = f.size - at < PIECE ? (size_t)(f.size - at) : PIECE;
        rc = pl_file_read(&f, at, n, piece);
        XXH64_update(&h, piece, n);
    }
    pl_file_close(&f);
    pl_sys_free(piece);
    *hash = XXH64_digest(&h);
    return rc;
}

/* Index files that Plimsoll writes beside tars do not belong to the data. */
static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    return n > 8 && strcmp(name + n - 8, ".tar.idx") == 0;
}

/* Hashes a tree in the order of names. The depth is bounded, so circular links end. */
static pl_status walk(pl_arena *mem, const char *path, const char *below, int deep,
                      XXH64_state_t *h)
{
    struct stat st;
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        int64_t facts[2] = {(int64_t)st.st_size, time_of(&st)};
        XXH64_update(h, below, strlen(below) + 1);
        XXH64_update(h, facts, sizeof facts);
        return PL_OK;
    }
    const char **names;
    int n;
    PL_FAIL_IF(deep == DEEPEST, PL_ERR_DATA, "%s: more than 16 nested folders", path);
    PL_TRY(pl__list_names(mem, path, &names, &n));
    for (int i = 0; i < n; i++) {
        if (is_ours(names[i])) continue;
        char *full = pl_arena_printf(mem, "%s/%s", path, names[i]);
        char *rest = pl_arena_printf(mem, "%s/%s", below, names[i]);
        if (!full || !rest) return PL_ERR_MEMORY;
        PL_TRY(walk(mem, full, rest, deep + 1, h));
    }
    return PL_OK;
}

static pl_status stamp_folder(const char *path, pl_stamp *out)
{
    pl_arena mem = {0};
    XXH64_state_t h;
    XXH64_reset(&h, 0);
    pl_status rc = walk(&mem, path, "", 0, &h);
    pl_arena_release(&mem);
    *out = (pl_stamp){.hash = XXH64_digest(&h)};
    return rc;
}

pl_status pl__stamp_path(const char *path, bool hash, pl_stamp *out)
{
    struct stat st;
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return stamp_folder(path, out);
    *out = (pl_stamp){(uint64_t)st.st_size, time_of(&st), 0};
    return hash ? hash_bytes(path, &out->hash) : PL_OK;
}

pl_status pl__stamp_same(const char *path, const pl_stamp *was, bool *same)
{
    pl_stamp now;
    PL_TRY(pl__stamp_path(path, false, &now));
    *same = now.bytes == was->bytes && now.time_ns == was->time_ns &&
            (now.time_ns || now.hash == was->hash);
    if (*same || !now.time_ns || now.bytes != was->bytes) return PL_OK;
    PL_TRY(pl__stamp_path(path, true, &now));
    *same = now.hash == was->hash;
    return PL_OK;
}
