/* codegen.c - lays out and writes each pass of a group (plan/cost/group_passes.h); see codegen.h
 * for an example and codegen_int.h for the shapes of a pass.
 *
 * Invariant: the order of a sum depends on sizes alone (plan/cost/group_runs.c), so a value has the
 * same bits in every group. codegen_lay.c decides the launch of a pass.
 *
 * Cost: text proportional to instructions times passes, once for each group at compile time.
 */
#include "cuda/codegen/codegen_int.h"

#include <string.h>

static pl_status lay_out(pl_cg_group *k, pl_cg_pass *p)
{
    p->n_op = k->n_op;
    memcpy(p->op, k->op, sizeof *p->op * (size_t)k->n_op);
    return pl_cg_lay(p, &k->f, k->a);
}

/* Reserves scratch for the partial results of a pass that reduces. */
static void give_work(pl_cg_group *k, pl_cg_pass *p)
{
    p->direct = p->parts == 1 && !p->columns;
    for (int s = 0; s < p->n_sink; s++)
        p->direct &= p->sink[s].kind != PL_FUSED_REDUCE || p->sink[s].folded == 1u << p->runs.along;
    if (p->direct) return;
    int64_t n = p->size[PL_CG_OUTER] * p->parts;
    if (p->columns) n = p->walk.n == 3 ? p->walk.size[0] * p->parts : p->parts;
    if (p->columns || p->shape == PL_CG_SHEET) n *= p->size[PL_CG_INNER];
    for (int s = 0; s < p->n_sink; s++) {
        pl_cg_sink *x = &p->sink[s];
        if (x->kind != PL_FUSED_REDUCE) continue;
        size_t one = pl_cg_acc_bytes(p->instr[x->src].dtype, x->reduce);
        int twin = pl_cg_twin(p, s);
        x->partial =
            twin < s ? p->sink[twin].partial : (int64_t)pl_cg_work_take(k, (size_t)n * one);
    }
}

static pl_status write_pass(pl_cg_group *k, pl_cg_pass *p, pl_code *code)
{
    pl_code_kernel *to = &code->kernel[code->n_kernels++];
    bool sums = p->reduces || p->columns;
    if (sums) give_work(k, p);
    PL_TRY(p->shape == PL_CG_ROW    ? pl_cg_row(p, k->a, to)
           : p->shape == PL_CG_FLAT ? pl_cg_flat(p, k->a, to)
                                    : pl_cg_sheet(p, k->a, to));
    if (!sums || p->direct) return PL_OK;
    return pl_cg_folds(p, p->columns ? &p->walk : &p->runs, k->a, &code->kernel[code->n_kernels++]);
}

pl_status pl_code_make(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_code *out)
{
    pl_cg_group *k;
    memset(out, 0, sizeof *out);
    out->n_in = u->n_in;
    out->n_out = u->n_out;
    PL_TRY(pl_cg_cut(g, u, a, &k));
    if (k->n_passes) {
        out->kernel = pl_arena_new(a, pl_code_kernel, k->n_passes + k->f.n_out);
        if (!out->kernel) return PL_ERR_MEMORY;
    }
    for (int i = 0; i < k->n_passes; i++) {
        PL_TRY(lay_out(k, &k->pass[i]));
        PL_TRY(write_pass(k, &k->pass[i], out));
    }
    out->work_bytes = k->work;
    bool *may;
    PL_TRY(pl_cg_inplace(k, &may));
    out->inplace = may;
    return PL_OK;
}
