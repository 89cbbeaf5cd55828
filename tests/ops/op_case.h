/* op_case.h - one op at one of the cases that its file lists, in one dtype: the unit that test
 * harnesses run. */
#ifndef PL_TESTS_OP_CASE_H
#define PL_TESTS_OP_CASE_H

#include "ir/graph.h"

typedef struct inst {
    const pl_op *op;
    const pl_case *cs;
    int index; /* of the case */
    pl_store *store;
    pl_graph *g;
    pl_val in[PL_CASE_IN], out[PL_MAX_OUT];
    pl_type in_type[PL_CASE_IN], out_type[PL_MAX_OUT];
    pl_call call;
    uint32_t node;
    int n_in;
    pl_dtype dtype;
    bool swapped;    /* some input has the dtype under test */
    char label[128]; /* "conv case 2 bf16" */
} inst;

/* Returns false, with the message set, when the op refuses this dtype; only f32 must not be
 * refused. */
bool inst_new(inst *t, const pl_op *op, const pl_case *cs, int index, pl_dtype dtype);
void inst_free(inst *t);
/* Whether to skip the op: it has no kernel, or PL_TEST_OP=name selects another. */
bool is_exempt(const pl_op *op);
bool last_case(const pl_case *c);

/* Seed of the noise for an input, the same every time. */
uint64_t seed_of(const inst *t, int input);
/* Fills an input with values that are the same in every dtype, except for rounding. */
void draw(const inst *t, int input, void *p);
/* Relative error that a result of this dtype may have. */
double tolerance(pl_dtype d);
/* Largest error of a against b, element by element, in units of the allowed error: the tolerance
 * relative to the element plus a tenth of the largest element. Above 1 they disagree; why says
 * where. */
double disagreement(const pl_type *ta, const void *a, const pl_type *tb, const void *b, char *why,
                    size_t cap);
/* The same, with this part of the largest element. */
double disagreement_beside(const pl_type *ta, const void *a, const pl_type *tb, const void *b,
                           double part, char *why, size_t cap);

/* Fails the test with the op, case and dtype before the message. fmt as for printf. */
void inst_fail(const inst *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
