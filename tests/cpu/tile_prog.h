/* tile_prog.h - small groups (ir/group/fused.h) written by hand, for tests of the tile interpreter.
 * They run on guarded buffers: bytes around each output and around the workspace must survive. */
#ifndef PL_TESTS_TILE_PROG_H
#define PL_TESTS_TILE_PROG_H

#include "cpu/tile/tile.h"
#include "tests/lib/test.h"

typedef struct tile_prog {
    pl_fused p;
    pl_fused_operand in[PL_TILE_INPUTS];
    pl_fused_instr instr[PL_TILE_INSTRS];
    pl_fused_output out[PL_TILE_OUTPUTS];
} tile_prog;

tile_prog *tile_new(int rank, const int64_t *dim, int row_rank);
int64_t tile_elems(const tile_prog *g);
/* Loads a new operand that is broadcast along the dims of mask and dense in the others. */
int tile_ld(tile_prog *g, pl_dtype d, uint32_t broadcast);
int tile_imm(tile_prog *g, pl_dtype d, double v);
int tile_map3(tile_prog *g, pl_scalar_fn f, int a, int b, int c);
int tile_map2(tile_prog *g, pl_scalar_fn f, int a, int b);
int tile_cast(tile_prog *g, pl_dtype d, int a);
int tile_row_reduce(tile_prog *g, pl_reduce_fn f, int a);
int tile_row_var(tile_prog *g, int a);
int tile_st(tile_prog *g, int a);
int tile_st_rows(tile_prog *g, int a);
/* Moments take two entries of out[]: o and o + 1 (a plain store of the variance in n_out would
 * clash, so callers put moments last). */
int tile_st_reduce(tile_prog *g, pl_reduce_fn f, int a, uint32_t mask);
/* Runs with guard bytes around outputs and workspace; false (and a failure) when one is changed. */
bool tile_run_guarded(const pl_fused *p, const void *const *in, void *const *out,
                      const size_t *bytes, int n_out);
/* Runs a program whose first outputs are full stores or reductions with room for every element. */
bool tile_run(const tile_prog *g, const void *const *in, void *const *out);
void *tile_buf(int64_t n);
void tile_noise(pl_dtype d, void *x, int64_t n, uint64_t *seed);
bool tile_same_bits(pl_dtype d, const void *a, const void *b, int64_t n);

extern const char *const tile_isas[3];

#endif
