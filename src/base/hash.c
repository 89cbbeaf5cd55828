/* hash.c - see hash.h. */
#include "base/hash.h"

/* Four bits at a time: a table of 16 words is made for each call. */
uint32_t pl_crc(uint32_t polynomial, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t table[16], c = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int k = 0; k < 4; k++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? polynomial : 0);
    }
    for (size_t i = 0; i < n; i++) {
        c = table[(c ^ p[i]) & 15] ^ c >> 4;
        c = table[(c ^ (uint32_t)(p[i] >> 4)) & 15] ^ c >> 4;
    }
    return ~c;
}
