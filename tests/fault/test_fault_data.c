/* test_fault_data.c - data sets with things that are no files, foreign indexes, padded pictures,
 * and arrays that lie in other files. */
#include "base/err.h"
#include "base/sys.h"
#include "data/sets/items.h"
#include "data/sets/tar.h"
#include "io/safetensors.h"
#include "plimsoll_events.h"
#include "plimsoll_hdf5.h"
#include "plimsoll_train.h"
#include "tests/datasets/hdf5_file.h"
#include "tests/fault/fault_lab.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool make_picture(const char *name)
{
    uint8_t pixels[16 * 16 * 3] = {0};
    return pl_png_save(pl_test_path(name), 16, 16, 3, pixels) == PL_OK;
}

static int in_dir(const char *command)
{
    return cli_run("cd %s && %s", pl_test_dir(), command).code;
}

/* Returns the images of the set, or -1. */
static int64_t count_images(const char *path)
{
    pl_items *s;
    if (pl_items_open(&(pl_items_opts){.path = path}, &s) != PL_OK) return -1;
    int64_t n = s->n;
    pl_items_close(s);
    return n;
}

TEST(fault_a_pipe_in_place_of_a_file_is_refused_without_waiting)
{
    pl_tar tar;
    pl_st_reader *weights;
    pl_hdf5 *array;
    char *text;
    size_t n;
    CHECK_INT(in_dir("mkfifo a.tar a.pt a.safetensors a.h5"), 0);

    CHECK_INT(pl_tar_open(pl_test_path("a.tar"), &tar), PL_ERR_DATA);
    CHECK(pl_st_open(pl_test_path("a.pt"), &weights) != PL_OK);
    CHECK(pl_st_open(pl_test_path("a.safetensors"), &weights) != PL_OK);
    CHECK_INT(pl_sys_read_file(pl_test_path("a.pt"), 1 << 20, &text, &n), PL_ERR_IO);
    if (!pl_hdf5_missing()) {
        CHECK_INT(pl_hdf5_open(pl_test_path("a.h5"), "x", &array), PL_ERR_DATA);
        CHECK(strstr(pl_error_text(), "not a plain file"));
    }
}

/* Files of a run folder, and of a set, as pipes that nobody writes to. */
TEST(fault_a_pipe_in_a_run_folder_is_refused_without_waiting)
{
    static const char *const name[] = {"config.yaml", "log.jsonl", "plan.json"};
    WANT_BIN();
    cli_result r = cli_run(
        "cd %s && $P train regress/tiny train.steps=1 --quiet --out run && mkfifo text.txt && "
        "timeout 10 $P train text/tiny data.text=text.txt train.steps=1 --quiet --out text",
        pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "is not a file"), "exit code %d: %s", r.code, r.err);
    for (int i = 0; i < 3; i++) {
        r = cli_run("cd %s && rm -rf odd && cp -r run odd && rm odd/%s && mkfifo odd/%s && timeout "
                    "10 $P report odd --out page.html",
                    pl_test_dir(), name[i], name[i]);
        CHECK_MSG(r.code == 1 && strstr(r.err, name[i]), "%s: exit code %d: %s", name[i], r.code,
                  r.err);
        CHECK_MSG(!strstr(r.err, "has no"), "%s", r.err); /* it is there */
    }
}

/* A pipe in place of a recipe, a network or tokens has the exit code of a damaged file there. */
TEST(fault_a_pipe_in_place_of_a_recipe_is_refused_without_waiting)
{
    static const struct {
        const char *what;
        int code;
    } rows[] = {{"plan x.so", 2},
                {"plan ./x.so/tiny", 2},
                {"plan x.onnx", 6},
                {"inspect x.safetensors", 6},
                {"train text/tiny data.path=set --quiet", 5}};
    WANT_BIN();
    CHECK_INT(in_dir("mkdir -p set/train && mkfifo x.so x.onnx x.safetensors set/train/tokens.bin"),
              0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_result r = cli_run("cd %s && timeout 10 $P %s", pl_test_dir(), rows[i].what);
        CHECK_MSG(r.code == rows[i].code && strstr(r.err, "not a regular file"), "%s: %d: %s",
                  rows[i].what, r.code, r.err);
    }
}

TEST(fault_a_tar_index_of_another_program_is_left_alone)
{
    CHECK(make_picture("a.png") && make_picture("b.png"));
    CHECK_INT(in_dir("tar cf x.tar a.png b.png && echo theirs > x.tar.idx"), 0);

    CHECK_INT(count_images(pl_test_path("x.tar")), 2);
    CHECK(strcmp(cli_read(pl_test_path("x.tar.idx")), "theirs\n") == 0);
    CHECK_INT(in_dir("rm x.tar.idx && mkfifo x.tar.idx"), 0);
    CHECK_INT(count_images(pl_test_path("x.tar")), 2);
    CHECK_INT(in_dir("rm x.tar.idx && mkdir x.tar.idx"), 0);
    CHECK_INT(count_images(pl_test_path("x.tar")), 2);
    CHECK_INT(in_dir("rmdir x.tar.idx"), 0);
    CHECK_INT(count_images(pl_test_path("x.tar")), 2);
    CHECK(strncmp(cli_read(pl_test_path("x.tar.idx")), "plimsoll tar index", 18) == 0);
}

/* Runs fn in a process of its own; returns its exit code. */
static int apart(int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(fn());
    while (pid > 0 && waitpid(pid, &status, 0) < 0) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int scan_with_few_files(void)
{
    pl_data_summary sum;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){48, 48});
    pl_data_scan_opts o = {.each = NULL};
    if (pl_data_scan(pl_test_path("set"), &o, &sum) != PL_OK) return 1;
    return sum.files == 100 && sum.bad == 0 ? 0 : 2;
}

TEST(fault_a_set_of_more_tars_than_open_files_is_read)
{
    CHECK(make_picture("a.png"));
    CHECK_INT(in_dir("mkdir set && tar cf one.tar a.png && for i in $(seq 100); do ln one.tar "
                     "set/$i.tar; done"),
              0);
    CHECK_INT(apart(scan_with_few_files), 0);
}

/* 200 MB of nothing behind a picture of 16 x 16 pixels. */
static int scan_padded(void)
{
    pl_data_summary sum;
    pl_data_scan_opts o = {.each = NULL};
    size_t before = pl_sys_rss_bytes();
    if (pl_data_scan(pl_test_path("set"), &o, &sum) != PL_OK || sum.files != 1) return 1;
    return pl_sys_peak_rss_bytes() - before < 64u << 20 ? 0 : 2;
}

TEST(fault_a_padded_picture_takes_no_memory_for_its_padding)
{
    CHECK_INT(in_dir("mkdir set"), 0);
    CHECK(make_picture("set/a.png"));
    CHECK_INT(truncate(pl_test_path("set/a.png"), 200 << 20), 0);
    CHECK_INT(apart(scan_padded), 0);
}

TEST(fault_a_dangling_link_is_a_bad_image_not_a_bad_set)
{
    pl_data_summary sum;
    pl_data_scan_opts o = {.each = NULL};
    CHECK_INT(in_dir("mkdir set && ln -s nowhere.png set/b.png"), 0);
    CHECK(make_picture("set/a.png"));
    CHECK_INT(count_images(pl_test_path("set")), 2);
    CHECK_OK(pl_data_scan(pl_test_path("set"), &o, &sum));
    CHECK(sum.files == 2 && sum.bad == 1);
}

/* The user trains inside the folder of pictures: what runs write there is no part of the set. */
TEST(fault_runs_inside_a_data_set_are_not_read_as_data)
{
    WANT_BIN();
    CHECK_INT(in_dir("mkdir -p set/a set/b set/runs/1/checkpoints set/runs/1/samples"), 0);
    CHECK(make_picture("set/a/1.png") && make_picture("set/a/2.png") &&
          make_picture("set/b/1.png") && make_picture("set/runs/1/samples/1.png"));
    CHECK(cli_write(pl_test_path("set/runs/1/lock"), ""));
    CHECK_INT(count_images(pl_test_path("set")), 3);

    const char *d = pl_test_dir(), *net = "classify/tiny data.path=set batch=2 threads=1 --quiet";
    for (int steps = 1; steps <= 2; steps++) /* the second one resumes */
        CHECK_RUN(cli_run("cd %s && $P train %s train.steps=%d --out set", d, net, steps), 0, "");
    CHECK_INT(in_dir("mkdir set/samples && cp set/a/1.png set/samples"), 0);
    CHECK_MSG(strcmp(cli_read(pl_test_path("set/classes.txt")), "a\nb\n") == 0, "other classes");
    CHECK_INT(count_images(pl_test_path("set")), 3);
}

/* Classes that hold a run folder keep their pictures, in whichever order the file system lists
 * names. */
TEST(fault_runs_inside_classes_leave_the_pictures_of_the_classes)
{
    WANT_BIN();
    enum { CLASSES = 8 };
    static const char runs[] = "mkdir -p set/%1$d/run/checkpoints set/%1$d/run/samples && touch "
                               "set/%1$d/run/lock set/%1$d/run/samples/1.png";
    CHECK_INT(in_dir("mkdir set && for i in 0 1 2 3 4 5 6 7; do mkdir -p set/$i/more; done"), 0);
    for (int i = 0; i < CLASSES; i++) {
        char name[64], make[160];
        snprintf(name, sizeof name, "set/%d/%s1.png", i, i % 4 < 2 ? "" : "more/");
        snprintf(make, sizeof make, runs, i);
        if (i % 2) CHECK_INT(in_dir(make), 0);
        CHECK(make_picture(name));
        if (i % 2 == 0) CHECK_INT(in_dir(make), 0);
    }
    CHECK_INT(in_dir("mkdir -p set/runs/1/checkpoints set/runs/plots && touch set/runs/1/lock"), 0);
    CHECK_INT(count_images(pl_test_path("set")), CLASSES);
    CHECK_RUN(cli_run("cd %s && $P train classify/tiny data.path=set batch=2 threads=1 --quiet "
                      "train.steps=1 --out set/run",
                      pl_test_dir()),
              0, "");
    CHECK_MSG(strcmp(cli_read(pl_test_path("set/run/classes.txt")), "0\n1\n2\n3\n4\n5\n6\n7\n") ==
                  0,
              "other classes");
}

TEST(fault_an_array_whose_numbers_lie_in_other_files_is_refused)
{
    if (pl_hdf5_missing()) SKIP(pl_hdf5_missing());
    const float numbers[4] = {1, 2, 3, 4};
    hdf5_field own = {"x", "H5T_NATIVE_FLOAT_g", 1, {4}, numbers, NULL}, other = own;
    char raw[512];
    pl_hdf5 *h;
    snprintf(raw, sizeof raw, "%s", pl_test_path("raw.bin"));
    other.elsewhere = raw;
    if (!hdf5_file_write(pl_test_path("a.h5"), &own, 1)) SKIP("no libhdf5_serial");

    CHECK(hdf5_file_write(pl_test_path("b.h5"), &other, 1));
    CHECK_OK(pl_hdf5_open(pl_test_path("a.h5"), "x", &h));
    pl_hdf5_close(h);
    CHECK_INT(pl_hdf5_open(pl_test_path("b.h5"), "x", &h), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "external storage"), "%s", pl_error_text());
}

/* A recipe as an override would be ignored, but written into the run's configuration. */
TEST(fault_an_override_cannot_change_the_recipe)
{
    const char *other[] = {"recipe=lgt"}, *same[] = {"recipe=cloud"};
    pl_run *r;
    CHECK_INT(pl_run_open("cloud/tiny", other, 1, &r), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "cannot change the recipe, which is cloud"), "%s",
              pl_error_text());
    CHECK_OK(pl_run_open("cloud/tiny", same, 1, &r));
    pl_run_free(r);
}

/* `cache` is killed before each of its names appears, in a new folder and over a cache of another
 * configuration: the same command fills the folder with the bytes of an undisturbed cache. */
TEST(fault_a_killed_cache_is_completed_by_the_same_command)
{
    WANT_FAULTS();
    if (!pl_test_long()) SKIP("long");
#define CACHE                                                                                      \
 "cache stablesr/pictures data.path=set data.flip=0 data.crop=center allow_random_frozen=true "    \
 "threads=1 --quiet data.cache=latents data.resize="
    const char *d = pl_test_dir();
    CHECK_RUN(fault_free("generate stablesr/pictures --raw data.samples=1 data.eval_samples=1 "
                         "--out set --quiet"),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P " CACHE "lanczos && mv latents whole", d), 0, "");
    CHECK_RUN(cli_run("cd %s && $P " CACHE "triangle && mv latents other", d), 0, "");
    CHECK_RUN(cli_run("cd %s && ! diff -r whole/train other/train", d), 0, ""); /* other bytes */
    fault f = {"rename", "/latents/c", 0, "kill"};
    long n = fault_count(&f, CACHE "lanczos");
    CHECK_MSG(n == 4, "%ld names", n); /* cache.json and config.yaml, twice */

    for (int over = 0; over < 2; over++)
        for (f.k = 1; f.k <= n; f.k++) {
            cli_run("cd %s && rm -rf latents && if [ %d = 1 ]; then cp -a other latents; fi", d,
                    over);
            int first = fault_run(&f, CACHE "lanczos").code;
            CHECK_MSG(first == 137, "name %ld: exit code %d", f.k, first);
            CHECK_RUN(fault_free(CACHE "lanczos"), 0, "");
            CHECK_RUN(cli_run("cd %s && diff -r -x cache.checked -x '*.tmp-*' whole latents", d), 0,
                      "");
        }
}
