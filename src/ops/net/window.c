/* window.c - see window.h. */
#include "ops/net/window.h"

#include "base/err.h"

#include <string.h>

static pl_status complete(const char *what, pl_dims *d, int n, int64_t preset, int64_t least)
{
    if (d->n == 0) {
        d->n = n;
        for (int i = 0; i < n; i++) d->v[i] = preset;
    }
    PL_FAIL_IF(d->n != n, PL_ERR_ARG, "%s has %d entries, but there are %d spatial dimensions",
               what, d->n, n);
    for (int i = 0; i < n; i++)
        PL_FAIL_IF(d->v[i] < least, PL_ERR_ARG, "%s[%d] is %lld; it must be at least %lld", what, i,
                   (long long)d->v[i], (long long)least);
    return PL_OK;
}

pl_status pl_window_complete(pl_window_attr *a, int n)
{
    if (a->groups == 0) a->groups = 1;
    PL_FAIL_IF(a->groups < 0, PL_ERR_ARG, "groups is %lld; it must be at least 1",
               (long long)a->groups);
    PL_TRY(complete("stride", &a->stride, n, 1, 1));
    PL_TRY(complete("dilation", &a->dilation, n, 1, 1));
    PL_TRY(complete("pad_lo", &a->pad_lo, n, 0, 0));
    return complete("pad_hi", &a->pad_hi, n, 0, 0);
}

pl_status pl_window_need(const char *what, const pl_dims *d, int n)
{
    PL_FAIL_IF(d->n != n, PL_ERR_ARG, "%s has %d entries, but there are %d spatial dimensions",
               what, d->n, n);
    for (int i = 0; i < n; i++)
        PL_FAIL_IF(d->v[i] < 1, PL_ERR_ARG, "%s[%d] is %lld; it must be at least 1", what, i,
                   (long long)d->v[i]);
    return PL_OK;
}

pl_status pl_window_out(const pl_window_attr *a, int d, int64_t in, int64_t kernel, int64_t *out)
{
    int64_t reach = (kernel - 1) * a->dilation.v[d] + 1;
    int64_t room = in + a->pad_lo.v[d] + a->pad_hi.v[d] - reach;
    PL_FAIL_IF(kernel < 1 || room < 0, PL_ERR_SHAPE,
               "a window of %lld (kernel %lld, dilation %lld) does not fit spatial dim %d of "
               "size %lld with padding %lld and %lld",
               (long long)reach, (long long)kernel, (long long)a->dilation.v[d], d, (long long)in,
               (long long)a->pad_lo.v[d], (long long)a->pad_hi.v[d]);
    *out = room / a->stride.v[d] + 1;
    return PL_OK;
}

pl_status pl_window_rank(const char *what, const pl_type *t)
{
    char x[96];
    PL_FAIL_IF(t->rank < 3 || t->rank > 5, PL_ERR_SHAPE,
               "%s is %s; needs [N, 1 to 3 spatial dimensions, C]", what,
               pl_type_text(t, x, sizeof x));
    PL_FAIL_IF(!pl_dtype_is_float(t->dtype), PL_ERR_SHAPE, "%s is %s; needs a float type", what,
               pl_type_text(t, x, sizeof x));
    return PL_OK;
}

pl_window pl_window_make(const pl_window_attr *a, int n, const int64_t *in, const int64_t *out,
                         const int64_t *kernel)
{
    pl_window w;
    w.n_spatial = n;
    for (int d = 0; d < 3; d++) {
        int i = d - (3 - n);
        w.in[d] = i < 0 ? 1 : in[i];
        w.out[d] = i < 0 ? 1 : out[i];
        w.kernel[d] = i < 0 ? 1 : kernel[i];
        w.stride[d] = i < 0 ? 1 : a->stride.v[i];
        w.dilation[d] = i < 0 ? 1 : a->dilation.v[i];
        w.pad_lo[d] = i < 0 ? 0 : a->pad_lo.v[i];
        w.pad_hi[d] = i < 0 ? 0 : a->pad_hi.v[i];
    }
    return w;
}

pl_window_attr pl_window_from_conv(const pl_conv_opts *o, int n)
{
    pl_window_attr a;
    memset(&a, 0, sizeof a);
    a.groups = o && o->groups ? o->groups : 1;
    a.stride.n = a.dilation.n = a.pad_lo.n = a.pad_hi.n = n < 0 ? 0 : n < 3 ? n : 3;
    for (int i = 0; i < a.stride.n; i++) {
        a.stride.v[i] = o && o->stride[i] ? o->stride[i] : 1;
        a.dilation.v[i] = o && o->dilation[i] ? o->dilation[i] : 1;
        a.pad_lo.v[i] = o ? o->pad_lo[i] : 0;
        a.pad_hi.v[i] = o ? o->pad_hi[i] : 0;
    }
    return a;
}
