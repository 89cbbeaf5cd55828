/* test_fluxflow_stages.c - fluxflow's stages, its data as people keep them, and weights from
 * elsewhere. */
#include "base/err.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "recipes/fluxflow/fluxflow.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", pl_test_dir(), name);
    return path[at];
}

/* ---- stages ----------------------------------------------------------------------------- */
/* How many tensors whose names begin so two model files have in common, and in how many they
 * differ. */
static pl_status compare_models(const char *a, const char *b, const char *prefix, int *common,
                                int *differ)
{
    pl_st_reader *x = NULL, *y = NULL;
    *common = *differ = 0;
    pl_status rc = pl_st_open(in_dir(a), &x);
    if (rc == PL_OK) rc = pl_st_open(in_dir(b), &y);
    for (int i = 0; rc == PL_OK && i < pl_st_count(x); i++) {
        const pl_st_tensor *t = pl_st_at(x, i), *u = pl_st_find(y, t->name);
        if (!u || strncmp(t->name, prefix, strlen(prefix)) != 0) continue;
        size_t bytes = pl_type_bytes(&t->type);
        char *p = pl_sys_alloc(2 * bytes + 1);
        if (!p) rc = PL_ERR_MEMORY;
        if (rc == PL_OK) rc = pl_st_read(x, t, p, bytes);
        if (rc == PL_OK) rc = pl_st_read(y, u, p + bytes, bytes);
        if (rc == PL_OK) *differ += memcmp(p, p + bytes, bytes) != 0;
        ++*common;
        pl_sys_free(p);
    }
    pl_st_close(x);
    pl_st_close(y);
    return rc;
}

/* The autoencoder alone until its loss is low enough; SPADE and the discriminator join; then the
 * flow on frozen tokens. */
TEST(fluxflow_pipeline)
{
    WANT_BIN();
    int common, differ;
    CHECK_RUN(
        cli_run(
            "$P train fluxflow/pipeline-tiny phases.flow.until.steps=6 phases.gan.until.steps=2 "
            "--out %s/run",
            pl_test_dir()),
        0, "loss is below 0.41: the phase ends");
    CHECK_OK(compare_models("run/phases/vae/model.safetensors", "run/phases/gan/model.safetensors",
                            "compressor.", &common, &differ));
    CHECK(common > 20 && differ > common / 2);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(compare_models("run/phases/gan/model.safetensors",
                                "run/phases/flow/model.safetensors",
                                i ? "expander." : "compressor.", &common, &differ));
        CHECK_MSG(common > 20 && differ == 0, "%d of %d moved", differ, common);
    }
    CHECK_OK(compare_models("run/model.safetensors", "run/phases/flow/model.safetensors",
                            "flow_processor.", &common, &differ));
    CHECK(common == 134 && differ == 0);
    struct stat st;
    CHECK(stat(in_dir("run/samples/00000000-real.png"), &st) != 0);
    CHECK_RUN(cli_run("ls %s/run/samples", pl_test_dir()), 0, "");
    CHECK_MSG(strstr(cli_run("ls %s/run/samples", pl_test_dir()).out, "-made.png"), "no picture");
}

/* The authors' SPADE is off before its stage: its weights are there and stay as they begin. */
TEST(fluxflow_without_spade)
{
    static const char *const off[] = {"gan.on=false", "lpips.on=false", "spade.on=false"};
    pl_run *run;
    pl_step_info info;
    float before[8], after[8];
    CHECK_OK(pl_run_open("fluxflow/tiny", off, 3, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    int slot = pl_store_find(pl_run_store(run), "expander.blocks.0.spade.gamma.weight");
    CHECK(slot >= 0);
    CHECK_OK(pl_session_read_slot(run->session, slot, 0, before, sizeof before));
    CHECK_OK(pl_run_step(run, &info));
    CHECK_OK(pl_session_read_slot(run->session, slot, 0, after, sizeof after));
    CHECK(memcmp(before, after, sizeof before) == 0);
    pl_run_free(run);
}

static double term(const pl_step_info *info, const char *name)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], name) == 0) return info->term[i];
    return (double)NAN;
}

/* How far one step moves a weight of the compressor's first layer; *terms: "rec" or not. */
static pl_status compressor_moves(const char *const *keys, int n, bool *moves, bool *rec)
{
    pl_run *run;
    pl_step_info info;
    float before[64], after[64];
    PL_TRY(pl_run_open("fluxflow/tiny", keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    int slot = rc == PL_OK ? pl_store_find(pl_run_store(run), "compressor.stages.0.0.weight") : -1;
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, before, sizeof before);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, after, sizeof after);
    *moves = memcmp(before, after, sizeof before) != 0;
    *rec = rc == PL_OK && !isnan(term(&info, "rec"));
    pl_run_free(run);
    return rc;
}

/* Without reconstruction and KL the discriminator alone moves the compressor: its decode is not of
 * tokens as given, as the second decode beside a reconstruction is. */
TEST(fluxflow_adversary_alone)
{
    static const char *const alone[] = {"recon.on=false", "loss.kl_beta=0", "optim.weight_decay=0",
                                        "loss.adaptive=false"};
    static const char *const beside[] = {"recon.on=true",        "loss.kl_beta=0",
                                         "optim.weight_decay=0", "loss.adaptive=false",
                                         "loss.mse_weight=0",    "loss.lambda_lpips=0"};
    static const char *const nobody[] = {"recon.on=false", "gan.on=false"};
    bool moves, rec;
    pl_run *run;
    CHECK_OK(compressor_moves(alone, 4, &moves, &rec));
    CHECK(moves && !rec);
    CHECK_OK(compressor_moves(beside, 6, &moves, &rec));
    CHECK(moves && rec);
    CHECK_OK(pl_run_open("fluxflow/tiny", nobody, 2, &run));
    CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "nothing judges"), "%s", pl_error_text());
    pl_run_free(run);
}

/* Every resolution trains; what counts steps counts steps, not updates. */
TEST(fluxflow_resolutions)
{
    static const char *const two[] = {
        "image=32",       "resolutions=[16]", "gan.on=false",  "lpips.on=false",      "batch=1",
        "loss.kl_beta=1", "loss.kl_warmup=4", "train.steps=4", "schedule.name=cosine"};
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/tiny", two, 9, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_INT(run->build->now->n_step_programs, 2);
    CHECK(strcmp(run->build->now->step_programs[0].name, "train_1") == 0);
    CHECK_INT(pl_program_input_type(run->build->now->step_programs[0].run, 0).dim[1], 16);
    CHECK_OK(pl_run_start(run));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(pl_run_step(run, &info));
        double want = (1 - cos(3.14159265358979 * step / 4)) / 2;
        CHECK_MSG(fabs(term(&info, "beta") - want) < 1e-6 &&
                      fabs(term(&info, "train_1.beta") - want) < 1e-6,
                  "step %d: %g and %g, wanted %g", step, term(&info, "beta"),
                  term(&info, "train_1.beta"), want);
        CHECK(term(&info, "train_1.rec") > 0);
        CHECK_MSG(fabs(info.lr - 1e-3 * (1 - want)) < 1e-8, "step %d: rate %g", step, info.lr);
    }
    int64_t updates;
    CHECK_OK(pl_session_read_slot(run->session, pl_store_find(pl_run_store(run), "optim.step"), 0,
                                  &updates, sizeof updates));
    CHECK_INT(updates, 6);
    pl_run_free(run);
}

/* ---- what is mended --------------------------------------------------------------------- */
/* Rows of the table of times that one step of the flow moves: Lion moves what has a gradient by the
 * rate, the rest decays by a thousandth of that. */
static pl_status moved_times(const char *compat, int *n, int *last)
{
    const char *const keys[] = {compat, "batch=8", "optim_flow.lr=0.01",
                                "optim_flow.weight_decay=0.001"};
    enum { TIMES = 1000, WIDE = 32 };
    float *x = pl_sys_alloc(2 * sizeof *x * TIMES * WIDE), *y = x + TIMES * WIDE;
    pl_run *run;
    pl_step_info info;
    size_t bytes = sizeof *x * TIMES * WIDE;
    pl_status rc = pl_run_open("fluxflow/flow-tiny", keys, 4, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    int slot =
        rc == PL_OK ? pl_store_find(pl_run_store(run), "flow_processor.time_embed.0.weight") : -1;
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, x, bytes);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, y, bytes);
    *n = *last = 0;
    for (int i = 0; rc == PL_OK && i < TIMES; i++) {
        int moved = 0;
        for (int k = 0; k < WIDE; k++) moved += fabsf(x[i * WIDE + k] - y[i * WIDE + k]) > 0.005f;
        if (moved > WIDE / 2) {
            ++*n;
            *last = i;
        }
    }
    pl_run_free(run);
    pl_sys_free(x);
    return rc;
}

/* The authors multiply a time by 999 and cut it off: all eight samples share row 999. */
TEST(fluxflow_times)
{
    int n, last;
    CHECK_OK(moved_times("seed_compat=true", &n, &last));
    CHECK(n == 1 && last == 999);
    CHECK_OK(moved_times("seed_compat=false", &n, &last));
    CHECK_MSG(n >= 6 && last < 999, "%d rows, the last is %d", n, last);
}

/* The time of a number in [0,1) is the inverse of the sums of cos^2. */
TEST(fluxflow_time_distribution)
{
    enum { N = 64 };
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val u = pl_input(g, "u", PL_TYPE(PL_F32, N)), t = flux_flow_time(g, u);
    pl_output(g, "t", t);
    CHECK_OK(pl_graph_status(g));
    graph_eval *e = graph_eval_new(g, true);
    float *at = graph_eval_at(e, u);
    for (int i = 0; i < N; i++) at[i] = ((float)i + 0.5f) / N;
    CHECK_OK(graph_eval_run(e));
    const int64_t *got = graph_eval_at(e, t);
    double total = 0;
    for (int k = 0; k < 1000; k++)
        total += pow(cos((k / 999.0 + 0.008) / 1.008 * 1.5707963267948966), 2);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        int want = -1;
        while (sum <= (double)at[i] * total) {
            want++;
            sum += pow(cos((want / 999.0 + 0.008) / 1.008 * 1.5707963267948966), 2);
        }
        CHECK_INT(got[i], want);
    }
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(store);
}

/* ---- data ------------------------------------------------------------------------------- */
static pl_status generate(const char *const *more, int n, const char *dir, int64_t samples)
{
    pl_run *run;
    PL_TRY(pl_run_open("fluxflow/flow-tiny", more, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_generate_raw(run, in_dir(dir), samples, 2, NULL, NULL);
    pl_run_free(run);
    return rc;
}

/* Loss of so many steps. */
static pl_status losses(const char *preset, const char *const *more, int n, double *loss, int steps)
{
    pl_run *run;
    pl_step_info info;
    PL_TRY(pl_run_open(preset, more, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < steps; i++) {
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    pl_run_free(run);
    return rc;
}

/* Loss of the discriminator in its first step. */
static pl_status first_d(const char *const *keys, int n, double *d)
{
    pl_run *run;
    pl_step_info info;
    PL_TRY(pl_run_open("fluxflow/tiny", keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    *d = rc == PL_OK ? term(&info, "disc_r1.d") : (double)NAN;
    pl_run_free(run);
    return rc;
}

/* The authors' instance noise never reaches the discriminator, however strong it is. */
TEST(fluxflow_instance_noise)
{
    for (int compat = 0; compat < 2; compat++) {
        const char *keys[] = {compat ? "seed_compat=true" : "seed_compat=false", "gan.noise_std=0",
                              "loss.r1_interval=1"};
        double without, with;
        CHECK_OK(first_d(keys, 3, &without));
        keys[1] = "gan.noise_std=1";
        CHECK_OK(first_d(keys, 3, &with));
        CHECK_MSG((without == with) == (compat == 1), "%g and %g", without, with);
    }
}

/* Weights of three terms, the last of negative mean. */
static pl_status rolled(bool signed_means, float weight[3])
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_val raw = pl_input(g, "raw", PL_TYPE(PL_F32, 3)),
           w = flux_rolling_weights(m, raw, 3, signed_means);
    pl_output(g, "w", w);
    PL_TRY(pl_nn_finish(m));
    graph_eval *e = graph_eval_new(g, true);
    memcpy(graph_eval_at(e, raw), (const float[]){1, 4, -0.5f}, 12);
    pl_status rc = graph_eval_run(e);
    memcpy(weight, graph_eval_at(e, w), 12);
    graph_eval_free(e);
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(store);
    return rc;
}

/* The mean of the positive means over each mean: the authors' generator term is turned round by it.
 */
TEST(fluxflow_adaptive_weights)
{
    static const float want[2][3] = {{11 / 6.f, 11 / 24.f, 11 / 3.f}, {2.5f, 0.625f, -5}};
    for (int compat = 0; compat < 2; compat++) {
        float got[3];
        CHECK_OK(rolled(compat == 1, got));
        for (int i = 0; i < 3; i++)
            CHECK_MSG(fabsf(got[i] - want[compat][i]) < 1e-5f, "weight %d is %g", i,
                      (double)got[i]);
    }
}

/* KL of two samples of 2 x 2 x 3 and its gradient by mu, with a floor of 0.5: elements at 0 count
 * the floor and have no gradient, those at mu 3 count 4.5 and have 3. */
TEST(fluxflow_free_bits)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_type type = PL_TYPE(PL_F32, 2, 2, 2, 3);
    pl_val mu = pl_input(g, "mu", type), logvar = pl_input(g, "logvar", type), slope = PL_NO_VAL;
    pl_val kl = flux_kl(g, mu, logvar, 0.5), plain = flux_kl(g, mu, logvar, 0);
    pl_grad(g, kl, &mu, 1, &slope);
    pl_output(g, "slope", slope);
    pl_output(g, "kl", kl);
    pl_output(g, "plain", plain);
    CHECK_OK(pl_graph_status(g));
    graph_eval *e = graph_eval_new(g, true);
    for (int i = 0; i < 4; i++) ((float *)graph_eval_at(e, mu))[5 * i] = 3;
    CHECK_OK(graph_eval_run(e));
    CHECK(fabsf(*(float *)graph_eval_at(e, kl) - (4 * 4.5f + 20 * 0.5f) / 2) < 1e-5f);
    CHECK(fabsf(*(float *)graph_eval_at(e, plain) - 4 * 4.5f / 2) < 1e-5f);
    const float *d = graph_eval_at(e, slope);
    for (int i = 0; i < 24; i++) CHECK(fabsf(d[i] - (i % 5 == 0 && i < 20 ? 1.5f : 0)) < 1e-6f);
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(store);
}

/* The authors' schedules move with every update, so that with two resolutions half the steps end
 * them. */
TEST(fluxflow_schedules_of_resolutions)
{
    const char *keys[] = {"image=32", "resolutions=[16]", "gan.on=false",         "lpips.on=false",
                          "batch=1",  "train.steps=4",    "schedule.name=cosine", NULL};
    for (int compat = 0; compat < 2; compat++) {
        pl_run *run;
        pl_step_info info;
        keys[7] = compat ? "seed_compat=true" : "seed_compat=false";
        CHECK_OK(pl_run_open("fluxflow/tiny", keys, 8, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        for (int i = 0; i < 3; i++) CHECK_OK(pl_run_step(run, &info));
        /* The third step: two steps done; or five updates before its own, where PyTorch's cosine
         * rises again. */
        double part = compat ? 1.25 : 0.5, want = 1e-3 * (1 + cos(3.14159265358979 * part)) / 2;
        CHECK_MSG(fabs(info.lr - want) < 1e-6, "rate %g, wanted %g", info.lr, want);
        pl_run_free(run);
    }
}

/* All that is the authors' with the switch, and not without, changes what is computed. */
TEST(fluxflow_seed_compat)
{
    static const char *const presets[] = {"fluxflow/tiny", "fluxflow/flow-tiny"};
    static const char *const keys[][2] = {{"seed_compat=false", "loss.r1_interval=1"},
                                          {"seed_compat=true", "loss.r1_interval=1"}};
    for (int i = 0; i < 2; i++) {
        double mended[1], kept[1];
        CHECK_OK(losses(presets[i], keys[0], 2, mended, 1));
        CHECK_OK(losses(presets[i], keys[1], 2, kept, 1));
        CHECK_MSG(mended[0] != kept[0], "%s: %g", presets[i], kept[0]);
    }
}

/* ---- what was mended in the flow ------------------------------------------------------------ */
static double bezier_at(double t, double a, double b, double c, double d)
{
    double s = 1 / (1 + exp(-t)), r = 1 - s;
    return r * r * r * a + 3 * r * r * s * b + 3 * r * s * s * c + s * s * s * d;
}

/* A curve has one channel of each part; the original's has five neighbours of the joined parts. */
TEST(fluxflow_flow_curve)
{
    static const float value[5][2] = {{0.3f, -1}, {1, 2}, {-3, 4}, {5, 6}, {7, -8}};
    for (int compat = 0; compat < 2; compat++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, false);
        pl_val part[5];
        for (int i = 0; i < 5; i++)
            part[i] = pl_input(g, pl_nn_name(m, "part%d", i), PL_TYPE(PL_F32, 1, 1, 2));
        pl_val y = flux_flow_curve(m, &(flux_sizes){.compat = compat}, part[0], part + 1);
        pl_output(g, "y", y);
        CHECK_OK(pl_nn_finish(m));
        graph_eval *e = graph_eval_new(g, true);
        for (int i = 0; i < 5; i++) memcpy(graph_eval_at(e, part[i]), value[i], sizeof value[i]);
        CHECK_OK(graph_eval_run(e));
        const float *got = graph_eval_at(e, y), *x = value[0];
        for (int k = 0; k < 2; k++) {
            int at = compat ? 5 * k : k, by = compat ? 1 : 2;
            double want = bezier_at((double)x[at], (double)x[at + by], (double)x[at + 2 * by],
                                    (double)x[at + 3 * by], (double)x[at + 4 * by]);
            CHECK_MSG(fabs((double)got[k] - want) < 1e-5, "compat %d, channel %d: %g, wanted %g",
                      compat, k, (double)got[k], want);
        }
        graph_eval_free(e);
        pl_nn_free(m);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* Products of tokens that are turned by their places depend on how far these are apart, not on
 * where they are, and turning changes no length. With the original's neither holds. */
TEST(fluxflow_flow_turns)
{
    enum { PLACES = 4, WIDTH = 8 };
    for (int compat = 0; compat < 2; compat++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, false);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, PLACES, WIDTH));
        pl_val angles = pl_nn_rope_angles(g, PL_F32, 1, (const int64_t[]){PLACES},
                                          (const int64_t[]){WIDTH}, 10000);
        pl_val y =
            flux_flow_program(m, &(flux_sizes){.compat = compat, .flow.heads = 1}, x, angles);
        pl_output(g, "y", y);
        CHECK_OK(pl_nn_finish(m));
        graph_eval *e = graph_eval_new(g, true);
        for (int i = 0; i < PLACES * WIDTH; i++)
            ((float *)graph_eval_at(e, x))[i] = (float)(1 + i % WIDTH * (i % WIDTH));
        CHECK_OK(graph_eval_run(e));
        const float *t = graph_eval_at(e, y);
        double apart[2] = {0, 0}, length[2] = {0, 0};
        for (int k = 0; k < WIDTH; k++) {
            apart[0] += (double)t[k] * (double)t[WIDTH + k];
            apart[1] += (double)t[2 * WIDTH + k] * (double)t[3 * WIDTH + k];
            length[0] += (double)t[k] * (double)t[k];
            length[1] += (double)t[3 * WIDTH + k] * (double)t[3 * WIDTH + k];
        }
        bool same = fabs(apart[0] - apart[1]) < 1e-4 * length[0],
             kept = fabs(length[0] - length[1]) < 1e-4 * length[0];
        CHECK_MSG(same == !compat && kept == !compat,
                  "compat %d: products %g and %g, squares %g and %g", compat, apart[0], apart[1],
                  length[0], length[1]);
        graph_eval_free(e);
        pl_nn_free(m);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* Writes captions.tsv and the embeddings of the captions as the recipe makes them, times a factor.
 */
static bool write_texts(int n, float factor)
{
    static float rows[16][24];
    char line[512], *all = calloc(1, 1 << 16), *prompts = calloc(1, 1 << 16);
    pl_type row = PL_TYPE(PL_F32, 24), type = PL_TYPE(PL_F32, n, 24);
    pl_run *run;
    pl_st_writer *w;
    bool ok = all && prompts && pl_run_open("fluxflow/flow-tiny", NULL, 0, &run) == PL_OK;
    for (int i = 0; ok && i < n; i++) {
        snprintf(line, sizeof line, "set/train/%06d.txt", i);
        const char *caption = cli_read(in_dir(line));
        ok = flux_encode(pl_run_config(run), caption, rows[i], &row) == PL_OK;
        for (int k = 0; k < 24; k++) rows[i][k] *= factor;
        sprintf(all + strlen(all), "train/%06d.png\t%s\n", i, caption);
        sprintf(prompts + strlen(prompts), "%s\n", caption);
    }
    ok = ok && cli_write(in_dir("captions.tsv"), all) &&
         cli_write(in_dir("prompts.txt"), prompts) &&
         pl_st_writer_new(in_dir("rows.safetensors"), &w) == PL_OK;
    if (ok) {
        ok = pl_st_writer_add(w, "text", &type) == PL_OK && pl_st_writer_begin(w) == PL_OK &&
             pl_st_writer_write(w, 0, rows, sizeof(float) * 24 * (size_t)n) == PL_OK &&
             pl_st_writer_finish(w) == PL_OK;
        pl_st_writer_free(w);
        pl_run_free(run);
    }
    free(all);
    free(prompts);
    return ok;
}

/* A stage may freeze more than what it does not train. */
TEST(fluxflow_frozen_in_a_stage)
{
    WANT_BIN();
    int common, differ;
    CHECK_RUN(
        cli_run(
            "$P train fluxflow/pipeline-tiny phases.vae.until.steps=2 phases.gan.until.steps=2 "
            "'phases.gan.set={gan.on: true, lpips.on: false, spade.on: true, optim.frozen: compressor.*}' "
            "phases.flow.until.steps=1 --out %s/run",
            pl_test_dir()),
        0, "");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(compare_models("run/phases/vae/model.safetensors",
                                "run/phases/gan/model.safetensors", i ? "expander." : "compressor.",
                                &common, &differ));
        CHECK_MSG(common > 20 && (i ? differ > common / 2 : differ == 0), "%d of %d moved", differ,
                  common);
    }
}

/* The same pictures and captions as files, as lines of a captions file, and in a tar give the same
 * steps; rows of a file in place of the recipe's own vectors do when they are the same rows, and
 * only then. */
TEST(fluxflow_data_on_disk)
{
    char path[8][640];
    double want[3], got[3];
    CHECK_OK(generate(NULL, 0, "set", 9));
    CHECK(write_texts(9, 1));
    snprintf(path[0], sizeof path[0], "data.path=%s", in_dir("set"));
    const char *texts[] = {path[0]};
    CHECK_OK(losses("fluxflow/flow-tiny", texts, 1, want, 3));

    snprintf(path[2], sizeof path[2], "data.prompts=%s", in_dir("prompts.txt"));
    snprintf(path[3], sizeof path[3], "data.embeddings=%s", in_dir("rows.safetensors"));
    const char *rows[] = {path[0], path[2], path[3]};
    CHECK_OK(losses("fluxflow/flow-tiny", rows, 3, got, 3));
    CHECK(memcmp(want, got, sizeof want) == 0);
    CHECK(write_texts(9, 2));
    CHECK_OK(losses("fluxflow/flow-tiny", rows, 3, got, 3));
    CHECK(memcmp(want, got, sizeof want) != 0);

    char command[2048];
    snprintf(
        command, sizeof command,
        "cd %s && (cd set/train && tar cf ../../a.tar *) && cp -r set plain && rm plain/train/*.txt "
        "plain/eval/*.txt",
        pl_test_dir());
    CHECK_INT(system(command), 0);
    snprintf(path[4], sizeof path[4], "data.path=%s", in_dir("plain"));
    snprintf(path[5], sizeof path[5], "data.captions=%s", in_dir("captions.tsv"));
    const char *lines[] = {path[4], path[5]};
    CHECK_OK(losses("fluxflow/flow-tiny", lines, 2, got, 3));
    CHECK(memcmp(want, got, sizeof want) == 0);
    CHECK_OK(losses("fluxflow/flow-tiny", lines, 1, got, 3)); /* without captions */
    CHECK(memcmp(want, got, sizeof want) != 0);

    /* A tar has no evaluation part of its own: other samples are left for training. */
    snprintf(path[6], sizeof path[6], "data.path=%s", in_dir("a.tar"));
    const char *tar[] = {path[6], "data.source=tar"};
    CHECK_OK(losses("fluxflow/flow-tiny", tar, 2, got, 3));
    CHECK(got[0] > 0 && got[2] > 0);

    /* Captions that cannot be found are told: no file, lines for other images, beside a tar. */
    static const char *const why[] = {"gone.tsv", "none of its 1 lines names an image",
                                      "data.captions is for images in folders"};
    CHECK(cli_write(in_dir("other.tsv"), "other/000000.png\ta red disc\n"));
    for (int i = 0; i < 3; i++) {
        snprintf(path[7], sizeof path[7], "data.captions=%s", in_dir(i ? "other.tsv" : "gone.tsv"));
        const char *keys[] = {path[i == 2 ? 6 : 4], path[7]};
        CHECK_INT(losses("fluxflow/flow-tiny", keys, 2, got, 1),
                  i == 2 ? PL_ERR_CONFIG : PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), why[i]), "%s", pl_error_text());
    }
    const char *prefixed[] = {path[0], path[2], path[3], "data.prompt_prefix=a photo of"};
    CHECK_INT(losses("fluxflow/flow-tiny", prefixed, 4, got, 1), PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "data.prompt_prefix"));
}

/* So few pictures that a share of them has none, or that there is no evaluation. */
TEST(fluxflow_few_pictures)
{
    static const struct {
        int n, eval;
        const char *share;
    } cases[] = {{3, 1, "data.eval_share=1e-9"},
                 {3, 0, "data.eval_share=0"},
                 {1, 0, "data.eval_share=0.05"},
                 {2, 1, "data.eval_share=0.9"}};
    char path[640], command[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_run *run;
        pl_step_info info;
        pl_eval_info eval;
        CHECK_OK(generate(NULL, 0, "set", cases[i].n));
        snprintf(command, sizeof command, "cd %s && rm -rf few && mv set/train few && rm -r set",
                 pl_test_dir());
        CHECK_INT(system(command), 0);
        snprintf(path, sizeof path, "data.path=%s", in_dir("few"));
        const char *keys[] = {path, cases[i].share};
        CHECK_OK(pl_run_open("fluxflow/flow-tiny", keys, 2, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        CHECK_INT(pl_source_size(run, PL_SUBSET_EVAL), cases[i].eval);
        CHECK_INT(pl_source_size(run, PL_SUBSET_TRAIN), cases[i].n - cases[i].eval);
        CHECK_OK(pl_run_step(run, &info));
        CHECK_OK(pl_run_eval(run, &eval));
        CHECK_INT(eval.n > 0, cases[i].eval > 0);
        pl_run_free(run);
    }
}

static pl_status mean_of(pl_run *run, pl_program *p, const char *name, double *mean)
{
    pl_type t;
    PL_TRY(pl_prefetch_read(run, p, 0));
    const float *x = pl_session_input(run->session, p, name, &t);
    int64_t n = x ? pl_type_elems(&t) : 0;
    *mean = 0;
    for (int64_t i = 0; i < n; i++) *mean += (double)x[i] / (double)n;
    return n ? PL_OK : PL_ERR_ARG;
}

/* Pictures from files at two sizes: the programs see the same ones. */
TEST(fluxflow_resolutions_of_pictures)
{
    char path[640];
    pl_run *run;
    double large, small;
    CHECK_OK(generate(NULL, 0, "set", 4));
    snprintf(path, sizeof path, "data.path=%s", in_dir("set"));
    for (int workers = 0; workers < 2; workers++) {
        const char *keys[] = {path,
                              "image=32",
                              "resolutions=[16]",
                              "batch=1",
                              "lpips.on=false",
                              "gan.on=false",
                              workers ? "data.workers=1" : "data.workers=0"};
        CHECK_OK(pl_run_open("fluxflow/tiny", keys, 7, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        CHECK_OK(mean_of(run, run->build->now->step_programs[0].run, "real_1", &small));
        CHECK_OK(mean_of(run, pl__train(run), "real", &large));
        CHECK_MSG(fabs(small - large) < 0.01 && fabs(small) > 0.02, "means %g and %g", small,
                  large);
        pl_run_free(run);
    }
}

/* Words give a vector its direction, whatever their order; the prefix is part of the text. */
TEST(fluxflow_encode)
{
    static const char *const captions[] = {"a red disc", "Disc, a red!", "a blue disc",
                                           "old a red disc"};
    static const char *const prefix[] = {"data.prompt_prefix=old"};
    float row[5][24];
    pl_type type = PL_TYPE(PL_F32, 24);
    for (int k = 0; k < 2; k++) {
        pl_run *run;
        CHECK_OK(pl_run_open("fluxflow/flow-tiny", prefix, k, &run));
        for (int i = 0; i < (k ? 1 : 4); i++)
            CHECK_OK(flux_encode(pl_run_config(run), captions[i], row[k ? 4 : i], &type));
        pl_run_free(run);
    }
    double same = 0, other = 0, with = 0;
    for (int i = 0; i < 24; i++) {
        same += fabs((double)(row[0][i] - row[1][i]));
        other += fabs((double)(row[0][i] - row[2][i]));
        with += fabs((double)(row[3][i] - row[4][i]));
    }
    CHECK_MSG(same < 1e-5 && other > 1 && with < 1e-5, "%g %g %g", same, other, with);
}

/* Pictures of two aspects, each bucket at two resolutions: the programs of a step are those of its
 * bucket. */
TEST(fluxflow_buckets)
{
    static const char *const wide[] = {"image=16", "image_width=32"};
    char path[640], command[2048];
    pl_run *run;
    pl_step_info info;
    CHECK_OK(generate(NULL, 0, "set", 4));
    CHECK_OK(generate(wide, 2, "wide", 4));
    snprintf(command, sizeof command,
             "cd %s && for f in wide/train/*; do mv $f set/train/w$(basename $f); done",
             pl_test_dir());
    CHECK_INT(system(command), 0);
    snprintf(path, sizeof path, "data.path=%s", in_dir("set"));
    const char *keys[] = {path, "data.buckets=[32x32, 32x64]", "resolutions=[16]", "lpips.on=false",
                          "gan.on=false"};
    CHECK_OK(pl_run_open("fluxflow/tiny", keys, 5, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_INT(run->build->n_variants, 2);
    CHECK_OK(pl_run_start(run));
    int seen[2] = {0, 0};
    for (int i = 0; i < 4; i++) { /* an epoch: two batches of each */
        CHECK_OK(pl_run_step(run, &info));
        CHECK(info.loss > 0);
        const pl_step_program *t = &run->build->now->step_programs[0];
        pl_type type = pl_program_input_type(t->run, 0);
        for (int k = 1; k < pl_program_input_count(t->run) && type.rank != 4; k++)
            type = pl_program_input_type(t->run, k);
        CHECK_INT(type.dim[1], 16);
        CHECK(type.dim[2] == 16 || type.dim[2] == 32);
        seen[type.dim[2] == 32]++;
    }
    CHECK(seen[0] == 2 && seen[1] == 2);
    pl_run_free(run);
}

/* ---- weights of LPIPS ------------------------------------------------------------------- */
enum { CONVOLUTIONS = 13, TENSORS = 2 * CONVOLUTIONS + 5 };
static const int layer_of[CONVOLUTIONS] = {0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28};
static const int slice_of[CONVOLUTIONS] = {1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5};
static const int width_of[6] = {3, 8, 8, 16, 16, 16}; /* of the tiny preset, behind each slice */

static float value_of(int tensor, int64_t i)
{
    return (float)(0.01 * (tensor + 1) + 1e-5 * (double)i);
}

/* Names as the lpips package has them, or torchvision's VGG16 and the package's linear layers. part
 * 0: all, 1: the convolutions, 2: the linear layers; skip: a tensor that is left out, or -1. */
static pl_status write_vgg(const char *file, bool package, int part, int skip)
{
    pl_st_writer *w;
    pl_type type[TENSORS];
    char name[64];
    int index[TENSORS], n = 0;
    PL_TRY(pl_st_writer_new(in_dir(file), &w));
    pl_status rc = PL_OK;
    for (int i = 0; i < TENSORS && rc == PL_OK; i++) {
        bool linear = i >= 2 * CONVOLUTIONS, bias = i % 2;
        if (i == skip || (part == 1 && linear) || (part == 2 && !linear)) continue;
        int k = linear ? i - 2 * CONVOLUTIONS : i / 2;
        if (linear) {
            snprintf(name, sizeof name, "lin%d.model.1.weight", k);
            type[i] = PL_TYPE(PL_F32, 1, width_of[k + 1], 1, 1);
        } else {
            char head[32] = "features";
            int from = k && slice_of[k] == slice_of[k - 1] ? slice_of[k] : slice_of[k] - 1;
            if (package) snprintf(head, sizeof head, "net.slice%d", slice_of[k]);
            snprintf(name, sizeof name, "%s.%d.%s", head, layer_of[k], bias ? "bias" : "weight");
            type[i] = bias ? PL_TYPE(PL_F32, width_of[slice_of[k]])
                           : PL_TYPE(PL_F32, width_of[slice_of[k]], width_of[from], 3, 3);
        }
        index[n++] = i;
        rc = pl_st_writer_add(w, name, &type[i]);
    }
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    for (int at = 0; at < n && rc == PL_OK; at++) {
        int k = pl_st_writer_order(w, at), i = index[k];
        int64_t elems = pl_type_elems(&type[i]);
        float *x = malloc((size_t)elems * sizeof *x);
        for (int64_t j = 0; x && j < elems; j++) x[j] = value_of(i, j);
        rc = x ? pl_st_writer_write(w, k, x, (size_t)elems * sizeof *x) : PL_ERR_MEMORY;
        free(x);
    }
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

/* The last convolution, the first (file order is [out, in, 3, 3], ours [out, 3, 3, in]) and a
 * linear layer. */
static void check_loaded(pl_run *run)
{
    static const struct {
        const char *slot;
        int tensor;
        int64_t ours, file;
    } want[] = {{"lpips.stages.0.0.weight", 0, 2, 2 * 9}, /* input 2 at place (0,0) */
                {"lpips.stages.0.0.weight", 0, 3, 1},     /* input 0 at place (0,1) */
                {"lpips.stages.2.3.bias", 11, 5, 5},
                {"lpips.stages.4.5.weight", 24, 1, 9},
                {"lpips.weights.3", 2 * CONVOLUTIONS + 3, 7, 7}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        float x = 0;
        int slot = pl_store_find(pl_run_store(run), want[i].slot);
        CHECK(slot >= 0);
        CHECK_OK(pl_session_read_slot(run->session, slot, (uint64_t)want[i].ours * sizeof x, &x,
                                      sizeof x));
        CHECK_MSG(x == value_of(want[i].tensor, want[i].file), "%s: %g", want[i].slot, (double)x);
    }
}

static pl_status start_with(const char *file, pl_run **run)
{
    char key[640];
    snprintf(key, sizeof key, "lpips.weights=%s", in_dir(file));
    const char *keys[] = {key, "gan.on=false"};
    PL_TRY(pl_run_open("fluxflow/tiny", keys, 2, run));
    pl_status rc = pl_run_build(*run);
    return rc == PL_OK ? pl_run_start(*run) : rc;
}

TEST(fluxflow_lpips_weights)
{
    pl_run *run = NULL;
    CHECK_OK(write_vgg("package.safetensors", true, 0, -1));
    CHECK_OK(start_with("package.safetensors", &run));
    check_loaded(run);
    pl_run_free(run);

    CHECK_OK(pl_sys_make_dirs(in_dir("folder")));
    CHECK_OK(write_vgg("folder/vgg16.safetensors", false, 1, -1));
    CHECK_OK(write_vgg("folder/lins.safetensors", false, 2, -1));
    CHECK_OK(start_with("folder", &run));
    check_loaded(run);
    pl_run_free(run);

    CHECK_OK(write_vgg("less.safetensors", true, 0, 7));
    CHECK(start_with("less.safetensors", &run) != PL_OK);
    CHECK_MSG(strstr(pl_error_text(), "net.slice2.7.bias"), "%s", pl_error_text());
    pl_run_free(run);
}
