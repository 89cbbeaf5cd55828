/* test_cuda_ops.c - CUDA kernels of single ops, run by the simulator (tests/cudasim) against the
 * CPU's reference: every case of the op table in f32, bf16, f16 and f64, and larger shapes with odd
 * sizes, where the wide and the tiled paths differ. How one instance is checked: cuda_op_lab.h. */
#include "tests/cpu/vector_cases.h"
#include "tests/cuda/cuda_op_lab.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

TEST(cuda_ops_every_case_matches_the_cpu)
{
    int checked = 0;
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        const char *only = getenv("PL_TEST_OP");
        if (!pl_cuda_kernels_of(op->name) || (only && strcmp(only, op->name) != 0)) continue;
        checked++;
        for (int k = 0; op->cases[k].attr; k++) cuda_op_check_case(op, &op->cases[k], k);
    }
    CHECK(checked > 0);
}

TEST(cuda_ops_every_op_has_a_kernel_or_a_group)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64,
                                      PL_I32, PL_I64,  PL_U8,  PL_BOOL};
    int seen = 0;
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        if (op->flags & (PL_OP_SOURCE | PL_OP_RANKS | PL_OP_EFFECT)) continue;
        CHECK_MSG(op->cases && op->cases[0].attr, "%s has no cases", op->name);
        for (int k = 0; op->cases[k].attr; k++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                seen += cuda_op_check_path(op, &op->cases[k], dtypes[d], k);
    }
    CHECK_MSG(seen > 1000, "%d", seen);
}

/* ---- larger shapes ---------------------------------------------------------------------- */
/* Few channels on one side, one filter per channel. */
TEST(cuda_ops_large_convolutions_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"conv",
         {{"f32[1,5,35,3]", "f32[16,3,3,3]", "f32[16]"}, "pad_lo=[0,1], pad_hi=[2,0]", {{0}}}},
        {"conv_dx",
         {{"f32[1,5,34,16]", "f32[16,3,3,3]"}, "pad_lo=[0,1], pad_hi=[2,0], in=[5,35]", {{0}}}},
        {"conv_dw",
         {{"f32[1,5,35,3]", "f32[1,5,34,16]"}, "pad_lo=[0,1], pad_hi=[2,0], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[1,4,33,24]", "f32[2,3,3,24]", "f32[2]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,4,33,2]", "f32[2,3,3,24]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[4,33]", {{0}}}},
        {"conv_dw",
         {{"f32[1,4,33,24]", "f32[1,4,33,2]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[3,11,21,1]", "f32[1,3,3,1]", "f32[1]"}, "pad_lo=[2,0], pad_hi=[0,1]", {{0}}}},
        {"conv_dx",
         {{"f32[3,11,20,1]", "f32[1,3,3,1]"}, "pad_lo=[2,0], pad_hi=[0,1], in=[11,21]", {{0}}}},
        {"conv_dw",
         {{"f32[3,11,21,1]", "f32[3,11,20,1]"}, "pad_lo=[2,0], pad_hi=[0,1], kernel=[3,3]", {{0}}}},
        {"conv", {{"f32[2,5,9,4]", "f32[8,1,1,4]"}, "stride=[1,1]", {{0}}}},
        {"conv_dw", {{"f32[2,5,9,4]", "f32[2,5,9,8]"}, "kernel=[1,1]", {{0}}}},
        {"conv",
         {{"f32[2,9,7,24]", "f32[24,5,5,1]", "f32[24]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1]",
          {{0}}}},
        {"conv_dx",
         {{"f32[2,5,6,24]", "f32[24,5,5,1]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1], in=[9,7]",
          {{0}}}},
        {"conv_dw",
         {{"f32[2,9,7,24]", "f32[2,5,6,24]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1], kernel=[5,5]",
          {{0}}}},
        {"conv",
         {{"f32[1,3,20,1]", "f32[32,3,3,1]", "f32[32]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,3,20,32]", "f32[32,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[3,20]", {{0}}}},
        {"conv_dw",
         {{"f32[1,3,20,1]", "f32[1,3,20,32]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* One filter per channel: filters wider than the taps of a kernel, several tiles, strides and
 * dilations along either side, volumes, lines and channels that are not pairs. */
#define DEPTHWISE(x, y, w, kernel, in, attr)                                                       \
 {"conv", {{x, w}, attr, {{0}}}}, {"conv_dx", {{y, w}, attr ", in=" in, {{0}}}},                   \
 {                                                                                                 \
  "conv_dw",                                                                                       \
  {                                                                                                \
   {x, y}, attr ", kernel=" kernel,                                                                \
   {                                                                                               \
    {                                                                                              \
     0                                                                                             \
    }                                                                                              \
   }                                                                                               \
  }                                                                                                \
 }
TEST(cuda_ops_depthwise_convolutions_match_the_cpu)
{
    static const cuda_op_case list[] = {
        DEPTHWISE("f32[2,9,15,6]", "f32[2,9,15,6]", "f32[6,7,7,1]", "[7,7]", "[9,15]",
                  "groups=6, pad_lo=[3,3], pad_hi=[3,3]"),
        DEPTHWISE("f32[1,11,17,4]", "f32[1,6,9,4]", "f32[4,5,5,1]", "[5,5]", "[11,17]",
                  "groups=4, stride=[2,2], pad_lo=[2,2], pad_hi=[2,2]"),
        DEPTHWISE("f32[1,6,17,5]", "f32[1,6,17,5]", "f32[5,3,3,1]", "[3,3]", "[6,17]",
                  "groups=5, dilation=[2,2], pad_lo=[2,2], pad_hi=[2,2]"),
        DEPTHWISE("f32[1,3,23,4]", "f32[1,3,21,4]", "f32[4,1,11,1]", "[1,11]", "[3,23]",
                  "groups=4, pad_lo=[0,3], pad_hi=[0,5]"),
        DEPTHWISE("f32[2,5,26,2]", "f32[2,2,9,2]", "f32[2,4,4,1]", "[4,4]", "[5,26]",
                  "groups=2, stride=[3,3], pad_lo=[1,2], pad_hi=[2,1]"),
        DEPTHWISE("f32[1,4,5,8,6]", "f32[1,2,5,8,6]", "f32[6,3,3,3,1]", "[3,3,3]", "[4,5,8]",
                  "groups=6, stride=[2,1,1], pad_lo=[1,1,1], pad_hi=[1,1,1]"),
        DEPTHWISE("f32[2,31,70]", "f32[2,31,70]", "f32[70,3,1]", "[3]", "[31]",
                  "groups=70, pad_lo=[2], pad_hi=[0]"),
        DEPTHWISE("f32[2,37,10,6]", "f32[2,37,10,6]", "f32[6,3,3,1]", "[3,3]", "[37,10]",
                  "groups=6, pad_lo=[1,1], pad_hi=[1,1]"),
        DEPTHWISE("f32[3,18,9,66]", "f32[3,17,9,66]", "f32[66,3,3,1]", "[3,3]", "[18,9]",
                  "groups=66, pad_lo=[0,2], pad_hi=[1,0]"),
        DEPTHWISE("f32[1,7,9,3]", "f32[1,3,4,3]", "f32[3,3,3,1]", "[3,3]", "[7,9]",
                  "groups=3, stride=[2,2], dilation=[2,2], pad_lo=[1,1], pad_hi=[1,1]"),
        CUDA_OP_END};
    cuda_op_check_list(list);
}
#undef DEPTHWISE

TEST(cuda_ops_vectors_match_the_cpu)
{
    int n = VECTOR_CASES - (pl_test_long() ? 0 : VECTOR_CASES_LONG);
    for (int i = 0; i < n; i++) {
        pl_case cs = vector_cases[i]; /* numbers whose sums depend on their order */
        for (int k = 0; k < 3; k++)
            cs.range[k].lo = -1, cs.range[k].hi = 1, cs.range[k].distinct = true;
        cuda_op_check_case(pl_op_find("matmul"), &cs, 1000 + i);
    }
}

/* Tensor cores, which are slow to simulate. */
TEST(cuda_ops_large_thin_convolutions_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"conv",
         {{"f32[1,9,67,1]", "f32[64,3,3,1]", "f32[64]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,9,67,64]", "f32[64,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[9,67]", {{0}}}},
        {"conv_dw",
         {{"f32[1,9,67,1]", "f32[1,9,67,64]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv", {{"f32[2,3,20,3]", "f32[32,3,3,3]"}, "pad_lo=[1,0], pad_hi=[1,2]", {{0}}}},
        {"conv_dw",
         {{"f32[2,3,20,3]", "f32[2,3,20,32]"}, "pad_lo=[1,0], pad_hi=[1,2], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[1,3,18,128]", "f32[4,3,3,128]", "f32[4]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,3,18,4]", "f32[4,3,3,128]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[3,18]", {{0}}}},
        {"conv_dw",
         {{"f32[1,3,18,128]", "f32[1,3,18,4]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv_dx", {{"f32[2,2,19,32]", "f32[32,1,1,2]"}, "in=[2,19]", {{0}}}},
        CUDA_OP_END};
    if (pl_test_long()) cuda_op_check_list(list);
}

TEST(cuda_ops_large_attention_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"attention",
         {{"f32[1,70,2,40]", "f32[1,97,2,40]", "f32[1,97,2,40]"}, "causal=false", {{0}}}},
        {"attention",
         {{"f32[1,70,1,130]", "f32[1,70,1,130]", "f32[1,70,1,130]"}, "causal=true", {{0}}}},
        {"attention",
         {{"f32[1,135,1,40]", "f32[1,140,1,40]", "f32[1,140,1,40]"}, "causal=true", {{0}}}},
        {"attention",
         {{"f32[1,40,1,100]", "f32[1,131,1,100]", "f32[1,131,1,100]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[1,135,1,20]", "f32[1,135,1,20]", "f32[1,135,1,20]", "f32[1,135,1,20]",
           "f32[1,1,135]", "f32[1,135,1,20]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,132,2,40]", "f32[1,40,2,40]", "f32[1,40,2,40]", "f32[1,132,2,40]", "f32[1,2,132]",
           "f32[1,132,2,40]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,70,2,40]", "f32[1,97,2,40]", "f32[1,97,2,40]", "f32[1,70,2,40]", "f32[1,2,70]",
           "f32[1,70,2,40]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,40,1,130]", "f32[1,40,1,130]", "f32[1,40,1,130]", "f32[1,40,1,130]",
           "f32[1,1,40]", "f32[1,40,1,130]", "f32[1,1,40]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        CUDA_OP_END};
    if (pl_test_long()) cuda_op_check_list(list);
}

TEST(cuda_ops_large_moves_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"permute", {{"f32[64,128]"}, "perm=[1,0]", {{0}}}},
        {"permute", {{"f32[3,67,130]"}, "perm=[0,2,1]", {{0}}}},
        {"permute", {{"f32[2,5,16,64]"}, "perm=[0,2,3,1]", {{0}}}},
        {"permute", {{"f32[2,16,8,72]"}, "perm=[2,3,0,1]", {{0}}}},
        {"permute", {{"f32[2,9,33,8]"}, "perm=[0,2,1,3]", {{0}}}},
        {"permute", {{"u8[80,144]"}, "perm=[1,0]", {{0, 255, false}}}},
        {"permute", {{"i64[34,70]"}, "perm=[1,0]", {{-9, 9, false}}}},
        {"permute", {{"f32[3,4,5,6,7]"}, "perm=[4,3,2,1,0]", {{0}}}},
        {"slice", {{"f32[5,9,33]"}, "start=[0,1,0], stop=[5,9,33], step=[2,1,7]", {{0}}}},
        {"slice", {{"f32[6,7,64]"}, "start=[1,1,16], stop=[6,6,48], step=[1,2,1]", {{0}}}},
        {"flip", {{"f32[9,33]"}, "axes=[0,1]", {{0}}}},
        {"flip", {{"f32[9,5,64]"}, "axes=[1]", {{0}}}},
        {"broadcast", {{"f32[7,1,64]"}, "shape=[3,7,5,64]", {{0}}}},
        {"broadcast", {{"f32[33,1]"}, "shape=[33,65]", {{0}}}},
        {"concat", {{"f32[3,5,64]", "f32[3,5,32]", "f32[3,5,8]"}, "axis=2", {{0}}}},
        {"concat", {{"f32[3,5,33]", "f32[3,5,2]"}, "axis=2", {{0}}}},
        {"concat", {{"f32[9,0,8]", "f32[9,4,8]", "f32[9,0,8]", "f32[9,1,8]"}, "axis=1", {{0}}}},
        {"pad",
         {{"f32[2,9,7,64]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,0,0,0], value=0.5", {{0}}}},
        {"pad", {{"f32[2,9,7,5]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,1,0,0], value=-2", {{0}}}},
        {"pad", {{"f32[3,64]"}, "lo=[0,32], hi=[1,16], inner=[2,0], value=1", {{0}}}},
        {"bezier", {{"f32[37,320]"}, "silu_points=true", {{-3, 3, false}}}},
        {"bezier_bwd", {{"f32[7,320]", "f32[7,64]"}, "silu_points=true", {{-3, 3, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* ---- more than a launch can have -------------------------------------------------------- */
/* A GPU whose 32-bit counts and grid sides are tiny: the paths that tensors of 2^31 elements and
 * batches of 65536 take on a real GPU. */
static void check_limited(const cuda_op_case *list, int side, int64_t items)
{
    pl_sim_limits(side, items);
    cuda_op_check_list(list);
    pl_sim_limits(PL_SIM_SIDE, PL_SIM_ITEMS);
}

TEST(cuda_ops_larger_than_a_launch_match_the_cpu)
{
    static const char *const names[] = {"permute",
                                        "slice",
                                        "flip",
                                        "broadcast",
                                        "concat",
                                        "pad",
                                        "unfold",
                                        "fold",
                                        "max_pool",
                                        "max_pool_bwd",
                                        "max_pool_gather",
                                        "avg_pool",
                                        "avg_pool_bwd",
                                        "adaptive_avg_pool",
                                        "adaptive_avg_pool_bwd",
                                        "resize",
                                        "resize_bwd",
                                        "depthwise_per_sample",
                                        "depthwise_per_sample_dx",
                                        "depthwise_per_sample_dw"};
    static const cuda_op_case list[] = {
        {"permute", {{"f32[3,5,16,17]"}, "perm=[0,1,3,2]", {{0}}}},
        {"concat", {{"f32[3,5,8]", "f32[3,5,32]", "f32[3,5,7]"}, "axis=2", {{0}}}},
        {"pad",
         {{"f32[2,9,7,8]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,1,0,0], value=0.5", {{0}}}},
        {"pad", {{"f32[5,64]"}, "lo=[1,0], hi=[2,0], inner=[0,0], value=1", {{0}}}},
        {"unfold", {{"f32[5,6,5,8]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"fold", {{"f32[5,30,72]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1], in=[6,5]", {{0}}}},
        {"max_pool",
         {{"f32[5,7,6,8]"}, "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"max_pool_bwd",
         {{"f32[5,5,4,8]", "u8[5,5,4,8]"}, "kernel=[2,2], in=[10,8]", {{0}, {0, 4, false}}}},
        {"max_pool",
         {{"f32[2,11,13,8]"}, "kernel=[3,5], stride=[2,2], pad_lo=[1,2], pad_hi=[1,2]", {{0}}}},
        {"max_pool_bwd",
         {{"f32[2,6,7,8]", "u8[2,6,7,8]"},
          "kernel=[3,5], stride=[2,2], pad_lo=[1,2], pad_hi=[1,2], in=[11,13]",
          {{0}, {0, 15, false}}}},
        {"max_pool_bwd",
         {{"f32[2,3,4,8]", "u8[2,3,4,8]"},
          "kernel=[7,7], stride=[2,1], pad_lo=[3,2], pad_hi=[3,2], in=[6,6]",
          {{0}, {0, 49, false}}}},
        {"avg_pool",
         {{"f32[5,9,9,8]"}, "kernel=[9,9], pad_lo=[4,4], pad_hi=[4,4], count_pad=false", {{0}}}},
        {"resize", {{"f32[5,5,4,8]"}, "size=[9,11], mode=linear, align_corners=false", {{0}}}},
        {"conv",
         {{"f32[7,5,4,64]", "f32[64,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], groups=64", {{0}}}},
        {"conv", {{"f32[2,2,3,400]", "f32[400,1,2,1]"}, "groups=400", {{0}}}},
        CUDA_OP_END};
    const int64_t items[] = {5, 400, 3000}; /* of a row, of an image, of some images */

    for (size_t i = 0; i < sizeof items / sizeof *items; i++) check_limited(list, 3, items[i]);
    pl_sim_limits(3, 7);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pl_op *op = pl_op_find(names[i]);
        for (int k = 0; op->cases[k].attr; k++) cuda_op_check_case(op, &op->cases[k], k);
    }
    pl_sim_limits(PL_SIM_SIDE, PL_SIM_ITEMS);
}

void pl_sim_split(bool on);

TEST(cuda_ops_attention_in_slices_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"attention", {{"f32[3,3,2,8]", "f32[3,5,2,8]", "f32[3,5,2,8]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[3,3,2,8]", "f32[3,5,2,8]", "f32[3,5,2,8]", "f32[3,3,2,8]", "f32[3,2,3]",
           "f32[3,3,2,8]", "f32[3,2,3]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,1,3]",
           "f32[3,3,1,7]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        CUDA_OP_END};

    check_limited(list, 5, PL_SIM_ITEMS);
    pl_sim_split(true);
    check_limited(list, 5, PL_SIM_ITEMS);
    pl_sim_split(false);
}

/* Heads of more dims than a block's threads hold. */
TEST(cuda_ops_attention_of_wide_heads_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"attention",
         {{"f32[1,2,1,1100]", "f32[1,3,1,1100]", "f32[1,3,1,1100]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[1,2,1,1100]", "f32[1,3,1,1100]", "f32[1,3,1,1100]", "f32[1,2,1,1100]", "f32[1,1,2]",
           "f32[1,2,1,1100]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* Parts of rows: by tensor cores, and copied out for kernels that want separate tensors. */
TEST(cuda_ops_attention_of_packed_rows_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"attention_rows",
         {{"bf16[2,70,96]"}, "heads=2, q_at=0, k_at=32, v_at=64, step=16", {{0}}}},
        {"attention_rows",
         {{"f32[1,37,60]"}, "heads=2, q_at=20, k_at=0, v_at=10, step=30, causal=true", {{0}}}},
        {"attention_rows_bwd",
         {{"f16[2,40,96]", "f16[2,40,2,16]", "f32[2,2,40]", "f16[2,40,2,16]"},
          "heads=2, q_at=64, k_at=32, v_at=0, step=16, causal=true",
          {{0}, {0}, {4, 6, false}}}},
        {"attention_rows_bwd",
         {{"f32[1,37,60]", "f32[1,37,2,10]", "f32[1,2,37]", "f32[1,37,2,10]"},
          "heads=2, q_at=20, k_at=0, v_at=10, step=30",
          {{0}, {0}, {4, 6, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* Masks of bool and of floats, broadcast in several ways, on every kernel that takes them. */
TEST(cuda_ops_attention_with_masks_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"attention_masked",
         {{"bf16[2,35,2,16]", "bf16[2,40,2,16]", "bf16[2,40,2,16]", "bool[2,1,35,40]"}, "", {{0}}}},
        {"attention_masked",
         {{"f16[1,20,2,40]", "f16[1,20,2,40]", "f16[1,20,2,40]", "f16[1,2,1,20]"},
          "causal=true",
          {{0}}}},
        {"attention_masked",
         {{"f32[1,20,2,10]", "f32[1,37,2,10]", "f32[1,37,2,10]", "f32[1,2,20,37]"}, "", {{0}}}},
        {"attention_masked_bwd",
         {{"bf16[2,35,2,16]", "bf16[2,40,2,16]", "bf16[2,40,2,16]", "bool[2,1,35,40]",
           "bf16[2,35,2,16]", "f32[2,2,35]", "bf16[2,35,2,16]"},
          "",
          {{0}, {0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_masked_bwd",
         {{"f16[1,20,2,40]", "f16[1,20,2,40]", "f16[1,20,2,40]", "f32[1,1,20,20]", "f16[1,20,2,40]",
           "f32[1,2,20]", "f16[1,20,2,40]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_masked_bwd",
         {{"f32[1,20,2,10]", "f32[1,37,2,10]", "f32[1,37,2,10]", "bool[1,2,20,37]",
           "f32[1,20,2,10]", "f32[1,2,20]", "f32[1,20,2,10]", "f32[1,2,20]"},
          "",
          {{0}, {0}, {0}, {0}, {0}, {4, 6, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* More inputs than one launch joins. */
TEST(cuda_ops_concat_of_many_inputs_matches_the_cpu)
{
    enum { N = 37, ROWS = 3 };
    static int32_t x[N][ROWS * 4], got[ROWS * (N * 4)], want[ROWS * (N * 4)];
    const void *in[N];
    pl_type type[N], y = PL_TYPE(PL_I32, ROWS, 0);
    int64_t axis = 1, at = 0;

    for (int k = 0; k < N; k++) {
        int64_t cols = k % 4;
        type[k] = PL_TYPE(PL_I32, ROWS, cols);
        in[k] = x[k];
        for (int64_t i = 0; i < ROWS * cols; i++) x[k][i] = (int32_t)(k * 100 + i);
        y.dim[1] += cols;
    }
    for (int k = 0; k < N; at += k % 4, k++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t i = 0; i < k % 4; i++) want[r * y.dim[1] + at + i] = x[k][r * (k % 4) + i];
    void *out[1] = {got};
    pl_call c = {.in_type = type,
                 .out_type = &y,
                 .in = in,
                 .out = out,
                 .attr = &axis,
                 .n_in = N,
                 .n_out = 1};
    CHECK_OK(pl_cuda_kernels_of("concat")->run(&c));
    for (int64_t i = 0; i < ROWS * y.dim[1]; i++) CHECK_INT(got[i], want[i]);
}

TEST(cuda_ops_large_windows_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"max_pool",
         {{"f32[2,17,13,64]"}, "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"max_pool", {{"f32[1,9,8,33]"}, "kernel=[2,3], stride=[2,1], pad_hi=[1,0]", {{0}}}},
        {"max_pool_bwd",
         {{"f32[2,9,7,64]", "u8[2,9,7,64]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1], in=[17,13]",
          {{0}, {0, 8, false}}}},
        {"max_pool_bwd",
         {{"f32[1,9,7,5]", "u8[1,9,7,5]"},
          "kernel=[3,2], stride=[1,2], pad_lo=[1,0], pad_hi=[1,0], in=[9,14]",
          {{0}, {0, 5, false}}}},
        {"max_pool_bwd",
         {{"f32[2,5,7,64]", "u8[2,5,7,64]"}, "kernel=[2,2], in=[10,14]", {{0}, {0, 4, false}}}},
        {"max_pool_bwd",
         {{"f32[1,3,5,7,3]", "u8[1,3,5,7,3]"},
          "kernel=[1,3,2], in=[3,15,14]",
          {{0}, {0, 6, false}}}},
        {"max_pool_gather",
         {{"f32[2,17,13,8]", "u8[2,9,7,8]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]",
          {{0}, {0, 9, false}}}},
        {"unfold", {{"f32[2,12,11,64]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"unfold", {{"f32[2,16,16,3]"}, "kernel=[4,4], stride=[4,4]", {{0}}}},
        {"unfold",
         {{"f32[1,13,12,5]"}, "kernel=[3,2], stride=[2,1], dilation=[2,3], pad_lo=[2,1]", {{0}}}},
        {"fold",
         {{"f32[2,132,576]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1], in=[12,11]", {{0}}}},
        {"fold",
         {{"f32[1,60,30]"},
          "kernel=[3,2], stride=[2,1], dilation=[2,3], pad_lo=[2,1], in=[13,12]",
          {{0}}}},
        {"avg_pool",
         {{"f32[2,17,13,64]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1], count_pad=false",
          {{0}}}},
        {"avg_pool", {{"f32[1,20,18,8]"}, "kernel=[9,9], stride=[1,1], count_pad=false", {{0}}}},
        {"avg_pool_bwd",
         {{"f32[1,12,10,8]"}, "kernel=[9,9], stride=[1,1], count_pad=true, in=[20,18]", {{0}}}},
        {"adaptive_avg_pool", {{"f32[2,33,31,64]"}, "size=[1,1]", {{0}}}},
        {"adaptive_avg_pool", {{"f32[2,33,31,3]"}, "size=[5,7]", {{0}}}},
        {"adaptive_avg_pool_bwd", {{"f32[2,5,7,8]"}, "size=[33,31]", {{0}}}},
        {"resize", {{"f32[2,9,11,64]"}, "size=[18,22], mode=nearest, align_corners=false", {{0}}}},
        {"resize", {{"f32[2,9,11,8]"}, "size=[18,22], mode=linear, align_corners=false", {{0}}}},
        {"resize", {{"f32[1,31,17,5]"}, "size=[12,40], mode=cubic, align_corners=false", {{0}}}},
        {"resize_bwd",
         {{"f32[2,18,22,64]"}, "size=[9,11], mode=nearest, align_corners=false", {{0}}}},
        {"resize_bwd",
         {{"f32[2,18,22,8]"}, "size=[9,11], mode=linear, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[2,13,7,8]"}, "size=[37,31], mode=linear, align_corners=true", {{0}}}},
        {"resize_bwd", {{"f32[1,36,44,8]"}, "size=[9,11], mode=cubic, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[1,31,17,3]"}, "size=[12,40], mode=cubic, align_corners=true", {{0}}}},
        {"resize_bwd",
         {{"f32[1,5,64,3]"}, "size=[40,1], mode=nearest, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[1,5,64,3]"}, "size=[1,1], mode=linear, align_corners=true", {{0}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

TEST(cuda_ops_large_lines_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"cumsum", {{"f32[3,1111]"}, "axis=1, reverse=false", {{0}}}},
        {"cumsum", {{"f32[2,700,3]"}, "axis=1, reverse=true", {{0}}}},
        {"cumsum", {{"f32[2,70,65]"}, "axis=1, reverse=true", {{0}}}},
        {"cumsum", {{"i32[5,700]"}, "axis=1, reverse=false", {{-9, 9, false}}}},
        {"argmax", {{"f32[9,1000]"}, "axis=1", {{0}}}},
        {"argmax", {{"f32[3,100,40]"}, "axis=1", {{0}}}},
        {"argmax", {{"i64[9,100]"}, "axis=1", {{-5, 5, false}}}},
        {"sum", {{"f32[7,33,5]"}, "axes=[0,2], keep=false", {{0}}}},
        {"sum", {{"i64[130,3]"}, "axes=[0], keep=true", {{-9, 9, false}}}},
        {"max_over", {{"f32[7,133]"}, "axes=[1], keep=false", {{0}}}},
        {"min_over", {{"i32[133,7]"}, "axes=[0], keep=false", {{-99, 99, false}}}},
        {"moments", {{"f32[5,9,33]"}, "axes=[1,2], keep=false", {{0}}}},
        {"sort", {{"f32[3,1000]"}, "axis=1, count=-1, descending=true", {{0}}}},
        {"sort", {{"f32[2049]"}, "axis=0, count=-1, descending=false", {{0}}}},
        {"sort", {{"f32[2,9001]"}, "axis=1, count=-1, descending=true", {{0}}}},
        {"sort", {{"f32[5000,2]"}, "axis=0, count=7, descending=true", {{0}}}},
        {"sort", {{"i64[4100]"}, "axis=0, count=-1, descending=false", {{-99, 99, false}}}},
        {"sort", {{"u8[70,5]"}, "axis=0, count=-1, descending=false", {{0, 9, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

/* Rows longer than a block's reach, 16-bit logits with f32 sums, rows off 16 bytes, labels that are
 * ignored or out of range. */
TEST(cuda_ops_cross_entropy_matches_the_cpu)
{
    static const cuda_op_case list[] = {
        {"cross_entropy", {{"f32[3,5003]", "i32[3]"}, "z_loss=0.1", {{0}, {0, 5002, false}}}},
        {"cross_entropy",
         {{"bf16[9,1031]", "i64[9]", "f32[1031]"},
          "smoothing=0.1, ignore=1, ignores=true, weighted=true",
          {{-3, 3, false}, {0, 1, false}, {0.5, 2, false}}}},
        {"cross_entropy", {{"f16[4,9,13]", "i32[4,9]"}, "", {{0}, {-1, 13, false}}}},
        {"cross_entropy_bwd",
         {{"f32[3,5003]", "i32[3]", "f32[3]", "f32[3]"},
          "z_loss=0.1",
          {{-3, 3, false}, {0, 5002, false}, {8, 9, false}}}},
        {"cross_entropy_bwd",
         {{"bf16[9,1031]", "i64[9]", "f32[9]", "f32[9]", "f32[1031]"},
          "smoothing=0.1, ignore=1, ignores=true, weighted=true",
          {{-3, 3, false}, {0, 1, false}, {7, 8, false}, {0}, {0.5, 2, false}}}},
        {"cross_entropy_bwd",
         {{"f16[4,9,13]", "i32[4,9]", "f32[4,9]", "f32[4,9]", "f32[4,9]"},
          "",
          {{0}, {-1, 13, false}, {2, 3, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}

TEST(cuda_ops_large_indices_match_the_cpu)
{
    static const cuda_op_case list[] = {
        {"take", {{"f32[50,64]", "i32[70]"}, "", {{0, 0, false}, {-2, 51, false}}}},
        {"take", {{"f32[50,33]", "i64[7,9]"}, "", {{0, 0, false}, {-2, 51, false}}}},
        {"take", {{"u8[50,6]", "i64[7,9]"}, "", {{0, 255, false}, {-2, 51, false}}}},
        {"take_along",
         {{"f32[3,70,33]", "i32[3,40,33]"}, "axis=1", {{0, 0, false}, {-1, 70, false}}}},
        {"scatter_add", {{"f32[70,64]", "i32[70]"}, "rows=50", {{0, 0, false}, {-2, 51, false}}}},
        {"scatter_add", {{"f32[5000,3]", "i64[5000]"}, "rows=9", {{0, 0, false}, {-1, 9, false}}}},
        {"scatter_add", {{"i32[300,5]", "i64[300]"}, "rows=9", {{-9, 9, false}, {-1, 9, false}}}},
        {"scatter_add", {{"bf16[900,8]", "i32[900]"}, "rows=3", {{0, 0, false}, {-1, 2, false}}}},
        {"scatter_add", {{"i64[700,3]", "i64[700]"}, "rows=2", {{-9, 9, false}, {0, 1, false}}}},
        {"put_along_add",
         {{"f32[3,40,33]", "i32[3,40,33]"}, "axis=1, size=70", {{0, 0, false}, {-1, 70, false}}}},
        {"put_along_add",
         {{"f32[3,400]", "i64[3,400]"}, "axis=1, size=70", {{0, 0, false}, {-1, 70, false}}}},
        {"put_along_add",
         {{"f32[2500,2]", "i32[2500,2]"}, "axis=0, size=3000", {{0, 0, false}, {-1, 3000, false}}}},
        {"put_along_add",
         {{"i64[400]", "i32[400]"}, "axis=0, size=7", {{-9, 9, false}, {-1, 7, false}}}},
        {"random_uniform", {{"i64[2]"}, "dtype=f32, shape=[1037], stream=3", {{-99, 99, false}}}},
        {"random_uniform", {{"i64[2]"}, "dtype=bf16, shape=[1037], stream=3", {{-99, 99, false}}}},
        {"random_normal", {{"i64[2]"}, "dtype=f32, shape=[4099], stream=3", {{-99, 99, false}}}},
        {"random_permutation", {{"i64[2]"}, "n=1000, stream=3", {{0, 99, false}}}},
        {"random_permutation", {{"i64[2]"}, "n=12000, stream=3", {{0, 99, false}}}},
        CUDA_OP_END};
    cuda_op_check_list(list);
}
