/* test_samples.c - pictures and arrays during training: they have the right numbers, are
 * planned, and affect no step. */
#include "base/err.h"
#include "data/image/image.h"
#include "io/safetensors.h"
#include "plimsoll_events.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { W = 5, H = 2, COUNT = 5 };

/* A network of one layer; its pictures are the evaluation's inputs, a constant, and noise. */
static const pl_config_entry schema[] = {
    {"break", PL_CONFIG_TEXT, "", 0, 0, NULL,
     "What is wrong with the sampling program; draws: evaluations do."},
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

/* An array with the name of a picture, and others of every type; not in the order of files. */
static void build_arrays(pl_builder *b, pl_graph *g, pl_val x, pl_val noise)
{
    pl_val number =
        pl_reshape(g, pl_slice(g, pl_slice(g, pl_slice(g, x, 3, 0, 1, 1), 2, 0, 1, 1), 1, 0, 1, 1),
                   PL_DIMS(pl_builder_batch(b)));
    pl_builder_array(b, "odd", pl_cast(g, pl_slice(g, noise, 2, 0, 3, 1), PL_BOOL));
    pl_builder_array(b, "number", pl_cast(g, number, PL_I64));
    pl_builder_array(b, "last", x);
    pl_builder_array(b, "noise", noise);
    pl_builder_array(b, "half", pl_cast(g, noise, PL_BF16));
    if (broken(b, "rows")) pl_builder_array(b, "short", pl_slice(g, x, 0, 0, 1, 1));
    if (broken(b, "rank")) pl_builder_array(b, "mean", pl_mean(g, x, PL_AXES_ALL, false));
    if (broken(b, "twice")) pl_builder_array(b, "noise", noise);
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
    pl_val noise = pl_draw_normal(b, m, "noise", PL_TYPE(PL_F32, n, H, W * wide, 1));
    build_arrays(b, g, x, noise);
    if (broken(b, "arrays")) return;
    pl_builder_picture(b, "last", broken(b, "shape") ? pl_slice(g, x, 3, 0, 2, 1) : x, 0, 255);
    pl_builder_picture(b, "first", pl_permute(g, x, (const int[]){0, 3, 1, 2}), 0, 255);
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
    pl_output(e->g, "which",
              pl_mean(e->g, pl_input(e->g, "which", PL_TYPE(PL_F32, n)), PL_AXIS(0), false));
    build_pictures(b);
    return PL_OK;
}

static pl_status read_samples(void *data, pl_subset subset, const int64_t *sample, int n,
                              pl_batch *batch)
{
    float *which = pl_batch_input(batch, "which", NULL);
    for (int i = 0; which && i < n; i++)
        which[i] = (float)(10 * sample[i] + (subset == PL_SUBSET_EVAL));
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

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "pictures",
                                 .schema = schema,
                                 .build = build,
                                 .data_size = data_size,
                                 .data_read = read_samples};

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

/* Five samples in micro-batches of two: grid cells 0 1 2 over 3 4, the sixth empty. */
TEST(samples_sheet_has_the_pixels_of_every_sample)
{
    const char *keys[] = {"sample.every=1", "sample.count=5", "batch=2"};

    pl_run *r = started(keys, 3);
    static seen a, b;
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
    /* Noise differs from sample to sample, and is the same in the next call. */
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

static const char *file_name(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/arrays.safetensors", pl_test_dir());
    return path;
}

/* Returns the bytes of a tensor of the written file, which has `count` rows; NULL if the file lacks
 * the tensor. */
static const char *tensor_of(const char *name, int64_t count, pl_type *type)
{
    static char bytes[1 << 16];
    pl_st_reader *f = NULL;
    pl_status rc = pl_st_open(file_name(), &f);
    const pl_st_tensor *t = rc == PL_OK ? pl_st_find(f, name) : NULL;
    bool good = t && t->loadable && t->rank > 0 && t->dim[0] == count &&
                t->end - t->begin <= sizeof bytes &&
                pl_st_read(f, t, bytes, t->end - t->begin) == PL_OK;
    if (good) *type = t->type;
    pl_st_close(f);
    return good ? bytes : NULL;
}

/* Runs the sampling program directly, from sample `first` on, and compares. */
static const char *compare_rows(pl_run *r, int64_t first, int64_t rows, int64_t count)
{
    static const char *const names[] = {"number", "last", "noise", "half", "odd"};
    int64_t *key =
        pl_session_input(pl_run_session(r), pl_run_sample_program(r), PL_SAMPLE_KEY, NULL);
    float *which = pl_session_input(pl_run_session(r), pl_run_sample_program(r), "which", NULL);
    key[0] = pl_config_int(pl_run_config(r), "seed");
    key[1] = first;
    for (int64_t i = 0; i < pl_run_split_get(r).micro; i++)
        which[i] = (float)(10 * ((first + i % rows) % 8) + 1);
    if (pl_session_run(pl_run_session(r), r->build->sample) != PL_OK ||
        pl_session_wait(pl_run_session(r)) != PL_OK)
        return "run";
    for (int i = 0; i < 5; i++) {
        char output[64];
        pl_type want, t;
        snprintf(output, sizeof output, PL_SAMPLE_ARRAY "%s", names[i]);
        const char *x =
            pl_session_output(pl_run_session(r), pl_run_sample_program(r), output, &want);
        const char *got = tensor_of(names[i], count, &t);
        size_t row = pl_type_bytes(&want) / (size_t)pl_run_split_get(r).micro;
        want.dim[0] = count;
        if (!x || !got || !pl_type_equal(&want, &t)) return names[i];
        if (memcmp(got + (size_t)first * row, x, (size_t)rows * row) != 0) return names[i];
    }
    return NULL;
}

static void check_arrays(const char *device, int64_t micro, int64_t count)
{
    char keys[3][32];
    snprintf(keys[0], sizeof keys[0], "device=%s", device);
    snprintf(keys[1], sizeof keys[1], "batch=%d", (int)micro);
    snprintf(keys[2], sizeof keys[2], "sample.count=%d", (int)count);
    const char *all[] = {"sample.every=1", keys[0], keys[1], keys[2]};
    pl_run *r = started(all, 4);
    static seen s;
    s.n = 0;
    pl_type t;
    CHECK(r && pl_run_sample_arrays(r));
    pl_status rc = pl_run_sample(r, look, &s);
    CHECK_OK(rc);
    CHECK_OK(pl_run_sample_save(r, file_name()));
    const int64_t *number = (const void *)tensor_of("number", count, &t);
    CHECK(number && t.rank == 1 && t.dtype == PL_I64);
    for (int64_t i = 0; i < count; i++) CHECK_INT(number[i], 10 * (i % 8) + 1);
    for (int64_t at = 0; at < count; at += micro) {
        const char *bad = compare_rows(r, at, count - at < micro ? count - at : micro, count);
        CHECK_MSG(!bad, "%s, %d of %d from %d: %s", device, (int)micro, (int)count, (int)at, bad);
    }
    CHECK_INT(pl_run_sample_save(r, "/nowhere/a.safetensors"), PL_ERR_IO);
    CHECK(strstr(pl_error_text(), "cannot write /nowhere/a.safetensors"));
    pl_run_free(r);
}

/* Also where the last micro-batch is not full, and where there are more than the eight samples
 * of the set. */
TEST(samples_arrays_are_the_outputs)
{
    static const char *const devices[] = {"cpu", "apart"};
    for (int i = 0; i < 2; i++) {
        check_arrays(devices[i], 2, 5);
        check_arrays(devices[i], 4, 4);
        check_arrays(devices[i], 3, 11);
        check_arrays(devices[i], 10, 9);
    }
}

/* Arrays without pictures suffice, and their memory is planned. */
TEST(samples_arrays_need_no_picture_and_are_planned)
{
    const char *keys[] = {"sample.every=1", "batch=2", "break=arrays", "wide=100",
                          "sample.count=1"};
    static seen s;

    pl_run *r = started(keys, 5);
    CHECK(r && pl_run_sample_arrays(r));
    CHECK_OK(pl_run_sample(r, look, &s));
    CHECK_INT(s.n, 0);

    uint64_t one = pl__sample_bytes(r);
    pl_run_free(r);
    keys[4] = "sample.count=1001";
    r = started(keys, 5);
    const uint64_t row = 8 + 4 * 3 * W * H + 4 * 100 * W * H + 2 * 100 * W * H + 3 * H;
    CHECK(r);
    CHECK_MSG(pl__sample_bytes(r) >= one + 1000 * row - 5 * 64, "%llu after %llu",
              (unsigned long long)pl__sample_bytes(r), (unsigned long long)one);
    CHECK(one >= row + 65536); /* the buffer of a file's writer */
    CHECK_OK(pl_run_sample(r, look, &s));
    pl_run_free(r);
    r = started(keys, 0);
    CHECK(r && !pl_run_sample_arrays(r));
    CHECK_INT(pl_run_sample_save(r, file_name()), PL_ERR_ARG);
    pl_run_free(r);
}

/* An evaluation may draw random numbers: training has the same losses without it. */
TEST(samples_draws_of_an_evaluation_do_not_change_training)
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

/* Training has the same bits with and without pictures, and the plan includes their memory. */
TEST(samples_do_not_change_training)
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
        pl_status rc = pl_run_sample(a, look, &s); /* the noise is too wide for this check */
        CHECK(rc == PL_ERR_ARG && s.n == 2);
    }
    CHECK(pl_run_memory_get(a).state == pl_run_memory_get(b).state);
    CHECK(pl_session_arena_bytes(pl_run_session(a)) >= 4 * H * W * 5000 * sizeof(float));
    CHECK(pl_session_arena_bytes(pl_run_session(b)) < 100000);
    CHECK(pl_program_plan(pl_run_sample_program(a))->arena_bytes ==
          pl_session_arena_bytes(pl_run_session(a)));

    static seen s;
    CHECK_OK(pl_run_sample(b, look, &s));
    CHECK_INT(s.n, 0);
    pl_run_free(a);
    pl_run_free(b);
}

TEST(samples_bad_programs_are_refused_with_a_reason)
{
    static const struct {
        const char *what, *want;
    } rows[] = {
        {"break=absent", "recipe pictures makes no pictures"},
        {"break=nothing", "the sampling program has no picture"},
        {"break=shape", "needs [2,H,W,C] or [2,C,H,W]"},
        {"break=rows",
         "array \"short\" is f32[1,2,5,3]; its first dimension must be the 2 samples"},
        {"break=rank", "array \"mean\" is f32[]"},
        {"break=twice", "sample.array.noise"},
        {"break=state", "the sampling program writes \"seen\""},
        {"break=input", "input \"z\" is not an input of the evaluation program"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *keys[] = {"sample.every=1", "batch=2", rows[i].what};
        pl_run *r = NULL;
        CHECK_OK(small_run_open(&recipe, keys, 3, &r));
        pl_status rc = pl_run_build(r);
        if (rc == PL_OK) rc = pl_run_start(r);
        CHECK_MSG(rc != PL_OK && strstr(pl_error_text(), rows[i].want), "%s: %s", rows[i].what,
                  pl_error_text());
        pl_run_free(r);
    }
}

TEST(samples_png_has_the_pixels)
{
    static const char *const mode[] = {"", "L", "LA", "RGB", "RGBA"};
    uint8_t px[5 * 7 * 4];

    for (size_t i = 0; i < sizeof px; i++) px[i] = (uint8_t)(i * 37);
    const char *path = pl_test_path("a.png");
    CHECK_INT(pl_png_save(path, 5, 7, 9, px), PL_ERR_ARG);
    CHECK_INT(pl_png_save(path, 0, 7, 3, px), PL_ERR_ARG);

    if (pl_image_missing(PL_IMAGE_PNG)) SKIP("libspng is not installed");
    WANT_PYTHON(python, "PIL");
    for (int channels = 1; channels <= 4; channels++) {
        char want[64];
        CHECK_OK(pl_png_save(path, 5, 7, channels, px));
        snprintf(want, sizeof want, "(5, 7) %s True\n", mode[channels]);
        cli_result r = cli_run(
            "%s -c \"from PIL import Image as I; i = I.open('%s'); i.load(); "
            "print(i.size, i.mode, list(i.tobytes()) == [k * 37 %% 256 for k in range(%d)])\"",
            python, path, 35 * channels);
        CHECK_MSG(strcmp(r.out, want) == 0, "%d channels: %s%s", channels, r.out, r.err);
    }
}

/* A library of that name without its functions counts as missing: the loader finds it first. */
TEST(samples_without_libspng_say_so)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    if (cli_run("cd %s && echo 'int none;' > n.c && cc -shared -fPIC -o libspng.so.0 n.c && "
                "cp libspng.so.0 libpng16.so.16",
                d)
            .code)
        SKIP("no C compiler");
    cli_result r = cli_run("export LD_LIBRARY_PATH=%s; $P train fluxflow/tiny batch=1 "
                           "sample.every=1 train.steps=2 --quiet --out %s/a",
                           d, d);
    CHECK_RUN(r, 0, "warning: pictures are not written: ");
    CHECK(strstr(strstr(r.err, "libspng") + 1, "libspng-dev") &&
          !strstr(strstr(r.err, "warning") + 1, "warning"));
    CHECK_RUN(cli_run("ls %s/a/samples | grep png", d), 1, "");
    CHECK_RUN(
        cli_run("LD_LIBRARY_PATH=%s $P generate fluxflow/tiny --raw --samples 2 --out %s/g", d, d),
        1, "000000.png: libspng is not installed");
    r = cli_run("LD_LIBRARY_PATH=%s $P doctor", d);
    const char *advice = strstr(r.out, "sudo apt-get install ");
    CHECK(advice && strstr(advice, " libspng-dev") && !strstr(advice, " or "));
}

/* The command writes files, events and the report, and trains to the same bits. */
TEST(samples_of_a_run_are_written_and_reported)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(
            "$P train fluxflow/tiny batch=1 sample.every=2 sample.count=3 train.steps=3 --quiet --out %s/a",
            d),
        0, "");
    CHECK_RUN(cli_run("$P train fluxflow/tiny batch=1 train.steps=3 --quiet --out %s/b", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));

    cli_result r = cli_run("ls %s/a/samples | LC_ALL=C sort", d);
    CHECK_MSG(strcmp(r.out,
                     "00000000-real.png\n00000000-reconstructed.png\n00000000.safetensors\n"
                     "00000002-real.png\n00000002-reconstructed.png\n00000002.safetensors\n"
                     "00000003-real.png\n00000003-reconstructed.png\n00000003.safetensors\n") == 0,
              "%s", r.out);
    CHECK(cli_same("a/samples/00000000-real.png", "a/samples/00000003-real.png"));
    CHECK(
        !cli_same("a/samples/00000000-reconstructed.png", "a/samples/00000003-reconstructed.png"));
    CHECK(cli_run("grep -q 'samples/reconstructed' %s/a/events.out.*", d).code == 0);
    CHECK(cli_run("grep -c '\"event\":\"sample\"' %s/a/log.jsonl | grep -qx 6", d).code == 0);
    CHECK(
        cli_run(
            "grep '\"event\":\"arrays\"' %s/a/log.jsonl | grep -c 'samples/0000000[023].safetensors' | grep -qx 3",
            d)
            .code == 0);
    CHECK_RUN(
        cli_run(
            "$P report %s/a && grep -q 'image/png;base64' %s/a/report.html && $P report %s/a --out - | "
            "grep -q 'samples/00000003-real.png'",
            d, d, d),
        0, "wrote");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "sample.every=2 --quiet"), 2,
              "recipe cloud makes no pictures");
    CHECK_RUN(
        cli_run(
            "$P train fluxflow/tiny batch=1 train.steps=1 --fresh --quiet --out %s/a && test ! -e "
            "%s/a/samples",
            d, d),
        0, "");
}

/* A set on disk without an evaluation part: the first training samples, each once. */
TEST(samples_come_from_training_data_without_an_evaluation_set)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    pl_type t;

    CHECK_RUN(
        cli_run(
            "cd %s && $P generate fluxflow/tiny --raw --out set --samples 6 --eval-samples 2 && rm -r set/eval && "
            "$P train fluxflow/tiny lpips.on=false batch=2 data.path=set data.eval_share=0 sample.every=1 sample.count=5 "
            "train.steps=1 --quiet --out a && cp a/samples/00000000.safetensors arrays.safetensors",
            d),
        0, "");
    const char *x = tensor_of("encoded", 5, &t);
    CHECK(x);

    size_t row = pl_type_bytes(&t) / 5;
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < i; k++) CHECK(memcmp(x + i * row, x + k * row, row) != 0);
}

/* The run ends if arrays cannot be written, and leaves no partial file. */
TEST(samples_that_cannot_be_written_end_the_run)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
    const char *last = "batch=1 sample.every=1 train.steps=1 --quiet --out";

    CHECK_RUN(
        cli_run("mkdir -p %s/a/samples/00000000.safetensors/x && $P train fluxflow/tiny %s %s/a", d,
                last, d),
        1, "a/samples/00000000.safetensors: ");
    CHECK_RUN(cli_run("ls %s/a/samples | grep tmp", d), 1, "");
    CHECK_RUN(cli_run("mkdir -p %s/b && touch %s/b/samples && $P train fluxflow/tiny %s %s/b", d, d,
                      last, d),
              1, "b/samples exists and is not a folder");
    if (geteuid() == 0) return; /* for root no folder is read-only */
    CHECK_RUN(
        cli_run("mkdir -p %s/c/samples && chmod 500 %s/c/samples && $P train fluxflow/tiny %s %s/c",
                d, d, last, d),
        1, "cannot write");
}
