/* op_table.c - expands scalar.def and ops.def into the table of all ops. */
#include "ops/core/ops.h"

#include <string.h>

static const pl_op *const table[] = {
#define PL_SCALAR(NAME, name, arity, result) &pl_op_##name,
#include "ir/scalar.def"
#define PL_OP(name) &pl_op_##name,
#include "ir/ops.def"
};

int pl_op_count(void)
{
    return (int)(sizeof table / sizeof table[0]);
}

const pl_op *pl_op_at(int i)
{
    return table[i];
}

const pl_op *pl_op_find(const char *name)
{
    for (int i = 0; i < pl_op_count(); i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}
