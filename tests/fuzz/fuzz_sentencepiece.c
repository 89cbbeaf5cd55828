/* fuzz_sentencepiece.c - any model file is refused or opens, and any text then gives tokens below
 * its number, or a message. The library itself is Debian's and has no sanitizer. Without the
 * plug-in (PLIMSOLL_SENTENCEPIECE) every input is passed over. */
#include "plimsoll_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LENGTH = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "a photo of a Fox's caf\xc3\xa9, 10 \xe7\x8c\xab";
    char path[96];
    pl_tokenizer *t;
    int32_t ids[LENGTH];
    int64_t count;
    snprintf(path, sizeof path, "/dev/shm/pl_fuzz_%d_spiece.model", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size) abort();
    fclose(f);
    if (pl_tokenizer_open(path, PL_TOKENIZER_SENTENCEPIECE, &t) == PL_OK) {
        pl_status rc = pl_tokenizer_encode(t, text, sizeof text - 1, ids, LENGTH, &count);
        if (rc != PL_OK && rc != PL_ERR_DATA) abort();
        for (int i = 0; rc == PL_OK && i < LENGTH; i++)
            if (ids[i] < 0 || ids[i] >= pl_tokenizer_count(t)) abort();
        pl_tokenizer_close(t);
    }
    unlink(path);
    return 0;
}
