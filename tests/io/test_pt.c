/* test_pt.c - files of torch.save: which are read, which are refused, and which are written. The
 * files of tests/data/pt were written by PyTorch and by hand. */
#include "base/dtype.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "io/st_set.h"
#include "plimsoll_tensors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DATA             "tests/data/pt/"
#define CHECK_TEXT(a, b) CHECK_MSG((a) && strcmp(a, b) == 0, "%s, not %s", (a) ? (a) : "none", b)

/* Value of element i of the tensors in the files. */
static double held(int i)
{
    return i * 0.5 - 3;
}

TEST(pt_nested_dictionaries_become_names_with_dots)
{
    static const char *const names[] = {"state_dict.module.a.weight",
                                        "state_dict.module.a.turned",
                                        "state_dict.module.a.row",
                                        "state_dict.module.b.wide",
                                        "state_dict.module.b.empty",
                                        "state_dict.module.b.scalar",
                                        "optimizer_state_dict.state.0.step",
                                        "optimizer_state_dict.state.0.exp_avg",
                                        "ema.module.a.weight",
                                        "list.0",
                                        "list.1"};
    pl_st_reader *r;
    CHECK_OK(pl_st_open(DATA "nested.pt", &r));

    CHECK_INT(pl_st_count(r), 11);
    for (int i = 0; i < 11; i++) CHECK_TEXT(pl_st_at(r, i)->name, names[i]);
    CHECK_TEXT(pl_st_meta_get(r, "global_step"), "1234");
    CHECK_TEXT(pl_st_meta_get(r, "lr"), "0.25");
    CHECK_TEXT(pl_st_meta_get(r, "name"), "run");
    CHECK_TEXT(pl_st_meta_get(r, "fast"), "true");
    CHECK(!pl_st_meta_get(r, "none"));
    pl_st_close(r);
}

/* Small arrays of numpy, as in a pickled scaler, are numbers; larger ones and texts are not. */
TEST(pt_reads_small_arrays_of_numpy)
{
    pl_st_reader *r;
    CHECK_OK(pl_st_open(DATA "scaler.pth", &r));
    CHECK_INT(pl_st_count(r), 1);
    CHECK_TEXT(pl_st_meta_get(r, "scaler.mean_.0"), "0.8437512345");
    CHECK_TEXT(pl_st_meta_get(r, "scaler.var_.0"), "0.12890625");
    CHECK_TEXT(pl_st_meta_get(r, "scaler.n_samples_seen_"), "501");
    CHECK_TEXT(pl_st_meta_get(r, "scaler.with_std"), "true");
    CHECK_TEXT(pl_st_meta_get(r, "wide.0"), "-0.5");
    CHECK_TEXT(pl_st_meta_get(r, "wide.4"), "3.5");
    CHECK(!pl_st_meta_get(r, "many.0") && !pl_st_meta_get(r, "word.0"));
    pl_st_close(r);
}

/* A parameter, a transposed tensor, a tensor that begins inside its storage, a repeated tensor. */
TEST(pt_reads_views_of_storages)
{
    float got[6];
    int64_t scalar;
    pl_st_reader *r;
    CHECK_OK(pl_st_open(DATA "nested.pt", &r));
    CHECK_OK(pl_st_read(r, pl_st_find(r, "state_dict.module.a.weight"), got, sizeof got));

    for (int i = 0; i < 6; i++) CHECK(got[i] == (float)held(i));
    const pl_st_tensor *t = pl_st_find(r, "state_dict.module.a.turned");
    CHECK_OK(pl_st_read(r, t, got, sizeof got));
    for (int i = 0; i < 6; i++) CHECK(got[i] == (float)held(i % 3 * 2 + i / 3));

    CHECK_OK(pl_st_read_range(r, t, 8, 12, got));
    for (int i = 2; i < 5; i++) CHECK(got[i - 2] == (float)held(i % 3 * 2 + i / 3));

    CHECK_OK(pl_st_read(r, pl_st_find(r, "state_dict.module.a.row"), got, 12));
    for (int i = 0; i < 3; i++) CHECK(got[i] == (float)held(3 + i));

    CHECK_OK(pl_st_read(r, pl_st_find(r, "state_dict.module.b.wide"), got, sizeof got));
    for (int i = 0; i < 6; i++) CHECK(got[i] == 1);

    CHECK_OK(pl_st_read(r, pl_st_find(r, "state_dict.module.b.empty"), got, 0));
    CHECK_OK(pl_st_read(r, pl_st_find(r, "state_dict.module.b.scalar"), &scalar, sizeof scalar));
    CHECK_INT(scalar, 7);
    pl_st_close(r);
}

TEST(pt_reads_every_dtype)
{
    static const char *const ours[] = {"float32", "float16", "bfloat16",
                                       "float64", "int64",   "int32"};
    pl_tensors *t;
    CHECK_OK(pl_tensors_open(DATA "dtypes.pth", &t));

    CHECK_INT(pl_tensors_count(t), 13);
    for (int i = 0; i < 6; i++) {
        float got[4];
        int at = pl_tensors_find(t, ours[i]);
        CHECK(at >= 0);
        CHECK_OK(pl_tensors_read(t, at, PL_F32, got, sizeof got));
        for (int k = 0; k < 4; k++)
            CHECK(got[k] == (float)(i < 4 ? held(k) : (double)(int64_t)held(k)));
    }
    CHECK_TEXT(pl_tensors_at(t, pl_tensors_find(t, "float8")).dtype, "F8_E4M3");
    CHECK_TEXT(pl_tensors_at(t, pl_tensors_find(t, "uint16")).dtype, "U16");
    CHECK_TEXT(pl_tensors_at(t, pl_tensors_find(t, "complex64")).dtype, "C64");
    CHECK_INT(pl_tensors_find(t, "complex128"), -1);
    pl_tensors_close(t);
}

TEST(pt_a_pickled_module_has_the_names_of_its_state_dict)
{
    static const char *const names[] = {"0.weight",
                                        "0.bias",
                                        "1.weight",
                                        "1.bias",
                                        "1.running_mean",
                                        "1.running_var",
                                        "1.num_batches_tracked"};
    pl_st_reader *r;
    CHECK_OK(pl_st_open(DATA "module.pt", &r));

    CHECK_INT(pl_st_count(r), 7);
    for (int i = 0; i < 7; i++) CHECK_TEXT(pl_st_at(r, i)->name, names[i]);
    pl_st_close(r);
}

TEST(pt_refuses_hostile_and_damaged_files)
{
    static const struct {
        const char *file, *why;
    } bad[] = {{"hostile.pt", "posix.system"},  {"legacy.pt", "before 1.6"},
               {"beyond.pt", "in its storage"}, {"deflated.pt", "compressed"},
               {"lacks.pt", "x/data/0"},        {"loop.pt", "no tensor"},
               {"laughs.pt", "more than"},      {"extension.pt", "0x82"}};
    char path[128];
    pl_st_reader *r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, DATA "%s", bad[i].file);
        CHECK_INT(pl_st_open(path, &r), PL_ERR_FILE);
        CHECK_MSG(strstr(pl_error_text(), bad[i].why) && strstr(pl_error_text(), bad[i].file), "%s",
                  pl_error_text());
    }
    CHECK_OK(pl_st_open(DATA "hand.pt", &r)); /* the file that the damaged files were made from */
    pl_st_close(r);
}

/* A pickle of protocol 4 begins with a frame, whose length has bytes of zero where the length of a
 * safetensors header has them, too. */
TEST(pt_names_a_bare_pickle_of_every_protocol)
{
    static const uint8_t two[] = {0x80, 2, 0x8A, 10, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A},
                         four[] = {0x80, 4, 0x95, 13, 0, 0, 0, 0, 0, 0, 0, 0x8A, 10, 0x6C};
    pl_st_reader *r;

    CHECK_INT(pl_st_open_memory(two, sizeof two, "two.pt", &r), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "before 1.6"), "%s", pl_error_text());
    CHECK_INT(pl_st_open_memory(four, sizeof four, "four.pt", &r), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "before 1.6"), "%s", pl_error_text());
}

static size_t read_all(const char *path, uint8_t *to, size_t cap)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, cap, f) : 0;
    if (f) fclose(f);
    return n;
}

/* Every truncated file is refused; a file with any one byte inverted is refused or read within
 * its bounds. */
TEST(pt_cut_and_changed_files_are_errors_at_worst)
{
    static uint8_t all[8192];
    size_t n = read_all(DATA "nested.pt", all, sizeof all);
    pl_st_reader *r;
    char some[64];
    int refused = 0;

    CHECK(n > 4000 && n < sizeof all);
    for (size_t i = 0; i < n; i += 7)
        CHECK_INT(pl_st_open_memory(all, i, "cut.pt", &r), PL_ERR_FILE);

    for (size_t i = 0; i < n; i++) {
        all[i] ^= 0xFF;
        bool opened = pl_st_open_memory(all, n, "bent.pt", &r) == PL_OK;
        for (int k = 0; opened && k < pl_st_count(r); k++) {
            const pl_st_tensor *t = pl_st_at(r, k);
            size_t bytes = (size_t)(t->end - t->begin);
            if (t->dtype != PL_ST_BOOL)
                CHECK_OK(pl_st_read_range(r, t, 0, bytes < 64 ? bytes : 64, some));
        }
        if (opened) pl_st_close(r);
        refused += !opened;
        all[i] ^= 0xFF;
    }
    CHECK(refused > 100);
}

/* ---- sets --------------------------------------------------------------------------------- */
TEST(pt_a_set_reads_folders_lists_and_prefers_safetensors)
{
    char path[512], list[1100];
    float x = 1, y = 2;
    pl_st_set *s;
    int file;
    pl_tensor_data a = {"a", PL_TYPE(PL_F32, 1), &x}, b = {"b", PL_TYPE(PL_F32, 1), &y};
    snprintf(path, sizeof path, "%s", pl_test_path("x-1.bin"));
    CHECK_OK(pl_tensors_save(path, &a, 1));
    CHECK_OK(pl_tensors_save(pl_test_path("x-2.bin"), &b, 1));
    CHECK_OK(pl_st_set_open(pl_test_dir(), &s));

    CHECK(pl_st_set_find(s, "a", &file) && pl_st_set_find(s, "b", &file));
    pl_st_set_close(s);

    snprintf(list, sizeof list, "%s,%s", path, pl_test_path("x-2.bin"));
    CHECK_OK(pl_st_set_open(list, &s));
    CHECK_INT(pl_st_set_files(s), 2);
    pl_st_set_close(s);

    CHECK_OK(pl_tensors_save(pl_test_path("x.safetensors"), &b, 1));
    CHECK_OK(pl_st_set_open(pl_test_dir(), &s));
    CHECK(!pl_st_set_find(s, "a", &file) && pl_st_set_find(s, "b", &file));
    pl_st_set_close(s);
}

/* Folders of diffusers hold the same weights in several formats: x.safetensors beside
 * x.fp16.safetensors. A file with other tensors is not a variant, whatever its name. */
TEST(pt_a_set_reads_the_plain_file_of_a_folder_with_variants)
{
    static const char *const variants[] = {"x.fp16.safetensors", "x.safe.safetensors"};
    float x = 1, y = 2, got = 0;
    pl_st_set *s;
    int file;
    pl_tensor_data plain = {"a", PL_TYPE(PL_F32, 1), &x}, half = {"a", PL_TYPE(PL_F32, 1), &y},
                   other = {"b", PL_TYPE(PL_F32, 1), &y};
    CHECK_OK(pl_tensors_save(pl_test_path("x.safetensors"), &plain, 1));
    for (int i = 0; i < 2; i++) CHECK_OK(pl_tensors_save(pl_test_path(variants[i]), &half, 1));
    CHECK_OK(pl_tensors_save(pl_test_path("x.decoder.safetensors"), &other, 1));
    CHECK_OK(pl_st_set_open(pl_test_dir(), &s));
    CHECK_INT(pl_st_set_files(s), 2);
    const pl_st_tensor *t = pl_st_set_find(s, "a", &file);
    CHECK(t && pl_st_set_find(s, "b", &file) && pl_st_set_find(s, "a", &file));
    CHECK_OK(pl_st_read(pl_st_set_file(s, file), t, &got, sizeof got));
    CHECK_NEAR(got, 1, 0);
    pl_st_set_close(s);

    CHECK_OK(pl_tensors_save(pl_test_path("y.safetensors"), &half, 1)); /* not a variant of x */
    CHECK_INT(pl_st_set_open(pl_test_dir(), &s), PL_ERR_FILE);
    CHECK(strstr(pl_error_text(), "y.safetensors"));
}

/* A pipeline of diffusers has a folder for each network. */
TEST(pt_a_set_names_the_folders_of_a_pipeline)
{
    pl_st_set *s;
    CHECK_INT(pl_st_set_open(pl_test_dir(), &s), PL_ERR_FILE);
    CHECK(!strstr(pl_error_text(), "folders"));
    CHECK_OK(pl_sys_make_dirs(pl_test_path("vae")));
    CHECK_OK(pl_sys_make_dirs(pl_test_path("unet")));
    CHECK_INT(pl_st_set_open(pl_test_dir(), &s), PL_ERR_FILE);
    CHECK(strstr(pl_error_text(), "name one of its folders: unet, vae"));
}

TEST(pt_a_set_reads_the_plain_index_of_a_folder_with_variants)
{
    static const char plain[] = "{\"weight_map\":{\"a\":\"x-1.safetensors\"}}",
                      half[] = "{\"weight_map\":{\"b\":\"x.fp16-1.safetensors\"}}";
    float x = 1;
    pl_st_set *s;
    int file;
    pl_tensor_data a = {"a", PL_TYPE(PL_F32, 1), &x}, b = {"b", PL_TYPE(PL_F32, 1), &x};
    CHECK_OK(pl_tensors_save(pl_test_path("x-1.safetensors"), &a, 1));
    CHECK_OK(pl_tensors_save(pl_test_path("x.fp16-1.safetensors"), &b, 1));
    CHECK_OK(pl_sys_write_file(pl_test_path("x.safetensors.index.json"), plain, sizeof plain - 1));
    CHECK_OK(
        pl_sys_write_file(pl_test_path("x.fp16.safetensors.index.json"), half, sizeof half - 1));
    CHECK_OK(pl_st_set_open(pl_test_dir(), &s));
    CHECK(pl_st_set_find(s, "a", &file) && !pl_st_set_find(s, "b", &file));
    pl_st_set_close(s);
    CHECK_OK(pl_sys_write_file(pl_test_path("y.safetensors.index.json"), plain, sizeof plain - 1));
    CHECK_INT(pl_st_set_open(pl_test_dir(), &s), PL_ERR_FILE);
    CHECK(strstr(pl_error_text(), "two indexes"));
}

/* ---- writing ------------------------------------------------------------------------------ */
static void write_some(const char *path)
{
    static const float x[6] = {1, -2, 3.5F, 4, 5, 6};
    static const uint16_t half[2] = {0x3C00, 0xC000};
    static const int64_t whole[1] = {-9};
    const pl_type type[] = {PL_TYPE(PL_F32, 2, 3), PL_TYPE(PL_F16, 2), PL_TYPE(PL_F32, 0, 4),
                            pl_type_make(PL_I64, 0, NULL)};
    const void *const data[] = {x, half, x, whole};
    static const char *const name[] = {"z.weight", "half", "empty", "count"};
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new(path, &w));
    for (int i = 0; i < 4; i++) CHECK_OK(pl_st_writer_add(w, name[i], &type[i]));
    CHECK_OK(pl_st_writer_meta(w, "plimsoll.recipe", "test"));
    CHECK_OK(pl_st_writer_under(w, "state_dict"));
    CHECK_OK(pl_st_writer_entry(w, "epoch", "3"));
    CHECK_OK(
        pl_st_writer_entry(w, "rest", "{\"a\": [null, true, 0.5, \"x\"], \"big\": 5000000000}"));
    CHECK_OK(pl_st_writer_begin(w));
    for (int i = 0; i < 4; i++) {
        CHECK_INT(pl_st_writer_order(w, i), i);
        CHECK_OK(pl_st_writer_write(w, i, data[i], pl_type_bytes(&type[i])));
    }
    CHECK_OK(pl_st_writer_finish(w));
    pl_st_writer_free(w);
}

TEST(pt_files_read_back_in_order)
{
    static const char *const name[] = {"state_dict.z.weight", "state_dict.half", "state_dict.empty",
                                       "state_dict.count"};
    pl_st_reader *r;
    float x[6];
    write_some(pl_test_path("x.ckpt"));
    CHECK_OK(pl_st_open(pl_test_path("x.ckpt"), &r));

    CHECK_INT(pl_st_count(r), 4);
    for (int i = 0; i < 4; i++) CHECK_TEXT(pl_st_at(r, i)->name, name[i]);

    CHECK_OK(pl_st_read(r, pl_st_at(r, 0), x, sizeof x));
    CHECK(x[1] == -2 && x[5] == 6);
    CHECK_INT(pl_st_at(r, 0)->begin % 64, 0);
    CHECK_TEXT(pl_st_meta_get(r, "epoch"), "3");
    CHECK_TEXT(pl_st_meta_get(r, "rest.a.2"), "0.5");
    CHECK_TEXT(pl_st_meta_get(r, "rest.big"), "5000000000");
    CHECK_TEXT(pl_st_meta_get(r, "plimsoll.recipe"), "test");
    pl_st_close(r);
}

TEST(pt_python_reads_what_is_written)
{
    const char *python = pl_test_long() ? cli_python("torch") : NULL;
    if (!python) SKIP("long, and wants a Python with torch: PL_ORACLE");
    char text[1024];
    write_some(pl_test_path("x.pt"));
    snprintf(
        text, sizeof text,
        "%s -c \"import torch, zipfile; p = '%s'; assert zipfile.ZipFile(p).testzip() is None; "
        "d = torch.load(p, weights_only=True); s = d['state_dict']; "
        "assert list(s) == ['z.weight', 'half', 'empty', 'count']; "
        "assert s['z.weight'].tolist() == [[1, -2, 3.5], [4, 5, 6]] and s['half'].tolist() == [1, -2]; "
        "assert s['empty'].shape == (0, 4) and s['count'].item() == -9 and d['epoch'] == 3; "
        "assert d['rest'] == {'a': [None, True, 0.5, 'x'], 'big': 5000000000}\"",
        python, pl_test_path("x.pt"));

    CHECK_INT(system(text), 0);
}
