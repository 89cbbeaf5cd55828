/* tile_i32.isa.c - scalar functions over i32 registers; see tile_int.h. */
#include <stdint.h>

typedef int32_t T;
typedef uint32_t U;
#define TABLE pl_vec_i32

#include "cpu/tile/tile_int.h"
