/* bits.c - converts eight bools at a time, in one 64-bit word.
 *
 * Unpack: a product copies the byte into each byte of a word, a mask leaves bit i in byte i, an
 * addition carries it to the top of its byte. Pack: a product moves the lowest bit of byte i to bit
 * 56 + i; no two of its terms overlap, so nothing carries.
 */
#include "cpu/kernels/bits.h"

#include <string.h>

#define EACH(byte) (0x0101010101010101u * (uint64_t)(byte))

/* Byte i of a word lies at address i. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bit i of a byte is byte i of a word");

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void pl_bits_unpack(uint8_t *dst, const uint8_t *src, int64_t first, int64_t n)
{
    int64_t i = 0, head = min64(n, (8 - first % 8) % 8);
    src += first / 8;
    for (; i < head; i++) dst[i] = *src >> (first % 8 + i) & 1;
    src += head > 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x = EACH(*src++) & 0x8040201008040201u;
        x = (x + EACH(0x7f)) >> 7 & EACH(1);
        memcpy(dst + i, &x, 8);
    }
    for (int bit = 0; i < n; i++, bit++) dst[i] = *src >> bit & 1;
}

void pl_bits_pack(uint8_t *dst, int64_t first, const uint8_t *src, int64_t n)
{
    int64_t i = 0, skip = first % 8, head = skip ? min64(n, 8 - skip) : 0;
    dst += first / 8;
    if (head) {
        unsigned x = *dst & ((1u << skip) - 1);
        for (; i < head; i++) x |= (unsigned)(src[i] != 0) << (skip + i);
        *dst++ = (uint8_t)x;
    }
    for (; i + 8 <= n; i += 8) {
        uint64_t x;
        memcpy(&x, src + i, 8);
        x = (((x & EACH(0x7f)) + EACH(0x7f)) | x) >> 7 & EACH(1);
        *dst++ = (uint8_t)(x * 0x0102040810204080u >> 56);
    }
    unsigned last = 0;
    int bit = 0;
    for (; i < n; i++, bit++) last |= (unsigned)(src[i] != 0) << bit;
    if (bit) *dst = (uint8_t)last;
}
