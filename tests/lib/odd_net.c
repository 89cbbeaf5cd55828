/* odd_net.c - random networks, as users might write them. odd_recipe.c makes a recipe of them.
 *
 * The key `net` is the seed of a random walk: an input of 0 to 3 spatial dims, then layer after
 * layer from a table of all kinds (convolutions of every form, norms, attention, pools, resizing,
 * sorting, indexing, reductions along any axis, moves), at random sizes, then a loss. Only the
 * public headers are used: the file is built into odd.so for the program and tools/gpu/odd, and is
 * a part of pl_test.
 *
 * A layer takes x [N, s.., C] and returns a value of that form; where the layer makes no sense for
 * x it returns x. Norms bound values that may grow, so that losses of two devices can be compared.
 * Layers never read other samples unless `coupled`, which the walk decides: without it, the batch
 * may be split and the engine must prove that. */
#include "tests/lib/odd_net.h"

#include "plimsoll_nn.h"

#include <string.h>

enum { MAX_ELEMS = 24000 }; /* of one sample, between layers */

typedef struct walk {
    pl_nn *m;
    pl_graph *g;
    uint64_t seed, count;
    bool coupled;
    pl_val before; /* an earlier value, for skips */
} walk;

/* ---- choosing --------------------------------------------------------------------------- */
static double draw(walk *w)
{
    return pl_sample_uniform(w->seed, w->count++);
}

static int64_t between(walk *w, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(draw(w) * (double)(hi - lo + 1));
}

static bool chance(walk *w, double p)
{
    return draw(w) < p;
}

static pl_type type_of(walk *w, pl_val x)
{
    return pl_val_type(w->g, x);
}

static int rank_of(walk *w, pl_val x)
{
    return type_of(w, x).rank;
}

static int64_t channels(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    return t.dim[t.rank - 1];
}

static int64_t sample_elems(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    return pl_type_elems(&t) / t.dim[0];
}

static const char *name(walk *w, const char *what)
{
    return pl_nn_name(w->m, "%s%d", what, (int)w->count++);
}

/* A width; odd widths are as likely as round ones. */
static int64_t width(walk *w)
{
    static const int64_t usual[] = {8, 16, 24, 32, 64};
    return chance(w, 0.5) ? usual[between(w, 0, 4)] : between(w, 1, 41);
}

/* A divisor of n, at random. */
static int64_t divisor(walk *w, int64_t n)
{
    int64_t d = between(w, 1, n);
    while (n % d) d--;
    return d;
}

static pl_val norm(walk *w, pl_val x)
{
    switch (between(w, 0, w->coupled && rank_of(w, x) > 1 ? 4 : 3)) {
    case 0: return pl_nn_layer_norm(w->m, x, name(w, "ln"), (pl_nn_norm){.eps = 1e-3});
    case 1: return pl_nn_rms_norm(w->m, x, name(w, "rms"), (pl_nn_norm){.eps = 1e-3});
    case 2:
        return pl_nn_group_norm(w->m, x, name(w, "gn"), divisor(w, channels(w, x)),
                                (pl_nn_norm){.eps = 1e-3});
    case 3: return pl_tanh(w->g, x);
    default: return pl_nn_batch_norm(w->m, x, name(w, "bn"), (pl_nn_norm){.eps = 1e-3});
    }
}

/* ---- layers ----------------------------------------------------------------------------- */
static pl_val layer_norm(walk *w, pl_val x)
{
    return norm(w, x);
}

static pl_val layer_activation(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    switch (between(w, 0, 15)) {
    case 0: return pl_relu(g, x);
    case 1: return pl_leaky_relu(g, x, 0.1);
    case 2: return pl_silu(g, x);
    case 3: return pl_gelu(g, x);
    case 4: return pl_gelu_tanh(g, x);
    case 5: return pl_sigmoid(g, x);
    case 6: return pl_softplus(g, x);
    case 7: return pl_erf(g, x);
    case 8: return pl_sin(g, x);
    case 9: return pl_sqrt(g, pl_shift(g, pl_square(g, x), 0.25));
    case 10: return pl_reciprocal(g, pl_shift(g, pl_abs(g, x), 1));
    case 11: return pl_log(g, pl_shift(g, pl_square(g, x), 1));
    case 12: return pl_clamp(g, x, -0.75, 1.25);
    case 13: return pl_exp(g, pl_min(g, x, pl_full_like(g, x, 1)));
    case 14:
        return pl_select(g, pl_gt(g, x, pl_full_like(g, x, 0.3)), pl_cos(g, x),
                         pl_scale(g, x, 0.5));
    default: return pl_rsqrt(g, pl_shift(g, pl_square(g, x), 1));
    }
}

static pl_val layer_linear(walk *w, pl_val x)
{
    int64_t out = width(w);
    if (sample_elems(w, x) / channels(w, x) * out > MAX_ELEMS) return x;
    return pl_nn_linear(w->m, x, name(w, "lin"), out, (pl_nn_lin){.no_bias = chance(w, 0.3)});
}

static pl_val layer_geglu(walk *w, pl_val x)
{
    int64_t out = width(w);
    if (sample_elems(w, x) / channels(w, x) * out > MAX_ELEMS) return x;
    return pl_nn_geglu(w->m, x, name(w, "geglu"), out);
}

/* Kernel, stride, dilation and padding of a spatial dim such that the output is not empty. */
static void draw_window(walk *w, int64_t size, int *kernel, int *stride, int *dilation, int *lo,
                        int *hi)
{
    *kernel = (int)between(w, 1, 5);
    *stride = chance(w, 0.35) ? (int)between(w, 2, 3) : 1;
    *dilation = chance(w, 0.2) ? 2 : 1;
    int reach = *dilation * (*kernel - 1);
    *lo = (int)between(w, 0, reach);
    *hi = chance(w, 0.6) ? reach - *lo : (int)between(w, 0, reach);
    if (size + *lo + *hi <= reach) *lo = reach;
}

static pl_val layer_conv(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    int dims = t.rank - 2;
    if (dims < 1) return x;
    pl_conv_opts o = {.groups = 1};
    int64_t in = channels(w, x), out = width(w), k[5];
    if (chance(w, 0.35)) { /* grouped; depthwise where each channel is a group */
        o.groups = (int)(chance(w, 0.5) ? in : divisor(w, in));
        out = o.groups * between(w, 1, 1 + 40 / o.groups);
    }
    k[0] = out;
    for (int i = 0; i < dims; i++) {
        int kernel;
        draw_window(w, t.dim[1 + i], &kernel, &o.stride[i], &o.dilation[i], &o.pad_lo[i],
                    &o.pad_hi[i]);
        k[1 + i] = kernel;
    }
    k[1 + dims] = in / o.groups;
    if (sample_elems(w, x) / in * out > MAX_ELEMS) return x;
    pl_val weight =
        pl_nn_param(w->m, name(w, "conv"), dims + 2, k, pl_nn_kaiming_uniform(PL_FAN_IN, 1));
    pl_val bias = chance(w, 0.6)
                      ? pl_nn_param(w->m, name(w, "bias"), 1, &out, pl_nn_uniform(-0.1, 0.1))
                      : PL_NO_VAL;
    return pl_conv(w->g, x, weight, bias, &o);
}

static pl_val layer_conv_transpose(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    int dims = t.rank - 2, out_pad[3] = {0};
    if (dims < 1 || sample_elems(w, x) > MAX_ELEMS / 16) return x;
    pl_conv_opts o = {.groups = 1};
    int64_t out = between(w, 1, 17), k[5];
    if (chance(w, 0.3)) {
        o.groups = (int)divisor(w, channels(w, x));
        out = o.groups * between(w, 1, 1 + 16 / o.groups);
    }
    k[0] = channels(w, x);
    for (int i = 0; i < dims; i++) {
        int kernel = (int)between(w, 1, 4), reach;
        o.stride[i] = (int)between(w, 1, 2);
        o.dilation[i] = chance(w, 0.2) ? 2 : 1;
        reach = o.dilation[i] * (kernel - 1);
        o.pad_lo[i] = (int)between(w, 0, reach / 2);
        o.pad_hi[i] = (int)between(w, 0, reach / 2);
        out_pad[i] = o.stride[i] > 1 ? (int)between(w, 0, 1) : 0;
        k[1 + i] = kernel;
    }
    k[1 + dims] = out / o.groups;
    pl_val weight =
        pl_nn_param(w->m, name(w, "up"), dims + 2, k, pl_nn_kaiming_uniform(PL_FAN_IN, 1));
    return pl_conv_transpose(w->g, x, weight, PL_NO_VAL, &o, out_pad);
}

/* A separate kernel for every sample, computed from the sample. */
static pl_val layer_per_sample(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    if (t.rank != 4) return x;
    int64_t c = t.dim[3], k = 2 * between(w, 0, 2) + 1;
    pl_conv_opts o = {0};
    for (int i = 0; i < 2; i++) o.pad_lo[i] = o.pad_hi[i] = (int)(k / 2);
    pl_val made = pl_nn_linear(w->m, pl_nn_global_average(w->g, x), name(w, "kernel"), k * k * c,
                               (pl_nn_lin){0});
    return pl_conv_per_sample(
        w->g, x, pl_reshape(w->g, pl_tanh(w->g, made), PL_DIMS(t.dim[0], k, k, c)), &o);
}

/* [N, s.., C] to [N, T, C]. */
static pl_val tokens_of(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    return pl_reshape(w->g, x, PL_DIMS(t.dim[0], -1, t.dim[t.rank - 1]));
}

static pl_val like(walk *w, pl_val y, pl_val x)
{
    pl_type t = type_of(w, x);
    return pl_reshape(w->g, y, t.rank, t.dim);
}

static pl_val layer_attention(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    int64_t heads = between(w, 1, 5), d = chance(w, 0.5) ? 8 * between(w, 1, 6) : between(w, 1, 40),
            c = channels(w, x);
    pl_val q = tokens_of(w, x), source = q;
    pl_type t = type_of(w, q);
    bool causal = chance(w, 0.3);
    if (t.dim[1] > 400 || t.dim[1] * heads * d > 2 * MAX_ELEMS) return x;
    if (!causal && chance(w, 0.3)) { /* other tokens than the queries */
        int64_t place[] = {between(w, 1, 37), c}, all[] = {t.dim[0], place[0], c};
        source = pl_broadcast(g, pl_nn_param(w->m, name(w, "memory"), 2, place, pl_nn_normal(0, 1)),
                              3, all);
    }
    int64_t n = t.dim[1], k = type_of(w, source).dim[1];
    q = pl_reshape(g, pl_nn_linear(w->m, q, name(w, "q"), heads * d, (pl_nn_lin){0}),
                   PL_DIMS(t.dim[0], n, heads, d));
    pl_val kv[2];
    for (int i = 0; i < 2; i++)
        kv[i] = pl_reshape(g, pl_nn_linear(w->m, source, name(w, "kv"), heads * d, (pl_nn_lin){0}),
                           PL_DIMS(t.dim[0], k, heads, d));
    pl_val y = pl_attention(g, q, kv[0], kv[1], chance(w, 0.3) ? 0.17 : 0, causal);
    y = pl_nn_linear(w->m, pl_reshape(g, y, PL_DIMS(t.dim[0], n, heads * d)), name(w, "o"), c,
                     (pl_nn_lin){0});
    return pl_add(g, x, like(w, y, x));
}

/* Attention written out in ops, with a mask added before the softmax. */
static pl_val layer_plain_attention(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    pl_val h = tokens_of(w, x);
    int64_t n = type_of(w, h).dim[1], d = between(w, 1, 24);
    if (n > 150) return x;
    pl_val q = pl_nn_linear(w->m, h, name(w, "q"), d, (pl_nn_lin){0}),
           k = pl_nn_linear(w->m, h, name(w, "k"), d, (pl_nn_lin){0});
    pl_type square = PL_TYPE(PL_I32, n, n);
    pl_val near = pl_lt(g, pl_abs(g, pl_sub(g, pl_iota(g, square, 0), pl_iota(g, square, 1))),
                        pl_fill(g, square, (double)between(w, 1, n)));
    pl_val s = pl_scale(g, pl_matmul(g, q, k, false, true), 0.3);
    pl_type t = type_of(w, s);
    s = pl_select(g, pl_broadcast(g, near, t.rank, t.dim), s, pl_fill(g, t, -1e4));
    return pl_add(g, x, like(w, pl_matmul(g, pl_softmax(g, s, -1), h, false, false), x));
}

static pl_val layer_pool(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    int dims = t.rank - 2;
    pl_pool_opts o = {.count_pad = chance(w, 0.5)};
    if (dims < 1) return x;
    if (dims == 2 && chance(w, 0.25)) {
        int64_t out[] = {between(w, 1, t.dim[1]), between(w, 1, t.dim[2])};
        return pl_adaptive_avg_pool(w->g, x, out);
    }
    for (int i = 0; i < dims; i++) {
        o.kernel[i] = (int)between(w, 1, t.dim[1 + i] < 4 ? t.dim[1 + i] : 4);
        o.stride[i] = (int)between(w, 1, 3);
        o.pad_lo[i] = (int)between(w, 0, o.kernel[i] / 2);
        o.pad_hi[i] = (int)between(w, 0, o.kernel[i] / 2);
    }
    return chance(w, 0.5) ? pl_max_pool(w->g, x, &o) : pl_avg_pool(w->g, x, &o);
}

static pl_val layer_resize(walk *w, pl_val x)
{
    pl_type t = type_of(w, x);
    int dims = t.rank - 2;
    int64_t out[3], all = channels(w, x);
    if (dims < 1 || dims > 2) return x;
    for (int i = 0; i < dims; i++) all *= out[i] = between(w, 1, 2 * t.dim[1 + i] + 1);
    if (all > MAX_ELEMS) return x;
    pl_resize_mode mode = (pl_resize_mode)between(w, 0, dims == 2 ? 2 : 1);
    return pl_resize(w->g, x, out, mode, mode != PL_RESIZE_NEAREST && chance(w, 0.4));
}

static pl_val layer_unfold(walk *w, pl_val x)
{
    pl_conv_opts o = {0};
    int kernel[2];
    pl_type t = type_of(w, x);
    if (t.rank != 4 || sample_elems(w, x) > MAX_ELEMS / 9) return x;
    for (int i = 0; i < 2; i++) {
        kernel[i] = (int)between(w, 1, t.dim[1 + i] < 3 ? t.dim[1 + i] : 3);
        o.stride[i] = (int)between(w, 1, 2);
        o.pad_lo[i] = o.pad_hi[i] = (int)between(w, 0, kernel[i] / 2);
    }
    return pl_unfold(w->g, x, &o, kernel);
}

/* An axis of a sample. */
static int axis_of(walk *w, pl_val x)
{
    return (int)between(w, 1, rank_of(w, x) - 1);
}

/* A reduction along some axes, broadcast over x again. */
static pl_val layer_reduce(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    uint32_t axes = 0;
    int rank = rank_of(w, x);
    for (int i = w->coupled && chance(w, 0.2) ? 0 : 1; i < rank; i++)
        if (chance(w, 0.5)) axes |= PL_AXIS(i);
    if (!axes) axes = PL_AXIS(axis_of(w, x));
    pl_val y, other;
    switch (between(w, 0, 5)) {
    case 0: y = pl_mean(g, x, axes, true); break;
    case 1: y = pl_max_over(g, x, axes, true); break;
    case 2: y = pl_min_over(g, x, axes, true); break;
    case 3: y = pl_scale(g, pl_sum(g, x, axes, true), 0.05); break;
    case 4:
        pl_moments(g, x, axes, true, &y, &other);
        return pl_div(g, pl_sub(g, x, y), pl_sqrt(g, pl_shift(g, other, 0.1)));
    default:
        y = pl_sqrt(g, pl_shift(g, pl_mean(g, pl_square(g, x), axes, true), 0.1));
        return pl_div(g, x, y);
    }
    return chance(w, 0.5) ? pl_sub(g, x, y) : pl_mul(g, x, pl_sigmoid(g, y));
}

static pl_val layer_along(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    int axis = axis_of(w, x);
    double n = (double)type_of(w, x).dim[axis];
    switch (between(w, 0, 4)) {
    case 0: return pl_add(g, x, pl_softmax(g, x, axis));
    case 1: return pl_scale(g, pl_log_softmax(g, x, axis), 0.3);
    case 2: return pl_scale(g, pl_cumsum(g, x, axis, chance(w, 0.5)), 1 / n);
    case 3: return pl_flip(g, x, PL_AXIS(axis));
    default: return pl_nn_normalize(g, x, axis, 0.1);
    }
}

static pl_val layer_sort(walk *w, pl_val x)
{
    int axis = axis_of(w, x);
    int64_t n = type_of(w, x).dim[axis];
    pl_val v, at;
    if (chance(w, 0.5)) {
        pl_sort(w->g, x, axis, chance(w, 0.5), &v, NULL);
        return v;
    }
    pl_topk(w->g, x, between(w, 1, n), axis, &v, &at);
    return chance(w, 0.5) ? v : pl_take_along(w->g, pl_tanh(w->g, x), at, axis);
}

/* Rows of a table, selected by the argmax of channels; then added at other rows. */
static pl_val layer_index(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    pl_type t = type_of(w, x);
    int64_t c = channels(w, x), rows = between(w, c, c + 5), out = c, table[] = {rows, out};
    pl_val at = pl_argmax(g, x, -1);
    pl_val picked =
        pl_take(g, pl_nn_param(w->m, name(w, "table"), 2, table, pl_nn_normal(0, 1)), at);
    if (chance(w, 0.5) || t.rank < 3) return pl_add(g, x, picked);
    int64_t places = between(w, 2, 9);
    pl_val to =
        pl_mod(g, pl_argmax(g, tokens_of(w, x), -1), pl_fill(g, PL_TYPE(PL_I32), (double)places));
    pl_val y = tokens_of(w, pl_add(g, x, picked));
    pl_type y_type = type_of(w, y);
    to = pl_broadcast(g, pl_unsqueeze(g, to, 2), 3, y_type.dim);
    return pl_scale(g, pl_put_along_add(g, y, to, 1, places), 0.2);
}

/* Adds rows by index, as a mean over the nodes of a graph does. */
static pl_val layer_scatter(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    pl_type t = type_of(w, x);
    if (t.rank < 3 || !w->coupled) return x;
    int64_t n = pl_type_elems(&t) / t.dim[t.rank - 1], rows = between(w, 1, n);
    pl_val flat = pl_reshape(g, x, PL_DIMS(n, -1));
    pl_val at = pl_mod(g, pl_scale(g, pl_iota(g, PL_TYPE(PL_I32, n), 0), 7),
                       pl_fill(g, PL_TYPE(PL_I32, n), (double)rows));
    pl_val sums = pl_scale(g, pl_scatter_add(g, flat, at, rows), (double)rows / (double)n);
    return pl_sub(g, x, like(w, pl_take(g, sums, at), x));
}

static pl_val layer_move(walk *w, pl_val x)
{
    pl_graph *g = w->g;
    pl_type t = type_of(w, x);
    int axis = axis_of(w, x);
    int64_t n = t.dim[axis], start = between(w, 0, n - 1);
    switch (between(w, 0, 4)) {
    case 0: return pl_slice(g, x, axis, start, between(w, start + 1, n), between(w, 1, 3));
    case 1:
        if (sample_elems(w, x) > MAX_ELEMS / 4) return x;
        return pl_pad(g, x, axis, between(w, 0, 3), between(w, 0, 3), chance(w, 0.3) ? 1 : 0, 0.5);
    case 2: return t.rank > 2 ? pl_transpose(g, x, 1 + (axis - 1) % (t.rank - 2), t.rank - 1) : x;
    case 3: {
        int64_t cut = between(w, 1, n);
        if (cut == n) return x;
        pl_val part[] = {pl_slice(g, x, axis, cut, n, 1),
                         pl_sin(g, pl_slice(g, x, axis, 0, cut, 1))};
        return pl_concat(g, 2, part, axis);
    }
    default: return t.rank > 3 ? tokens_of(w, x) : x;
    }
}

/* Joins an earlier value, where it still fits. */
static pl_val layer_skip(walk *w, pl_val x)
{
    if (!pl_val_ok(w->before)) return x;
    pl_type a = type_of(w, x), b = type_of(w, w->before);
    if (a.rank != b.rank || memcmp(a.dim, b.dim, (size_t)(a.rank - 1) * sizeof a.dim[0])) return x;
    if (a.dim[a.rank - 1] == b.dim[a.rank - 1] && chance(w, 0.7)) {
        pl_val s = pl_sigmoid(w->g, w->before);
        return chance(w, 0.5) ? pl_add(w->g, x, w->before) : pl_mul(w->g, x, s);
    }
    if (sample_elems(w, x) > MAX_ELEMS / 2) return x;
    return pl_concat(w->g, 2, (pl_val[]){x, w->before}, -1);
}

static pl_val layer_gram(walk *w, pl_val x)
{
    pl_val h = tokens_of(w, x);
    int64_t n = type_of(w, h).dim[1], c = channels(w, h);
    bool across = chance(w, 0.5); /* channels by channels */
    if (n > 150 || c > 150) return x;
    return pl_scale(w->g, pl_matmul(w->g, h, h, across, !across), 1 / (double)(across ? n : c));
}

static pl_val layer_dropout(walk *w, pl_val x)
{
    return rank_of(w, x) > 2 && chance(w, 0.5) ? pl_nn_dropout_channels(w->m, x, 0.2)
                                               : pl_nn_dropout(w->m, x, 0.3);
}

static pl_val layer_modulate(walk *w, pl_val x)
{
    int64_t c = channels(w, x);
    if (rank_of(w, x) < 3) return x;
    pl_val v = pl_nn_linear(w->m, pl_nn_global_average(w->g, x), name(w, "mod"), 2 * c,
                            (pl_nn_lin){0}),
           part[2];
    pl_split(w->g, v, 1, 2, part);
    return chance(w, 0.5) ? pl_nn_film(w->g, x, part[0], part[1])
                          : pl_nn_modulate(w->g, x, part[0], part[1]);
}

static pl_val layer_bezier(walk *w, pl_val x)
{
    return channels(w, x) % 5 ? x : pl_bezier(w->g, x, chance(w, 0.5));
}

static pl_val layer_stop(walk *w, pl_val x)
{
    return pl_add(w->g, pl_scale(w->g, x, 0.5), pl_stop_gradient(w->g, pl_tanh(w->g, x)));
}

typedef pl_val layer_fn(walk *, pl_val);
static layer_fn *const layers[] = {
    layer_norm,      layer_activation, layer_linear,
    layer_geglu,     layer_conv,       layer_conv,
    layer_conv,      layer_conv,       layer_per_sample,
    layer_pool,      layer_resize,     layer_unfold,
    layer_sort,      layer_attention,  layer_reduce,
    layer_along,     layer_index,      layer_scatter,
    layer_move,      layer_skip,       layer_plain_attention,
    layer_gram,      layer_dropout,    layer_bezier,
    layer_modulate,  layer_stop,       layer_move,
    layer_attention, layer_activation, layer_conv_transpose,
};

/* ---- the whole -------------------------------------------------------------------------- */
static pl_val draw_loss(walk *w, pl_val x, pl_val want, pl_val label)
{
    pl_graph *g = w->g;
    pl_val y = pl_nn_linear(w->m, x, "head", 5, (pl_nn_lin){0});
    switch (between(w, 0, 5)) {
    case 0: return pl_loss_mse(g, y, want);
    case 1: return pl_mean(g, pl_loss_huber(g, y, want, 0.7), PL_AXES_ALL, false);
    case 2: return pl_loss_cross_entropy(g, y, label);
    case 3: return pl_loss_l1(g, y, want);
    case 4: return pl_loss_bce_with_logits(g, y, pl_sigmoid(g, want));
    default:
        return pl_mean(g, pl_shift(g, pl_neg(g, pl_loss_cosine_similarity(g, y, want, 1)), 2),
                       PL_AXES_ALL, false);
    }
}

/* The network of one program; both programs draw the same network. */
pl_val odd_network(pl_builder *b, pl_nn *m)
{
    const pl_config *c = pl_builder_config(b);
    walk w = {.m = m, .g = m->g, .before = PL_NO_VAL};
    w.seed = pl_sample_seed(0x0DD, PL_SUBSET_TRAIN, pl_config_int(c, "net"));
    w.coupled = chance(&w, 0.4);
    int64_t dims = between(&w, 0, 3), most = dims == 3 ? 9 : dims == 2 ? 23 : 97;
    pl_type t = {.dtype = PL_F32, .rank = (uint8_t)(dims + 2)};
    t.dim[0] = pl_builder_batch(b);
    for (int64_t i = 1; i <= dims; i++) t.dim[i] = between(&w, 2, most);
    t.dim[dims + 1] = dims ? between(&w, 1, 9) : between(&w, 3, 70);
    pl_val x = pl_input(w.g, "x", t);
    pl_val want = pl_input(w.g, "want", PL_TYPE(PL_F32, t.dim[0], 5)),
           label = pl_input(w.g, "label", PL_TYPE(PL_I32, t.dim[0]));
    int64_t depth = pl_config_int(c, "layers");
    if (!depth) depth = between(&w, 3, 12);
    for (int64_t i = 0; i < depth; i++) {
        pl_nn_push(m, "layer%d", (int)i);
        pl_val y = layers[between(&w, 0, (int64_t)(sizeof layers / sizeof layers[0]) - 1)](&w, x);
        if (chance(&w, 0.5)) y = norm(&w, y);
        if (chance(&w, 0.4)) w.before = x;
        pl_nn_pop(m);
        x = y;
        if (!pl_val_ok(x)) return x;
    }
    if (rank_of(&w, x) > 2) x = pl_nn_global_average(w.g, x);
    return draw_loss(&w, pl_nn_layer_norm(m, x, "last", (pl_nn_norm){.eps = 1e-3}), want, label);
}
