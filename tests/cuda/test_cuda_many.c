/* test_cuda_many.c - optimizer updates of the CUDA plug-in, in the simulator: many weights in
 * one launch give the bits of one launch per weight, a skipped step changes nothing, and
 * launches that touch each other's bytes stay separate. */
#include "base/dtype.h"
#include "cuda/ops/many.h"
#include "ops/core/attr.h"
#include "rt/device.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 90, ROOM = 1400, IN = 8, OUT = 4 };

/* An update with its operands: for every other one, w and the states are updated in place. */
typedef struct job {
    float lr, other_lr, grad[ROOM], w[ROOM], s[3][ROOM], w_out[ROOM], s_out[3][ROOM];
    pl_type in_type[IN], out_type[OUT];
    const void *in[IN];
    void *out[OUT];
    pl_optim_attr attr;
    pl_call call;
} job;

typedef struct shared {
    float scale;
    int64_t step;
    job jobs[N];
} shared;

static int64_t size_of(int i)
{
    return i == 7 ? 0 : i == 8 ? 1301 : 1 + i * 37 % 211;
}

/* i decides size, types and where the outputs are. */
static void make(shared *h, int i, int scalars, int states, float scale)
{
    static const pl_dtype grads[] = {PL_F32, PL_F16, PL_F32, PL_BF16, PL_F32, PL_F64};
    job *j = &h->jobs[i];
    uint64_t seed = 5 + (uint64_t)i;
    pl_dtype g = grads[i % 6], w = i % 11 == 3 ? PL_BF16 : PL_F32;
    pl_type t = PL_TYPE(w, size_of(i)), tg = PL_TYPE(g, size_of(i));
    memset(j, 0, sizeof *j);
    h->scale = scale;
    h->step = 3;
    j->lr = 0.01f * (float)(1 + i % 7);
    j->attr = (pl_optim_attr){.beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .momentum = 0.9,
                              .alpha = 0.9,
                              .weight_decay = i % 2 ? 0.1 : 0,
                              .decoupled = i % 17 != 4};
    int64_t n = size_of(i);
    for (int64_t e = 0; e < n / (g == PL_F64 ? 2 : 1); e++)
        pl_elem_set(g, j->grad, e, pl_test_noise(&seed));
    for (int64_t e = 0; e < n; e++) {
        pl_elem_set(w, j->w, e, pl_test_noise(&seed));
        for (int k = 0; k < 3; k++) pl_elem_set(w, j->s[k], e, fabs(pl_test_noise(&seed)));
    }
    pl_type scalar = {.dtype = PL_F32};
    int at = 0;
    j->in_type[at] = scalar, j->in[at++] = i % 5 == 2 ? &h->jobs[0].lr : &j->lr;
    j->in_type[at] = scalar, j->in[at++] = &h->scale;
    if (scalars == 3) j->in_type[at] = (pl_type){.dtype = PL_I64}, j->in[at++] = &h->step;
    j->in_type[at] = tg, j->in[at++] = j->grad;
    j->in_type[at] = t, j->in[at++] = j->w;
    for (int k = 0; k < states; k++) j->in_type[at] = t, j->in[at++] = j->s[k];
    j->out_type[0] = t, j->out[0] = i % 2 ? j->w : j->w_out;
    for (int k = 0; k < states; k++)
        j->out_type[1 + k] = t, j->out[1 + k] = i % 2 ? j->s[k] : j->s_out[k];
    j->call = (pl_call){.in_type = j->in_type,
                        .out_type = j->out_type,
                        .in = j->in,
                        .out = j->out,
                        .attr = &j->attr,
                        .n_in = at,
                        .n_out = 1 + states};
}

static shared many, alone, before;

static void compare(const char *op, const shared *a, const shared *b, bool kept)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < a->jobs[i].call.n_out; k++) {
            size_t bytes = pl_type_bytes(&a->jobs[i].out_type[k]);
            const void *want =
                kept ? (k ? (const void *)b->jobs[i].s[k - 1] : b->jobs[i].w) : b->jobs[i].out[k];
            if (memcmp(a->jobs[i].out[k], want, bytes) != 0)
                pl_test_fail(__FILE__, __LINE__, "%s: weight %d, output %d: other bits", op, i, k);
        }
}

static void check_rule(const char *op, int scalars, int states)
{
    const float scales[] = {0.5f, NAN, INFINITY};
    const uint32_t no_number = 0x7fa12345u; /* stays this one */
    const pl_kernel *k = pl_cuda_kernels_of(op);
    const pl_call *calls[PL_CUDA_MANY];
    CHECK(k && pl_cuda_many_of(k));
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < N; i++) {
            make(&many, i, scalars, states, scales[c]);
            make(&alone, i, scalars, states, scales[c]);
            make(&before, i, scalars, states, scales[c]);
            memcpy(many.jobs[i].w, &no_number, 4);
            memcpy(alone.jobs[i].w, &no_number, 4);
            memcpy(before.jobs[i].w, &no_number, 4);
            calls[i] = &many.jobs[i].call;
        }
        CHECK_OK(pl_cuda_many_of(k)(calls, N));
        for (int i = 0; i < N; i++) CHECK_OK(k->run(&alone.jobs[i].call));
        compare(op, &many, &alone, false);
        if (c) compare(op, &many, &before, true);
    }
}

TEST(cuda_many_updates_have_the_bits_of_single_ones)
{
    check_rule("adam", 3, 2);
    check_rule("adam_max", 3, 3);
    check_rule("sgd", 3, 0);
    check_rule("sgd_momentum", 3, 1);
    check_rule("sgd_nesterov", 3, 1);
    check_rule("lion", 2, 1);
    check_rule("rmsprop", 2, 1);
    check_rule("rmsprop_full", 2, 3);
}

TEST(cuda_many_does_not_join_launches_that_share_memory)
{
    const pl_exec adam = {.kernel = pl_cuda_kernels_of("adam")},
                  cumsum = {.kernel = pl_cuda_kernels_of("cumsum")};
    pl_bound_unit l[12] = {0};
    const pl_call *calls[PL_CUDA_MANY];
    int n;

    for (int i = 0; i < 12; i++) {
        make(&many, 10 + i, 3, 2, 1);
        l[i] = (pl_bound_unit){.exec = &adam, .call = many.jobs[10 + i].call};
    }
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 12);
    CHECK_INT(n, 12);

    l[3] = l[4] = (pl_bound_unit){0}; /* nothing to do there */
    l[11] = (pl_bound_unit){0};
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 11);
    CHECK_INT(n, 9);
    CHECK(calls[3] == &l[5].call);

    l[8].exec = &cumsum;
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 8);
    CHECK_INT(pl_cuda_together(l + 8, 4, calls, &n), 1);
    CHECK_INT(n, 0);

    /* the output of one in the bytes that another one's gradient frees */
    many.jobs[10 + 6].out[0] = many.jobs[10 + 1].grad;
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 6);
    CHECK_INT(n, 4);

    /* a gradient that an earlier update writes */
    many.jobs[10 + 2].in[3] = many.jobs[10 + 1].w;
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 2);
    l[1] = (pl_bound_unit){.bytes = 4};
    CHECK_INT(pl_cuda_together(l, 12, calls, &n), 1);
    CHECK_INT(n, 1);
}

/* Sums of squares of many tensors, of several types, sizes and alignments, have the bits of single
 * calls. */
TEST(cuda_many_sums_of_squares_are_those_of_one_tensor)
{
    enum { TENSORS = 130, MOST = 3 * PL_SQUARES_CHUNK };
    static const pl_dtype types[] = {PL_F32, PL_BF16, PL_F64, PL_F16};
    static _Alignas(16) char x[8 * (MOST + 16)];
    static double one[TENSORS][4], all[TENSORS][4];
    static pl_type in[TENSORS], out[TENSORS];
    static pl_call call[TENSORS];
    const void *from[TENSORS];
    void *to[TENSORS];
    const pl_call *calls[TENSORS];
    const pl_kernel *k = pl_cuda_kernels_of("sum_squares");
    uint64_t seed = 11;
    for (int64_t i = 0; i < MOST + 16; i++) pl_elem_set(PL_F32, x, i, pl_test_noise(&seed));
    memset(one, 1, sizeof one);
    memset(all, 2, sizeof all);
    CHECK(k && pl_cuda_many_of(k));
    for (int i = 0; i < TENSORS; i++) {
        pl_dtype d = types[i % 4];
        int64_t n = i == 3 ? 0 : i == 5 ? MOST - 7 : 1 + i * 97;
        in[i] = PL_TYPE(d, n);
        out[i] = PL_TYPE(d == PL_F64 ? PL_F64 : PL_F32, pl_squares_chunks(n));
        from[i] = d == PL_F32 ? x + 4 * (i % 3) : x;
        to[i] = one[i];
        call[i] = (pl_call){.in_type = &in[i],
                            .out_type = &out[i],
                            .in = &from[i],
                            .out = &to[i],
                            .n_in = 1,
                            .n_out = 1};
        calls[i] = &call[i];
        CHECK_OK(k->run(&call[i]));
        to[i] = all[i];
    }
    CHECK_OK(pl_cuda_many_of(k)(calls, TENSORS));
    for (int i = 0; i < TENSORS; i++) {
        CHECK(memcmp(one[i], all[i], pl_type_bytes(&out[i])) == 0);
        for (int64_t c = 0; i % 4 == 0 && c < out[i].dim[0]; c++) {
            double sum = 0;
            for (int64_t e = c * PL_SQUARES_CHUNK;
                 e < in[i].dim[0] && e < (c + 1) * PL_SQUARES_CHUNK; e++)
                sum += pl_elem_get(PL_F32, from[i], e) * pl_elem_get(PL_F32, from[i], e);
            CHECK_NEAR(((const float *)all[i])[c], sum, 1e-5 * sum);
        }
    }
}
