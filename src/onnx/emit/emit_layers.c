/* emit_layers.c - products, convolutions and pools.
 *
 * Convolutions and pools work channels-last: [N, s.., C] with weights [O, k.., I]; an operand in
 * another order is permuted. auto_pad and ceil_mode become explicit padding. */
#include "onnx/emit/emit.h"

#include <math.h>
#include <string.h>

/* ---- products -------------------------------------------------------------------------------- */
/* The operand of a product, rank >= 2. Sets *swapped instead of permuting when only the last two
 * dimensions are swapped. */
static pl_val factor(pl_ox_build *b, pl_ox_val *v, bool *swapped)
{
    pl_ox_any(b, v);
    int r = v->rank, perm[PL_MAX_RANK];
    for (int i = 0; i < r; i++) perm[i] = i;
    *swapped = r >= 2 && pl_ox_axis(v, r - 1) < pl_ox_axis(v, r - 2) && v->dim[r - 1] != 1 &&
               v->dim[r - 2] != 1;
    if (*swapped) {
        perm[r - 1] = r - 2;
        perm[r - 2] = r - 1;
    }
    return pl_ox_ordered(b, v, r, perm);
}

/* x with its last two dimensions swapped. */
static pl_val swapped(pl_graph *g, pl_val x, int rank)
{
    int perm[PL_MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    return pl_permute(g, x, perm);
}

/* The engine's products are of floats. Whole numbers are multiplied as [.., m, k, 1] and
 * [.., 1, k, n] and summed over k, which is exact and one fused kernel. */
pl_val pl_ox_product(pl_graph *g, pl_val x, pl_val y, bool tx, bool ty)
{
    if (!pl_val_ok(x) || !pl_val_ok(y)) return PL_NO_VAL;
    pl_type a = pl_val_type(g, x), b = pl_val_type(g, y);
    bool whole = (a.dtype == PL_I32 || a.dtype == PL_I64) && a.dtype == b.dtype;
    int rank = a.rank > b.rank ? a.rank : b.rank;
    if (!whole || a.rank < 2 || b.rank < 2 || rank + 1 > PL_MAX_RANK)
        return pl_matmul(g, x, y, tx, ty);
    if (tx) x = swapped(g, x, a.rank);
    if (ty) y = swapped(g, y, b.rank);
    pl_val z = pl_mul(g, pl_unsqueeze(g, x, a.rank), pl_unsqueeze(g, y, b.rank - 2));
    return pl_sum(g, z, UINT32_C(1) << (rank - 1), false);
}

pl_status pl_ox_emit_matmul(pl_ox_call *c)
{
    pl_ox_val *a = NULL, *b = NULL;
    pl_val x = PL_NO_VAL, y = PL_NO_VAL;
    bool ta, tb;
    PL_TRY(pl_ox_input(c, 0, &a, &x));
    PL_TRY(pl_ox_input(c, 1, &b, &y));
    if (!a->rank || !b->rank) return pl_ox_fail(c, PL_ERR_SHAPE, "a factor is a scalar");
    pl_graph *g = c->g;
    x = factor(c->b, a, &ta);
    y = factor(c->b, b, &tb);
    if (a->rank == 1) x = pl_reshape(g, x, PL_DIMS(1, a->dim[0]));
    if (b->rank == 1) y = pl_reshape(g, y, PL_DIMS(b->dim[0], 1));
    pl_val z = pl_ox_product(g, x, y, ta, tb);
    if (!pl_val_ok(z)) return pl_ox_set(c, 0, z, NULL);
    pl_type t = pl_val_type(g, z);
    if (a->rank == 1 || b->rank == 1) {
        int64_t dim[PL_MAX_RANK];
        int n = 0;
        for (int i = 0; i < t.rank; i++) {
            if (i == t.rank - 2 && a->rank == 1) continue;
            if (i == t.rank - 1 && b->rank == 1) continue;
            dim[n++] = t.dim[i];
        }
        z = pl_reshape(g, z, n, dim);
    }
    return pl_ox_set(c, 0, z, NULL);
}

pl_status pl_ox_emit_gemm(pl_ox_call *c)
{
    pl_ox_val *a = NULL, *b = NULL;
    pl_val x = PL_NO_VAL, y = PL_NO_VAL;
    bool ta, tb;
    PL_TRY(pl_ox_input(c, 0, &a, &x));
    PL_TRY(pl_ox_input(c, 1, &b, &y));
    if (a->rank != 2 || b->rank != 2)
        return pl_ox_fail(c, PL_ERR_SHAPE, "factors of %d and %d dimensions", a->rank, b->rank);
    double alpha = pl_ox_attr_float(c, "alpha", 1), beta = pl_ox_attr_float(c, "beta", 1);
    x = factor(c->b, a, &ta);
    y = factor(c->b, b, &tb);
    ta ^= pl_ox_attr_int(c, "transA", 0) != 0;
    tb ^= pl_ox_attr_int(c, "transB", 0) != 0;
    pl_graph *g = c->g;
    bool bias = pl_ox_has(c, 2) && beta != 0;
    bool vector = bias && beta == 1 && alpha == 1 && c->in[2]->rank == 1 && !ta && tb &&
                  pl_dtype_is_float(a->dtype);
    if (vector && c->in[2]->dim[0] == b->dim[pl_ox_attr_int(c, "transB", 0) ? 0 : 1])
        return pl_ox_set(c, 0, pl_linear(g, x, y, pl_ox_plain(c->b, c->in[2])), NULL);
    pl_val z = pl_ox_product(g, x, y, ta, tb), d = bias ? pl_ox_plain(c->b, c->in[2]) : PL_NO_VAL;
    bool exact = pl_dtype_is_float(a->dtype) || (alpha == 1 && beta == 1); /* or cut at the end */
    if (!exact) z = pl_cast(g, z, PL_F64);
    if (!exact && bias) d = pl_cast(g, d, PL_F64);
    if (alpha != 1) z = pl_scale(g, z, alpha);
    if (bias) z = pl_add(g, z, beta == 1 ? d : pl_scale(g, d, beta));
    return pl_ox_set(c, 0, exact ? z : pl_cast(g, z, a->dtype), NULL);
}

/* ---- windows --------------------------------------------------------------------------------- */
/* Kernel, stride, dilation and padding of n spatial dimensions, from attributes. */
typedef struct window {
    int n;
    int64_t kernel[3], stride[3], dilation[3], lo[3], hi[3];
    bool same_upper, same_lower;
} window;

static pl_status read_window(pl_ox_call *c, int n, const int64_t *kernel, window *w)
{
    int count;
    *w = (window){.n = n};
    if (n < 1 || n > 3)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d spatial dimensions; 1 to 3 are supported", n);
    for (int i = 0; i < n; i++) {
        w->kernel[i] = kernel ? kernel[i] : 1;
        w->stride[i] = w->dilation[i] = 1;
    }
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "pads"};
    for (int k = 0; k < 4; k++) {
        const int64_t *p = pl_ox_attr_ints(c, names[k], &count);
        if (!p || !count) continue;
        if (count != (k == 3 ? 2 * n : n))
            return pl_ox_fail(c, PL_ERR_FILE, "%s has %d numbers for %d dimensions", names[k],
                              count, n);
        int64_t *to[] = {w->kernel, w->stride, w->dilation, w->lo};
        for (int i = 0; i < n; i++) to[k][i] = p[i];
        for (int i = 0; i < n && k == 3; i++) w->hi[i] = p[n + i];
    }
    if (!kernel && !pl_ox_attr_find(c, "kernel_shape"))
        return pl_ox_fail(c, PL_ERR_FILE, "attribute kernel_shape is missing");
    for (int i = 0; i < n && kernel; i++)
        if (w->kernel[i] != kernel[i])
            return pl_ox_fail(c, PL_ERR_FILE, "kernel_shape says %lld, the weight has %lld",
                              (long long)w->kernel[i], (long long)kernel[i]);
    int64_t groups = pl_ox_attr_int(c, "group", 1);
    if (groups < 1 || groups > 1 << 24)
        return pl_ox_fail(c, PL_ERR_FILE, "group is %lld", (long long)groups);
    for (int i = 0; i < n; i++)
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->kernel[i] > 1 << 20 ||
            w->stride[i] > 1 << 20 || w->dilation[i] > 1 << 20 || w->lo[i] < 0 || w->hi[i] < 0 ||
            w->lo[i] > 1 << 20 || w->hi[i] > 1 << 20)
            return pl_ox_fail(c, PL_ERR_FILE,
                              "kernel, stride, dilation or padding is out of range");
    w->same_upper = pl_ox_attr_is(c, "auto_pad", "NOTSET", "SAME_UPPER");
    w->same_lower = pl_ox_attr_is(c, "auto_pad", "NOTSET", "SAME_LOWER");
    if (pl_ox_attr_is(c, "auto_pad", "NOTSET", "VALID"))
        memset(w->lo, 0, sizeof w->lo), memset(w->hi, 0, sizeof w->hi);
    return PL_OK;
}

/* Padding of SAME_UPPER and SAME_LOWER: as many windows as ceil(size / stride). */
static void pad_same(window *w, const int64_t *size)
{
    for (int i = 0; i < w->n && (w->same_upper || w->same_lower); i++) {
        int64_t out = (size[i] + w->stride[i] - 1) / w->stride[i];
        int64_t all = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - size[i];
        if (all < 0) all = 0;
        w->lo[i] = w->same_upper ? all / 2 : all - all / 2;
        w->hi[i] = all - w->lo[i];
    }
}

static pl_conv_opts conv_opts(const window *w, int64_t groups)
{
    pl_conv_opts o = {.groups = (int)groups};
    for (int i = 0; i < w->n; i++) {
        o.stride[i] = (int)w->stride[i];
        o.dilation[i] = (int)w->dilation[i];
        o.pad_lo[i] = (int)w->lo[i];
        o.pad_hi[i] = (int)w->hi[i];
    }
    return o;
}

static pl_status set_last(pl_ox_call *c, int k, pl_val y, int rank)
{
    int perm[PL_MAX_RANK];
    pl_ox_last_perm(rank, perm);
    return pl_ox_set(c, k, y, perm);
}

/* Returns the bias of a convolution. Exporters compute zeros for a layer without a bias, and
 * torch's dynamo exporter gives them the shape [C,2] for Conv3d. Computed zeros are therefore left
 * out; zeros that the file stores are a bias. */
static pl_val read_bias(pl_ox_call *c)
{
    if (!pl_ox_has(c, 2)) return PL_NO_VAL;
    const pl_ox_val *v = c->in[2];
    bool zeros = v->known && !v->init && v->host.d;
    for (int64_t i = 0; zeros && i < v->host.n; i++) zeros = v->host.d[i] == 0;
    return zeros ? PL_NO_VAL : pl_ox_plain(c->b, c->in[2]);
}

pl_status pl_ox_emit_conv(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *f = NULL;
    pl_val x = PL_NO_VAL, y = PL_NO_VAL;
    window w;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input(c, 1, &f, &y));
    if (f->rank != v->rank || v->rank < 3)
        return pl_ox_fail(c, PL_ERR_SHAPE, "an input of %d and a weight of %d dimensions", v->rank,
                          f->rank);
    PL_TRY(read_window(c, v->rank - 2, f->dim + 2, &w));
    pad_same(&w, v->dim + 2);
    pl_conv_opts o = conv_opts(&w, pl_ox_attr_int(c, "group", 1));
    pl_val bias = read_bias(c);
    y = pl_conv(c->g, pl_ox_last(c->b, v), pl_ox_last(c->b, f), bias, &o);
    return set_last(c, 0, y, v->rank);
}

pl_status pl_ox_emit_conv_transpose(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *f = NULL;
    pl_val x = PL_NO_VAL, y = PL_NO_VAL;
    window w;
    int n_out, n_more;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input(c, 1, &f, &y));
    if (f->rank != v->rank || v->rank < 3)
        return pl_ox_fail(c, PL_ERR_SHAPE, "an input of %d and a weight of %d dimensions", v->rank,
                          f->rank);
    PL_TRY(read_window(c, v->rank - 2, f->dim + 2, &w));
    const int64_t *more = pl_ox_attr_ints(c, "output_padding", &n_more);
    const int64_t *want = pl_ox_attr_ints(c, "output_shape", &n_out);
    int out_pad[3] = {0};
    for (int i = 0; i < w.n; i++) {
        int64_t extra = more && i < n_more ? more[i] : 0;
        int64_t full = (v->dim[2 + i] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
        int64_t size = want && n_out >= w.n           ? want[n_out - w.n + i]
                       : w.same_upper || w.same_lower ? v->dim[2 + i] * w.stride[i]
                                                      : -1;
        if (size >= 0) {
            int64_t all = full + extra - size;
            if (all < 0) extra -= all, all = 0;
            w.lo[i] = w.same_upper || !w.same_lower ? all / 2 : all - all / 2;
            w.hi[i] = all - w.lo[i];
        }
        if (extra < 0 || extra > 1 << 20)
            return pl_ox_fail(c, PL_ERR_FILE, "output padding of %lld", (long long)extra);
        out_pad[i] = (int)extra;
    }
    pl_conv_opts o = conv_opts(&w, pl_ox_attr_int(c, "group", 1));
    pl_val bias = read_bias(c);
    y = pl_conv_transpose(c->g, pl_ox_last(c->b, v), pl_ox_last(c->b, f), bias, &o, out_pad);
    return set_last(c, 0, y, v->rank);
}

/* Adds what ceil_mode needs behind: padding that makes the last, partial window whole. A window
 * that would begin in the padding behind does not count. */
static void pad_ceil(const pl_ox_call *c, window *w, const int64_t *size, int64_t *extra)
{
    for (int i = 0; i < w->n; i++) {
        extra[i] = 0;
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t room = size[i] + w->lo[i] + w->hi[i] - span;
        if (!pl_ox_attr_int(c, "ceil_mode", 0) || room < 0) continue;
        int64_t out = (room + w->stride[i] - 1) / w->stride[i] + 1;
        if ((out - 1) * w->stride[i] >= size[i] + w->lo[i]) out--;
        int64_t need = (out - 1) * w->stride[i] - room;
        if (need > 0) extra[i] = need;
    }
}

/* Reads the operand of a pool, channels last, and its window with all padding. */
static pl_status read_pool(pl_ox_call *c, pl_ox_val **v, pl_val *x, window *w, int64_t *extra)
{
    PL_TRY(pl_ox_input(c, 0, v, x));
    PL_TRY(read_window(c, (*v)->rank - 2, NULL, w));
    pad_same(w, (*v)->dim + 2);
    pad_ceil(c, w, (*v)->dim + 2, extra);
    *x = pl_ox_last(c->b, *v);
    return PL_OK;
}

static pl_pool_opts pool_opts(const window *w, const int64_t *extra)
{
    pl_pool_opts o = {0};
    for (int i = 0; i < w->n; i++) {
        o.kernel[i] = (int)w->kernel[i];
        o.stride[i] = (int)w->stride[i];
        o.pad_lo[i] = (int)w->lo[i];
        o.pad_hi[i] = (int)(w->hi[i] + extra[i]);
    }
    return o;
}

static bool dilated(const window *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->dilation[i] > 1) return true;
    return false;
}

/* Pools with dilation, or with padding larger than half the kernel, axis by axis: the shifted
 * slices of the padded input are joined by max or add. */
static pl_val pool_by_slices(pl_ox_call *c, pl_val x, const window *w, const int64_t *extra,
                             double value, bool max)
{
    pl_graph *g = c->g;
    for (int i = 0; i < w->n; i++) {
        int axis = 1 + i;
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        x = pl_pad(g, x, axis, w->lo[i], w->hi[i] + extra[i], 0, value);
        int64_t size = pl_val_type(g, x).dim[axis], out = (size - span) / w->stride[i] + 1;
        pl_val y = PL_NO_VAL;
        for (int64_t k = 0; k < w->kernel[i]; k++) {
            int64_t from = k * w->dilation[i];
            pl_val part =
                pl_slice(g, x, axis, from, from + (out - 1) * w->stride[i] + 1, w->stride[i]);
            y = !pl_val_ok(y) ? part : max ? pl_max(g, y, part) : pl_add(g, y, part);
        }
        x = y;
    }
    return x;
}

/* The largest element of each window and its number in the tensor: row-major in the logical order
 * (columns: the last two spatial dimensions swapped). Windows are walked position by position. */
static pl_status max_with_index(pl_ox_call *c, const pl_ox_val *v, pl_val x, const window *w,
                                const int64_t *extra)
{
    pl_graph *g = c->g;
    int rank = v->rank, perm[PL_MAX_RANK];
    pl_ox_last_perm(rank, perm);
    pl_type t = pl_val_type(g, x);
    t.dtype = PL_I64;
    bool columns = pl_ox_attr_int(c, "storage_order", 0) != 0;
    pl_val at = PL_NO_VAL, best = PL_NO_VAL, where = PL_NO_VAL;
    int64_t stride = 1, count = 1;
    for (int d = rank - 1; d >= 0; d--) {
        int logical = columns && d >= 2 ? rank + 1 - d : d, axis = 0;
        while (perm[axis] != logical) axis++;
        pl_val part = pl_scale(g, pl_iota(g, t, axis), (double)stride);
        at = pl_val_ok(at) ? pl_add(g, at, part) : part;
        stride *= v->dim[logical];
    }
    for (int i = 0; i < w->n; i++) {
        x = pl_pad(g, x, 1 + i, w->lo[i], w->hi[i] + extra[i], 0, -HUGE_VAL);
        at = pl_pad(g, at, 1 + i, w->lo[i], w->hi[i] + extra[i], 0, 0);
        count *= w->kernel[i];
    }
    if (count > 4096) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "indices of so large windows");
    for (int64_t k = 0; k < count; k++) {
        pl_val y = x, i = at;
        int64_t rest = k;
        for (int d = w->n - 1; d >= 0; d--) {
            int64_t size = pl_val_type(g, x).dim[1 + d],
                    from = rest % w->kernel[d] * w->dilation[d];
            int64_t out = (size - (w->kernel[d] - 1) * w->dilation[d] - 1) / w->stride[d] + 1;
            int64_t to = from + (out - 1) * w->stride[d] + 1;
            y = pl_slice(g, y, 1 + d, from, to, w->stride[d]);
            i = pl_slice(g, i, 1 + d, from, to, w->stride[d]);
            rest /= w->kernel[d];
        }
        if (!k) {
            best = y;
            where = i;
            continue;
        }
        pl_val more = pl_gt(g, y, best);
        best = pl_select(g, more, y, best);
        where = pl_select(g, more, i, where);
    }
    PL_TRY(set_last(c, 0, best, rank));
    return set_last(c, 1, where, rank);
}

pl_status pl_ox_emit_max_pool(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    window w;
    int64_t extra[3];
    PL_TRY(read_pool(c, &v, &x, &w, extra));
    if (c->n_out > 1 && c->node->output[1] && c->node->output[1][0])
        return max_with_index(c, v, x, &w, extra);
    pl_pool_opts o = pool_opts(&w, extra);
    pl_val y;
    if (!pl_dtype_is_float(v->dtype)) { /* whole numbers below 2^24 */
        y = pool_by_slices(c, pl_cast(c->g, x, PL_F32), &w, extra, -HUGE_VAL, true);
        y = pl_cast(c->g, y, v->dtype);
    } else if (dilated(&w))
        y = pool_by_slices(c, x, &w, extra, -HUGE_VAL, true);
    else
        y = pl_max_pool(c->g, x, &o);
    return set_last(c, 0, y, v->rank);
}

pl_status pl_ox_emit_max_unpool(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *index = NULL;
    pl_val x = PL_NO_VAL, i = PL_NO_VAL;
    window w;
    const int64_t *want = NULL;
    int n = 0;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &index, &i));
    PL_TRY(read_window(c, v->rank - 2, NULL, &w));
    if (pl_ox_has(c, 2)) PL_TRY(pl_ox_in_ints(c, 2, "output shape", &want, &n));
    int64_t dim[PL_MAX_RANK], own[PL_MAX_RANK], all = 1, count = pl_ox_elems(v);
    for (int d = 0; d < v->rank; d++) {
        int s = d - 2;
        own[d] =
            d < 2 ? v->dim[d] : (v->dim[d] - 1) * w.stride[s] - w.lo[s] - w.hi[s] + w.kernel[s];
        dim[d] = want && n == v->rank ? want[d] : own[d];
        all *= own[d];
    }
    pl_graph *g = c->g;
    pl_val y = pl_scatter_add(g, pl_reshape(g, x, PL_DIMS(count, 1)),
                              pl_reshape(g, i, PL_DIMS(count)), all);
    y = pl_reshape(g, y, v->rank, own);
    for (int d = 0; d < v->rank; d++) {
        if (dim[d] < own[d]) return pl_ox_fail(c, PL_ERR_SHAPE, "the output shape is too small");
        if (dim[d] > own[d]) y = pl_pad(g, y, d, 0, dim[d] - own[d], 0, 0);
    }
    return pl_ox_set(c, 0, y, NULL);
}

pl_status pl_ox_emit_average_pool(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    window w;
    int64_t extra[3], none[3] = {0};
    PL_TRY(read_pool(c, &v, &x, &w, extra));
    bool count_pad = pl_ox_attr_int(c, "count_include_pad", 0) != 0, ceil = false;
    for (int i = 0; i < w.n; i++) ceil |= extra[i] > 0;
    if (!dilated(&w) && !(ceil && count_pad)) {
        pl_pool_opts o = pool_opts(&w, ceil ? extra : none);
        o.count_pad = count_pad;
        return set_last(c, 0, pl_avg_pool(c->g, x, &o), v->rank);
    }
    /* sum of the window over the number of elements that count: those of the input, and with
     * count_pad those of the padding, but never those that ceil_mode adds */
    pl_type t = pl_val_type(c->g, x);
    window inner = w, rest = w;
    t.dim[0] = t.dim[t.rank - 1] = 1;
    pl_val ones = pl_fill(c->g, t, 1);
    for (int i = 0; i < w.n && count_pad; i++) {
        ones = pl_pad(c->g, ones, 1 + i, w.lo[i], w.hi[i], 0, 1);
        rest.lo[i] = rest.hi[i] = 0;
    }
    pl_val sum = pool_by_slices(c, x, &inner, extra, 0, false);
    pl_val count = pool_by_slices(c, ones, &rest, extra, 0, false);
    return set_last(c, 0, pl_div(c->g, sum, count), v->rank);
}

pl_status pl_ox_emit_lp_pool(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    window w;
    int64_t extra[3];
    PL_TRY(read_pool(c, &v, &x, &w, extra));
    double p = (double)pl_ox_attr_int(c, "p", 2);
    pl_graph *g = c->g;
    x = pl_abs(g, x);
    pl_val power = p == 2 ? pl_square(g, x) : pl_pow(g, x, pl_full_like(g, x, p));
    pl_val y = pool_by_slices(c, power, &w, extra, 0, false);
    y = p == 2 ? pl_sqrt(g, y) : pl_pow(g, y, pl_full_like(g, y, 1 / p));
    return set_last(c, 0, y, v->rank);
}

/* The sum of windows [N, C*taps, L] at their places in an image: the reverse of cutting an image
 * into windows. The windows of each tap are spread by the stride and added. */
pl_status pl_ox_emit_col2im(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL, y = PL_NO_VAL;
    const int64_t *image, *block;
    int n, n_block;
    window w;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_in_ints(c, 1, "image shape", &image, &n));
    PL_TRY(pl_ox_in_ints(c, 2, "block shape", &block, &n_block));
    if (n != n_block || v->rank != 3)
        return pl_ox_fail(c, PL_ERR_SHAPE, "an image of %d and blocks of %d dimensions", n,
                          n_block);
    PL_TRY(read_window(c, n, block, &w));
    pl_graph *g = c->g;
    int64_t taps = 1, all = 1, dim[PL_MAX_RANK] = {v->dim[0]};
    for (int i = 0; i < n; i++) {
        taps *= w.kernel[i];
        int64_t span = (w.kernel[i] - 1) * w.dilation[i] + 1;
        int64_t room = image[i] + w.lo[i] + w.hi[i] - span;
        if (image[i] < 1 || image[i] > 1 << 24 || room < 0 || taps > 4096)
            return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "an image of %lld, %lld taps",
                              (long long)image[i], (long long)taps);
        all *= dim[2 + i] = room / w.stride[i] + 1;
    }
    dim[1] = v->dim[1] / taps;
    if (v->dim[1] % taps || all != v->dim[2])
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld rows of %lld windows, wanted %lld windows",
                          (long long)v->dim[1], (long long)v->dim[2], (long long)all);
    x = pl_reshape(g, x, PL_DIMS(dim[0], dim[1], taps, all));
    for (int64_t k = 0; k < taps; k++) {
        pl_val part = pl_reshape(g, pl_slice(g, x, 2, k, k + 1, 1), n + 2, dim);
        int64_t rest = k;
        for (int i = n - 1; i >= 0; i--) {
            int64_t lo = rest % w.kernel[i] * w.dilation[i];
            int64_t end = lo + (dim[2 + i] - 1) * w.stride[i] + 1;
            int64_t hi = image[i] + w.lo[i] + w.hi[i] - end;
            part = pl_pad(g, part, 2 + i, lo, hi, w.stride[i] - 1, 0);
            rest /= w.kernel[i];
        }
        y = k ? pl_add(g, y, part) : part;
    }
    for (int i = 0; i < n; i++) y = pl_slice(g, y, 2 + i, w.lo[i], w.lo[i] + image[i], 1);
    return pl_ox_set(c, 0, y, NULL);
}

/* ---- over all positions ---------------------------------------------------------------------- */
static pl_status global(pl_ox_call *c, pl_val (*fn)(pl_graph *, pl_val, uint32_t, bool), double p)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    uint32_t axes = 0;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    if (v->rank < 3) return pl_ox_fail(c, PL_ERR_SHAPE, "an input of %d dimensions", v->rank);
    for (int i = 0; i < v->rank; i++)
        if (v->perm[i] > 1) axes |= PL_AXIS(i);
    if (p > 0) x = pl_pow(c->g, pl_abs(c->g, x), pl_full_like(c->g, x, p));
    x = fn(c->g, x, axes, true);
    if (p > 0) x = pl_pow(c->g, x, pl_full_like(c->g, x, 1 / p));
    return pl_ox_set(c, 0, x, v->perm);
}
pl_status pl_ox_emit_global_average_pool(pl_ox_call *c)
{
    return global(c, pl_mean, 0);
}
pl_status pl_ox_emit_global_max_pool(pl_ox_call *c)
{
    return global(c, pl_max_over, 0);
}
pl_status pl_ox_emit_global_lp_pool(pl_ox_call *c)
{
    return global(c, pl_sum, (double)pl_ox_attr_int(c, "p", 2));
}
