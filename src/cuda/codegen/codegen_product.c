/* codegen_product.c - writes the kernel of a group that begins with a product (ir/group/product.h):
 * the product of cuda/matmul/warpgroup.cuh, and the group as a sheet pass over each finished tile.
 *
 *   block b = (part, tile): columns of one tile, tiles of rows part, part + parts, ...
 *   the result of a tile is in shared memory, rounded as if it were stored; thread (x, y) of the
 *   warpgroup has columns tile * BN + 8 x + 0..7 and walks down rows y, y + Y, ... of the tile
 *
 * The group's text is that of codegen_step.c; only the operand that is the product's result is read
 * from the tile. Invariant:
 * sums over rows go through each thread in order, tile by tile, then the Y threads as a tree, then
 * the parts (codegen_fold.c); tiles and parts depend on sizes alone.
 */
#include "cuda/codegen/codegen_int.h"

#include "ir/group/product.h"
#include "plimsoll_embed.h"

#include <stdio.h>
#include <string.h>

PL_EMBED(product, "src/cuda/matmul/warpgroup.cuh");
PL_EMBED(windows, "src/cuda/conv/windows.cuh");

enum { LANES = 128, VEC = 8, BLOCKS = 264, STAGES = 3 };
enum { SHARED = 115712 }; /* two blocks fit a multiprocessor */

static uint32_t shared_bytes(const pl_code_tiles *t)
{
    int64_t line = (t->range * 128 + 1023) & ~(int64_t)1023;
    int64_t head = t->range ? t->stages * line + t->filters * t->bn * 128 + 16 * t->filters
                            : t->stages * (t->bm + t->bn) * 128;
    return (uint32_t)(1024 + head + t->bm * t->bn * 2 + 16 * t->stages);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool set_line(const pl_plain_product *p, pl_code_tiles *t)
{
    int64_t reach[2];
    for (int d = 0; d < 2; d++) {
        reach[d] = (p->window.taps[d] - 1) * p->window.apart[d];
        t->gap[d] = larger(p->window.pad[d], reach[d] - p->window.pad[d]);
    }
    t->range = t->bm + reach[0] * (p->window.size[1] + t->gap[1]) + reach[1];
    return t->range <= 1024 && shared_bytes(t) <= SHARED;
}

/* Sets tiles and stages for which two blocks fit a multiprocessor. Sums stay in registers beside a
 * product that takes 64 of a thread; windows, which read the filter again for each tile, take 128
 * where a line of so many pixels fits. Returns false where nothing fits. */
static bool set_tiles(const pl_plain_product *p, pl_code_tiles *t)
{
    static const pl_code_tiles wide[] = {{.bm = 128, .bn = 128, .stages = 2, .filters = 2},
                                         {.bm = 128, .bn = 128, .stages = 1, .filters = 3},
                                         {.bm = 64, .bn = 128, .stages = 2, .filters = 3},
                                         {.bm = 64, .bn = 128, .stages = 1, .filters = 3}};
    static const pl_code_tiles thin[] = {{.bm = 128, .bn = 64, .stages = 2, .filters = 3},
                                         {.bm = 128, .bn = 64, .stages = 1, .filters = 3}};
    const pl_code_tiles *list = p->n > 64 ? wide : thin;
    size_t n = p->n > 64 ? sizeof wide / sizeof *wide : sizeof thin / sizeof *thin;
    *t = p->n > 64 ? (pl_code_tiles){.bm = 64, .bn = 128, .stages = STAGES}
                   : (pl_code_tiles){.bm = 128, .bn = 64, .stages = STAGES};
    if (p->window.taps[0] == 0) return true;
    for (size_t i = 0; i < n; i++) {
        *t = list[i];
        if (set_line(p, t)) return true;
    }
    return false;
}

/* Rows of the product, those of windows in gaps included. */
static int64_t positions(const pl_plain_product *p, const pl_code_tiles *t)
{
    if (!t->range) return p->m;
    const int64_t *size = p->window.size;
    return p->m / (size[0] * size[1]) * (size[0] + t->gap[0]) * (size[1] + t->gap[1]);
}

/* Sets the chunks in flight: as many as registers beside the sums allow. Returns whether values
 * that stay the same down a column fit the registers beside a product; if not, they are read again
 * for every tile. A spilled register would take memory of every thread that the GPU can hold. */
static bool set_unroll(pl_cg_pass *p, const pl_code_tiles *t, const int *dep)
{
    enum { OTHERS = 34, ADDRESS = 3 };
    const int sums = t->bm * t->bn / LANES, most = t->range ? 198 : 214;
    int stays = sums + OTHERS, moves = 0;
    for (int s = 0; s < p->n_sink; s++) {
        if (p->sink[s].kind == PL_FUSED_STORE) moves += VEC / 2, stays += ADDRESS;
        if (p->sink[s].kind != PL_FUSED_REDUCE || pl_cg_twin(p, s) != s) continue;
        stays += VEC * (p->sink[s].reduce == PL_REDUCE_MOMENTS ? 3 : 1);
    }
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD || !(dep[i] & PL_CG_DEP_J)) continue;
        stays += ADDRESS;
        if (dep[i] & PL_CG_DEP_L)
            moves += VEC * (int)pl_dtype_bytes(p->instr[i].dtype) / 4;
        else
            stays += VEC;
    }
    for (p->unroll = 4; p->unroll > 1 && stays - sums + p->unroll * moves > most;) p->unroll /= 2;
    return stays <= most;
}

/* ---- the pass ---------------------------------------------------------------------------- */
static pl_status refuse(const char *why)
{
    PL_FAIL(PL_ERR_UNSUPPORTED, "a group cannot follow a product in one kernel: %s", why);
}

/* Lays the group's only pass out over rows and columns of the product. */
static pl_status lay_out(pl_cg_group *k, const pl_plain_product *m, pl_code_tiles *t)
{
    pl_cg_pass *p = &k->pass[0];
    if (k->n_passes != 1 || p->shape != PL_CG_SHEET || !p->reduces) return refuse("its sums");
    bool moments = p->runs.moments;
    p->runs = (pl_cg_runs){.n = 2, .size = {m->m, m->n}, .reduced = 1, .moments = moments};
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_REDUCE) p->sink[s].folded = 1;
    p->n_op = k->n_op;
    memcpy(p->op, k->op, sizeof *p->op * (size_t)k->n_op);
    PL_TRY(pl_cg_lay(p, &k->f, k->a));
    if (p->first[PL_CG_ALONG] != 0 || p->size[PL_CG_INNER] != m->n || p->wide)
        return refuse("its readings");
    if (!set_tiles(m, t)) return refuse("its windows");
    int64_t tiles = pl_cg_ceil(m->n, t->bn), rows = pl_cg_ceil(positions(m, t), t->bm);
    if (positions(m, t) > INT32_MAX - t->bm) return refuse("its size");
    p->vec = VEC;
    p->tx = t->bn / VEC;
    p->ty = LANES / p->tx;
    p->seg = 0;
    p->tiles = tiles;
    p->parts = pl_cg_clamp(BLOCKS / tiles, 1, rows);
    p->direct = p->parts == 1;
    for (int s = 0; s < p->n_sink && !p->direct; s++) {
        pl_cg_sink *x = &p->sink[s];
        if (x->kind != PL_FUSED_REDUCE) continue;
        int twin = pl_cg_twin(p, s);
        size_t one = pl_cg_acc_bytes(p->instr[x->src].dtype, x->reduce);
        x->partial = twin < s ? p->sink[twin].partial
                              : (int64_t)pl_cg_work_take(k, (size_t)(p->parts * m->n) * one);
    }
    return PL_OK;
}

/* ---- the text ---------------------------------------------------------------------------- */
static void put_index(pl_cg *w)
{
    pl_cg_put(w, "const I r_ = row_ + u * Y_, z_ = r_ * N_ + e_; (void)z_;\n");
    pl_cg_coords(w, PL_CG_ALONG, 0, pl_cg_rank(w->p, PL_CG_ALONG), "r_", "s");
}

static void put_columns(pl_cg *w, const int *lvl, const int *dep)
{
    pl_cg_bases(w, true);
    pl_cg_hoist(w, lvl, dep, 0);
}

static void put_tile(pl_cg *w, const int *lvl, const int *dep, bool columns, bool line)
{
    if (line)
        pl_cg_put(w, "const I base_ = image_.results(m_ * BM), next_base_ = image_.results(m_ * BM "
                     "+ BM), end_ = next_base_ < A_ ? next_base_ : A_;\n");
    else
        pl_cg_put(w, "const I base_ = m_ * BM, end_ = A_ - base_ < BM ? A_ : base_ + BM;\n");
    pl_cg_put(w, "I row_ = base_ + y_;\n");
    if (columns) put_columns(w, lvl, dep);
    pl_cg_rows(w, lvl, dep, put_index, "_Pragma(\"unroll 1\") ");
}

/* Declares the product's type, its shared memory and where its result lies there. */
static void put_type(pl_cg *w, const pl_plain_product *m, const pl_code_tiles *t)
{
    if (!t->range) {
        pl_cg_put(w,
                  "typedef p_product<%d, BN, %d, %d> product_;\nP_LARGE(raw_);\n"
                  "unsigned char *const sh_ = product_::begin(raw_), *const result_ = sh_ + "
                  "product_::TILE;\n",
                  t->bm / 64, !m->tb, t->stages);
        return;
    }
    pl_cg_put(w, "typedef p_windows<%d, BN, %d, %d, %d> product_;\nconst p_image image_ = {",
              t->bm / 64, !m->tb, t->stages, t->filters);
    const int64_t *size = m->window.size, *taps = m->window.taps, *apart = m->window.apart;
    const int64_t fields[] = {size[0],
                              size[1],
                              size[0] + t->gap[0],
                              size[1] + t->gap[1],
                              t->gap[0] - m->window.pad[0],
                              t->gap[1] - m->window.pad[1],
                              taps[0],
                              taps[1],
                              apart[0],
                              apart[1],
                              m->k / (taps[0] * taps[1]) / 64,
                              t->range};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        pl_cg_put(w, "%sa.s[%d]", i ? ", " : "", pl_cg_size(w, fields[i]));
    pl_cg_put(w, "};\nP_LARGE(raw_);\nunsigned char *const sh_ = product_::begin(raw_, image_), "
                 "*const result_ = sh_ + product_::tile(image_);\n");
}

/* Writes the code of the warpgroups that copy, and the beginning of the code of the warpgroup that
 * multiplies. */
static void put_copies(pl_cg *w, const pl_plain_product *m, const pl_code_tiles *t)
{
    if (!t->range) {
        pl_cg_put(w,
                  "if (threadIdx.x >= %d) {\np_fewer_registers();\nproduct_::load(sh_, &ma_, &mb_, "
                  "tile_, part_, parts_, rows_, a.s[%d]);\n} else {\np_more_registers();\n",
                  LANES, pl_cg_size(w, pl_cg_ceil(m->k, 64)));
        return;
    }
    int64_t apart = m->tb ? m->k / (m->window.taps[0] * m->window.taps[1]) : m->n;
    pl_cg_put(w,
              "if (threadIdx.x >= %d) {\np_loader_registers();\nproduct_::load(sh_, image_, &ma_, "
              "&mb_, tile_, part_, parts_, rows_, a.s[%d]);\n} else {\np_multiplier_registers();\n",
              LANES, pl_cg_size(w, apart));
}

static void put_head(pl_cg *w, const pl_plain_product *m, const pl_code_tiles *t)
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w,
              "extern \"C\" __global__ void __launch_bounds__(%d, 2) " PL_CODE_ENTRY
              "(const GRID_CONST p_args a, const GRID_CONST p_map ma_, const GRID_CONST p_map "
              "mb_)\n{\np_begun();\np_after();\n",
              2 * LANES);
    pl_cg_put(w, "enum { V = %d, X = %d, Y_ = %d, BM = %d, BN = %d };\n", VEC, p->tx, p->ty, t->bm,
              t->bn);
    put_type(w, m, t);
    pl_cg_put(w,
              "const I A_ = a.s[%d], N_ = a.s[%d], o_ = 0, tiles_ = a.s[%d], parts_ = a.s[%d], "
              "rows_ = a.s[%d];\n",
              pl_cg_size(w, m->m), pl_cg_size(w, m->n), pl_cg_size(w, p->tiles),
              pl_cg_size(w, p->parts), pl_cg_size(w, pl_cg_ceil(positions(m, t), t->bm)));
    pl_cg_put(w, "const I part_ = (I)blockIdx.x / tiles_, tile_ = (I)blockIdx.x - part_ * tiles_;\n"
                 "(void)o_;\n");
    put_copies(w, m, t);
    pl_cg_put(w, "const int x_ = (int)threadIdx.x %% X, y_ = (int)threadIdx.x / X;\n"
                 "I e_ = (tile_ * X + x_) * V;\nconst bool on_ = e_ < N_;\nif (!on_) e_ = 0;\n"
                 "product_ next_ = {};\n");
}

/* Combines the sums of the Y threads of a column. */
static void put_totals(pl_cg *w)
{
    const pl_cg_pass *p = w->p;
    pl_cg_put(w, "const I to_ = part_, first_ = tile_ * BN;\n");
    for (int s = 0; s < p->n_sink; s++) {
        const pl_cg_sink *k = &p->sink[s];
        if (k->kind != PL_FUSED_REDUCE || pl_cg_twin(p, s) != s) continue;
        const char *acc = pl_cg_acc(p->instr[k->src].dtype, k->reduce);
        pl_cg_put(w, "{\n%s *const sm_ = (%s *)result_;\n", acc, acc);
        pl_cg_own(w, s);
        pl_cg_put(w,
                  "p_meet<%d>(0);\n_Pragma(\"unroll\") for (int j = 0; j < V; j++) sm_[y_ * BN + "
                  "x_ * V + j] = t[j];\np_meet<%d>(0);\n",
                  LANES, LANES);
        pl_cg_put(w,
                  "for (int c_ = (int)threadIdx.x; c_ < BN; c_ += %d) {\nif (first_ + c_ < N_) "
                  "{\nconst %s v_ = p_tree<%s, %d>(sm_ + c_, BN);\n",
                  LANES, acc, pl_cg_fold(k->reduce), p->ty);
        pl_cg_leave(w, s, "v_", "first_ + c_");
        pl_cg_put(w, "}\n}\n}\n");
    }
}

/* result: the input of the group that is the product's result; out: the output where the result is
 * stored, too; -1: it is not. */
typedef struct pl_code_head {
    pl_dtype dtype;
    uint32_t result;
    int32_t out;
} pl_code_head;

static pl_status write(pl_cg_pass *p, const pl_plain_product *m, const pl_code_tiles *t,
                       const pl_code_head *head, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    int *dep = pl_arena_new(a, int, p->n_instr + 1), *lvl = pl_arena_new(a, int, p->n_instr + 1);
    if (!w || !dep || !lvl) return PL_ERR_MEMORY;
    pl_cg_deps(p, p->vec, dep);
    for (int i = 0; i < p->n_instr; i++) {
        lvl[i] = !p->used[i] ? -1 : dep[i] & PL_CG_DEP_L ? 2 : 0;
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        if (p->op[p->instr[i].operand].index != head->result) continue;
        w->tile = p->instr[i].operand;
        if (head->out >= 0) snprintf(w->keep, sizeof w->keep, "q%d[u]", i);
    }
    w->dep = dep;
    bool early = set_unroll(p, t, dep);
    pl_cg_put(w, "#define P_TYPE \"%s\"\n", head->dtype == PL_BF16 ? "bf16" : "f16");
    pl_str_add(&w->body, product);
    if (t->range) pl_str_add(&w->body, windows);
    put_head(w, m, t);
    pl_cg_dividers(w);
    pl_cg_pointers(w);
    pl_cg_outputs(w);
    if (head->out >= 0)
        pl_cg_put(w, "p_u16 *const WY_ = (p_u16 *)a.p[%d];\n",
                  pl_cg_pointer(w, PL_CODE_OUT, (uint32_t)head->out, 0, 16));
    pl_cg_coords(w, PL_CG_INNER, 0, pl_cg_rank(p, PL_CG_INNER), "e_", "i");
    if (early) put_columns(w, lvl, dep);
    pl_cg_accumulators(w);
    pl_cg_put(w, "for (I m_ = part_; m_ < rows_; m_ += parts_) {\n");
    if (t->range)
        pl_cg_put(w, "next_.multiply(sh_, image_, m_);\n");
    else
        pl_cg_put(w, "next_.multiply(sh_, a.s[%d]);\n", pl_cg_size(w, pl_cg_ceil(m->k, 64)));
    pl_cg_put(w, "p_meet<%d>(0);\nif (on_) {\n", LANES);
    put_tile(w, lvl, dep, !early, t->range > 0);
    pl_cg_put(w, "}\np_meet<%d>(0);\n}\n", LANES);
    put_totals(w);
    pl_cg_put(w, "}\n}\n");
    PL_TRY(pl_cg_finish(w, (uint32_t)(p->tiles * p->parts), 2 * LANES, 1, out));
    out->shared = shared_bytes(t);
    out->wgmma = true;
    return PL_OK;
}

/* Describes the product of a unit. */
static pl_plain_product product_of(const pl_graph *g, const pl_unit *u, uint32_t node,
                                   pl_code_head *head)
{
    const pl_node_rec *r = pl_node_get(g, node);
    pl_type in[8], out[PL_MAX_OUT];
    pl_plain_product m;
    pl_call c;
    pl_node_call(g, node, in, out, &c);
    r->op->product(&c, &m);
    bool stored = u->n_out && u->out[u->n_out - 1] == r->out;
    *head = (pl_code_head){out[0].dtype, u->n_in, stored ? (int32_t)u->n_out - 1 : -1};
    return m;
}

pl_status pl_code_make_product(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_code *out,
                               pl_code_tiles *tiles)
{
    pl_unit *behind = pl_arena_new(a, pl_unit, 1);
    pl_code_head head;
    pl_cg_group *k;
    memset(out, 0, sizeof *out);
    out->n_in = u->n_in;
    out->n_out = u->n_out;
    if (!behind) return PL_ERR_MEMORY;
    const pl_plain_product m = product_of(g, u, pl_group_product(g, u), &head);
    PL_TRY(pl_group_behind(g, u, a, behind));
    PL_TRY(pl_cg_cut(g, behind, a, &k));
    PL_TRY(lay_out(k, &m, tiles));
    pl_cg_pass *p = &k->pass[0];
    out->kernel = pl_arena_new(a, pl_code_kernel, 2);
    if (!out->kernel) return PL_ERR_MEMORY;
    PL_TRY(write(p, &m, tiles, &head, a, &out->kernel[out->n_kernels++]));
    if (!p->direct) PL_TRY(pl_cg_folds(p, &p->runs, a, &out->kernel[out->n_kernels++]));
    out->work_bytes = k->work;
    bool *may;
    PL_TRY(pl_cg_inplace(k, &may));
    PL_TRY(pl_group_product_inplace(g, u, behind, may, a, &may));
    out->inplace = may;
    return PL_OK;
}
