/* test_ranks_cli.c - ranks as processes: mpirun, checkpoints, errors. Skipped without mpirun. */
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the test's own folder. */
#define IN  "cd $D || exit 99; "
#define RUN "wandistill/tiny batch=4 data.workers=0 eval.every=0 threads=1 "

/* Losses of the steps, one a line, of the last run's --json. */
static void losses_of(const char *text, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (const char *at = text; (at = strstr(at, "\"event\":\"step\"")); at++) {
        const char *loss = strstr(at, "\"loss\":");
        if (loss && used + 40 < cap)
            used += (size_t)snprintf(out + used, cap - used, "%.17g\n", atof(loss + 7));
    }
}

TEST(ranks_cli_trains_in_processes_with_the_losses_of_one)
{
    WANT_RANKS();
    static char one[4096], two[4096], again[4096];

    cli_result r = cli_run(IN "$P train " RUN "train.steps=6 --json");
    CHECK_INT(r.code, 0);
    losses_of(r.out, one, sizeof one);
    r = cli_run(IN "$P train " RUN "train.steps=6 shard=weights --ranks 2 --json");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);

    losses_of(r.out, two, sizeof two);
    r = cli_run(IN "$P train " RUN "train.steps=6 shard=optimizer --ranks 2 --json");
    CHECK_INT(r.code, 0);

    losses_of(r.out, again, sizeof again);
    CHECK_MSG(strcmp(two, again) == 0, "shardings differ:\n%s\n%s", two, again);
    const char *a = one, *b = two;
    for (int i = 0; i < 6; i++) {
        double x = strtod(a, (char **)(void *)&a), y = strtod(b, (char **)(void *)&b);
        CHECK_MSG(x > 0 && fabs(x - y) <= 1e-6 * x, "step %d: %.9g and %.9g", i, x, y);
    }
}

/* Ranks whose state lives in host memory, each with its part of it: the weights that ranks with
 * everything on the device have. */
TEST(ranks_cli_host_memory_does_not_change_weights)
{
    WANT_RANKS();
#define WIDE                                                                                       \
 "$P train regress/tiny batch=4 'model.widths=[512,512,512,512]' data.samples=16 "                 \
 "data.eval_samples=4 eval.batches=1 threads=1 log.tensorboard=false train.steps=3 "               \
 "device=apart --ranks 2 "
    CHECK_RUN(cli_run(IN WIDE "--quiet --out whole && " WIDE
                              "--memory 8MB --host-memory 300MB --json --out low > log && grep -q "
                              "'\"moved_bytes_per_step\":[1-9]' log && cmp whole/model.safetensors "
                              "low/model.safetensors"),
              0, "");
#undef WIDE
}

/* A checkpoint of two ranks resumes on one rank and on three, to the same numbers except for
 * rounding. */
TEST(ranks_cli_checkpoints_resume_with_any_number_of_ranks)
{
    WANT_RANKS();
    static char a[4096], b[4096];

    CHECK_INT(cli_run(IN "$P train " RUN
                         "batch=6 train.steps=4 shard=weights --ranks 2 --out two --quiet")
                  .code,
              0);
    CHECK(cli_run(IN "ls two/checkpoints/step-00000004/part-00001-of-00002.safetensors").code == 0);
    CHECK_INT(
        cli_run(IN "cp -r two one && cp -r two three && rm two/checkpoints/*/part-00001*").code, 0);

    cli_result r = cli_run(IN "$P train " RUN "batch=6 train.steps=6 --out one --json");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);
    losses_of(r.out, a, sizeof a);
    r = cli_run(IN "$P train " RUN
                   "batch=6 train.steps=6 shard=optimizer --ranks 3 --out three --json");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);

    losses_of(r.out, b, sizeof b);
    CHECK_MSG(fabs(atof(a) - atof(b)) <= 1e-6 * atof(a), "%s and %s", a, b);
    r = cli_run(IN "$P train " RUN
                   "batch=6 train.steps=6 shard=weights --ranks 2 --out two --quiet");
    CHECK_INT(r.code, 6); /* a part is missing: the checkpoint is not used, and there is no other */
    CHECK_MSG(strstr(r.err, "part-00001"), "%s", r.err);
    CHECK_INT(cli_run(IN "$P inspect one/model.safetensors").code, 0);
}

/* The first error is the last line, with rank and host; the exit code is that of the error. */
TEST(ranks_cli_prints_the_first_error_last)
{
    WANT_RANKS();
    cli_result r = cli_run(IN "$P train " RUN "batch=3 train.steps=6 --ranks 2");
    CHECK_INT(r.code, 2);
    const char *line = strrchr(r.err, '[');
    CHECK_MSG(line && strncmp(line, "[rank ", 6) == 0 && strstr(line, "host") &&
                  strstr(line, "2 ranks"),
              "%s", r.err);
}

TEST(ranks_cli_plans_without_machines)
{
    if (!cli_bin()) SKIP("PL_BIN is not set");
    cli_result r = cli_run(
        "$P plan wandistill/tiny batch=64 --ranks 16 --device h100 --link nvlink/8+ib shard=weights --json");

    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK(strstr(r.out, "\"ranks\":16") && strstr(r.out, "\"shard\":\"weights\"") &&
          strstr(r.out, "\"link_bytes\":"));

    r = cli_run("$P plan wandistill/tiny batch=64 --ranks 16 --link string");
    CHECK_INT(r.code, 2);
    CHECK_MSG(strstr(r.err, "nvlink"), "%s", r.err);
}
