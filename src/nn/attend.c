/* attend.c - attention layers and position codes. */
#include "nn/nn.h"

#include <math.h>

pl_val pl_nn_attend_with(pl_graph *g, pl_val q, pl_val k, pl_val v, pl_nn_attention o)
{
    if (!pl_val_ok(q) || !pl_val_ok(k) || !pl_val_ok(v)) return PL_NO_VAL;
    pl_type tq = pl_val_type(g, q), tk = pl_val_type(g, k), tv = pl_val_type(g, v);
    int kv = o.kv_heads ? o.kv_heads : o.heads;
    /* reports an error where the shape is not [batch, positions, width] */
    q = pl_reshape(g, q, PL_DIMS(tq.dim[0], tq.dim[1], tq.dim[2]));
    k = pl_reshape(g, k, PL_DIMS(tk.dim[0], tk.dim[1], tk.dim[2]));
    v = pl_reshape(g, v, PL_DIMS(tv.dim[0], tv.dim[1], tv.dim[2]));
    int64_t b = tq.dim[0], n = tq.dim[1], s = tk.dim[1];
    q = pl_reshape(g, q, PL_DIMS(b, n, o.heads, -1));
    k = pl_reshape(g, k, PL_DIMS(b, s, kv, -1));
    v = pl_reshape(g, v, PL_DIMS(b, s, kv, -1));
    if (!pl_val_ok(q)) return PL_NO_VAL;
    if (pl_val_ok(o.angles)) {
        q = pl_nn_rope(g, q, o.angles, o.half_split);
        k = pl_nn_rope(g, k, o.angles, o.half_split);
    }
    if (o.scale == 0) o.scale = 1 / sqrt((double)(tq.dim[2] / o.heads));
    pl_val y = pl_val_ok(o.mask) ? pl_attention_masked(g, q, k, v, o.mask, o.scale, o.causal)
                                 : pl_attention(g, q, k, v, o.scale, o.causal);
    return pl_reshape(g, y, PL_DIMS(b, n, -1));
}

pl_val pl_nn_attend(pl_graph *g, pl_val q, pl_val k, pl_val v, int heads)
{
    return pl_nn_attend_with(g, q, k, v, (pl_nn_attention){.heads = heads});
}

/* Applies rows [lo, hi) of the packed projection to x; b may be missing. */
static pl_val project(pl_graph *g, pl_val x, pl_val w, pl_val b, int64_t lo, int64_t hi)
{
    if (pl_val_ok(b)) b = pl_slice(g, b, 0, lo, hi, 1);
    return pl_linear(g, x, pl_slice(g, w, 0, lo, hi, 1), b);
}

/* The width of q, after a check of shapes and heads; 0: the context has the error. */
static int64_t checked_width(pl_nn *m, pl_val q, pl_val source, const char *name,
                             const pl_nn_attention *o)
{
    pl_graph *g = m->g;
    int64_t e = pl__nn_dim(m, q, -1);
    int kv = o->kv_heads ? o->kv_heads : o->heads;
    if (pl_val_ok(q) && pl_val_ok(source) &&
        (pl_val_type(g, q).rank != 3 || pl_val_type(g, source).rank != 3)) {
        pl_nn_fail(m, PL_ERR_SHAPE,
                   "%s: rank %d attends to rank %d: needs [batch, positions, width]", name,
                   pl_val_type(g, q).rank, pl_val_type(g, source).rank);
        return 0;
    }
    if (e == 0 || o->heads < 1 || e % o->heads) {
        pl_nn_fail(m, PL_ERR_SHAPE, "%s: width %lld in %d heads", name, (long long)e, o->heads);
        return 0;
    }
    if (kv < 1 || o->heads % kv) {
        pl_nn_fail(m, PL_ERR_SHAPE,
                   "%s: %d heads of queries share %d heads of keys and values: needs a divisor of "
                   "%d",
                   name, o->heads, kv, o->heads);
        return 0;
    }
    return e;
}

pl_val pl_nn_multi_head_attention_with(pl_nn *m, pl_val q, pl_val source, const char *name,
                                       pl_nn_attention o)
{
    pl_graph *g = m->g;
    int64_t e = checked_width(m, q, source, name, &o);
    if (e == 0) return PL_NO_VAL;
    if (o.kv_heads && o.kv_heads != o.heads)
        return pl_nn_fail(m, PL_ERR_ARG,
                          "%s: %d heads of keys for %d heads of queries: in_proj_weight has no "
                          "place for them; use pl_nn_grouped_query_attention",
                          name, o.kv_heads, o.heads);
    pl_nn_push(m, "%s", name);
    pl_val w = pl_nn_param(m, "in_proj_weight", PL_DIMS(3 * e, e), pl_nn_xavier_uniform(1));
    pl_val b = PL_NO_VAL;
    if (!o.no_bias) b = pl_nn_param(m, "in_proj_bias", PL_DIMS(3 * e), pl_nn_constant(0));
    pl_val part[3];
    if (q.id == source.id) {
        pl_split(g, pl_linear(g, q, w, b), -1, 3, part);
    } else {
        part[0] = project(g, q, w, b, 0, e);
        part[1] = project(g, source, w, b, e, 2 * e);
        part[2] = project(g, source, w, b, 2 * e, 3 * e);
    }
    pl_val y = pl_nn_attend_with(g, part[0], part[1], part[2], o);
    y = pl_nn_linear(m, y, "out_proj", e,
                     (pl_nn_lin){.no_bias = o.no_bias, .bias_init = pl_nn_constant(0)});
    pl_nn_pop(m);
    return y;
}

pl_val pl_nn_multi_head_attention(pl_nn *m, pl_val q, pl_val source, const char *name, int heads)
{
    return pl_nn_multi_head_attention_with(m, q, source, name, (pl_nn_attention){.heads = heads});
}

pl_val pl_nn_grouped_query_attention(pl_nn *m, pl_val q, pl_val source, const char *name,
                                     pl_nn_attention o)
{
    int64_t e = checked_width(m, q, source, name, &o);
    if (e == 0) return PL_NO_VAL;
    int64_t d = e / o.heads, kv = o.kv_heads ? o.kv_heads : o.heads;
    pl_nn_lin lin = {.no_bias = o.no_bias};
    pl_nn_push(m, "%s", name);
    pl_val y = pl_nn_attend_with(m->g, pl_nn_linear(m, q, "q_proj", e, lin),
                                 pl_nn_linear(m, source, "k_proj", kv * d, lin),
                                 pl_nn_linear(m, source, "v_proj", kv * d, lin), o);
    y = pl_nn_linear(m, y, "o_proj", e, lin);
    pl_nn_pop(m);
    return y;
}

/* ---- positions -------------------------------------------------------------------------- */
/* Returns base^(-k*by/over) for k < n; products and quotients are rounded to the type like
 * PyTorch's. */
static pl_val frequencies(pl_graph *g, pl_dtype dtype, int64_t n, double by, double over,
                          double base, bool power)
{
    pl_val k = pl_iota(g, PL_TYPE(dtype, n), 0);
    if (!power) return pl_exp(g, pl_div(g, pl_scale(g, k, -log(base)), pl_full_like(g, k, over)));
    pl_val e = pl_div(g, pl_scale(g, k, -by), pl_full_like(g, k, over));
    return pl_pow(g, pl_full_like(g, k, base), e);
}

/* Outer product of n positions and a row of frequencies. */
static pl_val angles_of(pl_graph *g, pl_val pos, pl_val freq)
{
    return pl_mul(g, pl_unsqueeze(g, pos, -1), freq);
}

pl_val pl_nn_time_features(pl_graph *g, pl_val t, int64_t dim, pl_nn_sinusoid o)
{
    int64_t half = dim / 2;
    double over = (double)(o.last_is_full ? half - 1 : half);
    pl_dtype dtype = pl_val_type(g, t).dtype == PL_F64 ? PL_F64 : PL_F32;
    pl_val freq = frequencies(g, dtype, half, 1, over, o.period > 0 ? o.period : 10000, o.power);
    pl_val a = angles_of(g, pl_cast(g, t, dtype), freq);
    pl_val pair[2] = {pl_cos(g, a), pl_sin(g, a)};
    if (o.sin_first) {
        pl_val first = pair[1];
        pair[1] = pair[0];
        pair[0] = first;
    }
    return pl_concat(g, 2, pair, -1);
}

/* Sine and cosine of each frequency, next to each other, of n positions: [n, 2*width]. */
static pl_val sin_cos(pl_graph *g, pl_dtype dtype, int64_t n, int64_t width)
{
    pl_val freq = frequencies(g, dtype, width, 1, (double)width, 10000, true);
    pl_val a = angles_of(g, pl_iota(g, PL_TYPE(dtype, n), 0), freq);
    pl_val pairs = pl_stack(g, 2, (pl_val[]){pl_sin(g, a), pl_cos(g, a)}, 2);
    return pl_reshape(g, pairs, PL_DIMS(n, 2 * width));
}

pl_val pl_nn_position_2d(pl_graph *g, pl_dtype dtype, int64_t h, int64_t w, int64_t dim)
{
    int64_t half = dim / 2;
    pl_val y = pl_reshape(g, sin_cos(g, dtype, h, dim / 4), PL_DIMS(h, 1, half));
    pl_val x = pl_reshape(g, sin_cos(g, dtype, w, dim / 4), PL_DIMS(1, w, half));
    y = pl_broadcast(g, y, PL_DIMS(h, w, half));
    x = pl_broadcast(g, x, PL_DIMS(h, w, half));
    return pl_reshape(g, pl_concat(g, 2, (pl_val[]){y, x}, -1), PL_DIMS(h * w, dim));
}

pl_val pl_nn_rope_angles(pl_graph *g, pl_dtype dtype, int axes, const int64_t *size,
                         const int64_t *width, double base)
{
    pl_val part[3];
    int64_t full[4] = {1, 1, 1, 0}, points = 1, total = 0;
    if (axes < 1 || axes > 3) return PL_NO_VAL;
    for (int i = 0; i < axes; i++) {
        full[i] = size[i];
        points *= size[i];
        total += width[i] / 2;
    }
    for (int i = 0; i < axes; i++) {
        pl_val freq = frequencies(g, dtype, width[i] / 2, 2, (double)width[i], base, true);
        pl_val a = angles_of(g, pl_iota(g, PL_TYPE(dtype, size[i]), 0), freq);
        int64_t dim[4] = {1, 1, 1, width[i] / 2};
        dim[i] = size[i];
        a = pl_reshape(g, a, 4, dim);
        full[3] = width[i] / 2;
        part[i] = pl_broadcast(g, a, 4, full);
    }
    return pl_reshape(g, pl_concat(g, axes, part, -1), PL_DIMS(points, total));
}

pl_val pl_nn_rope(pl_graph *g, pl_val x, pl_val angles, bool half_split)
{
    if (!pl_val_ok(x) || !pl_val_ok(angles)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t n = t.dim[1], half = t.dim[3] / 2;
    int pair = half_split ? 3 : 4; /* the axis of length 2 */
    int64_t dim[5] = {t.dim[0], n, t.dim[2], half_split ? 2 : half, half_split ? half : 2};
    /* Angles grow with the position: a 16-bit type has no bits left for the position on the
     * circle. */
    pl_dtype work = t.dtype == PL_F64 ? PL_F64 : PL_F32;
    angles = pl_cast(g, pl_reshape(g, angles, PL_DIMS(n, 1, half)), work);
    pl_val c = pl_cos(g, angles), s = pl_sin(g, angles);
    pl_val split = pl_reshape(g, pl_cast(g, x, work), 5, dim);
    pl_val a = pl_squeeze(g, pl_slice(g, split, pair, 0, 1, 1), pair);
    pl_val b = pl_squeeze(g, pl_slice(g, split, pair, 1, 2, 1), pair);
    pl_val turned[2] = {pl_sub(g, pl_mul(g, a, c), pl_mul(g, b, s)),
                        pl_add(g, pl_mul(g, a, s), pl_mul(g, b, c))};
    return pl_cast(g, pl_reshape(g, pl_stack(g, 2, turned, pair), t.rank, t.dim), t.dtype);
}

/* From both ends towards the middle, as torch.linspace: the ends are exact. */
pl_val pl_nn_linspace(pl_graph *g, pl_dtype dtype, double lo, double hi, int64_t n)
{
    double step = n > 1 ? (hi - lo) / (double)(n - 1) : 0;
    pl_val i = pl_iota(g, PL_TYPE(dtype, n), 0);
    pl_val up = pl_shift(g, pl_scale(g, i, step), lo);
    pl_val back = pl_shift(g, pl_neg(g, i), (double)(n - 1));
    pl_val down = pl_shift(g, pl_neg(g, pl_scale(g, back, step)), hi);
    pl_val first = pl_lt(g, i, pl_full_like(g, i, (double)(n / 2)));
    return pl_select(g, first, up, down);
}
