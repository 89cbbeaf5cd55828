/* emit_shape.c - ops that move elements: reshaping, transposing, slicing, joining, padding. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <string.h>

/* ---- reshape --------------------------------------------------------------------------------- */
/* A run of input dimensions [i0, i1) that becomes the run [j0, j1) of output dimensions. */
typedef struct run {
    int i0, i1, j0, j1, at; /* at: physical position */
} run;

/* Splits a reshape into runs; false: the sizes do not agree. */
static bool split_runs(const pl_ox_val *v, int rank, const int64_t *dim, run *r, int *n)
{
    int i = 0, j = 0;
    *n = 0;
    while (i < v->rank && j < rank) {
        run *p = &r[(*n)++];
        *p = (run){.i0 = i, .j0 = j};
        int64_t a = v->dim[i++], b = dim[j++];
        while (a != b) {
            if (a < b && i < v->rank)
                a *= v->dim[i++];
            else if (b < a && j < rank)
                b *= dim[j++];
            else
                return false;
        }
        p->i1 = i;
        p->j1 = j;
    }
    for (int k = i; k < v->rank; k++)
        if (v->dim[k] != 1) return false;
    for (int k = j; k < rank; k++)
        if (dim[k] != 1) return false;
    if (!*n) return i == v->rank && j == rank;
    r[*n - 1].i1 = v->rank;
    r[*n - 1].j1 = rank;
    return true;
}

/* Puts runs into physical order; false: their dimensions are not side by side there. */
static bool order_runs(const pl_ox_val *v, run *r, int n)
{
    int before = -1;
    for (int k = 0; k < n; k++) {
        r[k].at = before;
        for (int i = r[k].i1 - 1; i >= r[k].i0; i--)
            if (v->dim[i] != 1) r[k].at = pl_ox_axis(v, i);
        before = r[k].at;
    }
    for (int k = 1; k < n; k++) /* insertion: stable */
        for (int q = k; q > 0 && r[q].at < r[q - 1].at; q--) {
            run t = r[q];
            r[q] = r[q - 1];
            r[q - 1] = t;
        }
    int last = -1;
    for (int k = 0; k < n; k++)
        for (int i = r[k].i0; i < r[k].i1; i++) {
            int at = pl_ox_axis(v, i);
            if (v->dim[i] == 1) continue;
            if (at < last) return false;
            last = at;
        }
    return true;
}

pl_ox_val *pl_ox_reshaped(pl_ox_build *b, pl_ox_val *v, int rank, const int64_t *dim)
{
    run r[PL_MAX_RANK];
    int n, perm[PL_MAX_RANK], k = 0;
    int64_t physical[PL_MAX_RANK];
    pl_val x = pl_ox_any(b, v);
    if (!split_runs(v, rank, dim, r, &n) || !n || !order_runs(v, r, n))
        return pl_ox_val_new(b, pl_reshape(b->g, pl_ox_plain(b, v), rank, dim), NULL);
    for (int q = 0; q < n; q++)
        for (int j = r[q].j0; j < r[q].j1; j++) {
            perm[k] = j;
            physical[k++] = dim[j];
        }
    return pl_ox_val_new(b, pl_reshape(b->g, x, rank, physical), perm);
}

static pl_status set_reshaped(pl_ox_call *c, pl_ox_val *v, int rank, const int64_t *dim)
{
    int64_t n = 1;
    if (rank > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d dimensions; Plimsoll supports at most %d",
                          rank, PL_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || __builtin_mul_overflow(n, dim[i], &n))
            return pl_ox_fail(c, PL_ERR_SHAPE, "a dimension of %lld", (long long)dim[i]);
    if (n != pl_ox_elems(v))
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld elements become %lld", (long long)pl_ox_elems(v),
                          (long long)n);
    pl_ox_val *y = pl_ox_reshaped(c->b, v, rank, dim);
    if (!y) return PL_ERR_MEMORY;
    return pl_ox_set(c, 0, y->v, y->perm);
}

pl_status pl_ox_emit_reshape(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *want;
    int n, hole = -1;
    int64_t dim[PL_MAX_RANK], rest = 1;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "shape", &want, &n));
    if (!want || n > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "a shape of %d dimensions (at most %d)", n,
                          PL_MAX_RANK);
    bool zero = pl_ox_attr_int(c, "allowzero", 0) != 0;
    for (int i = 0; i < n; i++) {
        dim[i] = want[i] == 0 && !zero && i < v->rank ? v->dim[i] : want[i];
        if (dim[i] == -1)
            hole = i;
        else if (dim[i] < 0 || __builtin_mul_overflow(rest, dim[i], &rest))
            return pl_ox_fail(c, PL_ERR_SHAPE, "a dimension of %lld", (long long)dim[i]);
    }
    if (hole >= 0) dim[hole] = rest > 0 ? pl_ox_elems(v) / rest : 0;
    return set_reshaped(c, v, n, dim);
}

pl_status pl_ox_emit_flatten(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    int64_t axis = pl_ox_attr_int(c, "axis", 1), dim[2] = {1, 1};
    if (axis < 0) axis += v->rank;
    for (int i = 0; i < v->rank; i++) dim[i >= axis] *= v->dim[i];
    return set_reshaped(c, v, 2, dim);
}

pl_status pl_ox_emit_squeeze(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *axes;
    int n, at, rank = 0;
    int64_t dim[PL_MAX_RANK];
    bool drop[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "axes", &axes, &n));
    for (int i = 0; i < v->rank && !axes; i++) drop[i] = v->dim[i] == 1;
    for (int i = 0; i < n && axes; i++) {
        PL_TRY(pl_ox_axis_of(c, axes[i], v->rank, &at));
        if (v->dim[at] != 1)
            return pl_ox_fail(c, PL_ERR_SHAPE, "dimension %d has %lld elements; it must have 1", at,
                              (long long)v->dim[at]);
        drop[at] = true;
    }
    for (int i = 0; i < v->rank; i++)
        if (!drop[i]) dim[rank++] = v->dim[i];
    return set_reshaped(c, v, rank, dim);
}

pl_status pl_ox_emit_unsqueeze(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *axes;
    int n, at;
    int64_t dim[PL_MAX_RANK];
    bool fresh[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "axes", &axes, &n));
    int rank = v->rank + n, k = 0;
    if (rank > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d dimensions; Plimsoll supports at most %d",
                          rank, PL_MAX_RANK);
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, axes[i], rank, &at));
        fresh[at] = true;
    }
    for (int i = 0; i < rank; i++) {
        if (!fresh[i] && k >= v->rank) return pl_ox_fail(c, PL_ERR_FILE, "an axis is named twice");
        dim[i] = fresh[i] ? 1 : v->dim[k++];
    }
    return set_reshaped(c, v, rank, dim);
}

pl_status pl_ox_emit_transpose(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int n, to[PL_MAX_RANK], perm[PL_MAX_RANK];
    bool seen[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    const int64_t *p = pl_ox_attr_ints(c, "perm", &n);
    if (p && n != v->rank)
        return pl_ox_fail(c, PL_ERR_FILE, "perm has %d numbers for %d dimensions", n, v->rank);
    for (int i = 0; i < v->rank; i++) {
        int64_t from = p ? p[i] : v->rank - 1 - i;
        if (from < 0 || from >= v->rank || seen[from])
            return pl_ox_fail(c, PL_ERR_FILE, "perm is not a permutation");
        seen[from] = true;
        to[from] = i;
    }
    for (int i = 0; i < v->rank; i++) perm[i] = to[v->perm[i]];
    return pl_ox_set(c, 0, x, perm);
}

/* ---- slices and joins ------------------------------------------------------------------------ */
pl_status pl_ox_emit_slice(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int64_t start[PL_MAX_RANK], count[PL_MAX_RANK], step[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_slice_of(c, v, start, count, step));
    for (int i = 0; i < v->rank; i++) {
        int at = pl_ox_axis(v, i);
        int64_t d = v->dim[i], n = count[i], a = start[i], s = step[i];
        if (!n) return pl_ox_set_val(c, 0, pl_ox_host_new(c->b, v->dtype, v->rank, count));
        if (s < 0) {
            x = pl_flip(c->g, x, PL_AXIS(at));
            a = d - 1 - a;
            s = -s;
        }
        if (n == 1) s = 1;
        if (a || n < d || s > 1) x = pl_slice(c->g, x, at, a, a + (n - 1) * s + 1, s);
    }
    return pl_ox_set(c, 0, x, v->perm);
}

pl_status pl_ox_emit_split(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *sizes;
    int n, axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "split", &sizes, &n));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    PL_TRY(pl_ox_split_check(c, sizes, n, v->dim[axis]));
    int parts = sizes ? n : c->n_out;
    int64_t d = v->dim[axis], even = parts ? (d + parts - 1) / parts : 0, from = 0;
    for (int i = 0; i < parts; i++) {
        int64_t size = sizes ? sizes[i] : even < d - from ? even : d - from;
        if (size == 0) { /* nothing, which a Concat leaves out */
            int64_t dim[PL_MAX_RANK];
            memcpy(dim, v->dim, sizeof dim);
            dim[axis] = 0;
            PL_TRY(pl_ox_set_val(c, i, pl_ox_host_new(c->b, v->dtype, v->rank, dim)));
            continue;
        }
        pl_val y = pl_slice(c->g, x, pl_ox_axis(v, axis), from, from + size, 1);
        PL_TRY(pl_ox_set(c, i, y, v->perm));
        from += size;
    }
    return PL_OK;
}

/* Parts without elements; they may differ along the axis. */
static pl_status concat_of_none(pl_ox_call *c)
{
    int axis;
    int64_t dim[PL_MAX_RANK], sum = 0;
    if (!c->n_in || !c->in[0]) return pl_ox_fail(c, PL_ERR_FILE, "input 0 is missing");
    const pl_ox_val *first = c->in[0];
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), first->rank, &axis));
    memcpy(dim, first->dim, sizeof dim);
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i] || c->in[i]->rank != first->rank)
            return pl_ox_fail(c, PL_ERR_SHAPE, "parts differ in the number of dimensions");
        sum += c->in[i]->dim[axis];
    }
    dim[axis] = sum;
    return pl_ox_set_val(c, 0, pl_ox_host_new(c->b, first->dtype, first->rank, dim));
}

pl_status pl_ox_emit_concat(pl_ox_call *c)
{
    pl_ox_val **in = pl_arena_new(&c->b->mem, pl_ox_val *, c->n_in + 1);
    pl_val *x = pl_arena_new(&c->b->mem, pl_val, c->n_in + 1);
    int n = 0, axis, perm[PL_MAX_RANK];
    if (!in || !x) return PL_ERR_MEMORY;
    if (!pl_ox_attr_find(c, "axis") && c->b->opset >= 4)
        return pl_ox_fail(c, PL_ERR_FILE, "attribute axis is missing");
    for (int i = 0; i < c->n_in; i++) /* empty parts do not count */
        if (c->in[i] && pl_ox_elems(c->in[i]) > 0) in[n++] = c->in[i];
    if (!n) return concat_of_none(c);
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), in[0]->rank, &axis));
    for (int i = 1; i < n; i++)
        if (in[i]->rank != in[0]->rank)
            return pl_ox_fail(c, PL_ERR_SHAPE, "parts of %d and of %d dimensions", in[0]->rank,
                              in[i]->rank);
    PL_TRY(pl_ox_align(c, n, in, x, perm));
    int at = 0;
    while (perm[at] != axis) at++;
    return pl_ox_set(c, 0, n > 1 ? pl_concat(c->g, n, x, at) : x[0], perm);
}

pl_status pl_ox_emit_expand(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *want;
    int n, perm[PL_MAX_RANK], k = 0;
    int64_t dim[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_in_ints(c, 1, "shape", &want, &n));
    if (n > PL_MAX_RANK) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "a shape of %d dimensions", n);
    int rank = n > v->rank ? n : v->rank, lead = rank - v->rank;
    while (k < lead) perm[k] = k, k++;
    for (int i = 0; i < v->rank; i++) perm[k++] = v->perm[i] + lead;
    for (int i = 0; i < rank; i++) {
        int64_t own = perm[i] < lead ? 1 : v->dim[perm[i] - lead];
        int w = perm[i] - (rank - n);
        int64_t to = w < 0 ? 1 : want[w];
        dim[i] = own == 1 ? to : own;
        if (own != 1 && to != 1 && to != own)
            return pl_ox_fail(c, PL_ERR_SHAPE, "%lld elements become %lld", (long long)own,
                              (long long)to);
    }
    x = pl_broadcast(c->g, pl_ox_ordered(c->b, v, rank, perm), rank, dim);
    return pl_ox_set(c, 0, x, perm);
}

pl_status pl_ox_emit_tile(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *times;
    int n;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_in_ints(c, 1, "repeats", &times, &n));
    if (n != v->rank) return pl_ox_fail(c, PL_ERR_FILE, "%d repeats for %d dimensions", n, v->rank);
    int64_t dim[PL_MAX_RANK];
    bool none = false;
    for (int i = 0; i < n; i++) {
        if (times[i] < 0 || times[i] > 1 << 20 ||
            __builtin_mul_overflow(v->dim[i], times[i], &dim[i]))
            return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%lld repeats of %lld elements",
                              (long long)times[i], (long long)v->dim[i]);
        none |= times[i] == 0;
    }
    if (none) return pl_ox_set_val(c, 0, pl_ox_host_new(c->b, v->dtype, n, dim));
    for (int i = 0; i < n; i++) {
        if (times[i] == 1) continue;
        pl_val *part = pl_arena_new(&c->b->mem, pl_val, times[i]);
        if (!part) return PL_ERR_MEMORY;
        for (int64_t k = 0; k < times[i]; k++) part[k] = x;
        x = pl_concat(c->g, (int)times[i], part, i);
    }
    return pl_ox_set(c, 0, x, NULL);
}

/* ---- padding --------------------------------------------------------------------------------- */
/* A border of n elements that continues x by the mode; front: before it. */
static pl_val border(pl_graph *g, pl_val x, int axis, int64_t n, bool front, const char *mode)
{
    pl_type t = pl_val_type(g, x);
    int64_t d = t.dim[axis];
    if (mode[0] == 'e') {
        t.dim[axis] = n;
        pl_val one = pl_slice(g, x, axis, front ? 0 : d - 1, front ? 1 : d, 1);
        return pl_broadcast(g, one, t.rank, t.dim);
    }
    if (mode[0] == 'w') return pl_slice(g, x, axis, front ? d - n : 0, front ? d : n, 1);
    pl_val part =
        front ? pl_slice(g, x, axis, 1, n + 1, 1) : pl_slice(g, x, axis, d - 1 - n, d - 1, 1);
    return pl_flip(g, part, PL_AXIS(axis));
}

static pl_status pad_axis(pl_ox_call *c, pl_val *x, int axis, int64_t lo, int64_t hi,
                          const char *mode, double value)
{
    pl_graph *g = c->g;
    int64_t d = pl_val_type(g, *x).dim[axis];
    bool none = lo <= -d || hi <= -d; /* the least number has no negative */
    int64_t cut_lo = none || lo > 0 ? 0 : -lo, cut_hi = none || hi > 0 ? 0 : -hi;
    if (none || cut_lo + cut_hi >= d)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "padding leaves nothing of dimension %d", axis);
    if (cut_lo || cut_hi) *x = pl_slice(g, *x, axis, cut_lo, d - cut_hi, 1);
    lo = lo > 0 ? lo : 0;
    hi = hi > 0 ? hi : 0;
    if (!lo && !hi) return PL_OK;
    if (mode[0] == 'c') {
        *x = pl_pad(g, *x, axis, lo, hi, 0, value);
        return PL_OK;
    }
    d -= cut_lo + cut_hi;
    int64_t most = mode[0] == 'r' ? d - 1 : d;
    if (mode[0] != 'e' && (lo > most || hi > most))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%s padding of %lld for %lld elements", mode,
                          (long long)(lo > hi ? lo : hi), (long long)d);
    pl_val part[3];
    int n = 0;
    if (lo) part[n++] = border(g, *x, axis, lo, true, mode);
    part[n++] = *x;
    if (hi) part[n++] = border(g, *x, axis, hi, false, mode);
    *x = pl_concat(g, n, part, axis);
    return PL_OK;
}

pl_status pl_ox_emit_pad(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *pads, *axes = NULL;
    int n, n_axes = 0, axis;
    double value;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_ints(c, 1, "pads", &pads, &n));
    PL_TRY(pl_ox_in_number(c, 2, "value", pl_ox_attr_float(c, "value", 0), &value));
    if (pl_ox_has(c, 3)) PL_TRY(pl_ox_in_ints(c, 3, "axes", &axes, &n_axes));
    const char *mode = pl_ox_attr_text(c, "mode", "constant");
    int count = axes ? n_axes : v->rank;
    if (n != 2 * count) return pl_ox_fail(c, PL_ERR_FILE, "%d pads for %d axes", n, count);
    for (int i = 0; i < count; i++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[i] : i, v->rank, &axis));
        PL_TRY(pad_axis(c, &x, pl_ox_axis(v, axis), pads[i], pads[count + i], mode, value));
    }
    return pl_ox_set(c, 0, x, v->perm);
}

/* Cuts or pads both ends of axes alike; an odd element goes to the end. */
pl_status pl_ox_emit_center_crop_pad(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *want;
    int n, n_axes = 0, axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_in_ints(c, 1, "shape", &want, &n));
    const int64_t *axes = pl_ox_attr_ints(c, "axes", &n_axes);
    if (n != (axes ? n_axes : v->rank))
        return pl_ox_fail(c, PL_ERR_FILE, "a shape of %d dimensions", n);
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[i] : i, v->rank, &axis));
        if (want[i] < 1 || want[i] > (int64_t)1 << 40)
            return pl_ox_fail(c, PL_ERR_FILE, "a dimension of %lld", (long long)want[i]);
        int64_t more = want[i] - v->dim[axis], lo = more / 2; /* both round to zero */
        PL_TRY(pad_axis(c, &x, pl_ox_axis(v, axis), lo, more - lo, "constant", 0));
    }
    return pl_ox_set(c, 0, x, v->perm);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
pl_status pl_ox_emit_depth_to_space(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    int64_t k = pl_ox_attr_int(c, "blocksize", 1), *d = v->dim;
    if (v->rank != 4 || k < 1 || d[1] % (k * k))
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld channels in blocks of %lld", (long long)d[1],
                          (long long)k);
    int64_t ch = d[1] / (k * k);
    bool crd = pl_ox_attr_is(c, "mode", "DCR", "CRD");
    x = pl_ox_last(c->b, v); /* [N,H,W,C] */
    x = crd ? pl_reshape(c->g, x, PL_DIMS(d[0], d[2], d[3], ch, k, k))
            : pl_reshape(c->g, x, PL_DIMS(d[0], d[2], d[3], k, k, ch));
    x = pl_permute(c->g, x,
                   crd ? (const int[]){0, 1, 4, 2, 5, 3} : (const int[]){0, 1, 3, 2, 4, 5});
    x = pl_reshape(c->g, x, PL_DIMS(d[0], d[2] * k, d[3] * k, ch));
    return pl_ox_set(c, 0, x, (const int[]){0, 2, 3, 1});
}

pl_status pl_ox_emit_space_to_depth(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    int64_t k = pl_ox_attr_int(c, "blocksize", 1), *d = v->dim;
    if (v->rank != 4 || k < 1 || d[2] % k || d[3] % k)
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld x %lld in blocks of %lld", (long long)d[2],
                          (long long)d[3], (long long)k);
    x = pl_reshape(c->g, pl_ox_last(c->b, v), PL_DIMS(d[0], d[2] / k, k, d[3] / k, k, d[1]));
    bool crd = pl_ox_attr_is(c, "mode", "DCR", "CRD");
    x = pl_permute(c->g, x,
                   crd ? (const int[]){0, 1, 3, 5, 2, 4} : (const int[]){0, 1, 3, 2, 4, 5});
    x = pl_reshape(c->g, x, PL_DIMS(d[0], d[2] / k, d[3] / k, k * k * d[1]));
    return pl_ox_set(c, 0, x, (const int[]){0, 2, 3, 1});
}
