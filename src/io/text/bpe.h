/* bpe.h - byte-pair merges: a hash table from a pair of tokens to the rank of the pair and the
 * merged token, and the loop that merges a word. GPT-2's and CLIP's vocabularies use it.
 *
 * Vocabulary files write each byte as one printable character (GPT-2's table): printable Latin-1
 * bytes are the same characters, the others are the characters from U+0100 on, in order.
 *
 * Cost: a word of n tokens takes O(n^2) look-ups; words are short.
 */
#ifndef PL_IO_BPE_H
#define PL_IO_BPE_H

#include "base/arena.h"

typedef struct pl_merge {
    uint64_t pair; /* first token << 32 | second token */
    int32_t rank, token;
} pl_merge;

typedef struct pl_bpe {
    pl_merge *merges; /* hash table; rank < 0: an empty place */
    uint64_t mask;    /* its size minus 1 */
} pl_bpe;

/* Room for n merges, in the arena. */
pl_status pl_bpe_init(pl_bpe *b, pl_arena *mem, size_t n) PL_MUST_USE;
/* Adds the merge of two tokens; of equal pairs the first counts. */
void pl_bpe_add(pl_bpe *b, int32_t first, int32_t second, int32_t rank, int32_t token);
/* Merges the tokens of a word in place and returns how many are left. */
int64_t pl_bpe_merge(const pl_bpe *b, int32_t *word, int64_t n);

/* Returns the byte of a character in a vocabulary file; -1: none. */
int pl_bpe_byte_of(uint32_t c);
/* Returns the character at text (n > 0 bytes) as a code point and sets *len to its bytes. A byte
 * that is not UTF-8 is one character. */
uint32_t pl_char_at(const char *text, size_t n, size_t *len);

#endif
