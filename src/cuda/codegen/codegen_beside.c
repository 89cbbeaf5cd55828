/* codegen_beside.c - column sums in the row kernel that reads the same elements.
 *
 * Idea: the backward pass of a norm needs sums along rows and sums down columns of the same values.
 * A second pass would read everything again; here a block takes a part of the rows, like a block of
 * a sheet kernel, and each lane accumulates its columns while it walks the rows.
 *
 * Invariant: a column is summed in the order of the sheet kernel: every lane in the same order,
 * then the lanes. The bits equal those of a separate pass.
 *
 * Lanes that share a warp run together up to the last row of all of them; where lanes do not fill a
 * warp, threads without rows fill it. Lanes of several warps have a barrier each and execute it as
 * many times as the first lane, with or without a row: checkers that order accesses by barriers
 * (compute-sanitizer's racecheck) then order the barriers of the whole block correctly.
 *
 * Cost: column sums stay in registers, which leaves room for few warps. To hide latency a lane
 * loads rows before it computes the current one: two rows ahead into shared memory, as far as
 * shared memory suffices, else one; single values of a row, and what does not fit, go into
 * registers.
 */
#include "cuda/codegen/codegen_row.h"

#include <stdio.h>

enum { EARLY_REGS = 16 };
/* a thread with more elements of a row than this has registers for one block per multiprocessor */
enum { ALONE_ELEMS = 16 };
enum { SHARED_BYTES = 48 << 10, ALONE_BYTES = 64 << 10 };
/* limit for rows, sums and values that are equal for all rows; it leaves enough for the rest */
enum { FIXED_REGS = 124 };

int pl_cg_beside_lanes(const pl_cg_pass *p)
{
    return p->columns && p->tx < 32 ? (int)pl_cg_ceil(p->ty, 32 / p->tx) * (32 / p->tx) : p->ty;
}

static int chunk_bytes(const pl_cg_pass *p, int i)
{
    return p->vec * (int)pl_dtype_bytes(p->op[p->instr[i].operand].dtype);
}

static int sums_of(const pl_cg_pass *p)
{
    int n = 0;
    for (int s = 0; s < p->n_sink; s++)
        n += p->sink[s].kind == PL_FUSED_REDUCE && pl_cg_twin(p, s) == s;
    return n;
}

/* Returns the registers of values kept for a row and of column sums. */
static int registers(const pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int elems = p->steps * p->vec, n = 0;
    for (int i = 0; i < p->n_instr; i++)
        if (t->kept[i] || pl_cg_row_stays(t, i))
            n += t->kept[i] ? elems : elems * (int)pl_dtype_bytes(p->instr[i].dtype) / 4;
    return n + elems * sums_of(p);
}

/* Keeps operands that are equal for all rows in registers, if there are enough. */
static void find_fixed(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int elems = p->steps * p->vec, n = registers(t);
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        if (!(t->dep[i] & PL_CG_DEP_J) || t->dep[i] & PL_CG_DEP_O) continue;
        int regs = elems * (int)pl_dtype_bytes(p->instr[i].dtype) / 4;
        if (n + regs > FIXED_REGS) continue;
        t->fixed[i] = true;
        n += regs;
    }
}

static int row_bytes(const pl_cg_pass *p, int i)
{
    return pl_cg_beside_lanes(p) * p->steps * p->tx * chunk_bytes(p, i);
}

/* Returns an upper bound of the shared memory for partial row sums (codegen_row.c). */
static int row_sums_bytes(const pl_cg_pass *p)
{
    int n = 0;
    for (int i = 0; i < p->n_instr; i++) n += p->used[i] && p->instr[i].code == PL_FUSED_ROW_REDUCE;
    return p->tx > 32 ? 2 * n * p->ty * (p->tx / 32 * 8 + 8) : 0;
}

/* Returns the shared memory limit of a block: what every GPU gives any kernel; where registers
 * leave room for one block only, what every GPU has per multiprocessor. */
static int most_shared(const pl_cg_pass *p)
{
    return (p->steps * p->vec > ALONE_ELEMS ? ALONE_BYTES : SHARED_BYTES) - row_sums_bytes(p);
}

/* Assigns places in shared memory: a second place for each operand, as far as memory suffices.
 * Operands with two places lie before the others; the second places are `ring` bytes after the
 * first. */
static void find_places(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int once = 0;
    for (int i = 0; i < p->n_instr; i++) {
        if (!t->ahead[i] || t->shared + row_bytes(p, i) > most_shared(p)) continue;
        t->twice[i] = true;
        t->shared += row_bytes(p, i);
        t->ahead[i] = 1 + t->ring;
        t->ring += row_bytes(p, i);
    }
    for (int i = 0; i < p->n_instr; i++) {
        if (!t->ahead[i] || t->twice[i]) continue;
        t->ahead[i] = 1 + 2 * t->ring + once;
        once += row_bytes(p, i);
    }
}

/* Chooses the operands that are loaded ahead: whole words as far as shared memory suffices, the
 * rest as far as registers do. */
void pl_cg_beside_find(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int room = EARLY_REGS;
    if (!p->columns) return;
    for (int i = 0; i < p->n_instr; i++) {
        if (p->used[i] && p->instr[i].code == PL_FUSED_LOAD && !(t->dep[i] & PL_CG_DEP_J))
            t->early[i] = true;
        if (!pl_cg_row_stays(t, i)) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        int chunk = chunk_bytes(p, i), bytes = row_bytes(p, i), regs = p->steps * chunk / 4;
        bool words = pl_cg_access_of(p, o, p->vec) == PL_CG_VECTOR &&
                     (chunk == 4 || chunk == 8 || chunk == 16);
        if (!words) continue;
        if (t->shared + bytes <= most_shared(p)) {
            t->ahead[i] = 1;
            t->shared += bytes;
        } else if (regs <= room) {
            t->early[i] = true;
            room -= regs;
        }
    }
    find_places(t);
    find_fixed(t);
}

static bool any_early(const pl_cg_stages *t)
{
    bool any = false;
    for (int i = 0; i < t->p->n_instr; i++) any |= t->early[i];
    return any;
}

/* Writes the code that starts loading operands of `row` into shared memory, if the row exists.
 * twice: the operands with two places there, else the operands with one. The target is `ring` bytes
 * after the operand's first place. */
static void put_send(pl_cg *w, const pl_cg_stages *t, bool twice, const char *row, const char *ring)
{
    const pl_cg_pass *p = w->p;
    if (!(twice ? t->ring : t->shared - 2 * t->ring)) return;
    pl_cg_put(w, "if (%s < end_) {\nconst I o_ = lead_ * A_ + %s;\n", row, row);
    pl_cg_row_bases(w);
    pl_cg_row_chunks(w, true);
    for (int i = 0; i < p->n_instr; i++) {
        int k = p->instr[i].operand, chunk = chunk_bytes(p, i);
        if (!t->ahead[i] || t->twice[i] != twice) continue;
        pl_cg_put(w, "p_send<%d>(sm_ + %s + %d + ((lane_ * STEPS + c) * T + t_) * %d, P%d + (b%d",
                  chunk, ring, t->ahead[i] - 1, chunk, k, k);
        pl_cg_offset(w, k, PL_CG_INNER);
        pl_cg_put(w, "));\n");
    }
    pl_cg_put(w, "}\n}\n}\np_sent();\n");
}

/* Writes the loads into registers for row r_, if the row exists. */
static void put_early(pl_cg *w, const pl_cg_stages *t)
{
    const pl_cg_pass *p = w->p;
    char to[24];
    if (!any_early(t)) return;
    pl_cg_put(w, "if (r_ < end_) {\nconst I o_ = lead_ * A_ + r_;\n");
    pl_cg_row_bases(w);
    pl_cg_row_chunks(w, true);
    for (int i = 0; i < p->n_instr; i++)
        if (t->early[i] && t->dep[i] & PL_CG_DEP_J) {
            snprintf(to, sizeof to, "n%d[c]", i);
            pl_cg_row_load(w, i, to);
        }
    pl_cg_put(w, "}\n}\n");
    for (int i = 0; i < p->n_instr; i++)
        if (t->early[i] && !(t->dep[i] & PL_CG_DEP_J)) {
            snprintf(to, sizeof to, "n%d", i);
            pl_cg_row_one(w, i, to);
        }
    pl_cg_put(w, "}\n");
}

/* Writes the loads that are equal for all rows. */
static void put_fixed(pl_cg *w, const pl_cg_stages *t)
{
    const pl_cg_pass *p = w->p;
    bool any = false;
    for (int i = 0; i < p->n_instr; i++)
        if (t->fixed[i]) {
            pl_cg_row_declare(w, i, "q", "[STEPS]");
            any = true;
        }
    if (!any) return;
    pl_cg_put(w, "{\nconst I o_ = 0;\n");
    pl_cg_row_bases(w);
    pl_cg_row_chunks(w, true);
    for (int i = 0; i < p->n_instr; i++)
        if (t->fixed[i]) {
            char to[24];
            snprintf(to, sizeof to, "q%d[c]", i);
            pl_cg_row_load(w, i, to);
        }
    pl_cg_put(w, "}\n}\n}\n");
}

/* Declares the registers that loads ahead go to. */
static void declare_early(pl_cg *w, const pl_cg_stages *t, const char *to)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++) {
        if (!t->early[i]) continue;
        if (t->dep[i] & PL_CG_DEP_J)
            pl_cg_row_declare(w, i, to, "[STEPS]");
        else
            pl_cg_put(w, "%s %s%d;\n", pl_cg_mem(p->instr[i].dtype), to, i);
    }
}

/* Writes the copies of loaded data from shared memory into registers. */
static void put_take(pl_cg *w, const pl_cg_stages *t)
{
    const pl_cg_pass *p = w->p;
    for (int i = 0; i < p->n_instr; i++)
        if (t->ahead[i]) pl_cg_row_declare(w, i, "q", "[STEPS]");
    declare_early(w, t, "q");
    for (int i = 0; i < p->n_instr; i++)
        if (t->early[i] && !(t->dep[i] & PL_CG_DEP_J)) pl_cg_put(w, "q%d = n%d;\n", i, i);
    if (t->shared) pl_cg_put(w, "p_came<%d>();\n", t->ring ? 1 : 0);
    pl_cg_row_chunks(w, true);
    for (int i = 0; i < p->n_instr; i++) {
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        if (t->early[i] && t->dep[i] & PL_CG_DEP_J) pl_cg_put(w, "q%d[c] = n%d[c];\n", i, i);
        if (!t->ahead[i]) continue;
        pl_cg_put(w, "q%d[c] = *(const ", i);
        if (pl_cg_bytes(p, o))
            pl_cg_put(w, "p_bytes<V>");
        else
            pl_cg_put(w, "p_vec<%s, V>", pl_cg_mem(o->dtype));
        pl_cg_put(w, " *)(sm_ + %s + %d + ((lane_ * STEPS + c) * T + t_) * %d);\n",
                  t->twice[i] ? "ring_" : "0", t->ahead[i] - 1, chunk_bytes(p, i));
    }
    pl_cg_put(w, "}\n}\n");
}

/* Returns the shared memory of a block: for rows loaded ahead, and at the end for the lanes'
 * sums. */
static int shared_bytes(const pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int sums = p->ty > 1 ? pl_cg_beside_lanes(p) * p->steps * p->tx * p->vec * 4 : 16;
    return t->shared > sums ? t->shared : sums;
}

int pl_cg_beside_large(const pl_cg_stages *t)
{
    int bytes = t->p->columns ? shared_bytes(t) : 0;
    return bytes + row_sums_bytes(t->p) > SHARED_BYTES ? bytes : 0;
}

static void declare_sums(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_REDUCE || pl_cg_twin(p, s) != s) continue;
        const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
        pl_cg_put(w,
                  "%s cs%d[STEPS][V];\n_Pragma(\"unroll\") for (int c = 0; c < STEPS; c++) "
                  "for (int j = 0; j < V; j++) cs%d[c][j] = %s::none<%s>();\n",
                  acc, s, s, pl_cg_fold(k->reduce), acc);
    }
}

/* Lanes take rows in pairs. */
static void put_next_row(pl_cg *w)
{
    pl_cg_put(w, "r_ += r_ - lo_ & 1 ? 2 * %d - 1 : 1;\n", w->p->ty);
}

/* Opens the walk of a lane over the rows of the block's part. */
void pl_cg_beside_open(pl_cg *w, const pl_cg_stages *t)
{
    const pl_cg_pass *p = w->p;
    int parts = pl_cg_divider(w, p->parts), part = pl_cg_size(w, p->part),
        along = pl_cg_size(w, p->walk.size[p->walk.along]);
    declare_sums(w);
    pl_cg_put(w, "const I lane_ = %s, lead_ = p_quot((I)blockIdx.x, a.m[%d]);\n",
              p->ty > 1 ? "threadIdx.x / T" : "0", parts);
    pl_cg_put(w, "const I A_ = a.s[%d], lo_ = ((I)blockIdx.x - lead_ * (I)a.m[%d].d) * a.s[%d];\n",
              along, parts, part);
    pl_cg_put(w, "const I hi_ = A_ - lo_ < a.s[%d] ? A_ : lo_ + a.s[%d];\n", part, part);
    if (pl_cg_beside_lanes(p) > p->ty)
        pl_cg_put(w, "const I end_ = lane_ < %d ? hi_ : lo_;\n", p->ty);
    else
        pl_cg_put(w, "const I end_ = hi_;\n");
    if (pl_cg_beside_large(t))
        pl_cg_put(w, "P_LARGE(sm_);\n");
    else
        pl_cg_put(w, "__shared__ __align__(16) unsigned char sm_[%d];\n", shared_bytes(t));
    pl_cg_put(w, "enum { RING = %d };\n", t->ring);
    put_fixed(w, t);
    pl_cg_put(w, "int ring_ = 0;\nI r_ = lo_ + 2 * lane_;\n");
    declare_early(w, t, "n");
    put_early(w, t);
    put_send(w, t, false, "r_", "0");
    put_send(w, t, true, "r_", "0");
    put_send(w, t, true, "r_ + 1", "RING");
    if (p->tx < 32)
        pl_cg_put(w, "while (r_ - 2 * (lane_ %% (32 / T)) < hi_) {\nconst bool on_ = r_ < end_;\n");
    else
        pl_cg_put(w, "while (r_ < hi_) {\nconst bool on_ = true;\n");
    pl_cg_put(w, "const I row_ = lead_ * A_ + (on_ ? r_ : lo_), o_ = row_, after_ = r_ + 2 * %d;\n",
              p->ty);
    put_next_row(w);
    put_take(w, t);
    put_early(w, t);
    put_send(w, t, false, "r_", "0");
    put_send(w, t, true, "after_", "ring_");
    pl_cg_put(w, "ring_ = RING - ring_;\n");
    pl_cg_row_bases(w);
}

/* Writes the tree that combines the lanes' sums, one thread per column, in the order of p_lanes. */
static void put_lanes(pl_cg *w, int s, int64_t rows)
{
    const pl_cg_pass *p = w->p;
    const pl_cg_sink *k = &p->sink[s];
    const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
    int cols = p->steps * p->tx * p->vec;
    pl_cg_put(
        w,
        "__syncthreads();\n_Pragma(\"unroll\") for (int c = 0; c < STEPS; c++) for (int j = 0; j < V; j++) "
        "((%s *)sm_)[((lane_ * STEPS + c) * T + t_) * V + j] = cs%d[c][j];\n__syncthreads();\n",
        acc, s);
    char val[96];
    snprintf(val, sizeof val, "p_tree<%s, %d>((const %s *)sm_ + e_, %d)", pl_cg_fold(k->reduce),
             p->ty, acc, cols);
    pl_cg_put(w, "for (I e_ = threadIdx.x; e_ < N_; e_ += %d)\n", p->tx * pl_cg_beside_lanes(p));
    pl_cg_put_partial(w, s, val, "(I)blockIdx.x", "e_", rows);
}

/* Writes the sums that each thread has of its columns. */
static void put_own(pl_cg *w, int s, int64_t rows)
{
    const pl_cg_pass *p = w->p;
    char val[24];
    snprintf(val, sizeof val, "cs%d[c][j]", s);
    pl_cg_row_chunks(w, true);
    pl_cg_put(w, "%s{\n_Pragma(\"unroll\") for (int j = 0; j < V; j++)\n", pl_cg_row_inside(p));
    pl_cg_put_partial(w, s, val, "(I)blockIdx.x", "(e_ + j)", rows);
    pl_cg_put(w, "}\n}\n}\n");
}

/* A lane with fewer rows than the first executes the barriers of its missing rows. */
static void put_idle(pl_cg *w, int meetings)
{
    if (w->p->ty == 1 || w->p->tx <= 32 || meetings == 0) return;
    pl_cg_put(w, "while (r_ - 2 * lane_ < hi_) {\n");
    put_next_row(w);
    for (int i = 0; i < meetings; i++) pl_cg_row_meet(w);
    pl_cg_put(w, "}\n");
}

void pl_cg_beside_close(pl_cg *w, int meetings)
{
    const pl_cg_pass *p = w->p;
    put_idle(w, meetings);
    int64_t rows = p->parts * (p->walk.n == 3 ? p->walk.size[0] : 1);
    for (int s = 0; s < p->n_sink; s++) {
        if (p->sink[s].kind != PL_FUSED_REDUCE || pl_cg_twin(p, s) != s) continue;
        if (p->ty > 1)
            put_lanes(w, s, rows);
        else
            put_own(w, s, rows);
    }
}
