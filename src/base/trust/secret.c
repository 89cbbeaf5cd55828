/* secret.c - see secret.h. */
#include "base/trust/secret.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- hashes ----------------------------------------------------------------------------- */
#if __has_include(<sodium.h>)
# include <sodium.h>

static union {
    struct {
        __typeof__(&sodium_init) init;
        __typeof__(&crypto_generichash_init) begin;
        __typeof__(&crypto_generichash_update) add;
        __typeof__(&crypto_generichash_final) end;
        __typeof__(&crypto_verify_16) equal;
    };
    void *table[5];
} lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so", NULL};
    static const char *const symbols[] = {"sodium_init", "crypto_generichash_init",
                                          "crypto_generichash_update", "crypto_generichash_final",
                                          "crypto_verify_16"};
    here = pl_library_load(names, symbols, 5, lib.table) && lib.init() >= 0;
}

const char *pl_keyed_missing(void)
{
    pthread_once(&once, load);
    return here ? NULL : "libsodium is not installed (apt-get install libsodium23)";
}

pl_key pl_keyed_hash(const pl_key *key, const char *purpose, const void *a, size_t a_bytes,
                     const void *b, size_t b_bytes)
{
    crypto_generichash_state state;
    pl_key out;
    uint64_t n = a_bytes;
    lib.begin(&state, key->byte, sizeof key->byte, sizeof out.byte);
    lib.add(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    lib.add(&state, (const unsigned char *)&n, sizeof n);
    lib.add(&state, a, a_bytes);
    if (b_bytes) lib.add(&state, b, b_bytes);
    lib.end(&state, out.byte, sizeof out.byte);
    return out;
}

bool pl_tags_equal(const uint8_t a[PL_TAG_BYTES], const uint8_t b[PL_TAG_BYTES])
{
    return lib.equal(a, b) == 0;
}

#else
const char *pl_keyed_missing(void)
{
    return "the program was built without libsodium (install libsodium-dev, then make again)";
}

pl_key pl_keyed_hash(const pl_key *key, const char *purpose, const void *a, size_t a_bytes,
                     const void *b, size_t b_bytes)
{
    (void)key, (void)purpose, (void)a, (void)a_bytes, (void)b, (void)b_bytes;
    PL_BUG("keyed hashes are missing");
}

bool pl_tags_equal(const uint8_t a[PL_TAG_BYTES], const uint8_t b[PL_TAG_BYTES])
{
    (void)a, (void)b;
    return false;
}
#endif

pl_status pl_random_bytes(void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = getrandom((char *)out + done, bytes - done, 0);
        PL_FAIL_IF(n <= 0 && errno != EINTR, PL_ERR_IO, "the system gives no random numbers: %s",
                   strerror(errno));
        if (n > 0) done += (size_t)n;
    }
    return PL_OK;
}

/* ---- text ------------------------------------------------------------------------------- */
void pl_hex_print(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    out[2 * n] = 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool pl_hex_parse(const char *text, uint8_t *bytes, size_t n)
{
    if (strlen(text) != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

/* ---- the file --------------------------------------------------------------------------- */
enum { TEXT_BYTES = 2 * PL_KEY_BYTES + 1 }; /* digits and the end of the line */

/* Writes the path. Sets *create when a missing file is created. */
static pl_status path_of(char *path, size_t cap, bool *create)
{
    const char *given = getenv("PLIMSOLL_SECRET_FILE"), *xdg = getenv("XDG_CONFIG_HOME"),
               *home = pl_sys_home();
    int n = -1;
    *create = !given || !given[0];
    if (!*create)
        n = snprintf(path, cap, "%s", given);
    else if (xdg && xdg[0])
        n = snprintf(path, cap, "%s/plimsoll/secret", xdg);
    else if (home)
        n = snprintf(path, cap, "%s/.config/plimsoll/secret", home);
    PL_FAIL_IF(n < 0 || (size_t)n >= cap, PL_ERR_IO,
               "no folder for the secret of the user: set HOME to a folder that exists, or "
               "PLIMSOLL_SECRET_FILE");
    return PL_OK;
}

/* Writes a new secret under another name and links it to the path: of several processes that create
 * the file at once one wins, and all read the same. */
static pl_status create_file(const char *path)
{
    char temporary[PATH_MAX / 2 + 32], text[TEXT_BYTES + 1]; /* first the folder */
    pl_key new;
    uint64_t random;
    PL_TRY(pl_random_bytes(&new, sizeof new));
    PL_TRY(pl_random_bytes(&random, sizeof random));
    const char *slash = strrchr(path, '/');
    snprintf(temporary, sizeof temporary, "%.*s", (int)(slash - path), path);
    bool fresh = access(temporary, F_OK) != 0;
    PL_TRY(pl_sys_make_dirs(temporary));
    if (fresh) (void)!chmod(temporary, 0700);
    PL_FAIL_IF(snprintf(temporary, sizeof temporary, "%s.%016llx", path,
                        (unsigned long long)random) >= (int)sizeof temporary,
               PL_ERR_IO, "the path %s is too long", path);
    pl_hex_print(new.byte, sizeof new.byte, text);
    text[TEXT_BYTES - 1] = '\n';
    int fd = pl_sys_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    PL_FAIL_IF(fd < 0, PL_ERR_IO, "cannot create the secret of the user, %s: %s", path,
               strerror(errno));
    bool whole = write(fd, text, TEXT_BYTES) == TEXT_BYTES && fsync(fd) == 0;
    whole = close(fd) == 0 && whole;
    bool linked = whole && (link(temporary, path) == 0 || errno == EEXIST);
    int why = errno;
    unlink(temporary);
    PL_FAIL_IF(!linked, PL_ERR_IO, "cannot create the secret of the user, %s: %s", path,
               strerror(why));
    pl_sys_sync_folder(path);
    return PL_OK;
}

static pl_status read_file(const char *path, pl_key *out)
{
    char text[TEXT_BYTES + 2];
    struct stat s;
    int fd = pl_sys_open(path, O_RDONLY | O_NOFOLLOW, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_IO, "cannot read the secret of the user, %s: %s", path,
               errno == ELOOP ? "it is a link" : strerror(errno));
    bool known = fstat(fd, &s) == 0;
    ssize_t n = known && S_ISREG(s.st_mode) ? read(fd, text, sizeof text - 1) : -1;
    close(fd);
    PL_FAIL_IF(!known || !S_ISREG(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 077),
               PL_ERR_IO,
               "%s is not used as the secret of the user: it must be a plain file of this user "
               "with mode 0600 (chmod 600 %s, or remove it)",
               path, path);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    PL_FAIL_IF(!pl_hex_parse(text, out->byte, sizeof out->byte), PL_ERR_IO,
               "%s is not a secret: it must have %d hexadecimal digits", path, 2 * PL_KEY_BYTES);
    return PL_OK;
}

pl_status pl_secret_read(pl_key *out)
{
    const char *given = getenv("PLIMSOLL_SECRET");
    char path[PATH_MAX / 2];
    bool create;
    if (given && given[0]) {
        PL_FAIL_IF(!pl_hex_parse(given, out->byte, sizeof out->byte), PL_ERR_IO,
                   "PLIMSOLL_SECRET must have %d hexadecimal digits, lower case (openssl rand -hex "
                   "32)",
                   2 * PL_KEY_BYTES);
        return PL_OK;
    }
    PL_TRY(path_of(path, sizeof path, &create));
    if (create && access(path, F_OK) != 0 && errno == ENOENT) PL_TRY(create_file(path));
    return read_file(path, out);
}
