/* cost_card.c - see cost_card.h.
 *
 * A unit takes the longer of its bytes at the card's bandwidth and its arithmetic at the rate of
 * its type, and the gap between two kernels. A product is cut into square tiles that the
 * multiprocessors take in waves: what a last, partly filled wave and tiles over the edge waste is
 * counted, because it decides how small layers do on large cards. So is the time in which a product's
 * pipeline of loads fills and its results drain, which does not depend on its size.
 *
 * The shares and that time are what kernels here took on an H200, by kind and without any network's sum
 * being fitted: fused groups of three networks moved 3.0 to 3.3 TB/s of 4.8 (a plain copy 4.25), convolutions of
 * 0.3 ms ran at 0.58 to 0.68 of the published rate, those of 6.6 GFLOP took 7 us more than that rate
 * says, 2 of which lie between any two kernels of a graph.
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

/* Three products, and what splitting values and adding up in f32 leaves of the units' rate. */
static double split_rate(const pl_card *card)
{
    enum { WORTH = 4 };
    return card->tf32 >= WORTH * card->f32 ? card->tf32 / 3 * 0.65 : card->f32;
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
    enum { FILL_NS = 5000 };
    return card->launch_ns + (c->work == PL_WORK_MOVE ? 0 : FILL_NS);
}

double pl_card_ns(const pl_card *card, const pl_cost *c, pl_dtype dtype, pl_card_f32 f32)
{
    /* What well written kernels reach of the published figures. */
    static const double reach[] = {[PL_WORK_MOVE] = 0.5,
                                   [PL_WORK_PRODUCT] = 0.75,
                                   [PL_WORK_CONV] = 0.6,
                                   [PL_WORK_ATTENTION] = 0.45,
                                   [PL_WORK_LINK] = 0.5};
    if (c->flops <= 0 && c->bytes <= 0) return 0;
    double rate = c->work == PL_WORK_MOVE || c->work == PL_WORK_LINK ? card->f32 : rate_of(card, dtype, f32);
    if (c->work == PL_WORK_PRODUCT || c->work == PL_WORK_CONV) rate *= product_share(card, c);
    double compute = c->flops / (rate * reach[c->work]), move = c->bytes / (PL_CARD_MOVES * card->bandwidth);
    return pl_card_fixed_ns(card, c) + 1e9 * fmax(compute, move);
}

uint64_t pl_card_workspace(const pl_cost *c, pl_dtype dtype)
{
    /* Partial sums of a split product, in f32; convolutions also turn operands around. */
    enum { MOST = 32 << 20 };
    if (c->work == PL_WORK_MOVE || c->work == PL_WORK_LINK) return 0;
    double bytes = c->work == PL_WORK_ATTENTION ? 4 * c->flops / (2 * c->n * c->k + 1) : 4 * 4 * c->m * c->n;
    if (c->work == PL_WORK_CONV) bytes = fmax(bytes, 2 * (double)pl_dtype_bytes(dtype) * c->n * c->k);
    return (uint64_t)fmin(bytes, MOST) / 256 * 256;
}
