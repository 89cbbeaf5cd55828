/* test_cli.c - the program from outside: exit codes, messages, JSON, signals, memory. */
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <string.h>

/* ---- help and usage --------------------------------------------------------------------- */
TEST(cli_help_shows_examples)
{
    WANT_BIN();
    char list[2048];

    cli_result r = cli_run("$P help --commands");
    CHECK_INT(r.code, 0);
    snprintf(list, sizeof list, "%s", r.out);
    for (const char *name = strtok(list, "\n"); name; name = strtok(NULL, "\n")) {
        char call[96];
        r = cli_run("$P %s --help", name);
        CHECK_INT(r.code, 0);
        snprintf(call, sizeof call, "plimsoll %s", name);
        CHECK_MSG(strstr(r.out, "Examples") && strstr(r.out, call), "%s: %s", name, r.out);
        CHECK_INT(cli_run("$P help %s", name).code, 0);
    }
    r = cli_run("$P --help");
    CHECK(r.code == 0 && strstr(r.out, "Exit codes") && strstr(r.out, "generate"));

    r = cli_run("$P");
    CHECK(r.code == 2 && strstr(r.err, "plimsoll --help lists all commands"));
    r = cli_run("$P --version");
    CHECK(r.code == 0 && strncmp(r.out, "plimsoll ", 9) == 0);
}

TEST(cli_bad_usage_exits_with_2_and_a_hint)
{
    WANT_BIN();
    CHECK_RUN(cli_run("$P trian cloud/tiny"), 2, "did you mean train?");
    CHECK_RUN(cli_run("$P qqqqq"), 2, "unknown command");
    CHECK_RUN(cli_run("$P plan"), 2, "one configuration");
    CHECK_RUN(cli_run("$P plan cloud/tiny --jsn"), 2, "--jsn");
    CHECK_RUN(cli_run("$P plan cloud/tiny --memory"), 2, "--memory needs SIZE");
    CHECK_RUN(cli_run("$P plan cloud/tiny --memory ''"), 2, "--memory needs SIZE, and an empty");
    CHECK_RUN(cli_run("$P plan cloud/tiny --memory="), 2, "--memory needs SIZE, and an empty");
    CHECK_RUN(cli_run("$P plan cloud/tiny --json=false"), 2, "--json takes no value");
    CHECK_RUN(cli_run("$P plan cloud/tiny device=GPU"), 4, "did you mean cuda?");
    CHECK_RUN(cli_run("$P plan lgt/tiny steps=5"), 2, "did you mean train.steps?");
    CHECK_RUN(cli_run("$P plan cloud/nope"), 2, "preset");
    CHECK_RUN(cli_run("$P plan nope"), 2, "nope");
    CHECK_RUN(cli_run("$P plan ./nope.so"), 2, "nope.so");
    CHECK_RUN(cli_run("$P generate cloud/tiny"), 2, "--out");
    CHECK_RUN(cli_run("$P generate cloud/tiny --out x --samples many"), 2,
              "--samples takes a number of samples from 1 on, not \"many\"");
    CHECK_RUN(cli_run("$P replay %s/nothing", pl_test_dir()), 1, "meta.json");
    CHECK_RUN(cli_run("$P new 0bad"), 2, "0bad");
}

/* Without a terminal progress is a line at each 25 % that is reached, and at the end. */
TEST(cli_generate_prints_its_progress)
{
    if (!cli_bin()) SKIP("PL_BIN is not set");
    cli_result r = cli_run("$P generate cloud/tiny --out %s/set --samples 200 --eval-samples 1",
                           pl_test_dir());
    CHECK_MSG(r.code == 0 && strcmp(r.err, "train=100/200\ntrain=200/200\neval=1/1\n") == 0, "%s",
              r.err);
}

/* ---- configurations --------------------------------------------------------------------- */
TEST(cli_bad_configurations_are_refused_with_their_place)
{
    WANT_BIN();
    static const struct {
        const char *yaml, *message, *place;
    } cases[] = {
        {"batch: 4\n", "`recipe` is missing", "my.yaml"},
        {"recipe: cloud/tiny\nbatch: lots\n", "batch", "my.yaml:2:8"},
        {"recipe: cloud/tiny\nbatch: [1, 2]\n", "batch", "my.yaml:2:8"},
        {"recipe: cloud/tiny\noptim:\n  learning: 3\n", "optim.learning", "my.yaml:3:3"},
        {"recipe: cloud/tiny\nbatches: 4\n", "batch", "my.yaml:2:1"},
        {"recipe: cloud/tiny\nbatch: 0\n", "batch", "my.yaml:2:8"},
        {"recipe: cloud/tiny\noptim: {name: adma}\n", "adam", "my.yaml:2:15"},
        {"recipe: cloud/tiny\nbatch: 4\nbatch: 5\n", "batch", "my.yaml:3"},
        {"recipe: cloud/tiny\nmemory: 3 apples\n", "memory", "my.yaml:2:9"},
        {"recipe: [cloud\n", "my.yaml", "my.yaml:"},
        {"recipe: nothing\n", "nothing", "cloud"},
        {"recipe: cloud/tiny\nextends: cloud/nope\n", "cloud/nope", "my.yaml:2"},
        {"recipe: cloud/tiny\nmodel: {channels: []}\n", "model.channels", "1 to 8 numbers"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(cli_write(pl_test_path("my.yaml"), cases[i].yaml));
        cli_result r = cli_run("cd %s && $P plan my.yaml", pl_test_dir());
        CHECK_MSG(r.code == 2 && strstr(r.err, cases[i].message) && strstr(r.err, cases[i].place),
                  "exit code %d for:\n%swants \"%s\" and \"%s\":\n%s", r.code, cases[i].yaml,
                  cases[i].message, cases[i].place, r.err);
        CHECK(!r.out[0]);
    }
    CHECK_RUN(cli_run("$P plan cloud/tiny optim.lrr=3"), 2, "optim.lr");
    CHECK_RUN(cli_run("$P plan cloud/tiny batch=none"), 2, "batch");
    CHECK_RUN(cli_run("$P plan %s", pl_test_path("absent.yaml")), 2, "absent.yaml");
}

TEST(cli_printed_config_reads_back_the_same)
{
    WANT_BIN();

    CHECK_INT(cli_run("$P plan cloud/tiny optim.lr=0.5 'model.dense=[7, 8]' --memory 3GiB "
                      "--print-config > %s",
                      pl_test_path("a.yaml"))
                  .code,
              0);
    CHECK_INT(
        cli_run("$P train %s --print-config > %s", pl_test_path("a.yaml"), pl_test_path("b.yaml"))
            .code,
        0);

    cli_result r =
        cli_run("cd %s && grep -v '^recipe:' a.yaml > a && grep -v '^recipe:' b.yaml > b "
                "&& diff a b",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.out);
    CHECK(strstr(cli_read(pl_test_path("a.yaml")), "lr: 0.5"));
    CHECK(strstr(cli_read(pl_test_path("a.yaml")), "dense: [7, 8]"));
}

TEST(cli_overrides_win_over_extended_files)
{
    WANT_BIN();
    CHECK(cli_write(pl_test_path("base.yaml"),
                    "recipe: cloud\nextends: cloud/tiny\nbatch: 6\nseed: 3\n"));
    CHECK(cli_write(pl_test_path("mine.yaml"), "extends: base.yaml\nseed: 9\n"));
    cli_result r = cli_run("$P plan %s optim.lr=0.25 --print-config", pl_test_path("mine.yaml"));
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK(strstr(r.out, "batch: 6") && strstr(r.out, "seed: 9") && strstr(r.out, "lr: 0.25"));
    CHECK(strstr(r.out, "channels: [8, 16, 32]"));
}

/* ---- what goes wrong while running ------------------------------------------------------ */
TEST(cli_unwritable_output_is_named)
{
    WANT_BIN();

    CHECK(cli_write(pl_test_path("file"), "x"));
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --out %s/run", pl_test_path("file")), 1,
              "file");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --out %s", pl_test_path("file")), 1,
              "file");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --out /proc/none"), 1, "/proc/none");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --json > /dev/full"), 1, "");
    CHECK_RUN(cli_run("$P plan " CLI_SMALL "--json > /dev/full"), 1, "");
    CHECK_RUN(cli_run("mkdir -p %s && $P train " CLI_SMALL "train.steps=1 --quiet --fresh --out %s",
                      pl_test_path("run/model.safetensors"), pl_test_path("run")),
              1, "model.safetensors");
    CHECK_RUN(cli_run("$P generate cloud/tiny --out %s/x", pl_test_path("file")), 1, "file");
    CHECK_RUN(cli_run("$P new %s/net", pl_test_path("file")), 1, "file");
}

TEST(cli_bad_model_files_are_refused)
{
    WANT_BIN();

    CHECK_INT(
        cli_run("$P train " CLI_SMALL "train.steps=1 --quiet --out %s", pl_test_path("run")).code,
        0);
    CHECK_INT(cli_run("$P train " CLI_SMALL "train.steps=1 --quiet init_from=%s",
                      pl_test_path("run/model.safetensors"))
                  .code,
              0);

    cli_run("cd %s && head -c 300 run/model.safetensors > cut.safetensors; "
            "printf '\\377\\377\\377\\377\\377\\377\\377\\177{}' > huge.safetensors; "
            "printf '\\002\\0\\0\\0\\0\\0\\0\\0{}' > empty.safetensors; : > zero.safetensors; "
            "head -c 4000 /dev/zero > zeros.safetensors",
            pl_test_dir());
    static const char *const bad[] = {"cut", "huge", "empty", "zero", "zeros"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli_result r =
            cli_run("$P train " CLI_SMALL "train.steps=1 --quiet init_from=%s/%s.safetensors",
                    pl_test_dir(), bad[i]);
        CHECK_RUN(r, 6, bad[i]);
    }
    CHECK_RUN(cli_run("$P train " CLI_SMALL
                      "train.steps=1 --quiet 'model.dense=[4, 5]' init_from=%s",
                      pl_test_path("run/model.safetensors")),
              6, "dense.1.weight");
    CHECK_RUN(cli_run("$P inspect %s", pl_test_path("cut.safetensors")), 6, "cut");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --quiet init_from=gone.safetensors"), 6,
              "init_from: cannot open gone");
    CHECK_RUN(cli_run("$P train wandistill/tiny train.steps=1 --quiet teacher.weights=gone"), 6,
              "teacher.weights: cannot open gone");
}

TEST(cli_loss_that_blows_up_ends_the_run)
{
    WANT_BIN();
    /* This network turns NaN into 0 before its loss; the gradient norm shows the NaN. */
    cli_result r =
        cli_run("$P train " CLI_SMALL "optim.name=sgd optim.lr=1e6 optim.weight_decay=1000 "
                "clip.norm=1e9 train.steps=200 --quiet");
    CHECK_RUN(r, 7, "step ");
    CHECK(strstr(r.err, "optim.lr"));
}

TEST(cli_budget_below_the_minimum_is_refused_and_the_minimum_is_kept)
{
#define NET CLI_SMALL "batch=8 height=32 width=32 "
    WANT_BIN();

    cli_result r = cli_run("$P train " NET "train.steps=2 --memory 1MiB --quiet");
    CHECK_RUN(r, 3, "smallest budget");
    r = cli_run("$P plan " NET "--json --memory 1MiB");
    CHECK_RUN(r, 3, "smallest budget");
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(j && json_is_false(json_object_get(j, "fits")));

    json_int_t least = cli_member(j, "minimum_bytes");
    json_decref(j);
    CHECK(pl_test_allocs_counted() || least > 0);

    r = cli_run("$P train " NET "train.steps=3 --json --memory %lld", (long long)least);
    CHECK_MSG(r.code == 0, "%lld bytes were promised to be enough: %s", (long long)least, r.err);
    j = cli_event(r.out, "end", 0);
    if (pl_test_allocs_counted()) /* a sanitizer's shadow memory is not part of the promise */
        CHECK_MSG(cli_member(j, "peak_used_bytes") <= least, "peak %lld, budget %lld",
                  (long long)cli_member(j, "peak_used_bytes"), (long long)least);
    json_decref(j);
#undef NET
}

TEST(cli_sigterm_ends_a_run_with_143_and_a_summary)
{
    WANT_BIN();
    cli_result r = cli_run_signal(
        "exec $P train " CLI_SMALL "train.steps=1000000 train.log_every=2", "step=4/", SIGTERM);
    CHECK_MSG(r.code == 143, "exit code %d: %s", r.code, r.err);
    CHECK(strstr(r.err, " steps in "));
}

/* ---- terminals and colour --------------------------------------------------------------- */
TEST(cli_escapes_and_colour_are_for_terminals_only)
{
    WANT_BIN();

    cli_result r = cli_run("$P train " CLI_SMALL "train.steps=6 train.log_every=2");
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(!strchr(r.err, '\033') && !strchr(r.err, '\r'), "escapes without a terminal: %s",
              r.err);
    CHECK(strstr(r.err, "step=2/6") && strstr(r.err, "eta=") && !r.out[0]);
    CHECK(strchr(cli_run("FORCE_COLOR=1 $P plan " CLI_SMALL).out, '\033'));
    CHECK(!strchr(cli_run("FORCE_COLOR=1 NO_COLOR=1 $P plan " CLI_SMALL).out, '\033'));
    CHECK(!strchr(cli_run("$P plan " CLI_SMALL).out, '\033'));

    if (!cli_has_terminals()) SKIP("no terminals here: /dev/pts is not mounted");
    r = cli_run_terminal("exec $P train " CLI_SMALL "train.steps=40", NULL, 0);
    CHECK_MSG(r.code == 0, "%s", r.out);

    static const char *const parts[] = {
        "\r\033[K[00:00:", "Epoch 1/3 | Batch ", "/16 | ",  "batches/s | loss ", " MiB | ",
        "wait ",           "% | ETA 0.",         "\033[1m", "by all processes"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_MSG(strstr(r.out, parts[i]), "\"%s\" is not in the line:\n%s", parts[i], r.out);
    r = cli_run_terminal("NO_COLOR=1 exec $P train " CLI_SMALL "train.steps=5", NULL, 0);
    CHECK(r.code == 0 && !strstr(r.out, "\033[1m") && strstr(r.out, "ETA"));

    r = cli_run_terminal("TERM=dumb exec $P train " CLI_SMALL "train.steps=5", NULL, 0);
    CHECK(r.code == 0 && !strchr(r.out, '\033'));
    r = cli_run_terminal("exec $P train " CLI_SMALL "train.steps=1000000", "ETA", 0.2);
    CHECK_INT(r.code, 130);
}

/* ---- data sets on disk ------------------------------------------------------------------ */
TEST(cli_data_sets_are_generated_and_trained_on)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_INT(cli_run("$P generate " CLI_SMALL "--out %s/set --samples 9 --eval-samples 4", d).code,
              0);
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=6 --quiet data.path=%s/set", d), 0, "");
    CHECK_RUN(cli_run("$P generate " CLI_SMALL "--out %s/more --samples 90", d), 2, "90");

    /* a NaN in row 5 of frames: header 128 bytes, 64 floats a row */
    cli_run("cd %s && cp -r set nan && printf '\\0\\0\\300\\177' | "
            "dd of=nan/train/frames.npy bs=1 seek=$((128 + (5*64+7)*4)) conv=notrunc",
            d);
    cli_result r = cli_run("$P train " CLI_SMALL "train.steps=20 --quiet data.path=%s/nan", d);
    CHECK_RUN(r, 5, "nan/train/frames.npy");
    CHECK_MSG(strstr(r.err, "sample 5: element 7 of \"frames\""), "%s", r.err);
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=20 --quiet data.path=%s/nan "
                      "data.allow_nonfinite=true",
                      d),
              0, "");

    CHECK_RUN(cli_run("cp -r %s/set %s/gone && rm %s/gone/eval/angles.npy && $P train " CLI_SMALL
                      "--quiet data.path=%s/gone",
                      d, d, d, d),
              5, "eval/angles.npy");
    CHECK_RUN(cli_run("cp -r %s/set %s/swap && cp %s/set/train/angles.npy %s/swap/train/target.npy "
                      "&& $P train " CLI_SMALL "--quiet data.path=%s/swap",
                      d, d, d, d, d),
              5, "target");
    CHECK_RUN(cli_run("cp -r %s/set %s/len && cp %s/set/eval/target.npy %s/len/train/target.npy && "
                      "$P train " CLI_SMALL "--quiet data.path=%s/len",
                      d, d, d, d, d),
              5, "4");
    CHECK_RUN(cli_run("cp -r %s/set %s/type && sed -i 's/<f4/<i4/' %s/type/train/target.npy && "
                      "$P train " CLI_SMALL "--quiet data.path=%s/type",
                      d, d, d, d),
              5, "i32");
    CHECK_RUN(cli_run("cp -r %s/set %s/cut && head -c 700 %s/set/train/frames.npy > "
                      "%s/cut/train/frames.npy; $P train " CLI_SMALL "--quiet data.path=%s/cut",
                      d, d, d, d, d),
              5, "frames.npy");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "--quiet data.path=%s/absent", d), 5, "absent");
}

/* ---- a network of one's own ------------------------------------------------------------- */
TEST(cli_new_network_compiles_and_trains)
{
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("cd %s && $P new my-net", d), 0, "");
    CHECK_RUN(cli_run("cd %s && $P new my-net", d), 1, "my-net");
    /* A sanitized program loads recipes built without sanitizers; its runtime must not leak into
     * make. */
    cli_result r = cli_run("cd %s/my-net && make CFLAGS='-O1 -Wall -Wextra -Werror'", d);
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    r = cli_run("cd %s/my-net && $P plan config.yaml && $P plan ./my-net.so --json", d);
    CHECK_MSG(r.code == 0 && strstr(r.out, "parameters"), "%s", r.err);
    r = cli_run("$P train %s/my-net/config.yaml --json", d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    json_t *last = NULL;
    for (int i = 0;; i++) {
        json_t *e = cli_event(r.out, "eval", i);
        if (!e) break;
        json_decref(last);
        last = e;
    }
    double accuracy = json_number_value(json_object_get(last, "accuracy"));
    json_decref(last);
    CHECK_MSG(accuracy > 0.95, "the template reaches an accuracy of %g", accuracy);
    CHECK_RUN(cli_run("$P train %s/my-net/config.yaml optim.name=sgd optim.lr=1e6 --quiet", d), 7,
              "the loss is");
    /* A run records where its recipe is, so that the run can be used from any folder. */
    CHECK_RUN(
        cli_run(
            "cd %s/my-net && $P train ./my-net.so train.steps=2 --quiet --out by-name && $P train config.yaml train.steps=2 "
            "--quiet --out by-file",
            d),
        0, "");
    CHECK_RUN(
        cli_run(
            "$P eval %s/my-net/by-name && $P eval %s/my-net/by-file && $P plan %s/my-net/by-name/config.yaml",
            d, d, d),
        0, "");
    CHECK_RUN(cli_run("$P plan %s/my-net/my-net.so model.width=wide", d), 2, "model.width");
    CHECK_RUN(cli_run("$P plan %s/my-net/my-net.so/none", d), 2, "none");
}

/* ---- memory over time ------------------------------------------------------------------- */
static const char counter_source[] =
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdarg.h>\n#include <stdio.h>\n"
    "#include <stdlib.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
    "#include <sys/syscall.h>\n#include <errno.h>\n"
    "void *__libc_malloc(size_t); void *__libc_calloc(size_t, size_t);\n"
    "void *__libc_realloc(void *, size_t); void *__libc_memalign(size_t, size_t);\n"
    "static long n[4];\n"
    "#define ADD(i) __atomic_fetch_add(&n[i], 1, __ATOMIC_RELAXED)\n"
    "void *malloc(size_t b) { ADD(0); return __libc_malloc(b); }\n"
    "void *calloc(size_t a, size_t b) { ADD(0); return __libc_calloc(a, b); }\n"
    "void *realloc(void *p, size_t b) { ADD(0); return __libc_realloc(p, b); }\n"
    "void *memalign(size_t a, size_t b) { ADD(0); return __libc_memalign(a, b); }\n"
    "void *aligned_alloc(size_t a, size_t b) { ADD(0); return __libc_memalign(a, b); }\n"
    "int posix_memalign(void **o, size_t a, size_t b) { ADD(0); *o = __libc_memalign(a, b);\n"
    "    return *o ? 0 : ENOMEM; }\n"
    "void *mmap(void *a, size_t l, int p, int f, int d, off_t o) { ADD(1);\n"
    "    return (void *)syscall(SYS_mmap, a, l, p, f, d, o); }\n"
    "void *mmap64(void *a, size_t l, int p, int f, int d, off_t o) { return mmap(a, l, p, f, d, o); }\n"
    "static int any_open(int dir, const char *p, int f, int m) { ADD(2);\n"
    "    return (int)syscall(SYS_openat, dir, p, f, m); }\n"
    "int open(const char *p, int f, ...) { va_list v; va_start(v, f); int m = va_arg(v, int);\n"
    "    va_end(v); return any_open(AT_FDCWD, p, f, m); }\n"
    "int open64(const char *p, int f, ...) { va_list v; va_start(v, f); int m = va_arg(v, int);\n"
    "    va_end(v); return any_open(AT_FDCWD, p, f, m); }\n"
    "FILE *fopen(const char *p, const char *m) { ADD(2);\n"
    "    FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, \"fopen\"); return real(p, m); }\n"
    "__attribute__((destructor)) static void report(void) { char t[128];\n"
    "    const char *to = getenv(\"COUNTS\"); if (!to) return;\n"
    "    int k = snprintf(t, sizeof t, \"malloc %ld mmap %ld open %ld\", n[0], n[1], n[2]);\n"
    "    int fd = any_open(AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC, 0600);\n"
    "    if (write(fd, t, (size_t)k) != k) _exit(9); }\n";

/* Runs that differ only in their number of steps make the same system calls: a step makes none. */
TEST(cli_steps_take_nothing_from_the_system)
{
#define COSINE CLI_SMALL "schedule.name=cosine schedule.total_steps=9 "
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer has the allocator");
    const char *d = pl_test_dir(), *cc = getenv("CC");

    CHECK(cli_write(pl_test_path("count.c"), counter_source));
    cli_result r =
        cli_run("%s -O1 -fPIC -shared -o %s/count.so %s/count.c -ldl", cc ? cc : "cc", d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    char few[128], many[128];
    for (int json = 0; json < 2; json++) {
        /* the first process keeps the memory of library kernels in the cache */
        CHECK_RUN(cli_run("$P plan " COSINE "%s", json ? "--json" : "threads=2"), 0, "");
        for (int i = 0; i < 2; i++) {
            r = cli_run("rm -rf %s/run; COUNTS=%s/counts LD_PRELOAD=%s/count.so $P train " COSINE
                        "train.log_every=1 train.steps=%d %s --out %s/run",
                        d, d, d, i ? 53 : 13, json ? "--json" : "threads=2", d);
            CHECK_MSG(r.code == 0, "%s", r.err);
            snprintf(i ? many : few, sizeof few, "%s", cli_read(pl_test_path("counts")));
        }
        CHECK(strncmp(few, "malloc ", 7) == 0 && atol(few + 7) > 100);
        CHECK_MSG(strcmp(few, many) == 0, "13 steps: %s; 53 steps: %s", few, many);
    }
}

static json_int_t peak_of(int steps)
{
    cli_result r = cli_run("$P train " CLI_SMALL "train.steps=%d --json", steps);
    json_t *end = r.code == 0 ? cli_event(r.out, "end", 0) : NULL;
    json_int_t peak = end ? cli_member(end, "peak_used_bytes") : -1;
    json_decref(end);
    return peak;
}

/* A failed write is an error, and neither a pipe nor a link is replaced by a file. */
TEST(cli_output_that_is_lost_is_an_error)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P plan " CLI_SMALL "--print-config > /dev/full"), 1, "standard output");
    CHECK_RUN(cli_run("$P recipes > /dev/full"), 1, "standard output");
    CHECK_RUN(cli_run("$P train --help > /dev/full"), 1, "standard output");
    CHECK_RUN(
        cli_run(
            "cd %s && printf 'id,lower,upper,size\n0,0,3,5\n' > a.csv && mkfifo pipe && $P plan --csv a.csv --out pipe",
            d),
        1, "not a file");
    CHECK_INT(
        cli_run(
            "cd %s && test -p pipe && echo old > target && ln -s target link && $P plan --csv a.csv --out link && test -L link "
            "&& grep -q offset target",
            d)
            .code,
        0);
    CHECK_RUN(
        cli_run("cd %s && printf 'id,lower,upper,size\n0,3,1,5\n' > b.csv && $P plan --csv b.csv",
                d),
        5, "ends before it begins");
    CHECK_RUN(cli_run("$P plan " CLI_SMALL "--sweep 1GB,,2GB"), 2, "--sweep takes sizes");
    CHECK_RUN(cli_run("$P plan " CLI_SMALL "--sweep $(seq -s, 100000000 100000032)"), 2,
              "at most 32");
}

/* Steps as training runs them: their number, in the planned memory, sorted by the time they
 * take. */
TEST(cli_bench_measures_steps_in_the_planned_memory)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    cli_result r = cli_run("$P bench " CLI_SMALL "--steps 5 --warmup 2 --json");
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK_MSG(r.code == 0 && j, "%d: %s%s", r.code, r.out, r.err);
    double step = json_number_value(json_object_get(j, "step_ms")),
           least = json_number_value(json_object_get(j, "step_ms_min"));
    double most = json_number_value(json_object_get(j, "step_ms_max")),
           data = json_number_value(json_object_get(j, "data_wait_ms"));
    double plan = json_number_value(json_object_get(j, "plan_s")),
           first = json_number_value(json_object_get(j, "first_step_s"));
    double total = json_number_value(json_object_get(j, "total_bytes")),
           peak = json_number_value(json_object_get(j, "peak_used_bytes"));
    CHECK_INT(json_integer_value(json_object_get(j, "steps")), 5);
    CHECK_MSG(0 < least && least <= step && step <= most && data < step, "%s", r.out);
    CHECK_MSG(0 < plan && plan < first && 0 < peak && peak <= total, "%s", r.out);
    json_decref(j);
    r = cli_run("$P bench " CLI_SMALL "--steps 2");
    CHECK_MSG(r.code == 0 && strstr(r.out, "2 measured steps after 3") &&
                  strstr(r.out, "predicted") && strstr(r.err, "train=5/5"),
              "%s%s", r.out, r.err);
    CHECK_RUN(cli_run("$P bench " CLI_SMALL "--memory 1MB"), 3, "smallest budget");
    CHECK_RUN(cli_run("$P bench " CLI_SMALL "--steps 0"), 2, "--steps takes a number");
    CHECK_RUN(cli_run("$P bench " CLI_SMALL "--device t4"), 4, "profile");
}

TEST(cli_memory_does_not_grow_over_1000_steps)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory grows");
    json_int_t few = peak_of(20), many = peak_of(1000);
    CHECK(few > 0 && many > 0);
    CHECK_MSG(llabs(many - few) <= 1 << 20, "20 steps peak at %lld, 1000 steps at %lld",
              (long long)few, (long long)many);
}

/* ---- PyTorch ---------------------------------------------------------------------------- */
TEST(cli_weights_give_the_same_outputs_in_pytorch)
{
    WANT_BIN();
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torch");
    const char *d = pl_test_dir();

    CHECK_INT(
        cli_run("$P train cloud/tiny train.steps=1 eval.batches=1 --quiet --out %s/run", d).code,
        0);
    CHECK(cli_write(
        pl_test_path("load.py"),
        "import sys\n"
        "sys.path.insert(0, 'bench/peers')\n"
        "import cloud\n"
        "from safetensors.torch import load_file, save_file\n"
        "model = cloud.MultimodalRegressionModel(cloud.Config(**cloud.Cloud.TINY), None)\n"
        "model.load_state_dict(load_file(sys.argv[1]), strict=True)\n"
        "model.out.bias.data.fill_(0.625)\n"
        "save_file(model.state_dict(), sys.argv[2])\n"));

    cli_result r =
        cli_run("%s %s/load.py %s/run/model.safetensors %s/back.safetensors", python, d, d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("$P train cloud/tiny train.steps=1 eval.batches=1 optim.lr=0 --quiet "
                "init_from=%s/back.safetensors --out %s/again",
                d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run(
        "%s -c \"from safetensors.numpy import load_file as l; a=l('%s/back.safetensors'); "
        "b=l('%s/again/model.safetensors'); assert a.keys() == b.keys(); "
        "assert all((a[k] == b[k]).all() for k in a if 'running' not in k and 'num' not in k); "
        "assert b['out.bias'][0] == 0.625\"",
        python, d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);
}
