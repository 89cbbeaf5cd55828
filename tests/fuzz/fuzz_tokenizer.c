/* fuzz_tokenizer.c - any file of a tokenizer is refused or opens, and any text then gives tokens
 * below its number. The first byte: 0 a vocab.txt, 1 a tokenizer.json of WordPiece, 2 a
 * tokenizer.json of CLIP, 3 a list of merges, 4 and 5 a text for the vocabularies of
 * tests/data/encoders. */
#include "plimsoll_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LENGTH = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const pl_tokenizer *t, const char *text, size_t n)
{
    int32_t ids[LENGTH];
    int64_t count;
    pl_status rc = pl_tokenizer_encode(t, text, n, ids, LENGTH, &count);
    if (rc == PL_ERR_DATA) return; /* not UTF-8 */
    if (rc != PL_OK || count < 1) abort();
    for (int i = 0; i < LENGTH; i++)
        if (ids[i] < 0 || ids[i] >= pl_tokenizer_count(t)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const known_path[] = {"tests/data/encoders/distilbert",
                                             "tests/data/encoders/clip"};
    static const char *const name[] = {"vocab.txt", "tokenizer.json", "tokenizer.json",
                                       "merges.txt"};
    static pl_tokenizer *known[2];
    pl_tokenizer *t;
    if (size < 1) return 0;
    int what = data[0] % 6;
    const char *bytes = (const char *)data + 1;
    for (int i = 0; i < 2 && !known[i]; i++)
        if (pl_tokenizer_open(known_path[i], (pl_tokenizer_kind)i, &known[i]) != PL_OK) abort();
    if (what >= 4) {
        encode(known[what - 4], bytes, size - 1);
        return 0;
    }
    char path[96];
    snprintf(path, sizeof path, "/dev/shm/pl_fuzz_%d_%s", (int)getpid(), name[what]);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size - 1, f) != size - 1) abort();
    fclose(f);
    pl_tokenizer_kind kind = what < 2 ? PL_TOKENIZER_WORDPIECE : PL_TOKENIZER_CLIP;
    if (pl_tokenizer_open(path, kind, &t) == PL_OK) {
        encode(t, "a photo of a Fox's caf\xc3\xa9, 10 \xe7\x8c\xab", 30);
        encode(t, bytes, size - 1);
        pl_tokenizer_close(t);
    }
    unlink(path);
    return 0;
}
