/* tile_reduce.c - see tile_reduce.h. pl_red_plan, close_block and the fold decide all orders; the
 * loops in vec_acc.isa.c follow.
 */
#include "cpu/tile/tile_reduce.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

static bool is_float(pl_vec_class c)
{
    return c == PL_VEC_F32 || c == PL_VEC_F64;
}

/* ---- plan ------------------------------------------------------------------------------- */

static void find_runs(pl_red *r, int rank, const int64_t *dim, uint32_t mask)
{
    for (int d = 0; d < rank; d++) {
        bool red = (mask >> d) & 1u;
        if (!red) r->n_out *= dim[d];
        if (dim[d] == 1) continue;
        if (r->n_runs && r->reduced[r->n_runs - 1] == red) {
            r->run[r->n_runs - 1] *= dim[d];
            continue;
        }
        r->run[r->n_runs] = dim[d];
        r->reduced[r->n_runs++] = red;
    }
}

/* Returns the run to accumulate along: the innermost if it is the only one or long; otherwise the
 * longest, because it needs the fewest accumulators. */
static int choose_run(const pl_red *r)
{
    int last = r->n_runs - 1, best = -1;
    for (int i = 0; i < last; i++)
        if (r->reduced[i] && (best < 0 || r->run[i] >= r->run[best])) best = i;
    if (r->reduced[last] && (best < 0 || r->run[last] >= 128)) return last;
    return best;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Returns the rows taken together: the width becomes a multiple of the lanes, at least 64. */
static int64_t choose_groups(int64_t len, int64_t inner)
{
    int64_t step = PL_VEC_LANES / gcd(inner, PL_VEC_LANES), g = step;
    while (g * inner < 64) g += step;
    return g * inner <= 4096 && len >= 2 * g ? g : 1;
}

/* Parts let threads share a long run. Each part has enough work to be worth its accumulators. */
static void choose_parts(pl_red *r)
{
    int64_t width = r->groups * r->inner, want = 1;
    if (r->outer < 32) {
        want = (32 + r->outer - 1) / r->outer;
        want = min64(want, r->period / 65536);
        want = min64(want, r->len / (8 * r->groups));
        want = min64(want, (1 << 18) / width);
        if (want < 1) want = 1;
    }
    int64_t rows = (r->len + want - 1) / want;
    r->part_rows = (rows + r->groups - 1) / r->groups * r->groups;
    r->parts = (r->len + r->part_rows - 1) / r->part_rows;
}

void pl_red_plan(pl_red *r, pl_reduce_fn fn, pl_dtype src, pl_dtype result, int rank,
                 const int64_t *dim, uint32_t mask)
{
    memset(r, 0, sizeof *r);
    r->fn = fn;
    r->cls = pl_vec_class_of(src);
    r->dtype = result;
    r->n_out = r->outer = r->inner = r->groups = 1;
    find_runs(r, rank, dim, mask);
    bool any = false;
    for (int i = 0; i < r->n_runs; i++) any |= r->reduced[i];
    if (!any) { /* only size-1 dims: blocks of one element */
        r->run[r->n_runs] = 1;
        r->reduced[r->n_runs++] = true;
    }
    r->along = choose_run(r);
    for (int i = 0; i < r->along; i++) r->outer *= r->run[i];
    for (int i = r->along + 1; i < r->n_runs; i++) r->inner *= r->run[i];
    r->len = r->run[r->along];
    r->period = r->len * r->inner;
    r->vertical = r->along != r->n_runs - 1;
    r->blocks =
        r->vertical && r->cls == PL_VEC_F32 && (fn == PL_REDUCE_SUM || fn == PL_REDUCE_MOMENTS);
    if (r->period == 0 || r->outer == 0) return; /* an empty space: no accumulators */
    if (r->vertical) {
        r->groups = choose_groups(r->len, r->inner);
        choose_parts(r);
    } else {
        r->part_rows = PL_RED_BLOCK;
        r->parts = (r->len + PL_RED_BLOCK - 1) / PL_RED_BLOCK;
        r->direct = r->parts == 1;
        for (int i = 0; i < r->along; i++) r->direct &= !r->reduced[i];
    }
    r->unit = r->part_rows * r->inner;
    r->n_acc = r->outer * r->parts * r->groups * r->inner;
    r->planes = fn != PL_REDUCE_MOMENTS ? 1 : r->vertical ? 3 : 2;
}

int64_t pl_red_next_cut(const pl_red *r, int64_t x)
{
    int64_t o = x / r->period, rest = x % r->period;
    rest = (rest + r->unit - 1) / r->unit * r->unit;
    return o * r->period + min64(rest, r->period);
}

/* ---- combining -------------------------------------------------------------------------- */

typedef pl_partial partial;

/* Chan, Golub, LeVeque: updating formulae for a pairwise algorithm. */
static void merge_moments(partial *a, const partial *b)
{
    double n = a->n + b->n, delta = b->v.f - a->v.f;
    a->v.f += delta * (b->n / n);
    a->m2 += b->m2 + delta * delta * (a->n * (b->n / n));
    a->n = n;
}

static pl_acc merge_value(pl_reduce_fn fn, pl_vec_class cls, pl_acc a, pl_acc b)
{
    if (is_float(cls)) {
        bool take = fn == PL_REDUCE_MAX ? b.f > a.f : b.f < a.f;
        if (fn == PL_REDUCE_SUM)
            a.f += b.f;
        else if (take || b.f != b.f)
            a = b;
        return a;
    }
    if (fn == PL_REDUCE_SUM)
        a.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
    else if (fn == PL_REDUCE_MAX ? b.i > a.i : b.i < a.i)
        a = b;
    return a;
}

/* The first partial result (a->n == 0) is taken unchanged. */
static void merge(pl_reduce_fn fn, pl_vec_class cls, partial *a, const partial *b)
{
    if (a->n == 0) {
        *a = *b;
        return;
    }
    if (fn == PL_REDUCE_MOMENTS)
        merge_moments(a, b);
    else
        a->v = merge_value(fn, cls, a->v, b->v);
}

static pl_acc identity(pl_reduce_fn fn, pl_vec_class cls)
{
    pl_acc a;
    const double inf = (double)INFINITY;
    if (is_float(cls))
        a.f = fn == PL_REDUCE_MAX ? -inf : fn == PL_REDUCE_MIN ? inf : 0.0;
    else
        a.i = fn == PL_REDUCE_MAX ? INT64_MIN : fn == PL_REDUCE_MIN ? INT64_MAX : 0;
    return a;
}

/* ---- results ---------------------------------------------------------------------------- */

static int64_t clamp_to(pl_dtype d, int64_t x)
{
    if (d == PL_I32) return (int32_t)(uint32_t)(uint64_t)x;
    if (d == PL_U8) return (uint8_t)x;
    if (d == PL_BOOL) return x != 0;
    return x;
}

void pl_red_put(pl_vec_class cls, pl_dtype d, void *out, int64_t i, pl_acc value)
{
    if (!out) return;
    if (is_float(cls)) {
        float f = (float)value.f;
        if (d == PL_F32)
            ((float *)out)[i] = f;
        else if (d == PL_F64)
            ((double *)out)[i] = cls == PL_VEC_F64 ? value.f : (double)f;
        else if (d == PL_BF16)
            ((uint16_t *)out)[i] = pl_f32_to_bf16(f);
        else if (d == PL_F16)
            ((uint16_t *)out)[i] = pl_f32_to_f16(f);
        else
            pl_elem_set(d, out, i, value.f);
        return;
    }
    int64_t x = value.i;
    if (d == PL_I32)
        ((int32_t *)out)[i] = (int32_t)clamp_to(d, x);
    else if (d == PL_I64)
        ((int64_t *)out)[i] = x;
    else if (d == PL_U8 || d == PL_BOOL)
        ((uint8_t *)out)[i] = (uint8_t)clamp_to(d, x);
    else
        pl_elem_set(d, out, i, (double)x);
}

/* An empty minimum or maximum in a narrow integer type is that type's limit. */
static pl_acc fit_identity(pl_dtype d, pl_acc a)
{
    if (d == PL_I32) a.i = a.i == INT64_MIN ? INT32_MIN : a.i == INT64_MAX ? INT32_MAX : a.i;
    if (d == PL_U8) a.i = a.i == INT64_MIN ? 0 : a.i == INT64_MAX ? 255 : a.i;
    if (d == PL_BOOL) a.i = a.i == INT64_MAX;
    return a;
}

void pl_red_empty(const pl_red *r, void *out, void *out2)
{
    pl_acc a = identity(r->fn, r->cls);
    if (r->fn == PL_REDUCE_MOMENTS) a.f = (double)NAN;
    if (!is_float(r->cls)) a = fit_identity(r->dtype, a);
    for (int64_t i = 0; i < r->n_out; i++) {
        pl_red_put(r->cls, r->dtype, out, i, a);
        if (r->fn == PL_REDUCE_MOMENTS) pl_red_put(r->cls, r->dtype, out2, i, a);
    }
}

static void put_row(pl_reduce_fn fn, pl_vec_class cls, const pl_row_sink *s, int64_t i,
                    const partial *p)
{
    pl_red_put(cls, s->dtype, s->out, i, p->v);
    if (fn != PL_REDUCE_MOMENTS) return;
    pl_acc var = {.f = p->m2 / p->n};
    pl_red_put(cls, s->dtype, s->out2, i, var);
}

static void put_partial(const pl_red *r, void *out, void *out2, int64_t i, const partial *p)
{
    pl_row_sink s = {r->dtype, out, out2};
    put_row(r->fn, r->cls, &s, i, p);
}

/* ---- accumulating ----------------------------------------------------------------------- */

static void open_block(pl_reduce_fn fn, pl_vec_class cls, pl_acc *lanes, const void *x)
{
    pl_acc zero = identity(fn, cls);
    for (int l = 0; l < PL_RED_LANES; l++) lanes[l] = zero;
    if (fn == PL_REDUCE_MOMENTS)
        lanes[2 * PL_VEC_LANES].f =
            cls == PL_VEC_F32 ? (double)*(const float *)x : *(const double *)x;
}

static partial close_block(pl_reduce_fn fn, pl_vec_class cls, pl_acc *lanes, int64_t n)
{
    pl_acc *sq = lanes + PL_VEC_LANES;
    pl_reduce_fn step = fn == PL_REDUCE_MOMENTS ? PL_REDUCE_SUM : fn;
    for (int h = PL_VEC_LANES / 2; h; h /= 2)
        for (int l = 0; l < h; l++) {
            lanes[l] = merge_value(step, cls, lanes[l], lanes[l + h]);
            if (fn == PL_REDUCE_MOMENTS) sq[l].f += sq[l + h].f;
        }
    if (fn == PL_REDUCE_MOMENTS)
        return pl_red_moments_of(lanes[2 * PL_VEC_LANES].f, lanes[0].f, sq[0].f, (double)n);
    return (partial){lanes[0], 0.0, (double)n};
}

static double first_of(pl_vec_class cls, const char *x)
{
    return cls == PL_VEC_F32 ? (double)*(const float *)(const void *)x
                             : *(const double *)(const void *)x;
}

/* Reduces rows of one block each, some at a time. */
static void short_rows(const pl_vec *v, pl_reduce_fn fn, pl_vec_class cls, const char *x,
                       int64_t rows, int64_t n, pl_row_sink *sink)
{
    enum { SOME = 64 };
    pl_acc res[2 * SOME];
    size_t step = (size_t)n * pl_vec_width(cls);
    for (int64_t at = 0; at < rows; at += SOME) {
        int64_t m = min64(rows - at, SOME);
        v->acc->rows[fn][cls](res, SOME, x, m, n);
        for (int64_t r = 0; r < m; r++, x += step) {
            partial p = {res[r], 0.0, (double)n};
            if (fn == PL_REDUCE_MOMENTS)
                p = pl_red_moments_of(first_of(cls, x), res[r].f, res[SOME + r].f, (double)n);
            put_row(fn, cls, sink, at + r, &p);
        }
    }
}

void pl_red_rows(const pl_vec *v, pl_reduce_fn fn, pl_vec_class cls, const void *x, int64_t rows,
                 int64_t n, pl_acc *lanes, pl_row_sink *sink)
{
    size_t width = pl_vec_width(cls);
    if (n <= PL_RED_BLOCK) {
        short_rows(v, fn, cls, x, rows, n, sink);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        partial all = {{0}, 0.0, 0.0};
        for (int64_t at = 0; at < n; at += PL_RED_BLOCK) {
            int64_t m = min64(n - at, PL_RED_BLOCK);
            const char *p = (const char *)x + (size_t)(r * n + at) * width;
            open_block(fn, cls, lanes, p);
            v->acc->horz[fn][cls](lanes, p, 0, m);
            partial b = close_block(fn, cls, lanes, m);
            merge(fn, cls, &all, &b);
        }
        put_row(fn, cls, sink, r, &all);
    }
}

static void take_horizontal(const pl_red *r, const pl_vec *v, pl_acc *acc, pl_acc *lanes,
                            const void *x, int64_t at, int64_t n, void *out, void *out2)
{
    int64_t o = at / r->period, rest = at % r->period, p = rest / r->unit;
    int64_t q = rest - p * r->unit, size = min64(r->unit, r->period - p * r->unit);
    if (q == 0) open_block(r->fn, r->cls, lanes, x);
    v->acc->horz[r->fn][r->cls](lanes, x, q, n);
    if (q + n < size) return;
    partial b = close_block(r->fn, r->cls, lanes, size);
    if (r->direct) {
        put_partial(r, out, out2, o, &b);
        return;
    }
    acc[o * r->parts + p] = b.v;
    if (r->fn == PL_REDUCE_MOMENTS) acc[r->n_acc + o * r->parts + p].f = b.m2;
}

static void take_vertical(const pl_red *r, const pl_vec *v, pl_acc *acc, const char *x, int64_t at,
                          int64_t n)
{
    int64_t width = r->groups * r->inner;
    int64_t o = at / r->period, rest = at % r->period, p = rest / r->unit;
    int64_t q = rest - p * r->unit, c = q % width;
    pl_acc *a = acc + (o * r->parts + p) * width;
    while (n > 0) {
        int64_t rows = 1, m = width;
        if (c != 0 || n < width || q < width)
            m = min64(n, width - c);
        else
            rows = n / width;
        pl_vec_vert fn = q < width ? r->fn == PL_REDUCE_MOMENTS ? v->acc->start[r->fn][r->cls]
                                                                : v->acc->start[0][r->cls]
                                   : v->acc->vert[r->fn][r->cls];
        fn(a + c, r->n_acc, x, rows, m);
        c = 0;
        q += rows * m;
        n -= rows * m;
        x += (size_t)(rows * m) * pl_vec_width(r->cls);
    }
}

void pl_red_take(const pl_red *r, const pl_vec *v, pl_acc *acc, pl_acc *lanes, const void *x,
                 int64_t at, int64_t n, void *out, void *out2)
{
    const char *p = x;
    size_t width = pl_vec_width(r->cls);
    if (r->direct && at % r->len == 0 && n >= r->len) { /* whole rows */
        int64_t rows = n / r->len, first = at / r->len, m = rows * r->len;
        size_t skip = (size_t)first * pl_dtype_bytes(r->dtype);
        pl_row_sink s = {r->dtype, out ? (char *)out + skip : NULL,
                         out2 ? (char *)out2 + skip : NULL};
        pl_red_rows(v, r->fn, r->cls, x, rows, r->len, lanes, &s);
        p += (size_t)m * width;
        at += m;
        n -= m;
    }
    while (n > 0) {
        int64_t rest = at % r->period, end = (rest / r->unit + 1) * r->unit;
        int64_t m = min64(n, min64(end, r->period) - rest);
        if (r->blocks)
            pl_red_take_blocks(r, v, acc, (const float *)(const void *)p, at, m);
        else if (r->vertical)
            take_vertical(r, v, acc, p, at, m);
        else
            take_horizontal(r, v, acc, lanes, p, at, m, out, out2);
        p += (size_t)m * width;
        at += m;
        n -= m;
    }
}

/* ---- folding ---------------------------------------------------------------------------- */

int64_t pl_red_rows_behind(const pl_red *r, int64_t p, int64_t j)
{
    int64_t rows = min64(r->part_rows, r->len - p * r->part_rows);
    return rows > j ? (rows - j + r->groups - 1) / r->groups : 0;
}

static partial partial_at(const pl_red *r, const pl_acc *acc, int64_t i, int64_t n)
{
    if (r->blocks) return pl_red_block_at(r, acc, i, n);
    if (r->fn != PL_REDUCE_MOMENTS) return (partial){acc[i], 0.0, (double)n};
    if (!r->vertical) return (partial){acc[i], acc[r->n_acc + i].f, (double)n};
    return pl_red_moments_of(acc[i].f, acc[r->n_acc + i].f, acc[2 * r->n_acc + i].f, (double)n);
}

/* Strides, in accumulators, of the runs around the accumulated one. */
static void run_strides(const pl_red *r, int64_t *stride)
{
    int64_t s = 1;
    for (int i = r->n_runs - 1; i >= 0; i--) {
        if (i == r->along)
            s = r->parts * r->groups * r->inner;
        else {
            stride[i] = s;
            s *= r->run[i];
        }
    }
}

/* Advances the coordinates of the reduced runs in [lo, hi), and *at with them; false at the end. */
static bool next_reduced(const pl_red *r, const int64_t *stride, int lo, int hi, int64_t *coord,
                         int64_t *at)
{
    for (int i = hi - 1; i >= lo; i--) {
        if (!r->reduced[i]) continue;
        *at += stride[i];
        if (++coord[i] < r->run[i]) return true;
        *at -= stride[i] * r->run[i];
        coord[i] = 0;
    }
    return false;
}

static partial fold_one(const pl_red *r, const pl_acc *acc, const int64_t *stride, int64_t at)
{
    partial all = {{0}, 0.0, 0.0};
    int64_t coord[PL_FUSED_RANK + 1] = {0};
    do {
        for (int64_t p = 0; p < r->parts; p++)
            for (int64_t j = 0; j < r->groups; j++) {
                int64_t n = pl_red_rows_behind(r, p, j);
                if (n == 0) break;
                int64_t i = at + (p * r->groups + j) * r->inner;
                do {
                    partial b = partial_at(r, acc, i, n);
                    merge(r->fn, r->cls, &all, &b);
                } while (next_reduced(r, stride, r->along + 1, r->n_runs, coord, &i));
            }
    } while (next_reduced(r, stride, 0, r->along, coord, &at));
    return all;
}

int64_t pl_red_fold_step(const pl_red *r)
{
    enum { WORK = 1 << 14 }; /* accumulators per task, at least the cost of waking a thread */
    int64_t step = r->n_acc ? WORK * r->n_out / r->n_acc : WORK;
    return step < 64 ? 64 : step;
}

void pl_red_fold(const pl_red *r, const pl_acc *acc, int64_t lo, int64_t hi, void *out, void *out2)
{
    if (r->direct) return;
    bool plain = true; /* only the accumulated run is reduced */
    for (int i = 0; i < r->n_runs; i++) plain &= i == r->along || !r->reduced[i];
    if (r->blocks && plain) {
        pl_red_fold_blocks(r, acc, lo, hi, out, out2);
        return;
    }
    if (r->n_acc == r->n_out) { /* one accumulator per result, in the same order */
        int64_t n = pl_red_rows_behind(r, 0, 0);
        for (int64_t k = lo; k < hi; k++) {
            partial b = partial_at(r, acc, k, n);
            put_partial(r, out, out2, k, &b);
        }
        return;
    }
    int64_t stride[PL_FUSED_RANK + 1] = {0};
    run_strides(r, stride);
    for (int64_t k = lo; k < hi; k++) {
        int64_t at = 0, rest = k;
        for (int i = r->n_runs - 1; i >= 0; i--) {
            if (r->reduced[i]) continue;
            at += rest % r->run[i] * stride[i];
            rest /= r->run[i];
        }
        partial all = fold_one(r, acc, stride, at);
        put_partial(r, out, out2, k, &all);
    }
}
