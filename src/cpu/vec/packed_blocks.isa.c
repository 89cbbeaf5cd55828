/* packed_blocks.isa.c - see packed_blocks.h. */
#include "cpu/vec/packed_blocks.h"

#include <math.h>
#include <string.h>

/* Returns how many of the 255 middles are below x: the code of the nearest value. */
static inline int nearest(const float *middle, float x)
{
    int code = 0;
    for (int step = 128; step; step >>= 1) code += middle[code + step - 1] < x ? step : 0;
    return code;
}

static float largest(const float *x, int n)
{
    float most = 0, odd = 0;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        most = a > most ? a : most;
        odd += x[i] - x[i]; /* 0, or NaN for a number that is not finite */
    }
    return odd == 0 ? most : NAN;
}

static void codes_of(const pl_packed_table *t, const float *x, int n, float scale, uint8_t *codes)
{
    for (int i = 0; i < n; i++) {
        int code = nearest(t->middle, x[i] / scale);
        codes[i] = (uint8_t)(t->positive && code == 0 && x[i] > 0 ? 1 : code);
    }
}

static void pack(const pl_packed_table *t, const float *x, int n, uint8_t *block)
{
    float scale = largest(x, n);
    if (scale > 0)
        codes_of(t, x, n, scale, block);
    else
        memset(block, t->zero, (size_t)n);
    memset(block + n, 0, (size_t)(PL_PACKED_BLOCK - n));
    memcpy(block + PL_PACKED_BLOCK, &scale, sizeof scale);
}

static void unpack(const pl_packed_table *t, const uint8_t *block, int n, float *x)
{
    float scale;
    memcpy(&scale, block + PL_PACKED_BLOCK, sizeof scale);
    for (int i = 0; i < n; i++) x[i] = t->value[block[i]] * scale;
}

static void round_random(const float *x, const uint32_t *words, int shift, int n, uint16_t *out)
{
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bool finite = (bits & 0x7f800000u) != 0x7f800000u;
        uint32_t low = words[i] >> shift & 0xffffu;
        /* a NaN keeps a bit that bf16 has */
        uint32_t odd = bits & 0x007fffffu ? 0x00400000u : 0;
        out[i] = (uint16_t)((finite ? bits + low : bits | odd) >> 16);
    }
}

static void widen(const uint16_t *x, int n, float *out)
{
    for (int i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
extern const pl_packed_loops JOIN(pl_packed_loops_, PL_ISA);
const pl_packed_loops JOIN(pl_packed_loops_, PL_ISA) = {pack, unpack, round_random, widen};
