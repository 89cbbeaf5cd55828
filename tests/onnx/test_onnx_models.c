/* test_onnx_models.c - models of exporters: the outputs and five steps of training are PyTorch's.
 *
 * The fixtures of tests/data/onnx run always. The long test exports the models of the libraries
 * (tools/oracle/onnx_exports.py); PL_ONNX_MODELS names a folder of models that are there. */
#include "plimsoll_onnx.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/onnx/node_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs every folder below root; returns how many fail. */
static int run_models(const char *root, int *passed)
{
    struct dirent **list = NULL;
    int n = scandir(root, &list, NULL, alphasort), bad = 0;
    *passed = 0;
    for (int i = 0; i < n; i++) {
        char folder[1024], path[1100], why[1024];
        const char *name = list[i]->d_name, *only = getenv("PL_ONNX_ONLY");
        snprintf(folder, sizeof folder, "%s/%s", root, name);
        snprintf(path, sizeof path, "%s/model.onnx", folder);
        if (name[0] == '.' || access(path, R_OK) != 0 || (only && !strstr(name, only))) continue;
        node_result r = node_run(folder, why, sizeof why);
        snprintf(path, sizeof path, "%s/losses.txt", folder);
        bool trains = r == NODE_PASSED && access(path, R_OK) == 0;
        if (trains) r = node_train(folder, false, 1e-4, why, sizeof why);
        if (r != NODE_PASSED) printf("%s: %s%s\n", name, trains ? "training: " : "", why);
        fflush(stdout);
        bad += r != NODE_PASSED;
        *passed += r == NODE_PASSED;
    }
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    return bad;
}

TEST(onnx_models_of_both_exporters_compute_and_train_as_in_pytorch)
{
    int passed;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    CHECK_INT(run_models("tests/data/onnx", &passed), 0);
    CHECK(passed >= 6);
}

TEST(onnx_models_of_libraries_compute_and_train_as_in_pytorch)
{
    const char *root = getenv("PL_ONNX_MODELS");
    int passed;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    if (!root) {
        if (!pl_test_long()) SKIP("a long test");
        WANT_PYTHON(python, "onnxscript");
        char command[2048];
        root = pl_test_dir();
        snprintf(command, sizeof command, "%s tools/oracle/onnx_exports.py %s > %s/log 2>&1",
                 python, root, root);
        CHECK_INT(system(command), 0);
    }
    CHECK_INT(run_models(root, &passed), 0);
    CHECK(passed > 0);
}
