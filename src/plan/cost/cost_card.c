/* cost_card.c - see cost_card.h.
 *
 * A unit takes a fixed time (the gap between two kernels of a graph, the latency of its first loads
 * and last stores), and then the longer of two times: its bytes at the GPU's bandwidth, and its
 * arithmetic at the rate of the units that do it:
 *
 *   products, convolutions   the units of their type; f32 operands split for TF32 units where that
 *                            is faster. Multiprocessors take tiles in waves: tiles over the edge
 *                            and a partly filled last wave are wasted, which decides how small
 *                            layers do on large GPUs
 *   a matrix, a vector       no operand is reused: as long as its bytes take
 *   few channels             a convolution with few channels on one side cannot use tensor cores:
 *                            rate of the f32 units
 *   windows of one channel   no reuse in registers, so most of the time goes into loading operands
 *   attention                products whose results wait for exponentials
 *   a chain of steps         the latency of one step each
 *
 * The shares below are what kinds of kernels reached on an H200 in four networks and two precisions
 * (bench/pl_costs.c), corrected for the cost of timing kernels one by one. No sum of a step is
 * fitted. docs/DEVICES.md compares predictions of whole steps with measured ones, also for networks
 * that no share was taken from. Other GPUs use the same shares of their figures.
 */
#include "plan/cost/cost_card.h"
#include "plan/cost/kernel_sizes.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define MIB 1048576ull
#define PL_CARD(name, about, memory, overhead, gbs, sms, f32, tf32, f16, bf16, launch, dnn)        \
 {name,       about,       (memory)*MIB, (overhead)*MIB, (gbs)*1e9,    sms,                        \
  (f32)*1e12, (tf32)*1e12, (f16)*1e12,   (bf16)*1e12,    (launch)*1e3, (dnn) != 0},
static const pl_card cards[] = {
#include "plan/cost/cards.def"
};
#undef PL_CARD

int pl_card_count(void)
{
    return (int)(sizeof cards / sizeof cards[0]);
}

const pl_card *pl_card_at(int i)
{
    return i >= 0 && i < pl_card_count() ? &cards[i] : NULL;
}

/* Whether `text` begins with the letters and digits of `name`, up to the end of a word, ignoring
 * blanks and dashes: "RTX 4070 Laptop GPU" begins with "rtx4070-laptop". */
static bool starts_alike(const char *text, const char *name)
{
    for (;; text++) {
        while (*name && !isalnum((unsigned char)*name)) name++;
        if (!*name) return !isalnum((unsigned char)*text);
        while (*text && !isalnum((unsigned char)*text)) text++;
        if (tolower((unsigned char)*text) != tolower((unsigned char)*name)) return false;
        name++;
    }
}

const pl_card *pl_card_find(const char *name)
{
    for (int i = 0; i < pl_card_count(); i++)
        if (strcmp(cards[i].name, name) == 0) return &cards[i];
    for (int i = 0; i < pl_card_count(); i++)
        for (const char *p = name; *p; p++)
            if ((p == name || !isalnum((unsigned char)p[-1])) && starts_alike(p, cards[i].name))
                return &cards[i];
    return NULL;
}

/* Share of the published rates that kernels reach. */
static const struct {
    double map, product, product_f32, conv, conv_f32, filter_tf32, split, few, few_back, few_f32,
        odd, odd_back, wide_back, taps, taps_back;
    double attend, attend_back, attend_f32, attend_f32_back, attend_tf32, warpgroup, warpgroup_64;
    double rounded, rounded_64, rounded_causal;
    double dnn, dnn_half, dnn_back, dnn_back_half;
} REACH = {.map = 0.5,          /* of f32's: elementwise */
           .product = 0.76,     /* 16-bit types */
           .product_f32 = 0.71, /* split products, share of that rate */
           .conv = 0.72,
           .conv_f32 = 0.62,
           .filter_tf32 = 0.58, /* of that: the filter's gradient in TF32 */
           .split = 0.65,       /* of a third of TF32's: three products, and sums in f32 */
           .few = 0.4,          /* of f32's: few channels on one side */
           .few_back = 0.23,    /* the filter's gradient: only its sums stay in registers */
           .few_f32 = 0.6,      /* of both, in f32 */
           .odd = 0.065,        /* share of the 16-bit rate where the number of channels is not a
                               * multiple of eight */
           .odd_back = 0.022,   /* the image's gradient */
           .wide_back = 0.2,    /* the filter's gradient where windows overlap much */
           .taps = 0.047,       /* of f32's */
           .taps_back = 0.021,
           .attend = 0.215,
           .attend_back = 0.172,
           .attend_f32 = 0.72,
           .attend_f32_back = 0.56,
           .attend_tf32 = 0.93,  /* of 16 bits: operands are rounded first */
           .warpgroup = 0.44,    /* gradients by warpgroup products with heads of 128, */
           .warpgroup_64 = 0.36, /* and of 64 */
           .rounded = 0.46, /* f32 rounded to f16, forward by warpgroup products, heads of 128, */
           .rounded_64 = 0.41,    /* and of 64; */
           .rounded_causal = 0.7, /* of that, where queries see earlier keys only */
           .dnn = 1.3,            /* of cuDNN's attention with heads of endless size, */
           .dnn_half = 110,       /* and the size at which half of it is reached */
           .dnn_back = 1.05,
           .dnn_back_half = 200};

bool pl_card_splits(const pl_card *card)
{
    enum { WORTH = 4 };
    return card->tf32 >= WORTH * card->f32;
}

static double split_rate(const pl_card *card)
{
    return pl_card_splits(card) ? card->tf32 / 3 * REACH.split : card->f32;
}

static double rate_of(const pl_card *card, pl_dtype dtype, pl_card_f32 f32)
{
    switch (dtype) {
    case PL_F16: return card->f16;
    case PL_BF16: return card->bf16;
    case PL_F64: return card->f32 / 32;
    default:
        return f32 == PL_CARD_TF32    ? card->tf32
               : f32 == PL_CARD_SPLIT ? split_rate(card)
                                      : card->f32;
    }
}

/* ---- wasted parts of tiles and waves ---------------------------------------------------- */
/* Returns the share of the places in waves of `slots` that so many blocks fill. */
static double filled(double blocks, double slots)
{
    return blocks / slots / ceil(blocks / slots);
}

/* Returns the share of the rate that a product reaches in tiles of this size: whole tiles, whole
 * waves of tiles, and sums long enough to fill the pipeline. Sums of many terms are split over idle
 * multiprocessors, at least `terms` per multiprocessor; 0: not split. */
static double tile_share(const pl_card *card, const pl_cost *c, double tile_m, double tile_n,
                         double terms)
{
    enum { USUAL = 128 * 128 };
    double count = fmax(1, c->flops / (2 * c->m * c->n * c->k));
    tile_m = fmin(tile_m, 32 * ceil(c->m / 32)), tile_n = fmin(tile_n, 32 * ceil(c->n / 32));
    double tiles = ceil(c->m / tile_m) * ceil(c->n / tile_n) * count;
    double used = c->m * c->n * count / (tiles * tile_m * tile_n);
    double splits = terms > 0 ? fmin(fmax(card->sms / tiles, 1), fmax(c->k / terms, 1)) : 1;
    double narrow = fmin(1, 0.5 + 0.5 * tile_m * tile_n / USUAL);
    return used * filled(tiles * splits, card->sms) * narrow * c->k / (c->k + 32);
}

/* Libraries choose the best of several tiles. */
static double product_share(const pl_card *card, const pl_cost *c, bool choice, double terms)
{
    if (!(c->m > 0 && c->n > 0 && c->k > 0)) return 1;
    double best = tile_share(card, c, 128, 128, terms);
    if (!choice) return best;
    best = fmax(best, tile_share(card, c, 128, 192, terms));
    best = fmax(best, tile_share(card, c, 128, 256, terms));
    return fmax(best, tile_share(card, c, 256, 128, terms));
}

/* Returns how often a convolution reads an element of its image: the sizes of the other two
 * operands are known. */
static double overlap(const pl_cost *c, double size)
{
    double image, taken;
    switch (c->work) {
    case PL_WORK_CONV: image = c->bytes / size - c->n * (c->m + c->k), taken = c->m * c->k; break;
    case PL_WORK_CONV_DX:
        image = c->bytes / size - c->k * (c->m + c->n), taken = c->m * c->n;
        break;
    default: image = c->bytes / size - c->m * (c->k + c->n), taken = c->n * c->k; break;
    }
    return taken / fmax(image, c->bytes / size / 100);
}

/* Blocks of `rows` rows of one side walk over the other side, 64 at a time; two blocks fit a
 * multiprocessor. alone: speed-up of a block that has a multiprocessor for itself. */
static double attend_share(const pl_card *card, double heads, double rows, double across,
                           double block, double alone)
{
    enum { WALK = 64 };
    double blocks = heads * ceil(rows / block), slots = 2 * card->sms;
    double share = blocks < slots ? fmin(1, alone * blocks / slots) : filled(blocks, slots);
    return share * rows / (block * ceil(rows / block)) * across / (WALK * ceil(across / WALK));
}

/* ---- rates ------------------------------------------------------------------------------ */
double pl_card_fixed_ns(const pl_card *card, const pl_cost *c)
{
    enum { CONV_NS = 6000, PRODUCT_NS = 1500, ATTEND_NS = 2000 };
    switch (c->work) {
    case PL_WORK_CONV:
    case PL_WORK_CONV_DX:
    case PL_WORK_CONV_DW: return card->launch_ns + CONV_NS;
    case PL_WORK_PRODUCT: return card->launch_ns + PRODUCT_NS;
    case PL_WORK_ATTENTION:
    case PL_WORK_ATTENTION_BACK: return card->launch_ns + ATTEND_NS;
    default: return card->launch_ns;
    }
}

static bool is_short(pl_dtype dtype)
{
    return dtype == PL_F16 || dtype == PL_BF16;
}

/* 16-bit types: kernels of a library, which need channels in multiples of eight and are made for
 * small windows. */
static double short_conv_rate(const pl_card *card, const pl_cost *c, double rate)
{
    enum { EIGHT = 8, WIDE = 49, TERMS = 512 };
    double out = c->work == PL_WORK_CONV ? c->n : c->work == PL_WORK_CONV_DX ? c->k : c->m;
    bool wide = overlap(c, 2) >= WIDE;
    if (fmod(out, EIGHT) != 0)
        return rate * (c->work == PL_WORK_CONV_DX ? REACH.odd_back : REACH.odd);
    if (wide && c->work == PL_WORK_CONV_DW) return rate * REACH.wide_back;
    return rate * product_share(card, c, true, wide ? 0 : TERMS) * REACH.conv;
}

static double conv_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32,
                        double rate)
{
    enum { FEW = 36, TERMS = 256 }; /* four channels of a 3 x 3 window */
    if (fmin(fmin(c->m, c->n), c->k) <= FEW)
        return card->f32 * (c->work == PL_WORK_CONV_DW ? REACH.few_back : REACH.few) *
               (is_short(dtype) ? 1 : REACH.few_f32);
    if (is_short(dtype)) return short_conv_rate(card, c, rate);
    /* The image's gradient sums over taps too: its sums are long for any number of channels. */
    double longer = c->work == PL_WORK_CONV_DX ? (c->k + 32) / c->k : 1;
    if (c->work == PL_WORK_CONV_DW && f32 == PL_CARD_TF32) longer = REACH.filter_tf32;
    return rate * product_share(card, c, false, TERMS) * longer * REACH.conv_f32;
}

bool pl_card_vector(const pl_cost *c, pl_dtype dtype)
{
    return c->work == PL_WORK_PRODUCT && fmin(c->m, c->n) <= 1 && dtype != PL_F64;
}

static double product_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, double rate)
{
    enum { TERMS = 256 };
    bool lower = is_short(dtype);
    if (pl_card_vector(c, dtype)) return card->f32 * REACH.map;
    return rate * product_share(card, c, lower, TERMS) *
           (lower ? REACH.product : REACH.product_f32);
}

/* Returns the number of heads of all batches if every query saw every key. */
static double heads_seen(const pl_cost *c, bool back)
{
    return fmax(1, round(c->flops / (c->m * c->n * (2 * (back ? 5 : 2) * c->k + 12))));
}

/* Returns the number of heads of all batches; *causal: queries see about half of the keys. */
static double attend_heads(const pl_cost *c, pl_dtype dtype, bool back, bool *causal)
{
    /* Tensors of queries and keys, two of each, or four with gradients; lse in 32 bits. */
    double elem = (double)pl_dtype_bytes(dtype);
    double each = elem * (back ? 4 : 2) * c->k * (c->m + c->n) + 4 * c->m;
    double seen = heads_seen(c, back), heads = c->bytes > 0 ? fmax(1, c->bytes / each) : seen;
    *causal = seen < 0.75 * heads;
    return heads;
}

bool pl_card_dnn_attends(const pl_card *card, const pl_cost *c, pl_dtype dtype)
{
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    if (!card->dnn_attention || !is_short(dtype) || fmod(c->k, 8) != 0 || c->k > 256) return false;
    if (back && pl_attend_dnn_slice_of(1, 1, llround(c->m), llround(c->n)).batch == 0) return false;
    bool causal;
    int64_t heads = llround(attend_heads(c, dtype, back, &causal));
    if (back && pl_attend_wg_is_faster(heads, llround(c->m), llround(c->n), llround(c->k), causal))
        return false;
    return c->m * c->n >= PL_ATTEND_DNN_PAIRS;
}

/* Returns the share of its rate that cuDNN's attention reaches in tiles of 128 queries and 128
 * keys. A block walks over keys; beginning and ending a walk takes as long as some tiles, more
 * where queries see earlier keys only and walks have different lengths. Fitted to
 * bench/results/attention.csv. */
static double dnn_attend_share(const pl_card *card, const pl_cost *c, pl_dtype dtype, bool back)
{
    enum { TILE = 128, WAVES = 4 };
    bool causal;
    double heads = attend_heads(c, dtype, back, &causal);
    double rows = ceil(c->m / TILE), walk = ceil(c->n / TILE), blocks = heads * rows;
    double ends = back ? 1 + 0.25 * causal : 1.5 + 0.75 * causal;
    double share = c->m / (rows * TILE) * c->n / TILE * (causal ? 0.5 : 1) /
                   ((causal ? (walk + 1) / 2 : walk) + ends);
    return blocks < WAVES * card->sms ? share * filled(blocks, card->sms) : share;
}

bool pl_card_rounds_attention(const pl_card *card, const pl_cost *c, pl_dtype dtype,
                              pl_card_f32 f32)
{
    bool cores = card->bf16 > card->f32; /* from compute capability 8.0 on */
    return f32 == PL_CARD_TF32 && dtype == PL_F32 && cores && c->k <= 128;
}

/* Whether warpgroup products compute attention that cuDNN does not: a gradient of 16-bit operands,
 * or f32 that is rounded to TF32 (cuda/attention/attention.c). */
bool pl_card_warpgroups_attend(const pl_card *card, const pl_cost *c)
{
    return card->dnn_attention && fmod(c->k, 8) == 0 && c->k > 32 && c->k <= 128 &&
           c->m * c->n >= PL_ATTEND_WGMMA_PAIRS;
}

/* A block walks over tiles of queries; beginning and ending a walk takes as long as ENDS tiles. */
static double warpgroup_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, double rate)
{
    enum { ENDS = 5, WAVES = 4 };
    bool causal, small = c->k <= 64;
    double heads = attend_heads(c, dtype, true, &causal);
    double walk = c->m / PL_ATTEND_WG_QUERIES * (causal ? 0.5 : 1);
    double blocks = heads * ceil(c->n / (small ? PL_ATTEND_WG_KEYS_64 : PL_ATTEND_WG_KEYS));
    double share = walk / (walk + ENDS) * c->k / (small ? 64 : 128);
    if (blocks < WAVES * card->sms) share *= filled(blocks, card->sms);
    return rate * share * (small ? REACH.warpgroup_64 : REACH.warpgroup);
}

/* In the backward pass, the kernel for the gradients of keys and values walks over queries (three
 * of five products); the kernel for the gradient of the queries walks over keys. */
static double own_attend_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, double rate)
{
    enum { ROWS = 128 };
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    double heads = heads_seen(c, back);
    if (is_short(dtype) && back)
        return rate * REACH.attend_back /
               (0.6 / attend_share(card, heads, c->n, c->m, ROWS, 1) +
                0.4 / attend_share(card, heads, c->m, c->n, ROWS, 1));
    double alone = back ? 1 : 1.3, share = attend_share(card, heads, c->m, c->n, ROWS, alone);
    if (is_short(dtype)) return rate * REACH.attend * share;
    share = fmax(share, attend_share(card, heads, c->m, c->n, ROWS / 2, alone));
    return rate * share * (back ? REACH.attend_f32_back : REACH.attend_f32);
}

/* Of f32 operands that are rounded to f16, and read twice for that. A block of the forward kernel
 * on warpgroup products walks over keys. */
static double rounded_attend_rate(const pl_card *card, const pl_cost *c)
{
    enum { ENDS = 5, ROUNDING_NS = 6000 };
    if (!pl_card_warpgroups_attend(card, c))
        return REACH.attend_tf32 * own_attend_rate(card, c, PL_F16, card->f16);
    bool back = c->work == PL_WORK_ATTENTION_BACK, causal, small = c->k <= 64;
    double heads = attend_heads(c, PL_F32, back, &causal),
           rows = small ? PL_ATTEND_WG_ROWS_64 : PL_ATTEND_WG_ROWS;
    double rate = warpgroup_rate(card, c, PL_F32, card->f16);
    if (!back) {
        double blocks = heads * ceil(c->m / rows),
               walk = c->n / PL_ATTEND_WG_TILE * (causal ? 0.5 : 1);
        rate = card->f16 * (small ? REACH.rounded_64 : REACH.rounded) * c->k / (small ? 64 : 128) *
               walk / (walk + ENDS) * heads * c->m / (blocks * rows) *
               (causal ? REACH.rounded_causal : 1) * filled(blocks, card->sms);
    }
    double rounded = 2.5 * 4 * heads * c->k * ((back ? 2 : 1) * c->m + 2 * c->n);
    return 1 / (1 / rate +
                (rounded / (PL_CARD_MOVES * card->bandwidth) + 1e-9 * ROUNDING_NS) / c->flops);
}

static double attend_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, double rate)
{
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    if (!pl_card_dnn_attends(card, c, dtype))
        return back && is_short(dtype) && pl_card_warpgroups_attend(card, c)
                   ? warpgroup_rate(card, c, dtype, rate)
                   : own_attend_rate(card, c, dtype, rate);
    /* Exponentials beside products: heads of few numbers have more of them. */
    double least = back ? REACH.dnn_back_half : REACH.dnn_half;
    return rate * (back ? REACH.dnn_back : REACH.dnn) * c->k / (c->k + least) *
           dnn_attend_share(card, c, dtype, back);
}

/* Returns the operations per second of a unit's arithmetic. */
static double arithmetic_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype,
                              pl_card_f32 f32)
{
    double rate = rate_of(card, dtype, f32);
    switch (c->work) {
    case PL_WORK_PRODUCT: return product_rate(card, c, dtype, rate);
    case PL_WORK_CONV:
    case PL_WORK_CONV_DX:
    case PL_WORK_CONV_DW: return conv_rate(card, c, dtype, f32, rate);
    case PL_WORK_ATTENTION:
    case PL_WORK_ATTENTION_BACK:
        if (pl_card_rounds_attention(card, c, dtype, f32)) return rounded_attend_rate(card, c);
        if (f32 == PL_CARD_TF32) rate = rate_of(card, dtype, PL_CARD_SPLIT);
        return attend_rate(card, c, dtype, rate);
    case PL_WORK_TAPS: return card->f32 * (c->k > c->m ? REACH.taps_back : REACH.taps);
    default: return card->f32 * REACH.map;
    }
}

double pl_card_ns(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    enum { STEP_NS = 15 }; /* of a chain, whose independent steps run at once */
    if (c->flops <= 0 && c->bytes <= 0) return 0;
    if (c->work == PL_WORK_CHAIN) return pl_card_fixed_ns(card, c) + STEP_NS * c->m;
    double compute = c->flops / arithmetic_rate(card, c, dtype, f32),
           move = c->bytes / (PL_CARD_MOVES * card->bandwidth);
    return pl_card_fixed_ns(card, c) + 1e9 * fmax(compute, move);
}
