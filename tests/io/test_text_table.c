/* test_text_table.c - CSV tables: separators, quotes, line ends, and what is refused. */
#include "plimsoll_table.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

static pl_status open_text(const char *text, pl_table **t)
{
    char path[700];
    snprintf(path, sizeof path, "%s/t.csv", pl_test_dir());
    if (!cli_write(path, text)) return PL_ERR_IO;
    return pl_table_open(path, t);
}

TEST(table_reads_separators_quotes_and_line_ends)
{
    static const char *const texts[] = {
        "a,b c,d\n1, x y ,3\n\n4,\"p,\"\"q\"\"\n\",-6e1\n",
        ("\xEF\xBB\xBF" /* a byte order mark */
         "a;b c;d\r\n1;x y;3\r\n4;\"p,\"\"q\"\"\n\";-6e1"),
        "\n\"a\"\t\"b c\"\td\n1\tx y\t3\n4\t\"p,\"\"q\"\"\n\" \t-6e1\n",
    };
    for (size_t i = 0; i < 3; i++) {
        pl_table *t;
        double x;
        CHECK_OK(open_text(texts[i], &t));
        CHECK_INT(pl_table_columns(t), 3);
        CHECK_INT(pl_table_rows(t), 2);
        CHECK(pl_table_find(t, "b c") == 1 && pl_table_find(t, "e") == -1);
        CHECK(strcmp(pl_table_text(t, 0, 1), "x y") == 0);
        CHECK(strcmp(pl_table_text(t, 1, 1), "p,\"q\"\n") == 0);
        CHECK(pl_table_number(t, 1, 2, &x));
        CHECK_NEAR(x, -60, 1e-12);
        CHECK(!pl_table_number(t, 0, 1, &x));
        pl_table_close(t);
    }
}

TEST(table_takes_no_text_for_a_number)
{
    static const char *const fields[] = {"", "nan", "inf", "1e999", "0x10", "1,5", "12 kg", "--1"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[64];
        double x;
        pl_table *t;
        snprintf(text, sizeof text, "a;b\n%s;1\n", fields[i]);
        CHECK_OK(open_text(text, &t));
        CHECK_MSG(!pl_table_number(t, 0, 0, &x), "\"%s\" is %g", fields[i], x);
        pl_table_close(t);
    }
}

TEST(table_bad_files_are_refused_with_their_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "is empty"},
        {"a,b\n1,2\n3\n", "t.csv:3: 1 fields, the header has 2"},
        {"a,b\n1,2,3\n", "t.csv:2: 3 fields, the header has 2"},
        {"a,b\n1,\"2\n", "t.csv:2: a quote is not closed"},
        {"a,b\n\"1\"x,2\n", "t.csv:2: text after a closing quote"},
        {"a,a\n1,2\n", "two columns are named \"a\""},
        {"a,\n1,2\n", "column 2 has no name"},
    };
    pl_table *t;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(open_text(bad[i].text, &t), PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), bad[i].says), "%s", pl_error_text());
    }
    CHECK_INT(pl_table_open("/nowhere.csv", &t), PL_ERR_DATA);
}
