/* fuzz_texts.c - any file of prompts or of captions is refused, or is lines that are found again.
 * The first byte says which of the two. */
#include "data/sets/items_int.h"
#include "data/sets/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void prompts(const char *text, size_t n)
{
    pl_prompts *p;
    if (pl_prompts_parse(text, n, "fuzz", &p) != PL_OK) return;
    int64_t lines = pl_prompts_count(p);
    if (lines < 1 || (uint64_t)lines > n + 1) abort();
    for (int64_t i = 0; i < lines; i++) {
        int64_t k = pl_prompts_find(p, pl_prompts_at(p, i));
        if (k < 0 || k > i || strcmp(pl_prompts_at(p, k), pl_prompts_at(p, i)) != 0) abort();
    }
    pl_prompts_close(p);
}

static void captions(const uint8_t *data, size_t n, const char *tail)
{
    char path[96];
    snprintf(path, sizeof path, "/dev/shm/pl_fuzz_texts_%d%s", (int)getpid(), tail);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n) abort();
    fclose(f);
    pl_items s = {.root = "/nowhere"};
    static const char *const names[] = {"a.jpg", "b/c.png", "x"};
    for (int i = 0; i < 3; i++) {
        pl_item *item = pl__items_add(&s);
        if (!item) abort();
        item->name = names[i];
    }
    if (pl__items_captions(&s, path) == PL_OK)
        for (int i = 0; i < 3; i++)
            if (s.item[i].label < 0 || !(s.item[i].weight >= 0) ||
                (s.item[i].caption && strlen(s.item[i].caption) > n))
                abort();
    unlink(path);
    free(s.item);
    pl_arena_release(&s.mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    if (data[0] % 3 == 0) prompts((const char *)data + 1, size - 1);
    if (data[0] % 3 == 1) captions(data + 1, size - 1, ".txt");
    if (data[0] % 3 == 2) captions(data + 1, size - 1, ".jsonl");
    return 0;
}
