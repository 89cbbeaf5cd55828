/* conv_blocks.c - convolutions with a stride as convolutions without one: blocks of stride x stride
 * pixels become one pixel with stride * stride times the channels.
 *
 *   stride 2, kernel 4, padding 1, one dimension; o: the pixel of padding that block 0 begins with
 *
 *   pixels      o 0 1 2 3 4 5 ...           taps       0 1 2 3
 *   blocks     [o 0][1 2][3 4][5 ...        blocks    [0 1][2 3]
 *
 * cuDNN's fast engines are for convolutions without a stride; with a stride, a large kernel or few
 * channels it takes engines with as little as a twentieth of their rate. Blocks begin where the
 * first window begins, modulo the stride, so a kernel of k taps covers ceil(k / stride) blocks.
 * Taps beyond the kernel, pixels outside the image and the channels that fill a pixel up to 16
 * bytes are zeros.
 *
 *   y    blocks of x and of w, then y          dx   blocks of w, dx in blocks, then its pixels
 *   dw   blocks of x, dw in blocks, then its taps
 *
 * Blocks are columns (columns.cu) whose taps are the pixels of a block; an image and a filter have
 * the same form. The copies are part of the workspace.
 */
#include "base/sys.h"
#include "cuda/conv/conv.h"

#include <string.h>

typedef struct prepared {
    pl_conv_shape whole;
    pl_columns x, w; /* blocks of x and of the filter */
    pl_conv_plan *plan;
    size_t x_bytes, w_bytes; /* of the blocks, at the start of the workspace */
    pl_conv_operands at;     /* pointers that `bound` holds */
    void *bound;
} prepared;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- the problem over blocks ---------------------------------------------------------------- */
static void block_dim(const pl_conv_shape *c, int d, bool explicit_pad, pl_conv_shape *p,
                      prepared *h)
{
    int64_t s = c->stride[d], begin = c->pad_lo[d] % s;
    p->kernel[d] = ceil_div(c->kernel[d], s);
    p->stride[d] = 1;
    int64_t all = p->out[d] + (p->kernel[d] - 1) * p->dilation[d]; /* blocks that windows cover */
    if (explicit_pad) {
        begin = c->pad_lo[d];
        p->pad_lo[d] = p->pad_hi[d] = 0;
        p->in[d] = all;
    } else {
        p->pad_lo[d] = c->pad_lo[d] / s;
        p->in[d] = ceil_div(c->in[d] + begin, s);
        if (p->in[d] > all - p->pad_lo[d]) p->in[d] = all - p->pad_lo[d];
        p->pad_hi[d] = all - p->pad_lo[d] - p->in[d];
    }
    h->x.rows[d] = p->in[d];
    h->w.rows[d] = p->kernel[d];
    h->x.size[d] = c->in[d];
    h->w.size[d] = c->kernel[d];
    h->x.shift[d] = -begin;
    h->x.taps[d] = h->w.taps[d] = h->x.stride[d] = h->w.stride[d] = s;
    h->x.step[d] = h->w.step[d] = 1;
}

static pl_conv_shape problem_of(const pl_conv_shape *c, bool explicit_pad, prepared *h)
{
    int64_t elem = (int64_t)pl_dtype_bytes((pl_dtype)c->dtype);
    int64_t bytes = c->ic * pl_conv_pixels(c->stride) * elem;
    pl_conv_shape p = *c;
    /* Another engine than the heuristics' first takes as little as half of the time, and in TF32
     * the first one that needs little workspace may have no tensor cores. */
    p.timed = 1;
    h->whole = *c;
    h->x.bytes = h->w.bytes = (int32_t)(c->ic * elem);
    h->x.fill = h->w.fill = (int32_t)(ceil_div(bytes, 16) * 16 - bytes);
    p.ic = (bytes + h->x.fill) / elem;
    for (int d = 0; d < 3; d++) block_dim(c, d, explicit_pad, &p, h);
    h->x_bytes = (size_t)(p.n * pl_conv_pixels(p.in) * p.ic * elem + 255) & ~(size_t)255;
    h->w_bytes = (size_t)(p.oc * pl_conv_pixels(p.kernel) * p.ic * elem + 255) & ~(size_t)255;
    if (p.kind == PL_CONV_DX) { /* bias and tail follow the copy to pixels */
        p.bias = p.act = p.add = 0;
        p.slope = 0;
    }
    return p;
}

/* Whether cuDNN takes the padding: the same at both ends, around at least one pixel. */
static bool is_even(const pl_conv_shape *c)
{
    return memcmp(c->pad_lo, c->pad_hi, sizeof c->pad_lo) == 0 && c->in[0] > 0 && c->in[1] > 0 &&
           c->in[2] > 0;
}

bool pl_conv_blocks_can(const pl_conv_shape *c)
{
    enum { WASTE = 2 }; /* taps over blocks, at most, to taps */
    bool short_type = c->dtype == PL_F16 || c->dtype == PL_BF16;
    if (!short_type && !(c->dtype == PL_F32 && pl_cuda_tf32())) return false;
    if (c->groups != 1 || c->n == 0 || pl_conv_pixels(c->stride) == 1) return false;
    for (int d = 0; d < 3; d++)
        if (c->stride[d] > 1 && (c->dilation[d] != 1 || c->kernel[d] < c->stride[d])) return false;
    prepared h = {.plan = NULL};
    pl_conv_shape p = problem_of(c, true, &h);
    int64_t taps = pl_conv_pixels(p.kernel) * pl_conv_pixels(c->stride);
    for (int d = 0; d < 3; d++)
        if (p.in[d] < 1) return false;
    return taps <= WASTE * pl_conv_pixels(c->kernel) &&
           p.n * pl_conv_pixels(p.in) * p.ic <= INT32_MAX &&
           p.oc * pl_conv_pixels(p.kernel) * p.ic <= INT32_MAX;
}

/* ---- preparing ------------------------------------------------------------------------------ */
void pl_conv_blocks_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    pl_conv_bound_free(h->bound);
    pl_conv_plan_put(h->plan);
    pl_sys_free(h);
}

/* Other padding becomes part of the blocks. */
static pl_status plan_for(const pl_conv_shape *c, prepared *h)
{
    pl_conv_shape p = problem_of(c, false, h);
    if (!is_even(&p)) p = problem_of(c, true, h);
    PL_TRY(pl_conv_plan_get(&p, &h->plan));
    return h->plan->plan ? PL_OK : PL_ERR_UNSUPPORTED;
}

pl_status pl_conv_blocks_prepare(const pl_conv_shape *c, void **prep, size_t *work_bytes)
{
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    pl_status rc = plan_for(c, h);
    if (rc != PL_OK) {
        pl_conv_blocks_release(h);
        return rc;
    }
    *work_bytes = pl_cuda_work_room(h->x_bytes + h->w_bytes + h->plan->work_bytes);
    *prep = h;
    return PL_OK;
}

/* ---- running -------------------------------------------------------------------------------- */
static pl_status execute(prepared *h, pl_conv_operands x)
{
    if (!h->bound || memcmp(&x, &h->at, sizeof x) != 0) {
        pl_conv_bound_free(h->bound);
        h->bound = NULL;
        PL_TRY(pl_conv_bind(h->plan, &x, &h->bound));
        h->at = x;
    }
    return pl_conv_execute(h->plan, h->bound);
}

static pl_status blocks_of(const pl_columns *c, int64_t images, const void *from, void *to)
{
    return pl_columns_make(c, from, 0, images * pl_conv_pixels(c->rows), to);
}

pl_status pl_conv_blocks_run(void *prep, const void *a, const void *b, const void *bias,
                             const void *add, void *out, void *work)
{
    prepared *h = prep;
    const pl_conv_shape *c = &h->whole;
    char *x = pl_cuda_work_at(work), *w = x + h->x_bytes;
    bool dx = c->kind == PL_CONV_DX, dw = c->kind == PL_CONV_DW;
    const void *y = dx ? a : dw ? b : out;
    if (!dx) PL_TRY(blocks_of(&h->x, c->n, a, x));
    if (!dw) PL_TRY(blocks_of(&h->w, c->oc, b, w));
    PL_TRY(execute(h, (pl_conv_operands){x, w, y, bias, add, w + h->w_bytes}));
    if (dx) PL_TRY(pl_columns_undo(&h->x, c->n, x, out));
    if (dw) PL_TRY(pl_columns_undo(&h->w, c->oc, w, out));
    return pl_conv_follow(c, dx ? PL_CONV_BARE : h->plan->level, bias, add, out);
}
