/* codegen_flat.c - writes flat kernels: elementwise groups whose operands all read the space in the
 * same way, and sums over long rows.
 *
 *   block b = (o_, part): elements [part * L, part * L + L) of row o_
 *   thread t takes the chunks t, t + threads, ... of V elements, U at a time
 *
 * A remainder that is not a whole chunk is processed element by element; reductions choose V so
 * that there is no remainder. Example: y = a + b over 1,000,003 floats: V = 4, blocks of 256
 * threads; the last three elements run through the loop with V = 1.
 */
#include "cuda/codegen/codegen_int.h"

#include <string.h>

static void find_levels(const pl_cg_pass *p, const int *dep, int *lvl)
{
    for (int i = 0; i < p->n_instr; i++) lvl[i] = !p->used[i] ? -1 : dep[i] & PL_CG_DEP_I ? 2 : 0;
}

static void put_index(pl_cg *w)
{
    pl_cg_put(w, "const I e_ = at_ + u * B_; const I z_ = o_ * N_ + e_; (void)z_;\n");
}

static pl_status put_body(pl_cg *w, const int *lvl, const int *dep)
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "const I part_ = %s;\n", p->parts > 1 ? "b_ - o_ * (I)a.m[0].d" : "0");
    pl_cg_dividers(w);
    pl_cg_pointers(w);
    pl_cg_outputs(w);
    pl_cg_coords(w, PL_CG_OUTER, 0, pl_cg_rank(p, PL_CG_OUTER), "o_", "o");
    pl_cg_bases(w, false);
    int inner = pl_cg_size(w, p->size[PL_CG_INNER]), part = pl_cg_size(w, p->part);
    pl_cg_put(w, "enum { V = %d };\n", p->vec);
    pl_cg_put(w, "const I B_ = (I)blockDim.x * V, N_ = a.s[%d], lo_ = part_ * a.s[%d];\n", inner,
              part);
    pl_cg_put(w, "const I hi_ = N_ - lo_ < a.s[%d] ? N_ : lo_ + a.s[%d];\n", part, part);
    pl_cg_hoist(w, lvl, dep, 0);
    pl_cg_accumulators(w);
    pl_cg_put(w, "I at_ = lo_ + (I)threadIdx.x * V;\n");
    pl_cg_put(w, "for (; at_ + (%d - 1) * B_ + V <= hi_; at_ += %d * B_) {\nenum { U = %d };\n",
              p->unroll, p->unroll, p->unroll);
    const pl_cg_counts before = w->n;
    pl_cg_step(w, lvl, dep, put_index);
    pl_cg_put(w, "}\n");
    if (p->unroll > 1) {
        pl_cg_put(w, "for (; at_ + V <= hi_; at_ += B_) {\nenum { U = 1 };\n");
        w->n = before;
        pl_cg_step(w, lvl, dep, put_index);
        pl_cg_put(w, "}\n");
    }
    if (p->vec > 1 && !p->reduces) {
        pl_cg_put(w, "if (at_ < hi_) {\nconst I from_ = at_;\n"
                     "for (I at_ = from_; at_ < hi_; at_++) {\nenum { U = 1, V = 1 };\n");
        w->n = before;
        pl_cg_step(w, lvl, dep, put_index);
        pl_cg_put(w, "}\n}\n");
    }
    if (p->reduces) pl_cg_put(w, "const I to_ = b_; (void)to_;\n");
    return pl_cg_totals(w);
}

pl_status pl_cg_flat(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    int *dep = pl_arena_new(a, int, p->n_instr + 1), *lvl = pl_arena_new(a, int, p->n_instr + 1);
    if (!w || !dep || !lvl) return PL_ERR_MEMORY;
    pl_cg_deps(p, p->vec, dep);
    find_levels(p, dep, lvl);
    w->dep = dep;
    pl_cg_head(w, PL_CG_THREADS, 0);
    pl_cg_put(w, "const I b_ = blockIdx.x;\n");
    if (p->parts > 1) {
        (void)pl_cg_divider(w, p->parts); /* a.m[0] */
        pl_cg_put(w, "const I o_ = %s;\n", p->size[PL_CG_OUTER] > 1 ? "p_quot(b_, a.m[0])" : "0");
    } else {
        pl_cg_put(w, "const I o_ = b_;\n");
    }
    PL_TRY(put_body(w, lvl, dep));
    pl_cg_put(w, "}\n");
    return pl_cg_finish(w, (uint32_t)(p->parts * p->size[PL_CG_OUTER]), (uint32_t)p->tx, 1, out);
}
