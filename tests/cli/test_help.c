/* test_help.c - help, suggestions, man pages, completions, and `plimsoll doctor`. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <string.h>

/* Each example of the first page names an existing command, and there are five. */
TEST(help_alone_shows_five_commands_with_examples)
{
    WANT_BIN();
    char page[4096];
    snprintf(page, sizeof page, "%s", cli_run("$P").err);
    int n = 0;
    for (const char *p = strstr(page, "\n  plimsoll "); p; p = strstr(p + 1, "\n  plimsoll "), n++)
        CHECK_INT(cli_run("$P %.*s --help", (int)strcspn(p + 12, " "), p + 12).code, 0);
    CHECK_INT(n, 5);
}

TEST(help_unknown_words_are_answered_with_the_nearest)
{
    WANT_BIN();

    CHECK_RUN(cli_run("$P reprot run"), 2, "did you mean report?");
    CHECK_RUN(cli_run("$P help reprot"), 2, "did you mean report?");
    CHECK_RUN(cli_run("$P plan cloud/tiny --jsn"), 2, "did you mean --json?");
    CHECK_RUN(cli_run("$P train cloud/tiny --batch 4"), 2, "did you mean batch=4?");
    CHECK_RUN(cli_run("$P train --batch=4 cloud/tiny"), 2, "did you mean batch=4?");
    CHECK_RUN(cli_run("$P train cloud/tiny --lr 1e-3"), 2, "did you mean optim.lr=1e-3?");
    CHECK_RUN(cli_run("$P train cloud/tiny --train-steps 5"), 2, "did you mean train.steps=5?");
    CHECK_RUN(cli_run("$P train cloud/tiny --qqqq"), 2, "--help lists the options");
    CHECK_RUN(cli_run("$P plan clod/tiny"), 2, "did you mean cloud/tiny?");
    CHECK_RUN(cli_run("$P plan cloud/tinny"), 2, "did you mean cloud/tiny?");
    CHECK_RUN(cli_run("$P plan cluod"), 2, "did you mean cloud?");
    CHECK_RUN(cli_run("$P plan cloud/tiny optim.name=adamm"), 2, "did you mean adam");
    CHECK_RUN(cli_run("$P plan cloud/tiny device=rtx409"), 4, "did you mean rtx4090?");
    CHECK_RUN(cli_run("$P plan cloud/tiny cloud/demo"), 2, "\"cloud/demo\" is one argument");
    cli_result r = cli_run("$P plan zzzzzzzz");
    CHECK_MSG(r.code == 2 && !strstr(r.err, "did you mean"), "%s", r.err);

    r = cli_run("$P devices --batch 4");
    CHECK_MSG(r.code == 2 && !strstr(r.err, "batch=4"), "devices takes no keys: %s", r.err);
}

/* Every option that --help prints is in the man page and in the completions of each shell. */
TEST(help_man_pages_and_completions_have_every_option)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("for s in bash zsh fish; do $P help --completion $s >%s/$s || exit 1; done; "
                "for c in $($P help --commands); do $P help --man $c >%s/man; "
                "for o in $($P $c --help | sed -n 's/^  \\(--[a-z-]*\\) .*/\\1/p'); do "
                "grep -q -e \"$(echo B$o | sed 's/-/\\\\\\\\-/g')\" %s/man || echo man $c $o; "
                "grep -q -e \" $c) options=.*$o \" %s/bash || echo bash $c $o; "
                "sed -n \"/^    $c)/,/;;/p\" %s/zsh | grep -q -e \"'$o\\[\" || echo zsh $c $o; "
                "grep -q -e \"from $c' -l ${o#--} \" %s/fish || echo fish $c $o; "
                "done; done",
                d, d, d, d, d, d);
    CHECK_MSG(r.code == 0 && !r.out[0], "missing: %s%s", r.out, r.err);
}

TEST(help_man_pages_have_no_roff_errors)
{
    WANT_BIN();
    if (cli_run("command -v groff").code != 0) SKIP("no groff here");
    cli_result r = cli_run("for c in '' $($P help --commands); do "
                           "$P help --man $c | groff -man -Tutf8 -ww >/dev/null; done");
    CHECK_MSG(r.code == 0 && !r.err[0], "%s", r.err);
    CHECK_RUN(cli_run("$P help --man nothing"), 2, "unknown command");
    CHECK_RUN(cli_run("$P help --completion tcsh"), 2, "bash|zsh|fish");
}

/* Types a line into the bash function and returns its answers, one per line. */
static const char *complete(const char *line)
{
    return cli_run(
               "cd %s && $P help --completion bash >c.bash && bash -n c.bash && "
               "PATH=$(dirname $P):$PATH bash -c '. ./c.bash; compopt() { :; }; "
               "COMP_LINE=\"%s\" COMP_POINT=${#COMP_LINE}; _plimsoll; printf \"%%s\\n\" \"${COMPREPLY[@]}\"'",
               pl_test_dir(), line)
        .out;
}

#define CHECK_ANSWER(line, want)                                                                   \
 do {                                                                                              \
  const char *got = complete(line);                                                                \
  CHECK_MSG(strcmp(got, want) == 0, "%s: %s", line, got);                                          \
 } while (0)

TEST(help_bash_completes_commands_options_presets_keys_and_values)
{
    WANT_BIN();
    if (cli_run("command -v bash").code != 0) SKIP("no bash here");
    CHECK_ANSWER("plimsoll rep", "report\nreplay\n");
    CHECK_ANSWER("plimsoll plan --larg", "--largest-batch\n");
    CHECK_ANSWER("plimsoll plan cloud/ti", "cloud/tiny\n");
    CHECK_ANSWER("plimsoll plan cloud/tiny --device rtx409", "rtx4090\n");
    CHECK_ANSWER("plimsoll train --quiet cloud/tiny optim.nam", "optim.name=\n");
    CHECK_ANSWER("plimsoll train cloud/tiny optim.name=sg", "sgd\n");
    CHECK_ANSWER("plimsoll train cloud/tiny --memory ", "\n");
}

/* The scripts of the other shells parse, where the shell is. */
TEST(help_zsh_and_fish_parse_their_completions)
{
    WANT_BIN();
    cli_result r = cli_run("command -v zsh fish");
    if (!r.out[0]) SKIP("no zsh and no fish here");
    r = cli_run("cd %s; for s in zsh fish; do command -v $s >/dev/null || continue; "
                "$P help --completion $s >c.$s && $s -n c.$s || echo bad $s; done",
                pl_test_dir());
    CHECK_MSG(!r.out[0] && !r.err[0], "%s%s", r.out, r.err);
}

TEST(doctor_trains_and_names_what_is_missing)
{
    WANT_BIN();

    cli_result r = cli_run("$P doctor --json");
    CHECK_INT(r.code, 0);
    json_t *j = json_loads(r.out, 0, NULL), *row, *checks = json_object_get(j, "checks");
    CHECK_MSG(checks && json_is_true(json_object_get(j, "ok")), "%s", r.out);

    size_t i, trained = 0;
    json_array_foreach(checks, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        if (strcmp(name, "self-test cpu") == 0)
            trained += strcmp(json_string_value(json_object_get(row, "state")), "ok") == 0;
    }
    CHECK_INT(trained, 1);
    json_decref(j);
    /* without mpirun and a compiler in PATH, doctor names their packages and still passes */
    r = cli_run("PATH=/nothing $P doctor");
    CHECK_MSG(r.code == 0 && strstr(r.out, "sudo apt-get install") && strstr(r.out, " gcc "), "%s",
              r.out);
    CHECK_RUN(cli_run("$P doctor now"), 2, "no arguments");
}

/* Every feature that the build may lack (a row of tools/deps) is a check of doctor, and a library
 * that is a row of doctor is a part in version. */
TEST(doctor_names_every_optional_library_of_the_build)
{
    WANT_BIN();
    static const char *const names[][2] = {{"HTTP", "watch"},
                                           {"Unicode", "WordPiece"},
                                           {"MPI", "several ranks"},
                                           {"mpirun", "several ranks"},
                                           {"CUDA", "cuda"}};
    char *doctor = strdup(cli_run("$P doctor").out), *version = strdup(cli_run("$P version").out);
    char *features = strdup(cli_run("sed -n 's/^feature  *\\([^ ]*\\).*/\\1/p' tools/deps").out);

    int n = 0;
    for (char *f = strtok(features, "\n"); f; f = strtok(NULL, "\n"), n++) {
        const char *name = f;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(f, names[i][0]) == 0) name = names[i][1];
        CHECK_MSG(strstr(doctor, name), "doctor has no row for %s of tools/deps:\n%s", f, doctor);
        CHECK_MSG(name != f || strstr(version, name), "version does not name %s", f);
    }
    CHECK(n >= 12 && strstr(version, "watch"));
    free(doctor), free(version), free(features);
}

TEST(inspect_lists_the_inputs_of_a_network)
{
    WANT_BIN();
    cli_result r = cli_run("$P inspect cloud/tiny batch=8");
    CHECK_INT(r.code, 0);
    CHECK_MSG(strstr(r.out, "  input      frames ") && strstr(r.out, "f32[8,3,24,32]"), "%s",
              r.out);
}
