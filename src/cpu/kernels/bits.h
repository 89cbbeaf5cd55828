/* bits.h - converts bools between bytes (0 and 1) and bits; element e is bit e % 8 of byte e /
 * 8. */
#ifndef PL_CPU_BITS_H
#define PL_CPU_BITS_H

#include <stdint.h>

/* Writes elements first .. first + n - 1 of src to dst as bytes. */
void pl_bits_unpack(uint8_t *dst, const uint8_t *src, int64_t first, int64_t n);
/* Writes bytes src[0 .. n) as elements first .. of dst; any nonzero byte is 1. Bits of the first
 * byte below `first` stay; bits of the last byte after the last element become 0. So a byte must be
 * filled from its first bit on. */
void pl_bits_pack(uint8_t *dst, int64_t first, const uint8_t *src, int64_t n);

#endif
