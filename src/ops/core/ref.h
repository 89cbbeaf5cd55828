/* ref.h - shared by kernels and cost rules: fast access to one element as a double, a loop that
 * uses threads only when the work is large enough, and the bytes of a call's operands. */
#ifndef PL_OPS_REF_H
#define PL_OPS_REF_H

#include "base/dtype.h"
#include "base/threads.h"
#include "ir/op.h"

static inline double ref_get(pl_dtype d, const void *p, int64_t i)
{
    if (d == PL_F32) return (double)((const float *)p)[i];
    if (d == PL_F64) return ((const double *)p)[i];
    return pl_elem_get(d, p, i);
}

static inline void ref_set(pl_dtype d, void *p, int64_t i, double v)
{
    if (d == PL_F32)
        ((float *)p)[i] = (float)v;
    else if (d == PL_F64)
        ((double *)p)[i] = v;
    else
        pl_elem_set(d, p, i, v);
}

/* Returns the bytes of all operands, each moved once: the least that any kernel moves. */
static inline double operand_bytes(const pl_call *c)
{
    double sum = 0;
    for (int i = 0; i < c->n_in; i++) sum += (double)pl_type_bytes(&c->in_type[i]);
    for (int k = 0; k < c->n_out; k++) sum += (double)pl_type_bytes(&c->out_type[k]);
    return sum;
}

static inline bool accepts_f32(const pl_call *c)
{
    return c->in_type[0].dtype == PL_F32;
}

/* Whether every float operand is f32. */
static inline bool all_f32(const pl_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (pl_dtype_is_float(c->in_type[i].dtype) && c->in_type[i].dtype != PL_F32) return false;
    return true;
}

/* Runs a loop over tasks, in parallel when it is worth waking the threads: `ops` is the loop's
 * arithmetic. */
static inline void each_task(int64_t n_tasks, double ops,
                             void (*fn)(void *ctx, int64_t task, int worker), void *ctx)
{
    if (ops >= 20000)
        pl_threads_for(n_tasks, fn, ctx);
    else
        for (int64_t t = 0; t < n_tasks; t++) fn(ctx, t, 0);
}

#endif
