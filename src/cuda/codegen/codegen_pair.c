/* codegen_pair.c - sums over the gradient of a max pool: of two neighbours in a window at most one
 * contributes.
 *
 * As elementwise nodes (pass/open.c), that gradient is select(index == place, dy, 0): index and dy
 * belong to the window, the place to each element. Where a sum takes only products of that select,
 * the neighbours for which it is zero add zeros, and adding zeros changes no bit of a sum of finite
 * numbers. A thread takes both elements of a pair anyway, so it computes once: with the second
 * element's operands if the index is the second's place, else with the first's.
 */
#include "cuda/codegen/codegen_int.h"

/* How a value depends on the select. */
enum { FREE, SHARE, MIXED }; /* does not depend on it; a multiple of it; neither */

static bool moves(const pl_cg_pass *p, const pl_cg_pair *x, int i)
{
    const pl_fused_instr *y = &p->instr[i];
    if (y->code == PL_FUSED_LOAD) return p->op[y->operand].stride[x->dim] != 0;
    if (y->code == PL_FUSED_RAMP) return p->step[i * PL_CG_RANK + x->dim] != 0.0;
    return false;
}

static bool is_zero(const pl_fused_instr *x)
{
    return x->code == PL_FUSED_RAMP && pl_cg_constant(x) && x->imm == 0.0;
}

/* Whether instruction i is select(index == place, share, 0), where only the place differs inside a
 * pair. */
static bool is_select(const pl_cg_pass *p, const int *dep, const bool *varies, pl_cg_pair *x, int i)
{
    const pl_fused_instr *s = &p->instr[i];
    if (s->code != PL_FUSED_MAP || s->fn != PL_SCALAR_SELECT || s->dtype != PL_F32) return false;
    const pl_fused_instr *e = &p->instr[s->arg[0]], *zero = &p->instr[s->arg[2]];
    if (e->code != PL_FUSED_MAP || e->fn != PL_SCALAR_EQ || !is_zero(zero) || varies[s->arg[1]])
        return false;
    const pl_fused_instr *index = &p->instr[e->arg[0]], *place = &p->instr[e->arg[1]];
    if (index->code != PL_FUSED_LOAD || varies[e->arg[0]] ||
        !pl_cg_bytes(p, &p->op[index->operand]))
        return false;
    if (place->code != PL_FUSED_RAMP || place->dtype != PL_U8 || dep[e->arg[1]] & PL_CG_DEP_J)
        return false;
    const double *step = &p->step[e->arg[1] * PL_CG_RANK];
    double low = place->imm, high = place->imm;
    for (int d = 0; d < p->rank; d++) {
        if (step[d] < 0) low += step[d] * (double)(p->dim[d] - 1);
        if (step[d] > 0) high += step[d] * (double)(p->dim[d] - 1);
    }
    x->eq = s->arg[0];
    x->select = i;
    x->step = (int)step[x->dim];
    return low >= 0 && high <= 255 && step[x->dim] > 0 && step[x->dim] == (double)x->step;
}

static int kind_of(const pl_fused_instr *x, const int *kind)
{
    int n[3] = {0};
    for (int k = 0; k < x->n_arg; k++) n[kind[x->arg[k]]]++;
    if (n[FREE] == x->n_arg) return FREE;
    if (x->code != PL_FUSED_MAP || x->dtype != PL_F32 || n[MIXED]) return MIXED;
    switch (x->fn) {
    case PL_SCALAR_MUL: return n[SHARE] == 1 ? SHARE : MIXED;
    case PL_SCALAR_NEG:
    case PL_SCALAR_CAST: return SHARE;
    case PL_SCALAR_ADD:
    case PL_SCALAR_SUB: return n[SHARE] == 2 ? SHARE : MIXED;
    case PL_SCALAR_SELECT: return kind[x->arg[0]] == FREE && n[SHARE] == 2 ? SHARE : MIXED;
    default: return MIXED;
    }
}

static bool all_share(const pl_cg_pass *p, const int *dep, const bool *varies, const pl_cg_pair *x,
                      int *kind)
{
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i]) continue;
        kind[i] = i == x->eq ? MIXED : i == x->select ? SHARE : kind_of(&p->instr[i], kind);
        bool place = i == p->instr[x->eq].arg[1];
        if (varies[i] && !place && (!(dep[i] & PL_CG_DEP_J) || p->instr[i].code == PL_FUSED_RAMP))
            return false;
    }
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_REDUCE || k->reduce != PL_REDUCE_SUM || kind[k->src] != SHARE)
            return false;
    }
    return true;
}

pl_status pl_cg_find_pair(const pl_cg_pass *p, const int *dep, pl_arena *a, pl_cg_pair *out)
{
    bool *varies = pl_arena_new(a, bool, p->n_instr + 1);
    int *kind = pl_arena_new(a, int, p->n_instr + 1);
    *out = (pl_cg_pair){.dim = p->first[PL_CG_INNER] - 1, .varies = varies};
    if (!varies || !kind) return PL_ERR_MEMORY;
    for (int i = 0; i < p->n_instr; i++) {
        varies[i] = p->used[i] && moves(p, out, i);
        for (int k = 0; p->used[i] && k < p->instr[i].n_arg; k++)
            varies[i] |= varies[p->instr[i].arg[k]];
    }
    for (int i = 0; i < p->n_instr && !out->on; i++)
        out->on =
            p->used[i] && is_select(p, dep, varies, out, i) && all_share(p, dep, varies, out, kind);
    return PL_OK;
}
