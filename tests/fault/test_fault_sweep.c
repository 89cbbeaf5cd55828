/* test_fault_sweep.c - a short run with a fault at its k-th call: killed, killed with everything
 * unsynced lost, or a call that fails. The same command then gives the bits of an undisturbed run,
 * and leaves no half file. `make check-all` tries every k, `make test` some. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN                                                                                      \
 "train " FAULT_NET "train.steps=3 eval.every=1 checkpoint.every=1 checkpoint.keep=1 "             \
 "checkpoint.best=loss "

static const char *const kinds[] = {"open", "write", "sync", "rename", "unlink", "mkdir"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Compares run with whole after the rerun; NULL: equal, else what differs. */
static const char *difference(int64_t steps)
{
    static char text[4096];
    if (!cli_same("whole/model.safetensors", "run/model.safetensors")) return "the model";
    cli_result r =
        cli_run("cd %s && cmp whole/model_ema.safetensors run/model_ema.safetensors && cmp "
                "whole/eval.csv run/eval.csv && find run -name '*.tmp-*' -o -name "
                "'.trash*' -o -name '.tmp-*' && cut -d, -f1-5 whole/metrics.csv > a && "
                "cut -d, -f1-5 run/metrics.csv > b && cmp a b",
                pl_test_dir());
    snprintf(text, sizeof text, "%s%s", r.out, r.err);
    if (r.code != 0 || r.out[0]) return text;
    return cli_bad_log("run", steps);
}

static bool survives(const fault *f)
{
    cli_run("rm -rf %s/run", pl_test_dir());
    int first = fault_run(f, TRAIN "--out run").code;
    cli_result r = fault_free(TRAIN "--out run");
    const char *why = r.code == 0 ? difference(3) : r.err;
    bool killed = strcmp(f->what, "fail") != 0;
    if (!why && (killed ? first == 137 : first == 0 || first == 1)) return true;
    pl_test_fail(__FILE__, __LINE__, "%s %ld, %s: exit code %d, then %d: %s", f->kind, f->k,
                 f->what, first, r.code, why ? why : "");
    return false;
}

/* Tries every `stride`-th k of each kind. */
static void sweep(const char *what, long stride)
{
    CHECK_RUN(fault_free(TRAIN "--out whole"), 0, "");
    for (int i = 0; i < N_KINDS; i++) {
        fault f = {kinds[i], "/run", 0, what};
        cli_run("rm -rf %s/run", pl_test_dir());
        long n = fault_count(&f, TRAIN "--out run");
        CHECK_MSG(n > 0, "no call of kind %s", kinds[i]);
        for (f.k = 1 + (i * 7) % (stride < n ? stride : n); f.k <= n; f.k += stride)
            if (!survives(&f)) return;
    }
}

TEST(fault_a_run_killed_at_any_call_ends_with_the_same_bits)
{
    WANT_FAULTS();
    sweep("kill", pl_test_long() ? 1 : 60);
}

TEST(fault_a_run_that_loses_what_was_not_synced_ends_with_the_same_bits)
{
    WANT_FAULTS();
    sweep("lose", pl_test_long() ? 1 : 60);
}

TEST(fault_a_run_whose_disk_is_full_for_a_moment_ends_with_the_same_bits)
{
    WANT_FAULTS();
    sweep("fail", pl_test_long() ? 1 : 60);
}

/* A device reports an error at its k-th run: exit code 4, and the same bits after the same
 * command. */
TEST(fault_a_device_that_fails_once_costs_no_bits)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(fault_free(TRAIN "device=apart --out whole"), 0, "");
    for (int k = 1; k <= 8; k += pl_test_long() ? 1 : 3) {
        cli_result r = cli_run("cd %s && rm -rf run && PLIMSOLL_APART_FAILS=%d $P " TRAIN
                               "device=apart --out run",
                               d, k);
        CHECK_MSG(r.code == 4 || r.code == 0, "run %d: exit code %d: %s", k, r.code, r.err);
        CHECK_MSG(k > 1 || r.code == 4, "the first run is not counted: %s", r.err);
        CHECK_RUN(fault_free(TRAIN "device=apart --out run"), 0, "");
        CHECK_MSG(!difference(3), "run %d: %s", k, difference(3));
    }
}

/* An allocation of the whole process fails, libraries included, after the configuration is read
 * (libfyaml 0.7 does not survive one while it reads): no crash, and the same bits after the same
 * command. */
TEST(fault_a_failed_allocation_costs_no_bits)
{
    WANT_FAULTS();
    fault f = {"alloc", "", 0, "fail"};
    CHECK_RUN(fault_free(TRAIN "--out whole"), 0, "");
    long first = fault_count(&f, TRAIN "--print-config"), n = fault_count(&f, TRAIN "--out run");
    CHECK_MSG(first > 100 && n > first, "%ld and %ld allocations", first, n);

    for (f.k = first + 1; f.k <= n; f.k += pl_test_long() ? 1 : (n - first) / 2) {
        cli_run("rm -rf %s/run", pl_test_dir());
        int code = fault_run(&f, TRAIN "--out run").code;
        CHECK_MSG(code < 128, "allocation %ld: exit code %d", f.k, code);
        CHECK_RUN(fault_free(TRAIN "--out run"), 0, "");
        CHECK_MSG(!difference(3), "allocation %ld: %s", f.k, difference(3));
    }
}

/* Every recipe: killed at calls that are spread over a short run. */
TEST(fault_every_recipe_survives_kills)
{
    WANT_FAULTS();
    if (!pl_test_long()) SKIP("long");
    static const char *const presets[] = {"cloud/tiny",      "classify/tiny", "segment/tiny",
                                          "text/tiny",       "regress/tiny",  "lgt/tiny",
                                          "wandistill/tiny", "stablesr/tiny", "fluxflow/tiny"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        char args[256];
        fault f = {"any", "/run", 0, i % 2 ? "lose" : "kill"};
        cli_run("rm -rf %s/run %s/whole", pl_test_dir(), pl_test_dir());
        snprintf(
            args, sizeof args,
            "train %s train.steps=3 checkpoint.every=1 eval.every=2 threads=1 --quiet --out run",
            presets[i]);
        long n = fault_count(&f, args);
        CHECK_MSG(n > 0, "%s: no calls", presets[i]);
        cli_run("mv %s/run %s/whole", pl_test_dir(), pl_test_dir());
        for (f.k = 1 + n / 10; f.k <= n; f.k += 1 + n / 5) {
            cli_run("rm -rf %s/run", pl_test_dir());
            int code = fault_run(&f, args).code;
            CHECK_MSG(code == 137, "%s: call %ld: exit code %d", presets[i], f.k, code);
            CHECK_RUN(fault_free(args), 0, "");
            CHECK_MSG(cli_same("whole/model.safetensors", "run/model.safetensors"),
                      "%s: call %ld of %ld", presets[i], f.k, n);
        }
    }
}
