/* draw.isa.c - see draw.h. Sixty-four Philox blocks go through the rounds side by side, one array
 * for each of the four words of a block, in loops that the compiler vectorises (it would unroll
 * shorter loops instead).
 */
#include "cpu/kernels/draw.h"

#include "base/rng.h"

enum { N = PL_DRAW_BLOCKS };

static void words(uint64_t seed, uint32_t stream, uint64_t step, uint64_t first, uint32_t *out)
{
    uint32_t c0[N], c1[N], c2[N], c3[N];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < N; i++) {
        uint64_t block = first + (uint64_t)i;
        c0[i] = (uint32_t)block;
        c1[i] = (uint32_t)(block >> 32);
        c2[i] = stream;
        c3[i] = (uint32_t)step;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < N; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < N; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

static void uniform(const uint32_t *w, uint32_t keep, float *out)
{
    for (int i = 0; i < 4 * N; i++)
        out[i] = (float)(int32_t)((w[i] & keep) >> 8) * (1.0f / 16777216.0f);
}

static void normal(const uint32_t *w, float *out)
{
    for (int i = 0; i < 2 * N; i++) pl_rng_normal2(w[2 * i], w[2 * i + 1], out + 2 * i);
}

#define SET2(isa) pl_draw_##isa
#define SET1(isa) SET2(isa)
extern const pl_draw SET1(PL_ISA);
const pl_draw SET1(PL_ISA) = {words, uniform, normal};
