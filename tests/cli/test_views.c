/* test_views.c - pictures and pages of plans and runs: contents, and labels that do not overlap. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NET "cloud/tiny height=16 width=16 batch=4 device=h200 "

/* The attribute of the first element that has this class; NAN: there is none. */
static double attribute(const char *svg, const char *class_, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "class=\"%s\"", class_);
    const char *at = strstr(svg, key), *end = at ? strchr(at, '>') : NULL;
    snprintf(key, sizeof key, " %s=\"", name);
    at = at ? strstr(at, key) : NULL;
    return at && at < end ? strtod(at + strlen(key), NULL) : (double)NAN;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + 1, part)) n++;
    return n;
}

static double planned(const char *keys, const char *member)
{
    json_t *j = json_loads(cli_run("$P plan " NET "%s --json", keys).out, 0, NULL);
    double v = json_number_value(json_object_get(j, member));
    json_decref(j);
    return v;
}

/* Budget and peak have separate label lines for every budget: equal to the peak, 1 byte or 1 %
 * above, twice and a hundred times as large. */
TEST(views_budget_and_peak_labels_keep_apart)
{
    WANT_BIN();
    double total = planned("", "total_bytes"), fixed = planned("", "overhead_bytes"),
           shown = total - fixed; /* the picture leaves the overhead out */

    CHECK(total > 0 && shown > 0);
    const double budgets[] = {total,
                              total + 1,
                              fixed + 1.01 * shown,
                              fixed + 1.3 * shown,
                              fixed + 2 * shown,
                              fixed + 100 * shown};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        CHECK_RUN(cli_run("$P plan " NET "--memory %.0f --timeline %s", budgets[i],
                          pl_test_path("t.svg")),
                  0, "");
        const char *svg = cli_read(pl_test_path("t.svg"));
        double peak = attribute(svg, "peak", "y"), budget = attribute(svg, "over", "y");
        CHECK_MSG(fabs(peak - budget) >= 14, "budget %.0f: labels at %g and %g", budgets[i], peak,
                  budget);
        CHECK(peak > 0 && budget > 0 && peak < 76 && budget < 76);
        bool far = i >= 4;
        CHECK_MSG((strstr(svg, ", above this picture") != NULL) == far, "budget %.0f", budgets[i]);
        CHECK_MSG((strstr(svg, "<line class=\"budget\"") != NULL) == !far, "budget %.0f",
                  budgets[i]);
    }
}

TEST(views_picture_names_programs_stages_and_recompute)
{
    WANT_BIN();
    char keys[64];

    CHECK_RUN(cli_run("$P plan " NET "--timeline %s", pl_test_path("t.svg")), 0, "");
    const char *svg = cli_read(pl_test_path("t.svg"));
    static const char *const parts[] = {
        "<title id=\"t\">",  "<desc id=\"d\">",    ">train: ",
        ">evaluation: ",     ">forward</text>",    ">backward</text>",
        "class=\"forward\"", "class=\"backward\"", "</svg>"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_MSG(strstr(svg, parts[i]), "no %s in\n%s", parts[i], svg);
    CHECK(!strstr(svg, ">recomputed ") && !strstr(svg, "class=\"again\""));
    CHECK(count(svg, "class=\"grid\" x1") >= 5); /* ticks of bytes */

    snprintf(keys, sizeof keys, "--memory %.0f", planned("", "minimum_bytes"));
    CHECK_RUN(cli_run("$P plan " NET "%s --timeline %s", keys, pl_test_path("t.svg")), 0, "");
    svg = cli_read(pl_test_path("t.svg"));
    CHECK(strstr(svg, ">recomputed ") && strstr(svg, "class=\"again\""));
}

/* Kernels by their names: conv_dw is backward, adam is update, an evaluation has neither. */
TEST(views_stages_agree_with_the_kernels)
{
    WANT_BIN();

    CHECK_RUN(cli_run("$P plan " NET "--timeline %s", pl_test_path("t.html")), 0, "");
    const char *page = cli_read(pl_test_path("t.html")), *from = strstr(page, "id=\"plan\">");
    json_t *data =
        from ? json_loads(from + strlen("id=\"plan\">"), JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *labels = json_object_get(data, "labels"), *program, *row;
    static const char *const kernel[] = {": conv", ": conv_dw", "optim: adam"};
    int seen[3] = {0}, evaluated = 0;
    size_t i, k;
    json_array_foreach(json_object_get(data, "programs"), i, program)
    {
        bool eval = strcmp(json_string_value(json_object_get(program, "name")), "evaluation") == 0;
        json_array_foreach(json_object_get(program, "steps"), k, row)
        {
            const char *label = json_string_value(
                json_array_get(labels, (size_t)json_integer_value(json_array_get(row, 3))));
            int stage = (int)json_integer_value(json_array_get(row, 4));
            if (eval) CHECK_MSG(stage == 0, "%s in the evaluation is of stage %d", label, stage);
            evaluated += eval;
            for (int s = 0; s < 3; s++) {
                size_t n = strlen(label), m = strlen(kernel[s]);
                if (n < m || strcmp(label + n - m, kernel[s]) != 0) continue;
                CHECK_MSG(stage == s, "%s is of stage %d", label, stage);
                seen[s]++;
            }
        }
    }

    json_decref(data);
    CHECK_MSG(seen[0] && seen[1] && seen[2] && evaluated, "%d %d %d %d", seen[0], seen[1], seen[2],
              evaluated);
}

/* Two runs that differ in two keys; one with another name; a folder that is not a run. */
TEST(views_runs_are_compared)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("cd %s && mkdir -p x && $P train " CLI_SMALL
                      "train.steps=4 eval.every=2 --quiet --out a && $P train " CLI_SMALL
                      "train.steps=6 eval.every=2 optim.lr=0.5 --quiet --out x/a",
                      d),
              0, "");
    cli_result r = cli_run("cd %s && $P report a x/a/ --out - && $P report a x/a", d);
    CHECK_RUN(r, 0, "wrote compare.html");
    static const char *const parts[] = {"# Comparison of 2 runs",
                                        "| | a | x/a/ |",
                                        "| steps | 4 | 6 |",
                                        "| train.steps | 4 | 6 |",
                                        "| optim.lr | 0.001 | 0.5 |",
                                        "| evaluation: ",
                                        "| peak memory, measured |",
                                        "| step time, measured |",
                                        "| state | finished | finished |"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_MSG(strstr(r.out, parts[i]), "no \"%s\" in\n%s", parts[i], r.out);
    CHECK_MSG(!strstr(r.out, "| batch |"), "%s", r.out);

    const char *page = cli_read(pl_test_path("compare.html"));
    CHECK(strstr(page, "\"keys\":[[") && strstr(page, "[\"optim.lr\",\"0.001\",\"0.5\"]") &&
          count(page, "\"rows\":[[1,") == 2 && !strstr(page, "src=\"http"));

    r = cli_run("cd %s && $P report a a --out -", d);
    CHECK_MSG(r.code == 0 && strstr(r.out, "The configurations are equal."), "%s", r.out);
    CHECK_RUN(cli_run("cd %s && $P report a x --out y.html; ls y.html", d), 2, "plan.json");
    CHECK_RUN(cli_run("cd %s && echo '[' > x/a/config.yaml; $P report a x/a --out y.html || "
                      "test ! -e y.html",
                      d),
              0, "config.yaml is damaged");
}
