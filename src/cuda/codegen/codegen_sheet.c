/* codegen_sheet.c - writes sheet kernels: a thread keeps its chunk of the inner set (columns) and
 * walks down the along set (rows), so that values of a column (scales, shifts, sums) stay in
 * registers. The example of codegen.h is a sheet kernel.
 *
 *   block b = ((o_, part), tile): rows [part * L, ...) of along, columns of one tile
 *   thread (x, y): columns (tile * X + x) * V + 0..V-1, rows y, y + Y, y + 2Y, ...; for sums rows
 *   2y, 2y + 1, 2y + 2Y, ...: neighbouring rows often read the same (the windows of a pool)
 *
 * Where operands see several dims in along, the walk is split into segments: the outer of those
 * dims change only between segments, the inner ones (at least one; more where they are short, as
 * the windows of a pool) are computed at every step.
 *
 * Invariant: sums over rows go through each thread in order, then the Y threads as a tree, then the
 * parts (codegen_fold.c); X, Y and the parts depend on sizes alone.
 */
#include "cuda/codegen/codegen_int.h"

static void find_levels(const pl_cg_pass *p, const int *dep, int *lvl)
{
    for (int i = 0; i < p->n_instr; i++)
        lvl[i] = !p->used[i] ? -1 : dep[i] & PL_CG_DEP_L ? 2 : dep[i] & PL_CG_DEP_S ? 1 : 0;
}

/* Writes row u of a step of a map's walk, or of a step of one row. */
static void put_index(pl_cg *w)
{
    pl_cg_put(w, "const I r_ = row_ + u * Y_, l_ = r_ - seg_, z_ = (o_ * A_ + r_) * N_ + e_; "
                 "(void)l_; (void)z_;\n");
    pl_cg_coords(w, PL_CG_ALONG, w->p->seg, pl_cg_rank(w->p, PL_CG_ALONG), "l_", "s");
}

/* Whether pairs of rows are the innermost dim: then h_ counts them. */
static bool pairs_are_a_dim(const pl_cg_pass *p)
{
    return pl_cg_rank(p, PL_CG_ALONG) - 1 > p->seg && p->dim[p->first[PL_CG_INNER] - 1] == 2;
}

/* Writes row u of a step of pairs. Where a pair never crosses the innermost dim, its second row
 * differs from the first in that dim only: the compiler can then merge equal loads. */
static void put_pair_index(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    int last = pl_cg_rank(p, PL_CG_ALONG) - 1;
    bool inside = last > p->seg && p->dim[p->first[PL_CG_INNER] - 1] % 2 == 0;
    if (pairs_are_a_dim(p)) {
        pl_cg_put(
            w,
            "const I r_ = row_ + (u & ~1) * Y_ + (u & 1), z_ = (o_ * A_ + r_) * N_ + e_; (void)z_;\n");
        pl_cg_coords(w, PL_CG_ALONG, p->seg, last, "h_ + (u >> 1) * Y_", "s");
        pl_cg_put(w, "const I s%d = u & 1; (void)s%d;\n", last, last);
        return;
    }
    pl_cg_put(
        w,
        "const I two_ = row_ + (u & ~1) * Y_, r_ = two_ + (u & 1), l_ = %s - seg_, z_ = (o_ * "
        "A_ + r_) * N_ + e_; (void)l_; (void)z_;\n",
        inside ? "two_" : "r_");
    pl_cg_coords(w, PL_CG_ALONG, p->seg, last + 1, "l_", inside ? "t" : "s");
    for (int d = p->seg; inside && d <= last; d++)
        pl_cg_put(w, "const I s%d = t%d%s;\n", d, d, d == last ? " + (u & 1)" : "");
}

/* Writes sums: lanes take pairs of rows, in order; where a segment begins or ends inside a pair,
 * one row. */
static void put_pairs(pl_cg *w, const int *lvl, const int *dep, const pl_cg_pair *pair)
{
    const pl_cg_pass *p = w->p;
    const pl_cg_counts before = w->n;
    pl_cg_put(w, "while (row_ < end_) {\n");
    if (p->unroll > 1) {
        bool counted = pairs_are_a_dim(p);
        pl_cg_put(
            w,
            "if (!(row_ - lo_ & 1)) {\n%swhile (row_ + %d * Y_ + 1 < end_) {\nenum { U = %d };\n",
            counted ? "I h_ = row_ - seg_ >> 1;\n" : "", p->unroll - 2, p->unroll);
        w->pair = *pair;
        pl_cg_step(w, lvl, dep, put_pair_index);
        w->pair.on = false;
        pl_cg_put(w, "row_ += U * Y_;\n%s}\nif (row_ >= end_) break;\n}\n",
                  counted ? "h_ += U / 2 * Y_;\n" : "");
        w->n = before;
    }
    pl_cg_put(w, "enum { U = 1 };\n");
    pl_cg_step(w, lvl, dep, put_index);
    pl_cg_put(w, "row_ += row_ - lo_ & 1 ? 2 * Y_ - 1 : 1;\n}\n");
}

static pl_status put_walk(pl_cg *w, const int *lvl, const int *dep)
{
    const pl_cg_pass *p = w->p;
    pl_cg_pair pair = {0};
    if (p->reduces && pairs_are_a_dim(p)) PL_TRY(pl_cg_find_pair(p, dep, w->a, &pair));
    if (p->seg) { /* row_ is the lane's next row; its segment begins at seg_ */
        int64_t len = 1;
        for (int d = p->first[PL_CG_ALONG] + p->seg; d < p->first[PL_CG_INNER]; d++)
            len *= p->dim[d];
        int m = pl_cg_divider(w, len);
        pl_cg_put(w,
                  "while (row_ < hi_) {\nconst I t_ = p_quot(row_, a.m[%d]), seg_ = t_ * "
                  "(I)a.m[%d].d;\nconst I end_ = hi_ - seg_ < (I)a.m[%d].d ? hi_ : seg_ + "
                  "(I)a.m[%d].d;\n",
                  m, m, m, m);
        pl_cg_coords(w, PL_CG_ALONG, 0, p->seg, "t_", "s");
        pl_cg_hoist(w, lvl, dep, 1);
    } else {
        pl_cg_put(w, "{\nconst I seg_ = 0, end_ = hi_;\n");
    }
    if (p->reduces)
        put_pairs(w, lvl, dep, &pair);
    else
        pl_cg_rows(w, lvl, dep, put_index, "");
    pl_cg_put(w, "}\n");
    return PL_OK;
}

pl_status pl_cg_sheet(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    int *dep = pl_arena_new(a, int, p->n_instr + 1), *lvl = pl_arena_new(a, int, p->n_instr + 1);
    if (!w || !dep || !lvl) return PL_ERR_MEMORY;
    pl_cg_deps(p, p->vec, dep);
    find_levels(p, dep, lvl);
    w->dep = dep;
    int tiles = pl_cg_divider(w, p->tiles), parts = pl_cg_divider(w, p->parts);
    int along = pl_cg_size(w, p->size[PL_CG_ALONG]), inner = pl_cg_size(w, p->size[PL_CG_INNER]),
        part = pl_cg_size(w, p->part);
    pl_cg_head(w, PL_CG_THREADS, p->resident);
    pl_cg_put(w,
              "enum { V = %d };\nconst I b_ = blockIdx.x, bt_ = p_quot(b_, a.m[%d]), tile_ = "
              "b_ - bt_ * (I)a.m[%d].d;\n",
              p->vec, tiles, tiles);
    pl_cg_put(w, "const I o_ = p_quot(bt_, a.m[%d]), part_ = bt_ - o_ * (I)a.m[%d].d;\n", parts,
              parts);
    pl_cg_put(w, "const I A_ = a.s[%d], N_ = a.s[%d], Y_ = blockDim.y;\n", along, inner);
    pl_cg_put(w,
              "I e_ = (tile_ * (I)blockDim.x + (I)threadIdx.x) * V;\nconst bool on_ = e_ < "
              "N_;\nif (!on_) %s;\n",
              p->reduces ? "e_ = 0" : "return");
    pl_cg_put(w,
              "const I lo_ = part_ * a.s[%d], hi_ = !on_ ? lo_ : A_ - lo_ < a.s[%d] ? A_ : "
              "lo_ + a.s[%d];\nI row_ = lo_ + %s(I)threadIdx.y;\n",
              part, part, part, p->reduces ? "2 * " : "");
    pl_cg_dividers(w);
    pl_cg_pointers(w);
    pl_cg_outputs(w);
    pl_cg_coords(w, PL_CG_OUTER, 0, pl_cg_rank(p, PL_CG_OUTER), "o_", "o");
    pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(p, PL_CG_INNER), "e_", "i");
    pl_cg_bases(w, true);
    pl_cg_hoist(w, lvl, dep, 0);
    pl_cg_accumulators(w);
    PL_TRY(put_walk(w, lvl, dep));
    if (p->reduces)
        pl_cg_put(
            w,
            "const I to_ = o_ * (I)a.m[%d].d + part_, first_ = tile_ * (I)blockDim.x * V; (void)to_; (void)first_;\n",
            parts);
    PL_TRY(pl_cg_totals(w));
    pl_cg_put(w, "}\n");
    return pl_cg_finish(w, (uint32_t)(p->tiles * p->parts * p->size[PL_CG_OUTER]), (uint32_t)p->tx,
                        (uint32_t)p->ty, out);
}
