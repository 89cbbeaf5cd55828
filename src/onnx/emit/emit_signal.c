/* emit_signal.c - Fourier transforms, windows, mel filters, determinants.
 *
 * A discrete Fourier transform is a product with a constant matrix. Its rows are the elements of
 * the signal, its columns the frequencies; a complex number has two rows or columns. A matrix of
 * more than MATRIX elements is refused. STFT multiplies overlapping frames of the signal by that
 * matrix, whose rows its window scales. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

enum { MATRIX = 1 << 23, DET_ROWS = 64 };

/* Input k: one whole number that is known at import and lies in [lo, hi]. */
static pl_status whole(pl_ox_call *c, int k, const char *what, int64_t fallback, int64_t lo,
                       int64_t hi, int64_t *out)
{
    double x;
    PL_TRY(pl_ox_in_number(c, k, what, (double)fallback, &x));
    if (!(x >= (double)lo && x <= (double)hi))
        return pl_ox_fail(c, PL_ERR_FILE, "%s is %g; it must lie between %lld and %lld", what, x,
                          (long long)lo, (long long)hi);
    *out = (int64_t)x;
    return PL_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */
/* Sets the output to a constant of the type that attribute output_datatype names, f32 if absent. */
static pl_status constant(pl_ox_call *c, int rank, const int64_t *dim, pl_ox_val **y)
{
    pl_dtype dtype = PL_F32;
    int32_t want = (int32_t)pl_ox_attr_int(c, "output_datatype", 1);
    if (!pl_ox_dtype(want, &dtype) || pl_ox_type_widened(pl_ox_type_name(want)))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "elements of type %s", pl_ox_type_name(want));
    *y = pl_ox_host_new(c->b, dtype, rank, dim);
    return pl_ox_set_val(c, 0, *y);
}

/* a0 - a1 cos(2 pi k / n) + a2 cos(4 pi k / n); n is the size, or the size less one if the window
 * is symmetric. */
static pl_status window(pl_ox_call *c, double a0, double a1, double a2)
{
    int64_t size;
    pl_ox_val *y = NULL;
    if (!pl_ox_has(c, 0)) return pl_ox_fail(c, PL_ERR_FILE, "input 0 is missing");
    PL_TRY(whole(c, 0, "size", 0, 1, PL_OX_HOST_ELEMS, &size));
    PL_TRY(constant(c, 1, &size, &y));
    double n = (double)(pl_ox_attr_int(c, "periodic", 1) ? size : size > 1 ? size - 1 : 1);
    for (int64_t k = 0; k < size; k++) {
        double at = 2 * M_PI * (double)k / n;
        pl_ox_host_put(y, k, a0 - a1 * cos(at) + a2 * cos(2 * at));
    }
    return PL_OK;
}

pl_status pl_ox_emit_hann_window(pl_ox_call *c)
{
    return window(c, 0.5, 0.5, 0);
}

pl_status pl_ox_emit_hamming_window(pl_ox_call *c)
{
    return window(c, 25.0 / 46, 21.0 / 46, 0);
}

pl_status pl_ox_emit_blackman_window(pl_ox_call *c)
{
    return window(c, 0.42, 0.5, 0.08);
}

/* Triangles over the bins of a spectrum. Their edges are equally far apart on the mel scale,
 * 2595 log10(1 + f / 700), and lie at whole bins. */
pl_status pl_ox_emit_mel_weight_matrix(pl_ox_call *c)
{
    int64_t mels, length, rate;
    double edge[2];
    pl_ox_val *y = NULL;
    for (int k = 0; k < 5; k++)
        if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
    PL_TRY(whole(c, 0, "num_mel_bins", 0, 1, 1 << 16, &mels));
    PL_TRY(whole(c, 1, "dft_length", 0, 1, 1 << 24, &length));
    PL_TRY(whole(c, 2, "sample_rate", 0, 1, INT32_MAX, &rate));
    PL_TRY(pl_ox_in_number(c, 3, "lower_edge_hertz", 0, &edge[0]));
    PL_TRY(pl_ox_in_number(c, 4, "upper_edge_hertz", 0, &edge[1]));
    int64_t dim[] = {length / 2 + 1, mels};
    if (dim[0] * mels > PL_OX_HOST_ELEMS)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "a matrix of %lld x %lld elements",
                          (long long)dim[0], (long long)mels);
    if (!(edge[0] >= 0 && edge[1] >= edge[0] && edge[1] <= (double)rate / 2))
        return pl_ox_fail(c, PL_ERR_FILE, "edges of %g and %g Hz; they must lie between 0 and %g",
                          edge[0], edge[1], (double)rate / 2);
    PL_TRY(constant(c, 2, dim, &y));
    for (int64_t k = 0; k < y->host.n; k++) pl_ox_host_put(y, k, 0);
    double low = 2595 * log10(1 + edge[0] / 700), high = 2595 * log10(1 + edge[1] / 700);
    int64_t at[3];
    for (int64_t m = 0; m < mels; m++) {
        for (int k = 0; k < 3; k++) {
            double mel = low + (double)(m + k) * (high - low) / (double)(mels + 2);
            double hertz = 700 * (pow(10, mel / 2595) - 1);
            at[k] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
            if (at[k] > dim[0]) at[k] = dim[0];
        }
        for (int64_t j = at[0]; j <= at[1] && j < dim[0]; j++)
            pl_ox_host_put(y, j * mels + m,
                           at[1] > at[0] ? (double)(j - at[0]) / (double)(at[1] - at[0]) : 1);
        for (int64_t j = at[1]; j < at[2]; j++)
            pl_ox_host_put(y, j * mels + m, (double)(at[2] - j) / (double)(at[2] - at[1]));
    }
    return PL_OK;
}

/* ---- Fourier transforms ---------------------------------------------------------------------- */
typedef struct transform {
    int64_t n;          /* length of the transform */
    int64_t in, out;    /* elements that it reads and writes; others are 0 */
    int parts, made;    /* parts of an element that is read or written: 1 real, 2 complex */
    bool inverse, half; /* half: of a real signal, the frequencies up to n / 2 */
} transform;

/* Sizes of a transform of `have` elements with `parts` parts. */
static pl_status plan_transform(pl_ox_call *c, transform *t, int64_t have, int64_t parts)
{
    if (parts != 1 && parts != 2)
        return pl_ox_fail(c, PL_ERR_SHAPE,
                          "the last dimension is %lld; it must be 1 (real) or 2 (complex)",
                          (long long)parts);
    t->parts = (int)parts;
    t->made = t->inverse && t->half ? 1 : 2;
    int64_t bins = t->n / 2 + 1, read = t->inverse && t->half ? bins : t->n;
    t->out = t->half && !t->inverse ? bins : t->n;
    t->in = have < read ? have : read;
    double size = (double)t->in * t->parts * (double)t->out * t->made;
    if (size > MATRIX)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "a transform of length %lld is a product with a matrix of %.0f elements; "
                          "at most %d are supported",
                          (long long)t->n, size, MATRIX);
    return PL_OK;
}

/* The matrix [in * parts, out * made], in f64 for f64 and in f32 otherwise; scale has a factor for
 * each row or is NULL. */
static pl_val matrix(pl_ox_call *c, const transform *t, pl_dtype dtype, const pl_ox_val *scale)
{
    int64_t dim[] = {t->in * t->parts, t->out * t->made};
    pl_ox_val *w = pl_ox_host_new(c->b, dtype == PL_F64 ? PL_F64 : PL_F32, 2, dim);
    if (!w) return pl_nn_fail(c->b->m, PL_ERR_MEMORY, "out of memory");
    double sign = t->inverse ? 1 : -1;
    for (int64_t j = 0; j < t->in; j++) {
        double by = t->inverse ? 1 / (double)t->n : 1;
        if (scale) by *= pl_ox_host_real(scale, j);
        /* A frequency of half a spectrum also represents its mirror image. */
        if (t->inverse && t->half && j && 2 * j != t->n) by *= 2;
        for (int64_t k = 0; k < t->out; k++) {
            double angle = 2 * M_PI * (double)(j * k % t->n) / (double)t->n;
            double re = by * cos(angle), im = by * sign * sin(angle);
            for (int p = 0; p < t->parts; p++)
                for (int q = 0; q < t->made; q++) /* (re + i im) x: i i = -1 */
                    pl_ox_host_put(w, (j * t->parts + p) * dim[1] + k * t->made + q,
                                   p == q ? re
                                   : p    ? -im
                                          : im);
        }
    }
    w->name = c->node->n_output ? c->node->output[0] : NULL;
    return pl_ox_any(c->b, w);
}

pl_status pl_ox_emit_dft(pl_ox_call *c)
{
    pl_graph *g = c->g;
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis, last;
    int64_t named = -2;
    transform t = {.inverse = pl_ox_attr_int(c, "inverse", 0) != 0,
                   .half = pl_ox_attr_int(c, "onesided", 0) != 0};
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    last = v->rank - 1;
    PL_TRY(whole(c, 2, "axis", -2, -PL_MAX_RANK, PL_MAX_RANK, &named));
    if (c->b->opset < 20) named = pl_ox_attr_int(c, "axis", 1);
    PL_TRY(pl_ox_axis_of(c, named, v->rank, &axis));
    if (axis == last) return pl_ox_fail(c, PL_ERR_SHAPE, "the axis is the one of complex parts");
    int64_t have = v->dim[axis], longest = (int64_t)1 << 31;
    PL_TRY(
        whole(c, 1, "dft_length", t.inverse && t.half ? 2 * (have - 1) : have, 1, longest, &t.n));
    PL_TRY(plan_transform(c, &t, have, v->dim[last]));
    int64_t before = 1, after = 1, dim[PL_MAX_RANK];
    for (int k = 0; k < axis; k++) before *= v->dim[k];
    for (int k = axis + 1; k < last; k++) after *= v->dim[k];
    if (t.in < have) x = pl_slice(g, x, axis, 0, t.in, 1);
    x = pl_ox_wide(g, x);
    if (after > 1) {
        x = pl_reshape(g, x, PL_DIMS(before, t.in, after, t.parts));
        x = pl_permute(g, x, (const int[]){0, 2, 1, 3});
    }
    x = pl_reshape(g, x, PL_DIMS(before * after, t.in * t.parts));
    x = pl_matmul(g, x, matrix(c, &t, v->dtype, NULL), false, false);
    if (after > 1) {
        x = pl_reshape(g, x, PL_DIMS(before, after, t.out, t.made));
        x = pl_permute(g, x, (const int[]){0, 2, 1, 3});
    }
    memcpy(dim, v->dim, sizeof dim);
    dim[axis] = t.out;
    dim[last] = t.made;
    return pl_ox_set(c, 0, pl_ox_cast(g, pl_reshape(g, x, v->rank, dim), v->dtype), NULL);
}

/* Sizes of STFT: frames of t->n elements, `step` apart. */
static pl_status frames_of(pl_ox_call *c, int64_t have, transform *t, int64_t *step,
                           int64_t *frames)
{
    const pl_ox_val *w = pl_ox_has(c, 2) ? c->in[2] : NULL;
    if (!pl_ox_has(c, 1)) return pl_ox_fail(c, PL_ERR_FILE, "input 1 is missing");
    PL_TRY(whole(c, 1, "frame_step", 0, 1, INT32_MAX, step));
    int64_t size = w && w->rank == 1 ? w->dim[0] : have;
    PL_TRY(whole(c, 3, "frame_length", size, 1, have, &t->n));
    if (w && (w->rank != 1 || size != t->n))
        return pl_ox_fail(c, PL_ERR_SHAPE, "a window of %lld elements for frames of %lld",
                          (long long)size, (long long)t->n);
    *frames = (have - t->n) / *step + 1;
    if ((double)*frames * (double)t->n > (double)MATRIX * 8)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%lld frames of %lld elements", (long long)*frames,
                          (long long)t->n);
    return PL_OK;
}

pl_status pl_ox_emit_stft(pl_ox_call *c)
{
    pl_graph *g = c->g;
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int64_t step = 1, frames = 1;
    transform t = {.half = pl_ox_attr_int(c, "onesided", 1) != 0};
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    if (v->rank != 2 && v->rank != 3)
        return pl_ox_fail(c, PL_ERR_SHAPE, "a signal of %d dimensions; 2 or 3 are wanted", v->rank);
    int64_t n = v->dim[0], have = v->dim[1];
    PL_TRY(frames_of(c, have, &t, &step, &frames));
    PL_TRY(plan_transform(c, &t, t.n, v->rank == 3 ? v->dim[2] : 1));
    pl_ox_val *w = pl_ox_has(c, 2) ? c->in[2] : NULL;
    bool known = w && pl_ox_known(c->b, w);
    pl_val m = matrix(c, &t, v->dtype, known ? w : NULL);
    if (w && !known) {
        pl_val by = pl_ox_cast(g, pl_ox_plain(c->b, w), pl_val_type(g, m).dtype);
        m = pl_reshape(g, m, PL_DIMS(t.n, t.parts * t.out * t.made));
        m = pl_mul(g, m, pl_reshape(g, by, PL_DIMS(t.n, 1)));
        m = pl_reshape(g, m, PL_DIMS(t.n * t.parts, t.out * t.made));
    }
    pl_type at = PL_TYPE(PL_I32, frames, t.n);
    pl_val index = pl_add(g, pl_scale(g, pl_iota(g, at, 0), (double)step), pl_iota(g, at, 1));
    x = pl_reshape(g, pl_ox_wide(g, x), PL_DIMS(n, have, t.parts));
    x = pl_take(g, pl_permute(g, x, (const int[]){1, 0, 2}), index); /* [frames, n, batch, parts] */
    x = pl_permute(g, x, (const int[]){2, 0, 1, 3});
    x = pl_matmul(g, pl_reshape(g, x, PL_DIMS(n * frames, t.n * t.parts)), m, false, false);
    x = pl_reshape(g, x, PL_DIMS(n, frames, t.out, t.made));
    return pl_ox_set(c, 0, pl_ox_cast(g, x, v->dtype), NULL);
}

/* ---- determinants ---------------------------------------------------------------------------- */
/* Elimination with the largest element of a column as pivot. Rows stay where they are: `free` is 1
 * for rows that were no pivot yet, and the number of free rows above a pivot gives the sign. */
pl_status pl_ox_emit_det(pl_ox_call *c)
{
    pl_graph *g = c->g;
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    int64_t n = v->rank > 1 ? v->dim[v->rank - 1] : 0;
    if (n < 1 || v->dim[v->rank - 2] != n)
        return pl_ox_fail(c, PL_ERR_SHAPE, "it needs square matrices");
    if (n > DET_ROWS)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "matrices of %lld rows; at most %d are supported",
                          (long long)n, DET_ROWS);
    int64_t batch = pl_ox_elems(v) / (n * n);
    x = pl_reshape(g, pl_ox_wide(g, x), PL_DIMS(batch, n, n));
    pl_dtype dtype = pl_val_type(g, x).dtype;
    pl_type rows = PL_TYPE(PL_I32, batch, n);
    pl_val row = pl_iota(g, rows, 1), det = pl_fill(g, PL_TYPE(dtype, batch, 1), 1);
    pl_val unused = pl_fill(g, PL_TYPE(dtype, batch, n), 1);
    for (int64_t k = 0; k < n; k++) {
        pl_val column = pl_reshape(g, pl_slice(g, x, 2, k, k + 1, 1), PL_DIMS(batch, n));
        /* free rows count from 0, others -1: a used row is never chosen */
        pl_val size = pl_shift(g, pl_mul(g, pl_shift(g, pl_abs(g, column), 1), unused), -1);
        pl_val best = pl_unsqueeze(g, pl_argmax(g, pl_stop_gradient(g, size), 1), 1);
        pl_val is = pl_ox_cast(g, pl_eq(g, row, best), dtype); /* [batch, n] */
        pl_val above = pl_ox_cast(g, pl_lt(g, row, best), dtype);
        pl_val passed = pl_sum(g, pl_mul(g, above, unused), PL_AXIS(1), true);
        pl_val odd = pl_sub(g, passed, pl_scale(g, pl_floor(g, pl_scale(g, passed, 0.5)), 2));
        pl_val pivot = pl_sum(g, pl_mul(g, column, is), PL_AXIS(1), true); /* [batch, 1] */
        det = pl_mul(g, det, pl_mul(g, pivot, pl_shift(g, pl_scale(g, odd, -2), 1)));
        if (k + 1 == n) break;
        unused = pl_sub(g, unused, is);
        pl_val none = pl_eq(g, pivot, pl_full_like(g, pivot, 0));
        pl_val by = pl_select(g, none, pl_full_like(g, pivot, 1), pivot);
        pl_val factor = pl_mul(g, pl_div(g, column, by), unused); /* 0 for used rows */
        pl_val chosen = pl_sum(g, pl_mul(g, x, pl_unsqueeze(g, is, 2)), PL_AXIS(1), true);
        x = pl_sub(g, x, pl_mul(g, pl_unsqueeze(g, factor, 2), chosen));
    }
    x = pl_reshape(g, det, v->rank - 2, v->dim);
    return pl_ox_set(c, 0, pl_ox_cast(g, x, v->dtype), NULL);
}
