/* file_sum.c - checksums inside files, read and compared; the contract is in file.h.
 *
 * Two formats carry one. The digits are at a fixed offset, after bytes that only this program
 * writes in this order:
 *
 *     safetensors   8 bytes of length, {"__metadata__":{"plimsoll.xxh64":"DIGITS"
 *                   and data that begin at a multiple of 4096
 *     ONNX          the entry plimsoll.xxh64 of metadata_props, before all other fields; libraries
 *                   write the fields in the order of their numbers, so this one comes late
 *
 * The memory of verified files exists once in a process, because several parts of a run open the
 * same model: its metadata, its names, its weights.
 */
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include "base/sys.h"
#include "io/file.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define ST_BEGIN "{\"__metadata__\":{\"" PL_SUM_KEY "\":\""
#define OX_BEGIN "\x72\x22\x0a\x0e" PL_SUM_KEY "\x12\x10"
enum { KNOWN = 16, BLOCK = 1 << 18, HEAD = 128, DATA_ALIGN = 4096 };

/* ---- where the digits are ------------------------------------------------------------------- */
static bool is_hex(const char *text, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < PL_SUM_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] ? strchr(digits, text[i]) : NULL;
        if (!at) return false;
        *value = *value << 4 | (uint64_t)(at - digits);
    }
    return true;
}

/* Sets the offset of the digits and their value; false: the file carries no checksum. */
static pl_status find_digits(const pl_file *f, bool *has_sum, uint64_t *at, uint64_t *stored)
{
    char head[HEAD];
    uint64_t length = 0;
    *has_sum = false;
    if (f->size < HEAD) return PL_OK;
    PL_TRY(pl_file_read(f, 0, HEAD, head));
    for (int i = 7; i >= 0; i--) length = length << 8 | (uint8_t)head[i];
    if (memcmp(head + 8, ST_BEGIN, sizeof ST_BEGIN - 1) == 0 && (length + 8) % DATA_ALIGN == 0)
        *at = 8 + sizeof ST_BEGIN - 1;
    else if (memcmp(head, OX_BEGIN, sizeof OX_BEGIN - 1) == 0)
        *at = sizeof OX_BEGIN - 1;
    else
        return PL_OK;
    *has_sum = is_hex(head + *at, stored);
    PL_FAIL_IF(!*has_sum, PL_ERR_FILE, "%.200s is damaged: its stored checksum is not a number",
               f->name);
    return PL_OK;
}

pl_status pl_file_refuse_holes(int fd, const char *name)
{
    enum { STAT_BLOCK = 512, LEAST_SHARE = 1024 };
    const uint64_t large = (uint64_t)64 << 30;
    struct stat st;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < large) return PL_OK;
    uint64_t size = (uint64_t)st.st_size, there = (uint64_t)st.st_blocks * STAT_BLOCK;
    if (there > size / LEAST_SHARE) return PL_OK;
    /* Some file systems count no blocks; they know no holes either: the first one is at the end. */
    off_t at = lseek(fd, 0, SEEK_CUR), hole = lseek(fd, 0, SEEK_HOLE);
    bool has_hole = hole >= 0 && (uint64_t)hole < size;
    PL_FAIL_IF(lseek(fd, at, SEEK_SET) < 0, PL_ERR_IO, "cannot read %.200s: %s", name,
               strerror(errno));
    PL_FAIL_IF(has_hole, PL_ERR_FILE,
               "%.200s is damaged: it has %llu bytes, but only %llu of them are on the disk; take "
               "another copy, or write it again",
               name, (unsigned long long)size, (unsigned long long)there);
    return PL_OK;
}

pl_status pl_file_sum(const pl_file *f, void *block, size_t cap, uint64_t *hash, bool *has_sum,
                      uint64_t *stored)
{
    XXH64_state_t state;
    uint64_t digits = 0;
    PL_TRY(find_digits(f, has_sum, &digits, stored));
    if (f->fd >= 0) PL_TRY(pl_file_refuse_holes(f->fd, f->name));
    XXH64_reset(&state, 0);
    for (uint64_t at = 0; at < f->size;) {
        size_t n = f->size - at < cap ? (size_t)(f->size - at) : cap;
        PL_TRY(pl_file_read(f, at, n, block));
        if (*has_sum && at == 0) memcpy((char *)block + digits, PL_SUM_ZEROS, PL_SUM_DIGITS);
        XXH64_update(&state, block, n);
        at += n;
    }
    *hash = XXH64_digest(&state);
    return PL_OK;
}

/* ---- verified files ------------------------------------------------------------------------- */
typedef struct known {
    uint64_t dev, ino, size;
    struct timespec changed, written;
} known;

static struct {
    pthread_mutex_t lock;
    known row[KNOWN];
    int next;
} verified = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool identify(const pl_file *f, known *out)
{
    struct stat st;
    memset(out, 0, sizeof *out); /* padding, too: rows are compared as bytes */
    if (f->fd < 0 || fstat(f->fd, &st) != 0) return false;
    out->dev = (uint64_t)st.st_dev;
    out->ino = (uint64_t)st.st_ino;
    out->size = (uint64_t)st.st_size;
    out->changed = st.st_ctim;
    out->written = st.st_mtim;
    return true;
}

bool pl_file_is_verified(const pl_file *f)
{
    known k;
    bool found = false;
    if (!identify(f, &k)) return false;
    pthread_mutex_lock(&verified.lock);
    for (int i = 0; i < KNOWN && !found; i++) found = memcmp(&verified.row[i], &k, sizeof k) == 0;
    pthread_mutex_unlock(&verified.lock);
    return found;
}

void pl_file_set_verified(const pl_file *f)
{
    known k;
    if (!identify(f, &k) || pl_file_is_verified(f)) return;
    pthread_mutex_lock(&verified.lock);
    verified.row[verified.next] = k;
    verified.next = (verified.next + 1) % KNOWN;
    pthread_mutex_unlock(&verified.lock);
}

pl_status pl_file_damaged(const char *name, const char *kind, uint64_t found, uint64_t was)
{
    PL_FAIL(PL_ERR_FILE,
            "%.200s is damaged: its bytes changed since it was written (%s %0*llx, was %0*llx); "
            "take another copy, or write it again",
            name, kind, kind[0] == 'C' ? 8 : 16, (unsigned long long)found, kind[0] == 'C' ? 8 : 16,
            (unsigned long long)was);
}

pl_status pl_file_verify(const pl_file *f, bool *has_sum)
{
    uint64_t at, hash = 0, stored = 0;
    bool carries = false;
    if (has_sum) *has_sum = false;
    if (f->fd < 0) return PL_OK;
    PL_TRY(find_digits(f, &carries, &at, &stored));
    if (has_sum) *has_sum = carries;
    if (!carries || pl_file_is_verified(f)) return PL_OK;
    void *block = pl_sys_alloc(BLOCK);
    if (!block) return PL_ERR_MEMORY;
    pl_status rc = pl_file_sum(f, block, BLOCK, &hash, &carries, &stored);
    pl_sys_free(block);
    PL_TRY(rc);
    if (hash != stored) return pl_file_damaged(f->name, "XXH64", hash, stored);
    pl_file_set_verified(f);
    return PL_OK;
}
