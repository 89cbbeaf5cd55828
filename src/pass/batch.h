/* batch.h - whether samples of a batch couple: a proof that they do not, or the ops that do.
 *
 * Training on N micro-batches of B/N samples and adding their gradients equals training on the B
 * samples at once when every gradient is a mean over the samples of something that depends on one
 * sample only. The analysis compares two builds of one program, at batch B and at B/N. So it sees
 * which dimension is the batch and which constants depend on its size, and checks that the numbers
 * agree: each gradient of the whole is 1/N times the sum of the gradients of the parts.
 *
 * When in doubt it reports coupling: an op without a known rule, or a layout that it cannot follow,
 * counts as coupling when one of its inputs has a batch.
 */
#ifndef PL_PASS_BATCH_H
#define PL_PASS_BATCH_H

#include "ir/graph.h"

typedef struct pl_batch_cause {
    uint32_t node; /* of the whole graph */
    char label[160];
    const char *why; /* static text */
} pl_batch_cause;

#define PL_BATCH_CAUSES 8
typedef struct pl_batch_report {
    bool proven;
    int n_causes; /* the first node of each kind of op that couples, in the graph's order */
    pl_batch_cause cause[PL_BATCH_CAUSES];
} pl_batch_report;

/* whole and part are the same program at `batch` and at batch/parts samples, parts >= 2; goals are
 * values of whole, the loss and the gradients. Every slot that whole assigns counts too, except
 * counters. at_once: ranks run the parts at the same time and with the same draws, not one after
 * the other: numbers drawn once for all samples, and state that a step changes, couple nothing.
 * PL_ERR_GRAPH when the two are not the same program. */
pl_status pl_batch_analyse(const pl_graph *whole, const pl_graph *part, int64_t batch,
                           int64_t parts, bool at_once, const pl_val *goals, int n_goals,
                           pl_batch_report *out) PL_MUST_USE;

/* Writes the first few causes, "frame0.norm.0: moments: why; sort: why", to buf and returns buf. */
const char *pl_batch_text(const pl_batch_report *r, char *buf, size_t cap);

#endif
