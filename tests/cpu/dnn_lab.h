/* dnn_lab.h - runs oneDNN objects on memory with guard bytes, and measures results against double.
 */
#ifndef PL_TESTS_DNN_LAB_H
#define PL_TESTS_DNN_LAB_H

#include "cpu/dnn/dnn.h"
#include "tests/lib/guarded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n floats of noise; the caller frees them. */
float *dnn_noise(int64_t n, uint64_t seed);
/* The largest |a-b|, divided by the largest |b| or by the usual size of a sum of this many
 * random terms, whichever is larger: a sum that happens to cancel is not a measure. */
double dnn_worst(const float *a, const double *b, int64_t n, int64_t terms);
/* Runs d with a fresh workspace into out[]. False if d fails or touches a guard byte. */
bool dnn_run(pl_dnn *d, size_t work_bytes, const void *const *in, guarded_block *out, int n_out);

typedef pl_dnn_conv_desc conv;

/* Sizes of a convolution or pool in three dims; missing leading dims are 1. */
typedef struct geometry {
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t in_elems, out_elems, taps;
} geometry;

geometry dnn_geometry(int ns, const int64_t *in, const int64_t *out, const int64_t *kernel,
                      const int64_t *stride, const int64_t *dilation, const int64_t *pad);
/* Input position under tap k of output position p, all flattened; -1 in the padding. */
int64_t dnn_under(const geometry *g, int64_t p, int64_t k);
/* The definition, in double: out gets the result of `kind`; for gradients it starts as zeros. */
void dnn_naive_conv(pl_dnn_conv_kind kind, const conv *c, const float *x, const float *w,
                    const float *b, const float *dy, double *out);
/* A 2-d convolution of square kernels: k size, s stride, d dilation, lo and hi padding. */
conv dnn_conv2(int64_t n, int64_t h, int64_t w, int64_t ic, int64_t oc, int64_t groups, int64_t k,
               int64_t s, int64_t d, int64_t lo, int64_t hi);

#endif
