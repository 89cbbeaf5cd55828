/* quantized.c - see quantized.h. The tables are computed once in a process, because kernels read
 * them in every step. */
#include "base/number/quantized.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The 16 values of NF4: quantiles of a normal distribution, scaled to [-1, 1], with an exact 0. */
static const float nf4[16] = {
    -1.0f,        -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
    -0.09105004f, 0.0f,         0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
    0.44070983f,  0.56261700f,  0.72295684f,  1.0f,
};

static const char *const names[PL_N_QUANTS] = {"none", "fp8", "int8", "nf4"};
static pl_quant_table tables[PL_N_QUANTS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

const char *pl_quant_name(pl_quant q)
{
    return (unsigned)q < PL_N_QUANTS ? names[q] : "?";
}

bool pl_quant_parse(const char *name, pl_quant *out)
{
    for (int i = 0; i < PL_N_QUANTS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (pl_quant)i;
            return true;
        }
    return false;
}

/* Magnitude `code` of e4m3: 4 bits of exponent, 3 of mantissa; 126 is the largest, 448. */
static double e4m3(int code)
{
    int exponent = code >> 3, mantissa = code & 7;
    return exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

static float value_of(pl_quant form, int i)
{
    switch (form) {
    case PL_QUANT_FP8: return (float)((i < 126 ? -e4m3(126 - i) : e4m3(i - 126)) / 448);
    case PL_QUANT_INT8: return (float)((i - 127) / 127.0);
    case PL_QUANT_NF4: return nf4[i];
    case PL_QUANT_NONE:
    case PL_N_QUANTS: break;
    }
    return 0;
}

static void make(void)
{
    static const int codes[PL_N_QUANTS] = {0, 253, 255, 16};
    for (int k = PL_QUANT_FP8; k < PL_N_QUANTS; k++) {
        pl_quant_table *t = &tables[k];
        t->codes = codes[k];
        t->bits = t->codes <= 16 ? 4 : 8;
        /* Bytes that no quantizing writes read as the last value. */
        for (int i = 0; i < PL_QUANT_CODES; i++)
            t->value[i] = value_of((pl_quant)k, i < t->codes ? i : t->codes - 1);
        for (int i = 0; i < PL_QUANT_CODES; i++)
            t->middle[i] = i + 1 < t->codes ? (t->value[i] + t->value[i + 1]) / 2 : INFINITY;
    }
}

const pl_quant_table *pl_quantized(pl_quant form)
{
    pthread_once(&made, make);
    return &tables[form];
}

static int64_t blocks_of(int64_t n)
{
    return (n + PL_QUANT_BLOCK - 1) / PL_QUANT_BLOCK;
}

int64_t pl_quant_code_bytes(pl_quant form, int64_t n)
{
    return blocks_of(n) * (PL_QUANT_BLOCK * pl_quantized(form)->bits / 8);
}

int64_t pl_quant_bytes(pl_quant form, int64_t n)
{
    return pl_quant_code_bytes(form, n) + blocks_of(n) * (int64_t)sizeof(float);
}

/* The number of middles below x, without branches: the code of the nearest value. */
static unsigned nearest(const pl_quant_table *t, float x)
{
    unsigned at = 0;
    for (unsigned step = t->bits == 8 ? 128 : 8; step; step /= 2)
        at += t->middle[at + step - 1] < x ? step : 0;
    return at;
}

static void quantize_block(const pl_quant_table *t, const float *x, int n, uint8_t *codes,
                           float *scale)
{
    unsigned code[PL_QUANT_BLOCK] = {0};
    float most = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        finite &= isfinite(x[i]) != 0;
    }
    for (int i = 0; i < n; i++) code[i] = nearest(t, most > 0 && finite ? x[i] / most : 0);
    for (int i = 0; i < PL_QUANT_BLOCK; i++)
        if (t->bits == 8)
            codes[i] = (uint8_t)code[i];
        else if (i % 2 == 0)
            codes[i / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
    *scale = finite ? most : NAN;
}

void pl_quantize(pl_quant form, const float *x, int64_t n, uint8_t *codes, float *scales)
{
    const pl_quant_table *t = pl_quantized(form);
    int bytes = PL_QUANT_BLOCK * t->bits / 8;
    for (int64_t b = 0; b < blocks_of(n); b++) {
        int64_t left = n - b * PL_QUANT_BLOCK;
        quantize_block(t, x + b * PL_QUANT_BLOCK,
                       (int)(left < PL_QUANT_BLOCK ? left : PL_QUANT_BLOCK), codes + b * bytes,
                       scales + b);
    }
}

void pl_dequantize_blocks(pl_quant form, const uint8_t *codes, const float *scales, int64_t n,
                          float *x)
{
    const pl_quant_table *t = pl_quantized(form);
    for (int64_t b = 0; b < blocks_of(n); b++) {
        int64_t left = n - b * PL_QUANT_BLOCK, first = b * PL_QUANT_BLOCK;
        int m = (int)(left < PL_QUANT_BLOCK ? left : PL_QUANT_BLOCK);
        float scale = scales[b];
        const uint8_t *from = codes + first * t->bits / 8;
        float *to = x + first;
        if (t->bits == 8)
            for (int i = 0; i < m; i++) to[i] = t->value[from[i]] * scale;
        else
            for (int i = 0; i < m; i++)
                to[i] = t->value[i % 2 ? from[i / 2] >> 4 : from[i / 2] & 15] * scale;
    }
}
