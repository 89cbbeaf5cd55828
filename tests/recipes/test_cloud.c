/* test_cloud.c - the parts of the cloud recipe against plain loops: the architectures, the contrast
 * of a frame, the authors' files. */
#include "recipes/cloud/cloud.h"
#include "tests/lib/test.h"
#include "train/build/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 3, C = 8, H = 3, W = 4 };

/* ---- one piece of a network ------------------------------------------------------------- */
typedef pl_val (*piece)(cloud *k, pl_val x);

static pl_val graph_piece(cloud *k, pl_val x)
{
    return cloud_graph_attention(k, 0, x);
}

typedef struct lab {
    pl_run *run;
    pl_store *store;
    pl_program *program;
    pl_session *session;
    const float *out;
} lab;

static const float *slot(const lab *l, const char *name)
{
    int i = pl_store_find(l->store, name);
    if (i < 0) pl_test_fail(__FILE__, __LINE__, "no slot %s", name);
    return i < 0 ? NULL : pl_session_slot(l->session, i);
}

/* Runs the piece on x: as in evaluation, or as in training, where it has one more random key. */
static void run_piece_with(lab *l, piece p, pl_type t, const float *x, const char *key)
{
    static const char *const keys[] = {"model.channels=[4, 4, 8]",
                                       "frames=3",
                                       "height=24",
                                       "width=32",
                                       "batch=2",
                                       "model.graph_width=4",
                                       "model.graph_heads=2",
                                       "model.state=4"};
    const char *all[9];
    memcpy(all, keys, sizeof keys);
    all[8] = key;
    memset(l, 0, sizeof *l);
    CHECK_OK(pl_run_open("cloud/tiny", all, key ? 9 : 8, &l->run));
    l->store = pl_store_new();
    pl_graph *g = pl_graph_new(l->store);
    pl_nn *m = pl_nn_new(g, key != NULL);
    pl_builder b = {
        .config = pl_run_config(l->run), .store = l->store, .batch = B, .accumulate = 1};
    cloud k;
    CHECK_OK(cloud_sizes(&b, m, &k));
    pl_output(g, "y", p(&k, pl_input(g, "x", t)));
    CHECK_OK(pl_nn_finish(m));
    pl_nn_free(m);
    pl_compile_opts o = PL_COMPILE_INIT;
    CHECK_OK(pl_compile(g, &o, &l->program));
    CHECK_OK(pl_session_new(l->store, 1, &l->program, &l->session));
    CHECK_OK(pl_session_init(l->session, 3));
    memcpy(pl_session_input(l->session, l->program, "x", NULL), x,
           (size_t)pl_type_elems(&t) * sizeof *x);
    CHECK_OK(pl_session_run(l->session, l->program));
    l->out = pl_session_output(l->session, l->program, "y", &t);
}

static void run_piece(lab *l, piece p, pl_type t, const float *x)
{
    run_piece_with(l, p, t, x, NULL);
}

static void end_piece(lab *l)
{
    pl_session_free(l->session);
    pl_program_free(l->program);
    pl_store_free(l->store);
    pl_run_free(l->run);
}

static void make_noise(float *x, int n)
{
    uint64_t state = 5;
    for (int i = 0; i < n; i++) x[i] = (float)pl_test_noise(&state);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return log1p(exp(x));
}

/* y[o] = sum w[o][i] x[i] + bias[o] */
static void affine(const float *w, const float *bias, const double *x, int out, int in, double *y)
{
    for (int o = 0; o < out; o++) {
        y[o] = bias ? (double)bias[o] : 0;
        for (int i = 0; i < in; i++) y[o] += (double)w[o * in + i] * x[i];
    }
}

/* ---- LSTM ------------------------------------------------------------------------------- */
static void lstm_reference(const lab *l, const float *x, double *want)
{
    double seq[T][C];
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++) seq[t][c] = (double)x[t * C + c];
    for (int layer = 0; layer < 2; layer++) {
        char name[4][32];
        static const char *const parts[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
        for (int i = 0; i < 4; i++) snprintf(name[i], 32, "lstm.%s_l%d", parts[i], layer);
        double h[C] = {0}, cell[C] = {0};
        for (int t = 0; t < T; t++) {
            double a[4 * C], b[4 * C];
            affine(slot(l, name[0]), slot(l, name[2]), seq[t], 4 * C, C, a);
            affine(slot(l, name[1]), slot(l, name[3]), h, 4 * C, C, b);
            for (int c = 0; c < C; c++) {
                double in = sigmoid(a[c] + b[c]), forget = sigmoid(a[C + c] + b[C + c]);
                double fresh = tanh(a[2 * C + c] + b[2 * C + c]),
                       out = sigmoid(a[3 * C + c] + b[3 * C + c]);
                cell[c] = forget * cell[c] + in * fresh;
                h[c] = out * tanh(cell[c]);
            }
            memcpy(seq[t], h, sizeof h);
        }
    }
    for (int c = 0; c < C; c++) {
        want[c] = 0;
        for (int t = 0; t < T; t++) want[c] += seq[t][c] / T;
    }
}

TEST(cloud_lstm_matches_its_definition)
{
    float x[B * T * C];
    double want[C];
    lab l;
    make_noise(x, B * T * C);
    run_piece(&l, cloud_lstm, PL_TYPE(PL_F32, B, T, C), x);
    for (int b = 0; b < B; b++) {
        lstm_reference(&l, x + b * T * C, want);
        for (int c = 0; c < C; c++) CHECK_NEAR((double)l.out[b * C + c], want[c], 1e-6);
    }
    end_piece(&l);
}

/* ---- state space ------------------------------------------------------------------------ */
enum { D = 2 * C, N = 4, TAPS = 4 };

static void mamba_reference(const lab *l, const float *x, double *want)
{
    double u[T][2 * D], conv[T][D], h[D][N] = {{0}};
    const float *taps = slot(l, "mamba.conv1d.weight"), *shift = slot(l, "mamba.conv1d.bias");
    for (int c = 0; c < C; c++) want[c] = 0;
    for (int t = 0; t < T; t++) {
        double in[C], told[1 + 2 * N], dt[D], y[D], out[C];
        for (int c = 0; c < C; c++) in[c] = (double)x[t * C + c];
        affine(slot(l, "mamba.in_proj.weight"), NULL, in, 2 * D, C, u[t]);
        for (int d = 0; d < D; d++) {
            double sum = (double)shift[d];
            for (int k = 0; k < TAPS; k++)
                if (t + k - (TAPS - 1) >= 0)
                    sum += (double)taps[d * TAPS + k] * u[t + k - (TAPS - 1)][d];
            conv[t][d] = sum * sigmoid(sum);
        }
        affine(slot(l, "mamba.x_proj.weight"), NULL, conv[t], 1 + 2 * N, D, told);
        affine(slot(l, "mamba.dt_proj.weight"), slot(l, "mamba.dt_proj.bias"), told, D, 1, dt);
        for (int d = 0; d < D; d++) {
            double step = softplus(dt[d]);
            y[d] = (double)slot(l, "mamba.D")[d] * conv[t][d];
            for (int n = 0; n < N; n++) {
                double a = -exp(log(n + 1) + (double)slot(l, "mamba.A_shift")[d * N + n]);
                h[d][n] = exp(step * a) * h[d][n] + step * told[1 + n] * conv[t][d];
                y[d] += told[1 + N + n] * h[d][n];
            }
            y[d] *= u[t][D + d] * sigmoid(u[t][D + d]);
        }
        affine(slot(l, "mamba.out_proj.weight"), NULL, y, C, D, out);
        for (int c = 0; c < C; c++) want[c] += out[c] / T;
    }
}

TEST(cloud_state_space_matches_its_definition)
{
    float x[B * T * C];
    double want[C];
    lab l;
    make_noise(x, B * T * C);
    for (int i = 0; i < B * T * C; i++) x[i] *= 3;
    run_piece(&l, cloud_state_space, PL_TYPE(PL_F32, B, T, C), x);
    for (int b = 0; b < B; b++) {
        mamba_reference(&l, x + b * T * C, want);
        for (int c = 0; c < C; c++) CHECK_NEAR((double)l.out[b * C + c], want[c], 1e-6);
    }
    end_piece(&l);
}

/* ---- graph attention -------------------------------------------------------------------- */
enum { NODES = H * W, K = 2, F = 4 };

static bool joined(int i, int j)
{
    int dy = abs(i / W - j / W), dx = abs(i % W - j % W);
    return dy + dx <= 1;
}

/* x [NODES][in] to y [NODES][heads * width], by lists of edges. */
static void gat_reference(const lab *l, const char *name, const double *x, int in, int heads,
                          int width, double *y)
{
    char text[4][48];
    static const char *const parts[] = {"lin.weight", "att_src", "att_dst", "bias"};
    for (int i = 0; i < 4; i++) snprintf(text[i], 48, "%s.%s", name, parts[i]);
    const float *src = slot(l, text[1]), *dst = slot(l, text[2]), *bias = slot(l, text[3]);
    double h[NODES][8];
    for (int i = 0; i < NODES; i++)
        affine(slot(l, text[0]), NULL, x + i * in, heads * width, in, h[i]);
    for (int k = 0; k < heads; k++)
        for (int i = 0; i < NODES; i++) {
            double e[NODES], sum = 0;
            for (int j = 0; j < NODES; j++) {
                double s = 0;
                for (int f = 0; f < width; f++)
                    s += (double)src[k * width + f] * h[j][k * width + f] +
                         (double)dst[k * width + f] * h[i][k * width + f];
                e[j] = joined(i, j) ? exp(s > 0 ? s : 0.2 * s) : 0;
                sum += e[j];
            }
            for (int f = 0; f < width; f++) {
                double *to = &y[i * heads * width + k * width + f];
                *to = (double)bias[k * width + f];
                for (int j = 0; j < NODES; j++) *to += e[j] / sum * h[j][k * width + f];
            }
        }
}

TEST(cloud_graph_matches_its_definition)
{
    float x[B * NODES * C];
    lab l;
    make_noise(x, B * NODES * C);
    for (int i = 0; i < B * NODES * C; i++) x[i] *= 2;
    run_piece(&l, graph_piece, PL_TYPE(PL_F32, B, H, W, C), x);
    for (int b = 0; b < B; b++) {
        double in[NODES * C], first[NODES * K * F], second[NODES * C], want[C] = {0};
        for (int i = 0; i < NODES * C; i++) in[i] = (double)x[b * NODES * C + i];
        gat_reference(&l, "gnn_conv1", in, C, K, F, first);
        for (int i = 0; i < NODES * K * F; i++)
            first[i] = first[i] > 0 ? first[i] : expm1(first[i]);
        gat_reference(&l, "gnn_conv2", first, K * F, 1, C, second);
        for (int i = 0; i < NODES; i++) {
            double mean = 0, var = 0;
            for (int c = 0; c < C; c++) mean += second[i * C + c] / C;
            for (int c = 0; c < C; c++)
                var += (second[i * C + c] - mean) * (second[i * C + c] - mean) / C;
            for (int c = 0; c < C; c++)
                want[c] += (second[i * C + c] - mean) / sqrt(var + 1e-5) / NODES;
        }
        for (int c = 0; c < C; c++) CHECK_NEAR((double)l.out[b * C + c], want[c], 2e-6);
    }
    end_piece(&l);
}

/* Loss of an error by loss.type: delta 0.7, alpha 0.3, gamma 1.5, predictions that are too low
 * count 2.5 times. With seed_compat gamma is 2 and low predictions count once, whatever the keys
 * are. */
TEST(cloud_losses_match_their_formulas)
{
    enum { ANSWERS = 6 };
    static const char *const types[] = {
        "huber", "mse", "mse_mae", "huber_mae", "weighted_huber", "weighted_huber_mae"};
    static const float y[ANSWERS] = {0.5f, -1, 2, 0.25f, 3, -0.5f},
                       target[ANSWERS] = {0.25f, -1.5f, 4, 1.5f, 0.5f, -0.25f};
    const double delta = 0.7, alpha = 0.3;
    for (int i = 0; i < 12; i++) {
        int k = i / 2, compat = i % 2;
        double gamma = compat ? 2 : 1.5, under = compat ? 1 : 2.5;
        char type[64];
        snprintf(type, sizeof type, "loss.type=%s", types[k]);
        const char *const keys[] = {
            type,
            "loss.huber_delta=0.7",
            "loss.alpha=0.3",
            "loss.gamma=1.5",
            "loss.under_weight=2.5",
            compat ? "seed_compat=true" : "seed_compat=false",
        };
        lab l = {0};
        pl_type t = PL_TYPE(PL_F32, ANSWERS);
        CHECK_OK(pl_run_open("cloud/tiny", keys, 6, &l.run));
        l.store = pl_store_new();
        pl_graph *g = pl_graph_new(l.store);
        pl_output(g, "y",
                  cloud_error_cost(g, pl_run_config(l.run), pl_input(g, "answer", t),
                                   pl_input(g, "target", t)));
        pl_compile_opts o = PL_COMPILE_INIT;
        CHECK_OK(pl_compile(g, &o, &l.program));
        CHECK_OK(pl_session_new(l.store, 1, &l.program, &l.session));
        memcpy(pl_session_input(l.session, l.program, "answer", NULL), y, sizeof y);
        memcpy(pl_session_input(l.session, l.program, "target", NULL), target, sizeof target);
        CHECK_OK(pl_session_run(l.session, l.program));
        l.out = pl_session_output(l.session, l.program, "y", &t);
        for (int j = 0; j < ANSWERS; j++) {
            double e = (double)target[j] - (double)y[j], a = fabs(e);
            double huber = a <= delta ? 0.5 * a * a : delta * (a - 0.5 * delta),
                   heavy = huber * (e > 0 ? under : 1);
            double power = (1 - alpha) * pow(a, gamma);
            const double want[] = {huber,
                                   e * e,
                                   alpha * e * e + (1 - alpha) * a,
                                   alpha * huber + power,
                                   heavy,
                                   alpha * heavy + power};
            CHECK_NEAR((double)l.out[j], want[k], 1e-5);
        }
        end_piece(&l);
    }
}

/* ---- augmentation ----------------------------------------------------------------------- */
enum { TALL = 24, WIDE = 32, STACK = T * TALL * WIDE };

static pl_val changed_frames(cloud *k, pl_val x)
{
    pl_val none = PL_NO_VAL;
    cloud_augment(k, &x, &none);
    return x;
}

/* The azimuth of stacks whose frames do not matter. */
static pl_val changed_angles(cloud *k, pl_val x)
{
    pl_val frames = pl_fill(k->m->g, PL_TYPE(PL_F32, B, T, TALL, WIDE), 1);
    cloud_augment(k, &frames, &x);
    return x;
}

TEST(cloud_augmentation_changes_frames_and_angles_as_documented)
{
    static float x[B * STACK];
    float angles[2 * B] = {0.5f, 0.25f, -1, -0.75f};
    pl_type t = PL_TYPE(PL_F32, B, T, TALL, WIDE);
    lab l;
    for (int i = 0; i < B * STACK; i++) x[i] = (float)(1 + i);
    run_piece_with(&l, changed_frames, t, x, "augment.flip=1");

    for (int i = 0; i < B * STACK; i++) CHECK(l.out[i] == x[i - i % WIDE + WIDE - 1 - i % WIDE]);
    end_piece(&l);
    run_piece_with(&l, changed_angles, PL_TYPE(PL_F32, B, 2), angles, "augment.flip=1");
    for (int b = 0; b < B; b++) { /* 360 degrees minus the azimuth; the zenith stays */
        double degrees = (double)angles[2 * b + 1] * CLOUD_AZIMUTH_STD + CLOUD_AZIMUTH_MEAN;
        CHECK(l.out[2 * b] == angles[2 * b]);
        CHECK_NEAR((double)l.out[2 * b + 1] * CLOUD_AZIMUTH_STD + CLOUD_AZIMUTH_MEAN, 360 - degrees,
                   1e-3);
    }
    end_piece(&l);
    run_piece_with(&l, changed_frames, t, x, "augment.erase=1");
    /* the same rectangle in every frame, 2 to 10 % of it (and a rim of rounding) */
    for (int b = 0; b < B; b++) {
        int gone = 0;
        for (int i = 0; i < TALL * WIDE; i++) {
            bool first = l.out[b * STACK + i] == 0;
            gone += first;
            for (int f = 1; f < T; f++)
                CHECK((l.out[b * STACK + f * TALL * WIDE + i] == 0) == first);
        }
        CHECK_MSG(gone >= 0.01 * TALL * WIDE && gone <= 0.14 * TALL * WIDE, "%d pixels erased",
                  gone);
    }
    end_piece(&l);
    run_piece_with(&l, changed_frames, t, x, "augment.jitter=0.2");
    double slope = (double)(l.out[STACK - 1] - l.out[0]) / (double)(x[STACK - 1] - x[0]);
    CHECK_MSG(slope >= 0.8 * 0.8 && slope <= 1.2 * 1.2 && fabs(slope - 1) > 1e-4, "slope %g",
              slope);
    end_piece(&l);
}

/* ---- seed_compat ------------------------------------------------------------------------- */
static pl_val changed_bytes(cloud *k, pl_val x)
{
    k->compat = true;
    return changed_frames(k, x);
}

/* Brightness is rounded to 8 bits: values outside a byte are clipped, and results are among the
 * 256 values k/255, frame by frame. */
TEST(cloud_seed_compat_jitters_brightness_in_8_bits)
{
    static float x[B * STACK];
    lab l;
    /* from -3 to 3, like standardised frames */
    for (int i = 0; i < B * STACK; i++) x[i] = (float)(i % 601 - 300) / 100;
    run_piece_with(&l, changed_bytes, PL_TYPE(PL_F32, B, T, TALL, WIDE), x,
                   "augment.jitter=0.0001");
    for (int i = 0; i < B * STACK; i++) {
        int byte = (int)(255 * (double)x[i]) & 255;
        double got = 255 * (double)l.out[i];
        CHECK_MSG(fabs(got - round(got)) < 1e-3 && fabs(got - byte) < 3,
                  "%g became %g / 255, byte %d", (double)x[i], got, byte);
    }
    end_piece(&l);
    run_piece_with(&l, changed_bytes, PL_TYPE(PL_F32, B, T, TALL, WIDE), x, "augment.jitter=0.2");
    double mean[2] = {0};
    for (int i = 0; i < 2 * TALL * WIDE; i++)
        mean[i / (TALL * WIDE)] += (double)l.out[i] / (TALL * WIDE);

    for (int i = 0; i < B * STACK; i++) CHECK(l.out[i] >= 0 && l.out[i] <= 1);
    CHECK_MSG(fabs(mean[0] - mean[1]) > 0.005, "frames of one brightness: %g and %g", mean[0],
              mean[1]);
    end_piece(&l);
}

/* Runs steps of cloud/tiny. Returns the learning rate of each step, and the statistics of the
 * first level at the end. */
typedef struct tracked {
    double lr[6];
    float mean[8];
    int64_t count;
} tracked;

static pl_status track(const char *const *keys, int n, tracked *t)
{
    pl_run *run;
    PL_TRY(pl_run_open("cloud/tiny", keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; i < 6 && rc == PL_OK; i++) {
        pl_step_info info;
        rc = pl_run_step(run, &info);
        t->lr[i] = info.lr;
        if (i > 0) continue; /* statistics of one step */
        memcpy(t->mean,
               pl_session_slot(pl_run_session(run),
                               pl_store_find(pl_run_store(run), "norm.0.running_mean")),
               sizeof t->mean);
        memcpy(&t->count,
               pl_session_slot(pl_run_session(run),
                               pl_store_find(pl_run_store(run), "norm.0.num_batches_tracked")),
               sizeof t->count);
    }
    pl_run_free(run);
    return rc;
}

/* With seed_compat the rate changes once per epoch (of two steps) and so stays in a warm-up of
 * 2,000 steps; without, it changes every step. */
TEST(cloud_seed_compat_warms_up_by_epochs)
{
    for (int k = 0; k < 2; k++) {
        const char *const keys[] = {"data.samples=8", "schedule.warmup_steps=2000",
                                    "schedule.warmup_start=0.0005",
                                    k ? "seed_compat=true" : "seed_compat=false"};
        tracked t;
        CHECK_OK(track(keys, 4, &t));
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(t.lr[i], 1e-3 * (0.0005 + 0.9995 * (k ? i / 2 : i) / 2000), 1e-10);
    }
}

/* The authors' schedule of warmup_steps W and patience 1, stepped once an epoch of two steps with
 * the same validation loss: epoch e runs at lr (e+1)/(W-1) until lr is reached, and plateaus count
 * from there on. */
TEST(cloud_warms_up_as_the_authors_and_then_counts_plateaus)
{
    enum { WARMUP = 10, EPOCHS = 17 };
    char start[64], steps[64];
    snprintf(steps, sizeof steps, "schedule.warmup_steps=%d", WARMUP - 2);
    snprintf(start, sizeof start, "schedule.warmup_start=%.17g", 1.0 / (WARMUP - 1));
    const char *const keys[] = {"data.samples=8",
                                "seed_compat=true",
                                steps,
                                start,
                                "schedule.plateau.factor=0.5",
                                "schedule.plateau.patience=1",
                                "schedule.plateau.min_lr=1e-6"};
    pl_run *run;
    CHECK_OK(pl_run_open("cloud/tiny", keys, 7, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    for (int e = 0; e < EPOCHS; e++) {
        double want =
            1e-3 * (e < WARMUP - 1 ? (e + 1.0) / (WARMUP - 1) : pow(0.5, (e - WARMUP + 1) / 2));
        for (int i = 0; i < 2; i++) {
            pl_step_info info;
            CHECK_OK(pl_run_step(run, &info));
            CHECK_MSG(fabs(info.lr - want) < 1e-10, "epoch %d: %g, not %g", e, info.lr, want);
        }
        CHECK_INT(pl_run_plateau(run, 1.0), e >= WARMUP && (e - WARMUP) % 2 == 0);
    }
    pl_run_free(run);
}

/* BatchNorm's running statistics are updated twice per step: 0.1 of the distance, then 0.1 of
 * the remainder. */
TEST(cloud_seed_compat_moves_norms_twice)
{
    tracked once, twice, lstm;
    const char *keys[] = {"frames=1", "seed_compat=false", "architecture.name=transformer"};
    CHECK_OK(track(keys, 3, &once));
    keys[1] = "seed_compat=true";
    CHECK_OK(track(keys, 3, &twice));
    keys[2] = "architecture.name=lstm"; /* has no checkpoints */
    CHECK_OK(track(keys, 3, &lstm));
    for (int c = 0; c < 8; c++)
        CHECK_MSG(fabs((double)twice.mean[c] - 1.9 * (double)once.mean[c]) <=
                          1e-5 * fabs((double)once.mean[c]) &&
                      once.mean[c] != 0,
                  "channel %d: %g and %g", c, (double)once.mean[c], (double)twice.mean[c]);

    CHECK(once.count == 1 && twice.count == 2 && lstm.count == 1);
    const char *const three[] = {"seed_compat=true"};
    CHECK_OK(track(three, 1, &twice));
    CHECK_INT(twice.count, 6);
}

/* ---- contrast --------------------------------------------------------------------------- */
TEST(cloud_contrast_evens_out_dark_and_bright_parts)
{
    enum { SIDE = 64 };
    static float x[SIDE * SIDE], room[CLOUD_CONTRAST_ROOM];
    /* Two halves with different brightness and contrast: afterwards both cover the same range. */
    uint64_t state = 3;
    for (int i = 0; i < SIDE * SIDE; i++)
        x[i] = (float)(i % SIDE < SIDE / 2 ? 100 + pl_test_noise(&state)
                                           : 500 + 100 * pl_test_noise(&state));
    cloud_contrast(x, SIDE, SIDE, 1, false, room);
    double left = 0, right = 0, spread = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        CHECK(x[i] >= 0 && x[i] <= 1.0001f);
        if (i % SIDE < SIDE / 4) left += (double)x[i];
        if (i % SIDE >= SIDE * 3 / 4) right += (double)x[i], spread += fabs((double)x[i] - 0.5);
    }

    CHECK_NEAR(right / (SIDE * SIDE / 4), 0.5, 0.03);
    CHECK_NEAR(spread / (SIDE * SIDE / 4), 0.25, 0.03);
    CHECK(left > 0);

    /* A clip limit near 0 leaves a linear ramp: values keep their order. */
    for (int i = 0; i < SIDE * SIDE; i++) x[i] = (float)(i % SIDE);
    cloud_contrast(x, SIDE, SIDE, 1e-9, false, room);
    for (int i = 1; i < SIDE; i++) CHECK(x[i] >= x[i - 1]);
    CHECK_NEAR((double)x[SIDE / 2], 0.5, 0.1);

    cloud_contrast(x, SIDE, SIDE, 0, true, room);
    double sum = 0, squares = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    CHECK_NEAR(sum / (SIDE * SIDE), 0, 1e-5);
    CHECK_NEAR(squares / (SIDE * SIDE), 1, 1e-3);

    for (int i = 0; i < SIDE * SIDE; i++) x[i] = 7;
    cloud_contrast(x, SIDE, SIDE, 0.01, true, room);
    CHECK(isfinite(x[0]));
}
