/* sentencepiece_plugin.h - the interface to the SentencePiece library, which is C++; the program
 * itself needs neither.
 *
 * libplimsoll_sentencepiece.so, built where the library's header and a C++ compiler are, exports
 * `pl_sentencepiece`. The interface number changes whenever this file changes.
 */
#ifndef PL_IO_SENTENCEPIECE_PLUGIN_H
#define PL_IO_SENTENCEPIECE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_SENTENCEPIECE_ABI = 1 };
typedef struct pl_sentencepiece_plugin {
    int abi;
    const char *version; /* PL_VERSION_STRING at its build */
    /* Loads a model from its bytes. Returns NULL, or why it cannot (valid until the next call on
     * this thread). */
    const char *(*open)(const char *bytes, size_t n, void **model);
    void (*close)(void *model);
    /* Numbers of tokens; -1: the model has none. */
    int32_t (*count)(const void *model);
    int32_t (*end)(const void *model);
    int32_t (*pad)(const void *model);
    /* Writes the first cap tokens of a text; returns the number of all, below 0: it failed. */
    int64_t (*encode)(const void *model, const char *text, size_t n, int32_t *to, int64_t cap);
} pl_sentencepiece_plugin;

#ifdef __cplusplus
}
#endif
#endif
