/* codegen_access.c - how operands are read: offsets, coordinates, kinds of access.
 *
 * Idea: the cheapest kind of access that the strides allow, chosen for each operand: one element
 * for the whole chunk, one aligned vector load, a constant stride, or coordinates for each element.
 * In the example of codegen.h x is VECTOR (stride 1 along the inner dim, rows of 64 floats keep
 * chunks aligned) and so is mean; x read with a stride of 2 would be STRIDED, and a transposed x
 * whose chunks cross dims RAGGED.
 *
 * Invariant: PL_CG_VECTOR is chosen only where every chunk is aligned for every coordinate; the
 * pointer's own alignment is an entry of the patch and checked at launch (pl_code_bind).
 */
#include "cuda/codegen/codegen_int.h"

#include <stdio.h>

/* Whether one stride describes the whole set: *out. */
static bool is_linear(const pl_cg_pass *p, const int64_t *stride, pl_cg_set set, int64_t *out)
{
    int lo = p->first[set], hi = p->first[set + 1];
    *out = hi > lo ? stride[hi - 1] : 0;
    for (int d = lo; d + 1 < hi; d++)
        if (stride[d] != stride[d + 1] * p->dim[d + 1]) return false;
    return true;
}

static bool aligned(const pl_cg_pass *p, const pl_cg_operand *o, int vec, bool linear)
{
    int64_t bytes = (int64_t)pl_dtype_bytes(o->dtype), al = bytes * vec > 16 ? 16 : bytes * vec;
    if (o->align % (uint32_t)al || o->offset * bytes % al) return false;
    /* dims from here are read in chunks */
    int chunk = linear ? p->first[PL_CG_INNER] : p->rank - 1;
    for (int d = 0; d < chunk; d++)
        if (o->stride[d] * bytes % al) return false;
    return true;
}

pl_cg_access pl_cg_access_of(const pl_cg_pass *p, const pl_cg_operand *o, int vec)
{
    int64_t s;
    bool linear = is_linear(p, o->stride, PL_CG_INNER, &s);
    if (!linear && p->dim[p->rank - 1] % vec) return vec == 1 ? PL_CG_STRIDED : PL_CG_RAGGED;
    if (s == 0) return PL_CG_UNIFORM;
    return s == 1 && aligned(p, o, vec, linear) ? PL_CG_VECTOR : PL_CG_STRIDED;
}

/* ---- dependence ------------------------------------------------------------------------- */

static int dim_dep(const pl_cg_pass *p, int d)
{
    if (d < p->first[PL_CG_ALONG]) return PL_CG_DEP_O;
    if (d >= p->first[PL_CG_INNER]) return PL_CG_DEP_I;
    return d < p->first[PL_CG_ALONG] + p->seg ? PL_CG_DEP_S : PL_CG_DEP_L;
}

static int deps_of(const pl_cg_pass *p, const pl_cg_operand *o, int vec)
{
    int dep = 0;
    int64_t s;
    for (int d = 0; d < p->rank; d++)
        if (o->stride[d] != 0) dep |= dim_dep(p, d);
    if (p->first[PL_CG_ALONG] < p->first[PL_CG_INNER] && is_linear(p, o->stride, PL_CG_ALONG, &s) &&
        s != 0)
        dep |= PL_CG_DEP_L;
    if (pl_cg_access_of(p, o, vec) != PL_CG_UNIFORM) dep |= PL_CG_DEP_J | PL_CG_DEP_I;
    return dep;
}

static int ramp_deps(const pl_cg_pass *p, int i)
{
    int dep = 0;
    for (int d = 0; d < p->rank; d++)
        if (p->step[i * PL_CG_RANK + d] != 0.0) dep |= dim_dep(p, d);
    return dep & PL_CG_DEP_I ? dep | PL_CG_DEP_J : dep;
}

void pl_cg_deps(const pl_cg_pass *p, int vec, int *dep)
{
    for (int i = 0; i < p->n_instr; i++) {
        const pl_fused_instr *x = &p->instr[i];
        dep[i] = 0;
        if (!p->used[i]) continue;
        if (x->code == PL_FUSED_LOAD) dep[i] = deps_of(p, &p->op[x->operand], vec);
        if (x->code == PL_FUSED_RAMP) dep[i] = ramp_deps(p, i);
        for (int k = 0; x->code == PL_FUSED_MAP && k < x->n_arg; k++) dep[i] |= dep[x->arg[k]];
        if (x->code == PL_FUSED_ROW_REDUCE || x->code == PL_FUSED_ROW_VAR) dep[i] = PL_CG_DEP_O;
    }
}

bool pl_cg_inner_ramps(const pl_cg_pass *p)
{
    for (int i = 0; i < p->n_instr; i++)
        if (p->used[i] && p->instr[i].code == PL_FUSED_RAMP && ramp_deps(p, i) & PL_CG_DEP_I)
            return true;
    return false;
}

/* ---- text ------------------------------------------------------------------------------- */

void pl_cg_coord_name(const pl_cg_pass *p, int d, char *buf, size_t cap)
{
    if (d < p->first[PL_CG_ALONG])
        snprintf(buf, cap, "o%d", d);
    else if (d >= p->first[PL_CG_INNER])
        snprintf(buf, cap, "x%d", d - p->first[PL_CG_INNER]);
    else
        snprintf(buf, cap, "s%d", d - p->first[PL_CG_ALONG]);
}

void pl_cg_dividers(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    for (int set = 0; set < PL_CG_SETS; set++)
        for (int d = p->first[set] + 1; d < p->first[set + 1]; d++)
            w->div[d] = pl_cg_divider(w, p->dim[d]);
}

/* Windows of a pool and similar sizes: literals in the text, no multiplication. */
static int shift_of(int64_t size)
{
    return size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 0;
}

void pl_cg_coords(pl_cg *w, pl_cg_set set, int lo, int hi, const char *at, const char *prefix)
{
    int base = w->p->first[set];
    if (hi <= lo) return;
    pl_cg_put(w, "I %s%d = %s;\n", prefix, lo, at);
    for (int d = hi - 1; d > lo; d--) {
        int m = w->div[base + d], shift = shift_of(w->p->dim[base + d]);
        if (shift)
            pl_cg_put(w, "const I %s%d = %s%d & %d; %s%d = %s%d >> %d;\n", prefix, d, prefix, lo,
                      (1 << shift) - 1, prefix, lo, prefix, lo, shift);
        else
            pl_cg_put(w,
                      "const I %sq%d = p_quot(%s%d, a.m[%d]), %s%d = %s%d - %sq%d * (I)a.m[%d].d; "
                      "%s%d = %sq%d;\n",
                      prefix, d, prefix, lo, m, prefix, d, prefix, lo, prefix, d, m, prefix, lo,
                      prefix, d);
    }
}

static void term(pl_cg *w, const char *name, int64_t stride)
{
    if (stride == 0) return;
    if (stride == 1)
        pl_cg_put(w, " + %s", name);
    else
        pl_cg_put(w, " + %s * a.s[%d]", name, pl_cg_size(w, stride));
}

static void by_coords(pl_cg *w, const pl_cg_operand *o, pl_cg_set set, const char *prefix)
{
    int lo = w->p->first[set], hi = w->p->first[set + 1];
    for (int d = lo; d < hi; d++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", prefix, d - lo);
        term(w, name, o->stride[d]);
    }
}

void pl_cg_offset(pl_cg *w, int k, pl_cg_set set)
{
    static const char *const linear[] = {"o_", "r_", "e_"}, *const coords[] = {"o", "s", "i"};
    const pl_cg_operand *o = &w->p->op[k];
    int64_t s;
    if (is_linear(w->p, o->stride, set, &s))
        term(w, linear[set], s);
    else
        by_coords(w, o, set, coords[set]);
}

void pl_cg_bases(pl_cg *w, bool inner)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        int k = p->instr[i].operand;
        pl_cg_put(w, "const I b%d = a.s[%d]", k, pl_cg_size(w, p->op[k].offset));
        pl_cg_offset(w, k, PL_CG_OUTER);
        if (inner && pl_cg_access_of(p, &p->op[k], p->vec) != PL_CG_RAGGED)
            pl_cg_offset(w, k, PL_CG_INNER);
        pl_cg_put(w, ";\n");
    }
}

void pl_cg_pointers(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        int k = p->instr[i].operand;
        if (k == w->tile) continue;
        const pl_cg_operand *o = &p->op[k];
        size_t bytes = pl_dtype_bytes(o->dtype);
        uint32_t al = (uint32_t)bytes;
        if (pl_cg_access_of(p, o, p->vec) == PL_CG_VECTOR) {
            size_t chunk = bytes * (size_t)p->vec;
            al = chunk > 16 ? 16 : (uint32_t)chunk;
        }
        pl_cg_put(w, "const %s *const P%d = (const %s *)a.p[%d];\n", pl_cg_mem(o->dtype), k,
                  pl_cg_mem(o->dtype), pl_cg_pointer(w, o->space, o->index, o->plus, al));
    }
}

void pl_cg_load(pl_cg *w, int k, const char *to, const char *base)
{
    const pl_cg_operand *o = &w->p->op[k];
    const char *mem = pl_cg_mem(o->dtype);
    if (k == w->tile) {
        pl_cg_put(w, "%s = product_::at(result_, (int)(r_ - base_), x_);\n", to);
        return;
    }
    switch (pl_cg_access_of(w->p, o, w->p->vec)) {
    case PL_CG_UNIFORM: pl_cg_put(w, "%s = P%d[%s];\n", to, k, base); break;
    case PL_CG_VECTOR:
        if (pl_cg_bytes(w->p, o))
            pl_cg_put(w, "%s = *(const p_bytes<V> *)(P%d + (%s));\n", to, k, base);
        else
            pl_cg_put(w, "%s = *(const p_vec<%s, V> *)(P%d + (%s));\n", to, mem, k, base);
        break;
    case PL_CG_STRIDED:
        pl_cg_put(w,
                  "_Pragma(\"unroll\") for (int j = 0; j < V; j++) %s.x[j] = P%d[%s + j * "
                  "a.s[%d]];\n",
                  to, k, base, pl_cg_size(w, o->stride[w->p->rank - 1]));
        break;
    case PL_CG_RAGGED:
        pl_cg_put(w, "_Pragma(\"unroll\") for (int j = 0; j < V; j++) {\n");
        pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(w->p, PL_CG_INNER), "e_ + j", "x");
        pl_cg_put(w, "%s.x[j] = P%d[%s", to, k, base);
        by_coords(w, o, PL_CG_INNER, "x");
        pl_cg_put(w, "];\n}\n");
        break;
    }
}
