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

enum { PL_PACKED_CODES = 256, PL_PACKED_BLOCK = 256 }; /* the most codes, numbers of a block */

typedef struct pl_packed_table {
    int n, block, bits; /* codes; numbers of a block; bits of a code */
    bool positive;      /* numbers > 0 have a code > 0 */
    uint8_t zero;       /* the code of 0 */
    float value[PL_PACKED_CODES];
    float middle[PL_PACKED_CODES]; /* between value[i] and value[i+1]; infinite from n-1 on */
} pl_packed_table;

/* Returns the nearest power of two not above x >= 1, as its exponent. */
PL_PACKED_INLINE int pl_packed_log2(int x)
{
    int e = 0;
    while (x >> (e + 1)) e++;
    return e;
}

/* Value j of the positive values of dynamic8: decade i is the interval from 10^(i-7) to 10^(i-6) in
 * equal parts, each as its middle; `first` is the number of parts of the lowest decade. */
PL_PACKED_INLINE double pl_packed_decade(int j, int first)
{
    int e = pl_packed_log2(j + first), parts = 1 << e, i = first == 2 ? e - 1 : e;
    double middle = 0.1 + 0.9 * (j + first - parts + 0.5) / parts;
    for (int k = i; k < 6; k++) middle /= 10;
    return middle;
}

/* Number `code` of e4m3, code < 127. */
PL_PACKED_INLINE double pl_packed_e4m3(int code)
{
    int e = code >> 3, f = code & 7;
    double v = e ? 8 + f : f;
    for (int k = e ? e : 1; k < 10; k++) v /= 2;
    for (int k = 10; k < e; k++) v *= 2;
    return v;
}

PL_PACKED_INLINE double pl_packed_nf4(int code)
{
    const double values[16] = {-1.0,
                               -0.6961928009986877,
                               -0.5250730514526367,
                               -0.39491748809814453,
                               -0.28444138169288635,
                               -0.18477343022823334,
                               -0.09105003625154495,
                               0.0,
                               0.07958029955625534,
                               0.16093020141124725,
                               0.24611230194568634,
                               0.33791524171829224,
                               0.44070982933044434,
                               0.5626170039176941,
                               0.7229568362236023,
                               1.0};
    return values[code & 15];
}

/* Returns how many codes a packing has. */
PL_PACKED_INLINE int pl_packed_codes(pl_packing p)
{
    return p == PL_PACKING_NF4 ? 16 : p == PL_PACKING_FP8 ? 253 : p == PL_PACKING_INT8 ? 255 : 256;
}

/* Returns the value of a code, in ascending order of codes. Plain double operations: the same bits
 * on every device. */
PL_PACKED_INLINE float pl_packed_value(pl_packing p, int code)
{
    if (p == PL_PACKING_INT8) return (float)((code - 127) / 127.0);
    if (p == PL_PACKING_NF4) return (float)pl_packed_nf4(code);
    if (p == PL_PACKING_FP8) {
        double v = pl_packed_e4m3(code < 126 ? 126 - code : code - 126) / 448;
        return (float)(code < 126 ? -v : v);
    }
    if (code == 255) return 1;
    if (p == PL_PACKING_DYNAMIC8_POSITIVE) return code ? (float)pl_packed_decade(code - 1, 2) : 0;
    if (code == 127) return 0;
    double v = pl_packed_decade(code < 127 ? 126 - code : code - 128, 1);
    return (float)(code < 127 ? -v : v);
}

/* Returns the table of a packing; it lives as long as the process. */
const pl_packed_table *pl_packed(pl_packing p);
/* Returns the bytes of a block: codes, then the scale. */
size_t pl_packed_bytes(pl_packing p);
/* Returns the type of n packed numbers: u8[blocks, bytes of a block]. */
pl_type pl_packed_type(pl_packing p, int64_t n);

PL_SHARED_END

#endif
