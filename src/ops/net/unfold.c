/* unfold.c - windows as rows, and the adjoint that adds them back.
 *
 *   unfold (x [N, in.., C]) -> [N, P, K*C]     P output positions, K window taps, taps slow
 *   fold   (p [N, P, K*C])  -> [N, in.., C]    every input position sums the taps that read it
 *
 * Taps in the padding read zero. fold gathers, so its order of summation is fixed.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/kernels/rows.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/core/via_f32.h"
#include "ops/net/window.h"

#include <string.h>

#define SHARED                                                                                     \
 PL_ATTR(pl_window_attr, kernel, DIMS), PL_ATTR(pl_window_attr, stride, DIMS),                     \
     PL_ATTR(pl_window_attr, dilation, DIMS), PL_ATTR(pl_window_attr, pad_lo, DIMS),               \
     PL_ATTR(pl_window_attr, pad_hi, DIMS)
static const pl_attr unfold_attrs[] = {SHARED, PL_ATTR_END};
static const pl_attr fold_attrs[] = {SHARED, PL_ATTR(pl_window_attr, in, DIMS), PL_ATTR_END};

static pl_status patches_of(const pl_window_attr *a, const pl_type *x, pl_type *p)
{
    int64_t positions = 1, taps = 1, out;
    for (int d = 0; d < x->rank - 2; d++) {
        PL_TRY(pl_window_out(a, d, x->dim[1 + d], a->kernel.v[d], &out));
        positions *= out;
        taps *= a->kernel.v[d];
    }
    const int64_t dim[3] = {x->dim[0], positions, taps * x->dim[x->rank - 1]};
    *p = pl_type_make(x->dtype, 3, dim);
    return PL_OK;
}

static pl_status unfold_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    PL_TRY(pl_window_rank("x", &in[0]));
    PL_TRY(pl_window_complete(a, in[0].rank - 2));
    PL_TRY(pl_window_need("kernel", &a->kernel, in[0].rank - 2));
    return patches_of(a, &in[0], &out[0]);
}

static pl_status fold_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_window_attr *a = attr;
    char s[96], t[96], u[96];
    PL_FAIL_IF(in[0].rank != 3 || a->in.n < 1 || a->in.n > 3, PL_ERR_SHAPE,
               "patches are %s; needs [N, positions, taps*C] and 1 to 3 input sizes",
               pl_type_text(&in[0], s, sizeof s));
    PL_TRY(pl_window_complete(a, a->in.n));
    PL_TRY(pl_window_need("kernel", &a->kernel, a->in.n));
    PL_TRY(pl_window_need("in", &a->in, a->in.n));
    int64_t taps = 1;
    for (int d = 0; d < a->in.n; d++) taps *= a->kernel.v[d];
    int64_t dim[5] = {in[0].dim[0]};
    for (int d = 0; d < a->in.n; d++) dim[1 + d] = a->in.v[d];
    dim[1 + a->in.n] = in[0].dim[2] / taps;
    out[0] = pl_type_make(in[0].dtype, a->in.n + 2, dim);
    pl_type p;
    PL_TRY(patches_of(a, &out[0], &p));
    PL_FAIL_IF(!pl_type_equal(&p, &in[0]), PL_ERR_SHAPE, "patches are %s; unfolding %s gives %s",
               pl_type_text(&in[0], s, sizeof s), pl_type_text(&out[0], t, sizeof t),
               pl_type_text(&p, u, sizeof u));
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
static void unfold_vjp(const pl_vjp *v)
{
    pl_window_attr a = *(const pl_window_attr *)v->attr;
    pl_type t = pl_val_type(v->g, v->in[0]);
    a.in.n = t.rank - 2;
    for (int d = 0; d < a.in.n; d++) a.in.v[d] = t.dim[1 + d];
    v->gin[0] = pl_build1(v->g, &pl_op_fold, &a, 1, &v->gout[0]);
}

static void fold_vjp(const pl_vjp *v)
{
    v->gin[0] = pl_build1(v->g, &pl_op_unfold, v->attr, 1, &v->gout[0]);
}

static pl_cost cost(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[0]), m = pl_type_elems(&c->out_type[0]);
    return (pl_cost){(double)(n > m ? n : m), operand_bytes(c)};
}

/* ---- kernels ---------------------------------------------------------------------------- */
typedef struct job {
    pl_window w;
    int64_t c, taps, plane_in, plane_out;
    pl_dtype dt;
    size_t elem;
    const void *from;
    void *to;
    const pl_row_loops *rows;
} job;

static job job_of(const pl_call *c, const pl_type *x)
{
    const pl_window_attr *a = c->attr;
    int n = x->rank - 2;
    int64_t out[3] = {1, 1, 1};
    for (int d = 0; d < n; d++)
        out[d] = (x->dim[1 + d] + a->pad_lo.v[d] + a->pad_hi.v[d] -
                  (a->kernel.v[d] - 1) * a->dilation.v[d] - 1) /
                     a->stride.v[d] +
                 1;
    job j = {.w = pl_window_make(a, n, x->dim + 1, out, a->kernel.v), .c = x->dim[n + 1]};
    j.taps = pl_window_taps(&j.w);
    j.plane_in = pl_window_pixels(j.w.in);
    j.plane_out = pl_window_pixels(j.w.out);
    j.dt = x->dtype;
    j.elem = pl_dtype_bytes(x->dtype);
    j.from = c->in[0];
    j.to = c->out[0];
    j.rows = pl_rows_best();
    return j;
}

/* task: one output position; copies bytes, so one kernel serves every type */
static void unfold_position(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t p[3], k[3], n = task / j->plane_out;
    size_t row = (size_t)j->c * j->elem;
    pl_window_split(task % j->plane_out, j->w.out, p);
    char *to = (char *)j->to + (size_t)(task * j->taps) * row;
    for (int64_t t = 0; t < j->taps; t++, to += row) {
        pl_window_split(t, j->w.kernel, k);
        int64_t at = pl_window_reads(&j->w, p, k);
        if (at < 0)
            memset(to, 0, row);
        else
            memcpy(to, (const char *)j->from + (size_t)(n * j->plane_in + at) * row, row);
    }
}

static pl_status unfold_run(const pl_call *c)
{
    job j = job_of(c, &c->in_type[0]);
    each_task(c->in_type[0].dim[0] * j.plane_out, cost(c).flops, unfold_position, &j);
    return PL_OK;
}

enum { BATCH = 32 };

/* task: one input position */
static void fold_position(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t q[3], k[3], n = task / j->plane_in;
    const float *row[BATCH];
    float one[BATCH];
    int found = 0;
    bool add = false;
    pl_window_split(task % j->plane_in, j->w.in, q);
    float *to = (float *)j->to + task * j->c;
    for (int64_t t = 0; t < j->taps; t++) {
        pl_window_split(t, j->w.kernel, k);
        int64_t at = pl_window_reader(&j->w, q, k);
        if (at < 0) continue;
        if (found == BATCH) {
            j->rows->weighted(to, row, one, found, j->c, add);
            add = true;
            found = 0;
        }
        row[found] = (const float *)j->from + ((n * j->plane_out + at) * j->taps + t) * j->c;
        one[found++] = 1.0f;
    }
    j->rows->weighted(to, row, one, found, j->c, add);
}

static pl_status fold_run(const pl_call *c)
{
    job j = job_of(c, &c->out_type[0]);
    each_task(c->out_type[0].dim[0] * j.plane_in, cost(c).flops, fold_position, &j);
    return PL_OK;
}

static void fold_ref_position(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t q[3], k[3], n = task / j->plane_in;
    pl_window_split(task % j->plane_in, j->w.in, q);
    for (int64_t ch = 0; ch < j->c; ch++) {
        double sum = 0;
        for (int64_t t = 0; t < j->taps; t++) {
            pl_window_split(t, j->w.kernel, k);
            int64_t at = pl_window_reader(&j->w, q, k);
            if (at < 0) continue;
            sum += ref_get(j->dt, j->from, ((n * j->plane_out + at) * j->taps + t) * j->c + ch);
        }
        ref_set(j->dt, j->to, task * j->c + ch, sum);
    }
}

static pl_status fold_ref(const pl_call *c)
{
    job j = job_of(c, &c->out_type[0]);
    each_task(c->out_type[0].dim[0] * j.plane_in, cost(c).flops, fold_ref_position, &j);
    return PL_OK;
}

static const pl_kernel unfold_kernels[] = {{"ref", NULL, NULL, NULL, unfold_run}, PL_KERNEL_END};
static const pl_kernel fold_fast[] = {{"rows", accepts_f32, NULL, NULL, fold_run}, PL_KERNEL_END};
PL_VIA_F32(fold, fold_fast)
static const pl_kernel fold_kernels[] = {{"rows", accepts_f32, NULL, NULL, fold_run},
                                         PL_VIA_F32_KERNEL(fold),
                                         {"ref", NULL, NULL, NULL, fold_ref},
                                         PL_KERNEL_END};

/* clang-format off */
#define CASES(X)                                                                                    \
    X("[1,1,1,1]", "[1,1,1]",    "[1,1]", "kernel=[1,1]")                                           \
    X("[2,5,4,3]", "[2,20,27]",  "[5,4]", "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]")               \
    X("[1,6,8,2]", "[1,12,8]",   "[6,8]", "kernel=[2,2], stride=[2,2]")                             \
    X("[1,7,7,2]", "[1,12,12]",  "[7,7]", "kernel=[2,3], stride=[2,1], dilation=[1,2], pad_hi=[1,0]") \
    X("[2,9,3]",   "[2,4,9]",    "[9]",   "kernel=[3], stride=[2]")
#define UNFOLD_CASE(x, p, size, a) {{"f32" x}, a, {{0}}},
#define FOLD_CASE(x, p, size, a)   {{"f32" p}, a ", in=" size, {{0}}},
static const pl_case unfold_cases[] = {CASES(UNFOLD_CASE) PL_CASE_END};
static const pl_case fold_cases[] = {CASES(FOLD_CASE) PL_CASE_END};
/* clang-format on */

static void labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 1, 1);
    l->times = 1;
}

const pl_op pl_op_unfold = {
    .name = "unfold",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_window_attr),
    .attrs = unfold_attrs,
    .infer = unfold_infer,
    .vjp = unfold_vjp,
    .cost = cost,
    .cpu = unfold_kernels,
    .cases = unfold_cases,
    .labels = labels,
};
const pl_op pl_op_fold = {
    .name = "fold",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_window_attr),
    .attrs = fold_attrs,
    .infer = fold_infer,
    .vjp = fold_vjp,
    .cost = cost,
    .cpu = fold_kernels,
    .cases = fold_cases,
    .labels = labels,
};

pl_val pl_unfold(pl_graph *g, pl_val x, const pl_conv_opts *o, const int *kernel)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_window_attr a = pl_window_from_conv(o, pl_val_type(g, x).rank - 2);
    a.kernel.n = a.stride.n;
    for (int d = 0; d < a.kernel.n; d++) a.kernel.v[d] = kernel[d];
    return pl_build1(g, &pl_op_unfold, &a, 1, &x);
}
