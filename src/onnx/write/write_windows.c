/* write_windows.c - pools, resizing and patches as ONNX nodes. */
#include "onnx/write/write.h"
#include "ops/core/attr.h"
#include "ops/net/window.h"

#include <math.h>
#include <string.h>

static void join(int n, const int64_t *lo, const int64_t *hi, int64_t *pads)
{
    for (int d = 0; d < n; d++) {
        pads[d] = lo[d];
        pads[n + d] = hi[d];
    }
}

/* ---- pools ----------------------------------------------------------------------------- */
/* The tap of the largest element, which max_pool has as a second result, serves gradients only. */
void pl_ow_write_max_pool(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    int rank = pl_type_of(w->g, pl_ow_arg(w, 0))->rank, n = rank - 2, first[PL_MAX_RANK];
    int64_t pads[6];
    if (w->used[pl_ow_result(w, 1)])
        pl_ow_fail(w, "its second result, the tap of the largest element, is used");
    join(n, a->pad_lo.v, a->pad_hi.v, pads);
    pl_ow_first(rank, first);
    const char *y =
        pl_ow_op(w, "MaxPool", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), first)),
                 OW_ATTRS(OW_INTS("kernel_shape", n, a->kernel.v),
                          OW_INTS("strides", n, a->stride.v), OW_INTS("pads", 2 * n, pads)));
    pl_ow_set(w, pl_ow_result(w, 0), y, first);
}

void pl_ow_write_avg_pool(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    int rank = pl_type_of(w->g, pl_ow_arg(w, 0))->rank, n = rank - 2, first[PL_MAX_RANK];
    int64_t pads[6];
    join(n, a->pad_lo.v, a->pad_hi.v, pads);
    pl_ow_first(rank, first);
    const char *y = pl_ow_op(
        w, "AveragePool", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), first)),
        OW_ATTRS(OW_INTS("kernel_shape", n, a->kernel.v), OW_INTS("strides", n, a->stride.v),
                 OW_INTS("pads", 2 * n, pads), OW_I("count_include_pad", a->count_pad)));
    pl_ow_set(w, pl_ow_result(w, 0), y, first);
}

/* A product with a matrix of weights along one dimension of the value: x [.., in, ..] becomes
 * [.., out, ..]. The result has this dimension last. */
static const char *along(pl_ow *w, const char *x, int rank, int axis, int64_t in, int64_t out,
                         const double *weight, int *order)
{
    int move[PL_MAX_RANK], n = 0, next[PL_MAX_RANK];
    for (int i = 0; i < rank; i++)
        if (order[i] != axis) move[n++] = i;
    for (int i = 0; i < rank; i++)
        if (order[i] == axis) move[n++] = i;
    for (int i = 0; i < rank; i++) next[i] = order[move[i]];
    x = pl_ow_transpose(w, x, rank, move);
    memcpy(order, next, (size_t)rank * sizeof *next);
    return pl_ow_2(
        w, "MatMul", x,
        pl_ow_numbers(w, PL_TYPE(pl_type_of(w->g, pl_ow_arg(w, 0))->dtype, in, out), weight));
}

/* Windows [floor(i S/O), ceil((i+1) S/O)) differ in size: one product per dimension. */
static const char *averaged(pl_ow *w, const char *x, const pl_type *t, const int64_t *size,
                            int *order)
{
    for (int d = 0; d < t->rank - 2; d++) {
        int64_t in = t->dim[1 + d], out = size[d];
        double *m = pl_arena_new(&w->mem, double, in *out + 1);
        if (!m) {
            w->status = PL_ERR_MEMORY;
            return x;
        }
        for (int64_t o = 0; o < out; o++) {
            int64_t lo = o * in / out, hi = ((o + 1) * in + out - 1) / out;
            for (int64_t i = lo; i < hi; i++) m[i * out + o] = 1.0 / (double)(hi - lo);
        }
        x = along(w, x, t->rank, 1 + d, in, out, m, order);
    }
    return x;
}

void pl_ow_write_adaptive_avg_pool(pl_ow *w)
{
    const pl_adaptive_attr *a = pl_ow_attr_of(w);
    const pl_type *t = pl_type_of(w->g, pl_ow_arg(w, 0));
    int n = t->rank - 2, order[PL_MAX_RANK];
    int64_t kernel[3] = {0};
    bool even = true;
    for (int d = 0; d < n; d++) {
        even &= t->dim[1 + d] % a->size.v[d] == 0;
        kernel[d] = t->dim[1 + d] / a->size.v[d];
    }
    pl_ow_first(t->rank, order);
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), order);
    const char *y =
        even ? pl_ow_op(w, "AveragePool", OW_IN(x),
                        OW_ATTRS(OW_INTS("kernel_shape", n, kernel), OW_INTS("strides", n, kernel)))
             : averaged(w, x, t, a->size.v, order);
    pl_ow_set(w, pl_ow_result(w, 0), y, order);
}

/* ---- resizing -------------------------------------------------------------------------- */
/* floor(i S/O) in the precision of the engine, as indices: runtimes round S/O in other ways. */
static const char *nearest(pl_ow *w, const char *x, const pl_type *t, const int64_t *size)
{
    for (int d = 0; d < t->rank - 2; d++) {
        int64_t in = t->dim[1 + d], out = size[d];
        int64_t *at = pl_arena_new(&w->mem, int64_t, out + 1);
        if (!at) {
            w->status = PL_ERR_MEMORY;
            return x;
        }
        for (int64_t i = 0; i < out; i++) {
            at[i] = (int64_t)floorf((float)i * ((float)in / (float)out));
            if (at[i] > in - 1) at[i] = in - 1;
        }
        if (in != out)
            x = pl_ow_op(w, "Gather", OW_IN(x, pl_ow_ints(w, out, at)),
                         OW_ATTRS(OW_I("axis", 2 + d)));
    }
    return x;
}

/* Cubic resizing as one product per dimension, for sizes that runtimes refuse: the weights of the
 * four neighbours with a = -0.75; positions past an edge read the edge. */
static const char *cubic(pl_ow *w, const char *x, const pl_type *t, const pl_resize_attr *a,
                         int *order)
{
    const double c = -0.75;
    for (int d = 0; d < t->rank - 2; d++) {
        int64_t in = t->dim[1 + d], out = a->size.v[d];
        double *m = pl_arena_new(&w->mem, double, in *out + 1);
        if (!m) {
            w->status = PL_ERR_MEMORY;
            return x;
        }
        for (int64_t o = 0; o < out; o++) {
            double step = a->align_corners ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0)
                                           : (double)in / (double)out;
            double at = a->align_corners ? (double)o * step : ((double)o + 0.5) * step - 0.5;
            for (int k = -1; k < 3; k++) {
                int64_t i = (int64_t)floor(at) + k, edge = i < 0 ? 0 : i >= in ? in - 1 : i;
                double r = fabs(at - (double)i);
                double near = ((c + 2) * r - (c + 3)) * r * r + 1;
                m[edge * out + o] += r <= 1 ? near : ((r - 5) * r + 8) * r * c - 4 * c;
            }
        }
        x = along(w, x, t->rank, 1 + d, in, out, m, order);
    }
    return x;
}

void pl_ow_write_resize(pl_ow *w)
{
    const pl_resize_attr *a = pl_ow_attr_of(w);
    const pl_type *t = pl_type_of(w->g, pl_ow_arg(w, 0));
    int n = t->rank - 2, first[PL_MAX_RANK];
    int64_t size[PL_MAX_RANK] = {t->dim[0], t->dim[n + 1]}, picture[4];
    bool even = true, larger = n < 3;
    pl_ow_first(t->rank, first);
    for (int d = 0; d < n; d++) {
        larger &= a->size.v[d] >= t->dim[1 + d];
        size[2 + d] = a->size.v[d];
        even &= a->size.v[d] % t->dim[1 + d] == 0;
    }
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), first);
    if (a->mode == PL_RESIZE_NEAREST && !even) {
        pl_ow_set(w, pl_ow_result(w, 0), nearest(w, x, t, a->size.v), first);
        return;
    }
    if (a->mode == PL_RESIZE_CUBIC && !larger) {
        const char *y = cubic(w, x, t, a, first);
        pl_ow_set(w, pl_ow_result(w, 0), y, first);
        return;
    }
    bool line = a->mode != PL_RESIZE_NEAREST && n == 1; /* as a picture of one row */
    memcpy(picture, (int64_t[]){t->dim[0], t->dim[n + 1], 1, t->dim[1]}, sizeof picture);
    if (line) x = pl_ow_reshape(w, x, 4, picture);
    picture[3] = a->size.v[0];
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    const char *how = a->mode == PL_RESIZE_NEAREST ? "asymmetric"
                      : a->align_corners           ? "align_corners"
                                                   : "half_pixel";
    const char *to = line ? pl_ow_ints(w, 4, picture) : pl_ow_ints(w, t->rank, size);
    const char *y = pl_ow_op(
        w, "Resize", OW_IN(x, "", "", to),
        OW_ATTRS(OW_TEXT("mode", modes[a->mode]), OW_TEXT("coordinate_transformation_mode", how),
                 OW_TEXT("nearest_mode", "floor"), OW_F("cubic_coeff_a", -0.75)));
    if (line) y = pl_ow_reshape(w, y, 3, size);
    pl_ow_set(w, pl_ow_result(w, 0), y, first);
}

/* ---- patches --------------------------------------------------------------------------- */
typedef struct patches {
    int n;
    int64_t out[3], taps, positions;
} patches;

static patches patches_of(const pl_window_attr *a, const int64_t *in)
{
    patches p = {.n = a->kernel.n, .taps = 1, .positions = 1};
    for (int d = 0; d < p.n; d++) {
        int64_t reach = (a->kernel.v[d] - 1) * a->dilation.v[d] + 1;
        p.out[d] = (in[d] + a->pad_lo.v[d] + a->pad_hi.v[d] - reach) / a->stride.v[d] + 1;
        p.taps *= a->kernel.v[d];
        p.positions *= p.out[d];
    }
    return p;
}

/* One strided slice for each tap, end to end. */
void pl_ow_write_unfold(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    const pl_type *t = pl_type_of(w->g, pl_ow_arg(w, 0)), *y = pl_type_of(w->g, pl_ow_result(w, 0));
    patches p = patches_of(a, t->dim + 1);
    int64_t pads[2 * PL_MAX_RANK] = {0}, axes[3], lo[3], hi[3];
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL);
    const char **tap = pl_arena_new(&w->mem, const char *, p.taps + 1);
    if (!tap) {
        w->status = PL_ERR_MEMORY;
        return;
    }
    for (int d = 0; d < p.n; d++) {
        pads[1 + d] = a->pad_lo.v[d];
        pads[t->rank + 1 + d] = a->pad_hi.v[d];
        axes[d] = 1 + d;
    }
    x = pl_ow_op(w, "Pad", OW_IN(x, pl_ow_ints(w, 2 * t->rank, pads), pl_ow_number(w, t->dtype, 0)),
                 NULL);
    for (int64_t k = 0; k < p.taps; k++) {
        int64_t left = k;
        for (int d = p.n - 1; d >= 0; d--) {
            lo[d] = left % a->kernel.v[d] * a->dilation.v[d];
            hi[d] = lo[d] + (p.out[d] - 1) * a->stride.v[d] + 1;
            left /= a->kernel.v[d];
        }
        tap[k] = pl_ow_op(w, "Slice",
                          OW_IN(x, pl_ow_ints(w, p.n, lo), pl_ow_ints(w, p.n, hi),
                                pl_ow_ints(w, p.n, axes), pl_ow_ints(w, p.n, a->stride.v)),
                          NULL);
    }
    x = pl_ow_op(w, "Concat", tap, OW_ATTRS(OW_I("axis", t->rank - 1)));
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_reshape(w, x, 3, y->dim), NULL);
}

/* A transposed convolution, one group per channel, whose filter k has a 1 at tap k alone. */
void pl_ow_write_fold(pl_ow *w)
{
    static const int turn[] = {0, 3, 2, 1};
    const pl_window_attr *a = pl_ow_attr_of(w);
    const pl_type *t = pl_type_of(w->g, pl_ow_arg(w, 0)), *y = pl_type_of(w->g, pl_ow_result(w, 0));
    patches p = patches_of(a, a->in.v);
    int64_t channels = y->dim[y->rank - 1], rows[4] = {t->dim[0], p.positions, p.taps, channels};
    int64_t maps[5] = {t->dim[0], channels * p.taps}, filter[5] = {channels * p.taps, 1};
    int64_t pads[6], extra[3] = {0};
    int first[PL_MAX_RANK];
    double *one = pl_arena_new(&w->mem, double, channels *p.taps *p.taps + 1);
    if (!one) {
        w->status = PL_ERR_MEMORY;
        return;
    }
    for (int64_t i = 0; i < channels * p.taps; i++) one[i * p.taps + i % p.taps] = 1;
    for (int d = 0; d < p.n; d++) {
        maps[2 + d] = p.out[d];
        filter[2 + d] = a->kernel.v[d];
        extra[d] = a->in.v[d] -
                   ((p.out[d] - 1) * a->stride.v[d] + a->dilation.v[d] * (a->kernel.v[d] - 1) + 1 -
                    a->pad_lo.v[d] - a->pad_hi.v[d]);
    }
    join(p.n, a->pad_lo.v, a->pad_hi.v, pads);
    pl_ow_first(y->rank, first);
    const char *x = pl_ow_reshape(w, pl_ow_in(w, pl_ow_arg(w, 0), NULL), 4, rows);
    x = pl_ow_reshape(w, pl_ow_transpose(w, x, 4, turn), 2 + p.n, maps);
    const char *k = pl_ow_numbers(w, pl_type_make(t->dtype, 2 + p.n, filter), one);
    x = pl_ow_op(w, "ConvTranspose", OW_IN(x, k),
                 OW_ATTRS(OW_INTS("kernel_shape", p.n, a->kernel.v),
                          OW_INTS("strides", p.n, a->stride.v),
                          OW_INTS("dilations", p.n, a->dilation.v), OW_INTS("pads", 2 * p.n, pads),
                          OW_INTS("output_padding", p.n, extra), OW_I("group", channels)));
    pl_ow_set(w, pl_ow_result(w, 0), x, first);
}
