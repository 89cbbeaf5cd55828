/* packed.c - the tables of codes: see packed.h. They are computed once in a process, because
 * kernels read them in every step. */
#include "base/number/packed.h"

#include <math.h>
#include <pthread.h>

static pl_packed_table tables[PL_N_PACKINGS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_one(pl_packing p, int bits, int block)
{
    pl_packed_table *t = &tables[p];
    t->n = pl_packed_codes(p);
    t->bits = bits;
    t->block = block;
    t->positive = p == PL_PACKING_DYNAMIC8_POSITIVE;
    for (int i = 0; i < t->n; i++) {
        t->value[i] = pl_packed_value(p, i);
        if (t->value[i] == 0) t->zero = (uint8_t)i;
    }
    for (int i = 0; i < PL_PACKED_CODES; i++)
        t->middle[i] = i + 1 < t->n ? (t->value[i] + t->value[i + 1]) / 2 : INFINITY;
}

static void make(void)
{
    make_one(PL_PACKING_DYNAMIC8, 8, 256);
    make_one(PL_PACKING_DYNAMIC8_POSITIVE, 8, 256);
    make_one(PL_PACKING_INT8, 8, 128);
    make_one(PL_PACKING_FP8, 8, 128);
    make_one(PL_PACKING_NF4, 4, 64);
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
