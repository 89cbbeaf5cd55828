/* test_attention_split.c - attention of f32 on tensor cores, in the simulator: as close to sums in
 * double as the kernel that multiplies in f32, for every output, and the same bits in any order of
 * blocks. Also: masks in the form that cuDNN reads, and queries that see no key.
 *
 * Values use all the bits of an f32, so that a product without its low parts is detected. */
#include "base/dtype.h"
#include "base/err.h"
#include "cublasLt.h"
#include "cuda/attention/attention.h"
#include "ops/core/attr.h"
#include "plan/cost/cost_card.h"
#include "plan/cost/kernel_sizes.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t b, n, m, h, d;
    bool causal;
    double scale; /* 0: the usual one */
    float size;   /* of q and k */
    int64_t room; /* of scratch for gradients of scores; 0: what the kernel takes */
    int spread;   /* binary orders between the tokens of v and of d_o, which f16 does not have */
} shape;

/* Of the simulator: threads and blocks last to first. */
void pl_sim_reverse(bool on);

static uint32_t state;
static float draw(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)(state ^ state >> 15) * 0x1p-31f;
}

enum { Q, K, V, O, LSE, D_O, DQ, DK, DV, COUNT };
typedef struct tensors {
    shape s;
    double scale;
    int64_t len[COUNT];
    float *f[COUNT];  /* by a kernel */
    double *x[COUNT]; /* in double */
} tensors;

static int64_t at(const tensors *t, int64_t b, int64_t i, int64_t h, int64_t tokens)
{
    return ((b * tokens + i) * t->s.h + h) * t->s.d;
}

static double dot(const double *a, const double *b, int64_t d)
{
    double s = 0;
    for (int64_t i = 0; i < d; i++) s += a[i] * b[i];
    return s;
}

static void one_query(tensors *t, int64_t b, int64_t h, int64_t i)
{
    const shape *s = &t->s;
    int64_t qi = at(t, b, i, h, s->n), li = (b * s->h + h) * s->n + i,
            m = s->causal && i + 1 < s->m ? i + 1 : s->m;
    double top = -HUGE_VAL, z = 0, delta;
    for (int64_t j = 0; j < m; j++) {
        double x = t->scale * dot(t->x[Q] + qi, t->x[K] + at(t, b, j, h, s->m), s->d);
        if (x > top) top = x;
    }
    for (int64_t j = 0; j < m; j++) {
        int64_t kj = at(t, b, j, h, s->m);
        double p = exp(t->scale * dot(t->x[Q] + qi, t->x[K] + kj, s->d) - top);
        z += p;
        for (int64_t c = 0; c < s->d; c++) t->x[O][qi + c] += p * t->x[V][kj + c];
    }
    for (int64_t c = 0; c < s->d; c++) t->x[O][qi + c] /= z;
    t->x[LSE][li] = top + log(z);
    delta = dot(t->x[O] + qi, t->x[D_O] + qi, s->d);
    for (int64_t j = 0; j < m; j++) {
        int64_t kj = at(t, b, j, h, s->m);
        double p = exp(t->scale * dot(t->x[Q] + qi, t->x[K] + kj, s->d) - t->x[LSE][li]);
        double ds = p * (dot(t->x[D_O] + qi, t->x[V] + kj, s->d) - delta) * t->scale;
        for (int64_t c = 0; c < s->d; c++) {
            t->x[DQ][qi + c] += ds * t->x[K][kj + c];
            t->x[DK][kj + c] += ds * t->x[Q][qi + c];
            t->x[DV][kj + c] += p * t->x[D_O][qi + c];
        }
    }
}

static tensors tensors_new(const shape *s)
{
    tensors t = {.s = *s, .scale = s->scale != 0 ? s->scale : 1 / sqrt((double)s->d)};
    for (int i = 0; i < COUNT; i++) {
        bool key = i == K || i == V || i == DK || i == DV;
        t.len[i] = i == LSE ? s->b * s->h * s->n : s->b * (key ? s->m : s->n) * s->h * s->d;
        t.f[i] = calloc((size_t)t.len[i] + 4, sizeof(float));
        t.x[i] = calloc((size_t)t.len[i] + 4, sizeof(double));
        for (int64_t e = 0; e < t.len[i]; e++) {
            int64_t token = e / (s->h * s->d) % 4;
            t.f[i][e] =
                i == Q || i == K ? draw() * s->size : ldexpf(draw(), s->spread * (int)(token - 2));
            t.x[i][e] = i == Q || i == K || i == V || i == D_O ? (double)t.f[i][e] : 0;
        }
    }
    for (int64_t r = 0; r < s->b * s->h * s->n; r++)
        one_query(&t, r / s->n / s->h, r / s->n % s->h, r % s->n);
    return t;
}

static void tensors_free(tensors *t)
{
    for (int i = 0; i < COUNT; i++) free(t->f[i]), free(t->x[i]);
}

static void *scratch_new(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64) != 0) abort();
    memset(p, 0xff, bytes + 64);
    return p;
}

static void scratch_free(void *p, size_t bytes)
{
    for (size_t i = 0; i < 64; i++)
        if (((unsigned char *)p)[bytes + i] != 0xff) {
            pl_test_fail(__FILE__, __LINE__, "attention writes past its scratch");
            break;
        }
    free(p);
}

/* Runs one op by the kernel of that name. */
static void run(tensors *t, const char *op, const char *name, const int *in, int n_in,
                const int *out, int n_out)
{
    pl_type types[COUNT];
    pl_attention_attr attr = {t->s.scale, t->s.causal};
    pl_type in_type[8], out_type[4];
    const void *ip[8];
    void *op_at[4];
    for (int i = 0; i < COUNT; i++) {
        bool key = i == K || i == V || i == DK || i == DV;
        int64_t wide[4] = {t->s.b, key ? t->s.m : t->s.n, t->s.h, t->s.d},
                sums[3] = {t->s.b, t->s.h, t->s.n};
        types[i] = i == LSE ? pl_type_make(PL_F32, 3, sums) : pl_type_make(PL_F32, 4, wide);
    }
    for (int i = 0; i < n_in; i++) in_type[i] = types[in[i]], ip[i] = t->f[in[i]];
    for (int i = 0; i < n_out; i++) {
        out_type[i] = types[out[i]], op_at[i] = t->f[out[i]];
        memset(op_at[i], 0xff, sizeof(float) * (size_t)t->len[out[i]]);
    }
    pl_call c = {.in_type = in_type,
                 .out_type = out_type,
                 .in = ip,
                 .out = op_at,
                 .n_in = n_in,
                 .n_out = n_out,
                 .attr = &attr};
    const pl_kernel *k = pl_cuda_kernels_of(op);
    while (k->name && strcmp(k->name, name) != 0) k++;
    if (!k->name || !k->accepts(&c)) {
        pl_test_fail(__FILE__, __LINE__, "%s: kernel %s does not take it", op, name);
        return;
    }
    size_t bytes = 0;
    CHECK_INT(k->prepare ? k->prepare(&c, &c.prep, &bytes) : PL_OK, PL_OK);
    c.work = scratch_new(bytes);
    if (k->run(&c) != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "%s, kernel %s: %s", op, name, pl_error_text());
    scratch_free(c.work, bytes);
}

/* Backward by parts of a head's queries: the workspace is smaller than any kernel asks for. */
static void run_in_room(tensors *t)
{
    pl_attend a = {.batch = t->s.b,
                   .n = t->s.n,
                   .m = t->s.m,
                   .heads = t->s.h,
                   .d = t->s.d,
                   .row = t->s.h * t->s.d,
                   .step = t->s.d,
                   .scale = t->scale,
                   .causal = t->s.causal,
                   .dtype = PL_F32,
                   .lse_type = PL_F32,
                   .d_lse_type = PL_F32,
                   .q = t->f[Q],
                   .k = t->f[K],
                   .v = t->f[V],
                   .o = t->f[O],
                   .lse = t->f[LSE],
                   .d_o = t->f[D_O],
                   .out = {t->f[DQ], t->f[DK], t->f[DV]},
                   .room = t->s.room};
    size_t bytes = pl_attend_split_bwd_work(&a);
    for (int i = DQ; i <= DV; i++) memset(t->f[i], 0xff, sizeof(float) * (size_t)t->len[i]);
    a.work = scratch_new(bytes);
    if (pl_attend_split_bwd(&a) != PL_OK) pl_test_fail(__FILE__, __LINE__, "%s", pl_error_text());
    scratch_free(a.work, bytes);
}

static void both_ways(tensors *t, const char *name)
{
    static const int forward[] = {Q, K, V}, sums[] = {O, LSE}, back[] = {Q, K, V, O, LSE, D_O},
                     grads[] = {DQ, DK, DV};
    run(t, "attention", name, forward, 3, sums, 2);
    if (t->s.room && strcmp(name, "split") == 0)
        run_in_room(t);
    else
        run(t, "attention_bwd", name, back, 6, grads, 3);
}

/* Root of the mean square, and the largest, of errors relative to the largest value. */
static double error_of(const tensors *t, int i, double *largest)
{
    double sum = 0, most = 1e-30;
    *largest = 0;
    for (int64_t e = 0; e < t->len[i]; e++) {
        double off = fabs((double)t->f[i][e] - t->x[i][e]);
        sum += off * off;
        if (!(off <= *largest)) *largest = off;
        if (fabs(t->x[i][e]) > most) most = fabs(t->x[i][e]);
    }
    *largest /= most;
    return sqrt(sum / (double)t->len[i]) / most;
}

static void check_shape(const shape *s)
{
    static const char *const names[COUNT] = {"q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv"};
    static const int outs[] = {O, LSE, DQ, DK, DV};
    tensors t = tensors_new(s);
    double plain[COUNT], most[COUNT];
    float *first[COUNT];
    both_ways(&t, "f32");
    for (int k = 0; k < 5; k++) plain[outs[k]] = error_of(&t, outs[k], &most[outs[k]]);
    pl_sim_split(true);
    both_ways(&t, "split");
    for (int k = 0; k < 5; k++) {
        int i = outs[k];
        double worst, mean = error_of(&t, i, &worst);
        if (getenv("PL_TEST_VERBOSE"))
            printf("b%d n%d m%d h%d d%d %-3s f32 %.2e %.2e split %.2e %.2e\n", (int)s->b, (int)s->n,
                   (int)s->m, (int)s->h, (int)s->d, names[i], plain[i], most[i], mean, worst);
        CHECK_MSG(mean <= 2 * plain[i] + 2e-8 && worst <= 2 * most[i] + 6e-8,
                  "n%d m%d d%d: %s is %.2e off, at most %.2e; in f32 %.2e and %.2e", (int)s->n,
                  (int)s->m, (int)s->d, names[i], mean, worst, plain[i], most[i]);
        first[i] = malloc(sizeof(float) * (size_t)t.len[i]);
        memcpy(first[i], t.f[i], sizeof(float) * (size_t)t.len[i]);
    }
    pl_sim_reverse(true);
    if (t.len[Q] < 300) both_ways(&t, "split");
    pl_sim_reverse(false);
    pl_sim_split(false);
    for (int k = 0; k < 5; k++) {
        int i = outs[k];
        CHECK_MSG(memcmp(first[i], t.f[i], sizeof(float) * (size_t)t.len[i]) == 0,
                  "%s has other bits with blocks in reverse", names[i]);
        free(first[i]);
    }
    tensors_free(&t);
}

TEST(cuda_attention_split_is_as_exact_as_f32)
{
    static const shape list[] = {{1, 5, 7, 3, 3, false, 0, 2, 0, 0},
                                 {1, 40, 21, 1, 33, false, 0, 3, 0, 0},
                                 {1, 70, 70, 1, 32, true, 0, 2, 0, 0},
                                 {1, 33, 67, 1, 64, false, 0, 4, 0, 0},
                                 {1, 17, 19, 1, 100, false, -0.2, 1, 0, 0},
                                 {2, 150, 10, 1, 16, false, 0, 2, 4 * 128 * 10, 0},
                                 {1, 19, 35, 1, 32, false, 0, 2, 0, 20}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check_shape(&list[i]);
}

/* Long sums; several slices of queries; causal tiles of both sides. */
TEST(cuda_attention_split_of_long_sequences_is_exact)
{
    static const shape list[] = {{1, 64, 1024, 1, 64, false, 0, 2, 0, 0},
                                 {1, 600, 77, 1, 64, false, 0, 2, 0, 0},
                                 {1, 300, 300, 2, 40, true, 0, 2, 0, 0},
                                 {1, 257, 140, 1, 128, true, 0, 2, 0, 0},
                                 {2, 130, 270, 1, 16, false, 0, 2, 0, 0},
                                 {1, 301, 270, 2, 24, true, 0, 2, 4 * 130 * 270, 3}};
    for (size_t i = 0; pl_test_long() && i < sizeof list / sizeof *list; i++) check_shape(&list[i]);
}

/* f32 as TF32: errors of 11 bits, whatever the size of each tensor; the same bits in any order of
 * blocks. */
static void check_tf32(const shape *s, float large)
{
    static const int outs[] = {O, LSE, DQ, DK, DV};
    uint32_t before = state;
    tensors t = tensors_new(s);
    float *first[COUNT];
    state = before; /* other tests draw as if this one did not exist */
    for (int64_t e = 0; e < t.len[D_O]; e++) t.f[D_O][e] *= large;
    pl_sim_tf32(true);
    both_ways(&t, "tf32");
    for (int k = 0; k < 5; k++) {
        int i = outs[k];
        double worst, mean;
        for (int64_t e = 0; i >= DQ && e < t.len[i]; e++) t.x[i][e] *= (double)large;
        mean = error_of(&t, i, &worst);
        if (getenv("PL_TEST_VERBOSE")) printf("tf32 %d: %.2e %.2e\n", i, mean, worst);
        CHECK_MSG(mean <= 4e-4 && worst <= 4e-3, "n%d m%d d%d: output %d is %.2e off, at most %.2e",
                  (int)s->n, (int)s->m, (int)s->d, i, mean, worst);
        first[i] = malloc(sizeof(float) * (size_t)t.len[i]);
        memcpy(first[i], t.f[i], sizeof(float) * (size_t)t.len[i]);
    }
    pl_sim_reverse(true);
    if (t.len[Q] < 300) both_ways(&t, "tf32");
    pl_sim_reverse(false);
    pl_sim_tf32(false);
    for (int k = 0; k < 5; k++) {
        int i = outs[k];
        CHECK_MSG(memcmp(first[i], t.f[i], sizeof(float) * (size_t)t.len[i]) == 0,
                  "output %d has other bits with blocks in reverse", i);
        free(first[i]);
    }
    tensors_free(&t);
}

TEST(cuda_attention_as_tf32_keeps_eleven_bits_at_any_size)
{
    static const struct {
        shape s;
        float large; /* factor of the gradient */
    } list[] = {{{1, 5, 7, 3, 3, false, 0, 2, 0, 0}, 1},
                {{1, 40, 21, 1, 33, false, 0, 3e-5f, 0, 0}, 1e-9f},
                {{1, 70, 70, 1, 32, true, 0, 2, 0, 0}, 1e6f},
                {{2, 20, 19, 1, 100, false, 1e-7, 3e3f, 0, 3}, 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check_tf32(&list[i].s, list[i].large);
}

/* A result that depends on a non-finite number is not finite, and no other result changes. */
TEST(cuda_attention_split_passes_on_what_is_not_finite)
{
    static const shape s = {1, 5, 7, 2, 8, false, 0, 2, 0, 0};
    tensors t = tensors_new(&s);
    t.f[V][at(&t, 0, 3, 1, s.m) + 2] = INFINITY; /* token 3 of head 1, seen by all queries */
    t.f[Q][at(&t, 0, 1, 0, s.n)] = NAN;          /* query 1 of head 0 */
    pl_sim_split(true);
    both_ways(&t, "split");
    pl_sim_split(false);
    for (int64_t i = 0; i < s.n; i++)
        for (int64_t c = 0; c < s.h * s.d; c++) {
            bool bad = c >= s.d || i == 1;
            CHECK_MSG(!isfinite(t.f[O][i * s.h * s.d + c]) == bad, "o of query %d, number %d",
                      (int)i, (int)c);
            CHECK_MSG(!isfinite(t.f[DQ][i * s.h * s.d + c]) == bad, "dq of query %d, number %d",
                      (int)i, (int)c);
        }
    tensors_free(&t);
}

/* Planning for a GPU that is not in this machine knows how many heads are processed at a time. */
TEST(attention_split_scratch_is_what_a_profile_expects)
{
    static const int64_t shapes[][5] = {
        /* batch, queries, keys, heads, d */
        {1, 64, 64, 1, 32},       {2, 4096, 4096, 16, 64}, {2, 4096, 512, 16, 64},
        {6, 1024, 77, 8, 40},     {2, 4096, 4096, 5, 64},  {2, 9216, 9216, 8, 128},
        {1, 40000, 40000, 2, 64}, {3, 100, 70000, 4, 96},  {2, 256, 256, 12, 20}};
    const pl_card *card = pl_card_find("h200");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        pl_attend a = {
            .batch = s[0], .n = s[1], .m = s[2], .heads = s[3], .d = s[4], .dtype = PL_F32};
        double pairs = (double)(s[0] * s[3]) * (double)s[1] * (double)s[2], d = (double)s[4];
        pl_cost c = {pairs * (4 * d + 12), 0, PL_WORK_ATTENTION, (double)s[1], (double)s[2], d};
        pl_cost b = {pairs * (10 * d + 12), 0, PL_WORK_ATTENTION_BACK, (double)s[1],
                     (double)s[2],          d};
        uint64_t fwd = pl_card_workspace(card, &c, PL_F32, PL_CARD_SPLIT);
        uint64_t bwd = pl_card_workspace(card, &b, PL_F32, PL_CARD_SPLIT);
        CHECK_MSG(fwd == pl_attend_split_work(&a) && bwd == pl_attend_split_bwd_work(&a),
                  "shape %zu: %llu and %llu bytes, not %zu and %zu", i, (unsigned long long)fwd,
                  (unsigned long long)bwd, pl_attend_split_work(&a), pl_attend_split_bwd_work(&a));
        CHECK_INT(pl_card_workspace(card, &c, PL_F32, PL_CARD_TF32), pl_attend_tf32_work(&a));
        size_t rounded = pl_attend_tf32_bwd_work(&a), sums = pl_attend_tf32_wgmma_bwd_work(&a);
        bool warpgroups = s[1] * s[2] >= PL_ATTEND_WGMMA_PAIRS && s[4] > 32 && s[4] % 8 == 0;
        uint64_t back = pl_card_workspace(card, &b, PL_F32, PL_CARD_TF32);
        if (!warpgroups || sums <= (size_t)PL_ATTEND_DNN_SCRATCH)
            CHECK_INT(back, warpgroups && sums > rounded ? sums : rounded);
        else /* in slices of some batches, which a cost does not distinguish from heads */
            CHECK(back >= rounded && back < sums && back >= (uint64_t)PL_ATTEND_DNN_SCRATCH);
    }
}

/* ---- masks for cuDNN (cuda/attention/attention_masked.cu) ------------------------------------ */
enum { B = 2, H = 3, N = 5, M = 11, ROW = 16 };

/* Bit i of `dims`: the mask has the whole dim i of [B,H,N,M], else 1. */
static pl_attend masked(unsigned dims, pl_dtype type, const void *from)
{
    pl_attend a;
    memset(&a, 0, sizeof a);
    a.batch = B, a.heads = H, a.n = N, a.m = M, a.d = 8;
    a.dtype = PL_BF16;
    a.masked = true;
    int64_t step = 1;
    a.mask.at = from;
    a.mask.type = type;
    if (dims & 8) a.mask.key = step, step *= M;
    if (dims & 4) a.mask.query = step, step *= N;
    if (dims & 2) a.mask.head = step, step *= H;
    if (dims & 1) a.mask.batch = step;
    return a;
}

TEST(attention_masks_are_spread_for_cudnn)
{
    static float number[B * H * N * M], to[B * H * N * ROW + 1];
    static unsigned char seen[B * H * N * M];
    for (int i = 0; i < B * H * N * M; i++) {
        number[i] = i % 7 == 3 ? -INFINITY : 0.25f * (float)(i % 13);
        seen[i] = i % 3 != 0;
    }
    for (unsigned dims = 0; dims < 16; dims++)
        for (int is_bool = 0; is_bool < 2; is_bool++) {
            pl_attend a =
                masked(dims, is_bool ? PL_BOOL : PL_F32, is_bool ? (void *)seen : (void *)number);
            int64_t heads = dims & 2 ? H : 1, tables = heads * (dims & 1 ? B : 1);
            for (size_t i = 0; i < sizeof to / sizeof *to; i++) to[i] = 77;
            CHECK_OK(pl_attend_mask_spread(&a, to, ROW));
            for (int64_t t = 0; t < tables; t++)
                for (int64_t i = 0; i < N; i++)
                    for (int64_t j = 0; j < ROW; j++) {
                        int64_t from = t / heads * a.mask.batch + t % heads * a.mask.head +
                                       i * a.mask.query + j * a.mask.key;
                        float want = 0;
                        if (j < M && is_bool) want = seen[from] ? 0 : -2e30f;
                        if (j < M && !is_bool) want = fmaxf(number[from], -2e30f);
                        CHECK_NEAR(to[(t * N + i) * ROW + j], want, 0);
                    }
            CHECK_NEAR(to[tables * N * ROW], 77, 0);
        }
}

TEST(attention_queries_without_keys_are_zeroed)
{
    static float lse[B * H * N];
    static uint16_t o[B * N * H * 8];
    pl_attend a = masked(15, PL_BOOL, NULL);
    for (int i = 0; i < B * H * N; i++) lse[i] = i % 4 == 1 ? -2e30f : i % 4 == 2 ? -500 : 1.5f;
    for (int i = 0; i < B * N * H * 8; i++) o[i] = 0x3f80;
    a.out[0] = o;
    a.out[1] = lse;
    CHECK_OK(pl_attend_hide(&a));
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < N; i++) {
                int row = (b * H + h) * N + i;
                float kept = row % 4 == 2 ? -500 : 1.5f;
                CHECK_NEAR(lse[row], row % 4 == 1 ? 0 : kept, 0);
                for (int e = 0; e < 8; e++)
                    CHECK_INT(o[((b * N + i) * H + h) * 8 + e], row % 4 == 1 ? 0 : 0x3f80);
            }
}
