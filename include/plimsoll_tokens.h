/* plimsoll_tokens.h - text to token numbers and back: bytes, or byte-level BPE.
 *
 * Byte-level BPE is the scheme of GPT-2 and its descendants. A vocabulary is one of
 *
 *     DIR/vocab.json and DIR/merges.txt    token to number; pairs to merge, the first first
 *     tokenizer.json                       the same in one file (model.vocab, model.merges)
 *
 * A text is cut into words as GPT-2 does (a space belongs to the word after it); within a word the
 * pair that comes first in the list is merged until no pair is in the list. Letters and digits
 * beyond ASCII are told apart by the C library's tables.
 */
#ifndef PLIMSOLL_TOKENS_H
#define PLIMSOLL_TOKENS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_tokens pl_tokens;

/* path: a folder, a vocab.json beside its merges.txt, or a tokenizer.json; NULL: tokens are the 256
 * bytes. PL_ERR_DATA names what is wrong with a file. */
PL_API pl_status pl_tokens_open(const char *path, pl_tokens **out) PL_MUST_USE;
PL_API void pl_tokens_close(pl_tokens *t);
/* Number of tokens: every token is below it. */
PL_API int32_t pl_tokens_count(const pl_tokens *t);
/* Writes the tokens of n bytes of text to out, which has room for n, and their number. Any bytes
 * are text: those that are not UTF-8 are single characters. */
PL_API pl_status pl_tokens_encode(const pl_tokens *t, const char *text, size_t n, int32_t *out,
                                  int64_t *count) PL_MUST_USE;
/* The bytes of a token; borrowed. *n is 0 for a number without a token. */
PL_API const char *pl_tokens_text(const pl_tokens *t, int32_t token, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
