/* guarded.c - see guarded.h. */
#include "tests/lib/guarded.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 };
#else
enum { GUARD = 1024 }; /* a multiple of 64, which keeps data aligned */
#endif

guarded_block guarded_new(size_t bytes)
{
    return guarded_new_at(bytes, 0);
}

guarded_block guarded_new_at(size_t bytes, size_t off)
{
    void *base = NULL;
    size_t all = GUARD + off + bytes + GUARD;
    if (posix_memalign(&base, 64, all + (all == 0)) != 0) abort();
    memset(base, GUARDED_BYTE, all);
    return (guarded_block){base, (unsigned char *)base + GUARD + off, bytes};
}

guarded_block guarded_copy(const guarded_block *b)
{
    guarded_block c = guarded_new(b->bytes);
    memcpy(c.data, b->data, b->bytes);
    return c;
}

void guarded_fill(guarded_block *b, int byte)
{
    memset(b->data, byte, b->bytes);
}

/* Whether all of n bytes are GUARDED_BYTE. */
static bool untouched(const unsigned char *p, size_t n)
{
    return n == 0 || (p[0] == GUARDED_BYTE && memcmp(p, p + 1, n - 1) == 0);
}

bool guarded_intact(const guarded_block *b)
{
    return untouched(b->base, (size_t)(b->data - b->base)) && untouched(b->data + b->bytes, GUARD);
}

void guarded_free(guarded_block *b)
{
    free(b->base);
}

void guarded_free_all(guarded_block *b, int n)
{
    for (int i = 0; i < n; i++) guarded_free(&b[i]);
}
