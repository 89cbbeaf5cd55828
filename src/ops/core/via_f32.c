/* via_f32.c - see via_f32.h. Workspace: the f32 copies, each 64-byte aligned, then the inner
 * kernel's own. */
#include "ops/core/via_f32.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"

enum { MAX_OPERANDS = 16 };

typedef struct via {
    const pl_kernel *kernel;
    void *inner_prep;
    pl_type in[MAX_OPERANDS], out[PL_MAX_OUT];
    size_t inner_at; /* where the inner kernel's workspace starts */
} via;

static bool is_half(pl_dtype d)
{
    return d == PL_BF16 || d == PL_F16;
}

bool pl_via_f32_accepts(const pl_call *c)
{
    bool half = false;
    if (c->n_in > MAX_OPERANDS) return false;
    for (int i = 0; i < c->n_in; i++) {
        half |= is_half(c->in_type[i].dtype);
        if (c->in_type[i].dtype == PL_F64) return false;
    }
    return half;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Returns the type with f32 instead of a 16-bit float; adds the bytes of its copy to *at. */
static pl_type widened(const pl_type *t, size_t *at)
{
    pl_type w = *t;
    if (!is_half(t->dtype)) return w;
    w.dtype = PL_F32;
    *at += rounded(pl_type_bytes(&w));
    return w;
}

pl_status pl_via_f32_prepare(const pl_kernel *inner, const pl_call *c, void **prep,
                             size_t *work_bytes)
{
    via *v = pl_sys_alloc(sizeof *v);
    if (!v) return PL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++) v->in[i] = widened(&c->in_type[i], &v->inner_at);
    for (int k = 0; k < c->n_out; k++) v->out[k] = widened(&c->out_type[k], &v->inner_at);
    pl_call w = *c;
    w.in_type = v->in;
    w.out_type = v->out;
    while (inner->accepts && !inner->accepts(&w)) inner++;
    v->kernel = inner;
    size_t inner_bytes = 0;
    if (inner->prepare) {
        pl_status rc = inner->prepare(&w, &v->inner_prep, &inner_bytes);
        if (rc != PL_OK) {
            pl_sys_free(v);
            return rc;
        }
    }
    *prep = v;
    *work_bytes = v->inner_at + inner_bytes;
    return PL_OK;
}

void pl_via_f32_release(void *prep)
{
    via *v = prep;
    if (!v) return;
    if (v->kernel->release) v->kernel->release(v->inner_prep);
    pl_sys_free(v);
}

/* ---- conversion, in threaded chunks ----------------------------------------------------- */
enum { CHUNK = 8192 };
typedef struct convert {
    pl_dtype half;
    int64_t n;
    uint16_t *h;
    const uint16_t *from;
    float *f;
} convert;

static void widen_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const convert *c = ctx;
    int64_t lo = task * CHUNK, hi = lo + CHUNK < c->n ? lo + CHUNK : c->n;
    for (int64_t i = lo; i < hi; i++)
        c->f[i] = c->half == PL_BF16 ? pl_bf16_to_f32(c->from[i]) : pl_f16_to_f32(c->from[i]);
}

static void narrow_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const convert *c = ctx;
    int64_t lo = task * CHUNK, hi = lo + CHUNK < c->n ? lo + CHUNK : c->n;
    for (int64_t i = lo; i < hi; i++)
        c->h[i] = c->half == PL_BF16 ? pl_f32_to_bf16(c->f[i]) : pl_f32_to_f16(c->f[i]);
}

pl_status pl_via_f32_run(const pl_call *c)
{
    const via *v = c->prep;
    const void *in[MAX_OPERANDS];
    void *out[PL_MAX_OUT];
    char *at = c->work;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        if (!is_half(c->in_type[i].dtype)) continue;
        convert t = {c->in_type[i].dtype, pl_type_elems(&v->in[i]), NULL, c->in[i],
                     (float *)(void *)at};
        pl_threads_for((t.n + CHUNK - 1) / CHUNK, widen_chunk, &t);
        in[i] = at;
        at += rounded(pl_type_bytes(&v->in[i]));
    }
    for (int k = 0; k < c->n_out; k++) {
        out[k] = c->out[k];
        if (!is_half(c->out_type[k].dtype)) continue;
        out[k] = at;
        at += rounded(pl_type_bytes(&v->out[k]));
    }
    pl_call w = *c;
    w.in_type = v->in;
    w.out_type = v->out;
    w.in = in;
    w.out = out;
    w.prep = v->inner_prep;
    w.work = (char *)c->work + v->inner_at;
    PL_TRY(v->kernel->run(&w));
    for (int k = 0; k < c->n_out; k++) {
        if (!is_half(c->out_type[k].dtype)) continue;
        convert t = {c->out_type[k].dtype, pl_type_elems(&v->out[k]), c->out[k], NULL, out[k]};
        pl_threads_for((t.n + CHUNK - 1) / CHUNK, narrow_chunk, &t);
    }
    return PL_OK;
}
