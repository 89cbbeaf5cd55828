/* op.h - the op descriptor: all facts about an op, in one const struct.
 *
 * An op is one file in ops/: attributes, shape rule, gradient, cost, kernels, test cases. Passes
 * and the planner see an op only through this struct; no other code asks which op a node has.
 */
#ifndef PL_IR_OP_H
#define PL_IR_OP_H

#include "base/shared.h"
#include "ir/kernel.h"
#include "ir/scalar.h"
#include "plimsoll.h"

PL_SHARED_BEGIN

#define PL_MAX_OUT 4

/* A short list of integers inside an attribute struct: axes, strides, sizes. */
typedef struct pl_dims {
    int64_t v[PL_MAX_RANK];
    int32_t n;
} pl_dims;

/* ---- attributes: a typed struct and a table that drives print, parse, compare and hash ---- */
typedef enum pl_attr_kind {
    PL_ATTR_INT,   /* int64_t */
    PL_ATTR_FLOAT, /* double */
    PL_ATTR_BOOL,  /* bool */
    PL_ATTR_ENUM,  /* int32_t, index into names */
    PL_ATTR_DTYPE, /* pl_dtype */
    PL_ATTR_DIMS,  /* pl_dims */
    PL_ATTR_TEXT,  /* const char *, in the graph's arena */
    PL_ATTR_SLOT   /* int32_t, index into the graph's store */
} pl_attr_kind;

typedef struct pl_attr {
    const char *name;
    pl_attr_kind kind;
    size_t offset;
    const char *const *names; /* PL_ATTR_ENUM: NULL-terminated */
} pl_attr;
#define PL_ATTR(T, field, KIND)                                                                    \
 {                                                                                                 \
#  field, PL_ATTR_##KIND, offsetof(T, field), NULL                                                 \
 }
#define PL_ATTR_NAMES(T, field, list)                                                              \
 {                                                                                                 \
#  field, PL_ATTR_ENUM, offsetof(T, field), list                                                   \
 }
#define PL_ATTR_END                                                                                \
 {                                                                                                 \
  NULL, PL_ATTR_INT, 0, NULL                                                                       \
 }

/* ---- gradient --------------------------------------------------------------------------- */
/* The argument of a gradient rule. The rule builds nodes (pl_add, pl_conv...) on g and leaves in
 * gin[i] the gradient with the type of in[i], for each i with need[i]; PL_NO_VAL means zero.
 * gout[k] is PL_NO_VAL when no gradient reaches output k. Rules never read numbers. */
typedef struct pl_vjp {
    pl_graph *g;
    const void *attr;
    const pl_val *in, *out, *gout;
    pl_val *gin;
    const bool *need;
    int32_t n_in, n_out;
} pl_vjp;

/* ---- cost: the planner's estimate ------------------------------------------------------ */
/* What bounds the time of an op: the bytes it moves, or its matrix product. */
typedef enum pl_work {
    PL_WORK_MOVE,
    PL_WORK_PRODUCT,
    PL_WORK_CONV, /* m positions, n and k channels times taps */
    PL_WORK_ATTENTION,
    PL_WORK_LINK, /* between ranks: m bytes sent by each, n messages in a row, k ranks */
    PL_WORK_ATTENTION_BACK,
    PL_WORK_TAPS,    /* depthwise windows: m positions, n channels, k taps; the gradient of filters
                        sums over positions, so m and k change places there */
    PL_WORK_CHAIN,   /* m sequential stages: each waits for the previous one */
    PL_WORK_CONV_DX, /* as the product it is: m positions, n channels times taps, k channels out */
    PL_WORK_CONV_DW  /* m channels out, n channels times taps, k positions */
} pl_work;
typedef struct pl_cost {
    double flops;
    double bytes; /* moved to and from memory: at least the operands */
    pl_work work;
    double m, n, k; /* unless MOVE: the product (m,k)(k,n), or one of a batch */
} pl_cost;

/* ---- test cases ------------------------------------------------------------------------- */
/* One instance that the op tests run: input types as text ("f32[2,5,7,3]"; the tests put in place
 * of f32 the dtype under test), attributes as text ("stride=[2,2], groups=1"), and per input the
 * range of values drawn (lo = hi = 0: floats in [-1,1], integers and bool in 0..1). distinct: the
 * values of an input are kept apart by at least 0.05, for ops with kinks at ties (max, sort). */
#define PL_CASE_IN 8
typedef struct pl_case {
    const char *in[PL_CASE_IN];
    const char *attr;
    struct {
        double lo, hi;
        bool distinct;
    } range[PL_CASE_IN];
} pl_case;
#define PL_CASE_END                                                                                \
 {                                                                                                 \
  {NULL}, NULL,                                                                                    \
  {                                                                                                \
   {                                                                                               \
    0, 0, false                                                                                    \
   }                                                                                               \
  }                                                                                                \
 }

/* ---- flags ------------------------------------------------------------------------------ */
enum pl_op_flags {
    PL_OP_EFFECT = 1 << 0,  /* kept although no node reads it: assign, output */
    PL_OP_SOURCE = 1 << 1,  /* has no kernel: the caller gives the value (input, state) */
    PL_OP_VIEW = 1 << 2,    /* output 0 is input 0's bytes when view() says so */
    PL_OP_MAP = 1 << 3,     /* elementwise: scalar names the function */
    PL_OP_AFFINE = 1 << 4,  /* output element = one input element at an affine index: affine() */
    PL_OP_REDUCE = 1 << 5,  /* sum, max, min or moments over axes: reduction() */
    PL_OP_FILL = 1 << 6,    /* constant or iota: no inputs, cheap to make anywhere */
    PL_OP_COUPLES = 1 << 7, /* mixes samples in a way that the batch analysis cannot see */
    PL_OP_RANDOM = 1 << 8,  /* draws numbers; a pure function of its inputs all the same */
    PL_OP_NO_GRAD = 1 << 9, /* gradient is zero by definition (compare, argmax, stop_gradient) */
    PL_OP_DRAW = 1 << 10,   /* element i is draw i of a stream (base/rng.h): drawing() */
    PL_OP_RANKS = 1 << 11,  /* runs on all ranks at once: same calls, same order everywhere */
    PL_OP_PLUS = 1 << 12,   /* a map that adds its two operands */
    PL_OP_TIMES = 1 << 13,  /* a map that multiplies its two operands */
    PL_OP_BIAS = 1 << 14    /* may have one operand more: numbers added along the last dim */
};

/* What mixed precision (pass/precision.c) does with an f32 op. Maps and reductions need no entry:
 * they compute in f32, for every dtype of the operands. */
enum pl_op_width {
    PL_WIDTH_FULL,  /* stays in f32 */
    PL_WIDTH_LOW,   /* 16-bit operands and results, f32 sums: products, convolutions */
    PL_WIDTH_FOLLOW /* moves elements: takes the dtype of its operands */
};

typedef enum pl_reduce_fn {
    PL_REDUCE_SUM,
    PL_REDUCE_MAX,
    PL_REDUCE_MIN,
    PL_REDUCE_MOMENTS /* two outputs: mean, biased variance */
} pl_reduce_fn;

/* PL_OP_AFFINE: element (c0, c1, ...) of the output is input element offset + sum c_i*stride[i],
 * counted in elements of the dense input. */
typedef struct pl_affine {
    int64_t offset;
    int64_t stride[PL_MAX_RANK]; /* one per output dimension */
} pl_affine;

/* PL_OP_REDUCE: over which input dimensions, and how. */
typedef struct pl_reduction {
    pl_reduce_fn fn;
    uint32_t axes; /* bit i: input dimension i is reduced */
} pl_reduction;

/* PL_OP_FILL, ramp(): the value at output coordinates c is base + sum c_i*step[i]. */
typedef struct pl_ramp {
    double base;
    double step[PL_MAX_RANK];
} pl_ramp;

/* PL_OP_DRAW: input 0 is the key, i64[2] = {seed, step}; element i is word i % 4 of block i / 4 of
 * the stream, as a uniform number, or (normal) the word's half of the pair it belongs to. */
typedef struct pl_drawing {
    uint32_t stream;
    bool normal;
} pl_drawing;

/* labels(): which dimensions have the same index, like letters in an einsum. An op with label L on
 * a dimension of its operands does the same for every index of L and mixes none of them; all
 * dimensions with one label have one size. A label that no output has is summed over. `times` and
 * `plus` say in which inputs the result is linear: in each of `times` alone (a product), in all of
 * `plus` together (terms of a sum). JOIN: inputs are concatenated along this dimension. Inputs from
 * PL_LABEL_IN-1 on share a row. */
enum { PL_LABEL_IN = 8, PL_LABEL_MIX = 0, PL_LABEL_JOIN = -1 };
typedef struct pl_labels {
    int8_t in[PL_LABEL_IN][PL_MAX_RANK], out[PL_MAX_OUT][PL_MAX_RANK];
    uint32_t times, plus; /* bit i: input i */
} pl_labels;

/* How a map's result scales when its operands are multiplied by positive factors. Factors f0, f1,
 * ... of the operands multiply the result by f0^(halves[0]/2) * f1^(halves[1]/2) * ...; the
 * operands of `terms` must all have one factor, which counts once. `times` and `plus` as in
 * pl_labels. Examples: sqrt {halves 1}; mul {halves 2,2, times 3}; add {halves 2,2, terms 3, plus
 * 3}; exp: not known, so its operand must be the same number. */
typedef struct pl_scaling {
    bool known;      /* false: unknown unless all factors are 1 */
    bool float_only; /* holds for results of a floating-point type */
    int8_t halves[3];
    uint8_t terms, times, plus; /* bit i: operand i */
} pl_scaling;

/* The epilogue that a library fuses into an op: a value of the result's type is added, then a
 * scalar function is applied. gradient: instead of both, the result is multiplied by fn's slope at
 * another value. keep: the value before fn is an output too. */
typedef struct pl_tail {
    bool add, gradient, keep;
    bool tf32; /* f32 products may use TF32 units */
    int64_t
        /* smaller results are not fused: a kernel search costs more than it saves */
        least_bytes;
    pl_scalar_fn fn; /* NONE: none */
    double imm;
} pl_tail;
enum { PL_TAIL_ATTR = 1024 }; /* room for the attributes of an op with an epilogue */

/* What tensor cores multiply fast, as `padded` asks. */
typedef struct pl_padding {
    bool tf32;   /* f32 products use TF32 units */
    bool always; /* also where padding takes longer than it saves */
} pl_padding;

/* A plain matrix product: output 0, its dims but the last taken as rows, is y[m,n] = a[m,k] b. a is
 * input 0, b input 1: [n,k] if tb, else [k,n]; all are dense. */
typedef struct pl_plain_product {
    int64_t m, n, k;
    bool tb;
    /* taps[0] > 0: row i of a is the window around pixel i of images that input 0 holds, channels
     * innermost: k = taps[0] * taps[1] * channels. A window has as many pixels as `taps`, `apart`
     * pixels from one to the next, and begins `pad` pixels before its own; pixels outside are 0. b
     * is [n, taps, channels] if tb, else [channels, taps backwards, n]. */
    struct {
        int64_t size[2], taps[2], apart[2], pad[2];
    } window;
} pl_plain_product;

typedef struct pl_op pl_op;
struct pl_op {
    const char *name;
    int8_t min_in, max_in; /* max_in < 0: any number */
    int8_t n_out;
    uint8_t scalar;  /* pl_scalar_fn when PL_OP_MAP */
    uint32_t flags;  /* enum pl_op_flags */
    uint8_t width;   /* enum pl_op_width */
    uint8_t full_in; /* bit i: operand i stays in f32 in mixed precision */
    uint8_t
        inplace[PL_MAX_OUT]; /* bit i of [k]: output k may take input i's bytes (group/inplace.h) */
    size_t attr_bytes;
    const pl_attr *attrs; /* ends with PL_ATTR_END; NULL if none */

    /* Shape and dtype rule, the only validation of inputs and attributes. It may complete
     * attributes (defaults, negative axes): attr is the graph's own copy. */
    pl_status (*infer)(const pl_type *in, int n_in, void *attr, pl_type *out);
    void (*vjp)(const pl_vjp *v);      /* NULL: PL_OP_NO_GRAD, or differentiating it is an error */
    pl_cost (*cost)(const pl_call *c); /* NULL: one flop per output element, operand bytes */
    const pl_kernel *cpu; /* fastest first, "ref" last and accepting all; ends PL_KERNEL_END */
    const pl_case *cases; /* ends with PL_CASE_END */

    /* Optional, by flag. */
    bool (*view)(const pl_call *c, int64_t *byte_offset);
    /* Input i is, byte for byte, the part of output 0 from byte_offset on. Kernels of such an op
     * may get inputs that lie exactly there. */
    bool (*join)(const pl_call *c, int i, int64_t *byte_offset);
    bool (*affine)(const pl_call *c, pl_affine *out); /* false: not affine for these attributes */
    void (*reduction)(const pl_call *c, pl_reduction *out);
    void (*ramp)(const pl_call *c, pl_ramp *out);
    void (*drawing)(const void *attr, pl_drawing *out);
    double (*immediate)(const void *attr);            /* PL_OP_MAP with an immediate operand */
    const pl_scaling *scaling;                        /* PL_OP_MAP */
    void (*labels)(const pl_call *c, pl_labels *out); /* out is zero: all mixed, linear in none */
    /* Optional: returns a value that equals output 0 bit for bit, or PL_NO_VAL. May inspect the
     * producers of in (pl_fill_of) and may build nodes. */
    pl_val (*simplify)(pl_graph *g, const void *attr, const pl_val *in, int n_in);
    /* Optional: builds the same outputs, bit for bit, from maps and affine readings that groups
     * can hold. Returns false, and builds nothing, for attributes and types where it cannot. */
    bool (*as_maps)(pl_graph *g, const void *attr, const pl_val *in, int n_in, pl_val *out);
    /* Optional: returns the op that computes this op and the epilogue t in one library kernel, or
     * NULL where no library has such a kernel. Fills attr, the attributes of the returned op. Its
     * operands are this op's own, then the added value (or the value at which the slope is taken);
     * its outputs are the result of the epilogue, then (keep) the value before fn. */
    const pl_op *(*tail)(const pl_call *c, const pl_tail *t, void *attr);
    /* Optional: builds the same outputs from rows that are padded with zeros to whole units of
     * tensor cores, or from such a row of which an operand is a slice (ops/shape/padded.c). Returns
     * false, and builds nothing, where that gains nothing. */
    bool (*padded)(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in, int n_in,
                   pl_val *out);
    /* Optional: whether this call is a plain product, and which. */
    bool (*product)(const pl_call *c, pl_plain_product *out);
};

/* The table of all ops (ops/core/op_table.c). */
int pl_op_count(void);
const pl_op *pl_op_at(int i);
const pl_op *pl_op_find(const char *name); /* NULL if none */

PL_SHARED_END

#endif
