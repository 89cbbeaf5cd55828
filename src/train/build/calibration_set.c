/* calibration_set.c - a fixed set of small networks whose kernels fill the table of kernel times.
 *
 * Each case is a whole training step of a common block, so that kernels find their operands as warm
 * or cold in the caches as in training, and fused groups are those of real networks. Sizes range
 * from kernels that only cost their launch to those bound by memory or arithmetic.
 */
#include "base/sys.h"
#include "plimsoll_nn.h"
#include "rt/calibrate.h"
#include "train/run/run.h"

typedef pl_val block_fn(pl_nn *m, const int *a);

static pl_val operand(pl_nn *m, pl_type t)
{
    return pl_nn_param(m, "x", t.rank, t.dim, pl_nn_normal(0, 1));
}

/* batch, height, width, channels in, out, kernel, stride */
static pl_val conv_block(pl_nn *m, const int *a)
{
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1], a[2], a[3]));
    pl_nn_conv o = {.kernel = a[5], .stride = a[6], .pad = a[5] / 2};
    x = pl_nn_conv2d(m, x, "conv", a[4], o);
    return pl_relu(m->g, pl_nn_batch_norm(m, x, "norm", (pl_nn_norm){0}));
}

/* batch, height, width, channels, kernel */
static pl_val depthwise_block(pl_nn *m, const int *a)
{
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1], a[2], a[3]));
    pl_nn_conv o = {.kernel = a[4], .pad = a[4] / 2, .groups = a[3]};
    x = pl_nn_conv2d(m, x, "conv", a[3], o);
    return pl_silu(m->g, pl_nn_group_norm(m, x, "norm", a[3] / 8, (pl_nn_norm){0}));
}

/* batch, height, width, channels: downsampling and upsampling */
static pl_val pyramid_block(pl_nn *m, const int *a)
{
    pl_graph *g = m->g;
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1], a[2], a[3]));
    pl_pool_opts pool = {.kernel = {2, 2}, .stride = {2, 2}};
    pl_val low = pl_max_pool(g, x, &pool), mean = pl_avg_pool(g, x, &pool);
    pl_val up =
        pl_resize(g, pl_add(g, low, mean), (const int64_t[]){a[1], a[2]}, PL_RESIZE_LINEAR, false);
    pl_val near = pl_nn_upsample_nearest(g, low, 2);
    return pl_concat(g, 3, (const pl_val[]){x, up, near}, 3);
}

/* rows, in, out */
static pl_val linear_block(pl_nn *m, const int *a)
{
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1]));
    x = pl_nn_linear(m, pl_nn_layer_norm(m, x, "norm", (pl_nn_norm){0}), "linear", a[2],
                     (pl_nn_lin){0});
    return pl_mul(m->g, pl_gelu(m->g, x), pl_softmax(m->g, x, 1));
}

/* batch, tokens, heads, width of a head */
static pl_val attention_block(pl_nn *m, const int *a)
{
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1], (int64_t)a[2] * a[3]));
    return pl_nn_multi_head_attention(m, x, x, "attention", a[2]);
}

/* rows, width: sort, gather, random numbers */
static pl_val pick_block(pl_nn *m, const int *a)
{
    pl_graph *g = m->g;
    pl_val x = operand(m, PL_TYPE(PL_F32, a[0], a[1])), sorted, order;
    pl_sort(g, x, 1, true, &sorted, &order);
    pl_val picked = pl_take(g, x, pl_argmax(g, x, 1));
    pl_val noisy = pl_add(g, x, pl_random_normal(g, pl_nn_key(m), pl_val_type(g, x)));
    pl_val turned = pl_transpose(g, noisy, 0, 1);
    return pl_add(g, pl_mul(g, sorted, pl_nn_dropout(m, picked, 0.1)),
                  pl_transpose(g, pl_cumsum(g, turned, 1, false), 0, 1));
}

typedef struct calibration_case {
    block_fn *build;
    int a[7];
} calibration_case;

/* clang-format off */
static const calibration_case cases[] = {
    {conv_block, {1, 8, 8, 4, 4, 3, 1}},        {conv_block, {2, 16, 16, 8, 8, 3, 1}},
    {conv_block, {4, 32, 32, 3, 16, 3, 1}},     {conv_block, {4, 32, 32, 16, 16, 3, 1}},
    {conv_block, {2, 64, 64, 16, 32, 3, 1}},    {conv_block, {2, 64, 64, 32, 64, 3, 1}},
    {conv_block, {4, 16, 16, 64, 64, 3, 1}},    {conv_block, {2, 16, 16, 128, 128, 3, 1}},
    {conv_block, {4, 8, 8, 256, 256, 3, 1}},    {conv_block, {2, 32, 32, 64, 128, 3, 2}},
    {conv_block, {1, 128, 128, 3, 32, 3, 1}},   {conv_block, {1, 128, 128, 64, 3, 3, 1}},
    {conv_block, {4, 32, 32, 64, 64, 1, 1}},    {conv_block, {4, 16, 16, 256, 64, 1, 1}},
    {conv_block, {2, 32, 32, 16, 64, 1, 1}},    {conv_block, {2, 110, 160, 32, 64, 3, 1}},
    {conv_block, {1, 64, 64, 64, 64, 4, 2}},    {conv_block, {2, 64, 64, 32, 32, 7, 2}},
    {depthwise_block, {2, 16, 16, 32, 3}},      {depthwise_block, {4, 32, 32, 64, 3}},
    {depthwise_block, {2, 64, 64, 64, 5}},      {depthwise_block, {2, 16, 16, 256, 3}},
    {pyramid_block, {1, 8, 8, 8}},              {pyramid_block, {2, 32, 32, 16}},
    {pyramid_block, {2, 64, 64, 64}},           {pyramid_block, {4, 128, 128, 32}},
    {linear_block, {4, 16, 16}},                {linear_block, {8, 64, 64}},
    {linear_block, {64, 64, 256}},              {linear_block, {64, 256, 256}},
    {linear_block, {256, 256, 1024}},           {linear_block, {256, 1024, 256}},
    {linear_block, {1024, 256, 256}},           {linear_block, {1024, 512, 512}},
    {linear_block, {4096, 64, 64}},             {linear_block, {4096, 256, 256}},
    {linear_block, {256, 1024, 1024}},          {linear_block, {2048, 512, 2048}},
    {attention_block, {1, 16, 2, 16}},          {attention_block, {2, 64, 4, 32}},
    {attention_block, {1, 256, 4, 64}},         {attention_block, {4, 256, 8, 32}},
    {attention_block, {1, 1024, 8, 64}},        {pick_block, {4, 16}},
    {pick_block, {64, 256}},                    {pick_block, {256, 4096}},
};
/* clang-format on */

static pl_status build(const calibration_case *c, pl_store *store, pl_program **out)
{
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_optim o = PL_OPTIM_INIT;
    pl_status rc = PL_ERR_MEMORY;
    if (g && m) {
        pl_val y = c->build(m, c->a);
        pl_optim_apply(m, pl_mean(g, pl_square(g, y), PL_AXES_ALL, false), &o, NULL);
        rc = pl_nn_finish(m);
    }
    pl_nn_free(m);
    if (rc == PL_OK) return pl_compile(g, NULL, out);
    pl_graph_free(g);
    return rc;
}

static pl_status time_program(pl_session *s, pl_program *p, int *units)
{
    enum { WARM = 2, LEAST = 5, MOST = 32, BUDGET_NS = 80000000 };
    pl_measure *m = NULL;
    pl_status rc = PL_OK;
    for (int i = 0; i < WARM && rc == PL_OK; i++) rc = pl_session_run(s, p);
    if (rc == PL_OK) rc = pl_measure_new(s, MOST, &m);
    uint64_t begin = pl_sys_now_ns();
    for (int n = 0; rc == PL_OK && n < MOST && (n < LEAST || pl_sys_now_ns() - begin < BUDGET_NS);
         n++) {
        rc = pl_session_run(s, p);
        pl_measure_take(m);
    }
    if (rc == PL_OK) rc = pl_measure_save(m, units);
    pl_measure_free(m);
    return rc;
}

static pl_status run_case(const calibration_case *c, int *units)
{
    pl_store *store = pl_store_new();
    pl_program *p = NULL;
    pl_session *s = NULL;
    pl_status rc = store ? build(c, store, &p) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl_session_new(store, 1, &p, &s);
    if (rc == PL_OK) pl_session_init(s, 1);
    if (rc == PL_OK) rc = time_program(s, p, units);
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
    return rc;
}

pl_status pl_calibrate(pl_calibrate_fn progress, void *ctx, int *units)
{
    int total = (int)(sizeof cases / sizeof cases[0]), sum = 0;
    for (int i = 0; i < total; i++) {
        int n = 0;
        if (progress) progress(ctx, i, total);
        PL_TRY(run_case(&cases[i], &n));
        sum += n;
    }
    if (progress) progress(ctx, total, total);
    if (units) *units = sum;
    return PL_OK;
}
