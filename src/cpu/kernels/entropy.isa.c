/* entropy.isa.c - see entropy.h. A row is worked on in blocks that stay in the first cache: widened
 * to f32, computed, and (backward) rounded back. */
#include "cpu/kernels/entropy.h"

#include "cpu/kernels/vecmath.h"

#include <float.h>

#define GLUE_(a, b) a##b
#define GLUE(a, b)  GLUE_(a, b)

enum { LANES = 16, BLOCK = 512 };
typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4)));

/* Returns n elements from element `at` on as f32: in place, or widened into buf. */
static inline const float *widened(const void *x, pl_dtype d, int64_t at, int64_t n, float *buf)
{
    if (d == PL_F32) return (const float *)x + at;
    const uint16_t *h = (const uint16_t *)x + at;
    if (d == PL_BF16)
        for (int64_t i = 0; i < n; i++) buf[i] = vm_float((uint32_t)h[i] << 16);
    else
        for (int64_t i = 0; i < n; i++) buf[i] = vm_f16_to_f32(h[i]);
    return buf;
}

static inline void rounded(void *y, pl_dtype d, int64_t at, int64_t n, const float *from)
{
    if (d == PL_F32) {
        memcpy((float *)y + at, from, (size_t)n * sizeof *from);
        return;
    }
    uint16_t *h = (uint16_t *)y + at;
    if (d == PL_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = (uint16_t)(vm_bits(vm_round_bf16(from[i])) >> 16);
    else
        for (int64_t i = 0; i < n; i++) h[i] = vm_f32_to_f16(from[i]);
}

/* Lanes past the end of a block hold `none`. */
static inline void lanes_at(const float *x, int64_t i, int64_t n, float none, v16 *out)
{
    float tail[LANES];
    if (n - i < LANES) {
        for (int64_t k = 0; k < LANES; k++) tail[k] = i + k < n ? x[i + k] : none;
        x = tail;
        i = 0;
    }
    memcpy(out, x + i, sizeof *out);
}

/* NaN is passed over here; it comes back in the sum of powers. */
static float largest(const void *x, pl_dtype d, int64_t n)
{
    float buf[BLOCK], top = -FLT_MAX;
    v16 best, v;
    for (int k = 0; k < LANES; k++) best[k] = top;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *b = widened(x, d, at, m, buf);
        for (int64_t i = 0; i < m; i += LANES) {
            lanes_at(b, i, m, top, &v);
            const i16 more = (i16)(v > best);
            best = (v16)(((i16)v & more) | ((i16)best & ~more));
        }
    }
    for (int k = 0; k < LANES; k++) top = best[k] > top ? best[k] : top;
    return top;
}

static inline float tree(const v16 *v)
{
    float x[LANES];
    memcpy(x, v, sizeof x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) x[k] += x[k + half];
    return x[0];
}

static void forward(const void *x, pl_dtype d, int64_t n, const float *w, bool spread,
                    pl_entropy_sums *s)
{
    float buf[BLOCK], part[BLOCK];
    v16 powers = {0}, spreads = {0}, v;
    const float top = largest(x, d, n);
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *b = widened(x, d, at, m, buf);
        for (int64_t i = 0; i < m; i++) part[i] = vm_exp(b[i] - top);
        for (int64_t i = 0; i < m; i += LANES) {
            lanes_at(part, i, m, 0, &v);
            powers += v;
        }
        if (!spread) continue;
        for (int64_t i = 0; i < m; i++) part[i] = (b[i] - top) * (w ? w[at + i] : 1.0f);
        for (int64_t i = 0; i < m; i += LANES) {
            lanes_at(part, i, m, 0, &v);
            spreads += v;
        }
    }
    *s = (pl_entropy_sums){top, tree(&powers), tree(&spreads)};
}

static void backward(const void *x, void *y, pl_dtype d, int64_t n, float lse, float scale,
                     const float *w, float spread)
{
    float buf[BLOCK], out[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *b = widened(x, d, at, m, buf);
        if (w)
            for (int64_t i = 0; i < m; i++)
                out[i] = scale * vm_exp(b[i] - lse) - spread * w[at + i];
        else
            for (int64_t i = 0; i < m; i++) out[i] = scale * vm_exp(b[i] - lse) - spread;
        rounded(y, d, at, m, out);
    }
}

extern const pl_entropy_loops GLUE(pl_entropy_loops_, PL_ISA);
const pl_entropy_loops GLUE(pl_entropy_loops_, PL_ISA) = {forward, backward};
