/* emit_resize.c - Resize, Upsample, GridSample, AffineGrid and RoiAlign.
 *
 * The engine's own resize serves the forms that PyTorch exports. Every other form of Resize is
 * separable: along each axis the result is a matrix of weights times the input, and the matrix is
 * known at import. Nearest neighbours are a gather with known indices. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

/* ---- resize ---------------------------------------------------------------------------------- */
/* One axis: sizes, scale, and the region of tf_crop_and_resize. */
typedef struct axis_map {
    int64_t in, out;
    double scale, roi0, roi1;
} axis_map;

typedef struct resize {
    const char *mode, *coords, *nearest;
    double a;
    bool exclude, antialias;
    double outside;
} resize;

/* The position in the input of element i of the result. */
static double position(const resize *r, const axis_map *m, int64_t i)
{
    double x = (double)i, in = (double)m->in, out = m->scale * in; /* before it is rounded down */
    if (strcmp(r->coords, "align_corners") == 0) return out > 1 ? x * (in - 1) / (out - 1) : 0;
    if (strcmp(r->coords, "asymmetric") == 0) return x / m->scale;
    if (strcmp(r->coords, "pytorch_half_pixel") == 0)
        return out > 1 ? (x + 0.5) / m->scale - 0.5 : 0;
    if (strcmp(r->coords, "tf_half_pixel_for_nn") == 0) return (x + 0.5) / m->scale;
    if (strcmp(r->coords, "tf_crop_and_resize") == 0)
        return out > 1 ? m->roi0 * (in - 1) + x * (m->roi1 - m->roi0) * (in - 1) / (out - 1)
                       : 0.5 * (m->roi0 + m->roi1) * (in - 1);
    if (strcmp(r->coords, "half_pixel_symmetric") == 0) {
        double adjust = (double)m->out / out, center = in / 2;
        return center * (1 - adjust) + (x + 0.5) / m->scale - 0.5;
    }
    return (x + 0.5) / m->scale - 0.5;
}

static int64_t nearest_of(const resize *r, double x)
{
    if (strcmp(r->nearest, "floor") == 0) return (int64_t)floor(x);
    if (strcmp(r->nearest, "ceil") == 0) return (int64_t)ceil(x);
    if (strcmp(r->nearest, "round_prefer_ceil") == 0) return (int64_t)floor(x + 0.5);
    return (int64_t)ceil(x - 0.5);
}

static double kernel(const resize *r, double d)
{
    d = fabs(d);
    if (r->mode[0] == 'l') return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((r->a + 2) * d - (r->a + 3)) * d * d + 1;
    return d < 2 ? ((r->a * d - 5 * r->a) * d + 8 * r->a) * d - 4 * r->a : 0;
}

/* Fills row i of the matrix [out, in]. */
static void weights(const resize *r, const axis_map *m, int64_t i, double *row)
{
    double x = position(r, m, i), sum = 0;
    double narrow = r->antialias && m->scale < 1 ? m->scale : 1;
    int64_t reach = (int64_t)ceil((r->mode[0] == 'l' ? 1 : 2) / narrow);
    int64_t from = (int64_t)floor(x) - reach, to = (int64_t)floor(x) + reach + 1;
    memset(row, 0, (size_t)m->in * sizeof *row);
    bool crop = strcmp(r->coords, "tf_crop_and_resize") == 0;
    if (crop && (x < 0 || x > (double)m->in - 1)) return;
    for (int64_t k = from; k <= to; k++) {
        double w = kernel(r, ((double)k - x) * narrow);
        if (r->exclude && (k < 0 || k >= m->in)) continue;
        sum += w;
        row[k < 0 ? 0 : k >= m->in ? m->in - 1 : k] += w;
    }
    for (int64_t k = 0; k < m->in && sum != 0; k++) row[k] /= sum;
}

/* The matrix of one axis times x along that axis. */
static pl_val apply_axis(pl_ox_call *c, pl_val x, int axis, const resize *r, const axis_map *m)
{
    pl_graph *g = c->g;
    pl_type t = pl_val_type(g, x);
    int64_t before = 1, after = 1;
    for (int i = 0; i < axis; i++) before *= t.dim[i];
    for (int i = axis + 1; i < t.rank; i++) after *= t.dim[i];
    t.dim[axis] = m->out;
    if (r->mode[0] == 'n') {
        pl_ox_val *index = pl_ox_host_new(c->b, PL_I32, 1, &m->out);
        if (!index) return PL_NO_VAL;
        for (int64_t i = 0; i < m->out; i++) {
            int64_t k = nearest_of(r, position(r, m, i));
            index->host.i[i] = k < 0 ? 0 : k >= m->in ? m->in - 1 : k;
        }
        index->name = c->node->output[0];
        x = pl_reshape(g, x, PL_DIMS(before, m->in, after));
        x = pl_take(g, pl_permute(g, x, (const int[]){1, 0, 2}), pl_ox_any(c->b, index));
        return pl_reshape(g, pl_permute(g, x, (const int[]){1, 0, 2}), t.rank, t.dim);
    }
    pl_ox_val *w = pl_ox_host_new(c->b, t.dtype, 2, (const int64_t[]){m->out, m->in});
    if (!w) return PL_NO_VAL;
    for (int64_t i = 0; i < m->out; i++) weights(r, m, i, w->host.d + i * m->in);
    w->name = c->node->output[0];
    x = pl_matmul(g, pl_ox_any(c->b, w), pl_reshape(g, x, PL_DIMS(before, m->in, after)), false,
                  false);
    return pl_reshape(g, x, t.rank, t.dim);
}

/* Whether the engine's resize computes this: channels last, spatial axes only. */
static bool engine_can(const pl_ox_val *v, const resize *r, const axis_map *m, pl_resize_mode *mode,
                       bool *corners)
{
    if (r->antialias || r->exclude || v->rank < 3 || v->rank > 5 || !pl_dtype_is_float(v->dtype))
        return false;
    bool half = true, asym = strcmp(r->coords, "asymmetric") == 0;
    *corners = strcmp(r->coords, "align_corners") == 0;
    half = strcmp(r->coords, "half_pixel") == 0 || strcmp(r->coords, "pytorch_half_pixel") == 0;
    for (int i = 0; i < v->rank; i++) {
        if (i < 2 && m[i].in != m[i].out) return false;
        if (fabs(m[i].scale * (double)m[i].in - (double)m[i].out) > 1e-6) return false;
        if (m[i].out == 1 && m[i].in > 1 && !*corners) return false;
    }
    *mode = r->mode[0] == 'n'   ? PL_RESIZE_NEAREST
            : r->mode[0] == 'l' ? PL_RESIZE_LINEAR
                                : PL_RESIZE_CUBIC;
    if (r->mode[0] == 'n') return asym && strcmp(r->nearest, "floor") == 0;
    if (r->mode[0] == 'c' && r->a != -0.75) return false;
    return half || *corners;
}

static pl_status build_resize(pl_ox_call *c, pl_ox_val *v, const resize *r, const axis_map *m)
{
    pl_resize_mode mode;
    bool corners;
    int perm[PL_MAX_RANK];
    pl_val x = pl_ox_any(c->b, v);
    if (r->mode[0] != 'n' && r->mode[0] != 'l' && r->mode[0] != 'c')
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "mode %s", r->mode);
    if (engine_can(v, r, m, &mode, &corners)) {
        int64_t out[3];
        for (int i = 2; i < v->rank; i++) out[i - 2] = m[i].out;
        pl_ox_last_perm(v->rank, perm);
        return pl_ox_set(c, 0, pl_resize(c->g, pl_ox_last(c->b, v), out, mode, corners), perm);
    }
    for (int i = 0; i < v->rank; i++) {
        bool crop = strcmp(r->coords, "tf_crop_and_resize") == 0;
        if (m[i].in == m[i].out && m[i].scale == 1 && !crop) continue;
        x = apply_axis(c, x, pl_ox_axis(v, i), r, &m[i]);
    }
    if (strcmp(r->coords, "tf_crop_and_resize") == 0 && r->outside != 0) {
        /* positions outside the input get the extrapolation value */
        for (int i = 0; i < v->rank; i++) {
            int64_t dim[PL_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
            int at = pl_ox_axis(v, i);
            dim[at] = m[i].out;
            pl_ox_val *in = pl_ox_host_new(c->b, PL_BOOL, v->rank, dim);
            if (!in) return PL_ERR_MEMORY;
            in->name = c->node->output[0];
            for (int64_t k = 0; k < m[i].out; k++) {
                double p = position(r, &m[i], k);
                in->host.i[k] = p >= 0 && p <= (double)m[i].in - 1;
            }
            x = pl_select(c->g, pl_ox_any(c->b, in), x, pl_full_like(c->g, x, r->outside));
        }
    }
    return pl_ox_set(c, 0, x, v->perm);
}

/* Reads scales or sizes, for all axes or the named ones. */
static pl_status read_maps(pl_ox_call *c, const pl_ox_val *v, int in_scales, int in_sizes,
                           axis_map *m)
{
    int n_axes = 0, axis;
    const int64_t *axes = pl_ox_attr_ints(c, "axes", &n_axes);
    int count = axes ? n_axes : v->rank;
    for (int i = 0; i < v->rank; i++) m[i] = (axis_map){v->dim[i], v->dim[i], 1, 0, 1};
    const pl_ox_val *scales = NULL, *sizes = NULL;
    if (pl_ox_has(c, in_scales) && pl_ox_elems(c->in[in_scales]) > 0) scales = c->in[in_scales];
    if (pl_ox_has(c, in_sizes) && pl_ox_elems(c->in[in_sizes]) > 0) sizes = c->in[in_sizes];
    const pl_ox_val *known = sizes ? sizes : scales;
    if (!known || pl_ox_elems(known) != count ||
        !pl_ox_known(c->b, c->in[sizes ? in_sizes : in_scales]))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "its scales or sizes depend on data, or do not fit %d axes", count);
    double fit = 0;
    bool larger = pl_ox_attr_is(c, "keep_aspect_ratio_policy", "stretch", "not_larger");
    bool smaller = pl_ox_attr_is(c, "keep_aspect_ratio_policy", "stretch", "not_smaller");
    for (int k = 0; k < count; k++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[k] : k, v->rank, &axis));
        double x = pl_ox_host_real(known, k), in = (double)v->dim[axis];
        m[axis].scale = sizes ? x / in : x;
        m[axis].out = sizes ? (int64_t)x : (int64_t)floor(in * x);
        double s = m[axis].scale;
        fit = !fit ? s : larger ? fmin(fit, s) : fmax(fit, s);
        if (m[axis].out < 1 || m[axis].out > 1 << 24)
            return pl_ox_fail(c, PL_ERR_SHAPE, "%lld elements become %lld", (long long)v->dim[axis],
                              (long long)m[axis].out);
    }
    for (int k = 0; k < count && sizes && (larger || smaller); k++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[k] : k, v->rank, &axis));
        m[axis].scale = fit;
        m[axis].out = (int64_t)floor(fit * (double)v->dim[axis] + 0.5);
    }
    if (pl_ox_attr_is(c, "coordinate_transformation_mode", "half_pixel", "tf_crop_and_resize") &&
        pl_ox_has(c, 1) && pl_ox_known(c->b, c->in[1]) && c->in[1]->host.n == 2 * count)
        for (int k = 0; k < count; k++) {
            PL_TRY(pl_ox_axis_of(c, axes ? axes[k] : k, v->rank, &axis));
            m[axis].roi0 = c->in[1]->host.d[k];
            m[axis].roi1 = c->in[1]->host.d[count + k];
        }
    return PL_OK;
}

pl_status pl_ox_emit_resize(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    axis_map m[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    resize r = {.mode = pl_ox_attr_text(c, "mode", "nearest"),
                .coords = pl_ox_attr_text(c, "coordinate_transformation_mode", "half_pixel"),
                .nearest = pl_ox_attr_text(c, "nearest_mode", "round_prefer_floor"),
                .a = pl_ox_attr_float(c, "cubic_coeff_a", -0.75),
                .exclude = pl_ox_attr_int(c, "exclude_outside", 0) != 0,
                .antialias = pl_ox_attr_int(c, "antialias", 0) != 0,
                .outside = pl_ox_attr_float(c, "extrapolation_value", 0)};
    bool old = c->b->opset < 11; /* X, scales; asymmetric */
    if (old) r.coords = "asymmetric", r.nearest = "floor";
    PL_TRY(read_maps(c, v, old ? 1 : 2, old ? 99 : 3, m));
    return build_resize(c, v, &r, m);
}

pl_status pl_ox_emit_upsample(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    axis_map m[PL_MAX_RANK];
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    resize r = {
        .mode = pl_ox_attr_text(c, "mode", "nearest"), .coords = "asymmetric", .nearest = "floor"};
    PL_TRY(read_maps(c, v, 1, 99, m));
    return build_resize(c, v, &r, m);
}

/* ---- samples at positions -------------------------------------------------------------------- */
/* Picks pixels of a map [N,H,W,C] at whole positions y, x [N, P]: [N, P, C]. Outside the map
 * the result is 0. */
typedef struct map2 {
    pl_val rows; /* [N*H*W, C] */
    pl_val base; /* [N, P]: first row of the sample's map, i32 */
    int64_t h, w;
    pl_dtype dtype;
} map2;

static pl_val within(pl_graph *g, pl_val x, int64_t n)
{
    return pl_and(g, pl_ge(g, x, pl_full_like(g, x, 0)),
                  pl_le(g, x, pl_full_like(g, x, (double)(n - 1))));
}

static pl_val pixel(pl_graph *g, const map2 *m, pl_val y, pl_val x, bool zeros)
{
    pl_val in = pl_and(g, within(g, y, m->h), within(g, x, m->w));
    y = pl_clamp(g, y, 0, (double)(m->h - 1));
    x = pl_clamp(g, x, 0, (double)(m->w - 1));
    pl_val row = pl_cast(g, pl_add(g, pl_scale(g, y, (double)m->w), x), PL_I32);
    pl_val p = pl_take(g, m->rows, pl_add(g, row, m->base));
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

static pl_val bilinear(pl_graph *g, const map2 *m, pl_val y, pl_val x, bool zeros)
{
    pl_val y0 = pl_stop_gradient(g, pl_floor(g, y)), x0 = pl_stop_gradient(g, pl_floor(g, x));
    pl_val fy = pl_unsqueeze(g, pl_sub(g, y, y0), -1), fx = pl_unsqueeze(g, pl_sub(g, x, x0), -1);
    pl_val row[2];
    for (int k = 0; k < 2; k++) {
        pl_val yk = k ? pl_shift(g, y0, 1) : y0;
        pl_val a = pixel(g, m, yk, x0, zeros), b = pixel(g, m, yk, pl_shift(g, x0, 1), zeros);
        row[k] = pl_add(g, a, pl_mul(g, pl_sub(g, b, a), fx));
    }
    return pl_add(g, row[0], pl_mul(g, pl_sub(g, row[1], row[0]), fy));
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

static pl_val bicubic(pl_graph *g, const map2 *m, pl_val y, pl_val x, const char *padding,
                      bool align)
{
    pl_val y0 = pl_stop_gradient(g, pl_floor(g, y)), x0 = pl_stop_gradient(g, pl_floor(g, x));
    pl_val fy = pl_sub(g, y, y0), fx = pl_sub(g, x, x0), sum = PL_NO_VAL;
    for (int j = 0; j < 4; j++) {
        pl_val line = PL_NO_VAL;
        for (int i = 0; i < 4; i++) {
            pl_val yy = pl_shift(g, y0, j - 1), xx = pl_shift(g, x0, i - 1);
            if (padding[0] == 'r') {
                yy = pl_round(g, reflected(g, yy, m->h, align));
                xx = pl_round(g, reflected(g, xx, m->w, align));
            }
            pl_val p = pl_mul(g, pixel(g, m, yy, xx, padding[0] == 'z'), cubic_weight(g, fx, i));
            line = pl_val_ok(line) ? pl_add(g, line, p) : p;
        }
        line = pl_mul(g, line, cubic_weight(g, fy, j));
        sum = pl_val_ok(sum) ? pl_add(g, sum, line) : line;
    }
    return sum;
}

static map2 map_of(pl_ox_call *c, pl_ox_val *v, int64_t points)
{
    pl_graph *g = c->g;
    int64_t n = v->dim[0], ch = v->dim[1], h = v->dim[2], w = v->dim[3];
    map2 m = {.h = h, .w = w, .dtype = v->dtype};
    m.rows = pl_reshape(g, pl_ox_last(c->b, v), PL_DIMS(n * h * w, ch));
    m.base = pl_scale(g, pl_iota(g, PL_TYPE(PL_I32, n, points), 0), (double)(h * w));
    return m;
}

pl_status pl_ox_emit_grid_sample(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *grid = NULL;
    pl_val x = PL_NO_VAL, at = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &grid, &at));
    if (v->rank != 4 || grid->rank != 4 || grid->dim[3] != 2 || grid->dim[0] != v->dim[0])
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "maps of %d dimensions; 4 are supported", v->rank);
    pl_graph *g = c->g;
    int64_t n = v->dim[0], points = grid->dim[1] * grid->dim[2];
    bool align = pl_ox_attr_int(c, "align_corners", 0) != 0;
    const char *mode = pl_ox_attr_text(c, "mode", "bilinear");
    const char *padding = pl_ox_attr_text(c, "padding_mode", "zeros");
    map2 m = map_of(c, v, points);
    at = pl_reshape(g, at, PL_DIMS(n, points, 2));
    pl_val p[2];
    for (int k = 0; k < 2; k++) {
        int64_t size = k ? m.h : m.w;
        p[k] = pl_reshape(g, pl_slice(g, at, 2, k, k + 1, 1), PL_DIMS(n, points));
        p[k] = unnormal(g, p[k], size, align);
        bool cubic = strstr(mode, "cubic") != NULL;
        if (padding[0] == 'r' && !cubic) p[k] = reflected(g, p[k], size, align);
        if (padding[0] == 'b' && !cubic) p[k] = pl_clamp(g, p[k], 0, (double)(size - 1));
    }
    bool zeros = padding[0] == 'z';
    pl_val y = strstr(mode, "cubic") ? bicubic(g, &m, p[1], p[0], padding, align)
               : mode[0] == 'n'      ? pixel(g, &m, pl_round(g, p[1]), pl_round(g, p[0]), zeros)
                                     : bilinear(g, &m, p[1], p[0], zeros);
    y = pl_reshape(g, y, PL_DIMS(n, grid->dim[1], grid->dim[2], v->dim[1]));
    return pl_ox_set(c, 0, y, (const int[]){0, 2, 3, 1});
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
        pl_val i = pl_scale(g, pl_shift(g, pl_iota(g, PL_TYPE(PL_F32, 1, count), 1), 0.5),
                            1 / (double)count);
        p[k] = pl_add(g, lo, pl_mul(g, size, i)); /* [n, bins*s] */
    }
    int64_t points = oh * s * ow * s;
    const int64_t wide[] = {n, oh * s, ow * s};
    pl_val py =
        pl_reshape(g, pl_broadcast(g, pl_unsqueeze(g, p[1], 2), 3, wide), PL_DIMS(n, points));
    pl_val px =
        pl_reshape(g, pl_broadcast(g, pl_unsqueeze(g, p[0], 1), 3, wide), PL_DIMS(n, points));
    map2 m = map_of(c, v, 1);
    of = pl_scale(g, pl_ox_cast(g, of, PL_I32), (double)(m.h * m.w));
    m.base = pl_broadcast(g, pl_reshape(g, of, PL_DIMS(n, 1)), PL_DIMS(n, points));
    /* samples more than one pixel outside count as 0; others are clamped to the map */
    pl_val in = pl_and(g, pl_ge(g, py, pl_full_like(g, py, -1)),
                       pl_le(g, py, pl_full_like(g, py, (double)m.h)));
    in = pl_and(g, in,
                pl_and(g, pl_ge(g, px, pl_full_like(g, px, -1)),
                       pl_le(g, px, pl_full_like(g, px, (double)m.w))));
    py = pl_clamp(g, py, 0, (double)(m.h - 1));
    px = pl_clamp(g, px, 0, (double)(m.w - 1));
    pl_val y = bilinear(g, &m, py, px, false);
    y = pl_mul(g, y, pl_unsqueeze(g, pl_cast(g, in, v->dtype), -1));
    y = pl_reshape(g, y, PL_DIMS(n, oh, s, ow, s, v->dim[1]));
    if (pl_ox_attr_is(c, "mode", "avg", "max"))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "mode max; avg is supported");
    y = pl_mean(g, y, PL_AXIS(2) | PL_AXIS(4), false);
    return pl_ox_set(c, 0, y, (const int[]){0, 2, 3, 1});
}
