/* fuse.h - the partition of a graph into units with fusion; see fuse.c. */
#ifndef PL_PASS_FUSE_H
#define PL_PASS_FUSE_H

#include "ir/units.h"

/* What a device's groups can do. */
typedef struct pl_fuse_opts {
    /* Whether a map or reduction may be in a group at all; NULL: always. */
    bool (*takes)(const pl_graph *g, uint32_t node);
    int64_t max_row;                              /* elements of a row */
    uint32_t max_nodes, max_operands, max_instrs; /* of a group; two outputs a node */
} pl_fuse_opts;

/* The CPU's tile interpreter (cpu/tile.h), but for `takes`, which is cpu/group.h's. */
#define PL_FUSE_OPTS_INIT                                                                      \
 {                                                                                             \
  NULL, 16384, 64, 64, 512                                                                     \
 }

/* NVIDIA cards, present or planned for (fuse_cuda.c). */
extern const pl_fuse_opts pl_fuse_cuda;

pl_status pl_fuse(const pl_graph *g, const pl_fuse_opts *o, pl_units **out) PL_MUST_USE;

#endif
