/* codegen_cache.c - see codegen_cache.h. */
#include "cuda/codegen/codegen_cache.h"

#include "base/cache_dir.h"
#include "base/sys.h"
#include "base/trust/secret.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { MOST_BYTES = 64 << 20 };

typedef struct head {
    char magic[8];
    pl_code_key key;
    uint64_t len;
    uint8_t hash[PL_TAG_BYTES];
} head;

static const char magic[8] = "PLKERN2";

/* The secret, read once; here: there is one. */
static pl_key secret;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_secret(void)
{
    here = !pl_keyed_missing() && pl_secret_read(&secret) == PL_OK;
}

/* Writes the hash of key and content. */
static void hash_of(pl_code_key key, const void *data, size_t len, uint8_t out[PL_TAG_BYTES])
{
    pthread_once(&once, read_secret);
    if (here) {
        pl_key h = pl_keyed_hash(&secret, "plimsoll kernel", &key, sizeof key, data, len);
        memcpy(out, h.byte, PL_TAG_BYTES);
    } else {
        XXH128_hash_t h = XXH3_128bits_withSeed(data, len, key.lo);
        memcpy(out, &h, PL_TAG_BYTES);
    }
}

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
    uint8_t hash[PL_TAG_BYTES];
    if (!path_of(dir, key, path, sizeof path) || access(path, R_OK) != 0 || !pl_cache_trusts(path))
        return NULL;
    if (pl_sys_read_file(path, MOST_BYTES, &file, &n) != PL_OK) return NULL;
    if (n < sizeof h) goto none;
    memcpy(&h, file, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || memcmp(&h.key, &key, sizeof key) != 0 ||
        h.len != n - sizeof h || h.len == 0)
        goto none;
    hash_of(key, file + sizeof h, h.len, hash);
    if (memcmp(hash, h.hash, sizeof hash) != 0) goto none;
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
    uint64_t random;
    if (!path_of(dir, key, path, sizeof path) || pl_random_bytes(&random, sizeof random) != PL_OK)
        return;
    snprintf(tmp, sizeof tmp, "%s.tmp-%016llx", path, (unsigned long long)random);
    int fd = pl_sys_open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    head h = {.key = key, .len = len};
    hash_of(key, data, len, h.hash);
    memcpy(h.magic, magic, sizeof magic);
    bool ok = write_all(fd, &h, sizeof h) && write_all(fd, data, len);
    ok = close(fd) == 0 && ok;
    if (!ok || rename(tmp, path) != 0) unlink(tmp);
}
