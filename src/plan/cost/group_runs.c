/* group_runs.c - how reductions are summed: decided by sizes and the kind of reduction alone.
 *
 * Idea: runs are neighbouring dims that are all kept or all reduced. Threads walk one of the
 * reduced runs; parts of it are summed separately and folded afterwards
 * (cuda/codegen/codegen_fold.c).
 *
 * Invariant (M11 of docs/MEMORY.md): operands, dtypes and the rest of the group do not matter, so a
 * sum has the same bits in every group.
 *
 * Example: [N,H,W,C] over {0,1,2} has the runs NHW (reduced) and C (kept): threads walk NHW.
 */
#include "plan/cost/group_runs.h"

#include <math.h>
#include <string.h>

enum { LANE_ROWS = 64, LONG_LANE_ROWS = 128, CUT_ROWS = 4096 };
/* blocks per multiprocessor that suffice for a row kernel with column sums */
enum { BESIDE = 2 };

pl_cg_runs pl_cg_runs_of(const pl_fused *f, uint32_t mask, int64_t lead, bool moments)
{
    pl_cg_runs r;
    memset(&r, 0, sizeof r);
    r.moments = moments;
    for (int d = 0; d < f->rank; d++) {
        bool red = mask >> d & 1u;
        if (f->dim[d] == 1) continue;
        if (r.n && pl_cg_reduced(&r, r.n - 1) == red) {
            r.size[r.n - 1] *= f->dim[d];
            continue;
        }
        r.size[r.n] = f->dim[d];
        r.reduced |= (uint32_t)red << r.n++;
    }
    for (int i = 0; i < r.n; i++) { /* the longest reduced run, the innermost of equals */
        bool more = !pl_cg_reduced(&r, r.along) || r.size[i] >= r.size[r.along];
        if (pl_cg_reduced(&r, i) && more) r.along = i;
    }
    if (lead && r.n > 1 && r.size[0] / lead >= CUT_ROWS) {
        for (int i = r.n++; i > 1; i--) r.size[i] = r.size[i - 1];
        r.size[1] = r.size[0] / lead;
        r.size[0] = lead;
        r.reduced = r.reduced << 1 | 1u;
        r.along++;
    }
    return r;
}

int64_t pl_cg_row_of(const pl_cg_runs *r)
{
    for (int i = 0; i + 1 < r->n; i++)
        if (pl_cg_reduced(r, i)) return 0;
    return r->n && pl_cg_reduced(r, r->n - 1) ? r->size[r->n - 1] : 1;
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Returns whole warps whose threads have about six chunks each, few of them idle in the last. With
 * more than eight warps each thread has so few registers that the maximum number of warps is
 * used. */
static int32_t warps_of(int64_t chunks)
{
    enum { BEST = 6, MOST = 8 };
    static const int32_t WARPS[] = {2, 3, 4, 6, 8};
    int32_t best = chunks <= 4096 ? 16 : 32;
    double most = 0;
    for (int i = 0; i < (int)(sizeof WARPS / sizeof *WARPS); i++) {
        int64_t steps = pl_cg_ceil(chunks, 32 * WARPS[i]);
        double good =
            (double)chunks / (double)(32 * WARPS[i] * steps) - 0.02 * fabs((double)(steps - BEST));
        if (steps > MOST || good <= most) continue;
        most = good;
        best = WARPS[i];
    }
    return best;
}

/* A thread with several chunks has more work between shuffles; at least four threads, to read whole
 * sectors; of four threads at most as many chunks as a cache line has. */
int32_t pl_cg_row_threads(int64_t n)
{
    enum { CHUNKS = 6, SECTOR = 4, LINE = 16 };
    int64_t chunks = n / (n % 4 == 0 ? 4 : 1), each = n % 4 == 0 ? CHUNKS : 1;
    int32_t t = 1;
    if (chunks > 256) return 32 * warps_of(chunks);
    while (t < 32 && t < chunks &&
           (t < SECTOR || (t == SECTOR && chunks > LINE) || each * t < chunks))
        t *= 2;
    return t;
}

/* ---- columns ---------------------------------------------------------------------------- */

int64_t pl_cg_rounds(int64_t parts, int64_t others)
{
    const int64_t round = PL_CG_BLOCKS;
    int64_t rounds = pl_cg_ceil(parts * others, round);
    if (parts * others <= round / 2 || others > round / 4) return parts;
    return pl_cg_clamp(rounds * round / others, parts, 2 * parts);
}

/* A strip's row is a sector: it is written and read whole, and a fold reads contiguous bytes. */
bool pl_cg_strips(const pl_cg_runs *r)
{
    return r->n > 1 && r->along == r->n - 2 && r->size[r->n - 1] % PL_CG_STRIP == 0;
}

/* Returns the product of the dims before the run that threads walk. */
static int64_t outer_of(const pl_cg_runs *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->along; i++) n *= r->size[i];
    return n;
}

/* Returns the product of the dims after the run that threads walk. */
static int64_t inner_of(const pl_cg_runs *r)
{
    int64_t n = 1;
    for (int i = r->along + 1; i < r->n; i++) n *= r->size[i];
    return n;
}

/* A block computes one part of long rows, so there must be many rows for few partial results. */
bool pl_cg_takes_columns(const pl_cg_runs *r)
{
    enum { ROWS = 64 * PL_CG_BLOCKS / 8 };
    int64_t inner = inner_of(r);
    if (r->moments || inner % 4 || inner < 32 || inner > 8192) return false;
    return pl_cg_row_threads(inner) <= 32 || outer_of(r) * r->size[r->along] >= ROWS;
}

/* Whether blocks that rows and sheets of such columns share are sized for the rows: short rows do
 * well with a sheet's blocks. */
static bool cut_for_rows(const pl_cg_runs *r)
{
    return pl_cg_takes_columns(r) && inner_of(r) >= 128;
}

/* Whether rows with such columns take more than one warp. */
static bool broad(const pl_cg_runs *r)
{
    return pl_cg_takes_columns(r) && pl_cg_row_threads(inner_of(r)) > 32;
}

/* Returns the lanes of such columns: rows that a block of a row kernel has room for. */
static int32_t broad_lanes(int64_t inner)
{
    int32_t threads = pl_cg_row_threads(inner), lanes = 1;
    while (2 * lanes * threads <= PL_CG_THREADS) lanes *= 2;
    return lanes;
}

/* Returns how many blocks of a row kernel with column sums a multiprocessor holds, by the registers
 * of its threads. */
static int beside_held(int64_t inner)
{
    static const int WARPS[] = {24, 24, 24, 16, 16, 12, 11, 9, 9}; /* by chunks per thread */
    int64_t threads = pl_cg_row_threads(inner), steps = pl_cg_ceil(inner, 4 * threads);
    int64_t block = threads > 32 ? threads * broad_lanes(inner) : threads * 8;
    if (threads == 32) return BESIDE; /* or one block, twice as long */
    return (int)pl_cg_clamp(32 * WARPS[pl_cg_clamp(steps, 0, 8)] / block, 1, 8);
}

/* Returns how full the waves are in which a large GPU runs so many blocks, `held` of them on each
 * multiprocessor at once. */
static double fullness(int64_t blocks, int held)
{
    int64_t round = (int64_t)PL_CG_BLOCKS / 8 * held;
    return (double)blocks / (double)(pl_cg_ceil(blocks, round) * round);
}

/* Returns the length of a part where columns are long, of at most `pairs` pairs of rows per lane:
 * waves should be full whether a multiprocessor holds three, four or eight blocks, and whole steps
 * of two pairs of rows are better than others. */
static int64_t long_part(const pl_cg_columns *c, const pl_cg_runs *r, int64_t pairs)
{
    const int64_t two = 2 * (int64_t)c->ty, len = r->size[r->along], outer = outer_of(r);
    int64_t best = 0;
    double most = -HUGE_VAL;
    for (int64_t m = pairs; m >= 1 && m >= pairs / 3; m--) {
        int64_t parts = pl_cg_ceil(len, two * m), blocks = parts * outer * c->tiles;
        double full = fullness(blocks, 8);
        if (!r->moments) full = fmin(full, fmin(fullness(blocks, 3), fullness(blocks, 4)));
        if (cut_for_rows(r)) full = fmin(full, fullness(parts * outer, beside_held(inner_of(r))));
        full -= m % 2 ? 0.02 : 0;
        /* partial results are long compared with few rows */
        if (c->ty < 8) full -= 4 / (double)(two * m);
        if (full > most + 0.01) {
            most = full;
            best = two * m;
        }
    }
    return best;
}

pl_cg_columns pl_cg_columns_of(const pl_cg_runs *r)
{
    pl_cg_columns c;
    int64_t outer = outer_of(r), inner = inner_of(r), len = r->size[r->along];
    int lane_rows = r->moments || broad(r) ? LONG_LANE_ROWS : LANE_ROWS;
    int vec = inner % 4 == 0 ? 4 : 1;
    c.tx = (int32_t)pl_cg_clamp(inner / vec, 1, vec == 4 ? 32 : 64);
    if (broad(r)) c.tx = PL_CG_THREADS / broad_lanes(inner);
    c.ty = PL_CG_THREADS / c.tx;
    c.tiles = pl_cg_ceil(inner, (int64_t)c.tx * vec);
    int64_t lanes = c.ty < 8 ? 8 : c.ty; /* a part pays with some rows for each of so many lanes */
    int64_t parts = pl_cg_clamp(PL_CG_BLOCKS / (c.tiles * outer), 1, pl_cg_ceil(len, 8 * lanes));
    if (cut_for_rows(r)) {
        int64_t once = PL_CG_BLOCKS / 8 * BESIDE / outer;
        if (parts < once) parts = pl_cg_clamp(once, parts, pl_cg_ceil(len, 4 * lanes));
    }
    c.part = pl_cg_ceil(pl_cg_ceil(len, parts), 2 * c.ty) * 2 * c.ty;
    if (c.part > (int64_t)lane_rows * c.ty)
        c.part = long_part(&c, r, lane_rows / 2);
    else if (broad(r) && outer * pl_cg_ceil(len, c.part) > PL_CG_BLOCKS / 8)
        c.part = long_part(&c, r, c.part / (2 * c.ty));
    c.parts = pl_cg_ceil(len, c.part);
    return c;
}

bool pl_cg_same_parts(const pl_cg_runs *a, const pl_cg_runs *b)
{
    pl_cg_columns x = pl_cg_columns_of(a), y = pl_cg_columns_of(b);
    if (a->n != b->n + 1 || a->along != 1 || b->along != 0 || a->moments || b->moments)
        return false;
    for (int i = 1; i < b->n; i++)
        if (a->size[i + 1] != b->size[i]) return false;
    return a->size[0] * a->size[1] == b->size[0] && x.part == y.part && a->size[1] % x.part == 0;
}
