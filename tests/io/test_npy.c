/* test_npy.c - NumPy files: which are read, which are refused with which message, round trips. */
#include "base/sys.h"
#include "io/npy.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file in memory: version, text of the dict, `bytes` data bytes of value 1. */
static pl_status try_npy(int version, const char *dict, size_t bytes, pl_npy **out)
{
    static char buf[20000];
    size_t n = strlen(dict), at = version == 1 ? 10 : 12;
    memset(buf, 0, 16);
    memcpy(buf, "\x93NUMPY", 6);
    buf[6] = (char)version;
    buf[8] = (char)(n & 0xFF);
    buf[9] = (char)(n >> 8);
    memcpy(buf + at, dict, n);
    memset(buf + at + n, 1, bytes);
    pl_npy *a = NULL;
    pl_status s = pl_npy_open_memory(buf, at + n + bytes, "bad.npy", &a);
    if (out)
        *out = a;
    else
        pl_npy_close(a);
    return s;
}

#define DICT(descr, order, shape)                                                                  \
 "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
#define REFUSED(expr, says)                                                                        \
 do {                                                                                              \
  CHECK_INT((expr), PL_ERR_DATA);                                                                  \
  CHECK_MSG(strstr(pl_error_text(), "bad.npy") && strstr(pl_error_text(), (says)),                 \
            "message was: %s", pl_error_text());                                                   \
 } while (0)

TEST(npy_every_version_and_key_order_is_read)
{
    for (int v = 1; v <= 3; v++) {
        pl_npy *a;
        CHECK_OK(
            try_npy(v, "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}   \n", 24, &a));
        pl_type t = pl_npy_type(a), want = PL_TYPE(PL_F32, 2, 3);
        CHECK(pl_type_equal(&t, &want));
        CHECK_INT(pl_npy_rows(a), 2);
        CHECK_INT(pl_npy_row_bytes(a), 12);
        char buf[24];
        CHECK_OK(pl_npy_read(a, 1, 1, buf));
        CHECK_INT(pl_npy_read(a, 1, 2, buf), PL_ERR_ARG);
        CHECK_INT(pl_npy_read(a, -1, 1, buf), PL_ERR_ARG);
        pl_npy_close(a);
    }
}

TEST(npy_shapes_of_every_rank_are_read)
{
    pl_npy *a;

    CHECK_OK(try_npy(1, DICT("'<f8'", "False", "()"), 8, &a));
    CHECK_INT(pl_npy_rows(a), 1);
    pl_npy_close(a);
    CHECK_OK(try_npy(1, DICT("'|u1'", "False", "(3,)"), 3, NULL));
    CHECK_OK(try_npy(1, DICT("'|u1'", "False", "(0, 9)"), 0, NULL));
    CHECK_OK(try_npy(1, DICT("'|u1'", "False", "(4, 0)"), 0, NULL));
    CHECK_OK(try_npy(1, DICT("'<i4'", "True", "(1, 5)"), 20, NULL)); /* in any order */
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(3)"), 3, NULL), "','");
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(3 3)"), 9, NULL), "','");
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(-3,)"), 3, NULL), "whole number");
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(1,1,1,1,1,1,1,1,1)"), 1, NULL), "8 dimensions");
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(281474976710656,)"), 1, NULL), "2^48");
    REFUSED(try_npy(1, DICT("'|u1'", "False", "(65536,65536,65536,65536)"), 0, NULL), "more than");
    REFUSED(try_npy(1, DICT("'<f4'", "False", "(2,)"), 7, NULL), "takes 8 bytes, the file has 7");
    REFUSED(try_npy(1, DICT("'<f4'", "False", "(2,)"), 9, NULL), "takes 8 bytes, the file has 9");
}

TEST(npy_refused_types_say_what_to_do)
{
    REFUSED(try_npy(1, DICT("'>f4'", "False", "(1,)"), 4, NULL), "newbyteorder");
    REFUSED(try_npy(1, DICT("'|O'", "False", "(1,)"), 8, NULL), "pickle");
    REFUSED(try_npy(1, DICT("'|V2'", "False", "(1,)"), 2, NULL), "safetensors");
    REFUSED(try_npy(1, DICT("'<c8'", "False", "(1,)"), 8, NULL), "astype");
    REFUSED(try_npy(1, DICT("''", "False", "(1,)"), 8, NULL), "astype");
    REFUSED(try_npy(1, DICT("[('a', '<f4')]", "False", "(1,)"), 4, NULL), "records");
    REFUSED(try_npy(1, DICT("'<f4'", "True", "(2, 2)"), 16, NULL), "ascontiguousarray");
}

TEST(npy_malformed_headers_are_refused)
{
    pl_npy *a;

    for (size_t n = 0; n < 10; n++)
        REFUSED(pl_npy_open_memory("\x93NUMPY\1\0\4\0", n, "bad.npy", &a), "too few");
    REFUSED(pl_npy_open_memory("\x93NUMPZ\1\0\4\0{}{}", 14, "bad.npy", &a), "not a .npy");
    REFUSED(pl_npy_open_memory("\x93NUMPY\4\0\4\0{}{}", 14, "bad.npy", &a), "version 4.0");
    REFUSED(pl_npy_open_memory("\x93NUMPY\1\1\4\0{}{}", 14, "bad.npy", &a), "version 1.1");
    REFUSED(pl_npy_open_memory("\x93NUMPY\1\0\5\0{}{}", 14, "bad.npy", &a), "past its end");
    REFUSED(pl_npy_open_memory("\x93NUMPY\2\0\1\0\0", 11, "bad.npy", &a), "past its end");
    REFUSED(pl_npy_open_memory("\x93NUMPY\2\0\377\377\377\377", 12, "bad.npy", &a), "4294967295");
    REFUSED(try_npy(1, "", 0, NULL), "'{'");
    REFUSED(try_npy(1, "{}", 0, NULL), "has no descr");
    REFUSED(try_npy(1, "{'descr': '<f4', 'fortran_order': False}", 4, NULL), "has no shape");
    REFUSED(try_npy(1, "{'descr': '<f4', 'descr': '<f4'}", 4, NULL), "twice");
    REFUSED(try_npy(1, "{'other': 1}", 4, NULL), "unknown");
    REFUSED(try_npy(1, "{'descr' '<f4'}", 4, NULL), "':'");
    REFUSED(try_npy(1, "{'descr': '<f4' 'shape': ()}", 4, NULL), "','");
    REFUSED(try_npy(1, "{'descr': '<f4', 'fortran_order': 0}", 4, NULL), "True or False");
    REFUSED(try_npy(1, "{'descr': '<f4", 4, NULL), "descr");
    REFUSED(try_npy(1, "{'descr': 'a\\'b'}", 4, NULL), "descr");
    REFUSED(try_npy(1, DICT("'<f4'", "False", "()") "x", 4, NULL), "nothing after");
}

TEST(npy_bool_bytes_are_checked)
{
    pl_npy *a;
    const char file[] =
        "\x93NUMPY\1\0\75\0{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }   \n\1\2";
    CHECK_OK(pl_npy_open_memory(file, sizeof file - 1, "bad.npy", &a));
    char buf[2];
    CHECK_OK(pl_npy_read(a, 0, 1, buf));
    REFUSED(pl_npy_read(a, 0, 2, buf), "bool array is 2");
    pl_npy_close(a);
}

TEST(npy_files_read_back_the_same)
{
    static const struct {
        pl_dtype d;
        int rank;
        int64_t dim[3];
    } rows[] = {{PL_F32, 2, {3, 4}}, {PL_F64, 0, {0}},    {PL_U8, 1, {24}}, {PL_I64, 3, {1, 2, 3}},
                {PL_BOOL, 1, {9}},   {PL_F16, 2, {0, 3}}, {PL_I32, 1, {1}}};
    char path[200], data[64], back[64];

    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i % 2);
    snprintf(path, sizeof path, "%s/a.npy", pl_test_dir());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_type t = pl_type_make(rows[i].d, rows[i].rank, rows[i].dim);
        CHECK_OK(pl_npy_write(path, &t, data));
        pl_npy *a;
        CHECK_OK(pl_npy_open(path, &a));
        pl_type got = pl_npy_type(a);
        CHECK(pl_type_equal(&got, &t));
        CHECK_OK(pl_npy_read(a, 0, pl_npy_rows(a), back));
        CHECK(memcmp(back, data, pl_type_bytes(&t)) == 0);
        pl_npy_close(a);
    }
}

TEST(npy_writer_misuse_leaves_nothing)
{
    char path[200];

    snprintf(path, sizeof path, "%s/a.npy", pl_test_dir());
    pl_type bf = PL_TYPE(PL_BF16, 2), f = PL_TYPE(PL_F32, 2),
            huge = PL_TYPE(PL_U8, 1 << 30, 1 << 30);
    pl_npy_writer *w;
    CHECK_INT(pl_npy_writer_new(path, &bf, &w), PL_ERR_UNSUPPORTED);
    CHECK_INT(pl_npy_writer_new(path, &huge, &w), PL_ERR_ARG);
    CHECK_OK(pl_npy_writer_new(path, &f, &w));
    CHECK_OK(pl_npy_writer_write(w, "1234", 4));

    CHECK_INT(pl_npy_writer_write(w, "12345", 5), PL_ERR_ARG);
    CHECK_INT(pl_npy_writer_finish(w), PL_ERR_ARG);
    pl_npy_writer_free(w);
    CHECK(access(path, F_OK) != 0);
    CHECK_INT(rmdir(pl_test_dir()), 0); /* empty: no temporary file either */
}

TEST(npy_files_agree_with_numpy)
{
    WANT_PYTHON(python, "numpy");
    char cmd[900], path[200];

    snprintf(path, sizeof path, "%s/a.npy", pl_test_dir());
    float v[6] = {0, 1, 2, 3, 4, 5};
    pl_type t = PL_TYPE(PL_F32, 2, 3);
    CHECK_OK(pl_npy_write(path, &t, v));
    snprintf(cmd, sizeof cmd,
             "%s -c 'import numpy as np, sys\n"
             "a = np.load(sys.argv[1])\n"
             "assert a.dtype == np.float32 and (a == np.arange(6).reshape(2, 3)).all()\n"
             "np.save(sys.argv[1], np.arange(4, dtype=np.int64))' %s",
             python, path);
    CHECK_INT(system(cmd), 0);

    pl_npy *a;
    int64_t last;
    CHECK_OK(pl_npy_open(path, &a));
    CHECK_OK(pl_npy_read(a, 3, 1, &last));
    CHECK_INT(last, 3);
    pl_npy_close(a);
}
