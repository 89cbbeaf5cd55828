/* test_room.c - a GPU whose memory other programs use: the run does not start, and the message
 * lists the programs; and a GPU whose libraries need more than planned: the run plans again and
 * prints the new plan.
 *
 * The program gets a plug-in, a driver and a management library that the build makes for this test
 * (tests/fake); everything between these and the command line is real. */
#include "tests/lib/cli_run.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder with the three libraries, or NULL. */
static const char *fakes(void)
{
    return cli_bin() && access(cli_fakes(), R_OK) == 0 ? cli_fakes() : NULL;
}

static cli_result train(const char *libraries, int free_mib)
{
    const char *dir = fakes();
    return cli_run("FAKE_FREE_MIB=%d LD_LIBRARY_PATH=%s%s PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so "
                   "$P train " CLI_SMALL "train.steps=1 device=cuda --quiet",
                   free_mib, dir, libraries, dir);
}

TEST(room_refusal_names_the_processes_that_hold_memory)
{
    if (!fakes()) SKIP("build/.../fake is not built");
    cli_result r = train("/all", 8000);
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = train("/all", 0);
    CHECK_MSG(r.code == 3, "%d %s", r.code, r.err);
    CHECK_MSG(strstr(r.err, "Fake T4 has 0 B free of 16.0 GiB"), "%s", r.err);
    CHECK_MSG(strstr(r.err, "/usr/bin/python3 (4242) holds 9.00 GiB"), "%s", r.err);
    CHECK_MSG(strstr(r.err, "a process (77) holds an unknown amount"), "%s", r.err);
    /* the run's own memory is not counted as another program's */
    CHECK_MSG(!strstr(r.err, "1.00 GiB"), "%s", r.err);
}

TEST(room_refusal_without_nvml_names_nvidia_smi)
{
    if (!fakes()) SKIP("build/.../fake is not built");
    cli_result r = train("/driver", 8000);
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = train("/driver", 0);
    CHECK_MSG(r.code == 3, "%d %s", r.code, r.err);
    CHECK_MSG(strstr(r.err, "nvidia-smi"), "%s", r.err);
}

TEST(room_is_shown_by_devices)
{
    const char *dir = fakes();
    if (!dir) SKIP("build/.../fake is not built");
    cli_result r = cli_run(
        "LD_LIBRARY_PATH=%s/all PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P devices", dir, dir);
    CHECK_MSG(r.code == 0 && strstr(r.out, "Fake T4") && strstr(r.out, "7.00 GiB"), "%d %s%s",
              r.code, r.out, r.err);
}

/* Output of `devices` with a driver and this plug-in. */
static cli_result devices_with(const char *plugin)
{
    return cli_run("LD_LIBRARY_PATH=%s/all PLIMSOLL_PLUGIN=%s $P devices", fakes(), plugin);
}

TEST(room_of_a_bad_plugin_is_reported_with_the_reason)
{
    char path[4400];
    if (!fakes()) SKIP("build/.../fake is not built");

    snprintf(path, sizeof path, "%s/none.so", pl_test_dir());
    cli_result r = devices_with(path);
    CHECK_MSG(r.code == 0 && strstr(r.out, "an NVIDIA driver is here, but no CUDA plug-in: ") &&
                  strstr(r.out, "none.so is missing"),
              "%d %s", r.code, r.out);

    r = cli_run("echo text > %s && LD_LIBRARY_PATH=%s/all PLIMSOLL_PLUGIN=%s $P train " CLI_SMALL
                "device=cuda --quiet",
                path, fakes(), path);
    CHECK_MSG(r.code == 4 && strstr(r.err, "the CUDA plug-in cannot be loaded: ") &&
                  strstr(r.err, "LD_LIBRARY_PATH"),
              "%d %s", r.code, r.err);

    snprintf(path, sizeof path, "%s/all/libcuda.so.1", fakes());
    r = devices_with(path);
    CHECK_MSG(strstr(r.out, "is not a Plimsoll plug-in"), "%s", r.out);

    static const char *const other[] = {"{7, \"0.0.0\"}", "{-1, \"0.0.0\"}"};
    for (int i = 0; i < 2; i++) {
        r = cli_run(
            "cd %s && echo 'struct info { int abi; const char *version; void *open, *list; }; extern const struct info "
            "pl_cuda_plugin; const struct info pl_cuda_plugin = %s;' > o.c && cc -shared -fPIC -o o%d.so o.c",
            pl_test_dir(), other[i], i);
        if (r.code != 0) SKIP("no compiler");
        snprintf(path, sizeof path, "%s/o%d.so", pl_test_dir(), i);
        r = devices_with(path);
        CHECK_MSG(strstr(r.out, "build both from the same sources"), "%s", r.out);
    }
}

/* The page of a plan names the GPU that the run trains on, under both names of the first GPU. */
TEST(room_page_of_a_plan_names_the_card)
{
    static const char *const names[] = {"cuda", "cuda:0"};
    const char *dir = fakes();
    if (!dir) SKIP("build/.../fake is not built");
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/plan.html", pl_test_dir());
        cli_result r = cli_run(
            "LD_LIBRARY_PATH=%s/all PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P plan " CLI_SMALL
            "device=%s --timeline %s",
            dir, dir, names[i], path);
        CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
        CHECK_MSG(strstr(cli_read(path), "\"machine\":\"Fake T4\""), "%s", names[i]);
    }
}

static cli_result train_loading(uint64_t budget, uint64_t loaded, const char *options)
{
    const char *dir = fakes();
    return cli_run(
        "FAKE_LOADED=%llu LD_LIBRARY_PATH=%s/driver PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so "
        "$P train cloud/tiny batch=8 frames=1 height=16 width=16 accumulate=1 train.steps=1 "
        "device=cuda --memory %llu %s",
        (unsigned long long)loaded, dir, dir, (unsigned long long)budget, options);
}

/* The first number of that name after `at`, 0 if there is none. */
static unsigned long long number(const char *at, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    at = at ? strstr(at, key) : NULL;
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

TEST(room_reports_a_new_plan_before_the_first_step)
{
    /* what the libraries need, and how much of it the budget has left */
    enum { LOADED = 40000, SPARE = 13000 };
    if (!fakes()) SKIP("build/.../fake is not built");
    cli_result r = train_loading((uint64_t)16 << 30, 0, "--json");
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    uint64_t budget = number(r.out, "total_bytes") + SPARE;
    CHECK_MSG(budget > SPARE &&
                  !strstr(strstr(r.out, "\"event\":\"plan\"") + 1, "\"event\":\"plan\""),
              "%s", r.out);

    /* As events: the plan at first, the plan that trains, and only then a step. */
    r = train_loading(budget, LOADED, "--json");
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    const char *first = strstr(r.out, "\"event\":\"plan\""),
               *second = first ? strstr(first + 1, "\"event\":\"plan\"") : NULL;
    const char *step = strstr(r.out, "\"event\":\"step\"");
    unsigned long long before = number(first, "arena_bytes");
    unsigned long long after = number(second, "arena_bytes"), total = number(second, "total_bytes");
    CHECK_MSG(second && step && second < step, "%s", r.out);
    CHECK_MSG(after > 0 && after + LOADED - SPARE <= before, "%llu, then %llu", before, after);
    CHECK_MSG(number(step, "peak_used_bytes") > after && number(step, "peak_used_bytes") <= budget,
              "%s", r.out);

    /* As text, and in the run's folder. */
    char run[512], want[256], path[600];
    snprintf(run, sizeof run, "--out %s/run", pl_test_dir());
    snprintf(want, sizeof want,
             "planned again, because GPU libraries took more memory than expected: arena "
             "%llu bytes instead of %llu",
             after, before);
    r = train_loading(budget, LOADED, run);
    const char *told = strstr(r.err, want);
    CHECK_MSG(r.code == 0 && told && strstr(told, "step=1/1"), "%d %s", r.code, r.err);
    snprintf(path, sizeof path, "%s/run/plan.json", pl_test_dir());
    unsigned long long kept = number(strstr(cli_read(path), "\"memory\":"), "total");
    CHECK_MSG(kept == total, "%llu, not %llu", kept, total);
    CHECK(!strstr(train_loading(budget, SPARE / 2, "").err, "planned again"));

    /* Where no plan is left, the minimum counts the loaded libraries. */
    r = train_loading(budget, budget, "--quiet");
    CHECK_MSG(r.code == 3 && strstr(r.err, "the smallest budget is"), "%d %s", r.code, r.err);
}

/* Two steps of a network whose step has several programs. */
static cli_result train_gan(const char *device, const char *settings, const char *run)
{
    const char *dir = fakes();
    return cli_run(
        "%s LD_LIBRARY_PATH=%s/driver PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P train fluxflow/tiny "
        "model.scales=1 gan.depth=1 batch=1 'lpips.widths=[4, 4, 4, 4, 4]' eval.every=0 train.steps=2 train.log_every=1 device=%s --json --out %s/%s",
        settings, dir, dir, device, pl_test_dir(), run);
}

/* For a GPU all programs are compiled in parallel: they equal programs that are compiled one
 * after the other. */
TEST(room_programs_compiled_in_parallel_are_the_same)
{
    if (!fakes()) SKIP("build/.../fake is not built");
    static char losses[2][4096];

    unsigned long long arena[2], units[2];
    for (int i = 0; i < 2; i++) {
        cli_result r = train_gan(i ? "cuda" : "apart", "", i ? "card" : "apart");
        CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
        arena[i] = number(r.out, "arena_bytes");
        units[i] = number(r.out, "units");
        cli_losses(i ? "card" : "apart", losses[i], sizeof losses[i]);
    }
    /* The search for offsets has a limit of time, which a sanitizer reaches. */
    CHECK(arena[0] > 0 && (arena[1] == arena[0] || PATIENCE > 1) && units[1] == units[0]);
    CHECK_MSG(losses[0][0] && strcmp(losses[0], losses[1]) == 0, "%s, beside each other %s",
              losses[0], losses[1]);

    /* All of them lack the kernel: one error is reported. */
    cli_result r = train_gan("cuda", "FAKE_LACKS=conv", "lacking");
    CHECK_MSG(r.code != 0 && r.code < 128 && strstr(r.err, "conv has no kernel on Fake T4"),
              "%d %s", r.code, r.err);
    CHECK(!strstr(strstr(r.err, "has no kernel") + 1, "has no kernel"));

    /* Only the training program lacks it, and it is not the first of them. */
    r = train_gan("cuda", "FAKE_LACKS=attention_rows_bwd", "lacking");
    CHECK_MSG(r.code != 0 && r.code < 128 && strstr(r.err, "attention_rows_bwd has no kernel"),
              "%d %s", r.code, r.err);
}

/* Several programs cannot be compiled: the error is of the first program of the step, whichever
 * fails first. The discriminator's two programs have adam_max, only the second a third
 * avg_pool_bwd; the generator's, after both, has attention_rows_bwd. */
TEST(room_reports_the_first_program_of_several_failures)
{
    static const char *const pair[][2] = {{"adam_max", "attention_rows_bwd"},
                                          {"avg_pool_bwd:3", "attention_rows_bwd"}};
    if (!fakes()) SKIP("build/.../fake is not built");
    for (int i = 0; i < 2; i++) {
        char want[64], lacks[96];
        snprintf(want, sizeof want, "%.*s has no kernel", (int)strcspn(pair[i][0], ":"),
                 pair[i][0]);
        for (int late = 0; late < 2; late++) { /* the program that is reported fails last */
            snprintf(lacks, sizeof lacks, "FAKE_LACKS=%s,%s", pair[i][late], pair[i][!late]);
            cli_result r = train_gan("cuda", lacks, "lacking");
            CHECK_MSG(r.code != 0 && r.code < 128 && strstr(r.err, want), "%s: %d %s", lacks,
                      r.code, r.err);
            CHECK_MSG(!strstr(strstr(r.err, "has no kernel") + 1, "has no kernel"), "%s: %s", lacks,
                      r.err);
        }
    }
}

/* A mistake in the configuration is reported at once, but not before the GPU's libraries are
 * open. */
TEST(room_refuses_a_configuration_after_the_card_is_open)
{
    const char *dir = fakes();
    if (!dir) SKIP("build/.../fake is not built");
    cli_result r = cli_run(
        "LD_LIBRARY_PATH=%s/driver PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P train " CLI_SMALL
        "schedule.name=one_cycle train.steps=3 device=cuda",
        dir, dir);
    CHECK_RUN(r, 2, "the learning-rate schedule lasts 3 steps and needs 4");
    CHECK_MSG(!strstr(r.err, "while its card is being opened"), "%s", r.err);
}

/* A number in the line of the second step. */
static const char *second(const char *out, const char *name)
{
    static char text[64];
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(out, "\"step\":2,");
    at = at ? strstr(at, key) : NULL;
    snprintf(text, sizeof text, "%.*s", at ? (int)strcspn(at, ",}") : 0, at ? at : "");
    return text;
}

/* heard: number of runs that were started and not yet read when another starts, for two
 * evaluations and two steps between them. */
static void check_heard(const char *settings, const char *heard)
{
    static const char *const told[] = {"loss", "grad_norm", "lr"};
    char path[4200], number[3][64];
    const char *dir = fakes();
    for (int card = 0; card < 2; card++) {
        snprintf(path, sizeof path, "%s/heard", pl_test_dir());
        unlink(path);
        cli_result r = cli_run(
            "FAKE_HEARD=%s LD_LIBRARY_PATH=%s/driver PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P train %s eval.every=0 "
            "eval.batches=1 train.steps=2 train.log_every=1 checkpoint.every=0 clip.norm=1 device=%s --json --out %s/%.8s-%d",
            path, dir, dir, settings, card ? "cuda" : "cpu", pl_test_dir(), settings, card);
        CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
        for (int k = 0; k < 3; k++) {
            const char *text = second(r.out, told[k]);
            if (!card) snprintf(number[k], sizeof number[k], "%s", text);
            CHECK_MSG(text[0] && strcmp(text, number[k]) == 0, "%s, on the CPU %s", text,
                      number[k]);
        }
    }
    CHECK_MSG(strcmp(cli_read(path), heard) == 0, "%s: %s, not %s", settings, cli_read(path),
              heard);
}

/* Outputs of a run inside a step are read after the next run has started: only the first run of
 * a step finds the GPU idle. The outputs equal those without any run ahead. */
TEST(room_a_card_does_not_wait_for_the_host_inside_a_step)
{
    if (!fakes()) SKIP("build/.../fake is not built");

    check_heard(
        "cloud/tiny batch=8 frames=1 height=16 width=16 accumulate=4 accumulate_coupled=true",
        "0000"
        "01111"
        "01111"
        "0000");
    check_heard(
        "fluxflow/tiny model.scales=1 gan.depth=1 batch=2 accumulate=2 accumulate_coupled=true "
        "'lpips.widths=[4, 4, 4, 4, 4]'",
        "00"
        "011111"
        "011111"
        "00");
}
