/* host.h - arithmetic on values that are known while building, shared by the files that fold. */
#ifndef PL_ONNX_HOST_H
#define PL_ONNX_HOST_H

#include "onnx/onnx.h"

/* Element k of a known value, as a whole number or a real one. */
static inline int64_t pl_ox_host_int(const pl_ox_val *v, int64_t k)
{
    if (v->host.i) return v->host.i[k];
    double d = v->host.d[k];
    return d >= 9.2e18 ? INT64_MAX : d <= -9.2e18 ? INT64_MIN : d != d ? 0 : (int64_t)d;
}
static inline double pl_ox_host_real(const pl_ox_val *v, int64_t k)
{
    return v->host.i ? (double)v->host.i[k] : v->host.d[k];
}
/* Writes a real number, rounded to the value's type. */
void pl_ox_host_put(pl_ox_val *v, int64_t k, double x);
/* Copies element from of `in` to element to of `out`, which has the same type. */
static inline void pl_ox_host_copy(pl_ox_val *out, int64_t to, const pl_ox_val *in, int64_t from)
{
    if (out->host.i)
        out->host.i[to] = in->host.i[from];
    else
        out->host.d[to] = in->host.d[from];
}
/* Fills out with in[base + sum of index[i] * stride[i]]. */
void pl_ox_host_strided(pl_ox_val *out, const pl_ox_val *in, int64_t base, const int64_t *stride);

/* Start, number and step of a Slice node along every dimension of its input. */
pl_status pl_ox_slice_of(const pl_ox_call *c, const pl_ox_val *v, int64_t *start, int64_t *count,
                         int64_t *step) PL_MUST_USE;

/* Folding functions; *done stays false when they cannot. */
typedef pl_status pl_ox_fold_fn(pl_ox_call *c, bool *done);
pl_ox_fold_fn *pl_ox_fold_elementwise(const char *op);
/* Folds for one sample where the inputs repeat along their first dimension (fold_repeat.c). */
pl_status pl_ox_fold_repeated(pl_ox_call *c, pl_ox_fold_fn *fn, bool *done) PL_MUST_USE;
pl_ox_fold_fn *pl_ox_fold_move(const char *op);

#endif
