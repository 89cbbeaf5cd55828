/* tile_check.c - what the interpreter requires of a group: limits, arguments that come before their
 * use, dtypes that agree, functions that exist for their dtype.
 */
#include "cpu/tile/tile_plan.h"

bool pl_tile_has(pl_scalar_fn fn, pl_dtype dtype)
{
    if (fn >= PL_N_SCALARS || dtype >= PL_N_DTYPES) return false;
    if (fn == PL_SCALAR_CAST) return true;
    bool logical =
        fn == PL_SCALAR_NOT || fn == PL_SCALAR_AND || fn == PL_SCALAR_OR || fn == PL_SCALAR_XOR;
    if (logical) return dtype == PL_BOOL;
    bool ordered = fn == PL_SCALAR_MAX || fn == PL_SCALAR_MIN || fn == PL_SCALAR_SELECT ||
                   pl_scalar_gives_bool(fn);
    if (dtype == PL_BOOL && !ordered) return false;
    return pl_vec_best()->map[pl_vec_class_of(dtype)]->fn[fn][0] != NULL;
}

static pl_status check_map(const pl_fused *p, int i)
{
    const pl_fused_instr *x = &p->instr[i];
    if (x->fn == PL_SCALAR_CAST) return PL_OK;
    bool select = x->fn == PL_SCALAR_SELECT;
    pl_dtype of = p->instr[x->arg[select ? 1 : 0]].dtype;
    for (int k = 0; k < x->n_arg; k++) {
        pl_dtype want = select && k == 0 ? PL_BOOL : of, got = p->instr[x->arg[k]].dtype;
        PL_FAIL_IF(got != want, PL_ERR_ARG, "tile: instruction %d (%s): operand %d is %s, not %s",
                   i, pl_scalar_name(x->fn), k, pl_dtype_name(got), pl_dtype_name(want));
    }
    pl_dtype result = pl_scalar_gives_bool(x->fn) ? PL_BOOL : of;
    PL_FAIL_IF(x->dtype != result, PL_ERR_ARG, "tile: instruction %d (%s) gives %s, not %s", i,
               pl_scalar_name(x->fn), pl_dtype_name(result), pl_dtype_name(x->dtype));
    PL_FAIL_IF(!pl_tile_has(x->fn, of), PL_ERR_UNSUPPORTED, "tile: function %s does not take %s",
               pl_scalar_name(x->fn), pl_dtype_name(of));
    return PL_OK;
}

/* Returns the number of arguments that the instruction must have. */
static int arity(const pl_fused_instr *x)
{
    switch (x->code) {
    case PL_FUSED_MAP: return pl_scalar_arity(x->fn);
    case PL_FUSED_ROW_REDUCE:
    case PL_FUSED_ROW_VAR: return 1;
    case PL_FUSED_LOAD:
    case PL_FUSED_RAMP:
    case PL_FUSED_DRAW: break;
    }
    return 0;
}

static pl_status check_row(const pl_fused *p, int i)
{
    const pl_fused_instr *x = &p->instr[i], *src = &p->instr[x->arg[0]];
    PL_FAIL_IF(p->row_rank == 0, PL_ERR_ARG,
               "tile: instruction %d reduces rows, but the group has no rows", i);
    bool moments = x->code == PL_FUSED_ROW_VAR || x->reduce == PL_REDUCE_MOMENTS;
    if (x->code == PL_FUSED_ROW_VAR)
        PL_FAIL_IF(
            src->code != PL_FUSED_ROW_REDUCE || src->reduce != PL_REDUCE_MOMENTS, PL_ERR_ARG,
            "tile: instruction %d computes a variance, but its argument is not a reduction to "
            "moments",
            i);
    PL_FAIL_IF(moments && !pl_dtype_is_float(src->dtype), PL_ERR_UNSUPPORTED,
               "tile: moments need a float type, got %s", pl_dtype_name(src->dtype));
    PL_FAIL_IF(pl_vec_class_of(x->dtype) != pl_vec_class_of(src->dtype), PL_ERR_ARG,
               "tile: instruction %d cannot reduce %s to %s", i, pl_dtype_name(src->dtype),
               pl_dtype_name(x->dtype));
    return PL_OK;
}

static pl_status check_instr(const pl_fused *p, int i)
{
    const pl_fused_instr *x = &p->instr[i];
    PL_FAIL_IF(x->code > PL_FUSED_ROW_VAR || x->dtype >= PL_N_DTYPES, PL_ERR_ARG,
               "tile: instruction %d has the unknown code %d", i, (int)x->code);
    int n = arity(x);
    PL_FAIL_IF((x->code == PL_FUSED_MAP && n == 0) || x->n_arg != n, PL_ERR_ARG,
               "tile: instruction %d (%s) has a wrong number of arguments: %d", i,
               pl_scalar_name(x->fn), x->n_arg);
    for (int k = 0; k < n; k++)
        PL_FAIL_IF(x->arg[k] < 0 || x->arg[k] >= i, PL_ERR_ARG,
                   "tile: instruction %d reads instruction %d, which does not come before it", i,
                   x->arg[k]);
    if (x->code == PL_FUSED_MAP) return check_map(p, i);
    if (x->code == PL_FUSED_ROW_REDUCE || x->code == PL_FUSED_ROW_VAR) return check_row(p, i);
    if (x->code == PL_FUSED_LOAD)
        PL_FAIL_IF(x->operand < 0 || x->operand >= p->n_in || p->in[x->operand].dtype != x->dtype,
                   PL_ERR_ARG,
                   "tile: instruction %d loads operand %d, which is missing or has another type", i,
                   x->operand);
    if (x->code == PL_FUSED_DRAW)
        PL_FAIL_IF(
            x->operand < 0 || x->operand >= p->n_in || p->in[x->operand].dtype != PL_I64 ||
                !pl_dtype_is_float(x->dtype),
            PL_ERR_ARG,
            "tile: instruction %d draws %s with key operand %d; a draw has a float type and an i64 "
            "key",
            i, pl_dtype_name(x->dtype), x->operand);
    return PL_OK;
}

static pl_status check_output(const pl_fused *p, int o)
{
    const pl_fused_output *x = &p->out[o];
    PL_FAIL_IF(x->src < 0 || x->src >= p->n_instr || x->dtype >= PL_N_DTYPES ||
                   x->kind > PL_FUSED_REDUCE,
               PL_ERR_ARG,
               "tile: output %d is of instruction %d: no such instruction, type or kind of output",
               o, x->src);
    PL_FAIL_IF(x->kind == PL_FUSED_ROWS && p->row_rank == 0, PL_ERR_ARG,
               "tile: output %d has one value per row, but the group has no rows", o);
    PL_FAIL_IF(x->bits && (x->kind != PL_FUSED_STORE || x->dtype != PL_BOOL), PL_ERR_ARG,
               "tile: output %d is %s stored as bits; only a stored bool may be", o,
               pl_dtype_name(x->dtype));
    PL_FAIL_IF(x->kind == PL_FUSED_REDUCE && x->mask >> p->rank, PL_ERR_ARG,
               "tile: output %d reduces dimensions %#x, but the group has %d", o, x->mask, p->rank);
    pl_dtype src = p->instr[x->src].dtype;
    PL_FAIL_IF(x->kind == PL_FUSED_REDUCE && x->reduce == PL_REDUCE_MOMENTS &&
                   !pl_dtype_is_float(src),
               PL_ERR_UNSUPPORTED, "tile: moments need a float type, got %s", pl_dtype_name(src));
    return PL_OK;
}

pl_status pl_tile_check(const pl_fused *p)
{
    PL_FAIL_IF(p->rank < 0 || p->row_rank < 0 || p->row_rank > p->rank || p->n_in < 0 ||
                   p->n_instr < 0 || p->n_out < 0,
               PL_ERR_ARG, "tile: a count is negative, or rank %d is below row rank %d", p->rank,
               p->row_rank);
    PL_FAIL_IF(
        p->rank > PL_FUSED_RANK || p->n_in > PL_TILE_INPUTS || p->n_out > PL_TILE_OUTPUTS ||
            p->n_instr > PL_TILE_INSTRS,
        PL_ERR_UNSUPPORTED,
        "tile: the group is too large: %d dimensions, %d operands, %d instructions, %d outputs",
        p->rank, p->n_in, p->n_instr, p->n_out);
    int64_t total = 1, row = 1;
    for (int d = 0; d < p->rank; d++) {
        PL_FAIL_IF(p->dim[d] < 0 || __builtin_mul_overflow(total, p->dim[d], &total), PL_ERR_ARG,
                   "tile: dimension %d is %lld: negative, or the group is too large", d,
                   (long long)p->dim[d]);
        if (d >= p->rank - p->row_rank) row *= p->dim[d];
    }
    PL_FAIL_IF(p->row_rank && row > PL_TILE_ROW, PL_ERR_UNSUPPORTED,
               "tile: a row has %lld elements; at most %d are supported", (long long)row,
               PL_TILE_ROW);
    for (int i = 0; i < p->n_in; i++)
        PL_FAIL_IF(p->in[i].dtype >= PL_N_DTYPES || (p->in[i].bits && p->in[i].dtype != PL_BOOL),
                   PL_ERR_ARG, "tile: operand %d", i);
    for (int i = 0; i < p->n_instr; i++) PL_TRY(check_instr(p, i));
    for (int o = 0; o < p->n_out; o++) PL_TRY(check_output(p, o));
    return PL_OK;
}
