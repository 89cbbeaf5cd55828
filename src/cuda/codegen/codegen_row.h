/* codegen_row.h - what the files of row kernels share: codegen_row.c, codegen_stages.c and
 * codegen_beside.c. */
#ifndef PL_CUDA_CODEGEN_ROW_H
#define PL_CUDA_CODEGEN_ROW_H

#include "cuda/codegen/codegen_int.h"

typedef struct pl_cg_stages {
    const pl_cg_pass *p;
    const int *dep;
    int *phase; /* per instruction: reductions that must be done before */
    bool *need; /* [stage][instruction]: elements' values wanted */
    bool *kept; /* per instruction: in registers from its first stage on */
    bool raw;   /* chunks stay in registers */
    /* per LOAD: 1 + where in shared memory its next row comes to; 0: it is read when it is
     * wanted */
    int *ahead;
    bool *twice; /* per LOAD: there is a second place, for the row after that */
    int shared;  /* bytes of all places */
    int ring;    /* from a first place to the second */
    bool *early; /* per LOAD: its next row comes to registers */
    bool *fixed; /* per LOAD: it is the same for all rows and stays in registers */
    int n;
} pl_cg_stages;

/* Whether i is a sum of the row's, and whether its variance is wanted too. */
bool pl_cg_row_sum(const pl_cg_pass *p, int i);
bool pl_cg_row_var(const pl_cg_pass *p, int i);
/* The schedule, but for what comes ahead. dep: of pl_cg_deps, with an element's bit for what varies
 * in a row. */
pl_status pl_cg_stages_make(const pl_cg_pass *p, const int *dep, pl_arena *a,
                            pl_cg_stages *out) PL_MUST_USE;
/* Stages that want i; *first is the first. */
int pl_cg_wanted(const pl_cg_stages *t, int i, int *first);

/* LOADs whose chunks are kept for all stages of a row. */
bool pl_cg_row_stays(const pl_cg_stages *t, int i);
/* Declares <to><i><tail>, which holds a chunk of LOAD i as it is in memory. */
void pl_cg_row_declare(pl_cg *w, int i, const char *to, const char *tail);
/* Statements that bring LOAD i into `to`: its chunk at e_, or its one element of the row. */
void pl_cg_row_load(pl_cg *w, int i, const char *to);
void pl_cg_row_one(pl_cg *w, int i, const char *to);
/* Opens the loop over a thread's chunks; two brackets close it. Threads that have none in the last
 * step may go along with the row's first: what they do must not count. inside: "if (in_) " where
 * that is so, else nothing. */
void pl_cg_row_chunks(pl_cg *w, bool fixed);
const char *pl_cg_row_inside(const pl_cg_pass *p);
/* Declares where the operands of row o_ begin. */
void pl_cg_row_bases(pl_cg *w);
/* A barrier for the threads of a row that is more than a warp's. */
void pl_cg_row_meet(pl_cg *w);

/* Columns beside: the lanes of a block, of which those after ty have no rows and fill a warp. */
int pl_cg_beside_lanes(const pl_cg_pass *p);
/* What comes ahead; the walk of a lane over its rows, up to where a row's text stands; what is left
 * of columns after it, where a row had so many meetings. */
void pl_cg_beside_find(pl_cg_stages *t);
void pl_cg_beside_open(pl_cg *w, const pl_cg_stages *t);
void pl_cg_beside_close(pl_cg *w, int meetings);
/* Bytes of shared memory that a launch must give; 0 where the text has its own. */
int pl_cg_beside_large(const pl_cg_stages *t);

#endif
