/* codegen_row.h - shared by the files of row kernels: codegen_row.c, codegen_stages.c and
 * codegen_beside.c. */
#ifndef PL_CUDA_CODEGEN_ROW_H
#define PL_CUDA_CODEGEN_ROW_H

#include "cuda/codegen/codegen_int.h"

typedef struct pl_cg_stages {
    const pl_cg_pass *p;
    const int *dep;
    int *phase; /* per instruction: number of reductions that must be done before */
    bool *need; /* [stage][instruction]: values per element needed */
    bool *kept; /* per instruction: in registers from its first stage on */
    bool raw;   /* chunks stay in registers */
    /* per LOAD: 1 + offset in shared memory of its next row; 0: it is read when it is needed */
    int *ahead;
    bool *twice; /* per LOAD: it has a second place, for the row after the next */
    int shared;  /* bytes of all places */
    int ring;    /* distance from a first place to the second */
    bool *early; /* per LOAD: its next row is loaded into registers */
    bool *fixed; /* per LOAD: it is equal for all rows and stays in registers */
    int n;
} pl_cg_stages;

/* Whether i is a sum over the row, and whether its variance is needed too. */
bool pl_cg_row_sum(const pl_cg_pass *p, int i);
bool pl_cg_row_var(const pl_cg_pass *p, int i);
/* Makes the schedule, without the operands that are loaded ahead. dep: of pl_cg_deps, with an
 * element's bit for what varies in a row. */
pl_status pl_cg_stages_make(const pl_cg_pass *p, const int *dep, pl_arena *a,
                            pl_cg_stages *out) PL_MUST_USE;
/* Returns the number of stages that need i; *first is the first. */
int pl_cg_wanted(const pl_cg_stages *t, int i, int *first);

/* Whether the chunks of LOAD i are kept for all stages of a row. */
bool pl_cg_row_stays(const pl_cg_stages *t, int i);
/* Declares <to><i><tail>, which holds a chunk of LOAD i in its memory format. */
void pl_cg_row_declare(pl_cg *w, int i, const char *to, const char *tail);
/* Writes the statements that load LOAD i into `to`: its chunk at e_, or its one element of the
 * row. */
void pl_cg_row_load(pl_cg *w, int i, const char *to);
void pl_cg_row_one(pl_cg *w, int i, const char *to);
/* Opens the loop over a thread's chunks; two brackets close it. Threads without a chunk in the last
 * step may repeat the row's first chunk: its result must not count. inside: "if (in_) " in that
 * case, else nothing. */
void pl_cg_row_chunks(pl_cg *w, bool fixed);
const char *pl_cg_row_inside(const pl_cg_pass *p);
/* Declares where the operands of row o_ begin. */
void pl_cg_row_bases(pl_cg *w);
/* Writes a barrier for the threads of a row of several warps. */
void pl_cg_row_meet(pl_cg *w);

/* Returns the lanes of a block with column sums; lanes after ty have no rows and fill a warp. */
int pl_cg_beside_lanes(const pl_cg_pass *p);
/* Choose the operands that are loaded ahead; write the walk of a lane over its rows, up to the text
 * of a row; write what remains of columns after it, for rows with so many barriers. */
void pl_cg_beside_find(pl_cg_stages *t);
void pl_cg_beside_open(pl_cg *w, const pl_cg_stages *t);
void pl_cg_beside_close(pl_cg *w, int meetings);
/* Returns the bytes of dynamic shared memory of a launch; 0 where the text declares its own. */
int pl_cg_beside_large(const pl_cg_stages *t);

#endif
