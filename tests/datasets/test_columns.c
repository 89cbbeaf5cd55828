/* test_columns.c - tables and .npz files as arrays, and sets without evaluation files. */
#include "base/sys.h"
#include "data/sets/array.h"
#include "data/sets/token_windows.h"
#include "io/npy.h"
#include "io/tensors/zip.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *write_text(const char *name, const char *text)
{
    const char *path = pl_test_path(name);
    FILE *f = fopen(path, "w");
    if (f) fputs(text, f);
    if (f) fclose(f);
    return path;
}

/* Row `row` of an input of a file as f32; the number of values, -1: it cannot be opened. */
static int row_of(const char *path, const char *field, const char *const *others, pl_type sample,
                  int64_t row, float *to)
{
    pl_array *a;
    const char *paths[1] = {path};
    if (pl_array_open(paths, 1, field, field, others, &sample, &a) != PL_OK) return -1;
    pl_status rc = pl_array_read(a, row, to);
    pl_array_close(a);
    return rc == PL_OK ? (int)pl_type_elems(&sample) : -2;
}

TEST(columns_of_a_table_are_found_by_name_number_list_or_rest)
{
    static const char *const others[] = {"x", "label", NULL};
    const char *path = write_text("t.csv", "label,age,x1,size,x2\n3,40,1.5,7,2.5\n4,50,-1,8,1e3\n");
    float v[4] = {0};

    CHECK(row_of(path, "label", NULL, PL_TYPE(PL_F32, 1), 1, v) == 1 && v[0] == 4);
    CHECK(row_of(path, "x", others, PL_TYPE(PL_F32, 2), 1, v) == 2 && v[0] == -1 && v[1] == 1000);
    CHECK(row_of(path, "size+age", NULL, PL_TYPE(PL_F32, 2), 0, v) == 2 && v[0] == 7 && v[1] == 40);
    CHECK(row_of(path, "rest", others, PL_TYPE(PL_F32, 4), 0, v) == 4 && v[0] == 40 &&
          v[3] == 2.5f);
    CHECK(row_of(path, "rest", others, PL_TYPE(PL_F32, 3), 0, v) == -1);
    CHECK(strstr(pl_error_text(), "data.fields") != NULL);
}

TEST(a_field_of_a_table_that_is_no_number_is_refused_with_its_line)
{
    const char *path = write_text("bad.csv", "x,label\n1,0\ntwo,1\n3,0.5\n");
    float v[1];
    int32_t label;

    /* when the table is opened, whichever row is read first */
    CHECK(row_of(path, "x", NULL, PL_TYPE(PL_F32), 0, v) == -1);
    CHECK(strstr(pl_error_text(), "bad.csv:3") && strstr(pl_error_text(), "two"));
    CHECK(row_of(path, "label", NULL, PL_TYPE(PL_F32), 2, v) == 1 && v[0] == 0.5f);
    CHECK(row_of(path, "label", NULL, PL_TYPE(PL_I32), 0, (float *)(void *)&label) == -1);
    CHECK(strstr(pl_error_text(), "whole number") != NULL);
}

/* An archive with the bytes of x.npy as member `name`. */
static pl_status write_npz(const char *npz, const char *name, const char *npy)
{
    char bytes[512];
    FILE *f = fopen(npy, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    pl_file_writer *file = NULL;
    pl_zip_writer *zip = NULL;
    if (f) fclose(f);
    pl_status rc = pl_file_writer_new(npz, &file);
    if (rc == PL_OK) rc = pl_zip_writer_new(file, &zip);
    if (rc == PL_OK) rc = pl_zip_writer_begin(zip, name, n);
    if (rc == PL_OK) rc = pl_zip_writer_write(zip, bytes, n);
    if (rc == PL_OK) rc = pl_zip_writer_finish(zip);
    if (rc == PL_OK) rc = pl_file_writer_commit(file);
    pl_zip_writer_free(zip);
    pl_file_writer_free(file);
    return rc;
}

TEST(arrays_of_an_npz_file_are_read_by_name)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    pl_type t = PL_TYPE(PL_F32, 3, 2);
    char npy[512], npz[512];
    float v[2];
    snprintf(npy, sizeof npy, "%s/x.npy", pl_test_dir());
    snprintf(npz, sizeof npz, "%s/set.npz", pl_test_dir());
    CHECK(pl_npy_write(npy, &t, x) == PL_OK && write_npz(npz, "x.npy", npy) == PL_OK);

    CHECK(row_of(npz, "x", NULL, PL_TYPE(PL_F32, 2), 2, v) == 2 && v[0] == 5 && v[1] == 6);
    CHECK(row_of(npz, "y", NULL, PL_TYPE(PL_F32, 2), 0, v) == -1);
    CHECK(strstr(pl_error_text(), "no array \"y\"") != NULL);
}

/* Of 40 rows 30 are trained on (4 are 0.1333 epochs), and the others are scored. */
TEST(a_set_without_evaluation_files_is_divided)
{
    char path[512];
    float x[40 * 3], y[40];
    pl_type tx = PL_TYPE(PL_F32, 40, 3), ty = PL_TYPE(PL_F32, 40, 1);
    WANT_BIN();
    for (int i = 0; i < 120; i++) x[i] = (float)(i % 7) * 0.1f;
    for (int i = 0; i < 40; i++) y[i] = (float)(i % 5);
    snprintf(path, sizeof path, "%s/set/train", pl_test_dir());
    CHECK(pl_sys_make_dirs(path) == PL_OK);
    snprintf(path, sizeof path, "%s/set/train/input.npy", pl_test_dir());
    CHECK(pl_npy_write(path, &tx, x) == PL_OK);
    snprintf(path, sizeof path, "%s/set/train/target.npy", pl_test_dir());
    CHECK(pl_npy_write(path, &ty, y) == PL_OK);

    cli_result r = cli_run("cd %s && $P train regress/tiny data.path=set data.eval_share=0.25 "
                           "batch=4 train.steps=3 --out a && cat a/*.jsonl",
                           pl_test_dir());

    CHECK_RUN(r, 0, "");
    CHECK_MSG(strstr(r.out, "\"step\":1,\"epoch\":0.1333"), "%s", r.out);
    CHECK_RUN(cli_run("cd %s && $P eval a", pl_test_dir()), 0, "");
    CHECK_RUN(cli_run("cd %s && $P eval a 2>&1 | grep -q eval=10/10", pl_test_dir()), 0, "");
}

/* Rows of a file of tokens are the same raw and behind llm.c's header, which says the width. */
TEST(data_token_files_may_have_a_header)
{
    enum { N = 100, ROW = 10 };
    static const struct {
        int bytes;
        uint32_t magic;
        const char *field;
    } forms[] = {{2, 0, "tokens"}, {4, 0, "u32"}, {2, 20240520, "u32"}, {4, 20240801, "tokens"}};
    pl_type sample = PL_TYPE(PL_I32, ROW);
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        uint32_t head[256] = {forms[k].magic, 1, N};
        pl_token_windows *t;
        int32_t row[ROW];
        FILE *f = fopen(pl_test_path("tokens.bin"), "wb");
        CHECK(f);
        if (forms[k].magic) fwrite(head, sizeof head, 1, f);
        for (uint32_t i = 0; i < N; i++) fwrite(&i, (size_t)forms[k].bytes, 1, f);
        fclose(f);
        CHECK_OK(pl_token_windows_open(pl_test_path("tokens.bin"), forms[k].field, &sample, &t));
        CHECK_INT(pl_token_windows_rows(t), 11);
        CHECK_OK(pl_token_windows_read(t, 10, row));
        for (int i = 0; i < ROW; i++) CHECK_INT(row[i], 90 + i);
        pl_token_windows_close(t);
        if (!forms[k].magic) continue;
        CHECK(truncate(pl_test_path("tokens.bin"), 1024 + N) == 0);
        CHECK(pl_token_windows_open(pl_test_path("tokens.bin"), "", &sample, &t) == PL_ERR_DATA);
        CHECK(strstr(pl_error_text(), "counts 100 tokens"));
    }
}
