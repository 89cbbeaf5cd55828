/* strided.h - copies between strided layouts of one box of elements: permute, slice, concat, flip
 * and broadcast use it on the CPU.
 *
 * The copy chooses its loop: dims that are contiguous in both layouts merge, unit strides on both
 * sides become memcpy, a transposition uses cache-sized tiles, anything else goes element by
 * element. Large copies are spread over the thread pool; exactly one thread writes each element.
 */
#ifndef PL_CPU_STRIDED_H
#define PL_CPU_STRIDED_H

#include "plimsoll.h"

typedef struct pl_strided_box {
    int rank;
    int64_t dim[PL_MAX_RANK];
    int64_t to[PL_MAX_RANK], from[PL_MAX_RANK]; /* strides in elements; from may be 0 or negative */
} pl_strided_box;

/* Copies the box. dst and src point at the element with all coordinates 0; they do not overlap.
 * elem: bytes of an element, a power of two up to 8. */
void pl_strided_copy(const pl_strided_box *box, size_t elem, void *dst, const void *src);

/* Sets n elements to the element at value. */
void pl_strided_fill(void *dst, size_t elem, int64_t n, const void *value);

#endif
