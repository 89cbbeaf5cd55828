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
    uint32_t max_repeat; /* nodes that a group computes again to have a value not stored */
    bool open;           /* groups gain from ops that can be taken apart (pass/open.c) */
    bool bits;           /* bool values between groups may be stored as bits */
    bool draws;          /* random numbers may be drawn where they are read, and never be stored */
    bool tails; /* libraries have products and convolutions with what follows them (pass/tail.c) */
    int64_t tail_bytes; /* of a convolution's result, from which on that pays */
} pl_fuse_opts;

/* The CPU's tile interpreter (cpu/tile/tile.h), but for `takes`, which is cpu/tile/group.h's. */
#define PL_FUSE_OPTS_INIT                                                                          \
 {                                                                                                 \
  NULL, 16384, 64, 64, 512, 8, false, true, true, false, 0                                         \
 }

/* NVIDIA cards. One place for the device, which compiles groups, and for profiles of cards, which
 * only plan with them: their units must be the same. */
#define PL_FUSE_OPTS_CUDA(takes)                                                                   \
 {                                                                                                 \
  takes, 16384, 64, 64, 512, 24, true, false, false, true, 16 << 20                                \
 }

pl_status pl_fuse(const pl_graph *g, const pl_fuse_opts *o, pl_units **out) PL_MUST_USE;

#endif
