/* kernel_sizes.c - see kernel_sizes.h.
 *
 * Everything follows from sizes and, for products, the number of multiprocessors. The order of sums
 * depends on these numbers: parts of a vector product and slices of attention are chosen as for a
 * large GPU (LARGE multiprocessors) on every GPU, so that the bits are the same on all of them.
 * Each function tries at most a few dozen candidates.
 */
#include "plan/cost/kernel_sizes.h"

#include <math.h>

#define MIB ((int64_t)1 << 20)

enum { LARGE = 132 };

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t round_up(int64_t bytes)
{
    return (size_t)div_up(bytes, 256) * 256;
}

/* ---- f32 products on tensor cores ----------------------------------------------------------- */
static const struct {
    int64_t m, n, blocks;
    double rate;
} tiles[PL_N_SPLIT_TILES] = {
#define T(name, rows, columns, held, speed)                                                        \
 [PL_SPLIT_##name] = {.m = rows, .n = columns, .blocks = held, .rate = speed},
    PL_SPLIT_TILES(T)
#undef T
};

int64_t pl_split_terms(int64_t k, int64_t parts)
{
    return div_up(div_up(k, parts), PL_SPLIT_TERMS) * PL_SPLIT_TERMS;
}

/* Returns the expected seconds on an H200: the busiest multiprocessor's terms, at the rate of as
 * many blocks as it holds at once, plus the second pass over parts. */
static double seconds(const pl_split_sizes *s, int tile, int64_t parts, int64_t sms)
{
    const double RATE = 3e11, BYTES = 2.5e12, BEGIN = 1.5e-6, PASS = 3e-6;
    int64_t all = div_up(s->m, tiles[tile].m) * div_up(s->n, tiles[tile].n) * s->batch;
    int64_t each = div_up(all * parts, sms);
    /* share of the warps that hide latency */
    double busy = (double)least(each, tiles[tile].blocks) / (double)tiles[tile].blocks;
    double rate = RATE * tiles[tile].rate * (0.2 + 0.8 * busy);
    double area = (double)each * (double)tiles[tile].m * (double)tiles[tile].n;
    double t = BEGIN + area * (double)pl_split_terms(s->k, parts) / rate;
    return parts == 1 ? t : t + PASS + 8.0 * (double)(parts * s->batch * s->m * s->n) / BYTES;
}

static bool may_have(const pl_split_sizes *s, int64_t parts, bool whole)
{
    enum { LEAST_PART = 256 };
    if (parts == 1) return true;
    return !whole && s->k >= parts * LEAST_PART && 4 * parts * s->batch * s->m * s->n <= 64 * MIB &&
           div_up(s->k, pl_split_terms(s->k, parts)) == parts;
}

pl_split_choice pl_split_choose(const pl_split_sizes *s, int64_t sms, bool whole)
{
    enum { MOST_PARTS = 32 };
    pl_split_choice best = {.parts = 1, .seconds = HUGE_VAL};
    for (int tile = 0; tile < PL_N_SPLIT_TILES; tile++)
        for (int64_t parts = 1; parts <= MOST_PARTS; parts++) {
            double t = may_have(s, parts, whole) ? seconds(s, tile, parts, sms) : HUGE_VAL;
            if (!(t < best.seconds)) continue;
            best = (pl_split_choice){(pl_split_tile)tile, parts, t};
        }
    return best;
}

size_t pl_split_bytes(const pl_split_sizes *s, int64_t parts)
{
    return parts > 1 ? (size_t)(4 * parts * s->batch * s->m * s->n) : 0;
}

/* RATE: what the f32 units of a multiprocessor reach in large products. */
bool pl_split_is_faster(const pl_split_sizes *s, const pl_split_choice *c, int64_t sms)
{
    const double RATE = 3.6e11 * (double)sms, BEGIN = 4e-6;
    double flops = 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
    return s->k >= PL_SPLIT_LEAST_SUM && c->seconds < BEGIN + flops / RATE;
}

/* ---- a matrix times a vector ---------------------------------------------------------------- */
/* One part where there are enough blocks, or where the second kernel would take longer than it
 * saves. */
static int64_t wanted_parts(int64_t batch, int64_t n, int64_t k, int64_t elem, bool columns)
{
    enum { LONG = 4096, PART = 1024, FEW = 128, MOST = 128, STRIP = 64 };
    enum { LONG_ROW = 65536, FEW_ROWS = 32 };
    int64_t strips = batch * div_up(n * elem, STRIP);
    if (k <= LONG || strips >= FEW) return 1;
    if (!columns && (k <= LONG_ROW || batch * n > FEW_ROWS)) return 1;
    return least(least(div_up(k, PART), div_up(2 * FEW, strips)), MOST);
}

int64_t pl_vector_parts(int64_t batch, int64_t n, int64_t k, int64_t elem, bool columns,
                        int64_t *terms)
{
    enum { ROUND = 8 }; /* parts of rows begin at multiples of the vector-load width */
    *terms = div_up(div_up(k, wanted_parts(batch, n, k, elem, columns)), ROUND) * ROUND;
    return div_up(k, *terms);
}

size_t pl_vector_bytes(int64_t batch, int64_t n, int64_t parts)
{
    return parts > 1 ? (size_t)(parts * batch * n) * sizeof(float) : 0;
}

/* ---- convolutions as products over columns -------------------------------------------------- */
int64_t pl_columns_at_once(int64_t operand_bytes)
{
    int64_t half = operand_bytes / 2;
    return half < 16 * MIB ? 16 * MIB : least(half, 256 * MIB);
}

/* ---- f32 attention on tensor cores ---------------------------------------------------------- */
int64_t pl_attend_wide(int64_t d)
{
    return d <= 32 ? 32 : d <= 64 ? 64 : 128;
}

/* Splits the heads into equal portions of at most `fit` heads. */
static int64_t heads_at_once(int64_t all, int64_t fit)
{
    return fit ? div_up(all, div_up(all, fit)) : 1;
}

/* Reserves room after c->bytes for the first `tensors` of q, k, v and the gradient of the result:
 * two halves per number, and one factor per row. */
static void place_split(pl_attend_course *c, const pl_attend_sizes *s, int tensors)
{
    for (int i = 0; i < tensors; i++) {
        c->split_at[i] = c->bytes;
        c->bytes += round_up(c->heads * (i % 3 ? s->m : s->n) * 4 * (pl_attend_wide(s->d) + 1));
    }
}

pl_attend_course pl_attend_forward_course(const pl_attend_sizes *s)
{
    int64_t fit = 96 * MIB / ((s->n + 2 * s->m) * 4 * pl_attend_wide(s->d));
    pl_attend_course c = {.heads = heads_at_once(s->heads, fit), .queries = s->n, .slices = 1};
    place_split(&c, s, 3);
    return c;
}

/* Returns the number of slices of queries for the kernel over keys with which its blocks finish
 * first, if each slice has work for at least OWN queries. */
static int64_t slices_for(int64_t blocks, int64_t queries)
{
    enum { LEAST = 64, OWN = 96, SLOTS = 2 * LARGE };
    int64_t best = 1, cost = INT64_MAX;
    for (int64_t s = 1; s <= div_up(queries, LEAST) && blocks * s <= 4 * SLOTS + blocks; s++) {
        int64_t c = div_up(blocks * s, SLOTS) * (div_up(queries, s) + OWN);
        if (c < cost) best = s, cost = c;
    }
    return best;
}

pl_attend_course pl_attend_backward_course(const pl_attend_sizes *s, size_t delta_bytes)
{
    int64_t room = (s->room ? s->room : 272 * MIB) / 4 / s->m, fit = room / s->n;
    pl_attend_course c = {.heads = heads_at_once(s->heads, fit), .queries = s->n};
    int64_t some = room / PL_ATTEND_QUERIES * PL_ATTEND_QUERIES;
    if (!fit) c.queries = some > PL_ATTEND_QUERIES ? some : PL_ATTEND_QUERIES;
    c.slices = slices_for(c.heads * div_up(s->m, PL_ATTEND_KEYS), c.queries);
    c.per = div_up(div_up(c.queries, c.slices), PL_ATTEND_SLICE) * PL_ATTEND_SLICE;
    c.slices = div_up(c.queries, c.per);
    c.scores_at = round_up((int64_t)delta_bytes);
    c.parts_at = c.scores_at + round_up(c.heads * c.queries * s->m * 4);
    c.bytes = c.parts_at;
    if (c.slices > 1) c.bytes += round_up(c.slices * c.heads * 2 * s->m * s->d * 4);
    place_split(&c, s, 4);
    return c;
}

/* ---- attention of f32 as TF32 --------------------------------------------------------------- */
size_t pl_attend_tf32_delta(const pl_attend_sizes *s)
{
    return round_up(s->heads * s->n * 8);
}

size_t pl_attend_tf32_tensor(const pl_attend_sizes *s, bool keys)
{
    return round_up(2 * s->heads * (keys ? s->m : s->n) * s->d);
}

size_t pl_attend_tf32_bytes(const pl_attend_sizes *s, bool back)
{
    size_t of_n = pl_attend_tf32_tensor(s, false), of_m = pl_attend_tf32_tensor(s, true);
    return PL_ATTEND_LARGEST + of_n + 2 * of_m + (back ? of_n + pl_attend_tf32_delta(s) : 0);
}

/* ---- 16-bit attention by cuDNN -------------------------------------------------------------- */
/* The largest divisor of count that is at most `most`; 0 if most is below 1. */
static int64_t divisor(int64_t count, int64_t most)
{
    if (most < 1) return 0;
    if (most >= count) return count;
    while (count % most) most--;
    return most;
}

pl_attend_dnn_slice pl_attend_dnn_slice_of(int64_t batch, int64_t heads, int64_t n, int64_t m)
{
    /* The engine has a block for 128 keys, and stores whole tiles of 64 queries and 128 keys. */
    enum { KEYS = 128, QUERIES = 64, BLOCKS = 128 };
    int64_t head = 2 * (div_up(n, QUERIES) * QUERIES) * (div_up(m, KEYS) * KEYS);
    int64_t fit = PL_ATTEND_DNN_SCRATCH / (head > 0 ? head : 1);
    pl_attend_dnn_slice s = {.batch = 0};
    for (int64_t b = divisor(batch, fit); b > 0; b = divisor(batch, b - 1)) {
        int64_t h = divisor(heads, fit / b);
        if (b * h > s.batch * s.heads) s = (pl_attend_dnn_slice){.batch = b, .heads = h};
    }
    bool whole = s.batch == batch && s.heads == heads;
    if (!whole && s.batch * s.heads * div_up(m, KEYS) < BLOCKS) s.batch = 0;
    s.bytes = s.batch * s.heads * head;
    return s;
}

pl_attend_wg_work pl_attend_wg_work_of(int64_t heads, int64_t n, int64_t m, int64_t d)
{
    int64_t wide = d <= 64 ? 64 : 128, keys = d <= 64 ? PL_ATTEND_WG_KEYS_64 : PL_ATTEND_WG_KEYS;
    int64_t queries = div_up(n, PL_ATTEND_WG_QUERIES) * PL_ATTEND_WG_QUERIES;
    int64_t blocks = div_up(m, keys);
    pl_attend_wg_work w = {.sums_at = round_up(8 * heads * n)};
    w.counts_at = w.sums_at + (blocks > 1 ? round_up(4 * heads * queries * wide) : 0);
    w.bytes = w.counts_at + round_up(4 * (1 + PL_ATTEND_WG_ORDERS * heads * blocks));
    return w;
}

size_t pl_attend_tf32_wg_bytes(const pl_attend_sizes *s)
{
    return pl_attend_wg_work_of(s->heads, s->n, s->m, s->d).bytes + PL_ATTEND_LARGEST +
           2 * (pl_attend_tf32_tensor(s, false) + pl_attend_tf32_tensor(s, true));
}

bool pl_attend_wg_is_faster(int64_t heads, int64_t n, int64_t m, int64_t d, bool causal)
{
    enum { BLOCKS = 512 };
    const double pairs = (double)n * (double)m, k = 1024 * 1024;
    if (d % 8 || d <= 32 || d > 128) return false;
    if (d <= 64 && causal)
        return pairs >= (heads * div_up(m, PL_ATTEND_WG_KEYS_64) >= BLOCKS ? 1 : 4) * k;
    if (d <= 64) return pairs >= 16 * k;
    if (d <= 96) return pairs >= (causal ? 16 : 256) * k;
    return pairs >= (causal ? 4 : 64) * k;
}
