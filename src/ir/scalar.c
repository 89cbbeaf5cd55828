/* scalar.c - name, arity and result of each scalar function, expanded from scalar.def. */
#include "ir/scalar.h"

#include <stdint.h>

enum { RESULT_SAME, RESULT_BOOL };

static const struct {
    const char *name;
    int8_t arity, result;
} rows[PL_N_SCALARS] = {
    [PL_SCALAR_NONE] = {"none", 0, RESULT_SAME},
#define PL_SCALAR(NAME, name, arity, result) [PL_SCALAR_##NAME] = {#name, arity, RESULT_##result},
#include "ir/scalar.def"
    [PL_SCALAR_CAST] = {"cast", 1, RESULT_SAME},
};

int pl_scalar_arity(pl_scalar_fn fn)
{
    return fn < PL_N_SCALARS ? rows[fn].arity : 0;
}

bool pl_scalar_gives_bool(pl_scalar_fn fn)
{
    return fn < PL_N_SCALARS && rows[fn].result == RESULT_BOOL;
}

const char *pl_scalar_name(pl_scalar_fn fn)
{
    return rows[fn < PL_N_SCALARS ? fn : PL_SCALAR_NONE].name;
}
