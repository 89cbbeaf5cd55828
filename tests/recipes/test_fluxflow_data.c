/* test_fluxflow_data.c - fluxflow's data as users have them: texts, pictures, several
 * resolutions, buckets, encoded latents, and the published weights of LPIPS. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "recipes/fluxflow/fluxflow.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <string.h>

static pl_status generate(const char *const *more, int n, const char *dir, int64_t samples)
{
    pl_run *run;
    PL_TRY(pl_run_open("fluxflow/flow-tiny", more, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_generate_raw(run, pl_test_path(dir), samples, 2, NULL, NULL);
    pl_run_free(run);
    return rc;
}

/* Writes captions.tsv and the recipe's own embeddings of the captions, times a factor. */
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
        const char *caption = cli_read(pl_test_path(line));
        ok = flux_encode(pl_run_config(run), caption, rows[i], &row) == PL_OK;
        for (int k = 0; k < 24; k++) rows[i][k] *= factor;
        sprintf(all + strlen(all), "train/%06d.png\t%s\n", i, caption);
        sprintf(prompts + strlen(prompts), "%s\n", caption);
    }
    ok = ok && cli_write(pl_test_path("captions.tsv"), all) &&
         cli_write(pl_test_path("prompts.txt"), prompts) &&
         pl_st_writer_new(pl_test_path("rows.safetensors"), &w) == PL_OK;
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

/* Losses of the flow stage with a random compressor. */
static pl_status flow_losses(const char *const *keys, int n, double *loss, int steps)
{
    const char *all[16] = {"allow_random_frozen=true"};
    memcpy(all + 1, keys, (size_t)n * sizeof *all);
    return small_run_losses("fluxflow/flow-tiny", all, n + 1, loss, steps);
}

/* The same pictures and captions give the same steps as files, as lines of a captions file, and
 * in a tar. Embeddings from a file give the same steps if and only if they equal the recipe's
 * own vectors. */
TEST(fluxflow_files_lines_and_tars_give_the_same_steps)
{
    char path[8][640];
    double want[3], got[3];
    CHECK_OK(generate(NULL, 0, "set", 9));
    CHECK(write_texts(9, 1));
    snprintf(path[0], sizeof path[0], "data.path=%s", pl_test_path("set"));
    const char *texts[] = {path[0]};
    CHECK_OK(flow_losses(texts, 1, want, 3));

    snprintf(path[2], sizeof path[2], "data.prompts=%s", pl_test_path("prompts.txt"));
    snprintf(path[3], sizeof path[3], "data.embeddings=%s", pl_test_path("rows.safetensors"));
    const char *rows[] = {path[0], path[2], path[3]};
    CHECK_OK(flow_losses(rows, 3, got, 3));
    CHECK(memcmp(want, got, sizeof want) == 0);
    CHECK(write_texts(9, 2));
    CHECK_OK(flow_losses(rows, 3, got, 3));
    CHECK(memcmp(want, got, sizeof want) != 0);

    char command[2048];
    snprintf(
        command, sizeof command,
        "cd %s && (cd set/train && tar cf ../../a.tar *) && cp -r set plain && rm plain/train/*.txt "
        "plain/eval/*.txt",
        pl_test_dir());
    CHECK_INT(system(command), 0);
    snprintf(path[4], sizeof path[4], "data.path=%s", pl_test_path("plain"));
    snprintf(path[5], sizeof path[5], "data.captions=%s", pl_test_path("captions.tsv"));
    const char *lines[] = {path[4], path[5]};
    CHECK_OK(flow_losses(lines, 2, got, 3));
    CHECK(memcmp(want, got, sizeof want) == 0);
    CHECK_OK(flow_losses(lines, 1, got, 3)); /* without captions */
    CHECK(memcmp(want, got, sizeof want) != 0);

    /* A tar has no separate evaluation part, so other samples are left for training. */
    snprintf(path[6], sizeof path[6], "data.path=%s", pl_test_path("a.tar"));
    const char *tar[] = {path[6], "data.source=tar"};
    CHECK_OK(flow_losses(tar, 2, got, 3));
    CHECK(got[0] > 0 && got[2] > 0);

    /* Missing captions are errors: no file, lines for other images, a captions file beside a
     * tar. */
    static const char *const why[] = {"gone.tsv", "none of its 1 lines names an image",
                                      "data.captions is for images in folders"};
    CHECK(cli_write(pl_test_path("other.tsv"), "other/000000.png\ta red disc\n"));
    for (int i = 0; i < 3; i++) {
        snprintf(path[7], sizeof path[7], "data.captions=%s",
                 pl_test_path(i ? "other.tsv" : "gone.tsv"));
        const char *keys[] = {path[i == 2 ? 6 : 4], path[7]};
        CHECK_INT(flow_losses(keys, 2, got, 1), i == 2 ? PL_ERR_CONFIG : PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), why[i]), "%s", pl_error_text());
    }
    const char *prefixed[] = {path[0], path[2], path[3], "data.prompt_prefix=a photo of"};
    CHECK_INT(flow_losses(prefixed, 4, got, 1), PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "data.prompt_prefix"));
}

/* Too few pictures: the evaluation share has none, or training has none. */
TEST(fluxflow_few_pictures_train_with_or_without_evaluation)
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
        snprintf(path, sizeof path, "data.path=%s", pl_test_path("few"));
        const char *keys[] = {path, cases[i].share, "allow_random_frozen=true"};
        CHECK_OK(pl_run_open("fluxflow/flow-tiny", keys, 3, &run));
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

/* Pictures from files at two sizes: both programs get the same pictures. */
TEST(fluxflow_resolutions_show_the_same_pictures)
{
    char path[640];
    pl_run *run;
    double large, small;
    CHECK_OK(generate(NULL, 0, "set", 4));
    snprintf(path, sizeof path, "data.path=%s", pl_test_path("set"));
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

/* Words determine the direction of a vector, in any order; the prefix is part of the text. */
TEST(fluxflow_captions_encode_by_their_words)
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

/* Pictures of two aspect ratios, each bucket at two resolutions: a step runs the programs of its
 * bucket. */
TEST(fluxflow_buckets_run_the_programs_of_their_size)
{
    if (!pl_test_long()) SKIP("long");
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
    snprintf(path, sizeof path, "data.path=%s", pl_test_path("set"));
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
static const int width_of[6] = {3, 8, 8, 16, 16, 16}; /* of the preset tiny, after each slice */

static float value_of(int tensor, int64_t i)
{
    return (float)(0.01 * (tensor + 1) + 1e-5 * (double)i);
}

/* Writes names of the lpips package, or of torchvision's VGG16 and the package's linear layers.
 * part: 0 all, 1 convolutions, 2 linear layers; skip: index of a tensor to leave out, or -1. */
static pl_status write_vgg(const char *file, bool package, int part, int skip)
{
    pl_st_writer *w;
    pl_type type[TENSORS];
    char name[64];
    int index[TENSORS], n = 0;
    PL_TRY(pl_st_writer_new(pl_test_path(file), &w));
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

/* Compares the last convolution, the first (file order is [out, in, 3, 3], ours [out, 3, 3, in])
 * and a linear layer. */
static void check_loaded(pl_run *run)
{
    static const struct {
        const char *slot;
        int tensor;
        int64_t ours, file;
    } want[] = {{"lpips.stages.0.0.weight", 0, 2, 2 * 9}, /* input 2 at pixel (0,0) */
                {"lpips.stages.0.0.weight", 0, 3, 1},     /* input 0 at pixel (0,1) */
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
    snprintf(key, sizeof key, "lpips.weights=%s", pl_test_path(file));
    const char *keys[] = {key, "gan.on=false"};
    PL_TRY(pl_run_open("fluxflow/tiny", keys, 2, run));
    pl_status rc = pl_run_build(*run);
    return rc == PL_OK ? pl_run_start(*run) : rc;
}

TEST(fluxflow_lpips_weights_load_from_a_file_or_a_folder)
{
    pl_run *run = NULL;
    CHECK_OK(write_vgg("package.safetensors", true, 0, -1));
    CHECK_OK(start_with("package.safetensors", &run));
    check_loaded(run);
    pl_run_free(run);

    CHECK_OK(pl_sys_make_dirs(pl_test_path("folder")));
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
