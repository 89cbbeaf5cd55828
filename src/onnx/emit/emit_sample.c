/* emit_sample.c - GridSample, AffineGrid, RoiAlign and DeformConv: pixels of a map at computed
 * positions. Positions get gradients through the weights of the pixels around them. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

/* A map [N, size.., C]; P positions of each sample. */
typedef struct map {
    pl_val rows;     /* [N*D*H*W, C] */
    pl_val base;     /* [N, P]: first row of the sample's map, i32 */
    int n;           /* spatial dimensions: 2 or 3 */
    int64_t size[3]; /* H, W or D, H, W */
    pl_dtype dtype;
} map;

static pl_val within(pl_graph *g, pl_val x, int64_t n)
{
    return pl_and(g, pl_ge(g, x, pl_full_like(g, x, 0)),
                  pl_le(g, x, pl_full_like(g, x, (double)(n - 1))));
}

/* Pixels at whole positions, [N, P] for each dimension: [N, P, C]. zeros: outside the map 0, else
 * the nearest pixel of the border. */
static pl_val pixel(pl_graph *g, const map *m, const pl_val *at, bool zeros)
{
    pl_val in = PL_NO_VAL, row = PL_NO_VAL;
    for (int k = 0; k < m->n; k++) {
        pl_val here = within(g, at[k], m->size[k]);
        pl_val x = pl_clamp(g, at[k], 0, (double)(m->size[k] - 1));
        in = k ? pl_and(g, in, here) : here;
        row = k ? pl_add(g, pl_scale(g, row, (double)m->size[k]), x) : x;
    }
    pl_val p = pl_take(g, m->rows, pl_add(g, pl_cast(g, row, PL_I32), m->base));
    if (!zeros) return p;
    return pl_mul(g, p, pl_unsqueeze(g, pl_cast(g, in, m->dtype), -1));
}

/* -1 .. 1 to pixels. */
static pl_val unnormal(pl_graph *g, pl_val x, int64_t n, bool align)
{
    double d = (double)n;
    return align ? pl_scale(g, pl_shift(g, x, 1), (d - 1) / 2)
                 : pl_shift(g, pl_scale(g, pl_shift(g, x, 1), d / 2), -0.5);
}

/* Reflects positions at the borders of the map. */
static pl_val reflected(pl_graph *g, pl_val x, int64_t n, bool align)
{
    double lo = align ? 0 : -0.5, span = align ? (double)(n - 1) : (double)n;
    if (span <= 0) return pl_full_like(g, x, 0);
    pl_val d = pl_abs(g, pl_shift(g, x, -lo));
    pl_val whole = pl_floor(g, pl_scale(g, d, 1 / span));
    pl_val rest = pl_sub(g, d, pl_scale(g, whole, span));
    pl_val odd = pl_mod(g, whole, pl_full_like(g, whole, 2));
    pl_val back = pl_shift(g, pl_neg(g, rest), span);
    x = pl_select(g, pl_gt(g, odd, pl_full_like(g, odd, 0.5)), back, rest);
    return pl_clamp(g, pl_shift(g, x, lo), 0, (double)(n - 1));
}

/* The pixel at or below each position, and the position's distance to it. */
static void split_position(pl_graph *g, int n, const pl_val *at, pl_val *low, pl_val *rest)
{
    for (int k = 0; k < n; k++) {
        low[k] = pl_stop_gradient(g, pl_floor(g, at[k]));
        rest[k] = pl_unsqueeze(g, pl_sub(g, at[k], low[k]), -1);
    }
}

/* The sum of the 2^n pixels around a position with linear weights; dimensions below `k` are
 * chosen. */
static pl_val linear_from(pl_graph *g, const map *m, int k, pl_val *at, const pl_val *rest,
                          bool zeros)
{
    if (k == m->n) return pixel(g, m, at, zeros);
    pl_val low = at[k], a = linear_from(g, m, k + 1, at, rest, zeros);
    at[k] = pl_shift(g, low, 1);
    pl_val b = linear_from(g, m, k + 1, at, rest, zeros);
    at[k] = low;
    return pl_add(g, a, pl_mul(g, pl_sub(g, b, a), rest[k]));
}

static pl_val linear(pl_graph *g, const map *m, const pl_val *at, bool zeros)
{
    pl_val low[3], rest[3];
    split_position(g, m->n, at, low, rest);
    return linear_from(g, m, 0, low, rest, zeros);
}

/* The largest of the four pixels around a position, each times its weight (RoiAlign's maximum). */
static pl_val largest_part(pl_graph *g, const map *m, const pl_val *at)
{
    pl_val low[3], rest[3], y = PL_NO_VAL;
    split_position(g, 2, at, low, rest);
    for (int k = 0; k < 4; k++) {
        pl_val p[2], w = PL_NO_VAL;
        for (int d = 0; d < 2; d++) {
            bool up = k >> d & 1;
            pl_val part = up ? rest[d] : pl_shift(g, pl_neg(g, rest[d]), 1);
            p[d] = up ? pl_shift(g, low[d], 1) : low[d];
            w = d ? pl_mul(g, w, part) : part;
        }
        pl_val x = pl_mul(g, pixel(g, m, p, false), w);
        y = k ? pl_max(g, y, x) : x;
    }
    return y;
}

/* Weight of the pixel at distance d = |offset + f|, cubic convolution with a = -0.75. */
static pl_val cubic_weight(pl_graph *g, pl_val f, int k)
{
    double a = -0.75, off = k - 1;
    pl_val d = pl_abs(g, pl_shift(g, pl_neg(g, f), off)), w;
    if (k == 1 || k == 2)
        w = pl_shift(g, pl_mul(g, pl_square(g, d), pl_shift(g, pl_scale(g, d, a + 2), -(a + 3))),
                     1);
    else
        w = pl_shift(
            g,
            pl_mul(g, d, pl_shift(g, pl_mul(g, d, pl_shift(g, pl_scale(g, d, a), -5 * a)), 8 * a)),
            -4 * a);
    return pl_unsqueeze(g, w, -1);
}

static pl_val bicubic(pl_graph *g, const map *m, const pl_val *at, const char *padding, bool align)
{
    pl_val y0 = pl_stop_gradient(g, pl_floor(g, at[0]));
    pl_val x0 = pl_stop_gradient(g, pl_floor(g, at[1]));
    pl_val fy = pl_sub(g, at[0], y0), fx = pl_sub(g, at[1], x0), sum = PL_NO_VAL;
    for (int j = 0; j < 4; j++) {
        pl_val line = PL_NO_VAL;
        for (int i = 0; i < 4; i++) {
            pl_val p[2] = {pl_shift(g, y0, j - 1), pl_shift(g, x0, i - 1)};
            for (int d = 0; d < 2 && padding[0] == 'r'; d++)
                p[d] = pl_round(g, reflected(g, p[d], m->size[d], align));
            pl_val x = pl_mul(g, pixel(g, m, p, padding[0] == 'z'), cubic_weight(g, fx, i));
            line = pl_val_ok(line) ? pl_add(g, line, x) : x;
        }
        line = pl_mul(g, line, cubic_weight(g, fy, j));
        sum = pl_val_ok(sum) ? pl_add(g, sum, line) : line;
    }
    return sum;
}

/* The map of an input [N, C, size..], in `groups` groups of channels, each a separate sample: rows
 * [N*groups*size.., C/groups]. */
static map map_of(pl_ox_call *c, pl_ox_val *v, int64_t groups, int64_t points)
{
    pl_graph *g = c->g;
    int n = v->rank - 2;
    int64_t ch = v->dim[1] / groups, pixels = 1, samples = v->dim[0] * groups;
    map m = {.n = n, .dtype = v->dtype};
    for (int k = 0; k < n; k++) pixels *= m.size[k] = v->dim[2 + k];
    m.rows = pl_ox_last(c->b, v);
    if (groups > 1) {
        m.rows = pl_reshape(g, m.rows, PL_DIMS(v->dim[0], pixels, groups, ch));
        m.rows = pl_permute(g, m.rows, (const int[]){0, 2, 1, 3});
    }
    m.rows = pl_reshape(g, m.rows, PL_DIMS(samples * pixels, ch));
    m.base = pl_scale(g, pl_iota(g, PL_TYPE(PL_I32, samples, points), 0), (double)pixels);
    return m;
}

/* Makes a map and positions in it f64 if the map is, else f32: f16 and bf16 cannot distinguish
 * pixels of a large map. */
static pl_status widen(pl_ox_call *c, pl_ox_val **v, pl_val x, pl_val *at, pl_dtype *work)
{
    *work = (*v)->dtype == PL_F64 ? PL_F64 : PL_F32;
    *at = pl_ox_cast(c->g, *at, *work);
    if ((*v)->dtype != *work) *v = pl_ox_val_new(c->b, pl_cast(c->g, x, *work), (*v)->perm);
    return *v ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl_ox_emit_grid_sample(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *grid = NULL;
    pl_val x = PL_NO_VAL, at = PL_NO_VAL, p[3];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &grid, &at));
    int n = v->rank - 2;
    const char *mode = pl_ox_attr_text(c, "mode", "bilinear");
    const char *padding = pl_ox_attr_text(c, "padding_mode", "zeros");
    bool cubic = strstr(mode, "cubic") != NULL, zeros = padding[0] == 'z';
    if (n < 2 || n > (cubic ? 2 : 3) || grid->rank != v->rank || grid->dim[n + 1] != n ||
        grid->dim[0] != v->dim[0])
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "maps of %d and a grid of %d dimensions; 4 are supported, and 5 without "
                          "cubic mode",
                          v->rank, grid->rank);
    pl_graph *g = c->g;
    pl_dtype type = v->dtype, work;
    PL_TRY(widen(c, &v, x, &at, &work));
    int64_t points = 1, dim[PL_MAX_RANK] = {v->dim[0]};
    for (int k = 1; k <= n; k++) points *= dim[k] = grid->dim[k];
    dim[n + 1] = v->dim[1];
    bool align = pl_ox_attr_int(c, "align_corners", 0) != 0;
    map m = map_of(c, v, 1, points);
    at = pl_reshape(g, at, PL_DIMS(dim[0], points, n));
    for (int k = 0; k < n; k++) { /* the grid has x first */
        int64_t size = m.size[k];
        int from = n - 1 - k;
        p[k] = pl_reshape(g, pl_slice(g, at, 2, from, from + 1, 1), PL_DIMS(dim[0], points));
        p[k] = unnormal(g, p[k], size, align);
        if (padding[0] == 'r' && !cubic) p[k] = reflected(g, p[k], size, align);
        if (padding[0] == 'b' && !cubic) p[k] = pl_clamp(g, p[k], 0, (double)(size - 1));
    }
    bool nearest = mode[0] == 'n';
    for (int k = 0; k < n && nearest; k++) p[k] = pl_round(g, p[k]);
    pl_val y = cubic     ? bicubic(g, &m, p, padding, align)
               : nearest ? pixel(g, &m, p, zeros)
                         : linear(g, &m, p, zeros);
    int perm[PL_MAX_RANK];
    pl_ox_last_perm(v->rank, perm);
    return pl_ox_set(c, 0, pl_ox_cast(g, pl_reshape(g, y, v->rank, dim), type), perm);
}

/* Positions of a grid's pixels, transformed: theta [N, n, n + 1] times (x, y, (z,) 1). */
pl_status pl_ox_emit_affine_grid(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val theta = PL_NO_VAL, part[4];
    const int64_t *size;
    int count;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &theta));
    PL_TRY(pl_ox_in_ints(c, 1, "size", &size, &count));
    int n = count - 2;
    if (v->rank != 3 || n < 2 || n > 3 || v->dim[1] != n || v->dim[2] != n + 1)
        return pl_ox_fail(c, PL_ERR_SHAPE, "theta does not fit a size of %d dimensions", count);
    pl_graph *g = c->g;
    bool align = pl_ox_attr_int(c, "align_corners", 0) != 0;
    int64_t points = 1, dim[5] = {v->dim[0]};
    for (int k = 0; k < n; k++) {
        if (size[2 + k] < 1 || size[2 + k] > 1 << 20)
            return pl_ox_fail(c, PL_ERR_FILE, "a size of %lld", (long long)size[2 + k]);
        points *= dim[1 + k] = size[2 + k];
    }
    dim[n + 1] = n;
    pl_type t = pl_type_make(v->dtype, n, size + 2);
    for (int k = 0; k < n; k++) { /* x is the last dimension */
        double d = (double)t.dim[n - 1 - k];
        pl_val i = pl_iota(g, t, n - 1 - k);
        part[k] = align ? pl_shift(g, pl_scale(g, i, d > 1 ? 2 / (d - 1) : 0), d > 1 ? -1 : 0)
                        : pl_shift(g, pl_scale(g, i, 2 / d), 1 / d - 1);
    }
    part[n] = pl_fill(g, t, 1);
    pl_val all = pl_reshape(g, pl_stack(g, n + 1, part, n), PL_DIMS(1, points, n + 1));
    all = pl_broadcast(g, all, PL_DIMS(dim[0], points, n + 1));
    return pl_ox_set(c, 0, pl_reshape(g, pl_matmul(g, all, theta, false, true), n + 2, dim), NULL);
}

/* Average or maximum of bilinear samples in the bins of each region. */
pl_status pl_ox_emit_roi_align(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *rois = NULL, *which = NULL;
    pl_val x = PL_NO_VAL, box = PL_NO_VAL, of = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &rois, &box));
    PL_TRY(pl_ox_input_plain(c, 2, &which, &of));
    int64_t oh = pl_ox_attr_int(c, "output_height", 1), ow = pl_ox_attr_int(c, "output_width", 1);
    int64_t s = pl_ox_attr_int(c, "sampling_ratio", 0), n = rois->dim[0];
    if (v->rank != 4 || s < 1)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "sampling_ratio %lld: the number of samples would "
                          "depend on data; set a ratio above 0",
                          (long long)s);
    pl_graph *g = c->g;
    pl_dtype type = v->dtype, work;
    PL_TRY(widen(c, &v, x, &box, &work));
    bool half =
        !pl_ox_attr_is(c, "coordinate_transformation_mode",
                       c->b->opset < 16 ? "output_half_pixel" : "half_pixel", "output_half_pixel");
    double scale = pl_ox_attr_float(c, "spatial_scale", 1);
    box = pl_shift(g, pl_scale(g, box, scale), half ? -0.5 : 0);
    pl_val p[2];
    for (int k = 0; k < 2; k++) { /* x, then y */
        int64_t bins = k ? oh : ow, count = bins * s;
        pl_val lo = pl_slice(g, box, 1, k, k + 1, 1), hi = pl_slice(g, box, 1, k + 2, k + 3, 1);
        pl_val size = pl_sub(g, hi, lo);
        if (!half) size = pl_max(g, size, pl_full_like(g, size, 1));
        pl_val i = pl_scale(g, pl_shift(g, pl_iota(g, PL_TYPE(work, 1, count), 1), 0.5),
                            1 / (double)count);
        p[k] = pl_add(g, lo, pl_mul(g, size, i)); /* [n, bins*s] */
    }
    int64_t points = oh * s * ow * s;
    const int64_t wide[] = {n, oh * s, ow * s};
    pl_val py =
        pl_reshape(g, pl_broadcast(g, pl_unsqueeze(g, p[1], 2), 3, wide), PL_DIMS(n, points));
    pl_val px =
        pl_reshape(g, pl_broadcast(g, pl_unsqueeze(g, p[0], 1), 3, wide), PL_DIMS(n, points));
    map m = map_of(c, v, 1, 1);
    of = pl_scale(g, pl_ox_cast(g, of, PL_I32), (double)(m.size[0] * m.size[1]));
    m.base = pl_broadcast(g, pl_reshape(g, of, PL_DIMS(n, 1)), PL_DIMS(n, points));
    /* samples more than one pixel outside count as 0; others are clamped to the map */
    pl_val in = pl_and(g, pl_ge(g, py, pl_full_like(g, py, -1)),
                       pl_le(g, py, pl_full_like(g, py, (double)m.size[0])));
    in = pl_and(g, in,
                pl_and(g, pl_ge(g, px, pl_full_like(g, px, -1)),
                       pl_le(g, px, pl_full_like(g, px, (double)m.size[1]))));
    py = pl_clamp(g, py, 0, (double)(m.size[0] - 1));
    px = pl_clamp(g, px, 0, (double)(m.size[1] - 1));
    const pl_val at[] = {py, px};
    bool largest = pl_ox_attr_is(c, "mode", "avg", "max");
    pl_val y = largest ? largest_part(g, &m, at) : linear(g, &m, at, false);
    y = pl_mul(g, y, pl_unsqueeze(g, pl_cast(g, in, work), -1));
    y = pl_reshape(g, y, PL_DIMS(n, oh, s, ow, s, v->dim[1]));
    y = largest ? pl_max_over(g, y, PL_AXIS(2) | PL_AXIS(4), false)
                : pl_mean(g, y, PL_AXIS(2) | PL_AXIS(4), false);
    return pl_ox_set(c, 0, pl_ox_cast(g, y, type), (const int[]){0, 2, 3, 1});
}

/* ---- deformable convolution ------------------------------------------------------------------ */
/* The operands of a deformable convolution: sizes, and one number of each attribute per
 * dimension. */
typedef struct deform {
    int64_t n, ch, oc, groups, offsets, oh, ow, kh, kw;
    int64_t stride[2], dilation[2], pad[2];
} deform;

static pl_status read_deform(pl_ox_call *c, const pl_ox_val *v, const pl_ox_val *w,
                             const pl_ox_val *off, deform *d)
{
    if (v->rank != 4 || w->rank != 4 || off->rank != 4)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "maps of %d dimensions; 4 are supported", v->rank);
    *d = (deform){.n = v->dim[0],
                  .ch = v->dim[1],
                  .oc = w->dim[0],
                  .oh = off->dim[2],
                  .ow = off->dim[3],
                  .kh = w->dim[2],
                  .kw = w->dim[3],
                  .groups = pl_ox_attr_int(c, "group", 1),
                  .offsets = pl_ox_attr_int(c, "offset_group", 1),
                  .stride = {1, 1},
                  .dilation = {1, 1}};
    static const char *const names[] = {"strides", "dilations", "pads"};
    int64_t *to[] = {d->stride, d->dilation, d->pad};
    for (int a = 0; a < 3; a++) {
        int count = 0;
        const int64_t *p = pl_ox_attr_ints(c, names[a], &count);
        for (int k = 0; k < 2 && p && count >= 2; k++) to[a][k] = p[k];
    }
    if (d->groups < 1 || d->offsets < 1 || d->ch % d->groups || d->oc % d->groups ||
        d->ch % d->offsets || w->dim[1] != d->ch / d->groups || off->dim[0] != d->n ||
        off->dim[1] != 2 * d->offsets * d->kh * d->kw)
        return pl_ox_fail(c, PL_ERR_SHAPE, "input, weight and offsets do not fit each other");
    return PL_OK;
}

/* Rows or columns (k) of all samples, [N*groups of offsets, kh*kw*oh*ow]: those of a convolution
 * plus the offsets. */
static pl_val positions(pl_graph *g, const deform *d, pl_val offset, int k)
{
    pl_type t = PL_TYPE(pl_val_type(g, offset).dtype, 1, d->kh, d->kw, d->oh, d->ow);
    pl_val kernel = pl_scale(g, pl_iota(g, t, 1 + k), (double)d->dilation[k]);
    pl_val window = pl_scale(g, pl_iota(g, t, 3 + k), (double)d->stride[k]);
    pl_val own = pl_shift(g, pl_add(g, kernel, window), -(double)d->pad[k]);
    int64_t rows = d->n * d->offsets, taps = d->kh * d->kw, out = d->oh * d->ow;
    pl_val part = pl_reshape(g, offset, PL_DIMS(rows, taps, 2, out));
    part = pl_reshape(g, pl_slice(g, part, 2, k, k + 1, 1), PL_DIMS(rows, taps * out));
    return pl_add(g, part, pl_reshape(g, own, PL_DIMS(1, taps * out)));
}

/* Samples of all taps become the columns of a matrix product with the weight. */
pl_status pl_ox_emit_deform_conv(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *w = NULL, *off = NULL;
    pl_val x = PL_NO_VAL, f = PL_NO_VAL, offset = PL_NO_VAL;
    deform d;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &w, &f));
    PL_TRY(pl_ox_input_plain(c, 2, &off, &offset));
    PL_TRY(read_deform(c, v, w, off, &d));
    pl_graph *g = c->g;
    int64_t taps = d.kh * d.kw, out = d.oh * d.ow, rows = d.n * d.offsets;
    map m = map_of(c, v, d.offsets, taps * out);
    const pl_val at[] = {positions(g, &d, offset, 0), positions(g, &d, offset, 1)};
    pl_val y = linear(g, &m, at, true); /* [rows, taps*out, C/offsets] */
    if (pl_ox_has(c, 4)) {
        pl_val mask = pl_reshape(g, pl_ox_plain(c->b, c->in[4]), PL_DIMS(rows, taps * out, 1));
        y = pl_mul(g, y, mask);
    }
    y = pl_reshape(g, y, PL_DIMS(d.n, d.offsets, taps, out, d.ch / d.offsets));
    y = pl_permute(g, y, (const int[]){0, 3, 1, 4, 2}); /* [N, out, channels, taps] */
    int64_t in = d.ch / d.groups * taps, each = d.oc / d.groups;
    y = pl_permute(g, pl_reshape(g, y, PL_DIMS(d.n, out, d.groups, in)), (const int[]){0, 2, 1, 3});
    f = pl_reshape(g, f, PL_DIMS(1, d.groups, each, in));
    f = pl_broadcast(g, f, PL_DIMS(d.n, d.groups, each, in));
    y = pl_permute(g, pl_matmul(g, y, f, false, true), (const int[]){0, 2, 1, 3});
    y = pl_reshape(g, y, PL_DIMS(d.n, d.oh, d.ow, d.oc));
    if (pl_ox_has(c, 3)) y = pl_add(g, y, pl_ox_plain(c->b, c->in[3]));
    return pl_ox_set(c, 0, y, (const int[]){0, 2, 3, 1});
}
