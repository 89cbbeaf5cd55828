/* test_tile.c - whole groups in the tile interpreter: rows in one pass, bits, draws, fused against
 * unfused, in place, and groups that are refused. */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "cpu/kernels/draw.h"
#include "ir/group/inplace.h"
#include "tests/cpu/tile_prog.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------------- */

static tile_prog *softmax_prog(int64_t rows, int64_t n)
{
    tile_prog *g = tile_new(2, (int64_t[]){rows, n}, 1);
    int x = tile_ld(g, PL_F32, 0);
    int e = tile_map2(g, PL_SCALAR_EXP,
                      tile_map2(g, PL_SCALAR_SUB, x, tile_row_reduce(g, PL_REDUCE_MAX, x)), 0);
    tile_st(g, tile_map2(g, PL_SCALAR_DIV, e, tile_row_reduce(g, PL_REDUCE_SUM, e)));
    return g;
}

TEST(tile_softmax_in_one_pass_matches_f64)
{
    static const int64_t sizes[] = {1, 2, 7, 63, 64, 100, 1000, 1025, 5000, 16384};
    for (int k = 0; k < 10; k++) {
        int64_t rows = 37, n = sizes[k];
        float *x = tile_buf(rows * n), *y = tile_buf(rows * n);
        uint64_t seed = 3;
        tile_noise(PL_F32, x, rows * n, &seed);
        tile_prog *g = softmax_prog(rows, n);
        CHECK(tile_run(g, (const void *[]){x}, (void *[]){y}));
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

TEST(tile_layer_norm_in_one_pass_matches_f64)
{
    static const int64_t sizes[] = {3, 48, 768, 2000};
    for (int k = 0; k < 4; k++) {
        int64_t rows = 50, n = sizes[k];
        float *x = tile_buf(rows * n), *y = tile_buf(rows * n), *w = tile_buf(n), *b = tile_buf(n);
        float *mean = tile_buf(rows), *var = tile_buf(rows), *em = tile_buf(rows),
              *ev = tile_buf(rows);
        uint64_t seed = 3;
        tile_noise(PL_F32, x, rows * n, &seed), tile_noise(PL_F32, w, n, &seed),
            tile_noise(PL_F32, b, n, &seed);
        tile_prog *g = tile_new(2, (int64_t[]){rows, n}, 1);
        int l = tile_ld(g, PL_F32, 0), m = tile_row_reduce(g, PL_REDUCE_MOMENTS, l),
            v = tile_row_var(g, m);
        int r = tile_map2(g, PL_SCALAR_RSQRT,
                          tile_map2(g, PL_SCALAR_ADD, v, tile_imm(g, PL_F32, 1e-5)), 0);
        int z = tile_map2(g, PL_SCALAR_MUL, tile_map2(g, PL_SCALAR_SUB, l, m), r);
        z = tile_map2(g, PL_SCALAR_MUL, z, tile_ld(g, PL_F32, 1));
        tile_st(g, tile_map2(g, PL_SCALAR_ADD, z, tile_ld(g, PL_F32, 1)));
        tile_st_rows(g, m), tile_st_rows(g, v), tile_st_reduce(g, PL_REDUCE_MOMENTS, l, 2);
        CHECK(tile_run(g, (const void *[]){x, w, b}, (void *[]){y, mean, var, em, ev}));
        CHECK(tile_same_bits(PL_F32, mean, em, rows));
        CHECK(tile_same_bits(PL_F32, var, ev, rows));
        for (int64_t i = 0; i < rows * n; i++) {
            double mu = (double)mean[i / n], rs = 1 / sqrt((double)var[i / n] + 1e-5);
            double want = ((double)x[i] - mu) * rs * (double)w[i % n] + (double)b[i % n];
            CHECK_NEAR(y[i], want, 2e-6);
        }
        pl_sys_free(g), pl_sys_free(x), pl_sys_free(y), pl_sys_free(w), pl_sys_free(b);
        pl_sys_free(mean), pl_sys_free(var), pl_sys_free(em), pl_sys_free(ev);
    }
}

/* A program with a mask that is read and stored as bits or as bytes; `also` adds a reduction and
 * a store, which changes how the space is split. */
static tile_prog *mask_prog(int rank, const int64_t *dim, int view, bool also, bool bits)
{
    tile_prog *g = tile_new(rank, dim, also && view % 2 && dim[rank - 1] <= PL_TILE_ROW);
    int m = tile_ld(g, PL_BOOL, 0);
    pl_fused_operand *x = &g->in[0];
    if (view == 1) x->stride[0] = 0, x->offset = 3;
    if (view == 2) x->stride[rank - 1] = 0;
    if (view == 3) x->stride[rank - 1] = -1, x->offset = dim[rank - 1] - 1;
    if (view == 4 && rank > 1) x->stride[rank - 1] = dim[rank - 2], x->stride[rank - 2] = 1;
    x->bits = bits;
    int a = tile_ld(g, PL_F32, 0), zero = tile_imm(g, PL_F32, 0);
    int y = tile_map3(g, PL_SCALAR_SELECT, m, a, zero);
    int o = tile_st(g, tile_map2(g, PL_SCALAR_GT, y, zero));
    g->out[o].bits = bits;
    tile_st(g, y);
    o = tile_st(g, tile_map2(g, PL_SCALAR_XOR, m, tile_map2(g, PL_SCALAR_LT, a, zero)));
    g->out[o].bits = bits;
    if (also) tile_st_reduce(g, PL_REDUCE_SUM, y, view % 2 ? 1u << (rank - 1) : 1u);
    return g;
}

/* bytes: element i of x; bits: all of x, n elements, spare bits 0. */
static void to_bits(const uint8_t *x, int64_t n, uint8_t *bits)
{
    memset(bits, 0, (size_t)(n + 7) / 8);
    for (int64_t i = 0; i < n; i++) bits[i / 8] |= (uint8_t)((x[i] != 0) << i % 8);
}

TEST(tile_bits_give_the_results_of_bytes)
{
    static const struct {
        int rank;
        int64_t dim[3];
    } boxes[] = {{1, {1}},           {1, {7}},          {1, {50001}},    {2, {300, 257}},
                 {2, {3, 9001}},     {3, {5, 77, 131}}, {3, {64, 3, 5}}, {2, {9000, 3}},
                 {3, {2, 1000, 24}}, {2, {1, 100000}}};
    int threads = pl_threads_count();

    for (int at = 0; at < 10 * 5 * 2 * 2; at++) {
        int s = at % 10, view = at / 10 % 5, rank = boxes[s].rank;
        bool also = at / 50 % 2;
        pl_threads_set(at / 100 ? 3 : 1);
        tile_prog *p[2];
        for (int k = 0; k < 2; k++) p[k] = mask_prog(rank, boxes[s].dim, view, also, k);
        int64_t n = tile_elems(p[0]);
        uint64_t seed = (uint64_t)at + 1;
        /* the mask is read up to an element past the space's own */
        uint8_t *mask = tile_buf(n + 64), *packed = tile_buf(n + 64);
        float *a = tile_buf(n);
        tile_noise(PL_BOOL, mask, n + 64, &seed);
        to_bits(mask, n + 64, packed);
        tile_noise(PL_F32, a, n, &seed);
        void *want[4], *got[4];
        for (int o = 0; o < 4; o++) want[o] = tile_buf(n), got[o] = tile_buf(n);
        CHECK(tile_run(p[0], (const void *[]){mask, a}, want));
        size_t bits = (size_t)(n + 7) / 8, small = 4 * (size_t)n;
        CHECK(tile_run_guarded(&p[1]->p, (const void *[]){packed, a}, got,
                               (const size_t[]){bits, small, bits, small}, also ? 4 : 3));
        for (int o = 0; o < 3; o += 2) {
            to_bits(want[o], n, mask);
            CHECK_MSG(!memcmp(mask, got[o], bits), "space %d, view %d, output %d", s, view, o);
        }
        CHECK(tile_same_bits(PL_F32, want[1], got[1], n));
        int64_t left = view % 2 ? n / boxes[s].dim[rank - 1] : n / boxes[s].dim[0];
        CHECK(!also || tile_same_bits(PL_F32, want[3], got[3], left));
        for (int o = 0; o < 4; o++) pl_sys_free(want[o]), pl_sys_free(got[o]);
        pl_sys_free(mask), pl_sys_free(packed), pl_sys_free(a);
        pl_sys_free(p[0]), pl_sys_free(p[1]);
    }
    pl_threads_set(threads);
}

/* Draws made in the tile equal those of the stream, for every way of reading and splitting. */
TEST(tile_draws_agree_with_the_definition)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    static const int64_t key[2] = {77, 12};
    static const struct {
        int64_t dim[3], first, step[3];
    } views[] = {
        {{40, 50, 7}, 0, {350, 7, 1}}, {{40, 50, 7}, 5, {7, 0, 1}},
        {{40, 50, 7}, 0, {0, 7, 1}},   {{6, 3000, 8}, 0, {0, 0, 1}},
        {{2, 3, 9000}, 3, {0, 0, 0}},  {{9, 11, 13}, 2000, {-150, 11, 2}},
        {{1, 1, 1}, 9, {1, 1, 1}},     {{3, 700, 64}, 1, {0, 1, 0}},
        {{5000, 1, 4}, 2, {3, 0, 7}},
    };
    for (size_t v = 0; v < sizeof views / sizeof views[0]; v++)
        for (int kind = 0; kind < 8; kind++) {
            pl_dtype d = dtypes[kind / 2];
            tile_prog *g = tile_new(3, views[v].dim, (int)(v + (size_t)kind) % 2);
            int64_t n = tile_elems(g), i = 0;
            g->in[g->p.n_in++] = (pl_fused_operand){.dtype = PL_I64};
            pl_fused_instr x = {.code = PL_FUSED_DRAW, .dtype = d, .draw = {3, kind % 2}};
            x.imm = (double)views[v].first;
            for (int k = 0; k < 3; k++) x.step[k] = (double)views[v].step[k];
            g->instr[g->p.n_instr++] = x;
            tile_st(g, 0);
            void *got = tile_buf(n), *want = tile_buf(n);
            pl_draws from = {77, 12, 3, kind % 2, d};
            for (int64_t a = 0; a < views[v].dim[0]; a++)
                for (int64_t b = 0; b < views[v].dim[1]; b++)
                    for (int64_t c = 0; c < views[v].dim[2]; c++) {
                        float y;
                        pl_draw_run(&from,
                                    views[v].first + a * views[v].step[0] + b * views[v].step[1] +
                                        c * views[v].step[2],
                                    1, &y);
                        pl_elem_set(d, want, i++, (double)y);
                    }
            CHECK(tile_run(g, (const void *[]){key}, &got));
            CHECK_MSG(tile_same_bits(d, got, want, n), "view %d, kind %d", (int)v, kind);
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

static const pl_scalar_fn fns1[] = {PL_SCALAR_NEG,  PL_SCALAR_SQUARE,     PL_SCALAR_TANH,
                                    PL_SCALAR_GELU, PL_SCALAR_LEAKY_RELU, PL_SCALAR_SIGMOID,
                                    PL_SCALAR_SIN,  PL_SCALAR_ABS};
static const pl_scalar_fn fns2[] = {PL_SCALAR_ADD, PL_SCALAR_SUB, PL_SCALAR_MUL, PL_SCALAR_MAX,
                                    PL_SCALAR_MIN};

/* A random program over a random space, with operands of all patterns. */
static tile_prog *random_prog(rnd *r, bool rows, int64_t *in_elems)
{
    int rank = 1 + pick(r, 4);
    int64_t dim[4];
    for (int d = 0; d < rank; d++) dim[d] = 1 + pick(r, d == rank - 1 ? 150 : 10);
    int row_rank = rows ? 1 + pick(r, rank < 3 ? rank : 3) : 0;
    static const pl_dtype types[] = {PL_F32, PL_F32, PL_F32, PL_F64, PL_BF16, PL_F16};
    pl_dtype d = types[pick(r, 6)];
    tile_prog *g = tile_new(rank, dim, row_rank);
    int n_in = 1 + pick(r, 4), n = 3 + pick(r, 14);
    for (int i = 0; i < n_in; i++) {
        int x = tile_ld(g, d, i == 0 ? 0 : (uint32_t)pick(r, 1 << rank));
        pl_fused_operand *o = &g->in[g->instr[x].operand];
        in_elems[i] = tile_elems(g) * 3 + 8;
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
    tile_imm(g, d, 0.75);
    g->instr[g->p.n_instr++] = (pl_fused_instr){.code = PL_FUSED_RAMP, .dtype = d, .imm = 0.5};
    for (int k = 0; k < rank; k++) g->instr[g->p.n_instr - 1].step[k] = pick(r, 3) * 0.125;
    for (int i = 0; i < n; i++) {
        int m = g->p.n_instr, a = pick(r, m), b = pick(r, m), c = pick(r, m), kind = pick(r, 12);
        while (g->instr[a].dtype != d) a--;
        while (g->instr[b].dtype != d) b--;
        while (g->instr[c].dtype != d) c--;
        if (kind < 4)
            tile_map2(g, fns1[pick(r, 8)], a, 0);
        else if (kind < 8)
            tile_map2(g, fns2[pick(r, 5)], a, b);
        else if (kind == 8)
            tile_map3(g, PL_SCALAR_SELECT, tile_map2(g, PL_SCALAR_LT, a, b), b, c);
        else if (kind == 9)
            tile_cast(g, d, tile_cast(g, PL_I32, a));
        else if (rows) {
            int x = tile_row_reduce(g, (pl_reduce_fn)pick(r, 4), a);
            if (g->instr[x].reduce == PL_REDUCE_MOMENTS) tile_row_var(g, x);
        }
    }
    return g;
}

/* Runs g's instructions one by one, each as a separate program on materialised operands. */
static bool run_unfused(const tile_prog *g, const void *const *in, void **val)
{
    for (int i = 0; i < g->p.n_instr; i++) {
        const pl_fused_instr *x = &g->instr[i];
        tile_prog *h = tile_new(g->p.rank, g->p.dim, g->p.row_rank);
        const void *src[3] = {NULL, NULL, NULL};
        if (x->code == PL_FUSED_LOAD) {
            h->in[0] = g->in[x->operand];
            h->p.n_in = 1;
            src[0] = in[x->operand];
            h->instr[h->p.n_instr++] = *x;
            h->instr[0].operand = 0;
            h->in[0].in = 0;
        } else if (x->code == PL_FUSED_ROW_VAR) {
            int a = g->instr[x->arg[0]].arg[0];
            src[0] = val[a];
            tile_row_var(h,
                         tile_row_reduce(h, PL_REDUCE_MOMENTS, tile_ld(h, g->instr[a].dtype, 0)));
        } else {
            int n = x->n_arg;
            for (int k = 0; k < n; k++) {
                tile_ld(h, g->instr[x->arg[k]].dtype, 0);
                src[k] = val[x->arg[k]];
            }
            h->instr[h->p.n_instr] = *x;
            for (int k = 0; k < n; k++) h->instr[h->p.n_instr].arg[k] = k;
            h->p.n_instr++;
        }
        tile_st(h, h->p.n_instr - 1);
        bool ok = tile_run(h, src, &val[i]);
        pl_sys_free(h);
        if (!ok) return false;
    }
    return true;
}

static bool fused_case(uint64_t seed)
{
    rnd r = {seed};
    int64_t in_elems[8];
    tile_prog *g = random_prog(&r, seed % 2, in_elems);
    int64_t n = tile_elems(g);
    void *in[8], *val[64], *out[PL_TILE_OUTPUTS] = {NULL};
    int n_out = 0, src[PL_TILE_OUTPUTS];
    for (int i = 0; i < g->p.n_in; i++) {
        in[i] = tile_buf(in_elems[i]);
        tile_noise(g->in[i].dtype, in[i], in_elems[i], &r.s);
    }
    for (int i = 0; i < g->p.n_instr; i++) val[i] = tile_buf(n);
    bool ok = run_unfused(g, (const void *const *)in, val);
    for (int i = 0; i < g->p.n_instr; i++) {
        if (pick(&r, 3) && i < g->p.n_instr - 1) continue;
        src[n_out] = i;
        out[n_out++] = tile_buf(n);
        tile_st(g, i);
    }
    ok = ok && tile_run(g, (const void *const *)in, out);
    for (int o = 0; ok && o < n_out; o++)
        ok = tile_same_bits(g->instr[src[o]].dtype, val[src[o]], out[o], n);
    if (!ok) pl_test_fail(__FILE__, __LINE__, "seed %llu", (unsigned long long)seed);
    for (int i = 0; i < g->p.n_in; i++) pl_sys_free(in[i]);
    for (int i = 0; i < g->p.n_instr; i++) pl_sys_free(val[i]);
    for (int o = 0; o < n_out; o++) pl_sys_free(out[o]);
    pl_sys_free(g);
    return ok;
}

TEST(tile_fused_gives_the_bits_of_unfused)
{
    int n = pl_test_long() ? 600 : 150;
    for (int i = 1; i <= n; i++) CHECK(fused_case((uint64_t)i));
}

/* ---- in place, errors ------------------------------------------------------------------- */

/* One Adam-like step: three outputs over three of four inputs, read after others are written.
 */
TEST(tile_in_place_gives_the_same_bits)
{
    enum { N = 50000 };
    float *m[2], *v[2], *p[2], *gr = tile_buf(N);
    uint64_t seed = 8;

    tile_noise(PL_F32, gr, N, &seed);
    for (int k = 0; k < 2; k++) m[k] = tile_buf(N), v[k] = tile_buf(N), p[k] = tile_buf(N);
    tile_noise(PL_F32, m[0], N, &seed), tile_noise(PL_F32, v[0], N, &seed),
        tile_noise(PL_F32, p[0], N, &seed);
    memcpy(m[1], m[0], N * 4), memcpy(v[1], v[0], N * 4), memcpy(p[1], p[0], N * 4);
    tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
    int lm = tile_ld(g, PL_F32, 0), lv = tile_ld(g, PL_F32, 0), lp = tile_ld(g, PL_F32, 0),
        lg = tile_ld(g, PL_F32, 0);
    int m2 =
        tile_map2(g, PL_SCALAR_ADD, tile_map2(g, PL_SCALAR_MUL, lm, tile_imm(g, PL_F32, 0.9)), lg);
    int v2 = tile_map2(g, PL_SCALAR_ADD, lv, tile_map2(g, PL_SCALAR_SQUARE, lg, 0));
    tile_st(g, m2), tile_st(g, v2);
    tile_st(g, tile_map2(g, PL_SCALAR_SUB, tile_map2(g, PL_SCALAR_ADD, lp, lm),
                         tile_map2(g, PL_SCALAR_DIV, m2, v2)));
    CHECK(pl_inplace_operand(&g->p, 0, 0));

    pl_arena a = PL_ARENA_INIT;
    pl_tile_code *t;
    CHECK_OK(pl_tile_compile(&g->p, &a, &t));
    void *work = NULL;
    CHECK(posix_memalign(&work, 64, pl_tile_work_bytes(t)) == 0);

    float *o[3] = {tile_buf(N), tile_buf(N), tile_buf(N)};
    pl_tile_run(t, (const void *[]){m[0], v[0], p[0], gr}, (void *[]){o[0], o[1], o[2]}, work);
    pl_tile_run(t, (const void *[]){m[1], v[1], p[1], gr}, (void *[]){m[1], v[1], p[1]}, work);
    CHECK(tile_same_bits(PL_F32, o[0], m[1], N));
    CHECK(tile_same_bits(PL_F32, o[1], v[1], N));
    CHECK(tile_same_bits(PL_F32, o[2], p[1], N));
    free(work);
    pl_arena_release(&a);
    pl_sys_free(g), pl_sys_free(gr);
    for (int k = 0; k < 3; k++) pl_sys_free(o[k]);
    for (int k = 0; k < 2; k++) pl_sys_free(m[k]), pl_sys_free(v[k]), pl_sys_free(p[k]);
}

TEST(tile_swaps_in_place)
{
    enum { N = 10000 };
    float *x = tile_buf(N), *y = tile_buf(N);

    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = (float)-i;
    tile_prog *g = tile_new(1, (int64_t[]){N}, 0);
    int a = tile_ld(g, PL_F32, 0), b = tile_ld(g, PL_F32, 0);
    tile_st(g, b), tile_st(g, a);
    pl_arena ar = PL_ARENA_INIT;
    pl_tile_code *t;
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
    pl_tile_code *t;
    tile_prog *g = tile_new(2, (int64_t[]){4, 20000}, 1);
    int x = tile_ld(g, PL_F32, 0);

    tile_st(g, x);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_UNSUPPORTED); /* rows too long */
    g->p.row_rank = 0;
    CHECK_OK(pl_tile_compile(&g->p, &a, &t));
    tile_row_reduce(g, PL_REDUCE_SUM, x);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_ARG); /* no rows */

    g->p.n_instr--;
    tile_map2(g, PL_SCALAR_ADD, x, 1);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_ARG); /* reads itself */

    g->p.n_instr--;
    tile_map2(g, PL_SCALAR_EXP, tile_cast(g, PL_I32, x), 0);
    CHECK_INT(pl_tile_compile(&g->p, &a, &t), PL_ERR_UNSUPPORTED); /* no exp of integers */
    pl_arena_release(&a);
    pl_sys_free(g);
}

TEST(tile_compile_survives_failing_allocations)
{
    tile_prog *g = softmax_prog(10, 300);
    for (uint64_t n = 1; n < 100; n++) {
        pl_arena a = PL_ARENA_INIT;
        pl_tile_code *t = NULL;
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
