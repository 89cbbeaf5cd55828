/* dnn_conv_few.c - convolutions with few channels on one side: the thin and narrow algorithms of
 * dnn_conv.c.
 *
 * oneDNN's kernels vectorise over channels, so 1 to 8 channels leave most of 16 lanes idle. thin
 * (kernels/thin.h) makes one 1x1 convolution to all taps at once, which fills the lanes, and a sum
 * of shifted images; narrow (kernels/narrow.h) is a product with at most four vectors.
 */
#include "cpu/dnn/dnn_conv.h"

/* ---- thin ------------------------------------------------------------------------------- */

/* Returns the number of channels on the side that direct kernels vectorise over, and on the other
 * side. */
static int64_t thin_side(pl_dnn_conv_kind kind, const pl_conv *c)
{
    return kind == PL_DNN_CONV_BWD_DATA ? c->ic : c->oc;
}

static int64_t wide_side(pl_dnn_conv_kind kind, const pl_conv *c)
{
    return kind == PL_DNN_CONV_BWD_DATA ? c->oc : c->ic;
}

static pl_thin thin_make(pl_dnn_conv_kind kind, const pl_conv *c)
{
    pl_thin t = {.channels = thin_side(kind, c)};
    const int missing = 3 - c->n_spatial;
    for (int i = 0; i < 3; i++) {
        const int j = i - missing;
        t.in[i] = j < 0 ? 1 : c->in[j];
        t.out[i] = j < 0 ? 1 : c->out[j];
        t.kernel[i] = j < 0 ? 1 : c->kernel[j];
        t.stride[i] = j < 0 ? 1 : c->stride[j];
        t.dilation[i] = j < 0 ? 1 : c->dilation[j];
        t.pad[i] = j < 0 ? 0 : c->pad_lo[j];
    }
    return t;
}

/* Whether thin can compute the convolution. The gather for weights takes the whole batch at once,
 * as one deep image, so no window may extend along the depth. */
bool pl_conv_thin_can(pl_dnn_conv_kind kind, const pl_conv *c)
{
    const pl_thin t = thin_make(kind, c);
    const bool flat = t.kernel[0] == 1 && t.stride[0] == 1 && t.in[0] == t.out[0];
    if (c->dtype != PL_F32 || c->groups != 1) return false;
    return kind != PL_DNN_CONV_BWD_WEIGHTS || flat;
}

/* Whether thin is faster: the 1x1 convolution does roughly channels/16 of direct's work, but reads
 * more elements than the wide side has, by the factor of (tap, channel) pairs per wide channel. */
bool pl_conv_thin_pays(pl_dnn_conv_kind kind, const pl_conv *c)
{
    const int64_t thin = thin_side(kind, c), wide = wide_side(kind, c),
                  pairs = thin * pl_conv_taps(c);
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA;
    for (int i = 0; i < c->n_spatial; i++)
        if (!to_x && c->stride[i] != 1) return false; /* most of z would be unused */
    return thin <= 8 && wide >= 16 && pl_conv_taps(c) > 1 && pairs <= wide * 3 / 2;
}

/* Returns the 1x1 convolution from the wide channels to every pair. */
static pl_conv thin_inner(pl_dnn_conv_kind kind, const pl_conv *c)
{
    pl_conv in = {.dtype = c->dtype, .n_spatial = c->n_spatial, .groups = 1};
    in.n = kind == PL_DNN_CONV_BWD_WEIGHTS ? c->n : 1;
    in.ic = wide_side(kind, c);
    in.oc = thin_side(kind, c) * pl_conv_taps(c);
    for (int i = 0; i < c->n_spatial; i++) {
        in.in[i] = in.out[i] = kind == PL_DNN_CONV_BWD_DATA ? c->out[i] : c->in[i];
        in.kernel[i] = in.stride[i] = in.dilation[i] = 1;
    }
    return in;
}

static size_t image_bytes(int64_t channels, const int64_t *size)
{
    return (size_t)(channels * size[0] * size[1] * size[2]) * sizeof(float);
}

static void sum_fwd(const pl_dnn_call *c, void *const *p)
{
    pl_thin_sum_fwd(&c->size.thin, p[0], p[1], p[2]);
}

static void sum_data(const pl_dnn_call *c, void *const *p)
{
    pl_thin_sum_data(&c->size.thin, p[0], p[2]);
}

static void gather(const pl_dnn_call *c, void *const *p)
{
    pl_thin_gather(&c->size.thin, p[0], p[2]);
}

static pl_dnn_call thin_call(pl_dnn_conv_kind kind, const pl_conv *c)
{
    return (pl_dnn_call){.fn = kind == PL_DNN_CONV_FWD        ? sum_fwd
                               : kind == PL_DNN_CONV_BWD_DATA ? sum_data
                                                              : gather,
                         .size.thin = thin_make(kind, c),
                         .operand = {-1, -1, -1, -1, -1}};
}

static pl_status thin_weights(pl_dnn *d, const pl_conv *c, const pl_conv_tensors *t)
{
    const pl_conv inner = thin_inner(PL_DNN_CONV_BWD_WEIGHTS, c);
    pl_conv_tensors it;
    pl_conv_io io;
    pl_dnn_call call = thin_call(PL_DNN_CONV_BWD_WEIGHTS, c);
    call.size.thin.in[0] *= c->n;
    call.size.thin.out[0] *= c->n;
    PL_TRY(pl_conv_tensors_init(&it, &inner));
    PL_TRY(pl_dnn_add_operand(d, &t->x, PL_DNN_IN, 0, &io.x));
    PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, 1, &call.operand[0]));
    PL_TRY(pl_dnn_add_work(d, &it.y, &io.y));
    call.operand[2] = io.y;
    pl_dnn_add_call(d, &call);
    PL_TRY(pl_dnn_add_operand(d, &it.w, PL_DNN_OUT, 0, &io.w));
    return pl_conv_direct_add(d, PL_DNN_CONV_BWD_WEIGHTS, &inner, &it, &io);
}

pl_status pl_conv_thin_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                             const pl_conv_tensors *t)
{
    if (kind == PL_DNN_CONV_BWD_WEIGHTS) return thin_weights(d, c, t);
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA;
    const pl_conv inner = thin_inner(kind, c);
    pl_conv_tensors it;
    pl_conv_io io;
    pl_dnn_call call = thin_call(kind, c);
    const pl_thin *s = &call.size.thin;
    PL_TRY(pl_conv_tensors_init(&it, &inner));
    /* w is (oc, pairs): the wide channels are its rows */
    if (to_x) pl_conv_weight_strides(&it.w, 1, inner.oc);
    PL_TRY(pl_dnn_add_operand(d, &it.x, PL_DNN_IN, 0, &io.x));
    PL_TRY(pl_dnn_add_operand(d, &it.w, PL_DNN_IN, 1, &io.w));
    PL_TRY(pl_dnn_add_work(d, &it.y, &io.y));
    PL_TRY(pl_conv_direct_add(d, PL_DNN_CONV_FWD, &inner, &it, &io));
    call.operand[0] = io.y;
    if (c->bias) PL_TRY(pl_dnn_add_operand(d, &t->bias, PL_DNN_IN, 2, &call.operand[1]));
    PL_TRY(pl_dnn_add_operand(d, to_x ? &t->x : &t->y, PL_DNN_OUT, 0, &call.operand[2]));
    d->loop_from = d->n_steps - 1; /* the 1x1 convolution; weights are reordered once */
    d->n_images = c->n;
    d->operands[io.x].image_bytes = image_bytes(inner.ic, to_x ? s->out : s->in);
    d->operands[call.operand[2]].image_bytes = image_bytes(s->channels, to_x ? s->in : s->out);
    pl_dnn_add_call(d, &call);
    return PL_OK;
}

/* ---- 1x1 with up to four channels ------------------------------------------------------- */

bool pl_conv_is_narrow(pl_dnn_conv_kind kind, const pl_conv *c)
{
    if (c->dtype != PL_F32 || c->groups != 1 || pl_conv_taps(c) != 1) return false;
    for (int i = 0; i < c->n_spatial; i++)
        if (c->stride[i] != 1 || c->in[i] != c->out[i] || c->pad_lo[i] || c->pad_hi[i])
            return false;
    return thin_side(kind, c) <= PL_NARROW_MAX && wide_side(kind, c) >= 16;
}

/* Pixels are the rows of the matrix. For the data gradient, w (oc, ic) is transposed first. */
pl_status pl_conv_narrow_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                               const pl_conv_tensors *t)
{
    const bool to_x = kind == PL_DNN_CONV_BWD_DATA, to_w = kind == PL_DNN_CONV_BWD_WEIGHTS;
    pl_narrow s = {.rows = c->n, .cols = wide_side(kind, c), .n = thin_side(kind, c)};
    for (int i = 0; i < c->n_spatial; i++) s.rows *= c->in[i];
    s.ld = s.cols;
    s.bias_vec = 1;
    int a, b, bias = -1, to;
    PL_TRY(pl_dnn_add_operand(d, to_x ? &t->y : &t->x, PL_DNN_IN, 0, &a));
    if (to_w) {
        PL_TRY(pl_dnn_add_operand(d, &t->y, PL_DNN_IN, 1, &b));
        PL_TRY(pl_dnn_add_operand(d, &t->w, PL_DNN_OUT, 0, &to));
        return pl_dnn_add_narrow(d, false, &s, a, b, -1, to);
    }
    pl_mdesc want = t->w;
    if (to_x) pl_conv_weight_strides(&want, 1, c->oc);
    PL_TRY(pl_dnn_add_input(d, &t->w, &want, 1, &b));
    if (c->bias) PL_TRY(pl_dnn_add_operand(d, &t->bias, PL_DNN_IN, 2, &bias));
    PL_TRY(pl_dnn_add_operand(d, to_x ? &t->x : &t->y, PL_DNN_OUT, 0, &to));
    return pl_dnn_add_narrow(d, true, &s, a, b, bias, to);
}
