/* test_samples.c - pictures during training: made of the right numbers, planned, and seen by no step. */
#include "base/err.h"
#include "cli_run.h"
#include "plimsoll_events.h"
#include "small_run.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { W = 5, H = 2, COUNT = 5 };

/* A network of one layer; its pictures are the evaluation's inputs, a constant, and noise. */
static const pl_config_entry schema[] = {
    {"break", PL_CONFIG_TEXT, "", 0, 0, NULL, "What is wrong with the sampling program; draws: evaluations do."},
    {"wide", PL_CONFIG_INT, "1", 1, 1e6, NULL, "Width of the noise in it."},
    {0},
};

static bool broken(pl_builder *b, const char *what)
{
    return strcmp(pl_config_text(pl_builder_config(b), "break"), what) == 0;
}

static pl_val layer(pl_nn *m, pl_val x)
{
    return pl_nn_linear(m, x, "fc", 2, (pl_nn_lin){0});
}

static void build_pictures(pl_builder *b)
{
    pl_nn *m = broken(b, "absent") ? NULL : pl_builder_sample(b);
    int64_t n = pl_builder_batch(b), wide = pl_config_int(pl_builder_config(b), "wide");
    if (!m) return;
    pl_graph *g = m->g;
    pl_val x = pl_input(g, broken(b, "input") ? "z" : "which", PL_TYPE(PL_F32, n));
    x = pl_broadcast(g, pl_reshape(g, x, PL_DIMS(n, 1, 1, 1)), PL_DIMS(n, H, W, 3));
    /* Channel c of sample i is i + c, in both orders. */
    pl_val shift = pl_reshape(g, pl_iota(g, PL_TYPE(PL_F32, 3), 0), PL_DIMS(1, 1, 1, 3));
    x = pl_add(g, x, shift);
    if (broken(b, "nothing")) return;
    pl_builder_picture(b, "last", broken(b, "shape") ? pl_slice(g, x, 3, 0, 2, 1) : x, 0, 255);
    pl_builder_picture(b, "first", pl_permute(g, x, (const int[]){0, 3, 1, 2}), 0, 255);
    pl_val noise = pl_draw_normal(b, m, "noise", PL_TYPE(PL_F32, n, H, W * wide, 1));
    pl_builder_picture(b, "noise", noise, -3, 3);
    if (broken(b, "state")) {
        pl_slot s = {.name = "seen", .type = PL_RANK0(PL_F32), .kind = PL_SLOT_BUFFER};
        int slot = pl_store_add(pl_builder_store(b), &s);
        pl_nn_update(m, slot, pl_shift(g, pl_nn_read(m, slot), 1));
    }
}

static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b), *e = pl_builder_eval(b);
    int64_t n = pl_builder_batch(b);
    pl_type t = PL_TYPE(PL_F32, n, 2);
    pl_val x = pl_add(m->g, pl_input(m->g, "x", t), pl_draw_normal(b, m, "noise", t));
    pl_builder_minimise(b, pl_loss_mse(m->g, layer(m, x), pl_input(m->g, "y", t)));
    pl_val y = layer(e, pl_input(e->g, "x", t));
    if (broken(b, "draws")) y = pl_add(e->g, y, pl_draw_normal(b, e, "noise", t));
    pl_output(e->g, "loss", pl_loss_mse(e->g, y, pl_input(e->g, "y", t)));
    pl_output(e->g, "which", pl_mean(e->g, pl_input(e->g, "which", PL_TYPE(PL_F32, n)), PL_AXIS(0), false));
    build_pictures(b);
    return PL_OK;
}

static pl_status read_samples(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    float *which = pl_batch_input(batch, "which", NULL);
    for (int i = 0; which && i < n; i++) which[i] = (float)(10 * sample[i] + (subset == PL_SUBSET_EVAL));
    static const char *const names[] = {"x", "y"};
    for (int k = 0; k < 2; k++) {
        float *to = pl_batch_input(batch, names[k], NULL);
        uint64_t state = (uint64_t)(sample[0] * 2 + k + 1) * 0x9e3779b97f4a7c15u;
        for (int i = 0; to && i < 2 * n; i++) to[i] = (float)pl_test_noise(&state);
    }
    (void)data;
    return PL_OK;
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data;
    return subset == PL_SUBSET_TRAIN ? 40 : 8;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI, .name = "pictures", .schema = schema, .build = build,
                                 .data_size = data_size, .data_read = read_samples};

typedef struct seen {
    int n;
    pl_sheet sheet[4];
    uint8_t pixels[4][4096];
} seen;

static pl_status look(void *ctx, const pl_sheet *g)
{
    seen *s = ctx;
    size_t bytes = (size_t)g->width * (size_t)g->height * (size_t)g->channels;
    PL_FAIL_IF(s->n == 4 || bytes > sizeof s->pixels[0], PL_ERR_ARG, "too much");
    s->sheet[s->n] = *g;
    memcpy(s->pixels[s->n++], g->pixels, bytes);
    return PL_OK;
}

static pl_run *started(const char *const *keys, int n)
{
    pl_run *r = NULL;
    pl_status rc = small_run_open(&recipe, keys, n, &r);
    if (rc == PL_OK) rc = pl_run_build(r);
    if (rc == PL_OK) rc = pl_run_start(r);
    if (rc == PL_OK) return r;
    fprintf(stderr, "%s\n", pl_error_text());
    pl_run_free(r);
    return NULL;
}

/* Five samples in micro-batches of two: places 0 1 2 over 3 4, the sixth empty. */
TEST(samples_are_the_numbers)
{
    const char *keys[] = {"sample.every=1", "sample.count=5", "batch=2"};
    pl_run *r = started(keys, 3);
    seen a = {0}, b = {0};
    CHECK(r);
    CHECK_OK(pl_run_sample(r, look, &a));
    CHECK_INT(a.n, 3);
    for (int p = 0; p < 2; p++) {
        CHECK(a.sheet[p].width == 3 * W && a.sheet[p].height == 2 * H && a.sheet[p].channels == 3);
        for (int y = 0; y < 2 * H; y++)
            for (int x = 0; x < 3 * W; x++)
                for (int c = 0; c < 3; c++) {
                    int sample = y / H * 3 + x / W;
                    int want = sample < COUNT ? 10 * sample + 1 + c : 0;
                    CHECK_INT(a.pixels[p][(y * 3 * W + x) * 3 + c], want);
                }
    }
    /* Noise differs from sample to sample, and is the same the next time. */
    CHECK(a.sheet[2].channels == 1);
    const uint8_t *noise = a.pixels[2];
    for (int i = 1; i < 3; i++) CHECK(memcmp(noise, noise + i * W, W) != 0);
    CHECK(memcmp(noise, noise + 3 * W * H, W) != 0);
    pl_step_info info;
    CHECK_OK(pl_run_step(r, &info));
    CHECK_OK(pl_run_sample(r, look, &b));
    CHECK(memcmp(a.pixels, b.pixels, sizeof a.pixels) == 0);
    pl_run_free(r);
}

/* An evaluation may draw: training goes on as if there had been none. */
TEST(samples_evaluations_draw_apart)
{
    const char *keys[] = {"batch=4", "break=draws"};
    pl_run *a = started(keys, 2), *b = started(keys, 2);
    CHECK(a && b);
    for (int i = 0; i < 4; i++) {
        pl_step_info x, y;
        pl_eval_info e;
        CHECK_OK(pl_run_step(a, &x));
        CHECK_OK(pl_run_step(b, &y));
        CHECK_MSG(x.loss == y.loss, "step %d: %.9g and %.9g", i, x.loss, y.loss);
        CHECK_OK(pl_run_eval(a, &e));
    }
    pl_run_free(a);
    pl_run_free(b);
}

/* Training has the same bits with and without pictures, and the plan knows of them. */
TEST(samples_change_nothing)
{
    const char *with[] = {"sample.every=1", "batch=4", "wide=5000"}, *without[] = {"batch=4"};
    pl_run *a = started(with, 3), *b = started(without, 1);
    CHECK(a && b);
    CHECK(pl_run_sample_program(a) && !pl_run_sample_program(b));
    for (int i = 0; i < 6; i++) {
        pl_step_info x, y;
        CHECK_OK(pl_run_step(a, &x));
        CHECK_OK(pl_run_step(b, &y));
        CHECK_MSG(x.loss == y.loss, "step %d: %.9g and %.9g", i, x.loss, y.loss);
        static seen s;
        s.n = 0;
        pl_status rc = pl_run_sample(a, look, &s); /* the noise is too wide for it */
        CHECK(rc == PL_ERR_ARG && s.n == 2);
    }
    CHECK(pl_run_memory_get(a).state == pl_run_memory_get(b).state);
    CHECK(pl_session_arena_bytes(pl_run_session(a)) >= 4 * H * W * 5000 * sizeof(float));
    CHECK(pl_session_arena_bytes(pl_run_session(b)) < 100000);
    CHECK(pl_program_plan(pl_run_sample_program(a))->arena_bytes == pl_session_arena_bytes(pl_run_session(a)));
    seen s = {0};
    CHECK_OK(pl_run_sample(b, look, &s));
    CHECK_INT(s.n, 0);
    pl_run_free(a);
    pl_run_free(b);
}

TEST(samples_bad_programs_are_told)
{
    static const struct {
        const char *what, *want;
    } rows[] = {
        {"break=absent", "recipe pictures makes no pictures"},
        {"break=nothing", "the sampling program has no picture"},
        {"break=shape", "wants [2,H,W,C] or [2,C,H,W]"},
        {"break=state", "the sampling program writes \"seen\""},
        {"break=input", "input \"z\" is none of the evaluation program's"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *keys[] = {"sample.every=1", "batch=2", rows[i].what};
        pl_run *r = NULL;
        CHECK_OK(small_run_open(&recipe, keys, 3, &r));
        pl_status rc = pl_run_build(r);
        if (rc == PL_OK) rc = pl_run_start(r);
        CHECK_MSG(rc != PL_OK && strstr(pl_error_text(), rows[i].want), "%s: %s", rows[i].what, pl_error_text());
        pl_run_free(r);
    }
}

TEST(samples_png_has_the_pixels)
{
    char path[512];
    uint8_t px[5 * 7 * 3];
    for (size_t i = 0; i < sizeof px; i++) px[i] = (uint8_t)(i * 37);
    snprintf(path, sizeof path, "%s/a.png", pl_test_dir());
    CHECK_OK(pl_png_save(path, 5, 7, 3, px));
    CHECK_INT(pl_png_save(path, 5, 7, 9, px), PL_ERR_ARG);
    if (cli_run("/opt/oracle/bin/python3 -c 'import PIL'").code != 0) SKIP("no PIL");
    cli_result r = cli_run("/opt/oracle/bin/python3 -c \"from PIL import Image as I; i = I.open('%s'); i.load(); "
                           "print(i.size, i.mode, list(i.tobytes()) == [k * 37 %% 256 for k in range(105)])\"", path);
    CHECK_MSG(strcmp(r.out, "(5, 7) RGB True\n") == 0, "%s%s", r.out, r.err);
}

/* The command writes files, events and the report, and trains to the same bits. */
TEST(samples_of_a_run)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P train fluxflow/tiny batch=1 sample.every=2 sample.count=3 train.steps=3 --quiet --out %s/a", d),
              0, "");
    CHECK_RUN(cli_run("$P train fluxflow/tiny batch=1 train.steps=3 --quiet --out %s/b", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    cli_result r = cli_run("ls %s/a/samples", d);
    CHECK_MSG(strcmp(r.out, "00000000-real.png\n00000000-reconstructed.png\n00000002-real.png\n"
                            "00000002-reconstructed.png\n00000003-real.png\n00000003-reconstructed.png\n") == 0,
              "%s", r.out);
    CHECK(cli_same("a/samples/00000000-real.png", "a/samples/00000003-real.png"));
    CHECK(!cli_same("a/samples/00000000-reconstructed.png", "a/samples/00000003-reconstructed.png"));
    CHECK(cli_run("grep -q 'samples/reconstructed' %s/a/events.out.*", d).code == 0);
    CHECK(cli_run("grep -c '\"event\":\"sample\"' %s/a/log.jsonl | grep -qx 6", d).code == 0);
    CHECK_RUN(cli_run("$P report %s/a && grep -q 'image/png;base64' %s/a/report.html && $P report %s/a --out - | "
                      "grep -q 'samples/00000003-real.png'", d, d, d), 0, "wrote");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "sample.every=2 --quiet"), 2, "recipe cloud makes no pictures");
    CHECK_RUN(cli_run("$P train fluxflow/tiny batch=1 train.steps=1 --fresh --quiet --out %s/a && test ! -e "
                      "%s/a/samples", d, d), 0, "");
}
