/* test_lgt.c - the lgt recipe: the authors' files, integration, inference, and what seed_compat
 * switches. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "recipes/lgt/lgt.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <string.h>
#include <unistd.h>

/* ---- files of torch.save ---------------------------------------------------------------- */
enum { SIDE = 8, NUMBERS = 4 * SIDE * SIDE };
static const lgt_shape SHAPE = {SIDE, SIDE, 4};

/* Value of the files in tests/data/lgt at channel c, row y, column x. */
static float held(int c, int y, int x)
{
    return (float)(((c * SIDE + y) * SIDE + x) % 97) / 8 - 4;
}

static bool as_held(const float *got)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < 4; c++)
                if (got[(y * SIDE + x) * 4 + c] != held(c, y, x)) return false;
    return true;
}

TEST(lgt_reads_pytorch_tensors_of_every_layout)
{
    static const char *const good[] = {"plain", "half", "turned", "bf16", "double"},
                             *const bad[] = {"dict", "bool"};
    static const char *const why[] = {"one tensor", "BOOL"};
    float got[NUMBERS];
    char path[128];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "tests/data/lgt/%s.pt", good[i]);
        memset(got, 0, sizeof got);
        CHECK_OK(lgt_pt_read(path, SHAPE, got));
        CHECK_MSG(as_held(got), "%s", path);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "tests/data/lgt/%s.pt", bad[i]);
        CHECK_INT(lgt_pt_read(path, SHAPE, got), PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), why[i]), "%s", pl_error_text());
    }

    CHECK_INT(lgt_pt_read("tests/data/lgt/plain.pt", (lgt_shape){16, 16, 4}, got), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "[4,8,8]") && strstr(pl_error_text(), "[4,16,16]"), "%s",
              pl_error_text());
    CHECK_INT(lgt_pt_read("tests/data/lgt/none.pt", SHAPE, got), PL_ERR_DATA);
}

static bool put(const char *name, const void *x, size_t n)
{
    FILE *f = fopen(pl_test_path(name), "wb");
    bool ok = f && fwrite(x, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

/* Every truncated file, and a file with any one byte inverted, gives an error or numbers: never
 * a crash. */
TEST(lgt_refuses_files_that_are_cut_or_damaged)
{
    static uint8_t all[8192];
    float got[NUMBERS];
    FILE *f = fopen("tests/data/lgt/plain.pt", "rb");
    CHECK(f);
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    CHECK(n > 1000 && n < sizeof all);

    int refused = 0;
    for (size_t i = 0; i < n; i += 11) {
        CHECK(put("cut.pt", all, i));
        CHECK_INT(lgt_pt_read(pl_test_path("cut.pt"), SHAPE, got), PL_ERR_DATA);
    }
    for (size_t i = 0; i < n; i += 5) {
        all[i] ^= 0xFF;
        CHECK(put("bent.pt", all, n));
        refused += lgt_pt_read(pl_test_path("bent.pt"), SHAPE, got) != PL_OK;
        all[i] ^= 0xFF;
    }
    CHECK(refused > 20);
}

TEST(lgt_files_read_back_the_same)
{
    float x[NUMBERS], y[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) x[i] = (float)sin(i * 0.37);
    CHECK_OK(lgt_pt_write(pl_test_path("x.pt"), SHAPE, x));
    CHECK_OK(lgt_pt_read(pl_test_path("x.pt"), SHAPE, y));

    CHECK(memcmp(x, y, sizeof x) == 0);
    const char *python = pl_test_long() ? cli_python("torch") : NULL;
    if (!python) return;
    char text[1024];
    snprintf(
        text, sizeof text,
        "%s -c \"import torch; x = torch.load('%s'); "
        "assert x.shape == (4, 8, 8) and abs(x[1, 2, 3] - torch.tensor(0.37 * 77).sin()) < 1e-5\"",
        python, pl_test_path("x.pt"));
    CHECK_INT(system(text), 0);
}

/* ---- a folder for each style ------------------------------------------------------------ */
static pl_status generate(const char *dir, int64_t samples)
{
    pl_run *run;
    PL_TRY(pl_run_open("lgt/tiny", NULL, 0, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_generate_raw(run, pl_test_path(dir), samples, 4, NULL, NULL);
    pl_run_free(run);
    return rc;
}

static pl_status start(const char *const *keys, int n, pl_run **run)
{
    PL_TRY(pl_run_open("lgt/tiny", keys, n, run));
    pl_status rc = pl_run_build(*run);
    return rc == PL_OK ? pl_run_start(*run) : rc;
}

enum { BATCH = 16 };
/* Inputs of one training batch. */
typedef struct drawn {
    float src[BATCH][NUMBERS], ref[BATCH][NUMBERS];
    int64_t style[BATCH];
} drawn;

static pl_status read_batch(pl_run *run, int64_t number, drawn *d)
{
    PL_TRY(pl_prefetch_read(run, pl__train(run), number));
    memcpy(d->src, pl_session_input(run->session, pl__train(run), "src", NULL), sizeof d->src);
    memcpy(d->ref, pl_session_input(run->session, pl__train(run), "style_ref", NULL),
           sizeof d->ref);
    memcpy(d->style, pl_session_input(run->session, pl__train(run), "style", NULL),
           sizeof d->style);
    return PL_OK;
}

/* The style whose folder has this latent; -1: none. */
static int folder_of(const float *x, int files)
{
    float got[NUMBERS];
    char name[64];
    for (int i = 0; i < 2 * files; i++) {
        snprintf(name, sizeof name, "set/style%d/%06d.pt", i % 2, i / 2);
        if (access(pl_test_path(name), R_OK) == 0 &&
            lgt_pt_read(pl_test_path(name), SHAPE, got) == PL_OK && memcmp(got, x, sizeof got) == 0)
            return i % 2;
    }
    return -1;
}

/* Sixteen latents in one batch: the wanted style of each changes from epoch to epoch, and its
 * example has that style. */
TEST(lgt_draws_new_styles_every_epoch)
{
    char path[640];
    pl_run *run;
    static drawn pass[4];
    int changed = 0, other = 0;
    CHECK_OK(generate("set", BATCH));
    snprintf(path, sizeof path, "data.latents=%s", pl_test_path("set"));
    const char *keys[] = {path, "batch=16"};
    CHECK_OK(start(keys, 2, &run));

    CHECK_INT(pl_source_size(run, PL_SUBSET_TRAIN), BATCH);
    CHECK_INT(pl_source_size(run, PL_SUBSET_EVAL), 4);

    for (int k = 0; k < 4; k++) {
        CHECK_OK(read_batch(run, k, &pass[k]));
        for (int i = 0; i < BATCH; i++) {
            CHECK_INT(folder_of(pass[k].ref[i], BATCH), pass[k].style[i]);
            int from = folder_of(pass[k].src[i], BATCH);
            CHECK(from >= 0);
            other += from != pass[k].style[i];
            for (int j = 0; k && j < BATCH; j++)
                if (memcmp(pass[k].src[i], pass[0].src[j], sizeof pass[0].src[j]) == 0)
                    changed += memcmp(pass[k].ref[i], pass[0].ref[j], sizeof pass[0].ref[j]) != 0;
        }
    }
    CHECK_MSG(changed > 30 && other > 12 && other < 52,
              "%d of 48 examples are new, %d of 64 of another style", changed, other);

    static drawn again;
    CHECK_OK(read_batch(run, 2, &again));
    CHECK(memcmp(&again, &pass[2], sizeof again) == 0);

    pl_step_info info;
    CHECK_OK(pl_run_step(run, &info));
    CHECK(info.loss > 0);
    pl_run_free(run);
}

/* Without an evaluation folder a share of the latents is held out; if that share is empty, the
 * training latents are evaluated. */
TEST(lgt_evaluates_a_share_of_the_latents)
{
    static const char *const share[] = {"data.eval_share=0.5", "data.eval_share=0"};
    char path[640];
    pl_run *run;
    pl_eval_info info;
    CHECK_OK(generate("set", 12));

    CHECK(cli_run("rm -r %s/set/eval", pl_test_dir()).code == 0);
    snprintf(path, sizeof path, "data.latents=%s", pl_test_path("set"));
    for (int i = 0; i < 2; i++) {
        const char *keys[] = {path, share[i]};
        CHECK_OK(start(keys, 2, &run));
        int64_t n = pl_source_size(run, PL_SUBSET_TRAIN),
                eval = pl_source_size(run, PL_SUBSET_EVAL);
        CHECK_MSG(i ? n == 12 && eval == 12 : n + eval == 12 && n > 1 && eval > 1, "%lld and %lld",
                  (long long)n, (long long)eval);
        CHECK_OK(pl_run_eval(run, &info));
        CHECK(info.n == 3 && info.value[0] > 0);
        pl_run_free(run);
    }
}

TEST(lgt_refuses_folders_that_do_not_fit_the_model)
{
    static const struct {
        const char *keys[3];
        const char *want;
    } cases[] = {{{"latent=16"}, "wanted is [4,16,16]"},
                 {{"data.style_dirs=[style0, elsewhere]"}, "elsewhere: no such folder"},
                 {{"model.styles=3"}, "names 2 folders, model.styles is 3"},
                 {{"data.style_dirs=[style0, empty]"}, "empty: no .pt files"},
                 {{"data.path=elsewhere"}, "are both set"}};
    char path[640];
    CHECK_OK(generate("set", 12));
    CHECK_OK(pl_sys_make_dirs(pl_test_path("set/empty")));
    snprintf(path, sizeof path, "data.latents=%s", pl_test_path("set"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *keys[] = {path, cases[i].keys[0]};
        pl_run *run = NULL;
        CHECK(start(keys, 2, &run) != PL_OK);
        CHECK_MSG(strstr(pl_error_text(), cases[i].want), "%s", pl_error_text());
        pl_run_free(run);
    }
}

/* ---- what is mended --------------------------------------------------------------------- */
/* How far a velocity of 1 carries a latent that starts at t0. */
static pl_status way(bool shrinking, int steps, double t0, double *out)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, false);
    lgt_config c = {.batch = 1,
                    .latent = {4, 4, 4},
                    .base = 32,
                    .cond = 4,
                    .styles = 1,
                    .encoder_blocks = 1,
                    .decoder_blocks = 1,
                    .ode_steps = steps,
                    .shrinking = shrinking};
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 4, 4, 4));
    lgt_batch b = {.t = pl_input(g, "t", PL_TYPE(PL_F32, 1)),
                   .style = pl_input(g, "s", PL_TYPE(PL_I64, 1)),
                   .uncond = PL_NO_VAL,
                   .first = PL_NO_VAL,
                   .noise = PL_NO_VAL};
    pl_val end = lgt_integrate(m, &c, &b, x, PL_NO_VAL);
    pl_output(g, "end", end);
    pl_val bias = pl_nn_read(m, pl_store_find(store, "model.out.2.bias"));
    PL_TRY(pl_nn_finish(m));
    graph_eval *e = graph_eval_new(g, true);
    for (int i = 0; i < 4; i++) ((float *)graph_eval_at(e, bias))[i] = 1;
    *(float *)graph_eval_at(e, b.t) = (float)t0;
    pl_status rc = graph_eval_run(e);
    *out = (double)*(const float *)graph_eval_at(e, end);
    graph_eval_free(e);
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(store);
    return rc;
}

/* The authors' integration covers 68.4 % of the way with 4 steps, 67.2 % with 5, 65.1 % with 10. */
TEST(lgt_integration_reaches_the_end_of_the_path)
{
    static const int steps[] = {4, 5, 10};
    static const double share[] = {0.684, 0.672, 0.651};
    for (int i = 0; i < 3; i++) {
        double mended, original;
        CHECK_OK(way(false, steps[i], 0.2, &mended));
        CHECK_OK(way(true, steps[i], 0.2, &original));
        CHECK_MSG(fabs(mended - 0.8) < 1e-5 && fabs(original - 0.8 * share[i]) < 5e-4,
                  "%d steps: %g and %g", steps[i], mended, original);
    }
}

/* Whether the table of styles changes in steps that are trained without a label. The first steps
 * give it no gradient, because layers after it start at zero. */
static pl_status styles_move(const char *key, bool *moved)
{
    const char *keys[] = {key, "loss.label_drop=1", "optim.weight_decay=0", "ode.steps=1",
                          "loss.w_velocity=0"};
    float before[32], after[32];
    pl_run *run;
    pl_step_info info;
    pl_status rc = start(keys, 5, &run);
    int slot = rc == PL_OK ? pl_store_find(pl_run_store(run), "model.style.weight") : -1;
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, before, sizeof before);
    for (int i = 0; i < 4 && rc == PL_OK; i++) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_session_read_slot(run->session, slot, 0, after, sizeof after);
    pl_run_free(run);
    *moved = memcmp(before, after, sizeof before) != 0;
    return rc;
}

/* The authors' average style keeps its initial value, whatever happens in training. */
TEST(lgt_average_style_trains_every_style)
{
    bool moved;
    CHECK_OK(styles_move("seed_compat=false", &moved));
    CHECK(moved);
    CHECK_OK(styles_move("seed_compat=true", &moved));
    CHECK(!moved);
    CHECK_OK(styles_move("model.average=learned", &moved));
    CHECK(!moved);
}

/* The losses of four steps. */
static pl_status losses_of(const char *epsilon, const char *warmup, const char *epoch, double *loss)
{
    const char *keys[] = {epsilon, warmup, epoch, "ode.steps=1", "optim.lr=0"};
    pl_run *run;
    pl_step_info info;
    pl_status rc = start(keys, 5, &run);
    for (int i = 0; i < 4 && rc == PL_OK; i++) {
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    pl_run_free(run);
    return rc;
}

/* The earliest time rises once per epoch: it is 0 during the first epoch of two steps, then half
 * of ode.epsilon. Without epochs it rises in the second step. */
TEST(lgt_epsilon_rises_with_the_epoch)
{
    double none[4], half[4], epochs[4], steps[4];
    CHECK_OK(losses_of("ode.epsilon=0", "ode.epsilon_warmup=0", "ode.epsilon_epoch=1", none));
    CHECK_OK(losses_of("ode.epsilon=0.2", "ode.epsilon_warmup=0", "ode.epsilon_epoch=1", half));
    CHECK_OK(losses_of("ode.epsilon=0.4", "ode.epsilon_warmup=4", "ode.epsilon_epoch=2", epochs));
    CHECK_OK(losses_of("ode.epsilon=0.4", "ode.epsilon_warmup=4", "ode.epsilon_epoch=1", steps));
    for (int i = 0; i < 4; i++) CHECK_NEAR(epochs[i], i < 2 ? none[i] : half[i], 1e-6);
    CHECK(fabs(half[2] - none[2]) > 1e-4 && fabs(steps[1] - none[1]) > 1e-4);
}

static double term(const pl_step_info *info, const char *name)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], name) == 0) return info->term[i];
    return (double)NAN;
}

/* The weight of the patch distance is the mean weight of the wanted styles. */
TEST(lgt_style_weights_scale_the_patch_distance)
{
    static const char *const keys[] = {"loss.style_weights=[3, 3]", "loss.w_style=2",
                                       "loss.w_content=5", "loss.w_velocity=0", "ode.steps=1"};
    pl_run *run;
    pl_step_info info;
    CHECK_OK(start(keys, 5, &run));
    CHECK_OK(pl_run_step(run, &info));
    double want = 6 * term(&info, "swd") + 5 * term(&info, "ssm");

    CHECK_MSG(fabs(info.loss - want) < 1e-5 * want, "%g, wanted %g", info.loss, want);
    pl_run_free(run);

    const char *less[] = {"loss.style_weights=[3]"};
    CHECK(start(less, 1, &run) != PL_OK);
    CHECK_MSG(strstr(pl_error_text(), "each of 2 styles"), "%s", pl_error_text());
    pl_run_free(run);
}

/* ---- inference -------------------------------------------------------------------------- */
/* Metrics of an evaluation of a network whose velocity is 1 everywhere. */
static pl_status evaluate(const char *const *more, int n, double *swd, double *ssm)
{
    const char *keys[8] = {"ode.eval_steps=5", "ode.steps=1"};
    float one[4] = {1, 1, 1, 1};
    pl_run *run;
    pl_eval_info info;
    for (int i = 0; i < n; i++) keys[2 + i] = more[i];
    pl_status rc = start(keys, 2 + n, &run);
    int slot = rc == PL_OK ? pl_store_find(pl_run_store(run), "model.out.2.bias") : -1;
    if (rc == PL_OK) rc = pl_session_write_slot(run->session, slot, 0, one, sizeof one);
    if (rc == PL_OK) rc = pl_run_eval(run, &info);
    for (int i = 0; i < info.n && rc == PL_OK; i++) {
        if (strcmp(info.name[i], "swd") == 0) *swd = info.value[i];
        if (strcmp(info.name[i], "ssm") == 0) *ssm = info.value[i];
    }
    pl_run_free(run);
    return rc;
}

/* Integrating to noise and back returns to the start: content is kept, except for the noise that
 * warmth adds in the second half. */
TEST(lgt_inference_returns_to_the_content)
{
    static const char *const cold[] = {"infer.temperature=0"}, *const late[] = {
                                                                   "infer.threshold=1"};
    static const char *const warm[] = {"infer.temperature=0.1"}, *const hot[] = {
                                                                     "infer.temperature=0.4"};
    static const char *const guided[] = {"infer.temperature=0", "infer.cfg_scale=3",
                                         "infer.repulsion=0.7"};
    double swd, ssm, other;
    CHECK_OK(evaluate(cold, 1, &swd, &ssm));

    CHECK_MSG(ssm < 1e-9 && swd > 1e-3, "ssm %g, swd %g", ssm, swd);
    CHECK_OK(evaluate(late, 1, &swd, &ssm));
    CHECK_MSG(ssm < 1e-9, "ssm %g", ssm);

    CHECK_OK(evaluate(guided, 3, &swd, &ssm)); /* the same velocity in every style */
    CHECK_MSG(ssm < 1e-9, "ssm %g", ssm);

    CHECK_OK(evaluate(warm, 1, &swd, &ssm));
    CHECK_OK(evaluate(hot, 1, &swd, &other));
    CHECK_MSG(ssm > 1e-4 && other > 4 * ssm, "ssm %g and %g", ssm, other);
}

/* Evaluates a network after some training steps, so that styles differ. */
static pl_status trained_swd(const char *key, double *swd)
{
    const char *keys[] = {key,
                          "infer.temperature=0",
                          "ode.steps=1",
                          "ode.eval_steps=2",
                          "optim.lr=0.02",
                          "data.samples=16",
                          "data.eval_samples=8"};
    pl_run *run;
    pl_step_info info;
    pl_eval_info eval;
    pl_status rc = start(keys, 7, &run);
    for (int i = 0; i < 4 && rc == PL_OK; i++) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_run_eval(run, &eval);
    for (int i = 0; i < eval.n && rc == PL_OK; i++)
        if (strcmp(eval.name[i], "swd") == 0) *swd = eval.value[i];
    pl_run_free(run);
    return rc;
}

/* With a weight of 1 only the wanted style counts, whether or not the weight falls; other
 * weights, and starting from the latent's own style, differ. */
TEST(lgt_guidance_of_1_changes_nothing)
{
    double plain, fixed, twice, steady, away;
    CHECK_OK(trained_swd("infer.cfg_scale=1", &plain));
    CHECK_OK(trained_swd("infer.cfg_decay=false", &fixed));
    CHECK_OK(trained_swd("infer.cfg_scale=4", &twice));
    CHECK_OK(trained_swd("infer={cfg_scale: 4, cfg_decay: false}", &steady));
    CHECK_OK(trained_swd("infer.repulsion=0.7", &away));

    CHECK(plain == fixed);
    CHECK_MSG(plain != twice && twice != steady && plain != away, "%g %g %g %g", plain, twice,
              steady, away);
}

TEST(lgt_writes_pictures_of_samples)
{
    WANT_BIN();
    CHECK_RUN(
        cli_run(
            "$P train lgt/tiny ode.steps=1 ode.eval_steps=2 train.steps=2 sample.every=2 --out %s/run",
            pl_test_dir()),
        0, "");
    CHECK_MSG(access(pl_test_path("run/samples/00000002.safetensors"), R_OK) == 0 &&
                  access(pl_test_path("run/samples/00000002-transferred.png"), R_OK) == 0 &&
                  access(pl_test_path("run/samples/00000002-source.png"), R_OK) == 0 &&
                  access(pl_test_path("run/samples/00000002-style.png"), R_OK) == 0,
              "no pictures");

    /* A started run gives the same numbers from the model file, before any step; without warmth,
     * other numbers. */
    const char *from =
        "$P train lgt/tiny ode.steps=1 ode.eval_steps=2 train.steps=1 sample.every=1 init_from=";
    CHECK_RUN(
        cli_run(
            "P=$P; d=%s; %s$d/run/model.safetensors --quiet --out $d/again && %s$d/run/model.safetensors "
            "infer.temperature=0 --quiet --out $d/cold",
            pl_test_dir(), from, from),
        0, "");
    CHECK(cli_same("run/samples/00000002.safetensors", "again/samples/00000000.safetensors"));
    CHECK(!cli_same("run/samples/00000002.safetensors", "cold/samples/00000000.safetensors"));
    CHECK(!cli_same("run/samples/00000002.safetensors", "again/samples/00000001.safetensors"));
}

enum { ROWS = 5 };

/* Reads a tensor of ROWS latents or numbers from the file. */
static pl_status read_tensor(const char *path, const char *name, void *to, size_t bytes)
{
    pl_st_reader *f = NULL;
    pl_status rc = pl_st_open(path, &f);
    const pl_st_tensor *t = rc == PL_OK ? pl_st_find(f, name) : NULL;
    if (rc == PL_OK) rc = t && t->dim[0] == ROWS ? pl_st_read(f, t, to, bytes) : PL_ERR_FILE;
    pl_st_close(f);
    return rc;
}

static pl_status no_picture(void *ctx, const pl_sheet *g)
{
    (void)ctx, (void)g;
    return PL_OK;
}

/* Largest distance between written latents and inputs when the network returns 1 everywhere; -1:
 * the sources, examples or styles are not those of the evaluation. */
static pl_status way_of(const char *const *more, int n, double *way)
{
    const char *keys[8] = {"sample.every=1", "sample.count=5", "batch=2", "ode.eval_steps=4",
                           "ode.steps=1"};
    static float got[ROWS][4][SIDE][SIDE], source[ROWS][4][SIDE][SIDE], style[ROWS][4][SIDE][SIDE];
    int64_t id[ROWS];
    float one[4] = {1, 1, 1, 1};
    pl_run *run;
    for (int i = 0; i < n; i++) keys[5 + i] = more[i];
    pl_status rc = start(keys, 5 + n, &run);
    int slot = rc == PL_OK ? pl_store_find(pl_run_store(run), "model.out.2.bias") : -1;
    if (rc == PL_OK) rc = pl_session_write_slot(run->session, slot, 0, one, sizeof one);
    if (rc == PL_OK) rc = pl_run_sample(run, no_picture, NULL);
    if (rc == PL_OK) rc = pl_run_sample_save(run, pl_test_path("a.safetensors"));
    if (rc == PL_OK) rc = read_tensor(pl_test_path("a.safetensors"), "latent", got, sizeof got);
    if (rc == PL_OK)
        rc = read_tensor(pl_test_path("a.safetensors"), "source", source, sizeof source);
    if (rc == PL_OK) rc = read_tensor(pl_test_path("a.safetensors"), "style", style, sizeof style);
    if (rc == PL_OK) rc = read_tensor(pl_test_path("a.safetensors"), "style_id", id, sizeof id);
    *way = 0;
    for (int r = 0; r < ROWS && rc == PL_OK; r++) {
        if (r % 2 == 0) rc = pl_prefetch_eval(run, 0, r, 2);
        const float *src = pl_session_input(run->session, pl__eval(run), "src", NULL);
        const float *ref = pl_session_input(run->session, pl__eval(run), "style_ref", NULL);
        const int64_t *wanted = pl_session_input(run->session, pl__eval(run), "style", NULL);
        bool same = id[r] == wanted[r % 2];
        for (int k = 0; k < NUMBERS; k++) {
            int c = k % 4, x = k / 4 % SIDE, y = k / 4 / SIDE;
            same = same && source[r][c][y][x] == src[r % 2 * NUMBERS + k] &&
                   style[r][c][y][x] == ref[r % 2 * NUMBERS + k];
            *way = fmax(*way, fabs((double)got[r][c][y][x] - (double)source[r][c][y][x]));
        }
        if (!same) {
            *way = -1;
            break;
        }
    }
    pl_run_free(run);
    return rc;
}

/* The file has the evaluation's latents, channels first; integrating there and back returns to
 * the start, except for warmth. */
TEST(lgt_writes_the_latents_of_the_evaluation)
{
    static const char *const cold[] = {"infer.temperature=0"}, *const warm[] = {
                                                                   "infer.temperature=0.1"};
    static const char *const plus[] = {"infer={temperature: 0, cfg_scale: 2, repulsion: 0.7}",
                                       "model.plus=true"};
    static const char *const apart[] = {"infer.temperature=0", "device=apart"};
    double way;
    CHECK_OK(way_of(cold, 1, &way));

    CHECK_MSG(way >= 0 && way < 1e-5, "%g", way);
    CHECK_OK(way_of(apart, 2, &way));
    CHECK_MSG(way >= 0 && way < 1e-5, "%g", way);

    CHECK_OK(way_of(plus, 2, &way));
    CHECK_MSG(way >= 0 && way < 1e-5, "%g", way);

    CHECK_OK(way_of(warm, 1, &way));
    CHECK_MSG(way > 0.1 && way < 1, "%g", way);
}
