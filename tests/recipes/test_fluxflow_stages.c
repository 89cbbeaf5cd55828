/* test_fluxflow_stages.c - fluxflow's stages, the authors' formulas (seed_compat), and weights
 * from files. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "recipes/fluxflow/fluxflow.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <string.h>
#include <sys/stat.h>

/* ---- stages ----------------------------------------------------------------------------- */
/* Counts the tensors with this prefix that two model files share, and how many of them differ. */
static pl_status compare_models(const char *a, const char *b, const char *prefix, int *common,
                                int *differ)
{
    pl_st_reader *x = NULL, *y = NULL;
    *common = *differ = 0;
    pl_status rc = pl_st_open(pl_test_path(a), &x);
    if (rc == PL_OK) rc = pl_st_open(pl_test_path(b), &y);
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

/* First the autoencoder alone until its loss is low enough; then SPADE and the discriminator
 * join; then the flow trains on frozen tokens. */
TEST(fluxflow_pipeline_trains_stage_by_stage)
{
    if (!pl_test_long()) SKIP("long");
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
    CHECK(stat(pl_test_path("run/samples/00000000-real.png"), &st) != 0);
    CHECK_RUN(cli_run("ls %s/run/samples", pl_test_dir()), 0, "");
    CHECK_MSG(strstr(cli_run("ls %s/run/samples", pl_test_dir()).out, "-made.png"), "no picture");
}

/* With seed_compat SPADE is off before its stage: its weights exist and keep their initial
 * values. */
TEST(fluxflow_without_spade_leaves_its_weights)
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
    CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, before, sizeof before));
    CHECK_OK(pl_run_step(run, &info));
    CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, after, sizeof after));
    CHECK(memcmp(before, after, sizeof before) == 0);
    pl_run_free(run);
}

static double term(const pl_step_info *info, const char *name)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], name) == 0) return info->term[i];
    return (double)NAN;
}

/* Sets *moves: whether one step changes the compressor's first layer; *rec: whether the step has a
 * loss term "rec". */
static pl_status compressor_moves(const char *const *keys, int n, bool *moves, bool *rec)
{
    pl_run *run;
    pl_step_info info;
    float before[64], after[64];
    PL_TRY(pl_run_open("fluxflow/tiny", keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    int slot = rc == PL_OK ? pl_store_find(pl_run_store(run), "compressor.stages.0.0.weight") : -1;
    if (rc == PL_OK) rc = pl_session_read_slot(pl_run_session(run), slot, 0, before, sizeof before);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_session_read_slot(pl_run_session(run), slot, 0, after, sizeof after);
    *moves = memcmp(before, after, sizeof before) != 0;
    *rec = rc == PL_OK && !isnan(term(&info, "rec"));
    pl_run_free(run);
    return rc;
}

/* Without reconstruction and KL only the discriminator's gradient moves the compressor: its
 * decode then uses differentiable tokens, unlike the second decode beside a reconstruction. */
TEST(fluxflow_adversary_alone_moves_the_compressor)
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
    CHECK_MSG(strstr(pl_error_text(), "no loss trains the decoder"), "%s", pl_error_text());
    pl_run_free(run);
}

/* Every resolution trains; counters count steps, not updates. */
TEST(fluxflow_every_resolution_trains_in_one_step)
{
    static const char *const two[] = {
        "image=32",       "resolutions=[16]", "gan.on=false",  "lpips.on=false",      "batch=1",
        "loss.kl_beta=1", "loss.kl_warmup=4", "train.steps=4", "schedule.name=cosine"};
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/tiny", two, 9, &run));
    CHECK_OK(pl_run_build(run));

    CHECK_INT(pl_run_step_program_count(run), 2);
    CHECK(strcmp(pl_run_step_program_at(run, 0).name, "train_1") == 0);
    CHECK_INT(pl_program_input_type(pl_run_step_program_at(run, 0).run, 0).dim[1], 16);

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
    CHECK_OK(pl_session_read_slot(pl_run_session(run),
                                  pl_store_find(pl_run_store(run), "optim.step"), 0, &updates,
                                  sizeof updates));
    CHECK_INT(updates, 6);
    pl_run_free(run);
}

/* ---- what is mended --------------------------------------------------------------------- */
/* Rows of the table of times that one step of the flow moves: Lion moves a row that has a
 * gradient by the learning rate; other rows decay by a thousandth of the rate. */
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
    if (rc == PL_OK) rc = pl_session_read_slot(pl_run_session(run), slot, 0, x, bytes);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_session_read_slot(pl_run_session(run), slot, 0, y, bytes);
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

/* The authors multiply a time by 999 and truncate it: all eight samples share row 999. */
TEST(fluxflow_times_are_not_rounded_down)
{
    int n, last;
    CHECK_OK(moved_times("seed_compat=true", &n, &last));
    CHECK(n == 1 && last == 999);
    CHECK_OK(moved_times("seed_compat=false", &n, &last));
    CHECK_MSG(n >= 6 && last < 999, "%d rows, the last is %d", n, last);
}

/* The time for a number in [0,1) is the inverse of the cumulative sum of cos^2. */
TEST(fluxflow_times_invert_the_sums_of_cos_squared)
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
/* Loss of the discriminator in the first step. */
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

/* With seed_compat, instance noise of any strength has no effect on the discriminator. */
TEST(fluxflow_instance_noise_reaches_the_discriminator)
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

/* Weights of three loss terms, the last with a negative mean. */
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

/* Each weight is the mean of the positive means divided by the term's own mean: the authors'
 * generator term gets a negative sign. */
TEST(fluxflow_adaptive_weights_match_their_formula)
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

/* KL of two samples of 2 x 2 x 3 and its gradient by mu, with a floor of 0.5: elements at 0
 * count as the floor and have no gradient; elements with mu 3 count 4.5 and have the gradient 3. */
TEST(fluxflow_free_bits_floor_kl_and_its_gradient)
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

/* The authors' schedules advance with every update, so with two resolutions they end after half
 * the steps. */
TEST(fluxflow_schedules_count_steps_not_updates)
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
        /* The third step: after two steps, or after five updates, where PyTorch's cosine rises
         * again. */
        double part = compat ? 1.25 : 0.5, want = 1e-3 * (1 + cos(3.14159265358979 * part)) / 2;
        CHECK_MSG(fabs(info.lr - want) < 1e-6, "rate %g, wanted %g", info.lr, want);
        pl_run_free(run);
    }
}

/* Every seed_compat switch changes the computed numbers. */
TEST(fluxflow_seed_compat_changes_the_losses)
{
    static const char *const presets[] = {"fluxflow/tiny", "fluxflow/flow-tiny"};
    static const char *const keys[][2] = {{"seed_compat=false", "loss.r1_interval=1"},
                                          {"seed_compat=true", "loss.r1_interval=1"}};
    for (int i = 0; i < 2; i++) {
        double mended[1], kept[1];
        CHECK_OK(small_run_losses(presets[i], keys[0], 2, mended, 1));
        CHECK_OK(small_run_losses(presets[i], keys[1], 2, kept, 1));
        CHECK_MSG(mended[0] != kept[0], "%s: %g", presets[i], kept[0]);
    }
}

/* ---- what was mended in the flow ------------------------------------------------------------ */
static double bezier_at(double t, double a, double b, double c, double d)
{
    double s = 1 / (1 + exp(-t)), r = 1 - s;
    return r * r * r * a + 3 * r * r * s * b + 3 * r * s * s * c + s * s * s * d;
}

/* A curve uses one channel of each part; the original's uses five neighbouring channels of the
 * joined parts. */
TEST(fluxflow_flow_curve_has_one_channel_of_each_part)
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

/* Products of rotated tokens depend on the distance between their positions, not on the
 * positions themselves, and rotation keeps lengths. With the original's rotation neither holds. */
TEST(fluxflow_rotations_depend_on_distance_only)
{
    enum { PLACES = 4, WIDTH = 8 };
    for (int compat = 0; compat < 2; compat++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, false);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, PLACES, WIDTH));
        pl_val angles = pl_nn_rope_angles(g, PL_F32, 1, (const int64_t[]){PLACES},
                                          (const int64_t[]){WIDTH}, 10000);
        pl_val y = flux_flow_rotate(m, &(flux_sizes){.compat = compat, .flow.heads = 1}, x, angles);
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

/* A stage may freeze parameters that it would train otherwise. */
TEST(fluxflow_stage_may_freeze_more)
{
    if (!pl_test_long()) SKIP("long");
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
