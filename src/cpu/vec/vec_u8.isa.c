/* vec_u8.isa.c - scalar functions over u8 registers (u8 and bool); see vec_int.h. */
#include <stdint.h>

typedef uint8_t T;
typedef uint32_t U;
#define LOGICAL
#define TABLE pl_vec_u8

#include "cpu/vec/vec_int.h"
