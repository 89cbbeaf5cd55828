/* endpoints.c - the ends of a program: input and state bring values in, assign and output take them
 * out. None has a kernel: the plan gives an input its place, a state value is its slot's memory, an
 * assigned value is computed in (or copied to) the slot's memory, an output stays alive to the end.
 */
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

#include <string.h>

static const pl_attr input_attrs[] = {
    PL_ATTR(pl_source_attr, name, TEXT),
    PL_ATTR(pl_source_attr, dtype, DTYPE),
    PL_ATTR(pl_source_attr, shape, DIMS),
    PL_ATTR_END,
};

static pl_status input_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)in, (void)n_in;
    const pl_source_attr *a = attr;
    PL_FAIL_IF(!a->name[0], PL_ERR_ARG, "an input needs a name");
    PL_FAIL_IF(a->dtype >= PL_N_DTYPES, PL_ERR_ARG, "the element type is invalid");
    for (int i = 0; i < a->shape.n; i++)
        PL_FAIL_IF(a->shape.v[i] < 0, PL_ERR_SHAPE, "input \"%s\" has size %lld", a->name,
                   (long long)a->shape.v[i]);
    out[0] = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    return PL_OK;
}

const pl_op pl_op_input = {
    .name = "input",
    .n_out = 1,
    .flags = PL_OP_SOURCE | PL_OP_NO_GRAD,
    .attr_bytes = sizeof(pl_source_attr),
    .attrs = input_attrs,
    .infer = input_infer,
};

pl_val pl_input(pl_graph *g, const char *name, pl_type type)
{
    pl_source_attr a;
    memset(&a, 0, sizeof a);
    a.name = name;
    a.dtype = type.dtype;
    a.shape.n = type.rank;
    memcpy(a.shape.v, type.dim, sizeof a.shape.v);
    return pl_build1(g, &pl_op_input, &a, 0, NULL);
}

static const pl_attr slot_attrs[] = {
    PL_ATTR(pl_slot_attr, slot, SLOT),
    PL_ATTR(pl_slot_attr, dtype, DTYPE),
    PL_ATTR(pl_slot_attr, shape, DIMS),
    PL_ATTR_END,
};

static pl_slot_attr slot_attr_of(pl_graph *g, int slot)
{
    pl_slot_attr a;
    memset(&a, 0, sizeof a);
    const pl_type *t = &pl_store_slot(g->store, slot)->type;
    a.slot = slot;
    a.dtype = t->dtype;
    a.shape.n = t->rank;
    memcpy(a.shape.v, t->dim, sizeof a.shape.v);
    return a;
}

static bool slot_usable(pl_graph *g, int slot)
{
    if (!g || g->status != PL_OK) return false;
    if (slot >= 0 && slot < pl_store_count(g->store)) return true;
    if (pl_store_status(g->store) != PL_OK)
        pl_graph_adopt_error(g, pl_store_status(g->store));
    else
        pl_graph_fail(g, PL_ERR_ARG, "no slot %d in the store", slot);
    return false;
}

static pl_status state_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)in, (void)n_in;
    const pl_slot_attr *a = attr;
    out[0] = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    return PL_OK;
}

const pl_op pl_op_state = {
    .name = "state",
    .n_out = 1,
    .flags = PL_OP_SOURCE | PL_OP_NO_GRAD,
    .attr_bytes = sizeof(pl_slot_attr),
    .attrs = slot_attrs,
    .infer = state_infer,
};

pl_val pl_state(pl_graph *g, int slot)
{
    if (!slot_usable(g, slot)) return PL_NO_VAL;
    pl_slot_attr a = slot_attr_of(g, slot);
    return pl_build1(g, &pl_op_state, &a, 0, NULL);
}

pl_val pl_state_codes(pl_graph *g, int slot)
{
    pl_slot_attr a = slot_attr_of(g, slot);
    pl_type t = pl_slot_stored(pl_store_slot(g->store, slot));
    a.dtype = t.dtype;
    a.shape.n = t.rank;
    memcpy(a.shape.v, t.dim, sizeof a.shape.v);
    return pl_build1(g, &pl_op_state, &a, 0, NULL);
}

static pl_status assign_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in, (void)out;
    const pl_slot_attr *a = attr;
    pl_type want = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    char x[96], y[96];
    PL_FAIL_IF(!pl_type_equal(&in[0], &want), PL_ERR_SHAPE,
               "a value of type %s cannot be assigned to a slot of type %s",
               pl_type_text(&in[0], x, sizeof x), pl_type_text(&want, y, sizeof y));
    return PL_OK;
}

const pl_op pl_op_assign = {
    .name = "assign",
    .min_in = 1,
    .max_in = 1,
    .flags = PL_OP_EFFECT,
    .attr_bytes = sizeof(pl_slot_attr),
    .attrs = slot_attrs,
    .infer = assign_infer,
};

void pl_assign(pl_graph *g, int slot, pl_val v)
{
    if (!slot_usable(g, slot)) return;
    pl_slot_attr a = slot_attr_of(g, slot);
    pl_build(g, &pl_op_assign, &a, 1, &v, NULL);
}

static const pl_attr output_attrs[] = {PL_ATTR(pl_output_attr, name, TEXT), PL_ATTR_END};

static pl_status output_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)in, (void)n_in, (void)out;
    PL_FAIL_IF(!((pl_output_attr *)attr)->name[0], PL_ERR_ARG, "an output needs a name");
    return PL_OK;
}

const pl_op pl_op_output = {
    .name = "output",
    .min_in = 1,
    .max_in = 1,
    .flags = PL_OP_EFFECT,
    .attr_bytes = sizeof(pl_output_attr),
    .attrs = output_attrs,
    .infer = output_infer,
};

void pl_output(pl_graph *g, const char *name, pl_val v)
{
    pl_output_attr a = {name};
    pl_build(g, &pl_op_output, &a, 1, &v, NULL);
}
