/* test_optim_ops.c - optimizer updates against torch.optim: five steps on six weights.
 *
 * Weights start as sin(0.9*i + 0.1); the gradient of step t is sin(1.3*i + 0.7*t). PyTorch computed
 * the expected weights in f64. Each rule runs in f64 by the reference kernel and in f32 by the
 * fused kernel. */
#include "base/dtype.h"
#include "ops/core/ops.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <string.h>

enum { N = 6, STEPS = 5 };

typedef enum family { ADAM, AMSGRAD, SGD, RMSPROP } family;

typedef struct optim_case {
    const char *name;
    family family;
    pl_adam_opts adam;
    pl_sgd_opts sgd;
    pl_rmsprop_opts rmsprop;
    double want[N];
} optim_case;

#define A(decay, decoupled)          .adam = {0.8, 0.95, 1e-6, decay, decoupled}
#define R(decay, momentum, centered) .rmsprop = {0.9, 1e-6, decay, momentum, centered}
static const optim_case cases[] = {
    {"adam", ADAM, A(0, false),
     .want = {0.0553856326218, 0.824042953541, 0.992704002402, 0.366890742057, -0.542689124267,
              -1.03545920095}},
    {"adam wd", ADAM, A(0.1, false),
     .want = {0.0553086673217, 0.820706006645, 0.99121147402, 0.365870118699, -0.539820269261,
              -1.03366255}},
    {"adamw", ADAM, A(0.1, true),
     .want = {0.054986294644, 0.819919089964, 0.987886907488, 0.365128137922, -0.540064307051,
              -1.03040279072}},
    {"adam ams", AMSGRAD, A(0.1, false),
     .want = {0.0553086673217, 0.820775895443, 0.991027752658, 0.365824933757, -0.539820269261,
              -1.03346854432}},
    {"adamw ams", AMSGRAD, A(0.1, true),
     .want = {0.054986294644, 0.819919089964, 0.987741861398, 0.365119041315, -0.540064307051,
              -1.03022752931}},
    {"sgd", SGD, .sgd = {0, 0, 0.1, false},
     .want = {-0.145249450992, 0.877086637068, 1.18122983966, 0.392213346908, -0.745777964794,
              -1.14805399036}},
    {"sgd mom", SGD, .sgd = {0.9, 0, 0, false},
     .want = {-0.765375494719, 0.646469405371, 1.7071836109, 0.937060631948, -0.968612296863,
              -1.83050770092}},
    {"sgd mom damp wd", SGD, .sgd = {0.9, 0.2, 0.1, false},
     .want = {-0.63943801945, 0.531207671115, 1.45337190376, 0.842075953572, -0.791975047758,
              -1.5993334031}},
    {"sgd nesterov", SGD, .sgd = {0.9, 0, 0.1, true},
     .want = {-0.891297102635, 0.636769714883, 1.73163492255, 0.851566202006, -1.07713222242,
              -1.7424474047}},
    {"rms", RMSPROP, R(0, 0, false),
     .want = {0.0223231163384, 0.846273607741, 1.05610911875, 0.365063105802, -0.584891242813,
              -1.05764480602}},
    {"rms wd", RMSPROP, R(0.1, 0, false),
     .want = {0.0223600138779, 0.838834026041, 1.05451919808, 0.36205621836, -0.580063453992,
              -1.05143775621}},
    {"rms centered", RMSPROP, R(0, 0, true),
     .want = {0.0138542351733, 0.844085869911, 1.06752109365, 0.369453355939, -0.58862957278,
              -1.06468129215}},
    {"rms mom", RMSPROP, R(0.1, 0.7, false),
     .want = {-0.102908960723, 0.779832239911, 1.20122725709, 0.449114081532, -0.599182837688,
              -1.16566173384}},
    {"rms full", RMSPROP, R(0.1, 0.7, true),
     .want = {-0.123499426533, 0.772409559495, 1.22302351409, 0.460491239806, -0.601489890782,
              -1.18280611836}},
};

/* One update as a graph: scalars, gradient, weight and up to three states are inputs; the new
 * values are outputs. */
typedef struct update {
    pl_store *s;
    pl_graph *g;
    pl_val lr, step, scale, grad, in[4], out[4];
} update;

static update update_new(pl_dtype dt)
{
    update u = {.s = pl_store_new()};
    u.g = pl_graph_new(u.s);
    u.lr = pl_input(u.g, "lr", PL_RANK0(dt));
    u.scale = pl_input(u.g, "scale", PL_RANK0(dt));
    u.step = pl_input(u.g, "step", PL_RANK0(PL_I64));
    u.grad = pl_input(u.g, "grad", PL_TYPE(dt, N));
    static const char *const names[4] = {"w", "s0", "s1", "s2"};
    for (int i = 0; i < 4; i++) u.out[i] = u.in[i] = pl_input(u.g, names[i], PL_TYPE(dt, N));
    return u;
}

static void build(update *u, const optim_case *c)
{
    pl_val *w = &u->out[0], *s = &u->out[1];
    if (c->family == ADAM || c->family == AMSGRAD)
        pl_adam(u->g, &c->adam, u->lr, u->step, u->scale, u->grad, w, &s[0], &s[1],
                c->family == AMSGRAD ? &s[2] : NULL);
    if (c->family == SGD)
        pl_sgd(u->g, &c->sgd, u->lr, u->step, u->scale, u->grad, w,
               c->sgd.momentum != 0 ? &s[0] : NULL);
    if (c->family == RMSPROP)
        pl_rmsprop(u->g, &c->rmsprop, u->lr, u->scale, u->grad, w, &s[0], &s[1], &s[2]);
}

/* Five steps; the loss scale halves a doubled gradient. Leaves the weights in w. */
static pl_status run_steps(update *u, double lr, pl_dtype dt, double *w)
{
    graph_eval *e = graph_eval_new(u->g, dt == PL_F64);
    pl_elem_set(dt, graph_eval_at(e, u->lr), 0, lr);
    pl_elem_set(dt, graph_eval_at(e, u->scale), 0, 0.5);
    for (int i = 0; i < N; i++) pl_elem_set(dt, graph_eval_at(e, u->in[0]), i, sin(0.9 * i + 0.1));
    pl_status rc = PL_OK;
    for (int64_t t = 1; t <= STEPS && rc == PL_OK; t++) {
        *(int64_t *)graph_eval_at(e, u->step) = t;
        for (int i = 0; i < N; i++)
            pl_elem_set(dt, graph_eval_at(e, u->grad), i, 2 * sin(1.3 * i + 0.7 * (double)t));
        rc = graph_eval_run(e);
        for (int k = 0; k < 4; k++)
            memcpy(graph_eval_at(e, u->in[k]), graph_eval_at(e, u->out[k]), N * pl_dtype_bytes(dt));
    }
    for (int i = 0; i < N; i++) w[i] = pl_elem_get(dt, graph_eval_at(e, u->in[0]), i);
    graph_eval_free(e);
    return rc;
}

static void free_update(update *u)
{
    pl_graph_free(u->g);
    pl_store_free(u->s);
}

TEST(optimisers_agree_with_pytorch)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 2; t++) {
            pl_dtype dt = t ? PL_F32 : PL_F64;
            double w[N];
            update u = update_new(dt);
            build(&u, &cases[i]);
            CHECK_MSG(pl_graph_status(u.g) == PL_OK, "%s", pl_graph_error(u.g));
            CHECK_OK(run_steps(&u, cases[i].family == SGD ? 0.1 : 0.01, dt, w));
            for (int k = 0; k < N; k++)
                CHECK_MSG(fabs(w[k] - cases[i].want[k]) < (t ? 2e-6 : 1e-10),
                          "%s, weight %d: %.12g, wanted %.12g", cases[i].name, k, w[k],
                          cases[i].want[k]);
            free_update(&u);
        }
}

/* Lion as its paper states it. */
TEST(lion_follows_its_paper)
{
    const pl_lion_opts o = {0.9, 0.99, 0.1};
    double w[N], m[N] = {0}, lr = 0.01;

    for (int i = 0; i < N; i++) w[i] = sin(0.9 * i + 0.1);
    for (int t = 1; t <= STEPS; t++)
        for (int i = 0; i < N; i++) {
            double g = sin(1.3 * i + 0.7 * t), c = o.beta1 * m[i] + (1 - o.beta1) * g;
            w[i] -= lr * ((c > 0) - (c < 0) + o.weight_decay * w[i]);
            m[i] = o.beta2 * m[i] + (1 - o.beta2) * g;
        }
    for (int t = 0; t < 2; t++) {
        pl_dtype dt = t ? PL_F32 : PL_F64;
        double got[N];
        update u = update_new(dt);
        pl_lion(u.g, &o, u.lr, u.scale, u.grad, &u.out[0], &u.out[1]);
        CHECK_INT(pl_graph_status(u.g), PL_OK);
        CHECK_OK(run_steps(&u, lr, dt, got));
        for (int i = 0; i < N; i++) CHECK_NEAR(got[i], w[i], t ? 2e-6 : 1e-12);
        free_update(&u);
    }
}
