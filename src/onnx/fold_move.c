/* fold_move.c - movements and reductions of values that are known while building (fold.c). */
#include "onnx/host.h"

#include <math.h>
#include <string.h>

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

pl_status pl_ox_slice_of(const pl_ox_call *c, const pl_ox_val *v, int64_t *start, int64_t *count,
                         int64_t *step)
{
    const int64_t *from, *to, *axes, *steps;
    int n, n_to, n_axes, n_steps, axis;
    unsigned seen = 0;
    PL_TRY(pl_ox_ints(c, 1, "starts", &from, &n));
    PL_TRY(pl_ox_ints(c, 2, "ends", &to, &n_to));
    PL_TRY(pl_ox_ints(c, 3, "axes", &axes, &n_axes));
    PL_TRY(pl_ox_ints(c, 4, "steps", &steps, &n_steps));
    if (n != n_to || (axes && n_axes != n) || (steps && n_steps != n) || n > v->rank)
        return pl_ox_fail(c, PL_ERR_FILE, "starts, ends, axes and steps differ in number");
    for (int i = 0; i < v->rank; i++) {
        start[i] = 0;
        count[i] = v->dim[i];
        step[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[i] : i, v->rank, &axis));
        int64_t d = v->dim[axis], s = steps ? steps[i] : 1, a = from[i], z = to[i];
        if (!s) return pl_ox_fail(c, PL_ERR_FILE, "a step of 0");
        if (seen & 1u << axis) return pl_ox_fail(c, PL_ERR_FILE, "axis %d is cut twice", axis);
        seen |= 1u << axis;
        s = clamp(s, -(d + 1), d + 1);
        a = clamp(a < 0 ? (a < -d ? -1 : a + d) : a, s > 0 ? 0 : -1, s > 0 ? d : d - 1);
        z = clamp(z < 0 ? (z < -d ? -1 : z + d) : z, s > 0 ? 0 : -1, d);
        int64_t span = s > 0 ? z - a : a - z, stride = s > 0 ? s : -s;
        start[axis] = a;
        step[axis] = s;
        count[axis] = span > 0 ? (span + stride - 1) / stride : 0;
    }
    return PL_OK;
}

static void strides_of(const pl_ox_val *v, int64_t *stride)
{
    int64_t s = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= v->dim[i];
    }
}

static pl_status set(pl_ox_call *c, int k, pl_ox_val *y, bool *done)
{
    *done = true;
    return pl_ox_set_val(c, k, y);
}

/* A known value of this shape, or NULL where it would be too large. */
static pl_ox_val *make(pl_ox_call *c, pl_dtype dtype, int rank, const int64_t *dim)
{
    int64_t n = 1;
    if (rank > PL_MAX_RANK) return NULL;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || (dim[i] && n > PL_OX_HOST_ELEMS / dim[i])) return NULL;
        n *= dim[i];
    }
    return pl_ox_host_new(c->b, dtype, rank, dim);
}

/* ---- the same elements, another shape -------------------------------------------------------- */
static pl_status reshaped(pl_ox_call *c, int rank, const int64_t *dim, bool *done)
{
    pl_ox_val *y = make(c, c->in[0]->dtype, rank, dim);
    if (!y || y->host.n != c->in[0]->host.n) return PL_OK;
    y->host = c->in[0]->host;
    return set(c, 0, y, done);
}

static pl_status reshape(pl_ox_call *c, bool *done)
{
    const int64_t *want;
    int n, hole = -1;
    int64_t dim[PL_MAX_RANK], rest = 1;
    PL_TRY(pl_ox_ints(c, 1, "shape", &want, &n));
    if (!want || n > PL_MAX_RANK) return PL_OK;
    bool zero = pl_ox_attr_int(c, "allowzero", 0) != 0;
    for (int i = 0; i < n; i++) {
        dim[i] = want[i] == 0 && !zero && i < c->in[0]->rank ? c->in[0]->dim[i] : want[i];
        if (dim[i] == -1)
            hole = i;
        else if (dim[i] < 0 || __builtin_mul_overflow(rest, dim[i], &rest))
            return PL_OK;
    }
    if (hole >= 0) dim[hole] = rest ? c->in[0]->host.n / rest : 0;
    return reshaped(c, n, dim, done);
}

static pl_status flatten(pl_ox_call *c, bool *done)
{
    int64_t axis = pl_ox_attr_int(c, "axis", 1), dim[2] = {1, 1};
    if (axis < 0) axis += c->in[0]->rank;
    for (int i = 0; i < c->in[0]->rank; i++) dim[i >= axis] *= c->in[0]->dim[i];
    return reshaped(c, 2, dim, done);
}

static pl_status squeeze(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const int64_t *axes;
    int n, at, rank = 0;
    int64_t dim[PL_MAX_RANK];
    bool drop[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_ints(c, 1, "axes", &axes, &n));
    for (int i = 0; i < v->rank && !axes; i++) drop[i] = v->dim[i] == 1;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, axes[i], v->rank, &at));
        drop[at] = true;
    }
    for (int i = 0; i < v->rank; i++)
        if (!drop[i]) dim[rank++] = v->dim[i];
    return reshaped(c, rank, dim, done);
}

static pl_status unsqueeze(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const int64_t *axes;
    int n, at, k = 0;
    int64_t dim[PL_MAX_RANK];
    bool fresh[PL_MAX_RANK] = {0};
    PL_TRY(pl_ox_ints(c, 1, "axes", &axes, &n));
    if (v->rank + n > PL_MAX_RANK) return PL_OK;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, axes[i], v->rank + n, &at));
        fresh[at] = true;
    }
    for (int i = 0; i < v->rank + n; i++) {
        if (!fresh[i] && k >= v->rank) return PL_OK;
        dim[i] = fresh[i] ? 1 : v->dim[k++];
    }
    return reshaped(c, v->rank + n, dim, done);
}

/* ---- elements by strides --------------------------------------------------------------------- */
static pl_status transpose(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    int n;
    int64_t own[PL_MAX_RANK], stride[PL_MAX_RANK], dim[PL_MAX_RANK];
    const int64_t *p = pl_ox_attr_ints(c, "perm", &n);
    strides_of(v, own);
    if (p && n != v->rank) return PL_OK;
    for (int i = 0; i < v->rank; i++) {
        int64_t from = p ? p[i] : v->rank - 1 - i;
        if (from < 0 || from >= v->rank) return PL_OK;
        dim[i] = v->dim[from];
        stride[i] = own[from];
    }
    pl_ox_val *y = make(c, v->dtype, v->rank, dim);
    if (!y || y->host.n != v->host.n) return PL_OK;
    pl_ox_host_strided(y, v, 0, stride);
    return set(c, 0, y, done);
}

static pl_status slice(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    int64_t start[PL_MAX_RANK], count[PL_MAX_RANK], step[PL_MAX_RANK], own[PL_MAX_RANK], base = 0;
    PL_TRY(pl_ox_slice_of(c, v, start, count, step));
    strides_of(v, own);
    for (int i = 0; i < v->rank; i++) {
        base += start[i] * own[i];
        step[i] *= own[i];
    }
    pl_ox_val *y = make(c, v->dtype, v->rank, count);
    if (!y) return PL_OK;
    pl_ox_host_strided(y, v, base, step);
    return set(c, 0, y, done);
}

pl_status pl_ox_split_check(const pl_ox_call *c, const int64_t *sizes, int n, int64_t whole)
{
    int64_t sum = 0;
    if (!sizes) return PL_OK;
    if (n != c->n_out)
        return pl_ox_fail(c, PL_ERR_FILE, "%d sizes of parts for %d outputs", n, c->n_out);
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > whole - sum)
            return pl_ox_fail(c, PL_ERR_FILE, "part %d has %lld of %lld elements", i,
                              (long long)sizes[i], (long long)whole);
        sum += sizes[i];
    }
    if (sum != whole)
        return pl_ox_fail(c, PL_ERR_FILE, "the parts have %lld of %lld elements", (long long)sum,
                          (long long)whole);
    return PL_OK;
}

static pl_status split(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const int64_t *sizes;
    int n, axis;
    PL_TRY(pl_ox_ints(c, 1, "split", &sizes, &n));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    PL_TRY(pl_ox_split_check(c, sizes, n, v->dim[axis]));
    int parts = sizes ? n : c->n_out;
    int64_t d = v->dim[axis], even = parts ? (d + parts - 1) / parts : 0, from = 0;
    int64_t stride[PL_MAX_RANK], dim[PL_MAX_RANK];
    strides_of(v, stride);
    memcpy(dim, v->dim, sizeof dim);
    for (int i = 0; i < parts; i++) {
        dim[axis] = sizes ? sizes[i] : clamp(d - from, 0, even);
        if (dim[axis] < 0 || dim[axis] > d - from) return PL_OK;
        pl_ox_val *y = make(c, v->dtype, v->rank, dim);
        if (!y) return PL_OK;
        pl_ox_host_strided(y, v, from * stride[axis], stride);
        PL_TRY(set(c, i, y, done));
        from += dim[axis];
    }
    return PL_OK;
}

static pl_status expand(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const int64_t *want;
    int n;
    int64_t own[PL_MAX_RANK], stride[PL_MAX_RANK], dim[PL_MAX_RANK];
    PL_TRY(pl_ox_in_ints(c, 1, "shape", &want, &n));
    if (n > PL_MAX_RANK) return PL_OK;
    int rank = n > v->rank ? n : v->rank;
    strides_of(v, own);
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - v->rank), w = i - (rank - n);
        int64_t size = a < 0 ? 1 : v->dim[a], to = w < 0 ? 1 : want[w];
        dim[i] = size == 1 ? to : size;
        if (size != 1 && to != 1 && to != size) return PL_OK;
        stride[i] = a < 0 || size == 1 ? 0 : own[a];
    }
    pl_ox_val *y = make(c, v->dtype, rank, dim);
    if (!y) return PL_OK;
    pl_ox_host_strided(y, v, 0, stride);
    return set(c, 0, y, done);
}

static pl_status concat(pl_ox_call *c, bool *done)
{
    int axis;
    const pl_ox_val *v = c->in[0];
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    int64_t dim[PL_MAX_RANK], outer = 1;
    memcpy(dim, v->dim, sizeof dim);
    dim[axis] = 0;
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i] || c->in[i]->rank != v->rank || !c->in[i]->host.i != !v->host.i) return PL_OK;
        for (int d = 0; d < v->rank; d++)
            if (d != axis && c->in[i]->dim[d] != v->dim[d]) return PL_OK;
        dim[axis] += c->in[i]->dim[axis];
    }
    for (int d = 0; d < axis; d++) outer *= dim[d];
    pl_ox_val *y = make(c, v->dtype, v->rank, dim);
    if (!y) return PL_OK;
    int64_t at = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < c->n_in; i++) {
            int64_t row = c->in[i]->host.n / outer;
            for (int64_t k = 0; k < row; k++) pl_ox_host_copy(y, at++, c->in[i], o * row + k);
        }
    return set(c, 0, y, done);
}

static pl_status tile(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const int64_t *times;
    int n;
    int64_t dim[PL_MAX_RANK], own[PL_MAX_RANK];
    PL_TRY(pl_ox_in_ints(c, 1, "repeats", &times, &n));
    if (n != v->rank) return PL_OK;
    for (int i = 0; i < n; i++) {
        if (times[i] < 0 || times[i] > PL_OX_HOST_ELEMS) return PL_OK;
        dim[i] = v->dim[i] * times[i];
    }
    pl_ox_val *y = make(c, v->dtype, n, dim);
    if (!y) return PL_OK;
    strides_of(v, own);
    for (int64_t k = 0; k < y->host.n; k++) {
        int64_t at = 0, rest = k;
        for (int i = n - 1; i >= 0; i--) {
            at += rest % dim[i] % v->dim[i] * own[i];
            rest /= dim[i];
        }
        pl_ox_host_copy(y, k, v, at);
    }
    return set(c, 0, y, done);
}

/* ---- elements by index ----------------------------------------------------------------------- */
static pl_status gather(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0], *index = c->n_in > 1 ? c->in[1] : NULL;
    int axis, rank = 0;
    int64_t dim[2 * PL_MAX_RANK], inner = 1;
    if (!index || !index->host.i || !v->rank || v->rank + index->rank - 1 > PL_MAX_RANK)
        return PL_OK;
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    for (int i = 0; i < axis; i++) dim[rank++] = v->dim[i];
    for (int i = 0; i < index->rank; i++) dim[rank++] = index->dim[i];
    for (int i = axis + 1; i < v->rank; i++) inner *= dim[rank++] = v->dim[i];
    pl_ox_val *y = make(c, v->dtype, rank, dim);
    if (!y) return PL_OK;
    int64_t n = index->host.n, d = v->dim[axis];
    for (int64_t k = 0; k < y->host.n; k++) {
        int64_t in = k % inner, j = index->host.i[k / inner % n], o = k / inner / n;
        if (j < 0) j += d;
        if (j < 0 || j >= d)
            return pl_ox_fail(c, PL_ERR_FILE, "index %lld of %lld elements", (long long)j,
                              (long long)d);
        pl_ox_host_copy(y, k, v, (o * d + j) * inner + in);
    }
    return set(c, 0, y, done);
}

static pl_status gather_nd(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0], *index = c->n_in > 1 ? c->in[1] : NULL;
    if (!index || !index->host.i || !index->rank || pl_ox_attr_int(c, "batch_dims", 0))
        return PL_OK;
    int64_t q = index->dim[index->rank - 1], own[PL_MAX_RANK], dim[2 * PL_MAX_RANK], inner = 1;
    int rank = 0;
    if (q < 1 || q > v->rank) return PL_OK;
    for (int i = 0; i + 1 < index->rank; i++) dim[rank++] = index->dim[i];
    for (int i = (int)q; i < v->rank; i++) inner *= dim[rank++] = v->dim[i];
    pl_ox_val *y = rank > PL_MAX_RANK ? NULL : make(c, v->dtype, rank, dim);
    if (!y) return PL_OK;
    strides_of(v, own);
    for (int64_t k = 0; k < index->host.n / q; k++) {
        int64_t at = 0;
        for (int64_t j = 0; j < q; j++) {
            int64_t i = index->host.i[k * q + j];
            if (i < 0) i += v->dim[j];
            if (i < 0 || i >= v->dim[j]) return pl_ox_fail(c, PL_ERR_FILE, "an index is outside");
            at += i * own[j];
        }
        for (int64_t j = 0; j < inner; j++) pl_ox_host_copy(y, k * inner + j, v, at + j);
    }
    return set(c, 0, y, done);
}

static pl_status scatter_nd(pl_ox_call *c, bool *done)
{
    if (c->n_in < 3 || !c->in[1] || !c->in[2] || !c->in[1]->host.i || !c->in[1]->rank ||
        !pl_ox_attr_is(c, "reduction", "none", "none") || !c->in[0]->host.i != !c->in[2]->host.i)
        return PL_OK;
    const pl_ox_val *v = c->in[0], *index = c->in[1], *from = c->in[2];
    int64_t q = index->dim[index->rank - 1], own[PL_MAX_RANK], inner = 1;
    if (q < 1 || q > v->rank) return PL_OK;
    for (int i = (int)q; i < v->rank; i++) inner *= v->dim[i];
    int64_t n = index->host.n / q;
    if (from->host.n != n * inner) return PL_OK;
    pl_ox_val *y = make(c, v->dtype, v->rank, v->dim);
    if (!y) return PL_OK;
    strides_of(v, own);
    for (int64_t k = 0; k < v->host.n; k++) pl_ox_host_copy(y, k, v, k);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0;
        for (int64_t j = 0; j < q; j++) {
            int64_t i = index->host.i[k * q + j];
            if (i < 0) i += v->dim[j];
            if (i < 0 || i >= v->dim[j]) return pl_ox_fail(c, PL_ERR_FILE, "an index is outside");
            at += i * own[j];
        }
        for (int64_t j = 0; j < inner; j++) pl_ox_host_copy(y, at + j, from, k * inner + j);
    }
    return set(c, 0, y, done);
}

static pl_status non_zero(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    int64_t n = 0, at = 0, dim[2] = {v->rank, 0};
    for (int64_t k = 0; k < v->host.n; k++) n += pl_ox_host_real(v, k) != 0;
    dim[1] = n;
    pl_ox_val *y = make(c, PL_I64, 2, dim);
    if (!y) return PL_OK;
    for (int64_t k = 0; k < v->host.n; k++) {
        if (pl_ox_host_real(v, k) == 0) continue;
        int64_t rest = k;
        for (int i = v->rank - 1; i >= 0; i--) {
            y->host.i[i * n + at] = rest % v->dim[i];
            rest /= v->dim[i];
        }
        at++;
    }
    return set(c, 0, y, done);
}

static pl_status trilu(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    double k = c->n_in > 1 && c->in[1] ? pl_ox_host_real(c->in[1], 0) : 0;
    bool upper = pl_ox_attr_int(c, "upper", 1) != 0;
    pl_ox_val *y = v->rank < 2 ? NULL : make(c, v->dtype, v->rank, v->dim);
    if (!y) return PL_OK;
    int64_t w = v->dim[v->rank - 1], h = v->dim[v->rank - 2];
    for (int64_t i = 0; i < v->host.n; i++) {
        double off = (double)(i % w) - (double)(i / w % h);
        if (upper ? off >= k : off <= k) pl_ox_host_copy(y, i, v, i);
    }
    return set(c, 0, y, done);
}

static pl_status cumsum(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    int axis;
    if (c->n_in < 2 || !c->in[1] || c->in[1]->host.n < 1) return PL_OK;
    PL_TRY(pl_ox_axis_of(c, pl_ox_host_int(c->in[1], 0), v->rank, &axis));
    bool exclusive = pl_ox_attr_int(c, "exclusive", 0), back = pl_ox_attr_int(c, "reverse", 0);
    pl_ox_val *y = make(c, v->dtype, v->rank, v->dim);
    if (!y || !v->rank) return PL_OK;
    int64_t own[PL_MAX_RANK], d = v->dim[axis];
    strides_of(v, own);
    for (int64_t k = 0; k < v->host.n; k++) {
        int64_t i = k / own[axis] % d, first = k - i * own[axis];
        int64_t from = back ? i + exclusive : 0, to = back ? d : i + !exclusive;
        double sum = 0;
        int64_t total = 0;
        for (int64_t j = from; j < to; j++) {
            if (v->host.i)
                total += v->host.i[first + j * own[axis]];
            else
                sum += v->host.d[first + j * own[axis]];
        }
        if (v->host.i)
            y->host.i[k] = total;
        else
            pl_ox_host_put(y, k, sum);
    }
    return set(c, 0, y, done);
}

/* ---- reductions ------------------------------------------------------------------------------ */
static pl_status reduce(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    const char *what = c->op + strlen("Reduce");
    const int64_t *p;
    int n, at, rank = 0;
    bool gone[PL_MAX_RANK] = {0}, keep = pl_ox_attr_int(c, "keepdims", 1) != 0;
    int64_t dim[PL_MAX_RANK], own[PL_MAX_RANK], count = 1;
    PL_TRY(pl_ox_ints(c, 1, "axes", &p, &n));
    if (!n && pl_ox_attr_int(c, "noop_with_empty_axes", 0)) return PL_OK;
    for (int i = 0; i < v->rank && !n; i++) gone[i] = true;
    for (int i = 0; i < n; i++) {
        PL_TRY(pl_ox_axis_of(c, p[i], v->rank, &at));
        gone[at] = true;
    }
    int64_t stride = 1, to[PL_MAX_RANK] = {0}; /* stride of each input dimension in the result */
    for (int i = v->rank - 1; i >= 0; i--) {
        if (gone[i]) {
            count *= v->dim[i];
            continue;
        }
        to[i] = stride;
        stride *= v->dim[i];
    }
    for (int i = 0; i < v->rank; i++)
        if (!gone[i] || keep) dim[rank++] = gone[i] ? 1 : v->dim[i];
    pl_ox_val *y = make(c, v->dtype, rank, dim);
    if (!y || !v->host.n) return PL_OK;
    strides_of(v, own);
    bool prod = what[0] == 'P', max = strcmp(what, "Max") == 0, min = strcmp(what, "Min") == 0;
    double low = v->dtype == PL_BOOL ? 0 : -HUGE_VAL, high = v->dtype == PL_BOOL ? 1 : HUGE_VAL;
    for (int64_t k = 0; k < y->host.n; k++)
        pl_ox_host_put(y, k, prod ? 1 : max ? low : min ? high : 0);
    for (int64_t k = 0; k < v->host.n; k++) {
        int64_t j = 0;
        for (int i = 0; i < v->rank; i++) j += k / own[i] % v->dim[i] * to[i];
        if (v->host.i) {
            int64_t a = y->host.i[j], b = v->host.i[k];
            y->host.i[j] = prod  ? (int64_t)((uint64_t)a * (uint64_t)b)
                           : max ? (a > b ? a : b)
                           : min ? (a < b ? a : b)
                                 : (int64_t)((uint64_t)a + (uint64_t)b);
            continue;
        }
        double a = y->host.d[j], b = v->host.d[k];
        y->host.d[j] = prod ? a * b : max ? fmax(a, b) : min ? fmin(a, b) : a + b;
    }
    for (int64_t k = 0; k < y->host.n; k++) {
        if (strcmp(what, "Mean") == 0) {
            if (v->host.i)
                y->host.i[k] /= count;
            else
                y->host.d[k] /= (double)count;
        }
        if (y->host.d) pl_ox_host_put(y, k, y->host.d[k]);
    }
    return set(c, 0, y, done);
}

static pl_status range(pl_ox_call *c, bool *done)
{
    if (c->n_in < 3 || !c->in[1] || !c->in[2]) return PL_OK;
    double a = pl_ox_host_real(c->in[0], 0), z = pl_ox_host_real(c->in[1], 0);
    double step = pl_ox_host_real(c->in[2], 0), n = step == 0 ? -1 : ceil((z - a) / step);
    int64_t dim = n > 0 ? (int64_t)fmin(n, 1e18) : 0;
    pl_ox_val *y = step == 0 ? NULL : make(c, c->in[0]->dtype, 1, &dim);
    if (!y) return PL_OK;
    for (int64_t k = 0; k < dim; k++) pl_ox_host_put(y, k, a + (double)k * step);
    return set(c, 0, y, done);
}

/* TorchScript computes repeats of a tensor with it. */
static pl_status one_hot(pl_ox_call *c, bool *done)
{
    const pl_ox_val *v = c->in[0];
    if (c->n_in < 3 || !c->in[1] || !c->in[2]) return PL_OK;
    if (c->in[1]->host.n < 1 || c->in[2]->host.n != 2 || v->rank >= PL_MAX_RANK) return PL_OK;
    int64_t depth = pl_ox_host_int(c->in[1], 0), dim[PL_MAX_RANK], inner = 1;
    int axis;
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -1), v->rank + 1, &axis));
    if (depth < 1) return PL_OK;
    for (int i = 0, k = 0; i <= v->rank; i++) dim[i] = i == axis ? depth : v->dim[k++];
    for (int i = axis + 1; i <= v->rank; i++) inner *= dim[i];
    pl_ox_val *y = make(c, c->in[2]->dtype, v->rank + 1, dim);
    if (!y) return PL_OK;
    for (int64_t k = 0; k < y->host.n; k++) {
        int64_t at = pl_ox_host_int(v, k / (inner * depth) * inner + k % inner);
        if (at < 0) at += depth;
        pl_ox_host_copy(y, k, c->in[2], at == k / inner % depth);
    }
    return set(c, 0, y, done);
}

pl_ox_fold_fn *pl_ox_fold_move(const char *op)
{
    static const struct {
        const char *op;
        pl_ox_fold_fn *fn;
    } table[] = {
        {"Reshape", reshape},  {"Flatten", flatten},     {"Squeeze", squeeze},
        {"Slice", slice},      {"Transpose", transpose}, {"Unsqueeze", unsqueeze},
        {"Split", split},      {"Expand", expand},       {"Concat", concat},
        {"Tile", tile},        {"Gather", gather},       {"ScatterND", scatter_nd},
        {"NonZero", non_zero}, {"GatherND", gather_nd},  {"Trilu", trilu},
        {"CumSum", cumsum},    {"ReduceSum", reduce},    {"ReduceProd", reduce},
        {"ReduceMax", reduce}, {"ReduceMin", reduce},    {"ReduceMean", reduce},
        {"Range", range},      {"OneHot", one_hot},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].op, op) == 0) return table[i].fn;
    return NULL;
}
