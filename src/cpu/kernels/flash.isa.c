/* flash.isa.c - the tiles of flash.h, compiled for each instruction set.
 *
 * All products are C[m,n] (+)= A[m,k] B[k,n] with B and C in rows of whole vectors and A read one
 * element at a time, with any strides: a transposed A costs nothing, so the many products of the
 * backward pass need only two operands transposed in memory, once per key tile. The product keeps a
 * block of C in registers, rows x vectors, while k runs.
 *
 * The forward pass holds scores transposed, one column per query: maxima and sums are then
 * vertical. Exponentials are powers of two (log2 e is part of the scale). Online softmax: Milakov &
 * Gimelshein 2018; tiling and the backward pass: Dao et al. 2022, "FlashAttention", Algorithms
 * 1 and 4.
 */
#include "cpu/kernels/flash.h"

#include "cpu/kernels/lanes.h"

#include <math.h>
#include <string.h>

/* ---- C (+)= A B ------------------------------------------------------------------------- */
/* a, b, c point at the block's corner; A(i,k) = a[i*rs + k*cs]. */
#define ARGS                                                                                       \
 int64_t k, const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb, float *c,         \
     int64_t ldc, bool add

#define DECL1(i) vec c##i##0 = SPLAT(0.0f);
#define DECL2(i) DECL1(i) vec c##i##1 = SPLAT(0.0f);
#define DECL4(i) DECL2(i) vec c##i##2 = SPLAT(0.0f), c##i##3 = SPLAT(0.0f);
#define STEP1(i)                                                                                   \
 vec x##i = SPLAT(a[i * rs]);                                                                      \
 c##i##0 = FMA(x##i, b0, c##i##0);
#define STEP2(i) STEP1(i) c##i##1 = FMA(x##i, b1, c##i##1);
#define STEP4(i)                                                                                   \
 STEP2(i) c##i##2 = FMA(x##i, b2, c##i##2);                                                        \
 c##i##3 = FMA(x##i, b3, c##i##3);
#define LOAD1 vec b0 = load(b);
#define LOAD2 LOAD1 vec b1 = load(b + LANES);
#define LOAD4 LOAD2 vec b2 = load(b + 2 * LANES), b3 = load(b + 3 * LANES);
#define PUT(i, v)                                                                                  \
 {                                                                                                 \
  float *p = c + i * ldc + v * LANES;                                                              \
  store(p, add ? load(p) + c##i##v : c##i##v);                                                     \
 }
#define PUT1(i)   PUT(i, 0)
#define PUT2(i)   PUT1(i) PUT(i, 1)
#define PUT4(i)   PUT2(i) PUT(i, 2) PUT(i, 3)
#define ROWS1(X)  X(0)
#define ROWS4(X)  X(0) X(1) X(2) X(3)
#define ROWS6(X)  ROWS4(X) X(4) X(5)
#define ROWS12(X) ROWS6(X) X(6) X(7) X(8) X(9) X(10) X(11)

#define BLOCK(rows, vecs)                                                                          \
 static void block##rows##x##vecs(ARGS)                                                            \
 {                                                                                                 \
  ROWS##rows(DECL##vecs) for (; k > 0; k--, a += cs, b += ldb){                                    \
      LOAD##vecs ROWS##rows(STEP##vecs)} ROWS##rows(PUT##vecs)                                     \
 }
/* Runs the rows of one column of blocks: as many tall blocks as fit, then shorter ones. */
#define PANEL(vecs, tall)                                                                          \
 BLOCK(tall, vecs)                                                                                 \
 BLOCK(4, vecs)                                                                                    \
 BLOCK(1, vecs)                                                                                    \
 static void panel##vecs(int64_t m, ARGS)                                                          \
 {                                                                                                 \
  for (; m >= tall; m -= tall, a += tall * rs, c += tall * ldc)                                    \
   block##tall##x##vecs(k, a, rs, cs, b, ldb, c, ldc, add);                                        \
  for (; m >= 4; m -= 4, a += 4 * rs, c += 4 * ldc)                                                \
   block4x##vecs(k, a, rs, cs, b, ldb, c, ldc, add);                                               \
  for (; m > 0; m--, a += rs, c += ldc) block1x##vecs(k, a, rs, cs, b, ldb, c, ldc, add);          \
 }
#if LANES == 16
PANEL(4, 6)
PANEL(2, 12)
PANEL(1, 12)
#else
PANEL(2, 6)
PANEL(1, 12)
#endif

/* n is a multiple of LANES. */
static void product(int64_t m, int64_t n, ARGS)
{
    int64_t j = 0;
#if LANES == 16
    for (; n - j >= 4 * LANES; j += 4 * LANES) panel4(m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
#endif
    for (; n - j >= 2 * LANES; j += 2 * LANES) panel2(m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    for (; j < n; j += LANES) panel1(m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
}

/* ---- pieces ----------------------------------------------------------------------------- */
/* 2^x for x <= 127; 0 at and below -126. x = n + r, |r| <= 1/2; polynomial of the Cephes
 * library, relative error 2e-7. Adding 1.5*2^23 leaves n in the low bits. */
static inline vec power2(vec x)
{
    vec magic = SPLAT(12582912.0f);
    vec t = x + magic, r = x - (t - magic);
    vec p = SPLAT(1.535336188319500e-4f);
    p = FMA(p, r, SPLAT(1.339887440266574e-3f));
    p = FMA(p, r, SPLAT(9.618437357674640e-3f));
    p = FMA(p, r, SPLAT(5.550332471162809e-2f));
    p = FMA(p, r, SPLAT(2.402264791363012e-1f));
    p = FMA(p, r, SPLAT(6.931472028550421e-1f));
    p = FMA(p, r, SPLAT(1.0f));
    uvec y = (uvec)p + ((uvec)t << 23);
    return (vec)(y & (uvec)(x > SPLAT(-126.0f)));
}

/* dst [rows, pad] = rows of src, stride apart; the padding is zero. */
static void copy_rows(float *dst, const float *src, int64_t rows, int64_t stride, int64_t d,
                      int64_t pad)
{
    for (int64_t i = 0; i < rows; i++) {
        memcpy(dst + i * pad, src + i * stride, (size_t)d * sizeof(float));
        for (int64_t k = d; k < pad; k++) dst[i * pad + k] = 0;
    }
}

/* Writes transposed rows of src times f to dst [d, width]; columns past rows are zero. */
static void copy_turned(float *dst, const float *src, int64_t rows, int64_t stride, int64_t d,
                        int64_t width, float f)
{
    for (int64_t k = 0; k < d; k++) {
        for (int64_t i = 0; i < rows; i++) dst[k * width + i] = src[i * stride + k] * f;
        for (int64_t i = rows; i < width; i++) dst[k * width + i] = 0;
    }
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- forward ---------------------------------------------------------------------------- */
enum { TQ = PL_FLASH_Q, TK = PL_FLASH_K };

/* Updates one column group of the transposed scores: new maxima, powers, sums. Returns the factor
 * by which the old sums and outputs shrink. */
static inline vec soften(float *s, int64_t keys, float *top, float *sum)
{
    vec old = load(top), m0 = old, m1 = old;
    int64_t k = 0;
    for (; k + 1 < keys; k += 2) {
        m0 = VMAX(m0, load(s + k * TQ));
        m1 = VMAX(m1, load(s + (k + 1) * TQ));
    }
    if (k < keys) m0 = VMAX(m0, load(s + k * TQ));
    m0 = VMAX(m0, m1);
    vec shrink = power2(old - m0), total = load(sum) * shrink;
    for (k = 0; k < keys; k++) {
        vec p = power2(load(s + k * TQ) - m0);
        store(s + k * TQ, p);
        total += p;
    }
    store(top, m0);
    store(sum, total);
    return shrink;
}

/* Query i sees keys up to i: the scores of later keys become -infinity. */
static void hide_later(float *s, int64_t keys, int64_t width, int64_t k0, int64_t q0)
{
    for (int64_t k = 0; k < keys; k++)
        for (int64_t i = 0; i < least(width, k0 + k - q0); i++) s[k * TQ + i] = -INFINITY;
}

/* Adds the mask to the scores of keys [k0, k0 + keys) and queries [q0, q0 + queries), in powers of
 * two; the score of query i and key k is s[i * of_q + k * of_k]. */
static void add_mask(const pl_flash *f, int64_t b, int64_t h, float *s, int64_t q0, int64_t queries,
                     int64_t of_q, int64_t k0, int64_t keys, int64_t of_k)
{
    const int64_t *step = f->mask_step;
    for (int64_t i = 0; i < queries; i++) {
        int64_t at = b * step[0] + h * step[1] + (q0 + i) * step[2] + k0 * step[3];
        const uint8_t *seen = (const uint8_t *)f->mask + at;
        const float *plus = (const float *)f->mask + at;
        float *to = s + i * of_q;
        if (f->mask_is_bool)
            for (int64_t k = 0; k < keys; k++) to[k * of_k] += seen[k * step[3]] ? 0 : -2e30f;
        else
            for (int64_t k = 0; k < keys; k++) {
                float x = plus[k * step[3]];
                to[k * of_k] += (x < -2e30f ? -2e30f : x) * 1.44269504f;
            }
    }
}

static void shrink_rows(float *o, int64_t rows, int64_t d, const float *by)
{
    for (int64_t i = 0; i < rows; i++) {
        if (by[i] == 1.0f) continue;
        vec f = SPLAT(by[i]);
        for (int64_t k = 0; k < d; k += LANES) store(o + i * d + k, load(o + i * d + k) * f);
    }
}

static void forward(const pl_flash *f, int64_t b, int64_t h, int64_t q0, float *work)
{
    int64_t d = f->d, pad = pl_flash_padded(d), row = f->keys_row, o_row = f->heads * d;
    int64_t nq = least(TQ, f->n - q0), width = pl_flash_padded(nq);
    float *qt = work, *kt = qt + pad * TQ, *vt = kt + TK * pad, *s = vt + TK * pad;
    float *o = s + TK * TQ, *top = o + TQ * pad, *sum = top + TQ, *by = sum + TQ;
    const float *k = f->k + b * f->m * row + h / f->group * f->keys_step;
    const float *v = f->v + b * f->m * row + h / f->group * f->keys_step;
    const float *q = f->q + (b * f->n + q0) * f->row + h * f->step;
    int64_t at = (b * f->n + q0) * o_row + h * d;
    copy_turned(qt, q, nq, f->row, d, TQ, (float)(f->scale * 1.4426950408889634));
    memset(o, 0, (size_t)(TQ * pad) * sizeof(float));
    for (int64_t i = 0; i < TQ; i++) {
        top[i] = -1e30f;
        sum[i] = 0;
    }
    int64_t end = f->causal ? least(f->m, q0 + nq) : f->m;
    for (int64_t k0 = 0; k0 < end; k0 += TK) {
        int64_t nk = least(TK, end - k0);
        copy_rows(kt, k + k0 * row, nk, row, d, d);
        copy_rows(vt, v + k0 * row, nk, row, d, pad);
        product(nk, width, d, kt, d, 1, qt, TQ, s, TQ, false);
        if (f->mask) add_mask(f, b, h, s, q0, nq, 1, k0, nk, TQ);
        if (f->causal && k0 + nk > q0 + 1) hide_later(s, nk, width, k0, q0);
        for (int64_t i = 0; i < width; i += LANES)
            store(by + i, soften(s + i, nk, top + i, sum + i));
        shrink_rows(o, nq, pad, by);
        product(nq, pad, nk, s, 1, TQ, vt, pad, o, pad, true);
    }
    for (int64_t i = 0; i < nq; i++) {
        bool none = f->mask && sum[i] == 0;
        float inv = none ? 0 : 1.0f / sum[i];
        float *to = f->o + at + i * o_row;
        for (int64_t c = 0; c < d; c++) to[c] = o[i * pad + c] * inv;
        f->lse[(b * f->heads + h) * f->n + q0 + i] =
            none ? 0 : (top[i] + log2f(sum[i])) * 0.693147181f;
    }
}

/* ---- backward --------------------------------------------------------------------------- */
/* Computes p = 2^(s - lse2), ds = p (dp - delta), row by row; s becomes p and dp becomes ds. Keys
 * that a query does not see get zero. */
static void unsoften(float *s, float *dp, int64_t rows, int64_t keys, const float *lse2,
                     const float *delta, int64_t first_seen)
{
    int64_t width = pl_flash_padded(keys);
    for (int64_t i = 0; i < rows; i++) {
        vec l = SPLAT(lse2[i]), e = SPLAT(delta[i]);
        float *si = s + i * TK, *di = dp + i * TK;
        for (int64_t k = 0; k < width; k += LANES) {
            vec p = power2(load(si + k) - l);
            store(si + k, p);
            store(di + k, p * (load(di + k) - e));
        }
        for (int64_t k = first_seen + i < 0 ? 0 : first_seen + i; k < keys; k++) si[k] = di[k] = 0;
    }
}

/* to [rows of stride] (+)= from [rows, pad] * f */
static void put_rows(float *to, const float *from, int64_t rows, int64_t stride, int64_t d,
                     int64_t pad, float f, bool add)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < d; c++) {
            float x = from[i * pad + c] * f;
            to[i * stride + c] = add ? to[i * stride + c] + x : x;
        }
}

/* Tiles of a thread in the backward pass, [rows, pad] unless stated. */
typedef struct tiles {
    float *kt, *vt;     /* [d, TK]: keys (times scale and log2 e) and values, transposed */
    float *k, *dk, *dv; /* [TK, pad] */
    float *q, *go, *dq; /* [TQ, pad] */
    float *s, *dp;      /* [TQ, TK] */
} tiles;

static tiles tiles_of(float *work, int64_t pad)
{
    tiles t;
    t.kt = work;
    t.vt = t.kt + pad * TK;
    t.k = t.vt + pad * TK;
    t.dk = t.k + TK * pad;
    t.dv = t.dk + TK * pad;
    t.q = t.dv + TK * pad;
    t.go = t.q + TQ * pad;
    t.dq = t.go + TQ * pad;
    t.s = t.dq + TQ * pad;
    t.dp = t.s + TQ * TK;
    return t;
}

/* A tile of queries [q0, q0 + nq) and keys [k0, k0 + nk) of one head. */
typedef struct span {
    int64_t b, h, q0, nq, k0, nk;
} span;

/* Processes one query tile against the key tile in t: adds to t.dk and t.dv, and sets t.dq. */
static void backward_tile(const pl_flash *f, const tiles *t, span z, const float *lse2,
                          const float *delta)
{
    int64_t nq = z.nq, nk = z.nk, d = f->d, pad = pl_flash_padded(d), width = pl_flash_padded(nk);
    int64_t first_seen = f->causal ? z.q0 - z.k0 + 1 : INT32_MAX;
    product(nq, width, d, t->q, pad, 1, t->kt, TK, t->s, TK, false);
    if (f->mask) add_mask(f, z.b, z.h, t->s, z.q0, nq, TK, z.k0, nk, 1);
    product(nq, width, d, t->go, pad, 1, t->vt, TK, t->dp, TK, false);
    unsoften(t->s, t->dp, nq, nk, lse2, delta, first_seen);
    product(nk, pad, nq, t->s, 1, TK, t->go, pad, t->dv, pad, true);
    product(nk, pad, nq, t->dp, 1, TK, t->q, pad, t->dk, pad, true);
    product(nq, pad, nk, t->dp, TK, 1, t->k, pad, t->dq, pad, false);
}

/* All query tiles of head z.h against the key tile in t. first: the key tile is the first of its
 * span, which sets the dq rows; later ones add to them. */
static void backward_queries(const pl_flash *f, const tiles *t, span z, float *dq,
                             const float *lse2, const float *delta, bool first)
{
    int64_t d = f->d, pad = pl_flash_padded(d), row = f->row, o_row = f->heads * d;
    int64_t queries = z.b * f->n * row + z.h * f->step, outs = z.b * f->n * o_row + z.h * d;
    /* dq is dq of f, or parts of its sum, which are dense */
    int64_t dq_row = dq == f->dq ? row : o_row;
    dq += dq == f->dq ? queries : outs;
    lse2 += (z.b * f->heads + z.h) * f->n;
    delta += (z.b * f->heads + z.h) * f->n;
    int64_t i = f->causal ? z.k0 / TQ * TQ : 0; /* earlier queries see none of these keys */
    if (first)
        for (int64_t r = 0; r < least(i, f->n); r++)
            memset(dq + r * dq_row, 0, (size_t)d * sizeof(float));
    for (; i < f->n; i += TQ) {
        z.q0 = i;
        z.nq = least(TQ, f->n - i);
        copy_rows(t->q, f->q + queries + i * row, z.nq, row, d, pad);
        copy_rows(t->go, f->d_o + outs + i * o_row, z.nq, o_row, d, pad);
        backward_tile(f, t, z, lse2 + i, delta + i);
        put_rows(dq + i * dq_row, t->dq, z.nq, dq_row, d, pad, (float)f->scale, !first);
    }
}

static void backward(const pl_flash *f, int64_t b, int64_t g, int64_t k0, int64_t k1, float *dq,
                     const float *lse2, const float *delta, float *work)
{
    int64_t d = f->d, pad = pl_flash_padded(d), row = f->keys_row;
    tiles t = tiles_of(work, pad);
    size_t tile_bytes = (size_t)(TK * pad) * sizeof(float);
    for (int64_t j = k0; j < k1; j += TK) {
        int64_t nk = least(TK, k1 - j), at = (b * f->m + j) * row + g * f->keys_step;
        copy_turned(t.kt, f->k + at, nk, row, d, TK, (float)(f->scale * 1.4426950408889634));
        copy_turned(t.vt, f->v + at, nk, row, d, TK, 1.0f);
        copy_rows(t.k, f->k + at, nk, row, d, pad);
        memset(t.dk, 0, tile_bytes);
        memset(t.dv, 0, tile_bytes);
        for (int64_t h = g * f->group; h < (g + 1) * f->group; h++)
            backward_queries(f, &t, (span){.b = b, .h = h, .k0 = j, .nk = nk}, dq, lse2, delta,
                             j == k0);
        put_rows(f->dk + at, t.dk, nk, row, d, pad, (float)f->scale, false);
        put_rows(f->dv + at, t.dv, nk, row, d, pad, 1.0f, false);
    }
}

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
extern const pl_flash_set JOIN(pl_flash_, PL_ISA);
const pl_flash_set JOIN(pl_flash_, PL_ISA) = {forward, backward};
