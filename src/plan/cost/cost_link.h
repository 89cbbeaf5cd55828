/* cost_link.h - links between ranks as numbers, and the expected time of an exchange.
 *
 * Links may have two levels: "nvlink" alone, or "nvlink/8+ib": NVLink joins the eight ranks of a
 * machine, and InfiniBand joins machines, with a connection for each rank.
 */
#ifndef PL_PLAN_COST_LINK_H
#define PL_PLAN_COST_LINK_H

#include "ir/op.h"

typedef struct pl_link_level {
    double bandwidth;  /* bytes a second that a rank sends and receives */
    double latency_ns; /* of a message to a neighbour */
} pl_link_level;

typedef struct pl_rank_link {
    pl_link_level inner, outer;
    int per_node; /* ranks that the inner level joins; 0: all */
} pl_rank_link;

/* An unknown name is PL_ERR_CONFIG and lists the valid ones. */
pl_status pl_link_parse(const char *text, pl_rank_link *out) PL_MUST_USE;
/* Returns the nanoseconds of a unit whose work is PL_WORK_LINK. */
double pl_link_ns(const pl_rank_link *l, const pl_cost *c);

#endif
