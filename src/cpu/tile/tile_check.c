/* tile_check.c - what a tile program must be: limits, operands that come before their use, dtypes
 * that agree, functions that their dtype has.
 */
#include "cpu/tile/tile_plan.h"

#pragma push_macro("PL_SCALAR")
#undef PL_SCALAR
enum { RESULT_SAME, RESULT_BOOL };
static const struct {
    const char *name;
    int8_t arity, result;
} fn_rows[PL_TILE_N_FNS] = {
#define PL_SCALAR(NAME, name, arity, result) {#name, arity, RESULT_##result},
#include "ir/scalar.def"
#undef PL_SCALAR
};
#pragma pop_macro("PL_SCALAR")

int pl_tile_arity(pl_tile_fn fn)
{
    return fn_rows[fn].arity;
}

bool pl_tile_gives_bool(pl_tile_fn fn)
{
    return fn_rows[fn].result == RESULT_BOOL;
}

bool pl_tile_has(pl_tile_fn fn, pl_dtype dtype)
{
    if (fn >= PL_TILE_N_FNS || dtype >= PL_N_DTYPES) return false;
    bool logical =
        fn == PL_TILE_FN_NOT || fn == PL_TILE_FN_AND || fn == PL_TILE_FN_OR || fn == PL_TILE_FN_XOR;
    if (logical) return dtype == PL_BOOL;
    bool ordered = fn == PL_TILE_FN_MAX || fn == PL_TILE_FN_MIN || fn == PL_TILE_FN_SELECT ||
                   fn_rows[fn].result == RESULT_BOOL;
    if (dtype == PL_BOOL && !ordered) return false;
    return pl_vec_best()->map[pl_vec_class_of(dtype)]->fn[fn][0] != NULL;
}

static pl_status check_map(const pl_tile_program *p, int i)
{
    const pl_tile_instr *x = &p->instr[i];
    PL_FAIL_IF(x->fn >= PL_TILE_N_FNS, PL_ERR_ARG, "tile: instruction %d has no function", i);
    bool select = x->fn == PL_TILE_FN_SELECT;
    pl_dtype of = p->instr[x->arg[select ? 1 : 0]].dtype;
    for (int k = 0; k < fn_rows[x->fn].arity; k++) {
        pl_dtype want = select && k == 0 ? PL_BOOL : of, got = p->instr[x->arg[k]].dtype;
        PL_FAIL_IF(got != want, PL_ERR_ARG, "tile: instruction %d (%s): operand %d is %s, not %s",
                   i, fn_rows[x->fn].name, k, pl_dtype_name(got), pl_dtype_name(want));
    }
    pl_dtype result = fn_rows[x->fn].result == RESULT_BOOL ? PL_BOOL : of;
    PL_FAIL_IF(x->dtype != result, PL_ERR_ARG, "tile: instruction %d (%s) gives %s, not %s", i,
               fn_rows[x->fn].name, pl_dtype_name(result), pl_dtype_name(x->dtype));
    PL_FAIL_IF(!pl_tile_has(x->fn, of), PL_ERR_UNSUPPORTED, "tile: no %s of %s",
               fn_rows[x->fn].name, pl_dtype_name(of));
    return PL_OK;
}

static int arity(const pl_tile_instr *x)
{
    switch (x->code) {
    case PL_TILE_SCALAR: return x->fn < PL_TILE_N_FNS ? fn_rows[x->fn].arity : 0;
    case PL_TILE_CAST:
    case PL_TILE_ROW_REDUCE:
    case PL_TILE_ROW_VAR: return 1;
    case PL_TILE_LOAD:
    case PL_TILE_IMM:
    case PL_TILE_IOTA:
    case PL_TILE_DRAW: break;
    }
    return 0;
}

static pl_status check_row(const pl_tile_program *p, int i)
{
    const pl_tile_instr *x = &p->instr[i], *src = &p->instr[x->arg[0]];
    PL_FAIL_IF(p->row_rank == 0, PL_ERR_ARG, "tile: instruction %d needs rows", i);
    bool moments = x->code == PL_TILE_ROW_VAR || x->reduce == PL_TILE_MOMENTS;
    if (x->code == PL_TILE_ROW_VAR)
        PL_FAIL_IF(src->code != PL_TILE_ROW_REDUCE || src->reduce != PL_TILE_MOMENTS, PL_ERR_ARG,
                   "tile: instruction %d is the variance of no moments", i);
    PL_FAIL_IF(moments && !pl_dtype_is_float(src->dtype), PL_ERR_UNSUPPORTED,
               "tile: no moments of %s", pl_dtype_name(src->dtype));
    PL_FAIL_IF(pl_vec_class_of(x->dtype) != pl_vec_class_of(src->dtype), PL_ERR_ARG,
               "tile: instruction %d reduces %s to %s", i, pl_dtype_name(src->dtype),
               pl_dtype_name(x->dtype));
    return PL_OK;
}

static pl_status check_instr(const pl_tile_program *p, int i)
{
    const pl_tile_instr *x = &p->instr[i];
    PL_FAIL_IF(x->code > PL_TILE_ROW_VAR || x->dtype >= PL_N_DTYPES, PL_ERR_ARG,
               "tile: instruction %d has code %d", i, (int)x->code);
    for (int k = 0; k < arity(x); k++)
        PL_FAIL_IF(x->arg[k] < 0 || x->arg[k] >= i, PL_ERR_ARG,
                   "tile: instruction %d reads instruction %d", i, x->arg[k]);
    if (x->code == PL_TILE_SCALAR) return check_map(p, i);
    if (x->code == PL_TILE_ROW_REDUCE || x->code == PL_TILE_ROW_VAR) return check_row(p, i);
    if (x->code == PL_TILE_LOAD)
        PL_FAIL_IF(x->index < 0 || x->index >= p->n_in || p->in[x->index].dtype != x->dtype,
                   PL_ERR_ARG, "tile: instruction %d loads operand %d", i, x->index);
    if (x->code == PL_TILE_DRAW)
        PL_FAIL_IF(x->index < 0 || x->index >= p->n_in || p->in[x->index].dtype != PL_I64 ||
                       !pl_dtype_is_float(x->dtype),
                   PL_ERR_ARG, "tile: instruction %d draws %s with operand %d as key", i,
                   pl_dtype_name(x->dtype), x->index);
    return PL_OK;
}

static pl_status check_output(const pl_tile_program *p, int o)
{
    const pl_tile_output *x = &p->out[o];
    PL_FAIL_IF(x->src < 0 || x->src >= p->n_instr || x->dtype >= PL_N_DTYPES ||
                   x->kind > PL_TILE_REDUCE,
               PL_ERR_ARG, "tile: output %d of instruction %d", o, x->src);
    PL_FAIL_IF(x->kind == PL_TILE_ROWS && p->row_rank == 0, PL_ERR_ARG,
               "tile: output %d needs rows", o);
    PL_FAIL_IF(x->bits && (x->kind != PL_TILE_STORE || x->dtype != PL_BOOL), PL_ERR_ARG,
               "tile: output %d of %s as bits", o, pl_dtype_name(x->dtype));
    PL_FAIL_IF(x->kind == PL_TILE_REDUCE && x->mask >> p->rank, PL_ERR_ARG,
               "tile: output %d reduces dims %#x of %d", o, x->mask, p->rank);
    pl_dtype src = p->instr[x->src].dtype;
    PL_FAIL_IF(x->kind == PL_TILE_REDUCE && x->reduce == PL_TILE_MOMENTS && !pl_dtype_is_float(src),
               PL_ERR_UNSUPPORTED, "tile: no moments of %s", pl_dtype_name(src));
    return PL_OK;
}

pl_status pl_tile_check(const pl_tile_program *p)
{
    PL_FAIL_IF(p->rank < 0 || p->row_rank < 0 || p->row_rank > p->rank || p->n_in < 0 ||
                   p->n_instr < 0 || p->n_out < 0,
               PL_ERR_ARG, "tile: rank %d, row rank %d", p->rank, p->row_rank);
    PL_FAIL_IF(p->rank > PL_TILE_RANK || p->n_in > PL_TILE_INPUTS || p->n_out > PL_TILE_OUTPUTS ||
                   p->n_instr > PL_TILE_INSTRS,
               PL_ERR_UNSUPPORTED, "tile: %d dims, %d operands, %d instructions, %d outputs",
               p->rank, p->n_in, p->n_instr, p->n_out);
    int64_t total = 1, row = 1;
    for (int d = 0; d < p->rank; d++) {
        PL_FAIL_IF(p->dim[d] < 0 || __builtin_mul_overflow(total, p->dim[d], &total), PL_ERR_ARG,
                   "tile: dim %d is %lld", d, (long long)p->dim[d]);
        if (d >= p->rank - p->row_rank) row *= p->dim[d];
    }
    PL_FAIL_IF(p->row_rank && row > PL_TILE_ROW, PL_ERR_UNSUPPORTED,
               "tile: rows of %lld elements, at most %d", (long long)row, PL_TILE_ROW);
    for (int i = 0; i < p->n_in; i++)
        PL_FAIL_IF(p->in[i].dtype >= PL_N_DTYPES || (p->in[i].bits && p->in[i].dtype != PL_BOOL),
                   PL_ERR_ARG, "tile: operand %d", i);
    for (int i = 0; i < p->n_instr; i++) PL_TRY(check_instr(p, i));
    for (int o = 0; o < p->n_out; o++) PL_TRY(check_output(p, o));
    return PL_OK;
}
