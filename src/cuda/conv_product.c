/* conv_product.c - true f32 convolutions as products over columns (columns.cu).
 *
 *   y  = columns(x) w'            dx = columns(dy) w turned           dw = dy' columns(x)
 *
 * cuDNN's engines for f32 without TF32 reach a half (y) to a third (gradients) of what its products do
 * channels last, and ask for copies of both operands as scratch. Columns are made in parts of a bounded
 * size, each followed by its product; the parts of dw are added in order. A filter of one tap needs no
 * columns. The parts depend on shapes alone, so sums do.
 */
#include "base/sys.h"
#include "cuda/conv.h"
#include "ops/attr.h"

#include <string.h>

enum { LEAST_PART = 16 << 20, MOST_PART = 256 << 20, TILE = 128 };

/* rows x columns of the product, and the sum's terms, of the whole problem. */
typedef struct sizes {
    int64_t rows, cols, terms;
    int64_t part; /* rows of columns at a time */
} sizes;

/* A product of `rows` rows of columns. */
typedef struct product {
    pl_call call;
    pl_type in[3], out;
    pl_matmul_attr attr;
    const pl_kernel *kernel;
} product;

typedef struct prepared {
    pl_conv_shape c;
    sizes s;
    product whole, rest; /* of a part, and of the last one if it is shorter */
    size_t turned, sum, columns; /* bytes in the workspace, in this order; the product's own behind them */
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

static sizes sizes_of(const pl_conv_shape *c)
{
    bool back = c->kind == PL_CONV_DX;
    int64_t taps = pl_conv_pixels(c->kernel), in = c->n * pl_conv_pixels(c->in), out = c->n * pl_conv_pixels(c->out);
    sizes s = {back ? in : out, back ? c->ic : c->oc, taps * (back ? c->oc : c->ic), 0};
    int64_t bytes = 4 * (in * c->ic + out * c->oc) / 2;
    bytes = bytes < LEAST_PART ? LEAST_PART : least(bytes, MOST_PART);
    int64_t parts = (4 * s.rows * s.terms + bytes - 1) / bytes;
    if (one_tap(c) || parts < 1) parts = 1;
    s.part = least(((s.rows + parts - 1) / parts + TILE - 1) / TILE * TILE, s.rows);
    return s;
}

bool pl_conv_product_takes(const pl_conv_shape *c)
{
    if (c->dtype != PL_F32 || pl_cuda_tf32() || c->groups != 1 || !pl_cuda_kernels_of("matmul")) return false;
    if (c->kind == PL_CONV_DX && pl_conv_pixels(c->stride) != 1) return false;
    sizes s = sizes_of(c);
    double work = 2.0 * (double)s.rows * (double)s.cols * (double)s.terms;
    bool index32 = s.rows <= INT32_MAX && s.part * s.terms <= INT32_MAX && s.cols * s.terms <= INT32_MAX;
    return s.cols >= 16 && s.terms >= 64 && work >= 0x1p26 && index32;
}

/* ---- products ------------------------------------------------------------------------------- */
static pl_status product_make(const prepared *h, int64_t rows, product *p, size_t *work)
{
    const pl_conv_shape *c = &h->c;
    const sizes *s = &h->s;
    bool dw = c->kind == PL_CONV_DW;
    p->attr = (pl_matmul_attr){.ta = dw, .tb = c->kind == PL_CONV_Y};
    p->in[0] = dw ? PL_TYPE(PL_F32, rows, s->cols) : PL_TYPE(PL_F32, rows, s->terms);
    p->in[1] = dw                      ? PL_TYPE(PL_F32, rows, s->terms)
               : c->kind == PL_CONV_Y ? PL_TYPE(PL_F32, s->cols, s->terms)
                                      : PL_TYPE(PL_F32, s->terms, s->cols);
    p->in[2] = PL_TYPE(PL_F32, s->cols);
    p->out = dw ? PL_TYPE(PL_F32, s->cols, s->terms) : PL_TYPE(PL_F32, rows, s->cols);
    p->call = (pl_call){.in_type = p->in, .out_type = &p->out, .attr = &p->attr, .n_in = c->bias ? 3 : 2, .n_out = 1};
    p->kernel = pl_cuda_kernels_of("matmul");
    size_t bytes = 0;
    PL_TRY(p->kernel->prepare ? p->kernel->prepare(&p->call, &p->call.prep, &bytes) : PL_OK);
    if (bytes > *work) *work = bytes;
    return PL_OK;
}

static void product_release(product *p)
{
    if (p->kernel && p->kernel->release && p->call.prep) p->kernel->release(p->call.prep);
}

static pl_status product_run(const product *p, const void *a, const void *b, const void *bias, void *out, void *work)
{
    const void *in[3] = {a, b, bias};
    void *to[1] = {out};
    pl_call c = p->call;
    c.in = in;
    c.out = to;
    c.work = work;
    return p->kernel->run(&c);
}

/* ---- the kernel ----------------------------------------------------------------------------- */
static size_t room(int64_t floats)
{
    return ((size_t)floats * 4 + 255) & ~(size_t)255;
}

void pl_conv_product_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    product_release(&h->whole);
    product_release(&h->rest);
    pl_sys_free(h);
}

static pl_status fill(prepared *h, size_t *work)
{
    const pl_conv_shape *c = &h->c;
    const sizes *s = &h->s;
    PL_TRY(product_make(h, s->part, &h->whole, work));
    if (s->rows % s->part) PL_TRY(product_make(h, s->rows % s->part, &h->rest, work));
    if (c->kind == PL_CONV_DX && pl_conv_pixels(c->kernel) > 1) h->turned = room(s->terms * s->cols);
    if (c->kind == PL_CONV_DW && s->part < s->rows) h->sum = room(s->terms * s->cols);
    if (!one_tap(c)) h->columns = room(s->part * s->terms);
    return PL_OK;
}

pl_status pl_conv_product_prepare(const pl_conv_shape *c, void **prep, size_t *work_bytes)
{
    size_t work = 0;
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->c = *c;
    h->s = sizes_of(c);
    pl_status rc = fill(h, &work);
    if (rc != PL_OK) {
        pl_conv_product_release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(h->turned + h->sum + h->columns + work);
    *prep = h;
    return PL_OK;
}

/* Rows [first, first + rows) of the product, or their share of dw. */
static pl_status run_part(const prepared *h, int64_t first, const float *a, const float *b, const float *bias, float *out,
                          char *work)
{
    const sizes *s = &h->s;
    int64_t rows = least(s->part, s->rows - first);
    const product *p = rows == s->part ? &h->whole : &h->rest;
    bool dw = h->c.kind == PL_CONV_DW;
    char *columns = work + h->turned + h->sum;
    const void *left = h->columns ? (const void *)columns : a + first * s->terms;
    if (h->columns) PL_TRY(pl_conv_columns(&h->c, a, first, rows, columns));
    void *own = columns + h->columns;
    if (!dw) return product_run(p, left, b, bias, out + first * s->cols, own);
    const float *dy = b + first * s->cols;
    if (first == 0) return product_run(p, dy, left, NULL, out, own);
    PL_TRY(product_run(p, dy, left, NULL, work, own));
    return pl_cuda_add_bias(PL_F32, out, work, 1, s->cols * s->terms);
}

pl_status pl_conv_product_run(void *prep, const void *a, const void *b, const void *bias, void *out, void *work)
{
    const prepared *h = prep;
    char *at = pl_cuda_work_at(work);
    if (h->turned) {
        PL_TRY(pl_conv_turn_filter(&h->c, b, at));
        b = at;
    }
    for (int64_t first = 0; first < h->s.rows; first += h->s.part)
        PL_TRY(run_part(h, first, a, b, bias, out, at));
    return PL_OK;
}
