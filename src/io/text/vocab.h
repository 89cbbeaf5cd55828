/* vocab.h - a vocabulary: texts to token numbers. A hash table in an arena. */
#ifndef PL_IO_VOCAB_H
#define PL_IO_VOCAB_H

#include "base/arena.h"

enum { PL_MAX_TOKENS = 1 << 24, PL_MAX_VOCAB_FILE = 1 << 28 };

typedef struct pl_vocab_row pl_vocab_row;
typedef struct pl_vocab {
    pl_arena *mem; /* borrowed */
    pl_vocab_row *rows;
    uint64_t mask;
    int32_t count; /* the largest number + 1 */
} pl_vocab;

/* Room for n tokens. */
pl_status pl_vocab_init(pl_vocab *v, pl_arena *mem, size_t n) PL_MUST_USE;
/* Adds a token; of equal texts the last counts. The number is in [0, PL_MAX_TOKENS). */
pl_status pl_vocab_add(pl_vocab *v, const char *text, size_t n, int32_t id) PL_MUST_USE;
/* Returns the number of a token; -1: there is none. */
int32_t pl_vocab_find(const pl_vocab *v, const char *text, size_t n);

/* Fills the vocabulary from a JSON object {"token": number, ...}; path is for messages. */
struct json_t;
pl_status pl_vocab_from_json(pl_vocab *v, pl_arena *mem, const struct json_t *object,
                             const char *path) PL_MUST_USE;
/* Reads a JSON file; the caller calls json_decref. PL_ERR_DATA names line and column. reals: all
 * numbers are read as real ones, so that any size does. */
pl_status pl_vocab_read_json(const char *path, bool reals, struct json_t **out) PL_MUST_USE;

#endif
