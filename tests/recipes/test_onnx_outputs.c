/* test_onnx_outputs.c - predictions of an ONNX file with its own weights: each of many outputs,
 * outputs without rows, names that would be the same file, dimensions without a name. */
#include "io/npy.h"
#include "plimsoll_onnx.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/onnx/proto_write.h"

#include <stdio.h>
#include <string.h>

#define IN "cd %s && "

static void put_node(pl_str *graph, const char *op, const char *in, const char *out)
{
    pl_str n = PL_STR_INIT;
    put_text(&n, 1, in);
    put_text(&n, 2, out);
    put_text(&n, 4, op);
    put_message(graph, 1, &n);
}

/* y0 is the sum of all elements of x, y1 to y11 are x in steps; 10 and 11 have the given names. */
static bool write_outputs(const char *path, const char *ten, const char *eleven, int64_t width)
{
    pl_str graph = PL_STR_INIT;
    const int64_t rows[] = {2, width}, one[] = {1, 1};
    put_floats(&graph, 11, "x", 2, rows);
    for (int i = 0; i < 12; i++) {
        char in[16], out[16];
        snprintf(in, sizeof in, i > 1 ? "y%d" : "x", i - 1);
        snprintf(out, sizeof out, "y%d", i);
        put_node(&graph, i ? "Neg" : "ReduceSum", in, out);
        const char *name = i == 10 ? ten : i == 11 ? eleven : out;
        if (strcmp(name, out) != 0) put_node(&graph, "Identity", out, name);
        put_floats(&graph, 12, name, 2, i ? rows : one);
    }
    pl_str model = model_of(&graph);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(model.text, 1, model.len, f) == model.len;
    pl_str_release(&model);
    return f && fclose(f) == 0 && ok;
}

static const char *at(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), name);
    return path;
}

/* Writes x.npy into the folder in, two rows of the width. */
static bool write_rows(int64_t width)
{
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    pl_type t = PL_TYPE(PL_F32, 2, width);
    return cli_run(IN "mkdir -p in", pl_test_dir()).code == 0 &&
           pl_npy_write(at("in/x.npy"), &t, x) == PL_OK;
}

TEST(onnx_all_outputs_of_a_file_are_predicted_with_its_own_weights)
{
    WANT_BIN();
    if (pl_onnx_missing()) SKIP("libprotobuf-c is not installed");
    const char *d = pl_test_dir();
    CHECK(write_rows(2) && write_outputs(at("m.onnx"), "y10", "y11", 2));
    CHECK_RUN(cli_run(IN "$P predict m.onnx --input in --out all batch=2 && ls all | wc -l | "
                         "grep -qx 11 && test -s all/y11.npy && ! test -e all/y0.npy",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict m.onnx --input in --out r.npy batch=2", d), 1,
              "--out FOLDER writes the other outputs");
    CHECK(write_outputs(at("m.onnx"), "a/b", "a:b", 2));
    CHECK_RUN(cli_run(IN "$P predict m.onnx --input in --out two batch=2", d), 1,
              "outputs a/b and a:b would both be the file a_b.npy");
}

TEST(onnx_dimensions_without_a_name_get_one)
{
    WANT_BIN();
    if (pl_onnx_missing()) SKIP("libprotobuf-c is not installed");
    const char *d = pl_test_dir();
    CHECK(write_rows(3) && write_outputs(at("m.onnx"), "y10", "y11", -1)); /* as some exporters */
    CHECK_RUN(cli_run(IN "$P predict m.onnx --input in --out all batch=2", d), 2,
              "set its size: dims.x_1=SIZE");
    CHECK_RUN(cli_run(IN "$P predict m.onnx --input in --out all batch=2 dims.x_1=3", d), 0, "");
}

TEST(onnx_files_of_other_formats_and_wrong_uses_are_told_apart)
{
    WANT_BIN();
    if (pl_onnx_missing()) SKIP("libprotobuf-c is not installed");
    static const char *const files[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
        {"PK\003\004\024\010\010\010\010", "torch.onnx.export"},
        {"\037\213\010\010\010\010\010\010", "gunzip"},
        {"<!DOCTYPE html>\n<html>Not Found</html>\n", "download the model again"},
    };
    const char *d = pl_test_dir();
    for (int i = 0; i < 4; i++) {
        CHECK(cli_write(at("m.onnx"), files[i][0]));
        CHECK_RUN(cli_run(IN "$P plan m.onnx batch=2", d), 6, files[i][1]);
    }
    CHECK(write_outputs(at("m.onnx"), "y10", "y11", 2));
    CHECK_RUN(cli_run(IN "$P export m.onnx --as onnx --out n.onnx", d), 2,
              "is the ONNX file before training");
    CHECK(cli_run("cp tests/data/onnx/photo.onnx %s", d).code == 0);
    CHECK_RUN(cli_run(IN
                      "$P generate classify/tiny --raw --out pics side=16 data.samples=12 "
                      "data.eval_samples=6 && $P plan photo.onnx data.path=pics batch=4 loss=mse",
                      d),
              2, "have classes: set loss=cross_entropy");
}
