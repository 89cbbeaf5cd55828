/* bpe.c - see bpe.h. */
#include "io/text/bpe.h"

#include "base/hash.h"

uint32_t pl_char_at(const char *text, size_t n, size_t *len)
{
    const uint8_t *s = (const uint8_t *)text;
    int more = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : s[0] < 0xF5 ? 3 : 0;
    uint32_t c = more == 3 ? s[0] & 7u : more == 2 ? s[0] & 15u : more == 1 ? s[0] & 31u : s[0];
    *len = 1;
    if ((size_t)more >= n) return s[0];
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xC0) != 0x80) return s[0];
        c = c << 6 | (s[i] & 63u);
    }
    *len = (size_t)more + 1;
    return c;
}

int pl_bpe_byte_of(uint32_t c)
{
    if ((c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF))
        return (int)c;
    int left = (int)c - 0x100;
    for (int b = 0; b < 256 && left >= 0; b++) {
        bool own = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (!own && left-- == 0) return b;
    }
    return -1;
}

/* ---- merges ------------------------------------------------------------------------------- */
pl_status pl_bpe_init(pl_bpe *b, pl_arena *mem, size_t n)
{
    uint64_t size = 16;
    while (size < 2 * n) size *= 2;
    b->mask = size - 1;
    b->merges = pl_arena_new(mem, pl_merge, size);
    if (!b->merges) return PL_ERR_MEMORY;
    for (uint64_t i = 0; i < size; i++) b->merges[i].rank = -1;
    return PL_OK;
}

static uint64_t pair_of(int32_t first, int32_t second)
{
    return (uint64_t)(uint32_t)first << 32 | (uint32_t)second;
}

void pl_bpe_add(pl_bpe *b, int32_t first, int32_t second, int32_t rank, int32_t token)
{
    uint64_t pair = pair_of(first, second), i = pl_mix64(pair) & b->mask;
    for (; b->merges[i].rank >= 0; i = (i + 1) & b->mask)
        if (b->merges[i].pair == pair) return;
    b->merges[i] = (pl_merge){pair, rank, token};
}

static const pl_merge *find_merge(const pl_bpe *b, int32_t first, int32_t second)
{
    uint64_t pair = pair_of(first, second);
    for (uint64_t i = pl_mix64(pair) & b->mask;; i = (i + 1) & b->mask) {
        if (b->merges[i].rank < 0) return NULL;
        if (b->merges[i].pair == pair) return &b->merges[i];
    }
}

int64_t pl_bpe_merge(const pl_bpe *b, int32_t *word, int64_t n)
{
    for (;;) {
        const pl_merge *best = NULL;
        int64_t at = 0;
        for (int64_t i = 0; i + 1 < n; i++) {
            const pl_merge *m = find_merge(b, word[i], word[i + 1]);
            if (m && (!best || m->rank < best->rank)) best = m, at = i;
        }
        if (!best) return n;
        /* every occurrence of the pair, from the left */
        int64_t to = at;
        for (int64_t i = at; i < n; to++) {
            bool same = i + 1 < n && word[i] == (int32_t)(best->pair >> 32) &&
                        word[i + 1] == (int32_t)(uint32_t)best->pair;
            word[to] = same ? best->token : word[i];
            i += same ? 2 : 1;
        }
        n = to;
    }
}
