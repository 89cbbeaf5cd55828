/* conv_split.c - f32 convolutions on TF32 units (split.h): products whose operand loader finds the
 * pixels of windows itself. Operands are split for f32's accuracy; where TF32 is allowed, rounded.
 *
 *   y  = windows of x  w'       dx = windows of dy  w transposed       dw = dy'  windows of x
 *
 * Only the taps of w are copied, into dx's order; dw has parts of its sums. Channels load four
 * at a time. Bias, addition and ReLU are part of the kernel, any other tail is a separate pass.
 */
#include "base/sys.h"
#include "cuda/conv/conv.h"
#include "cuda/matmul/split.h"

typedef struct prepared {
    pl_conv_shape c;
    pl_conv_phase phase[PL_CONV_PHASES];
    pl_split_product product[PL_CONV_PHASES];
    int n;
    size_t turned; /* bytes of w's reordered taps, before the parts */
} prepared;

static pl_split_product product_of(const pl_conv_shape *c, const pl_conv_phase *f)
{
    pl_split_product s = {.batch = 1, .m = f->rows, .n = c->oc, .k = f->terms, .at = f->columns};
    s.tf32 = pl_cuda_tf32();
    s.a = PL_SPLIT_PIXELS;
    s.b = PL_SPLIT_ROWS;
    s.b_ld = f->terms;
    if (c->kind == PL_CONV_DX) {
        s.n = s.b_ld = c->ic;
        s.b = PL_SPLIT_COLS;
        s.spread = pl_conv_pixels(c->stride) > 1;
        for (int d = 0; d < 3; d++) {
            s.rows[d] = f->columns.rows[d];
            s.first[d] = f->first[d];
            s.stride[d] = c->stride[d];
            s.size[d] = c->in[d];
        }
    } else if (c->kind == PL_CONV_DW) {
        s.m = s.a_ld = c->oc;
        s.n = f->terms;
        s.k = f->rows;
        s.a = PL_SPLIT_COLS;
        s.b = PL_SPLIT_PIXELS;
    }
    return s;
}

/* false where a phase does not suit the kernels, or would not be faster. */
static bool plan(const pl_conv_shape *c, bool pays, prepared *h)
{
    h->c = *c;
    if (!pl_conv_phases_of(c, h->phase, &h->n)) return false;
    for (int i = 0; i < h->n; i++) {
        h->product[i] = product_of(c, &h->phase[i]);
        if (!(pays ? pl_split_pays : pl_split_plan)(&h->product[i])) return false;
        size_t turned = (size_t)(4 * h->phase[i].terms * c->ic + 255) / 256 * 256;
        if (c->kind == PL_CONV_DX && turned > h->turned) h->turned = turned;
    }
    return true;
}

static bool takes(const pl_conv_shape *c, bool pays)
{
    prepared h = {.n = 0};
    if (c->dtype != PL_F32 || !pl_cuda_split() || c->groups != 1 || c->n == 0) return false;
    if (c->n * c->ic * pl_conv_pixels(c->in) > INT32_MAX ||
        c->n * c->oc * pl_conv_pixels(c->out) > INT32_MAX)
        return false;
    return plan(c, pays, &h);
}

bool pl_conv_split_takes(const pl_conv_shape *c)
{
    return !pl_cuda_tf32() && takes(c, true);
}

/* With f32's accuracy, these kernels compute a convolution only where pl_conv_split_takes. */
bool pl_conv_split_can(const pl_conv_shape *c)
{
    return pl_cuda_tf32() && takes(c, false);
}

pl_status pl_conv_split_prepare(const pl_conv_shape *c, void **prep, size_t *work_bytes)
{
    size_t most = 0;
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    if (!plan(c, false, h)) {
        pl_sys_free(h);
        return PL_ERR_UNSUPPORTED;
    }
    for (int i = 0; i < h->n; i++) {
        size_t parts = pl_split_work(&h->product[i]);
        if (parts > most) most = parts;
    }
    *work_bytes = pl_cuda_work_room(h->turned + most);
    *prep = h;
    return PL_OK;
}

pl_status pl_conv_split_run(void *prep, const void *a, const void *b, const void *bias,
                            const void *add, void *out, void *work)
{
    const prepared *h = prep;
    const pl_conv_shape *c = &h->c;
    bool inside = c->act == PL_ACT_NONE || c->act == PL_ACT_RELU;
    pl_split_tail t = {inside ? bias : NULL, inside ? add : NULL, inside && c->act == PL_ACT_RELU};
    char *at = pl_cuda_work_at(work);
    bool dw = c->kind == PL_CONV_DW;
    for (int i = 0; i < h->n; i++) {
        const pl_conv_phase *f = &h->phase[i];
        if (h->turned) PL_TRY(pl_columns_filter(c, f->tap, c->stride, f->columns.taps, b, at));
        const void *right = h->turned ? at : b;
        PL_TRY(pl_split_run(&h->product[i], dw ? b : a, dw ? a : right, &t, out, at + h->turned));
    }
    return inside ? PL_OK : pl_conv_follow(c, PL_CONV_BARE, bias, add, out);
}
