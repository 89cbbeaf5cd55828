/* quantized.h - weights stored in blocks of codes with a scale.
 *
 * 64 neighbouring elements are a block. Its scale is their largest magnitude, and an element is
 * value[code] * scale; value[] is sorted, and its ends are -1 and 1. A tensor of n elements is one
 * run of bytes, all codes first, so that kernels read both parts in wide accesses:
 *
 *      | codes of block 0 | ... | codes of block b-1 | scale 0 | ... | scale b-1 |
 *
 * Codes have 8 bits, or 4: then the element at an even index has the low half of the byte. The last
 * block may be partly used; its unused codes are 0.
 *
 * A block with a number that is not finite becomes NaN, so that such weights do not pass unseen.
 * Quantizing takes the nearest value; of two equally near ones, the smaller. Quantizing what was
 * dequantized gives the same bytes, because the largest magnitude of a block is exact.
 */
#ifndef PL_BASE_NUMBER_QUANTIZED_H
#define PL_BASE_NUMBER_QUANTIZED_H

#include "base/shared.h"
#include "plimsoll.h"

PL_SHARED_BEGIN

enum { PL_QUANT_BLOCK = 64, PL_QUANT_CODES = 256 };

typedef struct pl_quant_table {
    int codes; /* values in use */
    int bits;  /* of a code: 8 or 4 */
    float value[PL_QUANT_CODES];
    float middle[PL_QUANT_CODES]; /* between value[i] and value[i+1]; infinite from the last on */
} pl_quant_table;

/* Returns the table of a form, which is not NONE; it lives as long as the process. */
const pl_quant_table *pl_quantized(pl_quant form);
/* Returns the bytes of the codes of n elements; the scales begin there. */
int64_t pl_quant_code_bytes(pl_quant form, int64_t n);
/* Returns the bytes of n elements: codes and scales. */
int64_t pl_quant_bytes(pl_quant form, int64_t n);
/* Quantizes n elements that begin a block: writes the codes and scales of their blocks. */
void pl_quantize(pl_quant form, const float *x, int64_t n, uint8_t *codes, float *scales);
/* The reverse, with exactly the numbers that programs compute with. */
void pl_dequantize_blocks(pl_quant form, const uint8_t *codes, const float *scales, int64_t n,
                          float *x);

PL_SHARED_END

#endif
