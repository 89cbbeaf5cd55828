/* thin.h - the window half of a convolution with few channels on one side.
 *
 * A kernel that vectorises over channels wastes most of its lanes when a convolution has 1 to 8
 * channels on the vectorised side (an image at the network's end, the gradient of an image at its
 * start). Such a convolution is split in two: a 1x1 convolution between the wide channels and all
 * (tap, thin channel) pairs at once, which fills the lanes, and the functions here, which shift the
 * result by the taps' offsets. K = taps of the kernel; images are channels-last.
 *
 *   forward           z[q, o*K+k] = x[q,:] . w[o,k,:]
 *                     y[p,o]      = bias[o] + sum_k z[q(p,k), o*K+k]
 *   data gradient     z[p, k*I+i] = dy[p,:] . w[:,k,i]
 *                     dx[q,i]     = sum over (p,k) at q of z[p, k*I+i]
 *   weight gradient   g[q, o*K+k] = sum over p at (q,k) of dy[p,o]
 *                     dw[o*K+k,:] = sum_q g[q, o*K+k] x[q,:]
 *
 * where q(p,k) = p*stride + k*dilation - pad; positions outside contribute nothing. Each function
 * works on one image, and sums each output element in the same order for any number of threads.
 */
#ifndef PL_CPU_THIN_H
#define PL_CPU_THIN_H

#include <stdint.h>

/* Always three spatial dims; missing leading ones are 1. */
typedef struct pl_thin {
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t channels; /* of the thin side */
} pl_thin;

void pl_thin_sum_fwd(const pl_thin *t, const float *z, const float *bias, float *y);
void pl_thin_sum_data(const pl_thin *t, const float *z, float *dx);
void pl_thin_gather(const pl_thin *t, const float *dy, float *g);

#endif
