/* test_data_array.c - arrays in pieces, in safetensors and in HDF5. */
#include "data/sets/array.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "plimsoll_hdf5.h"
#include "tests/datasets/hdf5_file.h"
#include "tests/lib/test.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 5, COLS = 3 };

static void fill(float *x, int first)
{
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(100 * (first + i / COLS) + i % COLS);
}

static pl_status write_bundle(const char *path, const float *x)
{
    pl_st_writer *w;
    pl_type t = PL_TYPE(PL_F32, ROWS, COLS);
    PL_TRY(pl_st_writer_new(path, &w));
    pl_status rc = pl_st_writer_add(w, "deep.frames", &t);
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    if (rc == PL_OK) rc = pl_st_writer_write(w, 0, x, ROWS * COLS * sizeof *x);
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

static bool rows_are_right(const pl_array *a)
{
    for (int64_t r = 0; r < pl_array_rows(a); r++) {
        float row[COLS];
        if (pl_array_read(a, r, row) != PL_OK) return false;
        for (int c = 0; c < COLS; c++)
            if (row[c] != (float)(100 * r + c)) return false;
    }
    return true;
}

TEST(data_arrays_in_pieces_read_as_one)
{
    char a[512], b[512], c[512];
    float x[ROWS * COLS];
    pl_type all = PL_TYPE(PL_F32, ROWS, COLS), sample = PL_TYPE(PL_F32, COLS),
            wrong = PL_TYPE(PL_F32, 4);
    const char *paths[3] = {a, b, c};
    snprintf(a, sizeof a, "%s/0.npy", pl_test_dir());
    snprintf(b, sizeof b, "%s/1.safetensors", pl_test_dir());
    snprintf(c, sizeof c, "%s/2.npy", pl_test_dir());
    fill(x, 0);
    CHECK_OK(pl_npy_write(a, &all, x));
    fill(x, ROWS);
    CHECK_OK(write_bundle(b, x));
    fill(x, 2 * ROWS);
    CHECK_OK(pl_npy_write(c, &all, x));
    pl_array *array;
    CHECK_OK(pl_array_open(paths, 3, "frames", "deep.frames", NULL, &sample, &array));

    CHECK_INT(pl_array_rows(array), 3 * ROWS);
    CHECK(rows_are_right(array));
    CHECK(strcmp(pl_array_path(array, 0), a) == 0 && strcmp(pl_array_path(array, ROWS), b) == 0 &&
          strcmp(pl_array_path(array, 3 * ROWS - 1), c) == 0);
    pl_array_close(array);
    CHECK_INT(pl_array_open(paths, 3, "frames", "frames", NULL, &sample, &array), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "1.safetensors has no tensor \"frames\""));
    CHECK_INT(pl_array_open(paths, 1, "frames", "", NULL, &wrong, &array), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "0.npy is f32[5,3]"));
    CHECK(truncate(b, 200) == 0);
    CHECK_INT(pl_array_open(paths, 3, "frames", "deep.frames", NULL, &sample, &array), PL_ERR_DATA);
}

/* ---- HDF5: a file of 16-bit numbers, as cameras write them ----------------------------------- */
TEST(data_hdf5_arrays_are_read)
{
    char path[512];
    const char *paths[1] = {path};
    int16_t x[ROWS * COLS];
    pl_type sample = PL_TYPE(PL_F32, COLS);
    pl_array *a;
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (int16_t)(100 * (i / COLS) + i % COLS);
    snprintf(path, sizeof path, "%s/camera.h5", pl_test_dir());
    hdf5_field signal = {"Product/Signal", "H5T_NATIVE_INT16_g", 2, {ROWS, COLS}, x};

    CHECK(hdf5_file_write(path, &signal, 1));
    CHECK_OK(pl_array_open(paths, 1, "frames", "Product/Signal", NULL, &sample, &a));
    CHECK_INT(pl_array_rows(a), ROWS);
    CHECK(rows_are_right(a));
    pl_array_close(a);
    CHECK_INT(pl_array_open(paths, 1, "frames", "Product", NULL, &sample, &a), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "has no array \"Product\""));
    CHECK(truncate(path, 900) == 0);
    CHECK_INT(pl_array_open(paths, 1, "frames", "Product/Signal", NULL, &sample, &a), PL_ERR_DATA);
}

/* Files on which libhdf5 1.10 crashes or reads past a block: a process apart reads them, and they
 * are refused. */
TEST(data_hdf5_that_crashes_the_library_is_refused)
{
    glob_t files;
    pl_type sample = PL_TYPE(PL_F32, 3);
    float row[3];
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    CHECK_INT(glob("tests/data/hdf5/ends-the-library*.h5", 0, NULL, &files), 0);
    CHECK(files.gl_pathc >= 5);
    for (size_t k = 0; k < files.gl_pathc; k++) {
        const char *paths[1] = {files.gl_pathv[k]};
        pl_array *a = NULL;
        pl_status rc = pl_array_open(paths, 1, "x", "x", NULL, &sample, &a);
        CHECK_MSG(rc == PL_OK || strstr(pl_error_text(), paths[0]), "%s", pl_error_text());
        for (int64_t i = 0; rc == PL_OK && i < pl_array_rows(a) && i < 4; i++)
            (void)(pl_array_read(a, i, row) == PL_OK);
        pl_array_close(a);
    }
    globfree(&files);
}
