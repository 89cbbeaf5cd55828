/* rows.isa.c - see rows.h. Rows are walked in blocks whose sums stay in registers over all taps. */
#include "cpu/kernels/rows.h"

#include "cpu/kernels/lanes.h"
#include "cpu/kernels/vecmath.h"

/* Four vectors of sums at a time, then one, then single elements. SETUP names the k-th
 * operands, TERM(i, get) is their product at i, where get reads a vector or, as *, one element.
 */
#define COMBINE(SETUP, TERM)                                                                       \
 int64_t at = 0;                                                                                   \
 for (; at + 4 * LANES <= n; at += 4 * LANES) {                                                    \
  vec s0 = SPLAT(0.0f), s1 = s0, s2 = s0, s3 = s0;                                                 \
  if (add) {                                                                                       \
   s0 = load(y + at);                                                                              \
   s1 = load(y + at + LANES);                                                                      \
   s2 = load(y + at + 2 * LANES);                                                                  \
   s3 = load(y + at + 3 * LANES);                                                                  \
  }                                                                                                \
  for (int k = 0; k < taps; k++) {                                                                 \
   SETUP;                                                                                          \
   s0 += TERM(at, load);                                                                           \
   s1 += TERM(at + LANES, load);                                                                   \
   s2 += TERM(at + 2 * LANES, load);                                                               \
   s3 += TERM(at + 3 * LANES, load);                                                               \
  }                                                                                                \
  store(y + at, s0);                                                                               \
  store(y + at + LANES, s1);                                                                       \
  store(y + at + 2 * LANES, s2);                                                                   \
  store(y + at + 3 * LANES, s3);                                                                   \
 }                                                                                                 \
 for (; at + LANES <= n; at += LANES) {                                                            \
  vec s0 = add ? load(y + at) : SPLAT(0.0f);                                                       \
  for (int k = 0; k < taps; k++) {                                                                 \
   SETUP;                                                                                          \
   s0 += TERM(at, load);                                                                           \
  }                                                                                                \
  store(y + at, s0);                                                                               \
 }                                                                                                 \
 for (; at < n; at++) {                                                                            \
  float s0 = add ? y[at] : 0.0f;                                                                   \
  for (int k = 0; k < taps; k++) {                                                                 \
   SETUP;                                                                                          \
   s0 += TERM(at, *);                                                                              \
  }                                                                                                \
  y[at] = s0;                                                                                      \
 }

static void weighted(float *y, const float *const *x, const float *w, int taps, int64_t n, bool add)
{
#define TERM(i, get) (f * get(row + (i)))
    COMBINE(const float *row = x[k]; float f = w[k], TERM)
#undef TERM
}

static void product(float *y, const float *const *x, const float *const *w, int taps, int64_t n,
                    bool add)
{
#define TERM(i, get) (get(a + (i)) * get(b + (i)))
    COMBINE(const float *a = x[k]; const float *b = w[k], TERM)
#undef TERM
}

/* ---- bezier ----------------------------------------------------------------------------- */
/* Groups are transposed into planes first, so that the arithmetic runs on whole vectors. */
enum { GROUPS = 64 };
typedef struct planes {
    float v[5][GROUPS];
} planes;

static void take_apart(planes *restrict p, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 5; k++) p->v[k][i] = x[5 * i + k];
    for (int i = n; i < GROUPS; i++)
        for (int k = 0; k < 5; k++) p->v[k][i] = 0.0f;
}

static void put_together(float *restrict x, const planes *restrict p, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 5; k++) x[5 * i + k] = p->v[k][i];
}

/* u^3 p0 + 3 u^2 s p1 + 3 u s^2 p2 + s^3 p3 with u = 1 - s */
static inline float curve(float s, float p0, float p1, float p2, float p3)
{
    float u = 1.0f - s;
    return u * u * (u * p0 + 3.0f * s * p1) + s * s * (3.0f * u * p2 + s * p3);
}

static void bezier_block(float *restrict y, const planes *restrict p, bool silu_points)
{
    const float *t = p->v[0], *a = p->v[1], *b = p->v[2], *c = p->v[3], *d = p->v[4];
    if (silu_points)
        for (int i = 0; i < GROUPS; i++)
            y[i] =
                curve(vm_sigmoid(t[i]), vm_silu(a[i]), vm_silu(b[i]), vm_silu(c[i]), vm_silu(d[i]));
    else
        for (int i = 0; i < GROUPS; i++) y[i] = curve(vm_sigmoid(t[i]), a[i], b[i], c[i], d[i]);
}

static void bezier(float *y, const float *x, int64_t f, bool silu_points)
{
    planes p;
    float out[GROUPS];
    for (int64_t at = 0; at < f; at += GROUPS) {
        int n = f - at < GROUPS ? (int)(f - at) : GROUPS;
        take_apart(&p, x + 5 * at, n);
        bezier_block(out, &p, silu_points);
        for (int i = 0; i < n; i++) y[at + i] = out[i];
    }
}

static inline float silu_slope(float x, float s)
{
    return s + x * s * (1.0f - s);
}

/* In place on p: t and points become their gradients. */
static void bezier_bwd_block(planes *restrict p, const float *restrict dy, bool silu_points)
{
    float *t = p->v[0], *a = p->v[1], *b = p->v[2], *c = p->v[3], *d = p->v[4];
    for (int i = 0; i < GROUPS; i++) {
        float s = vm_sigmoid(t[i]), u = 1.0f - s, g = dy[i];
        float w0 = u * u * u, w1 = 3.0f * u * u * s, w2 = 3.0f * u * s * s, w3 = s * s * s;
        float p0 = a[i], p1 = b[i], p2 = c[i], p3 = d[i];
        float k0 = 1.0f, k1 = 1.0f, k2 = 1.0f, k3 = 1.0f;
        if (silu_points) {
            float s0 = vm_sigmoid(p0), s1 = vm_sigmoid(p1), s2 = vm_sigmoid(p2);
            float s3 = vm_sigmoid(p3);
            k0 = silu_slope(p0, s0);
            k1 = silu_slope(p1, s1);
            k2 = silu_slope(p2, s2);
            k3 = silu_slope(p3, s3);
            p0 = p0 * s0;
            p1 = p1 * s1;
            p2 = p2 * s2;
            p3 = p3 * s3;
        }
        float ds = 3.0f * (u * u * (p1 - p0) + 2.0f * u * s * (p2 - p1) + s * s * (p3 - p2));
        t[i] = g * ds * (s * u);
        a[i] = g * w0 * k0;
        b[i] = g * w1 * k1;
        c[i] = g * w2 * k2;
        d[i] = g * w3 * k3;
    }
}

static void bezier_bwd(float *dx, const float *x, const float *dy, int64_t f, bool silu_points)
{
    planes p;
    float g[GROUPS];
    for (int64_t at = 0; at < f; at += GROUPS) {
        int n = f - at < GROUPS ? (int)(f - at) : GROUPS;
        take_apart(&p, x + 5 * at, n);
        for (int i = 0; i < GROUPS; i++) g[i] = i < n ? dy[at + i] : 0.0f;
        bezier_bwd_block(&p, g, silu_points);
        put_together(dx + 5 * at, &p, n);
    }
}

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
extern const pl_row_loops JOIN(pl_rows_, PL_ISA);
const pl_row_loops JOIN(pl_rows_, PL_ISA) = {weighted, product, bezier, bezier_bwd};
