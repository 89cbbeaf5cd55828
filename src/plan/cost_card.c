/* cost_card.c - see cost_card.h.
 *
 * A unit takes the gap between two kernels of a graph, the time in which its first loads arrive and its last results
 * drain, and then the longer of its bytes at the card's bandwidth and its arithmetic at the rate of what does it:
 *
 *   products, convolutions   the units of their type; f32 taken apart for TF32 units where that is faster. Cut into
 *                            tiles that the multiprocessors take in waves: tiles over the edge and a last, partly filled
 *                            wave are wasted, which decides how small layers do on large cards
 *   few channels             a convolution with a handful of channels on one side leaves nothing for such units: f32's
 *   windows of one channel   nothing is used twice from registers, so most of the time goes into fetching operands
 *   attention                products whose results wait for exponentials
 *   a chain of steps         the latency of one step each
 *
 * The shares below are what kernels here took on an H200, by kind: those of cloud, wandistill and lgt, kernel by
 * kernel, less what timing each by itself costs. No network's sum is fitted; docs/DEVICES.md has how predictions of
 * whole steps compare, with networks among them that no share was taken from. Other cards have the same shares of their own
 * figures.
 */
#include "plan/cost_card.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define MIB 1048576ull
#define PL_CARD(name, about, memory, overhead, gbs, sms, f32, tf32, f16, bf16, launch)         \
 {name,        about,       (memory) * MIB, (overhead) * MIB, (gbs) * 1e9,  sms,               \
  (f32) * 1e12, (tf32) * 1e12, (f16) * 1e12,   (bf16) * 1e12,    (launch) * 1e3},
static const pl_card cards[] = {
#include "plan/cards.def"
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

/* Whether `text` begins with the letters and digits of `name`, up to the end of a word, blanks and
 * dashes aside: "RTX 4070 Laptop GPU" does with "rtx4070-laptop". */
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

/* What kernels reach of the published rates. */
static const struct {
    double map, product, conv, conv_f32, split, few, few_back, taps, taps_back, attend, attend_back, attend_f32,
        attend_f32_back;
} REACH = {.map = 0.5,         /* of f32's: elementwise */
           .product = 0.72,
           .conv = 0.7,        /* 16-bit types */
           .conv_f32 = 0.65,
           .split = 0.65,      /* of a third of TF32's: three products, and sums in f32 */
           .few = 0.35,        /* of f32's */
           .few_back = 0.23,   /* the filter's gradient: nothing stays in registers but its sums */
           .taps = 0.045,
           .taps_back = 0.021,
           .attend = 0.21,
           .attend_back = 0.167,
           .attend_f32 = 0.7,  /* of products' that are taken apart */
           .attend_f32_back = 0.54};

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
    default: return f32 == PL_CARD_TF32 ? card->tf32 : f32 == PL_CARD_SPLIT ? split_rate(card) : card->f32;
    }
}

/* The part of the rate that a product of this shape gets: whole tiles, whole waves of them, and
 * sums long enough to fill the pipeline. */
static double product_share(const pl_card *card, const pl_cost *c)
{
    enum { TILE = 128 };
    if (!(c->m > 0 && c->n > 0 && c->k > 0)) return 1;
    double count = c->flops / (2 * c->m * c->n * c->k);
    double tile_m = fmin(TILE, 32 * ceil(c->m / 32)), tile_n = fmin(TILE, 32 * ceil(c->n / 32));
    double tiles = ceil(c->m / tile_m) * ceil(c->n / tile_n) * (count > 1 ? count : 1);
    double used = c->m * c->n * (count > 1 ? count : 1) / (tiles * tile_m * tile_n);
    /* Sums of many terms are split over idle multiprocessors. */
    double splits = fmin(fmax(card->sms / tiles, 1), fmax(c->k / 512, 1));
    double waves = tiles * splits / card->sms, filled = waves / ceil(waves);
    double narrow = fmin(1, 0.5 + 0.5 * tile_m * tile_n / (TILE * TILE));
    return used * filled * narrow * c->k / (c->k + 32);
}

double pl_card_fixed_ns(const pl_card *card, const pl_cost *c)
{
    enum { CONV_NS = 6000, PRODUCT_NS = 1500, ATTEND_NS = 3000 };
    switch (c->work) {
    case PL_WORK_CONV: return card->launch_ns + CONV_NS;
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

static double conv_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, double rate)
{
    enum { FEW = 36 }; /* four channels of a 3 x 3 window */
    if (fmin(fmin(c->m, c->n), c->k) <= FEW) return card->f32 * (c->k > c->m ? REACH.few_back : REACH.few);
    return rate * product_share(card, c) * (is_short(dtype) ? REACH.conv : REACH.conv_f32);
}

/* Operations a second of a unit's arithmetic. */
static double arithmetic_rate(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    double rate = rate_of(card, dtype, f32);
    bool back = c->work == PL_WORK_ATTENTION_BACK;
    switch (c->work) {
    case PL_WORK_PRODUCT: return rate * product_share(card, c) * REACH.product;
    case PL_WORK_CONV: return conv_rate(card, c, dtype, rate);
    case PL_WORK_ATTENTION:
    case PL_WORK_ATTENTION_BACK:
        if (is_short(dtype)) return rate * (back ? REACH.attend_back : REACH.attend);
        return rate * (back ? REACH.attend_f32_back : REACH.attend_f32);
    case PL_WORK_TAPS: return card->f32 * (c->k > c->m ? REACH.taps_back : REACH.taps);
    default: return card->f32 * REACH.map;
    }
}

double pl_card_ns(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    enum { STEP_NS = 45 }; /* of a chain */
    if (c->flops <= 0 && c->bytes <= 0) return 0;
    if (c->work == PL_WORK_CHAIN) return pl_card_fixed_ns(card, c) + STEP_NS * c->m;
    double compute = c->flops / arithmetic_rate(card, c, dtype, f32), move = c->bytes / (PL_CARD_MOVES * card->bandwidth);
    return pl_card_fixed_ns(card, c) + 1e9 * fmax(compute, move);
}
