/* codegen_cache.c - see codegen_cache.h. */
#include "cuda/codegen/codegen_cache.h"

#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { MOST_BYTES = 64 << 20 };

typedef struct head {
    char magic[8];
    pl_code_key key;
    uint64_t len, hash;
} head;

static const char magic[8] = "PLKERN1";

pl_code_key pl_code_key_of(const char *text, size_t len, const char *with)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(text, len, XXH3_64bits(with, strlen(with)));
    return (pl_code_key){h.high64, h.low64};
}

static bool path_of(const char *dir, pl_code_key key, char *buf, size_t cap)
{
    if (!dir[0]) return false;
    int n = snprintf(buf, cap, "%s/kernel-%016llx%016llx", dir, (unsigned long long)key.hi,
                     (unsigned long long)key.lo);
    return n > 0 && (size_t)n < cap;
}

void *pl_code_cache_read(const char *dir, pl_code_key key, size_t *len)
{
    char path[1024], *file = NULL;
    size_t n = 0;
    head h;
    if (!path_of(dir, key, path, sizeof path) || access(path, R_OK) != 0) return NULL;
    if (pl_sys_read_file(path, MOST_BYTES, &file, &n) != PL_OK) return NULL;
    if (n < sizeof h) goto none;
    memcpy(&h, file, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || memcmp(&h.key, &key, sizeof key) != 0 ||
        h.len != n - sizeof h || h.len == 0 || XXH3_64bits(file + sizeof h, h.len) != h.hash)
        goto none;
    memmove(file, file + sizeof h, h.len);
    *len = h.len;
    return file;
none:
    pl_sys_free(file);
    return NULL;
}

static bool write_all(int fd, const void *data, size_t len)
{
    for (size_t n = 0; n < len;) {
        ssize_t w = write(fd, (const char *)data + n, len - n);
        if (w <= 0) return false;
        n += (size_t)w;
    }
    return true;
}

/* Not fsynced: after a power cut the hash shows the damage. */
void pl_code_cache_write(const char *dir, pl_code_key key, const void *data, size_t len)
{
    char path[1024], tmp[1100];
    if (!path_of(dir, key, path, sizeof path)) return;
    snprintf(tmp, sizeof tmp, "%s.tmp-%ld", path, (long)getpid());
    int fd = pl_sys_open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return;
    head h = {.key = key, .len = len, .hash = XXH3_64bits(data, len)};
    memcpy(h.magic, magic, sizeof magic);
    bool ok = write_all(fd, &h, sizeof h) && write_all(fd, data, len);
    ok = close(fd) == 0 && ok;
    if (!ok || rename(tmp, path) != 0) unlink(tmp);
}
