/* test_own_recipe.c - mistakes in a user's recipe, patterns and arrays are answered with
 * messages. */
#include "data/sets/array.h"
#include "plimsoll_config.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

/* Compiles a recipe whose functions have these bodies, as own.so in the test's folder. */
static bool own_made(const char *build, const char *read, const char *members)
{
    char path[600];
    snprintf(path, sizeof path, "%s/own.c", pl_test_dir());
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(
        f,
        "#include <plimsoll_ops.h>\n#include <plimsoll_recipe.h>\n"
        "static const pl_config_entry schema[] = {{\"width\", PL_CONFIG_INT, \"8\", .doc = \"w\"},\n"
        " {\"rate\", PL_CONFIG_FLOAT, \"0.5\", .doc = \"r\"}, {0}};\n"
        "static const pl_preset presets[] = {{\"small\", \"s\", \"batch: 2\\ntrain: {steps: 2}\\n\"},"
        " {NULL, NULL, NULL}};\n"
        "static pl_status build(pl_builder *b)\n{\n    const pl_config *c = pl_builder_config(b);\n"
        "    (void)c;\n%s\n    pl_nn *m = pl_builder_train(b);\n"
        "    pl_val x = pl_input(m->g, \"x\", PL_TYPE(PL_F32, 2, 4));\n"
        "    pl_builder_minimise(b, pl_mean(m->g, pl_nn_linear(m, x, \"out\", 1, (pl_nn_lin){0}),"
        " PL_AXES_ALL, false));\n    return PL_OK;\n}\n"
        "static pl_status data_read(void *data, pl_subset s, const int64_t *k, int n, pl_batch *to)\n"
        "{\n    const pl_config *c = data;\n    (void)c, (void)s, (void)k, (void)build;\n%s\n"
        "    float *x = pl_batch_input(to, \"x\", NULL);\n"
        "    for (int i = 0; i < 4 * n; i++) x[i] = 0.5f;\n    return PL_OK;\n}\n"
        "static const pl_recipe recipe = {.abi = PL_RECIPE_ABI, .schema = schema, .presets = "
        "presets, .data_read = data_read, %s};\n"
        "const pl_recipe *pl_recipe_entry(void);\n"
        "const pl_recipe *pl_recipe_entry(void) { return &recipe; }\n",
        build, read, members);
    fclose(f);
    return cli_run("${CC:-cc} -shared -fPIC -O1 -I include -o %s/own.so %s/own.c", pl_test_dir(),
                   pl_test_dir())
               .code == 0;
}

#define WHOLE ".name = \"own\", .build = build"

static void check_own(const char *build, const char *read, const char *members, int code,
                      const char *says)
{
    CHECK(own_made(build, read, members));
    cli_result r = cli_run("cd %s && $P train ./own.so --quiet", pl_test_dir());
    CHECK_MSG(r.code == code && strstr(r.err, says) && !strstr(r.err, "internal error"),
              "exit code %d, wanted %d and \"%s\": %s", r.code, code, says, r.err);
}

TEST(own_recipe_mistakes_are_messages)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    check_own("", "", WHOLE, 0, "");
    check_own("", "", ".name = \"own\"", 2, "recipe own has no build function");
    check_own("", "", ".build = build", 2, "has no name");
    check_own("    if (8 / pl_config_int(c, \"widht\")) return PL_OK;", "", WHOLE, 2,
              "\"widht\", which is not in its schema; nearest: \"width\"");
    check_own("    if (pl_config_int(c, \"rate\")) return PL_OK;", "", WHOLE, 2,
              "\"rate\" as a whole number, its schema says a number");
    check_own("", "    if (pl_config_is_null(c, \"raet\")) return PL_OK;", WHOLE, 2,
              "\"raet\", which is not in its schema; nearest: \"rate\"");
}

static pl_status nested(void *ctx)
{
    (void)ctx;
    return PL_ERR_DATA;
}

static pl_status reads_badly(void *ctx)
{
    if (pl_config_guard(nested, NULL) != PL_ERR_DATA) return PL_ERR_IO;
    return pl_config_int(ctx, "nothing") ? PL_OK : PL_ERR_IO;
}

TEST(own_recipe_guards_nest_and_end)
{
    static const pl_config_entry schema[] = {{"width", PL_CONFIG_INT, "8", .doc = "w"}, {0}};
    const pl_config_entry *tables[] = {schema};
    pl_config *c;
    CHECK_OK(pl_config_new(tables, 1, &c));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(pl_config_guard(reads_badly, c), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), "\"nothing\""), "%s", pl_error_text());
    }
    pl_config_free(c);
}

TEST(own_patterns_that_name_nothing_stop)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    static const struct {
        const char *set;
        int code;
        const char *says;
    } cases[] = {{"optim.no_decay='*.bais'", 2, "nearest: \"bias\""},
                 {"optim.no_decay='*.bias,*.wieght'", 2, "nearest: \"weight\""},
                 {"optim.no_decay='*.bias,!out.*'", 0, ""},
                 {"optim.frozen=nothing.at.all", 2, "no parameter has a name like"},
                 {"optim.no_decay='*.bias'", 0, ""}};

    CHECK(own_made("", "", WHOLE));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_result r =
            cli_run("cd %s && $P train ./own.so %s --quiet", pl_test_dir(), cases[i].set);
        CHECK_MSG(r.code == cases[i].code && strstr(r.err, cases[i].says), "%s: %d %s",
                  cases[i].set, r.code, r.err);
    }
}

/* Writes an .npy of n rows of one number each. */
static void write_npy(const char *path, const char *descr, const void *data, size_t bytes, int n)
{
    char head[128];
    FILE *f = fopen(path, "wb");
    if (!f) return;
    int k = snprintf(head, sizeof head,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%d, 1), }", descr, n);
    memset(head + k, ' ', sizeof head - (size_t)k);
    head[117] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
    fwrite(head, 1, 118, f);
    fwrite(data, 1, bytes, f);
    fclose(f);
}

TEST(own_arrays_of_other_whole_numbers_are_converted)
{
    char path[600];
    const char *paths[] = {path};
    static const int64_t wide[4] = {-3, 70000, INT32_MAX, (int64_t)INT32_MAX + 1};
    static const int32_t usual[3] = {0, 255, 256};
    pl_type i32 = PL_TYPE(PL_I32, 1), i64 = PL_TYPE(PL_I64, 1), u8 = PL_TYPE(PL_U8, 1);
    pl_array *a;
    int32_t narrow = 0;
    int64_t large = 0;
    uint8_t byte = 0;

    snprintf(path, sizeof path, "%s/label.npy", pl_test_dir());
    write_npy(path, "<i8", wide, sizeof wide, 4);
    CHECK_OK(pl_array_open(paths, 1, "label", "label", NULL, &i32, &a));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pl_array_read(a, i, &narrow));
        CHECK_INT(narrow, wide[i]);
    }
    CHECK_INT(pl_array_read(a, 3, &narrow), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "row 3 is 2147483648"), "%s", pl_error_text());
    pl_array_close(a);
    write_npy(path, "<i4", usual, sizeof usual, 3);
    CHECK_OK(pl_array_open(paths, 1, "label", "label", NULL, &i64, &a));
    CHECK_OK(pl_array_read(a, 2, &large));
    CHECK_INT(large, 256);
    pl_array_close(a);
    CHECK_OK(pl_array_open(paths, 1, "label", "label", NULL, &u8, &a));
    CHECK_OK(pl_array_read(a, 1, &byte));

    CHECK_INT(byte, 255);
    CHECK_INT(pl_array_read(a, 2, &byte), PL_ERR_DATA);
    pl_array_close(a);
}
