/* fuse.h - the partition of a graph into units with fusion; see fuse.c. */
#ifndef PL_PASS_FUSE_H
#define PL_PASS_FUSE_H

#include "ir/units.h"

/* The kinds of groups that a device supports. */
typedef struct pl_fuse_opts {
    /* Whether a map or reduction may be in a group; NULL: always. */
    bool (*takes)(const pl_graph *g, uint32_t node);
    int64_t max_row;       /* elements of a row */
    uint32_t max_nodes;    /* of a group; a group has at most two outputs per node */
    uint32_t max_operands; /* of a group */
    uint32_t max_instrs;   /* of a group */
    uint32_t max_repeat; /* nodes that a group may compute a second time to save storing a value */
    bool open;           /* fusion gains from ops that can be decomposed (pass/open_ops.c) */
    bool bits;           /* bool values between groups may be stored as bits */
    bool draws;          /* random numbers may be drawn where they are read, and never stored */
    /* libraries fuse products and convolutions with the ops after them (join_tails.c) */
    bool tails;
    int64_t tail_bytes;    /* convolution results of at least this many bytes get such a tail */
    int64_t product_bytes; /* products whose results have at least this many bytes may begin a group
                              (fuse_product.c); 0: none does */
} pl_fuse_opts;

/* The CPU's tile interpreter (cpu/tile/tile.h); takes_fn is cpu/tile/cpu_group.h's. */
#define PL_FUSE_OPTS_CPU(takes_fn)                                                                 \
 {                                                                                                 \
  .takes = takes_fn, .max_row = 16384, .max_nodes = 64, .max_operands = 64, .max_instrs = 512,     \
  .max_repeat = 24, .open = true, .bits = true, .draws = true                                      \
 }

/* CUDA devices. Shared by the device, which compiles groups, and by the profiles of GPUs, which
 * only plan with them: their units must be the same. */
#define PL_FUSE_OPTS_CUDA(takes_fn)                                                                \
 {                                                                                                 \
  .takes = takes_fn, .max_row = 16384, .max_nodes = 64, .max_operands = 64, .max_instrs = 512,     \
  .max_repeat = 24, .open = true, .tails = true, .tail_bytes = 16 << 20, .product_bytes = 8 << 20  \
 }

pl_status pl_fuse(const pl_graph *g, const pl_fuse_opts *o, pl_units **out) PL_MUST_USE;

#endif
