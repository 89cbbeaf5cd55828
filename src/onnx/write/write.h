/* write.h - shared by the files of onnx/write/: a graph of the engine on its way to an ONNX file.
 *
 * Nodes of the graph are written one after the other, each by its row of writers.def. A value of
 * the graph has a form for each order of dimensions in which the ONNX graph has it: dimension i of
 * the tensor `name` is dimension perm[i] of the value. Convolutions are channels-last in the engine
 * and channels-first in ONNX: a writer requests the order that its ONNX op needs (pl_ow_in), and
 * returns the order in which the result comes. Elementwise ops and reductions work in the order at
 * hand, so Transpose nodes remain only where an op needs another order.
 *
 * Errors are sticky: the first one is kept in status, later calls return "" and write nothing.
 */
#ifndef PL_ONNX_WRITE_H
#define PL_ONNX_WRITE_H

#include "base/arena.h"
#include "base/str.h"
#include "ir/graph.h"
#include "onnx/write/write_graph.h"

typedef struct pl_ow_form {
    const char *name;
    int perm[PL_MAX_RANK];
    struct pl_ow_form *next;
} pl_ow_form;

/* A tensor of the file whose elements the source gives: the value of a slot. */
typedef struct pl_ow_tensor {
    const char *name;
    int slot;
    pl_type type;
    struct pl_ow_tensor *next;
} pl_ow_tensor;

typedef struct pl_ow {
    const pl_graph *g;
    const pl_ow_source *source;
    pl_arena mem;
    /* fields of the GraphProto, encoded */
    pl_str nodes, constants, inputs, outputs;
    pl_ow_tensor *tensors, **last_tensor;
    pl_ow_form **form; /* by value; NULL: not written (yet); the first is the order at hand */
    bool *used;        /* by value: a node that is written reads it */
    uint32_t node;     /* that is being written */
    int serial;
    pl_status status;
    pl_ow_info info;
} pl_ow;

/* ---- nodes ---------------------------------------------------------------------------- */
typedef enum pl_ow_kind { PL_OW_INT, PL_OW_FLOAT, PL_OW_INTS, PL_OW_TEXT } pl_ow_kind;
typedef struct pl_ow_attr {
    const char *name;
    pl_ow_kind kind;
    int64_t i;
    double f;
    const int64_t *ints; /* i of them */
    const char *text;
} pl_ow_attr;
/* clang-format off */
#define OW_I(key, v)       {.name = (key), .kind = PL_OW_INT, .i = (v)}
#define OW_F(key, v)       {.name = (key), .kind = PL_OW_FLOAT, .f = (v)}
#define OW_INTS(key, n, p) {.name = (key), .kind = PL_OW_INTS, .i = (n), .ints = (p)}
#define OW_TEXT(key, s)    {.name = (key), .kind = PL_OW_TEXT, .text = (s)}
#define OW_ATTRS(...)      (const pl_ow_attr[]){__VA_ARGS__, {.name = NULL}}
#define OW_IN(...)         (const char *const[]){__VA_ARGS__, NULL}
/* clang-format on */

/* Keeps the first error, with the label of the node. */
void pl_ow_fail(pl_ow *w, const char *fmt, ...) PL_PRINTF(2, 3);
/* Adds a node and returns the name of its first output. in ends with NULL; "": an absent operand.
 * attrs ends with a row without a name; NULL: none. */
const char *pl_ow_op(pl_ow *w, const char *op, const char *const *in, const pl_ow_attr *attrs);
/* The same for two outputs. */
void pl_ow_op2(pl_ow *w, const char *op, const char *const *in, const pl_ow_attr *attrs,
               const char *out[2]);
/* A node of one or two operands. */
const char *pl_ow_1(pl_ow *w, const char *op, const char *a);
const char *pl_ow_2(pl_ow *w, const char *op, const char *a, const char *b);

/* ---- constants ------------------------------------------------------------------------ */
const char *pl_ow_ints(pl_ow *w, int64_t n, const int64_t *v); /* i64 [n] */
const char *pl_ow_int(pl_ow *w, int64_t v);                    /* i64 [1] */
const char *pl_ow_number(pl_ow *w, pl_dtype dtype, double v);  /* rank 0 */
const char *pl_ow_numbers(pl_ow *w, pl_type type, const double *v);

/* ---- values --------------------------------------------------------------------------- */
int pl_ow_dtype(pl_dtype d); /* TensorProto.DataType */
/* The value in this order; perm NULL: in the engine's. */
const char *pl_ow_in(pl_ow *w, uint32_t val, const int *perm);
/* The order at hand of a value; NULL: it has none yet, or the engine's. */
const int *pl_ow_order(const pl_ow *w, uint32_t val);
/* Operand `val` of an elementwise op whose result has `rank` dimensions in this order: a tensor
 * that ONNX broadcasts to it. *whole: it has the shape of the value itself. */
const char *pl_ow_operand(pl_ow *w, uint32_t val, const int *perm, bool *whole);
void pl_ow_set(pl_ow *w, uint32_t val, const char *name, const int *perm);
/* Input k and output k of the node that is being written, as values. */
uint32_t pl_ow_arg(const pl_ow *w, int k);
uint32_t pl_ow_result(const pl_ow *w, int k);
const void *pl_ow_attr_of(const pl_ow *w);
/* Fills perm with channels-first, as order of a channels-last value. */
void pl_ow_first(int rank, int *perm);
/* Reshapes a tensor. */
const char *pl_ow_reshape(pl_ow *w, const char *x, int rank, const int64_t *dim);
const char *pl_ow_transpose(pl_ow *w, const char *x, int rank, const int *perm);
/* Elements [lo, hi) by step along one axis. */
const char *pl_ow_slice(pl_ow *w, const char *x, int axis, int64_t lo, int64_t hi, int64_t step);
/* An input of the ONNX graph. */
void pl_ow_declare(pl_str *to, int field, const char *name, const pl_type *t);

#define PL_WRITE(op)                void pl_ow_write_##op(pl_ow *w);
#define PL_WRITE_MAP_BY(NAME, name) const char *pl_ow_map_##name(pl_ow *w, const char *const *in);
#include "onnx/write/writers.def"
void pl_ow_write_same(pl_ow *w);
void pl_ow_write_draw(pl_ow *w);
void pl_ow_write_exchange(pl_ow *w);

#endif
