/* tokenizer.h - what the tokenizers of text encoders share; see plimsoll_tokens.h.
 *
 * A kind has a function that reads its files into the tokenizer, and one that appends the tokens of
 * a piece of text. tokenizer.c does the rest: special tokens in the text, start, end, cut, padding.
 */
#ifndef PL_IO_TOKENIZER_H
#define PL_IO_TOKENIZER_H

#include "io/text/bpe.h"
#include "io/text/vocab.h"
#include "plimsoll_tokens.h"

/* Where tokens go: the first cap are written, all are counted. */
typedef struct pl_token_sink {
    int32_t *to;
    int64_t cap, n;
} pl_token_sink;
static inline void pl_token_put(pl_token_sink *s, int32_t token)
{
    if (s->n < s->cap) s->to[s->n] = token;
    s->n++;
}

enum { PL_MAX_SPECIALS = 8 };

struct pl_tokenizer {
    pl_tokenizer_kind kind;
    pl_arena mem;
    int32_t count;
    int32_t start, end, pad, unknown; /* start -1: none */
    /* Tokens that are taken from the text as they are written, "[SEP]". */
    struct {
        const char *text;
        int32_t id;
    } special[PL_MAX_SPECIALS];
    int n_special;
    pl_vocab vocab;
    /* WordPiece */
    bool clean, spread_cjk, strip_accents, lower;
    const char *more; /* begins the token of a part that is not the first of a word: "##" */
    int64_t longest;  /* characters of a word that is looked up */
    /* CLIP */
    pl_bpe bpe;
    int32_t byte[2][256]; /* token of a byte, and of a byte that ends a word; -1: none */
    /* SentencePiece */
    const struct pl_sentencepiece_plugin *library;
    void *model;
};

/* ---- one of each per kind ----------------------------------------------------------------- */
/* path is a file or a folder. */
pl_status pl_wordpiece_read(pl_tokenizer *t, const char *path) PL_MUST_USE;
pl_status pl_clip_read(pl_tokenizer *t, const char *path) PL_MUST_USE;
pl_status pl_sentencepiece_read(pl_tokenizer *t, const char *path) PL_MUST_USE;
/* The text is valid UTF-8. */
pl_status pl_wordpiece_split(const pl_tokenizer *t, const char *text, size_t n,
                             pl_token_sink *out) PL_MUST_USE;
pl_status pl_clip_split(const pl_tokenizer *t, const char *text, size_t n,
                        pl_token_sink *out) PL_MUST_USE;
pl_status pl_sentencepiece_split(const pl_tokenizer *t, const char *text, size_t n,
                                 pl_token_sink *out) PL_MUST_USE;
void pl_sentencepiece_close(pl_tokenizer *t);
const char *pl_sentencepiece_missing(void);

/* ---- helpers ------------------------------------------------------------------------------ */
/* Adds a special token and returns its number; -1: the vocabulary does not have it. */
int32_t pl_tokenizer_special(pl_tokenizer *t, const char *text);
/* Sets *out to the path of the first of the NULL-terminated names that is in the folder `path`, or
 * to `path` itself when it is a file. PL_ERR_DATA lists the names. */
pl_status pl_tokenizer_find(pl_tokenizer *t, const char *path, const char *const *names,
                            const char **out) PL_MUST_USE;
/* Sets *out to the path of `name` in the folder of the file. */
pl_status pl_tokenizer_beside(pl_tokenizer *t, const char *file, const char *name,
                              const char **out) PL_MUST_USE;
/* Reads the JSON file `name` in the folder of the file; *out is NULL if the folder does not have
 * it. */
pl_status pl_tokenizer_read_beside(pl_tokenizer *t, const char *file, const char *name,
                                   struct json_t **out) PL_MUST_USE;

#endif
