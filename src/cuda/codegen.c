/* codegen.c - cuts a group into passes and lays each out; see codegen.h and codegen_int.h.
 *
 * A group with row values has one row pass, which stores everything elementwise. Reductions over
 * other dims take a pass for each distinct set of dims, after it; what they need of row values is
 * kept in scratch. Without row values the last pass stores, so that an output may take over an
 * input that the passes before still read.
 *
 * Bits: how a reduction is added up is decided here from the sizes of its runs (neighbouring
 * dims that are all kept or all reduced) and from nothing else: not from operands, dtypes or what
 * else is in the group.
 */
#include "cuda/codegen_int.h"

#include "ir/graph.h"

#include <string.h>

enum { MAX_PASSES = 32, BLOCKS = 512, LANE_ROWS = 64, CUT_ROWS = 4096 };

typedef struct maker {
    const pl_graph *g;
    const pl_unit *u;
    pl_arena *a;
    pl_form f;
    pl_code *code;
    pl_cg_operand *op; /* the form's operands, then saved row values */
    pl_form_instr *instr;
    int n_op, n_instr, store_pass, n_passes;
    pl_cg_pass pass[MAX_PASSES];
    int row_rank[MAX_PASSES];  /* of row passes */
    bool main_row[MAX_PASSES]; /* computes the form's row values */
    size_t work;
} maker;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* ---- operands --------------------------------------------------------------------------- */

/* Values begin on 64 bytes, views of them at their offset. */
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

static pl_status list_operands(maker *k)
{
    const pl_form *f = &k->f;
    k->op = pl_arena_new(k->a, pl_cg_operand, f->n_in + f->n_instr + 1);
    k->instr = pl_arena_new(k->a, pl_form_instr, f->n_instr + 1);
    if (!k->op || !k->instr) return PL_ERR_MEMORY;
    for (int i = 0; i < f->n_in; i++) {
        pl_cg_operand *o = &k->op[i];
        uint32_t val = k->u->in[f->in[i].in];
        o->space = PL_CODE_IN;
        o->index = f->in[i].in;
        o->align = align_of(k->g, val);
        o->dtype = pl_type_of(k->g, val)->dtype;
        o->bits = f->in[i].bits;
        o->offset = f->in[i].offset;
        memcpy(o->stride, f->in[i].stride, sizeof f->in[i].stride);
    }
    k->n_op = f->n_in;
    if (f->n_instr) memcpy(k->instr, f->instr, sizeof *f->instr * (size_t)f->n_instr);
    k->n_instr = f->n_instr;
    return PL_OK;
}

/* ---- runs ------------------------------------------------------------------------------- */

static bool reduced(const pl_cg_runs *r, int i)
{
    return r->reduced >> i & 1u;
}

static pl_cg_runs runs_of(const pl_form *f, uint32_t mask, int64_t lead)
{
    pl_cg_runs r;
    memset(&r, 0, sizeof r);
    for (int d = 0; d < f->rank; d++) {
        bool red = mask >> d & 1u;
        if (f->dim[d] == 1) continue;
        if (r.n && reduced(&r, r.n - 1) == red) {
            r.size[r.n - 1] *= f->dim[d];
            continue;
        }
        r.size[r.n] = f->dim[d];
        r.reduced |= (uint32_t)red << r.n++;
    }
    for (int i = 0; i < r.n; i++) /* the longest reduced run, the innermost of equals */
        if (reduced(&r, i) && (!reduced(&r, r.along) || r.size[i] >= r.size[r.along])) r.along = i;
    if (lead && r.n > 1 && r.size[0] / lead >= CUT_ROWS) {
        for (int i = r.n++; i > 1; i--) r.size[i] = r.size[i - 1];
        r.size[1] = r.size[0] / lead;
        r.size[0] = lead;
        r.reduced = r.reduced << 1 | 1u;
        r.along++;
    }
    return r;
}

/* Elements of a row if only the innermost run is reduced (1: nothing is); else 0. */
static int64_t row_of(const pl_cg_runs *r)
{
    for (int i = 0; i + 1 < r->n; i++)
        if (reduced(r, i)) return 0;
    return r->n && reduced(r, r->n - 1) ? r->size[r->n - 1] : 1;
}

/* ---- which pass does what --------------------------------------------------------------- */

static pl_cg_pass *new_pass(maker *k)
{
    if (k->n_passes == MAX_PASSES) return NULL;
    pl_cg_pass *p = &k->pass[k->n_passes++];
    /* a reduction may add two instructions for its row, and a row value a sink */
    p->sink = pl_arena_new(k->a, pl_cg_sink, k->f.n_out + k->f.n_instr + 1);
    p->instr = pl_arena_new(k->a, pl_form_instr, k->n_instr + 2 * k->f.n_out + 2);
    p->op = pl_arena_new(k->a, pl_cg_operand, k->f.n_in + k->n_instr + 1);
    if (!p->sink || !p->instr || !p->op) return NULL;
    memcpy(p->instr, k->instr, sizeof *p->instr * (size_t)k->n_instr);
    p->n_instr = k->n_instr;
    return p;
}

static void add_sink(pl_cg_pass *p, const pl_form_output *o, uint32_t folded)
{
    p->sink[p->n_sink++] = (pl_cg_sink){.kind = o->kind,
                                        .src = o->src,
                                        .out = o->out,
                                        .out2 = o->out2,
                                        .dtype = o->dtype,
                                        .reduce = o->reduce,
                                        .bits = o->bits,
                                        .save = -1,
                                        .folded = folded};
}

/* A reduction over the pass's own rows: an instruction, and its result a sink. */
static void add_row_sink(pl_cg_pass *p, const pl_form_output *o, pl_dtype src)
{
    bool moments = o->reduce == PL_REDUCE_MOMENTS;
    int at = p->n_instr;
    for (int which = 0; which < (moments ? 2 : 1); which++) {
        pl_form_instr *x = &p->instr[p->n_instr++];
        memset(x, 0, sizeof *x);
        x->code = which ? PL_FORM_ROW_VAR : PL_FORM_ROW;
        x->reduce = o->reduce;
        x->dtype = moments && src != PL_F64 ? PL_F32 : o->dtype;
        x->n_arg = 1;
        x->arg[0] = which ? at : o->src;
    }
    for (int which = 0; which < 2; which++) {
        int32_t out = which ? o->out2 : o->out;
        if (out < 0) continue;
        p->sink[p->n_sink++] = (pl_cg_sink){.kind = PL_FORM_ROWS,
                                            .src = at + which,
                                            .out = out,
                                            .out2 = -1,
                                            .dtype = o->dtype,
                                            .save = -1};
    }
}

/* Threads walk the same way: what is done with their partial results may differ. */
static bool same_walk(const pl_cg_runs *a, const pl_cg_runs *b)
{
    return a->n == b->n && a->along == b->along && memcmp(a->size, b->size, sizeof a->size) == 0;
}

/* The pass for a reduction with these runs; made if there is none. */
static pl_cg_pass *pass_for(maker *k, const pl_cg_runs *r)
{
    int64_t row = row_of(r);
    bool by_row = row && row <= PL_CODE_ROW;
    for (int i = 0; i < k->n_passes; i++) {
        pl_cg_pass *p = &k->pass[i];
        if (k->main_row[i] ? by_row && row == row_of(&p->runs)
                           : p->reduces != by_row && same_walk(&p->runs, r))
            return p;
    }
    pl_cg_pass *p = new_pass(k);
    if (!p) return NULL;
    p->runs = *r;
    p->shape = by_row ? PL_CG_ROW : r->along == r->n - 1 ? PL_CG_FLAT : PL_CG_SHEET;
    p->reduces = !by_row;
    return p;
}

/* Whether the pass has chunks of whole bytes' elements: maps, and columns of eight. */
static bool takes_bits(const pl_cg_pass *p)
{
    int64_t inner = 1;
    if (p->shape == PL_CG_ROW || (p->reduces && p->shape == PL_CG_FLAT)) return false;
    if (!p->reduces) return true;
    for (int i = p->runs.along + 1; i < p->runs.n; i++) inner *= p->runs.size[i];
    int64_t tx = clamp(inner / 4, 1, 32);
    return inner % 8 == 0 && tx % 2 == 0;
}

static pl_status deal(maker *k)
{
    const pl_form *f = &k->f;
    if (f->row_rank) {
        pl_cg_pass *p = new_pass(k);
        if (!p) return PL_ERR_MEMORY;
        p->shape = PL_CG_ROW;
        uint32_t mask = 0;
        for (int d = f->rank - f->row_rank; d < f->rank; d++) mask |= 1u << d;
        p->runs = runs_of(f, mask, 0);
        k->main_row[0] = true;
    }
    for (int i = 0; i < f->n_out; i++) {
        const pl_form_output *o = &f->out[i];
        if (o->kind != PL_FORM_REDUCE) continue;
        pl_cg_runs r = runs_of(f, o->mask, o->lead);
        pl_cg_pass *p = pass_for(k, &r);
        PL_FAIL_IF(!p, PL_ERR_UNSUPPORTED, "a group with more than %d kinds of sums", MAX_PASSES);
        if (p->shape == PL_CG_ROW)
            add_row_sink(p, o, f->instr[o->src].dtype);
        else
            add_sink(p, o, r.reduced);
    }
    if (!k->n_passes && !new_pass(k)) return PL_ERR_MEMORY;
    k->store_pass = f->row_rank ? 0 : k->n_passes - 1;
    pl_cg_pass *store = &k->pass[k->store_pass], *bytes = NULL;
    for (int i = 0; i < f->n_out; i++) {
        if (f->out[i].kind == PL_FORM_REDUCE) continue;
        bool apart = f->out[i].bits && !takes_bits(store);
        if (apart && !bytes) bytes = new_pass(k);
        if (apart && !bytes) return PL_ERR_MEMORY;
        add_sink(apart ? bytes : store, &f->out[i], 0);
    }
    return PL_OK;
}

/* ---- what a pass computes --------------------------------------------------------------- */

/* Marks what sinks need. Row values stop the search unless this pass makes them. */
static pl_status find_used(maker *k, int at)
{
    pl_cg_pass *p = &k->pass[at];
    p->used = pl_arena_new(k->a, bool, p->n_instr + 2);
    if (!p->used) return PL_ERR_MEMORY;
    for (int s = 0; s < p->n_sink; s++) p->used[p->sink[s].src] = true;
    for (int i = p->n_instr - 1; i >= 0; i--) {
        const pl_form_instr *x = &p->instr[i];
        if (!p->used[i]) continue;
        bool foreign = !k->main_row[at] && i < k->n_instr &&
                       (x->code == PL_FORM_ROW || x->code == PL_FORM_ROW_VAR);
        for (int m = 0; !foreign && m < x->n_arg; m++) p->used[x->arg[m]] = true;
    }
    return PL_OK;
}

static size_t work_take(maker *k, size_t bytes)
{
    size_t at = k->work;
    k->work += (bytes + 63) / 64 * 64;
    return at;
}

/* Row values that other passes read: sinks of the row pass, operands of the others. */
static void save_rows(maker *k)
{
    const pl_form *f = &k->f;
    int64_t rows = 1;
    for (int d = 0; d < f->rank - f->row_rank; d++) rows *= f->dim[d];
    for (int i = 0; i < k->n_instr; i++) {
        if (k->instr[i].code != PL_FORM_ROW && k->instr[i].code != PL_FORM_ROW_VAR) continue;
        bool wanted = false;
        for (int at = 1; at < k->n_passes; at++) wanted |= k->pass[at].used[i];
        if (!wanted) continue;
        pl_dtype d = k->instr[i].dtype;
        pl_cg_pass *p = &k->pass[0];
        pl_cg_operand *o = &k->op[k->n_op++];
        *o = (pl_cg_operand){.space = PL_CODE_WORK, .align = 64, .dtype = d};
        o->plus = (int64_t)work_take(k, (size_t)rows * pl_dtype_bytes(d));
        int64_t stride = 1;
        for (int x = f->rank - f->row_rank - 1; x >= 0; x--) {
            o->stride[x] = stride;
            stride *= f->dim[x];
        }
        p->sink[p->n_sink++] = (pl_cg_sink){.kind = PL_FORM_ROWS,
                                            .src = i,
                                            .out = -1,
                                            .out2 = -1,
                                            .dtype = d,
                                            .save = o->plus};
        for (int at = 1; at < k->n_passes; at++) {
            pl_form_instr *x = &k->pass[at].instr[i];
            memset(x, 0, sizeof *x);
            x->code = PL_FORM_LOAD;
            x->dtype = d;
            x->operand = k->n_op - 1;
        }
    }
}

/* ---- the dims of a pass ----------------------------------------------------------------- */

static bool merges(const pl_cg_pass *p, int d)
{
    for (int i = 0; i < p->n_instr; i++) {
        const pl_form_instr *x = &p->instr[i];
        if (!p->used[i]) continue;
        if (x->code == PL_FORM_LOAD) {
            const int64_t *s = p->op[x->operand].stride;
            if (s[d] != s[d + 1] * p->dim[d + 1]) return false;
        } else if (x->code == PL_FORM_RAMP) {
            const double *s = &p->step[i * PL_CG_RANK];
            if (s[d] != s[d + 1] * (double)p->dim[d + 1]) return false;
        }
    }
    return true;
}

static void remove_dim(pl_cg_pass *p, int *run, int d)
{
    for (int i = d; i + 1 < p->rank; i++) {
        p->dim[i] = p->dim[i + 1];
        run[i] = run[i + 1];
    }
    for (int o = 0; o < p->n_op; o++) {
        int64_t *s = p->op[o].stride;
        for (int i = d; i + 1 < p->rank; i++) s[i] = s[i + 1];
        s[p->rank - 1] = 0;
    }
    for (int x = 0; x < p->n_instr; x++) {
        double *s = &p->step[x * PL_CG_RANK];
        for (int i = d; i + 1 < p->rank; i++) s[i] = s[i + 1];
        s[p->rank - 1] = 0;
    }
    p->rank--;
}

/* A dim of size n before dim d (n is taken out of dim d), with the strides that makes. */
static void split_dim(pl_cg_pass *p, int *run, int d, int64_t inner)
{
    for (int i = p->rank; i > d; i--) {
        p->dim[i] = p->dim[i - 1];
        run[i] = run[i - 1];
    }
    p->dim[d] /= inner;
    p->dim[d + 1] = inner;
    for (int o = 0; o < p->n_op; o++) {
        int64_t *s = p->op[o].stride;
        for (int i = p->rank; i > d; i--) s[i] = s[i - 1];
        s[d] = s[d + 1] * inner;
    }
    for (int x = 0; x < p->n_instr; x++) {
        double *s = &p->step[x * PL_CG_RANK];
        for (int i = p->rank; i > d; i--) s[i] = s[i - 1];
        s[d] = s[d + 1] * (double)inner;
    }
    p->rank++;
}

/* run[d] of all dims; one that holds a run's end inside is split there. */
static void set_runs(pl_cg_pass *p, int *run)
{
    int n = 0;
    int64_t left = p->runs.n ? p->runs.size[0] : 0; /* of run n, from dim d on */
    for (int d = 0; d < p->rank; d++) {
        if (left == 1) left = p->runs.size[++n];
        if (left && p->dim[d] > left) split_dim(p, run, d, p->dim[d] / left);
        run[d] = n;
        if (left) left /= p->dim[d];
    }
}

/* The form's dims, those of size 1 dropped, neighbours of one run merged where all reads allow.
 * run[d]: which of the pass's runs dim d belongs to. */
static pl_status find_dims(maker *k, int at, int *run)
{
    pl_cg_pass *p = &k->pass[at];
    const pl_form *f = &k->f;
    p->n_op = k->n_op;
    memcpy(p->op, k->op, sizeof *p->op * (size_t)k->n_op);
    p->step = pl_arena_new(k->a, double, (size_t)PL_CG_RANK * (size_t)(p->n_instr + 1));
    if (!p->step) return PL_ERR_MEMORY;
    for (int i = 0; i < p->n_instr; i++)
        if (p->instr[i].code == PL_FORM_RAMP)
            memcpy(&p->step[i * PL_CG_RANK], p->instr[i].step, sizeof p->instr[i].step);
    p->rank = f->rank;
    memcpy(p->dim, f->dim, sizeof f->dim);
    memset(run, 0, sizeof *run * (PL_CG_RANK + 1));
    for (int d = p->rank - 1; d >= 0; d--)
        if (p->dim[d] == 1) remove_dim(p, run, d);
    set_runs(p, run);
    for (int d = p->rank - 2; d >= 0; d--)
        if (run[d] == run[d + 1] && merges(p, d)) {
            p->dim[d + 1] *= p->dim[d];
            remove_dim(p, run, d);
        }
    return PL_OK;
}

/* Sets from the dims of the runs before, at and after `along`. A missing inner set is one
 * element. */
static void set_sets(pl_cg_pass *p, const int *run, int along, bool sheet)
{
    int a = 0;
    while (a < p->rank && run[a] < along) a++;
    int b = a;
    while (b < p->rank && run[b] == along) b++;
    p->first[PL_CG_OUTER] = 0;
    p->first[PL_CG_ALONG] = a;
    p->first[PL_CG_INNER] = sheet ? b : a;
    if (p->first[PL_CG_INNER] == p->rank) p->dim[p->rank++] = 1;
    p->first[PL_CG_SETS] = p->rank;
    for (int s = 0; s < PL_CG_SETS; s++) {
        p->size[s] = 1;
        for (int d = p->first[s]; d < p->first[s + 1]; d++) p->size[s] *= p->dim[d];
    }
}

/* ---- launches --------------------------------------------------------------------------- */

/* Chunks in flight: so many that 64 bytes or somewhat more of a thread are under way, few enough for the
 * text to stay short. */
static void set_unroll(pl_cg_pass *p, const int *dep, int moving)
{
    int bytes = 0, n = 0;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i]) continue;
        n++;
        if (p->instr[i].code == PL_FORM_LOAD && dep[i] & moving)
            bytes += (int)pl_dtype_bytes(p->instr[i].dtype) * (dep[i] & PL_CG_DEP_J ? p->vec : 1);
    }
    int u = bytes > 48 ? 1 : bytes > 24 ? 2 : bytes > 12 ? 4 : 8;
    if (bytes == 0) u = 2;
    while (u > 1 && u * p->vec * n > 1024) u /= 2;
    p->unroll = u;
}

/* Rows: which thread adds which element is a function of the row's length. */
static void lay_row(pl_cg_pass *p)
{
    int64_t n = p->size[PL_CG_INNER];
    p->vec = n % 4 == 0 ? 4 : 1;
    int64_t chunks = n / p->vec;
    int t = 1;
    while (t < 32 && t < chunks) t *= 2;
    if (chunks > 256) t = chunks <= 1024 ? 128 : chunks <= 2048 ? 256 : chunks <= 4096 ? 512 : 1024;
    p->tx = t;
    p->ty = t >= 128 ? 1 : 128 / t;
    int64_t steps = ceil_div(chunks, t);
    p->steps = steps <= 8 ? (int32_t)steps : 0;
}

/* So many parts that blocks, where they are many, come in whole rounds of what a large card holds
 * at once: eight for each of 132 processors. A number of this file, not of the card that runs. */
static int64_t whole_rounds(int64_t parts, int64_t others)
{
    const int64_t round = 1056;
    int64_t rounds = ceil_div(parts * others, round);
    if (parts * others <= round / 2 || others > round / 4) return parts;
    return clamp(rounds * round / others, parts, 2 * parts);
}

static void lay_flat_sum(pl_cg_pass *p)
{
    int64_t n = p->size[PL_CG_INNER], outer = p->size[PL_CG_OUTER];
    p->vec = n % 4 == 0 ? 4 : 1;
    p->tx = PL_CG_THREADS;
    p->ty = 1;
    int64_t block = (int64_t)PL_CG_THREADS * p->vec;
    int64_t parts = clamp(BLOCKS / outer, 1, ceil_div(n, 8 * block));
    int64_t least = ceil_div(n, LANE_ROWS * block);
    if (parts < least) parts = whole_rounds(least, outer);
    p->part = ceil_div(ceil_div(n, parts), block) * block;
    p->parts = ceil_div(n, p->part);
}

/* Whether everything that moves down the columns has at most two bytes, and little stays in
 * registers meanwhile. */
static bool narrow(const pl_cg_pass *p)
{
    int stays = 0;
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FORM_STORE && pl_dtype_bytes(p->sink[s].dtype) > 2) return false;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FORM_LOAD) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        bool moves = false;
        for (int d = p->first[PL_CG_ALONG] + p->seg; d < p->first[PL_CG_INNER]; d++)
            moves |= o->stride[d] != 0;
        if (!o->stride[p->rank - 1]) continue;
        if (moves && pl_dtype_bytes(o->dtype) > 2) return false;
        stays += !moves;
    }
    return stays <= 6;
}

static bool has_bits(const pl_cg_pass *p)
{
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].bits) return true;
    return false;
}

/* Segments as short as they can be with 16 rows or more for a thread. */
static void set_segments(pl_cg_pass *p)
{
    int64_t len = 1;
    int d = p->first[PL_CG_INNER];
    while (d > p->first[PL_CG_ALONG] && len < 16 * (int64_t)p->ty) len *= p->dim[--d];
    p->seg = d - p->first[PL_CG_ALONG];
}

/* Columns: y threads share one, and parts of `part` rows are added up apart; both are functions of
 * the sizes. The width of a chunk is not: it does not change the order in a column. */
static void lay_sheet_sum(pl_cg_pass *p)
{
    int64_t inner = p->size[PL_CG_INNER], len = p->size[PL_CG_ALONG];
    p->vec = inner % 4 == 0 ? 4 : 1;
    p->tx = (int32_t)clamp(inner / p->vec, 1, p->vec == 4 ? 32 : 64);
    p->ty = PL_CG_THREADS / p->tx;
    p->tiles = ceil_div(inner, (int64_t)p->tx * p->vec);
    int64_t parts = clamp(BLOCKS / (p->tiles * p->size[PL_CG_OUTER]), 1,
                          ceil_div(len, 8 * (int64_t)p->ty));
    int64_t least = ceil_div(len, (int64_t)LANE_ROWS * p->ty);
    if (parts < least) parts = whole_rounds(least, p->tiles * p->size[PL_CG_OUTER]);
    p->part = ceil_div(ceil_div(len, parts), p->ty) * p->ty;
    p->parts = ceil_div(len, p->part);
    set_segments(p);
    if (p->vec == 4 && p->tx % 2 == 0 && inner % 8 == 0 && (has_bits(p) || narrow(p))) {
        p->vec = 8;
        p->tx /= 2;
    }
}

/* Elements of a chunk for maps: 16 bytes of the widest type that moves. What stays in registers
 * while a thread walks does not count, unless there is much of it. */
static int map_vec(const pl_cg_pass *p)
{
    size_t widest = 1;
    int stays = 0;
    for (int s = 0; s < p->n_sink; s++) {
        size_t b = pl_dtype_bytes(p->sink[s].dtype);
        if (b > widest) widest = b;
    }
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FORM_LOAD) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        size_t b = pl_dtype_bytes(o->dtype);
        if (o->stride[p->rank - 1] != 1) continue;
        if (p->shape == PL_CG_SHEET && o->stride[p->first[PL_CG_ALONG]] == 0)
            stays++;
        else if (b > widest)
            widest = b;
    }
    int vec = (int)(16 / widest);
    while (vec > 4 && vec * stays > 64) vec /= 2;
    return has_bits(p) && vec < 8 ? 8 : vec;
}

static void lay_flat_map(pl_cg_pass *p, int *dep)
{
    p->shape = PL_CG_FLAT;
    p->vec = map_vec(p);
    p->tx = PL_CG_THREADS;
    p->ty = 1;
    pl_cg_deps(p, p->vec, dep);
    set_unroll(p, dep, PL_CG_DEP_I);
    p->part = (int64_t)PL_CG_THREADS * p->vec * p->unroll;
    p->parts = ceil_div(p->size[PL_CG_INNER], p->part);
}

/* The dim down which threads walk: the one along which most operands stay the same. */
static int walk_dim(const pl_cg_pass *p)
{
    int best = 0;
    double most = -1;
    for (int d = 0; d + 1 < p->rank; d++) {
        double inner = 1, score = 0;
        for (int x = d + 1; x < p->rank; x++) inner *= (double)p->dim[x];
        for (int i = 0; i < p->n_instr; i++)
            if (p->used[i] && p->instr[i].code == PL_FORM_LOAD &&
                p->op[p->instr[i].operand].stride[d] == 0)
                score += 1;
        score *= p->dim[d] >= 8 ? 4 : (double)p->dim[d] / 2;
        if (inner >= 32) score += 2;
        if (d == p->rank - 2) score += 0.5;
        if (score > most) {
            most = score;
            best = d;
        }
    }
    return best;
}

static void lay_sheet_map(pl_cg_pass *p, int *run, int *dep)
{
    p->shape = PL_CG_SHEET;
    for (int64_t c = 2048; c >= 256 && p->rank < PL_CG_RANK; c /= 2)
        if (p->dim[p->rank - 1] >= 4 * c && p->dim[p->rank - 1] % c == 0) {
            split_dim(p, run, p->rank - 1, c);
            break;
        }
    int d = walk_dim(p);
    for (int i = 0; i < p->rank; i++) run[i] = i < d ? 0 : i == d ? 1 : 2;
    set_sets(p, run, 1, true);
    int64_t inner = p->size[PL_CG_INNER];
    p->vec = map_vec(p);
    while (p->vec > 1 && (inner % p->vec || p->dim[p->rank - 1] % p->vec)) p->vec /= 2;
    int64_t chunks = inner / p->vec, per_row = ceil_div(chunks, PL_CG_THREADS);
    p->tx = (int32_t)ceil_div(chunks, per_row);
    p->ty = PL_CG_THREADS / p->tx;
    p->tiles = ceil_div(chunks, p->tx);
    pl_cg_deps(p, p->vec, dep);
    set_unroll(p, dep, PL_CG_DEP_L);
    int64_t len = p->size[PL_CG_ALONG];
    int64_t lanes = p->tiles * p->size[PL_CG_OUTER] * ceil_div(len, p->ty);
    int64_t each = clamp(lanes / 4224, 1, 16);
    if (each > p->unroll) each = ceil_div(each, p->unroll) * p->unroll;
    p->part = each * p->ty;
    p->parts = ceil_div(len, p->part);
}

/* ---- laying out ------------------------------------------------------------------------- */

static bool too_far(const pl_cg_pass *p)
{
    const int64_t limit = ((int64_t)1 << 31) - ((int64_t)1 << 22);
    int64_t total = 1;
    for (int d = 0; d < p->rank; d++) total *= p->dim[d];
    if (total > limit) return true;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FORM_LOAD) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        int64_t reach = o->offset;
        for (int d = 0; d < p->rank; d++)
            reach += (p->dim[d] - 1) * (o->stride[d] < 0 ? -o->stride[d] : o->stride[d]);
        if (reach > limit) return true;
    }
    return false;
}

static pl_status lay_out(maker *k, int at)
{
    pl_cg_pass *p = &k->pass[at];
    int run[PL_CG_RANK + 1];
    PL_TRY(find_dims(k, at, run));
    int *dep = pl_arena_new(k->a, int, p->n_instr + 1);
    if (!dep) return PL_ERR_MEMORY;
    p->parts = p->tiles = p->unroll = 1;
    p->wide = too_far(p);
    if (p->shape == PL_CG_ROW) {
        bool rows = p->runs.n && reduced(&p->runs, p->runs.n - 1);
        set_sets(p, run, rows ? p->runs.n - 1 : p->runs.n, false);
        lay_row(p);
    } else if (p->reduces) {
        set_sets(p, run, p->runs.along, p->shape == PL_CG_SHEET);
        if (p->shape == PL_CG_FLAT)
            lay_flat_sum(p);
        else
            lay_sheet_sum(p);
        pl_cg_deps(p, p->vec, dep);
        set_unroll(p, dep,
                   p->shape == PL_CG_FLAT ? PL_CG_DEP_I : PL_CG_DEP_L);
    } else if (p->rank <= 1 || (has_bits(p) && p->dim[p->rank - 1] % 8)) {
        for (int d = 0; d < p->rank; d++) run[d] = 0;
        set_sets(p, run, 0, false);
        lay_flat_map(p, dep);
    } else {
        lay_sheet_map(p, run, dep);
    }
    int64_t blocks = p->shape == PL_CG_ROW ? ceil_div(p->size[PL_CG_OUTER], p->ty)
                                           : p->tiles * p->parts * p->size[PL_CG_OUTER];
    PL_FAIL_IF(blocks > INT32_MAX, PL_ERR_UNSUPPORTED, "a group of %lld blocks",
               (long long)blocks);
    return PL_OK;
}

/* Partial results of a pass that reduces. */
static void give_work(maker *k, pl_cg_pass *p)
{
    p->direct = p->parts == 1;
    for (int s = 0; s < p->n_sink; s++)
        p->direct &= p->sink[s].kind != PL_FORM_REDUCE || p->sink[s].folded == 1u << p->runs.along;
    if (p->direct) return;
    int64_t n = p->size[PL_CG_OUTER] * p->parts;
    if (p->shape == PL_CG_SHEET) n *= p->size[PL_CG_INNER];
    for (int s = 0; s < p->n_sink; s++) {
        pl_cg_sink *x = &p->sink[s];
        if (x->kind != PL_FORM_REDUCE) continue;
        size_t one = pl_cg_acc_bytes(p->instr[x->src].dtype, x->reduce);
        x->partial = (int64_t)work_take(k, (size_t)n * one);
    }
}

static pl_status write_pass(maker *k, pl_cg_pass *p)
{
    pl_code_kernel *to = &k->code->kernel[k->code->n_kernels++];
    if (p->shape == PL_CG_ROW) return pl_cg_row(p, k->a, to);
    if (p->reduces) give_work(k, p);
    PL_TRY(p->shape == PL_CG_FLAT ? pl_cg_flat(p, k->a, to) : pl_cg_sheet(p, k->a, to));
    for (int s = 0; p->reduces && !p->direct && s < p->n_sink; s++) {
        bool first = p->sink[s].kind == PL_FORM_REDUCE;
        for (int i = 0; i < s; i++)
            first &= p->sink[i].kind != PL_FORM_REDUCE || p->sink[i].folded != p->sink[s].folded;
        if (first)
            PL_TRY(pl_cg_folds(p, p->sink[s].folded, k->a,
                               &k->code->kernel[k->code->n_kernels++]));
    }
    return PL_OK;
}

/* ---- in place --------------------------------------------------------------------------- */

/* Operand o reads the space as an output writes it. */
static bool dense(const pl_form *f, const pl_form_operand *o)
{
    int64_t stride = 1;
    if (o->offset) return false;
    for (int d = f->rank - 1; d >= 0; d--) {
        if (f->dim[d] != 1 && o->stride[d] != stride) return false;
        stride *= f->dim[d];
    }
    return true;
}

static bool read_after(const maker *k, int operand)
{
    for (int at = k->store_pass + 1; at < k->n_passes; at++) {
        const pl_cg_pass *p = &k->pass[at];
        for (int i = 0; i < p->n_instr; i++)
            if (p->used[i] && p->instr[i].code == PL_FORM_LOAD && p->instr[i].operand == operand)
                return true;
    }
    return false;
}

static pl_status find_inplace(maker *k)
{
    const pl_form *f = &k->f;
    const pl_unit *u = k->u;
    bool *may = pl_arena_new(k->a, bool, (size_t)u->n_in * u->n_out + 1);
    if (!may) return PL_ERR_MEMORY;
    for (int o = 0; o < f->n_out; o++)
        for (int i = 0; i < f->n_in && f->out[o].kind == PL_FORM_STORE; i++) {
            bool ok = !f->in[i].bits && !f->out[o].bits && dense(f, &f->in[i]) && !read_after(k, i) &&
                      pl_dtype_bytes(k->op[i].dtype) == pl_dtype_bytes(f->out[o].dtype);
            for (int j = 0; j < f->n_in; j++) ok &= j == i || f->in[j].in != f->in[i].in;
            if (ok) may[(uint32_t)f->out[o].out * u->n_in + f->in[i].in] = true;
        }
    k->code->inplace = may;
    return PL_OK;
}

/* ---- units without elements ------------------------------------------------------------- */

/* A sum over nothing is 0, a mean of nothing NaN: constants. */
static pl_status make_empty(maker *k, bool *done)
{
    const pl_unit *u = k->u;
    pl_form *f = &k->f;
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
    f->instr = pl_arena_new(k->a, pl_form_instr, 1);
    f->out = pl_arena_new(k->a, pl_form_output, u->n_out);
    if (!f->instr || !f->out) return PL_ERR_MEMORY;
    f->n_instr = 1;
    f->instr[0].code = PL_FORM_RAMP;
    f->instr[0].dtype = pl_type_of(k->g, u->out[0])->dtype;
    f->instr[0].imm = red.fn == PL_REDUCE_MOMENTS ? (double)__builtin_nanf("") : 0.0;
    for (uint32_t i = 0; i < u->n_out; i++)
        f->out[f->n_out++] = (pl_form_output){
            .kind = PL_FORM_STORE, .out = (int32_t)i, .out2 = -1, .dtype = f->instr[0].dtype};
    return PL_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

static pl_status make(maker *k)
{
    bool empty = false;
    PL_TRY(make_empty(k, &empty));
    if (!empty) PL_TRY(pl_form_make(k->g, k->u, k->a, &k->f));
    PL_TRY(list_operands(k));
    if (empty && !k->f.n_out) return find_inplace(k);
    PL_TRY(deal(k));
    for (int i = 0; i < k->n_passes; i++) PL_TRY(find_used(k, i));
    save_rows(k);
    PL_TRY(find_used(k, 0));
    k->code->kernel = pl_arena_new(k->a, pl_code_kernel, k->n_passes + k->f.n_out);
    if (!k->code->kernel) return PL_ERR_MEMORY;
    for (int i = 0; i < k->n_passes; i++) {
        PL_TRY(lay_out(k, i));
        PL_TRY(write_pass(k, &k->pass[i]));
    }
    k->code->work_bytes = k->work;
    return find_inplace(k);
}

pl_status pl_code_make(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_code *out)
{
    memset(out, 0, sizeof *out);
    maker *k = pl_arena_new(a, maker, 1);
    if (!k) return PL_ERR_MEMORY;
    k->g = g;
    k->u = u;
    k->a = a;
    k->code = out;
    out->n_in = u->n_in;
    out->n_out = u->n_out;
    return make(k);
}
