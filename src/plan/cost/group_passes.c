/* group_passes.c - cuts a fused group into passes; see group_passes.h.
 *
 * Idea: a pass reads the space once. A group with row values has one row pass, which stores all
 * elementwise outputs. Reductions over other dims take one pass for each distinct set of dims,
 * after the row pass; row values that they need are kept in scratch. Without row values the last
 * pass stores, so that an output may take over an input that earlier passes read.
 *
 * Invariant: which pass adds up a sum, and how, depends on the group and its sizes alone.
 *
 * Cost: instructions times passes, once for each group at compile time.
 */
#include "plan/cost/group_passes.h"

#include "ir/group/inplace.h"

#include <string.h>

/* ---- operands --------------------------------------------------------------------------- */

/* Values start at multiples of 64 bytes; views of them at their offset. */
static uint32_t align_of(const pl_graph *g, uint32_t val)
{
    uint64_t offset = 0;
    for (;;) {
        uint32_t node = pl_producer(g, val);
        const pl_node_rec *r = pl_node_get(g, node);
        pl_type in[8], out[PL_MAX_OUT];
        pl_call c;
        int64_t at = 0;
        if (!(r->op->flags & PL_OP_VIEW) || r->n_in > 8) break;
        pl_node_call(g, node, in, out, &c);
        if (!r->op->view(&c, &at)) break;
        offset += (uint64_t)at;
        val = pl_node_in(g, node)[0];
    }
    uint32_t al = 64;
    while (offset % al) al /= 2;
    return al;
}

/* The fusion options of CUDA promise that bools are stored as bytes and that random draws are
 * separate kernels. */
static pl_status check_takes(const pl_fused *f)
{
    bool bits = false, draws = false;
    for (int i = 0; i < f->n_in; i++) bits |= f->in[i].bits;
    for (int i = 0; i < f->n_out; i++) bits |= f->out[i].bits;
    for (int i = 0; i < f->n_instr; i++) draws |= f->instr[i].code == PL_FUSED_DRAW;
    PL_FAIL_IF(bits || draws, PL_ERR_UNSUPPORTED, "a CUDA group cannot have %s",
               bits ? "bools stored as bits" : "random draws");
    return PL_OK;
}

static pl_status list_operands(pl_cg_group *k)
{
    const pl_fused *f = &k->f;
    k->op = pl_arena_new(k->a, pl_cg_operand, f->n_in + f->n_instr + 1);
    k->instr = pl_arena_new(k->a, pl_fused_instr, f->n_instr + 1);
    if (!k->op || !k->instr) return PL_ERR_MEMORY;
    for (int i = 0; i < f->n_in; i++) {
        pl_cg_operand *o = &k->op[i];
        o->space = PL_CODE_IN;
        o->index = f->in[i].in;
        o->align = align_of(k->g, k->u->in[f->in[i].in]);
        o->dtype = f->in[i].dtype;
        o->offset = f->in[i].offset;
        memcpy(o->stride, f->in[i].stride, sizeof f->in[i].stride);
    }
    k->n_op = f->n_in;
    if (f->n_instr) memcpy(k->instr, f->instr, sizeof *f->instr * (size_t)f->n_instr);
    k->n_instr = f->n_instr;
    return PL_OK;
}

/* Merges equal instructions, so that two sums of equal values are recognised as the same sum. */
static bool same_instr(const pl_fused_instr *a, const pl_fused_instr *b)
{
    return a->code == b->code && a->dtype == b->dtype && a->fn == b->fn && a->reduce == b->reduce &&
           a->n_arg == b->n_arg && memcmp(a->arg, b->arg, sizeof *a->arg * (size_t)a->n_arg) == 0 &&
           a->operand == b->operand && memcmp(&a->imm, &b->imm, sizeof a->imm) == 0 &&
           memcmp(a->step, b->step, sizeof a->step) == 0;
}

static pl_status find_same(pl_cg_group *k)
{
    pl_fused *f = &k->f;
    int32_t *as = pl_arena_new(k->a, int32_t, f->n_instr + 1);
    if (!as) return PL_ERR_MEMORY;
    for (int i = 0; i < f->n_instr; i++) {
        pl_fused_instr *x = &f->instr[i];
        as[i] = i;
        for (int m = 0; m < x->n_arg; m++) x->arg[m] = as[x->arg[m]];
        for (int j = 0; j < i && as[i] == i && x->code <= PL_FUSED_MAP; j++)
            if (same_instr(x, &f->instr[j])) as[i] = j;
    }
    for (int o = 0; o < f->n_out; o++) f->out[o].src = as[f->out[o].src];
    return PL_OK;
}

/* ---- assigning work to passes ----------------------------------------------------------- */

size_t pl_cg_acc_bytes(pl_dtype d, pl_reduce_fn fn)
{
    size_t one = d == PL_F64 || d == PL_I64 ? 8 : 4;
    return fn == PL_REDUCE_MOMENTS ? 3 * one : one;
}

static pl_cg_pass *new_pass(pl_cg_group *k)
{
    if (k->n_passes == PL_CG_MAX_PASSES) return NULL;
    pl_cg_pass *p = &k->pass[k->n_passes++];
    /* a reduction may add two instructions for its row, and a row value a sink */
    p->sink = pl_arena_new(k->a, pl_cg_sink, k->f.n_out + k->f.n_instr + 1);
    p->instr = pl_arena_new(k->a, pl_fused_instr, k->n_instr + 2 * k->f.n_out + 2);
    p->op = pl_arena_new(k->a, pl_cg_operand, k->f.n_in + k->n_instr + 1);
    if (!p->sink || !p->instr || !p->op) return NULL;
    memcpy(p->instr, k->instr, sizeof *p->instr * (size_t)k->n_instr);
    p->n_instr = k->n_instr;
    return p;
}

static void add_sink(pl_cg_pass *p, const pl_fused_output *o, uint32_t folded)
{
    p->sink[p->n_sink++] = (pl_cg_sink){.kind = o->kind,
                                        .src = o->src,
                                        .out = o->out,
                                        .out2 = o->out2,
                                        .dtype = o->dtype,
                                        .reduce = o->reduce,
                                        .save = -1,
                                        .folded = folded};
}

/* Adds a reduction over the pass's own rows: an instruction, and its result as a sink. */
static void add_row_sink(pl_cg_pass *p, const pl_fused_output *o, pl_dtype src)
{
    bool moments = o->reduce == PL_REDUCE_MOMENTS;
    int at = p->n_instr;
    for (int which = 0; which < (moments ? 2 : 1); which++) {
        pl_fused_instr *x = &p->instr[p->n_instr++];
        memset(x, 0, sizeof *x);
        x->code = which ? PL_FUSED_ROW_VAR : PL_FUSED_ROW_REDUCE;
        x->reduce = o->reduce;
        x->dtype = moments && src != PL_F64 ? PL_F32 : o->dtype;
        x->n_arg = 1;
        x->arg[0] = which ? at : o->src;
    }
    for (int which = 0; which < 2; which++) {
        int32_t out = which ? o->out2 : o->out;
        if (out < 0) continue;
        p->sink[p->n_sink++] = (pl_cg_sink){.kind = PL_FUSED_ROWS,
                                            .src = at + which,
                                            .out = out,
                                            .out2 = -1,
                                            .dtype = o->dtype,
                                            .save = -1};
    }
}

/* Whether threads walk the same way; the use of their partial results may differ. */
static bool same_walk(const pl_cg_runs *a, const pl_cg_runs *b)
{
    return a->n == b->n && a->along == b->along && a->moments == b->moments &&
           memcmp(a->size, b->size, sizeof a->size) == 0;
}

/* Returns the pass for a reduction with these runs; creates it if necessary. Rows of one element,
 * of a reduction over dims of size 1, may lie in the same runs as one row of all elements. */
static pl_cg_pass *pass_for(pl_cg_group *k, const pl_cg_runs *r)
{
    int64_t row = pl_cg_row_of(r);
    bool by_row = row && row <= PL_CG_MAX_ROW;
    for (int i = 0; i < k->n_passes; i++) {
        pl_cg_pass *p = &k->pass[i];
        bool same = p->shape != PL_CG_ROW ? !by_row : by_row && row == pl_cg_row_of(&p->runs);
        if (same && (k->main_row[i] || same_walk(&p->runs, r))) return p;
    }
    pl_cg_pass *p = new_pass(k);
    if (!p) return NULL;
    p->runs = *r;
    p->shape = by_row ? PL_CG_ROW : r->along == r->n - 1 ? PL_CG_FLAT : PL_CG_SHEET;
    p->reduces = !by_row;
    return p;
}

/* Returns the registers that a thread of the row pass needs for its part of a row and for column
 * sums. */
static int64_t row_registers(const pl_cg_group *k, int64_t row, int sums)
{
    int64_t elems = pl_cg_ceil(row, 4 * pl_cg_row_threads(row)) * 4, bytes = 0;
    for (int i = 0; i < k->n_instr; i++) {
        const pl_fused_instr *x = &k->instr[i];
        if (x->code != PL_FUSED_LOAD) continue;
        const pl_cg_operand *o = &k->op[x->operand];
        bool outer = false;
        for (int d = 0; d < k->f.rank - k->f.row_rank; d++) outer |= o->stride[d] != 0;
        if (outer && o->stride[k->f.rank - 1]) bytes += (int64_t)pl_dtype_bytes(o->dtype);
    }
    return elems * (bytes + 4 * sums) / 4;
}

/* Chooses the walk of the column sums in the row pass: the first walk that is split into parts,
 * because walks without parts can join it. */
static void choose_walk(pl_cg_group *k)
{
    const pl_fused *f = &k->f;
    pl_cg_pass *p = &k->pass[0];
    int64_t row = pl_cg_row_of(&p->runs);
    for (int i = 0; i < f->n_out; i++) {
        const pl_fused_output *o = &f->out[i];
        if (o->kind != PL_FUSED_REDUCE || o->reduce == PL_REDUCE_MOMENTS) continue;
        pl_cg_runs r = pl_cg_runs_of(f, o->mask, o->lead, o->reduce == PL_REDUCE_MOMENTS);
        bool columns = r.along == r.n - 2 && r.size[r.n - 1] == row && r.n <= 3;
        if (columns && pl_cg_takes_columns(&r) && r.n > p->walk.n) p->walk = r;
    }
}

/* Whether the row pass also computes this column sum, so that rows are read once. */
static bool beside_rows(pl_cg_group *k, const pl_fused_output *o, const pl_cg_runs *r)
{
    enum { MOST = 144 };
    pl_cg_pass *p = &k->pass[0];
    if (!k->f.row_rank || !p->walk.n || o->reduce == PL_REDUCE_MOMENTS) return false;
    if (pl_cg_acc_bytes(k->f.instr[o->src].dtype, o->reduce) != 4) return false;
    uint32_t folded = r->reduced;
    if (pl_cg_same_parts(&p->walk, r))
        folded = 3;
    else if (!same_walk(&p->walk, r))
        return false;
    int sums = 0;
    add_sink(p, o, folded);
    for (int s = 0; s < p->n_sink; s++)
        sums += p->sink[s].kind == PL_FUSED_REDUCE && pl_cg_twin(p, s) == s;
    if (row_registers(k, pl_cg_row_of(&p->runs), sums) > MOST) {
        p->n_sink--;
        return false;
    }
    p->columns = true;
    return true;
}

static pl_status deal(pl_cg_group *k)
{
    const pl_fused *f = &k->f;
    if (f->row_rank) {
        pl_cg_pass *p = new_pass(k);
        if (!p) return PL_ERR_MEMORY;
        p->shape = PL_CG_ROW;
        uint32_t mask = 0;
        for (int d = f->rank - f->row_rank; d < f->rank; d++) mask |= 1u << d;
        p->runs = pl_cg_runs_of(f, mask, 0, false);
        k->main_row[0] = true;
        choose_walk(k);
    }
    for (int i = 0; i < f->n_out; i++) {
        const pl_fused_output *o = &f->out[i];
        if (o->kind != PL_FUSED_REDUCE) continue;
        pl_cg_runs r = pl_cg_runs_of(f, o->mask, o->lead, o->reduce == PL_REDUCE_MOMENTS);
        if (beside_rows(k, o, &r)) continue;
        pl_cg_pass *p = pass_for(k, &r);
        PL_FAIL_IF(!p, PL_ERR_UNSUPPORTED, "a group has more than %d kinds of sums",
                   PL_CG_MAX_PASSES);
        if (p->shape == PL_CG_ROW)
            add_row_sink(p, o, f->instr[o->src].dtype);
        else
            add_sink(p, o, r.reduced);
    }
    if (!k->n_passes && !new_pass(k)) return PL_ERR_MEMORY;
    k->store_pass = f->row_rank ? 0 : k->n_passes - 1;
    for (int i = 0; i < f->n_out; i++)
        if (f->out[i].kind != PL_FUSED_REDUCE) add_sink(&k->pass[k->store_pass], &f->out[i], 0);
    return PL_OK;
}

/* ---- the instructions of a pass --------------------------------------------------------- */

/* Marks the values that the sinks need. The search stops at row values unless this pass computes
 * them. */
static pl_status find_used(pl_cg_group *k, int at)
{
    pl_cg_pass *p = &k->pass[at];
    p->used = pl_arena_new(k->a, bool, p->n_instr + 2);
    if (!p->used) return PL_ERR_MEMORY;
    for (int s = 0; s < p->n_sink; s++) p->used[p->sink[s].src] = true;
    for (int i = p->n_instr - 1; i >= 0; i--) {
        const pl_fused_instr *x = &p->instr[i];
        if (!p->used[i]) continue;
        bool foreign = !k->main_row[at] && i < k->n_instr &&
                       (x->code == PL_FUSED_ROW_REDUCE || x->code == PL_FUSED_ROW_VAR);
        for (int m = 0; !foreign && m < x->n_arg; m++) p->used[x->arg[m]] = true;
    }
    return PL_OK;
}

size_t pl_cg_work_take(pl_cg_group *k, size_t bytes)
{
    size_t at = k->work;
    k->work += (bytes + 63) / 64 * 64;
    return at;
}

/* Saves row values that other passes read: sinks of the row pass, operands of the other passes. */
static void save_rows(pl_cg_group *k)
{
    const pl_fused *f = &k->f;
    int64_t rows = 1;
    for (int d = 0; d < f->rank - f->row_rank; d++) rows *= f->dim[d];
    for (int i = 0; i < k->n_instr; i++) {
        if (k->instr[i].code != PL_FUSED_ROW_REDUCE && k->instr[i].code != PL_FUSED_ROW_VAR)
            continue;
        bool wanted = false;
        for (int at = 1; at < k->n_passes; at++) wanted |= k->pass[at].used[i];
        if (!wanted) continue;
        pl_dtype d = k->instr[i].dtype;
        pl_cg_pass *p = &k->pass[0];
        pl_cg_operand *o = &k->op[k->n_op++];
        *o = (pl_cg_operand){.space = PL_CODE_WORK, .align = 64, .dtype = d};
        o->plus = (int64_t)pl_cg_work_take(k, (size_t)rows * pl_dtype_bytes(d));
        int64_t stride = 1;
        for (int x = f->rank - f->row_rank - 1; x >= 0; x--) {
            o->stride[x] = stride;
            stride *= f->dim[x];
        }
        p->sink[p->n_sink++] = (pl_cg_sink){
            .kind = PL_FUSED_ROWS, .src = i, .out = -1, .out2 = -1, .dtype = d, .save = o->plus};
        for (int at = 1; at < k->n_passes; at++) {
            pl_fused_instr *x = &k->pass[at].instr[i];
            memset(x, 0, sizeof *x);
            x->code = PL_FUSED_LOAD;
            x->dtype = d;
            x->operand = k->n_op - 1;
        }
    }
}

/* ---- in place --------------------------------------------------------------------------- */

/* Whether a pass after the pass that stores outputs reads the operand. */
static bool read_after(const pl_cg_group *k, int operand)
{
    for (int at = k->store_pass + 1; at < k->n_passes; at++) {
        const pl_cg_pass *p = &k->pass[at];
        for (int i = 0; i < p->n_instr; i++)
            if (p->used[i] && p->instr[i].code == PL_FUSED_LOAD && p->instr[i].operand == operand)
                return true;
    }
    return false;
}

pl_status pl_cg_inplace(const pl_cg_group *k, bool **out)
{
    bool *late = pl_arena_new(k->a, bool, k->f.n_in + 1);
    if (!late) return PL_ERR_MEMORY;
    for (int i = 0; i < k->f.n_in; i++) late[i] = read_after(k, i);
    return pl_inplace_group(&k->f, k->u, late, k->a, out);
}

/* ---- units without elements ------------------------------------------------------------- */

/* An empty sum is 0, an empty mean NaN: constants. */
static pl_status make_empty(pl_cg_group *k, bool *done)
{
    const pl_unit *u = k->u;
    pl_fused *f = &k->f;
    *done = false;
    if (u->n_nodes != 1) return PL_OK;
    int64_t out = pl_type_elems(pl_type_of(k->g, u->out[0])), in = out;
    const pl_node_rec *r = pl_node_get(k->g, u->nodes[0]);
    if (r->op->flags & PL_OP_REDUCE) in = pl_type_elems(pl_type_of(k->g, u->in[0]));
    *done = in == 0 || out == 0;
    if (!*done || out == 0) return PL_OK;
    pl_reduction red;
    pl_node_reduction(k->g, u->nodes[0], &red);
    f->rank = 1;
    f->dim[0] = out;
    f->instr = pl_arena_new(k->a, pl_fused_instr, 1);
    f->out = pl_arena_new(k->a, pl_fused_output, u->n_out);
    if (!f->instr || !f->out) return PL_ERR_MEMORY;
    f->n_instr = 1;
    f->instr[0].code = PL_FUSED_RAMP;
    f->instr[0].dtype = pl_type_of(k->g, u->out[0])->dtype;
    f->instr[0].imm = red.fn == PL_REDUCE_MOMENTS ? (double)__builtin_nanf("") : 0.0;
    for (uint32_t i = 0; i < u->n_out; i++)
        f->out[f->n_out++] = (pl_fused_output){
            .kind = PL_FUSED_STORE, .out = (int32_t)i, .out2 = -1, .dtype = f->instr[0].dtype};
    return PL_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

static pl_status cut(pl_cg_group *k)
{
    bool empty = false;
    PL_TRY(make_empty(k, &empty));
    if (!empty) PL_TRY(pl_fused_make(k->g, k->u, k->a, &k->f));
    if (!empty) PL_TRY(check_takes(&k->f));
    if (!empty) PL_TRY(find_same(k));
    PL_TRY(list_operands(k));
    if (empty && !k->f.n_out) return PL_OK;
    PL_TRY(deal(k));
    for (int i = 0; i < k->n_passes; i++) PL_TRY(find_used(k, i));
    save_rows(k);
    return find_used(k, 0);
}

pl_status pl_cg_cut(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_cg_group **out)
{
    pl_cg_group *k = pl_arena_new(a, pl_cg_group, 1);
    if (!k) return PL_ERR_MEMORY;
    k->g = g;
    k->u = u;
    k->a = a;
    PL_TRY(cut(k));
    *out = k;
    return PL_OK;
}
