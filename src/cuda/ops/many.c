/* many.c - which kernel calls may share a launch: see many.h. Calls that do nothing (values that
 * already lie at the destination of their copy) may be between them. */
#include "cuda/ops/many.h"
#include "base/dtype.h"
#include "rt/device.h"

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}

static bool writes_into(const pl_call *w, const pl_call *c)
{
    for (int k = 0; k < w->n_out; k++) {
        size_t bytes = pl_type_bytes(&w->out_type[k]);
        for (int i = 0; i < c->n_in; i++)
            if (overlap(w->out[k], bytes, c->in[i], pl_type_bytes(&c->in_type[i]))) return true;
        for (int i = 0; i < c->n_out; i++)
            if (overlap(w->out[k], bytes, c->out[i], pl_type_bytes(&c->out_type[i]))) return true;
    }
    return false;
}

static bool free_of(const pl_call *c, const pl_call *const *others, int n)
{
    for (int i = 0; i < n; i++)
        if (writes_into(c, others[i]) || writes_into(others[i], c)) return false;
    return true;
}

/* Whether a unit needs moves that the first unit of the launch does not wait for. */
static bool waits_for_more(const pl_bound_unit *l, const pl_bound_unit *first)
{
    for (int c = 0; c < PL_N_CHANNELS; c++)
        if (l->wait[c] > first->wait[c]) return true;
    return false;
}

uint32_t pl_cuda_together(const pl_bound_unit *l, uint32_t n, const pl_call **calls, int *n_calls)
{
    uint32_t end = 1;
    *n_calls = 0;
    if (!l[0].exec || !pl_cuda_many_of(l[0].exec->kernel)) return 1;
    calls[(*n_calls)++] = &l[0].call;
    for (uint32_t i = 1; i < n && *n_calls < PL_CUDA_MANY; i++) {
        if (!l[i].exec && !l[i].bytes) continue;
        if (!l[i].exec || l[i].exec->kernel != l[0].exec->kernel) break;
        if (waits_for_more(&l[i], &l[0])) break;
        if (!free_of(&l[i].call, calls, *n_calls)) break;
        calls[(*n_calls)++] = &l[i].call;
        end = i + 1;
    }
    return end;
}
