/* test_regress_table.c - the regress recipe on a CSV table: numbers, categories, scaling that the
 * model file keeps, predictions for new rows. */
#include "io/npy.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN    "cd %s && "
#define TABLE "data.table=t.csv 'data.targets=[price]' 'data.ignore=[id]' data.eval_share=0.1 "
#define TINY  "regress/tiny eval.every=0 --quiet "

/* price = 1000 area + 30000 for Rome, - 20000 for Lima: the rule of the tables below. */
static double truth(int i)
{
    static const double more[] = {0, 30000, -20000};
    return 1000.0 * (40 + i * 37 % 100) + more[i % 3];
}

/* Writes rows [first, last) with this separator, with or without the price. */
static void write_table(const char *name, int first, int last, bool price)
{
    static const char *const city[] = {"Oslo", "Rome", "\"Lima, Peru\""};
    char path[700];
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), name);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "id,%sarea,city\n", price ? "price," : "");
    for (int i = first; i < last; i++) {
        fprintf(f, "no-%d,", i);
        if (price) fprintf(f, "%.0f,", truth(i));
        fprintf(f, "%d,%s\n", 40 + i * 37 % 100, city[i % 3]);
    }
    fclose(f);
}

/* Prices of 10^5 are learnt, because the recipe scales them, and predicted in their own unit for
 * rows of a table with more columns in another order, also after the training table is deleted. */
TEST(regress_learns_a_table_and_predicts_in_its_unit)
{
    const char *d = pl_test_dir();
    char path[700];
    WANT_BIN();

    write_table("t.csv", 0, 300, true);
    write_table("new.csv", 300, 330, false);
    CHECK_RUN(cli_run(IN "$P train " TINY TABLE "--out run train.steps=300", d), 0, "");
    cli_result r = cli_run(IN "$P eval run --json", d);
    json_t *j = json_loads(r.out, 0, NULL);
    double mae = json_number_value(json_object_get(json_object_get(j, "metrics"), "mae"));
    json_decref(j);
    CHECK_MSG(r.code == 0 && mae > 1 && mae < 6000, "%s%s", r.out, r.err);
    CHECK_RUN(cli_run(IN "rm t.csv; $P predict run --input new.csv --out p.csv --quiet && "
                         "$P predict run --input new.csv --out p.npy --quiet --memory 80MB batch=7",
                      d),
              0, "");
    snprintf(path, sizeof path, "%s/p.npy", d);
    float all[30];
    pl_npy *a;
    CHECK_OK(pl_npy_open(path, &a));
    CHECK_INT(pl_npy_rows(a), 30);
    CHECK_OK(pl_npy_read(a, 0, 30, all));
    pl_npy_close(a);
    snprintf(path, sizeof path, "%s/p.csv", d);
    const char *line = cli_read(path);
    CHECK(strncmp(line, "row,price\n0,", 12) == 0);

    for (int i = 0; i < 30; i++) {
        line = strchr(line, '\n') + 1;
        double got = strtod(strchr(line, ',') + 1, NULL);
        CHECK_MSG(fabs(got - truth(300 + i)) < 15000, "row %d: %g, the truth is %g", i, got,
                  truth(300 + i));
        CHECK_NEAR((double)all[i] / got, 1, 1e-5);
    }
}

TEST(regress_predicts_arrays)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run(IN
                      "$P generate regress/tiny inputs=3 targets=2 --out set --quiet && "
                      "$P train " TINY "data.path=set --out run train.steps=5 && "
                      "$P predict run --input set/eval/input.npy --out p.csv --quiet && "
                      "test $(wc -l < p.csv) = 513 && head -1 p.csv | grep -q row,target0,target1",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input set/eval/target.npy --out q.csv", d), 5,
              "the model needs f32 or f64 of shape [N, 3]");
    CHECK_RUN(cli_run(IN "echo a > t.csv; $P predict run --input t.csv --out q.csv", d), 2,
              "the model was trained on arrays");
}

TEST(regress_bad_tables_are_refused)
{
    static const struct {
        const char *table, *keys, *says;
        int code;
    } bad[] = {
        {"a,price\n1,2\n3,4\n", "", "data.table needs data.targets", 2},
        {"a,price\n1,2\n3,4\n", "'data.targets=[cost]'", "the table has no column \"cost\"", 2},
        {"a,price\n1,2\n3,x\n", "'data.targets=[price]'", "line 3: column \"price\" is \"x\"", 5},
        {"a,price\n1,2\n,4\n", "'data.targets=[price]'", "line 3: column \"a\" is \"\"", 5},
        {"a,price\n1,2\nNA,4\n3,5\n", "'data.targets=[price]'",
         "line 3: column \"a\" is \"NA\", and 2 of its 3 fields are numbers", 5},
        {"a,price\n1,2\n3,4\n", "'data.targets=[prize]'", "did you mean \"price\"?", 2},
        {"price\n1\n2\n", "'data.targets=[price]'", "no column of the table is an input", 2},
        {"a,price\n1,2\n", "'data.targets=[price]'", "fewer than two rows", 5},
        {"a,price\n1,2\n3\n", "'data.targets=[price]'", "t.csv:3: 1 fields", 5},
    };
    char path[700];
    WANT_BIN();

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "%s/t.csv", pl_test_dir());
        CHECK(cli_write(path, bad[i].table));
        CHECK_RUN(cli_run(IN "$P train " TINY "data.table=t.csv %s", pl_test_dir(), bad[i].keys),
                  bad[i].code, bad[i].says);
    }
    /* A name with a comma is a field in quotes in the result too. */
    CHECK_RUN(cli_run(IN "printf 'a,\"price, \"\"net\"\"\"\\n1,2\\n2,4\\n3,6\\n4,8\\n' > q.csv; "
                         "$P train " TINY "data.table=q.csv "
                         "'data.targets=[\"price, \\\"net\\\"\"]' data.eval_share=0.5 "
                         "train.steps=1 batch=1 --out quoted --quiet && "
                         "$P predict quoted --input q.csv --out q.out.csv --quiet && "
                         "head -n 1 q.out.csv | grep -x 'row,\"price, \"\"net\"\"\"'",
                      pl_test_dir()),
              0, "");
    write_table("t.csv", 0, 60, true);
    write_table("new.csv", 0, 3, false);
    CHECK_RUN(cli_run(IN "$P train " TINY TABLE "--out run train.steps=1", pl_test_dir()), 0, "");
    CHECK_RUN(
        cli_run(IN "sed -i s/Rome/Paris/ new.csv; $P predict run --input new.csv --out p.csv",
                pl_test_dir()),
        5, "line 3: column \"city\" is \"Paris\", which is not a category of the training table");
    CHECK_RUN(cli_run(IN
                      "sed -i s/area/surface/ new.csv; $P predict run --input new.csv --out p.csv",
                      pl_test_dir()),
              5, "the table has no column \"area\"");
}
