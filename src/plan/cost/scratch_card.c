/* scratch_card.c - scratch that kernels are expected to need on a GPU that is not installed.
 *
 * The engine's kernels decide by sizes alone: plan/cost/kernel_sizes.h has their decisions, and the
 * kernels call the same functions. What libraries (cuBLASLt, cuDNN) need is known only where they
 * run; for libraries this file assumes the size of the partial sums of a split product.
 */
#include "plan/cost/cost_card.h"
#include "plan/cost/kernel_sizes.h"

#include <math.h>

#define MIB 1048576.0

static uint64_t round_up(double bytes)
{
    return 256 * (uint64_t)ceil(bytes / 256);
}

/* A product's sizes; a cost has its batch only in the number of operations. */
static pl_split_sizes sizes_of(const pl_cost *c, double count)
{
    return (pl_split_sizes){
        .batch = llround(count), .m = llround(c->m), .n = llround(c->n), .k = llround(c->k)};
}

static double split_bytes(const pl_card *card, const pl_cost *c, double count)
{
    pl_split_sizes s = sizes_of(c, count);
    pl_split_choice choice = pl_split_choose(&s, llround(card->sms), false);
    return (double)pl_split_bytes(&s, choice.parts);
}

/* Assumes that the outputs are columns. Where they are rows there are fewer parts or none, which a
 * cost does not say; the difference is some KiB. */
static double vector_bytes(const pl_cost *c, double count, pl_dtype dtype)
{
    int64_t terms, batch = llround(count), n = llround(fmax(c->m, c->n));
    int64_t parts =
        pl_vector_parts(batch, n, llround(c->k), (int64_t)pl_dtype_bytes(dtype), n > 1, &terms);
    return (double)pl_vector_bytes(batch, n, parts);
}

static double conv_bytes(const pl_card *card, const pl_cost *c)
{
    enum { FEW = 36 }; /* channels: the kernels for few channels need no scratch */
    if (fmin(fmin(c->m, c->n), c->k) <= FEW) return 0;
    if (c->work == PL_WORK_CONV_DX) return 4 * c->n * c->k; /* the transposed filter */
    if (c->k >= PL_SPLIT_LEAST_SUM) return split_bytes(card, c, 1);
    return fmin(4 * c->m * c->k, (double)pl_columns_at_once((int64_t)c->bytes)); /* f32 units */
}

/* A cost does not distinguish batches from heads, so a slice may be smaller; a causal unit has
 * twice the heads that its operations say. */
static double dnn_attention_bytes(const pl_cost *c, double heads)
{
    enum { CALL = 512 }; /* scratch of the engine besides scores */
    if (c->work != PL_WORK_ATTENTION_BACK) return CALL;
    pl_attend_dnn_slice s = pl_attend_dnn_slice_of(1, llround(heads), llround(c->m), llround(c->n));
    return (double)s.bytes + 4 * (double)s.heads * c->m + CALL;
}

/* Scratch that grows with the heads, of which a slice has as many as fit. */
static double within_scratch(double bytes, int64_t heads)
{
    return fmin(bytes, fmax((double)PL_ATTEND_DNN_SCRATCH, bytes / (double)heads));
}

static double attention_bytes(const pl_card *card, const pl_cost *c, pl_dtype dtype,
                              pl_card_f32 f32)
{
    bool split = dtype == PL_F32 && f32 == PL_CARD_SPLIT && pl_card_splits(card);
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    double heads = fmax(1, round(c->flops / (c->m * c->n * (2 * (back ? 5 : 2) * c->k + 12))));
    pl_attend_sizes s = {
        .heads = llround(heads), .n = llround(c->m), .m = llround(c->n), .d = llround(c->k)};
    double delta = back ? 8 * heads * c->m : 0;
    if (pl_card_dnn_attends(card, c, dtype)) return fmax(delta, dnn_attention_bytes(c, 2 * heads));
    if (pl_card_rounds_attention(card, c, dtype, f32)) {
        /* A causal unit computes half of the products of its heads, but it reads all of their
         * bytes: so the heads are counted from the bytes. */
        double each = 4 * (back ? 4 : 2) * c->k * (c->m + c->n) + 4 * c->m;
        s.heads = llround(fmax(heads, c->bytes / each));
        double rounded = (double)pl_attend_tf32_bytes(&s, back);
        if (!back || !pl_card_warpgroups_attend(card, c)) return rounded;
        return fmax(rounded, within_scratch((double)pl_attend_tf32_wg_bytes(&s), s.heads));
    }
    if (back && pl_dtype_bytes(dtype) == 2 && pl_card_warpgroups_attend(card, c)) {
        s.heads = llround(fmax(heads, c->bytes / (8 * c->k * (c->m + c->n) + 4 * c->m)));
        size_t sums = pl_attend_wg_work_of(s.heads, s.n, s.m, s.d).bytes;
        return fmax(delta, within_scratch((double)sums, s.heads));
    }
    if (!split || c->k > 128) return delta;
    return (double)(back ? pl_attend_backward_course(&s, (size_t)delta).bytes
                         : pl_attend_forward_course(&s).bytes);
}

/* Partial sums of a library's split product, in f32; convolutions also reorder operands. */
static double library_bytes(const pl_cost *c, pl_dtype dtype)
{
    double bytes = 4 * 4 * c->m * c->n;
    if (c->work != PL_WORK_PRODUCT)
        bytes = fmax(bytes, 2 * (double)pl_dtype_bytes(dtype) * c->n * c->k);
    return fmin(bytes, 32 * MIB);
}

uint64_t pl_card_workspace(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    bool split = dtype == PL_F32 && f32 == PL_CARD_SPLIT && pl_card_splits(card);
    if (!(c->m * c->n * c->k > 0)) return 0;
    double count = fmax(1, round(c->flops / (2 * c->m * c->n * c->k)));
    switch (c->work) {
    case PL_WORK_PRODUCT:
        if (pl_card_vector(c, dtype)) return round_up(vector_bytes(c, count, dtype));
        return round_up(split ? split_bytes(card, c, count) : library_bytes(c, dtype));
    case PL_WORK_CONV:
    case PL_WORK_CONV_DX:
    case PL_WORK_CONV_DW: return round_up(split ? conv_bytes(card, c) : library_bytes(c, dtype));
    case PL_WORK_ATTENTION:
    case PL_WORK_ATTENTION_BACK: return round_up(attention_bytes(card, c, dtype, f32));
    default: return 0;
    }
}
