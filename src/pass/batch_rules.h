/* batch_rules.h - how one op treats the batch: the rules of the analysis of pass/batch.h.
 *
 * Every value that a goal depends on gets a tag:
 *
 *   NONE   has no batch: the same in the whole and in every part, except for a factor
 *   EACH   slice i along the batch depends on sample i alone
 *   SUM    a sum over the batch of such slices, and linear in that sum
 *
 * and a ratio: the whole's value (or slice) is ratio times the part's; for SUM, ratio times the sum
 * over the parts. A mean over B samples divides by B, so its ratio is 1/N. A constant zero has
 * every ratio.
 *
 * The position of the batch in a value is one number, `inner`: the elements from one sample to the
 * next in row-major order; a reshape keeps it. The batch's dimension may hold more than the batch:
 * an index there is (o*B + b)*w + i. inner 0 means a value that does not vary along a dimension of
 * several times the batch (a bias over the rows of B*T tokens): every layout is valid for it.
 *
 * Example: B = 4, N = 2, loss = sum(x*w)/4 with x[4,8] an input and w[8] a weight. x is EACH with
 * inner 8 and ratio 1; w is NONE; x*w is EACH; its sum over both dimensions is SUM with ratio 1;
 * the constant is 1/4 in the whole and 1/2 in the part, so its ratio is 1/2; the loss is SUM with
 * ratio 1/2 = 1/N: a mean over the batch, as a goal must be.
 */
#ifndef PL_PASS_BATCH_RULES_H
#define PL_PASS_BATCH_RULES_H

#include "pass/batch.h"

typedef enum pl_batch_kind { PL_BATCH_NONE, PL_BATCH_EACH, PL_BATCH_SUM } pl_batch_kind;

typedef struct pl_batch_tag {
    pl_batch_kind kind;
    bool zero;
    int64_t inner; /* EACH */
    double ratio;
} pl_batch_tag;

/* Position of the batch in an operand: dimension, and w of the layout above (0: any). */
typedef struct pl_batch_spot {
    int axis;
    int64_t w;
} pl_batch_spot;

/* The current node, in both builds. */
typedef struct pl_batch_node {
    const pl_op *op;
    pl_call whole, part;
    pl_batch_tag *in;
    pl_batch_spot *at;
    pl_batch_tag out[PL_MAX_OUT];
} pl_batch_node;

typedef struct pl_batch_walk {
    const pl_graph *g, *h;
    int64_t batch, parts;
    bool at_once;       /* parts run on ranks: they draw the same numbers, state changes once */
    pl_batch_tag *tags; /* by value */
    bool *need;         /* by node: a goal depends on it */
    pl_type *types[4];
    pl_batch_node s;
    pl_batch_report *report;
} pl_batch_walk;

#define PL_BATCH_FOLLOWS "a constant follows the size of the batch"

/* Applies the rule of w->s.op: NULL when w->s.out is filled, or a static text: why the op couples
 * samples. */
const char *pl_batch_rule(pl_batch_walk *w, uint32_t node);
/* Returns the tag of output k that follows from its shape alone, for an op without a rule. */
pl_batch_tag pl_batch_by_shape(const pl_batch_walk *w, int k);
/* Whether the numbers are equal up to rounding. */
bool pl_batch_near(double a, double b);

#endif
