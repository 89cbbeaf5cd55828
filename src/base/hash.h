/* hash.h - 64 bits mixed into 64 others, and the checksums of foreign formats. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Mixes 64 bits one-to-one: the output function of splitmix64 (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014). Consecutive numbers give numbers without visible
 * relation. */
static inline uint64_t pl_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The step of splitmix64's counter: 2^64 divided by the golden ratio. */
#define PL_GOLDEN64 0x9E3779B97F4A7C15u

/* Reflected polynomials of 32-bit checksums: PNG and zip; iSCSI and TensorBoard. */
#define PL_CRC32  0xEDB88320u
#define PL_CRC32C 0x82F63B78u
/* Four bits at a time: each call builds a table of 16 words. */
static inline uint32_t pl_crc(uint32_t polynomial, const void *bytes, size_t n)
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

#endif
