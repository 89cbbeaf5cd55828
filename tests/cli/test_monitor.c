/* test_monitor.c - output of a run: event files, tables, lines, the report, `devices --test`. */
#include "plimsoll_events.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + 1, part)) n++;
    return n;
}

/* The first record of every event file begins with these bytes: length 24 and its masked
 * checksum. */
TEST(monitor_events_begin_with_the_known_frame)
{
    static const unsigned char want[] = {0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};

    unsigned char got[64] = {0};
    char command[512];
    pl_events *e = NULL;
    CHECK(pl_events_open(pl_test_dir(), 0, &e) == PL_OK);
    CHECK(pl_events_write(e, 1) == PL_OK); /* nothing gathered */
    pl_events_close(e);
    snprintf(command, sizeof command, "cat %s/events.out.tfevents.*", pl_test_dir());
    FILE *f = popen(command, "r");
    CHECK(f != NULL);

    size_t n = fread(got, 1, sizeof got, f);
    pclose(f);
    CHECK_INT(n, 12 + 24 + 4);
    CHECK(memcmp(got, want, sizeof want) == 0);
    CHECK(pl_events_open("/nowhere/at/all", 0, &e) != PL_OK && e == NULL);
    CHECK(strstr(pl_error_text(), "/nowhere/at/all"));
}

static bool write_steps(int64_t from, int64_t to, double add, bool torn)
{
    pl_events *e = NULL;
    uint8_t pixels[3 * 5 * 7];
    bool ok = pl_events_open(pl_test_dir(), from, &e) == PL_OK;
    for (int64_t s = from + 1; ok && s <= to; s++) {
        pl_events_scalar(e, "train/loss", add + (double)s);
        ok = pl_events_write(e, s) == PL_OK;
    }
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2);
    pl_events_image(e, "samples/0", 5, 7, 3, pixels);
    if (ok) ok = pl_events_write(e, to) == PL_OK;
    pl_events_close(e);
    if (ok && torn)
        ok = cli_run("cd %s && printf torn >> $(ls events.out.tfevents.* | tail -1)", pl_test_dir())
                 .code == 0;
    return ok;
}

/* A killed run of 10 steps that resumes after step 6: TensorBoard sees each step once, with the
 * new values. */
TEST(monitor_events_are_read_by_tensorboard)
{
    static const char script[] =
        "import io, sys\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "e = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'images': 0}); e.Reload()\n"
        "print('steps', *['%d:%g' % (s.step, s.value) for s in e.Scalars('train/loss')])\n"
        "i = e.Images('samples/0')[-1]; b = i.encoded_image_string\n"
        "from PIL import Image\n"
        "p = Image.open(io.BytesIO(b)); raw = p.tobytes()\n"
        "print('image', i.width, i.height, p.mode, len(raw), raw[0], raw[1], raw[15], raw[16])\n";
    WANT_BIN();
    WANT_PYTHON(python, "tensorboard, PIL");
    char path[512];

    snprintf(path, sizeof path, "%s/read.py", pl_test_dir());
    CHECK(cli_write(path, script));
    CHECK(write_steps(0, 10, 0, true));
    CHECK(write_steps(6, 8, 100, false));

    cli_result r = cli_run("%s %s %s", python, path, pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.out, "steps 1:1 2:2 3:3 4:4 5:5 6:6 7:107 8:108\n"), "%s", r.out);
    CHECK_MSG(strstr(r.out, "image 5 7 RGB 105 0 2 30 32\n"), "%s", r.out);
}

/* Tables of a run that was extended have every step once. */
TEST(monitor_tables_of_a_resumed_run_have_every_step_once)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    char path[512];

    cli_result r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=12 eval.every=4 --out run",
                           pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(strstr(r.err, "planned, to the byte") && strstr(r.err, "host "), "%s", r.err);

    r = cli_run("cd %s && echo 13,torn >> run/metrics.csv; printf '14,to' >> run/metrics.csv; "
                "$P train " CLI_SMALL "train.steps=20 eval.every=4 log.memory_every=7 --out run",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_INT(count(r.err, "by all processes"), 2); /* at the start, at step 14 */

    snprintf(path, sizeof path, "%s/run/metrics.csv", pl_test_dir());
    const char *text = cli_read(path);
    CHECK_INT(count(text, "\n"), 21);

    for (int step = 1; step <= 20; step++) {
        char row[16];
        snprintf(row, sizeof row, "\n%d,", step);
        CHECK_MSG(count(text, row) == 1, "step %d in\n%s", step, text);
    }
    snprintf(path, sizeof path, "%s/run/eval.csv", pl_test_dir());
    CHECK_MSG(count(cli_read(path), "\n") == 1 + 6, "%s", cli_read(path)); /* 0 4 8 12 16 20 */

    r = cli_run(
        "cd %s && ls run | grep -c tfevents; $P train " CLI_SMALL
        "train.steps=2 log.tensorboard=false --quiet --out other; ls other | grep -c tfevents",
        pl_test_dir());
    CHECK_MSG(strcmp(r.out, "2\n0\n") == 0, "%s", r.out);
}

/* Above the limit, memory of all processes counts: with a limit near 0 the host exceeds it. */
TEST(monitor_warns_once_past_the_memory_limit)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_result r =
        cli_run("$P train " CLI_SMALL "train.steps=8 log.memory_every=1 log.warn_memory=1e-6");
    CHECK_MSG(r.code == 0 && count(r.err, "warning: host memory") == 1, "%s", r.err);
    r = cli_run("$P train " CLI_SMALL "train.steps=8 log.memory_every=1 log.warn_memory=0");
    CHECK(r.code == 0 && !strstr(r.err, "warning: host"));
}

TEST(monitor_report_has_every_part)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_result r =
        cli_run("cd %s && $P train " CLI_SMALL "train.steps=12 eval.every=6 --quiet --out run && "
                "echo '{\"event\":\"st' >> run/log.jsonl && $P report run && "
                "$P report run --out m.md && $P report run --out -",
                pl_test_dir());

    CHECK_MSG(r.code == 0, "%s", r.err);
    static const char *const parts[] = {"# Memory optimisation: cloud/tiny",
                                        "| **whole process** |",
                                        "What each optimisation saves",
                                        "Largest tensors at the peak",
                                        "- 12 steps",
                                        "Evaluation",
                                        "## Configuration"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_MSG(strstr(r.out, parts[i]), "no \"%s\" in\n%s", parts[i], r.out);
    char path[512];
    snprintf(path, sizeof path, "%s/run/report.html", pl_test_dir());
    const char *page = cli_read(path);
    CHECK(strstr(page, "id=\"plan\"") && strstr(page, "id=\"run\"") &&
          strstr(page, "\"rows\":[[1,"));
    CHECK(!strstr(page, "src=\"http") && count(page, "href=") == count(page, "href=\"data:") &&
          !strstr(page, "@import") && !strstr(page, "url(http"));

    r = cli_run("cd %s && $P report .", pl_test_dir());
    CHECK_MSG(r.code == 1 && strstr(r.err, "plan.json"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P report run --out x.pdf", pl_test_dir());
    CHECK_INT(r.code, 2);
}

TEST(monitor_devices_test_passes_on_the_cpu)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory hides the budget");
    cli_result r = cli_run("$P devices --test cpu");
    CHECK_MSG(r.code == 0 && count(r.out, "  ok ") == 7, "%s%s", r.out, r.err);
    r = cli_run("$P devices --test nothing");
    CHECK_MSG(r.code != 0 && strstr(r.err, "nothing"), "%d %s", r.code, r.err);
}

/* With logs, evaluations and checkpoints, the process holds the same memory at step 10,000 as at
 * step 10, within 1 MiB. */
TEST(monitor_memory_does_not_grow_over_10000_steps)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!pl_test_long()) SKIP("long");
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory grows");
    cli_result r =
        cli_run("cd %s && $P train cloud/tiny height=16 width=16 train.steps=10000 eval.every=2000 "
                "checkpoint.every=2500 --quiet --out flat && awk -F, '$1==10{a=$9} $1==10000{b=$9} "
                "END{print b-a}' flat/metrics.csv",
                pl_test_dir());
    CHECK_MSG(r.code == 0 && r.out[0], "%s", r.err);
    double grown = strtod(r.out, NULL);
    CHECK_MSG(grown <= 1 << 20 && grown >= -(1 << 20), "grown by %.0f bytes", grown);
}

/* Numbers of a log that are too large for a whole number become the largest one. */
TEST(monitor_reports_read_numbers_of_any_size)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=2 --quiet --out %s/run && echo "
                      "'{\"event\":\"step\",\"step\":1e300,\"loss\":1,\"used_bytes\":1e67}' "
                      ">>%s/run/log.jsonl",
                      d, d),
              0, "");
    cli_result r = cli_run("$P report %s/run >&2 && cat %s/run/report.html", d, d);
    CHECK_MSG(r.code == 0 && strstr(r.out, "9223372036854775807") &&
                  !strstr(r.out, "-9223372036854775808"),
              "exit code %d: %s", r.code, r.err);
}
