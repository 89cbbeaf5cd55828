/* test_onnx_nodes.c - the node tests of the ONNX standard (Debian's libonnx-testdata), and the
 * table of ops in docs/ONNX.md.
 *
 * Every folder of the standard passes, or a row of the table below says why it is out of scope.
 * `PL_ONNX_LIST=1 pl_test -k onnx_node_tests` prints the list with the reasons and the program's
 * messages; PL_ONNX_NODES names another folder of tests. docs/ONNX.md has the reasons with the
 * numbers of tests, and the test compares them. */
#include "base/sys.h"
#include "plimsoll_nn.h"
#include "plimsoll_onnx.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/onnx/node_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "/usr/share/libonnx-testdata/data/"

/* Patterns of names (pl_nn_match) and the reason why they are out of scope. */
static const struct {
    const char *names, *why;
} out_of_scope[] = {
    {"test_bernoulli*,test_training_dropout*", "random numbers of another generator"},
    {"*_to_BFLOAT16*,*BFLOAT16_to_FLOAT*", "the data files declare bfloat16 as uint16"},
    {"*FLOAT8*,*FLOAT4*,*INT4*,*INT2*", "types of 8 bits and fewer"},
    {"test_bitcast*", "bits of numbers: no arithmetic"},
    {"test_ai_onnx_ml*,test_image_decoder*", "trees, texts and files: preprocessing"},
    {"*STRING*,test_strnorm*,test_equal_string*,test_string_*,test_regex*,test_label_encoder*",
     "texts"},
    {"test_gradient*", "a preview op of opset 12; runs train with the engine's gradients"},
    {"test_scan_sum", "opset 8"},
    {"test_adam_multiple", "in 1.12, numbers of another epsilon than the node's"},
    {"*sequence*,*optional*,test_identity_opt,test_if_opt,test_if_seq,test_split_to_seq*,test_loop1?_seq*",
     "sequences and optional values as inputs or outputs of a model"},
    {"test_nonmax*,test_compress*,test_unique*,test_nonzero*", "shapes that depend on data"},
    {"test_bitshift*,test_bitwise_not*,test_bitwise*_ui*,test_bitwise*_i16*",
     "bits of 8, 16 and unsigned numbers"},
    {"test_*integer*,test_qlinear*,test_dynamicquantize*,test_quantize*,test_dequantize*",
     "8-bit arithmetic"},
    {"test_tfidf*", "text features"},
};

static const char *excuse(const char *name)
{
    for (size_t i = 0; i < sizeof out_of_scope / sizeof *out_of_scope; i++)
        if (pl_nn_match(out_of_scope[i].names, name)) return out_of_scope[i].why;
    return NULL;
}

/* Tests out of scope in the last folders, for each reason. */
static int n_excused[sizeof out_of_scope / sizeof *out_of_scope];

static void count_excuse(const char *why)
{
    for (size_t i = 0; i < sizeof out_of_scope / sizeof *out_of_scope; i++)
        n_excused[i] += out_of_scope[i].why == why;
}

/* Whether docs/ONNX.md has every reason with its number of tests; writes the rows that it lacks. */
static bool page_has_reasons(void)
{
    char *page, row[256];
    size_t len;
    bool same = true;
    if (pl_sys_read_file("docs/ONNX.md", 1 << 20, &page, &len) != PL_OK) return false;
    for (size_t i = 0; i < sizeof out_of_scope / sizeof *out_of_scope; i++) {
        snprintf(row, sizeof row, "\n| %s | %d |", out_of_scope[i].why, n_excused[i]);
        if (!strstr(page, row)) printf("docs/ONNX.md lacks:%s\n", row), same = false;
    }
    pl_sys_free(page);
    return same;
}

/* Runs every folder below root; returns how many fail without an excuse. */
static int run_folder(const char *root, int *passed)
{
    struct dirent **list = NULL;
    int n = scandir(root, &list, NULL, alphasort), bad = 0, excused = 0;
    *passed = 0;
    for (int i = 0; i < n; i++) {
        char folder[1024], why[1024];
        const char *name = list[i]->d_name, *reason = excuse(name);
        snprintf(folder, sizeof folder, "%s/%s", root, name);
        if (name[0] == '.') continue;
        node_result r = node_run(folder, why, sizeof why);
        if (r == NODE_PASSED) {
            (*passed)++;
        } else if (reason && (r != NODE_WRONG || strstr(reason, "of another") ||
                              strstr(reason, "declare"))) { /* never a wrong number */
            if (getenv("PL_ONNX_LIST")) printf("out of scope: %s: %s: %s\n", name, reason, why);
            count_excuse(reason);
            excused++;
        } else {
            printf("%s: %s\n", name, why);
            bad++;
        }
    }
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    if (getenv("PL_ONNX_LIST"))
        printf("%s: %d passed, %d failed, %d out of scope\n", root, *passed, bad, excused);
    return bad;
}

TEST(onnx_node_tests_of_the_standard_pass_or_are_out_of_scope)
{
    static const char *const folders[] = {DATA "node", DATA "pytorch-operator",
                                          DATA "pytorch-converted", DATA "simple"};
    const char *own = getenv("PL_ONNX_NODES");
    int passed, bad = 0;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    if (own) {
        CHECK_INT(run_folder(own, &passed), 0);
        CHECK(passed > 0);
        return;
    }
    DIR *d = opendir(folders[0]);
    if (!d) SKIP("the package libonnx-testdata is not installed");
    closedir(d);
    memset(n_excused, 0, sizeof n_excused);
    for (int i = 0; i < 4; i++) {
        bad += run_folder(folders[i], &passed);
        CHECK(passed > 0);
    }
    CHECK_INT(bad, 0);
    CHECK(page_has_reasons());
}

/* Nodes of opsets 19 to 28, which libonnx-testdata does not have (tools/oracle/onnx_cases.py). */
TEST(onnx_nodes_of_newer_opsets_give_the_reference_numbers)
{
    int passed;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    CHECK_INT(run_folder("tests/data/onnx_nodes", &passed), 0);
    CHECK_INT(passed, 36);
}

TEST(onnx_node_tests_of_the_newest_standard_pass_or_are_out_of_scope)
{
    int passed;
    char command[2048];
    const char *root = pl_test_dir();
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    if (!pl_test_long()) SKIP("a long test");
    WANT_PYTHON(python, "onnx");
    snprintf(command, sizeof command, "%s tools/oracle/onnx_nodes.py %s > %s.log 2>&1", python,
             root, root);
    CHECK_INT(system(command), 0);
    CHECK_INT(run_folder(root, &passed), 0);
    CHECK(passed > 1000);
}

/* tools/docs/onnx-ops writes the table. */
TEST(onnx_the_page_lists_the_ops_of_the_table)
{
    char *page;
    size_t len;
    CHECK_OK(pl_sys_read_file("docs/ONNX.md", 1 << 20, &page, &len));
    char row[512];
    int n = 0, lines = 0;
    pl_onnx_op op;
    bool same = true;
    for (; pl_onnx_op_get(n, &op); n++) {
        snprintf(row, sizeof row, "\n| `%s%s%s` | %s |\n", op.domain, op.domain[0] ? "." : "",
                 op.name, op.about);
        if (!strstr(page, row)) printf("docs/ONNX.md lacks:%s", row), same = false;
    }
    for (const char *p = page; (p = strstr(p, "\n| `")); p++) lines++;
    pl_sys_free(page);
    CHECK_MSG(same && lines == n, "docs/ONNX.md: run tools/docs/onnx-ops (%d rows, %d ops)", lines,
              n);
}
