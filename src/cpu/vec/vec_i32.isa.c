/* vec_i32.isa.c - scalar functions over i32 registers; see vec_int.h. */
#include <stdint.h>

typedef int32_t T;
typedef uint32_t U;
#define TABLE pl_vec_i32

#include "cpu/vec/vec_int.h"
