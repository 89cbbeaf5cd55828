/* vec_isa.c - chooses the compiled set of loops that this machine runs. */
#include "cpu/vec/vec.h"

#include <stdlib.h>
#include <string.h>

#define SET(isa)                                                                                   \
 extern const pl_vec_map pl_vec_f32_##isa, pl_vec_f64_##isa, pl_vec_i32_##isa, pl_vec_i64_##isa,   \
     pl_vec_u8_##isa;                                                                              \
 extern const pl_vec_move pl_vec_move_##isa;                                                       \
 extern const pl_vec_acc pl_vec_acc_##isa;                                                         \
 extern const pl_vec_blocks pl_vec_blocks_##isa;                                                   \
 extern const pl_vec_chain pl_vec_chain_##isa;                                                     \
 static const pl_vec set_##isa = {#isa,                                                            \
                                  {&pl_vec_f32_##isa, &pl_vec_f64_##isa, &pl_vec_i32_##isa,        \
                                   &pl_vec_i64_##isa, &pl_vec_u8_##isa},                           \
                                  &pl_vec_move_##isa,                                              \
                                  &pl_vec_acc_##isa,                                               \
                                  &pl_vec_blocks_##isa,                                            \
                                  &pl_vec_chain_##isa};
SET(base)
SET(avx2)
SET(avx512)

/* The set also uses F16C, which every processor with AVX2 and FMA has and clang cannot test for. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

const pl_vec *pl_vec_best(void)
{
    const char *want = getenv("PL_CPU_ISA");
    if (want && strcmp(want, "base") == 0) return &set_base;
    bool below = want && strcmp(want, "avx2") == 0;
    if (!below && has_avx512()) return &set_avx512;
    return has_avx2() ? &set_avx2 : &set_base;
}
