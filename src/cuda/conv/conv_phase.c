/* conv_phase.c - a convolution as products: the windows that are the rows, and the terms of a row.
 *
 *   y, dw    windows of x, one for each pixel of y: taps times ic terms
 *   dx       windows of dy. With a stride the pixels of dx fall into phases that different taps
 *            reach; each phase is a separate problem:
 *
 *   stride 2, padding 1:   q = 0 2 4 ..  taps 1 3 ..       q = 1 3 5 ..  taps 0 2 ..
 */
#include "cuda/conv/conv.h"

#include <string.h>

static void forward_phase(const pl_conv_shape *c, pl_conv_phase *f)
{
    f->channels = c->ic;
    for (int d = 0; d < 3; d++) {
        f->columns.rows[d] = c->out[d];
        f->columns.taps[d] = c->kernel[d];
        f->columns.size[d] = c->in[d];
        f->columns.stride[d] = c->stride[d];
        f->columns.step[d] = c->dilation[d];
        f->columns.shift[d] = -c->pad_lo[d];
    }
}

/* Phase r of dx: pixels q with (q + pad) % stride == r, which taps r, r + stride, ... reach. */
static void backward_phase(const pl_conv_shape *c, int index, pl_conv_phase *f)
{
    f->channels = c->oc;
    for (int d = 2; d >= 0; d--) {
        int64_t s = c->stride[d], r = index % s, q = (r - c->pad_lo[d] % s + s) % s;
        index /= (int)s;
        f->first[d] = q;
        f->tap[d] = r;
        f->columns.rows[d] = c->in[d] > q ? (c->in[d] - q + s - 1) / s : 0;
        f->columns.taps[d] = (c->kernel[d] - r + s - 1) / s;
        f->columns.size[d] = c->out[d];
        f->columns.stride[d] = 1;
        f->columns.step[d] = -c->dilation[d]; /* dilation is 1 where there is a stride */
        f->columns.shift[d] = (q + c->pad_lo[d] - r) / s;
    }
}

bool pl_conv_phases_of(const pl_conv_shape *c, pl_conv_phase *out, int *n_out)
{
    bool back = c->kind == PL_CONV_DX;
    int64_t n = back ? pl_conv_pixels(c->stride) : 1;
    *n_out = 0;
    for (int d = 0; d < 3; d++)
        if (back && c->stride[d] > 1 && (c->dilation[d] != 1 || c->kernel[d] < c->stride[d]))
            return false;
    if (n > PL_CONV_PHASES) return false;
    for (int i = 0; i < n; i++) {
        pl_conv_phase *f = &out[*n_out];
        memset(f, 0, sizeof *f);
        if (back)
            backward_phase(c, i, f);
        else
            forward_phase(c, f);
        f->rows = c->n * pl_conv_pixels(f->columns.rows);
        f->columns.bytes = (int32_t)(f->channels * (int64_t)pl_dtype_bytes((pl_dtype)c->dtype));
        f->terms = pl_conv_pixels(f->columns.taps) * f->channels;
        if (f->rows > 0) ++*n_out;
    }
    return true;
}
