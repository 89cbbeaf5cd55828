/* test_optim.c - schedules and optimizers against tables that PyTorch 2 computed; averages,
 * decay groups, accumulation and loss scaling against arithmetic in this file. */
#include "plimsoll_optim.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

/* ---- learning rates --------------------------------------------------------------------- */
enum { STEPS = 12 };
static const struct {
    const char *name;
    pl_lr lr;
    double want[STEPS];
} schedules[] = {
    {"constant", {.lr = 0.5}, {.5, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5}},
    {"linear",
     {.kind = PL_LR_LINEAR, .lr = 0.5, .start_factor = 0.25, .end_factor = 1, .total = 5},
     {0.125, 0.2, 0.275, 0.35, 0.425, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}},
    {"cosine",
     {.kind = PL_LR_COSINE, .lr = 0.5, .eta_min = 0.05, .total = 10},
     {0.5, 0.4889877162, 0.4570288237, 0.4072516818, 0.3445288237, 0.275, 0.2054711763,
      0.1427483182, 0.09297117627, 0.06101228383, 0.05, 0.06101228383}},
    {"step",
     {.kind = PL_LR_STEP, .lr = 0.5, .step_size = 3, .gamma = 0.1},
     {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005, 0.0005, 0.0005}},
    {"exponential",
     {.kind = PL_LR_EXPONENTIAL, .lr = 0.5, .gamma = 0.9},
     {0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845, 0.215233605, 0.1937102445,
      0.1743392201, 0.156905298}},
    {"one cycle",
     {.kind = PL_LR_ONE_CYCLE,
      .lr = 0.5,
      .total = 12,
      .pct_start = 0.3,
      .div_factor = 8,
      .final_div_factor = 100},
     {0.0625, 0.203680181, 0.4449867262, 0.4972111969, 0.466548218, 0.4059901099, 0.3239091826,
      0.2316533298, 0.1419771539, 0.06727861075, 0.01788496089, 0.000625}},
    {"warm-up, cosine",
     {.kind = PL_LR_COSINE,
      .lr = 0.5,
      .eta_min = 0.05,
      .total = 8,
      .warmup = 4,
      .warmup_start = 0.1},
     {0.05, 0.1625, 0.275, 0.3875, 0.5, 0.4828728948, 0.4340990258, 0.3611037723, 0.275,
      0.1888962277, 0.1159009742, 0.06712710518}},
    {"step of epochs",
     {.kind = PL_LR_STEP, .lr = 0.5, .step_size = 2, .gamma = 0.1, .every = 2},
     {0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.005}},
};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

TEST(optim_schedules_on_the_host_match_pytorch)
{
    for (int i = 0; i < N_SCHEDULES; i++)
        for (int n = 0; n < STEPS; n++)
            CHECK_MSG(fabs(pl_lr_at(&schedules[i].lr, n, 0) - schedules[i].want[n]) < 1e-9,
                      "%s at %d: %g", schedules[i].name, n, pl_lr_at(&schedules[i].lr, n, 0));
}

TEST(optim_schedules_in_the_graph_match_pytorch)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val step = pl_input(g, "step", PL_RANK0(PL_I64));

    for (int i = 0; i < N_SCHEDULES; i++)
        pl_output(g, pl_nn_name(m, "lr%d", i), pl_lr_value(m, &schedules[i].lr, step));
    pl_lr cut = {.lr = 0.5, .plateau = true, .plateau_factor = 0.5, .plateau_min = 0.1};
    pl_output(g, "cut", pl_lr_value(m, &cut, step));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    lab *l = lab_new(s);
    lab_add(l, g);
    CHECK_OK(lab_open(l));
    char name[16];
    for (int n = 0; n < STEPS; n++) {
        *(int64_t *)lab_input(l, 0, "step", NULL) = n;
        ((double *)lab_slot(l, pl_plateau_slot(s)))[0] = n;
        CHECK_OK(lab_run(l, 0));
        for (int i = 0; i < N_SCHEDULES; i++) {
            snprintf(name, sizeof name, "lr%d", i);
            double got = (double)*(const float *)lab_output(l, 0, name, NULL);
            CHECK_MSG(fabs(got - schedules[i].want[n]) < 1e-7, "%s at %d: %g", schedules[i].name, n,
                      got);
        }
        CHECK_NEAR(*(const float *)lab_output(l, 0, "cut", NULL), pl_lr_at(&cut, n, n), 1e-7);
    }
    lab_free(l);
    pl_store_free(s);
}

TEST(optim_plateau_lowers_the_rate_as_pytorch_does)
{
    static const double metric[20] = {3,   2, 2.1, 1.999, 2.2, 2.3, 1.5, 1.6, 1.7, 1.8,
                                      1.9, 2, 2,   2,     2,   2,   2,   2,   2,   2};
    static const double want[20] = {.5,   .5,   .5,   .5,  .25, .25, .25, .25, .25, .125,
                                    .125, .125, .125, .07, .07, .07, .07, .07, .07, .07};
    pl_plateau p = {.patience = 2, .cooldown = 1, .threshold = 1e-2};
    pl_lr lr = {.lr = 0.5, .plateau = true, .plateau_factor = 0.5, .plateau_min = 0.07};
    double state[4] = {0};
    for (int i = 0; i < 20; i++) {
        double before = state[0];
        bool cut = pl_plateau_step(&p, state, metric[i]);
        CHECK(cut == (state[0] > before));
        CHECK_NEAR(pl_lr_at(&lr, 0, (int64_t)state[0]), want[i], 1e-12);
    }
}

/* ---- optimisers ------------------------------------------------------------------------- */
static const float first[4] = {1, -2, 0.5f, 3}, slope[4] = {1, 0.5f, 2, 0.1f};

/* sum((w*c)^2) + 0.1*sum(w^3) of slot "w" */
static pl_val toy_loss(pl_nn *m)
{
    pl_graph *g = m->g;
    pl_val w = pl_nn_param(m, "w", PL_DIMS(4), pl_nn_constant(0));
    pl_val c = pl_input(g, "c", PL_TYPE(PL_F32, 4));
    pl_val a = pl_sum(g, pl_square(g, pl_mul(g, w, c)), PL_AXES_ALL, false);
    pl_val b = pl_sum(g, pl_mul(g, w, pl_square(g, w)), PL_AXES_ALL, false);
    return pl_add(g, a, pl_scale(g, b, 0.1));
}

typedef struct toy {
    pl_store *store;
    lab *lab;
} toy;

static void toy_free(toy *t)
{
    lab_free(t->lab);
    pl_store_free(t->store);
}

static pl_status toy_open(toy *t, const pl_optim *o)
{
    t->store = pl_store_new();
    t->lab = lab_new(t->store);
    pl_graph *g = pl_graph_new(t->store);
    pl_nn *m = pl_nn_new(g, true);
    pl_optim_report r;
    pl_optim_apply(m, toy_loss(m), o, &r);
    pl_output(g, "lr", r.lr);
    if (pl_val_ok(r.grad_norm)) pl_output(g, "grad_norm", r.grad_norm);
    pl_status rc = pl_nn_finish(m);
    pl_nn_free(m);
    lab_add(t->lab, g);
    if (rc == PL_OK) rc = lab_open(t->lab);
    if (rc == PL_OK) memcpy(lab_slot(t->lab, pl_store_find(t->store, "w")), first, sizeof first);
    return rc;
}

static pl_status toy_step(toy *t, int program)
{
    float *c = lab_input(t->lab, program, "c", NULL);
    if (c) memcpy(c, slope, sizeof slope);
    return lab_run(t->lab, program);
}

static const float *toy_slot(toy *t, const char *name)
{
    int slot = pl_store_find(t->store, name);
    return slot < 0 ? NULL : lab_slot(t->lab, slot);
}

/* Four steps, then the weights. */
static void run_optimiser(const char *name, pl_optim o, const double want[4])
{
    toy t;
    CHECK_OK(toy_open(&t, &o));
    for (int i = 0; i < 4; i++) CHECK_OK(toy_step(&t, 0));
    const float *w = toy_slot(&t, "w");
    for (int i = 0; i < 4; i++)
        CHECK_MSG(fabs((double)w[i] - want[i]) < 2e-6 * fmax(1, fabs(want[i])),
                  "%s: w[%d] = %.9g, wanted %.9g", name, i, (double)w[i], want[i]);
    CHECK_INT(*(const int64_t *)(const void *)toy_slot(&t, "optim.step"), 4);
    toy_free(&t);
}

static pl_optim base(pl_optim_kind kind)
{
    pl_optim o = PL_OPTIM_INIT;
    o.kind = kind;
    o.lr.lr = 0.05;
    o.weight_decay = 0.02;
    return o;
}

TEST(optim_kinds_match_pytorch)
{
    pl_optim o = base(PL_OPTIM_SGD);

    o.momentum = 0.9;
    o.dampening = 0.1;
    run_optimiser("sgd", o, (double[]){0.180600375, -2.07126307, -0.404695779, 1.94190979});
    o.dampening = o.weight_decay = 0;
    o.nesterov = true;
    run_optimiser("nesterov", o, (double[]){0.0246164296, -2.1342268, -0.176080674, 1.67382371});
    o = base(PL_OPTIM_ADAM);
    run_optimiser("adam", o, (double[]){0.800864398, -2.20030665, 0.302011251, 2.80043459});
    o = base(PL_OPTIM_ADAMW);
    o.clip_norm = 0.7;
    run_optimiser("adamw", o, (double[]){0.79608959, -2.1915257, 0.298770785, 2.78790832});
    o = base(PL_OPTIM_ADAMW);
    o.amsgrad = true;
    o.beta1 = 0;
    o.beta2 = 0.9;
    run_optimiser("amsgrad", o, (double[]){0.8047207, -2.21171021, 0.314329177, 2.79324269});
    o = base(PL_OPTIM_LION);
    o.beta2 = 0.95;
    run_optimiser("lion", o, (double[]){0.796305776, -2.19171214, 0.29830274, 2.78831816});
    o = base(PL_OPTIM_RMSPROP);
    o.alpha = 0.95;
    o.momentum = 0.9;
    o.centered = true;
    run_optimiser("rmsprop", o, (double[]){-0.322905689, -3.97627974, -0.443741202, 1.50600791});
    pl_optim_kind k;

    CHECK(pl_optim_parse("lion", &k) && k == PL_OPTIM_LION && !pl_optim_parse("no", &k));
}

TEST(optim_reports_norm_and_rate)
{
    pl_optim o = base(PL_OPTIM_SGD);
    o.clip_norm = 1e9; /* the norm is measured, the limit never reached */
    toy t;
    CHECK_OK(toy_open(&t, &o));
    CHECK_OK(toy_step(&t, 0));
    double norm = 0;
    for (int i = 0; i < 4; i++) {
        double w = (double)first[i], c = (double)slope[i], d = 2 * c * c * w + 0.3 * w * w;
        norm += d * d;
    }
    CHECK_NEAR(*(const float *)lab_output(t.lab, 0, "grad_norm", NULL), sqrt(norm), 1e-6);
    CHECK_NEAR(*(const float *)lab_output(t.lab, 0, "lr", NULL), 0.05, 1e-9);
    toy_free(&t);
}

/* In an f64 program the norm and the clipping factor are f64: rounding them to f32 would move
 * the weights by 1e-8. */
TEST(optim_clips_in_the_gradients_own_type)
{
    static const double w[3] = {0.1, -0.7, 1.3};
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);

    m->dtype = PL_F64;
    pl_val p = pl_nn_param(m, "w", PL_DIMS(3), pl_nn_constant(1));
    pl_optim o = PL_OPTIM_INIT;
    o.kind = PL_OPTIM_SGD;
    o.lr.lr = 0.5;
    o.weight_decay = 0;
    o.clip_norm = 0.7;
    o.skip_nonfinite = true;
    pl_optim_report r;
    pl_optim_apply(m, pl_sum(g, pl_square(g, p), PL_AXES_ALL, false), &o, &r);
    CHECK_INT(pl_val_type(g, r.grad_norm).dtype, PL_F32); /* under the name in reports and logs */
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    toy t = {.store = s, .lab = lab_new(s)};
    lab_add(t.lab, g);
    CHECK_OK(lab_open(t.lab));
    double *now = lab_slot(t.lab, pl_store_find(s, "w"));
    memcpy(now, w, sizeof w);
    CHECK_OK(lab_run(t.lab, 0));
    double norm = 2 * sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2]);
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(now[i], w[i] - 0.5 * 2 * w[i] * 0.7 / (norm + 1e-6), 1e-15);
    toy_free(&t);
}

/* Averages start at the weights, whatever their slots contained. */
TEST(optim_ema_follows_the_weights)
{
    pl_optim o = base(PL_OPTIM_SGD);
    o.ema = 0.75;
    toy t;
    CHECK_OK(toy_open(&t, &o));
    float *ema = lab_slot(t.lab, pl_store_find(t.store, "ema.w"));
    ema[0] = 1000;
    double want = (double)first[0];
    for (int i = 0; i < 3; i++) {
        CHECK_OK(toy_step(&t, 0));
        want = 0.75 * want + 0.25 * (double)toy_slot(&t, "w")[0];
        CHECK_NEAR(ema[0], want, 1e-6);
    }
    toy_free(&t);
}

/* A weight without a gradient is moved by weight decay only. */
TEST(optim_decay_moves_only_weights_of_its_group)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val a = pl_nn_param(m, "a.weight", PL_DIMS(2), pl_nn_constant(1));
    pl_val b = pl_nn_param(m, "a.bias", PL_DIMS(2), pl_nn_constant(1));

    CHECK_INT(pl_nn_set_decay(s, "*.bias", false), 1);
    pl_val loss = pl_scale(g, pl_sum(g, pl_add(g, a, b), PL_AXES_ALL, false), 0);
    pl_optim o = base(PL_OPTIM_ADAMW);
    pl_optim_apply(m, loss, &o, NULL);
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    toy t = {.store = s, .lab = lab_new(s)};
    lab_add(t.lab, g);
    CHECK_OK(lab_open(t.lab));
    float one[2] = {1, 1};
    memcpy(lab_slot(t.lab, pl_store_find(s, "a.weight")), one, sizeof one);
    memcpy(lab_slot(t.lab, pl_store_find(s, "a.bias")), one, sizeof one);
    CHECK_OK(lab_run(t.lab, 0));

    CHECK_NEAR(toy_slot(&t, "a.weight")[1], 1 - 0.05 * 0.02, 1e-7);
    CHECK_NEAR(toy_slot(&t, "a.bias")[1], 1, 0);
    toy_free(&t);
}

/* Two halves of the loss in two micro-batches equal one step with the whole loss. */
TEST(optim_accumulation_is_one_step)
{
    pl_optim o = base(PL_OPTIM_ADAMW);

    o.clip_norm = 0.7;
    toy one, two = {.store = pl_store_new()};
    CHECK_OK(toy_open(&one, &o));
    two.lab = lab_new(two.store);
    for (int i = 0; i < 2; i++) {
        pl_graph *g = pl_graph_new(two.store);
        pl_nn *m = pl_nn_new(g, true);
        pl_grads grads;
        if (i == 0) {
            pl_optim_gradients(m, pl_scale(g, toy_loss(m), 0.5), &o, &grads);
            pl_optim_accumulate(m, &grads);
        } else {
            pl_optim_accumulated(m, &o, &grads);
            CHECK_INT(grads.n, 1);
            pl_optim_update(m, &grads, &o, NULL);
        }
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab_add(two.lab, g);
    }
    CHECK_OK(lab_open(two.lab));
    memcpy(lab_slot(two.lab, pl_store_find(two.store, "w")), first, sizeof first);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(toy_step(&one, 0));
        CHECK_OK(toy_step(&two, 0));
        CHECK_OK(toy_step(&two, 0));
        CHECK_OK(toy_step(&two, 1));
        for (int k = 0; k < 4; k++)
            CHECK_NEAR(toy_slot(&two, "w")[k], toy_slot(&one, "w")[k], 1e-7);
        CHECK_NEAR(toy_slot(&two, "accum.w")[2], 0, 0);
    }
    toy_free(&one);
    toy_free(&two);
}

/* A scaled loss gives the same step; a non-finite gradient changes nothing but the scale. */
TEST(optim_loss_scale_leaves_the_step_the_same)
{
    pl_optim o = base(PL_OPTIM_ADAMW);
    pl_loss_scale scaling = {.initial = 8, .growth = 2, .backoff = 0.5, .floor = 2, .interval = 2};
    toy plain, t = {.store = pl_store_new()};

    CHECK_OK(toy_open(&plain, &o));
    pl_graph *g = pl_graph_new(t.store);
    pl_nn *m = pl_nn_new(g, true);
    pl_optim_report r;
    o.loss_scale = pl_loss_scale_read(m, &scaling);
    o.skip_nonfinite = true;
    pl_optim_apply(m, toy_loss(m), &o, &r);
    pl_loss_scale_update(m, &scaling, r.finite);
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    t.lab = lab_new(t.store);
    lab_add(t.lab, g);
    CHECK_OK(lab_open(t.lab));
    float *scale = lab_slot(t.lab, pl_store_find(t.store, "scale.value"));
    memcpy(lab_slot(t.lab, pl_store_find(t.store, "w")), first, sizeof first);
    *scale = 8;
    static const float want[] = {8, 16, 8, 4, 2, 2};
    for (int i = 0; i < 6; i++) {
        float *c = lab_input(t.lab, 0, "c", NULL);
        memcpy(c, slope, sizeof slope);
        if (i >= 2) c[1] = INFINITY;
        CHECK_OK(lab_run(t.lab, 0));
        if (i < 2) CHECK_OK(toy_step(&plain, 0));
        CHECK_NEAR(*scale, want[i], 0);
        for (int k = 0; k < 4; k++)
            CHECK_NEAR(toy_slot(&t, "w")[k], toy_slot(&plain, "w")[k], 1e-6);
        CHECK_INT(*(const int64_t *)(const void *)toy_slot(&t, "optim.step"), i < 2 ? i + 1 : 2);
    }
    toy_free(&plain);
    toy_free(&t);
}
