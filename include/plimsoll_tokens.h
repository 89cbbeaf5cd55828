/* plimsoll_tokens.h - text to token numbers and back: bytes, or byte-level BPE; files of token
 * numbers; and the tokenizers of published text encoders.
 *
 * Byte-level BPE is the scheme of GPT-2 and its descendants. A vocabulary is one of
 *
 *     DIR/vocab.json and DIR/merges.txt    token to number; pairs to merge, the first first
 *     tokenizer.json                       the same in one file (model.vocab, model.merges)
 *
 * A text is cut into words as GPT-2 does (a space belongs to the word after it); within a word the
 * pair that comes first in the list is merged until no pair is in the list. The C library's tables
 * classify letters and digits beyond ASCII.
 */
#ifndef PLIMSOLL_TOKENS_H
#define PLIMSOLL_TOKENS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_tokens pl_tokens;

/* path: a folder, a vocab.json beside its merges.txt, or a tokenizer.json; NULL: tokens are the 256
 * bytes. PL_ERR_DATA: a file is invalid; the message says why. */
PL_API pl_status pl_tokens_open(const char *path, pl_tokens **out) PL_MUST_USE;
PL_API void pl_tokens_close(pl_tokens *t);
/* Number of tokens: every token is below it. */
PL_API int32_t pl_tokens_count(const pl_tokens *t);
/* Writes the tokens of n bytes of text to out, which has room for n, and their number. The text may
 * have any bytes; bytes that are not UTF-8 are treated as single characters. */
PL_API pl_status pl_tokens_encode(const pl_tokens *t, const char *text, size_t n, int32_t *out,
                                  int64_t *count) PL_MUST_USE;
/* The bytes of a token; borrowed. *n is 0 for a number without a token. */
PL_API const char *pl_tokens_text(const pl_tokens *t, int32_t token, size_t *n);

/* ---- files of token numbers ----------------------------------------------------------------
 * A text that another program has tokenised once: numbers of 2 or 4 bytes, little-endian, one after
 * the other. A file of llm.c begins with 256 numbers of 4 bytes: a magic number, which gives the
 * width of tokens, a version, the number of tokens, zeros. Tokens are read when a sample needs
 * them, so a file of any size takes no memory. Reads may come from any thread. */
typedef struct pl_token_file pl_token_file;

/* width: bytes per token of a file without a header, 2 or 4. limit, at most 2^31: every token must
 * be below it. PL_ERR_DATA: the file is invalid; the message says why. */
PL_API pl_status pl_token_file_open(const char *path, int width, int64_t limit,
                                    pl_token_file **out) PL_MUST_USE;
PL_API void pl_token_file_close(pl_token_file *f);
/* Number of tokens in the file. */
PL_API int64_t pl_token_file_count(const pl_token_file *f);
/* Bytes per token, by the header if the file has one. */
PL_API int pl_token_file_width(const pl_token_file *f);
/* Reads n tokens from token number `at` on. PL_ERR_DATA: a token is not below the limit. */
PL_API pl_status pl_token_file_read(const pl_token_file *f, int64_t at, int64_t n,
                                    int32_t *to) PL_MUST_USE;

/* ---- tokenizers of text encoders -----------------------------------------------------------
 * Text to the numbers that a published encoder was trained on, with its start and end tokens. */
typedef enum pl_tokenizer_kind {
    /* BERT: vocab.txt (one token per line), or a tokenizer.json. Lower case and without accents
     * unless tokenizer_config.json or tokenizer.json says otherwise. */
    PL_TOKENIZER_WORDPIECE,
    /* CLIP: vocab.json beside merges.txt, a tokenizer.json, or the list of merges alone
     * (bpe_simple_vocab_16e6.txt). Lower case. Texts are padded with pad_token of
     * special_tokens_map.json, else with token 0. */
    PL_TOKENIZER_CLIP,
    /* T5: a model of the SentencePiece library (spiece.model), read by that library. */
    PL_TOKENIZER_SENTENCEPIECE
} pl_tokenizer_kind;
typedef struct pl_tokenizer pl_tokenizer;

/* Returns the reason why tokenizers of this kind cannot be used on this machine, with the package
 * to install; NULL: they can be used. The text is valid until the next call on this thread. */
PL_API const char *pl_tokenizer_missing(pl_tokenizer_kind kind);
/* path: the file, or a folder that has it under its usual name. PL_ERR_DATA names what is wrong
 * with a file; PL_ERR_UNSUPPORTED: pl_tokenizer_missing. */
PL_API pl_status pl_tokenizer_open(const char *path, pl_tokenizer_kind kind,
                                   pl_tokenizer **out) PL_MUST_USE;
PL_API void pl_tokenizer_close(pl_tokenizer *t);
/* Number of tokens: every token is below it. */
PL_API int32_t pl_tokenizer_count(const pl_tokenizer *t);
/* Writes the tokens of n bytes of text to ids[0..length): start token, text, end token, padding. If
 * there are more than `length` tokens, the text is cut and the end token is kept. *count: the
 * tokens without padding, before the cut. length is at least 2. PL_ERR_DATA: the text is not
 * UTF-8. */
PL_API pl_status pl_tokenizer_encode(const pl_tokenizer *t, const char *text, size_t n,
                                     int32_t *ids, int64_t length, int64_t *count) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
