/* conv_product.c - convolutions that cuDNN computes slowly, as products over columns (columns.cu).
 *
 *   y  = columns(x) w'            dx = columns(dy) w transposed       dw = dy' columns(x)
 *
 * cuDNN's engines for f32 without TF32 reach a half (y) to a third (gradients) of the rate of
 * products channels last, and need copies of both operands as scratch. In 16 bits its fast engines
 * need channels in multiples of 8, and for other channels it takes ten to a thousand times as long
 * (dw, whose parts are added in f32, stays with cuDNN). Columns are made in parts of a bounded
 * size, each followed by its product; the parts of dw are added in order. A filter of one tap needs
 * no columns. dx is computed in the phases of conv_phase.c.
 *
 * Parts and phases depend on shapes alone, so the order of sums does too.
 */
#include "base/sys.h"
#include "cuda/conv/conv.h"
#include "ops/core/attr.h"
#include "plan/cost/kernel_sizes.h"

#include <string.h>

enum { TILE = 128 };

/* A product of `rows` rows of columns. */
typedef struct product {
    pl_call call;
    pl_type in[3], out;
    pl_matmul_attr attr;
    const pl_kernel *kernel;
} product;

typedef struct phase {
    pl_conv_phase of;
    int64_t part;        /* rows at a time */
    product whole, rest; /* of a part, and of a shorter last part */
} phase;

typedef struct prepared {
    pl_conv_shape c;
    phase phase[PL_CONV_PHASES];
    int n_phases;
    int64_t cols; /* of a product */
    bool plain;   /* one tap: the operand equals its columns */
    /* bytes in the workspace, in this order; followed by the products' own workspace */
    size_t turned, sum, spread, columns;
} prepared;

static bool one_tap(const pl_conv_shape *c)
{
    for (int d = 0; d < 3; d++)
        if (c->kernel[d] != 1 || c->stride[d] != 1 || c->pad_lo[d] || c->pad_hi[d]) return false;
    return true;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* false where the convolution cannot be computed as a product. */
static bool plan(const pl_conv_shape *c, prepared *h)
{
    pl_conv_phase of[PL_CONV_PHASES];
    h->c = *c;
    h->plain = one_tap(c);
    h->cols = c->kind == PL_CONV_DX ? c->ic : c->oc;
    if (!pl_conv_phases_of(c, of, &h->n_phases)) return false;
    int64_t elem = (int64_t)pl_dtype_bytes((pl_dtype)c->dtype);
    int64_t elems = c->n * (pl_conv_pixels(c->in) * c->ic + pl_conv_pixels(c->out) * c->oc);
    int64_t bytes = pl_columns_at_once(elem * elems);
    for (int i = 0; i < h->n_phases; i++) {
        phase *f = &h->phase[i];
        f->of = of[i];
        int64_t parts = h->plain ? 1 : (elem * f->of.rows * f->of.terms + bytes - 1) / bytes;
        f->part = least(((f->of.rows + parts - 1) / parts + TILE - 1) / TILE * TILE, f->of.rows);
    }
    return true;
}

static bool slow_elsewhere(const pl_conv_shape *c)
{
    if (c->dtype == PL_F32) return !pl_cuda_tf32();
    bool short_type = c->dtype == PL_F16 || c->dtype == PL_BF16;
    return short_type && c->kind != PL_CONV_DW && (c->ic % 8 || c->oc % 8);
}

static bool takes(const pl_conv_shape *c)
{
    prepared h = {.n_phases = 0};
    if (c->groups != 1 || !pl_cuda_kernels_of("matmul") || !plan(c, &h)) return false;
    double work = 0;
    for (int i = 0; i < h.n_phases; i++) {
        const phase *f = &h.phase[i];
        work += 2.0 * (double)f->of.rows * (double)f->of.terms * (double)h.cols;
        if (f->of.rows > INT32_MAX || f->part * f->of.terms > INT32_MAX ||
            h.cols * f->of.terms > INT32_MAX || f->part * h.cols > INT32_MAX || f->of.terms < 64)
            return false;
        /* Shares of a filter's gradient are summed in f32 alone. */
        if (c->kind == PL_CONV_DW && c->dtype != PL_F32 && f->part < f->of.rows) return false;
    }
    return h.cols >= 16 && work >= 0x1p26;
}

bool pl_conv_product_takes(const pl_conv_shape *c)
{
    return slow_elsewhere(c) && takes(c);
}

bool pl_conv_product_can(const pl_conv_shape *c)
{
    bool float_type = c->dtype == PL_F32 || c->dtype == PL_F16 || c->dtype == PL_BF16;
    return float_type && takes(c);
}

/* ---- products ------------------------------------------------------------------------------- */
static pl_status product_make(const prepared *h, const phase *f, int64_t rows, product *p,
                              size_t *work)
{
    const pl_conv_shape *c = &h->c;
    bool dw = c->kind == PL_CONV_DW, y = c->kind == PL_CONV_Y;
    pl_dtype t = (pl_dtype)c->dtype;
    size_t bytes = 0;
    p->attr = (pl_matmul_attr){.ta = dw, .tb = y};
    p->in[0] = PL_TYPE(t, rows, dw ? h->cols : f->of.terms);
    p->in[1] = PL_TYPE(t, dw ? rows : y ? h->cols : f->of.terms, dw || y ? f->of.terms : h->cols);
    p->in[2] = PL_TYPE(t, h->cols);
    p->out = PL_TYPE(t, dw ? h->cols : rows, dw ? f->of.terms : h->cols);
    p->call = (pl_call){.in_type = p->in,
                        .out_type = &p->out,
                        .attr = &p->attr,
                        .n_in = c->bias ? 3 : 2,
                        .n_out = 1};
    p->kernel = pl_cuda_kernels_of("matmul");
    while (p->kernel->accepts && !p->kernel->accepts(&p->call)) p->kernel++;
    PL_TRY(p->kernel->prepare ? p->kernel->prepare(&p->call, &p->call.prep, &bytes) : PL_OK);
    if (bytes > *work) *work = bytes;
    return PL_OK;
}

static void product_release(product *p)
{
    if (p->kernel && p->kernel->release && p->call.prep) p->kernel->release(p->call.prep);
}

static pl_status product_run(const product *p, const void *a, const void *b, const void *bias,
                             void *out, void *work)
{
    const void *in[3] = {a, b, bias};
    void *to[1] = {out};
    pl_call c = p->call;
    c.in = in;
    c.out = to;
    c.work = work;
    return p->kernel->run(&c);
}

/* ---- preparing ------------------------------------------------------------------------------ */
static void at_least(const prepared *h, size_t *bytes, int64_t elems)
{
    size_t want = ((size_t)elems * pl_dtype_bytes((pl_dtype)h->c.dtype) + 255) & ~(size_t)255;
    if (want > *bytes) *bytes = want;
}

void pl_conv_product_release(void *prep)
{
    prepared *h = prep;
    for (int i = 0; h && i < h->n_phases; i++) {
        product_release(&h->phase[i].whole);
        product_release(&h->phase[i].rest);
    }
    pl_sys_free(h);
}

static pl_status fill(prepared *h, size_t *work)
{
    const pl_conv_shape *c = &h->c;
    for (int i = 0; i < h->n_phases; i++) {
        phase *f = &h->phase[i];
        PL_TRY(product_make(h, f, f->part, &f->whole, work));
        if (f->of.rows % f->part) PL_TRY(product_make(h, f, f->of.rows % f->part, &f->rest, work));
        if (c->kind == PL_CONV_DX && !h->plain) at_least(h, &h->turned, f->of.terms * h->cols);
        if (c->kind == PL_CONV_DW && f->part < f->of.rows)
            at_least(h, &h->sum, f->of.terms * h->cols);
        if (pl_conv_pixels(c->stride) > 1 && c->kind == PL_CONV_DX)
            at_least(h, &h->spread, f->part * h->cols);
        if (!h->plain) at_least(h, &h->columns, f->part * f->of.terms);
    }
    return PL_OK;
}

pl_status pl_conv_product_prepare(const pl_conv_shape *c, void **prep, size_t *work_bytes)
{
    size_t work = 0;
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    pl_status rc = plan(c, h) ? fill(h, &work) : PL_ERR_UNSUPPORTED;
    if (rc != PL_OK) {
        pl_conv_product_release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(h->turned + h->sum + h->spread + h->columns + work);
    *prep = h;
    return PL_OK;
}

/* ---- running -------------------------------------------------------------------------------- */
/* Adds dw's share of these rows; the first share starts the sum. */
static pl_status add_share(const prepared *h, const phase *f, const product *p, bool begins,
                           const void *dy, const void *columns, void *dw, char *work, void *own)
{
    if (begins) return product_run(p, dy, columns, NULL, dw, own);
    void *share = work + h->turned;
    PL_TRY(product_run(p, dy, columns, NULL, share, own));
    return pl_cuda_add_bias(PL_F32, dw, share, 1, h->cols * f->of.terms);
}

static pl_status run_part(const prepared *h, const phase *f, int64_t first, const char *a,
                          const char *b, const void *bias, char *out, char *work)
{
    int64_t elem = (int64_t)pl_dtype_bytes((pl_dtype)h->c.dtype),
            rows = least(f->part, f->of.rows - first);
    const product *p = rows == f->part ? &f->whole : &f->rest;
    char *spread = work + h->turned + h->sum, *columns = spread + h->spread,
         *own = columns + h->columns;
    const char *left = h->plain ? a + first * f->of.terms * elem : columns;
    if (!h->plain) PL_TRY(pl_columns_make(&f->of.columns, a, first, rows, columns));
    if (h->c.kind == PL_CONV_DW)
        return add_share(h, f, p, first == 0, b + first * h->cols * elem, left, out, work, own);
    if (!h->spread) return product_run(p, left, b, bias, out + first * h->cols * elem, own);
    PL_TRY(product_run(p, left, b, bias, spread, own));
    return pl_columns_spread(&h->c, f->of.first, f->of.columns.rows, first, rows, spread, out);
}

pl_status pl_conv_product_run(void *prep, const void *a, const void *b, const void *bias, void *out,
                              void *work)
{
    const prepared *h = prep;
    char *at = pl_cuda_work_at(work);
    for (int i = 0; i < h->n_phases; i++) {
        const phase *f = &h->phase[i];
        if (h->turned)
            PL_TRY(pl_columns_filter(&h->c, f->of.tap, h->c.stride, f->of.columns.taps, b, at));
        for (int64_t first = 0; first < f->of.rows; first += f->part)
            PL_TRY(run_part(h, f, first, a, h->turned ? at : b, bias, out, at));
    }
    return PL_OK;
}
