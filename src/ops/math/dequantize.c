/* dequantize.c - y[i] = value[code[i]] * scale[i / 64]: a weight that is stored in fewer bits
 * (base/number/quantized.h) as numbers.
 *
 * The input is the bytes of a quantized slot. The product is one f32 multiplication, rounded to the
 * result's type, so every device gives the same bits. The result is an ordinary value: a plan may
 * drop it after its reader and dequantize again where the backward pass needs it. Nothing trains
 * through the codes, so there is no gradient.
 */
#include "base/dtype.h"
#include "base/number/quantized.h"
#include "base/threads.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

#include <string.h>

static const char *const forms[] = {"none", "fp8", "int8", "nf4", NULL};
static const pl_attr attrs[] = {
    PL_ATTR_NAMES(pl_dequantize_attr, form, forms),
    PL_ATTR(pl_dequantize_attr, dtype, DTYPE),
    PL_ATTR(pl_dequantize_attr, shape, DIMS),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_dequantize_attr *a = attr;
    char x[96];
    PL_FAIL_IF(a->form <= PL_QUANT_NONE || a->form >= PL_N_QUANTS, PL_ERR_ARG,
               "quantized form %d is unknown", (int)a->form);
    PL_FAIL_IF(a->dtype >= PL_N_DTYPES || !pl_dtype_is_float(a->dtype), PL_ERR_ARG,
               "dequantize gives a floating-point type");
    out[0] = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    int64_t n = pl_type_elems(&out[0]);
    PL_FAIL_IF(in[0].dtype != PL_U8 || in[0].rank != 1 ||
                   in[0].dim[0] != pl_quant_bytes((pl_quant)a->form, n),
               PL_ERR_SHAPE, "%lld elements stored as %s take u8[%lld], got %s", (long long)n,
               pl_quant_name((pl_quant)a->form), (long long)pl_quant_bytes((pl_quant)a->form, n),
               pl_type_text(&in[0], x, sizeof x));
    return PL_OK;
}

typedef struct job {
    pl_quant form;
    const uint8_t *codes;
    const float *scales;
    void *out;
    pl_dtype dtype;
    int64_t n;
} job;

static job job_of(const pl_call *c)
{
    const pl_dequantize_attr *a = c->attr;
    int64_t n = pl_type_elems(&c->out_type[0]);
    const uint8_t *codes = c->in[0];
    return (job){.form = (pl_quant)a->form,
                 .codes = codes,
                 .scales = (const void *)(codes + pl_quant_code_bytes((pl_quant)a->form, n)),
                 .out = c->out[0],
                 .dtype = a->dtype,
                 .n = n};
}

/* Elements that a thread takes at once. */
enum { PART = 64 * PL_QUANT_BLOCK };

static void part(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    float some[PL_QUANT_BLOCK];
    const pl_quant_table *t = pl_quantized(j->form);
    int64_t end = (task + 1) * PART < j->n ? (task + 1) * PART : j->n;
    for (int64_t at = task * PART; at < end; at += PL_QUANT_BLOCK) {
        int64_t n = end - at < PL_QUANT_BLOCK ? end - at : PL_QUANT_BLOCK;
        float *to = j->dtype == PL_F32 ? (float *)j->out + at : some;
        pl_dequantize_blocks(j->form, j->codes + at * t->bits / 8, j->scales + at / PL_QUANT_BLOCK,
                             n, to);
        if (j->dtype == PL_BF16)
            for (int64_t i = 0; i < n; i++) ((uint16_t *)j->out)[at + i] = pl_f32_to_bf16(some[i]);
        else if (j->dtype != PL_F32)
            for (int64_t i = 0; i < n; i++) pl_elem_set(j->dtype, j->out, at + i, (double)some[i]);
    }
}

static pl_status blocks(const pl_call *c)
{
    job j = job_of(c);
    pl_threads_for((j.n + PART - 1) / PART, part, &j);
    return PL_OK;
}

static pl_status ref(const pl_call *c)
{
    job j = job_of(c);
    const pl_quant_table *t = pl_quantized(j.form);
    for (int64_t i = 0; i < j.n; i++) {
        unsigned byte = j.codes[i * t->bits / 8];
        unsigned code = t->bits == 8 ? byte : i % 2 ? byte >> 4 : byte & 15;
        pl_elem_set(j.dtype, j.out, i, (double)(t->value[code] * j.scales[i / PL_QUANT_BLOCK]));
    }
    return PL_OK;
}

static const pl_kernel kernels[] = {
    {"blocks", NULL, NULL, NULL, blocks}, {"ref", NULL, NULL, NULL, ref}, PL_KERNEL_END};
/* Bytes from 60 to 63 are scales between 0.008 and 0.75, too. */
#define BYTES                                                                                      \
 {                                                                                                 \
  {                                                                                                \
   60, 63, false                                                                                   \
  }                                                                                                \
 }
static const pl_case cases[] = {
    {{"u8[68]"}, "form=int8, dtype=f32, shape=[7,9]", BYTES},
    {{"u8[136]"}, "form=fp8, dtype=f32, shape=[65]", BYTES},
    {{"u8[36]"}, "form=nf4, dtype=f32, shape=[1,1]", BYTES},
    {{"u8[2340]"}, "form=nf4, dtype=bf16, shape=[65,64]", BYTES},
    {{"u8[204]"}, "form=int8, dtype=f16, shape=[3,43]", BYTES},
    {{"u8[72]"}, "form=nf4, dtype=f32, shape=[101]", BYTES},
    PL_CASE_END,
};

const pl_op pl_op_dequantize = {
    .name = "dequantize",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = PL_OP_NO_GRAD,
    .attr_bytes = sizeof(pl_dequantize_attr),
    .attrs = attrs,
    .infer = infer,
    .cpu = kernels,
    .cases = cases,
};

pl_val pl_dequantize(pl_graph *g, pl_val x, pl_quant form, const pl_type *type)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_dequantize_attr a;
    memset(&a, 0, sizeof a);
    a.form = (int32_t)form;
    a.dtype = type->dtype;
    a.shape.n = type->rank;
    memcpy(a.shape.v, type->dim, sizeof a.shape.v);
    return pl_build1(g, &pl_op_dequantize, &a, 1, &x);
}

pl_val pl_dequantize_as(pl_graph *g, pl_val x, pl_dtype to)
{
    uint32_t node = pl_val_ok(x) ? pl_producer(g, x.id) : 0;
    if (!node || pl_node_get(g, node)->op != &pl_op_dequantize) return PL_NO_VAL;
    pl_dequantize_attr a = *(const pl_dequantize_attr *)pl_node_get(g, node)->attr;
    bool narrows = a.dtype == PL_F32 && (to == PL_BF16 || to == PL_F16);
    pl_val codes = {pl_node_in(g, node)[0]};
    a.dtype = to;
    return narrows ? pl_build1(g, &pl_op_dequantize, &a, 1, &codes) : PL_NO_VAL;
}
