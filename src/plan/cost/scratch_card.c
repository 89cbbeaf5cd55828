/* scratch_card.c - what kernels of a card are expected to ask for as scratch.
 *
 * The kernels of this engine that take f32 apart decide by sizes alone, and what they decide is
 * repeated here: into how many parts a product's sums fall (src/cuda/matmul/split.cu,
 * src/cuda/matmul/vector.cu), how many heads of an attention are taken apart at a time
 * (src/cuda/attention_split*). tests/cudasim hold both beside each other. What libraries ask for is
 * known on the card only; for those an amount is assumed that split sums take.
 */
#include "plan/cost/cost_card.h"

#include <math.h>

#define MIB 1048576.0

static double round_up(double bytes)
{
    return 256 * ceil(bytes / 256);
}

/* ---- products taken apart --------------------------------------------------------------- */
/* Of src/cuda/matmul/split.cu: y in tiles, blocks that a multiprocessor holds, and their rate
 * beside the best one's. */
static const struct {
    double m, n, blocks, rate;
} TILES[] = {{128, 128, 1, 1}, {128, 64, 2, 1}, {64, 64, 3, 0.9}};

static double part_of(double k, double parts)
{
    return 32 * ceil(ceil(k / parts) / 32);
}

static double seconds(const pl_card *card, int tile, double count, const pl_cost *c, double parts)
{
    double tiles = ceil(c->m / TILES[tile].m) * ceil(c->n / TILES[tile].n) * count;
    double each = ceil(tiles * parts / card->sms),
           busy = fmin(each, TILES[tile].blocks) / TILES[tile].blocks;
    double rate = 3e11 * TILES[tile].rate * (0.2 + 0.8 * busy);
    double t = 1.5e-6 + each * TILES[tile].m * TILES[tile].n * part_of(c->k, parts) / rate;
    return parts == 1 ? t : t + 3e-6 + 8 * parts * count * c->m * c->n / 2.5e12;
}

/* Parts of the sums, in f32. */
static double parts_bytes(const pl_card *card, double count, const pl_cost *c)
{
    enum { MOST = 32, LEAST = 256 };
    double least = HUGE_VAL, best = 1;
    for (int tile = 0; tile < 3; tile++)
        for (double parts = 1; parts <= MOST; parts++) {
            bool fits = parts == 1 ||
                        (c->k >= parts * LEAST && 4 * parts * count * c->m * c->n <= 64 * MIB);
            if (!fits || ceil(c->k / part_of(c->k, parts)) != parts) continue;
            double t = seconds(card, tile, count, c, parts);
            if (t < least) least = t, best = parts;
        }
    return best > 1 ? 4 * best * count * c->m * c->n : 0;
}

/* ---- matrices times vectors ------------------------------------------------------------- */
/* Of src/cuda/matmul/vector.cu, where the outputs are columns. Where they are rows there are fewer
 * parts or none, which a cost does not tell; the difference is some KiB. */
static double vector_bytes(double count, const pl_cost *c, pl_dtype dtype)
{
    enum { LONG = 4096, PART = 1024, FEW = 128, STRIP = 64, LONG_ROW = 65536, FEW_ROWS = 32 };
    double n = fmax(c->m, c->n), strips = count * ceil(n * (double)pl_dtype_bytes(dtype) / STRIP);
    if (c->k <= LONG || strips >= FEW || (n <= 1 && (c->k <= LONG_ROW || count > FEW_ROWS)))
        return 0;
    double parts = fmin(fmin(ceil(c->k / PART), ceil(2 * FEW / strips)), FEW);
    parts = ceil(c->k / (8 * ceil(ceil(c->k / parts) / 8)));
    return parts > 1 ? 4 * parts * count * n : 0;
}

/* ---- convolutions ----------------------------------------------------------------------- */
/* Columns of windows, for f32 units. */
static double columns_bytes(const pl_cost *c)
{
    return fmin(4 * c->m * c->k, fmin(fmax(c->bytes / 2, 16 * MIB), 256 * MIB));
}

static double conv_bytes(const pl_card *card, const pl_cost *c)
{
    enum { FEW = 36, LEAST_SUM = 512 };
    if (fmin(fmin(c->m, c->n), c->k) <= FEW) return 0;
    if (c->work == PL_WORK_CONV_DX) return round_up(4 * c->n * c->k); /* the filter, turned */
    return c->k < LEAST_SUM ? columns_bytes(c) : parts_bytes(card, 1, c);
}

/* ---- attention taken apart -------------------------------------------------------------- */
typedef struct attend {
    double all, queries, keys, d, wide; /* all: heads times batch */
} attend;

/* What is made of that many heads' queries, keys and values, and of the gradient of results. */
static double cut_bytes(const attend *a, double heads, int tensors)
{
    double bytes = 0;
    for (int i = 0; i < tensors; i++)
        bytes += round_up(heads * (i % 3 ? a->keys : a->queries) * 4 * (a->wide + 1));
    return bytes;
}

/* As many each time. */
static double heads_of(double all, double fit)
{
    return fit >= 1 ? ceil(all / ceil(all / fit)) : 1;
}

static double forward_bytes(const attend *a)
{
    double fit = floor(96 * MIB / ((a->queries + 2 * a->keys) * 4 * a->wide));
    return cut_bytes(a, heads_of(a->all, fit), 3);
}

/* Slices of queries that a kernel over keys is given. */
static double slices_of(double blocks, double queries)
{
    const double slots = 2 * 132;
    double best = 1, least = HUGE_VAL;
    for (double s = 1; s <= ceil(queries / 64) && blocks * s <= 4 * slots + blocks; s++) {
        double cost = ceil(blocks * s / slots) * (ceil(queries / s) + 96);
        if (cost < least) best = s, least = cost;
    }
    return best;
}

static double backward_bytes(const attend *a)
{
    double room = floor(floor(272 * MIB / 4) / a->keys), fit = floor(room / a->queries);
    double heads = heads_of(a->all, fit),
           queries = fit >= 1 ? a->queries : fmax(floor(room / 128), 1) * 128;
    double slices = slices_of(heads * ceil(a->keys / 64), queries),
           each = 32 * ceil(ceil(queries / slices) / 32);
    slices = ceil(queries / each);
    double bytes = round_up(8 * a->all * a->queries) + round_up(heads * queries * a->keys * 4);
    if (slices > 1) bytes += round_up(slices * heads * 2 * a->keys * a->d * 4);
    return bytes + cut_bytes(a, heads, 4);
}

static double attention_bytes(const pl_cost *c, bool split)
{
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    attend a = {0, c->m, c->n, c->k, c->k <= 32 ? 32 : c->k <= 64 ? 64 : 128};
    a.all = fmax(1, round(c->flops / (c->m * c->n * (2 * (back ? 5 : 2) * c->k + 12))));
    if (!split || c->k > 128) return back ? 8 * a.all * a.queries : 0;
    return back ? backward_bytes(&a) : forward_bytes(&a);
}

/* ---- all of them ------------------------------------------------------------------------ */
/* Partial sums of a library's split product, in f32; convolutions also turn operands around. */
static double library_bytes(const pl_cost *c, pl_dtype dtype)
{
    double bytes = 4 * 4 * c->m * c->n;
    if (c->work != PL_WORK_PRODUCT)
        bytes = fmax(bytes, 2 * (double)pl_dtype_bytes(dtype) * c->n * c->k);
    return fmin(bytes, 32 * MIB);
}

uint64_t pl_card_workspace(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    bool split = dtype == PL_F32 && f32 == PL_CARD_SPLIT && pl_card_splits(card);
    if (!(c->m * c->n * c->k > 0)) return 0;
    double count = fmax(1, round(c->flops / (2 * c->m * c->n * c->k)));
    switch (c->work) {
    case PL_WORK_PRODUCT:
        if (pl_card_vector(c, dtype)) return (uint64_t)round_up(vector_bytes(count, c, dtype));
        return (uint64_t)round_up(split ? parts_bytes(card, count, c) : library_bytes(c, dtype));
    case PL_WORK_CONV:
    case PL_WORK_CONV_DX:
    case PL_WORK_CONV_DW:
        return (uint64_t)round_up(split ? conv_bytes(card, c) : library_bytes(c, dtype));
    case PL_WORK_ATTENTION:
    case PL_WORK_ATTENTION_BACK: return (uint64_t)round_up(attention_bytes(c, split));
    default: return 0;
    }
}
