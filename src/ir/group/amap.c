/* amap.c - see amap.h. */
#include "ir/group/amap.h"

#include <string.h>

static bool push(pl_amap *m, int64_t size, int64_t stride)
{
    if (size == 1) return true;
    int k = m->n - 1;
    if (k >= 0 && m->stride[k] * m->size[k] == stride) {
        m->size[k] *= size;
        return true;
    }
    if (m->n == PL_AMAP_RUNS) return false;
    m->size[m->n] = size;
    m->stride[m->n++] = stride;
    return true;
}

static pl_amap empty_map(void)
{
    pl_amap m;
    memset(&m, 0, sizeof m);
    return m;
}

pl_amap pl_amap_identity(int64_t elems)
{
    pl_amap m = empty_map();
    push(&m, elems, 1);
    return m;
}

pl_amap pl_amap_rows(int64_t elems, int64_t len)
{
    pl_amap m = empty_map();
    push(&m, len, 0);
    push(&m, elems / len, 1);
    return m;
}

bool pl_amap_equal(const pl_amap *a, const pl_amap *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool pl_amap_is_identity(const pl_amap *m)
{
    return m->offset == 0 && (m->n == 0 || (m->n == 1 && m->stride[0] == 1));
}

typedef struct walker {
    int rank;
    const int64_t *dim, *step;   /* the tensor's dims and what a step along each reads */
    int64_t dense[PL_AMAP_RUNS]; /* its row-major strides */
    int64_t reach[PL_AMAP_RUNS]; /* largest coordinate so far */
} walker;

/* Returns the dim that a flat stride s > 0 moves along: the outermost whose stride divides s. */
static int dim_of(const walker *w, int64_t s)
{
    for (int i = 0; i < w->rank; i++)
        if (w->dim[i] != 1 && s >= w->dense[i]) return s % w->dense[i] == 0 ? i : -1;
    return -1;
}

/* Walks one run of n steps of s flat positions, split where it passes from one dim into the
 * next. */
static bool walk_run(walker *w, int64_t n, int64_t s, pl_amap *out)
{
    while (n > 1) {
        if (s == 0) return push(out, n, 0);
        if (s < 0) return false;
        int i = dim_of(w, s);
        if (i < 0) return false;
        int64_t k = s / w->dense[i], room = w->dim[i] - w->reach[i], fit = n;
        if ((n - 1) * k >= room) {
            if (w->dim[i] % k != 0) return false;
            fit = w->dim[i] / k;
            if (fit < 2 || n % fit != 0) return false;
        }
        w->reach[i] += (fit - 1) * k;
        if (w->reach[i] >= w->dim[i] || !push(out, fit, w->step[i] * k)) return false;
        n /= fit;
        s *= fit;
    }
    return true;
}

static bool walk(walker *w, const pl_amap *m, int64_t offset, pl_amap *out)
{
    *out = empty_map();
    out->offset = offset;
    int64_t s = 1, rest = m->offset;
    for (int i = w->rank - 1; i >= 0; i--) {
        w->dense[i] = s;
        s *= w->dim[i];
    }
    for (int i = 0; i < w->rank; i++) {
        w->reach[i] = w->dense[i] ? rest / w->dense[i] : 0;
        rest -= w->reach[i] * w->dense[i];
        out->offset += w->reach[i] * w->step[i];
    }
    for (int r = 0; r < m->n; r++)
        if (!walk_run(w, m->size[r], m->stride[r], out)) return false;
    return true;
}

bool pl_amap_through(const pl_amap *m, int rank, const int64_t *dim, const pl_affine *a,
                     pl_amap *out)
{
    walker w = {.rank = rank, .dim = dim, .step = a->stride};
    return walk(&w, m, a->offset, out);
}

/* ---- grids ------------------------------------------------------------------------------ */

pl_grid pl_grid_new(int64_t elems)
{
    pl_grid g = {.n = 1};
    g.end[0] = elems;
    return g;
}

bool pl_grid_add(pl_grid *g, int64_t end)
{
    int at = 0;
    if (end <= 1) return true;
    while (at < g->n && g->end[at] < end) at++;
    if (at < g->n && g->end[at] == end) return true;
    if (at == g->n || g->n == PL_AMAP_RUNS || g->end[at] % end != 0) return false;
    if (at > 0 && end % g->end[at - 1] != 0) return false;
    for (int i = g->n; i > at; i--) g->end[i] = g->end[i - 1];
    g->end[at] = end;
    g->n++;
    return true;
}

bool pl_grid_add_map(pl_grid *g, const pl_amap *m)
{
    pl_grid was = *g;
    int64_t end = 1;
    for (int r = 0; r < m->n; r++) {
        end *= m->size[r];
        if (!pl_grid_add(g, end)) {
            *g = was;
            return false;
        }
    }
    return true;
}

bool pl_grid_add_mask(pl_grid *g, const pl_type *t, uint32_t axes)
{
    pl_grid was = *g;
    int64_t end = 1;
    int last = -1; /* kind of the dim inside: none yet, kept, reduced */
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->dim[d] == 1) continue;
        int kind = (int)(axes >> d & 1u);
        if (last >= 0 && kind != last && !pl_grid_add(g, end)) {
            *g = was;
            return false;
        }
        last = kind;
        end *= t->dim[d];
    }
    return true;
}

int pl_grid_dims(const pl_grid *g, int64_t *dim)
{
    for (int i = 0; i < g->n; i++) {
        int64_t inner = i ? g->end[i - 1] : 1;
        dim[g->n - 1 - i] = inner ? g->end[i] / inner : 0;
    }
    return g->n;
}

void pl_grid_strides(const pl_grid *g, const pl_amap *m, int64_t *stride)
{
    int r = 0;
    int64_t end = m->n ? m->size[0] : 1, inside = 1; /* of run r; positions inside it so far */
    for (int i = 0; i < g->n; i++) {
        int64_t inner = i ? g->end[i - 1] : 1;
        while (r < m->n && inner >= end) {
            inside = end;
            if (++r < m->n) end *= m->size[r];
        }
        stride[g->n - 1 - i] = r < m->n ? m->stride[r] * (inner / inside) : 0;
    }
}

uint32_t pl_grid_mask(const pl_grid *g, const pl_type *t, uint32_t axes)
{
    uint32_t mask = 0;
    for (int i = 0; i < g->n; i++) {
        int64_t inner = i ? g->end[i - 1] : 1, end = 1;
        int d = t->rank - 1;
        while (d >= 0 && end * t->dim[d] <= inner) end *= t->dim[d--];
        if (d >= 0 && (axes >> d & 1u)) mask |= (uint32_t)1 << (g->n - 1 - i);
    }
    return mask;
}
