/* codegen_int.h - shared by the files of the code generator.
 *
 * A group is split into passes (plan/cost/group_passes.h); each pass walks the space once and is
 * one kernel, or two when partial results are folded afterwards. A pass has one of three shapes, by
 * how its dims fall into sets:
 *
 *   flat    [outer][inner]          a thread takes chunks of V elements of inner
 *   sheet   [outer][along][inner]   a thread takes a chunk of inner and walks down along
 *   row     [outer][inner]          a few threads share a row, all of inner, and may use its sums
 *
 * An instruction is computed as rarely as possible: once per thread, once for each change of the
 * outer dims of `along`, or at every step; and once per chunk or for each of its V elements.
 */
#ifndef PL_CUDA_CODEGEN_INT_H
#define PL_CUDA_CODEGEN_INT_H

#include "base/str.h"
#include "cuda/codegen/codegen.h"
#include "ir/group/fused.h"
#include "plan/cost/group_passes.h"

/* codegen_lay.c: sets dims, sets and launch of a pass whose operands, instructions and sinks are
 * known. */
pl_status pl_cg_lay(pl_cg_pass *p, const pl_fused *f, pl_arena *a) PL_MUST_USE;

/* ---- the writer -------------------------------------------------------------------------- */
typedef struct pl_cg_div {
    uint32_t d, m, s;
} pl_cg_div;

/* Pairs of rows of which at most one contributes to any sum (codegen_pair.c). */
typedef struct pl_cg_pair {
    bool on;
    int dim, eq, select; /* the dim of two rows; the instructions of select(index == place, ...) */
    int step;            /* distance between the two places */
    const bool *varies;  /* per instruction: differs inside a pair */
} pl_cg_pair;

enum { PL_CG_SLOTS = 1024 };
typedef struct pl_cg {
    const pl_cg_pass *p;
    pl_arena *a;
    pl_cg_pair pair; /* the pair steps being written */
    pl_str body;
    char (*ref)[40]; /* per instruction: its name at this point of the text */
    char (*raw)[40]; /* of LOADs that are loaded as bytes (pl_cg_bytes): the loaded chunk */
    const int *dep;  /* pl_cg_deps, where raw is used */
    /* elements are written two at a time: v<i>[h_] are elements i_ and i_ + 1 (pl_cg_both) */
    bool two;
    /* arguments by kind */
    int32_t n_p;
    struct pl_cg_counts {
        int32_t l, d, f, s, m;
    } n;
    pl_code_patch ptr[PL_CG_SLOTS];
    int64_t l[PL_CG_SLOTS], s[PL_CG_SLOTS];
    double d[PL_CG_SLOTS];
    float f[PL_CG_SLOTS];
    pl_cg_div m[PL_CG_SLOTS];
    bool full;               /* a table overflowed */
    int32_t div[PL_CG_RANK]; /* per dim: its divider */
    /* codegen_product.c: the operand that is a tile in shared memory (-1: none), and the chunk of
     * it that is stored as the product's result ("": it is not stored) */
    int32_t tile;
    char keep[16];
    /* per operand, per ramp */
    int32_t *ptr_of;
} pl_cg;

/* codegen_write.c: add an argument and return its index. */
int pl_cg_size(pl_cg *w, int64_t v);    /* a.s[], of the index type */
int pl_cg_divider(pl_cg *w, int64_t d); /* a.m[] */
int pl_cg_float(pl_cg *w, float v);     /* a.f[] */
int pl_cg_double(pl_cg *w, double v);   /* a.d[] */
int pl_cg_long(pl_cg *w, int64_t v);    /* a.l[] */
/* a.p[]; equal pointers share one index */
int pl_cg_pointer(pl_cg *w, pl_code_space space, uint32_t index, int64_t plus, uint32_t align);
/* Text that is written twice uses the same arguments: restore the counts of the first time. */
typedef struct pl_cg_counts pl_cg_counts;
void pl_cg_put(pl_cg *w, const char *fmt, ...) PL_PRINTF(2, 3);
/* Writes the kernel's head, up to its first bracket, and how the kernel overlaps with the kernels
 * before and after it. resident: minimum of blocks per multiprocessor; 0: the compiler decides. */
void pl_cg_head(pl_cg *w, int threads, int resident);
/* Builds the finished kernel: prelude, argument struct, body. */
pl_status pl_cg_finish(pl_cg *w, uint32_t grid, uint32_t block_x, uint32_t block_y,
                       pl_code_kernel *out) PL_MUST_USE;
pl_cg *pl_cg_new(const pl_cg_pass *p, pl_arena *a);

/* codegen_expr.c: values */
const char *pl_cg_reg(pl_dtype d);                  /* C type of a value in a register */
const char *pl_cg_mem(pl_dtype d);                  /* C type of an element in memory */
const char *pl_cg_acc(pl_dtype d, pl_reduce_fn fn); /* C type of the accumulator */
const char *pl_cg_fold(pl_reduce_fn fn);            /* name of the combining functor */
void pl_cg_cast(pl_cg *w, pl_dtype to, pl_dtype from, const char *value);
/* Write expressions: a raw element as a value; a value of dtype `from` as an element; an
 * accumulator over values of dtype src as an element. */
void pl_cg_from(pl_cg *w, pl_dtype d, const char *raw);
void pl_cg_to(pl_cg *w, pl_dtype mem, pl_dtype from, const char *value);
void pl_cg_result(pl_cg *w, pl_dtype mem, pl_dtype src, const char *value);
/* Write `v<i> = `, a declaration, and what precedes a statement about element j. Set ref[i]. */
void pl_cg_value(pl_cg *w, int i);
const char *pl_cg_both(const pl_cg *w);
/* Whether instruction i rounds to 16 bits. */
bool pl_cg_narrows(const pl_cg_pass *p, int i);
/* Declares v<i> and sets ref[i]; requires the coordinates that a ramp needs in scope. */
void pl_cg_map(pl_cg *w, int i);
void pl_cg_ramp(pl_cg *w, int i);
/* Writes an expression: instruction i, which is in scope, as an element in memory. */
void pl_cg_element(pl_cg *w, pl_dtype mem, int i);
bool pl_cg_constant(const pl_fused_instr *x);

/* codegen_access.c: where operands are read. Names in the text:
 *   o_ linear index in the outer set, o0.. its coordinates
 *   r_ in the along set, s0.. its coordinates; l_ counted from the segment's start
 *   e_ in the inner set, at the chunk's start, i0.. its coordinates; x0.. those of element e_+j
 *   P<k> operand k's first element, V elements of a chunk */
typedef enum pl_cg_access {
    PL_CG_UNIFORM, /* one element per chunk */
    PL_CG_VECTOR,  /* V aligned neighbours */
    PL_CG_STRIDED, /* element j is j strides away */
    PL_CG_RAGGED   /* the chunk crosses dims: each element by its own coordinates */
} pl_cg_access;
enum {
    PL_CG_DEP_O = 1, /* varies with the outer set */
    PL_CG_DEP_S = 2, /* with the dims of the along set that only segments change */
    PL_CG_DEP_L = 4, /* with the other dims of the along set */
    PL_CG_DEP_I = 8, /* with the inner set */
    PL_CG_DEP_J = 16 /* inside a chunk */
};
static inline int pl_cg_rank(const pl_cg_pass *p, pl_cg_set set)
{
    return p->first[set + 1] - p->first[set];
}
pl_cg_access pl_cg_access_of(const pl_cg_pass *p, const pl_cg_operand *o, int vec);
/* Whether the chunk of a LOAD is loaded as p_bytes. */
static inline bool pl_cg_bytes(const pl_cg_pass *p, const pl_cg_operand *o)
{
    return (o->dtype == PL_U8 || o->dtype == PL_BOOL) &&
           pl_cg_access_of(p, o, p->vec) == PL_CG_VECTOR;
}
/* Computes what each used instruction depends on; dep has n_instr entries. */
void pl_cg_deps(const pl_cg_pass *p, int vec, int *dep);
void pl_cg_coord_name(const pl_cg_pass *p, int d, char *buf, size_t cap);
/* Adds dividers for the dims of all sets; call it before any coordinates. */
void pl_cg_dividers(pl_cg *w);
/* Declares the coordinates of dims [lo, hi) of a set, prefix<lo>.., of the linear index `at` over
 * them. */
void pl_cg_coords(pl_cg *w, pl_cg_set set, int lo, int hi, const char *at, const char *prefix);
/* Writes " + ..." for the contribution of the set to operand k's offset. */
void pl_cg_offset(pl_cg *w, int k, pl_cg_set set);
/* Declares b<k>, where operands that used instructions read begin in the outer set; inner: plus the
 * share of the inner set, except for ragged operands. */
void pl_cg_bases(pl_cg *w, bool inner);
/* Declares P<k> of all operands that used instructions read. */
void pl_cg_pointers(pl_cg *w);
/* Writes the statement that loads operand k's chunk into `to`. base: its offset, without what a
 * ragged access adds for each element. */
void pl_cg_load(pl_cg *w, int k, const char *to, const char *base);
/* Whether some used ramp needs coordinates of single elements of the inner set. */
bool pl_cg_inner_ramps(const pl_cg_pass *p);

/* codegen_step.c: shared by flat and sheet. lvl: per instruction 0 (once per thread), 1 (once per
 * segment), 2 (every step) or -1; requires b<k>, the offsets of operands at the thread's start, in
 * scope. */
void pl_cg_outputs(pl_cg *w); /* declares W<s>, the memory of STORE sinks */
void pl_cg_hoist(pl_cg *w, const int *lvl, const int *dep, int level);
void pl_cg_accumulators(pl_cg *w);
pl_status pl_cg_find_pair(const pl_cg_pass *p, const int *dep, pl_arena *a,
                          pl_cg_pair *out) PL_MUST_USE;
/* Writes U chunks. `index` declares the indices of chunk u, and z_, its position in the dense
 * space. */
void pl_cg_step(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w));
/* Writes the loop over a lane's rows, from row_ to end_, every Y_th: several rows a time, then
 * single rows. pragma: text before the first loop. */
void pl_cg_rows(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w),
                const char *pragma);
/* Combines accumulators over the block and writes results, or partial results: to_ is the number of
 * the partial result in its column, first_ is the block's first column. */
/* Writes the array t: the thread's sums of sink s. */
void pl_cg_own(pl_cg *w, int sink);
/* Writes the sum `value` of sink s in column `col` of the inner set: a partial result, or the
 * results of all sinks that share the sum. */
void pl_cg_leave(pl_cg *w, int sink, const char *value, const char *col);
enum { PL_CG_FEW_LANES = 32 };
pl_status pl_cg_totals(pl_cg *w) PL_MUST_USE;
/* Writes the statement that stores `value` as partial result `row` of sink s in column `col`; rows
 * is the number of partial results per column. */
void pl_cg_put_partial(pl_cg *w, int sink, const char *value, const char *row, const char *col,
                       int64_t rows);
void pl_cg_put_result(pl_cg *w, int sink, const char *value, const char *index);

/* The three shapes, and the fold of partial results. */
pl_status pl_cg_flat(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out) PL_MUST_USE;
pl_status pl_cg_sheet(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out) PL_MUST_USE;
pl_status pl_cg_row(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out) PL_MUST_USE;
pl_status pl_cg_folds(const pl_cg_pass *p, const pl_cg_runs *r, pl_arena *a,
                      pl_code_kernel *out) PL_MUST_USE;

#endif
