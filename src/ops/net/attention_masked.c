/* attention_masked.c - attention with a mask, without stored probabilities.
 *
 *   attention_masked      (q [B,N,H,D], k, v [B,M,G,D], mask) -> o [B,N,H,D], lse [B,H,N]
 *   attention_masked_bwd  (q, k, v, mask, o, lse, d_o, d_lse?) -> dq, dk, dv
 *
 * mask [B,H,N,M], each dim that or 1: numbers that are added to the scores, at least -2e30 each, or
 * bool: true where a query sees a key. A query that sees no key has result, lse and gradients 0.
 * A mask that is trained gets its gradient in primitives, which store the probabilities. Formulas
 * and kernels are in attention.c.
 */
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/net/attention.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_attention_attr, scale, FLOAT),
                                PL_ATTR(pl_attention_attr, causal, BOOL), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
static pl_status masked_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    PL_TRY(pl_op_attention.infer(in, 3, attr, out));
    const pl_type *mask = &in[3];
    const int64_t full[4] = {in[0].dim[0], in[0].dim[2], in[0].dim[1], in[1].dim[1]};
    char s[96], t[96];
    bool fits = mask->rank == 4 && (mask->dtype == PL_BOOL || pl_dtype_is_float(mask->dtype));
    for (int i = 0; fits && i < 4; i++) fits = mask->dim[i] == 1 || mask->dim[i] == full[i];
    pl_type wants = pl_type_make(PL_BOOL, 4, full);
    PL_FAIL_IF(!fits, PL_ERR_SHAPE,
               "mask is %s; needs %s or floats of that shape, where any dimension may be 1",
               pl_type_text(mask, s, sizeof s), pl_type_text(&wants, t, sizeof t));
    return PL_OK;
}

static pl_status masked_bwd_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_type made[2], rest[7];
    PL_TRY(masked_infer(in, 4, attr, made));
    for (int i = 0; i < n_in - 1; i++) rest[i] = in[i < 3 ? i : i + 1];
    return pl_op_attention_bwd.infer(rest, n_in - 1, attr, out);
}

/* ---- gradients -------------------------------------------------------------------------- */
static void masked_vjp(const pl_vjp *v)
{
    pl_val d_o = pl_val_ok(v->gout[0]) ? v->gout[0] : pl_full_like(v->g, v->out[0], 0);
    pl_val in[8] = {v->in[0], v->in[1], v->in[2], v->in[3], v->out[0], v->out[1], d_o, v->gout[1]};
    pl_val made[3];
    pl_build(v->g, &pl_op_attention_masked_bwd, v->attr, pl_val_ok(v->gout[1]) ? 8 : 7, in, made);
    for (int i = 0; i < 3; i++) v->gin[i] = made[i];
    if (v->need[3])
        v->gin[3] =
            pl_attention_mask_grad(v->g, v->attr, v->in, v->out[0], v->out[1], d_o, v->gout[1]);
}

/* ---- cost and kernels ------------------------------------------------------------------- */
static pl_cost masked_cost(const pl_call *c)
{
    return pl_attention_cost(c, false);
}

static pl_cost masked_bwd_cost(const pl_call *c)
{
    return pl_attention_cost(c, true);
}

PL_ATTENTION_KERNELS(masked)
PL_ATTENTION_KERNELS(masked_bwd)

/* ---- cases and descriptors -------------------------------------------------------------- */
/* clang-format off */
#define CASES(X)                                                                                          \
    X("[1,1,1,1]",  "[1,1,1,1]",  "[1,1,1]", "bool[1,1,1,1]", "causal=false")                             \
    X("[2,5,3,4]",  "[2,7,3,4]",  "[2,3,5]", "bool[2,1,1,7]", "causal=false")                             \
    X("[1,6,2,5]",  "[1,6,2,5]",  "[1,2,6]", "bool[1,2,6,6]", "causal=true")                              \
    X("[2,4,2,5]",  "[2,6,2,5]",  "[2,2,4]", "f32[1,2,4,6]",  "causal=false")                             \
    X("[1,3,2,16]", "[1,4,2,16]", "[1,2,3]", "f32[1,1,3,4]",  "scale=0.3, causal=false")                  \
    X("[2,3,2,4]",  "[2,3,2,4]",  "[2,2,3]", "f32[2,1,3,1]",  "causal=true")                              \
    X("[2,4,6,4]",  "[2,5,2,4]",  "[2,6,4]", "f32[1,6,4,5]",  "causal=false")
#define CASE(q, k, lse, mask, a) {{"f32" q, "f32" k, "f32" k, mask}, a, {{0}}},
#define BWD_CASE(q, k, lse, mask, a) \
    {{"f32" q, "f32" k, "f32" k, mask, "f32" q, "f32" lse, "f32" q}, a, {{0}, {0}, {0}, {0}, {0}, {1, 2, false}}}, \
    {{"f32" q, "f32" k, "f32" k, mask, "f32" q, "f32" lse, "f32" q, "f32" lse}, a, {{0}, {0}, {0}, {0}, {0}, {1, 2, false}}},
static const pl_case masked_cases[] = {CASES(CASE) PL_CASE_END};
static const pl_case masked_bwd_cases[] = {CASES(BWD_CASE) PL_CASE_END};
/* clang-format on */

/* Bit 3 where the mask has an entry for each batch. */
static uint32_t mask_bit(const pl_call *c)
{
    return c->in_type[3].dim[0] == c->in_type[0].dim[0] ? 1 << 3 : 0;
}

static void masked_labels(const pl_call *c, pl_labels *l)
{
    pl_label_first(l, 7 | mask_bit(c), 3);
}

static void masked_bwd_labels(const pl_call *c, pl_labels *l)
{
    pl_label_first(l, 0xf7 | mask_bit(c), 7);
    l->plus = 64 | 128; /* d_o, d_lse */
}

static bool masked_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                          int n_in, pl_val *out)
{
    return pl_attention_padded(g, &pl_op_attention_masked, p, attr, in, n_in, out);
}

static bool masked_bwd_padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in,
                              int n_in, pl_val *out)
{
    return pl_attention_bwd_padded(g, &pl_op_attention_masked_bwd, 4, p, attr, in, n_in, out);
}

const pl_op pl_op_attention_masked = {
    .name = "attention_masked",
    .min_in = 4,
    .max_in = 4,
    .n_out = 2,
    .width = PL_WIDTH_LOW,
    .full_in = 1 << 3, /* mask */
    .attr_bytes = sizeof(pl_attention_attr),
    .attrs = attrs,
    .infer = masked_infer,
    .vjp = masked_vjp,
    .cost = masked_cost,
    .cpu = masked_kernels,
    .cases = masked_cases,
    .labels = masked_labels,
    .padded = masked_padded,
};
const pl_op pl_op_attention_masked_bwd = {
    .name = "attention_masked_bwd",
    .min_in = 7,
    .max_in = 8,
    .n_out = 3,
    .width = PL_WIDTH_LOW,
    .full_in = 1 << 3 | 1 << 5 | 1 << 7, /* mask, lse, d_lse */
    .attr_bytes = sizeof(pl_attention_attr),
    .attrs = attrs,
    .infer = masked_bwd_infer,
    .vjp = pl_attention_masked_bwd_vjp,
    .cost = masked_bwd_cost,
    .cpu = masked_bwd_kernels,
    .cases = masked_bwd_cases,
    .labels = masked_bwd_labels,
    .padded = masked_bwd_padded,
};

/* ---- construction ----------------------------------------------------------------------- */
pl_val pl_attention_masked(pl_graph *g, pl_val q, pl_val k, pl_val v, pl_val mask, double scale,
                           bool causal)
{
    if (!pl_val_ok(q) || !pl_val_ok(k) || !pl_val_ok(v) || !pl_val_ok(mask)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, mask);
    int64_t dim[4] = {1, 1, 1, 1};
    for (int i = 0; t.rank <= 4 && i < t.rank; i++) dim[4 - t.rank + i] = t.dim[i];
    if (t.rank < 4) mask = pl_reshape(g, mask, 4, dim);
    pl_attention_attr a;
    memset(&a, 0, sizeof a);
    a.scale = scale;
    a.causal = causal;
    return pl_build1(g, &pl_op_attention_masked, &a, 4, (const pl_val[]){q, k, v, mask});
}
