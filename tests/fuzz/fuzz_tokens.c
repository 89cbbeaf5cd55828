/* fuzz_tokens.c - any vocabulary is refused, or any text comes back from its tokens. The first byte
 * says whether the rest is a tokenizer.json or a text for the vocabulary of tests/data/tokens. */
#include "plimsoll_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void come_back(const pl_tokens *t, const char *text, size_t n)
{
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    int64_t count;
    size_t at = 0, len;
    if (!tokens || pl_tokens_encode(t, text, n, tokens, &count) != PL_OK) abort();
    for (int64_t i = 0; i < count; i++) {
        const char *part = pl_tokens_text(t, tokens[i], &len);
        if (tokens[i] < 0 || tokens[i] >= pl_tokens_count(t) || at + len > n ||
            memcmp(part, text + at, len) != 0)
            abort();
        at += len;
    }
    if (at != n) abort();
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_tokens *known;
    pl_tokens *t;
    if (!known && pl_tokens_open("tests/data/tokens", &known) != PL_OK) abort();
    if (size < 1) return 0;
    if (data[0] % 2) {
        come_back(known, (const char *)data + 1, size - 1);
        return 0;
    }
    char path[96];
    snprintf(path, sizeof path, "/dev/shm/pl_fuzz_tokens_%d.json", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data + 1, 1, size - 1, f) != size - 1) abort();
    fclose(f);
    if (pl_tokens_open(path, &t) == PL_OK) {
        size_t len;
        for (int32_t i = 0; i < pl_tokens_count(t) && i < 1000; i++)
            (void)pl_tokens_text(t, i, &len);
        pl_tokens_close(t);
    }
    unlink(path);
    return 0;
}
