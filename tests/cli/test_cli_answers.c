/* test_cli_answers.c - commands that state the same fact agree: the minimum, the changes that
 * fit, the GPU of a preset. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/run/replay_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(answers_train_and_report_print_the_minimum_of_plan)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_result r = cli_run("$P plan " CLI_SMALL);
    CHECK_MSG(r.code == 0 && strstr(r.out, "smallest budget that fits"), "%s", r.out);
    r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=2 --out run", pl_test_dir());
    CHECK_MSG(r.code == 0 && !strstr(r.err, "minimum"), "%s", r.err);
    r = cli_run("cd %s && grep -c '\"minimum_bytes\":null' run/log.jsonl && "
                "$P report run --out - && $P report run && grep -c 'minimum\":0' run/report.html",
                pl_test_dir());
    CHECK_MSG(r.code == 0 && !strstr(r.out, "Minimum:"), "%s%s", r.out, r.err);
}

/* The bytes after "the smallest budget is". */
static long long told_minimum(const char *text)
{
    const char *at = strstr(text, "the smallest budget is ");
    return at ? atoll(at + strlen("the smallest budget is ")) : 0;
}

TEST(answers_train_refuses_as_plan_does)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    WANT_PLAIN();

    cli_result r = cli_run("$P plan " CLI_SMALL "--json");
    long long least = atoll(strstr(r.out, "\"minimum_bytes\":") + 16);
    for (int small = 0; small < 2; small++) {
        /* so small that the arena gets nothing, and large enough for part of it */
        char memory[32];
        static char plan[1 << 16];
        snprintf(memory, sizeof memory, "%lld", small ? 2000000 : least * 4 / 5);
        r = cli_run("$P plan " CLI_SMALL "--memory %s", memory);
        CHECK_INT(r.code, 3);
        long long minimum = told_minimum(r.err);
        const char *edits = strstr(r.out, "These changes fit");
        CHECK_MSG(edits && minimum > 0, "%s: %s%s", memory, r.out, r.err);
        snprintf(plan, sizeof plan, "%s", edits ? edits : "");
        r = cli_run("cd %s && $P train " CLI_SMALL "--memory %s --out run", pl_test_dir(), memory);
        CHECK_INT(r.code, 3);
        CHECK_MSG(told_minimum(r.err) == minimum && minimum == least, "%lld, plan %lld, %lld: %s",
                  told_minimum(r.err), minimum, least, r.err);
        CHECK_MSG(strstr(r.err, "These changes fit") && strstr(r.err, "--memory ") &&
                      !strstr(r.err, "arena of 1 bytes"),
                  "%s", r.err);
        /* the same number of changes, with the same names */
        for (char *line = strtok(plan, "\n"); line; line = strtok(NULL, "\n")) {
            char change[32];
            if (sscanf(line, "  %31[a-z_.]=", change) == 1)
                CHECK_MSG(strstr(r.err, change), "train lacks %s: %s", change, r.err);
        }
        r = cli_run("test -e %s/run/config.yaml", pl_test_dir());
        CHECK(r.code != 0);
        r = cli_run("$P train " CLI_SMALL "--memory %s --quiet", memory);
        CHECK_MSG(r.code == 3 && !strstr(r.err, "arena of 1 bytes"), "%s", r.err);
    }
}

TEST(answers_presets_for_a_card_plan_for_that_card)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
        /* a missing plug-in: no GPU, whatever the machine has */
#define NO_GPU "PLIMSOLL_PLUGIN=/nowhere "

    cli_result r = cli_run(NO_GPU "$P plan cloud/t4 --json");
    CHECK_MSG(r.code == 0 && strstr(r.out, "\"device\":\"t4\""), "%s%s", r.out, r.err);
    r = cli_run(NO_GPU "$P plan fluxflow/flow8 --print-config");
    CHECK_MSG(r.code == 0 && strstr(r.out, "device: rtx4070-laptop"), "%s", r.out);

    /* A device that the user names is planned for. */
    r = cli_run(NO_GPU "$P plan cloud/t4 --device a100 --print-config");
    CHECK_MSG(r.code == 0 && strstr(r.out, "device: a100"), "%s", r.out);
    r = cli_run(NO_GPU "$P plan cloud/t4 device=cuda");
    CHECK_MSG(r.code == 4, "%d %s", r.code, r.err);

    /* No training for a GPU that is not in the machine. */
    r = cli_run(NO_GPU "$P train cloud/tiny device=cuda card=t4");
    CHECK_INT(r.code, 4);
    r = cli_run(
        "cd %s && printf 'recipe: cloud\\nextends: cloud/tiny\\ndevice: cuda\\ncard: t4\\n' > my.yaml && " NO_GPU
        "$P train my.yaml",
        pl_test_dir());
    CHECK_MSG(r.code == 4 && strstr(r.err, "plans for a t4") && strstr(r.err, "device=cpu"),
              "%d %s", r.code, r.err);

    r = cli_run("$P plan cloud/tiny card=gtx card=t5");
    CHECK_MSG(r.code == 2 && strstr(r.err, "\"t5\""), "%d %s", r.code, r.err);
}

TEST(answers_replay_counts_what_exceeds_rounding)
{
    const double tolerance = 1e-5;
    /* a loss term of 2.6e-4 that differs by 9e-8 */
    CHECK(pl__replay_error(9e-8, 2.6e-4, 1, false) <= tolerance);
    /* the same share of a loss of 1, or more than rounding, is a difference */
    CHECK(pl__replay_error(3.5e-4, 1, 1, false) > tolerance);
    CHECK(pl__replay_error(5e-6, 2.6e-4, 1, false) > tolerance);
    CHECK(pl__replay_error(9e-8, 2.6e-4, 1, true) > tolerance);
    /* a small value is compared with its own size, not with 1 */
    CHECK(pl__replay_error(4e-9, 2e-7, 1, false) > tolerance);
    CHECK(isnan(pl__replay_error((double)NAN, 1, 1, false)));
    CHECK(pl__replay_error((double)INFINITY, 1, 1, false) > tolerance);
}

TEST(answers_are_in_the_units_that_the_user_types)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    cli_result r = cli_run("$P plan " CLI_SMALL "--memory 6GB");
    CHECK_MSG(r.code == 0 && strstr(r.out, "fits the budget of 6.00 GB\n") && !strstr(r.out, "iB"),
              "%s", r.out);
    r = cli_run("$P plan " CLI_SMALL "memory=6GiB");
    CHECK_MSG(r.code == 0 && strstr(r.out, "fits the budget of 6.00 GiB\n") &&
                  !strstr(r.out, " MB"),
              "%s", r.out);

    r = cli_run("$P plan " CLI_SMALL);
    CHECK_MSG(r.code == 0 && strstr(r.out, " MiB") && !strstr(r.out, " MB"), "%s", r.out);

    /* A refusal, the change that it offers, and the budget in a run's configuration. */
    r = cli_run("$P train " CLI_SMALL "--memory 2MB");
    CHECK_MSG(r.code == 3 && strstr(r.err, "does not fit 2.00 MB") && !strstr(r.err, "iB"), "%s",
              r.err);

    const char *offer = strstr(r.err, "--memory ");
    char size[32] = "";
    CHECK(offer && sscanf(offer, "--memory %31s", size) == 1);
    CHECK_MSG(strlen(size) <= 6 && strcmp(size + strlen(size) - 2, "MB") == 0, "%s", size);

    r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=1 --memory %s --out run && "
                "grep -x 'memory: [0-9.]*[MK]B' run/config.yaml && $P report run --out -",
                pl_test_dir(), size);
    char *config = strstr(r.out, "## Configuration"); /* whose other keys have their own units */
    CHECK_MSG(r.code == 0 && config, "%s%s", r.out, r.err);

    *config = 0;
    CHECK_MSG(strstr(r.out, " MB |") && !strstr(r.out, "iB"), "%s", r.out);
}

/* Pictures and comparisons have no page script that knows the budget: the program writes the
 * units. */
TEST(answers_in_pictures_and_comparisons_have_the_units_of_the_budget)
{
    static const struct {
        const char *budget, *axis, *units;
    } cases[] = {{"64MB", " kB</text>", "{\"decimal\":true,"},
                 {"64MiB", " KiB</text>", "{\"decimal\":false,"}};
    WANT_BIN();
    for (int i = 0; i < 2; i++) {
        cli_result r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=1 --fresh --quiet "
                               "--memory %s --out run && $P report run run && "
                               "$P plan " CLI_SMALL "--memory %s --timeline step.svg",
                               pl_test_dir(), cases[i].budget, cases[i].budget);
        CHECK_MSG(r.code == 0, "%s", r.err);
        CHECK_MSG(strstr(cli_read(pl_test_path("step.svg")), cases[i].axis), "no %s",
                  cases[i].axis);
        CHECK_MSG(strstr(cli_read(pl_test_path("compare.html")), cases[i].units), "no %s",
                  cases[i].units);
    }
}

TEST(answers_tell_long_times_in_hours_and_minutes)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_result r = cli_run("$P plan cloud/full batch=4000 | grep 'step time'");
    CHECK_MSG(r.code == 0 && strstr(r.out, " h ") && strstr(r.out, " min  predicted"), "%s", r.out);
}
