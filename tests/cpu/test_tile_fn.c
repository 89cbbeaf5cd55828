/* test_tile_fn.c - the tile's scalar functions against double precision, and every instruction set
 * against the others. */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "tests/cpu/tile_prog.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static double sigmoid_ref(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double fn_ref(pl_scalar_fn f, double x, double y)
{
    switch (f) {
    case PL_SCALAR_NEG: return -x;
    case PL_SCALAR_ABS: return fabs(x);
    case PL_SCALAR_SIGN: return x != x ? x : (x > 0) - (x < 0);
    case PL_SCALAR_FLOOR: return floor(x);
    case PL_SCALAR_ROUND: return rint(x);
    case PL_SCALAR_RECIPROCAL: return 1.0 / x;
    case PL_SCALAR_SQUARE: return x * x;
    case PL_SCALAR_SQRT: return sqrt(x);
    case PL_SCALAR_RSQRT: return 1.0 / sqrt(x);
    case PL_SCALAR_EXP: return exp(x);
    case PL_SCALAR_LOG: return log(x);
    case PL_SCALAR_LOG1P: return log1p(x);
    case PL_SCALAR_SIN: return sin(x);
    case PL_SCALAR_COS: return cos(x);
    case PL_SCALAR_TANH: return tanh(x);
    case PL_SCALAR_ERF: return erf(x);
    case PL_SCALAR_SIGMOID: return sigmoid_ref(x);
    case PL_SCALAR_SOFTPLUS: return x > 30.0 ? x : log1p(exp(x));
    case PL_SCALAR_RELU: return x <= 0 ? 0.0 : x;
    case PL_SCALAR_LEAKY_RELU: return x > 0 ? x : (double)0.01f * x;
    case PL_SCALAR_SILU: return x * sigmoid_ref(x);
    case PL_SCALAR_GELU: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case PL_SCALAR_GELU_SLOPE: {
        double pdf = 0.39894228040143267794 * exp(-0.5 * x * x);
        return 0.5 * erfc(-x * 0.70710678118654752440) + (pdf > 0 ? x * pdf : 0 * pdf);
    }
    case PL_SCALAR_GELU_TANH:
        return x * sigmoid_ref(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
    case PL_SCALAR_IS_FINITE: return fabs(x) <= DBL_MAX;
    case PL_SCALAR_IS_NAN: return x != x;
    case PL_SCALAR_NOT: return x == 0;
    case PL_SCALAR_ADD: return x + y;
    case PL_SCALAR_SUB: return x - y;
    case PL_SCALAR_MUL: return x * y;
    case PL_SCALAR_DIV: return x / y;
    case PL_SCALAR_POW: return pow(x, y);
    case PL_SCALAR_MAX: return x != x ? x : y != y ? y : x > y ? x : y;
    case PL_SCALAR_MIN: return x != x ? x : y != y ? y : x < y ? x : y;
    case PL_SCALAR_MOD: {
        double r = fmod(x, y);
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
    case PL_SCALAR_AND: return x != 0 && y != 0;
    case PL_SCALAR_OR: return x != 0 || y != 0;
    case PL_SCALAR_XOR: return (x != 0) != (y != 0);
    case PL_SCALAR_EQ: return x == y;
    case PL_SCALAR_NE: return x != y;
    case PL_SCALAR_LT: return x < y;
    case PL_SCALAR_LE: return x <= y;
    case PL_SCALAR_GT: return x > y;
    case PL_SCALAR_GE: return x >= y;
    case PL_SCALAR_NONE:
    case PL_SCALAR_SELECT:
    case PL_SCALAR_CAST:
    case PL_N_SCALARS: break;
    }
    return 0.0;
}

/* Allowed error in f32 ulps. The tanh form of GELU magnifies the rounding of its inner
 * argument. */
static double ulps_of(pl_scalar_fn f)
{
    switch (f) {
    case PL_SCALAR_EXP:
    case PL_SCALAR_LOG:
    case PL_SCALAR_LOG1P:
    case PL_SCALAR_SIN:
    case PL_SCALAR_COS:
    case PL_SCALAR_POW:
    case PL_SCALAR_RSQRT: return 2.0;
    case PL_SCALAR_TANH:
    case PL_SCALAR_ERF:
    case PL_SCALAR_SIGMOID:
    case PL_SCALAR_SOFTPLUS:
    case PL_SCALAR_SILU: return 3.0;
    case PL_SCALAR_GELU:
    case PL_SCALAR_GELU_SLOPE: return 5.0;
    case PL_SCALAR_GELU_TANH: return 160.0;
    default: return 0.5000001;
    }
}

static double ulp32(double y)
{
    int e;
    frexp(y, &e);
    return ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

/* Hard values first, then all magnitudes. */
enum { N_HARD = 24, N_MAP = 20000 };
static void fill_hard(float *x, int64_t n, uint64_t seed, double top)
{
    static const float hard[N_HARD] = {
        0.0f,      -0.0f,   1.0f,      -1.0f,     0.5f,      -0.5f,       2.5f,        -2.5f,
        1e-40f,    -1e-40f, 1.4e-45f,  FLT_MIN,   -FLT_MIN,  FLT_MAX,     -FLT_MAX,    INFINITY,
        -INFINITY, NAN,     88.72284f, -87.3366f, -103.972f, 16777216.0f, 3.14159274f, 0.625f};
    for (int64_t i = 0; i < n; i++) {
        double e = pl_test_noise(&seed), s = pl_test_noise(&seed);
        double v = exp2(top * e) * (s < 0 ? -1.0 : 1.0);
        if (i % 4 == 1) v = pl_test_noise(&seed) * 8.0;
        if (i % 4 == 2) v = pl_test_noise(&seed) * 100.0;
        x[i] = i < N_HARD ? hard[i] : (float)v;
    }
}

/* x times a factor that f32 holds as a subnormal number with few bits. */
static bool is_product(pl_scalar_fn f)
{
    return f == PL_SCALAR_SILU || f == PL_SCALAR_GELU || f == PL_SCALAR_GELU_SLOPE ||
           f == PL_SCALAR_GELU_TANH;
}

static bool close32(pl_scalar_fn f, double x, double got, double want)
{
    if (want != want) return got != got;
    double r = (double)(float)want, tol = ulps_of(f) * ulp32(want);
    if (is_product(f)) tol += 3e-45 * fabs(x);
    if (f == PL_SCALAR_GELU_SLOPE) tol += 6e-8 * exp(-0.5 * x * x); /* two terms that cancel */
    return got == r || fabs(got - want) <= tol;
}

TEST(tile_functions_of_f32_are_accurate)
{
    float *x = tile_buf(N_MAP), *y = tile_buf(N_MAP), *z = tile_buf(N_MAP);

    for (int f = PL_SCALAR_NONE + 1; f < PL_SCALAR_SELECT; f++) {
        if (!pl_tile_has((pl_scalar_fn)f, PL_F32)) continue;
        fill_hard(x, N_MAP, 1, 120);
        fill_hard(y, N_MAP, 2, f == PL_SCALAR_POW ? 5 : 120);
        if (pl_scalar_arity((pl_scalar_fn)f) == 2) /* all pairs of hard values */
            for (int i = 0; i < N_HARD * N_HARD; i++) {
                y[i + N_HARD] = y[i % N_HARD];
                x[i + N_HARD] = x[i / N_HARD];
            }
        tile_prog *g = tile_new(1, (int64_t[]){N_MAP}, 0);
        int a = tile_ld(g, PL_F32, 0),
            b = pl_scalar_arity((pl_scalar_fn)f) == 2 ? tile_ld(g, PL_F32, 0) : 0;
        tile_st(g, tile_cast(g, PL_F32, tile_map2(g, (pl_scalar_fn)f, a, b)));
        CHECK(tile_run(g, (const void *[]){x, y}, (void *[]){z}));
        for (int i = 0; i < N_MAP; i++) {
            double want = fn_ref((pl_scalar_fn)f, (double)x[i], (double)y[i]);
            CHECK_MSG(close32((pl_scalar_fn)f, (double)x[i], (double)z[i], want),
                      "fn %d of %.9g, %.9g: %.9g, wanted %.9g", f, (double)x[i], (double)y[i],
                      (double)z[i], want);
        }
        pl_sys_free(g);
    }
    pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

/* All of f32's exponents above -1, and values where a sum 1 + x would lose the significant bits. */
TEST(tile_log1p_is_accurate_near_zero)
{
    enum { N = 1 << 17 };
    float *x = tile_buf(N), *z = tile_buf(N);

    for (int i = 0; i < N; i++) {
        uint32_t u = (uint32_t)i * 32749u;
        memcpy(&x[i], &u, sizeof u);
    }
    x[0] = -0.0f, x[1] = -1.0f, x[2] = -1.5f, x[3] = 1e-9f, x[4] = -0.99999994f;
    for (int k = 0; k < 3; k++) {
        setenv("PL_CPU_ISA", tile_isas[k], 1);
        tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
        tile_st(g, tile_map2(g, PL_SCALAR_LOG1P, tile_ld(g, PL_F32, 0), 0));
        CHECK(tile_run(g, (const void *[]){x}, (void *[]){z}));
        for (int i = 0; i < N; i++)
            CHECK_MSG(close32(PL_SCALAR_LOG1P, (double)x[i], (double)z[i], log1p((double)x[i])),
                      "log1p of %.9g: %.9g", (double)x[i], (double)z[i]);
        CHECK(z[0] == 0.0f && signbit(z[0]));
        CHECK(z[1] == -INFINITY);
        CHECK(z[2] != z[2]);
        CHECK(z[3] == x[3]);
        pl_sys_free(g);
    }
    unsetenv("PL_CPU_ISA");
    pl_sys_free(x), pl_sys_free(z);
}

TEST(tile_functions_of_f64_follow_libm)
{
    float *h = tile_buf(N_MAP);
    double *x = tile_buf(N_MAP), *y = tile_buf(N_MAP), *z = tile_buf(N_MAP);

    for (int f = PL_SCALAR_NONE + 1; f < PL_SCALAR_SELECT; f++) {
        if (!pl_tile_has((pl_scalar_fn)f, PL_F64)) continue;
        fill_hard(h, N_MAP, 1, 120);
        for (int i = 0; i < N_MAP; i++) x[i] = (double)h[i] * 1.0000001;
        fill_hard(h, N_MAP, 2, 5);
        for (int i = 0; i < N_MAP; i++) y[i] = (double)h[i];
        tile_prog *g = tile_new(1, (int64_t[]){N_MAP}, 0);
        int a = tile_ld(g, PL_F64, 0),
            b = pl_scalar_arity((pl_scalar_fn)f) == 2 ? tile_ld(g, PL_F64, 0) : 0;
        int r = tile_map2(g, (pl_scalar_fn)f, a, b);
        g->instr[r].imm = (double)0.01f;
        tile_st(g, tile_cast(g, PL_F64, r));
        CHECK(tile_run(g, (const void *[]){x, y}, (void *[]){z}));
        for (int i = 0; i < N_MAP; i++) {
            double want = fn_ref((pl_scalar_fn)f, x[i], y[i]), err = fabs(z[i] - want);
            double tol = f == PL_SCALAR_GELU_TANH ? 1e-11 : 4e-15;
            bool ok =
                want != want ? z[i] != z[i] : z[i] == want || err <= tol * fabs(want) + 1e-307;
            CHECK_MSG(ok, "fn %d of %.17g, %.17g: %.17g, wanted %.17g", f, x[i], y[i], z[i], want);
        }
        pl_sys_free(g);
    }
    pl_sys_free(h), pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

/* bf16 and f16 results are the f32 function's result, rounded. */
TEST(tile_functions_of_halves_round_f32)
{
    enum { N = 5000 };
    float *x = tile_buf(N), *y = tile_buf(N), *w = tile_buf(N);
    uint16_t *hx = tile_buf(N), *hy = tile_buf(N), *z = tile_buf(N), *want = tile_buf(N);

    for (int f = 2 * (PL_SCALAR_NONE + 1); f < PL_SCALAR_SELECT * 2; f++) {
        pl_scalar_fn fn = (pl_scalar_fn)(f / 2);
        pl_dtype d = f % 2 ? PL_BF16 : PL_F16;
        if (!pl_tile_has(fn, d) || pl_scalar_gives_bool(fn)) continue;
        fill_hard(x, N, 1, 14);
        fill_hard(y, N, 2, 3);
        for (int i = 0; i < N; i++) {
            pl_elem_set(d, hx, i, (double)x[i]), pl_elem_set(d, hy, i, (double)y[i]);
            x[i] = (float)pl_elem_get(d, hx, i), y[i] = (float)pl_elem_get(d, hy, i);
        }
        for (int half = 0; half < 2; half++) {
            pl_dtype t = half ? d : PL_F32;
            tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
            int a = tile_ld(g, t, 0), b = pl_scalar_arity(fn) == 2 ? tile_ld(g, t, 0) : 0;
            tile_st(g, tile_map2(g, fn, a, b));
            const void *fi[] = {x, y}, *hi[] = {hx, hy};
            CHECK(tile_run(g, half ? hi : fi, (void *[]){half ? (void *)z : (void *)w}));
            pl_sys_free(g);
        }
        for (int i = 0; i < N; i++)
            want[i] = d == PL_BF16 ? pl_f32_to_bf16(w[i]) : pl_f32_to_f16(w[i]);
        CHECK(tile_same_bits(d, want, z, N));
    }
    pl_sys_free(x), pl_sys_free(y), pl_sys_free(w);
    pl_sys_free(hx), pl_sys_free(hy), pl_sys_free(z), pl_sys_free(want);
}

TEST(tile_functions_of_integers_match_plain_c)
{
    enum { N = 4000 };
    static const pl_dtype types[] = {PL_I32, PL_I64, PL_U8, PL_BOOL};
    void *x = tile_buf(N), *y = tile_buf(N), *z = tile_buf(N);
    uint64_t seed = 9;

    for (int k = 0; k < 4; k++)
        for (int f = PL_SCALAR_NONE + 1; f < PL_SCALAR_SELECT; f++) {
            pl_dtype d = types[k];
            if (!pl_tile_has((pl_scalar_fn)f, d)) continue;
            tile_noise(d, x, N, &seed), tile_noise(d, y, N, &seed);
            tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
            int a = tile_ld(g, d, 0),
                b = pl_scalar_arity((pl_scalar_fn)f) == 2 ? tile_ld(g, d, 0) : 0;
            int r = tile_map2(g, (pl_scalar_fn)f, a, b);
            pl_dtype rd = g->instr[r].dtype;
            tile_st(g, r);
            CHECK(tile_run(g, (const void *[]){x, y}, (void *[]){z}));
            for (int i = 0; i < N; i++) {
                double u = pl_elem_get(d, x, i), v = pl_elem_get(d, y, i);
                double want = fn_ref((pl_scalar_fn)f, u, v);
                if (f == PL_SCALAR_DIV) want = v == 0 ? 0 : trunc(u / v);
                if (f == PL_SCALAR_MOD && v == 0) want = 0;
                if (d == PL_U8) want = (double)(uint8_t)(int64_t)want;
                CHECK_MSG(pl_elem_get(rd, z, i) == want, "%s fn %d of %g, %g: %g, wanted %g",
                          pl_dtype_name(d), f, u, v, pl_elem_get(rd, z, i), want);
            }
            pl_sys_free(g);
        }
    int32_t edge[6] = {INT32_MIN, -1, INT32_MIN, 0, 7, -7}, by[6] = {-1, INT32_MIN, 0, 0, -2, 2};
    int32_t q[6], m[6];
    tile_prog *g = tile_new(1, (int64_t[]){6}, 0);
    int a = tile_ld(g, PL_I32, 0), b = tile_ld(g, PL_I32, 0);
    tile_st(g, tile_map2(g, PL_SCALAR_DIV, a, b)), tile_st(g, tile_map2(g, PL_SCALAR_MOD, a, b));

    CHECK(tile_run(g, (const void *[]){edge, by}, (void *[]){q, m}));
    CHECK_INT(q[0], INT32_MIN);
    CHECK_INT(q[2], 0);
    CHECK_INT(q[4], -3);
    CHECK_INT(q[5], -3);
    CHECK_INT(m[0], 0);
    CHECK_INT(m[4], -1);
    CHECK_INT(m[5], 1);
    pl_sys_free(g), pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

TEST(tile_casts_saturate_and_round)
{
    double v[] = {0,  -0.5, 1.5,   2.5,  -3.9,  255.7,       300,
                  -1, 1e10, -1e10, 1e20, -1e20, (double)NAN, (double)INFINITY};
    enum { N = sizeof v / sizeof *v };
    int32_t i32[N];
    int64_t i64[N];
    uint8_t u8[N], b[N];
    float f[N];
    uint16_t h[N];
    tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
    int x = tile_ld(g, PL_F64, 0);

    tile_st(g, tile_cast(g, PL_I32, x)), tile_st(g, tile_cast(g, PL_I64, x)),
        tile_st(g, tile_cast(g, PL_U8, x));
    tile_st(g, tile_cast(g, PL_BOOL, x)), tile_st(g, tile_cast(g, PL_F32, x)),
        tile_st(g, tile_cast(g, PL_BF16, x));
    CHECK(tile_run(g, (const void *[]){v}, (void *[]){i32, i64, u8, b, f, h}));

    for (int i = 0; i < N; i++) {
        double t = v[i] != v[i] ? 0 : trunc(v[i]);
        CHECK_INT(i32[i], t > 2147483647.0    ? INT32_MAX
                          : t < -2147483648.0 ? INT32_MIN
                                              : (int32_t)t);
        CHECK_INT(i64[i], t > 9e18 ? INT64_MAX : t < -9e18 ? INT64_MIN : (int64_t)t);
        CHECK_INT(u8[i], t > 255 ? 255 : t < 0 ? 0 : (uint8_t)t);
        CHECK_INT(b[i], v[i] != 0);
        CHECK(f[i] == (float)v[i] || v[i] != v[i]);
        CHECK(h[i] == pl_f32_to_bf16((float)v[i]) || v[i] != v[i]);
    }
    pl_sys_free(g);
}

TEST(tile_halves_convert_all_values)
{
    enum { N = 65536 };

    for (int k = 0; k < 6; k++) {
        setenv("PL_CPU_ISA", tile_isas[k / 2], 1);
        pl_dtype d = k % 2 ? PL_BF16 : PL_F16;
        uint16_t *h = tile_buf(N), *back = tile_buf(N);
        float *f = tile_buf(N);
        for (int i = 0; i < N; i++) h[i] = (uint16_t)i;
        tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
        int x = tile_cast(g, PL_F32, tile_ld(g, d, 0));
        tile_st(g, x), tile_st(g, tile_cast(g, d, x));
        CHECK(tile_run(g, (const void *[]){h}, (void *[]){f, back}));
        for (int i = 0; i < N; i++) {
            float want = d == PL_BF16 ? pl_bf16_to_f32(h[i]) : pl_f16_to_f32(h[i]);
            CHECK(f[i] == want || want != want);
        }
        CHECK(tile_same_bits(d, h, back, N));
        pl_sys_free(g), pl_sys_free(h), pl_sys_free(back), pl_sys_free(f);
    }
    unsetenv("PL_CPU_ISA");
}

TEST(tile_every_isa_gives_the_same_bits)
{
    static const pl_dtype types[] = {PL_F32, PL_F64, PL_BF16, PL_F16, PL_I32, PL_I64, PL_U8};
    enum { N = 3001 };
    float *h = tile_buf(N);
    void *x = tile_buf(N), *y = tile_buf(N), *z[3] = {tile_buf(N), tile_buf(N), tile_buf(N)};

    for (int k = 0; k < 7; k++)
        for (int f = PL_SCALAR_NONE + 1; f < PL_SCALAR_SELECT; f++) {
            pl_dtype d = types[k];
            if (!pl_tile_has((pl_scalar_fn)f, d)) continue;
            fill_hard(h, N, 1, 20);
            for (int i = 0; i < N; i++) pl_elem_set(d, x, i, (double)h[i]);
            fill_hard(h, N, 2, 4);
            for (int i = 0; i < N; i++) pl_elem_set(d, y, i, (double)h[i]);
            tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
            int a = tile_ld(g, d, 0),
                b = pl_scalar_arity((pl_scalar_fn)f) == 2 ? tile_ld(g, d, 0) : 0;
            int r = tile_map2(g, (pl_scalar_fn)f, a, b);
            tile_st(g, r);
            for (int i = 0; i < 3; i++) {
                setenv("PL_CPU_ISA", tile_isas[i], 1);
                CHECK(tile_run(g, (const void *[]){x, y}, (void *[]){z[i]}));
                CHECK(tile_same_bits(g->instr[r].dtype, z[0], z[i], N));
            }
            pl_sys_free(g);
        }
    unsetenv("PL_CPU_ISA");
    pl_sys_free(h), pl_sys_free(x), pl_sys_free(y);
    for (int i = 0; i < 3; i++) pl_sys_free(z[i]);
}
