/* cuda_op_lab.h - a CUDA kernel of one op in the simulator, against the CPU's reference.
 *
 * Each instance runs with blocks and threads first to last and last to first, over scratch and
 * outputs filled with other bytes, with operands that are aligned for wide accesses and with
 * operands that are only aligned to their elements: the results are the same to the bit. In place,
 * where the op says so, too.
 */
#ifndef PL_TEST_CUDA_OP_LAB_H
#define PL_TEST_CUDA_OP_LAB_H

#include "ir/op.h"

/* Checks the op at one case, in f32 and in every other float type that it takes. */
void cuda_op_check_case(const pl_op *op, const pl_case *cs, int index);
/* Checks that a kernel or a group runs the op at this case; false when the op refuses the dtype. */
bool cuda_op_check_path(const pl_op *op, const pl_case *cs, pl_dtype dtype, int index);

/* Cases beside those of the op table; a list ends with CUDA_OP_END. */
typedef struct cuda_op_case {
    const char *op;
    pl_case cs;
} cuda_op_case;
#define CUDA_OP_END                                                                                \
 {                                                                                                 \
  NULL, PL_CASE_END                                                                                \
 }
void cuda_op_check_list(const cuda_op_case *list);

#endif
