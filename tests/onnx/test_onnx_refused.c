/* test_onnx_refused.c - files that are wrong in one place (tools/oracle/onnx_refused.py makes
 * them): each is refused, with a message that names the place. A wrong word or type of an attribute
 * that is taken for the default value would give other numbers in silence. */
#include "plimsoll_nn.h"
#include "plimsoll_onnx.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *says;
} files[] = {
    {"auto_pad", "attribute auto_pad is 'foo'; the words are NOTSET, SAME_UPPER"},
    {"direction", "attribute direction is 'foo'"},
    {"pad_mode", "attribute mode is 'foo'"},
    {"pad_least", "padding leaves nothing of dimension 1"},
    {"resize_mode", "attribute mode is 'foo'"},
    {"resize_coordinates", "attribute coordinate_transformation_mode is 'foo'"},
    {"grid_mode", "attribute mode is 'foo'"},
    {"blocks", "attribute mode is 'foo'; the words are DCR, CRD"},
    {"gelu", "attribute approximate is 'foo'"},
    {"loss", "attribute reduction is 'foo'"},
    {"strides_real", "attribute strides has numbers with fractions; the op needs whole numbers"},
    {"kernel_text", "attribute kernel_shape has a text"},
    {"axis_real", "attribute axis has a number with a fraction"},
    {"alpha_whole", "attribute alpha has a whole number"},
    {"kernel_other", "kernel_shape says 5, the weight has 3"},
    {"kernel_one", "kernel_shape has 1 numbers for 2 dimensions"},
    {"kernel_missing", "attribute kernel_shape is missing"},
    {"group_0", "group is 0"},
    {"group_negative", "group is -3"},
    {"group_huge", "group is 1099511627776"},
    {"group_of_norm", "num_groups is 0"},
    {"concat_axis", "attribute axis is missing"},
    {"split_short", "the parts have 2 of 4 elements"},
    {"split_many", "3 sizes of parts for 2 outputs"},
    {"split_negative", "part 0 has -1 of 4 elements"},
    {"slice_twice", "axis 1 is cut twice"},
    {"hidden", "hidden_size is 7, the weight R has 3"},
    {"positions", "input 1 has 27 elements in 3 dimensions"},
    {"scale_nan", "a scale of nan for axis 2"},
    {"range_step", "its inputs have no result"},
    {"depth", "a depth of -3"},
    {"nowhere", "no node makes output 'y'"},
    {"text_tensor", "input 's' has elements of type string"},
    {"sequence", "input 's' is not a tensor"},
};

/* Builds all outputs of the model. */
static pl_status build(const char *path)
{
    pl_onnx *o;
    pl_status rc = pl_onnx_open(path, &o);
    if (rc != PL_OK) return rc;
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, false);
    pl_onnx_value out[2] = {{0}};
    int n = pl_onnx_output_count(o);
    for (int i = 0; i < n; i++) out[i].name = pl_onnx_output(o, i)->name;
    rc = pl_onnx_build(o, m, NULL, 0, NULL, n, out);
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(store);
    pl_onnx_free(o);
    return rc;
}

TEST(onnx_files_that_are_wrong_in_one_place_are_refused)
{
    char path[256];
    int n = 0;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "tests/data/onnx_refused/%s.onnx", files[i].name);
        pl_status rc = build(path);
        CHECK_MSG(rc != PL_OK && strstr(pl_error_text(), files[i].says), "%s: %s", files[i].name,
                  rc == PL_OK ? "accepted" : pl_error_text());
    }
    DIR *d = opendir("tests/data/onnx_refused");
    for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, ".onnx") != NULL;
    if (d) closedir(d);
    CHECK_INT(n, (int)(sizeof files / sizeof *files));
}
