/* codegen_row.c - writes row kernels: rows are reduced and their sums are used (softmax, norms over
 * the last dims, losses).
 *
 *   tx threads share a row of N elements; thread t takes the chunks t, t + tx, ... of V elements
 *   a block has ty rows (several short ones) or one (tx > 32)
 *
 * Idea: rows are read once. Raw chunks stay in registers (STEPS of them per thread) while sums pass
 * from stage to stage (codegen_stages.c); values that are expensive to compute stay too, where
 * registers allow. Long rows, and groups with many operands, are read again in each stage.
 *
 * Invariant: which element a thread adds in which order depends on N alone, so the bits do not
 * depend on whether values stay in registers.
 *
 * Example: softmax of rows of 1000 floats, V = 4. Stage 0 reads the row and takes its maximum;
 * stage 1 computes exp(x - max), keeps it in registers and takes the sum; stage 2 divides and
 * stores. Memory is read once and written once.
 *
 * Column sums in the same kernel: codegen_beside.c.
 */
#include "cuda/codegen/codegen_row.h"

#include <stdio.h>
#include <string.h>

/* Whether the chunk has one element of the operand, which may differ between chunks. */
static bool one_a_chunk(const pl_cg_pass *p, int i)
{
    return pl_cg_access_of(p, &p->op[p->instr[i].operand], p->vec) == PL_CG_UNIFORM;
}

/* Declares <to><i><tail>, which holds a chunk in its memory format. */
void pl_cg_row_declare(pl_cg *w, int i, const char *to, const char *tail)
{
    const char *mem = pl_cg_mem(w->p->instr[i].dtype);
    if (pl_cg_bytes(w->p, &w->p->op[w->p->instr[i].operand]))
        pl_cg_put(w, "p_bytes<V> %s%d%s;\n", to, i, tail);
    else if (one_a_chunk(w->p, i))
        pl_cg_put(w, "%s %s%d%s;\n", mem, to, i, tail);
    else
        pl_cg_put(w, "p_vec<%s, V> %s%d%s;\n", mem, to, i, tail);
}

static bool held(const pl_cg_stages *t, int i)
{
    return t->raw && t->dep[i] & PL_CG_DEP_O;
}

void pl_cg_row_load(pl_cg *w, int i, const char *to)
{
    const pl_cg_pass *p = w->p;
    int k = p->instr[i].operand;
    char base[24];
    snprintf(base, sizeof base, "at%d", i);
    pl_cg_put(w, "const I %s = b%d", base, k);
    if (pl_cg_access_of(p, &p->op[k], p->vec) != PL_CG_RAGGED) pl_cg_offset(w, k, PL_CG_INNER);
    pl_cg_put(w, ";\n");
    pl_cg_load(w, k, to, base);
}

/* Whether some threads have no chunk in the last step. */
static bool ragged(const pl_cg_pass *p)
{
    return p->steps && p->size[PL_CG_INNER] != (int64_t)p->steps * p->tx * p->vec;
}

const char *pl_cg_row_inside(const pl_cg_pass *p)
{
    return ragged(p) && p->columns ? "if (in_) " : "";
}

/* Whether a long row has much arithmetic: by default the compiler interleaves all steps, for which
 * there are not enough registers. */
static bool has_much_to_do(const pl_cg_pass *p)
{
    enum { MOST = 768 };
    int n = 0;
    for (int i = 0; i < p->n_instr; i++) n += p->used[i];
    return p->tx > 32 && !p->columns && n * p->steps * p->vec > MOST;
}

/* Returns the guard before a step of a row whose number of steps is fixed: a branch that separates
 * it from the other steps, a branch for the last step alone, or none. Threads of large blocks have
 * few registers. */
static const char *step_guard(const pl_cg_pass *p)
{
    if (has_much_to_do(p) || (ragged(p) && p->tx > PL_CG_THREADS)) return "if (e_ < N_) ";
    return ragged(p) ? "if (c < STEPS - 1 || e_ < N_) " : "";
}

/* Few warps, as with column sums, would wait at a branch; with many warps it is faster to skip
 * useless work. */
void pl_cg_row_chunks(pl_cg *w, bool fixed)
{
    if (!fixed)
        pl_cg_put(
            w,
            "_Pragma(\"unroll 4\") for (I c = 0; c < steps_; c++) {\nconst I e_ = ((I)c * T + t_) * V;\n"
            "if (e_ < N_) {\n");
    else if (ragged(w->p) && w->p->columns)
        pl_cg_put(
            w,
            "_Pragma(\"unroll\") for (int c = 0; c < STEPS; c++) {\nconst I at_ = ((I)c * T + t_) * V;\n"
            "const bool in_ = c < STEPS - 1 || at_ < N_;\nconst I e_ = in_ ? at_ : 0;\n{\n");
    else
        pl_cg_put(
            w,
            "_Pragma(\"unroll\") for (int c = 0; c < STEPS; c++) {\nconst I e_ = ((I)c * T + t_) * V;\n%s{\n",
            step_guard(w->p));
    pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(w->p, PL_CG_INNER), "e_", "i");
}

bool pl_cg_row_stays(const pl_cg_stages *t, int i)
{
    const pl_cg_pass *p = t->p;
    return p->used[i] && p->instr[i].code == PL_FUSED_LOAD && t->dep[i] & PL_CG_DEP_J && held(t, i);
}

/* Writes the loads of all chunks that stay in registers and were not loaded ahead. */
static void put_held(pl_cg *w, const pl_cg_stages *t)
{
    const pl_cg_pass *p = w->p;
    bool any = false;
    for (int i = 0; i < p->n_instr; i++)
        if (pl_cg_row_stays(t, i) && !t->ahead[i] && !t->early[i]) {
            pl_cg_row_declare(w, i, "q", "[STEPS]");
            any = true;
        }
    if (!any) return;
    pl_cg_row_chunks(w, true);
    for (int i = 0; i < p->n_instr; i++)
        if (pl_cg_row_stays(t, i) && !t->ahead[i] && !t->early[i]) {
            char to[24];
            snprintf(to, sizeof to, "q%d[c]", i);
            pl_cg_row_load(w, i, to);
        }
    pl_cg_put(w, "}\n}\n");
}

/* Loads one element for the row: the inner set does not contribute to its offset. */
void pl_cg_row_one(pl_cg *w, int i, const char *to)
{
    char base[24];
    snprintf(base, sizeof base, "b%d", w->p->instr[i].operand);
    pl_cg_load(w, w->p->instr[i].operand, to, base);
}

/* Writes the values of a row that are available in this stage. */
static void put_uniform(pl_cg *w, const pl_cg_stages *t, int stage)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++) {
        const pl_fused_instr *x = &p->instr[i];
        if (!p->used[i] || t->phase[i] != stage || t->dep[i] & PL_CG_DEP_J) continue;
        if (x->code == PL_FUSED_LOAD) {
            char to[24], raw[24];
            snprintf(to, sizeof to, "q%d", i);
            snprintf(raw, sizeof raw, "q%d", i);
            if (!t->early[i]) {
                pl_cg_put(w, "%s q%d;\n", pl_cg_mem(x->dtype), i);
                pl_cg_row_one(w, i, to);
            }
            pl_cg_put(w, "const %s v%d = ", pl_cg_reg(x->dtype), i);
            pl_cg_from(w, x->dtype, raw);
            pl_cg_put(w, ";\n");
            snprintf(w->ref[i], sizeof *w->ref, "v%d", i);
        } else if (x->code == PL_FUSED_RAMP) {
            pl_cg_ramp(w, i);
        } else if (x->code == PL_FUSED_MAP) {
            pl_cg_map(w, i);
        }
    }
}

/* Whether a stage computes with values that it has rounded to 16 bits. One by one, the compiler
 * packs each with an unrelated element, which makes one wait for the other; so elements are then
 * written two at a time. */
static bool rounds_on_the_way(const pl_cg_stages *t, int stage)
{
    const pl_cg_pass *p = t->p;
    const bool *need = t->need + (size_t)stage * (size_t)p->n_instr;
    if (p->vec % 2 || pl_cg_inner_ramps(p)) return false;
    for (int i = 0; i < p->n_instr; i++) {
        int first = 0;
        if (!need[i] || !pl_cg_narrows(p, i)) continue;
        pl_cg_wanted(t, i, &first);
        if (t->kept[i] && first < stage) continue;
        for (int u = i + 1; u < p->n_instr; u++)
            for (int k = 0; need[u] && k < p->instr[u].n_arg; k++)
                if (p->instr[u].arg[k] == i) return true;
    }
    return false;
}

/* Writes the values of one element, or of two, that a stage needs. */
static void put_elements(pl_cg *w, const pl_cg_stages *t, int stage)
{
    const pl_cg_pass *p = w->p;
    const bool *need = t->need + (size_t)stage * (size_t)p->n_instr;
    for (int i = 0; i < p->n_instr; i++) {
        const pl_fused_instr *x = &p->instr[i];
        int first = 0;
        if (!need[i]) continue;
        pl_cg_wanted(t, i, &first);
        if (t->kept[i] && first < stage) {
            snprintf(w->ref[i], sizeof *w->ref, "k%d[c][j]", i);
            continue;
        }
        if (x->code == PL_FUSED_LOAD) {
            char raw[32];
            const char *tail = held(t, i) || t->fixed[i] ? "[c]" : "";
            if (pl_cg_bytes(p, &p->op[x->operand]))
                snprintf(raw, sizeof raw, "q%d%s.at(j)", i, tail);
            else
                snprintf(raw, sizeof raw, "q%d%s%s", i, tail, one_a_chunk(p, i) ? "" : ".x[j]");
            pl_cg_value(w, i);
            pl_cg_from(w, x->dtype, raw);
            pl_cg_put(w, ";\n");
        } else if (x->code == PL_FUSED_RAMP) {
            pl_cg_ramp(w, i);
        } else {
            pl_cg_map(w, i);
        }
        if (t->kept[i]) pl_cg_put(w, "%sk%d[c][j] = %s;\n", pl_cg_both(w), i, w->ref[i]);
    }
}

static void put_fresh_loads(pl_cg *w, const pl_cg_stages *t, int stage)
{
    const pl_cg_pass *p = w->p;
    const bool *need = t->need + (size_t)stage * (size_t)p->n_instr;
    for (int i = 0; i < p->n_instr; i++)
        if (need[i] && p->instr[i].code == PL_FUSED_LOAD && !held(t, i) && !t->fixed[i]) {
            char to[24];
            snprintf(to, sizeof to, "q%d", i);
            pl_cg_row_declare(w, i, "q", "");
            pl_cg_row_load(w, i, to);
        }
}

/* Whether this stage accumulates sum i: sums of phase stage + 1, and variances of phase stage. */
static bool sums_in(const pl_cg_stages *t, int i, int stage, bool *var)
{
    const pl_cg_pass *p = t->p;
    if (!pl_cg_row_sum(p, i)) return false;
    *var = t->phase[i] == stage && pl_cg_row_var(p, i);
    return t->phase[i] == stage + 1 || *var;
}

static void put_sum_start(pl_cg *w, int i, bool var)
{
    const pl_fused_instr *x = &w->p->instr[i];
    pl_dtype d = w->p->instr[x->arg[0]].dtype;
    pl_reduce_fn fn = x->reduce == PL_REDUCE_MOMENTS ? PL_REDUCE_SUM : x->reduce;
    pl_cg_put(w,
              "%s %s%d[V];\n_Pragma(\"unroll\") for (int j = 0; j < V; j++) %s%d[j] = "
              "%s::none<%s>();\n",
              pl_cg_acc(d, fn), var ? "va" : "ac", i, var ? "va" : "ac", i, pl_cg_fold(fn),
              pl_cg_acc(d, fn));
}

static void put_sum_take(pl_cg *w, int i, bool var)
{
    const pl_fused_instr *x = &w->p->instr[i];
    const char *v = w->ref[x->arg[0]];
    pl_dtype d = w->p->instr[x->arg[0]].dtype;
    if (var) {
        pl_cg_put(w, "%s%s{ const %s d_ = %s - mean%d; va%d[j] += d_ * d_; }\n", pl_cg_both(w),
                  pl_cg_row_inside(w->p), pl_cg_reg(d), v, i, i);
        return;
    }
    pl_reduce_fn fn = x->reduce == PL_REDUCE_MOMENTS ? PL_REDUCE_SUM : x->reduce;
    pl_cg_put(w, "%s%sac%d[j] = %s::op(ac%d[j], (%s)%s);\n", pl_cg_both(w), pl_cg_row_inside(w->p),
              i, pl_cg_fold(fn), i, pl_cg_acc(d, fn), v);
}

/* Returns the C type of the accumulator of sum i of a stage, or of its variance. */
static const char *sum_type(const pl_cg_pass *p, int i)
{
    const pl_fused_instr *x = &p->instr[i];
    return pl_cg_acc(p->instr[x->arg[0]].dtype,
                     x->reduce == PL_REDUCE_MOMENTS ? PL_REDUCE_SUM : x->reduce);
}

static const char *sum_fold(const pl_cg_pass *p, int i)
{
    pl_reduce_fn fn = p->instr[i].reduce;
    return pl_cg_fold(fn == PL_REDUCE_MOMENTS ? PL_REDUCE_SUM : fn);
}

/* Writes p<k>: the warp's part of sum i. Rows of several warps store it for the other warps. */
static void put_sum_part(pl_cg *w, int i, bool var)
{
    const pl_cg_pass *p = w->p;
    const char *fold = sum_fold(p, i), *type = sum_type(p, i);
    int k = var ? i + 1 : i;
    pl_cg_put(w, "const %s p%d = p_row<%s, %s>(p_within<%s>(%s%d));\n", type, k, fold,
              p->tx > 32 ? "32" : "T", fold, var ? "va" : "ac", i);
    if (p->tx > 32)
        pl_cg_put(w,
                  "__shared__ __align__(16) %s x%d[%d * T / 32];\n"
                  "if (threadIdx.x %% 32 == 0) x%d[threadIdx.x / 32] = p%d;\n",
                  type, k, p->ty, k, k);
}

/* Writes the row's result, rounded to its dtype, as v<i>; a variance is v<i+1>. */
static void put_sum_end(pl_cg *w, int i, bool var)
{
    const pl_cg_pass *p = w->p;
    const pl_fused_instr *x = &p->instr[i];
    pl_dtype d = p->instr[x->arg[0]].dtype;
    bool moments = x->reduce == PL_REDUCE_MOMENTS;
    int k = var ? i + 1 : i;
    char total[96], raw[24];
    if (p->tx > 32)
        snprintf(total, sizeof total, "p_tree<%s, T / 32>(x%d%s, 1)", sum_fold(p, i), k,
                 p->ty > 1 ? " + lane_ * (T / 32)" : "");
    else
        snprintf(total, sizeof total, "p%d", k);
    snprintf(raw, sizeof raw, moments && !var ? "mean%d" : "tot%d", k);
    if (moments)
        pl_cg_put(w, "const %s %s = p_over(%s, (%s)N_, inv_);\n", pl_cg_reg(d), raw, total,
                  pl_cg_reg(d));
    else
        pl_cg_put(w, "const %s %s = (%s)%s;\n", pl_cg_reg(d), raw, pl_cg_reg(d), total);
    pl_cg_put(w, "const %s v%d = ", pl_cg_reg(p->instr[k].dtype), k);
    pl_dtype acc = pl_dtype_is_float(d) ? (d == PL_F64 ? PL_F64 : PL_F32) : d;
    pl_cg_cast(w, p->instr[k].dtype, acc, raw);
    pl_cg_put(w, ";\n");
    snprintf(w->ref[k], sizeof *w->ref, "v%d", k);
}

void pl_cg_row_meet(pl_cg *w)
{
    if (w->p->tx <= 32) return;
    if (w->p->ty > 1)
        pl_cg_put(w, "p_meet<T>(lane_);\n");
    else
        pl_cg_put(w, "__syncthreads();\n");
}

static void put_sums_end(pl_cg *w, const pl_cg_stages *t, int stage)
{
    bool any = false, var = false;
    for (int i = 0; i < w->p->n_instr; i++)
        if (sums_in(t, i, stage, &var)) {
            put_sum_part(w, i, var);
            any = true;
        }
    if (any) pl_cg_row_meet(w);
    for (int i = 0; i < w->p->n_instr; i++)
        if (sums_in(t, i, stage, &var)) put_sum_end(w, i, var);
}

static int stages_with_sums(const pl_cg_stages *t)
{
    int n = 0;
    bool var = false;
    for (int stage = 0; stage < t->n; stage++) {
        bool any = false;
        for (int i = 0; i < t->p->n_instr; i++) any |= sums_in(t, i, stage, &var);
        n += any;
    }
    return n;
}

/* Whether the value that the last stage stores in sink s exists as words of two elements. */
static bool in_words(const pl_cg *w, const pl_cg_stages *t, int s)
{
    const pl_cg_sink *k = &w->p->sink[s];
    return w->two && w->p->instr[k->src].dtype == k->dtype && pl_cg_narrows(w->p, k->src) &&
           t->dep[k->src] & PL_CG_DEP_J && !t->kept[k->src];
}

/* Writes the type of a chunk that sink s stores. */
static void put_chunk(pl_cg *w, const pl_cg_stages *t, int s)
{
    bool words = in_words(w, t, s);
    pl_cg_put(w, "p_vec<%s, V%s>", words ? "unsigned" : pl_cg_mem(w->p->sink[s].dtype),
              words ? " / 2" : "");
}

static void put_stage(pl_cg *w, const pl_cg_stages *t, int stage)
{
    const pl_cg_pass *p = w->p;
    bool last = stage == t->n - 1, any = false, var = false;
    put_uniform(w, t, stage);
    for (int i = 0; i < p->n_instr; i++)
        if (sums_in(t, i, stage, &var)) {
            put_sum_start(w, i, var);
            any = true;
        }
    for (int s = 0; s < p->n_sink; s++) any |= last && p->sink[s].kind != PL_FUSED_ROWS;
    if (!any) return;
    w->two = rounds_on_the_way(t, stage);
    pl_cg_row_chunks(w, p->steps > 0);
    put_fresh_loads(w, t, stage);
    for (int s = 0; last && s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_STORE) {
            put_chunk(w, t, s);
            pl_cg_put(w, " w%d;\n", s);
        }
    pl_cg_put(w, "_Pragma(\"unroll\") for (int %s) {\n",
              w->two ? "i_ = 0; i_ < V; i_ += 2" : "j = 0; j < V; j++");
    if (pl_cg_inner_ramps(p))
        pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(p, PL_CG_INNER), "e_ + j", "x");
    put_elements(w, t, stage);
    for (int i = 0; i < p->n_instr; i++)
        if (sums_in(t, i, stage, &var)) put_sum_take(w, i, var);
    for (int s = 0; last && s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind == PL_FUSED_REDUCE && pl_cg_twin(p, s) == s)
            pl_cg_put(w, "%s%sif (on_) cs%d[c][j] = %s::op(cs%d[c][j], (%s)%s);\n", pl_cg_both(w),
                      pl_cg_row_inside(p), s, pl_cg_fold(k->reduce), s,
                      pl_cg_acc(p->instr[k->src].dtype, k->reduce), w->ref[k->src]);
        if (k->kind != PL_FUSED_STORE) continue;
        if (in_words(w, t, s)) {
            pl_cg_put(w, "w%d.x[i_ / 2] = g%d;\n", s, k->src);
            continue;
        }
        pl_cg_put(w, "%sw%d.x[j] = ", pl_cg_both(w), s);
        pl_cg_element(w, k->dtype, k->src);
        pl_cg_put(w, ";\n");
    }
    pl_cg_put(w, "}\n");
    for (int s = 0; last && s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_STORE) {
            pl_cg_put(w, "%sif (on_) *(", pl_cg_row_inside(p));
            put_chunk(w, t, s);
            pl_cg_put(w, " *)(W%d + (row_ * N_ + e_)) = w%d;\n", s, s);
        }
    pl_cg_put(w, "}\n}\n");
    w->two = false;
    put_sums_end(w, t, stage);
}

static void put_rows(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "if (on_ && t_ == 0) {\n");
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_ROWS) continue;
        uint32_t al = (uint32_t)pl_dtype_bytes(k->dtype);
        int ptr = k->save >= 0 ? pl_cg_pointer(w, PL_CODE_WORK, 0, k->save, al)
                               : pl_cg_pointer(w, PL_CODE_OUT, (uint32_t)k->out, 0, al);
        pl_cg_put(w, "((%s *)a.p[%d])[row_] = ", pl_cg_mem(k->dtype), ptr);
        pl_cg_element(w, k->dtype, k->src);
        pl_cg_put(w, ";\n");
    }
    pl_cg_put(w, "}\n");
}

/* Declares where a row's operands begin. */
void pl_cg_row_bases(pl_cg *w)
{
    pl_cg_coords(w, PL_CG_OUTER, 0, pl_cg_rank(w->p, PL_CG_OUTER), "o_", "o");
    pl_cg_bases(w, false);
}

static void put_head(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    int rows = pl_cg_size(w, p->size[PL_CG_OUTER]), n = pl_cg_size(w, p->size[PL_CG_INNER]);
    pl_cg_head(w, p->tx * pl_cg_beside_lanes(p), 0);
    pl_cg_put(w, "enum { V = %d, T = %d, STEPS = %d };\n", p->vec, p->tx, p->steps ? p->steps : 1);
    pl_cg_put(w, "const I N_ = a.s[%d], t_ = threadIdx.x %% T;\nconst float inv_ = a.f[%d];\n", n,
              pl_cg_float(w, 1.0f / (float)p->size[PL_CG_INNER]));
    if (!p->steps) pl_cg_put(w, "const I steps_ = (N_ + T * V - 1) / (T * V);\n");
    pl_cg_dividers(w);
    pl_cg_pointers(w);
    pl_cg_outputs(w);
    if (p->columns) return;
    pl_cg_put(w, "const I row_ = (I)blockIdx.x * %d + (I)threadIdx.x / T;\n", p->ty);
    pl_cg_put(w, "const bool on_ = row_ < a.s[%d];\nconst I o_ = on_ ? row_ : a.s[%d] - 1;\n", rows,
              rows);
    pl_cg_row_bases(w);
}

pl_status pl_cg_row(const pl_cg_pass *p, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    int *dep = pl_arena_new(a, int, p->n_instr + 1);
    pl_cg_stages t;
    if (!w || !dep) return PL_ERR_MEMORY;
    pl_cg_deps(p, p->vec, dep);
    for (int i = 0; i < p->n_instr; i++) /* what varies in a row is per element */
        if (dep[i] & PL_CG_DEP_I) dep[i] |= PL_CG_DEP_J;
    PL_TRY(pl_cg_stages_make(p, dep, a, &t));
    pl_cg_beside_find(&t);
    put_head(w);
    if (p->columns) pl_cg_beside_open(w, &t);
    put_held(w, &t);
    for (int i = 0; i < p->n_instr; i++)
        if (t.kept[i]) pl_cg_put(w, "%s k%d[STEPS][V];\n", pl_cg_reg(p->instr[i].dtype), i);
    for (int s = 0; s < t.n; s++) put_stage(w, &t, s);
    put_rows(w);
    int meetings = stages_with_sums(&t);
    if (p->columns && meetings == 1) { /* the next row's partial sums go where this row's are
                                        * read */
        pl_cg_row_meet(w);
        meetings++;
    }
    int64_t blocks = (p->size[PL_CG_OUTER] + p->ty - 1) / p->ty;
    if (p->columns) {
        pl_cg_put(w, "}\n");
        pl_cg_beside_close(w, meetings);
        blocks = p->walk.n == 3 ? p->walk.size[0] * p->parts : p->parts;
    }
    pl_cg_put(w, "}\n");
    PL_TRY(pl_cg_finish(w, (uint32_t)blocks, (uint32_t)(p->tx * pl_cg_beside_lanes(p)), 1, out));
    out->shared = (uint32_t)pl_cg_beside_large(&t);
    return PL_OK;
}
