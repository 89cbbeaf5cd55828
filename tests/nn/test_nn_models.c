/* test_nn_models.c - initial values, names and sharing of parameters, state that a forward pass
 * changes, sizes of whole models, and a gradient of a gradient (R1). */
#include "tests/lib/lab.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "tests/workloads/workloads.h"

#include <string.h>

static const pl_nn_lin lin;
static const pl_nn_norm norm;

/* ---- initial values --------------------------------------------------------------------- */
TEST(nn_inits_match_pytorch)
{
    pl_init i =
        pl_nn_init_of(pl_nn_kaiming_normal(PL_FAN_OUT, pl_nn_gain("leaky_relu", 0.01)), 27, 576);

    CHECK(i.kind == PL_INIT_NORMAL);
    CHECK_NEAR(i.b, sqrt(2 / (1 + 1e-4)) / 24, 1e-12);
    i = pl_nn_init_of(pl_nn_xavier_uniform(1), 8, 24);
    CHECK(i.kind == PL_INIT_UNIFORM);
    CHECK_NEAR(i.b, sqrt(6.0 / 32), 1e-12);
    CHECK_NEAR(i.a, -i.b, 0);

    i = pl_nn_init_of(pl_nn_xavier_normal(2), 8, 24);
    CHECK_NEAR(i.b, 2 * sqrt(2.0 / 32), 1e-12);
    i = pl_nn_init_of(pl_nn_kaiming_uniform(PL_FAN_IN, pl_nn_gain("relu", 0)), 6, 24);
    CHECK_NEAR(i.b, 1.0, 1e-12);

    i = pl_nn_init_of((pl_nn_init){0}, 16, 3);
    CHECK_NEAR(i.b, 0.25, 1e-12);
}

/* Initial values that a session writes have the bounds and the standard deviation of the rule. */
TEST(nn_initial_weights_follow_their_rule)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 8, 8, 16));

    x = pl_nn_conv2d(m, x, "conv", 32, work_conv3());
    x = pl_nn_conv_transpose2d(m, x, "up", 8, (pl_nn_conv){4, 2, 1});
    x = pl_nn_linear(m, x, "fc", 64, (pl_nn_lin){.init = pl_nn_xavier_normal(1)});
    pl_output(g, "y", pl_sum(g, pl_nn_batch_norm(m, x, "norm", norm), PL_AXES_ALL, false));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p;
    pl_session *ss;
    CHECK_OK(pl_compile(g, &o, &p));
    CHECK_OK(pl_session_new(s, 1, &p, &ss));
    pl_session_init(ss, 7);
    static const struct {
        const char *name;
        double bound, std; /* bound 0: none */
    } want[] = {{"conv.weight", 1.0 / 12, 1.0 / 12 / 1.7320508},
                {"conv.bias", 1.0 / 12, 0},
                {"up.weight", 0.08838834764831845, 0.08838834764831845 / 1.7320508}, /* fan 8*16 */
                {"fc.weight", 0, 0.16666666666}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int slot = pl_store_find(s, want[i].name);
        CHECK(slot >= 0);
        const float *w = pl_session_slot(ss, slot);
        int64_t n = pl_type_elems(&pl_store_slot(s, slot)->type);
        double sum = 0, most = 0;
        for (int64_t k = 0; k < n; k++) {
            sum += (double)w[k] * (double)w[k];
            most = fmax(most, fabs((double)w[k]));
        }
        if (want[i].bound > 0) CHECK(most <= want[i].bound && most > 0.8 * want[i].bound);
        if (want[i].std > 0) CHECK_NEAR(sqrt(sum / (double)n), want[i].std, 0.1 * want[i].std);
    }

    CHECK(((const float *)pl_session_slot(ss, pl_store_find(s, "norm.running_var")))[3] == 1.0f);
    pl_session_free(ss);
    pl_program_free(p);
    pl_store_free(s);
}

/* ---- names, sharing, errors ------------------------------------------------------------- */
TEST(nn_patterns_match_names_as_documented)
{
    CHECK(pl_nn_match(NULL, "anything"));
    CHECK(pl_nn_match("a.*,b.*", "b.c.weight"));
    CHECK(!pl_nn_match("a.*,b.*", "c.weight"));
    CHECK(!pl_nn_match("*,!*.bias", "a.bias"));
    CHECK(pl_nn_match("!*.bias", "a.weight"));
    CHECK(pl_nn_match("a.* , b.weight", "b.weight") && pl_nn_match(" a.* , b", "a.x"));
    CHECK(pl_nn_match("*.?.weight", "x.1.weight"));
    CHECK(!pl_nn_match("", "a"));
    CHECK(pl_nn_match("*a*b*c", "xxaybbzc"));
}

TEST(nn_same_name_shares_and_errors_are_kept)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, true);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 6));

    pl_nn_push(m, "net.%d", 3);
    pl_val a = pl_nn_linear(m, x, "fc", 6, lin);
    int n = pl_store_count(s);
    a = pl_nn_linear(m, a, "fc", 6, lin);
    CHECK_INT(pl_store_count(s), n);
    CHECK(pl_store_find(s, "net.3.fc.weight") >= 0);
    CHECK(!pl_val_ok(pl_nn_conv2d(m, a, "conv", 6, work_conv3())));

    pl_nn_pop(m);
    CHECK_INT(pl_nn_finish(m), PL_ERR_SHAPE);
    CHECK_MSG(strstr(pl_error_text(), "net.3") && strstr(pl_error_text(), "conv"), "%s",
              pl_error_text());
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(s);
}

/* ---- state that a forward pass changes -------------------------------------------------- */
/* Means 1 and 3 in two calls, momentum 0.5, from 0: one update after another gives 0.5 then
 * 1.75; one update with the average gives half of 2. */
TEST(nn_batch_norm_called_twice_moves_its_mean_twice_or_averages)
{
    for (int average = 0; average < 2; average++) {
        pl_store *s = pl_store_new();
        pl_graph *g = pl_graph_new(s);
        pl_nn *m = pl_nn_new(g, true);
        m->bn_average = average;
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4, 1)), part[2];
        pl_split(g, x, 0, 2, part);
        for (int i = 0; i < 2; i++)
            pl_output(g, pl_nn_name(m, "y%d", i),
                      pl_nn_batch_norm(m, part[i], "norm", (pl_nn_norm){.momentum = 0.5}));
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab *l = lab_new(s);
        lab_add(l, g);
        CHECK_OK(lab_open(l));
        memcpy(lab_input(l, 0, "x", NULL), (float[]){0, 2, 2, 4}, 4 * sizeof(float));
        CHECK_OK(lab_run(l, 0));
        float mean = *(float *)lab_slot(l, pl_store_find(s, "norm.running_mean"));
        CHECK_NEAR(mean, average ? 1.0 : 1.75, 1e-6);
        CHECK_INT(*(int64_t *)lab_slot(l, pl_store_find(s, "norm.num_batches_tracked")), 2);
        lab_free(l);
        pl_store_free(s);
    }
}

/* Each run draws other masks, because the key advances; nothing is drawn outside training. */
TEST(nn_dropout_moves_the_key)
{
    enum { N = 400 };
    pl_store *s = pl_store_new();
    lab *l = lab_new(s);

    for (int training = 0; training < 2; training++) {
        pl_graph *g = pl_graph_new(s);
        pl_nn *m = pl_nn_new(g, training == 1);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, N));
        pl_output(g, "y", pl_shift(g, pl_nn_dropout(m, x, 0.25), 0));
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab_add(l, g);
    }
    CHECK_OK(lab_open(l));
    float seen[3][N];
    for (int run = 0; run < 3; run++) {
        float *x = lab_input(l, run > 0, "x", NULL);
        for (int i = 0; i < N; i++) x[i] = 1;
        CHECK_OK(lab_run(l, run > 0));
        memcpy(seen[run], lab_output(l, run > 0, "y", NULL), sizeof seen[run]);
    }
    int kept = 0, differ = 0;
    for (int i = 0; i < N; i++) {
        CHECK(seen[0][i] == 1);
        CHECK(seen[1][i] == 0 || fabsf(seen[1][i] - 4.0f / 3) < 1e-6f);
        kept += seen[1][i] != 0;
        differ += seen[1][i] != seen[2][i];
    }

    CHECK(kept > N * 0.65 && kept < N * 0.85);
    CHECK(differ > N / 5);
    CHECK_INT(((int64_t *)lab_slot(l, pl_store_find(s, "rng")))[1], 2);
    lab_free(l);
    pl_store_free(s);
}

/* Stochastic depth keeps or drops whole samples, and does nothing outside training. */
TEST(nn_drop_path_drops_whole_samples)
{
    enum { N = 400, WIDTH = 3 };
    pl_store *s = pl_store_new();
    lab *l = lab_new(s);
    for (int training = 0; training < 2; training++) {
        pl_graph *g = pl_graph_new(s);
        pl_nn *m = pl_nn_new(g, training == 1);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, N, WIDTH));
        pl_output(g, "y", pl_shift(g, pl_nn_drop_path(m, x, 0.25), 0));
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        lab_add(l, g);
    }
    CHECK_OK(lab_open(l));

    static float seen[2][N * WIDTH];
    for (int training = 0; training < 2; training++) {
        float *x = lab_input(l, training, "x", NULL);
        for (int i = 0; i < N * WIDTH; i++) x[i] = 1;
        CHECK_OK(lab_run(l, training));
        memcpy(seen[training], lab_output(l, training, "y", NULL), sizeof seen[training]);
    }

    const float *same = seen[0], *y = seen[1];
    int kept = 0;
    for (int i = 0; i < N; i++) {
        kept += y[i * WIDTH] != 0;
        for (int k = 0; k < WIDTH; k++) {
            CHECK(same[i * WIDTH + k] == 1);
            CHECK(y[i * WIDTH + k] == y[i * WIDTH]);
            CHECK(y[i * WIDTH] == 0 || fabsf(y[i * WIDTH] - 4.0f / 3) < 1e-6f);
        }
    }
    CHECK(kept > N * 0.65 && kept < N * 0.85);
    lab_free(l);
    pl_store_free(s);
}

/* ---- sizes of full models --------------------------------------------------------------- */
typedef struct shop {
    pl_store *store;
    pl_graph *g;
    pl_nn *m;
} shop;

static shop shop_open(void)
{
    shop s = {.store = pl_store_new()};
    s.g = pl_graph_new(s.store);
    s.m = pl_nn_new(s.g, true);
    return s;
}

static pl_status shop_close(shop *s)
{
    pl_status rc = pl_nn_finish(s->m);
    pl_nn_free(s->m);
    pl_graph_free(s->g);
    pl_store_free(s->store);
    return rc;
}

TEST(nn_parameter_counts_of_lgt_and_wan_are_published_ones)
{
    shop s = shop_open();

    lgt_micro(s.m, &lgt_full);
    CHECK_INT(pl_nn_count(s.store, NULL, false), 20337668);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    wan_step(s.m, &wan_full);
    CHECK_INT(pl_nn_count(s.store, "student.*", true), 214203396);
    CHECK_INT(pl_nn_count(s.store, "teacher.*", false), 1418996800);
    CHECK_INT(pl_nn_count(s.store, NULL, true), 214203396 + 80);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    wan_step(s.m, &wan_small);
    CHECK_INT(pl_nn_count(s.store, "student.*", false), 4752132);
    CHECK_OK(shop_close(&s));
}

TEST(nn_parameter_counts_of_stablesr_are_published_ones)
{
    shop s = shop_open();
    sr_edge_step(s.m, &sr_edge_before_full);
    CHECK_INT(pl_nn_count(s.store, NULL, false), 48559612);
    CHECK_OK(shop_close(&s));
    s = shop_open();
    sr_step(s.m, &sr_full);
    CHECK_INT(pl_nn_count(s.store, "edge.*", false), 2006076);
    CHECK_INT(pl_nn_count(s.store, "fusion.*", false), 600);
    CHECK_INT(pl_nn_count(s.store, "struct.*", false), 52494080);
    CHECK_INT(pl_nn_count(s.store, "unet.*.spade.*", false), 53020160);
    CHECK_INT(pl_nn_count(s.store, "unet.*,!*.spade.*", false), 865910724 + 4 * 320 * 9);
    CHECK_INT(pl_nn_count(s.store, NULL, true), 107544276);
    CHECK_OK(shop_close(&s));
}

TEST(nn_parameter_counts_of_fluxflow_are_published_ones)
{
    shop s = shop_open();
    flux_generator(s.m, &flux_full);
    CHECK_INT(pl_nn_count(s.store, "compressor.*", false), 12580553);
    CHECK_INT(pl_nn_count(s.store, "expander.*", false), 94073551);
    CHECK_INT(pl_nn_count(s.store, "disc.*", false), 45105473);
    CHECK_INT(pl_nn_count(s.store, "lpips.*", false), 14714688 + 1472);
    CHECK_OK(shop_close(&s));
}

/* ---- R1: a gradient of a gradient ------------------------------------------------------- */
/* A small spectrally normalised network, f64, not training: u and v are constants. */
static pl_val small_judge(pl_nn *m, pl_val x)
{
    pl_nn_conv o = {3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN};
    pl_val h = pl_leaky_relu(m->g, pl_nn_conv2d(m, x, "a", 4, o), 0.2);
    h = pl_leaky_relu(m->g, pl_nn_conv2d(m, h, "b", 4, o), 0.2);
    h = pl_avg_pool(m->g, h, &(pl_pool_opts){.kernel = {2, 2}});
    h = pl_nn_conv2d(m, h, "c", 1, o);
    return pl_mean(m->g, h, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false);
}

static double run_r1(lab *l)
{
    pl_type t;
    double *x = lab_input(l, 0, "x", &t);
    for (int64_t i = 0; i < pl_type_elems(&t); i++) x[i] = peer_noise(peer_hash("x"), i);
    if (lab_run(l, 0) != PL_OK) return (double)NAN;
    return *(const double *)lab_output(l, 0, "r1", NULL);
}

TEST(nn_r1_gradient_is_the_slope_of_r1)
{
    shop s = shop_open();

    s.m->dtype = PL_F64;
    s.m->training = false;
    pl_val x = pl_input(s.g, "x", PL_TYPE(PL_F64, 2, 6, 4, 3));
    pl_val r1 = pl_loss_r1(s.g, small_judge(s.m, x), x), w[3], grad[3];
    static const char *const names[3] = {"a.weight", "b.weight", "c.weight"};
    int slot[3];
    for (int i = 0; i < 3; i++) w[i] = pl_nn_read(s.m, slot[i] = pl_store_find(s.store, names[i]));
    pl_grad(s.g, r1, w, 3, grad);
    pl_output(s.g, "r1", r1);
    for (int i = 0; i < 3; i++) pl_output(s.g, pl_nn_name(s.m, "grad%d", i), grad[i]);
    CHECK_OK(pl_nn_finish(s.m));
    pl_nn_free(s.m);
    lab *l = lab_new(s.store);
    lab_add(l, s.g);
    CHECK_OK(lab_open(l));
    for (int i = 0; i < pl_store_count(s.store); i++) {
        const pl_slot *k = pl_store_slot(s.store, i);
        double *v = lab_slot(l, i);
        for (int64_t j = 0; j < pl_type_elems(&k->type); j++)
            v[j] = 0.5 * peer_noise(peer_hash(k->name), j);
    }
    for (int i = 0; i < 3; i++) {
        /* along one direction through every element */
        double *v = lab_slot(l, slot[i]), h = 1e-6, along = 0, r[2];
        int64_t n = pl_type_elems(&pl_store_slot(s.store, slot[i])->type);
        char name[16];
        snprintf(name, sizeof name, "grad%d", i);
        CHECK(isfinite(run_r1(l)) != 0);
        const double *got = lab_output(l, 0, name, NULL);
        for (int64_t j = 0; j < n; j++) along += got[j] * peer_noise(peer_hash("d"), j);
        for (int k = 0; k < 2; k++) {
            for (int64_t j = 0; j < n; j++)
                v[j] += (k ? -2 : 1) * h * peer_noise(peer_hash("d"), j);
            r[k] = run_r1(l);
        }
        for (int64_t j = 0; j < n; j++) v[j] += h * peer_noise(peer_hash("d"), j);
        CHECK(fabs(along) > 1e-6);
        CHECK_NEAR((r[0] - r[1]) / (2 * h), along, 1e-6 * fabs(along) + 1e-9);
    }
    lab_free(l);
    pl_store_free(s.store);
}
