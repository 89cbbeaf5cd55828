/* vector_cases.h - matrices times vectors, for the tests of kernels (test_cuda_ops.c,
 * test_device_ops.c): either operand is the vector, both layouts, with and without a bias, in
 * batches, few and many terms and outputs, sizes that wide accesses divide and sizes that they
 * do not, and split sums (cuda/matmul/vector.h). */
#ifndef PL_VECTOR_CASES_H
#define PL_VECTOR_CASES_H

#include "ir/op.h"

/* clang-format off */
#define VECTOR_CASE(attr, ...) {{__VA_ARGS__}, attr, {{0}}}
#define VECTOR_NN "ta=false, tb=false"
#define VECTOR_NT "ta=false, tb=true"
#define VECTOR_TN "ta=true, tb=false"
#define VECTOR_TT "ta=true, tb=true"
static const pl_case vector_cases[] = {
    /* rows of the first operand */
    VECTOR_CASE(VECTOR_NN, "f32[2,27]", "f32[27,1]"),
    VECTOR_CASE(VECTOR_NN, "f32[3,1]", "f32[1,1]"),
    VECTOR_CASE(VECTOR_NN, "f32[1,9216]", "f32[9216,1]", "f32[1]"),
    VECTOR_CASE(VECTOR_NN, "f32[37,576]", "f32[576,1]"),
    VECTOR_CASE(VECTOR_NT, "f32[64,24]", "f32[1,24]"),
    VECTOR_CASE(VECTOR_NN, "f32[300,8]", "f32[8,1]", "f32[1]"),
    VECTOR_CASE(VECTOR_NN, "f32[3,4099]", "f32[4099,1]"),
    VECTOR_CASE(VECTOR_NN, "f32[90,130]", "f32[130,1]"),
    /* rows of the second */
    VECTOR_CASE(VECTOR_NT, "f32[1,36]", "f32[7,36]", "f32[7]"),
    VECTOR_CASE(VECTOR_TT, "f32[40,1]", "f32[12,40]"),
    VECTOR_CASE(VECTOR_NT, "f32[1,1000]", "f32[33,1000]", "f32[33]"),
    /* columns of the first */
    VECTOR_CASE(VECTOR_TN, "f32[128,64]", "f32[128,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[1,100]", "f32[1,1]"),
    VECTOR_CASE(VECTOR_TT, "f32[27,9]", "f32[1,27]", "f32[1]"),
    VECTOR_CASE(VECTOR_TN, "f32[64,576]", "f32[64,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[2,2]", "f32[2,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[3,4104]", "f32[3,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[640,1]", "f32[640,1]"),
    /* columns of the second */
    VECTOR_CASE(VECTOR_NN, "f32[1,128]", "f32[128,40]", "f32[40]"),
    VECTOR_CASE(VECTOR_NN, "f32[1,5]", "f32[5,33]", "f32[33]"),
    VECTOR_CASE(VECTOR_TN, "f32[70,1]", "f32[70,20]"),
    VECTOR_CASE(VECTOR_NN, "f32[1,50]", "f32[50,4100]"),
    /* batches */
    VECTOR_CASE(VECTOR_NN, "f32[3,20,16]", "f32[3,16,1]"),
    VECTOR_CASE(VECTOR_NN, "f32[3,20,17]", "f32[17,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[2,16,24]", "f32[2,16,1]", "f32[1]"),
    VECTOR_CASE(VECTOR_NN, "f32[2,1,16]", "f32[2,16,9]", "f32[9]"),
    VECTOR_CASE(VECTOR_NT, "f32[2,3,1,40]", "f32[2,3,5,40]", "f32[5]"),
    VECTOR_CASE(VECTOR_TN, "f32[20,16]", "f32[3,20,1]"),
    /* in parts */
    VECTOR_CASE(VECTOR_NN, "f32[1,70000]", "f32[70000,1]", "f32[1]"),
    VECTOR_CASE(VECTOR_NT, "f32[1,66005]", "f32[2,66005]", "f32[2]"),
    VECTOR_CASE(VECTOR_TN, "f32[5003,24]", "f32[5003,1]"),
    VECTOR_CASE(VECTOR_NN, "f32[1,5000]", "f32[5000,7]", "f32[7]"),
    VECTOR_CASE(VECTOR_TN, "f32[2,4500,40]", "f32[2,4500,1]"),
    /* more threads than a GPU has: slow to simulate */
    VECTOR_CASE(VECTOR_NN, "f32[5000,260]", "f32[260,1]"),
    VECTOR_CASE(VECTOR_TN, "f32[400,9216]", "f32[400,1]"),
};
enum { VECTOR_CASES = sizeof vector_cases / sizeof *vector_cases, VECTOR_CASES_LONG = 2 };
#undef VECTOR_CASE
#undef VECTOR_NN
#undef VECTOR_NT
#undef VECTOR_TN
#undef VECTOR_TT
/* clang-format on */

#endif
