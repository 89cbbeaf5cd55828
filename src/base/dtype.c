/* dtype.c - sizes, names and conversions of element types. */
#include "base/dtype.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} rows[PL_N_DTYPES] = {
#define ROW(NAME, name, st, bytes) {#name, bytes},
    PL_DTYPE_LIST(ROW)
#undef ROW
};

size_t pl_dtype_bytes(pl_dtype d)
{
    return rows[d].bytes;
}

const char *pl_dtype_name(pl_dtype d)
{
    return d < PL_N_DTYPES ? rows[d].name : "?";
}

bool pl_dtype_is_float(pl_dtype d)
{
    return d == PL_F32 || d == PL_F64 || d == PL_BF16 || d == PL_F16;
}

bool pl_dtype_parse(const char *name, pl_dtype *out)
{
    for (int d = 0; d < PL_N_DTYPES; d++) {
        if (strcmp(rows[d].name, name) != 0) continue;
        *out = (pl_dtype)d;
        return true;
    }
    return false;
}

pl_type pl_type_make(pl_dtype dtype, int rank, const int64_t *dim)
{
    pl_type t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.rank = rank < 0 ? 0 : rank > PL_MAX_RANK ? PL_MAX_RANK : rank;
    for (int i = 0; i < t.rank; i++) t.dim[i] = dim[i];
    return t;
}

int64_t pl_type_elems(const pl_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

size_t pl_type_bytes(const pl_type *t)
{
    return (size_t)pl_type_elems(t) * rows[t->dtype].bytes;
}

bool pl_type_equal(const pl_type *a, const pl_type *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

const char *pl_type_text(const pl_type *t, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s[", pl_dtype_name(t->dtype));
    for (int i = 0; i < t->rank && n >= 0 && (size_t)n < cap; i++)
        n += snprintf(buf + n, cap - (size_t)n, i ? ",%lld" : "%lld", (long long)t->dim[i]);
    if (n >= 0 && (size_t)n < cap) snprintf(buf + n, cap - (size_t)n, "]");
    return buf;
}

float pl_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u, u;
    if (e == 31)
        u = sign | 0x7f800000u | m << 13;
    else if (e != 0)
        u = sign | (e + 112) << 23 | m << 13;
    else if (m == 0)
        u = sign;
    else { /* subnormal: shift the leading one up */
        e = 113;
        while (!(m & 1024u)) {
            m <<= 1;
            e--;
        }
        u = sign | e << 23 | (m & 1023u) << 13;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Normal numbers get 112 more as their exponent, infinity and NaN twice as much; a subnormal number
 * is its mantissa times 2^-24, which is exact. */
void pl_f16s_to_f32(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = from[i], e = h & 0x7c00u, u = (h & 0x7fffu) << 13;
        u += e == 0x7c00u ? 224u << 23 : 112u << 23;
        float small = (float)(int32_t)(h & 1023u) * 0x1p-24f;
        uint32_t low;
        memcpy(&low, &small, 4);
        u = (e ? u : low) | (h & 0x8000u) << 16;
        memcpy(&to[i], &u, 4);
    }
}

uint16_t pl_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
    if (a < 0x33000001u) return (uint16_t)sign;              /* rounds to zero */
    uint32_t e = a >> 23, m = (a & 0x7fffffu) | 0x800000u;
    uint32_t shift = e < 113 ? 126 - e : 13; /* subnormal results drop more bits */
    uint32_t half = e < 113 ? m >> shift : ((e - 112) << 10) | ((m >> 13) & 1023u);
    uint32_t rest = m & ((1u << shift) - 1), mid = 1u << (shift - 1);
    if (rest > mid || (rest == mid && (half & 1u))) half++;
    return (uint16_t)(sign | half);
}

double pl_elem_get(pl_dtype d, const void *base, int64_t i)
{
    switch (d) {
    case PL_F32: return (double)((const float *)base)[i];
    case PL_F64: return ((const double *)base)[i];
    case PL_BF16: return (double)pl_bf16_to_f32(((const uint16_t *)base)[i]);
    case PL_F16: return (double)pl_f16_to_f32(((const uint16_t *)base)[i]);
    case PL_I32: return (double)((const int32_t *)base)[i];
    case PL_I64: return (double)((const int64_t *)base)[i];
    case PL_U8:
    case PL_BOOL: return (double)((const uint8_t *)base)[i];
    case PL_N_DTYPES: break;
    }
    return 0;
}

void pl_elem_set(pl_dtype d, void *base, int64_t i, double v)
{
    switch (d) {
    case PL_F32: ((float *)base)[i] = (float)v; break;
    case PL_F64: ((double *)base)[i] = v; break;
    case PL_BF16: ((uint16_t *)base)[i] = pl_f32_to_bf16((float)v); break;
    case PL_F16: ((uint16_t *)base)[i] = pl_f32_to_f16((float)v); break;
    case PL_I32: ((int32_t *)base)[i] = (int32_t)v; break;
    case PL_I64: ((int64_t *)base)[i] = (int64_t)v; break;
    case PL_U8: ((uint8_t *)base)[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); break;
    case PL_BOOL: ((uint8_t *)base)[i] = v != 0; break;
    case PL_N_DTYPES: break;
    }
}
