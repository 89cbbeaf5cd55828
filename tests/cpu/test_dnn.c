/* test_dnn.c - the oneDNN wrapper against plain loops in double: convolutions in three directions,
 * matrix products, pools; that runs repeat bit by bit, stay inside their work block, and allocate
 * nothing. */
#include "base/dtype.h"
#include "base/fpmode.h"
#include "base/threads.h"
#include "cpu/isa/isa.h"
#include "tests/cpu/dnn_lab.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrix product --------------------------------------------------------------------- */

static double try_matmul(const pl_dnn_matmul_desc *m)
{
    int64_t lda = m->lda ? m->lda : m->trans_a ? m->m : m->k;
    int64_t ldb = m->ldb ? m->ldb : m->trans_b ? m->k : m->n;
    int64_t na = (m->batch - 1) * m->a_batch_stride + lda * (m->trans_a ? m->k : m->m);
    int64_t nb = (m->batch - 1) * m->b_batch_stride + ldb * (m->trans_b ? m->n : m->k);
    int64_t nc = m->batch * m->m * m->n;
    float *a = dnn_noise(na, 1), *b = dnn_noise(nb, 2), *bias = dnn_noise(m->n, 3);
    double *want = malloc((size_t)nc * sizeof *want), err = 10;
    if (!want) abort();
    for (int64_t t = 0; t < m->batch; t++)
        for (int64_t i = 0; i < m->m; i++)
            for (int64_t j = 0; j < m->n; j++) {
                double sum = m->bias ? (double)bias[j] : 0;
                const float *at = a + t * m->a_batch_stride, *bt = b + t * m->b_batch_stride;
                for (int64_t k = 0; k < m->k; k++)
                    sum += (double)at[m->trans_a ? k * lda + i : i * lda + k] *
                           (double)bt[m->trans_b ? j * ldb + k : k * ldb + j];
                want[(t * m->m + i) * m->n + j] = sum;
            }
    pl_dnn *d = NULL;
    size_t work = 0;
    guarded_block out = guarded_new((size_t)nc * 4);
    const void *in[] = {a, b, bias};
    if (pl_dnn_matmul_prepare(m, &d, &work) == PL_OK && dnn_run(d, work, in, &out, 1))
        err = dnn_worst((const float *)out.data, want, nc, m->k);
    if (!(err < 1e-5) || getenv("PL_TEST_IMPL"))
        printf("  %d x %d x %d x %d %d%d: %s error %g\n", (int)m->batch, (int)m->m, (int)m->n,
               (int)m->k, m->trans_a, m->trans_b, d ? pl_dnn_impl(d) : pl_error_text(), err);
    pl_dnn_free(d);
    guarded_free(&out), free(a), free(b), free(bias), free(want);
    return err;
}

TEST(dnn_matmul_matches_loops)
{
    const int64_t size[][4] = {{1, 1, 1, 1},    {1, 7, 5, 3},   {1, 64, 64, 64},  {1, 1, 130, 67},
                               {1, 130, 1, 67}, {1, 33, 65, 1}, {3, 17, 9, 31},   {2, 1, 40, 33},
                               {2, 40, 1, 33},  {5, 16, 16, 8}, {1, 1, 300, 411}, {1, 300, 1, 411}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int v = 0; v < 32; v++) {
            pl_dnn_matmul_desc m = {.batch = size[i][0],
                                    .m = size[i][1],
                                    .n = size[i][2],
                                    .k = size[i][3],
                                    .trans_a = v & 1,
                                    .trans_b = v & 2,
                                    .bias = v & 4};
            if (v & 8) m.lda = (m.trans_a ? m.m : m.k) + 3;
            if (v & 8) m.ldb = (m.trans_b ? m.k : m.n) + 5;
            int64_t lda = m.lda ? m.lda : m.trans_a ? m.m : m.k;
            int64_t ldb = m.ldb ? m.ldb : m.trans_b ? m.k : m.n;
            m.a_batch_stride = lda * (m.trans_a ? m.k : m.m);
            m.b_batch_stride = v & 16 ? 0 : ldb * (m.trans_b ? m.n : m.k);
            CHECK(try_matmul(&m) < 1e-5);
        }
}

/* ---- pools ------------------------------------------------------------------------------ */

typedef pl_dnn_pool_desc pool;

static void naive_pool(const pool *p, bool max, const float *x, const float *dy, double *y,
                       unsigned char *index, double *dx)
{
    geometry g =
        dnn_geometry(p->n_spatial, p->in, p->out, p->kernel, p->stride, p->dilation, p->pad_lo);
    for (int64_t i = 0; i < p->n * g.out_elems * p->c; i++) {
        int64_t n = i / p->c / g.out_elems, at = i / p->c % g.out_elems, c = i % p->c;
        int64_t first = n * g.in_elems * p->c + c, best = -1, count = 0;
        double sum = 0, top = 0;
        for (int64_t k = 0; k < g.taps; k++) {
            int64_t q = dnn_under(&g, at, k);
            if (q < 0) continue;
            double v = (double)x[first + q * p->c];
            if (best < 0 || v > top) best = k, top = v;
            sum += v;
            count++;
        }
        if (p->count_pad) count = g.taps;
        y[i] = max ? top : sum / (double)count;
        index[i] = (unsigned char)best;
        if (max) dx[first + dnn_under(&g, at, best) * p->c] += (double)dy[i];
        for (int64_t k = 0; k < g.taps && !max; k++) {
            int64_t q = dnn_under(&g, at, k);
            if (q >= 0) dx[first + q * p->c] += (double)dy[i] / (double)count;
        }
    }
}

static bool try_pool(const pool *p, bool max)
{
    geometry g =
        dnn_geometry(p->n_spatial, p->in, p->out, p->kernel, p->stride, p->dilation, p->pad_lo);
    int64_t nx = p->n * g.in_elems * p->c, ny = p->n * g.out_elems * p->c;
    float *x = dnn_noise(nx, 1), *dy = dnn_noise(ny, 2);
    for (int64_t i = 0; i < nx; i++) x[i] = roundf(x[i] * 8); /* ties, so that the first must win */
    double *y = calloc((size_t)ny, sizeof *y), *dx = calloc((size_t)nx, sizeof *dx);
    unsigned char *index = calloc((size_t)ny, 1);
    if (!y || !dx || !index) abort();
    naive_pool(p, max, x, dy, y, index, dx);
    guarded_block out[2] = {guarded_new((size_t)ny * 4), guarded_new((size_t)ny)};
    guarded_block back = guarded_new((size_t)nx * 4);
    pl_dnn *fwd = NULL, *bwd = NULL;
    size_t work = 0;
    double err = 10, err_b = 10;
    bool same = true;
    if (pl_dnn_pool_prepare(max ? PL_DNN_POOL_MAX_FWD : PL_DNN_POOL_AVG_FWD, p, &fwd, &work) ==
            PL_OK &&
        dnn_run(fwd, work, (const void *[]){x}, out, 2))
        err = dnn_worst((const float *)out[0].data, y, ny, 1);
    if (max && p->index) same = memcmp(out[1].data, index, (size_t)ny) == 0;
    if (pl_dnn_pool_prepare(max ? PL_DNN_POOL_MAX_BWD : PL_DNN_POOL_AVG_BWD, p, &bwd, &work) ==
            PL_OK &&
        dnn_run(bwd, work, (const void *[]){dy, index}, &back, 1))
        err_b = dnn_worst((const float *)back.data, dx, nx, 1);
    if (!(err < 1e-6 && err_b < 1e-6 && same) || getenv("PL_TEST_IMPL"))
        printf("  pool max %d c %d kernel %d: %s, %s: errors %g %g indices %s\n", max, (int)p->c,
               (int)p->kernel[0], fwd ? pl_dnn_impl(fwd) : pl_error_text(),
               bwd ? pl_dnn_impl(bwd) : pl_error_text(), err, err_b, same ? "same" : "differ");
    pl_dnn_free(fwd), pl_dnn_free(bwd);
    free(x), free(dy), free(y), free(dx), free(index);
    guarded_free(&out[0]), guarded_free(&out[1]), guarded_free(&back);
    return err < 1e-6 && err_b < 1e-6 && same;
}

static const pool pools[] = {
    {.n_spatial = 2,
     .n = 2,
     .c = 5,
     .in = {6, 8},
     .out = {3, 4},
     .kernel = {2, 2},
     .stride = {2, 2},
     .dilation = {1, 1}},
    {.n_spatial = 2,
     .n = 1,
     .c = 64,
     .in = {7, 7},
     .out = {7, 7},
     .kernel = {3, 3},
     .stride = {1, 1},
     .dilation = {1, 1},
     .pad_lo = {1, 1},
     .pad_hi = {1, 1}},
    {.n_spatial = 2,
     .n = 3,
     .c = 33,
     .in = {9, 10},
     .out = {4, 5},
     .kernel = {3, 2},
     .stride = {2, 2},
     .dilation = {1, 1},
     .pad_lo = {0, 1},
     .pad_hi = {1, 0}},
    {.n_spatial = 2,
     .n = 1,
     .c = 16,
     .in = {9, 9},
     .out = {5, 5},
     .kernel = {3, 3},
     .stride = {1, 1},
     .dilation = {2, 2}},
    {.n_spatial = 2,
     .n = 2,
     .c = 256,
     .in = {6, 5},
     .out = {1, 1},
     .kernel = {6, 5},
     .stride = {1, 1},
     .dilation = {1, 1}},
    {.n_spatial = 2,
     .n = 1,
     .c = 1,
     .in = {1, 1},
     .out = {1, 1},
     .kernel = {1, 1},
     .stride = {1, 1},
     .dilation = {1, 1}},
    {.n_spatial = 1,
     .n = 2,
     .c = 19,
     .in = {20},
     .out = {7},
     .kernel = {3},
     .stride = {3},
     .dilation = {1},
     .pad_lo = {1},
     .pad_hi = {1}},
    {.n_spatial = 3,
     .n = 2,
     .c = 17,
     .in = {4, 5, 6},
     .out = {2, 3, 3},
     .kernel = {2, 3, 2},
     .stride = {2, 2, 2},
     .dilation = {1, 1, 1},
     .pad_lo = {0, 1, 0},
     .pad_hi = {0, 1, 0}},
    {.n_spatial = 2,
     .n = 1,
     .c = 24,
     .in = {20, 20},
     .out = {2, 1},
     .kernel = {15, 17},
     .stride = {4, 4},
     .dilation = {1, 1}},
};

TEST(dnn_pools_match_loops)
{
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        pool p = pools[i];
        CHECK(try_pool(&p, true));
        CHECK(try_pool(&p, false));
        p.index = p.count_pad = true;
        CHECK(try_pool(&p, true));
        CHECK(try_pool(&p, false));
    }
}

/* ---- what holds for all ----------------------------------------------------------------- */

TEST(dnn_refuses_bad_convolutions_with_a_reason)
{
    pl_dnn *d = NULL;
    size_t work;
    conv c = dnn_conv2(1, 8, 8, 4, 4, 1, 3, 1, 1, 1, 1);
    c.out[1] = 9;
    CHECK(pl_dnn_conv_prepare(PL_DNN_CONV_FWD, &c, &d, &work) == PL_ERR_SHAPE);
    CHECK(strstr(pl_error_text(), "gives 8 outputs, not 9") != NULL);
    c = dnn_conv2(1, 8, 8, 4, 6, 4, 3, 1, 1, 1, 1);
    CHECK(pl_dnn_conv_prepare(PL_DNN_CONV_FWD, &c, &d, &work) == PL_ERR_SHAPE);
    c = dnn_conv2(1, 8, 8, 4, 4, 1, 3, 1, 1, 1, 1);
    c.dtype = PL_F64;
    CHECK(pl_dnn_conv_prepare(PL_DNN_CONV_FWD, &c, &d, &work) == PL_ERR_UNSUPPORTED);
    CHECK(d == NULL);
    pl_dnn_free(NULL);
}

/* One of every oneDNN object that a step runs, prepared once. */
typedef struct kit {
    pl_dnn *d[16];
    size_t work_bytes;
    int n;
} kit;

static bool kit_conv(kit *k, conv c)
{
    for (int kind = 0; kind < 3; kind++) {
        size_t work;
        if (pl_dnn_conv_prepare((pl_dnn_conv_kind)kind, &c, &k->d[k->n], &work) != PL_OK)
            return false;
        if (work > k->work_bytes) k->work_bytes = work;
        k->n++;
    }
    return true;
}

static bool kit_matmul(kit *k, pl_dnn_matmul_desc m)
{
    size_t work;
    if (pl_dnn_matmul_prepare(&m, &k->d[k->n], &work) != PL_OK) return false;
    if (work > k->work_bytes) k->work_bytes = work;
    k->n++;
    return true;
}

static bool kit_pool(kit *k, pool p)
{
    for (int kind = 0; kind < 4; kind++) {
        size_t work;
        if (pl_dnn_pool_prepare((pl_dnn_pool_kind)kind, &p, &k->d[k->n], &work) != PL_OK)
            return false;
        if (work > k->work_bytes) k->work_bytes = work;
        k->n++;
    }
    return true;
}

/* Elements enough for every tensor of the kits below. */
enum { KIT_ELEMS = 1 << 16 };

static bool kit_run(const kit *k, const float *const *in, float *const *out, void *work)
{
    const void *from[3] = {in[0], in[1], in[2]};
    for (int i = 0; i < k->n; i++) {
        void *to[2] = {out[i], out[k->n]};
        if (pl_dnn_run(k->d[i], from, to, work) != PL_OK) return false;
    }
    return true;
}

static bool kit_fill(kit *k)
{
    pool p = {.n_spatial = 2,
              .n = 2,
              .c = 16,
              .in = {16, 16},
              .out = {8, 8},
              .kernel = {2, 2},
              .stride = {2, 2},
              .dilation = {1, 1},
              .index = true};
    return kit_conv(k, dnn_conv2(2, 16, 16, 32, 48, 1, 3, 1, 1, 1, 1)) &&
           kit_conv(k, dnn_conv2(2, 16, 16, 3, 32, 1, 3, 1, 1, 1, 1)) &&
           kit_conv(k, dnn_conv2(2, 16, 16, 32, 32, 32, 3, 1, 1, 1, 1)) &&
           kit_matmul(k, (pl_dnn_matmul_desc){.batch = 4,
                                              .m = 33,
                                              .n = 65,
                                              .k = 40,
                                              .trans_b = true,
                                              .a_batch_stride = 33 * 40,
                                              .b_batch_stride = 65 * 40}) &&
           kit_matmul(k, (pl_dnn_matmul_desc){.batch = 1, .m = 1, .n = 100, .k = 64}) &&
           kit_pool(k, p);
}

static void kit_release(kit *k)
{
    for (int i = 0; i < k->n; i++) pl_dnn_free(k->d[i]);
}

/* Runs a kit `rounds` times after three warm-ups. Reports the number of allocations in the
 * rounds, and whether every round gave the bits of the first. */
static bool kit_rounds(int rounds, uint64_t *allocs, bool *same)
{
    kit k = {0};
    bool ok = kit_fill(&k);
    float *in[3], *out[17] = {0}, *first[17] = {0};
    guarded_block work = guarded_new(k.work_bytes);
    for (int i = 0; i < 3; i++) in[i] = dnn_noise(KIT_ELEMS, (uint64_t)i);
    memset(in[1], 0, KIT_ELEMS / 4); /* the pool's backward reads it as indices */
    for (int i = 0; i <= k.n; i++) out[i] = calloc(KIT_ELEMS, 4), first[i] = calloc(KIT_ELEMS, 4);
    const float *const from[3] = {in[0], in[1], in[2]};
    for (int r = 0; r < 3; r++) ok = ok && kit_run(&k, from, out, work.data);
    for (int i = 0; i < k.n; i++) memcpy(first[i], out[i], KIT_ELEMS * 4);
    uint64_t before = pl_test_allocs();
    for (int r = 0; r < rounds; r++) {
        ok = ok && kit_run(&k, from, out, work.data);
        for (int i = 0; i < k.n; i++) *same = *same && memcmp(first[i], out[i], KIT_ELEMS * 4) == 0;
    }
    *allocs = pl_test_allocs() - before;
    ok = ok && guarded_intact(&work);
    for (int i = 0; i <= k.n; i++) free(out[i]), free(first[i]);
    for (int i = 0; i < 3; i++) free(in[i]);
    guarded_free(&work);
    kit_release(&k);
    return ok;
}

TEST(dnn_runs_repeat_bit_by_bit)
{
    uint64_t allocs;
    bool same = true;
    CHECK(kit_rounds(20, &allocs, &same));
    CHECK(same);
}

int omp_get_max_threads(void);

static void *run_in_thread(void *ctx)
{
    uint64_t allocs;
    bool same = true, ok = kit_rounds(1, &allocs, &same);
    *(int *)ctx = ok && same ? omp_get_max_threads() : -1;
    return NULL;
}

/* Whichever thread computes, oneDNN gets a team of the size that was set. */
TEST(dnn_uses_the_thread_count_in_every_thread)
{
    int before = pl_threads_count(), seen = 0;
    pl_threads_set(3);
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, run_in_thread, &seen), 0);
    pthread_join(t, NULL);
    pl_threads_set(before);
    CHECK_INT(seen, 3);
}

/* oneDNN's loops have many sizes, more so on many threads, and none of them starts or ends a
 * thread. */
TEST(dnn_runs_allocate_nothing)
{
    if (!pl_test_allocs_counted()) SKIP("a sanitizer owns malloc");
    if (strncmp(pl_cpu_vectors(), "AVX", 3) != 0) SKIP("oneDNN allocates without AVX2, see dnn.h");
    uint64_t before = pl_test_allocs();

    void *volatile seen = malloc(100); /* volatile, or the pair would be compiled away */
    free(seen);
    CHECK(pl_test_allocs() > before);
    int threads = pl_threads_count();
    static const int many[] = {1, 2, 7, 16};
    for (int i = 0; i < 4; i++) {
        uint64_t allocs = 1;
        bool same = true;
        pl_threads_set(many[i]);
        bool ok = kit_rounds(pl_test_long() ? 12 : 4, &allocs, &same);
        pl_threads_set(threads);
        CHECK_MSG(ok && same && allocs == 0, "%d threads: ran %d, same %d, %llu allocations",
                  many[i], ok, same, (unsigned long long)allocs);
    }
}

typedef struct tiny {
    volatile float small, large;
    _Atomic int lost;
} tiny;

static void multiply_tiny(void *ctx, int64_t task, int worker)
{
    tiny *t = ctx;
    (void)task, (void)worker;
    if (!(t->small * t->large > 0)) t->lost++;
}

/* 1e-40 times 1e10 is 1e-30; with denormals as zero it is 0, whichever thread computes it. A
 * kernel of one channel computes on seven further lanes with old contents, which may be denormal
 * and then slow. Our own loops, before and after, in the same threads, compute with denormals. */
TEST(dnn_treats_denormals_as_zero)
{
    if (!PL_FP_FLUSHES) SKIP("this processor's mode is not set");
    enum { N = 6, SIDE = 24, C = 16, ELEMS = N * SIDE * SIDE * C, WEIGHTS = C * C * 9 };
    conv c = dnn_conv2(N, SIDE, SIDE, C, C, 1, 3, 1, 1, 1, 1);
    int before = pl_threads_count(), wrong = 0;
    tiny t = {.small = 1e-40f, .large = 1e10f};
    float *x = malloc(ELEMS * sizeof *x), *w = malloc(WEIGHTS * sizeof *w);

    CHECK(x && w);
    for (int i = 0; i < ELEMS; i++) x[i] = 1e-40f;
    for (int i = 0; i < WEIGHTS; i++) w[i] = 1e10f;
    for (int threads = 1; threads <= 5; threads += 2) {
        pl_threads_set(threads);
        pl_threads_for(threads, multiply_tiny, &t);
        pl_dnn *d = NULL;
        size_t work = 0;
        guarded_block y = guarded_new(ELEMS * sizeof(float));
        bool ok = pl_dnn_conv_prepare(PL_DNN_CONV_FWD, &c, &d, &work) == PL_OK &&
                  dnn_run(d, work, (const void *[]){x, w, NULL}, &y, 1);
        for (int i = 0; i < ELEMS; i++) wrong += !ok || ((float *)y.data)[i] != 0;
        pl_dnn_free(d);
        guarded_free(&y);
        pl_threads_for(threads, multiply_tiny, &t);
    }
    pl_threads_set(before);

    free(x), free(w);
    CHECK_INT(wrong, 0);
    CHECK_INT(t.lost, 0);
}

/* bf16 in and out, sums in f32: against the loops on the rounded inputs. */
TEST(dnn_bf16_matches_loops_or_is_refused)
{
    conv c = dnn_conv2(2, 9, 11, 32, 48, 1, 3, 1, 1, 1, 1);

    c.dtype = PL_BF16;
    for (int kind = 0; kind < 3; kind++) {
        const int64_t nx = 2 * 99 * 32, ny = 2 * 99 * 48, nw = 48 * 9 * 32;
        const int64_t n_out = kind == 0 ? ny : kind == 1 ? nx : nw;
        float *f[3] = {dnn_noise(nx, 1), dnn_noise(nw, 2), dnn_noise(ny, 3)};
        uint16_t *h[3];
        const int64_t size[3] = {nx, nw, ny};
        for (int i = 0; i < 3; i++) {
            h[i] = malloc((size_t)size[i] * 2);
            if (!h[i]) abort();
            for (int64_t j = 0; j < size[i]; j++) {
                h[i][j] = pl_f32_to_bf16(f[i][j]);
                f[i][j] = pl_bf16_to_f32(h[i][j]);
            }
        }
        double *want = calloc((size_t)n_out, sizeof *want), diff = 0, top = 0;
        if (!want) abort();
        dnn_naive_conv((pl_dnn_conv_kind)kind, &c, f[0], f[1], NULL, f[2], want);
        pl_dnn *d = NULL;
        size_t work = 0;
        guarded_block out = guarded_new((size_t)n_out * 2);
        const void *in[3][2] = {{h[0], h[1]}, {h[2], h[1]}, {h[0], h[2]}};
        pl_status s = pl_dnn_conv_prepare((pl_dnn_conv_kind)kind, &c, &d, &work);
        bool ran = s == PL_OK && dnn_run(d, work, in[kind], &out, 1);
        for (int64_t j = 0; j < n_out; j++) {
            double got = (double)pl_bf16_to_f32(((uint16_t *)(void *)out.data)[j]);
            if (!(fabs(got - want[j]) <= diff)) diff = fabs(got - want[j]);
            if (fabs(want[j]) > top) top = fabs(want[j]);
        }
        pl_dnn_free(d);
        for (int i = 0; i < 3; i++) free(f[i]), free(h[i]);
        free(want), guarded_free(&out);
        CHECK(s == PL_OK || s == PL_ERR_UNSUPPORTED);
        if (s == PL_OK) CHECK_MSG(ran && diff / top < 0x1p-8, "kind %d: %g", kind, diff / top);
    }
}

/* A size of a hostile file: oneDNN would divide by zero. */
TEST(dnn_matmul_beyond_32_bits_is_refused)
{
    const pl_dnn_matmul_desc m = {
        .dtype = PL_F32, .batch = 1, .m = 4, .n = (int64_t)1 << 40, .k = 4};
    pl_dnn *d = NULL;
    size_t work;
    CHECK(pl_dnn_matmul_prepare(&m, &d, &work) == PL_ERR_UNSUPPORTED);
    CHECK(!d);
}
