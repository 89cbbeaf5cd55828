/* form.h - a group as an expression over one iteration space: what every backend lowers.
 *
 * Nodes of a group play roles. Core nodes compute: a map of elements, or a reduction. Inline
 * nodes only say how to read (a constant, an affine reading, the same bytes in another shape);
 * they vanish into strides. The space has as many positions as the largest value; a value of
 * that size is computed at its own position. A smaller value is computed wherever it is read,
 * through an affine map (amap.h): values of one element a row after a reduction inside the row,
 * or vectors that are broadcast. A reduction reads the whole space; its result leaves the
 * group, or, when it is over the innermost dims (a row), may be used inside.
 */
#ifndef PL_IR_FORM_H
#define PL_IR_FORM_H

#include "ir/amap.h"
#include "ir/units.h"

PL_SHARED_BEGIN

typedef enum pl_role {
    PL_ROLE_NONE,   /* source or effect */
    PL_ROLE_KERNEL, /* runs alone */
    PL_ROLE_MAP,
    PL_ROLE_REDUCE,
    PL_ROLE_FILL,   /* inline: a constant or a ramp */
    PL_ROLE_DRAW,   /* inline: random numbers of a key that is a source */
    PL_ROLE_AFFINE, /* inline: reads input 0 through strides */
    PL_ROLE_SAME    /* inline: input 0's elements in the same order */
} pl_role;
pl_role pl_role_of(const pl_graph *g, uint32_t node);
static inline bool pl_role_inline(pl_role r)
{
    return r >= PL_ROLE_FILL;
}
/* Inline and made where it is read: readings end there. */
static inline bool pl_role_made(pl_role r)
{
    return r == PL_ROLE_FILL || r == PL_ROLE_DRAW;
}
static inline bool pl_role_core(pl_role r)
{
    return r == PL_ROLE_MAP || r == PL_ROLE_REDUCE;
}

/* How output element c of an AFFINE node reads its input. */
void pl_node_affine(const pl_graph *g, uint32_t node, pl_affine *out);
void pl_node_reduction(const pl_graph *g, uint32_t node, pl_reduction *out);
/* Elements of a row if the reduction is over the innermost dims, else 0. */
int64_t pl_node_row(const pl_graph *g, uint32_t node);

enum { PL_FORM_RANK = 6 };

typedef enum pl_form_code {
    PL_FORM_LOAD,   /* operand */
    PL_FORM_RAMP,   /* imm + sum of coordinate * step */
    PL_FORM_DRAW,   /* draw number imm + sum of coordinate * step; operand is the key */
    PL_FORM_MAP,    /* fn of arg[] (CAST: to dtype) */
    PL_FORM_ROW,    /* reduce of arg[0] over the row; MOMENTS: the mean */
    PL_FORM_ROW_VAR /* variance of the MOMENTS in arg[0] */
} pl_form_code;

typedef struct pl_form_instr {
    pl_form_code code;
    pl_dtype dtype;
    pl_scalar_fn fn;
    pl_reduce_fn reduce;
    int32_t n_arg, arg[3];
    int32_t operand;
    double imm;
    double step[PL_FORM_RANK];
    pl_drawing draw; /* DRAW; dtype says which bits of a word count (cpu/kernels/draw.h) */
} pl_form_instr;

typedef struct pl_form_operand {
    uint32_t in; /* index into the unit's in[] */
    int64_t offset;
    int64_t stride[PL_FORM_RANK]; /* in elements */
    bool bits;                    /* stored as bits (units.h) */
} pl_form_operand;

typedef enum pl_form_kind { PL_FORM_STORE, PL_FORM_ROWS, PL_FORM_REDUCE } pl_form_kind;

typedef struct pl_form_output {
    pl_form_kind kind;
    int32_t src;
    int32_t out, out2; /* indices into the unit's out[]; -1: not wanted. out2: variance */
    pl_dtype dtype;
    pl_reduce_fn reduce;
    uint32_t mask; /* reduced dims */
    int64_t lead;  /* REDUCE: positions of the outermost dim that the node reduces together with
                      others after it; 0 where it reduces none so. A dim can be cut there. */
    bool bits;     /* STORE: as bits (units.h) */
} pl_form_output;

typedef struct pl_form {
    int32_t rank, row_rank;
    int64_t dim[PL_FORM_RANK];
    int32_t n_in, n_instr, n_out;
    pl_form_operand *in;
    pl_form_instr *instr;
    pl_form_output *out;
} pl_form;

/* Arrays live in the arena. ERR_UNSUPPORTED: the nodes are no group (fuse.c makes none such).
 */
pl_status pl_form_make(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_form *out) PL_MUST_USE;

PL_SHARED_END

#endif
