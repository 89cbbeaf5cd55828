/* codegen_cache.h - compiled kernels on disk: one file for each kernel, named by its key.
 *
 * The key is a hash of text, architecture, compiler and options, so a file is never out of date. A
 * file holds its key and a hash of key and content under the secret of the user (secret.h): a
 * damaged file, a truncated file and a file of another user are treated as missing. Where there is
 * no secret (no libsodium, no home folder) the hash has no key, and only the ownership of file and
 * folder protects them (cache_dir.h). Files appear complete (written under another name, then
 * renamed), so several processes may write the same file.
 */
#ifndef PL_CUDA_CODEGEN_CACHE_H
#define PL_CUDA_CODEGEN_CACHE_H

#include "base/err.h"

typedef struct pl_code_key {
    uint64_t hi, lo;
} pl_code_key;

/* Returns the key. `with`: architecture, compiler version and options as text. */
pl_code_key pl_code_key_of(const char *text, size_t len, const char *with);
/* Returns the compiled kernel, freed with pl_sys_free; NULL if it is not cached. Never fails. */
void *pl_code_cache_read(const char *dir, pl_code_key key, size_t *len);
/* Best effort: if the disk is full or read-only, the kernel is compiled again next time. */
void pl_code_cache_write(const char *dir, pl_code_key key, const void *data, size_t len);

#endif
