/* test_authors.c - the recipes agree with the authors' own programs, and the comparison notices
 * when they do not. */
#include "tests/authors/authors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/data/authors"

/* Checks that every compared line of a system (NULL: of all) agrees, at least `least` lines. */
static void check_folder(const char *folder, const char *system, int least)
{
    int lines, bad;
    CHECK_OK(authors_check(folder, system, true, &lines, &bad));
    CHECK_MSG(bad == 0 && lines >= least, "%d of %d lines differ", bad, lines);
}

static void check_system(const char *system, int least)
{
    check_folder(FOLDER, system, least);
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

/* Of tools/oracle/author_folders.py: cloudML with two levels and one layer, on odd frames; a
 * student that is wider and deeper than its teacher. */
TEST(authors_of_other_sizes_agree)
{
    check_folder("tests/data/authors_other", NULL, 30);
}

/* Sizes that are too large to store, made during the test: other heads, levels, levels without
 * attention, a time vector of another width, other weights of terms, pictures that are not
 * square. */
TEST(authors_of_many_sizes_agree)
{
    char text[1024];
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "diffusers");
    snprintf(text, sizeof text,
             "%s -W ignore tools/oracle/author_folders.py %s --case 2 >/dev/null 2>&1", python,
             pl_test_dir());
    CHECK_INT(system(text), 0);
    check_folder(pl_test_path("2"), NULL, 200);
    /* drawn: an autoencoder of another depth, two transformer blocks, latents of 12 x 20 */
    snprintf(text, sizeof text,
             "%s -W ignore tools/oracle/author_folders.py %s/drawn --draws 3 --case 2 --seed 77 "
             ">/dev/null 2>&1",
             python, pl_test_dir());
    CHECK_INT(system(text), 0);
    check_folder(pl_test_path("drawn/2"), NULL, 180);
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
    if (!pl_test_long()) SKIP("long");
    int lines, bad;
    CHECK_RUN(cli_run("cp -r " FOLDER "/fluxflow %s/", pl_test_dir()), 0, "");
    move_last_number(pl_test_path("fluxflow/flxflow_final.safetensors"));
    CHECK_OK(authors_check(pl_test_dir(), "fluxflow", true, &lines, &bad));
    CHECK_MSG(bad >= 4, "%d of %d lines differ", bad, lines);
}

/* A pair of sorted values that rounding turns over moves a gradient from 1e-6 to 3e-2 in one draw
 * of moved inputs. */
TEST(authors_meet_a_jump_by_rounding_and_do_not_cover_less)
{
    authors a = {.system = "lgt"};
    authors_entry f32 = {.what = "grad", .difference = 3e-2, .tolerance = 5e-5};
    authors_entry f64 = {.what = "grad", .difference = 1e-6, .tolerance = 5e-5};
    authors_entry still = {.what = "grad", .difference = 1e-5},
                  jumped = {.what = "grad", .difference = 3.001e-2};
    CHECK(!authors_agree(&a, &f32, NULL));
    authors_drawn(&f64, &still, false);
    CHECK(!authors_agree(&a, &f32, &f64));
    authors_drawn(&f64, &jumped, true);
    CHECK(authors_agree(&a, &f32, &f64));
    f32.difference = 2e-2; /* below the jump: another error */
    CHECK(!authors_agree(&a, &f32, &f64));
    f32.difference = 3e-2; /* the authors' f32 jumped: f64 meets it in a draw */
    f64.difference = 3e-2;
    f64.drawn[1] = 1e-5;
    CHECK(authors_agree(&a, &f32, &f64));
    f64.drawn[0] = f64.drawn[1] = 1e-2; /* a wrong formula: no draw meets the authors' number */
    CHECK(!authors_agree(&a, &f32, &f64));
}

/* Where rounding moves a line a little in every draw, the largest move of moved weights counts. */
TEST(authors_error_of_f32_is_measured_by_moved_weights)
{
    authors a = {.system = "cloud"};
    authors_entry f32 = {.what = "grad", .difference = 6e-4, .tolerance = 5e-5};
    authors_entry f64 = {.what = "grad", .difference = 3.7e-4, .tolerance = 5e-5};
    authors_entry moved = {.what = "grad", .difference = 8e-4}; /* by 4.3e-4 */
    authors_drawn(&f64, &moved, true);
    CHECK(!authors_agree(&a, &f32, &f64));
    authors_drawn(&f64, &moved, false);
    CHECK(authors_agree(&a, &f32, &f64));
    f32.difference = 5.1 * (5e-5 + 4.3e-4);
    CHECK(!authors_agree(&a, &f32, &f64));
}

TEST(authors_need_a_folder_with_a_known_system)
{
    int lines, bad;
    CHECK(authors_check(pl_test_dir(), NULL, true, &lines, &bad) == PL_ERR_ARG);
}
