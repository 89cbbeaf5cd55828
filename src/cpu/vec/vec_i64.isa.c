/* vec_i64.isa.c - scalar functions over i64 registers; see vec_int.h. */
#include <stdint.h>

typedef int64_t T;
typedef uint64_t U;
#define TABLE pl_vec_i64

#include "cpu/vec/vec_int.h"
