/* index_range.h - which numbers an input of indices may hold. */
#ifndef PL_IR_INDEX_RANGE_H
#define PL_IR_INDEX_RANGE_H

#include "ir/graph.h"

/* Valid values are [low, high), and `skip` where `skips`; high 0: the input is not used as an
 * index, as far as the graph shows. */
typedef struct pl_index_range {
    int64_t low, high, skip;
    bool skips;
    bool classes; /* the input holds class numbers of a cross-entropy, and picks no rows */
} pl_index_range;

/* Returns the numbers for which every row exists that the graph picks by this value, and every
 * class of a cross-entropy whose labels this value is: directly or through slices, reshapes, casts
 * and the rule that numbers below 0 count from the end. Implemented in ops/. */
pl_index_range pl_index_range_of(const pl_graph *g, uint32_t val);

#endif
