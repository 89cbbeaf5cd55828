/* packed.h - numbers stored in blocks of 8-bit codes with a scale.
 *
 * A block of 256 numbers is a row of bytes: the codes, then the scale (f32), which is the largest
 * magnitude in the block. A number is value[code] * scale; value[] is sorted and lies in [-1, 1].
 * Packing takes the nearest value; of two equally near ones, the smaller.
 *
 *      | code 0 | code 1 | ... | code 255 | scale |
 *
 * The last block of a tensor may be partly used; its unused codes are 0. The values are those of
 * Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization": seven decades, with twice
 * as many values in each decade as in the decade below. In the table for numbers >= 0 a positive
 * number is never packed as zero, because the root of a second moment divides.
 */
#ifndef PL_BASE_NUMBER_PACKED_H
#define PL_BASE_NUMBER_PACKED_H

#include "base/shared.h"
#include "plimsoll.h"

/* GPU kernels make the same tables. */
#if defined(__CUDACC__)
# define PL_PACKED_INLINE static inline __host__ __device__
#else
# define PL_PACKED_INLINE static inline
#endif

PL_SHARED_BEGIN

/* codes of a table, numbers of a block, bytes of a block */
enum { PL_PACKED_CODES = 256, PL_PACKED_BLOCK = 256, PL_PACKED_BYTES = PL_PACKED_BLOCK + 4 };

typedef struct pl_packed_table {
    bool positive; /* numbers >= 0; those > 0 have a code > 0 */
    uint8_t zero;  /* the code of 0 */
    float value[PL_PACKED_CODES];
    float middle[PL_PACKED_CODES]; /* between value[i] and value[i+1]; the last one is infinite */
} pl_packed_table;

/* Positive value j: decade i is the interval from 10^(i-7) to 10^(i-6) in equal parts, each as its
 * middle; `first` is the number of parts of the lowest decade. */
PL_PACKED_INLINE double pl_packed_decade(int j, int first)
{
    int parts = first, i = 0;
    while (2 * parts <= j + first) {
        parts *= 2;
        i++;
    }
    double middle = 0.1 + 0.9 * (j + first - parts + 0.5) / parts;
    for (; i < 6; i++) middle /= 10;
    return middle;
}

/* Returns the value of a code, in ascending order of codes. Plain double operations: the same bits
 * on every device. */
PL_PACKED_INLINE float pl_packed_value(bool positive, int code)
{
    if (code == 255) return 1;
    if (positive) return code ? (float)pl_packed_decade(code - 1, 2) : 0;
    if (code == 127) return 0;
    double v = pl_packed_decade(code < 127 ? 126 - code : code - 128, 1);
    return (float)(code < 127 ? -v : v);
}

/* Returns the table for numbers >= 0, or for all; it lives as long as the process. */
const pl_packed_table *pl_packed(bool positive);
/* Returns the type of n packed numbers: u8[blocks, 260]. */
pl_type pl_packed_type(int64_t n);

PL_SHARED_END

#endif
