/* codegen_expr.c - one value as C text: types, conversions, scalar functions, ramps.
 *
 * Invariant (M11 of docs/MEMORY.md): each instruction rounds to its own dtype, so a value has the
 * same bits in every group.
 * Example: %2 = map sub %0 %1 in f32 becomes "const float v2 = p_sub(v0, v1);"; in bf16 the result
 * is wrapped in a conversion to bf16 and back.
 */
#include "base/dtype.h"
#include "cuda/codegen/codegen_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- types ------------------------------------------------------------------------------ */

const char *pl_cg_reg(pl_dtype d)
{
    switch (d) {
    case PL_F64: return "double";
    case PL_I64: return "p_i64";
    case PL_I32:
    case PL_U8:
    case PL_BOOL: return "int";
    default: return "float";
    }
}

const char *pl_cg_mem(pl_dtype d)
{
    switch (d) {
    case PL_F64: return "double";
    case PL_BF16:
    case PL_F16: return "p_u16";
    case PL_I32: return "int";
    case PL_I64: return "p_i64";
    case PL_U8:
    case PL_BOOL: return "p_u8";
    default: return "float";
    }
}

/* Integer sums wrap, so their accumulators are unsigned. */
const char *pl_cg_acc(pl_dtype d, pl_reduce_fn fn)
{
    if (fn == PL_REDUCE_MOMENTS) return d == PL_F64 ? "p_mom<double>" : "p_mom<float>";
    if (fn == PL_REDUCE_SUM && d == PL_I64) return "unsigned long long";
    if (fn == PL_REDUCE_SUM && !pl_dtype_is_float(d)) return "unsigned";
    return pl_cg_reg(d);
}

const char *pl_cg_fold(pl_reduce_fn fn)
{
    switch (fn) {
    case PL_REDUCE_SUM: return "p_fold_sum";
    case PL_REDUCE_MAX: return "p_fold_max";
    case PL_REDUCE_MIN: return "p_fold_min";
    case PL_REDUCE_MOMENTS: break;
    }
    return "p_fold_mom";
}

/* ---- conversions ------------------------------------------------------------------------ */

void pl_cg_from(pl_cg *w, pl_dtype d, const char *raw)
{
    if (d == PL_F16)
        pl_cg_put(w, "p_h2f(%s)", raw);
    else if (d == PL_BF16)
        pl_cg_put(w, "p_b2f(%s)", raw);
    else
        pl_cg_put(w, "(%s)%s", pl_cg_reg(d), raw);
}

/* Returns the text before a value that converts it to `to`; a bracket follows the value. */
static const char *cast_head(pl_dtype to, pl_dtype from)
{
    bool same = to == from;
    switch (to) {
    case PL_F32: return "(float)(";
    case PL_F64: return "(double)(";
    case PL_F16: return same ? "(" : "p_rh((float)";
    case PL_BF16: return same ? "(" : "p_rb((float)";
    case PL_I32: return from == PL_I32 || from == PL_U8 || from == PL_BOOL ? "(" : "p_i32_of(";
    case PL_I64: return "p_i64_of(";
    case PL_U8: return from == PL_U8 || from == PL_BOOL ? "(" : "p_u8_of(";
    default: return from == PL_BOOL ? "(" : "p_bool_of(";
    }
}

void pl_cg_cast(pl_cg *w, pl_dtype to, pl_dtype from, const char *value)
{
    pl_cg_put(w, "%s%s)", cast_head(to, from), value);
}

/* Writes a value of dtype `from` as an element in memory. */
void pl_cg_to(pl_cg *w, pl_dtype mem, pl_dtype from, const char *value)
{
    const char *head = mem == PL_F16 ? "p_f2h(" : mem == PL_BF16 ? "p_f2b(" : NULL;
    if (head)
        pl_cg_put(w, "%s(float)(%s))", head, value);
    else
        pl_cg_put(w, "(%s)%s%s)", pl_cg_mem(mem), cast_head(mem, from), value);
}

/* ---- functions -------------------------------------------------------------------------- */

/* Returns the text that brings a computed value into the range of its dtype; the caller rounds
 * 16-bit floats. */
static const char *round_head(pl_dtype d, bool truth)
{
    if (truth) return "(";
    if (d == PL_U8) return "(int)(p_u8)(";
    if (d == PL_BOOL) return "p_bool_of(";
    return "(";
}

/* Functions that return one of their operands, or its negative. */
static bool exact(pl_scalar_fn f)
{
    return f == PL_SCALAR_SELECT || f == PL_SCALAR_MAX || f == PL_SCALAR_MIN ||
           f == PL_SCALAR_NEG || f == PL_SCALAR_ABS || f == PL_SCALAR_RELU || f == PL_SCALAR_SIGN ||
           f == PL_SCALAR_FLOOR || f == PL_SCALAR_ROUND;
}

/* Writes the value before it is rounded to 16 bits, if it is a 16-bit float. */
static void put_function(pl_cg *w, const pl_fused_instr *x)
{
    if (x->fn == PL_SCALAR_EQ && w->raw[x->arg[0]][0] && !(w->dep[x->arg[1]] & PL_CG_DEP_J)) {
        pl_cg_put(w, "%s.same(j, %s)", w->raw[x->arg[0]], w->ref[x->arg[1]]);
        return;
    }
    if (x->fn == PL_SCALAR_CAST) {
        pl_dtype from = w->p->instr[x->arg[0]].dtype;
        bool sixteen = x->dtype == PL_F16 || x->dtype == PL_BF16;
        pl_cg_put(w, "%s%s)", cast_head(sixteen ? PL_F32 : x->dtype, from), w->ref[x->arg[0]]);
        return;
    }
    bool gentle = x->fn == PL_SCALAR_LEAKY_RELU && x->dtype != PL_F64 && x->imm > 0 && x->imm <= 1;
    pl_cg_put(w, "%sp_%s(", round_head(x->dtype, pl_scalar_gives_bool(x->fn)),
              gentle ? "leaky_max" : pl_scalar_name(x->fn));
    for (int k = 0; k < x->n_arg; k++) pl_cg_put(w, "%s%s", k ? ", " : "", w->ref[x->arg[k]]);
    if (x->fn == PL_SCALAR_LEAKY_RELU && x->dtype == PL_F64)
        pl_cg_put(w, ", a.d[%d]", pl_cg_double(w, x->imm));
    else if (x->fn == PL_SCALAR_LEAKY_RELU)
        pl_cg_put(w, ", a.f[%d]", pl_cg_float(w, (float)x->imm));
    pl_cg_put(w, "))");
}

/* If so, the element g<i> exists beside the value v<i>: with two elements at a time, a word of
 * both. */
bool pl_cg_narrows(const pl_cg_pass *p, int i)
{
    const pl_fused_instr *x = &p->instr[i];
    if (x->code != PL_FUSED_MAP || (x->dtype != PL_F16 && x->dtype != PL_BF16)) return false;
    if (x->fn == PL_SCALAR_CAST) return p->instr[x->arg[0]].dtype != x->dtype;
    return !exact(x->fn);
}

const char *pl_cg_both(const pl_cg *w)
{
    return w->two ? "BOTH " : "";
}

void pl_cg_value(pl_cg *w, int i)
{
    const char *type = pl_cg_reg(w->p->instr[i].dtype);
    if (w->two)
        pl_cg_put(w, "%s v%d[2];\nBOTH v%d[h_] = ", type, i, i);
    else
        pl_cg_put(w, "const %s v%d = ", type, i);
    snprintf(w->ref[i], sizeof *w->ref, "v%d%s", i, w->two ? "[h_]" : "");
}

/* Whether g<i> is a word of the two current elements, of dtype d. */
static bool is_word(const pl_cg *w, int i, pl_dtype d)
{
    char here[24];
    snprintf(here, sizeof here, "v%d[h_]", i);
    return w->two && w->p->instr[i].dtype == d && pl_cg_narrows(w->p, i) &&
           strcmp(w->ref[i], here) == 0;
}

/* Returns the function on words with the same bits as x's floats, rounded; NULL: none. */
static const char *of_words(const pl_cg *w, const pl_fused_instr *x)
{
    bool half = x->dtype == PL_F16;
    if (x->n_arg != 2 || !is_word(w, x->arg[0], x->dtype) || !is_word(w, x->arg[1], x->dtype))
        return NULL;
    switch (x->fn) {
    case PL_SCALAR_ADD: return half ? "p_add_hh" : "p_add_bb";
    case PL_SCALAR_SUB: return half ? "p_sub_hh" : "p_sub_bb";
    case PL_SCALAR_MUL: return half ? "p_mul_hh" : "p_mul_bb";
    default: return NULL;
    }
}

static void round_two(pl_cg *w, int i)
{
    const pl_fused_instr *x = &w->p->instr[i];
    const char *kind = x->dtype == PL_F16 ? "hh" : "bb", *words = of_words(w, x);
    if (words) {
        pl_cg_put(w, "const unsigned g%d = %s(g%d, g%d);\n", i, words, x->arg[0], x->arg[1]);
    } else {
        pl_cg_put(w, "float f%d[2];\nBOTH f%d[h_] = ", i, i);
        put_function(w, x);
        pl_cg_put(w, ";\nconst unsigned g%d = p_f2%s(f%d[0], f%d[1]);\n", i, kind, i, i);
    }
    pl_cg_value(w, i);
    pl_cg_put(w, "p_%s2f(g%d, h_);\n", kind, i);
}

void pl_cg_map(pl_cg *w, int i)
{
    const pl_fused_instr *x = &w->p->instr[i];
    bool rounds = pl_cg_narrows(w->p, i);
    if (rounds && w->two) {
        round_two(w, i);
        return;
    }
    const char *kind = x->dtype == PL_F16 ? "h" : "b";
    if (rounds) {
        pl_cg_put(w, "const p_u16 g%d = p_f2%s(", i, kind);
        put_function(w, x);
        pl_cg_put(w, ");\n");
    }
    pl_cg_value(w, i);
    if (rounds)
        pl_cg_put(w, "p_%s2f(g%d)", kind, i);
    else
        put_function(w, x);
    pl_cg_put(w, ";\n");
}

/* Writes instruction i as an element in memory. */
void pl_cg_element(pl_cg *w, pl_dtype mem, int i)
{
    const pl_fused_instr *x = &w->p->instr[i];
    if (x->dtype == mem && w->ref[i][0] == 'v' && pl_cg_narrows(w->p, i))
        pl_cg_put(w, "g%d", i);
    else
        pl_cg_to(w, mem, x->dtype, w->ref[i]);
}

/* ---- constants and ramps ---------------------------------------------------------------- */

bool pl_cg_constant(const pl_fused_instr *x)
{
    for (int d = 0; d < PL_FUSED_RANK; d++)
        if (x->step[d] != 0.0) return false;
    return true;
}

/* Numbers that belong to an expression rather than to sizes are literals in the text: the compiler
 * can then merge the part of its function that a gradient recomputes. */
static const char *literal(float v)
{
    static const struct {
        float value;
        const char *text;
    } known[] = {{1, "1.0f"},      {-1, "-1.0f"}, {0.5f, "0.5f"},
                 {-0.5f, "-0.5f"}, {2, "2.0f"},   {0.70710678f, "0.70710678f"}};
    if (v == 0) return signbit(v) ? NULL : "0.0f";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (v == known[i].value) return known[i].text;
    return NULL;
}

static void put_float(pl_cg *w, float v)
{
    const char *text = literal(v);
    if (text)
        pl_cg_put(w, "%s;\n", text);
    else
        pl_cg_put(w, "a.f[%d];\n", pl_cg_float(w, v));
}

/* The host has rounded the immediate. */
static void put_constant(pl_cg *w, const pl_fused_instr *x)
{
    union {
        double d;
        float f;
        int32_t i;
        int64_t l;
        uint16_t h;
        uint8_t u;
    } e = {0};
    pl_elem_set(x->dtype, &e, 0, x->imm);
    switch (x->dtype) {
    case PL_F64: pl_cg_put(w, "a.d[%d];\n", pl_cg_double(w, e.d)); break;
    case PL_I64: pl_cg_put(w, "a.l[%d];\n", pl_cg_long(w, e.l)); break;
    case PL_I32: pl_cg_put(w, "(int)a.l[%d];\n", pl_cg_long(w, e.i)); break;
    case PL_U8:
    case PL_BOOL: pl_cg_put(w, "(int)a.l[%d];\n", pl_cg_long(w, e.u)); break;
    case PL_F16: put_float(w, pl_f16_to_f32(e.h)); break;
    case PL_BF16: put_float(w, pl_bf16_to_f32(e.h)); break;
    default: put_float(w, e.f); break;
    }
}

/* Whether base and steps are whole numbers and all values small enough for integers. */
static bool whole(const pl_cg_pass *p, int i)
{
    const double *step = &p->step[i * PL_CG_RANK];
    double reach = fabs(p->instr[i].imm);
    bool ok = p->instr[i].imm == floor(p->instr[i].imm);
    for (int d = 0; d < p->rank; d++) {
        ok &= step[d] == floor(step[d]);
        reach += fabs(step[d]) * (double)p->dim[d];
    }
    return ok && reach < 1e9;
}

void pl_cg_ramp(pl_cg *w, int i)
{
    const pl_fused_instr *x = &w->p->instr[i];
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "const %s v%d = ", pl_cg_reg(x->dtype), i);
    snprintf(w->ref[i], sizeof *w->ref, "v%d", i);
    if (pl_cg_constant(x)) {
        put_constant(w, x);
        return;
    }
    bool ints = whole(p, i);
    pl_cg_put(w, "%s(", cast_head(x->dtype, ints ? PL_I32 : PL_F64));
    if (ints)
        pl_cg_put(w, "(int)a.s[%d]", pl_cg_size(w, (int64_t)x->imm));
    else
        pl_cg_put(w, "a.d[%d]", pl_cg_double(w, x->imm));
    for (int d = 0; d < p->rank; d++) {
        double step = p->step[i * PL_CG_RANK + d];
        char name[16];
        if (step == 0.0) continue;
        pl_cg_coord_name(p, d, name, sizeof name);
        if (ints)
            pl_cg_put(w, " + (int)%s * (int)a.s[%d]", name, pl_cg_size(w, (int64_t)step));
        else
            pl_cg_put(w, " + (double)%s * a.d[%d]", name, pl_cg_double(w, step));
    }
    pl_cg_put(w, "));\n");
}

/* ---- results of reductions -------------------------------------------------------------- */

/* `value` has the accumulator's type; values of the f32 class and f64 are already rounded. */
void pl_cg_result(pl_cg *w, pl_dtype mem, pl_dtype src, const char *value)
{
    if (pl_dtype_is_float(src)) {
        pl_cg_to(w, mem, src == PL_F64 ? PL_F64 : PL_F32, value);
        return;
    }
    char text[64];
    snprintf(text, sizeof text, "(%s)%s", pl_cg_reg(src), value);
    pl_cg_to(w, mem, src, text);
}
