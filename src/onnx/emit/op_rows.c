/* op_rows.c - the table of ops (ops.def), searched by name. */
#include "onnx/emit/emit.h"

#include <string.h>

static const pl_ox_op table[] = {
#define PL_OX_OP(name, domain, emit, about) {name, domain, pl_ox_emit_##emit, about},
#include "onnx/emit/ops.def"
};
enum { N_OPS = sizeof table / sizeof *table };

const pl_ox_op *pl_ox_op_find(const char *domain, const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (strcmp(table[i].name, name) == 0 && strcmp(table[i].domain, domain) == 0)
            return &table[i];
    return NULL;
}

bool pl_onnx_op_get(int i, pl_onnx_op *out)
{
    if (i < 0 || i >= N_OPS) return false;
    *out = (pl_onnx_op){table[i].name, table[i].domain, table[i].about};
    return true;
}
