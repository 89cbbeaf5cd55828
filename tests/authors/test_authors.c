/* test_authors.c - the recipes agree with the authors' own programs, and the comparison notices
 * when they do not. */
#include "tests/authors/authors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "tests/data/authors"

/* Every line of a system agrees; `least`: lines that there are at least. */
static void check_system(const char *system, int least)
{
    int lines, bad;
    CHECK_OK(authors_check(FOLDER, system, true, &lines, &bad));
    CHECK_MSG(bad == 0 && lines >= least, "%d of %d lines differ", bad, lines);
}

TEST(authors_fluxflow_agrees_with_its_program)
{
    check_system("fluxflow", 70);
}

TEST(authors_wandistill_agrees_with_its_program)
{
    check_system("wandistill", 15);
}

TEST(authors_cloud_agrees_with_its_program)
{
    check_system("cloud", 16);
}

TEST(authors_lgt_agrees_with_its_program)
{
    check_system("lgt", 58);
}

TEST(authors_stablesr_agrees_with_its_program)
{
    check_system("stablesr", 34);
}

/* The example of the rule that every about.json states. */
TEST(authors_sketch_follows_its_rule)
{
    double x[1000], sketch[4];
    for (int i = 0; i < 1000; i++) x[i] = i + 1;
    authors_sketch(x, 1000, sketch);
    CHECK_NEAR(sketch[0], 18271.111077, 1e-6);
    CHECK_NEAR(sketch[1], 9804, 0);
    CHECK_NEAR(sketch[2], 27758, 0);
    CHECK_NEAR(sketch[3], -13340, 0);
}

TEST(authors_difference_is_of_the_largest_value)
{
    static const double moved[] = {1, 2, 3.00003}, broken[] = {1, (double)NAN, 3},
                        want[] = {1, 2, 3};
    CHECK_NEAR(authors_difference(moved, want, 3), 1e-5, 1e-9);
    CHECK(isinf(authors_difference(broken, want, 3)));
}

/* Adds 1e-3 to the last number of the file, a bias of the flow's first layer. */
static void move_last_number(const char *path)
{
    float x;
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, -(long)sizeof x, SEEK_END) == 0 && fread(&x, sizeof x, 1, f) == 1);
    x += 1e-3f;
    CHECK(fseek(f, -(long)sizeof x, SEEK_END) == 0 && fwrite(&x, sizeof x, 1, f) == 1);
    CHECK(fclose(f) == 0);
}

TEST(authors_notice_one_other_weight)
{
    if (!pl_test_long()) SKIP("two seconds");
    int lines, bad;
    CHECK_RUN(cli_run("cp -r " FOLDER "/fluxflow %s/", pl_test_dir()), 0, "");
    move_last_number(pl_test_path("fluxflow/flxflow_final.safetensors"));
    CHECK_OK(authors_check(pl_test_dir(), "fluxflow", true, &lines, &bad));
    CHECK_MSG(bad >= 4, "%d of %d lines differ", bad, lines);
}

TEST(authors_need_a_folder_with_a_known_system)
{
    int lines, bad;
    CHECK(authors_check(pl_test_dir(), NULL, true, &lines, &bad) == PL_ERR_ARG);
}
