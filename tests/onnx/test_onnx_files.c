/* test_onnx_files.c - damaged and hostile ONNX files are refused, with the reason. */
#include "base/str.h"
#include "base/sys.h"
#include "io/json.h"
#include "ir/graph.h"
#include "onnx/onnx.h"
#include "tests/lib/test.h"
#include "tests/onnx/proto_write.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A node with one input and one output. */
static void put_node(pl_str *graph, const char *op, const char *in, const char *out)
{
    pl_str n = PL_STR_INIT;
    put_text(&n, 1, in);
    put_text(&n, 2, out);
    put_text(&n, 3, "the_node");
    put_text(&n, 4, op);
    put_message(graph, 1, &n);
}

/* An input or output (field 11 or 12) of floats; name NULL: dimension of `size`. */
static void put_port(pl_str *graph, int field, const char *name, const char *dim_name, int64_t size)
{
    pl_str dim = PL_STR_INIT, shape = PL_STR_INIT, tensor = PL_STR_INIT, type = PL_STR_INIT;
    pl_str info = PL_STR_INIT;
    if (dim_name)
        put_text(&dim, 2, dim_name);
    else
        put_number(&dim, 1, (uint64_t)size);
    pl_str batch = PL_STR_INIT;
    put_number(&batch, 1, 2);
    put_message(&shape, 1, &batch);
    put_message(&shape, 1, &dim);
    put_number(&tensor, 1, PL_OX_FLOAT);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

/* Opens and builds; the error text stays readable. */
static pl_status try_model(const pl_str *m, const char *folder)
{
    pl_onnx *o;
    PL_TRY(pl_ox_open_memory(m->text, m->len, folder, &o));
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *nn = pl_nn_new(g, true);
    pl_status rc = pl_onnx_build(o, nn, NULL, 0, NULL, 0, NULL);
    for (int i = 0; rc == PL_OK && i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        void *to = pl_sys_alloc(pl_type_bytes(&slot->type));
        bool known;
        rc = to ? pl_onnx_slot_read(o, slot, to, &known) : PL_ERR_MEMORY;
        pl_sys_free(to);
    }
    pl_nn_free(nn);
    pl_graph_free(g);
    pl_store_free(s);
    pl_onnx_free(o);
    return rc;
}

#define REFUSED(model, folder, code, part)                                                         \
 do {                                                                                              \
  pl_status rc_ = try_model(&(model), folder);                                                     \
  pl_str_release(&(model));                                                                        \
  CHECK_MSG(rc_ == (code) && strstr(pl_error_text(), part), "%s: %s", pl_status_name(rc_),         \
            pl_error_text());                                                                      \
 } while (0)

/* A graph with the node Add of x and a tensor, whose fields the caller has written. */
static pl_str model_with_tensor(pl_str *tensor)
{
    pl_str g = PL_STR_INIT, n = PL_STR_INIT;
    put_text(&n, 1, "x");
    put_text(&n, 1, "layer.weight");
    put_text(&n, 2, "y");
    put_text(&n, 4, "Add");
    put_message(&g, 1, &n);
    put_message(&g, 5, tensor);
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    return model_of(&g);
}

static void put_external(pl_str *t, const char *name, const char *location, const char *offset,
                         const char *length)
{
    const char *pairs[][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    put_number(t, 1, 3);
    put_number(t, 2, PL_OX_FLOAT);
    put_text(t, 8, name);
    for (int i = 0; i < 3; i++) {
        pl_str p = PL_STR_INIT;
        if (!pairs[i][1]) continue;
        put_text(&p, 1, pairs[i][0]);
        put_text(&p, 2, pairs[i][1]);
        put_message(t, 13, &p);
    }
    put_number(t, 14, 1);
}

static pl_str external_tensor(const char *location, const char *offset, const char *length)
{
    pl_str t = PL_STR_INIT;
    put_external(&t, "layer.weight", location, offset, length);
    return model_with_tensor(&t);
}

TEST(onnx_external_data_stay_in_the_folder_of_the_model)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    const char *dir = pl_test_dir();
    const float numbers[4] = {1, 2, 3, 4};
    CHECK_OK(pl_sys_write_file(pl_test_path("weights.bin"), numbers, sizeof numbers));
    CHECK(symlink("/etc/passwd", pl_test_path("link.bin")) == 0);

    pl_str good = external_tensor("weights.bin", "4", "12");
    pl_status rc = try_model(&good, dir);
    pl_str_release(&good);
    CHECK_OK(rc);
    pl_str up = external_tensor("../../etc/passwd", "0", "12");
    REFUSED(up, dir, PL_ERR_FILE, "outside the folder");
    pl_str absolute = external_tensor("/etc/passwd", "0", "12");
    REFUSED(absolute, dir, PL_ERR_FILE, "outside the folder");
    pl_str link = external_tensor("link.bin", "0", "12");
    REFUSED(link, dir, PL_ERR_FILE, "link out of the folder");
    pl_str far = external_tensor("weights.bin", "8", "12");
    REFUSED(far, dir, PL_ERR_FILE, "needs 12 bytes at byte 8");
    pl_str negative = external_tensor("weights.bin", "-4", "12");
    REFUSED(negative, dir, PL_ERR_FILE, "bad offset");
    pl_str shorter = external_tensor("weights.bin", "0", "8");
    REFUSED(shorter, dir, PL_ERR_FILE, "length given for the tensor: 8");
    pl_str longer = external_tensor("weights.bin", "0", "999999999999");
    REFUSED(longer, dir, PL_ERR_FILE, "length given for the tensor: 999999999999");
}

TEST(onnx_two_nodes_that_define_one_name_are_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    pl_str g = PL_STR_INIT;
    for (int i = 0; i < 2; i++) {
        pl_str n = PL_STR_INIT;
        put_text(&n, 1, "x");
        put_text(&n, 2, "y");
        put_text(&n, 4, i ? "Relu" : "Tanh");
        put_message(&g, 1, &n);
    }
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str m = model_of(&g);
    REFUSED(m, ".", PL_ERR_FILE, "'y' is defined twice");
}

TEST(onnx_tensors_with_impossible_sizes_are_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    static const int64_t dims[] = {-3, INT64_MAX / 2, 1 << 30};
    static const char *const why[] = {"dimension of -3", "dimension of", "1073741824 elements"};
    for (int i = 0; i < 3; i++) {
        pl_str t = PL_STR_INIT;
        put_number(&t, 1, (uint64_t)dims[i]);
        put_number(&t, 2, PL_OX_FLOAT);
        put_text(&t, 8, "layer.weight");
        put_text(&t, 9, "abcdefgh");
        if (i == 1) put_number(&t, 1, 64);
        pl_str m = model_with_tensor(&t);
        pl_onnx *o;
        pl_status rc = pl_ox_open_memory(m.text, m.len, ".", &o);
        if (rc == PL_OK && i == 2) { /* its size is compared with its bytes when it is read */
            pl_ox_host h;
            pl_arena mem = PL_ARENA_INIT;
            rc = pl_ox_tensor_read(o, o->init[0].tensor, &mem, &h);
            pl_arena_release(&mem);
            pl_onnx_free(o);
        }
        pl_str_release(&m);
        CHECK_MSG(rc == PL_ERR_FILE && strstr(pl_error_text(), why[i]), "%s", pl_error_text());
    }
}

TEST(onnx_errors_name_the_node_and_the_way_out)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    pl_str g = PL_STR_INIT;
    put_node(&g, "Relu", "y", "z");
    put_node(&g, "Relu", "z", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str cycle = model_of(&g);
    REFUSED(cycle, ".", PL_ERR_FILE, "the_node");

    put_node(&g, "Frobnicate", "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str lacks = model_of(&g);
    REFUSED(lacks, ".", PL_ERR_UNSUPPORTED,
            "Frobnicate node 'the_node' (output 'y'): Plimsoll does not support the op Frobnicate");

    put_node(&g, "DequantizeLinear", "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str quantized = model_of(&g);
    REFUSED(quantized, ".", PL_ERR_UNSUPPORTED,
            "1 node of the model needs it. The model is quantized");

    put_node(&g, "NonMaxSuppression", "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str boxes = model_of(&g);
    REFUSED(boxes, ".", PL_ERR_UNSUPPORTED,
            "1 node of the model needs it. The shape of its result depends on data");

    put_node(&g, "Relu", "x", "y");
    put_port(&g, 11, "x", "seq", 0);
    put_port(&g, 12, "y", "seq", 0);
    pl_str open = model_of(&g);
    REFUSED(open, ".", PL_ERR_CONFIG, "dims.seq=SIZE");

    put_node(&g, "NonZero", "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str depends = model_of(&g);
    REFUSED(depends, ".", PL_ERR_UNSUPPORTED, "depends on data");
}

TEST(onnx_deep_nesting_is_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    pl_str g = PL_STR_INIT; /* graphs in attributes of nodes of graphs ... */
    for (int i = 0; i < 200; i++) {
        pl_str a = PL_STR_INIT, n = PL_STR_INIT, outer = PL_STR_INIT;
        put_message(&a, 6, &g);
        put_message(&n, 5, &a);
        put_message(&outer, 1, &n);
        g = outer;
    }
    pl_str m = model_of(&g);
    REFUSED(m, ".", PL_ERR_FILE, "deep");
}

/* A node of the domain "d" that calls function `level`. */
static void put_call(pl_str *to, int field, int level, const char *in, const char *out)
{
    char name[16];
    pl_str n = PL_STR_INIT;
    snprintf(name, sizeof name, "f%d", level);
    put_text(&n, 1, in);
    put_text(&n, 2, out);
    put_text(&n, 4, name);
    put_text(&n, 7, "d");
    put_message(to, field, &n);
}

/* Each function calls the one below it twice: a file of two kilobytes would become 2^18 calls. */
TEST(onnx_functions_that_double_their_calls_are_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    enum { LEVELS = 18 };
    pl_str g = PL_STR_INIT;
    put_call(&g, 1, LEVELS - 1, "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str m = model_of(&g);
    for (int i = 0; i < LEVELS; i++) {
        char name[16];
        pl_str f = PL_STR_INIT, n = PL_STR_INIT;
        snprintf(name, sizeof name, "f%d", i);
        put_text(&f, 1, name);
        put_text(&f, 4, "a");
        put_text(&f, 5, "c");
        if (i == 0) {
            put_text(&n, 1, "a");
            put_text(&n, 2, "c");
            put_text(&n, 4, "Identity");
            put_message(&f, 7, &n);
        } else {
            put_call(&f, 7, i - 1, "a", "b");
            put_call(&f, 7, i - 1, "b", "c");
        }
        put_text(&f, 10, "d");
        put_message(&m, 25, &f);
    }
    REFUSED(m, ".", PL_ERR_FILE, "more than 65536 calls");
}

/* Two tensors may share bytes of external data (tied weights do): each is read by itself. */
TEST(onnx_overlapping_external_data_are_read_for_each_tensor)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    const float numbers[4] = {1, 2, 3, 4};
    const char *const offset[2] = {"0", "4"};
    pl_str g = PL_STR_INIT;
    CHECK_OK(pl_sys_write_file(pl_test_path("weights.bin"), numbers, sizeof numbers));
    for (int k = 0; k < 2; k++) {
        pl_str n = PL_STR_INIT, t = PL_STR_INIT;
        put_text(&n, 1, k ? "h" : "x");
        put_text(&n, 1, k ? "b.weight" : "a.weight");
        put_text(&n, 2, k ? "y" : "h");
        put_text(&n, 4, "Add");
        put_message(&g, 1, &n);
        put_external(&t, k ? "b.weight" : "a.weight", "weights.bin", offset[k], "12");
        put_message(&g, 5, &t);
    }
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str m = model_of(&g);
    pl_onnx *o;
    CHECK_OK(pl_ox_open_memory(m.text, m.len, pl_test_dir(), &o));
    for (int k = 0; k < 2; k++) {
        pl_ox_host h;
        CHECK_OK(pl_ox_init_read(o, &o->init[k], &o->mem, &h));
        for (int i = 0; i < 3; i++) CHECK_NEAR(h.d[i], numbers[k + i], 0);
    }
    pl_onnx_free(o);
    CHECK_OK(try_model(&m, pl_test_dir()));
    pl_str_release(&m);
}

/* Names of megabytes, and many of them: a message that is cut, in a moment. */
TEST(onnx_string_bombs_are_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    enum { LONG = 4 << 20, MANY = 20000 };
    char *name = pl_sys_alloc(LONG + 1);
    CHECK(name);
    memset(name, 'A', LONG);
    name[LONG] = 0;
    pl_str g = PL_STR_INIT;
    put_node(&g, name, "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str op = model_of(&g);
    REFUSED(op, ".", PL_ERR_UNSUPPORTED, "AAAA");

    put_node(&g, "Relu", name, "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str input = model_of(&g);
    REFUSED(input, ".", PL_ERR_FILE, "the_node");

    put_node(&g, "Relu", "x", "y");
    put_port(&g, 11, "x", name, 0);
    put_port(&g, 12, "y", NULL, 3);
    pl_str dim = model_of(&g);
    REFUSED(dim, ".", PL_ERR_CONFIG, "dimension 'AAAA");

    name[200] = 0;
    for (int i = 0; i < MANY; i++) put_node(&g, name, name, name);
    put_node(&g, "Relu", "x", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str many = model_of(&g);
    CHECK_OK(try_model(&many, ".")); /* no output needs these nodes */
    pl_str_release(&many);
    pl_sys_free(name);
}

/* Every beginning of a file is refused or builds; no byte may crash the reader. */
TEST(onnx_a_cycle_of_nodes_is_refused)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    pl_str g = PL_STR_INIT;
    put_node(&g, "Relu", "a", "b");
    put_node(&g, "Tanh", "b", "a");
    put_node(&g, "Neg", "a", "y");
    put_port(&g, 11, "x", NULL, 3);
    put_port(&g, 12, "y", NULL, 3);
    pl_str cycle = model_of(&g);
    REFUSED(cycle, ".", PL_ERR_FILE, "no node makes it, or nodes form a cycle");
}

/* Each build copies the names of its nodes, and a small budget needs many builds. */
TEST(onnx_long_names_of_nodes_are_cut_between_characters)
{
    enum { LONG = 100000 };
    if (pl_onnx_missing()) SKIP("libprotobuf-c is not installed");
    pl_str graph = PL_STR_INIT, node = PL_STR_INIT, name = PL_STR_INIT;
    pl_str_add(&name, "x");
    while (name.len < LONG) pl_str_add(&name, "\xc3\xa9"); /* two bytes at odd places */
    put_text(&node, 1, "x");
    put_text(&node, 2, "y");
    put_text(&node, 3, name.text);
    put_text(&node, 4, "Relu");
    put_message(&graph, 1, &node);
    put_port(&graph, 11, "x", NULL, 4);
    put_port(&graph, 12, "y", NULL, 4);
    pl_str model = model_of(&graph);
    pl_onnx *o;
    CHECK_OK(pl_ox_open_memory(model.text, model.len, ".", &o));
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *nn = pl_nn_new(g, false);
    CHECK_OK(pl_onnx_build(o, nn, NULL, 0, NULL, 0, NULL));
    for (uint32_t i = 0; i < g->n_scopes; i++) {
        size_t n = strlen(g->scopes[i].path);
        CHECK_MSG(n < 1100, "%zu bytes", n);
        CHECK(pl_utf8_valid(g->scopes[i].path, n));
    }
    pl_nn_free(nn);
    pl_graph_free(g);
    pl_store_free(s);
    pl_onnx_free(o);
    pl_str_release(&model);
    pl_str_release(&name);
}

TEST(onnx_truncated_and_changed_files_do_no_harm)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    char *bytes;
    size_t len;
    CHECK_OK(pl_sys_read_file("tests/data/onnx/mlp-new/model.onnx", 1 << 20, &bytes, &len));
    int refused = 0;
    for (size_t n = 0; n < len; n++) {
        pl_str part = {.text = bytes, .len = n};
        refused += try_model(&part, ".") != PL_OK;
    }
    for (size_t n = 0; n < len; n++) {
        char was = bytes[n];
        bytes[n] = (char)(was ^ (n % 3 == 0 ? 0x80 : n % 3 == 1 ? 0x01 : 0x7f));
        pl_str changed = {.text = bytes, .len = len};
        refused += try_model(&changed, ".") != PL_OK;
        bytes[n] = was;
    }
    pl_sys_free(bytes);
    CHECK(refused > (int)len); /* all the beginnings, and many of the changes */
}
