/* test_tile.c - the tile interpreter against double precision, against itself cut differently,
 * and on every instruction set.
 *
 * Programs are built with the small helpers below and run on guarded buffers: bytes around each
 * output and around the workspace must survive.
 */
#include "base/dtype.h"
#include "base/pool.h"
#include "base/sys.h"
#include "cpu/draw.h"
#include "cpu/tile.h"
#include "test.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs --------------------------------------------------------------------------- */

typedef struct prog {
    pl_tile_program p;
    pl_tile_operand in[PL_TILE_INPUTS];
    pl_tile_instr instr[PL_TILE_INSTRS];
    pl_tile_output out[PL_TILE_OUTPUTS];
} prog;

static prog *prog_new(int rank, const int64_t *dim, int row_rank)
{
    prog *g = pl_sys_alloc(sizeof *g);
    g->p.rank = rank;
    g->p.row_rank = row_rank;
    for (int d = 0; d < rank; d++) g->p.dim[d] = dim[d];
    g->p.in = g->in;
    g->p.instr = g->instr;
    g->p.out = g->out;
    return g;
}

static int64_t prog_elems(const prog *g)
{
    int64_t n = 1;
    for (int d = 0; d < g->p.rank; d++) n *= g->p.dim[d];
    return n;
}

/* Loads a new operand that is broadcast along the dims of mask and dense in the others. */
static int ld(prog *g, pl_dtype d, uint32_t broadcast)
{
    pl_tile_operand *x = &g->in[g->p.n_in];
    x->dtype = d;
    int64_t s = 1;
    for (int k = g->p.rank - 1; k >= 0; k--) {
        x->stride[k] = (broadcast >> k) & 1u ? 0 : s;
        if (x->stride[k]) s *= g->p.dim[k];
    }
    g->instr[g->p.n_instr] =
        (pl_tile_instr){.code = PL_TILE_LOAD, .dtype = d, .index = g->p.n_in++};
    return g->p.n_instr++;
}

static int imm(prog *g, pl_dtype d, double v)
{
    g->instr[g->p.n_instr] = (pl_tile_instr){.code = PL_TILE_IMM, .dtype = d, .imm = v};
    return g->p.n_instr++;
}

static bool gives_bool(pl_tile_fn f)
{
    return f == PL_TILE_FN_IS_FINITE || f == PL_TILE_FN_IS_NAN ||
           (f >= PL_TILE_FN_EQ && f <= PL_TILE_FN_GE);
}

static int map3(prog *g, pl_tile_fn f, int a, int b, int c)
{
    pl_dtype d = g->instr[f == PL_TILE_FN_SELECT ? b : a].dtype;
    g->instr[g->p.n_instr] = (pl_tile_instr){.code = PL_TILE_SCALAR,
                                             .dtype = gives_bool(f) ? PL_BOOL : d,
                                             .arg = {a, b, c},
                                             .fn = f,
                                             .imm = 0.01};
    return g->p.n_instr++;
}

static int map2(prog *g, pl_tile_fn f, int a, int b)
{
    return map3(g, f, a, b, 0);
}

static int cast(prog *g, pl_dtype d, int a)
{
    g->instr[g->p.n_instr] = (pl_tile_instr){.code = PL_TILE_CAST, .dtype = d, .arg = {a}};
    return g->p.n_instr++;
}

static int row_reduce(prog *g, pl_tile_reduce_fn f, int a)
{
    g->instr[g->p.n_instr] = (pl_tile_instr){
        .code = PL_TILE_ROW_REDUCE, .dtype = g->instr[a].dtype, .arg = {a}, .reduce = f};
    return g->p.n_instr++;
}

static int row_var(prog *g, int a)
{
    g->instr[g->p.n_instr] =
        (pl_tile_instr){.code = PL_TILE_ROW_VAR, .dtype = g->instr[a].dtype, .arg = {a}};
    return g->p.n_instr++;
}

static int st(prog *g, int a)
{
    int o = g->p.n_out++;
    g->out[o] = (pl_tile_output){
        .kind = PL_TILE_STORE, .src = a, .dtype = g->instr[a].dtype, .out = o, .out2 = -1};
    return o;
}

static int st_rows(prog *g, int a)
{
    int o = st(g, a);
    g->out[o].kind = PL_TILE_ROWS;
    return o;
}

/* Moments take two places of out[]: o and o + 1 (an entry of n_out that is a plain store of the
 * variance would clash, so callers put moments last). */
static int st_reduce(prog *g, pl_tile_reduce_fn f, int a, uint32_t mask)
{
    int o = st(g, a);
    g->out[o].kind = PL_TILE_REDUCE;
    g->out[o].reduce = f;
    g->out[o].mask = mask;
    if (f == PL_TILE_MOMENTS) g->out[o].out2 = o + 1;
    return o;
}

/* Runs with guard bytes around outputs and workspace; false (and a failure) when one is
 * touched. */
enum { GUARD = 64 };
static bool run_guarded(const pl_tile_program *p, const void *const *in, void *const *out,
                        const size_t *bytes, int n_out)
{
    pl_arena a = PL_ARENA_INIT;
    pl_tile *t = NULL;
    if (pl_tile_compile(p, &a, &t) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "compile: %s", pl_error_text());
        pl_arena_release(&a);
        return false;
    }
    size_t need = pl_tile_work_bytes(t);
    char *work = pl_sys_alloc(need + 2 * GUARD + 64);
    char *w = (char *)(((uintptr_t)work + GUARD + 63) & ~(uintptr_t)63);
    memset(work, 0xA5, need + 2 * GUARD + 64);
    void *own[PL_TILE_OUTPUTS + 1];
    for (int o = 0; o < n_out; o++) {
        own[o] = pl_sys_alloc(bytes[o] + 2 * GUARD);
        memset(own[o], 0x5A, bytes[o] + 2 * GUARD);
        memcpy((char *)own[o] + GUARD, out[o], bytes[o]);
        own[o] = (char *)own[o] + GUARD;
    }
    uint64_t before = pl_sys_counts_get().allocs;
    pl_tile_run(t, in, own, w);
    bool ok = pl_sys_counts_get().allocs == before;
    for (int o = 0; o < n_out; o++) {
        char *b = (char *)own[o] - GUARD;
        for (size_t i = 0; i < GUARD; i++)
            ok &= b[i] == 0x5A && b[GUARD + bytes[o] + i] == 0x5A;
        memcpy(out[o], own[o], bytes[o]);
        pl_sys_free(b);
    }
    for (char *c = work; c < w; c++) ok &= *c == (char)0xA5;
    for (size_t i = 0; i < GUARD; i++) ok &= w[need + i] == (char)0xA5;
    if (!ok) pl_test_fail(__FILE__, __LINE__, "a guard byte was written, or the run allocated");
    pl_sys_free(work);
    pl_arena_release(&a);
    return ok;
}

/* Runs a program whose first outputs are full stores or reductions with room for every element.
 */
static bool run_prog(const prog *g, const void *const *in, void *const *out)
{
    size_t bytes[PL_TILE_OUTPUTS + 1];
    int n = 0;
    for (int o = 0; o < g->p.n_out; o++) {
        const pl_tile_output *x = &g->out[o];
        int64_t e = 1, row = 1;
        for (int d = 0; d < g->p.rank; d++) {
            if (d >= g->p.rank - g->p.row_rank) row *= g->p.dim[d];
            if (x->kind != PL_TILE_REDUCE || !((x->mask >> d) & 1u)) e *= g->p.dim[d];
        }
        if (x->kind == PL_TILE_ROWS) e = row ? e / row : 0;
        bytes[x->out] = (size_t)e * pl_dtype_bytes(x->dtype);
        if (x->out >= n) n = x->out + 1;
        if (x->out2 >= 0 && x->kind == PL_TILE_REDUCE) {
            bytes[x->out2] = bytes[x->out];
            if (x->out2 >= n) n = x->out2 + 1;
        }
    }
    return run_guarded(&g->p, in, out, bytes, n);
}

static void *buf(int64_t n)
{
    return pl_sys_alloc((size_t)n * 8 + 64);
}

static void noise(pl_dtype d, void *x, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) {
        double v = pl_test_noise(seed) * 2.0;
        if (d == PL_BOOL)
            v = v > 0;
        else if (d == PL_U8)
            v = floor(fabs(v) * 100.0);
        else if (!pl_dtype_is_float(d))
            v = floor(v * 1000.0);
        pl_elem_set(d, x, i, v);
    }
}

static bool same_bits(pl_dtype d, const void *a, const void *b, int64_t n)
{
    size_t w = pl_dtype_bytes(d);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp((const char *)a + (size_t)i * w, (const char *)b + (size_t)i * w, w) == 0)
            continue;
        double x = pl_elem_get(d, a, i), y = pl_elem_get(d, b, i);
        if (x != x && y != y) continue;
        pl_test_fail(__FILE__, __LINE__, "%s element %lld: %.9g and %.9g differ",
                     pl_dtype_name(d), (long long)i, x, y);
        return false;
    }
    return true;
}

static const char *const isas[] = {"base", "avx2", "avx512"};

/* ---- scalar functions ------------------------------------------------------------------- */

static double sigmoid_ref(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double fn_ref(pl_tile_fn f, double x, double y)
{
    switch (f) {
    case PL_TILE_FN_NEG: return -x;
    case PL_TILE_FN_ABS: return fabs(x);
    case PL_TILE_FN_SIGN: return x != x ? x : (x > 0) - (x < 0);
    case PL_TILE_FN_FLOOR: return floor(x);
    case PL_TILE_FN_ROUND: return rint(x);
    case PL_TILE_FN_RECIPROCAL: return 1.0 / x;
    case PL_TILE_FN_SQUARE: return x * x;
    case PL_TILE_FN_SQRT: return sqrt(x);
    case PL_TILE_FN_RSQRT: return 1.0 / sqrt(x);
    case PL_TILE_FN_EXP: return exp(x);
    case PL_TILE_FN_LOG: return log(x);
    case PL_TILE_FN_SIN: return sin(x);
    case PL_TILE_FN_COS: return cos(x);
    case PL_TILE_FN_TANH: return tanh(x);
    case PL_TILE_FN_ERF: return erf(x);
    case PL_TILE_FN_SIGMOID: return sigmoid_ref(x);
    case PL_TILE_FN_SOFTPLUS: return x > 30.0 ? x : log1p(exp(x));
    case PL_TILE_FN_RELU: return x <= 0 ? 0.0 : x;
    case PL_TILE_FN_LEAKY_RELU: return x > 0 ? x : (double)0.01f * x;
    case PL_TILE_FN_SILU: return x * sigmoid_ref(x);
    case PL_TILE_FN_GELU: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case PL_TILE_FN_GELU_TANH:
        return x * sigmoid_ref(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
    case PL_TILE_FN_IS_FINITE: return fabs(x) <= DBL_MAX;
    case PL_TILE_FN_IS_NAN: return x != x;
    case PL_TILE_FN_NOT: return x == 0;
    case PL_TILE_FN_ADD: return x + y;
    case PL_TILE_FN_SUB: return x - y;
    case PL_TILE_FN_MUL: return x * y;
    case PL_TILE_FN_DIV: return x / y;
    case PL_TILE_FN_POW: return pow(x, y);
    case PL_TILE_FN_MAX: return x != x ? x : y != y ? y : x > y ? x : y;
    case PL_TILE_FN_MIN: return x != x ? x : y != y ? y : x < y ? x : y;
    case PL_TILE_FN_MOD: {
        double r = fmod(x, y);
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
    case PL_TILE_FN_AND: return x != 0 && y != 0;
    case PL_TILE_FN_OR: return x != 0 || y != 0;
    case PL_TILE_FN_XOR: return (x != 0) != (y != 0);
    case PL_TILE_FN_EQ: return x == y;
    case PL_TILE_FN_NE: return x != y;
    case PL_TILE_FN_LT: return x < y;
    case PL_TILE_FN_LE: return x <= y;
    case PL_TILE_FN_GT: return x > y;
    case PL_TILE_FN_GE: return x >= y;
    case PL_TILE_FN_SELECT:
    case PL_TILE_N_FNS: break;
    }
    return 0.0;
}

/* Allowed error in f32 ulps. The tanh form of GELU magnifies the rounding of its inner
 * argument. */
static double ulps_of(pl_tile_fn f)
{
    switch (f) {
    case PL_TILE_FN_EXP:
    case PL_TILE_FN_LOG:
    case PL_TILE_FN_SIN:
    case PL_TILE_FN_COS:
    case PL_TILE_FN_POW:
    case PL_TILE_FN_RSQRT: return 2.0;
    case PL_TILE_FN_TANH:
    case PL_TILE_FN_ERF:
    case PL_TILE_FN_SIGMOID:
    case PL_TILE_FN_SOFTPLUS:
    case PL_TILE_FN_SILU: return 3.0;
    case PL_TILE_FN_GELU: return 5.0;
    case PL_TILE_FN_GELU_TANH: return 160.0;
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

static int fn_arity(pl_tile_fn f)
{
    return f >= PL_TILE_FN_ADD && f <= PL_TILE_FN_GE ? 2 : f == PL_TILE_FN_SELECT ? 3 : 1;
}

/* x times a factor that f32 holds as a subnormal number with few bits. */
static bool is_product(pl_tile_fn f)
{
    return f == PL_TILE_FN_SILU || f == PL_TILE_FN_GELU || f == PL_TILE_FN_GELU_TANH;
}

static bool close32(pl_tile_fn f, double x, double got, double want)
{
    if (want != want) return got != got;
    double r = (double)(float)want, tol = ulps_of(f) * ulp32(want);
    if (is_product(f)) tol += 3e-45 * fabs(x);
    return got == r || fabs(got - want) <= tol;
}

TEST(tile_functions_of_f32_are_accurate)
{
    float *x = buf(N_MAP), *y = buf(N_MAP), *z = buf(N_MAP);
    for (int f = 0; f < PL_TILE_FN_SELECT; f++) {
        if (!pl_tile_has((pl_tile_fn)f, PL_F32)) continue;
        fill_hard(x, N_MAP, 1, 120);
        fill_hard(y, N_MAP, 2, f == PL_TILE_FN_POW ? 5 : 120);
        if (fn_arity((pl_tile_fn)f) == 2) /* all pairs of hard values */
            for (int i = 0; i < N_HARD * N_HARD; i++) {
                y[i + N_HARD] = y[i % N_HARD];
                x[i + N_HARD] = x[i / N_HARD];
            }
        prog *g = prog_new(1, (int64_t[]){N_MAP}, 0);
        int a = ld(g, PL_F32, 0), b = fn_arity((pl_tile_fn)f) == 2 ? ld(g, PL_F32, 0) : 0;
        st(g, cast(g, PL_F32, map2(g, (pl_tile_fn)f, a, b)));
        CHECK(run_prog(g, (const void *[]){x, y}, (void *[]){z}));
        for (int i = 0; i < N_MAP; i++) {
            double want = fn_ref((pl_tile_fn)f, (double)x[i], (double)y[i]);
            CHECK_MSG(close32((pl_tile_fn)f, (double)x[i], (double)z[i], want),
                      "fn %d of %.9g, %.9g: %.9g, wanted %.9g", f, (double)x[i], (double)y[i],
                      (double)z[i], want);
        }
        pl_sys_free(g);
    }
    pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

TEST(tile_functions_of_f64_follow_libm)
{
    float *h = buf(N_MAP);
    double *x = buf(N_MAP), *y = buf(N_MAP), *z = buf(N_MAP);
    for (int f = 0; f < PL_TILE_FN_SELECT; f++) {
        if (!pl_tile_has((pl_tile_fn)f, PL_F64)) continue;
        fill_hard(h, N_MAP, 1, 120);
        for (int i = 0; i < N_MAP; i++) x[i] = (double)h[i] * 1.0000001;
        fill_hard(h, N_MAP, 2, 5);
        for (int i = 0; i < N_MAP; i++) y[i] = (double)h[i];
        prog *g = prog_new(1, (int64_t[]){N_MAP}, 0);
        int a = ld(g, PL_F64, 0), b = fn_arity((pl_tile_fn)f) == 2 ? ld(g, PL_F64, 0) : 0;
        int r = map2(g, (pl_tile_fn)f, a, b);
        g->instr[r].imm = (double)0.01f;
        st(g, cast(g, PL_F64, r));
        CHECK(run_prog(g, (const void *[]){x, y}, (void *[]){z}));
        for (int i = 0; i < N_MAP; i++) {
            double want = fn_ref((pl_tile_fn)f, x[i], y[i]), err = fabs(z[i] - want);
            double tol = f == PL_TILE_FN_GELU_TANH ? 1e-11 : 4e-15;
            bool ok =
                want != want ? z[i] != z[i] : z[i] == want || err <= tol * fabs(want) + 1e-307;
            CHECK_MSG(ok, "fn %d of %.17g, %.17g: %.17g, wanted %.17g", f, x[i], y[i], z[i],
                      want);
        }
        pl_sys_free(g);
    }
    pl_sys_free(h), pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

/* bf16 and f16 results are the f32 function's result, rounded. */
TEST(tile_functions_of_halves_round_f32)
{
    enum { N = 5000 };
    float *x = buf(N), *y = buf(N), *w = buf(N);
    uint16_t *hx = buf(N), *hy = buf(N), *z = buf(N), *want = buf(N);
    for (int f = 0; f < PL_TILE_FN_SELECT * 2; f++) {
        pl_tile_fn fn = (pl_tile_fn)(f / 2);
        pl_dtype d = f % 2 ? PL_BF16 : PL_F16;
        if (!pl_tile_has(fn, d) || gives_bool(fn)) continue;
        fill_hard(x, N, 1, 14);
        fill_hard(y, N, 2, 3);
        for (int i = 0; i < N; i++) {
            pl_elem_set(d, hx, i, (double)x[i]), pl_elem_set(d, hy, i, (double)y[i]);
            x[i] = (float)pl_elem_get(d, hx, i), y[i] = (float)pl_elem_get(d, hy, i);
        }
        for (int half = 0; half < 2; half++) {
            pl_dtype t = half ? d : PL_F32;
            prog *g = prog_new(1, (int64_t[]){N}, 0);
            int a = ld(g, t, 0), b = fn_arity(fn) == 2 ? ld(g, t, 0) : 0;
            st(g, map2(g, fn, a, b));
            const void *fi[] = {x, y}, *hi[] = {hx, hy};
            CHECK(run_prog(g, half ? hi : fi, (void *[]){half ? (void *)z : (void *)w}));
            pl_sys_free(g);
        }
        for (int i = 0; i < N; i++)
            want[i] = d == PL_BF16 ? pl_f32_to_bf16(w[i]) : pl_f32_to_f16(w[i]);
        CHECK(same_bits(d, want, z, N));
    }
    pl_sys_free(x), pl_sys_free(y), pl_sys_free(w);
    pl_sys_free(hx), pl_sys_free(hy), pl_sys_free(z), pl_sys_free(want);
}

TEST(tile_functions_of_integers)
{
    enum { N = 4000 };
    static const pl_dtype types[] = {PL_I32, PL_I64, PL_U8, PL_BOOL};
    void *x = buf(N), *y = buf(N), *z = buf(N);
    uint64_t seed = 9;
    for (int k = 0; k < 4; k++)
        for (int f = 0; f < PL_TILE_FN_SELECT; f++) {
            pl_dtype d = types[k];
            if (!pl_tile_has((pl_tile_fn)f, d)) continue;
            noise(d, x, N, &seed), noise(d, y, N, &seed);
            prog *g = prog_new(1, (int64_t[]){N}, 0);
            int a = ld(g, d, 0), b = fn_arity((pl_tile_fn)f) == 2 ? ld(g, d, 0) : 0;
            int r = map2(g, (pl_tile_fn)f, a, b);
            pl_dtype rd = g->instr[r].dtype;
            st(g, r);
            CHECK(run_prog(g, (const void *[]){x, y}, (void *[]){z}));
            for (int i = 0; i < N; i++) {
                double u = pl_elem_get(d, x, i), v = pl_elem_get(d, y, i);
                double want = fn_ref((pl_tile_fn)f, u, v);
                if (f == PL_TILE_FN_DIV) want = v == 0 ? 0 : trunc(u / v);
                if (f == PL_TILE_FN_MOD && v == 0) want = 0;
                if (d == PL_U8) want = (double)(uint8_t)(int64_t)want;
                CHECK_MSG(pl_elem_get(rd, z, i) == want, "%s fn %d of %g, %g: %g, wanted %g",
                          pl_dtype_name(d), f, u, v, pl_elem_get(rd, z, i), want);
            }
            pl_sys_free(g);
        }
    int32_t edge[6] = {INT32_MIN, -1, INT32_MIN, 0, 7, -7},
            by[6] = {-1, INT32_MIN, 0, 0, -2, 2};
    int32_t q[6], m[6];
    prog *g = prog_new(1, (int64_t[]){6}, 0);
    int a = ld(g, PL_I32, 0), b = ld(g, PL_I32, 0);
    st(g, map2(g, PL_TILE_FN_DIV, a, b)), st(g, map2(g, PL_TILE_FN_MOD, a, b));
    CHECK(run_prog(g, (const void *[]){edge, by}, (void *[]){q, m}));
    CHECK_INT(q[0], INT32_MIN);
    CHECK_INT(q[2], 0);
    CHECK_INT(q[4], -3);
    CHECK_INT(q[5], -3);
    CHECK_INT(m[0], 0);
    CHECK_INT(m[4], -1);
    CHECK_INT(m[5], 1);
    pl_sys_free(g), pl_sys_free(x), pl_sys_free(y), pl_sys_free(z);
}

TEST(tile_casts)
{
    double v[] = {0,  -0.5, 1.5,   2.5,  -3.9,  255.7,       300,
                  -1, 1e10, -1e10, 1e20, -1e20, (double)NAN, (double)INFINITY};
    enum { N = sizeof v / sizeof *v };
    int32_t i32[N];
    int64_t i64[N];
    uint8_t u8[N], b[N];
    float f[N];
    uint16_t h[N];
    prog *g = prog_new(1, (int64_t[]){N}, 0);
    int x = ld(g, PL_F64, 0);
    st(g, cast(g, PL_I32, x)), st(g, cast(g, PL_I64, x)), st(g, cast(g, PL_U8, x));
    st(g, cast(g, PL_BOOL, x)), st(g, cast(g, PL_F32, x)), st(g, cast(g, PL_BF16, x));
    CHECK(run_prog(g, (const void *[]){v}, (void *[]){i32, i64, u8, b, f, h}));
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
        setenv("PL_CPU_ISA", isas[k / 2], 1);
        pl_dtype d = k % 2 ? PL_BF16 : PL_F16;
        uint16_t *h = buf(N), *back = buf(N);
        float *f = buf(N);
        for (int i = 0; i < N; i++) h[i] = (uint16_t)i;
        prog *g = prog_new(1, (int64_t[]){N}, 0);
        int x = cast(g, PL_F32, ld(g, d, 0));
        st(g, x), st(g, cast(g, d, x));
        CHECK(run_prog(g, (const void *[]){h}, (void *[]){f, back}));
        for (int i = 0; i < N; i++) {
            float want = d == PL_BF16 ? pl_bf16_to_f32(h[i]) : pl_f16_to_f32(h[i]);
            CHECK(f[i] == want || want != want);
        }
        CHECK(same_bits(d, h, back, N));
        pl_sys_free(g), pl_sys_free(h), pl_sys_free(back), pl_sys_free(f);
    }
    unsetenv("PL_CPU_ISA");
}

/* ---- instruction sets, threads ---------------------------------------------------------- */

TEST(tile_every_isa_gives_the_same_bits)
{
    static const pl_dtype types[] = {PL_F32, PL_F64, PL_BF16, PL_F16, PL_I32, PL_I64, PL_U8};
    enum { N = 3001 };
    float *h = buf(N);
    void *x = buf(N), *y = buf(N), *z[3] = {buf(N), buf(N), buf(N)};
    for (int k = 0; k < 7; k++)
        for (int f = 0; f < PL_TILE_FN_SELECT; f++) {
            pl_dtype d = types[k];
            if (!pl_tile_has((pl_tile_fn)f, d)) continue;
            fill_hard(h, N, 1, 20);
            for (int i = 0; i < N; i++) pl_elem_set(d, x, i, (double)h[i]);
            fill_hard(h, N, 2, 4);
            for (int i = 0; i < N; i++) pl_elem_set(d, y, i, (double)h[i]);
            prog *g = prog_new(1, (int64_t[]){N}, 0);
            int a = ld(g, d, 0), b = fn_arity((pl_tile_fn)f) == 2 ? ld(g, d, 0) : 0;
            int r = map2(g, (pl_tile_fn)f, a, b);
            st(g, r);
            for (int i = 0; i < 3; i++) {
                setenv("PL_CPU_ISA", isas[i], 1);
                CHECK(run_prog(g, (const void *[]){x, y}, (void *[]){z[i]}));
                CHECK(same_bits(g->instr[r].dtype, z[0], z[i], N));
            }
            pl_sys_free(g);
        }
    unsetenv("PL_CPU_ISA");
    pl_sys_free(h), pl_sys_free(x), pl_sys_free(y);
    for (int i = 0; i < 3; i++) pl_sys_free(z[i]);
}

/* ---- reductions ------------------------------------------------------------------------- */

typedef struct space {
    int rank;
    int64_t dim[PL_TILE_RANK];
    uint32_t mask;
} space;

static const space spaces[] = {
    {1, {1}, 1},
    {1, {100000}, 1},
    {2, {5000, 64}, 1},
    {2, {5000, 64}, 2},
    {2, {3000, 3}, 1},
    {2, {3000, 3}, 2},
    {2, {16, 30011}, 1},
    {2, {16, 30011}, 2},
    {2, {1024, 1000}, 1},
    {2, {37, 2500}, 2},
    {3, {4, 700, 48}, 2},
    {4, {3, 500, 8, 6}, 10},
    {3, {5, 40, 300}, 5},
    {3, {2, 30000, 3}, 5},
    {4, {2, 3, 4, 5}, 9},
    {5, {3, 1, 7, 1, 33}, 20},
    {6, {2, 3, 2, 3, 2, 3}, 42},
    {3, {70, 1, 90}, 2},
    {2, {100, 100}, 0},
    {3, {9, 0, 4}, 2},
    {2, {0, 5}, 2},
};
enum { N_SPACES = sizeof spaces / sizeof *spaces };

static int64_t elems(const space *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++) n *= s->dim[d];
    return n;
}

/* Position in the result of the element at flat position i. */
static int64_t kept(const space *s, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        if (!((s->mask >> d) & 1u)) at += i % s->dim[d] * step, step *= s->dim[d];
        i /= s->dim[d];
    }
    return at;
}

static int64_t n_kept(const space *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        if (!((s->mask >> d) & 1u)) n *= s->dim[d];
    return n;
}

/* Sums, extremes and moments in double, moments in two passes. */
static void reduce_ref(const space *s, pl_dtype d, const void *x, double *sum, double *hi,
                       double *lo, double *mean, double *var)
{
    int64_t n = elems(s), k = n_kept(s), per = k ? n / k : 0;
    for (int64_t i = 0; i < k; i++)
        sum[i] = var[i] = 0, hi[i] = -(double)INFINITY, lo[i] = (double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double v = pl_elem_get(d, x, i);
        int64_t at = kept(s, i);
        sum[at] += v;
        if (v > hi[at]) hi[at] = v;
        if (v < lo[at]) lo[at] = v;
    }
    for (int64_t i = 0; i < k; i++) mean[i] = sum[i] / (double)per;
    for (int64_t i = 0; i < n; i++) {
        double v = pl_elem_get(d, x, i) - mean[kept(s, i)];
        var[kept(s, i)] += v * v / (double)per;
    }
}

static prog *reduce_prog(const space *s, pl_dtype d)
{
    prog *g = prog_new(s->rank, s->dim, 0);
    int x = ld(g, d, 0);
    st_reduce(g, PL_TILE_SUM, x, s->mask);
    st_reduce(g, PL_TILE_MAX, x, s->mask);
    st_reduce(g, PL_TILE_MIN, x, s->mask);
    if (pl_dtype_is_float(d)) st_reduce(g, PL_TILE_MOMENTS, x, s->mask);
    return g;
}

static bool check_space(const space *s, pl_dtype d, double offset)
{
    int64_t n = elems(s), k = n_kept(s);
    uint64_t seed = 4;
    void *x = buf(n + 1), *out[5];
    double *ref[5];
    for (int i = 0; i < 5; i++) out[i] = buf(k + 1), ref[i] = buf(k + 1);
    for (int64_t i = 0; i < n; i++) pl_elem_set(d, x, i, pl_test_noise(&seed) * 3 + offset);
    reduce_ref(s, d, x, ref[0], ref[1], ref[2], ref[3], ref[4]);
    prog *g = reduce_prog(s, d);
    bool ok = run_prog(g, (const void *[]){x}, out);
    double eps = d == PL_F64 ? 1e-13 : d == PL_F32 ? 1.3e-7 : d == PL_F16 ? 1e-3 : 8e-3;
    for (int r = 0; ok && r < (pl_dtype_is_float(d) ? 5 : 3); r++)
        for (int64_t i = 0; ok && i < k; i++) {
            double got = pl_elem_get(d, out[r], i), want = ref[r][i];
            if (n == 0 && r == 1 && d == PL_I32) want = INT32_MIN;
            if (n == 0 && r == 2 && d == PL_I32) want = INT32_MAX;
            /* f32 adds up in f32 inside blocks of columns: the error is of the terms' size */
            double terms =
                d == PL_F32 && k ? 2 * (offset + 3) * (r ? 1.0 : (double)(n / k)) : 0;
            double scale = r == 4             ? fabs(want) * 20 + offset * offset * 1e-13
                           : r == 0 || r == 3 ? fabs(want) * 2 + 1e-7 + terms
                                              : fabs(want);
            if (n == 0 && r > 2)
                ok = got != got;
            else
                ok = got == want || fabs(got - want) <= eps * scale;
            if (!ok)
                pl_test_fail(__FILE__, __LINE__,
                             "%s rank %d mask %u result %d [%lld]: %.9g, wanted %.9g",
                             pl_dtype_name(d), s->rank, s->mask, r, (long long)i, got, want);
        }
    pl_sys_free(g), pl_sys_free(x);
    for (int i = 0; i < 5; i++) pl_sys_free(out[i]), pl_sys_free(ref[i]);
    return ok;
}

TEST(tile_reductions_are_accurate)
{
    for (int i = 0; i < N_SPACES; i++) {
        CHECK(check_space(&spaces[i], PL_F32, 0.5));
        CHECK(check_space(&spaces[i], PL_F32, 1000.0));
        CHECK(check_space(&spaces[i], PL_F64, 10.0));
        if (elems(&spaces[i]) < 50000) CHECK(check_space(&spaces[i], PL_BF16, 0.5));
        CHECK(check_space(&spaces[i], PL_I32, 10.0));
    }
}

/* Every cutting, thread count and instruction set: one result. */
TEST(tile_reductions_have_one_order)
{
    int threads = pl_pool_threads();
    for (int i = 0; i < N_SPACES; i++) {
        const space *s = &spaces[i];
        int64_t n = elems(s), k = n_kept(s);
        uint64_t seed = 5;
        float *x = buf(n + 1), *want[5], *got[5];
        for (int o = 0; o < 5; o++) want[o] = buf(k + 1), got[o] = buf(k + 1);
        noise(PL_F32, x, n, &seed);
        prog *g = reduce_prog(s, PL_F32);
        pl_pool_set_threads(1);
        CHECK(run_prog(g, (const void *[]){x}, (void **)want));
        for (int v = 0; v < 5; v++) {
            pl_pool_set_threads(v < 2 ? v + 2 : 1);
            if (v >= 2) setenv("PL_CPU_ISA", isas[v - 2], 1);
            CHECK(run_prog(g, (const void *[]){x}, (void **)got));
            for (int o = 0; o < 5; o++) CHECK(same_bits(PL_F32, want[o], got[o], k));
        }
        unsetenv("PL_CPU_ISA");
        /* a long prologue with a broadcast operand in the way of merging; x + 0 * c is x */
        pl_pool_set_threads(2);
        float *c = buf(n + 1);
        prog *h = prog_new(s->rank, s->dim, 0);
        int a = ld(h, PL_F32, 0), b = ld(h, PL_F32, s->rank > 1 ? 1u << (s->rank / 2) : 0u);
        for (int r = 0; r < 9; r++)
            a = map2(h, PL_TILE_FN_ADD, a, map2(h, PL_TILE_FN_MUL, b, imm(h, PL_F32, 0)));
        st_reduce(h, PL_TILE_SUM, a, s->mask);
        st_reduce(h, PL_TILE_MAX, a, s->mask);
        st_reduce(h, PL_TILE_MIN, a, s->mask);
        st_reduce(h, PL_TILE_MOMENTS, a, s->mask);
        CHECK(run_prog(h, (const void *[]){x, c}, (void **)got));
        for (int o = 0; o < 5; o++) CHECK(same_bits(PL_F32, want[o], got[o], k));
        pl_sys_free(g), pl_sys_free(h), pl_sys_free(x), pl_sys_free(c);
        for (int o = 0; o < 5; o++) pl_sys_free(want[o]), pl_sys_free(got[o]);
    }
    pl_pool_set_threads(threads);
}

TEST(tile_reductions_ignore_how_dims_are_split)
{
    space a = {4, {6, 20, 25, 48}, 7}, b = {2, {3000, 48}, 1};
    float *x = buf(elems(&a)), *r[5], *q[5];
    uint64_t seed = 6;
    noise(PL_F32, x, elems(&a), &seed);
    for (int o = 0; o < 5; o++) r[o] = buf(48), q[o] = buf(48);
    prog *g = reduce_prog(&a, PL_F32), *h = reduce_prog(&b, PL_F32);
    CHECK(run_prog(g, (const void *[]){x}, (void **)r));
    CHECK(run_prog(h, (const void *[]){x}, (void **)q));
    for (int o = 0; o < 5; o++) CHECK(same_bits(PL_F32, r[o], q[o], 48));
    pl_sys_free(g), pl_sys_free(h), pl_sys_free(x);
    for (int o = 0; o < 5; o++) pl_sys_free(r[o]), pl_sys_free(q[o]);
}

TEST(tile_reductions_of_ten_million)
{
    if (!pl_test_long()) SKIP("long");
    space s = {2, {625000, 16}, 1};
    CHECK(check_space(&s, PL_F32, 100.0));
    s.mask = 3;
    CHECK(check_space(&s, PL_F32, 100.0));
}

TEST(tile_nan_and_infinity_in_reductions)
{
    float x[40], out[4];
    for (int i = 0; i < 40; i++) x[i] = (float)i - 20.0f;
    x[7] = INFINITY;
    prog *g = prog_new(1, (int64_t[]){40}, 0);
    int a = ld(g, PL_F32, 0);
    st_reduce(g, PL_TILE_SUM, a, 1), st_reduce(g, PL_TILE_MAX, a, 1),
        st_reduce(g, PL_TILE_MIN, a, 1);
    void *o[] = {&out[0], &out[1], &out[2]};
    CHECK(run_prog(g, (const void *[]){x}, o));
    CHECK(isinf(out[0]) && isinf(out[1]) && out[2] == -20.0f);
    x[33] = NAN;
    CHECK(run_prog(g, (const void *[]){x}, o));
    CHECK(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
    pl_sys_free(g);
}

/* ---- rows ------------------------------------------------------------------------------- */

static prog *softmax_prog(int64_t rows, int64_t n)
{
    prog *g = prog_new(2, (int64_t[]){rows, n}, 1);
    int x = ld(g, PL_F32, 0);
    int e =
        map2(g, PL_TILE_FN_EXP, map2(g, PL_TILE_FN_SUB, x, row_reduce(g, PL_TILE_MAX, x)), 0);
    st(g, map2(g, PL_TILE_FN_DIV, e, row_reduce(g, PL_TILE_SUM, e)));
    return g;
}

TEST(tile_softmax_in_one_pass)
{
    static const int64_t sizes[] = {1, 2, 7, 63, 64, 100, 1000, 1025, 5000, 16384};
    for (int k = 0; k < 10; k++) {
        int64_t rows = 37, n = sizes[k];
        float *x = buf(rows * n), *y = buf(rows * n);
        uint64_t seed = 3;
        noise(PL_F32, x, rows * n, &seed);
        prog *g = softmax_prog(rows, n);
        CHECK(run_prog(g, (const void *[]){x}, (void *[]){y}));
        for (int64_t r = 0; r < rows; r++) {
            double m = -1e30, s = 0;
            for (int64_t i = 0; i < n; i++) m = fmax(m, (double)x[r * n + i]);
            for (int64_t i = 0; i < n; i++) s += exp((double)x[r * n + i] - m);
            for (int64_t i = 0; i < n; i++) {
                double want = exp((double)x[r * n + i] - m) / s;
                CHECK_NEAR(y[r * n + i], want, 6e-7 * want);
            }
        }
        pl_sys_free(g), pl_sys_free(x), pl_sys_free(y);
    }
}

TEST(tile_layer_norm_in_one_pass)
{
    static const int64_t sizes[] = {3, 48, 768, 2000};
    for (int k = 0; k < 4; k++) {
        int64_t rows = 50, n = sizes[k];
        float *x = buf(rows * n), *y = buf(rows * n), *w = buf(n), *b = buf(n);
        float *mean = buf(rows), *var = buf(rows), *em = buf(rows), *ev = buf(rows);
        uint64_t seed = 3;
        noise(PL_F32, x, rows * n, &seed), noise(PL_F32, w, n, &seed),
            noise(PL_F32, b, n, &seed);
        prog *g = prog_new(2, (int64_t[]){rows, n}, 1);
        int l = ld(g, PL_F32, 0), m = row_reduce(g, PL_TILE_MOMENTS, l), v = row_var(g, m);
        int r = map2(g, PL_TILE_FN_RSQRT, map2(g, PL_TILE_FN_ADD, v, imm(g, PL_F32, 1e-5)), 0);
        int z = map2(g, PL_TILE_FN_MUL, map2(g, PL_TILE_FN_SUB, l, m), r);
        z = map2(g, PL_TILE_FN_MUL, z, ld(g, PL_F32, 1));
        st(g, map2(g, PL_TILE_FN_ADD, z, ld(g, PL_F32, 1)));
        st_rows(g, m), st_rows(g, v), st_reduce(g, PL_TILE_MOMENTS, l, 2);
        CHECK(run_prog(g, (const void *[]){x, w, b}, (void *[]){y, mean, var, em, ev}));
        CHECK(same_bits(PL_F32, mean, em, rows));
        CHECK(same_bits(PL_F32, var, ev, rows));
        for (int64_t i = 0; i < rows * n; i++) {
            double mu = (double)mean[i / n], rs = 1 / sqrt((double)var[i / n] + 1e-5);
            double want = ((double)x[i] - mu) * rs * (double)w[i % n] + (double)b[i % n];
            CHECK_NEAR(y[i], want, 2e-6);
        }
        pl_sys_free(g), pl_sys_free(x), pl_sys_free(y), pl_sys_free(w), pl_sys_free(b);
        pl_sys_free(mean), pl_sys_free(var), pl_sys_free(em), pl_sys_free(ev);
    }
}

/* A program with a mask that is read and stored as bits or as bytes; `also` adds a reduction and a
 * store, which changes how the space is cut. */
static prog *mask_prog(int rank, const int64_t *dim, int view, bool also, bool bits)
{
    prog *g = prog_new(rank, dim, also && view % 2 && dim[rank - 1] <= PL_TILE_ROW);
    int m = ld(g, PL_BOOL, 0);
    pl_tile_operand *x = &g->in[0];
    if (view == 1) x->stride[0] = 0, x->offset = 3;
    if (view == 2) x->stride[rank - 1] = 0;
    if (view == 3) x->stride[rank - 1] = -1, x->offset = dim[rank - 1] - 1;
    if (view == 4 && rank > 1) x->stride[rank - 1] = dim[rank - 2], x->stride[rank - 2] = 1;
    x->bits = bits;
    int a = ld(g, PL_F32, 0), zero = imm(g, PL_F32, 0);
    int y = map3(g, PL_TILE_FN_SELECT, m, a, zero);
    int o = st(g, map2(g, PL_TILE_FN_GT, y, zero));
    g->out[o].bits = bits;
    st(g, y);
    o = st(g, map2(g, PL_TILE_FN_XOR, m, map2(g, PL_TILE_FN_LT, a, zero)));
    g->out[o].bits = bits;
    if (also) st_reduce(g, PL_TILE_SUM, y, view % 2 ? 1u << (rank - 1) : 1u);
    return g;
}

/* bytes: element i of x; bits: all of x, n elements, spare bits 0. */
static void to_bits(const uint8_t *x, int64_t n, uint8_t *bits)
{
    memset(bits, 0, (size_t)(n + 7) / 8);
    for (int64_t i = 0; i < n; i++) bits[i / 8] |= (uint8_t)((x[i] != 0) << i % 8);
}

TEST(tile_bits)
{
    static const struct {
        int rank;
        int64_t dim[3];
    } boxes[] = {{1, {1}},          {1, {7}},          {1, {50001}},     {2, {300, 257}},
                  {2, {3, 9001}},    {3, {5, 77, 131}}, {3, {64, 3, 5}},  {2, {9000, 3}},
                  {3, {2, 1000, 24}}, {2, {1, 100000}}};
    int threads = pl_pool_threads();
    for (int at = 0; at < 10 * 5 * 2 * 2; at++) {
        int s = at % 10, view = at / 10 % 5, rank = boxes[s].rank;
        bool also = at / 50 % 2;
        pl_pool_set_threads(at / 100 ? 3 : 1);
        prog *p[2];
        for (int k = 0; k < 2; k++) p[k] = mask_prog(rank, boxes[s].dim, view, also, k);
        int64_t n = prog_elems(p[0]);
        uint64_t seed = (uint64_t)at + 1;
        /* the mask is read up to an element past the space's own */
        uint8_t *mask = buf(n + 64), *packed = buf(n + 64);
        float *a = buf(n);
        noise(PL_BOOL, mask, n + 64, &seed);
        to_bits(mask, n + 64, packed);
        noise(PL_F32, a, n, &seed);
        void *want[4], *got[4];
        for (int o = 0; o < 4; o++) want[o] = buf(n), got[o] = buf(n);
        CHECK(run_prog(p[0], (const void *[]){mask, a}, want));
        size_t bits = (size_t)(n + 7) / 8, small = 4 * (size_t)n;
        CHECK(run_guarded(&p[1]->p, (const void *[]){packed, a}, got,
                          (const size_t[]){bits, small, bits, small}, also ? 4 : 3));
        for (int o = 0; o < 3; o += 2) {
            to_bits(want[o], n, mask);
            CHECK_MSG(!memcmp(mask, got[o], bits), "space %d, view %d, output %d", s, view, o);
        }
        CHECK(same_bits(PL_F32, want[1], got[1], n));
        int64_t left = view % 2 ? n / boxes[s].dim[rank - 1] : n / boxes[s].dim[0];
        CHECK(!also || same_bits(PL_F32, want[3], got[3], left));
        for (int o = 0; o < 4; o++) pl_sys_free(want[o]), pl_sys_free(got[o]);
        pl_sys_free(mask), pl_sys_free(packed), pl_sys_free(a);
        pl_sys_free(p[0]), pl_sys_free(p[1]);
    }
    pl_pool_set_threads(threads);
}

/* Draws made in the tile are those of the stream, whatever the reading and however it is cut. */
TEST(tile_draws)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    static const int64_t key[2] = {77, 12};
    static const struct {
        int64_t dim[3], first, step[3];
    } views[] = {
        {{40, 50, 7}, 0, {350, 7, 1}},   {{40, 50, 7}, 5, {7, 0, 1}},   {{40, 50, 7}, 0, {0, 7, 1}},
        {{6, 3000, 8}, 0, {0, 0, 1}},    {{2, 3, 9000}, 3, {0, 0, 0}},  {{9, 11, 13}, 2000, {-150, 11, 2}},
        {{1, 1, 1}, 9, {1, 1, 1}},       {{3, 700, 64}, 1, {0, 1, 0}},  {{5000, 1, 4}, 2, {3, 0, 7}},
    };
    for (size_t v = 0; v < sizeof views / sizeof views[0]; v++)
        for (int kind = 0; kind < 8; kind++) {
            pl_dtype d = dtypes[kind / 2];
            prog *g = prog_new(3, views[v].dim, (int)(v + (size_t)kind) % 2);
            int64_t n = prog_elems(g), i = 0;
            g->in[g->p.n_in++] = (pl_tile_operand){.dtype = PL_I64};
            pl_tile_instr x = {.code = PL_TILE_DRAW, .dtype = d, .stream = 3, .normal = kind % 2};
            x.imm = (double)views[v].first;
            for (int k = 0; k < 3; k++) x.step[k] = (double)views[v].step[k];
            g->instr[g->p.n_instr++] = x;
            st(g, 0);
            void *got = buf(n), *want = buf(n);
            pl_draws from = {77, 12, 3, kind % 2, d};
            for (int64_t a = 0; a < views[v].dim[0]; a++)
                for (int64_t b = 0; b < views[v].dim[1]; b++)
                    for (int64_t c = 0; c < views[v].dim[2]; c++) {
                        float y;
                        pl_draw_run(&from, views[v].first + a * views[v].step[0] +
                                    b * views[v].step[1] + c * views[v].step[2], 1, &y);
                        pl_elem_set(d, want, i++, (double)y);
                    }
            CHECK(run_prog(g, (const void *[]){key}, &got));
            CHECK_MSG(same_bits(d, got, want, n), "view %d, kind %d", (int)v, kind);
            pl_sys_free(got);
            pl_sys_free(want);
            pl_sys_free(g);
        }
}

/* ---- fused against unfused -------------------------------------------------------------- */

typedef struct rnd {
    uint64_t s;
} rnd;

static int pick(rnd *r, int n)
{
    int k = (int)((pl_test_noise(&r->s) + 1.0) * 0.5 * n);
    return k < n ? k : n - 1;
}

static const pl_tile_fn fns1[] = {PL_TILE_FN_NEG,  PL_TILE_FN_SQUARE,     PL_TILE_FN_TANH,
                                  PL_TILE_FN_GELU, PL_TILE_FN_LEAKY_RELU, PL_TILE_FN_SIGMOID,
                                  PL_TILE_FN_SIN,  PL_TILE_FN_ABS};
static const pl_tile_fn fns2[] = {PL_TILE_FN_ADD, PL_TILE_FN_SUB, PL_TILE_FN_MUL,
                                  PL_TILE_FN_MAX, PL_TILE_FN_MIN};

/* A random program over a random space, with operands of all patterns. */
static prog *random_prog(rnd *r, bool rows, int64_t *in_elems)
{
    int rank = 1 + pick(r, 4);
    int64_t dim[4];
    for (int d = 0; d < rank; d++) dim[d] = 1 + pick(r, d == rank - 1 ? 150 : 10);
    int row_rank = rows ? 1 + pick(r, rank < 3 ? rank : 3) : 0;
    static const pl_dtype types[] = {PL_F32, PL_F32, PL_F32, PL_F64, PL_BF16, PL_F16};
    pl_dtype d = types[pick(r, 6)];
    prog *g = prog_new(rank, dim, row_rank);
    int n_in = 1 + pick(r, 4), n = 3 + pick(r, 14);
    for (int i = 0; i < n_in; i++) {
        int x = ld(g, d, i == 0 ? 0 : (uint32_t)pick(r, 1 << rank));
        pl_tile_operand *o = &g->in[g->instr[x].index];
        in_elems[i] = prog_elems(g) * 3 + 8;
        if (i && pick(r, 3) == 0) { /* a strided or flipped read */
            o->offset = 5;
            int64_t s = o->stride[rank - 1] * 2;
            for (int k = rank - 1; k >= 0; k--) {
                o->stride[k] = pick(r, 2) && k == rank - 1 ? -s : s;
                if (o->stride[k] < 0) o->offset += s * (dim[k] - 1);
                s *= dim[k];
            }
        }
    }
    imm(g, d, 0.75);
    g->instr[g->p.n_instr++] = (pl_tile_instr){.code = PL_TILE_IOTA, .dtype = d, .imm = 0.5};
    for (int k = 0; k < rank; k++) g->instr[g->p.n_instr - 1].step[k] = pick(r, 3) * 0.125;
    for (int i = 0; i < n; i++) {
        int m = g->p.n_instr, a = pick(r, m), b = pick(r, m), c = pick(r, m),
            kind = pick(r, 12);
        while (g->instr[a].dtype != d) a--;
        while (g->instr[b].dtype != d) b--;
        while (g->instr[c].dtype != d) c--;
        if (kind < 4)
            map2(g, fns1[pick(r, 8)], a, 0);
        else if (kind < 8)
            map2(g, fns2[pick(r, 5)], a, b);
        else if (kind == 8)
            map3(g, PL_TILE_FN_SELECT, map2(g, PL_TILE_FN_LT, a, b), b, c);
        else if (kind == 9)
            cast(g, d, cast(g, PL_I32, a));
        else if (rows) {
            int x = row_reduce(g, (pl_tile_reduce_fn)pick(r, 4), a);
            if (g->instr[x].reduce == PL_TILE_MOMENTS) row_var(g, x);
        }
    }
    return g;
}

/* Runs g's instructions one by one, each as a program of its own on materialised operands. */
static bool run_unfused(const prog *g, const void *const *in, void **val)
{
    for (int i = 0; i < g->p.n_instr; i++) {
        const pl_tile_instr *x = &g->instr[i];
        prog *h = prog_new(g->p.rank, g->p.dim, g->p.row_rank);
        const void *src[3] = {NULL, NULL, NULL};
        if (x->code == PL_TILE_LOAD) {
            h->in[0] = g->in[x->index];
            h->p.n_in = 1;
            src[0] = in[x->index];
            h->instr[h->p.n_instr++] = *x;
            h->instr[0].index = 0;
        } else if (x->code == PL_TILE_ROW_VAR) {
            int a = g->instr[x->arg[0]].arg[0];
            src[0] = val[a];
            row_var(h, row_reduce(h, PL_TILE_MOMENTS, ld(h, g->instr[a].dtype, 0)));
        } else {
            int n = x->code == PL_TILE_SCALAR                           ? fn_arity(x->fn)
                    : x->code == PL_TILE_IMM || x->code == PL_TILE_IOTA ? 0
                                                                        : 1;
            for (int k = 0; k < n; k++) {
                ld(h, g->instr[x->arg[k]].dtype, 0);
                src[k] = val[x->arg[k]];
            }
            h->instr[h->p.n_instr] = *x;
            for (int k = 0; k < n; k++) h->instr[h->p.n_instr].arg[k] = k;
            h->p.n_instr++;
        }
        st(h, h->p.n_instr - 1);
        bool ok = run_prog(h, src, &val[i]);
        pl_sys_free(h);
        if (!ok) return false;
    }
    return true;
}

static bool fused_case(uint64_t seed)
{
    rnd r = {seed};
    int64_t in_elems[8];
    prog *g = random_prog(&r, seed % 2, in_elems);
    int64_t n = prog_elems(g);
    void *in[8], *val[64], *out[PL_TILE_OUTPUTS] = {NULL};
    int n_out = 0, src[PL_TILE_OUTPUTS];
    for (int i = 0; i < g->p.n_in; i++) {
        in[i] = buf(in_elems[i]);
        noise(g->in[i].dtype, in[i], in_elems[i], &r.s);
    }
    for (int i = 0; i < g->p.n_instr; i++) val[i] = buf(n);
    bool ok = run_unfused(g, (const void *const *)in, val);
    for (int i = 0; i < g->p.n_instr; i++) {
        if (pick(&r, 3) && i < g->p.n_instr - 1) continue;
        src[n_out] = i;
        out[n_out++] = buf(n);
        st(g, i);
    }
    ok = ok && run_prog(g, (const void *const *)in, out);
    for (int o = 0; ok && o < n_out; o++)
        ok = same_bits(g->instr[src[o]].dtype, val[src[o]], out[o], n);
    if (!ok) pl_test_fail(__FILE__, __LINE__, "seed %llu", (unsigned long long)seed);
    for (int i = 0; i < g->p.n_in; i++) pl_sys_free(in[i]);
    for (int i = 0; i < g->p.n_instr; i++) pl_sys_free(val[i]);
    for (int o = 0; o < n_out; o++) pl_sys_free(out[o]);
    pl_sys_free(g);
    return ok;
}

TEST(tile_fused_is_unfused)
{
    int n = pl_test_long() ? 600 : 150;
    for (int i = 1; i <= n; i++) CHECK(fused_case((uint64_t)i));
}

/* ---- in place, errors ------------------------------------------------------------------- */

/* One Adam-like step: three outputs over three of four inputs, read after others are written.
 */
TEST(tile_in_place)
{
    enum { N = 50000 };
    float *m[2], *v[2], *p[2], *gr = buf(N);
    uint64_t seed = 8;
    noise(PL_F32, gr, N, &seed);
    for (int k = 0; k < 2; k++) m[k] = buf(N), v[k] = buf(N), p[k] = buf(N);
    noise(PL_F32, m[0], N, &seed), noise(PL_F32, v[0], N, &seed), noise(PL_F32, p[0], N, &seed);
    memcpy(m[1], m[0], N * 4), memcpy(v[1], v[0], N * 4), memcpy(p[1], p[0], N * 4);
    prog *g = prog_new(1, (int64_t[]){N}, 0);
    int lm = ld(g, PL_F32, 0), lv = ld(g, PL_F32, 0), lp = ld(g, PL_F32, 0),
        lg = ld(g, PL_F32, 0);
    int m2 = map2(g, PL_TILE_FN_ADD, map2(g, PL_TILE_FN_MUL, lm, imm(g, PL_F32, 0.9)), lg);
    int v2 = map2(g, PL_TILE_FN_ADD, lv, map2(g, PL_TILE_FN_SQUARE, lg, 0));
    st(g, m2), st(g, v2);
    st(g, map2(g, PL_TILE_FN_SUB, map2(g, PL_TILE_FN_ADD, lp, lm),
               map2(g, PL_TILE_FN_DIV, m2, v2)));
    CHECK(pl_tile_inplace(&g->p, 0, 0));
    pl_arena a = PL_ARENA_INIT;
    pl_tile *t;
    CHECK_OK(pl_tile_compile(&g->p, &a, &t));
    void *work = NULL;
    CHECK(posix_memalign(&work, 64, pl_tile_work_bytes(t)) == 0);
    float *o[3] = {buf(N), buf(N), buf(N)};
    pl_tile_run(t, (const void *[]){m[0], v[0], p[0], gr}, (void *[]){o[0], o[1], o[2]}, work);
    pl_tile_run(t, (const void *[]){m[1], v[1], p[1], gr}, (void *[]){m[1], v[1], p[1]}, work);
    CHECK(same_bits(PL_F32, o[0], m[1], N));
    CHECK(same_bits(PL_F32, o[1], v[1], N));
    CHECK(same_bits(PL_F32, o[2], p[1], N));
    free(work);
    pl_arena_release(&a);
    pl_sys_free(g), pl_sys_free(gr);
    for (int k = 0; k < 3; k++) pl_sys_free(o[k]);
    for (int k = 0; k < 2; k++) pl_sys_free(m[k]), pl_sys_free(v[k]), pl_sys_free(p[k]);
}

TEST(tile_swaps_in_place)
{
    enum { N = 10000 };
    float *x = buf(N), *y = buf(N);
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = (float)-i;
    prog *g = prog_new(1, (int64_t[]){N}, 0);
    int a = ld(g, PL_F32, 0), b = ld(g, PL_F32, 0);
    st(g, b), st(g, a);
    pl_arena ar = PL_ARENA_INIT;
    pl_tile *t;
    CHECK_OK(pl_tile_compile(&g->p, &ar, &t));
    void *work = NULL;
    CHECK(posix_memalign(&work, 64, pl_tile_work_bytes(t)) == 0);
    pl_tile_run(t, (const void *[]){x, y}, (void *[]){x, y}, work);
    for (int i = 0; i < N; i++) CHECK(x[i] == (float)-i && y[i] == (float)i);
    free(work), pl_arena_release(&ar);
    pl_sys_free(g), pl_sys_free(x), pl_sys_free(y);
}

TEST(tile_rejects_bad_programs)
{
    pl_arena a = PL_ARENA_INIT;
    pl_tile *t;
    prog *g = prog_new(2, (int64_t[]){4, 20000}, 1);
    int x = ld(g, PL_F32, 0);
    st(g, x);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_UNSUPPORTED); /* rows too long */
    g->p.row_rank = 0;
    CHECK_OK(pl_tile_compile(&g->p, &a, &t));
    row_reduce(g, PL_TILE_SUM, x);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_ARG); /* no rows */
    g->p.n_instr--;
    map2(g, PL_TILE_FN_ADD, x, 1);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_ARG); /* reads itself */
    g->p.n_instr--;
    map2(g, PL_TILE_FN_EXP, cast(g, PL_I32, x), 0);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_UNSUPPORTED); /* no exp of integers */
    pl_arena_release(&a);
    pl_sys_free(g);
}

TEST(tile_compile_survives_failing_allocations)
{
    prog *g = softmax_prog(10, 300);
    for (uint64_t n = 1; n < 100; n++) {
        pl_arena a = PL_ARENA_INIT;
        pl_tile *t = NULL;
        pl_sys_fail_nth(n);
        pl_status s = pl_tile_compile(&g->p, &a, &t);
        bool hit = pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        pl_arena_release(&a);
        CHECK(hit ? s == PL_ERR_MEMORY : s == PL_OK);
        if (!hit) break;
    }
    pl_sys_free(g);
}
