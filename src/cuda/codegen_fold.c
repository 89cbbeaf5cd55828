/* codegen_fold.c - partial results of a reduction to results.
 *
 * Partial results lie as [runs after][runs before][parts]; those of one result are strewn over
 * the runs that are reduced. y neighbours share a result, each takes every y-th partial in order,
 * then a tree over the y; y depends on how many there are. Results that other runs are folded for are other blocks
 * of the same kernel.
 */
#include "cuda/codegen_int.h"

#include <stdio.h>
#include <string.h>

typedef struct axes {
    int n;
    int64_t size[PL_CG_RANK + 1], stride[PL_CG_RANK + 1];
    int64_t total;
} axes;

/* The dims of the partial results, split into kept and folded ones. */
static void split(const pl_cg_pass *p, const pl_cg_runs *r, uint32_t folded, axes *keep, axes *fold)
{
    int64_t before = p->parts, after = p->parts; /* strides: from here to the runs before, and after */
    memset(keep, 0, sizeof *keep);
    memset(fold, 0, sizeof *fold);
    keep->total = fold->total = 1;
    for (int d = 0; d < r->along; d++) after *= r->size[d];
    for (int d = r->n - 1; d >= 0; d--) { /* innermost first */
        int64_t size = d == r->along ? p->parts : r->size[d], *stride = d > r->along ? &after : &before;
        axes *x = folded >> d & 1u ? fold : keep;
        x->size[x->n] = size;
        x->stride[x->n++] = d == r->along ? 1 : *stride;
        x->total *= size;
        if (d != r->along) *stride *= size;
    }
}

/* "const I name = " the place of index `at` among the axes. */
static void put_place(pl_cg *w, const axes *x, const char *at, const char *name)
{
    pl_cg_put(w, "I %s = 0;\n{ I q_ = %s;\n", name, at);
    for (int d = 0; d < x->n; d++) {
        int s = pl_cg_size(w, x->stride[d]);
        if (d == x->n - 1) {
            pl_cg_put(w, "%s += q_ * a.s[%d];\n", name, s);
            break;
        }
        int m = pl_cg_divider(w, x->size[d]);
        pl_cg_put(w, "const I q%d = p_quot(q_, a.m[%d]); %s += (q_ - q%d * (I)a.m[%d].d) * "
                     "a.s[%d]; q_ = q%d;\n", d, m, name, d, m, s, d);
    }
    pl_cg_put(w, "}\n");
}

static bool among(const pl_cg_sink *k, uint32_t folded)
{
    return k->kind == PL_FORM_REDUCE && k->folded == folded;
}

/* Of the sinks that fold the same runs. */
typedef struct section {
    uint32_t folded, tx, ty;
    axes keep, fold;
    int64_t blocks;
} section;

static section section_of(const pl_cg_pass *p, const pl_cg_runs *r, uint32_t folded)
{
    section x = {.folded = folded};
    split(p, r, folded, &x.keep, &x.fold);
    x.ty = x.fold.total <= 8 ? 1 : x.fold.total <= 64 ? 8 : x.fold.total <= 512 ? 32 : 256;
    x.tx = PL_CG_THREADS / x.ty;
    x.blocks = pl_cg_ceil(x.keep.total, x.tx);
    return x;
}

/* A thread's partial results, in order; so many are read at once that their way is paid for
 * together. */
static void put_walk(pl_cg *w, const section *x)
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "enum { U = 8 };\nfor (I f0_ = y_; f0_ < n_; f0_ += U * Y) {\n");
    for (int s = 0; s < p->n_sink; s++)
        if (among(&p->sink[s], x->folded))
            pl_cg_put(w, "%s r%d[U];\n",
                      pl_cg_acc(p->instr[p->sink[s].src].dtype, p->sink[s].reduce), s);
    pl_cg_put(w, "_Pragma(\"unroll\") for (int u = 0; u < U; u++) {\n"
                 "const I f_ = f0_ + u * Y;\nconst bool in_ = f_ < n_;\n");
    put_place(w, &x->fold, "in_ ? f_ : f0_", "at_");
    for (int s = 0; s < p->n_sink; s++)
        if (among(&p->sink[s], x->folded)) pl_cg_put(w, "r%d[u] = A%d[base_ + at_];\n", s, s);
    pl_cg_put(w, "}\n_Pragma(\"unroll\") for (int u = 0; u < U; u++) {\nif (f0_ + u * Y >= n_) break;\n");
    for (int s = 0; s < p->n_sink; s++)
        if (among(&p->sink[s], x->folded))
            pl_cg_put(w, "t%d[0] = %s::op(t%d[0], r%d[u]);\n", s, pl_cg_fold(p->sink[s].reduce), s,
                      s);
    pl_cg_put(w, "}\n}\n");
}

/* Blocks b_ = 0.. of a section. */
static void put_section(pl_cg *w, const section *x)
{
    const pl_cg_pass *p = w->p;
    int n_keep = pl_cg_size(w, x->keep.total), n_fold = pl_cg_size(w, x->fold.total);
    pl_cg_put(w, "enum { X = %u, Y = %u };\nconst I x_ = threadIdx.x / Y, y_ = threadIdx.x %% Y, k_ = b_ * X + x_;\n",
              x->tx, x->ty);
    pl_cg_put(w, "const bool on_ = k_ < a.s[%d];\nconst I n_ = on_ ? a.s[%d] : 0;\n", n_keep, n_fold);
    put_place(w, &x->keep, "on_ ? k_ : 0", "base_");
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (!among(k, x->folded)) continue;
        const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
        pl_cg_put(w, "%s t%d[1] = {%s::none<%s>()};\nconst %s *const A%d = (const %s *)a.p[%d];\n",
                  acc, s, pl_cg_fold(k->reduce), acc, acc, s, acc,
                  pl_cg_pointer(w, PL_CODE_WORK, 0, k->partial, 16));
    }
    put_walk(w, x);
    for (int s = 0; s < p->n_sink; s++) {
        if (!among(&p->sink[s], x->folded)) continue;
        char val[24];
        snprintf(val, sizeof val, "t%d[0]", s);
        if (x->ty > 32)
            pl_cg_put(w, "p_lanes<%s>(t%d, sm_, (int)threadIdx.x, (int)y_, Y, X);\n", pl_cg_fold(p->sink[s].reduce), s);
        else
            pl_cg_put(w, "t%d[0] = p_neighbours<%s, Y>(t%d[0]);\n", s, pl_cg_fold(p->sink[s].reduce), s);
        pl_cg_put(w, "if (on_ && y_ == 0) {\n");
        pl_cg_put_result(w, s, val, "k_");
        pl_cg_put(w, "}\n");
    }
}

pl_status pl_cg_folds(const pl_cg_pass *p, const pl_cg_runs *r, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    if (!w) return PL_ERR_MEMORY;
    size_t most = 0;
    int64_t blocks = 0;
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        size_t one = pl_cg_acc_bytes(p->instr[k->src].dtype, k->reduce);
        if (k->kind == PL_FORM_REDUCE && one > most) most = one;
    }
    pl_cg_put(w, "extern \"C\" __global__ void __launch_bounds__(%d) " PL_CODE_ENTRY
                 "(const GRID_CONST p_args a)\n{\n__shared__ __align__(16) unsigned char sm_[%zu];\n", PL_CG_THREADS,
              PL_CG_THREADS * most);
    for (int s = 0; s < p->n_sink; s++) {
        bool first = p->sink[s].kind == PL_FORM_REDUCE;
        for (int i = 0; i < s; i++) first &= !among(&p->sink[i], p->sink[s].folded);
        if (!first) continue;
        section x = section_of(p, r, p->sink[s].folded);
        pl_cg_put(w, "if ((I)blockIdx.x >= a.s[%d] && (I)blockIdx.x < a.s[%d]) {\n", pl_cg_size(w, blocks),
                  pl_cg_size(w, blocks + x.blocks));
        pl_cg_put(w, "const I b_ = (I)blockIdx.x - a.s[%d];\n", pl_cg_size(w, blocks));
        put_section(w, &x);
        pl_cg_put(w, "}\n");
        blocks += x.blocks;
    }
    pl_cg_put(w, "}\n");
    return pl_cg_finish(w, (uint32_t)blocks, PL_CG_THREADS, 1, out);
}
