/* packed.c - the tables of codes: see packed.h. They are computed once in a process, because
 * kernels of the CPU and of plug-ins read them in every step. */
#include "base/packed.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pl_packed_table tables[PL_N_PACKINGS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void add(pl_packed_table *t, double v)
{
    t->value[t->n++] = (float)v;
}

/* Decade i of seven: the interval from 10^(i-7) to 10^(i-6) in equal parts, each as its middle. */
static void add_decades(pl_packed_table *t, bool positive)
{
    for (int i = 0; i < 7; i++) {
        int parts = 1 << (positive ? i + 1 : i);
        for (int k = 0; k < parts; k++) {
            double middle = (0.1 + 0.9 * (k + 0.5) / parts) * pow(10, i - 6);
            add(t, middle);
            if (!positive) add(t, -middle);
        }
    }
    add(t, 0);
    add(t, 1);
}

static void add_fp8(pl_packed_table *t)
{
    add(t, 0);
    for (int code = 1; code < 127; code++) {
        int exponent = code >> 3, fraction = code & 7;
        double v = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
        add(t, v / 448);
        add(t, -v / 448);
    }
}

static const double nf4[16] = {
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
};

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void finish(pl_packed_table *t, int bits, int block, bool positive)
{
    t->bits = bits;
    t->block = block;
    t->positive = positive;
    qsort(t->value, (size_t)t->n, sizeof *t->value, ascending);
    for (int i = 0; i < PL_PACKED_CODES; i++) {
        t->middle[i] = i + 1 < t->n ? (t->value[i] + t->value[i + 1]) / 2 : INFINITY;
        if (i < t->n && t->value[i] == 0) t->zero = (uint8_t)i;
    }
}

static void make(void)
{
    add_decades(&tables[PL_PACKING_DYNAMIC8], false);
    finish(&tables[PL_PACKING_DYNAMIC8], 8, 256, false);
    add_decades(&tables[PL_PACKING_DYNAMIC8_POSITIVE], true);
    finish(&tables[PL_PACKING_DYNAMIC8_POSITIVE], 8, 256, true);
    for (int k = -127; k <= 127; k++) add(&tables[PL_PACKING_INT8], k / 127.0);
    finish(&tables[PL_PACKING_INT8], 8, 128, false);
    add_fp8(&tables[PL_PACKING_FP8]);
    finish(&tables[PL_PACKING_FP8], 8, 128, false);
    for (int k = 0; k < 16; k++) add(&tables[PL_PACKING_NF4], nf4[k]);
    finish(&tables[PL_PACKING_NF4], 4, 64, false);
}

const pl_packed_table *pl_packed(pl_packing p)
{
    pthread_once(&made, make);
    return &tables[p];
}

size_t pl_packed_bytes(pl_packing p)
{
    const pl_packed_table *t = pl_packed(p);
    return (size_t)(t->block * t->bits / 8) + sizeof(float);
}

pl_type pl_packed_type(pl_packing p, int64_t n)
{
    int block = pl_packed(p)->block;
    return PL_TYPE(PL_U8, (n + block - 1) / block, (int64_t)pl_packed_bytes(p));
}

pl_packing pl_packing_parse(const char *name)
{
    static const char *const names[PL_N_PACKINGS] = {
        [PL_PACKING_INT8] = "int8", [PL_PACKING_FP8] = "fp8", [PL_PACKING_NF4] = "nf4"};
    for (int i = 0; i < PL_N_PACKINGS; i++)
        if (names[i] && strcmp(names[i], name) == 0) return (pl_packing)i;
    return PL_PACKING_NONE;
}
