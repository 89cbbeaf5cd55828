/* bits.h - bools between bytes (0 and 1) and bits, element e being bit e % 8 of byte e / 8. */
#ifndef PL_CPU_BITS_H
#define PL_CPU_BITS_H

#include <stdint.h>

/* Elements first .. first + n - 1 of src, as bytes. */
void pl_bits_unpack(uint8_t *dst, const uint8_t *src, int64_t first, int64_t n);
/* Bytes src[0 .. n) as elements first .. of dst, anything but 0 being 1. Bits below `first` in its
 * byte stay; those after the last in its byte become 0: a byte is filled from its first bit on. */
void pl_bits_pack(uint8_t *dst, int64_t first, const uint8_t *src, int64_t n);

#endif
