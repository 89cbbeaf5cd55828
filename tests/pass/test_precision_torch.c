/* test_precision_torch.c - a small network in mixed precision has the losses and loss scales of
 * PyTorch's GradScaler. */
#include "nn/nn.h"
#include "plimsoll_optim.h"
#include "tests/lib/test.h"

/* ---- PyTorch ---------------------------------------------------------------------------- */
/* Linear 16-32, ReLU, Linear 32-1, mean square error in f32, SGD 0.02 with momentum 0.9, under
 * autocast(float16) with GradScaler(init_scale=1024, growth_interval=3), PyTorch 2.15 on a CPU. The
 * inputs of steps 5 and 6 are 60,000 times larger and overflow on the way back. Loss, scale used,
 * sum of the first weight after the step. */
static const double torch[12][3] = {
    {0.5573115, 1024, 0.9946875}, {0.6508138, 1024, 0.9994208}, {0.1783613, 1024, 1.006208},
    {0.5160326, 2048, 1.01751},   {4.06772e+07, 2048, 1.01751}, {3.868548e+07, 1024, 1.01751},
    {0.3538733, 512, 1.029019},   {0.3147545, 512, 1.038659},   {0.4938343, 512, 1.047822},
    {0.3632938, 1024, 1.05624},   {1.258342, 1024, 1.056924},   {0.5123765, 1024, 0.9196887},
};

static void wave(float *to, int n, double k, double by)
{
    for (int i = 0; i < n; i++) to[i] = (float)(sin(i * 12.9898 * k + k) * 0.5 * by);
}

static void build_mlp(pl_nn *m, const pl_loss_scale *scale)
{
    pl_graph *g = m->g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 8, 16)),
           y = pl_input(g, "y", PL_TYPE(PL_F32, 8, 1));
    pl_val h = pl_relu(g, pl_nn_linear(m, x, "a", 32, (pl_nn_lin){0}));
    pl_val loss = pl_loss_mse(g, pl_nn_linear(m, h, "b", 1, (pl_nn_lin){0}), y);
    pl_optim o = PL_OPTIM_INIT;
    o.kind = PL_OPTIM_SGD;
    o.lr.lr = 0.02;
    o.momentum = 0.9;
    o.weight_decay = 0;
    o.skip_nonfinite = true;
    o.loss_scale = pl_loss_scale_read(m, scale);
    pl_optim_report r;
    pl_optim_apply(m, loss, &o, &r);
    pl_loss_scale_update(m, scale, r.finite);
    pl_output(g, "loss", loss);
    pl_output(g, "scale", o.loss_scale);
}

TEST(precision_losses_and_scales_agree_with_pytorch)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_loss_scale scale = PL_LOSS_SCALE_INIT;

    scale.initial = 1024;
    scale.interval = 3;
    build_mlp(m, &scale);
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    pl_compile_opts o = PL_COMPILE_INIT;
    o.precision = PL_PRECISION_FP16;
    pl_program *p;
    pl_session *s;
    CHECK_OK(pl_compile(g, &o, &p));
    CHECK_OK(pl_session_new(store, 1, &p, &s));
    pl_session_init(s, 1);
    wave(pl_session_slot(s, pl_store_find(store, "a.weight")), 512, 1, 0.6);
    wave(pl_session_slot(s, pl_store_find(store, "a.bias")), 32, 2, 0.1);
    wave(pl_session_slot(s, pl_store_find(store, "b.weight")), 32, 3, 0.6);
    *(float *)pl_session_slot(s, pl_store_find(store, "b.bias")) = 0;
    for (int i = 0; i < 12; i++) {
        wave(pl_session_input(s, p, "x", NULL), 128, 4 + i, i == 4 || i == 5 ? 2 * 60000.0 : 2);
        wave(pl_session_input(s, p, "y", NULL), 8, 20 + i, 2);
        CHECK_OK(pl_session_run(s, p));
        double loss = (double)*(const float *)pl_session_output(s, p, "loss", NULL), sum = 0;
        const float *w = pl_session_slot(s, pl_store_find(store, "a.weight"));
        for (int k = 0; k < 512; k++) sum += (double)w[k];
        CHECK_NEAR(loss, torch[i][0], 2e-3 * torch[i][0]);
        CHECK_NEAR(*(const float *)pl_session_output(s, p, "scale", NULL), torch[i][1], 0);
        CHECK_NEAR(sum, torch[i][2], 1e-3);
    }
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
}
