/* codegen_step.c - writes the inner loop of flat and sheet kernels.
 *
 * Idea: a step takes U chunks of V elements: first all loads of all U chunks, so that many bytes
 * are in flight at once, then values, stores and accumulation.
 *
 * Invariant: a thread reads its elements before it writes them, and no other thread reads them, so
 * an output may be an input's memory (ir/group/inplace.h).
 */
#include "cuda/codegen/codegen_int.h"

#include <stdio.h>

/* ---- values ----------------------------------------------------------------------------- */

/* Writes the statements that load operand k of LOAD i into `to`. */
static void load(pl_cg *w, int i, const char *to)
{
    const pl_cg_pass *p = w->p;
    int k = p->instr[i].operand;
    char base[24];
    snprintf(base, sizeof base, "at%d", i);
    pl_cg_put(w, "const I %s = b%d", base, k);
    pl_cg_offset(w, k, PL_CG_ALONG);
    if (p->shape != PL_CG_SHEET && pl_cg_access_of(p, &p->op[k], p->vec) != PL_CG_RAGGED)
        pl_cg_offset(w, k, PL_CG_INNER);
    pl_cg_put(w, ";\n");
    pl_cg_load(w, k, to, base);
}

static void declare_raw(pl_cg *w, int i, bool per_element, const char *tail)
{
    const char *mem = pl_cg_mem(w->p->op[w->p->instr[i].operand].dtype);
    if (pl_cg_bytes(w->p, &w->p->op[w->p->instr[i].operand]))
        pl_cg_put(w, "p_bytes<V> q%d%s;\n", i, tail);
    else if (per_element)
        pl_cg_put(w, "p_vec<%s, V> q%d%s;\n", mem, i, tail);
    else
        pl_cg_put(w, "%s q%d%s;\n", mem, i, tail);
}

/* Writes the element of the contributing row of the pair: y_ is whether that is the second row. */
static void unpack_pair(pl_cg *w, int i)
{
    pl_dtype d = w->p->instr[i].dtype;
    char raw[2][32];
    for (int k = 0; k < 2; k++) snprintf(raw[k], sizeof raw[k], "q%d[u + %d].x[j]", i, k);
    pl_cg_put(w, "const %s v%d = y_ ? ", pl_cg_reg(d), i);
    pl_cg_from(w, d, raw[1]);
    pl_cg_put(w, " : ");
    pl_cg_from(w, d, raw[0]);
    pl_cg_put(w, ";\n");
    snprintf(w->ref[i], sizeof *w->ref, "v%d", i);
}

/* Writes v<i> from the loaded chunk. */
static void unpack(pl_cg *w, int i, bool per_element, const char *tail)
{
    pl_dtype d = w->p->instr[i].dtype;
    char raw[32];
    if (w->pair.on && w->pair.varies[i]) {
        unpack_pair(w, i);
        return;
    }
    if (pl_cg_bytes(w->p, &w->p->op[w->p->instr[i].operand]))
        snprintf(raw, sizeof raw, "q%d%s.at(j)", i, tail);
    else
        snprintf(raw, sizeof raw, "q%d%s%s", i, tail, per_element ? ".x[j]" : "");
    pl_cg_put(w, "const %s v%d = ", pl_cg_reg(d), i);
    pl_cg_from(w, d, raw);
    pl_cg_put(w, ";\n");
    snprintf(w->ref[i], sizeof *w->ref, "v%d", i);
    if (pl_cg_bytes(w->p, &w->p->op[w->p->instr[i].operand]))
        snprintf(w->raw[i], sizeof *w->raw, "q%d%s", i, tail);
}

/* Writes instruction i where its operands are in scope. */
static void value(pl_cg *w, int i, bool per_element, const char *tail)
{
    if (w->pair.on && i == w->pair.eq) {
        pl_cg_put(w, "const int v%d = x_ | y_;\n", i);
        snprintf(w->ref[i], sizeof *w->ref, "v%d", i);
        return;
    }
    switch (w->p->instr[i].code) {
    case PL_FUSED_LOAD: unpack(w, i, per_element, tail); break;
    case PL_FUSED_RAMP: pl_cg_ramp(w, i); break;
    default: pl_cg_map(w, i); break;
    }
}

static bool any_at(const pl_cg_pass *p, const int *lvl, const int *dep, int level, bool j)
{
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == level && !!(dep[i] & PL_CG_DEP_J) == j) return true;
    return false;
}

/* Opens the loop over the elements of a chunk, with their coordinates where ramps need them. */
static void open_elements(pl_cg *w)
{
    pl_cg_put(w, "_Pragma(\"unroll\") for (int j = 0; j < V; j++) {\n");
    if (pl_cg_inner_ramps(w->p))
        pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(w->p, PL_CG_INNER), "e_ + j", "x");
}

/* ---- before the loop -------------------------------------------------------------------- */

/* Whether instruction i is needed at a higher level, or by a sink. */
static bool leaves(const pl_cg_pass *p, const int *lvl, int i)
{
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].src == i) return true;
    for (int u = i + 1; u < p->n_instr; u++)
        for (int k = 0; lvl[u] > lvl[i] && k < p->instr[u].n_arg; k++)
            if (p->instr[u].arg[k] == i) return true;
    return false;
}

void pl_cg_hoist(pl_cg *w, const int *lvl, const int *dep, int level)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++) {
        if (lvl[i] != level || dep[i] & PL_CG_DEP_J) continue;
        if (p->instr[i].code == PL_FUSED_LOAD) {
            char to[24];
            snprintf(to, sizeof to, "q%d", i);
            declare_raw(w, i, false, "");
            load(w, i, to);
        }
        value(w, i, false, "");
    }
    if (!any_at(p, lvl, dep, level, true)) return;
    for (int i = 0; i < p->n_instr; i++) {
        if (lvl[i] != level || !(dep[i] & PL_CG_DEP_J)) continue;
        if (leaves(p, lvl, i)) pl_cg_put(w, "%s h%d[V];\n", pl_cg_reg(p->instr[i].dtype), i);
    }
    pl_cg_put(w, "{\n");
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == level && dep[i] & PL_CG_DEP_J && p->instr[i].code == PL_FUSED_LOAD) {
            char to[24];
            snprintf(to, sizeof to, "q%d", i);
            declare_raw(w, i, true, "");
            load(w, i, to);
        }
    open_elements(w);
    for (int i = 0; i < p->n_instr; i++) {
        if (lvl[i] != level || !(dep[i] & PL_CG_DEP_J)) continue;
        value(w, i, true, "");
        if (leaves(p, lvl, i)) pl_cg_put(w, "h%d[j] = v%d;\n", i, i);
    }
    pl_cg_put(w, "}\n}\n");
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == level && dep[i] & PL_CG_DEP_J) {
            snprintf(w->ref[i], sizeof *w->ref, "h%d[j]", i);
            w->raw[i][0] = 0;
        }
}

/* ---- sinks ------------------------------------------------------------------------------ */

void pl_cg_accumulators(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_REDUCE || pl_cg_twin(p, s) != s) continue;
        pl_dtype d = p->instr[k->src].dtype;
        if (k->reduce == PL_REDUCE_MOMENTS)
            pl_cg_put(w, "%s sh%d[V], su%d[V], sq%d[V];\n", pl_cg_reg(d), s, s, s);
        else
            pl_cg_put(w, "%s ac%d[V];\n", pl_cg_acc(d, k->reduce), s);
        pl_cg_put(w, "_Pragma(\"unroll\") for (int j = 0; j < V; j++) ");
        if (k->reduce == PL_REDUCE_MOMENTS)
            pl_cg_put(w, "sh%d[j] = su%d[j] = sq%d[j] = 0;\n", s, s, s);
        else
            pl_cg_put(w, "ac%d[j] = %s::none<%s>();\n", s, pl_cg_fold(k->reduce),
                      pl_cg_acc(d, k->reduce));
    }
    if (p->reduces) pl_cg_put(w, "I n_ = 0;\n");
}

static void take(pl_cg *w, int s)
{
    const pl_cg_sink *k = &w->p->sink[s];
    const char *v = w->ref[k->src];
    pl_dtype d = w->p->instr[k->src].dtype;
    if (pl_cg_twin(w->p, s) != s) return;
    if (k->kind == PL_FUSED_STORE) {
        pl_cg_put(w, "w%d.x[j] = ", s);
        pl_cg_element(w, k->dtype, k->src);
        pl_cg_put(w, ";\n");
    } else if (k->reduce == PL_REDUCE_MOMENTS) {
        pl_cg_put(w, "if (u == 0 && n_ == 0) sh%d[j] = %s;\n", s, v);
        pl_cg_put(w, "const %s d%d = %s - sh%d[j];\nsu%d[j] += d%d; sq%d[j] += d%d * d%d;\n",
                  pl_cg_reg(d), s, v, s, s, s, s, s, s);
    } else {
        const char *acc = pl_cg_acc(d, k->reduce);
        pl_cg_put(w, "ac%d[j] = %s::op(ac%d[j], (%s)%s);\n", s, pl_cg_fold(k->reduce), s, acc, v);
    }
}

/* Writes the LOADs of a step, as q<i>[U]. */
static void put_loads(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w))
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == 2 && p->instr[i].code == PL_FUSED_LOAD)
            declare_raw(w, i, dep[i] & PL_CG_DEP_J, "[U]");
    pl_cg_put(w, "_Pragma(\"unroll\") for (int u = 0; u < U; u++) {\n");
    index(w);
    if (p->shape == PL_CG_FLAT)
        pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(p, PL_CG_INNER), "e_", "i");
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == 2 && p->instr[i].code == PL_FUSED_LOAD) {
            char to[24];
            snprintf(to, sizeof to, "q%d[u]", i);
            load(w, i, to);
        }
    pl_cg_put(w, "}\n");
}

/* Writes values, stores and accumulation of a step. */
static void put_values(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w))
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "_Pragma(\"unroll\") for (int u = 0; u < U; u += %d) {\n", w->pair.on ? 2 : 1);
    index(w);
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == 2 && !(dep[i] & PL_CG_DEP_J)) value(w, i, false, "[u]");
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_STORE)
            pl_cg_put(w, "p_vec<%s, V> w%d;\n", pl_cg_mem(p->sink[s].dtype), s);
    open_elements(w);
    if (w->pair.on) {
        const pl_fused_instr *e = &p->instr[w->pair.eq];
        const char *place = w->ref[e->arg[1]];
        pl_cg_put(w, "const int x_ = q%d[u].same(j, %s), y_ = q%d[u].same(j, %s + %d);\n",
                  e->arg[0], place, e->arg[0], place, w->pair.step);
    }
    for (int i = 0; i < p->n_instr; i++)
        if (lvl[i] == 2 && dep[i] & PL_CG_DEP_J) value(w, i, true, "[u]");
    for (int s = 0; s < p->n_sink; s++) take(w, s);
    pl_cg_put(w, "}\n");
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_STORE)
            pl_cg_put(w, "*(p_vec<%s, V> *)(W%d + z_) = w%d;\n", pl_cg_mem(p->sink[s].dtype), s, s);
    if (w->keep[0]) pl_cg_put(w, "*(p_vec<p_u16, V> *)(WY_ + z_) = %s;\n", w->keep);
    pl_cg_put(w, "}\n");
    if (p->reduces) pl_cg_put(w, "n_ += U;\n");
}

void pl_cg_step(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w))
{
    put_loads(w, lvl, dep, index);
    put_values(w, lvl, dep, index);
}

void pl_cg_rows(pl_cg *w, const int *lvl, const int *dep, void (*index)(pl_cg *w),
                const char *pragma)
{
    const int unroll = w->p->unroll;
    const pl_cg_counts before = w->n;
    pl_cg_put(w, "%sfor (; row_ + (%d - 1) * Y_ < end_; row_ += %d * Y_) {\nenum { U = %d };\n",
              pragma, unroll, unroll, unroll);
    pl_cg_step(w, lvl, dep, index);
    pl_cg_put(w, "}\n");
    if (unroll <= 1) return;
    pl_cg_put(w, "for (; row_ < end_; row_ += Y_) {\nenum { U = 1 };\n");
    w->n = before;
    pl_cg_step(w, lvl, dep, index);
    pl_cg_put(w, "}\n");
}

/* ---- after the loop --------------------------------------------------------------------- */

void pl_cg_outputs(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_STORE) continue;
        size_t bytes = pl_dtype_bytes(k->dtype) * (size_t)p->vec;
        pl_cg_put(
            w, "%s *const W%d = (%s *)a.p[%d];\n", pl_cg_mem(k->dtype), s, pl_cg_mem(k->dtype),
            pl_cg_pointer(w, PL_CODE_OUT, (uint32_t)k->out, 0, bytes > 16 ? 16 : (uint32_t)bytes));
    }
}

/* Writes element `index` of a reduction's result or results, from the accumulator `value`. */
void pl_cg_put_result(pl_cg *w, int s, const char *val, const char *index)
{
    const pl_cg_sink *k = &w->p->sink[s];
    pl_dtype d = w->p->instr[k->src].dtype;
    uint32_t al = (uint32_t)pl_dtype_bytes(k->dtype);
    bool moments = k->reduce == PL_REDUCE_MOMENTS;
    for (int which = 0; which < (moments ? 2 : 1); which++) {
        int32_t out = which ? k->out2 : k->out;
        if (out < 0) continue;
        char text[96];
        snprintf(text, sizeof text,
                 !moments ? "%s"
                 : which  ? "(%s.m2 / %s.n)"
                          : "%s.mean",
                 val, val);
        pl_cg_put(w, "((%s *)a.p[%d])[%s] = ", pl_cg_mem(k->dtype),
                  pl_cg_pointer(w, PL_CODE_OUT, (uint32_t)out, 0, al), index);
        pl_cg_result(w, k->dtype, d, text);
        pl_cg_put(w, ";\n");
    }
}

void pl_cg_put_partial(pl_cg *w, int s, const char *val, const char *row, const char *col,
                       int64_t rows)
{
    const pl_cg_pass *p = w->p;
    const pl_cg_sink *k = &p->sink[s];
    const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
    pl_cg_put(w, "((%s *)a.p[%d])[", acc, pl_cg_pointer(w, PL_CODE_WORK, 0, k->partial, 16));
    if (pl_cg_strips(p->columns ? &p->walk : &p->runs))
        pl_cg_put(w, "((%s) / %d * a.s[%d] + (%s)) * %d + (%s) %% %d", col, PL_CG_STRIP,
                  pl_cg_size(w, rows), row, PL_CG_STRIP, col, PL_CG_STRIP);
    else
        pl_cg_put(w, "(%s) * %s + (%s)", row, p->shape == PL_CG_FLAT ? "1" : "N_", col);
    pl_cg_put(w, "] = %s;\n", val);
}

void pl_cg_leave(pl_cg *w, int s, const char *val, const char *col)
{
    const pl_cg_pass *p = w->p;
    char index[64];
    if (!p->direct) {
        pl_cg_put_partial(w, s, val, "to_", col, p->size[PL_CG_OUTER] * p->parts);
        return;
    }
    snprintf(index, sizeof index, p->shape == PL_CG_SHEET ? "o_ * N_ + %s" : "o_", col);
    for (int i = s; i < p->n_sink; i++)
        if (pl_cg_twin(p, i) == s && p->sink[i].kind == PL_FUSED_REDUCE)
            pl_cg_put_result(w, i, val, index);
}

void pl_cg_own(pl_cg *w, int s)
{
    const pl_cg_pass *p = w->p;
    const pl_cg_sink *k = &p->sink[s];
    pl_dtype d = p->instr[k->src].dtype;
    pl_cg_put(w, "%s t[V];\n_Pragma(\"unroll\") for (int j = 0; j < V; j++) t[j] = ",
              pl_cg_acc(d, k->reduce));
    if (k->reduce == PL_REDUCE_MOMENTS)
        pl_cg_put(w, "p_moments(sh%d[j], su%d[j], sq%d[j], (%s)n_);\n", s, s, s, pl_cg_reg(d));
    else
        pl_cg_put(w, "ac%d[j];\n", s);
}

static bool adds_up(const pl_cg_pass *p, int s)
{
    return p->sink[s].kind == PL_FUSED_REDUCE && pl_cg_twin(p, s) == s;
}

static int own_bytes(const pl_cg_pass *p, int s)
{
    const pl_cg_sink *k = &p->sink[s];
    return (int)pl_cg_acc_bytes(p->instr[k->src].dtype, k->reduce) * p->tx * p->ty * p->vec;
}

/* ---- one sum after the other: every lane of the block, or many lanes per column ---- */

static void one_total(pl_cg *w, int s)
{
    const pl_cg_pass *p = w->p;
    const pl_cg_sink *k = &p->sink[s];
    const char *fold = pl_cg_fold(k->reduce), *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
    pl_cg_put(w, "{\n");
    pl_cg_own(w, s);
    if (p->shape == PL_CG_SHEET) {
        pl_cg_put(w,
                  "p_lanes<%s>(t, sm_, (int)(threadIdx.y * blockDim.x + threadIdx.x), "
                  "(int)threadIdx.y, (int)blockDim.y, (int)blockDim.x);\n",
                  fold);
        pl_cg_put(w, "if (on_ && threadIdx.y == 0)\n"
                     "_Pragma(\"unroll\") for (int j = 0; j < V; j++) {\n");
        pl_cg_leave(w, s, "t[j]", "e_ + j");
    } else {
        pl_cg_put(w, "%s t1[1] = {p_within<%s>(t)};\n", acc, fold);
        pl_cg_put(w,
                  "p_lanes<%s>(t1, sm_, (int)threadIdx.x, (int)threadIdx.x, "
                  "(int)blockDim.x, 1);\nif (threadIdx.x == 0) {\n",
                  fold);
        pl_cg_leave(w, s, "t1[0]", "0");
    }
    pl_cg_put(w, "}\n}\n");
}

static void each_total(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    int most = 0;
    for (int s = 0; s < p->n_sink; s++)
        if (adds_up(p, s) && own_bytes(p, s) > most) most = own_bytes(p, s);
    pl_cg_put(w, "__shared__ __align__(16) unsigned char sm_[%d];\n",
              p->shape == PL_CG_SHEET ? most : most / p->vec);
    for (int s = 0; s < p->n_sink; s++)
        if (adds_up(p, s)) one_total(w, s);
}

/* ---- columns of few lanes: all sums at once, one thread per column of each sum ---- */

enum { TOTAL_BYTES = 32 << 10 };

/* Writes the columns that the sinks [lo, hi) left in shared memory, sink s from at[s] on. */
static void put_columns(pl_cg *w, const int *at, int lo, int hi)
{
    const pl_cg_pass *p = w->p;
    int cols = p->tx * p->vec, threads = p->tx * p->ty, from = 0;
    pl_cg_put(w, "__syncthreads();\n");
    for (int s = lo; s < hi; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (!adds_up(p, s)) continue;
        const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
        pl_cg_put(w, "for (int c_ = x_ < %d ? x_ + %d : x_ - %d; c_ < %d; c_ += %d) {\n", from,
                  threads - from, from, cols, threads);
        pl_cg_put(w, "if (tile_ * %d + c_ < N_) {\n", cols);
        pl_cg_put(w, "const %s v_ = p_tree<%s, %d>((const %s *)(sm_ + %d) + c_, %d);\n", acc,
                  pl_cg_fold(k->reduce), p->ty, acc, at[s], cols);
        pl_cg_leave(w, s, "v_", "first_ + c_");
        pl_cg_put(w, "}\n}\n");
        from = (from + cols) % threads;
    }
}

static pl_status all_totals(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    int *at = pl_arena_new(w->a, int, p->n_sink + 1), most = 0, lo = 0;
    if (!at) return PL_ERR_MEMORY;
    for (int s = 0, used = 0; s < p->n_sink; s++) {
        if (!adds_up(p, s)) continue;
        if (used + own_bytes(p, s) > TOTAL_BYTES) used = 0;
        at[s] = used;
        used += own_bytes(p, s);
        if (used > most) most = used;
    }
    pl_cg_put(w,
              "__shared__ __align__(16) unsigned char sm_[%d];\n"
              "const int x_ = (int)(threadIdx.y * blockDim.x + threadIdx.x);\n",
              most);
    for (int s = 0; s < p->n_sink; s++) {
        if (!adds_up(p, s)) continue;
        if (at[s] == 0 && s > lo) {
            put_columns(w, at, lo, s);
            pl_cg_put(w, "__syncthreads();\n");
            lo = s;
        }
        pl_cg_put(w, "{\n");
        pl_cg_own(w, s);
        pl_cg_put(
            w,
            "_Pragma(\"unroll\") for (int j = 0; j < V; j++) ((%s *)(sm_ + %d))[x_ * V + j] = t[j];\n}\n",
            pl_cg_acc(p->instr[p->sink[s].src].dtype, p->sink[s].reduce), at[s]);
    }
    put_columns(w, at, lo, p->n_sink);
    return PL_OK;
}

pl_status pl_cg_totals(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    if (!p->reduces) return PL_OK;
    if (p->shape == PL_CG_SHEET && p->ty <= PL_CG_FEW_LANES) return all_totals(w);
    each_total(w);
    return PL_OK;
}
