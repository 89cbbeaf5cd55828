/* emit_resize.c - Resize and Upsample.
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
    pl_dtype type = v->dtype;
    if (r->mode[0] != 'n' && !pl_dtype_is_float(type)) { /* rounded weighted sums */
        v = pl_ox_val_new(c->b, pl_cast(c->g, x, PL_F64), v->perm);
        if (!v) return PL_ERR_MEMORY;
        PL_TRY(build_resize(c, v, r, m));
        v = c->out[0];
        return pl_ox_set(c, 0, pl_cast(c->g, pl_round(c->g, v->v), type), v->perm);
    }
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
    const pl_ox_attr *old = pl_ox_attr_find(c, "scales"); /* Upsample of opsets 7 and 8 */
    bool listed = !known && old && old->n_floats == (size_t)count;
    if (!listed && (!known || pl_ox_elems(known) != count ||
                    !pl_ox_known(c->b, c->in[sizes ? in_sizes : in_scales])))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "its scales or sizes depend on data, or do not fit %d axes", count);
    double fit = 0;
    bool larger = pl_ox_attr_is(c, "keep_aspect_ratio_policy", "stretch", "not_larger");
    bool smaller = pl_ox_attr_is(c, "keep_aspect_ratio_policy", "stretch", "not_smaller");
    for (int k = 0; k < count; k++) {
        PL_TRY(pl_ox_axis_of(c, axes ? axes[k] : k, v->rank, &axis));
        double x = listed ? (double)old->floats[k] : pl_ox_host_real(known, k);
        double in = (double)v->dim[axis];
        if (!(x > 0 && x * (sizes ? 1 : in) < 0x1p31))
            return pl_ox_fail(c, PL_ERR_SHAPE, "a %s of %g for axis %d", sizes ? "size" : "scale",
                              x, axis);
        m[axis].scale = sizes ? x / in : x;
        m[axis].out = sizes ? (int64_t)x : (int64_t)floor(in * x);
        double s = m[axis].scale;
        fit = fit == 0 ? s : larger ? fmin(fit, s) : fmax(fit, s);
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
            m[axis].roi0 = pl_ox_host_real(c->in[1], k);
            m[axis].roi1 = pl_ox_host_real(c->in[1], count + k);
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
