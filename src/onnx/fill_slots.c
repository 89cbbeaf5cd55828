/* fill_slots.c - initial values of slots from the file.
 *
 * A slot has the order of its layer: weights of convolutions lie channels-last. Floats of 32 and 16
 * bits, of which most files consist, are converted and moved in runs; other elements one by one. */
#include "onnx/onnx.h"

#include "base/dtype.h"
#include "base/sys.h"

#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements that are read at once */

/* The elements of a tensor on their way into a slot, in logical order. Logical dimensions that are
 * neighbours in the slot, too, are one dimension here. */
typedef struct walk {
    float *to;
    int rank;
    int64_t dim[PL_MAX_RANK], stride[PL_MAX_RANK], index[PL_MAX_RANK];
} walk;

static walk walk_of(const pl_ox_slot *s, const int64_t *stride, float *to)
{
    walk w = {.to = to};
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] == 1) continue;
        int last = w.rank - 1;
        if (w.rank && w.stride[last] == s->dim[i] * stride[i]) {
            w.dim[last] *= s->dim[i];
            w.stride[last] = stride[i];
            continue;
        }
        w.dim[w.rank] = s->dim[i];
        w.stride[w.rank++] = stride[i];
    }
    if (!w.rank) w.dim[w.rank] = w.stride[w.rank] = 1, w.rank = 1;
    return w;
}

static void put_run(walk *w, const float *x, int64_t n)
{
    int last = w->rank - 1;
    while (n > 0) {
        int64_t at = w->index[last], stride = w->stride[last], m = w->dim[last] - at;
        if (m > n) m = n;
        float *to = w->to + at * stride;
        if (stride == 1)
            memcpy(to, x, (size_t)m * sizeof *x);
        else
            for (int64_t k = 0; k < m; k++) to[k * stride] = x[k];
        x += m;
        n -= m;
        w->index[last] += m;
        for (int i = last; i > 0 && w->index[i] == w->dim[i]; i--) {
            w->index[i] = 0;
            w->index[i - 1]++;
            w->to += w->stride[i - 1];
            if (w->index[i - 1] == w->dim[i - 1]) w->to -= w->dim[i - 1] * w->stride[i - 1];
        }
    }
}

/* Whether runs of the tensor can fill a slot of this type. */
static bool has_runs(const pl_ox_tensor *t, pl_dtype to, int64_t n)
{
    int32_t type = t->data_type;
    bool external = t->data_location == 1;
    return to == PL_F32 &&
           (type == PL_OX_FLOAT || type == PL_OX_FLOAT16 || type == PL_OX_BFLOAT16) &&
           (external || (t->has_raw_at && t->raw_bytes == pl_ox_tensor_bytes(t, n)));
}

static pl_status fill_runs(const pl_onnx *o, const pl_ox_tensor *t, int64_t n, walk *w)
{
    const uint8_t *p;
    bool wide = t->data_type == PL_OX_FLOAT;
    if (wide && w->rank == 1 && w->stride[0] == 1)
        return pl_ox_raw(o, t, 0, (uint64_t)n * 4, (uint8_t *)w->to, &p);
    float *real = pl_sys_alloc(CHUNK * sizeof *real);
    uint16_t *half = pl_sys_alloc(CHUNK * sizeof *half);
    pl_status rc = real && half ? PL_OK : PL_ERR_MEMORY;
    for (int64_t first = 0; first < n && rc == PL_OK; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;
        rc = pl_ox_raw(o, t, pl_ox_tensor_bytes(t, first), pl_ox_tensor_bytes(t, count),
                       wide ? (uint8_t *)real : (uint8_t *)half, &p);
        if (rc != PL_OK) break;
        if (t->data_type == PL_OX_FLOAT16) pl_f16s_to_f32(half, count, real);
        for (int64_t k = 0; k < count && t->data_type == PL_OX_BFLOAT16; k++)
            real[k] = pl_bf16_to_f32(half[k]);
        put_run(w, real, count);
    }
    pl_sys_free(half);
    pl_sys_free(real);
    return rc;
}

/* Writes element k of the logical order to its place in the slot. */
typedef struct scatter {
    const pl_ox_slot *slot;
    int64_t stride[PL_MAX_RANK]; /* of logical dimensions, in the slot */
    pl_dtype dtype;
    void *to;
} scatter;

static void put_slot(void *ctx, int64_t k, int64_t whole, double real)
{
    scatter *s = ctx;
    int64_t at = 0;
    for (int i = s->slot->rank - 1; i >= 0; i--) {
        int64_t d = s->slot->dim[i];
        at += k % d * s->stride[i];
        k /= d;
    }
    if (s->dtype == PL_I64)
        ((int64_t *)s->to)[at] = whole;
    else
        pl_elem_set(s->dtype, s->to, at, pl_dtype_is_float(s->dtype) ? real : (double)whole);
}

pl_status pl_onnx_slot_read(pl_onnx *o, const pl_slot *slot, void *to, bool *known)
{
    const pl_ox_slot *s = pl_ox_map_get(o->slots, slot->name);
    *known = s && !s->fresh;
    if (!*known) return PL_OK;
    scatter w = {.slot = s, .dtype = slot->type.dtype, .to = to};
    int64_t n = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        w.stride[s->perm[i]] = n;
        n *= s->dim[s->perm[i]];
    }
    const pl_type *t = pl_slot_type(slot);
    PL_FAIL_IF(pl_type_elems(t) != n || slot->shards, PL_ERR_SHAPE,
               "%s: slot '%s' has %lld elements, but its tensor has %lld", o->path, slot->name,
               (long long)pl_type_elems(t), (long long)n);
    if (s->init && s->init->tensor) {
        walk in_runs = walk_of(s, w.stride, to);
        if (n && has_runs(s->init->tensor, w.dtype, n))
            return fill_runs(o, s->init->tensor, n, &in_runs);
        return pl_ox_each(o, s->init->tensor, n, pl_dtype_is_float(w.dtype), put_slot, &w);
    }
    pl_arena mem = PL_ARENA_INIT;
    pl_ox_host h = s->host;
    pl_status rc = s->init ? pl_ox_init_read(o, s->init, &mem, &h) : PL_OK;
    for (int64_t k = 0; k < n && rc == PL_OK; k++)
        put_slot(&w, k, h.i ? h.i[k] : 0, h.d ? h.d[k] : 0);
    pl_arena_release(&mem);
    return rc;
}
