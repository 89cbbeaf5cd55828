/* tile_build.h - shared by the files that compile a group: tile.c, tile_steps.c,
 * tile_registers.c. */
#ifndef PL_CPU_TILE_BUILD_H
#define PL_CPU_TILE_BUILD_H

#include "cpu/tile/tile_plan.h"

/* A group while it is compiled. */
typedef struct pl_tile_build {
    const pl_fused *p;
    pl_tile_code *t;
    int32_t *step_of;     /* per instruction */
    int32_t (*raised)[3]; /* per step and level: the step that raises it, or -1 */
    int32_t *place_step;  /* per place */
    pl_walk *walks;
    int32_t cap;                /* of steps */
    int32_t row_dim;            /* first dim of the row; rank without rows */
    int64_t dim[PL_SPACE_RANK]; /* merged space */
    int from[PL_SPACE_RANK];    /* per merged dim: the innermost dim of the group in it; -1: none */
    size_t full_bytes;          /* register bytes for each element of a tile */
} pl_tile_build;

/* Whole-tile registers in use, by width: 1, 4 and 8 bytes per element. */
typedef struct pl_tile_pools {
    uint8_t busy[3][PL_TILE_INSTRS * 4];
    int32_t count[3];
} pl_tile_pools;

static inline size_t pl_align64(size_t x)
{
    return (x + 63) & ~(size_t)63;
}

/* tile_steps.c: appends the steps of instruction i, or of output o, for the chosen tile. */
void pl_tile_add_instr(pl_tile_build *b, int i);
pl_status pl_tile_add_place(pl_tile_build *b, int o) PL_MUST_USE;

/* tile_registers.c: assigns registers to steps; returns the register bytes for each element of a
 * tile. Then lays out a worker's block. */
size_t pl_tile_registers(pl_tile_code *t, pl_tile_pools *pl);
void pl_tile_lay_out_worker(pl_tile_code *t, const pl_tile_pools *pl);

#endif
