/* test_terms.c - every term of the loss is shown: live line, log, table, events, pages. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#define FLUX                                                                                       \
 "fluxflow/tiny data.samples=8 data.eval_samples=1 loss.r1_interval=2 "                            \
 "eval.every=0 eval.batches=1 "

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* Programs that alternate: the discriminator's terms are those of the program that ran; terms of
 * the other program are absent. */
TEST(terms_of_each_step_are_those_of_the_programs_that_ran)
{
    WANT_BIN();

    cli_result r = cli_run("$P train " FLUX "train.steps=4 --json");
    CHECK_MSG(r.code == 0, "%s", r.err);
    for (int i = 0; i < 4; i++) {
        json_t *e = cli_event(r.out, "step", i), *terms = json_object_get(e, "terms");
        const char *own = i % 2 ? "disc.loss" : "disc_r1.loss";
        const char *other = i % 2 ? "disc_r1.loss" : "disc.loss";
        CHECK(json_is_object(terms));
        CHECK_MSG(json_is_real(json_object_get(terms, own)), "step %d has no %s", i + 1, own);
        CHECK_MSG(!json_object_get(terms, other), "step %d has %s", i + 1, other);
        CHECK(number(terms, "kl") > 0 && number(terms, "rec") > 0 && number(terms, "lpips") > 0);
        CHECK_NEAR(number(terms, "loss"), number(e, "loss"), 0);
        CHECK_NEAR(number(terms, "lr"), number(e, "lr"), 0);
        json_decref(e);
    }
    r = cli_run("$P train regress/tiny train.steps=1 --json");
    json_t *e = cli_event(r.out, "step", 0);

    CHECK(json_is_object(json_object_get(e, "terms")));
    json_decref(e);
}

TEST(terms_are_in_the_line_the_table_the_events_and_the_pages)
{
    WANT_BIN();

    cli_result r = cli_run("cd %s && $P train " FLUX "train.steps=3 train.log_every=1 --out shown",
                           pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.err, " rec=") && strstr(r.err, " kl="), "%s", r.err);
    /* one name for both programs of the discriminator */
    CHECK_MSG(strstr(r.err, " disc.d=") && !strstr(r.err, "disc_r1.d="), "%s", r.err);

    r = cli_run(
        "cd %s && head -1 shown/metrics.csv; cut -d, -f10,14,18 shown/metrics.csv; "
        "grep -q terms/disc_r1.r1 shown/events.out.tfevents.* && echo tagged; "
        "$P report shown && $P report shown --out shown/r.md && $P report shown shown --out c.html",
        pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.out,
                     "step,epoch,loss,lr,grad_norm,step_ms,data_wait_ms,device_ms,used_bytes,"
                     "disc.d,disc.r1,disc.loss,disc.lr,disc_r1.d,disc_r1.r1,disc_r1.loss,"
                     "disc_r1.lr,rec,lpips,kl,beta,g\ndisc.d,disc_r1.d,rec\n,") == r.out,
              "%s", r.out);

    const char *second = strstr(r.out, "rec\n,") + 4; /* step 1, then step 2 */
    second = strchr(second, '\n') + 1;
    CHECK_MSG(*second != ',' && strstr(second, ",,") < strchr(second, '\n'), "%s", r.out);
    CHECK_MSG(strstr(r.out, "\ntagged\n"), "%s", r.out);

    const char *page = cli_read(pl_test_path("shown/report.html"));
    CHECK(strstr(page, "{\"name\":\"disc_r1.r1\",\n\"points\":[[1,") && strstr(page, "],[3,"));
    CHECK(strstr(cli_read(pl_test_path("shown/r.md")), "\n| kl | "));
    CHECK(strstr(cli_read(pl_test_path("c.html")), "{\"name\":\"kl\",\n\"points\":[[1,"));
}

/* A table without columns for terms, or from an earlier phase with other terms, gets the
 * columns; all rows have the same number of cells. */
TEST(terms_extend_the_table_of_a_run_that_resumes)
{
    WANT_BIN();
    cli_result r =
        cli_run("cd %s && T=\"$P train lgt/tiny eval.every=0 eval.batches=1 --quiet --out older\"; "
                "$T train.steps=2 && cut -d, -f1-9 older/metrics.csv > cut && "
                "mv cut older/metrics.csv && $T train.steps=3 && "
                "awk -F, '{print NF}' older/metrics.csv | uniq -c && "
                "cut -d, -f1,10 older/metrics.csv && ls older",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.out, "4 12\nstep,swd\n1,\n2,\n3,"), "%s", r.out);
    CHECK(!strstr(r.out, "metrics.csv.new"));
}

TEST(terms_of_a_later_phase_get_columns)
{
    WANT_BIN();
    if (!pl_test_long()) SKIP("long");
    cli_result r = cli_run("cd %s && $P train fluxflow/pipeline-tiny phases.vae.until.steps=1 "
                           "phases.gan.until.steps=1 phases.flow.until.steps=1 data.samples=8 "
                           "data.eval_samples=1 eval.batches=1 --quiet --out staged && "
                           "awk -F, '{print NF}' staged/metrics.csv | uniq | wc -l && "
                           "head -1 staged/metrics.csv && tail -1 staged/metrics.csv",
                           pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(r.out[0] == '1' && strstr(r.out, ",phase,") && strstr(r.out, ",rec,"), "%s", r.out);
    CHECK_MSG(strstr(r.out, ",v\n3,") && strstr(r.out, ",flow,,"), "%s", r.out);
}
