/* vec_isa.c - chooses the compiled set of loops that this machine runs. */
#include "cpu/vec/vec.h"

#include "cpu/isa/isa.h"

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
PL_EACH_ISA(SET)

const pl_vec *pl_vec_best(void)
{
    static const pl_vec *const sets[] = PL_ISA_SETS(set);
    return sets[pl_cpu_level()];
}
