/* resize.c - nearest, linear and cubic resizing of [N, s.., C], and its adjoint.
 *
 *   resize (x) -> y        resize_bwd (dy) -> dx
 *
 * PyTorch's formulas, in its precision (f32 positions for f32 and 16-bit data), because otherwise a
 * position may round to another pixel. With S input and O output positions along a dim:
 *   nearest          src = floor(i * S/O)
 *   linear, cubic    src = (i + 1/2) * S/O - 1/2, or i * (S-1)/(O-1) when corners align
 * Linear clamps src at 0 and reads src and its right neighbour; cubic reads four neighbours
 * with a = -0.75. Positions past an edge read the edge. Resizing is linear in x: the adjoint is
 * its gradient, and the adjoint's gradient is resizing.
 */
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/taps.h"
#include "ops/net/window.h"

#include <math.h>
#include <string.h>

static const char *const mode_names[] = {"nearest", "linear", "cubic", NULL};
static const pl_attr attrs[] = {PL_ATTR(pl_resize_attr, size, DIMS),
                                PL_ATTR_NAMES(pl_resize_attr, mode, mode_names),
                                PL_ATTR(pl_resize_attr, align_corners, BOOL), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_resize_attr *a = attr;
    PL_TRY(pl_window_rank("x", &in[0]));
    int n = in[0].rank - 2;
    PL_TRY(pl_window_need("size", &a->size, n));
    PL_FAIL_IF(a->mode < 0 || a->mode > PL_RESIZE_CUBIC, PL_ERR_ARG, "the resize mode is unknown");
    out[0] = in[0];
    for (int d = 0; d < n; d++) {
        PL_FAIL_IF(in[0].dim[1 + d] < 1, PL_ERR_SHAPE, "dimension %d has no elements to resize", d);
        out[0].dim[1 + d] = a->size.v[d];
    }
    return PL_OK;
}

/* ---- taps ------------------------------------------------------------------------------- */
typedef struct resizing {
    const int64_t *in, *out;
    pl_resize_mode mode;
    bool align, wide; /* wide: positions in double */
} resizing;

static double rounded(const resizing *r, double x)
{
    return r->wide ? x : (double)(float)x;
}

/* Returns the source position of output i, rounded like PyTorch's. */
static double source(const resizing *r, int d, int64_t i)
{
    double in = (double)r->in[d], out = (double)r->out[d], at = (double)i;
    if (r->align) {
        double scale = out > 1 ? rounded(r, (in - 1) / (out - 1)) : 0;
        return rounded(r, scale * at);
    }
    double scale = rounded(r, in / out);
    double s = rounded(r, rounded(r, scale * (at + 0.5)) - 0.5);
    return r->mode == PL_RESIZE_LINEAR && s < 0 ? 0 : s;
}

static double near_weight(double x)
{
    return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1;
}

static double far_weight(double x)
{
    return ((-0.75 * x + 5 * 0.75) * x - 8 * 0.75) * x + 4 * 0.75;
}

static int64_t clamped(int64_t i, int64_t size)
{
    return i < 0 ? 0 : i >= size ? size - 1 : i;
}

static bool taps_of(const void *ctx, int d, int64_t i, int64_t k, int64_t *index, double *weight)
{
    const resizing *r = ctx;
    static const int64_t taps[] = {1, 2, 4};
    if (k >= taps[r->mode]) return false;
    if (r->mode == PL_RESIZE_NEAREST) {
        float scale = (float)r->in[d] / (float)r->out[d];
        *index = clamped((int64_t)floorf((float)i * scale), r->in[d]);
        *weight = 1;
        return true;
    }
    double s = source(r, d, i), base = floor(s);
    double t = rounded(r, s - base);
    if (r->mode == PL_RESIZE_LINEAR) {
        *index = clamped((int64_t)base + k, r->in[d]);
        *weight = k == 0 ? rounded(r, 1 - t) : t;
        return true;
    }
    *index = clamped((int64_t)base - 1 + k, r->in[d]);
    double w[4] = {far_weight(t + 1), near_weight(t), near_weight(1 - t), far_weight(2 - t)};
    *weight = rounded(r, w[k]);
    return true;
}

static pl_status make_taps(const pl_call *c, bool adjoint, pl_taps **t)
{
    const pl_resize_attr *a = c->attr;
    const pl_type *x = adjoint ? &c->out_type[0] : &c->in_type[0];
    const pl_type *y = adjoint ? &c->in_type[0] : &c->out_type[0];
    resizing r = {x->dim + 1, y->dim + 1, (pl_resize_mode)a->mode, a->align_corners,
                  x->dtype == PL_F64};
    return pl_taps_new(x->rank - 2, r.in, r.out, taps_of, &r, adjoint, t);
}

static pl_status resize_taps(const pl_call *c, pl_taps **t)
{
    return make_taps(c, false, t);
}

static pl_status resize_bwd_taps(const pl_call *c, pl_taps **t)
{
    return make_taps(c, true, t);
}

/* ---- cost, kernels, ops ----------------------------------------------------------------- */
/* Two flops per tap and element of y, in either direction. */
static pl_cost cost(const pl_call *c)
{
    static const double taps[] = {1, 2, 4};
    const pl_resize_attr *a = c->attr;
    int64_t n = pl_type_elems(&c->in_type[0]), m = pl_type_elems(&c->out_type[0]);
    return (pl_cost){2 * (double)(n > m ? n : m) * pow(taps[a->mode], a->size.n), operand_bytes(c)};
}

PL_TAPS_KERNELS(resize)
PL_TAPS_KERNELS(resize_bwd)

/* clang-format off */
#define CASES(X)                                                                \
    X("[2,3,4,5]",   "[6,8]",   "mode=nearest, align_corners=false")            \
    X("[1,7,5,3]",   "[3,4]",   "mode=nearest, align_corners=false")            \
    X("[2,3,4,5]",   "[7,9]",   "mode=linear, align_corners=false")             \
    X("[2,3,4,5]",   "[6,8]",   "mode=linear, align_corners=true")              \
    X("[1,9,6,2]",   "[4,5]",   "mode=linear, align_corners=false")             \
    X("[1,1,1,3]",   "[4,1]",   "mode=linear, align_corners=true")              \
    X("[1,5,6,3]",   "[8,12]",  "mode=cubic, align_corners=false")              \
    X("[1,6,5,2]",   "[4,9]",   "mode=cubic, align_corners=true")               \
    X("[2,7,3]",     "[11]",    "mode=linear, align_corners=false")             \
    X("[1,2,3,4,2]", "[4,6,3]", "mode=linear, align_corners=false")
#define CASE(x, size, a) {{"f32" x}, "size=" size ", " a, {{0}}},
static const pl_case cases[] = {CASES(CASE) PL_CASE_END};
/* clang-format on */

PL_TAPS_SIZED_OP(resize, pl_resize_attr, resize_bwd)
PL_TAPS_SIZED_OP(resize_bwd, pl_resize_attr, resize)

pl_val pl_resize(pl_graph *g, pl_val x, const int64_t *out, pl_resize_mode mode, bool align_corners)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_resize_attr a;
    memset(&a, 0, sizeof a);
    int n = pl_val_type(g, x).rank - 2;
    a.size.n = n < 0 ? 0 : n;
    for (int d = 0; d < n; d++) a.size.v[d] = out[d];
    a.mode = (int32_t)mode;
    a.align_corners = align_corners;
    return pl_build1(g, &pl_op_resize, &a, 1, &x);
}
