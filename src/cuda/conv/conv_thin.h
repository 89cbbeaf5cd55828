/* conv_thin.h - shared by the two files of convolutions with few channels; see conv_thin.cu. */
#ifndef PL_CUDA_CONV_THIN_H
#define PL_CUDA_CONV_THIN_H

#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"

typedef struct pl_sides {
    int n, few, many;   /* channels */
    int fh, fw, mh, mw; /* pixels */
    int shift[2], taps, slices;
    int64_t step_m, step_t, step_f; /* of the filter */
    bool flip, wide;                /* wide: the many side lies at multiples of 16 bytes */
} pl_sides;

static __device__ __forceinline__ int64_t pl_filter_at(const pl_sides &s, int t, int m, int f)
{
    return m * s.step_m + (s.flip ? s.taps - 1 - t : t) * s.step_t + f * s.step_f;
}

/* On tensor cores: f16 and bf16, many a multiple of 32. conv_thin_mma.cu */
bool pl_conv_thin_mma_takes(const pl_conv_shape *c, const pl_sides *s);
/* Computes everything but the last sum of a filter's gradient, whose slices go to part. */
void pl_conv_thin_mma(const pl_conv_shape *c, const pl_sides *s, const void *a, const void *b,
                      const void *bias, void *out, float *part);

#endif
