/* packed.c - the tables of codes: see packed.h. They are computed once in a process, because
 * kernels read them in every step. */
#include "base/number/packed.h"

#include <math.h>
#include <pthread.h>

static pl_packed_table tables[2];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make(void)
{
    for (int k = 0; k < 2; k++) {
        pl_packed_table *t = &tables[k];
        t->positive = k == 1;
        for (int i = 0; i < PL_PACKED_CODES; i++) {
            t->value[i] = pl_packed_value(t->positive, i);
            if (t->value[i] == 0) t->zero = (uint8_t)i;
        }
        for (int i = 0; i < PL_PACKED_CODES; i++)
            t->middle[i] = i + 1 < PL_PACKED_CODES ? (t->value[i] + t->value[i + 1]) / 2 : INFINITY;
    }
}

const pl_packed_table *pl_packed(bool positive)
{
    pthread_once(&made, make);
    return &tables[positive];
}

pl_type pl_packed_type(int64_t n)
{
    return PL_TYPE(PL_U8, (n + PL_PACKED_BLOCK - 1) / PL_PACKED_BLOCK, PL_PACKED_BYTES);
}
