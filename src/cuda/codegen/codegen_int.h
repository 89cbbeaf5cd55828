/* codegen_int.h - shared by the files of the code generator.
 *
 * codegen.c splits a group into passes; each pass walks the space once and is one kernel, or two
 * when partial results are folded afterwards. A pass has one of three shapes, by how its dims fall
 * into sets:
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

enum { PL_CG_RANK = PL_FUSED_RANK + 1, PL_CG_THREADS = 256 };

typedef enum pl_cg_shape { PL_CG_FLAT, PL_CG_SHEET, PL_CG_ROW } pl_cg_shape;
typedef enum pl_cg_set { PL_CG_OUTER, PL_CG_ALONG, PL_CG_INNER, PL_CG_SETS } pl_cg_set;

typedef struct pl_cg_operand {
    pl_code_space space;
    uint32_t index, align; /* align: bytes that the base is known to be a multiple of */
    int64_t plus;          /* bytes from the base */
    pl_dtype dtype;
    int64_t offset, stride[PL_CG_RANK];
} pl_cg_operand;

/* A result of a pass: a group's output, or (save >= 0) a row value kept in scratch. */
typedef struct pl_cg_sink {
    pl_fused_out_kind kind;
    int32_t src, out, out2;
    pl_dtype dtype;
    pl_reduce_fn reduce;
    int64_t save;    /* ROWS into scratch at this byte; -1: into out */
    int64_t partial; /* REDUCE: first byte of its partial results */
    uint32_t folded; /* REDUCE: which of the pass's runs it folds; always the run that threads
                      * walk */
} pl_cg_sink;

/* Runs of dims that are all kept or all reduced, outermost first; a long reduced run is split after
 * its outermost dim, so that sums over an image and sums over all images share a pass. */
typedef struct pl_cg_runs {
    int32_t n, along; /* along: the run that threads accumulate */
    int64_t size[PL_CG_RANK];
    uint32_t reduced; /* bit by run */
    bool moments;     /* lanes take more rows, because a lane's partial result is large */
} pl_cg_runs;

static inline bool pl_cg_reduced(const pl_cg_runs *r, int i)
{
    return r->reduced >> i & 1u;
}

/* How columns are summed: y threads share a column, parts of `part` rows are summed separately; all
 * of it follows from the sizes of the runs. */
typedef struct pl_cg_columns {
    int32_t tx, ty;
    int64_t tiles, part, parts;
} pl_cg_columns;

/* codegen_runs.c. lead: of pl_fused_output. */
pl_cg_runs pl_cg_runs_of(const pl_fused *f, uint32_t mask, int64_t lead, bool moments);
/* Returns the elements of a row if only the innermost run is reduced (1: nothing is); else 0. */
int64_t pl_cg_row_of(const pl_cg_runs *r);
pl_cg_columns pl_cg_columns_of(const pl_cg_runs *r);
/* Whether walk b over the same rows has the parts of walk a; a is split, b is not. */
bool pl_cg_same_parts(const pl_cg_runs *a, const pl_cg_runs *b);
/* Whether partial results lie in strips, [columns / PL_CG_STRIP][runs before][parts][PL_CG_STRIP],
 * instead of [runs before][parts][runs after]. */
enum { PL_CG_STRIP = 8 };
bool pl_cg_strips(const pl_cg_runs *r);
/* Whether a row kernel also computes such column sums (codegen_beside.c). */
bool pl_cg_takes_columns(const pl_cg_runs *r);
/* codegen_lay.c: returns the threads that share a row of n. */
int32_t pl_cg_row_threads(int64_t n);
/* Returns a number of parts such that blocks, where they are many, fill whole waves of a large GPU:
 * eight blocks for each of 132 multiprocessors. A constant of this file, not of the GPU that
 * runs. */
int64_t pl_cg_rounds(int64_t parts, int64_t others);
enum { PL_CG_BLOCKS = 1056 };

static inline int64_t pl_cg_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t pl_cg_clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

typedef struct pl_cg_pass {
    pl_cg_shape shape;
    int32_t rank, first[PL_CG_SETS + 1]; /* dims of set s: [first[s], first[s+1]) */
    int64_t dim[PL_CG_RANK];
    int64_t size[PL_CG_SETS];
    int32_t n_op, n_instr, n_sink;
    pl_cg_operand *op;
    pl_fused_instr *instr;
    double *step; /* of ramps: [instruction][PL_CG_RANK], in the pass's dims */
    pl_cg_sink *sink;
    bool *used;   /* per instruction */
    bool reduces; /* a sink is a REDUCE over more than its row */
    pl_cg_runs runs;
    bool columns; /* row: REDUCE sinks are column sums with the walk `walk` */
    pl_cg_runs walk;
    /* launch */
    int32_t vec, unroll; /* elements per chunk, chunks in flight */
    /* sheet: minimum of blocks per multiprocessor; 0: the compiler decides */
    int32_t resident;
    int32_t tx, ty;      /* threads; row: tx threads per row, ty rows per block */
    int64_t parts, part; /* pieces of inner (flat) or along (sheet), and their length */
    int64_t tiles;       /* sheet: columns of blocks */
    int32_t steps;       /* row: chunks per thread, 0: not fixed in the text */
    bool wide, direct;   /* 64-bit indices; reductions have one part */
    int32_t seg;         /* sheet: dims of along that only change from segment to segment */
} pl_cg_pass;

/* Returns the first sink that computes the same sum as sink s: only that sink has accumulators; the
 * others share its sums and may fold other runs. */
static inline int pl_cg_twin(const pl_cg_pass *p, int s)
{
    const pl_cg_sink *x = &p->sink[s];
    for (int i = 0; i < s && x->kind == PL_FUSED_REDUCE; i++)
        if (p->sink[i].kind == PL_FUSED_REDUCE && p->sink[i].src == x->src &&
            p->sink[i].reduce == x->reduce)
            return i;
    return s;
}

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
size_t pl_cg_acc_bytes(pl_dtype d, pl_reduce_fn fn);
const char *pl_cg_fold(pl_reduce_fn fn); /* name of the combining functor */
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
/* Combines accumulators over the block and writes results, or partial results: to_ is the number of
 * the partial result in its column, first_ is the block's first column. */
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
