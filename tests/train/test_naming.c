/* test_naming.c - names that a function of the recipe gives (pl_naming.map): joined tensors, added
 * numbers, dimensions of 1, tensors that follow from the configuration. */
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 4, OUT = 6 };
static const pl_config_entry schema[] = {{0}};

static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    int64_t n = pl_builder_batch(b);
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, IN)),
           y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, OUT));
    pl_val q = pl_nn_linear(m, x, "q", OUT, (pl_nn_lin){.no_bias = true}),
           k = pl_nn_linear(m, x, "k", OUT, (pl_nn_lin){.no_bias = true}),
           v = pl_nn_linear(m, x, "v", OUT, (pl_nn_lin){0});
    pl_builder_minimise(b, pl_loss_mse(m->g, pl_add(m->g, pl_mul(m->g, q, k), v), y));
    return PL_OK;
}

/* q, k and v are one tensor of theirs; their bias is 1 more in its first half. */
static bool map(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    const char *part = strchr("qkv", ours[0]);
    if (strcmp(ours, "v.bias") == 0) {
        snprintf(to->name, sizeof to->name, "attn.scale");
        to->add = 1;
        to->add_count = type->dim[0] / 2;
        return true;
    }
    if (!part || strcmp(ours + 1, ".weight") != 0) return false;
    snprintf(to->name, sizeof to->name, "attn.qkv.weight");
    to->rows = 3 * type->dim[0];
    to->row = (part - "qkv") * type->dim[0];
    return pl_config_int(c, "batch") > 0;
}

static bool constant(const pl_config *c, int i, char name[PL_TENSOR_NAME], pl_type *type,
                     void *data)
{
    float *f = data;
    (void)c;
    if (i) return false;
    snprintf(name, PL_TENSOR_NAME, "inv_freq");
    *type = PL_TYPE(PL_F32, 2);
    if (f) f[0] = 1, f[1] = 0.5F;
    return true;
}

static const pl_naming namings[] = {
    {.name = "joined", .prefix = "net.", .map = map, .constant = constant}, {.name = NULL}};
static const pl_start start = {.naming = namings};
static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "naming-test",
                                 .about = "three layers",
                                 .schema = schema,
                                 .build = build,
                                 .data_read = small_run_noise,
                                 .start = &start};

/* Element i of tensor k of the file. */
static float value(int k, int64_t i)
{
    return (float)(100 * k + i) / 8;
}

/* rows: of the joined tensor. */
static void write_theirs(const char *path, int64_t rows)
{
    const pl_type type[] = {PL_TYPE(PL_F32, rows, IN), PL_TYPE(PL_F32, OUT, 1, 1),
                            PL_TYPE(PL_F32, 2)};
    static const char *const name[] = {"net.attn.qkv.weight", "net.attn.scale", "net.inv_freq"};
    float data[128];
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new(path, &w));
    for (int i = 0; i < 3; i++) CHECK_OK(pl_st_writer_add(w, name[i], &type[i]));
    CHECK_OK(pl_st_writer_begin(w));
    for (int i = 0; i < 3; i++) {
        int k = pl_st_writer_order(w, i);
        for (int64_t e = 0; e < pl_type_elems(&type[k]); e++) data[e] = value(k, e);
        CHECK_OK(pl_st_writer_write(w, k, data, pl_type_bytes(&type[k])));
    }
    CHECK_OK(pl_st_writer_finish(w));
    pl_st_writer_free(w);
}

/* Opens a run that starts from the file and returns what pl_run_start says. */
static pl_status start_from(const char *path, pl_run **run)
{
    char from[600];
    snprintf(from, sizeof from, "init_from=%s", path);
    const char *const keys[] = {"batch=4", from};
    PL_TRY(small_run_open(&recipe, keys, 2, run));
    PL_TRY(pl__stage_open(*run));
    PL_TRY(pl_run_build(*run));
    return pl_run_start(*run);
}

TEST(naming_map_reads_joined_and_shifted_tensors)
{
    char path[512], ours[512];

    snprintf(path, sizeof path, "%s/theirs.safetensors", pl_test_dir());
    snprintf(ours, sizeof ours, "%s/ours.safetensors", pl_test_dir());
    pl_run *run = NULL;
    write_theirs(path, 3 * OUT);
    CHECK_OK(start_from(path, &run));
    CHECK_OK(pl_run_save_model(run, ours));
    pl_st_reader *f;
    CHECK_OK(pl_st_open(ours, &f));
    for (int k = 0; k < 3; k++) {
        float got[OUT * IN];
        const char *const name[] = {"q.weight", "k.weight", "v.weight"};
        CHECK_OK(pl_st_read(f, pl_st_find(f, name[k]), got, sizeof got));
        for (int i = 0; i < OUT * IN; i++) CHECK(got[i] == value(0, (int64_t)k * OUT * IN + i));
    }
    float bias[OUT];
    CHECK_OK(pl_st_read(f, pl_st_find(f, "v.bias"), bias, sizeof bias));
    for (int i = 0; i < OUT; i++) CHECK(bias[i] == value(1, i) - (float)(i < OUT / 2));
    pl_st_close(f);
    pl_run_free(run);
}

TEST(naming_map_refuses_a_joined_tensor_of_another_size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/theirs.safetensors", pl_test_dir());
    pl_run *run = NULL;
    write_theirs(path, 3 * OUT - 1);
    CHECK(start_from(path, &run) == PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "net.attn.qkv.weight") && strstr(pl_error_text(), "17,4"),
              "%s", pl_error_text());
    pl_run_free(run);
}
