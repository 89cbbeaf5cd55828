/* attention_cases.h - attention of sizes that only GPUs compute in tests (test_device_ops.c). */
#ifndef PL_TESTS_ATTENTION_CASES_H
#define PL_TESTS_ATTENTION_CASES_H

#include "ir/op.h"

/* Attention of sizes that a library computes (cuda/attention/attention_dnn.c), and with a gradient
 * of lse our own kernels on warpgroup products: whole and partial tiles, causal and not, more
 * queries than keys and fewer. */
/* clang-format off */
#define LONG_ATTENTION(X)                                                                    \
    X("[2,256,2,64]", "[2,256,2,64]", "[2,2,256]", "causal=false")                           \
    X("[1,200,3,16]", "[1,200,3,16]", "[1,3,200]", "causal=true")                            \
    X("[1,130,2,128]", "[1,333,2,128]", "[1,2,130]", "scale=0.05, causal=false")             \
    X("[1,300,1,40]", "[1,170,1,40]", "[1,1,300]", "causal=true")                            \
    X("[1,210,2,64]", "[1,450,2,64]", "[1,2,210]", "causal=false")                           \
    X("[2,256,4,64]", "[2,256,2,64]", "[2,4,256]", "causal=true")                            \
    X("[1,190,6,128]", "[1,270,2,128]", "[1,6,190]", "causal=false")                         \
    X("[2,140,8,40]", "[2,150,1,40]", "[2,8,140]", "causal=false")                           \
    X("[1,900,1,64]", "[1,830,1,64]", "[1,1,900]", "causal=true")                            \
    X("[1,650,1,128]", "[1,520,1,128]", "[1,1,650]", "causal=false")
#define FORWARD(q, k, lse, a)  {{"f32" q, "f32" k, "f32" k}, a, {{0}}},
#define BACKWARD(q, k, lse, a) \
    {{"f32" q, "f32" k, "f32" k, "f32" q, "f32" lse, "f32" q}, a, {{0}, {0}, {0}, {0}, {6, 7, false}}}, \
    {{"f32" q, "f32" k, "f32" k, "f32" q, "f32" lse, "f32" q, "f32" lse}, a, {{0}, {0}, {0}, {0}, {6, 7, false}}},
static const pl_case long_attention[] = {LONG_ATTENTION(FORWARD) PL_CASE_END};
static const pl_case long_attention_bwd[] = {LONG_ATTENTION(BACKWARD) PL_CASE_END};
/* The same with masks, broadcast in every way, and heads of other sizes. */
#define LONG_MASKED(X)                                                                               \
    X("[2,70,2,64]", "[2,97,2,64]", "[2,2,70]", "bool[2,1,70,97]", "causal=false")                   \
    X("[1,135,2,16]", "[1,135,2,16]", "[1,2,135]", "f32[1,2,135,135]", "causal=true")                \
    X("[2,66,1,128]", "[2,40,1,128]", "[2,1,66]", "bool[2,1,1,40]", "scale=0.05, causal=false")      \
    X("[1,40,1,200]", "[1,130,1,200]", "[1,1,40]", "f32[1,1,40,130]", "causal=false")                \
    X("[2,150,2,64]", "[2,141,2,64]", "[2,2,150]", "bool[2,1,150,1]", "causal=false")                \
    X("[2,130,2,64]", "[2,200,2,64]", "[2,2,130]", "f32[2,1,1,200]", "causal=false")                 \
    X("[2,129,2,32]", "[2,129,2,32]", "[2,2,129]", "bool[1,2,129,129]", "causal=true")               \
    X("[2,150,4,64]", "[2,141,2,64]", "[2,4,150]", "f32[1,4,150,141]", "causal=false")
#define MASKED(q, k, lse, mask, a) {{"f32" q, "f32" k, "f32" k, mask}, a, {{0}}},
#define MASKED_BACK(q, k, lse, mask, a) \
    {{"f32" q, "f32" k, "f32" k, mask, "f32" q, "f32" lse, "f32" q}, a, {{0}, {0}, {0}, {0}, {0}, {5, 7, false}}},
static const pl_case long_masked[] = {LONG_MASKED(MASKED) PL_CASE_END};
static const pl_case long_masked_bwd[] = {LONG_MASKED(MASKED_BACK) PL_CASE_END};
/* The same for packed rows. */
#define LONG_ROWS(X)                                                                             \
    X("[2,256,768]", "[2,256,4,64]", "[2,4,256]", "heads=4, q_at=0, k_at=256, v_at=512, step=64") \
    X("[1,200,288]", "[1,200,2,48]", "[1,2,200]", "heads=2, q_at=96, k_at=48, v_at=0, step=144, causal=true") \
    X("[3,197,240]", "[3,197,2,40]", "[3,2,197]", "heads=2, q_at=160, k_at=0, v_at=80, step=40")
#define ROWS(x, o, lse, a) {{"f32" x}, a, {{0}}},
#define ROWS_BACK(x, o, lse, a) \
    {{"f32" x, "f32" o, "f32" lse, "f32" o}, a, {{0}, {0}, {5, 7, false}}},
static const pl_case long_rows[] = {LONG_ROWS(ROWS) PL_CASE_END};
static const pl_case long_rows_bwd[] = {LONG_ROWS(ROWS_BACK) PL_CASE_END};
/* clang-format on */

#endif
