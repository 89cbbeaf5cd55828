/* window.h - the geometry of windows that slide over the spatial dims of [N, s.., C]: convolution,
 * pools, patches. Tap k of the window at output position p reads input position
 *     p*stride + k*dilation - pad_lo          (padding outside [0, in))
 * and the output size is
 *     (in + pad_lo + pad_hi - (kernel-1)*dilation - 1) / stride + 1.
 */
#ifndef PL_OPS_WINDOW_H
#define PL_OPS_WINDOW_H

#include "ir/op.h"
#include "plimsoll_ops.h"

PL_SHARED_BEGIN

/* The attributes of every windowed op; each op's table names the attributes that it has. Lists have
 * one entry per spatial dim, outermost first; pl_window_complete fills an empty list with its
 * default. */
typedef struct pl_window_attr {
    pl_dims stride, dilation, pad_lo, pad_hi; /* defaults 1, 1, 0, 0 */
    pl_dims kernel;                           /* where no operand has the window's size */
    pl_dims in;                               /* spatial size of the input, in ops that produce
                                               * it */
    int64_t groups;
    bool count_pad;
} pl_window_attr;

/* Always three spatial dims; missing leading ones are 1 (padding 0). */
typedef struct pl_window {
    int n_spatial;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
} pl_window;

/* Fills empty lists and checks all of them against n spatial dims. */
pl_status pl_window_complete(pl_window_attr *a, int n) PL_MUST_USE;
/* Checks a required list: n entries of at least 1. */
pl_status pl_window_need(const char *what, const pl_dims *d, int n) PL_MUST_USE;
/* Sets the output size along spatial dim d; an error when the window does not fit. */
pl_status pl_window_out(const pl_window_attr *a, int d, int64_t in, int64_t kernel,
                        int64_t *out) PL_MUST_USE;
/* Checks that a windowed op's [N, s.., C] operand has 1 to 3 spatial dims. */
pl_status pl_window_rank(const char *what, const pl_type *t) PL_MUST_USE;
/* in, out, kernel: n entries each. */
pl_window pl_window_make(const pl_window_attr *a, int n, const int64_t *in, const int64_t *out,
                         const int64_t *kernel);
/* Makes attributes from a constructor's options for n spatial dims; zeros mean defaults. */
pl_window_attr pl_window_from_conv(const pl_conv_opts *o, int n);

static inline int64_t pl_window_at(const pl_window *w, int d, int64_t p, int64_t k)
{
    return p * w->stride[d] + k * w->dilation[d] - w->pad_lo[d];
}

/* Returns the output position whose tap k reads input position i along d, or -1 if there is
 * none. */
static inline int64_t pl_window_from(const pl_window *w, int d, int64_t i, int64_t k)
{
    int64_t at = i + w->pad_lo[d] - k * w->dilation[d];
    if (at < 0) return -1;
    if (w->stride[d] != 1) { /* divisions are slow, and most strides are 1 */
        if (at % w->stride[d]) return -1;
        at /= w->stride[d];
    }
    return at < w->out[d] ? at : -1;
}

/* Splits flat index i into coordinates of a dense box of size[3]. */
static inline void pl_window_split(int64_t i, const int64_t *size, int64_t *p)
{
    p[2] = i % size[2];
    p[1] = i / size[2] % size[1];
    p[0] = i / size[2] / size[1];
}

/* Returns the flat input pixel that tap k[3] of output pixel p[3] reads, or -1 in the padding. */
static inline int64_t pl_window_reads(const pl_window *w, const int64_t *p, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t q = pl_window_at(w, d, p[d], k[d]);
        if (q < 0 || q >= w->in[d]) return -1;
        at = at * w->in[d] + q;
    }
    return at;
}

/* Returns the flat output pixel whose tap k[3] reads input pixel q[3], or -1. */
static inline int64_t pl_window_reader(const pl_window *w, const int64_t *q, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t p = pl_window_from(w, d, q[d], k[d]);
        if (p < 0) return -1;
        at = at * w->out[d] + p;
    }
    return at;
}

static inline int64_t pl_window_pixels(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static inline int64_t pl_window_taps(const pl_window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2];
}

PL_SHARED_END

/* ---- patches.c -------------------------------------------------------------------------- */
/* Whether a convolution of these operands is over patches and better computed as a product. */
bool pl_conv_of_patches(const pl_window_attr *a, const pl_type *x, const pl_type *w);
/* Builds such a convolution; bias may be PL_NO_VAL. */
pl_val pl_conv_patches(pl_graph *g, pl_val x, pl_val w, pl_val bias);

#endif
