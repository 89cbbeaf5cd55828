/* test_hooks.c - on_end and on_error: a command that a run starts when it ends. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A script that writes its arguments, then the variables. */
static bool write_script(void)
{
    static const char text[] =
        "#!/bin/sh\n"
        "{ for a in \"$@\"; do echo \"[$a]\"; done\n"
        "  echo \"run $PL_RUN\"; echo \"status $PL_STATUS\"; echo \"step $PL_STEP\"\n"
        "  echo \"message $PL_MESSAGE\"; } >> $(dirname \"$0\")/told\n"
        "echo said by the hook\n";
    return cli_write(pl_test_path("tell"), text) &&
           cli_run("chmod +x %s", pl_test_path("tell")).code == 0;
}

static const char *written(void)
{
    return cli_read(pl_test_path("told"));
}

TEST(hooks_words_are_split_without_a_shell)
{
    static const struct {
        const char *text, *want;
    } row[] = {{"./tell a  'two words' \"and more\" ", "[a]\n[two words]\n[and more]\nrun"},
               {"./tell a'b c'd\\ e '' '\\' \"\\\"\"", "[ab cd e]\n[]\n[\\]\n[\"]\nrun"},
               {"./tell $HOME `id` a|b;c > d", "[$HOME]\n[`id`]\n[a|b;c]\n[>]\n[d]\nrun"},
               {"sh -c './tell $PL_STATUS | cat; ./tell b'", "[0]\nrun"}};
    WANT_BIN();

    CHECK(write_script());
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char config[512];
        snprintf(config, sizeof config, "extends: cloud/tiny\non_end: |-\n  %s\n", row[i].text);
        CHECK(cli_write(pl_test_path("c.yaml"), config));
        CHECK_RUN(cli_run("cd %s && rm -f told; $P train c.yaml height=16 width=16 batch=2 "
                          "train.steps=1 --quiet",
                          pl_test_dir()),
                  0, "");
        CHECK_MSG(strncmp(written(), row[i].want, strlen(row[i].want)) == 0, "%s:\n%s", row[i].text,
                  written());
    }
}

/* Once at the end of a run, with the variables; not for a run that was complete already. Its output
 * does not mix with the events. */
TEST(hooks_on_end_gets_the_result_of_the_run)
{
    WANT_BIN();

    CHECK(write_script());
    const char *d = pl_test_dir();
    char want[1024];
    cli_result r = cli_run("cd %s && $P train " CLI_SMALL
                           "train.steps=3 on_end=\"./tell 'two words' \\$HOME\" "
                           "on_error='./tell wrong' --json --out run",
                           d);
    CHECK_RUN(r, 0, "said by the hook");
    CHECK(!strstr(r.out, "said by"));

    snprintf(want, sizeof want,
             "[two words]\n[$HOME]\nrun %s/run\nstatus 0\nstep 3\nmessage 3 steps done\n", d);
    CHECK_MSG(strcmp(written(), want) == 0, "%s", written());

    r = cli_run("cd %s && $P train " CLI_SMALL "train.steps=3 on_end=./tell --out run", d);
    CHECK_RUN(r, 0, "finished");
    CHECK_MSG(strcmp(written(), want) == 0, "%s", written());
}

TEST(hooks_on_error_gets_the_reason)
{
    WANT_BIN();

    CHECK(write_script());
    const char *d = pl_test_dir();
    cli_result r = cli_run(
        "cd %s && $P train " CLI_SMALL "--memory 1MiB on_error=./tell on_end='./tell wrong'", d);
    CHECK_INT(r.code, 3);
    CHECK_MSG(strncmp(written(), "run \nstatus 3\nstep 0\nmessage ", 29) == 0, "%s", written());
    CHECK_MSG(strstr(written() + 29, "MiB"), "%s", written());
    CHECK_RUN(
        cli_run("cd %s && rm told; $P train " CLI_SMALL
                "train.steps=50 optim.name=sgd optim.lr=1e6 on_error=./tell --quiet --out run",
                d),
        7, "finite");

    CHECK_MSG(strstr(written(), "status 7") && strstr(written(), "finite"), "%s", written());
}

/* A signal ends a run; the run does not fail. */
TEST(hooks_a_stopped_run_has_ended)
{
    WANT_BIN();
    CHECK(write_script());
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s && exec $P train " CLI_SMALL
             "train.steps=100000 train.log_every=1 on_end=./tell on_error='./tell wrong' --out run",
             pl_test_dir());
    cli_result r = cli_run_signal(command, "step=3/", SIGTERM);
    CHECK_INT(r.code, 75);
    CHECK_MSG(strstr(written(), "status 75\n") &&
                  strstr(written(), "message stopped by a signal\n") && !strstr(written(), "wrong"),
              "%s", written());
}

/* A command that fails, is missing or hangs is a warning; the run keeps its exit code. */
TEST(hooks_that_fail_are_warnings)
{
    WANT_BIN();
    static const struct {
        const char *hook, *want;
    } row[] = {{"false", "warning: on_end failed with exit code 1"},
               {"sh -c 'exit 7'", "warning: on_end failed with exit code 7"},
               {"/no/such/program x", "warning: on_end: cannot run /no/such/program x"},
               {"sh -c 'kill -9 \\$\\$'", "warning: on_end was ended by signal 9"},
               {"sleep 100", "warning: on_end ran longer than 0.2 s (hook_timeout)"},
               {"sh -c 'trap : TERM; sleep 100 & wait; sleep 100'", "ran longer than 0.2 s"}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 hook_timeout=%s on_end=\"%s\"",
                          i < 4 ? "60s" : "0.2s", row[i].hook),
                  0, row[i].want);
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 \"on_end=say 'it\""), 2,
              "on_end: say 'it: a quote is not closed");
}
