/* test_checkpoint.c - stopping is safe: killed, stopped, damaged, disk full; then resumed bit
 * for bit. */
#include "plimsoll_checkpoint.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <string.h>
#include <time.h>

/* ---- going on --------------------------------------------------------------------------- */
/* Every kind of state: moments, EMA, dropout's key, the loss scale, the plateau, split batches. */
static const char *const kinds[] = {
    "model.dropout_conv=0.3 'model.dropout_dense=[0.2, 0.2]'",
    "optim.name=sgd optim.momentum=0.9 ema.decay=0.9 clip.norm=1",
    "precision=fp16 loss_scale.interval=3 loss_scale.initial=1e9",
    "precision=bf16 schedule.name=cosine schedule.total_steps=30 schedule.warmup_steps=4",
    "eval.every=2 schedule.plateau.factor=0.5 schedule.plateau.patience=0",
    "batch=4 accumulate=2 accumulate_coupled=true optim.amsgrad=true",
};

TEST(checkpoint_resumes_to_the_same_bits)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cli_result r =
            cli_run("rm -rf %s/a %s/b; $P train " CLI_SMALL "%s train.steps=12 --quiet --out "
                    "%s/a",
                    d, d, kinds[i], d);
        CHECK_MSG(r.code == 0, "%s: %s", kinds[i], r.err);
        static const int stops[] = {6, 7, 12};
        for (int k = 0; k < 3; k++) {
            r = cli_run("$P train " CLI_SMALL
                        "%s train.steps=%d checkpoint.every=%d --quiet --out %s/b",
                        kinds[i], stops[k], k + 2, d);
            CHECK_MSG(r.code == 0, "%s: %s", kinds[i], r.err);
        }
        CHECK_MSG(cli_same("a/model.safetensors", "b/model.safetensors"), "%s: other weights",
                  kinds[i]);
        CHECK_MSG(cli_same("a/checkpoints/step-00000012/state.safetensors",
                           "b/checkpoints/step-00000012/state.safetensors"),
                  "%s: other state", kinds[i]);
        CHECK_MSG(!cli_bad_log("b", 12), "%s: %s", kinds[i], cli_bad_log("b", 12));
    }
}

/* A resumed run may have another budget; the change is reported. */
TEST(checkpoint_resumes_under_another_budget)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    const char *base = "batch=4 accumulate_coupled=false";
    CHECK_RUN(cli_run("$P train " CLI_SMALL "%s train.steps=2 --quiet --out %s/a", base, d), 0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "%s train.steps=4 memory=1GiB --out %s/a", base, d), 0,
              "changed: memory");
}

/* ---- kill -9 ---------------------------------------------------------------------------- */
enum { KILL_STEPS = 24 };
#define KILL_RUN                                                                                   \
 CLI_SMALL "model.dropout_conv=0.3 eval.every=7 train.steps=24 checkpoint.every=1 threads=1 "

/* Kills the run repeatedly, at any instant of its duration, until it is complete; false with the
 * reason in why. A run that was not killed measures the present duration, because other tests
 * start and end meanwhile. */
static bool survive(double *seconds, uint64_t *noise, int *kills, int *whole, const char **why)
{
    int most = pl_test_long() ? 12 : 2;
    const char *d = pl_test_dir();
    cli_run("rm -rf %s/k", d);
    for (int life = 0;; life++) {
        double limit = life < most ? *seconds * (0.05 + 0.5 * (pl_test_noise(noise) + 1)) : 60;
        cli_result r =
            cli_run("timeout -s KILL %.4f $P train " KILL_RUN "--quiet --out %s/k", limit, d);
        *why = r.err;
        if (r.code == 0 && life == 0) *seconds = r.seconds;
        if (r.code == 0) return true;
        if (r.code != 137 || strstr(r.err, "plimsoll:")) return false;
        (*kills)++;
        r = cli_run("test ! -d %s/k/checkpoints || $P inspect %s/k", d, d);
        *why = r.out;
        if (r.code != 0) return false;
        *whole += strstr(r.out, "written") != NULL;
    }
}

TEST(checkpoint_survives_a_kill_at_any_time)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    uint64_t noise = (uint64_t)time(NULL);
    int runs = pl_test_long() ? 200 : 5, kills = 0, whole = 0;

    cli_result whole_run = cli_run("$P train " KILL_RUN "--quiet --out %s/a", d);
    CHECK_MSG(whole_run.code == 0, "%s", whole_run.err);
    double seconds = whole_run.seconds;
    for (int i = 0; i < runs; i++) {
        const char *why;
        bool done = survive(&seconds, &noise, &kills, &whole, &why);
        CHECK_MSG(done, "run %d, seed %llu: %s", i, (unsigned long long)noise, why);
        CHECK_MSG(cli_same("a/model.safetensors", "k/model.safetensors"), "run %d: other weights",
                  i);
        CHECK_MSG(!cli_bad_log("k", KILL_STEPS), "run %d: %s", i, cli_bad_log("k", KILL_STEPS));
        CHECK(cli_run("ls -A %s/k/checkpoints | grep -v ^step-", d).code == 1);
    }
    if (pl_test_long())
        fprintf(stderr, "%d runs, %d kills, %d of them with a checkpoint\n", runs, kills, whole);

    CHECK_MSG(kills >= runs / 2, "%d kills in %d runs: too few to show anything", kills, runs);
}

/* ---- damage ----------------------------------------------------------------------------- */
static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 20);
    *n = f && text ? fread(text, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return text;
}

static void spill(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (f) fwrite(text, 1, n, f);
    if (f) fclose(f);
}

/* Verifies after every kind of damage to one file; returns 0, or the first undetected position +
 * 1. */
static size_t unnoticed(const char *dir, const char *name, size_t stride)
{
    char path[600];
    static pl_checkpoint c;
    size_t n, bad = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *text = slurp(path, &n);
    for (size_t i = 0; i < n && !bad; i += stride) {
        text[i] ^= (char)(1 << (i % 8));
        spill(path, text, n);
        bool named = pl_checkpoint_verify(dir, &c) == PL_ERR_FILE && strstr(pl_error_text(), name);
        text[i] ^= (char)(1 << (i % 8));
        if (!named) bad = i + 1;
    }
    for (size_t cut = 0; cut < n && !bad; cut += n / 7 + 1) {
        spill(path, text, cut);
        if (pl_checkpoint_verify(dir, &c) != PL_ERR_FILE) bad = cut + 1;
    }
    text[n] = 'x';
    spill(path, text, n + 1);
    if (!bad && pl_checkpoint_verify(dir, &c) != PL_ERR_FILE) bad = n + 1;
    unlink(path);
    if (!bad && pl_checkpoint_verify(dir, &c) != PL_ERR_FILE) bad = n + 1;
    spill(path, text, n);
    free(text);
    return bad;
}

TEST(checkpoint_damage_of_any_byte_is_noticed)
{
    WANT_BIN();
    static const char *const files[] = {"manifest.json", "config.yaml", "model.safetensors",
                                        "state.safetensors"};
    const char *d = pl_test_dir();
    char dir[600];
    static pl_checkpoint c;

    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=3 --quiet --out %s/a", d), 0, "");
    pl_folder_checkpoint(pl_test_path("a"), 3, dir, sizeof dir);
    CHECK_OK(pl_checkpoint_verify(dir, &c));
    CHECK(c.step == 3 && c.samples == 32 && c.n_files == 3);

    for (int i = 0; i < 4; i++) {
        size_t at = unnoticed(dir, files[i], i == 0 ? 2 : 101);
        CHECK_MSG(!at, "damage to %s at %zu went unnoticed", files[i], at - 1);
    }
    CHECK_OK(pl_checkpoint_verify(dir, &c));
}

TEST(checkpoint_before_a_damaged_one_is_resumed)
{
    WANT_BIN();
    const char *d = pl_test_dir(), *run = CLI_SMALL "checkpoint.every=2 checkpoint.keep=3 ";

    CHECK_RUN(cli_run("$P train %strain.steps=8 --quiet --out %s/a", run, d), 0, "");
    CHECK_RUN(cli_run("$P train %strain.steps=6 --quiet --out %s/b", run, d), 0, "");
    CHECK_RUN(
        cli_run("printf x | dd of=%s/b/checkpoints/step-00000006/state.safetensors bs=1 seek=5000 "
                "conv=notrunc 2>/dev/null; $P inspect %s/b > /dev/null",
                d, d),
        6, "");
    cli_result r = cli_run("$P train %strain.steps=8 --quiet --out %s/b", run, d);
    CHECK_RUN(r, 0, "step-00000006 is damaged");
    CHECK(strstr(r.err, "state.safetensors"));
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors") && !cli_bad_log("b", 8));

    r = cli_run(
        "for s in %s/b/checkpoints/step-*; do : > $s/manifest.json; done; $P train %strain.steps=9 "
        "--quiet --out %s/b",
        d, run, d);
    CHECK_RUN(r, 6, "--fresh");
    CHECK_RUN(cli_run("$P train %strain.steps=8 --quiet --fresh --out %s/b", run, d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));

    r = cli_run("rm -r %s/b/checkpoints && $P train %strain.steps=8 --quiet --out %s/b", d, run, d);
    CHECK_RUN(r, 2, "no checkpoint");
}

/* ---- another configuration -------------------------------------------------------------- */
TEST(checkpoint_of_another_configuration_is_refused)
{
    WANT_BIN();
    static const char *const refused[] = {"seed=1",          "batch=4",
                                          "optim.name=sgd",  "precision=bf16",
                                          "data.samples=16", "model.film_hidden=6",
                                          "frames=2"};
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=3 --quiet --out %s/a", d), 0, "");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char key[64];
        snprintf(key, sizeof key, "changed: %.*s from ", (int)strcspn(refused[i], "="), refused[i]);
        cli_result r =
            cli_run("$P train " CLI_SMALL "%s train.steps=5 --quiet --out %s/a", refused[i], d);
        CHECK_RUN(r, 2, key);
        CHECK(strstr(r.err, "--fresh"));
    }
    cli_result r =
        cli_run("$P train " CLI_SMALL "ema.decay=0.9 train.steps=5 --quiet --out %s/a", d);
    CHECK_RUN(r, 6, "ema.");
    r = cli_run(
        "$P train " CLI_SMALL "optim.lr=5e-4 threads=1 memory=1GiB train.steps=5 --out %s/a", d);
    CHECK_RUN(r, 0, "changed: optim.lr from 0.001 to 0.0005, from here on");
    CHECK(strstr(r.err, "threads") && strstr(r.err, "resuming from") && !cli_bad_log("a", 5));
    CHECK_RUN(cli_run("$P train " CLI_SMALL "optim.lr=5e-4 train.steps=2 --quiet --out %s/a", d), 0,
              "5 steps");
    r = cli_run("$P generate " CLI_SMALL
                "--out %s/set --samples 9 --eval-samples 8 && $P train " CLI_SMALL
                "data.path=%s/set train.steps=2 --quiet --out %s/c && $P generate " CLI_SMALL
                "--out %s/set --force --samples 12 --eval-samples 8 && $P train " CLI_SMALL
                "data.path=%s/set train.steps=4 --quiet --out %s/c",
                d, d, d, d, d, d);
    CHECK_RUN(r, 5, "9 training samples");
}

/* ---- signals ---------------------------------------------------------------------------- */
#define LONG_RUN "train.steps=1000000 train.log_every=2 "

TEST(checkpoint_is_written_on_a_signal)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    snprintf(command, sizeof command, "exec $P train " CLI_SMALL LONG_RUN "--out %s/run", d);
    int64_t steps[8], before = 0;
    for (int i = 0; i < 3; i++) {
        cli_result r = cli_run_signal(command, i ? "resuming from" : "step=4/", signals[i]);
        CHECK_MSG(r.code == 75 || (i && r.code == 128 + signals[i]), "exit code %d: %s", r.code,
                  r.err);
        CHECK(r.code != 75 || strstr(r.err, "resumes from there"));
        CHECK(pl_folder_steps(pl_test_path("run"), steps, 8) >= 1 && steps[0] >= before);
        before = steps[0];
    }
    CHECK(access(pl_test_path("run/model.safetensors"), F_OK) != 0);

    int64_t all = steps[0] + 3;
    CHECK_INT(
        cli_run("$P train " CLI_SMALL "train.steps=%lld --quiet --out %s/run", (long long)all, d)
            .code,
        0);
    CHECK_INT(
        cli_run("$P train " CLI_SMALL "train.steps=%lld --quiet --out %s/all", (long long)all, d)
            .code,
        0);
    CHECK(cli_same("run/model.safetensors", "all/model.safetensors"));
    CHECK_MSG(!cli_bad_log("run", all), "%s", cli_bad_log("run", all));
}

/* The signal comes during an evaluation that takes a second; the resumed run makes that evaluation.
 * */
TEST(checkpoint_signal_stops_an_evaluation_that_is_made_after_the_resume)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];

    snprintf(command, sizeof command,
             "exec $P train " CLI_SMALL "data.eval_samples=8000 eval.every=4 "
             "eval.batches=4000 train.steps=8 train.log_every=4 --out %s/run",
             d);
    cli_result r = cli_run_signal(command, "step=4/", SIGTERM);
    CHECK_MSG(r.code == 75 && !strstr(r.err, "eval step=4"), "exit code %d: %s", r.code, r.err);

    r = cli_run("$P train " CLI_SMALL
                "data.eval_samples=8000 eval.every=4 eval.batches=1 train.steps=8 "
                "--out %s/run",
                d);
    CHECK_RUN(r, 0, "eval step=4");
    CHECK(!cli_bad_log("run", 8));
}

TEST(checkpoint_is_written_on_sigusr1_and_training_continues)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("$P train " CLI_SMALL LONG_RUN "--quiet --out %s/run & p=$!; n=0; "
                "while [ ! -s %s/run/log.jsonl ]; do sleep 0.02; done; sleep 0.1; kill -USR1 $p; "
                "while [ -z \"$(ls %s/run/checkpoints)\" ] && [ $n -lt 200 ]; do sleep 0.05; "
                "n=$((n+1)); done; sleep 0.1; kill -0 $p && kill -TERM $p; wait $p",
                d, d, d);
    CHECK_MSG(r.code == 75, "exit code %d: %s", r.code, r.err);
    int64_t steps[8];
    CHECK(pl_folder_steps(pl_test_path("run"), steps, 8) == 2 && steps[1] < steps[0]);
}

/* ---- the folder ------------------------------------------------------------------------- */
TEST(checkpoint_folder_is_locked_by_the_run_that_trains_in_it)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r = cli_run("$P train " CLI_SMALL LONG_RUN "--quiet --out %s/run & p=$!; "
                           "while [ ! -s %s/run/lock ]; do sleep 0.02; done; "
                           "$P train " CLI_SMALL LONG_RUN "--quiet --out %s/run; c=$?; kill -9 $p; "
                           "grep -q $p %s/run/lock && exit $c",
                           d, d, d, d);
    CHECK_RUN(r, 1, "is being trained in by process ");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=3 --quiet --out %s/run", d), 0, "");
}

/* Writes into files whose path contains FULL fail as on a full disk. */
static const char full_source[] =
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <stdio.h>\n"
    "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
    "ssize_t write(int fd, const void *p, size_t n) {\n"
    "    static ssize_t (*next)(int, const void *, size_t);\n"
    "    if (!next) { void *s = dlsym(RTLD_NEXT, \"write\"); memcpy(&next, &s, sizeof next); }\n"
    "    char link[64], path[4096]; const char *full = getenv(\"FULL\");\n"
    "    snprintf(link, sizeof link, \"/proc/self/fd/%d\", fd);\n"
    "    ssize_t k = readlink(link, path, sizeof path - 1); path[k > 0 ? k : 0] = 0;\n"
    "    if (full && strstr(path, full)) {\n"
    "        if (n > 100) return next(fd, p, 100);\n"
    "        errno = ENOSPC; return -1; }\n"
    "    return next(fd, p, n); }\n";

TEST(checkpoint_on_a_full_disk_leaves_the_previous_one_whole)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer wants to be the first library");
    const char *d = pl_test_dir(), *cc = getenv("CC"),
               *run = CLI_SMALL "checkpoint.every=2 --quiet ";

    CHECK(cli_write(pl_test_path("full.c"), full_source));
    cli_result r =
        cli_run("%s -O1 -fPIC -shared -o %s/full.so %s/full.c -ldl", cc ? cc : "cc", d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    static const char *const at[] = {"model.safetensors.tmp", "state.safetensors.tmp",
                                     "manifest.json.tmp"};
    for (int i = 0; i < 3; i++) {
        /* a periodic save fails: a warning, and training continues */
        r = cli_run(
            "rm -rf %s/b; FULL=/.tmp-step-00000004 LD_PRELOAD=%s/full.so $P train %strain.steps=5 "
            "--out %s/b",
            d, d, run, d);
        CHECK_RUN(r, 0, "No space left on device");
        CHECK(strstr(r.err, "a checkpoint takes") && strstr(r.err, "free") &&
              strstr(r.err, "of step 2"));
        /* the last save fails: exit code 1, and the earlier checkpoint is complete */
        r = cli_run("FULL=%s LD_PRELOAD=%s/full.so $P train %strain.steps=7 --out %s/b", at[i], d,
                    run, d);
        CHECK_RUN(r, 1, "No space left on device");
        int64_t steps[8];
        CHECK(pl_folder_steps(pl_test_path("b"), steps, 8) == 2 && steps[0] == 5);
        CHECK(cli_run("ls -A %s/b/checkpoints | grep -v ^step-; $P inspect %s/b", d, d).code == 0);
        CHECK_INT(cli_run("$P train %strain.steps=7 --out %s/b", run, d).code, 0);
        CHECK(!cli_bad_log("b", 7));
    }
}

TEST(checkpoint_keeps_newest_and_best)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("$P train " CLI_SMALL "train.steps=24 eval.every=2 checkpoint.every=2 "
                "checkpoint.keep=3 checkpoint.best=mae_km optim.lr=1e-2 --json --out %s/run",
                d);

    CHECK_MSG(r.code == 0, "%s", r.err);
    double least = 1e30;
    int64_t best = 0, steps[16];
    for (const char *p = r.out; (p = strstr(p, "{\"event\":\"eval\"")); p++) {
        json_t *j = json_loadb(p, strcspn(p, "\n"), 0, NULL);
        double mae = json_number_value(json_object_get(j, "mae_km"));
        int64_t step = json_integer_value(json_object_get(j, "step"));
        json_decref(j);
        if (step && mae < least) least = mae, best = step;
    }
    CHECK(best > 0);
    CHECK_INT(pl_folder_best(pl_test_path("run")), best);

    int n = pl_folder_steps(pl_test_path("run"), steps, 16);
    CHECK_INT(n, best >= 20 ? 3 : 4);
    CHECK(steps[0] == 24 && steps[1] == 22 && steps[2] == 20 && (n == 3 || steps[3] == best));
    CHECK_INT(cli_run("$P inspect %s/run/best", d).code, 0);

    /* A metric that stays the same: the first evaluation is the best, in a resumed run too. */
    for (int n_steps = 4; n_steps <= 8; n_steps += 4)
        CHECK_RUN(cli_run("$P train " CLI_SMALL
                          "train.steps=%d eval.every=2 checkpoint.best=mean_km "
                          "checkpoint.best_mode=max --quiet --out %s/m",
                          n_steps, d),
                  0, "");
    CHECK_INT(pl_folder_best(pl_test_path("m")), 2);

    r = cli_run("$P train " CLI_SMALL "train.steps=2 checkpoint.best=beauty --quiet --out %s/c", d);
    CHECK_RUN(r, 2, "mae_km");
}

/* A run that stop.patience ended is finished: training it again does nothing. */
TEST(checkpoint_of_a_run_that_stopped_early_is_finished)
{
    WANT_BIN();
    const char *d = pl_test_dir(),
               *run = CLI_SMALL "eval.every=1 stop.metric=mean_km train.steps=50 ";
    cli_result r = cli_run("$P train %sstop.patience=2 --out %s/a", run, d);
    CHECK_RUN(r, 0, "the run ends at step 3 of 50");
    CHECK_RUN(cli_run("$P train %sstop.patience=2 --out %s/a", run, d), 0, "is finished: 3 steps");
    r = cli_run("rm %s/a/model.safetensors; $P train %sstop.patience=2 --out %s/a", d, run, d);
    CHECK_RUN(r, 0, "wrote");
    CHECK(!cli_bad_log("a", 3));
    CHECK_RUN(cli_run("$P train %sstop.patience=4 --out %s/a", run, d), 0, "ends at step 5 of 50");
}

/* ---- memory ----------------------------------------------------------------------------- */
static json_int_t peak_of(const char *more)
{
    cli_result r = cli_run(
        "$P train cloud/tiny batch=2 frames=1 height=8 width=8 'model.channels=[64, 128, 256]' "
        "'model.dense=[256, 128]' model.film_hidden=256 eval.batches=1 train.steps=3 --json "
        "%s %s",
        more, more[0] ? pl_test_path("run") : "");
    const char *end = strstr(r.out, "\"peak_used_bytes\":");
    return r.code == 0 && end ? atoll(end + strlen("\"peak_used_bytes\":")) : -1;
}

/* Saving 6 MB of state goes through the staging block, so the peak of the process does not grow. */
TEST(checkpoint_saving_takes_no_further_memory)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory grows");
    json_int_t without = peak_of(""), with = peak_of("checkpoint.every=1 --out");
    CHECK(without > 0 && with > 0);
    CHECK_MSG(with - without < 1 << 20, "peak %lld without saving, %lld with", (long long)without,
              (long long)with);
}

/* ---- PyTorch ---------------------------------------------------------------------------- */
static const char forward_py[] =
    "import sys, json, numpy as np, torch\n"
    "sys.path.insert(0, 'bench/peers')\n"
    "import cloud\n"
    "from safetensors.torch import load_file, save_file\n"
    "dir, weights, back = sys.argv[1:]\n"
    "c = cloud.Config(**cloud.Cloud.TINY)\n"
    "model = cloud.MultimodalRegressionModel(c, lambda f, *a: f(*a))\n"
    "def metrics():\n"
    "    model.eval()\n"
    "    x = {k: torch.from_numpy(np.load(f'{dir}/eval/{k}.npy')) for k in ('frames', 'angles', 'target')}\n"
    "    one = torch.ones(1, 1)\n"
    "    with torch.no_grad():\n"
    "        y = model(x['frames'], x['angles'], [[one] * c.frames] * len(c.channels), [one] * len(c.dense))\n"
    "    e = y - x['target']\n"
    "    return {'loss': torch.nn.functional.huber_loss(y, x['target']).item(),\n"
    "            'ratio': (e.abs().mean() ** 2 / (e * e).mean()).item()}\n"
    "model.load_state_dict(load_file(weights), strict=True)\n"
    "ours = metrics()\n"
    "torch.manual_seed(3)\n"
    "for p in model.parameters(): p.data.add_(0.05 * torch.randn_like(p))\n"
    "save_file(model.state_dict(), back)\n"
    "print(json.dumps([ours, metrics()]))\n";

/* Weights go to the PyTorch model and back, and both models give the same outputs on the same data.
 * */
TEST(checkpoint_weights_give_the_same_outputs_in_pytorch)
{
    WANT_BIN();
    WANT_PYTHON(python, "torch");
    const char *d = pl_test_dir();

    CHECK(cli_write(pl_test_path("forward.py"), forward_py));
    cli_result r =
        cli_run("$P generate cloud/tiny --quiet --out %s/set --samples 16 --eval-samples 16 && "
                "$P train cloud/tiny data.path=%s/set train.steps=4 eval.batches=4 --quiet "
                "--out %s/run && %s %s/forward.py %s/set "
                "%s/run/checkpoints/step-00000004/model.safetensors %s/back.safetensors",
                d, d, d, python, d, d, d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    json_t *theirs = json_loads(r.out, 0, NULL);
    CHECK_MSG(json_array_size(theirs) == 2, "%s", r.out);
    for (int back = 0; back < 2; back++) {
        if (back)
            r = cli_run(
                "$P train cloud/tiny data.path=%s/set train.steps=1 optim.lr=0 eval.batches=4 "
                "--json init_from=%s/back.safetensors",
                d, d);
        const char *at =
            strstr(back ? r.out : cli_read(pl_test_path("run/log.jsonl")),
                   back ? "\"event\":\"eval\",\"step\":0" : "\"event\":\"eval\",\"step\":4");
        CHECK_MSG(at, "%s", r.err);
        const json_t *want = json_array_get(theirs, (size_t)back);
        double loss = strtod(strstr(at, "\"loss\":") + 7, NULL),
               mae = strtod(strstr(at, "\"mae_km\":") + 9, NULL);
        double mse = strtod(strstr(at, "\"mse_km2\":") + 10, NULL);
        CHECK_NEAR(loss, json_number_value(json_object_get(want, "loss")), 1e-5);
        CHECK_NEAR(mae * mae / mse, json_number_value(json_object_get(want, "ratio")), 1e-5);
    }
    json_decref(theirs);
}

/* When the list is too short for all checkpoints, it has the newest ones, whatever the order of
 * the folder. */
TEST(checkpoint_list_begins_with_the_newest)
{
    static const int64_t made[] = {30, 7, 90, 41, 12, 88, 3, 64};
    char path[600];
    int64_t got[3];
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/run/checkpoints/step-%08lld", pl_test_dir(),
                 (long long)made[i]);
        CHECK(cli_run("mkdir -p %s", path).code == 0);
    }
    snprintf(path, sizeof path, "%s/run", pl_test_dir());
    CHECK_INT(pl_folder_steps(path, got, 3), 8);
    CHECK(got[0] == 90 && got[1] == 88 && got[2] == 64);
    CHECK_INT(pl_folder_steps(path, got, 1), 8);
    CHECK_INT(got[0], 90);
}
