/* test_fault_end.c - the end of a run: whatever is missing is made again by the same command. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRAIN "train " FAULT_NET "train.steps=3 "

/* Killed before each file of the results gets its name: the rerun makes it. */
TEST(fault_a_run_killed_between_its_results_is_completed_by_the_same_command)
{
    WANT_FAULTS();
    static const char *const names[] = {"model.safetensors", "model_ema.safetensors",
                                        "finished.json"};
    CHECK_RUN(fault_free(TRAIN "--out whole"), 0, "");

    for (int i = 0; i < 3; i++) {
        char first[512], path[128];
        snprintf(first, sizeof first, TRAIN "--out run%d", i);
        snprintf(path, sizeof path, "run%d/%s", i, names[i]);
        CHECK_INT(fault_run(&(fault){"rename", path, 1, "kill"}, first).code, 137);
        CHECK(access(pl_test_path(path), F_OK) != 0);
        CHECK_RUN(fault_free(first), 0, "");

        snprintf(path, sizeof path, "run%d/model.safetensors", i);
        CHECK(cli_same("whole/model.safetensors", path));
        snprintf(path, sizeof path, "run%d/model_ema.safetensors", i);
        CHECK(cli_same("whole/model_ema.safetensors", path));
        snprintf(first, sizeof first, "run%d", i);
        CHECK_MSG(!cli_bad_log(first, 3), "%s", cli_bad_log(first, 3));
    }
}

#define KEEP2 TRAIN "checkpoint.every=1 checkpoint.keep=2 log.tensorboard=true --out run "
/* One changed byte in any file of a run, older checkpoints and TensorBoard's file included, ends
 * inspect with 6; what the last checkpoint can give is made again by the same command. */
TEST(fault_every_damaged_file_of_a_run_is_found)
{
    WANT_BIN();
    CHECK_RUN(fault_free(KEEP2 "train.steps=1"), 0, "");
    CHECK_INT(
        cli_run("cd %s && mkdir -p run/samples && echo picture > run/samples/1.png", pl_test_dir())
            .code,
        0);
    CHECK_RUN(fault_free(KEEP2), 0, "");
    CHECK_RUN(fault_free("inspect run"), 0, "");
    cli_result r = cli_run(
        "cd %s && n=0; for f in $(find run -type f -size +2c ! -name lock); do "
        "cp $f old; at=$(($(stat -c %%s $f) / 2)); b=$(od -An -tu1 -j $at -N1 $f); printf "
        "\"\\\\$(printf %%03o $((b ^ 1)))\" | dd of=$f bs=1 seek=$at conv=notrunc status=none; $P "
        "inspect run >out 2>&1; c=$?; cp old $f; [ $c = 6 ] || echo \"$f: $c\"; n=$((n + 1)); done; "
        "[ $n -ge 19 ] || echo \"only $n files\"",
        pl_test_dir());
    CHECK_MSG(r.code == 0 && !r.out[0], "%s%s", r.out, r.err);
    CHECK_RUN(cli_run("cd %s && rm run/SUMS.xxh64 && $P inspect run", pl_test_dir()), 6, "SUMS");
    CHECK_RUN(cli_run("cd %s && rm run/plan.json && $P inspect run", pl_test_dir()), 6,
              "plan.json");
    CHECK_RUN(fault_free(KEEP2), 0, "made again");
    CHECK_RUN(fault_free("inspect run"), 0, "");
}

/* Files of the user in the run folder: not read (one cannot be), not a damage when they change. */
TEST(fault_files_of_others_in_a_run_folder_are_left_alone)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && mkdir -p run/data && truncate -s 4T run/data/big && echo a "
                           ">run/notes && ln -s nowhere run/link && timeout 60 $P " TRAIN
                           "--out run && echo b >run/notes && $P report run && $P inspect run && "
                           "grep -c -e notes -e big run/SUMS.xxh64",
                           pl_test_dir());
    if (strstr(r.err, "truncate")) SKIP("the file system has no files of terabytes");
    CHECK_MSG(r.code == 1 && strstr(r.out, "\n0\n"), "%d: %s%s", r.code, r.out, r.err);
}

TEST(fault_a_damaged_result_is_made_again)
{
    WANT_BIN();
    CHECK_RUN(fault_free(TRAIN "--out run && cp -r run whole"), 0, "");
    CHECK_RUN(cli_run("cd %s && printf x | dd of=run/model_ema.safetensors bs=1 seek=4100 "
                      "conv=notrunc && $P inspect run",
                      pl_test_dir()),
              6, "model_ema.safetensors");
    CHECK_RUN(fault_free("eval run --ema --quiet"), 6, "changed since it was written");
    CHECK_RUN(fault_free(TRAIN "--out run"), 0, "made again");
    CHECK(cli_same("run/model_ema.safetensors", "whole/model_ema.safetensors"));
    CHECK_RUN(fault_free("inspect run"), 0, "");
}

/* With the largest loss as the best, step 1 is the best; its checkpoint cannot be saved. */
TEST(fault_a_best_checkpoint_that_cannot_be_saved_is_not_the_best)
{
    WANT_FAULTS();
    const char *args = TRAIN "eval.every=1 checkpoint.best=loss checkpoint.best_mode=max --out run";

    cli_result r = fault_run(&(fault){"rename", "checkpoints/step-00000001", 1, "always"}, args);
    CHECK_MSG(r.code == 0 && strstr(r.err, "warning: cannot save"), "exit code %d: %s", r.code,
              r.err);

    r = cli_run("cd %s && ls run/best/model.safetensors && readlink run/best", pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "step-00000002"), "%s%s", r.out, r.err);
}

/* A limit of file sizes as a full disk: nothing appears under the name of a file that could not be
 * written completely, and a file that was there stays as it was. */
TEST(fault_a_command_whose_disk_is_full_leaves_no_half_file)
{
    WANT_BIN();
    static const char *const commands[] = {
        "report run --out page.html",
        "report run run --out page.html",
        "plan regress/tiny --timeline page.html",
        "plan regress/tiny --timeline page.svg",
        "plan regress/tiny --snapshot page.pickle",
        "new page-d",
        "export run --out page.safetensors",
        "export run --as onnx --out page.onnx",
    };
    CHECK_RUN(fault_free(TRAIN "--out run"), 0, "");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *name = strstr(commands[i], "page");
        CHECK_RUN(cli_run("cd %s && rm -rf .page* page* && (ulimit -f 1; $P %s)", pl_test_dir(),
                          commands[i]),
                  1, "page");
        CHECK_RUN(cli_run("cd %s && ls -A | grep page", pl_test_dir()), 1, "");
        if (strstr(commands[i], "new ")) continue;
        CHECK_RUN(cli_run("cd %s && echo old > %s && (ulimit -f 1; $P %s); cat %s | grep -qx old "
                          "&& $P %s && ! grep -qx old %s && ! ls -A | grep '^.page'",
                          pl_test_dir(), name, commands[i], name, commands[i], name),
                  0, "");
    }
}

/* A file that is opened must not take the number of a closed standard stream: messages would be
 * written into the run. */
TEST(fault_a_run_with_closed_streams_keeps_its_files)
{
    WANT_BIN();
    CHECK_RUN(cli_run("cd %s && $P " TRAIN "--out whole && $P %s --out run 2>&-; "
                      "cmp run/model.safetensors whole/model.safetensors && "
                      "test $(wc -c < run/lock) -lt 12",
                      pl_test_dir(),
                      "train regress/tiny batch=4 'model.widths=[2]' data.samples=16 "
                      "data.eval_samples=4 eval.batches=1 ema.decay=0.5 threads=1 "
                      "log.tensorboard=false train.steps=3"),
              0, "");
}

/* Names and texts of foreign files reach a terminal without the characters that control it. */
TEST(fault_inspect_shows_no_control_characters_of_names)
{
    WANT_BIN();
    cli_result r =
        cli_run("cd %s && mkdir -p all/a && printf garbage > \"$(printf "
                "'all/x\\033[2J.safetensors')\" && cp $OLDPWD/tests/fuzz/corpus/image/rgb.png "
                "all/a && touch \"$(printf 'all/a/x.\\033c')\" && $P inspect all; $P "
                "inspect data all",
                pl_test_dir());
    CHECK_MSG(strstr(r.out, "damaged: all/x\\x1b[2J.safetensors") && strstr(r.out, "other files") &&
                  !strchr(r.out, '\033') && !strchr(r.err, '\033'),
              "%s%s", r.out, r.err);
}
