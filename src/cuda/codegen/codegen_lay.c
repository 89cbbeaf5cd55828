/* codegen_lay.c - lays out a pass: its dims, and its launch (threads, chunk width, unrolling).
 *
 * Invariant: the threads of a row and the parts of a long sum, which fix the order of a sum, depend
 * on sizes alone. Chunk widths and unrolling may depend on operands, because they do not change the
 * order. Example: the sum of codegen.h over 281600 rows of 64 floats is walked in chunks of V = 4
 * columns, for any other operands of the group.
 */
#include "cuda/codegen/codegen_int.h"

#include <math.h>
#include <string.h>

enum { LANE_CHUNKS = 64 }; /* limit of chunks per thread of a flat sum */
/* registers with which a multiprocessor holds so many blocks */
enum { FOUR_BLOCKS = 66, THREE_BLOCKS = 84, TWO_BLOCKS = 126 };

/* ---- the dims of a pass ----------------------------------------------------------------- */

static bool merges(const pl_cg_pass *p, int d)
{
    for (int i = 0; i < p->n_instr; i++) {
        const pl_fused_instr *x = &p->instr[i];
        if (!p->used[i]) continue;
        if (x->code == PL_FUSED_LOAD) {
            const int64_t *s = p->op[x->operand].stride;
            if (s[d] != s[d + 1] * p->dim[d + 1]) return false;
        } else if (x->code == PL_FUSED_RAMP) {
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

/* Splits dim d: inserts a dim before it, and sets the strides of both. */
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

/* Sets run[d] of all dims; splits a dim where a run ends inside it. */
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

/* Collects the group's dims without dims of size 1; merges neighbours of one run where all reads
 * allow. run[d]: the pass's run that dim d belongs to. */
static pl_status find_dims(pl_cg_pass *p, const pl_fused *f, pl_arena *a, int *run)
{
    p->step = pl_arena_new(a, double, (size_t)PL_CG_RANK *(size_t)(p->n_instr + 1));
    if (!p->step) return PL_ERR_MEMORY;
    for (int i = 0; i < p->n_instr; i++)
        if (p->instr[i].code == PL_FUSED_RAMP)
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

/* Makes sets from the dims of the runs before, at and after `along`. A missing inner set is one
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

/* Estimates the registers of a thread that walks columns with u chunks in flight: sums, values that
 * stay, loads in flight. */
static int registers(const pl_cg_pass *p, const int *dep, int moving, int u)
{
    int n = 30;
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_REDUCE)
            n += p->vec * (p->sink[s].reduce == PL_REDUCE_MOMENTS ? 3 : 1) *
                 (p->instr[p->sink[s].src].dtype == PL_F64 ? 2 : 1);
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD || !(dep[i] & PL_CG_DEP_J)) continue;
        int bytes = (int)pl_dtype_bytes(p->instr[i].dtype);
        n += dep[i] & moving ? u * p->vec * bytes / 4 : p->vec * (bytes > 4 ? 2 : 1);
    }
    return n;
}

/* Sets the chunks in flight: enough for 64 bytes or somewhat more per thread, few enough to keep
 * the text short. */
static void set_unroll(pl_cg_pass *p, const int *dep, int moving)
{
    int bytes = 0, n = 0, sums = 0;
    for (int s = 0; s < p->n_sink; s++) sums += p->sink[s].kind == PL_FUSED_REDUCE;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i]) continue;
        n++;
        if (p->instr[i].code == PL_FUSED_LOAD && dep[i] & moving)
            bytes += (int)pl_dtype_bytes(p->instr[i].dtype) * (dep[i] & PL_CG_DEP_J ? p->vec : 1);
    }
    int u = bytes > 48 ? 1 : bytes > 24 ? 2 : bytes > 12 ? 4 : 8;
    if (bytes == 0) u = 2;
    while (u > 2 && sums >= 4 && registers(p, dep, moving, u) > THREE_BLOCKS) u /= 2;
    while (u > 1 && u * p->vec * n > 1024) u /= 2;
    p->unroll = u;
}

/* By default the compiler uses few registers and interleaves loads with the arithmetic of earlier
 * chunks; with a given number of blocks it loads first. */
static void set_resident(pl_cg_pass *p, const int *dep)
{
    int n = registers(p, dep, PL_CG_DEP_L, p->unroll);
    if (p->tx * p->ty == PL_CG_THREADS)
        p->resident = n <= FOUR_BLOCKS ? 4 : n <= THREE_BLOCKS ? 3 : n <= TWO_BLOCKS ? 2 : 0;
}

/* Lays out rows: which thread adds which element is a function of the row's length. With column
 * sums, a block has the lanes of a sheet of such columns. */
static void lay_row(pl_cg_pass *p)
{
    int64_t n = p->size[PL_CG_INNER];
    p->vec = n % 4 == 0 ? 4 : 1;
    p->tx = pl_cg_row_threads(n);
    p->ty = p->tx > 32 ? 1 : 128 / p->tx;
    int64_t steps = pl_cg_ceil(n / p->vec, p->tx);
    p->steps = steps <= 8 ? (int32_t)steps : 0;
    if (!p->columns) return;
    pl_cg_columns c = pl_cg_columns_of(&p->walk);
    p->ty = c.ty;
    p->part = c.part;
    p->parts = c.parts;
}

static void lay_flat_sum(pl_cg_pass *p)
{
    int64_t n = p->size[PL_CG_INNER], outer = p->size[PL_CG_OUTER];
    p->vec = n % 4 == 0 ? 4 : 1;
    p->tx = PL_CG_THREADS;
    p->ty = 1;
    int64_t block = (int64_t)PL_CG_THREADS * p->vec;
    int64_t parts = pl_cg_clamp(PL_CG_BLOCKS / outer, 1, pl_cg_ceil(n, 8 * block));
    int64_t least = pl_cg_ceil(n, LANE_CHUNKS * block);
    if (parts < least) parts = pl_cg_rounds(least, outer);
    p->part = pl_cg_ceil(pl_cg_ceil(n, parts), block) * block;
    p->parts = pl_cg_ceil(n, p->part);
}

/* Whether nothing is stored, everything that is loaded per row has at most two bytes, and there is
 * little arithmetic: then wide chunks are faster, else more threads. */
static bool light(const pl_cg_pass *p)
{
    enum { MOST = 10 };
    int stays = 0, maps = 0;
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind == PL_FUSED_STORE) return false;
    for (int i = 0; i < p->n_instr; i++) {
        maps += p->used[i] && p->instr[i].code == PL_FUSED_MAP;
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        bool moves = false;
        for (int d = p->first[PL_CG_ALONG] + p->seg; d < p->first[PL_CG_INNER]; d++)
            moves |= o->stride[d] != 0;
        if (!o->stride[p->rank - 1]) continue;
        if (moves && pl_dtype_bytes(o->dtype) > 2) return false;
        stays += !moves;
    }
    return stays <= 6 && maps <= MOST;
}

/* Makes segments as short as possible with at least 16 rows per thread. */
static void set_segments(pl_cg_pass *p)
{
    int64_t len = 1;
    int d = p->first[PL_CG_INNER];
    while (d > p->first[PL_CG_ALONG] && len < 16 * (int64_t)p->ty) len *= p->dim[--d];
    p->seg = d - p->first[PL_CG_ALONG];
}

/* The width of a chunk may depend on more than sizes: it does not change the order in a column. */
static void lay_sheet_sum(pl_cg_pass *p)
{
    pl_cg_columns c = pl_cg_columns_of(&p->runs);
    int64_t inner = p->size[PL_CG_INNER];
    p->vec = inner % 4 == 0 ? 4 : 1;
    p->tx = c.tx;
    p->ty = c.ty;
    p->tiles = c.tiles;
    p->part = c.part;
    p->parts = c.parts;
    set_segments(p);
    if (p->vec == 4 && p->tx % 2 == 0 && inner % 8 == 0 && light(p)) {
        p->vec = 8;
        p->tx /= 2;
    }
}

/* Returns the elements of a chunk for maps: 16 bytes of the widest type that is loaded or stored
 * per step. Values that stay in registers while a thread walks do not count, unless there are
 * many. */
static int map_vec(const pl_cg_pass *p)
{
    size_t widest = 1;
    int stays = 0;
    for (int s = 0; s < p->n_sink; s++) {
        size_t b = pl_dtype_bytes(p->sink[s].dtype);
        if (b > widest) widest = b;
    }
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
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
    return vec;
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
    p->parts = pl_cg_ceil(p->size[PL_CG_INNER], p->part);
}

/* Returns the dim down which threads walk: the dim along which most operands stay the same. */
static int walk_dim(const pl_cg_pass *p)
{
    int best = 0;
    double most = -1;
    for (int d = 0; d + 1 < p->rank; d++) {
        double inner = 1, score = 0;
        for (int x = d + 1; x < p->rank; x++) inner *= (double)p->dim[x];
        for (int i = 0; i < p->n_instr; i++)
            if (p->used[i] && p->instr[i].code == PL_FUSED_LOAD &&
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
    int64_t chunks = inner / p->vec, per_row = pl_cg_ceil(chunks, PL_CG_THREADS);
    p->tx = (int32_t)pl_cg_ceil(chunks, per_row);
    p->ty = PL_CG_THREADS / p->tx;
    p->tiles = pl_cg_ceil(chunks, p->tx);
    pl_cg_deps(p, p->vec, dep);
    set_unroll(p, dep, PL_CG_DEP_L);
    int64_t len = p->size[PL_CG_ALONG];
    int64_t lanes = p->tiles * p->size[PL_CG_OUTER] * pl_cg_ceil(len, p->ty);
    int64_t each = pl_cg_clamp(lanes / 4224, 1, 16);
    if (each > p->unroll) each = pl_cg_ceil(each, p->unroll) * p->unroll;
    p->part = each * p->ty;
    p->parts = pl_cg_ceil(len, p->part);
}

/* ---- laying out ------------------------------------------------------------------------- */

static bool too_far(const pl_cg_pass *p)
{
    const int64_t limit = ((int64_t)1 << 31) - ((int64_t)1 << 22);
    int64_t total = 1;
    for (int d = 0; d < p->rank; d++) total *= p->dim[d];
    if (total > limit) return true;
    for (int i = 0; i < p->n_instr; i++) {
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD) continue;
        const pl_cg_operand *o = &p->op[p->instr[i].operand];
        int64_t reach = o->offset;
        for (int d = 0; d < p->rank; d++)
            reach += (p->dim[d] - 1) * (o->stride[d] < 0 ? -o->stride[d] : o->stride[d]);
        if (reach > limit) return true;
    }
    return false;
}

/* Coordinates are divided by 32-bit numbers: the sizes of all dims but a set's first. */
static pl_status check_dims(const pl_cg_pass *p)
{
    for (int set = 0; set < PL_CG_SETS; set++)
        for (int d = p->first[set] + 1; d < p->first[set + 1]; d++)
            PL_FAIL_IF(p->dim[d] > UINT32_MAX, PL_ERR_UNSUPPORTED,
                       "a group has rows of %lld elements; at most 2^32 - 1 are supported",
                       (long long)p->dim[d]);
    return PL_OK;
}

pl_status pl_cg_lay(pl_cg_pass *p, const pl_fused *f, pl_arena *a)
{
    int run[PL_CG_RANK + 1];
    PL_TRY(find_dims(p, f, a, run));
    int *dep = pl_arena_new(a, int, p->n_instr + 1);
    if (!dep) return PL_ERR_MEMORY;
    p->parts = p->tiles = p->unroll = 1;
    p->wide = too_far(p);
    if (p->shape == PL_CG_ROW) {
        bool rows = p->runs.n && pl_cg_reduced(&p->runs, p->runs.n - 1);
        set_sets(p, run, rows ? p->runs.n - 1 : p->runs.n, false);
        lay_row(p);
    } else if (p->reduces) {
        set_sets(p, run, p->runs.along, p->shape == PL_CG_SHEET);
        if (p->shape == PL_CG_FLAT)
            lay_flat_sum(p);
        else
            lay_sheet_sum(p);
        pl_cg_deps(p, p->vec, dep);
        set_unroll(p, dep, p->shape == PL_CG_FLAT ? PL_CG_DEP_I : PL_CG_DEP_L);
        if (p->shape == PL_CG_SHEET) set_resident(p, dep);
    } else if (p->rank <= 1) {
        for (int d = 0; d < p->rank; d++) run[d] = 0;
        set_sets(p, run, 0, false);
        lay_flat_map(p, dep);
    } else {
        lay_sheet_map(p, run, dep);
    }
    PL_TRY(check_dims(p));
    int64_t blocks = p->shape == PL_CG_ROW ? pl_cg_ceil(p->size[PL_CG_OUTER], p->ty)
                                           : p->tiles * p->parts * p->size[PL_CG_OUTER];
    PL_FAIL_IF(blocks > INT32_MAX, PL_ERR_UNSUPPORTED,
               "a group needs %lld blocks, more than a GPU can launch", (long long)blocks);
    return PL_OK;
}
