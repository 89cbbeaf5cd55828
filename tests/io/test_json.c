/* test_json.c - the JSON writer: shapes, escapes, numbers that read back, and misuse. */
#include "base/sys.h"
#include "io/json.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

TEST(json_nested_documents_are_written_whole)
{
    pl_json *j = pl_json_new(NULL);

    pl_json_object(j, NULL);
    pl_json_int(j, "min", INT64_MIN);
    pl_json_uint(j, "max", UINT64_MAX);
    pl_json_array(j, "list");
    pl_json_bool(j, NULL, true);
    pl_json_null(j, NULL);
    pl_json_object(j, NULL);
    pl_json_end(j);
    pl_json_end(j);
    pl_json_string(j, "none", NULL);
    pl_json_end(j);
    CHECK_OK(pl_json_finish(j));
    const char *want = "{\"min\":-9223372036854775808,\"max\":18446744073709551615,"
                       "\"list\":[true,null,{}],\"none\":null}\n";

    CHECK_MSG(strcmp(pl_json_text(j), want) == 0, "got %s", pl_json_text(j));
    pl_json_free(j);
}

TEST(json_strings_are_escaped)
{
    pl_json *j = pl_json_new(NULL);
    pl_json_string(j, NULL, "a\"b\\c\n\t\x01\x7f\xc3\xa9\xe2\x80\xa8/");
    CHECK_OK(pl_json_finish(j));
    CHECK_MSG(strcmp(pl_json_text(j), "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\xc3\xa9\\u2028/\"\n") == 0,
              "got %s", pl_json_text(j));
    pl_json_free(j);
}

TEST(json_floats_are_short_and_read_back)
{
    const struct {
        double v;
        const char *text;
    } rows[] = {
        {0.1, "0.1"}, {1, "1"}, {-0.0, "-0"}, {1e300, "1e+300"}, {1.0 / 3, "0.3333333333333333"}};
    char buf[PL_FLOAT_TEXT_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_MSG(strcmp(pl_float_text(rows[i].v, buf), rows[i].text) == 0, "got %s", buf);

    uint64_t seed = 7;
    for (int i = 0; i < 2000; i++) {
        double v = pl_test_noise(&seed) * pow(10, 300 * pl_test_noise(&seed));
        CHECK_MSG(strtod(pl_float_text(v, buf), NULL) == v, "%.17g became %s", v, buf);
    }
}

TEST(json_nan_and_infinity_are_null)
{
    pl_json *j = pl_json_new(NULL);
    pl_json_array(j, NULL);
    pl_json_float(j, NULL, (double)NAN);
    pl_json_float(j, NULL, -HUGE_VAL);
    pl_json_end(j);

    CHECK_OK(pl_json_finish(j));
    CHECK(strcmp(pl_json_text(j), "[null,null]\n") == 0);
    pl_json_free(j);
}

TEST(json_bad_utf8_is_refused)
{
    CHECK(pl_utf8_valid("a\xc3\xa9\xf0\x9f\x98\x80", 7));
    const char *bad[] = {"\xc0\xaf", "\xed\xa0\x80",     "\xf4\x90\x80\x80", "\x80",
                         "\xc3",     "\xf5\x80\x80\x80", "\xe0\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!pl_utf8_valid(bad[i], strlen(bad[i])));
}

/* Names of files may be any bytes; the output is JSON all the same. */
TEST(json_bytes_that_are_not_utf8_become_the_replacement_character)
{
    pl_json *j = pl_json_new(NULL);
    pl_json_object(j, NULL);
    pl_json_string(j, "a\xff", "b\xc3\xa9\xc0z\xe2\x82");
    pl_json_end(j);
    CHECK_OK(pl_json_finish(j));
    CHECK_MSG(strcmp(pl_json_text(j), "{\"a\\ufffd\":\"b\xc3\xa9\\ufffdz\\ufffd\\ufffd\"}\n") == 0,
              "%s", pl_json_text(j));
    pl_json_free(j);
}

static pl_status misuse(int which)
{
    pl_json *j = pl_json_new(NULL);
    if (which == 0) pl_json_object(j, NULL), pl_json_int(j, NULL, 1), pl_json_end(j);
    if (which == 1) pl_json_array(j, NULL), pl_json_int(j, "k", 1), pl_json_end(j);
    if (which == 2) pl_json_end(j);
    if (which == 3) pl_json_object(j, NULL);
    if (which == 4) pl_json_int(j, NULL, 1), pl_json_int(j, NULL, 2);
    for (int i = 0; which == 5 && i < 70; i++) pl_json_array(j, NULL);
    pl_status s = pl_json_finish(j);
    pl_json_free(j);
    return s;
}

TEST(json_misuse_is_reported)
{
    for (int i = 0; i < 6; i++) CHECK_INT(misuse(i), PL_ERR_ARG);
    CHECK_INT(pl_json_finish(NULL), PL_ERR_MEMORY);
    pl_json_int(NULL, NULL, 1);
}

TEST(json_stream_gets_one_document_a_line)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    pl_json *j = pl_json_new(f);

    for (int i = 1; i <= 2; i++) {
        pl_json_object(j, NULL);
        pl_json_int(j, "step", i);
        pl_json_end(j);
        CHECK_OK(pl_json_finish(j));
    }
    fclose(f);

    CHECK_MSG(strcmp(text, "{\"step\":1}\n{\"step\":2}\n") == 0, "got %s", text);
    pl_json_free(j);
    free(text);
}

TEST(json_full_disk_is_reported)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f) SKIP("no /dev/full");
    pl_json *j = pl_json_new(f);
    pl_json_int(j, NULL, 1);
    CHECK_INT(pl_json_finish(j), PL_ERR_IO);
    pl_json_free(j);
    fclose(f);
}
