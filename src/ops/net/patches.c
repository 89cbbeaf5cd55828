/* patches.c - convolutions over patches as products.
 *
 * Windows are patches when they are adjacent and without padding: the kernel is as large as its
 * stride. With many taps and few channels (the first layer of a vision transformer), kernel
 * libraries compute such a convolution slowly, or in a great deal of memory, above all the gradient
 * of the filter. The patches are the rows of a matrix, which a permute makes, and the convolution
 * is a product with the filter; so are its gradients.
 */
#include "ops/core/ops.h"
#include "ops/net/window.h"

bool pl_conv_of_patches(const pl_window_attr *a, const pl_type *x, const pl_type *w)
{
    enum { LEAST_TAPS = 16, MOST_CHANNELS = 16 };
    int n = x->rank - 2;
    int64_t taps = 1;
    if (n < 1 || n > 3 || w->rank != x->rank || w->dtype != x->dtype) return false;
    if (a->groups > 1 || w->dim[n + 1] != x->dim[n + 1] || x->dim[n + 1] > MOST_CHANNELS)
        return false;
    for (int d = 0; d < n; d++) {
        int64_t k = w->dim[1 + d];
        if (a->stride.v[d] != k || a->dilation.v[d] > 1 || a->pad_lo.v[d] || a->pad_hi.v[d] ||
            x->dim[1 + d] < k)
            return false;
        taps *= k;
    }
    return taps >= LEAST_TAPS;
}

/* [N, s.., I] -> [N, p.., k..*I]: the rows that a product multiplies with the filter. The rest of
 * the image after the last patch is cut off. */
static pl_val patches_of(pl_graph *g, pl_val x, const pl_type *w)
{
    pl_type t = pl_val_type(g, x);
    int n = t.rank - 2, axes[PL_MAX_RANK], rank = 2 * n + 2;
    int64_t cut[PL_MAX_RANK], rows[PL_MAX_RANK], terms = t.dim[n + 1];
    cut[0] = rows[0] = t.dim[0];
    axes[0] = 0;
    for (int d = 0; d < n; d++) {
        int64_t k = w->dim[1 + d], p = t.dim[1 + d] / k;
        if (p * k < t.dim[1 + d]) x = pl_slice(g, x, 1 + d, 0, p * k, 1);
        cut[1 + 2 * d] = rows[1 + d] = p;
        cut[2 + 2 * d] = k;
        axes[1 + d] = 1 + 2 * d;
        axes[1 + n + d] = 2 + 2 * d;
        terms *= k;
    }
    cut[rank - 1] = t.dim[n + 1];
    axes[rank - 1] = rank - 1;
    rows[n + 1] = terms;
    pl_val y = pl_permute(g, pl_reshape(g, x, rank, cut), axes);
    return pl_reshape(g, y, n + 2, rows);
}

pl_val pl_conv_patches(pl_graph *g, pl_val x, pl_val w, pl_val bias)
{
    pl_type t = pl_val_type(g, w);
    int64_t terms = t.dim[t.rank - 1];
    for (int d = 1; d < t.rank - 1; d++) terms *= t.dim[d];
    const int64_t shape[2] = {t.dim[0], terms};
    return pl_linear(g, patches_of(g, x, &t), pl_reshape(g, w, 2, shape), bias);
}
