/* packed.h - numbers stored in blocks of 8-bit or 4-bit codes.
 *
 * A block is a row of bytes: the codes of its numbers, then a scale (f32), the largest magnitude in
 * the block. A number is value[code] * scale; value[] is sorted and lies in [-1, 1]. Packing takes
 * the nearest value; of two equally near ones, the smaller.
 *
 *      | code 0 | code 1 | ... | code block-1 | scale |      4 bits: number 2i is the low half
 *
 * The last block of a tensor may be partly used; its unused codes are 0. The tables:
 *   dynamic8   Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization": seven decades,
 *              twice as many values in each decade as in the one below it. A positive number is
 *              never packed as zero: the root of a second moment divides.
 *   int8       k/127
 *   fp8        the finite numbers of e4m3, divided by the largest, 448
 *   nf4        Dettmers et al. 2023, "QLoRA": quantiles of a normal distribution
 */
#ifndef PL_BASE_PACKED_H
#define PL_BASE_PACKED_H

#include "base/shared.h"
#include "plimsoll.h"

PL_SHARED_BEGIN

enum { PL_PACKED_CODES = 256, PL_PACKED_BLOCK = 256 }; /* the most codes, numbers of a block */

typedef struct pl_packed_table {
    int n, block, bits; /* codes; numbers of a block; bits of a code */
    bool positive;      /* numbers > 0 have a code > 0 */
    uint8_t zero;       /* the code of 0 */
    float value[PL_PACKED_CODES];
    float middle[PL_PACKED_CODES]; /* between value[i] and value[i+1]; infinite from n-1 on */
} pl_packed_table;

/* Returns the table of a packing; it lives as long as the process. */
const pl_packed_table *pl_packed(pl_packing p);
/* Returns the bytes of a block: codes, then the scale. */
size_t pl_packed_bytes(pl_packing p);
/* Returns the type of n packed numbers: u8[blocks, bytes of a block]. */
pl_type pl_packed_type(pl_packing p, int64_t n);
/* "int8", "fp8", "nf4"; PL_PACKING_NONE for any other name. */
pl_packing pl_packing_parse(const char *name);

PL_SHARED_END

#endif
