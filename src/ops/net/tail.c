/* tail.c - products and convolutions with a tail: an addition, then an elementwise function.
 *
 *   matmul_tail       (a, b, bias?, c?)  -> y         z = op(a) op(b) + bias + c,  y = act(z)
 *   matmul_tail_keep  (a, b, bias?)      -> y, z      for a backward pass that needs z
 *   matmul_slope      (a, b, z)          -> y         y = op(a) op(b) * act'(z)
 *   conv_tail         (x, w, bias?, c?)  -> y         as matmul_tail
 *   conv_dx_tail      (dy, w, c)         -> dx        dx + c
 *
 * Networks do not name these ops: pass/join_tails.c puts them in place of a product and its
 * readers, after differentiation, for devices whose libraries have them as one kernel. So they
 * have no gradient. Sums and functions are computed wide; y is rounded once, and z separately: a
 * tail never rounds more often than the nodes it replaces.
 *
 * pl_op.tail says which tails are offered, from the graph alone. It names what cuBLASLt and cuDNN
 * have and no more:
 *   products      an addition; RELU; GELU in its tanh form, with and without z, and its slope, in
 *                 16-bit types or TF32: the library's tanh is too inexact for f32
 *   convolutions  an addition and any of the functions, 16-bit types or TF32, channels in multiples
 *                 of 8, which cuDNN's tensor-core engines need; large results only, because cuDNN
 *                 takes long to prepare such a kernel
 * SiLU and GELU with erf after a product stay in groups: cuBLASLt has no such epilogue.
 */
#include "ops/net/tail.h"
#include "ops/math/scalar_fn.h"

#include "base/err.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"

#include <math.h>
#include <string.h>

static const char *const act_names[] = {"none",      "relu",    "leaky_relu", "silu", "gelu",
                                        "gelu_tanh", "sigmoid", "tanh",       NULL};
static const pl_scalar_fn act_fn[PL_N_ACTS] = {
    PL_SCALAR_NONE, PL_SCALAR_RELU,      PL_SCALAR_LEAKY_RELU, PL_SCALAR_SILU,
    PL_SCALAR_GELU, PL_SCALAR_GELU_TANH, PL_SCALAR_SIGMOID,    PL_SCALAR_TANH};

#define TAIL(T)                                                                                    \
 {"act", PL_ATTR_ENUM, offsetof(T, tail.act), act_names},                                          \
     {"add", PL_ATTR_BOOL, offsetof(T, tail.add), NULL},                                           \
 {                                                                                                 \
  "slope", PL_ATTR_FLOAT, offsetof(T, tail.slope), NULL                                            \
 }
#define HEAD(T, field, KIND)                                                                       \
 {                                                                                                 \
#  field, PL_ATTR_##KIND, offsetof(T, head.field), NULL                                            \
 }
static const pl_attr matmul_attrs[] = {HEAD(pl_matmul_tail_attr, ta, BOOL),
                                       HEAD(pl_matmul_tail_attr, tb, BOOL),
                                       TAIL(pl_matmul_tail_attr), PL_ATTR_END};
#define WINDOW                                                                                     \
 HEAD(pl_conv_tail_attr, stride, DIMS), HEAD(pl_conv_tail_attr, dilation, DIMS),                   \
     HEAD(pl_conv_tail_attr, pad_lo, DIMS), HEAD(pl_conv_tail_attr, pad_hi, DIMS),                 \
     HEAD(pl_conv_tail_attr, groups, INT)
static const pl_attr conv_attrs[] = {WINDOW, TAIL(pl_conv_tail_attr), PL_ATTR_END};
static const pl_attr dx_attrs[] = {WINDOW, HEAD(pl_conv_tail_attr, in, DIMS),
                                   TAIL(pl_conv_tail_attr), PL_ATTR_END};

/* ---- shapes ----------------------------------------------------------------------------- */
/* The added operand, or the operand at which the slope is taken, is the last one and has the
 * result's type. */
static pl_status check_last(const pl_type *in, int n_in, const pl_type *out)
{
    char a[96], b[96];
    PL_FAIL_IF(!pl_type_equal(&in[n_in - 1], out), PL_ERR_SHAPE,
               "the last operand is %s; it must have the result's type, %s",
               pl_type_text(&in[n_in - 1], a, sizeof a), pl_type_text(out, b, sizeof b));
    return PL_OK;
}

/* Checks the count: `with` operands, an optional bias, and the added operand. */
static pl_status check_count(const pl_tail_attr *t, int n_in, int with)
{
    int own = n_in - t->add;
    PL_FAIL_IF(own < 2 || own > with, PL_ERR_SHAPE, "the number of operands is wrong: %d%s", n_in,
               t->add ? ", the last of which is added" : "");
    PL_FAIL_IF(t->act < 0 || t->act >= PL_N_ACTS, PL_ERR_SHAPE, "activation %d is unknown", t->act);
    return PL_OK;
}

static pl_status matmul_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_tail_attr *t = &((pl_matmul_tail_attr *)attr)->tail;
    PL_TRY(check_count(t, n_in, 3));
    PL_TRY(pl_matmul_infer(in, n_in - t->add, attr, out));
    return t->add ? check_last(in, n_in, out) : PL_OK;
}

static pl_status keep_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    PL_FAIL_IF(((pl_matmul_tail_attr *)attr)->tail.add, PL_ERR_SHAPE,
               "this form takes no added operand");
    PL_TRY(matmul_infer(in, n_in, attr, out));
    out[1] = out[0];
    return PL_OK;
}

static pl_status slope_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    int32_t act = ((pl_matmul_tail_attr *)attr)->tail.act;
    PL_FAIL_IF(act != PL_ACT_RELU && act != PL_ACT_GELU_TANH, PL_ERR_SHAPE,
               "activation %d has no slope kernel; only relu and gelu_tanh have one", act);
    PL_TRY(pl_matmul_infer(in, n_in - 1, attr, out));
    return check_last(in, n_in, out);
}

static pl_status conv_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_tail_attr *t = &((pl_conv_tail_attr *)attr)->tail;
    PL_TRY(check_count(t, n_in, 3));
    PL_TRY(pl_conv_infer(in, n_in - t->add, attr, out));
    return t->add ? check_last(in, n_in, out) : PL_OK;
}

static pl_status dx_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_tail_attr *t = &((pl_conv_tail_attr *)attr)->tail;
    PL_TRY(check_count(t, n_in, 2));
    PL_TRY(pl_conv_dx_infer(in, n_in - t->add, attr, out));
    return t->add ? check_last(in, n_in, out) : PL_OK;
}

/* ---- reference -------------------------------------------------------------------------- */
void pl_put_plain(const pl_call *c, int64_t at, double sum)
{
    ref_set(c->out_type[0].dtype, c->out[0], at, sum);
}

static void put(const pl_call *c, const pl_tail_attr *t, int64_t at, double sum)
{
    pl_dtype dt = c->out_type[0].dtype;
    if (t->add) sum += ref_get(dt, c->in[c->n_in - 1], at);
    if (c->n_out == 2) ref_set(dt, c->out[1], at, sum);
    if (t->act) sum = pl_scalar_apply(act_fn[t->act], sum, 0, 0, t->slope);
    ref_set(dt, c->out[0], at, sum);
}

static void put_matmul(const pl_call *c, int64_t at, double sum)
{
    put(c, &((const pl_matmul_tail_attr *)c->attr)->tail, at, sum);
}

static void put_conv(const pl_call *c, int64_t at, double sum)
{
    put(c, &((const pl_conv_tail_attr *)c->attr)->tail, at, sum);
}

static double gelu_tanh_slope(double x)
{
    const double k = 0.7978845608028654, a = 0.044715;
    double t = tanh(k * (x + a * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * a * x * x);
}

static void put_slope(const pl_call *c, int64_t at, double sum)
{
    pl_dtype dt = c->out_type[0].dtype;
    double z = ref_get(dt, c->in[c->n_in - 1], at);
    int32_t act = ((const pl_matmul_tail_attr *)c->attr)->tail.act;
    ref_set(dt, c->out[0], at, act == PL_ACT_RELU ? (z > 0 ? sum : 0) : sum * gelu_tanh_slope(z));
}

static int own_operands(const pl_call *c, bool add)
{
    return c->n_in - add;
}

static pl_status matmul_ref(const pl_call *c)
{
    bool add = ((const pl_matmul_tail_attr *)c->attr)->tail.add;
    return pl_matmul_ref(c, own_operands(c, add) == 3, put_matmul);
}

static pl_status slope_ref(const pl_call *c)
{
    return pl_matmul_ref(c, false, put_slope);
}

static pl_status conv_ref(const pl_call *c)
{
    bool add = ((const pl_conv_tail_attr *)c->attr)->tail.add;
    return pl_conv_ref(c, own_operands(c, add) == 3, put_conv);
}

static pl_status dx_ref(const pl_call *c)
{
    return pl_conv_dx_ref(c, put_conv);
}

#define REFERENCE(name)                                                                            \
 static const pl_kernel name##_kernels[] = {{"ref", NULL, NULL, NULL, name##_ref}, PL_KERNEL_END};
REFERENCE(matmul)
REFERENCE(slope)
REFERENCE(conv)
REFERENCE(dx)

/* ---- which tails are offered ------------------------------------------------------------ */
static pl_act act_of(pl_scalar_fn fn)
{
    for (int i = 0; i < PL_N_ACTS; i++)
        if (act_fn[i] == fn) return (pl_act)i;
    return PL_N_ACTS;
}

/* Whether tensor cores compute the type: 16 bits, or f32 as TF32. */
static bool has_units(pl_dtype d, bool tf32)
{
    return d == PL_F16 || d == PL_BF16 || (d == PL_F32 && tf32);
}

/* The library needs rows of z at multiples of 16 bytes. */
static bool whole_rows(const pl_type *y)
{
    return y->dim[y->rank - 1] % 8 == 0;
}

const pl_op *pl_matmul_with_tail(const pl_call *c, const pl_tail *t, void *attr)
{
    const pl_type *y = &c->out_type[0];
    pl_act act = act_of(t->fn);
    if (y->dtype == PL_F64) return NULL;
    if (act != PL_ACT_NONE && act != PL_ACT_RELU && act != PL_ACT_GELU_TANH) return NULL;
    if (act == PL_ACT_GELU_TANH && !has_units(y->dtype, t->tf32)) return NULL;
    if ((t->keep || t->gradient) && (act != PL_ACT_GELU_TANH || t->add || !whole_rows(y)))
        return NULL;
    if (t->gradient && c->n_in != 2) return NULL;
    if (!t->add && act == PL_ACT_NONE) return NULL;
    pl_matmul_tail_attr *a = memset(attr, 0, sizeof *a);
    a->head = *(const pl_matmul_attr *)c->attr;
    a->tail = (pl_tail_attr){.act = act, .add = t->add};
    return t->gradient ? &pl_op_matmul_slope
           : t->keep   ? &pl_op_matmul_tail_keep
                       : &pl_op_matmul_tail;
}

/* Whether tensor-core engines accept the channels; convolutions with few channels or one channel
 * per group use our own kernels, without tails. */
static bool core_channels(const pl_call *c)
{
    const pl_window_attr *a = c->attr;
    int last = c->out_type[0].rank - 1;
    return a->groups == 1 && c->in_type[0].dim[last] % 8 == 0 && c->out_type[0].dim[last] % 8 == 0;
}

static const pl_op *conv_tail(const pl_call *c, const pl_tail *t, void *attr, const pl_op *op)
{
    pl_act act = act_of(t->fn);
    if (!has_units(c->out_type[0].dtype, t->tf32) || !core_channels(c)) return NULL;
    if ((int64_t)pl_type_bytes(&c->out_type[0]) < t->least_bytes) return NULL;
    if (act == PL_N_ACTS || t->keep || t->gradient || (!t->add && act == PL_ACT_NONE)) return NULL;
    pl_conv_tail_attr *a = memset(attr, 0, sizeof *a);
    a->head = *(const pl_window_attr *)c->attr;
    a->tail =
        (pl_tail_attr){.act = act, .add = t->add, .slope = act == PL_ACT_LEAKY_RELU ? t->imm : 0};
    return op;
}

const pl_op *pl_conv_with_tail(const pl_call *c, const pl_tail *t, void *attr)
{
    return conv_tail(c, t, attr, &pl_op_conv_tail);
}

/* The tail of a data gradient adds the gradient of another path. */
const pl_op *pl_conv_dx_with_tail(const pl_call *c, const pl_tail *t, void *attr)
{
    return t->fn == PL_SCALAR_NONE ? conv_tail(c, t, attr, &pl_op_conv_dx_tail) : NULL;
}

/* ---- cases ------------------------------------------------------------------------------ */
/* clang-format off */
static const pl_case matmul_cases[] = {
    {{"f32[3,4]", "f32[4,5]", "f32[3,5]"}, "ta=false, tb=false, add=true", {{0}}},
    {{"f32[16,24]", "f32[32,24]", "f32[32]"}, "ta=false, tb=true, act=gelu_tanh", {{-3, 3, false}}},
    {{"f32[16,24]", "f32[24,32]"}, "ta=false, tb=false, act=gelu_tanh", {{0}}},
    {{"f32[24,16]", "f32[32,24]", "f32[32]"}, "ta=true, tb=true, act=relu", {{0}}},
    {{"f32[16,24]", "f32[32,24]", "f32[32]", "f32[16,32]"}, "ta=false, tb=true, add=true", {{0}}},
    {{"f32[40,64]", "f32[72,64]", "f32[72]", "f32[40,72]"}, "ta=false, tb=true, act=relu, add=true", {{0}}},
    {{"f32[40,64]", "f32[72,64]", "f32[72]", "f32[40,72]"}, "ta=false, tb=true, act=gelu_tanh, add=true", {{0}}},
    {{"f32[2,16,8]", "f32[2,8,24]", "f32[2,16,24]"}, "ta=false, tb=false, add=true", {{0}}},
    {{"f32[17,9]", "f32[9,7]", "f32[7]"}, "ta=false, tb=false, act=gelu_tanh", {{0}}},
    PL_CASE_END};
static const pl_case keep_cases[] = {
    {{"f32[16,24]", "f32[32,24]", "f32[32]"}, "ta=false, tb=true, act=gelu_tanh", {{-3, 3, false}}},
    {{"f32[16,24]", "f32[24,32]"}, "ta=false, tb=false, act=gelu_tanh", {{0}}},
    {{"f32[130,64]", "f32[264,64]", "f32[264]"}, "ta=false, tb=true, act=gelu_tanh", {{0}}},
    {{"f32[5,3]", "f32[3,7]", "f32[7]"}, "ta=false, tb=false, act=relu", {{0}}},
    PL_CASE_END};
static const pl_case slope_cases[] = {
    {{"f32[16,24]", "f32[24,32]", "f32[16,32]"}, "ta=false, tb=false, act=gelu_tanh", {{0}, {0}, {-3, 3, false}}},
    {{"f32[130,64]", "f32[64,264]", "f32[130,264]"}, "ta=false, tb=false, act=gelu_tanh", {{0}, {0}, {-3, 3, false}}},
    {{"f32[16,24]", "f32[32,24]", "f32[16,32]"}, "ta=false, tb=true, act=relu", {{0}, {0}, {-1, 1, true}}},
    {{"f32[5,3]", "f32[3,7]", "f32[5,7]"}, "ta=false, tb=false, act=gelu_tanh", {{0}}},
    PL_CASE_END};
#define PAD1 "pad_lo=[1,1], pad_hi=[1,1], groups=1"
static const pl_case conv_cases[] = {
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]"}, PAD1 ", act=relu", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]"}, PAD1 ", act=leaky_relu, slope=0.2", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]"}, PAD1 ", act=silu", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]"}, PAD1 ", act=gelu", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]"}, PAD1 ", act=gelu_tanh", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]"}, PAD1 ", act=sigmoid", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]"}, PAD1 ", act=tanh", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]", "f32[2,6,5,24]"}, PAD1 ", add=true", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[2,6,5,24]"}, PAD1 ", add=true", {{0}}},
    {{"f32[2,6,5,16]", "f32[24,3,3,16]", "f32[24]", "f32[2,6,5,24]"}, PAD1 ", act=relu, add=true", {{0}}},
    {{"f32[2,8,8,32]", "f32[16,1,1,32]", "f32[16]", "f32[2,4,4,16]"}, "stride=[2,2], groups=1, act=silu, add=true", {{0}}},
    {{"f32[1,3,4,4,8]", "f32[8,3,3,3,8]", "f32[8]", "f32[1,3,4,4,8]"},
     "pad_lo=[1,1,1], pad_hi=[1,1,1], groups=1, add=true", {{0}}},
    {{"f32[1,5,6,3]", "f32[4,3,3,3]", "f32[4]"}, PAD1 ", act=relu", {{0}}},
    PL_CASE_END};
static const pl_case dx_cases[] = {
    {{"f32[2,6,5,24]", "f32[24,3,3,16]", "f32[2,6,5,16]"}, "in=[6,5], " PAD1 ", add=true", {{0}}},
    {{"f32[2,4,4,16]", "f32[16,1,1,32]", "f32[2,8,8,32]"}, "in=[8,8], stride=[2,2], groups=1, add=true", {{0}}},
    {{"f32[1,5,6,4]", "f32[4,3,3,3]", "f32[1,5,6,3]"}, "in=[5,6], " PAD1 ", add=true", {{0}}},
    PL_CASE_END};
/* clang-format on */

/* ---- the ops ---------------------------------------------------------------------------- */
const pl_op pl_op_matmul_tail = {
    .name = "matmul_tail",
    .min_in = 2,
    .max_in = 4,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_matmul_tail_attr),
    .attrs = matmul_attrs,
    .infer = matmul_infer,
    .cost = pl_matmul_cost,
    .cpu = matmul_kernels,
    .cases = matmul_cases,
};
const pl_op pl_op_matmul_tail_keep = {
    .name = "matmul_tail_keep",
    .min_in = 2,
    .max_in = 3,
    .n_out = 2,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_matmul_tail_attr),
    .attrs = matmul_attrs,
    .infer = keep_infer,
    .cost = pl_matmul_cost,
    .cpu = matmul_kernels,
    .cases = keep_cases,
};
const pl_op pl_op_matmul_slope = {
    .name = "matmul_slope",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_matmul_tail_attr),
    .attrs = matmul_attrs,
    .infer = slope_infer,
    .cost = pl_matmul_cost,
    .cpu = slope_kernels,
    .cases = slope_cases,
};
const pl_op pl_op_conv_tail = {
    .name = "conv_tail",
    .min_in = 2,
    .max_in = 4,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_conv_tail_attr),
    .attrs = conv_attrs,
    .infer = conv_infer,
    .cost = pl_conv_cost,
    .cpu = conv_kernels,
    .cases = conv_cases,
};
const pl_op pl_op_conv_dx_tail = {
    .name = "conv_dx_tail",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .width = PL_WIDTH_LOW,
    .attr_bytes = sizeof(pl_conv_tail_attr),
    .attrs = dx_attrs,
    .infer = dx_infer,
    .cost = pl_conv_dx_cost,
    .cpu = dx_kernels,
    .cases = dx_cases,
};
