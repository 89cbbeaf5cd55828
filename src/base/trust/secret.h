/* secret.h - keyed hashes (BLAKE2b of libsodium), and the secret of the user that keys them.
 *
 * The secret is 32 random bytes that no other user can read. Without it, nobody can forge a message
 * between ranks or plant a compiled kernel in the cache. Keys for one purpose are hashes of the
 * secret, so that no key reveals anything about another key.
 */
#ifndef PL_BASE_TRUST_SECRET_H
#define PL_BASE_TRUST_SECRET_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { PL_KEY_BYTES = 32, PL_TAG_BYTES = 16 };

typedef struct pl_key {
    uint8_t byte[PL_KEY_BYTES];
} pl_key;

PL_SHARED_BEGIN

/* Returns why keyed hashes cannot be computed here; NULL when they can. Thread-safe. */
const char *pl_keyed_missing(void);
/* Hashes two pieces of data under the key and the purpose. Requires pl_keyed_missing() == NULL. The
 * same bytes divided otherwise into a and b have another hash. */
pl_key pl_keyed_hash(const pl_key *key, const char *purpose, const void *a, size_t a_bytes,
                     const void *b, size_t b_bytes);
/* Compares in a time that does not depend on the content. */
bool pl_tags_equal(const uint8_t a[PL_TAG_BYTES], const uint8_t b[PL_TAG_BYTES]);
/* Fills from the random numbers of the system. */
pl_status pl_random_bytes(void *out, size_t bytes) PL_MUST_USE;

/* Reads the user's secret: $PLIMSOLL_SECRET (64 hexadecimal digits), else the file
 * $PLIMSOLL_SECRET_FILE, else $XDG_CONFIG_HOME/plimsoll/secret, else ~/.config/plimsoll/secret. The
 * last two are created on first use, with mode 0600. PL_ERR_IO: the file is readable or writable
 * for others, belongs to another user, is a link, or cannot be created. */
pl_status pl_secret_read(pl_key *out) PL_MUST_USE;
/* Writes 2 * n hexadecimal digits and a NUL; the way back returns false for any other text. */
void pl_hex_print(const uint8_t *bytes, size_t n, char *out);
bool pl_hex_parse(const char *text, uint8_t *bytes, size_t n);

PL_SHARED_END

#endif
