/* test_weights.c - init_from: prefixes, dictionaries of PyTorch, what may be missing, averages and
 * the number of steps of a checkpoint, and the table that is told. */
#include "io/safetensors.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_tensors.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const pl_config_entry schema[] = {{0}};
static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "weights-test",
                                 .about = "one layer",
                                 .schema = schema,
                                 .build = small_run_linear,
                                 .data_read = small_run_noise};

/* A file with "fc.weight" [2,2] and "fc.bias" [2] after each prefix: element e of the tensors after
 * prefix k is 10 k + e. entry: a further entry of a PyTorch file; NULL: none. */
static void write_file(const char *path, const char *const *prefix, int n, const char *under,
                       const char *entry, const char *json)
{
    char name[128];
    float data[4];
    const pl_type type[2] = {PL_TYPE(PL_F32, 2, 2), PL_TYPE(PL_F32, 2)};
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new(path, &w));
    for (int i = 0; i < 2 * n; i++) {
        snprintf(name, sizeof name, "%sfc.%s", prefix[i / 2], i % 2 ? "bias" : "weight");
        CHECK_OK(pl_st_writer_add(w, name, &type[i % 2]));
    }
    if (under) CHECK_OK(pl_st_writer_under(w, under));
    if (entry) CHECK_OK(pl_st_writer_entry(w, entry, json));
    CHECK_OK(pl_st_writer_begin(w));
    for (int i = 0; i < 2 * n; i++) {
        int k = pl_st_writer_order(w, i);
        for (int e = 0; e < 4; e++) data[e] = (float)(10 * (k / 2) + e);
        CHECK_OK(pl_st_writer_write(w, k, data, pl_type_bytes(&type[k % 2])));
    }
    CHECK_OK(pl_st_writer_finish(w));
    pl_st_writer_free(w);
}

/* Starts a run with up to three further keys. */
static pl_status start(const char *path, const char *a, const char *b, pl_run **run)
{
    char from[700];
    snprintf(from, sizeof from, "init_from=%s", path);
    const char *keys[4] = {"batch=4", from, a, b};
    PL_TRY(small_run_open(&recipe, keys, 2 + (a != NULL) + (b != NULL), run));
    PL_TRY(pl__stage_open(*run));
    PL_TRY(pl_run_build(*run));
    return pl_run_start(*run);
}

static float first_of(pl_run *run, const char *slot)
{
    float x[4] = {-1, -1, -1, -1};
    int i = pl_store_find(pl_run_store(run), slot);
    if (i < 0 || pl_session_read_slot(run->session, i, 0, x, 4) != PL_OK) return -1;
    return x[0];
}

TEST(weights_prefix_is_found_in_either_format)
{
    static const char *const module[] = {"module."}, *const deep[] = {"model.diffusion_model."};

    pl_run *run = NULL;
    write_file(pl_test_path("a.safetensors"), deep, 1, NULL, NULL, NULL);
    CHECK_OK(start(pl_test_path("a.safetensors"), NULL, NULL, &run));
    CHECK(first_of(run, "fc.weight") == 0);
    CHECK(strstr(pl_run_start_note(run), "after \"model.diffusion_model.\""));
    pl_run_free(run);
    write_file(pl_test_path("a.ckpt"), module, 1, "state_dict", NULL, NULL);
    run = NULL;
    CHECK_OK(start(pl_test_path("a.ckpt"), NULL, NULL, &run));

    CHECK(first_of(run, "fc.bias") == 0);
    CHECK(strstr(pl_run_start_note(run), "after \"state_dict.module.\""));
    CHECK(strstr(pl_run_start_note(run), "loaded              2"));
    pl_run_free(run);
}

/* The weights, not their averages; the averages where init_from.prefix names them. */
TEST(weights_prefix_of_averages_is_taken_only_by_name)
{
    static const char *const both[] = {"ema.", "model."};

    pl_run *run = NULL;
    write_file(pl_test_path("a.pt"), both, 2, NULL, NULL, NULL);
    CHECK_OK(start(pl_test_path("a.pt"), NULL, NULL, &run));
    CHECK(first_of(run, "fc.weight") == 10);
    pl_run_free(run);
    run = NULL;
    CHECK_OK(start(pl_test_path("a.pt"), "init_from.prefix=ema.", NULL, &run));
    CHECK(first_of(run, "fc.weight") == 0);
    pl_run_free(run);
    run = NULL;

    CHECK_INT(start(pl_test_path("a.pt"), "init_from.prefix=none.", NULL, &run), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "none.fc.weight"), "%s", pl_error_text());
    pl_run_free(run);
}

TEST(weights_averages_of_a_checkpoint_become_the_runs_averages)
{
    static const char *const both[] = {"model.", "ema."};
    pl_run *run = NULL;
    write_file(pl_test_path("a.pt"), both, 2, NULL, NULL, NULL);
    CHECK_OK(start(pl_test_path("a.pt"), "ema.decay=0.9", NULL, &run));
    CHECK(first_of(run, "fc.weight") == 0 && first_of(run, "ema.fc.weight") == 10);
    CHECK_MSG(strstr(pl_run_start_note(run), "2 averages after \"ema.\""), "%s",
              pl_run_start_note(run));
    pl_run_free(run);
}

/* Lightning's LitEma: beside the module `model`, without dots in the names. */
TEST(weights_averages_of_lightning_are_found_by_their_flat_names)
{
    static const float x[6] = {7, 7, 7, 7, 7, 7}, y[6] = {3, 3, 3, 3, 3, 3};
    const pl_tensor_data all[] = {{"state_dict.model.fc.weight", PL_TYPE(PL_F32, 2, 2), x},
                                  {"state_dict.model.fc.bias", PL_TYPE(PL_F32, 2), x},
                                  {"state_dict.model_ema.decay", PL_TYPE(PL_F32, 1), y},
                                  {"state_dict.model_ema.fcweight", PL_TYPE(PL_F32, 2, 2), y},
                                  {"state_dict.model_ema.fcbias", PL_TYPE(PL_F32, 2), y}};
    pl_run *run = NULL;
    CHECK_OK(pl_tensors_save(pl_test_path("a.ckpt"), all, 5));
    CHECK_OK(start(pl_test_path("a.ckpt"), "ema.decay=0.9", NULL, &run));
    CHECK(first_of(run, "fc.weight") == 7 && first_of(run, "ema.fc.weight") == 3);
    const pl_loaded *l = pl_run_loaded(run, 0);
    CHECK(l && l->loaded == 2 && l->averages == 2 && l->left_over.n == 0);
    CHECK_MSG(strcmp(l->prefix, "state_dict.model.") == 0 && strcmp(l->key, "init_from") == 0,
              "%s %s", l->prefix, l->key);
    CHECK(!pl_run_loaded(run, 1));
    pl_run_free(run);
}

TEST(weights_missing_ones_are_refused_unless_allowed)
{
    static const float x[6] = {7, 7, 7, 7, 7, 7};
    const pl_tensor_data some[] = {{"fc.weight", PL_TYPE(PL_F32, 2, 2), x},
                                   {"other", PL_TYPE(PL_F32, 1), x}};
    const pl_tensor_data wide[] = {{"fc.weight", PL_TYPE(PL_F32, 3, 2), x},
                                   {"fc.bias", PL_TYPE(PL_F32, 2), x}};

    pl_run *run = NULL;
    CHECK_OK(pl_tensors_save(pl_test_path("a.pth"), some, 2));
    CHECK_INT(start(pl_test_path("a.pth"), NULL, NULL, &run), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "1 tensor is missing: fc.bias") &&
                  strstr(pl_error_text(), "init_from.missing=allow"),
              "%s", pl_error_text());
    pl_run_free(run);
    run = NULL;
    CHECK_OK(start(pl_test_path("a.pth"), "init_from.missing=allow", NULL, &run));
    CHECK(first_of(run, "fc.weight") == 7);
    CHECK_MSG(strstr(pl_run_start_note(run), "missing             1   fc.bias") &&
                  strstr(pl_run_start_note(run), "left over           1   other"),
              "%s", pl_run_start_note(run));
    pl_run_free(run);
    /* another shape: a pattern allows it, "allow" does not */
    CHECK_OK(pl_tensors_save(pl_test_path("b.pth"), wide, 2));
    run = NULL;
    CHECK_INT(start(pl_test_path("b.pth"), "init_from.missing=allow", NULL, &run), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "f32[3,2] in the file, f32[2,2] in the model"), "%s",
              pl_error_text());
    pl_run_free(run);
    run = NULL;
    CHECK_OK(start(pl_test_path("b.pth"), "init_from.missing=fc.w*", NULL, &run));
    CHECK(first_of(run, "fc.weight") != 7 && first_of(run, "fc.bias") == 7);
    pl_run_free(run);
    /* nothing of the model */
    CHECK_OK(pl_tensors_save(pl_test_path("c.pth"), some + 1, 1));
    run = NULL;

    CHECK_INT(start(pl_test_path("c.pth"), "init_from.missing=allow", NULL, &run), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "none of its 1 tensors"), "%s", pl_error_text());
    pl_run_free(run);
}

TEST(weights_step_of_a_checkpoint_is_taken_where_it_is_there)
{
    static const char *const plain[] = {""};

    pl_run *run = NULL;
    write_file(pl_test_path("a.ckpt"), plain, 1, "state_dict", "global_step", "40");
    CHECK_OK(start(pl_test_path("a.ckpt"), NULL, NULL, &run));
    CHECK_INT(pl_run_steps_done(run), 40);
    CHECK_MSG(strstr(pl_run_start_note(run), "step               40   of the file continues"), "%s",
              pl_run_start_note(run));
    pl_run_free(run);
    run = NULL;
    CHECK_OK(start(pl_test_path("a.ckpt"), "train.steps=40", NULL, &run));
    CHECK_INT(pl_run_steps_done(run), 0);
    CHECK_MSG(strstr(pl_run_start_note(run), "not below train.steps"), "%s",
              pl_run_start_note(run));
    pl_run_free(run);
    run = NULL;
    CHECK_OK(start(pl_test_path("a.ckpt"), "init_from.step=new", NULL, &run));
    CHECK_INT(pl_run_steps_done(run), 0);
    pl_run_free(run);
    run = NULL;
    write_file(pl_test_path("b.ckpt"), plain, 1, "state_dict", "epoch", "3");
    CHECK_OK(start(pl_test_path("b.ckpt"), NULL, NULL, &run));
    CHECK_INT(pl_run_steps_done(run), 0);
    pl_run_free(run);
    run = NULL;

    CHECK_INT(start(pl_test_path("b.ckpt"), "init_from.step=file", NULL, &run), PL_ERR_FILE);
    pl_run_free(run);
    run = NULL;
    CHECK_INT(start(pl_test_path("a.ckpt"), "init_from.step=file", "train.steps=40", &run),
              PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "is at step 40"), "%s", pl_error_text());
    pl_run_free(run);
}

/* f64, f16 and bf16 files, joined from two. */
TEST(weights_of_other_dtypes_and_several_files_are_converted)
{
    static const double w[4] = {0.5, 1, 2, 3};
    static const uint16_t b[2] = {0x4000, 0x3C00}; /* f16: 2, 1 */
    const pl_tensor_data one = {"fc.weight", PL_TYPE(PL_F64, 2, 2), w},
                         two = {"fc.bias", PL_TYPE(PL_F16, 2), b};
    char list[1200];
    pl_run *run = NULL;
    CHECK_OK(pl_tensors_save(pl_test_path("1.pt"), &one, 1));
    CHECK_OK(pl_tensors_save(pl_test_path("2.safetensors"), &two, 1));
    snprintf(list, sizeof list, "%s,", pl_test_path("1.pt"));
    strncat(list, pl_test_path("2.safetensors"), sizeof list - strlen(list) - 1);
    CHECK_OK(start(list, NULL, NULL, &run));
    CHECK(first_of(run, "fc.weight") == 0.5F && first_of(run, "fc.bias") == 2);
    pl_run_free(run);
}

/* Starts a run with fc.weight of these values, which fails, or holds the text. */
static void check_values(pl_dtype dtype, const void *values, const char *text)
{
    static const float zero[2] = {0, 0};
    const pl_tensor_data file[] = {{"fc.weight", PL_TYPE(dtype, 2, 2), values},
                                   {"fc.bias", PL_TYPE(PL_F32, 2), zero}};
    pl_run *run = NULL;
    CHECK_OK(pl_tensors_save(pl_test_path("a.safetensors"), file, 2));
    CHECK_INT(start(pl_test_path("a.safetensors"), NULL, NULL, &run), text ? PL_ERR_FILE : PL_OK);
    CHECK_MSG(!text || strstr(pl_error_text(), text), "%s", pl_error_text());
    pl_run_free(run);
}

/* NaN would spoil every score in silence; an infinity may be a mask's. */
TEST(weights_that_are_not_numbers_are_refused)
{
    static const float nan[4] = {1, 2, NAN, 3}, infinite[4] = {1, -INFINITY, 2, 3};
    static const double huge[4] = {1, 2, 3, -1e300};
    static const int32_t whole[4] = {1, 2, 3, 4};
    check_values(PL_F32, nan, "\"fc.weight\" has NaN, first as element 2");
    check_values(PL_F64, huge, "\"fc.weight\": element 3, -1e+300, is too large for f32");
    check_values(PL_F32, infinite, NULL);
    check_values(PL_I32, whole,
                 "has a number format that is not converted (f16, bf16, f32 and f64 "
                 "are): fc.weight: i32[2,2] in the file, f32[2,2] in the model");
}

/* The message says that the file has the tensor, and in which form. */
TEST(weights_of_forms_that_are_not_read_are_named)
{
    pl_run *run = NULL;
    CHECK_INT(start("tests/data/pt/unread.pt", NULL, NULL, &run), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "2 tensors are missing: fc.weight (the file has a tensor of "
                                      "torch._utils._rebuild_sparse_tensor, which is not read), "
                                      "fc.bias (the file has a tensor of torch._utils._rebuild_"
                                      "qtensor, which is not read)"),
              "%s", pl_error_text());
    pl_run_free(run);
}

/* A file of another network is named as such, with its own names. A file of the same network in
 * another size is not: the message has the shapes. A published name without a dot is shown with
 * the name of the slot. */
TEST(weights_of_another_network_are_told_from_another_size)
{
    WANT_BIN();
    cli_result r =
        cli_run("$P train lgt/tiny --quiet init_from=tests/data/authors/cloud/cloud.pth");
    CHECK_MSG(r.code == 6 && strstr(r.err, "seems to hold another network: of the ") &&
                  strstr(r.err, "the file has model_state_dict.cnn_layers.0.weight, "),
              "%d %s", r.code, r.err);
    r = cli_run("$P train cloud/demo --quiet init_from=tests/data/authors/cloud/cloud.pth");
    CHECK_MSG(r.code == 6 && strstr(r.err, "have other shapes") && strstr(r.err, " in the model"),
              "%d %s", r.code, r.err);
    r = cli_run("$P predict wandistill/tiny latent=8 text.dim=24 student.hidden=32 student.depth=2 "
                "student.heads=2 --model tests/data/authors/wandistill/student --input none.npy "
                "--out %s/none",
                pl_test_dir());
    CHECK_MSG(r.code == 6 && strstr(r.err, "weight (project.weight), bias (project.bias)"), "%d %s",
              r.code, r.err);
}
