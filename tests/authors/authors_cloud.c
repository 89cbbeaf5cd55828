/* authors_cloud.c - cloudML: prediction, one training step, the other losses, the schedule, and the
 * variant with an LSTM. */
#include "recipes/cloud/cloud.h"
#include "tests/authors/authors.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MODEL "constructed.MultimodalRegressionModel."

/* ---- configuration ---------------------------------------------------------------------- */
/* Key with the numbers PATH.i.FIELD of a list of about.json. */
static void list_key(authors *a, authors_keys *k, const char *key, const char *path,
                     const char *field)
{
    char text[256] = "", at[128];
    size_t n = json_array_size(authors_at(a, path)), used = 0;
    for (size_t i = 0; i < n && used < sizeof text; i++) {
        snprintf(at, sizeof at, "%s.%zu.%s", path, i, field);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.17g", i ? "," : "",
                                 authors_number(a, at));
    }
    authors_key(k, "%s=[%s]", key, text);
}

static void sizes(authors *a, authors_keys *k)
{
    pl_type t = {0};
    if (!authors_tensor(a, "in/frames", AUTHORS_PLAIN, &t)) authors_fail(a, "in/frames", "missing");
    authors_key(k, "batch=%lld", (long long)t.dim[0]);
    authors_key(k, "frames=%lld", (long long)authors_int(a, MODEL "temporal_frames"));
    authors_key(k, "height=%lld", (long long)authors_int(a, MODEL "image_shape.1"));
    authors_key(k, "width=%lld", (long long)authors_int(a, MODEL "image_shape.2"));
    authors_key(k, "model.film_hidden=256"); /* a constant of the authors */
    list_key(a, k, "model.channels", MODEL "cnn_layers", "out_channels");
    authors_key(k, "model.dropout_conv=%.17g", authors_number(a, MODEL "cnn_layers.0.dropout"));
    list_key(a, k, "model.dense", MODEL "dense_layers", "size");
    list_key(a, k, "model.dropout_dense", MODEL "dense_layers", "dropout");
    static const char *const attention[] = {"spatial", "temporal"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, MODEL "use_%s_attention", attention[i]);
        authors_key(k, "model.%s_attention=%s", attention[i],
                    json_is_false(authors_at(a, path)) ? "false" : "true");
    }
    authors_key(k, "loss.mining_fraction=%.17g", authors_number(a, "hard_mining.k"));
    authors_key(k, "loss.mining_factor=%.17g", authors_number(a, "hard_mining.factor"));
    authors_key(k, "optim.lr=%.17g", authors_number(a, "optimiser.lr"));
    authors_key(k, "optim.weight_decay=%.17g", authors_number(a, "optimiser.weight_decay"));
    authors_key(k, "optim.eps=%.17g", authors_number(a, "optimiser.eps"));
    authors_key(k, "optim.betas=[%.17g,%.17g]", authors_number(a, "optimiser.betas.0"),
                authors_number(a, "optimiser.betas.1"));
}

static pl_run *open_run(authors *a, const char *file, const char *architecture, bool f64)
{
    authors_keys k = {.a = a};
    sizes(a, &k);
    authors_key(&k, "architecture.name=%s", architecture);
    authors_key(&k, "init_from=%s/%s", a->dir, file);
    return authors_run_open(a, "cloud/tiny", &k, f64);
}

static bool name_of(const pl_run *run, const char *slot, char name[512])
{
    const pl_slot *s = pl_store_slot(run->store, pl_store_find(run->store, slot));
    pl_published to;
    return pl__naming_find(cloud_start.naming, run->config, s, &to) &&
           snprintf(name, 512, "%s", to.name) < 512;
}

/* ---- the network ------------------------------------------------------------------------ */
/* The prediction from io's frames and angles, and its target; NULL: not needed. */
static pl_val predict(authors_net *net, cloud *k, pl_val *target)
{
    pl_nn *m = authors_net_nn(net);
    if (cloud_sizes(authors_net_builder(net), m, k) != PL_OK) return PL_NO_VAL;
    authors_net_feed(net, "frames", "in/frames", AUTHORS_PLAIN);
    authors_net_feed(net, "angles", "in/angles", AUTHORS_PLAIN);
    if (target) *target = authors_net_in(net, "in/target", AUTHORS_PLAIN);
    return pl_nan_to_num(m->g, cloud_predict(k));
}

static void check_eval(authors *a, pl_run *run)
{
    authors_net *net = authors_net_new(a, run, false);
    cloud k;
    authors_net_out(net, "out/eval", AUTHORS_PLAIN, predict(net, &k, NULL));
    authors_net_run(net);
}

/* The LSTM variant: prediction, mean loss and its gradients, without batch statistics. */
static void check_recurrent(authors *a, pl_run *run)
{
    authors_net *net = authors_net_new(a, run, false);
    pl_graph *g = authors_net_nn(net)->g;
    cloud k;
    pl_val target, y = predict(net, &k, &target);
    pl_val loss = pl_mean(g, cloud_error_cost(g, run->config, y, target), PL_AXES_ALL, false);
    authors_net_out(net, "ssm/prediction_eval", AUTHORS_PLAIN, y);
    authors_net_out(net, "ssm/loss_eval", AUTHORS_PLAIN, loss);
    authors_net_gradients(net, loss, "grad_ssm", "*", name_of, AUTHORS_GRADIENT);
    authors_net_run(net);
}

/* ---- the step --------------------------------------------------------------------------- */
typedef void (*feeder)(void *to, const char *input, const char *tensor);

static void feed_draws(authors *a, void *to, feeder feed)
{
    static const char *const kinds[][2] = {{"conv", MODEL "cnn_layers"},
                                           {"dense", MODEL "dense_layers"}};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < json_array_size(authors_at(a, kinds[k][1])); i++) {
            char tensor[64];
            snprintf(tensor, sizeof tensor, "in/%s_keep%zu", kinds[k][0], i + 1);
            const char *name = pl_arena_strdup(&a->mem, tensor);
            feed(to, name + 3, name);
        }
}

static void feed_net(void *to, const char *input, const char *tensor)
{
    authors_net_feed(to, input, tensor, AUTHORS_PLAIN);
}

static void feed_program(void *to, const char *input, const char *tensor)
{
    authors_set(to, input, tensor, AUTHORS_PLAIN);
}

/* What the step computes before its update, with every kind of loss. */
static void check_losses(authors *a, pl_run *run)
{
    static const char *const kinds[][2] = {
        {"step/per_sample", "huber"},
        {"losses/mse_mae", "mse_mae"},
        {"losses/huber_mae", "huber_mae"},
        {"losses/weighted_huber", "weighted_huber"},
        {"losses/weighted_huber_mae", "weighted_huber_mae"},
    };
    authors_net *net = authors_net_new(a, run, true);
    pl_graph *g = authors_net_nn(net)->g;
    cloud k;
    pl_val target, y = predict(net, &k, &target);
    feed_draws(a, net, feed_net);
    authors_net_out(net, "step/prediction", AUTHORS_PLAIN, y);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char type[64];
        snprintf(type, sizeof type, "loss.type=%s", kinds[i][1]);
        const char *const keys[] = {type, "loss.huber_delta=1", "loss.alpha=0.5", "loss.gamma=1.5",
                                    "loss.under_weight=2"};
        pl_run *other = NULL;
        if (pl_run_open("cloud/tiny", keys, 5, &other) == PL_OK)
            authors_net_out(net, kinds[i][0], AUTHORS_PLAIN,
                            cloud_error_cost(g, pl_run_config(other), y, target));
        pl_run_free(other);
    }
    authors_net_run(net);
}

static void check_step(authors *a, pl_run *run, bool changes)
{
    authors_program p = {a, run, NULL};
    double **before = authors_snapshot(a, run);
    pl_type t;
    feed_program(&p, "frames", "in/frames");
    feed_program(&p, "angles", "in/angles");
    feed_program(&p, "target", "in/target");
    feed_draws(a, &p, feed_program);
    if (!authors_run_program(&p)) return;
    if (changes) {
        authors_deltas(a, run, before, "delta", "*", name_of, false);
        return;
    }
    double loss = authors_scalar(&p, "loss"),
           *want = authors_tensor(a, "step/loss", AUTHORS_PLAIN, &t);
    authors_term(a, "step loss", loss, authors_number(a, "loss"), AUTHORS_TERM);
    if (want) authors_term(a, "step/loss", loss, want[0], AUTHORS_TERM);
    authors_gradients(&p, "grad", "*", name_of, AUTHORS_GRADIENT);
    authors_state(a, run, "bn_after", "*", name_of, AUTHORS_OUTPUT);
}

/* ---- the schedule ----------------------------------------------------------------------- */
/* Epochs of one step with the same validation loss: the rates of warm-up W and patience P. */
static void check_rates(authors *a, const char *name, int warmup, int patience)
{
    authors_keys k = {.a = a};
    pl_type t;
    const double *want = authors_tensor(a, name, AUTHORS_PLAIN, &t);
    pl_run *run = NULL;
    double worst = 0;
    authors_key(&k, "seed_compat=true");
    authors_key(&k, "data.samples=4");
    authors_key(&k, "schedule.warmup_steps=%d", warmup - 2);
    authors_key(&k, "schedule.warmup_start=%.17g", 1.0 / (warmup - 1));
    authors_key(&k, "schedule.plateau.factor=0.5");
    authors_key(&k, "schedule.plateau.patience=%d", patience);
    authors_key(&k, "schedule.plateau.min_lr=1e-6");
    authors_key(&k, "optim.lr=%.17g", authors_number(a, "optimiser.lr"));
    pl_status rc = pl_run_open("cloud/tiny", k.text, k.n, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int64_t i = 0; want && i < pl_type_elems(&t) && rc == PL_OK; i++) {
        pl_step_info info;
        rc = pl_run_step(run, &info);
        if (rc == PL_OK) pl_run_plateau(run, 1);
        worst = fmax(worst, rc == PL_OK ? fabs(info.lr - want[i]) / want[i] : (double)INFINITY);
    }
    pl_run_free(run);
    if (rc == PL_OK)
        authors_line(a, name, worst, AUTHORS_TERM, NULL);
    else
        authors_fail(a, name, "%s", pl_error_text());
}

static void check_schedules(authors *a)
{
    for (int i = 0; i < pl_st_count(a->io); i++) {
        int warmup, patience;
        const char *name = pl_st_at(a->io, i)->name;
        if (sscanf(name, "schedule/rates_warmup%d_patience%d", &warmup, &patience) == 2)
            check_rates(a, name, warmup, patience);
    }
}

static void check_round_trip(authors *a, const char *file, const char *architecture)
{
    authors_keys k = {.a = a};
    char path[1200];
    sizes(a, &k);
    authors_key(&k, "architecture.name=%s", architecture);
    snprintf(path, sizeof path, "%s/%s", a->dir, file);
    authors_round_trip(a, "cloud/tiny", &k, path, file);
}

void authors_cloud(authors *a)
{
    check_round_trip(a, authors_text(a, "weights.file"), "transformer");
    check_round_trip(a, "cloud_ssm.pth", "lstm");
    for (int f64 = 0; f64 < 2; f64++) {
        pl_run *run = open_run(a, authors_text(a, "weights.file"), "transformer", f64);
        if (run && !f64) {
            check_eval(a, run);
            check_losses(a, run);
        }
        if (run) check_step(a, run, f64);
        pl_run_free(run);
    }
    pl_run *run = open_run(a, "cloud_ssm.pth", "lstm", false);
    if (run) check_recurrent(a, run);
    pl_run_free(run);
    check_schedules(a);
}
